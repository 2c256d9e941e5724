// Proves that waits end in time, and that a pool keeps its order, when somebody sets the machine's
// wall clock meanwhile. The test runs with clock_step.cc preloaded and sets the clock through its
// file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/sized_pool.h"

namespace tessera {
namespace {

constexpr std::chrono::seconds kPatience{20};

class ClockStepTest : public ::testing::Test {
 protected:
  void SetUp() override { Step(absl::ZeroDuration()); }
  void TearDown() override { Step(absl::ZeroDuration()); }

  static void Step(absl::Duration by) {
    const int64_t seconds = absl::ToInt64Seconds(by);
    const int fd = open(getenv("CLOCK_STEP_FILE"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_EQ(pwrite(fd, &seconds, sizeof(seconds), 0), sizeof(seconds));
    close(fd);
  }
  static bool IsInFutex(int thread) {
    std::ifstream call("/proc/self/task/" + std::to_string(thread) + "/syscall");
    int number = -1;
    return static_cast<bool>(call >> number) && number == SYS_futex;
  }
  static absl::Time WallNow() { return absl::FromChrono(std::chrono::system_clock::now()); }
};

TEST_F(ClockStepTest, OnlyTheWallClockIsSet) {
  const absl::Time steady = SteadyNow(), date = WallNow();
  Step(absl::Hours(1));
  EXPECT_GE(WallNow() - date, absl::Minutes(59));
  EXPECT_LT(SteadyNow() - steady, absl::Minutes(1));
}

// Waits in two ways, until a date and for a duration, for 300 ms each. The clock is set back by an
// hour once the waiting thread is in the kernel. Without base/steady_wait.cc the wait until a
// date would then take an hour.
TEST_F(ClockStepTest, WaitsEndInTimeWhenTheClockIsSetBackMeanwhile) {
  const auto wait_until_date = [](absl::Mutex* mu) {  // gRPC waits for its timers in this way.
    absl::CondVar never;
    absl::MutexLock lock(mu);
    never.WaitWithDeadline(mu, absl::Now() + absl::Milliseconds(300));
  };
  const auto wait_for_duration = [](absl::Mutex* mu) {
    const bool no = false;
    absl::MutexLock lock(mu);
    mu->AwaitWithTimeout(absl::Condition(&no), absl::Milliseconds(300));
  };
  for (const std::function<void(absl::Mutex*)>& wait :
       std::vector<std::function<void(absl::Mutex*)>>{wait_until_date, wait_for_duration}) {
    Step(absl::ZeroDuration());
    absl::Mutex mu;
    std::atomic<int> thread{0};
    auto waited = std::async(std::launch::async, [&] {
      thread = static_cast<int>(syscall(SYS_gettid));
      wait(&mu);
    });
    while (thread == 0 || !IsInFutex(thread)) std::this_thread::yield();
    Step(-absl::Hours(1));
    const bool in_time = waited.wait_for(kPatience) == std::future_status::ready;
    Step(absl::Hours(2));  // ends the wait if it hangs
    EXPECT_TRUE(in_time);
  }
}

TEST_F(ClockStepTest, WaitsUntilAKernelDateEndInTimeRightAfterTheClockIsSet) {
  for (const absl::Duration by : {absl::Hours(1), -absl::Hours(1)}) {
    Step(absl::ZeroDuration());
    absl::Mutex mu;
    auto waited = std::async(std::launch::async, [&] {
      (void)absl::Now();  // Abseil reads the clock now and will not read it again for a while.
      Step(by);
      absl::CondVar never;
      absl::MutexLock lock(&mu);
      const absl::Time start = SteadyNow();
      // gRPC waits for its timers in this way.
      while (SteadyNow() - start < absl::Milliseconds(290))
        never.WaitWithDeadline(&mu, WallNow() + absl::Milliseconds(300) - (SteadyNow() - start));
    });
    const bool in_time = waited.wait_for(kPatience) == std::future_status::ready;
    Step(absl::Hours(3));  // ends the wait if it hangs
    EXPECT_TRUE(in_time) << by;
  }
}

TEST_F(ClockStepTest, AWaitIsNotCutShortWhenTheClockIsSetForwardMeanwhile) {
  const absl::Notification never;
  const absl::Time start = SteadyNow();
  const int thread = static_cast<int>(syscall(SYS_gettid));
  std::thread other([thread] {
    while (!IsInFutex(thread)) std::this_thread::yield();
    Step(absl::Hours(1));
  });
  EXPECT_FALSE(never.WaitForNotificationWithTimeout(absl::Seconds(1)));
  other.join();
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(990));
}

// Both threads are busy when the clock is set forward by far more than max_wait. The smaller task
// still goes first, because no task has waited that long.
TEST_F(ClockStepTest, AStepOfTheClockMakesNoQueuedTaskOverdue) {
  absl::Notification large_began, small_began, large_may_end, small_may_end, ran;
  std::vector<int> order;
  SizedPool pool({.threads = 2, .small_task_max_size = 100});
  pool.Push(1000, [&] {
    large_began.Notify();
    large_may_end.WaitForNotification();
  });
  large_began.WaitForNotification();
  pool.Push(100, [&] {
    small_began.Notify();
    small_may_end.WaitForNotification();
  });
  small_began.WaitForNotification();
  // Only the thread of the small task becomes free, so these tasks run one after the other.
  pool.Push(9, [&] { order.push_back(9); });
  pool.Push(1, [&] { order.push_back(1); });
  pool.Push(99, [&] { ran.Notify(); });
  Step(absl::Hours(1));
  // Abseil reads the clock again after about two seconds.
  while (WallNow() - absl::Now() > absl::Minutes(1)) std::this_thread::yield();
  small_may_end.Notify();
  ran.WaitForNotification();
  large_may_end.Notify();
  EXPECT_EQ(order, (std::vector<int>{1, 9}));
}

}  // namespace
}  // namespace tessera
