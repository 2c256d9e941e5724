"""Tests `tessera debug-bundle`: its contents, that it holds no secrets, and that it comes in time
when a process is frozen."""
import base64
import json
import os
import pathlib
import re
import signal
import struct
import tarfile
import tempfile
import unittest

import daemons
import stopwatch
from reasons_test import run

# The limits follow from those of the bundle's parts (client/cli/bundle.cc), with a margin for a
# busy machine. If an executor is frozen, the doctor waits for its array, and then the bundle waits for
# the daemon's answer.
WITHIN_EXECUTOR = 30
WITHIN_COORDINATOR = 2 * 7 + 6

# The bundle must not contain this value in any form: raw bytes, base64, JSON or a program's text.
SECRET = 1_397_048_147
ROW = [SECRET] * 64
PROGRAM = f"""func main(%a: s32[64]) -> (s32[64]) {{
  %c = constant() {{value=dense<s32[]: {SECRET + 1}>}}
  %d = broadcast_in_dim(%c) {{shape=[64], broadcast_dimensions=[]}}
  %b = add(%a, %d)
  return %b
}}
"""


class BundleTest(unittest.TestCase):
    def setUp(self):
        self.cluster = daemons.Cluster(devices=1, secure=True,
                                       coordinator_flags=["--canary-interval-ms=0"])
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.connect()
        self.addCleanup(self.client.channel.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, method, **request):
        return self.client.call("tessera.v1." + method, request)

    def bundle(self, token=None):
        """Makes a bundle. Returns its files, the seconds it took and the command's output."""
        out = self.folder / "bundle.tar.gz"
        watch = stopwatch.Stopwatch()
        status, said = run("tessera", f"--address={self.cluster.address}",
                           f"--ca-file={self.cluster.ca}", "debug-bundle", f"--out={out}",
                           TESSERA_TOKEN=token or self.cluster.token)
        took = watch.unhindered()
        self.assertEqual(status, 0, said)
        self.assertEqual(out.stat().st_mode & 0o777, 0o600)
        with tarfile.open(out) as tar:
            files = {m.name.removeprefix("tessera-debug/"): tar.extractfile(m).read()
                     for m in tar.getmembers()}
        return files, took, said

    def manifest(self, files):
        return {p["part"]: p for p in json.loads(files["manifest.json"])["parts"]}

    def write(self, device=0):
        placement = {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {},
                     "devices": [str(device)]}
        return self.call("ArrayService/WriteArray", json=ROW, spec={
            "dtype": "s32", "shape": ["64"], "placement": placement})["array"]

    def test_it_is_whole(self):
        self.write()
        files, took, said = self.bundle()
        print(f"two workers: {took:.2f} s, {sum(map(len, files.values()))} bytes")
        parts = self.manifest(files)
        self.assertEqual({n: p["why"] for n, p in parts.items() if not p["ok"]}, {}, said)
        self.assertEqual({p["file"] for p in parts.values()} | {"manifest.json"}, set(files))
        for process in ("coordinator", "workers/w0", "workers/w0/executor-0", "workers/w1",
                        "workers/w1/executor-0"):
            said = json.loads(files[f"{process}/process.json"])
            self.assertRegex(said["build"], r"^tessera-(worker|coordinator) \d+\.")
            self.assertIn("Linux", said["system"])
            self.assertIn("--tls-key-file=(given)", said["options"])
            self.assertIn(b"process: begins pid=" + said["pid"].encode(),
                          files[f"{process}/flight.txt"])
        self.assertIn(b"tessera_queue_depth", files["coordinator/metrics.txt"])
        self.assertIn(b"tessera_executor_up", files["workers/w0/metrics.txt"])
        self.assertEqual(len(json.loads(files["cluster/arrays.json"])["arrays"]), 1)
        self.assertTrue(json.loads(files["doctor.json"])["ok"])
        summary = files["summary.txt"].decode()
        for line in ("tessera_queue_depth", "workers: 2 READY", "devices: 2 of 2 healthy", "All parts are present.",
                     "w1/0 tessera-worker"):
            self.assertIn(line, summary)

    def test_there_are_no_secrets(self):
        array = self.write()
        self.call("ArrayService/ReadArray", array=array, json=True)
        self.call("ProgramService/RunProgram", text=PROGRAM, inputs=[ROW])
        # A user who puts a token into a name is protected too.
        self.call("SessionService/CreateSession", displayName=f"my {self.cluster.token}")
        self.call("AdminService/SetLogLevel", all=True, level="debug")
        made = self.call("AdminService/CreateToken", name="ada", role="user")["text"]
        self.call("SessionService/CreateSession", displayName=made)
        join = f"tsj_{16 * '0'}_{64 * 'a'}"
        self.call("SessionService/CreateSession", displayName=f"machine {join}")
        files, _, _ = self.bundle()
        self.assertIn(b"my (a token)", files["cluster/sessions.json"])
        self.assertIn(b"machine (a token)", files["cluster/sessions.json"])
        pki = self.cluster.folder / "pki"
        planted = {"a token": self.cluster.token.encode(), "another": made.encode(),
                   "a join token": join.encode(),
                   "its secret": made.rpartition("_")[2].encode(),
                   "bytes": struct.pack("<i", SECRET) * 4,
                   "base64": base64.b64encode(struct.pack("<i", SECRET) * 12)[:32],
                   "values": str(SECRET).encode(), "a program": str(SECRET + 1).encode(),
                   "a key": b"PRIVATE KEY"}
        for path in [*pki.rglob("key.pem"), *pki.rglob("*key*"), *pki.rglob("token*")]:
            if path.is_file():
                for n, line in enumerate(path.read_bytes().splitlines()):
                    if len(line) > 20 and not line.startswith((b"-----", b"#")):
                        planted[f"{path}:{n + 1}"] = line
        self.assertGreater(len(planted), 12, planted.keys())
        for name, text in files.items():
            for what, secret in planted.items():
                self.assertNotIn(secret, text, f"{what} in {name}")

    def test_a_frozen_executor(self):
        (pid,) = self.cluster.executor_pids(0)
        daemons.freeze(pid)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        files, took, said = self.bundle()
        print(f"a frozen executor: {took:.2f} s (bound {WITHIN_EXECUTOR})\n{said}")
        self.assertLess(took, WITHIN_EXECUTOR)
        parts = self.manifest(files)
        self.assertIn("w0/0 did not answer", parts["process w0/0"]["why"])
        self.assertEqual([n for n, p in parts.items() if not p["ok"]], ["process w0/0"])
        # The daemon supplies the flight recorder of the frozen executor.
        self.assertRegex(files["workers/w0/executor-0/flight.txt"].decode(),
                         rf"process: begins pid={pid}\n")
        self.assertIn("w0/0", files["summary.txt"].decode().partition("Missing or incomplete")[2])

    def test_a_lost_worker_and_a_frozen_coordinator(self):
        self.cluster.kill_worker(1)
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 1)
        files, _, _ = self.bundle()
        parts = self.manifest(files)
        self.assertIn("not connected", parts["process w1"]["why"])
        self.assertTrue(parts["process w0/0"]["ok"])

        coordinator = self.cluster.processes["coordinator"].pid
        daemons.freeze(coordinator)
        self.addCleanup(os.kill, coordinator, signal.SIGCONT)
        files, took, said = self.bundle()
        print(f"a frozen coordinator: {took:.2f} s (bound {WITHIN_COORDINATOR})\n{said}")
        self.assertLess(took, WITHIN_COORDINATOR)
        parts = self.manifest(files)
        self.assertFalse(parts["process coordinator"]["ok"])
        self.assertIn("not asked", parts["the cluster"]["why"])
        self.assertRegex(files["local/processes.txt"].decode(),
                         rf"\n{coordinator} T tessera-coordinator\n")
        self.assertFalse(json.loads(files["doctor.json"])["ok"])

    def test_a_viewer_gets_what_a_viewer_sees(self):
        token = self.call("AdminService/CreateToken", name="eve", role="viewer")["text"]
        files, _, _ = self.bundle(token)
        parts = self.manifest(files)
        self.assertRegex(parts["process coordinator"]["why"], re.compile("role", re.IGNORECASE))
        self.assertTrue(parts["workers"]["ok"])
        self.assertNotIn("coordinator/flight.txt", files)

    def test_where_it_cannot_be_written(self):
        status, said = run("tessera", f"--address={self.cluster.address}", "debug-bundle",
                           f"--out={self.folder}/none/bundle.tar.gz")
        self.assertEqual(status, 1, said)
        self.assertIn("cannot write", said)


if __name__ == "__main__":
    unittest.main()
