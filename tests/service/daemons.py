"""A cluster of real daemons on free loopback ports, for tests in Python.

    with daemons.Cluster() as cluster:
        cluster.address          # address of the coordinator
        cluster.kill_worker(0)

The daemons are taken from TESSERA_BIN_DIR if that is set, and otherwise from build/dev/bin. The
kernel kills them when the thread that started them ends.
"""
import contextlib
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
    """Returns the result of `condition` once it is true. Raises AssertionError if it stays
    false."""
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
    """Calls `look` again and again for `seconds`. `look` checks that something never happens or goes on
    happening."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < end:
        look()
        pause.wait(0.1)


def has_ended(pid):
    """Returns whether the process is gone, or is a zombie that its parent has not waited for."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # raised by open, or by read if the process ends in between
        return True
    return stat.rsplit(")", 1)[1].split()[0] == "Z"


def children(pid):
    """Returns the process ids of the children of all threads of a process. Threads that end meanwhile are left out."""
    found = []
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, file.read_text().split())
    return sorted(found)


def process_title(pid):
    """Returns the first argument of a process, which ps shows; "" if the process has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    return ""


def dying_with_us(command):
    """Returns `command` with a prefix that makes the kernel kill it when the thread that starts it
    ends. The program setpriv does this, because Python code between fork and exec could wait for a
    lock that a thread of gRPC holds."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]


def freeze(pid):
    """Stops the process with a signal. Returns when each of its threads has stopped, which takes a
    while."""
    os.kill(pid, signal.SIGSTOP)
    threads = pathlib.Path(f"/proc/{pid}/task")
    eventually(lambda: {t.joinpath("stat").read_text().rpartition(") ")[2][0]
                        for t in threads.iterdir()} == {"T"}, what=f"process {pid} stands")


class Cluster:
    """A cluster of daemons: by default two workers, w0 and w1, with two CPU devices each.

    gpus    Number of GPUs of each worker, in place of CPU devices. They are the fakes of tests/fakes.
    secure  Use the certificates and tokens of `tessera init`, with TLS on every link. `ca` is then
        the path of the authority's certificate, and `token` an administrator's token.
    environment  Variables of every daemon, in addition to those of this process.
    environments  Variables of single daemons, by name ("coordinator", "w0").
    bins    Folders of programs by daemon name, for daemons that do not use bin_dir(). May be
        changed before a daemon is started again.
    """

    def __init__(self, workers=2, devices=2, coordinator_flags=(), worker_flags=(), secure=False,
                 environment=None, environments=None, bins=None, gpus=0):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.processes = {}
        self.ca = self.token = None
        self._devices = devices
        self._gpus = gpus
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
            self.await_devices(workers * (gpus or devices), START_PATIENCE)
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
        """Returns a JSON client, with an administrator's token unless `token` is given. The clients
        of a process share a connection, except those with `new_connection`."""
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

    def _command(self, name, binary, flags):
        """Returns the command that starts a daemon. A derived class may start it elsewhere."""
        return dying_with_us([self.bins.get(name, bin_dir()) / binary, *flags])

    def _start(self, name, binary, *flags, stdout=None):
        log = open(self.folder / f"{name}.log", "ab")
        env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        env["TESSERA_METRICS_LISTEN"] = "off"
        if self._gpus:
            fakes = bin_dir().parent / "fakes"
            env.update({f"TESSERA_CUDA_{name}": str(fakes / f"libfake{library}.so") for name, library in
                        {"DRIVER": "cuda", "NCCL": "nccl", "CUBLASLT": "cublaslt", "NVML": "nvml"}.items()})
        env.update(self._environment)
        env.update(self._environments.get(name, {}))
        with log:
            self.processes[name] = subprocess.Popen(self._command(name, binary, flags),
                                                    stdout=stdout or log, stderr=log, env=env)
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
        """Kills the coordinator and starts it again at the same address."""
        process = self.processes["coordinator"]
        process.kill()
        process.wait()
        process.stdout.close()
        self._start_coordinator(self.address)

    def stop(self, name, patience=30):
        """Asks a daemon to stop and waits for it. Returns its exit status."""
        process = self.processes[name]
        process.terminate()
        status = process.wait(patience)
        if process.stdout:
            process.stdout.close()
        return status

    def start_coordinator(self):
        """Starts the coordinator again at the same address, after it has stopped."""
        self._start_coordinator(self.address)

    def start_worker(self, number, coordinator=None, flags=()):
        """Starts a worker, under its old name if it has run before. `flags` are for this worker
        only."""
        name = f"w{number}"
        self._start(name, "tessera-worker", f"--coordinator={coordinator or self.address}",
                    f"--name={name}",
                    f"--gpus={self._gpus}" if self._gpus else f"--devices={self._devices}", "--device-memory-bytes=67108864",
                    "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0",
                    *self._tls_flags(name), *self._worker_flags, *flags)

    def healthy_devices(self):
        with self.connect() as client:
            devices = client.call("tessera.v1.ClusterService/ListDevices").get("devices", [])
        return [d for d in devices if d.get("healthy")]

    def await_devices(self, count, patience=20):
        eventually(lambda: len(self.healthy_devices()) == count, patience,
                   f"{count} healthy devices")

    def daemon_pid(self, name):
        """Returns the process id of a daemon."""
        return self.processes[name].pid

    def executor_pids(self, number):
        """Returns the process ids of the daemon's executors."""
        return [pid for pid in children(self.daemon_pid(f"w{number}"))
                if process_title(pid).startswith("tessera-executor")]

    def kill_worker(self, number):
        """Kills a worker's daemon, and thereby its executors."""
        process = self.processes[f"w{number}"]
        process.kill()
        process.wait()

    def logs(self):
        return "\n".join(f"---- {log.name}\n{log.read_text(errors='replace')}"
                         for log in sorted(self.folder.glob("*.log")))
