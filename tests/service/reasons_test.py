"""Tests what users are told when two programs cannot reach or do not understand each other."""
import contextlib
import os
import pathlib
import random
import re
import socket
import subprocess
import tempfile
import threading
import unittest

import daemons
import json_client
import secure_cluster
import stopwatch

PATIENCE = 30
REFUSED_WITHIN = 0.5  # for a damaged program; it takes 0.1 s if nothing else runs
# number of hexadecimal digits in the parts of a token
ID_DIGITS, SECRET_DIGITS, HASH_DIGITS = 16, 64, 64
PROGRAM = daemons.ROOT / "examples/matmul.txt"


def run(binary, *args, **environment):
    """Runs a binary that must end by itself. Returns its exit status and its output."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
    done = subprocess.run([daemons.bin_dir() / binary, *map(str, args)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
                          env={**env, "TESSERA_METRICS_LISTEN": "off", **environment}, check=False)
    return done.returncode, done.stdout


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.plain = daemons.Cluster(workers=0)
        cls.addClassCleanup(cls.plain.close)
        cls.secure = secure_cluster.SecureCluster(workers=0)
        cls.addClassCleanup(cls.secure.close)
        cls.other = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        cls.addClassCleanup(subprocess.run, ["rm", "-rf", cls.other], check=True)
        secure_cluster.run_tessera("init", f"--dir={cls.other}")

    def refused(self, address, reason, *says, ca=None, insecure=False):
        """Checks the refusal with a command that only calls, and with one that connects as programs
        do."""
        flags = [f"--address={address}", "--timeout=4s"] + ["--insecure"] * insecure
        environment = {"TESSERA_CA_FILE": str(ca)} if ca else {}
        for command in (["devices"], ["run", PROGRAM]):
            with self.subTest(command=command[0], address=address):
                code, said = run("tessera", *flags, *command, **environment)
                self.assertIn(code, (1, 3), said)
                self.assertIn(f"reason: {reason}\n", said)
                for text in says:
                    self.assertIn(text, said)
                self.assertNotIn("ssl_transport_security", said, "the library's own log")

    def test_nobody_there(self):
        self.refused("127.0.0.1:1", "UNREACHABLE", "127.0.0.1:1 does not answer: Connection refused")
        self.refused("nobody.invalid:8470", "UNREACHABLE", "nobody.invalid:8470 does not answer",
                     insecure=True)

    def test_programs_that_are_damaged_are_refused_at_once_and_say_where(self):
        whole, seed, slowest, refused = PROGRAM.read_text(), random.randrange(1 << 32), 0.0, 0
        print(f"seed {seed}")
        chance = random.Random(seed)
        with self.plain.connect() as client:
            client.call("tessera.v1.ClusterService/ListDevices")
            for _ in range(200):
                at = chance.randrange(1, len(whole))
                text = chance.choice([whole[:at], whole[:at] + chr(chance.randrange(33, 127)) + whole[at:],
                                      whole[:at] + whole[at + chance.randrange(1, 20):]])
                watch = stopwatch.Stopwatch()
                try:
                    client.call("tessera.v1.ProgramService/CompileProgram", {"text": text})
                except json_client.Error as error:
                    took = watch.unhindered()
                    # Some of the damaged texts are valid programs for devices that do not exist.
                    if error.code == "INVALID_ARGUMENT":
                        slowest = max(slowest, took)
                        refused += 1
                        self.assertRegex(error.message, r"line \d+, column \d|program\.txt:\d")
                    else:
                        self.assertNotIn(error.code, ("INTERNAL", "UNKNOWN", "UNAVAILABLE"), text)
        print(f"refused with its place {refused} times, after {slowest:.3f} s at most")
        self.assertGreater(refused, 50)
        self.assertLess(slowest, REFUSED_WITHIN)

    def test_plain_text_and_tls(self):
        ca = self.secure.ca
        self.refused(self.secure.address, "TLS_MISMATCH", "speaks TLS", "set TESSERA_CA_FILE")
        self.refused(self.plain.address, "TLS_MISMATCH", "speaks plain text",
                     "unset TESSERA_CA_FILE", ca=ca)
        self.refused(self.secure.address, "TLS_MISMATCH", "does not come from the authority",
                     ca=self.other / "client/ca.pem")
        self.refused(self.secure.address, "TLS_MISMATCH", "set TESSERA_CA_FILE",
                     "No such file or directory", ca="/nonexistent/ca.pem")
        self.refused("192.0.2.1:8470", "TLS_MISMATCH", "set TESSERA_CA_FILE")

    def test_the_advice_on_a_value_is_about_values(self):
        code, said = run("tessera", f"--address={self.plain.address}", "mesh", "create", "a b", "x=1")
        self.assertNotEqual(code, 0)
        self.assertIn("reason: VALUE_ERROR", said)
        self.assertIn("Change the value.", said)

    def test_join_wants_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            # A token of the right form. Any value will do, because the command fails before it uses
            # the token.
            token = "_".join(("tsj", "0" * ID_DIGITS, "0" * SECRET_DIGITS, "0" * HASH_DIGITS))
            code, said = run("tessera", "join", self.plain.address, f"--token={token}",
                             f"--dir={folder}/x", "--name=x")
            self.assertEqual(code, 1, said)
            self.assertIn("reason: TLS_MISMATCH", said)
            self.assertIn("speaks plain text", said)

    def test_up_on_a_taken_port(self):
        with tempfile.TemporaryDirectory() as folder:
            code, said = run("tessera", "up", f"--dir={folder}/up", f"--listen={self.plain.address}",
                             "--no-worker")
        self.assertEqual(code, 1)
        self.assertIn("reason: ALREADY_EXISTS", said)
        self.assertIn(f"another program listens at {self.plain.address}", said)


class WorkerTest(unittest.TestCase):
    """A failure that no retry can mend ends the worker with exit code 2 and one line."""

    @classmethod
    def setUpClass(cls):
        cls.plain = daemons.Cluster(workers=0)
        cls.addClassCleanup(cls.plain.close)
        cls.secure = secure_cluster.SecureCluster(workers=1, devices=1)
        cls.addClassCleanup(cls.secure.close)

    def worker(self, address, *flags, name="x"):
        return run("tessera-worker", f"--coordinator={address}", f"--name={name}",
                   "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0", *flags)

    def tls(self, name):
        own = self.secure.state / name
        return [f"--tls-{kind}-file={own}/{file}" for kind, file in
                (("ca", "ca.pem"), ("cert", "cert.pem"), ("key", "key.pem"))]

    def ends(self, says, *args, **kwargs):
        with self.subTest(says=says):
            code, said = self.worker(*args, **kwargs)
            last = said.rstrip().splitlines()[-1]
            self.assertEqual(code, 2, said)
            self.assertTrue(last.startswith("tessera-worker: "), said)
            self.assertIn(says, last)

    def test_what_no_other_try_mends(self):
        self.ends("name", self.plain.address, "--devices=1", name="a b/../c")
        self.ends("--gpus is 2; this machine has 0", self.plain.address, "--gpus=2",
                  "--cuda-plugin=/nonexistent.so")
        self.ends("speaks TLS, and this worker plain text", self.secure.address, "--devices=1")
        self.ends("speaks plain text, and this worker TLS", self.plain.address, "--devices=1",
                  *self.tls("w0"), name="w0")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            self.ends("the port is taken", self.plain.address, "--devices=1",
                      f"--data-listen=127.0.0.1:{port}")

    def test_who_may_not_be_this_worker(self):
        self.ends("w0", self.secure.address, "--devices=1", *self.tls("w0"), name="another")

    def test_a_coordinator_that_is_not_there_yet_is_waited_for(self):
        tries = []
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            def turn_away():
                with contextlib.suppress(OSError):  # raised when the socket is closed
                    while True:
                        nobody.accept()[0].close()
                        tries.append(1)

            threading.Thread(target=turn_away, daemon=True).start()
            worker = subprocess.Popen(
                daemons.dying_with_us([
                    daemons.bin_dir() / "tessera-worker",
                    f"--coordinator=127.0.0.1:{nobody.getsockname()[1]}", "--name=x",
                    "--devices=1", "--data-listen=127.0.0.1:0", "--peer-listen=127.0.0.1:0",
                    "--metrics-listen=off"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                daemons.eventually(lambda: len(tries) > 3, what="it tries again and again")
                self.assertIsNone(worker.poll())
            finally:
                worker.kill()
                worker.wait()
                nobody.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    unittest.main(verbosity=2)
