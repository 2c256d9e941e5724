#!/usr/bin/env python3
"""Decides which source files of a library may be compiled as one translation unit.

    unity_groups.py ROOT SOURCES FOLDER

ROOT is the folder that includes are relative to. Each line of SOURCES is `TARGET;DIRECTORY;FILE;...`: a target, the
folder whose CMakeLists.txt defines it, and the absolute paths of its sources that may share a translation unit. For
each group of several files, FOLDER gets a source file that includes them. It includes them relative to ROOT, so that a
compiler cache recognises the group in a checkout in another folder. FOLDER/groups.cmake replaces the sources of each
target by those files. A file of FOLDER is rewritten only if it changes, so that the build folder is configured again
only when the groups change. FOLDER/groups.d lists all sources for ninja.

Two files may share a translation unit if neither uses, as a bare word, a name that is private to the other one: a
name in an unnamed namespace, a static function, a macro, an alias. Then no name can be defined twice, and no name can
silently refer to another file's function. The rule is deliberately coarse: a shared word that happens to be harmless
only costs a slightly longer build. A file is compiled by itself if it contains the comment "Compiled by itself:" with
a reason.
"""

import os
import re
import sys

# The largest group. The bounds limit the time that it takes to compile a change of one file.
FILES_MAX = 10
LINES_MAX = 2200

WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT_OR_LITERAL = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)
# A word after one of these symbols is looked up in a class or a namespace, never among the private names of a file.
QUALIFIED = re.compile(r"(?:\.|->|::)\s*[A-Za-z_]\w*")
TEST = re.compile(r"(?:TYPED_)?TEST(?:_F|_P|_SUITE)?\((\w+)(?:,\s*(\w+))?")


def without_comments(text):
    """Returns `text` with its comments and literals blanked and the number of lines unchanged."""
    def blank(match):
        found = match.group(0)
        if "\n" in found:
            return "\n" * found.count("\n")
        return " " if found[0] == "/" else "0"
    return COMMENT_OR_LITERAL.sub(blank, text)


def declared(text):
    """Returns the names that a declaration at the beginning of `text` may introduce. In doubt, returns all words."""
    test = TEST.match(text)
    if test:
        return set(filter(None, test.groups()))
    if text.startswith("template"):
        depth = 0
        for at, char in enumerate(text):
            depth += (char == "<") - (char == ">")
            if char == ">" and depth == 0:
                text = text[at + 1:].lstrip()
                break
    named = re.match(r"(?:enum class|enum|class|struct|union)\s+(?:\[\[\w+\]\]\s*)?(?:[A-Z_]+\s+)?([\w:]+)", text)
    if named:
        return {named.group(1).split("::")[-1]}
    depth = 0
    for at, char in enumerate(text):
        if char == "<":
            depth += 1
        elif char == ">":
            depth = max(0, depth - 1)
        elif depth == 0 and char in "({=;[":
            words = WORD.findall(text[:at])
            return set(words[-1:])
    return set(WORD.findall(text))


def under(inner, outer):
    """Returns whether the namespace `inner` is `outer` or is nested in it."""
    return inner == outer or inner.startswith(outer + "::") or not outer


class File:
    """The names in one file. Finding them relies on the layout of clang-format: the declarations in a namespace begin
    in column 0."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            raw = file.read()
        text = without_comments(raw)
        raw_lines, lines = raw.split("\n"), text.split("\n")
        self.num_lines = len(lines)
        self.alone = "// Compiled by itself:" in raw
        self.included = re.findall(r'^#include "([^"]+)"', raw, re.M)
        self.words = set(WORD.findall(QUALIFIED.sub(" ", text)))
        self.namespaces = {""}
        self.own = set()    # (namespace, name) of the names that are private to this file
        self.alias = {}     # (namespace, name) -> the using-declaration that introduces it
        opened = []         # the namespaces around the present line; None for an unnamed one
        for at, line in enumerate(lines):
            namespace = "::".join(name for name in opened if name)
            macro = re.match(r"#\s*(define|undef)\s+(\w+)", line)
            opening = re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{", line)
            alias = re.match(r"(?:using|namespace)\s+(?:namespace\s+)?([\w:]+)\s*[=;]", line)
            if macro:
                (self.own.add if macro.group(1) == "define" else self.own.discard)(("", macro.group(2)))
            elif opening:
                opened.append(opening.group(1))
                self.namespaces.add("::".join(name for name in opened if name))
            elif opened and re.match(r"\}\s*//\s*namespace\b", raw_lines[at]):
                opened.pop()
            elif alias:
                self.alias[namespace, alias.group(1).split("::")[-1]] = line
            elif line and (line[0].isalpha() or line[0] == "_"):
                if None in opened or line.startswith(("static ", "TEST", "TYPED_TEST")):
                    self.own |= {(namespace, name) for name in declared(" ".join(lines[at:at + 6]))}

    def hides(self, other):
        """Returns whether a name of this file could change the meaning of `other`."""
        def seen(namespace, name):
            return name in other.words and any(under(inner, namespace) for inner in other.namespaces)
        return (any(seen(*key) for key in self.own)
                or any(seen(*key) and other.alias.get(key) != text for key, text in self.alias.items()))


class Tree:
    """Files by path, each read once, and the headers that they include from this repository."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        self.closures = {}

    def file(self, path):
        if path not in self.files:
            self.files[path] = File(path)
        return self.files[path]

    def headers(self, path):
        """Returns the paths of all headers that `path` includes, directly or indirectly."""
        if path not in self.closures:
            self.closures[path] = set()  # Ends the recursion if headers include each other in a cycle.
            found = set()
            for name in self.file(path).included:
                header = os.path.join(self.root, name)
                if os.path.exists(header) and header.endswith(".h"):
                    found |= {header} | self.headers(header)
            self.closures[path] = found
        return self.closures[path]

    def clash(self, one, other):
        """Returns whether two sources must not share a translation unit."""
        for a, b in ((one, other), (other, one)):
            if self.file(a).hides(self.file(b)):
                return True
            # The compiler reads the headers that only the second file includes after the names of the first file.
            if any(self.file(a).hides(self.file(header)) for header in self.headers(b) - self.headers(a)):
                return True
        return False

    def groups(self, sources):
        """Puts each source into a group that has room for it and does not clash with it. Among these groups, chooses
        the one whose headers are most similar, so that a change of a header affects few groups."""
        found = []  # for each group, its paths and its headers
        for source in sources:
            if self.file(source).alone:
                continue
            num_lines, headers = self.file(source).num_lines, self.headers(source)
            fits = [(group, included) for group, included in found
                    if len(group) < FILES_MAX
                    and sum(self.file(path).num_lines for path in group) + num_lines <= LINES_MAX
                    and not any(self.clash(path, source) for path in group)]
            if fits:
                group, included = max(fits, key=lambda fit: len(fit[1] & headers) / (len(fit[1] | headers) or 1))
                group.append(source)
                included |= headers
            else:
                found.append(([source], set(headers)))
        return [group for group, _ in found]


def write(path, text):
    """Writes `text` to the file `path`. Does not touch the file if it contains the text already."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    root, listed, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    tree = Tree(root)
    commands, paths, made = [], [], {"groups.cmake", "groups.d"}
    with open(listed, encoding="utf-8") as rows:
        for row in rows.read().split("\n"):
            if not row:
                continue
            target, folder, *files = row.split(";")
            # If a file was removed since CMake last ran, CMake runs again after this script.
            files = [path for path in files if os.path.exists(path)]
            paths += files
            groups = [group for group in tree.groups(files) if len(group) > 1]
            for number, group in enumerate(groups):
                name = f"{target}_{number}.cc"
                made.add(name)
                write(os.path.join(out, name),
                      "".join(f'#include "{os.path.relpath(path, root)}"\n' for path in group))
                names = " ".join(f'"{path}"' for path in group)
                commands.append(f'set_source_files_properties({names} DIRECTORY "{folder}"'
                                " PROPERTIES HEADER_FILE_ONLY ON)\n"
                                f'target_sources({target} PRIVATE "{os.path.join(out, name)}")\n')
    for name in set(os.listdir(out)) - made:
        os.remove(os.path.join(out, name))
    write(os.path.join(out, "groups.cmake"), "".join(commands))
    with open(os.path.join(out, "groups.d"), "w", encoding="utf-8") as file:
        file.write(os.path.join(out, "groups.cmake") + ": "
                   + " ".join(path.replace(" ", "\\ ") for path in sorted(tree.files)) + "\n")


if __name__ == "__main__":
    main()
