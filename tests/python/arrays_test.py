"""Tests with real daemons that arrays are put, read, described and freed correctly."""
import gc
import importlib.util

import daemons
import numpy as np
import pytest
import tessera
from tessera import _dtypes

P = tessera.P
MESH = tessera.Mesh({"x": 2, "y": 2})
HAS_ML_DTYPES = importlib.util.find_spec("ml_dtypes") is not None


def sample(name, shape):
    """Returns an array of this dtype with random bits."""
    width = _dtypes.byte_width(name)
    count = int(np.prod(shape))
    bits = np.random.default_rng(count + width).integers(0, 256, count * width, np.uint8)
    if name == "bool":
        bits &= 1
    bits &= (1 << _dtypes._FEW_BITS.get(name, 8)) - 1
    return bits.view(_dtypes.to_numpy(name)).reshape(shape)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", _dtypes.names())
def test_every_dtype_comes_back_bit_for_bit(client, name):
    if name in _dtypes._ML_DTYPES and not HAS_ML_DTYPES:
        pytest.skip("ml_dtypes is not installed")
    value = sample(name, (4, 6))
    array = client.put(value, MESH, P("x", "y"))
    assert same_bits(client.get(array), value)
    assert array.dtype == value.dtype and array.shape == value.shape
    assert array.nbytes == value.nbytes and array.sharding == P("x", "y")


@pytest.mark.parametrize("spec", [
    P(), P("x"), P("y"), P(None, "x"), P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x")),
    P(None, ("x", "y")), P("x", None, "y"), P(None, None, ("y", "x"))])
def test_every_placement_comes_back(client, spec):
    value = np.arange(8 * 4 * 4, dtype=np.float32).reshape(8, 4, 4)
    array = client.put(value, MESH, spec)
    np.testing.assert_array_equal(client.get(array), value)
    described = client.call("ArrayService/GetArray", {"array": str(array.id)})
    assert described["spec"]["shape"] == ["8", "4", "4"]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (4, 0, 2), (1, 1, 1, 1, 1)])
def test_shapes_at_the_edge(client, shape):
    value = np.ones(shape, np.float64)
    assert same_bits(client.get(client.put(value, MESH)), value)


def test_memory_order_does_not_matter(client):
    value = np.arange(64, dtype=np.int32).reshape(8, 8)
    for view in (value.T, value[::-1], value[::2, ::2], np.asfortranarray(value),
                 value.astype(">i4")):
        array = client.put(view, MESH, P("x", "y"))
        np.testing.assert_array_equal(client.get(array), view)


def test_an_array_of_many_chunks(client):
    value = np.random.default_rng(1).integers(0, 1 << 62, (1 << 20) + 6, np.int64)[:, None]
    array = client.put(value, MESH, P("x"))  # each shard has more than 4 MiB
    np.testing.assert_array_equal(client.get(array), value)


def test_devices_in_any_order(client):
    value = np.arange(4, dtype=np.float32)
    array = client.put(value, tessera.Mesh({"x": 4}, [3, 1, 0, 2]), P("x"))
    np.testing.assert_array_equal(client.get(array), value)
    assert array.mesh.devices == (3, 1, 0, 2)


def test_bits_of_what_numpy_has_no_dtype_for(client):
    # The values 0x3F80 and 0xC000 are the upper halves of 1.0f and -2.0f, and so 1.0 and -2.0 in
    # bfloat16.
    program = """mesh (x=1)
func main(%a: f32[2]) -> (bf16[2]) {
  %b = convert(%a) {dtype=bf16}
  return %b
}
"""
    (array,) = client.compile(program)(np.array([1, -2], np.float32))
    np.testing.assert_array_equal(client.get(array, bits=True), np.array([0x3F80, 0xC000], "u2"))
    if not HAS_ML_DTYPES:
        with pytest.raises(TypeError, match="pip install ml_dtypes"):
            client.get(array)


@pytest.mark.parametrize("name, numbers, codes", [
    ("s4", [-8, -1, 0, 7], [8, 15, 0, 7]), ("u4", [15, 8, 0, 7], [15, 8, 0, 7]),
    ("s2", [-2, -1, 0, 1], [2, 3, 0, 1]), ("u2", [3, 2, 0, 1], [3, 2, 0, 1]),
    ("f4e2m1fn", [-6, -0.5, 0, 6], [15, 9, 0, 7]), ("f8e3m4", [1, -1, 0, 2], [0x30, 0xB0, 0, 0x40]),
    ("f8e8m0fnu", [1, 2, 4, 0.5], [127, 128, 129, 126])])
def test_bits_of_elements_of_a_byte_or_less(client, name, numbers, codes):
    program = f"""mesh (x=2)
func main(%a: f32[4] P('x')) -> ({name}[4]) {{
  %b = convert(%a) {{dtype={name}}}
  return %b
}}
"""
    (array,) = client.compile(program)(np.array(numbers, np.float32))
    assert array.nbytes == 4
    np.testing.assert_array_equal(client.get(array, bits=True), np.array(codes, np.uint8))
    if HAS_ML_DTYPES:
        np.testing.assert_array_equal(client.get(array).astype(np.float32), numbers)


@pytest.mark.skipif(not HAS_ML_DTYPES, reason="ml_dtypes is not installed")
@pytest.mark.parametrize("name", ["s2", "s4", "f4e2m1fn"])
def test_elements_of_few_bits_are_numbers_to_a_program(client, name):
    program = f"""mesh (x=1)
func main(%a: {name}[3]) -> (f32[3]) {{
  %b = convert(%a) {{dtype=f32}}
  return %b
}}
"""
    numbers = np.array([-2, 1, 0], np.float32).astype(_dtypes.to_numpy(name))
    np.testing.assert_array_equal(client.run(program, numbers)[0], [-2, 1, 0])
    if name != "f4e2m1fn":
        with pytest.raises(TypeError, match="in the program, .* given"):
            client.run(program, [0.5, 1, 1])


def test_numpy_functions_take_arrays(client):
    array = client.put(np.arange(4, dtype=np.float32), MESH)
    assert np.sum(np.asarray(array)) == 6
    assert len(array) == 4 and array.ndim == 1
    with pytest.raises(TypeError):
        len(client.put(np.float32(1), MESH))


def test_what_is_there(client):
    devices = client.devices()
    assert [d.id for d in devices] == [0, 1, 2, 3]
    assert {d.worker for d in devices} == {"w0", "w1"}
    assert all(d.healthy and d.kind == "cpu" and not d.cordoned for d in devices)
    workers = client.workers()
    assert [w.name for w in workers] == ["w0", "w1"]
    assert all(w.state == "READY" for w in workers)
    assert sorted(d for w in workers for d in w.devices) == [0, 1, 2, 3]
    limits = client.capabilities()
    assert limits["max_program_bytes"] > 0 and isinstance(limits["features"], list)


def test_a_mesh_beyond_the_cluster(client):
    with pytest.raises(tessera.FailedPreconditionError) as caught:
        client.put(np.zeros(8, np.float32), tessera.Mesh({"x": 8}), P("x"))
    assert caught.value.reason == "NOT_ENOUGH_DEVICES"
    with pytest.raises(tessera.FailedPreconditionError) as caught:
        client.put(np.zeros(2, np.float32), tessera.Mesh({"x": 2}, [0, 99]), P("x"))
    assert caught.value.reason == "NOT_ENOUGH_DEVICES"


def test_a_full_device(client):
    with pytest.raises(tessera.ResourceExhaustedError) as caught:
        client.put(np.zeros(80 << 20, np.uint8), tessera.Mesh({"x": 1}))
    assert caught.value.reason == "OUT_OF_MEMORY"


def test_a_deleted_array(client):
    array = client.put(np.zeros(4, np.float32), MESH)
    # When put returns, the executors have the array. The coordinator learns of it from them.
    daemons.eventually(lambda: array.state() == "READY")
    array.delete()
    array.delete()
    with pytest.raises(tessera.FailedPreconditionError) as caught:
        client.get(array)
    assert caught.value.reason == "ARRAY_DELETED"


def test_an_array_that_is_not_there(client):
    with pytest.raises(tessera.NotFoundError) as caught:
        client.array(987654)
    assert caught.value.reason == "ARRAY_NOT_FOUND"
    assert isinstance(caught.value, LookupError)


def test_a_handle_by_its_id(client):
    value = np.arange(6, dtype=np.int32)
    made = client.put(value, MESH, P("x"))
    again = client.array(made.id)
    assert again.spec == made.spec
    np.testing.assert_array_equal(again.numpy(), value)
    # Deleting one of the two handles is enough to free the array.
    del again


def test_arrays_without_a_handle_are_freed(client):
    def held():
        found = client.call("SessionService/GetSession", {"session": str(client.session)})
        return int(found.get("arrays", 0))

    arrays = [client.put(np.zeros(2, np.float32), MESH) for _ in range(5)]
    assert held() == 5
    del arrays[1:]
    gc.collect()
    # The deletions are sent with the next run at the latest.
    client.run("mesh (x=1)\nfunc main(%a: f32[]) -> (f32[]) {\n  return %a\n}\n", 1.0)
    gc.collect()
    client._session.free_forgotten(10)
    daemons.eventually(lambda: held() == 1, 10)
    np.testing.assert_array_equal(client.get(arrays[0]), 0)


def test_an_array_on_devices_moves_there(client, monkeypatch):
    whole = np.arange(32, dtype=np.float32).reshape(8, 4)
    source = client.put(whole, MESH, P("x", "y"))
    with monkeypatch.context() as m:
        m.setattr(client._transfers, "write", None)  # no data may pass through the client
        m.setattr(client._transfers, "read", None)
        line = tessera.Mesh({"z": 4})
        moved = [client.put(source, line, P("z")), client.reshard(source, MESH, P(None, "x"))]
        moved.append(client.put(moved[0], MESH, P("y")))
    assert moved[0].sharding == P("z") and moved[2].sharding == P("y")
    for array in moved:
        np.testing.assert_array_equal(client.get(array), whole)
    client.delete(source)
    with pytest.raises(tessera.FailedPreconditionError) as caught:
        client.put(source, line, P("z"))
    assert caught.value.reason == "ARRAY_DELETED"


def test_files_hold_arrays(client):
    whole = np.arange(32, dtype=np.float32).reshape(8, 4)
    arrays = {"w": client.put(whole, MESH, P("x", "y")), "b": client.put(whole[0], MESH, P())}
    saved = client.save("python/model.safetensors", arrays)
    assert saved.wait().kind == "save"
    loaded = client.load("python/model.safetensors", {
        "b": (tessera.Mesh({"z": 4}), P("z")), "w": (tessera.Mesh({"z": 4}), P("z"))})
    assert loaded["w"].sharding == P("z") and loaded["b"].shape == (4,)
    np.testing.assert_array_equal(client.get(loaded["w"]), whole)
    np.testing.assert_array_equal(client.get(loaded["b"]), whole[0])
    assert client.saved_arrays("python/model.safetensors") == {"w": ("f32", (8, 4)), "b": ("f32", (4,))}
    client.save("python/one.npy", arrays["w"])
    (one,) = client.load("python/one.npy", {"": (MESH, P("y"))}).values()
    np.testing.assert_array_equal(client.get(one), whole)
    client.save("python/one.npy", arrays["w"], overwrite=True)
    with pytest.raises(tessera.NotFoundError) as caught:
        client.load("python/none.npy", {"": (MESH, P())})
    assert caught.value.reason == "FILE_NOT_FOUND"


def test_save_has_written_the_file_when_it_returns(client):
    array = client.put(np.arange(8, dtype=np.float32), MESH, P("x"))
    assert client.save("python/ended.npy", array).status().state == "DONE"
    with pytest.raises(tessera.Error, match="ended.npy") as caught:
        client.save("python/ended.npy", array)
    assert caught.value.code == "ALREADY_EXISTS"


def test_save_waits_no_longer_than_its_timeout(client):
    spec = client.put(np.arange(8, dtype=np.float32), MESH, P("x")).spec
    request = tessera._proto.message("CreateArrayRequest")(
        spec=spec.to_proto(), session=client.session)
    missing = client.array(client._call("ArrayService/CreateArray", request, None).array)
    with pytest.raises(tessera.DeadlineExceededError, match="it goes on") as caught:
        client.save("python/late.npy", missing, timeout=0.5)
    client.operation(int(caught.value.metadata["operation"])).cancel()


# An error about an argument says what is wrong and what was expected. It is not an error from
# inside the client.
@pytest.mark.parametrize("kind, words, call", [
    (TypeError, r"put\(\) takes a tessera.Mesh.*none is given", lambda c, a: c.put([1, 2])),
    (TypeError, r"takes a tessera.Mesh.*dict is given", lambda c, a: c.put([1, 2], {"x": 2})),
    (TypeError, r"takes a tessera.P.*str is given", lambda c, a: c.put([1, 2], MESH, "x")),
    (TypeError, r"takes a tessera.Mesh.*int is given", lambda c, a: c.reshard(a, 2)),
    (TypeError, r"Mesh\(\{'x': 2, 'y': 2\}\), not of tuple", lambda c, a: tessera.Mesh((2, 2))),
    (TypeError, r"get\(\) takes a tessera.Array, not int; client.array\(ID\)",
     lambda c, a: c.get(a.id)),
    (TypeError, r"delete\(\) takes a tessera.Array, not str", lambda c, a: c.delete("a")),
    (TypeError, r"save\(\) takes .* by name.*not list", lambda c, a: c.save("a.npy", [a])),
    (TypeError, r"save\(\) takes a tessera.Array, not int", lambda c, a: c.save("a.npy", {"": 7})),
    (TypeError, r"by its name.*list is given", lambda c, a: c.load("a.npy", ["a"])),
    (TypeError, r"a pair of .* for 'a'; NoneType is given", lambda c, a: c.load("a.npy", {"a": None})),
    (TypeError, r"compile\(\) takes a program as text.*not int", lambda c, a: c.compile(3)),
    (TypeError, r"explain\(\) takes a program as text.*not float", lambda c, a: c.explain(1.5)),
    (TypeError, r"name of a mesh of the cluster, not int", lambda c, a: c.compile("", mesh=2)),
    (ValueError, r"has no method 'DrainWorke'; did you mean DrainWorker",
     lambda c, a: c.call("AdminService/DrainWorke")),
    (ValueError, r"no service 'AdmnService'; did you mean AdminService",
     lambda c, a: c.call("AdmnService/DrainWorker")),
    (ValueError, r"SERVICE/METHOD is expected", lambda c, a: c.call("devices")),
    (ValueError, r"wrker", lambda c, a: c.call("AdminService/DrainWorker", {"wrker": "w0"})),
    (ValueError, r"is a stream", lambda c, a: c.call("OperationService/WatchOperation")),
])
def test_arguments_of_another_type(client, kind, words, call):
    array = client.put(np.arange(4, dtype=np.float32), MESH)
    with pytest.raises(kind, match=words):
        call(client, array)


def test_many_threads_share_a_client(client):
    import concurrent.futures

    def round_trip(seed):
        value = np.random.default_rng(seed).random((8, 8))
        return np.array_equal(client.get(client.put(value, MESH, P("x", "y"))), value)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(round_trip, range(24)))


def test_a_coordinator_that_relays_nothing_is_not_asked_again():
    with daemons.Cluster(workers=1, coordinator_flags=["--relay-bytes-max=0"]) as running, \
            tessera.connect(running.address, timeout=30) as client:
        value = np.arange(8, dtype=np.float32)
        array = client.put(value, tessera.Mesh({"x": 2}), tessera.P("x"))
        np.testing.assert_array_equal(client.get(array), value)
        assert not client._relays
        np.testing.assert_array_equal(client.get(client.put(value, array.mesh)), value)
