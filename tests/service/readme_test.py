"""Runs what README.md, docs/cpp.md and docs/operating.md show of the programs, exactly as it stands there."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import daemons
import numpy

README, CPP, OPERATING = ((daemons.ROOT / page).read_text() for page in
                          ("README.md", "docs/cpp.md", "docs/operating.md"))
(BY_HAND,) = re.findall(r"^## By hand$(.*?)^## ", OPERATING, re.M | re.S)


class ReadmeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (devices,) = re.findall(r"^    tessera-worker .*--name w0 --devices (\d+)$", BY_HAND, re.M)
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

    def test_the_quickstart_and_the_demo_run_on_a_cluster(self):
        self.assertIn("36", self.run_here("quickstart"))
        self.assertIn("epoch   1/1", self.run_here("mlp_digits", "--epochs", "1", "--no-explain"))

    def test_its_scripts_exist_and_it_is_short(self):
        scripts = re.findall(r"^    (scripts/\w+)", README, re.M)
        self.assertEqual(scripts, ["scripts/demo", "scripts/test", "scripts/try_jax", "scripts/try_kill"])
        for script in scripts:
            self.assertTrue(os.access(daemons.ROOT / script, os.X_OK), script)
        self.assertLessEqual(len(README.splitlines()), 120)

    def test_the_commands_without_a_server_need_only_what_the_demo_builds(self):
        block = "".join(re.findall(r"^    .*\n", BY_HAND.partition("tessera-coordinator")[0], re.M))
        self.assertIn("export PATH=$PWD/build/dev/bin:$PATH\n", block)
        self.assertEqual(block.count("tessera run"), 1)
        self.assertEqual(block.count("tessera explain"), 2)
        demo = (daemons.ROOT / "scripts/demo").read_text()
        for target in ("tessera_cli_bin", "tessera_coordinator_bin", "tessera_worker_bin"):
            self.assertRegex(demo, rf"build_quietly .*\b{target}\b")
        commands = block.replace("$PWD/build/dev/bin", str(daemons.bin_dir()))
        shown = self.run_here("env", "-u", "TESSERA_ADDRESS", "sh", "-ec", commands)
        self.assertIn("result 0", shown)

    def test_the_commands_on_a_cluster_work(self):
        commands = re.findall(r"^    (tessera (?!run|explain).*)$", BY_HAND, re.M)
        self.assertEqual(len(commands), 2, commands)
        for command in "; ".join(commands).split("; "):
            with self.subTest(command=command):
                once = " --once" if command == "tessera top" else ""
                self.run_here("sh", "-c", command + once, cwd=self.folder)

    def test_the_page_of_cpp_lists_the_headers_of_the_api(self):
        included = re.findall(r'#include "client/([\w/]+\.h)"', (daemons.ROOT / "client/tessera.h").read_text())
        missing = [header for header in included if f"(../client/{header})" not in CPP]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
