// Formats the effects of a step for the golden transcripts of step_test.cc: one Text function for
// each kind of value, and one Line function for each kind of effect.
#include "server/scheduler/testing/transcript.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

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
  std::string local = absl::StrJoin(c.LocalDevices(), ",", [](std::string* out, const auto& l) {
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
                      p.local ? absl::StrCat("dev", p.source_device)
                              : absl::StrCat(p.executor, "@", p.endpoint),
                      "[", absl::StrJoin(p.source_starts, ","), "]+[", absl::StrJoin(p.shape, ","),
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
std::string Text(const api::KillExecutor& c) {
  return absl::StrCat("kill ", c.if_told ? "if told: " : "", c.reason);
}
std::string Text(const api::AcknowledgeReports& c) {
  return absl::StrCat("acknowledge ", c.through);
}
std::string Text(const std::vector<api::FileShard>& shards) {
  std::string out;
  for (const api::FileShard& s : shards)
    absl::StrAppend(&out, out.empty() ? "" : " ", "array=", s.array, "=", s.index, "@[",
                    ir::DimsToString(s.starts), "] dev", s.device);
  return out;
}
std::string Text(const api::SaveShards& c) {
  return absl::StrCat("save ", c.launch, " seq=", c.sequence, " ", c.path, " part=", c.part, "/",
                      c.parts, " {", Text(c.shards), "}");
}
std::string Text(const api::LoadShards& c) {
  return absl::StrCat("load_files ", c.launch, " ", c.path, " {", Text(c.shards), "}");
}
std::string Text(const api::InspectFile& c) {
  return absl::StrCat("inspect request=", c.request, " ", c.path);
}

const char* StateText(api::OperationState state) {
  constexpr const char* kNames[] = {"PENDING", "RUNNING", "DONE", "FAILED", "CANCELLED"};
  return kNames[static_cast<int>(state)];
}

std::string Text(const std::monostate&) { return "ok"; }
std::string Text(const MissingArrays& missing) {
  return missing.arrays.empty() ? "ok"
                                : absl::StrCat("missing=", absl::StrJoin(missing.arrays, ","));
}
std::string Text(const Page<api::Device>& page) {
  std::string out = absl::StrCat(page.items.size(), " devices");
  for (const api::Device& d : page.items) {
    absl::StrAppend(&out, " ", d.id, "@", d.executor, d.cordoned ? "(cordoned)" : "");
    if (!d.reason.empty()) absl::StrAppend(&out, "(", d.reason, ")");
  }
  return out + (page.has_more ? " ..." : "");
}
std::string Text(const std::vector<api::PendingReason>& reasons) {
  return absl::StrJoin(reasons, "; ", [](std::string* out, const api::PendingReason& r) {
    absl::StrAppend(out, r.code, " ", r.message, " [", absl::StrJoin(r.resources, ","), "]");
  });
}
std::string Text(const api::CompileReply& r) {
  return absl::StrCat("executable=", r.executable,
                      r.executable == 0 ? absl::StrCat(" devices=", absl::StrJoin(r.devices, ","),
                                                       " pending: ", Text(r.pending))
                                        : "");
}
std::string Text(const api::ExecuteReply& r) {
  return absl::StrCat("operation=", r.operation, " outputs=", Text(r.outputs));
}
// Lists the devices of the shards only if the array is read from fewer devices than it has
// ordinals.
std::string Text(const ArrayInfo& info) {
  std::vector<std::string> shards;
  for (const ArrayInfo::Shard& s : info.shards)
    shards.push_back(absl::StrCat(s.executor, "#", s.incarnation, "/dev", s.device));
  const std::set<std::string> distinct(shards.begin(), shards.end());
  return absl::StrCat(
      "array=", info.array, " ", NameOf(info.state),
      info.state != ArrayInfo::State::kReady || distinct.size() == shards.size()
          ? ""
          : absl::StrCat(" held=", info.num_held, " shards=", absl::StrJoin(shards, ",")));
}
std::string Text(const ir::Array& a) { return absl::StrCat("value ", a.ToString()); }
std::string Text(const api::Operation& o) {
  std::string out = absl::StrCat("operation=", o.id, " ", StateText(o.state));
  if (!o.error.ok()) absl::StrAppend(&out, " ", Text(o.error));
  if (!o.pending_reason.empty()) absl::StrAppend(&out, " (", o.pending_reason, ")");
  return out;
}

std::string MillisText(absl::Time t) {
  return t == absl::InfiniteFuture() ? "never" : absl::StrCat(absl::ToUnixMillis(t), "ms");
}
std::string Text(const SessionInfo& s) {
  return absl::StrCat("session=", s.id, " of ", s.tenant, " until ", MillisText(s.expires),
                      " arrays=", s.arrays, " operations=", s.operations);
}
std::string Text(const WorkerInfo& w) {
  constexpr const char* kStates[] = {"READY", "SUSPECT", "CORDONED", "DRAINING", "LOST"};
  return absl::StrCat(w.name, " ", kStates[static_cast<int>(w.state)],
                      w.reason.empty() ? "" : absl::StrCat(" (", w.reason, ")"),
                      " devices=", absl::StrJoin(w.devices, ","), " operations=", w.operations,
                      " arrays=", w.arrays);
}
std::string Text(const MeshInfo& m) {
  return absl::StrCat("mesh ", m.name, " ", m.mesh.ToString(),
                      " devices=", absl::StrJoin(m.devices, ","));
}
std::string Text(const UploadProgress& p) {
  return absl::StrCat("committed=", p.committed_bytes, p.complete ? " complete" : "",
                      !p.unchecked ? "" : absl::StrCat(" check ", *p.unchecked->bytes));
}
std::string Text(const ProgramInfo& p) {
  return absl::StrCat("program ", p.sha256.substr(0, 4),
                      p.format == ProgramFormat::kStablehlo ? " stablehlo " : " ", *p.bytes);
}
std::string Text(const std::vector<ExecutorPlace>& places) {
  return absl::StrJoin(places, " ", [](std::string* out, const ExecutorPlace& p) {
    absl::StrAppend(out, p.name, "@", p.host, "[", absl::StrJoin(p.devices, ","), "]",
                    p.healthy ? "" : "(lost)");
    if (p.memory_bytes > 0) absl::StrAppend(out, " ", p.memory_bytes, " bytes");
  });
}
std::string Text(const PendingInfo& p) {
  return absl::StrCat(StateText(p.state), " position=", p.position, " ", Text(p.reasons));
}
template <class T>
std::string Text(const Page<T>& page) {
  std::string out = absl::StrCat(page.items.size(), " items");
  for (const T& item : page.items) absl::StrAppend(&out, "\n    ", Text(item));
  return out + (page.has_more ? "\n    ..." : "");
}

std::string Text(const PendingArrays& l) {
  std::string out = Text(l.operation);
  for (const ArrayInfo& info : l.arrays) absl::StrAppend(&out, "\n    ", Text(info));
  return out;
}

std::string Text(const std::vector<api::FileArrayInfo>& arrays) {
  return absl::StrJoin(arrays, " ", [](std::string* out, const api::FileArrayInfo& a) {
    absl::StrAppend(out, a.name, ":", ir::MakeType(a.dtype, a.shape).ToString());
  });
}

std::string Text(const core::ClusterReading& r) {
  std::string out = absl::StrCat("readings next=", r.next_array);
  for (const core::Reading& reading : r.readings)
    absl::StrAppend(&out, "\n    ", tessera::InfoOf(reading.metric).name, "{",
                    absl::StrJoin(reading.labels, ","), "} ", reading.value);
  for (const core::ExecutorReading& x : r.executors)
    absl::StrAppend(&out, "\n    ", x.name, "#", x.incarnation, x.alive ? "" : " lost",
                    x.cordoned ? " cordoned" : "", " operations=", x.operations,
                    " ended=", x.launches_succeeded, "/", x.collective_launches_succeeded);
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
                    [](std::string* out, const auto& d) { absl::StrAppend(out, d.id); }),
      e.request.cluster.absent_device_memory_bytes == 0
          ? ""
          : absl::StrCat(" absent=", e.request.cluster.absent_device_memory_bytes));
}
std::string Line(const SendCommand& e) {
  return absl::StrCat("s", e.registration_id, "/", e.executor, "#", e.incarnation, " <- ",
                      std::visit([](const auto& c) { return Text(c); }, e.command),
                      e.when_durable ? " (when durable)" : "");
}
std::string Line(const Reply& e) {
  return absl::StrCat(
      "reply ", e.request, ": ",
      e.status.ok() ? std::visit([](const auto& b) { return Text(b); }, e.body) : Text(e.status));
}
// Every accepted registration has this effect. It is a line of a transcript only if it adopts
// executors.
std::string Line(const AcceptWorker& e) {
  if (e.adopted.empty()) return "";
  return absl::StrCat("accept s", e.registration_id, " adopted=",
                      absl::StrJoin(e.adopted, ",", [](std::string* out, const auto& x) {
                        absl::StrAppend(out, x.executor, "#", x.incarnation);
                      }));
}
std::string Line(const DropWorker& e) {
  return absl::StrCat("drop s", e.registration_id, " ", Text(e.why));
}
std::string Line(const Debug& e) { return absl::StrCat("log ", e.line); }
// Most steps have this effect, so it is no line of a transcript. The test compares the rows of
// the commit with the state instead.
std::string Line(const Commit&) { return ""; }
std::string Line(const SetTimer& e) {
  return absl::StrCat("timer ", absl::ToUnixMillis(e.when), "ms");
}

}  // namespace

std::string ToString(const Effect& effect) {
  return std::visit([](const auto& e) { return Line(e); }, effect);
}

}  // namespace tessera::server::scheduler
