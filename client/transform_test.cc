#include "client/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/testing/evaluated.h"

namespace tessera {

struct Affine {
  Array w, b;
};
TESSERA_TREE(Affine, w, b)

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

Mesh AutoMesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
  return abstract_mesh(shape, names, std::vector<AxisType>(names.size(), AxisType::kAuto));
}

// ---- grad and its kin. --------------------------------------------------------------------------

TEST(GradTest, OfASumOfSquares) {
  EXPECT_THAT(Values(grad([](Array x) { return sum(x * x); }), Vec({1, 2, 3})),
              ElementsAre(2, 4, 6));
}

TEST(GradTest, ByTwoArgumentsInTheirOrder) {
  const auto f = [](Array x, Array y) {
    auto [dy, dx] = grad<1, 0>([](Array a, Array b) { return sum(a * a * b); })(x, y);
    // std::get order follows the argnums.
    return std::make_pair(dy, dx);
  };
  const auto out = Evaluated(f, Vec({2, 3}), Vec({5, 7}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(4, 9));    // by y: x^2
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(20, 42));  // by x: 2xy
}

TEST(GradTest, OfATreeHasItsStructureAndSkipsStatics) {
  const auto f = [](Array w, Array b, Array x) {
    const Affine p{w, b};
    const auto loss = [](const Affine& q, Array v, int n) { return n * sum(q.w * v + q.b); };
    const Affine g = grad(loss)(p, x, 3);
    return std::make_pair(g.w, g.b);
  };
  const auto out = Evaluated(f, Vec({1, 2}), Vec({0, 0}), Vec({5, 6}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(15, 18));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(3, 3));
}

TEST(GradTest, AuxTravelsBeside) {
  const auto f = [](Array x) {
    auto [value, g] = value_and_grad([](Array y) {
      return std::make_pair(sum(y * y * y), std::make_pair(y + 1, argmax(y)));
    })(x);
    return std::make_tuple(value.first, value.second.first, value.second.second, g);
  };
  const auto out = Evaluated(f, Vec({1, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(9));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 3));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(1));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(3, 12));
}

TEST(GradTest, OfGrad) {
  const auto f = [](Array x) {
    return grad([](Array y) { return grad([](Array z) { return z * z * z * z; })(y); })(x);
  };
  EXPECT_THAT(Values(f, Host({2}, {})), ElementsAre(48));
}

TEST(GradTest, OfAnUnusedArgumentIsZero) {
  const auto f = [](Array x, Array y) {
    return grad<1>([](Array a, Array) { return sum(a); })(x, y);
  };
  EXPECT_THAT(Values(f, Vec({1, 2}), Vec({3, 4})), ElementsAre(0, 0));
}

TEST(GradTest, RefusesWhatHasNoGradient) {
  const Error shape = ErrorOf([] { trace(grad([](Array x) { return x * x; }), abstract({2})); });
  EXPECT_EQ(shape.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(shape.what(), AllOf(HasSubstr("Gradient only defined for scalar-output functions"),
                                  HasSubstr("transform_test.cc:")));
  const Error input =
      ErrorOf([] { trace(grad([](Array x) { return sum(x); }), abstract({2}, kS32)); });
  EXPECT_THAT(input.what(), AllOf(HasSubstr("requires real-valued inputs"), HasSubstr("args[0]")));
  const Error output =
      ErrorOf([] { trace(grad([](Array x) { return argmax(x); }), abstract({2})); });
  EXPECT_THAT(output.what(), HasSubstr("requires real-valued outputs"));
}

TEST(JvpTest, GivesTheTangent) {
  const auto f = [](Array x, Array t) {
    return jvp([](Array y) { return sin(y); }, std::tuple(x), std::tuple(t));
  };
  const auto out = Evaluated(f, Vec({0.5}), Vec({2}));
  EXPECT_NEAR(out[0].At(0), std::sin(0.5), 1e-6);
  EXPECT_NEAR(out[1].At(0), 2 * std::cos(0.5), 1e-6);
}

TEST(JvpTest, RefusesOtherShapes) {
  const Error e = ErrorOf([] {
    trace([](Array x,
             Array t) { return jvp([](Array y) { return y; }, std::tuple(x), std::tuple(t)); },
          abstract({2}), abstract({3}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(),
              AllOf(HasSubstr("dtypes and shapes must be equal"), HasSubstr("primals[0]")));
}

TEST(VjpTest, PullsCotangentsBack) {
  const auto f = [](Array x, Array ct) {
    auto [y, pull] = vjp([](Array a) { return a * a; }, x);
    return std::make_pair(y, std::get<0>(pull(ct)));
  };
  const auto out = Evaluated(f, Vec({2, 3}), Vec({1, 10}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(4, 9));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(4, 60));
}

TEST(VjpTest, ChecksTheCotangentsType) {
  const Error e = ErrorOf([] {
    trace(
        [](Array x) {
          auto [y, pull] = vjp([](Array a) { return a * a; }, x);
          return std::get<0>(pull(sum(y)));
        },
        abstract({2}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), HasSubstr("for argument to VJP function"));
}

TEST(LinearizeTest, IsTheJvpAtAPoint) {
  const auto f = [](Array x, Array t) {
    auto [y, lin] = linearize([](Array a) { return a * a * a; }, x);
    return std::make_pair(y, lin(t) + lin(2 * t));
  };
  const auto out = Evaluated(f, Vec({2}), Vec({1}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(8));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(36));
}

// Seed program: reference A01 and A02.
auto Seed(bool cast) {
  return [cast](Array p, Array t) {
    const Mesh mesh = AutoMesh({2}, {"x"});
    return shard_map(
        [=](Array tangent) {
          const auto f = [](Array v) { return mean(square(v)); };
          const Array q = cast ? lax::pcast(p, "x", "varying") : p;
          auto linearized = linearize(f, q);
          const auto fwd = linearized.second;
          const auto bwd = linear_transpose([fwd](Array v) { return fwd(v); }, q);
          return bwd(fwd(tangent));
        },
        mesh, {P("x")}, P("x"))(t);
  };
}
TEST(LinearizeTest, RefusesATangentThatVariesWhereThePrimalDoesNot) {
  const Error e = ErrorOf([] { trace(Seed(false), abstract({1}), abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(),
              AllOf(HasSubstr("linearized function called on tangent values inconsistent"),
                    HasSubstr("pcast(..., ('x',), to='varying') to the primal value passed")));
}
TEST(LinearizeTest, TransposesPerShardOnceCast) {
  EXPECT_THAT(Values(Seed(true), Vec({1}), Vec({1, 1})), ElementsAre(4, 4));
  EXPECT_THAT(Values(Seed(true), Vec({3}), Vec({1, 2})), ElementsAre(36, 72));
}

TEST(LinearTransposeTest, ChecksTheCotangent) {
  const Error e = ErrorOf([] {
    trace(
        [](Array x) {
          return std::get<0>(linear_transpose([](Array v) { return 2 * v; }, x)(sum(x)));
        },
        abstract({2}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("cotangent type does not match function output"));
}

// ---- shard_map. ---------------------------------------------------------------------------------

TEST(ShardMapTest, RepeatedPsumVariesAgain) {  // reference A03
  const auto f = [](Array x) {
    return shard_map([](Array b) { return lax::psum(lax::psum(b, "i"), "i"); },
                     AutoMesh({4}, {"i"}), {P("i")}, P())(x);
  };
  EXPECT_THAT(Values(f, Vec({0, 1, 2, 3})), ElementsAre(24));
}

TEST(ShardMapTest, OutSpecsPromiseIsProven) {  // reference A04
  const Error e = ErrorOf([] {
    trace(shard_map([](Array b) { return 2 * b; }, AutoMesh({2, 2, 2}, {"x", "y", "z"}),
                    {P("x", "y", "z")}, P("x")),
          abstract({4, 2, 2}));
  });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("require replication which can't be statically inferred"),
                              HasSubstr("only varying across mesh axes {x} and not {y,z}")));
}

TEST(ShardMapTest, GradientsOfInvaryingParamsAreSummed) {  // reference A05
  const auto make = [](bool cast) {
    return [cast](Array params, Array samples) {
      return shard_map(
          [=](Array block) {
            const Array p = cast ? lax::pcast(params, "d", "varying") : params;
            return vmap(grad([](Array q, Array x) { return dot(q, x); }), {None, 0})(p, block);
          },
          AutoMesh({2}, {"d"}), {P("d")}, P("d"))(samples);
    };
  };
  const auto samples = Host({0, 1, 1, 1, 1, 0, 0, 0}, {4, 2});
  EXPECT_THAT(Values(make(false), Vec({1, 2}), samples), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(Values(make(true), Vec({1, 2}), samples), ElementsAre(0, 1, 1, 1, 1, 0, 0, 0));
}

TEST(ShardMapTest, GradThroughIsRightInBothModes) {  // reference A07
  for (const bool check : {true, false}) {
    const auto f = [check](Array x) {
      return grad([check](Array y) {
        return shard_map([](Array b) { return lax::psum(sum(b * b), "i"); }, AutoMesh({4}, {"i"}),
                         {P("i")}, P(), {.axis_names = {}, .check_vma = check})(y);
      })(x);
    };
    EXPECT_THAT(Values(f, Vec({0, 1, 2, 3})), ElementsAre(0, 2, 4, 6)) << "check_vma=" << check;
  }
}

TEST(ShardMapTest, MixedOperandsAreCast) {  // reference A08
  const auto f = [](Array x, Array y) {
    return shard_map([](Array a, Array b) { return a * b; }, AutoMesh({2}, {"i"}), {P("i"), P()},
                     P("i"))(x, y);
  };
  EXPECT_THAT(Values(f, Vec({0, 1, 2, 3, 4, 5}), Vec({10, 20, 30})),
              ElementsAre(0, 20, 60, 30, 80, 150));
}

TEST(ShardMapTest, ScanCarryMustVaryFromTheStart) {  // reference A09
  const auto make = [](bool cast) {
    return [cast](Array x, Array y) {
      return shard_map(
          [cast](Array a, Array b) {
            if (cast) b = lax::pcast(b, "i", "varying");
            const auto swap = [](std::pair<Array, Array> c, NoneType) {
              return std::make_pair(std::make_pair(c.second, c.first), std::tuple<>());
            };
            return scan(swap, std::make_pair(a, b), None, {.length = 2}).first;
          },
          AutoMesh({2}, {"i"}), {P("i"), P()}, P("i"))(x, y);
    };
  };
  const Error e = ErrorOf([&] { trace(make(false), abstract({6}), abstract({3})); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("carry input and carry output must have equal types"),
                              HasSubstr("pcast(..., ('i',), to='varying')"),
                              HasSubstr("initial carry value corresponding to carry[1]")));
  const auto out = Evaluated(make(true), Vec({0, 1, 2, 3, 4, 5}), Vec({0, 1, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(ShardMapTest, BoundaryErrors) {  // reference A14
  const Mesh mesh = AutoMesh({2}, {"x"});
  const auto id = [](Array a) { return a; };
  const Error uneven =
      ErrorOf([&] { trace(shard_map(id, mesh, {P("x")}, P("x")), abstract({5})); });
  EXPECT_THAT(uneven.what(), AllOf(HasSubstr("evenly divisible"), HasSubstr("args[0]")));
  const Error scalar = ErrorOf([&] {
    trace(shard_map([](Array a) { return sum(a); }, mesh, {P("x")}, P("x")), abstract({4}));
  });
  EXPECT_THAT(scalar.what(),
              AllOf(HasSubstr("too long"), HasSubstr("add at least one (singleton) axis")));
  const Error unknown = ErrorOf([&] { trace(shard_map(id, mesh, {P("q")}, P()), abstract({4})); });
  EXPECT_THAT(unknown.what(), HasSubstr("must refer to an axis marked as manual"));
  const Error subset = ErrorOf([&] {
    trace(shard_map(id, mesh, {P()}, P(), {.axis_names = {"q"}, .check_vma = true}), abstract({4}));
  });
  EXPECT_THAT(subset.what(), HasSubstr("subset"));
  const Error long_in =
      ErrorOf([&] { trace(shard_map(id, mesh, {P(None, "x")}, P()), abstract({4})); });
  EXPECT_THAT(long_in.what(), HasSubstr("in_specs entry which is too long"));
  const Error no_mesh = ErrorOf([&] { trace(shard_map(id, Mesh{}, {P()}, P()), abstract({4})); });
  EXPECT_THAT(no_mesh.what(), HasSubstr("context mesh cannot be empty"));
  const Error other = ErrorOf([&] {
    set_mesh context(AutoMesh({4}, {"x"}));
    trace(shard_map(id, mesh, {P("x")}, P("x")), abstract({4}));
  });
  EXPECT_THAT(other.what(), HasSubstr("should match the mesh passed to shard_map"));
  for (const Error& e : {uneven, scalar, unknown, subset, long_in, no_mesh, other}) {
    EXPECT_EQ(e.kind(), ErrorKind::kValueError);
    EXPECT_THAT(e.what(), HasSubstr("transform_test.cc:"));
  }
}

TEST(ShardMapTest, MatmulOverTwoAxes) {  // reference A14
  const auto f = [](Array a, Array b) {
    return shard_map([](Array x, Array y) { return lax::psum(matmul(x, y), "y"); },
                     AutoMesh({4, 2}, {"x", "y"}), {P("x", "y"), P("y", None)}, P("x", None))(a, b);
  };
  std::vector<double> a(128), b(64);
  for (int i = 0; i < 128; ++i) a[i] = i;
  for (int i = 0; i < 64; ++i) b[i] = i;
  const std::vector<double> out = Values(f, Host(a, {8, 16}), Host(b, {16, 4}));
  ASSERT_EQ(out.size(), 32u);
  EXPECT_THAT(std::vector<double>(out.begin(), out.begin() + 4),
              ElementsAre(4960, 5080, 5200, 5320));
  EXPECT_THAT(std::vector<double>(out.end() - 4, out.end()),
              ElementsAre(58720, 60632, 62544, 64456));
}

TEST(ShardMapTest, AxisSizeIsStaticAndUnknownNamesAreRefused) {
  const auto f = [](Array x) {
    return shard_map(
        [](Array b) {
          return broadcast_to(lax::axis_index("i"), {lax::axis_size("i")}) +
                 0 * sum(b).astype(kS32);
        },
        AutoMesh({2}, {"i"}), {P("i")}, P("i"))(x);
  };
  EXPECT_THAT(Values(f, Vec({5, 6})), ElementsAre(0, 0, 1, 1));
  const Error e = ErrorOf([] { trace([](Array x) { return lax::psum(x, "i"); }, abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kNameError);
  EXPECT_THAT(e.what(), HasSubstr("unbound axis name: i"));
}

TEST(ShardMapTest, CastsThatDoNotExistAreRefused) {
  const auto with = [](auto body) {
    return ErrorOf(
        [&] { trace(shard_map(body, AutoMesh({2}, {"i"}), {P("i")}, P("i")), abstract({2})); });
  };
  EXPECT_THAT(with([](Array b) { return lax::pcast(b, "i", "varying"); }).what(),
              HasSubstr("Unsupported pcast from=varying"));
  EXPECT_THAT(with([](Array b) { return lax::pcast(b, "i", "invarying"); }).what(),
              HasSubstr("Unsupported pcast to='invarying'"));
  EXPECT_THAT(
      ErrorOf([] { trace([](Array x) { return lax::pcast(x, "i"); }, abstract({2})); }).what(),
      HasSubstr("should be called under shard_map"));
}

// ---- scan, checkpoint, jit. ---------------------------------------------------------------------

TEST(ScanTest, CarriesAndStacks) {
  const auto f = [](Array xs, Array scale) {
    return scan(
        [&](Array c, Array x) {
          const Array next = c + scale * x;  // scale is captured
          return std::make_pair(next, next * 2);
        },
        sum(xs) * 0, xs);
  };
  const auto out = Evaluated(f, Vec({1, 2, 3}), Host({10}, {}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(60));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(20, 60, 120));
}

TEST(ScanTest, GradientThroughMatchesTheProduct) {
  const auto f = [](Array x) {
    return grad([](Array w) {
      return scan([&](Array c, Array) { return std::make_pair(c * w, std::tuple<>()); }, w * 0 + 1,
                  zeros({4}))
          .first;
    })(x);
  };
  EXPECT_THAT(Values(f, Host({3}, {})), ElementsAre(108));  // d w^4 = 4 w^3
}

// The square root by Newton's method, until it no longer moves.
Array NewtonSqrt(const Array& x) {
  const auto moves = [&](const std::pair<Array, Array>& c) {
    return lax::gt(abs(c.first - c.second), 1e-6 * x);
  };
  const auto step = [&](const std::pair<Array, Array>& c) {
    return std::pair(0.5 * (c.first + x / c.first), c.first);
  };
  return while_loop(moves, step, std::pair(x, x * 2)).first;
}

TEST(WhileTest, RunsUntilTheCapturedValueIsNear) {
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
  EXPECT_EQ(e.kind(), ErrorKind::kNotImplemented);
  EXPECT_THAT(e.what(), HasSubstr("use scan, or fori_loop with static bounds"));
  EXPECT_THAT(e.what(), HasSubstr("transform_test.cc:"));
}

TEST(WhileTest, RefusesTypesThatDiffer) {
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

TEST(ForiTest, AddsUp) {
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
  // ((0 w + 1) w + 2) w + 3: the derivative is 2 w + 2.
  EXPECT_THAT(Values(gradient, Host({5}, {})), ElementsAre(12));
  EXPECT_THAT(Values(
                  [](Array x) {
                    return fori_loop(
                        3, 3, [](Array, Array c) { return c; }, x);
                  },
                  Host({5}, {})),
              ElementsAre(5));
}

TEST(ForiTest, RefusesBoundsThatAreNoIntegers) {
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

TEST(CondTest, GradientIsThatOfTheFunctionThatRan) {
  const auto f = [](Array x) {
    return grad([](Array v) {
      return cond(
          lax::gt(v, 0.0), [](Array y) { return y * y; }, [](Array y) { return exp(y) * 3; }, v);
    })(x);
  };
  EXPECT_THAT(Values(f, Host({4}, {})), ElementsAre(8));
  EXPECT_NEAR(Values(f, Host({-1}, {}))[0], 3 * std::exp(-1), 1e-6);
  // Each member of a batch its own.
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
  EXPECT_THAT(e.what(), HasSubstr("result has type f32[] of branch 0 and f32[3] of branch 1"));
  const Error vector = ErrorOf([] {
    trace(
        [](Array x) {
          return cond(
              lax::gt(x, 0.0), [](Array y) { return y; }, [](Array y) { return -y; }, x);
        },
        abstract({3}));
  });
  EXPECT_THAT(vector.what(), HasSubstr("cond: pred must be a scalar, got bool[3]"));
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
  EXPECT_THAT(e.what(), HasSubstr("index must be an integer scalar, got f32[]"));
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

TEST(CheckpointTest, ChangesNoValue) {
  const auto f = [](Array x) {
    return grad([](Array y) { return sum(checkpoint([](Array z) { return sin(sin(z)); })(y)); })(x);
  };
  const double want = std::cos(std::sin(0.7)) * std::cos(0.7);
  EXPECT_THAT(Values(f, Vec({0.7})), Pointwise(DoubleNear(1e-6), {want}));
}

TEST(JitTest, NestsInsideOtherTransforms) {
  const auto f = [](Array x, Array w) {
    const auto inner = jit([w](Array y) { return sum(y * w); });  // w is captured
    return grad([&](Array y) { return inner(y) + inner(2 * y); })(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 2}), Vec({5, 6})), ElementsAre(15, 18));
}

}  // namespace
}  // namespace tessera
