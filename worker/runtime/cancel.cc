// Cancels a launch once, whoever asks first. The executor cancels on errors, timeouts and commands;
// streams, collectives and compiled code see it through the token. Listeners are called outside the
// lock, so RemoveListener waits for calls that are under way.
#include "worker/runtime/cancel.h"

#include <utility>

#include "base/log.h"

namespace tessera::worker {

bool CancelToken::Cancel(absl::Status why) {
  TESSERA_CHECK(!why.ok());
  std::map<int64_t, std::function<void()>> listeners;
  {
    absl::MutexLock lock(&mu_);
    if (!status_.ok()) return false;
    status_ = std::move(why);
    word_.store(1, std::memory_order_release);
    listeners.swap(listeners_);
    calling_ = true;
  }
  for (auto& [id, listener] : listeners) listener();
  absl::MutexLock lock(&mu_);
  calling_ = false;
  return true;
}

absl::Status CancelToken::status() const {
  if (!cancelled()) return absl::OkStatus();
  absl::MutexLock lock(&mu_);
  return status_;
}

int64_t CancelToken::AddListener(std::function<void()> listener) const {
  {
    absl::MutexLock lock(&mu_);
    if (status_.ok()) {
      const int64_t id = next_id_++;
      listeners_.emplace(id, std::move(listener));
      return id;
    }
  }
  listener();
  return 0;
}

void CancelToken::RemoveListener(int64_t id) const {
  absl::MutexLock lock(&mu_);
  if (listeners_.erase(id) > 0) return;
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !calling_; };
  mu_.Await(absl::Condition(&idle));
}

}  // namespace tessera::worker
