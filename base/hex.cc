// Decodes hexadecimal digits. The parser of programs as text (ir/text.cc) calls it for bytes that
// are written as digits.
#include "base/hex.h"

namespace tessera {
namespace {

// Returns the value of a digit, or -1 if the character is not a hexadecimal digit.
int ValueOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> BytesFromHex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes(digits.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = ValueOf(digits[2 * i]), low = ValueOf(digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace tessera
