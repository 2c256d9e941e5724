// Sends runs to the coordinator without waiting until the coordinator accepts them
// (ExecuteProgramsRequest.in_order). Execute returns at once, with local ids. This client chooses
// the local ids, and they stand for the ids that the coordinator assigns when it accepts the run.
// If the coordinator refuses a run, each use of the run's results fails with the run's error.
//
// Thread-safe. A thread of this object waits for the acceptances. If the stream breaks, that thread
// sends the runs that have not been accepted again, in their order. It also does so if a run was
// refused because the coordinator does not know its executable or its session: the coordinator then
// ends the stream behind that run, and the thread compiles the program again or takes another
// session, once for each run.
// Reference: docs/decisions/0029-runs-are-sent-ahead.md,
// docs/decisions/0040-executables-come-back.md.
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
#include "ir/api/kept_program.h"
#include "ir/api/service.h"

namespace tessera::remote {

class RunsAhead {
 public:
  // The functions that the thread of a RunsAhead calls.
  struct Callbacks {
    // Returns the session that takes the place of `session`, which the coordinator does not know.
    std::function<absl::StatusOr<uint64_t>(uint64_t session)> replace_session;
    // Deletes the arrays, which are given by the coordinator's ids.
    std::function<void(const std::vector<uint64_t>& arrays)> free_arrays;
    // Compiles a program again.
    api::KeptProgram::CompileFn compile;
    // Ends calls of the callbacks that are under way. Called by the destructor.
    std::function<void()> stop = [] {};
    // Called with the ids that a run in `session` has made, when the run is accepted.
    std::function<void(uint64_t session, const api::ExecuteReply& reply)> on_accepted =
        [](uint64_t, const api::ExecuteReply&) {};
    // Returns why one of these arrays is lost, if that is known; see api::Service::CheckHeld.
    std::function<absl::Status(absl::Span<const uint64_t> arrays)> check_held =
        [](absl::Span<const uint64_t>) { return absl::OkStatus(); };
    // Returns whether the coordinator answers a call.
    std::function<bool()> answers = [] { return true; };
  };
  // `execution_client` and `outage` must outlive this object.
  RunsAhead(ExecutionClient* execution_client, std::shared_ptr<grpc::Channel> channel,
            Outage* outage, ToStatusFn to_status, Callbacks callbacks);
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
  // Waits until the coordinator has accepted the run of a local id, and returns the coordinator's
  // id. Returns an id that is not local unchanged, without a wait. Errors: DEADLINE_EXCEEDED; the
  // error of the run if it was refused; ARRAY_DELETED or OPERATION_NOT_FOUND if the id was
  // forgotten.
  absl::StatusOr<uint64_t> AwaitCoordinatorId(uint64_t id, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<uint64_t>> AwaitCoordinatorIds(absl::Span<const uint64_t> ids,
                                                            absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until every run has been accepted or has failed, at most until `deadline`.
  void AwaitAccepted(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of the run that makes `array`, at most until `deadline`. Returns the array if
  // it came inline with the completion.
  std::optional<ir::Array> AwaitInlineResult(uint64_t array, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of the run, at most until `deadline`. Returns the record of the run if it has
  // arrived. The record of a run that was refused says that the run failed.
  std::optional<api::Operation> AwaitOperation(uint64_t operation, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns whether the run of a local operation id has failed to be accepted, or is known to have
  // ended. Waits for nothing.
  bool HasEnded(uint64_t operation) ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the local ids among `arrays`. Returns the coordinator's ids of the arrays that the
  // caller must delete now: these arrays, and arrays that were forgotten before. While a run that
  // may take one of them is not accepted yet, returns nothing, and the thread deletes all of them
  // later.
  std::vector<uint64_t> ForgetAndTakeDeletable(absl::Span<const uint64_t> arrays)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the coordinator's ids of those among `ids` that have one by now.
  std::vector<uint64_t> KnownCoordinatorIds(absl::Span<const uint64_t> ids)
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct SentRun;
  using SentRunRef = std::shared_ptr<SentRun>;
  // A result of a run.
  struct ResultRef {
    SentRunRef sent;
    size_t index = 0;
  };
  // An argument that was given by its local id: the result of an earlier run.
  struct LocalArg {
    uint32_t arg_index = 0;
    ResultRef result;
  };
  // A run that was sent, or that failed because an argument's run had failed.
  struct SentRun {
    explicit SentRun(uint64_t n) : number(n) {}
    const uint64_t number;
    // The request, which is cleared once the run is settled, and the program of its executable.
    v1::ExecuteProgramRequest request;
    std::shared_ptr<api::KeptProgram> kept_program;
    uint64_t lost_executable = 0;               // the executable that was replaced; 0 if none was
    bool session_replaced = false;              // whether the run was sent again in another session
    std::vector<LocalArg> local_args;           // cleared with the request
    std::shared_ptr<ExecutionClient::Run> run;  // null if the run was never sent
    bool settled = false;                       // true once the run is accepted or has failed
    absl::Status failure;
    api::ExecuteReply reply;
    std::vector<bool> alive;  // by result, whether it has not been forgotten
    size_t num_alive = 0;
  };

  SentRunRef Find(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Like Find, but returns null also if the id is that of an array that was forgotten.
  SentRunRef FindAlive(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AwaitRoom(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the request that is sent for the run now. Fails if the run of an argument has failed,
  // with the error of that run.
  static absl::StatusOr<v1::ExecuteProgramsRequest> MakeRequest(const SentRun& sent);
  // Forgets the array. If it has an id of the coordinator, adds that id to `deletable`.
  void ForgetOne(uint64_t array, std::vector<uint64_t>* deletable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Forgets the arrays. Returns the coordinator's ids of these arrays, and those in to_delete_.
  std::vector<uint64_t> ForgetAll(absl::Span<const uint64_t> arrays)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for the end of the run that makes the array `id` or is the operation `id`. Returns the
  // run, or null if it was forgotten or never sent.
  std::shared_ptr<ExecutionClient::Run> AwaitEnd(uint64_t id, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Sets the outcome of a run, and drops its request. The arrays that a failed run was to release
  // are deleted later.
  void Settle(SentRun* sent, absl::Status failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends the runs that are not settled again, all over one stream. Settles the runs that fail
  // because the run of an argument has failed.
  void ResendUnsettled() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The main function of the thread: settles the runs, one after the other.
  void RunThread() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until `oldest_run`, the oldest run that is not settled, is accepted or has failed, and
  // settles it.
  void SettleOldest(const SentRunRef& oldest_run) ABSL_LOCKS_EXCLUDED(mu_);
  // The answer of the coordinator to the oldest run.
  struct Answer {
    absl::Status failure;
    api::ExecuteReply reply;
    bool unreachable = false;   // the coordinator could not be reached
    bool stream_ended = false;  // the coordinator has ended the stream behind the run
  };
  // Waits for the answer, with retries on new streams. Returns nullopt if there is nothing left to
  // settle.
  std::optional<Answer> AwaitAnswer(const SentRunRef& oldest_run) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the acceptance of the run. Returns DEADLINE_EXCEEDED if the coordinator says nothing
  // for `silence` and answers no other call either.
  grpc::Status AwaitAcceptance(const ExecutionClient::Run& run, absl::Duration silence,
                               api::ExecuteReply* reply);
  absl::Duration SilenceTimeout() const;
  // Replaces the executable or the session that the coordinator does not know, and sends the run
  // and those behind it again. Returns false if that is not possible, and sets `failure` to the
  // reason.
  bool Repair(const SentRunRef& refused, absl::Status* failure) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the coordinator's ids of the arguments, as far as they are known.
  static std::vector<uint64_t> KnownArgs(const SentRun& sent);

  ExecutionClient* const execution_client_;
  const std::shared_ptr<grpc::Channel> channel_;
  Outage* const outage_;
  const ToStatusFn to_status_;
  const Callbacks callbacks_;

  absl::Notification stopping_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  // The runs that are under way, or have results that are not forgotten.
  absl::flat_hash_map<uint64_t, SentRunRef> by_number_ ABSL_GUARDED_BY(mu_);
  // The runs that are not settled, in their order. All of them are on one stream.
  std::deque<SentRunRef> unsettled_ ABSL_GUARDED_BY(mu_);
  std::deque<SentRunRef> in_flight_ ABSL_GUARDED_BY(mu_);  // runs that may not have ended
  // The latest runs. The inline results of these runs are kept.
  std::deque<std::weak_ptr<SentRun>> with_kept_results_ ABSL_GUARDED_BY(mu_);
  std::vector<ResultRef> forgotten_early_
      ABSL_GUARDED_BY(mu_);                               // results forgotten before they had ids
  std::vector<uint64_t> to_delete_ ABSL_GUARDED_BY(mu_);  // arrays to delete
  std::thread thread_;                                    // last: it uses the members above
};

}  // namespace tessera::remote
