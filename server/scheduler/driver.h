// Feeds events to the state machine one after the other, and applies the effects of each step. Owns
// the threads that make plans, which take small programs first.
//
// Thread-safe. One thread at a time, the runner, processes events. A thread that posts an event
// while there is no runner becomes the runner, which saves a context switch. The driver's own
// thread processes the rest and waits for the timer. The Inbox decides which event is next
// (loop.h). Callbacks run without a lock of the driver, on the runner or on another thread that
// calls the driver. They must not block, and may call any function of the driver except Stop and
// Await. Since a caller may become the runner and thus run any callback, it must not hold a lock
// that a callback or a worker's link takes. Stop fails the remaining requests with SERVER_STOPPING.
// The destructor calls Stop.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/sized_pool.h"
#include "ir/api/worker_link.h"
#include "server/core/plan.h"
#include "server/core/telemetry.h"
#include "server/scheduler/loop.h"

namespace tessera::server::scheduler {

struct DriverOptions {
  Config config;
  // Size of the event queue. When it is full, requests of clients fail with QUEUE_FULL. Reports of
  // workers are always taken, because the number of launches bounds them.
  int64_t events_max = 100'000;
  int plan_threads = 0;  // at least 2; 0 means one per core, from 2 to 8
  // A function that begins to make a commit durable, and does not block. It is called on the
  // runner. The store later calls OnDurable or OnCommitsFailed with the outcome. Required if
  // config.durable is set.
  std::function<void(Commit)> commit = nullptr;
  core::Observer* observer = nullptr;  // outlives the driver; may be null
};

class Driver {
 public:
  using Done = Inbox::Done;
  // `clock` outlives the driver.
  Driver(DriverOptions options, const Clock* clock, core::PlanFn plan);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Sets event.request. `done` is called once.
  template <class E>
  void Call(E&& event, Done done) {
    static_assert(!std::is_reference_v<E>, "the event is taken");
    const uint64_t request = event.request = ++last_request_;
    Submit(std::move(event), request, std::move(done));
  }
  // Like Call, but waits for the reply. Every request gets one: the scheduler bounds its wait, and
  // Stop answers the requests that are left. Do not call it on a thread that processes events.
  template <class E>
  Reply Await(E&& event) {
    struct {
      const std::thread::id caller = std::this_thread::get_id();
      Reply reply;
      // Whether the reply came on the caller's thread, which processed the event itself.
      bool replied_here = false;
      absl::Notification replied;
    } waiting;
    Call(std::move(event), [&waiting](Reply reply) {
      waiting.reply = std::move(reply);
      if (std::this_thread::get_id() == waiting.caller) {
        waiting.replied_here = true;
      } else {
        waiting.replied.Notify();
      }
    });
    if (!waiting.replied_here) waiting.replied.WaitForNotification();
    return std::move(waiting.reply);
  }
  // Like Call, for an event with an end_request. The reply to the end_request goes to `ended`. If
  // the first reply is an error, both callbacks get that error.
  template <class E>
  void CallToEnd(E&& event, Done accepted, Done ended) {
    static_assert(!std::is_reference_v<E>, "the event is taken");
    const uint64_t request = event.request = ++last_request_;
    const uint64_t end_request = event.end_request = ++last_request_;
    Submit(std::move(event), request, std::move(accepted), end_request, std::move(ended));
  }
  // Posts an event that has no reply and is never rejected. Earlier HoldSessions bound the number
  // of such events.
  void Tell(DropHold event) { Post(std::move(event)); }
  // Registers a connected worker, to which commands go by `link`. Returns the id of the
  // registration.
  uint64_t AddWorker(const api::Registration& registration, std::shared_ptr<api::WorkerLink> link);
  void Report(uint64_t registration_id, api::Report report);
  // Once this call returns, the worker's link is no longer used, except by a call of the link that
  // is itself the caller.
  void RemoveWorker(uint64_t registration_id, const absl::Status& why);
  // The executor's own connection has ended, while its worker's goes on.
  void DetachExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                      uint64_t attachment, const absl::Status& why);
  // Returns true only if the operation has ended without an error and all commits are durable. It
  // looks at the state itself instead of posting an event, so it also returns false while a thread
  // processes events.
  bool HasSucceeded(uint64_t operation) ABSL_LOCKS_EXCLUDED(mu_);
  // Like HasSucceeded, but returns true also if the operation has failed or was cancelled, and if
  // its record is not kept any more.
  bool HasEnded(uint64_t operation) ABSL_LOCKS_EXCLUDED(mu_);
  // Passes the rows that earlier lives have committed to the state machine. Call it before all
  // other functions.
  void Restore(std::vector<RowChange> rows) { Post(scheduler::Restore{std::move(rows)}); }
  // The store calls this when all commits up to this number are durable (see Inbox).
  void OnDurable(uint64_t commit) ABSL_LOCKS_EXCLUDED(mu_);
  // The store calls this when commits fail. They fail until the next OnDurable.
  void OnCommitsFailed(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Posts an event. `request` and `end_request` are the ids of its requests, or 0 if it has none.
  // If the Inbox rejects the event, the requests are answered at once instead.
  void Submit(Event&& event, uint64_t request, Done done, uint64_t end_request = 0,
              Done ended = nullptr) ABSL_LOCKS_EXCLUDED(mu_);
  void Post(Event&& event) { Submit(std::move(event), 0, nullptr); }
  // Makes this thread the runner and returns true, unless there is a runner or the driver stops.
  // Call it under the same lock as the push of an event, so that the driver's own thread is not
  // woken for the event.
  bool TryBecomeRunner() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Processes at most `limit` events, and the timer if it was due `now`. Requires: this thread is
  // the runner.
  void ProcessEvents(absl::Time now, int limit) ABSL_LOCKS_EXCLUDED(mu_);
  // Queues the reports that links have returned (WorkerLink::SendForReport), as if they had arrived
  // at `arrived_at`.
  void PushReturnedReports(absl::Time arrived_at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs one step and applies its effects and notes. The event has arrived at `arrived_at`, and
  // `moment` is the present. Commits up to `durable_commit` are durable.
  void ProcessEvent(const Event& event, absl::Time arrived_at, const Clock::Moment& moment,
                    uint64_t durable_commit);
  // Acknowledges to executors the reports whose steps are durable. Runs on the runner, with each
  // heartbeat.
  void AcknowledgeReports() ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void AnswerIfStoreIsSilent() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs on a planner thread.
  void Plan(const MakePlan& make_plan) ABSL_LOCKS_EXCLUDED(mu_);
  void Send(SendCommand& send) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the number of the last durable commit.
  uint64_t DurableCommit() ABSL_LOCKS_EXCLUDED(mu_);
  // Applies an effect that is neither a reply nor a timer. `last_commit` has the same meaning as
  // for Inbox::PassOrHold.
  void ApplyEffect(Effect& effect, uint64_t last_commit) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the timer if `timer` is not null, and calls the callbacks of the requests whose replies
  // may leave.
  using Replies = absl::InlinedVector<Reply*, 4>;
  void SendReplies(const Replies& replies, const SetTimer* timer, uint64_t last_commit,
                   bool acknowledges_change, absl::Time now) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls `use` with the link of the worker, if the worker is connected. The link counts as in use
  // until this thread next takes the lock, which it does before it calls anything that may wait.
  template <class Use>
  void WithLink(uint64_t registration_id, const Use& use) ABSL_LOCKS_EXCLUDED(mu_);

  const DriverOptions options_;
  const Clock* const clock_;
  const core::PlanFn plan_;
  std::atomic<uint64_t> last_request_ = 0;

  Stepper stepper_;                          // owned by the runner
  Outbox outbox_;                            // owned by the runner
  std::atomic<bool> commands_wait_ = false;  // whether commands wait in the outbox
  // Reports that were processed and are not acknowledged yet, in order. Owned by the runner.
  struct ProcessedReport {
    uint64_t commit = 0;  // last commit when the step had ended
    uint64_t registration_id = 0;
    int32_t executor = 0;
    uint64_t incarnation = 0, number = 0;
  };
  std::deque<ProcessedReport> processed_reports_;
  // The reports that links returned and that wait, and the one report (or none) that is processed
  // without being queued. Owned by the runner.
  std::vector<Event> returned_reports_, next_returned_report_;

  absl::Mutex mu_;
  Inbox inbox_ ABSL_GUARDED_BY(mu_);
  // The runner's thread; a default id means that there is none.
  std::thread::id runner_ ABSL_GUARDED_BY(mu_);
  uint64_t last_registration_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, std::shared_ptr<api::WorkerLink>> links_ ABSL_GUARDED_BY(mu_);
  // The registration id of the worker whose link is in use.
  uint64_t sending_to_ ABSL_GUARDED_BY(mu_) = 0;
  // `wake_driver_` tells the driver's own thread that events wait which no thread processes, or
  // that the timer is due sooner than before. `runner_left_` tells it that there is no runner any
  // more, while it waits to become the runner. Both are CondVars, because every unlock would
  // evaluate an absl::Condition.
  absl::CondVar wake_driver_, runner_left_;

  // Declared last, since they use the other members.
  std::unique_ptr<SizedPool> planners_;
  std::thread driver_;
};

}  // namespace tessera::server::scheduler
