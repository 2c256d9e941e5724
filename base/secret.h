// Random bytes, and comparison in constant time.
//
// Thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// Returns `bytes` random bytes from the kernel, in lower-case hex.
std::string RandomHex(size_t bytes);
// Returns whether the texts are equal. Takes the same time for all texts of one length.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace tessera
