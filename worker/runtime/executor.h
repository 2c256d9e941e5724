// The executor is the unit of identity and failure. It owns the devices of one process, with their
// buffers, executables and communicators, and executes the commands of ir/api/worker_link.h.
//
// Embedded clusters use it directly; in the executor process of a worker, gRPC streams connect it
// with the coordinator (worker/rpc/executor_process.h). Send is thread-safe and does not block, and
// commands take effect in the order in which they were sent. The report function is called with one
// report at a time, in the order in which the events happened, and may call Send. A report that
// Send has returned to its caller is not passed to the report function.
//
// Threads: one dispatch stream per device, one thread each for opening communicators, closing
// communicators, files, reports and timers, the threads that compile, small programs first
// (base/sized_pool.h), and two threads that copy arrays from devices for readers. Later launches on
// the same device may use the results of a launch as soon as it is enqueued; other users must wait
// until the device is done. The destructor cancels running launches, waits for their end, and
// reports nothing more.
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

// executor_state.h defines these types.
struct LaunchState;
struct LoadedProgram;
struct ReportSlot;
struct TransferPiece;
struct TransferShard;

struct ExecutorOptions {
  std::string worker;  // name of the worker; the executor is named "worker/index"
  std::string host;
  int32_t index = 0;
  uint64_t incarnation = 1;
  // The advertised endpoints; "" if the executor is embedded.
  std::string data_endpoint, peer_endpoint, peer_data_endpoint;
  int peer_listen_fd = -1;  // borrowed; -1 if there are no other executors
  absl::Duration collective_timeout = absl::Seconds(5);
  std::shared_ptr<const TlsContext> tls;  // for connections to peers; null for plain text
  int64_t queue_bound = 2048;             // queued launches per device; beyond it QUEUE_FULL
  int compile_jobs = 0;  // number of programs compiled at a time, at least 2; 0 for one per core
  InFlightPage* in_flight = nullptr;  // borrowed; null if the executor must make its own
  PeerReader* peer_reader = nullptr;  // borrowed; null if transfers cannot read from peers
  std::string files_dir;  // the folder of saved arrays; if empty, none may be saved or loaded
  MetricsPage* metrics = nullptr;  // borrowed; null if metrics are disabled
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
  // The arrays that the executor holds, per device, for an ExecutorInventory. The lists leave out
  // arrays that the executor has been told to delete, even if their deletion still waits for
  // earlier launches to end.
  std::vector<api::ExecutorInventory::Device> Arrays() const ABSL_LOCKS_EXCLUDED(mu_);
  // Takes a command. If `report` is not null and the command has been done at once, `*report` may
  // be set to its report, and the result is then true. Otherwise the command is reported like all
  // others, and the result is false.
  bool Send(api::Command command, api::ReportBody* report = nullptr);
  // For a thread of this process that is about to wait for a launch. If exactly one task waits on a
  // device's idle stream, and it is a launch of a brief executable (backend.h), the call runs that
  // task on this thread, which saves two context switches.
  void RunWaitingBriefLaunch();
  // Waits until every launch has ended and has been reported. Returns false at the `deadline`. For
  // a process that is about to end.
  bool WaitUntilIdle(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mu_);
  // Sets a function that is called once, on a thread of the executor, when a Drain has been
  // completed.
  void OnDrained(std::function<void()> on_drained) ABSL_LOCKS_EXCLUDED(mu_);

  // The data plane. ReserveShard reserves memory for a shard before its bytes are received.
  absl::StatusOr<Reservation> ReserveShard(const BufferId& id, int64_t bytes);
  std::shared_ptr<std::byte[]> NewShardMemory(int64_t bytes) {
    return backend_->NewShardMemory(bytes);
  }
  // Returns ARRAY_DELETED if a deletion of the array waits for earlier launches. The deletion would
  // also delete bytes that are written now.
  absl::Status CheckNotDeleting(const BufferId& id) const ABSL_LOCKS_EXCLUDED(mu_);
  // Stores a received shard. Reports BufferWritten, unless the shard is rejected.
  absl::Status WriteShard(const BufferId& id, ir::Array value, Reservation reservation,
                          TransferPath path = TransferPath::kTicket);
  // A block of a shard: `shape` elements from `starts` on.
  struct Block {
    ir::Dims starts, shape;
  };
  using ReadFn = std::function<void(absl::StatusOr<ir::Array>)>;
  // Calls back with a block of the shard, or with the whole shard if there is no block, once the
  // shard is ready. Calls back with the error of its producer; see BufferTable::WhenReady. If the
  // bytes must be copied from the device, a thread for reads copies them and calls back. Returns
  // VALUE_ERROR if the block does not lie inside the shard.
  uint64_t ReadShard(const BufferId& id, std::optional<Block> block, ReadFn callback);
  // Like ReadShard, but without the bytes: calls back with the status of the shard's producer.
  uint64_t AwaitShard(const BufferId& id, std::function<void(const absl::Status&)> callback);
  bool CancelRead(const BufferId& id, uint64_t waiter_id) {
    return buffers_.CancelWait(id, waiter_id);
  }

  const ExecutorMetrics& metrics() const { return metrics_; }
  const BufferTable& buffers() const { return buffers_; }
  const MemoryAccount& account(int device) const { return *accounts_[device]; }
  InFlightOp in_flight(int device) const { return in_flight_->slot(device).Read(); }

 private:
  using ProgramRef = std::shared_ptr<LoadedProgram>;
  using LaunchRef = std::shared_ptr<LaunchState>;

  void Handle(const api::ConfigureCommunicator& command);
  void Handle(const api::CloseCommunicator& command);
  void Handle(const api::LoadProgram& command);
  void Handle(const api::UnloadPrograms& command);
  void Handle(api::Launch&& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mu_);
  void Handle(const api::Transfer& command);
  void Handle(const api::WriteBuffer& command);
  void Handle(const api::ReadBuffer& command, ReportSlot& slot);
  void Handle(const api::DeleteBuffers& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mu_);
  void Delete(const std::vector<uint64_t>& arrays, int32_t device);
  // Deletes the arrays when the deletion's turn on the stream has come.
  void DeleteQueued(const std::vector<uint64_t>& arrays, int32_t device) ABSL_LOCKS_EXCLUDED(mu_);
  void Handle(const api::CancelLaunch& command);
  // Shows the daemon since when a launch of told_ is to end.
  void ShowTold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Handle(const api::Drain& command);
  // The daemon handles this command. An embedded executor ignores it.
  void Handle(const api::KillExecutor&) {}
  // The component that transports the reports handles this command.
  void Handle(const api::AcknowledgeReports&) {}
  // The functions below are in executor_files.cc.
  void Handle(const api::SaveShards& command);
  void Handle(const api::LoadShards& command);
  void Handle(const api::InspectFile& command);
  // Runs `work` after the earlier work on files, and ends the launch with its status.
  void RunOnFiles(const LaunchRef& launch, std::function<absl::Status(LaunchState&)> work);

  absl::Status CheckProgram(const api::LoadProgram& command) const;
  absl::Status CheckTransfer(const api::Transfer& command) const;
  // Gives the launch its communicator and, if it may need them, its ranks.
  absl::Status Resolve(const api::Launch& command, LaunchState* launch) ABSL_LOCKS_EXCLUDED(mu_);
  // Admits the launch to the streams of its devices: checks the bound of the queues, and adds its
  // results as expected. `claimed` says that this thread has claimed the stream.
  absl::Status Admit(const LaunchRef& launch, bool claimed);
  // Ends a launch that has reached no stream.
  void FailBeforeStart(const LaunchRef& launch, const absl::Status& why);
  // Tells the backend, on the stream of each device, that a launch with this communicator is
  // skipped (Backend::Skip). Does nothing if the generation is 0.
  void PushSkips(uint64_t generation);
  // Adds a launch. `executable` is the id of its program, if it has one. The launch gets no program
  // if that id is not loaded.
  LaunchRef NewLaunch(uint64_t id, absl::Duration timeout, uint64_t executable = 0)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the executable of the launch if it is compiled and has one device here, else null.
  static const Executable* CompiledForOneDevice(const LaunchState& launch);

  // The functions below run on a stream.
  void RunOnDevice(const LaunchRef& launch, int64_t mesh_device, int32_t device);
  // Sets `*enqueued` once the device has the arguments.
  absl::Status StartOnDevice(const LaunchRef& launch, int64_t mesh_device, int32_t device,
                             bool* enqueued);
  void SkipOnDevice(LaunchState& launch, int64_t mesh_device, int32_t device);
  absl::Status AwaitProgram(LaunchState& launch);
  // Waits until fewer than `enqueued_before` runs are enqueued on the device, or returns the error
  // if the launch is cancelled.
  absl::Status AwaitRunEnd(const LaunchState& launch, int32_t device, int64_t enqueued_before)
      ABSL_LOCKS_EXCLUDED(mu_);
  // Returns the time for the metrics of dispatch. Returns 0 if metrics are disabled, because
  // reading the clock takes longer than most of the steps of a small launch.
  int64_t DispatchClock() const { return metrics_.enabled() ? AgeGauge::Now() : 0; }
  // The arguments of a run, and the outcomes of the earlier launches that produce them.
  struct Args {
    absl::InlinedVector<DeviceBufferRef, 4> buffers;
    absl::InlinedVector<OutcomeRef, 4> outcomes;  // per argument; null if its value was ready
    // Per argument: whether it is donated and may be overwritten.
    absl::InlinedVector<bool, 8> taken;
    // For each result, the argument whose memory it reuses, or -1 if it has its own memory. Empty
    // if all results have their own.
    std::vector<int> donations;
  };
  // Takes either all arguments or none.
  absl::Status TakeArgs(LaunchState& launch, int32_t device, Args* args);
  // Undoes TakeArgs for a run that was not enqueued.
  void ReturnArgs(const LaunchState& launch, int32_t device, Args args);
  absl::StatusOr<Collectives*> GetCollectives(LaunchState& launch);
  absl::StatusOr<RunContext> MakeRunContext(LaunchState& launch, int64_t mesh_device,
                                            int32_t device, absl::Span<const int> donations);
  // The run of a launch on one device.
  struct Run {
    LaunchRef launch = nullptr;
    int32_t device = 0;
    Args args = {};                // held, like the memory, until the device has done the run
    Reservation reservation = {};  // that of `memory`, without the results; outlives it
    std::unique_ptr<LaunchMemory> memory = nullptr;
    absl::InlinedVector<DeviceBufferRef, 2> results = {};
    OutcomeRef outcome = nullptr;  // null if the run has ended
  };
  // Reserves bytes on the device. If they are not free, takes back memory that launches share.
  absl::StatusOr<Reservation> Reserve(int32_t device, int64_t bytes, const MemoryHolder& holder);
  // Reserves the memory of a run. Waits while earlier launches on the device hold too much memory.
  absl::Status ReserveOnDevice(Run& run, const Executable& executable);
  // Gives the results their parts of the run's reservation.
  void HoldResults(Run& run);
  // The second half of StartOnDevice, which began at `began` (DispatchClock). Sets `*enqueued` once
  // the device has the arguments, even if Enqueue then fails.
  absl::Status EnqueueOnDevice(Run& run, int64_t mesh_device, int64_t began, bool* enqueued);
  // Ends the run when the event is done.
  void EndRunWhenDone(const std::shared_ptr<Run>& run, std::shared_ptr<Event> event)
      ABSL_LOCKS_EXCLUDED(mu_);
  void EndRun(Run& run, absl::Status status);
  void StoreResults(Run& run);
  absl::Status RunTransfer(const LaunchRef& launch, const TransferShard& shard);
  // Returns VALUE_ERROR if the block does not lie inside a shard of this shape.
  static absl::Status CheckInside(const ir::Dims& shard, const Block& block);
  // Returns a block of the buffer, or the whole buffer if there is no block.
  absl::StatusOr<ir::Array> Read(const DeviceBuffer& buffer, const std::optional<Block>& block);
  // Reads and calls back, on a thread for reads if the bytes must be copied from the device.
  void ReadInBackground(DeviceBufferRef buffer, std::optional<Block> block, ReadFn callback);
  absl::StatusOr<ir::Array> FetchPiece(LaunchState& launch, const TransferPiece& piece,
                                       ir::DType dtype);
  // Starts the clock of the launch when its first device begins. Returns an error if the launch has
  // been cancelled.
  absl::Status StartClock(const LaunchRef& launch);
  void BeginOnDevice(LaunchState& launch, int32_t device);
  void EndOnDevice(const LaunchRef& launch, int32_t device, const absl::Status& status);
  // Ends the launch with its first failure, here and at its peers in collectives. Other launches on
  // the same communicator go on.
  void Fail(LaunchState& launch, const absl::Status& why);
  void TimeOut(LaunchState& launch);
  void EndLaunch(const LaunchRef& launch, bool on_stream);

  // The function below runs on the thread of connect_stream_.
  void OpenCommunicator(const std::shared_ptr<Communicator>& communicator) ABSL_LOCKS_EXCLUDED(mu_);
  // The function below runs on a compiling thread.
  void CompileProgram(const ProgramRef& program, const ir::Program& source);
  bool HasDevice(int32_t device) const { return device >= 0 && device < num_devices_; }
  void Report(api::ReportBody body);
  // Like Report, but avoids a context switch if no other report is queued: puts the report into
  // `slot`, if the sender wants it, or calls the report function. Requires that no lock is held.
  void ReportAtOnce(api::ReportBody body, ReportSlot& slot);
  // Retains the inline results of the launch, so that no later launch overwrites them.
  void RetainInlineResults(const LaunchRef& launch);
  std::vector<api::LaunchDone::InlineResult> InlineResults(
      std::map<BufferId, DeviceBufferRef> retained_inline_results);

  // The members below are immutable, or thread-safe themselves.
  const ExecutorOptions options_;
  const std::string name_;
  // The accounts outlive the backend and the buffers, which reserve from them.
  std::vector<std::unique_ptr<MemoryAccount>> accounts_;
  const std::unique_ptr<Backend> backend_;
  const int32_t num_devices_;
  const ReportFn report_;
  const ExecutorMetrics metrics_;
  LinkMeter link_meter_;
  std::unique_ptr<InFlightPage> own_page_;
  InFlightPage* in_flight_;
  std::vector<std::unique_ptr<InFlightQueue>> in_flight_queues_;  // per device
  std::unique_ptr<PeerPort> peer_port_;  // null if there are no other executors
  std::atomic<bool> silent_{false};  // set once the destructor runs, so that no more is reported
  BufferTable buffers_;

  // Serialises Send, so that every stream gets the launches in the same order.
  absl::Mutex send_mu_;
  bool draining_ ABSL_GUARDED_BY(send_mu_) = false;
  // Work that Send does itself, on the stream that it has claimed: either a quick launch or
  // deletions.
  struct ClaimedWork {
    int32_t device = 0;
    LaunchRef launch = nullptr;
    int64_t mesh_device = 0;
    std::vector<uint64_t> arrays_to_delete = {};  // if there is no launch
  };
  std::optional<ClaimedWork> claimed_work_ ABSL_GUARDED_BY(send_mu_);

  const std::string files_folder_id_;  // see ExecutorInfo

  mutable absl::Mutex mu_ ABSL_ACQUIRED_AFTER(send_mu_);
  std::map<uint64_t, ProgramRef> programs_ ABSL_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<Communicator>> communicators_ ABSL_GUARDED_BY(mu_);
  uint64_t last_generation_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<uint64_t, LaunchRef> launches_ ABSL_GUARDED_BY(mu_);
  // The launches of launches_ that run and that the coordinator has cancelled, with the time
  // (AgeGauge::Now).
  std::map<uint64_t, int64_t> told_ ABSL_GUARDED_BY(mu_);
  // Arrays that will be deleted once earlier launches have ended.
  absl::flat_hash_set<BufferId> deleting_ids_ ABSL_GUARDED_BY(mu_);
  // Per device, the number of enqueued runs that have not ended. It is changed under mu_, because
  // threads wait for a change by a condition of mu_.
  std::vector<std::atomic<int64_t>> runs_enqueued_;
  std::function<void()> on_drained_ ABSL_GUARDED_BY(mu_);

  // connect_stream_ opens communicators, which may wait for peers, and waits for drains;
  // disconnect_stream_ closes communicators. The destructor ends connect_stream_ first, because a
  // drain uses the streams of the devices. It then ends those streams and that of files, then
  // disconnect_stream_, the compilers and the reads, and at last the timer and the reporter.
  std::unique_ptr<Stream> reporter_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<Stream> connect_stream_, disconnect_stream_;
  std::unique_ptr<SizedPool> compilers_;
  std::unique_ptr<SizedPool> reads_;  // copies from devices; small ones first
  std::unique_ptr<Stream> files_stream_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace tessera::worker
