"""Tests what the command line prints for small numbers, things that do not exist, and typing
errors."""
import os
import pathlib
import signal
import unittest

import daemons
from reasons_test import run

CLUSTER, ARRAYS = "tessera.v1.ClusterService/", "tessera.v1.ArrayService/"
# This is the header that numpy.save(file, numpy.zeros(2, "<i4")) writes.
_HEADER = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }".ljust(117) + "\n"
NPY = b"\x93NUMPY\x01\x00" + len(_HEADER).to_bytes(2, "little") + _HEADER.encode() + bytes(8)
SPEC = {"dtype": "s32", "shape": ["1"], "placement": {"devices": ["0"]}}


class CommandLineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Canaries run as often as possible, so that their arrays are there.
        cls.cluster = daemons.Cluster(workers=1, devices=1,
                                      coordinator_flags=["--canary-interval-ms=20"])
        cls.addClassCleanup(cls.cluster.close)
        cls.client = cls.cluster.connect()
        cls.addClassCleanup(cls.client.channel.close)

    def tessera(self, *args, code=0):
        status, said = run("tessera", f"--address={self.cluster.address}", *args)
        self.assertEqual(status, code, said)
        return said

    def write(self):
        """Makes an array and deletes it after the test."""
        array = self.client.call(ARRAYS + "WriteArray", {"spec": SPEC, "json": [1]})["array"]
        self.addCleanup(self.client.call, ARRAYS + "DeleteArrays", {"arrays": [array]})
        return array

    def test_rm_says_what_is_not_there(self):
        first, second = self.write(), self.write()
        self.assertIn("1 array is deleted", self.tessera("rm", first))
        said = self.tessera("rm", first, second, "999999999", code=1)
        self.assertIn(f"there are no arrays {first}, 999999999; 1 array is deleted", said)
        self.assertIn("reason: ARRAY_NOT_FOUND", said)
        said = self.tessera("rm", second, code=1)
        self.assertIn(f"there is no array {second}; 0 arrays are deleted", said)
        third = self.write()
        self.assertIn("1 array is deleted", self.tessera("rm", third, third))

    def test_arrays_of_canaries_are_nobodys(self):
        own = [int(self.write())]

        def canaries_left_arrays():
            # Arrays, runs and the arrays of canaries get their ids from the same counter.
            own.append(int(self.write()))
            return own[-1] - own[0] - len(own) > 10
        daemons.eventually(canaries_left_arrays, what="canaries that run")
        (worker,) = self.client.call(CLUSTER + "ListWorkers")["workers"]
        self.assertEqual(int(worker.get("arrays", 0)), len(own))

    def test_one_is_one(self):
        self.assertIn("1 of 1 device is healthy", self.tessera("devices"))
        self.assertIn("1 of 1 is healthy", self.tessera("doctor"))
        self.write()
        self.assertIn("\n1 array, 4 B on devices", self.tessera("arrays"))

    def test_every_program_says_its_version(self):
        for binary in ("tessera", "tessera-coordinator", "tessera-worker"):
            status, said = run(binary, "--version")
            self.assertEqual(status, 0)
            self.assertRegex(said, rf"^{binary} \d+\.\d+\.\d+ \(revision [0-9a-z]+\)\n$")

    def test_what_is_mistyped_is_named_with_what_is_near(self):
        rows = (("tessera", ["devices", "--adress", "x"],
                 "there is no option --adress; did you mean --address?"),
                ("tessera", ["put", "x.npy", "--mehs", "2", "--spce=-"],
                 "there is no option --mehs; did you mean --mesh?"),
                ("tessera", ["run", "--bogus"], "there is no option --bogus"),
                ("tessera", ["help", "devics"], "there is no command devics; did you mean devices"),
                ("tessera", ["help", "mesh"], "mesh: which? mesh create"),
                ("tessera", ["devics"], "there is no command devics; did you mean devices?"),
                ("tessera-coordinator", ["--lisen=x"], "'--lisen=x'; did you mean --listen?"),
                ("tessera-worker", ["--cordinator", "x"],
                 "'--cordinator'; did you mean --coordinator?"))
        for binary, args, says in rows:
            with self.subTest(binary=binary, args=args):
                status, said = run(binary, *args)
                self.assertEqual(status, 2)
                self.assertIn(says, said)

    def test_addresses_are_looked_at_before_anybody_is_called(self):
        rows = (("127.0.0.1:74006", "'74006' is not a port; a port is a number from 1 to 65535"),
                ("127.0.0.1", "the port is missing; HOST:PORT is expected, such as 127.0.0.1:8470"),
                ("http://127.0.0.1:8470", "http:// does not belong to an address"))
        for address, says in rows:
            with self.subTest(address=address):
                status, said = run("tessera", f"--address={address}", "devices")
                self.assertEqual(status, 2, said)
                self.assertIn(says, said)
                status, said = run("tessera-worker", f"--coordinator={address}", "--name=w",
                                   "--devices=1")
                self.assertEqual(status, 2, said)
                self.assertIn("--coordinator", said)
                self.assertIn(says, said)

    def test_an_authority_that_is_none_is_named(self):
        said = self.tessera("--ca-file=/etc/passwd", "devices", code=1)
        self.assertIn("/etc/passwd holds no certificate", said)
        self.assertIn("reason: TLS_MISMATCH", said)

    def test_help_is_a_command(self):
        for words in ([], ["ps"], ["workers", "rm"]):
            status, said = run("tessera", "help", *words)
            self.assertEqual(status, 0)
            self.assertEqual(said, run("tessera", *words, "--help")[1])
        self.assertIn("is refused: drain it and stop it first", " ".join(said.split()))

    def test_devices_that_do_not_exist_are_named(self):
        path = pathlib.Path(self.cluster.folder) / "two.npy"
        path.write_bytes(NPY)
        said = self.tessera("put", str(path), "--mesh=2", "--devices=0,77", code=1)
        self.assertIn("device 77 does not exist; the cluster has 1 device, numbered from 0", said)

    def test_files_are_looked_at_first(self):
        array = self.write()
        said = self.tessera("get", array, "-o", "x.safetensors", code=2)
        self.assertIn("--out x.safetensors: get writes NumPy files", said)
        said = self.tessera("get", array, "-o", "/nonexist/x.npy", code=1)
        self.assertIn("/nonexist/x.npy: it cannot be written: No such file or directory", said)
        self.assertNotIn(".part", said)
        said = self.tessera("run", "/usr", code=1)
        self.assertIn("/usr: this is a folder; a file is expected", said)

    def test_ps_shows_canaries_to_who_asks(self):
        daemons.eventually(lambda: "canary_" in self.tessera("ps", "--all", "--canaries"),
                           what="a canary that has ended")
        self.assertNotIn("canary_", self.tessera("ps", "--all"))
        self.assertNotIn("canary_", self.tessera("ps", "--all", "--json"))

    def test_what_is_lost_is_not_on_devices(self):
        lost = self.write()
        (executor,) = self.cluster.executor_pids(0)
        os.kill(executor, signal.SIGKILL)
        daemons.eventually(
            lambda: self.client.call(ARRAYS + "GetArray", {"array": lost})["state"] == "LOST",
            what="an array that is lost")
        self.cluster.await_devices(1)
        self.write()
        said = self.tessera("arrays")
        self.assertIn("LOST", said)
        self.assertIn("\n2 arrays, 4 B on devices", said)


if __name__ == "__main__":
    unittest.main()
