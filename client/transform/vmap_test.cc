// Tests of vmap: axes and names, sharded axes, and errors. Values beyond plain arithmetic are those
// of JAX 0.10.2; traced functions run on the reference evaluator.
#include "client/transform/vmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/testing/evaluated.h"
#include "ir/text.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using testing::ErrorOf;
using testing::Evaluated;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::Not;
using ::testing::Pointwise;
using testing::Values;
using testing::Vec;

ir::Array Arange(Dims shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<double>(i));
  return Host(values, std::move(shape));
}
Mesh AutoMesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
  return abstract_mesh(shape, names, std::vector<AxisType>(names.size(), AxisType::kAuto));
}

// ---- Axes. --------------------------------------------------------------------------------------

TEST(VmapTest, MapsTheGivenAxes) {
  const auto f = [](Array x, Array y) {
    return vmap([](Array a, Array b) { return dot(a, b); }, {0, 1})(x, y);
  };
  EXPECT_THAT(Values(f, Host({1, 2, 3, 4}, {2, 2}), Host({5, 6, 7, 8}, {2, 2})),
              ElementsAre(19, 50));
}

TEST(VmapTest, UnmappedArgumentsAreSharedAndOutAxesPlaceTheBatch) {
  const auto f = [](Array x, Array y) {
    return vmap([](Array a, Array b) { return a * b; }, {0, None}, 1)(x, y);
  };
  const auto out = Evaluated(f, Vec({1, 2, 3}), Vec({10, 20}));
  EXPECT_EQ(out[0].shape(), (Dims{2, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(10, 20, 30, 20, 40, 60));
}

TEST(VmapTest, VmapOfGradIsPerExample) {
  const auto f = [](Array w, Array xs) {
    return vmap(grad([](Array p, Array x) { return square(dot(p, x)); }), {None, 0})(w, xs);
  };
  const auto out = Evaluated(f, Vec({1, 2}), Host({1, 0, 0, 1, 1, 1}, {3, 2}));
  EXPECT_EQ(out[0].shape(), (Dims{3, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(2, 0, 0, 4, 6, 6));
}

TEST(VmapTest, RefusesWrongAxes) {
  const auto id = [](Array a) { return a; };
  const auto two = [](Array a, Array) { return a; };
  const Error rank = ErrorOf([&] { trace(vmap(id, 2), abstract({4})); });
  EXPECT_THAT(rank.what(),
              AllOf(HasSubstr("rank should be at least 3, but is only 1"), HasSubstr("args[0]")));
  const Error size = ErrorOf([&] { trace(vmap(two), abstract({4}), abstract({5})); });
  EXPECT_THAT(size.what(), HasSubstr("inconsistent sizes for array axes to be mapped"));
  const Error none = ErrorOf([&] { trace(vmap(id, None), abstract({4})); });
  EXPECT_THAT(none.what(), HasSubstr("at least one non-None value in in_axes"));
  const Error out = ErrorOf([&] { trace(vmap(id, 0, None), abstract({4})); });
  EXPECT_THAT(out.what(), HasSubstr("out_axes is None"));
  const Error many = ErrorOf([&] { trace(vmap(id, {0, 0}), abstract({4})); });
  EXPECT_THAT(many.what(), HasSubstr("vmap in_axes pytree structure error"));
}

// ---- Collectives by axis_name. ------------------------------------------------------------------

const VmapOptions kNamed = {.axis_name = "i"};

// Returns vmap(f) over the first axis of x, named i.
template <class F>
std::vector<double> MappedValues(const F& f, const ir::Array& x) {
  return Values([&](Array a) { return vmap(f, 0, 0, kNamed)(a); }, x);
}

TEST(AxisNameTest, Reductions) {
  const ir::Array x = Arange({3, 2});
  EXPECT_THAT(MappedValues([](Array a) { return lax::psum(a, "i"); }, x),
              ElementsAre(6, 9, 6, 9, 6, 9));
  EXPECT_THAT(MappedValues([](Array a) { return lax::pmean(a, "i"); }, x),
              ElementsAre(2, 3, 2, 3, 2, 3));
  EXPECT_THAT(MappedValues([](Array a) { return lax::pmax(a, "i"); }, x),
              ElementsAre(4, 5, 4, 5, 4, 5));
  EXPECT_THAT(MappedValues([](Array a) { return lax::pmin(a, "i"); }, x),
              ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(MappedValues([](Array a) { return lax::psum(lax::gt(a, 1.0), "i"); }, x),
              ElementsAre(2, 2, 2, 2, 2, 2));
}

TEST(AxisNameTest, ResultsEqualForAllElementsMayStayUnmapped) {
  // All elements have the same sum, so the result may leave vmap unmapped.
  const auto f = [](Array x, Array y) {
    return vmap(
        [](Array a, Array b) {
          return std::tuple(lax::psum(b, "i"), lax::pmean(b, "i"), lax::pmax(b, "i"),
                            lax::psum(a, "i"), lax::psum(1, "i"));
        },
        {0, None}, None, kNamed)(x, y);
  };
  const auto out = Evaluated(f, Arange({3, 2}), Host({2}, {}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(6));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(2));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(2));
  EXPECT_THAT(out[3].ToDoubles(), ElementsAre(6, 9));
  EXPECT_THAT(out[4].ToDoubles(), ElementsAre(3));
}

TEST(AxisNameTest, GathersAndScatters) {
  const ir::Array x = Host({0, 1, 4, 5, 8, 9}, {3, 2});
  const std::vector<double> whole = {0, 1, 4, 5, 8, 9}, turned = {0, 4, 8, 1, 5, 9};
  const auto thrice = [](const std::vector<double>& v) {
    std::vector<double> out;
    for (int k = 0; k < 3; ++k) out.insert(out.end(), v.begin(), v.end());
    return out;
  };
  EXPECT_THAT(MappedValues([](Array a) { return lax::all_gather(a, "i"); }, x),
              ElementsAreArray(thrice(whole)));
  EXPECT_THAT(MappedValues([](Array a) { return lax::all_gather(a, "i", 1); }, x),
              ElementsAreArray(thrice(turned)));
  EXPECT_THAT(MappedValues([](Array a) { return lax::all_gather(a, "i", 0, /*tiled=*/true); }, x),
              ElementsAreArray(thrice(whole)));
  EXPECT_THAT(MappedValues([](Array) { return lax::all_gather(arange(2, kF32), "i", 1); }, x),
              ElementsAreArray(thrice({0, 0, 0, 1, 1, 1})));
  EXPECT_THAT(MappedValues([](Array a) { return lax::psum_scatter(a, "i"); }, Arange({3, 3})),
              ElementsAre(9, 12, 15));
  EXPECT_THAT(MappedValues([](Array a) { return lax::psum_scatter(a, "i", 0, /*tiled=*/true); },
                           Arange({3, 6})),
              ElementsAre(18, 21, 24, 27, 30, 33));
  EXPECT_THAT(MappedValues([](Array) { return lax::psum_scatter(arange(3, kF32), "i"); }, x),
              ElementsAre(0, 3, 6));
}

TEST(AxisNameTest, Exchanges) {
  EXPECT_THAT(MappedValues(
                  [](Array a) {
                    return lax::ppermute(a, "i", {{0, 1}, {1, 2}, {2, 0}});
                  },
                  Arange({3, 3})),
              ElementsAre(6, 7, 8, 0, 1, 2, 3, 4, 5));
  // JAX refuses, under vmap, a permutation that leaves an element out. Here the element gets zeros,
  // as under pmap.
  EXPECT_THAT(MappedValues(
                  [](Array a) {
                    return lax::ppermute(a, "i", {{0, 1}, {1, 2}});
                  },
                  Arange({3, 1})),
              ElementsAre(0, 0, 1));
  EXPECT_THAT(MappedValues([](Array a) { return lax::all_to_all(a, "i", 0, 0); }, Arange({3, 3})),
              ElementsAre(0, 3, 6, 1, 4, 7, 2, 5, 8));
  EXPECT_THAT(
      MappedValues([](Array a) { return lax::all_to_all(a, "i", 0, 1); }, Arange({3, 3, 2})),
      ElementsAre(0, 6, 12, 1, 7, 13, 2, 8, 14, 3, 9, 15, 4, 10, 16, 5, 11, 17));
  EXPECT_THAT(MappedValues([](Array a) { return lax::all_to_all(a, "i", 0, 1, /*tiled=*/true); },
                           Arange({3, 3, 2})),
              ElementsAre(0, 1, 6, 7, 12, 13, 2, 3, 8, 9, 14, 15, 4, 5, 10, 11, 16, 17));
  EXPECT_THAT(MappedValues([](Array a) { return lax::all_to_all(a, "i", 0, 0, /*tiled=*/true); },
                           Arange({3, 6})),
              ElementsAre(0, 1, 6, 7, 12, 13, 2, 3, 8, 9, 14, 15, 4, 5, 10, 11, 16, 17));
}

TEST(AxisNameTest, IndexAndSize) {
  const auto f = [](Array x) {
    return vmap(
        [](Array a) { return a * lax::axis_index("i") + static_cast<double>(lax::axis_size("i")); },
        0, 0, kNamed)(x);
  };
  EXPECT_THAT(Values(f, Vec({1, 10, 100})), ElementsAre(3, 13, 203));
}

TEST(AxisNameTest, NestedNamesCombineAndTheInnermostOfEqualNamesCounts) {
  const auto nested = [](const std::string& outer, const std::string& inner, const auto& f) {
    return [=](Array x) {
      const auto of_row = [=](Array row) { return vmap(f, 0, 0, {.axis_name = inner})(row); };
      return vmap(of_row, 0, 0, {.axis_name = outer})(x);
    };
  };
  const auto f = nested("i", "j", [](Array a) {
    return std::tuple(lax::psum(a, {"i", "j"}), lax::axis_index({"i", "j"}),
                      lax::axis_index({"j", "i"}));
  });
  const auto out = Evaluated(f, Arange({2, 3}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(15, 15, 15, 15, 15, 15));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(out[2].ToDoubles(), ElementsAre(0, 2, 4, 1, 3, 5));
  const auto gathered = nested("i", "j", [](Array a) { return lax::all_gather(a, {"j", "i"}); });
  std::vector<double> first = Values(gathered, Arange({2, 3}));
  first.resize(6);
  EXPECT_THAT(first, ElementsAre(0, 3, 1, 4, 2, 5));
  const auto same = nested("i", "i", [](Array a) { return lax::psum(a, "i"); });
  EXPECT_THAT(Values(same, Arange({2, 3})), ElementsAre(3, 3, 3, 12, 12, 12));
}

TEST(AxisNameTest, WorksInsideLoopsAndBranches) {
  const auto scanned = [](Array x) {
    return vmap(
        [](Array a) {
          return scan([](Array c, NoneType) { return std::pair(lax::psum(c, "i"), c); }, a, None,
                      {.length = 3});
        },
        0, 0, kNamed)(x);
  };
  const auto out = Evaluated(scanned, Vec({0, 1, 2}));
  EXPECT_THAT(out[0].ToDoubles(), ElementsAre(27, 27, 27));
  EXPECT_THAT(out[1].ToDoubles(), ElementsAre(0, 3, 9, 1, 3, 9, 2, 3, 9));
  const auto shared = [](Array a) {
    return while_loop([](Array c) { return lax::lt(lax::pmax(c, "i"), 20.0); },
                      [](Array c) { return c + lax::psum(c, "i"); }, a);
  };
  const auto own = [](Array a) {
    return while_loop([](Array c) { return lax::lt(c, 20.0); },
                      [](Array c) { return c + lax::psum(c, "i"); }, a);
  };
  EXPECT_THAT(MappedValues(shared, Vec({1, 2, 3})), ElementsAre(31, 32, 33));
  EXPECT_THAT(MappedValues(own, Vec({1, 2, 3})), ElementsAre(31, 32, 33));
  const auto branch = [](Array a) {
    return cond(
        lax::gt(a, 1.0), [](Array v) { return lax::psum(v, "i"); }, [](Array v) { return -v; }, a);
  };
  EXPECT_THAT(MappedValues(branch, Vec({0, 1, 2})), ElementsAre(0, -1, 3));
  EXPECT_THAT(MappedValues(jit([](Array a) { return lax::psum(a, "i"); }), Vec({0, 1, 2})),
              ElementsAre(3, 3, 3));
}

TEST(AxisNameTest, TheDerivativeOfPsumInsideIsPsum) {
  const ir::Array x = Vec({1, 2, 3, 4});
  const auto grad_of = [](const auto& f) {
    return [=](Array a) { return grad([=](Array p) { return f(p * a); })(ones_like(a)); };
  };
  EXPECT_THAT(MappedValues(grad_of([](Array v) { return lax::psum(v, "i"); }), x),
              ElementsAre(4, 8, 12, 16));
  EXPECT_THAT(MappedValues(grad_of([](Array v) { return lax::pmean(v, "i"); }), x),
              ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(MappedValues(grad_of([](Array v) { return sum(square(lax::all_gather(v, "i"))); }),
                           Vec({1, 2, 3})),
              ElementsAre(6, 24, 54));
  const auto rotated = [](Array a) {
    return grad([&](Array p) {
      return square(lax::ppermute(p * a, "i", {{0, 1}, {1, 2}, {2, 0}}));
    })(a);
  };
  EXPECT_THAT(MappedValues(rotated, Vec({1, 2, 3})), ElementsAre(2, 16, 54));
  const auto scattered = [](Array a) {
    return grad([&](Array p) { return square(lax::psum_scatter(p * a, "i")); })(ones_like(a));
  };
  EXPECT_THAT(MappedValues(scattered, Arange({3, 3})),
              ElementsAre(0, 24, 60, 54, 96, 150, 108, 168, 240));
  const auto remat = grad(checkpoint([](Array a) { return square(lax::psum(sin(a), "i")); }));
  EXPECT_THAT(MappedValues(remat, Vec({0, 1, 2})),
              Pointwise(DoubleNear(1e-5), std::vector<double>{10.5046101, 5.6756649, -4.3714605}));
}

TEST(AxisNameTest, DerivativesFromOutsideTreatCollectivesAsReductions) {
  const auto shares = [](Array x, Array w) {
    return grad([&](Array y) {
      return sum(vmap([](Array a) { return a / lax::psum(a, "i"); }, 0, 0, kNamed)(y) * w);
    })(x);
  };
  EXPECT_THAT(Values(shares, Vec({1, 2, 3}), Vec({0, 1, 2})),
              Pointwise(DoubleNear(1e-6), std::vector<double>{-0.2222222, -0.0555556, 0.1111111}));
  // The maximum of a batch can be differentiated from outside, where it is a reduction.
  const auto largest = [](Array x) {
    return grad([](Array y) {
      return sum(vmap([](Array a) { return lax::pmax(a, "i"); }, 0, 0, kNamed)(y));
    })(x);
  };
  EXPECT_THAT(Values(largest, Vec({1, 5, 2})), ElementsAre(0, 3, 0));
  const Error e = ErrorOf([] {
    trace(vmap(grad([](Array a) { return lax::pmax(a, "i"); }), 0, 0, kNamed), abstract({3}));
  });
  EXPECT_THAT(e.what(), HasSubstr("Differentiation rule for 'pmax' not implemented"));
}

TEST(AxisNameTest, CombinesWithAxesOfTheMesh) {
  const Mesh mesh = AutoMesh({2}, {"d"});
  for (bool check_vma : {true, false}) {
    const ShardMapOptions options{.axis_names = {}, .check_vma = check_vma};
    const auto shard_map_of_vmap = [&](const auto& f) {
      return [=](Array x) {
        return shard_map([=](Array b) { return vmap(f, 0, 0, kNamed)(b); }, mesh, {P("d")}, P("d"),
                         options)(x);
      };
    };
    // Makes the result vary over d, as out_specs require.
    const auto varying = [](Array a) { return a + 0 * lax::axis_index("d"); };
    const ir::Array x = Arange({4});
    EXPECT_THAT(Values(shard_map_of_vmap([](Array a) { return lax::psum(a, "i"); }), x),
                ElementsAre(1, 1, 5, 5));
    EXPECT_THAT(Values(shard_map_of_vmap([=](Array a) {
                         return varying(lax::psum(a, {"i", "d"}));
                       }),
                       x),
                ElementsAre(6, 6, 6, 6));
    EXPECT_THAT(Values(shard_map_of_vmap([](Array a) {
                         return a * 0 + lax::axis_index({"i", "d"});
                       }),
                       x),
                ElementsAre(0, 2, 1, 3));
    EXPECT_THAT(Values(shard_map_of_vmap([](Array a) {
                         return a * 0 + lax::axis_index({"d", "i"});
                       }),
                       x),
                ElementsAre(0, 1, 2, 3));
    const auto vmap_of_shard_map = [&](const auto& f, const PartitionSpec& out) {
      return [=](Array rows) {
        return vmap([=](Array r) { return shard_map(f, mesh, {P("d")}, out, options)(r); }, 0, 0,
                    kNamed)(rows);
      };
    };
    EXPECT_THAT(Values(vmap_of_shard_map([](Array b) { return lax::psum(b, "i"); }, P("d")),
                       Arange({2, 4})),
                ElementsAre(4, 6, 8, 10, 4, 6, 8, 10));
    EXPECT_THAT(Values(vmap_of_shard_map(
                           [](Array b) {
                             return lax::psum(b, {"i", "d"});
                           },
                           P()),
                       Arange({2, 4})),
                ElementsAre(12, 16, 12, 16));
    const auto exchanged = [](const lax::AxisNames& axes) {
      return [=](Array b) { return lax::all_to_all(b, axes, 0, 1, /*tiled=*/true); };
    };
    EXPECT_THAT(Values(vmap_of_shard_map(exchanged({"i", "d"}), P("d")), Arange({2, 8, 2})),
                ElementsAre(0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27, 4, 5, 12, 13,
                            20, 21, 28, 29, 6, 7, 14, 15, 22, 23, 30, 31));
    EXPECT_THAT(Values(vmap_of_shard_map(exchanged({"d", "i"}), P("d")), Arange({2, 8, 2})),
                ElementsAre(0, 1, 16, 17, 8, 9, 24, 25, 4, 5, 20, 21, 12, 13, 28, 29, 2, 3, 18, 19,
                            10, 11, 26, 27, 6, 7, 22, 23, 14, 15, 30, 31));
  }
  // Without check_vma, psum transposes to psum both over the vmap's axis and over the mesh axis.
  const auto gradient = [=](Array x) {
    return shard_map(
        [](Array b) {
          return vmap(grad([](Array a) { return lax::psum(a * a, {"i", "d"}); }), 0, 0, kNamed)(b);
        },
        mesh, {P("d")}, P("d"), {.axis_names = {}, .check_vma = false})(x);
  };
  EXPECT_THAT(Values(gradient, Arange({4})), ElementsAre(0, 8, 16, 24));
}

TEST(AxisNameTest, Errors) {
  const auto error = [](const auto& f, const VmapOptions& options) {
    return ErrorOf([&] { trace(vmap(f, 0, 0, options), abstract({4})); });
  };
  const auto sums = [](const std::string& axis) {
    return [=](Array a) { return lax::psum(a, axis); };
  };
  const Error unbound = error(sums("j"), kNamed);
  EXPECT_EQ(unbound.kind(), ErrorKind::kNameError);
  EXPECT_THAT(unbound.what(), HasSubstr("Found an unbound axis name: j. To fix this, please call "
                                        "psum under shard_map, or under a vmap or pmap"));
  EXPECT_EQ(error([](Array a) { return a * lax::axis_index("j"); }, kNamed).kind(),
            ErrorKind::kNameError);
  EXPECT_EQ(error([](Array a) { return a * lax::axis_size("j"); }, kNamed).kind(),
            ErrorKind::kNameError);
  const Error size = error(sums("i"), {.axis_name = "i", .axis_size = 3});
  EXPECT_THAT(size.what(),
              AllOf(HasSubstr("vmap got inconsistent sizes for array axes to be mapped"),
                    HasSubstr("axis_size is 3")));
  const Error none =
      ErrorOf([&] { trace(vmap([](Array a) { return a; }, 0, None, kNamed), abstract({4})); });
  EXPECT_THAT(none.what(), HasSubstr("has mapped output 0 (axis_name=i) but out_axes is None"));
  // A Manual axis of the mesh keeps its name; a vmap may use the name of any other axis.
  const Mesh mesh = AutoMesh({2}, {"d"});
  const Error hides = ErrorOf([&] {
    trace(shard_map([&](Array b) { return vmap(sums("d"), 0, 0, {.axis_name = "d"})(b); }, mesh,
                    {P("d")}, P("d")),
          abstract({4}));
  });
  EXPECT_EQ(hides.kind(), ErrorKind::kValueError);
  EXPECT_THAT(hides.what(), HasSubstr("axis_name 'd' is the name of an axis of mesh"));
  const Error hidden = error(
      [&](Array) {
        return shard_map([](Array b) { return b; }, mesh, {P("d")}, P("d"))(zeros({4}));
      },
      {.axis_name = "d"});
  EXPECT_THAT(hidden.what(), HasSubstr("can't be Manual under a vmap whose axis_name is 'd'"));
  set_mesh context(mesh);
  EXPECT_THAT(
      Values([&](Array x) { return vmap(sums("d"), 0, 0, {.axis_name = "d"})(x); }, Vec({1, 2, 3})),
      ElementsAre(6, 6, 6));
}

// A linear function that was traced outside the vmap, and that has loops, is called inside it.
TEST(AxisNameTest, CallsLinearFunctionsThatWereTracedOutside) {
  const auto f = [](Array x, Array basis) {
    const auto cubed = [](Array v) {
      const auto step = [&](Array c, NoneType) { return std::pair(c * v, NoneType()); };
      return scan(step, v, None, {.length = 2}).first;
    };
    const auto forward = linearize(cubed, x).second;
    return vmap([&](Array t) { return lax::psum(forward(t), "i"); }, 0, 0, kNamed)(basis);
  };
  EXPECT_THAT(Values(f, Vec({1, 2}), Host({1, 0, 0, 1}, {2, 2})), ElementsAre(3, 12, 3, 12));
}

TEST(AxisNameTest, TakesTheSizeFromAxisSize) {
  const auto f = [](Array x) {
    return vmap([](Array a) { return a + lax::axis_index("i"); }, None, 0,
                {.axis_name = "i", .axis_size = 3})(x);
  };
  EXPECT_THAT(Values(f, Host({10}, {})), ElementsAre(10, 11, 12));
}

TEST(AxisNameTest, TracedProgramsHaveNoMappedAxis) {
  const auto traced =
      trace(vmap(
                [](Array a) {
                  return scan([](Array c, NoneType) { return std::pair(lax::psum(c, "i"), c); }, a,
                              None, {.length = 2});
                },
                0, 0, kNamed),
            abstract({3}));
  EXPECT_TRUE(ir::Verify(traced.program).ok()) << ir::Verify(traced.program);
  EXPECT_THAT(ir::PrintProgram(traced.program), Not(HasSubstr("mapped")));
}

// ---- spmd_axis_name. ----------------------------------------------------------------------------

// Returns the program of vmap(f) with spmd_axis_name x, on a mesh of Auto axes x and y.
template <class F>
std::string SpmdProgramText(const F& f, ir::AxisList names = {"x"}) {
  set_mesh context(AutoMesh({2, 2}, {"x", "y"}));
  return ir::PrintProgram(
      trace(vmap(f, 0, 0, {.spmd_axis_name = std::move(names)}), abstract({4, 4})).program);
}

TEST(SpmdAxisNameTest, ConstraintsCutTheMappedDim) {
  const auto constrain = [](const PartitionSpec& spec) {
    return [=](Array a) { return lax::with_sharding_constraint(a, spec); };
  };
  EXPECT_THAT(SpmdProgramText(constrain(P("y"))), HasSubstr("sharding=P('x', 'y')"));
  EXPECT_THAT(SpmdProgramText(constrain(P("y")), {}), HasSubstr("sharding=P(?, 'y')"));
  EXPECT_THAT(SpmdProgramText(constrain(P(None)), {"x", "y"}),
              HasSubstr("sharding=P(('x','y'), None)"));
  const Error used = ErrorOf([&] { SpmdProgramText(constrain(P("x"))); });
  EXPECT_EQ(used.kind(), ErrorKind::kValueError);
  EXPECT_THAT(
      used.what(),
      HasSubstr("vmap spmd_axis_name ('x') cannot appear in with_sharding_constraint spec"));
  EXPECT_THAT(ErrorOf([&] { SpmdProgramText(constrain(P("y")), {"q"}); }).what(),
              HasSubstr("Resource axis: q of P('q', 'y') is not found in mesh"));
  EXPECT_THAT(SpmdProgramText([](Array a) { return a + 1; }, {"q"}), Not(HasSubstr("'q'")));
}

TEST(SpmdAxisNameTest, ShardMapsCutTheMappedDim) {
  const auto body = [](Array b, Array c) { return b * c + sin(c); };
  const auto mapped = [&](Array x, Array y) {
    set_mesh context(AutoMesh({2, 2}, {"x", "y"}));
    return vmap(
        [&](Array a, Array c) {
          return shard_map(body, Mesh{}, {P("y"), P("y")}, P("y"))(a, c);
        },
        {0, None}, 0, {.spmd_axis_name = {"x"}})(x, y);
  };
  set_mesh context(AutoMesh({2, 2}, {"x", "y"}));
  EXPECT_THAT(ir::PrintProgram(trace(mapped, abstract({4, 4}), abstract({4})).program),
              HasSubstr("in_specs=specs[P('x', 'y'),P('y')]"));
  const auto out = Values(mapped, Arange({4, 4}), Vec({0, 1, 2, 3}));
  std::vector<double> want;
  for (int i = 0; i < 16; ++i) want.push_back(i * (i % 4) + std::sin(i % 4));
  EXPECT_THAT(out, Pointwise(DoubleNear(1e-5), want));
  const auto gradient = [&](Array x, Array y) {
    return grad<1>([&](Array a, Array c) {
      return sum(vmap(
          [](Array v, Array w) {
            return shard_map([](Array b, Array d) { return b * d; }, Mesh{}, {P("y"), P("y")},
                             P("y"))(v, w);
          },
          {0, None}, 0, {.spmd_axis_name = {"x"}})(a, c));
    })(x, y);
  };
  EXPECT_THAT(Values(gradient, Arange({4, 4}), Vec({0, 1, 2, 3})), ElementsAre(24, 28, 32, 36));
}

TEST(SpmdAxisNameTest, Errors) {
  const auto mapped = [](const PartitionSpec& in, const PartitionSpec& out) {
    return [=](Array a) { return shard_map([](Array b) { return b; }, Mesh{}, {in}, out)(a); };
  };
  EXPECT_THAT(ErrorOf([&] { SpmdProgramText(mapped(P("x"), P("x"))); }).what(),
              HasSubstr("vmap spmd_axis_name cannot appear in shard_map in_specs"));
  EXPECT_THAT(ErrorOf([&] { SpmdProgramText(mapped(P(), P("x"))); }).what(),
              HasSubstr("vmap spmd_axis_name cannot appear in shard_map out_specs"));
  const Error manual = ErrorOf([&] {
    set_mesh context(AutoMesh({2}, {"x"}));
    trace(shard_map(
              [](Array b) {
                return vmap([](Array r) { return r; }, 0, 0, {.spmd_axis_name = {"x"}})(b);
              },
              Mesh{}, {P("x")}, P("x")),
          abstract({4}));
  });
  EXPECT_THAT(manual.what(), HasSubstr("spmd_axis_name 'x' is the name of an axis of mesh"));
}

// ---- Axes that are sharded over Explicit axes (reference A20). ----------------------------------

Type Sharded(Dims shape, ir::DimAxes axes) {
  Type type = ir::MakeType(kF32, std::move(shape));
  for (size_t d = 0; d < axes.size(); ++d) type.set_axes_of(static_cast<int>(d), axes[d]);
  return type;
}
const Mesh kExplicit = abstract_mesh({2, 2}, {"x", "y"});

// Returns the types of the results of f.
template <class F, class... T>
std::string ResultTypes(const F& f, const T&... types) {
  set_mesh context(kExplicit);
  const auto traced = trace(f, abstract_of(types)...);
  EXPECT_TRUE(ir::Verify(traced.program).ok()) << ir::Verify(traced.program);
  std::string out;
  for (const Type& t : traced.fn()->result_types()) out += (out.empty() ? "" : ", ") + t.ToString();
  return out;
}
// Returns the results of f(args...). f is traced with the sharded types `types`.
template <class F, class... A>
std::vector<std::vector<double>> OnExplicit(const F& f, const std::vector<Type>& types,
                                            const A&... args) {
  set_mesh context(kExplicit);
  const auto traced = [&]<size_t... kI>(std::index_sequence<kI...>) {
    return trace(f, abstract_of(types[kI])...);
  }
  (std::index_sequence_for<A...>());
  const auto out = ir::Evaluate(*traced.fn(), {args...});
  EXPECT_TRUE(out.ok()) << out.status();
  std::vector<std::vector<double>> values;
  for (const ir::Array& a : *out) values.push_back(a.ToDoubles());
  return values;
}

TEST(ExplicitVmapTest, TheMappedAxisIsAbsentInsideAndInTheResults) {
  const Type x = Sharded({8, 2}, {{"x"}, {"y"}}), z = Sharded({8}, {{"x"}});
  std::string inside;
  const auto sines = [&](Array a) {
    inside = a.type().ToString();
    return sin(a);
  };
  EXPECT_EQ(ResultTypes(vmap(sines), x), "f32[8@x,2@y]");
  EXPECT_EQ(inside, "f32[2@y]");
  EXPECT_EQ(ResultTypes(vmap(sines, 0, 1), x), "f32[2@y,8@x]");
  EXPECT_EQ(ResultTypes(vmap(sines, 1, 1), x), "f32[8@x,2@y]");
  EXPECT_EQ(inside, "f32[8@x]");
  EXPECT_EQ(ResultTypes(vmap(vmap(sines)), x), "f32[8@x,2@y]");
  EXPECT_EQ(inside, "f32[]");
  EXPECT_EQ(ResultTypes(vmap(sines), Sharded({8}, {{"x", "y"}})), "f32[8@x@y]");
  // A result that is the same for all elements gets the axis at the place of the batch.
  EXPECT_EQ(ResultTypes(vmap([](Array) { return zeros({4}); }, 0, -1), z), "f32[4,8@x]");
  const auto both = vmap([](Array a) { return std::pair(a * 2, zeros({2})); });
  EXPECT_EQ(ResultTypes(both, z), "f32[8@x], f32[8@x,2]");
  // The name of the axis itself changes nothing.
  EXPECT_EQ(ResultTypes(vmap(sines, 0, 0, {.spmd_axis_name = {"x"}}), x), "f32[8@x,2@y]");
}

TEST(ExplicitVmapTest, OpsKeepTheShardedAxis) {
  const Type x = Sharded({8, 2}, {{"x"}, {}}), z = Sharded({8}, {{"x"}}), w = Sharded({2, 4}, {});
  EXPECT_EQ(ResultTypes(vmap([](Array a, Array b) { return dot(a, b); }, {0, None}), x, w),
            "f32[8@x,4]");
  const auto cut = [](Array a, Array b) {
    const PartitionSpec out = P("y");
    return lax::dot_general(a, b, {{0}, {0}, {}, {}}, &out);
  };
  EXPECT_EQ(ResultTypes(vmap(cut, {0, None}), x, w), "f32[8@x,4@y]");
  const auto scanned = [](Array a) {
    return scan([&](Array c, NoneType) { return std::pair(c + a, c); }, zeros({}), None,
                {.length = 2});
  };
  EXPECT_EQ(ResultTypes(vmap(scanned), z), "f32[8@x], f32[8@x,2]");
  const auto looped = [](Array a) {
    return while_loop([](Array c) { return lax::lt(c, 9.0); }, [&](Array c) { return c + a + 1.0; },
                      zeros({}));
  };
  EXPECT_EQ(ResultTypes(vmap(looped), z), "f32[8@x]");
  const auto branches = [](Array a) {
    return cond(
        lax::gt(a, 3.0), [](Array v) { return v; }, [](Array) { return ones({}); }, a);
  };
  EXPECT_EQ(ResultTypes(vmap(branches), z), "f32[8@x]");
  const auto loss = [](Array v, Array a) { return square(dot(a, v)); };
  EXPECT_EQ(ResultTypes(vmap(grad(loss), {None, 0}), Sharded({2}, {}), x), "f32[8@x,2]");
  const auto total = [&](Array v, Array a) {
    return grad([&](Array u) { return sum(vmap(loss, {None, 0})(u, a)); })(v);
  };
  EXPECT_EQ(ResultTypes(total, Sharded({2}, {}), x), "f32[2]");
  EXPECT_THAT(OnExplicit(total, {Sharded({2}, {}), x}, Vec({1, 1}), Arange({8, 2}))[0],
              ElementsAre(2352, 2592));
}

TEST(ExplicitVmapTest, CollectivesRunAlongTheShardedAxis) {
  const VmapOptions named = {.axis_name = "i"};
  const auto mapped = [&](const auto& f) {
    return vmap([=](Array a) { return f(a); }, 0, 0, named);
  };
  const Type x = Sharded({4, 4}, {{"x"}, {}});
  const auto sums = mapped([](Array a) { return lax::psum(a, "i"); });
  const auto gathers = mapped([](Array a) { return lax::all_gather(a, "i", 0, /*tiled=*/true); });
  const auto scatters = mapped([](Array a) { return lax::psum_scatter(a, "i"); });
  const auto exchanges = mapped([](Array a) { return lax::all_to_all(a, "i", 0, 0); });
  const auto rotates = mapped([](Array a) {
    return lax::ppermute(a, "i", {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  });
  const auto indexes = mapped([](Array a) { return a * lax::axis_index("i"); });
  EXPECT_EQ(ResultTypes(sums, x), "f32[4@x,4]");
  EXPECT_EQ(ResultTypes(gathers, x), "f32[4@x,16]");
  EXPECT_EQ(ResultTypes(scatters, x), "f32[4@x]");
  EXPECT_EQ(ResultTypes(exchanges, x), "f32[4@x,4]");
  EXPECT_EQ(ResultTypes(rotates, x), "f32[4@x,4]");
  EXPECT_EQ(ResultTypes(indexes, x), "f32[4@x,4]");
  const ir::Array v = Arange({4, 4});
  EXPECT_THAT(OnExplicit(scatters, {x}, v)[0], ElementsAre(24, 28, 32, 36));
  EXPECT_THAT(OnExplicit(exchanges, {x}, v)[0],
              ElementsAre(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  EXPECT_THAT(OnExplicit(rotates, {x}, v)[0],
              ElementsAre(12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(OnExplicit(indexes, {x}, v)[0],
              ElementsAre(0, 0, 0, 0, 4, 5, 6, 7, 16, 18, 20, 22, 36, 39, 42, 45));
}

TEST(ExplicitVmapTest, ShardMapsRunOverTheOtherAxes) {
  const Type x = Sharded({8, 2}, {{"x"}, {"y"}});
  const auto mapped = [](const PartitionSpec& in, const PartitionSpec& out,
                         std::vector<std::string> axes = {}) {
    return vmap([=](Array a) {
      return shard_map([](Array b) { return b * 2; }, Mesh{}, {in}, out,
                       {.axis_names = axes, .check_vma = true})(a);
    });
  };
  EXPECT_EQ(ResultTypes(mapped(P("y"), P("y")), x), "f32[8@x,2@y]");
  EXPECT_THAT(ErrorOf([&] { ResultTypes(mapped(P("x"), P("y")), x); }).what(),
              HasSubstr("shard_map in_specs must refer to an axis marked as manual (y)"));
  EXPECT_THAT(ErrorOf([&] { ResultTypes(mapped(P("y"), P("x")), x); }).what(),
              HasSubstr("shard_map out_specs must refer to an axis marked as manual (y)"));
  EXPECT_THAT(ErrorOf([&] {
                ResultTypes(mapped(P("y"), P("y"), {"x", "y"}), x);
              }).what(),
              HasSubstr("to be a subset of the axes of mesh"));
}

TEST(ExplicitVmapTest, Errors) {
  const Type x = Sharded({8, 2}, {{"x"}, {"y"}}), unsharded = Sharded({8, 2}, {}),
             z = Sharded({8}, {{"x"}});
  const auto add = [](Array a, Array b) { return a + b; };
  const Error differ = ErrorOf([&] { ResultTypes(vmap(add), x, unsharded); });
  EXPECT_EQ(differ.kind(), ErrorKind::kValueError);
  EXPECT_THAT(differ.what(), AllOf(HasSubstr("Mapped away dimension of inputs passed to vmap "
                                             "should be sharded the same"),
                                   HasSubstr("args[1]")));
  const Error unmapped = ErrorOf([&] { ResultTypes(vmap(add, {None, 0}), z, x); });
  EXPECT_EQ(unmapped.kind(), ErrorKind::kValueError);
  EXPECT_THAT(unmapped.what(), AllOf(HasSubstr("Unmapped values passed to vmap cannot be sharded"),
                                     HasSubstr("f32[8@x] of args[0]")));
  const auto twice = [](Array a) { return a * 2; };
  EXPECT_EQ(ResultTypes(vmap(twice, 0, 0, {.spmd_axis_name = {"y"}}), unsharded), "f32[8,2]");
  const Error both = ErrorOf([&] { ResultTypes(vmap(twice, 0, 0, {.spmd_axis_name = {"y"}}), x); });
  EXPECT_THAT(both.what(), HasSubstr("Only one of spmd_axis_name or arrays sharded on `Explicit` "
                                     "mesh axis type is allowed"));
}

}  // namespace
}  // namespace tessera
