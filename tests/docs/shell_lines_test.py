"""Tests the search for shell commands in a page, and that commands which their program would refuse
are found."""
import json
import pathlib

import pytest
import shell_lines

PAGE = """# Page with `tessera ps` in it

Words go on over lines: `tessera up
--workers 2` is one command, ``tessera `x` `` is none.
    and this line belongs to the paragraph: tessera no

    tessera put x.npy --mesh 2    # a comment --not-an-option
    A=1 B=2 tessera devices; tessera doctor | grep x >out.txt && tessera top &
    tessera explain f.txt \\
      --mesh 4

```sh
tessera run f.txt [--input FILE]...
unfinished 'quote
```

```python
tessera.connect()
    tessera.not_a_command()
```

1. A list:

       tessera rm 3

```
scripts/faults --rounds 1
```
"""


def found_on(page):
    return [(line.number, words) for line in shell_lines.lines_of(page) for words in line.commands()]


def test_commands_are_found_where_they_stand():
    assert found_on(PAGE) == [
        (1, ["tessera", "ps"]),
        (3, ["tessera", "up", "--workers", "2"]),
        (7, ["tessera", "put", "x.npy", "--mesh", "2"]),
        (8, ["tessera", "devices"]), (8, ["tessera", "doctor"]), (8, ["grep", "x"]),
        (8, ["tessera", "top"]),
        (9, ["tessera", "explain", "f.txt", "--mesh", "4"]),
        (13, ["tessera", "run", "f.txt", "--input", "FILE"]),
        (24, ["tessera", "rm", "3"]),
        (27, ["scripts/faults", "--rounds", "1"]),
    ]
    assert [line.number for line in shell_lines.lines_of(PAGE) if line.in_sentence] == [1, 3]


# A script with the same form of help as the real tessera.
TESSERA = """#!/bin/sh
case "$*" in
  --help) echo "  -a,--address HOST:PORT  Where.
  --json  One document." ;;
  "help up") echo "Usage: tessera up [OPTIONS]
  --workers N=1  How many; see --nothing.
                 --no-such-thing either." ;;
  "help join") echo "Usage: tessera join [OPTIONS] HOST
  --token TOKEN  Which." ;;
  "help rm") echo "Usage: tessera rm [OPTIONS] ARRAY..." ;;
  "help token list") echo "Usage: tessera token list [OPTIONS]" ;;
  *) exit 2 ;;
esac
"""
FILES = {
    "bin/tessera": TESSERA,
    "bin/tessera-worker": "#!/bin/sh\necho '  --name NAME  Which.'\n",
    "CMakePresets.json": json.dumps({"version": 3, "configurePresets": [{"name": "dev"}]}),
    "CMakeLists.txt": "add_custom_target(everything)\n",
    "bench/CMakeLists.txt": "tessera_binary(NAME bench_it OUTPUT bench-it SRCS it.cc)\n"
                            "tessera_binary(NAME s_${x} OUTPUT seed_${x})\n",
    "bench/it.cc": 'flags.Add("rounds"); // --json-file\n',
    "scripts/faults": "exec python3 tests/faults.py \"$@\"\n",
    "tests/faults.py": 'parser.add_argument("--rounds")\n',
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkout")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return shell_lines.Programs(root, pathlib.Path(root) / "bin")


def faults(programs, line):
    return [programs.fault(words) for words in shell_lines.Line(1, line).commands()]


@pytest.mark.parametrize("line", [
    "tessera up --workers 2",
    "tessera up --workers=2 --json &",
    "tessera --address localhost:1 --json up",
    "build/dev/bin/tessera join HOST --token TOKEN",
    "tessera join",  # in a sentence an argument may be left out
    "tessera rm 1 2 3",
    "tessera token list",
    "tessera COMMAND --help",
    "tessera --version",
    "docker compose run --rm cli up --workers 2",
    "docker compose exec coordinator tessera up --workers 2",
    "tessera-worker --name=w0",
    "cmake --preset dev && cmake --build --preset dev --target bench_it && ctest --preset dev",
    "cmake --build build/dev --target everything",
    "nice scripts/faults --rounds 1",
    "python3 tests/faults.py --rounds 1",
    "build/release/bin/bench-it --rounds 1",
    "build/dev/bin/seed_one",
    "other --whatever",
    "$TOOL --whatever",
])
def test_what_exists_is_no_fault(programs, line):
    assert set(faults(programs, line)) <= {""}


@pytest.mark.parametrize("line, says", [
    ("tessera up --wokers 2", "tessera up has no option --wokers"),
    ("tessera up --work 2", "tessera up has no option --work"),
    ("tessera up --token x", "tessera up has no option --token"),
    ("tessera up --nothing --no-such-thing", "tessera up has no option --nothing"),
    ("tessera --jsn up", "tessera has no option --jsn"),
    ("tessera down", "tessera has no command down"),
    ("tessera token", "tessera has no command token"),
    ("tessera join HOST OTHER", "tessera join does not take OTHER"),
    ("tessera up 2", "tessera up does not take 2"),
    ("docker compose run --rm cli down", "tessera has no command down"),
    ("tessera-worker --nme w0", "tessera-worker has no option --nme"),
    ("cmake --preset div", "there is no preset div"),
    ("cmake --build --preset dev --target bench_at", "there is no target bench_at"),
    ("scripts/fault --rounds 1", "there is no scripts/fault"),
    ("scripts/faults --round 1", "scripts/faults has no option --round"),
    ("python3 tests/faults.py --sounds 1", "tests/faults.py has no option --sounds"),
    ("build/release/bin/bench-it --round 1", "bench-it has no option --round"),
    ("build/release/bin/bench-at", "nothing makes bench-at"),
])
def test_what_does_not_exist_is_named(programs, line, says):
    found = "".join(faults(programs, line))
    assert found.startswith(says), found
