// Tests that programs as users of JAX write them give the same results when they are written with
// the SDK.
//
// The expected results are in recorded.json. scripts/record_acceptance.py makes it and holds the
// same programs in JAX. Each program runs on the embedded cluster in three ways, which must give
// the same results: op by op, under jit, and under jit with arguments that are already sharded over
// the mesh. client/transform/transform_test.cc checks the types of the same programs without a
// cluster.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/testing/datadriven.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "ir/op_def.h"

namespace tessera {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The recorded cases. It notes which of them the tests have used.
class Recording {
 public:
  Recording() {
    std::ifstream file(SourcePath("tests/acceptance/recorded.json"));
    all_ = json::parse(file).at("cases");
  }
  const json& Take(const std::string& name) {
    used_.insert(name);
    return all_.at(name);
  }
  std::vector<std::string> Unused() const {
    std::vector<std::string> out;
    for (const auto& [name, value] : all_.items()) {
      if (!used_.count(name)) out.push_back(name);
    }
    return out;
  }

 private:
  json all_;
  std::set<std::string> used_;
};
Recording& Recorded() {
  static Recording recording;
  return recording;
}

// Returns the axes of each dim, for all dims. (A spec may leave out trailing dims that have no
// axes.)
ir::DimAxes AxesOf(const Array& x) {
  ir::DimAxes dims = x.sharding().dims;
  dims.resize(x.rank());
  return dims;
}

// Compares results with the recorded ones. With `placed`, the shardings of the results must be
// equal too.
void ExpectRecorded(const std::string& name, const std::vector<Array>& got, bool placed = true) {
  const json& want = Recorded().Take(name).at("results");
  ASSERT_EQ(got.size(), want.size()) << name;
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(name + ", result " + std::to_string(i));
    EXPECT_EQ(ir::DTypeName(got[i].dtype()), want[i].at("dtype").get<std::string>());
    EXPECT_EQ(got[i].shape(), want[i].at("shape").get<Dims>());
    EXPECT_EQ(got[i].value().ToDoubles(), want[i].at("values").get<std::vector<double>>());
    if (placed) {
      EXPECT_EQ(AxesOf(got[i]), want[i].at("sharding").get<ir::DimAxes>());
    }
  }
}

// All tests share a cluster of 8 devices, because starting one takes longer than a program.
class Acceptance : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { Session::SetDefault(Session::Embedded({.devices = 8})); }
  static void TearDownTestSuite() { Session::SetDefault(nullptr); }

  static Mesh AutoMesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
    return make_mesh(shape, names, std::vector<AxisType>(names.size(), AxisType::kAuto));
  }

  // Runs f in all three ways. `specs` are the shardings of the arguments in the third run.
  template <class F, class... A>
  static void Gives(const std::string& name, const F& f, const Mesh& mesh,
                    const std::vector<PartitionSpec>& specs, const A&... args) {
    {
      SCOPED_TRACE("op by op");
      ExpectRecorded(name, flatten(f(args...)).leaves);
    }
    const auto compiled = jit(f);
    {
      SCOPED_TRACE("jit");
      ExpectRecorded(name, flatten(compiled(args...)).leaves);
    }
    SCOPED_TRACE("jit of sharded arguments");
    ASSERT_EQ(specs.size(), sizeof...(A));
    const auto cut = [&]<size_t... kI>(std::index_sequence<kI...>) {
      return std::tuple(put(args, mesh, specs[kI])...);
    }
    (std::index_sequence_for<A...>());
    ExpectRecorded(name, flatten(std::apply(compiled, cut)).leaves);
  }

  // Runs f op by op and under jit, in a context whose mesh has Explicit axes, so that the types of
  // the arguments have shardings.
  template <class F, class... A>
  static void GivesSharded(const std::string& name, const F& f, const A&... args) {
    {
      SCOPED_TRACE("op by op");
      ExpectRecorded(name, flatten(f(args...)).leaves);
    }
    SCOPED_TRACE("jit");
    ExpectRecorded(name, flatten(jit(f)(args...)).leaves);
  }

  static void Refuses(const std::string& name, const std::function<void()>& f) {
    SCOPED_TRACE(name);
    const json& want = Recorded().Take(name);
    const Error e = testing::ErrorOf(f);
    // JAX's IndivisibleError is a ValueError, and JAX raises it only in some places.
    const std::string kind = want.at("error").get<std::string>();
    EXPECT_EQ(PythonName(e.kind()), kind == "IndivisibleError" ? "ValueError" : kind) << e.what();
    for (const json& phrase : want.at("phrases")) {
      EXPECT_THAT(e.what(), HasSubstr(phrase.get<std::string>()));
    }
    EXPECT_THAT(e.what(), HasSubstr("acceptance_test.cc:"));
  }

 private:
  static std::string PythonName(ErrorKind kind) {
    switch (kind) {
      case ErrorKind::kValueError:
        return "ValueError";
      case ErrorKind::kTypeError:
        return "TypeError";
      case ErrorKind::kNameError:
        return "NameError";
      case ErrorKind::kIndivisible:
        return "ValueError";
      case ErrorKind::kShardingTypeError:
        return "ShardingTypeError";
      case ErrorKind::kNotImplemented:
        return "NotImplementedError";
      default:
        return "another kind";
    }
  }
};

Array Arange(int64_t n, Dims shape) { return arange(n, kF32).reshape(std::move(shape)); }

// ---- A01, A02: linearize and its transpose inside shard_map. ------------------------------------

auto LinearizeProgram(const Mesh& mesh, bool cast) {
  return [=](const Array& p, const Array& t) {
    return shard_map(
        [=](Array tangent) {
          const Array q = cast ? lax::pcast(p, "x", "varying") : p;
          const auto linearized = linearize([](Array v) { return mean(square(v)); }, q);
          const auto fwd = linearized.second;
          const auto bwd = linear_transpose(fwd, q);
          return bwd(fwd(tangent));
        },
        mesh, {P("x")}, P("x"))(t);
  };
}

TEST_F(Acceptance, SeedA01RefusesATangentThatVariesWhereThePrimalDoesNot) {
  Refuses("A01", [] {
    LinearizeProgram(AutoMesh({2}, {"x"}), false)(array<float>({1}), array<float>({1, 1}));
  });
}

TEST_F(Acceptance, SeedA02TransposesPerShardOnceCast) {
  const Mesh mesh = AutoMesh({2}, {"x"});
  const auto f = LinearizeProgram(mesh, true);
  Gives("A02 ones", f, mesh, {P(), P("x")}, array<float>({1}), array<float>({1, 1}));
  Gives("A02 threes", f, mesh, {P(), P("x")}, array<float>({3}), array<float>({1, 2}));
}

// ---- A03 to A05: varying values and sums. -------------------------------------------------------

TEST_F(Acceptance, SeedA03RepeatedPsumVariesAgain) {
  const Mesh mesh = AutoMesh({4}, {"i"});
  Gives("A03",
        shard_map([](Array x) { return lax::psum(lax::psum(x, "i"), "i"); }, mesh, {P("i")}, P()),
        mesh, {P("i")}, Arange(4, {4}));
}

TEST_F(Acceptance, SeedA04OutSpecsPromiseIsProven) {
  const Mesh mesh = AutoMesh({2, 2, 2}, {"x", "y", "z"});
  const auto program = [&](bool check) {
    return shard_map([](Array b) { return 2 * b; }, mesh, {P("x", "y", "z")}, P("x"),
                     {.axis_names = {}, .check_vma = check});
  };
  const Array x = Arange(16, {4, 2, 2});
  Refuses("A04", [&] { program(true)(x); });
  Gives("A04 unchecked", program(false), mesh, {P("x", "y", "z")}, x);
}

TEST_F(Acceptance, SeedA05GradientsOfInvaryingParamsAreSummed) {
  const Mesh mesh = AutoMesh({2}, {"d"});
  const auto program = [&](bool cast) {
    return [=](const Array& params, const Array& samples) {
      return shard_map(
          [=](Array block) {
            const Array p = cast ? lax::pcast(params, "d", "varying") : params;
            return vmap(grad([](Array q, Array x) { return dot(q, x); }), {None, 0})(p, block);
          },
          mesh, {P("d")}, P("d"))(samples);
    };
  };
  const Array params = array<float>({1, 2});
  const Array samples = array<float>({0, 1, 1, 1, 1, 0, 0, 0}, {4, 2});
  Gives("A05 summed", program(false), mesh, {P(), P("d")}, params, samples);
  Gives("A05 cast", program(true), mesh, {P(), P("d")}, params, samples);
}

// ---- A06, A07: gradients inside shard_map and through it, checked and unchecked. ----------------

TEST_F(Acceptance, SeedA06GradInsideDependsOnTheMode) {
  const Mesh mesh = AutoMesh({4}, {"i"});
  for (const bool check : {true, false}) {
    const auto f = shard_map(
        [](Array p, Array x) {
          return grad([&](Array q) { return lax::psum(sum(q * x), "i"); })(p);
        },
        mesh, {P("i"), P("i")}, P("i"), {.axis_names = {}, .check_vma = check});
    Gives(check ? "A06 checked" : "A06 unchecked", f, mesh, {P("i"), P("i")}, ones({4}),
          array<float>({1, 2, 3, 4}));
  }
}

TEST_F(Acceptance, SeedA07GradThroughIsRightInBothModes) {
  const Mesh mesh = AutoMesh({4}, {"i"});
  for (const bool check : {true, false}) {
    const auto g = shard_map([](Array b) { return lax::psum(sum(square(b)), "i"); }, mesh, {P("i")},
                             P(), {.axis_names = {}, .check_vma = check});
    Gives(check ? "A07 checked" : "A07 unchecked", grad(g), mesh, {P("i")}, Arange(4, {4}));
  }
}

// ---- A08, A09: implicit casts, and casts that the user must write. ------------------------------

TEST_F(Acceptance, SeedA08MixedOperandsAreCast) {
  const Mesh mesh = AutoMesh({2}, {"i"});
  const auto f = shard_map([](Array x, Array y) { return x * y; }, mesh, {P("i"), P()}, P("i"));
  Gives("A08", f, mesh, {P("i"), P()}, Arange(6, {6}), array<float>({10, 20, 30}));
  // There must be one cast, that of y.
  const ir::FunctionRef traced = trace(f, abstract({6}), abstract({3})).fn();
  const ir::Function& body = *traced->ops.back().regions.at(0);
  std::vector<ir::ValueId> cast;
  for (const ir::Op& op : body.ops) {
    if (op.def->name == "pvary") cast.push_back(op.operands[0]);
  }
  EXPECT_THAT(cast, ::testing::ElementsAre(1));
}

TEST_F(Acceptance, SeedA09ScanCarryMustVaryFromTheStart) {
  const Mesh mesh = AutoMesh({2}, {"i"});
  const auto program = [&](bool cast) {
    return shard_map(
        [cast](Array x, Array y) {
          if (cast) y = lax::pcast(y, "i", "varying");
          return scan(
                     [](std::pair<Array, Array> c, NoneType) {
                       return std::pair(std::pair(c.second, c.first), std::tuple<>());
                     },
                     std::pair(x, y), None, {.length = 2})
              .first;
        },
        mesh, {P("i"), P()}, P("i"));
  };
  Refuses("A09", [&] { program(false)(Arange(6, {6}), Arange(3, {3})); });
  Gives("A09 cast", program(true), mesh, {P("i"), P()}, Arange(6, {6}), Arange(3, {3}));
}

// ---- A11 to A13: the collectives. ---------------------------------------------------------------

TEST_F(Acceptance, SeedA11GathersAndScatters) {
  const Mesh mesh = AutoMesh({4}, {"i"});
  const auto scatter = [](Array b) { return lax::psum_scatter(b, "i", 1, /*tiled=*/true); };
  const auto gather = [](Array b) { return lax::all_gather(b, "i", 0, /*tiled=*/true); };
  const auto invarying = [](Array b) {
    return lax::all_gather(b, "i", 0, /*tiled=*/true, "invarying");
  };
  const Array v = Arange(4, {4});
  Gives("A11 psum_scatter", shard_map(scatter, mesh, {P("i")}, P("i")), mesh, {P("i")},
        Arange(16, {4, 4}));
  Gives("A11 all_gather", shard_map(gather, mesh, {P("i")}, P("i")), mesh, {P("i")}, v);
  Refuses("A11 promise", [&] { shard_map(gather, mesh, {P("i")}, P())(v); });
  Gives("A11 invarying", shard_map(invarying, mesh, {P("i")}, P()), mesh, {P("i")}, v);
}

TEST_F(Acceptance, SeedA12Permutes) {
  const Mesh mesh = AutoMesh({4}, {"i"});
  const auto program = [&](std::vector<std::pair<int64_t, int64_t>> perm) {
    return shard_map([=](Array b) { return lax::ppermute(b, "i", perm); }, mesh, {P("i")}, P("i"));
  };
  const auto rotate = program({{0, 1}, {1, 2}, {2, 3}, {3, 0}});
  const Array x = array<float>({10, 20, 30, 40});
  Gives("A12 partial", program({{0, 1}, {1, 2}}), mesh, {P("i")}, x);
  Gives("A12 rotation", rotate, mesh, {P("i")}, x);
  Gives("A12 grad", grad([=](Array y, Array w) { return sum(w * rotate(y)); }), mesh,
        {P("i"), P("i")}, x, array<float>({1, 2, 3, 4}));
  Refuses("A12 twice", [&] { program({{0, 1}, {2, 1}})(x); });
}

TEST_F(Acceptance, SeedA13ExchangesAndKnowsItsPlace) {
  const Mesh two = AutoMesh({2}, {"i"});
  Gives("A13 all_to_all",
        shard_map([](Array b) { return lax::all_to_all(b, "i", 1, 0, /*tiled=*/true); }, two,
                  {P("i", None)}, P(None, "i")),
        two, {P("i", None)}, Arange(8, {4, 2}));
  const Mesh grid = AutoMesh({4, 2}, {"i", "j"});
  const auto index = [=](const Array&) {
    return shard_map(
        [] {
          return lax::axis_index({"i", "j"}).reshape({1, 1});
        },
        grid, {}, P("i", "j"))();
  };
  Gives("A13 axis_index", index, grid, {P()}, scalar(0.0f));
  const Mesh four = AutoMesh({4}, {"i"});
  Gives("A13 axis_size",
        shard_map([](Array b) { return zeros({lax::axis_size("i")}) + b; }, four, {P("i")}, P("i")),
        four, {P("i")}, Arange(4, {4}));
  Refuses("A13 outside", [] { lax::psum(arange(2, kF32), "i"); });
}

// ---- A14: the boundary of shard_map. ------------------------------------------------------------

TEST_F(Acceptance, SeedA14BoundaryIsChecked) {
  const Mesh mesh = AutoMesh({2}, {"x"});
  const Array four = Arange(4, {4});
  const auto id = [](Array a) { return a; };
  Refuses("A14 uneven", [&] { shard_map(id, mesh, {P("x")}, P("x"))(Arange(5, {5})); });
  Refuses("A14 scalar",
          [&] { shard_map([](Array a) { return sum(a); }, mesh, {P("x")}, P("x"))(four); });
  Refuses("A14 unknown", [&] { shard_map(id, mesh, {P("q")}, P())(four); });
  Refuses("A14 subset",
          [&] { shard_map(id, mesh, {P()}, P(), {.axis_names = {"q"}, .check_vma = true})(four); });
  Refuses("A14 rank", [&] { shard_map(id, mesh, {P(None, "x")}, P())(four); });
  Refuses("A14 no mesh", [&] { shard_map(id, Mesh{}, {P()}, P())(four); });
  Refuses("A14 other mesh", [&] {
    set_mesh context(AutoMesh({4}, {"x"}));
    shard_map(id, mesh, {P("x")}, P("x"))(four);
  });
}

TEST_F(Acceptance, SeedA14MultipliesOverTwoAxes) {
  const Mesh mesh = AutoMesh({4, 2}, {"x", "y"});
  const auto f = shard_map([](Array a, Array b) { return lax::psum(matmul(a, b), "y"); }, mesh,
                           {P("x", "y"), P("y", None)}, P("x", None));
  Gives("A14 matmul", f, mesh, {P("x", "y"), P("y", None)}, Arange(128, {8, 16}),
        Arange(64, {16, 4}));
}

// ---- A15 to A20: shardings in types. ------------------------------------------------------------

Array Sharded(int64_t n, Dims shape, const PartitionSpec& spec) {
  return reshard(Arange(n, std::move(shape)), spec);
}

TEST_F(Acceptance, SeedA15ElementwiseTypes) {
  set_mesh context(make_mesh({2, 2}, {"x", "y"}));
  const auto mul = [](Array x, Array y) { return x * y; };
  const Array a = Sharded(16, {8, 2}, P("x", "y")), b = Sharded(16, {8, 2}, P("y", "x"));
  GivesSharded("A15 replicated", mul, a, array<float>({0, 1}, {1, 2}));
  Refuses("A15 mismatch", [&] { mul(a, b); });
  Refuses("A15 outer", [&] { mul(Sharded(4, {4, 1}, P("x")), Sharded(4, {1, 4}, P(None, "x"))); });
}

TEST_F(Acceptance, SeedA16DotTypes) {
  set_mesh context(make_mesh({2, 2}, {"x", "y"}));
  const auto dot = [](Array a, Array b) { return matmul(a, b); };
  const auto lhs = [](const PartitionSpec& spec) { return Sharded(16, {8, 2}, spec); };
  const auto rhs = [](const PartitionSpec& spec) { return Sharded(16, {2, 8}, spec); };
  GivesSharded("A16 free", dot, lhs(P("x")), rhs(P(None, "y")));
  GivesSharded("A16 one side", dot, lhs(P("x", "y")), rhs(P()));
  GivesSharded("A16 other side", dot, lhs(P("x")), rhs(P("x")));
  Refuses("A16 contracting", [&] { dot(lhs(P("x", "y")), rhs(P("y"))); });
  Refuses("A16 illegal", [&] { dot(lhs(P("x")), rhs(P(None, "x"))); });
  const auto given = [](const PartitionSpec& spec) {
    return [spec](Array a, Array b) { return matmul(a, b, {.out_sharding = &spec}); };
  };
  GivesSharded("A16 all-reduce", given(P("x")), lhs(P("x", "y")), rhs(P("y")));
  GivesSharded("A16 reduce-scatter", given(P("x", "y")), lhs(P("x", "y")), rhs(P("y")));
  GivesSharded("A16 made legal", given(P("x")), lhs(P("x")), rhs(P(None, "x")));
}

// A product whose contracting dim is sharded may keep its summands on the devices, as an unreduced
// array.
TEST_F(Acceptance, SeedA17LeavesSummandsOfAProductWhereTheyAre) {
  const Mesh mesh = make_mesh({2}, {"X"});
  set_mesh context(mesh);
  const PartitionSpec to = unreduced("X", P(None, None));
  const auto product = [&](Array a, Array b) { return matmul(a, b, {.out_sharding = &to}); };
  const Array a = put(array<float>({0, 1, 2, 3}, {2, 2}), mesh, P(None, "X")),
              b = put(array<float>({4, 5, 6, 7}, {2, 2}), mesh, P("X", None));
  for (const Array& c : {product(a, b), jit(product)(a, b)}) {
    EXPECT_EQ(c.type().ToString(), "f32[2,2]{U:X}");
    EXPECT_EQ(c.shard(0).ToDoubles(), (std::vector<double>{0, 0, 8, 10}));
    EXPECT_EQ(c.shard(1).ToDoubles(), (std::vector<double>{6, 7, 18, 21}));
    EXPECT_EQ(c.sharding().ToString(), "P(None, None, unreduced={'X'})");
    // A summand is never taken for the whole value.
    EXPECT_THAT(testing::ErrorOf([&] { c.value(); }).what(), HasSubstr("terms of a sum"));
    EXPECT_THAT(testing::ErrorOf([&] { put(c, make_mesh({4}, {"X"}), P()); }).what(),
                HasSubstr("terms of a sum are not moved"));
    EXPECT_EQ(put(c, mesh, P()).value().ToDoubles(), (std::vector<double>{6, 7, 26, 31}));
    EXPECT_EQ(reshard(c, P()).value().ToDoubles(), (std::vector<double>{6, 7, 26, 31}));
    // As an argument the array keeps its meaning.
    const Array twice = jit([](Array t) { return reshard(t + t, P("X")); })(c);
    EXPECT_EQ(twice.value().ToDoubles(), (std::vector<double>{12, 14, 52, 62}));
    EXPECT_EQ(twice.shard(1).ToDoubles(), (std::vector<double>{52, 62}));
    const Error e = testing::ErrorOf([&] { cos(c); });
    EXPECT_EQ(e.kind(), ErrorKind::kNotImplemented);
    EXPECT_THAT(e.what(), HasSubstr("unreduced rule for cos is not implemented"));
  }
}

TEST_F(Acceptance, SeedA21GradientsOfReducedWeightsAreSummedOnce) {
  const Mesh mesh = make_mesh({2}, {"X"});
  set_mesh context(mesh);
  const Array rows = put(ones({4, 2}), mesh, P("X", None)), w = put(ones({2, 1}), mesh, P());
  const auto loss = [&](Array v) { return sum(square(matmul(rows, v))); };
  const Array plain = grad(loss)(w);
  EXPECT_EQ(plain.value().ToDoubles(), (std::vector<double>{16, 16}));
  const Array of_reduced = grad([&](Array v) { return loss(reshard(v, reduced("X"))); })(w);
  EXPECT_EQ(of_reduced.type().ToString(), "f32[2,1]");
  EXPECT_EQ(of_reduced.value().ToDoubles(), (std::vector<double>{16, 16}));
  // When the weight itself is reduced, the gradient has one summand per device, from that device's
  // rows.
  const Array pending = jit(grad(loss))(reshard(w, reduced("X")));
  EXPECT_EQ(pending.type().ToString(), "f32[2,1]{U:X}");
  for (int i : {0, 1}) EXPECT_EQ(pending.shard(i).ToDoubles(), (std::vector<double>{8, 8})) << i;
  // The summands of two gradients are added on each device before they are exchanged.
  const auto twice = [&](Array v) {
    const Array r = reshard(v, reduced("X"));
    return loss(r) + loss(r * 2);
  };
  EXPECT_EQ(grad(twice)(w).value().ToDoubles(), (std::vector<double>{80, 80}));
}

// Unreduced arrays enter and leave shard_map, and gradients through it are added up exactly once.
TEST_F(Acceptance, SeedUnreducedArraysPassThroughShardMapAndBack) {
  const Mesh mesh = make_mesh({2}, {"i"});
  set_mesh context(mesh);
  const Array x = put(array<float>({1, 2, 3, 4}), mesh, P("i"));
  // Makes the sum of the two halves of x in three ways: from summands that are made inside of
  // shard_map, from summands outside of it, and by a scatter.
  const auto as_unreduced = shard_map([](Array v) { return lax::pcast(v, "i", "unreduced"); }, mesh,
                                      {P("i")}, unreduced("i"));
  const Array t = as_unreduced(x);
  EXPECT_EQ(t.shard(0).ToDoubles(), (std::vector<double>{1, 2}));
  EXPECT_EQ(reshard(t, P()).value().ToDoubles(), (std::vector<double>{4, 6}));
  const auto back =
      shard_map([](Array u) { return lax::psum(u + u, "i"); }, mesh, {unreduced("i")}, P());
  EXPECT_EQ(back(t).value().ToDoubles(), (std::vector<double>{8, 12}));
  const auto scattered = shard_map([](Array u) { return lax::psum_scatter(u, "i", 0, true); }, mesh,
                                   {unreduced("i")}, P("i"));
  EXPECT_EQ(jit(scattered)(t).value().ToDoubles(), (std::vector<double>{4, 6}));
  // The gradient of a value that is gathered as reduced is scattered, exactly once.
  const auto gathered = [&](Array v) {
    return sum(shard_map(
        [](Array b) {
          const Array whole = lax::all_gather(b, "i", 0, true, "reduced");
          return lax::pcast(whole, "i", "varying") * lax::axis_index("i").astype(kF32);
        },
        mesh, {P("i")}, P("i"))(v));
  };
  const Array g = grad(gathered)(x);
  EXPECT_EQ(g.type().ToString(), "f32[4@i]");
  EXPECT_EQ(g.value().ToDoubles(), (std::vector<double>{1, 1, 1, 1}));
  // If a weight is reduced, its gradient outside of shard_map is a pending sum, which is added up
  // once.
  const auto scaled = [&](Array w) {
    return sum(shard_map([](Array b, Array v) { return b * v; }, mesh, {P("i"), reduced("i")},
                         P("i"))(x, reshard(w, reduced("i"))));
  };
  const Array w = put(array<float>({5, 6}), mesh, P());
  EXPECT_EQ(scaled(w).value().ToDoubles()[0], 1 * 5 + 2 * 6 + 3 * 5 + 4 * 6);
  EXPECT_EQ(grad(scaled)(w).value().ToDoubles(), (std::vector<double>{4, 6}));
  EXPECT_EQ(jit(grad(scaled))(w).value().ToDoubles(), (std::vector<double>{4, 6}));
  // This also holds under vmap over several weights, and in a loop that carries a pending sum.
  const Array each = vmap(grad(scaled))(put(array<float>({5, 6, 7, 8}, {2, 2}), mesh, P()));
  EXPECT_EQ(each.value().ToDoubles(), (std::vector<double>{4, 6, 4, 6}));
  const auto summed = [&](Array v) {
    const Array r = reshard(v, reduced("i"));
    const auto step = [&](Array total, NoneType) {
      const Array g = grad([&](Array u) {
        return sum(shard_map([](Array b, Array c) { return b * c; }, mesh, {P("i"), reduced("i")},
                             P("i"))(x, u));
      })(r);
      return std::pair(total + g, None);
    };
    return reshard(scan(step, reshard(zeros({2}), unreduced("i")), None, {.length = 3}).first, P());
  };
  EXPECT_EQ(jit(summed)(w).value().ToDoubles(), (std::vector<double>{12, 18}));
  // The derivative of a completed sum is reduced.
  const auto f = [&](Array v) { return sum(square(reshard(as_unreduced(v), P()))); };
  EXPECT_EQ(grad(f)(x).value().ToDoubles(), (std::vector<double>{8, 12, 8, 12}));
}

TEST_F(Acceptance, SeedA18ReshapeTypes) {
  set_mesh context(make_mesh({2, 2}, {"x", "y"}));
  const auto to = [](const Dims& shape) { return [shape](Array a) { return reshape(a, shape); }; };
  const Array a = Sharded(192, {4, 6, 8}, P("x", "y"));
  GivesSharded("A18 split", to({4, 2, 3, 8}), a);
  Refuses("A18 ragged", [&] { to({4, 3, 2, 8})(a); });
  GivesSharded("A18 merge", to({4}), Sharded(4, {2, 2}, P("x", "y")));
  Refuses("A18 both", [&] { to({3, 4})(Sharded(12, {12}, P({"x", "y"}))); });
  GivesSharded(
      "A18 given",
      [](Array v) {
        return reshape(v, {4, 3, 2, 8}, P("y", None, "x"));
      },
      a);
}

// Ops that move elements keep shardings where JAX does, and are refused where JAX refuses them.
TEST_F(Acceptance, SeedA19MovementTypes) {
  set_mesh context(make_mesh({2, 2}, {"x", "y"}));
  const Array row = Sharded(8, {8}, P("x")), square = Sharded(16, {4, 4}, P("x", "y"));
  const Array rows = Sharded(16, {4, 4}, P("x"));
  const auto padded = [](int64_t low, int64_t high) {
    return [=](Array a) { return lax::pad(a, 0, {low}, {high}); };
  };
  GivesSharded("A19 pad", padded(2, 2), row);
  Refuses("A19 pad uneven", [&] { padded(2, 3)(row); });
  const auto sliced = [](int64_t columns) {
    return [=](Array a) { return lax::slice(a, {0, 0}, {4, columns}); };
  };
  GivesSharded("A19 slice", sliced(2), square);
  Refuses("A19 slice uneven", [&] { sliced(3)(square); });
  const auto joined = [](Array a, Array b) { return concatenate({a, b}, 1); };
  GivesSharded("A19 concatenate", joined, square, square);
  Refuses("A19 concatenate mixed", [&] { joined(square, rows); });
  const auto summed = [](Array a) { return lax::cumsum(a, 1); };
  GivesSharded("A19 cumsum", summed, rows);
  Refuses("A19 cumsum cut", [&] { summed(square); });
  GivesSharded(
      "A19 argsort", [](Array a) { return argsort(a, 1); }, rows);
  Refuses("A19 argsort cut", [&] { argsort(row); });
  GivesSharded(
      "A19 argmax", [](Array a) { return argmax(a, 1); }, square);
  GivesSharded(
      "A19 sum", [](Array a) { return sum(a, 0); }, square);
}

// ---- A22, A23: reads and writes at sharded indices. ---------------------------------------------

PartitionSpec SpecOf(const Array& x) { return ir::SpecOf(x.type()); }

Array SeedF1(Array x, Array i, Array j) {
  const Array values = x.at({Slice{}, j}).get(SpecOf(i));
  return x.at({Slice{}, i}).set(values, SpecOf(x));
}
Array SeedF2(Array x, Array i, Array j) {
  return vmap([](Array xi, Array ii, Array ji) {
    return xi.at(ii).set(xi.at(ji).get(SpecOf(ii)));
  })(x, i, j);
}
template <class F>
auto GradientOf(F f) {
  return grad([f](Array x, Array i, Array j) {
    return sum((arange(1.0, 13.0, 1.0).reshape({4, 3})) * f(x, i, j));
  });
}

// Reads and writes at indices that are sharded themselves.
TEST_F(Acceptance, SeedA22ReadsAndWritesAtShardedIndices) {
  set_mesh context(make_mesh({2}, {"x"}));
  const Array x = Sharded(12, {4, 3}, P("x")), whole = Arange(12, {4, 3});
  const Array i = reshard(array<int32_t>({0, 1, 2, 0}), P("x"));
  const Array j = reshard(array<int32_t>({2, 0, 1, 2}), P("x"));
  GivesSharded(
      "A22 read",
      [](Array v, Array, Array at) {
        return v.at({Slice{}, at}).get(P("x"));
      },
      x, i, j);
  GivesSharded("A22", SeedF1, x, i, j);
  GivesSharded("A22 grad", GradientOf(SeedF1), x, i, j);
  GivesSharded(
      "A22 add",
      [](Array v, Array at) {
        return v.at({Slice{}, at}).add(1, SpecOf(v));
      },
      x, i);
  Refuses("A22 read alone", [&] { whole[{Slice{}, j}]; });
  {
    strict_sharding strict;
    Refuses("A22 write alone", [&] { whole.at({Slice{}, i}).set(1); });
  }
  GivesSharded("A23", SeedF2, x, i, j);
  GivesSharded("A23 grad", GradientOf(SeedF2), x, i, j);
}

// A write never changes the type of an array. A write that JAX refuses keeps the sharding by
// default, and reports that in a diagnostic.
TEST_F(Acceptance, SeedA22AWriteKeepsTheShardingByDefault) {
  set_mesh context(make_mesh({2}, {"x"}));
  const Array x = Sharded(12, {4, 3}, P("x"));
  const Array i = reshard(array<int32_t>({0, 1, 2, 0}), P("x"));
  const Array j = reshard(array<int32_t>({2, 0, 1, 2}), P("x"));
  const auto f1 = [](Array v, Array to, Array from) {
    return v.at({Slice{}, to}).set(v.at({Slice{}, from}).get(SpecOf(to)));
  };
  collect_diagnostics said;
  GivesSharded("A22", f1, x, i, j);
  ASSERT_EQ(said.list().size(), 2);
  for (const Diagnostic& d : said.list()) {
    EXPECT_THAT(d.message, HasSubstr("keeps the sharding of the array, f32[4@x,3]"));
    EXPECT_THAT(d.message, HasSubstr("set(..., out_sharding)"));
    EXPECT_THAT(std::string(d.site.file), HasSubstr("acceptance_test.cc"));
  }
}

// ---- Parts of a program with other types of axes. -----------------------------------------------

TEST_F(Acceptance, SeedAutoAxesLeavesItToThePlanner) {
  set_mesh context(make_mesh({2, 2}, {"x", "y"}));
  const Array a = Sharded(16, {8, 2}, P("x", "y")), w = Sharded(8, {2, 4}, P("y"));
  // The contracting dims are sharded on both sides, so Explicit axes would need an out_sharding.
  const auto f = [](Array x, Array y) {
    return auto_axes(
        [](Array u, Array v) {
          EXPECT_EQ(u.type().ToString(), "f32[8,2]");
          return matmul(u, v);
        },
        {}, P(None, "x"))(x, y);
  };
  GivesSharded("auto_axes", f, a, w);
  GivesSharded("auto_axes grad", grad<0, 1>([f](Array x, Array y) {
                 const Array z = f(x, y);
                 return sum(z * z);
               }),
               a, w);
  Refuses("auto_axes manual", [&] {
    shard_map([](Array v) { return auto_axes([](Array u) { return u; }, {"x"}, P())(v); },
              context_mesh(), {P("x")}, P("x"))(Sharded(8, {8}, P("x")));
  });
}

TEST_F(Acceptance, SeedExplicitAxesHaveShardingsInTypes) {
  set_mesh context(AutoMesh({2, 2}, {"x", "y"}));
  const auto f = [](Array x) {
    return explicit_axes(
        [](Array u) {
          EXPECT_EQ(u.type().ToString(), "f32[8@x,2]");
          return reshard(u, P(None, "y")) * 2;
        },
        {}, P("x"))(x);
  };
  // Outside explicit_axes the axes are Auto, and the planner places the results.
  ExpectRecorded("explicit_axes", flatten(f(Arange(16, {8, 2}))).leaves, /*placed=*/false);
  ExpectRecorded("explicit_axes", flatten(jit(f)(Arange(16, {8, 2}))).leaves, /*placed=*/false);
  Refuses("explicit_axes illegal", [&] {
    explicit_axes([](Array u) { return matmul(u, u.T()); }, {}, P("x"))(Arange(16, {8, 2}));
  });
}

// Functions that make arrays take a sharding, and wrong ones are refused.
TEST_F(Acceptance, SeedShardingsAreGivenWhereArraysAreMade) {
  set_mesh context(make_mesh({2, 2}, {"x", "y"}));
  const auto spec = [](Array v) { return AxesOf(v); };
  using ir::DimAxes;
  EXPECT_EQ(spec(zeros({4, 4}, kF32, P("x"))), (DimAxes{{"x"}, {}}));
  EXPECT_EQ(spec(ones({4, 4}, kF32, P(None, "y"))), (DimAxes{{}, {"y"}}));
  EXPECT_EQ(spec(arange(4, kS32, P({"x", "y"}))), (DimAxes{{"x", "y"}}));
  EXPECT_EQ(spec(one_hot(arange(4, kS32), 4, kF32, -1, P("x"))), (DimAxes{{"x"}, {}}));
  const Array a = Sharded(16, {4, 4}, P("x", "y"));
  GivesSharded(
      "einsum given",
      [](Array v) {
        return einsum("ij,kj->ki", {v, v}, {}, P("y", "x"));
      },
      a);
  GivesSharded(
      "take given",
      [](Array v, Array i) { return take(v, i, 0, lax::GatherScatterMode::kFillOrDrop, P("x")); },
      a, array<int32_t>({3, 0}));
  GivesSharded(
      "reduce_sum given", [](Array v) { return lax::reduce_sum(v, {0}, P("x")); }, a);
  Refuses("reshard unknown", [&] { reshard(a, P("q")); });
  Refuses("reshard uneven", [&] { reshard(Arange(3, {3}), P("x")); });
  {
    set_mesh other(AutoMesh({2, 2}, {"x", "y"}));
    Refuses("reshard auto", [&] { reshard(Arange(4, {4}), P("x")); });
  }
  {
    set_mesh other(make_mesh({4}, {"x"}));
    Refuses("mesh other", [&] { a + 1; });
  }
}

TEST_F(Acceptance, SeedReshardNeedsAMesh) {
  Refuses("reshard no mesh", [] { reshard(Arange(4, {4}), P("x")); });
}

// ---- A20: vmap over dims that are sharded over Explicit axes. -----------------------------------

TEST_F(Acceptance, SeedA20VmapTakesTheAxisAwayAndPutsItBack) {
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"});
  set_mesh context(mesh);
  const Array x = put(Arange(16, {8, 2}), mesh, P("x", "y")),
              whole = put(Arange(16, {8, 2}), mesh, P()), z = put(Arange(8, {8}), mesh, P("x"));
  const auto twice = [](Array a) { return a * 2; };
  const auto mapped = [](const PartitionSpec& spec) {
    return
        [=](Array a) { return shard_map([](Array b) { return b * 2; }, Mesh{}, {spec}, spec)(a); };
  };
  GivesSharded("A20 inside", vmap(twice), x);
  GivesSharded("A20 out_axes", vmap([](Array) { return zeros({4}); }, 0, -1), z);
  GivesSharded("A20 unmapped", vmap([](Array a, Array b) { return a * b; }, {0, None}), z,
               put(scalar(3.0f), mesh, P()));
  GivesSharded("A20 dot", vmap([](Array a, Array w) { return dot(a, w); }, {0, None}),
               put(Arange(16, {8, 2}), mesh, P("x")), put(Arange(6, {2, 3}), mesh, P()));
  GivesSharded("A20 shard_map", vmap(mapped(P("y"))), x);
  const auto add = [](Array a, Array b) { return a + b; };
  Refuses("A20 differ", [&] { vmap(add)(x, whole); });
  Refuses("A20 unmapped sharded", [&] { vmap(add, {None, 0})(z, x); });
  Refuses("A20 spmd", [&] { vmap(twice, 0, 0, {.spmd_axis_name = {"y"}})(x); });
  Refuses("A20 shard_map used", [&] { vmap(mapped(P("x")))(x); });
}

// ---- A24: pmap. ---------------------------------------------------------------------------------

TEST_F(Acceptance, SeedA24PmapIsShardMapOfElements) {
  const Mesh four = AutoMesh({4}, {"i"}), two = AutoMesh({2}, {"i"});
  const Array x = Arange(4, {4});
  Gives("A24 share", pmap([](Array a) { return a / lax::psum(a, "i"); }, "i"), four, {P("i")}, x);
  Gives("A24 in_axes",
        pmap([](Array a, Array b) { return std::pair(a + b, b * 2); }, "i", {.in_axes = {0, None}}),
        two, {P("i"), P()}, Arange(2, {2}), scalar(4.0f));
  const auto inside = [](Array a) {
    return grad([&](Array p) { return lax::psum(p * a, "i"); })(ones_like(a));
  };
  Gives("A24 grad inside", pmap(inside, "i"), four, {P("i")}, x + 1);
  const auto weigh = pmap([](Array a) { return a * lax::psum(a, "i"); }, "i");
  Gives("A24 grad outside", grad([=](Array y) { return sum(weigh(y)); }), four, {P("i")}, x);
  Gives("A24 axes", pmap([](Array a) { return a * 2; }, "i", {.in_axes = 1, .out_axes = 1}), four,
        {P(None, "i")}, Arange(8, {2, 4}));
  Gives("A24 out_axes none",
        pmap([](Array a) { return lax::psum(a, "i"); }, "i", {.out_axes = None}), four, {P("i")},
        x);
}

TEST_F(Acceptance, SeedA24PmapChoosesDevicesAndCompilesOnce) {
  std::vector<int64_t> backwards = AutoMesh({4}, {"i"}).devices;
  std::reverse(backwards.begin(), backwards.end());
  const auto on =
      pmap([](Array a) { return a + lax::axis_index("i"); }, "i", {.devices = backwards});
  const Array y = on(Arange(4, {4}));
  ExpectRecorded("A24 devices", {y});
  on(Arange(4, {4}) * 2);
  EXPECT_EQ(on.num_compiled(), 1);
  const Array again = on(y);  // the elements are already on their devices
  EXPECT_EQ(again.value().ToDoubles(), (std::vector<double>{0, 3, 6, 9}));
  EXPECT_EQ(on.num_compiled(), 2);
  const auto donates = pmap([](Array a, Array b) { return a + b; }, "i", {.donate_argnums = {0}});
  const Array given = on(Arange(4, {4}));
  donates(given, y).value();
  EXPECT_EQ(testing::ErrorOf([&] { given.value(); }).kind(), ErrorKind::kArrayDeleted);
}

TEST_F(Acceptance, SeedA24PmapRefuses) {
  const Array x = Arange(4, {4});
  const auto id = [](Array a) { return a; };
  const std::vector<int64_t> four = AutoMesh({4}, {"i"}).devices;
  Refuses("A24 too many", [&] { pmap(id, "i", {.devices = four})(Arange(5, {5})); });
  Refuses("A24 sizes", [&] { pmap([](Array a, Array) { return a; }, "i")(x, Arange(3, {3})); });
  Refuses("A24 nested", [&] {
    pmap([&](Array row) { return pmap(id, "j")(row); }, "i")(ones({2, 2}));
  });
  Refuses("A24 unknown", [&] { pmap([](Array a) { return lax::psum(a, "q"); }, "i")(x); });
  const auto of_pair = [](const std::pair<std::pair<Array, Array>, Array>&, Array a) { return a; };
  Refuses("A24 prefix", [&] {
    pmap(of_pair, "i", {.in_axes = {{0, 0, 0}, 0}})(std::pair(std::pair(x, x), x), x);
  });
  Refuses("A24 none", [&] { pmap(id, "i", {.in_axes = None})(x); });
  Refuses("A24 axis_size", [&] { pmap(id, "i", {.axis_size = 2})(x); });
  Refuses("A24 no devices", [&] { pmap(id, "i", {.devices = std::vector<int64_t>{}})(x); });
}

// This test comes last: a recorded program that no C++ test compares would be an unchecked promise.
TEST_F(Acceptance, SeedZEveryRecordedCaseIsCompared) {
  if (::testing::GTEST_FLAG(filter) != "*") GTEST_SKIP() << "only part of the suite runs";
  EXPECT_THAT(Recorded().Unused(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tessera
