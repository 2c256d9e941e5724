"""Runs the commands that README.md shows for a cluster started by hand, exactly as they stand
there."""
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

    def test_what_it_begins_with_works_after_the_demo(self):
        """The first commands of README use what scripts/demo has built, and need no server."""
        (use,) = re.findall(r"^## Use it$(.*?)tessera-coordinator", README, re.M | re.S)
        block = "".join(re.findall(r"^    .*\n", use, re.M))
        self.assertIn("export PATH=$PWD/build/dev/bin:$PATH\n", block)
        self.assertEqual(block.count("tessera run"), 1)
        self.assertEqual(block.count("tessera explain"), 2)
        self.assertIn("`cmake --build --preset dev`", use)
        demo = (daemons.ROOT / "scripts/demo").read_text()
        for target in ("tessera_cli_bin", "tessera_coordinator_bin", "tessera_worker_bin"):
            self.assertRegex(demo, rf"--target [^|]*\b{target}\b")
        commands = block.replace("$PWD/build/dev/bin", str(daemons.bin_dir()))
        shown = self.run_here("env", "-u", "TESSERA_ADDRESS", "sh", "-ec", commands)
        self.assertIn("result 0", shown)

    def test_an_installation_is_built_first(self):
        self.assertRegex(README, r"after `cmake --build --preset dev`[^`]*`cmake --install build/dev")

    def test_it_names_the_headers_of_the_api(self):
        page = (daemons.ROOT / "client/tessera.h").read_text()
        for header in ("tessera", "numpy", "lax", "transform", "mesh", "tree", "random", "files",
                       "session"):
            self.assertIn(f"(client/{header}.h)", README)
            self.assertTrue(header == "tessera" or f'"client/{header}.h"' in page, header)

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
