"""Long calls of a linear-algebra library that end early: by a cancellation, by a deadline, and with
their client. The array of another tenant on the same executor must outlive each."""
import base64
import contextlib
import struct
import threading

import daemons
from promised_faults.harness import API, Fault, Program, Watch, alive, error_of

# The op, its result and the result's type, for programs whose time is spent in one call of the library.
OPS = {
    "eigh": ("%v, %w = eigh(%a) {lower=true}\n  return %w", "f32[N]"),
    "svd": ("%s, %u, %t = svd(%a) {full_matrices=false, compute_uv=true}\n  return %s", "f32[N]"),
    "qr": ("%q, %r = qr(%a) {full_matrices=false}\n  return %r", "f32[N,N]"),
}
MEMORY = 4 << 30
INTO_THE_CALL = 2  # seconds after the start of a run until the library has been called
DEADLINE = 4
TOLD_WITHIN = 3  # seconds: the grace period of a cancellation, and one more
NEXT_WITHIN = 5
PATIENCE = 60
SMALL = """func main(%a: f32[4]) -> (f32[4]) {
  %b = add(%a, %a)
  return %b
}
"""
# A client that starts a run and is killed.
CLIENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
import tessera
client = tessera.connect(sys.argv[2], ca=sys.argv[3], token=sys.argv[4])
run = client.compile(sys.argv[5]).submit()
print("running", run.id, flush=True)
run.wait(timeout=600)
"""


def program_of(call):
    """Returns the program of a call, such as ("eigh", 4000)."""
    op, size = call
    text, result = OPS[op]
    iota = "iota() {dtype=f32, shape=[N,N], iota_dimension="
    return (f"func main() -> ({result}) {{\n  %i = {iota}0}}\n  %j = {iota}1}}\n"
            f"  %m = multiply(%i, %j)\n  %n = add(%m, %i)\n  %a = sine(%n)\n  {text}\n}}\n"
            ).replace("N", str(size))


class LibraryCall(Fault):
    """A worker with one executor, where one tenant has an array and another makes the calls."""

    # Each call takes several seconds on one core.
    calls = (("eigh", 4000), ("svd", 3000), ("qr", 5000))

    def start(self):
        self.running, admin = self.cluster(
            workers=1, devices=1, secure=True, worker_flags=[f"--device-memory-bytes={MEMORY}"])
        self.tokens = [admin.call(API + "AdminService/CreateToken",
                                  {"name": tenant, "role": "user", "tenant": tenant})["text"]
                       for tenant in ("red", "blue")]
        self.caller, self.other = (self.connect(token) for token in self.tokens)
        self.array = None
        # The runs of a client that is gone go on for so many seconds.
        found = admin.call(API + "ClusterService/GetCapabilities")
        self.grace = int(found["sessionGraceMs"]) / 1000

    def connect(self, token):
        client = self.running.connect(token, new_connection=True)
        self._stack.callback(client.channel.close)
        return client

    def keep_array(self):
        """Makes the other tenant's array, if it is not there any more."""
        if self.array is None:
            spec = {"dtype": "f32", "shape": ["4"], "placement": {"spec": {}, "devices": ["0"], "mesh": {
                "axes": [{"name": "x", "size": "1"}]}}}
            data = base64.b64encode(struct.pack("<4f", 1, 2, 3, 4)).decode()
            self.array = self.other.call(API + "ArrayService/WriteArray",
                                         {"spec": spec, "data": data})["array"]

    def execute(self, call, **more):
        """Starts the call. Returns its operation."""
        compiled = self.caller.call(API + "ProgramService/CompileProgram",
                                    {"text": program_of(call), "devices": ["0"]})
        return self.caller.call(API + "ProgramService/ExecuteProgram",
                                {"executable": compiled["executable"], **more})["operation"]

    def state(self, operation):
        return self.caller.call(API + "OperationService/GetOperation", {"operation": operation})

    def into_the_call(self, operation):
        """Waits until the run is in the library's call."""
        daemons.eventually(lambda: self.state(operation)["state"] != "OPERATION_STATE_PENDING",
                           PATIENCE, "the run begins")
        threading.Event().wait(INTO_THE_CALL)  # no event marks that the library has been called
        state = self.state(operation)
        if state["state"] != "OPERATION_STATE_RUNNING":
            raise AssertionError(f"the call has ended already: {state}")

    def end_of(self, operation):
        return self.caller.call(API + "OperationService/WaitOperation",
                                {"operation": operation, "timeout": "30s"}, timeout=40)

    def round(self, result):
        for call in self.calls:
            what = "{} of {}".format(*call)
            self.keep_array()
            [executor] = self.running.executor_pids(0)
            self.cut_short(result, what, call)
            watch = Watch()
            failure = error_of(lambda: self.caller.call(
                API + "ProgramService/RunProgram", {"text": SMALL, "inputs": [[1, 2, 3, 4]],
                                                    "timeout": f"{PATIENCE}s"}, timeout=PATIENCE + 10))
            result.took(f"{what}: the next run works", NEXT_WITHIN,
                        None if failure else watch.seconds())
            # The executor would be killed within the grace period.
            result.holds(f"{what}: the executor is the same", alive(executor)
                         and self.running.executor_pids(0) == [executor], "it was started again")
            found = self.array_fault()
            result.none(f"{what}: another tenant's arrays that are lost", found)
            if found:
                self.array = None

    def array_fault(self):
        """Returns what is wrong with the other tenant's array, as a list."""
        try:
            read = self.other.call(API + "ArrayService/ReadArray",
                                   {"array": self.array, "json": True, "timeout": "10s"})["json"]
        except Exception as error:  # shown as the fault
            return [error]
        return [] if read == [1, 2, 3, 4] else [f"it holds {read}"]

    def cut_short(self, result, what, call):
        """Starts the call, ends it early, and records how long that took."""
        raise NotImplementedError


class LibraryCallCancelled(LibraryCall):
    number, name = "l1", "a library call is cancelled"

    def cut_short(self, result, what, call):
        operation = self.execute(call)
        self.into_the_call(operation)
        watch = Watch()
        self.caller.call(API + "OperationService/CancelOperation", {"operation": operation})
        ended = self.end_of(operation)
        over = ended["state"] == "OPERATION_STATE_CANCELLED"
        result.took(f"{what}: it ends cancelled", TOLD_WITHIN, watch.seconds() if over else None)


class LibraryCallPastItsDeadline(LibraryCall):
    number, name = "l2", "a library call is past its deadline"

    def cut_short(self, result, what, call):
        operation = self.execute(call, deadline=f"{DEADLINE}s")
        watch = Watch()
        ended = self.end_of(operation)
        over = ended.get("error", {}).get("code") == 4
        result.took(f"{what}: it ends at its deadline", DEADLINE + TOLD_WITHIN,
                    watch.seconds() if over else None)


class LibraryCallOfADeadClient(LibraryCall):
    number, name = "l3", "the client of a library call is killed"
    # These calls are still under way when the client's grace period is over.
    calls = (("eigh", 6000), ("svd", 5000), ("qr", 8000))

    def cut_short(self, result, what, call):
        python = daemons.bin_dir().parent / "python"
        client = Program(self.running, "/usr/bin/python3", "-B", "-c", CLIENT, python,
                         self.running.address, self.running.ca, self.tokens[0], program_of(call))
        with contextlib.closing(client):
            operation = client.await_text(r"running (\d+)\n").group(1)
            self.into_the_call(operation)
            client.process.kill()
            watch = Watch()
            result.took(f"{what}: it ends after its client", self.grace + TOLD_WITHIN, watch.until(
                lambda: self.state(operation)["state"] != "OPERATION_STATE_RUNNING",
                self.grace + PATIENCE))
