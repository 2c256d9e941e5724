// Proves which runs the plugin cancels: those whose results nothing holds any more, those that the
// main thread waits for at SIGINT, and all at a call of the extension. The tests use the plugin's
// table of functions as a framework does.
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/testing/status_matchers.h"
#include "client/pjrt/client.h"
#include "client/session.h"
#include "embed/testing/pjrt_framework.h"
#include "gmock/gmock.h"

namespace tessera::pjrt {

const Api& Table() { return *GetPjrtApi(); }

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A loop that goes on for as long as its argument is equal to itself.
constexpr char kEndlessProgram[] = R"(
func main(%x: f32[4]) -> (f32[4]) {
  %y = while(%x) {num_predicate_consts=0, num_body_consts=0} with
    func equal(%v: f32[4]) -> (bool[]) {
      %s = reduce_max(%v) {dimensions=[0]}
      %p = compare(%s, %s) {direction="EQ"}
      return %p
    }
    func next(%v: f32[4]) -> (f32[4]) {
      %w = sine(%v)
      return %w
    }
  return %y
}
)";

const TesseraExtension& Extension() {
  const auto* extension = static_cast<const pjrt::Extension*>(Table().extension_start);
  while (extension->type != kTesseraExtension) extension = extension->next;
  return *static_cast<const TesseraExtension*>(extension);
}

// The number of times that the program's own handler has run.
std::atomic<int> num_handled{0};

void Handle(int) { num_handled.fetch_add(1); }

// The filter of the process: what it answers, and how often it was asked.
struct Filter {
  absl::Mutex mu;
  bool lets_through ABSL_GUARDED_BY(mu) = true;
  int num_asked ABSL_GUARDED_BY(mu) = 0;
};
Filter& TheFilter() {
  static auto* const filter = new Filter;
  return *filter;
}
void SetFilter(bool lets_through) {
  absl::MutexLock lock(&TheFilter().mu);
  TheFilter().lets_through = lets_through;
  TheFilter().num_asked = 0;
}
bool AskFilter() {
  absl::MutexLock lock(&TheFilter().mu);
  ++TheFilter().num_asked;
  return TheFilter().lets_through;
}
void AwaitAsked() {
  Filter& filter = TheFilter();
  absl::MutexLock lock(&filter.mu);
  const auto asked = [&]() ABSL_SHARED_LOCKS_REQUIRED(filter.mu) { return filter.num_asked > 0; };
  ASSERT_TRUE(filter.mu.AwaitWithTimeout(absl::Condition(&asked), absl::Seconds(20)));
}

// The tests run in both modes of the client; see BothModesTest of pjrt_faults_test.cc.
class CancelTest : public PjrtTest, public ::testing::WithParamInterface<bool> {
 protected:
  Client* OpenClient() override {
    TesseraStartEmbedded({.devices = 4}, &service_);
    TESSERA_EXPECT_OK(service_.status());
    const std::shared_ptr<Session> session = Session::FromService(*service_);
    return new Client(session, /*in_process=*/GetParam(), session->devices());
  }
  void SetUp() override {
    PjrtTest::SetUp();
    endless_ = Compile(kEndlessProgram);
    num_handled = 0;
    SetFilter(/*lets_through=*/true);
    struct sigaction action = {};
    action.sa_handler = Handle;
    sigaction(SIGINT, &action, &before_);
    Extension().set_interrupt_filter(AskFilter);
  }
  void TearDown() override {
    Extension().set_interrupt_filter(nullptr);
    sigaction(SIGINT, &before_, nullptr);
    PjrtTest::TearDown();
  }

  // Starts a run of the endless program on device `k`, and returns its result.
  Buffer* Start(int k = 0) {
    Buffer* const x = Put({0, 0, 0, 0}, {4}, devices_[k]);
    return Run(endless_, {{x}}, 1, {}, /*wait=*/false).outputs[0][0];
  }
  // Starts a wait for the buffer, as JAX does on the main thread.
  static Event* BeginWait(Buffer* buffer) {
    auto ready = MakeArgs<Buffer_ReadyEvent_Args>();
    ready.buffer = buffer;
    EXPECT_CALL_OK(kBuffer_ReadyEvent, &ready);
    return ready.event;
  }
  static bool IsReady(Event* event) {
    auto args = MakeArgs<Event_IsReady_Args>();
    args.event = event;
    EXPECT_CALL_OK(kEvent_IsReady, &args);
    return args.is_ready;
  }
  static int64_t CancelAll() {
    char error[100] = "";
    const int64_t count = Extension().cancel_runs(error, sizeof(error));
    EXPECT_STREQ(error, "");
    return count;
  }
  void Drop(Buffer* buffer) {
    absl::MutexLock lock(&mu_);
    buffers_.erase(std::find(buffers_.begin(), buffers_.end(), buffer));
    auto destroy = MakeArgs<Buffer_Destroy_Args>();
    destroy.buffer = buffer;
    EXPECT_CALL_OK(kBuffer_Destroy, &destroy);
  }

  absl::StatusOr<std::shared_ptr<api::Service>> service_ = absl::UnknownError("not started");
  LoadedExecutable* endless_ = nullptr;
  struct sigaction before_ = {};
};

TEST_P(CancelTest, TheExtensionCancelsAllRunsAndCountsThem) {
  EXPECT_EQ(CancelAll(), 0);
  Event* const first = BeginWait(Start(0));
  Event* const second = BeginWait(Start(1));
  EXPECT_EQ(CancelAll(), 2);
  for (Event* const event : {first, second}) EXPECT_THAT(Await(event), HasSubstr("was cancelled"));
  EXPECT_EQ(CancelAll(), 0);
}

TEST_P(CancelTest, ARunWithoutHoldersIsCancelledAndItsDeviceFree) {
  Buffer* const result = Start();
  // The second run waits behind the first one, and for its result.
  Buffer* const next = Run(endless_, {{result}}, 1, {}, /*wait=*/false).outputs[0][0];
  Drop(result);
  Event* const event = BeginWait(next);
  EXPECT_FALSE(IsReady(event));  // `next` needs the first run
  auto destroy = MakeArgs<Event_Destroy_Args>();
  destroy.event = event;
  EXPECT_CALL_OK(kEvent_Destroy, &destroy);
  Drop(next);
  LoadedExecutable* const twice = Compile(kTwiceProgram);
  const RunResult ran = Run(twice, {{Put({1, 2, 3, 4}, {2, 2}, devices_[0])}}, 1);
  EXPECT_EQ(ran.error, "");
  EXPECT_THAT(Read(ran.outputs[0][0]), ElementsAre(2, 4, 6, 8));
}

TEST_P(CancelTest, SigintCancelsWhatTheMainThreadWaitsForAndRunsTheHandler) {
  Event* const event = BeginWait(Start());
  raise(SIGINT);
  EXPECT_EQ(num_handled, 1);
  EXPECT_THAT(Await(event), HasSubstr("was cancelled"));
}

TEST_P(CancelTest, SigintCancelsNothingIfTheFilterOrTheMainThreadDoesNotWantIt) {
  // JAX registers a callback for each run, which is no wait.
  Buffer* const result = Start();
  raise(SIGINT);
  EXPECT_EQ(num_handled, 1);
  SetFilter(/*lets_through=*/false);
  Event* const event = BeginWait(result);
  raise(SIGINT);
  EXPECT_EQ(num_handled, 2);
  AwaitAsked();
  EXPECT_FALSE(IsReady(event));
  EXPECT_EQ(CancelAll(), 1);
  EXPECT_THAT(Await(event), HasSubstr("was cancelled"));
}

TEST_P(CancelTest, AHandlerThatReplacesThePluginsIsCalledInTheNextWait) {
  for (int i = 1; i <= 2; ++i) {
    Event* const event = BeginWait(Start());
    // Python does this whenever the program sets a handler of its own.
    struct sigaction action = {};
    action.sa_handler = Handle;
    sigaction(SIGINT, &action, nullptr);
    Event* const again = BeginWait(Start(1));
    raise(SIGINT);
    EXPECT_EQ(num_handled, i);
    EXPECT_THAT(Await(event), HasSubstr("was cancelled"));
    EXPECT_THAT(Await(again), HasSubstr("was cancelled"));
  }
}

TEST_P(CancelTest, SigintSparesTheRunsOfOtherThreads) {
  Event* other = nullptr;
  std::thread([&] {
    // This thread does not wait itself, so the main thread is the only one that does.
    other = BeginWait(Start(1));
  }).join();
  Event* const mine = BeginWait(Start(0));
  raise(SIGINT);
  EXPECT_THAT(Await(mine), HasSubstr("was cancelled"));
  EXPECT_FALSE(IsReady(other));
  EXPECT_EQ(CancelAll(), 1);
  EXPECT_THAT(Await(other), HasSubstr("was cancelled"));
}

INSTANTIATE_TEST_SUITE_P(Runs, CancelTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "OnCaller" : "Queued"; });

}  // namespace
}  // namespace tessera::pjrt
