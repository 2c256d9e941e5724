"""Tests that nothing is lost when the wall clock of a single process is set by an hour, forward and
back.

pause_test.cc sets the clocks of all daemons together.
"""
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

import daemons
from promised_faults import Skip
from promised_faults.harness import python_client

HOUR = 3600
LEASE = 2.0  # lease of the client's session in seconds; the client renews it
PATIENCE = 60
LONG = """mesh (x=4)
func main(%a: f32[8] P('x')) -> (f32[8]) {
  %last = scan(%a) {num_consts=0, num_carry=1, length=400000, reverse=false} with
    func step(%c: f32[8]) -> (f32[8]) {
      %s = negate(%c)
      return %s
    }
  return %last
}
"""


def work_as_a_client(address):
    """Begins a run at one line of stdin. At the next line waits for its end and checks everything
    else."""
    tessera = python_client()
    import numpy as np
    value = np.arange(8, dtype=np.float32)
    with tessera.connect(address, lease=LEASE, timeout=PATIENCE) as client:
        mesh = tessera.Mesh({"x": 4}, [0, 1, 2, 3])
        steps = client.compile(LONG, mesh=mesh)
        kept, session = client.put(value, mesh, tessera.P("x")), client.session
        print("ready", flush=True)
        while sys.stdin.readline():
            run = steps.submit(client.put(value, mesh, tessera.P("x")), donate=[0])
            print("begun", flush=True)
            sys.stdin.readline()
            # The wait is longer than the leases of the session and of the workers.
            threading.Event().wait(2 * LEASE)
            assert run.wait().state == "DONE"
            assert (client.get(run.outputs[0]) == value).all()
            assert (client.get(kept) == value).all()
            # One clock makes the tickets, and another checks them.
            assert (client.get(client.put(value, mesh, tessera.P("x"))) == value).all()
            assert client.session == session
            assert all(d.healthy for d in client.devices()), client.devices()
            print("well", flush=True)


class ClockTest(unittest.TestCase):
    def setUp(self):
        shim = daemons.bin_dir() / "clock_step.so"
        if not shim.exists():
            self.skipTest(f"{shim} is not built")
        try:
            python_client()
        except Skip as skip:
            self.skipTest(str(skip))
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.step_file = folder / "step"
        self.step_file.write_bytes(bytes(8))
        self.stepped = {"LD_PRELOAD": str(shim), "CLOCK_STEP_FILE": str(self.step_file)}

    def step(self, seconds):
        with open(self.step_file, "r+b") as file:
            file.write(struct.pack("<q", seconds))

    def start_client(self, cluster, environment):
        client = subprocess.Popen(
            daemons.dying_with_us([sys.executable, "-B", __file__, "client", cluster.address]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment})
        self.addCleanup(lambda: (client.kill(), client.communicate()))
        self.assertEqual(client.stdout.readline(), "ready\n")
        return client

    def tell(self, client, answer):
        client.stdin.write("\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.readline(), answer + "\n")

    def set_clock_of(self, who):
        with daemons.Cluster(environments={who: self.stepped}) as cluster:
            executors = [cluster.executor_pids(w) for w in (0, 1)]
            client = self.start_client(cluster, self.stepped if who == "client" else {})
            # If a process's clock is before its start, gRPC's Python library times out the calls of
            # that process.
            for clock in (HOUR, 0) if who == "client" else (HOUR, 0, -HOUR):
                with self.subTest(clock):
                    self.tell(client, "begun")
                    self.step(clock)
                    self.tell(client, "well")
            self.assertEqual([cluster.executor_pids(w) for w in (0, 1)], executors)
            self.assertNotIn("executor lost", cluster.logs())

    def test_the_coordinators(self):
        self.set_clock_of("coordinator")

    def test_a_workers(self):
        self.set_clock_of("w0")

    def test_a_clients(self):
        self.set_clock_of("client")


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        work_as_a_client(sys.argv[2])
    else:
        unittest.main()
