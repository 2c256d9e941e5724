"""Breaks things on real processes and measures what the service promises for each fault.

    promises.py                  every fault, 20 rounds of each
    promises.py --rounds 1       the quick form
    promises.py --only 2,16      only these faults; --list names all faults
    promises.py library          the faults of a set of their own: long library calls that end early
    promises.py replicas         another set: executors that die while others have their arrays too

A round of a fault breaks something and measures the promises that hold for it. One line per round
shows each bound beside the measured value. A table at the end shows the worst value over all
rounds:

    fault | bound | measured, worst | passed k of N

The exit status is 1 if a round broke a promise, and 130 on ^C. In either case no process that was
started is left. The faults are in promised_faults/. The binaries are taken from TESSERA_BIN_DIR if
that is set, and otherwise from build/dev/bin. suspicion.py measures in the same form.
"""
import argparse
import contextlib
import signal
import sys
import time
import traceback

import daemons
import promised_faults

LINES_SHOWN = 12  # lines of an exception's trace


class Row:
    """One promise of one fault, over all rounds."""

    def __init__(self, fault, what, bound):
        self.fault, self.what, self.bound = fault, what, bound
        self.passed, self.worst = 0, None

    def add(self, measured, unit, holds):
        self.passed += holds
        if self.worst is None or measured > self.worst[0]:
            self.worst = (measured, unit)

    def shown(self):
        """Returns the worst value as text."""
        measured, unit = self.worst
        return f"{measured:.2f} {unit}" if unit else f"{measured}"


class Round:
    """Measures one round of a fault."""

    def __init__(self, fault, rows):
        self._fault, self._rows = fault, rows
        self.parts, self.failures = [], []

    def took(self, what, bound, seconds):
        """Records a promise that takes `seconds` and must not take more than `bound`. None means
        that the event never came."""
        measured = float("inf") if seconds is None else seconds
        self._add(what, f"{bound:g} s", measured, "s", measured <= bound, f"{measured:.2f} s")

    def none(self, what, wrong):
        """Records a promise that nothing goes wrong. `wrong` lists everything that went wrong."""
        wrong = [str(w) for w in wrong]
        told = f"{len(wrong)}: {wrong[0][:300]}" if wrong else "0"
        self._add(what, "0", len(wrong), "", not wrong, told)

    def holds(self, what, condition, otherwise=""):
        """Like `none`, for one condition that must hold."""
        self.none(what, [] if condition else [otherwise or "it does not"])

    def _add(self, what, bound, measured, unit, holds, told):
        row = self._rows.setdefault((self._fault.number, what), Row(self._fault, what, bound))
        row.add(measured, unit, holds)
        self.parts.append(f"{what} {told} (bound {bound})")
        if not holds:
            self.failures.append(self.parts[-1])


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def unwind(*_):
    """Ends the program as ^C does. Later signals are ignored, so that nothing interrupts the
    cleaning up."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def run_round(label, result, act):
    """Runs the round that `act` makes, and prints what it measured. An exception breaks a promise."""
    start = time.monotonic()
    try:
        act()
    except promised_faults.Skip:
        raise
    except Exception as error:  # a broken promise may lead to any exception
        where = traceback.format_exc().splitlines()[-LINES_SHOWN:]
        result.none("goes through", [f"{type(error).__name__}: {error}"])
        print("\n".join("    " + line for line in where))
    verdict = "FAILED" if result.failures else "ok"
    print(f"{label}: {verdict} in {time.monotonic() - start:.1f} s")
    for part in result.parts:
        print(("  ! " if part in result.failures else "    ") + part)
    sys.stdout.flush()


def _run_fault(fault, rounds, rows):
    """Runs the rounds of a fault and returns how many passed. A round that broke a promise ends the
    cluster, and the next round starts a new one."""
    passed = 0
    with contextlib.ExitStack() as stack:
        running = None

        def act():
            nonlocal running
            if running is None:
                running = stack.enter_context(contextlib.closing(fault()))
            running.round(result)
        for number in range(1, rounds + 1):
            result = Round(fault, rows)
            try:
                run_round(f"[{fault.number}] {fault.name}, round {number} of {rounds}", result, act)
            except promised_faults.Skip as skip:
                print(f"[{fault.number}] {fault.name}: skipped: {skip}", flush=True)
                return None
            passed += not result.failures
            if result.failures and running is not None:
                stack.close()
                running = None
    return passed


def table(faults, passed, rows, rounds):
    """Returns the table of the results as text. `passed` and `rounds` hold the numbers of rounds by
    fault; a fault that was skipped has passed None."""
    lines = [("fault", "bound", "measured, worst", "passed")]
    for fault in faults:
        name = f"{fault.number} {fault.name}"
        if passed[fault] is None:
            lines.append((name, "", "skipped", ""))
            continue
        lines.append((name, "", "", f"{passed[fault]} of {rounds[fault]}"))
        for row in rows.values():
            if row.fault is not fault:
                continue
            # A promise that is only measured after a failure has no row for the rounds that passed.
            lines.append((f"   {row.what}", row.bound, row.shown(), f"{row.passed} of {rounds[fault]}"))
    widths = [max(len(line[c]) for line in lines) for c in range(4)]
    return "\n".join(" | ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip()
                     for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", nargs="?", choices=list(promised_faults.SETS), default="all",
                        help="a set of faults")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds of each fault (20)")
    parser.add_argument("--only", metavar="N,N", help="numbers of the faults to measure")
    parser.add_argument("--skip", metavar="N,N", default="", help="numbers of the faults to leave out")
    parser.add_argument("--list", action="store_true", help="only list the faults")
    flags = parser.parse_args()
    faults = promised_faults.SETS[flags.set]
    if flags.list:
        print("\n".join(f"{f.number:4} {f.name}" for f in faults))
        return 0
    known = {f.number for f in faults}
    chosen = set(flags.only.split(",")) if flags.only else known
    skipped = set(filter(None, flags.skip.split(",")))
    if flags.rounds < 1 or not chosen | skipped <= known:
        parser.error(f"--rounds is at least 1; faults are {', '.join(sorted(known))}")
    faults = [f for f in faults if f.number in chosen - skipped]
    print(f"programs of {daemons.bin_dir()}", flush=True)
    rows, passed = {}, {}
    for number in SIGNALS:
        signal.signal(number, unwind)
    try:
        for fault in faults:
            passed[fault] = _run_fault(fault, flags.rounds, rows)
    except KeyboardInterrupt:
        print("promises: interrupted", file=sys.stderr)
        return 130
    print("\n" + table(faults, passed, rows, dict.fromkeys(faults, flags.rounds)))
    return 0 if all(p in (None, flags.rounds) for p in passed.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
