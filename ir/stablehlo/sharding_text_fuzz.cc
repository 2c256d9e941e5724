// Fuzzes the parsers of sharding texts. Arbitrary bytes are refused with a status, or parsed by at
// most one of the parsers.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/log.h"
#include "base/status_exception.h"
#include "ir/stablehlo/sharding_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::ir::stablehlo;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = [&](auto parse) {
    return tessera::CatchStatus([&] { parse(text, "a text"); }).ok();
  };
  const bool is_tiled = read(ParseTiled), is_sharding = read(ParseSharding),
             is_list = read(ParseShardingPerValue), is_axes = read(ParseManualAxes),
             is_meshes = read(ParseMeshes);
  // No text can be of two kinds.
  const int kinds = is_tiled + is_sharding + is_list + is_axes + is_meshes;
  TESSERA_CHECK(kinds <= 1) << kinds;
  return 0;
}
