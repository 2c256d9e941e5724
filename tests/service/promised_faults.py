"""The faults of promises.py: each is a class with a cluster and a round that breaks something in it."""
import base64
import contextlib
import importlib
import itertools
import json
import math
import os
import pathlib
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

import daemons
import json_client
import numpy

API = "tessera.v1."
FOUR = {"mesh": {"axes": [{"name": "x", "size": "4"}]}, "spec": {"dims": [{"axes": ["x"]}]},
        "devices": ["0", "1", "2", "3"]}
DOUBLE = """mesh (x=4)
func main(%a: f32[8] P('x')) -> (f32[8]) {
  %b = add(%a, %a)
  return %b
}
"""
# Every device needs what every other has.
SUM = """mesh (x=4)
func main(%a: f32[4] P('x')) -> (f32[]) {
  %s = reduce_sum(%a) {dimensions=[0]}
  return %s
}
"""
# Minutes of it.
LONG = """mesh (x=4)
func main(%a: f32[4] P('x')) -> (f32[4]) {
  %last = scan(%a) {num_consts=0, num_carry=1, length=100000000, reverse=false} with
    func step(%c: f32[4]) -> (f32[4]) {
      %s = sine(%c)
      return %s
    }
  return %last
}
"""


class Skip(Exception):
    """A fault that cannot be made here, and why."""


def python_client():
    """The Python client that was built beside the programs."""
    folder = str(daemons.bin_dir().parent / "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module("tessera")
    except ImportError as error:
        raise Skip(f"the target python_client is not built: {error}") from None


class Fault:
    """Owns what it starts; close() ends all of it."""

    number = name = None

    def __init__(self):
        self._stack = contextlib.ExitStack()
        try:
            self.start()
        except BaseException:
            self._stack.close()
            raise

    def close(self):
        self._stack.close()

    def start(self):
        """Brings up what rounds share."""

    def own(self, resource):
        """Closed with this."""
        return self._stack.enter_context(contextlib.closing(resource))

    def folder(self):
        path = pathlib.Path(tempfile.mkdtemp(prefix="tessera-promises-"))
        self._stack.callback(shutil.rmtree, path, ignore_errors=True)
        return path

    def cluster(self, **kwargs):
        cluster = self.own(daemons.Cluster(**kwargs))
        return cluster, self.client(cluster)

    def client(self, cluster):
        client = cluster.connect()
        self._stack.callback(client.channel.close)
        return client


# ---- What rounds are made of. -----------------------------------------------------------------------


class Watch:
    """The time since it was made."""

    def __init__(self):
        self._start = time.monotonic()

    def seconds(self):
        return time.monotonic() - self._start

    def until(self, condition, patience=30):
        """Seconds from the start until `condition` held; None if it never did. A call that fails
        does not hold."""
        def holds():
            with contextlib.suppress(json_client.Error):
                return condition()
            return False
        try:
            daemons.eventually(holds, patience, "it")
        except AssertionError:
            return None
        return self.seconds()


class Background:
    """Does `work` again and again in a thread until it is left; `failures` are what it raised."""

    def __init__(self, work, pause=0.05):
        self.failures, self.times = [], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work, pause))

    def _run(self, work, pause):
        while not self._stop.is_set():
            try:
                work()
                self.times += 1
            except Exception as error:  # told by `failures`
                self.failures.append(f"{type(error).__name__}: {error}")
            self._stop.wait(pause)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def error_of(call):
    """The json_client.Error that it raises, or None."""
    try:
        call()
    except json_client.Error as error:
        return error
    return None


def run(client, text, *inputs, timeout=20):
    return client.call(API + "ProgramService/RunProgram",
                       {"text": text, "inputs": list(inputs), "timeout": f"{timeout}s"},
                       timeout=timeout + 20)["outputs"]


def write(client, values, session="0"):
    spec = {"dtype": "f32", "shape": [str(len(values))], "placement": FOUR}
    data = base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
    return client.call(API + "ArrayService/WriteArray",
                       {"spec": spec, "data": data, "session": session})["array"]


def read(client, array):
    answer = client.call(API + "ArrayService/ReadArray", {"array": array, "timeout": "20s"})
    data = base64.b64decode(answer["literal"]["data"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def devices(client):
    return client.call(API + "ClusterService/ListDevices").get("devices", [])


def sick(client):
    """What is wrong with which device."""
    return [f"device {d.get('id', '0')} of {d['worker']}: {d.get('reason')}" for d in devices(client)
            if not d.get("healthy")]


def live_operations(client, session):
    answer = client.call(API + "OperationService/ListOperations",
                         {"session": session, "liveOnly": True})
    return answer.get("operations", [])


def sessions_of(client, pid):
    """Of the program with this process id."""
    found = client.call(API + "SessionService/ListSessions").get("sessions", [])
    return [s["id"] for s in found
            if re.search(rf"\b{pid}\b", s.get("displayName", "")) and s.get("id", "0") != "0"]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def environment(cluster=None, **more):
    """Of a program that works on `cluster`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env["TESSERA_METRICS_LISTEN"] = "off"
    if cluster is not None:
        env["TESSERA_ADDRESS"] = cluster.address
    return {**env, **more}


def tessera(cluster, *args, patience=15):
    """All that the command line says."""
    try:
        done = subprocess.run([daemons.bin_dir() / "tessera", *map(str, args)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment(cluster), timeout=patience, check=False)
    except subprocess.TimeoutExpired as expired:
        return f"no end after {patience} s: {expired.output}"
    return done.stdout


class Program:
    """A program on a cluster, whose lines of stdout are waited for. Closing it kills it."""

    def __init__(self, cluster, binary, *args):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            daemons.dying_with_us([daemons.bin_dir() / binary, *args]), stdout=subprocess.PIPE,
            stderr=self.errors, env=environment(cluster), cwd=daemons.ROOT)
        self.pid = self.process.pid
        self.said = ""

    def more(self, patience):
        """Reads on; False at the end."""
        ready, _, _ = select.select([self.process.stdout], [], [], patience)
        if not ready:
            raise AssertionError(f"it says no more: {self.said!r} {self.complaint()!r}")
        data = os.read(self.process.stdout.fileno(), 65536)
        self.said += data.decode(errors="replace")
        return bool(data)

    def await_text(self, pattern, patience=60):
        """The match of a pattern in what it says."""
        while not (found := re.search(pattern, self.said)):
            if not self.more(patience):
                raise AssertionError(f"it ended: {self.said!r} {self.complaint()!r}")
        return found

    def document(self, patience=60):
        """The JSON document that it prints first."""
        while True:
            try:
                return json.loads(self.said)
            except ValueError:
                if not self.more(patience):
                    raise AssertionError(f"it ended: {self.complaint()!r}") from None

    def complaint(self):
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")

    def wait(self, patience=60):
        """Its exit status; reads what it says meanwhile."""
        end = time.monotonic() + patience
        while self.more(max(0.0, end - time.monotonic())):
            pass
        return self.process.wait(max(0.1, end - time.monotonic()))

    def children(self):
        return [int(pid) for task in pathlib.Path(f"/proc/{self.pid}/task").glob("*/children")
                for pid in task.read_text().split()]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


# ---- A. Promises. -----------------------------------------------------------------------------------


class CoordinatorPauses(Fault):
    """A session with a short lease, an array in it and a run; then time goes wrong."""

    number, name = "1", "the coordinator pauses; the wall clock steps"
    LEASE = 5
    HOUR = 3600

    def start(self):
        folder = self.folder()
        self.step_file = folder / "step"
        self.step(0)
        shim = daemons.bin_dir() / "clock_step.so"
        if not shim.exists():
            raise Skip(f"{shim} is not built")
        self.running, self.caller = self.cluster(environment={
            "LD_PRELOAD": str(shim), "CLOCK_STEP_FILE": str(self.step_file)})
        self.renewer = self.client(self.running)
        self.session = self.caller.call(API + "SessionService/CreateSession",
                                        {"lease": f"{self.LEASE}s"})["id"]
        self.executable = self.caller.call(API + "ProgramService/CompileProgram",
                                           {"text": LONG})["executable"]

    def step(self, seconds):
        mode = "r+b" if self.step_file.exists() else "wb"
        with open(self.step_file, mode) as file:
            file.write(struct.pack("<q", seconds))

    def renew(self):
        self.renewer.call(API + "SessionService/RenewSession", {"session": self.session})

    def round(self, result):
        with Background(self.renew, pause=1) as renewals:
            for pause in (2.5, 10):
                self.try_it(result, f"pause of {pause} s", lambda: self.pause(pause))
            self.try_it(result, "clock an hour on", lambda: self.step(self.HOUR))
            self.try_it(result, "clock an hour back", lambda: self.step(0))
        result.none("renewals refused", renewals.failures)

    def pause(self, seconds):
        coordinator = self.running.processes["coordinator"]
        coordinator.send_signal(signal.SIGSTOP)
        time.sleep(seconds)  # The fault itself.
        coordinator.send_signal(signal.SIGCONT)

    def try_it(self, result, what, fault):
        values = [float(i) for i in range(8)]
        array = write(self.caller, values, self.session)
        arg = write(self.caller, [0.5] * 4, self.session)
        executors = [self.running.executor_pids(w) for w in (0, 1)]
        operation = self.caller.call(API + "ProgramService/ExecuteProgram", {
            "executable": self.executable, "args": [arg], "session": self.session})["operation"]
        fault()
        watch, lost = Watch(), []
        answered = watch.until(lambda: devices(self.caller))
        # Longer than a lease of a worker: what a late coordinator drops is dropped by then.
        while watch.seconds() < 2:
            lost += sick(self.caller)
            time.sleep(0.1)
        state = self.caller.call(API + "OperationService/GetOperation", {"operation": operation})
        if state["state"] not in ("OPERATION_STATE_RUNNING", "OPERATION_STATE_PENDING"):
            lost.append(f"the run is {state}")
        self.caller.call(API + "OperationService/CancelOperation", {"operation": operation})
        failure = error_of(lambda: lost.extend(
            [] if read(self.caller, array) == values else [f"array {array} holds others"]))
        lost += [str(failure)] if failure else []
        if [self.running.executor_pids(w) for w in (0, 1)] != executors:
            lost.append("executors are others")
        failure = error_of(lambda: write(self.caller, values, self.session))
        lost += [f"no new array: {failure}"] if failure else []
        result.none(f"{what}: lost", lost)
        result.took(f"{what}: answers within", 1, answered)
        if lost:
            raise AssertionError("the cluster is not what it was")
        self.caller.call(API + "ArrayService/DeleteArrays", {"arrays": [array, arg]})


class ExecutorFreezes(Fault):
    number, name = "2", "an executor freezes"
    TIMEOUT = 2

    def start(self):
        self.running, self.caller = self.cluster()
        self.observer = self.client(self.running)

    def executor(self, worker):
        return self.running.executor_pids(worker)[0]

    def healthy(self):
        return len([d for d in devices(self.observer) if d.get("healthy")]) == 4

    def round(self, result):
        assert run(self.caller, SUM, [1, 2, 3, 4]) == [10]
        frozen = self.executor(0)
        os.kill(frozen, signal.SIGSTOP)
        watch, answer = Watch(), {}

        def ask():
            answer["error"] = error_of(lambda: run(self.caller, SUM, [1, 2, 3, 4],
                                                   timeout=self.TIMEOUT))
            answer["after"] = watch.seconds()
        asking = threading.Thread(target=ask)
        asking.start()
        try:
            asking.join(30)
            result.took("a run with a timeout of 2 s answers", 3, answer.get("after"))
            error = answer.get("error")
            # Without a reason it would be our own patience that ended.
            result.holds("the answer is the service's own",
                         error is not None and bool(error.reason), str(error))
            # The cancel word has 2 s, then the daemon kills; a new one is there soon.
            result.took("the frozen one is killed", self.TIMEOUT + 4,
                        watch.until(lambda: not alive(frozen), 5))
            result.took("all devices are ready again", self.TIMEOUT + 7,
                        watch.until(self.healthy, 15))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(frozen, signal.SIGCONT)
            asking.join()
        later = []
        for _ in range(3):
            failure = error_of(lambda: later.append(run(self.caller, SUM, [1, 2, 3, 4])))
            later += [failure] if failure else []
        result.none("later runs that fail", [x for x in later if x != [10]])
        self.idle_freeze(result)

    def idle_freeze(self, result):
        """Nobody runs anything: the device is not ready, and doctor says which process it is."""
        frozen = self.executor(1)
        os.kill(frozen, signal.SIGSTOP)
        watch = Watch()
        try:
            result.took("a frozen device is not ready", 4,
                        watch.until(lambda: any("w1" in s for s in sick(self.observer)), 8))
            said = tessera(self.running, "doctor")
            result.holds("doctor names the executor", "w1/0" in said, said)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(frozen, signal.SIGCONT)
        result.took("a thawed device is ready", 15, Watch().until(self.healthy))


class CoordinatorRestarts(Fault):
    """What one life of the coordinator made, asked for in the next."""

    number, name = "3", "the coordinator restarts"

    def start(self):
        self.running, self.caller = self.cluster(coordinator_flags=self.flags())

    def flags(self):
        return []

    def make(self, number):
        """Ids of an array, an executable, an operation and its result."""
        array = write(self.caller, [number] * 8)
        executable = self.caller.call(API + "ProgramService/CompileProgram",
                                      {"text": DOUBLE})["executable"]
        executed = self.caller.call(API + "ProgramService/ExecuteProgram",
                                    {"executable": executable, "args": [array]})
        self.caller.call(API + "OperationService/WaitOperation",
                         {"operation": executed["operation"], "timeout": "20s"})
        return array, executable, executed["operation"], executed["outputs"][0]

    def round(self, result):
        old = self.make(1.0)
        self.running.restart_coordinator()
        result.took("all devices are ready", 10, Watch().until(
            lambda: len(self.running.healthy_devices()) == 4))
        self.caller = self.client(self.running)
        new = self.make(2.0)
        result.none("ids that come again", set(old) & set(new))
        array, executable, operation, output = old
        calls = {
            f"array {array}": lambda: read(self.caller, array),
            f"result {output}": lambda: self.caller.call(
                API + "ArrayService/GetArray", {"array": output}),
            f"executable {executable}": lambda: self.caller.call(
                API + "ProgramService/ExecuteProgram",
                {"executable": executable, "args": [new[0]]}),
            f"operation {operation}": lambda: self.caller.call(
                API + "OperationService/GetOperation", {"operation": operation})}
        wrong = []
        for what, call in calls.items():
            error = error_of(call)
            if (error is None or error.code != "NOT_FOUND"
                    or "the coordinator restarted" not in error.message):
                wrong.append(f"{what}: {error or 'it answers as if it were one of this life'}")
        result.none("old ids not told as such", wrong)


class CoordinatorWithFolderRestarts(CoordinatorRestarts):
    number, name = "3f", "the coordinator restarts with its state folder"

    def flags(self):
        return [f"--state-dir={self.folder()}"]


class ProcessNames(Fault):
    number, name = "5", "what ps and top show"

    def start(self):
        self.running, _ = self.cluster()

    def round(self, result):
        wrong, unnamed = [], []
        for worker in (0, 1):
            for pid in self.running.executor_pids(worker):
                process = pathlib.Path(f"/proc/{pid}")
                args = process.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode()
                if not args.startswith(f"tessera-executor w{worker}/0"):
                    wrong.append(f"args of {pid} are {args!r}")
                own = process.joinpath("comm").read_text().strip()
                if not own.startswith("tessera-exec"):
                    wrong.append(f"the name of {pid} is {own!r}")
                names = [t.joinpath("comm").read_text().strip()
                         for t in process.joinpath("task").iterdir() if t.name != str(pid)]
                unnamed += [n for n in names if n in ("exe", "tessera-worker")]
        result.none("executors without their names", wrong)
        result.none("threads of executors without names", unnamed)


class OddTypes(Fault):
    """Ops of types that few have, over the wire. They may be refused; nobody may die of them."""

    number, name = "6", "programs of odd types"
    TYPES = ("bool", "s8", "s16", "u8", "u16", "u64", "f16", "bf16", "c64", "c128", "f8e4m3fn",
             "f8e5m2")
    BODIES = {
        "iota": "%r = iota() {{dtype={t}, shape=[8], iota_dimension=0}}",
        "convert": "%i = iota() {{dtype=s32, shape=[8], iota_dimension=0}}\n"
                   "  %r = convert(%i) {{dtype={t}}}",
        "add": "%r = add(%a, %a)",
        "maximum": "%r = maximum(%a, %a)",
        "reduce_max": "%r = reduce_max(%a) {{dimensions=[0]}}",
        "reduce_sum": "%r = reduce_sum(%a) {{dimensions=[0]}}",
        "dot_general": "%r = dot_general(%a, %a) {{lhs_batching_dimensions=[], "
                       "rhs_batching_dimensions=[], lhs_contracting_dimensions=[0], "
                       "rhs_contracting_dimensions=[0]}}",
        "sine": "%r = sine(%a)",
    }
    SCALARS = ("reduce_max", "reduce_sum", "dot_general")

    def start(self):
        self.running, self.caller = self.cluster()

    def programs(self):
        for dtype, (op, body), cut in itertools.product(self.TYPES, self.BODIES.items(),
                                                        (False, True)):
            mesh, spec = ("mesh (x=4)\n", " P('x')") if cut else ("", "")
            whole = f"{dtype}[8]{spec}"
            given = "" if op in ("iota", "convert") else f"%a: {whole}"
            out = f"{dtype}[]" if op in self.SCALARS else whole
            yield dtype, op, (f"{mesh}func main({given}) -> ({out}) {{\n"
                              f"  {body.format(t=dtype)}\n  return %r\n}}\n")

    def attempt(self, dtype, text):
        """Compiles and runs it with zeros."""
        compiled = self.caller.call(API + "ProgramService/CompileProgram", {"text": text})
        size = {"bool": 1, "c64": 8, "c128": 16, "u64": 8}.get(
            dtype, 1 if "8" in dtype else 2) * 8
        args = [self.caller.call(API + "ArrayService/WriteArray", {
            "spec": spec, "data": base64.b64encode(bytes(size)).decode()})["array"]
            for spec in compiled.get("in", [])]
        ran = self.caller.call(API + "ProgramService/ExecuteProgram",
                               {"executable": compiled["executable"], "args": args})
        self.caller.call(API + "OperationService/WaitOperation",
                         {"operation": ran["operation"], "timeout": "20s"})
        self.caller.call(API + "ArrayService/DeleteArrays", {"arrays": args + ran["outputs"]})

    def round(self, result):
        kept, died, ours = write(self.caller, [7.0] * 8), [], []
        for dtype, op, text in self.programs():
            before = [self.running.executor_pids(w) for w in (0, 1)]
            error = error_of(lambda: self.attempt(dtype, text))
            if error is not None and error.code in ("INTERNAL", "UNKNOWN"):
                ours.append(f"{op} of {dtype}: {error}")
            if [self.running.executor_pids(w) for w in (0, 1)] != before:
                died.append(f"{op} of {dtype}")
                self.running.await_devices(4)
        result.none("programs that kill an executor", died)
        result.none("programs answered with INTERNAL", ours)
        result.holds("another's array is there", not error_of(lambda: read(self.caller, kept)),
                     "it is lost")


class SignedZeros(Fault):
    number, name = "7", "the largest and least of signed zeros"

    def start(self):
        self.running, self.caller = self.cluster()

    @staticmethod
    def reduction(op, size, placed):
        mesh, cut = (f"mesh (x={placed})\n", " P('x')") if placed > 1 else ("", "")
        return (f"{mesh}func main(%a: f32[{size}]{cut}) -> (f32[]) {{\n"
                f"  %r = {op}(%a) {{dimensions=[0]}}\n  return %r\n}}\n")

    @staticmethod
    def collective(op, devices_):
        return (f"mesh (x={devices_})\n"
                f"func main(%a: f32[{devices_}] P('x')) -> (f32[1]) {{\n"
                "  %r = manual_computation(%a) {in_specs=specs[P('x')], out_specs=specs[P()], "
                'manual_axes=["x"], check_vma=true} with\n'
                f"    func body(%b: f32[1]{{V:x}}) -> (f32[1]) mesh (x={devices_}:manual) {{\n"
                f'      %m = {op}(%b) {{axes=["x"]}}\n      return %m\n    }}\n  return %r\n}}\n')

    def round(self, result):
        wrong = []
        for first in (0.0, -0.0):
            pair = [first, -first]
            for kind, sign in (("max", 1.0), ("min", -1.0)):
                cases = [(f"reduce_{kind} of {n} on {d}", self.reduction(f"reduce_{kind}", n, d),
                          pair * (n // 2)) for n in (16, 4096) for d in (1, 2, 4)]
                cases.append((f"reduce_{kind} of 100000 on 1",
                              self.reduction(f"reduce_{kind}", 100_000, 1), pair * 50_000))
                cases += [(f"p{kind} on {d}", self.collective(f"p{kind}", d), pair * (d // 2))
                          for d in (2, 4)]
                for what, text, values in cases:
                    (found,) = run(self.caller, text, values)
                    found = found[0] if isinstance(found, list) else found
                    if found != 0 or math.copysign(1.0, found) != sign:
                        wrong.append(f"{what} of {pair}... is {found}")
        result.none("zeros of the wrong sign", wrong)


class LongCompile(Fault):
    """One client's long compile, and another's small programs beside it."""

    number, name = "8", "a long compile; a burst of restarts"
    LONG_ENOUGH = 4

    def start(self):
        self.running, self.caller = self.cluster()
        self.other = self.client(self.running)
        self.values = numpy.arange(8, dtype=numpy.float32)
        self.serial = 0
        self.steps = 2000  # of the long program; more where the machine is fast

    def long_program(self):
        """Many kernels, none like another; never the same program twice."""
        self.serial += 1
        lines = ["%v0 = sine(%a)"]
        for i in range(self.steps):
            lines += [
                f"%s{i} = slice(%v{i}) {{start_indices=[0], limit_indices=[{64 - i % 7}], "
                "strides=[1]}",
                f"%t{i} = tanh(%s{i})",
                f"%r{i} = reduce_sum(%t{i}) {{dimensions=[0]}}",
                f"%c{i} = constant() {{value=dense<f32[]: {100_000 * self.serial + i}>}}",
                f"%q{i} = multiply(%r{i}, %c{i})",
                f"%b{i} = broadcast_in_dim(%q{i}) {{shape=[64], broadcast_dimensions=[]}}",
                f"%v{i + 1} = add(%b{i}, %v{i})"]
        body = "\n  ".join(lines)
        return f"func main(%a: f32[64]) -> (f32[64]) {{\n  {body}\n  return %v{self.steps}\n}}\n"

    def small_program(self):
        self.serial += 1
        return ("func main(%a: f32[]) -> (f32[]) {\n"
                f"  %c = constant() {{value=dense<f32[]: {self.serial}>}}\n"
                "  %s = add(%a, %c)\n  %r = multiply(%s, %s)\n  return %r\n}\n")

    def beside(self):
        """Seconds that small programs took while a long one was compiled, and the long one itself."""
        text, long = self.long_program(), {}

        def compile_long():
            watch = Watch()
            long["error"] = error_of(lambda: run(self.caller, text, [0.5] * 64, timeout=30))
            long["after"] = watch.seconds()
        thread = threading.Thread(target=compile_long)
        thread.start()
        small = []
        try:
            time.sleep(0.3)  # Until it compiles.
            while "after" not in long and len(small) < 20:
                watch = Watch()
                run(self.other, self.small_program(), 1.0)
                small.append(watch.seconds())
        finally:
            thread.join()
        # On a busy machine it may be too long; it was there all the same.
        if long["error"] and long["error"].code != "DEADLINE_EXCEEDED":
            raise AssertionError(f"the long one failed: {long['error']}")
        return small, long["after"]

    def round(self, result):
        small, long = self.beside()
        while long < self.LONG_ENOUGH:
            self.steps *= 2
            small, long = self.beside()
        result.took("a small program beside a long compile", 1.5, max(small, default=None))
        self.burst(result)

    def burst(self, result):
        """Clients bring and fetch bytes by ticket while executors are killed."""
        library = python_client()

        def put_and_get(client):
            client.get(client.put(self.values, library.Mesh({"x": 4}), library.P("x")))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(library.connect(self.running.address, timeout=10))
                       for _ in range(3)]
            working = [stack.enter_context(Background(lambda c=c: put_and_get(c), pause=0))
                       for c in clients]
            for kill in range(6):
                for pid in daemons.eventually(lambda: self.running.executor_pids(kill % 2)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.3)
            result.took("all devices are ready after the burst", 15,
                        Watch().until(lambda: len(self.running.healthy_devices()) == 4))
        failures = [f for b in working for f in b.failures]
        result.none("PERMISSION_DENIED in a burst of restarts",
                    [f for f in failures if "Permission" in f or "TICKET" in f])


# ---- B. A stranger's hour. --------------------------------------------------------------------------


class ProgramsEnd(Fault):
    number, name = "16", "a program of the SDK ends"
    KEEPALIVE, GRACE = 1, 5

    def start(self):
        if not (daemons.bin_dir() / "promises_client").exists():
            raise Skip(f"{daemons.bin_dir()}/promises_client is not built")
        self.running, self.caller = self.cluster(coordinator_flags=[
            f"--keepalive-ms={1000 * self.KEEPALIVE}",
            f"--keepalive-timeout-ms={1000 * self.KEEPALIVE}"])

    def round(self, result):
        # Of a device's 64 MiB: a second one has no room beside what the first has left.
        for turn in ("first", "second"):
            program = Program(self.running, "promises_client", "hold", 40)
            with contextlib.closing(program):
                program.await_text("ready")
                status = program.wait()
                watch = Watch()
                result.holds(f"the {turn} of two programs works", status == 0, program.complaint())
                result.took(f"the session of the {turn} is gone", 1,
                            watch.until(lambda: not sessions_of(self.caller, program.pid)))
        for number, bound in ((signal.SIGINT, 2), (signal.SIGTERM, 2),
                              (signal.SIGKILL, self.GRACE + 2 * self.KEEPALIVE + 1)):
            self.killed(result, number, bound)

    def killed(self, result, number, bound):
        name = signal.Signals(number).name
        with contextlib.closing(Program(self.running, "promises_client", "queue", 4)) as program:
            program.await_text("ready")
            (session,) = sessions_of(self.caller, program.pid)
            daemons.eventually(lambda: live_operations(self.caller, session), what="a run")
            watch = Watch()
            program.process.send_signal(number)

            def ended():
                if session not in sessions_of(self.caller, program.pid):
                    return True
                return number == signal.SIGKILL and not live_operations(self.caller, session)
            what = "its runs end" if number == signal.SIGKILL else "its session is gone"
            result.took(f"{name}: {what}", bound, watch.until(ended, 20))
        # Nothing of it holds a device.
        watch = Watch()
        failure = error_of(lambda: run(self.caller, SUM, [1, 2, 3, 4]))
        result.took(f"after {name}: another's run", 2, None if failure else watch.seconds())


class Files(Fault):
    number, name = "17", "saving and loading"

    def start(self):
        self.files = self.folder()
        self.running, self.caller = self.cluster(worker_flags=[f"--files-dir={self.files}"])
        self.small = self.folder()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.small],
                                 capture_output=True, text=True, check=False)
        self.full = None
        if mounted.returncode == 0:
            self._stack.callback(subprocess.run, ["umount", "-l", self.small], check=False)
            self.full = self.cluster(worker_flags=[f"--files-dir={self.small}"])
        self.apart = self.cluster(workers=0)
        for worker in (0, 1):
            self.apart[0]._worker_flags = [f"--files-dir={self.folder()}"]
            self.apart[0].start_worker(worker)
        self.apart[0].await_devices(4)
        self.serial = 0

    def operation(self, client, operation):
        return client.call(API + "OperationService/WaitOperation",
                           {"operation": operation["id"], "timeout": "60s"})

    def save(self, client, array, path):
        """The ended operation, or the error of the call."""
        request = {"path": path, "arrays": [{"name": "a", "array": array}]}
        try:
            return self.operation(client, client.call(API + "ArrayService/SaveArrays", request))
        except json_client.Error as error:
            return {"state": "OPERATION_STATE_FAILED",
                    "error": {"message": error.message, "details": error.details}}

    def load(self, client, path):
        answer = client.call(API + "ArrayService/LoadArrays", {
            "path": path, "arrays": [{"name": "a", "placement": FOUR}]})
        self.operation(client, answer["operation"])
        return read(client, answer["arrays"][0]["id"])

    def round(self, result):
        self.serial += 1
        values = [float(i * self.serial) for i in range(16)]
        path = f"promises/{self.serial}.safetensors"
        saved = self.save(self.caller, write(self.caller, values), path)
        result.holds("what was saved is loaded",
                     saved["state"] == "OPERATION_STATE_DONE"
                     and self.load(self.caller, path) == values, str(saved))
        if self.full:
            self.no_space(result)
        self.not_shared(result, values)
        self.resume(result)

    def resume(self, result):
        """mlp_digits goes on from where it was killed."""
        args = ["--mesh", "data=2,model=2", "--no-explain", "--checkpoint",
                f"promises/mlp-{self.serial}.safetensors", "--epochs", "8"]
        with contextlib.closing(Program(self.running, "mlp_digits", *args)) as first:
            first.await_text(r"epoch +3/")
            first.process.kill()
            first.process.wait()
            while first.more(5):
                pass
            reached = max(map(int, re.findall(r"epoch +(\d+)/", first.said)))
        with contextlib.closing(Program(self.running, "mlp_digits", *args)) as second:
            status = second.wait()
            epochs = [int(e) for e in re.findall(r"epoch +(\d+)/", second.said)]
            result.holds("mlp_digits resumes after kill -9",
                         status == 0 and epochs and 1 < epochs[0] <= reached + 1
                         and epochs[-1] == 8,
                         f"exit {status}, killed in epoch {reached + 1}, then {epochs}: "
                         f"{second.complaint()}")

    def no_space(self, result):
        _, client = self.full
        array = write(client, [1.0] * (1 << 18))  # 1 MiB
        ended = self.save(client, array, f"{self.serial}.safetensors")
        result.holds("a full disk is NO_SPACE",
                     ended["state"] == "OPERATION_STATE_FAILED"
                     and "NO_SPACE" in json.dumps(ended.get("error", {})), json.dumps(ended))
        client.call(API + "ArrayService/DeleteArrays", {"arrays": [array]})
        # Apart from the workers' own mark on the folder.
        left = [str(p) for p in self.small.rglob("[!.]*") if p.is_file()]
        result.none("files left by a save that failed", left)

    def not_shared(self, result, values):
        """Every worker has a folder of its own: it works, or the answer comes at once."""
        _, client = self.apart
        array = write(client, values)
        path = f"apart-{self.serial}.safetensors"
        watch = Watch()
        ended = self.save(client, array, path)
        result.took("without shared files: saved or refused", 5, watch.seconds())
        if ended["state"] == "OPERATION_STATE_DONE":
            back = []
            failure = error_of(lambda: back.extend(self.load(client, path)))
            result.holds("without shared files: what was saved is loaded", back == values,
                         str(failure))
        client.call(API + "ArrayService/DeleteArrays", {"arrays": [array]})


class WorkersDie(Fault):
    number, name = "19", "a worker dies under up and under join"
    # The pause before the first start anew is a second.
    BACK = 5

    def bring_up(self):
        """New ones for every round: what ends again and again is given longer pauses."""
        self.state = self.folder()
        self.up = self.own(Program(None, "tessera", "--json", "up", f"--dir={self.state}/up",
                                   "--listen=127.0.0.1:0", "--name=here", "--devices=2"))
        said = self.up.document()
        self.address, self.token = (said["joinCommand"].split()[k] for k in (2, 4))
        ca = pathlib.Path(said["caFile"]).read_bytes()
        bearer = pathlib.Path(said["tokenFile"]).read_text().strip()
        self.caller = json_client.Client(self.address,
                                         json_client.grpc.ssl_channel_credentials(ca),
                                         [("authorization", f"Bearer {bearer}")])
        self._stack.callback(self.caller.channel.close)
        self.joined = self.own(self.join("first"))
        self.joined.document()
        daemons.eventually(lambda: self.healthy() == ["here", "here", "there"], 30, "three devices")

    def join(self, folder, *args):
        return Program(None, "tessera", "--json", "join", self.address,
                       f"--token={self.token}", f"--dir={self.state}/{folder}", "--name=there",
                       "--devices=1", "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0",
                       *args)

    def healthy(self):
        return sorted(d["worker"] for d in devices(self.caller) if d.get("healthy"))

    @staticmethod
    def worker_of(program):
        """The process id of the worker's daemon."""
        for pid in program.children():
            args = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if args[0].endswith(b"tessera-worker"):
                return pid
        raise AssertionError("it has no worker")

    def round(self, result):
        self.bring_up()
        try:
            self.kill_and_join(result)
        finally:
            self._stack.close()

    def kill_and_join(self, result):
        everybody = ["here", "here", "there"]
        for how, program, name in (("up", self.up, "here"), ("join", self.joined, "there")):
            os.kill(self.worker_of(program), signal.SIGKILL)
            watch = Watch()
            result.took(f"{how}: the loss is seen", 2,
                        watch.until(lambda: name not in self.healthy()))
            result.took(f"{how}: the worker is back", self.BACK,
                        watch.until(lambda: self.healthy() == everybody))
            result.holds(f"{how}: it goes on", program.process.poll() is None, program.complaint())
        before = self.worker_of(self.joined)
        absences = []
        with contextlib.closing(self.join("second")) as second:
            watch, status = Watch(), None
            while status is None and watch.seconds() < 15:
                status = second.process.poll()
                if self.healthy() != everybody:
                    absences.append(f"after {watch.seconds():.1f} s only {self.healthy()}")
                time.sleep(0.1)
            result.took("a second join under a name ends", 10,
                        None if status is None else watch.seconds())
            result.holds("it fails and names the worker",
                         status not in (0, None) and "there" in second.complaint(),
                         f"exit {status}: {second.complaint()} {second.said}")
        result.none("the first one's absences", absences)
        result.holds("the first one's daemon is the same", self.worker_of(self.joined) == before)


ALL = (CoordinatorPauses, ExecutorFreezes, CoordinatorRestarts, CoordinatorWithFolderRestarts,
       ProcessNames, OddTypes, SignedZeros, LongCompile, ProgramsEnd, Files, WorkersDie)
