"""Tests what flight recorders hold of a run, and that they can be read after a process has died."""
import os
import pathlib
import re
import signal
import tempfile
import unittest

import daemons

DIAGNOSTICS = "tessera.v1.AdminService/GetDiagnostics"
PROGRAM = """mesh (i=2)
func main(%x: f32[4] P('i')) -> (f32[4] P('i')) {
  %y = manual_computation(%x) {in_specs=specs[P('i')], out_specs=specs[P('i')], manual_axes=["i"], check_vma=true} with
    func body(%b: f32[2]{V:i}) -> (f32[2]{V:i}) mesh (i=2:manual) {
      %s = psum(%b) {axes=["i"]}
      %v = pvary(%s) {axes=["i"]}
      return %v
    }
  return %y
}
"""
HEAD = r"flight recorder of process \d+, which got signal {}\n"
LINE = r"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{6}}Z \d+ {}"


class FlightTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.cluster = daemons.Cluster(
            devices=1, coordinator_flags=[f"--state-dir={self.folder}/state"],
            worker_flags=[f"--log-file={self.folder}/workers.log"])
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.connect()
        self.addCleanup(self.client.channel.close)

    def read(self, path, *patterns):
        """Returns the file's text as soon as it is not empty and matches the patterns. A process writes the file in
        pieces."""
        path = self.folder / path

        def text():
            written = path.exists() and path.read_text()
            return written if written and all(re.search(p, written) for p in patterns) else None
        return daemons.eventually(text, what=(path, *patterns))

    def flights(self, **request):
        found = self.client.call(DIAGNOSTICS, {"details": True, "all": True, **request})
        return {p["process"]: p["flightRecorder"] for p in found["processes"]}

    def run_program(self):
        self.client.call("tessera.v1.ProgramService/RunProgram",
                         {"text": PROGRAM, "inputs": [[1, 2, 3, 4]]})

    def test_every_process_says_what_it_did(self):
        self.run_program()
        flights = self.flights()
        self.assertEqual(list(flights), ["coordinator", "w0", "w0/0", "w1", "w1/0"])
        for process, lines in {
                "coordinator": ["process: begins pid=", "worker stream: w0 registers session=",
                                "executor stream: attaches session=",
                                "call: tessera.v1.ProgramService/RunProgram",
                                r"call ends: tessera.v1.\w+/\w+ call=\d+ took_us=",
                                r"event: Execute request=", "effect: Launch session=",
                                r"event: LaunchDone session=\d+ operation=", "effect: Reply request=",
                                "commit commit=", "durable commit=", "log: info "],
                "w0": ["daemon: starts a process incarnation=", "daemon: connects",
                       "daemon: is registered epoch=", "log: info "],
                "w0/0": ["stream to the coordinator: attaches epoch=", "command: LAUNCH operation=",
                         "run operation=", "waits for peers: psum", "waited for peers: psum",
                         "run ends", "report: LAUNCH_DONE operation="]}.items():
            for line in lines:
                self.assertRegex(flights[process], LINE.format(line), process)
        for text in flights.values():
            times = [line.split()[0] for line in text.splitlines()]
            self.assertEqual(times, sorted(times))

    def test_an_aborted_executor(self):
        self.run_program()
        (pid,) = self.cluster.executor_pids(0)
        os.kill(pid, signal.SIGABRT)
        self.read("flight-w0-0.txt", LINE.format("report: LAUNCH_DONE operation="))
        # The executor itself wrote its last lines to the log.
        daemons.eventually(lambda: re.search(HEAD.format(6) + LINE.format(""), self.log("w0")))
        # The next executor uses the same recorder.
        self.cluster.await_devices(2)
        begins = daemons.eventually(
            lambda: re.findall(r"process: begins pid=(\d+)", self.flights()["w0/0"]))
        self.assertEqual(begins[0], str(pid))
        self.assertEqual(len(begins), 2)

    def test_a_killed_executor_twice(self):
        for kept in ("flight-w0-0.txt", "flight-w0-0.txt.1"):
            (pid,) = daemons.eventually(lambda: self.cluster.executor_pids(0))
            self.cluster.await_devices(2)
            os.kill(pid, signal.SIGKILL)
            self.read(kept)
            self.read("flight-w0-0.txt", f"process: begins pid={pid}")

    def test_of_a_coordinator_on_demand_and_at_its_end(self):
        coordinator = self.cluster.processes["coordinator"]
        coordinator.send_signal(signal.SIGUSR2)
        self.read("state/flight-coordinator.txt", HEAD.format(12) + LINE.format("process: begins"))
        self.run_program()  # the coordinator keeps running
        coordinator.send_signal(signal.SIGABRT)  # A sanitizer would handle other signals itself.
        self.assertEqual(coordinator.wait(20), -signal.SIGABRT)
        written = self.read("state/flight-coordinator.txt")
        self.assertRegex(written, HEAD.format(6) + LINE.format("process: begins"))
        self.assertIn("ProgramService/RunProgram", written)
        self.assertTrue((self.folder / "state/flight-coordinator.txt.1").exists())

    def log(self, name):
        return (self.cluster.folder / f"{name}.log").read_text()


if __name__ == "__main__":
    unittest.main()
