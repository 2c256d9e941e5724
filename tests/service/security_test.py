"""Tests which callers may call which methods, with real daemons over TLS.

Every method that reflection describes is called with every role, without a token, and by a stranger
from another tenant. A new method fails these tests until it has rows in the tables below.
"""
import base64
import hashlib
import re
import tempfile
import threading
import unittest

import daemons
import grpc
import json_client
import secure_cluster
import stopwatch
from google.protobuf import json_format
from secure_cluster import ADMIN

API = "tessera.v1."
ROLES = ["viewer", "user", "operator", "admin", "worker"]
# These services are open to everybody who reaches the port.
OPEN_SERVICES = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
# These services are gRPC's own. A guard keeps them for administrators.
GUARDED_SERVICES = {"grpc.channelz.v1.Channelz"}

# The lowest role that may call each method. The server has a table of its own. This one repeats it, so that a row that
# is changed there by mistake is noticed.
LEAST = {
    "SessionService": {"CreateSession": "user", "GetSession": "viewer", "ListSessions": "viewer",
                       "RenewSession": "user", "HoldSession": "user", "DeleteSession": "user"},
    "ProgramService": {"CompileProgram": "user", "ExecuteProgram": "user",
                       "ExecuteAndWatch": "user", "ExecutePrograms": "user",
                       "RunProgram": "user", "UploadProgram": "user",
                       "GetProgram": "viewer", "InspectProgram": "viewer",
                       "ListPrograms": "viewer", "DeleteProgram": "user",
                       "ExplainProgram": "user"},
    "OperationService": {"GetOperation": "viewer", "WaitOperation": "viewer",
                         "CancelOperation": "user", "ListOperations": "viewer",
                         "ExplainPending": "viewer", "WatchOperation": "viewer"},
    "ArrayService": {"CreateArray": "user", "GetArray": "viewer", "CreateReadTickets": "viewer",
                     "DeleteArrays": "user", "ListArrays": "viewer", "CreateWriteTickets": "user",
                     "ReadArray": "viewer", "WriteArray": "user", "SaveArrays": "user",
                     "LoadArrays": "user", "GetFile": "viewer", "ReshardArray": "user"},
    "ClusterService": {"ListDevices": "viewer", "GetCapabilities": "viewer",
                       "ListWorkers": "viewer", "GetWorker": "viewer", "GetTopology": "viewer",
                       "CreateMesh": "user", "GetMesh": "viewer", "ListMeshes": "viewer",
                       "DeleteMesh": "user", "ListTopPrograms": "viewer"},
    "AdminService": {"CordonWorker": "operator", "UncordonWorker": "operator",
                     "DrainWorker": "operator", "DeleteWorker": "operator",
                     "GetDiagnostics": "operator", "SetLogLevel": "operator",
                     "CreateToken": "admin", "ListTokens": "admin",
                     "RevokeToken": "admin"},
    "WorkerService": {"Connect": "worker", "Attach": "worker"},
    "EnrollmentService": {"GetAuthority": "anyone", "Enroll": "worker"},
}
METHODS = {f"{API}{service}/{method}": least
           for service, methods in LEAST.items() for method, least in methods.items()}

# Requests that name something that belongs to a tenant. Each is made once with the owner's ids and
# once with ids that nobody has; a stranger must get the same answer to both.
FOREIGN = {
    "SessionService/GetSession": lambda r: {"session": r["session"]},
    "SessionService/RenewSession": lambda r: {"session": r["session"]},
    "SessionService/HoldSession": lambda r: {"session": r["session"]},
    "SessionService/DeleteSession": lambda r: {"session": r["session"]},
    "ProgramService/CompileProgram": lambda r: {"programSha256": r["program"]},
    "ProgramService/ExecuteProgram": lambda r: {"executable": r["executable"],
                                                "args": [r["array"]]},
    "ProgramService/ExecuteAndWatch": lambda r: {"executable": r["executable"],
                                                 "args": [r["array"]]},
    "ProgramService/ExecutePrograms": lambda r: [{"number": 1, "run": {
        "executable": r["executable"], "args": [r["array"]]}}],
    "ProgramService/RunProgram": lambda r: {"text": PROGRAM, "inputs": [[1, 2]],
                                            "mesh": r["mesh"]},
    "ProgramService/GetProgram": lambda r: {"sha256": r["program"]},
    "ProgramService/InspectProgram": lambda r: {"programSha256": r["program"]},
    "ProgramService/DeleteProgram": lambda r: {"sha256": r["program"]},
    "ProgramService/ExplainProgram": lambda r: {"programSha256": r["program"]},
    "OperationService/GetOperation": lambda r: {"operation": r["operation"]},
    "OperationService/WaitOperation": lambda r: {"operation": r["operation"], "timeout": "0s"},
    "OperationService/CancelOperation": lambda r: {"operation": r["operation"]},
    "OperationService/ExplainPending": lambda r: {"operation": r["operation"]},
    "OperationService/WatchOperation": lambda r: {"operation": r["operation"]},
    "OperationService/ListOperations": lambda r: {"session": r["session"]},
    "ArrayService/CreateArray": lambda r: {"spec": SPEC, "session": r["session"]},
    "ArrayService/GetArray": lambda r: {"array": r["array"]},
    "ArrayService/CreateReadTickets": lambda r: {"array": r["array"], "timeout": "0s"},
    "ArrayService/CreateWriteTickets": lambda r: {"array": r["array"]},
    "ArrayService/ReadArray": lambda r: {"array": r["array"], "json": True, "timeout": "0s"},
    "ArrayService/WriteArray": lambda r: {"spec": SPEC, "json": [1, 2], "session": r["session"]},
    "ArrayService/SaveArrays": lambda r: {"arrays": [{"name": "a", "array": r["array"]}],
                                          "path": "stolen.safetensors"},
    "ArrayService/LoadArrays": lambda r: {"path": "a.safetensors", "arrays": [{"name": "a"}],
                                          "session": r["session"]},
    "ArrayService/ReshardArray": lambda r: {"array": r["array"], "placement": SPEC["placement"]},
    "ArrayService/ListArrays": lambda r: {"session": r["session"]},
    "ArrayService/DeleteArrays": lambda r: {"arrays": [r["array"]]},
    "ClusterService/GetMesh": lambda r: {"name": r["mesh"]},
    "ClusterService/DeleteMesh": lambda r: {"name": r["mesh"]},
}
# Methods whose requests name nothing of a tenant. (A path is below the folder of the caller's own
# tenant.)
NOBODYS = {
    "SessionService/CreateSession", "SessionService/ListSessions", "ProgramService/UploadProgram",
    "ProgramService/ListPrograms", "ClusterService/ListDevices", "ClusterService/GetCapabilities",
    "ClusterService/ListWorkers", "ClusterService/GetWorker", "ClusterService/GetTopology",
    "ArrayService/GetFile",
    "ClusterService/CreateMesh", "ClusterService/ListMeshes", "ClusterService/ListTopPrograms",
    "AdminService/CordonWorker", "AdminService/UncordonWorker", "AdminService/DrainWorker",
    "AdminService/DeleteWorker", "AdminService/GetDiagnostics", "AdminService/SetLogLevel",
    "AdminService/CreateToken", "AdminService/ListTokens", "AdminService/RevokeToken",
    "WorkerService/Connect", "WorkerService/Attach", "EnrollmentService/GetAuthority", "EnrollmentService/Enroll",
}
PROGRAM = """mesh (x=1)
func main(%a: f32[2]) -> (f32[2]) {
  %b = add(%a, %a)
  return %b
}
"""
UPLOAD = {"opset": 1, "files": ["/model.py"], "functions": [{
    "name": "main", "checkVma": True,
    "mesh": {"axes": [{"name": "x", "size": "1", "type": "AXIS_TYPE_AUTO"}]},
    "params": [{"dtype": "f32", "shape": ["2"]}],
    "ops": [{"name": "add", "operands": [0, 0], "numResults": 1, "file": 1, "line": 3}],
    "results": [1]}]}
SPEC = {"dtype": "f32", "shape": ["2"],
        "placement": {"mesh": {"axes": [{"name": "x", "size": "1"}]}, "spec": {}, "devices": ["0"]}}


def may(role, least):
    if least == "anyone":
        return True
    if least == "worker" or role == "worker":
        return role == least
    return ROLES.index(role) >= ROLES.index(least)


class SecurityTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = secure_cluster.SecureCluster()
        cls.addClassCleanup(cls.cluster.close)

    def outcome(self, client, method, request=None, timeout=20):
        """Returns the Error of a call, or None if it succeeds."""
        try:
            answer = client.call(method, request, timeout=timeout)
        except json_client.Error as error:
            return error
        # A stream of runs answers each run with an event of its own.
        events = answer if isinstance(answer, list) else []
        refused = [e["refused"] for e in events if "refused" in e]
        for status in refused:
            code = next(c for c in grpc.StatusCode if c.value[0] == status["code"])
            return json_client.Error(code, status["message"], status["details"])
        return None

    def empty_call(self, client, method):
        """Makes a call with an empty request. A stream gets no request at all, so that it ends."""
        streams = client.method(method)[1]
        try:
            client.call_raw(method, [] if streams[0] else [b""], streams, timeout=20)
        except json_client.Error as error:
            return error
        return None

    # ---- Methods and roles. ----
    def test_every_method_has_its_rows(self):
        with self.cluster.client("admin") as client:
            services = set(client.services())
            described = {m for s in services if s.startswith(API) for m in client.methods(s)}
        self.assertEqual(described, set(METHODS), "a method without a row, or a row without one")
        self.assertEqual({s for s in services if not s.startswith(API)},
                         OPEN_SERVICES | GUARDED_SERVICES)
        rows = {m.removeprefix(API) for m in METHODS}
        self.assertEqual(rows, set(FOREIGN) | NOBODYS)
        self.assertFalse(set(FOREIGN) & NOBODYS)
        table = (daemons.ROOT / "server/rpc/methods.def").read_text()
        server_rows = {f"{API}{s}/{m}": least for s, m, least in re.findall(
            r"^TESSERA_METHOD\((\w+), (\w+), k(\w+),", table, re.M)}
        self.assertEqual({m: least.lower() for m, least in server_rows.items()}, METHODS)

    def test_each_role_may_call_what_its_row_says(self):
        for role in ROLES:
            with self.cluster.client(role) as client:
                for method, least in METHODS.items():
                    with self.subTest(role=role, method=method):
                        error = self.empty_call(client, method)
                        refused = error is not None and error.reason == "ROLE_MISSING"
                        self.assertEqual(refused, not may(role, least), error)
                        if refused:
                            self.assertEqual(error.code, "PERMISSION_DENIED")
                        elif error is not None:
                            self.assertNotIn(error.code, ("UNAUTHENTICATED", "PERMISSION_DENIED"))

    def test_without_a_good_token_nothing_is_answered(self):
        cluster = self.cluster
        brief = cluster.make_token("admin", name="brief", timeToLive="1s")
        revoked = cluster.make_token("admin", "team-r", name="to-be-revoked")
        with cluster.client("admin") as admin:
            admin.call(f"{ADMIN}/RevokeToken", {"name": "to-be-revoked"})
        good = cluster.token_of("admin")
        wrong = good[:-1] + ("0" if good[-1] != "0" else "1")

        def expired():
            with cluster.client_with(brief) as client:
                error = self.outcome(client, API + "ClusterService/GetCapabilities")
            return error is not None and error.reason == "TOKEN_EXPIRED"
        daemons.eventually(expired, what="the token of one second has expired")
        cases = {None: "TOKEN_MISSING", "nonsense": "TOKEN_UNKNOWN", wrong: "TOKEN_UNKNOWN",
                 brief: "TOKEN_EXPIRED", revoked: "TOKEN_REVOKED"}
        for token, reason in cases.items():
            with cluster.client_with(token) as client:
                for method, least in METHODS.items():
                    if least == "anyone":
                        continue
                    with self.subTest(reason=reason, method=method):
                        error = self.empty_call(client, method)
                        self.assertIsNotNone(error)
                        self.assertEqual((error.code, error.reason), ("UNAUTHENTICATED", reason))
                        self.assertNotIn(str(token), error.message)

    def test_health_and_reflection_want_no_token(self):
        with self.cluster.client_with(None) as client:
            self.assertIn(API + "ArrayService", client.services())
            answer = client.call("grpc.health.v1.Health/Check")
            self.assertIn("status", answer)

    def test_channelz_is_for_administrators(self):
        method = "grpc.channelz.v1.Channelz/GetServers"
        for role in ROLES:
            with self.cluster.client(role) as client, self.subTest(role=role):
                error = self.empty_call(client, method)
                self.assertEqual(error is None, role == "admin", error)
                if error:
                    self.assertEqual(error.code, "PERMISSION_DENIED")
        with self.cluster.client_with(None) as client:
            self.assertEqual(self.empty_call(client, method).code, "UNAUTHENTICATED")

    # ---- Tenants. ----
    def resources(self, client):
        """Makes one of each thing that belongs to a tenant, and returns their ids."""
        session = client.call(API + "SessionService/CreateSession", {})["id"]
        mesh = {"name": "mine", "mesh": {"axes": [{"name": "x", "size": "1"}]}, "devices": ["0"]}
        self.outcome(client, API + "ClusterService/CreateMesh", {"mesh": mesh})
        compiled = client.call(API + "ProgramService/CompileProgram", {"text": PROGRAM})
        array = client.call(API + "ArrayService/WriteArray",
                            {"spec": SPEC, "json": [1, 2], "session": session})
        array = array.get("array") or array.get("id")
        run = client.call(API + "ProgramService/ExecuteProgram",
                          {"executable": compiled["executable"], "args": [array],
                           "session": session})
        client.call(API + "OperationService/WaitOperation", {"operation": run["operation"]})
        program = self.upload(client)
        return {"session": session, "mesh": "mine", "executable": compiled["executable"],
                "array": array, "operation": run["operation"], "program": program}

    def upload(self, client):
        """Uploads a program and returns its hash."""
        request_type = client.method(API + "ProgramService/CompileProgram")[0].input_type
        field = request_type.fields_by_name["program"].message_type
        raw = json_format.ParseDict(UPLOAD, client._class(field)(),
                                    descriptor_pool=client.pool).SerializeToString()
        sha = hashlib.sha256(raw).hexdigest()
        client.call(API + "ProgramService/UploadProgram", {
            "sha256": sha, "sizeBytes": str(len(raw)), "offset": "0",
            "data": base64.b64encode(raw).decode(), "crc32c": crc32c(raw)})
        return sha

    def test_what_is_anothers_does_not_exist(self):
        with self.cluster.client("user", "team-a") as owner, \
                self.cluster.client("user", "team-b") as stranger, \
                self.cluster.client("viewer", "team-b") as onlooker:
            mine = self.resources(owner)
            # An id that belongs to this life of the coordinator but was given to nobody.
            given = str(int(mine["array"]) + 10**6)
            unknown = {"session": given, "mesh": "nobodys", "executable": given, "array": given,
                       "operation": given, "program": "0" * 64}
            for method, request in FOREIGN.items():
                name = API + method
                callers = [stranger] + ([onlooker] if METHODS[name] == "viewer" else [])
                for caller in callers:
                    with self.subTest(method=method):
                        theirs = self.outcome(caller, name, request(mine))
                        nobodys = self.outcome(caller, name, request(unknown))
                        self.assertEqual(theirs is None, nobodys is None, (theirs, nobodys))
                        if theirs is None:
                            continue  # deleting what does not exist is not an error
                        self.assertEqual((theirs.code, theirs.reason),
                                         (nobodys.code, nobodys.reason))
                        self.assertIn(theirs.code, ("NOT_FOUND", "FAILED_PRECONDITION"))
                        self.assertEqual(self.redacted(theirs.message, mine),
                                         self.redacted(nobodys.message, unknown))
            # Everything still belongs to the owner.
            for method, field in (("ArrayService/GetArray", "array"),
                                  ("OperationService/GetOperation", "operation"),
                                  ("SessionService/GetSession", "session")):
                self.assertIsNone(self.outcome(owner, API + method, {field: mine[field]}), method)
            listed = owner.call(API + "ArrayService/ListArrays", {"session": mine["session"]})
            self.assertIn(mine["array"], str(listed))

    def redacted(self, text, names):
        for value in names.values():
            text = text.replace(str(value), "X")
        return text

    def test_lists_hold_ones_own(self):
        with self.cluster.client("user", "team-c") as owner, \
                self.cluster.client("user", "team-d") as stranger:
            mine = self.resources(owner)
            for method in ("SessionService/ListSessions", "ClusterService/ListMeshes",
                           "ProgramService/ListPrograms"):
                with self.subTest(method=method):
                    answer = stranger.call(API + method)
                    for key in ("session", "program"):
                        self.assertNotIn(f'"{mine[key]}"', str(answer).replace("'", '"'))
            operations = stranger.call(API + "OperationService/ListOperations",
                                       {"allSessions": True})
            self.assertNotIn(mine["operation"],
                             [o["id"] for o in operations.get("operations", [])])

    # ---- Time. ----
    def test_revoking_cuts_an_open_stream(self):
        token = self.cluster.make_token("user", "team-s", name="streams")
        with self.cluster.client("user", "team-s") as owner:
            # Start a run that waits for an array that nobody writes.
            array = owner.call(API + "ArrayService/CreateArray", {"spec": SPEC})["array"]
            executable = owner.call(API + "ProgramService/CompileProgram",
                                    {"text": PROGRAM})["executable"]
            operation = owner.call(API + "ProgramService/ExecuteProgram",
                                   {"executable": executable, "args": [array]})["operation"]
        ended = {}
        first = threading.Event()

        def watch():
            with self.cluster.client_with(token) as client:
                try:
                    for _ in client.stream(API + "OperationService/WatchOperation",
                                           [{"operation": operation}], timeout=60):
                        first.set()
                except json_client.Error as error:
                    ended["error"] = error
                first.set()
        thread = threading.Thread(target=watch)
        thread.start()
        self.assertTrue(first.wait(20), "the stream says nothing")
        self.assertNotIn("error", ended)
        with self.cluster.client("admin") as admin:
            watch = stopwatch.Stopwatch()
            admin.call(f"{ADMIN}/RevokeToken", {"name": "streams"})
        with self.cluster.client_with(token) as client:
            error = daemons.eventually(
                lambda: self.outcome(client, API + "ClusterService/GetCapabilities"))
        took = watch.unhindered()
        self.assertEqual(error.reason, "TOKEN_REVOKED")
        print(f"a revoked token is refused after {took:.2f} s")
        self.assertLess(took, 5)
        thread.join(30)
        self.assertFalse(thread.is_alive(), "the stream goes on")
        took = watch.unhindered()
        print(f"its stream is cut after {took:.2f} s")
        self.assertLess(took, 30)
        self.assertEqual(ended["error"].code, "CANCELLED")

    # ---- Tickets. ----
    def tickets(self, client):
        """Returns a read ticket for an array on the first worker and one for an array on the
        second."""
        devices = client.call(API + "ClusterService/ListDevices")["devices"]
        out = {}
        for worker in ("w0", "w1"):
            device = next(d.get("id", "0") for d in devices if d["worker"] == worker)
            spec = {**SPEC, "placement": {**SPEC["placement"], "devices": [device]}}
            array = client.call(API + "ArrayService/WriteArray", {"spec": spec, "json": [1, 2]})
            array = array.get("array") or array.get("id")
            out[worker] = client.call(API + "ArrayService/CreateReadTickets",
                                      {"array": array})["tickets"][0]
        return out

    def test_a_ticket_is_good_where_it_is_for_and_untouched(self):
        with self.cluster.client("user", "team-t") as client:
            tickets = self.tickets(client)
        read = API + "DataService/Read"
        write = API + "DataService/Write"
        good = tickets["w0"]["ticket"]
        tampered = good[:-1] + ("0" if good[-1] != "0" else "1")
        other = tickets["w1"]["ticket"]
        fields = good.split("|")
        fields[3] = str(int(fields[3]) + 1)
        another_array = "|".join(fields)
        with self.cluster.data_client(tickets["w0"]["endpoint"]) as data:
            self.assertIsNone(self.outcome(data, read, {"ticket": good}))
            for ticket in ("", "nonsense", tampered, other, another_array, good + "x"):
                with self.subTest(ticket=ticket):
                    error = self.outcome(data, read, {"ticket": ticket})
                    # A ticket of another executor may be an old one, so its holder is told to get a
                    # new ticket.
                    self.assertEqual((error.code, error.reason),
                                     ("UNAVAILABLE", "TICKET_STALE") if ticket == other
                                     else ("PERMISSION_DENIED", "TICKET_REFUSED"))
            # A ticket for reading does not allow writing.
            error = self.outcome(data, write, [{"ticket": good, "offset": "0", "data": ""}])
            self.assertEqual(error.code, "PERMISSION_DENIED")

    # ---- Links. ----
    def test_plain_text_to_a_tls_port_ends_in_time_with_an_error(self):
        with self.cluster.client("user", "team-t") as client:
            endpoint = self.tickets(client)["w0"]["endpoint"]
        for address in (self.cluster.address, endpoint):
            with self.subTest(address=address), json_client.Client(address) as client:
                watch = stopwatch.Stopwatch()
                with self.assertRaises(json_client.Error) as raised:
                    client.call_raw("grpc.health.v1.Health/Check", [b""], timeout=10)
                self.assertEqual(raised.exception.code, "UNAVAILABLE")
                self.assertLess(watch.unhindered(), 15)

    def test_a_server_of_another_authority_is_not_believed(self):
        with tempfile.TemporaryDirectory() as folder:
            secure_cluster.run_tessera("init", f"--dir={folder}")
            with open(f"{folder}/ca/ca.pem", "rb") as file:
                other = grpc.ssl_channel_credentials(file.read())
        with self.cluster.client_with(self.cluster.token, credentials=other) as client:
            with self.assertRaises(json_client.Error) as raised:
                client.call_raw(API + "ClusterService/GetCapabilities", [b""], timeout=10)
        self.assertEqual(raised.exception.code, "UNAVAILABLE")

    def test_a_worker_calls_with_its_certificate_and_under_its_name(self):
        folder = self.cluster.state / "w0"
        own = self.cluster.credentials(private_key=(folder / "key.pem").read_bytes(),
                                       certificate_chain=(folder / "cert.pem").read_bytes())
        with self.cluster.client_with(None, credentials=own) as client:
            self.assertIsNone(self.empty_call(client, API + "WorkerService/Connect"))
            body = client.encode(API + "Registration", {
                "worker": "w9", "host": "h", "opset": 1, "executors": [
                    {"index": 0, "incarnation": "1", "deviceKind": "cpu", "numDevices": 1,
                     "dataEndpoint": "127.0.0.1:1", "peerEndpoint": "127.0.0.1:1"}]})
            error = self.outcome(client, API + "WorkerService/Connect", [
                {"kind": "MESSAGE_KIND_REGISTRATION", "body": base64.b64encode(body).decode()}])
            self.assertEqual((error.code, error.reason), ("PERMISSION_DENIED", "ROLE_MISSING"))
            # The certificate allows nothing else.
            error = self.outcome(client, API + "ArrayService/ListArrays")
            self.assertEqual(error.reason, "ROLE_MISSING")

    def test_refusals_are_logged_without_the_token(self):
        secret = "tsr_" + "0" * 16 + "_" + "1" * 64

        def logged():
            # Beyond a number of refusals per second, the log only counts them, and the other tests cause many.
            with self.cluster.client_with(secret) as client:
                self.outcome(client, API + "ClusterService/ListDevices")
            return "TOKEN_UNKNOWN" in self.cluster.logs()
        daemons.eventually(logged, what="an audit line")
        logs = self.cluster.logs()
        self.assertNotIn(secret, logs)
        self.assertNotIn(self.cluster.token, logs)


class ShortTicketsTest(unittest.TestCase):
    def test_an_expired_ticket_is_refused(self):
        with secure_cluster.SecureCluster(
                workers=1, coordinator_flags=["--ticket-ms=1500"]) as cluster:
            with cluster.client("user") as client:
                array = client.call(API + "ArrayService/CreateArray", {"spec": SPEC})
            ticket = array["tickets"][0]

            def refusal():
                with cluster.data_client(ticket["endpoint"]) as data:
                    try:
                        data.call(API + "DataService/Write", [
                            {"ticket": ticket["ticket"], "offset": "0", "data": ""}])
                    except json_client.Error as error:
                        return error if error.reason == "TICKET_STALE" else None
                return None
            error = daemons.eventually(refusal, what="the ticket is refused")
            self.assertIn("expired", error.message)


def crc32c(data):
    """Returns the CRC-32C (Castagnoli). It works bit by bit and is meant for small data."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


if __name__ == "__main__":
    unittest.main(verbosity=2)
