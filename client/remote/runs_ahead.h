// Sends runs ahead: the caller does not wait until the coordinator accepts a run
// (ExecuteProgramsRequest.in_order). Execute returns at once with local ids, which this client
// chose, and which stand for the coordinator's ids. If a run is refused, its results have its
// error.
//
// Thread-safe. A thread waits for the acceptances. If the stream breaks, the thread sends the runs
// that have not been accepted again, in their order.
// Reference: docs/decisions/0029-runs-are-sent-ahead.md.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/types/span.h"
#include "client/remote/executions.h"
#include "client/remote/retry.h"
#include "ir/api/service.h"

namespace tessera::remote {

class RunsAhead {
 public:
  // Functions that the thread of a RunsAhead calls.
  struct Calls {
    // Called with a session that the coordinator does not know.
    std::function<void(uint64_t session)> no_session;
    // Deletes the arrays, which are given by the coordinator's ids.
    std::function<void(const std::vector<uint64_t>& arrays)> free;
  };
  // `executions` and `outage` must outlive this object.
  RunsAhead(Executions* executions, std::shared_ptr<grpc::Channel> channel, Outage* outage,
            ToStatusFn to_status, Calls calls);
  RunsAhead(const RunsAhead&) = delete;
  RunsAhead& operator=(const RunsAhead&) = delete;
  // Stops the thread. Runs that have not been accepted by then may never run.
  ~RunsAhead();

  // Returns whether the id of an array or an operation is a local one, chosen by this client.
  static bool IsLocal(uint64_t id) { return id >> 63 != 0; }

  // The most results that a run may have for Execute to take it.
  static constexpr size_t kResultsMax = 1'000'000;
  // Sends the run and returns local ids for its operation and its `num_results` results. While too
  // many runs have not ended or are not accepted, waits at most `timeout` for one of them, and then
  // fails with QUEUE_FULL.
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request, size_t num_results,
                                            absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the coordinator's id for a local id, as soon as the coordinator has accepted the run.
  // An id that is not local is returned unchanged. Errors: DEADLINE_EXCEEDED; the error of the run
  // if it was refused; ARRAY_DELETED or OPERATION_NOT_FOUND if the id was forgotten.
  absl::StatusOr<uint64_t> IdOf(uint64_t id, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<uint64_t>> IdsOf(absl::Span<const uint64_t> ids, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until every run has been accepted or has failed, at most until `deadline`.
  void AwaitAccepted(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of the run that makes `array`, at most until `deadline`. Returns the array if
  // it came inline with the completion.
  std::optional<ir::Array> ResultOf(uint64_t array, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of the run, at most until `deadline`. Returns the record of the run if it has
  // arrived. The record of a run that was refused says that the run failed.
  std::optional<api::Operation> OperationOf(uint64_t operation, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the local ids among `arrays`. Returns the coordinator's ids of the arrays to delete
  // now: these arrays, and some that were forgotten before. While runs that may take the arrays are
  // not accepted yet, the list is empty, and the thread deletes the arrays later.
  std::vector<uint64_t> Forget(absl::Span<const uint64_t> arrays) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Sent;
  using SentRef = std::shared_ptr<Sent>;
  // One result of a run.
  struct Result {
    SentRef sent;
    size_t index = 0;
  };
  // An argument of a run that is a result of another run.
  struct Arg {
    uint32_t arg = 0;
    Result result;
  };
  // A run that was sent, or that failed because an argument's run had failed.
  struct Sent {
    explicit Sent(uint64_t n) : number(n) {}
    const uint64_t number;
    // The request, which is cleared once the run is settled.
    v1::ExecuteProgramRequest request;
    std::vector<Arg> local_args;           // arguments with local ids; cleared with the request
    std::shared_ptr<Executions::Run> run;  // null if the run was never sent
    bool settled = false;                  // true once the run is accepted or has failed
    absl::Status failure;
    api::ExecuteReply reply;
    std::vector<bool> alive;  // per result, whether it has not been forgotten
    size_t num_alive = 0;
  };

  SentRef Find(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Like Find, but returns null also if the id is that of an array that was forgotten.
  SentRef FindAlive(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AwaitRoom(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the request for the run as it goes over its stream. Fails with the error of an
  // argument's run, if that run has failed.
  static absl::StatusOr<v1::ExecuteProgramsRequest> Numbered(const Sent& sent);
  void ForgetOne(uint64_t array, std::vector<uint64_t>* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<uint64_t> ForgetAll(absl::Span<const uint64_t> arrays)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for the end of the run that makes the array `id` or is the operation `id`. Returns the
  // run, or null if it was forgotten or never sent.
  std::shared_ptr<Executions::Run> AwaitEnd(uint64_t id, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the outcome of a run, and drops its request. The arrays that a failed run was to release
  // are deleted later.
  void Settle(Sent* sent, absl::Status failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends all runs that are not settled again, over one stream.
  void SendAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drive() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until `first`, the oldest run that is not settled, is accepted or has failed.
  void AwaitFirst(const SentRef& first) ABSL_LOCKS_EXCLUDED(mu_);

  Executions* const executions_;
  const std::shared_ptr<grpc::Channel> channel_;
  Outage* const outage_;
  const ToStatusFn to_status_;
  const Calls calls_;

  absl::Notification stopping_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // The runs that are under way, or have results that are not forgotten.
  absl::flat_hash_map<uint64_t, SentRef> by_number_ ABSL_GUARDED_BY(mu_);
  // The runs that are not settled, in their order. All of them are on one stream.
  std::deque<SentRef> unsettled_ ABSL_GUARDED_BY(mu_);
  std::deque<SentRef> in_flight_ ABSL_GUARDED_BY(mu_);  // runs that may not have ended
  // The latest runs, whose inline results are kept.
  std::deque<std::weak_ptr<Sent>> with_results_ ABSL_GUARDED_BY(mu_);
  std::vector<Result> forgotten_early_
      ABSL_GUARDED_BY(mu_);                             // results forgotten before they had ids
  std::vector<uint64_t> deletes_ ABSL_GUARDED_BY(mu_);  // arrays to delete
  std::thread thread_;                                  // last: it uses the members above
};

}  // namespace tessera::remote
