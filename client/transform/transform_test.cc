// Tests of the transforms in a trace: grad and related transforms, shard_map, checkpoint, jit,
// eval_shape. Values, types and error texts are those of JAX; traced functions run on the reference
// evaluator.
#include "client/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "client/testing/evaluated.h"
#include "ir/op_def.h"

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

// ---- grad and related transforms. ---------------------------------------------------------------

TEST(GradTest, OfASumOfSquares) {
  EXPECT_THAT(Values(grad([](Array x) { return sum(x * x); }), Vec({1, 2, 3})),
              ElementsAre(2, 4, 6));
}

TEST(GradTest, ByTwoArgumentsInTheirOrder) {
  const auto f = [](Array x, Array y) {
    auto [dy, dx] = grad<1, 0>([](Array a, Array b) { return sum(a * a * b); })(x, y);
    // The order of the tuple is that of the argnums.
    return std::make_pair(dy, dx);
  };
  const auto out = Evaluated(f, Vec({2, 3}), Vec({5, 7}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(4, 9));    // the gradient by y is x^2
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(20, 42));  // the gradient by x is 2xy
}

TEST(GradTest, OfATreeHasTheTreesStructureAndStatics) {
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

TEST(GradTest, ReturnsAuxBesideTheGradient) {
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

TEST(GradTest, RefusesIntegersAndResultsThatAreNoLoss) {
  const Error shape = ErrorOf([] { trace(grad([](Array x) { return x * x; }), abstract({2})); });
  EXPECT_EQ(shape.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(shape.what(), AllOf(HasSubstr("Gradient only defined for scalar-output functions"),
                                  HasSubstr("transform_test.cc:")));
  const Error input =
      ErrorOf([] { trace(grad([](Array x) { return sum(x); }), abstract({2}, kS32)); });
  EXPECT_THAT(input.what(),
              AllOf(HasSubstr("requires real- or complex-valued inputs"), HasSubstr("args[0]")));
  const Error output =
      ErrorOf([] { trace(grad([](Array x) { return argmax(x); }), abstract({2})); });
  EXPECT_THAT(output.what(), HasSubstr("requires real-valued outputs"));
}

TEST(GradTest, OfIntegersHasNoValue) {
  const auto f = [](Array x, Array i) { return sum(x * i); };
  trace(
      [&](Array x, Array i) {
        const auto [by_x, by_i] = grad<0, 1>(f, {.allow_int = true})(x, i);
        EXPECT_TRUE(by_x.valid());
        EXPECT_FALSE(by_i.valid());
        const auto [loss, alone] = value_and_grad<1>(f, {.allow_int = true})(x, i);
        EXPECT_FALSE(alone.valid());
        return std::pair(by_x, loss);
      },
      abstract({2}), abstract({2}, kS32));
}

// As in JAX, the gradient of |z|^2 is 2 conj(z), and that of a holomorphic function is its
// derivative.
TEST(GradTest, ByComplexArguments) {
  const auto gradient_of = [](const auto& f, GradOptions options) {
    return Evaluated(
        [&](Array re, Array im) {
          const Array slope = grad(f, options)(complex(re, im));
          return std::pair(real(slope), imag(slope));
        },
        Host({3}, {}), Host({2}, {}));
  };
  const auto size = gradient_of([](Array z) { return real(z * conj(z)); }, {});
  EXPECT_EQ(size[0].At(0), 6);
  EXPECT_EQ(size[1].At(0), -4);
  const auto square = gradient_of([](Array z) { return z * z; }, {.holomorphic = true});
  EXPECT_EQ(square[0].At(0), 6);
  EXPECT_EQ(square[1].At(0), 4);
  const auto error = [](const auto& f, DType dtype, GradOptions options) {
    return ErrorOf([&] { trace(grad(f, options), abstract({}, dtype)); });
  };
  const auto same = [](Array x) { return x; };
  EXPECT_THAT(error(same, kC64, {}).what(), HasSubstr("pass holomorphic=True"));
  EXPECT_THAT(error(same, kF32, {.holomorphic = true}).what(),
              HasSubstr("requires inputs with complex dtype, but args[0] is f32[]"));
  const auto to_real = [](Array x) { return real(x); };
  EXPECT_THAT(error(to_real, kC64, {.holomorphic = true}).what(),
              HasSubstr("requires outputs with complex dtype, but got f32"));
}

TEST(AuxTest, VjpLinearizeAndJvpReturnAux) {
  const auto f = [](Array x) { return std::pair(x * x, std::pair(x + 1, argmax(x))); };
  const auto all = [&](Array x, Array t) {
    const auto [y, back, aux] = vjp(f, x, has_aux);
    const auto [z, forward, more] = linearize(f, x, has_aux);
    const auto [w, tangent, rest] = jvp(f, std::tuple(x), std::tuple(t), has_aux);
    return std::tuple(y, back(t), aux, forward(t), more.first, tangent, rest.first, z, w);
  };
  const auto out = Evaluated(all, Vec({1, 3}), Vec({1, 10}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(1, 9));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2, 60));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(2, 4));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(1));
  for (const size_t i : {4, 6}) EXPECT_THAT(out[i].ToDoubles(), ElementsAre(2, 60));
  for (const size_t i : {5, 7}) EXPECT_THAT(out[i].ToDoubles(), ElementsAre(2, 4));
  for (const size_t i : {8, 9}) EXPECT_THAT(out[i].ToDoubles(), ElementsAre(1, 9));
}

TEST(JvpTest, ReturnsTheTangent) {
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
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("jvp called with different primal and tangent shapes"),
                              HasSubstr("primals[0]")));
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

// Returns a function that linearizes at p in a shard_map, and applies the linear map and its
// transpose to each shard of t. `cast` casts p to varying first. Reference: A01 and A02.
auto LinearizeAndTransposePerShard(bool cast) {
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
  const Error e =
      ErrorOf([] { trace(LinearizeAndTransposePerShard(false), abstract({1}), abstract({2})); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(),
              AllOf(HasSubstr("linearized function called on tangent values inconsistent"),
                    HasSubstr("pcast(..., ('x',), to='varying') to the primal value passed")));
}
TEST(LinearizeTest, TransposesPerShardIfThePrimalIsCast) {
  EXPECT_THAT(Values(LinearizeAndTransposePerShard(true), Vec({1}), Vec({1, 1})),
              ElementsAre(4, 4));
  EXPECT_THAT(Values(LinearizeAndTransposePerShard(true), Vec({3}), Vec({1, 2})),
              ElementsAre(36, 72));
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

TEST(ShardMapTest, ASecondPsumSumsOverTheDevicesAgain) {  // reference A03
  const auto f = [](Array x) {
    return shard_map([](Array b) { return lax::psum(lax::psum(b, "i"), "i"); },
                     AutoMesh({4}, {"i"}), {P("i")}, P())(x);
  };
  EXPECT_THAT(Values(f, Vec({0, 1, 2, 3})), ElementsAre(24));
}

TEST(ShardMapTest, OutSpecsMustBeProvenReplicated) {  // reference A04
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

TEST(ShardMapTest, GradIsTheSameWithAndWithoutCheckVma) {  // reference A07
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

TEST(ShardMapTest, InvaryingOperandsAreCastToVarying) {  // reference A08
  const auto f = [](Array x, Array y) {
    return shard_map([](Array a, Array b) { return a * b; }, AutoMesh({2}, {"i"}), {P("i"), P()},
                     P("i"))(x, y);
  };
  EXPECT_THAT(Values(f, Vec({0, 1, 2, 3, 4, 5}), Vec({10, 20, 30})),
              ElementsAre(0, 20, 60, 30, 80, 150));
}

// A bias is cast before it is broadcast, so that its gradient is summed over the rows before it is
// summed over the devices.
TEST(ShardMapTest, ABiasIsCastBeforeItIsBroadcast) {
  const auto f = [](Array x, Array bias) {
    const auto loss = [](Array rows, Array b) { return lax::psum(sum(square(rows + b)), "i"); };
    const auto mapped = shard_map(loss, AutoMesh({2}, {"i"}), {P("i"), P()}, P());
    return grad([&](Array b) { return mapped(x, b); })(bias);
  };
  EXPECT_THAT(Values(f, testing::Host({0, 1, 2, 3, 4, 5, 6, 7}, {4, 2}), Vec({10, 20})),
              ElementsAre(104, 192));
  std::vector<Dims> psum_shapes;
  const std::function<void(const ir::Function&)> collect_psums = [&](const ir::Function& fn) {
    for (const ir::Op& op : fn.ops) {
      if (op.def->name.find("psum") == 0) psum_shapes.push_back(fn.type(op.operands[0]).shape);
      for (const ir::FunctionRef& region : op.regions) collect_psums(*region);
    }
  };
  collect_psums(*trace(f, abstract({4, 2}), abstract({2})).fn());
  EXPECT_THAT(psum_shapes, ::testing::Contains(Dims{2}));
  EXPECT_THAT(psum_shapes, ::testing::Not(::testing::Contains(Dims{2, 2})));
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

TEST(ShardMapTest, RefusesSpecsAndMeshesThatDoNotFit) {  // reference A14
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

TEST(ShardMapTest, InferTakesTheSpecsFromTheTypes) {
  set_mesh context(abstract_mesh({2, 2}, {"x", "y"}));
  const auto body_type = [](std::string_view type, const PartitionSpec& out_spec,
                            ShardMapOptions options) {
    std::string seen;
    const auto f = [&](Array x) {
      seen = x.type().ToString();
      return x;
    };
    trace([&](Array x) { return shard_map(f, Mesh{}, Infer, out_spec, options)(x); },
          abstract_of(*ir::ParseType(type)));
    return seen;
  };
  EXPECT_EQ(body_type("f32[8@x@y]", P({"x", "y"}), {}), "f32[2]{V:x,y}");
  EXPECT_EQ(body_type("f32[8@x,4@y]", P("x"), {.axis_names = {"x"}}), "f32[4,4@y]{V:x}");
  const Error order = ErrorOf([&] { body_type("f32[8@y@x]", P("x"), {.axis_names = {"x"}}); });
  EXPECT_EQ(order.kind(), ErrorKind::kValueError);
  EXPECT_THAT(order.what(), HasSubstr("Invalid spec"));
}

// The error texts are JAX's.
TEST(ShardMapTest, RefusesWrongGroupsAndShuffles) {
  set_mesh context(abstract_mesh({4}, {"i"}, {AxisType::kAuto}));
  const auto error = [](const auto& f, bool check_vma = false) {
    return ErrorOf([&] {
      trace(
          [&](Array x) {
            return shard_map(f, Mesh{}, {P("i")}, P("i"),
                             {.axis_names = {}, .check_vma = check_vma})(x);
          },
          abstract({4}));
    });
  };
  using lax::AxisIndexGroups;
  const auto psum = [](AxisIndexGroups groups) {
    return [=](Array x) { return lax::psum(x, "i", groups); };
  };
  EXPECT_EQ(error(psum({{0, 1}, {2, 3}}), true).kind(), ErrorKind::kNotImplemented);
  EXPECT_THAT(error(psum({{0, 1}, {2, 2}})).what(), HasSubstr("exactly once; 2 occurs twice"));
  EXPECT_THAT(error(psum({{0, 1}, {2, 4}})).what(), HasSubstr("4 is not one of the 4 indices"));
  EXPECT_THAT(error(psum({{0, 1}})).what(), HasSubstr("they have 2 of the 4"));
  EXPECT_THAT(error(psum({{0, 1}, {2}, {3}})).what(), HasSubstr("must all be the same size"));
  EXPECT_THAT(error([](Array x) {
                return lax::pshuffle(x, "i", {0, 0, 1, 2});
              }).what(),
              HasSubstr("does not represent a permutation: [0, 0, 1, 2]"));
  EXPECT_THAT(error([](Array x) { return lax::pbroadcast(x, "i", 4); }).what(),
              HasSubstr("source 4 is not one of the 4 indices"));
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

TEST(ShardMapTest, RefusesUnsupportedCasts) {
  const auto error = [](auto body) {
    return ErrorOf(
        [&] { trace(shard_map(body, AutoMesh({2}, {"i"}), {P("i")}, P("i")), abstract({2})); });
  };
  EXPECT_THAT(error([](Array b) { return lax::pcast(b, "i", "varying"); }).what(),
              HasSubstr("Unsupported pcast from=varying"));
  EXPECT_THAT(error([](Array b) { return lax::pcast(b, "i", "invarying"); }).what(),
              HasSubstr("Got unexpected `to` value 'invarying'"));
  EXPECT_THAT(
      ErrorOf([] { trace([](Array x) { return lax::pcast(x, "i"); }, abstract({2})); }).what(),
      HasSubstr("should be called under shard_map"));
}

// ---- checkpoint, jit. ---------------------------------------------------------------------------

TEST(CheckpointTest, ChangesNoValue) {
  const auto f = [](Array x) {
    return grad([](Array y) { return sum(checkpoint([](Array z) { return sin(sin(z)); })(y)); })(x);
  };
  const double want = std::cos(std::sin(0.7)) * std::cos(0.7);
  EXPECT_THAT(Values(f, Vec({0.7})), Pointwise(DoubleNear(1e-6), {want}));
}

// Counts the ops of a loss and its gradient. The gradient computes those values again that `policy`
// does not keep.
std::map<std::string, int> CountOps(const CheckpointPolicy& policy) {
  const auto f = [&](Array x, Array w) {
    const auto layer = [](Array x, Array w) {
      const Array hidden = checkpoint_name(matmul(sin(x), w), "hidden");
      return sum(exp(checkpoint_name(tanh(hidden), "activation")));
    };
    return value_and_grad<0, 1>(checkpoint(layer, {.policy = policy}))(x, w);
  };
  const auto traced = trace(f, abstract({2, 3}), abstract({3, 4}));
  std::map<std::string, int> counts;
  const auto count = [&](const ir::Function& body, const auto& self) -> void {
    for (const ir::Op& op : body.ops) {
      ++counts[std::string(op.def->lax_name)];
      for (const ir::FunctionRef& region : op.regions) self(*region, self);
    }
  };
  count(*traced.fn(), count);
  return counts;
}
TEST(CheckpointTest, PoliciesSelectTheValuesToRecompute) {
  const auto recompute_all = CountOps(checkpoint_policies::nothing_saveable);
  const auto recompute_none = CountOps(checkpoint_policies::everything_saveable);
  EXPECT_EQ(recompute_all.at("tanh"), 2);
  EXPECT_EQ(recompute_all.at("sin"), 2);
  EXPECT_EQ(recompute_all.at("dot_general"), 4);  // includes the two products of the gradient
  EXPECT_EQ(recompute_none.at("tanh"), 1);
  EXPECT_EQ(recompute_none.at("sin"), 1);
  EXPECT_EQ(recompute_none.at("dot_general"), 3);

  for (const CheckpointPolicy& policy :
       {checkpoint_policies::dots_saveable, checkpoint_policies::dots_with_no_batch_dims_saveable,
        checkpoint_policies::save_only_these_names({"hidden"})}) {
    const auto dots = CountOps(policy);
    EXPECT_EQ(dots.at("dot_general"), 3);
    EXPECT_EQ(dots.at("tanh"), 2);
  }
  // A value that is kept by name is not computed again. The values from which it was computed are
  // computed again if the gradient uses them.
  const auto activation = CountOps(checkpoint_policies::save_any_names_but_these({"hidden"}));
  EXPECT_EQ(activation.at("exp"), 2);
  EXPECT_EQ(activation.at("sin"), 2);
  // The value that checkpoint_name takes has no name yet and is kept, as in JAX.
  EXPECT_EQ(
      CountOps(checkpoint_policies::save_anything_except_these_names({"activation"})).at("tanh"),
      1);
}
TEST(CheckpointTest, PoliciesChangeNoValue) {
  for (const CheckpointPolicy& policy :
       {checkpoint_policies::nothing_saveable, checkpoint_policies::everything_saveable,
        checkpoint_policies::dots_saveable,
        checkpoint_policies::save_only_these_names({"a", "b"})}) {
    const auto f = [&](Array w, Array x) {
      const auto layer = [](Array w, Array x) {
        const auto step = [&](const Array& carry, NoneType) {
          return std::pair(checkpoint_name(sin(matmul(carry, w)), "a"), None);
        };
        const Array last = scan(step, x, None, {.length = 3}).first;
        return sum(checkpoint_name(cos(last), "b") * last);
      };
      const auto kept = checkpoint(layer, {.policy = policy});
      return std::tuple(grad<0, 1>(layer)(w, x), grad<0, 1>(kept)(w, x),
                        vmap(grad(kept), {None, 0})(w, stack({x, 2 * x})));
    };
    const auto out = Evaluated(f, Host({.1, .2, .3, .4}, {2, 2}), Host({1, 2, 3, 4}, {2, 2}));
    EXPECT_EQ(out[0].ToDoubles(), out[2].ToDoubles());
    EXPECT_EQ(out[1].ToDoubles(), out[3].ToDoubles());
  }
}
TEST(CheckpointTest, PoliciesApplyToTheStepsOfAScan) {
  const auto count_sines = [](const CheckpointPolicy& policy) {
    const auto f = [&](Array x) {
      const auto body = [&](const Array& carry, NoneType) {
        return std::pair(checkpoint([](Array c) { return sin(sin(c)); }, {.policy = policy})(carry),
                         None);
      };
      return grad([&](Array x) { return sum(scan(body, x, None, {.length = 3}).first); })(x);
    };
    int sines = 0;
    const auto count = [&](const ir::Function& body, const auto& self) -> void {
      for (const ir::Op& op : body.ops) {
        sines += op.def->lax_name == "sin";
        for (const ir::FunctionRef& region : op.regions) self(*region, self);
      }
    };
    count(*trace(f, abstract({2})).fn(), count);
    return sines;
  };
  EXPECT_EQ(count_sines(checkpoint_policies::nothing_saveable), 3);
  EXPECT_EQ(count_sines(checkpoint_policies::everything_saveable), 2);
}

TEST(JitTest, NestsInsideOtherTransforms) {
  const auto f = [](Array x, Array w) {
    const auto inner = jit([w](Array y) { return sum(y * w); });  // captures w
    return grad([&](Array y) { return inner(y) + inner(2 * y); })(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 2}), Vec({5, 6})), ElementsAre(15, 18));
}

TEST(EvalShapeTest, ReturnsTheTreeOfTypes) {
  const auto f = [](const Affine& p, Array x, int n) {
    return std::tuple(dot(x, p.w) + p.b, n, x.shape().size());
  };
  const auto out =
      eval_shape(f, Affine{abstract({3, 5}), abstract({5})}, abstract({2, 3}, kF64), 7);
  EXPECT_FALSE(std::get<0>(out).is_concrete());
  EXPECT_FALSE(std::get<0>(out).is_traced());
  EXPECT_EQ(std::get<0>(out).type().ToString(), "f64[2,5]");
  EXPECT_EQ(std::get<1>(out), 7);
  EXPECT_EQ(std::get<2>(out), 2);
}
TEST(EvalShapeTest, WorksWhileTracingAndEmitsNothing) {
  const auto traced = trace(
      [](Array x) {
        const Array row = eval_shape([&](Array y) { return sum(x, 0) + y; }, x[0]);
        EXPECT_EQ(row.type().ToString(), "f32[3]");
        return zeros(row.shape());
      },
      abstract({2, 3}));
  for (const ir::Op& op : traced.fn()->ops) EXPECT_NE(op.def->name, "reduce_sum");
}
TEST(EvalShapeTest, ErrorsAreThoseOfTheFunction) {
  const Error e = ErrorOf(
      [] { eval_shape([](Array x, Array y) { return dot(x, y); }, abstract({2}), abstract({3})); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
}

}  // namespace
}  // namespace tessera
