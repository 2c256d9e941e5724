"""Programs for four devices: shardings that a planner completes, explicit ones, and shard_map."""
from functools import partial, wraps

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
from programs_models import (BLOCK, GPT, MLP, attention, cross_entropy, descend, gpt_loss, mlp,
                             transformer_block)
from registry import f32, flags, mesh_of, normal, program, s32, weights

M22, M41 = (2, 2), (4, 1)


def sharded(shape, shardings, *specs, **options):
    return program(*specs, mesh_shape=shape, shardings=shardings, **options)


def pinned(shape, x, *axes):
    return lax.with_sharding_constraint(x, NamedSharding(mesh_of(shape), P(*axes)))


def mapped(shape, in_specs, out_specs, **kwargs):
    """Decorates a function of shards. The mesh is made at each call, so that the caller can choose
    the devices."""
    def decorated(function):
        @wraps(function)
        def call(*args):
            return jax.shard_map(function, mesh=mesh_of(shape), in_specs=in_specs, out_specs=out_specs,
                                 **kwargs)(*args)
        return call
    return decorated


# ---- Shardings of arguments and constraints. -----------------------------------------------------
@sharded(M41, (P(), P("x"), P("x")), MLP, f32(16, 8), s32(16, low=0, high=4))
def data_parallel_mlp(params, x, y):
    return descend(lambda p: cross_entropy(mlp(p, x), y), params)


@sharded(M22, (P("y", "x"), P("x", "y"), P("x")), weights(8, 16), weights(16, 4), f32(8, 8))
def fully_sharded_mlp(w1, w2, x):
    return descend(lambda w: jnp.mean((jax.nn.relu(x @ w[0]) @ w[1]) ** 2), (w1, w2))


@sharded(M22, (P(None, "y"), P("y"), P("x")), weights(8, 16), weights(16, 8), f32(4, 6, 8))
def tensor_parallel_mlp(up, down, x):
    h = pinned(M22, jax.nn.gelu(x @ up), "x", None, "y")
    return pinned(M22, h @ down, "x")


@sharded(M22, (P("x", "y"), P("y", None)), f32(8, 6), f32(6, 4))
def product_over_a_sharded_dim(a, b):
    return a @ b, (a @ b).sum(0), jnp.tanh(a).mean()


@sharded(M41, (P("x", None), P(None, "x")), f32(8, 12), f32(8, 12))
def resharded_sum(a, b):
    return pinned(M41, a + b, None, "x"), (a * b).T


GPT_SHARDED = {"wte": P("y", "x"), "wpe": P(None, "x"), "g": P(),
               "blocks": [{"qkv": P("x", "y"), "out": P("y", "x"), "up": P("x", "y"),
                           "down": P("y", "x"), "g1": P(), "g2": P()}] * 2}


@sharded(M22, (GPT_SHARDED, P("x")), GPT, s32(4, 9, low=0, high=20))
def gpt_step_fully_sharded(params, tokens):
    return descend(partial(gpt_loss, tokens=tokens), params)


@sharded(M41, (P(), P("x")), GPT, s32(4, 9, low=0, high=20))
def gpt_step_data_parallel(params, tokens):
    return descend(partial(gpt_loss, tokens=tokens), params)


@sharded(M22, ({k: P(None, "y") if k in ("qkv", "up") else P("y") if k in ("out", "down") else P()
                for k in BLOCK}, P("x")), BLOCK, f32(2, 6, 16))
def transformer_block_tensor_parallel(params, x):
    return descend(lambda p: jnp.mean(transformer_block(p, x) ** 2), params)


@sharded(M22, (P("x", "y"),) * 3, f32(2, 8, 2, 4), f32(2, 8, 2, 4), f32(2, 8, 2, 4))
def attention_over_a_sharded_sequence(q, k, v):
    return attention(q, k, v, jnp.tril(jnp.ones((8, 8), bool)))


@sharded(M41, (P("x"), P()), f32(8, 4), f32(4, 4))
def scan_of_sharded_layers(x, w):
    def step(x, _):
        return jnp.tanh(pinned(M41, x, "x") @ w), x.sum()
    return lax.scan(step, x, length=4)


@sharded(M22, (P("x", "y"), P("x")), f32(8, 8), s32(8, low=0, high=8))
def sharded_indexing(x, i):
    return x[i], x.at[i].add(1.0), jnp.take_along_axis(x, i[:, None], 1), jnp.sort(x, 1)


@sharded(M22, (P("x", "y"), P("y")), f32(8, 8), f32(8))
def sharded_reductions(x, w):
    return (x.max(1), x.argmin(0), jnp.cumsum(x, 1), jax.nn.softmax(x, 1), (x * w).sum(), x.any(1),
            jnp.linalg.norm(x))


@sharded(M41, (P("x"), P()), normal(24, 2), normal(3, 2))
def sharded_k_means(x, centres):
    def step(centres, _):
        near = jnp.argmin(((x[:, None] - centres) ** 2).sum(-1), 1)
        member = jax.nn.one_hot(near, 3)
        return member.T @ x / jnp.maximum(member.sum(0), 1)[:, None], near
    return lax.scan(step, centres, length=4)


@sharded(M22, (P("x"), P(None, "y")), f32(8, 4), f32(4, 8), out_shardings=P("y", "x"))
def result_laid_elsewhere(a, b):
    return a @ b


@sharded(M22, (P(("x", "y")), P(("y", "x"))), f32(8, 3), f32(8, 3))
def shardings_by_two_axes(a, b):
    return a + b, jnp.concatenate([a, b]), (a * b).sum(0)


@sharded(M22, (P("x"),), f32(8, 6))
def vmap_with_constraint(x):
    return jax.vmap(lambda row: pinned(M22, jnp.outer(row, row), "y"), spmd_axis_name="x")(x)


@sharded(M41, (P("x"), P("x")), f32(8, 8), flags(8))
def sharded_branches(x, p):
    return lax.cond(p.sum() > 3, lambda x: x @ x.T, lambda x: x.T + x, x)


# ---- Explicit axes. ------------------------------------------------------------------------------
@sharded(M22, (P("x", None), P(None, "y")), f32(8, 4), f32(4, 8), explicit=True)
def explicit_product(a, b):
    return jnp.tanh(a @ b)


@sharded(M22, (P("x", "y"), P("y")), f32(8, 8), f32(8), explicit=True)
def explicit_reshard(x, w):
    y = jax.sharding.reshard(x * w, P("y", "x"))
    return y.T, y.sum(0)


@sharded(M41, (P(), P("x")), weights(8, 4), f32(8, 8), explicit=True)
def explicit_gradient(w, x):
    return jax.value_and_grad(lambda w: jnp.mean(jnp.sin(x @ w) ** 2))(w)


@sharded(M22, (P("x"), P("y")), f32(4, 6), f32(6, 8), explicit=True)
def explicit_einsum(a, b):
    return jnp.einsum("ij,jk->ik", a, b, out_sharding=P("x"))


# ---- shard_map: each collective, its derivatives, and what surrounds it. -------------------------
@sharded(M22, (P("x", "y"), P("y")), f32(8, 8), f32(8, 4))
@mapped(M22, (P("x", "y"), P("y")), P("x"))
def map_psum(a, b):
    return lax.psum(a @ b, "y")


@sharded(M41, (P("x"),), f32(8, 6))
@mapped(M41, (P("x"),), (P(), P(), P("x")))
def map_mean_and_extrema(a):
    return lax.pmean(a, "x"), lax.pmax(a, "x"), a - lax.pmin(a, "x")


@sharded(M41, (P("x"),), f32(8, 6))
@mapped(M41, (P("x"),), (P(), P(None, "x")), check_vma=False)
def map_all_gather(a):
    return lax.all_gather(a, "x", tiled=True), lax.all_gather(a, "x", axis=1).sum(1)


@sharded(M22, (P("x", "y"),), f32(8, 8))
@mapped(M22, (P("x", "y"),), (P(("x", "y")), P("x", "y")))
def map_psum_scatter(a):
    return (lax.psum_scatter(a, ("x", "y"), scatter_dimension=0, tiled=True),
            lax.psum_scatter(jnp.stack([a, 2 * a]), "y"))


@sharded(M41, (P("x"),), f32(8, 8))
@mapped(M41, (P("x"),), P(None, "x"))
def map_all_to_all(a):
    return lax.all_to_all(jnp.sin(a), "x", 1, 0, tiled=True)


@sharded(M41, (P("x"),), f32(8, 4))
@mapped(M41, (P("x"),), (P("x"), P("x")))
def map_ppermute(a):
    around = lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)])
    return around, a + lax.ppermute(a[-1:], "x", [(0, 1), (1, 2), (2, 3)])


@sharded(M22, (P("x", "y"),), f32(8, 8))
@mapped(M22, (P("x", "y"),), (P("x", "y"), P("x", "y")))
def map_swaps(a):
    return lax.pshuffle(a, "x", [1, 0]), lax.pswapaxes(a.reshape(2, 2, 4), "y", 0).reshape(4, 4)


@sharded(M22, (P("x", "y"),), f32(8, 8))
@mapped(M22, (P("x", "y"),), P("x", "y"))
def map_axis_index(a):
    return a + lax.axis_index("x") * 10 + lax.axis_index(("y", "x")) + lax.axis_size("y")


@sharded(M41, (P("x"), P("x"), P("x")), f32(8, 4), f32(8, 4), f32(8, 4))
@mapped(M41, (P("x"), P("x"), P("x")), P("x"))
def map_ring_attention(q, k, v):
    def step(carry, _):
        out, total, k, v = carry
        p = jnp.exp(q @ k.T / 4)
        k, v = (lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)]) for a in (k, v))
        return (out + p @ v, total + p.sum(1), k, v), None
    start = jnp.zeros_like(q), jnp.zeros_like(q[:, 0]), k, v
    (out, total, _, _), _ = lax.scan(step, start, length=4)
    return out / total[:, None]


@sharded(M22, (P("x", "y"), P("y")), f32(8, 8), f32(8, 4))
def map_gradient(a, b):
    f = mapped(M22, (P("x", "y"), P("y")), P("x"))(lambda a, b: lax.psum(jnp.sin(a) @ b, "y"))
    return jax.grad(lambda a, b: jnp.sum(f(a, b) ** 2), (0, 1))(a, b)


@sharded(M41, (P(), P("x"), P("x")), MLP, f32(16, 8), s32(16, low=0, high=4))
def map_data_parallel_step(params, x, y):
    def loss(params):
        each = mapped(M41, (P(), P("x"), P("x")), P())(
            lambda p, x, y: lax.pmean(cross_entropy(mlp(p, x), y), "x"))
        return each(params, x, y)
    return descend(loss, params)


@sharded(M41, (P("x"), P("x"), P("x")), weights(8, 16), weights(16, 8), f32(8, 8))
def map_gathered_weights_step(w1, w2, x):
    """Fully sharded data parallelism by hand: weights are gathered before use, and gradients are
    scattered."""
    def block(w1, w2, x):
        def loss(ws):
            full = [lax.all_gather(w, "x", tiled=True) for w in ws]
            return jnp.mean((jax.nn.relu(x @ full[0]) @ full[1]) ** 2)
        grads = jax.grad(loss)((w1, w2))
        return jax.tree.map(lambda w, g: w - 0.1 * g, (w1, w2), grads)
    return mapped(M41, (P("x"),) * 3, (P("x"), P("x")), check_vma=False)(block)(w1, w2, x)


@sharded(M22, (P(None, "x"), P("y")), f32(3, 8, 8), f32(8, 4))
def vmap_of_map(a, b):
    f = mapped(M22, (P("x", "y"), P("y")), P("x"))(lambda a, b: lax.psum(a @ b, "y"))
    return jax.vmap(f, (0, None))(a, b)


@sharded(M22, (P("x", "y"),), f32(8, 8))
@mapped(M22, (P("x", "y"),), P("x", "y"))
def map_of_vmap_and_scan(a):
    rows = jax.vmap(lambda r: r / lax.psum(jnp.sum(r * r), "y"))(a)
    return lax.scan(lambda c, r: (c + r, c * r), lax.psum(rows[0], "x") * 0 + rows[0], rows)[1]


@sharded(M22, (P("x"),), f32(8, 8))
def map_over_one_axis(a):
    """Only one axis is manual. JAX's partitioner decides about the other one."""
    f = mapped(M22, (P("x"),), P("x"), axis_names={"x"})(lambda a: a @ a.T @ lax.pmean(a, "x"))
    return jnp.tanh(f(pinned(M22, a, "x", "y")))


@sharded(M41, (P("x"), P("x"), P()), f32(8, 6), weights(4, 6, 6), weights(6, 4))
@mapped(M41, (P("x"), P("x"), P()), P("x"))
def map_experts(x, w, gate):
    """Sends each token to its expert's device and back, with two all-to-alls."""
    best = jax.nn.one_hot(jnp.argmax(x @ gate, 1), 4)
    sent = lax.all_to_all(jnp.einsum("te,td->etd", best, x), "x", 0, 0)
    done = lax.all_to_all(jnp.tanh(sent @ w[0]), "x", 0, 0)
    return jnp.einsum("te,etd->td", best, done)


@sharded(M41, (P("x"), P()), weights(4, 6, 6), f32(5, 6))
@mapped(M41, (P("x"), P()), P(None, None))
def map_pipeline(w, x):
    """Runs four stages on four devices. Each of the five inputs passes through all stages."""
    stage = lax.axis_index("x")
    def tick(carry, t):
        h, out = carry
        h = jnp.tanh(jnp.where(stage == 0, x[jnp.minimum(t, 4)], h) @ w[0])
        done = jnp.where((stage == 3) & (t >= 3), h, 0)
        out = out.at[jnp.maximum(t - 3, 0)].add(done)
        return (lax.ppermute(h, "x", [(0, 1), (1, 2), (2, 3)]), out), None
    varying = lambda v: lax.pcast(v, "x", to="varying")
    start = varying(jnp.zeros(6)), varying(jnp.zeros((5, 6)))
    (_, out), _ = lax.scan(tick, start, jnp.arange(8))
    return lax.psum(out, "x")
