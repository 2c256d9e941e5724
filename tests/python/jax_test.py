"""Programs of JAX on real daemons: exported, lowered, and as @client.jit. Needs jax; the results are
compared with what JAX itself computes here."""
import functools
import os
import pathlib
import re
import subprocess

import daemons
import numpy as np
import pytest
import tessera

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
    with pytest.raises(TypeError, match="left out what is not used"):
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
    expect_equal(double(double(X)), 4 * X)  # A handle is an argument like any other.
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
    expect_equal(add(X.astype(np.float64), jnp.asarray(X)), X + X)  # As in JAX: f32.

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
        tessera._jax.to_numpy(jax.random.key(7), np.dtype(np.uint32)), np.asarray(old))


def test_what_tessera_lacks_is_an_error_with_the_line(client):
    @client.jit
    def factors(a):
        return jnp.linalg.eig(a)  # the line of the error

    with pytest.raises(tessera.UnimplementedError, match="custom_call") as caught:
        factors(X[:3])
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
    twice.compile(X).id += 1 << 40  # One that no server has.
    np.testing.assert_array_equal(client.get(twice(X)), 2 * X)


DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/from_jax.md"


def test_the_page_does_what_it_says(cluster, tmp_path, monkeypatch):
    """docs/from_jax.md: its Python in one process, its commands in a shell, and what is shown of what
    they print, where "..." stands for anything."""
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
