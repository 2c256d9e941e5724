// Launches on the device: what runs, how its end is noticed, and what becomes of one that is
// broken.
//
// A Launch is made by the thread that enqueues, then owned by Completion, which looks at it until
// it has ended. LaunchEvent is the executor's view of the same end.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "worker/device/completion.h"
#include "worker/device/device.h"
#include "worker/device/group_comms.h"
#include "worker/runtime/backend.h"

namespace tessera::worker::device {

// The end of a launch, told to whoever asks first or last.
class LaunchEnd {
 public:
  void OnDone(std::function<void(const absl::Status&)> done) ABSL_LOCKS_EXCLUDED(mu_);
  void Set(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  absl::Mutex mu_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
  std::function<void(const absl::Status&)> done_ ABSL_GUARDED_BY(mu_);
};

class LaunchEvent final : public Event {
 public:
  explicit LaunchEvent(std::shared_ptr<LaunchEnd> end) : end_(std::move(end)) {}
  void OnDone(std::function<void(const absl::Status&)> done) override {
    end_->OnDone(std::move(done));
  }

 private:
  const std::shared_ptr<LaunchEnd> end_;
};

// One exchange of a launch: when the device comes to it and leaves it.
struct WatchedExchange {
  std::string label;
  CallKey key;
  GroupCommRef comm;
  EventHandle begin, end;
};

// Takes exchanges off the device whose others do not come: names who is missing, if that can be
// known, then aborts the communicators. Each runs on a thread of its own, for an abort may block.
class AbortLadder {
 public:
  explicit AbortLadder(const Device* device) : device_(device) {}
  ~AbortLadder();
  // Gives up the threads, which may never come back; what they use must stay.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

  // `stuck` is the exchange that stands still, or -1: nobody is to be asked. `done` is called with
  // the verdict, or with `why` if there is none, before anything is aborted.
  void Escalate(const RunContext& context, std::shared_ptr<std::vector<WatchedExchange>> exchanges,
                int stuck, absl::Status why, std::function<void(const absl::Status&)> done)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Device* const device_;
  absl::Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

struct LaunchBounds {
  absl::Duration collective_timeout, abort_grace, cancel_grace;
};

class Launch final : public Watched {
 public:
  struct Work {
    RunContext context;
    EventHandle end;
    std::vector<WatchedExchange> exchanges;  // in order
    // What is wrong with it from the start: it was not enqueued whole.
    absl::Status broken;
    // Called once the device has left the launch, and before anybody is told: results that were
    // copied along are there if the status is OK. Holds what the device uses.
    std::function<void(const absl::Status&)> finish;
  };
  // `fatal` is told that the device is lost. All outlive the launch.
  Launch(const Device* device, AbortLadder* ladder, LaunchBounds bounds,
         std::function<void(const absl::Status&)> fatal, std::shared_ptr<LaunchEnd> end, Work work);

  bool Poll(absl::Time now) override;

 private:
  // What the ladder's thread says.
  struct Verdict {
    absl::Mutex mu;
    absl::Status status ABSL_GUARDED_BY(mu);
  };

  // Follows the exchanges; breaks the launch if one stands still, or if it is cancelled.
  void Watch(absl::Time now);
  void Break(absl::Time now, const absl::Status& why, int stuck);
  absl::Status BrokenStatus() const;
  bool End(const absl::Status& status);

  const Device* const device_;
  AbortLadder* const ladder_;
  const LaunchBounds bounds_;
  const std::function<void(const absl::Status&)> fatal_;
  const std::shared_ptr<LaunchEnd> end_;
  Work work_;
  const std::shared_ptr<std::vector<WatchedExchange>> exchanges_;
  size_t next_ = 0;                           // exchange that the device has not left
  std::optional<absl::Time> standing_since_;  // that it is at it
  bool broken_ = false;
  absl::Duration grace_;  // that it then has to leave the device
  absl::Time give_up_at_ = absl::InfiniteFuture();
  const std::shared_ptr<Verdict> verdict_ = std::make_shared<Verdict>();
};

}  // namespace tessera::worker::device
