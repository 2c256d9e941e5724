// The one thread that feeds events to the state machine and carries out its effects, and the one that
// plans.
//
// Thread-safe.  Callbacks run on the driver's thread, without a lock: they must not block, and may
// call anything here but Stop.  Stop answers what is left with SERVER_STOPPING; the destructor stops.
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
#include "ir/api/worker_link.h"
#include "server/core/plan.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {

struct DriverOptions {
  Config config;
  // Events that wait; beyond it requests of clients answer QUEUE_FULL.  Reports of workers are always
  // taken: launches bound them.
  int64_t events_max = 100'000;
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
  // Returns the session.
  uint64_t AddWorker(const api::Registration& registration, std::shared_ptr<api::WorkerLink> link);
  void Report(uint64_t session, api::Report report);
  // On return the worker's link is not used any more.
  void RemoveWorker(uint64_t session, const absl::Status& why);
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // 0 when it was answered at once, since the driver is full or stopping.
  uint64_t NewRequest(Done done) ABSL_LOCKS_EXCLUDED(mu_);
  void Post(Event event) ABSL_LOCKS_EXCLUDED(mu_);
  void Run() ABSL_LOCKS_EXCLUDED(mu_);
  void RunPlanner() ABSL_LOCKS_EXCLUDED(mu_);
  void Carry(Effect& effect) ABSL_LOCKS_EXCLUDED(mu_);

  const DriverOptions options_;
  const Clock* const clock_;
  const core::PlanFn plan_;
  const AppendFn append_;

  State state_;         // the driver's thread only
  absl::Time timer_ = absl::InfiniteFuture();  // the driver's thread only

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_request_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_session_ ABSL_GUARDED_BY(mu_) = 0;
  std::deque<Event> events_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, Done> requests_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<api::WorkerLink>> links_ ABSL_GUARDED_BY(mu_);
  uint64_t sending_to_ ABSL_GUARDED_BY(mu_) = 0;  // session whose link is in use
  std::deque<MakePlan> plans_ ABSL_GUARDED_BY(mu_);

  std::thread driver_, planner_;  // last: they use the rest
};

}  // namespace tessera::server::scheduler
