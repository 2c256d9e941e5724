"""Tests programs of JAX on real daemons: exported, lowered, and with @client.jit. They need jax,
and compare the results with those that JAX computes here."""
import functools
import os
import pathlib
import re
import subprocess

import daemons
import numpy as np
import pytest
import tessera
from tessera import _dtypes

# The tests about JAX's shardings need four devices; most tests use one.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
try:
    import jax
    import jax.export
    import jax.numpy as jnp
except ImportError:
    jax = None

pytestmark = pytest.mark.skipif(jax is None, reason="jax is not installed for this Python")

ARTIFACTS = pathlib.Path(__file__).resolve().parent.parent / "fuzz/stablehlo"
X = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
W = {"w": np.arange(6, dtype=np.float32).reshape(3, 2) / 10, "b": np.array([0.5, -1], np.float32)}


def layer(params, x):
    return {"y": jnp.tanh(x @ params["w"] + params["b"]), "sum": x.sum()}


def expect_equal(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
        a = np.asarray(a)
        assert (a.dtype, a.shape) == (np.asarray(b).dtype, np.shape(b))
        np.testing.assert_allclose(a.astype(np.float64), np.asarray(b, np.float64), rtol=1e-6)


def exported(function, *args):
    return jax.export.export(jax.jit(function))(*args)


def test_an_export_runs_with_its_trees(client):
    found = exported(layer, W, X)
    executable = client.compile(found, name="layer")
    assert [s.type for s in executable.inputs] == ["f32[2]", "f32[3,2]", "f32[4,3]"]
    out = executable(W, X)
    assert isinstance(out["y"], tessera.Array)
    expect_equal(out, layer(W, X))
    expect_equal(client.run(found, W, X), layer(W, X))
    with pytest.raises(TypeError, match="takes arguments of the form"):
        executable(X, W)


@pytest.mark.parametrize("name", [n for n in _dtypes.names() if n in _dtypes._ML_DTYPES])
def test_dtypes_that_numpy_lacks_go_both_ways(client, name):
    least = -1 if name[0] != "u" and name != "f8e8m0fnu" else 1
    x = np.array([1, 2, least, 1]).astype(_dtypes.to_numpy(name))
    array = client.put(x, tessera.Mesh({"x": 2}), tessera.P("x"))
    assert client.get(array).tobytes() == x.tobytes() and array.dtype == x.dtype
    expect_equal(client.run(exported(lambda v: v.astype(jnp.float32), x), x), x.astype(np.float32))
    back = client.run(exported(lambda v: v.astype(x.dtype), x.astype(np.float32)),
                      x.astype(np.float32))
    assert back.tobytes() == x.tobytes() and back.dtype == x.dtype


def test_bytes_of_an_artifact_are_a_program_of_leaves(client):
    (y,) = client.run((ARTIFACTS / "affine.mlirbc").read_bytes(), X, W["w"], W["b"])
    np.testing.assert_allclose(y, layer(W, X)["y"], rtol=1e-6)
    data = exported(layer, W, X).mlir_module_serialized
    leaves = jax.tree.leaves(client.run(data, W["b"], W["w"], X))
    expect_equal(leaves, jax.tree.leaves(layer(W, X)))


def test_what_is_lowered_runs(client):
    lowered = jax.jit(layer).lower(W, X)
    expect_equal(client.run(lowered, W, X), layer(W, X))
    assert "plan of jit_layer" in str(client.explain(lowered))


def test_arguments_that_are_not_used_are_not_sent(client):
    def first(a, b):
        return a + 1

    executable = client.compile(exported(first, X, W["b"]))
    assert len(executable.inputs) == 1
    expect_equal(executable(X, W["b"]), X + 1)
    with pytest.raises(TypeError, match="leaves out unused arguments"):
        client.compile(jax.jit(first).lower(X, W["b"]))(X, W["b"])


def test_jit_compiles_once_for_each_type(client):
    @client.jit
    def double(x):
        """Twice."""
        return x + x

    assert double.__name__ == "double" and double.__doc__ == "Twice."
    for _ in range(3):
        expect_equal(double(X), X + X)
    assert double.compile(X) is double.compile(X + 1)
    assert double.compile(X) is not double.compile(X[0])
    expect_equal(double(double(X)), 4 * X)  # a handle can be an argument like any other value
    expect_equal(double(3), jnp.asarray(6))
    assert "plan of jit_double" in str(double.explain(X))
    assert double.explain(X).pending_reasons == (), "it is compiled"
    assert double(X).operation.status().name == "jit_double"


def test_a_training_step_keeps_its_state_on_the_cluster(client):
    def loss(params, x):
        return (layer(params, x)["y"] ** 2).mean()

    def step(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), value

    remote, local = client.jit(step, donate_argnums=(0,)), jax.jit(step)
    ours, theirs = W, W
    for _ in range(5):
        before = ours
        ours, value = remote(ours, X)
        theirs, expected = local(theirs, X)
        expect_equal(value, expected)
    expect_equal(ours, theirs)
    with pytest.raises(tessera.FailedPreconditionError) as gone:
        client.get(before["w"])
    assert gone.value.reason == "ARRAY_DELETED"


def test_static_arguments_are_part_of_the_program(client):
    @client.jit(static_argnums=(0,), static_argnames=("flip",), donate_argnums=(1,))
    def power(n, x, *, flip=False):
        return -(x**n) if flip else x**n

    expect_equal(power(2, X), X**2)
    expect_equal(power(3, X, flip=True), -(X**3))
    assert power.compile(2, X) is not power.compile(3, X)


def test_values_of_all_kinds_are_arguments(client):
    @client.jit
    def add(a, b):
        return a + b

    bf16 = jnp.asarray(X, jnp.bfloat16)
    expect_equal(add(bf16, bf16), bf16 + bf16)
    expect_equal(add(X, 1), X + 1)
    expect_equal(add(X.astype(np.float64), jnp.asarray(X)), X + X)  # f32, as in JAX

    class OnlyDlpack:
        shape, dtype = X.shape, X.dtype

        def __dlpack__(self, **kwargs):
            return X.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return X.__dlpack_device__()

    expect_equal(add(OnlyDlpack(), X), X + X)

    @client.jit
    def noise(key, n):
        return jax.random.normal(key, (3,)) * n

    old = jax.random.PRNGKey(7)
    expect_equal(noise(old, 2.0), jax.random.normal(old, (3,)) * 2.0)
    np.testing.assert_array_equal(
        tessera._trees.to_numpy(jax.random.key(7), np.dtype(np.uint32)), np.asarray(old))


def test_what_tessera_lacks_is_an_error_with_the_line(client):
    @client.jit
    def noisy(a):
        return a + jax.lax.rng_uniform(0.0, 1.0, a.shape)  # the line of the error

    with pytest.raises(tessera.UnimplementedError, match="rng makes numbers that no two") as caught:
        noisy(X[:3])
    assert caught.value.reason == "NOT_IMPLEMENTED"
    line = next(i for i, text in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1)
                if "the line of the error" in text)
    assert f"jax_test.py:{line}" in str(caught.value)


def test_a_large_artifact_is_uploaded_once(client):
    table = np.random.default_rng(0).normal(size=(1 << 19,)).astype(np.float32)
    found = exported(lambda x: jnp.asarray(table)[:4] + x, X[0, :1])
    assert len(found.mlir_module_serialized) > 1 << 20
    seen = []
    executable = client.compile(found, on_progress=lambda done, all: seen.append((done, all)))
    size = len(found.mlir_module_serialized)
    assert seen[0] == (0, size) and (size, size) in seen and len(seen) >= 4
    again = []
    assert client.compile(found, on_progress=lambda *p: again.append(p)).id == executable.id
    assert again[0] == (size, size)
    expect_equal(executable(X[0, :1]), X[0, :1] + table[:4])
    assert executable.explain().memory_bound_bytes > 0


def test_no_program(client):
    with pytest.raises(TypeError, match="client.jit runs a JAX function"):
        client.compile(layer)


def test_shardings_of_an_abstract_mesh_are_followed(client):
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec as P

    mesh = AbstractMesh((2, 2), ("data", "model"))

    def on(*spec):
        return NamedSharding(mesh, P(*spec))

    def layers(x, w, v):
        h = jax.lax.with_sharding_constraint(jnp.tanh(x @ w), on("data", "model"))
        return h @ v

    def sums(x):
        return jax.lax.psum(x.sum(0), "data"), jax.lax.all_gather(x, "model", axis=1, tiled=True)

    x, w, v = (np.linspace(-1, 1, n, dtype=np.float32).reshape(shape)
               for n, shape in ((32, (8, 4)), (24, (4, 6)), (18, (6, 3))))
    step = client.jit(layers, in_shardings=(on("data"), on(None, "model"), on("model")),
                      out_shardings=on("data"))
    out = step(x, w, v)
    np.testing.assert_allclose(client.get(out), np.tanh(x @ w) @ v, rtol=1e-5, atol=1e-6)
    assert "psum[model]" in step.explain(x, w, v).text
    mapped = client.jit(jax.shard_map(sums, mesh=mesh, in_specs=P("data", "model"),
                                      out_specs=(P("model"), P("data")), check_vma=False))
    total, rows = mapped(x)
    np.testing.assert_allclose(client.get(total), x.sum(0), rtol=1e-6)
    np.testing.assert_array_equal(client.get(rows), x)


def test_typed_keys_are_keys(client):
    found = client.jit(lambda key: jax.random.normal(key, (5,)))(jax.random.key(3))
    np.testing.assert_allclose(client.get(found), jax.random.normal(jax.random.key(3), (5,)),
                               rtol=1e-5)


def test_jit_compiles_anew_for_what_makes_another_program(client):
    scaled = client.jit(lambda x, n: x * n, static_argnums=1)
    x = np.arange(3, dtype=np.int32)
    for n in (1, 1.0, True, 2):
        want = jax.jit(lambda x, n: x * n, static_argnums=1)(x, n)
        got = client.get(scaled(x, n))
        assert got.dtype == want.dtype, n
        np.testing.assert_array_equal(got, want)
    product = client.jit(lambda a, b: a * b)
    half = np.ones(2, jnp.bfloat16)
    for a in (jnp.asarray(2.0), jnp.float32(2), 2.0):
        want = jax.jit(lambda a, b: a * b)(a, half).dtype
        assert client.get(product(a, half)).dtype == want, repr(a)


def test_arguments_are_chosen_as_in_jax(client):
    def shaped(x, n):
        return x.reshape(n, -1)

    x = np.arange(6, dtype=np.float32)
    by_name, by_number = (client.jit(shaped, static_argnames="n"), client.jit(shaped, static_argnums=-1))
    for function in (by_name, by_number):
        assert client.get(function(x, 2)).shape == (2, 3)
        assert client.get(function(x, n=3)).shape == (3, 2)
    total = client.jit(lambda state, x: state + x, donate_argnums=0)
    state = client.get(total(state=x, x=x))
    np.testing.assert_array_equal(state, 2 * x)

    class Model:
        scale = 3.0

        @functools.partial(client.jit, static_argnums=0)
        def apply(self, x):
            return x * self.scale

    np.testing.assert_array_equal(client.get(Model().apply(x)), 3 * x)
    np.testing.assert_array_equal(client.get(total(x.astype(">f4"), x)), 2 * x)


def test_whole_numbers_are_not_cut_from_others(client):
    program = exported(lambda n: n + 1, np.int32(0))
    assert client.run(program, 1) == 2
    with pytest.raises(TypeError, match=r"argument 0 is s32\[\] in the program, 1.7 given"):
        client.run(program, 1.7)


def test_what_is_lowered_has_its_shardings(client):
    from jax.sharding import AbstractMesh, PartitionSpec as P

    def sums(x):
        return jax.lax.psum(x, "x")

    mapped = jax.shard_map(sums, mesh=AbstractMesh((2,), ("x",)), in_specs=P("x"), out_specs=P())
    lowered = jax.jit(mapped).trace(X).lower(lowering_platforms=("cpu",))
    np.testing.assert_allclose(client.run(lowered, X), X[:2] + X[2:], rtol=1e-6)


def test_a_function_is_compiled_again_when_the_server_has_dropped_it(client):
    twice = client.jit(lambda x: 2 * x)
    np.testing.assert_array_equal(client.get(twice(X)), 2 * X)
    twice.compile(X).id += 1 << 40  # an id that no server has given
    np.testing.assert_array_equal(client.get(twice(X)), 2 * X)


class Tensor:
    """A tensor like torch's on a CPU: it has a shape, and a dtype that is not NumPy's."""

    def __init__(self, array, device=(1, 0)):
        self._array, self._device = array, device
        self.shape, self.dtype = array.shape, f"torch.{array.dtype}"

    def __dlpack__(self, **kwargs):
        return self._array.__dlpack__(**kwargs)

    def __dlpack_device__(self):
        return self._device

    def __array__(self, dtype=None):
        raise TypeError(f"Got unsupported ScalarType {self.dtype}")


def test_tensors_come_and_go_by_dlpack(client):
    add = client.jit(lambda a, b: a + b)
    expect_equal(add(Tensor(X), X), X + X)
    assert add.compile(Tensor(X), X) is add.compile(Tensor(X + 1), X)
    half = jnp.asarray(X, jnp.bfloat16)
    out = add(Tensor(half), half)
    expect_equal(out, half + half)
    expect_equal(client.put(Tensor(X), tessera.Mesh({"x": 1})), X)
    executable = client.compile(exported(lambda x: x + 1, X))
    expect_equal(executable(Tensor(X)), X + 1)
    with pytest.raises(TypeError, match="is f32.4,3. in the program, s32.4,3. given"):
        executable(Tensor(X.astype(np.int32)))
    with pytest.raises(TypeError, match="copy it to the CPU first"):
        add(Tensor(X, device=(2, 0)), X)

    np.testing.assert_array_equal(np.from_dlpack(add(X, X)), X + X)
    back = jnp.from_dlpack(out)
    assert back.dtype == jnp.bfloat16
    expect_equal(back, half + half)
    flags = client.jit(lambda a: a > 1)(X)
    np.testing.assert_array_equal(jnp.from_dlpack(flags), X > 1)
    with pytest.raises(BufferError, match="copied to the CPU"):
        out.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="always copied"):
        out.__dlpack__(copy=False)


def test_what_jax_is_told_is_part_of_the_program(client):
    product = client.jit(lambda a, b: a @ b.T)
    usual = product.compile(X, X)
    with jax.default_matmul_precision("highest"):
        assert product.compile(X, X) is not usual
    assert product.compile(X, X) is usual

    double = client.jit(lambda x: x + x)
    wide = X.astype(np.float64)
    assert client.get(double(wide)).dtype == np.float32
    with jax.enable_x64(True):
        assert client.get(double(wide)).dtype == np.float64

    mixed = client.jit(lambda a, b: a + b)
    whole = np.ones((4, 3), np.int32)
    expect_equal(mixed(X, whole), X + 1)
    with jax.numpy_dtype_promotion("strict"), pytest.raises(ValueError, match="promotion"):
        mixed(X, whole)

    words = client.jit(lambda seed: jax.random.key_data(jax.random.key(seed)))
    assert client.get(words(1)).shape == (2,)
    with jax.default_prng_impl("rbg"):
        assert client.get(words(1)).shape == (4,)


def is_deleted(client, array):
    try:
        client.get(array)
    except tessera.FailedPreconditionError as error:
        return error.reason == "ARRAY_DELETED"
    return False


def test_arguments_are_donated_as_in_jax(client):
    def step(state, x, *, extra):
        return jax.tree.map(lambda s: s + x.sum() + extra, state)

    def put():
        return {"w": client.put(X, tessera.Mesh({"x": 1}))}

    by_number = client.jit(step, donate_argnums=np.int64(0))
    by_name = client.jit(step, donate_argnames=("state", "extra"))
    last = client.jit(step, donate_argnums=(-2,))
    for function in (by_number, by_name, last):
        given, named = put(), put()
        extra = put()["w"]
        expect_equal(function(given, x=1.0, extra=extra), {"w": X + 1 + X})
        assert is_deleted(client, given["w"])
        assert is_deleted(client, extra) == (function is by_name)
        function(state=named, x=1.0, extra=1.0)
        assert is_deleted(client, named["w"])
        again = put()
        expect_equal(function(again, X, extra=X), {"w": X + X.sum() + X})
        assert is_deleted(client, again["w"])

    static = client.jit(lambda n, state: state * n, static_argnums=np.arange(1), donate_argnums=[1])
    kept = put()["w"]
    expect_equal(static(3, kept), X * 3)
    assert is_deleted(client, kept)

    executable = client.compile(exported(lambda a, b: a + b, X, X))
    a, b = put()["w"], put()["w"]
    executable(a, b, donate=(1,))
    assert is_deleted(client, b) and not is_deleted(client, a)
    by_name = client.compile(jax.export.export(jax.jit(lambda *, a, b: a + b))(a=X, b=X))
    b = put()["w"]
    by_name(a=a, b=b, donate=("b",))
    assert is_deleted(client, b) and not is_deleted(client, a)
    with pytest.raises(ValueError, match="or names of a, b"):
        by_name(a=a, b=a, donate=("c",))


def test_what_jax_refuses_is_refused(client):
    def step(state, x):
        return state + x

    for options, message in (
        ({"donate_argnums": 2}, "only accepts 2 positional arguments"),
        ({"donate_argnums": -3}, "only accepts 2 positional arguments"),
        ({"donate_argnames": "y"}, "Function does not take these args"),
        ({"static_argnums": 5}, "only accepts 2 positional arguments"),
        ({"static_argnums": 0, "donate_argnums": 0}, "cannot intersect"),
    ):
        with pytest.raises(ValueError, match=message):
            client.jit(step, **options)
    executable = client.compile(exported(step, X, X))
    with pytest.raises(ValueError, match="numbers from 0 to 1 are expected"):
        executable(X, X, donate=(2,))


def test_the_mesh_that_is_set_types_what_is_cut(client):
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    seen = []

    @client.jit
    def layer(x, w):
        y = jnp.tanh(x @ w)
        seen.append((jax.typeof(x).sharding.spec, jax.typeof(y).sharding.spec))
        return y

    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)
    w = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    want = np.tanh(x @ w)
    np.testing.assert_allclose(client.get(layer(x, w)), want, rtol=1e-5)  # without a mesh
    with jax.set_mesh(mesh):
        rows = jax.device_put(x, NamedSharding(mesh, P("data", None)))
        columns = jax.device_put(w, NamedSharding(mesh, P(None, "model")))
        y = layer(rows, columns)
        np.testing.assert_allclose(client.get(y), want, rtol=1e-5)
        assert y.mesh.axes == {"data": 2, "model": 2} and y.sharding == tessera.P("data", "model")
        assert seen[-1] == (P("data", None), P("data", "model"))
        # An array on the cluster keeps the type that it had when it was made.
        again = layer(y, w)
        np.testing.assert_allclose(client.get(again), np.tanh(want @ w), rtol=1e-5)
        assert seen[-1][0] == P("data", "model")
        count = len(seen)
        layer(again, w)
        assert len(seen) == count + (again.sharding != y.sharding)
        with pytest.raises(Exception, match="ambiguous|sharded result|illegally"):
            layer(client.put(x, y.mesh, tessera.P("data")), jax.device_put(
                w, NamedSharding(mesh, P(None, "data"))))


def test_what_lies_over_jaxs_devices_lies_so_over_the_clusters(client):
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((2,), ("rows",), axis_types=(AxisType.Auto,))
    rows = jax.device_put(X, NamedSharding(mesh, P("rows")))
    double = client.jit(lambda x: x + x)
    assert double.compile(rows).inputs[0].spec == tessera.P("rows")
    expect_equal(double(rows), X + X)
    assert len(double.compile(X).devices) == 1


def test_an_export_for_several_platforms_runs_on_what_there_is(client):
    def by_platform(x, unused):
        return jax.lax.platform_dependent(x, cpu=lambda x: x + 1, cuda=lambda x: x - 1)

    for platforms in (("cpu", "cuda"), ("cuda", "cpu")):
        found = jax.export.export(jax.jit(by_platform), platforms=platforms)(X, X)
        executable = client.compile(found)
        expect_equal(executable(X, X), X + 1)
        expect_equal(client.run(found, X, X), X + 1)
        mine = client.put(X, tessera.Mesh({"x": 1}))
        expect_equal(executable(mine, X, donate=(0,)), X + 1)
        assert is_deleted(client, mine)
    found = jax.export.export(jax.jit(lambda x: x + 1), platforms=("cuda", "tpu"))(X)
    with pytest.raises(ValueError, match="exported for cuda, tpu, .* export it for cpu as well"):
        client.compile(found)


def test_a_coordinator_that_has_been_restarted_gets_the_program_again(own_cluster):
    with tessera.connect(own_cluster.address, timeout=60) as client:
        step = client.jit(lambda state, x: state + x)
        state = step(X, X)
        expect_equal(state, X + X)
        before = step.compile(X, X).id
        own_cluster.restart_coordinator()
        # The arguments that this client still has are sent again, and the program is compiled
        # again.
        expect_equal(step(X, X), X + X)
        assert step.compile(X, X).id != before
        # The array on the cluster is gone, and the error says so.
        with pytest.raises(tessera.NotFoundError, match="argument 0 .* the coordinator has restarted"):
            client.get(step(state, X))
        new = step(X, X)
        expect_equal(step(new, X), 3 * X)


def test_the_list_of_ops_has_all_of_jaxs():
    """docs/stablehlo.md must name every op of the StableHLO that JAX has. Another test compares its
    rows with the ops that are read."""
    from jaxlib.mlir.dialects import stablehlo
    listed = set(re.findall(r"^\| `([\w.-]+)` \|", (DOCS.parent / "stablehlo.md").read_text(),
                            re.MULTILINE))
    names = {op.OPERATION_NAME.split(".", 1)[1] for name, op in vars(stablehlo).items()
             if name.endswith("Op") and hasattr(op, "OPERATION_NAME")}
    assert len(names) > 100
    assert names - {"return"} <= listed, names - listed


DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/from_jax.md"


def test_the_page_does_what_it_says(cluster, tmp_path, monkeypatch):
    """Runs the Python of docs/from_jax.md in one process and its commands in a shell, and compares
    their output with the output shown, in which "..." stands for any text."""
    monkeypatch.setenv("TESSERA_ADDRESS", cluster.address)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PATH", str(daemons.bin_dir()), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "python", "python", "sh", "text"]
    names = {}
    for language, text in blocks[:3]:
        exec(compile(text, str(DOCS), "exec"), names)
    with names["client"] as client:
        first, last = names["loss"]({k: np.zeros_like(v) for k, v in names["trained"].items()},
                                    names["x"], names["y"]), client.get(names["value"])
        assert last < first / 2, "it learns"
    printed = []
    for command in blocks[3][1].splitlines():
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == 0, (command, done.stderr)
        printed.append(done.stdout)
    shown = ".*".join(map(re.escape, blocks[4][1].split("...")))
    assert re.fullmatch(shown, printed[0], re.DOTALL), printed[0]
    assert "tanh" in printed[1] or "loss" in printed[1], printed[1]
    assert re.search(r"result 0.* f32\[\]", printed[2]), printed[2]
