// The command table of `tessera`: one row per command. The CLI11 parser, the help, docs/cli.md and
// the shell completions are all generated from it.
//
// A row is a value without state of its own; `run` is called at most once in a process, on the main
// thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace tessera::cli {

class Context;  // client/cli/context.h: what every command gets

// The type of an option's value.
enum class OptionType : uint8_t {
  kFlag,  // no value
  kText,
  kInt,       // a non-negative integer
  kDuration,  // "500ms", "30s", "2m"
  kTexts,     // may be given several times; as a positional: one or more
};

struct Option {
  // "out" for --out; for a positional its name in help and errors: "PROGRAM".
  std::string name = {};
  char short_name = 0;  // 'o' for -o; 0: none
  OptionType type = OptionType::kText;
  std::string value = {};  // the name of the value in help: "DIR"
  std::string help = {};   // a sentence
  std::string default_value = {};
  bool positional = false;
  bool required = false;
  std::vector<std::string> choices = {};  // the values that are accepted; empty: any
};

// An option without a value.
inline Option Flag(std::string name, std::string help) {
  return {.name = std::move(name), .type = OptionType::kFlag, .help = std::move(help)};
}
// A required argument.
inline Option Positional(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help), .positional = true, .required = true};
}

// The options given on a command line, checked against the command's row.
class Arguments {
 public:
  // Whether the option was given; a default value does not count.
  bool Has(const std::string& name) const { return given_.count(name) > 0; }
  bool Flag(const std::string& name) const { return Has(name); }
  std::string Text(const std::string& name) const;  // "" when absent
  std::vector<std::string> Texts(const std::string& name) const;
  int64_t Int(const std::string& name) const;
  absl::Duration Duration(const std::string& name) const;

  // For the parser.
  void Set(const std::string& name, std::vector<std::string> values);
  void SetDefault(const std::string& name, std::string value);

 private:
  std::map<std::string, std::vector<std::string>> given_;
  std::map<std::string, std::string> defaults_;
};

struct Command {
  std::string name = {};   // "devices", "mesh create"
  std::string group = {};  // a heading of --help; set by Commands()
  std::string summary = {};
  std::vector<Option> options = {};
  // The deadline of the command, unless --timeout is given. Infinite: the command runs until it is
  // stopped, and has no --timeout.
  absl::Duration timeout = absl::Seconds(60);
  std::string details = {};  // paragraphs below the options
  absl::Status (*run)(Context& context, const Arguments& arguments) = nullptr;
};

// Every command, in the order of --help.
const std::vector<Command>& Commands();

// The rows of each file, without groups.
std::vector<Command> UpCommands();         // up.cc: up, init
std::vector<Command> JoinCommands();       // join.cc: join
std::vector<Command> ProgramCommands();    // programs.cc: run, explain, export
std::vector<Command> InspectCommands();    // inspect.cc: inspect
std::vector<Command> OperationCommands();  // operations.cc: ps, wait, cancel
std::vector<Command> ArrayCommands();      // arrays.cc: put, get, arrays, reshard, rm, save ...
std::vector<Command> ClusterCommands();    // clusters.cc: devices, workers, mesh, cordon, drain ...
std::vector<Command> SecurityCommands();   // tokens.cc: token create, list, revoke
std::vector<Command> StateCommands();      // state.cc: state backup, check
std::vector<Command> TopCommands();        // top.cc
std::vector<Command> DoctorCommands();     // doctor.cc
std::vector<Command> BundleCommands();     // bundle.cc: debug-bundle
std::vector<Command> ShellCommands();      // shell.cc: help, completion, version

// The exit codes of the process.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;       // the call or its operation failed
inline constexpr int kExitUsage = 2;        // the command line is wrong; nothing was done
inline constexpr int kExitUnavailable = 3;  // no response, or not before the deadline
inline constexpr int kExitInterrupted = 130;

// Returns `status` with a payload that makes the process exit with `code`.
absl::Status WithExitCode(absl::Status status, int code);
int ExitCodeOf(const absl::Status& status);
// An error of the command line, found after parsing: exits with 2. The message is the concatenation
// of `parts`, as by absl::StrCat.
template <class... Parts>
absl::Status UsageError(const Parts&... parts) {
  return WithExitCode(MakeError(ErrorKind::kValueError, absl::StrCat(parts...)), kExitUsage);
}

}  // namespace tessera::cli
