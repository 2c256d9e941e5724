// The program `tessera`: parses the command line, runs one command and turns its status into an
// error message and an exit code. embed/ links it with a cluster, so that programs also run without
// a coordinator.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/locks.h"
#include "base/options.h"
#include "base/status.h"
#include "client/cli/commands.h"
#include "client/cli/context.h"
#include "client/cli/parse.h"
#include "client/cli/terminal.h"
#include "client/cli/values.h"
#include "client/error.h"

namespace tessera::cli {
namespace {

// Prints the message, the reason, and what to do.
void PrintError(const Display& display, const std::string& command, const absl::Status& status) {
  std::string name = "tessera";
  if (!command.empty()) absl::StrAppend(&name, " ", command);
  std::cerr << display.ColorizeError(Style::kRed, name + ":") << " "
            << ReplaceControlChars(std::string(status.message())) << "\n";
  if (ExitCodeOf(status) == kExitUsage) return;
  const std::string reason(ReasonOf(status));
  std::cerr << display.ColorizeError(Style::kDim, "  reason:") << " "
            << (reason.empty() ? std::string(absl::StatusCodeToString(status.code())) : reason)
            << "\n";
  // There is no advice for an error without a reason.
  if (reason.empty()) return;
  std::cerr << display.ColorizeError(Style::kDim, "  to do: ") << " "
            << std::string(InfoOf(KindOf(status)).description) << "\n";
}

absl::StatusOr<Globals> GlobalsOf(const ParsedCommandLine& parsed) {
  Globals out;
  const Arguments& given = parsed.globals;
  const auto text = [&](const char* option, const char* variable) {
    return given.Has(option) ? given.Text(option) : ProcessEnv()(variable).value_or("");
  };
  out.address = text("address", "TESSERA_ADDRESS");
  out.connect.ca_file = text("ca-file", "TESSERA_CA_FILE");
  out.connect.token = ProcessEnv()("TESSERA_TOKEN").value_or("");
  if (given.Has("token-file")) {
    TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadFile(given.Text("token-file")));
    out.connect.token = std::string(absl::StripAsciiWhitespace(token));
  }
  out.connect.insecure = given.Flag("insecure");
  out.json = given.Flag("json");
  out.timeout = given.Has("timeout") ? given.Duration("timeout") : parsed.command->timeout;
  return out;
}

// Runs the command. Errors of the command line exit with kExitUsage before anything is called. With
// --json there is one document on stdout in every case: if the command has printed no result, the
// document is {} or the error. Ends by _Exit, because threads that RunInterruptible abandoned may
// still use static objects.
int Main(const std::vector<std::string>& args) {
  Terminal terminal(Display::OfProcess());
  const Display& display = terminal.display();
  absl::StatusOr<ParsedCommandLine> parsed = ParseCommandLine(Commands(), args);
  if (!parsed.ok()) {
    PrintError(display, "", parsed.status());
    return kExitUsage;
  }
  if (!parsed->output.empty()) {
    terminal.Print(parsed->output);
    return args.empty() ? kExitUsage : kExitOk;
  }
  const absl::StatusOr<Globals> globals = GlobalsOf(*parsed);
  if (!globals.ok()) {
    PrintError(display, parsed->command->name, globals.status());
    return kExitUsage;
  }
  Context::WatchSignals();
  Context context(*globals, &terminal);
  absl::Status status;
  try {
    status = parsed->command->run(context, parsed->arguments);
  } catch (const Error& e) {
    status = e.status();
  } catch (const std::exception& e) {
    status = MakeError(ErrorKind::kInternal, e.what());
  }
  if (status.ok()) {
    if (context.json() && !context.has_printed_result()) terminal.Print("{}\n");
  } else {
    PrintError(display, parsed->command->name, status);
    if (context.json() && !context.has_printed_result()) {
      terminal.Print(ErrorDocument(status).dump(1, ' ', false, Json::error_handler_t::replace) +
                     "\n");
    }
  }
  context.Close();
  // Threads that RunInterruptible has abandoned may still run, so static destructors must not.
  std::fflush(nullptr);
  std::_Exit(ExitCodeOf(status));
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) {
  tessera::DisableDeadlockDetectionInRelease();
  // Keep gRPC from logging, since the commands report errors themselves.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  return tessera::cli::Main(std::vector<std::string>(argv + 1, argv + argc));
}
