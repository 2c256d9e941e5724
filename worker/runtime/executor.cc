// Takes the executor's commands: checks each, and passes it on to the streams in order. Commands
// come from the coordinator, by executor_process.cc or, when embedded, by a direct call.
// executor_run.cc has the work on the streams, and executor_files.cc the work on files.
#include "worker/runtime/executor.h"

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/files/folder.h"
#include "worker/runtime/executor_state.h"

namespace tessera::worker {

namespace {

// Returns the identity of the folder of files, or "" if the folder is unusable: a save then reports
// why. The result is "" for an embedded executor, too: it shares its folder with no other executor,
// and must not write an identity file into what may be a user's own folder.
std::string FilesFolderIdentity(const ExecutorOptions& options) {
  if (options.files_dir.empty() || options.data_endpoint.empty()) return "";
  absl::StatusOr<std::string> identity = files::FilesRoot(options.files_dir).Identity();
  if (identity.ok()) return *std::move(identity);
  TESSERA_LOG(WARNING) << "the folder of files is not usable" << Field("worker", options.worker)
                       << Field("why", identity.status().message());
  return "";
}

// A read that waits for its turn. If it is dropped instead, its reader is told why.
struct QueuedRead {
  QueuedRead(DeviceBufferRef of, std::optional<Executor::Block> part, Executor::ReadFn done)
      : buffer(std::move(of)), block(std::move(part)), callback(std::move(done)) {}
  QueuedRead(const QueuedRead&) = delete;
  QueuedRead& operator=(const QueuedRead&) = delete;
  ~QueuedRead() {
    if (callback) callback(MakeError(ErrorKind::kServerStopping, "the executor is stopping"));
  }
  DeviceBufferRef buffer;
  const std::optional<Executor::Block> block;
  Executor::ReadFn callback;
};

// Reads of at most this size go before larger ones, and have a thread of their own.
constexpr int64_t kSmallReadBytes = 1 << 20;

}  // namespace

// Starts the threads and makes the account, the queue and the stream of each device. The reporter,
// the timer and the other threads are started before the streams, because work on a stream uses
// them.
Executor::Executor(ExecutorOptions options, std::unique_ptr<Backend> backend, ReportFn report)
    : options_(std::move(options)),
      name_(absl::StrCat(options_.worker, "/", options_.index)),
      backend_(std::move(backend)),
      num_devices_(backend_->num_devices()),
      report_(std::move(report)),
      metrics_(options_.metrics, ToAbsl(backend_->device_kind()) == "gpu" ? "gpu" : "cpu",
               backend_->memory_bytes()),
      in_flight_(options_.in_flight),
      files_folder_id_(FilesFolderIdentity(options_)),
      runs_enqueued_(num_devices_) {
  if (in_flight_ == nullptr) {
    own_page_ = std::make_unique<InFlightPage>(num_devices_);
    in_flight_ = own_page_.get();
  }
  TESSERA_CHECK_EQ(in_flight_->num_devices(), num_devices_);
  if (options_.peer_listen_fd >= 0) {
    peer_port_ = std::make_unique<PeerPort>(options_.peer_listen_fd);
  }
  reporter_ = std::make_unique<Stream>("reports");
  timer_ = std::make_unique<Timer>();
  connect_stream_ = std::make_unique<Stream>("connect");
  disconnect_stream_ = std::make_unique<Stream>("disconnect");
  compilers_ = std::make_unique<SizedPool>(SizedPool::Options{.threads = options_.compile_jobs});
  reads_ = std::make_unique<SizedPool>(
      SizedPool::Options{.threads = 2, .small_task_max_size = kSmallReadBytes});
  files_stream_ = std::make_unique<Stream>("files");
  for (int32_t d = 0; d < num_devices_; ++d) {
    const std::string device = absl::StrCat(ToAbsl(backend_->device_kind()), ":", d, " of ", name_);
    accounts_.push_back(std::make_unique<MemoryAccount>(device, backend_->memory_bytes()));
    const DeviceMetrics& metrics = metrics_.device(d);
    accounts_.back()->SetMetrics(metrics.reserved_bytes, metrics.array_bytes,
                                 metrics.workspace_bytes, metrics.peak_bytes);
    backend_->SetAccount(d, accounts_.back().get());
    in_flight_queues_.push_back(std::make_unique<InFlightQueue>(
        &in_flight_->slot(d), metrics_.enabled() ? &metrics : nullptr));
    streams_.push_back(std::make_unique<Stream>(absl::StrCat("device ", d)));
  }
}

// Cancels everything and ends the threads, in an order in which no thread uses one that has ended.
// Control goes first, because a Drain on it waits for the streams. Then the streams go, because
// only they start work on devices; then the devices' running work must end, since its memory
// belongs to the backend. Waiting readers are told only after that, as no producer can serve them
// any more. The executor reports nothing more to its owner.
Executor::~Executor() {
  silent_ = true;
  const absl::Status why =
      MakeError(ErrorKind::kServerStopping, absl::StrCat("executor ", name_, " is stopping"));
  std::vector<LaunchRef> launches;
  std::vector<std::shared_ptr<Communicator>> communicators;
  {
    absl::MutexLock lock(&mu_);
    for (const auto& [id, launch] : launches_) launches.push_back(launch);
    for (const auto& [generation, communicator] : communicators_) {
      communicators.push_back(communicator);
    }
  }
  for (const LaunchRef& launch : launches) Fail(*launch, why);
  for (const auto& communicator : communicators) communicator->Close(why);
  connect_stream_.reset();
  streams_.clear();
  files_stream_.reset();
  {
    // Wait for an asynchronous device; each launch has been cancelled above.
    constexpr absl::Duration kDeviceEndTime = absl::Seconds(30);
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      return std::count(runs_enqueued_.begin(), runs_enqueued_.end(), 0) == num_devices_;
    };
    TESSERA_CHECK(mu_.AwaitWithTimeout(absl::Condition(&idle), kDeviceEndTime))
        << "launches on the devices of " << name_ << " do not end";
  }
  disconnect_stream_.reset();
  compilers_.reset();
  reads_.reset();
  timer_.reset();
  buffers_.FailWaiters(why);
  reporter_.reset();
}

api::ExecutorInfo Executor::info() const {
  const Backend::Speed speed = backend_->speed();
  return {options_.index,
          options_.incarnation,
          std::string(backend_->device_kind()),
          num_devices_,
          options_.data_endpoint,
          options_.peer_endpoint,
          options_.peer_data_endpoint,
          backend_->memory_bytes(),
          !options_.files_dir.empty(),
          files_folder_id_,
          /*has_state=*/false,
          speed.flops_per_second,
          speed.memory_bytes_per_second};
}

std::vector<api::ExecutorInventory::Device> Executor::Arrays() const {
  std::vector<api::ExecutorInventory::Device> devices(num_devices_);
  // The deletions are read before the buffers, so that a buffer that is deleted in between is in
  // neither list.
  absl::flat_hash_set<BufferId> deleting_ids;
  {
    absl::MutexLock lock(&mu_);
    deleting_ids = deleting_ids_;
  }
  const auto list = [&](const std::vector<BufferId>& ids,
                        std::vector<uint64_t> api::ExecutorInventory::Device::*arrays) {
    for (const BufferId& id : ids)
      if (deleting_ids.count(id) == 0) (devices[id.device].*arrays).push_back(id.array);
  };
  const BufferTable::Listing listing = buffers_.List();
  list(listing.ready, &api::ExecutorInventory::Device::ready);
  list(listing.expected, &api::ExecutorInventory::Device::expected);
  list(listing.failed, &api::ExecutorInventory::Device::failed);
  return devices;
}

void Executor::Report(api::ReportBody body) {
  reporter_->Push([this, body = std::move(body)]() mutable {
    if (!silent_) report_(std::move(body));
  });
}

void Executor::ReportAtOnce(api::ReportBody body, ReportSlot& slot) {
  if (slot.report != nullptr && reporter_->num_tasks() == 0) {
    if (silent_) return;
    *slot.report = std::move(body);
    slot.filled = true;
    return;
  }
  const bool reported = reporter_->RunIfIdle([this, &body] {
    if (!silent_) report_(std::move(body));
  });
  if (!reported) Report(std::move(body));
}

// Carries out one command. The lock makes all streams get the launches in the same order. If the
// stream of a quick launch or of a deletion is idle, this thread does the work itself, which saves
// two context switches: it claims the stream under the lock, and does the work after it has
// released the lock.
bool Executor::Send(api::Command command, api::ReportBody* report) {
  ReportSlot slot{.report = report};
  std::optional<ClaimedWork> claimed;
  {
    absl::ReleasableMutexLock lock(&send_mu_);
    if (draining_) return false;  // the coordinator sends nothing after a Drain
    if (const auto* read = std::get_if<api::ReadBuffer>(&command)) {
      // A read is not ordered with the streams. It may report at once, which requires that no lock
      // is held.
      lock.Release();
      Handle(*read, slot);
      return slot.filled;
    }
    draining_ = std::holds_alternative<api::Drain>(command);
    std::visit(
        [this](auto& c) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          if constexpr (!std::is_same_v<std::decay_t<decltype(c)>, api::ReadBuffer>)
            Handle(std::move(c));
        },
        command);
    claimed = std::exchange(claimed_work_, std::nullopt);
  }
  if (!claimed) return false;
  if (claimed->launch != nullptr) {
    claimed->launch->report_slot = slot;
    RunOnDevice(claimed->launch, claimed->mesh_device, claimed->device);
    slot = claimed->launch->report_slot;
  } else {
    Delete(claimed->arrays_to_delete, claimed->device);
  }
  streams_[claimed->device]->Release();
  return slot.filled;
}

bool Executor::WaitUntilIdle(absl::Time deadline) {
  {
    absl::MutexLock lock(&mu_);
    const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return launches_.empty(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&idle), deadline - SteadyNow())) return false;
  }
  return reporter_->Drain(deadline);
}

void Executor::OnDrained(std::function<void()> on_drained) {
  absl::MutexLock lock(&mu_);
  on_drained_ = std::move(on_drained);
}

// ---- Communicators. -----------------------------------------------------------------------------

// Checks a new generation and opens it on the thread for connecting. Generations only grow, and the
// check against the last one makes a delayed command harmless.
void Executor::Handle(const api::ConfigureCommunicator& command) {
  constexpr int kDevicesMax = 1 << 16;
  const auto refuse = [&](const auto&... parts) {
    const absl::Status why = MakeError(ErrorKind::kValueError, absl::StrCat(parts...));
    Report(api::CommunicatorReady{command.generation, why});
  };
  bool fits = command.self >= 0 && command.self < static_cast<int32_t>(command.members.size());
  for (const auto& m : command.members) fits &= m.num_devices > 0 && m.num_devices <= kDevicesMax;
  if (!fits || command.members[command.self].num_devices != num_devices_) {
    return refuse("communicator of generation ", command.generation, ": member ", command.self,
                  " should be ", name_, " with its ", num_devices_, " devices");
  }
  auto communicator = std::make_shared<Communicator>(command, options_.collective_timeout);
  bool is_later = false;
  {
    absl::MutexLock lock(&mu_);
    is_later = command.generation > last_generation_;
    if (is_later) {
      last_generation_ = command.generation;
      communicators_[command.generation] = communicator;
    }
  }
  if (!is_later) {
    return refuse("generation ", command.generation, " is not later than the previous ones");
  }
  // This is done on its own thread, because peers connect at once and must not wait for
  // compilations here.
  connect_stream_->Push([this, communicator] { OpenCommunicator(communicator); });
}

void Executor::OpenCommunicator(const std::shared_ptr<Communicator>& communicator) {
  const int64_t began = AgeGauge::Now();
  communicator->Open(options_.host, peer_port_.get(), &metrics_, options_.tls, &link_meter_);
  metrics_.RecordCommunicatorInit(CollectiveBackend::kTcp, communicator->num_ranks(),
                                  absl::Nanoseconds(AgeGauge::Now() - began));
  Report(api::CommunicatorReady{communicator->generation(), absl::OkStatus()});
}

void Executor::Handle(const api::CloseCommunicator& command) {
  std::shared_ptr<Communicator> communicator;
  {
    absl::MutexLock lock(&mu_);
    const auto it = communicators_.find(command.generation);
    if (it == communicators_.end()) return;
    communicator = std::move(it->second);
    communicators_.erase(it);
  }
  // This is done on its own thread, because closing waits for the peers.
  disconnect_stream_->Push([this, communicator] {
    backend_->CloseGeneration(communicator->generation());
    communicator->Close(
        MakeError(ErrorKind::kPeerFailed, absl::StrCat("the communicator of generation ",
                                                       communicator->generation(), " was closed")));
  });
}

// ---- Programs. ----------------------------------------------------------------------------------

absl::Status Executor::CheckProgram(const api::LoadProgram& command) const {
  const auto bad = [&](const auto&... parts) {
    return MakeError(ErrorKind::kMalformedProgram,
                     absl::StrCat("program ", command.name, ": ", parts...));
  };
  if (command.program.entry == nullptr) return bad("it has no entry function");
  const int64_t devices = command.program.mesh().num_devices();
  if (static_cast<int64_t>(command.coordinates.size()) != devices) {
    return bad(command.coordinates.size(), " coordinates for a mesh of ", devices, " devices");
  }
  std::set<int32_t> seen;
  for (const auto& [mesh_device, device] : command.LocalDevices()) {
    if (!HasDevice(device)) return bad(name_, " has no device ", device);
    if (!seen.insert(device).second) return bad("device ", device, " stands at two coordinates");
  }
  return absl::OkStatus();
}

void Executor::Handle(const api::LoadProgram& command) {
  if (absl::Status status = CheckProgram(command); !status.ok()) {
    return Report(api::ProgramLoaded{command.executable, status, 0});
  }
  auto program = std::make_shared<LoadedProgram>();
  program->id = command.executable;
  program->name = std::make_shared<const std::string>(command.name);
  program->tenant = command.tenant;
  program->entry = command.program.entry;
  program->coordinates = command.coordinates;
  program->local = command.LocalDevices();
  program->all_local = program->local.size() == command.coordinates.size();
  {
    absl::MutexLock lock(&mu_);
    programs_[command.executable] = program;
  }
  compilers_->Push(ir::CountOps(*program->entry),
                   [this, program, source = command.program] { CompileProgram(program, source); });
}

void Executor::CompileProgram(const ProgramRef& program, const ir::Program& source) {
  {
    absl::MutexLock lock(&mu_);
    const auto it = programs_.find(program->id);
    if (it == programs_.end() || it->second != program) {
      program->executable =
          MakeError(ErrorKind::kProgramNotFound,
                    absl::StrCat("program ", *program->name, " was unloaded from ", name_));
      return program->compiled.Notify();
    }
  }
  const int64_t began = AgeGauge::Now();
  program->executable = backend_->CompileFor(program->tenant, source);
  const absl::Status status = program->executable.status();
  metrics_.RecordCompile(absl::Nanoseconds(AgeGauge::Now() - began), status.ok());
  const int64_t bytes = status.ok() ? (*program->executable)->memory_bytes() : 0;
  program->compiled.Notify();
  Report(api::ProgramLoaded{program->id, status, bytes});
}

void Executor::Handle(const api::UnloadPrograms& command) {
  absl::MutexLock lock(&mu_);
  for (const uint64_t id : command.executables) programs_.erase(id);
}

// ---- Launches. ----------------------------------------------------------------------------------

Executor::LaunchRef Executor::NewLaunch(uint64_t id, absl::Duration timeout, uint64_t executable) {
  auto launch = std::make_shared<LaunchState>();
  launch->id = id;
  launch->in_flight.resize(num_devices_);
  launch->timeout = timeout;
  launch->arrival_ns = DispatchClock();
  absl::MutexLock lock(&mu_);
  launches_[id] = launch;
  if (const auto program = programs_.find(executable); program != programs_.end())
    launch->program = program->second;
  return launch;
}

// Checks a launch against its program and gives it the communicator and the ranks. The ranks are
// those of the program's devices in this generation. They are computed once per generation and
// shared by the launches, since a launch of little work would spend much of its time on them.
absl::Status Executor::Resolve(const api::Launch& command, LaunchState* launch) {
  if (launch->program == nullptr) {
    return MakeError(ErrorKind::kProgramNotFound,
                     absl::StrCat("executable ", command.executable, " is not loaded on ", name_));
  }
  if (command.generation != 0) {
    absl::MutexLock lock(&mu_);
    const auto it = communicators_.find(command.generation);
    if (it == communicators_.end()) {
      return MakeError(ErrorKind::kPeerFailed,
                       absl::StrCat("launch ", command.launch, ": the communicator of generation ",
                                    command.generation, " is not open on ", name_));
    }
    launch->communicator = it->second;
    launch->communicator->NoteLaunch(command.launch);
  }
  LoadedProgram& program = *launch->program;
  const size_t params = program.entry->num_params, results = program.entry->results.size();
  if (launch->args.size() != params || launch->results.size() != results) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(*program.name, " takes ", params, " arguments and gives ",
                                  results, " results; the launch has ", launch->args.size(),
                                  " and ", launch->results.size()));
  }
  if (!launch->UsesCollectives()) return absl::OkStatus();
  absl::MutexLock lock(&program.mu);
  if (program.ranks == nullptr || program.ranks_generation != command.generation) {
    auto ranks = std::make_shared<std::vector<int>>();
    for (const auto& coordinate : program.coordinates) {
      int rank = static_cast<int>(ranks->size());  // rank among this executor's own devices
      if (launch->communicator != nullptr) {
        TESSERA_ASSIGN_OR_RETURN(
            rank, launch->communicator->RankOf(coordinate.member, coordinate.device));
      }
      ranks->push_back(rank);
    }
    program.ranks = std::move(ranks);
    program.ranks_generation = command.generation;
  }
  launch->ranks = program.ranks;
  return absl::OkStatus();
}

absl::Status Executor::Admit(const LaunchRef& launch, bool claimed) {
  const auto& devices = launch->devices;
  for (const int32_t device : devices) {
    if (!claimed && streams_[device]->num_tasks() >= options_.queue_bound) {
      return MakeError(ErrorKind::kQueueFull,
                       absl::StrCat(options_.queue_bound, " launches wait on device ", device,
                                    " of ", name_, ", which is the maximum"));
    }
  }
  launch->remaining = static_cast<int>(devices.size());
  for (const uint64_t result : launch->results) {
    for (const int32_t device : devices) {
      const BufferId id{result, device};
      const absl::Status status = buffers_.Expect(id);
      if (status.ok()) launch->expected_ids.push_back(id);
      // A result may be deleted before its producer is sent, and that is no error.
      if (!status.ok() && KindOf(status) != ErrorKind::kArrayDeleted) return status;
    }
  }
  return absl::OkStatus();
}

void Executor::FailBeforeStart(const LaunchRef& launch, const absl::Status& why) {
  launch->failed = true;
  Fail(*launch, why);
  // Results that are not in the table yet fail, too, so that later readers get the error.
  for (const uint64_t result : launch->results) {
    for (int32_t device = 0; device < num_devices_; ++device) {
      const BufferId id{result, device};
      if (!buffers_.IsKnown(id)) launch->expected_ids.push_back(id);
    }
  }
  EndLaunch(launch, /*on_stream=*/false);
}

void Executor::PushSkips(uint64_t generation) {
  if (generation == 0) return;
  for (int32_t device = 0; device < num_devices_; ++device) {
    streams_[device]->Push([this, device, generation] {
      RunContext context;
      context.device = device;
      context.generation = generation;
      backend_->Skip(/*executable=*/nullptr, context);
    });
  }
}

const Executable* Executor::CompiledForOneDevice(const LaunchState& launch) {
  const LoadedProgram& program = *launch.program;
  if (program.local.size() != 1 || !program.compiled.HasBeenNotified()) return nullptr;
  return program.executable.ok() ? program.executable->get() : nullptr;
}

// Admits a launch and gives it to the streams of its devices. All checks come before the first
// push, so that a launch runs on all its devices or on none. If the program is compiled, takes
// microseconds and has only one device here, and the device's stream is idle, then the launch is
// claimed for the sending thread instead (see Send).
void Executor::Handle(api::Launch&& command) {
  LaunchRef launch = NewLaunch(command.launch, command.timeout, command.executable);
  launch->args = std::move(command.args);
  launch->results = std::move(command.results);
  launch->donate = std::move(command.donate);
  for (const auto& [result, device] : command.inline_results) {
    if (result >= 0 && result < static_cast<int32_t>(launch->results.size()) && HasDevice(device))
      launch->inline_results.push_back({launch->results[result], device});
  }
  if (absl::Status status = Resolve(command, launch.get()); !status.ok()) {
    PushSkips(command.generation);
    return FailBeforeStart(launch, status);
  }
  launch->devices.reserve(launch->program->local.size());
  for (const auto& [mesh_device, device] : launch->program->local)
    launch->devices.push_back(device);
  const Executable* const compiled = CompiledForOneDevice(*launch);
  const bool claimed =
      compiled != nullptr && compiled->quick() && streams_[launch->devices[0]]->TryClaim();
  if (absl::Status status = Admit(launch, claimed); !status.ok()) {
    if (claimed) streams_[launch->devices[0]]->Release();
    PushSkips(command.generation);
    return FailBeforeStart(launch, status);
  }
  if (launch->devices.empty()) return EndLaunch(launch, /*on_stream=*/false);
  RetainInlineResults(launch);
  if (claimed) {
    const auto& [at, on] = launch->program->local[0];
    claimed_work_ = ClaimedWork{.device = on, .launch = std::move(launch), .mesh_device = at};
    return;
  }
  const bool brief = compiled != nullptr && compiled->brief();
  for (const auto& [mesh_device, device] : launch->program->local) {
    streams_[device]->Push(
        [this, launch, at = mesh_device, on = device] { RunOnDevice(launch, at, on); },
        /*runs_on_any_thread=*/brief);
  }
}

void Executor::RunWaitingBriefLaunch() {
  for (const auto& stream : streams_) stream->RunSoleWaitingTask();
}

// Checks the shapes and places of a transfer's pieces, before anything is pushed. The pieces come
// from another process, and a wrong one would write outside the memory of a shard. The places of
// pieces in shards of other executors are checked by those executors.
absl::Status Executor::CheckTransfer(const api::Transfer& command) const {
  const auto bad = [&](const auto&... parts) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("transfer ", command.launch, ": ", parts...));
  };
  const size_t rank = command.local_shape.size();
  for (const auto& shard : command.shards) {
    if (!HasDevice(shard.device)) return bad(name_, " has no device ", shard.device);
    for (const auto& piece : shard.pieces) {
      if (piece.shape.size() != rank || piece.dest_starts.size() != rank ||
          piece.source_starts.size() != rank) {
        return bad("a piece is not of rank ", rank);
      }
      for (size_t d = 0; d < rank; ++d) {
        if (piece.shape[d] < 0 || piece.dest_starts[d] < 0 || piece.source_starts[d] < 0 ||
            piece.dest_starts[d] > command.local_shape[d] - piece.shape[d]) {
          return bad("a piece does not lie inside the shard");
        }
      }
      if (piece.local && !buffers_.IsKnown({piece.source, piece.source_device})) {
        return MakeError(
            ErrorKind::kArrayNotFound,
            absl::StrCat("transfer ", command.launch, ": ",
                         ToString(BufferId{piece.source, piece.source_device}), " is not here"));
      }
    }
  }
  return absl::OkStatus();
}

// Admits a transfer and gives each of its shards to the stream of the shard's device. Local sources
// are retained here, in the order of the commands, so that a later delete does not take them away
// before the stream reads them.
void Executor::Handle(const api::Transfer& command) {
  const LaunchRef launch = NewLaunch(command.launch, command.timeout);
  launch->results = {command.result};
  if (absl::Status status = CheckTransfer(command); !status.ok())
    return FailBeforeStart(launch, status);
  for (const auto& shard : command.shards) launch->devices.push_back(shard.device);
  if (absl::Status status = Admit(launch, /*claimed=*/false); !status.ok())
    return FailBeforeStart(launch, status);
  if (launch->devices.empty()) return EndLaunch(launch, /*on_stream=*/false);
  for (const auto& from : command.shards) {
    auto shard = std::make_shared<TransferShard>();
    shard->device = from.device;
    shard->result = {command.result, from.device};
    shard->dtype = command.dtype;
    shard->shape = command.local_shape;
    for (const auto& piece : from.pieces) {
      TransferPiece& added = shard->pieces.emplace_back();
      added.piece = piece;
      if (piece.local)
        added.source = RetainedBuffer::Retain(buffers_, {piece.source, piece.source_device});
    }
    streams_[from.device]->Push([this, launch, shard] {
      BeginOnDevice(*launch, shard->device);
      const absl::Status status = RunTransfer(launch, *shard);
      shard->pieces.clear();  // ends the references to the sources before the transfer is reported
      EndOnDevice(launch, shard->device, status);
    });
  }
}

void Executor::Handle(const api::CancelLaunch& command) {
  LaunchRef launch;
  {
    absl::MutexLock lock(&mu_);
    const auto it = launches_.find(command.launch);
    if (it == launches_.end()) return;
    launch = it->second;
  }
  const absl::Status why =
      command.why.ok()
          ? MakeError(ErrorKind::kCancelled, absl::StrCat(launch->Name(), " was cancelled"))
          : command.why;
  Fail(*launch, why);
  // A launch that has not begun by now ends as soon as its turn comes.
  if (!launch->devices.empty() && !launch->HasStarted()) return;
  absl::MutexLock lock(&mu_);
  if (launches_.contains(command.launch) && told_.emplace(command.launch, AgeGauge::Now()).second)
    ShowTold();
}

void Executor::ShowTold() {
  int64_t first = 0;
  for (const auto& [launch, at] : told_)
    if (first == 0 || at < first) first = at;
  in_flight_->SetTold(first);
}

// ---- Buffers. -----------------------------------------------------------------------------------

absl::StatusOr<Reservation> Executor::Reserve(int32_t device, int64_t bytes,
                                              const MemoryHolder& holder) {
  absl::StatusOr<Reservation> reservation = accounts_[device]->Reserve(bytes, holder);
  if (reservation.ok() || !backend_->GiveBackSharedMemory(device)) return reservation;
  return accounts_[device]->Reserve(bytes, holder);
}

absl::StatusOr<Reservation> Executor::ReserveShard(const BufferId& id, int64_t bytes) {
  if (!HasDevice(id.device) || bytes < 0) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat(name_, " has no device ", id.device, "; it has ", num_devices_));
  }
  return Reserve(id.device, backend_->AllocationBytes(bytes), {"array", id.array});
}

absl::Status Executor::CheckNotDeleting(const BufferId& id) const {
  absl::MutexLock lock(&mu_);
  if (deleting_ids_.count(id) == 0) return absl::OkStatus();
  return MakeError(ErrorKind::kArrayDeleted,
                   absl::StrCat(ToString(id), " is being deleted on ", name_));
}

absl::Status Executor::WriteShard(const BufferId& id, ir::Array value, Reservation reservation,
                                  TransferPath path) {
  metrics_.RecordTransferBytes(TransferKind::kPut, path, value.num_bytes());
  TESSERA_ASSIGN_OR_RETURN(DeviceBufferRef buffer, backend_->FromHost(id.device, std::move(value)));
  buffer->reservation() = std::move(reservation);
  TESSERA_RETURN_IF_ERROR(buffers_.SetReady(id, std::move(buffer)));
  Report(api::BufferWritten{id.array, id.device, absl::OkStatus()});
  return absl::OkStatus();
}

absl::Status Executor::CheckInside(const ir::Dims& shard, const Block& block) {
  const auto& [starts, shape] = block;
  bool inside = starts.size() == shard.size() && shape.size() == shard.size();
  for (size_t d = 0; inside && d < shard.size(); ++d) {
    inside =
        starts[d] >= 0 && shape[d] >= 0 && shape[d] <= shard[d] && starts[d] <= shard[d] - shape[d];
  }
  if (inside) return absl::OkStatus();
  return MakeError(
      ErrorKind::kValueError,
      absl::StrCat("the block [", ir::DimsToString(shape), "] at [", ir::DimsToString(starts),
                   "] does not lie inside the shard [", ir::DimsToString(shard), "]"));
}

absl::StatusOr<ir::Array> Executor::Read(const DeviceBuffer& buffer,
                                         const std::optional<Block>& block) {
  if (!block || block->shape == buffer.shape()) return backend_->ToHost(buffer);
  return backend_->BlockToHost(buffer, block->starts, block->shape);
}

// A shard may become ready on the thread that watches the launches of a device, which must not wait
// for a copy. A reader's reference to the buffer ends before the reader is called, because the
// reader may then count on the memory of the array.
uint64_t Executor::ReadShard(const BufferId& id, std::optional<Block> block, ReadFn callback) {
  return buffers_.WhenReady(id, [this, block = std::move(block), callback = std::move(callback)](
                                    absl::StatusOr<DeviceBufferRef> buffer) {
    absl::Status status = buffer.status();
    if (status.ok() && block) status = CheckInside((*buffer)->shape(), *block);
    if (!status.ok()) return callback(status);
    if (!backend_->IsOnHost(**buffer)) return ReadInBackground(*std::move(buffer), block, callback);
    absl::StatusOr<ir::Array> value = Read(**buffer, block);
    *buffer = nullptr;
    callback(std::move(value));
  });
}

void Executor::ReadInBackground(DeviceBufferRef buffer, std::optional<Block> block,
                                ReadFn callback) {
  const int64_t bytes =
      ir::MakeType(buffer->dtype(), block ? block->shape : buffer->shape()).num_bytes();
  auto read =
      std::make_shared<QueuedRead>(std::move(buffer), std::move(block), std::move(callback));
  reads_->Push(bytes, [this, read = std::move(read)] {
    absl::StatusOr<ir::Array> value = Read(*read->buffer, read->block);
    read->buffer = nullptr;
    std::exchange(read->callback, nullptr)(std::move(value));
  });
}

uint64_t Executor::AwaitShard(const BufferId& id,
                              std::function<void(const absl::Status&)> callback) {
  return buffers_.WhenReady(
      id, [callback = std::move(callback)](const absl::StatusOr<DeviceBufferRef>& buffer) {
        callback(buffer.status());
      });
}

void Executor::Handle(const api::WriteBuffer& command) {
  const BufferId id{command.array, command.device};
  const absl::Status status = [&]() -> absl::Status {
    TESSERA_RETURN_IF_ERROR(CheckNotDeleting(id));
    // A value that arrives again changes nothing.
    if (buffers_.GetIfReady(id)) {
      Report(api::BufferWritten{id.array, id.device, absl::OkStatus()});
      return absl::OkStatus();
    }
    TESSERA_ASSIGN_OR_RETURN(Reservation reservation, ReserveShard(id, command.value.num_bytes()));
    return WriteShard(id, command.value, std::move(reservation), TransferPath::kRelay);
  }();
  if (status.ok()) return;
  // Readers of the array get this error.
  if (!buffers_.IsKnown(id)) buffers_.SetFailed(id, status);
  Report(api::BufferWritten{id.array, id.device, status});
}

void Executor::Handle(const api::ReadBuffer& command, ReportSlot& slot) {
  const BufferId id{command.array, command.device};
  DeviceBufferRef ready = buffers_.GetIfReady(id);
  if (ready != nullptr && backend_->IsOnHost(*ready)) {
    metrics_.RecordTransferBytes(TransferKind::kGet, TransferPath::kRelay, ready->num_bytes());
    absl::StatusOr<ir::Array> value = backend_->ToHost(*ready);
    ready = nullptr;
    return ReportAtOnce(api::BufferRead{command.request, std::move(value)}, slot);
  }
  ready = nullptr;
  if (!buffers_.IsKnown(id)) {
    return Report(api::BufferRead{
        command.request,
        MakeError(ErrorKind::kArrayNotFound, absl::StrCat(ToString(id), " is not on ", name_))});
  }
  ReadShard(id, std::nullopt, [this, request = command.request](absl::StatusOr<ir::Array> value) {
    if (value.ok()) {
      metrics_.RecordTransferBytes(TransferKind::kGet, TransferPath::kRelay, value->num_bytes());
    }
    Report(api::BufferRead{request, std::move(value)});
  });
}

void Executor::Delete(const std::vector<uint64_t>& arrays, int32_t device) {
  for (const uint64_t array : arrays) buffers_.Delete({array, device});
}

void Executor::Handle(const api::DeleteBuffers& command) {
  // With several devices, one stream might be busy, and the memory of the other devices would not
  // be freed meanwhile.
  if (num_devices_ == 1 && streams_[0]->TryClaim()) {
    claimed_work_ = ClaimedWork{.device = 0, .arrays_to_delete = command.arrays};
    return;
  }
  {
    absl::MutexLock lock(&mu_);
    for (const uint64_t array : command.arrays)
      for (int32_t device = 0; device < num_devices_; ++device)
        deleting_ids_.insert({array, device});
  }
  for (int32_t device = 0; device < num_devices_; ++device) {
    streams_[device]->Push(
        [this, device, arrays = command.arrays] { DeleteQueued(arrays, device); });
  }
}

void Executor::DeleteQueued(const std::vector<uint64_t>& arrays, int32_t device) {
  Delete(arrays, device);
  absl::MutexLock lock(&mu_);
  for (const uint64_t array : arrays) deleting_ids_.erase({array, device});
}

void Executor::Handle(const api::Drain&) {
  connect_stream_->Push([this] {
    // The wait is bounded by the timeouts of the launches; the destructor ends it earlier.
    for (const auto& stream : streams_) {
      while (!stream->Drain(SteadyNow() + absl::Seconds(1)) && !silent_) continue;
    }
    if (silent_) return;
    std::function<void()> on_drained;
    {
      absl::MutexLock lock(&mu_);
      on_drained = on_drained_;
    }
    Report(api::LaunchDone{0, absl::ZeroDuration()});
    // The callback comes after the last report.
    if (on_drained) reporter_->Push(on_drained);
  });
}

}  // namespace tessera::worker
