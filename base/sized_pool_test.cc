// Proves in which order tasks run and that one thread stays free for small tasks. Tasks that block
// until the test releases them fix which threads are busy.
#include "base/sized_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/synchronization/notification.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kSmall = 10, kLarge = 1000;
constexpr absl::Duration kPatience = absl::Seconds(20);  // how long the tests wait for an event

// Records which tasks ran, in order.
class Record {
 public:
  std::function<void()> TaskThatNotes(const std::string& name) {
    return [this, name] {
      absl::MutexLock lock(&mu_);
      names_.push_back(name);
    };
  }
  std::vector<std::string> Await(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto there = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return names_.size() >= count; };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&there), kPatience));
    return names_;
  }

 private:
  absl::Mutex mu_;
  std::vector<std::string> names_ ABSL_GUARDED_BY(mu_);
};

// A task that runs until the test releases it, so that the test decides which tasks wait.
struct BlockedTask {
  absl::Notification began, go;
  std::function<void()> Task() {
    return [this] {
      began.Notify();
      go.WaitForNotification();
    };
  }
};

TEST(SizedPoolTest, LargeTasksLeaveAThreadForSmallOnes) {
  Record record;
  BlockedTask first, second;
  SizedPool pool({.threads = 3, .small_task_max_size = 100});
  pool.Push(kLarge, first.Task());
  pool.Push(kLarge, second.Task());
  ASSERT_TRUE(first.began.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(second.began.WaitForNotificationWithTimeout(kPatience));
  pool.Push(kLarge, record.TaskThatNotes("large"));
  pool.Push(kSmall, record.TaskThatNotes("small"));
  EXPECT_THAT(record.Await(1), ElementsAre("small"));
  first.go.Notify();
  EXPECT_THAT(record.Await(2), ElementsAre("small", "large"));
  second.go.Notify();
}

TEST(SizedPoolTest, TheSmallestTaskRunsFirstAndAmongEqualsTheOldest) {
  Record record;
  BlockedTask large, small;
  SizedPool pool({.threads = 2, .small_task_max_size = 100});
  pool.Push(kLarge, large.Task());
  pool.Push(kSmall, small.Task());
  ASSERT_TRUE(large.began.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(small.began.WaitForNotificationWithTimeout(kPatience));
  pool.Push(5, record.TaskThatNotes("5"));
  pool.Push(3, record.TaskThatNotes("3, older"));
  pool.Push(4, record.TaskThatNotes("4"));
  pool.Push(3, record.TaskThatNotes("3, younger"));
  small.go.Notify();
  EXPECT_THAT(record.Await(4), ElementsAre("3, older", "3, younger", "4", "5"));
  large.go.Notify();
}

TEST(SizedPoolTest, AnOverdueTaskRunsBeforeYoungerTasks) {
  Record record;
  BlockedTask large, small;
  SizedPool pool({.threads = 2, .small_task_max_size = 100, .max_wait = absl::ZeroDuration()});
  pool.Push(kLarge, large.Task());
  pool.Push(kSmall, small.Task());
  ASSERT_TRUE(large.began.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(small.began.WaitForNotificationWithTimeout(kPatience));
  pool.Push(9, record.TaskThatNotes("oldest"));
  pool.Push(1, record.TaskThatNotes("smallest"));
  small.go.Notify();
  EXPECT_THAT(record.Await(2), ElementsAre("oldest", "smallest"));
  large.go.Notify();
}

TEST(SizedPoolTest, TheDestructorWaitsForRunningTasks) {
  BlockedTask running;
  bool ended = false;
  std::thread other;
  {
    SizedPool pool({.threads = 2, .small_task_max_size = 100});
    pool.Push(kLarge, [&] {
      running.Task()();
      ended = true;
    });
    ASSERT_TRUE(running.began.WaitForNotificationWithTimeout(kPatience));
    other = std::thread([&] { running.go.Notify(); });
  }
  EXPECT_TRUE(ended);
  other.join();
}

}  // namespace
}  // namespace tessera
