// Events: the framework (such as JAX) waits for an event, or registers a callback that runs when
// the event is ready.
//
// Thread-safe. A callback runs once: on the thread that settles the event or, if the event is
// settled already, on the thread that registers the callback. It never runs under a lock of the
// plugin, so it may call the plugin again.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/pjrt/functions.h"
#include "client/pjrt/interrupt.h"

namespace tessera::pjrt {

// The outcome of something that ends once, such as a run. All events that stand for the same run
// share one outcome. An outcome is settled when its final status is known.
class Outcome : public std::enable_shared_from_this<Outcome> {
 public:
  Outcome() = default;
  // Makes an outcome that is already settled.
  explicit Outcome(absl::Status status) : settled_(true), status_(std::move(status)) {}
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;

  // Sets the function that starts whatever will settle the outcome. `start` is called once: when
  // the outcome is first asked for, or at once if it has been asked for before. Call at most once.
  void SetLazyStart(std::function<void()> start) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the final status, wakes the threads that wait and runs the callbacks. Only the first call
  // has an effect.
  void Settle(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether the outcome is settled. Counts as asking for the outcome, so it may start
  // whatever settles the outcome.
  bool AskIfSettled() ABSL_LOCKS_EXCLUDED(mu_);
  // Like AskIfSettled, but does not count as asking.
  bool settled() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the final status, or OK while the outcome is not settled.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until the outcome is settled. The wait has no bound of its own: whatever settles the
  // outcome must have one (see AwaitRun).
  absl::Status Await() ABSL_LOCKS_EXCLUDED(mu_);
  // Calls the callback once the outcome is settled; see above for the thread.
  void OnSettled(OnReadyCallback callback, void* user_arg) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that the framework is about to wait for the outcome. On the main thread this is a
  // MainThreadWait until the outcome is settled. A callback alone is no sign of a wait, because JAX
  // registers one for each run.
  void NoteWait() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether NoteWait was called on the main thread, and the outcome is not settled.
  bool MainThreadWaits() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Start() ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  std::function<void()> start_ ABSL_GUARDED_BY(mu_);
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  bool settled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<OnReadyCallback, void*>> callbacks_ ABSL_GUARDED_BY(mu_);
  std::optional<MainThreadWait> main_wait_ ABSL_GUARDED_BY(mu_);  // until the outcome is settled
};

// Returns an outcome that is settled with OK.
std::shared_ptr<Outcome> SettledOutcome();

// Settles an outcome at the latest in its destructor, so that no thread waits for a task that was
// dropped.
class Settler {
 public:
  explicit Settler(std::shared_ptr<Outcome> outcome) : outcome_(std::move(outcome)) {}
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;
  ~Settler() { outcome_->Settle(absl::CancelledError("the client has been closed")); }
  void Settle(const absl::Status& status) { outcome_->Settle(status); }

 private:
  const std::shared_ptr<Outcome> outcome_;
};

struct Event {
  std::shared_ptr<Outcome> outcome;
};

}  // namespace tessera::pjrt
