// Feeds events to the state machine and carries out its effects, one after the other; and the
// threads that plan, small programs first.
//
// Thread-safe.  Whoever posts an event while nobody is at work takes the work on itself, so that an
// event costs no switch of threads; the driver's own thread takes what is left and keeps the timer.
// Events are stamped when they come, and those that wait are served before a timer that is due:
// what somebody has said in time counts, however late we are ourselves. Callbacks run on the thread
// at work, without a lock of ours: they must not block, and may call anything here but Stop.  So
// nobody may call in with a lock held that a callback or a link takes. Stop answers what is left
// with SERVER_STOPPING; the destructor stops.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/sized_pool.h"
#include "ir/api/worker_link.h"
#include "server/core/plan.h"
#include "server/core/telemetry.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

struct DriverOptions {
  Config config;
  // Events that wait; beyond it requests of clients answer QUEUE_FULL.  Reports of workers are
  // always taken: launches bound them.
  int64_t events_max = 100'000;
  int plan_threads = 0;  // at least 2; 0: one a core, from 2 to 8
  // Makes what the next life is to know durable before it returns; null: nobody keeps it.
  std::function<absl::Status(const std::vector<core::KnownExecutor>&)> keep = nullptr;
  core::Observer* observer = nullptr;  // outlives the driver; null: nobody looks
};

class Driver {
 public:
  using Done = std::function<void(Reply)>;
  // Makes a record durable before it returns.
  using AppendFn = std::function<absl::Status(std::string_view record)>;

  // `clock` outlives the driver.
  Driver(DriverOptions options, const Clock* clock, core::PlanFn plan, AppendFn append);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Sets event.request; `done` is called once.
  template <class E>
  void Call(E event, Done done) {
    event.request = NewRequest(std::move(done));
    if (event.request != 0) Post(std::move(event));
  }
  // The same for an event with an end_request too; `ended` is called when that is answered, and as
  // `accepted` when that is an error.
  template <class E>
  void CallToEnd(E event, Done accepted, Done ended) {
    if (NewRequests(std::move(accepted), std::move(ended), &event.request, &event.end_request))
      Post(std::move(event));
  }
  // An event that is not answered and never refused: what there was before bounds such.
  void Tell(DropHold event) { Post(std::move(event)); }
  // Returns the session.
  uint64_t AddWorker(const api::Registration& registration, std::shared_ptr<api::WorkerLink> link);
  void Report(uint64_t session, api::Report report);
  // On return the worker's link is not used any more.
  void RemoveWorker(uint64_t session, const absl::Status& why);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Why no request is taken now.
  absl::Status Refusal() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // 0 when it was answered at once, since the driver is full or stopping.
  uint64_t NewRequest(Done done) ABSL_LOCKS_EXCLUDED(mu_);
  // False when they were.
  bool NewRequests(Done accepted, Done ended, uint64_t* request, uint64_t* end_request)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Post(Event event) ABSL_LOCKS_EXCLUDED(mu_);
  void Push(Event event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes this thread the one that works off events, unless somebody does already.  With the
  // event's push, so that the driver's own thread is not woken for it.
  bool Claim() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Works off events, at most `limit`.  Claimed before.
  void Work(int limit) ABSL_LOCKS_EXCLUDED(mu_);
  // One step, its effects, and what is to be told of it.
  void Take(const Event& event, absl::Time now);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  // On a thread that plans.
  void Plan(const MakePlan& wanted) ABSL_LOCKS_EXCLUDED(mu_);
  void Carry(Effect& effect) ABSL_LOCKS_EXCLUDED(mu_);

  const DriverOptions options_;
  const Clock* const clock_;
  const core::PlanFn plan_;
  const AppendFn append_;

  State state_;                                  // of the thread at work
  absl::Time last_step_ = absl::InfinitePast();  // the same

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread::id worker_ ABSL_GUARDED_BY(mu_);  // the thread at work; none: no thread
  absl::Time timer_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  uint64_t last_request_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_session_ ABSL_GUARDED_BY(mu_) = 0;
  struct Waiting {
    absl::Time came;
    Event event;
  };
  std::deque<Waiting> events_ ABSL_GUARDED_BY(mu_);  // in the order in which they came
  // Of these, those that go before a timer that is due: what had come when it was found to be.
  size_t before_timer_ ABSL_GUARDED_BY(mu_) = 0;
  bool timer_due_ ABSL_GUARDED_BY(mu_) = false;
  std::map<uint64_t, Done> requests_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<api::WorkerLink>> links_ ABSL_GUARDED_BY(mu_);
  uint64_t sending_to_ ABSL_GUARDED_BY(mu_) = 0;  // session whose link is in use

  // Last: they use the rest.
  std::unique_ptr<SizedPool> planners_;
  std::thread driver_;
};

}  // namespace tessera::server::scheduler
