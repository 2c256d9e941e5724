#include "client/cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <list>
#include <map>
#include <memory>
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

// The values of one option while CLI11 reads them.
struct Slot {
  const Option* row = nullptr;
  CLI::Option* option = nullptr;
  std::string value;                // of what may be given once
  std::vector<std::string> values;  // of kTexts
};

std::string FlagsOf(const Option& o) {
  if (o.positional) return o.name;
  return o.letter == 0 ? absl::StrCat("--", o.name)
                       : absl::StrCat("-", std::string(1, o.letter), ",--", o.name);
}

std::string CheckValue(const Option& o, const std::string& value) {
  int64_t number = 0;
  absl::Duration duration;
  if (o.takes == Takes::kInt && (!absl::SimpleAtoi(value, &number) || number < 0)) {
    return absl::StrCat(value, " is not a number; 0, 1, 2, ... is expected");
  }
  if (o.takes == Takes::kDuration &&
      (!absl::ParseDuration(value, &duration) || duration < absl::ZeroDuration())) {
    return absl::StrCat(value, " is not a duration; 500ms, 30s, 2m or 1h is expected");
  }
  if (!o.choices.empty() &&
      std::find(o.choices.begin(), o.choices.end(), value) == o.choices.end()) {
    return absl::StrCat(value, " is not one of ", absl::StrJoin(o.choices, ", "));
  }
  return "";
}

void Declare(CLI::App* app, const Option& row, std::list<Slot>* slots) {
  Slot& slot = slots->emplace_back();
  slot.row = &row;
  if (row.takes == Takes::kNothing) {
    slot.option = app->add_flag(FlagsOf(row));
    return;
  }
  if (row.takes == Takes::kTexts) {
    slot.option = app->add_option(FlagsOf(row), slot.values);
    slot.option->allow_extra_args(row.positional);
    if (!row.positional)
      slot.option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    slot.option = app->add_option(FlagsOf(row), slot.value);
  }
  slot.option->check([&row](const std::string& value) { return CheckValue(row, value); });
  if (row.required) slot.option->required();
}

std::vector<std::string> Given(const Slot& slot) {
  return slot.row->takes == Takes::kTexts ? slot.values : std::vector<std::string>{slot.value};
}

Arguments Collect(const std::list<Slot>& slots) {
  Arguments out;
  for (const Slot& slot : slots) {
    if (!slot.row->initial.empty()) out.SetInitial(slot.row->name, slot.row->initial);
    if (slot.option->count() > 0) out.Give(slot.row->name, Given(slot));
  }
  return out;
}

// "out"'s left column: "-o, --out DIR".
std::string Usage(const Option& o) {
  if (o.positional) {
    const std::string name = o.takes == Takes::kTexts ? o.name + "..." : o.name;
    return o.required ? name : absl::StrCat("[", name, "]");
  }
  std::string text = o.letter == 0 ? absl::StrCat("    --", o.name)
                                   : absl::StrCat("-", std::string(1, o.letter), ", --", o.name);
  if (o.takes != Takes::kNothing) absl::StrAppend(&text, " ", o.value);
  return text;
}

std::string Meaning(const Option& o) {
  std::string text = o.help;
  if (!o.choices.empty()) {
    absl::StrAppend(&text, " One of ", absl::StrJoin(o.choices, ", "), ".");
  }
  if (!o.initial.empty()) absl::StrAppend(&text, " Default: ", o.initial, ".");
  return text;
}

// Words in lines of at most 100 columns, all but the first indented.
std::string Wrapped(const std::string& text, int first, int indent) {
  constexpr int kColumns = 100;
  std::string out;
  int at = first;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ' '))) {
    if (at > indent && at + 1 + static_cast<int>(word.size()) > kColumns) {
      absl::StrAppend(&out, "\n", std::string(static_cast<size_t>(indent), ' '));
      at = indent;
    } else if (at > indent) {
      out += ' ';
      ++at;
    }
    out += word;
    at += static_cast<int>(word.size());
  }
  return out;
}

void AppendOptions(const std::vector<Option>& options, bool positional, std::string* out) {
  size_t width = 0;
  for (const Option& o : options)
    if (o.positional == positional) width = std::max(width, Usage(o).size());
  const int indent = static_cast<int>(width) + 4;
  for (const Option& o : options) {
    if (o.positional != positional) continue;
    std::string left = "  " + Usage(o);
    left.resize(static_cast<size_t>(indent), ' ');
    absl::StrAppend(out, left, Wrapped(Meaning(o), indent, indent), "\n");
  }
}

std::string UsageLine(const Command& command) {
  std::string out = absl::StrCat("tessera ", command.name);
  for (const Option& o : command.options) {
    if (o.positional) absl::StrAppend(&out, " ", Usage(o));
    if (!o.positional && o.required) absl::StrAppend(&out, " --", o.name, " ", o.value);
  }
  return out + " [OPTION...]";
}

std::string TimeoutText(const Command& command) {
  if (command.timeout == absl::InfiniteDuration()) return "It runs until it is stopped.";
  return absl::StrCat("It waits at most ", absl::FormatDuration(command.timeout),
                      ", or what --timeout says.");
}

std::vector<std::string> Groups(const std::vector<Command>& commands) {
  std::vector<std::string> out;
  for (const Command& c : commands) {
    if (std::find(out.begin(), out.end(), c.group) == out.end()) out.push_back(c.group);
  }
  return out;
}

// The first that is no option.
std::string FirstWord(const std::vector<std::string>& args) {
  const auto word = std::find_if(args.begin(), args.end(),
                                 [](const std::string& a) { return !absl::StartsWith(a, "-"); });
  return word == args.end() ? "" : *word;
}

std::string HeadOf(const Command& command) {
  return command.name.substr(0, command.name.find(' '));
}

bool Knows(const std::vector<Command>& commands, const std::string& word) {
  return std::any_of(commands.begin(), commands.end(),
                     [&](const Command& c) { return HeadOf(c) == word; });
}

std::string Suggestion(const std::vector<Command>& commands, const std::string& word) {
  std::vector<std::string> heads;
  for (const Command& c : commands) {
    if (std::find(heads.begin(), heads.end(), HeadOf(c)) == heads.end()) heads.push_back(HeadOf(c));
  }
  return DidYouMean(word, heads);
}

// What of the words is no option of the command, or one argument too many; the first of the line.
std::string Unexpected(const Command& command, const std::vector<std::string>& args,
                       const std::vector<std::string>& extras) {
  const auto is_extra = [&](const std::string& arg) {
    return std::find(extras.begin(), extras.end(), arg) != extras.end();
  };
  auto first = std::find_if(args.begin(), args.end(), [&](const std::string& arg) {
    return absl::StartsWith(arg, "-") && is_extra(arg);
  });
  // Without an option that is wrong, which would have taken the words behind it.
  if (first == args.end()) {
    first = std::find_if(args.begin(), args.end(), is_extra);
    return first == args.end() ? "" : absl::StrCat("'", *first, "' is one argument too many");
  }
  const std::string flag = first->substr(0, first->find('='));
  std::vector<std::string> names;
  for (const std::vector<Option>* options : {&command.options, &GlobalOptions()})
    for (const Option& o : *options)
      if (!o.positional) names.push_back("--" + o.name);
  return absl::StrCat("there is no option ", flag, DidYouMean(flag, names));
}

constexpr char kIntro[] =
    "tessera: run sharded array programs on a pool of devices, and look after the pool.";
constexpr char kExits[] =
    "Exit codes: 0 it worked; 1 the call, or what it asked for, failed; 2 the command line is "
    "wrong;\n"
    "3 nobody answers, or not in time; 130 interrupted.\n";

}  // namespace

const std::vector<Option>& GlobalOptions() {
  static const auto* const options = new std::vector<Option>{
      {.name = "address",
       .letter = 'a',
       .value = "HOST:PORT",
       .help = "The coordinator; in place of TESSERA_ADDRESS."},
      {.name = "ca-file",
       .value = "FILE",
       .help =
           "The PEM file of the cluster's authority; in place of TESSERA_CA_FILE. With one, all "
           "links are TLS.",
       .completes = Completes::kFile},
      {.name = "token-file",
       .value = "FILE",
       .help = "The file that holds the token; in place of the variable TESSERA_TOKEN, which holds "
               "the token itself.",
       .completes = Completes::kFile},
      {.name = "insecure", .takes = Takes::kNothing, .help = "Plain text beyond this machine."},
      {.name = "timeout",
       .takes = Takes::kDuration,
       .value = "DURATION",
       .help = "The bound on all that the command waits for: 500ms, 30s, 10m."},
      {.name = "json",
       .takes = Takes::kNothing,
       .help = "One JSON document on stdout, protobuf's mapping of the coordinator's answer; of an "
               "error, {\"error\": google.rpc.Status}."},
      {.name = "help", .letter = 'h', .takes = Takes::kNothing, .help = "This text."},
      {.name = "version", .takes = Takes::kNothing, .help = "The version of this program."},
  };
  return *options;
}

absl::StatusOr<Parsed> ParseCommandLine(const std::vector<Command>& commands,
                                        const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "help") {
    // CLI11 would take the words behind it for commands.
    std::vector<std::string> words(args.begin() + 1, args.end());
    std::erase_if(words, [](const std::string& word) { return absl::StartsWith(word, "-"); });
    Parsed parsed;
    TESSERA_ASSIGN_OR_RETURN(parsed.text, HelpOn(commands, words));
    return parsed;
  }
  CLI::App app(kIntro, "tessera");
  app.set_help_flag();
  std::map<std::string, CLI::App*> groups;  // "mesh": holds "mesh create"
  std::list<Slot> root_globals;
  for (const Option& o : GlobalOptions()) Declare(&app, o, &root_globals);
  struct Sub {
    const Command* row;
    CLI::App* app;
    std::list<Slot> slots, globals;
  };
  std::list<Sub> subs;
  for (const Command& c : commands) {
    const std::vector<std::string> words = absl::StrSplit(c.name, ' ');
    CLI::App* parent = &app;
    const auto whole = std::find_if(subs.begin(), subs.end(),
                                    [&](const Sub& s) { return s.row->name == words[0]; });
    if (words.size() > 1 && whole != subs.end()) {
      parent = whole->app;  // "workers" lists, "workers rm" removes
    } else if (words.size() > 1) {
      CLI::App*& group = groups[words[0]];
      if (group == nullptr) {
        group = app.add_subcommand(words[0]);
        group->set_help_flag();
        for (const Option& o : GlobalOptions())
          if (o.name == "help" || o.name == "version") Declare(group, o, &root_globals);
      }
      parent = group;
    }
    Sub& sub = subs.emplace_back(Sub{&c, parent->add_subcommand(words.back()), {}, {}});
    sub.app->set_help_flag();
    for (const Option& o : c.options) Declare(sub.app, o, &sub.slots);
    for (const Option& o : GlobalOptions()) Declare(sub.app, o, &sub.globals);
  }

  const auto wants = [](const char* what, const std::list<Slot>& slots) {
    return std::any_of(slots.begin(), slots.end(), [what](const Slot& s) {
      return s.row->name == what && s.option->count() > 0;
    });
  };
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  std::string fault;
  bool extras = false;
  try {
    app.parse(reversed);
  } catch (const CLI::RequiredError& e) {
    fault = e.what();
    // What is missing may stand behind an option that is mistyped: that one is named first.
    for (const std::string& word : app.remaining(/*recurse=*/true))
      extras = extras || (word.size() > 1 && word[0] == '-');
  } catch (const CLI::ParseError& e) {
    fault = e.what();
    extras = dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr;
  }
  // "workers rm" is "workers" too, and stands behind it.
  const auto last =
      std::find_if(subs.rbegin(), subs.rend(), [](const Sub& s) { return s.app->parsed(); });
  const auto chosen = last == subs.rend() ? subs.end() : std::prev(last.base());
  Parsed parsed;
  if (fault.empty() && wants("version", root_globals)) {
    parsed.text = VersionText("tessera");
    return parsed;
  }
  if (chosen == subs.end()) {
    if (args.empty() || (fault.empty() && wants("help", root_globals))) {
      parsed.text = HelpText(commands);
      return parsed;
    }
    for (const auto& [name, group] : groups) {
      if (!group->parsed() || !fault.empty()) continue;
      std::vector<std::string> of_group;
      for (const Command& c : commands)
        if (absl::StartsWith(c.name, name + " ")) of_group.push_back(c.name);
      return UsageError(absl::StrCat(name, ": which? ", absl::StrJoin(of_group, ", ")));
    }
    if (const std::string word = FirstWord(args); !word.empty() && !Knows(commands, word)) {
      fault = absl::StrCat("there is no command ", word, Suggestion(commands, word));
    }
    if (fault.empty()) fault = "no command was given";
    return UsageError(absl::StrCat(fault, absl::EndsWith(fault, "?") ? "" : ".",
                                   " tessera --help lists the commands"));
  }
  if (wants("version", chosen->globals)) {
    parsed.text = VersionText("tessera");
    return parsed;
  }
  if (wants("help", chosen->globals) || wants("help", root_globals)) {
    parsed.text = HelpText(*chosen->row);
    return parsed;
  }
  if (extras) fault = Unexpected(*chosen->row, args, app.remaining(/*recurse=*/true));
  if (!fault.empty()) {
    return UsageError(absl::StrCat(chosen->row->name, ": ", fault,
                                   absl::EndsWith(fault, "?") ? "" : ".", " tessera ",
                                   chosen->row->name, " --help says what it takes"));
  }
  parsed.command = chosen->row;
  parsed.arguments = Collect(chosen->slots);
  // Global options stand before the command or behind it, where they win.
  parsed.globals = Collect(root_globals);
  for (const Slot& slot : chosen->globals) {
    if (slot.option->count() > 0) parsed.globals.Give(slot.row->name, Given(slot));
  }
  return parsed;
}

absl::StatusOr<std::string> HelpOn(const std::vector<Command>& commands,
                                   const std::vector<std::string>& words) {
  if (words.empty()) return HelpText(commands);
  const std::string name = absl::StrJoin(words, " ");
  std::vector<std::string> names, below;
  for (const Command& c : commands) {
    if (c.name == name) return HelpText(c);
    if (absl::StartsWith(c.name, name + " ")) below.push_back(c.name);
    names.push_back(c.name);
  }
  if (!below.empty())
    return UsageError(absl::StrCat(name, ": which? ", absl::StrJoin(below, ", ")));
  const std::string near = DidYouMean(name, names);
  return UsageError(absl::StrCat("there is no command ", name, near, near.empty() ? "." : "",
                                 " tessera --help lists the commands"));
}

std::string HelpText(const std::vector<Command>& commands) {
  std::string out = absl::StrCat(kIntro, "\n\nusage: tessera COMMAND [ARGUMENT...] [OPTION...]\n");
  size_t width = 0;
  for (const Command& c : commands) width = std::max(width, c.name.size());
  for (const std::string& group : Groups(commands)) {
    absl::StrAppend(&out, "\n", group, "\n");
    for (const Command& c : commands) {
      if (c.group != group) continue;
      std::string left = "  " + c.name;
      left.resize(width + 4, ' ');
      const int indent = static_cast<int>(left.size());
      absl::StrAppend(&out, left, Wrapped(c.summary, indent, indent), "\n");
    }
  }
  out += "\nOptions of every command\n";
  AppendOptions(GlobalOptions(), /*positional=*/false, &out);
  absl::StrAppend(&out, "\n", kExits);
  return out;
}

std::string HelpText(const Command& command) {
  std::string out = absl::StrCat(command.summary, "\n\nusage: ", UsageLine(command), "\n");
  const auto any = [&](bool positional) {
    return std::any_of(command.options.begin(), command.options.end(),
                       [&](const Option& o) { return o.positional == positional; });
  };
  if (any(true)) {
    out += "\nArguments\n";
    AppendOptions(command.options, /*positional=*/true, &out);
  }
  if (any(false)) {
    out += "\nOptions\n";
    AppendOptions(command.options, /*positional=*/false, &out);
  }
  out += "\nOptions of every command\n";
  AppendOptions(GlobalOptions(), /*positional=*/false, &out);
  out += "\n";
  if (!command.details.empty()) {
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(command.details, '\n'))) {
      absl::StrAppend(&out, Wrapped(line, 0, 0), "\n");
    }
    out += "\n";
  }
  absl::StrAppend(&out, TimeoutText(command), "\n");
  return out;
}

std::string CommandsMarkdown(const std::vector<Command>& commands) {
  std::string out =
      "# The command line\n\n"
      "Generated from the tables in `client/cli`; to change it: `client_cli_test --rewrite`.\n\n"
      "`tessera COMMAND [ARGUMENT...] [OPTION...]`. Without an address, `run` and `explain` use a\n"
      "cluster inside their own process; the other commands want `--address` or "
      "`TESSERA_ADDRESS`.\n\n"
      "| exit code | meaning |\n|---|---|\n"
      "| 0 | it worked |\n| 1 | the call, or what it asked for, failed |\n"
      "| 2 | the command line is wrong; nothing was done |\n"
      "| 3 | nobody answers, or not in time |\n| 130 | interrupted; what was started is cancelled "
      "|\n\n"
      "An error is three lines on stderr: what happened, the reason as [errors.md](errors.md) "
      "lists\n"
      "it, and what to do. Results go to stdout, everything else to stderr. Colours and bars "
      "appear\n"
      "on a terminal only, and not where `NO_COLOR` is set.\n\n"
      "## Options of every command\n\n```\n";
  AppendOptions(GlobalOptions(), /*positional=*/false, &out);
  out += "```\n";
  for (const std::string& group : Groups(commands)) {
    absl::StrAppend(&out, "\n## ", group, "\n");
    for (const Command& c : commands) {
      if (c.group != group) continue;
      absl::StrAppend(&out, "\n### tessera ", c.name, "\n\n", c.summary, "\n\n```\n", UsageLine(c),
                      "\n");
      AppendOptions(c.options, /*positional=*/true, &out);
      AppendOptions(c.options, /*positional=*/false, &out);
      out += "```\n";
      if (!c.details.empty()) absl::StrAppend(&out, "\n", c.details, "\n");
      absl::StrAppend(&out, "\n", TimeoutText(c), "\n");
    }
  }
  return out;
}

}  // namespace tessera::cli
