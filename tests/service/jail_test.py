"""Tests the jail processes in which a coordinator reads and plans programs. When they are killed,
frozen, short of memory or fed with garbage, only their own requests fail, each with its reason."""
import base64
import contextlib
import os
import pathlib
import random
import signal
import tempfile
import threading
import unittest
import urllib.request
from concurrent import futures

import daemons
import json_client
import secure_cluster

PROGRAMS = "tessera.v1.ProgramService/"
TITLE = "tessera-jail"
TIMEOUT_MS = 2000
MEMORY_BYTES = 256 << 20
MUTATIONS = 10_000
# The codes that a client may get for bytes that are not a program. INTERNAL is not among them,
# because it would mean a bug of the coordinator.
REFUSALS = {"INVALID_ARGUMENT", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"}


def program(seed=0):
    return (f"func main(%a: f32[2]) -> (f32[2]) {{\n  %k = constant() {{value=dense<f32[]: {seed}>}}\n"
            "  %b = broadcast_in_dim(%k) {broadcast_dimensions=[], shape=[2]}\n"
            "  %c = add(%a, %b)\n  return %c\n}\n")


def large_program(ops):
    lines = [f"  %v{i + 1} = add(%v{i}, %v{i})\n" for i in range(ops)]
    return (f"func main(%v0: f32[2]) -> (f32[2]) {{\n{''.join(lines)}  return %v{ops}\n}}\n")


class JailTest(unittest.TestCase):
    def cluster(self, *flags):
        folder = tempfile.TemporaryDirectory(prefix="tessera-jail-")
        self.addCleanup(folder.cleanup)
        self.metrics_address = pathlib.Path(folder.name, "metrics")
        cluster = secure_cluster.SecureCluster(workers=1, coordinator_flags=[
            "--metrics-listen=127.0.0.1:0", f"--metrics-port-file={self.metrics_address}", *flags])
        self.addCleanup(cluster.close)
        return cluster

    def client(self, cluster, tenant):
        client = cluster.client("user", tenant)
        self.addCleanup(client.channel.close)
        return client

    def jails(self, cluster):
        """Returns the process ids of the coordinator's jails."""
        found = []
        for pid in daemons.children(cluster.processes["coordinator"].pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(TITLE.encode()):
                    found.append(pid)
        return found

    def metric(self, name):
        """Returns the sum over all series of this metric."""
        address = self.metrics_address.read_text().strip()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def run_program(self, client, text, expect=None):
        """Runs a program with the input [1, 2] and checks its outputs."""
        outputs = client.call(PROGRAMS + "RunProgram", {"text": text, "inputs": [[1, 2]]},
                              timeout=60)["outputs"]
        if expect is not None:
            self.assertEqual(outputs, [expect])
        return outputs

    def refusal(self, client, method, request):
        with self.assertRaises(json_client.Error) as caught:
            client.call(PROGRAMS + method, request, timeout=60)
        return caught.exception

    def test_a_jail_has_nothing(self):
        cluster = self.cluster()
        self.run_program(self.client(cluster, "a"), program(), [1, 2])

        def status(pid):
            return pathlib.Path(f"/proc/{pid}/status").read_text()

        jails = daemons.eventually(lambda: self.jails(cluster), what="a process waits")
        for pid in jails:
            daemons.eventually(lambda pid=pid: "Seccomp:\t2\n" in status(pid), what="it is in its jail")
            self.assertIn("NoNewPrivs:\t1\n", status(pid))
            self.assertEqual(sorted(os.listdir(f"/proc/{pid}/fd")), ["0", "1", "2", "3"])
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            for name in environment.split(b"\0"):
                self.assertRegex(name, rb"^$|^LD_LIBRARY_PATH=|^[A-Z]+SAN_OPTIONS=|^OPENBLAS_CORETYPE=")

    def test_killed_jails_fail_their_requests_alone(self):
        cluster = self.cluster()
        client = self.client(cluster, "a")
        self.run_program(client, program(), [1, 2])
        stop = threading.Event()

        def kill():
            while not stop.wait(0.01):
                for pid in self.jails(cluster):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            ends = {}
            for i in range(200):
                try:
                    self.run_program(client, program(i), [1 + i, 2 + i])
                    end = "OK"
                except json_client.Error as error:
                    end = error.reason
                    self.assertIn("killed by signal 9", error.message)
                ends[end] = ends.get(end, 0) + 1
        finally:
            stop.set()
            killer.join()
        print(f"\n  while they are killed: {ends}", flush=True)
        self.assertLessEqual(set(ends), {"OK", "INTERNAL"})
        self.assertIsNone(cluster.processes["coordinator"].poll())
        # The processes that were killed last may not have ended yet and may each fail one more
        # request. After that everything works as before.
        for i in range(1000, 1003):
            try:
                self.run_program(client, program(i), [1 + i, 2 + i])
                break
            except json_client.Error as error:
                if i == 1002 or "killed by signal 9" not in error.message:
                    raise

    def test_a_program_that_ends_its_process_twice_is_refused(self):
        # Canaries are off, because their jails would be frozen too.
        cluster = self.cluster(f"--jail-timeout-ms={TIMEOUT_MS}", "--canary-interval-ms=0")
        victim, other = self.client(cluster, "a"), self.client(cluster, "b")
        self.run_program(victim, program(1), [2, 3])
        self.run_program(other, program(1), [2, 3])
        for _ in range(2):
            # Each of the two tenants has a waiting process, and there is one that no tenant has
            # used yet.
            daemons.eventually(lambda: len(self.jails(cluster)) >= 2, what="processes wait")
            for pid in self.jails(cluster):
                daemons.freeze(pid)
            error = self.refusal(victim, "InspectProgram", {"text": program(7)})
            self.assertEqual(error.reason, "LIMIT_EXCEEDED")
            self.assertIn("jail_timeout_ms", error.message)
            for pid in self.jails(cluster):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.refusal(victim, "InspectProgram", {"text": program(7)}).reason,
                         "PROGRAM_QUARANTINED")
        self.assertEqual(self.refusal(victim, "RunProgram",
                                      {"text": program(7), "inputs": [[1, 2]]}).reason,
                         "PROGRAM_QUARANTINED")
        self.run_program(victim, program(2), [3, 4])
        self.run_program(other, program(7), [8, 9])
        self.assertEqual(self.metric('tessera_jail_ends_total{cause="wall"}'), 2)

    def test_a_tenant_whose_processes_stand_still_holds_up_no_other(self):
        # The timeout is an hour, so a request that waits for a frozen process waits longer than a
        # call may.
        cluster = self.cluster("--jail-timeout-ms=3600000")
        victim, other = self.client(cluster, "a"), self.client(cluster, "b")
        self.run_program(victim, program(), [1, 2])
        # There is a process of the victim and one that no tenant has used yet.
        waiting = daemons.eventually(lambda: len(self.jails(cluster)) >= 2 and self.jails(cluster),
                                     what="processes wait")
        for pid in waiting:
            daemons.freeze(pid)
        with futures.ThreadPoolExecutor(32) as pool:
            # There are more requests than threads. The frozen processes hold two of the threads;
            # the rest must still work.
            stuck = [pool.submit(self.run_program, victim, program(100 + i)) for i in range(20)]
            for i in range(20):
                self.run_program(other, program(i), [1 + i, 2 + i])
            for pid in waiting:
                os.kill(pid, signal.SIGCONT)
            for future in stuck:
                future.result()

    def test_memory_and_programs_that_want_too_much(self):
        cluster = self.cluster(f"--jail-memory-bytes-max={MEMORY_BYTES}")
        client = self.client(cluster, "a")
        text = large_program(400_000)
        errors = [self.refusal(client, "InspectProgram", {"text": text}) for _ in range(3)]
        self.assertEqual([e.reason for e in errors],
                         ["LIMIT_EXCEEDED", "LIMIT_EXCEEDED", "PROGRAM_QUARANTINED"])
        self.assertIn("jail_memory_bytes_max", errors[0].message)
        self.run_program(client, program(3), [4, 5])
        self.assertEqual(self.metric('tessera_jail_ends_total{cause="memory"}'), 2)

    def test_mutated_artifacts(self):
        shared = os.environ.get("TESSERA_SHARED")
        if not shared:
            self.skipTest("TESSERA_SHARED is not set: no artifacts")
        seeds = pathlib.Path(__file__).resolve().parent.parent / "fuzz/stablehlo"
        files = [*sorted(pathlib.Path(shared, "stablehlo/artifacts").rglob("*.bc")),
                 *sorted(seeds.glob("ops_*.mlirbc"))]
        artifacts = [data for data in (f.read_bytes() for f in files) if len(data) < 16_384]
        self.assertGreater(len(artifacts), 20)
        cluster = self.cluster()
        coordinator = cluster.processes["coordinator"].pid

        def memory():
            status = pathlib.Path(f"/proc/{coordinator}/status").read_text()
            return int(status.partition("VmRSS:")[2].split()[0]) << 10

        before = memory()

        def feed(number):
            chance = random.Random(number)
            data = bytearray(chance.choice(artifacts))
            for _ in range(chance.choice((1, 1, 2, 4, 16))):
                at = chance.randrange(len(data))
                kind = chance.randrange(4)
                if kind == 0:
                    data[at] = chance.randrange(256)
                elif kind == 1:
                    data[at] ^= 1 << chance.randrange(8)
                elif kind == 2:
                    del data[at:at + chance.choice((1, 2, 8, 100))]
                    data = data or bytearray(b"M")
                else:
                    other = chance.choice(artifacts)
                    start = chance.randrange(len(other))
                    data[at:at] = other[start:start + chance.choice((1, 4, 32))]
            client = clients[number % len(clients)]
            method = "InspectProgram" if number % 2 else "ExplainProgram"
            request = {"stablehlo": base64.b64encode(bytes(data)).decode()}
            if method == "ExplainProgram":
                request["device_memory_bytes"] = str(1 << 30)
            try:
                client.call(PROGRAMS + method, request, timeout=120)
                return "OK"
            except json_client.Error as error:
                self.assertIn(error.code, REFUSALS, f"mutation {number}: {error}")
                return error.code

        clients = [self.client(cluster, tenant) for tenant in "abcd"]
        ends = {}
        with futures.ThreadPoolExecutor(8) as pool:
            for end in pool.map(feed, range(MUTATIONS)):
                ends[end] = ends.get(end, 0) + 1
        print(f"\n  {MUTATIONS} mutated artifacts: {ends}; the coordinator's memory "
              f"{before >> 20} -> {memory() >> 20} MiB", flush=True)
        self.assertEqual(self.metric("tessera_jail_ends_total"), 0)
        self.run_program(clients[0], program(3), [4, 5])
        self.assertEqual(cluster.processes["coordinator"].pid, coordinator)
        self.assertLess(memory(), before + (512 << 20))


if __name__ == "__main__":
    unittest.main()
