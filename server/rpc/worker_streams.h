// The streams of workers: the gRPC reactors of WorkerService. WorkerStream is also the link
// (api::WorkerLink) by which the coordinator sends commands to a worker.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/server_callback.h"
#include "ir/api/worker_link.h"
#include "server/rpc/connected_workers.h"
#include "server/rpc/message_stream.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::server::rpc {

using WorkerReactor = grpc::ServerBidiReactor<v1::Envelope, v1::Envelope>;

// The common part of both kinds of streams. Received messages (envelopes) are handled one at a
// time, and no write delays the end of the stream for long. Thread-safe.
class EnvelopeStream : public MessageStream<EnvelopeStream, WorkerReactor, v1::Envelope> {
 public:
  void Start() { StartRead(&received_); }
  // Ends the stream and drops the messages that wait. A write in flight delays the end by a second
  // at most.
  void EndNow(const absl::Status& why);

  void OnReadDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final ABSL_LOCKS_EXCLUDED(context_mu_);

 protected:
  explicit EnvelopeStream(grpc::CallbackServerContext* context)
      : MessageStream(/*begun=*/false), context_(context) {}
  // Handles a received envelope.  If it returns an error, the stream ends with that error.
  virtual absl::Status HandleEnvelope(const v1::Envelope& envelope) = 0;
  // Called when the stream ends, perhaps more than once and by several threads.
  virtual void OnEnded(const std::string& why) = 0;

 private:
  grpc::CallbackServerContext* const context_;
  v1::Envelope received_;  // target of the read in flight
  grpc::Alarm last_write_alarm_;
  // Held while the alarm uses context_, which is valid until OnDone.
  absl::Mutex context_mu_;
  bool done_ ABSL_GUARDED_BY(context_mu_) = false;
};

class ExecutorStream;

// The stream of a worker's daemon, through which the coordinator also reaches the streams of the
// worker's executors.
class WorkerStream final : public EnvelopeStream, public api::WorkerLink {
 public:
  // `name` is the only name under which the worker may register, or "" for any name.
  WorkerStream(grpc::CallbackServerContext* context, ConnectedWorkers* workers, std::string name)
      : EnvelopeStream(context), workers_(workers), required_name_(std::move(name)) {}

  // ---- api::WorkerLink ----
  void Accept(const std::vector<api::AdoptedExecutor>& adopted) override ABSL_LOCKS_EXCLUDED(mu_);
  void Send(int32_t executor, uint64_t incarnation, api::Command command) override {
    SendOn(executor, incarnation, 0, std::move(command));
  }
  void SendOn(int32_t executor, uint64_t incarnation, uint64_t attachment,
              api::Command command) override ABSL_LOCKS_EXCLUDED(mu_);
  // Acknowledges the reports up to `number`. The executor is told at the next heartbeat of its
  // daemon.
  void Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Close(const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_);

  // ---- For the streams of its executors. ----
  // Connects an executor with its stream. From now on the executor's commands go to `stream`,
  // beginning with those that wait. If the executor was attached before, the coordinator is told
  // first that the last stream has ended. Returns TICKET_REFUSED if the key is not the executor's,
  // and WORKER_LOST if the attachment is meant for another coordinator, if the worker's connection
  // has ended, or if this incarnation of the executor is gone.
  absl::Status Attach(const api::Attachment& attachment,
                      const std::shared_ptr<ExecutorStream>& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // Called when the attached stream has ended, after its last report was taken.
  void Detach(int32_t executor, const ExecutorStream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the epoch of the coordinator (core/life.h), which every command and report carries.
  uint64_t epoch() const { return epoch_; }

  // ---- For inquiries.h. ----
  // Asks the daemon.  Calls `then` at most once, with the answer or with the reason why none comes.
  // If there are too many unanswered questions, the oldest is given up.
  using AnswerFn = std::function<void(absl::StatusOr<v1::InquiryAnswer>)>;
  void Ask(v1::Inquiry inquiry, AnswerFn then) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // The state of the executor with one index: of the process with the latest known incarnation.
  struct Executor {
    uint64_t incarnation = 0;
    std::shared_ptr<ExecutorStream> stream;  // null if it is not attached
    bool gone = false;                       // true if it is reported lost, or is to be killed
    bool detached = false;                   // true if it was attached, and its stream has ended
    uint64_t attachment = 0;           // how often the coordinator was told that a stream has ended
    std::deque<v1::Envelope> waiting;  // commands that wait until it attaches for the first time
    // Reports of the daemon about this index that are held back. The first is the executor's loss:
    // it waits as long as the executor's stream may still bring earlier reports.
    std::deque<api::Report> held_reports;
    // If reports are held, the time at which they are released. Otherwise, if it has never
    // attached, the time at which it is killed. If its stream has ended, the time at which the
    // coordinator is told so, unless it attaches again or the daemon reports its loss before.
    absl::Time deadline = absl::InfiniteFuture();
    // The scheduler has processed the executor's reports up to number `processed`, and its changes
    // are durable. The executor has been told so for the reports up to `acknowledged`.
    uint64_t processed = 0, acknowledged = 0;
  };
  using Streams = std::deque<std::shared_ptr<ExecutorStream>>;

  absl::Status HandleEnvelope(const v1::Envelope& envelope) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnEnded(const std::string& why) override;
  void OnSending(v1::Envelope* command) override { command->set_epoch(epoch_); }

  // Returns the name under which the worker has registered.
  std::string worker_name() ABSL_LOCKS_EXCLUDED(mu_);
  absl::Status Register(const v1::Envelope& envelope) ABSL_LOCKS_EXCLUDED(mu_);
  void BeginIfReady() ABSL_LOCKS_EXCLUDED(mu_);
  void SendToDaemon(v1::Envelope command);
  absl::Status TakeAnswer(const v1::Envelope& envelope) ABSL_LOCKS_EXCLUDED(mu_);
  void EndQuestions(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);
  void Kill(int32_t executor, uint64_t incarnation, const std::string& reason);
  // Sends no more commands and lets no executor attach. The streams of the executors stay, for
  // their farewells; while the daemon's stream is gone, the coordinator ignores their other
  // reports.
  void StopServingExecutors() ABSL_LOCKS_EXCLUDED(mu_);
  void EndExecutorStreams(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the state of the index for this incarnation. Returns null if the index is unknown or a
  // later incarnation is known. If an earlier incarnation was known, its state is replaced, and its
  // stream is put into `old`.
  Executor* FindOrReplace(int32_t executor, uint64_t incarnation, Streams* old)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queues a report of the daemon, or holds it back. Keeps the order of reports about an executor.
  void QueueOrHold(api::Report report) ABSL_LOCKS_EXCLUDED(mu_);
  // Queues the reports that are held back for the executor.
  void ReleaseHeldReports(Executor& executor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands queued reports to the coordinator, one at a time.
  void Deliver() ABSL_LOCKS_EXCLUDED(mu_);
  void EnforceDeadlines() ABSL_LOCKS_EXCLUDED(mu_);
  void SendAcknowledgements() ABSL_LOCKS_EXCLUDED(mu_);

  ConnectedWorkers* const workers_;
  const std::string required_name_;
  std::atomic<uint64_t> registration_id_{0}, epoch_{0};
  std::atomic<int32_t> protocol_{1};  // version of the protocol that the daemon speaks

  absl::Mutex mu_;
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;  // whether the scheduler has accepted the worker
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string worker_name_ ABSL_GUARDED_BY(mu_);  // name under which the worker registers
  std::map<uint64_t, AnswerFn> questions_ ABSL_GUARDED_BY(mu_);
  uint64_t last_question_ ABSL_GUARDED_BY(mu_) = 0;
  std::string ticket_key_ ABSL_GUARDED_BY(mu_);
  std::optional<api::Welcome> welcome_ ABSL_GUARDED_BY(mu_);  // Welcome that is not sent yet
  std::vector<api::AdoptedExecutor> adopted_ ABSL_GUARDED_BY(mu_);
  std::map<int32_t, Executor> executors_ ABSL_GUARDED_BY(mu_);  // registered executors, by index
  std::deque<api::Report> reports_ ABSL_GUARDED_BY(mu_);        // daemon's reports to be delivered
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
};

// The stream of one executor process.
class ExecutorStream final : public EnvelopeStream {
 public:
  ExecutorStream(grpc::CallbackServerContext* context, ConnectedWorkers* workers)
      : EnvelopeStream(context), workers_(workers) {}
  // Starts sending, beginning with the given commands.
  using MessageStream::Begin;

 private:
  absl::Status HandleEnvelope(const v1::Envelope& envelope) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnEnded(const std::string& why) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnSending(v1::Envelope* command) override { command->set_epoch(epoch_); }

  absl::Status Attach(const v1::Envelope& envelope) ABSL_LOCKS_EXCLUDED(mu_);

  ConnectedWorkers* const workers_;
  std::atomic<uint64_t> epoch_{0};
  // Set by the first envelope. The thread that reads uses these members; OnEnded uses them on other
  // threads, but only once worker_ is set.
  uint64_t registration_id_ = 0, incarnation_ = 0;
  int32_t executor_ = 0;

  absl::Mutex mu_;
  std::shared_ptr<WorkerStream> worker_ ABSL_GUARDED_BY(mu_);  // null unless attached
};

}  // namespace tessera::server::rpc
