"""Tests runs in calls of libraries that nothing can interrupt, such as an eigendecomposition of 4,000
rows. When such a run is cancelled, is past its deadline, or loses its client, it ends in time, and
costs neither the executor nor the arrays of another tenant.

The constants hold the promised times in seconds. Each test prints the measured time beside them.
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import unittest

import daemons
import json_client
import secure_cluster
import stopwatch

PROGRAMS = "tessera.v1.ProgramService/"
ARRAYS = "tessera.v1.ArrayService/"
OPERATIONS = "tessera.v1.OperationService/"

LEFT_WITHIN = 2  # seconds until the devices of a run that has to end are free for the next run
DEADLINE = 2
GRACE = 1  # seconds for which the runs of a client that is gone go on
TITLE = b"tessera-eval"
# The bound on the memory of a transform is far above what this one takes.
MEMORY = f"--device-memory-bytes={32 << 30}"
VALUES = [1.5, -2, 3.25, 0]
UNDER_WAY = 1  # seconds of processor time after which a run is in its long call

DOUBLE = """
func main(%a: f32[4]) -> (f32[4]) {
  %b = add(%a, %a)
  return %b
}
"""
# Each program takes several seconds in one call, the first nearly half a minute.
SQUARE = """
func main() -> (f32[{rows}]) {{
  %i = iota() {{dtype=f32, shape=[{rows},{rows}], iota_dimension=0}}
  %j = iota() {{dtype=f32, shape=[{rows},{rows}], iota_dimension=1}}
  %p = multiply(%i, %j)
  %x = sine(%p)
  {call}
  return %s
}}
"""
FIRST_ROW = """
  %f = slice(%r) {{start_indices=[0,0], limit_indices=[1,{rows}], strides=[1,1]}}
  %s = reshape(%f) {{shape=[{rows}]}}"""
EIGH = SQUARE.format(rows=4000, call="%v, %s = eigh(%x) {lower=true}")
SVD = SQUARE.format(
    rows=3000, call="%s, %u, %v = svd(%x) {full_matrices=false, compute_uv=true}")
QR = SQUARE.format(
    rows=5000, call="%q, %r = qr(%x) {full_matrices=false}" + FIRST_ROW.format(rows=5000))
LINE = 7  # of the call, in the text of a program
# A batch of four matrices, which are factored at the same time.
BATCH = """
func main() -> (f32[4,3000]) {
  %i = iota() {dtype=f32, shape=[4,3000,3000], iota_dimension=1}
  %j = iota() {dtype=f32, shape=[4,3000,3000], iota_dimension=2}
  %p = multiply(%i, %j)
  %x = sine(%p)
  %v, %s = eigh(%x) {lower=true}
  return %s
}
"""
# The transform of one row goes in pieces, in the executor. So do the tables that it needs first.
FFT = """
func main() -> (f32[]) {
  %i = iota() {dtype=f32, shape=[33554432], iota_dimension=0}
  %x = complex(%i, %i)
  %a = fft(%x) {fft_type="FFT", fft_length=[33554432]}
  %b = fft(%a) {fft_type="IFFT", fft_length=[33554432]}
  %c = fft(%b) {fft_type="FFT", fft_length=[33554432]}
  %d = fft(%c) {fft_type="IFFT", fft_length=[33554432]}
  %e = fft(%d) {fft_type="FFT", fft_length=[33554432]}
  %f = fft(%e) {fft_type="IFFT", fft_length=[33554432]}
  %r = real(%f)
  %s = reduce_sum(%r) {dimensions=[0]}
  return %s
}
"""
# Products of large matrices, which go in pieces, too.
PRODUCTS = """
func main() -> (f32[]) {
  %x = iota() {dtype=f32, shape=[3,8000,8000], iota_dimension=1}
  %y = dot_general(%x, %x) {lhs_batching_dimensions=[0], rhs_batching_dimensions=[0], lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[1]}
  %s = reduce_sum(%y) {dimensions=[0,1,2]}
  return %s
}
"""


def write(client):
    """Writes an array of VALUES and returns it."""
    placement = {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": ["0"]}
    return client.call(ARRAYS + "WriteArray", {
        "spec": {"dtype": "f32", "shape": ["4"], "placement": placement}, "json": VALUES})["array"]


def read(client, array):
    return client.call(ARRAYS + "ReadArray", {"array": array, "json": True, "timeout": "20s"},
                       timeout=30)["json"]


def seconds_used(pid):
    """Returns the processor time that a process has used; 0 if it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0


def is_evaluator(pid):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(TITLE)
    return False


class LongCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = secure_cluster.SecureCluster(
            workers=1, devices=1, coordinator_flags=[f"--session-grace-ms={1000 * GRACE}"],
            worker_flags=[MEMORY])
        cls.addClassCleanup(cls.cluster.close)
        cls.cluster.await_devices(1)
        cls.client, cls.other = (cls.cluster.client("user", tenant) for tenant in ("a", "b"))
        for client in (cls.client, cls.other):
            cls.addClassCleanup(client.channel.close)
        cls.array = write(cls.other)
        # The first run of a program is also compiled.
        cls.double()

    @classmethod
    def double(cls):
        """Has the other tenant run a small program."""
        answer = cls.other.call(PROGRAMS + "RunProgram", {"text": DOUBLE, "inputs": [[1, 2, 3, 4]]},
                                timeout=60)
        assert answer["outputs"] == [[2, 4, 6, 8]], answer

    def setUp(self):
        (self.executor,) = self.cluster.executor_pids(0)

    def tearDown(self):
        # The other tenant has lost nothing, and the executor is the same process.
        self.assertEqual(self.cluster.executor_pids(0), [self.executor])
        self.assertEqual(read(self.other, self.array), VALUES)

    def evaluators(self):
        return [pid for pid in daemons.children(self.executor) if is_evaluator(pid)]

    def await_the_call(self):
        """Waits until the executor, or an evaluator of its own, has computed for a while."""
        def used():
            return {pid: seconds_used(pid) for pid in [self.executor, *self.evaluators()]}
        before = used()
        daemons.eventually(lambda: any(seconds > before.get(pid, 0) + UNDER_WAY
                                       for pid, seconds in used().items()),
                           60, "the call is under way")

    def start(self, text, deadline=None):
        """Starts a run of tenant a and returns its operation."""
        compiled = self.client.call(PROGRAMS + "CompileProgram", {"text": text}, timeout=60)
        request = {"executable": compiled["executable"]}
        if deadline is not None:
            request["deadline"] = f"{deadline}s"
        self.accepted = stopwatch.Stopwatch()
        return self.client.call(PROGRAMS + "ExecuteProgram", request)["operation"]

    def wait(self, operation):
        return self.client.call(OPERATIONS + "WaitOperation",
                                {"operation": operation, "timeout": "60s"}, timeout=70)

    def expect_left(self, what, seconds, watch):
        """Checks that the device is free in time: the run of another tenant has ended on it."""
        self.double()
        took = watch.unhindered()
        print(f"\n  {what}: {took:.2f} s ({watch.elapsed():.2f} s with the waits of a busy machine), "
              f"promised {seconds} s", flush=True)
        self.assertLess(took, seconds, what)

    def cancelled(self, what, text):
        operation = self.start(text)
        self.await_the_call()
        watch = stopwatch.Stopwatch()
        self.client.call(OPERATIONS + "CancelOperation", {"operation": operation})
        ended = self.wait(operation)
        self.assertEqual(ended["state"], "OPERATION_STATE_CANCELLED")
        self.assertEqual(ended["error"]["code"], 1, ended)
        self.expect_left(f"{what}, cancelled", LEFT_WITHIN, watch)

    def test_eigh_of_4000_is_cancelled(self):
        self.cancelled("eigh", EIGH)
        self.assertEqual(self.evaluators(), [])  # it was killed

    def test_svd_of_3000_is_cancelled(self):
        self.cancelled("svd", SVD)

    def test_qr_of_5000_is_cancelled(self):
        self.cancelled("qr", QR)

    def test_a_batch_is_cancelled(self):
        self.cancelled("a batch", BATCH)

    def test_what_goes_in_pieces_is_cancelled(self):
        for name, text in (("fft", FFT), ("products", PRODUCTS)):
            self.cancelled(name, text)
            self.assertEqual(self.evaluators(), [])

    def test_a_run_past_its_deadline(self):
        for name, text in (("eigh", EIGH), ("svd", SVD), ("qr", QR)):
            with self.subTest(name):
                operation = self.start(text, DEADLINE)
                watch = self.accepted
                ended = self.wait(operation)
                self.assertEqual(ended["error"]["code"], 4, ended)
                self.assertIn(f"did not end within its deadline of {DEADLINE}s",
                              ended["error"]["message"])
                self.assertIn(f"{name} (program.txt:{LINE})", ended["error"]["message"])
                self.expect_left(f"{name}, past its deadline", DEADLINE + LEFT_WITHIN, watch)

    def client_ends(self, number, text, bound):
        file = self.cluster.folder / "program.txt"
        file.write_text(text)
        process = subprocess.Popen(
            daemons.dying_with_us([daemons.bin_dir() / "tessera", "--address", self.cluster.address,
                                   "run", file]),
            env={**os.environ, "TESSERA_CA_FILE": str(self.cluster.ca),
                 "TESSERA_TOKEN": self.cluster.token_of("user", "a")},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.await_the_call()
            watch = stopwatch.Stopwatch()
            process.send_signal(number)
            process.wait(30)
            self.expect_left(f"the client ends by {signal.Signals(number).name}", bound, watch)
        finally:
            process.kill()
            process.wait()

    def test_a_client_that_is_interrupted(self):
        self.client_ends(signal.SIGINT, EIGH, LEFT_WITHIN)

    def test_a_client_that_is_killed(self):
        for text in (EIGH, SVD, QR):
            self.client_ends(signal.SIGKILL, text, GRACE + LEFT_WITHIN)

    def test_an_evaluator_that_is_killed_fails_its_run_alone(self):
        operation = self.start(EIGH)
        self.await_the_call()
        (evaluator,) = self.evaluators()
        os.kill(evaluator, signal.SIGKILL)
        ended = self.wait(operation)
        self.assertEqual(ended["state"], "OPERATION_STATE_FAILED")
        [info] = [d for d in ended["error"]["details"] if "reason" in d]
        self.assertEqual(info["reason"], "OUT_OF_MEMORY")
        self.assertIn(f"eigh (program.txt:{LINE})", ended["error"]["message"])
        self.assertIn("was killed by signal 9 (Killed)", ended["error"]["message"])

    def test_an_evaluator_has_nothing_and_ends_with_its_executor(self):
        operation = self.start(EIGH)
        self.await_the_call()
        (evaluator,) = self.evaluators()
        status = pathlib.Path(f"/proc/{evaluator}/status").read_text()
        self.assertIn("Seccomp:\t2\n", status)
        self.assertIn("NoNewPrivs:\t1\n", status)
        # its standard descriptors, its socket and the memory that it shares with the executor
        self.assertEqual(sorted(os.listdir(f"/proc/{evaluator}/fd")), ["0", "1", "2", "3", "4"])
        environment = pathlib.Path(f"/proc/{evaluator}/environ").read_bytes()
        for name in environment.split(b"\0"):
            self.assertRegex(name, rb"^$|^LD_LIBRARY_PATH=|^[A-Z]+SAN_OPTIONS=|^OPENBLAS_CORETYPE=")
        self.client.call(OPERATIONS + "CancelOperation", {"operation": operation})
        with daemons.Cluster(workers=1, devices=1, worker_flags=[MEMORY]) as cluster, cluster.connect() as client:
            with contextlib.suppress(json_client.Error):
                compiled = client.call(PROGRAMS + "CompileProgram", {"text": EIGH}, timeout=60)
                client.call(PROGRAMS + "ExecuteProgram", {"executable": compiled["executable"]})
            (executor,) = cluster.executor_pids(0)
            (evaluator,) = daemons.eventually(
                lambda: [p for p in daemons.children(executor) if is_evaluator(p)], 60, "the call")
            os.kill(executor, signal.SIGKILL)
            daemons.eventually(lambda: daemons.has_ended(evaluator), what="the evaluator has ended")

    def test_whom_the_kill_of_an_executor_costs_an_array_is_told_why(self):
        # An executor that does not answer has to be killed, whatever it is doing.
        with secure_cluster.SecureCluster(
                workers=1, devices=1, coordinator_flags=["--canary-interval-ms=0"],
                worker_flags=[MEMORY]) as cluster, \
                cluster.client("user", "a") as client, cluster.client("user", "b") as other:
            array = write(other)
            compiled = client.call(PROGRAMS + "CompileProgram", {"text": EIGH}, timeout=60)
            operation = client.call(PROGRAMS + "ExecuteProgram",
                                    {"executable": compiled["executable"]})["operation"]
            (executor,) = cluster.executor_pids(0)
            daemons.eventually(lambda: any(map(is_evaluator, daemons.children(executor))), 60,
                               "the call is under way")
            daemons.freeze(executor)
            client.call(OPERATIONS + "CancelOperation", {"operation": operation})
            with self.assertRaises(json_client.Error) as lost:
                read(other, array)
            self.assertEqual(lost.exception.reason, "WORKER_LOST")
            self.assertRegex(lost.exception.message,
                             rf"w0/0 .* was lost: killed: operation {operation} .*which ended "
                             r"with CANCELLED, was not left within 2s; make it again")


if __name__ == "__main__":
    unittest.main(verbosity=2)
