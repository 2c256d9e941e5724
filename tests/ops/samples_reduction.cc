// Samples of the ops in ir/ops/reduction.cc, cumulative.cc, sort.cc, regions/reduce.cc and
// regions/sort_by.cc. A sample, or row, is one op with given attributes and operands: a test case
// (samples.h). samples.cc collects the rows, and the tests of this folder check them.
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/ops/samples.h"

namespace tessera::ir::samples {
namespace {

using enum DType;

struct Shape {
  Dims shape;
  Dims dims;
};
const std::vector<Shape>& Shapes() {
  static const auto* const kAll = new std::vector<Shape>{
      {{4, 8}, {1}}, {{8, 4}, {0}}, {{4, 2, 8}, {0, 2}}, {{4, 8}, {0, 1}}, {{4, 8}, {}}};
  return *kAll;
}
double Terms(const Shape& s) {
  double n = 1;
  for (int64_t d : s.dims) n *= static_cast<double>(s.shape[d]);
  return n;
}

// Returns the rows of cumulative ops. Sums and products may be computed in another order, so their
// rows have a tolerance. Maxima and minima are exact. Most of their rows have distinct elements,
// because a maximum of equal elements has no derivative.
std::vector<Sample> CumulativeSamples() {
  std::vector<Sample> rows;
  auto add = [&](std::string_view op, std::string_view label, DType d, Dims shape, int64_t dim,
                 bool reverse, Fill fill, Tolerance t) -> Sample& {
    rows.push_back(Make(op, absl::StrCat(N(d), "/", ToAbsl(label), reverse ? "_reverse" : ""),
                        {Of(d, std::move(shape), std::move(fill))})
                       .With({{"dimension", dim}, {"reverse", reverse}})
                       .Within(t));
    if (op == "cumsum") rows.back().Linear({{0}});
    return rows.back();
  };
  for (const bool reverse : {false, true}) {
    for (DType d : Numbers()) {
      const Tolerance sum = IsFloat(d) ? Reordered(8) : kExact;
      const Fill factors = IsFloat(d) ? Uniform(0.5, 1.5) : Values({1, 2, 1, 3, 1});
      for (const auto& [label, shape, dim] :
           {std::tuple<const char*, Dims, int64_t>{"rows", {4, 8}, 1},
            {"columns", {8, 4}, 0},
            {"middle", {2, 8, 2}, 1}}) {
        add("cumsum", label, d, shape, dim, reverse, UsualFill(d), sum);
        add("cumprod", label, d, shape, dim, reverse, factors, sum);
        add("cummax", label, d, shape, dim, reverse, Distinct(d == kU32 ? 0 : -40, 40), kExact);
        add("cummin", label, d, shape, dim, reverse, Distinct(d == kU32 ? 0 : -40, 40), kExact);
        if (IsFloat(d))
          add("cumlogsumexp", label, d, shape, dim, reverse, UsualFill(d), Reordered(32));
      }
      if (!IsFloat(d))
        for (const char* op : {"cumsum", "cumprod", "cummax", "cummin"})
          add(op, "bits", d, {4, 8}, 1, reverse, Bits(), kExact);
    }
    for (DType d : Floats()) {
      for (const char* op : {"cummax", "cummin"})
        add(op, "special", d, {2, 8}, 1, reverse, Values({0, -0.0, 1, kInf, -kInf, 3, kNan, 2}),
            kExact)
            .NotSmooth("NaNs and infinities have no finite difference");
      add("cumprod", "zeros", d, {2, 8}, 1, reverse, Values({1, 2, 0, 1.5, 1, 0, 2, 3, 2}),
          Reordered(8));
    }
  }
  for (const char* op : {"cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"}) {
    add(op, "nothing", kF64, {4, 0}, 1, false, UsualFill(kF64), kExact);
    add(op, "one", kF64, {4, 1}, 1, false, UsualFill(kF64), kExact);
  }
  return rows;
}

// Returns the rows of sort and related ops. Rows with distinct elements check derivatives, rows
// with equal elements check stability, and rows with special values check how NaNs and signed zeros
// are ordered.
std::vector<Sample> OrderSamples() {
  std::vector<Sample> rows;
  auto sort = [&](std::string label, std::vector<Operand> operands, int64_t dim,
                  int64_t keys) -> Sample& {
    rows.push_back(Make("sort", label, std::move(operands))
                       .With({{"dimension", dim}, {"is_stable", true}, {"num_keys", keys}}));
    return rows.back();
  };
  auto top_k = [&](std::string label, Operand x, int64_t k, int64_t dim) -> Sample& {
    rows.push_back(Make("top_k", label, {std::move(x)}).With({{"k", k}, {"dimension", dim}}));
    return rows.back();
  };
  const Fill special = Values({0, -0.0, kInf, 1, kNan, -kInf, -2, 0, -0.0, kNan, 2, -1});
  for (DType d : Computable()) {
    const auto distinct = [&](Dims shape) {
      return Of(d, std::move(shape), d == kBool ? Bits() : Distinct(d == kU32 ? 0 : -40, 40));
    };
    sort(N(d) + "/rows", {distinct({4, 8})}, 1, 1);
    sort(N(d) + "/columns", {distinct({8, 4})}, 0, 1);
    sort(N(d) + "/ties", {Of(d, {2, 8}, Values({1, 0, 1, 1, 0})), Of(kS32, {2, 8}, Ints(0, 99))}, 1,
         1)
        .NotSmooth("elements are equal");
    top_k(N(d) + "/rows", distinct({4, 8}), 3, 1);
    top_k(N(d) + "/columns", distinct({8, 4}), 2, 0);
    top_k(N(d) + "/ties", Of(d, {2, 8}, Values({1, 0, 1, 1, 0})), 4, 1)
        .NotSmooth("elements are equal");
    if (!IsFloat(d)) continue;
    top_k(N(d) + "/total_order",
          Of(d, {2, 8}, Values({-0.0, 0, -kNan, 1, kNan, -0.0, 0, -kInf, kInf})), 8, 1)
        .NotSmooth("NaNs and infinities have no finite difference");
    for (const int64_t n : {6, 8}) {
      const std::string label = absl::StrCat(N(d), n == 6 ? "/special" : "/special_of_8");
      sort(label, {Of(d, {2, n}, special), Of(kS32, {2, n}, Ints(0, 99))}, 1, 1)
          .NotSmooth("NaNs and infinities have no finite difference");
      top_k(label, Of(d, {2, n}, special), 4, 1)
          .NotSmooth("NaNs and infinities have no finite difference");
    }
  }
  for (DType d : Integers()) {
    sort(N(d) + "/bits", {Of(d, {4, 8}, Bits())}, 1, 1);
    top_k(N(d) + "/bits", Of(d, {4, 8}, Bits()), 8, 1);
  }
  sort("f64/two_keys",
       {Of(kS32, {4, 8}, Ints(0, 2)), Of(kF64, {4, 8}, Distinct(-4, 4)), Of(kF64, {4, 8})}, 1, 2)
      .Main(1);
  sort("f64/with_values", {Of(kF64, {2, 8, 2}, Distinct(-4, 4)), Of(kBF16, {2, 8, 2})}, 1, 1);
  sort("f64/vector", {Of(kF64, {8}, Distinct(-4, 4))}, 0, 1);
  sort("f64/nothing", {Of(kF64, {4, 0})}, 1, 1);
  top_k("f64/none", Of(kF64, {4, 8}, Distinct(-4, 4)), 0, 1);
  top_k("f64/vector", Of(kF64, {8}, Distinct(-4, 4)), 8, 0);
  return rows;
}

// Returns the computation (1 + a) (1 + b) - 1, or a xor b for bools. It is associative, and 0 is
// neutral.
FunctionRef Joined(DType d) {
  return Computation({d, d}, [](const std::vector<Value>& v) -> std::vector<Value> {
    if (v[0].dtype() == kBool) return {Xor(v[0], v[1])};
    const Value product = v[0] * v[1];
    return {product + v[0] + v[1]};
  });
}
// Returns a computation that picks the larger of two numbers, together with its index. If the
// numbers are equal, it picks the one with the lower index.
FunctionRef LargerWithIndex(DType d) {
  return Computation({d, kS32, d, kS32}, [](const std::vector<Value>& v) -> std::vector<Value> {
    const Value more = Compare(v[0], v[2], "GT"), equal = Compare(v[0], v[2], "EQ");
    const Value first = Or(more, And(equal, Compare(v[1], v[3], "LT")));
    const Value value = Select(first, v[0], v[2]);
    return {value, Select(first, v[1], v[3])};
  });
}

// Returns a computation that composes the functions a + b x and c + d x. It is associative but not
// commutative, so the order of the elements matters.
FunctionRef Composed(DType dt) {
  return Computation({dt, dt, dt, dt}, [](const std::vector<Value>& v) -> std::vector<Value> {
    const Value shifted = v[3] * v[0];
    return {v[2] + shifted, v[3] * v[1]};
  });
}

// Adds reductions by a computation: a commutative one for every dtype, one in which the order of
// the elements matters, and one that finds a maximum with its index.
std::vector<Sample> ReduceSamples() {
  std::vector<Sample> rows;
  const auto joined = [&](DType d, const Shape& shape) -> Sample& {
    const Fill fill = IsFloat(d) ? Uniform(-0.5, 0.5) : UsualFill(d);
    rows.push_back(Make("reduce",
                        absl::StrCat(N(d), "/", absl::StrJoin(shape.shape, "x"), "_over_",
                                     absl::StrJoin(shape.dims, "_")),
                        {Of(d, shape.shape, fill), Of(d, {}, Values({0}))})
                       .With({{"dimensions", shape.dims}})
                       .Region(Joined(d))
                       .Within(IsFloat(d) ? Reordered(4 * Terms(shape) + 4) : kExact));
    return rows.back();
  };
  for (DType d : Computable()) {
    for (const Shape& shape : Shapes()) joined(d, shape);
    joined(d, {{4, 0}, {1}});
  }
  for (const Shape& shape : Shapes()) {
    if (shape.dims.empty()) continue;  // lax ignores the initial values in this case
    rows.push_back(Make("reduce",
                        absl::StrCat("s32/composed_", absl::StrJoin(shape.shape, "x"), "_over_",
                                     absl::StrJoin(shape.dims, "_")),
                        {Of(kS32, shape.shape, Ints(-9, 9)), Of(kS32, shape.shape, Ints(-2, 3)),
                         Of(kS32, {}, Values({7})), Of(kS32, {}, Values({3}))})
                       .With({{"dimensions", shape.dims}})
                       .Region(Composed(kS32)));
  }
  joined(kF64, {{4, 5, 3}, {1, 2}});
  joined(kF64, {{7}, {0}});
  joined(kF64, {{0, 8}, {1}});
  for (DType d : {kS32, kF32, kF64})
    for (const Shape& shape : {Shape{{4, 8}, {1}}, Shape{{8, 4}, {0}}, Shape{{8}, {0}}})
      rows.push_back(Make("reduce", absl::StrCat(N(d), "/argmax_", absl::StrJoin(shape.shape, "x")),
                          {Of(d, shape.shape, IsFloat(d) ? Distinct(-4, 4) : Ints(0, 3)),
                           Of(kS32, shape.shape, Ints(0, 99)), Of(d, {}, Values({-9})),
                           Of(kS32, {}, Values({100}))})
                         .With({{"dimensions", shape.dims}})
                         .Region(LargerWithIndex(d)));
  return rows;
}

// Adds sorts by a comparator: descending, by two keys, by magnitude, and by a comparator that
// contradicts itself.
std::vector<Sample> SortBySamples() {
  std::vector<Sample> rows;
  const auto sort =
      [&](std::string label, std::vector<Operand> operands, int64_t dim,
          const std::function<Value(const std::vector<Value>&)>& comes_first) -> Sample& {
    std::vector<DType> params;
    for (const Operand& o : operands) params.insert(params.end(), 2, o.type.dtype);
    rows.push_back(Make("sort_by", label, std::move(operands))
                       .With({{"dimension", dim}, {"is_stable", true}})
                       .Region(Computation(params, [&](const std::vector<Value>& v) {
                         return std::vector<Value>{comes_first(v)};
                       })));
    return rows.back();
  };
  const auto descending = [](const std::vector<Value>& v) { return Compare(v[0], v[1], "GT"); };
  for (DType d : Computable()) {
    const auto distinct = [&](Dims shape) {
      return Of(d, std::move(shape), d == kBool ? Bits() : Distinct(d == kU32 ? 0 : -40, 40));
    };
    sort(N(d) + "/rows", {distinct({4, 8})}, 1, descending);
    sort(N(d) + "/columns", {distinct({8, 4})}, 0, descending);
    sort(N(d) + "/ties", {Of(d, {2, 8}, Values({1, 0, 1, 1, 0})), Of(kS32, {2, 8}, Ints(0, 99))}, 1,
         descending)
        .NotSmooth("elements are equal");
  }
  sort("f64/two_keys",
       {Of(kS32, {4, 8}, Ints(0, 2)), Of(kF64, {4, 8}, Distinct(-4, 4)), Of(kF64, {4, 8})}, 1,
       [](const std::vector<Value>& v) {
         const Value less = Compare(v[0], v[1], "LT"), equal = Compare(v[0], v[1], "EQ");
         return Or(less, And(equal, Compare(v[2], v[3], "GT")));
       })
      .Main(1);
  sort("f64/magnitudes", {Of(kF64, {2, 7, 3}, Distinct(-4, 5)), Of(kBF16, {2, 7, 3})}, 1,
       [](const std::vector<Value>& v) {
         const Value left = Abs(v[0]);
         return Compare(left, Abs(v[1]), "LT");
       });
  sort("f64/nothing", {Of(kF64, {4, 0})}, 1, descending);
  sort("f64/vector", {Of(kF64, {13}, Distinct(-4, 4))}, 0, descending);
  // A comparator that contradicts itself gives an unspecified order, which is the same on every
  // backend.
  sort("s32/always", {Of(kS32, {4, 8}, Ints(0, 99))}, 1, [](const std::vector<Value>& v) {
    return Compare(v[0], v[0], "EQ");
  }).Without(CheckKind::kRecorded, "the comparator orders nothing");
  return rows;
}

}  // namespace

// Adds the rows of the functions above. Then adds the reductions with a fixed operation: every
// shape for every dtype, and rows with empty operands, special values and equal elements.
std::vector<Sample> ReductionSamples() {
  std::vector<Sample> rows = CumulativeSamples();
  for (Sample& s : OrderSamples()) rows.push_back(std::move(s));
  for (Sample& s : ReduceSamples()) rows.push_back(std::move(s));
  for (Sample& s : SortBySamples()) rows.push_back(std::move(s));
  auto add = [&](std::string_view op, DType d, const Shape& shape, std::string_view suffix,
                 Fill fill, Tolerance t, bool linear) -> Sample& {
    Sample s = Make(op,
                    absl::StrCat(N(d), "/", absl::StrJoin(shape.shape, "x"), "_over_",
                                 absl::StrJoin(shape.dims, "_"), ToAbsl(suffix)),
                    {Of(d, shape.shape, std::move(fill))})
                   .With({{"dimensions", shape.dims}})
                   .Within(t);
    if (linear) s.Linear({{0}});
    rows.push_back(std::move(s));
    return rows.back();
  };
  for (const Shape& shape : Shapes()) {
    for (DType d : Numbers()) {
      // A sum in another order may differ by one rounding for each term.
      const Tolerance sum = IsFloat(d) ? Reordered(Terms(shape)) : kExact;
      add("reduce_sum", d, shape, "", UsualFill(d), sum, true);
      add("reduce_prod", d, shape, "", IsFloat(d) ? Uniform(0.5, 1.5) : Values({1, 2, 1, 3, 1}),
          sum, false);
      add("reduce_max", d, shape, "", Distinct(d == kU32 ? 0 : -40, 40), kExact, false);
      add("reduce_min", d, shape, "", Distinct(d == kU32 ? 0 : -40, 40), kExact, false);
    }
    for (DType d : Computable()) {
      if (IsFloat(d)) continue;
      add("reduce_and", d, shape, "", d == kBool ? Values({1, 1, 1, 0, 1}) : Bits(), kExact, false);
      add("reduce_or", d, shape, "", d == kBool ? Values({0, 0, 0, 0, 0, 1}) : Bits(), kExact,
          false);
    }
  }
  for (DType d : Numbers()) {
    const Shape empty{{4, 0}, {1}};
    for (const char* op : {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"}) {
      Sample& s = add(op, d, empty, "", UsualFill(d), kExact, std::string_view(op) == "reduce_sum");
      if (op[7] == 'm') s.NotSmooth("the best of nothing has no tangent");
    }
    if (!IsFloat(d))
      for (const char* op : {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min"})
        add(op, d, {{4, 8}, {1}}, "/bits", Bits(), kExact, std::string_view(op) == "reduce_sum");
  }
  for (DType d : {kBool, kS32})
    for (const char* op : {"reduce_and", "reduce_or"})
      add(op, d, {{4, 0}, {1}}, "", UsualFill(d), kExact, false);
  for (DType d : Floats()) {
    for (const char* op : {"reduce_max", "reduce_min"}) {
      add(op, d, {{4, 4}, {1}}, "/special",
          Values({0, -0.0, 1, -1, kInf, 1, 2, 3, -kInf, -2, -3, -1, kNan, 1, kInf, 2}), kExact,
          false)
          .NotSmooth("NaNs and infinities have no finite difference");
      // -0 is less than +0, wherever it stands. The shapes have few and many elements, so that
      // there are kernels that reduce whole rows and kernels that reduce parts of rows.
      for (const Shape& shape : {Shape{{16, 4}, {1}}, Shape{{4, 16}, {0}}, Shape{{40000}, {0}}}) {
        Sample& zeros = add(op, d, shape, "/zeros", Picks({0, -0.0}), kExact, false);
        zeros.NotSmooth("all elements are equal");
        if (shape.dims.size() == shape.shape.size())
          zeros.Without(CheckKind::kRecorded,
                        "of many zeros XLA keeps one or the other, by its lanes");
      }
      const bool is_max = std::string_view(op) == "reduce_max";
      add(op, d, {{4, 4}, {1}}, "/ties", is_max ? Values({1, 1, 0, 1}) : Values({0, 0, 1, 0}),
          kExact, false)
          .Without(CheckKind::kJvp, "a tie shares the tangent; a finite difference takes one side");
    }
    // The derivative of a product with a zero among its factors must not divide by the zero.
    add("reduce_prod", d, {{4, 4}, {1}}, "/zeros", Values({0, 2, 1.5, 1, 2, 0, 0, 1, 1, 2, 3}),
        Reordered(4), false);
  }
  for (const char* op : {"reduce_max", "reduce_min"})
    for (const Shape& shape : {Shape{{4, 8}, {1}}, Shape{{8}, {0}}})
      add(op, kBool, shape, "", Bits(), kExact, false);

  auto arg = [&](std::string_view op, std::string_view label, DType d, Dims shape, int64_t dim,
                 DType index, Fill fill) {
    rows.push_back(Make(op, absl::StrCat(N(d), "/", ToAbsl(label)), {Of(d, shape, std::move(fill))})
                       .With({{"dimension", dim}, {"index_dtype", index}})
                       .Without(CheckKind::kJvp, "an index has no tangent"));
  };
  for (const char* op : {"argmax", "argmin"}) {
    for (DType d : Computable()) {
      arg(op, "rows", d, {4, 8}, 1, kS32, UsualFill(d));
      arg(op, "columns", d, {8, 4}, 0, kS32, UsualFill(d));
      arg(op, "ties", d, {8}, 0, kS32, Values({0, 1, 1, 0}));
    }
    for (DType index : {kU32, kS64})
      arg(op, "index_" + N(index), kF32, {4, 8}, 1, index, UsualFill(kF32));
    for (DType d : Floats())
      arg(op, "special", d, {4, 4}, 1, kS32,
          Values({0, -0.0, 0, -0.0, kInf, kNan, 1, kNan, -kInf, -2, kInf, -1, -0.0, 0, kNan, 2}));
    for (DType d : Floats())
      arg(op, "nans", d, {2, 8}, 1, kS32,
          Values({1, 2, 3, kNan, 4, kNan, 5, kInf, kNan, 0, 1, kNan, -kInf, -0.0, 0, kNan}));
    for (DType d : Integers()) arg(op, "bits", d, {4, 8}, 1, kS32, Bits());
  }
  return rows;
}

}  // namespace tessera::ir::samples
