// Runs jobs one after the other on a thread of its own. make_calls.cc pushes them; a call of the
// host may take long or call the plugin, so no thread of the framework waits here.
#include "client/pjrt/call_queue.h"

#include <utility>

#include "base/thread_name.h"

namespace tessera::pjrt {

CallQueue::~CallQueue() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void CallQueue::Push(std::function<void()> job) {
  absl::MutexLock lock(&mu_);
  waiting_.push_back(std::move(job));
  if (!thread_.joinable()) thread_ = std::thread([this] { RunThread(); });
}

void CallQueue::RunThread() {
  NameThread("tessera-calls");
  while (true) {
    std::function<void()> next;
    {
      absl::MutexLock lock(&mu_);
      const auto work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
        return stopping_ || !waiting_.empty();
      };
      mu_.Await(absl::Condition(&work));
      if (stopping_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }
}

}  // namespace tessera::pjrt
