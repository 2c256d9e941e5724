// Ops whose region is a computation of scalars: reduce, sort_by, scatter_by and MapComputation. The
// tests cover the computations that are recognised as known ops, the results, the scopes in which
// such ops may stand, and the errors.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "absl/strings/match.h"
#include "ir/op_def.h"
#include "ir/program_hash.h"
#include "ir/text.h"
#include "ir/transform/testing/transform_checks.h"
#include "ir/verify.h"

namespace tessera::ir {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace): helpers of tests
using V = std::vector<Value>;

Type S32(Dims shape) { return MakeType(DType::kS32, std::move(shape)); }
FunctionRef ScalarFn(const std::vector<DType>& params, const std::function<V(const V&)>& body) {
  std::vector<Type> types;
  for (DType d : params) types.push_back(MakeType(d, {}));
  return Fn(types, [&](Builder&, const V& v) { return body(v); });
}
FunctionRef Combiner(Value (*op)(Value, Value), DType d = DType::kF32) {
  return ScalarFn({d, d}, [&](const V& v) { return V{op(v[0], v[1])}; });
}
// Returns the wire names of the ops of `f`, without constants.
std::string OpsOf(const Function& f) {
  std::string out;
  for (const Op& op : f.ops)
    if (op.def != &ops::kConstant)
      absl::StrAppend(&out, out.empty() ? "" : " ", ToAbsl(op.def->name));
  return out;
}
auto Refused(const char* text) { return StatusIs(absl::StatusCode::kInvalidArgument, text); }

// ---- Computations for which there is an op. ----

// A reduction by a known op is emitted as the op for it, and an initial value that changes nothing
// is left out.
TEST(Reduce, AKnownMonoidBecomesItsOp) {
  const auto ops_of = [](const FunctionRef& computation, DType d, std::optional<double> init) {
    return OpsOf(*Fn({MakeType(d, {3, 4}), MakeType(d, {})}, [&](Builder& b, const V& v) {
      return Reduce({v[0]}, {init ? Constant(b, d, *init) : v[1]}, computation, {0});
    }));
  };
  const DType f = DType::kF32, i = DType::kS32;
  EXPECT_EQ(ops_of(Combiner(Add), f, {}), "reduce_sum broadcast_in_dim add");
  EXPECT_EQ(ops_of(Combiner(Mul), f, {}), "reduce_prod broadcast_in_dim multiply");
  EXPECT_EQ(ops_of(Combiner(Max), f, {}), "reduce_max broadcast_in_dim maximum");
  EXPECT_EQ(ops_of(Combiner(Min), f, {}), "reduce_min broadcast_in_dim minimum");
  EXPECT_EQ(ops_of(Combiner(And, i), i, {}), "reduce_and broadcast_in_dim and");
  EXPECT_EQ(ops_of(Combiner(Or, i), i, {}), "reduce_or broadcast_in_dim or");
  // An initial value that changes nothing is left out.
  EXPECT_EQ(ops_of(Combiner(Add), f, 0), "reduce_sum");
  EXPECT_EQ(ops_of(Combiner(Add), f, 1), "reduce_sum broadcast_in_dim add");
  EXPECT_EQ(ops_of(Combiner(Mul), f, 1), "reduce_prod");
  EXPECT_EQ(ops_of(Combiner(Max), f, -INFINITY), "reduce_max");
  EXPECT_EQ(ops_of(Combiner(Min, i), i, 2147483647), "reduce_min");
  EXPECT_EQ(ops_of(Combiner(And, i), i, -1), "reduce_and");
  EXPECT_EQ(ops_of(Combiner(Or, i), i, 0), "reduce_or");
  // Other computations are not recognised, even if they begin in the same way.
  EXPECT_EQ(ops_of(Combiner(Xor, i), i, {}), "reduce");
  EXPECT_EQ(ops_of(Combiner(Sub), f, {}), "reduce");
  EXPECT_EQ(ops_of(ScalarFn({f, f}, [](const V& v) { return V{v[0] + v[0]}; }), f, {}), "reduce");
  EXPECT_EQ(ops_of(ScalarFn({f, f}, [](const V& v) { return V{-(v[0] + v[1])}; }), f, {}),
            "reduce");
  EXPECT_EQ(ops_of(ScalarFn({f, f}, [](const V& v) { return V{v[0]}; }), f, {}), "reduce");
}

TEST(Reduce, AKnownMonoidUsesTheInitialValue) {
  const FunctionRef f = Fn({F32({2, 3}), F32({})}, [](Builder&, const V& v) {
    return Reduce({v[0]}, {v[1]}, Combiner(Add), {1});
  });
  EXPECT_THAT(Eval1(*f, {Array::Of(DType::kF32, {2, 3}, {1, 2, 3, 4, 5, 6}),
                         Array::Scalar(DType::kF32, 10)}),
              ::testing::ElementsAre(16, 25));
}

ScatterDimensionNumbers VectorScatterDims() {
  return {
      .update_window_dims = {}, .inserted_window_dims = {0}, .scatter_dims_to_operand_dims = {0}};
}

TEST(ScatterBy, AKnownComputationBecomesItsOp) {
  const auto ops_of = [](const FunctionRef& computation) {
    return OpsOf(*Fn({F32({4}), S32({2, 1}), F32({2})}, [&](Builder&, const V& v) {
      return ScatterBy({v[0]}, v[1], {v[2]}, computation, VectorScatterDims());
    }));
  };
  const DType f = DType::kF32;
  EXPECT_EQ(ops_of(Combiner(Add)), "scatter_add");
  EXPECT_EQ(ops_of(Combiner(Mul)), "scatter_mul");
  EXPECT_EQ(ops_of(Combiner(Min)), "scatter_min");
  EXPECT_EQ(ops_of(Combiner(Max)), "scatter_max");
  EXPECT_EQ(ops_of(ScalarFn({f, f}, [](const V& v) { return V{v[1]}; })), "scatter");
  EXPECT_EQ(ops_of(ScalarFn({f, f}, [](const V& v) { return V{v[0]}; })), "scatter_by");
  EXPECT_EQ(ops_of(Combiner(Sub)), "scatter_by");
}

TEST(SortBy, OneComparisonBecomesSort) {
  const auto ops_of = [](int left, const char* direction, int right) {
    return OpsOf(*Fn({S32({2, 4}), S32({2, 4})}, [&](Builder&, const V& v) {
      return SortBy(v,
                    ScalarFn(std::vector<DType>(4, DType::kS32),
                             [&](const V& p) { return V{Compare(p[left], p[right], direction)}; }),
                    1);
    }));
  };
  EXPECT_EQ(ops_of(0, "LT", 1), "sort");
  EXPECT_EQ(ops_of(1, "GT", 0), "sort");
  EXPECT_EQ(ops_of(0, "GT", 1), "reverse reverse sort reverse reverse");
  EXPECT_EQ(ops_of(1, "LT", 0), "reverse reverse sort reverse reverse");
  EXPECT_EQ(ops_of(2, "LT", 3), "sort");
  // These comparators put the element that came later first if both are equal, or compare different
  // operands.
  EXPECT_EQ(ops_of(0, "LE", 1), "sort_by");
  EXPECT_EQ(ops_of(0, "LT", 2), "sort_by");
  EXPECT_EQ(ops_of(0, "LT", 0), "sort_by");
}

// Returns a key as lax.sort's comparator forms it, with zeros replaced by `zero` and NaNs by `nan`.
Value LaxSortKey(Value x, double zero = 0, double nan = std::numeric_limits<double>::quiet_NaN(),
                 bool zeros_last = false) {
  const auto zeros = [&](Value y) {
    return Select(Compare(x, FullLike(x, 0), "EQ"), FullLike(x, zero), y);
  };
  const auto nans = [&](Value y) { return Select(Compare(x, x, "NE"), FullLike(x, nan), y); };
  return zeros_last ? zeros(nans(x)) : nans(zeros(x));
}

// The comparators that lax.sort builds become the op sort, and comparators that differ from them
// slightly do not.
TEST(SortBy, ComparatorsOfLaxSortBecomeSort) {
  const auto ops_of = [](auto less) {
    const Type x = F32({2, 4}), i = S32({2, 4});
    return OpsOf(*Fn({x, i, MakeType(DType::kBF16, {2, 4})}, [&](Builder&, const V& v) {
      return SortBy(
          v,
          ScalarFn({DType::kF32, DType::kF32, DType::kS32, DType::kS32, DType::kBF16, DType::kBF16},
                   [&](const V& p) { return V{less(p)}; }),
          1);
    }));
  };
  const auto total = [](Value a, Value b, const char* direction) {
    return CompareTotalOrder(a, b, direction);
  };
  EXPECT_EQ(ops_of([&](const V& p) { return total(LaxSortKey(p[0]), LaxSortKey(p[1]), "LT"); }),
            "sort");
  EXPECT_EQ(ops_of([&](const V& p) { return total(LaxSortKey(p[5]), LaxSortKey(p[4]), "GT"); }),
            "sort");
  EXPECT_EQ(ops_of([&](const V& p) {
              const double nan = std::numeric_limits<double>::quiet_NaN();
              return total(LaxSortKey(p[0], 0, nan, true), LaxSortKey(p[1]), "LT");
            }),
            "sort");
  EXPECT_EQ(ops_of([&](const V& p) {
              return total(LaxSortKey(Convert(p[4], DType::kF32)),
                           LaxSortKey(Convert(p[5], DType::kF32)), "LT");
            }),
            "sort");
  const auto lexicographic = [&](const V& p, const char* second, const char* equal, int key) {
    const Value a = LaxSortKey(p[0]), b = LaxSortKey(p[1]);
    return Or(total(a, b, "LT"), And(total(LaxSortKey(p[key]), LaxSortKey(p[key + 1]), equal),
                                     Compare(p[2], p[3], second)));
  };
  EXPECT_EQ(ops_of([&](const V& p) { return lexicographic(p, "LT", "EQ", 0); }), "sort");
  // These are not orders of sort: -0 before 0, NaNs before numbers or of several kinds, keys that
  // rise and fall, equality of another key, and no order at all.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::function<Value(const V&)>> others = {
      [&](const V& p) { return total(p[0], p[1], "LT"); },
      [&](const V& p) { return total(LaxSortKey(p[0]), p[1], "LT"); },
      [&](const V& p) { return total(LaxSortKey(p[0], -0.0), LaxSortKey(p[1], -0.0), "LT"); },
      [&](const V& p) { return total(LaxSortKey(p[0], 1), LaxSortKey(p[1], 1), "LT"); },
      [&](const V& p) { return total(LaxSortKey(p[0], 0, -nan), LaxSortKey(p[1], 0, -nan), "LT"); },
      [&](const V& p) { return total(LaxSortKey(p[0], 0, 3), LaxSortKey(p[1], 0, 3), "LT"); },
      [&](const V& p) { return total(LaxSortKey(p[0]), LaxSortKey(p[1]), "LE"); },
      [&](const V& p) { return total(LaxSortKey(p[0]), LaxSortKey(p[0]), "LT"); },
      [&](const V& p) { return lexicographic(p, "GT", "EQ", 0); },
      [&](const V& p) { return lexicographic(p, "LT", "LE", 0); },
      [&](const V& p) { return lexicographic(p, "LT", "EQ", 4); },
      [&](const V& p) { return Or(Compare(p[2], p[3], "LT"), Compare(p[0], p[1], "LT")); },
      [&](const V& p) {
        return Compare(Convert(p[0], DType::kS32), Convert(p[1], DType::kS32), "LT");
      },
  };
  for (size_t i = 0; i < others.size(); ++i) EXPECT_EQ(ops_of(others[i]), "sort_by") << i;
}

TEST(SortBy, KeysNeedNotBeTheFirstOperands) {
  const FunctionRef f = Fn({F32({4}), S32({4}), S32({4})}, [](Builder&, const V& v) {
    return SortBy(
        v,
        ScalarFn({DType::kF32, DType::kF32, DType::kS32, DType::kS32, DType::kS32, DType::kS32},
                 [](const V& p) {
                   return V{Or(Compare(p[4], p[5], "GT"),
                               And(Compare(p[4], p[5], "EQ"), Compare(p[2], p[3], "GT")))};
                 }),
        0);
  });
  EXPECT_THAT(OpsOf(*f), ::testing::HasSubstr(" sort "));
  const std::vector<Array> got = Eval(
      *f, {Array::Of(DType::kF32, {4}, {0, 1, 2, 3}), Array::Of(DType::kS32, {4}, {5, 6, 7, 8}),
           Array::Of(DType::kS32, {4}, {1, 2, 1, 2})});
  EXPECT_THAT(got[0].ToDoubles(), ::testing::ElementsAre(3, 1, 2, 0));
  EXPECT_THAT(got[1].ToDoubles(), ::testing::ElementsAre(8, 6, 7, 5));
  EXPECT_THAT(got[2].ToDoubles(), ::testing::ElementsAre(2, 2, 1, 1));
}

TEST(SortBy, DescendingKeepsEqualsInTheirOrder) {
  const FunctionRef f = Fn({S32({6}), S32({6})}, [](Builder&, const V& v) {
    return SortBy(v,
                  ScalarFn(std::vector<DType>(4, DType::kS32),
                           [](const V& p) { return V{Compare(p[0], p[1], "GT")}; }),
                  0);
  });
  const std::vector<Array> got = Eval(*f, {Array::Of(DType::kS32, {6}, {1, 2, 1, 3, 2, 1}),
                                           Array::Of(DType::kS32, {6}, {0, 1, 2, 3, 4, 5})});
  EXPECT_THAT(got[0].ToDoubles(), ::testing::ElementsAre(3, 2, 2, 1, 1, 1));
  EXPECT_THAT(got[1].ToDoubles(), ::testing::ElementsAre(3, 1, 4, 0, 2, 5));
}

// ---- Results. ----

// Neighbours are combined in the order of the elements. A computation that does not commute, the
// product of 2 x 2 matrices, therefore gives the right result.
TEST(Reduce, KeepsTheOrderOfTheElements) {
  const DType d = DType::kF64;
  const FunctionRef product = ScalarFn(std::vector<DType>(8, d), [](const V& v) {
    V out;
    for (const int row : {0, 2})
      for (const int column : {4, 5})
        out.push_back(v[row] * v[column] + v[row + 1] * v[column + 2]);
    return out;
  });
  const FunctionRef f = Fn(std::vector<Type>(4, F64({3, 5})), [&](Builder& b, const V& v) {
    V inits;
    for (const double one : {1, 0, 0, 1}) inits.push_back(Constant(b, d, one));
    return Reduce(v, inits, product, {0, 1});
  });
  const std::vector<Array> args = RandomArgs(f->param_types(), 7);
  std::vector<double> want = {1, 0, 0, 1};
  for (int64_t i = 0; i < 15; ++i) {
    const std::vector<double> w = want;
    const auto m = [&](int k) { return args[k].At(i); };
    want = {w[0] * m(0) + w[1] * m(2), w[0] * m(1) + w[1] * m(3), w[2] * m(0) + w[3] * m(2),
            w[2] * m(1) + w[3] * m(3)};
  }
  const std::vector<Array> got = Eval(*f, args);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(got[k].At(0), want[k], 1e-12);
  CheckDerivatives(*f, 2, 1e-5);
}

TEST(Reduce, AnEmptyReductionGivesTheInitialValue) {
  const FunctionRef f = Fn({F32({0, 2}), F32({})}, [](Builder&, const V& v) {
    return Reduce({v[0]}, {v[1]}, Combiner(Sub), {0});
  });
  EXPECT_THAT(Eval1(*f, {Array(DType::kF32, {0, 2}), Array::Scalar(DType::kF32, 7)}),
              ::testing::ElementsAre(7, 7));
}

std::vector<double> Permutation(int64_t n) {
  std::vector<double> v(n);
  std::iota(v.begin(), v.end(), 0);
  std::shuffle(v.begin(), v.end(), std::mt19937(static_cast<uint32_t>(n)));
  return v;
}

FunctionRef SortByFn(int64_t n, const std::function<Value(const V&)>& comes_first) {
  return Fn({S32({n}), S32({n})}, [&](Builder&, const V& v) {
    const DType d = DType::kS32;
    return SortBy({v[0], v[1]},
                  ScalarFn({d, d, d, d}, [&](const V& p) { return V{comes_first(p)}; }), 0);
  });
}

TEST(SortBy, IsAStableSortOfEveryLength) {
  for (int64_t n = 0; n < 70; ++n) {
    // Sorts by the last digit, descending, so that many elements are equal.
    const FunctionRef f = SortByFn(n, [](const V& v) {
      const Value ten = FullLike(v[0], 10), left = Rem(v[0], ten);
      return Compare(left, Rem(v[1], ten), "GT");
    });
    std::vector<double> keys = Permutation(n), numbers(n);
    std::iota(numbers.begin(), numbers.end(), 0);
    const std::vector<Array> got =
        Eval(*f, {Array::Of(DType::kS32, {n}, keys), Array::Of(DType::kS32, {n}, numbers)});
    std::stable_sort(numbers.begin(), numbers.end(), [&](double a, double b) {
      return static_cast<int>(keys[a]) % 10 > static_cast<int>(keys[b]) % 10;
    });
    EXPECT_EQ(got[1].ToDoubles(), numbers) << n;
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(got[0].At(i), keys[numbers[i]]) << n;
  }
}

// The sort compares more pairs than the evaluator takes in one call, and the elements of a row are
// not contiguous.
TEST(SortBy, SortsManyRowsThatAreNotContiguous) {
  const int64_t n = 3000, rows = 3;
  const FunctionRef f = Fn({S32({n, rows})}, [&](Builder&, const V& v) {
    return SortBy({v[0]},
                  ScalarFn({DType::kS32, DType::kS32},
                           [](const V& p) {
                             const Value left = -p[0];
                             return V{Compare(left, -p[1], "LT")};
                           }),
                  0);
  });
  std::vector<double> values;
  for (const double v : Permutation(n * rows)) values.push_back(v);
  const Array got = Eval(*f, {Array::Of(DType::kS32, {n, rows}, values)})[0];
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> want, have;
    for (int64_t i = 0; i < n; ++i) {
      want.push_back(values[i * rows + row]);
      have.push_back(got.At(i * rows + row));
    }
    std::sort(want.rbegin(), want.rend());
    EXPECT_EQ(have, want);
  }
}

// Whatever a comparator answers, the sort ends with the elements with which it began.
TEST(SortBy, AnInconsistentComparatorPermutesTheElements) {
  const std::function<Value(const V&)> comparators[] = {
      [](const V& v) { return Compare(v[0], v[0], "EQ"); },  // always
      [](const V& v) { return Compare(v[0], v[0], "NE"); },  // never
      [](const V& v) {                                       // at random
        const Value mixed = Mul(Xor(v[0], Mul(v[1], FullLike(v[1], 40503))), FullLike(v[0], 62089));
        return Compare(And(mixed, FullLike(mixed, 64)), FullLike(mixed, 0), "EQ");
      },
      [](const V& v) {  // rock, paper, scissors
        const Value three = FullLike(v[0], 3), left = Rem(v[0], three);
        return Compare(Rem(Add(left, FullLike(left, 1)), three), Rem(v[1], three), "EQ");
      }};
  for (const auto& comes_first : comparators) {
    for (const int64_t n : {2, 7, 64, 100}) {
      const std::vector<double> keys = Permutation(n);
      const Array in = Array::Of(DType::kS32, {n}, keys);
      const std::vector<Array> got = Eval(*SortByFn(n, comes_first), {in, in});
      EXPECT_TRUE(got[0] == got[1]);
      EXPECT_THAT(got[0].ToDoubles(), ::testing::UnorderedElementsAreArray(keys));
    }
  }
}

TEST(ScatterBy, UpdatesOfAnElementApplyInOrder) {
  const FunctionRef f = Fn({S32({4}), S32({5, 1}), S32({5})}, [](Builder&, const V& v) {
    const DType d = DType::kS32;
    return ScatterBy(
        {v[0]}, v[1], {v[2]},
        ScalarFn({d, d}, [](const V& p) { return V{p[0] * FullLike(p[0], 10) + p[1]}; }),
        VectorScatterDims());
  });
  EXPECT_THAT(Eval1(*f, {Array::Of(DType::kS32, {4}, {1, 2, 3, 4}),
                         Array::Of(DType::kS32, {5, 1}, {2, 0, 2, 9, 2}),
                         Array::Of(DType::kS32, {5}, {5, 6, 7, 8, 9})}),
              ::testing::ElementsAre(16, 2, 3579, 4));
}

TEST(MapComputation, AppliesTheComputationToEachElement) {
  const DType d = DType::kF64;
  const FunctionRef computation = ScalarFn({d, d}, [](const V& v) {
    const Value more = Compare(v[0], v[1], "GT");
    return V{Select(more, Sin(v[0]), v[1] * FullLike(v[1], 2)), FullLike(v[0], 7)};
  });
  const FunctionRef f = Fn({F64({2, 3}), F64({2, 3})}, [&](Builder&, const V& v) {
    return MapComputation(computation, {v[0], v[1]});
  });
  const std::vector<Array> args = RandomArgs(f->param_types(), 3);
  const std::vector<Array> got = Eval(*f, args);
  for (int64_t i = 0; i < 6; ++i) {
    const double x = args[0].At(i), y = args[1].At(i);
    EXPECT_EQ(got[0].At(i), x > y ? std::sin(x) : 2 * y);
    EXPECT_EQ(got[1].At(i), 7);
  }
  const auto map = [&](std::vector<Type> types) {
    return TryFn({}, types, [&](Builder&, const V& v) { return MapComputation(computation, v); });
  };
  EXPECT_THAT(map({F64({2})}), Refused("map: the computation has 2 params; got 1 operands"));
  EXPECT_THAT(map({F64({2}), F64({3})}), Refused("map: operand 1 is f64[3]; expected f64[2]"));
  EXPECT_THAT(map({F64({2}), F32({2})}), Refused("map: operand 1 is f32[2]; expected f64[2]"));
}

// If the op stands on a mesh, the constants of a computation vary, and are sharded, like its
// elements.
TEST(MapComputation, ConstantsVaryAndAreShardedLikeTheElements) {
  const DType d = DType::kF32;
  const FunctionRef twice = ScalarFn({d}, [](const V& v) { return V{v[0] * FullLike(v[0], 2)}; });
  Fn(MeshScope({{"i", 2, AxisType::kManual}}), {Varying(F32({4}), {"i"})},
     [&](Builder&, const V& v) {
       const V out = MapComputation(twice, {v[0]});
       EXPECT_EQ(out[0].type(), v[0].type());
       return out;
     });
  Type sharded = F32({4, 2});
  sharded.sharding = {{"x"}, {}};
  Fn(MeshScope({{"x", 2, AxisType::kExplicit}}), {sharded}, [&](Builder&, const V& v) {
    const V out = MapComputation(twice, {v[0]});
    EXPECT_EQ(out[0].type(), sharded);
    return out;
  });
}

// ---- Scopes and text forms. ----

// A tangent has the type of its primal, wherever the op stands.
TEST(Reduce, DerivativesKeepShardingsAndVaryingAxes) {
  const FunctionRef computation =
      ScalarFn({DType::kF32, DType::kF32}, [](const V& v) { return V{v[0] + v[1] + v[0] * v[1]}; });
  const auto check = [&](const Scope& scope, const Type& x, const Type& init,
                         const std::vector<int64_t>& dims) {
    const FunctionRef f = Fn(scope, {x, init}, [&](Builder&, const V& v) {
      return Reduce({v[0]}, {v[1]}, computation, dims);
    });
    for (const std::vector<bool>& active : {std::vector<bool>{true, false}, {true, true}}) {
      const JvpResult jvp = ValueOrThrow(Jvp(*f, active));
      EXPECT_EQ(jvp.fn->result_types()[1], f->result_types()[0]);
      TESSERA_EXPECT_OK(VerifyFunction(*jvp.fn));
    }
    for (const std::vector<int>& batched : {std::vector<int>{0, -1}, {-1, 0}, {1, 0}}) {
      const BatchResult batch = ValueOrThrow(Batch(*f, batched, 5));
      EXPECT_EQ(batch.fn->result_types()[0].varying, f->result_types()[0].varying);
      TESSERA_EXPECT_OK(VerifyFunction(*batch.fn));
    }
  };
  const Scope is_explicit = MeshScope({{"x", 2, AxisType::kExplicit}});
  Type sharded = F32({4, 6});
  sharded.sharding = {{"x"}, {}};
  check(is_explicit, sharded, F32({}), {1});
  check(is_explicit, sharded, F32({}), {0});
  check(MeshScope({{"i", 2, AxisType::kManual}}), Varying(F32({4, 6}), {"i"}), F32({}), {1});
}

// An op may stand on any mesh and move to another one, while its computation stands in no mesh.
TEST(Computation, AComputationHasNoMesh) {
  const FunctionRef less =
      ScalarFn({DType::kF32, DType::kF32}, [](const V& v) { return V{Compare(v[0], v[1], "LE")}; });
  const Scope on_mesh = MeshScope({{"x", 2}});
  const auto sorted = [&](Builder&, const V& v) { return SortBy({v[0]}, less, 0); };
  const Program program{kOpset, Fn(on_mesh, {F32({4})}, sorted), {}, {}};
  const std::string text = PrintProgram(program);
  EXPECT_FALSE(absl::StrContains(text, "mesh ()")) << text;
  const absl::StatusOr<Program> back = ParseProgram(text);
  ASSERT_TRUE(back.ok()) << back.status() << text;
  EXPECT_EQ(StructuralHash(*back), StructuralHash(program));
  EXPECT_TRUE(back->entry->ops[0].regions[0]->scope == Scope{});

  const Scope manual = MeshScope({{"x", 2, AxisType::kManual}});
  const FunctionRef moved =
      ValueOrThrow(Rescope(*program.entry, manual, {Varying(F32({4}), {"x"})}));
  EXPECT_EQ(moved->ops[0].regions[0], less);
  EXPECT_EQ(moved->result_types()[0], Varying(F32({4}), {"x"}));
  TESSERA_EXPECT_OK(VerifyFunction(*moved));

  const FunctionRef there = ValueOrThrow(Rescope(*less, on_mesh, less->param_types()));
  EXPECT_THAT(
      TryFn(on_mesh, {F32({4})}, [&](Builder&, const V& v) { return SortBy({v[0]}, there, 0); }),
      Refused("sort: the computation stands in mesh"));
}

// Each way in which operands, attributes and computation may disagree is refused, with a text that
// names op and fault.
TEST(Computation, ErrorsNameOpAndFault) {
  const DType f = DType::kF32, i = DType::kS32;
  const auto reduce = [](const std::vector<Type>& types, const FunctionRef& computation,
                         std::vector<int64_t> dims = {0}) {
    return TryFn({}, types, [&](Builder& b, const V& v) {
      return b.Emit(ops::kReduce, v, {{"dimensions", dims}}, {computation});
    });
  };
  const std::vector<Type> good = {F32({4}), F32({})};
  EXPECT_THAT(reduce(good, Combiner(Sub)).status(), IsOk());
  EXPECT_THAT(reduce({}, Combiner(Sub)),
              Refused("reduce: takes one operand or more and as many initial"));
  EXPECT_THAT(reduce({F32({4})}, Combiner(Sub)), Refused("got 1 operands"));
  EXPECT_THAT(reduce({F32({4}), F32({4})}, Combiner(Sub)),
              Refused("found non-scalar initial value"));
  EXPECT_THAT(reduce({F32({4}), F64({})}, Combiner(Sub)),
              Refused("operand dtypes should match corresponding initial value dtypes"));
  EXPECT_THAT(reduce({F32({4}), F32({5}), F32({}), F32({})}, Combiner(Sub)),
              Refused("operand 1 is f32[5], operand 0 is f32[4]; expected equal shapes"));
  EXPECT_THAT(reduce(good, Combiner(Sub), {1}), Refused("reduce: dimensions"));
  EXPECT_THAT(reduce(good, Combiner(Sub), {0, 0}), Refused("reduce: dimensions"));
  EXPECT_THAT(reduce(good, ScalarFn({f}, [](const V& v) { return v; })),
              Refused("reduce: the computation has 1 params; expected 2"));
  EXPECT_THAT(reduce(good, ScalarFn({f, f}, [](const V& v) { return v; })),
              Refused("the computation has 2 results; expected 1"));
  EXPECT_THAT(reduce(good, ScalarFn({f, i}, [](const V& v) { return V{v[0]}; })),
              Refused("param 1 of the computation is s32[]; expected f32[]"));
  EXPECT_THAT(
      reduce(good, ScalarFn({f, f}, [](const V& v) { return V{Compare(v[0], v[1], "LT")}; })),
      Refused("result 0 of the computation is bool[]; expected f32[]"));
  EXPECT_THAT(reduce(good, Fn({F32({2}), F32({})}, [](Builder&, const V& v) { return V{v[1]}; })),
              Refused("param 0 of the computation is f32[2]; expected f32[]"));
  // Values inside must be scalars too, so that the cost of one combination is known.
  EXPECT_THAT(reduce(good, ScalarFn({f, f},
                                    [](const V& v) {
                                      return V{ReduceSum(BroadcastInDim(v[0], {1 << 20}, {}), {0})};
                                    })),
              Refused("a value of the computation is f32[1048576]; expected scalars only"));
  const FunctionRef wide = Fn({F32({})}, [](Builder&, const V& v) {
    return V{ReduceSum(BroadcastInDim(v[0], {8}, {}), {0})};
  });
  EXPECT_THAT(
      reduce(good,
             ScalarFn({f, f}, [&](const V& v) { return Call(v[0].builder(), wide, {v[0]}); })),
      Refused("a value of the computation is f32[8]"));
  EXPECT_THAT(TryFn({}, good,
                    [&](Builder& b, const V& v) {
                      return b.Emit(ops::kReduce, v, {{"dimensions", std::vector<int64_t>{0}}}, {});
                    }),
              Refused("reduce: takes 1 regions, got 0"));

  const auto sort = [&](const FunctionRef& comparator) {
    return TryFn({}, {F32({4})},
                 [&](Builder&, const V& v) { return SortBy({v[0]}, comparator, 0); });
  };
  EXPECT_THAT(sort(Combiner(Sub)),
              Refused("sort: result 0 of the computation is f32[]; expected bool[]"));
  EXPECT_THAT(sort(ScalarFn({f}, [](const V& v) { return v; })),
              Refused("sort: the computation has 1 params; expected 2"));

  const auto scatter = [&](const std::vector<Type>& types, const FunctionRef& computation) {
    return TryFn({}, types, [&](Builder& b, const V& v) {
      const FunctionRef known = Fn({F32({4}), S32({2, 1}), F32({2})}, [&](Builder&, const V& w) {
        return ScatterBy({w[0]}, w[1], {w[2]}, Combiner(Sub), VectorScatterDims());
      });
      return b.Emit(ops::kScatterBy, v, known->ops[0].attrs, {computation});
    });
  };
  const Type x = F32({4}), at = S32({2, 1}), u = F32({2});
  EXPECT_THAT(scatter({x, at, u}, Combiner(Sub)).status(), IsOk());
  EXPECT_THAT(scatter({x, at}, Combiner(Sub)),
              Refused("scatter_apply: takes operands, the indices and"));
  EXPECT_THAT(scatter({x, F32({5}), at, u, u}, Combiner(Sub)),
              Refused("operand 1 is f32[5] with updates f32[2], operand 0 is f32[4]"));
  EXPECT_THAT(scatter({x, F32({2, 1}), u}, Combiner(Sub)), Refused("indices are f32[2,1]"));
  EXPECT_THAT(scatter({x, at, F64({2})}, Combiner(Sub)), Refused("updates are f64[2]"));
  EXPECT_THAT(scatter({x, at, u}, Combiner(Sub, DType::kF64)),
              Refused("param 0 of the computation is f64[]; expected f32[]"));
}

// scatter_by has no derivative and says so, as JAX does for scatter_apply.
TEST(ScatterBy, HasNoDerivative) {
  const FunctionRef f = Fn({F64({4}), S32({2, 1}), F64({2})}, [](Builder&, const V& v) {
    return ScatterBy({v[0]}, v[1], {v[2]}, Combiner(Sub, DType::kF64), VectorScatterDims());
  });
  EXPECT_THAT(Jvp(*f, {true, false, false}),
              ReasonIs("NOT_IMPLEMENTED", "Differentiation rule for 'scatter_apply'"));
}

}  // namespace
}  // namespace tessera::ir
