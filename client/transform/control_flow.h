// Loops and branches that run on the cluster: scan, associative_scan, lax::map, while_loop,
// fori_loop, cond, switch_.
#pragma once
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/lax.h"
#include "client/transform/call.h"
#include "client/transform/vmap.h"

namespace tessera {

namespace internal {

struct ScanFlat {
  FlatArgs carry, xs;
  int64_t length = -1;  // -1 takes the length of xs
  bool reverse = false;
  int64_t unroll = 1;  // 0 unrolls all steps
};
// `body` takes the carry, then slices of xs, and returns the carry, then slices of ys. RunScan
// returns the last carry, then the stacked ys.
std::vector<Array> RunScan(const ScanFlat& call, const Site& site, FlatBody body);

// `predicate` takes the carry and returns a bool; `body` takes the carry and returns a carry.
// Returns the last carry.
std::vector<Array> RunWhile(const FlatArgs& carry, const Site& site, FlatBody predicate,
                            FlatBody body);
// `combine` takes two lists of arrays like `elems` and returns one; see associative_scan.
std::vector<Array> AssociativeScanFlat(
    const FlatArgs& elems, bool reverse, int axis, const Site& site,
    absl::FunctionRef<std::vector<Array>(const std::vector<Array>&, const std::vector<Array>&)>
        combine);
// Returns the common size of the leading dims of `xs`, for lax::map.
int64_t LeadingSize(const FlatArgs& xs, const Site& site);
// Returns the elements [first, last) of x along its leading dim. If `row_size` is not 0, the
// leading dim is split into rows of `row_size` elements.
Array LeadingPart(const Array& x, int64_t first, int64_t last, int64_t row_size, const Site& site);
// Returns `parts` with its first two dims joined, followed by the elements of `rest` if it is
// valid.
Array JoinedParts(const Array& parts, const Array& rest, const Site& site);

// Returns the results of the branch that `index`, an s32, selects. `out_paths` is called after the
// branches and returns the paths of the results.
std::vector<Array> RunBranches(const char* name, const Array& index, const FlatArgs& args,
                               const Site& site, const std::vector<FlatBody>& branches,
                               absl::FunctionRef<std::vector<std::string>()> out_paths);
// The bounds of fori_loop as arrays of one dtype. `count` is the number of iterations if both
// bounds are numbers, else -1.
struct ForiBounds {
  Array lower, upper;
  int64_t count = -1;
  Site site;
};
ForiBounds CheckedBounds(const Arg& lower, const Arg& upper);
// IndexOfPredicate returns a bool or number as the index of cond's branches {false, true}.
// IndexOfBranch returns an integer, clamped, as the index of one of `size` branches. Both throw
// TYPE_ERROR for anything else.
Array IndexOfPredicate(const Arg& pred);
Array IndexOfBranch(const Arg& index, size_t size);

}  // namespace internal

// The number of steps that one turn of a loop takes. The number does not change any value.
struct Unroll {
  int64_t steps = 1;  // 0 takes all steps in one turn
  Unroll() = default;
  // NOLINTBEGIN(google-explicit-constructor): conversion is intended; true stands for all steps
  Unroll(int n) : steps(n) {}
  Unroll(int64_t n) : steps(n) {}
  Unroll(bool all) : steps(all ? 0 : 1) {}
  // NOLINTEND(google-explicit-constructor)
};
struct ScanOptions {
  int64_t length = -1;  // number of steps; required if xs has no array
  bool reverse = false;
  Unroll unroll = {};  // VALUE_ERROR for a negative number
};
// Calls f(carry, x), which returns a pair {carry, y}, for each element x along the leading dim of
// xs. If xs is None, there is no x. Returns {last carry, stacked ys}. Reference: jax.lax.scan.
template <class F, class C, class X>
auto scan(const F& f, const C& init, const X& xs, ScanOptions options = {},
          Site site = Site::Here()) {
  using R = internal::ResultOf<F, std::tuple<C, X>>;
  static_assert(tree::IsPair<R>::value, "the body of scan must return a pair {carry, y}");
  static_assert(std::is_same_v<typename R::first_type, C>,
                "the body of scan must return a carry with the type of the carry that it takes");
  const std::tuple<C, X> tuple(init, xs);
  internal::ScanFlat call{internal::FlattenArgs(init, "carry"), internal::FlattenArgs(xs, "xs"),
                          options.length, options.reverse, options.unroll.steps};
  std::optional<R> like;
  const internal::TreeBody<F, std::tuple<C, X>, R> body{f, tuple, &like};
  const TreeNode want = internal::FlattenFilled(init).tree;
  auto checked = [&](const std::vector<Array>& in) {
    std::vector<Array> out = body(in);
    internal::CheckSameStructure(
        want, internal::FlattenFilled(like->first).tree, "carry", ErrorKind::kTypeError,
        "scan body function carry input and carry output must have the same pytree structure; ",
        site);
    return out;
  };
  const std::vector<Array> out = internal::RunScan(call, site, checked);  // fills `like`
  return internal::UnflattenFilled(*like, out);
}

// Returns elems[0], fn(elems[0], elems[1]), fn(fn(elems[0], elems[1]), elems[2]) and so on along
// `axis`. fn(a, b) takes and returns trees of elems' type and must be associative: fn(a, fn(b, c))
// is fn(fn(a, b), c). It is called about 2 log2(n) times, each time with many elements along the
// axis. `reverse` scans from the end. Errors: VALUE_ERROR for an axis that is out of bounds, or for
// sizes along it that differ. If the results of fn do not fit together, concatenate throws.
// Reference: jax.lax.associative_scan.
template <class F, class T>
T associative_scan(const F& fn, const T& elems, bool reverse = false, int axis = 0,
                   Site site = Site::Here()) {
  static_assert(
      std::is_invocable_r_v<T, const F&, const T&, const T&>,
      "fn of associative_scan must take two trees of elems' type and return a tree of that type");
  const internal::FlatArgs flat = internal::FlattenArgs(elems, "elems");
  const auto combine = [&](const std::vector<Array>& a, const std::vector<Array>& b) {
    const Flat out = internal::FlattenFilled(
        T(fn(internal::UnflattenFilled(elems, a), internal::UnflattenFilled(elems, b))));
    internal::CheckSameStructure(
        flat.tree, out.tree, "elems", ErrorKind::kTypeError,
        "fn of associative_scan must return a tree with the structure of elems; ", site);
    return out.leaves;
  };
  return internal::UnflattenFilled(
      elems, internal::AssociativeScanFlat(flat, reverse, axis, site, combine));
}

namespace lax {

struct MapOptions {
  // number of elements that vmap maps at a time: 0 maps all at once, -1 maps one at a time without
  // vmap
  int64_t batch_size = -1;
};
// Applies f to each element along the leading dims of xs, one after the other, and stacks the
// results: scan without a carry. With a batch_size, vmap maps that many elements at a time; the
// remaining ones are mapped last. Errors: VALUE_ERROR for sizes that differ, or a batch_size below
// -1. Reference: jax.lax.map.
template <class F, class X>
auto map(const F& f, const X& xs, MapOptions options = {}, Site site = Site::Here()) {
  const auto map_one = [&](NoneType, const X& x) { return std::pair(None, f(x)); };
  if (options.batch_size == -1) return scan(map_one, None, xs, {}, site).second;
  if (options.batch_size < -1) {
    internal::ThrowError(ErrorKind::kValueError, site, "lax::map: batch_size is ",
                         options.batch_size,
                         "; expected a number of elements, 0 for all, or -1 for one");
  }
  const int64_t n = internal::LeadingSize(internal::FlattenArgs(xs, "xs"), site);
  const int64_t size = options.batch_size;
  const int64_t batches = size == 0 ? 0 : n / size, batched = batches * size;
  const auto part = [&](int64_t first, int64_t last, int64_t size) {
    return tree_map(
        [&](const Array& x) { return internal::LeadingPart(x, first, last, size, site); }, xs);
  };
  const auto mapped = vmap([&](const X& x) { return f(x); }, 0, 0, {}, site);
  if (batches == 0) return mapped(xs);
  const auto map_batch = [&](NoneType, const X& x) { return std::pair(None, mapped(x)); };
  const auto parts = scan(map_batch, None, part(0, batched, size), {}, site).second;
  const auto joined = [&](const Array& x, const Array& rest) {
    return internal::JoinedParts(x, rest, site);
  };
  if (batched == n) return tree_map([&](const Array& x) { return joined(x, Array()); }, parts);
  return tree_map(joined, parts, mapped(part(batched, n, 0)));
}

}  // namespace lax

// Returns the first of the values init, body_fun(init), body_fun(body_fun(init)) and so on for
// which cond_fun, which returns a bool scalar, is false. while_loop has forward-mode derivatives
// only, because the number of iterations is not known. Errors: TYPE_ERROR if cond_fun returns
// another type, or if body_fun returns another type than it is given. Reference:
// jax.lax.while_loop.
template <class P, class F, class C>
C while_loop(const P& cond_fun, const F& body_fun, const C& init, Site site = Site::Here()) {
  using Tuple = std::tuple<C>;
  using Condition = internal::ResultOf<P, Tuple>;
  using R = internal::ResultOf<F, Tuple>;
  static_assert(std::is_same_v<Condition, Array>, "cond_fun of while_loop must return an Array");
  static_assert(std::is_same_v<R, C>, "body_fun of while_loop must return a carry of init's type");
  const Tuple tuple(init);
  std::optional<Condition> condition_like;
  std::optional<R> like;
  const internal::TreeBody<F, Tuple, R> body{body_fun, tuple, &like};
  const TreeNode want = internal::FlattenFilled(init).tree;
  auto checked = [&](const std::vector<Array>& in) {
    std::vector<Array> out = body(in);
    internal::CheckSameStructure(
        want, internal::FlattenFilled(*like).tree, "carry", ErrorKind::kTypeError,
        "body_fun output and input must have identical types, but the pytrees differ; ", site);
    return out;
  };
  const std::vector<Array> out = internal::RunWhile(
      internal::FlattenArgs(init, "init_val"), site,
      internal::TreeBody<P, Tuple, Condition>{cond_fun, tuple, &condition_like}, checked);
  return internal::UnflattenFilled(*like, out);
}

// Calls val = body_fun(i, val) for i = lower, lower + 1, ... upper - 1, starting with init, and
// returns the last val. Reference: jax.lax.fori_loop.
//
// If both bounds are numbers, i is a weak s32 and the derivatives are those of scan. A bound may
// also be an array, an integer scalar; the derivatives are then those of while_loop. i is still a
// weak s32, unless an array among the bounds is traced, is u32 or has more than 32 bits. With such
// an array, i has the dtype of lower or, if lower is a number, of upper. JAX reads array bounds
// whose contents are known while it traces. In JAX the derivatives are those of scan for such
// bounds, too. Errors: TYPE_ERROR for a bound that is no integer, VALUE_ERROR for a number that an
// s32 cannot hold.
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
// Calls the branch that `index` selects with `args`.
template <class Branches, class... A>
auto CallBranches(const char* name, const Array& index, const Branches& branches, const Site& site,
                  const A&... args) {
  using Tuple = ArgTuple<const A&...>;
  using R = ResultOf<std::tuple_element_t<0, Branches>, Tuple>;
  const Tuple tuple(args...);
  std::optional<R> like, first;
  const auto body_of = [&](const auto& branch) {
    using F = std::decay_t<decltype(branch)>;
    static_assert(std::is_same_v<ResultOf<F, Tuple>, R>,
                  "the branches of cond and switch_ must return the same type");
    return [&, &branch = branch](const std::vector<Array>& in) {
      std::vector<Array> out = TreeBody<F, Tuple, R>{branch, tuple, &like}(in);
      if (!first) first = like;
      CheckSameStructure(internal::FlattenFilled(*first).tree, internal::FlattenFilled(*like).tree,
                         "result", ErrorKind::kTypeError,
                         "branch outputs must have the same pytree structure; ", site);
      return out;
    };
  };
  const auto paths = [&] { return LeafPaths(internal::FlattenFilled(*first).tree, "result"); };
  return std::apply(
      [&](const auto&... branch) {
        const std::tuple bodies(body_of(branch)...);
        const std::vector<Array> out = std::apply(
            [&](const auto&... body) {
              return RunBranches(name, index, FlattenArgs(tuple, "operands"), site,
                                 std::vector<FlatBody>{body...}, paths);
            },
            bodies);
        return internal::UnflattenFilled(*first, out);
      },
      branches);
}
}  // namespace internal

// Returns true_fun(operands...) if pred, a bool scalar or a number, is true or not 0, else
// false_fun(operands...). Only that function runs. Under a vmap that maps pred, both functions run,
// and each element of the batch takes the result that its pred selects. Errors: TYPE_ERROR if the
// results of the functions differ in type. Reference: jax.lax.cond.
template <class F, class G, class... A>
auto cond(const Arg& pred, const F& true_fun, const G& false_fun, const A&... operands) {
  return internal::CallBranches("cond", internal::IndexOfPredicate(pred),
                                std::tie(false_fun, true_fun), pred.site, operands...);
}

// Returns branches[index](operands...). `branches` is a tuple of functions; index, an integer
// scalar, is clamped to [0, number of branches). Derivatives, vmap and errors are those of cond.
// Reference: jax.lax.switch.
template <class... F, class... A>
auto switch_(const Arg& index, const std::tuple<F...>& branches, const A&... operands) {
  static_assert(sizeof...(F) > 0, "switch_ needs at least one branch");
  return internal::CallBranches("switch", internal::IndexOfBranch(index, sizeof...(F)), branches,
                                index.site, operands...);
}

}  // namespace tessera
