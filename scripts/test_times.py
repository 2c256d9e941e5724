#!/usr/bin/env python3
"""Adds up what scripts/test took, and compares it with what docs/testing.md says.

    scripts/test_times.py run NAME COMMAND...    runs a step, and writes down what it took
    scripts/test_times.py report                 prints the total, the slowest steps and what grew
    scripts/test_times.py check                  prints the report too, and fails if a step exceeds its budget

Steps and tests are lines of build/times.tsv and build/test_times/PRESET.tsv: name, processor seconds, elapsed
seconds, exit status. A step has a fifth field, the second in which it began: steps may overlap. Processor time is
compared rather than elapsed time, so that a busy machine fails nothing.
"""

import os
import re
import resource
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs", "testing.md")
STEPS = os.path.join(ROOT, "build", "times.tsv")
TESTS = os.path.join(ROOT, "build", "test_times")

# A group has grown if it takes this much more than its row says. The margin is needed because machines differ, and
# because a machine that is busy with other work has slower caches.
GROWN_FACTOR = 1.3
GROWN_SECONDS = 2.0
# A step exceeds its budget if it takes longer than the budget times this factor.
BUDGET_MARGIN = 1.25


class Took:
    """The time that one step or test took."""

    def __init__(self, name, cpu, elapsed, begin=0.0):
        self.name, self.cpu, self.elapsed, self.begin = name, cpu, elapsed, begin


def read_times(path):
    """Returns the rows of a file; for each name only the last row."""
    if not os.path.exists(path):
        return []
    found = {}
    with open(path, encoding="utf-8") as rows:
        for row in rows:
            name, cpu, elapsed, _, *begin = row.rstrip("\n").split("\t")
            found[name] = Took(name, float(cpu), float(elapsed), *map(float, begin))
    return list(found.values())


def run(name, command):
    """Runs `command` and appends the time that it took to the file of steps."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    elapsed = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    os.makedirs(os.path.dirname(STEPS), exist_ok=True)
    with open(STEPS, "a", encoding="utf-8") as rows:
        rows.write(f"{name}\t{cpu:.1f}\t{elapsed:.1f}\t{status}\t{begin:.1f}\n")
    return status if status >= 0 else 128 - status


def tables(text):
    """Maps the first cell of each table's head in a page to the rows of the table, which are lists of cells."""
    found, head = {}, None
    for line in text.split("\n"):
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if head is None:
            head = cells[0]
            found.setdefault(head, [])
        elif not set(line) <= set("|-: "):
            found[head].append(cells)
    return found


def patterns(cell):
    """Returns the names in a cell of the column Tests as one regular expression. * stands for any text."""
    names = re.findall(r"`([^`]+)`", cell)
    return re.compile("|".join(re.escape(name).replace(r"\*", ".*") for name in names) or r"(?!)")


def seconds(cell):
    """Returns the number in a cell such as `12` or `< 1`."""
    match = re.search(r"[\d.]+", cell.replace(",", ""))
    return float(match.group(0)) if match else 0.0


def grown(rows, took):
    """Returns (cell, before, now) for each group of tests that takes more time than its row says.

    A test belongs to the first row that names it."""
    found, left = [], list(took)
    for row in rows:
        pattern = patterns(row[0])
        now = sum(t.cpu for t in left if pattern.fullmatch(t.name))
        left = [t for t in left if not pattern.fullmatch(t.name)]
        before = seconds(row[3])
        if now > max(before * GROWN_FACTOR, before + GROWN_SECONDS):
            found.append((row[0], before, now))
    return found


def over_budget(rows, steps):
    """Returns (name, budget, now) for each step that takes more time than its budget and the margin. `now` is None for
    a step that was not run."""
    by_name = {step.name: step for step in steps}
    found = []
    for row in rows:
        budget = seconds(row[1])
        step = by_name.get(row[0])
        if not step:
            found.append((row[0], budget, None))
        elif step.cpu > budget * BUDGET_MARGIN:
            found.append((row[0], budget, step.cpu))
    return found


def report(all_steps):
    """Prints the report. Returns the steps that exceed their budgets, and those that were not run. The latter are
    printed only if `all_steps` says that all should have been run."""
    steps = read_times(STEPS)
    tests = []
    if os.path.isdir(TESTS):
        for file in sorted(os.listdir(TESTS)):
            tests += [(file.removesuffix(".tsv"), took) for took in read_times(os.path.join(TESTS, file))]
    with open(PAGE, encoding="utf-8") as page:
        rows = tables(page.read())
    total = sum(s.cpu for s in steps)
    elapsed = max((s.begin + s.elapsed for s in steps), default=0) - min((s.begin for s in steps), default=0)
    print(f"== time: {elapsed:.0f} s, of processors {total:.0f} s")
    for step in steps:
        print(f"   {step.elapsed:7.0f} s {step.cpu:7.0f} s of processors  {step.name}")
    print("   the slowest tests")
    for preset, took in sorted(tests, key=lambda t: -t[1].elapsed)[:10]:
        print(f"   {took.elapsed:7.1f} s {took.cpu:7.1f} s of processors  {took.name} ({preset})")
    for cell, before, now in grown(rows.get("Tests", []), [took for _, took in tests]):
        print(f"   grown: {cell} takes {now:.0f} s of processors; docs/testing.md says {before:.0f}")
    beyond = over_budget(rows.get("Step", []), steps)
    for name, budget, now in beyond:
        if now is None:
            if all_steps:
                print(f"   not run: {name}, which may take {budget:.0f} s of processors")
            continue
        print(f"   over budget: {name} took {now:.0f} s of processors, and may take {budget:.0f}; make it"
              " faster, or move tests to scripts/check (docs/testing.md)")
    return beyond


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "run":
        sys.exit(run(sys.argv[2], sys.argv[3:]))
    if sys.argv[1:] not in (["report"], ["check"]):
        sys.exit(__doc__)
    checks = sys.argv[1] == "check"
    beyond = report(all_steps=checks)
    sys.exit(1 if beyond and checks else 0)


if __name__ == "__main__":
    main()
