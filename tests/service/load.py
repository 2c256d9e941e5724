"""Clients that keep a cluster busy. kill_loop.py kills the cluster's processes meanwhile; soak.py
does not.

There are four clients of up to two tenants, two in Python and two in C++ (load_client.cc).
They put arrays, run programs with and without donation, reduce over several workers, reshard, read
and delete. They record everything that they do and see as events of kill_history.py. A client keeps
only a bounded part of what it has done, so that a client that works for hours does not grow by
itself.
"""
import collections
import random
import subprocess
import threading
import time

import daemons
import numpy as np
from kill_history import Argument, Ended, Found, Read, Refused
from promised_faults.harness import environment, python_client, sessions_of

API = "tessera.v1."
CLIENTS = 4  # every other client is in C++
CALL_PATIENCE = 60
START_PATIENCE = 30
END_PATIENCE = 300
ASKED_AGAIN = 200  # number of a client's runs whose end it asks for again
REMEMBERED = 10_000  # number of runs, of all clients together, that the coordinator remembers

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
    """The history of events. Threads may add to it at the same time."""

    def __init__(self):
        self._lock = threading.Lock()
        self.events = []

    def add(self, event):
        with self._lock:
            self.events.append(event)


class Acknowledged:
    """The ids of the last REMEMBERED runs of a client. The memory is allocated at once, because
    memory that grew with the runs would look like a leak of this process."""

    def __init__(self):
        self._ids = np.full(REMEMBERED, 0, np.uint64)
        self._count = 0

    def add(self, operation):
        self._ids[self._count % REMEMBERED] = operation
        self._count += 1

    def ids(self):
        return frozenset(self._ids[:self._count].tolist())


class Kept:
    """An array that a client has, with its value. If `made_of` is given, the array could not be
    read yet and may be lost together with that argument."""

    def __init__(self, array, value, workers, born, made_of=None):
        self.array, self.value, self.workers, self.born = array, value, workers, born
        self.made_of = made_of

    def argument(self):
        return Argument(self.array.id, self.born)


class PythonClient(threading.Thread):
    """A client in Python, in a thread of its own. It works until it is told to stop."""

    def __init__(self, tessera, connect, places, log, seed):
        super().__init__(name=f"client-{seed}")
        self.tessera, self.connect, self.places, self.log = tessera, connect, places, log
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.kept = []
        self.ends = collections.deque(maxlen=ASKED_AGAIN)  # (operation, workers, began, argument)
        self.acknowledged = Acknowledged()
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
            return self.hear_end(client, *self.random.choice(self.ends))
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

    # The methods for the work. Each makes one call or two and writes failures to the log.
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
        """Starts a run and waits for its end. Returns the run, or None if it was refused, and
        whether it succeeded."""
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
        self.acknowledged.add(run.id)
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
            # A refused run leaves its argument unchanged, unless the argument itself is lost. Read
            # it to see.
            return self.read(client, kept)
        if donate and done:
            self.drop(kept)
        elif donate:
            # A failed run gives its donated argument back, unless a process that held it was
            # killed.
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
            # Now that the array could be read, it depends only on its own workers.
            new.workers, new.made_of = workers, None

    def read(self, client, kept):
        """Reads an array and compares it with its value. Stops keeping an array that cannot be read
        or is wrong."""
        try:
            found = client.get(kept.array)
        except self.tessera.Error as error:
            self.drop(kept)
            self.reasons[f"read: {error.reason or error.code}"] += 1
            # Otherwise the array that it should have been made from was lost, which may be older.
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
        """Reads every kept array, and asks again for the end of every run."""
        for kept in list(self.kept):
            self.read(client, kept)
        for end in self.ends:
            self.hear_end(client, *end)
        known = frozenset(o.id for o in client.operations() if o.kind == "execute")
        self.log.add(Found(client.session, known, self.acknowledged.ids()))


class CppClient(threading.Thread):
    """Like PythonClient, but a C++ process does the work, and this thread reads the lines that it
    prints."""

    def __init__(self, cluster, token, places, log, seed):
        super().__init__(name=f"client-{seed} (C++)")
        self.cluster, self.token, self.places, self.log, self.seed = cluster, token, places, log, seed
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.acknowledged = Acknowledged()
        self.crash = None
        self.process = None
        self.begun = threading.Event()

    def stop(self):
        self.begun.wait(START_PATIENCE)
        try:
            self.process.stdin.write("stop\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the process has ended, which run() reports

    def run(self):
        errors = self.cluster.folder / f"client-{self.seed}.log"
        try:
            # The kernel kills the process when this thread ends.
            with open(errors, "w") as log:
                self.process = subprocess.Popen(
                    daemons.dying_with_us([
                        daemons.bin_dir() / "load_client", self.cluster.address,
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
        self.log.add(Found(int(session), frozenset(known), self.acknowledged.ids()))

    # One method for each kind of line that the process prints.
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


class Load:
    """The clients of a cluster, which must have certificates and tokens.

    tenants  Names of the tenants; each gets the same number of clients.
    devices  Lists of device ids, by worker.
    clients  The threads, PythonClient and CppClient in turns.
    """

    def __init__(self, cluster, log, seed, tenants=("red", "blue")):
        self.log = log
        self.devices = collections.defaultdict(list)
        for device in cluster.healthy_devices():
            self.devices[device["worker"]].append(int(device.get("id", "0")))
        places = _places(self.devices)
        tessera = python_client()
        tokens = [_token(cluster, f"client-{t}", t) for t in tenants]
        self.clients = []
        for n in range(CLIENTS):
            token, own_seed = tokens[n * len(tenants) // CLIENTS], 1000 * seed + n
            self.clients.append(
                CppClient(cluster, token, places, log, own_seed) if n % 2 == 1 else PythonClient(
                    tessera, _connector(tessera, cluster, token), places, log, own_seed))

    def start(self):
        for client in self.clients:
            client.start()

    def is_whole(self):
        """Returns whether every client is at work. stop() reports those that have crashed."""
        return all(client.is_alive() for client in self.clients)

    def num_runs(self):
        return sum(client.counts["runs"] for client in self.clients)

    def stop(self):
        """Returns what went wrong with the clients themselves."""
        for client in self.clients:
            client.stop()
        for client in self.clients:
            client.join(END_PATIENCE)
        return ([f"{c.name} ended with {c.crash!r}" for c in self.clients if c.crash is not None] +
                [f"{c.name} does not end" for c in self.clients if c.is_alive()])

    def tell(self):
        """Prints how much was done, and how often each call was refused for each reason."""
        counts, reasons = collections.Counter(), collections.Counter()
        for client in self.clients:
            counts.update(client.counts)
            reasons.update(client.reasons)
        print("work: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
        for reason, n in sorted(reasons.items()):
            print(f"  {n:5} {reason}")


def _token(cluster, name, tenant):
    with cluster.connect() as client:
        return client.call(API + "AdminService/CreateToken",
                           {"name": name, "role": "user", "tenant": tenant})["text"]


def _places(devices):
    """Returns the (workers, devices) on which clients work: one device of each worker, all devices
    of each worker, and one or all devices of each of two neighbouring workers."""
    places = [((w,), (d[0],)) for w, d in devices.items()]
    places += [((w,), tuple(d)) for w, d in devices.items()]
    names = sorted(devices)
    for a, b in zip(names, names[1:]):
        places.append(((a, b), (devices[a][0], devices[b][0])))
        places.append(((a, b), (*devices[a], *devices[b])))
    return places


def _connector(tessera, cluster, token):
    return lambda: tessera.connect(cluster.address, ca=str(cluster.ca), token=token,
                                   timeout=CALL_PATIENCE)
