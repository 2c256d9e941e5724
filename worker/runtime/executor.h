// The executor: the unit of identity and failure. It owns the devices of one process, their
// buffers, executables and communicators, and executes the commands of ir/api/worker_link.h.
//
// Used directly when embedded, and behind a pipe in the executor process of a worker. Send is
// thread-safe and does not block; commands take effect in the order sent. The report function is
// called with one event at a time, in the order in which they happened; it may call Send. A report
// that Send has returned to its caller is not among them.
//
// Threads: one dispatch stream per device, one for opening communicators and one for closing them,
// one for files, one for reports, one for timers, and those that compile, small programs first
// (base/sized_pool.h). Later launches on the same device may use a launch's results as soon as it
// is enqueued, others when the device is done. The destructor cancels running launches, waits for
// their end, and reports nothing more.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/sized_pool.h"
#include "ir/api/worker_link.h"
#include "worker/collectives/peer_port.h"
#include "worker/memory/buffer_table.h"
#include "worker/memory/memory_account.h"
#include "worker/runtime/backend.h"
#include "worker/runtime/communicator.h"
#include "worker/runtime/peer_reader.h"
#include "worker/runtime/stream.h"
#include "worker/runtime/timer.h"
#include "worker/telemetry/executor_metrics.h"
#include "worker/telemetry/in_flight.h"
#include "worker/telemetry/link_meter.h"

namespace tessera::worker {

struct ExecutorOptions {
  std::string worker;  // its name; the executor is "worker/index"
  std::string host;
  int32_t index = 0;
  uint64_t incarnation = 1;
  // Advertised endpoints; "" when embedded.
  std::string data_endpoint, peer_endpoint, peer_data_endpoint;
  int peer_listen_fd = -1;  // borrowed; -1: no other executors
  absl::Duration collective_timeout = absl::Seconds(5);
  std::shared_ptr<const TlsContext> tls;  // of connections to peers; null: plain text
  int64_t queue_bound = 2048;             // queued launches per device; beyond it QUEUE_FULL
  int compile_jobs = 0;               // programs compiled at a time, at least 2; 0: one per core
  InFlightPage* in_flight = nullptr;  // borrowed; null: one of its own
  PeerReader* peers = nullptr;        // borrowed; null: transfers cannot read from peers
  std::string files_dir;  // the directory of saved arrays; empty: none may be saved or loaded
  MetricsPage* metrics = nullptr;  // borrowed; null: metrics are disabled
};

class Executor {
 public:
  using ReportFn = std::function<void(api::ReportBody)>;

  Executor(ExecutorOptions options, std::unique_ptr<Backend> backend, ReportFn report);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  api::ExecutorInfo info() const;
  int32_t index() const { return options_.index; }
  uint64_t incarnation() const { return options_.incarnation; }
  // What it holds, per device, for an ExecutorInventory: without what it has been told to delete
  // and deletes once earlier launches have ended.
  std::vector<api::ExecutorInventory::Device> Arrays() const ABSL_LOCKS_EXCLUDED(mu_);
  // `report`: where not null, it may be set to the report of a command that has been done, which is
  // what the result says; else that is reported like all others.
  bool Send(api::Command command, api::ReportBody* report = nullptr);
  // For a thread of this process that is about to wait for a launch: runs what a device's stream
  // has not begun, if it is one launch alone and brief. Two switches of threads are saved.
  void RunWhatWaits();
  // Waits until every launch has ended and been reported; returns false at the `deadline`. For a
  // process that is about to end.
  bool WaitUntilIdle(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // `drained` is called once, on a thread of the executor, when a Drain has been completed.
  void OnDrained(std::function<void()> drained) ABSL_LOCKS_EXCLUDED(mu_);

  // The data plane. Reserves memory for a shard before its bytes are received.
  absl::StatusOr<Reservation> ReserveShard(const BufferId& id, int64_t bytes);
  std::shared_ptr<std::byte[]> NewShardMemory(int64_t bytes) {
    return backend_->NewShardMemory(bytes);
  }
  // ARRAY_DELETED if a deletion of the array waits for earlier launches: what is written now would
  // go with it.
  absl::Status CheckNotDeleting(const BufferId& id) const ABSL_LOCKS_EXCLUDED(mu_);
  // Stores a received shard; reports BufferWritten, unless it was rejected.
  absl::Status WriteShard(const BufferId& id, ir::Array value, Reservation reservation,
                          TransferPath path = TransferPath::kTicket);
  // Calls back with the shard once it is ready, or with its producer's error; see
  // BufferTable::WhenReady.
  uint64_t ReadShard(const BufferId& id, std::function<void(absl::StatusOr<ir::Array>)> callback);
  // As ReadShard, without the bytes: calls back with the status of the shard's producer.
  uint64_t AwaitShard(const BufferId& id, std::function<void(const absl::Status&)> callback);
  bool ForgetRead(const BufferId& id, uint64_t ticket) { return buffers_.Forget(id, ticket); }

  const ExecutorMetrics& metrics() const { return metrics_; }
  const BufferTable& buffers() const { return buffers_; }
  const MemoryAccount& account(int device) const { return *accounts_[device]; }
  InFlightOp in_flight(int device) const { return in_flight_->slot(device).Read(); }

 private:
  struct Program;
  struct Launch;
  struct TransferPiece;
  struct TransferShard;
  using ProgramRef = std::shared_ptr<Program>;
  using LaunchRef = std::shared_ptr<Launch>;
  // Where the thread that has sent a command wants its report.
  struct ReportTo {
    api::ReportBody* sender = nullptr;  // null: nowhere
    bool given = false;
  };

  void Handle(const api::ConfigureCommunicator& command);
  void Handle(const api::CloseCommunicator& command);
  void Handle(const api::LoadProgram& command);
  void Handle(const api::UnloadPrograms& command);
  void Handle(api::Launch&& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mu_);
  void Handle(const api::Transfer& command);
  void Handle(const api::WriteBuffer& command);
  void Handle(const api::ReadBuffer& command, ReportTo& to);
  void Handle(const api::DeleteBuffers& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mu_);
  void Delete(const std::vector<uint64_t>& arrays, int32_t device);
  // Of a deletion that waited for its turn.
  void DeleteQueued(const std::vector<uint64_t>& arrays, int32_t device) ABSL_LOCKS_EXCLUDED(mu_);
  void Handle(const api::CancelLaunch& command);
  void Handle(const api::Drain& command);
  // The daemon handles this; an embedded executor ignores it.
  void Handle(const api::KillExecutor&) {}
  // Whoever carries the reports handles this.
  void Handle(const api::AcknowledgeReports&) {}
  // executor_files.cc
  void Handle(const api::SaveShards& command);
  void Handle(const api::LoadShards& command);
  void Handle(const api::InspectFile& command);
  // Runs `work` after earlier work on files, and ends the launch with its status.
  void RunOnFiles(const LaunchRef& launch, std::function<absl::Status(Launch&)> work);

  absl::Status CheckProgram(const api::LoadProgram& command) const;
  absl::Status CheckTransfer(const api::Transfer& command) const;
  // Gives the launch its communicator and, if it may need them, ranks.
  absl::Status Resolve(const api::Launch& command, Launch* launch) ABSL_LOCKS_EXCLUDED(mu_);
  // To the streams of the launch's devices; `claimed`: this thread has claimed theirs.
  absl::Status Admit(const LaunchRef& launch, bool claimed);
  // Ends a launch that reached no stream.
  void FailBeforeStart(const LaunchRef& launch, const absl::Status& why);
  // `executable`: of the program, if it has one; it has none, too, if that is not loaded.
  LaunchRef NewLaunch(uint64_t id, absl::Duration timeout, uint64_t executable = 0)
      ABSL_LOCKS_EXCLUDED(mu_);
  // What the launch runs, if that is compiled and has one device here; else null.
  static const Executable* CompiledForOneDevice(const Launch& launch);

  // Runs on a stream.
  void RunOnDevice(const LaunchRef& launch, int64_t mesh_device, int32_t device);
  absl::Status StartOnDevice(const LaunchRef& launch, int64_t mesh_device, int32_t device);
  absl::Status AwaitProgram(Launch& launch);
  // Waits until one of the runs that are enqueued on the device has ended, or the launch is
  // cancelled.
  absl::Status AwaitRunEnd(const Launch& launch, int32_t device, int64_t had)
      ABSL_LOCKS_EXCLUDED(mu_);
  // The time for the metrics of dispatch; without metrics 0, as to read the clock takes longer than
  // most of what a launch of little work does.
  int64_t DispatchClock() const { return metrics_.enabled() ? AgeGauge::Now() : 0; }
  // Reserves the memory of a launch; waits while earlier launches on the device hold too much.
  absl::StatusOr<Reservation> ReserveOnDevice(const Launch& launch, int32_t device, int64_t bytes);
  // The arguments, and the outcomes of the earlier launches that produce them.
  struct Args {
    absl::InlinedVector<DeviceBufferRef, 4> buffers;
    absl::InlinedVector<OutcomeRef, 4> outcomes;  // per argument; null: its value was ready
    // The reservations of donated arguments that may be overwritten; null for the others.
    absl::InlinedVector<std::shared_ptr<Reservation>, 4> donated_reservations;
    // For each result the argument whose memory it reuses; -1: it has its own. Empty: all have.
    std::vector<int> donations;
  };
  // Takes all arguments or none.
  absl::Status TakeArgs(Launch& launch, int32_t device, Args* args);
  // Undoes TakeArgs for a run that was not enqueued.
  void ReturnArgs(const Launch& launch, int32_t device, Args args);
  absl::StatusOr<Collectives*> CollectivesOf(Launch& launch);
  absl::StatusOr<RunContext> ContextOf(Launch& launch, int64_t mesh_device, int32_t device,
                                       absl::Span<const int> donations);
  // A launch that one device was given.
  struct Run {
    LaunchRef launch = nullptr;
    int32_t device = 0;
    Args args = {};  // held, as is the memory, until the device is done with them
    Reservation reservation = {};
    absl::InlinedVector<DeviceBufferRef, 2> results = {};
    OutcomeRef outcome = nullptr;  // null: it has ended
  };
  // The rest of StartOnDevice. Sets `*enqueued` once the device has the arguments.
  absl::Status EnqueueOnDevice(Run& run, int64_t mesh_device, int64_t began, bool* enqueued);
  // Ends the run when the device does.
  void EndLater(const std::shared_ptr<Run>& run, std::shared_ptr<Event> event)
      ABSL_LOCKS_EXCLUDED(mu_);
  void EndRun(Run& run, absl::Status status);
  void StoreResults(Run& run);
  absl::Status RunTransfer(const LaunchRef& launch, const TransferShard& shard);
  absl::StatusOr<ir::Array> FetchPiece(Launch& launch, const TransferPiece& piece, ir::DType dtype);
  // The first device starts the launch's clock. An error if it has been cancelled.
  absl::Status Start(const LaunchRef& launch);
  void BeginOnDevice(Launch& launch, int32_t device);
  void EndOnDevice(const LaunchRef& launch, int32_t device, const absl::Status& status);
  // Ends the launch with its first failure, here and at its peers in collectives. Other launches on
  // its communicator go on.
  void Fail(Launch& launch, const absl::Status& why);
  void TimeOut(Launch& launch);
  void Finish(const LaunchRef& launch, bool on_stream);

  // Runs on the control thread.
  void OpenCommunicator(const std::shared_ptr<Communicator>& communicator) ABSL_LOCKS_EXCLUDED(mu_);
  // Runs on a compiling thread.
  void CompileProgram(const ProgramRef& program, const ir::Program& source);
  bool HasDevice(int32_t device) const { return device >= 0 && device < num_devices_; }
  void Report(api::ReportBody body);
  // As Report, without a context switch if no other report is queued: to the sender if it wants it.
  // Requires: no lock is held.
  void ReportAtOnce(api::ReportBody body, ReportTo& to);
  // Retains the inline results of the launch, so that no later launch overwrites them.
  void RetainInlineResults(const LaunchRef& launch);
  std::vector<api::LaunchDone::InlineResult> InlineResults(
      const std::map<BufferId, DeviceBufferRef>& retained_inline_results);

  // Immutable, or thread-safe by themselves.
  const ExecutorOptions options_;
  const std::string name_;
  const std::unique_ptr<Backend> backend_;
  const int32_t num_devices_;
  const ReportFn report_;
  const ExecutorMetrics metrics_;
  LinkMeter links_;
  std::unique_ptr<InFlightPage> own_page_;
  InFlightPage* in_flight_;
  std::vector<std::unique_ptr<InFlightQueue>> in_flight_queues_;  // per device
  std::unique_ptr<PeerPort> peer_port_;                           // null: no other executors
  std::atomic<bool> silent_{false};  // the destructor runs: nothing is reported
  // Accounts outlive the buffers that reserve from them.
  std::vector<std::unique_ptr<MemoryAccount>> accounts_;
  BufferTable buffers_;

  // Serialises Send, so that every stream gets the launches in the same order.
  absl::Mutex send_mu_;
  bool draining_ ABSL_GUARDED_BY(send_mu_) = false;
  // What Send does itself, on the stream that it has claimed: a quick launch or deletions.
  struct Claimed {
    int32_t device = 0;
    LaunchRef launch = nullptr;
    int64_t mesh_device = 0;
    std::vector<uint64_t> deleted = {};  // when there is no launch
  };
  std::optional<Claimed> claimed_ ABSL_GUARDED_BY(send_mu_);

  const std::string files_folder_;

  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(send_mu_);
  std::map<uint64_t, ProgramRef> programs_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<Communicator>> communicators_ ABSL_GUARDED_BY(mu_);
  uint64_t last_generation_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, LaunchRef> launches_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<BufferId> deleting_ ABSL_GUARDED_BY(mu_);  // once earlier launches have ended
  // Per device: runs that have not ended. Written under the lock, on which who waits for that
  // waits.
  std::vector<std::atomic<int64_t>> runs_enqueued_;
  std::function<void()> drained_ ABSL_GUARDED_BY(mu_);

  // The destructor ends the streams, then control and compilers, then the others.
  std::unique_ptr<Stream> reporter_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<Stream> control_, closing_;
  std::unique_ptr<SizedPool> compilers_;
  std::unique_ptr<Stream> files_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace tessera::worker
