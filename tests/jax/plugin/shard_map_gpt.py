"""Plain JAX: a small GPT on text, with its heads and hidden layers split over all devices by
shard_map."""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the slow black bear. " * 8
LAYERS, HEADS, SIZE, CONTEXT, BATCH = 2, 4, 32, 32, 8
# The axis "model" splits the heads of wqkv and wo, and the hidden units of up and down.
SPECS = {"embed": P(), "positions": P(), "layers": {
    "norm1": P(), "norm2": P(), "wqkv": P(None, None, None, "model"), "wo": P(None, "model"),
    "up": P(None, None, "model"), "down": P(None, "model")}}


def init(key, vocabulary):
    keys = jax.random.split(key, 6)

    def weights(key, *shape, fan_in):
        return jax.random.normal(key, shape) / np.sqrt(fan_in)
    layers = {"norm1": jnp.ones((LAYERS, SIZE)), "norm2": jnp.ones((LAYERS, SIZE)),
              "wqkv": weights(keys[0], LAYERS, SIZE, 3, HEADS, SIZE // HEADS, fan_in=SIZE),
              "wo": weights(keys[1], LAYERS, HEADS, SIZE // HEADS, SIZE, fan_in=SIZE),
              "up": weights(keys[2], LAYERS, SIZE, 4 * SIZE, fan_in=SIZE),
              "down": weights(keys[3], LAYERS, 4 * SIZE, SIZE, fan_in=4 * SIZE)}
    return {"embed": 0.3 * jax.random.normal(keys[4], (vocabulary, SIZE)),
            "positions": 0.1 * jax.random.normal(keys[5], (CONTEXT, SIZE)), "layers": layers}


def rms_norm(x, weight):
    return weight * x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6)


def block(x, layer):
    q, k, v = jnp.einsum("btd,dchf->cbhtf", rms_norm(x, layer["norm1"]), layer["wqkv"])
    scores = jnp.einsum("bhtf,bhsf->bhts", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tri(CONTEXT, dtype=bool), scores, -jnp.inf)
    mixed = jnp.einsum("bhts,bhsf->bthf", jax.nn.softmax(scores), v)
    x = x + jax.lax.psum(jnp.einsum("bthf,hfd->btd", mixed, layer["wo"]), "model")
    hidden = jax.nn.gelu(rms_norm(x, layer["norm2"]) @ layer["up"])
    return x + jax.lax.psum(hidden @ layer["down"], "model"), None


def loss_fn(params, tokens):
    x = params["embed"][tokens[:, :-1]] + params["positions"]
    x, _ = jax.lax.scan(block, x, params["layers"])
    log_probs = jax.nn.log_softmax(x @ params["embed"].T)
    return -jnp.mean(jnp.take_along_axis(log_probs, tokens[:, 1:, None], axis=-1))


def main():
    vocabulary = sorted(set(TEXT))
    data = np.array([vocabulary.index(c) for c in TEXT])
    mesh = jax.make_mesh((len(jax.devices()),), ("model",))
    params = jax.device_put(init(jax.random.key(0), len(vocabulary)),
                            jax.tree.map(lambda spec: jax.NamedSharding(mesh, spec), SPECS))
    moments = jax.tree.map(jnp.zeros_like, params)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(SPECS, SPECS, P()), out_specs=(SPECS, SPECS, P()))
    def step(params, moments, tokens):
        loss, grads = jax.value_and_grad(loss_fn)(params, tokens)
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, grads)
        return jax.tree.map(lambda p, m: p - 0.05 * m, params, moments), moments, loss

    rng, losses = np.random.default_rng(0), []
    for i in range(40):
        starts = rng.integers(0, len(data) - CONTEXT - 1, BATCH)
        tokens = np.stack([data[s:s + CONTEXT + 1] for s in starts])
        params, moments, loss = step(params, moments, tokens)
        losses.append(loss)
        if i % 10 == 9:
            print(f"step {i + 1}: loss {loss:.4f}")
    print("each device holds", params["layers"]["up"].addressable_shards[0].data.shape, "of the hidden layers")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), embed=params["embed"], up=params["layers"]["up"])


if __name__ == "__main__":
    main()
