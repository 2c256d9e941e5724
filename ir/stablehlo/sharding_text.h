// Shardings that artifacts hold as texts.
//
// Pure functions of untrusted texts, of at most 64 KiB; they throw StatusException:
// MALFORMED_PROGRAM for a text that does not parse, NOT_IMPLEMENTED, by name, for what our
// shardings cannot say.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mesh.h"

namespace tessera::ir::stablehlo {

// Where an axis lies among devices in row-major order: a step along it is `stride` devices.
struct AxisRange {
  int64_t stride = 1;
  int64_t size = 1;
};

// ---- mhlo.sharding: "{devices=[2,1,4]<=[8] last_tile_dim_replicate}". ---------------------------
struct TiledSharding {
  enum Kind : uint8_t { kReplicated, kManual, kMaximal, kTiled } kind = kReplicated;
  // Of kTiled: per dim, the axes that shard it, major to minor, none of size 1.
  std::vector<std::vector<AxisRange>> dims;
  // Of kTiled: the axes along which the value is manual.
  std::vector<AxisRange> manual;
  int64_t devices = 1;
};
inline constexpr int64_t kTiledDevicesMax = 4096;
TiledSharding ParseTiled(std::string_view text, std::string_view what);
// The axes along which the places of a group lie: in their order, or else in any; false if they lie
// along none.
bool GroupRanges(const std::vector<int64_t>& places, std::vector<AxisRange>* out);

// ---- Shardy's, in frontend attributes. ----------------------------------------------------------
// An axis of a mesh, or the part of it of `size` after parts of `before` together.
struct AxisPart {
  std::string name;
  int64_t before = 1;
  int64_t size = 0;  // 0: all of it
};
// Priorities, which only say in which order shardings propagate, are left out.
struct NamedSharding {
  std::string mesh;
  std::vector<std::vector<AxisPart>> dims;
  std::vector<bool> open;  // as long as dims
  std::vector<AxisPart> replicated, unreduced;
};
// "#sdy.sharding<@mesh, [{"x"}, {?}]>"
NamedSharding ParseSharding(std::string_view text, std::string_view what);
// "#sdy.sharding_per_value<[<@mesh, [{"x"}]>]>"
std::vector<NamedSharding> ParseShardingPerValue(std::string_view text, std::string_view what);
// "#sdy<manual_axes{"x", "y"}>"
AxisList ParseManualAxes(std::string_view text, std::string_view what);
// "{mesh = #sdy.mesh<["x"=2], device_ids=[1, 0]>}"
struct NamedMesh {
  std::string name;
  std::vector<MeshAxis> axes;
  std::vector<int64_t> device_ids;
};
std::vector<NamedMesh> ParseMeshes(std::string_view text, std::string_view what);

}  // namespace tessera::ir::stablehlo
