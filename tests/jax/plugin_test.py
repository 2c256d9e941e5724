"""Tests JAX on Tessera's devices through the PJRT plugin. Results are compared with JAX's own CPUs.

Exits with 77 if JAX is not installed.
"""
import contextlib
import functools
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "client/python/tessera_jax"), str(HERE.parent / "service")]
os.environ["JAX_PLATFORMS"] = "tessera,cpu"
os.environ["TESSERA_EMBEDDED"] = "4"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

try:
    import jax
except ImportError:
    print("JAX is not installed for this Python")
    sys.exit(77)
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import tessera_jax

# This program runs a long loop on a cluster whose worker is killed meanwhile.
KILLED = """
import signal, sys, threading, os
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp
tessera_jax.initialize()
x = jnp.arange(4.0)
jax.block_until_ready(jnp.sin(x))
run = jax.jit(lambda x: jax.lax.fori_loop(0, 2**31 - 1, lambda i, x: jnp.sin(x) + 1, x))
y = run(x)
print("running", flush=True)
sys.stdin.readline()
try:
    print(y)
except Exception as error:
    print("raised", type(error).__name__, error, flush=True)
"""


# This program reads an array that is replicated over two workers, after the executor of the first has
# been killed, and uses it on the device that is left. Then it reads an array that was sharded over both.
REPLICATED = """
import sys
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
tessera_jax.initialize()
mesh = Mesh(np.array(jax.devices()), ("x",))
step = jax.jit(lambda a: a + 1, out_shardings=NamedSharding(mesh, P()))
y = step(jnp.arange(1 << 16)).block_until_ready()
z = jax.jit(lambda a: a * 2, out_shardings=NamedSharding(mesh, P("x")))(y).block_until_ready()
wanted = np.arange(1 << 16) + 1
print("running", flush=True)
sys.stdin.readline()
print("read", bool((np.asarray(y) == wanted).all()), flush=True)
print("shards", [bool((np.asarray(s.data) == wanted).all()) for s in y.addressable_shards], flush=True)
there = jax.device_put(y, jax.devices()[1])
print("used", bool((np.asarray(jax.jit(lambda a: a * 2)(there)) == wanted * 2).all()), there.devices(), flush=True)
again = step(y)  # waits for the executor, and copies the array to its device
print("again", [bool((np.asarray(s.data) == wanted + 1).all()) for s in again.addressable_shards], flush=True)
try:
    print(np.asarray(z))
except Exception as error:
    print("raised", type(error).__name__, error, flush=True)
"""


# This program starts many steps and reads only the last result. Meanwhile something happens to the
# coordinator.
AHEAD = """
import sys
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp
tessera_jax.initialize()
step = jax.jit(lambda x, i: x + i, donate_argnums=0)
x = step(jnp.zeros(4, jnp.int32), 0).block_until_ready()
print("running", flush=True)
sys.stdin.readline()
for i in range({steps}):
    x = step(x, i)
    if i == 10:
        print("ahead", flush=True)
print("result", x, flush=True)
"""

# This program starts steps and reads the last result, while its link to the coordinator may be cut.
LINKED = """
import sys
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp, numpy as np
tessera_jax.initialize()
step = jax.jit(lambda x, i: x + i, donate_argnums=0)
other = jax.jit(lambda x: x * 2)
if {compiled}:
    other(jnp.zeros(4, jnp.int32))
x = step(jnp.zeros(4, jnp.int32), 0).block_until_ready()
print("running", flush=True)
sys.stdin.readline()
try:
    for i in range(20):
        x = step(x, i)
    y = other(x)
    print("result", np.asarray(x), np.asarray(y)[0], flush=True)
except Exception as error:
    print("raised", type(error).__name__, error, flush=True)
"""

# This program is stopped for longer than its lease, and then uses everything that it had.
STOPPED = """
import sys
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp, numpy as np
tessera_jax.initialize()
twice = jax.jit(lambda x: x * 2)
run = jax.jit(lambda x: jax.lax.fori_loop(0, 2**31 - 1, lambda i, x: jnp.sin(x) + 1, x))
given = jnp.arange(2.0) + 0
made = twice(given).block_until_ready()
running = run(given)
print("running", flush=True)
sys.stdin.readline()
for name, call in (("run", lambda: twice(given).block_until_ready()), ("read", lambda: np.asarray(made)),
                   ("wait", running.block_until_ready),
                   ("move", lambda: np.asarray(jax.device_put(given, jax.devices()[1])))):
    try:
        call()
        print(name, "= no error", flush=True)
    except Exception as error:
        print(name, "=", type(error).__name__, error, flush=True)
print("new =", np.asarray(twice(np.arange(3.0, dtype=np.float32))).tolist(), flush=True)
"""

# The coordinator keeps too few executables for these programs, so each call finds that its program has been dropped.
EVICTED = """
import sys
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp, numpy as np
tessera_jax.initialize()
steps = [jax.jit(lambda x, n=n: x * 2 + n, donate_argnums=0) for n in range(4)]
x = steps[0](np.ones(2, np.float32))
want = 2.0
for turn in range(3):
    for n, step in enumerate(steps):
        x, want = step(x), want * 2 + n
print("result", x.tolist() == [want] * 2, flush=True)
key = jax.jit(lambda: jnp.full(3, 7.0))
print("before", key().tolist(), flush=True)
sys.stdin.readline()
print("after", key().tolist(), steps[1](np.ones(2, np.float32)).tolist(), flush=True)
"""

# The results of these steps would need far more memory than the device has, but each step drops the
# result before it.
DROPPED = """
import sys
sys.path[:0] = {paths!r}
import tessera_jax, jax, jax.numpy as jnp
tessera_jax.initialize()
step = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ x), x))
x = jnp.zeros((256, 256))
for i in range(800):
    x = step(x)
print("result", float(x.sum()), flush=True)
"""


def run_python(program, **environment):
    env = {**os.environ, "TESSERA_EMBEDDED": "", "TESSERA_ADDRESS": "", **environment}
    return subprocess.Popen([sys.executable, "-c", program], env=env, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def await_line(process, line):
    for said in process.stdout:
        if said == line + "\n":
            return
    raise AssertionError(f"the program ended without '{line}'")


def sum_of_steps(steps):
    total = steps * (steps - 1) // 2
    return f"result [{total} {total} {total} {total}]"


class PluginTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        tessera_jax.initialize()
        cls.cpus = jax.devices("cpu")

    def expect_as_on_cpus(self, f, *args, rtol=1e-6):
        got = jax.jit(f)(*args)
        for leaf in jax.tree.leaves(got):
            self.assertEqual({d.platform for d in leaf.devices()}, {"tessera"})
        got = jax.device_get(got)
        jax.clear_caches()
        with jax.default_device(self.cpus[0]):
            want = jax.device_get(jax.jit(f)(*args))
        self.assertEqual(jax.tree.structure(got), jax.tree.structure(want))
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)

    def test_devices_are_those_of_the_cluster(self):
        devices = jax.devices()
        self.assertEqual([d.platform for d in devices], ["tessera"] * 4)
        self.assertEqual([d.coords for d in devices], [[0, i] for i in range(4)])
        self.assertEqual({d.worker for d in devices}, {"embedded"})
        self.assertEqual({d.device_kind for d in devices}, {"cpu"})
        self.assertEqual(devices[0].default_memory().kind, "device")

    def test_programs_are_as_on_cpus(self):
        x = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
        self.expect_as_on_cpus(lambda x: jnp.tanh(x) @ x.T + 1, x)
        self.expect_as_on_cpus(jax.value_and_grad(lambda x: jnp.sum(jax.nn.softmax(x) ** 2)), x)
        self.expect_as_on_cpus(lambda x: jax.lax.scan(lambda c, r: (c + r, jnp.sort(c)), x[0], x), x)
        self.expect_as_on_cpus(lambda k: jax.random.normal(jax.random.key(k), (5,)), 3)
        self.expect_as_on_cpus(lambda x: jnp.linalg.qr(x @ x.T)[1], x, rtol=1e-4)
        self.expect_as_on_cpus(lambda x: (x.astype(jnp.bfloat16), x > 0, jnp.zeros((0, 3))), x)

    def test_one_after_the_other_and_without_jit(self):
        x = jnp.arange(5.0)
        for _ in range(100):
            x = x + 1
        np.testing.assert_array_equal(x, np.arange(5.0, dtype=np.float32) + 100)
        x = x.at[2].set(0)
        self.assertEqual(float(x[2]), 0)

    def test_shardings_are_those_that_were_asked_for(self):
        mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
        x = np.arange(32, dtype=np.float32).reshape(4, 8)
        for spec in P("x", "y"), P("y"), P(None, ("x", "y")), P(("y", "x")), P():
            a = jax.device_put(x, NamedSharding(mesh, spec))
            np.testing.assert_array_equal(a, x)
            b = jax.jit(lambda a: a * 2)(a)
            self.assertTrue(b.sharding.is_equivalent_to(a.sharding, 2), (spec, b.sharding))
            for shard in b.addressable_shards:
                np.testing.assert_array_equal(shard.data, 2 * x[shard.index])
            c = jax.device_put(b, NamedSharding(mesh, P("y", "x")))
            self.assertEqual(c.sharding.spec, P("y", "x"))
            np.testing.assert_array_equal(c, 2 * x)
        # The order of this mesh differs from that of the devices.
        turned = jax.sharding.Mesh(np.array(jax.devices())[[2, 0, 3, 1]], ("x",))
        a = jax.device_put(x, NamedSharding(turned, P("x")))
        self.assertEqual({s.device.id: s.index[0].start for s in (a + 1).addressable_shards},
                         {2: 0, 0: 1, 3: 2, 1: 3})
        np.testing.assert_array_equal(a + 1, x + 1)

    def test_shard_map_and_pmap(self):
        mesh = jax.make_mesh((4,), ("x",))
        x = np.arange(8, dtype=np.float32)
        total = jax.jit(jax.shard_map(lambda a: jax.lax.psum(a, "x"), mesh=mesh, in_specs=P("x"), out_specs=P()))
        given = jax.device_put(x, NamedSharding(mesh, P("x")))
        np.testing.assert_array_equal(total(given), x.reshape(4, 2).sum(0))
        y = jax.pmap(lambda a: a - jax.lax.pmean(a, "i"), axis_name="i")(x.reshape(4, 2))
        np.testing.assert_array_equal(y, x.reshape(4, 2) - x.reshape(4, 2).mean(0))

    def test_shards_of_what_is_replicated_only_in_name_are_each_device_s(self):
        rows = np.arange(8.0, dtype=np.float32).reshape(4, 2)
        same = jax.pmap(lambda x: x, out_axes=None)(rows)
        self.assertTrue(same.is_fully_replicated)
        for i, shard in enumerate(same.addressable_shards):
            np.testing.assert_array_equal(shard.data, rows[i])
            np.testing.assert_array_equal(jax.device_put(shard.data, jax.devices()[(i + 1) % 4]), rows[i])
            np.testing.assert_array_equal(shard.data + 1, rows[i] + 1)

    def test_copies_of_one_device_s_array_are_put_together_on_the_devices(self):
        mesh = jax.make_mesh((4,), ("x",))
        alone = jnp.arange(3.0)
        everywhere = jax.device_put(alone, NamedSharding(mesh, P()))
        rows = jax.device_put(jnp.ones((4, 3)), NamedSharding(mesh, P("x")))
        for _ in range(2):  # used together with others and alone, in turns
            np.testing.assert_array_equal(jax.jit(jnp.add)(rows, everywhere), np.ones((4, 3)) + np.arange(3))
            np.testing.assert_array_equal(jax.jit(jnp.negative)(alone), -np.arange(3.0))

    def test_computations_under_explicit_meshes_and_arrays_of_nothing(self):
        with jax.set_mesh(jax.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))):
            np.testing.assert_array_equal(jnp.sort(jnp.array([3.0, 1, 2])), [1, 2, 3])
            self.assertEqual(jax.lax.reduce(jnp.ones(4), 0.0, lambda x, y: x + y * 1.0, (0,)), 4)
        for nothing in (jax.random.normal(jax.random.key(0), (0,)), jax.scipy.special.erf(jnp.zeros((0, 3)))):
            self.assertEqual(nothing.size, 0)

    def test_constraints_along_what_does_not_divide(self):
        rows = NamedSharding(jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,)), P("x"))
        f = jax.jit(lambda v: jax.lax.with_sharding_constraint(v * 2, rows).sum(0))
        np.testing.assert_array_equal(f(np.ones((5, 3), np.float32)), [10, 10, 10])

    def test_results_of_two_meshes_are_used_again(self):
        devices = np.array(jax.devices())
        a = jax.device_put(np.ones((4, 4)), NamedSharding(jax.sharding.Mesh(devices, "a"), P()))
        b = jax.device_put(np.ones((4, 4)), NamedSharding(jax.sharding.Mesh(devices.reshape(2, 2), ("x", "y")), P("y")))
        np.testing.assert_array_equal((a + b) + 1, np.full((4, 4), 3))

    def test_what_is_donated_and_used_twice_is_refused_and_stays(self):
        x = jnp.arange(4.0)
        with self.assertRaisesRegex(Exception, "the same buffer, which is donated"):
            jax.jit(lambda a, b: a + b, donate_argnums=0)(x, x)
        np.testing.assert_array_equal(x, np.arange(4))

    def test_compiled_programs_have_layouts_and_are_serialized(self):
        from jax.experimental import serialize_executable
        compiled = jax.jit(lambda a: a + 1).lower(jnp.ones((2, 3))).compile()
        self.assertEqual(compiled.output_formats.layout.major_to_minor, (0, 1))
        self.assertEqual(compiled.input_formats[0][0].layout.major_to_minor, (0, 1))
        again = serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled),
                                                          execution_devices=jax.devices()[:1])
        np.testing.assert_array_equal(again(jnp.ones((2, 3))), np.full((2, 3), 2))

    def test_sums_that_nobody_has_added_up(self):
        mesh = jax.make_mesh((2, 2), ("x", "y"))
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        a = jax.device_put(x, NamedSharding(mesh, P("x", "y")))
        b = jax.device_put(x, NamedSharding(mesh, P("y", None)))
        with jax.set_mesh(mesh):
            pending = jax.jit(lambda a, b: jnp.dot(a, b, out_sharding=P("x", None, unreduced={"y"})))(a, b)
            self.assertEqual(pending.sharding.spec, P("x", None, unreduced={"y"}))
            whole = jax.jit(lambda t: jax.reshard(t, P("x", None)))(pending)
        np.testing.assert_array_equal(whole, x @ x)
        # The shards are summands, which add up to the whole value.
        top, top_too, bottom, bottom_too = [np.asarray(s.data) for s in pending.addressable_shards]
        np.testing.assert_array_equal(np.concatenate([top + top_too, bottom + bottom_too]), x @ x)

    def test_devices_exchange_by_device_put(self):
        x = jax.device_put(np.arange(4.0, dtype=np.float32), jax.devices()[1])
        y = jax.device_put(x * 2, jax.devices()[3])
        self.assertEqual(y.devices(), {jax.devices()[3]})
        np.testing.assert_array_equal(y, [0, 2, 4, 6])
        z = jax.device_put(y, self.cpus[0]) + 1  # moved to JAX's own CPU and back
        np.testing.assert_array_equal(jax.device_put(z, jax.devices()[0]) * 2, [2, 6, 10, 14])

    def test_arrays_move_between_orders_of_the_same_devices(self):
        devices = np.array(jax.devices()[:4])
        value = np.arange(16.0).reshape(8, 2)
        homes = [NamedSharding(jax.sharding.Mesh(shaped, axes), spec) for shaped, axes, spec in (
            (devices, ("x",), P("x")),
            (devices[::-1], ("x",), P("x")),
            (devices[[2, 0, 3, 1]].reshape(2, 2), ("a", "b"), P("a", "b")),
            (devices.reshape(2, 2).T, ("a", "b"), P(("b", "a"))),
            (devices[::-1], ("x",), P()))]
        for home in homes:
            for other in homes:
                for donate in (False, True):
                    with self.subTest(home=home, other=other, donate=donate):
                        x = jax.device_put(value, home)
                        y = jax.device_put(x, other, donate=donate)
                        self.assertTrue(y.sharding.is_equivalent_to(other, 2))
                        np.testing.assert_array_equal(y, value)
                        for shard in y.addressable_shards:
                            np.testing.assert_array_equal(shard.data, value[shard.index])
                        if not donate:
                            np.testing.assert_array_equal(x, value)
                        np.testing.assert_array_equal(jax.jit(lambda a: a + 1)(y), value + 1)

    def test_donated_arrays_are_deleted(self):
        x = jnp.arange(4.0)
        y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
        self.assertTrue(x.is_deleted())
        with self.assertRaisesRegex(RuntimeError, "deleted"):
            print(x)
        np.testing.assert_array_equal(y, [1, 2, 3, 4])

    def test_programs_print_and_call(self):
        said = []

        def called(label, *values):
            said.append(label + " ".join(str(np.asarray(v)) for v in values))

        @jax.jit
        def f(x):
            jax.debug.callback(functools.partial(called, "x "), x, ordered=True)
            return jax.lax.fori_loop(
                0, 2, lambda i, c: (jax.debug.callback(functools.partial(called, "turn "), i, c), c + i)[1], x)

        self.assertEqual([float(v) for v in f(jnp.arange(2.0))], [1, 2])
        jax.grad(lambda x: (jax.debug.callback(functools.partial(called, "grad "), x), x**2)[1])(3.0)
        jax.vmap(lambda x: jax.debug.callback(functools.partial(called, "member "), x))(jnp.arange(2))
        jax.effects_barrier()
        self.assertEqual(said, ["x [0. 1.]", "turn 0 [0. 1.]", "turn 1 [0. 1.]", "grad 3.0", "member 0", "member 1"])
        with contextlib.redirect_stdout(io.StringIO()) as out:
            jax.jit(lambda x: jax.debug.print("x is {x:.1f}, {}", x + 1, x=x))(1.0)
            jax.effects_barrier()
        self.assertEqual(out.getvalue(), "x is 1.0, 2.0\n")

    @staticmethod
    def printed_by(f, *args):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            jax.block_until_ready(f(*args))
            jax.effects_barrier()
        return out.getvalue().splitlines()

    def test_every_call_in_a_loop_is_made(self):
        @jax.jit
        def every_turn(x):
            return jax.lax.fori_loop(0, 3000, lambda i, c: (jax.debug.print("turn {}", i), c + 1)[1], x)

        self.assertEqual(self.printed_by(every_turn, 0.0), [f"turn {i}" for i in range(3000)])

        @functools.partial(jax.jit, static_argnums=(1, 2))
        def some_turns(x, turns, every):
            def turn(i, c):
                jax.lax.cond(i % every == 0, lambda: jax.debug.print("{}: {}", i, c), lambda: None)
                return c + 1
            return jax.lax.fori_loop(0, turns, turn, x)

        self.assertEqual(self.printed_by(some_turns, 0.0, 3000, 500),
                         [f"{i}: {i}.0" for i in range(0, 3000, 500)])
        # The arguments of all turns would have 300 MiB.
        large = self.printed_by(some_turns, jnp.zeros(1 << 18), 300, 50)
        self.assertEqual([line.split(":")[0] for line in large], [str(i) for i in range(0, 300, 50)])

        @jax.jit
        def scanned(x):
            return jax.lax.scan(lambda c, i: (c + 1, jax.debug.print("{} {}", i, c)), x, jnp.arange(2500))[0]

        self.assertEqual(len(self.printed_by(jax.vmap(scanned), jnp.zeros(2))), 5000)

    def test_a_run_that_drops_calls_fails(self):
        def loop(x, turns):
            def turn(i, c):
                return (c + 1, jax.debug.print("{}: {}", i, c), here.append(sys._getframe().f_lineno))[0]
            return jax.lax.fori_loop(0, turns, turn, x)

        here = []
        f = jax.jit(loop)
        self.assertEqual(len(self.printed_by(f, 0.0, 10_000)), 10_000)
        dropped = f"CALLBACKS_DROPPED: callback at plugin_test.py:{here[0]}: {{}} of its {{}} calls in this run"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            y = f(0.0, 10_007)
            with self.assertRaisesRegex(jax.errors.JaxRuntimeError, dropped.format(7, 10007)):
                y.block_until_ready()
            with self.assertRaisesRegex(jax.errors.JaxRuntimeError, dropped.format(7, 10007)):
                print(y + 1)  # runs that use the result fail, too
            with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "at most 10000 calls and 64 MiB"):
                jax.effects_barrier()
        self.assertEqual(out.getvalue(), "")
        self.assertEqual(len(self.printed_by(f, 0.0, 5)), 5)  # the next run does not fail
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, dropped.format(137, 200)):
            f(jnp.zeros(1 << 18), 200).block_until_ready()
        self.assertEqual(len(self.printed_by(f, jnp.zeros(1 << 18), 63)), 63)

        # A callback may run such a program itself.
        said = []
        outer = jax.jit(lambda x: jax.debug.callback(lambda x: said.append(float(f(float(x), 2))), x))
        self.assertEqual(self.printed_by(lambda: (outer(3.0), jax.effects_barrier())), ["0: 3.0", "1: 4.0"])
        self.assertEqual(said, [5])

        mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        sharded = jax.device_put(jnp.zeros(8), NamedSharding(mesh, P("x")))
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, dropped.format(1, 10001)):
            f(sharded, 10_001).block_until_ready()
        on_each = jax.jit(jax.shard_map(loop, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x")))
        self.assertEqual(len(self.printed_by(on_each, sharded, 100)), 400)
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "on one device were dropped"):
            on_each(sharded, 10_001).block_until_ready()
        self.assertEqual(len(self.printed_by(on_each, sharded, 2)), 8)

    def test_programs_with_ordered_callbacks_run_after_one_has_failed(self):
        called = []
        count = jax.jit(lambda n, x: jax.lax.fori_loop(0, n, lambda i, x: (
            jax.debug.callback(called.append, i, ordered=True), x + 1)[1], x))
        for _ in range(2):
            with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "CALLBACKS_DROPPED"):
                count(10_001, 0.0).block_until_ready()
            self.assertEqual(float(count(3, 0.0)), 3)
            jax.effects_barrier()
        self.assertEqual([int(i) for i in called], [0, 1, 2] * 2)
        # The barrier tells the error once.
        count(10_001, 0.0)
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "CALLBACKS_DROPPED"):
            jax.effects_barrier()
        jax.effects_barrier()

    def test_programs_go_on_with_what_callbacks_return(self):
        scalar = jax.ShapeDtypeStruct((), np.float32)

        def sine(x):
            return jax.pure_callback(lambda x: np.sin(x).astype(np.float32), jax.ShapeDtypeStruct(x.shape, x.dtype), x,
                                     vmap_method="expand_dims")

        x = jnp.arange(8.0)
        np.testing.assert_array_equal(jax.jit(lambda x: sine(sine(x) + 1) * 2)(x),
                                      np.sin(np.sin(np.arange(8, dtype=np.float32)) + 1) * 2)
        np.testing.assert_array_equal(jax.jit(jax.vmap(jax.jit(sine)))(x.reshape(2, 4)).ravel(), np.sin(x))
        mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        on_four = jax.device_put(x, NamedSharding(mesh, P(("a", "b"))))
        donated = jax.jit(lambda x: (sine(x + 1) + x, jnp.int8(2)), donate_argnums=0)(on_four)
        np.testing.assert_array_equal(donated[0],
                                      np.sin(np.arange(1, 9, dtype=np.float32)) + np.arange(8, dtype=np.float32))
        self.assertTrue(on_four.is_deleted())

        seen = []
        count = jax.jit(lambda x: jax.experimental.io_callback(
            lambda x: (seen.append(float(x)), np.float32(len(seen)))[1], scalar, x, ordered=True))
        self.assertEqual([float(count(v)) for v in (5.0, 7.0)], [1, 2])
        self.assertEqual(seen, [5, 7])

        def fails(x):
            raise ValueError(f"{x} is not to be had")

        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "ValueError: 3.0 is not to be had"):
            jax.jit(lambda x: jax.pure_callback(fails, scalar, x))(3.0).block_until_ready()
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "Incorrect output shape for return value #0"):
            float(jax.jit(lambda x: jax.pure_callback(lambda x: np.zeros(3), scalar, x))(3.0))

        # In a branch or a loop a callback can only fail, or return what the program already
        # assumes: NaN or zeros.
        guessed = jax.jit(lambda x: jax.lax.fori_loop(0, 2, lambda i, c: (c[0] + jax.pure_callback(
            lambda i: np.float32(np.nan), scalar, i), c[1] + jax.pure_callback(
                lambda i: 0, jax.ShapeDtypeStruct((), np.int32), i)), x))((3.0, 7))
        self.assertTrue(np.isnan(guessed[0]))
        self.assertEqual(guessed[1], 7)
        checked = jax.jit(lambda x: jax.lax.cond(x > 2, lambda x: jax.pure_callback(fails, scalar, x), jnp.sin, x))
        np.testing.assert_allclose(checked(1.0), np.sin(1.0), rtol=1e-6)
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "ValueError: 3.0 is not to be had"):
            (checked(3.0) + 1).block_until_ready()
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "call it outside of loops"):
            jax.jit(lambda x: jax.lax.fori_loop(0, 2, lambda i, c: sine(c), x))(3.0).block_until_ready()

        def until(last, fails_at):
            def turn(c):
                return jax.lax.cond(c == fails_at, lambda c: jax.pure_callback(fails, scalar, c), lambda c: c + 1, c)
            return jax.lax.while_loop(lambda c: c < last, turn, 0.0)

        self.assertEqual(jax.jit(until)(900.0, -1.0), 900)
        self.assertEqual(jax.jit(until)(20_000.0, -1.0), 20_000)
        with self.assertRaisesRegex(jax.errors.JaxRuntimeError, "ValueError: 15000.0 is not to be had"):
            float(jax.jit(until)(20_000.0, 15_000.0))

    def test_a_mesh_of_one_device(self):
        mesh = jax.make_mesh((1,), ("x",))
        f = jax.shard_map(lambda x: x + jax.lax.axis_index("x"), mesh=mesh, in_specs=P(), out_specs=P("x"))
        np.testing.assert_array_equal(jax.jit(f)(jnp.arange(4.0)), np.arange(4))

    def test_what_is_to_be_printed_is_printed_at_the_end(self):
        found = run_python(f"import sys; sys.path[:0] = {sys.path[:2]!r}\n"
                           "import tessera_jax, jax; tessera_jax.initialize()\n"
                           "jax.jit(lambda x: jax.debug.print('last {}', x))(1)", TESSERA_EMBEDDED="1")
        said, _ = found.communicate(timeout=100)
        self.assertIn("last 1\n", said)
        self.assertEqual(found.returncode, 0, said)

    def test_ahead_of_time(self):
        compiled = jax.jit(lambda x: x @ x).lower(jnp.ones((8, 8))).compile()
        np.testing.assert_array_equal(compiled(jnp.ones((8, 8))), np.full((8, 8), 8))
        stats = compiled.memory_analysis()
        self.assertEqual((stats.argument_size_in_bytes, stats.output_size_in_bytes), (256, 256))
        self.assertGreaterEqual(compiled.cost_analysis()["flops"], 2 * 8**3)
        self.assertIn("dot_general", tessera_jax.explain(compiled))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            tessera_jax.visualize(compiled)
        self.assertIn("memory", said.getvalue())
        rows = NamedSharding(jax.make_mesh((4,), ("x",)), P("x"))
        doubled = jax.jit(lambda x: x * 2, in_shardings=rows).lower(jnp.ones(8)).compile()
        self.assertIn("<svg", tessera_jax.visualize_svg(doubled))
        with self.assertRaisesRegex(ValueError, "not compiled for Tessera"):
            with jax.default_device(jax.devices("cpu")[0]):
                tessera_jax.explain(jax.jit(jnp.sin).lower(1.0).compile())

    def test_what_cannot_be_said_names_itself(self):
        with self.assertRaisesRegex(Exception, "No such compile option: 'colour'"):
            jax.jit(jnp.sin, compiler_options={"colour": "red"})(1.0)

    def test_nothing_is_registered_without_a_cluster(self):
        found = run_python(f"import sys; sys.path[:0] = {sys.path[:2]!r}\n"
                           "import tessera_jax, jax; tessera_jax.initialize(); print(jax.devices())",
                           JAX_PLATFORMS="")
        said, _ = found.communicate(timeout=100)
        self.assertIn("CpuDevice", said)

    def test_who_wants_tessera_and_names_no_cluster_is_told(self):
        found = run_python(f"import sys; sys.path[:0] = {sys.path[:2]!r}\n"
                           "import tessera_jax, jax; tessera_jax.initialize(); print(jax.devices())",
                           JAX_PLATFORMS="tessera")
        said, _ = found.communicate(timeout=100)
        self.assertIn("set TESSERA_ADDRESS to a coordinator's HOST:PORT", said)

    def test_a_worker_that_dies_is_named(self):
        import daemons
        with daemons.Cluster(workers=1, devices=1) as cluster:
            found = run_python(KILLED.format(paths=sys.path[:2]), TESSERA_ADDRESS=cluster.address)
            try:
                await_line(found, "running")
                cluster.kill_worker(0)
                said, _ = found.communicate("\n", timeout=100)
            finally:
                found.kill()
        self.assertRegex(said, r"raised JaxRuntimeError (ABORTED|UNAVAILABLE): WORKER_LOST: .*w0")

    def test_what_another_worker_has_too_outlives_a_worker(self):
        import daemons
        with daemons.Cluster(workers=2, devices=1) as cluster:
            first = next(d["worker"] for d in cluster.healthy_devices() if d.get("id", "0") == "0")
            executor, = cluster.executor_pids(int(first[1:]))
            found = run_python(REPLICATED.format(paths=sys.path[:2]), TESSERA_ADDRESS=cluster.address)
            try:
                await_line(found, "running")
                os.kill(executor, signal.SIGKILL)
                said, _ = found.communicate("\n", timeout=100)
            finally:
                found.kill()
        self.assertIn("read True", said)
        self.assertIn("shards [True, True]", said)
        self.assertIn("used True", said)
        self.assertIn("again [True, True]", said)
        self.assertRegex(said, rf"raised JaxRuntimeError .*WORKER_LOST: .*lost with its shard \[0:32768\], which was "
                               rf"only on device 0 of worker {first}")

    def test_steps_outlast_their_coordinator(self):
        import daemons
        steps = 2000
        with tempfile.TemporaryDirectory() as folder, daemons.Cluster(
                workers=1, devices=1, coordinator_flags=[f"--state-dir={folder}/state"]) as cluster:
            found = run_python(AHEAD.format(paths=sys.path[:2], steps=steps), TESSERA_ADDRESS=cluster.address)
            try:
                await_line(found, "running")
                found.stdin.write("\n")
                found.stdin.flush()
                await_line(found, "ahead")
                cluster.restart_coordinator()
                said, _ = found.communicate(timeout=100)
            finally:
                found.kill()
        self.assertIn(sum_of_steps(steps), said)

    def test_steps_go_on_ahead_of_a_coordinator_that_pauses(self):
        import daemons
        with daemons.Cluster(workers=1, devices=1) as cluster:
            found = run_python(AHEAD.format(paths=sys.path[:2], steps=200), TESSERA_ADDRESS=cluster.address)
            coordinator = cluster.processes["coordinator"].pid
            try:
                await_line(found, "running")
                daemons.freeze(coordinator)
                found.stdin.write("\n")
                found.stdin.flush()
                # ahead with steps that the coordinator has not accepted yet
                await_line(found, "ahead")
                os.kill(coordinator, signal.SIGCONT)
                said, _ = found.communicate(timeout=100)
            finally:
                os.kill(coordinator, signal.SIGCONT)
                found.kill()
        self.assertIn(sum_of_steps(200), said)

    def cut(self, way, **environment):
        """Runs LINKED while its link to the coordinator is cut, for TESSERA_CUT_SECONDS or 3 seconds or, if the
        environment of the program is given, until it ends. Returns what the program says, and the link's address."""
        import daemons, tcp_proxy
        with daemons.Cluster(workers=1, devices=1, coordinator_flags=["--session-grace-ms=60000"]) as cluster, \
                tcp_proxy.Proxy(cluster.address) as proxy:
            # While nothing comes through, a compilation would wait until keepalive gives the connection up.
            program = LINKED.format(paths=sys.path[:2], compiled=bool(environment))
            found = run_python(program, TESSERA_ADDRESS=proxy.address, **environment)
            try:
                await_line(found, "running")
                proxy.go_away() if way == "refused" else proxy.hold()
                found.stdin.write("\n")
                found.stdin.flush()
                if not environment:
                    threading.Event().wait(float(os.environ.get("TESSERA_CUT_SECONDS", 3)))
                    proxy.come_back() if way == "refused" else proxy.let_through()
                said = found.stdout.readline()
                proxy.come_back()
                proxy.let_through()
                found.communicate(timeout=100)
            finally:
                found.kill()
        return said, proxy.address

    def test_steps_go_on_after_the_link_was_cut(self):
        for way in "refused", "silent":
            with self.subTest(way=way):
                said, _ = self.cut(way)
                self.assertEqual(said, "result [190 190 190 190] 380\n")

    def test_a_link_that_stays_cut_is_named_with_its_time(self):
        for way in "refused", "silent":
            with self.subTest(way=way):
                said, address = self.cut(way, TESSERA_RECONNECT="2")
                self.assertRegex(said, "raised JaxRuntimeError UNAVAILABLE: UNREACHABLE: the coordinator at "
                                       f"{address} does not answer: .*; a? ?[A-Za-z]+ has waited for it for [0-9.]+s")

    def test_a_program_that_was_stopped_for_longer_than_its_lease_is_told(self):
        import daemons
        with daemons.Cluster(workers=1, devices=2, coordinator_flags=["--session-lease-ms=1500"]) as cluster:
            found = run_python(STOPPED.format(paths=sys.path[:2]), TESSERA_ADDRESS=cluster.address)
            try:
                await_line(found, "running")
                daemons.freeze(found.pid)
                with cluster.connect() as client:
                    daemons.eventually(lambda: not client.call("tessera.v1.SessionService/ListSessions").get("sessions"))
                os.kill(found.pid, signal.SIGCONT)
                said, _ = found.communicate("\n", timeout=100)
            finally:
                found.kill()
        ends = dict(line.split(" = ", 1) for line in said.splitlines() if " = " in line)
        self.assertEqual(ends.pop("new"), "[0.0, 2.0, 4.0]", said)
        self.assertEqual(set(ends), {"run", "read", "wait", "move"}, said)
        for name, text in ends.items():
            self.assertRegex(text, r"JaxRuntimeError NOT_FOUND: SESSION_NOT_FOUND: .*the lease \(1.5 s\) of session "
                                   r"[0-9]+ ended while this process did not run", name)

    def test_programs_come_back_that_the_coordinator_has_dropped(self):
        import daemons
        with daemons.Cluster(workers=1, devices=1, coordinator_flags=["--executables-max=2", "--canary-interval-ms=0"]) as cluster:
            found = run_python(EVICTED.format(paths=sys.path[:2]), TESSERA_ADDRESS=cluster.address)
            try:
                await_line(found, "result True")
                await_line(found, "before [7.0, 7.0, 7.0]")
                cluster.restart_coordinator()  # without state
                said, _ = found.communicate("\n", timeout=100)
            finally:
                found.kill()
        self.assertIn("after [7.0, 7.0, 7.0] [3.0, 3.0]", said)

    def test_a_cluster_with_certificates_and_tokens(self):
        import daemons
        with daemons.Cluster(workers=1, devices=2, secure=True) as cluster:
            def run(**environment):
                found = run_python(AHEAD.format(paths=sys.path[:2], steps=20), TESSERA_ADDRESS=cluster.address,
                                   TESSERA_CA_FILE=str(cluster.ca), **environment)
                said, _ = found.communicate("\n", timeout=100)
                return said

            self.assertIn(sum_of_steps(20), run(TESSERA_TOKEN=cluster.token))
            self.assertRegex(run(TESSERA_TOKEN="tsr_wrong"), "UNAUTHENTICATED")

    def test_what_is_dropped_is_freed_however_far_ahead_the_client_is(self):
        import daemons
        with daemons.Cluster(workers=1, devices=1) as cluster:
            found = run_python(DROPPED.format(paths=sys.path[:2]), TESSERA_ADDRESS=cluster.address)
            try:
                said, _ = found.communicate(timeout=100)
            finally:
                found.kill()
        self.assertIn("result 0.0", said)


if __name__ == "__main__":
    unittest.main()
