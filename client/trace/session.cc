// The client's end of api::Service: compiles programs, starts runs, and puts, loads and saves
// arrays. Members of Array, jit and the tracer call a Session, which works on an embedded cluster
// (embed/) and on a remote one (client/remote/) alike.
#include "client/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/locks.h"
#include "client/trace/prints.h"
#include "client/trace/trace.h"
#include "ir/program_hash.h"
#include "ir/spec.h"

namespace tessera {
namespace {

constexpr absl::Duration kMaxWait = absl::Minutes(10);
constexpr absl::Duration kMaxQueueWait = absl::Minutes(1);  // after this time QUEUE_FULL is thrown
// How long after its deadline the error of a run may arrive.
constexpr absl::Duration kResultGracePeriod = absl::Milliseconds(500);
constexpr size_t kMaxReleased = 64;  // at this many accumulated deletions, all are sent in one call
// The next run carries the deletions along if there are at least this many arrays or bytes.
constexpr size_t kReleaseBatchArrays = 32;
constexpr int64_t kReleaseBatchBytes = 1 << 20;
// If there are more executables, the oldest one is evicted. The server has its own cache.
constexpr size_t kMaxExecutables = 4096;

thread_local absl::Time current_deadline = absl::InfiniteFuture();

absl::Mutex* DefaultMutex() {
  static absl::Mutex* const mu = new absl::Mutex;
  return mu;
}
std::shared_ptr<Session>& DefaultSession() {
  static auto* const session = new std::shared_ptr<Session>;
  return *session;
}

// Returns the type of an array with this spec on the mesh. Only the Explicit axes of `spec` are
// part of the type.
Type TypeOn(DType dtype, const Dims& shape, const ir::Mesh& mesh, const PartitionSpec& spec) {
  Type type = ir::MakeType(dtype, shape);
  for (size_t d = 0; d < spec.dims.size() && d < shape.size(); ++d) {
    ir::AxisList kept;
    for (const std::string& axis : spec.dims[d]) {
      if (mesh.Has(axis) && mesh.TypeOf(axis) == AxisType::kExplicit) kept.push_back(axis);
    }
    if (!kept.empty()) type.set_axes_of(static_cast<int>(d), std::move(kept));
  }
  ir::Normalize(&type);
  return type;
}

// Throws the error of a spec that the mesh or the shape does not allow. The spec is checked here,
// before anything is sent, so that the error names the user's call and has JAX's wording.
void CheckSpec(const std::string& what, const Dims& shape, const Mesh& mesh,
               const PartitionSpec& spec, const Site& site) {
  if (!spec.unreduced.empty() || !spec.reduced.empty()) {
    internal::ThrowError(ErrorKind::kNotImplemented, site, what,
                         ": unreduced and reduced axes in a spec are not implemented; got ",
                         spec.ToString());
  }
  const std::optional<ir::SpecFault> fault = ir::FindSpecFault(spec, mesh.logical, shape);
  if (!fault) return;
  switch (fault->kind) {
    case ir::SpecFault::kTooLong:
      internal::ThrowError(ErrorKind::kValueError, site, what, ": Length of sharding.spec (",
                           spec.dims.size(), ") must be at most the rank of the array (",
                           shape.size(), "): ", spec.ToString(), " for shape (",
                           ir::DimsToString(shape), ")");
    case ir::SpecFault::kUnknownAxis:
      internal::ThrowError(ErrorKind::kUnknownAxis, site, what, ": ", spec.ToString(),
                           " names axis '", fault->axis, "', which the mesh ", mesh.ToString(),
                           " does not have");
    case ir::SpecFault::kAxisTwice:
      internal::ThrowError(ErrorKind::kValueError, site, what, ": ", spec.ToString(),
                           " uses axis '", fault->axis, "' more than once");
    case ir::SpecFault::kIndivisible:
      internal::ThrowError(ErrorKind::kIndivisible, site, what, ": dim ", fault->dim, " of shape (",
                           ir::DimsToString(shape), ") is not evenly divisible by ", fault->shards,
                           ", the size of mesh axes (", absl::StrJoin(spec.dims[fault->dim], ", "),
                           ")");
  }
}

// Waits until the cluster has options.min_devices healthy devices. Throws NOT_ENOUGH_DEVICES at
// `until`, with the reasons why other devices are not healthy, and CANCELLED if the caller gives
// up.
void AwaitDevices(Session& session, const std::string& address, const ConnectOptions& options,
                  absl::Time until, const Site& site) {
  constexpr absl::Duration kPollInterval = absl::Milliseconds(50);
  if (options.min_devices <= 0) return;
  for (;;) {
    int64_t healthy = 0;
    std::string lost;
    for (const api::Device& d : session.devices(site)) {
      if (d.healthy) {
        ++healthy;
      } else {
        absl::StrAppend(&lost, "; device ", d.id, " of worker ", d.worker, ": ", d.reason);
      }
    }
    if (healthy >= options.min_devices) return;
    if (SteadyNow() >= until) {
      internal::ThrowError(ErrorKind::kNotEnoughDevices, site, "Session::Connect(", address,
                           "): the cluster has ", healthy, " healthy devices after ",
                           absl::FormatDuration(options.timeout), ", ", options.min_devices,
                           " were requested", lost);
    }
    if (options.on_wait &&
        !options.on_wait(
            absl::StrCat("devices of the cluster at ", address, ", which has ", healthy, " of ",
                         options.min_devices, " that are healthy", lost),
            until - SteadyNow())) {
      internal::ThrowError(ErrorKind::kCancelled, site, "Session::Connect(", address,
                           "): the wait for devices was cancelled");
    }
    absl::SleepFor(std::min(kPollInterval, until - SteadyNow()));
  }
}

// Reads the options of the default session that only the environment can set.
ConnectOptions OptionsOfEnvironment(const Site& site) {
  ConnectOptions options;
  const char* const text = std::getenv("TESSERA_RECONNECT");
  if (text == nullptr || *text == '\0') return options;
  constexpr int kSecondsMax = 86'400;
  int seconds = 0;
  if (!absl::SimpleAtoi(text, &seconds) || seconds < 0 || seconds > kSecondsMax) {
    internal::ThrowError(ErrorKind::kValueError, site, "TESSERA_RECONNECT: expected a number of ",
                         "seconds from 0 to ", kSecondsMax, ", got '", text, "'");
  }
  options.reconnect = absl::Seconds(seconds);
  return options;
}

}  // namespace

std::shared_ptr<Session> Session::FromService(std::shared_ptr<api::Service> service) {
  static std::once_flag first;
  std::call_once(first, DisableDeadlockDetectionInRelease);
  return std::shared_ptr<Session>(new Session(std::move(service)));
}

std::shared_ptr<Session> Session::Embedded(EmbeddedOptions options, Site site) {
  if (!TesseraStartEmbedded) {
    internal::ThrowError(
        ErrorKind::kNotImplemented, site,
        "Session::Embedded: this program is linked without the embedded cluster. "
        "Link tessera_embed (installed: Tessera::embedded), or name a coordinator in "
        "TESSERA_ADDRESS");
  }
  absl::StatusOr<std::shared_ptr<api::Service>> service = absl::UnknownError("not started");
  TesseraStartEmbedded(options, &service);
  return FromService(internal::OrThrow(std::move(service), site));
}

std::shared_ptr<Session> Session::Connect(const std::string& address, ConnectOptions options,
                                          Site site) {
  if (!TesseraConnectRemote) {
    internal::ThrowError(ErrorKind::kNotImplemented, site, "Session::Connect(", address,
                         "): this program is linked without the gRPC carrier. Link "
                         "tessera_client_remote (installed: Tessera::client)");
  }
  if (const char* token = std::getenv("TESSERA_TOKEN"); token && options.token.empty()) {
    options.token = token;
  }
  if (const char* ca = std::getenv("TESSERA_CA_FILE");
      ca && options.ca_file.empty() && !options.insecure) {
    options.ca_file = ca;
  }
  absl::StatusOr<std::shared_ptr<api::Service>> service = absl::UnknownError("not connected");
  const absl::Time until = SteadyNow() + options.timeout;
  TesseraConnectRemote(address.c_str(), options, &service);
  const std::shared_ptr<Session> session = FromService(internal::OrThrow(std::move(service), site));
  AwaitDevices(*session, address, options, until, site);
  return session;
}

std::shared_ptr<Session> Session::Default(Site site) {
  absl::MutexLock lock(DefaultMutex());
  std::shared_ptr<Session>& slot = DefaultSession();
  if (!slot) {
    const char* address = std::getenv("TESSERA_ADDRESS");
    slot = address && *address ? Connect(address, OptionsOfEnvironment(site), site)
                               : Embedded({}, site);
  }
  return slot;
}

void Session::SetDefault(std::shared_ptr<Session> session) {
  {
    absl::MutexLock lock(DefaultMutex());
    DefaultSession().swap(session);
  }
  // `session` is the old session. It may be destroyed here, after the lock has been released.
}

Session::Session(std::shared_ptr<api::Service> service)
    : process_(getpid()), service_(std::move(service)) {}

Session::~Session() {
  if (getpid() == process_) {
    FlushReleased();
    return;
  }
  // In a forked child the service is leaked: the threads of the connection exist only in the
  // parent.
  static_cast<void>(new std::shared_ptr<api::Service>(service_));
}

std::vector<api::Device> Session::devices(Site site) {
  return internal::OrThrow(service_->ListDevices(), site);
}

std::vector<int64_t> Session::HealthyDevices(int64_t max, const Site& site) {
  std::vector<int64_t> ids;
  for (const api::Device& d : devices(site)) {
    if (d.healthy && static_cast<int64_t>(ids.size()) < max) ids.push_back(d.id);
  }
  return ids;
}

void Session::Release(uint64_t array, int64_t bytes) {
  bool is_full;
  {
    absl::MutexLock lock(&mu_);
    released_.push_back(array);
    released_bytes_ += bytes;
    is_full = released_.size() >= kMaxReleased;
  }
  if (is_full) FlushReleased();
}

void Session::ReleaseDonated(uint64_t array) {
  absl::MutexLock lock(&mu_);
  released_.push_back(array);
}

void Session::FlushReleased() {
  if (getpid() != process_) return;
  std::vector<uint64_t> released;
  {
    absl::MutexLock lock(&mu_);
    released.swap(released_);
    released_bytes_ = 0;
  }
  // If the call fails, the arrays are freed with the session.
  if (!released.empty()) service_->Delete(released).IgnoreError();
}

// The key of the cache includes call sites and names besides the ops, so that equal programs from
// two call sites keep their own error messages. The lock is not held during the call: two threads
// may compile the same program, and the first result stays in the cache.
std::shared_ptr<const Session::Executable> Session::Compile(const ir::Program& program,
                                                            const std::vector<int64_t>& devices,
                                                            const std::string& name, bool explain,
                                                            const Site& site) {
  const std::string key =
      absl::StrCat(ir::StructuralHash(program), "/", ir::AnnotationHash(program), "/", name, "@",
                   absl::StrJoin(devices, ","));
  // An explanation changes with every run, so the cache is not used.
  if (!explain) {
    absl::MutexLock lock(&mu_);
    if (auto it = executables_.find(key); it != executables_.end()) return it->second;
  }
  api::CompileRequest request;
  request.program = program;
  request.devices = devices;
  request.name = name;
  request.explain = explain;
  auto made = std::make_shared<Executable>();
  made->reply = internal::OrThrow(service_->Compile(request), site);
  made->mesh = program.mesh();
  made->out_types = program.entry->result_types();
  for (const api::ArraySpec& out : made->reply.out)
    made->out_placements.push_back(std::make_shared<const api::Placement>(out.placement));
  made->name = name;
  made->kept_program = std::make_shared<api::KeptProgram>(std::move(request), made->reply);
  absl::MutexLock lock(&mu_);
  if (executables_.emplace(key, made).second) oldest_first_.push_back(key);
  if (oldest_first_.size() > kMaxExecutables) {
    executables_.erase(oldest_first_.front());
    oldest_first_.erase(oldest_first_.begin());
  }
  return made;
}

api::CompileReply Session::PlanForAbsent(const ir::Program& program, int64_t device_memory_bytes,
                                         const std::string& name, const Site& site) {
  api::CompileRequest request;
  request.program = program;
  request.name = name;
  request.explain = true;
  request.plan_only = true;
  request.device_memory_bytes = device_memory_bytes;
  return internal::OrThrow(service_->Compile(request), site);
}

absl::StatusOr<api::ExecuteReply> Session::ExecuteWhenAccepted(const api::ExecuteRequest& request) {
  absl::Time end = absl::InfinitePast();  // set once the queue is full
  for (;;) {
    absl::StatusOr<api::ExecuteReply> reply = service_->Execute(request);
    if (reply.ok()) last_operation_.store(reply->operation, std::memory_order_relaxed);
    if (reply.ok() || ReasonOf(reply.status()) != "QUEUE_FULL") return reply;
    const uint64_t last = last_operation_.load(std::memory_order_relaxed);
    const absl::Time now = SteadyNow();
    if (end == absl::InfinitePast()) end = now + internal::BoundedWait(kMaxQueueWait);
    if (last == 0 || now >= end) return reply;
    // Wait until an accepted run has ended, which makes room in the queue.
    service_->WaitOperation(last, std::min(end - now, absl::Duration(absl::Seconds(1))))
        .status()
        .IgnoreError();
  }
}

// Has the program compiled at most once: an executable that is lost again at once is an error,
// because a cluster that keeps too few executables would otherwise compile for ever. If another
// call has had the program compiled since this one was sent, that does not count. A refused run has
// made nothing, so a later request cannot run it a second time.
absl::StatusOr<api::ExecuteReply> Session::ExecuteKept(api::KeptProgram& program,
                                                       api::ExecuteRequest& request) {
  const auto compile = [this](const api::CompileRequest& c) { return service_->Compile(c); };
  uint64_t lost = 0;
  while (true) {
    request.executable = program.executable();
    if (internal::CurrentDeadline() != absl::InfiniteFuture())
      request.time_limit = internal::BoundedWait(absl::InfiniteDuration());
    absl::StatusOr<api::ExecuteReply> reply = ExecuteWhenAccepted(request);
    if (reply.ok() || KindOf(reply.status()) != ErrorKind::kProgramNotFound) return reply;
    if (program.executable() != request.executable) continue;
    if (lost != 0) return program.LostAgainError(lost, request.executable);
    lost = request.executable;
    TESSERA_RETURN_IF_ERROR(program.Replace(lost, compile, internal::CurrentDeadline()).status());
  }
}

// Passes arguments by id, so that no contents travel, and carries accumulated deletions along, so
// that they cost no call of their own. Arrays are marked as donated only after the server has
// accepted the run: a refused run leaves them usable. If the program prints, waits for the results
// and prints them.
std::vector<Array> Session::Run(const Executable& executable, absl::Span<const Array> args,
                                std::vector<bool> donate, const Site& site) {
  api::ExecuteRequest request;
  // Numbers are uploaded for this run, with the plan's placement, and released after it.
  std::vector<uint64_t> numbers;
  const absl::Cleanup release_numbers = [&] {
    for (uint64_t id : numbers) Release(id, /*bytes=*/0);
  };
  request.args.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const Array& a = args[i];
    if (const internal::NumberState* n = internal::AsNumber(a)) {
      numbers.push_back(
          internal::OrThrow(service_->Put(n->value, executable.reply.in.at(i).placement,
                                          internal::BoundedWait(absl::InfiniteDuration())),
                            site));
      request.args.push_back(numbers.back());
      continue;
    }
    const internal::ConcreteState* c = internal::AsConcrete(a);
    if (!c) internal::ThrowNotReadable(executable.name, a, site);
    if (internal::QueryDeleted(*c, site)) internal::ThrowDeleted(executable.name, a, site);
    request.args.push_back(c->id);
  }
  if (!donate.empty()) request.donate = donate;
  request.ahead = ahead_;
  request.kept_program = executable.kept_program;
  {
    absl::MutexLock lock(&mu_);
    if (released_.size() >= kReleaseBatchArrays || released_bytes_ >= kReleaseBatchBytes) {
      request.release.swap(released_);
      released_bytes_ = 0;
    }
  }
  absl::StatusOr<api::ExecuteReply> accepted = ExecuteKept(*executable.kept_program, request);
  if (!accepted.ok() && !request.release.empty()) service_->Delete(request.release).IgnoreError();
  const api::ExecuteReply reply = internal::OrThrow(std::move(accepted), site);
  for (size_t i = 0; i < donate.size(); ++i) {
    if (const auto* c = internal::AsConcrete(args[i]); c && donate[i]) c->donated.store(true);
  }
  std::vector<Array> out;
  out.reserve(reply.outputs.size());
  for (size_t i = 0; i < reply.outputs.size(); ++i) {
    out.push_back(MakeArray(reply.outputs[i], executable.out_types[i], executable.out_placements[i],
                            reply.done ? 0 : reply.operation, executable.name));
  }
  if (executable.prints) internal::PrintResults(*executable.prints, &out, site);
  return out;
}

api::Placement Session::Place(const std::string& what, const Dims& shape, const Mesh& mesh,
                              const PartitionSpec& spec, const Site& site) {
  CheckSpec(what, shape, mesh, spec, site);
  api::Placement placement{mesh.logical, spec, mesh.devices};
  if (!placement.devices.empty()) return placement;
  placement.devices = HealthyDevices(mesh.size(), site);
  if (static_cast<int64_t>(placement.devices.size()) < mesh.size()) {
    internal::ThrowError(ErrorKind::kNotEnoughDevices, site, what, ": needs ", mesh.size(),
                         " healthy devices, the session has ", placement.devices.size());
  }
  return placement;
}

Array Session::MakeArray(uint64_t id, const Type& type,
                         std::shared_ptr<const api::Placement> placement, uint64_t operation,
                         const std::string& name) {
  auto state = std::make_shared<internal::ConcreteState>(type);
  state->session = shared_from_this();
  state->id = id;
  state->placement = std::move(placement);
  state->operation = operation;
  state->name = name;
  return Array(std::move(state));
}

Array Session::Put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec,
                   const Site& site) {
  api::Placement placement = Place("put", value.shape(), mesh, spec, site);
  FlushReleased();
  const uint64_t id = internal::OrThrow(
      service_->Put(value, placement, internal::BoundedWait(absl::InfiniteDuration())), site);
  return MakeArray(id, TypeOn(value.dtype(), value.shape(), mesh.logical, spec),
                   std::make_shared<const api::Placement>(std::move(placement)),
                   /*operation=*/0, "put");
}

Array Session::Reshard(const Array& x, const Mesh& mesh, const PartitionSpec& spec,
                       const Site& site) {
  const internal::ConcreteState& c = internal::RequireConcrete("put", x, site);
  api::Placement placement = Place("put", x.shape(), mesh, spec, site);
  Type type = TypeOn(x.dtype(), x.shape(), mesh.logical, spec);
  type.weak = x.type().weak;
  if (placement == *c.placement && type == x.type()) return x;
  FlushReleased();
  const api::PendingArrays pending = internal::OrThrow(service_->Reshard(c.id, placement), site);
  return MakeArray(pending.arrays.at(0), type,
                   std::make_shared<const api::Placement>(std::move(placement)), pending.operation,
                   "put");
}

void Session::Save(const std::string& path, const std::vector<api::ArrayToSave>& arrays,
                   bool overwrite, const Site& site) {
  const uint64_t operation = internal::OrThrow(service_->Save(path, arrays, overwrite), site);
  const absl::Duration limit = internal::BoundedWait(absl::InfiniteDuration());
  const api::Operation op =
      internal::OrThrow(internal::WaitForOperation(*service_, operation, limit), site);
  if (!internal::HasEnded(op)) {
    service_->Cancel(operation).IgnoreError();
    internal::ThrowError(ErrorKind::kDeadlineExceeded, site, "save ", path, ": not done after ",
                         absl::FormatDuration(limit), ", and cancelled",
                         op.pending_reason.empty() ? "" : "; it waited because ",
                         op.pending_reason);
  }
  internal::ThrowIfError(op.error, site);
}

std::vector<Array> Session::Load(const std::string& path, const std::vector<LoadRequest>& requests,
                                 const Site& site) {
  FlushReleased();
  std::vector<api::ArrayToLoad> arrays;
  for (const LoadRequest& r : requests) {
    arrays.push_back(
        {r.name, Place(absl::StrCat("load '", r.name, "'"), r.shape, r.mesh, r.spec, site)});
  }
  const api::PendingArrays pending = internal::OrThrow(service_->Load(path, arrays), site);
  std::vector<Array> out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const LoadRequest& r = requests[i];
    out.push_back(MakeArray(pending.arrays.at(i), TypeOn(r.dtype, r.shape, r.mesh.logical, r.spec),
                            std::make_shared<const api::Placement>(std::move(arrays[i].placement)),
                            pending.operation, "load"));
  }
  return out;
}

deadline::deadline(absl::Duration limit) : saved_(current_deadline) {
  current_deadline = std::min(current_deadline, SteadyNow() + limit);
}
deadline::~deadline() { current_deadline = saved_; }

namespace internal {

bool HasEnded(const api::Operation& operation) {
  return operation.state >= api::OperationState::kDone;
}

absl::StatusOr<api::Operation> WaitForOperation(api::Service& service, uint64_t id,
                                                absl::Duration limit) {
  const absl::Time end = SteadyNow() + limit;
  api::Operation operation;
  do {
    const absl::Duration left = std::max(end - SteadyNow(), absl::ZeroDuration());
    TESSERA_ASSIGN_OR_RETURN(operation, service.WaitOperation(id, std::min(left, kMaxWaitPerCall)));
  } while (!HasEnded(operation) && SteadyNow() < end);
  return operation;
}

absl::Time CurrentDeadline() { return current_deadline; }

absl::Duration BoundedWait(absl::Duration wanted) {
  return std::max(absl::ZeroDuration(),
                  std::min({wanted, kMaxWait, current_deadline - SteadyNow()}));
}

absl::Duration BoundedResultWait(absl::Duration wanted) {
  return std::max(
      absl::ZeroDuration(),
      std::min({wanted, kMaxWait, current_deadline + kResultGracePeriod - SteadyNow()}));
}

}  // namespace internal

Array abstract(Dims shape, DType dtype, const Mesh& mesh, const PartitionSpec& spec, Site site) {
  CheckSpec("abstract", shape, mesh, spec, site);
  auto state = std::make_shared<internal::AbstractState>(TypeOn(dtype, shape, mesh.logical, spec));
  state->placement =
      std::make_shared<const api::Placement>(api::Placement{mesh.logical, spec, mesh.devices});
  return Array(std::move(state));
}

Array put(const ir::Array& value, Site site) {
  return Session::Default(site)->Put(value, context_mesh(), PartitionSpec{}, site);
}
Array put(const ir::Array& value, const Mesh& mesh, const PartitionSpec& spec, Site site) {
  return Session::Default(site)->Put(value, mesh, spec, site);
}
Array put(const Array& x, const Mesh& mesh, const PartitionSpec& spec, Site site) {
  if (internal::CurrentFrame() &&
      !internal::CurrentScope().mesh.AxesOfType(AxisType::kManual).empty()) {
    internal::ThrowError(ErrorKind::kValueError, site,
                         "put: device_put with explicit device not allowed within ",
                         "shard_map-decorated functions. Move the array before, or use a "
                         "collective");
  }
  return internal::RequireConcrete("put", x, site).session->Reshard(x, mesh, spec, site);
}

}  // namespace tessera
