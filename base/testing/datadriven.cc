// Parses the text files of data-driven tests, runs their cases and compares or rewrites the
// expected outputs. Tests of all layers call RunDataFile or RunDataFolder with a handler that runs
// one case.
#include "base/testing/datadriven.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"
#include "gtest/gtest.h"

namespace tessera {
namespace {

constexpr std::string_view kRule = "----";

bool IsBlank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

constexpr size_t kFileBytesMax = size_t{64} << 20;

// Replaces the file `path` of the repository. A failure is a test failure.
void Rewrite(const std::string& path, const std::string& text) {
  EXPECT_EQ(
      TryReplaceFile(SourcePath(path), text, {.access = FileAccess::kByUmask, .is_durable = false}),
      0)
      << path << " cannot be written";
}

// Returns the end of the word that starts at `begin`: the next blank outside parentheses.
size_t WordEnd(std::string_view line, size_t begin) {
  int depth = 0;
  size_t end = begin;
  for (; end < line.size(); ++end) {
    if (line[end] == '(') ++depth;
    if (line[end] == ')') --depth;
    if (line[end] == ' ' && depth <= 0) break;
  }
  return end;
}

DataCase ParseCommand(std::string_view line) {
  DataCase data_case;
  size_t begin = 0;
  while ((begin = line.find_first_not_of(' ', begin)) != std::string_view::npos) {
    const size_t end = WordEnd(line, begin);
    const std::string word(line.substr(begin, end - begin));
    begin = end;
    if (data_case.command.empty()) {
      data_case.command = word;
      continue;
    }
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    if (value.size() >= 2 && value.front() == '(' && value.back() == ')') {
      value = value.substr(1, value.size() - 2);
    }
    data_case.args[key] = value;
    data_case.arg_names.push_back(key);
  }
  return data_case;
}

// The lines of one file, read once from top to bottom.
class Lines {
 public:
  explicit Lines(std::string_view text) : lines_(absl::StrSplit(ToAbsl(text), '\n')) {
    if (!lines_.empty() && lines_.back().empty()) lines_.pop_back();
  }
  bool done() const { return next_ >= lines_.size(); }
  const std::string& Peek() const { return lines_[next_]; }
  const std::string& Take() { return lines_[next_++]; }
  bool NextIs(size_t ahead, std::string_view text) const {
    return next_ + ahead < lines_.size() && lines_[next_ + ahead] == text;
  }
  int number() const { return static_cast<int>(next_) + 1; }

 private:
  std::vector<std::string> lines_;
  size_t next_ = 0;
};

absl::Status Malformed(const DataCase& data_case, std::string_view what) {
  return MakeError(ErrorKind::kValueError,
                   absl::StrCat(data_case.file, ":", data_case.line, ": ", ToAbsl(what)));
}

// Reads the expected output of a case. The next line of `lines` is the one after the "----" that
// ended the input.
absl::StatusOr<std::string> TakeExpected(Lines& lines, const DataCase& data_case) {
  std::string expected;
  if (!lines.NextIs(0, kRule)) {
    while (!lines.done() && !IsBlank(lines.Peek())) absl::StrAppend(&expected, lines.Take(), "\n");
    return expected;
  }
  lines.Take();
  while (!lines.done()) {
    if (lines.NextIs(0, kRule) && lines.NextIs(1, kRule)) {
      lines.Take();
      lines.Take();
      return expected;
    }
    absl::StrAppend(&expected, lines.Take(), "\n");
  }
  return Malformed(data_case, "the output's closing pair of ---- lines is missing");
}

bool HasBlankLine(std::string_view text) {
  return text.starts_with("\n") || text.find("\n\n") != std::string_view::npos ||
         text.starts_with(kRule);
}

std::string FormatExpected(const std::string& output) {
  if (!HasBlankLine(output)) return output;
  return absl::StrCat("----\n", output, "----\n----\n");
}

}  // namespace

std::string DataCase::Arg(const std::string& name, std::string otherwise) const {
  const auto it = args.find(name);
  return it == args.end() ? std::move(otherwise) : it->second;
}

namespace internal {

// Builds the rewritten text while it runs the cases, so that comments, blank lines and inputs are
// copied unchanged. It neither reads nor writes files and reports no test failures, so that
// datadriven_test can test it.
absl::StatusOr<DataRun> RunDataText(const std::string& file, std::string_view text,
                                    const DataHandler& handler) {
  DataRun run;
  Lines lines(text);
  while (!lines.done()) {
    if (IsBlank(lines.Peek()) || lines.Peek().starts_with("#")) {
      absl::StrAppend(&run.rewritten, lines.Take(), "\n");
      continue;
    }
    const int line = lines.number();
    DataCase data_case = ParseCommand(lines.Peek());
    data_case.file = file;
    data_case.line = line;
    absl::StrAppend(&run.rewritten, lines.Take(), "\n");
    while (!lines.done() && lines.Peek() != kRule) {
      absl::StrAppend(&data_case.input, lines.Take(), "\n");
    }
    if (lines.done()) return Malformed(data_case, "no ---- line ends the input");
    lines.Take();
    TESSERA_ASSIGN_OR_RETURN(std::string expected, TakeExpected(lines, data_case));

    std::string actual = handler(data_case);
    if (!actual.empty() && actual.back() != '\n') actual += '\n';
    absl::StrAppend(&run.rewritten, data_case.input, "----\n", FormatExpected(actual));
    ++run.cases;
    if (actual != expected) {
      run.differences.push_back({std::move(data_case), std::move(expected), std::move(actual)});
    }
  }
  return run;
}

}  // namespace internal

bool Rewriting() {
  static const bool rewriting = [] {
    const char* env = std::getenv("TESSERA_REWRITE");
    if (env != nullptr && std::string_view(env) == "1") return true;
    // gtest_main does not pass argv on, so the flag is read from /proc.
    const std::string cmdline = ReadWholeFile("/proc/self/cmdline", kFileBytesMax).value_or("");
    const std::vector<std::string> args = absl::StrSplit(cmdline, '\0');
    return std::find(args.begin(), args.end(), "--rewrite") != args.end();
  }();
  return rewriting;
}

std::string SourcePath(const std::string& path) {
  return (std::filesystem::path(TESSERA_SOURCE_DIR) / path).string();
}

void RunDataFile(const std::string& path, const DataHandler& handler) {
  const absl::StatusOr<std::string> text = ReadWholeFile(SourcePath(path), kFileBytesMax);
  if (!text.ok()) {
    ADD_FAILURE() << text.status();
    return;
  }
  const absl::StatusOr<internal::DataRun> run = internal::RunDataText(path, *text, handler);
  if (!run.ok()) {
    ADD_FAILURE() << run.status();
    return;
  }
  if (run->cases == 0) ADD_FAILURE() << path << " holds no case";
  if (Rewriting()) {
    if (run->rewritten != *text) Rewrite(path, run->rewritten);
    return;
  }
  for (const internal::DataDifference& d : run->differences) {
    ADD_FAILURE_AT(SourcePath(path).c_str(), d.data_case.line)
        << d.data_case.command << "\ninput:\n"
        << d.data_case.input << "expected:\n"
        << d.expected << "actual (--rewrite to accept):\n"
        << d.actual;
  }
}

void RunDataFolder(const std::string& path, const DataHandler& handler) {
  std::vector<std::string> files;
  std::error_code error;
  const std::filesystem::path root = SourcePath("");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SourcePath(path), error)) {
    if (entry.path().extension() != ".txt") continue;
    files.push_back(entry.path().lexically_relative(root).string());
  }
  if (files.empty()) ADD_FAILURE() << path << " holds no .txt file";
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) RunDataFile(file, handler);
}

void ExpectFileHolds(const std::string& path, const std::string& text) {
  const absl::StatusOr<std::string> old_text = ReadWholeFile(SourcePath(path), kFileBytesMax);
  if (old_text.ok() && *old_text == text) return;
  if (Rewriting()) return Rewrite(path, text);
  ADD_FAILURE() << path << " differs from the generated text; run this test with --rewrite, read "
                << "the diff and commit it. It should hold:\n"
                << text;
}

}  // namespace tessera
