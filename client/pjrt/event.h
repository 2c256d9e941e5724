// Events: what the framework waits for, or is called back by.
//
// Thread-safe. A callback runs once, on the thread that settles the event or, if that has happened,
// on the one that registers it, and never under a lock of the plugin: it may call the plugin again.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "client/pjrt/functions.h"

namespace tessera::pjrt {

// How something ends, once. Shared by all events that stand for it.
class Outcome : public std::enable_shared_from_this<Outcome> {
 public:
  Outcome() = default;
  // Of what has ended already.
  explicit Outcome(absl::Status status) : settled_(true), status_(std::move(status)) {}
  Outcome(const Outcome&) = delete;
  Outcome& operator=(const Outcome&) = delete;

  // `start` is called once, when the first one asks, or at once if one has: it has something settle
  // the outcome. To be called once.
  void StartWhenAsked(std::function<void()> start) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls who waits. The first call counts.
  void Settle(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  bool settled() ABSL_LOCKS_EXCLUDED(mu_);
  // OK while it is not settled.
  absl::Status status() const ABSL_LOCKS_EXCLUDED(mu_);
  // The bound is that of who settles it: see AwaitRun.
  absl::Status Await() ABSL_LOCKS_EXCLUDED(mu_);
  void OnSettled(OnReadyCallback callback, void* user_arg) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Start() ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  std::function<void()> start_ ABSL_GUARDED_BY(mu_);
  bool asked_ ABSL_GUARDED_BY(mu_) = false;
  bool settled_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<OnReadyCallback, void*>> callbacks_ ABSL_GUARDED_BY(mu_);
};

// That of something that went well.
std::shared_ptr<Outcome> Settled();

// Settles the outcome when it goes, so that nobody waits for a task that was dropped.
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
