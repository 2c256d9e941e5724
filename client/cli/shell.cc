// The commands help, completion and version, which are about the program itself. Only version may
// call the coordinator.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/cli/context.h"
#include "client/cli/parse.h"
#include "ir/program.h"

namespace tessera::cli {
namespace {

absl::Status Help(Context& context, const Arguments& arguments) {
  TESSERA_ASSIGN_OR_RETURN(const std::string text, HelpOn(Commands(), arguments.Texts("COMMAND")));
  context.PrintResult({{"help", text}}, [&] { context.terminal().Print(text); });
  return absl::OkStatus();
}

absl::Status Completion(Context& context, const Arguments& arguments) {
  const std::string shell = arguments.Text("SHELL");
  const std::string text =
      arguments.Has("WORD")
          ? FormatCandidates(CandidatesFor(Commands(), arguments.Texts("WORD")), shell)
          : CompletionScript(shell);
  context.PrintResult({{"script", text}}, [&] { context.terminal().Print(text); });
  return absl::OkStatus();
}

absl::Status Version(Context& context, const Arguments&) {
  Json document = {{"version", TESSERA_VERSION}, {"opset", ir::kOpset}};
  std::string text = absl::StrCat("tessera ", TESSERA_VERSION, ", op set ", ir::kOpset, "\n");
  if (context.has_address()) {
    TESSERA_ASSIGN_OR_RETURN(const Json server, context.Call("ClusterService/GetCapabilities"));
    document["server"] = server;
    const std::string revision = TextOf(ChildOf(server, "build"), "revision");
    absl::StrAppend(&text, "coordinator at ", context.globals().address, ": ",
                    TextOf(server, "version"),
                    revision.empty() ? "" : absl::StrCat(" (revision ", revision, ")"), ", op set ",
                    IntOf(server, "opset"), "\n");
  }
  context.PrintResult(document, [&] { context.terminal().Print(text); });
  return absl::OkStatus();
}

}  // namespace

// The rows of these commands. `completion` takes the words that are typed so far behind the shell's
// name: the completion scripts call it, and people only give the shell.
std::vector<Command> ShellCommands() {
  return {
      {.name = "help",
       .summary = "Says what a command does and which arguments it takes, as --help does.",
       .options = {{.name = "COMMAND",
                    .type = OptionType::kTexts,
                    .help = "Words of the command. Without any, the commands are listed.",
                    .positional = true}},
       .run = Help},
      {.name = "completion",
       .summary = "Prints a completion script.",
       .options = {{.name = "SHELL",
                    .help = "The shell.",
                    .positional = true,
                    .required = true,
                    .choices = {"bash", "zsh", "fish"}},
                   {.name = "WORD",
                    .type = OptionType::kTexts,
                    .help = "Words typed so far after tessera, which the script passes; prints the "
                            "candidates for the last word.",
                    .positional = true}},
       .details = "bash: source <(tessera completion bash)",
       .run = Completion},
      {.name = "version",
       .summary = "Prints the version and, with an address, the coordinator's version.",
       .run = Version},
  };
}

}  // namespace tessera::cli
