// The parser of the command line. main.cc parses with it, and the docs test writes docs/cli.md from
// it, so that help, page and parser cannot differ. CLI11 does the parsing. The code here builds the
// grammar for CLI11 from the command table, and writes the texts of the errors.
#include "client/cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/words.h"

namespace tessera::cli {
namespace {

constexpr size_t kColumns = 100, kHelpColumn = 30;  // width of help; column of its right half

constexpr char kIntro[] =
    "tessera: run sharded array programs on a pool of devices, and look after the pool.";
constexpr char kExitCodes[] =
    "Exit codes: 0 it worked; 1 the call, or the operation that it asked for, failed;\n"
    "2 the command line is wrong; 3 there is no answer, or not in time; 130 interrupted.";

// Wraps each line of the text at `width` columns.
std::string Wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.emplace_back();
    for (const absl::string_view word : absl::StrSplit(line, ' ')) {
      const bool first = lines.back().empty();
      if (!first && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
      absl::StrAppend(&lines.back(), lines.back().empty() ? "" : " ", word);
    }
  }
  return absl::StrJoin(lines, "\n");
}
std::string WrapHelp(const std::string& text) { return Wrap(text, kColumns - kHelpColumn); }

// Returns what is wrong with the value, or "" if the option takes it.
std::string CheckValue(const Option& o, const std::string& value) {
  int64_t number = 0;
  absl::Duration duration;
  if (o.type == OptionType::kInt && (!absl::SimpleAtoi(value, &number) || number < 0)) {
    return absl::StrCat(value, " is not a number; 0, 1, 2, ... is expected");
  }
  if (o.type == OptionType::kDuration &&
      (!absl::ParseDuration(value, &duration) || duration < absl::ZeroDuration())) {
    return absl::StrCat(value, " is not a duration; 500ms, 30s, 2m or 1h is expected");
  }
  if (!o.choices.empty() &&
      std::find(o.choices.begin(), o.choices.end(), value) == o.choices.end()) {
    return absl::StrCat(value, " is not one of ", absl::StrJoin(o.choices, ", "));
  }
  return "";
}

// Adds the option `o` to the parser `app`, which stores the option's value in `out`.
CLI::Option* AddOption(CLI::App* app, const Option& o, Arguments* out) {
  const std::string short_flag =
      o.short_name == 0 ? "" : absl::StrCat("-", std::string(1, o.short_name));
  const std::string flags =
      o.positional ? o.name : absl::StrCat(short_flag, short_flag.empty() ? "" : ",", "--", o.name);
  const std::string help = WrapHelp(o.help);
  if (o.type == OptionType::kFlag) {
    return app->add_flag_function(
        flags, [&o, out](int64_t) { out->Set(o.name, {}); }, help);
  }
  CLI::Option* const added = app->add_option_function<std::vector<std::string>>(
      flags, [&o, out](const std::vector<std::string>& values) { out->Set(o.name, values); }, help);
  // Take one value per occurrence. By default CLI11 would take further words as values as well, and
  // read "[1, 2]" as a list of two values.
  if (o.type != OptionType::kTexts || !o.positional) added->expected(1)->allow_extra_args(false);
  added->multi_option_policy(o.type == OptionType::kTexts ? CLI::MultiOptionPolicy::TakeAll
                                                          : CLI::MultiOptionPolicy::Throw);
  added->check([&o](const std::string& value) { return CheckValue(o, value); });
  const std::string placeholder =
      o.choices.empty() ? o.value_name : absl::StrCat("{", absl::StrJoin(o.choices, ","), "}");
  added->type_name(placeholder);
  // Write the default value here, because the versions of CLI11 write it in different ways.
  if (!o.default_value.empty()) added->option_text(absl::StrCat(placeholder, "=", o.default_value));
  return added->default_str(o.default_value)->required(o.required);
}

std::string TimeoutText(const Command& command) {
  if (command.timeout == absl::InfiniteDuration()) return "It runs until it is stopped.";
  return absl::StrCat("It waits at most ", absl::FormatDuration(command.timeout),
                      ", or what --timeout says.");
}

bool LooksLikeOption(const std::string& word) { return word.size() > 1 && word[0] == '-'; }

std::vector<std::string> SubcommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(below->get_name());
  return names;
}

// Returns the error for a command line that has this fault. The text is the fault, then the advice
// `what_to_do`.
absl::Status CommandLineError(const std::string& fault, const std::string& what_to_do) {
  return UsageError(fault, absl::EndsWith(fault, "?") ? " " : ". ", what_to_do);
}

// A CLI11 parser that is built from the command table. It parses one command line.
class Grammar {
 public:
  explicit Grammar(const std::vector<Command>& commands);
  absl::StatusOr<ParsedCommandLine> Parse(const std::vector<std::string>& args);
  absl::StatusOr<std::string> HelpOn(const std::vector<std::string>& words) const;

 private:
  // Returns the error for a word that stands where the name of a subcommand of `app` is expected.
  // `word` is empty if the command line ends there.
  absl::Status NoSuchCommand(const CLI::App& app, const std::string& word) const;
  // Returns the command words of `app`, such as "mesh create".
  static std::string PathTo(const CLI::App& app);
  // Returns the error for words that CLI11 did not accept: an unknown option or an extra argument.
  std::string DescribeUnexpected(const CLI::App& app, const std::vector<std::string>& left) const;

  CLI::App app_{kIntro, "tessera"};
  // The command of each parser. A parser that is only a group, such as "mesh", has no entry.
  std::map<const CLI::App*, const Command*> commands_;
  Arguments arguments_, globals_;
};

// Makes a subcommand per row. For a row of two words it is a subcommand of the first word, which
// may be a command itself ("workers") or only a group ("mesh"). The global options belong to the
// root parser, and CLI11's fallthrough accepts them behind the command as well.
Grammar::Grammar(const std::vector<Command>& commands) {
  const char* const group = "Options of every command";
  app_.get_formatter()->column_width(kHelpColumn);
  for (const Option& o : GlobalOptions())
    AddOption(&app_, o, &globals_)
        ->group(group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app_.set_help_flag("-h,--help", "This text.")->group(group);
  app_.set_version_flag("--version", VersionText("tessera"), "The version of this program.")
      ->group(group);
  // Options that a command does not have are looked up among the global ones.
  app_.fallthrough()->require_subcommand(1)->footer(kExitCodes);
  std::map<std::string, CLI::App*> parents;  // the parsers, by first word
  for (const Command& c : commands) {
    const std::vector<std::string> words = absl::StrSplit(c.name, ' ');
    CLI::App* parent = &app_;
    if (words.size() > 1) {
      parent = parents[words[0]];
      if (parent == nullptr) parent = app_.add_subcommand(words[0])->group(c.group);
      parents[words[0]] = parent;
    }
    CLI::App* const app = parent->add_subcommand(words.back(), WrapHelp(c.summary));
    commands_[app] = &c;
    if (words.size() == 1) parents[words[0]] = app->group(c.group);
    if (words.size() > 1) {
      // The parent may be a command as well: "workers" is one, and so is "workers rm".
      const bool is_command = commands_.count(parent) > 0;
      parent->require_subcommand(is_command ? 0 : 1, 1);
      if (!is_command) parent->description(absl::StrJoin(SubcommandNames(*parent), ", "));
    }
    for (const Option& o : c.options) AddOption(app, o, &arguments_);
    app->footer(Wrap(absl::StrCat(c.details, c.details.empty() ? "" : "\n\n", TimeoutText(c),
                                  " tessera --help lists the options of every command."),
                     kColumns));
  }
}

std::string Grammar::PathTo(const CLI::App& app) {
  if (app.get_parent() == nullptr) return "";
  const std::string above = PathTo(*app.get_parent());
  return absl::StrCat(above, above.empty() ? "" : " ", app.get_name());
}

absl::Status Grammar::NoSuchCommand(const CLI::App& app, const std::string& word) const {
  const std::string path = PathTo(app);
  const std::vector<std::string> names = SubcommandNames(app);
  if (word.empty() && !path.empty()) {
    return UsageError(path, ": which? ", path, " ",
                      absl::StrJoin(names, absl::StrCat(", ", path, " ")));
  }
  return CommandLineError(word.empty()
                              ? "no command was given"
                              : absl::StrCat("there is no command ", path, path.empty() ? "" : " ",
                                             word, DidYouMean(word, names)),
                          "tessera --help lists the commands");
}

std::string Grammar::DescribeUnexpected(const CLI::App& app,
                                        const std::vector<std::string>& left) const {
  // The words after an unknown option are probably the option's value, so the option is reported.
  const auto option = std::find_if(left.begin(), left.end(), LooksLikeOption);
  if (option == left.end()) return absl::StrCat("'", left[0], "' is one argument too many");
  const std::string flag = option->substr(0, option->find('='));
  std::vector<std::string> names;
  for (const CLI::App* parser : {&app, &app_}) {
    for (const CLI::Option* o : parser->get_options())
      if (o->nonpositional()) names.push_back(o->get_name());
  }
  return absl::StrCat("there is no option ", flag, DidYouMean(flag, names));
}

// Parses the command line with CLI11, but writes its own texts of the errors. CLI11 stops at the
// first fault that it finds, which is often not the cause: a mistyped option, say, leads to a
// missing argument. So Parse also looks at the arguments that are left over, and reports the cause
// with a suggestion.
absl::StatusOr<ParsedCommandLine> Grammar::Parse(const std::vector<std::string>& args) {
  ParsedCommandLine parsed;
  std::string fault;
  bool has_extras = false;
  try {
    app_.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    if (!app_.get_subcommands().empty() || app_.remaining().empty()) {
      parsed.output = app_.help();
      return parsed;
    }
    has_extras = true;
  } catch (const CLI::CallForVersion& version) {
    parsed.output = version.what();
    return parsed;
  } catch (const CLI::ParseError& e) {
    fault = e.what();
    has_extras = dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr;
  }
  const CLI::App* chosen = &app_;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands()[0];
  std::vector<std::string> left = app_.remaining(/*recurse=*/true);
  std::erase(left, "--");  // CLI11 returns the separator, too
  // A missing argument may be due to a mistyped option, so the option is reported first.
  if (has_extras || std::any_of(left.begin(), left.end(), LooksLikeOption))
    fault = DescribeUnexpected(*chosen, left);
  const auto command = commands_.find(chosen);
  if (command == commands_.end()) {
    const auto word =
        std::find_if(left.begin(), left.end(), [](const auto& w) { return !LooksLikeOption(w); });
    return NoSuchCommand(*chosen, word == left.end() ? "" : *word);
  }
  if (!fault.empty()) {
    const std::string& name = command->second->name;
    return CommandLineError(absl::StrCat(name, ": ", fault),
                            absl::StrCat("tessera ", name, " --help says what it takes"));
  }
  parsed.command = command->second;
  for (const Option& o : parsed.command->options)
    if (!o.default_value.empty()) arguments_.SetDefault(o.name, o.default_value);
  parsed.arguments = std::move(arguments_);
  parsed.globals = std::move(globals_);
  return parsed;
}

absl::StatusOr<std::string> Grammar::HelpOn(const std::vector<std::string>& words) const {
  const CLI::App* at = &app_;
  for (const std::string& word : words) {
    const auto below =
        at->get_subcommands([&](const CLI::App* app) { return app->get_name() == word; });
    if (below.empty()) return NoSuchCommand(*at, word);
    at = below[0];
  }
  if (words.empty()) return app_.help();
  if (commands_.count(at) == 0) return NoSuchCommand(*at, "");
  const std::string above = PathTo(*at->get_parent());
  return at->help(absl::StrCat("tessera", above.empty() ? "" : " ", above));
}

}  // namespace

const std::vector<Option>& GlobalOptions() {
  static const auto* const options = new std::vector<Option>{
      {.name = "address",
       .short_name = 'a',
       .value_name = "HOST:PORT",
       .help = "Address of the coordinator (default: TESSERA_ADDRESS)."},
      {.name = "ca-file",
       .value_name = "FILE",
       .help = "PEM file of the cluster's CA (default: TESSERA_CA_FILE). With it, all connections "
               "use TLS."},
      {.name = "token-file",
       .value_name = "FILE",
       .help = "File that holds the token (default: the variable TESSERA_TOKEN, which holds the "
               "token itself)."},
      Flag("insecure", "Allow plain text to other machines."),
      {.name = "timeout",
       .type = OptionType::kDuration,
       .value_name = "DURATION",
       .help = "How long the command may wait in all: 500ms, 30s, 10m."},
      Flag("json",
           "Print one JSON document: the coordinator's answer in protobuf's JSON mapping or, for "
           "an error, {\"error\": google.rpc.Status}."),
  };
  return *options;
}

absl::StatusOr<ParsedCommandLine> ParseCommandLine(const std::vector<Command>& commands,
                                                   const std::vector<std::string>& args) {
  Grammar grammar(commands);
  if (!args.empty() && args[0] != "help") return grammar.Parse(args);
  std::vector<std::string> words(args.empty() ? args.end() : args.begin() + 1, args.end());
  std::erase_if(words, LooksLikeOption);
  ParsedCommandLine parsed;
  TESSERA_ASSIGN_OR_RETURN(parsed.output, grammar.HelpOn(words));
  return parsed;
}

absl::StatusOr<std::string> HelpOn(const std::vector<Command>& commands,
                                   const std::vector<std::string>& words) {
  return Grammar(commands).HelpOn(words);
}

std::string CommandsMarkdown(const std::vector<Command>& commands) {
  const Grammar grammar(commands);
  std::string out = absl::StrCat(
      "# The command line\n\n"
      "For everybody who uses the program `tessera`: every subcommand, as `--help` shows it.\n"
      "\n"
      "Generated by `client_cli_docs_test --rewrite` from the tables in `client/cli`.\n"
      "\n"
      "Without an address, `run` and `explain` use a cluster inside their own process; the other\n"
      "commands need `--address` or `TESSERA_ADDRESS`. An error is three lines on stderr: what\n"
      "happened, the reason as [errors.md](errors.md) lists it, and what to do. Results go to\n"
      "stdout, everything else to stderr. Colours and bars appear on a terminal only, and not "
      "where\n"
      "`NO_COLOR` is set.\n\n```\n",
      *grammar.HelpOn({}), "```\n");
  std::string group;
  for (const Command& c : commands) {
    if (c.group != group) absl::StrAppend(&out, "\n## ", c.group, "\n");
    group = c.group;
    absl::StrAppend(&out, "\n### tessera ", c.name, "\n\n```\n",
                    *grammar.HelpOn(absl::StrSplit(c.name, ' ')), "```\n");
  }
  return out;
}

}  // namespace tessera::cli
