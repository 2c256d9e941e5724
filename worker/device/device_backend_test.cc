// Tests of the backend for accelerators. They run the CUDA plugin on the fake driver (tests/fakes)
// and its emulator, which can stall, fail or lose a device on demand. Results are compared with the
// evaluator.
#include "worker/device/device_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/status_exception.h"
#include "base/testing/status_matchers.h"
#include "base/testing/stopwatch.h"
#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "ir/text.h"
#include "worker/collectives/host_collectives.h"
#include "worker/cuda/testing/fakes.h"
#include "worker/device/group_comms.h"
#include "worker/program/testing/random_program.h"

namespace tessera::worker::device {
namespace {

using ir::Array;
using ir::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);
// A device whose context does not come back in this process.
constexpr int kLostDevice = 7;

Array Random(DType dtype, const ir::Dims& shape, uint32_t seed) {
  Array a(dtype, shape);
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    a.Set(i, dtype == DType::kF32 || dtype == DType::kF64
                 ? static_cast<double>(seed >> 8) / (1 << 23) - 1
                 : static_cast<double>((seed >> 8) % 100));
  }
  return a;
}

ir::Program Parse(const std::string& text) {
  absl::StatusOr<ir::Program> program = ir::ParseProgram(text);
  EXPECT_THAT(program, IsOk());
  return program.ok() ? *std::move(program) : ir::Program{};
}

// One device with everything that a launch needs around it.
class TestDevice {
 public:
  explicit TestDevice(int device, DeviceBackendOptions options = {}) {
    options.ordinal = device;
    if (options.memory_bytes == 0) options.memory_bytes = 64 << 20;
    options.on_fatal = [this](const absl::Status& why) {
      absl::MutexLock lock(&mu_);
      fatal_status_.Update(why);
    };
    absl::StatusOr<std::unique_ptr<Backend>> made =
        MakeDeviceBackend(&cuda::FakeDevices(), options);
    EXPECT_THAT(made, IsOk());
    if (made.ok()) backend = *std::move(made);
  }

  absl::Status fatal_status() {
    absl::MutexLock lock(&mu_);
    return fatal_status_;
  }

  // A launch that has been enqueued, and its end.
  struct EnqueuedLaunch {
    std::vector<DeviceBufferRef> results;
    std::shared_ptr<absl::Notification> done = std::make_shared<absl::Notification>();
    std::shared_ptr<absl::Status> status = std::make_shared<absl::Status>();
    std::shared_ptr<Event> event;
    std::vector<DeviceBufferRef> args;

    absl::Status Wait() const {
      if (!done->WaitForNotificationWithTimeout(kPatience)) {
        return absl::DeadlineExceededError("the launch does not end");
      }
      return *status;
    }
  };
  // Enqueues a launch. The launch is the only user of the arguments for which `donated` is true.
  absl::StatusOr<EnqueuedLaunch> Enqueue(const Executable& executable,
                                         const std::vector<DeviceBufferRef>& args,
                                         std::vector<bool> donated = {}) {
    donated.resize(args.size(), false);
    const std::vector<int> donations =
        backend->ChooseDonations(executable, args, std::move(donated));
    context.donations = donations;
    context.launch = ++launches_;
    context.program = "program";
    context.cancel = next_cancel;
    context.in_flight = queue_.Begin(context.launch);
    TESSERA_ASSIGN_OR_RETURN(Enqueued enqueued, backend->Enqueue(executable, context, args));
    EnqueuedLaunch running;
    running.results.assign(enqueued.results.begin(), enqueued.results.end());
    running.args = args;
    running.event = std::move(enqueued.event);
    running.event->OnDone([done = running.done, into = running.status](const absl::Status& s) {
      *into = s;
      done->Notify();
    });
    return running;
  }
  absl::StatusOr<std::vector<Array>> Run(const Executable& executable,
                                         const std::vector<DeviceBufferRef>& args,
                                         std::vector<bool> donated = {}) {
    TESSERA_ASSIGN_OR_RETURN(const EnqueuedLaunch running,
                             Enqueue(executable, args, std::move(donated)));
    TESSERA_RETURN_IF_ERROR(running.Wait());
    std::vector<Array> results;
    for (const DeviceBufferRef& result : running.results) {
      TESSERA_ASSIGN_OR_RETURN(results.emplace_back(), backend->ToHost(*result));
    }
    return results;
  }
  DeviceBufferRef Put(const Array& value) {
    absl::StatusOr<DeviceBufferRef> buffer = backend->FromHost(0, value);
    EXPECT_THAT(buffer, IsOk());
    return buffer.ok() ? *buffer : nullptr;
  }

  CancelToken cancel;
  CancelToken* next_cancel = &cancel;  // that of the next launch
  RunContext context;
  std::unique_ptr<Backend> backend;

 private:
  uint64_t launches_ = 0;
  InFlightPage page_{1};
  InFlightQueue queue_{&page_.slot(0)};
  absl::Mutex mu_;
  absl::Status fatal_status_ ABSL_GUARDED_BY(mu_);
};

class DeviceBackendTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::ResetFakes();
    cuda::SetFake("devices", 8);
  }
};

// Expects that the device gives the evaluator's results, within a few units in the last place.
void ExpectAsEvaluated(const std::string& text, double tolerance = 1e-5) {
  SCOPED_TRACE(text);
  const ir::Program program = Parse(text);
  ASSERT_NE(program.entry, nullptr);
  TestDevice device(0);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(program));
  std::vector<Array> args;
  std::vector<DeviceBufferRef> buffers;
  for (const ir::Type& type : program.entry->param_types()) {
    args.push_back(Random(type.dtype, type.shape, static_cast<uint32_t>(args.size()) + 1));
    buffers.push_back(device.Put(args.back()));
  }
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*program.entry, args));
  // The first run is direct, and a later one may be a graph.
  for (int run = 0; run < 4; ++run) {
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, device.Run(*executable, buffers));
    ASSERT_EQ(got.size(), want.size());
    for (size_t r = 0; r < got.size(); ++r) {
      ASSERT_EQ(got[r].dtype(), want[r].dtype());
      ASSERT_EQ(got[r].shape(), want[r].shape());
      for (int64_t i = 0; i < got[r].num_elements(); ++i) {
        ASSERT_NEAR(got[r].At(i), want[r].At(i), tolerance * (1 + std::fabs(want[r].At(i))))
            << "run " << run << ", result " << r << ", element " << i;
      }
    }
  }
  EXPECT_EQ(cuda::FakeViolations(), "");
}

TEST_F(DeviceBackendTest, ElementwiseReductionsAndMovement) {
  ExpectAsEvaluated(R"(func main(%x: f32[7,33], %y: f32[33]) -> (f32[7,33], f32[7], f32[33,7]) {
  %b = broadcast_in_dim(%y) {broadcast_dimensions=[1], shape=[7,33]}
  %m = multiply(%x, %b)
  %t = tanh(%m)
  %e = exponential(%t)
  %s = reduce_sum(%e) {dimensions=[1]}
  %p = transpose(%t) {permutation=[1,0]}
  return %e, %s, %p
})");
}

TEST_F(DeviceBackendTest, MatmulsRunInTheLibrary) {
  ExpectAsEvaluated(R"(func main(%x: f32[8,16], %w: f32[16,4]) -> (f32[8,4]) {
  %d = dot_general(%x, %w) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
  %r = tanh(%d)
  return %r
})");
}

// Two products that differ only in their precision.
TEST_F(DeviceBackendTest, MatmulsUseTf32OnlyIfTheProgramAndTheWorkerAllowIt) {
  cuda::SetFake("cublaslt_rounds", 1);
  const ir::Program program =
      Parse(R"(func main(%x: f32[4,32], %w: f32[32,4]) -> (f32[4,4], f32[4,4]) {
  %r = dot_general(%x, %w) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
  %e = dot_general(%x, %w) {lhs_batching_dimensions=[], lhs_contracting_dimensions=[1], precision="highest", rhs_batching_dimensions=[], rhs_contracting_dimensions=[0]}
  return %r, %e
})");
  const Array x = Random(DType::kF32, {4, 32}, 1), w = Random(DType::kF32, {32, 4}, 2);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*program.entry, {x, w}));
  for (const bool allow_tf32 : {true, false}) {
    DeviceBackendOptions options;
    options.allow_tf32 = allow_tf32;
    TestDevice device(0, options);
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable, device.backend->Compile(program));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got,
                                 device.Run(*executable, {device.Put(x), device.Put(w)}));
    double rounded = 0, exact = 0;
    for (int64_t i = 0; i < want[0].num_elements(); ++i) {
      rounded = std::max(rounded, std::fabs(got[0].At(i) - want[0].At(i)));
      exact = std::max(exact, std::fabs(got[1].At(i) - want[1].At(i)));
    }
    EXPECT_LT(exact, 1e-5);
    EXPECT_EQ(rounded > 1e-5, allow_tf32) << rounded;
    EXPECT_LT(rounded, 32 * 0x1p-9);
  }
  cuda::SetFake("cublaslt_rounds", 0);
}

TEST_F(DeviceBackendTest, LoopsReadUnalignedRows) {
  // Rows of three elements have 12 bytes. Rows 1 to 3 begin at addresses that are no multiples of
  // 16, where wide loads are not allowed.
  ExpectAsEvaluated(R"(func main(%c: f32[3], %xs: f32[5,3]) -> (f32[3], f32[5,3]) {
  %r, %ys = scan(%c, %xs) {num_consts=0, num_carry=1, length=5, reverse=false} with
    func body(%a: f32[3], %x: f32[3]) -> (f32[3], f32[3]) {
      %s = add(%a, %x)
      %p = multiply(%s, %x)
      return %s, %p
    }
  return %r, %ys
})");
}

TEST_F(DeviceBackendTest, TheHostReadsTheConditionsOfLoopsAndBranches) {
  // A vector is doubled until its sum reaches the limit, by one branch or the other, in every
  // iteration of a loop.
  ExpectAsEvaluated(R"(func main(%limit: f32[], %x: f32[5,3]) -> (f32[3], f32[5,3]) {
  %zero = constant() {value=dense<f32[]: 0>}
  %start = broadcast_in_dim(%zero) {broadcast_dimensions=[], shape=[3]}
  %last, %all = scan(%limit, %start, %x) {num_consts=1, num_carry=1, length=5, reverse=false} with
    func trip(%l: f32[], %c: f32[3], %v: f32[3]) -> (f32[3], f32[3]) {
      %one = constant() {value=dense<s32[]: 1>}
      %n, %y = while(%l, %one, %v) {num_predicate_consts=1, num_body_consts=0} with
        func below(%l: f32[], %n: s32[], %v: f32[3]) -> (bool[]) {
          %a = abs(%v)
          %s = reduce_sum(%a) {dimensions=[0]}
          %p = compare(%s, %l) {direction="LT"}
          %most = constant() {value=dense<s32[]: 40>}
          %q = compare(%n, %most) {direction="LT"}
          %r = and(%p, %q)
          return %r
        }
        func step(%n: s32[], %v: f32[3]) -> (s32[], f32[3]) {
          %one = constant() {value=dense<s32[]: 1>}
          %m = add(%n, %one)
          %odd = and(%n, %one)
          %d = case(%odd, %v) with
            func even(%v: f32[3]) -> (f32[3]) {
              %t = add(%v, %v)
              return %t
            }
            func odd(%v: f32[3]) -> (f32[3]) {
              %s = subtract(%v, %v)
              %t = subtract(%s, %v)
              %u = add(%t, %t)
              return %u
            }
          return %m, %d
        }
      %z = add(%c, %y)
      return %z, %y
    }
  return %last, %all
})");
}

TEST_F(DeviceBackendTest, ConstantsAndEmptyArrays) {
  ExpectAsEvaluated(R"(func main(%x: f32[4], %e: f32[0,3]) -> (f32[4], f32[0,3]) {
  %k = constant() {value=dense<f32[4]: 0x0000803f000000400000404000008040>}
  %s = add(%x, %k)
  %n = negate(%e)
  return %s, %n
})");
}

const char kDouble[] = R"(func main(%x: f32[1024]) -> (f32[1024]) {
  %y = add(%x, %x)
  return %y
})";

TEST_F(DeviceBackendTest, ALaunchMayUseResultsThatAreNotReadyYet) {
  TestDevice device(0);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(Parse(kDouble)));
  Array one(DType::kF32, {1024});
  for (int i = 0; i < 1024; ++i) one.Set(i, 1);
  TESSERA_ASSERT_OK_AND_ASSIGN(TestDevice::EnqueuedLaunch last,
                               device.Enqueue(*executable, {device.Put(one)}));
  std::vector<TestDevice::EnqueuedLaunch> all = {last};
  for (int i = 0; i < 9; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(last, device.Enqueue(*executable, {last.results[0]}));
    all.push_back(last);
  }
  for (const TestDevice::EnqueuedLaunch& running : all) EXPECT_THAT(running.Wait(), IsOk());
  TESSERA_ASSERT_OK_AND_ASSIGN(const Array got, device.backend->ToHost(*last.results[0]));
  EXPECT_EQ(got.At(1023), 1024);
}

TEST_F(DeviceBackendTest, AnAllocationThatDoesNotFitNamesDeviceAndSize) {
  TestDevice device(0);
  EXPECT_THAT(device.backend->FromHost(0, Array(DType::kF32, {32 << 20})),
              ReasonIs("OUT_OF_MEMORY", AllOf(HasSubstr("gpu:0"), HasSubstr("128.0 MiB"))));
  EXPECT_THAT(device.fatal_status(), IsOk());
}

TEST_F(DeviceBackendTest, ADeviceWithoutRoomForItsArenaDoesNotOpen) {
  static_cast<void>(cuda::FakeDevices());
  cuda::SetFake("oom_at", 1);
  DeviceBackendOptions options;
  options.memory_bytes = 64 << 20;
  EXPECT_THAT(MakeDeviceBackend(&cuda::FakeDevices(), options).status(),
              ReasonIs("OUT_OF_MEMORY", AllOf(HasSubstr("gpu:0"), HasSubstr("memory arena"))));
}

TEST_F(DeviceBackendTest, ALostContextEndsEveryLaunchAndIsReported) {
  TestDevice device(kLostDevice);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(Parse(kDouble)));
  const DeviceBufferRef x = device.Put(Array(DType::kF32, {1024}));
  cuda::SetFake("sticky_at", 1);
  const absl::StatusOr<TestDevice::EnqueuedLaunch> first = device.Enqueue(*executable, {x});
  const absl::Status ended = first.ok() ? first->Wait() : first.status();
  EXPECT_THAT(ended, ReasonIs("WORKER_LOST", HasSubstr("gpu:7")));
  EXPECT_THAT(device.fatal_status(), ReasonIs("WORKER_LOST"));
  EXPECT_THAT(device.Enqueue(*executable, {x}).status(), ReasonIs("WORKER_LOST"));
}

// ---- Ops that the host evaluates.
// ----------------------------------------------------------------

TEST_F(DeviceBackendTest, TheHostEvaluatesOpsWithoutDeviceCode) {
  ExpectAsEvaluated(R"(func main(%x: f32[8,4], %i: s32[4,1]) -> (f32[4,4], f32[8,4]) {
  %n = negate(%x)
  %g = gather(%n, %i) {offset_dims=[1], collapsed_slice_dims=[0], operand_batching_dims=[], start_indices_batching_dims=[], start_index_map=[0], index_vector_dim=1, slice_sizes=[1,4], mode="clip"}
  %r = add(%g, %g)
  %s = scatter_add(%x, %i, %r) {update_window_dims=[1], inserted_window_dims=[0], input_batching_dims=[], scatter_indices_batching_dims=[], scatter_dims_to_operand_dims=[0], index_vector_dim=1, mode="clip"}
  return %r, %s
})");
  // The host evaluates a manual_computation by running one lane per device of the inner mesh. The
  // op is in the program directly, since the planner leaves none in the programs that it makes.
  ExpectAsEvaluated(R"(mesh (i=1)
func main(%x: f32[8]) -> (f32[8]) {
  %y = manual_computation(%x) {in_specs=specs[P('i')], out_specs=specs[P('i')], manual_axes=["i"], check_vma=true} with
    func body(%b: f32[8]{V:i}) -> (f32[8]{V:i}) mesh (i=1:manual) {
      %n = negate(%b)
      return %n
    }
  return %y
})");
}

TEST_F(DeviceBackendTest, TheHostEvaluatesOpsInALoop) {
  ExpectAsEvaluated(R"(func main(%c: f32[4,3], %i: s32[5,2,1]) -> (f32[4,3], f32[5,2,3]) {
  %last, %ys = scan(%c, %i) {num_consts=0, num_carry=1, length=5, reverse=false} with
    func body(%b: f32[4,3], %at: s32[2,1]) -> (f32[4,3], f32[2,3]) {
      %g = gather(%b, %at) {offset_dims=[1], collapsed_slice_dims=[0], operand_batching_dims=[], start_indices_batching_dims=[], start_index_map=[0], index_vector_dim=1, slice_sizes=[1,3], mode="clip"}
      %n = sine(%g)
      %s = scatter(%b, %at, %n) {update_window_dims=[1], inserted_window_dims=[0], input_batching_dims=[], scatter_indices_batching_dims=[], scatter_dims_to_operand_dims=[0], index_vector_dim=1, mode="clip"}
      return %s, %n
    }
  return %last, %ys
})");
}

// ---- Arguments that may be overwritten. --------------------------------------------------------

constexpr int64_t kWeights = 100'000;  // not a whole number of vectors and blocks
constexpr int64_t kRoomForTwo = 1 << 20;

const char kSgd[] = R"(func main(%w: f32[100000], %g: f32[100000]) -> (f32[100000]) {
  %h = constant() {value=dense<f32[]: 0.5>}
  %b = broadcast_in_dim(%h) {shape=[100000], broadcast_dimensions=[]}
  %d = multiply(%g, %b)
  %r = subtract(%w, %d)
  return %r
})";

Array Filled(double value) {
  Array a(DType::kF32, {kWeights});
  for (float& x : a.MutableAs<float>()) x = static_cast<float>(value);
  return a;
}

TEST_F(DeviceBackendTest, AStepInPlaceNeedsNoRoomForItsResult) {
  DeviceBackendOptions options;
  options.memory_bytes = kRoomForTwo;
  TestDevice device(0, options);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(Parse(kSgd)));
  const DeviceBufferRef g = device.Put(Filled(4));
  DeviceBufferRef w = device.Put(Filled(21));
  EXPECT_THAT(device.Enqueue(*executable, {w, g}).status(), ReasonIs("OUT_OF_MEMORY", "a result"));
  // Each step runs on the result of the step before it, which is not ready yet.
  std::vector<TestDevice::EnqueuedLaunch> all;
  for (int i = 0; i < 10; ++i) {
    TESSERA_ASSERT_OK_AND_ASSIGN(TestDevice::EnqueuedLaunch step,
                                 device.Enqueue(*executable, {w, g}, {true, false}));
    w = step.results[0];
    all.push_back(std::move(step));
  }
  for (const TestDevice::EnqueuedLaunch& step : all) EXPECT_THAT(step.Wait(), IsOk());
  EXPECT_THAT(device.backend->ToHost(*w), IsOkAndHolds(Filled(1)));
  EXPECT_THAT(device.backend->ToHost(*g), IsOkAndHolds(Filled(4)));
  EXPECT_EQ(cuda::FakeViolations(), "");
}

TEST_F(DeviceBackendTest, ADonationDoesNotAffectEarlierLaunches) {
  TestDevice device(0);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto sgd, device.backend->Compile(Parse(kSgd)));
  const DeviceBufferRef g = device.Put(Filled(4)), w = device.Put(Filled(3));
  // The first launch waits on the device while the launch that overwrites its argument is enqueued.
  cuda::SetFake("stall_at", 1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch earlier,
                               device.Enqueue(*sgd, {w, g}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch later,
                               device.Enqueue(*sgd, {w, w}, {}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch last,
                               device.Enqueue(*sgd, {w, g}, {true, false}));
  EXPECT_FALSE(earlier.done->HasBeenNotified());
  cuda::SetFake("gate", 1);
  for (const TestDevice::EnqueuedLaunch* run : {&earlier, &later, &last})
    EXPECT_THAT(run->Wait(), IsOk());
  EXPECT_THAT(device.backend->ToHost(*earlier.results[0]), IsOkAndHolds(Filled(1)));
  EXPECT_THAT(device.backend->ToHost(*later.results[0]), IsOkAndHolds(Filled(1.5)));
  EXPECT_THAT(device.backend->ToHost(*last.results[0]), IsOkAndHolds(Filled(1)));
}

TEST_F(DeviceBackendTest, AnArrayThatSharesItsMemoryIsNotDonated) {
  TestDevice device(0);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto sgd, device.backend->Compile(Parse(kSgd)));
  TESSERA_ASSERT_OK_AND_ASSIGN(
      auto twice, device.backend->Compile(Parse(
                      R"(func main(%x: f32[100000]) -> (f32[100000], f32[100000], f32[100000]) {
  %n = negate(%x)
  return %x, %n, %n
})")));
  const DeviceBufferRef g = device.Put(Filled(4)), w = device.Put(Filled(3));
  const auto may_donate = [&](const DeviceBufferRef& from) {
    const std::vector<DeviceBufferRef> args = {from, g};
    return device.backend->ChooseDonations(*sgd, args, {true, false})[0] == 0;
  };
  EXPECT_TRUE(may_donate(w));
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch run,
                               device.Enqueue(*twice, {w}, {true}));
  EXPECT_THAT(run.Wait(), IsOk());
  EXPECT_FALSE(may_donate(w)) << "result 0 lies there";
  for (const DeviceBufferRef& result : run.results) EXPECT_FALSE(may_donate(result));
  EXPECT_THAT(device.Run(*sgd, {w, g}, {true, false}), IsOkAndHolds(std::vector{Filled(1)}));
  EXPECT_THAT(device.backend->ToHost(*run.results[0]), IsOkAndHolds(Filled(3)));
}

TEST_F(DeviceBackendTest, ALoopMayOverwriteItsDonatedCarry) {
  DeviceBackendOptions options;
  options.memory_bytes = kRoomForTwo;
  TestDevice device(0, options);
  TESSERA_ASSERT_OK_AND_ASSIGN(
      auto loop, device.backend->Compile(
                     Parse(R"(func main(%w: f32[100000], %g: f32[100000]) -> (f32[100000]) {
  %r = scan(%g, %w) {num_consts=1, num_carry=1, length=5, reverse=false} with
    func body(%k: f32[100000], %a: f32[100000]) -> (f32[100000]) {
      %s = add(%a, %k)
      return %s
    }
  return %r
})")));
  const DeviceBufferRef w = device.Put(Filled(3)), g = device.Put(Filled(4));
  EXPECT_THAT(device.Enqueue(*loop, {w, g}).status(), ReasonIs("OUT_OF_MEMORY"));
  EXPECT_THAT(device.Run(*loop, {w, g}, {true, false}), IsOkAndHolds(std::vector{Filled(23)}));
}

// ---- Cancelled launches. ------------------------------------------------------------------------

TEST_F(DeviceBackendTest, ACancelledLaunchMayEndWithinItsGrace) {
  DeviceBackendOptions options;
  options.cancel_grace = absl::Seconds(30);
  TestDevice device(0, options);
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(Parse(kDouble)));
  const DeviceBufferRef x = device.Put(Array(DType::kF32, {1024}));
  cuda::SetFake("stall_at", 1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch running,
                               device.Enqueue(*executable, {x}));
  device.cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
  EXPECT_FALSE(running.done->WaitForNotificationWithTimeout(absl::Milliseconds(20)))
      << "what is on the device holds its memory";
  cuda::SetFake("gate", 1);
  EXPECT_THAT(running.Wait(), ReasonIs("CANCELLED", "enough"));
  EXPECT_THAT(device.fatal_status(), IsOk());
}

TEST_F(DeviceBackendTest, ACancelledLaunchThatOutstaysItsGraceIsFatal) {
  DeviceBackendOptions options;
  options.cancel_grace = absl::Milliseconds(100);
  {
    TestDevice device(0, options);
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(Parse(kDouble)));
    const DeviceBufferRef x = device.Put(Array(DType::kF32, {1024}));
    cuda::SetFake("stall_at", 1);
    TESSERA_ASSERT_OK_AND_ASSIGN(const TestDevice::EnqueuedLaunch running,
                                 device.Enqueue(*executable, {x}));
    device.cancel.Cancel(MakeError(ErrorKind::kCancelled, "enough"));
    EXPECT_THAT(running.Wait(), ReasonIs("CANCELLED", "enough"));
    EXPECT_THAT(
        device.fatal_status(),
        ReasonIs("WORKER_LOST", AllOf(HasSubstr("did not leave the device"), HasSubstr("100ms"))));
  }
  cuda::SetFake("gate", 1);
  EXPECT_TRUE(cuda::AwaitFake("kernels_run", 1));
}

// ---- Several devices. ---------------------------------------------------------------------------

// Two devices of one process, whose host collectives are in the process too.
class TwoDevices {
 public:
  explicit TwoDevices(absl::Duration timeout = absl::Seconds(20)) {
    DeviceBackendOptions options;
    options.collective_timeout = timeout;
    options.abort_grace = absl::Seconds(2);
    CommunicatorConfig config;
    config.timeout = timeout;
    config.generation = 1;
    for (int r : {0, 1}) {
      config.local_ranks.push_back(r);
      config.ranks.push_back({r, "w0/0", 1, "", "here"});
    }
    host = MakeCollectives(std::move(config), -1);
    for (int d : {0, 1}) {
      devices.push_back(std::make_unique<TestDevice>(d, options));
      RunContext& context = devices[d]->context;
      context.mesh_device = d;
      context.collectives = host.get();
      context.generation = 1;
      context.ranks = ranks;
    }
  }
  // Calls `f` for both devices at the same time.
  template <class F>
  void OnBoth(F f) {
    std::thread other([&] { f(1); });
    f(0);
    other.join();
  }

  const std::vector<int> ranks = {0, 1};
  std::unique_ptr<Collectives> host;
  std::vector<std::unique_ptr<TestDevice>> devices;
};

ir::Program PsumProgram() {
  ir::Builder b({.mesh = {.axes = {{"i", 2, ir::AxisType::kManual}}}, .check_vma = false});
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {4}));
  b.SetSite({"/src/model.cc", 41});
  const ir::Value s = ir::Psum(x, {"i"});
  return {.entry = b.Build({{ir::Add(s, s)}}), .in_shardings = {}, .out_shardings = {}};
}

TEST_F(DeviceBackendTest, APsumOverTwoDevicesMayRunRepeatedly) {
  TwoDevices two;
  two.OnBoth([&](int d) {
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

TEST_F(DeviceBackendTest, EveryCollectiveGivesTheEvaluatorsResult) {
  using Body = std::function<ir::Value(ir::Value)>;
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
    two.OnBoth([&](int d) {
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

TEST_F(DeviceBackendTest, ARankThatNeverComesIsNamed) {
  TwoDevices two(absl::Milliseconds(500));
  TestDevice& device = *two.devices[0];
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(PsumProgram()));
  const absl::Status status =
      device.Run(*executable, {device.Put(Array(DType::kF32, {4}))}).status();
  EXPECT_THAT(status, ReasonIs("COLLECTIVE_TIMEOUT",
                               AllOf(HasSubstr("psum (model.cc:41)"), HasSubstr("device 1"))));
  EXPECT_THAT(device.fatal_status(), IsOk()) << "the device is as good as before";
}

TEST_F(DeviceBackendTest, AStalledCollectiveEndsAtItsTimeout) {
  TwoDevices two(absl::Seconds(1));
  const auto run = [&](int d) {
    TestDevice& device = *two.devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two.OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_stall_at", 1);
  const testing::Stopwatch watch;
  two.OnBoth([&](int d) {
    EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT", HasSubstr("psum (model.cc:41)")));
  });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(10));
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
  // Later launches of the same generation have a newly made communicator.
  cuda::SetFake("nccl_stall_at", 0);
  two.OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
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

TEST_F(DeviceBackendTest, TheHostEvaluatesOpsBetweenCollectives) {
  TwoDevices two;
  two.OnBoth([&](int d) {
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

// Evaluates in this process, and remembers the tenants.
class FakeLongSteps final : public LongSteps {
 public:
  absl::Status Evaluate(const ir::FunctionRef& function, const RunContext& context,
                        absl::Span<const absl::Span<const std::byte>> in,
                        absl::Span<const absl::Span<std::byte>> out) override {
    tenants.emplace_back(context.tenant);
    std::vector<Array> args;
    for (size_t i = 0; i < in.size(); ++i) {
      const ir::Type& type = function->types[i];
      std::memcpy(args.emplace_back(type.dtype, type.shape).MutableData(), in[i].data(),
                  in[i].size());
    }
    TESSERA_ASSIGN_OR_RETURN(const std::vector<Array> results, ir::Evaluate(*function, args));
    for (size_t i = 0; i < out.size(); ++i)
      std::memcpy(out[i].data(), results[i].data(), out[i].size());
    return status;
  }
  std::vector<std::string> tenants;
  absl::Status status;
};

TEST_F(DeviceBackendTest, LongHostStepsAreEvaluatedElsewhere) {
  FakeLongSteps steps;
  TestDevice device(0, {.uninterrupted_operations_max = 0, .long_steps = &steps});
  device.context.tenant = "a";
  const ir::Program program = Parse(
      "func main(%x: f32[2,2]) -> (f32[2,2]) {\n"
      "  %l = cholesky(%x) {lower=true}\n"
      "  %y = add(%l, %l)\n"
      "  return %y\n"
      "}\n");
  TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(program));
  const DeviceBufferRef x = device.Put(Array::Of(DType::kF32, {2, 2}, {4, 2, 2, 5}));
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, device.Run(*executable, {x}));
  EXPECT_EQ(got[0], Array::Of(DType::kF32, {2, 2}, {4, 0, 2, 4}));
  EXPECT_THAT(steps.tenants, ElementsAre("a"));
  steps.status = MakeError(ErrorKind::kOutOfMemory, "the process was killed");
  EXPECT_THAT(device.Run(*executable, {x}),
              ReasonIs("OUT_OF_MEMORY", HasSubstr("cholesky (program.txt:2): the process")));
}

TEST_F(DeviceBackendTest, AStalledCollectiveBeforeAHostStepEndsAtItsTimeout) {
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
  two.OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_stall_at", 1);
  two.OnBoth([&](int d) {
    EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT", HasSubstr("psum (model.cc:41)")));
  });
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
  cuda::SetFake("nccl_stall_at", 0);
  two.OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
}

TEST_F(DeviceBackendTest, ACollectiveThatFailsToEnqueueDoesNotLoseTheDevice) {
  TwoDevices two(absl::Seconds(2));
  const auto run = [&](int d) {
    TestDevice& device = *two.devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two.OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  // The call stays in progress until the error arrives.
  cuda::SetFake("nccl_error_at", 1);
  cuda::SetFake("nccl_in_progress_polls", 1'000'000);
  two.OnBoth([&](int d) { EXPECT_FALSE(run(d).ok()); });
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
}

TEST_F(DeviceBackendTest, AnAbortThatHangsLosesTheDevice) {
  auto two = std::make_unique<TwoDevices>(absl::Milliseconds(500));
  const auto run = [&](int d) {
    TestDevice& device = *two->devices[d];
    absl::StatusOr<std::shared_ptr<const Executable>> executable =
        device.backend->Compile(PsumProgram());
    EXPECT_THAT(executable, IsOk());
    return device.Run(**executable, {device.Put(Array(DType::kF32, {4}))}).status();
  };
  two->OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  cuda::SetFake("nccl_stall_at", 1);
  cuda::SetFake("nccl_abort_hangs", 1);
  two->OnBoth([&](int d) { EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT")); });
  for (const auto& device : two->devices) {
    EXPECT_THAT(device->fatal_status(),
                ReasonIs("WORKER_LOST", HasSubstr("did not leave the device")));
  }
  cuda::SetFake("nccl_abort_hangs", 0);
}

TEST_F(DeviceBackendTest, ACancelledCollectiveIsAborted) {
  TwoDevices two;
  const auto compiled = [&](int d) { return *two.devices[d]->backend->Compile(PsumProgram()); };
  // The communicator exists; then only one of the two devices comes to the exchange.
  const std::shared_ptr<const Executable> executables[] = {compiled(0), compiled(1)};
  const DeviceBufferRef args[] = {two.devices[0]->Put(Array(DType::kF32, {4})),
                                  two.devices[1]->Put(Array(DType::kF32, {4}))};
  two.OnBoth([&](int d) {
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
TEST_F(DeviceBackendTest, WhatWaitsBehindACancelledExchangeDoesNotEndWell) {
  TwoDevices two;
  TestDevice& device = *two.devices[0];
  const ir::Program sum = PsumProgram(), twice = Parse(R"(func main(%x: f32[4]) -> (f32[4]) {
  %y = add(%x, %x)
  return %y
})");
  std::vector<std::shared_ptr<const Executable>> sums;
  for (const auto& d : two.devices) sums.push_back(*d->backend->Compile(sum));
  const Array ones = Array::Of(DType::kF32, {4}, {1, 1, 1, 1});
  two.OnBoth([&](int d) {
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

TEST_F(DeviceBackendTest, IndependentStepsRunDuringACollective) {
  TwoDevices two;
  const auto compile = [&](int d) { return *two.devices[d]->backend->Compile(OverlapProgram()); };
  const std::shared_ptr<const Executable> executables[] = {compile(0), compile(1)};
  Array x(DType::kF32, {64}), y(DType::kF32, {64});
  for (int i = 0; i < 64; ++i) x.Set(i, i), y.Set(i, 0.01 * i);
  const auto args = [&](int d) {
    return std::vector<DeviceBufferRef>{two.devices[d]->Put(x), two.devices[d]->Put(y)};
  };
  // The communicator exists; then only one of the two devices comes to the exchange.
  two.OnBoth(
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
TEST_F(DeviceBackendTest, ACollectiveReadsItsInputBeforeItIsOverwritten) {
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
  two.OnBoth([&](int d) {
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

TEST_F(DeviceBackendTest, StepsBetweenCollectivesBecomeGraphs) {
  TwoDevices two;
  const ir::Program program = TwoSegmentsProgram();
  const Array x = Random(DType::kF32, {4, 64}, 1);
  TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<ir::Shards> want,
                               ir::Evaluator().RunOnDevices({0, 1}, *program.entry, {{x, x}}));
  std::vector<std::shared_ptr<const Executable>> executables(2);
  std::vector<DeviceBufferRef> args(2);
  const auto run = [&] {
    two.OnBoth([&](int d) {
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

// A carry that is halved and then grows by one in every iteration.
ir::Program LoopProgram(int64_t trip_count) {
  ir::Builder body({}, "step");
  const ir::Value c = body.Param(ir::MakeType(DType::kF32, {4, 64}));
  const ir::Value half = ir::Mul(c, ir::FullLike(c, 0.5));
  const ir::Value row = ir::ReduceMax(half, {0});
  const ir::FunctionRef f = body.Build({{ir::Add(
      half, ir::BroadcastInDim(ir::Sub(ir::FullLike(row, 1), ir::Sub(row, row)), {4, 64}, {1}))}});
  ir::Builder b({});
  const ir::Value x = b.Param(ir::MakeType(DType::kF32, {4, 64}));
  return {.entry = b.Build(ir::Scan(b, f, {x}, /*num_consts=*/0, /*num_carry=*/1, trip_count,
                                    /*reverse=*/false)),
          .in_shardings = {},
          .out_shardings = {}};
}

TEST_F(DeviceBackendTest, ALoopBecomesAGraphUnlessItHasTooManyTrips) {
  TestDevice device(0);
  const Array x = Random(DType::kF32, {4, 64}, 1);
  for (const auto& [trip_count, becomes_graph] : {std::pair(100, true), std::pair(10'000, false)}) {
    const ir::Program program = LoopProgram(trip_count);
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable, device.backend->Compile(program));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*program.entry, {x}));
    const DeviceBufferRef arg = device.Put(x);
    const int64_t before = cuda::GetFake("graphs_run");
    for (int i = 0; i < 3; ++i) {
      TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, device.Run(*executable, {arg}));
      for (int64_t e = 0; e < x.num_elements(); ++e)
        ASSERT_NEAR(got[0].At(e), want[0].At(e), 1e-5) << e;
    }
    EXPECT_EQ(cuda::GetFake("graphs_run") > before, becomes_graph) << trip_count << " trips";
  }
}

TEST_F(DeviceBackendTest, MatmulsReadUnalignedRowsAndSlices) {
  TestDevice device(0);
  constexpr int64_t kRows = 9, kInner = 7, kColumns = 5;
  const auto check = [&](const ir::FunctionRef& f) {
    std::vector<Array> in;
    std::vector<DeviceBufferRef> args;
    for (int i = 0; i < f->num_params; ++i) {
      in.push_back(Random(f->types[i].dtype, f->types[i].shape, static_cast<uint32_t>(i + 1)));
      args.push_back(device.Put(in.back()));
    }
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
    TESSERA_ASSERT_OK_AND_ASSIGN(const auto executable,
                                 device.backend->Compile({ir::kOpset, f, {}, {}}));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got, device.Run(*executable, args));
    ASSERT_EQ(got.size(), want.size());
    for (size_t r = 0; r < want.size(); ++r)
      for (int64_t e = 0; e < want[r].num_elements(); ++e)
        ASSERT_NEAR(got[r].At(e), want[r].At(e), 1e-4) << "result " << r << ", element " << e;
  };
  const ir::Type left = ir::MakeType(DType::kF32, {kRows, kInner});
  const ir::Type right = ir::MakeType(DType::kF32, {kInner, kColumns});
  {
    // Slices begin 28 and 20 bytes into their arrays.
    ir::Builder b({});
    const ir::Value x = b.Param(left), w = b.Param(right);
    const ir::Value below = ir::Slice(x, {1, 0}, {kRows, kInner}, {1, 1});
    const ir::Value inner = ir::Slice(x, {0, 1}, {kRows, kInner}, {1, 1});
    const ir::Value rest = ir::Slice(w, {1, 0}, {kInner, kColumns}, {1, 1});
    check(b.Build({ir::Matmul2D(below, w), ir::Matmul2D(inner, rest)}));
  }
  {
    // In the loop, operands and results are rows of stacks.
    constexpr int64_t kTrips = 3;
    ir::Builder body({}, "step");
    const ir::Value carry = body.Param(ir::MakeType(DType::kF32, {kInner, kColumns}));
    const ir::Value row = body.Param(left);
    const ir::FunctionRef f = body.Build({carry, ir::Matmul2D(row, carry)});
    ir::Builder b({});
    const ir::Value w = b.Param(right);
    const ir::Value xs = b.Param(ir::MakeType(DType::kF32, {kTrips, kRows, kInner}));
    check(b.Build(ir::Scan(b, f, {w, xs}, /*num_consts=*/0, /*num_carry=*/1, kTrips,
                           /*reverse=*/false)));
  }
}

// Covers fusion, shared and overwritten memory, and memory at any offset, like the test of the CPU
// backend.
TEST_F(DeviceBackendTest, RandomProgramsGiveWhatTheEvaluatorGives) {
  TestDevice device(0);
  int refused = 0;
  constexpr uint32_t kPrograms = 60;
  for (uint32_t seed = 0; seed < kPrograms; ++seed) {
    const ir::FunctionRef f = program::RandomProgram(seed);
    const auto executable = device.backend->Compile({ir::kOpset, f, {}, {}});
    // The device backend refuses some programs, because it has no kernel for one of their parts.
    if (ReasonOf(executable.status()) == "NOT_IMPLEMENTED") {
      ++refused;
      continue;
    }
    ASSERT_THAT(executable, IsOk()) << "seed " << seed;
    std::vector<Array> in;
    std::vector<DeviceBufferRef> args;
    for (int i = 0; i < f->num_params; ++i) {
      in.push_back(program::WholeNumbers(f->types[i], i));
      args.push_back(device.Put(in.back()));
    }
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want, ir::Evaluate(*f, in));
    // The second run has the same buffers, and runs graphs.
    for (int again = 0; again < 2; ++again) {
      const absl::StatusOr<std::vector<Array>> got = device.Run(**executable, args);
      ASSERT_THAT(got, IsOk()) << "seed " << seed;
      for (size_t r = 0; r < want.size(); ++r)
        ASSERT_TRUE((*got)[r] == want[r])
            << "seed " << seed << ", result " << r << " is " << (*got)[r].ToString()
            << "\nexpected " << want[r].ToString() << "\n"
            << ir::PrintFunction(*f);
    }
  }
  EXPECT_LT(refused, static_cast<int>(kPrograms) / 4);
  EXPECT_EQ(cuda::FakeViolations(), "");
}

TEST(PollIntervalTest, AShortWaitDoesNotSleep) {
  EXPECT_EQ(PollInterval(absl::ZeroDuration()), absl::ZeroDuration());
  EXPECT_EQ(PollInterval(absl::Microseconds(100)), absl::ZeroDuration());
  EXPECT_GT(PollInterval(absl::Milliseconds(1)), absl::ZeroDuration());
  EXPECT_LE(PollInterval(absl::Seconds(4)), absl::Milliseconds(1));
}

TEST_F(DeviceBackendTest, AStalledCollectiveBetweenGraphsEndsAtItsTimeout) {
  TwoDevices two(absl::Seconds(1));
  const ir::Program program = TwoSegmentsProgram();
  std::vector<std::shared_ptr<const Executable>> executables(2);
  std::vector<DeviceBufferRef> args(2);
  for (int d : {0, 1}) {
    TESSERA_ASSERT_OK_AND_ASSIGN(executables[d], two.devices[d]->backend->Compile(program));
    args[d] = two.devices[d]->Put(Random(DType::kF32, {4, 64}, 1));
  }
  const auto run = [&](int d) { return two.devices[d]->Run(*executables[d], {args[d]}).status(); };
  for (int i = 0; i < 3; ++i) two.OnBoth([&](int d) { EXPECT_THAT(run(d), IsOk()); });
  EXPECT_GT(cuda::GetFake("graphs_run"), 0);
  cuda::SetFake("nccl_stall_at", 1);
  const testing::Stopwatch watch;
  two.OnBoth([&](int d) {
    EXPECT_THAT(run(d), ReasonIs("COLLECTIVE_TIMEOUT", HasSubstr("psum (program.txt:9)")));
  });
  EXPECT_LT(watch.Unhindered(), absl::Seconds(10));
  for (const auto& device : two.devices) EXPECT_THAT(device->fatal_status(), IsOk());
}

}  // namespace
}  // namespace tessera::worker::device
