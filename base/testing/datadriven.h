// Runs tests whose rows are in text files, and compares generated files with their contents.
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
// With the flag --rewrite, or TESSERA_REWRITE=1 in the environment, the tests do not compare: they
// replace the expected outputs in the files by the actual ones. Comments, commands and inputs are
// kept. Paths are relative to the root of the repository.
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
  std::string command;                      // first word of the command's line
  std::map<std::string, std::string> args;  // key=value or key=(with, blanks); "" for a bare key
  std::vector<std::string> arg_names;       // names of the arguments, in the order of the line
  std::string input;
  std::string file;
  int line = 0;  // line number of the command

  bool Has(const std::string& name) const { return args.count(name) > 0; }
  // Returns the argument, or `otherwise` if it is not given.
  std::string Arg(const std::string& name, std::string otherwise = "") const;
};

using DataHandler = std::function<std::string(const DataCase&)>;

// Runs all cases of a file. A difference is a test failure at the line of the case.
void RunDataFile(const std::string& path, const DataHandler& handler);

// Runs all files *.txt below a folder, in the order of their names. A folder without such files is
// a failure.
void RunDataFolder(const std::string& path, const DataHandler& handler);

// Fails the test unless the file contains exactly `text`. If Rewriting(), writes `text` to the file
// instead.
void ExpectFileHolds(const std::string& path, const std::string& text);

// Returns true if --rewrite or TESSERA_REWRITE=1 was given.
bool Rewriting();

// Returns the absolute path of a file of the repository.
std::string SourcePath(const std::string& path);

namespace internal {

// A case whose actual output differs from its expected output.
struct DataDifference {
  DataCase data_case;
  std::string expected;
  std::string actual;
};
// The result of running all cases of a text: the text with the actual outputs, and the differences.
struct DataRun {
  std::string rewritten;
  std::vector<DataDifference> differences;
  int cases = 0;
};
absl::StatusOr<DataRun> RunDataText(const std::string& file, std::string_view text,
                                    const DataHandler& handler);

}  // namespace internal
}  // namespace tessera
