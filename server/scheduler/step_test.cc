// Proves what the scheduler does by golden transcripts, tests/golden/scheduler/*.txt. Each file
// feeds events to one state and shows the effects of every step; after each step the invariants and
// the committed rows are checked as well.
//
// The input of a case is one event per line; the output is the effects. Every array is f32[8]. A
// sharding is the mesh axis of dim 0, or `-`.
//
//   at 100                                   sets the time, in ms
//   caller b user                            sets the caller; at first it is an administrator
//
//   register s1 w0 0#1x2 1#1x2               registration, worker, executors
//                                            (index#incarnation x devices)
//     [host=h] [memory=1000]                 memory of the host
//                                            0#1x2@64: an executor with 64 bytes per device
//                                            0#1x2!: an executor that has state
//   gone s1 its connection ended             the connection of a worker; of an executor: gone
//   s1/0#1 pause 25000                              the coordinator was paused for so many ms
//   report s1/0#1 done 7
//     failed 7 OUT_OF_MEMORY text | loaded 3 | written 5 dev1 | read 9 | heartbeat | ready 0#2x2
//     lost 7 psum (a.cc:1) ; killed by signal 9           launch or 0, op ; reason
//     farewell its daemon has died
//
//   compile f mesh=x:4 in=x,- out=x [devices=0,1,2,3] [named=m] [plan=1] [explain=1] [timeout=100]
//     [absent=1000]                          plans for absent devices with this many bytes
//   planned 1                                or: planned 1 INTERNAL text, planned 1 bytes=64
//   execute 1 args=2,3 [donate=2] [deadline=500] [release=4] [session=9] [check=1]
//     [watch=64]                             answered at its end too, with at most 64 result bytes
//   wait 7 1000 [fast=1] | watch 7 1000 PENDING | cancel 7 | pending 7 | operations [all=1]
//   [live=1]
//
//   create mesh=x:4 spec=x devices=0,1,2,3 [session=9] [check=1]
//   write 2 0 | read 2 0 | describe 2 | upload 2 | wait-array 2 1000 | delete 2,3
//   arrays session=9
//
//   open-session [lease=500] | session 9 | renew 9 | sessions | close-session 9
//   devices | workers | worker w0 | topology | cordon w0 why | uncordon w0 | drain w0 500 why
//   delete-worker w0
//   create-mesh m mesh=x:2 [devices=0,1] | mesh m | meshes | delete-mesh m
//   chunk a size=6 offset=0 data=abc         a chunk of the program whose hash is 64 times "a"
//   keep a                                   says that it is a program; or that it is not:
//                                            keep a MALFORMED_PROGRAM text
//   program a | programs | delete-program a
//   tick
//   invariants                               checks what must hold in every state
//
// Lists take [size=2] [after=7]. Events that make something take [request-id=abc].
#include "server/scheduler/step.h"

#include <filesystem>
#include <random>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "base/testing/status_matchers.h"
#include "ir/api/placement.h"
#include "ir/builder.h"
#include "server/scheduler/machine.h"
#include "server/scheduler/testing/durable.h"
#include "server/scheduler/testing/invariants.h"
#include "server/scheduler/testing/transcript.h"

namespace tessera::server::scheduler {
namespace {

using Words = std::vector<std::string>;

uint64_t Number(const std::string& text) {
  uint64_t n = 0;
  EXPECT_TRUE(absl::SimpleAtoi(text, &n)) << "'" << text << "' is not a number";
  return n;
}
std::vector<std::string> List(const std::string& text) {
  return text.empty() ? Words{} : Words(absl::StrSplit(text, ','));
}
std::vector<uint64_t> Numbers(const std::string& text) {
  std::vector<uint64_t> out;
  for (const std::string& s : List(text)) out.push_back(Number(s));
  return out;
}
// Returns the value of `key` in words of the form key=value.
std::string Arg(const Words& words, const std::string& key, std::string otherwise = "") {
  for (const std::string& w : words)
    if (absl::StartsWith(w, key + "=")) return w.substr(key.size() + 1);
  return otherwise;
}
std::string Rest(const Words& words, size_t from) {
  return absl::StrJoin(words.begin() + static_cast<long>(std::min(from, words.size())), words.end(),
                       " ");
}
absl::Status StatusOf(const std::string& reason, const std::string& text) {
  for (const ErrorKindInfo* k = ErrorKindsBegin(); k != ErrorKindsEnd(); ++k)
    if (k->reason == reason) return MakeError(k->kind, text);
  ADD_FAILURE() << "no error kind " << reason;
  return absl::UnknownError(text);
}
ir::Mesh MeshOf(const std::string& text) {
  ir::Mesh mesh;
  for (const std::string& axis : List(text)) {
    const Words parts = absl::StrSplit(axis, ':');
    mesh.axes.push_back({parts.at(0), static_cast<int64_t>(Number(parts.at(1)))});
  }
  return mesh;
}
ir::PartitionSpec SpecOf(const std::string& text) {
  ir::PartitionSpec spec;
  if (text != "-") spec.dims = {{text}};
  return spec;
}
api::ExecutorInfo ExecutorOf(std::string word) {  // 0#1x2, 0#1x2:FOLDER, 0#1x2:none, 0#1x2!
  const bool has_state = word.back() == '!';
  if (has_state) word.pop_back();
  const Words c = absl::StrSplit(word, ':');
  const std::string& text = c.at(0);
  const Words a = absl::StrSplit(text, '#');
  const Words sized = absl::StrSplit(a.at(1), '@');
  const Words b = absl::StrSplit(sized[0], 'x');
  api::ExecutorInfo info;
  info.index = static_cast<int32_t>(Number(a.at(0)));
  info.incarnation = Number(b.at(0));
  info.num_devices = static_cast<int32_t>(Number(b.at(1)));
  info.device_kind = "cpu";
  info.has_state = has_state;
  if (sized.size() > 1) info.memory_bytes = static_cast<int64_t>(Number(sized[1]));
  info.data_endpoint = absl::StrCat("client-", info.incarnation);
  info.peer_data_endpoint = absl::StrCat("data-", info.incarnation);
  info.peer_endpoint = absl::StrCat("peer-", info.index);
  info.files = c.size() < 2 || c[1] != "none";
  if (c.size() > 1 && info.files) info.files_folder = c[1];
  return info;
}

class Harness {
 public:
  Harness() {
    state_.config.durable = true;
    state_.config.queue_bound = 8;
    state_.config.operations_kept = 6;
    state_.config.ticket_key = "key";
    state_.config.communicator_secret = "secret";
    state_.config.session_grace = absl::Seconds(5);
  }

  // Feeds one event from a TEST, without checking the whole state after the step.
  void Feed(const std::string& line) {
    const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words[0] == "config") return Configure(words);
    for (const Effect& e : Step(state_, EventOf(words), now_))
      if (const auto* plan = std::get_if<MakePlan>(&e)) plans_[plan->executable] = plan->request;
  }
  const State& state() const { return state_; }

  // Runs one case of a transcript and returns the effects as text. The checks after every step rely
  // on testing/invariants.h and testing/durable.h, so that each transcript also proves that no step
  // breaks an invariant or forgets to commit a row.
  std::string Run(const DataCase& c) {
    std::string out;
    for (absl::string_view line : absl::StrSplit(c.input, '\n', absl::SkipWhitespace())) {
      const Words words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      if (words[0] == "at") {
        now_ = absl::UnixEpoch() + absl::Milliseconds(Number(words.at(1)));
        continue;
      }
      if (words[0] == "pause") {
        state_.steady_ahead += absl::Milliseconds(Number(words.at(1)));
        continue;
      }
      if (words[0] == "lag") {  // the events that follow came this long before their steps
        state_.lag = absl::Milliseconds(Number(words.at(1)));
        continue;
      }
      if (words[0] == "caller") {  // caller TENANT [viewer|user|operator|admin]
        caller_.tenant = words.at(1);
        caller_.role = words.size() < 3         ? core::Role::kUser
                       : words[2] == "viewer"   ? core::Role::kViewer
                       : words[2] == "operator" ? core::Role::kOperator
                       : words[2] == "admin"    ? core::Role::kAdmin
                                                : core::Role::kUser;
        continue;
      }
      if (words[0] == "config") {
        Configure(words);
        continue;
      }
      if (words[0] == "invariants") {
        EXPECT_EQ(FirstBrokenInvariant(state_), "");
        continue;
      }
      for (const Effect& e : Step(state_, EventOf(words), now_)) {
        if (const auto* plan = std::get_if<MakePlan>(&e)) plans_[plan->executable] = plan->request;
        if (const auto* commit = std::get_if<Commit>(&e)) {
          rows_before_ = rows_;
          rows_.Apply(*commit);
        }
        if (const std::string line = ToString(e); !line.empty()) absl::StrAppend(&out, line, "\n");
      }
      for (const core::Note& note : state_.notes)
        if (const auto* incident = std::get_if<core::Incident>(&note);
            show_incidents_ && incident != nullptr) {
          absl::StrAppend(&out, "incident ", incident->what, ":");
          for (const auto& [key, value] : incident->fields)
            absl::StrAppend(&out, " ", key, "='", value, "'");
          absl::StrAppend(&out, "\n");
        }
      EXPECT_EQ(FirstBrokenInvariant(state_), "");
      if (state_.config.durable) {
        EXPECT_EQ(rows_.FirstDifference(state_), "") << line;
      }
    }
    return out.empty() ? "(nothing)\n" : out;
  }

 private:
  // Handles a line that begins with "config": it changes bounds and timeouts of the scheduler, or
  // starts another life of the coordinator.
  void Configure(const Words& w) {
    // Whether the output shows log lines too.
    if (!Arg(w, "incidents").empty()) show_incidents_ = true;
    if (const std::string v = Arg(w, "durable"); !v.empty()) state_.durable_commit = Number(v);
    if (const std::string v = Arg(w, "queue"); !v.empty())
      state_.config.queue_bound = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "executables"); !v.empty())
      state_.config.executables_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "result-wait"); !v.empty())
      state_.config.result_wait_max = absl::Milliseconds(Number(v));
    if (const std::string v = Arg(w, "arrays"); !v.empty())
      state_.config.arrays_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "sessions"); !v.empty())
      state_.config.sessions_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "meshes"); !v.empty())
      state_.config.meshes_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "programs"); !v.empty())
      state_.config.programs_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "programs-bytes"); !v.empty())
      state_.config.programs_bytes_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "program-bytes"); !v.empty())
      state_.config.program_bytes_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "run-deadline"); !v.empty())
      state_.config.run_deadline = absl::Milliseconds(Number(v));
    if (const std::string v = Arg(w, "file-deadline"); !v.empty())
      state_.config.file_deadline = absl::Milliseconds(Number(v));
    if (const std::string v = Arg(w, "lease"); !v.empty())
      state_.config.lease = absl::Milliseconds(Number(v));
    if (const std::string v = Arg(w, "compile-timeout"); !v.empty())
      state_.config.compile_timeout = absl::Milliseconds(Number(v));
    // `start` is how often the coordinator has started. `chance` stands for a coordinator that does
    // not know this, and chooses the first id of its life at random.
    if (const std::string v = Arg(w, "start"); !v.empty()) Start(core::LifeOfStart(Number(v)));
    if (const std::string v = Arg(w, "chance"); !v.empty()) Start(core::RandomLife(1, Number(v)));
    if (const std::string v = Arg(w, "workers"); !v.empty())
      state_.config.workers_max = static_cast<int64_t>(Number(v));
    // Executors of the life before, in the form w1/0[2x2],...: executor 0 of w1 has 2 devices, from
    // id 2 on.
    if (const std::string v = Arg(w, "known"); !v.empty()) {
      Commit known;
      const Worker worker;
      for (const absl::string_view one : absl::StrSplit(v, ',')) {
        const Words x = absl::StrSplit(one, absl::ByAnyChar("/[x]"));
        Executor executor;
        executor.worker = x.at(0);
        executor.info.device_kind = "cpu";
        executor.info.index = static_cast<int32_t>(Number(x.at(1)));
        executor.info.num_devices = static_cast<int32_t>(Number(x.at(3)));
        executor.first_device = static_cast<int64_t>(Number(x.at(2)));
        executor.name = ExecutorName(executor.worker, executor.info.index);
        known.rows.push_back({{core::RowKind::kExecutor, 0, executor.name}, executor});
        known.rows.push_back({{core::RowKind::kWorker, 0, executor.worker}, worker});
      }
      rows_.Apply(known);
    }
    if (Arg(w, "durable") == "0") state_.config.durable = false;
    if (const std::string v = Arg(w, "request-ids"); !v.empty())
      state_.config.request_ids_max = static_cast<int64_t>(Number(v));
    if (const std::string v = Arg(w, "owners"); !v.empty())
      state_.config.owners_max = static_cast<int64_t>(Number(v));
  }

  void Start(core::Life life) {
    state_.config.life = life;
    state_ = InitialState(state_.config);
    if (!state_.config.durable) rows_ = {};
  }

  // Makes a request of the caller that was named last, with the request_id of the line.
  Request NewRequest() { return {++requests_, caller_, id_}; }
  template <class Key>
  static PageRequest<Key> PageOf(const Words& w) {
    PageRequest<Key> page;
    if (const std::string size = Arg(w, "size"); !size.empty())
      page.size = static_cast<int64_t>(Number(size));
    if (const std::string after = Arg(w, "after"); !after.empty()) {
      if constexpr (std::is_same_v<Key, std::string>) {
        page.after = after;
      } else {
        page.after = static_cast<Key>(Number(after));
      }
    }
    return page;
  }
  // Returns 64 digits if the text is one letter, and the text itself otherwise.
  static std::string HashOf(const std::string& text) {
    return text.size() == 1 ? std::string(64, text[0]) : text;
  }
  static absl::Duration MillisOf(const std::string& text) {
    int64_t n = 0;
    EXPECT_TRUE(text.empty() || absl::SimpleAtoi(text, &n)) << text;
    return absl::Milliseconds(n);
  }

  // Parses a line into its event. The payload of its request id is the whole line, except for words
  // that a repeated call may change.
  Event EventOf(Words w) {
    const std::string& verb = w[0];
    id_ = {Arg(w, "request-id"), ""};
    w.erase(std::remove_if(w.begin(), w.end(),
                           [](auto& word) { return absl::StartsWith(word, "request-id="); }),
            w.end());
    // A run is the same call whether its end is watched or not.
    for (const std::string& word : w)
      if (!absl::StartsWith(word, "watch=")) absl::StrAppend(&id_.payload, word, " ");
    if (verb == "register") {
      WorkerRegistered e;
      e.registration_id = Number(w.at(1).substr(1));
      e.registration.worker = w.at(2);
      e.registration.host = "host-" + w.at(2);
      for (size_t i = 3; i < w.size(); ++i) {
        if (absl::StartsWith(w[i], "host=")) {
          e.registration.host = w[i].substr(5);
        } else if (absl::StartsWith(w[i], "memory=")) {
          e.registration.host_memory_bytes = static_cast<int64_t>(Number(w[i].substr(7)));
        } else {
          e.registration.executors.push_back(ExecutorOf(w[i]));
        }
      }
      return e;
    }
    if (verb == "gone") {
      const Words of = absl::StrSplit(w.at(1).substr(1), absl::ByAnyChar("/#"));
      const absl::Status why = absl::UnavailableError(Rest(w, 2));
      if (of.size() == 1) return WorkerGone{Number(of[0]), why};
      return ExecutorGone{Number(of.at(0)), static_cast<int32_t>(Number(of.at(1))),
                          Number(of.at(2)), ++detachments_, why};
    }
    if (verb == "report") return ReportOf(w);
    // restart N begins the N-th life with everything that the life before committed, or without the
    // last commit.
    if (verb == "restart") {
      Start(core::LifeOfStart(Number(w.at(1))));
      CommittedRows rows = rows_;
      if (Arg(w, "without") == "last") rows = rows_before_;
      return Restore{(rows_ = rows).All()};
    }
    if (verb == "compile") return CompileOf(w);
    if (verb == "planned") {
      const uint64_t id = Number(w.at(1));
      core::Plan plan = PlanOf(id);
      const std::string bytes = Arg(w, "bytes");
      if (bytes.empty() && w.size() > 2) return Planned{id, StatusOf(w[2], Rest(w, 3))};
      if (!bytes.empty()) plan.memory_bound_bytes = static_cast<int64_t>(Number(bytes));
      return Planned{id, std::move(plan)};
    }
    if (verb == "execute") {
      Execute e{NewRequest(), {}};
      e.body.session = Number(Arg(w, "session", "0"));
      e.body.check_only = Arg(w, "check") == "1";
      e.body.executable = Number(w.at(1));
      e.body.args = Numbers(Arg(w, "args"));
      const std::vector<uint64_t> donated = Numbers(Arg(w, "donate"));
      if (!donated.empty())
        for (uint64_t a : e.body.args)
          e.body.donate.push_back(std::count(donated.begin(), donated.end(), a) > 0);
      if (const std::string d = Arg(w, "deadline"); !d.empty())
        e.body.time_limit = absl::Milliseconds(Number(d));
      e.body.release = Numbers(Arg(w, "release"));
      if (const std::string bytes = Arg(w, "watch"); !bytes.empty()) {
        e.end_request = ++requests_;
        e.body.inline_bytes_max = static_cast<int64_t>(Number(bytes));
      }
      return e;
    }
    if (verb == "create") {
      CreateArray e{NewRequest(), Number(Arg(w, "session", "0")), {}, Arg(w, "check") == "1"};
      e.spec.shape = {8};
      e.spec.placement.mesh = MeshOf(Arg(w, "mesh"));
      e.spec.placement.spec = SpecOf(Arg(w, "spec"));
      for (uint64_t d : Numbers(Arg(w, "devices")))
        e.spec.placement.devices.push_back(static_cast<int64_t>(d));
      EXPECT_THAT(api::CheckPlacement(e.spec.placement, e.spec.shape), IsOk());
      return e;
    }
    if (verb == "save") {  // save PATH arrays=x/7,y/8 [overwrite=1]
      SaveArrays e{NewRequest(), {}, w.at(1), Arg(w, "overwrite") == "1"};
      for (const std::string& named : List(Arg(w, "arrays"))) {
        const Words of = absl::StrSplit(named, '/');
        e.arrays.push_back({of.at(0), Number(of.at(1))});
      }
      return e;
    }
    if (verb == "load-file") {  // load-file PATH names=x mesh=x:2 spec=x devices=0,1
      LoadArrays e{NewRequest(), Number(Arg(w, "session", "0")), w.at(1), {}};
      for (const std::string& name : List(Arg(w, "names"))) {
        api::ArrayToLoad& a = e.arrays.emplace_back();
        a.name = name;
        a.placement.mesh = MeshOf(Arg(w, "mesh"));
        a.placement.spec = SpecOf(Arg(w, "spec"));
        for (uint64_t d : Numbers(Arg(w, "devices")))
          a.placement.devices.push_back(static_cast<int64_t>(d));
      }
      return e;
    }
    if (verb == "open-session")
      return OpenSession{NewRequest(), Arg(w, "name"), MillisOf(Arg(w, "lease"))};
    if (verb == "session") return GetSession{NewRequest(), Number(w.at(1)), false};
    if (verb == "renew") return GetSession{NewRequest(), Number(w.at(1)), true};
    if (verb == "sessions") return ListSessions{NewRequest(), PageOf<uint64_t>(w)};
    if (verb == "hold") {  // hold SESSION NAME
      const Request ask = NewRequest();
      return HoldSession{ask, Number(w.at(1)), Number(w.at(2)), ++requests_};
    }
    if (verb == "drop") return DropHold{Number(w.at(1)), Number(w.at(2))};
    if (verb == "reshard") {  // reshard 7 mesh=x:2 spec=x devices=0,1
      ReshardArray e{NewRequest(), Number(Arg(w, "session", "0")), Number(w.at(1)), {}};
      e.placement.mesh = MeshOf(Arg(w, "mesh"));
      e.placement.spec = SpecOf(Arg(w, "spec"));
      for (uint64_t d : Numbers(Arg(w, "devices")))
        e.placement.devices.push_back(static_cast<int64_t>(d));
      return e;
    }
    if (verb == "file") return DescribeFile{NewRequest(), w.at(1)};
    if (verb == "close-session") return CloseSession{NewRequest(), Number(w.at(1))};
    if (verb == "workers") return ListWorkers{NewRequest(), PageOf<std::string>(w)};
    if (verb == "worker") return GetWorker{NewRequest(), w.at(1)};
    if (verb == "topology") return GetTopology{NewRequest()};
    if (verb == "cordon") return Cordon{NewRequest(), w.at(1), Rest(w, 2), true};
    if (verb == "uncordon") return Cordon{NewRequest(), w.at(1), "", false};
    if (verb == "drain") return Drain{NewRequest(), w.at(1), Rest(w, 3), MillisOf(w.at(2))};
    if (verb == "delete-worker") return DeleteWorker{NewRequest(), w.at(1)};
    if (verb == "create-mesh") {
      CreateMesh e{NewRequest(), w.at(1), MeshOf(Arg(w, "mesh")), {}, Arg(w, "check") == "1"};
      for (uint64_t d : Numbers(Arg(w, "devices"))) e.devices.push_back(static_cast<int64_t>(d));
      return e;
    }
    if (verb == "mesh") return GetMesh{NewRequest(), w.at(1)};
    if (verb == "meshes") return ListMeshes{NewRequest(), PageOf<std::string>(w)};
    if (verb == "delete-mesh") return DeleteMesh{NewRequest(), w.at(1)};
    if (verb == "chunk")
      return UploadProgram{
          NewRequest(),
          HashOf(w.at(1)),
          Arg(w, "format") == "stablehlo" ? ProgramFormat::kStablehlo : ProgramFormat::kTessera,
          static_cast<int64_t>(Number(Arg(w, "size", "0"))),
          static_cast<int64_t>(Number(Arg(w, "offset", "0"))),
          Arg(w, "data")};
    if (verb == "keep") {
      KeepProgram e{NewRequest(), HashOf(w.at(1)), {}};
      if (w.size() > 2) e.checked = StatusOf(w[2], Rest(w, 3));
      return e;
    }
    if (verb == "program") return GetProgram{NewRequest(), HashOf(w.at(1))};
    if (verb == "programs") return ListPrograms{NewRequest(), PageOf<std::string>(w)};
    if (verb == "delete-program") return DeleteProgram{NewRequest(), HashOf(w.at(1))};
    if (verb == "arrays")
      return ListArrays{NewRequest(), Number(Arg(w, "session", "0")), PageOf<uint64_t>(w)};
    if (verb == "operations")
      return ListOperations{NewRequest(), Number(Arg(w, "session", "0")), Arg(w, "all") == "1",
                            Arg(w, "live") == "1", PageOf<uint64_t>(w)};
    if (verb == "devices")
      return ListDevices{NewRequest(), {-1, static_cast<int64_t>(Number(Arg(w, "size", "0")))}};
    const uint64_t id = w.size() > 1 && verb != "delete" ? Number(w[1]) : 0;
    const uint64_t more = w.size() > 2 ? Number(w[2]) : 0;
    if (verb == "delete") return DeleteArrays{NewRequest(), Numbers(w.at(1))};
    if (verb == "write")
      return WriteShard{NewRequest(), id, static_cast<int>(more), ir::Array(ir::DType::kF32, {2})};
    if (verb == "read")
      return ReadShard{NewRequest(), id, static_cast<int>(more), absl::Seconds(10)};
    if (verb == "describe") return DescribeArray{NewRequest(), id};
    if (verb == "upload") return DescribeUpload{NewRequest(), id};
    if (verb == "wait-array") return WaitArray{NewRequest(), id, absl::Milliseconds(more)};
    if (verb == "wait")
      return WaitOperation{NewRequest(), id, absl::Milliseconds(more), {}, Arg(w, "fast") == "1"};
    if (verb == "watch")  // watch 7 1000 PENDING
      return WaitOperation{
          NewRequest(), id, absl::Milliseconds(more),
          w.at(3) == "PENDING" ? api::OperationState::kPending : api::OperationState::kRunning};
    if (verb == "cancel") return CancelOperation{NewRequest(), id};
    if (verb == "pending") return ExplainPending{NewRequest(), id};
    EXPECT_EQ(verb, "tick") << "unknown event";
    return Tick{};
  }

  // Parses a report of an executor. Each kind of report has its own words, shown beside it.
  Event ReportOf(const Words& w) {  // report s1/0#1 done 7
    WorkerReported e;
    const Words a = absl::StrSplit(w.at(1).substr(1), absl::ByAnyChar("/#"));
    e.registration_id = Number(a.at(0));
    e.report.executor = static_cast<int32_t>(Number(a.at(1)));
    e.report.incarnation = Number(a.at(2));
    const std::string& what = w.at(2);
    if (what == "heartbeat") {
      // heartbeat [silence=3000] [launch=7] [op=sin] [waiting=1] [fault=Xid_79]
      api::Heartbeat::Executor seen{.executor = e.report.executor, .progress_age = {}};
      seen.silence = MillisOf(Arg(w, "silence"));
      seen.launch = Number(Arg(w, "launch", "0"));
      seen.op = Arg(w, "op");
      seen.waiting = Arg(w, "waiting") == "1";
      seen.fault = Arg(w, "fault");
      e.report.body = api::Heartbeat{{seen}};
    } else if (what == "done") {
      api::LaunchDone done{Number(w.at(3)), absl::Milliseconds(1), {}};
      for (const std::string& shard : List(Arg(w, "inline"))) {  // array/dev0/value
        const Words of = absl::StrSplit(shard, '/');
        ir::Array value(ir::DType::kF32, {2});
        for (int i = 0; i < 2; ++i) value.Set(i, static_cast<double>(Number(of.at(2))));
        done.inline_results.push_back(
            {Number(of.at(0)), static_cast<int32_t>(Number(of.at(1).substr(3))), value});
      }
      e.report.body = std::move(done);
    } else if (what == "failed" || what == "failed-early") {
      // failed-early means that the launch failed before the inputs were given to devices.
      e.report.body =
          api::LaunchFailed{Number(w.at(3)), StatusOf(w.at(4), Rest(w, 5)), what == "failed-early"};
    } else if (what == "loaded") {
      absl::Status s = w.size() > 4 ? StatusOf(w[4], Rest(w, 5)) : absl::OkStatus();
      e.report.body = api::ProgramLoaded{Number(w.at(3)), std::move(s), 64};
    } else if (what == "written") {
      absl::Status s = w.size() > 5 ? StatusOf(w[5], Rest(w, 6)) : absl::OkStatus();
      e.report.body = api::BufferWritten{
          Number(w.at(3)), static_cast<int32_t>(Number(w.at(4).substr(3))), std::move(s)};
    } else if (what == "written-as") {  // written-as NUMBER 2 dev0
      e.report.number = Number(w.at(3));
      e.report.body = api::BufferWritten{
          Number(w.at(4)), static_cast<int32_t>(Number(w.at(5).substr(3))), absl::OkStatus()};
    } else if (what == "read") {
      e.report.body = api::BufferRead{Number(w.at(3)), ir::Array(ir::DType::kF32, {2})};
    } else if (what == "inspected") {  // inspected REQUEST arrays=x,y | inspected REQUEST CODE ...
      api::FileInspected inspected{Number(w.at(3)), std::vector<api::FileArrayInfo>{}};
      for (const std::string& name : List(Arg(w, "arrays")))
        inspected.arrays->push_back({name, ir::DType::kF32, {8}});
      if (inspected.arrays->empty()) inspected.arrays = StatusOf(w.at(4), Rest(w, 5));
      e.report.body = std::move(inspected);
    } else if (what == "lost") {
      const Words parts = absl::StrSplit(Rest(w, 4), ';');
      e.report.body =
          api::ExecutorLost{std::string(absl::StripAsciiWhitespace(parts.at(1))), Number(w.at(3)),
                            std::string(absl::StripAsciiWhitespace(parts.at(0)))};
    } else if (what == "farewell") {
      e.report.body = api::ExecutorFarewell{Rest(w, 3)};
    } else if (what == "inventory") {  // inventory [ready=2,3/2,3] [running=7/1/0] ...
      api::ExecutorInventory inventory;
      const auto lists = [&](const std::string& key, auto member) {
        const Words devices = absl::StrSplit(Arg(w, key), '/');
        inventory.devices.resize(std::max(inventory.devices.size(), devices.size()));
        for (size_t d = 0; d < devices.size(); ++d)
          inventory.devices[d].*member = Numbers(devices[d]);
      };
      lists("ready", &api::ExecutorInventory::Device::ready);
      lists("expected", &api::ExecutorInventory::Device::expected);
      for (const std::string& one : List(Arg(w, "running"))) {  // 7, or 7/sequence/generation
        const Words of = absl::StrSplit(one, '/');
        inventory.running.push_back(Number(of.at(0)));
        inventory.sequences.push_back(of.size() > 1 ? Number(of.at(1)) : 0);
        inventory.running_generations.push_back(of.size() > 2 ? Number(of.at(2)) : 0);
      }
      inventory.ended = Numbers(Arg(w, "ended"));
      inventory.executables = Numbers(Arg(w, "executables"));
      inventory.compiling = Numbers(Arg(w, "compiling"));
      inventory.generations = Numbers(Arg(w, "generations"));
      if (const std::string n = Arg(w, "reports"); !n.empty()) inventory.reports = Number(n);
      e.report.body = std::move(inventory);
    } else {
      EXPECT_EQ(what, "ready");
      e.report.body = api::ExecutorReady{ExecutorOf(w.at(3))};
    }
    return e;
  }

  Event CompileOf(const Words& w) {
    Compile e{NewRequest(), {}, {}};
    e.body.mesh = Arg(w, "named");
    e.body.plan_only = Arg(w, "plan") == "1";
    e.body.explain = Arg(w, "explain") == "1";
    if (const std::string bytes = Arg(w, "absent"); !bytes.empty())
      e.body.device_memory_bytes = static_cast<int64_t>(Number(bytes));
    e.body.name = e.key = w.at(1);
    if (const std::string t = Arg(w, "timeout"); !t.empty()) e.body.timeout = MillisOf(t);
    ir::Builder b({MeshOf(Arg(w, "mesh")), true}, w.at(1));
    std::vector<ir::Value> params, results;
    for (const std::string& in : List(Arg(w, "in"))) {
      e.body.program.in_shardings.push_back(SpecOf(in));
      params.push_back(b.Param(ir::MakeType(ir::DType::kF32, {8})));
    }
    for (const std::string& out : List(Arg(w, "out"))) {
      e.body.program.out_shardings.push_back(SpecOf(out));
      results.push_back(params.at(0));
    }
    e.body.program.entry = b.Build(results);
    for (uint64_t d : Numbers(Arg(w, "devices"))) e.body.devices.push_back(static_cast<int64_t>(d));
    return e;
  }

  // Returns the plan that a planner would make from the shardings of the request.
  core::Plan PlanOf(uint64_t id) {
    const core::PlanRequest& request = plans_.at(id);
    core::Plan plan;
    plan.device_program = request.program.entry;
    plan.mesh = request.program.mesh();
    for (const auto& s : request.program.in_shardings)
      plan.in.push_back({ir::DType::kF32, {8}, *s});
    for (const auto& s : request.program.out_shardings)
      plan.out.push_back({ir::DType::kF32, {8}, *s});
    return plan;
  }

  State state_;
  uint64_t detachments_ = 0;
  CommittedRows rows_, rows_before_;  // all committed rows, and the rows before the last commit
  absl::Time now_ = absl::UnixEpoch();
  uint64_t requests_ = 100;
  core::Caller caller_;
  RequestId id_;
  std::map<uint64_t, core::PlanRequest> plans_;
  bool show_incidents_ = false;
};

class TranscriptTest : public ::testing::TestWithParam<std::string> {};
TEST_P(TranscriptTest, EffectsMatchTheTranscript) {
  Harness harness;
  RunDataFile("tests/golden/scheduler/" + GetParam() + ".txt",
              [&](const DataCase& c) { return harness.Run(c); });
}
INSTANTIATE_TEST_SUITE_P(
    Scheduler, TranscriptTest,
    ::testing::Values("launch", "loss", "cancel", "canaries", "retire", "donate", "transfer",
                      "bounds", "verdict", "watch", "lives", "names", "devices", "incidents",
                      "files", "sessions", "tenants", "drain", "faults", "meshes", "absent",
                      "moves", "pending", "compile", "frozen", "holds", "reshard", "outage",
                      "restart", "adopt", "adopt_compiled", "answers", "answers_waiting",
                      "answers_kept", "resend", "resend_full", "undone", "away", "connection",
                      "forget", "away_donate", "behind", "order", "originals", "uploads", "blame",
                      "room", "replaced", "rejoin", "replicas", "replicas_away", "replicas_copied"),
    [](const auto& info) { return info.param; });

// Each run reads what the run before it makes.
TEST(ChainTest, AChainAsLongAsTheQueueStartsAndFails) {
  constexpr int kRuns = 100'000;
  Harness harness;
  harness.Feed("register s1 w0 0#1x1");
  harness.Feed(absl::StrCat("config queue=", kRuns));
  harness.Feed("compile f mesh=x:1 in=- out=- devices=0");
  harness.Feed("planned 1");
  harness.Feed("report s1/0#1 loaded 1");
  harness.Feed("create mesh=x:1 spec=- devices=0");
  for (int i = 0; i < kRuns; ++i) harness.Feed(absl::StrCat("execute 1 args=", 2 + 2 * i));
  ASSERT_EQ(harness.state().order.live().size(), kRuns);
  EXPECT_EQ(harness.state().order.last_sequence(), 0);
  harness.Feed("report s1/0#1 written 2 dev0");
  EXPECT_EQ(harness.state().order.last_sequence(), kRuns);
  harness.Feed("report s1/0#1 failed 3 INTERNAL broken");
  EXPECT_TRUE(harness.state().order.live().empty());
  // The executor is told to leave all of them, and has left the first.
  EXPECT_EQ(harness.state().order.lingering().size(), kRuns - 1);
}

TEST(AbsentTest, APlanForAbsentDevicesLeavesNoExecutable) {
  Harness harness;
  harness.Feed("compile f mesh=x:512 in=x out=x plan=1 absent=64");
  EXPECT_EQ(harness.state().catalogue.executables().size(), 1u);
  harness.Feed("planned 1 bytes=64");
  harness.Feed("compile f mesh=x:512 in=x out=x plan=1 absent=64");
  harness.Feed("planned 2 bytes=65");
  EXPECT_TRUE(harness.state().catalogue.executables().empty());
  EXPECT_EQ(harness.state().catalogue.num_keys(), 0);
  EXPECT_EQ(harness.state().catalogue.num_plans(), 0);
}

TEST(TranscriptTest, EveryFileIsRun) {
  int files = 0;
  for (const auto& f : std::filesystem::directory_iterator(SourcePath("tests/golden/scheduler")))
    files += f.path().extension() == ".txt";
  EXPECT_EQ(files, 52);
}

}  // namespace
}  // namespace tessera::server::scheduler
