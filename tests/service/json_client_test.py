"""Tests the services of real daemons with json_client.py, which speaks JSON and uses reflection.

Run it beside a cluster of two workers with two CPU devices each, with its address in
TESSERA_SUITE_ADDRESS.
"""
import os
import struct
import threading
import time
import unittest

import json_client

ADDRESS = os.environ["TESSERA_SUITE_ADDRESS"]
PROGRAMS = "tessera.v1.ProgramService"
ARRAYS = "tessera.v1.ArrayService"
OPERATIONS = "tessera.v1.OperationService"
CLUSTER = "tessera.v1.ClusterService"

# A program of five lines: a product over two devices, with the first operand sharded in halves.
PRODUCT = """mesh (x=2)
func main(%a: f32[4] P('x'), %b: f32[4]) -> (f32[4]) {
  %c = multiply(%a, %b)
  return %c
}
"""


def op(name, operands, line, **more):
    """Returns an op with one result and the source line model.py:line."""
    return {"name": name, "operands": operands, "numResults": 1, "file": 1, "line": line, **more}


def program(params, ops, results, mesh=(("x", 2),), axis_type="AXIS_TYPE_AUTO", **more):
    """Returns the JSON form of a program with one function."""
    axes = [{"name": n, "size": str(s), "type": axis_type} for n, s in mesh]
    function = {"name": "main", "mesh": {"axes": axes}, "checkVma": True, "params": params,
                "ops": ops, "results": results}
    return {"opset": 1, "functions": [function], "files": ["/src/model.py"], **more}


def typed(dtype, *shape, **more):
    return {"dtype": dtype, "shape": [str(d) for d in shape], **more}


# The program x * x + x on f32[8]; its argument and its result are sharded in halves.
HALVES = {"spec": {"dims": [{"axes": ["x"]}]}}
SQUARES = program([typed("f32", 8)], [op("multiply", [0, 0], 3), op("add", [1, 0], 4)], [2],
                  inShardings=[HALVES], outShardings=[HALVES])


class JsonClientTest(unittest.TestCase):
    def setUp(self):
        self.client = json_client.Client(ADDRESS)
        self.addCleanup(self.client.channel.close)

    def call(self, *args, **kwargs):
        return self.client.call(*args, **kwargs)

    def run_product(self):
        return self.call(PROGRAMS + "/RunProgram",
                         {"text": PRODUCT, "inputs": [[1, 2, 3, 4], [10, 10, 10, 10]]})

    def put(self, spec, data):
        made = self.call(ARRAYS + "/CreateArray", {"spec": spec})
        shards = len(made["tickets"])
        size = len(data) // shards
        for ticket in made["tickets"]:
            at = ticket.get("ordinal", 0) * size
            answer = json_client.write_shard(ticket, data[at:at + size])
            self.assertEqual(answer["committedBytes"], str(size))
        return made["array"]

    def get(self, array):
        tickets = self.call(ARRAYS + "/CreateReadTickets", {"array": array, "timeout": "20s"})
        shards = sorted(tickets["tickets"], key=lambda t: t.get("ordinal", 0))
        return b"".join(json_client.read_shard(t) for t in shards)

    # ---- Descriptions of the service and the cluster. ----

    def test_every_service_is_listed_and_described(self):
        services = self.client.services()
        for name in ("Array", "Cluster", "Operation", "Program", "Worker"):
            self.assertIn(f"tessera.v1.{name}Service", services)
        self.assertIn("grpc.health.v1.Health", services)
        methods = [m for s in services for m in self.client.methods(s)]
        self.assertIn(PROGRAMS + "/RunProgram", methods)
        self.assertIn("grpc.health.v1.Health/Check", methods)

    def test_health_is_serving(self):
        # Health is SERVING once the devices have passed their first canaries.
        deadline = time.monotonic() + 30
        while (health := self.call("grpc.health.v1.Health/Check")) != {"status": "SERVING"}:
            self.assertLess(time.monotonic(), deadline, health)
            threading.Event().wait(0.05)
        for service in ("live", "ready", "progressing", PROGRAMS, CLUSTER):
            answer = self.call("grpc.health.v1.Health/Check", {"service": service})
            self.assertEqual(answer, {"status": "SERVING"}, service)
        with self.assertRaises(json_client.Error) as caught:
            self.call("grpc.health.v1.Health/Check", {"service": "nobody"})
        self.assertEqual(caught.exception.code, "NOT_FOUND")

    def test_devices_and_limits(self):
        devices = self.call(CLUSTER + "/ListDevices")["devices"]
        self.assertEqual([int(d.get("id", 0)) for d in devices], [0, 1, 2, 3])
        self.assertEqual({d["worker"] for d in devices}, {"w0", "w1"})
        self.assertTrue(all(d["healthy"] for d in devices))
        limits = self.call(CLUSTER + "/GetCapabilities")
        self.assertGreater(int(limits["maxProgramBytes"]), 0)

    # ---- Calls that run programs. ----

    def test_one_call_runs_a_program(self):
        self.assertEqual(self.run_product(), {"outputs": [[10, 20, 30, 40]], "types": ["f32[4]"]})

    def test_separate_calls_run_a_program(self):
        compiled = self.call(PROGRAMS + "/CompileProgram", {"program": SQUARES, "explain": True})
        self.assertIn("multiply", compiled["explainText"])
        data = struct.pack("<8f", *range(8))
        array = self.put(compiled["in"][0], data)
        self.assertEqual(self.get(array), data)
        run = self.call(PROGRAMS + "/ExecuteProgram",
                        {"executable": compiled["executable"], "args": [array], "deadline": "30s"})
        done = self.call(OPERATIONS + "/WaitOperation",
                         {"operation": run["operation"], "timeout": "20s"})
        self.assertEqual(done["state"], "OPERATION_STATE_DONE")
        result = run["outputs"][0]
        self.assertEqual(struct.unpack("<8f", self.get(result)),
                         tuple(float(i * i + i) for i in range(8)))
        described = self.call(ARRAYS + "/GetArray", {"array": result})
        self.assertEqual(described["state"], "READY")
        self.assertEqual(described["spec"]["shape"], ["8"])
        self.call(ARRAYS + "/DeleteArrays", {"arrays": [array, result]})
        self.refuse("FAILED_PRECONDITION", "ARRAY_DELETED", "", ARRAYS + "/GetArray",
                    {"array": array})

    def test_an_array_of_several_chunks_comes_back_whole(self):
        # The checksum is slow in Python, so the data is short and the chunks are small.
        spec = {"dtype": "u8", "shape": ["20000"],
                "placement": {"mesh": {"axes": [{"name": "x", "size": "2"}]},
                              "spec": {"dims": [{"axes": ["x"]}]}, "devices": ["0", "3"]}}
        data = bytes(i * 7 % 251 for i in range(20000))
        chunk, json_client.CHUNK = json_client.CHUNK, 3000
        self.addCleanup(setattr, json_client, "CHUNK", chunk)
        self.assertEqual(self.get(self.put(spec, data)), data)

    # ---- Calls that are refused. ----

    def refuse(self, code, reason, text, *call, **kwargs):
        """Expects the call to fail with this error, and the daemons to keep serving."""
        with self.assertRaises(json_client.Error) as caught:
            self.call(*call, **kwargs)
        error = caught.exception
        self.assertEqual(error.code, code, error)
        if reason:
            self.assertEqual((error.reason, error.domain), (reason, "tessera.dev"), error)
        self.assertIn(text, error.message)
        self.assertEqual(self.run_product()["outputs"], [[10, 20, 30, 40]])
        return error

    def refuse_text(self, code, reason, text, source, inputs=()):
        return self.refuse(code, reason, text, PROGRAMS + "/RunProgram",
                           {"text": source, "inputs": list(inputs)})

    def refuse_program(self, code, reason, text, source):
        return self.refuse(code, reason, text, PROGRAMS + "/CompileProgram", {"program": source})

    def test_bytes_that_are_no_message(self):
        for method in ("CompileProgram", "RunProgram"):
            with self.assertRaises(json_client.Error) as caught:
                self.client.call_raw(f"{PROGRAMS}/{method}", [b"\xff\xff\xff\xff"])
            error = caught.exception
            self.assertEqual((error.code, error.reason), ("INVALID_ARGUMENT", "MALFORMED_PROGRAM"))
            self.assertIn("4 bytes", error.message)
            self.assertEqual(self.run_product()["outputs"], [[10, 20, 30, 40]])

    def test_malformed_program(self):
        self.refuse_text("INVALID_ARGUMENT", "MALFORMED_PROGRAM", "line 1, column 6", "func ???")
        self.refuse_text("INVALID_ARGUMENT", "MALFORMED_PROGRAM", "there is no program", "")
        self.refuse("INVALID_ARGUMENT", "MALFORMED_PROGRAM", "no program",
                    PROGRAMS + "/RunProgram", {})
        self.refuse_program("INVALID_ARGUMENT", "MALFORMED_PROGRAM", "model.py:7",
                            program([typed("f32", 2)], [op("negate", [9], 7)], [1]))
        self.refuse_program("INVALID_ARGUMENT", "MALFORMED_PROGRAM", "", {"opset": 1})
        self.refuse_program("UNIMPLEMENTED", "UNKNOWN_OP", "op set 99",
                            {**SQUARES, "opset": 99})

    def test_unknown_op(self):
        self.refuse_text("UNIMPLEMENTED", "UNKNOWN_OP", "frobnicate",
                         PRODUCT.replace("multiply", "frobnicate"))
        self.refuse_program("UNIMPLEMENTED", "UNKNOWN_OP", "model.py:8",
                            program([typed("f32", 2)], [op("frobnicate", [0], 8)], [1]))

    def test_explicit_sharding_that_does_not_divide(self):
        cut = [{"axes": ["x"]}]
        self.refuse_program("INVALID_ARGUMENT", "INDIVISIBLE", "f32[5@x]",
                            program([typed("f32", 5, sharding=cut)], [], [0],
                                    axis_type="AXIS_TYPE_EXPLICIT"))
        constraint = op("sharding_constraint", [0], 12, attributes=[
            {"name": "sharding", "spec": {"dims": cut}}])
        self.refuse_program("INVALID_ARGUMENT", "INDIVISIBLE", "model.py:12",
                            program([typed("f32", 5)], [constraint], [1],
                                    axis_type="AXIS_TYPE_EXPLICIT"))

    def test_unknown_axis(self):
        self.refuse_text("INVALID_ARGUMENT", "UNKNOWN_AXIS", "'q'",
                         PRODUCT.replace("P('x')", "P('q')"), [[1] * 4, [1] * 4])
        spec = {"dtype": "f32", "shape": ["4"],
                "placement": {"mesh": {"axes": [{"name": "x", "size": "2"}]},
                              "spec": {"dims": [{"axes": ["q"]}]}, "devices": ["0", "1"]}}
        self.refuse("INVALID_ARGUMENT", "UNKNOWN_AXIS", "'q'", ARRAYS + "/CreateArray",
                    {"spec": spec})

    def test_wrong_dtype(self):
        self.refuse_program("INVALID_ARGUMENT", "TYPE_ERROR", "model.py:21",
                            program([typed("f32", 4), typed("s32", 4)], [op("add", [0, 1], 21)],
                                    [2]))
        self.refuse_text("INVALID_ARGUMENT", "VALUE_ERROR", "argument 0 (%a): input at [1]", PRODUCT,
                         [[1, True, 3, 4], [1] * 4])
        self.refuse_execute("INVALID_ARGUMENT", "TYPE_ERROR", "s32[8]", typed("s32", 8))

    def test_wrong_shape(self):
        self.refuse_program("INVALID_ARGUMENT", "TYPE_ERROR", "model.py:22",
                            program([typed("f32", 4), typed("f32", 6)], [op("add", [0, 1], 22)],
                                    [2]))
        self.refuse_text("INVALID_ARGUMENT", "VALUE_ERROR", "a list of 4 values was expected", PRODUCT,
                         [[1, 2, 3], [1] * 4])
        self.refuse_execute("INVALID_ARGUMENT", "TYPE_ERROR", "f32[6]", typed("f32", 6))

    def refuse_execute(self, code, reason, text, of_type):
        compiled = self.call(PROGRAMS + "/CompileProgram", {"program": SQUARES})
        spec = {**compiled["in"][0], **of_type}
        array = self.call(ARRAYS + "/CreateArray", {"spec": spec})["array"]
        self.refuse(code, reason, text, PROGRAMS + "/ExecuteProgram",
                    {"executable": compiled["executable"], "args": [array]})

    def test_a_message_beyond_the_limit(self):
        limit = int(self.call(CLUSTER + "/GetCapabilities")["maxMessageBytes"])
        # The transport refuses the message before it is read, so the error has no details.
        self.refuse("RESOURCE_EXHAUSTED", None, "larger than max", PROGRAMS + "/RunProgram",
                    {"text": "#" * (limit + 1)})

    def test_handles_that_name_nothing(self):
        self.refuse("NOT_FOUND", "ARRAY_NOT_FOUND", "987654", ARRAYS + "/GetArray",
                    {"array": "987654"})
        self.refuse("NOT_FOUND", "ARRAY_NOT_FOUND", "987654", ARRAYS + "/CreateReadTickets",
                    {"array": "987654"})
        self.refuse("NOT_FOUND", "PROGRAM_NOT_FOUND", "987654", PROGRAMS + "/ExecuteProgram",
                    {"executable": "987654"})
        self.refuse("NOT_FOUND", "OPERATION_NOT_FOUND", "987654", OPERATIONS + "/GetOperation",
                    {"operation": "987654"})

    def test_a_deleted_handle(self):
        compiled = self.call(PROGRAMS + "/CompileProgram", {"program": SQUARES})
        array = self.put(compiled["in"][0], bytes(32))
        self.call(ARRAYS + "/DeleteArrays", {"arrays": [array]})
        for method, request in ((ARRAYS + "/GetArray", {"array": array}),
                                (ARRAYS + "/CreateReadTickets", {"array": array}),
                                (PROGRAMS + "/ExecuteProgram",
                                 {"executable": compiled["executable"], "args": [array]})):
            self.refuse("FAILED_PRECONDITION", "ARRAY_DELETED", array, method, request)

    def test_a_mesh_beyond_the_cluster(self):
        self.refuse_text("FAILED_PRECONDITION", "NOT_ENOUGH_DEVICES", "needs 64",
                         PRODUCT.replace("x=2", "x=64").replace("f32[4]", "f32[64]"),
                         [[1] * 64, [1] * 64])
        self.refuse("FAILED_PRECONDITION", "NOT_ENOUGH_DEVICES", "99",
                    PROGRAMS + "/CompileProgram", {"program": SQUARES, "devices": ["0", "99"]})

    def test_a_deadline_that_passes(self):
        # The data of this array is never uploaded.
        compiled = self.call(PROGRAMS + "/CompileProgram", {"program": SQUARES})
        array = self.call(ARRAYS + "/CreateArray", {"spec": compiled["in"][0]})["array"]
        self.refuse("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", array,
                    ARRAYS + "/CreateReadTickets", {"array": array, "timeout": "0.05s"})
        run = self.call(PROGRAMS + "/ExecuteProgram",
                        {"executable": compiled["executable"], "args": [array],
                         "deadline": "0.1s"})
        ended = self.call(OPERATIONS + "/WaitOperation",
                          {"operation": run["operation"], "timeout": "20s"})
        self.assertEqual(ended["state"], "OPERATION_STATE_FAILED")
        # Errors inside responses are decoded like the errors of calls.
        info = ended["error"]["details"][0]
        self.assertEqual((info["reason"], info["domain"]), ("DEADLINE_EXCEEDED", "tessera.dev"))
        self.assertIn(f"argument array {array} is being uploaded", ended["error"]["message"])

    def test_a_ticket_that_is_not_ours(self):
        compiled = self.call(PROGRAMS + "/CompileProgram", {"program": SQUARES})
        made = self.call(ARRAYS + "/CreateArray", {"spec": compiled["in"][0]})
        ticket = {**made["tickets"][0], "ticket": "stolen"}
        with self.assertRaises(json_client.Error) as caught:
            json_client.write_shard(ticket, bytes(16))
        self.assertEqual(caught.exception.code, "PERMISSION_DENIED")
        self.assertEqual(caught.exception.reason, "TICKET_REFUSED")


if __name__ == "__main__":
    unittest.main()
