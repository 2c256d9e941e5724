"""Kills processes of a working cluster, again and again, and checks that what was promised holds.

    kill_loop.py --minutes 10         the long form
    kill_loop.py --kills 8            so many kills, and no time
    kill_loop.py --seed 3             other choices of victims and of work

A durable coordinator with TLS, four workers and four clients of two tenants, two in Python and two in
C++ (kill_loop_client.cc), who put, run with and without donation, reduce over several workers, reshard,
read and delete. Every 1 to 5 s a SIGKILL
goes to the coordinator, a daemon or an executor; what was killed is started again. One worker is
never killed: it holds 10,000 arrays, and nothing there may be lost. The rules are those of
kill_history.py. Exits with 1 if one was broken; the history and the logs are then kept.

Binaries are those of TESSERA_BIN_DIR, else of build/dev/bin.
"""
import argparse
import collections
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import daemons
import numpy as np
from daemons import eventually, has_ended
from kill_history import Argument, Ended, Found, Kill, Measured, Read, Refused, violations
from promised_faults.harness import environment, python_client, sessions_of

API = "tessera.v1."
WORKERS = 4  # of two devices each; the last one is never killed
SAFE = f"w{WORKERS - 1}"
CLIENTS = 4  # every other one in C++
SERVES_AGAIN_WITHIN = 3
CHILDREN_END_WITHIN = 1
CALL_PATIENCE = 60
ASKED_AGAIN = 200  # runs of a client; of all clients together 10,000 are remembered
PER_RUN = 100  # results of the program that makes many arrays
START_PATIENCE = 30

ADD = """mesh (x=N)
func main(%a: f32[8] P('x')) -> (f32[8]) {
  %ones = constant() {value=dense<f32[8]: 1>}
  %b = add(%a, %ones)
  return %b
}
"""
SUM = """mesh (x=N)
func main(%a: f32[8] P('x')) -> (f32[]) {
  %s = reduce_sum(%a) {dimensions=[0]}
  return %s
}
"""


class Log:
    """The history; threads write to it."""

    def __init__(self):
        self._lock = threading.Lock()
        self.events = []

    def add(self, event):
        with self._lock:
            self.events.append(event)


class Kept:
    """An array that a client has, and what is in it. `made_of`: until it could be read it may be lost
    with that."""

    def __init__(self, array, value, workers, born, made_of=None):
        self.array, self.value, self.workers, self.born = array, value, workers, born
        self.made_of = made_of

    def argument(self):
        return Argument(self.array.id, self.born)


class Worker(threading.Thread):
    """A client at work, until it is told to stop. In Python, in a thread of its own."""

    def __init__(self, tessera, connect, places, log, seed):
        super().__init__(name=f"client-{seed}")
        self.tessera, self.connect, self.places, self.log = tessera, connect, places, log
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.kept = []
        self.ends = []  # (operation, workers, began, argument)
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.crash = None
        self.programs = {}

    def stop(self):
        self.stopping.set()

    def run(self):
        try:
            with self.connect() as client:
                while not self.stopping.is_set():
                    self.act(client)
                self.finish(client)
        except BaseException as error:  # pylint: disable=broad-except
            self.crash = error

    def act(self, client):
        if len(self.kept) < 3 or self.random.random() < 0.1:
            return self.put(client)
        if self.ends and self.random.random() < 0.05:
            return self.hear_end(client, *self.random.choice(self.ends[-ASKED_AGAIN:]))
        kept = self.random.choice(self.kept)
        choice = self.random.random()
        if choice < 0.45:
            self.increment(client, kept, donate=True)
        elif choice < 0.6:
            self.increment(client, kept, donate=False)
        elif choice < 0.7:
            self.reduce(client, kept)
        elif choice < 0.78:
            self.reshard(client, kept)
        elif choice < 0.9:
            self.read(client, kept)
        else:
            self.forget(client, kept)
        while len(self.kept) > 25:
            self.forget(client, self.kept[0])

    # Work. Each method is one call or two; what goes wrong goes to the log.
    def attempt(self, what, workers, call, argument=None):
        began = time.monotonic()
        try:
            return call()
        except self.tessera.Error as error:
            self.reasons[f"{what}: {error.reason or error.code}"] += 1
            self.log.add(Refused(what, began, time.monotonic(), workers, str(error), argument))
            return None

    def program(self, client, text, place):
        known = self.programs.get((text, place))
        if known is None:
            workers, devices = place
            mesh = self.tessera.Mesh({"x": len(devices)}, devices)
            known = self.attempt("compile", workers, lambda: client.compile(
                text.replace("N", str(len(devices))), mesh=mesh))
            if known is not None:
                self.programs[text, place] = known
        return known

    def keep(self, array, value, workers, born):
        self.kept.append(Kept(array, value, workers, born))

    def drop(self, kept):
        self.kept = [k for k in self.kept if k is not kept]

    def put(self, client):
        workers, devices = self.random.choice(self.places)
        value = np.full(8, self.random.randrange(1000), np.float32)
        born = time.monotonic()
        mesh = self.tessera.Mesh({"x": len(devices)}, devices)
        array = self.attempt("put", workers,
                             lambda: client.put(value, mesh, self.tessera.P("x")))
        if array is not None:
            self.counts["puts"] += 1
            self.keep(array, value, workers, born)

    def place_of(self, kept):
        return (kept.workers, tuple(kept.array.mesh.devices))

    def submit(self, client, text, kept, donate):
        """The run, once it has ended, and whether it is done; None where there is none."""
        program = self.program(client, text, self.place_of(kept))
        if program is None:
            return None, False
        began = time.monotonic()
        argument = kept.argument()
        run = self.attempt("execute", kept.workers,
                           lambda: program.submit(kept.array, donate=[0] if donate else []),
                           argument)
        if run is None:
            return None, False
        self.counts["runs"] += 1
        self.ends.append((run.id, kept.workers, began, argument))
        return run, self.hear_end(client, *self.ends[-1])

    def hear_end(self, client, operation, workers, began, argument):
        def wait():
            try:
                return client.operation(operation).wait(), ""
            except self.tessera.Error as error:
                status = client.operation(operation).status()
                if not status.ended:
                    raise
                return status, str(status.error or error)

        heard = self.attempt("wait", workers, wait, argument)
        if heard is None:
            return False
        status, error = heard
        self.log.add(Ended(operation, began, time.monotonic(), workers, status.state, error,
                           argument))
        if status.state != "DONE":
            self.reasons[f"run: {status.error.reason if status.error else status.state}"] += 1
        return status.state == "DONE"

    def increment(self, client, kept, donate):
        born = time.monotonic()
        run, done = self.submit(client, ADD, kept, donate)
        if run is None:
            # A refused run leaves its argument as it was, or that is lost.
            return self.read(client, kept)
        if donate and done:
            self.drop(kept)
        elif donate:
            # A failed run gives back what it was given, unless a process that had it was killed.
            self.read(client, kept)
        if done:
            self.keep(run.outputs[0], kept.value + 1, kept.workers, born)

    def reduce(self, client, kept):
        born = time.monotonic()
        run, done = self.submit(client, SUM, kept, donate=False)
        if done:
            self.read(client, Kept(run.outputs[0], np.float32(kept.value.sum()), kept.workers, born))

    def reshard(self, client, kept):
        workers, devices = self.random.choice(self.places)
        both = tuple(sorted({*workers, *kept.workers}))
        born = time.monotonic()
        mesh = self.tessera.Mesh({"x": len(devices)}, devices)
        moved = self.attempt("reshard", both,
                             lambda: client.reshard(kept.array, mesh, self.tessera.P("x")),
                             kept.argument())
        if moved is None:
            return
        self.counts["reshards"] += 1
        new = Kept(moved, kept.value, both, born, made_of=kept.argument())
        self.kept.append(new)
        self.read(client, new)
        if new in self.kept:
            # Since it could be read it depends on its own workers alone.
            new.workers, new.made_of = workers, None

    def read(self, client, kept):
        """Whether it is what it is to be; what cannot be read is not kept."""
        try:
            found = client.get(kept.array)
        except self.tessera.Error as error:
            self.drop(kept)
            self.reasons[f"read: {error.reason or error.code}"] += 1
            # Else what it was to be made of was lost, which may have been begun earlier.
            lost = f"array {kept.array.id} is lost" in error.message
            self.log.add(Read(kept.array.id, kept.born, time.monotonic(), kept.workers,
                              error=str(error), lost=lost, argument=kept.made_of))
            return
        self.counts["reads"] += 1
        right = np.array_equal(found, kept.value)
        if not right:
            self.drop(kept)
        self.log.add(Read(kept.array.id, kept.born, time.monotonic(), kept.workers, right=right))

    def forget(self, client, kept):
        self.drop(kept)
        if self.attempt("delete", kept.workers, lambda: (client.delete(kept.array), True)):
            self.counts["deletes"] += 1

    def finish(self, client):
        """All that is kept is read, and all that has ended is asked again."""
        for kept in list(self.kept):
            self.read(client, kept)
        for end in self.ends[-ASKED_AGAIN:]:
            self.hear_end(client, *end)
        known = frozenset(o.id for o in client.operations() if o.kind == "execute")
        self.log.add(Found(client.session, known, frozenset(o for o, *_ in self.ends)))


class CppWorker(threading.Thread):
    """The same in C++, in a process of its own, whose lines this thread reads."""

    def __init__(self, cluster, token, places, log, seed):
        super().__init__(name=f"client-{seed} (C++)")
        self.cluster, self.token, self.places, self.log, self.seed = cluster, token, places, log, seed
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.acknowledged = set()
        self.crash = None
        self.process = None
        self.begun = threading.Event()

    def stop(self):
        self.begun.wait(START_PATIENCE)
        try:
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended, which is told

    def run(self):
        errors = self.cluster.folder / f"client-{self.seed}.log"
        try:
            # The kernel ends it with this thread.
            with open(errors, "w") as log:
                self.process = subprocess.Popen(
                    daemons.dying_with_us([
                        daemons.bin_dir() / "kill_loop_client", self.cluster.address,
                        self.cluster.ca, self.seed, *map(_as_argument, self.places)]),
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                    env=environment(TESSERA_TOKEN=self.token))
            self.begun.set()
            with self.process:
                self.read_lines()
            if self.process.returncode != 0:
                raise AssertionError(f"it ended with {self.process.returncode}: "
                                     f"{errors.read_text()}")
        except BaseException as error:  # pylint: disable=broad-except
            self.crash = error

    def read_lines(self):
        for line in self.process.stdout:
            kind, *fields = line.rstrip("\n").split("\t")
            if kind == "finished":
                return self.look_at_its_session()
            getattr(self, "hear_" + kind)(*fields)
        raise AssertionError("it ended before it was told to")

    def look_at_its_session(self):
        with self.cluster.connect(self.token) as client:
            [session] = sessions_of(client, self.process.pid)
            known, token = set(), ""
            while True:
                page = client.call(API + "OperationService/ListOperations",
                                   {"session": session, "pageSize": 1000, "pageToken": token})
                known |= {int(o["id"]) for o in page.get("operations", [])
                          if o.get("kind") == "execute"}
                token = page.get("nextPageToken", "")
                if not token:
                    break
        if not known:
            raise AssertionError("nothing is known of its session")
        self.log.add(Found(int(session), frozenset(known), frozenset(self.acknowledged)))

    # What it says.
    def hear_did(self, what):
        self.counts[what] += 1

    def hear_acknowledged(self, operation):
        self.acknowledged.add(int(operation))

    def hear_ended(self, operation, began, at, workers, argument, state, reason, error):
        if state != "DONE":
            self.reasons[f"run: {reason or state}"] += 1
        self.log.add(Ended(int(operation), float(began), float(at), tuple(workers.split(",")), state,
                           error, _argument(argument)))

    def hear_refused(self, what, began, at, workers, argument, reason, error):
        self.reasons[f"{what}: {reason}"] += 1
        self.log.add(Refused(what, float(began), float(at), tuple(workers.split(",")), error,
                             _argument(argument)))

    def hear_read(self, array, born, at, workers, right):
        self.log.add(Read(int(array), float(born), float(at), tuple(workers.split(",")),
                          right=right == "right"))

    def hear_unread(self, array, born, at, workers, argument, reason, lost, error):
        self.reasons[f"read: {reason}"] += 1
        self.log.add(Read(int(array), float(born), float(at), tuple(workers.split(",")), error=error,
                          lost=lost == "lost", argument=_argument(argument)))


def _argument(field):
    array, _, born = field.partition("@")
    return Argument(int(array), float(born)) if born else None


def _as_argument(place):
    workers, devices = place
    return f"{','.join(workers)}:{','.join(map(str, devices))}"


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
    """`arrays` arrays on the safe worker, and `sessions` sessions. Returns the session of the former."""
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
    """How many arrays of the session there are, and those that are not ready."""
    count, wrong, token = 0, [], ""
    with cluster.connect() as client:
        while True:
            page = client.call(API + "ArrayService/ListArrays",
                               {"session": session, "pageSize": 1000, "pageToken": token})
            for array in page.get("arrays", []):
                count += 1
                if array["state"] != "READY":
                    wrong.append(array["id"])
            token = page.get("nextPageToken", "")
            if not token:
                return count, wrong


def _token(cluster, name, tenant):
    with cluster.connect() as client:
        return client.call(API + "AdminService/CreateToken",
                           {"name": name, "role": "user", "tenant": tenant})["text"]


def _places(cluster):
    """(workers, devices) on which clients work: one device, two of a worker, two and four of two
    workers, and the safe worker alone."""
    of = collections.defaultdict(list)
    for device in cluster.healthy_devices():
        of[device["worker"]].append(int(device.get("id", "0")))
    places = [((w,), (d[0],)) for w, d in of.items()] + [((w,), tuple(d)) for w, d in of.items()]
    names = sorted(of)
    for a, b in zip(names, names[1:]):
        places.append(((a, b), (of[a][0], of[b][0])))
        places.append(((a, b), (*of[a], *of[b])))
    return places, of


def run(flags):
    tessera = python_client()
    log = Log()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-kill-"))
    flags.folder = folder
    # The default lease: each coordinator that starts has 1,000 sessions and 10,000 arrays to read.
    with daemons.Cluster(workers=WORKERS, devices=2, secure=True,
                         coordinator_flags=[f"--state-dir={folder}/state",
                                            "--session-grace-ms=60000"]) as cluster:
        places, devices = _places(cluster)
        session = _fill(cluster, flags.arrays, flags.sessions, devices[SAFE])
        tokens = [_token(cluster, f"client-{t}", t) for t in ("red", "blue")]
        workers = [_worker(n, tessera, cluster, tokens[n // 2], places, log, flags.seed)
                   for n in range(CLIENTS)]
        for worker in workers:
            worker.start()
        killer = Killer(cluster, log, flags.seed)
        _kill(flags, killer, workers)
        cluster.await_devices(2 * WORKERS, 30)
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join(300)
        count, wrong = _not_ready(cluster, session)
        broken = violations(log.events)
        broken += [f"{w.name} ended with {w.crash!r}" for w in workers if w.crash is not None]
        broken += [f"{w.name} does not end" for w in workers if w.is_alive()]
        if (count, wrong) != (flags.arrays + 1, []):
            broken.append(f"of {flags.arrays + 1} arrays on {SAFE} {count} are there, and not ready "
                          f"are {wrong[:5]}")
        _tell(log, killer, workers, broken)
        if broken and flags.keep:
            kept = pathlib.Path(flags.keep)
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "history.txt").write_text("\n".join(map(repr, log.events)))
            (kept / "logs.txt").write_text(cluster.logs())
            print(f"the history and the logs are in {kept}")
    return 1 if broken else 0


def _worker(number, tessera, cluster, token, places, log, seed):
    if number % 2 == 1:
        return CppWorker(cluster, token, places, log, 1000 * seed + number)
    return Worker(tessera, _connector(tessera, cluster, token), places, log, 1000 * seed + number)


def _connector(tessera, cluster, token):
    return lambda: tessera.connect(cluster.address, ca=str(cluster.ca), token=token,
                                   timeout=CALL_PATIENCE)


def _kill(flags, killer, workers):
    end = time.monotonic() + 60 * flags.minutes
    pause = threading.Event()
    while (sum(killer.kills.values()) < flags.kills if flags.kills else time.monotonic() < end):
        if any(not w.is_alive() for w in workers):
            return  # it has crashed, which is told
        pause.wait(killer.random.uniform(1, 5))
        killer.kill_one()
        if sys.stdout.isatty():
            print(f"\r{sum(killer.kills.values())} kills", end="", flush=True)
    pause.wait(2)


def _tell(log, killer, workers, broken):
    counts, reasons = collections.Counter(), collections.Counter()
    for worker in workers:
        counts.update(worker.counts)
        reasons.update(worker.reasons)
    print("\nkills: " + ", ".join(f"{n} {k}" for k, n in sorted(killer.kills.items())))
    print("work: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    for reason, n in sorted(reasons.items()):
        print(f"  {n:5} {reason}")
    worst = {}
    for e in log.events:
        if isinstance(e, Measured):
            worst[e.what] = (max(worst.get(e.what, (0,))[0], e.seconds), e.bound)
    for what, (seconds, bound) in sorted(worst.items()):
        print(f"{what}: {seconds:.2f} s at worst (bound {bound:g} s)")
    print(f"{len(broken)} broken promises")
    alike = collections.defaultdict(list)
    for text in broken:
        alike[re.sub(r"\d+", "#", text)[:80]].append(text)
    for texts in list(alike.values())[:40]:
        print(f"  ! {texts[0][:500]}" + (f" (and {len(texts) - 1} like it)" if texts[1:] else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kills", type=int, default=0, help="so many, in place of minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arrays", type=int, default=10_000, help="on the worker that stays")
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--keep", metavar="DIR", default="build/kill_loop",
                        help="for the history and the logs of a run that broke a promise")
    flags = parser.parse_args()
    try:
        return run(flags)
    finally:
        shutil.rmtree(getattr(flags, "folder", "/nonexistent"), ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
