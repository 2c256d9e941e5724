// The wire forms of the link between coordinator and workers (docs/decisions/0007). Each message
// has a list of fields, and a Check for the bounds that a received message must keep.
#include "ir/serial/worker.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/fields.h"
#include "ir/serial/gpu_reading.h"
#include "ir/serial/worker_fields.h"

namespace tessera::ir::serial {
namespace {

constexpr size_t kNameMax = 128;
constexpr size_t kTextMax = 1024;
constexpr int kExecutorsMax = 1024;
constexpr int kDevicesMax = 65'536;
constexpr int64_t kRelayBytesMax = int64_t{1} << 31;
constexpr double kRateMax = 1e18;  // rates are per second

absl::Status Bad(const std::string& what) { return MakeError(ErrorKind::kValueError, what); }

bool IsName(const std::string& s) {
  return !s.empty() && s.size() <= kNameMax &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isgraph(c); });
}

template <class Message>
inline constexpr v1::MessageKind kKind = v1::MESSAGE_KIND_UNSPECIFIED;

}  // namespace

// Says which kind an envelope whose body is this message has.
#define TESSERA_KIND(Name, KIND)                                        \
  namespace {                                                           \
  template <>                                                           \
  constexpr v1::MessageKind kKind<api::Name> = v1::MESSAGE_KIND_##KIND; \
  }
// Declares the fields of an envelope's body, and its kind. `launch` and `timeout` are envelope
// fields.
#define TESSERA_MESSAGE(Name, KIND, ...)                         \
  TESSERA_FIELDS(api::Name, v1::Name __VA_OPT__(, ) __VA_ARGS__) \
  TESSERA_KIND(Name, KIND)

// ---- Registration. ------------------------------------------------------------------------------
TESSERA_FIELDS(api::AdoptedExecutor, v1::AdoptedExecutor, executor, incarnation)
TESSERA_MESSAGE(Registration, REGISTRATION, worker, host, opset, executors, host_memory_bytes,
                build)
TESSERA_FIELDS_RENAMED(api::Welcome, v1::Welcome, registration_id, session, epoch, heartbeat, lease,
                       ticket_key, clock, outage_grace, adopted, build, protocol, state_began)
TESSERA_KIND(Welcome, WELCOME)
TESSERA_FIELDS_RENAMED(api::Attachment, v1::Attachment, registration_id, session, key, epoch)
TESSERA_KIND(Attachment, ATTACHMENT)

// ---- Commands. ----------------------------------------------------------------------------------
TESSERA_FIELDS(api::ConfigureCommunicator::Member, v1::CommunicatorMember, executor, incarnation,
               endpoint, num_devices)
TESSERA_FIELDS(api::LoadProgram::Coordinate, v1::MeshCoordinate, member, device)
TESSERA_FIELDS(api::Launch::InlineResult, v1::InlineResultRequest, result, device)
TESSERA_FIELDS(api::Transfer::Piece, v1::TransferPiece, local, source, source_device, endpoint,
               ticket, source_starts, dest_starts, shape, executor)
TESSERA_FIELDS(api::Transfer::Shard, v1::TransferShard, device, pieces)
TESSERA_FIELDS(api::FileShard, v1::FileShard, index, array, device, starts, shape)

TESSERA_MESSAGE(ConfigureCommunicator, CONFIGURE_COMMUNICATOR, generation, members, self, secret)
TESSERA_MESSAGE(CloseCommunicator, CLOSE_COMMUNICATOR, generation)
TESSERA_MESSAGE(LoadProgram, LOAD_PROGRAM, executable, name, program, coordinates, self, tenant)
TESSERA_MESSAGE(UnloadPrograms, UNLOAD_PROGRAMS, executables)
TESSERA_MESSAGE(Launch, LAUNCH, sequence, executable, generation, args, results, donate,
                inline_results)
TESSERA_MESSAGE(Transfer, TRANSFER, sequence, result, dtype, local_shape, shards)
TESSERA_MESSAGE(WriteBuffer, WRITE_BUFFER, array, device, value)
TESSERA_MESSAGE(ReadBuffer, READ_BUFFER, request, array, device)
TESSERA_MESSAGE(DeleteBuffers, DELETE_BUFFERS, arrays)
TESSERA_MESSAGE(CancelLaunch, CANCEL_LAUNCH, why)
TESSERA_MESSAGE(Drain, DRAIN)
TESSERA_MESSAGE(SaveShards, SAVE_SHARDS, sequence, path, token, overwrite, part, parts, arrays,
                shards)
TESSERA_MESSAGE(LoadShards, LOAD_SHARDS, path, arrays, shards)
TESSERA_MESSAGE(InspectFile, INSPECT_FILE, request, path)
TESSERA_MESSAGE(KillExecutor, KILL_EXECUTOR, reason, if_told)
TESSERA_MESSAGE(AcknowledgeReports, ACKNOWLEDGE_REPORTS, through)

// ---- Reports. -----------------------------------------------------------------------------------
TESSERA_FIELDS(api::Heartbeat::Executor, v1::Heartbeat::Executor, executor, progress_age, silence,
               launch, op, waiting, fault, gpu)
TESSERA_FIELDS(api::LinkSpeed, v1::LinkSpeed, between_executors, bytes_per_second, latency_seconds)
TESSERA_FIELDS(api::LaunchDone::InlineResult, v1::InlineShard, array, device, value)
TESSERA_FIELDS(api::ExecutorInventory::Device, v1::ExecutorInventory::Device, ready, expected,
               failed)

TESSERA_MESSAGE(Heartbeat, HEARTBEAT, executors)
TESSERA_MESSAGE(CommunicatorReady, COMMUNICATOR_READY, generation, status)
TESSERA_MESSAGE(ProgramLoaded, PROGRAM_LOADED, executable, status, memory_bytes)
TESSERA_MESSAGE(LaunchDone, LAUNCH_DONE, run_time, inline_results, links)
TESSERA_MESSAGE(LaunchFailed, LAUNCH_FAILED, status, inputs_kept)
TESSERA_MESSAGE(BufferWritten, BUFFER_WRITTEN, array, device, status)
TESSERA_MESSAGE(BufferRead, BUFFER_READ, request, value)
TESSERA_MESSAGE(ExecutorLost, EXECUTOR_LOST, reason, op)
TESSERA_MESSAGE(ExecutorReady, EXECUTOR_READY, info)
TESSERA_MESSAGE(FileInspected, FILE_INSPECTED, request, arrays)
TESSERA_MESSAGE(ExecutorInventory, EXECUTOR_INVENTORY, devices, running, ended, executables,
                compiling, generations, sequences, running_generations, reports)
TESSERA_MESSAGE(ExecutorFarewell, EXECUTOR_FAREWELL, reason)

// ---- Checks of received messages. ---------------------------------------------------------------
static absl::Status Check(api::ExecutorInfo& info, const ReadLimits&) {
  if (info.index < 0 || info.index >= kExecutorsMax)
    return Bad(absl::StrCat("executor: index ", info.index, " is not in 0..", kExecutorsMax - 1));
  if (info.incarnation == 0) return Bad("executor: incarnation 0 is not valid");
  if (!IsName(info.device_kind)) return Bad("executor: device_kind is not a printable name");
  if (info.num_devices < 1 || info.num_devices > kDevicesMax)
    return Bad(absl::StrCat("executor: ", info.num_devices, " devices, 1 to ", kDevicesMax,
                            " are accepted"));
  for (const std::string& endpoint :
       {info.data_endpoint, info.peer_endpoint, info.peer_data_endpoint})
    if (endpoint.size() > 4 * kNameMax) return Bad("executor: an endpoint is too long");
  if (info.files_folder.size() > kNameMax) return Bad("executor: files_folder is too long");
  info.memory_bytes = std::max<int64_t>(info.memory_bytes, 0);
  for (double* rate : {&info.flops_per_second, &info.memory_bytes_per_second})
    if (!(*rate >= 0 && *rate < kRateMax)) *rate = 0;
  return absl::OkStatus();
}

static absl::Status Check(api::LinkSpeed& link, const ReadLimits&) {
  for (double* figure : {&link.bytes_per_second, &link.latency_seconds})
    if (!(*figure >= 0 && *figure < kRateMax)) *figure = 0;
  return absl::OkStatus();
}

// An absent field means protocol 1.
static absl::Status Check(Build& build, const ReadLimits&) {
  if (build.version.size() > kNameMax || build.revision.size() > kNameMax)
    return Bad("build: the version or revision is too long");
  build.protocol_min = std::max(build.protocol_min, 1);
  build.protocol_max = std::max(build.protocol_max, 1);
  return absl::OkStatus();
}

static absl::Status Check(api::Welcome& welcome, const ReadLimits&) {
  welcome.protocol = std::max(welcome.protocol, 1);
  return absl::OkStatus();
}

static absl::Status Check(api::Registration& registration, const ReadLimits&) {
  const size_t executors = registration.executors.size();
  if (!IsName(registration.worker) || registration.worker.find('/') != std::string::npos)
    return Bad("registration: the worker's name is empty, too long or holds '/' or blanks");
  if (!IsName(registration.host)) return Bad("registration: host is not a printable name");
  if (executors == 0 || executors > kExecutorsMax)
    return Bad(absl::StrCat("registration: ", executors, " executors, 1 to ", kExecutorsMax,
                            " are accepted"));
  std::set<int32_t> seen;
  for (const api::ExecutorInfo& info : registration.executors)
    if (!seen.insert(info.index).second)
      return Bad(absl::StrCat("registration: executor ", info.index, " is given twice"));
  registration.host_memory_bytes = std::max<int64_t>(registration.host_memory_bytes, 0);
  return absl::OkStatus();
}

static absl::Status Check(api::ConfigureCommunicator& c, const ReadLimits&) {
  if (c.self < 0 || c.self >= static_cast<int>(c.members.size()))
    return Bad("communicator: self is not one of the members");
  return absl::OkStatus();
}

static absl::Status Check(api::LoadProgram& c, const ReadLimits&) {
  const int64_t devices = c.program.mesh().num_devices();
  if (static_cast<int64_t>(c.coordinates.size()) != devices)
    return Bad(absl::StrCat("load: ", c.coordinates.size(), " coordinates for a mesh of ", devices,
                            " devices"));
  for (const api::LoadProgram::Coordinate& k : c.coordinates)
    if (k.member < 0 || k.device < 0) return Bad("load: a coordinate is negative");
  return absl::OkStatus();
}

static absl::Status Check(api::Launch& c, const ReadLimits&) {
  for (const api::Launch::InlineResult& r : c.inline_results)
    if (r.result < 0 || r.result >= static_cast<int>(c.results.size()))
      return Bad("launch: an inline result is not one of the results");
  return absl::OkStatus();
}

static absl::Status Check(api::Transfer& c, const ReadLimits& limits) {
  TESSERA_RETURN_IF_ERROR(CheckDims(c.local_shape, c.dtype, limits.limits));
  const size_t rank = c.local_shape.size();
  for (const api::Transfer::Shard& shard : c.shards) {
    for (const api::Transfer::Piece& piece : shard.pieces) {
      TESSERA_RETURN_IF_ERROR(CheckDims(piece.shape, c.dtype, limits.limits));
      if (piece.source_starts.size() != rank || piece.dest_starts.size() != rank ||
          piece.shape.size() != rank)
        return Bad("transfer: a piece has another rank than the array");
      for (size_t d = 0; d < rank; ++d)
        if (piece.source_starts[d] < 0 || piece.dest_starts[d] < 0 ||
            piece.dest_starts[d] > c.local_shape[d] - piece.shape[d])
          return Bad("transfer: a piece does not lie inside the shard");
    }
  }
  return absl::OkStatus();
}

static absl::Status Check(api::FileArrayInfo& array, const ReadLimits& limits) {
  if (array.name.size() > api::kMaxArrayNameBytes) return Bad("file: an array's name is too long");
  return CheckDims(array.shape, array.dtype, limits.limits);
}

static absl::Status CheckShards(const std::vector<api::FileArrayInfo>& arrays,
                                const std::vector<api::FileShard>& shards,
                                const ReadLimits& limits) {
  if (arrays.size() > api::kMaxArraysPerFile) return Bad("file: too many arrays");
  for (const api::FileShard& s : shards) {
    if (s.index < 0 || s.index >= static_cast<int>(arrays.size()))
      return Bad("file: a shard does not belong to an array of the file");
    const api::FileArrayInfo& array = arrays[s.index];
    TESSERA_RETURN_IF_ERROR(CheckDims(s.shape, array.dtype, limits.limits));
    bool is_inside = s.starts.size() == array.shape.size() && s.shape.size() == array.shape.size();
    for (size_t d = 0; is_inside && d < s.shape.size(); ++d)
      is_inside = s.starts[d] >= 0 && s.starts[d] <= array.shape[d] - s.shape[d];
    if (!is_inside) return Bad("file: a block does not lie inside its array");
  }
  return absl::OkStatus();
}
static absl::Status Check(api::SaveShards& c, const ReadLimits& limits) {
  if (c.part < 0 || c.part >= c.parts || c.parts > kExecutorsMax)
    return Bad(absl::StrCat("save: part ", c.part, " of ", c.parts));
  return CheckShards(c.arrays, c.shards, limits);
}
static absl::Status Check(api::LoadShards& c, const ReadLimits& limits) {
  return CheckShards(c.arrays, c.shards, limits);
}

static absl::Status Check(api::FileInspected& r, const ReadLimits&) {
  if (r.arrays.ok() && r.arrays->size() > api::kMaxArraysPerFile)
    r.arrays = Bad("file: too many arrays");
  return absl::OkStatus();
}

static absl::Status Check(api::LaunchFailed& r, const ReadLimits&) {
  if (r.status.ok()) r.status = absl::UnknownError("the worker gave no reason");
  return absl::OkStatus();
}

static absl::Status Check(api::ExecutorLost& r, const ReadLimits&) {
  r.reason.resize(std::min(r.reason.size(), kTextMax));
  r.op.resize(std::min(r.op.size(), kTextMax));
  return absl::OkStatus();
}
static absl::Status Check(api::ExecutorFarewell& r, const ReadLimits&) {
  r.reason.resize(std::min(r.reason.size(), kTextMax));
  return absl::OkStatus();
}

// ---- Envelopes. ---------------------------------------------------------------------------------
namespace {

template <class Message>
v1::Envelope Enclose(const Message& message) {
  v1::Envelope out;
  out.set_kind(kKind<Message>);
  if constexpr (requires { message.launch; }) out.set_launch(message.launch);
  if constexpr (requires { message.timeout; }) {
    if (message.timeout < absl::InfiniteDuration())
      *out.mutable_deadline() = ToProto(message.timeout);
  }
  Written(message).SerializeToString(out.mutable_body());
  return out;
}

template <class Message>
absl::Status Open(const v1::Envelope& envelope, const Limits& limits, Message* out) {
  typename Fields<Message>::Proto body;
  if (!body.ParseFromString(envelope.body()))
    return Bad(absl::StrCat("worker: ", envelope.body().size(), " bytes are not a ",
                            body.GetDescriptor()->full_name()));
  if constexpr (requires { out->launch; }) out->launch = envelope.launch();
  if constexpr (requires { out->timeout; }) {
    if (envelope.has_deadline()) out->timeout = FromProto(envelope.deadline());
  }
  return ReadFields(body, {limits, kRelayBytesMax}, out);
}

// Reads the alternative of the variant that the envelope's kind names.
template <class Variant, size_t i = 0>
absl::StatusOr<Variant> OpenAny(const v1::Envelope& envelope, const Limits& limits,
                                const char* unknown) {
  if constexpr (i == std::variant_size_v<Variant>) {
    return Bad(unknown);
  } else {
    using Message = std::variant_alternative_t<i, Variant>;
    static_assert(kKind<Message> != v1::MESSAGE_KIND_UNSPECIFIED);
    if (envelope.kind() != kKind<Message>)
      return OpenAny<Variant, i + 1>(envelope, limits, unknown);
    Variant out(std::in_place_index<i>);
    TESSERA_RETURN_IF_ERROR(Open(envelope, limits, &std::get<i>(out)));
    return out;
  }
}

template <class Message>
absl::StatusOr<Message> OpenOne(const v1::Envelope& envelope, const char* another) {
  if (envelope.kind() != kKind<Message>) return Bad(another);
  Message out;
  TESSERA_RETURN_IF_ERROR(Open(envelope, {}, &out));
  return out;
}

}  // namespace

v1::Envelope ToEnvelope(int32_t executor, uint64_t incarnation, const api::Command& command) {
  v1::Envelope out = std::visit([](const auto& c) { return Enclose(c); }, command);
  out.set_executor(executor);
  out.set_incarnation(incarnation);
  return out;
}
v1::Envelope ToEnvelope(const api::Report& report) {
  v1::Envelope out = std::visit([](const auto& r) { return Enclose(r); }, report.body);
  out.set_executor(report.executor);
  out.set_incarnation(report.incarnation);
  out.set_report(report.number);
  return out;
}
v1::Envelope ToEnvelope(const api::Registration& registration) { return Enclose(registration); }
v1::Envelope ToEnvelope(const api::Welcome& welcome) {
  v1::Envelope out = Enclose(welcome);
  out.set_epoch(welcome.epoch);
  return out;
}
v1::Envelope ToEnvelope(const api::Attachment& attachment) {
  v1::Envelope out = Enclose(attachment);
  out.set_executor(attachment.executor);
  out.set_incarnation(attachment.incarnation);
  return out;
}

absl::StatusOr<api::Command> ReadCommand(const v1::Envelope& envelope, const Limits& limits) {
  return OpenAny<api::Command>(
      envelope, limits, "worker command: it is empty, or of a kind this worker does not know");
}
absl::StatusOr<api::Report> ReadReport(const v1::Envelope& envelope, const Limits& limits) {
  TESSERA_ASSIGN_OR_RETURN(
      api::ReportBody body,
      OpenAny<api::ReportBody>(
          envelope, limits,
          "worker report: it is empty, or of a kind this coordinator does not know"));
  return api::Report{envelope.executor(), envelope.incarnation(), std::move(body),
                     envelope.report()};
}
absl::StatusOr<api::Registration> ReadRegistration(const v1::Envelope& envelope) {
  return OpenOne<api::Registration>(envelope, "worker: the first report is not a Registration");
}
absl::StatusOr<api::Welcome> ReadWelcome(const v1::Envelope& envelope) {
  return OpenOne<api::Welcome>(envelope, "worker: the first command is not a Welcome");
}
absl::StatusOr<api::Attachment> ReadAttachment(const v1::Envelope& envelope) {
  TESSERA_ASSIGN_OR_RETURN(
      api::Attachment attachment,
      OpenOne<api::Attachment>(envelope, "executor: the first report is not an Attachment"));
  attachment.executor = envelope.executor();
  attachment.incarnation = envelope.incarnation();
  return attachment;
}

std::optional<api::ReportBody> FailureReportFor(const v1::Envelope& envelope,
                                                const absl::Status& why) {
  switch (envelope.kind()) {
    case v1::MESSAGE_KIND_LAUNCH:
    case v1::MESSAGE_KIND_TRANSFER:
    case v1::MESSAGE_KIND_SAVE_SHARDS:
    case v1::MESSAGE_KIND_LOAD_SHARDS:
      return api::LaunchFailed{envelope.launch(), why};
    case v1::MESSAGE_KIND_LOAD_PROGRAM: {
      v1::LoadProgram load;
      load.ParseFromString(envelope.body());
      return api::ProgramLoaded{load.executable(), why, 0};
    }
    case v1::MESSAGE_KIND_WRITE_BUFFER: {
      v1::WriteBuffer write;
      write.ParseFromString(envelope.body());
      return api::BufferWritten{write.array(), write.device(), why};
    }
    default:
      return std::nullopt;
  }
}

}  // namespace tessera::ir::serial
