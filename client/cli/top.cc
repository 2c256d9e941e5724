// The command top: shows programs, workers and operations, and refreshes them every few seconds.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/gpu_cells.h"

namespace tessera::cli {
namespace {

constexpr int kMaxPrograms = 15, kMaxOperations = 10;

struct Snapshot {
  Json programs, workers, devices, operations;
};

absl::StatusOr<Snapshot> TakeSnapshot(Context& context) {
  Snapshot out;
  TESSERA_ASSIGN_OR_RETURN(out.workers,
                           context.ListAll("ClusterService/ListWorkers", {}, "workers"));
  TESSERA_ASSIGN_OR_RETURN(out.devices,
                           context.ListAll("ClusterService/ListDevices", {}, "devices"));
  // An older coordinator has no program statistics. The rest is shown all the same.
  absl::StatusOr<Json> programs =
      context.Call("ClusterService/ListTopPrograms", {{"pageSize", kMaxPrograms}});
  if (programs.ok()) {
    out.programs = *std::move(programs);
  } else if (programs.status().code() != absl::StatusCode::kUnimplemented) {
    return programs.status();
  }
  TESSERA_ASSIGN_OR_RETURN(
      out.operations, context.ListAll("OperationService/ListOperations",
                                      {{"allSessions", true}, {"liveOnly", true}}, "operations"));
  return out;
}

// Returns the text of one screen: a line of totals, and a table each for programs, workers, GPUs
// and operations. Only the first operations are listed, so that the screen stays readable on a busy
// cluster.
std::string ScreenText(const Display& display, const std::string& address, const Snapshot& s) {
  int64_t num_ready = 0, num_devices = 0, num_pending = 0;
  for (const Json& w : ChildOf(s.workers, "workers")) {
    if (StateOf(w) == "READY") {
      ++num_ready;
      num_devices += static_cast<int64_t>(ChildOf(w, "devices").size());
    }
  }
  const Json& operations = ChildOf(s.operations, "operations");
  for (const Json& o : operations) {
    num_pending += StateOf(o) == "PENDING" ? 1 : 0;
  }
  std::string out =
      absl::StrCat(display.Colorize(Style::kBold, "tessera top"), "  ", address, "  ",
                   absl::FormatTime("%H:%M:%S", absl::Now(), absl::LocalTimeZone()), "   ",
                   num_ready, " of ", ChildOf(s.workers, "workers").size(), " workers ready, ",
                   num_devices, " devices, ", operations.size() - static_cast<size_t>(num_pending),
                   " operations run, ", num_pending, " wait\n\n");

  Table programs(
      {"PROGRAM", ">RUNS", ">STEP p50", ">STEP p99", ">DEVICE BUSY", "IDLE FOR", ">MOVED"});
  for (const Json& p : ChildOf(s.programs, "programs")) {
    programs.AddRow({TextOf(p, "name"), CountText(IntOf(p, "runs")),
                     DurationText(absl::Seconds(NumberOf(p, "stepSecondsP50"))),
                     DurationText(absl::Seconds(NumberOf(p, "stepSecondsP99"))),
                     DurationText(absl::Seconds(NumberOf(p, "deviceBusySeconds"))),
                     TextOf(p, "idleCause"), BytesText(NumberOf(p, "bytesMoved"))});
  }
  if (!programs.empty()) absl::StrAppend(&out, programs.ToText(display), "\n");

  Table workers({"WORKER", "STATE", "HOST", ">DEVICES", ">OPERATIONS", ">ARRAYS", ">LAST HEARD"});
  for (const Json& w : ChildOf(s.workers, "workers")) {
    const std::string state = StateOf(w);
    const auto age = DurationOf(w, "heartbeatAge");
    workers.AddRow({TextOf(w, "name"),
                    display.Colorize(state == "READY"  ? Style::kGreen
                                     : state == "LOST" ? Style::kRed
                                                       : Style::kYellow,
                                     state),
                    TextOf(w, "host"), absl::StrCat(ChildOf(w, "devices").size()),
                    absl::StrCat(IntOf(w, "operations")), absl::StrCat(IntOf(w, "arrays")),
                    age ? DurationText(*age) : ""});
  }
  if (!workers.empty()) absl::StrAppend(&out, workers.ToText(display), "\n");

  const Json& devices = ChildOf(s.devices, "devices");
  if (AnyGpu(devices)) {
    std::vector<std::string> titles = {">GPU", "WORKER"};
    titles.insert(titles.end(), GpuTitles().begin(), GpuTitles().end());
    Table gpus(titles);
    for (const Json& d : devices) {
      if (ChildOf(d, "gpu").empty()) continue;
      std::vector<std::string> row = {TextOf(d, "id"), TextOf(d, "worker")};
      for (std::string& cell : GpuCells(d)) row.push_back(std::move(cell));
      gpus.AddRow(row);
    }
    absl::StrAppend(&out, gpus.ToText(display), "\n");
  }

  Table live({">OPERATION", "NAME", "STATE", ">AGE", "WAITS FOR"});
  int num_shown = 0;
  for (const Json& o : operations) {
    if (num_shown++ == kMaxOperations) break;
    const auto created = TimeOf(o, "createTime");
    live.AddRow({TextOf(o, "id"), TextOf(o, "name"), StateOf(o),
                 created ? DurationText(absl::Now() - *created) : "", TextOf(o, "pendingReason")});
  }
  if (!live.empty()) absl::StrAppend(&out, live.ToText(display));
  if (operations.size() > kMaxOperations) {
    absl::StrAppend(&out, "and ", operations.size() - kMaxOperations, " more\n");
  }
  return out;
}

absl::Status Top(Context& context, const Arguments& arguments) {
  // The screen can be redrawn only on a terminal. Anything else gets one snapshot.
  const bool once = arguments.Flag("once") || context.json() || !context.display().out_is_terminal;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const Snapshot snapshot, TakeSnapshot(context));
    const Json document = {{"programs", ChildOf(snapshot.programs, "programs")},
                           {"workers", ChildOf(snapshot.workers, "workers")},
                           {"devices", ChildOf(snapshot.devices, "devices")},
                           {"operations", ChildOf(snapshot.operations, "operations")}};
    context.PrintResult(document, [&] {
      const std::string text = ScreenText(context.display(), context.globals().address, snapshot);
      if (!once) context.terminal().Clear();
      context.terminal().Print(text);
    });
    if (once || !context.SleepUnlessInterrupted(arguments.Duration("interval")))
      return absl::OkStatus();
  }
}

}  // namespace

std::vector<Command> TopCommands() {
  return {
      {.name = "top",
       .summary = "Shows what programs and workers do, and keeps refreshing it.",
       .options = {Flag("once", "Show it once and exit (default if the output is not a terminal)."),
                   {.name = "interval",
                    .type = OptionType::kDuration,
                    .value_name = "DURATION",
                    .help = "Time between two refreshes.",
                    .default_value = "2s"}},
       .timeout = absl::InfiniteDuration(),
       .details = "Ctrl-C ends the command.",
       .run = Top}};
}

}  // namespace tessera::cli
