// Tests of programs that run on several devices: exchanges by the fake NCCL, beside other steps,
// and the ends of those that do not go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status_exception.h"
#include "base/testing/processes.h"
#include "base/testing/stopwatch.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "worker/collectives/host_collectives.h"
#include "worker/device/group_comms.h"
#include "worker/device/testing/test_device.h"

namespace tessera::worker::device {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

using DeviceCollectivesTest = FakeDevicesTest;

// Devices of one process, whose host collectives are in the process too. Device d has rank d.
class SeveralDevices {
 public:
  SeveralDevices(int count, absl::Duration timeout, DeviceBackendOptions options = {}) {
    options.collective_timeout = timeout;
    options.abort_grace = absl::Seconds(2);
    CommunicatorConfig config;
    config.timeout = timeout;
    config.generation = 1;
    for (int d = 0; d < count; ++d) {
      config.local_ranks.push_back(d);
      config.ranks.push_back({d, "w0/0", 1, "", "here"});
      ranks.push_back(d);
    }
    host = MakeCollectives(std::move(config), -1);
    for (int d = 0; d < count; ++d) {
      devices.push_back(std::make_unique<TestDevice>(d, options));
      RunContext& context = devices[d]->context;
      context.mesh_device = d;
      context.collectives = host.get();
      context.generation = 1;
      context.ranks = ranks;
    }
  }
  // Gives the devices other places in the mesh: `ranks[i]` is the device at place i.
  void SetRanks(std::vector<int> order) {
    ranks = std::move(order);
    for (size_t i = 0; i < ranks.size(); ++i) {
      devices[ranks[i]]->context.mesh_device = static_cast<int64_t>(i);
      devices[ranks[i]]->context.ranks = ranks;
    }
  }
  // Runs an executable on a device, and tells the other one if it fails, as an executor does.
  absl::StatusOr<std::vector<Array>> Run(int d, const Executable& executable,
                                         const std::vector<DeviceBufferRef>& args) {
    absl::StatusOr<std::vector<Array>> results = devices[d]->Run(executable, args);
    if (!results.ok())
      host->AbortLaunch(devices[d]->context.launch, StatusForPeers(results.status()));
    return results;
  }
  // Calls `f` for all devices at the same time.
  template <class F>
  void OnAll(F f) {
    std::vector<std::thread> threads;
    for (int d = 0; d < static_cast<int>(devices.size()); ++d) threads.emplace_back(f, d);
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<int> ranks;  // by place in the mesh
  std::unique_ptr<Collectives> host;
  std::vector<std::unique_ptr<TestDevice>> devices;
};

class TwoDevices : public SeveralDevices {
 public:
  explicit TwoDevices(absl::Duration timeout = absl::Seconds(20))
      : SeveralDevices(2, timeout, {.opening_timeout = timeout}) {}
};

ir::Program PsumProgram() {
  ir::Builder b({.mesh = {.axes = {{"i", 2, ir::AxisType::kManual}}}, .check_vma = false});
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {4}));
  b.SetSite({"/src/model.cc", 41});
  const ir::Value s = ir::Psum(x, {"i"});
  return {.entry = b.Build({{ir::Add(s, s)}}), .in_shardings = {}, .out_shardings = {}};
}

TEST_F(DeviceCollectivesTest, APsumOverTwoDevicesMayRunRepeatedly) {
  TwoDevices two;
  two.OnAll([&](int d) {
    TestDevice& device = *two.devices[d];
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(PsumProgram()));
    const DeviceBufferRef x =
        device.Put(Array::Of(DType::kF32, {4}, {1.0 + d, 2.0 + d, 3.0 + d, 4.0 + d}));
    for (int run = 0; run < 3; ++run) {
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, device.Run(*executable, {x}));
      EXPECT_EQ(got[0], Array::Of(DType::kF32, {4}, {6, 10, 14, 18}));
    }
  });
  EXPECT_EQ(cuda::FakeViolations(), "");
}

using Body = std::function<ir::Value(ir::Value)>;

TEST_F(DeviceCollectivesTest, EveryCollectiveGivesTheEvaluatorsResult) {
  const std::vector<std::pair<const char*, Body>> bodies = {
      {"psum", [](ir::Value x) { return ir::Psum(x, {"i"}); }},
      {"pmax", [](ir::Value x) { return ir::Pmax(x, {"i"}); }},
      {"all_gather", [](ir::Value x) { return ir::AllGather(x, {"i"}, 1, true); }},
      {"psum_scatter", [](ir::Value x) { return ir::PsumScatter(x, {"i"}, 1, true); }},
      {"all_to_all", [](ir::Value x) { return ir::AllToAll(x, {"i"}, 0, 1, true); }},
      {"ppermute there",
       [](ir::Value x) {
         return ir::Ppermute(x, {"i"}, {{0, 1}});
       }},
      {"ppermute both",
       [](ir::Value x) {
         return ir::Ppermute(x, {"i"}, {{0, 1}, {1, 0}});
       }},
      {"axis_index", [](ir::Value x) { return ir::AxisIndex(x.builder(), {"i"}); }},
  };
  TwoDevices two;
  for (const auto& named : bodies) {
    SCOPED_TRACE(named.first);
    ir::Builder b({.mesh = {.axes = {{"i", 2, ir::AxisType::kManual}}}, .check_vma = false});
    ir::FunctionRef f;
    ASSERT_THAT(CatchStatus([&] {
                  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {4, 2}));
                  f = b.Build({{named.second(x)}});
                }),
                IsOk());
    ir::Shards in = {Random(DType::kF32, {4, 2}, 1), Random(DType::kF32, {4, 2}, 2)};
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<ir::Shards> want,
                                 ir::Evaluator().RunOnDevices({0, 1}, *f, {in}));
    two.OnAll([&](int d) {
      TestDevice& device = *two.devices[d];
      TESSERA_ASSERT_OK_AND_ASSIGN(
          auto executable,
          device.backend->Compile({.entry = f, .in_shardings = {}, .out_shardings = {}}));
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got,
                                   device.Run(*executable, {device.Put(in[d])}));
      EXPECT_EQ(got[0], want[0][d]);
    });
  }
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// Returns the program of one op on an s32[4,4] on each of four devices.
ir::FunctionRef OnFour(const ir::Mesh& mesh, const Body& body) {
  ir::Builder b({.mesh = mesh, .check_vma = false});
  ir::FunctionRef f;
  EXPECT_THAT(CatchStatus([&] {
                f = b.Build({{body(b.Param(ir::MakeType(DType::kS32, {4, 4})))}});
              }),
              IsOk());
  return f;
}

// Runs the programs on the devices in every order of their places, and expects what the evaluator
// gives.
void ExpectRightInAllOrders(SeveralDevices& four, const std::vector<ir::FunctionRef>& programs) {
  // The sums of these values are the same in every order.
  ir::Shards in;
  for (uint32_t shard = 1; shard <= 4; ++shard) in.push_back(Random(DType::kS32, {4, 4}, shard));
  for (size_t p = 0; p < programs.size(); ++p) {
    const ir::FunctionRef& f = programs[p];
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<ir::Shards> want,
                                 ir::Evaluator().RunOnDevices({0, 1, 2, 3}, *f, {in}));
    std::vector<std::shared_ptr<const Executable>> executables;
    for (const auto& device : four.devices) {
      TESSERA_ASSERT_OK_AND_ASSIGN(
          executables.emplace_back(),
          device->backend->Compile({.entry = f, .in_shardings = {}, .out_shardings = {}}));
    }
    std::vector<int> order = {0, 1, 2, 3};
    do {
      four.SetRanks(order);
      four.OnAll([&](int d) {
        TestDevice& device = *four.devices[d];
        const int64_t place = device.context.mesh_device;
        TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got,
                                     device.Run(*executables[d], {device.Put(in[place])}));
        EXPECT_EQ(got[0], want[0][place])
            << "program " << p << ", order " << absl::StrJoin(order, ",");
      });
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_EQ(cuda::FakeViolations(), "");
}

TEST_F(DeviceCollectivesTest, AllOrdersOfFourDevicesShareACommunicator) {
  const ir::Mesh mesh = {.axes = {{"i", 4, ir::AxisType::kManual}}};
  SeveralDevices four(4, absl::Seconds(20));
  const std::vector<Body> bodies = {
      [](ir::Value x) { return ir::Psum(x, {"i"}); },
      [](ir::Value x) { return ir::Pmax(x, {"i"}); },
      [](ir::Value x) { return ir::AllGather(x, {"i"}, 1, true); },
      [](ir::Value x) { return ir::PsumScatter(x, {"i"}, 1, true); },
      [](ir::Value x) { return ir::AllToAll(x, {"i"}, 0, 1, true); },
      [](ir::Value x) {
        return ir::Ppermute(x, {"i"}, {{0, 1}, {1, 2}, {2, 3}, {3, 0}});
      },
      [](ir::Value x) {
        return ir::Ppermute(x, {"i"}, {{3, 0}, {1, 1}});
      },
  };
  std::vector<ir::FunctionRef> programs;
  for (const Body& body : bodies) programs.push_back(OnFour(mesh, body));
  ExpectRightInAllOrders(four, programs);
  EXPECT_EQ(cuda::GetFake("nccl_comms"), 4) << "each rank joins one communicator";
}

// Each device needs the communicators of three pairs, in turn, and may keep two.
TEST_F(DeviceCollectivesTest, ACommunicatorThatWasAbortedForOthersIsMadeAgain) {
  const ir::Mesh mesh = {
      .axes = {{"i", 2, ir::AxisType::kManual}, {"j", 2, ir::AxisType::kManual}}};
  DeviceBackendOptions options;
  options.comms_max = 2;
  SeveralDevices four(4, absl::Seconds(20), options);
  ExpectRightInAllOrders(
      four,
      {OnFour(mesh, [](ir::Value x) { return ir::Psum(ir::AllGather(x, {"i"}, 0, true), {"j"}); }),
       OnFour(mesh, [](ir::Value x) { return ir::PsumScatter(x, {"j"}, 0, true); })});
  EXPECT_GT(cuda::GetFake("nccl_comms"), 4 * 3);
}

// The ranks connect for longer than a collective may take.
TEST_F(DeviceCollectivesTest, OpeningACommunicatorMayTakeLongerThanACollective) {
  cuda::SetFake("nccl_init_polls", 1000);  // at 1 ms each
  SeveralDevices two(2, absl::Milliseconds(200));
  const absl::Time began = SteadyNow();
  two.OnAll([&](int d) {
    TestDevice& device = *two.devices[d];
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(PsumProgram()));
    EXPECT_THAT(device.Run(*executable, {device.Put(Array(DType::kF32, {4}))}), IsOk());
  });
  EXPECT_GT(SteadyNow() - began, absl::Milliseconds(400));
}

TEST_F(DeviceCollectivesTest, ARankThatNeverComesIsNamed) {
  TwoDevices two(absl::Milliseconds(500));
  TestDevice& device = *two.devices[0];
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(PsumProgram()));
  const absl::Status status =
      device.Run(*executable, {device.Put(Array(DType::kF32, {4}))}).status();
  EXPECT_THAT(status, ReasonIs("COLLECTIVE_TIMEOUT",
                               AllOf(HasSubstr("psum (model.cc:41)"), HasSubstr("device 1"))));
  EXPECT_THAT(device.fatal_status(), IsOk()) << "the device is as good as before";
}

TEST_F(DeviceCollectivesTest, AStalledCollectiveEndsAtItsTimeout) {
  std::atomic<int> aborts{0};
  const auto on_abort = [&](absl::Duration time) { aborts += time > absl::ZeroDuration(); };
  SeveralDevices two(2, absl::Seconds(1),
                     {.opening_timeout = absl::Seconds(1), .on_abort = on_abort});
  const auto run = [&](int d) {
    TestDevice& device = *two.devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_stall_at", 1);
  const testing::Stopwatch watch;
  two.OnAll([&](int d) {
    EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT", HasSubstr("psum (model.cc:41)")));
  });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(10));
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
  EXPECT_TRUE(testing::Eventually([&] { return aborts == 2; })) << "each rank aborts once";
  // Later launches of the same generation have a newly made communicator.
  cuda::SetFake("nccl_stall_at", 0);
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
}

// A sum over devices, a gather of its rows that the host evaluates, and a sum of these rows over
// devices.
ir::Program HostBetweenExchanges() {
  ir::Builder b({.mesh = {.axes = {{"i", 2, ir::AxisType::kManual}}}, .check_vma = false});
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {4}));
  const ir::Value at = b.Param(ir::MakeType(DType::kS32, {2, 1}));
  b.SetSite({"/src/model.cc", 41});
  const ir::Value s = ir::Psum(x, {"i"});
  b.SetSite({"/src/model.cc", 42});
  const ir::Value rows = ir::Gather(
      s, at, {.offset_dims = {}, .collapsed_slice_dims = {0}, .start_index_map = {0}}, {1});
  return {.entry = b.Build({{ir::Psum(ir::Add(rows, rows), {"i"})}}),
          .in_shardings = {},
          .out_shardings = {}};
}

TEST_F(DeviceCollectivesTest, TheHostEvaluatesOpsBetweenCollectives) {
  TwoDevices two;
  two.OnAll([&](int d) {
    TestDevice& device = *two.devices[d];
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(HostBetweenExchanges()));
    const DeviceBufferRef x =
        device.Put(Array::Of(DType::kF32, {4}, {1.0 + d, 2.0 + d, 3.0 + d, 4.0 + d}));
    const DeviceBufferRef at = device.Put(Array::Of(DType::kS32, {2, 1}, {3.0 - d, 0}));
    for (int run = 0; run < 3; ++run) {
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, device.Run(*executable, {x, at}));
      EXPECT_EQ(got[0], Array::Of(DType::kF32, {2}, {32, 12}));
    }
  });
  EXPECT_EQ(cuda::FakeViolations(), "");
}

TEST_F(DeviceCollectivesTest, AStalledCollectiveBeforeAHostStepEndsAtItsTimeout) {
  TwoDevices two(absl::Seconds(1));
  const auto run = [&](int d) {
    TestDevice& device = *two.devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(HostBetweenExchanges());
    EXPECT_THAT(executable, IsOk());
    return device
        .Run(**executable,
             {device.Put(Array(DType::kF32, {4})), device.Put(Array(DType::kS32, {2, 1}))})
        .status();
  };
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_stall_at", 1);
  two.OnAll([&](int d) {
    EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT", HasSubstr("psum (model.cc:41)")));
  });
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
  cuda::SetFake("nccl_stall_at", 0);
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
}

TEST_F(DeviceCollectivesTest, ACollectiveThatFailsToEnqueueDoesNotLoseTheDevice) {
  TwoDevices two(absl::Seconds(2));
  const auto run = [&](int d) {
    TestDevice& device = *two.devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  // The call stays in progress until the error arrives.
  cuda::SetFake("nccl_error_at", 1);
  cuda::SetFake("nccl_in_progress_polls", 1'000'000);
  two.OnAll([&](int d) { EXPECT_FALSE(run(d).ok()); });
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
}

// The bound of a collective is much longer than the test waits.
TEST_F(DeviceCollectivesTest, AFailureOfARunningCollectiveIsToldInTheLibrarysWords) {
  TwoDevices two(absl::Hours(1));
  const auto run = [&](int d) {
    TestDevice& device = *two.devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_fault_rank", 1);
  cuda::SetFake("nccl_error_at", 1);
  const absl::Time began = SteadyNow();
  two.OnAll([&](int d) {
    EXPECT_THAT(run(d),
                ReasonIs("PEER_FAILED", AllOf(HasSubstr("psum (model.cc:41)"),
                                              HasSubstr("rank 1 of 2: remote process exited"))));
  });
  std::cout << "told after " << absl::ToDoubleSeconds(SteadyNow() - began) << " s\n";
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
  two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
}

// Passes calls on, and keeps what the devices report.
class Recorder final : public Collectives {
 public:
  explicit Recorder(Collectives* inner) : inner_(inner) {}
  absl::Status Run(const Call& call) override {
    EXPECT_FALSE(call.measures_links) << "the host only agrees on a communicator";
    return inner_->Run(call);
  }
  void AbortLaunch(uint64_t launch, absl::Status status) override {
    inner_->AbortLaunch(launch, std::move(status));
  }
  absl::Status LaunchFailure(uint64_t launch) const override {
    return inner_->LaunchFailure(launch);
  }
  void Abort(absl::Status status) override { inner_->Abort(std::move(status)); }
  void RecordDeviceExchange(const MeasuredExchange& exchange) override {
    EXPECT_EQ(exchange.kind, ir::CollectiveKind::kAllReduce);
    EXPECT_THAT(exchange.group, ElementsAre(0, 1));
    absl::MutexLock lock(&mu_);
    bytes_by_rank_[exchange.rank] += exchange.in_bytes;
  }
  void RecordDeviceOpening(int num_ranks, absl::Duration time) override {
    EXPECT_EQ(num_ranks, 2);
    EXPECT_GT(time, absl::ZeroDuration());
    absl::MutexLock lock(&mu_);
    ++openings_;
  }
  std::map<int, int64_t> bytes_by_rank() {
    absl::MutexLock lock(&mu_);
    return bytes_by_rank_;
  }
  int openings() {
    absl::MutexLock lock(&mu_);
    return openings_;
  }

 private:
  Collectives* const inner_;
  absl::Mutex mu_;
  std::map<int, int64_t> bytes_by_rank_ ABSL_GUARDED_BY(mu_);
  int openings_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_F(DeviceCollectivesTest, ExchangesOfTheLibraryAreReportedForMetrics) {
  TwoDevices two;
  Recorder recorder(two.host.get());
  two.OnAll([&](int d) {
    TestDevice& device = *two.devices[d];
    device.context.collectives = &recorder;
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(PsumProgram()));
    for (int run = 0; run < 3; ++run)
      EXPECT_THAT(device.Run(*executable, {device.Put(Array(DType::kF32, {4}))}), IsOk());
  });
  EXPECT_EQ(recorder.openings(), 2) << "each rank opens one";
  EXPECT_THAT(recorder.bytes_by_rank(), ElementsAre(Pair(0, 3 * 16), Pair(1, 3 * 16)));
}

TEST_F(DeviceCollectivesTest, AnAbortThatHangsLosesTheDevice) {
  auto two = std::make_unique<TwoDevices>(absl::Milliseconds(500));
  const auto run = [&](int d) {
    TestDevice& device = *two->devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two->OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_stall_at", 1);
  cuda::SetFake("nccl_abort_hangs", 1);
  two->OnAll([&](int d) { EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT")); });
  for (const auto& device : two->devices) {
    EXPECT_THAT(device->fatal_status(),
                ReasonIs("WORKER_LOST", HasSubstr("did not leave the device")));
  }
  cuda::SetFake("nccl_abort_hangs", 0);
}

TEST_F(DeviceCollectivesTest, ACancelledCollectiveIsAborted) {
  TwoDevices two;
  const auto compiled = [&](int d) { return *two.devices[d]->backend->Compile(PsumProgram()); };
  // The communicator exists; then only one of the two devices comes to the exchange.
  const std::shared_ptr<const Executable> executables[] = {compiled(0), compiled(1)};
  const DeviceBufferRef args[] = {two.devices[0]->Put(Array(DType::kF32, {4})),
                                  two.devices[1]->Put(Array(DType::kF32, {4}))};
  two.OnAll([&](int d) {
    EXPECT_THAT(two.devices[d]->Run(*executables[d], {args[d]}).status(), IsOk());
  });
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch running,
                               two.devices[0]->Enqueue(*executables[0], {args[0]}));
  EXPECT_FALSE(running.done->HasBeenNotified());
  two.devices[0]->cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  EXPECT_THAT(running.Wait(), ReasonIs("CANCELLED", "enough"));
  EXPECT_THAT(two.devices[0]->fatal_status(), IsOk());
}

// When a communicator is aborted, the exchanges that wait behind the aborted one end at once, and
// have exchanged nothing. A launch with such an exchange must end with an error.
TEST_F(DeviceCollectivesTest, WhatWaitsBehindACancelledExchangeDoesNotEndWell) {
  TwoDevices two;
  TestDevice& device = *two.devices[0];
  const ir::Program sum = PsumProgram(), twice = Parse(R"(func main(%x: f32[4]) -> (f32[4]) {
  %y = add(%x, %x)
  return %y
})");
  std::vector<std::shared_ptr<const Executable>> sums;
  for (const auto& d : two.devices) sums.push_back(*d->backend->Compile(sum));
  const Array ones = Array::Of(DType::kF32, {4}, {1, 1, 1, 1});
  two.OnAll([&](int d) {
    EXPECT_THAT(two.devices[d]->Run(*sums[d], {two.devices[d]->Put(ones)}).status(), IsOk());
  });
  TESSERA_ASSERT_OK_AND_ASSIGN(const auto doubled, device.backend->Compile(twice));
  const DeviceBufferRef x = device.Put(ones);
  // The other device does not come.
  CancelToken first;
  device.next_cancel = &first;
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch stalled,
                               device.Enqueue(*sums[0], {x}));
  device.next_cancel = &device.cancel;
  std::vector<TestDevice::EnqueuedLaunch> behind;
  for (int launch = 0; launch < 15; ++launch) {
    TESSERA_ASSERT_OK_AND_ASSIGN(behind.emplace_back(), device.Enqueue(*sums[0], {x}));
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch independent,
                               device.Enqueue(*doubled, {x}));
  first.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  EXPECT_THAT(stalled.Wait(), ReasonIs("CANCELLED", "enough"));
  for (const TestDevice::EnqueuedLaunch& launch : behind) {
    EXPECT_THAT(launch.Wait(), ReasonIs("PEER_ABORTED", AllOf(HasSubstr("psum (model.cc:41)"),
                                                              HasSubstr("ranks {0,1}"))));
  }
  EXPECT_THAT(independent.Wait(), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Array y, device.backend->ToHost(*independent.results[0]));
  EXPECT_EQ(y, Array::Of(DType::kF32, {4}, {2, 2, 2, 2}));
  EXPECT_THAT(device.fatal_status(), IsOk());
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// An exchange may end at one rank and stall at the other, which is then cancelled and aborts its
// communicator. Only the abort tells the first rank that its next exchange cannot end.
TEST_F(DeviceCollectivesTest, EveryRankLeavesACommunicatorThatOneHasAborted) {
  TwoDevices two;
  const ir::Program send = Parse(R"(mesh (i=2:manual)
func main(%x: f32[4]) -> (f32[4]) unchecked {
  %y = ppermute(%x) {axes=["i"], perm=[0,1]}
  return %y
})");
  const Array ones = Array::Of(DType::kF32, {4}, {1, 1, 1, 1});
  std::vector<std::shared_ptr<const Executable>> sends, sums;
  std::vector<DeviceBufferRef> args;
  for (const auto& device : two.devices) {
    sends.push_back(*device->backend->Compile(send));
    sums.push_back(*device->backend->Compile(PsumProgram()));
    args.push_back(device->Put(ones));
  }
  two.OnAll([&](int d) { EXPECT_THAT(two.Run(d, *sums[d], {args[d]}).status(), IsOk()); });
  cuda::SetFake("nccl_dead_peer_hangs", 1);
  cuda::SetFake("nccl_fault_rank", 1);
  cuda::SetFake("nccl_stall_at", 1);
  CancelToken first;
  two.devices[1]->next_cancel = &first;
  std::vector<TestDevice::EnqueuedLaunch> sent(2), behind(2);
  for (const int d : {0, 1}) {
    TestDevice& device = *two.devices[d];
    TESSERA_ASSERT_OK_AND_ASSIGN(sent[d], device.Enqueue(*sends[d], {args[d]}));
    device.next_cancel = &device.cancel;
    TESSERA_ASSERT_OK_AND_ASSIGN(behind[d], device.Enqueue(*sums[d], {args[d]}));
  }
  EXPECT_THAT(sent[0].Wait(), IsOk());
  first.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  EXPECT_THAT(sent[1].Wait(), ReasonIs("CANCELLED", "enough"));
  // The rank that ends its part first tells the other one.
  const std::string reasons[] = {std::string(ReasonOf(behind[0].Wait())),
                                 std::string(ReasonOf(behind[1].Wait()))};
  EXPECT_THAT(reasons, Contains("PEER_ABORTED"));
  EXPECT_THAT(reasons, Each(AnyOf("PEER_ABORTED", "PEER_FAILED")));
  two.OnAll([&](int d) {
    EXPECT_THAT(two.Run(d, *sums[d], {args[d]}),
                IsOkAndHolds(std::vector{Array::Of(DType::kF32, {4}, {4, 4, 4, 4})}));
  });
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// The device library pairs exchanges by their order. If a rank does not enqueue a launch, its next
// exchange must not be paired with the other rank's exchange of that launch.
TEST_F(DeviceCollectivesTest, ARankThatSkipsALaunchStaysInStep) {
  TwoDevices two;
  std::vector<std::shared_ptr<const Executable>> sums;
  for (const auto& device : two.devices) sums.push_back(*device->backend->Compile(PsumProgram()));
  // Every launch has another argument. The result is twice the sum of the two.
  const auto run = [&](int d, double value) {
    const Array x = Array::Of(DType::kF32, {4}, {value, value, value, value});
    return two.Run(d, *sums[d], {two.devices[d]->Put(x)});
  };
  const auto holds = [](double sum) {
    return IsOkAndHolds(std::vector{Array::Of(DType::kF32, {4}, {sum, sum, sum, sum})});
  };
  two.OnAll([&](int d) { EXPECT_THAT(run(d, 1), holds(4)); });
  CancelToken cancelled;
  cancelled.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  // Neither rank enqueues this launch, so the next one may use the communicator.
  for (const auto& device : two.devices) device->next_cancel = &cancelled;
  two.OnAll([&](int d) { EXPECT_THAT(run(d, 10), ReasonIs("CANCELLED")); });
  for (const auto& device : two.devices) device->next_cancel = &device->cancel;
  two.OnAll([&](int d) { EXPECT_THAT(run(d, 2), holds(8)); });
  // Only rank 1 enqueues the next one, and learns only later that rank 0 did not.
  TestDevice& skipper = *two.devices[0];
  TestDevice& other = *two.devices[1];
  const DeviceBufferRef many = other.Put(Array::Of(DType::kF32, {4}, {9, 9, 9, 9}));
  skipper.next_cancel = &cancelled;
  EXPECT_THAT(skipper.Run(*sums[0], {many}).status(), ReasonIs("CANCELLED"));
  skipper.next_cancel = &skipper.cancel;
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch alone,
                               other.Enqueue(*sums[1], {many}));
  const uint64_t launch = other.context.launch;
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch behind,
                               other.Enqueue(*sums[1], {many}));
  std::thread next([&] { EXPECT_THAT(run(0, 3), ReasonIs("PEER_FAILED")); });
  EXPECT_FALSE(alone.done->WaitForNotificationWithTimeout(absl::Milliseconds(50)));
  two.host->AbortLaunch(launch, MakeError(ErrorKind::kPeerFailed, "skipped"));
  EXPECT_THAT(alone.Wait(), ReasonIs("PEER_FAILED", "skipped"));
  EXPECT_THAT(behind.Wait(), ReasonIs("PEER_ABORTED"));
  two.host->AbortLaunch(launch + 1, MakeError(ErrorKind::kPeerFailed, "broken off"));
  next.join();
  two.OnAll([&](int d) { EXPECT_THAT(run(d, 3), holds(12)); });
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// The launch that one rank skips exchanges nothing at the other rank, which therefore does not know
// that the first rank asks before its next exchange.
TEST_F(DeviceCollectivesTest, ARankThatIsAskedInVainEndsItsExchange) {
  TwoDevices two;
  const ir::Program program = Parse(R"(mesh (i=2:manual)
func main(%k: s32[], %x: f32[4]) -> (f32[4]) unchecked {
  %r = case(%k, %x) with
    func exchange(%v: f32[4]) -> (f32[4]) {
      %s = psum(%v) {axes=["i"]}
      return %s
    }
    func stay(%v: f32[4]) -> (f32[4]) {
      %s = add(%v, %v)
      return %s
    }
  return %r
})");
  std::vector<std::shared_ptr<const Executable>> executables;
  for (const auto& device : two.devices) executables.push_back(*device->backend->Compile(program));
  const auto run = [&](int d, int branch) {
    TestDevice& device = *two.devices[d];
    return two.Run(d, *executables[d],
                   {device.Put(Array::ScalarInt(DType::kS32, branch)),
                    device.Put(Array::Of(DType::kF32, {4}, {1, 1, 1, 1}))});
  };
  const Array twos = Array::Of(DType::kF32, {4}, {2, 2, 2, 2});
  two.OnAll([&](int d) { EXPECT_THAT(run(d, 0), IsOkAndHolds(std::vector{twos})); });
  CancelToken cancelled;
  cancelled.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  two.devices[0]->next_cancel = &cancelled;
  EXPECT_THAT(run(0, 1), ReasonIs("CANCELLED"));
  EXPECT_THAT(run(1, 1), IsOkAndHolds(std::vector{twos}));
  two.devices[0]->next_cancel = &two.devices[0]->cancel;
  two.OnAll(
      [&](int d) { EXPECT_THAT(run(d, 0), ReasonIs(d == 0 ? "PEER_FAILED" : "PEER_ABORTED")); });
  two.OnAll([&](int d) { EXPECT_THAT(run(d, 0), IsOkAndHolds(std::vector{twos})); });
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// ---- Collectives beside other steps. ----

// (x, y) -> (-psum(x), tanh(y)). There are two kernels, and only the second reads the exchange's
// result.
ir::Program OverlapProgram() {
  return Parse(R"(mesh (i=2:manual)
func main(%x: f32[64], %y: f32[64]) -> (f32[64], f32[64]) unchecked {
  %s = psum(%x) {axes=["i"]}
  %t = tanh(%y)
  %u = negate(%s)
  return %u, %t
})");
}

TEST_F(DeviceCollectivesTest, IndependentStepsRunDuringACollective) {
  TwoDevices two;
  const auto compile = [&](int d) { return *two.devices[d]->backend->Compile(OverlapProgram()); };
  const std::shared_ptr<const Executable> executables[] = {compile(0), compile(1)};
  Array x(DType::kF32, {64}), y(DType::kF32, {64});
  for (int i = 0; i < 64; ++i) x.Set(i, i), y.Set(i, 0.01 * i);
  const auto args = [&](int d) {
    return std::vector<DeviceBufferRef>{two.devices[d]->Put(x), two.devices[d]->Put(y)};
  };
  // The communicator exists; then only one of the two devices comes to the exchange.
  two.OnAll(
      [&](int d) { EXPECT_THAT(two.devices[d]->Run(*executables[d], args(d)).status(), IsOk()); });
  const int64_t before = cuda::GetFake("kernels_run");
  EXPECT_EQ(before, 4);
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch first,
                               two.devices[0]->Enqueue(*executables[0], args(0)));
  EXPECT_TRUE(cuda::AwaitFake("kernels_run", before + 1)) << "tanh waits for the exchange";
  EXPECT_FALSE(first.done->HasBeenNotified());
  EXPECT_EQ(cuda::GetFake("kernels_run"), before + 1) << "what reads the exchange came before it";
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch second,
                               two.devices[1]->Enqueue(*executables[1], args(1)));
  for (const auto* running : {&first, &second}) EXPECT_THAT(running->Wait(), IsOk());
  for (int d : {0, 1}) {
    const TestDevice::EnqueuedLaunch& running = d == 0 ? first : second;
    TESSERA_ASSERT_OK_AND_ASSIGN(const Array u,
                                 two.devices[d]->backend->ToHost(*running.results[0]));
    TESSERA_ASSERT_OK_AND_ASSIGN(const Array t,
                                 two.devices[d]->backend->ToHost(*running.results[1]));
    for (int i = 0; i < 64; ++i) {
      EXPECT_EQ(u.At(i), -2.0 * i);
      EXPECT_NEAR(t.At(i), std::tanh(0.01 * i), 1e-6);
    }
  }
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// The exchange reads the output of the kernel before it, and the kernel after it writes to the same
// memory.
TEST_F(DeviceCollectivesTest, ACollectiveReadsItsInputBeforeItIsOverwritten) {
  TwoDevices two;
  const ir::Program program = Parse(R"(mesh (i=2:manual)
func main(%x: f32[64]) -> (f32[64]) unchecked {
  %r, %o = scan(%x) {num_consts=0, num_carry=1, length=20, reverse=false} with
    func body(%a: f32[64]) -> (f32[64], f32[64]) {
      %n = negate(%a)
      %s = psum(%n) {axes=["i"]}
      %h = constant() {value=dense<f32[]: 0.5>}
      %b = broadcast_in_dim(%h) {shape=[64], broadcast_dimensions=[]}
      %m = multiply(%s, %b)
      %k = cosine(%a)
      return %m, %k
    }
  return %r
})");
  ASSERT_NE(program.entry, nullptr);
  two.OnAll([&](int d) {
    TestDevice& device = *two.devices[d];
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(program));
    Array x(DType::kF32, {64});
    for (int i = 0; i < 64; ++i) x.Set(i, i);
    for (int run = 0; run < 5; ++run)
      EXPECT_THAT(device.Run(*executable, {device.Put(x)}, {true}), IsOkAndHolds(std::vector{x}));
  });
  EXPECT_EQ(cuda::FakeViolations(), "");
}

// ---- Graphs between exchanges. ------------------------------------------------------------------

// Two steps that cannot be one kernel, an exchange, and two more such steps.
ir::Program TwoSegmentsProgram() {
  return Parse(R"(mesh (i=2:manual)
func main(%x: f32[4,64]) -> (f32[4,64]) unchecked {
  %a = reduce_sum(%x) {dimensions=[1]}
  %b = broadcast_in_dim(%a) {broadcast_dimensions=[0], shape=[4,64]}
  %c = subtract(%x, %b)
  %d = reduce_max(%c) {dimensions=[0]}
  %e = broadcast_in_dim(%d) {broadcast_dimensions=[1], shape=[4,64]}
  %f = subtract(%c, %e)
  %s = psum(%f) {axes=["i"]}
  %g = reduce_sum(%s) {dimensions=[1]}
  %h = broadcast_in_dim(%g) {broadcast_dimensions=[0], shape=[4,64]}
  %i = subtract(%s, %h)
  %j = reduce_max(%i) {dimensions=[0]}
  %k = broadcast_in_dim(%j) {broadcast_dimensions=[1], shape=[4,64]}
  %l = subtract(%i, %k)
  return %l
})");
}

TEST_F(DeviceCollectivesTest, StepsBetweenCollectivesBecomeGraphs) {
  TwoDevices two;
  const ir::Program program = TwoSegmentsProgram();
  const Array x = Random(DType::kF32, {4, 64}, 1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<ir::Shards> want,
                               ir::Evaluator().RunOnDevices({0, 1}, *program.entry, {{x, x}}));
  std::vector<std::shared_ptr<const Executable>> executables(2);
  std::vector<DeviceBufferRef> args(2);
  const auto run = [&] {
    two.OnAll([&](int d) {
      TestDevice& device = *two.devices[d];
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got,
                                   device.Run(*executables[d], {args[d]}));
      for (int64_t i = 0; i < x.num_elements(); ++i)
        EXPECT_NEAR(got[0].At(i), want[0][d].At(i), 1e-3) << i;
    });
    return cuda::GetFake("graphs_run");
  };
  for (int d : {0, 1}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(executables[d], two.devices[d]->backend->Compile(program));
    args[d] = two.devices[d]->Put(x);
  }
  EXPECT_EQ(run(), 0);
  // The buffers are the same as before. Each of the two devices runs its two segments as graphs.
  EXPECT_EQ(run(), 4);
  EXPECT_EQ(run(), 8);
  EXPECT_EQ(cuda::FakeViolations(), "");
}

TEST_F(DeviceCollectivesTest, AStalledCollectiveBetweenGraphsEndsAtItsTimeout) {
  TwoDevices two(absl::Seconds(1));
  const ir::Program program = TwoSegmentsProgram();
  std::vector<std::shared_ptr<const Executable>> executables(2);
  std::vector<DeviceBufferRef> args(2);
  for (int d : {0, 1}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(executables[d], two.devices[d]->backend->Compile(program));
    args[d] = two.devices[d]->Put(Random(DType::kF32, {4, 64}, 1));
  }
  const auto run = [&](int d) { return two.devices[d]->Run(*executables[d], {args[d]}).status(); };
  for (int i = 0; i < 3; ++i) two.OnAll([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  EXPECT_GT(cuda::GetFake("graphs_run"), 0);
  cuda::SetFake("nccl_stall_at", 1);
  const testing::Stopwatch watch;
  two.OnAll([&](int d) {
    EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT", HasSubstr("psum (program.txt:9)")));
  });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(10));
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
}

TEST(PollIntervalTest, AShortWaitDoesNotSleep) {
  EXPECT_EQ(PollInterval(absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(PollInterval(absl::Microseconds(100)), absl::ZeroDuration());
  EXPECT_GT(PollInterval(absl::Milliseconds(1)), absl::ZeroDuration());
  EXPECT_LE(PollInterval(absl::Seconds(4)), absl::Milliseconds(1));
}

}  // namespace
}  // namespace tessera::worker::device
