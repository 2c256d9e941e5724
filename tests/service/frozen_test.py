"""Tests executors that freeze (SIGSTOP) or do not end: the caller is told in time, and the process
is killed.

The constants hold the promised times in seconds. Each test prints the measured time beside them.
"""
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import daemons
import json_client
import stopwatch
import tcp_proxy

PROGRAMS = "tessera.v1.ProgramService/"
ARRAYS = "tessera.v1.ArrayService/"
OPERATIONS = "tessera.v1.OperationService/"
CLUSTER = "tessera.v1.ClusterService/"
WORKERS = "tessera.v1.AdminService/"

DEADLINE = 2
TOLD_WITHIN = 1  # seconds after the deadline
KILLED_WITHIN = 2 + 1  # seconds after the deadline: the grace period, and the time that the kill takes
NOT_READY_WITHIN = 2  # seconds
BACK_WITHIN = 5  # seconds after the kill
AWAY_WITHIN = 2 * 1.5  # seconds after a worker became silent: two leases
LOST_WITHIN = AWAY_WITHIN  # seconds after the end of the grace period
BACK_WITH_ARRAYS_WITHIN = 2  # seconds after the end of the silence
FLAPPED_WITHIN = 10  # seconds after the last partition of a series
WATCHDOG = 1.5  # timeout of a collective in seconds
VERDICT_WITHIN = 2  # seconds after the watchdog's timeout

DOUBLE = """
func main(%a: f32[4]) -> (f32[4]) {
  %b = add(%a, %a)
  return %b
}
"""
ADD_ONE = """
func main(%a: f32[4]) -> (f32[4]) {
  %one = constant() {value=dense<f32[4]: 1>}
  %b = add(%a, %one)
  return %b
}
"""
# This program takes minutes on one device, without an exchange.
LOOP = """
func main(%c: f32[2048]) -> (f32[2048]) {
  %last = scan(%c) {num_consts=0, num_carry=1, length=100000000, reverse=false} with
    func step(%carry: f32[2048]) -> (f32[2048]) {
      %next = sine(%carry)
      return %next
    }
  return %last
}
"""
# This program does the same on two workers, with a sum over both in each step.
SUMS = """
mesh (i=2)
func main(%x: f32[8]) -> (f32[8]) {
  %y = manual_computation(%x) {in_specs=specs[P('i')], out_specs=specs[P('i')], manual_axes=["i"], check_vma=true} with
    func body(%b: f32[4]{V:i}) -> (f32[4]{V:i}) mesh (i=2:manual) {
      %last = scan(%b) {num_consts=0, num_carry=1, length=100000000, reverse=false} with
        func step(%carry: f32[4]{V:i}) -> (f32[4]{V:i}) mesh (i=2:manual) {
          %next = sine(%carry)
          %s = psum(%next) {axes=["i"]}
          %v = pvary(%s) {axes=["i"]}
          return %v
        }
      return %last
    }
  return %y
}
"""

STUCK = SUMS.replace("i=2", "i=3").replace("f32[8]", "f32[12]")


def one(device):
    return {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": [str(device)]}


class FrozenTest(unittest.TestCase):
    def start(self, *flags, worker_flags=(), workers=2):
        self.cluster = daemons.Cluster(workers, devices=1, coordinator_flags=flags,
                                       worker_flags=worker_flags)
        self.addCleanup(self.cluster.close)
        self.client = self.cluster.connect()
        self.addCleanup(self.client.channel.close)
        # The worker that registered first has device 0.
        self.at = {int(d["worker"][1:]): int(d.get("id", 0)) for d in self.devices()}
        self.stopped = []
        self.addCleanup(lambda: [self.resume(pid) for pid in self.stopped])

    def resume(self, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def call(self, method, request, timeout=60):
        return self.client.call(method, request, timeout=timeout)

    def executor(self, worker):
        return self.cluster.executor_pids(worker)[0]

    def freeze(self, worker):
        pid = self.executor(worker)
        daemons.freeze(pid)
        self.stopped.append(pid)
        return pid

    def compile(self, text, workers):
        return self.call(PROGRAMS + "CompileProgram",
                         {"text": text, "devices": [str(self.at[w]) for w in workers]})

    def write(self, spec):
        size = 1
        for n in spec["shape"]:
            size *= int(n)
        return self.call(ARRAYS + "WriteArray", {"spec": spec, "json": [0.5] * size})["array"]

    def run_program(self, worker, timeout=60):
        return self.call(PROGRAMS + "RunProgram",
                         {"text": DOUBLE, "inputs": [[1, 2, 3, 4]], "devices": [str(self.at[worker])],
                          "timeout": f"{timeout}s"})

    def execute(self, text, workers, deadline=None):
        """Starts a run and returns its operation. `accepted` is a stopwatch that starts when its
        deadline does, or just before."""
        compiled = self.compile(text, workers)
        array = self.write(compiled["in"][0])
        request = {"executable": compiled["executable"], "args": [array]}
        if deadline is not None:
            request["deadline"] = f"{deadline}s"
        self.accepted = stopwatch.Stopwatch()
        return self.call(PROGRAMS + "ExecuteProgram", request)["operation"]

    def wait(self, operation):
        return self.call(OPERATIONS + "WaitOperation",
                         {"operation": operation, "timeout": "60s"}, timeout=70)

    def devices(self):
        return self.call(CLUSTER + "ListDevices", {})["devices"]

    def tessera(self, *args):
        done = subprocess.run([daemons.bin_dir() / "tessera", "--address", self.cluster.address,
                               *args], capture_output=True, timeout=60, text=True)
        return done.stdout + done.stderr

    def expect_within(self, what, seconds, watch):
        took = watch.unhindered()
        print(f"{what}: {took:.2f} s, promised {seconds} s")
        self.assertLess(took, seconds, what)

    def await_gone(self, pid, patience):
        try:
            daemons.eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists(), patience,
                               f"process {pid} is gone")
        except AssertionError:
            print(self.cluster.logs())
            raise

    def expect_works_again(self, worker, old):
        watch = stopwatch.Stopwatch()
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 2)
        self.assertEqual(self.run_program(worker)["outputs"], [[2, 4, 6, 8]])
        self.expect_within("the next run", BACK_WITHIN, watch)
        self.assertNotIn(old, self.cluster.executor_pids(0) + self.cluster.executor_pids(1))

    def test_a_run_that_was_begun(self):
        self.start()
        operation = self.execute(LOOP, [1], deadline=DEADLINE)
        watch = self.accepted
        # Wait until the coordinator has heard which op runs.
        seen = self.await_op(watch)
        pid = self.freeze(1)
        ended = self.wait(operation)
        self.expect_within("told after the beginning", DEADLINE + TOLD_WITHIN, watch)
        self.assertEqual(ended["error"]["code"], 4, ended)
        self.assertIn("did not end within its deadline of 2s", ended["error"]["message"])
        self.assertIn("w1/0", ended["error"]["message"])
        if seen:
            self.assertIn("sin", ended["error"]["message"])
        self.await_gone(pid, 20)
        self.expect_within("killed after the beginning", DEADLINE + KILLED_WITHIN, watch)
        self.expect_works_again(1, pid)
        self.assertIn("was not left within 2s", self.cluster.logs())

    def heard_of(self, worker):
        """Returns when the coordinator last heard of a worker, as exactly as its answer tells."""
        workers = self.call(CLUSTER + "ListWorkers", {})["workers"]
        (age,) = [w["heartbeatAge"] for w in workers if w["name"] == f"w{worker}"]
        return time.monotonic() - float(age[:-1])

    def await_op(self, watch):
        """Waits for reports of the worker. Returns whether a heartbeat that names the op fitted
        before the deadline."""
        for _ in range(3):
            last = self.heard_of(1)
            # The time between reports is longer than an answer takes.
            daemons.eventually(lambda last=last: self.heard_of(1) > last + 0.1,
                               what="a report of the worker")
        return watch.elapsed() < DEADLINE - 0.3

    def test_a_run_over_two_workers_costs_only_the_one_that_is_frozen(self):
        self.start()
        operation = self.execute(SUMS, [0, 1], deadline=DEADLINE)
        watch = self.accepted
        other = self.executor(0)
        pid = self.freeze(1)
        ended = self.wait(operation)
        self.expect_within("told after the beginning", DEADLINE + TOLD_WITHIN, watch)
        self.assertEqual(ended["error"]["code"], 4, ended)
        self.assertIn("w1/0", ended["error"]["message"])
        self.await_gone(pid, 20)
        self.expect_within("killed after the beginning", DEADLINE + KILLED_WITHIN, watch)
        self.expect_works_again(1, pid)
        self.assertEqual(self.executor(0), other)

    def expect_verdict(self, ended, worker, phases):
        """Checks that the error names the stuck member: rank, device, op, line and phase."""
        [info] = [d for d in ended["error"]["details"] if "reason" in d]
        self.assertEqual(info["reason"], "COLLECTIVE_TIMEOUT", ended)
        print(ended["error"]["message"])
        # A member that still waits for the stuck one in the step before is missing in this step too
        # and may be named beside it. But that member has reported.
        self.assertRegex(
            ended["error"]["message"],
            rf"^no report from executor w{worker}/0[ :][^;]*psum \(program.txt:9\): [12] of 3 "
            rf"members missing after 1.5s, seen from rank [^{worker}]: .*"
            rf"rank {worker} \(device 0 of executor w{worker}/0, host [^)]+\): ({phases})[; ]")

    def test_a_collective_that_somebody_is_stuck_in(self):
        watchdog = f"--collective-timeout-ms={int(WATCHDOG * 1000)}"
        self.start(watchdog, "--canary-interval-ms=0", worker_flags=[watchdog], workers=3)
        for worker, begun in ((1, True), (0, True), (2, False)):
            with self.subTest(worker=worker, begun=begun):
                operation = self.execute(STUCK, [0, 1, 2])
                if begun:
                    self.await_op(self.accepted)
                else:  # the member may not have reached the collective, or not its first step
                    daemons.eventually(lambda: self.is_running(operation))
                pid = self.freeze(worker)
                watch = stopwatch.Stopwatch()
                ended = self.wait(operation)
                self.expect_within("the verdict", WATCHDOG + VERDICT_WITHIN, watch)
                self.expect_verdict(ended, worker, "[a-z ]+")
                self.await_gone(pid, 20)
                daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 3, 20)

    def between_them(self):
        """Starts a cluster in which w0 reaches w1's peer port through a proxy. The first of two executors
        connects to the second one."""
        watchdog = f"--collective-timeout-ms={int(WATCHDOG * 1000)}"
        self.start(watchdog, "--canary-interval-ms=0", worker_flags=[watchdog], workers=1)
        proxy = self.enterContext(tcp_proxy.Proxy())
        ports = self.cluster.folder / "ports"
        self.cluster.start_worker(1, flags=[f"--advertise-peer={proxy.address}",
                                            f"--port-file={ports}"])
        self.cluster.await_devices(2)
        told = daemons.eventually(lambda: ports.exists() and ports.read_text().split("\n"),
                                  what="the worker says its ports")
        proxy.aim(told[1])
        self.at = {int(d["worker"][1:]): int(d.get("id", 0)) for d in self.devices()}
        return proxy

    def test_a_partition_of_two_executors_is_told_and_costs_neither(self):
        proxy = self.between_them()
        pids = [self.executor(w) for w in (0, 1)]
        short = SUMS.replace("length=100000000", "length=3")
        for ways in ({}, {"answers": False}, {"requests": False}):
            with self.subTest(ways=ways):
                operation = self.execute(SUMS, [0, 1])
                daemons.eventually(lambda: self.is_running(operation))
                before = proxy.passed
                daemons.eventually(lambda: proxy.passed > before + 1000, what="they exchange")
                proxy.hold(**ways)
                watch = stopwatch.Stopwatch()
                ended = self.wait(operation)
                self.expect_within("the verdict names both", WATCHDOG + VERDICT_WITHIN, watch)
                [info] = [d for d in ended["error"]["details"] if "reason" in d]
                self.assertEqual(info["reason"], "COLLECTIVE_TIMEOUT", ended)
                print(ended["error"]["message"])
                # Rank 0 is on w0. In a partition of one direction the other member may be told
                # before the coordinator and report the error.
                self.assertRegex(
                    ended["error"]["message"],
                    r"on w[01]/0: psum \(program.txt:9\): 1 of 2 members missing after 1.5s, "
                    r"seen from rank ([01]): rank (?!\1)([01]) \(device \d of executor w\2/0, ")
                # Neither executor is blamed: both still answer their daemons and the coordinator.
                self.assertEqual(len(self.cluster.healthy_devices()), 2)
                proxy.let_through()
                self.assertEqual(self.wait(self.execute(short, [0, 1]))["state"],
                                 "OPERATION_STATE_DONE")
                self.assertEqual([self.executor(w) for w in (0, 1)], pids)

    def is_running(self, operation):
        found = self.call(OPERATIONS + "GetOperation", {"operation": operation})
        return found["state"] == "OPERATION_STATE_RUNNING"

    def silence(self, worker):
        """Stops the daemon of a worker and waits until that is noticed. Returns the daemon's
        process id."""
        daemon = self.cluster.processes[f"w{worker}"].pid
        os.kill(daemon, signal.SIGSTOP)
        self.stopped.append(daemon)
        watch = stopwatch.Stopwatch()
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 1)
        self.expect_within("the silent worker is away", AWAY_WITHIN, watch)
        return daemon

    def read(self, array, timeout=20):
        found = self.call(ARRAYS + "ReadArray",
                          {"array": array, "json": True, "timeout": f"{timeout}s"})
        return found["json"]

    def test_a_daemon_that_is_silent_is_away_and_comes_back_with_what_it_holds(self):
        self.start()
        spec = {"dtype": "f32", "shape": ["2"], "placement": one(self.at[1])}
        array, pid = self.write(spec), self.executor(1)
        self.expect_sums()
        daemon = self.silence(1)
        with self.assertRaises(json_client.Error) as late:
            self.read(array, timeout=1)
        self.assertEqual(late.exception.reason, "DEADLINE_EXCEEDED")
        self.assertIn("executor w1/0 of worker w1 is away (it was silent for",
                      late.exception.message)
        [worker] = [w for w in self.call(CLUSTER + "ListWorkers", {})["workers"]
                    if w["name"] == "w1"]
        self.assertEqual(worker["state"], "WORKER_STATE_SUSPECT", worker)
        self.assertIn("it may come back with its arrays within 1m", worker["reason"])
        watch = stopwatch.Stopwatch()
        self.resume(daemon)
        self.assertEqual(self.read(array), [0.5, 0.5])
        self.expect_within("the array is there again", BACK_WITH_ARRAYS_WITHIN, watch)
        self.assertEqual(self.executor(1), pid)
        self.expect_sums()  # over the same communicator as before

    def expect_sums(self):
        ended = self.wait(self.execute(SUMS.replace("100000000", "10"), [0, 1]))
        self.assertEqual(ended["state"], "OPERATION_STATE_DONE", ended)

    def test_a_daemon_that_is_silent_for_too_long_is_lost_and_comes_back_as_another(self):
        grace = 2
        self.start(f"--outage-grace-ms={grace * 1000}")
        spec = {"dtype": "f32", "shape": ["2"], "placement": one(self.at[1])}
        array, pid = self.write(spec), self.executor(1)
        operation = self.execute(LOOP, [1])
        watch = stopwatch.Stopwatch()
        daemon = self.silence(1)
        ended = self.wait(operation)
        self.expect_within("the silent worker is lost", grace + LOST_WITHIN, watch)
        self.assertIn("did not come back within 2s", ended["error"]["message"], ended)
        with self.assertRaises(json_client.Error) as lost:
            self.read(array)
        self.assertEqual(lost.exception.reason, "WORKER_LOST")
        self.assertIn("w1", lost.exception.message)
        self.resume(daemon)
        self.await_gone(pid, 20)
        self.expect_works_again(1, pid)
        with self.assertRaises(json_client.Error):
            self.read(array)

    def through_proxy(self):
        """Starts a cluster in which w1 reaches the coordinator through a proxy."""
        self.start("--canary-interval-ms=0", workers=1)
        proxy = self.enterContext(tcp_proxy.Proxy(self.cluster.address))
        self.cluster.start_worker(1, coordinator=proxy.address)
        self.cluster.await_devices(2)
        self.at = {int(d["worker"][1:]): int(d.get("id", 0)) for d in self.devices()}
        return proxy

    def expect_a_partition_costs_nothing(self, proxy, noticed, **ways):
        compiled = self.compile(DOUBLE, [1])
        array, pid = self.write(compiled["in"][0]), self.executor(1)
        running = self.execute(LOOP, [1])
        daemons.eventually(lambda: self.is_running(running))
        proxy.hold(**ways)
        watch = stopwatch.Stopwatch()
        if noticed:
            daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 1)
            self.expect_within("the silent worker is away", AWAY_WITHIN, watch)
        behind = self.call(PROGRAMS + "ExecuteProgram",
                           {"executable": compiled["executable"], "args": [array]})["operation"]
        status = self.call(OPERATIONS + "GetOperation", {"operation": running})
        self.assertEqual(status["state"], "OPERATION_STATE_RUNNING")
        if noticed:
            self.assertIn("w1/0 of worker w1 is away", status["pendingReason"])
        proxy.let_through()
        watch = stopwatch.Stopwatch()
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 2)
        self.expect_within("the worker is back after the partition", BACK_WITH_ARRAYS_WITHIN, watch)
        self.assertTrue(self.is_running(running))
        self.call(OPERATIONS + "CancelOperation", {"operation": running})
        self.assertEqual(self.wait(behind)["state"], "OPERATION_STATE_DONE")
        self.assertEqual(self.read(array), [0.5] * 4)
        self.assertEqual(self.executor(1), pid)

    def test_a_partition_of_coordinator_and_worker_costs_nothing_once_it_heals(self):
        self.expect_a_partition_costs_nothing(self.through_proxy(), noticed=True)

    def test_so_does_one_of_what_the_worker_says(self):
        self.expect_a_partition_costs_nothing(self.through_proxy(), noticed=True, answers=False)

    def test_so_does_one_of_what_the_coordinator_says(self):
        self.expect_a_partition_costs_nothing(self.through_proxy(), noticed=False, requests=False)

    def test_a_cancel_that_is_held_up_kills_nobody(self):
        """The cancel and the kill that follows it 2 s later arrive together."""
        proxy = self.through_proxy()
        array, pid = self.write(self.compile(DOUBLE, [1])["in"][0]), self.executor(1)
        running = self.execute(LOOP, [1])
        daemons.eventually(lambda: self.is_running(running))
        proxy.hold(requests=False)
        self.call(OPERATIONS + "CancelOperation", {"operation": running})
        threading.Event().wait(3)
        proxy.let_through()
        daemons.eventually(lambda: "the executor is not killed" in self.cluster.logs(), 5)
        self.assertEqual(self.run_program(1)["outputs"], [[2, 4, 6, 8]])
        self.assertEqual(self.read(array), [0.5] * 4)
        self.assertEqual(self.executor(1), pid)

    def test_a_link_that_flaps_loses_nothing_and_does_nothing_twice(self):
        proxy = self.through_proxy()
        compiled = self.compile(ADD_ONE, [1])
        array, pid = self.write(compiled["in"][0]), self.executor(1)
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        chance, pause, runs, last = random.Random(seed), threading.Event(), 0, None
        for _ in range(8):
            # The partitions have one direction or both, and last less or more than a lease.
            proxy.hold(**chance.choice([{}, {"requests": False}, {"answers": False}]))
            for _ in range(10):
                run = self.call(PROGRAMS + "ExecuteProgram", {
                    "executable": compiled["executable"], "args": [array], "donate": [True]})
                last, [array], runs = run["operation"], run["outputs"], runs + 1
            pause.wait(chance.uniform(0.1, 2.5))
            proxy.let_through()
            pause.wait(chance.uniform(0.0, 0.5))
        watch = stopwatch.Stopwatch()
        self.assertEqual(self.wait(last)["state"], "OPERATION_STATE_DONE")
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 2)
        self.expect_within("all is done after the last", FLAPPED_WITHIN, watch)
        self.assertEqual(self.read(array), [0.5 + runs] * 4)
        self.assertEqual(self.executor(1), pid)

    def test_a_slow_link_makes_nobody_silent(self):
        proxy = self.through_proxy()
        proxy.delay = 0.2
        pid = self.executor(1)

        slowest = 0

        def look():
            nonlocal slowest
            watch = stopwatch.Stopwatch()
            self.assertEqual(self.run_program(1)["outputs"], [[2, 4, 6, 8]])
            slowest = max(slowest, watch.unhindered())
            self.assertEqual(len(self.cluster.healthy_devices()), 2)

        daemons.throughout(5, look)
        print(f"a run over the slow link takes {slowest:.2f} s")
        self.assertEqual(self.executor(1), pid)

    def test_a_cancel_costs_no_other_run(self):
        self.start()
        long_one = self.execute(SUMS, [0, 1])
        short = SUMS.replace("length=100000000", "length=3")
        behind = [self.execute(short, [0, 1]) for _ in range(3)]
        self.call(OPERATIONS + "CancelOperation", {"operation": long_one})
        for operation in behind:
            ended = self.wait(operation)
            self.assertEqual(ended["state"], "OPERATION_STATE_DONE", ended)
        self.assertEqual(self.wait(long_one)["state"], "OPERATION_STATE_CANCELLED")

    def test_run_program_on_a_frozen_executor(self):
        self.start("--canary-interval-ms=0")
        for known in (False, True):  # whether its program has been compiled there
            with self.subTest(known=known):
                pid = self.freeze(1)
                watch = stopwatch.Stopwatch()
                with self.assertRaises(json_client.Error) as raised:
                    self.run_program(1, timeout=DEADLINE)
                self.expect_within("told", DEADLINE + TOLD_WITHIN, watch)
                self.assertEqual(raised.exception.reason, "DEADLINE_EXCEEDED")
                self.assertIn("w1/0", raised.exception.message)
                self.await_gone(pid, 20)
                self.expect_within("killed", DEADLINE + KILLED_WITHIN, watch)
                self.expect_works_again(1, pid)

    def test_execute_and_watch_a_move_and_a_read(self):
        self.start("--canary-interval-ms=0")
        compiled = self.compile(DOUBLE, [1])
        there = self.write(compiled["in"][0])
        here = self.write(dict(compiled["in"][0], placement=one(self.at[0])))
        other = self.executor(0)
        pid = self.freeze(1)
        watch = stopwatch.Stopwatch()
        # The argument is first moved to the frozen executor.
        events = self.call(PROGRAMS + "ExecuteAndWatch",
                           {"executable": compiled["executable"], "args": [here],
                            "deadline": f"{DEADLINE}s"})
        self.expect_within("told", DEADLINE + TOLD_WITHIN, watch)
        self.assertEqual(events[-1]["ended"]["operation"]["error"]["code"], 4, events)
        self.await_gone(pid, 20)
        self.expect_within("killed", DEADLINE + KILLED_WITHIN, watch)
        self.assertEqual(self.executor(0), other)
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 2)
        with self.assertRaises(json_client.Error) as raised:
            self.call(ARRAYS + "ReadArray", {"array": there, "timeout": "1s"})
        self.assertEqual(raised.exception.reason, "WORKER_LOST")

    def test_a_frozen_device_is_not_ready_and_the_port_is_not_blamed(self):
        self.start("--canary-interval-ms=0")
        self.run_program(0)
        pid = self.freeze(1)
        watch = stopwatch.Stopwatch()
        device = daemons.eventually(
            lambda: next((d for d in self.devices() if d.get("unresponsive")), None), 20,
            "a device that is not ready")
        self.expect_within("not ready", NOT_READY_WITHIN, watch)
        self.assertEqual(device["executor"], "w1/0")
        self.assertIn("has not answered its worker for", device["reason"])
        self.assertIn("not ready: it has not answered its worker for", self.tessera("devices"))
        doctor = self.tessera("doctor")
        self.assertIn("w1/0 (it has not answered its worker for", doctor)
        self.assertNotIn("--advertise-client", doctor)
        # A program that the service places goes to another device.
        self.assertEqual(self.call(PROGRAMS + "RunProgram",
                                   {"text": DOUBLE, "inputs": [[1, 2, 3, 4]]})["outputs"],
                         [[2, 4, 6, 8]])
        # No caller waits for the frozen executor, so it is not killed.
        self.assertEqual(self.executor(1), pid)
        os.kill(pid, signal.SIGCONT)
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 2)
        self.assertEqual(self.run_program(1)["outputs"], [[2, 4, 6, 8]])
        self.assertEqual(self.executor(1), pid)

    def test_one_that_computes_is_not_frozen_and_leaves_at_the_default_deadline(self):
        self.start("--run-deadline-ms=5000", "--unresponsive-ms=1000")
        pid = self.executor(1)
        operation = self.execute(LOOP, [1])
        watch = self.accepted
        daemons.throughout(4 - watch.elapsed(), lambda: self.assertFalse(
            [d for d in self.devices() if not d.get("healthy")]))
        ended = self.wait(operation)
        self.expect_within("told", 5 + TOLD_WITHIN, watch)
        self.assertRegex(ended["error"]["message"],
                         r"did not end within its deadline of 5s: running on w1/0 \(at .*sin")
        self.assertEqual(self.run_program(1)["outputs"], [[2, 4, 6, 8]])
        self.assertEqual(self.executor(1), pid)

    def test_a_drain_waits_for_what_was_ended_and_is_still_there(self):
        # Canaries are off, because a canary that the frozen executor has received would count as an
        # operation.
        self.start("--cancel-grace-ms=4000", "--canary-interval-ms=0")
        operation = self.execute(LOOP, [1])
        pid = self.freeze(1)
        self.call(OPERATIONS + "CancelOperation", {"operation": operation})
        drained = self.call(WORKERS + "DrainWorker", {"worker": "w1", "timeout": "1s"})
        self.assertEqual(drained.get("operations"), "1", drained)
        # The call answers as soon as the process is gone.
        drained = self.call(WORKERS + "DrainWorker", {"worker": "w1", "timeout": "20s"})
        self.assertEqual(drained.get("operations", "0"), "0", drained)
        self.await_gone(pid, 1)

    def test_a_reader_that_never_reads_gives_the_memory_back(self):
        self.start(worker_flags=["--read-idle-ms=1000"])
        size = 8 << 20
        compiled = self.compile(f"""
func main(%a: f32[1]) -> (f32[{size}]) {{
  %b = broadcast_in_dim(%a) {{shape=[{size}], broadcast_dimensions=[0]}}
  return %b
}}
""", [1])
        array = self.call(PROGRAMS + "ExecuteProgram", {
            "executable": compiled["executable"],
            "args": [self.write(compiled["in"][0])]})["outputs"][0]
        ticket = self.call(ARRAYS + "CreateReadTickets", {"array": array})["tickets"][0]
        with json_client.Client(ticket["endpoint"]) as client:
            stream = client.stream("tessera.v1.DataService/Read", [{"ticket": ticket["ticket"]}])
            next(stream)
            with_reader = self.resident(1)
            self.call(ARRAYS + "DeleteArrays", {"arrays": [array]})
            watch = stopwatch.Stopwatch()
            daemons.eventually(lambda: self.resident(1) < with_reader - 3 * size, 20,
                               "the memory comes back")
            self.expect_within("memory is back", 1 + 1, watch)
            with self.assertRaises(json_client.Error) as raised:
                list(stream)
            self.assertEqual(raised.exception.code, "CANCELLED")

    def resident(self, worker):
        pages = pathlib.Path(f"/proc/{self.executor(worker)}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def test_processes_and_threads_have_names(self):
        self.start("--canary-interval-ms=0")
        self.run_program(1)
        process = pathlib.Path(f"/proc/{self.executor(1)}")
        title = process.joinpath("cmdline").read_bytes().split(b"\0")[0]
        self.assertEqual(title, b"tessera-executor w1/0")
        self.assertEqual(process.joinpath("comm").read_text().strip(), "tessera-exec")
        names = {t.joinpath("comm").read_text().strip() for t in process.joinpath("task").iterdir()}
        self.assertLessEqual({"device 0", "connect", "reports", "timer", "data port",
                              "peer port"}, names)
        self.assertNotIn("exe", names)
        coordinator = pathlib.Path(f"/proc/{self.cluster.processes['coordinator'].pid}/task")
        self.assertIn("scheduler",
                      [t.joinpath("comm").read_text().strip() for t in coordinator.iterdir()])

    def test_a_save(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-frozen-")
        self.addCleanup(folder.cleanup)
        self.start("--run-deadline-ms=1000", worker_flags=[f"--files-dir={folder.name}"])
        array = self.write(self.compile(DOUBLE, [1])["in"][0])
        pid = self.freeze(1)
        operation = self.call(ARRAYS + "SaveArrays",
                              {"path": "a.npy", "arrays": [{"array": array}]})["id"]
        watch = stopwatch.Stopwatch()
        self.call(OPERATIONS + "CancelOperation", {"operation": operation})
        self.await_gone(pid, 20)
        self.expect_within("killed", 3 + 2 + 2, watch)
        daemons.eventually(lambda: len(self.cluster.healthy_devices()) == 2)


if __name__ == "__main__":
    unittest.main()
