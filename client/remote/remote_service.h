// The client API (ir/api/service.h) over gRPC: makes calls to the coordinator, and moves array
// bytes to and from its executors.
//
// Thread-safe. Every call has a deadline. Calls that change something carry a request_id, so that
// they can be retried when the connection fails (retry.h).
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/remote/executions.h"
#include "client/remote/lease.h"
#include "client/remote/retry.h"
#include "client/remote/runs_ahead.h"
#include "client/remote/transfer.h"
#include "client/session.h"
#include "ir/api/service.h"
#include "tessera/v1/array.grpc.pb.h"
#include "tessera/v1/cluster.grpc.pb.h"
#include "tessera/v1/operation.grpc.pb.h"
#include "tessera/v1/program_service.grpc.pb.h"

namespace tessera::remote {

class RemoteService final : public api::Service {
 public:
  // Waits until the coordinator responds, at most for options.timeout, and opens a session.
  static absl::StatusOr<std::shared_ptr<api::Service>> Connect(const std::string& address,
                                                               const ConnectOptions& options);

  absl::StatusOr<std::vector<api::Device>> ListDevices() override;
  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override;
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override;
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement,
                               absl::Duration timeout) override;
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override;
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override;
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override;
  absl::StatusOr<api::PendingArrays> Reshard(uint64_t array,
                                             const api::Placement& placement) override;
  absl::StatusOr<uint64_t> Save(const std::string& path,
                                const std::vector<api::ArrayToSave>& arrays,
                                bool overwrite) override;
  absl::StatusOr<api::PendingArrays> Load(const std::string& path,
                                          const std::vector<api::ArrayToLoad>& arrays) override;
  absl::StatusOr<std::vector<api::FileArrayInfo>> DescribeFile(const std::string& path) override;
  absl::Status Delete(absl::Span<const uint64_t> arrays) override;
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override;
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation, absl::Duration timeout) override;
  absl::Status Cancel(uint64_t operation) override;
  bool HasEnded(uint64_t operation) override;
  absl::Status CheckHeld(uint64_t id) override;

 private:
  RemoteService(const std::string& address, const ConnectOptions& options,
                std::shared_ptr<grpc::ChannelCredentials> credentials);
  void Prepare(grpc::ClientContext* context, absl::Duration timeout) const;
  absl::Status ToStatus(const grpc::Status& status) const;
  // Returns UNREACHABLE, with the cause of the last failed attempt to connect.
  absl::Status NoAnswerWithin(absl::Duration timeout) const;
  // How long the server may at least take to answer a call that does not block there. If calls wait
  // longer for a server that is away, it may take that long.
  static constexpr absl::Duration kMinAnswer = absl::Seconds(10);
  // Returns the bounds of a call that does not block at the server.
  CallBounds Bounds(absl::Time deadline = absl::InfiniteFuture()) const;
  // Returns the bounds of a call for whose work the server may take `answer`.
  static CallBounds BoundsOf(absl::Duration answer);
  template <class Stub, class Request, class Response>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Response*);
  // Makes a unary call by CallUntilAnswered, with Prepare and ToStatus, and returns the response.
  // `bounds` needs no name of the call. `before_attempt` may change the request.
  template <class Stub, class Request, class Response>
  absl::StatusOr<Response> Call(
      const std::unique_ptr<Stub>& stub, Method<Stub, Request, Response> method, Request request,
      CallBounds bounds, const std::function<void(Request*)>& before_attempt = nullptr) const;
  template <class Stub, class Request, class Response>
  absl::StatusOr<Response> Call(const std::unique_ptr<Stub>& stub,
                                Method<Stub, Request, Response> method, Request request) const {
    return Call(stub, method, std::move(request), Bounds());
  }
  // Like Call, for a request with a `timeout`, for which the server waits until `end`. If the
  // server is away until then, the result is DEADLINE_EXCEEDED.
  template <class Stub, class Request, class Response>
  absl::StatusOr<Response> CallAndWait(const std::unique_ptr<Stub>& stub,
                                       Method<Stub, Request, Response> method, Request request,
                                       absl::Time end) const;
  // Calls `call(session)`. If the server does not know the session, calls it once more with a new
  // session.
  template <class F>
  auto InSession(F call);
  // Like Call, but sets the request's session and request_id, and retries as InSession does.
  template <class Stub, class Request, class Response>
  absl::StatusOr<Response> CallInSession(const std::unique_ptr<Stub>& stub,
                                         Method<Stub, Request, Response> method, Request request,
                                         CallBounds bounds);
  // Calls `call` again while the cluster has too few devices because the workers have not found a
  // coordinator again that has lost its state.
  template <class F>
  auto WhileWorkersReturn(absl::Time deadline, F call) const -> decltype(call());
  // Returns why one of these arrays and operations is lost, if the lease ended while this process
  // did not run.
  absl::Status CheckHeld(absl::Span<const uint64_t> ids) const;
  // Calls `call`, which uses these arrays and operations. If they are lost because the lease ended
  // while this process did not run, returns that error in place of any other.
  template <class F>
  auto Using(absl::Span<const uint64_t> ids, F call) const -> decltype(call());
  // Compiles like Compile. The destructor of runs_ahead_ ends the call.
  absl::StatusOr<api::CompileReply> CompileUntilStopped(const api::CompileRequest& request);
  absl::StatusOr<api::CompileReply> CompileBy(
      const api::CompileRequest& request,
      const std::function<absl::Status(const v1::CompileProgramRequest&,
                                       v1::CompileProgramResponse*)>& call);
  // Ends the calls of runs_ahead_ that are under way.
  void StopCalls() ABSL_LOCKS_EXCLUDED(calls_mu_);
  // Returns whether the coordinator answers a short call.
  bool Answers() const;
  // Asks the coordinator about the array. Returns the coordinator's error if the array is lost or
  // deleted, and OK if it is not.
  absl::Status FetchLossError(uint64_t array) const;
  // Like FetchLossError, for an array that is being written. If the shard need not be written any
  // more, because its executor is lost and other devices get the same shard, sets *needed to false
  // and returns an error, which ends the transfer.
  absl::Status CheckTarget(uint64_t array, int ordinal, bool* needed) const;
  // Like FetchLossError, but also returns TICKET_STALE if the coordinator would now give a ticket
  // for another executor than `used` is for, because that executor is lost or away.
  absl::Status CheckSource(uint64_t array, const v1::ShardTicket& used) const;
  // Returns `transfer_status`, the result of a transfer, unless it says that the executor did not
  // respond. In that case waits until the coordinator knows why the executor was lost, and returns
  // the coordinator's error.
  absl::Status AwaitLossReason(uint64_t array, absl::Status transfer_status) const;
  absl::StatusOr<v1::CreateReadTicketsResponse> CreateReadTickets(uint64_t array,
                                                                  const std::vector<int>& ordinals,
                                                                  absl::Duration timeout) const;

  // Puts a small array by one call to the coordinator, which is faster than tickets and streams for
  // a few bytes.
  absl::StatusOr<uint64_t> PutByRelay(const ir::Array& value, const api::Placement& placement,
                                      absl::Time end);
  // Makes one attempt with new tickets. Fails with TICKET_STALE if the tickets have become stale
  // meanwhile. Sets *lost if an executor was lost before the array was written.
  absl::StatusOr<uint64_t> PutOnce(const ir::Array& value, const api::Placement& placement,
                                   absl::Time end, bool* lost);
  absl::StatusOr<ir::Array> GetValue(uint64_t array, absl::Duration timeout);
  absl::StatusOr<ir::Array> GetOnce(uint64_t array, absl::Duration timeout);
  absl::StatusOr<ir::Array> GetShardOnce(uint64_t array, int ordinal, absl::Duration timeout);
  absl::StatusOr<api::ExecuteReply> ExecuteNow(const api::ExecuteRequest& request);
  absl::StatusOr<api::Operation> AwaitOperation(uint64_t operation, absl::Duration timeout);

  // Executes over the stream of execution_client_ and watches the run: the run's completion, with
  // its small results, arrives on the stream. Call it only if IsWorthWatching says so.
  absl::StatusOr<api::ExecuteReply> ExecuteAndWatch(const api::ExecuteRequest& request);
  absl::StatusOr<api::ExecuteReply> ExecuteUnwatched(const api::ExecuteRequest& request) const;
  // Returns whether a result of the executable may be small, and not too many runs are watched.
  bool IsWorthWatching(uint64_t executable) const ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the number of the run's results, or nullopt if the run must not be sent ahead.
  std::optional<size_t> NumResultsIfSentAhead(const api::ExecuteRequest& request) const
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether the server has the features `runs_in_order` and `stop_if_not_found`. Asks it at
  // the first call.
  absl::StatusOr<bool> ServerTakesRunsAhead();
  // Returns the request with the coordinator's ids in place of this client's local ids, for a run
  // that is not sent ahead. Waits until the runs that were sent ahead are accepted.
  absl::StatusOr<api::ExecuteRequest> ResolveLocalIds(const api::ExecuteRequest& request);
  absl::StatusOr<uint64_t> AwaitCoordinatorId(uint64_t id) const;
  absl::Status DeleteNow(const std::vector<uint64_t>& ids) const;
  std::shared_ptr<ExecutionClient::Run> WatchedRunOf(uint64_t array) const ABSL_LOCKS_EXCLUDED(mu_);
  void ForgetWatched(absl::Span<const uint64_t> arrays) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string address_, token_;
  mutable Outage outage_;
  const absl::Duration answer_timeout_;  // for calls that do not block at the server
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_;
  const std::unique_ptr<v1::ProgramService::Stub> programs_;
  const std::unique_ptr<v1::ArrayService::Stub> arrays_;
  const std::unique_ptr<v1::OperationService::Stub> operations_;
  Transfer transfer_;
  ExecutionClient execution_client_;
  // True if the server is older and has no ExecutePrograms.
  std::atomic<bool> lacks_execution_stream_{false};
  // 1 if the server takes runs ahead, 0 if it does not, -1 if it was not asked yet.
  std::atomic<int> takes_runs_ahead_{-1};
  std::unique_ptr<Lease> lease_;  // set by Connect
  absl::Notification stop_;       // ends calls of runs_ahead_
  absl::Mutex calls_mu_;
  grpc::ClientContext* stoppable_call_ ABSL_GUARDED_BY(calls_mu_) = nullptr;

  // Facts about the results of an executable.
  struct ResultsInfo {
    size_t count = 0;
    bool may_be_inline = false;  // some results may come inline with the completion of a run
  };
  mutable absl::Mutex mu_;
  std::map<uint64_t, ResultsInfo> results_info_ ABSL_GUARDED_BY(mu_);  // by executable
  // The watched runs, by result array. An entry stays until its array is deleted or there are too
  // many entries.
  std::map<uint64_t, std::shared_ptr<ExecutionClient::Run>> watched_runs_ ABSL_GUARDED_BY(mu_);
  // Sends runs ahead. Last, because its thread uses the members above.
  std::unique_ptr<RunsAhead> runs_ahead_;
};

}  // namespace tessera::remote
