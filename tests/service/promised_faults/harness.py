"""Parts that the faults and their rounds share: clusters, programs, calls and waits."""
import base64
import contextlib
import importlib
import json
import os
import pathlib
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import daemons
import json_client

API = "tessera.v1."
FOUR = {"mesh": {"axes": [{"name": "x", "size": "4"}]}, "spec": {"dims": [{"axes": ["x"]}]},
        "devices": ["0", "1", "2", "3"]}
DOUBLE = """mesh (x=4)
func main(%a: f32[8] P('x')) -> (f32[8]) {
  %b = add(%a, %a)
  return %b
}
"""
# In this program every device needs data of every other device.
SUM = """mesh (x=4)
func main(%a: f32[4] P('x')) -> (f32[]) {
  %s = reduce_sum(%a) {dimensions=[0]}
  return %s
}
"""
# This program runs for minutes.
LONG = """mesh (x=4)
func main(%a: f32[4] P('x')) -> (f32[4]) {
  %last = scan(%a) {num_consts=0, num_carry=1, length=2000000000, reverse=false} with
    func step(%c: f32[4]) -> (f32[4]) {
      %s = sine(%c)
      return %s
    }
  return %last
}
"""


class Skip(Exception):
    """The fault cannot be caused on this machine; the text says why."""


def python_client():
    """Returns the Python client that was built together with the programs."""
    folder = str(daemons.bin_dir().parent / "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module("tessera")
    except ImportError as error:
        raise Skip(f"the target python_client is not built: {error}") from None


class Fault:
    """A fault. It owns everything that it starts; close() ends all of it."""

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
        """Starts what the rounds share."""

    def own(self, resource):
        """Returns the resource, which is closed together with this fault."""
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


# ---- Parts of rounds.
# --------------------------------------------------------------------------------


class Watch:
    """Measures the time since it was made."""

    def __init__(self):
        self._start = time.monotonic()

    def seconds(self):
        return time.monotonic() - self._start

    def until(self, condition, patience=30):
        """Waits for `condition` and returns the seconds since the start, or None if it never held.
        While a call in it fails, the condition counts as false."""
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
    """Does `work` again and again in a thread until the context is left. `failures` holds what it
    raised."""

    def __init__(self, work, pause=0.05):
        self.failures, self.times = [], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work, pause))

    def _run(self, work, pause):
        while not self._stop.is_set():
            try:
                work()
                self.times += 1
            except Exception as error:  # recorded in `failures`
                self.failures.append(f"{type(error).__name__}: {error}")
            self._stop.wait(pause)

    def tries(self):
        """Returns how often the work has been tried, with or without success."""
        return self.times + len(self.failures)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()


def error_of(call):
    """Returns the json_client.Error that the call raises, or None."""
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
    """Returns a text for each device that is not healthy."""
    return [f"device {d.get('id', '0')} of {d['worker']}: {d.get('reason')}" for d in devices(client)
            if not d.get("healthy")]


def live_operations(client, session):
    answer = client.call(API + "OperationService/ListOperations",
                         {"session": session, "liveOnly": True})
    return answer.get("operations", [])


def arrays_of(client, session):
    """Returns the arrays of a session."""
    arrays, token = [], ""
    while True:
        page = client.call(API + "ArrayService/ListArrays",
                           {"session": session, "pageSize": 1000, "pageToken": token})
        arrays += page.get("arrays", [])
        token = page.get("nextPageToken", "")
        if not token:
            return arrays


def sessions_of(client, pid):
    """Returns the sessions of the program with this process id."""
    found = client.call(API + "SessionService/ListSessions").get("sessions", [])
    return [s["id"] for s in found
            if re.search(rf"\b{pid}\b", s.get("displayName", "")) and s.get("id", "0") != "0"]


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children_of(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children")
            for child in task.read_text().split()]


def processor_time(pid):
    """Returns the seconds of processor time that a process has used, or 0 if it is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def environment(cluster=None, **more):
    """Returns the environment for a program that works on `cluster`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    env["TESSERA_METRICS_LISTEN"] = "off"
    if cluster is not None:
        env["TESSERA_ADDRESS"] = cluster.address
    return {**env, **more}


def tessera(cluster, *args, patience=15):
    """Runs `tessera` and returns all its output."""
    try:
        done = subprocess.run([daemons.bin_dir() / "tessera", *map(str, args)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=environment(cluster), timeout=patience, check=False)
    except subprocess.TimeoutExpired as expired:
        return f"no end after {patience} s: {expired.output}"
    return done.stdout


class Program:
    """A program that works on a cluster. It can be waited for by what it prints. close() kills it.

    binary  Its name in the folder of the programs, or an absolute path.
    stdin   The stdin of the process; None for that of this process.
    more    Variables of its environment.
    """

    def __init__(self, cluster, binary, *args, stdin=None, **more):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            daemons.dying_with_us([daemons.bin_dir() / binary, *args]), stdout=subprocess.PIPE,
            stderr=self.errors, env=environment(cluster, **more), cwd=daemons.ROOT, stdin=stdin)
        self.pid = self.process.pid
        self.said = ""

    def more(self, patience):
        """Reads more output. Returns False at its end."""
        ready, _, _ = select.select([self.process.stdout], [], [], patience)
        if not ready:
            raise AssertionError(f"it says no more: {self.said!r} {self.complaint()!r}")
        data = os.read(self.process.stdout.fileno(), 65536)
        self.said += data.decode(errors="replace")
        return bool(data)

    def await_text(self, pattern, patience=60):
        """Waits until the output matches the pattern, and returns the match."""
        while not (found := re.search(pattern, self.said)):
            if not self.more(patience):
                raise AssertionError(f"it ended: {self.said!r} {self.complaint()!r}")
        return found

    def document(self, patience=60):
        """Returns the JSON document that the program prints first."""
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
        """Waits for the end and returns the exit status. Meanwhile it reads the output."""
        end = time.monotonic() + patience
        while self.more(max(0.0, end - time.monotonic())):
            pass
        return self.process.wait(max(0.1, end - time.monotonic()))

    def children(self):
        return children_of(self.pid)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()
