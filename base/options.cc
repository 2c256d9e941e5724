// Reads the options of the daemons and tools from the environment and the command line. All
// functions work on the rows of base/options.def, so that a new option is one new row.
#include "base/options.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"

namespace tessera {
namespace {

using Member = std::variant<int64_t Options::*, bool Options::*, std::string Options::*>;

struct OptionRow {
  std::string_view name;
  Member member;
  int64_t min;
  int64_t max;
  std::string_view unit;
  std::string_view help;

  std::string Flag() const {
    return absl::StrCat("--", absl::StrReplaceAll(ToAbsl(name), {{"_", "-"}}));
  }
  std::string Env() const { return absl::StrCat("TESSERA_", absl::AsciiStrToUpper(ToAbsl(name))); }
  bool is_bool() const { return std::holds_alternative<bool Options::*>(member); }
};

constexpr OptionRow kRows[] = {
#define TESSERA_INT_OPTION(name, default_value, min, max, unit, help) \
  {#name, &Options::name, min, max, unit, help},
#define TESSERA_BOOL_OPTION(name, default_value, help) {#name, &Options::name, 0, 1, "", help},
#define TESSERA_TEXT_OPTION(name, default_value, help) {#name, &Options::name, 0, 0, "", help},
#include "base/options.def"
#undef TESSERA_INT_OPTION
#undef TESSERA_BOOL_OPTION
#undef TESSERA_TEXT_OPTION
};

const OptionRow* FindRow(std::string_view name) {
  for (const OptionRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

struct Suffix {
  std::string_view text;
  int64_t factor;
};
constexpr Suffix kByteSuffixes[] = {
    {"KiB", int64_t{1} << 10}, {"MiB", int64_t{1} << 20}, {"GiB", int64_t{1} << 30}};

std::optional<int64_t> ParseInt(std::string_view text, std::string_view unit) {
  if (unit == "bytes") return ParseBytes(text);
  int64_t value = 0;
  if (!absl::SimpleAtoi(ToAbsl(text), &value)) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

absl::Status WrongValue(std::string_view source, std::string_view value,
                        std::string_view expected) {
  return MakeError(ErrorKind::kValueError, absl::StrCat(ToAbsl(source), ": got \"", ToAbsl(value),
                                                        "\", expected ", ToAbsl(expected)));
}

// Sets the member of a row. `source` is the flag or the environment variable that the user has set;
// errors name it.
absl::Status SetRow(Options& options, const OptionRow& row, std::string_view source,
                    std::string_view value) {
  if (auto* text = std::get_if<std::string Options::*>(&row.member)) {
    options.** text = std::string(value);
    return absl::OkStatus();
  }
  if (auto* flag = std::get_if<bool Options::*>(&row.member)) {
    const std::optional<bool> parsed = ParseBool(value);
    if (!parsed) return WrongValue(source, value, "true or false");
    options.** flag = *parsed;
    return absl::OkStatus();
  }
  const std::optional<int64_t> parsed = ParseInt(value, row.unit);
  if (!parsed || *parsed < row.min || *parsed > row.max) {
    return WrongValue(
        source, value,
        absl::StrFormat("a number of %s from %d to %d", ToAbsl(row.unit), row.min, row.max));
  }
  options.*std::get<int64_t Options::*>(row.member) = *parsed;
  return absl::OkStatus();
}

absl::Status ReadEnvironment(Options& options, const EnvLookup& env) {
  for (const OptionRow& row : kRows) {
    const std::optional<std::string> value = env(row.Env());
    if (value) TESSERA_RETURN_IF_ERROR(SetRow(options, row, row.Env(), *value));
  }
  return absl::OkStatus();
}

// Returns the row that a flag such as "--queue-bound" or "--queue_bound" names, or null.
const OptionRow* RowOfFlag(std::string_view flag) {
  if (!flag.starts_with("--")) return nullptr;
  return FindRow(absl::StrReplaceAll(ToAbsl(flag.substr(2)), {{"-", "_"}}));
}

std::string TextOf(const OptionRow& row, const Options& options) {
  if (auto* text = std::get_if<std::string Options::*>(&row.member)) return options.**text;
  if (auto* flag = std::get_if<bool Options::*>(&row.member)) {
    return options.**flag ? "true" : "false";
  }
  return absl::StrCat(options.*std::get<int64_t Options::*>(row.member));
}

std::string DefaultText(const OptionRow& row) { return TextOf(row, Options()); }

std::string WithUnit(const std::string& value, std::string_view unit) {
  if (value.empty()) return "(empty)";
  return unit.empty() ? value : absl::StrCat(value, " ", ToAbsl(unit));
}

}  // namespace

std::optional<int64_t> ParseBytes(std::string_view text) {
  int64_t factor = 1;
  for (const Suffix& suffix : kByteSuffixes) {
    if (!text.ends_with(suffix.text)) continue;
    text.remove_suffix(suffix.text.size());
    factor = suffix.factor;
    break;
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(ToAbsl(text), &value)) return std::nullopt;
  if (value > std::numeric_limits<int64_t>::max() / factor) return std::nullopt;
  if (value < std::numeric_limits<int64_t>::min() / factor) return std::nullopt;
  return value * factor;
}

EnvLookup ProcessEnv() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

// Reads the environment first, so that flags override it. Arguments that the table does not know
// are not errors here: a program may have arguments of its own, and reports what is left in `rest`
// itself.
absl::StatusOr<ParsedOptions> ParseOptions(const std::vector<std::string>& args,
                                           const EnvLookup& env) {
  ParsedOptions parsed;
  TESSERA_RETURN_IF_ERROR(ReadEnvironment(parsed.options, env));
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--") {
      parsed.rest.insert(parsed.rest.end(), args.begin() + i + 1, args.end());
      break;
    }
    if (args[i] == "--help" || args[i] == "--version") {
      (args[i] == "--help" ? parsed.help : parsed.version) = true;
      continue;
    }
    const size_t equals = args[i].find('=');
    const std::string flag = args[i].substr(0, equals);
    const OptionRow* row = RowOfFlag(flag);
    if (row == nullptr) {
      parsed.rest.push_back(args[i]);
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = args[i].substr(equals + 1);
    } else if (row->is_bool()) {
      value = "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return MakeError(ErrorKind::kValueError, absl::StrCat(flag, ": expected a value after it"));
    }
    TESSERA_RETURN_IF_ERROR(SetRow(parsed.options, *row, flag, value));
  }
  return parsed;
}

absl::Status SetOption(Options& options, std::string_view name, std::string_view value) {
  const OptionRow* row = FindRow(name);
  if (row == nullptr) {
    return MakeError(ErrorKind::kValueError,
                     absl::StrCat("option ", ToAbsl(name), " does not exist; see --help"));
  }
  return SetRow(options, *row, name, value);
}

std::vector<std::string> FlagsFor(const Options& options, const EnvLookup& env) {
  Options from_env;
  // If a variable does not parse, its option keeps the default.
  for (const OptionRow& row : kRows) {
    const std::optional<std::string> value = env(row.Env());
    if (value) SetRow(from_env, row, row.Env(), *value).IgnoreError();
  }
  std::vector<std::string> flags;
  for (const OptionRow& row : kRows) {
    const std::string text = TextOf(row, options);
    if (text != TextOf(row, from_env)) flags.push_back(absl::StrCat(row.Flag(), "=", text));
  }
  return flags;
}

std::vector<std::string> OptionFlags() {
  std::vector<std::string> out;
  for (const OptionRow& row : kRows) out.push_back(row.Flag());
  return out;
}

std::string OptionsHelp() {
  std::string text = "Options (each may also be set as the environment variable in brackets):\n";
  for (const OptionRow& row : kRows) {
    absl::StrAppendFormat(&text, "  %s [%s]\n      %s Default: %s.\n", row.Flag(), row.Env(),
                          ToAbsl(row.help), WithUnit(DefaultText(row), row.unit));
  }
  return text;
}

std::string OptionsMarkdown() {
  std::string text =
      "# Options\n\n"
      "For operators: every option, as an environment variable and as a flag.\n"
      "\n"
      "Generated by `base_docs_test --rewrite` from `base/options.def`.\n"
      "\n"
      "If both are given, the flag on the command line wins over the environment variable. Byte\n"
      "counts accept `KiB`, `MiB` and `GiB`.\n"
      "\n"
      "| variable | flag | default | range | meaning |\n"
      "|---|---|---|---|---|\n";
  for (const OptionRow& row : kRows) {
    const bool is_int = std::holds_alternative<int64_t Options::*>(row.member);
    absl::StrAppendFormat(&text, "| `%s` | `%s` | %s | %s | %s |\n", row.Env(), row.Flag(),
                          WithUnit(DefaultText(row), row.unit),
                          is_int ? absl::StrCat(row.min, " to ", row.max) : "", ToAbsl(row.help));
  }
  return text;
}

}  // namespace tessera
