// The coordinator: admission, scheduler, planner and store wired together, behind the client's seam
// (api::Service) and the worker's (api::WorkerEvents).
//
// Thread-safe.  It holds metadata only; Put, Get and GetShard relay bytes and are for embedding and
// for RunProgram, remote clients use tickets.  `clock` and `store` outlive it.  The destructor
// stops it: what waits answers SERVER_STOPPING, links are closed.  Workers that call in directly
// must have been disconnected, or be ready for Close, before it is destroyed.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/options.h"
#include "ir/api/service.h"
#include "ir/api/worker_link.h"
#include "ir/verify.h"
#include "server/core/plan.h"
#include "server/scheduler/driver.h"
#include "server/store/store.h"

namespace tessera::server {

// Leave to move the bytes of one shard, straight at its executor (ir/api/ticket.h).
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

class Coordinator final : public api::Service, public api::WorkerEvents {
 public:
  Coordinator(const Options& options, const Clock* clock, core::PlanFn plan, store::Store* store);
  ~Coordinator() override;
  // Answers everything that waits with SERVER_STOPPING and closes the links.
  void Stop();

  // ---- api::Service ----
  absl::StatusOr<std::vector<api::Device>> ListDevices() override;
  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override;
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override;
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement) override;
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override;
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override;
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override;
  absl::Status Delete(absl::Span<const uint64_t> arrays) override;
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override;
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation, absl::Duration timeout) override;
  absl::Status Cancel(uint64_t operation) override;

  // ---- The same without blocking; callbacks: see scheduler/driver.h. ----
  template <class T>
  using Then = std::function<void(absl::StatusOr<T>)>;
  void ListDevicesAsync(Then<std::vector<api::Device>> then);
  void CompileAsync(api::CompileRequest request, Then<api::CompileReply> then);
  void ExecuteAsync(api::ExecuteRequest request, Then<api::ExecuteReply> then);
  // `accepted`, then `ended`; an error of the first is one of the second as well.
  void ExecuteToEndAsync(api::ExecuteRequest request, Then<api::ExecuteReply> accepted,
                         Then<api::Completion> ended);
  void CreateArrayAsync(api::ArraySpec spec, Then<TicketedArray> then);
  // One ticket per ordinal asked for; none asked for: one per distinct block.
  void ReadTicketsAsync(uint64_t array, std::vector<int> ordinals, absl::Duration timeout,
                        Then<TicketedArray> then);
  void DescribeAsync(uint64_t array, Then<scheduler::ArrayInfo> then);
  void DeleteAsync(std::vector<uint64_t> arrays, std::function<void(absl::Status)> then);
  void WaitOperationAsync(uint64_t operation, absl::Duration timeout, Then<api::Operation> then);
  void CancelAsync(uint64_t operation, std::function<void(absl::Status)> then);

  // ---- api::WorkerEvents ----
  absl::StatusOr<api::Welcome> Register(const api::Registration& registration,
                                        std::shared_ptr<api::WorkerLink> link) override;
  void OnReport(uint64_t session, api::Report report) override;
  void Disconnect(uint64_t session, const absl::Status& why) override;

  const Options& options() const { return options_; }
  // What the options allow of programs, meshes and arrays.
  const ir::Limits& limits() const { return limits_; }

 private:
  // Posts `event` and waits for its reply.
  template <class E>
  scheduler::Reply Wait(E event);
  std::vector<ShardTicket> Tickets(const scheduler::ArrayInfo& info,
                                   const std::vector<int>& ordinals, bool write) const;

  const Options options_;
  const ir::Limits limits_;
  const Clock* const clock_;
  const std::string ticket_key_;
  const uint64_t epoch_;
  scheduler::Driver driver_;
};

}  // namespace tessera::server
