// Answers the coordinator's inquiries in a worker's daemon. An inquiry asks for reports about all
// processes of the worker, and may set their log level. Inquiries asks each executor over its
// socket, waits for the answers as long as the inquiry allows, and answers for the worker.
//
// Thread-safe. A thread of its own answers one inquiry after the other. If more than kQueueMax
// inquiries wait, the oldest is dropped. The hooks are called without a lock, until Stop has
// returned.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/serial/process_report.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::worker::rpc {

class Inquiries {
 public:
  static constexpr size_t kQueueMax = 16;
  // Sends a message to an executor. Returns false if the executor has no process.
  using SendFn = std::function<bool(int32_t executor, const std::string& message)>;
  using AnswerFn = std::function<void(v1::InquiryAnswer answer)>;
  // Returns the newest lines of an executor's flight recorder, without asking the executor.
  using FlightFn = std::function<std::string(int32_t executor, size_t entries_max)>;

  Inquiries(std::string worker, int32_t num_executors, SendFn send,
            ir::serial::ProcessSources sources, FlightFn flight, AnswerFn send_answer);
  Inquiries(const Inquiries&) = delete;
  Inquiries& operator=(const Inquiries&) = delete;
  ~Inquiries() { Stop(); }

  // After Stop no inquiry is answered any more.
  void Stop() ABSL_LOCKS_EXCLUDED(mu_);
  // Queues the inquiry for the thread that answers.
  void Enqueue(v1::Inquiry inquiry) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes a message from an executor. Returns false if the message is no answer.
  bool TakeAnswer(int32_t executor, const std::string& message) ABSL_LOCKS_EXCLUDED(mu_);
  // Makes a new process of the executor log at the same level as the worker's other processes, if
  // an inquiry has changed that level.
  void SendLogLevel(int32_t executor) ABSL_LOCKS_EXCLUDED(mu_);

 private:
  void Run();
  v1::InquiryAnswer MakeAnswer(const v1::Inquiry& inquiry) ABSL_LOCKS_EXCLUDED(mu_);
  // Returns when every executor that was asked has answered, or after `timeout`.
  void AwaitAnswers(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string worker_;
  const SendFn send_;
  const ir::serial::ProcessSources sources_;  // sources of the daemon's own report
  const FlightFn flight_;
  const AnswerFn send_answer_;
  const size_t num_executors_;

  std::atomic<bool> level_changed_{false};

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<v1::Inquiry> queue_ ABSL_GUARDED_BY(mu_);
  // Number of the question to the executors; only answers with this number count.
  uint64_t question_id_ ABSL_GUARDED_BY(mu_) = 0;
  // Number of executors that were asked and have not answered.
  size_t num_missing_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::optional<v1::ProcessReport>> answers_ ABSL_GUARDED_BY(mu_);  // per executor
  std::thread thread_;  // last, since it uses the members above
};

}  // namespace tessera::worker::rpc
