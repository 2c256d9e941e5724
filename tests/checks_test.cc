// Proves that every check in product code has a row in docs/checks.md, and that the row says why no
// input reaches the check. The test reads the sources and the table; it runs no product code.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/testing/datadriven.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Returns whether a file is product code. Tests, the helpers that tests share, and the header that
// defines the check macros are not product code.
bool IsProduct(const std::string& path) {
  return (absl::EndsWith(path, ".cc") || absl::EndsWith(path, ".h")) &&
         !absl::EndsWith(path, "_test.cc") && !absl::EndsWith(path, "_fuzz.cc") &&
         !absl::StrContains(path, "testing") && path != "base/check.h";
}

// Returns the calls in `text` that end the process, each with its arguments on one line.
std::vector<std::string> ChecksIn(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) line.resize(std::min(line.size(), line.find("//")));
  const std::string code = absl::StrJoin(lines, "\n");
  static const std::regex kEnds(
      R"(\b(TESSERA_CHECK(_[A-Z]+)?|abort|cantFail|report_fatal_error|__builtin_unreachable|)"
      R"(llvm_unreachable|ABSL_HARDENING_ASSERT)\()");
  std::vector<std::string> found;
  for (std::sregex_iterator it(code.begin(), code.end(), kEnds), end; it != end; ++it) {
    const size_t begin = it->position() + it->length();
    size_t at = begin;
    for (int depth = 1; depth > 0 && at < code.size(); ++at)
      depth += (code[at] == '(') - (code[at] == ')');
    const std::string arguments = code.substr(begin, at - 1 - begin);
    found.push_back(absl::StrCat(
        it->str(1), "(",
        absl::StrJoin(absl::StrSplit(arguments, absl::ByAnyChar(" \n\t"), absl::SkipEmpty()), " "),
        ")"));
  }
  return found;
}

struct Row {
  std::string file, check, why;
};
std::vector<Row> Table() {
  std::vector<Row> rows;
  const std::vector<std::string> lines =
      absl::StrSplit(ReadFile(SourcePath("docs/checks.md")), '\n');
  for (const std::string& line : lines) {
    static const std::regex kRow(R"(\| (\S+) \| `(.*)` \| (.*) \|)");
    std::smatch m;
    if (std::regex_match(line, m, kRow))
      rows.push_back({m[1], absl::StrReplaceAll(m[2].str(), {{"\\|", "|"}}), m[3]});
  }
  return rows;
}

// Compares the code with the table in both directions, so that a row is removed with its check.
TEST(Checks, EachHasARowThatJustifiesIt) {
  std::vector<std::string> in_code, in_table;
  const std::filesystem::path root = SourcePath("");
  for (const char* folder : {"base", "ir", "client", "server", "worker", "embed"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string path = entry.path().lexically_relative(root).string();
      if (!entry.is_regular_file() || !IsProduct(path)) continue;
      for (const std::string& check : ChecksIn(ReadFile(entry.path())))
        in_code.push_back(absl::StrCat(path, ": ", check));
    }
  }
  for (const Row& row : Table()) {
    in_table.push_back(absl::StrCat(row.file, ": ", row.check));
    EXPECT_GE(row.why.size(), 12u) << row.file << ": " << row.check << " has no reason";
  }
  std::sort(in_code.begin(), in_code.end());
  std::sort(in_table.begin(), in_table.end());
  std::vector<std::string> unjustified, gone;
  std::set_difference(in_code.begin(), in_code.end(), in_table.begin(), in_table.end(),
                      std::back_inserter(unjustified));
  std::set_difference(in_table.begin(), in_table.end(), in_code.begin(), in_code.end(),
                      std::back_inserter(gone));
  EXPECT_TRUE(unjustified.empty())
      << "docs/checks.md says of these not why no input reaches them; where one does, return an "
         "error:\n"
      << absl::StrJoin(unjustified, "\n");
  EXPECT_TRUE(gone.empty()) << "docs/checks.md has rows for checks that are not in the code:\n"
                            << absl::StrJoin(gone, "\n");
  EXPECT_GT(in_code.size(), 50u);
}

TEST(Checks, AreFoundAsTheyStand) {
  EXPECT_EQ(ChecksIn("  TESSERA_CHECK_EQ(f(a),\n      b) << 1;  // TESSERA_CHECK(no)"),
            std::vector<std::string>{"TESSERA_CHECK_EQ(f(a), b)"});
}

}  // namespace
}  // namespace tessera
