// Shell completion: the candidates for the last word of a line, and the scripts for the shells. The
// scripts call `tessera completion` for every candidate list, so they need no change when the
// command table changes.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/parse.h"

namespace tessera::cli {
namespace {

bool MatchesOption(const Option& o, const std::string& word) {
  if (o.positional) return false;
  return word == absl::StrCat("--", o.name) ||
         (o.short_name != 0 && word == absl::StrCat("-", std::string(1, o.short_name)));
}

// Returns the options of the command, which may be null, and the global options.
std::vector<const Option*> OptionsOf(const Command* command) {
  std::vector<const Option*> out;
  if (command != nullptr)
    for (const Option& o : command->options) out.push_back(&o);
  for (const Option& o : GlobalOptions()) out.push_back(&o);
  return out;
}

// The place in the command line of the word that is being completed, as the words before it show.
struct CompletionContext {
  std::string path;                  // the command so far: "mesh create" or its first word
  const Command* command = nullptr;  // the command that `path` names
  const Option* option_awaiting_value = nullptr;  // the option whose value comes next
};
CompletionContext ParseWords(const std::vector<Command>& commands,
                             const std::vector<std::string>& words) {
  CompletionContext context;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (std::exchange(context.option_awaiting_value, nullptr) != nullptr) continue;
    for (const Option* o : OptionsOf(context.command))
      if (MatchesOption(*o, words[i]) && o->type != OptionType::kFlag)
        context.option_awaiting_value = o;
    const std::string path = absl::StrCat(context.path, context.path.empty() ? "" : " ", words[i]);
    for (const Command& c : commands) {
      if (c.name == path) context.command = &c;
      if (c.name == path || absl::StartsWith(c.name, path + " ")) context.path = path;
    }
  }
  return context;
}

}  // namespace

// If an option waits for its value, offers only the choices of that option. Otherwise offers the
// next words of commands, the choices of positional arguments and, once a dash is typed, options.
// Commands of one group follow each other in the table, so a group is offered once.
std::vector<Candidate> CandidatesFor(const std::vector<Command>& commands,
                                     const std::vector<std::string>& words) {
  const CompletionContext context = ParseWords(commands, words);
  const std::string last = words.empty() ? "" : words.back();
  std::vector<Candidate> out;
  const auto offer = [&](absl::string_view word, const std::string& help) {
    const bool offered = !out.empty() && out.back().word == word;
    if (absl::StartsWith(word, last) && !offered) out.push_back({std::string(word), help});
  };
  if (context.option_awaiting_value != nullptr) {
    for (const std::string& choice : context.option_awaiting_value->choices)
      offer(choice, context.option_awaiting_value->help);
    return out;
  }
  for (const Command& c : commands) {
    absl::string_view rest = c.name;
    if (!context.path.empty() && !absl::ConsumePrefix(&rest, context.path + " ")) continue;
    offer(rest.substr(0, rest.find(' ')), c.summary);
  }
  for (const Option* o : OptionsOf(context.command)) {
    if (o->positional)
      for (const std::string& choice : o->choices) offer(choice, o->help);
    else if (absl::StartsWith(last, "-"))
      offer(absl::StrCat("--", o->name), o->help);
  }
  if (absl::StartsWith(last, "-")) offer("--help", "This text.");
  return out;
}

// The scripts pass the words that are typed so far to `tessera completion`, and hand its lines to
// the shell. Each line is a candidate, for zsh and fish with its help.
std::string CompletionScript(const std::string& shell) {
  // If there are no candidates, the shell completes file names.
  if (shell == "bash") {
    return "# Completion of tessera for bash. Source it, or put it into\n"
           "# ~/.local/share/bash-completion/completions/tessera.\n"
           "_tessera() {\n"
           "  local IFS=$'\\n'\n"
           "  COMPREPLY=($(tessera completion bash -- \"${COMP_WORDS[@]:1:COMP_CWORD}\"))\n"
           "}\n"
           "complete -o default -F _tessera tessera\n";
  }
  if (shell == "zsh") {
    return "#compdef tessera\n"
           "# Completion of tessera for zsh. Put it as _tessera into a folder of $fpath.\n"
           "_tessera() {\n"
           "  local -a found\n"
           "  found=(\"${(@f)$(tessera completion zsh -- \"${(@)words[2,CURRENT]}\")}\")\n"
           "  if [[ -n ${found[1]} ]]; then _describe tessera found; else _files; fi\n"
           "}\n"
           "_tessera \"$@\"\n";
  }
  return "# Completion of tessera for fish. Put it into ~/.config/fish/completions/tessera.fish.\n"
         "function __tessera_candidates\n"
         "  set -l words (commandline -opc) (commandline -ct)\n"
         "  tessera completion fish -- $words[2..-1]\n"
         "end\n"
         "complete -c tessera -a '(__tessera_candidates)'\n";
}

std::string FormatCandidates(const std::vector<Candidate>& candidates, const std::string& shell) {
  std::string out;
  for (const Candidate& c : candidates) {
    absl::StrAppend(&out, c.word);
    if (shell != "bash") absl::StrAppend(&out, shell == "zsh" ? ":" : "\t", c.help);
    out += "\n";
  }
  return out;
}

}  // namespace tessera::cli
