#!/usr/bin/env python3
"""Runs the acceptance programs in JAX and records what they answer.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_acceptance.py

Each function below is a program that a user of JAX would write. tests/acceptance/acceptance_test.cc
contains the same programs in C++ and compares their results with tests/acceptance/recorded.json: all
elements and the dtype, shape and sharding of each result, or the kind of the error and its key phrases.
If an error lacks a phrase that is given here, the case is not recorded and the run fails.
"""
import json
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, PartitionSpec as P  # noqa: E402

CASES = {}


def mesh(**axes):
    """Returns a mesh whose axes are Auto, the default of the constructor."""
    n = int(np.prod(list(axes.values())))
    return Mesh(np.array(jax.devices()[:n]).reshape(tuple(axes.values())), tuple(axes))


def explicit_mesh(**axes):
    """Returns a mesh whose axes are Explicit, the default of make_mesh."""
    return jax.make_mesh(tuple(axes.values()), tuple(axes))


def spec_of(x):
    spec = list(x.sharding.spec) if isinstance(x.sharding, jax.sharding.NamedSharding) else []
    spec += [None] * (x.ndim - len(spec))
    return [[] if s is None else [s] if isinstance(s, str) else list(s) for s in spec]


DTYPES = {"float32": "f32", "int32": "s32"}


def gives(name, f, *args):
    """Records f(*args). The result must be the same compiled as a whole and evaluated op by op."""
    out = jax.tree.leaves(f(*args))
    for a, b in zip(out, jax.tree.leaves(jax.jit(f)(*args)), strict=True):
        if a.dtype != b.dtype or not np.array_equal(a, b):
            raise AssertionError(f"{name}: jit gives {b}, eager {a}")
    CASES[name] = {"results": [
        {"dtype": DTYPES[str(x.dtype)], "shape": list(x.shape), "sharding": spec_of(x),
         "values": np.asarray(x).ravel().tolist()} for x in out]}


def refuses(name, phrases, f, *args):
    """Records the kind of error that f(*args) raises, and the phrases that its text must contain."""
    try:
        f(*args)
    except Exception as e:
        missing = [p for p in phrases if p not in str(e)]
        if missing:
            raise AssertionError(f"{name}: {missing} not in {type(e).__name__}: {e}") from e
        CASES[name] = {"error": type(e).__name__, "phrases": phrases}
        return
    raise AssertionError(f"{name}: no error")


def a01_a02_linearize():
    m = mesh(x=2)

    def f(v):
        return jnp.mean(v ** 2)

    def program(cast):
        def run(p, t):
            def body(t):
                q = lax.pcast(p, ("x",), to="varying") if cast else p
                _, fwd = jax.linearize(f, q)
                bwd = jax.linear_transpose(fwd, q)
                return bwd(fwd(t))
            return jax.shard_map(body, mesh=m, in_specs=P("x"), out_specs=P("x"))(t)
        return run

    one = jnp.array([1.0])
    refuses("A01", ["linearized function called on tangent values inconsistent",
                    "pcast(..., ('x',), to='varying')", "to the primal value passed"],
            program(False), one, jnp.array([1.0, 1.0]))
    gives("A02 ones", program(True), one, jnp.array([1.0, 1.0]))
    gives("A02 threes", program(True), jnp.array([3.0]), jnp.array([1.0, 2.0]))


def a03_repeated_psum():
    gives("A03", jax.shard_map(lambda x: lax.psum(lax.psum(x, "i"), "i"), mesh=mesh(i=4),
                               in_specs=P("i"), out_specs=P()), jnp.arange(4.0))


def a04_out_specs_promise():
    m = mesh(x=2, y=2, z=2)
    x = jnp.arange(16.0).reshape(4, 2, 2)

    def program(check):
        return jax.shard_map(lambda b: 2 * b, mesh=m, in_specs=P("x", "y", "z"), out_specs=P("x"),
                             check_vma=check)

    refuses("A04", ["require replication which can't be statically inferred",
                    "only varying across mesh axes {x} and not {y,z}"], program(True), x)
    gives("A04 unchecked", program(False), x)


def a05_grads_of_invarying_params():
    m = mesh(d=2)
    params = jnp.array([1.0, 2.0])
    samples = jnp.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])

    def program(cast):
        def run(params, samples):
            def body(block):
                p = lax.pcast(params, ("d",), to="varying") if cast else params
                return jax.vmap(jax.grad(lambda q, x: jnp.dot(q, x)), (None, 0))(p, block)
            return jax.shard_map(body, mesh=m, in_specs=P("d"), out_specs=P("d"))(samples)
        return run

    gives("A05 summed", program(False), params, samples)
    gives("A05 cast", program(True), params, samples)


def a06_psum_transpose():
    m = mesh(i=4)

    def program(check):
        def body(p, x):
            return jax.grad(lambda q: lax.psum(jnp.sum(q * x), "i"))(p)
        return jax.shard_map(body, mesh=m, in_specs=(P("i"), P("i")), out_specs=P("i"),
                             check_vma=check)

    for check in (True, False):
        gives("A06 checked" if check else "A06 unchecked", program(check), jnp.ones(4),
              jnp.array([1.0, 2.0, 3.0, 4.0]))


def a07_grad_of_shard_map():
    m = mesh(i=4)
    for check in (True, False):
        g = jax.shard_map(lambda b: lax.psum(jnp.sum(b ** 2), "i"), mesh=m, in_specs=P("i"),
                          out_specs=P(), check_vma=check)
        gives("A07 checked" if check else "A07 unchecked", jax.grad(g), jnp.arange(4.0))


def a08_implicit_cast():
    gives("A08", jax.shard_map(lambda x, y: x * y, mesh=mesh(i=2), in_specs=(P("i"), P()),
                               out_specs=P("i")), jnp.arange(6.0), jnp.array([10.0, 20.0, 30.0]))


def a09_scan_carry():
    m = mesh(i=2)

    def program(cast):
        def body(x, y):
            if cast:
                y = lax.pcast(y, ("i",), to="varying")
            return lax.scan(lambda c, _: ((c[1], c[0]), ()), (x, y), None, length=2)[0]
        return jax.shard_map(body, mesh=m, in_specs=(P("i"), P()), out_specs=P("i"))

    args = jnp.arange(6.0), jnp.arange(3.0)
    refuses("A09", ["carry input and carry output must have equal types",
                    "pcast(..., ('i',), to='varying')", "initial carry value corresponding to"],
            program(False), *args)
    gives("A09 cast", program(True), *args)


def a11_gather_scatter():
    m = mesh(i=4)

    def program(body, out_specs):
        return jax.shard_map(body, mesh=m, in_specs=P("i"), out_specs=out_specs)

    def gather(x):
        return lax.all_gather(x, "i", tiled=True)

    v = jnp.arange(4.0)
    gives("A11 psum_scatter",
          program(lambda b: lax.psum_scatter(b, "i", scatter_dimension=1, tiled=True), P("i")),
          jnp.arange(16.0).reshape(4, 4))
    gives("A11 all_gather", program(gather, P("i")), v)
    refuses("A11 promise", ["require replication"], program(gather, P()), v)
    gives("A11 invarying",
          program(lambda b: lax.all_gather(b, "i", tiled=True, to="invarying"), P()), v)


def a12_ppermute():
    m = mesh(i=4)
    x = jnp.array([10.0, 20.0, 30.0, 40.0])
    w = jnp.array([1.0, 2.0, 3.0, 4.0])
    rotation = [(k, (k + 1) % 4) for k in range(4)]

    def program(perm):
        return jax.shard_map(lambda b: lax.ppermute(b, "i", perm), mesh=m, in_specs=P("i"),
                             out_specs=P("i"))

    gives("A12 partial", program([(0, 1), (1, 2)]), x)
    gives("A12 rotation", program(rotation), x)
    gives("A12 grad", jax.grad(lambda x, w: jnp.sum(w * program(rotation)(x))), x, w)
    refuses("A12 twice", ["sources and destinations must be unique"],
            jax.jit(program([(0, 1), (2, 1)])), x)


def a13_all_to_all_axis_index():
    gives("A13 all_to_all",
          jax.shard_map(lambda b: lax.all_to_all(b, "i", 1, 0, tiled=True), mesh=mesh(i=2),
                        in_specs=P("i", None), out_specs=P(None, "i")),
          jnp.arange(8.0).reshape(4, 2))
    # Both programs take an argument that they do not use, because results of a program without arguments have no
    # sharding.
    gives("A13 axis_index",
          lambda x: jax.shard_map(lambda: lax.axis_index(("i", "j"))[None, None],
                                  mesh=mesh(i=4, j=2), in_specs=(), out_specs=P("i", "j"))(),
          jnp.float32(0))
    gives("A13 axis_size",
          jax.shard_map(lambda b: jnp.zeros(lax.axis_size("i")) + b, mesh=mesh(i=4),
                        in_specs=P("i"), out_specs=P("i")), jnp.arange(4.0))
    refuses("A13 outside", ["unbound axis name: i"], lambda x: lax.psum(x, "i"), jnp.arange(2.0))


def a14_boundary():
    m = mesh(x=2)

    def program(f=lambda a: a, in_specs=P("x"), out_specs=P("x"), **kw):
        return lambda x: jax.shard_map(f, mesh=m, in_specs=in_specs, out_specs=out_specs, **kw)(x)

    four = jnp.arange(4.0)
    refuses("A14 uneven", ["evenly divisible"], program(), jnp.arange(5.0))
    refuses("A14 scalar", ["too long", "add at least one (singleton) axis"], program(jnp.sum), four)
    refuses("A14 unknown", ["must refer to an axis marked as manual"],
            program(in_specs=P("q"), out_specs=P()), four)
    refuses("A14 subset", ["to be a subset"],
            program(in_specs=P(), out_specs=P(), axis_names={"q"}), four)
    refuses("A14 rank", ["in_specs entry which is too long"],
            program(in_specs=P(None, "x"), out_specs=P()), four)
    refuses("A14 no mesh", ["context mesh cannot be empty"],
            lambda x: jax.shard_map(lambda a: a, in_specs=P(), out_specs=P())(x), four)

    def under_another(x):
        with jax.set_mesh(mesh(x=4)):
            return program()(x)
    refuses("A14 other mesh", ["should match the mesh passed to shard_map"], under_another, four)
    gives("A14 matmul",
          jax.shard_map(lambda a, b: lax.psum(a @ b, "y"), mesh=mesh(x=4, y=2),
                        in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None)),
          jnp.arange(128.0).reshape(8, 16), jnp.arange(64.0).reshape(16, 4))


def arange(n, shape, spec):
    return jax.reshard(jnp.arange(float(n)).reshape(shape), spec)


def a15_elementwise_types():
    with jax.set_mesh(explicit_mesh(x=2, y=2)):
        a, b = arange(16, (8, 2), P("x", "y")), arange(16, (8, 2), P("y", "x"))
        mul = lambda x, y: x * y
        gives("A15 replicated", mul, a, jnp.array([[0.0, 1.0]]))
        refuses("A15 mismatch", ["mul got incompatible shardings for broadcasting"], mul, a, b)
        refuses("A15 outer", ["illegally sharded result"], mul, arange(4, (4, 1), P("x")),
                arange(4, (1, 4), P(None, "x")))


def a16_dot_types():
    with jax.set_mesh(explicit_mesh(x=2, y=2)):
        dot = lambda a, b: a @ b
        ab = lambda p, q: (arange(16, (8, 2), p), arange(16, (2, 8), q))
        gives("A16 free", dot, *ab(P("x"), P(None, "y")))
        gives("A16 one side", dot, *ab(P("x", "y"), P()))
        gives("A16 other side", dot, *ab(P("x"), P("x")))
        refuses("A16 contracting", ["Contracting dimensions are sharded"],
                dot, *ab(P("x", "y"), P("y")))
        refuses("A16 illegal", ["illegally sharded result"], dot, *ab(P("x"), P(None, "x")))
        given = lambda s: lambda a, b: jnp.matmul(a, b, out_sharding=s)
        gives("A16 all-reduce", given(P("x")), *ab(P("x", "y"), P("y")))
        gives("A16 reduce-scatter", given(P("x", "y")), *ab(P("x", "y"), P("y")))
        gives("A16 made legal", given(P("x")), *ab(P("x"), P(None, "x")))


def a18_reshape():
    with jax.set_mesh(explicit_mesh(x=2, y=2)):
        to = lambda *shape: lambda a: a.reshape(shape)
        a = arange(192, (4, 6, 8), P("x", "y"))
        gives("A18 split", to(4, 2, 3, 8), a)
        refuses("A18 ragged", ["This reshape is not supported"], to(4, 3, 2, 8), a)
        gives("A18 merge", to(4), arange(4, (2, 2), P("x", "y")))
        refuses("A18 both", ["This reshape is not supported"], to(3, 4),
                arange(12, (12,), P(("x", "y"))))
        gives("A18 given", lambda a: jnp.reshape(a, (4, 3, 2, 8), out_sharding=P("y", None, "x")),
              a)


def a19_movement():
    with jax.set_mesh(explicit_mesh(x=2, y=2)):
        row, square = arange(8, (8,), P("x")), arange(16, (4, 4), P("x", "y"))
        pad = lambda low, high: lambda a: lax.pad(a, 0.0, [(low, high, 0)])
        gives("A19 pad", pad(2, 2), row)
        refuses("A19 pad uneven", ["padding on sharded dims"], pad(2, 3), row)
        gives("A19 slice", lambda a: lax.slice(a, (0, 0), (4, 2)), square)
        refuses("A19 slice uneven", ["slicing on sharded dims"],
                jax.jit(lambda a: lax.slice(a, (0, 0), (4, 3))), square)
        concat = lambda a, b: jnp.concatenate([a, b], 1)
        gives("A19 concatenate", concat, square, square)
        refuses("A19 concatenate mixed", ["same sharding"], concat, square,
                arange(16, (4, 4), P("x")))
        gives("A19 cumsum", lambda a: lax.cumsum(a, 1), arange(16, (4, 4), P("x")))
        refuses("A19 cumsum cut", ["unsharded over the axis being reduced"],
                lambda a: lax.cumsum(a, 1), square)
        gives("A19 argsort", lambda a: jnp.argsort(a, axis=1), arange(16, (4, 4), P("x")))
        refuses("A19 argsort cut", ["unsharded over the sorting dimension"], jnp.argsort, row)
        gives("A19 argmax", lambda a: jnp.argmax(a, 1), square)
        gives("A19 sum", lambda a: jnp.sum(a, 0), square)


def seed_f1(x, i, j):
    values = x.at[:, j].get(out_sharding=jax.typeof(i).sharding)
    return x.at[:, i].set(values, out_sharding=jax.typeof(x).sharding)


def seed_f2(x, i, j):
    def one(xi, ii, ji):
        return xi.at[ii].set(xi.at[ji].get(out_sharding=jax.typeof(ii).sharding))
    return jax.vmap(one)(x, i, j)


def seed_arguments():
    return (arange(12, (4, 3), P("x")), jax.reshard(jnp.array([0, 1, 2, 0]), P("x")),
            jax.reshard(jnp.array([2, 0, 1, 2]), P("x")))


def gradient_of(f):
    weights = jnp.arange(1.0, 13.0).reshape(4, 3)
    return jax.grad(lambda x, i, j: jnp.sum(weights * f(x, i, j)))


def a22_a23_seed():
    with jax.set_mesh(explicit_mesh(x=2)):
        x, i, j = seed_arguments()
        gives("A22 read", lambda x, i, j: x.at[:, j].get(out_sharding=jax.typeof(i).sharding),
              x, i, j)
        gives("A22", seed_f1, x, i, j)
        gives("A22 grad", gradient_of(seed_f1), x, i, j)
        # x is replicated here. If it were sharded too, JAX would build the spec P('x', 'x') and complain about that.
        refuses("A22 read alone", ["Use `.at[...].get(out_sharding=)`"], lambda x, j: x[:, j],
                jax.reshard(x, P()), j)
        refuses("A22 write alone", ["out_sharding=)`"], lambda x, i: x.at[:, i].set(1.0),
                jax.reshard(x, P()), i)
        gives("A22 add", lambda x, i: x.at[:, i].add(1.0, out_sharding=jax.typeof(x).sharding),
              x, i)
        gives("A23", seed_f2, x, i, j)
        gives("A23 grad", gradient_of(seed_f2), x, i, j)


def axis_types():
    with jax.set_mesh(explicit_mesh(x=2, y=2)):
        f = jax.sharding.auto_axes(lambda a, b: a @ b, out_sharding=P(None, "x"))
        a, w = arange(16, (8, 2), P("x", "y")), arange(8, (2, 4), P("y"))
        gives("auto_axes", f, a, w)
        gives("auto_axes grad", jax.grad(lambda a, b: jnp.sum(f(a, b) ** 2), (0, 1)), a, w)

        def inside(v):
            return jax.sharding.auto_axes(lambda u: u, axes="x", out_sharding=P())(v)
        refuses("auto_axes manual", ["Going from", "Manual"],
                jax.shard_map(inside, in_specs=P("x"), out_specs=P("x")), arange(8, (8,), P("x")))
    with jax.set_mesh(mesh(x=2, y=2)):
        a = jnp.arange(16.0).reshape(8, 2)
        gives("explicit_axes", jax.sharding.explicit_axes(
            lambda u: jax.reshard(u, P(None, "y")) * 2, in_sharding=P("x")), a)
        refuses("explicit_axes illegal", ["illegally sharded result"],
                jax.sharding.explicit_axes(lambda u: u @ u.T, in_sharding=P("x")), a)


def given_shardings():
    with jax.set_mesh(explicit_mesh(x=2, y=2)):
        a = arange(16, (4, 4), P("x", "y"))
        gives("einsum given", lambda v: jnp.einsum("ij,kj->ki", v, v, out_sharding=P("y", "x")), a)
        gives("take given", lambda v, i: v.at[i].get(out_sharding=P("x")), a, jnp.array([3, 0]))
        gives("reduce_sum given", lambda v: lax.reduce_sum(v, (0,), out_sharding=P("x")), a)
        refuses("reshard unknown", ["Resource axis: q of", "is not found in mesh"],
                lambda v: jax.reshard(v, P("q")), a)
        refuses("reshard uneven", ["does not evenly divide the dimension size"],
                lambda v: jax.reshard(v, P("x")), jnp.arange(3.0))
    auto = ["PartitionSpec passed to reshard cannot contain axis names that are of type Auto"]
    with jax.set_mesh(mesh(x=2, y=2)):
        refuses("reshard auto", auto, lambda v: jax.reshard(v, P("x")), jnp.arange(4.0))
    with jax.set_mesh(explicit_mesh(x=4)):
        refuses("mesh other", ["context mesh", "should match the aval mesh"], lambda v: v + 1, a)
    refuses("reshard no mesh", ["when you are not under a mesh context"],
            lambda v: jax.reshard(v, P("x")), jnp.arange(4.0))


def a20_vmap_of_explicit_axes():
    m = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)

    def put(x, *spec):
        return jax.device_put(x, jax.sharding.NamedSharding(m, P(*spec)))

    rows = jnp.arange(16.0).reshape(8, 2)
    with jax.set_mesh(m):
        x, whole, z = put(rows, "x", "y"), put(rows), put(jnp.arange(8.0), "x")
        gives("A20 inside", jax.vmap(lambda a: a * 2), x)
        gives("A20 out_axes", jax.vmap(lambda a: jnp.zeros((4,)), out_axes=-1), z)
        gives("A20 unmapped", jax.vmap(lambda a, b: a * b, in_axes=(0, None)), z, put(jnp.float32(3)))
        gives("A20 dot", jax.vmap(jnp.dot, in_axes=(0, None)), put(rows, "x"),
              put(jnp.arange(6.0).reshape(2, 3)))
        gives("A20 shard_map", jax.vmap(jax.shard_map(lambda b: b * 2, in_specs=P("y"),
                                                      out_specs=P("y"))), x)
        refuses("A20 differ", ["Mapped away dimension", "sharded the same"],
                jax.vmap(lambda a, b: a + b), x, whole)
        refuses("A20 unmapped sharded", ["Unmapped values passed to vmap cannot be sharded"],
                jax.vmap(lambda a, b: a + b, in_axes=(None, 0)), z, x)
        refuses("A20 spmd", ["Only one of spmd_axis_name or arrays sharded on `Explicit`"],
                jax.vmap(lambda a: a * 2, spmd_axis_name="y"), x)
        refuses("A20 shard_map used", ["must refer to an axis marked as manual"],
                jax.vmap(jax.shard_map(lambda b: b, in_specs=P("x"), out_specs=P("x"))), x)


def a24_pmap():
    four = jnp.arange(4.0)
    gives("A24 share", jax.pmap(lambda x: x / lax.psum(x, "i"), "i"), four)
    gives("A24 in_axes", jax.pmap(lambda x, y: (x + y, y * 2), "i", in_axes=(0, None)),
          jnp.arange(2.0), jnp.float32(4))
    gives("A24 grad inside",
          jax.pmap(lambda x: jax.grad(lambda p: lax.psum(p * x, "i"))(jnp.ones_like(x)), "i"),
          four + 1)
    gives("A24 grad outside",
          jax.grad(lambda x: jnp.sum(jax.pmap(lambda a: a * lax.psum(a, "i"), "i")(x))), four)
    gives("A24 axes", jax.pmap(lambda x: x * 2, "i", in_axes=1, out_axes=1),
          jnp.arange(8.0).reshape(2, 4))
    gives("A24 out_axes none", jax.pmap(lambda x: lax.psum(x, "i"), "i", out_axes=None), four)
    gives("A24 devices", jax.pmap(lambda x: x + lax.axis_index("i"), "i",
                                  devices=jax.devices()[3::-1]), four)
    refuses("A24 too many", ["should evenly divide the shape"],
            jax.pmap(lambda x: x, "i", devices=jax.devices()[:4]), jnp.arange(5.0))
    refuses("A24 sizes", ["is partitioned 4 times", "should evenly divide the shape"],
            jax.pmap(lambda x, y: x, "i"), four, jnp.arange(3.0))
    refuses("A24 nested", ["context mesh", "should match the mesh passed to shard_map"],
            jax.pmap(lambda r: jax.pmap(lambda x: x, "j")(r), "i"), jnp.ones((2, 2)))
    refuses("A24 unknown", ["Found an unbound axis name: q"],
            jax.pmap(lambda x: lax.psum(x, "q"), "i"), four)
    refuses("A24 prefix", ["pmap in_axes", "pytree structure error"],
            jax.pmap(lambda p, x: x, "i", in_axes=((0, 0, 0), 0)), ((four, four), four), four)
    refuses("A24 none", ["requires at least one argument with a mapped axis"],
            jax.pmap(lambda x: x, "i", in_axes=None), four)
    refuses("A24 axis_size", ["Specified axis_size 2 doesn't match received axis_size 4"],
            jax.pmap(lambda x: x, "i", axis_size=2), four)
    refuses("A24 no devices", ["'devices' argument to pmap must be non-empty"],
            lambda x: jax.pmap(lambda a: a, "i", devices=[])(x), four)


def main():
    for program in (a01_a02_linearize, a03_repeated_psum, a04_out_specs_promise,
                    a05_grads_of_invarying_params, a06_psum_transpose, a07_grad_of_shard_map,
                    a08_implicit_cast, a09_scan_carry, a11_gather_scatter, a12_ppermute,
                    a13_all_to_all_axis_index, a14_boundary, a15_elementwise_types, a16_dot_types,
                    a18_reshape, a19_movement, a20_vmap_of_explicit_axes, a22_a23_seed, a24_pmap,
                    axis_types, given_shardings):
        program()
    path = pathlib.Path(__file__).resolve().parent.parent / "tests/acceptance/recorded.json"
    source = f"jax {jax.__version__}, jaxlib {jax.lib.__version__}, numpy {np.__version__}, cpu"
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(case)}" for name, case in CASES.items())
    path.write_text(f'{{"source": {json.dumps(source)}, "cases": {{\n{lines}\n}}}}\n')
    print(f"{len(CASES)} cases")


if __name__ == "__main__":
    main()
