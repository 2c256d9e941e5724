// Tests workers with a real GPU, if this machine has one: real daemons, an executor process, the
// CUDA driver, NCCL and cuBLASLt. It proves what the fakes of gpu_test.cc cannot show.
// scripts/gpu_check runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"
#include "worker/device/plugin.h"

namespace tessera::service {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::ErrorOf;
using testing::Eventually;
using ::testing::HasSubstr;

constexpr absl::Duration kToldWithin = absl::Seconds(5);
constexpr absl::Duration kBackWithin = absl::Seconds(30);  // making a CUDA context takes seconds

class RealGpuTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* folder = std::getenv("TESSERA_BIN_DIR");
    const auto api = worker::device::LoadDevicePlugin(
        folder != nullptr ? absl::StrCat(folder, "/libtessera_cuda.so")
                          : SourcePath(TESSERA_CUDA_PLUGIN));
    no_gpu_ = api.ok() ? "" : std::string(api.status().message());
  }
  void SetUp() override {
    if (!no_gpu_.empty()) GTEST_SKIP() << no_gpu_;
  }
  void Start(int workers = 1) {
    ClusterOptions options;
    options.workers = workers;
    options.gpus_per_worker = 1;
    options.worker_flags = {"--collective-timeout-ms=5000"};
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    Session::SetDefault(cluster_->session());
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  static Array Put(const ir::Array& value) {
    return put(value, make_mesh({1}, {"i"}, {AxisType::kAuto}), P());
  }
  void ExpectItServes() {
    EXPECT_EQ(Put(testing::Vec({1, 2, 3})).value().ToDoubles(), (std::vector<double>{1, 2, 3}));
    const auto twice = jit([](Array x) { return x + x; });
    EXPECT_EQ(twice(Put(testing::Vec({1, 2, 3}))).value().ToDoubles(),
              (std::vector<double>{2, 4, 6}));
  }
  // Returns a run that takes minutes and was still running after a second.
  static Array StartLongRun() {
    const Array run = jit([](Array x) {
      const auto step = [](Array c, NoneType) { return std::make_pair(sin(c), std::tuple<>()); };
      return scan(step, x, None, {.length = 100000000}).first;
    })(Put(testing::Vec(std::vector<double>(2048, 1))));
    EXPECT_FALSE(Eventually([&] { return run.is_ready(); }, absl::Seconds(1)));
    return run;
  }
  // Expects that an executor with another process id than `old_pid` serves.
  void ExpectAnotherExecutorServes(int old_pid) {
    const testing::Stopwatch watch;
    EXPECT_TRUE(Eventually(
        [&] {
          const int now = cluster_->executor_pid(0);
          return now > 0 && now != old_pid;
        },
        kBackWithin));
    TESSERA_EXPECT_OK(cluster_->AwaitHealthyDevices(1, kBackWithin));
    std::cout << "another executor serves after " << absl::ToDoubleSeconds(watch.Unhindered())
              << " s\n";
    ExpectItServes();
  }

  static inline std::string no_gpu_;
  std::unique_ptr<Cluster> cluster_;
};

TEST_F(RealGpuTest, ComputesWhatTheEvaluatorComputes) {
  Start();
  std::vector<double> values(64 * 32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
  const ir::Array x = testing::Host(values, {64, 32});
  const default_matmul_precision exact("highest");
  // The program has kernels, matrix products by the library, a loop, and a host step between them.
  const auto f = [](Array a) {
    const Array h = softmax(matmul(a, transpose(a)));
    const auto step = [](Array c, NoneType) { return std::make_pair(tanh(c) + c, std::tuple<>()); };
    return matmul(sort(scan(step, h, None, {.length = 7}).first, 1), a);
  };
  const std::vector<double> expected = testing::Values(f, x);
  const std::vector<double> got = jit(f)(Put(x)).value().ToDoubles();
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-4) << i;
}

// In TF32 a factor loses less than 2^-10 of its value, and a sum of products less than 2^-9 of the
// sum of their magnitudes. The rounding of f32 adds less than 2^-16 of that sum.
TEST_F(RealGpuTest, ProductsAreAsExactAsTheirPrecision) {
  Start();
  constexpr int64_t kSize = 256;
  std::vector<double> values(kSize * kSize), magnitudes;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    magnitudes.push_back(std::abs(values[i]));
  }
  const auto square = [](std::optional<lax::Precision> precision) {
    return [precision](Array a) { return matmul(a, a, {.precision = precision}); };
  };
  const ir::Array x = testing::Host(values, {kSize, kSize});
  const std::vector<double> expected = testing::Values(square({}), x);
  const std::vector<double> sums =
      testing::Values(square({}), testing::Host(magnitudes, {kSize, kSize}));
  // Returns the largest difference, as a fraction of the sum of magnitudes.
  const auto difference = [&](std::optional<lax::Precision> precision) {
    const std::vector<double> got = jit(square(precision))(Put(x)).value().ToDoubles();
    double largest = 0;
    for (size_t i = 0; i < got.size(); ++i)
      largest = std::max(largest, std::abs(got[i] - expected[i]) / sums[i]);
    return largest;
  };
  const double by_default = difference({}), exact = difference(lax::Precision::kHighest);
  std::cout << "products of f32 differ by " << by_default << " and, at the highest precision, by "
            << exact << " of the sums of magnitudes\n";
  EXPECT_LT(exact, 0x1p-16);
  EXPECT_LT(by_default, 0x1p-9 + 0x1p-16);
}

TEST_F(RealGpuTest, FourConcurrentCallersEachGetTheirOwnResult) {
  Start();
  const auto f = jit([](Array x) { return sum(x * x) + x; });
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int call = 0; call < 50; ++call) {
        const double v = 50 * caller + call;
        const std::vector<double> got = f(Put(testing::Vec({v, 1}))).value().ToDoubles();
        EXPECT_EQ(got, (std::vector<double>{v * v + 1 + v, v * v + 2}));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST_F(RealGpuTest, AKilledExecutorIsReportedAndAnotherServes) {
  Start();
  const Array run = StartLongRun();
  const int executor = cluster_->executor_pid(0);
  const testing::Stopwatch watch;
  kill(executor, SIGKILL);
  const Error error = ErrorOf([&] { run.wait(); });
  EXPECT_LT(watch.Unhindered(), kToldWithin);
  EXPECT_EQ(error.reason(), "WORKER_LOST");
  ExpectAnotherExecutorServes(executor);
}

TEST_F(RealGpuTest, AFrozenExecutorIsReportedAndAnotherServes) {
  Start();
  const auto f = jit([](Array x) { return x + 1.0; });
  const Array x = Put(testing::Vec({1, 2, 3}));
  f(x).wait();
  const int executor = cluster_->executor_pid(0);
  kill(executor, SIGSTOP);
  const testing::Stopwatch watch;
  const Error error = ErrorOf([&] {
    const deadline limit(absl::Seconds(2));
    f(x).wait();
  });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(2) + kToldWithin);
  EXPECT_EQ(error.reason(), "DEADLINE_EXCEEDED");
  std::cout << "told after " << absl::ToDoubleSeconds(watch.Unhindered()) << " s: " << error.what()
            << "\n";
  ExpectAnotherExecutorServes(executor);
}

TEST_F(RealGpuTest, ACancelledRunEndsAndTheNextRunSucceeds) {
  Start();
  const Array run = StartLongRun();
  const int executor = cluster_->executor_pid(0);
  const testing::Stopwatch watch;
  run.cancel();
  const Error error = ErrorOf([&] { run.wait(); });
  EXPECT_LT(watch.Unhindered(), kToldWithin);
  EXPECT_EQ(error.reason(), "CANCELLED");
  ExpectItServes();
  EXPECT_EQ(cluster_->executor_pid(0), executor) << "a cancelled run cost its executor";
}

TEST_F(RealGpuTest, ARunThatDoesNotFitIsRefusedAndTheNextRunSucceeds) {
  Start();  // the device has 64 MiB of memory
  const ir::Array large = testing::Host(std::vector<double>(8 << 20, 1), {8 << 20});
  const Error error = ErrorOf([&] {
    const Array x = Put(large);
    jit([](Array a) { return sort(a + 1.0) + sort(a - 1.0); })(x).wait();
  });
  EXPECT_EQ(error.reason(), "OUT_OF_MEMORY");
  EXPECT_THAT(error.what(), HasSubstr("which has 67108864"));
  ExpectItServes();
}

// NCCL refuses two ranks on one GPU unless NCCL_MULTI_RANK_GPU_ENABLE is 1. The step must fail with
// that error instead of hanging. The second text is that of NCCL 2.30 and newer.
TEST_F(RealGpuTest, TwoRanksOnOneGpuAreRefused) {
  Start(/*workers=*/2);
  const Mesh mesh = make_mesh({2}, {"i"}, {AxisType::kAuto});
  const testing::Stopwatch watch;
  const Error error = ErrorOf([&] {
    const Array x = put(testing::Vec({1, 2, 3, 4}), mesh, P("i"));
    jit([mesh](Array a) {
      return shard_map([](Array b) { return lax::psum(b, "i"); }, mesh, {P("i")}, P())(a);
    })(x)
        .wait();
  });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(30));
  std::cout << "told after " << absl::ToDoubleSeconds(watch.Unhindered()) << " s: " << error.what()
            << "\n";
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("psum"), AnyOf(HasSubstr("Duplicate GPU"),
                                             HasSubstr("Multiple Ranks are using the same"))));
  TESSERA_EXPECT_OK(cluster_->AwaitHealthyDevices(2));
  ExpectItServes();
}

}  // namespace
}  // namespace tessera::service
