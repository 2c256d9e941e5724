"""Fully sharded data parallelism by NamedSharding: parameters, Adam's moments and the batch are
split over all devices, and layers are rematerialised in the backward pass. An optional second
argument is the number of steps.
"""
import sys

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

VOCABULARY, CONTEXT, SIZE, LAYERS, BATCH = 32, 16, 32, 2, 16


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(num_heads=4, dtype=jnp.float32)(nn.RMSNorm()(x), mask=mask)
        gate, up = jnp.split(nn.Dense(8 * SIZE, use_bias=False)(nn.RMSNorm()(x)), 2, axis=-1)
        return x + nn.Dense(SIZE, use_bias=False)(nn.silu(gate) * up), None


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(VOCABULARY, SIZE)
        x = embed(tokens) + self.param("positions", nn.initializers.normal(0.02), (CONTEXT, SIZE))
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        layers = nn.scan(nn.remat(Block, policy=policy, prevent_cse=False), variable_axes={"params": 0},
                         split_rngs={"params": True}, length=LAYERS)
        x, _ = layers()(x, None)
        return embed.attend(nn.RMSNorm()(x))


def main():
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    mesh = jax.make_mesh((len(jax.devices()),), ("fsdp",), axis_types=(jax.sharding.AxisType.Auto,))
    model, optimizer = Transformer(), optax.adamw(3e-3)

    def init(key):
        params = model.init(key, jnp.zeros((1, CONTEXT), jnp.int32))
        return params, optimizer.init(params)

    def sharding(leaf):
        """Returns a sharding that splits the largest dim that the number of devices divides."""
        dims = [d for d in range(leaf.ndim) if leaf.shape[d] % mesh.size == 0 and leaf.shape[d] >= 8]
        cut = max(dims, key=lambda d: leaf.shape[d], default=None)
        return NamedSharding(mesh, P(*["fsdp" if d == cut else None for d in range(leaf.ndim)]))

    shardings = jax.tree.map(sharding, jax.eval_shape(init, jax.random.key(0)))
    params, opt_state = jax.jit(init, out_shardings=shardings)(jax.random.key(0))
    data = NamedSharding(mesh, P("fsdp"))

    def step(params, opt_state, tokens):
        def loss_fn(params):
            logits = model.apply(params, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()
        loss, grads = jax.value_and_grad(loss_fn)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    step = jax.jit(step, in_shardings=(*shardings, data), out_shardings=(*shardings, NamedSharding(mesh, P())),
                   donate_argnums=(0, 1))
    rng, losses = np.random.default_rng(0), []
    for i in range(steps):
        starts, strides = rng.integers(0, VOCABULARY, (BATCH, 1)), rng.integers(1, 4, (BATCH, 1))
        tokens = (starts + strides * np.arange(CONTEXT + 1)) % VOCABULARY
        params, opt_state, loss = step(params, opt_state, jax.device_put(tokens.astype(np.int32), data))
        losses.append(loss)
        if i % 10 == 9:
            print(f"step {i + 1}: loss {loss:.4f}", flush=True)
    held = sum(leaf.addressable_shards[0].data.size for leaf in jax.tree.leaves(params))
    whole = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"each of {mesh.size} devices holds {held} of {whole} parameters")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), embedding=params["params"]["Embed_0"]["embedding"],
                 logits=jax.jit(model.apply)(params, jnp.arange(CONTEXT)[None]))


if __name__ == "__main__":
    main()
