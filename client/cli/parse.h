// Parses a command line with CLI11 into a Command and its arguments, and generates the help,
// docs/cli.md and the shell completions from the table of commands.
//
// Stateless; thread-safe.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/commands.h"

namespace tessera::cli {

// Returns the options that every command has besides its own. --help and --version are not in the
// list.
const std::vector<Option>& GlobalOptions();

struct ParsedCommandLine {
  const Command* command = nullptr;  // null for --help and --version
  Arguments arguments;
  Arguments globals;
  std::string output;  // help or version, if that is to be printed instead of running a command
};
// Parses `args`, which do not contain the program's name. Errors carry the exit code kExitUsage.
absl::StatusOr<ParsedCommandLine> ParseCommandLine(const std::vector<Command>& commands,
                                                   const std::vector<std::string>& args);

// Returns the output of `help WORD...`: the help of that command or, without words, the list of
// commands. An unknown command is an error that carries the exit code kExitUsage.
absl::StatusOr<std::string> HelpOn(const std::vector<Command>& commands,
                                   const std::vector<std::string>& words);
// Returns the text of docs/cli.md.
std::string CommandsMarkdown(const std::vector<Command>& commands);

// A completion of a word, with the help of the command or option that it belongs to.
struct Candidate {
  std::string word, help;
};
// Returns the candidates for the last of `words`, which follow the program's name. They are the
// commands, options and choices that begin with this word. If there are none, the shell completes
// file names.
std::vector<Candidate> CandidatesFor(const std::vector<Command>& commands,
                                     const std::vector<std::string>& words);
// Returns the candidates in the form that `shell` ("bash", "zsh" or "fish") reads.
std::string FormatCandidates(const std::vector<Candidate>& candidates, const std::string& shell);
// Returns the completion script for the shell. The script calls `tessera completion SHELL --
// WORD...`, which prints FormatCandidates.
std::string CompletionScript(const std::string& shell);

}  // namespace tessera::cli
