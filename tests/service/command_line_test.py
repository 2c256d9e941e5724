"""What the command line says of small numbers, of what is not there, and of what is mistyped."""
import unittest

import daemons
from reasons_test import run

CLUSTER, ARRAYS = "tessera.v1.ClusterService/", "tessera.v1.ArrayService/"
SPEC = {"dtype": "s32", "shape": ["1"], "placement": {"devices": ["0"]}}


class CommandLineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Canaries as often as they can be, so that their arrays are there.
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
        """An array that is gone after the test."""
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
            # One counter gives ids to arrays, runs, and what canaries make.
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
                ("tessera", ["devics"], "there is no command devics; did you mean devices?"),
                ("tessera-coordinator", ["--lisen=x"], "'--lisen=x'; did you mean --listen?"),
                ("tessera-worker", ["--cordinator", "x"],
                 "'--cordinator'; did you mean --coordinator?"))
        for binary, args, says in rows:
            with self.subTest(binary=binary, args=args):
                status, said = run(binary, *args)
                self.assertEqual(status, 2)
                self.assertIn(says, said)


if __name__ == "__main__":
    unittest.main()
