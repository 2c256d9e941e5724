"""A cluster of real daemons on free loopback ports, for tests in Python.

    with daemons.Cluster() as cluster:
        cluster.address          # of the coordinator
        cluster.kill_executor(0)

The daemons are those of TESSERA_BIN_DIR, else of build/dev/bin. The kernel kills them when the thread
that started them ends.
"""
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import grpc
import json_client

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
START_PATIENCE = 30


def bin_dir():
    return pathlib.Path(os.environ.get("TESSERA_BIN_DIR") or ROOT / "build/dev/bin")


def eventually(condition, patience=20, what=None):
    """What `condition` answers once that is true; AssertionError when it never is."""
    end = time.monotonic() + patience
    pause = threading.Event()
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not within {patience} s: {what or condition.__doc__}")
        pause.wait(0.02)


def throughout(seconds, look):
    """Calls `look` again and again for so long: what never happens, and what goes on."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < end:
        look()
        pause.wait(0.1)


def has_ended(pid):
    """Whether the process is gone, or a zombie that its parent has not waited for."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def dying_with_us(command):
    """`command`, which the kernel kills when the thread that starts it ends. A program sets that, not
    Python between fork and exec: threads of gRPC may hold locks there."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


def freeze(pid):
    """Stops the process, and returns when each of its threads stands: the signal takes its time."""
    os.kill(pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{pid}/task")
    eventually(lambda: {t.joinpath("stat").read_text().rpartition(") ")[2][0]
                        for t in threads.iterdir()} == {"T"}, what=f"process {pid} stands")


class Cluster:
    """Two workers, w0 and w1, with two CPU devices each, unless told otherwise.

    secure  With the certificates and tokens of `tessera init`: TLS on every link, `ca` is the
            authority's file and `token` an administrator's.
    environment  Of every daemon, beside this process's.
    environments  By name ("coordinator", "w0"), of that daemon only.
    bins    By name, the folder of that daemon's programs, where it is another than bin_dir(). May be
            changed before the daemon is started again.
    """

    def __init__(self, workers=2, devices=2, coordinator_flags=(), worker_flags=(), secure=False,
                 environment=None, environments=None, bins=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.processes = {}
        self.ca = self.token = None
        self._devices = devices
        self._coordinator_flags = list(coordinator_flags)
        self._worker_flags = list(worker_flags)
        self._environment = dict(environment or {})
        self._environments = dict(environments or {})
        self.bins = dict(bins or {})
        try:
            if secure:
                self._init(workers)
            self.address = self._start_coordinator("127.0.0.1:0")
            for w in range(workers):
                self.start_worker(w)
            self.await_devices(workers * devices, START_PATIENCE)
        except BaseException:
            print(self.logs())
            self.close()
            raise

    def _init(self, workers):
        pki = self.folder / "pki"
        names = [flag for w in range(workers) for flag in ("--worker", f"w{w}")]
        subprocess.run([bin_dir() / "tessera", "init", "--dir", pki, "--coordinator",
                        "localhost,127.0.0.1", *names], check=True, capture_output=True, timeout=60)
        self.ca = pki / "client/ca.pem"
        self.token = (pki / "client/token").read_text().strip()

    def _tls_flags(self, name):
        if self.ca is None:
            return []
        own = self.folder / "pki" / name
        flags = [f"--tls-ca-file={own}/ca.pem", f"--tls-cert-file={own}/cert.pem",
                 f"--tls-key-file={own}/key.pem"]
        return flags + ([f"--tokens-file={own}/tokens"] if name == "coordinator" else [])

    def connect(self, token=None, new_connection=False):
        """A client in JSON; with an administrator's token unless told otherwise. The clients of a process
        share a connection, except those with a `new_connection`."""
        options = [("grpc.use_local_subchannel_pool", 1)] if new_connection else []
        if self.ca is None:
            return json_client.Client(self.address, options=options)
        return json_client.Client(
            self.address, grpc.ssl_channel_credentials(self.ca.read_bytes()),
            [("authorization", f"Bearer {token or self.token}")], options=options)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.logs())
        self.close()

    def close(self):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
            if process.stdout:
                process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, name, binary, *flags, stdout=None):
        log = open(self.folder / f"{name}.log", "ab")
        env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        env["TESSERA_METRICS_LISTEN"] = "off"
        env.update(self._environment)
        env.update(self._environments.get(name, {}))
        with log:
            self.processes[name] = subprocess.Popen(
                dying_with_us([self.bins.get(name, bin_dir()) / binary, *flags]), stdout=stdout or log, stderr=log,
                env=env)
        return self.processes[name]

    def _start_coordinator(self, listen):
        process = self._start("coordinator", "tessera-coordinator", f"--listen={listen}",
                              *self._tls_flags("coordinator"), *self._coordinator_flags,
                              stdout=subprocess.PIPE)
        ready, _, _ = select.select([process.stdout], [], [], START_PATIENCE)
        line = process.stdout.readline().decode().strip() if ready else ""
        if not line.startswith("listening on "):
            raise AssertionError(f"the coordinator does not listen: {line!r}")
        return line.removeprefix("listening on ")

    def restart_coordinator(self):
        """Killed, and started again at its address."""
        process = self.processes["coordinator"]
        process.kill()
        process.wait()
        process.stdout.close()
        self._start_coordinator(self.address)

    def stop(self, name, patience=30):
        """Asks a daemon to stop, and waits for it; answers its exit status."""
        process = self.processes[name]
        process.terminate()
        status = process.wait(patience)
        if process.stdout:
            process.stdout.close()
        return status

    def start_coordinator(self):
        """Again at its address, once it has stopped."""
        self._start_coordinator(self.address)

    def start_worker(self, number, coordinator=None, flags=()):
        """Again under its name, if it was there before; `flags` are its own."""
        name = f"w{number}"
        self._start(name, "tessera-worker", f"--coordinator={coordinator or self.address}",
                    f"--name={name}",
                    f"--devices={self._devices}", "--device-memory-bytes=67108864",
                    "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0",
                    *self._tls_flags(name), *self._worker_flags, *flags)

    def healthy_devices(self):
        with self.connect() as client:
            devices = client.call("tessera.v1.ClusterService/ListDevices").get("devices", [])
        return [d for d in devices if d.get("healthy")]

    def await_devices(self, count, patience=20):
        eventually(lambda: len(self.healthy_devices()) == count, patience,
                   f"{count} healthy devices")

    def executor_pids(self, number):
        """The children of a worker's daemon that own devices."""
        daemon = self.processes[f"w{number}"].pid
        tasks = pathlib.Path(f"/proc/{daemon}/task").glob("*/children")
        return sorted(int(pid) for children in tasks for pid in children.read_text().split())

    def kill_worker(self, number):
        """The daemon, and its executors with it."""
        process = self.processes[f"w{number}"]
        process.kill()
        process.wait()

    def logs(self):
        return "\n".join(f"---- {log.name}\n{log.read_text(errors='replace')}"
                         for log in sorted(self.folder.glob("*.log")))
