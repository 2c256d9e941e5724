"""Trainings that go on while something happens to their cluster, and whose losses can be compared
with those of a training to which nothing happened.

Each training makes a step about ten times a second, for as long as it is told to. All numbers that go
into it are the same in every process, so the losses of two trainings of equally many steps on the same
devices are equal to the last bit.
"""
import contextlib
import subprocess
import tempfile
import threading

import daemons
import numpy as np
from promised_faults.harness import Skip, environment, python_client

END_PATIENCE = 90  # seconds; longer than the longest timeout of a call
PAUSE = 0.1

# One step of gradient descent for a linear model of 16 numbers.
STEP = """mesh (x=N)
func main(%w: f32[16], %x: f32[64,16] P('x'), %y: f32[64] P('x')) -> (f32[16], f32[]) {
  %p = dot_general(%x, %w) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]}
  %e = subtract(%p, %y)
  %q = multiply(%e, %e)
  %loss = reduce_sum(%q) {dimensions=[0]}
  %g = dot_general(%e, %x) {lhs_batching_dimensions=[], rhs_batching_dimensions=[], lhs_contracting_dimensions=[0], rhs_contracting_dimensions=[0]}
  %rate = constant() {value=dense<f32[16]: 0.001>}
  %d = multiply(%rate, %g)
  %next = subtract(%w, %d)
  return %next, %loss
}
"""


def compare(losses, undisturbed):
    """Returns how two lists of losses differ, or "" if they are equal."""
    for step, (a, b) in enumerate(zip(losses, undisturbed)):
        if a != b:
            return f"the loss of step {step} is {a}, and {b} in a training to which nothing happened"
    if len(losses) != len(undisturbed):
        return f"{len(losses)} steps, and {len(undisturbed)} in a training to which nothing happened"
    return ""


class Training:
    """A training on `devices` of the cluster at `address`, whose calls wait for a coordinator that is
    away for `reconnect` seconds.

    losses  The losses so far, as exact texts.
    crash   What ended the training early, or "".
    """

    name = None

    def __init__(self, address, devices, reconnect):
        self.address, self.devices, self.reconnect = address, list(devices), reconnect
        self.losses, self.crash = [], ""

    def go_on(self, steps, patience):
        """Waits until the training has made so many more steps. Returns whether it has."""
        goal = len(self.losses) + steps
        try:
            daemons.eventually(lambda: len(self.losses) >= goal or self.crash, patience)
        except AssertionError:
            return False
        return not self.crash

    def fault(self):
        """Ends the training and returns what is wrong with it, or ""."""
        self.end()
        if self.crash:
            return f"{self.name}: it ended after {len(self.losses)} steps: {self.crash}"
        wrong = compare(self.losses, self.undisturbed(len(self.losses)))
        return f"{self.name}: {wrong}" if wrong else ""


class SdkTraining(Training):
    """A training with the SDK, in a process of its own. It sends a few steps ahead, and donates the
    parameters of each step to the next."""

    name = "the training in C++"

    def __init__(self, address, devices, reconnect):
        super().__init__(address, devices, reconnect)
        self.errors = tempfile.TemporaryFile()
        self.process = self.start()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def start(self, *more, stderr=None):
        program = daemons.bin_dir() / "promises_client"
        if not program.exists():
            raise Skip(f"{program} is not built")
        command = daemons.dying_with_us([program, "train", ",".join(map(str, self.devices)), *more])
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                stderr=stderr or self.errors,
                                env=environment(TESSERA_ADDRESS=self.address,
                                                TESSERA_RECONNECT=str(self.reconnect)))

    def read(self):
        for line in self.process.stdout:
            if line != "ready\n":
                self.losses.append(line.strip())
        status = self.process.wait()
        if status != 0:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip()
            self.crash = f"exit status {status}: {said}"

    def end(self):
        self.process.stdin.close()
        self.reader.join(END_PATIENCE)
        if self.reader.is_alive():
            self.crash = f"it does not end within {END_PATIENCE} s"

    def undisturbed(self, steps):
        with self.start(str(steps), stderr=subprocess.STDOUT) as process:
            try:
                said, _ = process.communicate(timeout=END_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"an undisturbed training of {steps} steps does not end") from None
        if process.returncode != 0:
            raise AssertionError(f"an undisturbed training of {steps} steps fails: {said}")
        return said.split()[1:]  # without "ready"

    def close(self):
        self.process.kill()
        self.reader.join()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            file.close()


class PythonTraining(Training):
    """A training with the Python client, in a thread. It reads each loss before the next step."""

    name = "the training in Python"

    def __init__(self, address, devices, reconnect):
        super().__init__(address, devices, reconnect)
        self.library = python_client()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def steps(self):
        """Yields the loss of one step after the other."""
        places = len(self.devices)
        numbers = np.sin(np.arange(65 * 16, dtype=np.float64)).astype(np.float32)
        with self.library.connect(self.address, reconnect=self.reconnect) as client:
            mesh = self.library.Mesh({"x": places}, self.devices)
            step = client.compile(STEP.replace("N", str(places)), mesh=mesh)
            x = client.put(numbers[:64 * 16].reshape(64, 16), mesh, self.library.P("x"))
            y = client.put(numbers[64:128].copy(), mesh, self.library.P("x"))
            w = client.put(numbers[-16:].copy(), mesh)
            while True:
                w, loss = step(w, x, y)
                yield float(client.get(loss)).hex()

    def run(self):
        try:
            with contextlib.closing(self.steps()) as losses:
                for loss in losses:
                    self.losses.append(loss)
                    if self.stopping.wait(PAUSE):
                        return
        except Exception as error:  # any failure ends the training
            self.crash = f"{type(error).__name__}: {error}"

    def end(self):
        self.stopping.set()
        self.thread.join(END_PATIENCE)
        if self.thread.is_alive():
            self.crash = f"it does not end within {END_PATIENCE} s"

    def undisturbed(self, steps):
        with contextlib.closing(self.steps()) as losses:
            return [next(losses) for _ in range(steps)]

    def close(self):
        self.stopping.set()
        self.thread.join(END_PATIENCE)
