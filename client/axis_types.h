// auto_axes and explicit_axes: a part of a program in which axes of the mesh are Auto that are
// Explicit around it, or the other way round. Values are the same; who decides shardings is not.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/call.h"
#include "client/shard_map.h"

namespace tessera {
namespace internal {

struct AxisTypesFlat {
  std::string_view name;  // of the transform
  FlatArgs args;
  std::vector<std::string> axes;        // empty: all that are not Manual
  AxisType type;                        // what they become
  std::vector<PartitionSpec> in_specs;  // of explicit_axes
};
// `out_specs`: of auto_axes, called after the body; else empty.
std::vector<Array> RunWithAxisTypes(const AxisTypesFlat& call, const Site& site, FlatBody body,
                                    absl::FunctionRef<std::vector<PartitionSpec>()> out_specs);

}  // namespace internal

// f, inside of which `axes` (none: all that are not Manual) are Auto: the planner decides there,
// and no op asks for an out_sharding. The results are resharded to `out_sharding`, one spec or a
// tree of them. Errors: VALUE_ERROR, NOT_IMPLEMENTED (a Manual axis).
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

// f, inside of which `axes` (none: all that are not Manual) are Explicit: its arguments have the
// shardings `in_sharding`, one spec or a tree of them, in their types. Errors: as of auto_axes.
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
