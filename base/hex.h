// Hexadecimal digits as bytes. Abseil's function for this has another signature in each version.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the bytes that `digits` spells, two digits a byte; nullopt if their number is odd or one
// of them is no hexadecimal digit. Both cases of letters are digits.
std::optional<std::string> BytesFromHex(std::string_view digits);

}  // namespace tessera
