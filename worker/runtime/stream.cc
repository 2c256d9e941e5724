// A thread with a queue of tasks, used for the devices and for other work of the executor that must
// stay in order. A claimed stream looks busy to its own thread, so that a task on another thread
// and the queue never run at the same time.
#include "worker/runtime/stream.h"

#include <utility>

#include "base/clock.h"
#include "base/thread_name.h"

namespace tessera::worker {

Stream::Stream(std::string name) : name_(std::move(name)), thread_([this] { Run(); }) {}

Stream::~Stream() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    work_available_.Signal();
  }
  thread_.join();
}

void Stream::Push(std::function<void()> task, bool runs_on_any_thread) {
  absl::MutexLock lock(&mu_);
  queue_.push_back({std::move(task), runs_on_any_thread});
  UpdateNumTasks();
  if (!busy_) work_available_.Signal();
}

bool Stream::TryClaim() {
  absl::MutexLock lock(&mu_);
  if (busy_ || stopping_ || !queue_.empty()) return false;
  busy_ = true;
  UpdateNumTasks();
  return true;
}

void Stream::Release() {
  absl::MutexLock lock(&mu_);
  busy_ = false;
  UpdateNumTasks();
  if (!queue_.empty()) work_available_.Signal();
}

bool Stream::RunIfIdle(absl::FunctionRef<void()> task) {
  if (!TryClaim()) return false;
  task();
  Release();
  return true;
}

void Stream::RunSoleWaitingTask() {
  std::function<void()> task;
  {
    absl::MutexLock lock(&mu_);
    if (busy_ || stopping_ || queue_.size() != 1 || !queue_.front().runs_on_any_thread) return;
    task = std::move(queue_.front().run);
    queue_.pop_front();
    busy_ = true;
  }
  task();
  task = nullptr;  // as in Run
  Release();
}

bool Stream::Drain(absl::Time deadline) {
  absl::MutexLock lock(&mu_);
  const auto idle = [this]()
                        ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return queue_.empty() && !busy_; };
  return mu_.AwaitWithTimeout(absl::Condition(&idle), deadline - SteadyNow());
}

void Stream::Run() {
  NameThread(name_.c_str());
  while (true) {
    std::function<void()> task;
    {
      absl::MutexLock lock(&mu_);
      while (!stopping_ && (queue_.empty() || busy_)) work_available_.Wait(&mu_);
      if (stopping_) return;
      task = std::move(queue_.front().run);
      queue_.pop_front();
      busy_ = true;
    }
    task();
    task = nullptr;  // releases its captures before the stream counts as idle
    absl::MutexLock lock(&mu_);
    busy_ = false;
    UpdateNumTasks();
  }
}

}  // namespace tessera::worker
