// Parses a command line with CLI11 into a Command and its arguments; and generates the help,
// docs/cli.md and the shell completions from the table of commands.
//
// Stateless; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"

namespace tessera::cli {

// The options that every command has beside its own. --help and --version are not in the list.
const std::vector<Option>& GlobalOptions();

struct Parsed {
  const Command* command = nullptr;  // null for --help and --version
  Arguments arguments;
  Arguments globals;
  std::string output;  // if not empty: help or version, printed instead of running a command
};
// `args` does not contain the program's name. Errors carry the exit code kExitUsage.
absl::StatusOr<Parsed> ParseCommandLine(const std::vector<Command>& commands,
                                        const std::vector<std::string>& args);

// The output of `help WORD...`: the help of that command, or without words the list of commands. An
// unknown command is an error that carries the exit code kExitUsage.
absl::StatusOr<std::string> HelpOn(const std::vector<Command>& commands,
                                   const std::vector<std::string>& words);
// The text of docs/cli.md.
std::string CommandsMarkdown(const std::vector<Command>& commands);

// Completions of the last of `words`, which follow the program's name: the commands, options and
// choices that begin with it. If there are none, the shell completes file names.
struct Candidate {
  std::string word, help;
};
std::vector<Candidate> CandidatesFor(const std::vector<Command>& commands,
                                     const std::vector<std::string>& words);
// `shell` is "bash", "zsh" or "fish".
std::string FormatCandidates(const std::vector<Candidate>& candidates, const std::string& shell);
// The script with which the shell calls `tessera completion SHELL -- WORD...`, which prints
// FormatCandidates.
std::string CompletionScript(const std::string& shell);

}  // namespace tessera::cli
