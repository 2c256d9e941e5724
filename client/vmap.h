// vmap: a function of one element as one of many.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "client/call.h"

namespace tessera {

namespace internal {

// dims[i]: the mapped dim of argument i, or nullopt. `out_dims` is called after `body`.
struct VmapFlat {
  FlatArgs args;
  std::vector<std::optional<int>> dims;
  int64_t axis_size = -1;  // -1: from the arguments
};
std::vector<Array> RunVmap(const VmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims);

}  // namespace internal

struct VmapOptions {
  int64_t axis_size = -1;  // required if no argument is mapped
};
// Maps f over an axis of its arguments; None: the argument is the same for every element.
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
    call.axis_size = options.axis_size;
    std::optional<R> like;
    auto out_dims = [&] {
      return internal::BroadcastPrefix(out_axes, flatten(*like).tree, "vmap out_axes", site);
    };
    const std::vector<Array> out =
        internal::RunVmap(call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, out_dims);
    return unflatten(*like, out);
  };
}

}  // namespace tessera
