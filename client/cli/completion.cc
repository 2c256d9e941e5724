// Completion scripts, written out from the table: they call nothing but the shell.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/parse.h"

namespace tessera::cli {
namespace {

std::vector<std::string> WordsOf(const Command& command) {
  return absl::StrSplit(command.name, ' ');
}

std::vector<std::string> FirstWords(const std::vector<Command>& commands) {
  std::vector<std::string> out;
  for (const Command& c : commands) {
    const std::string word = WordsOf(c)[0];
    if (std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  }
  return out;
}

// "create list rm" of "mesh"; empty for a command of one word.
std::vector<std::string> SecondWords(const std::vector<Command>& commands,
                                     const std::string& first) {
  std::vector<std::string> out;
  for (const Command& c : commands) {
    const std::vector<std::string> words = WordsOf(c);
    if (words.size() > 1 && words[0] == first) out.push_back(words[1]);
  }
  return out;
}

std::vector<Option> OptionsOf(const Command& command) {
  std::vector<Option> out = command.options;
  const std::vector<Option>& globals = GlobalOptions();
  out.insert(out.end(), globals.begin(), globals.end());
  return out;
}

std::vector<std::string> FlagWords(const std::vector<Option>& options) {
  std::vector<std::string> out;
  for (const Option& o : options) {
    if (o.positional) continue;
    out.push_back("--" + o.name);
    if (o.letter != 0) out.push_back(absl::StrCat("-", std::string(1, o.letter)));
  }
  return out;
}

// Every flag that a value follows.
std::vector<std::string> ValueFlags(const std::vector<Command>& commands) {
  std::set<std::string> out;
  for (const Command& c : commands) {
    for (const Option& o : OptionsOf(c)) {
      if (o.positional || o.takes == Takes::kNothing) continue;
      for (const std::string& word : FlagWords({o})) out.insert(word);
    }
  }
  return {out.begin(), out.end()};
}

// What bash offers for the value of an option: a command's words for compgen.
std::string BashWords(const Option& o) {
  if (!o.choices.empty()) return absl::StrCat("-W '", absl::StrJoin(o.choices, " "), "'");
  if (o.completes == Completes::kFile) return "-f";
  if (o.completes == Completes::kFolder) return "-d";
  return "-W ''";
}

std::string Bash(const std::vector<Command>& commands) {
  std::string out =
      "# Completion of tessera for bash. Source it, or put it into\n"
      "# ~/.local/share/bash-completion/completions/tessera.\n"
      "_tessera() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} word='' i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    [[ ${COMP_WORDS[i]} == -* ]] && continue\n"
      "    case \"${COMP_WORDS[i-1]}\" in\n      ";
  absl::StrAppend(&out, absl::StrJoin(ValueFlags(commands), "|"), ") continue ;;\n    esac\n");
  out +=
      "    case \"$word\" in\n"
      "      '') word=${COMP_WORDS[i]} ;;\n";
  for (const std::string& first : FirstWords(commands)) {
    if (SecondWords(commands, first).empty()) continue;
    absl::StrAppend(&out, "      ", first, ") word=\"$word ${COMP_WORDS[i]}\" ;;\n");
  }
  out +=
      "    esac\n"
      "  done\n"
      "  case \"$word $prev\" in\n";
  for (const Command& c : commands) {
    for (const Option& o : OptionsOf(c)) {
      if (o.positional || o.takes == Takes::kNothing) continue;
      absl::StrAppend(&out, "    '", c.name, " --", o.name, "'");
      if (o.letter != 0) {
        absl::StrAppend(&out, "|'", c.name, " -", std::string(1, o.letter), "'");
      }
      absl::StrAppend(&out, ") COMPREPLY=($(compgen ", BashWords(o), " -- \"$cur\")); return ;;\n");
    }
  }
  out += "  esac\n  case \"$word\" in\n";
  absl::StrAppend(&out, "    '') COMPREPLY=($(compgen -W '",
                  absl::StrJoin(FirstWords(commands), " "), " ",
                  absl::StrJoin(FlagWords(GlobalOptions()), " "), "' -- \"$cur\")) ;;\n");
  for (const std::string& first : FirstWords(commands)) {
    std::vector<std::string> second = SecondWords(commands, first);
    if (second.empty()) continue;
    // The first word may be a command by itself.
    for (const Command& c : commands) {
      if (c.name != first) continue;
      const std::vector<std::string> flags = FlagWords(OptionsOf(c));
      second.insert(second.end(), flags.begin(), flags.end());
    }
    absl::StrAppend(&out, "    '", first, "') COMPREPLY=($(compgen -W '",
                    absl::StrJoin(second, " "), "' -- \"$cur\")) ;;\n");
  }
  for (const Command& c : commands) {
    if (!SecondWords(commands, c.name).empty()) continue;
    std::string files;
    for (const Option& o : c.options) {
      if (o.positional && o.completes != Completes::kNothing) files = " " + BashWords(o);
    }
    std::vector<std::string> words = FlagWords(OptionsOf(c));
    for (const Option& o : c.options) {
      if (o.positional) words.insert(words.end(), o.choices.begin(), o.choices.end());
    }
    absl::StrAppend(&out, "    '", c.name, "') COMPREPLY=($(compgen", files, " -W '",
                    absl::StrJoin(words, " "), "' -- \"$cur\")) ;;\n");
  }
  out += "  esac\n}\ncomplete -o filenames -F _tessera tessera\n";
  return out;
}

// Within '...' of zsh and fish.
std::string Quoted(const std::string& text) { return absl::StrReplaceAll(text, {{"'", "'\\''"}}); }

std::string ZshValue(const Option& o) {
  if (!o.choices.empty()) return absl::StrCat("(", absl::StrJoin(o.choices, " "), ")");
  if (o.completes == Completes::kFile) return "_files";
  if (o.completes == Completes::kFolder) return "_files -/";
  return " ";
}

// Within "...[...]" of zsh's _arguments.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(Quoted(text), {{"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

void AppendZsh(const Option& o, std::string* out) {
  const std::string value =
      o.takes == Takes::kNothing ? "" : absl::StrCat(":", o.value, ":", ZshValue(o));
  const std::string many = o.takes == Takes::kTexts ? "*" : "";
  if (o.positional) {
    absl::StrAppend(out, " \\\n        '", many.empty() ? "" : "*", ":", ZshText(o.name), ":",
                    ZshValue(o), "'");
    return;
  }
  absl::StrAppend(out, " \\\n        '", many, "--", o.name, "[", ZshText(o.help), "]", value, "'");
  if (o.letter != 0) {
    absl::StrAppend(out, " \\\n        '", many, "-", std::string(1, o.letter), "[",
                    ZshText(o.help), "]", value, "'");
  }
}

std::string Zsh(const std::vector<Command>& commands) {
  std::string out =
      "#compdef tessera\n"
      "# Completion of tessera for zsh. Put it as _tessera into a folder of $fpath.\n"
      "_tessera() {\n"
      "  local word=${words[2]}\n"
      "  case \"$word\" in\n";
  std::string arms;
  for (const std::string& first : FirstWords(commands)) {
    if (const auto second = SecondWords(commands, first); !second.empty()) {
      absl::StrAppend(&arms, absl::StrJoin({first}, ""), ") word=\"$word ${words[3]}\" ;;\n    ");
    }
  }
  absl::StrAppend(&out, "    ", arms, "*) ;;\n  esac\n");
  out += "  if (( CURRENT == 2 )); then\n    local -a commands=(\n";
  for (const std::string& first : FirstWords(commands)) {
    std::string summary;
    for (const Command& c : commands) {
      if (c.name == first) summary = c.summary;
    }
    if (summary.empty()) summary = absl::StrJoin(SecondWords(commands, first), ", ");
    absl::StrAppend(&out, "      '", first, ":", ZshText(summary), "'\n");
  }
  out += "    )\n    _describe command commands\n    return\n  fi\n";
  for (const std::string& first : FirstWords(commands)) {
    if (const auto second = SecondWords(commands, first); !second.empty()) {
      absl::StrAppend(&out, "  if [[ ${words[2]} == ", first,
                      " ]] && (( CURRENT == 3 )); then\n    compadd ", absl::StrJoin(second, " "),
                      "\n    return\n  fi\n");
    }
  }
  out += "  case \"$word\" in\n";
  for (const Command& c : commands) {
    const int skip = static_cast<int>(WordsOf(c).size());
    absl::StrAppend(&out, "    '", c.name, "')\n      shift ", skip, " words; (( CURRENT -= ", skip,
                    " ))\n      _arguments");
    for (const Option& o : OptionsOf(c)) AppendZsh(o, &out);
    out += " ;;\n";
  }
  out += "  esac\n}\n_tessera \"$@\"\n";
  return out;
}

std::string Fish(const std::vector<Command>& commands) {
  std::string out =
      "# Completion of tessera for fish. Put it into ~/.config/fish/completions/tessera.fish.\n"
      "complete -c tessera -f\n";
  const std::string firsts = absl::StrJoin(FirstWords(commands), " ");
  const auto option = [&](const std::string& condition, const Option& o) {
    absl::StrAppend(&out, "complete -c tessera", condition, " -l ", o.name);
    if (o.letter != 0) absl::StrAppend(&out, " -s ", std::string(1, o.letter));
    const bool files = o.completes == Completes::kFile;
    if (o.takes != Takes::kNothing) out += files ? " -r" : " -x";
    if (!o.choices.empty()) absl::StrAppend(&out, " -a '", absl::StrJoin(o.choices, " "), "'");
    if (files) out += " -F";
    if (o.completes == Completes::kFolder) out += " -a '(__fish_complete_directories)'";
    absl::StrAppend(&out, " -d '", Quoted(o.help), "'\n");
  };
  for (const Option& o : GlobalOptions()) option("", o);
  for (const Command& c : commands) {
    const std::vector<std::string> words = WordsOf(c);
    std::string condition = absl::StrCat(" -n '__fish_seen_subcommand_from ", words[0], "'");
    if (words.size() == 1) {
      absl::StrAppend(&out, "complete -c tessera -n 'not __fish_seen_subcommand_from ", firsts,
                      "' -a ", words[0], " -d '", Quoted(c.summary), "'\n");
    } else {
      const std::string seconds = absl::StrJoin(SecondWords(commands, words[0]), " ");
      if (words[1] == SecondWords(commands, words[0])[0]) {
        absl::StrAppend(&out, "complete -c tessera -n 'not __fish_seen_subcommand_from ", firsts,
                        "' -a ", words[0], " -d '", seconds, "'\n");
      }
      absl::StrAppend(&out, "complete -c tessera -n '__fish_seen_subcommand_from ", words[0],
                      "; and not __fish_seen_subcommand_from ", seconds, "' -a ", words[1], " -d '",
                      Quoted(c.summary), "'\n");
      condition = absl::StrCat(" -n '__fish_seen_subcommand_from ", words[0],
                               "; and __fish_seen_subcommand_from ", words[1], "'");
    }
    for (const Option& o : c.options) {
      if (!o.positional) {
        option(condition, o);
      } else if (o.completes != Completes::kNothing) {
        absl::StrAppend(&out, "complete -c tessera", condition, " -F\n");
      } else if (!o.choices.empty()) {
        absl::StrAppend(&out, "complete -c tessera", condition, " -a '",
                        absl::StrJoin(o.choices, " "), "'\n");
      }
    }
  }
  return out;
}

}  // namespace

std::string CompletionScript(const std::vector<Command>& commands, const std::string& shell) {
  if (shell == "bash") return Bash(commands);
  return shell == "zsh" ? Zsh(commands) : Fish(commands);
}

}  // namespace tessera::cli
