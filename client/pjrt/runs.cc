// The queue that lets JAX dispatch runs without a wait; execute.cc pushes the runs. The hand-over
// between the framework's thread and the queue's thread is on the path of every step of a training
// loop, so both spin for a moment before they sleep.
#include "client/pjrt/runs.h"

#include <utility>

#include "base/spinner.h"
#include "base/thread_name.h"
#include "client/pjrt/interrupt.h"

namespace tessera::pjrt {
namespace {

// The most runs that may wait in the queue, and so the most runs that the framework is ahead.
constexpr size_t kWaitingMax = 64;

}  // namespace

RunQueue::~RunQueue() {
  DoWaitingJobs();
  std::thread thread;
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    thread.swap(thread_);
  }
  num_waiting_.store(1);  // ends the wait of a thread that spins
  if (thread.joinable()) thread.join();
}

void RunQueue::Push(Job job) {
  size_t num_waiting;
  {
    absl::MutexLock lock(&mu_);
    waiting_.push_back(std::move(job));
    num_waiting = waiting_.size();
    num_waiting_.store(num_waiting, std::memory_order_relaxed);
    if (!thread_.joinable()) thread_ = std::thread([this] { RunThread(); });
  }
  if (num_waiting <= kWaitingMax) return;
  const MainThreadWait wait;
  const auto has_room = [this] {
    return num_waiting_.load(std::memory_order_relaxed) <= kWaitingMax / 2;
  };
  // Spin first: the queue's thread is doing jobs, and a second thread would not speed them up. If
  // there is still no room, do jobs on this thread, so that the caller does not get further ahead.
  if (!SpinUntil(has_room))
    while (!has_room() && DoNextJob()) {
    }
}

bool RunQueue::DoNextJob() {
  FollowUp follow_up;
  {
    absl::MutexLock job_lock(&job_mu_);
    Job next;
    {
      absl::MutexLock lock(&mu_);
      if (waiting_.empty()) return false;
      next = std::move(waiting_.front());
      waiting_.pop_front();
      num_waiting_.store(waiting_.size(), std::memory_order_relaxed);
    }
    follow_up = next();
  }
  follow_up();
  return true;
}

void RunQueue::DoWaitingJobs() {
  const MainThreadWait wait;
  while (DoNextJob()) {
  }
}

void RunQueue::RunThread() {
  NameThread("tessera-runs");
  Spinner spinner;
  while (true) {
    while (DoNextJob()) {
    }
    spinner.Until([this] { return num_waiting_.load(std::memory_order_relaxed) > 0; });
    absl::MutexLock lock(&mu_);
    const auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
      return stopping_ || !waiting_.empty();
    };
    mu_.Await(absl::Condition(&work));
    if (stopping_) return;
  }
}

}  // namespace tessera::pjrt
