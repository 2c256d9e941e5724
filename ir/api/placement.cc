// The arithmetic of placements, and their check. The scheduler and admission check the placements
// that clients send; afterwards everyone who moves shards computes from a placement which block of
// the array lies on which device.
#include "ir/api/placement.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/words.h"
#include "ir/spec.h"
#include "ir/type.h"

namespace tessera::api {
namespace {

const ir::AxisList& AxesOf(const ir::PartitionSpec& spec, size_t dim) {
  static const ir::AxisList kNone;
  return dim < spec.dims.size() ? spec.dims[dim] : kNone;
}

// Words the error for a fault that FindSpecFault found. The texts about rank and divisibility
// follow JAX's, so that users of JAX recognise the mistake.
absl::Status FaultError(const ir::SpecFault& fault, const Placement& placement,
                        const ir::Dims& shape) {
  const std::string spec = placement.spec.ToString();
  switch (fault.kind) {
    case ir::SpecFault::kTooLong:
      return MakeError(
          ErrorKind::kValueError,
          absl::StrCat("placement: sharding ", spec, " is only valid for values of rank at least ",
                       placement.spec.dims.size(), ", but was applied to a value of rank ",
                       shape.size()));
    case ir::SpecFault::kUnknownAxis:
      return MakeError(ErrorKind::kUnknownAxis,
                       absl::StrCat("placement: ", spec, " names axis '", fault.axis,
                                    "', which mesh ", placement.mesh.ToString(), " does not have"));
    case ir::SpecFault::kAxisTwice:
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("placement: ", spec, " uses axis '", fault.axis, "' twice"));
    case ir::SpecFault::kIndivisible:
      break;
  }
  return MakeError(
      ErrorKind::kIndivisible,
      absl::StrCat("placement: sharding ", spec, " implies that the global size of its dimension ",
                   fault.dim, " should be divisible by ", fault.shards, ", but it is equal to ",
                   shape[fault.dim], " (full shape: (", ir::DimsToString(shape), "))"));
}

}  // namespace

// Checks a placement from a client before anything is computed from it: the mesh, the devices, then
// the spec. A spec with too many dims is reported before unreduced axes and open dims, because
// those errors refer to dims that must exist; all other faults of the spec come last.
absl::Status CheckPlacement(const Placement& placement, const ir::Dims& shape) {
  const ir::Mesh& mesh = placement.mesh;
  const ir::PartitionSpec& spec = placement.spec;
  TESSERA_RETURN_IF_ERROR(Annotate(ir::CheckMesh(mesh), "placement"));
  if (static_cast<int64_t>(placement.devices.size()) != mesh.num_devices())
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat(
            "placement: ", Pluralize(static_cast<int64_t>(placement.devices.size()), "device"),
            " for mesh ", mesh.ToString(), ", which has ", mesh.num_devices()));
  const std::set<int64_t> distinct(placement.devices.begin(), placement.devices.end());
  if (distinct.size() != placement.devices.size())
    return MakeError(ErrorKind::kValueError, "placement: a device is given twice");
  const std::optional<ir::SpecFault> fault = ir::FindSpecFault(spec, mesh, shape);
  if (fault && fault->kind == ir::SpecFault::kTooLong) return FaultError(*fault, placement, shape);
  if (!spec.unreduced.empty() || !spec.reduced.empty())
    return MakeError(
        ErrorKind::kValueError,
        absl::StrCat("placement: ", spec.ToString(),
                     " has unreduced or reduced axes, which stored arrays cannot have"));
  for (size_t d = 0; d < spec.dims.size(); ++d)
    if (spec.IsOpen(static_cast<int>(d)))
      return MakeError(ErrorKind::kValueError,
                       absl::StrCat("placement: dim ", d, " of ", spec.ToString(),
                                    " is left open; stored arrays need a complete spec"));
  return fault ? FaultError(*fault, placement, shape) : absl::OkStatus();
}

ir::Dims LocalShape(const Placement& placement, const ir::Dims& shape) {
  ir::Dims local = shape;
  for (size_t d = 0; d < shape.size(); ++d)
    local[d] /= placement.mesh.SizeOf(AxesOf(placement.spec, d));
  return local;
}

ir::Dims ShardStarts(const Placement& placement, const ir::Dims& shape, int64_t ordinal) {
  ir::Dims starts(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    const ir::AxisList& axes = AxesOf(placement.spec, d);
    starts[d] = shape[d] / placement.mesh.SizeOf(axes) * placement.mesh.IndexAlong(ordinal, axes);
  }
  return starts;
}

std::vector<int> FirstReplicas(const Placement& placement, const ir::Dims& shape) {
  // Compares the coordinates along the axes that shard a dim and not the start indices, since the
  // shards of an empty dim all start at 0.
  std::map<std::vector<int64_t>, int> first_of_shard;
  std::vector<int> first;
  for (int64_t k = 0; k < placement.mesh.num_devices(); ++k) {
    std::vector<int64_t> shard;
    for (size_t d = 0; d < shape.size(); ++d)
      shard.push_back(placement.mesh.IndexAlong(k, AxesOf(placement.spec, d)));
    shard.push_back(placement.mesh.IndexAlong(k, placement.spec.unreduced));
    first.push_back(first_of_shard.emplace(std::move(shard), static_cast<int>(k)).first->second);
  }
  return first;
}

std::vector<int> OrdinalsOfDistinctShards(const Placement& placement, const ir::Dims& shape) {
  const std::vector<int> first = FirstReplicas(placement, shape);
  std::vector<int> ordinals;
  for (size_t k = 0; k < first.size(); ++k)
    if (first[k] == static_cast<int>(k)) ordinals.push_back(first[k]);
  return ordinals;
}

bool IsPendingSum(const Placement& placement) {
  return placement.mesh.SizeOf(placement.spec.unreduced) > 1;
}

std::vector<int> IndicesOfInlineResults(const std::vector<const ArraySpec*>& results,
                                        int64_t bytes_max) {
  const auto bytes_of = [](const ArraySpec& spec) {
    return ir::MakeType(spec.dtype, spec.shape).num_bytes();
  };
  int64_t all = 0;
  for (const ArraySpec* spec : results)
    if (!IsPendingSum(spec->placement)) all += bytes_of(*spec);
  std::vector<int> out;
  int64_t left = bytes_max;
  for (size_t i = 0; i < results.size(); ++i) {
    const int64_t bytes = bytes_of(*results[i]);
    if (IsPendingSum(results[i]->placement) || bytes > left) continue;
    if (all > bytes_max && bytes > kInlineEachMax) continue;
    out.push_back(static_cast<int>(i));
    left -= bytes;
  }
  return out;
}

}  // namespace tessera::api
