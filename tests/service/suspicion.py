"""Stops processes and cuts links for a while, and checks that nobody takes silence for death.

    suspicion.py                   every case: 5 rounds, or 1 round of a case that stops something
                                   for longer than 30 s
    suspicion.py --rounds 20       20 rounds, or 5 rounds of the longer cases
    suspicion.py --only 2,16       only these cases; --list names all cases
    suspicion.py --jobs 4          so many rounds at a time, each with a cluster of its own
    suspicion.py --page docs/faults.md
                                   also writes the results to that page; other cases stay as they are

A round starts a cluster with the default options and two workers, puts some hundred arrays on them, and
lets two trainings run, one with the SDK and one with the Python client. Then something stands still for
some seconds. Afterwards every array is READY and holds its bytes, the trainings have the losses of
trainings to which nothing happened, every process is the one that it was, and the log of the coordinator
says who was away, and why.

The exit status is 1 if a round broke a promise, and 130 on ^C. In either case no process that was
started is left. The binaries are taken from TESSERA_BIN_DIR if that is set, and otherwise from
build/dev/bin.
"""
import argparse
import concurrent.futures
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

import containers
import daemons
import numpy as np
import promised_faults
import promises
import stopwatch
import tcp_proxy
from promised_faults.harness import API, arrays_of, python_client
from suspicion_cases import CASES, rounds_of
from training import PythonTraining, SdkTraining

BACK_WITHIN = 5  # seconds after the fault
GOES_ON_WITHIN = 10  # seconds after the fault, with the pauses between a client's attempts
STEPS_BEFORE = 5  # steps of each training before the fault
STEPS_AFTER = 3
PATIENCE = 60
RECONNECT = 30  # seconds for which clients look for a coordinator by default
ROUND_PATIENCE = 600
PER_RUN, RUNS = 75, 2  # arrays that one run makes, and runs on each worker
BIG = 1 << 18  # elements of one more array on each worker, which does not travel by the coordinator
DOUBLE = """func main(%a: f32[4]) -> (f32[4]) {
  %b = add(%a, %a)
  return %b
}
"""
SHOWN = 20  # lines of the coordinator's log that are printed after a broken promise
MARK = "measured: "  # begins the last line of a round's output, which is JSON


def evidence(log, suspect):
    """Returns the reasons why the suspect was away, according to the coordinator's log. "w1/0" names an
    executor, whose worker may be away instead."""
    worker = suspect.partition("/")[0]
    name = re.compile(rf" (worker={worker}|executor={worker}/\d+)( |$)")
    reasons = [re.search(r' why=(?:"((?:[^"\\]|\\.)+)"|([^"\s]+))', line) for line in log.splitlines()
               if re.search(r"\baway\b", line) and name.search(line)]
    return [found.group(1) or found.group(2) for found in reasons if found]


def lost(log):
    """Returns the lines of the coordinator's log that say that something is lost."""
    return [line for line in log.splitlines() if re.search(r"\b(worker|executor) lost\b", line)]


class Kept:
    """READY arrays on each worker, with the values that they must hold."""

    def __init__(self, client, devices):
        library = python_client()
        lines = "".join(f"  %c{i} = constant() {{value=dense<f32[64]: {i}>}}\n"
                        f"  %r{i} = add(%a, %c{i})\n" for i in range(PER_RUN))
        results = ", ".join(f"%r{i}" for i in range(PER_RUN))
        text = (f"mesh (x=N)\nfunc main(%a: f32[64] P('x')) -> ({', '.join(['f32[64]'] * PER_RUN)}) {{\n"
                f"{lines}  return {results}\n}}\n")
        self.client, self.arrays, self.first = client, [], []
        for number, ids in enumerate(devices.values()):
            mesh = library.Mesh({"x": len(ids)}, ids)
            program = client.compile(text.replace("N", str(len(ids))), mesh=mesh)
            for turn in range(RUNS):
                base = np.arange(64, dtype=np.float32) + 1000 * (RUNS * number + turn)
                made = program(client.put(base, mesh, library.P("x")))
                made[0].operation.wait()
                self.arrays += [(array, base + i) for i, array in enumerate(made)]
            self.first.append(made[0])
            big = np.arange(BIG, dtype=np.float32) + number
            self.arrays.append((client.put(big, mesh, library.P("x")), big))

    def not_ready(self, observer):
        """Returns a text for each array that is not READY."""
        states = {int(a["id"]): a["state"] for a in arrays_of(observer, str(self.client.session))}
        return [f"array {array.id} is {states.get(array.id, 'gone')}" for array, _ in self.arrays
                if states.get(array.id) != "READY"]

    def wrong(self):
        """Returns a text for each array that cannot be read or holds other bytes. It gives up after
        a few arrays that cannot be read."""
        found, unread = [], 0
        for array, value in self.arrays:
            try:
                if self.client.get(array, timeout=20).tobytes() != value.tobytes():
                    found.append(f"array {array.id} holds other bytes")
            except python_client().Error as error:
                found.append(f"array {array.id}: {error}")
                unread += 1
            if unread == 5:
                return found
        return found


class Scene:
    """A cluster with arrays and trainings, of one round of a case."""

    def __init__(self, case, number, stack):
        self.case, self.number = case, number
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tessera-suspicion-"))
        kind = containers.Cluster if case.contained else daemons.Cluster
        self.cluster = stack.enter_context(kind(
            workers=1 if case.worker_link else 2, coordinator_flags=[f"--state-dir={folder}/state"]))
        if case.worker_link:
            self.worker_link = stack.enter_context(tcp_proxy.Proxy(self.cluster.address))
            self.cluster.start_worker(1, coordinator=self.worker_link.address)
            self.cluster.await_devices(4, PATIENCE)
        self.observer = stack.enter_context(self.cluster.connect())
        address = self.cluster.address
        if case.link:
            self.link = stack.enter_context(tcp_proxy.Proxy(address))
            address = self.link.address
        devices = {"w0": [], "w1": []}
        for device in self.cluster.healthy_devices():
            devices[device["worker"]].append(int(device.get("id", "0")))
        self.client = stack.enter_context(python_client().connect(address))
        self.arrays = Kept(self.client, devices)
        places = devices["w0"] + (devices["w1"] if case.across else [])
        reconnect = RECONNECT if case.seconds < RECONNECT else case.seconds + PATIENCE
        self.trainings = [
            stack.enter_context(contextlib.closing(kind(address, places, reconnect)))
            for kind in (SdkTraining, PythonTraining)]
        self.waiting = self.start_waiting(devices["w1"][0]) if case.link else None
        self.log = self.cluster.folder / "coordinator.log"

    def start_waiting(self, device):
        """Starts a run whose argument nobody has written yet. Returns its operation."""
        program = self.client.compile(DOUBLE, mesh=python_client().Mesh({"x": 1}, [device]))
        spec = {"dtype": "f32", "shape": ["4"], "placement": {
            "mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": [str(device)]}}
        made = self.client.call("ArrayService/CreateArray",
                                {"spec": spec, "session": str(self.client.session)})
        # The handle of the array frees it when it is garbage-collected.
        self.argument = self.client.array(int(made["array"]))
        return program.submit(self.argument)

    def processes(self):
        pids = {name: self.cluster.daemon_pid(name) for name in ("coordinator", "w0", "w1")}
        return pids | {f"executors of w{w}": self.cluster.executor_pids(w) for w in (0, 1)}

    def measure(self, result):
        for training in self.trainings:
            if not training.go_on(STEPS_BEFORE, PATIENCE):
                raise AssertionError(f"{training.name} does not begin: {training.crash}")
        before = self.processes()
        steps = [len(t.losses) for t in self.trainings]
        with self.case.fault(self):
            threading.Event().wait(self.case.seconds)  # the wait is the fault itself
            made = [len(t.losses) - n for t, n in zip(self.trainings, steps)]
        watch = stopwatch.Stopwatch()
        result.took("the arrays are read again", BACK_WITHIN, self.read_again(watch))
        result.took("both trainings go on", GOES_ON_WITHIN, self.go_on(watch))
        if self.case.undisturbed:
            result.none("trainings that stood meanwhile",
                        [f"{t.name} made {n} steps in {self.case.seconds} s"
                         for t, n in zip(self.trainings, made) if n < self.case.seconds])
        if self.waiting:
            result.none("runs of the clients that were ended", self.waiting_fault())
        result.none("trainings without the losses of undisturbed ones",
                    filter(None, [t.fault() for t in self.trainings]))
        result.none("arrays that are not READY", self.arrays.not_ready(self.observer))
        result.none("arrays without their bytes", self.arrays.wrong())
        after = self.processes()
        result.none("processes that are others", [f"{name} is {after[name]} and was {pid}"
                                                  for name, pid in before.items() if after[name] != pid])
        result.none("losses in the coordinator's log", lost(self.log.read_text(errors="replace")))
        if self.case.suspect:
            found = evidence(self.log.read_text(errors="replace"), self.case.suspect)
            result.holds("the log says who was away, and why", found,
                         f"no line says that {self.case.suspect} was away, with a reason")

    def read_again(self, watch):
        """Returns when an array of each worker has been read and all devices are ready, or None."""
        try:
            for array in self.arrays.first:
                self.client.get(array)
            self.cluster.await_devices(4, PATIENCE)
        except (python_client().Error, AssertionError) as error:
            print(f"    not read again: {error}")
            return None
        return watch.unhindered()

    def go_on(self, watch):
        if all([t.go_on(STEPS_AFTER, PATIENCE) for t in self.trainings]):
            return watch.unhindered()
        return None

    def waiting_fault(self):
        """Returns how the waiting run has ended, as a list. Cancels it if it still waits."""
        found = self.observer.call(API + "OperationService/GetOperation",
                                   {"operation": str(self.waiting.id)})
        if found["state"] not in ("OPERATION_STATE_PENDING", "OPERATION_STATE_RUNNING"):
            return [f"it is {found['state']}: {found.get('error', {}).get('message')}"]
        self.waiting.cancel()
        return []

    def explain(self, keep):
        """Prints what the coordinator's log says about the suspicion, and keeps all logs if `keep` is
        a folder."""
        told = re.compile(r"\b(away|back|lost|silent|killed|failed|cancelled|not renewed|refused)\b")
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if told.search(line)]
        print("".join(f"      | {line[:300]}\n" for line in lines[:SHOWN]), end="")
        if keep:
            folder = pathlib.Path(keep)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"case{self.case.number}_round{self.number}.txt"
            path.write_text(self.cluster.logs())
            print(f"      the logs are in {path}")


def run_one(case, number, rounds, keep):
    """Runs one round in this process. Prints its lines, and at the end what it measured as JSON."""
    rows, skipped = {}, ""
    result = promises.Round(case, rows)
    label = f"[{case.number}] {case.name}, round {number} of {rounds}"
    scene = None
    with contextlib.ExitStack() as stack:
        def act():
            nonlocal scene
            scene = Scene(case, number, stack)
            scene.measure(result)
        try:
            promises.run_round(label, result, act)
        except promised_faults.Skip as skip:
            skipped = str(skip)
        if scene and result.failures:
            scene.explain(keep)
    print(MARK + json.dumps({
        "skipped": skipped, "failed": bool(result.failures),
        "rows": [[row.what, row.bound, *row.worst, row.passed] for row in rows.values()]}))


class Results:
    """Collects what the rounds of the cases measure."""

    def __init__(self):
        self.rows = {}
        self.passed = {}  # number of rounds by case; None if the case was skipped
        self.skipped = {}  # reasons, by case

    def add(self, case, outcome):
        """Adds the outcome of a round, which run_one() has printed."""
        if outcome["skipped"]:
            self.passed[case], self.skipped[case] = None, outcome["skipped"]
            return
        self.passed[case] = (self.passed.get(case) or 0) + (not outcome["failed"])
        for what, bound, measured, unit, holds in outcome["rows"]:
            row = self.rows.setdefault((case.number, what), promises.Row(case, what, bound))
            row.add(measured, unit, holds)

    def is_broken(self, rounds):
        return any(n not in (None, rounds[case]) for case, n in self.passed.items())

    def cells(self, case, rounds):
        """Returns the cells of the case in the page."""
        if self.passed[case] is None:
            return (f"left out: {self.skipped[case]}", "")
        times = [row.shown() for row in self.rows.values() if row.fault is case and row.worst[1] == "s"]
        return ("; ".join(times), f"{self.passed[case]} of {rounds[case]}")


HEADING = "## Suspicion is not death"
SECTION = f"""
{HEADING}

A process that stands still, or a link that is cut, is no loss. After each of these faults every array is
READY and holds its bytes, a training has the losses of a training to which nothing happened, no process
was started again, and the coordinator's log says who was away, and why. Arrays are read again in
{BACK_WITHIN} s after the fault, and trainings go on in {GOES_ON_WITHIN} s; these are the two measured times.
The options are the defaults; where the fault takes {RECONNECT} s or longer, the trainings look for the
coordinator for longer than by default (`reconnect`, TESSERA_RECONNECT).

Generated by `scripts/faults suspicion --rounds 20 --page docs/faults.md`.

| fault | measured, worst | passed |
| --- | --- | --- |
"""


def cells_of_page(text):
    """Returns the cells of each case in the page, by the case's name."""
    section = text.partition(f"\n{HEADING}\n")[2]
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: tuple(row[1:]) for row in rows[2:]}


def page(old, measured):
    """Returns the page `old` with the cells of `measured`, by the cases' names. The section of this
    script is the last of the page."""
    known = cells_of_page(old) | measured
    rows = [(case.name, *known.get(case.name, ("", ""))) for case in CASES]
    above = old.partition(f"\n{HEADING}\n")[0].rstrip("\n") + "\n"
    return above + SECTION + "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def outcome_of(said):
    """Splits the output of run_one() into what is printed and the outcome. A round that ended early has
    failed."""
    printed, mark, last = said.rpartition(MARK)
    if not mark:
        return said, {"skipped": "", "failed": True, "rows": []}
    return printed, json.loads(last)


class Processes:
    """The processes of the rounds that run now."""

    def __init__(self):
        self._lock = threading.Lock()
        self._running = set()
        self._stopping = False

    def run(self, case, number, rounds, keep):
        """Runs a round in a process of its own. Returns what it printed, and its outcome."""
        command = [sys.executable, "-B", __file__, "--one", f"{case.number},{number},{rounds}",
                   "--keep", keep]
        with self._lock:
            if self._stopping:
                raise concurrent.futures.CancelledError
            process = subprocess.Popen(daemons.dying_with_us(command), stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace")
            self._running.add(process)
        try:
            said, _ = process.communicate(timeout=ROUND_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            said += f"[{case.number}] {case.name}, round {number}: no end after {ROUND_PATIENCE} s\n"
        finally:
            with self._lock:
                self._running.discard(process)
        return outcome_of(said)

    def stop(self):
        with self._lock:
            self._stopping = True
            for process in self._running:
                process.terminate()


def run_all(cases, rounds, flags):
    """Runs the rounds of the cases, the longest first. Returns the results."""
    results, processes = Results(), Processes()
    work = [(case, n) for case in sorted(cases, key=lambda c: -c.seconds)
            for n in range(1, rounds[case] + 1)]
    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        asked = {pool.submit(processes.run, case, n, rounds[case], flags.keep): case
                 for case, n in work}
        try:
            for done in concurrent.futures.as_completed(asked):
                said, outcome = done.result()
                if outcome["skipped"]:
                    said += f"[{asked[done].number}] {asked[done].name}: skipped: {outcome['skipped']}\n"
                print(said, end="", flush=True)
                results.add(asked[done], outcome)
        except KeyboardInterrupt:
            processes.stop()
            pool.shutdown(cancel_futures=True)
            raise
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=None,
                        help="number of rounds of each case; a quarter of it for the longer cases")
    parser.add_argument("--only", metavar="N,N", help="numbers of the cases to run")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    parser.add_argument("--jobs", type=int, default=4, help="number of rounds at a time (4)")
    parser.add_argument("--page", type=pathlib.Path, help="page to write the results to")
    parser.add_argument("--keep", metavar="DIR", default="build/suspicion",
                        help="folder for the logs of rounds that broke a promise")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.list:
        print("\n".join(f"{c.number:>4} {c.name}" for c in CASES))
        return 0
    by_number = {c.number: c for c in CASES}
    for number in promises.SIGNALS:
        signal.signal(number, promises.unwind)
    try:
        if flags.one:
            number, *rest = flags.one.split(",")
            run_one(by_number[number], *map(int, rest), flags.keep)
            return 0
        chosen = flags.only.split(",") if flags.only else list(by_number)
        if flags.jobs < 1 or flags.rounds is not None and flags.rounds < 1 or not set(chosen) <= set(by_number):
            parser.error(f"--rounds and --jobs are at least 1; cases are 1 to {len(CASES)}")
        cases = [c for c in CASES if c.number in chosen]
        rounds = {case: rounds_of(case, flags.rounds) for case in cases}
        print(f"programs of {daemons.bin_dir()}", flush=True)
        results = run_all(cases, rounds, flags)
    except KeyboardInterrupt:
        print("suspicion: interrupted", file=sys.stderr)
        return 130
    print("\n" + promises.table(cases, results.passed, results.rows, rounds))
    if flags.page:
        old = flags.page.read_text() if flags.page.exists() else ""
        flags.page.write_text(page(old, {c.name: results.cells(c, rounds) for c in cases}))
    return 1 if results.is_broken(rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
