"""What README shows of a cluster by hand, typed as it stands there."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import daemons
import numpy

README = (daemons.ROOT / "README.md").read_text()


class ReadmeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (devices,) = re.findall(r"^    tessera-worker .*--name w0 --devices (\d+)$", README, re.M)
        cls.cluster = daemons.Cluster(workers=1, devices=int(devices))
        cls.addClassCleanup(cls.cluster.close)
        folder = tempfile.TemporaryDirectory(prefix="tessera-readme-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        numpy.save(cls.folder / "x.npy", numpy.ones((4, 2), numpy.float32))

    def run_here(self, *command, cwd=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        env |= {"TESSERA_ADDRESS": self.cluster.address,
                "PYTHONPATH": str(daemons.bin_dir().parent / "python"),
                "PATH": f"{daemons.bin_dir()}:{os.environ['PATH']}"}
        done = subprocess.run(command, env=env, cwd=cwd or daemons.ROOT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_it_runs_the_programs_above_it(self):
        self.assertIn("36", self.run_here("quickstart"))
        self.assertIn("epoch   1/1", self.run_here("mlp_digits", "--epochs", "1", "--no-explain"))
        self.assertIn("result 0", self.run_here("tessera", "run", "examples/matmul.txt"))

    def test_the_commands_below_it_work(self):
        commands = re.findall(r"^    (tessera (?!run|explain).*)$", README, re.M)
        self.assertEqual(len(commands), 2, commands)
        for command in "; ".join(commands).split("; "):
            with self.subTest(command=command):
                once = " --once" if command == "tessera top" else ""
                self.run_here("sh", "-c", command + once, cwd=self.folder)

    def test_the_python_works(self):
        (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
        code = code.replace("localhost:8470", self.cluster.address)
        self.assertEqual(self.run_here("/usr/bin/python3", "-c", code), "[0. 1. 2. 3. 4. 5. 6. 7.]\n")


if __name__ == "__main__":
    unittest.main()
