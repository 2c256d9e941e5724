// Reads the command lines of the benchmarks with CLI11. Each benchmark's Main names its flags and
// calls Parse before it measures anything. The texts of the errors are written here, because they
// differ between the releases of CLI11.
#include "bench/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tessera::bench {
namespace {

constexpr size_t kHelpColumn = 24;  // width of the flags' column in the help

std::string RangeText(NumberRange range) {
  std::string text = range.most == std::numeric_limits<int64_t>::max()
                         ? absl::StrCat("a number of ", range.least, " or more")
                         : absl::StrCat("a number from ", range.least, " to ", range.most);
  if (range.multiple_of != 1) absl::StrAppend(&text, " that ", range.multiple_of, " divides");
  return text;
}

// Makes the option take effect at its place in the command line, and again if it is repeated.
CLI::Option* ApplyInOrder(CLI::Option* option) {
  return option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->trigger_on_parse();
}

// Returns the error for the arguments that CLI11 did not accept. The words after an unknown flag
// are probably the flag's value, so the flag is reported.
std::string UnexpectedArgumentText(const std::vector<std::string>& remaining) {
  const auto flag = std::find_if(remaining.begin(), remaining.end(),
                                 [](const std::string& word) { return word.starts_with("-"); });
  if (flag == remaining.end()) return absl::StrCat("'", remaining[0], "' is one argument too many");
  return absl::StrCat("there is no flag ", flag->substr(0, flag->find('=')));
}

}  // namespace

struct FlagParser::Grammar {
  Grammar(const std::string& program, const std::string& summary) : app(summary, program) {}
  CLI::App app;
};

FlagParser::FlagParser(const std::string& program, const std::string& summary)
    : grammar_(std::make_unique<Grammar>(program, summary)) {
  CLI::App& app = grammar_->app;
  app.get_formatter()->column_width(kHelpColumn);
  app.set_help_flag("-h,--help", "this text");
}

FlagParser::~FlagParser() = default;

void FlagParser::AddText(const std::string& name, const std::string& value, std::string* to,
                         const std::string& help) {
  CLI::Option* const option = ApplyInOrder(grammar_->app.add_option_function<std::string>(
      name, [to](const std::string& text) { *to = text; }, help));
  option->type_name(value);
  // Write the default here, because the releases of CLI11 write it in different ways.
  if (!to->empty()) option->option_text(absl::StrCat(value, "=", *to));
}

void FlagParser::AddNumber(const std::string& name, int* to, const std::string& help,
                           NumberRange range) {
  range.most = std::min<int64_t>(range.most, std::numeric_limits<int>::max());
  AddNumberOption(
      name, *to, [to](int64_t number) { *to = static_cast<int>(number); }, help, range);
}

void FlagParser::AddNumber(const std::string& name, int64_t* to, const std::string& help,
                           NumberRange range) {
  AddNumberOption(
      name, *to, [to](int64_t number) { *to = number; }, help, range);
}

// Takes the number as a text and reads it here, since CLI11 would read "010" as 8.
void FlagParser::AddNumberOption(const std::string& name, int64_t default_value,
                                 const std::function<void(int64_t)>& set, const std::string& help,
                                 NumberRange range) {
  const auto read = [range](const std::string& text, int64_t* number) {
    return absl::SimpleAtoi(text, number) && *number >= range.least && *number <= range.most &&
           *number % range.multiple_of == 0;
  };
  const bool is_plain = range.least <= 1 && range.multiple_of == 1;
  CLI::Option* const option = ApplyInOrder(grammar_->app.add_option_function<std::string>(
      name,
      [read, set](const std::string& text) {
        int64_t number = 0;
        if (read(text, &number)) set(number);
      },
      is_plain ? help : absl::StrCat(help, ": ", RangeText(range))));
  option->type_name("N");
  // A variable that begins with a number that is out of range has no default to show.
  if (default_value >= range.least) option->option_text(absl::StrCat("N=", default_value));
  option->check([read, range](const std::string& text) {
    int64_t number = 0;
    if (read(text, &number)) return std::string();
    return absl::StrCat("'", text, "' is not ", RangeText(range));
  });
}

void FlagParser::AddSwitch(const std::string& name, bool* to, const std::string& help) {
  AddAction(
      name, [to] { *to = true; }, help);
}

void FlagParser::AddAction(const std::string& name, const std::function<void()>& act,
                           const std::string& help) {
  ApplyInOrder(grammar_->app.add_flag_callback(name, act, help));
}

void FlagParser::SetRequired(const std::string& name) {
  grammar_->app.get_option(name)->required();
}

std::optional<int> FlagParser::Parse(int argc, char** argv) {
  CLI::App& app = grammar_->app;
  std::string error;
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& e) {
    error = e.what();
  }
  // A flag that is missing may have been mistyped, so an unknown flag is reported first.
  std::vector<std::string> remaining = app.remaining();
  std::erase(remaining, "--");  // CLI11 returns the separator, too
  if (!remaining.empty()) error = UnexpectedArgumentText(remaining);
  std::cerr << app.get_name() << ": " << error << "\n\n" << app.help();
  return 2;
}

}  // namespace tessera::bench
