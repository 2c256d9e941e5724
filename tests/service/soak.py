"""Runs a cluster for hours, and fails if a process or its files on disk grow without end.

    soak.py --hours 8        the long form
    soak.py --minutes 10     the short one
    soak.py --seed 3         other work

The cluster has a durable coordinator with TLS and four workers. The clients of load.py keep it
busy, as in kill_loop.py, but nothing is killed, so every call must succeed. Every few seconds
soak.py samples the resident memory, open descriptors and threads of each process, the number of
processes, and the size of the coordinator's database. The first part of the run, in which caches
and bounded logs fill, does not count. For the rest trend.py fits a line to each series; its
docstring says how, and which slopes count as zero.

The exit status is 1 if a series grows, a process has ended, or a call did not do what it should.
The samples and the logs are then kept.

The binaries are taken from TESSERA_BIN_DIR if that is set, and otherwise from build/dev/bin.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

import daemons
from kill_history import alike, violations
from load import Load
from trend import BLOCKS, Floor, trend

WORKERS = 4  # each with two devices
# The warm-up takes this share of the time, at most half an hour, and never fewer than WARM_UP_RUNS
# runs. On a busy machine the number of runs decides, because work and not time fills caches and
# logs.
WARM_UP_SHARE = 0.4
WARM_UP_S_MAX = 1800
WARM_UP_RUNS = 10_000
# A log that the coordinator keeps up to a bound grows until it reaches the bound, and this has to
# happen during the warm-up. So these bounds are lower than usual, but high enough for what a client
# asks about again. One bound has no option: the coordinator remembers the tenants of the last
# 100,000 ranges of ids, which takes 8 MiB. The clients of two tenants, whose ids alternate, reach
# that bound in ten minutes or more; those of one tenant never do.
SHORT_LOGS = ("--operations-kept=5000", "--request-ids-max=1000")
TWO_TENANTS_FROM_S = 900  # seconds of warm-up from which on there are two tenants
SAMPLES = 300  # number of samples, if that gives a period within PERIOD_S
PERIOD_S = (1, 10)
BROKEN_MAX = 100  # most broken promises that are reported; further ones would be alike
MIB = 2.0**20

# A slope of memory or disk counts as zero below 1 MiB or 1 % in an hour: a process that grows so
# slowly takes less than 1 GiB in a month, and malloc's own behaviour looks similar. In a short run
# a growth of half a MiB in all counts as zero too. Malloc takes memory in pieces of 132 KiB and
# more, and a few pieces prove nothing. A slope of a count is zero below one in an hour, or below
# one and a half in all.
BYTES = Floor(per_hour=MIB, share_per_hour=0.01, in_all=MIB / 2)
COUNT = Floor(per_hour=1, share_per_hour=0.01, in_all=1.5)
METRICS = {"memory": BYTES, "descriptors": COUNT, "threads": COUNT, "processes": COUNT, "disk": BYTES}


class Judge:
    """A log that keeps only those events that break a promise."""

    def __init__(self):
        self._lock = threading.Lock()
        self.broken = []

    def add(self, event):
        found = violations([event])
        with self._lock:
            self.broken += found[:max(0, BROKEN_MAX - len(self.broken))]


def descendants(pid):
    """Returns all descendants of a process, sorted by process id."""
    found, todo = [], [pid]
    while todo:
        for children in pathlib.Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            try:
                below = [int(word) for word in children.read_text().split()]
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended meanwhile
            found += below
            todo += below
    return sorted(found)


def figures(pid):
    """Returns the figures that /proc has of a process, by metric, or None if the process has
    ended."""
    folder = pathlib.Path(f"/proc/{pid}")
    try:
        lines = (folder / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        return {"memory": 1024 * int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
                "descriptors": len(os.listdir(folder / "fd"))}
    except (FileNotFoundError, ProcessLookupError, KeyError):
        return None  # a zombie has no VmRSS


def is_executor(pid):
    try:
        return b"--executor" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False


class Sampler:
    """Writes samples to a file. If it kept them in memory, they would be a leak of this process."""

    def __init__(self, cluster, load, state_dir, path):
        self._cluster, self._load, self._state_dir = cluster, load, state_dir
        self._file = open(path, "w")
        self._begin = time.monotonic()

    def close(self):
        self._file.close()

    def _write(self, name, pid, metric, value):
        at = time.monotonic() - self._begin
        print(f"{at:.3f}", name, pid, metric, value, sep="\t", file=self._file)

    def _process(self, name, pid):
        for metric, value in (figures(pid) or {}).items():
            self._write(name, pid, metric, value)

    def sample(self):
        self._write("load", "", "runs", self._load.num_runs())
        for name, process in self._cluster.processes.items():
            self._process(name, process.pid)
            below = descendants(process.pid)
            self._write(name, process.pid, "processes", 1 + len(below))
            for pid in below:
                # Jails and compilers come and go, but a process that stays is sampled too.
                self._process(f"{name}/{'executor' if is_executor(pid) else 'helper'}", pid)
        self._process("clients in Python", os.getpid())
        for client in self._load.clients:
            if getattr(client, "process", None) is not None:
                self._process(client.name, client.process.pid)
        for name in ("state.db", "state.db-wal"):
            path = self._state_dir / name
            if path.exists():
                self._write(name, "", "disk", path.stat().st_size)


def read_samples(path):
    """Returns (times, values) by (name, pid, metric)."""
    series = collections.defaultdict(lambda: ([], []))
    for line in path.read_text().splitlines():
        at, name, pid, metric, value = line.split("\t")
        times, values = series[name, pid, metric]
        times.append(float(at))
        values.append(float(value))
    return series


def end_of_warm_up(series, seconds):
    """Returns when the warm-up of a run of `seconds` ended, or infinity if it did not end."""
    times, runs = series["load", "", "runs"]
    enough = next((t for t, n in zip(times, runs) if n >= WARM_UP_RUNS), float("inf"))
    return max(min(WARM_UP_SHARE * seconds, WARM_UP_S_MAX), enough)


def trends(series, warm_up, end):
    """Returns (name, pid, metric, Trend) for each series that lasts from the end of the warm-up to
    `end`."""
    found = []
    period = (end - warm_up) / BLOCKS
    for (name, pid, metric), (times, values) in series.items():
        if metric not in METRICS:
            continue
        kept = [(t, v) for t, v in zip(times, values) if t >= warm_up]
        if not kept or kept[0][0] > warm_up + period or kept[-1][0] < end - period:
            continue  # began later or has ended; the number of processes shows a leak of those
        # too short; run_in reports if no series is long enough
        with contextlib.suppress(ValueError):
            found.append((name, pid, metric, trend(*zip(*kept), METRICS[metric])))
    return sorted(found, key=lambda row: (row[0], row[1]))


def table(rows):
    """Returns the rows of trends() as a text."""
    lines = [f"{'process':<22} {'pid':>8}  {'what':<12} {'median':>10}  {'slope in an hour':>18} "
             f" {'error':>8} {'floor':>8}"]
    for name, pid, metric, t in rows:
        scale, unit = (MIB, " MiB") if METRICS[metric] is BYTES else (1, "")
        note = "" if t.verdict == "flat" else f"  {t.verdict}"
        lines.append(f"{name:<22} {pid:>8}  {metric:<12} {t.level / scale:>6.5g}{unit:<4}  "
                     f"{t.slope / scale:>+14.3f}{unit:<4}  {t.error / scale:>8.3f} "
                     f"{t.floor / scale:>8.3f}{note}")
    return "\n".join(lines)


def work(cluster, load, sampler, minutes):
    """Takes samples until the time is over. Returns a text for each executor and daemon that has
    ended."""
    end = time.monotonic() + 60 * minutes
    period = min(max(60 * minutes / SAMPLES, PERIOD_S[0]), PERIOD_S[1])
    executors = {p: f"w{w}" for w in range(WORKERS) for p in descendants(cluster.processes[f"w{w}"].pid)
                 if is_executor(p)}
    pause = threading.Event()
    load.start()
    while time.monotonic() < end and load.is_whole():
        sampler.sample()
        pause.wait(period)
    gone = [f"executor {p} of {w} has ended" for p, w in executors.items() if daemons.has_ended(p)]
    return gone + [f"{name} has ended with {process.returncode}"
                   for name, process in cluster.processes.items() if process.poll() is not None]


def run(flags):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-soak-"))
    try:
        return run_in(folder, flags)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_in(folder, flags):
    judge = Judge()
    state, samples = folder / "state", folder / "samples.txt"
    with daemons.Cluster(workers=WORKERS, devices=2, secure=True,
                         coordinator_flags=[f"--state-dir={state}", *SHORT_LOGS]) as cluster:
        is_long = WARM_UP_SHARE * 60 * flags.minutes >= TWO_TENANTS_FROM_S
        tenants = ("red", "blue") if is_long else ("red",)
        load = Load(cluster, judge, flags.seed, tenants)
        sampler = Sampler(cluster, load, state, samples)
        broken = work(cluster, load, sampler, flags.minutes)
        sampler.close()
        broken += load.stop() + judge.broken
        load.tell()
        series = read_samples(samples)
        end = max(times[-1] for times, _ in series.values())
        warm_up = end_of_warm_up(series, 60 * flags.minutes)
        rows = trends(series, warm_up, end)
        print(f"from {warm_up / 60:.1f} to {end / 60:.1f} min")
        print(table(rows))
        broken += [f"{metric} of {name} {pid} grows by {t.slope:+.6g} in an hour, with an error of "
                   f"{t.error:.6g}" for name, pid, metric, t in rows if t.verdict == "grows"]
        if not rows:
            broken.append(f"there are too few samples behind the warm-up, which takes {WARM_UP_RUNS} "
                          "runs, to tell; give it more --minutes")
        print(f"{len(broken)} things are wrong")
        print("".join(f"  ! {text}\n" for text in alike(broken)), end="")
        if broken or flags.keep_always:
            kept = pathlib.Path(flags.keep)
            kept.mkdir(parents=True, exist_ok=True)
            shutil.copy(samples, kept)
            (kept / "logs.txt").write_text(cluster.logs())
            print(f"the samples and the logs are in {kept}")
    return 1 if broken else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--minutes", type=float, default=10)
    how_long.add_argument("--hours", type=float)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", metavar="DIR", default="build/soak",
                        help="folder for the samples and the logs of a run that fails")
    parser.add_argument("--keep-always", action="store_true", help="keep the samples and the logs of every run")
    flags = parser.parse_args()
    if flags.hours is not None:
        flags.minutes = 60 * flags.hours
    return run(flags)


if __name__ == "__main__":
    sys.exit(main())
