#!/usr/bin/env python3
"""Prints a C++ header with its comments in the form that Doxygen reads (Doxygen's INPUT_FILTER).

    docs/site/cpp_comments.py HEADER

The comments of this repository begin with `//`. These become comments of Doxygen:

  - the comment that opens the file. It describes the file and, if the type with the file's name (Array in array.h) has
    no comment, that type as well;
  - a comment directly above a declaration outside function bodies;
  - a comment behind a declaration or an enumerator, with the lines below that continue it.

Other comments stay unchanged: comments in function bodies, above an empty line, on includes and for linters, and
dividers (`// ---- Ranges. ----`). Lines indented in a comment are code. All characters that Doxygen would take for
commands, links or tags are escaped, except in code. The output has the lines of the input, so that Doxygen's warnings
name the right lines.
"""
import os
import re
import sys

# Comments for linters and dividers are no descriptions.
NO_TEXT = re.compile(r"(NOLINT|clang-format|IWYU|-{2,})")
# Literals, whose braces and slashes mean nothing. A quote between digits is no literal.
LITERALS = re.compile(r'R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\])+\'')
# Text before a brace that contains declarations.
SCOPE = re.compile(r"^\s*(template\s*<.*>\s*)?(requires\b.*\s)?(typedef\s+)?(inline\s+)?"
                   r"(namespace|class|struct|union|enum)\b", re.S)
SPECIAL = re.compile(r"[\\@<>#%&]|(?<=\])\(")
TYPE = re.compile(r"(?:class|struct) (\w+) [:{]")
# Doxygen shows code and what is in quotes as it is.
VERBATIM = re.compile(r'(`[^`]*`|"[^"]*")')


def escaped(text):
    """Returns the text of one line so that Doxygen shows it as it is."""
    parts = VERBATIM.split(text)
    return "".join(part if i % 2 else SPECIAL.sub(r"\\\g<0>", part) for i, part in enumerate(parts))


class Braces:
    """Follows the braces and parentheses of a file, to know whether declarations stand at a place."""

    def __init__(self):
        self.open = []  # whether declarations stand in each brace that is open: True or False
        self.parens = 0
        self.text = ""  # code since the last statement ended

    def declares(self):
        return all(self.open) and self.parens == 0

    def between(self):
        """Returns whether a declaration can begin here."""
        return self.declares() and not self.text.strip()

    def feed(self, code):
        for char in code:
            if char == "{":
                self.open.append(bool(SCOPE.match(self.text)))
                self.text = ""
            elif char == "}":
                if self.open:
                    self.open.pop()
                self.text = ""
            elif char == ";" and self.parens == 0:
                self.text = ""
            else:
                self.parens += (char == "(") - (char == ")")
                self.text += char
        self.text += "\n"
        if re.fullmatch(r"\s*(public|private|protected)\s*:\s*", self.text):
            self.text = ""


def comment_start(line):
    """Returns where the `//` of a comment begins in a line, or -1, and the code without literals."""
    code = LITERALS.sub(lambda m: '"' + " " * (len(m[0]) - 2) + '"', line)
    at = code.find("//")
    return at, code if at < 0 else code[:at]


def described(block):
    """Returns the lines of a comment, which are (indent, text), in Doxygen's form."""
    out, in_list, in_code = [], False, False
    for indent, text in block:
        if NO_TEXT.match(text.strip()):
            out.append(f"{indent}//{text}")
            continue
        body = text[1:] if text.startswith(" ") else text
        in_list = bool(re.match(r"([-*]|\d+\.) ", body)) or in_list and body.startswith("  ")
        code = body.startswith("  ") and not in_list
        if out and code != in_code:
            out[-1] += " @code{.cpp}" if code else " @endcode"
        in_code = code
        out.append(f"{indent}///   {body}" if code else f"{indent}/// {escaped(body)}".rstrip())
    if in_code:
        out[-1] += " @endcode"
    return out


class Converter:
    """Converts the lines of one header. `out` has the converted lines."""

    def __init__(self, path):
        self.path = path
        stem = os.path.splitext(os.path.basename(path))[0]
        self.named = "".join(part.capitalize() for part in stem.split("_"))  # the type with the file's name
        self.out = []
        self.braces = Braces()
        self.block = []  # the comment that has just been read, as (indent, text) of each line
        self.behind = -1  # column of the comment behind the last declaration, which the next line may continue
        self.head = True  # the comment that opens the file has not ended
        self.in_macro = False

    def convert(self, lines):
        for line in lines:
            if line.lstrip().startswith("//") and not self.in_macro:
                self.read_comment(line)
            else:
                self.read_code(line)
                self.block = []
        return self.out + self.plain_block()

    def plain_block(self):
        return [f"{indent}//{text}" for indent, text in self.block]

    def read_comment(self, line):
        column = len(line) - len(line.lstrip())
        indent, text = line[:column], line[column + 2:]
        if column == self.behind:
            self.out.append(f"{indent}///< {escaped(text.strip())}")
        else:
            self.behind = -1
            self.block.append((indent, text))

    def read_code(self, line):
        stripped = line.strip()
        self.behind = -1
        if self.head and stripped == "#pragma once":
            # @file takes the place of a line that Doxygen does not need.
            self.out += described(self.block) + [f"/// @file {self.path}"]
            self.head = False
            return
        directive = stripped.startswith("#") or self.in_macro
        declares = self.braces.between() and stripped and stripped[0] != "}" and not directive
        if declares or stripped.startswith("#define"):
            self.out += described(self.block)
        else:
            self.out += self.plain_block()
        if directive:
            self.in_macro = stripped.endswith("\\")
            self.out.append(line)
            return
        found = TYPE.match(line) if declares and not self.block else None
        copied = f"/** @copydoc {self.path} */ " if found and found[1] == self.named else ""
        self.out.append(copied + self.with_comment_behind(line))

    def with_comment_behind(self, line):
        """Returns a line of code. A comment behind a declaration or an enumerator becomes Doxygen's."""
        at, code = comment_start(line)
        before = self.braces.declares()
        self.braces.feed(code)
        text = line[at + 2:].strip()
        ends = code.rstrip().endswith((";", ",", "}")) and code.strip() not in ("}", "};")
        if at < 0 or not ends or NO_TEXT.match(text) or not before or not self.braces.declares():
            return line
        self.behind = at
        return f"{line[:at]}///< {escaped(text)}"


def main():
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    print("\n".join(Converter(os.path.relpath(path)).convert(lines)), end="")


if __name__ == "__main__":
    main()
