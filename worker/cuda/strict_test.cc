// Tests of the fakes: every check of theirs is met by a call that breaks it. The call goes through
// the plugin if a user of the plugin can make it, and to the libraries' own functions if only a bug
// of the plugin could. Each test is named for the mistake that it makes.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "worker/cuda/testing/device_fixture.h"
#include "worker/cuda/testing/raw_fakes.h"

namespace tessera::worker::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr tessera_dtype kF32 = TESSERA_F32;

class StrictTest : public FakesTest {
 protected:
  StrictTest() { SetFake("devices", 4); }
  // Returns the violations so far.
  static std::string Violations() { return FakeViolations(); }

  // Holds the stream's work back until the knob is set.
  static tessera_module* CloseGate(TestDevice& device) {
    tessera_module* module = device.Load();
    EXPECT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
    return module;
  }
  static void OpenGate(TestDevice& device, tessera_module* module) {
    SetFake("gate", 1);
    EXPECT_EQ(device.Sync(), TESSERA_OK);
    api().module_unload(module);
  }
};

using StrictMemoryTest = StrictTest;

TEST_F(StrictMemoryTest, FreedWhileInUse) {
  TestDevice device(0);
  tessera_module* gate = CloseGate(device);
  uint64_t address = 0;
  void* pinned = nullptr;
  ASSERT_EQ(api().allocate(device.context(), 16, &address), TESSERA_OK);
  ASSERT_EQ(api().allocate_host(device.context(), 16, &pinned), TESSERA_OK);
  ASSERT_EQ(api().copy_to_device(device.stream(), address, pinned, 16), TESSERA_OK);
  api().free_host(device.context(), pinned);
  EXPECT_THAT(Violations(), HasSubstr("is freed while 1 piece of enqueued work uses it"));
  api().free(device.context(), address);
  EXPECT_THAT(Violations(), HasSubstr("is freed while 1 piece of enqueued work uses it"));
  SetFake("gate", 1);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY) << "what is freed is not there when the copy runs";
  api().module_unload(gate);
}

TEST_F(StrictMemoryTest, AGraphOverMemoryThatWasFreed) {
  TestDevice device(0);
  const uint64_t address = device.Allocate(16);
  ASSERT_EQ(api().graph_begin(device.stream()), TESSERA_OK);
  ASSERT_EQ(api().fill_zero(device.stream(), address, 16), TESSERA_OK);
  tessera_graph* graph = nullptr;
  ASSERT_EQ(api().graph_end(device.stream(), &graph), TESSERA_OK);
  device.Free(address);
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  api().graph_destroy(graph);
}

TEST_F(StrictMemoryTest, FreedTwiceOrNeverAllocated) {
  TestDevice device(0);
  const uint64_t address = device.Allocate(16);
  EXPECT_EQ(api().free(device.context(), address + 1), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("where no live allocation of device 0 begins"));
  device.Free(address);
  EXPECT_EQ(api().free(device.context(), address), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("where no live allocation of device 0 begins"));
  int local = 0;
  EXPECT_EQ(api().free_host(device.context(), &local), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("where no live pinned allocation begins"));
}

TEST_F(StrictMemoryTest, AddressesOfHostAndDeviceMixedUp) {
  TestDevice device(0);
  const uint64_t address = device.Allocate(16);
  void* const pinned = device.AllocateHost(16);
  const auto host = reinterpret_cast<uint64_t>(pinned);
  EXPECT_EQ(api().copy_to_device(device.stream(), host, pinned, 16), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("is no address of a device"));
  EXPECT_EQ(api().copy_to_device(device.stream(), address, reinterpret_cast<void*>(address), 16),
            TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("is no address of the host"));
  EXPECT_EQ(api().copy(device.stream(), address, host, 16), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("is no address of a device"));
}

TEST_F(StrictMemoryTest, HostMemoryThatIsNotPinned) {
  TestDevice device(0);
  const uint64_t address = device.Allocate(16);
  char local[16] = {};
  EXPECT_EQ(api().copy_to_device(device.stream(), address, local, 16), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("are not pinned (allocate_host)"));
  EXPECT_EQ(api().copy_to_host(device.stream(), local, address, 16), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("are not pinned (allocate_host)"));
  void* const pinned = device.AllocateHost(16);
  EXPECT_EQ(api().copy_to_host(device.stream(), static_cast<char*>(pinned) + 8, address, 16),
            TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("16 bytes at"));
}

TEST_F(StrictMemoryTest, CopiesOfRangesThatOverlap) {
  TestDevice device(0);
  const uint64_t address = device.Allocate(16);
  EXPECT_EQ(api().copy(device.stream(), address, address + 4, 8), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("overlap"));
}

TEST_F(StrictMemoryTest, WritesOfTheHostBesidePinnedMemory) {
  TestDevice device(0);
  void* pinned = nullptr;
  ASSERT_EQ(api().allocate_host(device.context(), 16, &pinned), TESSERA_OK);
  static_cast<volatile char*>(pinned)[16] = 1;
  api().free_host(device.context(), pinned);
  EXPECT_THAT(Violations(), HasSubstr("something was written outside the memory"));
}

TEST_F(StrictMemoryTest, AnotherDevicesMemory) {
  TestDevice device(0), other(1);
  const uint64_t address = other.Allocate(16);
  EXPECT_EQ(api().fill_zero(device.stream(), address, 16), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  EXPECT_EQ(other.Sync(), TESSERA_OK);
}

TEST_F(StrictMemoryTest, AKernelsArgumentOutsideEveryAllocation) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const uint64_t address = device.Allocate(16);
  device.Free(address);
  EXPECT_EQ(device.Launch(module, "fill_u32", {address, 1, 1}), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  api().module_unload(module);
}

TEST_F(StrictMemoryTest, AKernelWithTheWrongNumberOfArguments) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  EXPECT_EQ(device.Launch(module, "fill_u32", {0, 1}), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("cuLaunchKernel of fill_u32 with 2 arguments; it takes 3"));
  api().module_unload(module);
}

using StrictDeathTest = StrictTest;

TEST_F(StrictDeathTest, ByDefaultAViolationEndsTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        SetFake("violation_abort", 1);
        TestDevice device(0);
        int local = 0;
        api().free_host(device.context(), &local);
      },
      "fake device: cuMemFreeHost of .*, where no live pinned allocation begins");
}

TEST_F(StrictDeathTest, TheHostCannotReadADevicesMemory) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        TestDevice device(0);
        const uint64_t address = device.Allocate(16);
        printf("%d", *reinterpret_cast<volatile char*>(address));
      },
      "");
}

using StrictStreamTest = StrictTest;

TEST_F(StrictStreamTest, HandlesOfTwoDevicesTogether) {
  TestDevice device(0), other(1);
  tessera_event* event = nullptr;
  ASSERT_EQ(api().event_create(other.context(), &event), TESSERA_OK);
  EXPECT_EQ(api().event_record(event, device.stream()), TESSERA_INVALID);
  EXPECT_THAT(Violations(),
              HasSubstr("a stream of device 0 by a thread whose context is of device 1"));
  api().event_destroy(event);
  tessera_module* module = other.Load();
  EXPECT_EQ(device.Launch(module, "gate", {}), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_INVALID_HANDLE"));
  api().module_unload(module);
}

// Calls the driver's own functions, on device 0.
class RawDriverTest : public StrictTest {
 protected:
  RawDriverTest() : cu_(RawDriver()), device_(0) {
    cu_.cuCtxSetCurrent(nullptr);
    EXPECT_EQ(cu_.cuMemAlloc_v2(&address_, 16), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(cu_.cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuMemAlloc_v2(&address_, 16), CUDA_SUCCESS);
    stream_ = NewStream();
    EXPECT_EQ(cu_.cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  }
  ~RawDriverTest() override {
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuMemFree_v2(address_), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  }
  CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_EQ(cu_.cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
    return stream;
  }
  CUfunction LoadGate(CUmodule* module) {
    CUfunction function = nullptr;
    EXPECT_EQ(cu_.cuModuleLoadDataEx(module, kTestImage, 0, nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuModuleGetFunction(&function, *module, "gate"), CUDA_SUCCESS);
    return function;
  }
  CUresult Launch(CUfunction function, CUstream stream) {
    return cu_.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  void OpenGateAndWait(CUstream stream) {
    SetFake("gate", 1);
    EXPECT_EQ(Poll([&] {
                const CUresult result = cu_.cuStreamQuery(stream);
                return result == CUDA_ERROR_NOT_READY ? TESSERA_NOT_READY
                                                      : static_cast<int>(result);
              }),
              CUDA_SUCCESS);
  }

  const DriverApi& cu_;
  TestDevice device_;  // keeps the context alive
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
};

TEST_F(RawDriverTest, HandlesThatWereDestroyed) {
  ASSERT_EQ(cu_.cuStreamDestroy_v2(stream_), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemsetD8Async(address_, 0, 16, stream_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuMemsetD8Async on a stream that was destroyed"));
  EXPECT_EQ(cu_.cuStreamQuery(stream_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuStreamQuery of a stream that was destroyed"));
  EXPECT_EQ(cu_.cuStreamDestroy_v2(stream_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuStreamDestroy of a stream that was destroyed"));
  ASSERT_EQ(cu_.cuEventDestroy_v2(event_), CUDA_SUCCESS);
  const CUstream stream = NewStream();
  EXPECT_EQ(cu_.cuEventRecord(event_, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuEventRecord of an event that was destroyed"));
  EXPECT_EQ(cu_.cuStreamWaitEvent(stream, event_, 0), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuStreamWaitEvent for an event that was destroyed"));
  EXPECT_EQ(cu_.cuEventQuery(event_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuEventQuery of an event that was destroyed"));
  EXPECT_EQ(cu_.cuEventDestroy_v2(event_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuEventDestroy of an event that was destroyed"));
}

TEST_F(RawDriverTest, AnEventOfAnotherDevice) {
  const TestDevice other(1);
  tessera_device_info info;
  ASSERT_EQ(api().info(other.context(), &info), TESSERA_OK);
  CUevent event = nullptr;
  ASSERT_EQ(cu_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuEventRecord(event, stream_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("an event of device 1 on a stream of device 0"));
}

TEST_F(RawDriverTest, GraphsThatWereDestroyed) {
  ASSERT_EQ(cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(cu_.cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(cu_.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuGraphLaunch(exec, stream_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuGraphLaunch of a graph that was destroyed"));
  EXPECT_EQ(cu_.cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuGraphExecDestroy of a graph that was destroyed"));
}

TEST_F(RawDriverTest, ModulesUnloadedTooEarly) {
  CUmodule module = nullptr;
  const CUfunction gate = LoadGate(&module);
  ASSERT_EQ(Launch(gate, stream_), CUDA_SUCCESS);
  cu_.cuModuleUnload(module);
  EXPECT_THAT(Violations(), HasSubstr("cuModuleUnload while 1 of its kernels are enqueued"));
  EXPECT_EQ(Launch(gate, stream_), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuLaunchKernel of gate, whose module was unloaded"));
  CUfunction function = nullptr;
  EXPECT_EQ(cu_.cuModuleGetFunction(&function, module, "gate"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuModuleGetFunction of a module that was unloaded"));
  EXPECT_EQ(cu_.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("cuModuleUnload of a module that was unloaded"));
  OpenGateAndWait(stream_);
}

TEST_F(RawDriverTest, TheDefaultStream) {
  EXPECT_EQ(cu_.cuMemsetD8Async(address_, 0, 16, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("on the default stream, which waits for the others"));
  CUstream stream = nullptr;
  EXPECT_EQ(cu_.cuStreamCreateWithPriority(&stream, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Violations(), HasSubstr("a stream that waits for the default stream"));
}

TEST_F(RawDriverTest, AContextReleasedTooOften) {
  EXPECT_EQ(cu_.cuDevicePrimaryCtxRelease_v2(3), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_THAT(Violations(), HasSubstr("device 3, which nobody retains"));
}

TEST_F(RawDriverTest, CallsThatSpoilARecording) {
  CUgraph graph = nullptr;
  CUdeviceptr address = 0;
  CUmodule module = nullptr;
  void* pinned = nullptr;
  const std::vector<std::function<CUresult()>> calls = {
      [&] { return cu_.cuMemAlloc_v2(&address, 16); },
      [&] { return cu_.cuMemFree_v2(address_); },
      [&] { return cu_.cuMemAllocHost_v2(&pinned, 16); },
      [&] { return cu_.cuMemFreeHost(pinned); },
      [&] { return cu_.cuEventQuery(event_); },
      [&] { return cu_.cuModuleLoadDataEx(&module, kTestImage, 0, nullptr, nullptr); }};
  for (const auto& call : calls) {
    ASSERT_EQ(cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    EXPECT_EQ(call(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(cu_.cuMemsetD8Async(address_, 0, 16, stream_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(cu_.cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  // A global recording forbids the calls to every thread.
  ASSERT_EQ(cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  std::thread([&] {
    EXPECT_EQ(cu_.cuEventQuery(event_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }).join();
  EXPECT_EQ(cu_.cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(RawDriverTest, RecordingsThatAreEndedWrongly) {
  CUgraph graph = nullptr;
  EXPECT_EQ(cu_.cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_ERROR_ILLEGAL_STATE);
  std::thread([&] {
    cu_.cuCtxSetCurrent(context_);
    EXPECT_EQ(cu_.cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  // A stream that was pulled into a recording cannot end it, and another recording cannot join it.
  const CUstream second = NewStream(), third = NewStream();
  ASSERT_EQ(cu_.cuEventRecord(event_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamWaitEvent(second, event_, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamEndCapture(second, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  ASSERT_EQ(cu_.cuStreamBeginCapture_v2(third, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamWaitEvent(third, event_, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(cu_.cuStreamEndCapture(third, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cu_.cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cu_.cuEventQuery(event_), CUDA_ERROR_CAPTURED_EVENT);
}

// Calls NCCL's own functions, for ranks in this process.
class StrictNcclTest : public StrictTest {
 protected:
  StrictNcclTest() : nccl_(RawNccl()) {}

  // A device and its end of a communicator.
  struct CommEnd {
    explicit CommEnd(int device) : device(device) {}
    TestDevice device;
    CUstream stream = nullptr;
    CUdeviceptr buffer = 0;
    ncclComm_t comm = nullptr;
  };
  // Makes the device's context the calling thread's context.
  void MakeCurrent(const CommEnd& end) {
    tessera_device_info info;
    EXPECT_EQ(api().info(end.device.context(), &info), TESSERA_OK) << ErrorText();
  }
  std::unique_ptr<CommEnd> Join(const ncclUniqueId& id, int num_ranks, int rank) {
    auto end = std::make_unique<CommEnd>(rank);
    end->buffer = end->device.Allocate(1024);
    EXPECT_EQ(RawDriver().cuStreamCreateWithPriority(&end->stream, CU_STREAM_NON_BLOCKING, 0),
              CUDA_SUCCESS);
    NcclConfig config;
    config.blocking = 0;
    EXPECT_EQ(nccl_.ncclCommInitRankConfig(&end->comm, num_ranks, id, rank, &config),
              ncclInProgress);
    return end;
  }
  void WaitReady(const CommEnd& end) {
    EXPECT_EQ(Poll([&] {
                ncclResult_t state = ncclSuccess;
                EXPECT_EQ(nccl_.ncclCommGetAsyncError(end.comm, &state), ncclSuccess);
                return state == ncclInProgress ? TESSERA_NOT_READY : static_cast<int>(state);
              }),
              ncclSuccess);
  }
  ncclUniqueId Id() {
    ncclUniqueId id;
    EXPECT_EQ(nccl_.ncclGetUniqueId(&id), ncclSuccess);
    return id;
  }
  std::unique_ptr<CommEnd> JoinAlone() {
    auto end = Join(Id(), 1, 0);
    WaitReady(*end);
    return end;
  }
  ncclResult_t AllReduce(const CommEnd& end, size_t count = 4) {
    void* const buffer = reinterpret_cast<void*>(end.buffer);
    return nccl_.ncclAllReduce(buffer, buffer, count, ncclFloat32, ncclSum, end.comm, end.stream);
  }
  // Waits until the operation has failed at one of the two ends, then aborts both.
  void AwaitMismatch(CommEnd& first, CommEnd& second) {
    EXPECT_EQ(Poll([&] {
                for (const CommEnd* end : {&first, &second}) {
                  ncclResult_t state = ncclSuccess;
                  nccl_.ncclCommGetAsyncError(end->comm, &state);
                  if (state == ncclInvalidUsage) return TESSERA_OK;
                }
                return TESSERA_NOT_READY;
              }),
              TESSERA_OK);
    Abort(first);
    Abort(second);
  }
  void Abort(CommEnd& end) {
    MakeCurrent(end);
    EXPECT_EQ(nccl_.ncclCommAbort(end.comm), ncclSuccess);
    EXPECT_EQ(Poll([&] {
                return RawDriver().cuStreamQuery(end.stream) == CUDA_ERROR_NOT_READY
                           ? TESSERA_NOT_READY
                           : TESSERA_OK;
              }),
              TESSERA_OK);
  }

  const NcclApi& nccl_;
};

struct MismatchRow {
  const char* name;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  bool gather;
};
class NcclMismatchTest : public StrictNcclTest,
                         public ::testing::WithParamInterface<MismatchRow> {};

TEST_P(NcclMismatchTest, IsNoticed) {
  const MismatchRow& row = GetParam();
  const ncclUniqueId id = Id();
  auto first = Join(id, 2, 0), second = Join(id, 2, 1);
  WaitReady(*first);
  WaitReady(*second);
  MakeCurrent(*first);
  ASSERT_EQ(AllReduce(*first), ncclSuccess);
  MakeCurrent(*second);
  const void* const in = reinterpret_cast<const void*>(second->buffer);
  void* const out = reinterpret_cast<void*>(second->buffer + 512);
  ASSERT_EQ(
      row.gather
          ? nccl_.ncclAllGather(in, out, row.count, row.type, second->comm, second->stream)
          : nccl_.ncclAllReduce(in, out, row.count, row.type, row.op, second->comm, second->stream),
      ncclSuccess);
  AwaitMismatch(*first, *second);
  EXPECT_THAT(Violations(), AllOf(HasSubstr("rank 0 is at"), HasSubstr("rank 1 is at"),
                                  HasSubstr("ncclAllReduce 0 of 4 elements of type 7")));
}

INSTANTIATE_TEST_SUITE_P(Rows, NcclMismatchTest,
                         ::testing::Values(MismatchRow{"Kind", 4, ncclFloat32, ncclSum, true},
                                           MismatchRow{"Count", 5, ncclFloat32, ncclSum, false},
                                           MismatchRow{"Type", 4, ncclInt32, ncclSum, false},
                                           MismatchRow{"Reduction", 4, ncclFloat32, ncclProd,
                                                       false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(StrictNcclTest, OperationsInAnotherOrder) {
  const ncclUniqueId id = Id();
  auto first = Join(id, 2, 0), second = Join(id, 2, 1);
  WaitReady(*first);
  WaitReady(*second);
  // Rank 0 sends first. Rank 1 enqueues its collective first, and would receive after it.
  MakeCurrent(*first);
  ASSERT_EQ(nccl_.ncclSend(reinterpret_cast<void*>(first->buffer + 512), 4, ncclFloat32, 1,
                           first->comm, first->stream),
            ncclSuccess);
  ASSERT_EQ(AllReduce(*first), ncclSuccess);
  MakeCurrent(*second);
  ASSERT_EQ(AllReduce(*second), ncclSuccess);
  AwaitMismatch(*first, *second);
  EXPECT_THAT(Violations(), HasSubstr("rank 0 is at ncclSend/ncclRecv 0"));
}

TEST_F(StrictNcclTest, RanksThatWaitForOneAnother) {
  const ncclUniqueId id = Id();
  auto first = Join(id, 2, 0), second = Join(id, 2, 1);
  WaitReady(*first);
  WaitReady(*second);
  for (CommEnd* end : {first.get(), second.get()}) {
    MakeCurrent(*end);
    const int peer = end == first.get() ? 1 : 0;
    void* const buffer = reinterpret_cast<void*>(end->buffer);
    // In a group the ranks would send and receive at the same time.
    ASSERT_EQ(nccl_.ncclRecv(buffer, 4, ncclFloat32, peer, end->comm, end->stream), ncclSuccess);
    ASSERT_EQ(nccl_.ncclSend(buffer, 4, ncclFloat32, peer, end->comm, end->stream), ncclSuccess);
  }
  std::string violations;
  EXPECT_EQ(Poll([&] {
              violations += Violations();
              return violations.empty() ? TESSERA_NOT_READY : TESSERA_OK;
            }),
            TESSERA_OK);
  EXPECT_THAT(violations, HasSubstr("the ranks (as bits) 0x3 wait for one another"));
  Abort(*first);
  Abort(*second);
  // The other rank may have reported the violation as well.
  FakeViolations();
}

TEST_F(StrictNcclTest, TwoThreadsAtOnce) {
  auto end = JoinAlone();
  ASSERT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(AllReduce(*end), ncclSuccess);
  std::thread([&] {
    MakeCurrent(*end);
    EXPECT_EQ(AllReduce(*end), ncclInvalidUsage);
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(nccl_.ncclCommGetAsyncError(end->comm, &state), ncclInvalidUsage);
  }).join();
  EXPECT_THAT(Violations(), AllOf(HasSubstr("ncclAllReduce on rank 0's communicator while another "
                                            "thread uses it"),
                                  HasSubstr("ncclCommGetAsyncError on rank 0's")));
  EXPECT_EQ(nccl_.ncclGroupEnd(), ncclSuccess);
  Abort(*end);
}

TEST_F(StrictNcclTest, CallsThatWaitInsideAGroup) {
  auto end = JoinAlone();
  const DriverApi& cu = RawDriver();
  CUdeviceptr address = 0;
  CUevent event = nullptr;
  ASSERT_EQ(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(cu.cuMemAlloc_v2(&address, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Violations(), HasSubstr("cuMemAlloc between ncclGroupStart and ncclGroupEnd"));
  EXPECT_EQ(cu.cuStreamQuery(end->stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Violations(), HasSubstr("cuStreamQuery between"));
  EXPECT_EQ(cu.cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Violations(), HasSubstr("cuEventQuery between"));
  ASSERT_EQ(nccl_.ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(nccl_.ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(cu.cuEventQuery(event), CUDA_ERROR_INVALID_VALUE) << "the outer group is open";
  EXPECT_THAT(Violations(), HasSubstr("cuEventQuery between"));
  ASSERT_EQ(nccl_.ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(cu.cuEventQuery(event), CUDA_SUCCESS);
  EXPECT_EQ(nccl_.ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("ncclGroupEnd without ncclGroupStart"));
  Abort(*end);
}

TEST_F(StrictNcclTest, UseBeforeItIsReady) {
  auto end = Join(Id(), 2, 0);
  EXPECT_EQ(AllReduce(*end), ncclInvalidUsage);
  EXPECT_THAT(Violations(),
              HasSubstr("ncclAllReduce on rank 0's communicator, which is not ready"));
  EXPECT_EQ(nccl_.ncclCommFinalize(end->comm), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("ncclCommFinalize on rank 0's communicator, which is not"));
  Abort(*end);
}

TEST_F(StrictNcclTest, TheStreamBeforeNcclHasEnqueued) {
  auto end = JoinAlone();
  SetFake("nccl_in_progress_polls", 2);
  ASSERT_EQ(AllReduce(*end), ncclInProgress);
  EXPECT_EQ(RawDriver().cuMemsetD8Async(end->buffer, 0, 16, end->stream),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_THAT(Violations(), HasSubstr("NCCL, whose call is in progress, has yet to enqueue"));
  EXPECT_EQ(AllReduce(*end), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("which is not ready"));
  WaitReady(*end);
  EXPECT_EQ(RawDriver().cuMemsetD8Async(end->buffer, 0, 16, end->stream), CUDA_SUCCESS);
  Abort(*end);
}

TEST_F(StrictNcclTest, OperationsAtTheSameTimeOnTwoStreams) {
  const ncclUniqueId id = Id();
  auto first = Join(id, 2, 0), second = Join(id, 2, 1);
  WaitReady(*first);
  WaitReady(*second);
  MakeCurrent(*first);
  CUstream other = nullptr;
  ASSERT_EQ(RawDriver().cuStreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0),
            CUDA_SUCCESS);
  // Rank 1 never comes, so both operations stay under way.
  ASSERT_EQ(AllReduce(*first), ncclSuccess);
  void* const buffer = reinterpret_cast<void*>(first->buffer + 512);
  ASSERT_EQ(nccl_.ncclAllReduce(buffer, buffer, 4, ncclFloat32, ncclSum, first->comm, other),
            ncclSuccess);
  std::string violations;
  EXPECT_EQ(Poll([&] {
              violations += Violations();
              return violations.empty() ? TESSERA_NOT_READY : TESSERA_OK;
            }),
            TESSERA_OK);
  EXPECT_THAT(violations,
              HasSubstr("two operations of rank 0's communicator run at the same time"));
  Abort(*first);
  EXPECT_EQ(Poll([&] {
              return RawDriver().cuStreamQuery(other) == CUDA_ERROR_NOT_READY ? TESSERA_NOT_READY
                                                                              : TESSERA_OK;
            }),
            TESSERA_OK);
  Abort(*second);
}

TEST_F(StrictNcclTest, MemoryThatIsNotTheDevices) {
  auto end = JoinAlone();
  EXPECT_EQ(AllReduce(*end, 257), ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("1028 bytes at"));
  float local[4] = {};
  EXPECT_EQ(nccl_.ncclAllReduce(local, local, 4, ncclFloat32, ncclSum, end->comm, end->stream),
            ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("in: 16 bytes at"));
  // The result of all_gather is as large as all the parts together.
  void* const buffer = reinterpret_cast<void*>(end->buffer);
  EXPECT_EQ(nccl_.ncclAllGather(buffer, reinterpret_cast<void*>(end->buffer + 1016), 4, ncclFloat32,
                                end->comm, end->stream),
            ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("out: 16 bytes at"));
  Abort(*end);
}

TEST_F(StrictNcclTest, AnotherDevicesStreamOrThread) {
  auto end = JoinAlone();
  const TestDevice other(2);
  tessera_device_info info;
  ASSERT_EQ(api().info(other.context(), &info), TESSERA_OK);
  EXPECT_EQ(AllReduce(*end), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("the communicator is of device 0, the stream or the thread"));
  Abort(*end);
}

TEST_F(StrictNcclTest, CommDestroyedInTheWrongOrder) {
  auto end = JoinAlone();
  EXPECT_EQ(nccl_.ncclCommDestroy(end->comm), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("which would wait: finalize it first"));
  Abort(*end);
  EXPECT_EQ(AllReduce(*end), ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("on a communicator that was destroyed or aborted"));
  EXPECT_EQ(nccl_.ncclCommAbort(end->comm), ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("ncclCommAbort of a communicator that was"));
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(nccl_.ncclCommGetAsyncError(end->comm, &state), ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("ncclCommGetAsyncError of a communicator that was"));
  EXPECT_EQ(nccl_.ncclCommDestroy(end->comm), ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("ncclCommDestroy of a communicator that was"));
}

TEST_F(StrictNcclTest, CommInitWithWrongArguments) {
  const ncclUniqueId id = Id();
  auto end = Join(id, 2, 0);
  const TestDevice other(1);
  ncclComm_t comm = nullptr;
  NcclConfig config;
  EXPECT_EQ(nccl_.ncclCommInitRankConfig(&comm, 2, id, 1, &config), ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("the configuration is none, or blocks"));
  config.blocking = 0;
  EXPECT_EQ(nccl_.ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("rank 0 of 2 joins a communicator of 2 ranks, where it is"));
  EXPECT_EQ(nccl_.ncclCommInitRankConfig(&comm, 3, id, 1, &config), ncclInvalidUsage);
  EXPECT_THAT(Violations(), HasSubstr("rank 1 of 3 joins a communicator of 2 ranks"));
  EXPECT_EQ(nccl_.ncclCommInitRankConfig(&comm, 1, ncclUniqueId{}, 0, &config),
            ncclInvalidArgument);
  EXPECT_THAT(Violations(), HasSubstr("no communicator has this id"));
  Abort(*end);
}

using StrictCublasLtTest = StrictTest;

TEST_F(StrictCublasLtTest, BuffersThatAreTooSmall) {
  TestDevice device(0);
  const tessera_matmul_shape shape = {1,          4,          4,    4,    {16, 4, 1},
                                      {16, 4, 1}, {16, 4, 1}, kF32, kF32, 0};
  tessera_matmul* matmul = nullptr;
  int64_t scratch_bytes = 0;
  ASSERT_EQ(api().matmul_plan(device.context(), &shape, &matmul, &scratch_bytes), TESSERA_OK);
  const uint64_t whole = device.Allocate(64), part = device.Allocate(60);
  const uint64_t scratch = device.Allocate(scratch_bytes);
  const uint64_t little = device.Allocate(scratch_bytes - 1);
  const auto run = [&](uint64_t a, uint64_t b, uint64_t c, uint64_t s) {
    return api().matmul_run(device.stream(), matmul, a, b, c, s);
  };
  EXPECT_EQ(run(part, whole, whole, scratch), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("cublasLtMatmul: b: 64 bytes"));
  EXPECT_EQ(run(whole, part, whole, scratch), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("cublasLtMatmul: a: 64 bytes"));
  EXPECT_EQ(run(whole, whole, part, scratch), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("cublasLtMatmul: d: 64 bytes"));
  EXPECT_EQ(run(whole, whole, whole, little), TESSERA_INVALID);
  EXPECT_THAT(Violations(), HasSubstr("cublasLtMatmul: scratch: 4096 bytes"));
  EXPECT_THAT(ErrorText(), HasSubstr("(status 7)"));
  api().matmul_destroy(matmul);
}

TEST_F(StrictCublasLtTest, MatricesThatDoNotAgree) {
  const CublasLtApi& lt = RawCublasLt();
  cublasLtMatrixLayout_t square = nullptr, wide = nullptr, none = nullptr;
  EXPECT_EQ(lt.cublasLtMatrixLayoutCreate(&none, CUDA_R_32F, 4, 2, 3), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Violations(), HasSubstr("4 rows with a leading dimension of 3"));
  ASSERT_EQ(lt.cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, 4, 4, 4), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(lt.cublasLtMatrixLayoutCreate(&wide, CUDA_R_32F, 4, 5, 4), CUBLAS_STATUS_SUCCESS);
  cublasLtMatmulPreference_t preference = nullptr;
  ASSERT_EQ(lt.cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
  const auto ask = [&](cublasComputeType_t compute, cublasLtMatrixLayout_t a,
                       cublasLtMatrixLayout_t b) {
    cublasLtMatmulDesc_t desc = nullptr;
    EXPECT_EQ(lt.cublasLtMatmulDescCreate(&desc, compute,
                                          compute == CUBLAS_COMPUTE_64F ? CUDA_R_64F : CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulHeuristicResult_t result;
    int count = 0;
    const cublasStatus_t status = lt.cublasLtMatmulAlgoGetHeuristic(
        nullptr, desc, a, b, square, square, preference, 1, &result, &count);
    EXPECT_EQ(lt.cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
    return status;
  };
  EXPECT_EQ(ask(CUBLAS_COMPUTE_32F, square, square), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(ask(CUBLAS_COMPUTE_32F, wide, square), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(ask(CUBLAS_COMPUTE_32F, square, wide), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(ask(CUBLAS_COMPUTE_64F, square, square), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Violations(), HasSubstr("do not agree"));
  // The algorithm did not come from the library, and the operands are null.
  cublasLtMatmulDesc_t desc = nullptr;
  ASSERT_EQ(lt.cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            CUBLAS_STATUS_SUCCESS);
  const float one = 1, zero = 0;
  const cublasLtMatmulAlgo_t made_up = {};
  EXPECT_EQ(lt.cublasLtMatmul(nullptr, desc, &one, nullptr, square, nullptr, square, &zero, nullptr,
                              square, nullptr, square, &made_up, nullptr, 0, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_THAT(Violations(),
              HasSubstr("an algorithm, factors or operands that the plugin does not"));
  EXPECT_EQ(lt.cublasLtMatmulDescDestroy(desc), CUBLAS_STATUS_SUCCESS);
  for (const cublasLtMatrixLayout_t layout : {square, wide}) {
    EXPECT_EQ(lt.cublasLtMatrixLayoutDestroy(layout), CUBLAS_STATUS_SUCCESS);
  }
  EXPECT_EQ(lt.cublasLtMatmulPreferenceDestroy(preference), CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace tessera::worker::cuda
