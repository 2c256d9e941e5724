// The commands devices, workers, sessions, mesh, cordon, uncordon, drain and log-level. Each makes
// one call to the coordinator and prints its response as a table, or as it is with --json.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/words.h"
#include "client/cli/context.h"
#include "client/cli/gpu_cells.h"
#include "client/cli/mesh_args.h"
#include "client/cli/placing.h"

namespace tessera::cli {
namespace {

Style StyleOf(const std::string& state) {
  if (state == "READY") return Style::kGreen;
  return state == "LOST" ? Style::kRed : Style::kYellow;
}

// Lists the devices. A device that is not healthy is shown with the reason: as "away" if its
// executor may come back with its arrays, as "not ready" if its executor runs and does not answer,
// and otherwise as "lost". A healthy device may still be cordoned, by an operator or for a fault of
// its own. The columns of GPUs are there if a worker reports the state of one.
absl::Status Devices(Context& context, const Arguments&) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("ClusterService/ListDevices", {}, "devices"));
  context.PrintResult(answer, [&] {
    std::vector<std::string> titles = {">DEVICE",  "KIND", "STATE",  "WORKER",
                                       "EXECUTOR", "HOST", ">MEMORY"};
    const bool has_gpus = AnyGpu(ChildOf(answer, "devices"));
    if (has_gpus) titles.insert(titles.end(), GpuTitles().begin(), GpuTitles().end());
    Table table(titles);
    int64_t num_healthy = 0;
    for (const Json& d : ChildOf(answer, "devices")) {
      const bool is_healthy = FlagOf(d, "healthy"), cordoned = FlagOf(d, "cordoned");
      num_healthy += is_healthy ? 1 : 0;
      const std::string reason = TextOf(d, "reason");
      const char* unhealthy_word = FlagOf(d, "away")           ? "away"
                                   : FlagOf(d, "unresponsive") ? "not ready"
                                                               : "lost";
      const std::string state =
          is_healthy && !cordoned
              ? "ready"
              : absl::StrCat(is_healthy ? "cordoned" : unhealthy_word, reason.empty() ? "" : ": ",
                             absl::StripPrefix(reason, "away: "));
      std::vector<std::string> row = {
          TextOf(d, "id"),
          TextOf(d, "kind"),
          context.display().Colorize(!is_healthy ? Style::kRed
                                     : cordoned  ? Style::kYellow
                                                 : Style::kGreen,
                                     state),
          TextOf(d, "worker"),
          TextOf(d, "executor"),
          TextOf(d, "host"),
          IntOf(d, "memoryBytes") > 0 ? BytesText(NumberOf(d, "memoryBytes")) : "?"};
      if (has_gpus)
        for (std::string& cell : GpuCells(d)) row.push_back(std::move(cell));
      table.AddRow(row);
    }
    context.PrintTable(table,
                       "no devices: no worker has joined. `tessera join`, or `tessera up "
                       "--devices`, brings one");
    if (table.empty()) return;
    const auto num_devices = static_cast<int64_t>(ChildOf(answer, "devices").size());
    context.Note(absl::StrCat(num_healthy, " of ", Pluralize(num_devices, "device"),
                              num_healthy == 1 ? " is healthy" : " are healthy"));
  });
  return absl::OkStatus();
}

// Returns the build of the worker, or "" if the worker does not report one.
std::string BuildOf(const Json& worker) {
  const Json& build = ChildOf(worker, "build");
  const std::string version = TextOf(build, "version");
  return version.empty() ? "" : absl::StrCat(version, " ", TextOf(build, "revision"));
}

void PrintWorkers(Context& context, const Json& workers) {
  Table table({"WORKER", "STATE", "HOST", "DEVICES", ">OPERATIONS", ">ARRAYS", ">LAST HEARD",
               "BUILD", "DATA ENDPOINTS", "REASON"});
  for (const Json& w : workers) {
    const std::string state = StateOf(w);
    std::string endpoints;
    for (const Json& e : ChildOf(w, "dataEndpoints")) {
      if (e.is_string()) {
        absl::StrAppend(&endpoints, endpoints.empty() ? "" : " ",
                        ReplaceControlChars(e.get<std::string>()));
      }
    }
    const auto age = DurationOf(w, "heartbeatAge");
    table.AddRow({TextOf(w, "name"), context.display().Colorize(StyleOf(state), state),
                  TextOf(w, "host"), IntsText(IntsOf(w, "devices")),
                  absl::StrCat(IntOf(w, "operations")), absl::StrCat(IntOf(w, "arrays")),
                  age ? DurationText(*age) : "", BuildOf(w), endpoints, TextOf(w, "reason")});
  }
  context.PrintTable(table, "no worker has joined. `tessera join` brings one");
}

absl::Status Workers(Context& context, const Arguments&) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("ClusterService/ListWorkers", {}, "workers"));
  context.PrintResult(answer, [&] { PrintWorkers(context, ChildOf(answer, "workers")); });
  return absl::OkStatus();
}

absl::Status Sessions(Context& context, const Arguments&) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("SessionService/ListSessions", {}, "sessions"));
  context.PrintResult(answer, [&] {
    Table table({">SESSION", "TENANT", "NAME", "LEASE ENDS", ">ARRAYS", ">OPERATIONS"});
    for (const Json& s : ChildOf(answer, "sessions")) {
      const auto expires = TimeOf(s, "expireTime");
      table.AddRow({TextOf(s, "id"), TextOf(s, "tenant"), TextOf(s, "displayName"),
                    expires ? "in " + DurationText(*expires - absl::Now()) : "never",
                    absl::StrCat(IntOf(s, "arrays")), absl::StrCat(IntOf(s, "operations"))});
    }
    context.PrintTable(table, "no sessions");
  });
  return absl::OkStatus();
}

// ---- Meshes.

void PrintMeshes(Context& context, const Json& meshes) {
  Table table({"MESH", "AXES", "DEVICES"});
  for (const Json& m : meshes) {
    table.AddRow({TextOf(m, "name"), MeshOfJson(ChildOf(m, "mesh")).ToString(),
                  IntsText(IntsOf(m, "devices"))});
  }
  context.PrintTable(table, "no mesh has a name; `tessera mesh create` gives one");
}

absl::Status MeshCreate(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const std::optional<ir::Mesh> mesh, ParseMesh(arguments.Text("AXES")));
  if (!mesh) {
    return UsageError("axes '", arguments.Text("AXES"), "': data=2,model=2 or 2x2 is expected");
  }
  Json named_mesh = {{"name", arguments.Text("NAME")}, {"mesh", JsonOf(*mesh)}};
  if (arguments.Has("devices")) {
    TESSERA_ASSIGN_OR_RETURN(const std::vector<int64_t> devices,
                             ParseInts(arguments.Text("devices")));
    named_mesh["devices"] = devices;
  }
  TESSERA_ASSIGN_OR_RETURN(
      const Json answer,
      context.Call("ClusterService/CreateMesh",
                   {{"mesh", named_mesh}, {"validateOnly", arguments.Flag("check")}}));
  context.PrintResult(answer, [&] { PrintMeshes(context, Json::array({answer})); });
  return absl::OkStatus();
}

absl::Status MeshList(Context& context, const Arguments&) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer,
                           context.ListAll("ClusterService/ListMeshes", {}, "meshes"));
  context.PrintResult(answer, [&] { PrintMeshes(context, ChildOf(answer, "meshes")); });
  return absl::OkStatus();
}

absl::Status MeshRemove(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer, context.Call("ClusterService/DeleteMesh",
                                                           {{"name", arguments.Text("NAME")}}));
  context.PrintResult(answer, [&] { context.Note("the name is forgotten"); });
  return absl::OkStatus();
}

// ---- Workers in and out of service.

absl::Status Cordon(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer, context.Call("AdminService/CordonWorker",
                                                           {{"worker", arguments.Text("WORKER")},
                                                            {"reason", arguments.Text("reason")}}));
  context.PrintResult(answer, [&] { PrintWorkers(context, Json::array({answer})); });
  return absl::OkStatus();
}

absl::Status Uncordon(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer, context.Call("AdminService/UncordonWorker",
                                                           {{"worker", arguments.Text("WORKER")}}));
  context.PrintResult(answer, [&] { PrintWorkers(context, Json::array({answer})); });
  return absl::OkStatus();
}

absl::Status WorkersRemove(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const Json answer, context.Call("AdminService/DeleteWorker",
                                                           {{"worker", arguments.Text("WORKER")}}));
  context.PrintResult(answer, [&] {
    context.Note(absl::StrCat("the worker ", TextOf(answer, "name"), " is forgotten"));
  });
  return absl::OkStatus();
}

// Cordons the worker by the first call and repeats the call, which waits at the coordinator, until
// nothing runs there. If the wait ends early, the worker stays cordoned. The messages then say so,
// and how to continue draining or to uncordon the worker.
absl::Status Drain(Context& context, const Arguments& arguments) {
  const std::string name = arguments.Text("WORKER");
  Progress progress(context.display(), absl::StrCat("drain ", name), 0, context.shows_progress());
  Json worker;
  std::string remaining = "it is not known what still runs there";
  TESSERA_ASSIGN_OR_RETURN(
      const Context::WaitEnd end,
      context.CallUntil(
          "AdminService/DrainWorker", {{"worker", name}, {"reason", arguments.Text("reason")}},
          [&](const Json& answer) {
            worker = answer;
            const int64_t num_running = IntOf(worker, "operations");
            remaining =
                absl::StrCat(num_running, num_running == 1 ? " operation runs" : " operations run",
                             " there still");
            progress.SetState(remaining);
            return num_running == 0;
          }));
  if (end == Context::WaitEnd::kInterrupted) {
    return Context::InterruptedError(absl::StrCat(
        "interrupted: ", name, " stays cordoned, and its operations go on; `tessera uncordon ",
        name, "` puts it back"));
  }
  if (end == Context::WaitEnd::kTimedOut) {
    return MakeError(ErrorKind::kDeadlineExceeded,
                     absl::StrCat(name, ": ", remaining,
                                  "; it stays cordoned. Drain it again to go on waiting, or end "
                                  "the operations with `tessera cancel`"));
  }
  progress.Finish();
  context.PrintResult(worker, [&] {
    PrintWorkers(context, Json::array({worker}));
    const int64_t arrays = IntOf(worker, "arrays");
    context.Note(arrays > 0
                     ? absl::StrCat("nothing runs there any more; ", Pluralize(arrays, "array"),
                                    arrays == 1 ? " is" : " are", " lost when it stops")
                     : "nothing runs there any more; it may be stopped");
  });
  return absl::OkStatus();
}

// ---- Log levels of processes.

// Shows or sets the log levels. The coordinator asks the processes, and some may not answer in
// time: the table shows those, too, and the command then fails.
absl::Status LogLevel(Context& context, const Arguments& arguments) {
  const std::string level = arguments.Text("LEVEL");
  if (arguments.Has("worker") && arguments.Flag("all"))
    return UsageError("--worker and --all exclude each other");
  if (arguments.Has("for") && level.empty())
    return UsageError("--for: give a level as well, as in `tessera log-level debug --for 10m`");
  Json request = {{"worker", arguments.Text("worker")}, {"all", arguments.Flag("all")}};
  if (!level.empty()) request["level"] = level;
  if (arguments.Has("for"))
    request["time"] =
        absl::StrCat(absl::ToInt64Milliseconds(arguments.Duration("for")) / 1000.0, "s");
  TESSERA_ASSIGN_OR_RETURN(
      const Json answer,
      context.Call(level.empty() ? "AdminService/GetDiagnostics" : "AdminService/SetLogLevel",
                   request));
  int64_t num_silent = 0;
  Table table({"PROCESS", "LOG LEVEL", "REASON"});
  for (const Json& p : ChildOf(answer, "processes")) {
    const std::string reason = TextOf(ChildOf(p, "status"), "message");
    const auto reverts_in = DurationOf(p, "logLevelRevertsIn");
    num_silent += reason.empty() ? 0 : 1;
    table.AddRow({TextOf(p, "process"),
                  absl::StrCat(TextOf(p, "logLevel"),
                               reverts_in ? absl::StrCat(" for ", DurationText(*reverts_in)) : ""),
                  context.display().Colorize(Style::kRed, reason)});
  }
  context.PrintResult(answer, [&] { context.PrintTable(table, "no process answered"); });
  if (num_silent == 0) return absl::OkStatus();
  return MakeError(ErrorKind::kDeadlineExceeded,
                   absl::StrCat(Pluralize(num_silent, "process"), " did not answer"));
}

}  // namespace

// The rows of these commands. The texts are the documentation of the commands: --help and
// docs/cli.md print them as they stand here.
std::vector<Command> ClusterCommands() {
  const Option worker = Positional("WORKER", "Name of the worker, as workers prints it.");
  const Option reason = {.name = "reason",
                         .short_name = 'r',
                         .value_name = "TEXT",
                         .help =
                             "Note for people. The list of workers shows it, and so do "
                             "operations that wait for the worker."};
  const Option name = Positional("NAME", "Name of the mesh.");
  return {
      {.name = "devices", .summary = "Lists the devices and their states.", .run = Devices},
      {.name = "workers",
       .summary = "Lists the workers, what runs there and where their data ports are.",
       .run = Workers},
      {.name = "workers rm",
       .summary = "Forgets a worker that is gone.",
       .options = {worker},
       .details = "The worker is no longer listed, and the ids of its devices become invalid. A "
                  "worker of the same name that joins later is a new worker. A worker that is "
                  "connected is refused: drain it and stop it first.",
       .run = WorkersRemove},
      {.name = "sessions", .summary = "Lists the sessions of the tenant.", .run = Sessions},
      {.name = "mesh create",
       .summary = "Gives a mesh and its devices a name.",
       .options = {name,
                   Positional("AXES", "Axes of the mesh: data=2,model=2, or 2x2 for axes x and y."),
                   DevicesOption(), Flag("check", "Only show the mesh that would be made.")},
       .run = MeshCreate},
      {.name = "mesh list", .summary = "Lists the meshes that have names.", .run = MeshList},
      {.name = "mesh rm",
       .summary = "Forgets the name of a mesh.",
       .options = {name},
       .run = MeshRemove},
      {.name = "cordon",
       .summary = "Keeps new programs off a worker.",
       .options = {worker, reason},
       .run = Cordon},
      {.name = "uncordon",
       .summary = "Lets new programs run on a worker again.",
       .options = {worker},
       .run = Uncordon},
      {.name = "drain",
       .summary = "Cordons a worker and waits until nothing runs there.",
       .options = {worker, reason},
       .timeout = absl::Minutes(10),
       .details = "Arrays stay until the worker stops. Ctrl-C leaves the worker cordoned.",
       .run = Drain},
      {.name = "log-level",
       .summary = "Shows or sets the log levels of running processes.",
       .options = {{.name = "LEVEL",
                    .help = "The new log level. Without it, the levels are only shown.",
                    .positional = true,
                    .choices = {"debug", "vlog", "info", "warning", "error", "off"}},
                   {.name = "worker",
                    .short_name = 'w',
                    .value_name = "WORKER",
                    .help = "Show or set the levels of this worker's daemon and executors "
                            "(default: the level of the coordinator)."},
                   Flag("all", "Show or set the levels of the coordinator and all workers."),
                   {.name = "for",
                    .type = OptionType::kDuration,
                    .value_name = "TIME",
                    .help = "Time, at most a day, after which each process logs as before again."}},
       .details =
           "The level debug, which is the same as vlog, has a line for each command and report. A "
           "process that is restarted takes the level from its options, an executor from its "
           "daemon. Each change is logged with the token that asked for it.",
       .run = LogLevel},
  };
}

}  // namespace tessera::cli
