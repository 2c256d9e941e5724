// Converts between the scheduler's records and their messages. The coordinator encodes the changed
// rows of each commit, and main.cc decodes all rows when it starts. Each TESSERA_FIELDS list below
// names members that are converted one to one; enums, variants and shared objects are converted by
// hand.
#include "server/rows/rows.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "ir/serial/fields.h"
#include "ir/serial/service.h"
#include "ir/serial/worker_fields.h"
#include "tessera/state/v1/rows.pb.h"

namespace tessera::ir::serial {

namespace s = server::scheduler;
namespace state = tessera::state::v1;

TESSERA_FIELDS(s::Session, state::Session, tenant, display_name, own, lease)
// The members spec, state and holders are converted by hand.
TESSERA_FIELDS(s::ArrayRecord, state::Array, tenant, session, error, deleted, donated_to)
TESSERA_FIELDS(s::Run, state::Run, executable, donate, originals)
TESSERA_FIELDS(s::Save, state::FileWork, path, overwrite, arrays, ordinals)
TESSERA_FIELDS(s::Load, state::FileWork, path, arrays)
// The members client_session_id, kind, state, work and outstanding are converted by hand. Times are
// stored as times of the wall clock, because each life has a clock of its own.
TESSERA_FIELDS(s::Operation, state::Operation, name, tenant, session, created, started, ended_at,
               error, args, results, deadline, time_allowed, sequence, generation, inputs_gone,
               peer_error)
TESSERA_FIELDS(server::core::PlanValue, state::PlanValue, dtype, shape, spec)
TESSERA_FIELDS(server::core::CollectiveSummary, state::CollectiveSummary, op, axes, count,
               bytes_per_device)
TESSERA_FIELDS(s::Executable, state::Executable, key, name, tenant, devices)
// The member device_program is converted by hand.
TESSERA_FIELDS(server::core::Plan, state::Executable, mesh, in, out, collectives,
               memory_bound_bytes, predicted_seconds, explain_text, explain_json)
TESSERA_FIELDS(s::NamedMesh, state::NamedMesh, mesh, devices)
TESSERA_FIELDS(s::Worker, state::Worker, host, host_memory_bytes, cordoned, cordon_reason, draining)
TESSERA_FIELDS(s::Executor, state::Executor, worker, host, info, first_device, lost_reason, fault,
               fault_accepted)
// The member call is converted by hand.
TESSERA_FIELDS(s::AnswerRecord, state::Answer, tenant, request_id, payload, made, arrays)

}  // namespace tessera::ir::serial

namespace tessera::server::rows {
namespace {

using core::RowKind;
namespace s = scheduler;
namespace serial = ir::serial;
namespace state = tessera::state::v1;

// The coordinator checked the limits before it stored a record, so records are read without limits.
const serial::ReadLimits kNoLimits = [] {
  serial::ReadLimits no;
  for (int64_t* limit : {&no.limits.ops, &no.limits.values_per_op, &no.limits.mesh_devices,
                         &no.limits.attr_bytes, &no.array_bytes_max})
    *limit = int64_t{1} << 40;  // small enough that adding to a limit does not overflow
  return no;
}();

// ---- Records -> messages. -----------------------------------------------------------------------
template <class T>
typename serial::Fields<T>::Proto MessageOf(const T& record) {
  return serial::Written(record);
}

state::Array MessageOf(const s::ArrayRecord& a) {
  state::Array out = serial::Written(a);
  *out.mutable_spec() = serial::ToProto(*a.spec);
  out.set_state(static_cast<int>(a.state));
  for (const auto& [device, incarnation] : a.holders) {
    state::Holder* const holder = out.add_holders();
    holder->set_device(device);
    holder->set_incarnation(incarnation);
  }
  return out;
}

void SetWork(const s::Run& work, state::Operation* out) {
  serial::WriteFields(work, out->mutable_run());
}
void SetWork(const s::Transfer&, state::Operation* out) { out->mutable_transfer(); }
void SetWork(const s::Save& work, state::Operation* out) {
  serial::WriteFields(work, out->mutable_save());
}
void SetWork(const s::Load& work, state::Operation* out) {
  serial::WriteFields(work, out->mutable_load());
}

state::Operation MessageOf(const s::Operation& record) {
  s::Operation op = record;
  for (absl::Time* time : {&op.created, &op.started, &op.ended_at, &op.deadline})
    *time += op.wall_ahead;
  state::Operation out = serial::Written(op);
  out.set_session_name(op.client_session_id);
  out.set_kind(static_cast<int>(op.kind));
  out.set_state(static_cast<int>(op.state));
  std::visit([&](const auto& work) { SetWork(work, &out); }, op.work);
  for (const auto& [executor, incarnation] : op.outstanding) {
    state::Outstanding* const outstanding = out.add_outstanding();
    outstanding->set_executor(executor);
    outstanding->set_incarnation(incarnation);
  }
  return out;
}

state::Executable MessageOf(const s::Executable& x) {
  state::Executable out = serial::Written(x);
  serial::WriteFields(*x.plan, &out);
  ir::Program program;
  program.entry = x.plan->device_program;
  *out.mutable_device_program() = serial::ToProto(program);
  return out;
}

state::Answer MessageOf(const s::AnswerRecord& a) {
  state::Answer out = serial::Written(a);
  out.set_call(static_cast<int>(a.call));
  return out;
}

state::Program MessageOf(const s::UploadedProgram& program) {
  state::Program out;
  out.set_bytes(*program.bytes);
  out.set_format(static_cast<int>(program.format));
  return out;
}

// ---- Messages -> records. -----------------------------------------------------------------------
template <class T>
absl::Status Read(const typename serial::Fields<T>::Proto& from, T* to) {
  return serial::ReadFields(from, kNoLimits, to);
}

template <class Enum>
absl::Status ReadEnum(int from, Enum last, Enum* to) {
  if (from < 0 || from > static_cast<int>(last))
    return absl::InvalidArgumentError(absl::StrCat(from, " is not a known value"));
  *to = static_cast<Enum>(from);
  return absl::OkStatus();
}

absl::Status Read(const state::Array& from, s::ArrayRecord* to) {
  TESSERA_RETURN_IF_ERROR(serial::ReadFields(from, kNoLimits, to));
  TESSERA_ASSIGN_OR_RETURN(api::ArraySpec spec, serial::FromProto(from.spec(), kNoLimits.limits));
  to->spec = std::make_shared<const api::ArraySpec>(std::move(spec));
  for (const state::Holder& holder : from.holders())
    to->holders[holder.device()] = holder.incarnation();
  TESSERA_RETURN_IF_ERROR(ReadEnum(from.state(), s::ArrayState::kLost, &to->state));
  // Earlier builds stored the error as "array 7 is lost ...". The record now begins with "lost".
  const std::string_view message = ToStd(to->error.message());
  const size_t lost = message.find(" is lost");
  if (to->state == s::ArrayState::kLost && lost != message.npos && message.rfind("array ", 0) == 0)
    to->error = MakeError(KindOf(to->error), std::string(message.substr(lost + 4)));
  return absl::OkStatus();
}

absl::Status ReadWork(const state::Operation& from, s::Work* to) {
  switch (from.work_case()) {
    case state::Operation::kRun:
      return serial::ReadFields(from.run(), kNoLimits, &to->emplace<s::Run>());
    case state::Operation::kTransfer:
      to->emplace<s::Transfer>();
      return absl::OkStatus();
    case state::Operation::kSave:
      return serial::ReadFields(from.save(), kNoLimits, &to->emplace<s::Save>());
    case state::Operation::kLoad:
      return serial::ReadFields(from.load(), kNoLimits, &to->emplace<s::Load>());
    case state::Operation::WORK_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("this release does not know the kind of operation");
}

absl::Status Read(const state::Operation& from, s::Operation* to) {
  TESSERA_RETURN_IF_ERROR(serial::ReadFields(from, kNoLimits, to));
  TESSERA_RETURN_IF_ERROR(ReadWork(from, &to->work));
  to->client_session_id = from.session_name();
  for (const state::Outstanding& outstanding : from.outstanding())
    to->outstanding[outstanding.executor()] = outstanding.incarnation();
  TESSERA_RETURN_IF_ERROR(ReadEnum(from.kind(), api::OperationKind::kLoad, &to->kind));
  return ReadEnum(from.state(), api::OperationState::kCancelled, &to->state);
}

absl::Status Read(const state::Answer& from, s::AnswerRecord* to) {
  TESSERA_RETURN_IF_ERROR(serial::ReadFields(from, kNoLimits, to));
  return ReadEnum(from.call(), s::CallKind::kDeleteProgram, &to->call);
}

absl::Status Read(const state::Executable& from, s::Executable* to) {
  TESSERA_RETURN_IF_ERROR(serial::ReadFields(from, kNoLimits, to));
  auto plan = std::make_shared<core::Plan>();
  TESSERA_RETURN_IF_ERROR(serial::ReadFields(from, kNoLimits, plan.get()));
  TESSERA_ASSIGN_OR_RETURN(const ir::Program program,
                           serial::FromProto(from.device_program(), kNoLimits.limits));
  plan->device_program = program.entry;
  to->plan = std::move(plan);
  return absl::OkStatus();
}

template <class T>
absl::Status ReadInto(const std::string& bytes, s::RowChange* row) {
  typename serial::Fields<T>::Proto message;
  if (!message.ParseFromString(bytes))
    return absl::InvalidArgumentError("the value is not a valid message");
  return Read(message, &row->record.emplace<T>());
}

// Reads the row's value into a record of its kind. The id of an operation and the name of an
// executor are only in the row's key, and are copied from there. Uploaded programs have no
// list of fields, because their bytes are shared and not copied.
absl::Status ReadRecord(const core::Row& from, s::RowChange* row) {
  switch (from.kind) {
    case RowKind::kSession:
      return ReadInto<s::Session>(*from.value, row);
    case RowKind::kArray:
      return ReadInto<s::ArrayRecord>(*from.value, row);
    case RowKind::kOperation:
      TESSERA_RETURN_IF_ERROR(ReadInto<s::Operation>(*from.value, row));
      std::get<s::Operation>(row->record).id = row->key.id;
      return absl::OkStatus();
    case RowKind::kExecutable:
      return ReadInto<s::Executable>(*from.value, row);
    case RowKind::kMesh:
      return ReadInto<s::NamedMesh>(*from.value, row);
    case RowKind::kWorker:
      return ReadInto<s::Worker>(*from.value, row);
    case RowKind::kExecutor:
      TESSERA_RETURN_IF_ERROR(ReadInto<s::Executor>(*from.value, row));
      std::get<s::Executor>(row->record).name = row->key.name;
      return absl::OkStatus();
    case RowKind::kAnswer:
      return ReadInto<s::AnswerRecord>(*from.value, row);
    case RowKind::kProgram: {
      state::Program message;
      if (!message.ParseFromString(*from.value))
        return absl::InvalidArgumentError("the value is not a valid message");
      s::UploadedProgram program{
          std::make_shared<const std::string>(std::move(*message.mutable_bytes()))};
      TESSERA_RETURN_IF_ERROR(
          ReadEnum(message.format(), s::ProgramFormat::kStablehlo, &program.format));
      row->record = std::move(program);
      break;
    }
  }
  return absl::OkStatus();
}

bool HasId(RowKind kind) {
  return kind == RowKind::kSession || kind == RowKind::kArray || kind == RowKind::kOperation ||
         kind == RowKind::kExecutable || kind == RowKind::kAnswer;
}

}  // namespace

std::vector<core::Row> Encode(const std::vector<scheduler::RowChange>& changes) {
  std::vector<core::Row> rows;
  rows.reserve(changes.size());
  for (const scheduler::RowChange& change : changes) {
    core::Row& row = rows.emplace_back();
    row.kind = change.key.kind;
    row.key = HasId(row.kind) ? core::IdKey(change.key.id) : change.key.name;
    std::visit(
        [&](const auto& record) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(record)>, std::monostate>)
            row.value = MessageOf(record).SerializeAsString();
        },
        change.record);
    if (row.value && row.value->size() > core::kRowValueBytesMax) {
      TESSERA_LOG(WARNING) << "a record is too large to be kept over a restart"
                           << Field("kind", ToAbsl(core::NameOf(row.kind)))
                           << Field("id", change.key.id) << Field("bytes", row.value->size());
      rows.pop_back();
    }
  }
  return rows;
}

absl::StatusOr<std::vector<scheduler::RowChange>> Decode(const std::vector<core::Row>& rows) {
  std::vector<scheduler::RowChange> changes;
  changes.reserve(rows.size());
  for (const core::Row& row : rows) {
    if (!row.value) continue;
    scheduler::RowChange& change = changes.emplace_back();
    change.key.kind = row.kind;
    absl::Status read;
    if (!HasId(row.kind)) {
      change.key.name = row.key;
    } else if (const auto id = core::IdOfKey(row.key)) {
      change.key.id = *id;
    } else {
      read = absl::InvalidArgumentError("the key is not an id");
    }
    read.Update(ReadRecord(row, &change));
    if (!read.ok())
      return MakeError(ErrorKind::kStoreFailed,
                       absl::StrCat("state: a row of ", ToAbsl(core::NameOf(row.kind)), " (key ",
                                    absl::CHexEscape(row.key), ") cannot be read: ", read.message(),
                                    "; restore a backup, or start the release that wrote it"));
  }
  return changes;
}

core::Row RowOf(const core::KnownExecutor& known) {
  scheduler::Executor executor;
  executor.worker = known.worker;
  executor.info.index = known.index;
  executor.info.num_devices = known.num_devices;
  executor.info.device_kind = known.device_kind;
  executor.first_device = known.first_device;
  scheduler::RowChange change;
  change.key.kind = RowKind::kExecutor;
  change.key.name = scheduler::ExecutorName(known.worker, known.index);
  change.record = std::move(executor);
  return std::move(Encode({std::move(change)})[0]);
}

}  // namespace tessera::server::rows
