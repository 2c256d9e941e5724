"""Pipeline parallelism as in JAX's documentation: each device has some of the layers, and ppermute
passes micro-batches round. The gradients must equal those of the layers applied one after the
other.
"""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

LAYERS, SIZE, MICRO_BATCHES, MICRO = 8, 16, 8, 4


def layer(x, params):
    w, b = params
    return x + jnp.tanh(x @ w + b), None


def plain(params, x):
    return jax.lax.scan(layer, x, params)[0]


def pipelined(params, x):
    """Runs one stage. `params` holds this stage's layers. Every stage sees all of x, and the last
    stage makes the results."""
    stages, stage = jax.lax.axis_size("stage"), jax.lax.axis_index("stage")
    ring = [(i, (i + 1) % stages) for i in range(stages)]
    shape = jax.lax.pcast(jnp.zeros((MICRO, SIZE)), "stage", to="varying")

    def turn(carry, i):
        incoming, results = carry
        given = jax.lax.dynamic_index_in_dim(x, jnp.minimum(i, MICRO_BATCHES - 1), keepdims=False)
        done = plain(params, jnp.where(stage == 0, given, incoming))
        at = i - (stages - 1)
        written = jax.lax.dynamic_update_index_in_dim(results, done, jnp.maximum(at, 0), 0)
        results = jnp.where(at >= 0, written, results)
        return (jax.lax.ppermute(done, "stage", ring), results), None

    results = jax.lax.pcast(jnp.zeros((MICRO_BATCHES, MICRO, SIZE)), "stage", to="varying")
    (_, results), _ = jax.lax.scan(turn, (shape, results), jnp.arange(MICRO_BATCHES + stages - 1))
    return jax.lax.psum(jnp.where(stage == stages - 1, results, 0), "stage")


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("stage",))
    split, whole = NamedSharding(mesh, P("stage")), NamedSharding(mesh, P())
    keys = jax.random.split(jax.random.key(0))
    params = jax.device_put((jax.random.normal(keys[0], (LAYERS, SIZE, SIZE)) / 8, jnp.zeros((LAYERS, SIZE))), split)
    apply = jax.shard_map(pipelined, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P())

    def loss_fn(forward, params, x, y):
        return jnp.mean((forward(params, x) - y) ** 2)

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(params, x, y):
        loss, grads = jax.value_and_grad(functools.partial(loss_fn, apply))(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.3 * g, params, grads), loss

    rng, losses = np.random.default_rng(0), []
    rotation = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    for step in range(20):
        x = rng.normal(size=(MICRO_BATCHES, MICRO, SIZE)).astype(np.float32)
        x, y = jax.device_put((x, (x @ rotation).astype(np.float32)), whole)
        params, loss = train_step(params, x, y)
        losses.append(loss)
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss:.4f}, {LAYERS} layers in {mesh.size} stages")
    grads = jax.jit(jax.grad(functools.partial(loss_fn, apply)))(params, x, y)
    in_turn = jax.jit(jax.grad(functools.partial(loss_fn, plain)))(jax.device_get(params), np.asarray(x), np.asarray(y))
    difference = max(np.max(np.abs(np.asarray(a) - np.asarray(b))) for a, b in zip(grads, in_turn))
    print("from the gradient of the layers in turn it differs by", difference)
    assert difference < 1e-5
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), weights=params[0], gradient=grads[0])


if __name__ == "__main__":
    main()
