// Converts hexadecimal digits to bytes. Abseil's function for this has a different signature in
// each version.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the bytes that `digits` spells, with two digits for each byte. Returns nullopt if the
// number of digits is odd or a character is not a hexadecimal digit. Letters may be upper or lower
// case.
std::optional<std::string> BytesFromHex(std::string_view digits);

}  // namespace tessera
