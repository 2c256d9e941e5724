"""Fails when source files or folders include each other in a circle, when a file of client/ includes a room that its
own room may not include, and when a top folder has no README.md.

A header and the source file of the same name are one unit. A circle of units or of folders means that none of them can
be understood, tested or built without the others. Tests, benchmarks and examples are left out, because no code of the
layers includes them.
"""
import collections
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = ("base", "ir", "client", "server", "worker", "embed")
SOURCES = (".h", ".cc", ".py", ".proto")  # endings of files that make a top folder need a README.md
ALSO_DOCUMENTED = ("scripts", "deploy", "docs")  # top folders that need a README.md whatever files they contain
# Top folders that need no README.md, each with the reason.
NOT_DOCUMENTED = {"cmake": "the comment at the head of each file says what the file is for"}
# The rooms of client/ in their order, each with the rooms that its files may directly include. The table of
# client/README.md is the same. The room "" is client/ itself: every room may include its headers.
ROOMS = {
    "": (),
    "plan": (),
    "trace": ("plan",),
    "apply": ("trace",),
    "numpy": ("apply", "trace"),
    "transform": ("apply", "trace", "plan"),
    "lib": ("apply", "numpy", "transform"),
    "show": ("transform", "apply", "trace", "plan"),
    "remote": (),
    "cli": ("remote", "plan", "show"),
    "pjrt": ("trace", "transform", "show"),
}
# A row of the table of parts in client/README.md: the part, and the parts that it may include.
README_ROW = re.compile(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", re.M)
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


def room_of(path):
    """Returns the room of a file of client/, "" for a file in client/ itself, and None for any other file."""
    top, *folders = path.split("/")[:-1]
    if top != "client":
        return None
    return folders[0] if folders else ""


def room_faults(files):
    """Returns a line for each include by which a room of client/ directly includes a room that ROOMS does not allow.

    An umbrella has no code of its own. So it may include every room, and a file that includes the umbrella counts as a
    file that directly includes the headers in it.
    """
    hollow, headers_of = umbrellas(files), includes(files)

    def included(path):
        """Yields (header, umbrella) of each header that the file includes, where the umbrella may be ""."""
        for header in headers_of[path]:
            if header in hollow:
                yield from ((inner, header) for inner, _ in included(header))
            else:
                yield header, ""

    faults = []
    for path in files:
        room = room_of(path)
        if room is None or path in hollow:
            continue
        if room not in ROOMS:
            faults.append(f"{path}: the table ROOMS has no row for client/{room}/")
            continue
        for header, umbrella in included(path):
            if room_of(header) not in (None, "", room, *ROOMS[room]):
                faults.append(f"{path} includes {header}" + (f" through {umbrella}" if umbrella else ""))
    return faults


def tracked(root):
    """Returns the paths of all files that git tracks, relative to the root."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
    return listed.split("\0")[:-1]


def documented(paths):
    """Returns the top folders among the paths of files that need a README.md."""
    return sorted({top for top, slash, rest in (path.partition("/") for path in paths)
                   if slash and (rest.endswith(SOURCES) or top in ALSO_DOCUMENTED)} - set(NOT_DOCUMENTED))


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
        folders = documented(tracked(ROOT))
        self.assertLessEqual({*LAYERS, *ALSO_DOCUMENTED, "proto", "tests", "bench", "examples"}, set(folders))
        self.assertEqual([], [folder for folder in folders if not (ROOT / folder / "README.md").exists()])
        self.assertEqual([], [folder for folder in NOT_DOCUMENTED if (ROOT / folder / "README.md").exists()],
                         "these folders have a README.md, so NOT_DOCUMENTED must not name them")

    def test_the_rooms_of_the_client_include_only_the_rooms_that_the_table_allows(self):
        files = texts(ROOT)
        self.assertEqual([], room_faults(files))
        # Guards against a search that finds nothing.
        self.assertEqual(set(ROOMS), {room_of(path) for path in files} - {None})

    def test_a_room_may_include_only_rooms_of_earlier_rows(self):
        rooms = list(ROOMS)
        self.assertEqual([], [(room, other) for room in rooms for other in ROOMS[room]
                              if other not in rooms[:rooms.index(room)]])

    def test_the_readme_of_the_client_shows_the_table_of_rooms(self):
        rows = README_ROW.findall((ROOT / "client/README.md").read_text())
        shown = [(room, set(re.findall(r"`(\w+)/`", cell))) for room, cell in rows if room in ROOMS]
        self.assertEqual([(room, set(others)) for room, others in ROOMS.items() if room], shown)

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

    def test_an_include_of_a_room_that_the_table_does_not_allow_is_found(self):
        files = {"client/array.h": '#include "ir/type.h"\nint A();\n', "ir/type.h": "int T();\n",
                 "client/trace.h": '#include "client/trace/trace.h"\n',
                 "client/tessera.h": '#include "client/trace.h"\n#include "client/array.h"\n',
                 "client/trace/trace.h": '#include "client/array.h"\nint F();\n',
                 "client/apply/apply.h": '#include "client/trace/trace.h"\n#include "client/array.h"\nint B();\n',
                 "client/lib/fft.cc": '#include "client/apply/apply.h"\n#include "ir/type.h"\n',
                 "embed/embed.cc": '#include "client/trace/trace.h"\n'}
        self.assertEqual([], room_faults(files))
        for path, header, fault in (
                ("client/lib/nn.cc", "client/trace/trace.h", "client/lib/nn.cc includes client/trace/trace.h"),
                ("client/lib/nn.cc", "client/trace.h",
                 "client/lib/nn.cc includes client/trace/trace.h through client/trace.h"),
                ("client/lib/nn.cc", "client/tessera.h",
                 "client/lib/nn.cc includes client/trace/trace.h through client/tessera.h"),
                ("client/trace/mesh.cc", "client/apply/apply.h", "client/trace/mesh.cc includes client/apply/apply.h"),
                ("client/mesh.h", "client/trace/trace.h", "client/mesh.h includes client/trace/trace.h"),
                ("client/new/a.cc", "client/array.h", "client/new/a.cc: the table ROOMS has no row for client/new/")):
            self.assertEqual([fault], room_faults({**files, path: f'#include "{header}"\nint X();\n'}), (path, header))

    def test_a_top_folder_with_sources_needs_a_readme(self):
        self.assertEqual(["deploy", "new", "tools"],
                         documented(["a.py", "README.md", "new/x/a.h", "new/b.cc", "tools/a.py", "deploy/a.yml",
                                     "data/a.txt", ".ci/run", "cmake/a.py"]))


if __name__ == "__main__":
    unittest.main()
