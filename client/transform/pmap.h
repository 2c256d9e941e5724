// pmap: maps a function of one element over many elements, each on a device of its own.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/mesh.h"
#include "client/transform/call.h"
#include "client/transform/jit.h"

namespace tessera {

struct PmapOptions {
  // The mapped axis of each argument, and of each result. Axes must not be negative. An argument
  // with None is the same for every element. For a result with None, the result of the first
  // element is taken; f promises that all elements have the same result.
  Prefix<int> in_axes = 0, out_axes = 0;
  int64_t axis_size = -1;  // if given, must be the size of the arguments' mapped axes
  // Ids of devices of the session, in the order of the elements. By default the session's first
  // devices are used.
  std::optional<std::vector<int64_t>> devices = {};
  std::vector<int> donate_argnums = {};  // same meaning as in JitOptions
  std::vector<std::string> donate_argnames = {};
};

namespace internal {

struct PmapFlat {
  FlatArgs args;
  std::vector<std::optional<int>> dims;
  std::string axis_name;
  int64_t axis_size = -1;
  const std::optional<std::vector<int64_t>>& devices;
};

// Throws VALUE_ERROR for options with which no call can succeed.
void CheckPmap(const PmapOptions& options, const Site& site);
// Returns the mesh of a call. While a function is being traced, it has devices only if the options
// give them.
Mesh PmapMesh(const PmapFlat& call, const Site& site);
std::vector<Array> RunPmap(const PmapFlat& call, const Site& site, FlatBody body,
                           absl::FunctionRef<std::vector<std::optional<int>>()> out_dims,
                           absl::FunctionRef<std::vector<std::string>()> out_paths);
// Returns the placement of the mapped axis as shardings for jit.
Prefix<PartitionSpec> PmapSpecs(const Prefix<int>& axes, const std::string& axis_name);

// The function that pmap compiles: the shard_map of f.
template <class F>
struct PmapBody {
  F f;
  std::string axis_name;
  PmapOptions options;
  Site site;

  template <class Tuple>
  PmapFlat FlattenCall(const Tuple& args) const {
    FlatArgs flat = FlattenArgs(args, "args");
    auto dims = BroadcastPrefix(options.in_axes, flat.tree, "pmap in_axes", site);
    return {std::move(flat), std::move(dims), axis_name, options.axis_size, options.devices};
  }

  template <class... A>
  requires Callable<F, A...>
  auto operator()(const A&... args) const {
    using Tuple = ArgTuple<A...>;
    using R = ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    std::optional<R> like;
    auto out_dims = [&] {
      return BroadcastPrefix(options.out_axes, internal::FlattenFilled(*like).tree, "pmap out_axes",
                             site);
    };
    auto paths = [&] { return LeafPaths(internal::FlattenFilled(*like).tree, "result"); };
    const std::vector<Array> out =
        RunPmap(FlattenCall(tuple), site, TreeBody<F, Tuple, R>{f, tuple, &like}, out_dims, paths);
    return internal::UnflattenFilled(*like, out);
  }
};

}  // namespace internal

// The function that pmap returns. It is compiled as by jit: once for each structure, types and
// placement of the arguments.
template <class F>
class Pmapped {
 public:
  Pmapped(F f, std::string axis_name, PmapOptions options, Site site)
      : body_{std::move(f), std::move(axis_name), std::move(options), site},
        jitted_(body_,
                {.name = "pmap(" + site.ToString() + ")",
                 .donate_argnums = body_.options.donate_argnums,
                 .donate_argnames = body_.options.donate_argnames,
                 .in_shardings = internal::PmapSpecs(body_.options.in_axes, body_.axis_name),
                 .out_shardings = internal::PmapSpecs(body_.options.out_axes, body_.axis_name)},
                site) {}

  template <class... A>
  requires internal::Traceable<F, A...> internal::ResultOf<F, internal::Traced<F, A...>>
  operator()(const A&... args) const {
    return CallOnMesh([](const auto& jitted, const auto&... a) { return jitted(a...); }, args...);
  }
  // Returns the plan for these arguments.
  template <class... A>
  api::CompileReply Explain(const A&... args) const {
    return CallOnMesh([](const auto& jitted, const auto&... a) { return jitted.Explain(a...); },
                      args...);
  }
  int64_t num_compiled() const { return jitted_.num_compiled(); }

 private:
  // Calls `use` on the jitted function and the arguments, with the call's mesh in context. Numbers
  // become arrays.
  template <class Use, class... A>
  auto CallOnMesh(Use use, const A&... args) const {
    const auto traced = internal::TracedArgs<F>(body_.site, args...);
    const Mesh mesh = internal::PmapMesh(body_.FlattenCall(traced), body_.site);
    std::optional<set_mesh> context;
    if (!internal::CurrentFrame()) context.emplace(mesh);
    return std::apply([&](const auto&... a) { return use(jitted_, a...); }, traced);
  }

  internal::PmapBody<F> body_;
  Jitted<internal::PmapBody<F>> jitted_;
};

// Maps f over an axis of its arguments, one element per device. pmap is jit of shard_map, without
// check_vma, over a mesh with one device for each element. f sees one element: each array lacks the
// mapped axis. With axis_name, collectives in f exchange data among the elements; the derivative of
// psum is psum. Numbers that f declares as such, and values that are not arrays, are static. Throws
// VALUE_ERROR inside another pmap, and where another mesh is in context. Reference: jax.pmap.
template <class F>
Pmapped<F> pmap(F f, std::string axis_name = "_internal_pmap_axis_name", PmapOptions options = {},
                Site site = Site::Here()) {
  internal::CheckPmap(options, site);
  return Pmapped<F>(std::move(f), std::move(axis_name), std::move(options), site);
}

}  // namespace tessera
