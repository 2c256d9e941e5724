// Tests workers with GPUs, which are the fakes of tests/fakes. The daemons are real, each GPU has
// an executor process, the CUDA plugin is loaded, and kernels run on the emulator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/testing/datadriven.h"
#include "base/testing/processes.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "client/tessera.h"
#include "client/testing/evaluated.h"
#include "tests/service/cluster.h"

namespace tessera::service {
namespace {

using lax::Precision::kHighest;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using testing::ErrorOf;
using testing::Eventually;
using ::testing::HasSubstr;

std::string FakeLibraryVariable(const std::string& name, const std::string& library) {
  return absl::StrCat("TESSERA_CUDA_", name, "=", SourcePath(TESSERA_FAKES_DIR), "/libfake",
                      library, ".so");
}

class GpuTest : public ::testing::Test {
 protected:
  // Starts a cluster. `faults` are knobs of the fakes, which only the worker `faulty_worker` gets.
  void Start(int workers, int gpus, const std::string& faults = "", int faulty_worker = -1,
             const std::string& canary_flag = "--canary-interval-ms=0") {
    ClusterOptions options;
    options.workers = workers;
    options.gpus_per_worker = gpus;
    options.worker_flags = {absl::StrCat("--collective-timeout-ms=", collective_timeout_ms_),
                            tf32_flag_};
    // Canaries are off by default, because a canary would meet the fault before the program under
    // test.
    options.coordinator_flags = {canary_flag};
    options.worker_env = [=](int w) {
      std::vector<std::string> env = {
          FakeLibraryVariable("DRIVER", "cuda"), FakeLibraryVariable("NCCL", "nccl"),
          FakeLibraryVariable("CUBLASLT", "cublaslt"), FakeLibraryVariable("NVML", "nvml")};
      // The workers share the machine, but each sees only its own GPUs.
      std::vector<int> own_gpus;
      for (int g = 0; g < gpus; ++g) own_gpus.push_back(w * gpus + g);
      env.push_back("CUDA_VISIBLE_DEVICES=" + absl::StrJoin(own_gpus, ","));
      env.push_back(absl::StrCat("TESSERA_FAKE=devices=", workers * gpus,
                                 w == faulty_worker ? absl::StrCat(",", faults) : ""));
      return env;
    };
    TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
    Session::SetDefault(cluster_->session());
  }
  void TearDown() override {
    Session::SetDefault(nullptr);
    if (HasFailure() && cluster_) std::cerr << cluster_->Logs();
  }

  // Returns the sum of first .. first + 7 over all devices of a mesh of n devices.
  static Array SumOver(int n, int first = 0) {
    const Mesh mesh = make_mesh({n}, {"i"}, {AxisType::kAuto});
    std::vector<double> values(8);
    for (int i = 0; i < 8; ++i) values[i] = first + i;
    const Array x = put(ir::Array::Of(kF32, {8}, values), mesh, P("i"));
    return jit([mesh](Array a) {
      return shard_map([](Array b) { return lax::psum(b, "i"); }, mesh, {P("i")}, P())(a);
    })(x);
  }

  // Returns the values of the array as text, or the reason why it has none.
  static std::string ValuesOrReason(const Array& array) {
    try {
      return absl::StrJoin(array.value().ToDoubles(), ",");
    } catch (const Error& error) {
      return std::string(error.reason());
    }
  }
  // Returns the values of SumOver(2, first) as text.
  static std::string ValuesOfSum(int first) {
    std::vector<double> sums;
    for (int i = 0; i < 4; ++i) sums.push_back(2 * first + 4 + 2 * i);
    return absl::StrJoin(sums, ",");
  }

  std::string tf32_flag_ = "--cuda-tf32=true";
  int collective_timeout_ms_ = 1000;
  std::unique_ptr<Cluster> cluster_;
};

std::vector<double> TrainAndReadLosses(const std::string& flags) {
  const std::string path = ::testing::TempDir() + "/gpu_test.losses";
  const std::string command = SourcePath(MLP_DIGITS) + " --no-explain --epochs 3 --mesh " +
                              "data=2,model=1 --losses-out " + path + " " + flags + " >/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream in(path);
  std::vector<double> values;
  for (double value; in >> value;) values.push_back(value);
  return values;
}

TEST_F(GpuTest, TheDemoOnTwoGpusHasTheLossesOfTheCpu) {
  Start(/*workers=*/1, /*gpus=*/2);
  const std::vector<double> gpu_losses = TrainAndReadLosses("--address " + cluster_->address());
  const std::vector<double> cpu_losses = TrainAndReadLosses("--embedded");
  ASSERT_EQ(gpu_losses.size(), cpu_losses.size());
  ASSERT_GE(gpu_losses.size(), 20u);
  for (size_t step = 0; step < 20; ++step) {
    EXPECT_LE(std::abs(gpu_losses[step] - cpu_losses[step]) / std::abs(cpu_losses[step]), 1e-5)
        << step;
  }
}

TEST_F(GpuTest, AWorkerRoundsToTf32UnlessItIsToldNotTo) {
  constexpr int64_t kSize = 64;
  // The values are 1 + 2^-12, which TF32 rounds to 1.
  const ir::Array x =
      ir::Array::Of(kF32, {kSize, kSize}, std::vector<double>(kSize * kSize, 1 + 0x1p-12));
  for (const bool rounds : {true, false}) {
    Session::SetDefault(nullptr);
    cluster_ = nullptr;
    tf32_flag_ = absl::StrCat("--cuda-tf32=", rounds ? "true" : "false");
    Start(/*workers=*/1, /*gpus=*/1, "cublaslt_rounds=1", /*faulty_worker=*/0);
    const Array on_gpu = put(x, make_mesh({1}, {"i"}, {AxisType::kAuto}), P());
    const auto square = jit([](Array a) { return std::pair(dot(a, a), dot(a, a, kHighest)); });
    const auto [by_default, exact] = square(on_gpu);
    EXPECT_THAT(by_default.value().ToDoubles(), Each(rounds ? 64 : 64 + 0x1p-5));
    EXPECT_THAT(exact.value().ToDoubles(), Each(64 + 0x1p-5));
  }
}

TEST_F(GpuTest, APsumRunsOverGpusOfTwoWorkers) {
  Start(/*workers=*/2, /*gpus=*/2);
  EXPECT_EQ(SumOver(4).value().ToDoubles(), (std::vector<double>{12, 16}));
}

TEST_F(GpuTest, ACollectiveThatStallsIsReportedWithinItsBound) {
  Start(/*workers=*/2, /*gpus=*/1, "nccl_stall_at=1", /*faulty_worker=*/1);
  const std::vector<int> before = cluster_->member_pids();
  const testing::Stopwatch watch;
  const Error error = ErrorOf([] { SumOver(2).value(); });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(10));
  EXPECT_EQ(error.reason(), "COLLECTIVE_TIMEOUT");
  EXPECT_THAT(error.what(), HasSubstr("psum"));
  // The stall strikes only once; the next step gets a new communicator.
  EXPECT_EQ(SumOver(2).value().ToDoubles(), (std::vector<double>{4, 6, 8, 10}));
  EXPECT_EQ(cluster_->member_pids(), before) << "no process had to end";
}

// The runs behind a cancelled one use the same communicator.
TEST_F(GpuTest, ACancelledRunLeavesNoWrongValueBehind) {
  collective_timeout_ms_ = 60'000;
  Start(/*workers=*/2, /*gpus=*/1, "nccl_stall_at=2", /*faulty_worker=*/1);
  const std::vector<int> before = cluster_->member_pids();
  EXPECT_EQ(SumOver(2).value().ToDoubles(), (std::vector<double>{4, 6, 8, 10}));
  const Array stalled = SumOver(2);
  std::vector<Array> behind;
  for (int first = 1; first <= 8; ++first) behind.push_back(SumOver(2, first));
  const Mesh mesh = make_mesh({2}, {"i"}, {AxisType::kAuto});
  const Array x = put(ir::Array::Of(kF32, {2}, {1, 2}), mesh, P("i"));
  const Array doubled = jit([](Array a) { return a + a; })(x);
  stalled.cancel();
  EXPECT_EQ(ErrorOf([&] { stalled.value(); }).reason(), "CANCELLED");
  EXPECT_EQ(doubled.value().ToDoubles(), (std::vector<double>{2, 4}));
  for (int first = 1; first <= 8; ++first) {
    EXPECT_THAT(ValuesOrReason(behind[first - 1]), AnyOf("PEER_ABORTED", ValuesOfSum(first)));
  }
  EXPECT_EQ(SumOver(2).value().ToDoubles(), (std::vector<double>{4, 6, 8, 10}));
  EXPECT_EQ(cluster_->member_pids(), before) << "no process had to end";
}

TEST_F(GpuTest, ALostContextEndsItsExecutorAndNoOther) {
  Start(/*workers=*/2, /*gpus=*/1, "sticky_at=1", /*faulty_worker=*/1);
  const int daemon = cluster_->worker(1).pid(), other = cluster_->executor_pid(0);
  const int executor = cluster_->executor_pid(1);
  const testing::Stopwatch watch;
  const Error error = ErrorOf([] {
    const Mesh mesh = make_mesh({2}, {"i"}, {AxisType::kAuto});
    const Array x = put(ir::Array::Of(kF32, {8}, std::vector<double>(8, 1)), mesh, P("i"));
    jit([](Array a) { return sin(a) + a; })(x).value();
  });
  const absl::Duration told = watch.Unhindered();
  std::cout << "told after " << absl::ToDoubleSeconds(told) << " s\n";
  EXPECT_LT(told, absl::Seconds(5));
  EXPECT_EQ(error.reason(), "WORKER_LOST");
  EXPECT_THAT(error.what(), HasSubstr("w1"));
  EXPECT_EQ(cluster_->worker(1).pid(), daemon);
  EXPECT_EQ(cluster_->executor_pid(0), other) << "its neighbour never noticed";
  EXPECT_TRUE(Eventually(
      [&] {
        const int now = cluster_->executor_pid(1);
        return now > 0 && now != executor;
      },
      absl::Seconds(10)));
}

TEST_F(GpuTest, ARankThatDiesInACollectiveIsNamed) {
  Start(/*workers=*/2, /*gpus=*/1, "nccl_die_at=1", /*faulty_worker=*/1);
  const testing::Stopwatch watch;
  const Error error = ErrorOf([] { SumOver(2).value(); });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(5));
  EXPECT_EQ(error.reason(), "WORKER_LOST");
  EXPECT_THAT(error.what(), AllOf(HasSubstr("w1"), HasSubstr("psum")));
}

TEST_F(GpuTest, AnErrorOfNcclIsReportedAndTheNextStepRuns) {
  Start(/*workers=*/2, /*gpus=*/1, "nccl_error_at=1", /*faulty_worker=*/1);
  const std::vector<int> before = cluster_->member_pids();
  const testing::Stopwatch watch;
  const Error error = ErrorOf([] { SumOver(2).value(); });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(2)) << "a collective may take 5 s";
  EXPECT_EQ(error.reason(), "PEER_FAILED");
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("psum"), HasSubstr("remote process exited or there was a network")));
  EXPECT_EQ(SumOver(2).value().ToDoubles(), (std::vector<double>{4, 6, 8, 10}));
  EXPECT_EQ(cluster_->member_pids(), before);
}

TEST_F(GpuTest, AnAbortThatHangsEndsTheExecutorsNotTheDaemons) {
  Start(/*workers=*/2, /*gpus=*/1, "nccl_stall_at=1,nccl_abort_hangs=1", /*faulty_worker=*/1);
  const int daemons[] = {cluster_->worker(0).pid(), cluster_->worker(1).pid()};
  const int executor = cluster_->executor_pid(1);
  const testing::Stopwatch watch;
  const Error error = ErrorOf([] { SumOver(2).value(); });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(15));
  EXPECT_THAT(std::string(error.reason()), AnyOf("COLLECTIVE_TIMEOUT", "WORKER_LOST"));
  EXPECT_TRUE(Eventually(
      [&] {
        const int now = cluster_->executor_pid(1);
        return now > 0 && now != executor;
      },
      absl::Seconds(20)));
  std::cout << "another executor is there after " << absl::ToDoubleSeconds(watch.Unhindered())
            << " s\n";
  EXPECT_EQ(cluster_->worker(0).pid(), daemons[0]);
  EXPECT_EQ(cluster_->worker(1).pid(), daemons[1]);
}

// A GPU that computes wrongly reports no error; only its results show it.
TEST_F(GpuTest, AGpuThatComputesWronglyIsNamedByItsCanary) {
  constexpr absl::Duration kInterval = absl::Seconds(1), kTimeout = absl::Seconds(2);
  Start(/*workers=*/2, /*gpus=*/1, "flip=1", /*faulty_worker=*/1,
        absl::StrCat("--canary-interval-ms=", absl::ToInt64Milliseconds(kInterval)));
  const testing::Stopwatch watch;
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(cluster_->Logs(),
                             "a canary on executor w1/0 did not pass: wrong: element ");
  }));
  const absl::Duration told = watch.Unhindered();
  std::cout << "told after " << absl::ToDoubleSeconds(told) << " s\n";
  EXPECT_LT(told, kInterval + kTimeout + absl::Seconds(2));
  EXPECT_THAT(cluster_->Logs(), HasSubstr("reason=kernel_canary"));
  EXPECT_THAT(cluster_->Logs(), ::testing::Not(HasSubstr("executor w0/0 did not pass")));
}

TEST_F(GpuTest, WithoutADriverTheWorkerServesWithItsCpu) {
  ClusterOptions options;
  options.workers = 1;
  options.devices_per_worker = 1;
  options.gpus_per_worker = -1;  // neither --gpus nor --devices
  options.worker_env = [](int) {
    return std::vector<std::string>{"TESSERA_CUDA_DRIVER=/no/such/libcuda.so.1"};
  };
  TESSERA_ASSERT_OK_AND_ASSIGN(cluster_, Cluster::Start(options));
  Session::SetDefault(cluster_->session());
  EXPECT_EQ(SumOver(1).value().At(7), 7);
  EXPECT_THAT(cluster_->Logs(),
              AllOf(HasSubstr("no GPUs; using CPU devices"), HasSubstr("no NVIDIA driver")));
}

}  // namespace
}  // namespace tessera::service
