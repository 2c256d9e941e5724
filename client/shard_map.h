// shard_map: a function of one device's shards as one of whole arrays.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "client/call.h"

namespace tessera {

namespace internal {

struct ShardMapFlat {
  FlatArgs args;
  std::optional<std::vector<PartitionSpec>> in_specs;  // none: those of the arguments' types
  Mesh mesh;                                           // empty: the context's
  ir::AxisList axis_names;
  bool check_vma = true;
};
std::vector<Array> RunShardMap(const ShardMapFlat& call, const Site& site, FlatBody body,
                               absl::FunctionRef<std::vector<PartitionSpec>()> out_specs,
                               absl::FunctionRef<std::vector<std::string>()> out_paths);

}  // namespace internal

namespace internal {
// One spec per leaf of `flat`, that of the dim which `axes` names there; None is P(). Of an axis
// that is out of bounds, the spec is too long.
std::vector<PartitionSpec> AxisSpecs(const Prefix<int>& axes, const Flat& flat,
                                     const std::string& axis_name, std::string_view what,
                                     const Site& site);

// One spec per leaf of `tree`; None is P().
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
  std::vector<std::string> axis_names;  // made Manual; empty: all axes of the mesh
  bool check_vma = true;
};
// In place of in_specs: what the types of the arguments say of the axes that become Manual.
// Reference: jax.sharding.Infer.
struct InferFromArgs {
  explicit constexpr InferFromArgs(int) {}  // not {}, which is a prefix without anything
};
inline constexpr InferFromArgs Infer(0);

namespace internal {
// Without in_specs they are those of the arguments' types.
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

// Runs f once per device of the mesh, on its shards. An empty mesh: the one in context.
template <class F>
auto shard_map(F f, Mesh mesh, Prefix<PartitionSpec> in_specs, Prefix<PartitionSpec> out_specs,
               ShardMapOptions options = {}, Site site = Site::Here()) {
  return internal::ShardMapTree(std::move(f), std::move(mesh), std::optional(std::move(in_specs)),
                                std::move(out_specs), std::move(options), site);
}
// The same for arguments that lie as their types say. Errors: TYPE_ERROR if an axis that becomes
// Manual is not Explicit.
template <class F>
auto shard_map(F f, Mesh mesh, InferFromArgs, Prefix<PartitionSpec> out_specs,
               ShardMapOptions options = {}, Site site = Site::Here()) {
  return internal::ShardMapTree(std::move(f), std::move(mesh), std::nullopt, std::move(out_specs),
                                std::move(options), site);
}

// shard_map over one axis of the mesh in context, with axes in place of specs: the one of each
// argument, or result, that is cut over it; None: none is. Other axes of the mesh stay as they are.
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
