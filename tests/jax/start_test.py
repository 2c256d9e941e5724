"""Tests what a JAX program is told if it is to run on a cluster and cannot: it never runs on the CPU in silence.

Exits with 77 if JAX is not installed.
"""
import importlib.util
import pathlib
import socket
import sys
import tempfile
import unittest

import processes

sys.path.insert(0, str(processes.ROOT / "tests/service"))

import daemons  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402

if importlib.util.find_spec("jax") is None:
    print("JAX is not installed for this Python")
    sys.exit(77)

# Programs that know nothing about Tessera. They say how long JAX looked for devices, without its import.
DEVICES = """
import time, jax
began = time.monotonic()
try:
    print("devices", jax.devices())
finally:
    print(f"looked {time.monotonic() - began}")
"""
CATCHES = """
import jax
try:
    jax.devices()
except RuntimeError as error:
    print("caught", error)
try:
    print("devices", jax.devices())
except RuntimeError as error:
    print("caught again", error)
print("sum", jax.numpy.arange(3).sum())
"""
INTERRUPTED = """
import jax
try:
    jax.devices()
except KeyboardInterrupt:
    print("interrupted")
try:
    print("devices", jax.devices())
except RuntimeError as error:
    print("caught", error)
print("sum", jax.numpy.arange(3).sum())
"""
NOBODY = "127.0.0.1:1"  # no server listens on port 1


def free_address():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return "127.0.0.1:%d" % unused.getsockname()[1]


class StartTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.path = processes.installed(cls.folder)
        # It takes half a minute, and is looked at by a test.
        cls.unanswered = cls.enterClassContext(cls.start(CATCHES, TESSERA_ADDRESS=NOBODY))

    @classmethod
    def start(cls, code, **environment):
        return processes.Program(code, PYTHONPATH=cls.path, **environment)

    def expect_failure(self, words, **environment):
        """Starts a program, which must fail at once with these words in its last line."""
        with self.start(DEVICES, **environment) as program:
            self.assertEqual(program.end(), 1)
        self.assertNotIn("devices [", program.text)
        looked = [float(line.split()[1]) for line in program.said if line.startswith("looked ")]
        self.assertEqual(len(looked), 1, program.text)
        self.assertLess(looked[0], 2 + self.slack(program))
        self.assertRegex(program.said[-1], words)
        return program

    @staticmethod
    def slack(_):
        # JAX makes its CPU client, too, before it asks for the devices of the plugin.
        return 1

    def test_a_missing_plugin_is_named(self):
        for address in ({"TESSERA_ADDRESS": NOBODY}, {"TESSERA_EMBEDDED": "1"}):
            program = self.expect_failure("is missing: install tessera-jax", **address,
                                          TESSERA_PJRT_PLUGIN="/nonexistent/plugin.so")
            self.assertIn("/nonexistent/plugin.so", program.said[-1])

    def test_a_plugin_that_cannot_be_loaded_is_named(self):
        broken = self.folder / "broken.so"
        broken.write_text("this is no library")
        self.expect_failure("broken.so cannot be loaded .*: install the libraries", TESSERA_EMBEDDED="1",
                            TESSERA_PJRT_PLUGIN=str(broken))

    def test_a_plugin_of_something_else_is_named(self):
        import ctypes.util
        library = ctypes.util.find_library("m")
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split()[-1] for line in maps if "/libc.so" in line or f"/{library}" in line}
        self.expect_failure("cannot be loaded", TESSERA_EMBEDDED="1", TESSERA_PJRT_PLUGIN=sorted(paths)[0])

    def test_values_that_make_no_sense_are_named(self):
        self.expect_failure("TESSERA_EMBEDDED: .*'many'", TESSERA_EMBEDDED="many")
        self.expect_failure("TESSERA_EMBEDDED", TESSERA_EMBEDDED="100000")
        self.expect_failure("the port is missing", TESSERA_ADDRESS="127.0.0.1")
        self.expect_failure("/nonexistent/ca.pem", TESSERA_ADDRESS=NOBODY, TESSERA_CA_FILE="/nonexistent/ca.pem")

    def test_a_host_name_that_does_not_exist_is_named(self):
        # A label of a name has at most 63 characters, so no resolver knows this name.
        self.expect_failure("the host name 'x{64}.invalid' .*cannot be looked up",
                            TESSERA_ADDRESS="x" * 64 + ".invalid:8470")

    def test_an_address_where_nobody_answers_is_named_after_a_wait_that_is_announced(self):
        program = self.unanswered
        notice = program.line("tessera: waiting for the coordinator at 127.0.0.1:1, at most ")
        self.assertRegex(notice, r"^2\ds more; Ctrl-C ends the wait$")
        caught = program.line("caught ")
        self.assertIn("no coordinator answers at 127.0.0.1:1 within 30s: Connection refused", caught)
        self.assertNotIn("waiting for", program.said[-1])
        # The error that was caught does not let the CPU take over.
        self.assertIn("no coordinator answers at 127.0.0.1:1 within 5s", program.line("caught again "))
        self.assertEqual(program.end(), 1)
        self.assertNotIn("devices", program.text.partition("caught")[2].replace("healthy devices", ""))
        self.assertNotIn("sum", program.text)

    def test_ctrl_c_ends_the_wait_for_a_coordinator(self):
        with self.start(DEVICES, TESSERA_ADDRESS=NOBODY) as program:
            program.line("tessera: waiting for the coordinator")
            watch = Stopwatch()
            program.interrupt()
            self.assertNotEqual(program.end(), 0)
            self.assertLess(watch.unhindered(), 5)  # with the end of Python itself
        self.assertIn("KeyboardInterrupt", program.text)

    def test_ctrl_c_does_not_let_the_cpu_take_over(self):
        with self.start(INTERRUPTED, TESSERA_ADDRESS=NOBODY) as program:
            program.line("tessera: waiting for the coordinator")
            program.interrupt()
            program.line("interrupted")
            self.assertIn("no coordinator answers at 127.0.0.1:1", program.line("caught "))
            self.assertEqual(program.end(), 1)
        self.assertNotIn("devices [", program.text)
        self.assertNotIn("sum", program.text)

    def test_a_coordinator_that_starts_late_is_awaited(self):
        with daemons.Cluster(workers=1, devices=1) as cluster:
            cluster.processes["coordinator"].kill()
            cluster.processes["coordinator"].wait()
            with self.start(DEVICES, TESSERA_ADDRESS=cluster.address) as program:
                program.line("tessera: waiting for the coordinator")
                cluster.processes["coordinator"].stdout.close()
                cluster.start_coordinator()
                self.assertIn("TesseraDevice(id=0)", program.line("devices"))
                self.assertEqual(program.end(), 0)
        self.assertEqual(program.text.count("waiting for the coordinator"), 1)

    def test_workers_that_start_late_are_awaited(self):
        with daemons.Cluster(workers=0, devices=1) as cluster:
            with self.start(DEVICES, TESSERA_ADDRESS=cluster.address) as program:
                notice = program.line("tessera: waiting for devices of the cluster at " + cluster.address)
                self.assertRegex(notice, r"^, which has 0 of 1 that are healthy, at most 2\ds more")
                cluster.start_worker(0)
                self.assertIn("TesseraDevice(id=0)", program.line("devices"))
                self.assertEqual(program.end(), 0)
        self.assertEqual(program.text.count("waiting for"), 1)

    def test_a_short_wait_is_not_mentioned(self):
        with self.start(DEVICES, TESSERA_EMBEDDED="1") as program:
            self.assertEqual(program.end(), 0)
        self.assertNotIn("waiting", program.text)

    def test_misspelt_variables_are_named_with_the_nearest_one(self):
        with self.start(DEVICES, TESSERA_ADRESS=NOBODY, TESSERA_SERVICE_HOST="10.0.0.1",
                        TESSERA_PORT_8470_TCP="tcp://10.0.0.1:8470", TESSERA_LOG_LEVEL="info",
                        TESSERA_MY_NOTES_ON_THE_RUN="x") as program:
            self.assertEqual(program.end(), 0)
        warnings = [line for line in program.said if "is not a variable" in line]
        self.assertEqual(warnings, [
            "tessera_jax: TESSERA_ADRESS is not a variable of Tessera; did you mean TESSERA_ADDRESS?",
            "tessera_jax: TESSERA_MY_NOTES_ON_THE_RUN is not a variable of Tessera; docs/jax.md lists those that JAX "
            "programs read"])
        self.assertIn("Cpu", program.text)

    def test_who_asks_for_another_platform_hears_nothing(self):
        with self.start(DEVICES, JAX_PLATFORMS="cpu", TESSERA_ADDRESS=NOBODY, TESSERA_ADRESS=NOBODY,
                        TESSERA_PJRT_PLUGIN="/nonexistent/plugin.so") as program:
            self.assertEqual(program.end(), 0)
        self.assertRegex(program.text, r"^devices \[CpuDevice\(id=0\)\]\nlooked [0-9.]+$")
        chosen = "import jax; jax.config.update('jax_platforms', 'cpu')\n" + DEVICES
        with self.start(chosen, TESSERA_ADDRESS=NOBODY) as program:
            self.assertEqual(program.end(), 0)
        self.assertRegex(program.text, r"^devices \[CpuDevice\(id=0\)\]\nlooked [0-9.]+$")


if __name__ == "__main__":
    unittest.main()
