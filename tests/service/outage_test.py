"""Tests what workers do while the coordinator is away, and what the coordinator knows when it is
back."""
import base64
import hashlib
import pathlib
import shutil
import tempfile
import time
import unittest

import daemons
import json_client
import stopwatch

API = "tessera.v1."
ARTIFACTS = pathlib.Path(__file__).resolve().parent.parent / "fuzz/stablehlo"
SERVES_AGAIN_WITHIN = 3
# This program takes seconds on one device.
LOOP = """
func main(%c: f32[2048]) -> (f32[2048]) {
  %last = scan(%c) {num_consts=0, num_carry=1, length=LENGTH, reverse=false} with
    func step(%carry: f32[2048]) -> (f32[2048]) {
      %next = sine(%carry)
      return %next
    }
  return %last
}
"""

PATIENCE = 20
DEATH_IS_SEEN_WITHIN = 1  # seconds within which executors notice that their daemon has died


def kill_coordinator(cluster):
    process = cluster.processes["coordinator"]
    process.kill()
    process.wait()


def program_of(op):
    return {"opset": 1, "functions": [{
        "name": op, "mesh": {"axes": [{"name": "x", "size": "1"}]}, "checkVma": True,
        "params": [{"dtype": "f32", "shape": ["2"]}], "results": [1],
        "ops": [{"name": op, "operands": [0], "numResults": 1}]}]}


def hash_of(data):
    return hashlib.sha256(data).hexdigest()


def use(cluster):
    """Writes an array to every executor, so that it has state. The devices are listed before
    that."""
    with cluster.connect() as client:
        for device in cluster.healthy_devices():
            spec = {"dtype": "f32", "shape": ["2"],
                    "placement": {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {},
                                  "devices": [device.get("id", "0")]}}
            client.call(API + "ArrayService/WriteArray", {"spec": spec, "json": [1, 2]})


class OutageTest(unittest.TestCase):
    def test_executors_go_on_until_a_coordinator_does_not_know_them(self):
        with daemons.Cluster(workers=2, devices=1) as cluster:
            use(cluster)
            before = [cluster.executor_pids(w) for w in range(2)]
            kill_coordinator(cluster)
            daemons.throughout(2, lambda: self.assertEqual(
                [cluster.executor_pids(w) for w in range(2)], before))
            # This coordinator keeps its state in memory, so the new one knows nothing.
            cluster.restart_coordinator()
            back = time.monotonic()
            cluster.await_devices(2)
            print(f"devices are back after {time.monotonic() - back:.2f} s")
            after = [cluster.executor_pids(w) for w in range(2)]
            self.assertFalse(set(sum(before, [])) & set(sum(after, [])))
            self.assertIn("does not adopt its arrays and operations", cluster.logs())

    def test_with_a_state_folder_everything_goes_on(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with daemons.Cluster(workers=2, devices=1,
                             coordinator_flags=[f"--state-dir={folder}/state"]) as cluster:
            before = [cluster.executor_pids(w) for w in range(2)]
            with cluster.connect() as client:
                session = client.call(API + "SessionService/CreateSession", {})["id"]
                program = client.call(API + "ProgramService/CompileProgram",
                                      {"text": LOOP.replace("LENGTH", "100000"), "devices": ["0"]})
                spec = dict(program["in"][0])
                array = client.call(API + "ArrayService/WriteArray",
                                    {"spec": spec, "json": [0.5] * 2048, "session": session})["array"]
                given = client.call(API + "ArrayService/WriteArray",
                                    {"spec": spec, "json": [0.5] * 2048})["array"]
                short = self.execute(client, program, array)
                self.assertEqual(self.wait(client, short)["state"], "OPERATION_STATE_DONE")
                running = self.execute(client, program, given, donate=[True])
                behind = self.execute(client, program, array)
            for _ in range(3):
                kill_coordinator(cluster)
                watch = stopwatch.Stopwatch()
                cluster.restart_coordinator()
                with cluster.connect() as client:
                    self.assertEqual(client.call(API + "SessionService/GetSession",
                                                 {"session": session})["id"], session)
                took = watch.unhindered()
                print(f"serves again after {took:.2f} s")
                self.assertLess(took, SERVES_AGAIN_WITHIN)
            with cluster.connect() as client:
                # Each run ends once, with the result that its executor computed.
                self.assertEqual(self.wait(client, short)["state"], "OPERATION_STATE_DONE")
                for operation in (running, behind):
                    ended = self.wait(client, operation)
                    self.assertEqual(ended["state"], "OPERATION_STATE_DONE", ended)
                value = client.call(API + "ArrayService/ReadArray", {"array": array, "json": True})
                self.assertEqual(value["json"][:2], [0.5, 0.5])
                # The compiled program is still known too.
                again = self.execute(client, program, array)
                self.assertEqual(self.wait(client, again)["state"], "OPERATION_STATE_DONE")
                for operation in (running, again):
                    [output] = client.call(API + "OperationService/GetOperation",
                                           {"operation": operation})["outputs"]
                    self.assertEqual(client.call(API + "ArrayService/GetArray",
                                                 {"array": output})["state"], "READY")
            self.assertEqual([cluster.executor_pids(w) for w in range(2)], before)

    def test_a_call_that_is_repeated_after_a_restart_happens_once(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with daemons.Cluster(workers=1, devices=1,
                             coordinator_flags=[f"--state-dir={folder}/state"]) as cluster:
            with cluster.connect() as client:
                program = client.call(API + "ProgramService/CompileProgram",
                                      {"text": LOOP.replace("LENGTH", "10"), "devices": ["0"]})
                spec = dict(program["in"][0])
                write = lambda: client.call(API + "ArrayService/WriteArray",
                                            {"spec": spec, "json": [0.5] * 2048})["array"]
                given, moved, left = write(), write(), write()
            mesh = {"axes": [{"name": "x", "size": "1"}]}
            calls = [
                ("SessionService/CreateSession", {"displayName": "one"}),
                ("ProgramService/ExecuteProgram",
                 {"executable": program["executable"], "args": [given], "donate": [True]}),
                ("ArrayService/CreateArray", {"spec": spec}),
                ("ArrayService/WriteArray", {"spec": spec, "json": [1.5] * 2048}),
                ("ArrayService/ReshardArray", {"array": moved, "placement": spec["placement"]}),
                ("ArrayService/DeleteArrays", {"arrays": [left, "99"]}),
                ("ClusterService/CreateMesh", {"mesh": {"name": "pair", "mesh": mesh}}),
                ("ClusterService/DeleteMesh", {"name": "pair"}),
            ]
            calls = [(method, {**request, "requestId": f"call-{i}"})
                     for i, (method, request) in enumerate(calls)]
            first = self.call_all(cluster, calls)
            kill_coordinator(cluster)
            cluster.restart_coordinator()
            cluster.await_devices(1)
            # The answer about a mesh that has been deleted meanwhile is the only one that cannot be
            # given again.
            again = self.call_all(cluster, calls[:-2] + calls[-1:])
            self.assertEqual(again, first[:-2] + first[-1:])
            with cluster.connect() as client:
                self.assertEqual(self.wait(client, first[1][0])["state"], "OPERATION_STATE_DONE")
                with self.assertRaises(json_client.Error) as caught:
                    client.call(API + calls[1][0], {**calls[1][1], "args": [moved]})
                self.assertEqual(caught.exception.reason, "REQUEST_ID_REUSED")

    def test_uploaded_programs_outlive_the_coordinator(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tessera-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with daemons.Cluster(workers=1, devices=1,
                             coordinator_flags=[f"--state-dir={folder}/state"]) as cluster:
            with cluster.connect() as client:
                whole, dropped, half = [client.encode(API + "Program", program_of(op))
                                        for op in ("sine", "cosine", "tanh")]
                self.upload(client, whole)
                self.upload(client, dropped)
                artifact = (ARTIFACTS / "affine.mlirbc").read_bytes()
                self.upload(client, artifact, format="PROGRAM_FORMAT_STABLEHLO")
                self.assertFalse(self.upload(client, half, bytes_of=half[:20]).get("complete"))
                delete = {"sha256": hash_of(dropped), "requestId": "delete"}
                client.call(API + "ProgramService/DeleteProgram", delete)
            kill_coordinator(cluster)
            cluster.restart_coordinator()
            cluster.await_devices(1)
            with cluster.connect() as client:
                listed = client.call(API + "ProgramService/ListPrograms")["programs"]
                self.assertEqual([p["sha256"] for p in listed],
                                 sorted([hash_of(whole), hash_of(artifact)]))
                compiled = client.call(API + "ProgramService/CompileProgram",
                                       {"programSha256": hash_of(whole)})
                self.assertEqual(compiled["in"][0]["shape"], ["2"])
                compiled = client.call(API + "ProgramService/CompileProgram",
                                       {"programSha256": hash_of(artifact)})
                self.assertEqual(compiled["in"][0]["shape"], ["4", "3"])
                # A repeated deletion gets the same answer as the first. An incomplete upload starts
                # again from the beginning.
                client.call(API + "ProgramService/DeleteProgram", delete)
                asked = client.call(API + "ProgramService/UploadProgram", {"sha256": hash_of(half)})
                self.assertEqual(asked.get("committedBytes", "0"), "0")
                self.assertTrue(self.upload(client, half)["complete"])

    def upload(self, client, program, bytes_of=None, **more):
        data = program if bytes_of is None else bytes_of
        return client.call(API + "ProgramService/UploadProgram", {
            **more,
            "sha256": hash_of(program), "sizeBytes": len(program),
            "data": base64.b64encode(data).decode(), "crc32c": json_client.crc32c(data)})

    def call_all(self, cluster, calls):
        """Makes the calls and returns, for each, the ids of what it has made."""
        made = []
        with cluster.connect() as client:
            for method, request in calls:
                answer = client.call(API + method, request)
                operation = answer.get("operation")
                if isinstance(operation, dict):
                    operation = operation["id"]
                array = answer.get("array")
                if isinstance(array, dict):
                    array = array["id"]
                made.append((operation, array, answer.get("id"), answer.get("outputs"),
                             answer.get("missing")))
        return made

    def execute(self, client, program, array, donate=()):
        return client.call(API + "ProgramService/ExecuteProgram",
                           {"executable": program["executable"], "args": [array],
                            "donate": list(donate)})["operation"]

    def wait(self, client, operation):
        return client.call(API + "OperationService/WaitOperation",
                           {"operation": operation, "timeout": "60s"}, timeout=70)

    def test_executors_are_started_anew_when_the_grace_is_over(self):
        with daemons.Cluster(workers=1, devices=1,
                             coordinator_flags=["--outage-grace-ms=500"]) as cluster:
            use(cluster)
            [first] = cluster.executor_pids(0)
            kill_coordinator(cluster)
            daemons.eventually(lambda: cluster.executor_pids(0) not in ([], [first]), PATIENCE,
                               "another executor")
            self.assertIn("the coordinator was away for 500ms", cluster.logs())
            cluster.restart_coordinator()
            cluster.await_devices(1)

    def test_no_executor_outlives_its_daemon_in_an_outage(self):
        with daemons.Cluster(workers=1, devices=1) as cluster:
            use(cluster)
            [executor] = cluster.executor_pids(0)
            kill_coordinator(cluster)
            daemons.eventually(lambda: "the executor waits" in cluster.logs(), PATIENCE,
                               "the executor waits")
            self.assertFalse(daemons.has_ended(executor))
            watch = stopwatch.Stopwatch()
            cluster.kill_worker(0)
            daemons.eventually(lambda: daemons.has_ended(executor), PATIENCE, "the executor ends")
            self.assertLess(watch.unhindered(), DEATH_IS_SEEN_WITHIN)


if __name__ == "__main__":
    unittest.main()
