// Launches on the device: the detection of their end, and their abort.
//
// The thread that enqueues makes a Launch. CompletionPoller then owns it, and polls it until it has
// ended. LaunchEvent reports the end to the executor.
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

// The end of a launch. It calls `done` once both Set and OnDone have been called.
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

// A collective of a launch, with events at its begin and its end on the device.
struct WatchedCollective {
  std::string label;
  CallKey key;
  ir::CollectiveKind kind = ir::CollectiveKind::kBarrier;
  int64_t in_bytes = 0;  // the size of this rank's input
  GroupCommRef comm;
  EventHandle begin, end;
};

// Aborts the collectives of a launch. First it finds out which peer is missing, if any, and then it
// aborts the communicators. Each launch is aborted on a thread of its own, since an abort may
// block.
class CollectiveAborter {
 public:
  // `on_abort` is DeviceBackendOptions::on_abort.
  CollectiveAborter(const Device* device, std::function<void(absl::Duration)> on_abort)
      : device_(device), on_abort_(std::move(on_abort)) {}
  ~CollectiveAborter();
  // Detaches the threads, which may be blocked for ever. The objects that they use must be leaked.
  void Abandon() ABSL_LOCKS_EXCLUDED(mu_);

  // Aborts the collectives from `first` on; the earlier ones have ended. `stuck` says that the
  // first one waits for a missing peer. `on_cause` is called before the device library aborts
  // anything, with the error that names the peer, or with `why`. Until then `context` must stay
  // valid.
  void Abort(const RunContext& context, std::shared_ptr<std::vector<WatchedCollective>> collectives,
             size_t first, bool stuck, absl::Status why,
             std::function<void(const absl::Status&)> on_cause) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  const Device* const device_;
  const std::function<void(absl::Duration)> on_abort_;
  absl::Mutex mu_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
};

// Aborts the communicator and passes the time that it took to `on_abort`, which may be null. Blocks
// for as long as the device library does.
void AbortTimed(const Device& device, const GroupComm& comm,
                const std::function<void(absl::Duration)>& on_abort);

// See the members of DeviceBackendOptions with these names.
struct LaunchTimeouts {
  absl::Duration collective_timeout, abort_grace, cancel_grace, peer_abort_delay;
};

class Launch {
 public:
  struct Work {
    RunContext context;
    EventHandle end;
    std::vector<WatchedCollective> collectives;  // in order of enqueueing
    // If it is an error, only a part of the launch was enqueued.
    absl::Status enqueue_status;
    // Called once the device work has ended, before waiters are notified. Inline results are valid
    // if the status is OK. The function holds references to everything that the device uses.
    std::function<void(const absl::Status&)> finish;
  };
  // `on_fatal` is called when the device is lost. All arguments must outlive the launch.
  Launch(const Device* device, CollectiveAborter* aborter, LaunchTimeouts timeouts,
         std::function<void(const absl::Status&)> on_fatal, std::shared_ptr<LaunchEnd> end,
         Work work);

  bool Poll(absl::Time now);  // this is a PollFn (completion.h)

 private:
  // The status that the launch shares with the aborter's thread.
  struct SharedStatus {
    absl::Mutex mu;
    absl::Status status ABSL_GUARDED_BY(mu);
    // Whether the aborter's thread still uses the launch's context.
    bool uses_context ABSL_GUARDED_BY(mu) = false;
  };

  // Notes which collectives have ended. Aborts the launch if one takes too long, if the launch was
  // cancelled or has failed at a peer, or if it was not wholly enqueued.
  void PollCollectives(absl::Time now);
  // Advances next_collective_. Returns false if the device gives an error, which is left to Poll.
  bool SkipEndedCollectives(absl::Time now);
  void RecordExchange(const WatchedCollective& collective, absl::Time ended) const;
  // Returns the reason to abort the launch that is known without looking at the device, or OK.
  absl::Status ReasonToAbort(absl::Time now);
  // Returns the failure of the first collective that has not ended, in the library's words, or OK.
  absl::Status FailureOfCollective(absl::Time now);
  void Abort(absl::Time now, const absl::Status& why, bool stuck);
  absl::Status AbortCause() const;
  bool AborterUsesContext() const;
  // Returns the status with which the launch ends once its end event is reached: an error if it was
  // aborted, or if a communicator that it used was, because its results may then be wrong.
  absl::Status FinalStatus() const;
  // Ends the launch with this status, and returns true.
  bool End(const absl::Status& status);

  const Device* const device_;
  CollectiveAborter* const aborter_;
  const LaunchTimeouts timeouts_;
  const std::function<void(const absl::Status&)> on_fatal_;
  const std::shared_ptr<LaunchEnd> end_;
  Work work_;
  const std::shared_ptr<std::vector<WatchedCollective>> collectives_;
  size_t next_collective_ = 0;  // the first collective that has not ended
  std::optional<absl::Time> last_poll_;
  // The error of the first collective whose communicator had been aborted when Poll saw its end.
  absl::Status spoiled_;
  // When that collective began to run, as far as Poll has seen; nullopt if it has not begun.
  std::optional<absl::Time> running_since_;
  // When another rank was first seen to have left that collective's communicator.
  std::optional<absl::Time> left_since_;
  // When the device library is next asked whether that communicator has failed.
  absl::Time next_error_check_ = absl::InfinitePast();
  bool aborting_ = false;
  // The time that the launch may take to end after its abort; set by Abort, like give_up_at_.
  absl::Duration grace_;
  absl::Time give_up_at_ = absl::InfiniteFuture();
  const std::shared_ptr<SharedStatus> abort_cause_ = std::make_shared<SharedStatus>();
};

}  // namespace tessera::worker::device
