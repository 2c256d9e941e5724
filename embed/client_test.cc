// Proves the promises of the client's API, which must hold for every kind of session.
//
// The tests run on the embedded cluster. If TESSERA_SUITE_ADDRESS names a coordinator with at least
// four CPU devices, they also run on that one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "client/tessera.h"
#include "client/testing/evaluated.h"

namespace tessera {

struct Pair {
  Array a, b;
};
TESSERA_TREE(Pair, a, b)

namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the clusters on which the tests run: "embedded" and, if there is one, an address.
std::vector<std::string> Clusters() {
  std::vector<std::string> out = {"embedded"};
  if (const char* address = std::getenv("TESSERA_SUITE_ADDRESS")) out.push_back(address);
  return out;
}

// Returns a function whose runs end only when they are cancelled: the loop would take hours on any
// machine.
auto Endless() {
  return jit([](Array v) {
    return scan([](Array c, NoneType) { return std::make_pair(sin(c), std::tuple<>()); }, v, None,
                {.length = 1'000'000'000'000})
        .first;
  });
}

class ClientTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    files_ = ::testing::TempDir() + "tessera-client-" + std::to_string(getpid());
    std::filesystem::create_directories(files_);
    EmbeddedOptions embedded;
    embedded.devices = 4;
    embedded.files_dir = files_;
    session_ =
        GetParam() == "embedded" ? Session::Embedded(embedded) : Session::Connect(GetParam());
    Session::SetDefault(session_);
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    std::error_code ignored;
    std::filesystem::remove_all(files_, ignored);
  }

  static Mesh AutoMesh(const std::vector<int64_t>& shape, const std::vector<std::string>& names) {
    return make_mesh(shape, names, std::vector<AxisType>(names.size(), AxisType::kAuto));
  }
  std::shared_ptr<Session> session_;
  std::string files_;  // folder of files of the embedded cluster
};

INSTANTIATE_TEST_SUITE_P(Clusters, ClientTest, ::testing::ValuesIn(Clusters()),
                         [](const auto& info) {
                           return info.param == "embedded" ? "Embedded" : "Remote";
                         });

std::vector<float> Iota(int n) {
  std::vector<float> out(n);
  for (int i = 0; i < n; ++i) out[i] = static_cast<float>(i);
  return out;
}

TEST_P(ClientTest, AnExplanationNamesArgumentsAndResultsByTheirPaths) {
  const Mesh mesh = AutoMesh({4}, {"x"});
  const auto f = jit([](const std::vector<Pair>& blocks, const Array& x) {
    Pair out{x, x};
    for (const Pair& p : blocks) out.a = out.a + p.a + p.b;
    return std::pair(out, sum(x));
  });
  const Array cut = put(ir::Array(kF32, {8}), mesh, P("x"));
  const Array whole = put(ir::Array(kF32, {8}), mesh, P());
  const std::string text = explain(f, std::vector<Pair>(3, {cut, whole}), whole);
  EXPECT_THAT(text, HasSubstr("\n  args[0][0..2].a (3): f32[8] P('x') 8 B a device\n"));
  EXPECT_THAT(text, HasSubstr("\n  args[0][0..2].b, args[1] (4): f32[8] P(None) 32 B a device\n"));
  EXPECT_THAT(text, HasSubstr("result[0].a"));
  EXPECT_THAT(text, HasSubstr("result[1]: f32[] P() 4 B a device"));
  // An equal program with other argument names has an explanation of its own.
  const auto g = jit([](const Array& a, const Array& b) { return a + b; });
  const auto h = jit([](const Pair& p) { return p.a + p.b; });
  EXPECT_THAT(explain(g, cut, cut), HasSubstr("  args[0..1] (2): f32[8] P('x')"));
  EXPECT_THAT(explain(h, Pair{cut, cut}), HasSubstr("  args[0].a, args[0].b (2): f32[8] P('x')"));
}

TEST_P(ClientTest, AnErrorNamesTheArgumentByItsPath) {
  const Array x = array<float>({1, 2});
  const auto f = jit([](const Pair& p) { return p.a + p.b; });
  Array gone = array<float>({3, 4});
  gone.Delete();
  EXPECT_THAT(
      ErrorOf([&] {
        f(Pair{x, gone});
      }).what(),
      AllOf(HasSubstr("args[0].b: Array has been deleted or donated"), HasSubstr("f32[2]")));
}

TEST_P(ClientTest, OpsOutsideAnyTransformRun) {
  const Array x = array<float>({1, 2, 3});
  EXPECT_THAT((x * x + 1).get<float>(), ElementsAre(2, 5, 10));
  EXPECT_EQ(sum(x).item<float>(), 6);
  EXPECT_THAT(array<int32_t>({5, -3}).get<int32_t>(), ElementsAre(5, -3));
  EXPECT_THAT(x.to_string(), HasSubstr("f32[3]"));
}

TEST_P(ClientTest, JitCompilesOncePerTypesAndStaticValues) {
  int traces = 0;
  const auto f = jit([&](Array x, int n) {  // An int parameter of the function is static.
    ++traces;
    return x * n;
  });
  EXPECT_THAT(f(array<float>({1, 2}), 3).get<float>(), ElementsAre(3, 6));
  EXPECT_THAT(f(array<float>({4, 5}), 3).get<float>(), ElementsAre(12, 15));
  EXPECT_EQ(traces, 1);
  EXPECT_THAT(f(array<float>({4, 5}), 2).get<float>(), ElementsAre(8, 10));
  EXPECT_EQ(traces, 2);
  EXPECT_THAT(f(array<float>({1, 2, 3}), 2).get<float>(), ElementsAre(2, 4, 6));
  EXPECT_EQ(traces, 3);
  EXPECT_EQ(f.num_compiled(), 3);
}

TEST_P(ClientTest, AnotherDefaultPrecisionCompilesAgain) {
  const auto f = jit([](Array x) { return matmul(x, x); });
  const Array x = array<float>({1, 2, 3, 4}, {2, 2});
  const std::vector<float> expected = {7, 10, 15, 22};
  EXPECT_EQ(f(x).get<float>(), expected);
  {
    const default_matmul_precision exact("highest");
    EXPECT_EQ(f(x).get<float>(), expected);
    EXPECT_EQ(f.num_compiled(), 2);
  }
  EXPECT_EQ(f(x).get<float>(), expected);
  EXPECT_EQ(f.num_compiled(), 2);
}

TEST_P(ClientTest, NumbersPassedAsArraysAreTraced) {
  int traces = 0;
  const auto f = jit([&](Array x, const Arg& a, auto b) {
    ++traces;
    return x * a + b;
  });
  const Array x = array<float>({1, 2});
  for (int i = 0; i < 30; ++i) {
    EXPECT_THAT(f(x, i, 0.5 * i).get<float>(), ElementsAre(1.5f * i, 2.5f * i));
  }
  EXPECT_EQ(traces, 1);
  EXPECT_EQ(f.num_compiled(), 1);
  // The numbers y and scale are traced; the number n, which the function declares as int, is
  // static.
  const auto power = jit([&](auto y, int n, auto scale) {
    Array product = y;
    for (int i = 1; i < n; ++i) product = product * y;
    return product * scale;
  });
  for (int i = 0; i < 6; ++i) {
    EXPECT_THAT(power(x, 2 + i % 2, i).get<float>(), ElementsAre(i, i * (i % 2 ? 8 : 4)));
  }
  EXPECT_EQ(power.num_compiled(), 2);
  // Integers and real numbers have different types, and so do narrow and wide integers. A bool has
  // a type of its own.
  const auto twice = jit([](const Arg& v) { return v + v; });
  EXPECT_EQ(twice(3).item<int64_t>(), 6);
  EXPECT_EQ(twice(int64_t{1} << 40).item<int64_t>(), int64_t{1} << 41);
  EXPECT_EQ(twice(0.25).item<double>(), 0.5);
  EXPECT_EQ(twice(-7L).item<int64_t>(), -14);
  EXPECT_EQ(twice(true).type().ToString(), "bool[]");
  EXPECT_EQ(twice.num_compiled(), 4);
  EXPECT_EQ(ErrorOf([&] { twice(uint64_t{1} << 63); }).reason(), "VALUE_ERROR");
}

TEST_P(ClientTest, NumbersAreWeaklyTyped) {
  const auto product = jit([](Array x, Array s) { return x * s; });
  const auto lax_product = jit([](Array x, Array s) { return lax::mul(x, s); });
  struct Row {
    DType dtype;
    const char *with_int, *with_real;  // the types that JAX gives
  };
  for (const Row& row : {Row{kBF16, "bf16[2]", "bf16[2]"}, Row{kF32, "f32[2]", "f32[2]"},
                         Row{kF64, "f64[2]", "f64[2]"}, Row{kS32, "s32[2]", "f32[2]~"},
                         Row{kS64, "s64[2]", "f32[2]~"}, Row{kU32, "u32[2]", "f32[2]~"},
                         Row{kBool, "s32[2]~", "f32[2]~"}}) {
    const Array x = array<float>({1, 1}, {2}, row.dtype);
    const Array by_int = product(x, 3), by_real = product(x, 1.5);
    EXPECT_EQ(by_int.type().ToString(), row.with_int);
    EXPECT_THAT(by_int.get<double>(), ElementsAre(3, 3)) << row.with_int;
    EXPECT_EQ(by_real.type().ToString(), row.with_real);
    EXPECT_THAT(by_real.get<double>(), ElementsAre(1.5, 1.5)) << row.with_real;
    if (row.dtype != kBool) {
      EXPECT_EQ(lax_product(x, 3).type().ToString(), row.with_int);
    }
    if (ir::IsFloat(row.dtype)) {
      EXPECT_EQ(lax_product(x, 1.5).type().ToString(), row.with_real);
    }
  }
  // A result that was computed from numbers alone is weakly typed too, and stays so as an argument
  // of later ops.
  const Array s = jit([](const Arg& v) { return exp(v) / 2 + where(v > 2, v, 1); })(3);
  EXPECT_EQ(s.type().ToString(), "f32[]~");
  EXPECT_EQ((array<float>({1}, {1}, kBF16) * s).dtype(), kBF16);
  EXPECT_EQ(s.astype(kF32).type().ToString(), "f32[]");
  // Beside 64-bit arrays, no digit is lost.
  EXPECT_EQ(product(array<double>({1}), 0.1).item<double>(), 0.1);
}

TEST_P(ClientTest, NumbersArePlacedOnTheMeshOfTheProgram) {
  const Mesh mesh = AutoMesh({2, 2}, {"x", "y"});
  ir::Array host(kF32, {4, 6});
  for (int i = 0; i < 24; ++i) host.Set(i, i);
  const auto f = jit([](Array x, Array s) { return std::make_pair(sum(x) * s, x * s); },
                     {.name = "", .donate_argnums = {1}, .in_shardings = {}, .out_shardings = {}});
  const Array x = put(host, mesh, P("x", "y"));
  for (int i = 1; i < 4; ++i) {
    const auto [total, scaled] = f(x, i);
    EXPECT_EQ(total.item<float>(), 276.0f * i);
    EXPECT_EQ(scaled[3].get<float>()[5], 23.0f * i);
  }
  EXPECT_EQ(f.num_compiled(), 1);
  // The function also runs on a session that is not the default one.
  Session::SetDefault(nullptr);
  EXPECT_EQ(f(x, 5).first.item<float>(), 276.0f * 5);
  Session::SetDefault(session_);
}

TEST_P(ClientTest, TransformsTraceNumbersAsJitDoes) {
  const auto cube = [](auto v) { return v * v * v; };
  EXPECT_EQ(grad(cube)(3.0).item<float>(), 27);
  const auto gradient = jit(grad([](Array x, Array s, int n) { return sum(x * s) * n; }));
  const Array x = array<float>({1, 2});
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(gradient(x, i, 2).get<float>(), ElementsAre(2 * i, 2 * i));
  }
  EXPECT_EQ(gradient.num_compiled(), 1);
  const auto [y, dy] = jvp(cube, std::tuple(2.0), std::tuple(1.0));
  EXPECT_EQ(y.item<float>(), 8);
  EXPECT_EQ(dy.item<float>(), 12);
  EXPECT_EQ(std::get<0>(vjp(cube, 2.0).second(scalar(1.0f))).item<float>(), 12);
  EXPECT_EQ(linearize(cube, 2.0).second(scalar(1.0f)).item<float>(), 12);
  EXPECT_EQ(
      std::get<0>(linear_transpose([](Array v) { return v * 3; }, 1.0)(scalar(2.0f))).item<float>(),
      6);
  const Error e = ErrorOf([&] { grad(cube)(3); });
  EXPECT_THAT(e.what(), HasSubstr("requires real- or complex-valued inputs"));
  // Inside a trace, numbers are constants of the trace.
  const auto outer = jit([&](Array v) { return jit(cube)(2) * v + grad(cube)(1.0); });
  EXPECT_THAT(outer(x).get<float>(), ElementsAre(11, 19));
  EXPECT_TRUE(trace([&](Array v) { return jit(cube)(2) * v; }, x).captures.empty());
}

TEST_P(ClientTest, ConcreteCapturesAreHiddenArguments) {
  const Array w = array<float>({10, 20});
  const auto f = jit([w](Array x) { return x * w; });
  EXPECT_THAT(f(array<float>({1, 2})).get<float>(), ElementsAre(10, 40));
  EXPECT_THAT(f(array<float>({3, 4})).get<float>(), ElementsAre(30, 80));
  const auto traced = trace([w](Array x) { return x * w; }, array<float>({1, 2}));
  EXPECT_EQ(traced.captures.size(), 1u);
}

TEST_P(ClientTest, TreesGoThroughJit) {
  const auto f = jit([](const Pair& p) { return std::make_pair(Pair{p.b, p.a}, sum(p.a)); });
  const auto [swapped, total] = f(Pair{array<float>({1, 2}), array<float>({3})});
  EXPECT_THAT(swapped.a.get<float>(), ElementsAre(3));
  EXPECT_EQ(total.item<float>(), 3);
}

TEST_P(ClientTest, PutShardsAnArrayAndGetAssemblesIt) {
  const Mesh mesh = AutoMesh({2, 2}, {"x", "y"});
  const Array a = put(ir::Array::Of(kF32, {4, 4}, std::vector<double>(16, 0)), mesh, P("x", "y"));
  EXPECT_EQ(a.devices().size(), 4u);
  ir::Array host(kF32, {4, 6});
  for (int i = 0; i < 24; ++i) host.Set(i, i);
  for (const PartitionSpec& spec : {P("x", "y"), P("y", "x"), P({"x", "y"}), P(None, "y"), P()}) {
    const Array b = put(host, mesh, spec);
    EXPECT_EQ(b.value(), host) << spec.ToString();
  }
  const Array b = put(host, mesh, P("x", "y"));
  EXPECT_THAT(b.shard(3).ToDoubles(), ElementsAre(15, 16, 17, 21, 22, 23));
}

TEST_P(ClientTest, ArraysMoveBetweenDevicesWithoutPassingThroughTheClient) {
  std::atomic<int64_t> moved{0};  // bytes of arrays moved between this process and the devices
  if (GetParam() != "embedded") {
    ConnectOptions options;
    options.on_bytes = [&moved](int64_t bytes) {
      moved += bytes;
      return true;
    };
    session_ = Session::Connect(GetParam(), options);
    Session::SetDefault(session_);
  }
  ir::Array host(kF32, {8, 6});
  for (int i = 0; i < 48; ++i) host.Set(i, i);
  const Mesh all = AutoMesh({4}, {"x"}), square = AutoMesh({2, 2}, {"x", "y"});
  Mesh two = AutoMesh({2}, {"y"});
  two.devices = {3, 1};
  const Array source = put(host, all, P("x"));
  const int64_t uploaded = moved;
  EXPECT_EQ(uploaded, GetParam() == "embedded" ? 0 : host.num_bytes());
  std::vector<Array> made;
  for (const auto& [mesh, spec] :
       std::vector<std::pair<Mesh, PartitionSpec>>{{all, P()},
                                                   {all, P("x")},
                                                   {square, P("y", "x")},
                                                   {square, P(None, "y")},
                                                   {two, P("y")},
                                                   {two, P(None, "y")}}) {
    made.push_back(put(source, mesh, spec));
    made.push_back(put(made.back(), all, P("x")));
    EXPECT_EQ(made[made.size() - 2].sharding(), spec);
    EXPECT_EQ(made[made.size() - 2].devices(), mesh.devices);
  }
  for (const Array& a : made) a.wait();
  EXPECT_EQ(moved, uploaded) << "bytes have come by here";
  for (const Array& a : made) EXPECT_EQ(a.value(), host) << a.sharding().ToString();
  Array gone = put(source, two, P());
  gone.Delete();
  EXPECT_EQ(ErrorOf([&] { put(gone, all, P("x")); }).reason(), "ARRAY_DELETED");
  EXPECT_EQ(ErrorOf([&] { put(source, two, P("x")); }).reason(), "UNKNOWN_AXIS");
  EXPECT_EQ(ErrorOf([&] { put(put(ir::Array(kF32, {3})), two, P("y")); }).reason(), "INDIVISIBLE");
  Mesh none = two;
  none.devices = {0, 99};
  EXPECT_EQ(ErrorOf([&] { put(source, none, P("y")); }).reason(), "NOT_ENOUGH_DEVICES");
}

TEST_P(ClientTest, ProgressOfRelayedScalarsIsReported) {
  if (GetParam() == "embedded") GTEST_SKIP() << "nothing moves";
  std::atomic<int64_t> moved{0};
  std::atomic<bool> enough{false};
  ConnectOptions options;
  options.on_bytes = [&](int64_t bytes) {
    moved += bytes;
    return !enough;
  };
  session_ = Session::Connect(GetParam(), options);
  Session::SetDefault(session_);
  const Mesh mesh = AutoMesh({2, 2}, {"x", "y"});
  const Array s = put(ir::Array::Scalar(kF64, 0.1), mesh, P());
  EXPECT_EQ(moved, 8) << "once, to four devices";
  for (int k = 0; k < 4; ++k) EXPECT_EQ(s.shard(k).ToDoubles(), std::vector<double>{0.1});
  EXPECT_EQ(scalar<bool>(true).item<int>(), 1);
  enough = true;
  EXPECT_EQ(ErrorOf([&] { scalar(1); }).status().code(), absl::StatusCode::kCancelled);
}

TEST_P(ClientTest, TreesAreSavedAndLoaded) {
  const std::string folder = "suite-" + std::to_string(getpid()) + "/";
  const std::string path = folder + "tree.safetensors";
  const Mesh mesh = AutoMesh({2, 2}, {"x", "y"});
  ir::Array a(kF32, {4, 6}), b(kS32, {8});
  for (int i = 0; i < 24; ++i) a.Set(i, i);
  for (int i = 0; i < 8; ++i) b.Set(i, -i);
  using Tree = std::map<std::string, std::vector<Pair>>;
  const Tree tree = {{"layers", {Pair{put(a, mesh, P("x", "y")), put(b)}, Pair{put(a), put(b)}}}};
  save(tree, path);
  const std::vector<SavedArray> file = saved_arrays(path);
  ASSERT_EQ(file.size(), 4u);
  EXPECT_EQ(file[0].name, "['layers'][0].a");
  EXPECT_EQ(file[3].name, "['layers'][1].b");
  EXPECT_EQ(file[0].dtype, kF32);
  EXPECT_EQ(file[0].shape, (Dims{4, 6}));

  const Tree same = load(tree, path);
  EXPECT_EQ(same.at("layers")[0].a.value(), a);
  EXPECT_EQ(same.at("layers")[0].a.sharding(), P("x", "y"));
  EXPECT_EQ(same.at("layers")[1].b.value(), b);
  const Pair types{abstract({4, 6}), abstract({8}, kS32)};
  const Tree like = {{"layers", {types, types}}};
  const Tree other = load(like, path, mesh, {{{P("y"), P({"x", "y"})}, None}});
  EXPECT_EQ(other.at("layers")[0].a.value(), a);
  EXPECT_EQ(other.at("layers")[0].a.sharding(), P("y"));
  EXPECT_EQ(other.at("layers")[0].b.shard(3).ToDoubles(), (std::vector<double>{-6, -7}));
  EXPECT_EQ(other.at("layers")[1].b.value(), b);
  // Loaded arrays may be used before loading has finished.
  EXPECT_EQ(sum(load(tree, path).at("layers")[1].b).item<int32_t>(), -28);

  EXPECT_EQ(ErrorOf([&] { save(tree, path); }).reason(), "ALREADY_EXISTS");
  save(Pair{put(b), put(b)}, path, {.overwrite = true});
  EXPECT_EQ(saved_arrays(path).size(), 2u);
  EXPECT_THAT(ErrorOf([&] { load(tree, path); }).what(), HasSubstr("it holds a, b"));
  EXPECT_EQ(ErrorOf([&] { load(types, path); }).reason(), "TYPE_ERROR");
  EXPECT_EQ(ErrorOf([&] { load(types, folder + "no.safetensors"); }).reason(), "FILE_NOT_FOUND");
  EXPECT_EQ(ErrorOf([&] { save(tree, "../tree.safetensors"); }).reason(), "VALUE_ERROR");
  EXPECT_EQ(ErrorOf([&] { save(std::vector<Array>(), path); }).reason(), "VALUE_ERROR");
  EXPECT_EQ(ErrorOf([&] { save(types, path); }).reason(), "TYPE_ERROR");
  save(put(a), folder + "one.npy");
  EXPECT_EQ(load(abstract({4, 6}), folder + "one.npy").value(), a);
  save(put(a), folder + "one.safetensors");
  EXPECT_EQ(saved_arrays(folder + "one.safetensors")[0].name, "array");
}

TEST_P(ClientTest, PutRefusesShardingsThatDoNotFitTheArray) {
  const Mesh mesh = AutoMesh({2}, {"x"});
  const ir::Array host(kF32, {5});
  EXPECT_EQ(ErrorOf([&] { put(host, mesh, P("x")); }).reason(), "INDIVISIBLE");
  EXPECT_EQ(ErrorOf([&] { put(host, mesh, P("q")); }).reason(), "UNKNOWN_AXIS");
  EXPECT_EQ(ErrorOf([&] { put(host, mesh, P(None, "x")); }).reason(), "VALUE_ERROR");
  EXPECT_EQ(ErrorOf([&] { make_mesh({1 << 20}, {"x"}); }).reason(), "NOT_ENOUGH_DEVICES");
}

TEST_P(ClientTest, PlacementChangesNoIntegerResult) {
  const Mesh mesh = AutoMesh({2, 2}, {"x", "y"});
  ir::Array host(kS32, {8, 8});
  for (int i = 0; i < 64; ++i) host.Set(i, i % 13 - 6);
  const auto f =
      jit([](Array a, Array b) { return std::make_pair(sum(a * b, 0), argmax(a + b, 1)); });
  const auto want = f(put(host), put(host));
  for (const PartitionSpec& sa : {P("x"), P("x", "y"), P(None, {"x", "y"}), P()}) {
    for (const PartitionSpec& sb : {P("y"), P("y", "x")}) {
      const auto got = f(put(host, mesh, sa), put(host, mesh, sb));
      EXPECT_EQ(got.first.value(), want.first.value()) << sa.ToString() << sb.ToString();
      EXPECT_EQ(got.second.value(), want.second.value()) << sa.ToString() << sb.ToString();
    }
  }
}

TEST_P(ClientTest, AMatmulMayHaveAShardedContraction) {
  const Mesh mesh = AutoMesh({4}, {"k"});
  const Array a = put(ir::Array::Of(kF32, {2, 4}, std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}),
                      mesh, P(None, "k"));
  const Array b =
      put(ir::Array::Of(kF32, {4, 2}, std::vector<double>{1, 0, 0, 1, 1, 0, 0, 1}), mesh, P("k"));
  const auto f = jit([](Array x, Array y) { return matmul(x, y); });
  EXPECT_THAT(f(a, b).get<float>(), ElementsAre(2, 4, 10, 12));
  EXPECT_THAT(explain(f, a, b), HasSubstr("psum"));
}

TEST_P(ClientTest, SummandsAreReadByShardAndAddedUpOnDevices) {
  const Mesh mesh = make_mesh({4}, {"x"});
  set_mesh context(mesh);
  const auto as_unreduced = jit([&](Array a) {
    return shard_map([](Array b) { return lax::pcast(b, "x", "unreduced"); }, mesh, {P("x")},
                     unreduced("x"))(a);
  });
  const Array t = as_unreduced(put(array<float>({1, 2, 3, 4}), mesh, P("x")));
  EXPECT_EQ(t.type().ToString(), "f32[1]{U:x}");
  EXPECT_EQ(t.sharding().ToString(), "P(None, unreduced={'x'})");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(t.shard(i).ToDoubles(), std::vector<double>{i + 1.0}) << i;
  // A small result normally comes back with the end of its run and is then read without another
  // call. The shards of a pending sum must not be read as such a result.
  const Error whole = ErrorOf([&] { t.value(); });
  EXPECT_EQ(whole.reason(), "VALUE_ERROR");
  EXPECT_THAT(whole.what(), HasSubstr("terms of a sum"));
  EXPECT_THAT(ErrorOf([&] { save(std::vector{t}, "unreduced.safetensors"); }).what(),
              HasSubstr("terms of a sum"));
  const Error moved = ErrorOf([&] { put(t, make_mesh({2}, {"x"}), P()); });
  EXPECT_EQ(moved.reason(), "NOT_IMPLEMENTED");
  EXPECT_THAT(moved.what(), HasSubstr("are not moved to another mesh"));
  // As an argument, the array is added up, or each summand is kept on its device.
  EXPECT_EQ(put(t, mesh, P()).value().ToDoubles(), std::vector<double>{10});
  EXPECT_EQ(jit([](Array u) { return reshard(u + u, P()); })(t).value().ToDoubles(),
            std::vector<double>{20});
  EXPECT_EQ(jit([](Array u) { return u; })(t).shard(2).ToDoubles(), std::vector<double>{3});
}

TEST_P(ClientTest, ExplainShowsThePredictedTimeAndTheLastRun) {
  const Mesh mesh = AutoMesh({2}, {"x"});
  const Array a = put(ir::Array::Of(kF32, {4}, std::vector<double>{0, 1, 2, 3}), mesh, P("x"));
  const auto f = jit([](Array x) { return sum(x * x); });
  EXPECT_THAT(explain(f, a), AllOf(HasSubstr("predicted time: "), HasSubstr("GFLOP/s"),
                                   Not(HasSubstr("last run"))));
  EXPECT_EQ(f(a).get<float>()[0], 14);
  const api::CompileReply plan = f.Explain(a);
  EXPECT_THAT(plan.explain_text, ContainsRegex("\npredicted [0-9.]+ .?s, last run [0-9.]+ .?s\n"));
  EXPECT_THAT(plan.explain_json, HasSubstr("\"last_run_seconds\": "));
}

TEST_P(ClientTest, ExplainsForAbsentDevices) {
  const AbsentDevices absent{
      abstract_mesh({64, 8}, {"data", "model"}, {AxisType::kAuto, AxisType::kAuto}),
      int64_t{1} << 30};
  JitOptions options;
  options.in_shardings = {P("data", "model"), P("model")};
  const auto f = jit([](Array x, Array w) { return matmul(x, w); }, options);
  const Array x = abstract({8192, 1024}), w = abstract({1024, 512});
  EXPECT_THAT(explain(absent, f, x, w),
              AllOf(HasSubstr("(data=64, model=8), for absent devices"), HasSubstr("psum[model]"),
                    HasSubstr(" B of 1073741824 B (arguments")));
  const api::CompileReply plan = f.ExplainFor(absent, x, w);
  EXPECT_EQ(plan.executable, 0u);
  EXPECT_GE(plan.memory_bound_bytes, 4 * (128 * 128 + 128 * 512 + 128 * 512));
  EXPECT_LT(plan.memory_bound_bytes, 1 << 20);
  // Existing arrays may be given too; only their types are used.
  EXPECT_THAT(explain(absent, jit([](Array a) { return a + a; }), put(ir::Array(kF32, {4}))),
              HasSubstr("absent"));
  AbsentDevices small = absent;
  small.memory_bytes = plan.memory_bound_bytes - 1;
  EXPECT_EQ(ErrorOf([&] { explain(small, f, x, w); }).reason(), "OUT_OF_MEMORY");
  small.memory_bytes = 0;
  EXPECT_EQ(ErrorOf([&] { explain(small, f, x, w); }).reason(), "VALUE_ERROR");
  EXPECT_EQ(ErrorOf([&] {
              explain(AbsentDevices{make_mesh({2}, {"x"}), 1}, f, x, w);
            }).reason(),
            "VALUE_ERROR");
  EXPECT_EQ(f.num_compiled(), 0);
}

// ---- Ahead of time. -----------------------------------------------------------------------------

TEST_P(ClientTest, AFunctionCompiledAheadRunsAndReportsItsCosts) {
  const Mesh mesh = AutoMesh({4}, {"x"});
  const Array x = put(array<float>(Iota(64 * 32), {64, 32}), mesh, P("x")),
              w = put(array<float>(Iota(32 * 16), {32, 16}), mesh, P());
  const auto f = jit([](Array a, Array b) { return std::pair(sum(matmul(a, b), {0}), a); });
  const auto lowered = f.lower(x, w);
  EXPECT_THAT(lowered.as_text(), AllOf(HasSubstr("mesh (x=4)"), HasSubstr("dot_general"),
                                       Not(HasSubstr("client_test.cc:"))));
  EXPECT_THAT(lowered.as_text(/*debug_info=*/true), HasSubstr("client_test.cc:"));
  EXPECT_EQ(lowered.out_info().first.type().ToString(), "f32[16]");
  EXPECT_FALSE(lowered.out_info().first.is_concrete());
  EXPECT_EQ(f.num_compiled(), 0);

  const auto compiled = lowered.compile();
  EXPECT_EQ(compiled(x, w).first.get<float>(), f(x, w).first.get<float>());
  const stages::CompiledMemoryStats memory = compiled.memory_analysis();
  EXPECT_EQ(memory.argument_size_in_bytes, 4 * (16 * 32 + 32 * 16));
  EXPECT_EQ(memory.output_size_in_bytes, 4 * (16 + 16 * 32));
  EXPECT_EQ(memory.alias_size_in_bytes, 0);
  EXPECT_GE(memory.temp_size_in_bytes, 4 * 16 * 16) << "the product of a device";
  EXPECT_EQ(
      memory.peak_memory_in_bytes,
      memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes);
  const stages::CostAnalysis cost = compiled.cost_analysis();
  EXPECT_GE(cost.flops, 2 * 16 * 32 * 16);
  EXPECT_LT(cost.flops, 2 * 17 * 32 * 16) << "more than one device counts";
  EXPECT_GE(cost.bytes_accessed, 4 * (16 * 32 + 32 * 16 + 16));
  EXPECT_EQ(cost.bytes_sent, 2 * 3 * 4 * 16 / 4) << "the psum of 16 sums";
  EXPECT_GT(cost.optimal_seconds, 0);
  EXPECT_THAT(compiled.as_text(), HasSubstr("psum[x] 96 B"));
  EXPECT_EQ(compiled.input_shardings()[0].ToString(), "P('x', None)");
  EXPECT_EQ(compiled.input_shardings()[1].ToString(), "P(None, None)");
  EXPECT_EQ(compiled.output_shardings()[1].ToString(), "P('x', None)");
  EXPECT_EQ(compiled.out_info().second.type().ToString(), "f32[64,32]");
}

TEST_P(ClientTest, AFunctionIsCompiledAheadForTypesInPlaceOfArrays) {
  const Mesh mesh = AutoMesh({4}, {"x"});
  set_mesh context(mesh);
  JitOptions options;
  options.in_shardings = {P("x"), P()};
  const auto f = jit([](Pair p, Array n) { return p.a * p.b + n; }, options);
  const auto compiled = f.lower(Pair{abstract({8}), abstract({8})}, abstract({})).compile();
  const Array x = put(array<float>(Iota(8)), mesh, P("x"));
  EXPECT_THAT(compiled(Pair{x, x}, array<float>({2}, Dims{})).get<float>(),
              ElementsAre(2, 3, 6, 11, 18, 27, 38, 51));
  EXPECT_EQ(f.num_compiled(), 0);
  // Types with a placement, and the types of the results of a function that was compiled ahead.
  const auto double_it = jit([](Array a) { return a + a; });
  const auto first = double_it.lower(abstract({8}, kF32, mesh, P("x"))).compile();
  EXPECT_EQ(first.input_shardings()[0].ToString(), "P('x')");
  const auto second = double_it.lower(first.out_info()).compile();
  EXPECT_EQ(second.input_shardings()[0].ToString(), "P('x')");
  EXPECT_EQ(second(first(x)).get<float>()[7], 28);
  EXPECT_EQ(ErrorOf([&] { abstract({7}, kF32, mesh, P("x")); }).kind(), ErrorKind::kIndivisible);
  // A number stands for all numbers of its type. A weakly typed argument takes strongly typed
  // arrays as well.
  const auto g = jit([](Array n, Array x) { return n * x; });
  const auto times = g.lower(2, x).compile();
  EXPECT_THAT(times(3, x).get<float>(), ElementsAre(0, 3, 6, 9, 12, 15, 18, 21));
  EXPECT_THAT(times(scalar(4), x).get<float>()[1], 4);
  EXPECT_THAT(ErrorOf([&] { times(0.5, x); }).what(),
              HasSubstr("Argument args[0] compiled with s32[] and called with f32[]"));
}

TEST_P(ClientTest, AFunctionCompiledAheadRefusesOtherArguments) {
  const Mesh mesh = AutoMesh({4}, {"x"});
  const Array x = put(array<float>(Iota(8)), mesh, P("x"));
  const auto f = jit([](std::vector<Array> v, int n) { return v[0] * n; });
  const auto compiled = f.lower(std::vector<Array>{x}, 2).compile();
  const auto call = [&](const Array& a) { return compiled(std::vector<Array>{a}, 2); };
  EXPECT_EQ(call(x).get<float>()[7], 14);
  Error e = ErrorOf([&] { call(put(array<float>(Iota(4)), mesh, P("x"))); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("Argument types differ from the types for which this "
                                        "computation was compiled"),
                              HasSubstr("args[0][0] compiled with f32[8] and called with f32[4]"),
                              HasSubstr("(client_test.cc:")));
  e = ErrorOf([&] { compiled(std::vector<Array>{x, x}, 2); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("compiled with input pytree does not match the input pytree it "
                                  "was called with: pytree structure error at args[0]"));
  e = ErrorOf([&] { compiled(std::vector<Array>{x}, 3); });
  EXPECT_THAT(e.what(), HasSubstr("expected the static value 2, got the static value 3"));
  e = ErrorOf([&] { call(put(x, mesh, P())); });
  EXPECT_EQ(e.kind(), ErrorKind::kValueError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("input shardings that disagree"),
                              HasSubstr("args[0][0] with shape f32[8]: Passed sharding: P() on "
                                        "(x=4) of devices 0,1,2,3, Required sharding: P('x') on")));
  // An array with an equal sharding on another mesh is taken, and so is an array without a mesh.
  EXPECT_EQ(call(put(x, AutoMesh({2, 2}, {"a", "b"}), P({"a", "b"}))).get<float>()[7], 14);
  EXPECT_EQ(call(array<float>(Iota(8))).get<float>()[7], 14);
  e = ErrorOf([&] { jit([&](Array a) { return call(a); })(x); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), HasSubstr("Cannot apply JAX transformations to a function lowered"));
  e = ErrorOf([&] { jit([&](Array a) { return f.lower(std::vector<Array>{a}, 2), a; })(x); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
}

TEST_P(ClientTest, AFunctionCompiledAheadDonatesAndCaptures) {
  JitOptions options;
  options.donate_argnums = {0};
  const Array w = array<float>({1, 2});
  const auto f = jit([&](Array x) { return x + w; }, options);
  const Array x = array<float>({3, 4});
  const auto compiled = f.lower(x).compile();
  EXPECT_EQ(compiled.memory_analysis().alias_size_in_bytes, 8);
  EXPECT_EQ(compiled.memory_analysis().argument_size_in_bytes, 16)
      << "the captured array does not count";
  EXPECT_EQ(compiled.input_shardings().size(), 1u);
  EXPECT_THAT(compiled(x).get<float>(), ElementsAre(4, 6));
  EXPECT_EQ(ErrorOf([&] { compiled(x); }).reason(), "ARRAY_DELETED");
  const debug_nans on;
  EXPECT_THAT(compiled(array<float>({0, 0})).get<float>(), ElementsAre(1, 2));
  EXPECT_EQ(ErrorOf([&] {
              compiled(array<float>({NAN, 0}));
            }).kind(),
            ErrorKind::kFloatingPointError);
}

TEST_P(ClientTest, GradOfShardMapRuns) {
  const Mesh mesh = AutoMesh({4}, {"i"});
  const Array x = put(ir::Array::Of(kF32, {4}, std::vector<double>{0, 1, 2, 3}), mesh, P("i"));
  const auto g = jit(grad([&](Array v) {
    return shard_map([](Array b) { return lax::psum(sum(b * b), "i"); }, mesh, {P("i")}, P())(v);
  }));
  EXPECT_THAT(g(x).get<float>(), ElementsAre(0, 2, 4, 6));
}

TEST_P(ClientTest, ShardMapRunsOutsideJit) {
  const Mesh mesh = AutoMesh({2}, {"x"});
  const auto f = shard_map([](Array b) { return lax::psum(b, "x"); }, mesh, {P("x")}, P());
  EXPECT_THAT(f(array<float>({1, 2, 3, 4})).get<float>(), ElementsAre(4, 6));
}

TEST_P(ClientTest, VjpKeepsResidualsOnDevices) {
  const Array x = array<float>({2, 3});
  auto [y, pull] = vjp([](Array v) { return v * v; }, x);
  EXPECT_THAT(y.get<float>(), ElementsAre(4, 9));
  EXPECT_THAT(std::get<0>(pull(array<float>({1, 10}))).get<float>(), ElementsAre(4, 60));
  EXPECT_THAT(std::get<0>(pull(array<float>({0, 1}))).get<float>(), ElementsAre(0, 6));
}

TEST_P(ClientTest, RandomBitsDoNotDependOnTheSharding) {
  const Mesh mesh = AutoMesh({2, 2}, {"x", "y"});
  const Array key = random::key(42);
  const auto draw = [](const PartitionSpec& spec, const Mesh& m) {
    return jit(
        [](Array k) {
          return random::bits(k, {8, 4});
        },
        {.name = "draw", .donate_argnums = {}, .in_shardings = {}, .out_shardings = spec})(
        put(random::key(42), m, P()));
  };
  const ir::Array want = random::bits(key, {8, 4}).value();
  EXPECT_EQ(draw(P("x", "y"), mesh).value(), want);
  EXPECT_EQ(draw(P("y"), mesh).value(), want);
}

TEST_P(ClientTest, DonatedArraysAreRefusedAfterwards) {
  const auto f = jit([](Array x) { return x + 1; },
                     {.name = "", .donate_argnums = {0}, .in_shardings = {}, .out_shardings = {}});
  const Array x = array<float>({1});
  EXPECT_THAT(f(x).get<float>(), ElementsAre(2));
  EXPECT_EQ(ErrorOf([&] { f(x); }).reason(), "ARRAY_DELETED");
  EXPECT_EQ(ErrorOf([&] { x.value(); }).reason(), "ARRAY_DELETED");
}

TEST_P(ClientTest, AnArrayWithoutAValueIsRefusedWithItsLine) {
  const Array none;
  const std::string line = "(client_test.cc:" + std::to_string(__LINE__ + 1) + ")";
  EXPECT_THAT(ErrorOf([&] { sum(none); }).what(), HasSubstr(line));
}

TEST_P(ClientTest, ArgumentsOfExplicitTypesAreNotGathered) {
  const Mesh mesh = make_mesh({4}, {"d"}, {AxisType::kExplicit});
  const Array x = put(ones({8, 2}), mesh, P("d"));
  const auto f = jit([](Array a) { return a * 2; });
  EXPECT_THAT(explain(f, x),
              AllOf(HasSubstr("args[0]: f32[8@d,2] P('d', None) 16 B"), Not(HasSubstr("moves"))));
  EXPECT_EQ(f(x).get<float>(), std::vector<float>(16, 2));
}

TEST_P(ClientTest, EqualProgramsOfTwoLinesNameTheirOwnLines) {
  const Array x = ones({8});
  const int line = __LINE__ + 2;
  const auto f = jit([](Array a) { return sum(a * a); });
  const auto g = jit([](Array a) { return sum(a * a); });
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(explain(f, x), HasSubstr("client_test.cc:" + std::to_string(line - 1)));
    EXPECT_THAT(explain(g, x), HasSubstr("client_test.cc:" + std::to_string(line)));
  }
  // Both programs also run and give the same result.
  EXPECT_EQ(f(x).get<float>(), g(x).get<float>());
}

TEST_P(ClientTest, PutOfAnArrayWithTheSamePlacementMakesNoCopy) {
  const Mesh mesh = AutoMesh({2}, {"x"});
  const Array source = array<float>({1, 2});
  Array x = put(source, mesh, P("x"));
  const Array same = put(x, mesh, P("x"));
  const Array whole = put(x, mesh, P()), moved = put(x, AutoMesh({2}, {"y"}), P("y"));
  EXPECT_THAT(same.get<float>(), ElementsAre(1, 2));
  x.Delete();
  EXPECT_EQ(ErrorOf([&] { same.value(); }).reason(), "ARRAY_DELETED");
  for (const Array& copy : {source, whole, moved}) {
    EXPECT_THAT(copy.get<float>(), ElementsAre(1, 2));
  }
}

TEST_P(ClientTest, DonatedArgumentsMustExist) {
  const auto f = [](std::vector<int> donate) {
    return jit([](Array x, const Pair& p, std::string) { return x + p.a + p.b; },
               {.name = "add",
                .donate_argnums = std::move(donate),
                .in_shardings = {},
                .out_shardings = {}});
  };
  const auto gone = [](const Array& a) {
    return a.to_string().find("(donated)") != std::string::npos;
  };
  for (const auto& [donate, first, second] : std::vector<std::tuple<std::vector<int>, bool, bool>>{
           {{}, false, false}, {{0}, true, false}, {{-2}, false, true}, {{1, -3, 1}, true, true}}) {
    const Array x = array<float>({1});
    const Pair p{array<float>({2}), array<float>({3})};
    EXPECT_THAT(f(donate)(x, p, "s").get<float>(), ElementsAre(6));
    EXPECT_EQ(gone(x), first);
    EXPECT_EQ(gone(p.a) && gone(p.b), second);
    EXPECT_EQ(gone(p.a) || gone(p.b), second);
  }
  const Array x = array<float>({1});
  const Pair p{x, x};
  for (const auto& [donate, what] : std::map<int, std::string>{
           {3, "names argument 3, but the call has 3 arguments; a number from -3 to 2 is expected"},
           {-4, "names argument -4, but the call has 3 arguments"},
           {2, "names argument 2, which is static, the value \"s\"; arrays are expected"}}) {
    const int beyond = donate;
    const Error e = ErrorOf([&] { f({0, beyond})(x, p, "s"); });
    EXPECT_EQ(e.reason(), "VALUE_ERROR");
    EXPECT_EQ(e.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("add: donate_argnums {0, "), HasSubstr(what),
                                HasSubstr("client_test.cc:")));
  }
  EXPECT_EQ(x.item<float>(), 1) << "nothing was donated";
}

TEST_P(ClientTest, ArgumentsAreDonatedByName) {
  using Named = std::map<std::string, Array>;
  const auto f = [](std::vector<std::string> names, std::vector<int> numbers = {}) {
    JitOptions options;
    options.name = "add";
    options.donate_argnums = std::move(numbers);
    options.donate_argnames = std::move(names);
    return jit([](const Pair& p, const Named& m, const std::vector<Array>& v,
                  std::string) { return p.a + p.b + m.at("x") + m.at("b") + v[0]; },
               options);
  };
  const auto gone = [](const Array& a) {
    return a.to_string().find("(donated)") != std::string::npos;
  };
  struct Row {
    std::vector<std::string> names;
    std::vector<int> numbers;
    std::string donated;  // the donated arrays: a, b of the pair, x, y of the map, and v
  };
  for (const Row& row :
       {Row{{}, {}, ""}, Row{{"a"}, {}, "a"}, Row{{"a", "x"}, {}, "ax"}, Row{{"a"}, {1}, "axy"},
        Row{{"args[0]"}, {}, "ab"}, Row{{"args[0].b", "args[1]['b']"}, {}, "by"},
        Row{{"args[2][0]"}, {}, "v"}, Row{{"x"}, {0}, "abx"}, Row{{"args[2]"}, {}, "v"}}) {
    const auto one = [](float x) { return array<float>({x}); };
    const Pair p{one(1), one(2)};
    const Named m = {{"x", one(3)}, {"b", one(4)}};
    const std::vector<Array> v = {one(5)};
    const auto compiled = f(row.names, row.numbers).lower(p, m, v, "s").compile();
    EXPECT_EQ(compiled.memory_analysis().alias_size_in_bytes, row.donated.empty() ? 0 : 4)
        << "the result takes the memory of one";
    EXPECT_THAT(f(row.names, row.numbers)(p, m, v, "s").get<float>(), ElementsAre(15));
    std::string got;
    for (const auto& [letter, array] :
         {std::pair("a", p.a), {"b", p.b}, {"x", m.at("x")}, {"y", m.at("b")}, {"v", v[0]}})
      if (gone(array)) got += letter;
    EXPECT_EQ(got, row.donated);
    if (!row.donated.empty()) {
      EXPECT_EQ(ErrorOf([&] { f(row.names, row.numbers)(p, m, v, "s"); }).reason(),
                "ARRAY_DELETED");
    }
  }
  const Array x = array<float>({1});
  for (const auto& [name, what] : std::map<std::string, std::string>{
           {"z",
            "invalid argnames {'z'} in donate_argnames. Function does not take these args: no "
            "argument has that name. Expected one of the names args[0], a, b, args[1], b, x, "
            "args[2], args[3], or a path below one of them"},
           {"args[4]", "invalid argnames {'args[4]'}"},
           {"a.c", "invalid argnames {'a.c'}"},
           {"", "invalid argnames {''}"},
           {"b",
            "names 'b', which several arguments have: args[0] and args[1]. Name the argument by "
            "its path"},
           {"args[3]", "names 'args[3]', which is static, the value \"s\"; arrays are expected"}}) {
    const std::string wrong = name;
    const Error e = ErrorOf([&] {
      f({"a", wrong})(Pair{x, x}, Named{{"x", x}, {"b", x}}, std::vector<Array>{x}, "s");
    });
    EXPECT_EQ(e.reason(), "VALUE_ERROR");
    EXPECT_THAT(e.what(), AllOf(HasSubstr("add: "), HasSubstr(what), HasSubstr("client_test.cc:")));
  }
  EXPECT_EQ(x.item<float>(), 1) << "nothing was donated";
  const auto mapped =
      pmap([](const Pair& p) { return p.a + p.b; }, "i", {.donate_argnames = {"b"}});
  const Pair p{array<float>({1, 2}), array<float>({3, 4})};
  EXPECT_THAT(mapped(p).get<float>(), ElementsAre(4, 6));
  EXPECT_FALSE(gone(p.a));
  EXPECT_TRUE(gone(p.b));
}

TEST_P(ClientTest, ArraysArePrintedAsInJax) {
  const auto printed = [](const Array& x) {
    std::ostringstream out;
    out << x;
    return out.str();
  };
  const Mesh mesh = AutoMesh({2}, {"x"});
  const Array x = put(array<float>({1, 2.5, -3, 4}), mesh, P("x"));
  EXPECT_EQ(printed(x), "Array([ 1. ,  2.5, -3. ,  4. ], dtype=float32)");
  std::string inside;
  jit([&](Array y) {
    inside = printed(y) + "; " + printed(x);
    return y;
  })(x);
  EXPECT_EQ(inside,
            "Traced<f32[4]>; Array(shape=(4,), dtype=float32), which cannot be read: a function is "
            "being traced, which reads no contents");
  Array y = x + 1;
  y.Delete();
  EXPECT_EQ(printed(y),
            "Array(shape=(4,), dtype=float32), which cannot be read: it has been deleted");
  const Mesh typed = make_mesh({2}, {"x"}, {AxisType::kExplicit});
  const set_mesh context(typed);
  const Array pending = jit([](Array a) { return reshard(a, unreduced("x")); })(
      put(array<float>({1, 2}), typed, P()));
  EXPECT_THAT(printed(pending),
              AllOf(HasSubstr("Array(shape=(2,), dtype=float32), which cannot be read: "),
                    HasSubstr("unreduced")));
}

TEST_P(ClientTest, ARunThatNeverBeganReturnsItsDonatedArrays) {
  const auto slow = Endless();
  const auto add =
      jit([](Array x, Array y) { return x + y; },
          {.name = "", .donate_argnums = {1}, .in_shardings = {}, .out_shardings = {}});
  const Array one = array<float>({1}), kept = array<float>({2});
  EXPECT_THAT(add(one, array<float>({0})).get<float>(), ElementsAre(1));
  // Each time, the run `after` waits for a long run and ends before it begins: once because `after`
  // itself is cancelled, and once because the run that makes its argument is cancelled.
  for (const bool itself : {true, false}) {
    const Array late = slow(one);
    const Array after = add(late, kept);
    EXPECT_EQ(ErrorOf([&] { kept.value(); }).reason(), "ARRAY_DELETED") << "it may still run";
    EXPECT_EQ(ErrorOf([&] { add(one, kept); }).reason(), "ARRAY_DELETED");
    if (itself) after.cancel();
    late.cancel();
    EXPECT_EQ(ErrorOf([&] { after.wait(absl::Seconds(30)); }).status().code(),
              absl::StatusCode::kCancelled);
    EXPECT_THAT(kept.get<float>(), ElementsAre(2));
  }
  EXPECT_THAT((kept * 2).get<float>(), ElementsAre(4));
  // The array does not come back if nobody holds it any more.
  uint64_t id;
  {
    const Array late = slow(one), dropped = array<float>({3});
    id = internal::AsConcrete(dropped)->id;
    const Array after = add(late, dropped);
    after.cancel();
    late.cancel();
    EXPECT_EQ(ErrorOf([&] { late.wait(absl::Seconds(30)); }).status().code(),
              absl::StatusCode::kCancelled);
    EXPECT_TRUE(session_->service().Describe(id).ok());
  }
  array<float>({0});  // This call tells the coordinator which arrays were released.
  EXPECT_EQ(ReasonOf(session_->service().Describe(id).status()), "ARRAY_DELETED");
  EXPECT_THAT(add(one, kept).get<float>(), ElementsAre(3));
  EXPECT_EQ(ErrorOf([&] { add(one, kept); }).reason(), "ARRAY_DELETED");
}

TEST_P(ClientTest, DeletedArraysAreRefused) {
  Array x = array<float>({1});
  const Array same = x;
  x.Delete();
  EXPECT_EQ(ErrorOf([&] { same + 1; }).reason(), "ARRAY_DELETED");
}

TEST_P(ClientTest, ArraysBecomeReadyAndRunsEndAtTheirDeadline) {
  const Array x = array<float>({1, 2});
  EXPECT_TRUE(x.is_ready());
  const Array y = x * 2;
  y.wait(absl::Seconds(30));
  EXPECT_TRUE(y.is_ready());
  // A run that takes longer than the deadline in scope is cut off. The caller gets the error of the
  // run, and not an error that says that the wait is over.
  const auto slow = Endless();
  slow(x).cancel();  // Compiles it: on a busy machine the deadline leaves no time for that.
  for (const bool read : {true, false}) {
    const Error e = ErrorOf([&] {
      deadline limit(absl::Seconds(1));
      const Array late = slow(x);
      read ? void(late.value()) : void(late.wait(absl::Minutes(1)));
    });
    EXPECT_EQ(e.status().code(), absl::StatusCode::kDeadlineExceeded) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("did not end within its deadline"));
  }
  EXPECT_THAT((x + 1).get<float>(), ElementsAre(2, 3));
}

TEST(EmbeddedTest, ASmallRunHasEndedWhenItsCallReturns) {
  Session::SetDefault(Session::Embedded({.devices = 1}));
  const auto twice = jit([](Array v) { return v + v; });
  const Array x = array<float>({1, 2});
  Array y = twice(x);
  // The end of the run is not known at once if another thread, for example the one that compiled,
  // serves the scheduler at that moment. So try again.
  for (int i = 0; i < 1000 && internal::AsConcrete(y)->operation != 0; ++i) y = twice(x);
  EXPECT_EQ(internal::AsConcrete(y)->operation, 0) << "its wait asks nobody";
  EXPECT_THAT(y.wait().get<float>(), ElementsAre(2, 4));
  Session::SetDefault(nullptr);
}

TEST(EmbeddedTest, AFunctionWithoutArrayArgumentsRunsOnTheDefaultSession) {
  const auto make = jit([](double x) { return full({2}, x); });
  for (int i = 0; i < 2; ++i) {
    const auto session = Session::Embedded({.devices = 1});
    Session::SetDefault(session);
    const Array y = make(3.0);
    EXPECT_EQ(internal::AsConcrete(y)->session, session);
    EXPECT_THAT(y.get<float>(), ElementsAre(3, 3));
  }
  Session::SetDefault(nullptr);
}

TEST(EmbeddedTest, AnArrayOutlivesTheRecordOfItsOperation) {
  const auto session = Session::Embedded({.devices = 2});
  Session::SetDefault(session);
  const Mesh first = make_mesh({1}, {"x"});
  Mesh second = first;
  second.devices = {session->devices().at(1).id};
  const auto twice = jit([](Array v) { return v + v; });
  const Array x = array<float>({1, 2});
  const Array moved = put(put(ir::Array(kF32, {2}), first, P()), second, P());
  const auto slow = Endless();
  const Array failed = slow(x);
  failed.cancel();
  EXPECT_THROW(failed.wait(), Error);
  const uint64_t operation = internal::AsConcrete(moved)->operation;
  ASSERT_NE(operation, 0);
  session->service().WaitOperation(operation, absl::Seconds(30)).status().IgnoreError();
  for (int i = 0; i < 10'000 && session->service().GetOperation(operation).ok(); ++i)
    twice(x).wait();
  EXPECT_EQ(ReasonOf(session->service().GetOperation(operation).status()), "OPERATION_NOT_FOUND");
  EXPECT_TRUE(moved.is_ready());
  moved.cancel();
  EXPECT_THAT(moved.wait().get<float>(), ElementsAre(0, 0));
  EXPECT_TRUE(failed.is_ready());
  EXPECT_EQ(ErrorOf([&] { failed.wait(); }).status().code(), absl::StatusCode::kCancelled);
  Session::SetDefault(nullptr);
}

TEST_P(ClientTest, CancelStopsARun) {
  const auto slow = Endless();
  const Array y = slow(array<float>({1}));
  y.cancel();
  EXPECT_EQ(ErrorOf([&] { y.wait(absl::Seconds(30)); }).status().code(),
            absl::StatusCode::kCancelled);
  // Operations that depend on the run fail with it.
  EXPECT_EQ(ErrorOf([&] { (y + 1).value(); }).status().code(), absl::StatusCode::kCancelled);
}

TEST_P(ClientTest, ReadingWhileTracingIsRefused) {
  const Array w = array<float>({1});
  const Error e = ErrorOf([&] { jit([&](Array x) { return x * w.item<float>(); })(w); });
  EXPECT_EQ(e.kind(), ErrorKind::kTypeError);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("while tracing"), HasSubstr("client_test.cc:")));
}

TEST_P(ClientTest, ThreadsShareAJittedFunction) {
  const auto f = jit([](Array x) { return sum(x * x); });
  std::vector<std::thread> threads;
  std::vector<float> results(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) results[t] = f(array<float>(Iota(t + 1))).item<float>();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(results, ElementsAre(0, 1, 5, 14));
}

TEST_P(ClientTest, ExplicitShardingsAreInTheTypes) {
  const Mesh mesh = make_mesh({2, 2}, {"x", "y"});
  set_mesh context(mesh);
  const Array a = put(ir::Array(kF32, {8, 2}), mesh, P("x", "y"));
  EXPECT_EQ(a.type().ToString(), "f32[8@x,2@y]");
  const Array b = put(ir::Array(kF32, {8, 2}), mesh, P("y", "x"));
  EXPECT_EQ((a + a).type().ToString(), "f32[8@x,2@y]");
  const Error e = ErrorOf([&] { a* b; });
  EXPECT_EQ(e.kind(), ErrorKind::kShardingTypeError);
  EXPECT_THAT(e.what(), HasSubstr("incompatible shardings"));
}

}  // namespace
}  // namespace tessera
