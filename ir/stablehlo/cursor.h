// Reads untrusted bytes from front to back, never past their end.
//
// The first error stays: what is read after it is 0 or empty, so that a reader may check once after
// a group of reads.  A loop over a count ends: Count refuses one that the bytes left cannot hold.
//
// Thread-compatible.  Borrows the bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tessera::ir::stablehlo {

using Bytes = absl::Span<const uint8_t>;

class Cursor {
 public:
  // `what` names the bytes in errors ("strings"); `base` is where they begin in the artifact.
  explicit Cursor(Bytes bytes, const char* what = "artifact", size_t base = 0)
      : bytes_(bytes), what_(what), base_(base) {}

  bool ok() const { return error_.empty(); }
  bool done() const { return !ok() || at_ == bytes_.size(); }
  size_t left() const { return ok() ? bytes_.size() - at_ : 0; }
  // Of the next byte, in the artifact.
  size_t offset() const { return base_ + at_; }

  uint8_t Byte();
  // A prefix varint: the zero bits at the low end of the first byte count the bytes that follow.
  uint64_t VarInt();
  // The same, zigzag.
  int64_t SignedVarInt();
  // A varint whose low bit is a flag.
  uint64_t VarInt(bool* flag);
  // A varint below `size`, of a table that `of` names.
  uint32_t Index(size_t size, const char* of);
  uint32_t Checked(uint64_t index, size_t size, const char* of);
  // How many of something follow, of at least `bytes_each` bytes.
  size_t Count(const char* of, size_t bytes_each = 1);
  Bytes Take(size_t count);
  // Up to the next zero byte, which is passed.
  std::string_view ZeroTerminated();

  // Keeps the first error: "<what>, byte <offset>: <message>".
  void Fail(std::string_view message);
  // MALFORMED_PROGRAM with that text, or ok.
  absl::Status status() const;
  // The same, and an error when not everything was read.
  absl::Status Finish();

 private:
  Bytes bytes_;
  const char* what_;
  size_t base_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace tessera::ir::stablehlo
