"""Finds the commands that a Markdown file shows, and checks that the programs in them accept them.

Commands are found in three places: in fenced blocks (```sh, or without a language), in lines that
are indented by four spaces, and between backquotes in a sentence. Only commands of this
repository's own programs are checked: tessera and its daemons, the programs of build/, scripts/,
and the Python files that are run by hand, and also the presets and targets of cmake and ctest. A
command is at fault if it names a program, a subcommand, an option, a preset or a target that does
not exist.

The programs themselves tell which options they accept (`--help`). For scripts, benchmarks and
examples, the source must name the option.
"""

import dataclasses
import json
import pathlib
import re
import shlex
import subprocess

DAEMONS = ("tessera-coordinator", "tessera-worker")
PATIENCE = 60  # seconds for one --help
_FENCE = re.compile(r"^(\s*)```+([^`]*)$")
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_ASSIGNMENT = re.compile(r"^\w+=")
_SEPARATOR = re.compile(r"^[;&|()]+$")
_REDIRECTION = re.compile(r"^[<>]+$")
_OPTION = re.compile(r"^--?[A-Za-z][\w-]*")
# Words that may precede a command and run it.
_RUNNERS = ("nice", "time", "exec", "sudo", "env")
_INTERPRETERS = re.compile(r"^(bash|sh|(\S*/)?python3?)$")


@dataclasses.dataclass(frozen=True)
class Line:
    number: int  # number of the line in the file
    text: str  # text, joined with the lines that continue it after a backslash
    in_sentence: bool = False  # whether it is between backquotes, where arguments may be left out

    def commands(self):
        """Returns the words of each command of the line. Assignments before a command, redirections
        and comments are left out. If no shell could read the line, it has no commands."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            return []
        found, command, skip = [], [], False
        for word in [*words, ";"]:
            if _SEPARATOR.match(word):
                found += [command] if command else []
                command = []
            elif _REDIRECTION.match(word):
                skip = True  # skip the file name that follows too
            elif skip:
                skip = False
            elif command or not _ASSIGNMENT.match(word):
                # In a usage text, "[--option VALUE]" may be left out, and "..." stands for
                # anything.
                if bare := word.replace("...", "").strip("[]"):
                    command.append(bare)
        return found


def lines_of(text):
    """Returns every line of a page that may hold commands, in the order of the page."""
    found, prose = [], []
    fence = None  # language of the block that the line is in
    joined, first = "", 0
    before = ""  # the previous line, to tell an indented block from a paragraph that continues
    indented = False
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if mark:
            fence = None if fence is not None and not mark[2].strip() else mark[2].strip()
            before, indented = "", False
            prose.append("")
            continue
        if fence is None:
            indented = line.startswith("    ") and (indented or bool(joined) or not before.strip())
        before = line
        if fence in ("sh", "") or (fence is None and indented):
            prose.append("")
            first = first if joined else number
            joined += line.strip()
            if joined.endswith("\\"):
                joined = joined[:-1]
                continue
            found.append(Line(first, joined))
            joined = ""
        else:
            prose.append(line if fence is None else "")
    return sorted(found + _spans(prose), key=lambda line: line.number)


def _spans(prose):
    """Returns the text between backquotes. Each paragraph is read as a whole, because code may
    continue on the next line."""
    found, start = [], 0
    for end in [i for i, line in enumerate(prose) if not line.strip()] + [len(prose)]:
        paragraph = "\n".join(prose[start:end])
        for span in _SPAN.finditer(paragraph):
            number = start + 1 + paragraph[:span.start()].count("\n")
            if len(span[1]) == 1:
                found.append(Line(number, " ".join(span[2].split()), in_sentence=True))
        start = end + 1
    return found


class Programs:
    """The programs of a checkout, and what they accept. `bin_dir` is the folder of the built programs."""

    def __init__(self, root, bin_dir):
        self._root, self._bin = pathlib.Path(root), pathlib.Path(bin_dir)
        self._said = {}
        self._sources = {}
        presets = json.loads((self._root / "CMakePresets.json").read_text())
        self._presets = {p["name"] for kind, rows in presets.items() if kind.endswith("Presets")
                         for p in rows}
        self._cmake = "\n".join(p.read_text() for pattern in ("CMakeLists.txt", "*.cmake")
                                for folder in source_folders(self._root)
                                for p in sorted(folder.rglob(pattern)))
        self._cmake += (self._root / "CMakeLists.txt").read_text()

    def fault(self, words, in_sentence=False):
        """Returns what is wrong with a command of ours, or "" if nothing is or if the command is
        not ours."""
        words = _unwrapped(words)
        if not words or "$" in words[0]:
            return ""
        name, arguments = words[0], words[1:]
        base = name.rpartition("/")[2]
        if base == "tessera":
            return self._tessera(arguments)
        if base in DAEMONS:
            return _unknown_option(name, arguments, self.help_of(base))
        if name in ("cmake", "ctest"):
            return self._built(arguments)
        if name.startswith(("scripts/", "tests/", "bench/")):
            if in_sentence and not arguments:  # a folder, or a family of files
                exists = any(self._root.glob(name.rstrip("/") + "*"))
                return "" if exists else f"there is no {name}"
            return self._script(name, arguments)
        if name.startswith(("build/", "bin/")) or re.match(r"^(bench-|tessera-)[\w-]+$", base):
            return self._program(base, arguments)
        return ""

    def help_of(self, program):
        return self._said_by(program, "--help")[1]

    def command_of(self, words):
        """Returns the words of the subcommand of tessera at the beginning of `words`, such as
        ("token", "list"), or () if there is none."""
        for count in (3, 2, 1):
            if len(words) >= count and self._said_by("tessera", "help", *words[:count])[0] == 0:
                return tuple(words[:count])
        return ()

    def _said_by(self, program, *arguments):
        """Returns (exit status, output) of a program. Each command line is run only once."""
        key = (program, *arguments)
        if key not in self._said:
            done = subprocess.run([self._bin / program, *arguments], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=PATIENCE, check=False)
            self._said[key] = done.returncode, done.stdout
        return self._said[key]

    def _tessera(self, arguments):
        general = self.help_of("tessera")
        rest = list(arguments)
        while rest and rest[0].startswith("-"):  # options of every command may come first
            option = rest.pop(0)
            if fault := _unknown_option("tessera", [option], general):
                return fault
            if "=" not in option and _takes_a_value(option, general) and rest:
                rest.pop(0)
        if not rest:
            return ""
        if rest[0].isupper():  # "tessera COMMAND --help": the word stands for any command
            return ""
        words = []
        while rest and not rest[0].startswith("-"):
            words.append(rest.pop(0))
        command = self.command_of(words)
        if not command:
            return f"tessera has no command {words[0]}"
        own = self._said_by("tessera", "help", *command)[1]
        name = " ".join(("tessera", *command))
        if fault := _unknown_option(name, rest, own + general):
            return fault
        given = len(words) - len(command)
        usage = re.search(rf"^Usage: {re.escape(name)}(.*)$", own, re.MULTILINE)
        taken = re.findall(r"(?<!\S)\[?[A-Z][A-Z_]*\]?(\.\.\.)?", usage[1].replace("[OPTIONS]", ""))
        if given > len(taken) and not any(taken):
            return f"{name} does not take {words[len(command) + len(taken)]}: {usage[0]}"
        return ""

    def _built(self, arguments):
        for option, value in zip(arguments, arguments[1:]):
            if option == "--preset" and value not in self._presets:
                return f"there is no preset {value}"
            if option == "--target" and not re.search(rf"\b{re.escape(value)}\b", self._cmake):
                return f"there is no target {value}"
        return ""

    def _script(self, name, arguments):
        path = self._root / name
        if not path.is_file():
            return f"there is no {name}"
        source, seen = "", set()
        todo = [path]
        while todo:  # a script may only be a few words that call another one
            path = todo.pop()
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            text = path.read_text(errors="replace")
            source += text
            todo += [self._root / word for word in
                     re.findall(r"\b(?:scripts|tests|bench)/[\w./]*\w", text)]
        return _unnamed_option(name, arguments, source)

    def _program(self, base, arguments):
        """Returns the fault of a command that runs a benchmark, an example, a test, or a program of
        releases only. The option must be named in a source of the program."""
        if base not in self._sources:
            self._sources[base] = [
                s for folder in source_folders(self._root) for p in folder.rglob("CMakeLists.txt")
                if _makes(p.read_text(), base) for s in sorted(p.parent.glob("*.cc"))
            ] + [self._root / staged for p in (self._root / "deploy/images").glob("*.files")
                 for staged in re.findall(rf"^bin/{re.escape(base)}\s+(\S+)", p.read_text(), re.MULTILINE)]
        if not self._sources[base]:
            return f"nothing makes {base}"
        source = "\n".join(p.read_text() for p in self._sources[base] if p.is_file())
        return _unnamed_option(base, arguments, source)


def source_folders(root):
    """Returns the folders of a checkout that hold sources, without build outputs."""
    return sorted(p for p in pathlib.Path(root).iterdir()
                  if p.is_dir() and not p.name.startswith(".") and p.name != "build")


def _makes(cmake, base):
    """Returns whether a CMakeLists.txt makes a program of this name. Loops in it may insert parts
    of the name."""
    for name in re.findall(r"\b(?:NAME|OUTPUT)\s+([^\s()]+)", cmake):
        if re.fullmatch(r"[\w-]+".join(map(re.escape, re.split(r"\$\{\w+\}", name))), base):
            return True
    return False


def _unwrapped(words):
    """Returns the words of the command that is run in the end, without an interpreter or container
    before it."""
    words = list(words)
    while words and words[0] in _RUNNERS:
        words.pop(0)
    if len(words) > 1 and _INTERPRETERS.match(words[0]) and not words[1].startswith("-"):
        words.pop(0)
    if words and words[0] in ("docker", "dc") and "--entrypoint" not in words:
        # The service `cli` is tessera itself. Other services get a whole command.
        if "cli" in words:
            return ["tessera", *words[words.index("cli") + 1:]]
        return words[words.index("tessera"):] if "tessera" in words else []
    return words


def _options(arguments):
    found = []
    for word in arguments:
        if word == "--":
            break
        if _OPTION.match(word):
            found.append(word.partition("=")[0])
    return found


def _unknown_option(name, arguments, help_text):
    listed = {"--help", "--version"}
    # An option that is only mentioned in a sentence of the help is not an option of this command.
    for line in re.findall(r"^ {1,8}(-.*)$", help_text, re.MULTILINE):
        listed.update(re.findall(r"(?:^|,)(--?[A-Za-z][\w-]*)", line.split()[0]))
    for option in _options(arguments):
        if option not in listed:
            return f"{name} has no option {option}"
    return ""


def _takes_a_value(option, help_text):
    return re.search(rf"(?<![\w-]){re.escape(option)}[ =][A-Z]", help_text) is not None


def _unnamed_option(name, arguments, source):
    for option in _options(arguments):
        bare = option.lstrip("-")
        if not re.search(rf'(?<![\w-]){re.escape(option)}(?![\w-])|"{re.escape(bare)}"', source):
            return f"{name} has no option {option}"
    return ""
