"""The steps of an upgrade of a cluster that serves, and clients that run meanwhile.

One client runs a chain: each run consumes the array that the previous run made, so the value of the
last array counts the runs. The other client runs a program on two workers, which exchange data.
Both count what was acknowledged. When a call gets one of the answers that docs/operating.md expects
during an upgrade, the client repeats the call, as the client libraries do. Any other failure is an
error.
"""
import threading
import time
import uuid

import daemons
import json_client

API = "tessera.v1."
CALL_PATIENCE = 30
STEP_PATIENCE = 60
CHAIN = """
func main(%x: f32[4]) -> (f32[4]) {
  %one = constant() {value=dense<f32[4]: 1>}
  %y = add(%x, %one)
  return %y
}
"""
# This program sums 0 to 7 over two devices.
SUM = """
mesh (i=2)
func main(%x: f32[8] P('i')) -> (f32[]) {
  %t = reduce_sum(%x) {dimensions=[0]}
  return %t
}
"""
# A call is made again if it gets one of these reasons while processes are replaced.
AGAIN = {"SERVER_STOPPING", "UNREACHABLE", "WORKER_LOST", "PEER_FAILED"}

BROKEN_OFF = {"UNAVAILABLE": "UNREACHABLE", "CANCELLED": "SERVER_STOPPING"}


def placement(device):
    return {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": [str(device)]}


class Clients:
    """Two clients that run in threads of their own until stop(). The chain begins on `device`."""

    def __init__(self, cluster, device):
        self.sums = 0  # runs over two workers that gave the right answer
        self.links = 0  # acknowledged ends of runs of the chain
        self.again = {}  # number of calls that were made again, by reason
        self.longest = 0.0  # longest time in seconds between two ends of either kind
        self.errors = []
        self._cluster = cluster
        self._mu = threading.Lock()
        self._last = time.monotonic()
        self._wanted = device  # device on which the chain is to run
        self._device = None
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(body,))
                         for body in (self._run_sums, self._run_chain)]
        for thread in self._threads:
            thread.start()

    def move_chain(self, device):
        """Tells the chain to move its array to another device, and waits until it has moved."""
        self._wanted = device
        daemons.eventually(lambda: self.errors or self._device == device, STEP_PATIENCE,
                           "the chain has moved")

    def await_more(self, count=3):
        """Waits until each client has finished `count` more runs."""
        sums, links = self.sums + count, self.links + count
        daemons.eventually(lambda: self.errors or (self.sums >= sums and self.links >= links),
                           STEP_PATIENCE, "clients go on")
        if self.errors:
            raise AssertionError(f"clients: {self.errors}")

    def stop(self):
        """Ends the clients and raises the errors that they have met."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * CALL_PATIENCE)
        if self.errors:
            raise AssertionError(f"clients: {self.errors}")

    def _guard(self, body):
        try:
            body()
        except BaseException as error:  # pylint: disable=broad-except
            self.errors.append(f"{body.__name__}: {error!r}")

    def _count(self, kind):
        with self._mu:
            now = time.monotonic()
            self.longest = max(self.longest, now - self._last)
            self._last = now
            setattr(self, kind, getattr(self, kind) + 1)

    def _call(self, method, request):
        """Makes a call, repeatedly if necessary, and returns the answer. Every try sends the same
        request."""
        end = time.monotonic() + STEP_PATIENCE
        while True:
            try:
                with self._cluster.connect() as client:
                    return client.call(API + method, request, timeout=CALL_PATIENCE)
            except json_client.Error as error:
                # An error without a reason means that the coordinator broke off or is not there.
                reason = error.reason or BROKEN_OFF.get(error.code)
                if reason not in AGAIN or time.monotonic() > end:
                    raise
                with self._mu:
                    self.again[reason] = self.again.get(reason, 0) + 1
            self._stop.wait(0.02)

    def _once(self, method, request):
        """Like _call, for a call that changes something. The request id makes the call take effect
        only once."""
        return self._call(method, {**request, "requestId": uuid.uuid4().hex})

    def _done(self, operation):
        while True:
            ended = self._call("OperationService/WaitOperation",
                               {"operation": operation, "timeout": "10s"})
            if ended["state"] not in ("OPERATION_STATE_PENDING", "OPERATION_STATE_RUNNING"):
                return ended

    def _run_sums(self):
        while not self._stop.is_set():
            answer = self._call("ProgramService/RunProgram", {"text": SUM, "inputs": [[*range(8)]]})
            if answer["outputs"] != [28]:
                raise AssertionError(answer)
            self._count("sums")

    def _compile(self, device):
        return self._call("ProgramService/CompileProgram",
                          {"text": CHAIN, "devices": [str(device)]})["executable"]

    def _run_chain(self):
        device = self._wanted
        executable = self._compile(device)
        spec = {"dtype": "f32", "shape": ["4"], "placement": placement(device)}
        array = self._once("ArrayService/WriteArray", {"spec": spec, "json": [0] * 4})["array"]
        self._device = device
        while not self._stop.is_set():
            if self._wanted != device:
                device = self._wanted
                executable = self._compile(device)
                moved = self._once("ArrayService/ReshardArray",
                                   {"array": array, "placement": placement(device)})
                ended = self._done(moved["operation"]["id"])
                if ended["state"] != "OPERATION_STATE_DONE":
                    raise AssertionError(f"the chain does not move: {ended}")
                self._call("ArrayService/DeleteArrays", {"arrays": [array]})
                array = moved["array"]["id"]
                self._device = device
            run = self._once("ProgramService/ExecuteProgram",
                             {"executable": executable, "args": [array], "donate": [True]})
            ended = self._done(run["operation"])
            if ended["state"] != "OPERATION_STATE_DONE":
                raise AssertionError(f"the chain ends: {ended}")
            [array] = run["outputs"]
            self._count("links")
        value = self._call("ArrayService/ReadArray", {"array": array, "json": True})["json"]
        if value != [self.links] * 4:
            raise AssertionError(f"{self.links} runs were acknowledged, the array says {value}")


def first_device(cluster, number):
    """Returns the lowest device id of a worker."""
    return min(int(d.get("id", "0")) for d in cluster.healthy_devices()
               if d["worker"] == f"w{number}")


def replace_worker(cluster, clients, number, other, bins=None):
    """Replaces worker `number` by a new process, with the programs in `bins` if that is given.
    Before that it moves the chain to worker `other`."""
    devices = len(cluster.healthy_devices())
    name = f"w{number}"
    clients.move_chain(first_device(cluster, other))
    with cluster.connect() as client:
        drained = client.call(API + "AdminService/DrainWorker",
                              {"worker": name, "reason": "upgrade", "timeout": "30s"})
        if int(drained.get("operations", "0")) != 0:
            raise AssertionError(f"it does not drain: {drained}")
    status = cluster.stop(name)
    if status != 0:
        raise AssertionError(f"{name} ends with {status}")
    clients.await_more()  # the clients go on without this worker
    if bins:
        cluster.bins[name] = bins
    cluster.start_worker(number)
    cluster.await_devices(devices)
    with cluster.connect() as client:
        client.call(API + "AdminService/UncordonWorker", {"worker": name})
    clients.await_more()


def replace_coordinator(cluster, clients, bins=None):
    """Replaces the coordinator by a new process with the same address and state. The workers
    connect to the new process."""
    devices = len(cluster.healthy_devices())
    status = cluster.stop("coordinator")
    if status != 0:
        raise AssertionError(f"the coordinator ends with {status}")
    if bins:
        cluster.bins["coordinator"] = bins
    cluster.start_coordinator()
    clients.await_more()
    # The clients may have gone on with only some of the workers.
    cluster.await_devices(devices)
