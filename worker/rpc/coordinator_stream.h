// The connection of an executor to the coordinator: one stream after the other, each begun when its
// daemon says that the worker is registered, or when the last stream has ended meanwhile. It
// carries reports to the coordinator and commands to the executor.
//
// Between two streams reports wait (report_journal.h). On every stream except the first, an
// ExecutorInventory precedes the reports. The epoch of a stream is that of the Welcome for which it
// was begun. A command is carried out only if its stream is the last one and the command has that
// stream's epoch, so commands of earlier coordinators are refused.
//
// Owns a thread, which begins the streams. Thread-safe. The hooks are called without a lock of this
// class, and outlive it. It must not be destroyed while a stream is open.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ir/api/worker_link.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "worker/rpc/command_ledger.h"
#include "worker/rpc/link.h"
#include "worker/rpc/report_journal.h"

namespace tessera::worker::rpc {

class CoordinatorStream {
 public:
  struct Options {
    CoordinatorAccess coordinator;
    std::string worker;
    int32_t index = 0;
    uint64_t incarnation = 0;
  };
  struct Hooks {
    // Carries out one command at a time, in the order in which they were sent.
    std::function<void(api::Command command)> carry_out;
    // Returns the arrays that the executor holds, for the inventory.
    std::function<std::vector<api::ExecutorInventory::Device>()> list_arrays;
    // Called when a command was refused.
    std::function<void()> on_stale;
  };

  CoordinatorStream(Options options, std::shared_ptr<grpc::ChannelCredentials> credentials,
                    Hooks hooks);
  ~CoordinatorStream();

  // Attaches to the registration to which the Welcome belongs, and gives up the last stream.
  // Returns at once. If a stream ends, attaches to the same registration again.
  void Attach(const api::Welcome& welcome) ABSL_LOCKS_EXCLUDED(mu_);
  // Reports whose order matters must come from one thread at a time.
  void Report(api::ReportBody body) ABSL_LOCKS_EXCLUDED(mu_);
  // Calls back once, when there is a stream on which everything that was reported has been sent.
  void CallOnceSent(std::function<void()> on_sent) ABSL_LOCKS_EXCLUDED(mu_);
  // Ends the stream once all reports have been sent, and waits at most `timeout` until the
  // coordinator has taken them.
  void Finish(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Reports that the process ends, and does what Finish does.
  void SayFarewell(const std::string& reason, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mu_);
  // Waits until no command is being carried out.
  void AwaitCommand() ABSL_LOCKS_EXCLUDED(command_mu_) { absl::MutexLock lock(&command_mu_); }

 private:
  // The thread's main function: begins a stream when one is due.
  void RunAttacher() ABSL_LOCKS_EXCLUDED(mu_);
  void BeginStream(const api::Welcome& welcome) ABSL_LOCKS_EXCLUDED(mu_);
  void OnCommand(uint64_t stream_number, uint64_t epoch, const v1::Envelope& envelope)
      ABSL_LOCKS_EXCLUDED(command_mu_, mu_);
  void OnEnd(uint64_t stream_number) ABSL_LOCKS_EXCLUDED(mu_);
  // Records the command. Returns false if it did not come on the last stream.
  bool AcceptCommand(uint64_t stream_number, api::Command& command) ABSL_LOCKS_EXCLUDED(mu_);
  v1::Envelope MakeInventory() ABSL_LOCKS_EXCLUDED(mu_);
  // Sends the waiting reports, unless another thread does so. Releases the lock while it sends.
  void SendWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const Hooks hooks_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  // Links that may not have ended yet; used by thread_ only.
  std::vector<std::shared_ptr<Link>> links_;
  absl::Mutex command_mu_;  // held while a command is carried out

  absl::Mutex mu_ ABSL_ACQUIRED_AFTER(command_mu_);
  uint64_t last_stream_number_ ABSL_GUARDED_BY(mu_) = 0;
  // Link of the last stream; null if no link takes reports.
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mu_);
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;  // epoch of the last stream
  bool sending_ ABSL_GUARDED_BY(mu_) = false;
  CommandLedger ledger_ ABSL_GUARDED_BY(mu_);
  ReportJournal journal_ ABSL_GUARDED_BY(mu_);
  std::function<void()> on_sent_ ABSL_GUARDED_BY(mu_);
  std::optional<api::Welcome> welcome_ ABSL_GUARDED_BY(mu_);  // of the registration to attach to
  // When the next stream is to be begun, and how long after the next end of a stream.
  absl::Time attach_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Duration backoff_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;  // whether thread_ is to end
  std::thread thread_;
};

}  // namespace tessera::worker::rpc
