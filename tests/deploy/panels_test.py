"""Tests that every query of every panel, and everything that alerts look at, gets data.

A real Prometheus scrapes real daemons under load: programs run, fail and are cancelled, and an
executor is killed.

    panels_test.py BIN [SECONDS]     BIN holds the programs; SECONDS is the patience (600)

The test does not depend on the speed of the machine. The load starts when all devices are there,
rates look back over the whole test, and an executor is killed only while a long program runs.

The worker w2 has one GPU, which is a fake (tests/fakes) with a fault, for the queries about GPUs.
"""
import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import grpc
import yaml

import deploy_testing as deploy

sys.path.insert(0, deploy.path("tests/service"))
import json_client  # noqa: E402: it is in the folder added above

SERVICE_TESTS = deploy.path("tests/service")
PROGRAMS = "tessera.v1.ProgramService"
# Rates look back this far. This covers the whole test, so an event is seen however late a query
# comes.
RATE = "30m"
STEP_S = 1.0
DEVICES, GPUS = 4, 1
WORKERS = ["w0", "w1", "w2"]
# the most seconds that a call of the load may take
CALL_PATIENCE_S = 120
KILLS_APART_S = 10


class Failure(Exception):
    pass


# This prefix makes the kernel kill a command when the thread that started it ends. A preexec_fn
# could do the same, but Python would fork for it, and gRPC 1.51 of Debian 13 never lets a process
# with a channel fork.
DIES_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


class Cluster:
    """The daemons and Prometheus, on free loopback ports, with their files in one folder."""

    def __init__(self, bin_dir, folder):
        self.bin = bin_dir
        self.folder = folder
        self.processes = {}

    def start(self, name, *command, env=None):
        with open(os.path.join(self.folder, name + ".log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*DIES_WITH_PARENT, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, **(env or {})})
        return self.processes[name]

    def await_file(self, name, file, deadline):
        path = os.path.join(self.folder, file)
        while not (os.path.exists(path) and os.path.getsize(path)):
            if self.processes[name].poll() is not None:
                raise Failure(f"{name} ended: {self.log(name)}")
            if time.monotonic() > deadline:
                raise Failure(f"{name} wrote no {file} in time: {self.log(name)}")
            PAUSE.wait(0.05)
        with open(path, encoding="utf-8") as read:
            return read.read().strip()

    def log(self, name):
        with open(os.path.join(self.folder, name + ".log"), encoding="utf-8",
                  errors="replace") as file:
            return "".join(file.readlines()[-30:])

    def start_daemons(self, deadline):
        at = self.folder
        self.start("coordinator", f"{self.bin}/tessera-coordinator", "--listen", "127.0.0.1:0",
                   "--port-file", f"{at}/address", "--metrics-listen", "127.0.0.1:0",
                   "--metrics-port-file", f"{at}/coordinator.metrics",
                   # A busy machine must not make a worker count as lost.
                   "--canary-interval-ms", "1000", "--lease-ms", "60000")
        self.address = self.await_file("coordinator", "address", deadline)
        for name in ("w0", "w1"):
            self.start(name, f"{self.bin}/tessera-worker", "--coordinator", self.address,
                       "--name", name, "--devices", str(DEVICES // 2),
                       "--collective-timeout-ms", "60000", "--metrics-listen", "127.0.0.1:0",
                       "--metrics-port-file", f"{at}/{name}.metrics")
        fakes = {"DRIVER": "cuda", "NCCL": "nccl", "CUBLASLT": "cublaslt", "NVML": "nvml"}
        self.start("w2", f"{self.bin}/tessera-worker", "--coordinator", self.address, "--name", "w2", "--gpus", "1",
                   "--metrics-listen", "127.0.0.1:0", "--metrics-port-file", f"{at}/w2.metrics",
                   env={"TESSERA_FAKE": "devices=1", "TESSERA_FAKE_FILE": f"{at}/knobs",
                        **{f"TESSERA_CUDA_{name}": f"{self.bin}/../fakes/libfake{library}.so"
                           for name, library in fakes.items()}})
        self.metrics = {name: self.await_file(name, f"{name}.metrics", deadline)
                        for name in ("coordinator", *WORKERS)}
        self.await_devices(deadline)
        self.set_knobs("")

    def set_knobs(self, more):
        """Sets knobs of the GPU of w2: its executor and another process use memory."""
        (executor,) = self.executors("w2")
        path = os.path.join(self.folder, "knobs")
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(f"nvml_pid={executor},nvml_others_bytes={1 << 20}{more}")
        os.rename(path + ".new", path)

    def await_devices(self, deadline):
        """A worker exports metrics before its executors have registered their devices."""
        with json_client.Client(self.address) as client:
            while True:
                devices = client.call("tessera.v1.ClusterService/ListDevices").get("devices", [])
                if sum(bool(device.get("healthy")) for device in devices) == DEVICES + GPUS:
                    return
                if time.monotonic() > deadline:
                    raise Failure(f"{DEVICES + GPUS} devices were not healthy in time: {devices}")
                PAUSE.wait(0.1)

    def start_prometheus(self, deadline):
        """Starts Prometheus with the configuration of deploy/prometheus, but with the targets of
        this test, and with a scrape every second."""
        config = yaml.safe_load(deploy.read("deploy/prometheus/prometheus.yml"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [deploy.path("deploy/prometheus/alerts.yml")]
        jobs = {job["job_name"]: job for job in config["scrape_configs"]}
        targets = {"tessera-coordinator": ["coordinator"], "tessera-worker": WORKERS}
        config["scrape_configs"] = [
            {"job_name": jobs[job]["job_name"],
             "static_configs": [{"targets": [self.metrics[name] for name in names]}]}
            for job, names in targets.items()]
        with open(os.path.join(self.folder, "prometheus.yml"), "w", encoding="utf-8") as file:
            yaml.safe_dump(config, file)
        # Prometheus does not accept port 0. The chosen port may be taken by the time it starts, so
        # others are tried.
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            self.prometheus = f"http://127.0.0.1:{port}"
            process = self.start(
                "prometheus", deploy.tool("prometheus"),
                f"--config.file={self.folder}/prometheus.yml",
                f"--storage.tsdb.path={self.folder}/tsdb",
                f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn")
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    urllib.request.urlopen(self.prometheus + "/-/ready", timeout=5).close()
                    return
                except (urllib.error.URLError, OSError):
                    PAUSE.wait(0.1)
        raise Failure(f"Prometheus did not start: {self.log('prometheus')}")

    def ask(self, what, **arguments):
        url = f"{self.prometheus}/api/v1/{what}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Failure(f"{arguments}: {error.read().decode()}") from None

    def query(self, expression):
        """Evaluates an expression. Returns (labels, value) for each element of the result."""
        return [(item["metric"], float(item["value"][1]))
                for item in self.ask("query", query=expression)["result"]]

    def executors(self, worker):
        """Returns the process ids of the daemon's executors."""
        pid = self.processes[worker].pid
        children = []
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/children", encoding="utf-8") as file:
                    children += file.read().split()
            except (FileNotFoundError, ProcessLookupError):
                pass
        found = []
        for child in children:
            try:
                with open(f"/proc/{child}/cmdline", "rb") as file:
                    if b"--executor" in file.read().split(b"\0"):
                        found.append(int(child))
            except (FileNotFoundError, ProcessLookupError):
                pass
        return found

    def stop(self):
        for process in reversed(list(self.processes.values())):
            process.kill()
            process.wait(timeout=30)


# Every size makes a program of its own, which is planned and compiled and has a collective over all
# devices. The chain of products takes long enough that a kill meets it.
REDUCE = """mesh (x=4)
func main(%a: f32[{n}] P('x')) -> (f32[]) {{
  %s = reduce_sum(%a) {{dimensions=[0]}}
  return %s
}}
"""
PRODUCT = """mesh (x=4)
func main(%a: f32[{n},{n}] P(None, 'x')) -> (f32[]) {{
{lines}  %r = reduce_sum(%m{last}) {{dimensions=[0,1]}}
  return %r
}}
"""


def product(n, depth):
    """Returns the text of a chain of products of a matrix, each with a collective."""
    line = ("  %m{i} = dot_general(%{before}, %a) {{lhs_batching_dimensions=[], "
            "lhs_contracting_dimensions=[1], rhs_batching_dimensions=[], "
            "rhs_contracting_dimensions=[0]}}\n")
    lines = "".join(line.format(i=i, before="a" if i == 0 else f"m{i - 1}") for i in range(depth))
    return PRODUCT.format(n=n, lines=lines, last=depth - 1)


PAUSE = threading.Event()  # never set: waiting for it is a pause with a limit


class Load:
    """Keeps the cluster busy until it is told to stop. Each part has a thread of its own."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.stopping = threading.Event()
        self.long_run = threading.Event()  # set while an operation of run_long is in progress
        self.rounds = {"calls": 0, "training": 0}
        self.last = {}
        self.threads = [
            threading.Thread(target=self.repeat, daemon=True, args=("calls", [
                "/usr/bin/python3", f"{SERVICE_TESTS}/json_client_test.py"])),
            threading.Thread(target=self.repeat, daemon=True, args=("training", [
                f"{cluster.bin}/mlp_digits", "--address", cluster.address, "--mesh",
                "data=2,model=2"])),
            threading.Thread(target=self.vary, daemon=True)]
        for thread in self.threads:
            thread.start()

    def repeat(self, name, command):
        while not self.stopping.is_set():
            done = subprocess.Popen(
                [*DIES_WITH_PARENT, *command], cwd=deploy.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "TESSERA_SUITE_ADDRESS": self.cluster.address,
                     "PYTHONDONTWRITEBYTECODE": "1"})
            # The process is killed with the test. The pipe holds all of the small output.
            while done.poll() is None and not self.stopping.wait(0.2):
                pass
            done.kill()
            self.last[name] = done.communicate()[0][-2000:]
            # Other tests check whether its results are right. Here it is only load.
            self.rounds[name] += 1

    def vary(self):
        """Runs new programs, programs that are cancelled while they wait, and long ones. Each kind
        continues even if the others fail."""
        data = b"\0" * (1536 * 1536 * 4)
        n = 0
        with json_client.Client(self.cluster.address) as client:
            matrix = None
            while not self.stopping.is_set():
                matrix = matrix or self.attempt("compile", lambda: client.call(
                    PROGRAMS + "/CompileProgram", {"text": product(1536, 8)},
                    timeout=CALL_PATIENCE_S))
                if matrix is None:
                    continue
                n += 1
                self.attempt("new program", lambda: client.call(
                    PROGRAMS + "/RunProgram",
                    {"text": REDUCE.format(n=4 * n), "inputs": [[1] * (4 * n)]},
                    timeout=CALL_PATIENCE_S))
                self.attempt("cancel", lambda: self.cancel(client, matrix))
                self.attempt("long program", lambda: self.run_long(client, matrix, data))
                self.last["vary"] = f"{n} rounds"

    def attempt(self, name, call):
        """Returns the result of `call`, or None if it fails, for example because the executor that
        it used was killed."""
        try:
            return call()
        except (json_client.Error, grpc.RpcError) as error:
            self.last[name] = f"{name}: {error}"
            self.stopping.wait(0.2)
            return None

    def create(self, client, spec):
        return client.call("tessera.v1.ArrayService/CreateArray", {"spec": spec})

    def execute(self, client, compiled, array):
        return client.call("tessera.v1.ProgramService/ExecuteProgram",
                           {"executable": compiled["executable"], "args": [array]})["operation"]

    def run_long(self, client, compiled, data):
        made = self.create(client, compiled["in"][0])
        size = len(data) // len(made["tickets"])
        for ticket in made["tickets"]:
            json_client.write_shard(ticket, data[:size])
        operation = self.execute(client, compiled, made["array"])
        self.long_run.set()
        try:
            self.await_end(client, operation)
        finally:
            self.long_run.clear()

    def cancel(self, client, compiled):
        """Cancels a run whose input never comes."""
        made = self.create(client, compiled["in"][0])
        operation = self.execute(client, compiled, made["array"])
        client.call("tessera.v1.OperationService/CancelOperation", {"operation": operation})
        self.await_end(client, operation)

    def await_end(self, client, operation):
        client.call("tessera.v1.OperationService/WaitOperation",
                    {"operation": operation, "timeout": f"{CALL_PATIENCE_S}s"},
                    timeout=CALL_PATIENCE_S + 10)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(timeout=30)


def selectors(expression):
    """Returns the vector selectors of an expression, such as name{...}, without ranges."""
    return re.findall(r"\b(?:tessera_\w+|process_\w+|up|[a-z]+:\w+:\w+)\b(?:\{[^}]*\})?",
                      re.sub(r"\b(by|on)\s*\([^)]*\)", "", expression))


def wanted():
    """Returns the expressions that must return data, by label."""
    found = {where: deploy.concrete(expression, rate=RATE)
             for where, expression in deploy.panel_queries()
             # Annotations have data only shortly after the coordinator has started.
             if ": annotation" not in where}
    rules = yaml.safe_load(deploy.read("deploy/prometheus/alerts.yml"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            for selector in selectors(rule["expr"]):
                found[f"{rule.get('alert', rule.get('record'))}: {selector}"] = selector
    return found


def still_wanted(cluster, missing):
    left = {}
    for where, expression in missing.items():
        values = [value for _, value in cluster.query(expression)]
        # A quantile of no samples is NaN.
        if not any(math.isfinite(value) for value in values):
            left[where] = expression
    return left


def firing(cluster):
    return {labels["alertname"] for labels, _ in cluster.query('ALERTS{alertstate="firing"}')}


def run(cluster, patience):
    deadline = time.monotonic() + patience
    cluster.start_daemons(deadline)
    cluster.start_prometheus(deadline)
    names = {rule["name"]: rule["health"]
             for group in cluster.ask("rules")["groups"] for rule in group["rules"]}
    missing = everything = wanted()
    load = Load(cluster)
    try:
        # First collect what an unharmed cluster shows, and then what needs a killed executor.
        while min(load.rounds.values()) < 1:
            if time.monotonic() > deadline:
                raise Failure(f"the load did not run through once: {load.rounds}\n"
                              + "\n".join(load.last.values()))
            PAUSE.wait(STEP_S)
            missing = still_wanted(cluster, missing)
        calm = firing(cluster)
        if calm:
            raise Failure(f"alerts fire on an unharmed cluster: {sorted(calm)}")
        print(f"after one round of load {len(missing)} of {len(everything)} have no data yet",
              flush=True)
        cluster.set_knobs(",nvml_xid=79")
        fired = set()
        next_kill = 0.0
        while missing or "TesseraArraysLost" not in fired:
            if time.monotonic() > deadline:
                break
            # Kill repeatedly, because a kill must meet a collective that is running.
            if time.monotonic() > next_kill and load.long_run.wait(STEP_S):
                next_kill = time.monotonic() + KILLS_APART_S
                for pid in cluster.executors("w1"):
                    os.kill(pid, signal.SIGKILL)
            PAUSE.wait(STEP_S)
            fired |= firing(cluster)
            missing = still_wanted(cluster, missing)
    finally:
        load.stop()
    bad = {name: health for name, health in names.items() if health == "err"}
    if bad:
        raise Failure(f"rules that Prometheus cannot evaluate: {bad}")
    if missing:
        raise Failure("\n".join([
            "no data came for",
            *(f"  {where}\n    {expression}" for where, expression in sorted(missing.items())),
            f"fired: {sorted(fired)}; while this ran:", *(text[-500:] for text in load.last.values())]))
    if "TesseraArraysLost" not in fired:
        raise Failure(f"an executor was killed and TesseraArraysLost did not fire; {fired} did")
    for name in ("coordinator", *WORKERS, "prometheus"):
        if cluster.processes[name].poll() is not None:
            raise Failure(f"{name} ended: {cluster.log(name)}")
    print(f"{len(everything)} queries returned data; fired: {', '.join(sorted(fired))}")


def main():
    patience = float(sys.argv[2]) if len(sys.argv) > 2 else 600
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(os.path.abspath(sys.argv[1]), folder)
        try:
            run(cluster, patience)
        except Failure as failure:
            sys.exit(f"panels_test: {failure}")
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
