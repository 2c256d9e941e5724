// SHA-256 of some bytes, in lower-case hex. Pure.
#pragma once
#include <string>
#include <string_view>

namespace tessera::worker::codegen {

std::string Sha256Hex(std::string_view bytes);

}  // namespace tessera::worker::codegen
