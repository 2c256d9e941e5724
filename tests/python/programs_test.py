"""Tests programs, executables and operations with real daemons."""

import numpy as np
import pytest
import stopwatch
import tessera

P = tessera.P
PRODUCT = """mesh (x=2)
func main(%a: f32[4] P('x'), %b: f32[4]) -> (f32[4], f32[]) {
  %c = multiply(%a, %b)
  %s = reduce_sum(%c) {dimensions=[0]}
  return %c, %s
}
"""
# An executable keeps the name of its first compilation. This program is always compiled as
# "product".
NAMED = PRODUCT.replace("multiply(%a, %b)", "multiply(%b, %a)")
A, B = np.array([1, 2, 3, 4], np.float32), np.array([10, 20, 30, 40], np.float32)


def program_proto():
    """Returns the program x + x on f32[4] as a message."""
    program = tessera._proto.message("Program")(opset=1)
    function = program.functions.add(name="main", check_vma=True, results=[1])
    function.mesh.axes.add(name="x", size=2)
    function.params.add(dtype="f32", shape=[4])
    function.ops.add(name="add", operands=[0, 0], num_results=1)
    return program


def waiting(client):
    """Starts a run that waits for an upload that never comes. Returns the run and the missing
    array."""
    exe = client.compile(NAMED, name="product")
    request = tessera._proto.message("CreateArrayRequest")(
        spec=exe.inputs[0].to_proto(), session=client.session)
    made = client._call("ArrayService/CreateArray", request, None)
    missing = client.array(made.array)
    return exe.submit(missing, B), missing


def test_a_text_runs(client):
    product, total = client.run(PRODUCT, A, B)
    np.testing.assert_array_equal(product, A * B)
    assert product.dtype == np.float32 and total.shape == () and total == 300


def test_lists_and_numbers_take_the_dtype_of_the_program(client):
    product, _ = client.run(PRODUCT, [1, 2, 3, 4], (1, 1, 1, 1))
    np.testing.assert_array_equal(product, A)
    product, _ = client.run(PRODUCT, list(A), A.tolist())
    np.testing.assert_array_equal(product, A * A)


def test_an_executable_runs_many_times(client):
    exe = client.compile(NAMED, name="product")
    assert [s.type for s in exe.inputs] == ["f32[4]", "f32[4]"]
    assert [s.type for s in exe.outputs] == ["f32[4]", "f32[]"]
    assert "f32[4]" in repr(exe) and len(exe.devices) == 2
    array = client.put(A, tessera.Mesh({"x": 2}, exe.devices), P("x"))
    for _ in range(3):
        array, _ = exe(array, B)  # the arguments are results of runs that have not ended yet
    np.testing.assert_array_equal(client.get(array), A * B**3)
    assert array.operation.status().name == "product"


def test_arguments_may_lie_otherwise(client):
    array = client.put(A, tessera.Mesh({"q": 4}), P("q"))
    product, _ = client.compile(PRODUCT)(array, B)
    np.testing.assert_array_equal(client.get(product), A * B)


@pytest.mark.parametrize("form", [lambda p: p, lambda p: p.SerializeToString()])
def test_a_program_as_a_message(client, form):
    (out,) = client.compile(form(program_proto()))(A)
    np.testing.assert_array_equal(client.get(out), 2 * A)


def test_the_mesh_says_which_devices(client):
    exe = client.compile(PRODUCT, mesh=tessera.Mesh({"x": 2}, [3, 0]))
    assert exe.devices == (3, 0)
    product, _ = exe(A, B)
    assert product.mesh.devices == (3, 0)
    np.testing.assert_array_equal(client.get(product), A * B)


def test_a_mesh_by_its_name(client):
    client.call("ClusterService/CreateMesh", {
        "mesh": {"name": "pair", "mesh": {"axes": [{"name": "x", "size": "2"}]},
                 "devices": ["2", "1"]}})
    try:
        assert client.compile(PRODUCT, mesh="pair").devices == (2, 1)
    finally:
        client.call("ClusterService/DeleteMesh", {"name": "pair"})
    with pytest.raises(tessera.NotFoundError) as caught:
        client.compile(PRODUCT, mesh="pair")
    assert caught.value.reason == "MESH_NOT_FOUND"


def test_explain_for_absent_devices(client):
    large = PRODUCT.replace("x=2", "x=512").replace("[4]", "[1024]")
    with pytest.raises(tessera.FailedPreconditionError, match="device_memory_bytes"):
        client.explain(large)
    plan = client.explain(large, device_memory_bytes=80 << 30)
    assert "for absent devices" in plan.text
    assert plan.json["memory"]["absent_device_bytes"] == 80 << 30
    assert plan.devices == () and plan.pending_reasons == ()
    with pytest.raises(tessera.ResourceExhaustedError) as full:
        client.explain(large, device_memory_bytes=plan.memory_bound_bytes - 1)
    assert full.value.reason == "OUT_OF_MEMORY"
    with pytest.raises(tessera.InvalidArgumentError, match="absent"):
        client.explain(large, mesh=tessera.Mesh({"x": 1}, [0]), device_memory_bytes=1)


def test_explain(client):
    plan = client.explain(PRODUCT)
    assert "multiply" in str(plan) and plan.json is not None
    assert "  %a, %b (2): f32[4] P('x') 8 B a device\n" in str(plan)
    assert plan.memory_bound_bytes > 0 and len(plan.devices) == 2
    exe = client.compile(PRODUCT, mesh=tessera.Mesh({"x": 2}, [1, 2]))
    assert exe.explain().devices == (1, 2)
    assert exe.explain().pending_reasons == ()
    assert exe.memory_bound_bytes > 0


def test_donated_arguments_are_gone(client):
    exe = client.compile(PRODUCT)
    array = client.put(A, tessera.Mesh({"x": 2}, exe.devices), P("x"))
    product, _ = exe(array, B, donate=[0])
    np.testing.assert_array_equal(client.get(product), A * B)
    with pytest.raises(tessera.FailedPreconditionError) as caught:
        client.get(array)
    assert caught.value.reason == "ARRAY_DELETED"


@pytest.mark.parametrize("text, code, reason, part", [
    ("func ???", "INVALID_ARGUMENT", "MALFORMED_PROGRAM", "line 1, column 6"),
    (PRODUCT.replace("multiply", "frobnicate"), "UNIMPLEMENTED", "UNKNOWN_OP", "frobnicate"),
    (PRODUCT.replace("P('x')", "P('q')"), "INVALID_ARGUMENT", "UNKNOWN_AXIS", "'q'"),
    (PRODUCT.replace("%b: f32[4]", "%b: f32[6]"), "INVALID_ARGUMENT", "TYPE_ERROR", "mul: "),
    (PRODUCT.replace("x=2", "x=64").replace("f32[4]", "f32[64]"), "FAILED_PRECONDITION",
     "NOT_ENOUGH_DEVICES", "64"),
])
def test_programs_that_are_refused(client, text, code, reason, part):
    for call in (client.compile, client.explain):
        with pytest.raises(tessera.Error) as caught:
            call(text)
        assert (caught.value.code, caught.value.reason) == (code, reason)
        assert part in caught.value.message


def test_arguments_that_do_not_fit(client):
    exe = client.compile(PRODUCT)
    with pytest.raises(TypeError, match="takes 2 arguments, 1 given"):
        exe(A)
    with pytest.raises(TypeError, match=r"argument 1 is f32\[4\] in the program, f64\[4\] given"):
        exe(A, B.astype(np.float64))
    with pytest.raises(TypeError, match=r"argument 0 is f32\[4\] in the program, f32\[3\] given"):
        exe(A[:3], B)
    for donate in ([2], [0, -1]):
        with pytest.raises(ValueError, match="2 arguments; numbers from 0 to 1 are expected"):
            exe(A, B, donate=donate)
    wrong = client.put(A.astype(np.int32), tessera.Mesh({"x": 2}))
    with pytest.raises(tessera.InvalidArgumentError) as caught:
        exe(wrong, B)
    assert caught.value.reason == "TYPE_ERROR"


def test_a_deleted_argument(client):
    array = client.put(A, tessera.Mesh({"x": 2}), P("x"))
    array.delete()
    with pytest.raises(tessera.FailedPreconditionError) as caught:
        client.compile(PRODUCT)(array, B)
    assert caught.value.reason == "ARRAY_DELETED"


# ---- Operations. ----

def test_an_operation_that_ends(client):
    run = client.compile(NAMED, name="product").submit(A, B)
    status = run.wait()
    assert (status.state, status.name, status.kind) == ("DONE", "product", "execute")
    assert status.ended and status.error is None and status.session == client.session
    assert status.outputs == tuple(a.id for a in run.outputs)
    assert status.create_time <= status.start_time <= status.end_time
    assert run.pending() == []
    assert [s.state for s in run.watch()] == ["DONE"]
    run.cancel()
    assert run.status().state == "DONE"


def test_an_operation_that_waits_says_why(client):
    run, missing = waiting(client)
    status = run.status()
    assert status.state == "PENDING" and str(missing.id) in status.pending_reason
    reasons = run.pending()
    assert reasons[0].code == "WAITING_FOR_UPLOAD"
    assert f"arrays/{missing.id}" in reasons[0].resources
    assert [o.id for o in client.operations(live=True)] == [run.id]
    watch = stopwatch.Stopwatch()
    with pytest.raises(TimeoutError) as caught:
        run.wait(timeout=0.2)
    assert watch.elapsed() >= 0.2 and watch.unhindered() < 5
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert str(missing.id) in caught.value.message
    run.cancel()


def test_waiting_for_a_result_has_a_bound(client):
    run, _ = waiting(client)
    with pytest.raises(tessera.DeadlineExceededError):
        client.get(run.outputs[0], timeout=0.2)
    run.cancel()


def test_cancelled_operations_and_what_hangs_on_them(client):
    run, _ = waiting(client)
    later, _ = client.compile(PRODUCT)(run.outputs[0], B)
    watch = run.watch(timeout=20)
    assert next(watch).state == "PENDING"
    run.cancel()
    last = list(watch)[-1]
    assert last.state == "CANCELLED" and last.error.reason == "CANCELLED"
    with pytest.raises(tessera.CancelledError):
        run.wait()
    for array in (run.outputs[0], later):
        with pytest.raises(tessera.CancelledError) as caught:
            client.get(array)
        assert caught.value.reason == "CANCELLED"
    run.cancel()


def test_a_run_beyond_its_deadline(client):
    exe = client.compile(PRODUCT)
    request = tessera._proto.message("CreateArrayRequest")(
        spec=exe.inputs[0].to_proto(), session=client.session)
    missing = client.array(client._call("ArrayService/CreateArray", request, None).array)
    run = exe.submit(missing, B, deadline=0.1)
    with pytest.raises(tessera.DeadlineExceededError) as caught:
        run.wait(timeout=20)
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert run.status().state == "FAILED"


def test_an_operation_by_its_id(client):
    run = client.compile(PRODUCT).submit(A, B)
    assert client.operation(run.id).wait().id == run.id
    with pytest.raises(tessera.NotFoundError) as caught:
        client.operation(987654).status()
    assert caught.value.reason == "OPERATION_NOT_FOUND"


def test_watching_has_a_bound(client):
    run, _ = waiting(client)
    with pytest.raises(tessera.DeadlineExceededError):
        list(run.watch(timeout=0.3))
    run.cancel()
