// auto_axes and explicit_axes: a part of a program in which Explicit axes of the mesh are Auto, or
// Auto axes are Explicit. They change no value, only who decides the shardings.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/transform/call.h"
#include "client/transform/shard_map.h"

namespace tessera {
namespace internal {

struct AxisTypesFlat {
  std::string_view name;  // name of the transform
  FlatArgs args;
  std::vector<std::string> axes;        // empty for all axes that are not Manual
  AxisType type;                        // the type that the axes get
  std::vector<PartitionSpec> in_specs;  // specs of the arguments, for explicit_axes
};
// `out_specs` is called after the body. It returns the specs of the results for auto_axes, else an
// empty list.
std::vector<Array> RunWithAxisTypes(const AxisTypesFlat& call, const Site& site, FlatBody body,
                                    absl::FunctionRef<std::vector<PartitionSpec>()> out_specs);

}  // namespace internal

// Returns f with `axes` Auto inside it; an empty `axes` stands for all axes that are not Manual.
// Inside f the planner decides the shardings along these axes, and no op needs an out_sharding for
// them. The results are resharded to `out_sharding`, one spec or a tree of specs. Throws
// VALUE_ERROR without a mesh in context or for an unknown axis, and NOT_IMPLEMENTED for a Manual
// axis.
template <class F>
auto auto_axes(F f, std::vector<std::string> axes, Prefix<PartitionSpec> out_sharding,
               Site site = Site::Here()) {
  return [ f = std::move(f), axes = std::move(axes), out_sharding = std::move(out_sharding),
           site ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    const internal::AxisTypesFlat call{
        "auto_axes", internal::FlattenArgs(tuple, "args"), axes, AxisType::kAuto, {}};
    std::optional<R> like;
    const auto specs = [&] {
      return internal::LeafSpecs(out_sharding, internal::FlattenFilled(*like).tree,
                                 "auto_axes out_sharding", site);
    };
    const std::vector<Array> out = internal::RunWithAxisTypes(
        call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, specs);
    return internal::UnflattenFilled(*like, out);
  };
}

// Returns f with `axes` Explicit inside it; an empty `axes` stands for all axes that are not
// Manual. Inside f the types of the arguments have the shardings `in_sharding`, one spec or a tree
// of specs. Throws the same errors as auto_axes.
template <class F>
auto explicit_axes(F f, std::vector<std::string> axes, Prefix<PartitionSpec> in_sharding,
                   Site site = Site::Here()) {
  return [ f = std::move(f), axes = std::move(axes), in_sharding = std::move(in_sharding),
           site ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    internal::AxisTypesFlat call{
        "explicit_axes", internal::FlattenArgs(tuple, "args"), axes, AxisType::kExplicit, {}};
    call.in_specs =
        internal::LeafSpecs(in_sharding, call.args.tree, "explicit_axes in_sharding", site);
    std::optional<R> like;
    const auto specs = [] { return std::vector<PartitionSpec>{}; };
    const std::vector<Array> out = internal::RunWithAxisTypes(
        call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, specs);
    return internal::UnflattenFilled(*like, out);
  };
}

}  // namespace tessera
