#include "ir/api/placement.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/words.h"

namespace tessera::api {
namespace {

const ir::AxisList& AxesOf(const ir::PartitionSpec& spec, size_t dim) {
  static const ir::AxisList kNone;
  return dim < spec.dims.size() ? spec.dims[dim] : kNone;
}

}  // namespace

absl::Status CheckPlacement(const Placement& placement, const ir::Dims& shape) {
  const ir::Mesh& mesh = placement.mesh;
  const ir::PartitionSpec& spec = placement.spec;
  TESSERA_RETURN_IF_ERROR(Annotate(ir::CheckMesh(mesh), "placement"));
  if (static_cast<int64_t>(placement.devices.size()) != mesh.num_devices())
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(
            "placement: ", Counted(static_cast<int64_t>(placement.devices.size()), "device"),
            " for mesh ", mesh.ToString(), ", which has ", mesh.num_devices()));
  const std::set<int64_t> distinct(placement.devices.begin(), placement.devices.end());
  if (distinct.size() != placement.devices.size())
    return MakeError(ErrorKind::kValueError, "placement: a device is given twice");
  if (spec.dims.size() > shape.size())
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("placement: sharding ", spec.ToString(),
                                  " is only valid for values of rank at least ", spec.dims.size(),
                                  ", but was applied to a value of rank ", shape.size()));
  if (!spec.unreduced.empty() || !spec.reduced.empty())
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("placement: ", spec.ToString(),
                                  " has unreduced or reduced axes; arrays at rest have none"));
  std::set<std::string> used;
  for (size_t d = 0; d < spec.dims.size(); ++d) {
    if (spec.IsOpen(static_cast<int>(d)))
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("placement: dim ", d, " of ", spec.ToString(),
                                    " is left open; arrays at rest say where they lie"));
    int64_t parts = 1;
    for (const std::string& axis : spec.dims[d]) {
      if (!mesh.Has(axis))
        return MakeError(ErrorKind::kUnknownAxis,
                         absl::StrCat("placement: ", spec.ToString(), " names axis '", axis,
                                      "', which mesh ", mesh.ToString(), " does not have"));
      if (!used.insert(axis).second)
        return MakeError(ErrorKind::kValueError, absl::StrCat("placement: ", spec.ToString(),
                                                              " uses axis '", axis, "' twice"));
      parts *= mesh.SizeOf(axis);
    }
    if (shape[d] % parts != 0)
      return MakeError(ErrorKind::kIndivisible,
                       absl::StrCat("placement: sharding ", spec.ToString(),
                                    " implies that the global size of its dimension ", d,
                                    " should be divisible by ", parts, ", but it is equal to ",
                                    shape[d], " (full shape: (", ir::DimsToString(shape), "))"));
  }
  return absl::OkStatus();
}

ir::Dims LocalShape(const Placement& placement, const ir::Dims& shape) {
  ir::Dims local = shape;
  for (size_t d = 0; d < shape.size(); ++d)
    local[d] /= placement.mesh.SizeOf(AxesOf(placement.spec, d));
  return local;
}

ir::Dims BlockStarts(const Placement& placement, const ir::Dims& shape, int64_t ordinal) {
  ir::Dims starts(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const ir::AxisList& axes = AxesOf(placement.spec, d);
    starts[d] = shape[d] / placement.mesh.SizeOf(axes) * placement.mesh.IndexAlong(ordinal, axes);
  }
  return starts;
}

std::vector<int> DistinctBlocks(const Placement& placement, const ir::Dims& shape) {
  // Coordinates along the axes that shard a dim, so that empty dims do not merge blocks.
  std::set<std::vector<int64_t>> seen;
  std::vector<int> ordinals;
  for (int64_t k = 0; k < placement.mesh.num_devices(); ++k) {
    std::vector<int64_t> block;
    for (size_t d = 0; d < shape.size(); ++d)
      block.push_back(placement.mesh.IndexAlong(k, AxesOf(placement.spec, d)));
    if (seen.insert(std::move(block)).second) ordinals.push_back(static_cast<int>(k));
  }
  return ordinals;
}

}  // namespace tessera::api
