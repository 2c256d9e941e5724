// Both sides of the jail's protocol. RPC handlers and the scheduler's planner threads call the
// parent side (JailedReader), which sends a request through the pool to a jailed process and checks
// the reply. The jailed process runs the second half of this file.
#include "server/jail/jailed_reader.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status.h"
#include "ir/serial/program.h"
#include "ir/serial/source.h"
#include "ir/serial/status.h"
#include "server/core/caller.h"
#include "server/jail/wire.h"

namespace tessera::server::jail {
namespace {

// Returns limits for the device program of a program that is within `limits`. A device program may
// be several times as long as the program.
ir::Limits DeviceProgramLimits(ir::Limits limits) {
  limits.ops *= 16;
  limits.values_per_op *= 16;
  return limits;
}

using Form = api::ProgramSource::Form;

wire::SourceFormat ToProto(Form form) {
  switch (form) {
    case Form::kText:
      return wire::SOURCE_FORMAT_TEXT;
    case Form::kStablehlo:
      return wire::SOURCE_FORMAT_STABLEHLO;
    case Form::kMessage:
      break;
  }
  return wire::SOURCE_FORMAT_PROGRAM;
}

api::ProgramSource FromProto(const wire::Source& proto) {
  const Form form = proto.format() == wire::SOURCE_FORMAT_TEXT        ? Form::kText
                    : proto.format() == wire::SOURCE_FORMAT_STABLEHLO ? Form::kStablehlo
                                                                      : Form::kMessage;
  return {form, proto.data()};
}

// Returns the bytes of a request about the source. `field` selects the kind of request.
std::string SerializeRequest(wire::Source* (wire::Request::*field)(),
                             const api::ProgramSource& source, const ir::Limits& limits) {
  wire::Request request;
  *request.mutable_limits() = jail::ToProto(limits);
  wire::Source& to = *(request.*field)();
  to.set_format(ToProto(source.form));
  to.set_data(source.bytes.data(), source.bytes.size());
  return request.SerializeAsString();
}

// Parses the jailed process's reply, which may itself contain an error.
absl::StatusOr<wire::Reply> ParseReply(const absl::StatusOr<std::string>& bytes) {
  TESSERA_RETURN_IF_ERROR(bytes);
  wire::Reply reply;
  if (!reply.ParseFromString(*bytes))
    return MakeError(ErrorKind::kInternal,
                     "the process for programs sent a reply that is not a valid message");
  return reply;
}

// Returns the error that the reply contains, or OK.
absl::Status StatusOf(const wire::Reply& reply) {
  return reply.has_status() ? ir::serial::FromProto(reply.status()) : absl::OkStatus();
}

// Parses the jailed process's reply, and returns the error that it contains, if any.
absl::StatusOr<wire::Reply> ReadReply(const absl::StatusOr<std::string>& bytes) {
  TESSERA_ASSIGN_OR_RETURN(wire::Reply reply, ParseReply(bytes));
  TESSERA_RETURN_IF_ERROR(StatusOf(reply));
  return reply;
}

}  // namespace

// ---- The parent process. ------------------------------------------------------------------------
absl::Status JailedReader::Check() {
  wire::Request request;
  request.mutable_ping();
  return ReadReply(pool_.Call(core::kSystemTenant, {"", "start"}, request.SerializeAsString(),
                              absl::InfiniteFuture()))
      .status();
}

absl::StatusOr<ir::Program> JailedReader::Read(const std::string& tenant,
                                               const api::ProgramSource& source,
                                               absl::Time deadline) {
  const std::string request = SerializeRequest(&wire::Request::mutable_read, source, limits_);
  TESSERA_ASSIGN_OR_RETURN(
      const wire::Reply reply,
      ReadReply(pool_.Call(tenant, {source.bytes, "read"}, request, deadline)));
  // If the source is a message (a serialized Program), the coordinator now reads it again itself,
  // as it would without a jail. The jailed process has read the same bytes without a crash.
  if (source.form == Form::kMessage) return ir::serial::ReadSource(source, limits_);
  return ir::serial::FromProto(reply.program(), limits_);
}

absl::StatusOr<std::string> JailedReader::Inspect(const std::string& tenant,
                                                  const api::ProgramSource& source,
                                                  absl::Time deadline) {
  const std::string request = SerializeRequest(&wire::Request::mutable_inspect, source, limits_);
  TESSERA_ASSIGN_OR_RETURN(
      const wire::Reply reply,
      ReadReply(pool_.Call(tenant, {source.bytes, "inspect"}, request, deadline)));
  return reply.inspection().SerializeAsString();
}

absl::StatusOr<core::Plan> JailedReader::Plan(const core::PlanRequest& request) {
  wire::Request message;
  *message.mutable_limits() = jail::ToProto(limits_);
  *message.mutable_plan() = jail::ToProto(request);
  const std::string program = message.plan().program().SerializeAsString();
  TESSERA_ASSIGN_OR_RETURN(
      const wire::Reply reply,
      ParseReply(pool_.Call(request.tenant, {program, absl::StrCat("plan ", request.name)},
                            message.SerializeAsString(), absl::InfiniteFuture())));
  if (request.on_stage != nullptr)
    for (const wire::PlanStage& stage : reply.stages())
      request.on_stage({stage.name(), stage.text()});
  TESSERA_RETURN_IF_ERROR(StatusOf(reply));
  return jail::FromProto(reply.plan(), request, DeviceProgramLimits(limits_));
}

// ---- The jailed process. ------------------------------------------------------------------------
namespace {

// The largest size of the texts of all stages of one plan, which are part of its reply.
constexpr size_t kStageBytesMax = size_t{64} << 20;

// Returns an on_stage function that adds each stage to the reply. If a stage's text does not fit in
// what is left of kStageBytesMax, a line that says so takes its place, because a dump must not make
// the reply too large.
std::function<void(core::PlanStage)> StageAppender(wire::Reply* reply) {
  return [reply, left = kStageBytesMax](core::PlanStage stage) mutable {
    if (stage.text.size() > left)
      stage.text = absl::StrCat("# left out: the stages of one plan have at most ", kStageBytesMax,
                                " bytes\n");
    left -= std::min(left, stage.text.size());
    wire::PlanStage& to = *reply->add_stages();
    to.set_name(std::move(stage.name));
    to.set_text(std::move(stage.text));
  };
}

// Carries out the request in the jailed process and fills in the reply. The limits come with the
// request, because a jailed process has no options. If the source is a message, the program is not
// sent back: the parent has the message and reads it again.
absl::Status Answer(const wire::Request& request, const core::PlanFn& plan, wire::Reply* reply) {
  const ir::Limits limits = jail::FromProto(request.limits());
  switch (request.body_case()) {
    case wire::Request::kRead: {
      const api::ProgramSource source = FromProto(request.read());
      TESSERA_ASSIGN_OR_RETURN(const ir::Program program, ir::serial::ReadSource(source, limits));
      TESSERA_RETURN_IF_ERROR(ir::Verify(program, limits));
      if (source.form != Form::kMessage) *reply->mutable_program() = ir::serial::ToProto(program);
      return absl::OkStatus();
    }
    case wire::Request::kInspect: {
      TESSERA_ASSIGN_OR_RETURN(*reply->mutable_inspection(),
                               ir::serial::InspectSource(FromProto(request.inspect()), limits));
      return absl::OkStatus();
    }
    case wire::Request::kPlan: {
      TESSERA_ASSIGN_OR_RETURN(core::PlanRequest plan_request,
                               jail::FromProto(request.plan(), limits));
      if (request.plan().stages()) plan_request.on_stage = StageAppender(reply);
      TESSERA_ASSIGN_OR_RETURN(const core::Plan made, plan(plan_request));
      *reply->mutable_plan() = jail::ToProto(made);
      return absl::OkStatus();
    }
    case wire::Request::kPing:
      return absl::OkStatus();
    case wire::Request::BODY_NOT_SET:
      break;
  }
  return MakeError(ErrorKind::kInternal, "the request has no body");
}

}  // namespace

std::string AnswerRequest(std::string_view request, const core::PlanFn& plan) {
  wire::Request message;
  wire::Reply reply;
  absl::Status status = MakeError(ErrorKind::kInternal, "the request is not a valid message");
  if (message.ParseFromArray(request.data(), static_cast<int>(request.size())))
    status = Answer(message, plan, &reply);
  if (!status.ok()) {
    reply.clear_body();
    *reply.mutable_status() = ir::serial::ToProto(status);
  }
  return reply.SerializeAsString();
}

int RunJailedProcess(const core::PlanFn& plan) {
  return ServeInJail("tessera-jail",
                     [&plan](std::string_view request) { return AnswerRequest(request, plan); });
}

}  // namespace tessera::server::jail
