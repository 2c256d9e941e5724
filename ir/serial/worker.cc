#include "ir/serial/worker.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/status.h"

namespace tessera::ir::serial {
namespace {

constexpr size_t kNameMax = 128;
constexpr int kExecutorsMax = 1024;
constexpr int kDevicesMax = 65'536;
constexpr int64_t kRelayBytesMax = int64_t{1} << 31;

absl::Status Bad(const std::string& what) { return MakeError(ErrorKind::kValueError, what); }

bool IsName(const std::string& s) {
  return !s.empty() && s.size() <= kNameMax &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isgraph(c); });
}

template <class T>
std::vector<T> VectorOf(const google::protobuf::RepeatedField<T>& field) {
  return {field.begin(), field.end()};
}

absl::Duration TimeoutOf(bool present, const google::protobuf::Duration& proto) {
  return present ? FromProto(proto) : absl::InfiniteDuration();
}

// One overload per alternative of Command.
void Write(const api::ConfigureCommunicator& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_configure_communicator();
  p->set_generation(c.generation);
  for (const auto& m : c.members) {
    auto* member = p->add_members();
    member->set_executor(m.executor);
    member->set_incarnation(m.incarnation);
    member->set_endpoint(m.endpoint);
    member->set_num_devices(m.num_devices);
  }
  p->set_self(c.self);
  p->set_secret(c.secret);
}
void Write(const api::CloseCommunicator& c, v1::WorkerCommand* out) {
  out->mutable_close_communicator()->set_generation(c.generation);
}
void Write(const api::LoadProgram& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_load_program();
  p->set_executable(c.executable);
  p->set_name(c.name);
  *p->mutable_program() = ToProto(c.program);
  for (const auto& k : c.coordinates) {
    auto* coordinate = p->add_coordinates();
    coordinate->set_member(k.member);
    coordinate->set_device(k.device);
  }
  p->set_self(c.self);
}
void Write(const api::UnloadPrograms& c, v1::WorkerCommand* out) {
  out->mutable_unload_programs()->mutable_executables()->Assign(c.executables.begin(),
                                                                c.executables.end());
}
void Write(const api::Launch& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_launch();
  p->set_launch(c.launch);
  p->set_sequence(c.sequence);
  p->set_executable(c.executable);
  p->set_generation(c.generation);
  p->mutable_args()->Assign(c.args.begin(), c.args.end());
  p->mutable_results()->Assign(c.results.begin(), c.results.end());
  for (bool d : c.donate) p->add_donate(d);
  if (c.timeout < absl::InfiniteDuration()) *p->mutable_timeout() = ToProto(c.timeout);
  for (const api::Launch::InlineResult& r : c.inline_results) {
    auto* wanted = p->add_inline_results();
    wanted->set_result(r.result);
    wanted->set_device(r.device);
  }
}
void Write(const api::Transfer& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_transfer();
  p->set_launch(c.launch);
  p->set_sequence(c.sequence);
  p->set_result(c.result);
  p->set_dtype(std::string(DTypeName(c.dtype)));
  p->mutable_local_shape()->Assign(c.local_shape.begin(), c.local_shape.end());
  for (const auto& s : c.shards) {
    auto* shard = p->add_shards();
    shard->set_device(s.device);
    for (const auto& x : s.pieces) {
      auto* piece = shard->add_pieces();
      piece->set_local(x.local);
      piece->set_source(x.source);
      piece->set_source_device(x.source_device);
      piece->set_endpoint(x.endpoint);
      piece->set_ticket(x.ticket);
      piece->mutable_source_starts()->Assign(x.source_starts.begin(), x.source_starts.end());
      piece->mutable_dest_starts()->Assign(x.dest_starts.begin(), x.dest_starts.end());
      piece->mutable_shape()->Assign(x.shape.begin(), x.shape.end());
    }
  }
  if (c.timeout < absl::InfiniteDuration()) *p->mutable_timeout() = ToProto(c.timeout);
}
void Write(const api::WriteBuffer& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_write_buffer();
  p->set_array(c.array);
  p->set_device(c.device);
  *p->mutable_value() = ToProto(c.value);
}
void Write(const api::ReadBuffer& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_read_buffer();
  p->set_request(c.request);
  p->set_array(c.array);
  p->set_device(c.device);
}
void Write(const api::DeleteBuffers& c, v1::WorkerCommand* out) {
  out->mutable_delete_buffers()->mutable_arrays()->Assign(c.arrays.begin(), c.arrays.end());
}
void Write(const api::CancelLaunch& c, v1::WorkerCommand* out) {
  out->mutable_cancel_launch()->set_launch(c.launch);
  *out->mutable_cancel_launch()->mutable_why() = ToProto(c.why);
}
void Write(const api::Drain&, v1::WorkerCommand* out) { out->mutable_drain(); }
void Write(const api::KillExecutor& c, v1::WorkerCommand* out) {
  out->mutable_kill_executor()->set_reason(c.reason);
}

template <class Proto>
void WriteFileArrays(const std::vector<api::FileArray>& arrays, Proto* out) {
  for (const api::FileArray& a : arrays) {
    v1::FileArray* array = out->add_arrays();
    array->set_name(a.name);
    array->set_dtype(std::string(DTypeName(a.dtype)));
    array->mutable_shape()->Assign(a.shape.begin(), a.shape.end());
  }
}
template <class Proto>
void WriteFileShards(const std::vector<api::FileShard>& shards, Proto* out) {
  for (const api::FileShard& s : shards) {
    v1::FileShard* shard = out->add_shards();
    shard->set_index(s.index);
    shard->set_array(s.array);
    shard->set_device(s.device);
    shard->mutable_starts()->Assign(s.starts.begin(), s.starts.end());
    shard->mutable_shape()->Assign(s.shape.begin(), s.shape.end());
  }
}
template <class Proto>
absl::StatusOr<std::vector<api::FileArray>> ReadFileArrays(const Proto& proto,
                                                           const Limits& limits) {
  std::vector<api::FileArray> arrays;
  if (proto.arrays_size() > static_cast<int>(api::kFileArraysMax))
    return Bad("file: too many arrays");
  for (const v1::FileArray& p : proto.arrays()) {
    api::FileArray& a = arrays.emplace_back();
    if (p.name().size() > api::kFileNameBytesMax) return Bad("file: an array's name is too long");
    a.name = p.name();
    TESSERA_ASSIGN_OR_RETURN(a.dtype, DTypeFromName(p.dtype()));
    TESSERA_ASSIGN_OR_RETURN(a.shape, DimsFrom(p.shape(), a.dtype, limits));
  }
  return arrays;
}
// Requires: `arrays` are those that the shards' indices are into.
template <class Proto>
absl::StatusOr<std::vector<api::FileShard>> ReadFileShards(
    const Proto& proto, const std::vector<api::FileArray>& arrays, const Limits& limits) {
  std::vector<api::FileShard> shards;
  for (const v1::FileShard& p : proto.shards()) {
    if (p.index() < 0 || p.index() >= static_cast<int>(arrays.size()))
      return Bad("file: a shard is of no array of the file");
    const api::FileArray& array = arrays[p.index()];
    api::FileShard s{p.index(), p.array(), p.device(), VectorOf(p.starts()), {}};
    TESSERA_ASSIGN_OR_RETURN(s.shape, DimsFrom(p.shape(), array.dtype, limits));
    bool inside = s.starts.size() == array.shape.size() && s.shape.size() == array.shape.size();
    for (size_t d = 0; inside && d < s.shape.size(); ++d)
      inside = s.starts[d] >= 0 && s.starts[d] <= array.shape[d] - s.shape[d];
    if (!inside) return Bad("file: a block does not lie inside its array");
    shards.push_back(std::move(s));
  }
  return shards;
}

void Write(const api::SaveShards& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_save_shards();
  p->set_launch(c.launch);
  p->set_sequence(c.sequence);
  p->set_path(c.path);
  p->set_token(c.token);
  p->set_overwrite(c.overwrite);
  p->set_part(c.part);
  p->set_parts(c.parts);
  WriteFileArrays(c.arrays, p);
  WriteFileShards(c.shards, p);
  if (c.timeout < absl::InfiniteDuration()) *p->mutable_timeout() = ToProto(c.timeout);
}
void Write(const api::LoadShards& c, v1::WorkerCommand* out) {
  auto* p = out->mutable_load_shards();
  p->set_launch(c.launch);
  p->set_path(c.path);
  WriteFileArrays(c.arrays, p);
  WriteFileShards(c.shards, p);
  if (c.timeout < absl::InfiniteDuration()) *p->mutable_timeout() = ToProto(c.timeout);
}
void Write(const api::InspectFile& c, v1::WorkerCommand* out) {
  out->mutable_inspect_file()->set_request(c.request);
  out->mutable_inspect_file()->set_path(c.path);
}

absl::StatusOr<api::Command> ReadSaveShards(const v1::SaveShards& p, const Limits& limits) {
  api::SaveShards c;
  c.launch = p.launch();
  c.sequence = p.sequence();
  c.path = p.path();
  c.token = p.token();
  c.overwrite = p.overwrite();
  c.part = p.part();
  c.parts = p.parts();
  if (c.part < 0 || c.part >= c.parts || c.parts > kExecutorsMax)
    return Bad(absl::StrCat("save: part ", c.part, " of ", c.parts));
  TESSERA_ASSIGN_OR_RETURN(c.arrays, ReadFileArrays(p, limits));
  TESSERA_ASSIGN_OR_RETURN(c.shards, ReadFileShards(p, c.arrays, limits));
  c.timeout = TimeoutOf(p.has_timeout(), p.timeout());
  return api::Command(std::move(c));
}
absl::StatusOr<api::Command> ReadLoadShards(const v1::LoadShards& p, const Limits& limits) {
  api::LoadShards c;
  c.launch = p.launch();
  c.path = p.path();
  TESSERA_ASSIGN_OR_RETURN(c.arrays, ReadFileArrays(p, limits));
  TESSERA_ASSIGN_OR_RETURN(c.shards, ReadFileShards(p, c.arrays, limits));
  c.timeout = TimeoutOf(p.has_timeout(), p.timeout());
  return api::Command(std::move(c));
}

absl::StatusOr<api::Command> ReadLoadProgram(const v1::LoadProgram& p, const Limits& limits) {
  api::LoadProgram c;
  c.executable = p.executable();
  c.name = p.name();
  TESSERA_ASSIGN_OR_RETURN(c.program, FromProto(p.program(), limits));
  if (p.coordinates_size() != c.program.mesh().num_devices())
    return Bad(absl::StrCat("load: ", p.coordinates_size(), " coordinates for a mesh of ",
                            c.program.mesh().num_devices(), " devices"));
  for (const auto& k : p.coordinates()) {
    if (k.member() < 0 || k.device() < 0) return Bad("load: a coordinate is negative");
    c.coordinates.push_back({k.member(), k.device()});
  }
  c.self = p.self();
  return api::Command(std::move(c));
}

absl::StatusOr<api::Command> ReadTransfer(const v1::Transfer& p, const Limits& limits) {
  api::Transfer c;
  c.launch = p.launch();
  c.sequence = p.sequence();
  c.result = p.result();
  TESSERA_ASSIGN_OR_RETURN(c.dtype, DTypeFromName(p.dtype()));
  TESSERA_ASSIGN_OR_RETURN(c.local_shape, DimsFrom(p.local_shape(), c.dtype, limits));
  const int rank = static_cast<int>(c.local_shape.size());
  for (const auto& s : p.shards()) {
    api::Transfer::Shard shard;
    shard.device = s.device();
    for (const auto& x : s.pieces()) {
      api::Transfer::Piece piece{.local = x.local(),
                                 .source = x.source(),
                                 .source_device = x.source_device(),
                                 .endpoint = x.endpoint(),
                                 .ticket = x.ticket(),
                                 .source_starts = VectorOf(x.source_starts()),
                                 .dest_starts = VectorOf(x.dest_starts()),
                                 .shape = {}};
      TESSERA_ASSIGN_OR_RETURN(piece.shape, DimsFrom(x.shape(), c.dtype, limits));
      if (x.source_starts_size() != rank || x.dest_starts_size() != rank || x.shape_size() != rank)
        return Bad("transfer: a piece has another rank than the array");
      for (int d = 0; d < rank; ++d)
        if (piece.source_starts[d] < 0 || piece.dest_starts[d] < 0 ||
            piece.dest_starts[d] > c.local_shape[d] - piece.shape[d])
          return Bad("transfer: a piece does not lie inside the shard");
      shard.pieces.push_back(std::move(piece));
    }
    c.shards.push_back(std::move(shard));
  }
  c.timeout = TimeoutOf(p.has_timeout(), p.timeout());
  return api::Command(std::move(c));
}

void Write(const api::ExecutorInfo& info, v1::ExecutorInfo* out) {
  out->set_index(info.index);
  out->set_incarnation(info.incarnation);
  out->set_device_kind(info.device_kind);
  out->set_num_devices(info.num_devices);
  out->set_data_endpoint(info.data_endpoint);
  out->set_peer_endpoint(info.peer_endpoint);
  out->set_peer_data_endpoint(info.peer_data_endpoint);
  out->set_memory_bytes(info.memory_bytes);
  out->set_files(info.files);
  out->set_files_folder(info.files_folder);
}

absl::StatusOr<api::ExecutorInfo> ReadExecutor(const v1::ExecutorInfo& p) {
  if (p.index() < 0 || p.index() >= kExecutorsMax)
    return Bad(absl::StrCat("executor: index ", p.index(), " is not in 0..", kExecutorsMax - 1));
  if (p.incarnation() == 0) return Bad("executor: incarnation 0 is not one");
  if (!IsName(p.device_kind())) return Bad("executor: device_kind is not a printable name");
  if (p.num_devices() < 1 || p.num_devices() > kDevicesMax)
    return Bad(absl::StrCat("executor: ", p.num_devices(), " devices, 1 to ", kDevicesMax,
                            " are accepted"));
  if (p.data_endpoint().size() > 4 * kNameMax || p.peer_endpoint().size() > 4 * kNameMax ||
      p.peer_data_endpoint().size() > 4 * kNameMax)
    return Bad("executor: an endpoint is too long");
  if (p.files_folder().size() > kNameMax) return Bad("executor: files_folder is too long");
  return api::ExecutorInfo{.index = p.index(),
                           .incarnation = p.incarnation(),
                           .device_kind = p.device_kind(),
                           .num_devices = p.num_devices(),
                           .data_endpoint = p.data_endpoint(),
                           .peer_endpoint = p.peer_endpoint(),
                           .peer_data_endpoint = p.peer_data_endpoint(),
                           .memory_bytes = std::max<int64_t>(p.memory_bytes(), 0),
                           .files = p.files(),
                           .files_folder = p.files_folder()};
}

// One overload per alternative of ReportBody.
void Write(const api::Heartbeat& b, v1::WorkerReport* out) {
  auto* const heartbeat = out->mutable_heartbeat();
  for (const api::Heartbeat::Executor& x : b.executors) {
    auto* const to = heartbeat->add_executors();
    to->set_executor(x.executor);
    *to->mutable_progress_age() = ToProto(x.progress_age);
    *to->mutable_silence() = ToProto(x.silence);
    to->set_launch(x.launch);
    to->set_op(x.op);
    to->set_waiting(x.waiting);
  }
}
void Write(const api::CommunicatorReady& r, v1::WorkerReport* out) {
  out->mutable_communicator_ready()->set_generation(r.generation);
  if (!r.status.ok()) *out->mutable_communicator_ready()->mutable_status() = ToProto(r.status);
}
void Write(const api::ProgramLoaded& r, v1::WorkerReport* out) {
  out->mutable_program_loaded()->set_executable(r.executable);
  if (!r.status.ok()) *out->mutable_program_loaded()->mutable_status() = ToProto(r.status);
  out->mutable_program_loaded()->set_memory_bytes(r.memory_bytes);
}
void Write(const api::LaunchDone& r, v1::WorkerReport* out) {
  out->mutable_launch_done()->set_launch(r.launch);
  *out->mutable_launch_done()->mutable_run_time() = ToProto(r.run_time);
  for (const api::LaunchDone::InlineResult& i : r.inline_results) {
    auto* shard = out->mutable_launch_done()->add_inline_results();
    shard->set_array(i.array);
    shard->set_device(i.device);
    *shard->mutable_value() = ToProto(i.value);
  }
}
void Write(const api::LaunchFailed& r, v1::WorkerReport* out) {
  out->mutable_launch_failed()->set_launch(r.launch);
  *out->mutable_launch_failed()->mutable_status() = ToProto(r.status);
  out->mutable_launch_failed()->set_inputs_kept(r.inputs_kept);
}
void Write(const api::BufferWritten& r, v1::WorkerReport* out) {
  out->mutable_buffer_written()->set_array(r.array);
  out->mutable_buffer_written()->set_device(r.device);
  if (!r.status.ok()) *out->mutable_buffer_written()->mutable_status() = ToProto(r.status);
}
void Write(const api::BufferRead& r, v1::WorkerReport* out) {
  out->mutable_buffer_read()->set_request(r.request);
  if (r.value.ok()) {
    *out->mutable_buffer_read()->mutable_value() = ToProto(*r.value);
  } else {
    *out->mutable_buffer_read()->mutable_status() = ToProto(r.value.status());
  }
}
void Write(const api::ExecutorLost& r, v1::WorkerReport* out) {
  out->mutable_executor_lost()->set_reason(r.reason);
  out->mutable_executor_lost()->set_launch(r.launch);
  out->mutable_executor_lost()->set_op(r.op);
}
void Write(const api::FileInspected& r, v1::WorkerReport* out) {
  auto* p = out->mutable_file_inspected();
  p->set_request(r.request);
  if (r.arrays.ok()) {
    WriteFileArrays(*r.arrays, p);
  } else {
    *p->mutable_status() = ToProto(r.arrays.status());
  }
}
void Write(const api::ExecutorReady& r, v1::WorkerReport* out) {
  Write(r.info, out->mutable_executor_ready()->mutable_info());
}

}  // namespace

v1::WorkerCommand ToProto(int32_t executor, uint64_t incarnation, const api::Command& command) {
  v1::WorkerCommand out;
  out.set_executor(executor);
  out.set_incarnation(incarnation);
  std::visit([&](const auto& c) { Write(c, &out); }, command);
  return out;
}

absl::StatusOr<api::Command> FromProto(const v1::WorkerCommand& proto, const Limits& limits) {
  switch (proto.command_case()) {
    case v1::WorkerCommand::kConfigureCommunicator: {
      const auto& p = proto.configure_communicator();
      api::ConfigureCommunicator c{
          .generation = p.generation(), .members = {}, .self = p.self(), .secret = p.secret()};
      for (const auto& m : p.members())
        c.members.push_back({m.executor(), m.incarnation(), m.endpoint(), m.num_devices()});
      if (c.self < 0 || c.self >= p.members_size())
        return Bad("communicator: self is not one of the members");
      return api::Command(std::move(c));
    }
    case v1::WorkerCommand::kCloseCommunicator:
      return api::Command(api::CloseCommunicator{proto.close_communicator().generation()});
    case v1::WorkerCommand::kLoadProgram:
      return ReadLoadProgram(proto.load_program(), limits);
    case v1::WorkerCommand::kUnloadPrograms:
      return api::Command(api::UnloadPrograms{VectorOf(proto.unload_programs().executables())});
    case v1::WorkerCommand::kLaunch: {
      const auto& p = proto.launch();
      api::Launch c{.launch = p.launch(),
                    .sequence = p.sequence(),
                    .executable = p.executable(),
                    .generation = p.generation(),
                    .args = VectorOf(p.args()),
                    .results = VectorOf(p.results()),
                    .donate = {p.donate().begin(), p.donate().end()},
                    .timeout = TimeoutOf(p.has_timeout(), p.timeout())};
      for (const auto& r : p.inline_results()) {
        if (r.result() < 0 || r.result() >= p.results_size())
          return Bad("launch: an inline result is not one of the results");
        c.inline_results.push_back({r.result(), r.device()});
      }
      return api::Command(std::move(c));
    }
    case v1::WorkerCommand::kTransfer:
      return ReadTransfer(proto.transfer(), limits);
    case v1::WorkerCommand::kWriteBuffer: {
      const auto& p = proto.write_buffer();
      api::WriteBuffer c{.array = p.array(), .device = p.device(), .value = {}};
      TESSERA_ASSIGN_OR_RETURN(c.value, FromProto(p.value(), kRelayBytesMax, limits));
      return api::Command(std::move(c));
    }
    case v1::WorkerCommand::kReadBuffer: {
      const auto& p = proto.read_buffer();
      return api::Command(api::ReadBuffer{p.request(), p.array(), p.device()});
    }
    case v1::WorkerCommand::kDeleteBuffers:
      return api::Command(api::DeleteBuffers{VectorOf(proto.delete_buffers().arrays())});
    case v1::WorkerCommand::kCancelLaunch:
      return api::Command(api::CancelLaunch{proto.cancel_launch().launch(),
                                            FromProto(proto.cancel_launch().why())});
    case v1::WorkerCommand::kDrain:
      return api::Command(api::Drain{});
    case v1::WorkerCommand::kKillExecutor:
      return api::Command(api::KillExecutor{proto.kill_executor().reason()});
    case v1::WorkerCommand::kSaveShards:
      return ReadSaveShards(proto.save_shards(), limits);
    case v1::WorkerCommand::kLoadShards:
      return ReadLoadShards(proto.load_shards(), limits);
    case v1::WorkerCommand::kInspectFile:
      return api::Command(
          api::InspectFile{proto.inspect_file().request(), proto.inspect_file().path()});
    case v1::WorkerCommand::kWelcome:
    case v1::WorkerCommand::COMMAND_NOT_SET:
      break;
  }
  return Bad("worker command: it is empty, or of a kind this worker does not know");
}

v1::WorkerReport ToProto(const api::Report& report) {
  v1::WorkerReport out;
  out.set_executor(report.executor);
  out.set_incarnation(report.incarnation);
  std::visit([&](const auto& r) { Write(r, &out); }, report.body);
  return out;
}

absl::StatusOr<api::Report> FromProto(const v1::WorkerReport& proto, const Limits& limits) {
  api::Report out;
  out.executor = proto.executor();
  out.incarnation = proto.incarnation();
  switch (proto.report_case()) {
    case v1::WorkerReport::kHeartbeat: {
      api::Heartbeat beat;
      for (const auto& x : proto.heartbeat().executors())
        beat.executors.push_back({x.executor(), FromProto(x.progress_age()), FromProto(x.silence()),
                                  x.launch(), x.op(), x.waiting()});
      out.body = std::move(beat);
      return out;
    }
    case v1::WorkerReport::kCommunicatorReady:
      out.body = api::CommunicatorReady{proto.communicator_ready().generation(),
                                        FromProto(proto.communicator_ready().status())};
      return out;
    case v1::WorkerReport::kProgramLoaded:
      out.body = api::ProgramLoaded{proto.program_loaded().executable(),
                                    FromProto(proto.program_loaded().status()),
                                    proto.program_loaded().memory_bytes()};
      return out;
    case v1::WorkerReport::kLaunchDone: {
      api::LaunchDone r{proto.launch_done().launch(), FromProto(proto.launch_done().run_time())};
      for (const auto& i : proto.launch_done().inline_results()) {
        TESSERA_ASSIGN_OR_RETURN(Array value, FromProto(i.value(), kRelayBytesMax, limits));
        r.inline_results.push_back({i.array(), i.device(), std::move(value)});
      }
      out.body = std::move(r);
      return out;
    }
    case v1::WorkerReport::kLaunchFailed: {
      absl::Status status = FromProto(proto.launch_failed().status());
      if (status.ok()) status = absl::UnknownError("the worker gave no reason");
      out.body = api::LaunchFailed{proto.launch_failed().launch(), std::move(status),
                                   proto.launch_failed().inputs_kept()};
      return out;
    }
    case v1::WorkerReport::kBufferWritten:
      out.body = api::BufferWritten{proto.buffer_written().array(), proto.buffer_written().device(),
                                    FromProto(proto.buffer_written().status())};
      return out;
    case v1::WorkerReport::kBufferRead: {
      api::BufferRead r;
      r.request = proto.buffer_read().request();
      if (absl::Status status = FromProto(proto.buffer_read().status()); !status.ok()) {
        r.value = std::move(status);
      } else {
        r.value = FromProto(proto.buffer_read().value(), kRelayBytesMax, limits);
      }
      out.body = std::move(r);
      return out;
    }
    case v1::WorkerReport::kExecutorLost:
      out.body = api::ExecutorLost{proto.executor_lost().reason().substr(0, 1024),
                                   proto.executor_lost().launch(),
                                   proto.executor_lost().op().substr(0, 1024)};
      return out;
    case v1::WorkerReport::kExecutorReady: {
      TESSERA_ASSIGN_OR_RETURN(api::ExecutorInfo info, ReadExecutor(proto.executor_ready().info()));
      out.body = api::ExecutorReady{std::move(info)};
      return out;
    }
    case v1::WorkerReport::kFileInspected: {
      api::FileInspected r;
      r.request = proto.file_inspected().request();
      if (absl::Status status = FromProto(proto.file_inspected().status()); !status.ok()) {
        r.arrays = std::move(status);
      } else {
        r.arrays = ReadFileArrays(proto.file_inspected(), limits);
      }
      out.body = std::move(r);
      return out;
    }
    case v1::WorkerReport::kRegistration:
    case v1::WorkerReport::REPORT_NOT_SET:
      break;
  }
  return Bad("worker report: it is empty, or of a kind this coordinator does not know");
}

v1::Registration ToProto(const api::Registration& registration) {
  v1::Registration out;
  out.set_worker(registration.worker);
  out.set_host(registration.host);
  out.set_opset(registration.opset);
  out.set_host_memory_bytes(registration.host_memory_bytes);
  for (const api::ExecutorInfo& e : registration.executors) Write(e, out.add_executors());
  return out;
}

absl::StatusOr<api::Registration> FromProto(const v1::Registration& proto) {
  if (!IsName(proto.worker()) || proto.worker().find('/') != std::string::npos)
    return Bad("registration: the worker's name is empty, too long or holds '/' or blanks");
  if (!IsName(proto.host())) return Bad("registration: host is not a printable name");
  if (proto.executors().empty() || proto.executors_size() > kExecutorsMax)
    return Bad(absl::StrCat("registration: ", proto.executors_size(), " executors, 1 to ",
                            kExecutorsMax, " are accepted"));
  api::Registration out{.worker = proto.worker(),
                        .host = proto.host(),
                        .opset = proto.opset(),
                        .executors = {},
                        .host_memory_bytes = std::max<int64_t>(proto.host_memory_bytes(), 0)};
  std::set<int32_t> seen;
  for (const v1::ExecutorInfo& e : proto.executors()) {
    TESSERA_ASSIGN_OR_RETURN(api::ExecutorInfo info, ReadExecutor(e));
    if (!seen.insert(info.index).second)
      return Bad(absl::StrCat("registration: executor ", info.index, " is given twice"));
    out.executors.push_back(std::move(info));
  }
  return out;
}

v1::Welcome ToProto(const api::Welcome& welcome) {
  v1::Welcome out;
  out.set_session(welcome.session);
  out.set_epoch(welcome.epoch);
  *out.mutable_heartbeat() = ToProto(welcome.heartbeat);
  *out.mutable_lease() = ToProto(welcome.lease);
  out.set_ticket_key(welcome.ticket_key);
  *out.mutable_clock() = ToProto(welcome.clock - absl::UnixEpoch());
  return out;
}

api::Welcome FromProto(const v1::Welcome& proto) {
  return {.session = proto.session(),
          .epoch = proto.epoch(),
          .heartbeat = FromProto(proto.heartbeat()),
          .lease = FromProto(proto.lease()),
          .ticket_key = proto.ticket_key(),
          .clock = absl::UnixEpoch() + FromProto(proto.clock())};
}

}  // namespace tessera::ir::serial
