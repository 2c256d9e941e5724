// Tests of pmap and smap inside a trace. tests/acceptance, which runs A24, covers them at top
// level. Values and errors are those of JAX 0.10.2.
#include "client/transform/pmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/testing/evaluated.h"
#include "ir/text.h"

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

const auto kShare = [](Array x) { return x / lax::psum(x, "i"); };

TEST(PmapTest, ElementsExchangeByName) {
  const auto f = [](Array x) { return pmap(kShare, "i")(x); };
  EXPECT_THAT(Values(f, Vec({0, 1, 2, 3})),
              Pointwise(DoubleNear(1e-6), std::vector<double>({0, 1.0 / 6, 2.0 / 6, 3.0 / 6})));
  const auto scanned = [](Array x) {
    return pmap(
        [](Array a) {
          return scan([](Array c, NoneType) { return std::pair(lax::psum(c, "i"), c); }, a, None,
                      {.length = 2});
        },
        "i")(x);
  };
  const auto out = Evaluated(scanned, Vec({0, 1, 2, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(24, 24, 24, 24));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 6, 1, 6, 2, 6, 3, 6));
}

TEST(PmapTest, MapsTheGivenAxesOfArgumentsAndResults) {
  const auto with_unmapped = [](Array x) {
    return pmap([](Array a, Array b) { return std::pair(a + b, b * 2); }, "i",
                {.in_axes = {0, None}})(x, 4.0);
  };
  const auto out = Evaluated(with_unmapped, Vec({0, 1}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(4, 5));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(8, 8));
  const auto twice = [](Array a) { return a * 2; };
  const ir::Array rows = Host({0, 1, 2, 3, 4, 5, 6, 7}, {2, 4});
  const auto columns = [&](Array x) { return pmap(twice, "i", {.in_axes = 1})(x); };
  const auto turned = Evaluated(columns, rows);
  EXPECT_EQ(turned[0].shape(), (Dims{4, 2}));
  EXPECT_THAT(turned[0].ToDoubles(), ElementsAre(0, 8, 2, 10, 4, 12, 6, 14));
  const auto kept = [&](Array x) { return pmap(twice, "i", {.in_axes = 1, .out_axes = 1})(x); };
  EXPECT_EQ(Evaluated(kept, rows)[0].shape(), (Dims{2, 4}));
  EXPECT_THAT(Values(kept, rows), ElementsAre(0, 2, 4, 6, 8, 10, 12, 14));
  // With out_axes None, the result of one element is taken, whether the results of the other
  // elements equal it or not.
  const auto without_out_axis = [](const auto& f) {
    return [=](Array x) { return pmap(f, "i", {.out_axes = None})(x); };
  };
  EXPECT_THAT(
      Values(without_out_axis([](Array a) { return lax::psum(a, "i"); }), Vec({0, 1, 2, 3})),
      ElementsAre(6));
  EXPECT_THAT(Values(without_out_axis([](Array a) { return a; }), Vec({5, 1, 2, 3})),
              ElementsAre(5));
}

TEST(PmapTest, NumbersAndStringsThatCppKnowsAreStatic) {
  const auto f = [](Array x) {
    return pmap([](Array a, int n, const std::string& name) {
      return name == "twice" ? a * (2 * n) : a;
    })(x, 3, std::string("twice"));
  };
  EXPECT_THAT(Values(f, Vec({0, 1, 2, 3})), ElementsAre(0, 6, 12, 18));
}

TEST(PmapTest, WorksUnderGradVmapAndJit) {
  const auto weighted_gradient = [](Array x, Array w) {
    return grad([](Array y, Array v) { return sum(pmap(kShare, "i")(y) * v); })(x, w);
  };
  EXPECT_THAT(Values(weighted_gradient, Vec({1, 2, 3, 4}), Vec({0, 1, 0, 0})),
              Pointwise(DoubleNear(1e-6), std::vector<double>({-0.02, 0.08, -0.02, -0.02})));
  const auto batched = [](Array x) {
    return vmap([](Array row) { return pmap(kShare, "i")(row); })(x);
  };
  EXPECT_THAT(
      Values(batched, Host({0, 1, 2, 3, 4, 5, 6, 7}, {2, 4})),
      Pointwise(DoubleNear(1e-6), std::vector<double>({0, 1.0 / 6, 2.0 / 6, 3.0 / 6, 4.0 / 22,
                                                       5.0 / 22, 6.0 / 22, 7.0 / 22})));
  const auto compiled = [](Array x) { return jit(pmap(kShare, "i"))(x); };
  EXPECT_NEAR(Values(compiled, Vec({0, 1, 2, 3}))[3], 0.5, 1e-6);
}

// The derivative of psum is psum: each element's cotangent reaches all elements.
TEST(PmapTest, GradInsideSumsTheCotangents) {  // reference A24
  const auto f = [](Array x) {
    return pmap(
        [](Array a) { return grad([&](Array p) { return lax::psum(p * a, "i"); })(ones_like(a)); },
        "i")(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 2, 3, 4})), ElementsAre(4, 8, 12, 16));
}

TEST(PmapTest, Errors) {
  const auto id = [](Array a) { return a; };
  const auto two = [](Array a, Array) { return a; };
  const auto error_of = [](const auto& f, const auto&... args) {
    return ErrorOf([&] { trace(f, args...); });
  };
  const Error none = error_of(pmap(id, "i", {.in_axes = None}), abstract({4}));
  EXPECT_EQ(none.kind(), ErrorKind::kValueError);
  EXPECT_THAT(none.what(), HasSubstr("pmap requires at least one argument with a mapped axis"));
  const Error size = error_of(pmap(id, "i", {.axis_size = 2}), abstract({4}));
  EXPECT_EQ(size.kind(), ErrorKind::kValueError);
  EXPECT_THAT(size.what(), HasSubstr("Specified axis_size 2 doesn't match received axis_size 4"));
  const Error sizes = error_of(pmap(two), abstract({4}), abstract({3}));
  EXPECT_EQ(sizes.kind(), ErrorKind::kIndivisible);
  EXPECT_THAT(sizes.what(), AllOf(HasSubstr("is partitioned 4 times"), HasSubstr("args[1]"),
                                  HasSubstr("should evenly divide the shape")));
  const Error rank = error_of(pmap(id, "i", {.in_axes = 1}), abstract({4}));
  EXPECT_THAT(rank.what(), HasSubstr("its rank should be at least 2, but is only 1"));
  const Error out = error_of(pmap(id, "i", {.out_axes = 1}), abstract({4}));
  EXPECT_THAT(out.what(), HasSubstr("pmap out_axes: axis 1 of result is out of bounds for rank 1"));
  const Error unbound =
      error_of(pmap([](Array a) { return lax::psum(a, "q"); }, "i"), abstract({4}));
  EXPECT_EQ(unbound.kind(), ErrorKind::kNameError);
  EXPECT_THAT(unbound.what(), HasSubstr("Found an unbound axis name: q"));
  const auto pairs = [](const std::pair<std::pair<Array, Array>, Array>& p, Array) {
    return p.second;
  };
  const Error prefix =
      error_of(pmap(pairs, "i", {.in_axes = {{0, 0, 0}, 0}}),
               std::pair(std::pair(abstract({4}), abstract({4})), abstract({4})), abstract({4}));
  EXPECT_EQ(prefix.kind(), ErrorKind::kValueError);
  EXPECT_THAT(prefix.what(), HasSubstr("pmap in_axes pytree structure error"));
  for (const char* name : {"j", "i"}) {
    const Error nested =
        error_of(pmap([&](Array row) { return pmap(id, name)(row); }, "i"), abstract({2, 2}));
    EXPECT_EQ(nested.kind(), ErrorKind::kValueError);
    EXPECT_THAT(nested.what(), AllOf(HasSubstr("the context mesh (i=2:manual)"),
                                     HasSubstr("should match the mesh passed to shard_map")));
  }
  const Error context = ErrorOf([&] {
    set_mesh other(abstract_mesh({4}, {"k"}));
    trace(pmap(id, "i"), abstract({4}));
  });
  EXPECT_THAT(context.what(), HasSubstr("should match the mesh passed to shard_map"));
  // Wrong options are refused before any call.
  EXPECT_THAT(ErrorOf([&] { pmap(id, "i", {.devices = std::vector<int64_t>{}}); }).what(),
              HasSubstr("'devices' argument to pmap must be non-empty"));
  EXPECT_THAT(ErrorOf([&] {
                pmap(two, "i", {.in_axes = {0, -1}});
              }).what(),
              HasSubstr("pmap in_axes has axis -1; non-negative axes, or None, are expected"));
  EXPECT_THAT(ErrorOf([&] { pmap(id, "i", {.out_axes = -1}); }).what(),
              HasSubstr("pmap out_axes has axis -1"));
}

// ---- smap. --------------------------------------------------------------------------------------

Mesh AutoMesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
  return abstract_mesh(shape, names, std::vector<AxisType>(names.size(), AxisType::kAuto));
}

TEST(SmapTest, IsShardMapOverOneAxis) {
  set_mesh context(AutoMesh({2, 2}, {"x", "y"}));
  const auto f = [](Array a, Array b) {
    return smap([](Array v, Array w) { return lax::psum(v, "x") + w; }, {0, None}, None, "x")(a, b);
  };
  EXPECT_THAT(Values(f, Vec({1, 2, 3, 4}), Vec({10, 20})), ElementsAre(14, 26));
  const auto nested = [](Array a) {
    return smap(
        [](Array rows) {
          return smap(
              [](Array block) {
                return block * lax::axis_index({"x", "y"});
              },
              1, -1, "y")(rows);
        },
        0, 0, "x")(a);
  };
  EXPECT_THAT(Values(nested, Host({1, 1, 1, 1}, {2, 2})), ElementsAre(0, 1, 2, 3));
  const auto last = [](Array a) {
    return smap([](Array block) { return block * 2; }, -1, -1, "x")(a);
  };
  const auto traced = trace(last, abstract({3, 4}));
  EXPECT_EQ(traced.fn()->result_types()[0].ToString(), "f32[3,4]");
  EXPECT_THAT(ir::PrintProgram(traced.program), HasSubstr("in_specs=specs[P(None, 'x')]"));
}

TEST(SmapTest, Errors) {
  const auto id = [](Array a) { return a; };
  const auto error_of = [&](const Prefix<int>& in, const Prefix<int>& out,
                            const std::string& name) {
    return ErrorOf([&] { trace(smap(id, in, out, name), abstract({4})); });
  };
  EXPECT_THAT(error_of(0, 0, "x").what(), HasSubstr("the context mesh cannot be empty"));
  set_mesh context(AutoMesh({2, 2}, {"x", "y"}));
  EXPECT_THAT(error_of(0, 0, "q").what(), HasSubstr("to be a subset of the mesh's axes"));
  EXPECT_THAT(error_of(0, None, "x").what(), HasSubstr("which can't be statically inferred"));
  EXPECT_THAT(error_of(1, 0, "x").what(), HasSubstr("in_specs entry which is too long"));
  EXPECT_THAT(error_of(-2, 0, "x").what(), HasSubstr("smap in_axes: axis -2 is out of bounds"));
  EXPECT_THAT(error_of(0, 2, "x").what(), HasSubstr("out_specs entry which is too long"));
}

}  // namespace
}  // namespace tessera
