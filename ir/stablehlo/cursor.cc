// The reads of Cursor. Only Take and ZeroTerminated move the position, and both check the bounds,
// so the other reads need no checks of their own.
#include "ir/stablehlo/cursor.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace tessera::ir::stablehlo {

uint8_t Cursor::Byte() {
  const Bytes byte = Take(1);
  return byte.empty() ? 0 : byte[0];
}

uint64_t Cursor::VarInt() {
  const uint8_t first = Byte();
  if (!ok()) return 0;
  const int more = first == 0 ? 8 : __builtin_ctz(first);
  uint64_t value = 0;
  const Bytes rest = Take(more);
  for (size_t i = rest.size(); i > 0; --i) value = value << 8 | rest[i - 1];
  if (!ok() || more == 8) return value;
  return value << (7 - more) | first >> (more + 1);
}

int64_t Cursor::SignedVarInt() {
  const uint64_t value = VarInt();
  return static_cast<int64_t>(value >> 1 ^ (~(value & 1) + 1));
}

uint64_t Cursor::VarInt(bool* flag) {
  const uint64_t value = VarInt();
  *flag = (value & 1) != 0;
  return value >> 1;
}

uint32_t Cursor::Index(size_t size, const char* of) { return CheckedIndex(VarInt(), size, of); }

uint32_t Cursor::CheckedIndex(uint64_t index, size_t size, const char* of) {
  if (ok() && index >= size)
    Fail(absl::StrCat("there are ", size, " ", of, ", but number ", index, " is used"));
  return ok() ? static_cast<uint32_t>(index) : 0;
}

size_t Cursor::Count(const char* of, size_t bytes_each) {
  const uint64_t count = VarInt();
  if (count > left() / bytes_each)
    Fail(absl::StrCat(count, " ", of, " are announced, but ", left(), " bytes are left"));
  return ok() ? count : 0;
}

Bytes Cursor::Take(size_t count) {
  if (!ok()) return {};
  if (count > left()) {
    Fail("ends too early");
    return {};
  }
  const Bytes taken = bytes_.subspan(at_, count);
  at_ += count;
  return taken;
}

std::string_view Cursor::ZeroTerminated() {
  if (!ok()) return {};
  const auto begin = bytes_.begin() + at_;
  const auto end = std::find(begin, bytes_.end(), 0);
  if (end == bytes_.end()) {
    Fail("a text has no end");
    return {};
  }
  const size_t size = end - begin;
  at_ += size + 1;
  return {reinterpret_cast<const char*>(bytes_.data()) + at_ - size - 1, size};
}

void Cursor::Fail(std::string_view message) {
  if (ok()) error_ = absl::StrCat(what_, ", byte ", offset(), ": ", ToAbsl(message));
}

absl::Status Cursor::status() const {
  return ok() ? absl::OkStatus()
              : MakeError(ErrorKind::kMalformedProgram, absl::StrCat("StableHLO: ", error_));
}

absl::Status Cursor::Finish() {
  if (left() > 0) Fail(absl::StrCat(left(), " bytes are left over"));
  return status();
}

}  // namespace tessera::ir::stablehlo
