// The seam of ir/api/service.h carried by gRPC to a coordinator, and to its executors for the
// bytes.
//
// Thread-safe.  Every call has a deadline.  What changes something carries a request_id, by which
// unary calls and accepted runs are asked for again when nobody answers (retry.h).
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/remote/executions.h"
#include "client/remote/lease.h"
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
  // Waits until the coordinator answers, at most options.timeout.
  static absl::StatusOr<std::shared_ptr<api::Service>> Connect(const std::string& address,
                                                               const ConnectOptions& options);

  absl::StatusOr<std::vector<api::Device>> ListDevices() override;
  absl::StatusOr<api::CompileReply> Compile(const api::CompileRequest& request) override;
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request) override;
  absl::StatusOr<uint64_t> Put(const ir::Array& value, const api::Placement& placement) override;
  absl::StatusOr<ir::Array> Get(uint64_t array, absl::Duration timeout) override;
  absl::StatusOr<ir::Array> GetShard(uint64_t array, int ordinal, absl::Duration timeout) override;
  absl::StatusOr<api::ArraySpec> Describe(uint64_t array) override;
  absl::StatusOr<api::Making> Reshard(uint64_t array, const api::Placement& placement) override;
  absl::StatusOr<uint64_t> Save(const std::string& path,
                                const std::vector<api::ArrayToSave>& arrays,
                                bool overwrite) override;
  absl::StatusOr<api::Making> Load(const std::string& path,
                                   const std::vector<api::ArrayToLoad>& arrays) override;
  absl::StatusOr<std::vector<api::FileArrayInfo>> DescribeFile(const std::string& path) override;
  absl::Status Delete(absl::Span<const uint64_t> arrays) override;
  absl::StatusOr<api::Operation> GetOperation(uint64_t operation) override;
  absl::StatusOr<api::Operation> WaitOperation(uint64_t operation, absl::Duration timeout) override;
  absl::Status Cancel(uint64_t operation) override;

 private:
  RemoteService(const std::string& address, const ConnectOptions& options,
                std::shared_ptr<grpc::ChannelCredentials> credentials);
  void Prepare(grpc::ClientContext* context, absl::Duration limit) const;
  absl::Status Done(const grpc::Status& status) const;
  // UNREACHABLE, with what the last attempt to connect met.
  absl::Status NoAnswerWithin(absl::Duration timeout) const;
  // CallUntilAnswered with these.
  absl::Status Call(absl::Duration limit,
                    const std::function<grpc::Status(grpc::ClientContext*)>& call) const;
  // `call(session)`; once more with a new session when the server does not know this one.
  template <class F>
  auto InSession(F call);
  // Why the coordinator says that the array is lost or deleted; OK if it does not.
  absl::Status Loss(uint64_t array) const;
  // `moved` is the result of a transfer. Where an executor did not answer, the coordinator's reason
  // for the loss in its place.
  absl::Status WhyLost(uint64_t array, absl::Status moved) const;
  absl::StatusOr<v1::CreateReadTicketsResponse> ReadTickets(uint64_t array,
                                                            const std::vector<int>& ordinals,
                                                            absl::Duration timeout) const;

  // Put through the coordinator, in one call: what is so small that tickets and streams cost more.
  absl::StatusOr<uint64_t> Relay(const ir::Array& value, const api::Placement& placement);
  // The same with the tickets that there are now; TICKET_STALE when those are old. `gone`: the
  // array went with an executor's process before it was written.
  absl::StatusOr<uint64_t> PutOnce(const ir::Array& value, const api::Placement& placement,
                                   bool* gone);
  absl::StatusOr<ir::Array> GetOnce(uint64_t array, absl::Duration timeout);
  absl::StatusOr<ir::Array> GetShardOnce(uint64_t array, int ordinal, absl::Duration timeout);

  // Watches the run when one of its results may be small and not too many others are watched.
  absl::StatusOr<api::ExecuteReply> ExecuteAndWatch(const api::ExecuteRequest& request);
  absl::StatusOr<api::ExecuteReply> JustExecute(const api::ExecuteRequest& request) const;
  bool WorthWatching(uint64_t executable) const ABSL_LOCKS_EXCLUDED(mu_);
  std::shared_ptr<Executions::Run> RunOf(uint64_t array) const ABSL_LOCKS_EXCLUDED(mu_);
  void Forget(absl::Span<const uint64_t> arrays) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string address_, token_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::ClusterService::Stub> cluster_;
  const std::unique_ptr<v1::ProgramService::Stub> programs_;
  const std::unique_ptr<v1::ArrayService::Stub> arrays_;
  const std::unique_ptr<v1::OperationService::Stub> operations_;
  Transfer transfer_;
  Executions executions_;
  std::atomic<bool> no_streams_{false};  // the server is older, and knows no ExecutePrograms
  std::unique_ptr<Lease> lease_;         // set by Connect

  mutable absl::Mutex mu_;
  std::set<uint64_t> large_ ABSL_GUARDED_BY(mu_);  // executables with results too large to inline
  // By result, until it is deleted or there are too many.
  std::map<uint64_t, std::shared_ptr<Executions::Run>> runs_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tessera::remote
