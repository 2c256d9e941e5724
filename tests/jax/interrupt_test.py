"""Tests how the runs of a JAX program end early: by Ctrl-C, by tessera_jax.cancel(), and because nothing holds their
results any more. Each test runs on an embedded cluster and on real daemons.

Exits with 77 if JAX is not installed.
"""
import importlib.util
import json
import sys
import unittest

import processes

sys.path.insert(0, str(processes.ROOT / "tests/service"))

import daemons  # noqa: E402
from stopwatch import Stopwatch  # noqa: E402

if importlib.util.find_spec("jax") is None:
    print("JAX is not installed for this Python")
    sys.exit(77)

# `endless` runs for hours. `next_op` is too large to be evaluated without the devices.
BEGIN = processes.REGISTER + """
import signal, sys, threading, time
import jax, jax.numpy as jnp, numpy as np

devices = jax.devices()
big = np.linspace(0, 1, 512 * 512, dtype=np.float32).reshape(512, 512)
product = jax.jit(lambda x: jnp.tanh(x @ x))
wanted = [np.asarray(product(jax.device_put(big, d))) for d in devices]

def next_op():
    began = time.monotonic()
    for d, w in zip(devices, wanted):
        np.testing.assert_array_equal(product(jax.device_put(big, d)), w)
    print("next", time.monotonic() - began, flush=True)

def sines(turns):
    return jax.jit(lambda x: jax.lax.fori_loop(0, turns, lambda i, x: jnp.sin(x) + 1, x))

def how(y):
    try:
        return str(np.asarray(y))
    except Exception as error:
        return f"{type(error).__name__} {str(error).splitlines()[0]}"

x = jnp.arange(4.0)
add, endless, finite = jax.jit(lambda x: x + 1), sines(2**31 - 1), sines(6_000_000)
expected = np.asarray(finite(x))
add(x).block_until_ready()
"""

# Waits for what `wait` names until Ctrl-C, and uses the devices again.
WAITS = BEGIN + """
y = endless(x)
{before}
print("waiting", flush=True)
try:
    {wait}
    print("the wait ended")
except KeyboardInterrupt:
    print("interrupted", flush=True)
next_op()
print("y", how(y), flush=True)
"""


class OnBothClusters:
    """The tests. A derived class says where they run."""

    def start(self, code, **replaced):
        for name, text in replaced.items():
            code = code.replace("{" + name + "}", text)
        return self.enterContext(processes.Program(code, **self.environment()))

    def expect_prompt(self, seconds):
        """Checks what the program measured, in which the machine may have been overloaded."""
        self.assertLess(seconds, 1 + self.watch.elapsed() - self.watch.unhindered())

    def interrupt(self, program):
        program.line("waiting")
        program.await_blocked()
        self.watch = Stopwatch()
        program.interrupt()

    def check_ctrl_c(self, wait, before=""):
        program = self.start(WAITS, wait=wait, before=before)
        self.interrupt(program)
        program.line("interrupted")
        self.assertLess(self.watch.unhindered(), 1)
        self.expect_prompt(float(program.line("next")))
        self.assertIn("CANCELLED", program.line("y"))
        self.assertEqual(program.end(), 0, program.text)

    def test_ctrl_c_cancels_the_run_that_is_waited_for(self):
        self.check_ctrl_c("y.block_until_ready()")

    def test_ctrl_c_cancels_the_run_that_is_read(self):
        self.check_ctrl_c("np.asarray(y)")

    def test_ctrl_c_cancels_all_runs_of_a_chain(self):
        self.check_ctrl_c("z.block_until_ready()", before="z = y\nfor _ in range(30): z = add(z)")

    def test_ctrl_c_cancels_what_a_copy_waits_for(self):
        self.check_ctrl_c("jax.device_put(y, devices[1]).block_until_ready()")

    def test_ctrl_c_cancels_later_runs_too_that_are_in_the_way(self):
        self.check_ctrl_c("y.block_until_ready()", before="rest = [endless(x) for _ in range(5)]")

    def test_ctrl_c_ends_a_program_that_does_not_catch_it(self):
        program = self.start(BEGIN + 'y = endless(x)\nprint("waiting", flush=True)\ny.block_until_ready()\n')
        self.interrupt(program)
        self.assertNotEqual(program.end(), 0)
        self.assertLess(self.watch.unhindered(), 8)  # with the end of Python and of the cluster
        self.assertIn("KeyboardInterrupt", program.text)

    def test_ctrl_c_spares_the_runs_of_other_threads(self):
        program = self.start(BEGIN + """
other = jax.device_put(x, devices[1])
results = []
def work():
    results.append(finite(other))
    print("waiting", flush=True)
    results[0].block_until_ready()
thread = threading.Thread(target=work)
y = endless(x)
thread.start()
try:
    y.block_until_ready()
except KeyboardInterrupt:
    print("interrupted", flush=True)
thread.join()
print("other", bool((np.asarray(results[0]) == expected).all()))
print("y", how(y))
""")
        self.interrupt(program)
        program.line("interrupted")
        self.assertEqual(program.line("other"), "True")
        self.assertIn("CANCELLED", program.line("y"))

    def test_handlers_of_the_program_go_on_working(self):
        # The program sets a handler before it uses the plugin, and another one between two waits.
        program = self.start(BEGIN.replace("import tessera_jax", """
import signal
called = []
signal.signal(signal.SIGINT, lambda *_: (called.append("first"), print("called", flush=True)))
import tessera_jax""") + """
y = finite(x)
print("waiting", flush=True)
y.block_until_ready()
signal.signal(signal.SIGINT, lambda *_: (called.append("second"), print("called", flush=True)))
z = finite(y)
print("waiting", flush=True)
z.block_until_ready()
print("handlers", called)
print("y", bool((np.asarray(y) == expected).all()), how(z)[:1])
signal.signal(signal.SIGINT, signal.default_int_handler)
w = endless(z)
print("waiting", flush=True)
try:
    w.block_until_ready()
except KeyboardInterrupt:
    print("interrupted", flush=True)
next_op()
""")
        for _ in range(2):
            program.line("waiting")
            program.interrupt()
            program.line("called")
        self.assertEqual(program.line("handlers"), "['first', 'second']")
        self.assertEqual(program.line("y"), "True [")
        self.interrupt(program)
        program.line("interrupted")
        self.expect_prompt(float(program.line("next")))

    def test_a_handler_may_raise_an_error_of_its_own_and_cancel(self):
        program = self.start(BEGIN + """
class Stop(Exception):
    pass
def stop(*_):
    print("cancelled", tessera_jax.cancel(), flush=True)
    raise Stop
signal.signal(signal.SIGINT, stop)
y = endless(x)
print("waiting", flush=True)
try:
    y.block_until_ready()
except Stop:
    print("stopped", flush=True)
next_op()
""")
        self.interrupt(program)
        self.assertEqual(program.line("cancelled"), "1")
        program.line("stopped")
        self.expect_prompt(float(program.line("next")))

    def test_ctrl_c_while_nothing_is_waited_for_cancels_nothing(self):
        program = self.start(BEGIN + """
y = finite(x)
print("waiting", flush=True)
try:
    sys.stdin.readline()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("y", bool((np.asarray(y) == expected).all()))
""")
        self.interrupt(program)
        program.line("interrupted")
        self.assertEqual(program.line("y"), "True")

    def test_cancel_cancels_all_runs_and_counts_them(self):
        program = self.start(BEGIN + """
print("none", tessera_jax.cancel())
y = [endless(x), endless(jax.device_put(x, devices[1]))]
z = add(y[0])
print("cancelled", tessera_jax.cancel())
next_op()
print("y", how(y[0]), how(y[1]))
print("z", how(z))
print("again", tessera_jax.cancel())
print("result", bool((np.asarray(finite(x)) == expected).all()))
""")
        self.watch = Stopwatch()
        self.assertEqual(program.line("none"), "0")
        self.assertEqual(program.line("cancelled"), "3")
        self.expect_prompt(float(program.line("next")))
        self.assertEqual(program.line("y").count("CANCELLED"), 4)
        self.assertIn("CANCELLED", program.line("z"))
        self.assertEqual(program.line("again"), "0")
        self.assertEqual(program.line("result"), "True")

    def test_a_run_whose_results_nobody_holds_is_cancelled(self):
        program = self.start(BEGIN + """
y = endless(x)
print("running", flush=True)
sys.stdin.readline()
del y
next_op()
z = add(endless(x))          # the run that makes the argument goes with it
del z
next_op()
for _ in range(3):
    y = endless(x)
y = add(x)
next_op()
""")
        program.line("running")
        self.await_running()
        program.send()
        self.watch = Stopwatch()
        for _ in range(3):
            self.expect_prompt(float(program.line("next")))
        self.await_none_running()

    def test_a_run_that_another_one_needs_goes_on_without_holders(self):
        program = self.start(BEGIN + """
y = finite(x)
z = add(y)
here = jax.device_put(y, devices[1])
del y
print("z", bool((np.asarray(z) == expected + 1).all()), bool((np.asarray(here) == expected).all()))
steps = x
for _ in range(200):
    steps = add(steps)
print("steps", np.asarray(steps - x))
seen = []
def shown(x):
    jax.debug.callback(lambda v: seen.append(v.shape), finite(x))
    return x
jax.jit(shown)(x)            # its result is dropped, but its call is wanted
jax.effects_barrier()
print("seen", seen)
""")
        self.assertEqual(program.line("z"), "True True")
        self.assertEqual(program.line("steps"), "[200. 200. 200. 200.]")
        self.assertEqual(program.line("seen"), "[(4,)]")


class EmbeddedTest(OnBothClusters, unittest.TestCase):
    def environment(self):
        return {"TESSERA_EMBEDDED": "2", "JAX_PLATFORMS": "tessera,cpu"}

    def await_running(self):
        pass  # Only the program itself could tell.

    def await_none_running(self):
        pass


class RemoteTest(OnBothClusters, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(daemons.Cluster(workers=2, devices=1))

    def environment(self):
        return {"TESSERA_ADDRESS": self.cluster.address, "JAX_PLATFORMS": "tessera,cpu"}

    def operations(self):
        with self.cluster.connect() as client:
            return client.call("tessera.v1.OperationService/ListOperations",
                               {"all_sessions": True, "live_only": True}).get("operations", [])

    def await_running(self):
        daemons.eventually(self.operations, what="an operation runs")

    def await_none_running(self):
        daemons.eventually(lambda: not self.operations(), what="no operation runs")

    def test_the_process_goes_on_ahead_and_ctrl_c_reaches_it(self):
        """The program is as far ahead as it may be, so it waits inside of a call, and not for a result."""
        program = self.start(WAITS, before="", wait="""
    z = y
    while True: z = add(z)""")
        self.interrupt(program)
        program.line("interrupted")
        self.expect_prompt(float(program.line("next")))
        self.assertIn("CANCELLED", program.line("y"))
        self.await_none_running()


if __name__ == "__main__":
    unittest.main()
