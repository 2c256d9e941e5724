// Runs launches and transfers on the streams of the devices, and ends them. executor.cc pushes the
// work here in the order of the commands. A run is the part of a launch on one device. It takes its
// arguments, reserves memory, enqueues its work on the backend, and stores the results or the
// failure. The last run of a launch to end reports the launch.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "ir/strided.h"
#include "worker/collectives/host_collectives.h"
#include "worker/runtime/executor.h"
#include "worker/runtime/executor_state.h"
#include "worker/runtime/metered_collectives.h"

namespace tessera::worker {
namespace {

// The number of launches that may be enqueued on a device at a time: enough to keep the device
// busy, and few enough that a cancelled launch ends soon.
constexpr int64_t kRunsEnqueuedMax = 16;
// An executor ends a launch this long after the launch's deadline, so that the coordinator, which
// ends it at the deadline and can say more in its error, comes first.
constexpr absl::Duration kCoordinatorHeadStart = absl::Milliseconds(100);
// How often a wait checks whether its launch was cancelled.
constexpr absl::Duration kCancelPoll = absl::Milliseconds(10);

}  // namespace

void Executor::RunOnDevice(const LaunchRef& launch, int64_t mesh_device, int32_t device) {
  BeginOnDevice(*launch, device);
  bool enqueued = false;
  const absl::Status status = StartOnDevice(launch, mesh_device, device, &enqueued);
  if (status.ok()) return;
  if (!enqueued) SkipOnDevice(*launch, mesh_device, device);
  EndOnDevice(launch, device, status);
}

void Executor::SkipOnDevice(LaunchState& launch, int64_t mesh_device, int32_t device) {
  if (launch.communicator == nullptr || !launch.UsesCollectives()) return;
  RunContext context;
  context.device = device;
  context.mesh_device = mesh_device;
  context.generation = launch.communicator->generation();
  if (launch.ranks != nullptr) context.ranks = *launch.ranks;
  const LoadedProgram& program = *launch.program;
  const bool is_known = program.compiled.HasBeenNotified() && program.executable.ok();
  backend_->Skip(is_known && launch.ranks != nullptr ? program.executable->get() : nullptr,
                 context);
}

absl::Status Executor::StartClock(const LaunchRef& launch) {
  absl::MutexLock lock(&launch->mu);
  TESSERA_RETURN_IF_ERROR(launch->cancel.status());
  if (launch->started) return absl::OkStatus();
  launch->started = true;
  launch->started_at = SteadyNow();
  if (launch->timeout == absl::InfiniteDuration()) return absl::OkStatus();
  launch->timer = timer_->CallAt(launch->started_at + launch->timeout + kCoordinatorHeadStart,
                                 [this, weak = std::weak_ptr<LaunchState>(launch)] {
                                   if (const LaunchRef late = weak.lock()) TimeOut(*late);
                                 });
  return absl::OkStatus();
}

void Executor::TimeOut(LaunchState& launch) {
  std::string where;
  for (const int32_t device : launch.devices) {
    const InFlightOp op = in_flight(device);
    if (op.launch != launch.id || op.op.empty()) continue;
    absl::StrAppend(&where, where.empty() ? "; in flight: " : ", ", op.op, " on device ", device);
  }
  Fail(launch, MakeError(ErrorKind::kDeadlineExceeded,
                         absl::StrCat(launch.Name(), " did not end within ",
                                      absl::FormatDuration(launch.timeout), " on ", name_, where)));
}

absl::Status Executor::AwaitProgram(LaunchState& launch) {
  while (!launch.program->compiled.WaitForNotificationWithTimeout(kCancelPoll)) {
    TESSERA_RETURN_IF_ERROR(launch.cancel.status());
  }
  return launch.program->executable.status();
}

absl::Status Executor::AwaitRunEnd(const LaunchState& launch, int32_t device,
                                   int64_t enqueued_before) {
  absl::MutexLock lock(&mu_);
  const auto ended = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return runs_enqueued_[device] < enqueued_before;
  };
  while (!mu_.AwaitWithTimeout(absl::Condition(&ended), kCancelPoll)) {
    TESSERA_RETURN_IF_ERROR(launch.cancel.status());
  }
  return absl::OkStatus();
}

absl::Status Executor::ReserveOnDevice(Run& run, const Executable& executable) {
  const LaunchState& launch = *run.launch;
  const Args& args = run.args;
  const int64_t bytes = backend_->LaunchBytes(executable, args.buffers, args.donations);
  const auto reserve = [&]() -> absl::Status {
    TESSERA_ASSIGN_OR_RETURN(
        Reservation reservation,
        Reserve(run.device, bytes, {"launch", launch.id, launch.program->name}));
    TESSERA_ASSIGN_OR_RETURN(run.memory,
                             backend_->ReserveMemory(executable, args.buffers, args.donations));
    run.reservation = std::move(reservation);
    return absl::OkStatus();
  };
  if (absl::Status at_once = reserve(); at_once.ok()) return at_once;
  while (true) {
    const int64_t enqueued = runs_enqueued_[run.device];
    absl::Status status = reserve();
    if (status.ok() || enqueued == 0) return status;
    TESSERA_RETURN_IF_ERROR(AwaitRunEnd(launch, run.device, enqueued));
  }
}

// A result takes over the part of the donated argument in whose memory it is. A result that shares
// its memory with an argument or with an earlier result has its part already.
void Executor::HoldResults(Run& run) {
  for (size_t r = 0; r < run.results.size(); ++r) {
    const DeviceBuffer& result = *run.results[r];
    const MemoryHolder holder{"array", run.launch->results[r], run.launch->program->name};
    const int donated_arg = run.args.donations.empty() ? -1 : run.args.donations[r];
    if (donated_arg >= 0) {
      Reservation& donated = run.args.buffers[donated_arg]->reservation();
      result.reservation() = donated.Split(donated.bytes(), holder);
    } else if (result.reservation().bytes() == 0) {
      result.reservation() =
          run.reservation.Split(backend_->AllocationBytes(result.num_bytes()), holder);
    }
  }
}

// Takes the arguments of a launch out of the buffer table, or refers to them if they are not
// donated. An argument that is the same array as another one is not taken, since its memory must
// not be overwritten. The types are checked here, because the producers of the arguments may not
// have existed when the launch was sent. After an error all arguments are put back, so that the
// launch leaves no trace.
absl::Status Executor::TakeArgs(LaunchState& launch, int32_t device, Args* args) {
  const ir::Function& entry = *launch.program->entry;
  args->buffers.reserve(launch.args.size());
  args->outcomes.reserve(launch.args.size());
  args->taken.reserve(launch.args.size());
  absl::Status status;
  for (size_t a = 0; a < launch.args.size(); ++a) {
    const BufferId id{launch.args[a], device};
    absl::StatusOr<BufferTable::EnqueuedBuffer> found =
        launch.DonatesExclusively(a) ? buffers_.Take(id) : buffers_.GetEnqueued(id);
    status = found.status();
    if (!status.ok()) break;
    const ir::Type& type = entry.type(static_cast<ir::ValueId>(a));
    const DeviceBuffer& buffer = *found->buffer;
    if (buffer.dtype() != type.dtype || buffer.shape() != type.shape) {
      status = MakeError(ErrorKind::kValueError,
                         absl::StrCat(launch.Name(), ": argument ", a, ", ", ToString(id), ", is ",
                                      ir::MakeType(buffer.dtype(), buffer.shape()).ToString(),
                                      "; expected ", type.ToString()));
    }
    args->buffers.push_back(std::move(found->buffer));
    args->taken.push_back(found->taken);
    args->outcomes.push_back(std::move(found->outcome));
    if (!status.ok()) break;
  }
  if (!status.ok()) ReturnArgs(launch, device, std::move(*args));
  return status;
}

void Executor::ReturnArgs(const LaunchState& launch, int32_t device, Args args) {
  for (size_t a = 0; a < args.buffers.size(); ++a) {
    buffers_.UndoTake({launch.args[a], device},
                      {std::move(args.buffers[a]), std::move(args.outcomes[a]), args.taken[a]});
  }
}

// Returns the collectives of a launch. A launch that spans executors uses its communicator. A
// launch among this executor's own devices takes a set from its program's pool, so that launches do
// not have to set up their own. A set is given back only by a launch that succeeded, because a
// failed set stays unusable.
absl::StatusOr<Collectives*> Executor::GetCollectives(LaunchState& launch) {
  if (!launch.UsesCollectives()) return nullptr;
  if (launch.communicator != nullptr) return launch.communicator.get();
  LoadedProgram& program = *launch.program;
  if (!program.all_local) {
    return MakeError(ErrorKind::kInternal,
                     absl::StrCat(launch.Name(), " spans executors but names no communicator"));
  }
  absl::MutexLock lock(&launch.mu);
  // If the launch has failed before this point, Fail found no collectives to abort, so nothing
  // would end a wait in them.
  TESSERA_RETURN_IF_ERROR(launch.cancel.status());
  if (launch.local_collectives != nullptr) return launch.local_collectives.get();
  {
    absl::MutexLock pool(&program.mu);
    if (!program.idle_collectives.empty()) {
      launch.local_collectives = std::move(program.idle_collectives.back());
      program.idle_collectives.pop_back();
      return launch.local_collectives.get();
    }
  }
  CommunicatorConfig config;
  config.timeout = options_.collective_timeout;
  for (size_t rank = 0; rank < program.coordinates.size(); ++rank) {
    config.local_ranks.push_back(static_cast<int>(rank));
    config.ranks.push_back(
        {program.coordinates[rank].device, name_, options_.incarnation, "", options_.host});
  }
  launch.local_collectives = MeterCollectives(MakeCollectives(std::move(config), -1),
                                              CollectiveBackend::kInproc, &metrics_, &link_meter_);
  return launch.local_collectives.get();
}

absl::Status Executor::StartOnDevice(const LaunchRef& launch, int64_t mesh_device, int32_t device,
                                     bool* enqueued) {
  const int64_t began = DispatchClock();
  TESSERA_RETURN_IF_ERROR(launch->cancel.status());
  TESSERA_RETURN_IF_ERROR(AwaitProgram(*launch));
  Run run{launch, device};
  TESSERA_RETURN_IF_ERROR(TakeArgs(*launch, device, &run.args));
  absl::Status status = EnqueueOnDevice(run, mesh_device, began, enqueued);
  if (!*enqueued) ReturnArgs(*launch, device, std::move(run.args));
  return status;
}

absl::StatusOr<RunContext> Executor::MakeRunContext(LaunchState& launch, int64_t mesh_device,
                                                    int32_t device,
                                                    absl::Span<const int> donations) {
  RunContext context;
  context.launch = launch.id;
  context.program = *launch.program->name;
  context.tenant = launch.program->tenant;
  context.device = device;
  context.mesh_device = mesh_device;
  if (launch.ranks != nullptr) context.ranks = *launch.ranks;
  context.donations = donations;
  context.cancel = &launch.cancel;
  context.in_flight = launch.in_flight[device];
  TESSERA_ASSIGN_OR_RETURN(context.collectives, GetCollectives(launch));
  if (launch.communicator != nullptr) context.generation = launch.communicator->generation();
  return context;
}

// Waits for memory and for room on the device, and then enqueues the run. The launch's clock starts
// only after these waits, since they are due to earlier launches. Arguments that the device was
// given can no longer be put back, so the flag `donated_inputs_consumed` is set just before
// Enqueue.
absl::Status Executor::EnqueueOnDevice(Run& run, int64_t mesh_device, int64_t began,
                                       bool* enqueued) {
  const LaunchRef& launch = run.launch;
  const int32_t device = run.device;
  Args& args = run.args;
  const Executable& executable = **launch->program->executable;
  if (std::find(args.taken.begin(), args.taken.end(), true) != args.taken.end()) {
    args.donations = backend_->ChooseDonations(
        executable, args.buffers, std::vector<bool>(args.taken.begin(), args.taken.end()));
  }
  TESSERA_RETURN_IF_ERROR(ReserveOnDevice(run, executable));
  const int64_t enqueued_before = runs_enqueued_[device];
  if (enqueued_before >= kRunsEnqueuedMax) {
    TESSERA_RETURN_IF_ERROR(AwaitRunEnd(*launch, device, enqueued_before));
  }
  TESSERA_RETURN_IF_ERROR(StartClock(launch));
  TESSERA_ASSIGN_OR_RETURN(RunContext context,
                           MakeRunContext(*launch, mesh_device, device, args.donations));
  context.memory = run.memory.get();
  metrics_.RecordDispatch(absl::Nanoseconds(began - launch->arrival_ns),
                          absl::Nanoseconds(DispatchClock() - began));
  *enqueued = true;
  launch->donated_inputs_consumed = true;
  TESSERA_ASSIGN_OR_RETURN(Enqueued work, backend_->Enqueue(executable, context, args.buffers));
  run.results = std::move(work.results);
  HoldResults(run);
  if (work.event == nullptr) {
    EndRun(run, absl::OkStatus());
  } else {
    EndRunWhenDone(std::make_shared<Run>(std::move(run)), std::move(work.event));
  }
  return absl::OkStatus();
}

void Executor::EndRunWhenDone(const std::shared_ptr<Run>& run, std::shared_ptr<Event> event) {
  const int32_t device = run->device;
  run->launch->report_slot = {};
  {
    absl::MutexLock lock(&mu_);
    ++runs_enqueued_[device];
  }
  run->outcome = std::make_shared<Outcome>();
  for (size_t r = 0; r < run->results.size(); ++r) {
    buffers_.SetEnqueued({run->launch->results[r], device}, run->results[r], run->outcome);
  }
  event->OnDone([this, run, event, device](absl::Status status) {
    EndRun(*run, std::move(status));
    // The run is released before the count falls, because the executor may be destroyed from then
    // on.
    *run = {};
    absl::MutexLock lock(&mu_);
    --runs_enqueued_[device];
  });
}

void Executor::EndRun(Run& run, absl::Status status) {
  // The work may have succeeded with arguments whose producer has failed since.
  for (const OutcomeRef& producer : run.args.outcomes) {
    if (producer != nullptr) status.Update(producer->status());
  }
  if (run.outcome != nullptr) run.outcome->Update(status);
  if (status.ok()) StoreResults(run);
  // The memory is given back before the end is reported, because a client may then count on it.
  run.args = {};
  run.memory = nullptr;
  run.reservation.Release();
  run.results.clear();
  EndOnDevice(run.launch, run.device, status);
}

void Executor::StoreResults(Run& run) {
  const LaunchState& launch = *run.launch;
  for (size_t a = 0; a < launch.args.size(); ++a) {
    if (launch.donates(a)) buffers_.Delete({launch.args[a], run.device});
  }
  for (size_t r = 0; r < run.results.size(); ++r) {
    // An error is ignored: the result was deleted meanwhile, or the launch failed on another
    // device.
    static_cast<void>(
        buffers_.SetReady({launch.results[r], run.device}, std::move(run.results[r])));
  }
}

void Executor::BeginOnDevice(LaunchState& launch, int32_t device) {
  launch.in_flight[device] = in_flight_queues_[device]->Begin(launch.id);
}

void Executor::EndOnDevice(const LaunchRef& launch, int32_t device, const absl::Status& status) {
  if (!status.ok()) {
    launch->failed = true;
    Fail(*launch, status);
    // The results on this device fail before its stream runs work that uses them. EndLaunch makes
    // the results on the other devices fail.
    for (const uint64_t result : launch->results) {
      buffers_.SetFailed({result, device}, launch->cancel.status());
    }
  }
  in_flight_queues_[device]->End(launch->in_flight[device]);
  if (launch->remaining.fetch_sub(1) == 1) EndLaunch(launch, /*on_stream=*/true);
}

void Executor::Fail(LaunchState& launch, const absl::Status& why) {
  if (!launch.cancel.Cancel(why)) return;
  std::shared_ptr<Collectives> local_collectives;
  {
    absl::MutexLock lock(&launch.mu);
    local_collectives = launch.local_collectives;
  }
  if (local_collectives != nullptr) local_collectives->Abort(why);
  // The launch is aborted even if it has not begun here, so that the blocks that its peers have
  // sent are dropped.
  if (launch.communicator != nullptr && launch.UsesCollectives()) {
    launch.communicator->AbortLaunch(launch.id, StatusForPeers(why));
  }
}

void Executor::RetainInlineResults(const LaunchRef& launch) {
  for (const BufferId& id : launch->inline_results) {
    buffers_.WhenReady(id, [launch, id](absl::StatusOr<DeviceBufferRef> buffer) {
      if (!buffer.ok()) return;  // it was deleted, or its launch has failed
      absl::MutexLock lock(&launch->mu);
      launch->retained_inline_results.emplace(id, *std::move(buffer));
    });
  }
}

// Leaves out the results that must be copied from the device: the thread that watches the launches
// of a device calls this, and must not wait for a copy.
std::vector<api::LaunchDone::InlineResult> Executor::InlineResults(
    std::map<BufferId, DeviceBufferRef> retained_inline_results) {
  std::vector<api::LaunchDone::InlineResult> results;
  for (const auto& [id, buffer] : retained_inline_results) {
    if (!backend_->IsOnHost(*buffer)) continue;
    absl::StatusOr<ir::Array> value = backend_->ToHost(*buffer);
    if (value.ok()) results.push_back({id.array, id.device, *std::move(value)});
  }
  return results;
}

// Ends a launch after its last device: stops its timer, returns its collectives, and reports it.
// The launch leaves the table before it is reported, so that WaitUntilIdle and a reused id see no
// trace of it. A failed launch makes all its results fail, and deletes donated arguments if a
// device has had them, because their values may be overwritten.
void Executor::EndLaunch(const LaunchRef& launch, bool on_stream) {
  std::optional<Timer::Id> timer;
  absl::Duration run_time;
  std::shared_ptr<Collectives> local_collectives;
  std::map<BufferId, DeviceBufferRef> inline_results;
  {
    absl::MutexLock lock(&launch->mu);
    timer = launch->timer;
    run_time = launch->started ? SteadyNow() - launch->started_at : absl::ZeroDuration();
    local_collectives = std::move(launch->local_collectives);
    inline_results = std::move(launch->retained_inline_results);
  }
  if (timer) timer_->Cancel(*timer);
  const bool failed = launch->failed;
  if (local_collectives != nullptr && !failed && !launch->cancel.cancelled()) {
    absl::MutexLock lock(&launch->program->mu);
    launch->program->idle_collectives.push_back(std::move(local_collectives));
  }
  {
    absl::MutexLock lock(&mu_);
    launches_.erase(launch->id);
    if (told_.erase(launch->id) > 0) ShowTold();
  }
  if (!failed) {
    api::LaunchDone done{launch->id, run_time, InlineResults(std::move(inline_results)),
                         link_meter_.TakeChanges()};
    return on_stream ? ReportAtOnce(std::move(done), launch->report_slot) : Report(std::move(done));
  }
  const absl::Status why = launch->cancel.status();
  for (const BufferId& id : launch->expected_ids) buffers_.SetFailed(id, why);
  for (size_t a = 0; launch->donated_inputs_consumed && a < launch->args.size(); ++a) {
    if (!launch->donates(a)) continue;
    for (const int32_t device : launch->devices) buffers_.Delete({launch->args[a], device});
  }
  Report(api::LaunchFailed{launch->id, why, /*inputs_kept=*/!launch->donated_inputs_consumed});
}

// ---- Transfers. ---------------------------------------------------------------------------------

absl::StatusOr<ir::Array> Executor::FetchPiece(LaunchState& launch, const TransferPiece& from,
                                               ir::DType dtype) {
  const api::Transfer::Piece& piece = from.piece;
  if (!piece.local) {
    if (options_.peer_reader == nullptr) {
      return MakeError(
          ErrorKind::kInternal,
          absl::StrCat(launch.Name(), ": ", name_, " cannot read from ", piece.executor, " at ",
                       piece.endpoint, ": this worker reads from no peers"));
    }
    return options_.peer_reader->Read(piece, dtype, SteadyNow() + launch.timeout, launch.cancel);
  }
  TESSERA_ASSIGN_OR_RETURN(const DeviceBufferRef source, from.source->Await(launch.cancel));
  if (source->dtype() != dtype) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(launch.Name(), ": a piece is of another dtype than its source ",
                                  ir::MakeType(source->dtype(), source->shape()).ToString()));
  }
  const Block block{piece.source_starts, piece.shape};
  if (absl::Status inside = CheckInside(source->shape(), block); !inside.ok())
    return Annotate(inside, launch.Name());
  return Read(*source, block);
}

absl::Status Executor::RunTransfer(const LaunchRef& launch, const TransferShard& shard) {
  TESSERA_RETURN_IF_ERROR(StartClock(launch));
  const int64_t began = AgeGauge::Now();
  const int64_t bytes = ir::MakeType(shard.dtype, shard.shape).num_bytes();
  TESSERA_ASSIGN_OR_RETURN(Reservation reservation, ReserveShard(shard.result, bytes));
  launch->in_flight[shard.device]->SetOp("transfer", /*waiting=*/true);
  ir::Array whole(shard.dtype, shard.shape);
  for (const TransferPiece& piece : shard.pieces) {
    TESSERA_ASSIGN_OR_RETURN(ir::Array block, FetchPiece(*launch, piece, shard.dtype));
    ir::WriteBlock(&whole, piece.piece.dest_starts, block);
  }
  TESSERA_ASSIGN_OR_RETURN(DeviceBufferRef buffer,
                           backend_->FromHost(shard.device, std::move(whole)));
  buffer->reservation() = std::move(reservation);
  static_cast<void>(buffers_.SetReady(shard.result, std::move(buffer)));
  metrics_.RecordTransfer(TransferKind::kReshard, TransferPath::kTicket, bytes,
                          absl::Nanoseconds(AgeGauge::Now() - began));
  return absl::OkStatus();
}

}  // namespace tessera::worker
