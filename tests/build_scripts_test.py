#!/usr/bin/env python3
"""Tests the scripts that the build and the runs of all tests rely on: cmake/unity_groups.py,
cmake/pch_sum.py, scripts/test_times.py and scripts/check."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, "cmake"), os.path.join(ROOT, "scripts")]

import test_times  # noqa: E402
import unity_groups  # noqa: E402

PLAIN = "namespace a {\nint F() { return 1; }\n}  // namespace a\n"


class PchSumTest(unittest.TestCase):
    """The checksum by which a compiler cache recognizes a precompiled header."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def sums(self):
        script = os.path.join(ROOT, "cmake", "pch_sum.py")
        outputs = [os.path.join(self.folder, name) for name in ("one.sum", "two.sum")]
        subprocess.run([sys.executable, "-B", script, "g++", self.folder, os.path.join(self.folder, "sums.d"),
                        *outputs, "--", "<outer.h>"], check=True)
        return [self.read(name) for name in ("one.sum", "two.sum")]

    def test_a_change_of_any_included_header_changes_the_sum(self):
        self.write("outer.h", "#include <inner.h>\n")
        self.write("inner.h", "int a;\n")
        before = self.sums()
        self.assertEqual(before[0], before[1])
        self.assertEqual(self.sums(), before)
        self.write("inner.h", "int b;\n")
        self.assertNotEqual(self.sums()[0], before[0])

    def test_the_build_learns_on_which_headers_the_sum_depends(self):
        self.write("outer.h", "#include <inner.h>\n")
        self.write("inner.h", "")
        self.sums()
        target, headers = self.read("sums.d").split(":", 1)
        self.assertEqual(target, os.path.join(self.folder, "one.sum"))
        for name in ("outer.h", "inner.h"):
            self.assertIn(os.path.join(self.folder, name), headers.split())


class GroupsTest(unittest.TestCase):
    """The choice of source files that may share a translation unit."""

    def setUp(self):
        self.root = tempfile.TemporaryDirectory()
        self.addCleanup(self.root.cleanup)

    def write(self, name, text):
        path = os.path.join(self.root.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def groups(self, *texts):
        paths = [self.write(f"{number}.cc", text) for number, text in enumerate(texts)]
        found = unity_groups.Tree(self.root.name).groups(paths)
        return [[paths.index(path) for path in group] for group in found]

    @staticmethod
    def unnamed(text, namespace="a"):
        return f"namespace {namespace} {{\nnamespace {{\n{text}\n}}  // namespace\n}}  // namespace {namespace}\n"

    def test_files_without_names_in_common_share(self):
        self.assertEqual(self.groups(PLAIN, self.unnamed("int G() { return 2; }")), [[0, 1]])

    def test_no_name_is_defined_twice(self):
        for text in ("int F() {", "struct F {", "constexpr int F = 1;", "template <class T>\nT F(T x) {",
                     "const std::vector<std::pair<int, int>> F{};", "enum class F { kA };"):
            self.assertEqual(self.groups(self.unnamed(text), self.unnamed(text)), [[0], [1]], text)

    def test_a_name_that_another_file_uses_keeps_them_apart_in_either_order(self):
        own = self.unnamed("int Size() { return 1; }")
        use = "namespace a {\nint G() { return Size(); }\n}  // namespace a\n"
        self.assertEqual(self.groups(own, use), [[0], [1]])
        self.assertEqual(self.groups(use, own), [[0], [1]])

    def test_members_comments_and_literals_are_no_uses(self):
        own = self.unnamed("int Size() { return 1; }")
        use = "// Size\nnamespace a {\nint G(X x) { return x.Size() + b::Size() + y->Size() + N(\"Size\"); }\n}  // namespace a\n"
        self.assertEqual(self.groups(own, use), [[0, 1]])

    def test_a_name_is_hidden_only_inside_its_namespace(self):
        own = self.unnamed("int Size() { return 1; }")
        for namespace, apart in (("b", False), ("a::c", True), ("a", True), ("ab", False)):
            use = f"namespace {namespace} {{\nint G() {{ return Size(); }}\n}}  // namespace {namespace}\n"
            self.assertEqual(self.groups(own, use), [[0], [1]] if apart else [[0, 1]], namespace)

    def test_nested_namespaces_are_followed(self):
        own = self.unnamed("int Size() { return 1; }", "a::c")
        use = ("namespace a {\nnamespace c {\nint G() { return Size(); }\n}  // namespace c\n}  // namespace a\n")
        self.assertEqual(self.groups(own, use), [[0], [1]])

    def test_macros_count_everywhere_until_they_are_undefined(self):
        use = "namespace b {\nint G() { return N; }\n}  // namespace b\n"
        self.assertEqual(self.groups("#define N 1\n", use), [[0], [1]])
        self.assertEqual(self.groups("#define N 1\n#undef N\n", use), [[0, 1]])

    def test_an_alias_may_be_repeated_and_not_differ(self):
        def alias(text):
            return f"namespace a {{\nusing {text};\nint G(X x);\n}}  // namespace a\n"
        self.assertEqual(self.groups(alias("X = int"), alias("X = int")), [[0, 1]])
        self.assertEqual(self.groups(alias("X = int"), alias("X = long")), [[0], [1]])
        self.assertEqual(self.groups(alias("b::X"), alias("c::X")), [[0], [1]])

    def test_headers_that_only_the_second_file_includes_count(self):
        self.write("h.h", "namespace a {\nint Size();\n}  // namespace a\n")
        own = self.unnamed("struct Size {};")
        self.assertEqual(self.groups(own, '#include "h.h"\n' + PLAIN), [[0], [1]])

    def test_files_that_include_the_same_headers_share(self):
        for name in "gh":
            self.write(name + ".h", "#pragma once\n")
        g, h = (f'#include "{name}.h"\n' for name in "gh")
        own = self.unnamed("struct S {};")
        # The first two files clash, so the others can choose between two groups.
        self.assertEqual(self.groups(g + own, h + own, h, g), [[0, 3], [1, 2]])

    def test_a_file_that_says_so_is_compiled_by_itself(self):
        self.assertEqual(self.groups(PLAIN, "// Compiled by itself: for a reason.\n"), [[0]])

    def test_groups_are_bounded(self):
        self.assertEqual(len(self.groups(*["int a;\n"] * (unity_groups.FILES_MAX + 1))), 2)
        self.assertEqual(len(self.groups(*["\n" * (unity_groups.LINES_MAX - 10)] * 2)), 2)

    def test_a_group_is_a_file_that_includes_its_sources_and_is_rewritten_only_if_it_changes(self):
        paths = [self.write(f"{number}.cc", PLAIN if number else self.unnamed("int G() { return 2; }"))
                 for number in range(2)]
        rows = self.write("rows", ";".join(["target", self.root.name, *paths, paths[0] + ".removed"]) + "\n")
        out = os.path.join(self.root.name, "out")
        made = {name: os.path.join(out, name) for name in ("target_0.cc", "groups.cmake")}
        command = [sys.executable, "-B", unity_groups.__file__, self.root.name, rows, out]
        subprocess.run(command, check=True)
        with open(made["target_0.cc"], encoding="utf-8") as file:
            self.assertEqual(file.read(), '#include "0.cc"\n#include "1.cc"\n')
        with open(made["groups.cmake"], encoding="utf-8") as file:
            text = file.read()
            self.assertIn(f'target_sources(target PRIVATE "{made["target_0.cc"]}")', text)
            self.assertIn(f'"{paths[1]}" DIRECTORY', text)
        for path in made.values():
            os.utime(path, (1, 1))
        self.write("1.cc", PLAIN + "// changed\n")
        subprocess.run(command, check=True)
        self.assertEqual([os.stat(path).st_mtime for path in made.values()], [1, 1])
        with open(os.path.join(out, "groups.d"), encoding="utf-8") as file:
            self.assertIn(paths[1], file.read())

    def test_a_file_alone_is_no_group_and_old_groups_are_removed(self):
        path = self.write("0.cc", PLAIN)
        rows = self.write("rows", f"target;{self.root.name};{path}\n")
        out = os.path.join(self.root.name, "out")
        os.mkdir(out)
        self.write("out/target_0.cc", "")
        subprocess.run([sys.executable, "-B", unity_groups.__file__, self.root.name, rows, out], check=True)
        self.assertEqual(sorted(os.listdir(out)), ["groups.cmake", "groups.d"])
        self.assertEqual(os.path.getsize(os.path.join(out, "groups.cmake")), 0)


class TimesTest(unittest.TestCase):
    """The comparison of the times that tests took with the table of docs/testing.md."""

    PAGE = ("| Tests | Prove | Where | s |\n|---|---|---|---|\n| `a_*`, `b` | x | y | 10 |\n| `c_*` | x | y | < 1 |\n| `*` | x | y | 5 |\n\n"
            "| Step | Budget |\n|---|---|\n| dev: build | 1,000 |\n")

    def setUp(self):
        self.tables = test_times.tables(self.PAGE)

    def test_rows_are_read(self):
        self.assertEqual([row[0] for row in self.tables["Tests"]], ["`a_*`, `b`", "`c_*`", "`*`"])
        self.assertEqual(self.tables["Step"], [["dev: build", "1,000"]])

    def test_what_grew_is_named_with_its_seconds(self):
        def grown(**cpu):
            return test_times.grown(self.tables["Tests"], [test_times.Took(n, c, 0) for n, c in cpu.items()])
        self.assertEqual(grown(a_x=6, b=4, bb=6), [])
        self.assertEqual(grown(a_x=6, b=4, bb=100), [("`*`", 5, 100)])
        self.assertEqual(grown(a_x=9, b=5), [("`a_*`, `b`", 10, 14)])
        self.assertEqual(grown(c_x=2.5), [])
        self.assertEqual(grown(c_x=3.5), [("`c_*`", 1, 3.5)])

    def test_a_budget_has_a_margin(self):
        def over(cpu):
            return test_times.over_budget(self.tables["Step"], [test_times.Took("dev: build", cpu, 0)])
        self.assertEqual(over(1200), [])
        self.assertEqual(over(1300), [("dev: build", 1000, 1300)])
        self.assertEqual(test_times.over_budget(self.tables["Step"], []), [("dev: build", 1000, None)])

    def test_the_page_itself_is_read(self):
        with open(test_times.PAGE, encoding="utf-8") as page:
            tables = test_times.tables(page.read())
        self.assertGreater(len(tables["Tests"]), 10)
        self.assertGreater(len(tables["Step"]), 3)
        for row in tables["Step"]:
            self.assertGreater(test_times.seconds(row[1]), 0, row)


class CheckTest(unittest.TestCase):
    """scripts/check beside scripts that stand for its steps."""

    def setUp(self):
        root = tempfile.TemporaryDirectory()
        self.addCleanup(root.cleanup)
        self.folder = os.path.join(root.name, "scripts")
        os.mkdir(self.folder)
        self.script = shutil.copy(os.path.join(ROOT, "scripts", "check"), self.folder)
        for name, status in (("setup", 0), ("docs", 0), ("try_kill", 3), ("try_jax", 77), ("release", 0)):
            path = os.path.join(self.folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\necho {name} ran\nexit {status}\n")
            os.chmod(path, 0o755)

    def check(self, *steps):
        return subprocess.run(["bash", self.script, *steps], capture_output=True, text=True, check=False)

    def test_a_step_that_fails_is_named_and_the_others_run(self):
        done = self.check("docs", "try_kill", "try_jax", "archive")
        self.assertEqual(done.returncode, 1, done.stderr)
        table = done.stdout.split("== check\n")[1]
        self.assertEqual([row.split()[2:] for row in table.splitlines()],
                         [["docs", "passed"], ["try_kill", "FAILED"], ["try_jax", "skipped"], ["archive", "passed"]])
        self.assertIn("release ran", done.stdout)

    def test_what_is_skipped_fails_nothing_and_only_chosen_steps_run(self):
        done = self.check("try_jax", "docs")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("try_kill ran", done.stdout)

    def test_a_step_fails_if_one_of_its_commands_does(self):
        done = self.check("asan")
        self.assertEqual(done.returncode, 1)
        self.assertIn("asan              FAILED", done.stdout)

    def test_unknown_steps_are_refused_before_anything_runs(self):
        done = self.check("docs", "nosuch")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no step nosuch; the steps are format test asan", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_the_steps_are_listed(self):
        steps = self.check("--list").stdout.split()
        self.assertGreater(len(steps), 20)
        self.assertIn("try_kill", steps)


if __name__ == "__main__":
    unittest.main()
