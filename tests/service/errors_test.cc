// Tests the error that a user of the SDK gets for each kind of mistake. The daemons are real and
// must keep serving afterwards. json_client_test.py tests the mistakes that the SDK cannot send.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/status_matchers.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "ir/builder.h"
#include "ir/ops.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using Code = absl::StatusCode;

// All tests share one cluster: each test also proves that the tests before it did no harm.
class ErrorsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ClusterOptions options;
    options.coordinator_flags = {"--max-program-bytes=32KiB", "--max-message-bytes=256KiB"};
    absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(options);
    ASSERT_THAT(cluster, IsOk());
    cluster_ = cluster->release();
  }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(cluster_, nullptr);
    Session::SetDefault(cluster_->session());
    members_before_ = cluster_->member_pids();
  }
  void TearDown() override {
    if (cluster_ != nullptr) {
      ExpectServes();
      EXPECT_EQ(cluster_->member_pids(), members_before_)
          << "a process ended, or took another's place";
      if (HasFailure()) std::cerr << cluster_->Logs();
    }
    Session::SetDefault(nullptr);
  }

  static api::Service& service() { return cluster_->session()->service(); }
  static Mesh MeshOf(int devices, AxisType type = AxisType::kAuto) {
    return make_mesh({devices}, {"i"}, {type});
  }

  // Expects the cluster to compute a sum over both workers.
  static void ExpectServes() {
    const Mesh mesh = MeshOf(4);
    const set_mesh context(mesh);
    const Array x = put(ir::Array::Of(kF32, {4}, std::vector<double>{1, 2, 3, 4}), mesh, P("i"));
    const auto total = shard_map([](Array b) { return lax::psum(b, "i"); }, mesh, {P("i")}, P());
    EXPECT_THAT(jit(total)(x).get<float>(), ElementsAre(10));
  }

  // Expects that `f` throws an error that says `text` and names a line of this file, and that the
  // cluster works afterwards.
  template <class F>
  static void ExpectError(Code code, std::string_view reason, const std::string& text, F&& f) {
    const Error e = ErrorOf(f);
    EXPECT_EQ(e.status().code(), code) << e.what();
    EXPECT_EQ(e.reason(), reason) << e.what();
    EXPECT_THAT(e.what(), AllOf(HasSubstr(text), HasSubstr("(errors_test.cc:")));
    ExpectServes();
  }

  // Returns x after `ops` additions of 1, each of which is an op of the program.
  static Array Additions(const Array& x, int ops) {
    return jit([ops](Array v) {
      for (int i = 0; i < ops; ++i) v = v + 1;
      return v;
    })(x);
  }

  static Cluster* cluster_;
  std::vector<int> members_before_;
};
Cluster* ErrorsTest::cluster_ = nullptr;

TEST_F(ErrorsTest, AnExplicitShardingThatDoesNotDivide) {
  const Mesh mesh = MeshOf(4, AxisType::kExplicit);
  ExpectError(Code::kInvalidArgument, "INDIVISIBLE", "dim 0",
              [&] { put(ir::Array(kF32, {6}), mesh, P("i")); });
  set_mesh context(mesh);
  const Array x = put(ir::Array(kF32, {8}), mesh, P("i"));
  const Array six = put(ir::Array(kF32, {6}), mesh, P());
  ExpectError(Code::kInvalidArgument, "VALUE_ERROR", "not evenly divisible by 4",
              [&] { shard_map([](Array b) { return b * 2; }, mesh, {P("i")}, P("i"))(six); });
  ExpectError(Code::kInvalidArgument, "SHARDING_TYPE_ERROR", "f32[8@i]",
              [&] { lax::slice(x, {0}, {6}); });
}

TEST_F(ErrorsTest, AnUnknownAxis) {
  const Mesh mesh = MeshOf(4);
  ExpectError(Code::kInvalidArgument, "UNKNOWN_AXIS", "'q'",
              [&] { put(ir::Array(kF32, {8}), mesh, P("q")); });
  ExpectError(Code::kInvalidArgument, "NAME_ERROR", "q", [&] {
    const auto f = shard_map([](Array b) { return lax::psum(b, "q"); }, mesh, {P("i")}, P("i"));
    f(put(ir::Array(kF32, {8}), mesh, P("i")));
  });
}

TEST_F(ErrorsTest, AWrongDtype) {
  const Array f = array<float>({1, 2});
  const Array i = array<int32_t>({1, 2});
  ExpectError(Code::kInvalidArgument, "TYPE_ERROR", "s32", [&] { lax::add(f, i); });
  ExpectError(Code::kInvalidArgument, "TYPE_ERROR", "sin",
              [&] { jit([](Array x) { return lax::sin(x); })(i); });
}

TEST_F(ErrorsTest, AWrongShape) {
  const Array two = array<float>({1, 2});
  const Array three = array<float>({1, 2, 3});
  ExpectError(Code::kInvalidArgument, "TYPE_ERROR", "3", [&] { lax::add(two, three); });
  ExpectError(Code::kInvalidArgument, "TYPE_ERROR", "3",
              [&] { jit([](Array a, Array b) { return matmul(a, b); })(two, three); });
}

TEST_F(ErrorsTest, AProgramBeyondTheLimit) {
  const Array x = array<float>({1});
  ExpectError(Code::kResourceExhausted, "LIMIT_EXCEEDED", "max_program_bytes",
              [&] { Additions(x, 1'000); });
}

TEST_F(ErrorsTest, AMessageBeyondTheLimit) {
  const Array x = array<float>({1});
  ExpectError(Code::kResourceExhausted, "LIMIT_EXCEEDED", "larger than max",
              [&] { Additions(x, 40'000); });
}

TEST_F(ErrorsTest, AnArrayBeyondTheMemory) {
  ExpectError(Code::kResourceExhausted, "OUT_OF_MEMORY", "128.0 MiB",
              [] { put(ir::Array(kF32, {1 << 25})); });
}

TEST_F(ErrorsTest, ADeletedHandle) {
  Array x = array<float>({1, 2});
  const Array alias = x;
  x.Delete();
  ExpectError(Code::kFailedPrecondition, "ARRAY_DELETED", "f32[2]", [&] { alias.value(); });
  ExpectError(Code::kFailedPrecondition, "ARRAY_DELETED", "f32[2]", [&] { alias + 1; });
  // When another client has deleted the array, the service reports it.
  const Array y = array<float>({1, 2});
  const Array before = y + 1;
  const api::Placement placement = y.placement();
  TESSERA_ASSERT_OK_AND_ASSIGN(const uint64_t id, service().Put(ir::Array(kF32, {2}), placement));
  TESSERA_ASSERT_OK(service().Delete({id}));
  EXPECT_THAT(service().Get(id, absl::Seconds(5)),
              ReasonIs("ARRAY_DELETED", absl::StrCat("array ", id)));
  EXPECT_THAT(service().Describe(id), ReasonIs("ARRAY_DELETED"));
  TESSERA_EXPECT_OK(service().Delete({id}));
}

TEST_F(ErrorsTest, HandlesThatNameNothing) {
  constexpr uint64_t kNothing = 987'654'321;
  EXPECT_THAT(service().Get(kNothing, absl::Seconds(5)), ReasonIs("ARRAY_NOT_FOUND", "987654321"));
  EXPECT_THAT(service().Describe(kNothing), ReasonIs("ARRAY_NOT_FOUND", "987654321"));
  api::ExecuteRequest execute;
  execute.executable = kNothing;
  EXPECT_THAT(service().Execute(execute), ReasonIs("PROGRAM_NOT_FOUND", "compile it again"));
  EXPECT_THAT(service().GetOperation(kNothing), ReasonIs("OPERATION_NOT_FOUND", "987654321"));
  EXPECT_THAT(service().Cancel(kNothing), ReasonIs("OPERATION_NOT_FOUND", "987654321"));
}

TEST_F(ErrorsTest, ArgumentsThatDoNotFitTheExecutable) {
  const Array x = array<float>({1, 2});
  ir::Builder b({{}, true}, "double");
  const ir::Value v = b.Param(ir::MakeType(kF32, {2}));
  api::CompileRequest compile;
  compile.program.entry = b.Build({ir::Add(v, v)});
  TESSERA_ASSERT_OK_AND_ASSIGN(const api::CompileReply compiled, service().Compile(compile));
  const auto run = [&](const std::vector<ir::Array>& values) {
    api::ExecuteRequest execute;
    execute.executable = compiled.executable;
    for (const ir::Array& value : values) {
      execute.args.push_back(*service().Put(value, compiled.in[0].placement));
    }
    return service().Execute(execute).status();
  };
  EXPECT_THAT(run({}), ReasonIs("TYPE_ERROR", "takes 1 arguments but got 0"));
  EXPECT_THAT(run({ir::Array(kS32, {2})}), ReasonIs("TYPE_ERROR", "s32[2]"));
  EXPECT_THAT(run({ir::Array(kF32, {3})}), ReasonIs("TYPE_ERROR", "f32[3]"));
  compile.program.opset = ir::kOpset + 1;
  EXPECT_THAT(service().Compile(compile), ReasonIs("UNKNOWN_OP", "op set"));
}

TEST_F(ErrorsTest, AMeshBeyondTheCluster) {
  ExpectError(Code::kFailedPrecondition, "NOT_ENOUGH_DEVICES", "64",
              [] { make_mesh({64}, {"i"}); });
  ir::Builder b({{{{"i", 64}}}, true}, "wide");
  const ir::Value v = b.Param(ir::MakeType(kF32, {64}));
  api::CompileRequest compile;
  compile.program.entry = b.Build({ir::Add(v, v)});
  EXPECT_THAT(service().Compile(compile),
              ReasonIs("NOT_ENOUGH_DEVICES", "needs 64 devices of one kind; the cluster has 4"));
}

TEST_F(ErrorsTest, ADeadlineThatPasses) {
  const Mesh mesh = MeshOf(4);
  const Array x = put(ir::Array(kF32, {8}), mesh, P("i"));
  const auto steps = jit(shard_map(
      [](Array b) {
        const auto step = [](Array c, NoneType) {
          return std::make_pair(sin(c) + lax::psum(c, "i"), std::tuple<>());
        };
        return scan(step, b, None, {.length = 100'000'000}).first;
      },
      mesh, {P("i")}, P("i")));
  // ExpectError then runs on the same devices, so the expired run must not hold any of them up.
  ExpectError(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", "did not end within its deadline", [&] {
    deadline limit(absl::Seconds(2));  // includes the time to compile
    steps(x).value();
  });
}

TEST(NoWorkerTest, ACallFailsWithNotEnoughDevices) {
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Cluster> cluster,
                               Cluster::Start({0, 0, {}, {}, 0, {}}));
  Session::SetDefault(cluster->session());
  const Error e = ErrorOf([] { array<float>({1}); });
  Session::SetDefault(nullptr);
  EXPECT_EQ(e.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(e.reason(), "NOT_ENOUGH_DEVICES");
  EXPECT_THAT(e.what(), AllOf(HasSubstr("0"), HasSubstr("(errors_test.cc:")));
  ir::Builder b({{}, true}, "one");
  const ir::Value v = b.Param(ir::MakeType(kF32, {1}));
  api::CompileRequest compile;
  compile.program.entry = b.Build({ir::Add(v, v)});
  EXPECT_THAT(cluster->session()->service().Compile(compile),
              ReasonIs("NOT_ENOUGH_DEVICES", "add workers"));
}

}  // namespace
}  // namespace tessera::service
