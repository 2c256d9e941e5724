// Proves that a stream runs its tasks in order and one at a time, also if other threads claim it or
// run its only task.
#include "worker/runtime/stream.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace tessera::worker {
namespace {

TEST(StreamTest, RunsInTheOrderOfPushing) {
  Stream stream;
  std::vector<int> order;
  absl::Notification done;
  for (int i = 0; i < 100; ++i) stream.Push([&order, i] { order.push_back(i); });
  stream.Push([&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(StreamTest, TasksPushedDuringAClaimRunAfterItsRelease) {
  Stream stream;
  ASSERT_TRUE(stream.TryClaim());
  EXPECT_FALSE(stream.TryClaim()) << "the stream is claimed already";
  EXPECT_FALSE(stream.RunIfIdle([] { FAIL(); }));
  bool released = false, in_order = false;
  absl::Notification done;
  stream.Push([&] {
    in_order = released;
    done.Notify();
  });
  EXPECT_EQ(stream.num_tasks(), 2);
  EXPECT_FALSE(stream.Drain(SteadyNow()));
  released = true;
  stream.Release();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(in_order);
  EXPECT_TRUE(stream.Drain(SteadyNow() + absl::Seconds(30)));
  EXPECT_TRUE(stream.RunIfIdle([] {}));
}

TEST(StreamTest, AStreamWithARunningTaskCannotBeClaimed) {
  Stream stream;
  absl::Notification running, go;
  stream.Push([&] {
    running.Notify();
    go.WaitForNotificationWithTimeout(absl::Seconds(30));
  });
  ASSERT_TRUE(running.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_FALSE(stream.TryClaim());
  go.Notify();
  ASSERT_TRUE(stream.Drain(SteadyNow() + absl::Seconds(30)));
  EXPECT_TRUE(stream.TryClaim());
  stream.Release();
}

// Each task runs once, either on the stream's thread or on this one. A task that may run on any
// thread runs here sooner or later.
TEST(StreamTest, AWaiterRunsTheOnlyQueuedTask) {
  Stream stream;
  const std::thread::id me = std::this_thread::get_id();
  int runs = 0, runs_here = 0;
  const auto task = [&] {
    ++runs;
    runs_here += std::this_thread::get_id() == me;
  };
  const auto run = [&](bool runs_on_any_thread) {
    stream.Push(task, runs_on_any_thread);
    stream.RunSoleWaitingTask();
    ASSERT_TRUE(stream.Drain(SteadyNow() + absl::Seconds(30)));
  };
  for (int i = 0; i < 100; ++i) run(/*runs_on_any_thread=*/false);
  EXPECT_EQ(runs_here, 0);
  EXPECT_EQ(runs, 100);
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  while (runs_here == 0 && SteadyNow() < deadline) run(/*runs_on_any_thread=*/true);
  EXPECT_EQ(runs_here, 1);
  stream.RunSoleWaitingTask();  // there is no task

  ASSERT_TRUE(stream.TryClaim());  // so that the stream's thread takes no task
  for (int i = 0; i < 2; ++i) stream.Push(task, /*runs_on_any_thread=*/true);
  stream.RunSoleWaitingTask();
  EXPECT_EQ(stream.num_tasks(), 3) << "one claim and two queued tasks";
  stream.Release();
  EXPECT_TRUE(stream.Drain(SteadyNow() + absl::Seconds(30)));
}

}  // namespace
}  // namespace tessera::worker
