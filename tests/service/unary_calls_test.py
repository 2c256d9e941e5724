"""Tests that unary calls in JSON are enough to drive the whole system, as grpcurl does.

The tests open a session, fill it, use it and end it. Meanwhile they call every method of the
coordinator's services that clients may call. The last test compares these calls with the methods
that reflection lists.
"""
import base64
import hashlib
import pathlib

import daemons
import json_client
import pytest
from google.protobuf import json_format

ARTIFACTS = pathlib.Path(__file__).resolve().parent.parent / "fuzz/stablehlo"
TEXT = """mesh (x=2)
func main(%a: f32[4] P('x')) -> (f32[4] P('x')) {
  %b = add(%a, %a)
  return %b
}
"""
# The services for workers, which users do not call.
FOR_WORKERS = ("tessera.v1.WorkerService", "tessera.v1.EnrollmentService")


class Caller:
    """Makes calls by short method names, and remembers which methods were called."""

    def __init__(self, address):
        self.client = json_client.Client(address)
        self.called = set()

    def __call__(self, method, *requests, **request):
        """Calls a method. `requests` are the messages of a stream; `request` is a single
        message."""
        self.called.add(f"tessera.v1.{method}")
        return self.client.call(f"tessera.v1.{method}", requests or request, timeout=60)

    def refuse(self, code, reason, method, **request):
        with pytest.raises(json_client.Error) as caught:
            self(method, **request)
        assert (caught.value.code, caught.value.reason) == (code, reason), caught.value
        return caught.value


@pytest.fixture(scope="module")
def call(tmp_path_factory):
    files = tmp_path_factory.mktemp("files")
    with daemons.Cluster(worker_flags=[f"--files-dir={files}"]) as cluster:
        caller = Caller(cluster.address)
        caller.files = pathlib.Path(files)
        yield caller
        caller.client.channel.close()


@pytest.fixture(scope="module")
def session(call):
    return call("SessionService/CreateSession", displayName="unary", lease="600s")["id"]


@pytest.fixture(scope="module")
def executable(call):
    return call("ProgramService/CompileProgram", text=TEXT, name="double")


def write(call, spec, values, session, **more):
    return call("ArrayService/WriteArray", spec=spec, json=values, session=session, **more)["array"]


def read(call, array):
    return call("ArrayService/ReadArray", array=array, json=True)


def test_a_program_from_end_to_end(call):
    session = call("SessionService/CreateSession", displayName="end to end")["id"]
    compiled = call("ProgramService/CompileProgram", text=TEXT, name="double")
    array = write(call, compiled["in"][0], [1, 2, 3, 4], session)
    run = call("ProgramService/ExecuteProgram", executable=compiled["executable"], args=[array],
               session=session)
    ended = call("OperationService/WaitOperation", operation=run["operation"], timeout="20s")
    assert ended["state"] == "OPERATION_STATE_DONE"
    assert read(call, run["outputs"][0]) == {"type": "f32[4]", "json": [2, 4, 6, 8]}
    listed = call("ArrayService/ListArrays", session=session)["arrays"]
    assert {a["id"] for a in listed} == {array, run["outputs"][0]}
    call("SessionService/DeleteSession", session=session)
    call.refuse("NOT_FOUND", "SESSION_NOT_FOUND", "SessionService/GetSession", session=session)
    for gone in (array, run["outputs"][0]):
        with pytest.raises(json_client.Error):
            read(call, gone)


def test_executors_read_of_each_other_by_their_own_way():
    # This is the situation of containers, whose published ports are for clients: at the address
    # that this worker advertises to clients, executors reach nobody.
    flags = ["--data-listen=0.0.0.0:0", "--insecure", "--advertise-client=127.0.0.1:1",
             "--advertise-peer=127.0.0.1"]
    with daemons.Cluster(devices=1, worker_flags=flags) as cluster:
        call = Caller(cluster.address)
        session = call("SessionService/CreateSession", displayName="apart")["id"]
        spec = call("ProgramService/CompileProgram", text=TEXT, name="double")["in"][0]
        array = write(call, spec, [1, 2, 3, 4], session)
        placement = dict(spec["placement"], devices=spec["placement"]["devices"][::-1])
        moved = call("ArrayService/ReshardArray", array=array, placement=placement,
                     session=session)
        ended = call("OperationService/WaitOperation", operation=moved["operation"]["id"],
                     timeout="20s")
        assert ended["state"] == "OPERATION_STATE_DONE", ended
        assert read(call, moved["array"]["id"])["json"] == [1, 2, 3, 4]
        call.client.channel.close()


def test_sessions(call, session):
    found = call("SessionService/GetSession", session=session)
    assert found["displayName"] == "unary" and found["lease"] == "600s"
    later = call("SessionService/RenewSession", session=session)
    assert later["expireTime"] >= found["expireTime"]
    listed = call("SessionService/ListSessions")["sessions"]
    assert session in {s.get("id", "0") for s in listed}
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "SessionService/DeleteSession", session="0")
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "SessionService/CreateSession", lease="-1s")


def test_a_session_is_held_until_it_ends(call):
    session = call("SessionService/CreateSession", displayName="held")["id"]
    call.called.add("tessera.v1.SessionService/HoldSession")
    said = call.client.stream("tessera.v1.SessionService/HoldSession", [{"session": session}])
    assert next(said)["grace"] == "30s"
    call("SessionService/DeleteSession", session=session)
    with pytest.raises(json_client.Error) as caught:
        next(said)
    assert caught.value.reason == "SESSION_NOT_FOUND"


def test_an_array_moves_by_one_call(call, session, executable):
    array = write(call, executable["in"][0], [1, 2, 3, 4], session)
    whole = {"devices": ["3"]}
    made = call("ArrayService/ReshardArray", array=array, placement=whole, session=session)
    assert made["operation"]["kind"] == "reshard"
    assert made["array"]["spec"]["placement"]["devices"] == ["3"]
    assert read(call, made["array"]["id"]) == {"type": "f32[4]", "json": [1, 2, 3, 4]}
    call.refuse("NOT_FOUND", "ARRAY_NOT_FOUND", "ArrayService/ReshardArray", array="987654",
                placement=whole)
    call.refuse("FAILED_PRECONDITION", "NOT_ENOUGH_DEVICES", "ArrayService/ReshardArray",
                array=array, placement={"devices": ["99"]})


def test_pages_make_up_the_list(call, session):
    arrays = [write(call, {"dtype": "s32", "shape": [1], "placement": {"devices": [0]}}, [i], session)
              for i in range(5)]
    seen, token = [], ""
    while True:
        page = call("ArrayService/ListArrays", session=session, pageSize=2, pageToken=token)
        assert len(page["arrays"]) <= 2
        seen += [a["id"] for a in page["arrays"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert set(arrays) <= set(seen) and seen == sorted(set(seen), key=int)
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "ArrayService/ListArrays", session=session,
                pageSize=-1)
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "ArrayService/ListArrays", session=session,
                pageToken="stolen")
    call("ArrayService/DeleteArrays", arrays=arrays)


def test_a_request_that_comes_again_happens_once(call, session, executable):
    spec = executable["in"][0]
    first = write(call, spec, [1, 2, 3, 4], session, requestId="again-1")
    assert write(call, spec, [1, 2, 3, 4], session, requestId="again-1") == first
    call.refuse("INVALID_ARGUMENT", "REQUEST_ID_REUSED", "ArrayService/WriteArray", spec=spec,
                json=[4, 3, 2, 1], session=session, requestId="again-1")
    run = dict(executable=executable["executable"], args=[first], session=session, requestId="again-2")
    assert (call("ProgramService/ExecuteProgram", **run)
            == call("ProgramService/ExecuteProgram", **run))


def test_checks_alone_make_nothing(call, session, executable):
    before = call("SessionService/GetSession", session=session)
    spec = executable["in"][0]
    checked = call("ArrayService/CreateArray", spec=spec, session=session, validateOnly=True)
    assert "array" not in checked and "tickets" not in checked
    call.refuse("INVALID_ARGUMENT", "INDIVISIBLE", "ArrayService/CreateArray",
                spec={**spec, "shape": [5]}, session=session, validateOnly=True)
    planned = call("ProgramService/CompileProgram", text=TEXT, validateOnly=True)
    assert "executable" not in planned and planned["in"][0]["dtype"] == "f32"
    typed = call("ProgramService/RunProgram", text=TEXT, inputs=[[1, 2, 3, 4]], validateOnly=True)
    assert typed == {"types": ["f32[4]"]}
    after = call("SessionService/GetSession", session=session)
    assert before.get("arrays") == after.get("arrays")
    # An operation of an earlier test may have ended meanwhile.
    assert int(after.get("operations", 0)) <= int(before.get("operations", 0))


def test_programs_by_their_hash(call):
    message = call.client._class(call.client.find("tessera.v1.Program", "MessageType"))()
    json_format.ParseDict({"opset": 1, "functions": [{
        "name": "main", "mesh": {"axes": [{"name": "x", "size": "1"}]}, "checkVma": True,
        "params": [{"dtype": "f32", "shape": ["2"]}], "results": [1],
        "ops": [{"name": "add", "operands": [0, 0], "numResults": 1}]}]}, message)
    data = message.SerializeToString()
    sha = hashlib.sha256(data).hexdigest()
    upload = {"sha256": sha, "sizeBytes": len(data)}
    for at in range(0, len(data), 20):
        part = data[at:at + 20]
        asked = call("ProgramService/UploadProgram", **upload)
        assert int(asked.get("committedBytes", 0)) == at and not asked.get("complete")
        answer = call("ProgramService/UploadProgram", **upload, offset=at,
                      data=base64.b64encode(part).decode(), crc32c=json_client.crc32c(part))
    assert answer["complete"] and answer["name"] == f"tenants/default/programs/{sha}"
    found = call("ProgramService/GetProgram", sha256=sha, withText=True)
    assert found["params"] == ["f32[2]"] and found["ops"] == {"add": "1"} and "add(" in found["text"]
    assert sha in {p["sha256"] for p in call("ProgramService/ListPrograms")["programs"]}
    compiled = call("ProgramService/CompileProgram", programSha256=sha)
    assert compiled["out"][0]["shape"] == ["2"]
    assert "f32[2]" in call("ProgramService/ExplainProgram", programSha256=sha)["text"]
    call("ProgramService/DeleteProgram", sha256=sha)
    call.refuse("NOT_FOUND", "PROGRAM_NOT_FOUND", "ProgramService/GetProgram", sha256=sha)


def test_artifacts_of_stablehlo(call):
    """The artifact computes tanh(x @ w + b) and was written by jax.export."""
    data = (ARTIFACTS / "affine.mlirbc").read_bytes()
    inline, sha = base64.b64encode(data).decode(), hashlib.sha256(data).hexdigest()
    described = call("ProgramService/InspectProgram", stablehlo=inline)
    assert described["name"] == "jit_affine" and described["stablehloVersion"] == "1.15.0"
    assert [(p["name"], p["type"]) for p in described["params"]] == [
        ("x", "f32[4,3]"), ("w", "f32[3,2]"), ("b", "f32[2]")]
    inputs = [[[0] * 3] * 4, [[1] * 2] * 3, [0, 1000]]
    assert call("ProgramService/RunProgram", stablehlo=inline, inputs=inputs) == {
        "outputs": [[[0, 1]] * 4], "types": ["f32[4,2]"]}
    call("ProgramService/UploadProgram", sha256=sha, sizeBytes=len(data), data=inline,
         crc32c=json_client.crc32c(data), format="PROGRAM_FORMAT_STABLEHLO")
    assert call("ProgramService/GetProgram", sha256=sha)["format"] == "PROGRAM_FORMAT_STABLEHLO"
    assert call("ProgramService/InspectProgram", programSha256=sha) == described
    run = call("ProgramService/RunProgram", programSha256=sha, inputs=inputs)
    assert run["outputs"] == [[[0, 1]] * 4]
    call("ProgramService/DeleteProgram", sha256=sha)
    call.refuse("INVALID_ARGUMENT", "MALFORMED_PROGRAM", "ProgramService/CompileProgram",
                stablehlo=base64.b64encode(data[:99]).decode())


def test_meshes_by_their_name(call):
    mesh = {"name": "pair", "mesh": {"axes": [{"name": "x", "size": "2"}]}, "devices": ["3", "1"]}
    assert call("ClusterService/CreateMesh", mesh=mesh)["devices"] == ["3", "1"]
    assert call("ClusterService/GetMesh", name="pair")["devices"] == ["3", "1"]
    assert [m["name"] for m in call("ClusterService/ListMeshes")["meshes"]] == ["pair"]
    compiled = call("ProgramService/CompileProgram", text=TEXT, mesh="pair")
    assert compiled["in"][0]["placement"]["devices"] == ["3", "1"]
    call.refuse("ALREADY_EXISTS", "ALREADY_EXISTS", "ClusterService/CreateMesh",
                mesh={**mesh, "devices": ["0", "1"]})
    call("ClusterService/DeleteMesh", name="pair")
    call.refuse("NOT_FOUND", "MESH_NOT_FOUND", "ClusterService/GetMesh", name="pair")


def test_the_cluster_describes_itself(call):
    devices = call("ClusterService/ListDevices")["devices"]
    assert [int(d.get("id", 0)) for d in devices] == [0, 1, 2, 3]
    workers = call("ClusterService/ListWorkers")["workers"]
    assert [w["name"] for w in workers] == ["w0", "w1"]
    worker = call("ClusterService/GetWorker", worker="w0")
    assert worker["state"] == "WORKER_STATE_READY" and len(worker["devices"]) == 2
    call.refuse("NOT_FOUND", "WORKER_NOT_FOUND", "ClusterService/GetWorker", worker="w9")
    hosts = call("ClusterService/GetTopology")["hosts"]
    placed = [d for h in hosts for e in h["executors"] for d in e["devices"]]
    assert sorted(map(int, placed)) == [0, 1, 2, 3]
    limits = call("ClusterService/GetCapabilities")
    assert int(limits["relayBytesMax"]) > 0 and "channelz" in limits["features"]
    call("ClusterService/ListTopPrograms")


def test_tickets(call, session, executable):
    made = call("ArrayService/CreateArray", spec=executable["in"][0], session=session)
    array = made["array"]
    assert call("ArrayService/GetArray", array=array)["state"] == "PENDING"
    again = call("ArrayService/CreateWriteTickets", array=array)["tickets"]
    assert len(again) == len(made["tickets"]) == 2
    for ticket in again:
        json_client.write_shard(ticket, bytes(8))
    tickets = call("ArrayService/CreateReadTickets", array=array, timeout="20s")["tickets"]
    assert [json_client.read_shard(t) for t in tickets] == [bytes(8)] * 2
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "ArrayService/CreateWriteTickets", array=array)


def test_bytes_are_relayed_as_well_as_values(call, session, executable):
    data = base64.b64encode(bytes(range(16))).decode()
    array = call("ArrayService/WriteArray", spec=executable["in"][0], data=data,
                 session=session)["array"]
    answer = call("ArrayService/ReadArray", array=array)
    assert answer["literal"] == {"dtype": "f32", "shape": ["4"], "data": data}
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "ArrayService/WriteArray",
                spec=executable["in"][0], data=data[:8], session=session)


def test_operations(call, session, executable):
    missing = call("ArrayService/CreateArray", spec=executable["in"][0], session=session)["array"]
    run = call("ProgramService/ExecuteProgram", executable=executable["executable"],
               args=[missing], session=session)
    operation = run["operation"]
    assert call("OperationService/GetOperation", operation=operation)["state"] == (
        "OPERATION_STATE_PENDING")
    why = call("OperationService/ExplainPending", operation=operation)
    assert why["reasons"][0]["code"] == "WAITING_FOR_UPLOAD"
    assert why["reasons"][0]["resources"] == [f"arrays/{missing}"]
    live = call("OperationService/ListOperations", session=session, liveOnly=True)["operations"]
    assert [o["id"] for o in live] == [operation]
    waited = call("OperationService/WaitOperation", operation=operation, timeout="0.05s")
    assert waited["state"] == "OPERATION_STATE_PENDING"
    call("OperationService/CancelOperation", operation=operation)
    ended = call("OperationService/WaitOperation", operation=operation, timeout="20s")
    assert ended["state"] == "OPERATION_STATE_CANCELLED"
    watched = call("OperationService/WatchOperation", operation=operation)
    assert [o["state"] for o in watched] == ["OPERATION_STATE_CANCELLED"]
    assert "reasons" not in call("OperationService/ExplainPending", operation=operation)
    call.refuse("NOT_FOUND", "OPERATION_NOT_FOUND", "OperationService/ExplainPending",
                operation="987654")


def test_a_run_that_is_watched_brings_its_results(call, session, executable):
    array = write(call, executable["in"][0], [1, 2, 3, 4], session)
    events = call("ProgramService/ExecuteAndWatch", executable=executable["executable"],
                  args=[array], session=session, inlineResultsBytesMax=100)
    assert list(events[0]) == ["accepted"]
    end = events[-1]["ended"]
    assert end["operation"]["state"] == "OPERATION_STATE_DONE"
    assert end["results"][0]["value"]["shape"] == ["4"]


def test_runs_over_one_stream(call, session, executable):
    array = write(call, executable["in"][0], [1, 2, 3, 4], session)
    run = {"executable": executable["executable"], "args": [array], "session": session,
           "inlineResultsBytesMax": 100}
    events = call("ProgramService/ExecutePrograms", {"number": 1, "run": run},
                  {"number": 2, "run": {"executable": "999"}}, {"number": 3, "run": run})
    said = [(e["number"], next(k for k in e if k != "number")) for e in events]
    assert [s for s in said if s[1] != "ended"] == [
        ("1", "accepted"), ("2", "refused"), ("3", "accepted")]
    ends = [e["ended"] for e in events if "ended" in e]
    assert [e["operation"]["state"] for e in ends] == ["OPERATION_STATE_DONE"] * 2
    assert ends[0]["results"][0]["value"]["shape"] == ["4"]


@pytest.mark.parametrize("path, name", [("unary/a.safetensors", "weights"), ("unary_a.npy", "")])
def test_files(call, session, executable, path, name):
    spec = executable["in"][0]
    array = write(call, spec, [5, 6, 7, 8], session)
    saved = call("ArrayService/SaveArrays", arrays=[{"name": name, "array": array}], path=path)
    ended = call("OperationService/WaitOperation", operation=saved["id"], timeout="20s")
    assert ended["state"] == "OPERATION_STATE_DONE", ended
    # Each tenant has a folder of its own.
    assert (call.files / "default" / path).stat().st_size > 16
    found = call("ArrayService/GetFile", path=path)
    assert found == {"path": path, "arrays": [
        {**({"name": name} if name else {}), "dtype": "f32", "shape": ["4"]}]}
    loaded = call("ArrayService/LoadArrays", path=path, session=session,
                  arrays=[{"name": name, "placement": spec["placement"]}])
    assert read(call, loaded["arrays"][0]["id"]) == {"type": "f32[4]", "json": [5, 6, 7, 8]}
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "ArrayService/SaveArrays", path="../b.npy",
                arrays=[{"name": name, "array": array}])
    call.refuse("NOT_FOUND", "FILE_NOT_FOUND", "ArrayService/GetFile", path="unary/none.npy")
    call.refuse("NOT_FOUND", "FILE_NOT_FOUND", "ArrayService/LoadArrays", path="unary/none.npy",
                arrays=[{"name": "", "placement": spec["placement"]}], session=session)


def test_workers_out_of_service(call, session, executable):
    cordoned = call("AdminService/CordonWorker", worker="w1", reason="new memory")
    assert cordoned["state"] == "WORKER_STATE_CORDONED" and "new memory" in cordoned["reason"]
    try:
        devices = call("ClusterService/ListDevices")["devices"]
        assert {d["worker"]: d.get("cordoned", False) for d in devices} == {"w0": False, "w1": True}
        chosen = call("ProgramService/CompileProgram", text=TEXT + "\n", name="elsewhere")
        assert set(chosen["in"][0]["placement"]["devices"]) <= {
            str(d.get("id", 0)) for d in devices if d["worker"] == "w0"}
        call.refuse("NOT_FOUND", "WORKER_NOT_FOUND", "AdminService/CordonWorker", worker="w9")
        drained = call("AdminService/DrainWorker", worker="w1", timeout="20s")
        assert drained.get("operations", "0") == "0"
    finally:
        back = call("AdminService/UncordonWorker", worker="w1")
    assert back["state"] == "WORKER_STATE_READY" and "reason" not in back
    # Only a worker that is gone can be deleted.
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "AdminService/DeleteWorker", worker="w1")
    call.refuse("NOT_FOUND", "WORKER_NOT_FOUND", "AdminService/DeleteWorker", worker="w9")


def test_log_levels(call):
    set_levels = call("AdminService/SetLogLevel", all=True, level="debug", time="60s")["processes"]
    assert [p["process"] for p in set_levels] == ["coordinator", "w0", "w0/0", "w1", "w1/0"]
    assert {p["logLevel"] for p in set_levels} == {"vlog"}
    call("AdminService/SetLogLevel", all=True, level="info")
    (own,) = call("AdminService/GetDiagnostics", timeout="2s")["processes"]
    assert own == {"process": "coordinator", "logLevel": "info"}
    call.refuse("NOT_FOUND", "WORKER_NOT_FOUND", "AdminService/GetDiagnostics", worker="w9")
    call.refuse("INVALID_ARGUMENT", "VALUE_ERROR", "AdminService/SetLogLevel", level="loud")


def test_tokens_of_a_server_without_them(call):
    for method, request in (("CreateToken", {"name": "ada", "role": "user"}), ("ListTokens", {}),
                            ("RevokeToken", {"name": "ada"})):
        call.refuse("FAILED_PRECONDITION", "TOKENS_DISABLED", f"AdminService/{method}", **request)


def test_every_method_was_called(call):
    services = [s for s in call.client.services()
                if s.startswith("tessera.v1.") and s not in FOR_WORKERS]
    assert len(services) == 6
    methods = {m for s in services for m in call.client.methods(s)}
    assert methods - call.called == set()
