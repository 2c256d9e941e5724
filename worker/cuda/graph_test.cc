// Tests of recording and launching graphs, on the fake driver. They compare a graph with the same
// calls run directly, and check what a recording forbids.
#include <cstdint>
#include <thread>
#include <vector>

#include "worker/cuda/testing/device_fixture.h"

namespace tessera::worker::cuda {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GraphTest : public FakesTest {
 protected:
  int Begin(const TestDevice& device) { return api().graph_begin(device.stream()); }
  int End(const TestDevice& device, tessera_graph** graph) {
    return api().graph_end(device.stream(), graph);
  }
};

// Every kind of call that can be recorded. The calls are run directly or as a graph.
class RecordableCalls {
 public:
  explicit RecordableCalls(TestDevice* device)
      : api_(FakeDevices()), device_(*device), module_(device->Load()) {
    const tessera_matmul_shape shape = {1,         2,         2,           2,           {4, 2, 1},
                                        {4, 2, 1}, {4, 2, 1}, TESSERA_F32, TESSERA_F32, 0};
    int64_t scratch_bytes = 0;
    EXPECT_EQ(api_.matmul_plan(device_.context(), &shape, &matmul_, &scratch_bytes), TESSERA_OK);
    scratch_ = device_.Allocate(scratch_bytes + 1);
    EXPECT_EQ(api_.stream_create(device_.context(), 0, &second_), TESSERA_OK);
    EXPECT_EQ(api_.event_create(device_.context(), &forked_), TESSERA_OK);
    EXPECT_EQ(api_.event_create(device_.context(), &joined_), TESSERA_OK);
    staging_in_ = device_.AllocateHost(16);
    staging_out_ = device_.AllocateHost(32);
    for (uint64_t* buffer : {&in_, &sum_, &product_, &all_}) *buffer = device_.Allocate(64);
  }
  ~RecordableCalls() {
    api_.event_destroy(forked_);
    api_.event_destroy(joined_);
    api_.stream_destroy(second_);
    api_.matmul_destroy(matmul_);
    api_.module_unload(module_);
  }

  void SetInput(const std::vector<float>& values) { memcpy(staging_in_, values.data(), 16); }

  // Computes in = staging; sum = in + in; in a second stream all[4..7] = 0; product = sum x in;
  // all[0..3] = product; staging = all.
  void Enqueue() {
    tessera_stream* const s = device_.stream();
    EXPECT_EQ(api_.copy_to_device(s, in_, staging_in_, 16), TESSERA_OK);
    EXPECT_EQ(api_.event_record(forked_, s), TESSERA_OK);
    EXPECT_EQ(api_.stream_wait(second_, forked_), TESSERA_OK);
    EXPECT_EQ(api_.fill_zero(second_, all_ + 16, 16), TESSERA_OK);
    EXPECT_EQ(api_.event_record(joined_, second_), TESSERA_OK);
    EXPECT_EQ(device_.Launch(module_, "add_f32", {sum_, in_, in_, 4}), TESSERA_OK);
    EXPECT_EQ(api_.matmul_run(s, matmul_, sum_, in_, product_, scratch_), TESSERA_OK);
    EXPECT_EQ(api_.copy(s, all_, product_, 16), TESSERA_OK);
    EXPECT_EQ(api_.stream_wait(s, joined_), TESSERA_OK);
    EXPECT_EQ(api_.copy_to_host(s, staging_out_, all_, 32), TESSERA_OK);
  }

  // Returns the output of Enqueue, or of the graph of it, after it has ended.
  std::vector<float> Output() {
    EXPECT_EQ(device_.Sync(), TESSERA_OK) << api_.error_text();
    std::vector<float> values(8);
    memcpy(values.data(), staging_out_, 32);
    memset(staging_out_, 0xff, 32);
    return values;
  }

 private:
  const tessera_device_api& api_;
  TestDevice& device_;
  tessera_module* const module_;
  tessera_matmul* matmul_ = nullptr;
  tessera_stream* second_ = nullptr;
  tessera_event* forked_ = nullptr;
  tessera_event* joined_ = nullptr;
  void* staging_in_ = nullptr;
  void* staging_out_ = nullptr;
  uint64_t in_ = 0, sum_ = 0, product_ = 0, all_ = 0, scratch_ = 0;
};

TEST_F(GraphTest, AGraphDoesWhatWasRecordedEveryTime) {
  TestDevice device(0);
  RecordableCalls calls(&device);
  calls.SetInput({1, 2, 3, 4});
  calls.Enqueue();
  const std::vector<float> direct = calls.Output();
  EXPECT_THAT(direct, ElementsAre(14, 20, 30, 44, 0, 0, 0, 0));

  ASSERT_EQ(Begin(device), TESSERA_OK) << ErrorText();
  calls.Enqueue();
  tessera_graph* graph = nullptr;
  ASSERT_EQ(End(device, &graph), TESSERA_OK) << ErrorText();
  EXPECT_THAT(calls.Output(), ::testing::Not(ElementsAre(14, 20, 30, 44, 0, 0, 0, 0)))
      << "recording runs nothing";
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK) << ErrorText();
  EXPECT_EQ(calls.Output(), direct);
  calls.SetInput({1, 0, 0, 1});
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK) << ErrorText();
  EXPECT_THAT(calls.Output(), ElementsAre(2, 0, 0, 2, 0, 0, 0, 0));
  api().graph_destroy(graph);
}

TEST_F(GraphTest, AGraphKeepsTheCodeThatItLaunches) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const uint64_t out = device.Allocate(4);
  ASSERT_EQ(Begin(device), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "fill_u32", {out, 5, 1}), TESSERA_OK);
  tessera_graph* graph = nullptr;
  ASSERT_EQ(End(device, &graph), TESSERA_OK) << ErrorText();
  api().module_unload(module);
  device.Reap();
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK);
  EXPECT_THAT(device.Get<uint32_t>(out, 1), ElementsAre(5));
  api().graph_destroy(graph);
  // Now the code may be unloaded.
  device.Reap();
}

TEST_F(GraphTest, AGraphMayBeDestroyedWhileItRuns) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const uint64_t out = device.Allocate(4);
  ASSERT_EQ(Begin(device), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "fill_u32", {out, 5, 1}), TESSERA_OK);
  tessera_graph* graph = nullptr;
  ASSERT_EQ(End(device, &graph), TESSERA_OK);
  api().module_unload(module);
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK);
  api().graph_destroy(graph);
  SetFake("gate", 1);
  EXPECT_THAT(device.Get<uint32_t>(out, 1), ElementsAre(5));
}

TEST_F(GraphTest, GraphsRunInTheOrderOfTheirStream) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  const uint64_t out = device.Allocate(4);
  tessera_graph* graphs[2] = {};
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(Begin(device), TESSERA_OK);
    ASSERT_EQ(device.Launch(module, "fill_u32", {out, i + 1, 1}), TESSERA_OK);
    ASSERT_EQ(End(device, &graphs[i]), TESSERA_OK);
  }
  for (const int i : {0, 1, 0}) {
    ASSERT_EQ(api().graph_launch(device.stream(), graphs[i]), TESSERA_OK);
  }
  EXPECT_THAT(device.Get<uint32_t>(out, 1), ElementsAre(1));
  for (tessera_graph* graph : graphs) api().graph_destroy(graph);
  api().module_unload(module);
}

TEST_F(GraphTest, ARecordingAllowsAllocationsAndQueriesOfOtherEvents) {
  TestDevice device(0);
  tessera_event* event = nullptr;
  ASSERT_EQ(api().event_create(device.context(), &event), TESSERA_OK);
  ASSERT_EQ(api().event_record(event, device.stream()), TESSERA_OK);
  ASSERT_EQ(Begin(device), TESSERA_OK);
  const uint64_t out = device.Allocate(4);
  device.AllocateHost(4);
  EXPECT_EQ(Poll([&] { return api().event_query(event); }), TESSERA_OK) << ErrorText();
  tessera_module* module = device.Load();
  ASSERT_EQ(device.Launch(module, "fill_u32", {out, 3, 1}), TESSERA_OK);
  tessera_graph* graph = nullptr;
  ASSERT_EQ(End(device, &graph), TESSERA_OK) << ErrorText();
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK);
  EXPECT_THAT(device.Get<uint32_t>(out, 1), ElementsAre(3));
  api().graph_destroy(graph);
  api().event_destroy(event);
  api().module_unload(module);
}

TEST_F(GraphTest, ARecordingDoesNotDisturbAnotherDevice) {
  TestDevice device(0);
  ASSERT_EQ(Begin(device), TESSERA_OK);
  std::thread([] {
    TestDevice other(1);
    EXPECT_THAT(other.Get<int32_t>(other.Put<int32_t>({7}), 1), ElementsAre(7));
  }).join();
  tessera_graph* graph = nullptr;
  EXPECT_EQ(End(device, &graph), TESSERA_OK) << ErrorText();
  api().graph_destroy(graph);
}

TEST_F(GraphTest, InvalidRecordingsAreRefused) {
  TestDevice device(0);
  tessera_stream* second = nullptr;
  tessera_event* event = nullptr;
  tessera_graph* graph = nullptr;
  ASSERT_EQ(api().stream_create(device.context(), 0, &second), TESSERA_OK);
  ASSERT_EQ(api().event_create(device.context(), &event), TESSERA_OK);

  // The second stream never comes back to the stream that is recorded.
  const uint64_t out = device.Allocate(4);
  ASSERT_EQ(Begin(device), TESSERA_OK);
  ASSERT_EQ(api().event_record(event, device.stream()), TESSERA_OK);
  ASSERT_EQ(api().stream_wait(second, event), TESSERA_OK);
  ASSERT_EQ(api().fill_zero(second, out, 4), TESSERA_OK);
  EXPECT_EQ(End(device, &graph), TESSERA_UNSUPPORTED);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));

  // The event is a point outside the recording.
  ASSERT_EQ(api().event_record(event, second), TESSERA_OK);
  ASSERT_EQ(Begin(device), TESSERA_OK);
  EXPECT_EQ(api().stream_wait(device.stream(), event), TESSERA_UNSUPPORTED);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_STREAM_CAPTURE_ISOLATION"));
  EXPECT_EQ(End(device, &graph), TESSERA_UNSUPPORTED);
  EXPECT_THAT(ErrorText(), HasSubstr("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"));

  // The streams are as usable as before.
  EXPECT_EQ(api().fill_zero(second, out, 4), TESSERA_OK);
  EXPECT_EQ(device.Sync(second), TESSERA_OK);
  EXPECT_THAT(device.Get<uint32_t>(out, 1), Each(0u));
  api().event_destroy(event);
  api().stream_destroy(second);
}

TEST_F(GraphTest, BeginAndEndArePairs) {
  TestDevice device(0);
  tessera_graph* graph = nullptr;
  EXPECT_EQ(End(device, &graph), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("is not being recorded"));
  ASSERT_EQ(Begin(device), TESSERA_OK);
  EXPECT_EQ(Begin(device), TESSERA_INVALID);
  EXPECT_THAT(ErrorText(), HasSubstr("is being recorded"));
  EXPECT_EQ(End(device, &graph), TESSERA_OK);
  api().graph_destroy(graph);
}

TEST_F(GraphTest, AStreamMayBeDestroyedWhileItIsRecorded) {
  TestDevice device(0);
  tessera_stream* second = nullptr;
  ASSERT_EQ(api().stream_create(device.context(), 0, &second), TESSERA_OK);
  ASSERT_EQ(api().graph_begin(second), TESSERA_OK);
  api().stream_destroy(second);
  // The recording has ended, so a call that would spoil a recording works as always.
  EXPECT_EQ(device.Sync(), TESSERA_OK);
}

TEST_F(GraphTest, AKernelThatFailsInAGraphEndsTheContext) {
  TestDevice device(0);
  tessera_module* module = device.Load();
  ASSERT_EQ(Begin(device), TESSERA_OK);
  ASSERT_EQ(device.Launch(module, "gate", {}), TESSERA_OK);
  tessera_graph* graph = nullptr;
  ASSERT_EQ(End(device, &graph), TESSERA_OK);
  SetFake("sticky_at", 1);
  ASSERT_EQ(api().graph_launch(device.stream(), graph), TESSERA_OK);
  EXPECT_EQ(device.Sync(), TESSERA_STICKY);
  api().graph_destroy(graph);
  api().module_unload(module);
}

}  // namespace
}  // namespace tessera::worker::cuda
