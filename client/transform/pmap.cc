// The part of pmap that is no template: chooses the mesh and the devices of a call, and runs f in a
// shard_map that removes and adds the mapped axis.
#include "client/transform/pmap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/apply/apply.h"
#include "client/apply/operand.h"
#include "client/transform/shard_map.h"
#include "ir/ops.h"

namespace tessera::internal {
namespace {

void CheckNonNegative(const Prefix<int>& axes, std::string_view what, const Site& site) {
  if (axes.leaf && *axes.leaf < 0) {
    ThrowError(ErrorKind::kValueError, site, "pmap ", ToAbsl(what), " has axis ", *axes.leaf,
               "; non-negative axes, or None, are expected");
  }
  for (const auto& [name, child] : axes.children) CheckNonNegative(child, what, site);
}

// Returns the number of elements: the size of the mapped axis, which all mapped arguments share.
int64_t AxisSize(const PmapFlat& call, const Site& site) {
  std::optional<size_t> first;
  const auto size_of = [&](size_t i) { return call.args.leaves[i].type().shape[*call.dims[i]]; };
  for (size_t i = 0; i < call.dims.size(); ++i) {
    if (!call.dims[i]) continue;
    const Type& type = call.args.leaves[i].type();
    if (*call.dims[i] >= type.rank()) {
      ThrowError(ErrorKind::kValueError, site, "pmap was requested to map its argument ",
                 call.args.path(i), " along axis ", *call.dims[i],
                 ", which implies that its rank should be at least ", *call.dims[i] + 1,
                 ", but is only ", type.rank(), " (its type is ", type.ToString(), ")");
    }
    if (!first) first = i;
    if (size_of(i) == size_of(*first)) continue;
    ThrowError(ErrorKind::kIndivisible, site, "pmap: axis ", *call.dims[i], " of ",
               call.args.path(i), ", a ", type.ToString(), ", is partitioned ", size_of(*first),
               " times, the size of axis ", *call.dims[*first], " of ", call.args.path(*first),
               ", but its size is ", size_of(i),
               "; the number of devices should evenly divide the shape, with one element each");
  }
  if (!first) {
    ThrowError(ErrorKind::kValueError, site,
               "pmap requires at least one argument with a mapped axis");
  }
  if (call.axis_size >= 0 && call.axis_size != size_of(*first)) {
    ThrowError(ErrorKind::kValueError, site, "pmap: Specified axis_size ", call.axis_size,
               " doesn't match received axis_size ", size_of(*first), ", the size of axis ",
               *call.dims[*first], " of ", call.args.path(*first));
  }
  return size_of(*first);
}

// Returns the devices for `count` elements: the first of the given devices, or of the healthy
// devices of the session.
std::vector<int64_t> ChooseDevices(const PmapFlat& call, int64_t count, const Site& site) {
  std::vector<int64_t> devices =
      call.devices ? *call.devices : SessionOf(call.args.leaves, site)->HealthyDevices(count, site);
  if (static_cast<int64_t>(devices.size()) < count) {
    ThrowError(
        ErrorKind::kIndivisible, site, "pmap: the mapped axis has ", count,
        " elements, but there are only ", devices.size(),
        " devices; the number of devices should evenly divide the shape, with one element each");
  }
  devices.resize(count);
  return devices;
}

}  // namespace

void CheckPmap(const PmapOptions& options, const Site& site) {
  if (options.devices && options.devices->empty()) {
    ThrowError(ErrorKind::kValueError, site,
               "'devices' argument to pmap must be non-empty, or not given");
  }
  CheckNonNegative(options.in_axes, "in_axes", site);
  CheckNonNegative(options.out_axes, "out_axes", site);
}

Prefix<PartitionSpec> PmapSpecs(const Prefix<int>& axes, const std::string& axis_name) {
  Prefix<PartitionSpec> specs;
  specs.kind = static_cast<Prefix<PartitionSpec>::Kind>(axes.kind);
  if (axes.leaf) {
    specs.leaf.emplace();
    specs.leaf->dims.resize(*axes.leaf + 1);
    specs.leaf->dims.back() = {axis_name};
  }
  for (const auto& [name, child] : axes.children) {
    specs.children.emplace_back(name, PmapSpecs(child, axis_name));
  }
  return specs;
}

Mesh PmapMesh(const PmapFlat& call, const Site& site) {
  Mesh mesh = abstract_mesh({AxisSize(call, site)}, {call.axis_name}, {AxisType::kAuto}, site);
  const ir::Mesh outer_mesh = CurrentScope().mesh;
  if (!outer_mesh.empty() && !(outer_mesh == mesh.logical)) {
    ThrowError(ErrorKind::kValueError, site, "pmap: the context mesh ", outer_mesh.ToString(),
               " should match the mesh passed to shard_map, ", mesh.ToString(),
               "; call pmap where no mesh is in context, and not in another pmap or shard_map");
  }
  if (call.devices || !CurrentFrame()) mesh.devices = ChooseDevices(call, mesh.size(), site);
  return mesh;
}

// Each device's block has size 1 along the mapped axis. The body drops this dim from the arguments
// and adds it to the results; the specs of the results are known only after f has run.
std::vector<Array> RunPmap(const PmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims,
                           absl::FunctionRef<std::vector<std::string>()> out_paths) {
  ShardMapFlat shard_map_call;
  shard_map_call.args = call.args;
  shard_map_call.mesh = PmapMesh(call, site);
  shard_map_call.axis_names = {call.axis_name};
  shard_map_call.check_vma = false;
  const auto spec_of = [&](const std::optional<int>& dim) {
    return dim ? *PmapSpecs(*dim, call.axis_name).leaf : PartitionSpec{};
  };
  shard_map_call.in_specs.emplace();
  for (const std::optional<int>& dim : call.dims) shard_map_call.in_specs->push_back(spec_of(dim));
  std::vector<PartitionSpec> specs;
  const auto block_body = [&](const std::vector<Array>& blocks) {
    std::vector<Array> in;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::optional<int> dim = call.dims[i];
      in.push_back(
          !dim ? blocks[i]
               : Apply1("squeeze", site, {blocks[i]}, [&](ir::Builder&, std::vector<ir::Value> v) {
                   return ir::Squeeze(v[0], {*dim});
                 }));
    }
    std::vector<Array> out = body(in);
    const std::vector<std::optional<int>> dims = out_dims();
    for (size_t r = 0; r < out.size(); ++r) {
      specs.push_back(spec_of(dims[r]));
      if (!dims[r]) continue;
      if (*dims[r] > out[r].rank()) {
        ThrowError(ErrorKind::kValueError, site, "pmap out_axes: axis ", *dims[r], " of ",
                   out_paths()[r], " is out of bounds for rank ", out[r].rank() + 1);
      }
      out[r] = Apply1("expand_dims", site, {out[r]}, [&](ir::Builder&, std::vector<ir::Value> v) {
        return ir::ExpandDims(v[0], {*dims[r]});
      });
    }
    return out;
  };
  return RunShardMap(
      shard_map_call, site, block_body, [&] { return specs; }, out_paths);
}

}  // namespace tessera::internal
