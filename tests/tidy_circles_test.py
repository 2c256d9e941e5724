"""Fails when source files or folders include each other in a circle, and when a top folder has no README.md.

A header and the source file of the same name are one unit. A circle of units or of folders means that none of them can
be understood, tested or built without the others. Tests, benchmarks and examples are left out: nothing includes them.
"""
import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ("base", "ir", "client", "server", "worker", "embed")
DOCUMENTED = (*LAYERS, "proto", "bench", "tests", "deploy", "scripts")
LEFT_OUT = re.compile(r"_test\.cc$|_fuzz\.cc$|/testing/")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
CODE = re.compile(r"^(?!\s*(//|#|$)).", re.M)


def texts(root):
    """Returns the text of each source file of the layers, by its path relative to the root."""
    return {str(path.relative_to(root)): path.read_text() for layer in LAYERS for path in sorted((root / layer).rglob("*"))
            if path.suffix in (".h", ".cc", ".def") and not LEFT_OUT.search(str(path.relative_to(root)))}


def includes(files):
    """Returns the files that each file includes, as far as they are among the given files."""
    return {path: [header for header in INCLUDE.findall(text) if header in files] for path, text in files.items()}


def unit_of(path):
    return path.rpartition(".")[0]


def folder_of(path):
    return path.rpartition("/")[0]


def graph_of(files, group_of, left_out=()):
    """Returns {group: {included group: [(file, header)]}}, where `group_of` names the group of a path."""
    graph = collections.defaultdict(lambda: collections.defaultdict(list))
    for path, headers in includes(files).items():
        for header in headers:
            if group_of(path) != group_of(header) and path not in left_out and header not in left_out:
                graph[group_of(path)][group_of(header)].append((path, header))
    return graph


def circles(graph):
    """Returns the sets of groups that reach each other, each as a sorted list (the algorithm of Tarjan)."""
    order, lowest, stack, found = {}, {}, [], []

    def visit(group):
        order[group] = lowest[group] = len(order)
        stack.append(group)
        for other in graph.get(group, ()):
            if other not in order:
                visit(other)
                lowest[group] = min(lowest[group], lowest[other])
            elif other in stack:
                lowest[group] = min(lowest[group], order[other])
        if lowest[group] == order[group]:
            at = stack.index(group)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for group in list(graph):
        if group not in order:
            visit(group)
    return found


def described(graph, circle):
    """Returns the groups of a circle, and the includes between them."""
    return [f"a circle of {', '.join(circle)}:"] + [f"{path} includes {header}" for group in circle for other, pairs in graph[group].items() if other in circle
            for path, header in pairs]


def umbrellas(files):
    """Returns the headers that only include others. A folder's umbrella lies above everything, whatever its folder is."""
    return {path for path, text in files.items()
            if path.endswith(".h") and "#include" in text and not CODE.search(text)}


class TidyCirclesTest(unittest.TestCase):
    maxDiff = None

    def test_no_units_include_each_other_in_a_circle(self):
        graph = graph_of(texts(ROOT), unit_of)
        self.assertEqual([], [line for circle in circles(graph) for line in described(graph, circle)])

    def test_no_folders_include_each_other_in_a_circle(self):
        files = texts(ROOT)
        graph = graph_of(files, folder_of, umbrellas(files))
        self.assertEqual([], [line for circle in circles(graph) for line in described(graph, circle)])

    def test_each_top_folder_has_a_readme(self):
        self.assertEqual([], [folder for folder in DOCUMENTED if not (ROOT / folder / "README.md").exists()])

    def test_a_circle_is_found_and_named(self):
        files = {"ir/a.h": '#include "ir/x/b.h"\nint A();\n', "ir/a.cc": '#include "ir/a.h"\n',
                 "ir/x/b.h": "int B();\n", "ir/x/b.cc": '#include "ir/a.h"\n', "ir/c.h": '#include "ir/a.h"\nint C();\n'}
        for group_of, circle in ((unit_of, ["ir/a", "ir/x/b"]), (folder_of, ["ir", "ir/x"])):
            graph = graph_of(files, group_of)
            self.assertEqual([circle], circles(graph))
            self.assertEqual([f"a circle of {', '.join(circle)}:", "ir/a.h includes ir/x/b.h", "ir/x/b.cc includes ir/a.h"],
                             described(graph, circle))

    def test_an_umbrella_makes_no_circle_of_folders(self):
        files = {"ir/all.h": '// Everything.\n#include "ir/x/b.h"\n', "ir/a.h": "int A();\n",
                 "ir/x/b.h": '#include "ir/a.h"\nint B();\n'}
        self.assertEqual({"ir/all.h"}, umbrellas(files))
        self.assertEqual([], circles(graph_of(files, folder_of, umbrellas(files))))


if __name__ == "__main__":
    unittest.main()
