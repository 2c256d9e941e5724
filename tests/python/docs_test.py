"""Tests the docstrings of the Python packages, their examples, and the pages that are made from them: docs/python.md
and docs/python_jax.md. Tests the table of variables in docs/jax.md.

Each example is run on real daemons, in a namespace with np, tessera and a client. The output is compared with the
comments behind the prints of the example, in which "..." stands for any text.
"""
import contextlib
import importlib.util
import inspect
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tessera

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import python_docs  # noqa: E402

PACKAGES = {package.name: package for package in python_docs.PACKAGES}
HAS_JAX = importlib.util.find_spec("jax") is not None
PLUGIN = pathlib.Path(os.environ.get("TESSERA_PJRT_PLUGIN") or ROOT / "build/dev/lib/pjrt_plugin_tessera.so")


@pytest.fixture(params=PACKAGES)
def package(request):
    return PACKAGES[request.param]


def test_every_public_name_is_described(package):
    assert python_docs.faults_of(package) == []


def test_the_page_is_made_from_the_docstrings(package):
    page = (ROOT / package.page).read_text(encoding="utf-8")
    assert page == python_docs.page_of(package), "run scripts/python_docs.py"


def test_help_shows_what_the_page_says():
    """The script reads the sources. Python must find the same texts in the package that is imported."""
    reader, items = python_docs.items_of(PACKAGES["tessera"])
    assert inspect.getdoc(tessera) == reader.text and tessera.__all__ == reader.names
    for item in python_docs.all_items(items):
        found = tessera
        for part in item.name.split("."):
            found = getattr(found, part)
        assert inspect.getdoc(found) == item.text, item.name


# ---- What the script reports. ----

SOURCE = '''
"""A package."""
from few.inner import Box
__all__ = ["Box", "new"]


def new(size, *, color="red"):
    """Makes a box.

    Args:
        size (int): Its size.
    """


def hidden():
    pass
'''
INNER = '''
class _Base:
    @property
    def area(self) -> int:
        return 1


class Box(_Base):
    """A box.

    Example:
        Box(
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._lid = None

    def open(self) -> bool:
        """Opens the box."""
        return True
'''


def test_what_is_missing_is_reported(tmp_path):
    (tmp_path / "__init__.py").write_text(SOURCE)
    (tmp_path / "inner.py").write_text(INNER)
    few = python_docs.Package("few", str(tmp_path), "few.md", "", (("All", ("Box", "old")),), ("Box.open",))
    found = python_docs.faults_of(few)
    assert [re.sub(r"is not Python: .*", "is not Python", fault) for fault in found] == [
        "few.new is in __all__, and in no group of scripts/python_docs.py",
        "few.old is in a group of scripts/python_docs.py, and not in __all__",
        "few.Box.size is missing in the section Attributes",
        "an example of few.Box is not Python",
        "few.Box.open has no section Returns or Yields",
        "few.Box.open has no example",
        "few.Box.area has no docstring",
    ]
    few = python_docs.Package("few", str(tmp_path), "few.md", "", (("All", ("Box", "new")),), ("new",))
    assert {"few.new has the parameters ['size', 'color']; its docstring has ['size']",
            "few.new has no example"} <= set(python_docs.faults_of(few))
    (tmp_path / "inner.py").write_text(INNER.replace('"""A box.\n\n    Example:\n        Box(\n    """', "pass"))
    assert "few.Box has no docstring" in python_docs.faults_of(few)


# ---- The examples. ----


def examples_of(package):
    """Returns the name and the code of each example. Examples of one docstring are numbered."""
    reader, items = python_docs.items_of(package)
    own = [block for kind, block in python_docs.blocks_of(reader.text) if kind == "Example"]
    found = [(package.name, own)] + [(item.name, item.examples()) for item in python_docs.all_items(items)]
    return [(f"{name} {number}" if number > 1 else name, code)
            for name, codes in found for number, code in enumerate(codes, 1)]


def expected_output(code):
    """Returns a pattern of what the example prints: the comments behind its prints, and any lines for other prints."""
    pattern = ""
    for line in code.split("\n"):
        if re.match(r"\s*print\(", line):
            shown = re.search(r"\)  # (.*)$", line)
            pattern += ".*".join(map(re.escape, shown[1].split("..."))) + r"\n" if shown else "(.*\n)*"
        elif "visualize(" in line:
            pattern += "(.*\n)+"
    return pattern


def check_output(code, printed):
    pattern = expected_output(code)
    assert re.fullmatch(pattern, printed), f"the example printed\n{printed}\nand should have printed\n{pattern}"


def test_the_output_of_examples_is_compared():
    code = 'print(1)  # 1\nif x:\n    print(x)\nprint("a b")  # a ...'
    for printed in ("1\na b\n", "1\nx\ny\na c\n"):
        check_output(code, printed)
    for printed in ("2\na b\n", "1\n", "1\na b\nx\n"):
        with pytest.raises(AssertionError, match="should have printed"):
            check_output(code, printed)


EXAMPLES = examples_of(PACKAGES["tessera"])


@pytest.mark.parametrize("code", [code for _, code in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_the_example_works_of(code, cluster, client):
    if re.search(r"\bjax\b|\.jit\b", code) and not HAS_JAX:
        pytest.skip("jax is not installed for this Python")
    printed = io.StringIO()
    names = {"np": np, "tessera": tessera, "client": client}
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace("127.0.0.1:8470", cluster.address), "<example>", "exec"), names)
    check_output(code, printed.getvalue())


# Runs examples in one process, because JAX looks for devices once in a process. The package is on PYTHONPATH and not
# installed, so the program registers the plugin.
RUN_EXAMPLES = """
import contextlib, io, json, sys
import tessera_jax
tessera_jax.initialize()
printed = []
for name, code in json.load(sys.stdin):
    print(name, file=sys.stderr)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, name, "exec"), {})
    printed.append(out.getvalue())
json.dump(printed, sys.stdout)
"""


def test_the_examples_of_the_plugin_work(cluster, tmp_path):
    if not HAS_JAX:
        pytest.skip("jax is not installed for this Python")
    if not PLUGIN.is_file():
        pytest.skip(f"{PLUGIN} is not built")
    examples = examples_of(PACKAGES["tessera_jax"])
    assert len(examples) >= 7
    paths = [str(ROOT / "client/python/tessera_jax"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "TESSERA_ADDRESS": cluster.address, "TESSERA_PJRT_PLUGIN": str(PLUGIN),
           "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for name in ("JAX_PLATFORMS", "TESSERA_EMBEDDED"):
        env.pop(name, None)
    done = subprocess.run([sys.executable, "-c", RUN_EXAMPLES], input=json.dumps(examples), env=env, cwd=tmp_path,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for (_, code), printed in zip(examples, json.loads(done.stdout)):
        check_output(code, printed)


# ---- The variables of docs/jax.md. ----

def load_variables():
    """Returns the module with the table of variables. The package itself needs more modules than are installed here."""
    path = ROOT / "client/python/tessera_jax/tessera_jax/variables.py"
    spec = importlib.util.spec_from_file_location("variables", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VARIABLES = load_variables()
# The code that runs in the process of a JAX program: the plugin, the package, the session, and the embedded cluster.
SOURCES = ("client/pjrt/*.cc", "client/pjrt/*.h", "client/python/tessera_jax/**/*.py", "client/trace/session.cc",
           "embed/embed.cc")
# Variables that these sources read and that do not concern JAX programs, with the reason.
NOT_OF_JAX = {"TESSERA_FILES_DIR": "JAX programs neither save nor load arrays"}


def variables_in(text):
    """Returns the variables that a source reads: their names stand between quotes, unlike those of macros."""
    return set(re.findall(r"""["'](TESSERA_[A-Z0-9_]+)["']""", text))


def test_the_table_has_a_row_for_every_variable():
    read = set()
    for pattern in SOURCES:
        paths = list(ROOT.glob(pattern))
        assert paths, pattern
        read = read.union(*(variables_in(path.read_text(encoding="utf-8")) for path in paths))
    assert sorted(VARIABLES.OF_JAX) == sorted(read - set(NOT_OF_JAX))
    assert set(NOT_OF_JAX) <= read, "a variable that is left out is no longer read"


def test_the_page_has_the_table():
    page = (ROOT / "docs/jax.md").read_text(encoding="utf-8")
    section = page.partition("\n## Environment variables\n")[2].partition("\n## ")[0]
    assert VARIABLES.markdown() in section


def test_the_variables_of_other_programs_are_known():
    """None of them is to be taken for a mistake."""
    page = (ROOT / "docs/env.md").read_text(encoding="utf-8")
    read = set(re.findall(r"^\| `(TESSERA_\w+)` \|", page, re.MULTILINE))
    assert len(read) > 50
    mentioned = set()
    for folder in ("base", "bench", "client", "deploy", "embed", "ir", "scripts", "server", "tests", "worker", ".ci"):
        for path in (ROOT / folder).rglob("*"):
            if {"tessera_jax", "golden", "fuzz", "stablehlo"} & set(path.parts) or not path.is_file():
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            mentioned.update(re.findall(r"\bTESSERA_[A-Z0-9_]+", text))
            if path.suffix in (".py", ".cc", ".h"):
                read.update(re.findall(r"""(?:getenv\(|environ\[|environ\.(?:get|pop)\(|Env\(\)\(|\bOpen\()"""
                                       r"""["'](TESSERA_[A-Z0-9_]+)""", text))
    assert sorted(read - VARIABLES.KNOWN) == []
    # The others are read by shells, or in ways that the expression above does not find.
    assert sorted(VARIABLES.KNOWN - read - mentioned) == []


def test_misspelt_variables_are_found_with_the_nearest_name():
    found = VARIABLES.unknown([
        "TESSERA_ADRESS", "TESSERA_ADDRESS", "TESSERA_LOG_LEVELS", "TESSERA_CA", "TESSERA_QUITE_DIFFERENT", "TESSERA",
        "PATH", "tessera_address", "TESSERA_SERVICE_HOST", "TESSERA_SERVICE_PORT_GRPC", "TESSERA_PORT",
        "TESSERA_COORDINATOR_PORT_8470_TCP_ADDR"])
    assert found == [("TESSERA_ADRESS", "TESSERA_ADDRESS"), ("TESSERA_CA", "TESSERA_CA_FILE"),
                     ("TESSERA_LOG_LEVELS", "TESSERA_LOG_LEVEL"), ("TESSERA_QUITE_DIFFERENT", None)]


def test_variables_are_told_from_macros():
    source = """TESSERA_RETURN_IF_ERROR(f()); std::getenv("TESSERA_ADDRESS"); "set TESSERA_TOKEN to it";
                os.environ['TESSERA_DUMP']"""
    assert variables_in(source) == {"TESSERA_ADDRESS", "TESSERA_DUMP"}
