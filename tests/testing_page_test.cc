// Compares the tests that CTest knows with the table of docs/testing.md: every test has a time
// limit and a row in the table, and runs where its row says. The tests and their labels are read
// from the CTestTestfile.cmake files of the build folder in which this test was built.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/testing/datadriven.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReadText(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The properties of one test, as the files of the build folder describe it.
struct KnownTest {
  bool has_timeout = false;
  bool passes_by_text = false;  // has PASS_REGULAR_EXPRESSION
  std::set<std::string> labels;
};

// Reads the lines of one CTestTestfile.cmake into `tests`.
void ReadCTestFile(const std::string& text, std::map<std::string, KnownTest>* tests) {
  static const auto* const line = new std::regex(
      R"re((add_test|set_tests_properties)\((?:\[=*\[)?([A-Za-z0-9_]+)(?:\]=*\])?([^\n]*))re");
  static const auto* const timeout = new std::regex(R"re( TIMEOUT "[0-9.]+")re");
  static const auto* const labels = new std::regex(R"re( LABELS "([^"]*)")re");
  for (std::sregex_iterator it(text.begin(), text.end(), *line), end; it != end; ++it) {
    KnownTest& test = (*tests)[it->str(2)];
    const std::string rest = it->str(3);
    if (it->str(1) == "add_test") continue;
    if (std::regex_search(rest, *timeout)) test.has_timeout = true;
    if (absl::StrContains(rest, " PASS_REGULAR_EXPRESSION ")) test.passes_by_text = true;
    std::smatch found;
    if (std::regex_search(rest, found, *labels)) {
      for (absl::string_view label : absl::StrSplit(found.str(1), ';', absl::SkipEmpty())) {
        test.labels.emplace(label);
      }
    }
  }
}

std::map<std::string, KnownTest> TestsOfThisBuild() {
  std::map<std::string, KnownTest> tests;
  for (const auto& entry : fs::recursive_directory_iterator(TESSERA_BINARY_DIR)) {
    if (entry.path().filename() == "CTestTestfile.cmake" &&
        // tests/install builds two projects that use the installed library; their tests are not
        // ours.
        !absl::StrContains(entry.path().string(), "/tests/install/client/") &&
        !absl::StrContains(entry.path().string(), "/tests/install/embedded/")) {
      ReadCTestFile(ReadText(entry.path()), &tests);
    }
  }
  return tests;
}

// A row of the table in docs/testing.md: the tests that it is about, and where they run.
struct PageRow {
  std::string cell;
  std::vector<std::string> patterns;  // test names; a * at the end stands for any text
  std::string where;
};

std::vector<PageRow> RowsOf(const std::string& page) {
  std::vector<PageRow> rows;
  bool in_table = false;
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (absl::StartsWith(line, "| Tests |")) {
      in_table = true;
    } else if (!absl::StartsWith(line, "|")) {
      in_table = false;
    } else if (in_table && !absl::StartsWith(line, "|--")) {
      const std::vector<std::string> cells = absl::StrSplit(line, '|');
      PageRow row;
      row.cell = std::string(absl::StripAsciiWhitespace(cells.at(1)));
      row.where = std::string(absl::StripAsciiWhitespace(cells.at(3)));
      static const auto* const name = new std::regex("`([^`]+)`");
      for (std::sregex_iterator it(row.cell.begin(), row.cell.end(), *name), end; it != end; ++it) {
        row.patterns.push_back(it->str(1));
      }
      rows.push_back(row);
    }
  }
  return rows;
}

bool IsOf(const PageRow& row, absl::string_view name) {
  return std::any_of(row.patterns.begin(), row.patterns.end(), [&](absl::string_view pattern) {
    return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(name, pattern) : name == pattern;
  });
}

// Returns one line for each way in which the tests and the page disagree.
std::vector<std::string> PageFaults(const std::map<std::string, KnownTest>& tests,
                                    const std::vector<PageRow>& rows) {
  std::vector<std::string> faults;
  for (const auto& entry : tests) {
    const std::string& name = entry.first;
    const KnownTest& test = entry.second;
    if (!test.has_timeout) faults.push_back(absl::StrCat(name, " has no TIMEOUT"));
    if (test.passes_by_text) {
      faults.push_back(absl::StrCat(name,
                                    " has PASS_REGULAR_EXPRESSION, with which CTest ignores the "
                                    "exit status of the program"));
    }
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const PageRow& r) { return IsOf(r, name); });
    if (row == rows.end()) {
      faults.push_back(absl::StrCat(name, " stands in no row of docs/testing.md"));
      continue;
    }
    const bool only_check = test.labels.count("check") > 0;
    if (only_check == absl::StrContains(row->where, "`scripts/test`")) {
      faults.push_back(absl::StrCat(name, ": docs/testing.md says that it runs in ", row->where,
                                    "; with its labels it runs in ",
                                    only_check ? "`scripts/check` alone" : "`scripts/test`"));
    }
    const bool sanitized = test.labels.count("memory") > 0 || test.labels.count("fuzz") > 0;
    if (sanitized && !absl::StrContains(row->where, "sanitizers")) {
      faults.push_back(
          absl::StrCat(name, ": docs/testing.md does not say that it runs under sanitizers"));
    }
    if (!sanitized && absl::StrContains(row->where, "sanitizers")) {
      faults.push_back(absl::StrCat(name,
                                    ": docs/testing.md says that it runs under sanitizers, "
                                    "but it has neither the label memory nor fuzz"));
    }
  }
  return faults;
}

TEST(TestingPage, HasARowForEveryTestAndATimeLimit) {
  const std::map<std::string, KnownTest> tests = TestsOfThisBuild();
  EXPECT_GT(tests.size(), 100);
  for (const std::string& fault :
       PageFaults(tests, RowsOf(ReadText(SourcePath("docs/testing.md"))))) {
    ADD_FAILURE() << fault;
  }
}

// scripts/check runs more than CTest's tests. Each script that it calls must have a row, too.
TEST(TestingPage, HasARowForEveryScriptOfCheck) {
  const std::vector<PageRow> rows = RowsOf(ReadText(SourcePath("docs/testing.md")));
  const std::string script = ReadText(SourcePath("scripts/check"));
  static const auto* const called =
      new std::regex(R"re(\n  step [^\n]*? ((?:scripts|tests)/[a-z_/]+(?:\.py)?))re");
  int found = 0;
  for (std::sregex_iterator it(script.begin(), script.end(), *called), end; it != end; ++it) {
    const std::string name = it->str(1);
    if (name == "scripts/test") continue;
    ++found;
    EXPECT_TRUE(
        std::any_of(rows.begin(), rows.end(), [&](const PageRow& row) { return IsOf(row, name); }))
        << name << " stands in no row of docs/testing.md";
  }
  EXPECT_GT(found, 15);
}

// Feeds a small table and single CTest lines to the comparison. Each line has at most one fault.
TEST(TestingPage, FaultsAreNamed) {
  const std::vector<PageRow> rows = RowsOf(
      "| Tests | What they prove | Where |\n|---|---|---|\n"
      "| `a_*`, `b` | x | `scripts/test` |\n"
      "| `m_*` | x | `scripts/test`, and under sanitizers |\n"
      "| `c_*` | x | `scripts/check` |\n");
  const auto faults = [&](const std::string& ctest) {
    std::map<std::string, KnownTest> tests;
    ReadCTestFile(ctest, &tests);
    return PageFaults(tests, rows);
  };
  EXPECT_THAT(faults("add_test([=[a_x]=] \"p\")\nset_tests_properties([=[a_x]=] PROPERTIES "
                     " TIMEOUT \"60\" X \"\")\n"),
              IsEmpty());
  EXPECT_THAT(faults("add_test(a_x \"p\")\n"), ElementsAre(HasSubstr("a_x has no TIMEOUT")));
  EXPECT_THAT(faults("set_tests_properties(a_x PROPERTIES  PASS_REGULAR_EXPRESSION \"ok\" TIMEOUT "
                     "\"60\")"),
              ElementsAre(HasSubstr("ignores the exit status")));
  EXPECT_THAT(faults("set_tests_properties(d_x PROPERTIES  TIMEOUT \"60\")"),
              ElementsAre(HasSubstr("in no row")));
  EXPECT_THAT(faults("set_tests_properties(bb PROPERTIES  TIMEOUT \"60\")"),
              ElementsAre(HasSubstr("in no row")));
  EXPECT_THAT(faults("set_tests_properties(c_x PROPERTIES  TIMEOUT \"60\")"),
              ElementsAre(HasSubstr("it runs in `scripts/test`")));
  EXPECT_THAT(faults("set_tests_properties(a_x PROPERTIES  LABELS \"check\" TIMEOUT \"60\")"),
              ElementsAre(HasSubstr("`scripts/check` alone")));
  EXPECT_THAT(faults("set_tests_properties(a_x PROPERTIES  LABELS \"memory\" TIMEOUT \"60\")"),
              ElementsAre(HasSubstr("under sanitizers")));
  EXPECT_THAT(faults("set_tests_properties(m_x PROPERTIES  LABELS \"memory\" TIMEOUT \"60\")"),
              IsEmpty());
  EXPECT_THAT(faults("set_tests_properties(m_x PROPERTIES  TIMEOUT \"60\")"),
              ElementsAre(HasSubstr("neither the label memory nor fuzz")));
}

}  // namespace
}  // namespace tessera
