#!/usr/bin/env python3
"""Deletes the rules of the ops one at a time and says what notices each deletion.

  scripts/mutate_rules.py [build/mutations] [--ops PATTERN] [--rules jvp,batch] [--jobs N] [--list]

A rule is a designated initialiser of an op (`.jvp = DotJvp`), an assignment in a family's constructor
(`d.batch = BatchReduce;`), or an entry of an elementwise op's rules ({Chain<F>, Adjoints<G>, States}).
Each rule is deleted from a copy of its file. The constructor of a family may be in a header; then all files that
define ops by it are compiled. If the copy does not compile, the compiler has noticed the deletion. If the copy
compiles, it is linked into the tests of the ops, in a folder of its own, and one of the tests must fail by the op's
name. The exit status is 1 when a deletion goes unnoticed; the tree and the build are not touched.

The script is slow (a compilation and a few links for each deletion), so run it only over the ops that changed.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELDS = ("num_operands|regions|repeats_region|attrs|lowering|infer|factors|sharding|varying|jvp|"
          "jvp_emits_primals|transpose|batch|partition|localize|partial_eval|data_flow|rule_params|cost|"
          "fixed_sharding|scalar|index_map|eval|eval_shards|reduce|collective|family")
AUTODIFF = ("jvp", "transpose", "varying")
# The tests. The tests that notice most mutations come first. BY_OP has the tests whose cases are named for the ops.
BY_OP = ["all_ops_test", "ops_derivatives_test", "ops_batch_test", "ops_sharding_test"]
TESTS = [*BY_OP, "ir_transform_transform_test", "ir_transform_transcripts_test", "ir_{file}_test",
         "ir_ops_data_movement_test",
         "server_planner_planner_test"]


def blanked(text):
    """Returns the text with comments and the contents of strings replaced by blanks, so that all offsets stay."""
    def blank(m):
        s = m.group()
        return s if s[0] not in '/"' else s[0] + " " * (len(s) - 2) + (s[-1] if s[0] == '"' else " ")
    return re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"', blank, text)


def end_of(text, at):
    """Returns the end of the expression that begins at `at`: the next comma, bracket or semicolon on its level."""
    depth = 0
    for i in range(at, len(text)):
        c = text[i]
        if c in "([{<" and not (c == "<" and text[i - 1] == " "):
            depth += 1
        elif c in ")]}>" and not (c == ">" and text[i - 1] in " -"):
            if depth == 0:
                return i
            depth -= 1
        elif c in ",;" and depth == 0:
            return i
    raise ValueError("an expression does not end")


class Mutation:
    def __init__(self, path, text, begin, end, op, field, replacement=""):
        self.path, self.op, self.field = path, op, field
        self.line = text.count("\n", 0, begin) + 1
        self.deleted = " ".join(text[begin:end].split()).rstrip(",")
        self.text = text[:begin] + replacement + text[end:]

    def __str__(self):
        return f"{self.path.name}:{self.line} {self.op}: {self.deleted}"


def wire_name(text, begin, end):
    m = re.search(r'\.name = "(\w+)"|[({]\s*"(\w+)"', text[begin:end])
    return (m.group(1) or m.group(2)) if m else None


def mutations_of(path):
    text = path.read_text()
    code = blanked(text)
    out = []
    # Find the paragraphs: an op's constant, or a constructor of an op or of a family.
    heads = [m for m in re.finditer(r"^(?:const(?:expr)? OpDef k(\w+)|consteval OpDef (\w+))", code, re.M)]
    for head in heads:
        if head.group(1):
            end = code.index(";\n", head.end())
        else:
            end = re.compile(r"^}", re.M).search(code, head.end()).start()
        op = wire_name(text, head.start(), end) if head.group(1) else None
        op = op or f"({head.group(1) or head.group(2)})"
        for m in re.compile(rf"\.({FIELDS}) = ").finditer(code, head.end(), end):
            stop = end_of(code, m.end())
            if code[m.start() - 1] in " {(\n":  # .field = value inside braces
                stop += code[stop] == ","
                out.append(Mutation(path, text, m.start(), stop, op, m.group(1)))
            else:                               # d.field = value;
                begin = code.rindex("\n", 0, m.start()) + 1
                out.append(Mutation(path, text, begin, code.index(";", m.end()) + 1, op, m.group(1)))
        # The autodiff rules of an elementwise op are in its last braces.
        call = re.compile(r"(?:Unary|Binary)<|Elementwise\(").search(code, head.end(), end)
        braces = [m for m in re.compile(r"{(?=[A-Z])(?!Eval)").finditer(code, call.end(), end)
                  if code[:m.start()].rstrip()[-1] == ","] if call else []
        if not braces:
            continue
        call = braces[0]
        at = call.end()
        for field in AUTODIFF:
            stop = end_of(code, at)
            default = {"jvp": "{}", "transpose": "kNotLinear", "varying": "Derived{}"}[field]
            out.append(Mutation(path, text, at, stop, op, field, default))
            if field == "transpose":
                for m in re.finditer(r"(?<=[<,])\s*(\w+)(?=[,>])", code[at:stop]):
                    if m.group(1) != "nullptr":
                        out.append(Mutation(path, text, at + m.start(1), at + m.end(1), op, field,
                                            "nullptr"))
            if code[stop] != ",":
                break
            at = stop + 1
    return out


def rule_files(pattern):
    """Returns the sources and headers of the ops whose names, without their extensions, match the pattern."""
    return [path for path in sorted((ROOT / "ir/ops").rglob(f"{pattern}.*"))
            if path.suffix in (".cc", ".h") and not path.name.endswith("_test.cc")]


def users_of(header):
    """Returns the files that define ops by the constructors of families in this header."""
    families = re.findall(r"^consteval OpDef (\w+)", blanked(header.read_text()), re.M)
    use = re.compile(rf"(?:OpDef \w+ =|return)\s+(?:{'|'.join(families)})[(<]")
    return [path for path in rule_files("*") if path.suffix == ".cc" and use.search(blanked(path.read_text()))]


class Build:
    """Compiles a changed file and links it before the library that contains the unchanged file. If the file is a
    header, compiles the files that define ops by it.

    The output is put into a folder of the caller, so several threads may use one Build."""

    def __init__(self, folder):
        self.folder = folder
        self.links = {}
        self.linking = threading.Lock()  # held while ninja builds the unchanged tests
        if not (folder / "build.ninja").exists():
            # These options make one object of each file and put it into an archive. The changed file is compiled with
            # -O0, which clang refuses together with a precompiled header that was compiled with -O1.
            subprocess.run(["cmake", "--preset", "dev", "-B", str(folder), "-DTESSERA_UNITY=OFF",
                            "-DTESSERA_SHARED_LIBS=OFF", "-DTESSERA_PCH=OFF"], cwd=ROOT, check=True,
                           stdout=subprocess.DEVNULL)
        self.targets = set(re.findall(r"^(\w+): phony", self.ask("targets", "all"), re.M))

    def ask(self, tool, *args):
        return subprocess.run(["ninja", "-t", tool, *args], cwd=self.folder, check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def command(self, target):
        return self.ask("commands", target).strip().splitlines()[-1]

    def object_of(self, path):
        library = "tessera_ir_regions" if path.parent.name == "regions" else "tessera_ir_ops"
        return f"ir/CMakeFiles/{library}.dir/{path.relative_to(ROOT / 'ir')}.o"

    def compile(self, mutation, scratch):
        """Compiles the changed file to objects in the folder `scratch`. Returns the error, or None."""
        if mutation.path.suffix != ".h":
            source = scratch / mutation.path.name
            source.write_text(mutation.text)
            return self.compile_file(mutation.path, source, scratch / "changed.o")
        header = scratch / "include" / mutation.path.relative_to(ROOT)
        header.parent.mkdir(parents=True)
        header.write_text(mutation.text)
        for i, path in enumerate(users_of(mutation.path)):
            # The folder after -iquote is searched first, so the changed header stands in for the unchanged one.
            error = self.compile_file(path, path, scratch / f"changed{i}.o", f"-iquote {scratch}/include")
            if error is not None:
                return error
        return None

    def compile_file(self, path, source, target, option=""):
        """Compiles `source` with the options of the file `path`. Returns the error, or None."""
        command = self.command(self.object_of(path))
        command = re.sub(r"-o \S+\.o -c \S+", f"{option} -o {target} -c {source}", command)
        # A mutation that only causes a warning does not count as noticed, so warnings are turned off.
        command = re.sub(r"\S*ccache |-M[DF]( \S+\.d)?|-MT \S+|-Werror|-Wall|-Wextra", "", command)
        done = subprocess.run(f"{command} -O0", shell=True, cwd=self.folder,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return None
        if "error:" not in done.stderr:
            raise RuntimeError(f"the compiler cannot be run:\n{done.stderr}")
        said = re.search(r'"(op [^"]*)"|(op (?:has|with) no [^\']*)', done.stderr)
        error = re.search(r"error: (.*)", done.stderr)
        return (said.group(1) or said.group(2)) if said else error.group(1)

    def link(self, test, scratch):
        """Links the test with the changed objects. Returns the command that runs it, or None if this build does not have
        the test."""
        if test not in self.targets:
            return None
        with self.linking:
            if test not in self.links:
                subprocess.run(["ninja", test], cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
                self.links[test] = self.command(test)
        binary = scratch / test
        changed = " ".join(map(str, scratch.glob("changed*.o")))
        line = re.sub(r" -o \S+", f" {changed} -o {binary}", self.links[test], count=1)
        subprocess.run(line, shell=True, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        return [binary, *self.sources_of(test)]

    def sources_of(self, test):
        """Returns the options with which the executable of a folder runs only this test. They are read from the script
        that has the name of the test."""
        scripts = [path for path in self.folder.glob(f"**/{test}") if path.read_bytes()[:2] == b"#!"]
        return re.findall(r"--sources=[^']*", scripts[0].read_text()) if scripts else []


def verdict_on(build, mutation):
    """Returns what notices the deletion: the compiler or a test. Returns None if nothing does."""
    with tempfile.TemporaryDirectory(prefix="mutate_rules.") as folder:
        scratch = pathlib.Path(folder)
        error = build.compile(mutation, scratch)
        if error is not None:
            return f"does not compile: {error}"
        tests = tests_of(mutation.path)
        linked = {}
        # Whole tests take up to a minute, so the samples of the op alone are tried first.
        one_op = [(test, f"*/{mutation.op}") for test in BY_OP if not mutation.op.startswith("(")]
        for test, filter_ in one_op + [(test, "*") for test in tests]:
            if test not in linked:
                linked[test] = build.link(test, scratch)
            failed = run(linked[test], filter_) if linked[test] else None
            if failed:
                return failed
    return None


def check_unchanged(build, paths):
    """Ends the script if a file does not compile as it is, or a test fails as it is."""
    for path in paths:
        with tempfile.TemporaryDirectory(prefix="mutate_rules.") as folder:
            error = build.compile(Mutation(path, path.read_text(), 0, 0, "(nothing)", ""), pathlib.Path(folder))
        if error is not None:
            sys.exit(f"{path.name} does not compile as it is: {error}")
    for test in sorted({test for path in paths for test in tests_of(path)}):
        with tempfile.TemporaryDirectory(prefix="mutate_rules.") as folder:
            command = build.link(test, pathlib.Path(folder))
            failed = run(command, "*") if command else None
        if failed:
            sys.exit(f"{test} fails as it is: {failed}")


def tests_of(path):
    """Returns the names of the tests that may notice a change of the file."""
    name = "_".join(path.relative_to(ROOT / "ir").with_suffix("").parts)
    return [test.format(file=name) for test in TESTS]


def run(command, filter_):
    """Returns the name of the test that fails, or None."""
    name = command[0].name
    try:
        done = subprocess.run([*command, f"--gtest_filter={filter_}"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=300)
    except subprocess.TimeoutExpired:
        return f"{name} does not end"
    failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", done.stdout, re.M)
    if failed:
        return failed[0] if len(set(failed)) == 1 else f"{failed[0]} and {len(set(failed)) - 1} more"
    if done.returncode not in (0, 77):  # 77: all tests of the filter were skipped
        started = re.findall(r"^\[ RUN      \] (\S+)", done.stdout, re.M)
        return f"{started[-1] if started else name} (stops the process)"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/mutations")
    parser.add_argument("--ops", default="*", help="wire names of ops, as a pattern; a family is written as (Movement)")
    parser.add_argument("--rules", default="", help="names of the rules' fields, separated by commas")
    parser.add_argument("--files", default="*", help="pattern of the files' names in ir/ops, without the extension")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many deletions are tried at once")
    parser.add_argument("--list", action="store_true", help="only list the rules that would be deleted")
    args = parser.parse_args()
    rules = set(filter(None, args.rules.split(",")))
    chosen = [m for path in rule_files(args.files) for m in mutations_of(path)
              if fnmatch.fnmatch(m.op, args.ops) and (not rules or m.field in rules)]
    if args.list:
        print("\n".join(map(str, chosen)))
        return
    if not chosen:
        sys.exit("no rule has this name")
    build = Build((ROOT / args.build).resolve())
    unnoticed = []
    check_unchanged(build, sorted({m.path for m in chosen}))
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        verdicts = pool.map(lambda m: verdict_on(build, m), chosen)
        for m, verdict in zip(chosen, verdicts):
            if verdict is None:
                unnoticed.append(m)
            print(f"{m}\n    {verdict or 'UNNOTICED'}", flush=True)
    print(f"{len(chosen)} deletions, {len(unnoticed)} unnoticed")
    sys.exit(bool(unnoticed))


if __name__ == "__main__":
    main()
