// The command table of `tessera`: one row per command. The CLI11 parser, the help, docs/cli.md and
// the shell completions are all generated from it.
//
// A row is a plain value. The function `run` of a row is called at most once in a process, on the
// main thread.
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

class Context;  // in client/cli/context.h; passed to every command

// The type of an option's value.
enum class OptionType : uint8_t {
  kFlag,  // no value
  kText,
  kInt,       // a non-negative integer
  kDuration,  // "500ms", "30s", "2m"
  kTexts,     // a text that may be given several times; a positional takes one or more
};

struct Option {
  // The name without dashes, such as "out" for --out. A positional has the name that help and
  // errors show, such as "PROGRAM".
  std::string name = {};
  char short_name = 0;  // 'o' for -o; 0 if there is none
  OptionType type = OptionType::kText;
  std::string value_name = {};  // the name of the value in help: "DIR"
  std::string help = {};        // a sentence
  std::string default_value = {};
  bool positional = false;
  bool required = false;
  std::vector<std::string> choices = {};  // the accepted values; empty if any value is
};

// Makes an option without a value.
inline Option Flag(std::string name, std::string help) {
  return {.name = std::move(name), .type = OptionType::kFlag, .help = std::move(help)};
}
// Makes a required positional argument.
inline Option Positional(std::string name, std::string help) {
  return {.name = std::move(name), .help = std::move(help), .positional = true, .required = true};
}

// The options given on a command line, checked against the command's row.
class Arguments {
 public:
  // Returns whether the option was given on the command line. A default value does not count.
  bool Has(const std::string& name) const { return given_.count(name) > 0; }
  bool Flag(const std::string& name) const { return Has(name); }
  std::string Text(const std::string& name) const;  // "" if the option is absent
  std::vector<std::string> Texts(const std::string& name) const;
  int64_t Int(const std::string& name) const;
  absl::Duration Duration(const std::string& name) const;

  // Called by the parser only.
  void Set(const std::string& name, std::vector<std::string> values);
  void SetDefault(const std::string& name, std::string value);

 private:
  std::map<std::string, std::vector<std::string>> given_;
  std::map<std::string, std::string> defaults_;
};

struct Command {
  std::string name = {};   // "devices", "mesh create"
  std::string group = {};  // the heading in --help; set by Commands()
  std::string summary = {};
  std::vector<Option> options = {};
  // The time limit of the command, unless --timeout is given. If it is infinite, the command runs
  // until it is stopped, and has no --timeout.
  absl::Duration timeout = absl::Seconds(60);
  std::string details = {};  // paragraphs below the options
  absl::Status (*run)(Context& context, const Arguments& arguments) = nullptr;
};

// Returns every command, in the order of --help.
const std::vector<Command>& Commands();

// Each of these functions returns the rows of one file, without groups.
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
// Returns an error of the command line that was found after parsing; the process then exits with
// kExitUsage. The message is the concatenation of `parts`, as by absl::StrCat.
template <class... Parts>
absl::Status UsageError(const Parts&... parts) {
  return WithExitCode(MakeError(ErrorKind::kValueError, absl::StrCat(parts...)), kExitUsage);
}

}  // namespace tessera::cli
