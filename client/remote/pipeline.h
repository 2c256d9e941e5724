// Runs whose acceptance nobody waits for (ExecuteProgramsRequest.in_order): each is sent at once,
// and its operation and its results have ids of this client's, which stand for the coordinator's.
// What a run that was refused would have made has its error.
//
// Thread-safe. A thread waits for the acceptances, and sends again, in their order, the runs that a
// broken stream has left without one.
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

class Pipeline {
 public:
  // What its thread calls.
  struct Calls {
    std::function<void(uint64_t session)> no_session;  // which the coordinator does not know
    std::function<void(const std::vector<uint64_t>& arrays)> free;  // deletes them
  };
  // `executions` and `outage` must outlive it.
  Pipeline(Executions* executions, std::shared_ptr<grpc::Channel> channel, Outage* outage,
           DoneFn done, Calls calls);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;
  // Runs that are not accepted by then may not run.
  ~Pipeline();

  // Whether the id, of an array or of an operation, is of this client's.
  static bool IsLocal(uint64_t id) { return id >> 63 != 0; }

  // The most results that a run of Execute may have.
  static constexpr size_t kResultsMax = 1'000'000;
  // Sends the run, which has so many results. While too many have not ended it waits for one, at
  // most `timeout`: then QUEUE_FULL.
  absl::StatusOr<api::ExecuteReply> Execute(const api::ExecuteRequest& request, size_t num_results,
                                            absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // The coordinator's id, once it has told it; one of the coordinator's itself is returned.
  // DEADLINE_EXCEEDED; the error of a run that was refused; ARRAY_DELETED or OPERATION_NOT_FOUND if
  // it was forgotten.
  absl::StatusOr<uint64_t> IdOf(uint64_t id, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::vector<uint64_t>> IdsOf(absl::Span<const uint64_t> ids, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until all runs are accepted, or have failed, at most until `deadline`.
  void AwaitAccepted(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of the run, at most until `deadline`; the array, if it came along.
  std::optional<ir::Array> ResultOf(uint64_t array, absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the end of the run, at most until `deadline`; its record, if it has arrived. One that
  // was refused has failed.
  std::optional<api::Operation> OperationOf(uint64_t operation, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Forgets the arrays that have ids of this client's. Returns the coordinator's ids of what is to
  // be deleted now: of the arrays, and of some that were forgotten before. While runs are not
  // accepted, which may take them, there are none; the thread has them deleted.
  std::vector<uint64_t> Forget(absl::Span<const uint64_t> arrays) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Sent;
  using SentRef = std::shared_ptr<Sent>;
  // A result of a run.
  struct Result {
    SentRef of;
    size_t index = 0;
  };
  // An argument of a run.
  struct Arg {
    uint32_t arg = 0;
    Result result;
  };
  struct Sent {
    explicit Sent(uint64_t n) : number(n) {}
    const uint64_t number;
    // Until it is settled.
    v1::ExecuteProgramRequest request;
    std::vector<Arg> unknown;              // arguments whose runs were not settled
    std::shared_ptr<Executions::Run> run;  // null: it was never sent
    bool settled = false;                  // accepted, or failed
    absl::Status failure;
    api::ExecuteReply reply;
    std::vector<bool> alive;  // the results that are not forgotten
    size_t num_alive = 0;
  };

  SentRef Find(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null also of an array that was forgotten.
  SentRef FindAlive(uint64_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status AwaitRoom(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // The run as it goes over its stream; an error if an argument's run has failed.
  static absl::StatusOr<v1::ExecuteProgramsRequest> Numbered(const Sent& sent);
  void ForgetOne(uint64_t array, std::vector<uint64_t>* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<uint64_t> ForgetAll(absl::Span<const uint64_t> arrays)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits for the end of the run that makes it, or is it; null if it was forgotten.
  std::shared_ptr<Executions::Run> AwaitEnd(uint64_t id, absl::Time deadline)
      ABSL_LOCKS_EXCLUDED(mu_);
  void Settle(Sent* sent, absl::Status failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sends all that is not accepted, on one stream.
  void SendAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Drive() ABSL_LOCKS_EXCLUDED(mu_);
  // Waits for the acceptance of the first.
  void AwaitFirst(const SentRef& first) ABSL_LOCKS_EXCLUDED(mu_);

  Executions* const executions_;
  const std::shared_ptr<grpc::Channel> channel_;
  Outage* const outage_;
  const DoneFn done_;
  const Calls calls_;

  absl::Notification stopping_;
  absl::Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<uint64_t, SentRef> by_number_
      ABSL_GUARDED_BY(mu_);                             // with results alive, or under way
  std::deque<SentRef> unsettled_ ABSL_GUARDED_BY(mu_);  // in their order, all on one stream
  std::deque<SentRef> in_flight_ ABSL_GUARDED_BY(mu_);  // may not have ended
  std::deque<std::weak_ptr<Sent>> with_results_ ABSL_GUARDED_BY(mu_);
  std::vector<Result> late_ ABSL_GUARDED_BY(mu_);       // forgotten before they had ids
  std::vector<uint64_t> deletes_ ABSL_GUARDED_BY(mu_);  // forgotten, and not deleted
  std::thread thread_;                                  // last: it uses the members above
};

}  // namespace tessera::remote
