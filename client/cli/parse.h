// A command line to a row of the table and its arguments, read by CLI11; and the table as help, as
// docs/cli.md and as shell completions.
//
// Pure functions.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"

namespace tessera::cli {

// The options that every command takes, beside its own, --help and --version.
const std::vector<Option>& GlobalOptions();

struct Parsed {
  const Command* command = nullptr;  // null: only help or the version was asked for
  Arguments arguments;
  Arguments globals;
  std::string text;  // what to print in place of running, if not empty
};
// `args` without the program's name. Errors exit with kExitUsage and name the command's help.
absl::StatusOr<Parsed> ParseCommandLine(const std::vector<Command>& commands,
                                        const std::vector<std::string>& args);

// What `help WORD...` prints: of the command of these words, or of all without any. An error that
// exits with kExitUsage where there is none.
absl::StatusOr<std::string> HelpOn(const std::vector<Command>& commands,
                                   const std::vector<std::string>& words);
// The page docs/cli.md.
std::string CommandsMarkdown(const std::vector<Command>& commands);

// What may stand in place of the last of `words`, which follow the program's name: commands,
// options and choices that begin with it. None where a shell should offer files.
struct Candidate {
  std::string word, help;
};
std::vector<Candidate> CandidatesFor(const std::vector<Command>& commands,
                                     const std::vector<std::string>& words);
// `shell` is "bash", "zsh" or "fish".
std::string CandidatesText(const std::vector<Candidate>& candidates, const std::string& shell);
// Has the shell call `tessera completion SHELL -- WORD...`, which prints CandidatesText.
std::string CompletionScript(const std::string& shell);

}  // namespace tessera::cli
