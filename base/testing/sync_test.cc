// Proves that the thread sanitizer knows how Abseil's locks order memory. Under the tsan preset,
// the sanitizer would report a race in one of these tests if testing/tsan_absl.cc did not wrap a
// function that the test uses.
#include <thread>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr int kThreads = 4;
constexpr int kRounds = 500;

template <typename F>
void InThreads(F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&f, i] { f(i); });
  for (std::thread& thread : threads) thread.join();
}

TEST(Sync, MutexGuardsACounter) {
  absl::Mutex mu;
  int count = 0;
  InThreads([&](int) {
    for (int i = 0; i < kRounds; ++i) {
      absl::MutexLock lock(&mu);
      ++count;
    }
  });
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(Sync, ReadersSeeWhatWritersWrote) {
  absl::Mutex mu;
  int a = 0, b = 0;
  InThreads([&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      if (thread == 0) {
        absl::WriterMutexLock lock(&mu);
        ++a;
        ++b;
      } else {
        absl::ReaderMutexLock lock(&mu);
        EXPECT_EQ(a, b);
      }
    }
  });
}

TEST(Sync, ThreadsTakeTurnsByConditions) {
  absl::Mutex mu;
  int turn = 0;
  InThreads([&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      auto mine = [&] { return turn % kThreads == thread; };
      if (i % 2 == 0) {
        absl::MutexLock lock(&mu, absl::Condition(&mine));
        ++turn;
      } else {
        absl::MutexLock lock(&mu);
        EXPECT_TRUE(mu.AwaitWithTimeout(absl::Condition(&mine), absl::Seconds(60)));
        ++turn;
      }
    }
  });
  EXPECT_EQ(turn, kThreads * kRounds);
}

TEST(Sync, CondVarHandsAValueOver) {
  absl::Mutex mu;
  absl::CondVar changed;
  int value = 0;
  InThreads([&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      absl::MutexLock lock(&mu);
      while (value % kThreads != thread) changed.WaitWithTimeout(&mu, absl::Seconds(60));
      ++value;
      changed.SignalAll();
    }
  });
  EXPECT_EQ(value, kThreads * kRounds);
}

TEST(Sync, NotificationAndCounterPublishEarlierWrites) {
  absl::Notification ready;
  absl::BlockingCounter done(kThreads);
  int input = 0;
  std::vector<int> outputs(kThreads);
  std::thread waiter([&] {
    done.Wait();
    for (const int output : outputs) EXPECT_EQ(output, 7);
  });
  std::thread writer([&] {
    input = 7;
    ready.Notify();
  });
  InThreads([&](int thread) {
    ready.WaitForNotification();
    outputs[thread] = input;
    done.DecrementCount();
  });
  waiter.join();
  writer.join();
}

}  // namespace
}  // namespace tessera
