#!/usr/bin/env python3
"""Decides which source files of a library may be compiled as one translation unit.

    unity_groups.py ROOT SOURCES FOLDER

ROOT is the folder that includes start from. Each line of SOURCES is `TARGET;DIRECTORY;FILE;...`: a target, the
folder whose CMakeLists.txt defines it, and the absolute paths of those of its sources that may share. For each
group of several files FOLDER gets a source file that includes them. It includes them relative to ROOT, so that a
compiler cache knows the group again when it meets a checkout in another folder. FOLDER/groups.cmake replaces the
sources of each target by those files. A file of FOLDER is rewritten only if it changes, so that the build folder
is configured again only when the groups change. FOLDER/groups.d names every source for ninja.

Two files may share a translation unit if neither uses, as a bare word, a name that the other one keeps to itself:
a name of an unnamed namespace, a static function, a macro, an alias. Then no name can be defined twice, and no
name can silently mean another file's function. The rule is deliberately coarse: a shared word that happens to
be harmless only costs a slightly longer build. A file is compiled by itself if the comment "Compiled by itself:"
with a reason stands in it.
"""

import os
import re
import sys

# The bounds of a group. They bound the time that a change of one file takes to compile.
FILES_MAX = 10
LINES_MAX = 2200

WORD = re.compile(r"[A-Za-z_]\w*")
COMMENT_OR_LITERAL = re.compile(
    r"//[^\n]*|/\*.*?\*/|R\"(\w*)\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.S)
# A word behind one of these is looked up in a class or a namespace, never among a file's own names.
QUALIFIED = re.compile(r"(?:\.|->|::)\s*[A-Za-z_]\w*")
TEST = re.compile(r"(?:TYPED_)?TEST(?:_F|_P|_SUITE)?\((\w+)(?:,\s*(\w+))?")


def without_comments(text):
    """`text` with its comments and literals blanked and its lines kept."""
    def blank(match):
        found = match.group(0)
        if "\n" in found:
            return "\n" * found.count("\n")
        return " " if found[0] == "/" else "0"
    return COMMENT_OR_LITERAL.sub(blank, text)


def declared(text):
    """The names that a declaration at the beginning of `text` may introduce. Unsure, it returns all words."""
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
    """Whether the namespace `inner` is `outer` or lies in it."""
    return inner == outer or inner.startswith(outer + "::") or not outer


class File:
    """The names of one file. They rely on the layout of clang-format: declarations of a namespace begin in
    column 0."""

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
        self.own = set()    # (namespace, name) of what only this file may use
        self.alias = {}     # (namespace, name) -> the using-declaration that introduces it
        opened = []         # the namespaces around a line; None is an unnamed one
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
        """Whether a name of this file could change what `other` means."""
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
        """The paths of all headers that `path` includes, directly or not."""
        if path not in self.closures:
            self.closures[path] = set()  # A header that includes itself in a ring adds nothing.
            found = set()
            for name in self.file(path).included:
                header = os.path.join(self.root, name)
                if os.path.exists(header) and header.endswith(".h"):
                    found |= {header} | self.headers(header)
            self.closures[path] = found
        return self.closures[path]

    def clash(self, one, other):
        """Whether two sources must not share a translation unit."""
        for a, b in ((one, other), (other, one)):
            if self.file(a).hides(self.file(b)):
                return True
            # The headers that the second file brings are read after the names of the first.
            if any(self.file(a).hides(self.file(header)) for header in self.headers(b) - self.headers(a)):
                return True
        return False

    def groups(self, sources):
        """Puts each source into a group that has room for it and no clash with it: the one whose headers are most like
        its own, so that a change of a header touches few groups."""
        found = []  # of each group the paths and the headers
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
    """Makes the file `path` hold `text`. Leaves the file alone if it does so already."""
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
            # CMake runs again after this if a file was removed since it ran.
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
