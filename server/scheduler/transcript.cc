// Effects as lines of text.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/scheduler/state.h"

namespace tessera::server::scheduler {
namespace {

std::string Text(const absl::Status& s) {
  if (s.ok()) return "ok";
  return absl::StrCat(ToAbsl(ReasonOf(s)), ": ", s.message());
}
std::string Text(const std::vector<uint64_t>& ids) { return absl::StrJoin(ids, ","); }

std::string Text(const api::ConfigureCommunicator& c) {
  return absl::StrCat("configure generation=", c.generation, " self=", c.self, " members=",
                      absl::StrJoin(c.members, ",", [](std::string* out, const auto& m) {
                        absl::StrAppend(out, m.executor, "#", m.incarnation);
                      }));
}
std::string Text(const api::CloseCommunicator& c) {
  return absl::StrCat("close generation=", c.generation);
}
std::string Text(const api::LoadProgram& c) {
  std::string local = absl::StrJoin(c.Local(), ",", [](std::string* out, const auto& l) {
    absl::StrAppend(out, l.first, "->", l.second);
  });
  return absl::StrCat("load executable=", c.executable, " coordinates=", local);
}
std::string Text(const api::UnloadPrograms& c) {
  return absl::StrCat("unload executables=", Text(c.executables));
}
std::string Text(const api::Launch& c) {
  std::string out = absl::StrCat("launch ", c.launch, " sequence=", c.sequence,
                                 " executable=", c.executable, " generation=", c.generation, " (",
                                 Text(c.args), ") -> (", Text(c.results), ")");
  for (size_t i = 0; i < c.donate.size(); ++i)
    if (c.donate[i]) absl::StrAppend(&out, " donate=", c.args[i]);
  if (c.timeout < absl::InfiniteDuration())
    absl::StrAppend(&out, " timeout=", absl::FormatDuration(c.timeout));
  for (const auto& i : c.inline_results)
    absl::StrAppend(&out, " inline=", c.results[i.result], "/dev", i.device);
  return out;
}
std::string Text(const api::Transfer& c) {
  std::string out = absl::StrCat("transfer ", c.launch, " sequence=", c.sequence, " -> ", c.result);
  for (const auto& s : c.shards) {
    absl::StrAppend(&out, " dev", s.device, "{");
    for (const auto& p : s.pieces)
      absl::StrAppend(&out, &p == &s.pieces[0] ? "" : " ", p.source, "/",
                      p.local ? absl::StrCat("dev", p.source_device) : p.endpoint, "[",
                      absl::StrJoin(p.source_starts, ","), "]+[", absl::StrJoin(p.shape, ","),
                      "]->[", absl::StrJoin(p.dest_starts, ","), "]");
    absl::StrAppend(&out, "}");
  }
  return out;
}
std::string Text(const api::WriteBuffer& c) {
  return absl::StrCat("write array=", c.array, " dev", c.device);
}
std::string Text(const api::ReadBuffer& c) {
  return absl::StrCat("read request=", c.request, " array=", c.array, " dev", c.device);
}
std::string Text(const api::DeleteBuffers& c) {
  return absl::StrCat("delete arrays=", Text(c.arrays));
}
std::string Text(const api::CancelLaunch& c) {
  return absl::StrCat("cancel ", c.launch, " ", Text(c.why));
}
std::string Text(const api::Drain&) { return "drain"; }

std::string_view StateText(api::OperationState state) {
  switch (state) {
    case api::OperationState::kPending:
      return "PENDING";
    case api::OperationState::kRunning:
      return "RUNNING";
    case api::OperationState::kDone:
      return "DONE";
    case api::OperationState::kFailed:
      return "FAILED";
    case api::OperationState::kCancelled:
      return "CANCELLED";
  }
  return "?";
}

std::string Text(const std::monostate&) { return "ok"; }
std::string Text(const std::vector<api::Device>& devices) {
  std::string out = absl::StrCat(devices.size(), " devices");
  for (const api::Device& d : devices) {
    absl::StrAppend(&out, " ", d.id, "@", d.executor);
    if (!d.healthy) absl::StrAppend(&out, "(", d.reason, ")");
  }
  return out;
}
std::string Text(const api::CompileReply& r) { return absl::StrCat("executable=", r.executable); }
std::string Text(const api::ExecuteReply& r) {
  return absl::StrCat("operation=", r.operation, " outputs=", Text(r.outputs));
}
std::string Text(const ArrayInfo& info) {
  return absl::StrCat("array=", info.array, " ", info.state);
}
std::string Text(const ir::Array& a) { return absl::StrCat("value ", a.ToString()); }
std::string Text(const api::Operation& o) {
  std::string out = absl::StrCat("operation=", o.id, " ", ToAbsl(StateText(o.state)));
  if (!o.error.ok()) absl::StrAppend(&out, " ", Text(o.error));
  if (!o.pending_reason.empty()) absl::StrAppend(&out, " (", o.pending_reason, ")");
  return out;
}

std::string Text(const api::Completion& c) {
  std::string out = Text(c.operation);
  for (const auto& [array, value] : c.results)
    absl::StrAppend(&out, " ", array, "=", value.ToString());
  return out;
}

std::string Line(const MakePlan& e) {
  return absl::StrCat(
      "plan executable=", e.executable, " devices=",
      absl::StrJoin(e.request.cluster.devices, ",",
                    [](std::string* out, const auto& d) { absl::StrAppend(out, d.id); }));
}
std::string Line(const SendCommand& e) {
  return absl::StrCat("s", e.session, "/", e.executor, "#", e.incarnation, " <- ",
                      std::visit([](const auto& c) { return Text(c); }, e.command));
}
std::string Line(const Reply& e) {
  return absl::StrCat(
      "reply ", e.request, ": ",
      e.status.ok() ? std::visit([](const auto& b) { return Text(b); }, e.body) : Text(e.status));
}
std::string Line(const DropWorker& e) {
  return absl::StrCat("drop s", e.session, " ", Text(e.why));
}
std::string Line(const Append& e) { return absl::StrCat("append ", e.record); }
std::string Line(const SetTimer& e) {
  return absl::StrCat("timer ", absl::ToUnixMillis(e.when), "ms");
}

}  // namespace

std::string ToString(const Effect& effect) {
  return std::visit([](const auto& e) { return Line(e); }, effect);
}

}  // namespace tessera::server::scheduler
