"""Tests the coordinator's state on a disk that is full or slow, and a folder that two coordinators
use."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import daemons
import json_client
import stopwatch
from secure_cluster import run_tessera

API = "tessera.v1."
ADD = """mesh (x=1)
func main(%a: f32[2]) -> (f32[2]) {
  %b = add(%a, %a)
  return %b
}
"""
SPEC = {"dtype": "f32", "shape": ["2"],
        "placement": {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": ["0"]}}
PATIENCE = 20
# The promises, in seconds: how soon a call is refused if the disk does not take its changes, and how soon a call
# succeeds once there is room again. SLACK is for a busy machine.
REFUSED, RECOVERED, SLACK = 1, 5, 2
STOPPED = 4  # two seconds for the disk, and two for calls that do not end


def open_session(client):
    return client.call(API + "SessionService/CreateSession", {})["id"]


def write(client):
    return client.call(API + "ArrayService/WriteArray", {"spec": SPEC, "json": [1, 2]})["array"]


def read(client, array):
    return client.call(API + "ArrayService/ReadArray", {"array": array, "json": True})["json"]


def requests_until(left, request):
    """Yields one request, and keeps the stream open until `left` is set."""
    yield request
    left.wait()


class DiskTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.state = self.root / "state"
        self.flags = [f"--state-dir={self.state}"]

    def cluster(self, **more):
        return daemons.Cluster(workers=1, devices=1, coordinator_flags=self.flags, **more)

    def mount_small(self):
        self.state.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tessera-test",
                                  self.state], capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"a small disk cannot be mounted: {mounted.stderr.strip()}; run as root")
        self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=True)

    def test_a_full_disk_refuses_changes_and_nothing_else(self):
        self.mount_small()
        with self.cluster() as cluster:
            with cluster.connect() as client:
                sessions = self.fill_and_free(cluster, client)
            cluster.restart_coordinator()
            with cluster.connect() as after:
                for session in sessions:
                    after.call(API + "SessionService/GetSession", {"session": session})
        run_tessera("state", "check", self.state)

    def fill(self):
        """Writes a file that takes all the room left on the disk, and returns its path."""
        rest = self.state / "rest"
        with open(rest, "wb") as file, self.assertRaises(OSError):
            while True:
                os.write(file.fileno(), bytes(4096))
        return rest

    def test_a_start_waits_for_room_on_a_full_disk(self):
        self.mount_small()
        with self.cluster() as cluster:
            with cluster.connect() as client:
                array, session = write(client), open_session(client)
            killed = cluster.processes["coordinator"]
            killed.kill()
            killed.wait()
            killed.stdout.close()
            rest, log = self.fill(), cluster.folder / "coordinator.log"
            with concurrent.futures.ThreadPoolExecutor(1) as other:
                freed = other.submit(self.free_when_log_says_full, log, rest)
                cluster.start_coordinator()
                self.assertFalse(rest.exists(), "it serves while the disk is full")
                waited = freed.result().unhindered()
            print(f"serves {waited:.2f} s after there is room")
            self.assertLess(waited, RECOVERED + SLACK)
            cluster.await_devices(1)
            with cluster.connect() as after:
                after.call(API + "SessionService/GetSession", {"session": session})
                self.assertEqual(read(after, array), [1, 2])
                open_session(after)
            self.assertEqual(log.read_text().count("coordinator waits until"), 1)
        run_tessera("state", "check", self.state)

    def free_when_log_says_full(self, log, rest):
        """Frees the disk when the coordinator's log says that it is full. Returns a stopwatch that
        was started then."""
        daemons.eventually(lambda: "DISK_FULL" in log.read_text(), PATIENCE,
                           "the coordinator says that the disk is full")
        freed = stopwatch.Stopwatch()
        rest.unlink()
        return freed

    def test_a_start_that_waits_for_room_is_stopped(self):
        self.mount_small()
        self.fill()
        log = self.root / "log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                daemons.dying_with_us([daemons.bin_dir() / "tessera-coordinator",
                                       "--listen=127.0.0.1:0", *self.flags]),
                stdout=file, stderr=file, env={**os.environ, "TESSERA_METRICS_LISTEN": "off"})
        self.addCleanup(process.kill)
        daemons.eventually(lambda: "DISK_FULL" in log.read_text(), PATIENCE,
                           "the coordinator says that the disk is full")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 0)

    def fill_and_free(self, cluster, client):
        """Fills the disk and frees it again. Returns the sessions that were acknowledged before and
        after it was full."""
        array, sessions = write(client), [open_session(client)]
        rest = self.fill()
        # The log has reserved room, so some sessions are still opened.
        refused = None
        while refused is None:
            self.assertLess(len(sessions), 5000)
            watch = stopwatch.Stopwatch()
            try:
                sessions.append(open_session(client))
            except json_client.Error as error:
                refused = error
            self.assertLess(watch.unhindered(), REFUSED + SLACK)
        print(f"refused after {watch.unhindered():.2f} s")
        self.assertEqual((refused.code, refused.reason), ("RESOURCE_EXHAUSTED", "DISK_FULL"))
        self.assertEqual(read(client, array), [1, 2])
        client.call(API + "SessionService/GetSession", {"session": sessions[0]})
        self.assertEqual(len(cluster.healthy_devices()), 1)
        rest.unlink()
        began = time.monotonic()
        daemons.eventually(lambda: self.opens(client, sessions), RECOVERED + SLACK,
                           "sessions are opened again")
        print(f"taken again after {time.monotonic() - began:.2f} s")
        self.assertEqual(read(client, write(client)), [1, 2])
        return sessions

    @staticmethod
    def opens(client, sessions):
        try:
            sessions.append(open_session(client))
        except json_client.Error as error:
            if error.reason != "DISK_FULL":
                raise
            return False
        return True

    def test_a_slow_disk_delays_and_commits_share_it(self):
        shim = daemons.bin_dir() / "slow_sync.so"
        if not shim.exists():
            self.skipTest(f"{shim} is not built")
        sync = 0.2
        with self.cluster(environment={"LD_PRELOAD": str(shim),
                                       "SLOW_SYNC_MS": str(int(sync * 1000))}) as cluster:
            with cluster.connect() as client:
                open_session(client)
                began = time.monotonic()
                open_session(client)
                self.assertGreaterEqual(time.monotonic() - began, sync)
                count = 40
                watch = stopwatch.Stopwatch()
                with concurrent.futures.ThreadPoolExecutor(count) as callers:
                    sessions = list(callers.map(lambda _: open_session(client), range(count)))
                took = watch.unhindered()
                print(f"{count} calls are on the disk after {took:.2f} s, an fsync takes {sync} s")
                self.assertLess(took, count * sync / 2)
                self.assertEqual(len(set(sessions)), count)
                self.assertEqual(read(client, write(client)), [1, 2])
                self.assertEqual(len(cluster.healthy_devices()), 1)

    def test_a_client_that_leaves_before_its_run_is_on_the_disk(self):
        """A run that is sent in order holds back the next request until it is on the disk. The
        coordinator must not read that request from a stream that has ended meanwhile."""
        shim = daemons.bin_dir() / "slow_sync.so"
        if not shim.exists():
            self.skipTest(f"{shim} is not built")
        with self.cluster(environment={"LD_PRELOAD": str(shim), "SLOW_SYNC_MS": "200"}) as cluster:
            pid = cluster.daemon_pid("coordinator")
            with cluster.connect() as client:
                array = write(client)
                compiled = client.call(API + "ProgramService/CompileProgram", {"text": ADD})
                for number in range(10):
                    request = client.encode(API + "ExecuteProgramsRequest", {
                        "number": str(number), "in_order": True,
                        "run": {"executable": compiled["executable"], "args": [array]}})
                    left = threading.Event()
                    method = client.channel.stream_stream(
                        f"/{API}ProgramService/ExecutePrograms")
                    stream = method(requests_until(left, request))
                    threading.Event().wait(0.05)  # the run arrives; its commit takes longer
                    stream.cancel()
                    left.set()
                threading.Event().wait(0.5)
                self.assertEqual(read(client, write(client)), [1, 2])
            self.assertIsNone(cluster.processes["coordinator"].poll())
            self.assertEqual(cluster.daemon_pid("coordinator"), pid)

    def test_a_disk_that_does_not_answer_counts_as_one_that_fails(self):
        shim = daemons.bin_dir() / "slow_sync.so"
        if not shim.exists():
            self.skipTest(f"{shim} is not built")
        hang, answer = self.root / "hang", 0.5
        self.flags.append(f"--store-answer-ms={int(answer * 1000)}")
        with self.cluster(environment={"LD_PRELOAD": str(shim), "HANG_SYNC": str(hang)}) as cluster:
            with cluster.connect() as client:
                array, given = write(client), write(client)
                program = client.call(API + "ProgramService/CompileProgram",
                                      {"text": ADD, "devices": ["0"]})["executable"]

                def run():
                    return client.call(API + "ProgramService/ExecuteProgram",
                                       {"executable": program, "args": [given], "donate": [True],
                                        "request_id": "run"})

                def open_again():
                    return client.call(API + "SessionService/CreateSession", {"request_id": "once"})

                def opened():
                    try:
                        return open_again()["id"]
                    except json_client.Error:
                        return None

                hang.touch()
                watch = stopwatch.Stopwatch()
                with self.assertRaises(json_client.Error) as refused:
                    run()
                took = watch.unhindered()
                print(f"the disk that does not answer is told after {took:.2f} s")
                self.assertEqual(refused.exception.reason, "STORE_FAILED")
                self.assertLess(took, answer + SLACK)
                with self.assertRaises(json_client.Error):
                    open_again()
                # The launch consumes its argument, so it waits for the disk. A read that comes
                # after it does not.
                self.assertEqual(read(client, array), [1, 2])
                hang.unlink()
                session = daemons.eventually(opened, RECOVERED + SLACK, "the disk answers")
                self.assertEqual(open_again()["id"], session)
                listed = client.call(API + "SessionService/ListSessions")["sessions"]
                self.assertEqual([s["id"] for s in listed].count(session), 1)
                self.assertEqual(read(client, run()["outputs"][0]), [2, 4])

    def test_a_stop_does_not_wait_for_a_disk_that_does_not_answer(self):
        shim = daemons.bin_dir() / "slow_sync.so"
        if not shim.exists():
            self.skipTest(f"{shim} is not built")
        hang = self.root / "hang"
        self.flags.append("--store-answer-ms=100")
        with self.cluster(environment={"LD_PRELOAD": str(shim), "HANG_SYNC": str(hang)}) as cluster:
            with cluster.connect() as client:
                hang.touch()
                self.assertRaises(json_client.Error, open_session, client)
                watch = stopwatch.Stopwatch()
                self.assertEqual(cluster.stop("coordinator"), 0)
                took = watch.unhindered()
                print(f"stopped after {took:.2f} s")
                self.assertLess(took, STOPPED + SLACK)

    def test_who_is_taken_over_ends(self):
        with self.cluster() as old, old.connect() as client:
            session = open_session(client)
            (self.state / "lock").unlink()  # simulates a disk where locks have no effect
            with daemons.Cluster(workers=0, coordinator_flags=self.flags) as new:
                began = time.monotonic()
                with self.assertRaises(json_client.Error) as refused:
                    open_session(client)
                print(f"the first is refused after {time.monotonic() - began:.2f} s")
                # The first coordinator may have found out by itself, and may be stopping or gone.
                error = refused.exception
                self.assertTrue(error.reason in ("STALE_EPOCH", "SERVER_STOPPING")
                                or error.code in ("UNAVAILABLE", "CANCELLED"), error)
                process = old.processes["coordinator"]
                daemons.eventually(lambda: process.poll() is not None, PATIENCE,
                                   "the old coordinator ends")
                with new.connect() as after:
                    listed = after.call(API + "SessionService/ListSessions")["sessions"]
                    self.assertIn(session, [s["id"] for s in listed])
                    open_session(after)


if __name__ == "__main__":
    unittest.main()
