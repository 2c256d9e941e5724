// The check that the text parser and the reader of messages make on a literal that came from
// outside. The rest of the system may then assume that all elements are valid.
#include "ir/literal.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera::ir {

bool HasValidElements(const Array& literal) {
  const DType dtype = literal.dtype();
  const int bits = dtype == DType::kBool ? 1 : BitWidth(dtype);
  if (bits >= 8) return true;
  const bool is_signed = IsSignedInt(dtype);
  const int lowest = is_signed ? -(1 << (bits - 1)) : 0;
  const auto is_element = [&](std::byte byte) {
    const int value =
        is_signed ? static_cast<int>(static_cast<int8_t>(byte)) : static_cast<int>(byte);
    return value >= lowest && value < lowest + (1 << bits);
  };
  return std::all_of(literal.data(), literal.data() + literal.num_bytes(), is_element);
}

}  // namespace tessera::ir
