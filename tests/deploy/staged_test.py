"""Tests the images without a container engine.

Each image's files are staged into a bare Debian 12 and run as deploy/compose.yaml says, with its
users, commands, health checks, names, volumes and networks. Network namespaces take the place of
the containers' networks, and Prometheus uses the configuration file of deploy/ unchanged.

    staged_test.py BUILD      BUILD holds the programs (build/release)

The test needs root, debootstrap and network namespaces. Without them it gives the reason and exits
with 77. It takes about a minute, and half a minute more when the bare system is made for the first
time.
"""
import ctypes
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import yaml

import deploy_testing as deploy

USER = "10001:10001"
IMAGES = {"tessera/coordinator": "coordinator", "tessera/cpu-worker": "cpu-worker"}
SERVICES = ["init", "coordinator", "worker-0", "worker-1"]
NETWORK = "10.77.0"
PAUSE = threading.Event()  # never set: waiting for it is a pause with a limit

# A client runs this program: a product over four devices of two workers.
PROGRAM = """mesh (x=4)
func main(%a: f32[8] P('x')) -> (f32[]) {
  %s = reduce_sum(%a) {dimensions=[0]}
  return %s
}
"""


class Failure(Exception):
    pass


def run(*command, timeout=120, check=True, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, **more)
    if check and done.returncode:
        raise Failure(f"{shlex.join(command)} exited with {done.returncode}:\n"
                      f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def filled(text):
    """Replaces ${NAME:-value} by the value, as Compose does if no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(text))


class Network:
    """One network namespace per name, all on one bridge. Each finds the others by their names."""

    def __init__(self, tag, names, folder):
        self.tag = tag
        self.hosts = {name: f"{NETWORK}.{i + 2}" for i, name in enumerate(names)}
        self.lines = "127.0.0.1 localhost\n" + "".join(
            f"{address} {name}\n" for name, address in self.hosts.items())
        self.switch = f"{tag}-switch"
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "br0", "up")
        for i, (name, address) in enumerate(self.hosts.items()):
            space = self.space(name)
            run("ip", "netns", "add", space)
            run("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name",
                f"port{i}", "netns", self.switch)
            run("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "br0", "up")
            run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "eth0", "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
            # `ip netns exec` mounts this file over /etc/hosts.
            os.makedirs(f"/etc/netns/{space}", exist_ok=True)
            with open(f"/etc/netns/{space}/hosts", "w", encoding="utf-8") as file:
                file.write(self.lines)

    def space(self, name):
        return f"{self.tag}-{name}"

    def inside(self, name):
        return ["ip", "netns", "exec", self.space(name)]

    def close(self):
        for space in [self.switch, *map(self.space, self.hosts)]:
            run("ip", "netns", "del", space, check=False)
            shutil.rmtree(f"/etc/netns/{space}", ignore_errors=True)


class Stage:
    def __init__(self, build, folder):
        self.build = build
        self.folder = folder
        self.compose = yaml.safe_load(deploy.read("deploy/compose.yaml"))["services"]
        self.network = None
        self.processes = {}

    def root(self, name):
        return os.path.join(self.folder, name)

    def lay(self, name, image):
        """Makes a bare Debian system with the image's files, and prepares it as the Dockerfile does."""
        root = self.root(name)
        done = run(deploy.path("scripts/bare_root"), "bookworm", root, timeout=600, check=False)
        if done.returncode == 77:
            print(done.stdout + done.stderr)
            sys.exit(77)
        if done.returncode:
            raise Failure(done.stdout + done.stderr)
        staged = os.path.join(self.folder, "stage-" + image)
        if not os.path.exists(staged):
            run(deploy.path("scripts/stage"), deploy.path(f"deploy/images/{image}.files"),
                self.build, staged, timeout=300)
        os.makedirs(os.path.join(root, "opt"), exist_ok=True)
        run("cp", "-al", staged, os.path.join(root, "opt/tessera"))
        shutil.copy(deploy.path("deploy/images/prepare"), os.path.join(root, "prepare"))
        run("chroot", root, "/prepare")
        os.remove(os.path.join(root, "prepare"))
        with open(os.path.join(root, "etc/hosts"), "w", encoding="utf-8") as file:
            file.write(self.network.lines)

    def command(self, name, words, service=None):
        """Returns the command that runs `words` in the place of a service, as the engine would."""
        service = service or self.compose[name]
        writable = [mount.split(":")[1] for mount in service.get("volumes", [])
                    if not mount.endswith(":ro")]
        environment = [f"{key}={filled(value)}"
                       for key, value in service.get("environment", {}).items()]
        closed = (["--read-only", ",".join(writable) or "/var/lib/tessera"]
                  if service.get("read_only") else [])
        return [*self.network.inside(name), deploy.path("scripts/in_root"), *closed,
                self.root(name), USER, *environment, *words]

    def words(self, name):
        service = self.compose[name]
        entry = service.get("entrypoint")
        if entry is None:
            image = IMAGES[service["image"]]
            text = deploy.read(f"deploy/docker/{image}.Dockerfile")
            entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M).group(1))
        return [*entry, *map(filled, service.get("command", []))]

    def start(self, name, words=None, place=None):
        log = open(os.path.join(self.folder, name + ".log"), "wb")
        self.processes[name] = subprocess.Popen(
            words or self.command(name, self.words(name)), stdout=log, stderr=log,
            stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def mount(self, volume_from, name):
        """Copies the volume that init wrote to where the service sees it."""
        target = os.path.join(self.root(name), "etc/tessera")
        shutil.rmtree(target)
        run("cp", "-a", os.path.join(self.root("init"), "pki", volume_from), target)

    def log(self, name):
        with open(os.path.join(self.folder, name + ".log"), encoding="utf-8",
                  errors="replace") as file:
            return f"== {name}\n" + "".join(file.readlines()[-20:])

    def logs(self):
        return "\n".join(self.log(name) for name in self.processes)

    def await_healthy(self, name, deadline):
        test = self.compose[name]["healthcheck"]["test"]
        assert test[0] == "CMD", test
        while True:
            done = run(*self.command(name, test[1:]), check=False)
            if done.returncode == 0:
                return done.stdout.strip()
            if self.processes[name].poll() is not None:
                raise Failure(f"{name} ended:\n{self.log(name)}")
            if time.monotonic() > deadline:
                raise Failure(f"{name} is not healthy: {done.stdout}{done.stderr}\n{self.logs()}")
            PAUSE.wait(0.5)

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait(timeout=30)


def relay(pairs):
    """Forwards ports of this namespace's loopback (LISTEN_PORT=HOST:PORT), as an engine does for
    published ports."""
    def pump(source, sink):
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def serve(listener, target):
        while True:
            client, _ = listener.accept()
            try:
                server = socket.create_connection(target, timeout=10)
                server.settimeout(None)
            except OSError:
                client.close()
                continue
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    for pair in pairs:
        port, target = pair.split("=")
        host, target_port = target.split(":")
        listener = socket.create_server(("127.0.0.1", int(port)))
        threading.Thread(target=serve, args=(listener, (host, int(target_port))),
                         daemon=True).start()
    print("relaying", flush=True)
    signal.pause()


def check(stage, deadline):
    for name in SERVICES:
        stage.lay(name, IMAGES[stage.compose[name]["image"]])
    stage.lay("client", "coordinator")

    print("init: certificates and tokens", flush=True)
    run(*stage.command("init", stage.words("init")))
    first = contents(stage)
    if len(first) < 10:
        raise Failure(f"init wrote only {sorted(first)}")
    run(*stage.command("init", stage.words("init")))
    if contents(stage) != first:
        raise Failure("init, run again, changed what was there")
    for file in pki_files(stage):
        if file.endswith((".key", "key.pem", "token", "tokens")) and os.stat(file).st_mode & 0o077:
            raise Failure(f"{file} may be read by others")

    for name in SERVICES[1:]:
        stage.mount(name, name)
        stage.start(name)
    for name in SERVICES[1:]:
        print(f"{name}: {stage.await_healthy(name, deadline)}", flush=True)
    run_as_user(stage)

    # The client runs on the host, whose loopback has the published ports.
    stage.mount("client", "client")
    ports = []
    for name in SERVICES[1:]:
        for published in stage.compose[name]["ports"]:
            outside, inside = published.split(":")
            ports.append(f"{outside}={name}:{inside}")
    stage.start("relay", [*stage.network.inside("client"), sys.executable, "-B", __file__,
                          "--relay", *ports])
    while "relaying" not in stage.log("relay"):
        if time.monotonic() > deadline:
            raise Failure(stage.log("relay"))
        PAUSE.wait(0.1)
    use(stage)
    scrape(stage, deadline)


def pki_files(stage):
    return [os.path.join(folder, file)
            for folder, _, files in os.walk(os.path.join(stage.root("init"), "pki"))
            for file in files]


def contents(stage):
    found = {}
    for name in pki_files(stage):
        with open(name, "rb") as file:
            found[name] = file.read()
    return found


def run_as_user(stage):
    """Checks that no process of a service is root or has capabilities."""
    seen = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = os.readlink(f"/proc/{pid}/exe")
            if os.path.basename(command) not in ("tessera-worker", "tessera-coordinator"):
                continue
            if not os.readlink(f"/proc/{pid}/root").startswith(stage.folder):
                continue
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                status = file.read()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        seen += 1
        if not re.search(r"^Uid:\t10001\t10001\t10001\t10001$", status, re.M):
            raise Failure(f"{command} runs as {re.search('^Uid.*', status, re.M).group()}")
        if not re.search(r"^CapEff:\t0+$", status, re.M):
            raise Failure(f"{command} has capabilities")
    if seen < 5:  # a coordinator, two daemons and two executors
        raise Failure(f"only {seen} processes were found")
    print(f"{seen} processes run as a user without capabilities", flush=True)


def use(stage):
    cli = dict(stage.compose["cli"])
    words = cli["entrypoint"]

    def tessera(*arguments, timeout=120, check=True):
        return run(*stage.command("client", [*words, *arguments], service=cli), timeout=timeout,
                   check=check)

    devices = tessera("devices", "--json").stdout
    if devices.count("worker-0") < 1 or devices.count("worker-1") < 1:
        raise Failure(f"`tessera devices` shows {devices}")
    with open(os.path.join(stage.root("client"), "var/lib/tessera/program.txt"), "w",
              encoding="utf-8") as file:
        file.write(PROGRAM)
    shown = tessera("run", "/var/lib/tessera/program.txt", "--input",
                    "[1,2,3,4,5,6,7,8]", "--json").stdout
    if "36" not in shown:
        raise Failure(f"`tessera run` answered {shown}")
    print("a client with the token ran a program over both workers", flush=True)

    # The array is so large that its data goes directly to the workers, through the published ports.
    exchange = os.path.join(stage.root("client"), "var/lib/tessera")
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (262144,), }"
    header += b" " * (117 - len(header)) + b"\n"
    data = (b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
            + b"\x00\x00\x80\x3f" * 131072 + b"\x00\x00\x00\x40" * 131072)
    with open(os.path.join(exchange, "in.npy"), "wb") as file:
        file.write(data)
    array = re.search(r"\d+", tessera("put", "/var/lib/tessera/in.npy", "--mesh", "data=4",
                                      "--spec", "data").stdout).group()
    tessera("get", array, "--out", "/var/lib/tessera/out.npy")
    with open(os.path.join(exchange, "out.npy"), "rb") as file:
        if file.read()[-(1 << 20):] != data[-(1 << 20):]:
            raise Failure("an array came back otherwise than it was put")
    print("a client put and got 1 MiB by the workers' own ports", flush=True)

    # A command without the token must be refused.
    bare = dict(cli, environment={**cli["environment"]})
    done = run(*stage.command("client", ["tessera", "devices"], service=bare), check=False)
    if done.returncode == 0 or "TOKEN_MISSING" not in done.stdout + done.stderr:
        raise Failure(f"without a token: {done.returncode} {done.stdout}{done.stderr}")


def scrape(stage, deadline):
    """Checks that Prometheus, with the configuration of deploy/, finds every target."""
    stage.start("prometheus", [
        *stage.network.inside("client"), deploy.tool("prometheus"),
        f"--config.file={deploy.path('deploy/prometheus/prometheus.yml')}",
        f"--storage.tsdb.path={stage.folder}/tsdb", "--web.listen-address=127.0.0.1:9090",
        "--log.level=warn"])
    asked = urllib.parse.quote('up{job=~"tessera-.*"}')
    up = {}
    while sum(up.values()) < 3:
        if time.monotonic() > deadline:
            raise Failure(f"Prometheus sees {up}\n{stage.logs()}")
        PAUSE.wait(1)
        done = run(*stage.network.inside("client"), sys.executable, "-c",
                   "import sys, urllib.request as u\n"
                   "print(u.urlopen(sys.argv[1], timeout=5).read().decode())",
                   f"http://127.0.0.1:9090/api/v1/query?query={asked}", check=False)
        if done.returncode == 0:
            up = {item["metric"]["instance"]: int(item["value"][1])
                  for item in json.loads(done.stdout)["data"]["result"]}
    if sorted(up) != ["coordinator:9470", "worker-0:9471", "worker-1:9471"]:
        raise Failure(f"Prometheus scrapes {up}")
    print(f"Prometheus scrapes {', '.join(sorted(up))}", flush=True)


def main():
    if sys.argv[1:2] == ["--relay"]:
        relay(sys.argv[2:])
    if os.geteuid() != 0:
        print("staged_test: wants root, for debootstrap and network namespaces")
        sys.exit(77)
    tag = f"tsr{os.getpid()}"
    probe = run("ip", "netns", "add", tag, check=False)
    if probe.returncode:
        print(f"staged_test: no network namespaces: {probe.stderr}")
        sys.exit(77)
    run("ip", "netns", "del", tag)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        stage = Stage(os.path.abspath(sys.argv[1]), folder)
        stage.network = Network(tag, [*SERVICES, "client"], folder)
        try:
            check(stage, time.monotonic() + 240)
            print("staged_test: good")
        except Failure as failure:
            print(f"staged_test: {failure}", file=sys.stderr)
            print(stage.logs()[-6000:], file=sys.stderr)
            sys.exit(1)
        finally:
            stage.close()
            stage.network.close()


if __name__ == "__main__":
    main()
