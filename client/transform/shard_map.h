// shard_map: turns a function of one device's shards into a function of whole arrays.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "client/transform/call.h"

namespace tessera {

namespace internal {

struct ShardMapFlat {
  FlatArgs args;
  // without a value, the specs of the arguments' types
  std::optional<std::vector<PartitionSpec>> in_specs;
  Mesh mesh;  // an empty mesh stands for the mesh in context
  ir::AxisList axis_names;
  bool check_vma = true;
};
std::vector<Array> RunShardMap(const ShardMapFlat& call, const Site& site, FlatBody body,
                               absl::FunctionRef<std::vector<PartitionSpec>()> out_specs,
                               absl::FunctionRef<std::vector<std::string>()> out_paths);

}  // namespace internal

namespace internal {
// Returns one spec per leaf of `flat`. `axes` names the dim that is cut; None gives P(). For a dim
// that is too large the spec is too long, which RunShardMap refuses.
std::vector<PartitionSpec> AxisSpecs(const Prefix<int>& axes, const Flat& flat,
                                     const std::string& axis_name, std::string_view what,
                                     const Site& site);

// Returns one spec per leaf of `tree`. None gives P().
inline std::vector<PartitionSpec> LeafSpecs(const Prefix<PartitionSpec>& specs,
                                            const TreeNode& tree, std::string_view what,
                                            const Site& site) {
  std::vector<PartitionSpec> out;
  for (auto& spec : BroadcastPrefix(specs, tree, what, site)) {
    out.push_back(spec.value_or(PartitionSpec{}));
  }
  return out;
}
}  // namespace internal

struct ShardMapOptions {
  std::vector<std::string> axis_names;  // axes that become Manual; empty for all axes of the mesh
  bool check_vma = true;
};
// Stands in place of in_specs: the specs follow from the arguments' types, restricted to the axes
// that become Manual. Reference: jax.sharding.Infer.
struct InferFromArgs {
  explicit constexpr InferFromArgs(int) {}  // not {}, which is an empty prefix
};
inline constexpr InferFromArgs Infer(0);

namespace internal {
// Without in_specs, the specs are those of the arguments' types.
template <class F>
auto ShardMapTree(F f, Mesh mesh, std::optional<Prefix<PartitionSpec>> in_specs,
                  Prefix<PartitionSpec> out_specs, ShardMapOptions options, Site site) {
  return [
    f = std::move(f), mesh = std::move(mesh), in_specs = std::move(in_specs),
    out_specs = std::move(out_specs), options = std::move(options),
    site
  ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    internal::ShardMapFlat call;
    call.args = internal::FlattenArgs(tuple, "args");
    if (in_specs)
      call.in_specs = internal::LeafSpecs(*in_specs, call.args.tree, "shard_map in_specs", site);
    call.mesh = mesh;
    call.axis_names = options.axis_names;
    call.check_vma = options.check_vma;
    std::optional<R> like;
    auto specs = [&] {
      return internal::LeafSpecs(out_specs, internal::FlattenFilled(*like).tree,
                                 "shard_map out_specs", site);
    };
    auto paths = [&] { return LeafPaths(internal::FlattenFilled(*like).tree, "result"); };
    const std::vector<Array> out = internal::RunShardMap(
        call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, specs, paths);
    return internal::UnflattenFilled(*like, out);
  };
}

}  // namespace internal

// Returns a function of whole arrays that runs f once per device of the mesh, on the device's
// shards. An empty mesh stands for the mesh in context. in_specs and out_specs say how arguments
// and results are cut. Throws VALUE_ERROR for specs that do not fit. Reference: jax.shard_map.
template <class F>
auto shard_map(F f, Mesh mesh, Prefix<PartitionSpec> in_specs, Prefix<PartitionSpec> out_specs,
               ShardMapOptions options = {}, Site site = Site::Here()) {
  return internal::ShardMapTree(std::move(f), std::move(mesh), std::optional(std::move(in_specs)),
                                std::move(out_specs), std::move(options), site);
}
// Like shard_map above, for arguments that are sharded as their types say. Throws TYPE_ERROR if an
// axis that becomes Manual is not Explicit.
template <class F>
auto shard_map(F f, Mesh mesh, InferFromArgs, Prefix<PartitionSpec> out_specs,
               ShardMapOptions options = {}, Site site = Site::Here()) {
  return internal::ShardMapTree(std::move(f), std::move(mesh), std::nullopt, std::move(out_specs),
                                std::move(options), site);
}

// shard_map over one axis of the mesh in context. in_axes and out_axes stand in place of specs:
// each is the dim of an argument or result that is cut over the axis, or None if no dim is. Other
// axes of the mesh keep their types. Reference: jax.smap.
template <class F>
auto smap(F f, Prefix<int> in_axes, Prefix<int> out_axes, std::string axis_name,
          Site site = Site::Here()) {
  return [
    f = std::move(f), in_axes = std::move(in_axes), out_axes = std::move(out_axes),
    axis_name = std::move(axis_name),
    site
  ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    internal::ShardMapFlat call;
    call.args = internal::FlattenArgs(tuple, "args");
    call.in_specs = internal::AxisSpecs(in_axes, call.args, axis_name, "smap in_axes", site);
    call.axis_names = {axis_name};
    std::optional<R> like;
    auto specs = [&] {
      return internal::AxisSpecs(out_axes, internal::FlattenFilled(*like), axis_name,
                                 "smap out_axes", site);
    };
    auto paths = [&] { return LeafPaths(internal::FlattenFilled(*like).tree, "result"); };
    const std::vector<Array> out = internal::RunShardMap(
        call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, specs, paths);
    return internal::UnflattenFilled(*like, out);
  };
}

}  // namespace tessera
