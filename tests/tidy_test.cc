// Reads the source files of all layers and fails if they break the rules of layering and the
// conventions: an include of a higher layer or of another folder of the same layer, a protobuf,
// gRPC or accelerator header outside its folders, a test that sleeps, and a marker comment that
// lacks its reason. Each rule is a row of a table below.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A folder includes itself and lower layers; folders of one layer never include each other.
const std::map<std::string, int>& Layers() {
  static const auto* const layers = new std::map<std::string, int>{
      {"base", 0},   {"proto", 0}, {"ir", 1},    {"client", 2},   {"server", 2},
      {"worker", 2}, {"embed", 3}, {"tests", 4}, {"examples", 4}, {"bench", 5}};
  return *layers;
}

// A rule that only some folders may include the headers that match `header`.
struct HeaderRow {
  std::regex header;
  std::regex allowed;  // matches part of the path of a file that may include them
  std::string message;
};
const std::vector<HeaderRow>& HeaderRows() {
  static const auto* const rows = new std::vector<HeaderRow>{
      {std::regex(R"(^(google/protobuf/|grpc|tessera/v\d)|\.pb\.h$)"),
       std::regex("^(ir/serial|client/remote|client/pjrt|server/jail|server/rows|server/rpc|worker/"
                  "rpc|bench)/"),
       "protobuf and gRPC are for ir/serial, client/remote, client/pjrt, server/jail, server/rows, "
       "server/rpc, "
       "worker/rpc and bench"},
      {std::regex(R"(^(llvm/|llvm-c/|mlir/|cuda|cublas|cudnn|nccl|nvrtc|dnnl|oneapi/dnnl))"),
       std::regex("^worker/"), "LLVM, CUDA, NCCL and oneDNN are for worker/"},
      {std::regex("^sqlite3"), std::regex("^(base/sqlite\\.cc|server/store/testing/|bench/)"),
       "SQLite is for base/sqlite.h; tests and benchmarks of the disk below it may see it too"},
  };
  return *rows;
}

// A rule that no line of some files may contain a match of `word`.
struct WordRow {
  std::string part;  // text that every match contains: other lines skip the slow regular expression
  std::regex path;   // matches part of the path of a file to which the rule applies
  std::regex word;
  std::string message;
};
// Returns the rules about words. They are regular expressions on single lines, which is enough for
// a call of a sleep function and for a marker in a comment; no rule needs to parse C++.
const std::vector<WordRow>& WordRows() {
  // The literals are split so that this file passes its own test.
  static const auto* const rows = new std::vector<WordRow>{
      {"leep", std::regex("^tests/|_test\\.cc$"),
       std::regex(R"(\b(sleep_)"
                  R"(for|sleep_)"
                  R"(until|Sleep)"
                  R"(For|u)"
                  R"(sleep)\s*\()"),
       "a test never sleeps: wait for a condition with a deadline"},
      {"TO"
       "DO",
       std::regex(""),
       std::regex(R"(\bTO)"
                  R"(DO\b(?!: \S+( \S+){3}))"),
       "TO"
       "DO says what would make it done: \"TO"
       "DO: <what, when>\""},
      {"NO"
       "LINT",
       std::regex(""),
       std::regex(R"(\bNO)"
                  R"(LINT(?!(NEXTLINE|BEGIN|END)?\([a-z][a-z0-9.,-]+\)))"),
       "a NO"
       "LINT names its check, and a comment gives the reason"},
  };
  return *rows;
}

std::string Top(const std::string& path) { return path.substr(0, path.find('/')); }

// Returns the second folder of a path: "planner" for "server/planner/plan.h", "" for
// "server/main.cc".
std::string Second(const std::string& path) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  return parts.size() > 2 ? parts[1] : "";
}

// Returns whether the file is a test or part of a folder of test fixtures.
bool IsTest(const std::string& path) {
  return (path.size() > 8 && path.compare(path.size() - 8, 8, "_test.cc") == 0) ||
         path.find("/testing/") != std::string::npos;
}

// Returns the rule that `file` breaks by including `header`, or "" if it may include it. The rows
// about single headers come first, because those headers belong to no layer.
std::string IncludeFault(const std::string& file, const std::string& header, bool quoted) {
  for (const HeaderRow& row : HeaderRows()) {
    if (std::regex_search(header, row.header) && !std::regex_search(file, row.allowed)) {
      return row.message;
    }
  }
  if (header.find("..") != std::string::npos) return "includes start at the repository's root";
  const auto to = Layers().find(Top(header));
  if (to == Layers().end()) {
    const bool own_name = quoted && header.find('/') == std::string::npos;
    return own_name ? "includes start at the repository's root" : "";
  }
  if (header.find('/') == std::string::npos) return "";
  const int from = Layers().at(Top(file));
  if (Top(file) != Top(header) && to->second >= from) {
    return "goes up or sideways: base < ir < {client, server, worker} < embed < {tests, examples} "
           "< bench";
  }
  const bool in_server = Top(file) == "server" && Top(header) == "server";
  const std::string from_role = Second(file), to_role = Second(header);
  // server/rows writes the scheduler's records as bytes, so it may see server/scheduler.
  const bool codec = from_role == "rows" && to_role == "scheduler";
  // server/coordinator wires the roles, and server/rpc serves its calls.
  const bool wires = from_role == "coordinator" ? to_role != "rpc"
                                                : from_role == "rpc" && to_role == "coordinator";
  if (in_server && !codec && !wires && !from_role.empty() && !to_role.empty() &&
      to_role != "core" && from_role != to_role && !IsTest(file) && to_role != "testing") {
    return "server roles see server/core and not each other; server/coordinator and main.cc wire "
           "them";
  }
  return "";
}

// Returns every fault of one file as "path:line: text of the line: rule that it breaks".
std::vector<std::string> Faults(const std::string& path, std::string_view text) {
  static const auto* const include = new std::regex(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<std::string> faults;
  int number = 0;
  for (const std::string& line : std::vector<std::string>(
           absl::StrSplit(absl::string_view(text.data(), text.size()), '\n'))) {
    ++number;
    std::smatch match;
    std::vector<std::string> found;
    if (line.find("include") != std::string::npos && std::regex_search(line, match, *include)) {
      found.push_back(IncludeFault(path, match[2], /*quoted=*/match[1] == "\""));
    }
    for (const WordRow& row : WordRows()) {
      if (line.find(row.part) != std::string::npos && std::regex_search(path, row.path) &&
          std::regex_search(line, row.word)) {
        found.push_back(row.message);
      }
    }
    for (const std::string& fault : found) {
      if (!fault.empty())
        faults.push_back(absl::StrCat(path, ":", number, ": ", line, ": ", fault));
    }
  }
  return faults;
}

bool IsSource(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".h" || extension == ".cc" || extension == ".def";
}

std::string ReadFile(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Readme, ShowsTheExampleAsItIs) {
  const std::string readme = ReadFile(SourcePath("README.md"));
  const std::string open = "```cpp\n";
  const size_t begin = readme.find(open);
  ASSERT_NE(begin, std::string::npos);
  const size_t end = readme.find("```", begin + open.size());
  const std::string shown = readme.substr(begin + open.size(), end - begin - open.size());
  const std::string example = ReadFile(SourcePath("examples/quickstart.cc"));
  EXPECT_NE(example.find(shown), std::string::npos) << "README.md differs from the example:\n"
                                                    << shown;
}

TEST(Tidy, TheTreeHoldsNoFault) {
  const std::filesystem::path root = SourcePath("");
  int files = 0;
  for (const auto& [folder, layer] : Layers()) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || !IsSource(entry.path())) continue;
      const std::string path = entry.path().lexically_relative(root).string();
      for (const std::string& fault : Faults(path, ReadFile(entry.path()))) ADD_FAILURE() << fault;
      ++files;
    }
  }
  EXPECT_GT(files, 10);
}

TEST(Tidy, IncludesGoDownOnly) {
  EXPECT_THAT(IncludeFault("ir/type.cc", "base/status.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("ir/type.cc", "ir/mesh.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("embed/start.cc", "server/core/state.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("server/planner/a.cc", "server/core/plan.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("server/main.cc", "server/planner/plan.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("server/coordinator/a.cc", "server/store/b.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("server/rpc/a.cc", "server/coordinator/b.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("ir/type.cc", "vector", false), IsEmpty());
  EXPECT_THAT(IncludeFault("ir/type.cc", "server/core/plan.h", true), HasSubstr("up or sideways"));
  EXPECT_THAT(IncludeFault("client/a.cc", "worker/b.h", true), HasSubstr("up or sideways"));
  EXPECT_THAT(IncludeFault("base/a.cc", "tests/b.h", true), HasSubstr("up or sideways"));
  EXPECT_THAT(IncludeFault("server/planner/a.cc", "server/store/b.h", true), HasSubstr("roles"));
  EXPECT_THAT(IncludeFault("server/coordinator/a.cc", "server/rpc/b.h", true), HasSubstr("roles"));
  EXPECT_THAT(IncludeFault("ir/ops/a.cc", "../type.h", true), HasSubstr("root"));
  EXPECT_THAT(IncludeFault("ir/a.cc", "type.h", true), HasSubstr("root"));
}

TEST(Tidy, WireAndAcceleratorHeadersStayInTheirFolders) {
  EXPECT_THAT(IncludeFault("ir/serial/a.cc", "tessera/v1/program.pb.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("server/rpc/a.cc", "grpcpp/grpcpp.h", true), IsEmpty());
  EXPECT_THAT(IncludeFault("worker/cpu/a.cc", "dnnl.hpp", false), IsEmpty());
  EXPECT_THAT(IncludeFault("server/core/a.cc", "grpcpp/grpcpp.h", false), HasSubstr("protobuf"));
  EXPECT_THAT(IncludeFault("ir/a.cc", "google/protobuf/message.h", false), HasSubstr("protobuf"));
  EXPECT_THAT(IncludeFault("ir/a.cc", "llvm/IR/Module.h", true), HasSubstr("worker/"));
}

// The literals are split for the same reason as in WordRows(): this file must pass its own test.
TEST(Tidy, WordsAreFoundWithTheirLine) {
  EXPECT_THAT(Faults("a/b_test.cc",
                     "int x;\nstd::this_thread::sleep_"
                     "for(s);"),
              ElementsAre(HasSubstr("b_test.cc:2: std")));
  EXPECT_THAT(Faults("a/b.cc",
                     "std::this_thread::sleep_"
                     "for(s);"),
              IsEmpty());
  EXPECT_THAT(Faults("a/b.cc",
                     "// TO"
                     "DO fix"),
              ElementsAre(HasSubstr("make it done")));
  EXPECT_THAT(Faults("a/b.cc",
                     "// TO"
                     "DO: use the table once it has a row."),
              IsEmpty());
  EXPECT_THAT(Faults("a/b.cc",
                     "// NO"
                     "LINT"),
              ElementsAre(HasSubstr("names its check")));
  EXPECT_THAT(Faults("a/b.cc",
                     "// NO"
                     "LINT(bugprone-x): moved on purpose."),
              IsEmpty());
}

}  // namespace
}  // namespace tessera
