// The streams of workers: gRPC's reactors of WorkerService, and the coordinator's link to a worker.
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
#include "ir/api/worker_link.h"
#include "server/rpc/message_stream.h"
#include "server/rpc/worker_service.h"

namespace tessera::server::rpc {

// What both kinds share: envelopes are taken one at a time, and no write delays the end for long.
// Thread-safe.
class EnvelopeStream : public MessageStream<EnvelopeStream, WorkerReactor, v1::Envelope> {
 public:
  void Start() { StartRead(&received_); }
  // Ends the stream without the messages that wait.
  void EndNow(const absl::Status& why);

  void OnReadDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final ABSL_LOCKS_EXCLUDED(context_mu_);

 protected:
  explicit EnvelopeStream(grpc::CallbackServerContext* context)
      : MessageStream(/*begun=*/false), context_(context) {}
  // Handles what was received.  An error ends the stream with it.
  virtual absl::Status Take(const v1::Envelope& envelope) = 0;
  // Called when the stream ends, from several threads and more than once.
  virtual void Ended(const std::string& why) = 0;

 private:
  grpc::CallbackServerContext* const context_;
  v1::Envelope received_;  // of the read in flight
  grpc::Alarm last_write_;
  absl::Mutex context_mu_;  // held while the alarm uses context_, which ends with OnDone
  bool done_ ABSL_GUARDED_BY(context_mu_) = false;
};

class ExecutorStream;

// The stream of a worker's daemon, and the way to its executors' streams.
class WorkerStream final : public EnvelopeStream, public api::WorkerLink {
 public:
  // `name`: the only one that the worker may register under; empty: any.
  WorkerStream(grpc::CallbackServerContext* context, WorkerService* service, std::string name)
      : EnvelopeStream(context), service_(service), name_(std::move(name)) {}

  // ---- api::WorkerLink ----
  void Accept(const std::vector<api::AdoptedExecutor>& adopted) override ABSL_LOCKS_EXCLUDED(mu_);
  void Send(int32_t executor, uint64_t incarnation, api::Command command) override
      ABSL_LOCKS_EXCLUDED(mu_);
  // The executor is told with the next heartbeat of its daemon.
  void Acknowledge(int32_t executor, uint64_t incarnation, uint64_t number) override
      ABSL_LOCKS_EXCLUDED(mu_);
  void Close(const absl::Status& why) override ABSL_LOCKS_EXCLUDED(mu_);

  // ---- For the streams of its executors. ----
  // The executor's commands go to `stream` from now on, first those that wait.  TICKET_REFUSED: the
  // key is another's; WORKER_LOST: it means another coordinator, or the worker or this process of
  // it is gone.
  absl::Status Attach(const api::Attachment& attachment,
                      const std::shared_ptr<ExecutorStream>& stream) ABSL_LOCKS_EXCLUDED(mu_);
  // The attached stream has ended, after its last report was taken.
  void Detach(int32_t executor, const ExecutorStream* stream) ABSL_LOCKS_EXCLUDED(mu_);
  uint64_t epoch() const { return epoch_; }

  // ---- For inquiries.h. ----
  // Asks the daemon; `then` is called at most once, with its answer or with why none comes. Of too
  // many questions without an answer the oldest is given up.
  using AnswerFn = std::function<void(absl::StatusOr<v1::InquiryAnswer>)>;
  void Ask(v1::Inquiry inquiry, AnswerFn then) ABSL_LOCKS_EXCLUDED(mu_);
  // As registered.
  std::string worker() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // What is known here of one executor index.
  struct Executor {
    uint64_t incarnation = 0;
    std::shared_ptr<ExecutorStream> stream;  // null: not attached yet, or not any more
    bool gone = false;                       // its stream has ended, or it is lost or killed
    std::deque<v1::Envelope> waiting;        // commands for it, until it attaches
    // Its loss, as long as its stream may bring reports that precede it, and what the daemon has
    // reported about the index since.
    std::deque<api::Report> held;
    // When it is killed unless it has attached, or been reported lost after its stream ended; with
    // reports held: when they are held no longer.
    absl::Time deadline = absl::InfiniteFuture();
    uint64_t processed = 0, acknowledged = 0;  // reports up to this number; the executor knows of
  };
  using Streams = std::deque<std::shared_ptr<ExecutorStream>>;

  absl::Status Take(const v1::Envelope& envelope) override ABSL_LOCKS_EXCLUDED(mu_);
  void Ended(const std::string& why) override;
  void OnSending(v1::Envelope* command) override { command->set_epoch(epoch_); }

  absl::Status Register(const v1::Envelope& envelope) ABSL_LOCKS_EXCLUDED(mu_);
  void BeginIfReady() ABSL_LOCKS_EXCLUDED(mu_);
  void SendToDaemon(v1::Envelope command);
  absl::Status TakeAnswer(const v1::Envelope& envelope) ABSL_LOCKS_EXCLUDED(mu_);
  void EndQuestions(const std::string& why) ABSL_LOCKS_EXCLUDED(mu_);
  void Kill(int32_t executor, uint64_t incarnation, const std::string& reason);
  void CloseExecutors(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mu_);

  // The record of the index, as of this incarnation; null: unknown, or a later one is known.  The
  // stream of an earlier one is put into `old`.
  Executor* Find(int32_t executor, uint64_t incarnation, Streams* old)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Queues what the daemon reports, in order, or holds it back.
  void Queue(api::Report report) ABSL_LOCKS_EXCLUDED(mu_);
  void Release(Executor& executor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Hands queued reports to the coordinator, one at a time.
  void Deliver() ABSL_LOCKS_EXCLUDED(mu_);
  void MeetDeadlines() ABSL_LOCKS_EXCLUDED(mu_);
  void SendAcknowledgements() ABSL_LOCKS_EXCLUDED(mu_);

  WorkerService* const service_;
  const std::string name_;
  std::atomic<uint64_t> session_{0}, epoch_{0};
  std::atomic<int32_t> protocol_{1};  // spoken with the daemon

  absl::Mutex mu_;
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;  // by the scheduler
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string worker_ ABSL_GUARDED_BY(mu_);  // as it registers
  std::map<uint64_t, AnswerFn> asked_ ABSL_GUARDED_BY(mu_);
  uint64_t last_question_ ABSL_GUARDED_BY(mu_) = 0;
  std::string ticket_key_ ABSL_GUARDED_BY(mu_);
  std::optional<api::Welcome> welcome_ ABSL_GUARDED_BY(mu_);  // until it is sent
  std::vector<api::AdoptedExecutor> adopted_ ABSL_GUARDED_BY(mu_);
  std::map<int32_t, Executor> executors_ ABSL_GUARDED_BY(mu_);  // those that registered
  std::deque<api::Report> reports_ ABSL_GUARDED_BY(mu_);        // of the daemon, not delivered
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
};

// The stream of one executor process.
class ExecutorStream final : public EnvelopeStream {
 public:
  ExecutorStream(grpc::CallbackServerContext* context, WorkerService* service)
      : EnvelopeStream(context), service_(service) {}
  // Starts sending, with these commands.
  using MessageStream::Begin;

 private:
  absl::Status Take(const v1::Envelope& envelope) override ABSL_LOCKS_EXCLUDED(mu_);
  void Ended(const std::string& why) override ABSL_LOCKS_EXCLUDED(mu_);
  void OnSending(v1::Envelope* command) override { command->set_epoch(epoch_); }

  absl::Status Attach(const v1::Envelope& envelope) ABSL_LOCKS_EXCLUDED(mu_);

  WorkerService* const service_;
  std::atomic<uint64_t> epoch_{0};
  // Set by the first envelope; used by the thread that reads.
  uint64_t session_ = 0, incarnation_ = 0;
  int32_t executor_ = 0;

  absl::Mutex mu_;
  std::shared_ptr<WorkerStream> worker_ ABSL_GUARDED_BY(mu_);  // while attached
};

}  // namespace tessera::server::rpc
