"""Tests what a JAX program sees of a device that is lost, away, or back, on real daemons.

Exits with 77 if JAX is not installed.
"""
import importlib.util
import os
import signal
import sys
import unittest

import processes

sys.path.insert(0, str(processes.ROOT / "tests/service"))

import daemons  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402

if importlib.util.find_spec("jax") is None:
    print("JAX is not installed for this Python")
    sys.exit(77)

# Executes the lines that it is given, and prints what they print, each followed by a line "done".
OBEYS = processes.REGISTER + """
import contextlib, sys, time
import jax, jax.numpy as jnp, numpy as np

devices = sorted(jax.devices(), key=lambda device: device.worker)
ones = np.ones(2**16, np.float32)   # too large to come to this process with the end of its run
double = jax.jit(lambda x: jnp.sin(x) * 2)
kept = [double(jax.device_put(ones, d)).block_until_ready() for d in devices]

def attempt(f):
    began = time.monotonic()
    try:
        said = str(f())
    except Exception as error:
        said = f"{type(error).__name__} {error}"
    print("took", time.monotonic() - began)
    print("said", said.replace("\\n", " "), flush=True)

print("ready", [(d.worker, d.state, d.why, repr(d) == f"TesseraDevice(id={d.id})") for d in devices], flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


class LostDeviceTest(unittest.TestCase):
    def start(self, **flags):
        self.cluster = self.enterContext(daemons.Cluster(workers=2, devices=1, **flags))
        self.program = self.enterContext(processes.Program(
            OBEYS, TESSERA_ADDRESS=self.cluster.address, JAX_PLATFORMS="tessera,cpu"))
        self.assertEqual(self.program.line("ready"), str([(f"w{i}", "ready", "", True) for i in range(2)]))

    def attempt(self, expression):
        """Returns what the program says of an expression, and how long it took."""
        self.program.send(f"attempt(lambda: {expression})")
        took = float(self.program.line("took"))
        said = self.program.line("said")
        self.program.line("done")
        return said, took

    def await_state(self, device, *states):
        daemons.eventually(lambda: self.attempt(f"devices[{device}].state")[0] in states, patience=60,
                           what=f"device {device} is {states}")

    def expect_at_once(self, expression, words):
        watch = Stopwatch()
        said, took = self.attempt(expression)
        self.assertLess(took, 1 + watch.elapsed() - watch.unhindered())
        self.assertRegex(said, words)

    def test_a_lost_worker_is_named_and_used_again_when_it_is_back(self):
        self.start(coordinator_flags=["--outage-grace-ms=500"])
        self.cluster.kill_worker(1)
        self.await_state(1, "lost")
        self.assertTrue(self.attempt("devices[1].why")[0])
        self.assertRegex(self.attempt("repr(devices[1])")[0], r"^TesseraDevice\(id=\d, lost: .+\)$")
        self.assertEqual(self.attempt("devices[0].state")[0], "ready")
        lost = r"WORKER_LOST: .*device \d is lost: "
        self.expect_at_once("jax.block_until_ready(jax.device_put(ones, devices[1]))", lost)
        self.expect_at_once("jax.block_until_ready(jax.device_put(kept[0], devices[1]))", lost)
        self.expect_at_once("np.asarray(kept[1])", "WORKER_LOST: .*w1")
        self.expect_at_once("double(jax.device_put(ones, devices[0]))[:2]", r"^\[1\.68")
        self.cluster.start_worker(1)
        self.await_state(1, "ready")
        for expression in ("jax.block_until_ready(jax.device_put(ones, devices[1]))[0]",
                           "jax.device_put(kept[0] * 0 + 1, devices[1])[0]"):
            self.assertRegex(self.attempt(expression)[0], r"^1\.0")
        said, _ = self.attempt("double(jax.device_put(ones, devices[1]))")
        self.assertRegex(said, r"^\[1\.68")
        self.assertRegex(self.attempt("repr(devices[1])")[0], r"^TesseraDevice\(id=\d\)$")

    def test_a_lost_executor_is_named_and_its_device_used_again(self):
        self.start()
        executor, = self.cluster.executor_pids(1)
        os.kill(executor, signal.SIGKILL)
        daemons.eventually(lambda: "WORKER_LOST" in self.attempt("np.asarray(kept[1])")[0], what="the array is lost")
        self.assertRegex(self.attempt("np.asarray(kept[1])")[0], r"killed by signal 9")
        self.await_state(1, "ready")
        self.assertRegex(self.attempt("double(jax.device_put(ones, devices[1]))")[0], r"^\[1\.68")
        self.assertRegex(self.attempt("np.asarray(kept[0])")[0], r"^\[1\.68")

    def test_the_caller_waits_for_a_device_that_is_away(self):
        self.start()
        worker = self.cluster.processes["w1"].pid
        daemons.freeze(worker)
        try:
            self.await_state(1, "away")
            self.assertTrue(self.attempt("devices[1].why")[0])
            self.program.send("attempt(lambda: jax.block_until_ready(jax.device_put(ones, devices[1])))")
            self.program.await_blocked()
        finally:
            os.kill(worker, signal.SIGCONT)
        self.assertRegex(self.program.line("said"), r"^\[1\. 1\.")
        self.program.line("done")
        self.assertRegex(self.attempt("np.asarray(kept[1])")[0], r"^\[1\.68")

    def test_a_coordinator_that_is_away_leaves_states_unknown(self):
        self.start()
        coordinator = self.cluster.processes["coordinator"].pid
        daemons.freeze(coordinator)
        try:
            self.await_state(0, "unknown")
            watch = Stopwatch()
            said, took = self.attempt("[(d.state, d.why) for d in devices * 50][-1]")
            self.assertIn("the coordinator has not answered within 1s", said)
            self.assertLess(took, 5 + watch.elapsed() - watch.unhindered())
        finally:
            os.kill(coordinator, signal.SIGCONT)
        self.await_state(0, "ready")


if __name__ == "__main__":
    unittest.main()
