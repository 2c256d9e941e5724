"""Tests that coordinators, workers and clients of an earlier build work with those of this build.

    skew_test.py --old-bin DIR

DIR holds tessera, tessera-coordinator and tessera-worker of the earlier build; scripts/skew builds
them. The programs of this build are taken from TESSERA_BIN_DIR if that is set, and otherwise from
build/dev/bin.
"""
import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import daemons
import json_client
import rolling
import stopwatch

API = rolling.API
PATIENCE = 60
STOPS_WITHIN = 20
BACK_WITHIN = 20
PROGRAM = daemons.ROOT / "examples/matmul.txt"
# The second result of PROGRAM when its parameters count up: the sum of the squares of a product of
# 8x4 by 4x6.
SQUARES = 35756384.0

OLD = None  # folder of the earlier build's programs


def new():
    return daemons.bin_dir()


def revision(folder, program="tessera"):
    said = subprocess.run([folder / program, "--version"], capture_output=True, text=True,
                          timeout=PATIENCE, check=True).stdout
    return re.search(r"revision (\w+)", said).group(1)


class Tool:
    """Runs the commands of a build against a coordinator. They connect as C++ programs do."""

    def __init__(self, folder, address):
        self._command = [folder / "tessera", f"--address={address}", "--json", "--timeout=40s"]

    def run(self, *args):
        done = subprocess.run([*self._command, *map(str, args)], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        return done.returncode, done.stdout, done.stderr

    def __call__(self, *args):
        """Runs a command that must succeed and returns its JSON answer."""
        code, out, err = self.run(*args)
        if code != 0:
            raise AssertionError(f"tessera {args} ends with {code}: {out} {err}")
        return json.loads(out)


class SkewTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def cluster(self, coordinator, *workers, devices=2, flags=()):
        bins = {"coordinator": coordinator, **{f"w{w}": b for w, b in enumerate(workers)}}
        return daemons.Cluster(workers=len(workers), devices=devices, bins=bins,
                               coordinator_flags=[*flags, f"--state-dir={self.folder}/state"])

    def works(self, cluster, folder):
        """Does what clients do, with the commands of the build in `folder`."""
        tool = Tool(folder, cluster.address)
        self.assertEqual(len(tool("devices")["devices"]), 4)
        self.assertEqual(len(tool("workers")["workers"]), 2)
        # The program runs on all four devices, which exchange data. The values come back with the
        # end of the run.
        self.assertEqual(tool("run", PROGRAM)["outputs"][1], SQUARES)
        # Results are kept, moved to another device, read from the workers, and deleted.
        kept = tool("run", PROGRAM, "--keep")["arrays"]
        moved = tool("reshard", kept[0], "--devices", 3)
        moved = moved["array"]["id"] if isinstance(moved["array"], dict) else moved["array"]
        self.assertEqual(tool("get", moved)["value"], tool("get", kept[0])["value"])
        tool("rm", kept[0], kept[1])
        # This array is so large that it goes directly to the workers, in pieces.
        file = self.folder / "sent.npy"
        self.write_npy(file, 1 << 20)
        sent = tool("put", file, "--mesh", "4", "--spec", "x")["array"]
        back = self.folder / "back.npy"
        tool("get", sent, "--out", back)
        self.assertEqual(back.read_bytes()[-4096:], file.read_bytes()[-4096:])
        tool("rm", sent, moved)
        self.assertEqual(tool("arrays")["arrays"], [])
        # Call the methods of an operator.
        self.assertEqual(tool("drain", "w1")["operations"], "0")
        tool("uncordon", "w1")

    @staticmethod
    def write_npy(path, count):
        head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}".encode()
        head += b" " * (-(len(head) + 11) % 64) + b"\n"
        values = b"".join(i.to_bytes(4, "little") for i in range(count))
        path.write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + values)

    def stops(self, cluster):
        for name in ("w0", "coordinator", "w1"):
            watch = stopwatch.Stopwatch()
            self.assertEqual(cluster.stop(name), 0, name)
            self.assertLess(watch.unhindered(), STOPS_WITHIN, name)

    def all_of_it(self, coordinator, *workers):
        with self.cluster(coordinator, *workers) as cluster:
            for folder in (OLD, new()):
                with self.subTest(tessera=revision(folder)):
                    self.works(cluster, folder)
            self.stops(cluster)
            self.assertNotRegex(cluster.logs(),
                                r"does not read|cannot be (read|parsed)|invalid report|Traceback|CHECK failed")

    def test_an_old_coordinator_and_new_workers(self):
        self.all_of_it(OLD, new(), new())

    def test_a_new_coordinator_and_old_workers(self):
        self.all_of_it(new(), OLD, OLD)

    def test_a_new_coordinator_and_workers_of_both(self):
        self.all_of_it(new(), OLD, new())

    def test_an_old_coordinator_and_workers_of_both(self):
        self.all_of_it(OLD, new(), OLD)

    def test_it_is_said_who_is_of_which_build(self):
        with self.cluster(new(), OLD, new()) as cluster:
            with cluster.connect() as client:
                w0, w1 = client.call(API + "ClusterService/ListWorkers")["workers"]
                server = client.call(API + "ClusterService/GetCapabilities")["build"]
                self.assertEqual(server["revision"], revision(new()))
                self.assertEqual(w1["build"]["revision"], revision(new(), "tessera-worker"))
                self.assertEqual(w1["protocol"], server["protocolMax"])
                self.assertNotIn("build", w0)
                self.assertEqual(w0["protocol"], 1)
            # A feature that the old worker lacks is refused at once.
            watch = stopwatch.Stopwatch()
            _, out, err = Tool(new(), cluster.address).run("log-level", "--worker", "w0")
            self.assertIn("upgrade the worker", out + err)
            self.assertLess(watch.unhindered(), 5)

    def outage(self, coordinator, workers):
        """Kills the coordinator, starts it again, and checks an array and the devices. If one of
        the two builds keeps nothing in an outage, the array may be lost, but that is reported. A
        build of protocol 1 that keeps it may do so. No call waits for long."""
        with self.cluster(coordinator, workers, devices=4) as cluster:
            with cluster.connect() as client:
                spec = {"dtype": "f32", "shape": ["4"], "placement": rolling.placement(0)}
                array = client.call(API + "ArrayService/WriteArray",
                                    {"spec": spec, "json": [1, 2, 3, 4]})["array"]
            [before] = cluster.executor_pids(0)
            cluster.restart_coordinator()
            began = time.monotonic()
            with cluster.connect() as client:
                daemons.eventually(
                    lambda: [w["state"] for w in client.call(
                        API + "ClusterService/ListWorkers").get("workers", [])]
                    == ["WORKER_STATE_READY"], BACK_WITHIN, "the worker is registered")
                cluster.await_devices(4, BACK_WITHIN)
                print(f"devices are back after {time.monotonic() - began:.2f} s")
                read = lambda: client.call(API + "ArrayService/ReadArray",
                                           {"array": array, "json": True}, timeout=PATIENCE)
                if cluster.executor_pids(0) == [before]:
                    self.assertEqual(read()["json"], [1, 2, 3, 4])
                else:
                    with self.assertRaises(json_client.Error) as caught:
                        read()
                    self.assertIn(caught.exception.reason, ("ARRAY_NOT_FOUND", "WORKER_LOST"))
                    print(f"the array is lost: {caught.exception}")
            self.assertEqual(Tool(new(), cluster.address)("run", PROGRAM)["outputs"][1], SQUARES)

    def test_an_outage_of_an_old_coordinator(self):
        self.outage(OLD, new())

    def test_an_outage_with_an_old_worker(self):
        self.outage(new(), OLD)

    def rolling(self, first, then):
        """Replaces every process of build `first` by one of build `then` while clients run: first
        the workers, then the coordinator. The coordinator of the earlier build does not save what
        it knows, so the chain ends before the coordinator is replaced."""
        with self.cluster(first, first, first, first, devices=1) as cluster:
            devices = {d["executor"]: d.get("id", "0") for d in cluster.healthy_devices()}
            clients = rolling.Clients(cluster, rolling.first_device(cluster, 0))
            try:
                clients.await_more()
                for number in range(3):
                    rolling.replace_worker(cluster, clients, number, (number + 1) % 3, bins=then)
            finally:
                clients.stop()
            print(f"{clients.sums} sums, {clients.links} runs of the chain, longest wait "
                  f"{clients.longest:.2f} s; made again: {clients.again}")
            self.assertEqual(cluster.stop("coordinator"), 0)
            cluster.bins["coordinator"] = then
            cluster.start_coordinator()
            cluster.await_devices(3, BACK_WITHIN)
            self.assertEqual(
                {d["executor"]: d.get("id", "0") for d in cluster.healthy_devices()}, devices)
            clients = rolling.Clients(cluster, rolling.first_device(cluster, 0))
            try:
                clients.await_more()
                if then == new():
                    # From this build on, a restart of the coordinator loses nothing.
                    rolling.replace_coordinator(cluster, clients)
            finally:
                clients.stop()

    def test_a_rolling_upgrade(self):
        self.rolling(OLD, new())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old-bin", required=True, type=pathlib.Path)
    args, rest = parser.parse_known_args()
    global OLD  # pylint: disable=global-statement
    OLD = args.old_bin.resolve()
    print(f"earlier build: {revision(OLD)}, this build: {revision(new())}", flush=True)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
