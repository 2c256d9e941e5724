// Tests of scan, while_loop, fori_loop, cond, switch_, associative_scan and lax::map: values,
// gradients and errors. Traced functions run on the reference evaluator.
#include "client/transform/control_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "client/testing/evaluated.h"
#include "ir/op_def.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::Pointwise;
using testing::Values;
using testing::Vec;

TEST(ScanTest, ReturnsTheLastCarryAndTheStackedResults) {
  const auto f = [](Array xs, Array scale) {
    return scan(
        [&](Array c, Array x) {
          const Array next = c + scale * x;  // captures scale
          return std::make_pair(next, next * 2);
        },
        sum(xs) * 0, xs);
  };
  const auto out = Evaluated(f, Vec({1, 2, 3}), Host({10}, {}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(60));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(20, 60, 120));
}

TEST(ScanTest, GradientOfAProductByScanIsThatOfThePower) {
  const auto f = [](Array x) {
    return grad([](Array w) {
      return scan([&](Array c, Array) { return std::make_pair(c * w, std::tuple<>()); }, w * 0 + 1,
                  zeros({4}))
          .first;
    })(x);
  };
  EXPECT_THAT(Values(f, Host({3}, {})), ElementsAre(108));  // the derivative of w^4 is 4 w^3
}

// Covers every number of unrolled steps, also numbers that do not divide the number of steps.
TEST(ScanTest, UnrollChangesNoValueAndNoGradient) {
  const auto with = [](Unroll unroll, bool reverse) {
    return [=](Array w, Array xs) {
      const auto run = [&](Array v) {
        return scan(
            [&](Array c, Array x) {
              const Array next = c * v + x;
              return std::pair(next, next * x);
            },
            zeros({}), xs, {.reverse = reverse, .unroll = unroll});
      };
      const auto total = [&](Array v) {
        const auto [c, ys] = run(v);
        return c + sum(ys * ys);
      };
      const auto [c, ys] = run(w);
      return std::tuple(c, ys, grad(total)(w));
    };
  };
  const ir::Array w = Host({0.5}, {}), xs = Vec({1, 2, 3, 4, 5});
  for (const bool reverse : {false, true}) {
    const auto want = Evaluated(with(1, reverse), w, xs);
    for (const Unroll& unroll :
         {Unroll(2), Unroll(3), Unroll(5), Unroll(7), Unroll(0), Unroll(true)}) {
      const auto got = Evaluated(with(unroll, reverse), w, xs);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_EQ(got[i].ToDoubles(), want[i].ToDoubles()) << unroll.steps << ", " << reverse;
    }
  }
  // Unrolling all steps leaves no loop.
  const auto loops = [&](Unroll unroll) {
    const auto traced = trace(with(unroll, false), abstract({}), abstract({5}));
    int n = 0;
    for (const ir::Op& op : traced.fn()->ops) n += op.def->name == "scan";
    return n;
  };
  EXPECT_EQ(loops(true), 0);
  EXPECT_GT(loops(2), 0);
  const Error e = ErrorOf([&] { trace(with(-1, false), abstract({}), abstract({5})); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), HasSubstr("non-negative `int`, got -1"));
}

// Computes the square root by Newton's method, until the value no longer changes.
Array NewtonSqrt(const Array& x) {
  const auto still_changes = [&](const std::pair<Array, Array>& c) {
    return lax::gt(abs(c.first - c.second), 1e-6 * x);
  };
  const auto step = [&](const std::pair<Array, Array>& c) {
    return std::pair(0.5 * (c.first + x / c.first), c.first);
  };
  return while_loop(still_changes, step, std::pair(x, x * 2)).first;
}

TEST(WhileTest, StopsWhenTheSquareRootHasConverged) {
  EXPECT_NEAR(Values([](Array x) { return NewtonSqrt(x); }, Host({9}, {}))[0], 3, 1e-5);
  const auto batched = [](Array x) { return vmap(NewtonSqrt)(x); };
  const auto roots = Values(batched, Vec({1, 4, 10000}));
  EXPECT_THAT(roots, ElementsAre(DoubleNear(1, 1e-4), DoubleNear(2, 1e-4), DoubleNear(100, 1e-2)));
}

TEST(WhileTest, HasForwardDerivativesOnly) {
  const auto tangent = [](Array x) {
    return jvp(NewtonSqrt, std::tuple(x), std::tuple(ones_like(x))).second;
  };
  EXPECT_NEAR(Values(tangent, Host({4}, {}))[0], 0.25, 1e-3);
  const Error e = ErrorOf([] { trace([](Array x) { return grad(NewtonSqrt)(x); }, abstract({})); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), HasSubstr("Reverse-mode differentiation does not work for lax.while_loop"));
  EXPECT_THAT(e.what(), HasSubstr("control_flow_test.cc:"));
}

TEST(WhileTest, RefusesAPredicateOrCarryOfAnotherType) {
  const auto same = [](Array x) { return x; };
  const Error pred =
      ErrorOf([&] { trace([&](Array x) { return while_loop(same, same, x); }, abstract({3})); });
  EXPECT_EQ(pred.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(pred.what(), HasSubstr("cond_fun must return a boolean scalar, but got output type"));
  const Error carry = ErrorOf([&] {
    trace(
        [&](Array x) {
          return while_loop([](Array c) { return lax::gt(sum(c), 0.0); },
                            [](Array c) { return c.astype(kS32); }, x);
        },
        abstract({3}));
  });
  EXPECT_THAT(carry.what(),
              HasSubstr("while_loop body function carry input and carry output must have equal"));
  EXPECT_THAT(carry.what(), HasSubstr("init_val has type f32[3] but the corresponding output"));
}

TEST(ForiTest, ComputesValuesAndGradients) {
  const auto power = [](Array x, Array n) {
    return fori_loop(
        0, n, [&](Array, Array c) { return c * x; }, x * 0 + 1);
  };
  EXPECT_THAT(Evaluated(power, Host({3}, {}), ir::Array::Of(kS32, {}, {4}))[0].ToDoubles(),
              ElementsAre(81));
  const auto gradient = [](Array x) {
    return grad([](Array w) {
      return fori_loop(
          1, 4, [&](Array i, Array c) { return c * w + i.astype(kF32); }, w * 0);
    })(x);
  };
  // The value is ((0 w + 1) w + 2) w + 3, so the derivative is 2 w + 2.
  EXPECT_THAT(Values(gradient, Host({5}, {})), ElementsAre(12));
  EXPECT_THAT(Values(
                  [](Array x) {
                    return fori_loop(
                        3, 3, [](Array, Array c) { return c; }, x);
                  },
                  Host({5}, {})),
              ElementsAre(5));
}

TEST(ForiTest, RefusesBoundsThatAreNoS32Scalars) {
  const auto error = [](const std::function<Array(Array)>& f) {
    return std::string(ErrorOf([&] { trace(f, abstract({2})); }).what());
  };
  const auto same = [](Array, Array c) { return c; };
  EXPECT_THAT(error([&](Array x) { return fori_loop(0.5, 3, same, x); }),
              HasSubstr("a bound must be an integer scalar, got 0.5"));
  EXPECT_THAT(error([&](Array x) { return fori_loop(0, x, same, x); }),
              HasSubstr("a bound must be an integer scalar, got f32[2]"));
  EXPECT_THAT(error([&](Array x) { return fori_loop(0, int64_t{1} << 40, same, x); }),
              HasSubstr("beyond what an s32 holds"));
}

TEST(CondTest, RunsOneFunctionOnTreesAndCaptures) {
  const auto f = [](Array x, Array scale) {
    const auto r = cond(
        lax::gt(sum(x), 0.0),
        [&](const std::pair<Array, Array>& p) { return std::pair(p.first * scale, p.second); },
        [&](const std::pair<Array, Array>& p) { return std::pair(p.second, p.first - scale); },
        std::pair(x, x + 1));
    return r.first * 10 + r.second;
  };
  EXPECT_THAT(Evaluated(f, Vec({1, 2}), Host({3}, {}))[0].ToDoubles(), ElementsAre(32, 63));
  EXPECT_THAT(Evaluated(f, Vec({-1, -2}), Host({3}, {}))[0].ToDoubles(), ElementsAre(-4, -15));
  const auto always = [](Array x) {
    return cond(
        true, [&] { return x + 1; }, [&] { return x; });
  };
  EXPECT_THAT(Values(always, Vec({1, 2})), ElementsAre(2, 3));
}

TEST(CondTest, GradientIsThatOfTheSelectedFunction) {
  const auto f = [](Array x) {
    return grad([](Array v) {
      return cond(
          lax::gt(v, 0.0), [](Array y) { return y * y; }, [](Array y) { return exp(y) * 3; }, v);
    })(x);
  };
  EXPECT_THAT(Values(f, Host({4}, {})), ElementsAre(8));
  EXPECT_NEAR(Values(f, Host({-1}, {}))[0], 3 * std::exp(-1), 1e-6);
  // Under vmap each element of the batch takes its own branch.
  const auto batched = [&](Array x) { return vmap(f)(x); };
  EXPECT_THAT(Values(batched, Vec({4, -1})),
              ElementsAre(DoubleNear(8, 1e-6), DoubleNear(3 * std::exp(-1), 1e-6)));
}

TEST(CondTest, RefusesResultsThatDiffer) {
  const Error e = ErrorOf([] {
    trace(
        [](Array x) {
          return cond(
              lax::gt(sum(x), 0.0), [](Array y) { return y; }, [](Array y) { return sum(y); }, x);
        },
        abstract({3}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("cond branches must have equal output types but they differ:"));
  EXPECT_THAT(e.what(), HasSubstr("result has type f32[] in branch 0 and f32[3] in branch 1"));
  const Error vector = ErrorOf([] {
    trace(
        [](Array x) {
          return cond(
              lax::gt(x, 0.0), [](Array y) { return y; }, [](Array y) { return -y; }, x);
        },
        abstract({3}));
  });
  EXPECT_THAT(vector.what(), HasSubstr("cond: Pred must be a scalar, got bool[3]"));
}

TEST(SwitchTest, ClampsItsIndex) {
  const auto f = [](Array i, Array x) {
    return switch_(i,
                   std::tuple([](Array y) { return y; }, [](Array y) { return y * 10; },
                              [&](Array y) { return y + x * 100; }),
                   x);
  };
  const auto at = [&](double i) {
    return Evaluated(f, ir::Array::Of(kS32, {}, {i}), Host({2}, {}))[0].ToDoubles()[0];
  };
  EXPECT_EQ(at(-1), 2);
  EXPECT_EQ(at(0), 2);
  EXPECT_EQ(at(1), 20);
  EXPECT_EQ(at(2), 202);
  EXPECT_EQ(at(7), 202);
  const Error e = ErrorOf([&] { trace([&](Array x) { return f(x, x); }, abstract({})); });
  EXPECT_THAT(e.what(), HasSubstr("Index type must be an integer, of a scalar, got f32[]"));
}

TEST(ScanTest, RefusesACarryOfAnotherType) {
  const Error e = ErrorOf([] {
    trace(
        [](Array xs) {
          return scan([](Array c, Array x) { return std::make_pair(c * x, x); }, xs[0].astype(kS32),
                      xs)
              .first;
        },
        abstract({3}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("carry has type s32[] but the corresponding output"));
  const Error length = ErrorOf([] {
    trace(
        [](Array x) {
          return scan([](Array c, NoneType) { return std::make_pair(c, c); }, x, None).first;
        },
        abstract({3}));
  });
  EXPECT_THAT(length.what(), HasSubstr("must be given as length"));
}

// ---- associative_scan, lax::map. ----

ir::Array OneTo(int64_t n) {
  std::vector<double> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = static_cast<double>(i + 1);
  return Vec(numbers);
}

TEST(AssociativeScanTest, ScansEveryLengthInBothDirections) {
  for (int64_t n = 0; n < 20; ++n) {
    const ir::Array x = OneTo(n);
    const auto scanned = [&](bool reverse) {
      return Values(
          [reverse](Array x) {
            return associative_scan([](Array a, Array b) { return a + b; }, x, reverse);
          },
          x);
    };
    std::vector<double> front(n), back(n);
    for (int64_t i = 0; i < n; ++i) {
      front[i] = static_cast<double>((i + 1) * (i + 2)) / 2;
      back[i] = static_cast<double>(n * (n + 1) - i * (i + 1)) / 2;
    }
    EXPECT_EQ(scanned(false), front) << n;
    EXPECT_EQ(scanned(true), back) << n;
  }
}

TEST(AssociativeScanTest, KeepsTheOrderOfOperandsThatDoNotCommute) {
  const auto f = [](Array m) {
    return associative_scan([](Array a, Array b) { return matmul(a, b); }, m);
  };
  const ir::Array m = Host({1, 2, 0, 1, 1, 0, 3, 1, 2, 1, 1, 1}, {3, 2, 2});
  EXPECT_THAT(Values(f, m), ElementsAre(1, 2, 0, 1, 7, 2, 3, 1, 16, 9, 7, 4));
}

// Computes a linear recurrence, x[t] = a[t] x[t - 1] + b[t], as an associative_scan of pairs. The
// values and the gradient must equal those of the recurrence computed by scan.
TEST(AssociativeScanTest, ScansTreesAndHasTheGradientOfScan) {
  const auto recurrence = [](Array a, Array b) {
    const auto fn = [](const std::pair<Array, Array>& l, const std::pair<Array, Array>& r) {
      return std::pair(l.first * r.first, r.first * l.second + r.second);
    };
    return associative_scan(fn, std::pair(a, b)).second;
  };
  const auto by_scan = [](Array a, Array b) {
    const auto step = [](const Array& x, const std::pair<Array, Array>& ab) {
      const Array next = ab.first * x + ab.second;
      return std::pair(next, next);
    };
    return scan(step, 0 * a[0], std::pair(a, b)).second;
  };
  const ir::Array a = Vec({2, .5, 3, -1, 1}), b = Vec({1, 2, 3, 4, 5});
  EXPECT_EQ(Values(recurrence, a, b), Values(by_scan, a, b));
  const auto gradient = [](auto f) {
    return
        [f](Array a, Array b) { return grad([f, b](Array a) { return sum(square(f(a, b))); })(a); };
  };
  EXPECT_THAT(Values(gradient(recurrence), a, b),
              Pointwise(DoubleNear(1e-3), Values(gradient(by_scan), a, b)));
}

TEST(AssociativeScanTest, ScansAlongTheLastAxisAndUnderVmap) {
  const auto sums = [](Array x) {
    return associative_scan([](Array a, Array b) { return a + b; }, x, false, -1);
  };
  const ir::Array x = Host({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_THAT(Values(sums, x), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_THAT(Values([&](Array x) { return vmap(sums)(x); }, x), ElementsAre(1, 3, 6, 4, 9, 15));
}

TEST(AssociativeScanTest, RefusesWrongAxesAndSizes) {
  const auto add = [](const std::pair<Array, Array>& a, const std::pair<Array, Array>& b) {
    return std::pair(a.first + b.first, a.second + b.second);
  };
  const auto error = [&](const Array& x, const Array& y, int axis) {
    return ErrorOf([&] {
      trace([&](Array x, Array y) { return associative_scan(add, std::pair(x, y), false, axis); },
            x, y);
    });
  };
  EXPECT_THAT(error(abstract({3}), abstract({4}), 0).what(),
              HasSubstr("must have the same first dimension"));
  EXPECT_THAT(error(abstract({3}), abstract({3}), 1).what(),
              AllOf(HasSubstr("axis 1 is out of bounds"), HasSubstr("elems[0]")));
}

TEST(MapTest, AppliesTheFunctionToEachElement) {
  const auto f = [](Array xs, Array ys) {
    const auto each = [](const std::map<std::string, Array>& x) {
      return std::pair(dot(x.at("a"), x.at("a")), x.at("b") + 1);
    };
    return lax::map(each, std::map<std::string, Array>{{"a", xs}, {"b", ys}});
  };
  const auto out = Evaluated(f, Host({1, 2, 3, 4, 5, 6}, {3, 2}), Vec({7, 8, 9}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(5, 25, 61));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(8, 9, 10));
}

TEST(MapTest, TheBatchSizeChangesNoValue) {
  const ir::Array x = Host({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2});
  const auto with = [&](int64_t batch_size) {
    return Evaluated(
        [batch_size](Array x) {
          return lax::map([](Array row) { return row * row[0]; }, x, {.batch_size = batch_size});
        },
        x)[0];
  };
  const ir::Array unbatched = with(-1);
  EXPECT_EQ(unbatched.shape(), (Dims{5, 2}));
  for (const int64_t size : {0, 1, 2, 3, 5, 9}) {
    EXPECT_EQ(with(size).ToDoubles(), unbatched.ToDoubles()) << size;
    EXPECT_EQ(with(size).shape(), unbatched.shape()) << size;
  }
}

TEST(MapTest, RefusesScalarsAndNegativeBatchSizes) {
  const auto error = [](const Array& x, int64_t batch_size) {
    return ErrorOf([&] {
      trace(
          [&](Array x) {
            return lax::map([](Array v) { return v; }, x, {.batch_size = batch_size});
          },
          x);
    });
  };
  EXPECT_THAT(error(abstract({}), 2).what(), HasSubstr("no leading axis"));
  EXPECT_THAT(error(abstract({3}), -2).what(), HasSubstr("batch_size is -2"));
}

}  // namespace
}  // namespace tessera
