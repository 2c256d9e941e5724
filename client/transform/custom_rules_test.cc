// Tests of functions with derivative rules: custom_jvp, custom_vjp, custom_linear_solve,
// custom_root. Each rule differs visibly from the plain derivative. Traced functions run on the
// reference evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/testing/evaluated.h"
#include "client/transform.h"
#include "ir/transform/transform.h"

namespace tessera {

struct Point {
  Array x, y;
};
TESSERA_TREE(Point, x, y)

namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::Pointwise;
using testing::Values;
using testing::Vec;

// ---- custom_jvp. --------------------------------------------------------------------------------

// log(1 + exp(x)). The plain derivative is inf / inf if exp overflows.
const auto kNaiveLog1pExp = [](const Array& x) { return lax::log1p(lax::exp(x)); };
Array Log1pExp(const Array& x) {
  return custom_jvp(kNaiveLog1pExp, [](const auto& primals, const auto& tangents) {
    const Array primal = std::get<0>(primals), dx = std::get<0>(tangents);
    return std::pair(kNaiveLog1pExp(primal), lax::logistic(primal) * dx);
  })(x);
}

TEST(CustomJvpTest, TheRuleGivesAStableGradient) {
  const auto slope = [](auto f) {
    return [f](Array x) { return grad([f](Array y) { return sum(f(y)); })(x); };
  };
  EXPECT_TRUE(std::isnan(Values(slope(kNaiveLog1pExp), Vec({100}))[0]));
  EXPECT_THAT(Values(slope(Log1pExp), Vec({-100, 0, 100})),
              Pointwise(DoubleNear(1e-6), {0., 0.5, 1.}));
  EXPECT_THAT(Values([](Array x) { return Log1pExp(x); }, Vec({0})),
              Pointwise(DoubleNear(1e-6), {std::log(2.)}));
}

TEST(CustomJvpTest, SecondDerivativesGoThroughTheRule) {
  const auto second = [](Array x) {
    return grad([](Array y) { return grad([](Array z) { return Log1pExp(z); })(y); })(x);
  };
  EXPECT_THAT(Values(second, Host({0}, {})), Pointwise(DoubleNear(1e-6), {0.25}));
}

// Returns x * n and y, where n is static. The rule gives ten times the derivative of x * n.
Point Scaled(const Point& p, int n) {
  return custom_jvp(
      [](const Point& q, int by) {
        return Point{q.x * by, q.y};
      },
      [](const std::tuple<Point, int>& primals, const std::tuple<Point, int>& tangents) {
        const auto& [q, by] = primals;
        const auto& [dq, same] = tangents;
        EXPECT_EQ(by, same);
        return std::pair(Point{q.x * by, q.y}, Point{dq.x * (10 * by), dq.y});
      })(p, n);
}

TEST(CustomJvpTest, ArgumentsAndResultsMayBeTrees) {
  const auto f = [](Array x, Array y) {
    const auto loss = [](const Point& p) {
      const Point q = Scaled(p, 3);
      return sum(q.x) + sum(q.y * q.y);
    };
    const Point g = grad(loss)(Point{x, y});
    return std::pair(g.x, g.y);
  };
  const auto out = Evaluated(f, Vec({1, 2}), Vec({3, 4}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(30, 30));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(6, 8));
}

TEST(CustomJvpTest, TangentsOfIntegersAreZerosAndAreIgnoredAsResults) {
  const auto f = [](Array x, Array n) {
    const auto power = custom_jvp(
        [](const Array& a, const Array& k) { return std::pair(a * k.astype(kF32), k + 1); },
        [](const auto& primals, const auto& tangents) {
          const auto& [a, k] = primals;
          const auto& [da, dk] = tangents;
          return std::pair(std::pair(a * k.astype(kF32), k + 1),
                           std::pair(da * 7 + dk.astype(kF32), dk));
        });
    return grad([&](Array y) { return sum(power(y, n).first); })(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 2}), Vec({3, 4}, kS32)), ElementsAre(7, 7));
}

TEST(CustomJvpTest, WorksUnderVmapScanCheckpointAndShardMap) {
  const std::vector<double> want = {1 / (1 + std::exp(-1.)), 1 / (1 + std::exp(-2.))};
  const auto vmap_of_grad = [](Array x) { return vmap(grad(Log1pExp))(x); };
  EXPECT_THAT(Values(vmap_of_grad, Vec({1, 2})), Pointwise(DoubleNear(1e-6), want));
  const auto grad_of_vmap = [](Array x) {
    return grad([](Array y) { return sum(vmap(Log1pExp)(y)); })(x);
  };
  EXPECT_THAT(Values(grad_of_vmap, Vec({1, 2})), Pointwise(DoubleNear(1e-6), want));
  const auto scanned = [](Array x) {
    return grad([](Array y) {
      const auto step = [](Array c, Array v) { return std::pair(c + Log1pExp(v), None); };
      return scan(step, sum(y) * 0, y).first;
    })(x);
  };
  EXPECT_THAT(Values(scanned, Vec({1, 2})), Pointwise(DoubleNear(1e-6), want));
  const auto checkpointed = [](Array x) {
    return grad([](Array y) { return sum(checkpoint(Log1pExp)(y)); })(x);
  };
  EXPECT_THAT(Values(checkpointed, Vec({1, 2})), Pointwise(DoubleNear(1e-6), want));
  const auto sharded = [](Array x) {
    return shard_map(
        [](Array b) { return grad([](Array c) { return lax::psum(sum(Log1pExp(c)), "i"); })(b); },
        abstract_mesh({2}, {"i"}, {AxisType::kAuto}), {P("i")}, P("i"))(x);
  };
  EXPECT_THAT(Values(sharded, Vec({1, 2})), Pointwise(DoubleNear(1e-6), want));
}

TEST(CustomJvpTest, NumberArgumentsBecomeArrays) {
  EXPECT_THAT(Values(
                  [](Array x) {
                    const auto twice = custom_jvp(
                        [](const Array& a, const Array& by) { return a * by; },
                        [](const std::tuple<Array, Array>& p, const std::tuple<Array, Array>& t) {
                          return std::pair(std::get<0>(p) * std::get<1>(p),
                                           std::get<0>(t) * std::get<1>(p));
                        });
                    return twice(x, 2.0);
                  },
                  Vec({3})),
              ElementsAre(6));
}

TEST(CustomJvpTest, RefusesDifferentiationByACapturedValue) {
  const auto f = [](Array x, Array w) {
    const auto scaled = [&](const Array& k) {
      return custom_jvp([k](const Array& a) { return a * k; },
                        [k](const auto& primals, const auto& tangents) {
                          return std::pair(std::get<0>(primals) * k, std::get<0>(tangents) * k);
                        });
    };
    const Array by_x = grad([&](Array y) { return sum(scaled(w)(y)); })(x);
    return std::pair(by_x, grad([&](Array k) { return sum(scaled(k)(x)); })(w));
  };
  const Error e = ErrorOf([&] { trace(f, abstract({2}), abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kNotImplemented);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("Detected differentiation of a custom_jvp function with "
                                        "respect to a closed-over value."),
                              HasSubstr("custom_rules_test.cc:")));
  const auto by_x = [](Array x, Array w) {
    return grad([&](Array y) {
      return sum(custom_jvp([&](const Array& a) { return a * w; },
                            [&](const auto& primals, const auto& tangents) {
                              return std::pair(std::get<0>(primals) * w,
                                               std::get<0>(tangents) * w * 2);
                            })(y));
    })(x);
  };
  EXPECT_THAT(Values(by_x, Vec({1, 2}), Vec({3, 4})), ElementsAre(6, 8));
}

template <class Rule>
Error JvpRefusal(const Rule& rule) {
  return ErrorOf([&] {
    trace([&](Array x) { return custom_jvp([](const Array& a) { return a * 2; }, rule)(x); },
          abstract({3}));
  });
}

TEST(CustomJvpTest, RefusesRulesOfOtherTypesOrStructures) {
  using T = std::tuple<Array>;
  const Error primal = JvpRefusal(
      [](const T& p, const T& t) { return std::pair(sum(std::get<0>(p)), std::get<0>(t)); });
  EXPECT_EQ(primal.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(primal.what(),
              AllOf(HasSubstr("Custom JVP rule must produce a pair where the first element "
                              "represents the primal output"),
                    HasSubstr("its primal output 0 has type f32[] while the output of the function "
                              "has type f32[3]"),
                    HasSubstr("custom_rules_test.cc:")));
  const Error tangent = JvpRefusal([](const T& p, const T& t) {
    return std::pair(std::get<0>(p) * 2, std::get<0>(t).astype(kS32));
  });
  EXPECT_THAT(
      tangent.what(),
      HasSubstr("Custom JVP rule must produce primal and tangent outputs with corresponding "
                "shapes and dtypes. Expected f32[3] (tangent type of output 0) but got "
                "s32[3]"));
  const Error structure = ErrorOf([] {
    trace(
        [](Array x) {
          return custom_jvp([](const Array& a) { return std::vector<Array>{a}; },
                            [](const T& p, const T& t) {
                              return std::pair(std::vector<Array>{std::get<0>(p)},
                                               std::vector<Array>{std::get<0>(t), std::get<0>(t)});
                            })(x)[0];
        },
        abstract({3}));
  });
  EXPECT_THAT(structure.what(),
              HasSubstr("Custom JVP rule must produce primal and tangent outputs with equal "
                        "container (pytree) structures"));
}

Array CallsItself(const Array& x) {
  return custom_jvp([](const Array& a) { return a; },
                    [](const auto& primals, const auto& tangents) {
                      return std::pair(CallsItself(std::get<0>(primals)), std::get<0>(tangents));
                    })(x);
}
TEST(CustomJvpTest, RefusesARuleThatCallsItsOwnFunction) {
  const Error e = ErrorOf([] { trace(CallsItself, abstract({3})); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), HasSubstr("a rule calls the function that it belongs to"));
  // The count of nested rules is 0 again after the error.
  EXPECT_THAT(Values([](Array x) { return Log1pExp(x) * 0; }, Vec({1})), ElementsAre(0));
}

// ---- custom_vjp. --------------------------------------------------------------------------------

Array ClipGradient(const Array& x, double limit) {
  return custom_vjp(
      [](const Array& a) { return a; }, [](const Array& a) { return std::pair(a, None); },
      [limit](NoneType, const Array& g) { return std::tuple(lax::clamp(-limit, g, limit)); })(x);
}

TEST(CustomVjpTest, ClipsAGradient) {
  const auto f = [](Array x) {
    return grad([](Array y) { return sum(ClipGradient(y, 1) * Array(y * y)); })(x);
  };
  // The gradient of clip(y) y^2 is y^2 clipped, plus 2 y^2.
  EXPECT_THAT(Values(f, Vec({0.5, 3})), ElementsAre(0.25 + 0.5, 1 + 18));
}

// Computes the sine with the residual cos(x); one argument has no gradient.
Array SineTimes(const Array& x, const Array& k) {
  return custom_vjp([](const Array& a, const Array& b) { return sin(a) * b; },
                    [](const Array& a, const Array& b) {
                      return std::pair(sin(a) * b, Point{cos(a), b});
                    },
                    [](const Point& residuals, const Array& g) {
                      return std::tuple(g * residuals.x * residuals.y, Array());
                    })(x, k);
}

TEST(CustomVjpTest, ResidualsAreTreesAndAnAbsentCotangentIsZero) {
  const auto f = [](Array x, Array k) {
    return grad<0, 1>([](Array a, Array b) { return sum(SineTimes(a, b)); })(x, k);
  };
  const auto out = Evaluated(f, Vec({0.5}), Vec({3}));
  EXPECT_THAT(out[0].ToDoubles(), Pointwise(DoubleNear(1e-6), {3 * std::cos(0.5)}));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0));
}

TEST(CustomVjpTest, SecondDerivativesGoThroughFwdAndBwd) {
  const auto second = [](Array x, Array k) {
    return grad([&](Array y) { return grad([&](Array z) { return SineTimes(z, k); })(y); })(x);
  };
  EXPECT_THAT(Values(second, Host({0.5}, {}), Host({3}, {})),
              Pointwise(DoubleNear(1e-6), {-3 * std::sin(0.5)}));
  const auto forward_over_reverse = [](Array x, Array k) {
    return jvp(grad([&](Array z) { return SineTimes(z, k); }), std::tuple(x),
               std::tuple(ones_like(x)))
        .second;
  };
  EXPECT_THAT(Values(forward_over_reverse, Host({0.5}, {}), Host({3}, {})),
              Pointwise(DoubleNear(1e-6), {-3 * std::sin(0.5)}));
}

TEST(CustomVjpTest, WorksUnderJitVmapScanCheckpointAndShardMap) {
  const std::vector<double> want = {2 * std::cos(1.), 2 * std::cos(2.)};
  const auto twice = [](Array x) { return SineTimes(x, ones_like(x) * 2); };
  const auto gradient = [](auto f) {
    return [f](Array x) { return grad([f](Array y) { return sum(f(y)); })(x); };
  };
  const auto near = [&] { return Pointwise(DoubleNear(1e-6), want); };
  EXPECT_THAT(Values(gradient(jit(twice)), Vec({1, 2})), near());
  EXPECT_THAT(Values(gradient(checkpoint(twice)), Vec({1, 2})), near());
  EXPECT_THAT(Values([&](Array x) { return vmap(grad(twice))(x); }, Vec({1, 2})), near());
  EXPECT_THAT(Values(gradient([&](Array x) { return vmap(twice)(x); }), Vec({1, 2})), near());
  const auto scanned = [&](Array x) {
    const auto step = [&](Array c, Array v) { return std::pair(c + twice(v), None); };
    return scan(step, sum(x) * 0, x).first;
  };
  EXPECT_THAT(Values(gradient(scanned), Vec({1, 2})), near());
  const auto sharded = [&](Array x) {
    return shard_map(
        [&](Array b) { return grad([&](Array c) { return lax::psum(sum(twice(c)), "i"); })(b); },
        abstract_mesh({2}, {"i"}, {AxisType::kAuto}), {P("i")}, P("i"))(x);
  };
  EXPECT_THAT(Values(sharded, Vec({1, 2})), near());
}

TEST(CustomVjpTest, AnUnmappedArgumentGetsTheSumOfTheBatchsGradients) {
  const auto f = [](Array x, Array w) {
    const auto product =
        custom_vjp([](const Array& a, const Array& b) { return a * b; },
                   [](const Array& a, const Array& b) { return std::pair(a * b, std::pair(a, b)); },
                   [](const std::pair<Array, Array>& r, const Array& g) {
                     return std::tuple(g * r.second, g * r.first);
                   });
    return grad([&](Array v) { return sum(vmap(product, {0, None})(x, v)); })(w);
  };
  EXPECT_THAT(Values(f, Vec({1, 2, 4}), Host({5}, {})), ElementsAre(7));
}

TEST(CustomVjpTest, DropRulesAndVmapRefuseForwardMode) {
  const auto traced = trace(
      [](Array x) {
        return jvp([](Array y) { return ClipGradient(y, 1); }, std::tuple(x),
                   std::tuple(ones_like(x)))
            .second;
      },
      abstract({3}));
  const absl::Status status = ir::DropRules(traced.fn()).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("can't apply forward-mode differentiation (jvp) to a custom_vjp "
                              "function."),
                    HasSubstr("custom_rules_test.cc:")));
  const Error mapped = ErrorOf([] {
    trace(
        [](Array x) {
          return vmap([](Array y) {
            return jvp([](Array z) { return ClipGradient(z, 1); }, std::tuple(y), std::tuple(y))
                .second;
          })(x);
        },
        abstract({3}));
  });
  EXPECT_THAT(mapped.what(), HasSubstr("can't apply forward-mode differentiation (jvp)"));
}

TEST(CustomVjpTest, RefusesRulesOfOtherTypesOrStructures) {
  const auto same = [](const Array& a) { return a; };
  const auto keep = [](const Array& a) { return std::pair(a, a); };
  const auto refusal = [&](const auto& fwd, const auto& bwd) {
    return ErrorOf(
        [&] { trace([&](Array x) { return custom_vjp(same, fwd, bwd)(x); }, abstract({3})); });
  };
  const auto back = [](const Array&, const Array& g) { return std::tuple(g); };
  const Error primal = refusal([](const Array& a) { return std::pair(sum(a), a); }, back);
  EXPECT_EQ(primal.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(primal.what(),
              AllOf(HasSubstr("Custom VJP fwd rule must produce a pair"),
                    HasSubstr("has type f32[] while the output of the function has type f32[3]")));
  const Error cotangent =
      refusal(keep, [](const Array&, const Array& g) { return std::tuple(sum(g)); });
  EXPECT_EQ(cotangent.kind(), ErrorKind::kValueError);
  EXPECT_THAT(
      cotangent.what(),
      AllOf(HasSubstr("Custom VJP bwd rule must produce an output with the same type as the "
                      "args tuple of the primal function, but at output[0] the bwd rule "
                      "produced an output of type f32[] corresponding to an input of type "
                      "f32[3]"),
            HasSubstr("custom_rules_test.cc:")));
  const Error structure = ErrorOf([] {
    using Arrays = std::vector<Array>;
    trace(
        [](Array x) {
          return custom_vjp([](const Arrays& a) { return a[0]; },
                            [](const Arrays& a) { return std::pair(a[0], None); },
                            [](NoneType, const Array&) { return std::tuple(Arrays{}); })(Arrays{x});
        },
        abstract({3}));
  });
  EXPECT_THAT(structure.what(),
              HasSubstr("Custom VJP bwd rule must produce an output with the same container "
                        "(pytree) structure as the args tuple of the primal function"));
}

TEST(CustomVjpTest, ACotangentMustVaryOverTheAxesOfItsArgument) {
  const Error e = ErrorOf([] {
    trace(shard_map(
              [](Array b) {
                return custom_vjp([](const Array& a) { return a; },
                                  [](const Array& a) { return std::pair(a, None); },
                                  [](NoneType, const Array& g) {
                                    return std::tuple(zeros(g.shape(), g.dtype()));
                                  })(b);
              },
              abstract_mesh({2}, {"i"}, {AxisType::kAuto}), {P("i")}, P("i")),
          abstract({4}));
  });
  EXPECT_THAT(e.what(),
              HasSubstr("This might be fixed by applying pcast(..., ('i',), to='varying')"));
}

// ---- custom_linear_solve. -----------------------------------------------------------------------

// Returns the x of a x = b, element by element, by steps that are not differentiated.
Array SolveByWhile(const Array& a, const Array& b) {
  const auto matvec = [&](const Array& x) { return a * x; };
  const auto solve = [](const auto& mv, const Array& rhs) {
    return while_loop([&](const Array& x) { return lax::gt(max(abs(rhs - mv(x))), 1e-6); },
                      [&](const Array& x) { return x + 0.5 * (rhs - mv(x)); }, zeros_like(rhs));
  };
  return lax::custom_linear_solve(matvec, b, solve, None, {.symmetric = true});
}

TEST(LinearSolveTest, IsDifferentiatedAtTheSolution) {
  EXPECT_THAT(Values(SolveByWhile, Vec({1, 2}), Vec({3, 5})),
              Pointwise(DoubleNear(1e-5), {3., 2.5}));
  const auto gradients = [](Array a, Array b) {
    return grad<0, 1>([](Array c, Array d) { return sum(SolveByWhile(c, d)); })(a, b);
  };
  const auto out = Evaluated(gradients, Vec({1, 2}), Vec({3, 5}));
  // the gradient is -x / a
  EXPECT_THAT(out[0].ToDoubles(), Pointwise(DoubleNear(1e-5), {-3., -1.25}));
  EXPECT_THAT(out[1].ToDoubles(), Pointwise(DoubleNear(1e-5), {1., 0.5}));
  const auto forward = [](Array a, Array b) {
    return jvp(SolveByWhile, std::tuple(a, b), std::tuple(ones_like(a), zeros_like(b))).second;
  };
  EXPECT_THAT(Values(forward, Vec({1, 2}), Vec({3, 5})), Pointwise(DoubleNear(1e-5), {-3., -1.25}));
}

// Solves [[p, q], [0, q]] z = b. custom_linear_solve makes the transpose of matvec.
Point SolvePair(const Array& p, const Array& q, const Point& b) {
  const auto matvec = [&](const Point& z) { return Point{p * z.x + q * z.y, q * z.y}; };
  const auto solve = [&](const auto& mv, const Point& r) {
    const Point zero = mv(Point{r.x * 0, r.y * 0});
    return Point{(r.x - r.y) / p + zero.x, r.y / q};
  };
  const auto transpose_solve = [&](const auto& vm, const Point& r) {
    const Array x = r.x / p;
    const Point z{x, r.y / q - x};
    const Point again = vm(z);  // equals r, because vm is the transpose
    return Point{z.x + (again.x - r.x), z.y + (again.y - r.y)};
  };
  return lax::custom_linear_solve(matvec, b, solve, transpose_solve);
}

TEST(LinearSolveTest, SolvesTreesWithAnAsymmetricMatvec) {
  const auto gradients = [](Array p, Array q, Array x, Array y) {
    return grad<0, 1, 2, 3>([](Array a, Array c, Array u, Array v) {
      const Point z = SolvePair(a, c, Point{u, v});
      return z.x * 2 + z.y;
    })(p, q, x, y);
  };
  // z = ((u - v) / a, v / c), for a = 2, c = 4, u = 3, v = 1.
  const auto out = Evaluated(gradients, Host({2}, {}), Host({4}, {}), Host({3}, {}), Host({1}, {}));
  // the gradient is -2 (u - v) / a^2
  EXPECT_THAT(out[0].ToDoubles(), Pointwise(DoubleNear(1e-5), {-1.}));
  EXPECT_THAT(out[1].ToDoubles(), Pointwise(DoubleNear(1e-5), {-1. / 16}));
  EXPECT_THAT(out[2].ToDoubles(), Pointwise(DoubleNear(1e-5), {1.}));
  EXPECT_THAT(out[3].ToDoubles(), Pointwise(DoubleNear(1e-5), {-1 + 0.25}));
}

TEST(LinearSolveTest, WorksUnderVmapAndInSecondDerivatives) {
  const auto mapped = [](Array a, Array b) {
    return vmap(grad([](Array c, Array d) { return sum(SolveByWhile(c, d)); }), {0, None})(a, b);
  };
  EXPECT_THAT(Values(mapped, Host({1, 2}, {2, 1}), Vec({3})),
              Pointwise(DoubleNear(1e-5), {-3., -0.75}));
  const auto second = [](Array a, Array b) {
    const auto first = [&](Array c) {
      return sum(grad([&](Array e) { return sum(SolveByWhile(e, b)); })(c));
    };
    return grad(first)(a);
  };
  EXPECT_THAT(Values(second, Vec({1, 2}), Vec({3, 5})),
              Pointwise(DoubleNear(1e-4), {6., 1.25}));  // the gradient is 2 b / a^3
}

// Finds a fixed point x = cos(x) w, which is differentiated implicitly. At the fixed point f(x, w)
// = x, so dx = (1 - f_x)^-1 f_w dw. Only dx is found by a linear solve.
Array FixedPoint(const Array& w) {
  const auto f = [](const Array& x, const Array& k) { return cos(x) * k; };
  const auto run = [f](const Array& k) {
    return while_loop([&](const Array& x) { return lax::gt(abs(f(x, k) - x), 1e-6); },
                      [&](const Array& x) { return f(x, k); }, k * 0);
  };
  return custom_jvp(
      run, [f, run](const std::tuple<Array>& primals, const std::tuple<Array>& tangents) {
        const Array k = std::get<0>(primals), x = run(k);
        const Array direct = jvp([&](Array v) { return f(x, v); }, std::tuple(k), tangents).second;
        const auto matvec = [&](const Array& t) {
          return t - jvp([&](Array v) { return f(v, k); }, std::tuple(x), std::tuple(t)).second;
        };
        const Array slope = matvec(ones_like(x));
        const auto solve = [&](const auto&, const Array& b) { return b / slope; };
        return std::pair(x, lax::custom_linear_solve(matvec, direct, solve, solve));
      })(w);
}

TEST(LinearSolveTest, AFixedPointHasItsImplicitGradient) {
  const double x = Values(FixedPoint, Host({0.8}, {}))[0];
  EXPECT_NEAR(x, 0.8 * std::cos(x), 1e-5);
  const auto slope = [](Array w) { return grad(FixedPoint)(w); };
  EXPECT_NEAR(Values(slope, Host({0.8}, {}))[0], std::cos(x) / (1 + 0.8 * std::sin(x)), 1e-4);
}

TEST(LinearSolveTest, RefusesFunctionsOfOtherTypes) {
  const auto twice = [](const Array& x) { return x * 2; };
  const auto half = [](const auto&, const Array& b) { return b / 2; };
  const auto refusal = [](const auto& matvec, const auto& solve, DType dtype = kF32) {
    return ErrorOf([&] {
      trace([&](Array b) { return lax::custom_linear_solve(matvec, b, solve); },
            abstract({3}, dtype));
    });
  };
  const Error error = refusal([](const Array& x) { return sum(x); }, half);
  EXPECT_EQ(error.kind(), ErrorKind::kValueError);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("matvec() output shapes must match b, got f32[] and f32[3] for b"),
                    HasSubstr("custom_rules_test.cc:")));
  EXPECT_THAT(refusal(twice, [](const auto&, const Array& b) { return sum(b); }).what(),
              HasSubstr("solve() output shapes must match b"));
  EXPECT_THAT(refusal(twice, half, kS32).what(), HasSubstr("a float or complex array is expected"));
  const Error gradient = ErrorOf([&] {
    trace(
        [&](Array b) {
          return grad([&](Array c) { return sum(lax::custom_linear_solve(twice, c, half)); })(b);
        },
        abstract({3}));
  });
  EXPECT_EQ(gradient.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(gradient.what(), HasSubstr("transpose_solve required for backwards mode"));
}

// Finds the root of x^3 = a by bisection, which has no derivative of its own.
Array CubeRoot(const Array& a) {
  const auto f = [&](const Array& x) { return x * x * x - a; };
  const auto bisect = [](const auto& g, const Array& guess) {
    using Interval = std::pair<Array, Array>;
    const auto wide = [](const Interval& at) { return lax::gt(at.second - at.first, 1e-6); };
    const auto halved = [&](const Interval& at) {
      const Array middle = (at.first + at.second) / 2;
      const Array above = g(middle) > 0;
      return Interval(where(above, at.first, middle), where(above, middle, at.second));
    };
    return while_loop(wide, halved, Interval(guess * 0, guess)).first;
  };
  const auto tangent = [](const auto& g, const Array& y) { return y / g(ones_like(y)); };
  return lax::custom_root(f, full({}, 10), bisect, tangent);
}

TEST(RootTest, HasTheDerivativesOfTheRoot) {
  const ir::Array a = Host({8}, {});
  EXPECT_NEAR(Values(CubeRoot, a)[0], 2, 1e-5);
  const auto first = [](Array x) { return grad(CubeRoot)(x); };
  EXPECT_NEAR(Values(first, a)[0], 1 / 12., 1e-5);
  const auto forward = [](Array x) {
    return jvp(CubeRoot, std::tuple(x), std::tuple(ones_like(x))).second;
  };
  EXPECT_NEAR(Values(forward, a)[0], 1 / 12., 1e-5);
  const auto second = [](Array x) { return grad(grad(CubeRoot))(x); };
  EXPECT_NEAR(Values(second, a)[0], -1 / 144., 1e-5);  // the derivative is -2/9 a^(-5/3)
  const auto mapped = [](Array x) { return vmap(grad(CubeRoot))(x); };
  EXPECT_THAT(Values(mapped, Vec({1, 27})), Pointwise(DoubleNear(1e-4), {1 / 3., 1 / 27.}));
}

// Finds the tree {x, y} with x + y = s and x y = p, by the quadratic formula.
TEST(RootTest, TheRootMayBeATree) {
  using Pair = std::pair<Array, Array>;
  const auto larger = [](Array s, Array p) {
    const auto f = [&](const Pair& v) {
      return Pair(v.first + v.second - s, v.first * v.second - p);
    };
    const auto solve = [&](const auto&, const Pair&) {
      const Array root = sqrt(s * s - 4 * p);
      return Pair((s + root) / 2, (s - root) / 2);
    };
    // Solves the tangent equation by Cramer's rule.
    const auto tangent = [](const auto& g, const Pair& y) {
      const Array one = ones({}), zero = zeros({});
      const Pair by_x = g(Pair(one, zero)), by_y = g(Pair(zero, one));
      const Array det = by_x.first * by_y.second - by_y.first * by_x.second;
      return Pair((y.first * by_y.second - by_y.first * y.second) / det,
                  (by_x.first * y.second - y.first * by_x.second) / det);
    };
    return lax::custom_root(f, Pair(ones({}), ones({})), solve, tangent).first;
  };
  const auto slopes = [&](Array s, Array p) { return grad<0, 1>(larger)(s, p); };
  const auto out = Evaluated(slopes, Host({5}, {}), Host({6}, {}));  // the solutions are 3 and 2
  EXPECT_NEAR(out[0].At(0), 3, 1e-5);   // the gradient by s is x / (x - y)
  EXPECT_NEAR(out[1].At(0), -1, 1e-5);  // the gradient by p is -1 / (x - y)
}

TEST(RootTest, RefusesFunctionsOfOtherTypes) {
  const auto same = [](const Array& x) { return x; };
  const auto keep = [](const auto&, const Array& x) { return x; };
  const auto total = [](const auto&, const Array& x) { return sum(x); };
  const auto refusal = [](const auto& f, const auto& solve, const auto& tangent,
                          DType dtype = kF32) {
    return ErrorOf([&] {
      trace([&](Array x) { return lax::custom_root(f, x, solve, tangent); }, abstract({3}, dtype));
    });
  };
  const Error error = refusal([](const Array& x) { return sum(x); }, keep, keep);
  EXPECT_EQ(error.kind(), ErrorKind::kValueError);
  EXPECT_THAT(error.what(),
              HasSubstr("f() output shapes must match initial_guess, got f32[] and f32[3]"));
  EXPECT_THAT(refusal(same, total, keep).what(), HasSubstr("solve() output shapes must match"));
  EXPECT_THAT(refusal(same, keep, keep, kS32).what(),
              HasSubstr("a float or complex array is expected"));
  const Error tangent = ErrorOf([&] {
    trace(
        [&](Array x) {
          return lax::custom_root([&](const Array& y) { return y - x; }, x, keep, total);
        },
        abstract({3}));
  });
  EXPECT_THAT(tangent.what(), HasSubstr("tangent_solve() output shapes must match"));
}

}  // namespace
}  // namespace tessera
