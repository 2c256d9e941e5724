#!/usr/bin/env python3
"""Decides which source files of a library may be compiled as one translation unit.

    unity_groups.py ROOT SOURCES GROUPS DEPFILE

ROOT is the folder that includes start from. Each line of SOURCES is `TARGET;DIRECTORY;FILE;...`: a target, the folder whose CMakeLists.txt defines it, and the
absolute paths of its sources. GROUPS is a CMake file that gives each source the property UNITY_GROUP. It is
rewritten only if it changes, so that the build folder is configured again only when the groups change. DEPFILE
names every source for ninja.

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
        """Puts each source into the first group that has room for it and no clash with it."""
        found = []
        for source in sources:
            if self.file(source).alone:
                continue
            num_lines = self.file(source).num_lines
            for group in found:
                if (len(group) < FILES_MAX
                        and sum(self.file(path).num_lines for path in group) + num_lines <= LINES_MAX
                        and not any(self.clash(path, source) for path in group)):
                    group.append(source)
                    break
            else:
                found.append([source])
        return found


def main():
    root, listed, out, depfile = sys.argv[1:]
    tree = Tree(root)
    text, paths = [], []
    with open(listed, encoding="utf-8") as rows:
        for row in rows.read().split("\n"):
            if not row:
                continue
            target, folder, *files = row.split(";")
            # A file that was removed since CMake ran: CMake runs again after this.
            files = [path for path in files if os.path.exists(path)]
            paths += files
            for number, group in enumerate(tree.groups(files)):
                names = " ".join(f'"{path}"' for path in group)
                text.append(f'set_source_files_properties({names} DIRECTORY "{folder}"'
                            f" PROPERTIES UNITY_GROUP {target}_{number})\n")
    text = "".join(text)
    old = open(out, encoding="utf-8").read() if os.path.exists(out) else None
    if text != old:
        with open(out, "w", encoding="utf-8") as file:
            file.write(text)
    with open(depfile, "w", encoding="utf-8") as file:
        file.write(out + ": " + " ".join(path.replace(" ", "\\ ") for path in sorted(tree.files)) + "\n")


if __name__ == "__main__":
    main()
