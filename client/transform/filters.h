// Filters: trees of arrays and other values, with the names of Equinox
// (github.com/patrick-kidger/equinox).
//
// In a C++ tree every value that is no array is static everywhere. jit, vmap and the other
// transforms compile a program for each value of a static leaf, and return static leaves unchanged.
// So filter_jit is jit, and numbers, names and functions, which Equinox filters out of a tree, need
// no filter. A filter only says which arrays have derivatives, are mapped or are placed. An Array
// without a value is a hole: it stands for an array that is left out (Equinox's None). Transforms,
// tree_map and optimizers skip holes.
//
//   struct Linear {
//     Array weight, bias;
//     bool use_bias;
//     Array operator()(const Array& x) const { return use_bias ? matmul(x, weight) + bias : ... }
//   };
//   TESSERA_TREE(Linear, weight, bias, use_bias)
//
//   auto [loss, gradient] = filter_value_and_grad(
//       [](const Linear& model, Array x, Array y) { return mean(square(model(x) - y)); })(model, x,
//       y);
//   Array y = jit(&Linear::operator())(model, x);  // a method takes its object first
#pragma once
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/numpy.h"
#include "client/transform/autodiff.h"
#include "client/transform/custom_rules.h"
#include "client/transform/jit.h"
#include "client/transform/vmap.h"

namespace tessera {

// ---- Parts of trees. ----

// is_array returns whether the leaf has a value. is_inexact_array returns whether it is an array of
// floats or complex numbers, which have derivatives.
inline bool is_array(const Array& leaf) { return leaf.valid(); }
inline bool is_inexact_array(const Array& leaf) {
  return leaf.valid() && ir::IsInexact(leaf.dtype());
}

namespace internal {
// Returns for each leaf whether `spec`, a function of an array or a prefix of the tree, chooses it.
template <class Spec>
std::vector<bool> Chosen(const Flat& flat, const Spec& spec, std::string_view what,
                         const Site& site) {
  std::vector<bool> chosen;
  if constexpr (std::is_invocable_r_v<bool, const Spec&, const Array&>) {
    for (const Array& leaf : flat.leaves) chosen.push_back(spec(leaf));
  } else {
    for (const std::optional<bool>& leaf :
         BroadcastPrefix(Prefix<bool>(spec), flat.tree, what, site))
      chosen.push_back(leaf.value_or(false));
  }
  return chosen;
}
// Returns `arrays`, with `replacement` in place of each array whose entry in `chosen` is not
// `keep`.
std::vector<Array> KeepWhere(std::vector<Array> arrays, const std::vector<bool>& chosen, bool keep,
                             const Array& replacement);
// Returns for each leaf the first of the trees' arrays that has a value.
std::vector<Array> FirstValidLeaves(const std::vector<Flat>& trees, const Site& site);
}  // namespace internal

// Returns `tree`, with `replace` in place of each array that `spec` does not choose. `spec` is a
// function of an array, such as is_array, or a prefix of the tree with bools. With `inverse`, the
// arrays that `spec` chooses are replaced instead. Reference: equinox.filter.
template <class T, class Spec>
T filter(const T& tree, const Spec& spec, bool inverse = false, const Array& replace = {},
         Site site = Site::Here()) {
  const Flat flat = flatten(tree);
  const std::vector<bool> chosen = internal::Chosen(flat, spec, "filter spec", site);
  return unflatten(tree, internal::KeepWhere(flat.leaves, chosen, !inverse, replace));
}
// Splits a tree in two: {the arrays that `spec` chooses, the other arrays}. Each tree has holes in
// place of the arrays of the other. Reference: equinox.partition.
template <class T, class Spec>
std::pair<T, T> partition(const T& tree, const Spec& spec, Site site = Site::Here()) {
  const Flat flat = flatten(tree);
  const std::vector<bool> chosen = internal::Chosen(flat, spec, "partition spec", site);
  return {unflatten(tree, internal::KeepWhere(flat.leaves, chosen, true, {})),
          unflatten(tree, internal::KeepWhere(flat.leaves, chosen, false, {}))};
}
// Joins trees: each leaf of the result is the first array with a value among the trees' arrays at
// this place. combine undoes partition. Errors: VALUE_ERROR if the structures of the trees differ.
// Reference: equinox.combine.
template <class T, class... Rest>
T combine(const T& tree, const Rest&... rest) {
  return unflatten(tree, internal::FirstValidLeaves({flatten(tree), flatten(rest)...}, Site{}));
}

// ---- Transforms. ----

// jit: arrays are traced, all other values are static, in arguments and results. Reference:
// equinox.filter_jit.
template <class F>
auto filter_jit(F f, JitOptions options = {}, Site site = Site::Here()) {
  return jit(std::move(f), std::move(options), site);
}

// filter_value_and_grad(f)(args...) returns {f's result, the gradient by the float and complex
// arrays of the first argument}. The gradient is a tree like that argument, with holes for its
// other arrays, and with its static leaves unchanged. f returns a scalar loss, or a pair {loss,
// aux}. Reference: equinox.filter_value_and_grad.
template <class F>
auto filter_value_and_grad(F f, Site site = Site::Here()) {
  return [ f = std::move(f),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    static_assert(sizeof...(args) > 0, "filter_value_and_grad differentiates the first argument, "
                                       "but the function has no arguments");
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    static_assert(std::is_same_v<R, Array> || tree::IsPair<R>::value,
                  "the function must return its loss, an Array, or a pair {loss, aux}");
    const Tuple tuple = internal::TracedArgs<F>(site, args...);
    const internal::FlatArgs flat = internal::FlattenArgs(tuple, "args");
    std::vector<bool> active(flat.leaves.size(), false);
    const size_t num_first_leaves = static_cast<size_t>(flat.tree.children[0].num_leaves());
    for (size_t i = 0; i < num_first_leaves; ++i) active[i] = is_inexact_array(flat.leaves[i]);
    std::optional<R> like;
    std::vector<Array> out =
        internal::ValueAndGradFlat("filter_value_and_grad", flat, active, {}, site,
                                   internal::TreeBody<F, Tuple, R>{f, tuple, &like});
    R value = internal::TakeFront(&out, *like);
    std::vector<Array> gradient(num_first_leaves);
    for (size_t i = 0, next = 0; i < num_first_leaves; ++i)
      if (active[i]) gradient[i] = out[next++];
    return std::pair(std::move(value), internal::UnflattenFilled(std::get<0>(tuple), gradient));
  };
}
// filter_grad(f)(args...) returns the gradient, or {gradient, aux} if f returns {loss, aux}.
// Reference: equinox.filter_grad.
template <class F>
auto filter_grad(F f, Site site = Site::Here()) {
  return [value_and_grad_fn = filter_value_and_grad(std::move(f), site)](
      const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    auto [value, gradient] = value_and_grad_fn(args...);
    if constexpr (tree::IsPair<std::decay_t<decltype(value)>>::value) {
      return std::pair(std::move(gradient), std::move(value.second));
    } else {
      return gradient;
    }
  };
}

// Returns the axis along which an array is mapped, or nullopt if the array is not mapped.
using AxisOf = std::function<std::optional<int>(const Array&)>;
// Maps every array along `axis`. Reference: equinox.if_array.
inline AxisOf if_array(int axis) {
  return [axis](const Array& leaf) { return leaf.valid() ? std::optional(axis) : std::nullopt; };
}
// The mapped axes of a tree: a prefix of the tree with axes, or a function that returns the axis of
// an array.
struct FilteredAxes {
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended
  FilteredAxes(int axis) : prefix(axis) {}
  FilteredAxes(Prefix<int> prefix) : prefix(std::move(prefix)) {}
  FilteredAxes(std::initializer_list<Prefix<int>> list) : prefix(list) {}
  FilteredAxes(AxisOf axis_of) : axis_of(std::move(axis_of)) {}
  // NOLINTEND(google-explicit-constructor)
  std::vector<std::optional<int>> Of(const Flat& flat, std::string_view what,
                                     const Site& site) const;

  Prefix<int> prefix;
  AxisOf axis_of;
};

// vmap, which by default maps all arrays along their first axis. If no array is mapped and no
// axis_size is given, f is called unmapped. Reference: equinox.filter_vmap.
template <class F>
auto filter_vmap(F f, FilteredAxes in_axes = if_array(0), FilteredAxes out_axes = if_array(0),
                 VmapOptions options = {}, Site site = Site::Here()) {
  return [
    f = std::move(f), in_axes = std::move(in_axes), out_axes = std::move(out_axes), options,
    site
  ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    internal::VmapFlat call;
    call.args = internal::FlattenArgs(tuple, "args");
    call.dims = in_axes.Of(call.args, "filter_vmap in_axes", site);
    call.axis_name = options.axis_name;
    call.axis_size = options.axis_size;
    call.spmd_axis_name = options.spmd_axis_name;
    const bool mapped = std::any_of(call.dims.begin(), call.dims.end(),
                                    [](const std::optional<int>& d) { return d.has_value(); });
    if (!mapped && options.axis_size < 0) return R(std::invoke(f, args...));
    std::optional<R> like;
    const auto out_dims = [&] {
      return out_axes.Of(internal::FlattenFilled(*like), "filter_vmap out_axes", site);
    };
    const std::vector<Array> out =
        internal::RunVmap(call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, out_dims);
    return internal::UnflattenFilled(*like, out);
  };
}

// Returns the tree with its arrays placed: traced arrays are constrained, other arrays are moved
// (put). `shardings` is a spec, or a prefix of the tree; None leaves an array where it is. On
// Explicit axes a constraint reshards. Reference: equinox.filter_shard.
template <class T>
T filter_shard(const T& tree, const Mesh& mesh, const Prefix<PartitionSpec>& shardings,
               Site site = Site::Here()) {
  const Flat flat = flatten(tree);
  const std::vector<std::optional<PartitionSpec>> specs =
      internal::BroadcastPrefix(shardings, flat.tree, "filter_shard shardings", site);
  std::vector<Array> out;
  for (size_t i = 0; i < flat.leaves.size(); ++i) {
    const Array& leaf = flat.leaves[i];
    out.push_back(!leaf.valid() || !specs[i] ? leaf
                  : leaf.is_traced() ? lax::with_sharding_constraint(Arg(leaf, site), *specs[i])
                                     : put(leaf, mesh, *specs[i], site));
  }
  return unflatten(tree, out);
}

// These functions do not filter anything: each is Equinox's name for another function.
template <class F>
auto filter_checkpoint(F f, CheckpointOptions options = {}, Site site = Site::Here()) {
  return checkpoint(std::move(f), std::move(options), site);
}
template <class F, class... A>
auto filter_eval_shape(const F& f, const A&... args) {
  return eval_shape(f, args...);
}
template <class F, class Rule>
auto filter_custom_jvp(F f, Rule rule, Site site = Site::Here()) {
  return custom_jvp(std::move(f), std::move(rule), site);
}
template <class F, class Fwd, class Bwd>
auto filter_custom_vjp(F f, Fwd fwd, Bwd bwd, Site site = Site::Here()) {
  return custom_vjp(std::move(f), std::move(fwd), std::move(bwd), site);
}

}  // namespace tessera
