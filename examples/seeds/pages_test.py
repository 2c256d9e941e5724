"""Proves that the pages of docs/seeds are true. Each code block of a page must be a part of a program in this
folder, or a part of what the program prints. Everything that a program prints must be on its page. The output of
JAX's programs is recorded by scripts/record_seeds.py."""
import json
import os
import pathlib
import re
import subprocess
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parent
PAGES = HERE.parent.parent / "docs/seeds"
SEEDS = ["varying_axes", "gather_scatter", "vmap_and_sharding", "pmap"]
RECORDED = json.loads((HERE / "recorded.json").read_text())
_BLOCK = re.compile(r"(?:<!-- (\S+?)( prints)? -->\n)?```(\w*)\n(.*?)```\n", re.DOTALL)


def one_spaced(text):
    """Returns the text with all white space alike, because a page may break a line that is too long for it."""
    return " ".join(text.split())


def holds(program, part):
    """Returns whether consecutive lines of the program are the part, at any indentation."""
    lines, wanted = program.split("\n"), part.rstrip("\n")
    size = wanted.count("\n") + 1
    return any(textwrap.dedent("\n".join(lines[i:i + size])).rstrip("\n") == wanted
               for i in range(len(lines) - size + 1))


def output_of(name):
    if name.endswith(".py"):
        return "\n".join(RECORDED["programs"][name[:-3]]["prints"])
    binary = pathlib.Path(os.environ["TESSERA_BIN_DIR"]) / ("seed_" + name[:-3])
    env = {k: v for k, v in os.environ.items() if k != "TESSERA_ADDRESS"}
    return subprocess.run([binary], env=env, check=True, capture_output=True, text=True, timeout=100).stdout


@pytest.mark.parametrize("seed", SEEDS)
def test_a_page_shows_what_its_programs_say(seed):
    page = (PAGES / f"{seed}.md").read_text()
    blocks = _BLOCK.findall(page)
    assert page.count("```") == 2 * len(blocks)
    for name in f"{seed}.cc", f"{seed}.py":
        code = [text for file, prints, _, text in blocks if file == name and not prints]
        shown = [text for file, prints, _, text in blocks if file == name and prints]
        assert code and shown, name
        for part in code:
            assert holds((HERE / name).read_text(), part), f"{name} has no\n{part}"
        output = output_of(name)
        for part in shown:
            assert one_spaced(part) in one_spaced(output), f"{name} does not print\n{part}\nbut\n{output}"
        on_page = "\n".join(one_spaced(part) for part in shown)
        for line in output.split("\n"):
            assert one_spaced(line) in on_page, f"{seed}.md lacks what {name} prints: {line}"
    assert {file for file, *_ in blocks} == {f"{seed}.cc", f"{seed}.py"}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_jax_says_is_of_the_program_as_it_is(seed):
    program = "\n".join(RECORDED["programs"][seed]["program"])
    assert program == (HERE / f"{seed}.py").read_text(), "run scripts/record_seeds.py"


def test_every_page_is_checked():
    pages = {page.stem for page in PAGES.glob("*.md")} - {"README"}
    assert pages == set(SEEDS) == set(RECORDED["programs"])
    index = (PAGES / "README.md").read_text()
    assert all(f"({seed}.md)" in index for seed in SEEDS)


def test_a_part_is_found_as_it_stands():
    program = "if x:\n    a\n      b\n\nc\n"
    assert holds(program, "a\n  b\n")
    assert not holds(program, "a\nb\n")
    assert not holds(program, "a\nc\n")
