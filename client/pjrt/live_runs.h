// The runs that a client has requested and that have not ended, as far as this process knows.
//
// A LiveRun stands for one run. It is held by everything that may still need the run: by the cells
// of the results, by the live runs that take the results, and by the jobs that have yet to request
// the run or to make its calls of the host. When the last holder is gone, nothing can use a result
// of the run any more, and the run is cancelled.
//
// Thread-safe. The client and its live runs share a LiveRuns.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/sized_pool.h"
#include "client/pjrt/event.h"
#include "client/session.h"

namespace tessera::pjrt {

class LiveRun;
class LiveRuns;
using LiveRunRef = std::shared_ptr<LiveRun>;

class LiveRun {
 public:
  // Made by LiveRuns::Add.
  LiveRun(std::weak_ptr<LiveRuns> owner, std::shared_ptr<Session> session,
          std::vector<LiveRunRef> makers);
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;
  // Cancels the run unless it has ended.
  ~LiveRun();

  // Says that the run has effects besides its results, so that the destructor does not cancel it.
  // Call before the run is requested.
  void Detach() { detached_ = true; }
  // Sets the outcome by which the framework waits for the run.
  void SetOutcome(const std::shared_ptr<Outcome>& outcome) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that the service has accepted the run as this operation. If 0, the run has ended already.
  // Call at most once.
  void NoteAccepted(uint64_t operation) ABSL_LOCKS_EXCLUDED(mu_);
  // Notes that the run has ended or will never begin.
  void NoteEnded() ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether the run is known to have ended. Makes no call over a network.
  bool HasEnded() ABSL_LOCKS_EXCLUDED(mu_);
  // Like HasEnded, but does not ask the service.
  bool IsKnownEnded() const { return ended_.load(); }
  // Marks the run as cancelled. Returns its operation, which the caller must cancel. Returns 0 if
  // the run is not accepted yet; it is then cancelled when it is.
  uint64_t MarkCancelled();
  // Returns whether MarkCancelled was called. A run that is not requested yet must not be requested
  // then.
  bool IsCancelled() const { return cancelled_.load(); }
  // Returns whether the main thread has requested the run, or waits for it.
  bool ConcernsMainThread() const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the number of the run; see NextRunNumber.
  int64_t number() const { return number_; }
  // Returns the runs that make the arguments; none once the run has ended.
  std::vector<LiveRunRef> makers() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  friend class LiveRuns;

  // Returns the outcome, or null if there is none any more.
  std::shared_ptr<Outcome> outcome() const ABSL_LOCKS_EXCLUDED(mu_);

  const std::weak_ptr<LiveRuns> owner_;
  const std::shared_ptr<Session> session_;
  const int64_t number_;
  const bool by_main_thread_;  // whether the main thread has requested the run
  bool detached_ = false;
  std::atomic<bool> ended_{false}, cancelled_{false};
  std::atomic<uint64_t> operation_{0};  // 0 while the run is not accepted
  mutable absl::Mutex mu_;
  std::weak_ptr<Outcome> outcome_ ABSL_GUARDED_BY(mu_);
  std::vector<LiveRunRef> makers_ ABSL_GUARDED_BY(mu_);
};

class LiveRuns : public std::enable_shared_from_this<LiveRuns> {
 public:
  // Call MakeLiveRuns instead.
  explicit LiveRuns(std::shared_ptr<Session> session);
  LiveRuns(const LiveRuns&) = delete;
  LiveRuns& operator=(const LiveRuns&) = delete;
  // Drops the cancellations that have not begun, and waits for those that have.
  ~LiveRuns();

  // Adds a run that this thread is about to request. `makers` are the runs that make its arguments.
  LiveRunRef Add(std::vector<LiveRunRef> makers) ABSL_LOCKS_EXCLUDED(mu_);
  // Cancels the run, on another thread. A run that is not accepted yet is cancelled as soon as it
  // is.
  static void Cancel(const LiveRunRef& run);
  // Cancels the operation, on another thread.
  void CancelLater(uint64_t operation);
  // Calls the function on a thread that no wait for a run keeps busy.
  void CallLater(std::function<void()> f) { pool_.Push(/*size=*/0, std::move(f)); }
  // Returns the runs that are not known to have ended.
  std::vector<LiveRunRef> Unended() ABSL_LOCKS_EXCLUDED(mu_);
  const std::shared_ptr<Session>& session() const { return session_; }

 private:
  // Forgets the runs that have ended.
  void DropEnded() ABSL_LOCKS_EXCLUDED(mu_);

  const std::shared_ptr<Session> session_;
  absl::Mutex mu_;
  std::vector<std::weak_ptr<LiveRun>> runs_ ABSL_GUARDED_BY(mu_);  // the oldest run is first
  size_t drop_at_ ABSL_GUARDED_BY(mu_);  // at this many runs, those that have ended are dropped
  // Threads of its own, because all threads of the client may wait for the runs that are to be
  // cancelled. Last, because they use the session.
  SizedPool pool_;
};

// Returns the live runs of a new client. Ctrl-C and CancelAllRuns find them.
std::shared_ptr<LiveRuns> MakeLiveRuns(std::shared_ptr<Session> session);

// Cancels all runs of all clients of this process that have not ended, and returns their number.
// Fails with the error of the first cancellation that fails, or with DEADLINE_EXCEEDED if a
// coordinator does not confirm them in time; they go on then.
absl::StatusOr<int64_t> CancelAllRuns();

}  // namespace tessera::pjrt
