// Tests of the backend for accelerators. They run the CUDA plugin on the fake driver (tests/fakes)
// and its emulator, which can stall, fail or lose a device on demand. Results are compared with the
// evaluator.
#include "worker/device/device_backend.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ir/eval/eval.h"
#include "ir/ops.h"
#include "worker/device/testing/test_device.h"
#include "worker/program/testing/random_program.h"

namespace tessera::worker::device {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using DeviceBackendTest = FakeDevicesTest;

// A device whose context does not come back in this process.
constexpr int kLostDevice = 7;

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

// ---- Ops that the host evaluates. ---------------------------------------------------------------

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

// The routine takes the place of the evaluator, which a sort of this length would ask elsewhere.
TEST_F(DeviceBackendTest, SortsAreComputedByTheRoutineThatSorts) {
  FakeLongSteps steps;
  for (const int threads : {1, 4}) {
    TestDevice device(
        0, {.uninterrupted_operations_max = 0, .long_steps = &steps, .host_threads = threads});
    const ir::Program program = Parse(
        "func main(%x: f32[3,70000], %v: s32[3,70000]) -> (f32[3,70000], s32[3,70000]) {\n"
        "  %y, %w = sort(%x, %v) {dimension=1, is_stable=true, num_keys=1}\n"
        "  return %y, %w\n"
        "}\n");
    TESSERA_ASSERT_OK_AND_ASSIGN(auto executable, device.backend->Compile(program));
    Array x = Random(DType::kF32, {3, 70'000}, 1);
    x.Set(5, std::numeric_limits<double>::quiet_NaN());
    const Array v = Random(DType::kS32, {3, 70'000}, 2);
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> got,
                                 device.Run(*executable, {device.Put(x), device.Put(v)}));
    TESSERA_ASSERT_OK_AND_ASSIGN(const std::vector<Array> want,
                                 ir::Evaluate(*program.entry, {x, v}));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(std::equal(got[i].data(), got[i].data() + got[i].num_bytes(), want[i].data()))
          << "result " << i << " with " << threads << " threads";
  }
  EXPECT_TRUE(steps.tenants.empty());
}

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

// ---- Graphs. ------------------------------------------------------------------------------------

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

}  // namespace
}  // namespace tessera::worker::device
