// Feeds events to the daemon's rules (core.h), one after the other, and applies the effects.
//
// Thread-safe. Only one thread at a time, the runner, processes events: a thread that posts an
// event while there is no runner becomes the runner. The time of an event is when it was posted.
// The runner applies the effects without holding a lock of the driver. The function that applies
// them may call Post, and must not block.
#pragma once
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/daemon/core.h"

namespace tessera::worker::daemon {

class Driver {
 public:
  // `apply` gets every effect other than SetTimer and Stopped. `link_idle` is called for each Tick.
  // Both are called only after Start was called and before End has returned.
  Driver(const Config& config, std::function<void(const Effect&)> apply,
         std::function<bool()> link_idle);
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver() { End(); }

  // Starts the executors.
  void Start() { Post(Tick{}); }
  void Post(Event event) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the connection and the processes, and waits until they have ended. No event may be posted
  // afterwards.
  void End() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether the executor is ready to be registered.
  bool ready(int32_t executor) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct PostedEvent {
    absl::Time posted_at;
    Event event;
  };
  void ProcessEvents() ABSL_LOCKS_EXCLUDED(mu_);
  void ApplyEffect(const Effect& effect) ABSL_LOCKS_EXCLUDED(mu_);
  void RunTimer() ABSL_LOCKS_EXCLUDED(mu_);

  const std::function<void(const Effect&)> apply_;
  const std::function<bool()> link_idle_;
  State state_;  // owned by the runner

  absl::Mutex mu_;
  std::deque<PostedEvent> events_ ABSL_GUARDED_BY(mu_);
  bool has_runner_ ABSL_GUARDED_BY(mu_) = false;  // whether there is a runner
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time next_tick_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::CondVar timer_changed_;
  std::vector<bool> ready_ ABSL_GUARDED_BY(mu_);  // per executor, as of the last step
  std::thread thread_;                            // last, since it uses the members above
};

}  // namespace tessera::worker::daemon
