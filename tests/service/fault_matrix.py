"""Causes the faults that a service of this kind meets, and measures what is promised for each of them.

    fault_matrix.py                    every row; 20 rounds of a row whose round takes at most 10 s,
                                       and 3 rounds of the others
    fault_matrix.py --rounds 1         the quick form
    fault_matrix.py --only 4,13        some rows
    fault_matrix.py --page docs/faults.md
                                       also writes the results to the page; other rows stay as they are

A row runs cases of the tests. `measured` is the worst figure that they printed over all rounds. For
a case without a figure it is the time of the longest round, with the start of the cluster ("whole
case"). A row that is left out gives the reason.

The exit status is 1 if a round failed. The binaries are taken from TESSERA_BIN_DIR if that is set,
and otherwise from build/dev/bin. The tests that are programs are expected beside that folder, and a
row whose program is not built is left out.
"""
import argparse
import dataclasses
import math
import os
import pathlib
import re
import subprocess
import sys
import time

import daemons

HERE = pathlib.Path(__file__).resolve().parent
SHORT, MANY, FEW = 10, 20, 3  # seconds of a short round; numbers of rounds
PATIENCE = 600


def python(script, *cases):
    return lambda: [sys.executable, "-B", str(HERE / script), *cases]


def program(path, *cases):
    """Returns a function that makes the command of a test program. It raises MissingError if the
    program is not built."""
    def command():
        found = daemons.bin_dir().parent / path
        if not found.exists():
            raise MissingError(f"{path} is not built")
        return [str(found), "--gtest_filter=" + ":".join(cases)]
    return command


def promised(number):
    return lambda: [sys.executable, "-B", str(HERE / "promises.py"), "--only", number,
                    "--rounds", "1"]


def skew():
    """Returns the command of the tests with an earlier build. Raises MissingError if that is not
    built."""
    earlier = re.search(r"^earlier=(\w+)$", (daemons.ROOT / "scripts/skew").read_text(), re.M).group(1)
    old = pathlib.Path(os.environ.get("TESSERA_OLD_BIN_DIR")
                       or daemons.ROOT / "build/skew" / earlier)
    if not (old / "tessera").exists():
        raise MissingError("the earlier build's programs are not there: scripts/skew builds them")
    return [sys.executable, "-B", str(HERE / "skew_test.py"), "--old-bin", str(old)]


class MissingError(Exception):
    """Something that a row needs does not exist."""


@dataclasses.dataclass
class Row:
    number: int
    fault: str
    injector: str
    bound: str
    command: object = None  # makes the command of a round; None if the row is left out
    figure: str = ""  # pattern of the figure in the output of the case
    unit: str = "s"  # unit of the figure
    left_out: str = ""


SERVICE = "tests/service/service_"
ROWS = [
    Row(1, "executor SIGKILL in a collective", "kill -9, four times",
        "reported in 2 s; the next run and the peers work in 3 s",
        program(SERVICE + "faults_test", "FaultsTest.EitherExecutorMayBeKilledAgainAndAgain"),
        r"told after ([\d.e-]+) s"),
    Row(2, "daemon SIGKILL", "kill -9", "reported in 2 s; the daemon's children are gone in 1 s",
        program(SERVICE + "faults_test", "FaultsTest.AKilledWorkerIsNamedAndTheOtherGoesOn"),
        r"told after ([\d.e-]+) s"),
    Row(3, "daemon SIGSTOP, later SIGCONT", "SIGSTOP", "away in 3 s, then back with its arrays, or lost",
        python("frozen_test.py",
               "FrozenTest.test_a_daemon_that_is_silent_is_away_and_comes_back_with_what_it_holds",
               "FrozenTest.test_a_daemon_that_is_silent_for_too_long_is_lost_and_comes_back_as_"
               "another"), r"the silent worker is away: ([\d.]+) s"),
    Row(4, "executor stuck in a collective", "SIGSTOP", "verdict: watchdog (1.5 s) + 2 s",
        python("frozen_test.py", "FrozenTest.test_a_collective_that_somebody_is_stuck_in"),
        r"the verdict: ([\d.]+) s"),
    Row(5, "NCCL's abort hangs", "fake NCCL", "another executor is there in 15 s; the daemons stay",
        program(SERVICE + "gpu_test", "GpuTest.AnAbortThatHangsEndsTheExecutorsNotTheDaemons"),
        r"another executor is there after ([\d.e-]+) s"),
    Row(6, "members make different calls", "two ranks; frames of a raw peer",
        "both calls are named, nothing is computed",
        program("worker/collectives/worker_collectives_test", "*AMismatchErrorDescribesBothCalls*",
                "RawPeer.AFrameOfAnUnknownCallIsReportedAsAMismatch-*/Ranks1")),
    Row(7, "partition coordinator - worker", "proxy that holds",
        "nothing is lost; back in 2 s after it heals",
        python("frozen_test.py", "FrozenTest.test_a_partition_of_coordinator_and_worker_costs_"
               "nothing_once_it_heals"), r"back after the partition: ([\d.]+) s"),
    Row(8, "partition worker - worker", "proxy that holds, both ways and one",
        "the pair is named in watchdog (1.5 s) + 2 s",
        python("frozen_test.py",
               "FrozenTest.test_a_partition_of_two_executors_is_told_and_costs_neither"),
        r"names both: ([\d.]+) s"),
    Row(9, "one way, and flapping", "proxy that holds one way; eight times in a row, seeded",
        "as in row 7; all work is done in 10 s, none of it twice",
        python("frozen_test.py", "FrozenTest.test_so_does_one_of_what_the_worker_says",
               "FrozenTest.test_so_does_one_of_what_the_coordinator_says",
               "FrozenTest.test_a_link_that_flaps_loses_nothing_and_does_nothing_twice"),
        r"all is done after the last: ([\d.]+) s"),
    Row(10, "slow link", "proxy, 200 ms each way", "a worker is never away; a run ends",
        python("frozen_test.py", "FrozenTest.test_a_slow_link_makes_nobody_silent"),
        r"slow link takes ([\d.]+) s"),
    Row(11, "connections that are cut", "proxy: resets, a cable pulled for 4 s",
        "goes on from the committed offset; only bytes that were under way are sent twice",
        program(SERVICE + "transfer_test",
                "TransferTest.ACutConnectionResendsOnlyBytesThatWereUnderWay",
                "TransferTest.ATransferOutlivesACableThatWasPulledForAWhile"),
        r"sent twice: ([\d.e-]+) MiB", "MiB"),
    Row(12, "bytes that change", "proxy", "the change is noticed, and the bytes are sent again",
        program(SERVICE + "transfer_test",
                "TransferTest.AByteThatChangesIsNoticedAndSentAgain")),
    Row(13, "coordinator SIGKILL", "kill -9, three times", "serves again in 3 s",
        python("outage_test.py", "OutageTest.test_with_a_state_folder_everything_goes_on"),
        r"serves again after ([\d.]+) s"),
    Row(14, "coordinator killed before its reply", "kill -9 and the calls once more",
        "each call takes effect once",
        python("outage_test.py",
               "OutageTest.test_a_call_that_is_repeated_after_a_restart_happens_once")),
    Row(15, "two coordinators", "a second one on the same store",
        "the first coordinator commands nobody, and ends",
        python("disk_test.py", "DiskTest.test_who_is_taken_over_ends"),
        r"the first is refused after ([\d.]+) s"),
    Row(16, "the coordinator's disk is full", "tmpfs of 8 MiB",
        "changes are refused in 1 s (+ 2 s), and taken again in 5 s",
        python("disk_test.py", "DiskTest.test_a_full_disk_refuses_changes_and_nothing_else"),
        r"(?:refused|taken again) after ([\d.]+) s"),
    Row(17, "the coordinator's disk is slow, or hangs", "fsync of 200 ms, and one that does not end (preload)",
        "40 calls share commits: 4 s; STORE_FAILED in 0.5 s + 2 s",
        python("disk_test.py", "DiskTest.test_a_slow_disk_delays_and_commits_share_it",
               "DiskTest.test_a_disk_that_does_not_answer_counts_as_one_that_fails"),
        r"(?:on the disk|does not answer is told) after ([\d.]+) s"),
    Row(18, "client SIGKILL with arrays", "kill -9", "memory back in lease (1 s) + 5 s",
        program(SERVICE + "sessions_test", "SessionsTest.AClientThatIsKilledGivesBackItsMemory"),
        r"the memory is back after ([\d.e-]+) s"),
    Row(19, "client gone without a word", "proxy that swallows, then kill -9; SIGSTOP",
        "runs end by keepalive (2 s) + grace (2 s) + 5 s",
        program(SERVICE + "sessions_test",
                "GraceTest.TheRunsOfAClientThatVanishesEndByKeepalive",
                "GraceTest.TheRunsOfAClientThatSaysNothingEndByKeepalive"),
        r"the runs ended after ([\d.e-]+) s"),
    Row(20, "more than a device holds", "an array too large",
        "refused, with the names of the holders of the memory",
        program(SERVICE + "errors_test", "ErrorsTest.AnArrayBeyondTheMemory")),
    Row(21, "coordinator out of memory", "control group of 512 MiB, eight clients that send 60 MiB at a time",
        "the coordinator loses nothing that it acknowledged, and serves again 3 s after the flood",
        python("limits_test.py", "LimitsTest.test_a_coordinator_with_little_memory_refuses_or_serves_"
               "again_as_it_was"), r"serves again ([\d.]+) s after"),
    Row(22, "malformed programs", "200 damaged texts", "INVALID_ARGUMENT with the place in 0.5 s",
        python("reasons_test.py", "ClientTest.test_programs_that_are_damaged_are_refused_at_once_and_"
               "say_where"), r"([\d.]+) s at most"),
    Row(23, "programs that take too long", "a long compile, restarts",
        "a small one beside it in 1.5 s", promised("8"), r"a long compile ([\d.]+) s \(bound"),
    Row(24, "messages that are too large", "at the limit and beyond", "RESOURCE_EXHAUSTED",
        program(SERVICE + "errors_test", "ErrorsTest.AMessageBeyondTheLimit",
                "ErrorsTest.AProgramBeyondTheLimit")),
    Row(25, "idle, half-open, slow clients", "2,000 connections, readers that do not read",
        "p99 < 2 times that without them", python("abuse_test.py"), r"take ([\d.]+) times as long",
        "times"),
    Row(26, "misused tokens and tickets", "every method by every role",
        "each method admits the roles of its row; a revoked token is refused in 5 s, and its streams "
        "are cut in 30 s",
        python("security_test.py"), r"a revoked token is refused after ([\d.]+) s"),
    Row(27, "calls that come again", "proxy that cuts 40 answers", "each call takes effect once",
        program(SERVICE + "sessions_test", "GraceTest.CallsWhoseAnswersAreLostHappenOnce")),
    Row(28, "clocks that jump by an hour", "preload, one process at a time", "nothing is lost",
        python("clock_test.py")),
    Row(29, "version skew", "programs of an earlier build (scripts/skew)",
        "both builds work with each other; no wait over 20 s", skew,
        r"longest wait ([\d.]+) s"),
    Row(30, "rolling restart under load", "drain, stop and start of each process",
        "no failed operation; some client gets an answer in 20 s", python("rolling_test.py"),
        r"longest wait ([\d.]+) s"),
    Row(31, "a worker dies again and again", "kill -9 under up and join", "back in 5 s",
        promised("19"), r"the worker is back ([\d.]+) s"),
    Row(32, "everybody reconnects at once", "kill -9 of a coordinator with 200 clients",
        "all are back in 10 s",
        python("crowd_test.py", "CrowdTest.test_clients_that_come_back_together"),
        r"are back after ([\d.]+) s"),
    Row(33, "file descriptors run out", "twice as many connections as descriptors; ulimit -n",
        "connected clients are answered in 1 s, others once descriptors are free",
        python("limits_test.py", "LimitsTest.test_connections_beyond_the_descriptors_cost_those_that_"
               "are_there_nothing", "LimitsTest.test_daemons_open_as_many_files_as_they_may"),
        r"a call takes ([\d.]+) s at most"),
    Row(34, "a GPU's context is lost", "fake driver", "reported in 5 s; only the executor of that GPU ends",
        program(SERVICE + "gpu_test", "GpuTest.ALostContextEndsItsExecutorAndNoOther"),
        r"told after ([\d.e-]+) s"),
    Row(35, "silent data corruption", "fake driver that flips a bit of what each kernel writes",
        "the GPU's canary names it in interval (1 s) + 4 s",
        program(SERVICE + "gpu_test", "GpuTest.AGpuThatComputesWronglyIsNamedByItsCanary"),
        r"told after ([\d.e-]+) s"),
    Row(36, "a file is cut short or damaged", "bytes cut off every 64 KiB, kill -9 while it is written",
        "FILE_CORRUPT with the name of the file; the older file is whole",
        python("files_test.py", "FilesTest.test_a_file_that_is_cut_or_damaged_is_refused_and_an_"
               "older_one_is_read", "KilledTest.test_a_save_that_is_killed_leaves_a_file_that_is_whole")),
    Row(37, "scrapers storm or hang", "50 scrapers, and one that never reads",
        "99 of 100 calls in 0.5 s",
        python("crowd_test.py", "CrowdTest.test_scrapers_that_storm_and_one_that_never_reads"),
        r"scrapes\) ([\d.]+) s"),
]


def run_round(row):
    """Runs a round. Returns whether it passed, its time, its figures and its output."""
    start = time.monotonic()
    done = subprocess.run(row.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=PATIENCE, check=False,
                          cwd=daemons.ROOT,
                          env={**os.environ, "TESSERA_BIN_DIR": str(daemons.bin_dir())})
    took = time.monotonic() - start
    figures = [float(f) for f in re.findall(row.figure, done.stdout)] if row.figure else []
    skipped = re.search(r"\[  SKIPPED \]|skipped=\d|skipped: (.*)", done.stdout)
    if done.returncode in (0, 77) and skipped:  # 77: all tests of the program were skipped
        raise MissingError("its case skips itself here")
    if "Running 0 tests" in done.stdout or "Ran 0 tests" in done.stdout:
        raise MissingError("its case is not there")
    return done.returncode == 0, took, figures, done.stdout


def run_row(row, rounds):
    """Runs the rounds of a row. Returns its cells `measured` and `passed`."""
    if row.command is None:
        return "left out: " + row.left_out, ""
    worst, longest, passed, number, wanted = -math.inf, 0.0, 0, 0, rounds or FEW
    try:
        while number < wanted:
            well, took, figures, said = run_round(row)
            number += 1
            passed += well
            longest = max(longest, took)
            worst = max([worst, *figures])
            if number == 1 and rounds is None and took <= SHORT:
                wanted = MANY
            print(f"[{row.number}] round {number} of {wanted}: {'ok' if well else 'FAILED'}, {took:.1f} s",
                  flush=True)
            if not well:
                print(f"[{row.number}] round {number} failed:\n" + said[-3000:], flush=True)
    except MissingError as missing:
        return f"left out: {missing}", ""
    measured = f"{worst:.2f} {row.unit}" if worst >= 0 else f"whole case {longest:.1f} s"
    return measured, f"{passed} of {wanted}"


PAGE = """# The faults that a cluster meets

For operators, and for people who change code that handles faults. A row says what breaks, how the tests
break it, and what is promised then. The last columns show the worst figure that was measured, and in how
many of how many runs the promise held.

Generated by `scripts/faults matrix --page docs/faults.md`, which measures all rows: 20 runs of a row whose
run takes at most 10 s, and 3 runs of each other row. With `--only 4,13` it measures these rows and keeps
the figures of the others.

The figures are those of a release build on a busy machine. If a promise has no time, "whole case" is the
time of the longest run, with the start of its cluster. All rows are tests on real processes; tests of GPUs
use a fake driver.

`scripts/faults` without `matrix` measures the promises to operators in the same form, and so do
`scripts/faults suspicion`, `scripts/faults library` and `scripts/faults replicas`.
[bounds.md](bounds.md) lists the bound of every wait, and [operating.md](operating.md) says what to do.
`scripts/kill_loop` kills processes at random under load, and `scripts/soak` looks for what grows while
nothing breaks.

"""
HEADINGS = ("#", "fault", "injector", "bound", "measured, worst", "passed")


def cells_of_page(text):
    """Returns the cells of each row of a page, by row number."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in text.splitlines() if re.match(r"\| \d", line)]
    return {int(row[0]): tuple(row[1:]) for row in rows}


def page(old, measured):
    """Returns the page `old` with the cells of `measured`, which holds (measured, passed) by row
    number. Sections below the table, which suspicion.py writes, stay as they are."""
    known = {n: cells[-2:] for n, cells in cells_of_page(old).items()} | measured
    lines = [HEADINGS, ("---",) * len(HEADINGS)]
    lines += [(str(row.number), row.fault, row.injector, row.bound, *known.get(row.number, ("", "")))
              for row in ROWS]
    _, heading, below = old.partition("\n## ")
    return PAGE + "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + heading + below


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=None, help="number of rounds of each row")
    parser.add_argument("--only", metavar="N,N", help="numbers of the rows to run")
    parser.add_argument("--page", type=pathlib.Path, help="page to write the results to")
    flags = parser.parse_args()
    only = {int(n) for n in flags.only.split(",")} if flags.only else {r.number for r in ROWS}
    print(f"programs of {daemons.bin_dir()}", flush=True)
    lines = [("fault", "injector", "bound", "measured, worst", "passed")]
    failed, cells = False, {}
    for row in ROWS:
        if row.number not in only:
            continue
        measured, passed = run_row(row, flags.rounds)
        lines.append((f"{row.number} {row.fault}", row.injector, row.bound, measured, passed))
        cells[row.number] = (measured, passed)
        print(" | ".join(lines[-1]), flush=True)
        failed |= bool(passed) and len(set(passed.split(" of "))) > 1
    widths = [max(len(line[c]) for line in lines) for c in range(5)]
    print("\n" + "\n".join(" | ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip()
                           for line in lines))
    if flags.page:
        flags.page.write_text(page(flags.page.read_text() if flags.page.exists() else "", cells))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
