"""Equinox: a transformer that learns to sort, its batch spread over all devices by sharding."""
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P

VOCABULARY, LENGTH, SIZE = 16, 8, 32


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP

    def __init__(self, key):
        attention_key, mlp_key = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, SIZE, key=attention_key)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(SIZE), eqx.nn.LayerNorm(SIZE)
        self.mlp = eqx.nn.MLP(SIZE, SIZE, 2 * SIZE, 1, jax.nn.gelu, key=mlp_key)

    def __call__(self, x):
        y = jax.vmap(self.norm1)(x)
        x = x + self.attention(y, y, y)
        return x + jax.vmap(lambda row: self.mlp(self.norm2(row)))(x)


class Transformer(eqx.Module):
    embedding: eqx.nn.Embedding
    positions: jax.Array
    blocks: list[Block]
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 5)
        self.embedding = eqx.nn.Embedding(VOCABULARY, SIZE, key=keys[0])
        self.positions = 0.1 * jax.random.normal(keys[1], (LENGTH, SIZE))
        self.blocks = [Block(keys[2]), Block(keys[3])]
        self.out = eqx.nn.Linear(SIZE, VOCABULARY, key=keys[4])

    def __call__(self, tokens):
        x = jax.vmap(self.embedding)(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return jax.vmap(self.out)(x)


@eqx.filter_value_and_grad
def compute_loss(model, tokens):
    logits = jax.vmap(model)(tokens)
    return optax.softmax_cross_entropy_with_integer_labels(logits, jnp.sort(tokens, axis=1)).mean()


@eqx.filter_jit(donate="all")
def train_step(model, opt_state, optimizer, tokens, replicated, split):
    model, opt_state = eqx.filter_shard((model, opt_state), replicated)
    tokens = eqx.filter_shard(tokens, split)
    loss, grads = compute_loss(model, tokens)
    updates, opt_state = optimizer.update(grads, opt_state, eqx.filter(model, eqx.is_array))
    model = eqx.apply_updates(model, updates)
    model, opt_state = eqx.filter_shard((model, opt_state), replicated)
    return model, opt_state, loss


def main():
    mesh = jax.make_mesh((len(jax.devices()),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    replicated, split = NamedSharding(mesh, P()), NamedSharding(mesh, P("batch"))
    model = Transformer(jax.random.key(0))
    optimizer = optax.adamw(3e-3)
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    model, opt_state = eqx.filter_shard((model, opt_state), replicated)
    rng, losses = np.random.default_rng(0), []
    for step in range(30):
        tokens = eqx.filter_shard(jnp.asarray(rng.integers(0, VOCABULARY, (64, LENGTH))), split)
        model, opt_state, loss = train_step(model, opt_state, optimizer, tokens, replicated, split)
        losses.append(loss)
        if step % 10 == 9:
            print(f"step {step + 1}: loss {loss:.4f} on {len(jax.devices())} devices")
    logits = jax.vmap(model)(jnp.arange(2 * LENGTH).reshape(2, LENGTH))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), logits=logits, embedding=model.embedding.weight)


if __name__ == "__main__":
    main()
