// Tests whose rows live in text files, and files that are generated.
//
// A file holds cases and comments:
//
//   # Why this case is here.
//   eval seed=7 shape=(2, 3) verbose
//   input, any number of lines
//   ----
//   expected output, up to a blank line
//
// Output that holds blank lines is written between doubled rules:
//
//   eval
//   ----
//   ----
//   first
//
//   second
//   ----
//   ----
//
// With --rewrite or TESSERA_REWRITE=1 the expected parts are replaced by what came out; comments,
// commands and inputs stay as they are. Paths are relative to the repository.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera {

struct DataCase {
  std::string command;                      // The first word.
  std::map<std::string, std::string> args;  // key=value and key=(with, blanks); a bare key is "".
  std::vector<std::string> arg_names;       // In the order written.
  std::string input;
  std::string file;
  int line = 0;  // Of the command.

  bool Has(const std::string& name) const { return args.count(name) > 0; }
  // The argument, or `otherwise` when it is not given.
  std::string Arg(const std::string& name, std::string otherwise = "") const;
};

using DataHandler = std::function<std::string(const DataCase&)>;

// Runs every case of one file; a difference is a test failure at the case's line.
void RunDataFile(const std::string& path, const DataHandler& handler);

// Runs every *.txt below a folder, in the order of their names. A folder without any is a failure.
void RunDataFolder(const std::string& path, const DataHandler& handler);

// Fails unless the file holds exactly `text`; writes it when rewriting.
void ExpectFileHolds(const std::string& path, const std::string& text);

// True when --rewrite or TESSERA_REWRITE=1 was given.
bool Rewriting();

// The absolute path of a file of the repository.
std::string SourcePath(const std::string& path);

namespace internal {

// What a run over one file's text gives: the text with the new outputs, and each case that differs.
struct DataDifference {
  DataCase data_case;
  std::string expected;
  std::string actual;
};
struct DataRun {
  std::string rewritten;
  std::vector<DataDifference> differences;
  int cases = 0;
};
absl::StatusOr<DataRun> RunDataText(const std::string& file, std::string_view text,
                                    const DataHandler& handler);

}  // namespace internal
}  // namespace tessera
