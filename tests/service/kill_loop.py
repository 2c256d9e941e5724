"""Kills processes of a working cluster again and again, and checks that the promises hold.

    kill_loop.py --minutes 10         the long form
    kill_loop.py --kills 8            stops after eight kills instead of after a time
    kill_loop.py --seed 3             other victims and other work

The cluster has a durable coordinator with TLS and four workers, and the clients of load.py keep it
busy. Every 1 to 5 s a SIGKILL goes to the coordinator, a daemon or an executor, which is then
started again. One worker is never killed. It holds 10,000 arrays, none of which may be lost.
kill_history.py has the rules. The exit status is 1 if a rule was broken; the history and the logs
are then kept.

The binaries are taken from TESSERA_BIN_DIR if that is set, and otherwise from build/dev/bin.
"""
import argparse
import collections
import os
import pathlib
import random
import shutil
import sys
import tempfile
import threading
import time

import daemons
from daemons import eventually, has_ended
from kill_history import Kill, Measured, alike, violations
from load import API, Load, Log
from promised_faults.harness import arrays_of

WORKERS = 4  # each with two devices; the last worker is never killed
SAFE = f"w{WORKERS - 1}"
SERVES_AGAIN_WITHIN = 3
CHILDREN_END_WITHIN = 1
PER_RUN = 100  # number of results of the program that makes many arrays


class Killer:
    """Chooses victims, kills them and starts them again."""

    def __init__(self, cluster, log, seed):
        self.cluster, self.log = cluster, log
        self.random = random.Random(seed)
        self.kills = collections.Counter()

    def kill_one(self):
        what = self.random.choices(["coordinator", "daemon", "executor"], [4, 3, 3])[0]
        number = self.random.randrange(WORKERS - 1)
        self.kills[what] += 1
        getattr(self, what)(number)

    def coordinator(self, _):
        began = time.monotonic()
        self.log.add(Kill(began, "", "coordinator"))
        self.cluster.restart_coordinator()
        with self.cluster.connect() as client:
            client.call(API + "ClusterService/GetCapabilities")
        self.log.add(Measured("serves again after a kill of the coordinator", SERVES_AGAIN_WITHIN,
                              time.monotonic() - began))

    def daemon(self, number):
        children = self.cluster.executor_pids(number)
        began = time.monotonic()
        self.log.add(Kill(began, f"w{number}", "daemon"))
        self.cluster.kill_worker(number)
        eventually(lambda: all(has_ended(pid) for pid in children), 20, "its executors end")
        self.log.add(Measured("a killed daemon's executors have ended", CHILDREN_END_WITHIN,
                              time.monotonic() - began))
        self.cluster.start_worker(number)

    def executor(self, number):
        for pid in self.cluster.executor_pids(number):
            self.log.add(Kill(time.monotonic(), f"w{number}", "executor"))
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass  # its daemon was killed a moment ago


def _fill(cluster, arrays, sessions, devices):
    """Makes `arrays` arrays on the safe worker, and `sessions` sessions. Returns the session of the
    arrays."""
    lines = "".join(f"  %r{i} = negate(%a)\n" for i in range(PER_RUN))
    text = (f"func main(%a: f32[2]) -> ({', '.join(['f32[2]'] * PER_RUN)}) {{\n{lines}"
            f"  return {', '.join(f'%r{i}' for i in range(PER_RUN))}\n}}\n")
    day = {"lease": "86400s"}
    with cluster.connect() as client:
        session = client.call(API + "SessionService/CreateSession", day)["id"]
        for _ in range(sessions - 1):
            client.call(API + "SessionService/CreateSession", day)
        program = client.call(API + "ProgramService/CompileProgram",
                              {"text": text, "devices": [str(devices[0])]})
        spec = program["in"][0]
        array = client.call(API + "ArrayService/WriteArray",
                            {"spec": spec, "json": [1, 2], "session": session})["array"]
        for _ in range(arrays // PER_RUN):
            run = client.call(API + "ProgramService/ExecuteProgram",
                              {"executable": program["executable"], "args": [array],
                               "session": session})
            last = client.call(API + "OperationService/WaitOperation",
                               {"operation": run["operation"], "timeout": "60s"}, timeout=70)
            assert last["state"] == "OPERATION_STATE_DONE", last
    return session


def _not_ready(cluster, session):
    """Returns the number of arrays in the session, and the ids of those that are not ready."""
    with cluster.connect() as client:
        arrays = arrays_of(client, session)
    return len(arrays), [a["id"] for a in arrays if a["state"] != "READY"]


def run(flags):
    log = Log()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-kill-"))
    flags.folder = folder
    # With the default lease, each coordinator that starts has 1,000 sessions and 10,000 arrays to
    # read.
    with daemons.Cluster(workers=WORKERS, devices=2, secure=True,
                         coordinator_flags=[f"--state-dir={folder}/state",
                                            "--session-grace-ms=60000"]) as cluster:
        load = Load(cluster, log, flags.seed)
        session = _fill(cluster, flags.arrays, flags.sessions, load.devices[SAFE])
        load.start()
        killer = Killer(cluster, log, flags.seed)
        _kill(flags, killer, load)
        cluster.await_devices(2 * WORKERS, 30)
        crashed = load.stop()
        count, wrong = _not_ready(cluster, session)
        broken = violations(log.events) + crashed
        if (count, wrong) != (flags.arrays + 1, []):
            broken.append(f"of {flags.arrays + 1} arrays on {SAFE} {count} are there, and not ready "
                          f"are {wrong[:5]}")
        _tell(log, killer, load, broken)
        if broken and flags.keep:
            kept = pathlib.Path(flags.keep)
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "history.txt").write_text("\n".join(map(repr, log.events)))
            (kept / "logs.txt").write_text(cluster.logs())
            print(f"the history and the logs are in {kept}")
    return 1 if broken else 0


def _kill(flags, killer, load):
    end = time.monotonic() + 60 * flags.minutes
    pause = threading.Event()
    while (sum(killer.kills.values()) < flags.kills if flags.kills else time.monotonic() < end):
        if not load.is_whole():
            return  # A client has crashed, which run() reports.
        pause.wait(killer.random.uniform(1, 5))
        killer.kill_one()
        if sys.stdout.isatty():
            print(f"\r{sum(killer.kills.values())} kills", end="", flush=True)
    pause.wait(2)


def _tell(log, killer, load, broken):
    print("\nkills: " + ", ".join(f"{n} {k}" for k, n in sorted(killer.kills.items())))
    load.tell()
    worst = {}
    for e in log.events:
        if isinstance(e, Measured):
            worst[e.what] = (max(worst.get(e.what, (0,))[0], e.seconds), e.bound)
    for what, (seconds, bound) in sorted(worst.items()):
        print(f"{what}: {seconds:.2f} s at worst (bound {bound:g} s)")
    print(f"{len(broken)} broken promises")
    print("".join(f"  ! {text}\n" for text in alike(broken)), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kills", type=int, default=0, help="stop after so many kills instead of after --minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrays", type=int, default=10_000, help="arrays on the worker that is never killed")
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--keep", metavar="DIR", default="build/kill_loop",
                        help="folder for the history and the logs of a run that broke a promise")
    flags = parser.parse_args()
    try:
        return run(flags)
    finally:
        shutil.rmtree(getattr(flags, "folder", "/nonexistent"), ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
