"""Arrays of which every device has a copy, when the executor of the first device is killed: the arrays
are read, and used by runs, from the devices that live."""
import contextlib
import os
import signal
import subprocess

import daemons
import numpy as np
from promised_faults.harness import Fault, Program, Skip, Watch, python_client

READ_WITHIN = 5
RUN_WITHIN = 5
BACK_WITHIN = 15
SMALL = 16  # elements of an array that travels by the coordinator
BIG = 1 << 18  # elements of one that comes from the executors themselves
TWICE = """func main(%a: f32[SIZE]) -> (f32[SIZE]) {
  %b = add(%a, %a)
  return %b
}
"""
# A JAX program that makes a replicated array, and uses it after the executor of the first device was
# killed.
JAX = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
devices = jax.devices()
everywhere = NamedSharding(jax.sharding.Mesh(np.array(devices), ("x",)), P())
half = len(devices) // 2
living = NamedSharding(jax.sharding.Mesh(np.array(devices[half:]), ("x",)), P())
want = np.arange(1 << 18, dtype=np.float32)
# The client has no copy of a result.
x = jax.jit(lambda: jnp.arange(1 << 18, dtype=jnp.float32), out_shardings=everywhere)()
jax.block_until_ready(x)
twice = jax.jit(lambda x: x + x, out_shardings=living)
np.asarray(twice(jax.device_put(want, living)))  # compiles the program
print("ready", flush=True)
sys.stdin.readline()
for what, use in (("read", lambda: (np.asarray(x), want)),
                  ("run", lambda: (np.asarray(twice(jax.device_put(x, living))), 2 * want))):
    try:
        got, wanted = use()
        print(what, "right" if got.tobytes() == wanted.tobytes() else "other bytes", flush=True)
    except Exception as error:
        print(what, type(error).__name__, str(error).replace("\\n", " "), flush=True)
print("end", flush=True)
"""


class Replicas(Fault):
    def start(self):
        self.running, self.observer = self.cluster()

    def first_worker(self):
        """Returns the number of the worker that has device 0."""
        [name] = [d["worker"] for d in self.running.healthy_devices() if d.get("id", "0") == "0"]
        return int(name[1:])

    def kill_first(self):
        [executor] = self.running.executor_pids(self.first_worker())
        os.kill(executor, signal.SIGKILL)

    def await_return(self, result):
        result.took("all devices are ready again", BACK_WITHIN, Watch().until(
            lambda: len(self.running.healthy_devices()) == 4))


class PythonReplicas(Replicas):
    number, name = "r1", "the first copy of an array is lost: the Python client"

    def start(self):
        super().start()
        self.library = python_client()
        self.session = self._stack.enter_context(self.library.connect(self.running.address))

    def round(self, result):
        client, everywhere = self.session, self.library.Mesh({"x": 4}, range(4))
        living = self.library.Mesh({"x": 1}, [3])
        sizes = {"a small": SMALL, "a big": BIG}
        values = {what: np.arange(n, dtype=np.float32) for what, n in sizes.items()}
        arrays = {what: client.put(value, everywhere, self.library.P())
                  for what, value in values.items()}
        twice = {what: client.compile(TWICE.replace("SIZE", str(n)), mesh=living)
                 for what, n in sizes.items()}
        self.kill_first()
        for what, array in arrays.items():
            self.expect(result, f"{what} array is read", READ_WITHIN,
                        lambda array=array: np.asarray(array), values[what])
        for what, array in arrays.items():
            self.expect(result, f"{what} array is used by a run", RUN_WITHIN,
                        lambda array=array, what=what: np.asarray(twice[what](array)[0]),
                        2 * values[what])
        self.await_return(result)

    def expect(self, result, what, bound, use, value):
        watch = Watch()
        try:
            wrong = [] if use().tobytes() == value.tobytes() else ["it holds other bytes"]
        except self.library.Error as error:
            wrong = [error]
        result.took(what, bound, None if wrong else watch.seconds())
        result.none(f"{what}: what is wrong", wrong)


class JaxReplicas(Replicas):
    number, name = "r2", "the first copy of an array is lost: JAX"

    def start(self):
        python = daemons.ROOT / "build/jax-venv/bin/python"
        self.plugin = daemons.bin_dir().parent / "lib/pjrt_plugin_tessera.so"
        for needed in (python, self.plugin):
            if not needed.exists():
                raise Skip(f"{needed} is not there; scripts/jax_venv makes the environment")
        self.python = python
        super().start()
        made = subprocess.run([daemons.ROOT / "scripts/plugin_path.py", self.folder()], check=True,
                              capture_output=True, text=True)
        self.path = made.stdout.strip()

    def round(self, result):
        with contextlib.closing(Program(
                self.running, self.python, "-c", JAX, stdin=subprocess.PIPE, PYTHONPATH=self.path,
                TESSERA_PJRT_PLUGIN=str(self.plugin), JAX_PLATFORMS="tessera,cpu")) as program:
            program.await_text("ready\n")
            self.kill_first()
            program.process.stdin.close()
            program.await_text("end\n")
        for what, text in (("read", "the array is read"), ("run", "the array is used by a run")):
            said = program.said.partition(f"\n{what} ")[2].partition("\n")[0]
            result.holds(text, said == "right", said)
        self.await_return(result)
