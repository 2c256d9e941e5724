// The coordinator wires admission, scheduler, planner and store together. It offers asynchronous
// calls for clients and the workers' interface (api::WorkerEvents).  bound_service.h implements the
// client's interface (api::Service) on top of the asynchronous calls.
//
// Thread-safe.  The coordinator stores metadata only. PutAsync and GetAsync relay bytes, for
// embedding and for small arrays; clients read and write large arrays with tickets.  `clock` and
// `store` outlive it.  The destructor calls Stop. Before the coordinator is destroyed, workers in
// this process must have been disconnected, or must be ready for WorkerLink::Close.
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
  // The shard's position in the array's list of shards, which has one entry for each device.
  int32_t ordinal = 0;
  std::string endpoint;  // address of the executor's DataService
  std::string ticket;
};
struct TicketedArray {
  uint64_t array = 0;
  api::ArraySpec spec;
  std::vector<ShardTicket> tickets;
};

// Connects a coordinator with a persistent store, so that its state outlives the process.
struct Durability {
  // Turns changed rows into the store's form.
  std::function<std::vector<core::Row>(const std::vector<scheduler::RowChange>&)> encode;
  std::vector<scheduler::RowChange> restored = {};  // the rows that earlier lives have committed
  // Called when another coordinator has taken the store over. This coordinator must then end.
  std::function<void()> on_fenced = nullptr;
};

class Coordinator final : public api::WorkerEvents, private store::Store::Listener {
 public:
  // `observer`, if not null, outlives the coordinator too.  Without `tenant_folders` there is only
  // one tenant, and its files are in --files-dir itself.
  Coordinator(const Options& options, const Clock* clock, core::PlanFn plan, store::Store* store,
              core::Observer* observer = nullptr, bool tenant_folders = true,
              Durability durability = {});
  ~Coordinator() override;
  // Fails every pending request with SERVER_STOPPING and closes the links.
  void Stop();

  // The calls below do not block, except Await and Execute. scheduler/driver.h says on which thread
  // the callbacks run. `from` holds the caller and, if the client may repeat the call, its
  // request_id. The coordinator sets the request's number.
  template <class T>
  using Callback = std::function<void(absl::StatusOr<T>)>;
  // Posts an event of scheduler/events.h that needs no admission. T is the type of the reply.
  template <class T, class E>
  void Post(E&& event, Callback<T> then) {
    static_assert(!std::is_reference_v<E>, "the event is taken");
    driver_.Call(std::move(event),
                 [then = std::move(then)](scheduler::Reply r) { then(BodyOf<T>(std::move(r))); });
  }
  // Posts the event and waits for the reply. See Driver::Await.
  template <class T, class E>
  absl::StatusOr<T> Await(E&& event) {
    return BodyOf<T>(driver_.Await(std::move(event)));
  }
  // Like ExecuteAsync, but waits for the reply.
  absl::StatusOr<api::ExecuteReply> Execute(scheduler::Request from, api::ExecuteRequest request);
  void CompileAsync(const core::Caller& caller, api::CompileRequest request,
                    Callback<core::CompileReply> then);
  void ExecuteAsync(scheduler::Request from, api::ExecuteRequest request,
                    Callback<api::ExecuteReply> then);
  // Calls `on_accepted` when the run is accepted, and `on_ended` when it has ended. If the run is
  // refused, both get the error.
  void ExecuteToEndAsync(scheduler::Request from, api::ExecuteRequest request,
                         Callback<api::ExecuteReply> on_accepted,
                         Callback<api::Completion> on_ended);
  // Keeps the session alive until ReleaseHold with the returned id. Calls `on_held` with the
  // session, and `on_ended` once, with the reason why the session has ended or could not be held.
  uint64_t HoldSessionAsync(const core::Caller& caller, uint64_t session,
                            Callback<scheduler::SessionInfo> on_held,
                            std::function<void(absl::Status)> on_ended);
  void ReleaseHold(uint64_t session, uint64_t hold);
  // See Driver.
  bool HasSucceeded(uint64_t operation) { return driver_.HasSucceeded(operation); }
  bool HasEnded(uint64_t operation) { return driver_.HasEnded(operation); }
  // Creates an array and makes a ticket to write each of its shards. With `check_only` the request
  // is only checked, and no array is created.
  void CreateArrayAsync(scheduler::Request from, uint64_t session, api::ArraySpec spec,
                        bool check_only, Callback<TicketedArray> then);
  // Makes one ticket per ordinal or, without ordinals, one per distinct shard.
  void ReadTicketsAsync(const core::Caller& caller, uint64_t array, std::vector<int> ordinals,
                        absl::Duration timeout, Callback<TicketedArray> then);
  // Makes one ticket per ordinal or, without ordinals, one per shard that is not written yet.
  // Shards that need not be written any more, because their executors are lost and other devices
  // get the same shards, have no ticket.
  void WriteTicketsAsync(const core::Caller& caller, uint64_t array, std::vector<int> ordinals,
                         Callback<TicketedArray> then);
  void DeleteAsync(scheduler::Request from, std::vector<uint64_t> arrays,
                   Callback<scheduler::MissingArrays> then);
  // Creates an array from `value` and relays the shards to the executors. Calls `then` when the
  // executors have them all, or with an error such as DEADLINE_EXCEEDED. After an error the array
  // is deleted, with one exception: if the request has an id and the missing shards can still be
  // written, the array stays, and a repetition of the request writes them.
  void PutAsync(scheduler::Request from, uint64_t session, const ir::Array& value,
                const api::Placement& placement, absl::Duration timeout, Callback<uint64_t> then);
  // Relays the whole array to the caller. Fails with LIMIT_EXCEEDED if the array is larger than
  // `bytes_max`.  The option result_wait_ms_max bounds the wait too.
  void GetAsync(const core::Caller& caller, uint64_t array, absl::Duration timeout,
                int64_t bytes_max, Callback<ir::Array> then);

  // api::WorkerEvents.
  absl::StatusOr<api::Welcome> Register(const api::Registration& registration,
                                        std::shared_ptr<api::WorkerLink> link) override;
  void OnReport(uint64_t registration_id, api::Report report) override;
  void Disconnect(uint64_t registration_id, const absl::Status& why) override;
  void DisconnectExecutor(uint64_t registration_id, int32_t executor, uint64_t incarnation,
                          uint64_t attachment, const absl::Status& why) override;

  const Options& options() const { return options_; }
  const scheduler::Config& config() const { return config_; }
  const Clock* clock() const { return clock_; }
  uint64_t epoch() const { return config_.life.epoch; }
  // The limits for programs, meshes and arrays, taken from the options.
  const ir::Limits& limits() const { return limits_; }

 private:
  // store::Store::Listener.
  void OnDurable(uint64_t commit) override;
  void OnCommitsFailed(absl::Status why) override;

  // Returns the body of the reply, or the reply's error. Aborts if the body has another type, which
  // only a bug of ours can cause.
  template <class T>
  static absl::StatusOr<T> BodyOf(scheduler::Reply reply) {
    if (!reply.status.ok()) return std::move(reply.status);
    T* body = std::get_if<T>(&reply.body);
    TESSERA_CHECK(body != nullptr) << "a reply is of kind " << reply.body.index();
    return std::move(*body);
  }
  // Checks the form and the limits of a run's request.
  absl::Status CheckExecute(const api::ExecuteRequest& request) const;
  // Posts all events and calls `then` with their replies, in the order of the events.
  template <class E>
  void CallAll(std::vector<E> events, std::function<void(std::vector<scheduler::Reply>)> then);
  // Called when writing the array has failed. Deletes the array and calls `then` with the error.
  // `creation` is the request_id of the call that created the array, or "". With an id the array
  // stays if a repetition of that call can still write it; if the array is deleted, the id is
  // forgotten as if the call had never been made.
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
  const std::function<void()> on_fenced_;
  scheduler::Driver driver_;
  std::atomic<uint64_t> last_hold_{0};  // id of the latest hold
};

}  // namespace tessera::server
