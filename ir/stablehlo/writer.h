// Writes MLIR bytecode of version 6 from flat tables. It is the inverse of ReadBytecode.
// Thread-compatible.
#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "ir/stablehlo/bytecode.h"

namespace tessera::ir::stablehlo {

// Appends bytes in the encodings of the format.
class Emitter {
 public:
  void Byte(uint8_t byte) { bytes_.push_back(static_cast<char>(byte)); }
  void VarInt(uint64_t value);
  void VarInt(uint64_t value, bool flag) { VarInt(value << 1 | (flag ? 1 : 0)); }
  void SignedVarInt(int64_t value);
  void Append(std::string_view bytes) { bytes_.append(bytes); }
  void Append(Bytes bytes) { bytes_.append(bytes.begin(), bytes.end()); }
  void Section(int id, std::string_view content);
  const std::string& bytes() const { return bytes_; }
  // Returns the bytes and leaves none behind.
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// The tables hold one root op and satisfy what ReadBytecode ensures. The version in the tables is
// ignored, but the properties of the ops must be in the encoding of version 5 or later.
std::string WriteBytecode(const Bytecode& code);

}  // namespace tessera::ir::stablehlo
