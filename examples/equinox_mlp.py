"""Trains several small networks in Equinox, side by side. examples/equinox_mlp.cc is the same program in C++, line
by line, and its losses agree with the losses of this program. To run it:

  scripts/jax_venv
  build/jax-venv/bin/python examples/equinox_mlp.py --losses-out examples/data/equinox_mlp_losses.txt
"""
import argparse
import importlib.metadata
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Linear(eqx.Module):
    weight: jax.Array
    bias: jax.Array

    def __init__(self, in_size, out_size, key):
        limit = 1 / math.sqrt(in_size)
        keys = jax.random.split(key)
        self.weight = jax.random.uniform(keys[0], (out_size, in_size), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(keys[1], (out_size,), minval=-limit, maxval=limit)

    def __call__(self, x):
        return self.weight @ x + self.bias


class Mlp(eqx.Module):
    layers: list[Linear]
    order: jax.Array  # order of the inputs: integers, which are not trained
    scale: float  # scale of the result
    activation: Callable

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.layers = [Linear(3, 16, keys[0]), Linear(16, 16, keys[1]), Linear(16, 1, keys[2])]
        self.order = jax.random.permutation(keys[3], 3)
        self.scale = 2.0
        self.activation = jnp.tanh

    def __call__(self, x):
        x = x[self.order]
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.scale * self.layers[-1](x)[0]


def loss(model, x, y):
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_value_and_grad(has_aux=True)
def losses_and_grads(models, x, y):
    losses = eqx.filter_vmap(loss, in_axes=(eqx.if_array(0), None, None))(models, x, y)
    return jnp.sum(losses), losses


optimizer = optax.adam(1e-2)


@eqx.filter_jit
def step(models, state, x, y):
    (_, losses), grads = losses_and_grads(models, x, y)
    updates, state = optimizer.update(grads, state)
    return eqx.apply_updates(models, updates), state, losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--losses-out")
    args = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.uniform(keys[0], (64, 3), minval=-1, maxval=1)
    y = jnp.sin(3 * x[:, 0]) * x[:, 1] + x[:, 2]

    models = eqx.filter_vmap(Mlp)(jax.random.split(keys[1], 4))
    state = optimizer.init(eqx.filter(models, eqx.is_inexact_array))
    lines = []
    for i in range(100):
        models, state, losses = step(models, state, x, y)
        lines.append(" ".join(f"{v:.9g}" for v in losses.tolist()))
        if i % 20 == 0 or i == 99:
            print(f"step {i:3d}  losses {lines[-1]}")
    if args.losses_out:
        versions = [f"{name} {importlib.metadata.version(name)}" for name in ("jax", "equinox", "optax")]
        with open(args.losses_out, "w") as out:
            out.write("\n".join(["# " + ", ".join(versions)] + lines) + "\n")


if __name__ == "__main__":
    main()
