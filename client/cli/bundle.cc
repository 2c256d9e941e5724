// The command debug-bundle: collects into one file what an expert needs to find out why a cluster
// misbehaves. Parts of a sick cluster may not answer, so each part has a bound, and the bundle says
// which parts are missing.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/words.h"
#include "client/cli/context.h"
#include "client/cli/doctor.h"
#include "client/cli/tar_gz.h"

namespace tessera::cli {
namespace {

// The most time for one part of the bundle, so that a part that does not answer costs little of the
// command's time. The limit is longer than the 5 seconds that the coordinator takes at most to ask
// a worker.
constexpr absl::Duration kPartLimit = absl::Seconds(7);
constexpr absl::Duration kDoctorLimit = absl::Seconds(15);
constexpr int kPageSize = 1000;  // length of the first page; only this page of a list is taken
constexpr size_t kSessionsMax = 20, kExplainedMax = 20;
constexpr char kFolder[] = "tessera-debug/";

// ---- Secrets. -----------------------------------------------------------------------------------

bool IsTokenChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Replaces each piece of the text that begins with `begin` by `by`. `end_of` takes the position
// behind `begin` and returns the end of the piece.
template <class EndOf>
std::string ReplaceEach(std::string_view text, std::string_view begin, std::string_view by,
                        const EndOf& end_of) {
  std::string out;
  size_t at = 0;
  for (size_t found; (found = text.find(begin, at)) != std::string_view::npos;) {
    out += text.substr(at, found - at);
    out += by;
    at = end_of(found + begin.size());
  }
  return out += text.substr(at);
}

// Removes tokens and PEM blocks from the text. The parts hold no secrets by themselves, but
// somebody may have put a secret into a name.
std::string WithoutSecrets(std::string text, const std::string& own_token) {
  for (const char* prefix : {"tsr_", "tsj_"}) {  // tokens of callers, and of machines that join
    text = ReplaceEach(text, prefix, "(a token)", [&](size_t at) {
      while (at < text.size() && IsTokenChar(text[at])) ++at;
      return at;
    });
  }
  text = ReplaceEach(text, "-----BEGIN", "(PEM)", [&](size_t at) {
    constexpr std::string_view kEnd = "-----END";
    const size_t end = text.find(kEnd, at);
    if (end == std::string::npos) return text.size();
    const size_t dashes = text.find("-----", end + kEnd.size());
    return dashes == std::string::npos ? text.size() : dashes + 5;
  });
  if (own_token.empty()) return text;
  return ReplaceEach(text, own_token, "(a token)", [](size_t at) { return at; });
}

// ---- Facts about this machine. ------------------------------------------------------------------

std::string FirstLine(const std::filesystem::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line, '\n');
  return line;
}

// Lists the programs of Tessera that run here, with the state that the kernel reports. A program
// that was stopped by a signal has the state T.
std::string LocalProcesses() {
  std::string text = "PID STATE PROGRAM (the state T is stopped, D waits for a disk)\n";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    // Take only the program's name from the command line, because an argument may be a token.
    std::string program = FirstLine(entry.path() / "cmdline");
    program = program.substr(0, program.find('\0'));
    if (!absl::StartsWith(program, "tessera-executor"))
      program = program.substr(program.rfind('/') + 1);
    if (!absl::StartsWith(program, "tessera")) continue;
    const std::string stat = FirstLine(entry.path() / "stat");
    const size_t end = stat.rfind(") ");
    const std::string state = end == std::string::npos ? "?" : stat.substr(end + 2, 1);
    absl::StrAppend(&text, pid, " ", state, " ", program, "\n");
    std::ifstream status(entry.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (absl::StartsWith(line, "VmRSS") || absl::StartsWith(line, "Threads"))
        absl::StrAppend(&text, "    ", line, "\n");
    }
  }
  return text;
}

std::string LocalSystem(const std::string& address) {
  return absl::StrCat(VersionText("tessera"), "address ", address, "\n", FirstLine("/proc/version"),
                      "\n", "cores ", std::thread::hardware_concurrency(), "\nload ",
                      FirstLine("/proc/loadavg"), "\n", FirstLine("/proc/meminfo"), "\n",
                      FirstLine("/proc/driver/nvidia/version"), "\n");
}

// ---- The bundle. --------------------------------------------------------------------------------

class Bundle {
 public:
  Bundle(Context& context, TarGz& file) : context_(context), file_(file) {}

  void Collect() {
    const std::string& address = context_.globals().address;
    Add("local system", "local/system.txt", LocalSystem(address));
    Add("local processes", "local/processes.txt", LocalProcesses());
    AddCoordinator();
    if (coordinator_answers_) {
      AddLists();
      AddArraysOfSessions();
      AddExplanations();
      AddWorkers();
    }
    AddDoctor();
    Add("summary", "summary.txt", Summary());
    file_.Add(absl::StrCat(kFolder, "manifest.json"), Manifest().dump(2) + "\n");
  }

  // Returns a line for each part that is missing or not complete, with the reason.
  std::vector<std::string> MissingParts() const {
    std::vector<std::string> out;
    for (const Part& part : parts_)
      if (!part.why.empty()) out.push_back(absl::StrCat(part.name, ": ", part.why));
    return out;
  }
  Json Manifest() const {
    Json parts = Json::array();
    for (const Part& p : parts_)
      parts.push_back({{"part", p.name},
                       {"file", p.file},
                       {"ok", p.why.empty()},
                       {"why", p.why},
                       {"took_ms", absl::ToInt64Milliseconds(p.took)},
                       {"bytes", p.bytes}});
    return {{"format", 1},
            {"made", absl::FormatTime(began_, absl::UTCTimeZone())},
            {"took_ms", absl::ToInt64Milliseconds(absl::Now() - began_)},
            {"by", std::string(absl::StripAsciiWhitespace(VersionText("tessera")))},
            {"address", context_.globals().address},
            {"parts", parts}};
  }

 private:
  struct Part {
    std::string name, file, why;  // `why`: the reason why the part is missing or not complete
    absl::Duration took;
    size_t bytes = 0;
  };

  void Add(const std::string& name, const std::string& file, const std::string& bytes,
           absl::Duration took = absl::ZeroDuration(), const std::string& why = "") {
    const std::string safe = WithoutSecrets(bytes, context_.globals().connect.token);
    file_.Add(kFolder + file, safe);
    parts_.push_back({name, file, why, took, safe.size()});
  }
  // Notes that a part is missing.
  void AddMissing(const std::string& name, const std::string& why,
                  absl::Duration took = absl::ZeroDuration()) {
    parts_.push_back({name, "", WithoutSecrets(why, context_.globals().connect.token), took, 0});
  }

  // Calls the coordinator with the bound of a part, and sets `took` to the time that the call took.
  absl::StatusOr<Json> Ask(const std::string& method, const Json& request, absl::Duration* took) {
    const absl::Time began = absl::Now();
    absl::StatusOr<Json> answer = absl::UnknownError("");
    if (context_.left() <= absl::ZeroDuration()) {
      answer = MakeError(ErrorKind::kDeadlineExceeded, "not asked: the command's time was over");
    } else {
      const Context::ScopedTimeLimit limit(context_, kPartLimit);
      answer = context_.Call(method, request);
    }
    *took = absl::Now() - began;
    return answer;
  }
  // Calls the coordinator and adds the answer to the bundle. Returns the answer, or null if there
  // is none.
  Json AskInto(const std::string& name, const std::string& file, const std::string& method,
               const Json& request) {
    absl::Duration took;
    const absl::StatusOr<Json> answer = Ask(method, request, &took);
    if (!answer.ok()) {
      AddMissing(name, std::string(answer.status().message()), took);
      return nullptr;
    }
    const bool more = !TextOf(*answer, "nextPageToken").empty();
    Add(name, file, answer->dump(2) + "\n", took,
        more ? absl::StrCat("only the first ", kPageSize) : "");
    return *answer;
  }

  // Adds the diagnostics that processes report about themselves, a part for each process.
  void AddProcesses(const Json& answer, absl::Duration took) {
    for (Json process : ChildOf(answer, "processes")) {
      const std::string name = TextOf(process, "process");
      const std::string folder = FolderOf(name);
      const std::string why = TextOf(ChildOf(process, "status"), "message");
      MoveTextToPart(process, "flightRecorder", "flight recorder of " + name,
                     folder + "flight.txt");
      MoveTextToPart(process, "metrics", "metrics of " + name, folder + "metrics.txt");
      Add("process " + name, folder + "process.json", process.dump(2) + "\n", took, why);
      processes_.push_back(std::move(process));
    }
  }
  // Makes a part of a text field of the process's answer, and removes the field from the answer.
  void MoveTextToPart(Json& process, const char* field, const std::string& name,
                      const std::string& file) {
    if (!process.contains(field)) return;
    const std::string text = process[field].get<std::string>();
    Add(name, file, text);
    for (const absl::string_view line : absl::StrSplit(text, '\n'))
      if (absl::StartsWith(line, "tessera_queue_depth") ||
          absl::StartsWith(line, "tessera_queue_pending_reason") ||
          absl::StartsWith(line, "tessera_operation_oldest_age_seconds"))
        absl::StrAppend(&queues_text_, "  ", line, "\n");
    process.erase(field);
  }
  // Returns the folder of a process in the bundle: "w0/1" is in "workers/w0/executor-1/".
  static std::string FolderOf(const std::string& process) {
    if (process == "coordinator") return "coordinator/";
    const std::vector<std::string> names = absl::StrSplit(process, absl::MaxSplits('/', 1));
    // Names in a tar are short. Names of workers mostly differ at their ends, so the end is kept.
    std::string worker = names[0].substr(names[0].size() - std::min<size_t>(names[0].size(), 48));
    for (char& c : worker)
      if (!IsTokenChar(c) && c != '-') c = '_';
    return absl::StrCat("workers/", worker, "/",
                        names.size() > 1 ? absl::StrCat("executor-", names[1], "/") : "");
  }

  void AddCoordinator() {
    absl::Duration took;
    const absl::StatusOr<Json> answer =
        Ask("AdminService/GetDiagnostics", {{"details", true}}, &took);
    if (answer.ok()) return AddProcesses(*answer, took);
    AddMissing("process coordinator", std::string(answer.status().message()), took);
    const absl::StatusCode code = answer.status().code();
    // With these errors the coordinator does answer: the caller may not see diagnostics, or the
    // coordinator is older.
    coordinator_answers_ = code == absl::StatusCode::kPermissionDenied ||
                           code == absl::StatusCode::kUnauthenticated ||
                           code == absl::StatusCode::kUnimplemented;
    if (!coordinator_answers_)
      AddMissing("the cluster", "not asked: the coordinator did not answer");
  }

  void AddLists() {
    const Json page = {{"pageSize", kPageSize}};
    const auto list = [&](const std::string& name, const std::string& method, Json request) {
      return AskInto(name, absl::StrCat("cluster/", name, ".json"), method, request);
    };
    list("health", "grpc.health.v1.Health/Check", {{"service", ""}});
    list("capabilities", "ClusterService/GetCapabilities", Json::object());
    workers_ = list("workers", "ClusterService/ListWorkers", page);
    devices_ = list("devices", "ClusterService/ListDevices", page);
    list("topology", "ClusterService/GetTopology", Json::object());
    list("meshes", "ClusterService/ListMeshes", page);
    list("top-programs", "ClusterService/ListTopPrograms", Json::object());
    sessions_ = list("sessions", "SessionService/ListSessions", page);
    list("operations", "OperationService/ListOperations",
         {{"pageSize", kPageSize}, {"allSessions", true}});
    live_ = list("operations-live", "OperationService/ListOperations",
                 {{"pageSize", kPageSize}, {"allSessions", true}, {"liveOnly", true}});
  }

  void AddArraysOfSessions() {
    AskInto("arrays", "cluster/arrays.json", "ArrayService/ListArrays", {{"pageSize", kPageSize}});
    size_t asked = 0;
    for (const Json& session : ChildOf(sessions_, "sessions")) {
      const std::string id = TextOf(session, "id");
      if (id.empty() || id == "0") continue;
      if (++asked > kSessionsMax)
        return AddMissing("arrays of more sessions", absl::StrCat("only of ", kSessionsMax));
      AskInto("arrays of session " + id, absl::StrCat("cluster/arrays-", id, ".json"),
              "ArrayService/ListArrays", {{"session", id}, {"pageSize", kPageSize}});
    }
  }

  // Asks the coordinator, for the oldest operations that have not ended, why they wait.
  void AddExplanations() {
    size_t asked = 0;
    for (const Json& operation : ChildOf(live_, "operations")) {
      const std::string id = TextOf(operation, "id");
      if (++asked > kExplainedMax)
        return AddMissing("explanations of more operations",
                          absl::StrCat("only of ", kExplainedMax));
      const Json why =
          AskInto("explanation of operation " + id, absl::StrCat("cluster/explain-", id, ".json"),
                  "OperationService/ExplainPending", {{"operation", id}});
      for (const Json& reason : ChildOf(why, "reasons"))
        absl::StrAppend(&waits_text_, "  ", id, " ", StateOf(operation), " ",
                        TextOf(operation, "name"), ": ", TextOf(reason, "message"), "\n");
    }
  }

  // A first round finds the daemons that answer. Only these are asked for details.
  void AddWorkers() {
    absl::Duration took;
    const absl::StatusOr<Json> round =
        Ask("AdminService/GetDiagnostics", {{"all", true}, {"timeout", "2s"}}, &took);
    if (!round.ok())
      return AddMissing("processes of workers", std::string(round.status().message()));
    std::set<std::string> known;
    for (const Json& process : ChildOf(*round, "processes")) {
      const std::string name = TextOf(process, "process");
      if (name == "coordinator" || absl::StrContains(name, '/')) continue;
      known.insert(name);
      if (const std::string why = TextOf(ChildOf(process, "status"), "message"); !why.empty()) {
        AddMissing("process " + name, why, took);
        continue;
      }
      absl::Duration part_took;
      const absl::StatusOr<Json> answer =
          Ask("AdminService/GetDiagnostics", {{"worker", name}, {"details", true}}, &part_took);
      if (answer.ok())
        AddProcesses(*answer, part_took);
      else
        AddMissing("process " + name, std::string(answer.status().message()), part_took);
    }
    for (const Json& worker : ChildOf(workers_, "workers"))
      if (const std::string name = TextOf(worker, "name"); known.count(name) == 0)
        AddMissing("process " + name,
                   absl::StrCat("the worker is not connected: ", StateOf(worker)));
  }

  void AddDoctor() {
    const absl::Time began = absl::Now();
    const Context::ScopedTimeLimit limit(context_,
                                         coordinator_answers_ ? kDoctorLimit : kPartLimit);
    doctor_ = RunDoctor(context_);
    Add("doctor", "doctor.json", doctor_.dump(2) + "\n", absl::Now() - began);
  }

  // Returns a line such as "workers: 2 READY 1 LOST".
  static std::string StateCountsText(const Json& items, const std::string& what) {
    std::map<std::string, int64_t> counts;
    for (const Json& item : items) ++counts[StateOf(item)];
    std::string text = absl::StrCat(what, ":");
    for (const auto& [state, count] : counts) absl::StrAppend(&text, " ", count, " ", state);
    return text + (counts.empty() ? " none\n" : "\n");
  }

  // Writes the page that an expert reads first: the state of the cluster in numbers, what
  // operations wait for, the processes, the checks of doctor, and the parts that are missing.
  std::string Summary() const {
    std::string text = absl::StrCat(
        "Bundle of the cluster at ", context_.globals().address, ", made ",
        absl::FormatTime(began_, absl::UTCTimeZone()), " in ", DurationText(absl::Now() - began_),
        "\n\n"
        "manifest.json lists the parts. The file flight.txt of each process has its last minutes,\n"
        "one entry per line, together with the lines of its log. Begin there, at the time of the\n"
        "problem.\n\n");
    absl::StrAppend(&text, StateCountsText(ChildOf(workers_, "workers"), "workers"));
    int64_t healthy = 0, devices = 0;
    for (const Json& d : ChildOf(devices_, "devices")) {
      ++devices;
      healthy += FlagOf(d, "healthy") ? 1 : 0;
    }
    absl::StrAppend(&text, "devices: ", healthy, " of ", devices, " healthy\n");
    absl::StrAppend(
        &text, StateCountsText(ChildOf(live_, "operations"), "operations that have not ended"));
    if (!waits_text_.empty())
      absl::StrAppend(&text, "\nReasons why the oldest of these operations wait:\n", waits_text_);
    if (!queues_text_.empty()) absl::StrAppend(&text, "\nThe coordinator's queue:\n", queues_text_);
    absl::StrAppend(&text, "\nProcesses:\n");
    for (const Json& p : processes_) {
      const auto up = DurationOf(p, "upTime");
      const std::string why = TextOf(ChildOf(p, "status"), "message");
      absl::StrAppend(&text, "  ", TextOf(p, "process"), " ", TextOf(p, "build"), " pid ",
                      TextOf(p, "pid"), up ? absl::StrCat(" up ", DurationText(*up)) : "",
                      why.empty() ? "" : absl::StrCat(" DID NOT ANSWER: ", why), "\n");
    }
    absl::StrAppend(&text, "\nDoctor:\n");
    for (const Json& c : ChildOf(doctor_, "checks"))
      absl::StrAppend(&text, "  ", TextOf(c, "verdict"), " ", TextOf(c, "name"), ": ",
                      TextOf(c, "detail"), "\n");
    const std::vector<std::string> gaps = MissingParts();
    absl::StrAppend(
        &text, gaps.empty() ? "\nAll parts are present.\n" : "\nMissing or incomplete parts:\n");
    for (const std::string& gap : gaps) absl::StrAppend(&text, "  ", gap, "\n");
    return text;
  }

  Context& context_;
  TarGz& file_;
  const absl::Time began_ = absl::Now();
  bool coordinator_answers_ = true;
  std::vector<Part> parts_;
  std::vector<Json> processes_;
  Json workers_, devices_, sessions_, live_, doctor_;
  std::string waits_text_, queues_text_;  // lines for the summary
};

absl::Status DebugBundle(Context& context, const Arguments& arguments) {
  const std::string path = arguments.Text("out");
  if (!context.has_address())
    return UsageError("no address: which cluster is meant? Give --address HOST:PORT");
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<TarGz> file, TarGz::Open(path));
  Bundle bundle(context, *file);
  bundle.Collect();
  if (Context::Interrupted())
    return Context::InterruptedError("interrupted: the bundle was not written");
  TESSERA_RETURN_IF_ERROR(file->Close());
  context.PrintResult(bundle.Manifest(), [&] {
    for (const std::string& gap : bundle.MissingParts())
      context.Note(absl::StrCat("incomplete: ", gap));
    context.terminal().Print(absl::StrCat(path, "\n"));
  });
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> BundleCommands() {
  return {
      {.name = "debug-bundle",
       .summary = "Collects diagnostics of a cluster into one file, without secrets.",
       .options = {{.name = "out",
                    .short_name = 'o',
                    .value_name = "FILE",
                    .help = "The .tar.gz to write, readable by its owner.",
                    .default_value = "tessera-debug.tar.gz"}},
       .timeout = absl::Minutes(2),
       .details =
           "The file holds the builds, options, metrics and flight recorders (the last minutes,\n"
           "with log lines) of the coordinator and of each worker's daemon and executors; lists\n"
           "of workers, devices, sessions, operations and arrays; the reasons why operations\n"
           "wait; the checks of `tessera doctor`; and the processes of Tessera on this machine.\n"
           "It holds no tokens, keys, values of arrays or programs.\n"
           "Each part has a time limit. If a part does not answer, manifest.json and summary.txt\n"
           "name it, and the other parts are still there. The command needs an operator's token.",
       .run = DebugBundle}};
}

}  // namespace tessera::cli
