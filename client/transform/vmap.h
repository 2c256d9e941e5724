// vmap: maps a function of one element over many elements.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/transform/call.h"

namespace tessera {

namespace internal {

// dims[i] is the mapped dim of argument i, or nullopt if the argument is not mapped. `out_dims` is
// called after `body`.
struct VmapFlat {
  FlatArgs args;
  std::vector<std::optional<int>> dims;
  std::string axis_name = {};  // empty for no name
  int64_t axis_size = -1;      // -1 takes the size from the arguments
  ir::AxisList spmd_axis_name = {};
};
std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims);

}  // namespace internal

struct VmapOptions {
  // The name by which collectives in f exchange data among the elements, as collectives in a
  // shard_map do among devices. One call may name both kinds of axes. Types do not track which
  // values vary along this axis, and the derivative of psum is psum. The name hides an equal name
  // of an enclosing vmap. VALUE_ERROR for the name of an axis that is Manual here or in f.
  std::string axis_name = {};
  int64_t axis_size = -1;  // number of elements; required if no argument is mapped
  // The axes of the mesh over which the elements are cut, major to minor. Each
  // with_sharding_constraint and each shard_map in f cuts the mapped dim over them; their own specs
  // can then no longer use these axes.
  ir::AxisList spmd_axis_name = {};
};
// Maps f over an axis of its arguments. An argument with None is the same for every element. If the
// mapped axis of one argument is sharded over Explicit axes, the mapped axis of every mapped
// argument must be sharded over the same axes, and so are the results. No argument that is not
// mapped may be sharded over these axes, and f cannot name them. Reference: jax.vmap.
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
