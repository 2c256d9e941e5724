// Parses shardings that artifacts hold as texts.
//
// The functions are pure. The texts are untrusted and at most 64 KiB long. Errors are
// StatusExceptions: MALFORMED_PROGRAM for a text that does not parse, and NOT_IMPLEMENTED, with its
// name, for a feature that our shardings cannot express.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mesh.h"

namespace tessera::ir::stablehlo {

// The position of an axis among devices in row-major order: a step along it is `stride` devices.
struct AxisRange {
  int64_t stride = 1;
  int64_t size = 1;
};

// ---- mhlo.sharding: "{devices=[2,1,4]<=[8] last_tile_dim_replicate}". ---------------------------
struct TiledSharding {
  enum Kind : uint8_t { kReplicated, kManual, kMaximal, kTiled } kind = kReplicated;
  // For kTiled: the axes that shard each dim, major to minor, none of size 1.
  std::vector<std::vector<AxisRange>> dims;
  // For kTiled: the axes along which the value is manual.
  std::vector<AxisRange> manual;
  int64_t devices = 1;
};
inline constexpr int64_t kTiledDevicesMax = 4096;
TiledSharding ParseTiled(std::string_view text, std::string_view what);
// Finds the axes along which the positions of a group of devices lie in row-major order. If there
// are none, it looks at the positions in ascending order. Returns false if that finds no axes
// either.
bool FindGroupRanges(const std::vector<int64_t>& positions, std::vector<AxisRange>* out);

// ---- Shardy's, in frontend attributes. ----------------------------------------------------------
// An axis of a mesh or, if `size` is not 0, one of the parts into which the axis is divided. The
// sizes of the parts before it multiply to `before`.
struct AxisPart {
  std::string name;
  int64_t before = 1;
  int64_t size = 0;  // 0 means the whole axis
};
// Priorities are left out. They only say in which order shardings propagate.
struct NamedSharding {
  std::string mesh;
  std::vector<std::vector<AxisPart>> dims;
  std::vector<bool> open;  // has as many entries as dims
  std::vector<AxisPart> replicated, unreduced;
};
// Parses "#sdy.sharding<@mesh, [{"x"}, {?}]>".
NamedSharding ParseSharding(std::string_view text, std::string_view what);
// Parses "#sdy.sharding_per_value<[<@mesh, [{"x"}]>]>".
std::vector<NamedSharding> ParseShardingPerValue(std::string_view text, std::string_view what);
// Parses "#sdy<manual_axes{"x", "y"}>".
AxisList ParseManualAxes(std::string_view text, std::string_view what);
// A mesh in the form "{mesh = #sdy.mesh<["x"=2], device_ids=[1, 0]>}".
struct NamedMesh {
  std::string name;
  std::vector<MeshAxis> axes;
  std::vector<int64_t> device_ids;
};
std::vector<NamedMesh> ParseMeshes(std::string_view text, std::string_view what);

}  // namespace tessera::ir::stablehlo
