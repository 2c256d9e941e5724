"""Tests what survives a restart of the coordinator and what does not, and that a worker's name is
unique."""
import pathlib
import shutil
import tempfile
import unittest

import daemons
import json_client
from promised_faults.harness import tessera

API = "tessera.v1."
SPEC = {"dtype": "f32", "shape": ["2"],
        "placement": {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": ["0"]}}
PATIENCE = 20


def write(client):
    return client.call(API + "ArrayService/WriteArray", {"spec": SPEC, "json": [1, 2]})["array"]


class LivesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def devices(self, cluster):
        with cluster.connect() as client:
            listed = client.call(API + "ClusterService/ListDevices")["devices"]
        return {d.get("id", "0"): d["executor"] for d in listed}

    def restarted(self, flags, check):
        """Restarts everything and returns the devices before and after. Calls `check` in
        between."""
        with daemons.Cluster(workers=2, devices=2, coordinator_flags=flags) as cluster:
            with cluster.connect() as client:
                session = client.call(API + "SessionService/CreateSession", {})["id"]
                arrays = [write(client) for _ in range(3)]
            before = self.devices(cluster)
            for number in (0, 1):
                cluster.kill_worker(number)
            cluster.restart_coordinator()
            with cluster.connect() as client:
                check(client, session, arrays)
            # The workers start again in the opposite order.
            for number in (1, 0):
                cluster.start_worker(number)
                daemons.eventually(
                    lambda: any(d["worker"] == f"w{number}" for d in cluster.healthy_devices()),
                    PATIENCE, "the worker is back")
            cluster.await_devices(4)
            with cluster.connect() as client:
                self.assertFalse(set(arrays) & {write(client) for _ in range(3)})
                lost = [client.call(API + "ArrayService/GetArray", {"array": array})["state"]
                        for array in arrays] if flags else []
            self.assertEqual(set(lost), {"LOST"} if flags else set())
            return before, self.devices(cluster)

    def test_with_a_folder_nothing_is_forgotten(self):
        def known(client, session, arrays):
            self.assertEqual(
                client.call(API + "SessionService/GetSession", {"session": session})["id"], session)
            # When the coordinator was restarted, it may have noticed that the executors are gone, or it may not
            # have noticed yet.
            array = client.call(API + "ArrayService/GetArray", {"array": arrays[0]})
            self.assertIn(array["state"], ("READY", "LOST"))

        before, after = self.restarted([f"--state-dir={self.folder}/state"], known)
        self.assertEqual(before, after)

    def test_without_one_ids_are_new(self):
        def forgotten(client, session, arrays):
            for method, request in (
                    ("ArrayService/GetArray", {"array": arrays[0]}),
                    ("OperationService/GetOperation", {"operation": arrays[1]}),
                    ("SessionService/GetSession", {"session": session})):
                with self.assertRaises(json_client.Error) as refused:
                    client.call(API + method, request)
                self.assertEqual(refused.exception.code, "NOT_FOUND")
                self.assertIn("the coordinator has restarted", refused.exception.message)

        self.restarted([], forgotten)

    def test_an_empty_folder_beside_workers_that_hold_arrays(self):
        """The workers drop once what the new coordinator does not know, and serve it."""
        flags = [f"--state-dir={self.folder}/state"]
        with daemons.Cluster(workers=2, devices=1, coordinator_flags=flags) as cluster:
            before = [cluster.executor_pids(number) for number in (0, 1)]
            with cluster.connect() as client:
                write(client)
            # Epochs count starts, so that of the new folder is the smaller one.
            cluster.restart_coordinator()
            cluster.await_devices(2)
            killed = cluster.processes["coordinator"]
            killed.kill()
            killed.wait()
            killed.stdout.close()
            shutil.rmtree(self.folder / "state")
            cluster.start_coordinator()
            cluster.await_devices(2)
            with cluster.connect() as client:
                array = write(client)
                read = client.call(API + "ArrayService/ReadArray", {"array": array, "json": True})
                self.assertEqual(read["json"], [1, 2])
                worker = client.call(API + "ClusterService/GetWorker", {"worker": "w0"})
            self.assertEqual(worker["executorsNotAdopted"], "1")
            self.assertFalse(set(before[0] + before[1]) &
                             set(cluster.executor_pids(0) + cluster.executor_pids(1)))
            self.assertRegex(tessera(cluster, "doctor"),
                             r"state .*executors of these workers held arrays that the coordinator "
                             r"does not know, and were replaced: w0 \(1\), w1 \(1\)")
            logs = cluster.logs()
            self.assertEqual(logs.count("executors not adopted"), 2)
            self.assertNotIn("refused a coordinator", logs)

    def test_a_folder_is_one_coordinators(self):
        flags = [f"--state-dir={self.folder}/state"]
        with daemons.Cluster(workers=0, coordinator_flags=flags):
            with self.assertRaises(AssertionError):
                daemons.Cluster(workers=0, coordinator_flags=flags)

    def test_a_name_is_one_workers(self):
        with daemons.Cluster(workers=1, devices=1) as cluster:
            first = cluster.executor_pids(0)
            with cluster.connect() as client:
                array = write(client)
            # Start a second worker with the same name. The coordinator refuses it.
            original = cluster.processes.pop("w0")
            cluster.processes["first"] = original
            cluster.start_worker(0)
            daemons.eventually(lambda: "a worker named w0 is connected" in cluster.logs(), PATIENCE,
                               "the second is told why")
            second, cluster.processes["w0"] = cluster.processes["w0"], original
            cluster.processes["first"] = second
            daemons.eventually(lambda: second.poll() is not None, PATIENCE, "the second ends")
            self.assertEqual(second.returncode, 2)
            self.assertEqual(cluster.executor_pids(0), first)
            with cluster.connect() as client:
                client.call(API + "ArrayService/ReadArray", {"array": array, "json": True})
            # After a restart the first worker gets its name back at once.
            cluster.kill_worker(0)
            cluster.start_worker(0)
            cluster.await_devices(1)

    def test_who_is_gone_can_be_forgotten(self):
        with daemons.Cluster(workers=2, devices=1) as cluster, cluster.connect() as client:
            with self.assertRaises(json_client.Error) as refused:
                client.call(API + "AdminService/DeleteWorker", {"worker": "w1"})
            self.assertIn("is connected", refused.exception.message)
            cluster.kill_worker(1)
            daemons.eventually(lambda: len(cluster.healthy_devices()) == 1, PATIENCE, "w1 is lost")
            gone = client.call(API + "AdminService/DeleteWorker", {"worker": "w1"})
            self.assertEqual(gone["name"], "w1")
            workers = client.call(API + "ClusterService/ListWorkers")["workers"]
            self.assertEqual([w["name"] for w in workers], ["w0"])
            [(kept, _)] = self.devices(cluster).items()
            self.assertEqual(self.devices(cluster), {kept: "w0/0"})
            with self.assertRaises(json_client.Error) as unknown:
                client.call(API + "AdminService/DeleteWorker", {"worker": "w1"})
            self.assertEqual(unknown.exception.code, "NOT_FOUND")
            cluster.start_worker(1)
            cluster.await_devices(2)
            # The worker comes back as a new one, with another device.
            self.assertEqual(self.devices(cluster), {kept: "w0/0", "2": "w1/0"})


if __name__ == "__main__":
    unittest.main()
