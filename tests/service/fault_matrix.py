"""The faults that a service of this kind meets, each with what breaks it, what is promised, and what
was measured.

    fault_matrix.py                    every row; 20 rounds of a row whose round takes 10 s or less,
                                       else 3
    fault_matrix.py --rounds 1         the quick form
    fault_matrix.py --only 4,13        some rows

A row drives cases of the tests: `measured` is the worst figure that they printed over all rounds, or
else how long the longest round took, cluster and all ("whole case"). A row that is left out says why.
Exits with 1 if a round failed. Binaries are those of TESSERA_BIN_DIR, else of build/dev/bin; the
tests that are programs lie beside their folder, and a row whose program is not built is left out.
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
SHORT, MANY, FEW = 10, 20, 3  # seconds of a round, and rounds
PATIENCE = 600


def python(script, *cases):
    return lambda: [sys.executable, "-B", str(HERE / script), *cases]


def program(path, *cases):
    """A program of the tests; MissingError if it is not built."""
    def command():
        found = daemons.bin_dir().parent / path
        if not found.exists():
            raise MissingError(f"{path} is not built")
        return [str(found), "--gtest_filter=" + ":".join(cases)]
    return command


def promised(number):
    return lambda: [sys.executable, "-B", str(HERE / "promises.py"), "--only", number,
                    "--rounds", "1"]


class MissingError(Exception):
    """What a row needs is not there."""


@dataclasses.dataclass
class Row:
    number: int
    fault: str
    injector: str
    bound: str
    command: object = None  # makes the command of a round; None: left out
    figure: str = ""  # of what the case prints, in seconds
    left_out: str = ""


SERVICE = "tests/service/service_"
ROWS = [
    Row(1, "executor SIGKILL in a collective", "kill -9, again and again", "20 s for all of it",
        program(SERVICE + "faults_test", "FaultsTest.EitherExecutorMayBeKilledAgainAndAgain")),
    Row(2, "daemon SIGKILL", "kill -9", "children gone in 1 s, named to its peers",
        program(SERVICE + "faults_test", "FaultsTest.AKilledWorkerIsNamedAndTheOtherGoesOn")),
    Row(3, "daemon SIGSTOP, later SIGCONT", "SIGSTOP", "away in 3 s, then back with its arrays, or lost",
        python("frozen_test.py",
               "FrozenTest.test_a_daemon_that_is_silent_is_away_and_comes_back_with_what_it_holds",
               "FrozenTest.test_a_daemon_that_is_silent_for_too_long_is_lost_and_comes_back_as_"
               "another"), r"the silent worker is away: ([\d.]+) s"),
    Row(4, "executor stuck in a collective", "SIGSTOP", "verdict: watchdog (1.5 s) + 2 s",
        python("frozen_test.py", "FrozenTest.test_a_collective_that_somebody_is_stuck_in"),
        r"the verdict: ([\d.]+) s"),
    Row(5, "NCCL's abort hangs", "fake NCCL", "executors end, daemons do not",
        program(SERVICE + "gpu_test", "GpuTest.AnAbortThatHangsEndsTheExecutorsNotTheDaemons")),
    Row(6, "members make different calls", "frames of a raw peer", "both calls are named",
        program("worker/collectives/worker_collectives_test", "RawPeer.*")),
    Row(7, "partition coordinator - worker", "proxy that holds",
        "nothing is lost; back in 2 s after it heals",
        python("frozen_test.py", "FrozenTest.test_a_partition_of_coordinator_and_worker_costs_"
               "nothing_once_it_heals"), r"back after the partition: ([\d.]+) s"),
    Row(8, "partition worker - worker", "", "the pair is named in watchdog + 2 s", left_out=
        "not built: no proxy stands between two executors; collectives_test cuts the link in one "
        "process"),
    Row(9, "one way (flapping: scripts/sim)", "proxy that holds one way", "as 7",
        python("frozen_test.py", "FrozenTest.test_so_does_one_of_what_the_worker_says",
               "FrozenTest.test_so_does_one_of_what_the_coordinator_says"),
        r"back after the partition: ([\d.]+) s"),
    Row(10, "slow link", "proxy, 200 ms each way", "a worker is never away",
        python("frozen_test.py", "FrozenTest.test_a_slow_link_makes_nobody_silent")),
    Row(11, "connections that are cut", "proxy", "transfers go on where they were",
        program(SERVICE + "transfer_test", "TransferTest.AConnectionThatIsCutCostsWhatWasUnderWay",
                "TransferTest.ATransferOutlivesACableThatWasPulledForAWhile")),
    Row(12, "bytes that change", "proxy", "noticed, sent again",
        program(SERVICE + "transfer_test",
                "TransferTest.AByteThatChangesIsNoticedAndSentAgain")),
    Row(13, "coordinator SIGKILL", "kill -9, three times", "serves again in 3 s",
        python("outage_test.py", "OutageTest.test_with_a_state_folder_everything_goes_on"),
        r"serves again after ([\d.]+) s"),
    Row(14, "coordinator killed before its reply", "kill -9 and the calls once more", "happens once",
        python("outage_test.py",
               "OutageTest.test_a_call_that_is_repeated_after_a_restart_happens_once")),
    Row(15, "two coordinators", "a second one on the same store", "the first commands nobody",
        python("disk_test.py", "DiskTest.test_who_is_taken_over_ends")),
    Row(16, "the coordinator's disk is full", "tmpfs of 8 MiB", "refused in 1 s, back in 5 s",
        python("disk_test.py", "DiskTest.test_a_full_disk_refuses_changes_and_nothing_else")),
    Row(17, "its disk is slow", "fsync of 200 ms (preload)", "calls share a commit",
        python("disk_test.py", "DiskTest.test_a_slow_disk_delays_and_commits_share_it")),
    Row(18, "client SIGKILL with arrays", "kill -9", "memory back with the lease",
        program(SERVICE + "sessions_test", "SessionsTest.AClientThatIsKilledGivesBackItsMemory")),
    Row(19, "client gone without a word", "proxy that swallows", "runs end by keepalive, 35 s + 5 s",
        program(SERVICE + "sessions_test",
                "GraceTest.TheRunsOfAClientThatSaysNothingEndByKeepalive")),
    Row(20, "more than a device holds", "an array too large", "refused, holders named",
        program(SERVICE + "errors_test", "ErrorsTest.AnArrayBeyondTheMemory")),
    Row(21, "coordinator out of memory", "", "killed: as 13", left_out=
        "not built: no flood in a control group; abuse_test bounds its memory under misuse (25)"),
    Row(22, "malformed programs", "programs of odd types", "INVALID_ARGUMENT", promised("6")),
    Row(23, "programs that take too long", "a long compile, restarts", "told at the limit",
        promised("8")),
    Row(24, "messages that are too large", "at the limit and beyond", "RESOURCE_EXHAUSTED",
        program(SERVICE + "errors_test", "ErrorsTest.AMessageBeyondTheLimit",
                "ErrorsTest.AProgramBeyondTheLimit")),
    Row(25, "idle, half-open, slow clients", "2,000 connections, readers that do not read",
        "p99 < 2 times the honest one", python("abuse_test.py")),
    Row(26, "misused tokens and tickets", "every method by every role", "as its row says",
        python("security_test.py")),
    Row(27, "calls that come again", "proxy that cuts answers", "happen once",
        program(SERVICE + "sessions_test", "GraceTest.CallsWhoseAnswersAreLostHappenOnce")),
    Row(28, "clocks that jump by an hour", "preload, one process at a time", "nothing is lost",
        python("clock_test.py")),
    Row(29, "version skew", "", "the common part works", left_out=
        "by scripts/skew, which builds the older programs"),
    Row(30, "a worker is taken out", "drain while an executor is frozen", "waits for what is there",
        python("frozen_test.py",
               "FrozenTest.test_a_drain_waits_for_what_was_ended_and_is_still_there")),
    Row(31, "a worker dies again and again", "kill -9 under up and join", "back at once",
        promised("19")),
    Row(32, "everybody reconnects at once", "kill -9 of a coordinator with 200 clients",
        "all are back in 10 s",
        python("crowd_test.py", "CrowdTest.test_clients_that_come_back_together"),
        r"are back after ([\d.]+) s"),
    Row(33, "file descriptors run out", "ulimit -n", "as many as allowed are opened",
        python("limits_test.py", "LimitsTest.test_daemons_open_as_many_files_as_they_may")),
    Row(34, "a GPU's context is lost", "fake driver", "its executor ends, no other",
        program(SERVICE + "gpu_test", "GpuTest.ALostContextEndsItsExecutorAndNoOther")),
    Row(35, "silent data corruption", "", "a canary sees it", left_out=
        "not built: no failpoint flips a bit; health_test judges a canary's wrong sum"),
    Row(36, "a file is cut short", "bytes cut off a saved file", "FILE_CORRUPT",
        python("files_test.py", "FilesTest.test_what_cannot_be_done_says_why")),
    Row(37, "scrapers storm or hang", "50 scrapers, and one that never reads",
        "99 of 100 calls in 0.5 s",
        python("crowd_test.py", "CrowdTest.test_scrapers_that_storm_and_one_that_never_reads"),
        r"scrapes\) ([\d.]+) s"),
]


def run_round(row):
    """Whether a round passed, how long it took, its figures, and what it said."""
    start = time.monotonic()
    done = subprocess.run(row.command(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=PATIENCE, check=False,
                          cwd=daemons.ROOT,
                          env={**os.environ, "TESSERA_BIN_DIR": str(daemons.bin_dir())})
    took = time.monotonic() - start
    figures = [float(f) for f in re.findall(row.figure, done.stdout)] if row.figure else []
    skipped = re.search(r"\[  SKIPPED \]|skipped=\d|skipped: (.*)", done.stdout)
    if done.returncode == 0 and skipped:
        raise MissingError("its case skips itself here")
    if "Running 0 tests" in done.stdout or "Ran 0 tests" in done.stdout:
        raise MissingError("its case is not there")
    return done.returncode == 0, took, figures, done.stdout


def run_row(row, rounds):
    """The cells of `measured` and `passed`."""
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
            if not well:
                print(f"[{row.number}] round {number} failed:\n" + said[-3000:], flush=True)
    except MissingError as missing:
        return f"left out: {missing}", ""
    measured = f"{worst:.2f} s" if worst >= 0 else f"whole case {longest:.1f} s"
    return measured, f"{passed} of {wanted}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=None, help="of each row")
    parser.add_argument("--only", metavar="N,N", help="these rows")
    flags = parser.parse_args()
    only = {int(n) for n in flags.only.split(",")} if flags.only else {r.number for r in ROWS}
    print(f"programs of {daemons.bin_dir()}", flush=True)
    lines = [("fault", "injector", "bound", "measured, worst", "passed")]
    failed = False
    for row in ROWS:
        if row.number not in only:
            continue
        measured, passed = run_row(row, flags.rounds)
        lines.append((f"{row.number} {row.fault}", row.injector, row.bound, measured, passed))
        print(" | ".join(lines[-1]), flush=True)
        failed |= bool(passed) and len(set(passed.split(" of "))) > 1
    widths = [max(len(line[c]) for line in lines) for c in range(5)]
    print("\n" + "\n".join(" | ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip()
                           for line in lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
