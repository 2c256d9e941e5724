"""Faults of processes that pause, freeze or start again."""
import contextlib
import os
import pathlib
import signal
import struct
import threading

import daemons
from promised_faults.harness import (API, DOUBLE, LONG, SUM, Background, Fault, Skip, Watch, alive,
                                     devices, error_of, read, run, sick, tessera, write)


class CoordinatorPauses(Fault):
    """Pauses the coordinator and steps its clock while a session has a short lease, an array and a
    run."""

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
        threading.Event().wait(seconds)  # the wait is the fault itself
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
        # The time is longer than a worker's lease, so whatever a late coordinator drops is dropped
        # by then.
        daemons.throughout(2 - watch.seconds(), lambda: lost.extend(sick(self.caller)))
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
            # An error without a reason would come from the end of this client's own patience.
            result.holds("the answer is the service's own",
                         error is not None and bool(error.reason), str(error))
            # The cancellation has 2 s, then the daemon kills the executor. A new executor is there
            # soon after.
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
        """Freezes an executor while nobody runs anything. The executor's device must become unready,
        and doctor must name the process."""
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
    """Asks the restarted coordinator for ids that the one before it made."""

    number, name = "3", "the coordinator restarts"

    def start(self):
        self.running, self.caller = self.cluster(coordinator_flags=self.flags())

    def flags(self):
        return []

    def make(self, number):
        """Makes an array, an executable, an operation and its result. Returns their ids."""
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
                    or "the coordinator has restarted since then" not in error.message):
                wrong.append(f"{what}: {error or 'it answers as if it were one of this life'}")
        result.none("old ids not told as such", wrong)


class CoordinatorWithFolderRestarts(CoordinatorRestarts):
    """With a state folder, the restarted coordinator knows what the one before it made, and runs go
    on."""

    number, name = "3f", "the coordinator restarts with its state folder"

    def flags(self):
        return [f"--state-dir={self.folder()}"]

    def round(self, result):
        array, executable, operation, output = self.make(1.0)
        self.running.restart_coordinator()
        result.took("all devices are ready", 10, Watch().until(
            lambda: len(self.running.healthy_devices()) == 4))
        self.caller = self.client(self.running)
        new = self.make(2.0)
        result.none("ids that come again",
                    {array, operation, output} & {new[0], new[2], new[3]})
        again = self.caller.call(API + "ProgramService/ExecuteProgram",
                                 {"executable": executable, "args": [array]})
        self.caller.call(API + "OperationService/WaitOperation",
                         {"operation": again["operation"], "timeout": "20s"})
        ended = self.caller.call(API + "OperationService/GetOperation", {"operation": operation})
        wrong = [f"array {name} is {value}, not {want}"
                 for name, want in ((array, 1.0), (output, 2.0), (again["outputs"][0], 2.0))
                 if (value := read(self.caller, name)) != [want] * 8]
        if ended["state"] != "OPERATION_STATE_DONE":
            wrong.append(f"operation {operation} is {ended['state']}, not done")
        result.none("what is not as it was", wrong)


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
