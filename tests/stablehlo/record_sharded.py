"""Writes sharded programs that JAX exports, with their arguments and JAX's results.

  python tests/stablehlo/record_sharded.py            # tests/stablehlo/recorded/sharded.jsonl
  python tests/stablehlo/record_sharded.py --seeds    # also the seeds in tests/fuzz/stablehlo

Each line is a program: its name, and its bytes, arguments and results as base64. The script needs
jax 0.10.2. The results come from four CPU devices.
"""
import base64
import json
import os
import pathlib
import sys
from functools import partial

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.interpreters import mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jaxlib import _jax
from jaxlib.mlir import ir

jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
HERE = pathlib.Path(__file__).parent
SEEDS = HERE.parent / "fuzz" / "stablehlo"
NAMES = {"float32": "f32", "int32": "i32", "uint32": "ui32", "bool": "i1"}

cases = {}  # maps a name to (bytes, args, results)


def mesh_of(shape, names, types=AxisType.Auto):
    types = (types,) * len(shape) if isinstance(types, AxisType) else types
    return jax.make_mesh(shape, names, axis_types=types)


M22 = mesh_of((2, 2), ("x", "y"))
M41 = mesh_of((4, 1), ("x", "y"))
rng = np.random.default_rng(7)


def f32(*shape):
    return np.round(rng.uniform(-2, 2, shape) * 64).astype(np.float32) / 64


def add(name, fn, *args, run=None, shardy=True, mesh=None, specs=None, **kwargs):
    """Adds a case. `run` computes the results if `fn` itself does not run on CPUs."""
    jax.config.update("jax_use_shardy_partitioner", shardy)
    jitted = fn if hasattr(fn, "lower") else jax.jit(fn)
    given = args
    if specs is not None:
        given = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(args, specs)]
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding if specs else None)
             for a in given]
    exported = export.export(jitted, **kwargs)(*types)
    got = (run or jitted)(*given)
    cases[name] = (exported.mlir_module_serialized, args, jax.tree.leaves(got))
    jax.config.update("jax_use_shardy_partitioner", True)


def serialized(text):
    with mlir.make_ir_context():
        return _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), "1.13.0", True)


def add_text(name, text, args, run):
    cases[name] = (serialized(text), args, jax.tree.leaves(run(*args)))


# ---- jit with shardings. -------------------------------------------------------------------------
def layer(a, b):
    return jnp.tanh(a @ b)


for label, m in (("2x2", M22), ("4x1", M41)):
    s = lambda *spec, m=m: NamedSharding(m, P(*spec))
    add(f"jit_layer_{label}",
        jax.jit(layer, in_shardings=(s("x", "y"), s("y")), out_shardings=s("x")),
        f32(8, 8), f32(8, 4))

    def step(w1, w2, x, y, s=s):
        def loss(w1, w2):
            h = lax.with_sharding_constraint(jnp.maximum(x @ w1, 0), s("x", "y"))
            return jnp.mean((h @ w2 - y) ** 2)
        value, (g1, g2) = jax.value_and_grad(loss, (0, 1))(w1, w2)
        return value, w1 - 0.25 * g1, w2 - 0.25 * g2
    add(f"jit_step_{label}",
        jax.jit(step, in_shardings=(s(None, "y"), s("y"), s("x"), s("x")),
                out_shardings=(s(), s(None, "y"), s("y"))),
        f32(4, 8), f32(8, 4), f32(8, 4), f32(8, 4))

s22 = lambda *spec: NamedSharding(M22, P(*spec))
add("jit_unconstrained",
    jax.jit(lambda a: lax.with_sharding_constraint(jnp.sin(a), s22("x", P.UNCONSTRAINED)) * 2,
            in_shardings=(s22(("y", "x")),)), f32(8, 8))
add("jit_two_axes_on_a_dim",
    jax.jit(lambda a: a.sum(1), in_shardings=(s22(("x", "y")),), out_shardings=s22(("y", "x"))),
    f32(8, 4))
add("jit_result_is_argument",
    jax.jit(lambda a: (a, a, a + 1), in_shardings=(s22("x"),),
            out_shardings=(s22("y"), s22(None, "x"), s22("y"))), f32(4, 4))
inner = jax.jit(lambda a: a * a, in_shardings=(s22(None, "x"),), out_shardings=s22("y"))
add("jit_within_jit", jax.jit(lambda a: inner(a) + inner(a + 1), in_shardings=(s22("x"),)),
    f32(4, 4))
M4 = mesh_of((4,), ("a",))
add("jit_two_meshes",
    jax.jit(lambda a: lax.with_sharding_constraint(jnp.sin(a), NamedSharding(M4, P("a"))),
            in_shardings=(s22("x", "y"),)), f32(8, 8))

# ---- Explicit axes. ------------------------------------------------------------------------------
ME = mesh_of((2, 2), ("x", "y"), AxisType.Explicit)
with jax.set_mesh(ME):
    add("explicit_reshard",
        lambda a, b: jax.sharding.reshard(
            jnp.sum(jnp.dot(a, b, out_sharding=P("x", None)), axis=1), P("y")),
        f32(8, 8), f32(8, 4), mesh=ME, specs=(P("x", "y"), P("y", None)))
    add("explicit_grad",
        jax.grad(lambda w, x: jnp.sum(jnp.tanh(jnp.dot(x, w, out_sharding=P("x", "y"))))),
        f32(4, 8), f32(8, 4), mesh=ME, specs=(P(None, "y"), P("x", None)))
MX = mesh_of((2, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
with jax.set_mesh(MX):
    add("explicit_and_auto", lambda a: jnp.sin(a) + jnp.cos(a), f32(8, 8), mesh=MX,
        specs=(P("x", None),))


# ---- shard_map. ----------------------------------------------------------------------------------
def mapped(in_specs, out_specs, mesh=M22, **kwargs):
    return partial(jax.shard_map, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **kwargs)


@mapped((P("x", "y"), P("y")), P("x"))
def matmul(a, b):
    return lax.psum(a @ b, "y")


@mapped((P("x", "y"), P("y")), P("x"), mesh=M41)
def matmul_4x1(a, b):
    return lax.psum(a @ b + lax.pmean(b, "x").sum(), "y")


add("map_psum", matmul, f32(8, 8), f32(8, 4))
add("map_psum_4x1", matmul_4x1, f32(8, 8), f32(8, 4))
add("map_grad", jax.grad(lambda a, b: jnp.sum(jnp.sin(matmul(a, b))), (0, 1)), f32(8, 8), f32(8, 4))


@mapped((P("x", "y"),), P("x", "y"), check_vma=False)
def gathers(a):
    rows = lax.all_gather(a, "y", axis=0, tiled=True)
    all4 = lax.all_gather(a, ("y", "x"))
    return rows[:4] + rows[4:] + jnp.einsum("n,nij->ij", jnp.arange(4.0), all4)


@mapped((P("x", "y"),), (P(("x", "y")), P(("y", "x"))), check_vma=False)
def scatters(a):
    return (lax.psum_scatter(a, ("x", "y"), scatter_dimension=0, tiled=True),
            lax.psum_scatter(a.reshape(2, 2, 4), "y", scatter_dimension=0))


@mapped((P("x", "y"),), (P("x", "y"), P("x", "y"), P("x", "y")), check_vma=False)
def all_to_alls(a):
    return (lax.all_to_all(a, "x", 0, 1, tiled=True),
            lax.all_to_all(a.reshape(2, 2, 4), "y", 0, 1).reshape(4, 4),
            lax.all_to_all(a, ("y", "x"), 1, 0, tiled=True))


@mapped((P("x", "y"),), P("x", "y"), check_vma=False)
def permutes(a):
    along_x = lax.ppermute(a, "x", [(0, 1), (1, 0)])
    along_y = lax.ppermute(a, "y", [(0, 1)])
    return along_x + 2 * along_y + 3 * lax.ppermute(a, ("x", "y"), [(0, 1), (1, 2), (2, 3)])


@mapped((P("x", "y"),), P("x", "y"), check_vma=False)
def extrema(a):
    i = lax.axis_index("x") * 10 + lax.axis_index("y") + lax.axis_index(("y", "x")) * 100
    return lax.pmax(a, ("x", "y")) + lax.pmin(a, "x") + i


def broadcast_on(source):
    def run(a):
        blocks = [a[:, :4], a[:, 4:]]
        return jnp.concatenate([blocks[source]] * 2, axis=1)
    return run


@mapped((P("x", "y"),), P("x", "y"), check_vma=False)
def pbroadcast(a):
    return lax.pbroadcast(a, "y", source=1)


for fn in (gathers, scatters, all_to_alls, permutes, extrema):
    add(f"map_{fn.__name__}", fn, f32(8, 8))
add("map_pbroadcast", pbroadcast, f32(8, 8), run=broadcast_on(1), platforms=("cuda",))


@mapped((P("x"),), (P(), P("x")), check_vma=False)
def scans(a):
    return lax.scan(lambda c, row: (c + lax.psum(row.sum(), "x"), c), jnp.float32(0), a)


@mapped((P("x"),), P("x"), axis_names={"x"})
def partially(a):
    return lax.psum(a, "x") * (1 + lax.axis_index("x"))


add("map_scan", scans, f32(8, 4))
add("map_partially_manual", partially, f32(8, 8))
add("map_within_shardings",
    jax.jit(lambda a, b: jnp.tanh(matmul(a * 2, b)), in_shardings=(s22("y", "x"), s22()),
            out_shardings=s22("y", "x")), f32(8, 8), f32(8, 4))

@mapped((P("x"), P("x")), P("x"), mesh=M41)
def ring(q, k):
    def step(_, carry):
        total, k = carry
        next_k = lax.ppermute(k, "x", [(i, (i + 1) % 4) for i in range(4)])
        return total + jnp.tanh(q @ k.T) @ k, next_k
    return lax.fori_loop(0, 4, step, (jnp.zeros_like(q), k))[0]


@mapped((P("x", "y"), P()), P("x", "y"), check_vma=False)
def branches(a, i):
    return lax.cond(i > 0, lambda a: lax.psum(a, "x"), lambda a: lax.ppermute(a, "y", [(1, 0)]), a)


@mapped((P("x"),), P("x"), axis_names={"x"})
def nested(a):
    @partial(jax.shard_map, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
    def within(b):
        return b + lax.psum(b, "y") * lax.axis_index("y")
    return within(a) + lax.psum(a, "x")


def loss(w, x, y):
    @mapped((P(), P("x"), P("x")), P(), mesh=M41)
    def mapped_loss(w, x, y):
        return lax.pmean(jnp.mean((jnp.tanh(x @ w) - y) ** 2), "x")
    return mapped_loss(w, x, y)


def loss_unchecked(w, x):
    @mapped((P(None, "y"), P("x")), P("x", "y"), check_vma=False)
    def mapped_loss(w, x):
        whole = lax.all_gather(w, "y", axis=1, tiled=True)
        return jnp.tanh(x @ whole)[:, ::2] * lax.psum(w.sum(), "x")
    return jnp.sum(mapped_loss(w, x))


@mapped((P("x", "y"), P("x", "y")), (P(None, "y"), P("x"), P("x", "y")), check_vma=False)
def dtypes(a, b):
    return lax.psum(a, "x"), lax.pmax(b, "y"), lax.all_gather(b, "x", tiled=True, axis=1)[:, 1:5]


def ints(*shape):
    return rng.integers(-5, 5, shape).astype(np.int32)


add("map_ring", ring, f32(8, 4), f32(8, 4))
add("map_branches", branches, f32(8, 8), np.int32(1))
with jax.set_mesh(M22):
    add("map_nested", nested, f32(8, 8))
add("map_grad_of_mean", jax.value_and_grad(loss), f32(4, 2), f32(8, 4), f32(8, 2))
add("map_grad_unchecked", jax.grad(loss_unchecked, (0, 1)), f32(4, 4), f32(4, 4))
add("map_integers", dtypes, ints(8, 8), ints(8, 8) > 0)
add("map_in_scan", lambda a, b: lax.scan(lambda c, w: (jnp.sin(matmul(c, w) @ w.T), None), a, b)[0],
    f32(8, 8), f32(3, 8, 4))
add("map_vmapped", jax.vmap(matmul), f32(3, 8, 8), f32(3, 8, 4))
add("map_remat", jax.grad(lambda a, b: jnp.sum(jax.checkpoint(matmul)(jnp.sin(a), b) ** 2)),
    f32(8, 8), f32(8, 4))


def small(*shape):
    return f32(*shape) / 4


def attention(wq, wk, wv, wo, x):
    """A layer of attention whose parameters are sharded over all devices."""
    def heads(w):
        return lax.with_sharding_constraint(jnp.einsum("bsd,dhk->bshk", x, w), s22("x", None, "y"))
    q, k, v = heads(wq), heads(wk), heads(wv)
    p = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, k), axis=-1)
    return x + jnp.einsum("bhst,bthk,hkd->bsd", p, v, wo)


def attention_step(params, x):
    value, grads = jax.value_and_grad(lambda p: jnp.mean(attention(*p, x) ** 2))(params)
    return value, jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)


FSDP = (s22("x", "y"),) * 3 + (s22("y", None, "x"),)
jit_attention = jax.jit(lambda a, b, c, d, x: attention_step((a, b, c, d), x),
                        in_shardings=(*FSDP, s22("x")), out_shardings=(s22(), FSDP))
add("jit_attention", jit_attention, small(8, 2, 4), small(8, 2, 4), small(8, 2, 4), small(2, 4, 8),
    small(4, 4, 8))

# ---- GSPMD. --------------------------------------------------------------------------------------
add("gspmd_jit",
    jax.jit(lambda a: lax.with_sharding_constraint(jnp.sin(a), s22("x", P.UNCONSTRAINED)) * 2,
            in_shardings=(s22(("y", "x")),), out_shardings=s22(None, "y")), f32(8, 8), shardy=False)
add("gspmd_map", lambda a: gathers(a) + permutes(a) + extrema(a), f32(8, 8), shardy=False)
add("gspmd_map_psum", matmul, f32(8, 8), f32(8, 4), shardy=False)
add("gspmd_partially_manual",
    mapped((P("x"),), P("x"), axis_names={"x"})(lambda a: lax.psum(a, "x")), f32(8, 8),
    shardy=False)
add("gspmd_attention", jit_attention, *[small(8, 2, 4) for _ in range(3)], small(2, 4, 8),
    small(4, 4, 8), shardy=False)

# Older versions of JAX wrote programs like these.
add_text("gspmd_v1", """
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x4xf32> {mhlo.sharding = "{devices=[2,2]0,1,2,3}"})
      -> (tensor<4x4xf32> {mhlo.sharding = "{devices=[1,2,2]0,2,1,3 last_tile_dim_replicate}"}) {
    %0 = stablehlo.custom_call @Sharding(%arg0) {mhlo.sharding =
        "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = "{manual}"} :
        (tensor<4x4xf32>) -> tensor<2x4xf32>
    %2 = "stablehlo.collective_permute"(%1) {channel_handle =
        #stablehlo.channel_handle<handle = 1, type = 0>,
        source_target_pairs = dense<[[0, 2], [2, 0], [1, 3], [3, 1]]> :
        tensor<4x2xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = "{manual}"} : (tensor<2x4xf32>) ->
        tensor<2x4xf32>
    %4 = stablehlo.custom_call @SPMDShardToFullShape(%3) {mhlo.sharding =
        "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"} : (tensor<2x4xf32>) -> tensor<4x4xf32>
    return %4 : tensor<4x4xf32>
  }
}""", [f32(4, 4)], lambda a: np.concatenate([a[2:], a[:2]]))
add_text("frontend_attributes", """
module @m attributes {mhlo.frontend_attributes = {xla.sdy.meshes =
    "{mesh = #sdy.mesh<[\\22x\\22=2, \\22y\\22=2]>}"}, mhlo.num_partitions = 4 : i32} {
  func.func public @main(%arg0: tensor<8x8xf32> {mhlo.frontend_attributes = {xla.sdy.sharding =
      "#sdy.sharding<@mesh, [{\\22x\\22}, {?}]>"}}) -> tensor<8x8xf32> {
    %0 = stablehlo.custom_call @Sharding(%arg0) {mhlo.frontend_attributes = {xla.sdy.sharding =
        "#sdy.sharding_per_value<[<@mesh, [{\\22y\\22}, {}]>]>"}} : (tensor<8x8xf32>) ->
        tensor<8x8xf32>
    %1 = stablehlo.custom_call @xla.sdy.GlobalToLocalShape(%0) {mhlo.frontend_attributes =
        {xla.sdy.in_shardings = "#sdy.sharding_per_value<[<@mesh, [{\\22x\\22}, {\\22y\\22}]>]>",
        xla.sdy.manual_axes = "#sdy<manual_axes{\\22x\\22, \\22y\\22}>"}} : (tensor<8x8xf32>) ->
        tensor<4x4xf32>
    %2 = call @xla.sdy.manual_computation_body(%1) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = stablehlo.custom_call @xla.sdy.LocalToGlobalShape(%2) {mhlo.frontend_attributes =
        {xla.sdy.out_shardings = "#sdy.sharding_per_value<[<@mesh, [{\\22x\\22}, {\\22y\\22}]>]>",
        xla.sdy.manual_axes = "#sdy<manual_axes{\\22x\\22, \\22y\\22}>"}} : (tensor<4x4xf32>) ->
        tensor<8x8xf32>
    %4 = stablehlo.custom_call @xla.sdy.FuncResultSharding(%3) {mhlo.frontend_attributes =
        {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{}, {\\22x\\22, \\22y\\22}]>]>"}} :
        (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %4 : tensor<8x8xf32>
  }
  func.func private @xla.sdy.manual_computation_body(%arg0: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %0 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1,
        type = 0>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>,
        use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = stablehlo.multiply %a, %b : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}""", [f32(8, 8)], lambda a: np.tile(a[:4] * a[4:], (2, 1)))


# ---- Groups whose order of devices only the groups themselves tell. ------------------------------
@mapped((P(("x", "y")),), P(("x", "y")), check_vma=False)
def in_order(a):
    whole = lax.all_gather(a, ("y", "x"), axis=0, tiled=True)
    mine = lax.psum_scatter(whole, ("y", "x"), scatter_dimension=0, tiled=True)
    return mine + lax.all_to_all(whole, ("y", "x"), 0, 1, tiled=True)[:2, :8]


add("gspmd_order_of_groups", in_order, f32(8, 8), shardy=False)


# ---- Meshes whose axes have the same names but other sizes or positions. -------------------------
@mapped((P("x"),), (P("x"), P(None, "x")), mesh=M41)
def by_four(a):
    return lax.psum(a, "x") + lax.axis_index("x"), lax.all_to_all(a, "x", 1, 0, tiled=True)


@mapped((P("y"),), P("y"), mesh=mesh_of((2, 2), ("y", "x")), axis_names={"y"})
def by_first(a):
    return lax.ppermute(a, "y", [(0, 1), (1, 0)]) * (1 + lax.axis_index("y"))


@mapped((P("x"),), P("x"), axis_names={"x"})
def by_two(a):
    return lax.ppermute(a, "x", [(0, 1), (1, 0)]) + lax.psum(a, "x")


add("map_same_names_of_other_sizes", lambda a: (by_four(matmul(a, a)), by_two(a)), f32(8, 8))
add("map_same_names_elsewhere", lambda a: by_first(a) - by_two(a), f32(8, 8))
add("map_same_names_of_one_axis",
    lambda a: (by_four(a), jax.shard_map(lambda b: lax.psum(b, "x"), mesh=mesh_of((4,), ("x",)),
                                         in_specs=P("x"), out_specs=P())(a)), f32(8, 8))
jax.config.update("jax_use_shardy_partitioner", True)

# ---- Pending sums, parts of axes and priorities. -------------------------------------------------
with jax.set_mesh(ME):
    add("explicit_unreduced",
        lambda a, b: jax.sharding.reshard(
            jnp.dot(a, b, out_sharding=P("x", None, unreduced={"y"})), P("x", None)),
        f32(8, 8), f32(8, 4), mesh=ME, specs=(P("x", "y"), P("y", None)))
SDY_MESH = 'sdy.mesh @mesh = <["x"=1, "y"=4]>'
add_text("sub_axes", """
module @m { %s
  func.func public @main(%%arg0: tensor<8x8xf32> {sdy.sharding =
      #sdy.sharding<@mesh, [{"y":(1)2}, {"y":(2)2}]>}) -> tensor<8x8xf32> {
    %%0 = sdy.sharding_constraint %%arg0 <@mesh, [{"y":(2)2}p1, {?}p2], replicated={"y":(1)2}> :
        tensor<8x8xf32>
    %%1 = sdy.manual_computation(%%0) in_shardings=[<@mesh, [{"y"}, {}]>] out_shardings=[<@mesh,
        [{"y"}, {}]>] manual_axes={"x", "y"} (%%b: tensor<2x8xf32>) {
      %%2 = "stablehlo.all_gather"(%%b) <{all_gather_dim = 1 : i64, channel_handle =
        #stablehlo.channel_handle<handle = 1, type = 0>,
        replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> :
          (tensor<2x8xf32>) -> tensor<2x16xf32>
      %%3 = stablehlo.slice %%2 [0:2, 8:16] : (tensor<2x16xf32>) -> tensor<2x8xf32>
      sdy.return %%3 : tensor<2x8xf32>
    } : (tensor<8x8xf32>) -> tensor<8x8xf32>
    return %%1 : tensor<8x8xf32>
  }
}""" % SDY_MESH, [f32(8, 8)], lambda a: np.concatenate([a[4:], a[4:]]))
add_text("unreduced", """
module @m { %s
  func.func public @main(%%arg0: tensor<8x8xf32> {sdy.sharding =
      #sdy.sharding<@mesh, [{}, {}], unreduced={"y"}>}) -> (tensor<8x8xf32> {sdy.sharding =
      #sdy.sharding<@mesh, [{}, {}], unreduced={"y"}>}, tensor<8x8xf32>) {
    %%0:2 = sdy.manual_computation(%%arg0, %%arg0) in_shardings=[<@mesh, [{}, {}], unreduced={"y"}>,
        <@mesh, [{"y"}, {}]>] out_shardings=[<@mesh, [{}, {}], unreduced={"y"}>, <@mesh, [{"y"},
        {}]>] manual_axes={"x", "y"} (%%a: tensor<8x8xf32>, %%b: tensor<2x8xf32>) {
      %%1 = stablehlo.add %%a, %%a : tensor<8x8xf32>
      %%2 = "stablehlo.reduce_scatter"(%%a) <{scatter_dimension = 0 : i64, channel_handle =
        #stablehlo.channel_handle<handle = 1, type = 0>,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%%c: tensor<f32>, %%d: tensor<f32>):
        %%3 = stablehlo.add %%c, %%d : tensor<f32>
        stablehlo.return %%3 : tensor<f32>
      }) : (tensor<8x8xf32>) -> tensor<2x8xf32>
      %%4 = stablehlo.add %%2, %%b : tensor<2x8xf32>
      sdy.return %%1, %%4 : tensor<8x8xf32>, tensor<2x8xf32>
    } : (tensor<8x8xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
    return %%0#0, %%0#1 : tensor<8x8xf32>, tensor<8x8xf32>
  }
}""" % SDY_MESH, [f32(8, 8)], lambda a: (a + a, a + a))


# ---- Booleans: `add` means "or" and `multiply` means "and". ---------------------------------------
def combined(name, what):
    return """%%%s = "stablehlo.all_reduce"(%%b) <{channel_handle =
        #stablehlo.channel_handle<handle = 1, type = 0>,
        replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%%c: tensor<i1>, %%d: tensor<i1>):
        %%e = stablehlo.%s %%c, %%d : tensor<i1>
        stablehlo.return %%e : tensor<i1>
      }) : (tensor<2x8xi1>) -> tensor<2x8xi1>""" % (name, what)


def combined_and_cut(name, what):
    whole = combined(name, what)
    return whole.replace("all_reduce", "reduce_scatter").replace(
        "<{channel", "<{scatter_dimension = 1 : i64, channel").replace(
        "-> tensor<2x8xi1>", "-> tensor<2x4xi1>")


def of_booleans(a):
    pairs = a.reshape(2, 2, 2, 8)
    results = []
    for take in (np.logical_or, np.logical_and):
        whole = take(pairs[:, 0], pairs[:, 1])
        results += [np.repeat(whole[:, None], 2, axis=1).reshape(8, 8),
                    np.stack([whole[..., :4], whole[..., 4:]], axis=1).reshape(8, 4)]
    return tuple(results)


add_text("booleans", """
module @m { sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%arg0: tensor<8x8xi1>) -> (tensor<8x8xi1>, tensor<8x4xi1>, tensor<8x8xi1>,
      tensor<8x4xi1>) {
    %0:4 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"x", "y"}, {}]>]
        out_shardings=[<@mesh, [{"x", "y"}, {}]>, <@mesh, [{"x", "y"}, {}]>, <@mesh, [{"x", "y"},
        {}]>, <@mesh, [{"x", "y"}, {}]>] manual_axes={"x", "y"} (%b: tensor<2x8xi1>) {
      """ + "\n      ".join([combined("1", "add"), combined_and_cut("2", "add"),
                             combined("3", "multiply"), combined_and_cut("4", "multiply")]) + """
      sdy.return %1, %2, %3, %4 : tensor<2x8xi1>, tensor<2x4xi1>, tensor<2x8xi1>, tensor<2x4xi1>
    } : (tensor<8x8xi1>) -> (tensor<8x8xi1>, tensor<8x4xi1>, tensor<8x8xi1>, tensor<8x4xi1>)
    return %0#0, %0#1, %0#2, %0#3 : tensor<8x8xi1>, tensor<8x4xi1>, tensor<8x8xi1>,
        tensor<8x4xi1>
  }
}""", [rng.integers(0, 2, (8, 8)).astype(bool)], of_booleans)


# ---- Seeds: refused programs, named for the reason, and a mesh of devices in another order. ------
seeds = {}


def seed(name, text):
    seeds[name] = serialized(text)


def seed_of_one(name, module, argument, body="return %arg0 : tensor<8x12xf32>"):
    seed(name, f"""module @m {module} func.func public @main(%arg0: tensor<8x12xf32> {argument})
                   -> tensor<8x12xf32> {{ {body} }} }}""")


MESH = "{ sdy.mesh @mesh = <[\"x\"=2, \"y\"=4]>"
PARTITIONS = "attributes {mhlo.num_partitions = %d : i32} {"


def sdy(sharding):
    return "{sdy.sharding = #sdy.sharding<@mesh, %s>}" % sharding


def text(sharding):
    return "{mhlo.sharding = \"%s\"}" % sharding


ALL_REDUCE = """%%0 = "stablehlo.all_reduce"(%%arg0) <{
      channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>,
      replica_groups = dense<%s> : tensor<%sxi64>, use_global_device_ids}> ({
    ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
      %%1 = stablehlo.add %%a, %%b : tensor<f32>
      stablehlo.return %%1 : tensor<f32>
    }) : (tensor<8x12xf32>) -> tensor<8x12xf32>
    return %%0 : tensor<8x12xf32>"""
seed_of_one("sharded_sub_axis", MESH, sdy('[{"y":(1)2}, {}]'))
seed_of_one("sharded_unreduced", MESH, sdy('[{"x"}, {}], unreduced={"y"}'))
seed_of_one("sharded_meshes_apart", "{ sdy.mesh @mesh = <[\"x\"=2, \"y\"=6]> "
            "sdy.mesh @other = <[\"x\"=3, \"y\"=4]>", sdy('[{"x"}, {}]'),
            """%0 = sdy.sharding_constraint %arg0 <@other, [{"x"}, {}]> : tensor<8x12xf32>
               return %0 : tensor<8x12xf32>""")
seed_of_one("sharded_meshes_of_orders", "{ sdy.mesh @mesh = <[\"x\"=4]> "
            "sdy.mesh @other = <[\"x\"=4], device_ids=[3, 2, 1, 0]>", sdy('[{"x"}, {}]'),
            """%0 = sdy.sharding_constraint %arg0 <@other, [{}, {"x"}]> : tensor<8x12xf32>
               return %0 : tensor<8x12xf32>""")
# Moves between meshes of the same devices in other orders, as device_put does, and an indivisible dim.
ORDERS = ("{ sdy.mesh @from = <[\"a\"=2, \"b\"=%d], device_ids=[%s]> "
          "sdy.mesh @mesh = <[\"x\"=%d]>")
FROM = "{sdy.sharding = #sdy.sharding<@from, [{\"b\"}, {\"a\"}]>}"
TO = """%0 = sdy.sharding_constraint %arg0 <@mesh, [{"x"}, {}]> : tensor<8x12xf32>
        return %0 : tensor<8x12xf32>"""
seed_of_one("sharded_elsewhere", ORDERS % (2, "3, 1, 0, 2", 4), FROM, TO)
seed_of_one("sharded_elsewhere_indivisible", ORDERS % (3, "5, 1, 0, 2, 3, 4", 6), FROM,
            "return %arg0 : tensor<8x12xf32>")
seed_of_one("sharded_priority", MESH, sdy('[{"x"}p1, {}]'))
seed_of_one("sharded_groups", MESH, "", ALL_REDUCE % ("[[0, 1, 2, 7], [3, 4, 5, 6]]", "2x4"))
seed_of_one("sharded_outside", MESH, "", ALL_REDUCE % ("[[0, 1, 2, 3], [4, 5, 6, 7]]", "2x4"))
seed_of_one("sharded_replicas", "attributes {mhlo.num_replicas = 2 : i32} {", "")
seed_of_one("sharded_text_order", PARTITIONS % 4, text("{devices=[2,2]0,1,3,2}"))
seed_of_one("sharded_text_maximal", PARTITIONS % 4, text("{maximal device=1}"))
seed_of_one("sharded_text_tuple", PARTITIONS % 4, text("{{replicated}, {manual}}"))
seed_of_one("sharded_text_broken", PARTITIONS % 4, text("{devices=[2,2]<=[4"))
seed_of_one("sharded_text_overlap", PARTITIONS % 12, text("{devices=[4,3]<=[12]}"),
            """%0 = stablehlo.custom_call @Sharding(%arg0)
                  {mhlo.sharding = "{devices=[4,3]<=[3,4]T(1,0)}"}
               : (tensor<8x12xf32>) -> tensor<8x12xf32> return %0 : tensor<8x12xf32>""")
seed("sharded_order", """
module @m {
  sdy.mesh @mesh = <["x"=4], device_ids=[3, 2, 1, 0]>
  func.func public @main(%arg0: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xui32>) {
    %0:2 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"x"}]>] out_shardings=[<@mesh,
        [{"x"}]>, <@mesh, [{"x"}]>] manual_axes={"x"} (%b: tensor<1xf32>) {
      %1 = "stablehlo.collective_permute"(%b) {channel_handle =
        #stablehlo.channel_handle<handle = 1, type = 0>,
        source_target_pairs = dense<[[3, 2], [2, 1], [1, 0]]> : tensor<3x2xi64>} :
          (tensor<1xf32>) -> tensor<1xf32>
      %2 = stablehlo.partition_id : tensor<ui32>
      %3 = stablehlo.reshape %2 : (tensor<ui32>) -> tensor<1xui32>
      sdy.return %1, %3 : tensor<1xf32>, tensor<1xui32>
    } : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xui32>)
    return %0#0, %0#1 : tensor<4xf32>, tensor<4xui32>
  }
}""")
for name in ("jit_unconstrained", "jit_two_meshes", "map_partially_manual", "map_all_to_alls",
             "map_pbroadcast", "gspmd_map", "gspmd_v1", "frontend_attributes"):
    seeds[f"sharded_{name}"] = cases[name][0]


# ---- Writing. ------------------------------------------------------------------------------------
def value(array):
    array = np.asarray(array)
    return {"dtype": NAMES[str(array.dtype)], "shape": list(array.shape),
            "data": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()}


def main():
    out = HERE / "recorded" / "sharded.jsonl"
    out.parent.mkdir(exist_ok=True)
    with open(out, "w") as lines:
        for name, (data, args, results) in cases.items():
            lines.write(json.dumps({
                "name": name, "program": base64.b64encode(data).decode(),
                "inputs": [value(a) for a in args],
                "expected": [value(r) for r in results]}) + "\n")
    if "--seeds" in sys.argv:
        for name, data in seeds.items():
            (SEEDS / f"{name}.mlirbc").write_bytes(data)
    print(f"{len(cases)} programs, {out.stat().st_size} bytes")


main()
