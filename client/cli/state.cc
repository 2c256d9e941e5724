// The commands state backup and state check: they copy and check a coordinator's durable state,
// which is in files on this machine. They read the files directly and need no coordinator.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/state_file.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/state_dir.h"

namespace tessera::cli {
namespace {

absl::Status Backup(Context& context, const Arguments& arguments) {
  const std::string folder = arguments.Has("state-dir")
                                 ? arguments.Text("state-dir")
                                 : StateDir(DefaultStateDir()).FilePath("coordinator", "state");
  const std::string to = arguments.Text("to");
  TESSERA_RETURN_IF_ERROR(context.RunInterruptible(
      "state backup", [folder, to] { return state_file::Backup(folder, to); }));
  context.PrintResult({{"folder", folder}, {"file", to}}, [&] {
    context.Note(absl::StrCat("The state of ", folder, " is in ", to, "."));
  });
  return absl::OkStatus();
}

absl::Status Check(Context& context, const Arguments& arguments) {
  const std::string path = arguments.Text("PATH");
  TESSERA_ASSIGN_OR_RETURN(const state_file::Report report,
                           context.RunInterruptible<state_file::Report>(
                               "state check", [path] { return state_file::Check(path); }));
  Json document = {{"schemaVersion", report.schema_version},
                   {"epoch", report.starts},
                   {"cluster", report.cluster},
                   {"build", report.build},
                   {"rows", Json::object()}};
  for (const state_file::Table& t : report.tables)
    document["rows"][t.name] = {{"count", t.rows}, {"bytes", t.bytes}};
  context.PrintResult(document, [&] {
    context.Note(absl::StrCat(path, " is whole: cluster ", report.cluster, ", epoch ",
                              report.starts, ", schema ", report.schema_version, ", written by ",
                              report.build));
    Table table({"ROWS OF", "ROWS", "BYTES"});
    for (const state_file::Table& t : report.tables)
      table.AddRow({t.name, absl::StrCat(t.rows), absl::StrCat(t.bytes)});
    context.PrintTable(table, "no rows");
  });
  return absl::OkStatus();
}

}  // namespace

// The rows of the subcommands about a coordinator's state. They read the files of the state folder
// and never call a coordinator, so that they also work when none can be started.
std::vector<Command> StateCommands() {
  return {
      {.name = "state backup",
       .summary = "Copies a coordinator's state into one file.",
       .options =
           {{.name = "state-dir",
             .value_name = "DIR",
             .help =
                 "State folder of the coordinator (default: the state folder of `tessera up`)."},
            {.name = "to",
             .value_name = "FILE",
             .help = "File to write the copy to, which must not exist.",
             .required = true}},
       .timeout = absl::InfiniteDuration(),
       .details = "The coordinator may be running: the copy is its state at one moment, and is "
                  "checked. To restore the copy, put it as state.db into an empty folder and start "
                  "a coordinator with that folder as its --state-dir. See docs/operating.md.",
       .run = Backup},
      {.name = "state check",
       .summary = "Checks that a coordinator's state is whole, and shows what it holds.",
       .options = {Positional("PATH", "The folder of --state-dir, or a backup.")},
       .timeout = absl::InfiniteDuration(),
       .details = "Reads the whole state; the coordinator may be running.",
       .run = Check},
  };
}

}  // namespace tessera::cli
