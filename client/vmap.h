// vmap: a function of one element as one of many.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/call.h"

namespace tessera {

namespace internal {

// dims[i]: the mapped dim of argument i, or nullopt. `out_dims` is called after `body`.
struct VmapFlat {
  FlatArgs args;
  std::vector<std::optional<int>> dims;
  std::string axis_name = {};  // empty: none
  int64_t axis_size = -1;      // -1: from the arguments
  ir::AxisList spmd_axis_name = {};
};
std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims);

}  // namespace internal

struct VmapOptions {
  // By which collectives in f exchange among the elements, as shard_map's do among devices; both
  // may be named in one call. Nothing is tracked along it, and psum's derivative is psum. The name
  // of an enclosing vmap is hidden; that of an axis which is Manual here or in f is refused.
  std::string axis_name = {};
  int64_t axis_size = -1;  // required if no argument is mapped
  // The axes of the mesh over which the elements are cut, major to minor: by each
  // with_sharding_constraint in f, and each shard_map, for whose own specs they are then taken.
  ir::AxisList spmd_axis_name = {};
};
// Maps f over an axis of its arguments; None: the argument is the same for every element. If the
// axis is sharded over Explicit axes, it is so in each mapped argument, and in the results; no
// other argument is sharded over them, and f can't name them.
template <class F>
auto vmap(F f, Prefix<int> in_axes = 0, Prefix<int> out_axes = 0, VmapOptions options = {},
          Site site = Site::Here()) {
  return [
    f = std::move(f), in_axes = std::move(in_axes), out_axes = std::move(out_axes), options,
    site
  ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    internal::VmapFlat call;
    call.args = internal::FlattenArgs(tuple, "args");
    call.dims = internal::BroadcastPrefix(in_axes, call.args.tree, "vmap in_axes", site);
    call.axis_name = options.axis_name;
    call.axis_size = options.axis_size;
    call.spmd_axis_name = options.spmd_axis_name;
    std::optional<R> like;
    auto out_dims = [&] {
      return internal::BroadcastPrefix(out_axes, internal::FlattenFilled(*like).tree,
                                       "vmap out_axes", site);
    };
    const std::vector<Array> out =
        internal::RunVmap(call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, out_dims);
    return internal::UnflattenFilled(*like, out);
  };
}

}  // namespace tessera
