// Tests of the table's memory, copies, streams, events, modules and launches. The plugin runs on
// the fake driver, whose knobs make allocations fail, kernels wait and contexts end.
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "worker/cuda/testing/device_fixture.h"

namespace tessera::worker::cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DeviceTest : public FakesTest {};

TEST_F(DeviceTest, CountsAndDescribesDevices) {
  SetFake("devices", 3);
  int32_t count = 0;
  ASSERT_EQ(api().device_count(&count), TESSERA_OK) << ErrorText();
  EXPECT_EQ(count, 3);
  EXPECT_STREQ(api().kind, "gpu");
  const TestDevice device(2);
  tessera_device_info info = {};
  ASSERT_EQ(api().info(device.context(), &info), TESSERA_OK) << ErrorText();
  EXPECT_STREQ(info.name, "Fake GPU 2");
  EXPECT_STREQ(info.target, "simt-host");
  EXPECT_EQ(info.memory_bytes, int64_t{1} << 30);
  EXPECT_LE(info.free_bytes, info.memory_bytes);
  EXPECT_EQ(info.num_cores, 4);
  EXPECT_EQ(info.warp_size, 32);
  EXPECT_EQ(info.max_threads_per_block, 1024);
  EXPECT_EQ(info.shared_bytes_per_block, 227 << 10);
}

TEST_F(DeviceTest, DescribesTheLibraries) {
  const TestDevice device(0);
  char text[256];
  api().describe_libraries(device.context(), text, sizeof text);
  EXPECT_STREQ(text, "CUDA driver 13.0; NCCL 2.28.9; cuBLASLt 13.1.0");
}

TEST_F(DeviceTest, RefusesADeviceThatIsNotThere) {
  tessera_context* context = nullptr;
  EXPECT_EQ(api().open(7, &context), TESSERA_UNAVAILABLE);
  EXPECT_THAT(ErrorText(), HasSubstr("there is no GPU 7: the driver shows 2"));
}

TEST_F(DeviceTest, CopiesThereAndBackInOrder) {
  TestDevice device(0);
  const std::vector<int32_t> values = {1, 2, 3, 4};
  const uint64_t a = device.Put(values);
  EXPECT_EQ(a % 256, 0u);
  const uint64_t b = device.Allocate(16);
  EXPECT_EQ(api().fill_zero(device.stream(), b, 16), TESSERA_OK);
  EXPECT_EQ(api().copy(device.stream(), b + 4, a, 8), TESSERA_OK);
  EXPECT_THAT(device.Get<int32_t>(b, 4), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(device.Get<int32_t>(a, 4), ElementsAre(1, 2, 3, 4));
}

TEST_F(DeviceTest, CopiesOfZeroBytesDoNothing) {
  TestDevice device(0);
  EXPECT_EQ(api().copy_to_device(device.stream(), 0, nullptr, 0), TESSERA_OK);
  EXPECT_EQ(api().copy_to_host(device.stream(), nullptr, 0, 0), TESSERA_OK);
  EXPECT_EQ(api().copy(device.stream(), 0, 0, 0), TESSERA_OK);
  EXPECT_EQ(api().fill_zero(device.stream(), 0, 0), TESSERA_OK);
  EXPECT_EQ(api().copy(device.stream(), 0, 0, -1), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("copy: -1 bytes; expected at least 0"));
}

TEST_F(DeviceTest, AFailedAllocationNamesTheFreeBytes) {
  SetFake("memory_bytes", 1 << 20);
  TestDevice device(0);
  device.Allocate(768 << 10);
  uint64_t address = 0;
  EXPECT_EQ(api().allocate(device.context(), 512 << 10, &address), TESSERA_OUT_OF_MEMORY);
  EXPECT_THAT(ErrorText(), AllOf(HasSubstr("allocate: 524288 bytes"),
                                 HasSubstr("262144 of the device's 1048576 bytes are free")));
  EXPECT_EQ(api().allocate(device.context(), 0, &address), TESSERA_INVALID);
  // The failed allocation has lost no memory.
  device.Allocate(256 << 10);
}

TEST_F(DeviceTest, TheFakeFailsChosenAllocations) {
  TestDevice device(0);
  SetFake("oom_at", 2);
  SetFake("oom_host_at", 1);
  device.Allocate(16);
  uint64_t address = 0;
  EXPECT_EQ(api().allocate(device.context(), 16, &address), TESSERA_OUT_OF_MEMORY);
  device.Allocate(16);
  void* host = nullptr;
  EXPECT_EQ(api().allocate_host(device.context(), 16, &host), TESSERA_OUT_OF_MEMORY);
  EXPECT_THAT(ErrorText(), HasSubstr("cannot pin"));
  device.AllocateHost(16);
}

TEST_F(DeviceTest, LaunchesKernelsWithTheirArgumentsAndShape) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const uint64_t a = device.Put<float>({1, 2, 3});
  const uint64_t b = device.Put<float>({10, 20, 30});
  const uint64_t out = device.Allocate(64);
  EXPECT_EQ(device.Launch(module, "add_f32", {out, a, b, 3}), TESSERA_OK) << ErrorText();
  EXPECT_THAT(device.Get<float>(out, 3), ElementsAre(11, 22, 33));
  const uint32_t grid[3] = {3, 2, 1}, block[3] = {32, 4, 2};
  // This is more shared memory than a function has by default.
  EXPECT_EQ(api().launch(device.stream(), module, "shape", grid, block, 100 << 10, &out, 1),
            TESSERA_OK)
      << ErrorText();
  EXPECT_THAT(device.Get<uint32_t>(out, 7), ElementsAre(3, 2, 1, 32, 4, 2, 100 << 10));
  api().module_unload(module);
}

TEST_F(DeviceTest, RefusesWrongLaunches) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  EXPECT_EQ(device.Launch(module, "nothing", {}), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("the module has no function \"nothing\""));
  const uint32_t one[3] = {1, 1, 1}, wide[3] = {1025, 1, 1};
  EXPECT_EQ(api().launch(device.stream(), module, "gate", one, wide, 0, nullptr, 0),
            TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("cuLaunchKernel: error 1 CUDA_ERROR_INVALID_VALUE"));
  EXPECT_EQ(api().launch(device.stream(), module, "gate", one, one, 1 << 20, nullptr, 0),
            TESSERA_INVALID);
  const std::vector<uint64_t> many(257);
  EXPECT_EQ(device.Launch(module, "gate", many), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("has 257 arguments; expected at most 256"));
  SetFake("launch_error_at", 1);
  EXPECT_EQ(device.Launch(module, "gate", {}), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"));
  EXPECT_EQ(device.Sync(), TESSERA_OK);
  api().module_unload(module);
}

TEST_F(DeviceTest, ARefusedModuleGivesTheDriversReason) {
  TestDevice device(0);
  tessera_module* module = nullptr;
  EXPECT_EQ(api().module_load(device.context(), "nonsense", 8, &module), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), AllOf(HasSubstr("CUDA_ERROR_INVALID_PTX"),
                                 HasSubstr("holds neither the test kernels")));
  EXPECT_EQ(api().module_load(device.context(), "", 0, &module), TESSERA_INVALID);
}

TEST_F(DeviceTest, AnEventIsReachedOnceItsWorkHasEnded) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  tessera_event* event = nullptr;
  ASSERT_EQ(api().event_create(device.context(), &event), TESSERA_OK);
  EXPECT_EQ(api().event_query(event), TESSERA_OK) << "an event that was never recorded is reached";
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  ASSERT_EQ(api().event_record(event, device.stream()), TESSERA_OK);
  EXPECT_EQ(api().event_query(event), TESSERA_NOT_READY);
  int elsewhere = TESSERA_OK;
  std::thread([&] { elsewhere = api().event_query(event); }).join();
  EXPECT_EQ(elsewhere, TESSERA_NOT_READY);
  SetFake("gate", 1);
  EXPECT_EQ(Poll([&] { return api().event_query(event); }), TESSERA_OK);
  api().event_destroy(event);
  api().module_unload(module);
}

TEST_F(DeviceTest, AStreamWaitsForAnother) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  tessera_stream* second = nullptr;
  ASSERT_EQ(api().stream_create(device.context(), /*high_priority=*/1, &second), TESSERA_OK);
  const uint64_t a = device.Allocate(4), b = device.Put<uint32_t>({0});
  tessera_event* written = nullptr;
  ASSERT_EQ(api().event_create(device.context(), &written), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "fill_u32", {a, 7, 1}), TESSERA_OK);
  ASSERT_EQ(api().event_record(written, device.stream()), TESSERA_OK);
  ASSERT_EQ(api().stream_wait(second, written), TESSERA_OK);
  ASSERT_EQ(api().event_record(written, device.stream()), TESSERA_OK);
  ASSERT_EQ(api().copy(second, b, a, 4), TESSERA_OK);
  SetFake("gate", 1);
  EXPECT_EQ(device.Sync(second), TESSERA_OK);
  EXPECT_THAT(device.Get<uint32_t>(b, 1), ElementsAre(7));
  api().event_destroy(written);
  api().stream_destroy(second);
  api().module_unload(module);
}

TEST_F(DeviceTest, StreamsRunAtTheSameTime) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  tessera_stream* second = nullptr;
  ASSERT_EQ(api().stream_create(device.context(), 0, &second), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  EXPECT_EQ(device.Sync(second), TESSERA_OK);
  SetFake("gate", 1);
  EXPECT_EQ(device.Sync(), TESSERA_OK);
  api().stream_destroy(second);
  api().module_unload(module);
}

TEST_F(DeviceTest, DestroyDoesNotWaitAndEnqueuedWorkGoesOn) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  tessera_stream* second = nullptr;
  ASSERT_EQ(api().stream_create(device.context(), 0, &second), TESSERA_OK);
  tessera_event* event = nullptr;
  ASSERT_EQ(api().event_create(device.context(), &event), TESSERA_OK);
  const uint64_t a = device.Put<uint32_t>({0});
  ASSERT_EQ(device.Launch(module, "gate", {}, second), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "fill_u32", {a, 7, 1}, second), TESSERA_OK);
  ASSERT_EQ(api().event_record(event, second), TESSERA_OK);
  ASSERT_EQ(api().stream_wait(device.stream(), event), TESSERA_OK);
  api().event_destroy(event);
  api().stream_destroy(second);
  // The module is not unloaded while its kernels run, which the fake would report.
  api().module_unload(module);
  SetFake("gate", 1);
  EXPECT_THAT(device.Get<uint32_t>(a, 1), ElementsAre(7));
}

TEST_F(DeviceTest, CodeOutlivesTheStreamThatItRunsOn) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  tessera_stream* second = nullptr;
  ASSERT_EQ(api().stream_create(device.context(), 0, &second), TESSERA_OK);
  const uint64_t a = device.Put<uint32_t>({0});
  ASSERT_EQ(device.Launch(module, "gate", {}, second), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "fill_u32", {a, 7, 1}, second), TESSERA_OK);
  tessera_event* event = nullptr;
  ASSERT_EQ(api().event_create(device.context(), &event), TESSERA_OK);
  ASSERT_EQ(api().event_record(event, second), TESSERA_OK);
  api().stream_destroy(second);
  api().module_unload(module);
  // The device's other stream has no work. Reap must not unload the module on that account, because
  // the work of the destroyed stream still uses it.
  device.Reap();
  SetFake("gate", 1);
  EXPECT_EQ(Poll([&] { return api().event_query(event); }), TESSERA_OK);
  EXPECT_THAT(device.Get<uint32_t>(a, 1), ElementsAre(7));
  device.Reap();
  api().event_destroy(event);
}

TEST_F(DeviceTest, ALostContextStaysLost) {
  TestDevice device(0), other(1);
  tessera_module* module = device.Load();
  SetFake("sticky_at", 2);
  SetFake("sticky_code", 719);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  tessera_event* event = nullptr;
  ASSERT_EQ(api().event_create(device.context(), &event), TESSERA_OK);
  ASSERT_EQ(api().event_record(event, device.stream()), TESSERA_OK);
  SetFake("gate", 1);
  EXPECT_EQ(Poll([&] { return api().event_query(event); }), TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), AllOf(HasSubstr("CUDA_ERROR_LAUNCH_FAILED"),
                                 HasSubstr("end the process and start another")));
  uint64_t address = 0;
  EXPECT_EQ(api().allocate(device.context(), 16, &address), TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_LAUNCH_FAILED")) << "the first failure is kept";
  EXPECT_EQ(device.Launch(module, "gate", {}), TESSERA_STICKY);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  tessera_device_info info;
  EXPECT_EQ(api().info(device.context(), &info), TESSERA_STICKY);
  // The other device never notices.
  EXPECT_THAT(other.Get<int32_t>(other.Put<int32_t>({5}), 1), ElementsAre(5));
  api().event_destroy(event);
  api().module_unload(module);
}

TEST_F(DeviceTest, ManyThreadsShareAContext) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  // One thread records a graph all the while. The calls of the other threads must not spoil it.
  ASSERT_EQ(api().graph_begin(device.stream()), TESSERA_OK);
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        TestDevice own(0);
        tessera_stream* stream = nullptr;
        ASSERT_EQ(api().stream_create(device.context(), 0, &stream), TESSERA_OK);
        const uint64_t out = own.Allocate(4);
        ASSERT_EQ(own.Launch(module, "fill_u32", {out, i, 1}, stream), TESSERA_OK) << ErrorText();
        ASSERT_EQ(own.Sync(stream), TESSERA_OK) << ErrorText();
        EXPECT_THAT(own.Get<uint32_t>(out, 1), ElementsAre(i));
        api().module_unload(own.Load());
        api().stream_destroy(stream);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  tessera_graph* graph = nullptr;
  EXPECT_EQ(api().graph_end(device.stream(), &graph), TESSERA_OK) << ErrorText();
  api().graph_destroy(graph);
  api().module_unload(module);
}

struct StickyRow {
  int code;
  const char* name;
};
class StickyTest : public DeviceTest, public ::testing::WithParamInterface<StickyRow> {};

TEST_P(StickyTest, EndsTheContext) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  SetFake("gate", 1);
  SetFake("sticky_at", 1);
  SetFake("sticky_code", GetParam().code);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("error " + std::to_string(GetParam().code)));
  api().module_unload(module);
}

INSTANTIATE_TEST_SUITE_P(Codes, StickyTest,
                         ::testing::Values(StickyRow{214, "Ecc"}, StickyRow{220, "Nvlink"},
                                           StickyRow{700, "IllegalAddress"},
                                           StickyRow{702, "Timeout"}, StickyRow{710, "Assert"},
                                           StickyRow{714, "Stack"}, StickyRow{715, "Instruction"},
                                           StickyRow{716, "Misaligned"},
                                           StickyRow{717, "AddressSpace"}, StickyRow{718, "Pc"},
                                           StickyRow{719, "LaunchFailed"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(DeviceTest, AccessOutsideAnAllocationEndsTheContext) {
  TestDevice device(0);
  const uint64_t a = device.Allocate(16);
  EXPECT_EQ(api().fill_zero(device.stream(), a + 8, 16), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_F(DeviceTest, AKernelThatWritesOutsideAnAllocationEndsTheContext) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const uint64_t a = device.Allocate(16);
  EXPECT_EQ(device.Launch(module, "poke", {a, 15}), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_OK);
  EXPECT_EQ(device.Launch(module, "poke", {a, 16}), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  api().module_unload(module);
}

TEST_F(DeviceTest, TwoHoldersOfADeviceShareIt) {
  TestDevice first(0);
  {
    TestDevice second(0);
    EXPECT_THAT(second.Get<int32_t>(second.Put<int32_t>({4}), 1), ElementsAre(4));
  }
  EXPECT_THAT(first.Get<int32_t>(first.Put<int32_t>({5}), 1), ElementsAre(5));
}

}  // namespace
}  // namespace tessera::worker::cuda
