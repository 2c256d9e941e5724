// The coordinator: admission, scheduler, planner and store wired together, behind asynchronous
// calls for clients and the workers' interface (api::WorkerEvents).  bound_service.h implements the
// client's interface (api::Service) with the former.
//
// Thread-safe.  It stores metadata only: PutAsync and GetAsync relay bytes, for embedding and small
// arrays; clients read and write large ones with tickets.  `clock` and `store` outlive it.  The
// destructor stops it: pending requests fail with SERVER_STOPPING, links are closed.  Workers in
// this process must have been disconnected, or be ready for Close, before it is destroyed.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/options.h"
#include "ir/api/service.h"
#include "ir/api/ticket.h"
#include "ir/api/worker_link.h"
#include "ir/verify.h"
#include "server/core/caller.h"
#include "server/core/plan.h"
#include "server/core/telemetry.h"
#include "server/scheduler/driver.h"
#include "server/store/store.h"

namespace tessera::server {

// A capability to read or write one shard directly at its executor (ir/api/ticket.h).
struct ShardTicket {
  int32_t ordinal = 0;
  std::string endpoint;  // of the executor's DataService
  std::string ticket;
};
struct TicketedArray {
  uint64_t array = 0;
  api::ArraySpec spec;
  std::vector<ShardTicket> tickets;
};

// How a coordinator's state outlives it, with a store that is persistent.
struct Durability {
  std::function<std::vector<core::Row>(const std::vector<scheduler::RowChange>&)> encode;
  std::vector<scheduler::RowChange> restored = {};  // what earlier lives have committed
  // Another coordinator has taken the store over: this one must end.
  std::function<void()> fenced = nullptr;
};

class Coordinator final : public api::WorkerEvents, private store::Store::Listener {
 public:
  // `observer`, if not null, outlives it too.  Without `tenant_folders` there is one tenant, whose
  // files are in --files-dir itself.
  Coordinator(const Options& options, const Clock* clock, core::PlanFn plan, store::Store* store,
              core::Observer* observer = nullptr, bool tenant_folders = true,
              Durability durability = {});
  ~Coordinator() override;
  // Fails every pending request with SERVER_STOPPING and closes the links.
  void Stop();

  // These calls do not block; scheduler/driver.h says on which thread the callbacks run. `from` has
  // the caller and, if the call may come again, its request_id; its number is set here.
  template <class T>
  using Callback = std::function<void(absl::StatusOr<T>)>;
  // Posts an event of scheduler/events.h that needs no admission; T is the type of its reply.
  template <class T, class E>
  void Post(E&& event, Callback<T> then) {
    static_assert(!std::is_reference_v<E>, "the event is taken");
    driver_.Call(std::move(event),
                 [then = std::move(then)](scheduler::Reply r) { then(BodyOf<T>(std::move(r))); });
  }
  // As Post, and waits for the reply, as Driver::Await does.
  template <class T, class E>
  absl::StatusOr<T> Await(E&& event) {
    return BodyOf<T>(driver_.Await(std::move(event)));
  }
  // As ExecuteAsync, and waits.
  absl::StatusOr<api::ExecuteReply> Execute(scheduler::Request from, api::ExecuteRequest request);
  void CompileAsync(const core::Caller& caller, api::CompileRequest request,
                    Callback<core::CompileReply> then);
  void ExecuteAsync(scheduler::Request from, api::ExecuteRequest request,
                    Callback<api::ExecuteReply> then);
  // Calls `accepted`, then `ended`; an error of the first is passed to the second as well.
  void ExecuteToEndAsync(scheduler::Request from, api::ExecuteRequest request,
                         Callback<api::ExecuteReply> accepted, Callback<api::Completion> ended);
  // Keeps the session alive until ReleaseHold with the returned id. Calls `held` with the session,
  // and `ended` once, with the reason why the session has ended or could not be held.
  uint64_t HoldSessionAsync(const core::Caller& caller, uint64_t session,
                            Callback<scheduler::SessionInfo> held,
                            std::function<void(absl::Status)> ended);
  void ReleaseHold(uint64_t session, uint64_t hold);
  // See Driver::HasSucceeded.
  bool HasSucceeded(uint64_t operation) { return driver_.HasSucceeded(operation); }
  void CreateArrayAsync(scheduler::Request from, uint64_t session, api::ArraySpec spec,
                        bool check_only, Callback<TicketedArray> then);
  // One ticket per ordinal; without ordinals one per distinct shard.
  void ReadTicketsAsync(const core::Caller& caller, uint64_t array, std::vector<int> ordinals,
                        absl::Duration timeout, Callback<TicketedArray> then);
  // One ticket per ordinal; without ordinals one per shard that is not written.
  void WriteTicketsAsync(const core::Caller& caller, uint64_t array, std::vector<int> ordinals,
                         Callback<TicketedArray> then);
  void DeleteAsync(scheduler::Request from, std::vector<uint64_t> arrays,
                   Callback<scheduler::MissingArrays> then);
  // Makes an array of `value`, relayed to the executors; `then` is called when they have it, or
  // with DEADLINE_EXCEEDED. If it fails, the array is deleted, unless the request has an id and the
  // shards that are missing can still be written: by the same request.
  void PutAsync(scheduler::Request from, uint64_t session, const ir::Array& value,
                const api::Placement& placement, absl::Duration timeout, Callback<uint64_t> then);
  // Gets the whole array, relayed; LIMIT_EXCEEDED if it is larger than `bytes_max`.  The wait is
  // bounded by result_wait_ms_max too.
  void GetAsync(const core::Caller& caller, uint64_t array, absl::Duration timeout,
                int64_t bytes_max, Callback<ir::Array> then);

  // api::WorkerEvents.
  absl::StatusOr<api::Welcome> Register(const api::Registration& registration,
                                        std::shared_ptr<api::WorkerLink> link) override;
  void OnReport(uint64_t session, api::Report report) override;
  void Disconnect(uint64_t session, const absl::Status& why) override;

  const Options& options() const { return options_; }
  const scheduler::Config& config() const { return config_; }
  const Clock* clock() const { return clock_; }
  uint64_t epoch() const { return config_.life.epoch; }
  // The options' limits for programs, meshes and arrays.
  const ir::Limits& limits() const { return limits_; }

 private:
  // store::Store::Listener.
  void DurableThrough(uint64_t commit) override;
  void Failing(absl::Status why) override;

  // The body of a reply that is OK; anything else is our bug.
  template <class T>
  static absl::StatusOr<T> BodyOf(scheduler::Reply reply) {
    if (!reply.status.ok()) return std::move(reply.status);
    T* body = std::get_if<T>(&reply.body);
    TESSERA_CHECK(body != nullptr) << "a reply is of kind " << reply.body.index();
    return std::move(*body);
  }
  // Admission of a run.
  absl::Status Admit(const api::ExecuteRequest& request) const;
  // Calls `then` with the replies to all events, in their order.
  template <class E>
  void CallAll(std::vector<E> events, std::function<void(std::vector<scheduler::Reply>)> then);
  // Writing the array has failed: calls `then` with the error, once the array is deleted unless it
  // can still be written by a call that comes again. `creation`: the id of that call, which then
  // counts as never made; "": none.
  void GiveUpPut(const core::Caller& caller, uint64_t array, const std::string& creation,
                 const absl::Status& error, const Callback<uint64_t>& then);
  TicketedArray MakeTickets(const scheduler::ArrayInfo& info, const std::vector<int>& ordinals,
                            api::Ticket::Access access, absl::Time expires) const;
  absl::Time TicketExpiry() const;

  const Options options_;
  const ir::Limits limits_;
  const Clock* const clock_;
  const std::string ticket_key_;
  const scheduler::Config config_;
  store::Store* const store_;
  const std::function<void()> fenced_;
  scheduler::Driver driver_;
  std::atomic<uint64_t> holds_{0};
};

}  // namespace tessera::server
