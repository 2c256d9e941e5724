// The transforms of functions: jit, grad, vmap and others. They nest.
//
// Each takes a callable and returns one. The callable is traced: it sees types, not contents, and
// runs once per trace. Arguments and results are trees (client/tree.h); leaves that are no arrays
// are static. A jitted function is thread-safe; tracing runs on the caller's thread.
//
// A number that is an argument of jit, grad, jvp, linearize, vjp, linear_transpose, custom_jvp or
// custom_vjp is traced, as a weakly typed scalar, where the callable takes an Array (`Array`,
// `Arg`, `auto`): one program serves every value. If it declares a number (`int n`), which C++ must
// know while it traces, inside structs and containers, and as an argument of the other transforms,
// it is static: each value is a separate program.
#pragma once
#include <bit>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/flat.h"
#include "client/lax.h"
#include "client/tree.h"

namespace tessera {
namespace internal {

template <class... A>
using ArgTuple = std::tuple<std::decay_t<const A&>...>;  // "text" is a const char*

template <class F, class Tuple>
struct TakesTuple;
template <class F, class... A>
struct TakesTuple<F, std::tuple<A...>> : std::is_invocable<const F&, const A&...> {
  using Result = std::invoke_result<const F&, const A&...>;
};
// Whether F is callable with a tuple's values, and its result.
template <class F, class Tuple>
inline constexpr bool kTakes = TakesTuple<F, Tuple>::value;
template <class F, class Tuple>
using ResultOf = std::decay_t<typename TakesTuple<F, Tuple>::Result::type>;

// The types of the arguments that F is called with for arguments of types A: an Array for a number
// if F takes one.
template <class F, class... A>
class TracedAs {
  // The set of the arguments that are numbers; bit i stands for argument i.
  static constexpr uint64_t Numbers() {
    uint64_t numbers = 0, bit = 1;
    ((numbers |= std::is_arithmetic_v<A> ? bit : 0, bit <<= 1), ...);
    return numbers;
  }
  static constexpr uint64_t kNumbers = Numbers();
  static_assert(std::popcount(kNumbers) <= 8,
                "at most 8 numbers may be arguments of a traced function; give an array of them");

  // Numbers that are not in the set `kStatic` become Arrays.
  template <uint64_t kStatic, size_t... I>
  static auto Types(std::index_sequence<I...>)
      -> std::tuple<std::conditional_t<(((kNumbers & ~kStatic) >> I) & 1) != 0, Array, A>...>;
  template <uint64_t kStatic>
  using With = decltype(Types<kStatic>(std::index_sequence_for<A...>{}));

  // The smallest such set that F accepts. The subsets of kNumbers are tried in ascending order, in
  // which each follows its own subsets; (kStatic - kNumbers) & kNumbers is the next one.
  template <uint64_t kStatic>
  static auto SmallestTaken() {
    if constexpr (kStatic == kNumbers || kTakes<F, With<kStatic>>) {
      return std::type_identity<With<kStatic>>{};
    } else {
      return SmallestTaken<(kStatic - kNumbers) & kNumbers>();
    }
  }

 public:
  using Tuple = typename decltype(SmallestTaken<0>())::type;
};
template <class F, class... A>
using Traced = typename TracedAs<F, std::decay_t<const A&>...>::Tuple;
template <class F, class... A>
concept Traceable = kTakes<F, Traced<F, A...>>;
// For transforms in which numbers are static.
template <class F, class... A>
concept Callable = kTakes<F, ArgTuple<A...>>;

template <class To, class A>
To TracedArg(const A& arg, bool use_f64, const Site& site) {
  if constexpr (std::is_arithmetic_v<A> && std::is_same_v<To, Array>) {
    return NumberArgument(Arg(arg, site), use_f64);
  } else {
    return arg;
  }
}
// The arguments that F is called with.
template <class F, class... A>
Traced<F, A...> TracedArgs(const Site& site, const A&... args) {
  using Tuple = Traced<F, A...>;
  if constexpr (std::is_same_v<Tuple, ArgTuple<A...>>) {
    return Tuple(args...);
  } else {
    const bool use_f64 = HasFloat64(flatten(std::tie(args...)).leaves);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return Tuple{TracedArg<std::tuple_element_t<I, Tuple>>(args, use_f64, site)...};
    }
    (std::index_sequence_for<A...>{});
  }
}
template <class F, class... A>
Traced<F, A...> TracedTuple(const std::tuple<A...>& args, const Site& site) {
  return std::apply([&](const A&... a) { return TracedArgs<F>(site, a...); }, args);
}

template <class T>
FlatArgs FlattenArgs(const T& t, std::string_view root) {
  return {flatten(t), root};
}

// Calls f with the arrays of `like` replaced, stores the result in `*out`, and flattens it.
template <class F, class Tuple, class R>
struct TreeBody {
  const F& f;
  const Tuple& like;
  std::optional<R>* out;
  std::vector<Array> operator()(const std::vector<Array>& leaves) const {
    const Tuple args = unflatten(like, leaves);
    out->emplace(std::apply([&](const auto&... a) -> R { return f(a...); }, args));
    return flatten(**out).leaves;
  }
};
// Removes the first arrays of `leaves`, as many as `like` has, and returns `like` with them.
template <class T>
T TakeFront(std::vector<Array>* leaves, const T& like) {
  const size_t n = flatten(like).leaves.size();
  std::vector<Array> mine(leaves->begin(), leaves->begin() + n);
  leaves->erase(leaves->begin(), leaves->begin() + n);
  return unflatten(like, mine);
}

}  // namespace internal

// ---- jit ----------------------------------------------------------------------------------------

struct JitOptions {
  std::string name = {};  // for errors and logs; empty: the call site
  // Arguments whose memory may be reused. Using them again throws, unless the run ended before it
  // began. Negative numbers count from the end.
  std::vector<int> donate_argnums = {};
  // On Auto axes; else the planner decides.
  Prefix<PartitionSpec> in_shardings = {}, out_shardings = {};
};

// Compiled once per structure, types and placement of the arguments.
template <class F>
class Jitted {
 public:
  Jitted(F f, JitOptions options, Site site)
      : f_(std::move(f)), options_(std::move(options)), site_(site) {
    if (options_.name.empty()) options_.name = "jit(" + site.ToString() + ")";
  }

  template <class... A>
  requires internal::Traceable<F, A...> internal::ResultOf<F, internal::Traced<F, A...>>
  operator()(const A&... args) const {
    using Tuple = internal::Traced<F, A...>;
    using R = internal::ResultOf<F, Tuple>;
    const FlatCall<Tuple> call(*this, internal::TracedArgs<F>(site_, args...));
    std::shared_ptr<const void> result_structure;  // an R
    auto traced = [&](const std::vector<Array>& in) {
      std::vector<Array> out = call.body(in);
      R blank = *call.like;
      for_each_leaf(blank, [](Array& a) { a = Array(); });
      result_structure = std::make_shared<R>(std::move(blank));
      return out;
    };
    const std::vector<Array> out =
        cache_->Call(typeid(Tuple), call.flat, call.options, site_, traced, &result_structure);
    return unflatten(*std::static_pointer_cast<const R>(result_structure), out);
  }

  // The plan for these arguments.
  template <class... A>
  api::CompileReply Explain(const A&... args) const {
    return ExplainOn(nullptr, args...);
  }
  // The plan for absent devices; arguments may be abstract. OUT_OF_MEMORY: it does not fit them.
  template <class... A>
  api::CompileReply ExplainFor(const AbsentDevices& devices, const A&... args) const {
    return ExplainOn(&devices, args...);
  }

  int64_t num_compiled() const { return cache_->num_compiled(); }

 private:
  template <class... A>
  api::CompileReply ExplainOn(const AbsentDevices* absent, const A&... args) const {
    const FlatCall<internal::Traced<F, A...>> call(*this, internal::TracedArgs<F>(site_, args...));
    return cache_->Explain(call.flat, call.options, absent, site_, call.body);
  }
  // A flattened call of f_. `like` is the result of f_, set when `body` has run.
  template <class Tuple>
  struct FlatCall {
    using R = internal::ResultOf<F, Tuple>;
    FlatCall(const Jitted& jitted, Tuple args)
        : tuple(std::move(args)),
          flat(internal::FlattenArgs(tuple, "args")),
          body{jitted.f_, tuple, &like},
          options(jitted.OptionsFor(flat.tree, like)) {}
    FlatCall(const FlatCall&) = delete;

    const Tuple tuple;
    const internal::FlatArgs flat;
    std::optional<R> like;
    const internal::TreeBody<F, Tuple, R> body;
    const internal::JitCache::Options options;
  };
  template <class R>
  internal::JitCache::Options OptionsFor(const TreeNode& args, const std::optional<R>& like) const {
    std::vector<bool> donate =
        internal::DonatedLeaves(options_.name, options_.donate_argnums, args, site_);
    std::vector<std::optional<PartitionSpec>> in;
    if (options_.in_shardings.given()) {
      in = internal::BroadcastPrefix(options_.in_shardings, args, "jit in_shardings", site_);
    }
    return {options_.name, std::move(donate), std::move(in),
            [this, &like] { return OutShardings(*like); },
            [&like] { return LeafPaths(flatten(*like).tree, "result"); }};
  }
  template <class R>
  std::vector<std::optional<PartitionSpec>> OutShardings(const R& like) const {
    if (!options_.out_shardings.given()) return {};
    return internal::BroadcastPrefix(options_.out_shardings, flatten(like).tree,
                                     "jit out_shardings", site_);
  }

  F f_;
  JitOptions options_;
  Site site_;
  std::shared_ptr<internal::JitCache> cache_ = std::make_shared<internal::JitCache>();
};
template <class F>
Jitted<F> jit(F f, JitOptions options = {}, Site site = Site::Here()) {
  return Jitted<F>(std::move(f), std::move(options), site);
}

// The plan as text: shardings, collectives, bytes and memory. Arguments and results are named by
// their paths: "args[0].blocks[0..11].w1", "result.loss".
template <class F, class... A>
std::string explain(const Jitted<F>& f, const A&... args) {
  return f.Explain(args...).explain_text;
}
// The same for absent devices; arguments may be abstract:
//   explain({abstract_mesh({64, 8}, {"data", "model"}), 80LL << 30}, f, abstract({8192, 1024}))
// Throws OUT_OF_MEMORY if the plan does not fit them.
template <class F, class... A>
std::string explain(const AbsentDevices& devices, const Jitted<F>& f, const A&... args) {
  return f.ExplainFor(devices, args...).explain_text;
}

// Traces f at the types of the arguments (concrete or abstract).
template <class F, class... A>
internal::TracedProgram trace(const F& f, const A&... args) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedArgs<F>(Site{}, args...);
  std::optional<R> like;
  return internal::TraceProgram("trace", Site{}, flatten(tuple).leaves,
                                internal::TreeBody<F, Tuple, R>{f, tuple, &like});
}

// ---- grad ---------------------------------------------------------------------------------------

// value_and_grad<I...>(f)(args...): {f's result, gradient by argument I (a tuple for several)}. f
// returns a scalar loss, or a pair {loss, aux}.
template <class F, size_t... I>
class ValueAndGrad {
 public:
  ValueAndGrad(F f, const char* name, Site site) : f_(std::move(f)), name_(name), site_(site) {}

  template <class... A>
  requires internal::Traceable<F, A...>
  auto operator()(const A&... args) const {
    using Tuple = internal::Traced<F, A...>;
    using R = internal::ResultOf<F, Tuple>;
    static_assert(((I < sizeof...(A)) && ...), "argnums must name an argument");
    static_assert((!std::is_arithmetic_v<std::tuple_element_t<I, Tuple>> && ...),
                  "argnums must name arrays; the function declares a number: declare an Array");
    static_assert(std::is_same_v<R, Array> || tree::IsPair<R>::value,
                  "the function answers its loss, an Array, or a pair {loss, aux}");
    if constexpr (tree::IsPair<R>::value) {
      static_assert(std::is_same_v<typename R::first_type, Array>, "the loss must be an Array");
    }
    const Tuple tuple = internal::TracedArgs<F>(site_, args...);
    const internal::FlatArgs flat = internal::FlattenArgs(tuple, "args");
    std::vector<bool> active;
    for (size_t a = 0; a < flat.tree.children.size(); ++a) {
      active.insert(active.end(), flat.tree.children[a].num_leaves(), IsActive(a));
    }
    std::optional<R> like;
    std::vector<Array> out = internal::ValueAndGradFlat(
        name_, flat, active, site_, internal::TreeBody<F, Tuple, R>{f_, tuple, &like});
    R value = internal::TakeFront(&out, *like);
    // `out` has the gradients in the order of the arguments.
    Tuple grads = tuple;
    size_t a = 0;
    std::apply([&](auto&... g) { (TakeIf(IsActive(a++), &out, &g), ...); }, grads);
    if constexpr (sizeof...(I) == 1) {
      return std::pair(std::move(value), std::get<I...>(grads));
    } else {
      return std::pair(std::move(value), std::tuple(std::get<I>(grads)...));
    }
  }

 private:
  static bool IsActive(size_t argument) { return ((argument == I) || ...); }
  template <class G>
  static void TakeIf(bool active, std::vector<Array>* out, G* g) {
    if (active) *g = internal::TakeFront(out, *g);
  }
  F f_;
  const char* name_;
  Site site_;
};
namespace internal {
template <size_t... I, class F>
auto MakeValueAndGrad(F f, const char* name, Site site) {
  if constexpr (sizeof...(I) == 0) {
    return ValueAndGrad<F, 0>(std::move(f), name, site);
  } else {
    return ValueAndGrad<F, I...>(std::move(f), name, site);
  }
}
}  // namespace internal
template <size_t... I, class F>
auto value_and_grad(F f, Site site = Site::Here()) {
  return internal::MakeValueAndGrad<I...>(std::move(f), "value_and_grad", site);
}
// grad<I...>(f)(args...): the gradient, or {gradient, aux} if f returns {loss, aux}.
template <size_t... I, class F>
auto grad(F f, Site site = Site::Here()) {
  return [both = internal::MakeValueAndGrad<I...>(std::move(f), "grad", site)](
      const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    auto [value, gradient] = both(args...);
    if constexpr (tree::IsPair<std::decay_t<decltype(value)>>::value) {
      return std::pair(std::move(gradient), std::move(value.second));
    } else {
      return gradient;
    }
  };
}

// ---- jvp, vjp, linearize, linear_transpose ------------------------------------------------------

// jvp(f, std::tuple(primals...), std::tuple(tangents...)) -> {result, tangent of the result}.
template <class F, class... A, class... T>
auto jvp(F f, const std::tuple<A...>& primals, const std::tuple<T...>& tangents,
         Site site = Site::Here()) {
  static_assert(std::is_same_v<std::tuple<A...>, std::tuple<T...>>,
                "primals and tangents must be trees of the same kind");
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  const Tuple tuple = internal::TracedTuple<F>(primals, site);
  const internal::FlatArgs p = internal::FlattenArgs(tuple, "primals");
  const Flat t = flatten(internal::TracedTuple<F>(tangents, site));
  internal::CheckSameStructure(
      p.tree, t.tree, "tangents", ErrorKind::kTypeError,
      "primal and tangent arguments to jvp must have the same tree structure; ", site);
  std::optional<R> like;
  std::vector<Array> out =
      internal::JvpFlat(p, t.leaves, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like});
  R value = internal::TakeFront(&out, *like);
  return std::pair(std::move(value), internal::TakeFront(&out, *like));
}

// A linear map between trees, returned by linearize.
template <class R, class... A>
class LinearFn {
 public:
  LinearFn(std::shared_ptr<const internal::Linear> linear, R like, std::tuple<A...> args)
      : linear_(std::move(linear)), like_(std::move(like)), args_(std::move(args)) {}
  R operator()(const A&... tangents) const {
    const Flat got = flatten(std::tie(tangents...));
    internal::CheckSameStructure(flatten(args_).tree, got.tree, "tangents", ErrorKind::kTypeError,
                                 "linearized function: ", linear_->site);
    return unflatten(like_, internal::PushForward(*linear_, got.leaves));
  }

 private:
  std::shared_ptr<const internal::Linear> linear_;
  R like_;
  std::tuple<A...> args_;
};
// The transpose of the linear map at the point, returned by vjp: from the cotangents of the result
// to those of the arguments.
template <class R, class... A>
class VjpFn {
 public:
  VjpFn(std::shared_ptr<const internal::Linear> linear, R like, std::tuple<A...> args)
      : linear_(std::move(linear)), like_(std::move(like)), args_(std::move(args)) {}
  std::tuple<A...> operator()(const R& cotangents) const {
    const Flat got = flatten(cotangents);
    internal::CheckSameStructure(
        flatten(like_).tree, got.tree, "cotangents", ErrorKind::kValueError,
        "unexpected tree structure of argument to VJP function: ", linear_->site);
    return unflatten(args_, internal::PullBack(*linear_, got.leaves));
  }

 private:
  std::shared_ptr<const internal::Linear> linear_;
  R like_;
  std::tuple<A...> args_;
};

namespace internal {
template <template <class, class...> class Fn, class F, class... A>
auto LinearizeTree(const char* name, const F& f, const std::tuple<A...>& primals,
                   const Site& site) {
  using R = ResultOf<F, std::tuple<A...>>;
  std::optional<R> like;
  const LinearizedFlat out = LinearizeFlat(name, FlattenArgs(primals, "primals"), site,
                                           TreeBody<F, std::tuple<A...>, R>{f, primals, &like});
  R value = unflatten(*like, out.results);
  return std::pair(value, Fn<R, A...>(out.linear, value, primals));
}
}  // namespace internal

// linearize(f, x) -> {f(x), its derivative there as a function of tangents}.
template <class F, class... A>
auto linearize(const F& f, const std::tuple<A...>& primals, Site site = Site::Here()) {
  return internal::LinearizeTree<LinearFn>("linearize", f, internal::TracedTuple<F>(primals, site),
                                           site);
}
template <class F, class A>
auto linearize(const F& f, const A& x, Site site = Site::Here()) {
  return linearize(f, std::tuple<A>(x), site);
}
// vjp(f, x) -> {f(x), a function from cotangents to the tuple of cotangents of the arguments}.
template <class F, class... A>
auto vjp(const F& f, const std::tuple<A...>& primals, Site site = Site::Here()) {
  return internal::LinearizeTree<VjpFn>("vjp", f, internal::TracedTuple<F>(primals, site), site);
}
template <class F, class A>
auto vjp(const F& f, const A& x, Site site = Site::Here()) {
  return vjp(f, std::tuple<A>(x), site);
}

// linear_transpose(f, x) of a linear f: returns a function from the cotangents of f's result to the
// tuple of those of its arguments. Only the types of x are used.
template <class F, class... A>
auto linear_transpose(F f, const std::tuple<A...>& like, Site site = Site::Here()) {
  using Tuple = internal::Traced<F, A...>;
  using R = internal::ResultOf<F, Tuple>;
  return [f = std::move(f), like = internal::TracedTuple<F>(like, site),
          site](const R& cotangents) {
    std::optional<R> out_like;
    return unflatten(like, internal::LinearTransposeFlat(
                               internal::FlattenArgs(like, "primals"), flatten(cotangents).leaves,
                               site, internal::TreeBody<F, Tuple, R>{f, like, &out_like}));
  };
}
template <class F, class A>
auto linear_transpose(F f, const A& like, Site site = Site::Here()) {
  return linear_transpose(std::move(f), std::tuple<A>(like), site);
}

// ---- vmap, shard_map ----------------------------------------------------------------------------

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

namespace internal {
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
// Runs f once per device of the mesh, on its shards. An empty mesh: the one in context.
template <class F>
auto shard_map(F f, Mesh mesh, Prefix<PartitionSpec> in_specs, Prefix<PartitionSpec> out_specs,
               ShardMapOptions options = {}, Site site = Site::Here()) {
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
    call.in_specs = internal::LeafSpecs(in_specs, call.args.tree, "shard_map in_specs", site);
    call.mesh = mesh;
    call.axis_names = options.axis_names;
    call.check_vma = options.check_vma;
    std::optional<R> like;
    auto specs = [&] {
      return internal::LeafSpecs(out_specs, flatten(*like).tree, "shard_map out_specs", site);
    };
    auto paths = [&] { return LeafPaths(flatten(*like).tree, "result"); };
    const std::vector<Array> out = internal::RunShardMap(
        call, site, internal::TreeBody<F, Tuple, R>{f, tuple, &like}, specs, paths);
    return unflatten(*like, out);
  };
}

// ---- Control flow, checkpoint -------------------------------------------------------------------

struct ScanOptions {
  int64_t length = -1;  // required if xs has no array
  bool reverse = false;
};
// f(carry, x) -> pair{carry, y}, over the leading dim of xs (None: no xs). Returns {carry, stacked
// ys}.
template <class F, class C, class X>
auto scan(const F& f, const C& init, const X& xs, ScanOptions options = {},
          Site site = Site::Here()) {
  using R = internal::ResultOf<F, std::tuple<C, X>>;
  static_assert(tree::IsPair<R>::value, "the body of scan answers a pair {carry, y}");
  static_assert(std::is_same_v<typename R::first_type, C>,
                "the body of scan answers a carry of the tree it was given");
  const std::tuple<C, X> tuple(init, xs);
  internal::ScanFlat call{internal::FlattenArgs(init, "carry"), internal::FlattenArgs(xs, "xs"),
                          options.length, options.reverse};
  std::optional<R> like;
  const internal::TreeBody<F, std::tuple<C, X>, R> body{f, tuple, &like};
  const TreeNode want = flatten(init).tree;
  auto checked = [&](const std::vector<Array>& in) {
    std::vector<Array> out = body(in);
    internal::CheckSameStructure(
        want, flatten(like->first).tree, "carry", ErrorKind::kTypeError,
        "scan body function carry input and carry output must have the same pytree structure; ",
        site);
    return out;
  };
  const std::vector<Array> out = internal::RunScan(call, site, checked);  // fills `like`
  return unflatten(*like, out);
}

// The last of init, body_fun(init), body_fun of that and so on: the first for which cond_fun, a
// bool scalar, is false. Forward-mode derivatives only, as the number of iterations is not known.
// Errors: TYPE_ERROR if cond_fun returns another type, or body_fun another than it is given.
template <class P, class F, class C>
C while_loop(const P& cond_fun, const F& body_fun, const C& init, Site site = Site::Here()) {
  using Tuple = std::tuple<C>;
  using Holds = internal::ResultOf<P, Tuple>;
  using R = internal::ResultOf<F, Tuple>;
  static_assert(std::is_same_v<Holds, Array>, "cond_fun of while_loop answers an Array");
  static_assert(std::is_same_v<R, C>, "body_fun of while_loop answers a carry of init's type");
  const Tuple tuple(init);
  std::optional<Holds> holds;
  std::optional<R> like;
  const internal::TreeBody<F, Tuple, R> body{body_fun, tuple, &like};
  const TreeNode want = flatten(init).tree;
  auto checked = [&](const std::vector<Array>& in) {
    std::vector<Array> out = body(in);
    internal::CheckSameStructure(
        want, flatten(*like).tree, "carry", ErrorKind::kTypeError,
        "body_fun output and input must have identical types, but the pytrees differ; ", site);
    return out;
  };
  const std::vector<Array> out =
      internal::RunWhile(internal::FlattenArgs(init, "init_val"), site,
                         internal::TreeBody<P, Tuple, Holds>{cond_fun, tuple, &holds}, checked);
  return unflatten(*like, out);
}

// body_fun(i, val) for i = lower, lower + 1, ... upper - 1, each val the result before. With bounds
// that are both numbers i is an s32, and derivatives are those of scan; with an array, an integer
// scalar, i has its dtype, and derivatives are those of while_loop. Errors: TYPE_ERROR for a bound
// that is no integer, VALUE_ERROR for numbers that an s32 does not hold.
template <class F, class C>
C fori_loop(const Arg& lower, const Arg& upper, const F& body_fun, const C& init) {
  const auto next = [&](const Array& i, const C& val) {
    const Array after = lax::add(i, 1);
    return std::pair(after, C(body_fun(i, val)));
  };
  const internal::ForiBounds bounds = internal::CheckedBounds(lower, upper);
  if (bounds.count == 0) return init;
  const std::pair first(bounds.lower, init);
  if (bounds.count > 0) {
    const auto step = [&](const std::pair<Array, C>& carry, NoneType) {
      return std::pair(next(carry.first, carry.second), None);
    };
    return scan(step, first, None, {.length = bounds.count}, bounds.site).first.second;
  }
  return while_loop(
             [&](const std::pair<Array, C>& carry) { return lax::lt(carry.first, bounds.upper); },
             [&](const std::pair<Array, C>& carry) { return next(carry.first, carry.second); },
             first, bounds.site)
      .second;
}

namespace internal {
// The branch that `index` names of those that `branches` holds, applied to args.
template <class Branches, class... A>
auto CallBranches(const char* name, const Array& index, const Branches& branches, const Site& site,
                  const A&... args) {
  using Tuple = ArgTuple<const A&...>;
  using R = ResultOf<std::tuple_element_t<0, Branches>, Tuple>;
  const Tuple tuple(args...);
  std::optional<R> like, first;
  const auto call = [&](const auto& branch) {
    using F = std::decay_t<decltype(branch)>;
    static_assert(std::is_same_v<ResultOf<F, Tuple>, R>,
                  "the branches of cond and switch_ answer the same type");
    return [&, &branch = branch](const std::vector<Array>& in) {
      std::vector<Array> out = TreeBody<F, Tuple, R>{branch, tuple, &like}(in);
      if (!first) first = like;
      CheckSameStructure(flatten(*first).tree, flatten(*like).tree, "result", ErrorKind::kTypeError,
                         "branch outputs must have the same pytree structure; ", site);
      return out;
    };
  };
  const auto paths = [&] { return LeafPaths(flatten(*first).tree, "result"); };
  return std::apply(
      [&](const auto&... branch) {
        const std::tuple bodies(call(branch)...);
        const std::vector<Array> out = std::apply(
            [&](const auto&... body) {
              return RunBranches(name, index, FlattenArgs(tuple, "operands"), site,
                                 std::vector<FlatBody>{body...}, paths);
            },
            bodies);
        return unflatten(*first, out);
      },
      branches);
}
}  // namespace internal

// true_fun(operands...) if pred, a bool scalar or a number that is not 0, else
// false_fun(operands...): only that one is run. Under vmap with a pred of its own for each member
// both are, and the results are selected. Errors: TYPE_ERROR if their results differ in type.
template <class F, class G, class... A>
auto cond(const Arg& pred, const F& true_fun, const G& false_fun, const A&... operands) {
  return internal::CallBranches("cond", internal::IndexOfPredicate(pred),
                                std::tie(false_fun, true_fun), pred.site, operands...);
}

// branches[index](operands...), where branches is a tuple of functions and index, an integer
// scalar, is clamped to them. Otherwise as cond.
template <class... F, class... A>
auto switch_(const Arg& index, const std::tuple<F...>& branches, const A&... operands) {
  static_assert(sizeof...(F) > 0, "switch_ has at least one branch");
  return internal::CallBranches("switch", internal::IndexOfBranch(index, sizeof...(F)), branches,
                                index.site, operands...);
}

// ---- Functions with derivative rules ------------------------------------------------------------

// f with a rule for its derivative: rule(primals, tangents) -> pair{f's result, its tangent}, where
// both arguments are the tuple of f's arguments, and the tangent is linear in `tangents`. The
// tangent of an integer, and of what is static, is ignored: as an argument it is zero, and the same
// static value. grad transposes the rule; vmap maps it. Values that f or the rule captures
// must not be differentiated. The rule calls the function that was given here, not the one that is
// returned.
//   auto log1pexp = custom_jvp(
//       [](const Array& x) { return lax::log1p(lax::exp(x)); },
//       [](const auto& primals, const auto& tangents) {
//         const auto& [x] = primals;
//         const auto& [dx] = tangents;
//         return std::pair(lax::log1p(lax::exp(x)), dx * lax::logistic(x));
//       });
// Errors: TYPE_ERROR if the rule's result or tangent has another structure or type than f's result.
// Of differentiation: NOT_IMPLEMENTED by a captured value.
template <class F, class Rule>
auto custom_jvp(F f, Rule rule, Site site = Site::Here()) {
  return [ f = std::move(f), rule = std::move(rule),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    static_assert(std::is_invocable_r_v<std::pair<R, R>, const Rule&, const Tuple&, const Tuple&>,
                  "the rule of custom_jvp takes the tuple of the arguments and that of their "
                  "tangents, and answers a pair {result, tangent of the result} of f's type");
    const Tuple tuple = internal::TracedArgs<F>(site, args...);
    std::optional<R> like;
    const auto flat_rule = [&](const std::vector<Array>& in) {
      std::vector<Array> rest = in;
      const Tuple primals = internal::TakeFront(&rest, tuple);
      const std::pair<R, R> got = rule(primals, unflatten(tuple, rest));
      Flat out = flatten(got.first);
      const Flat tangent = flatten(got.second);
      internal::CheckSameStructure(
          flatten(*like).tree, out.tree, "primal_out", ErrorKind::kTypeError,
          "Custom JVP rule must produce a pair where the first element represents the primal "
          "output (equal in value to the output of the function, and in particular of the same "
          "container/pytree structure); ",
          site);
      internal::CheckSameStructure(
          out.tree, tangent.tree, "tangent_out", ErrorKind::kTypeError,
          "Custom JVP rule must produce primal and tangent outputs with equal container (pytree) "
          "structures; ",
          site);
      out.leaves.insert(out.leaves.end(), tangent.leaves.begin(), tangent.leaves.end());
      return out.leaves;
    };
    const std::vector<Array> out =
        internal::CustomJvpFlat(internal::FlattenArgs(tuple, "args"), site,
                                internal::TreeBody<F, Tuple, R>{f, tuple, &like}, flat_rule);
    return unflatten(*like, out);
  };
}

// f with rules for its gradient: fwd(args...) -> pair{f's result, residuals}, any tree, which is
// kept for bwd(residuals, cotangent of the result) -> the tuple of the arguments' cotangents. One
// that is an Array without a value is zero; those of integers, and what is static, are ignored: in
// the cotangent that bwd takes they are zero, and the same static value. What the three
// functions capture must not be differentiated.
//   auto clip_gradient = custom_vjp([](const Array& x) { return x; },
//                                   [](const Array& x) { return std::pair(x, None); },
//                                   [](NoneType, const Array& g) {
//                                     return std::tuple(lax::clamp(-1.0, g, 1.0));
//                                   });
// Errors: TYPE_ERROR if fwd's result has another structure or type than f's, or bwd's another
// structure than the arguments; VALUE_ERROR if a cotangent has another type than its argument. Of
// differentiation: TYPE_ERROR by jvp ("can't apply forward-mode differentiation (jvp) to a
// custom_vjp function."), NOT_IMPLEMENTED by a captured value.
template <class F, class Fwd, class Bwd>
auto custom_vjp(F f, Fwd fwd, Bwd bwd, Site site = Site::Here()) {
  return [ f = std::move(f), fwd = std::move(fwd), bwd = std::move(bwd),
           site ](const auto&... args) requires internal::Traceable<F, decltype(args)...> {
    using Tuple = internal::Traced<F, decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    using Pair = internal::ResultOf<Fwd, Tuple>;
    static_assert(tree::IsPair<Pair>::value,
                  "the fwd rule of custom_vjp answers a pair {result, residuals}");
    static_assert(std::is_same_v<typename Pair::first_type, R>,
                  "the fwd rule of custom_vjp answers a result of f's type");
    using Residuals = typename Pair::second_type;
    static_assert(std::is_invocable_r_v<Tuple, const Bwd&, const Residuals&, const R&>,
                  "the bwd rule of custom_vjp takes the residuals and the cotangent of the result, "
                  "and answers the tuple of the cotangents of the arguments");
    const Tuple tuple = internal::TracedArgs<F>(site, args...);
    std::optional<R> like;
    std::optional<Pair> fwd_like;
    const internal::TreeBody<Fwd, Tuple, Pair> fwd_body{fwd, tuple, &fwd_like};
    const auto flat_fwd = [&](const std::vector<Array>& in) {
      std::vector<Array> out = fwd_body(in);
      internal::CheckSameStructure(
          flatten(*like).tree, flatten(fwd_like->first).tree, "primal_out", ErrorKind::kTypeError,
          "Custom VJP fwd rule must produce a pair where the first element represents the primal "
          "output (equal to the output of the function) and the second element represents "
          "residuals; ",
          site);
      return out;
    };
    const auto flat_bwd = [&](const std::vector<Array>& in) {
      std::vector<Array> rest = in;
      const Residuals residuals = internal::TakeFront(&rest, fwd_like->second);
      const Tuple got = bwd(residuals, unflatten(fwd_like->first, rest));
      const Flat out = flatten(got);
      internal::CheckSameStructure(
          flatten(tuple).tree, out.tree, "output", ErrorKind::kTypeError,
          "Custom VJP bwd rule must produce an output with the same container (pytree) structure "
          "as the args tuple of the primal function; ",
          site);
      return out.leaves;
    };
    const std::vector<Array> out = internal::CustomVjpFlat(
        internal::FlattenArgs(tuple, "args"), site,
        internal::TreeBody<F, Tuple, R>{f, tuple, &like}, flat_fwd, flat_bwd);
    return unflatten(*like, out);
  };
}

namespace lax {

struct LinearSolveOptions {
  bool symmetric = false;  // A is its own transpose: transpose_solve is solve unless it is given
};
// x of matvec(x) = b, a linear equation, as solve(matvec, b) finds it, with derivatives by implicit
// differentiation: solve itself, which may loop until it has converged, is not differentiated.
// x and b are trees of the same kind; what matvec captures has derivatives, what only solve
// captures none. transpose_solve(vecmat, b), where vecmat is the transpose of matvec, is what a
// gradient runs; without it there is none. Errors: TYPE_ERROR or VALUE_ERROR if the result of one
// of the functions has another structure or type than b; NOT_IMPLEMENTED by grad without
// transpose_solve ("transpose_solve required for backwards mode automatic differentiation").
template <class M, class B, class S, class T = NoneType>
B custom_linear_solve(const M& matvec, const B& b, const S& solve, const T& transpose_solve = {},
                      LinearSolveOptions options = {}, Site site = Site::Here()) {
  static_assert(std::is_invocable_r_v<B, const M&, const B&>,
                "matvec of custom_linear_solve answers a tree of b's type");
  static_assert(std::is_invocable_r_v<B, const S&, const M&, const B&>,
                "solve of custom_linear_solve takes matvec and b, and answers a tree of b's type");
  const TreeNode want = flatten(b).tree;
  const auto flat = [&](const char* name, const auto& fn) {
    return [&want, &b, name, &fn, site](const std::vector<Array>& in) {
      const Flat out = flatten(B(fn(unflatten(b, in))));
      internal::CheckSameStructure(want, out.tree, "b", ErrorKind::kTypeError,
                                   std::string(name) + "() output pytree structure must match b; ",
                                   site);
      return out.leaves;
    };
  };
  const auto solved = [&](const B& x) { return solve(matvec, x); };
  const auto flat_solve = flat("solve", solved);
  const auto flat_matvec = flat("matvec", matvec);
  internal::LinearSolveFlat call{internal::FlattenArgs(b, "b"), flat_solve, flat_matvec,
                                 std::nullopt, std::nullopt};
  const auto run = [&] { return unflatten(b, internal::RunLinearSolve(call, site)); };
  if constexpr (!std::is_same_v<T, NoneType>) {
    const auto vecmat = [&](const B& x) -> B {
      if (options.symmetric) return matvec(x);
      return std::get<0>(linear_transpose(matvec, std::tuple<B>(b), site)(x));
    };
    static_assert(std::is_invocable_r_v<B, const T&, decltype(vecmat)&, const B&>,
                  "transpose_solve of custom_linear_solve takes the transpose of matvec and b");
    const auto transposed = [&](const B& x) { return transpose_solve(vecmat, x); };
    const auto flat_transposed = flat("transpose_solve", transposed);
    const auto flat_vecmat = flat("transpose_matvec", vecmat);
    call.transpose_solve.emplace(flat_transposed);
    call.transpose_matvec.emplace(flat_vecmat);
    return run();
  } else {
    if (options.symmetric) {
      call.transpose_solve.emplace(flat_solve);
      call.transpose_matvec.emplace(flat_matvec);
    }
    return run();
  }
}

}  // namespace lax

// f, whose intermediate values are recomputed for the gradient instead of stored.
template <class F>
auto checkpoint(F f, Site site = Site::Here()) {
  return [ f = std::move(f),
           site ](const auto&... args) requires internal::Callable<F, decltype(args)...> {
    using Tuple = internal::ArgTuple<decltype(args)...>;
    using R = internal::ResultOf<F, Tuple>;
    const Tuple tuple(args...);
    std::optional<R> like;
    const std::vector<Array> out =
        internal::CheckpointFlat(internal::FlattenArgs(tuple, "args"), site,
                                 internal::TreeBody<F, Tuple, R>{f, tuple, &like});
    return unflatten(*like, out);
  };
}

}  // namespace tessera
