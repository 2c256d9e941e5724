// main() of the executables that hold tests. With --sources=a_test.cc,b_test.cc, which are paths in
// the repository, it runs only the tests in those files. In this way the tests of a folder are
// linked once, and CTest still has a test of its own for each file. If no test ran and at least one
// was skipped, the exit status is 77, so that CTest says "Skipped" rather than "Passed".
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::testing {
namespace {

constexpr std::string_view kFlag = "--sources=";
constexpr int kSkipped = 77;  // tessera_add_test() tells CTest that this means "Skipped"

std::vector<std::string> Split(std::string_view list, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(separator, begin), list.size());
    parts.emplace_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Returns whether `file`, the path of a test as the compiler was given it, is one of `sources`. The
// path may begin at the root of the file system or at a build folder.
bool IsInSources(std::string_view file, const std::vector<std::string>& sources) {
  for (const std::string& source : sources) {
    if (file == source || file.ends_with("/" + source)) return true;
  }
  return false;
}

// Returns whether `name` matches `pattern`, in which * stands for any text and ? for any character.
bool Matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return Matches(name, pattern.substr(1)) || (!name.empty() && Matches(name.substr(1), pattern));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         Matches(name.substr(1), pattern.substr(1));
}

bool MatchesAny(std::string_view name, std::string_view patterns) {
  for (const std::string& pattern : Split(patterns, ':')) {
    if (Matches(name, pattern)) return true;
  }
  return false;
}

// Returns whether Google Test's filter, "patterns to run-patterns to leave out", lets the test run.
bool Passes(std::string_view name, std::string_view filter) {
  const size_t minus = filter.find('-');
  if (minus == std::string_view::npos) return MatchesAny(name, filter);
  return (minus == 0 || MatchesAny(name, filter.substr(0, minus))) &&
         !MatchesAny(name, filter.substr(minus + 1));
}

// Returns a filter for Google Test that names the tests of `sources` which `filter` lets run; "" if
// there are none.
std::string FilterOf(const std::vector<std::string>& sources, std::string_view filter) {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  std::string names;
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (!IsInSources(test.file(), sources) || !Passes(name, filter)) continue;
      names.append(names.empty() ? "" : ":").append(name);
    }
  }
  return names;
}

// Removes --sources from the arguments, because Google Test does not know it, and turns it into
// Google Test's own filter. A source without any test is an error, since it means that the build
// files are wrong. A filter of the user that matches nothing in a source is not an error.
int Main(int argc, char** argv) {
  std::string sources;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with(kFlag)) {
      sources = arg.substr(kFlag.size());
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  argv[argc] = nullptr;
  ::testing::InitGoogleMock(&argc, argv);
  if (!sources.empty()) {
    const std::string given = ::testing::GTEST_FLAG(filter);
    const std::string filter = FilterOf(Split(sources, ','), given);
    if (filter.empty()) {
      std::fprintf(stderr, "%s: no test of %s matches the filter %s\n", argv[0], sources.c_str(),
                   given.c_str());
      return given == "*" ? 1 : 0;
    }
    ::testing::GTEST_FLAG(filter) = filter;
  }
  const int status = RUN_ALL_TESTS();
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  const bool skipped_all = all.successful_test_count() == 0 && all.skipped_test_count() > 0;
  return status == 0 && skipped_all ? kSkipped : status;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) { return tessera::testing::Main(argc, argv); }
