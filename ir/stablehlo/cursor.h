// Reads untrusted bytes from front to back, and never past their end.
//
// The first error is kept. Reads after an error return 0 or an empty result, so that the caller may
// check once after a group of reads. A loop over a count that was read always ends soon: Count
// refuses a count that the remaining bytes cannot hold.
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
  // `what` names the bytes in errors ("strings"). `base` is their position in the artifact.
  explicit Cursor(Bytes bytes, const char* what = "artifact", size_t base = 0)
      : bytes_(bytes), what_(what), base_(base) {}

  bool ok() const { return error_.empty(); }
  bool done() const { return !ok() || at_ == bytes_.size(); }
  size_t left() const { return ok() ? bytes_.size() - at_ : 0; }
  // Returns the position of the next byte in the artifact.
  size_t offset() const { return base_ + at_; }

  uint8_t Byte();
  // Reads a varint of MLIR. The number of zero bits at the low end of its first byte is the number
  // of bytes that follow.
  uint64_t VarInt();
  // Like VarInt, but zigzag-encoded.
  int64_t SignedVarInt();
  // Reads a varint whose low bit is a flag.
  uint64_t VarInt(bool* flag);
  // Reads a varint that must be below `size`, the size of a table. `of` names the table in errors.
  uint32_t Index(size_t size, const char* of);
  // Returns `index` if it is below `size`. Fails like Index if it is not.
  uint32_t CheckedIndex(uint64_t index, size_t size, const char* of);
  // Reads a count of items that follow, each of at least `bytes_each` bytes.
  size_t Count(const char* of, size_t bytes_each = 1);
  Bytes Take(size_t count);
  // Returns the text up to the next zero byte, and skips that byte.
  std::string_view ZeroTerminated();

  // Keeps the message as the error "<what>, byte <offset>: <message>", unless there is one already.
  void Fail(std::string_view message);
  // Returns MALFORMED_PROGRAM with the error's text, or ok.
  absl::Status status() const;
  // Like status(), but it is also an error if not everything was read.
  absl::Status Finish();

 private:
  Bytes bytes_;
  const char* what_;
  size_t base_;
  size_t at_ = 0;
  std::string error_;
};

}  // namespace tessera::ir::stablehlo
