// Shell completion: the candidates for the last word of a line, and the scripts for the shells.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/parse.h"

namespace tessera::cli {
namespace {

bool IsFlag(const Option& o, const std::string& word) {
  if (o.positional) return false;
  return word == absl::StrCat("--", o.name) ||
         (o.short_name != 0 && word == absl::StrCat("-", std::string(1, o.short_name)));
}

// The options of a command, which may be null, and the global ones.
std::vector<const Option*> OptionsOf(const Command* command) {
  std::vector<const Option*> out;
  if (command != nullptr)
    for (const Option& o : command->options) out.push_back(&o);
  for (const Option& o : GlobalOptions()) out.push_back(&o);
  return out;
}

// The meaning of the words before the last one.
struct Typed {
  std::string path;                  // "mesh create", or its first words
  const Command* command = nullptr;  // named by `path`
  const Option* awaited = nullptr;   // the option whose value comes next
};
Typed ParseWords(const std::vector<Command>& commands, const std::vector<std::string>& words) {
  Typed typed;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (std::exchange(typed.awaited, nullptr) != nullptr) continue;
    for (const Option* o : OptionsOf(typed.command))
      if (IsFlag(*o, words[i]) && o->type != OptionType::kFlag) typed.awaited = o;
    const std::string path = absl::StrCat(typed.path, typed.path.empty() ? "" : " ", words[i]);
    for (const Command& c : commands) {
      if (c.name == path) typed.command = &c;
      if (c.name == path || absl::StartsWith(c.name, path + " ")) typed.path = path;
    }
  }
  return typed;
}

}  // namespace

std::vector<Candidate> CandidatesFor(const std::vector<Command>& commands,
                                     const std::vector<std::string>& words) {
  const Typed typed = ParseWords(commands, words);
  const std::string last = words.empty() ? "" : words.back();
  std::vector<Candidate> out;
  const auto offer = [&](absl::string_view word, const std::string& help) {
    const bool known = !out.empty() && out.back().word == word;
    if (absl::StartsWith(word, last) && !known) out.push_back({std::string(word), help});
  };
  if (typed.awaited != nullptr) {
    for (const std::string& choice : typed.awaited->choices) offer(choice, typed.awaited->help);
    return out;
  }
  for (const Command& c : commands) {
    absl::string_view rest = c.name;
    if (!typed.path.empty() && !absl::ConsumePrefix(&rest, typed.path + " ")) continue;
    offer(rest.substr(0, rest.find(' ')), c.summary);
  }
  for (const Option* o : OptionsOf(typed.command)) {
    if (o->positional)
      for (const std::string& choice : o->choices) offer(choice, o->help);
    else if (absl::StartsWith(last, "-"))
      offer(absl::StrCat("--", o->name), o->help);
  }
  if (absl::StartsWith(last, "-")) offer("--help", "This text.");
  return out;
}

std::string CompletionScript(const std::string& shell) {
  // Without candidates the shell completes file names.
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
