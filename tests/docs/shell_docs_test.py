"""Checks that the shell commands of the documentation name programs, subcommands and options that
exist. Commands that do no harm and take no time are also run on a cluster.

grpcurl_docs_test.py runs the commands of grpcurl, tests/service/readme_test.py those of README, and
tests/python/jax_test.py those of docs/from_jax.md.
"""
import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/service"))

import daemons  # noqa: E402
import shell_lines  # noqa: E402

# These subcommands are run exactly as the page shows them, with an administrator's token.
HARMLESS = {("token", "create"), ("token", "list"), ("token", "revoke"), ("devices",), ("doctor",),
            ("workers",), ("ps",), ("arrays",), ("version",)}
# The decisions are records of the past, and docs/cli.md is printed by the programs themselves.
LEFT_OUT = re.compile(r"^docs/(decisions/|cli\.md$)")


def pages():
    found = [ROOT / "README.md"]
    for folder in shell_lines.source_folders(ROOT):
        found += sorted(p for p in folder.rglob("*.md") if "node_modules" not in p.parts)
    names = {str(p.relative_to(ROOT)): p for p in found}
    return {n: shell_lines.lines_of(p.read_text()) for n, p in names.items() if not LEFT_OUT.match(n)}


PAGES = pages()
PROGRAMS = shell_lines.Programs(ROOT, daemons.bin_dir())


def test_the_documentation_has_commands():
    names = [words[0] for lines in PAGES.values() for line in lines for words in line.commands()]
    for name, least in (("tessera", 60), ("tessera-worker", 2), ("cmake", 10), ("scripts/faults", 1)):
        assert names.count(name) >= least, name
    assert sum(name.startswith("build/release/bin/bench-") for name in names) >= 10


@pytest.mark.parametrize("page", PAGES)
def test_what_the_commands_name_exists_on(page):
    wrong = []
    for line in PAGES[page]:
        for words in line.commands():
            if fault := PROGRAMS.fault(words, line.in_sentence):
                wrong.append(f"{page}:{line.number}: {line.text}\n    {fault}")
    assert not wrong, "\n".join(wrong)


# The sources of options that neither the daemons nor tessera have.
OPTION_SOURCES = ("scripts/*", "bench/*.cc", "bench/*.py", "deploy/**/*", "examples/**/*.cc", "tests/*.py",
                  "tests/service/*.py")


def test_the_options_that_sentences_name_exist():
    """An option between backquotes without a program must be an option of some program of ours."""
    known = "".join(PROGRAMS.help_of(daemon) for daemon in shell_lines.DAEMONS)
    known += (ROOT / "docs/cli.md").read_text()  # client_cli_docs_test compares it with the program
    known += "".join(p.read_text(errors="replace") for pattern in OPTION_SOURCES
                     for p in sorted(ROOT.glob(pattern)) if p.is_file())
    options = [(f"{page}:{line.number}", option) for page, lines in PAGES.items() for line in lines
               if line.in_sentence and line.text.startswith("--")
               for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", line.text)]
    assert len(options) > 100
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", known))
    assert [where for where in options if where[1] not in named] == []


def harmless_commands(lines):
    """Yields the commands of blocks that can be run exactly as the page shows them."""
    for line in lines:
        for words in line.commands() if not line.in_sentence else ():
            if words[0] == "tessera" and PROGRAMS.command_of(words[1:4]) in HARMLESS:
                yield line, words


def test_the_harmless_commands_work():
    ran = set()
    with daemons.Cluster(secure=True) as cluster:
        env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        env.update(TESSERA_ADDRESS=cluster.address, TESSERA_CA_FILE=str(cluster.ca),
                   TESSERA_TOKEN=cluster.token)
        for page, lines in PAGES.items():
            for line, words in harmless_commands(lines):
                done = subprocess.run([daemons.bin_dir() / "tessera", *words[1:]], env=env, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                                      check=False)
                assert done.returncode == 0, f"{page}:{line.number}: {line.text}\n{done.stdout}"
                ran.add(PROGRAMS.command_of(words[1:4]))
    assert {("token", "create"), ("token", "list"), ("token", "revoke"), ("devices",)} <= ran
