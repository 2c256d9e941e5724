"""Equinox: stateful layers. A network with BatchNorm and spectral normalisation, an ensemble of two by filter_vmap."""
import functools
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Model(eqx.Module):
    norm1: eqx.nn.BatchNorm
    norm2: eqx.nn.BatchNorm
    spectral: eqx.nn.SpectralNorm
    first: eqx.nn.Linear
    last: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.norm1 = eqx.nn.BatchNorm(input_size=3, axis_name="batch", channelwise_affine=False, mode="batch")
        self.first = eqx.nn.Linear(3, 32, use_bias=False, key=keys[0])
        self.norm2 = eqx.nn.BatchNorm(input_size=32, axis_name="batch", mode="batch")
        self.spectral = eqx.nn.SpectralNorm(eqx.nn.Linear(32, 32, key=keys[1]), weight_name="weight", key=keys[2])
        self.last = eqx.nn.Linear(32, 3, key=keys[3])

    def __call__(self, x, state):
        x, state = self.norm1(x, state)
        x, state = self.norm2(self.first(x), state)
        x, state = self.spectral(jax.nn.relu(x), state)
        return self.last(jax.nn.relu(x)), state


def compute_loss(model, state, xs, ys):
    batched = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    predicted, state = batched(xs, state)
    return jnp.mean((predicted - ys) ** 2), state


@eqx.filter_jit
def make_step(model, state, opt_state, optimizer, xs, ys):
    @functools.partial(eqx.filter_vmap, in_axes=(eqx.if_array(0), 0, eqx.if_array(0), None, None))
    def one(model, state, opt_state, xs, ys):
        (loss, state), grads = eqx.filter_value_and_grad(compute_loss, has_aux=True)(model, state, xs, ys)
        updates, opt_state = optimizer.update(grads, opt_state)
        return eqx.apply_updates(model, updates), state, opt_state, loss
    return one(model, state, opt_state, xs, ys)


def main():
    rng = np.random.default_rng(0)
    xs = rng.normal(2.0, 3.0, (256, 3)).astype(np.float32)
    ys = np.stack([np.sin(xs[:, 0]), xs[:, 1] * xs[:, 2] / 9, np.abs(xs[:, 0])], axis=1).astype(np.float32)
    models, states = eqx.filter_vmap(eqx.nn.make_with_state(Model))(jax.random.split(jax.random.key(0), 2))
    optimizer = optax.adam(1e-2)
    opt_states = eqx.filter_vmap(optimizer.init)(eqx.filter(models, eqx.is_inexact_array))
    losses = []
    for step in range(40):
        batch = rng.integers(0, len(xs), 64)
        models, states, opt_states, loss = make_step(models, states, opt_states, optimizer, xs[batch], ys[batch])
        losses.append(loss)
        if step % 10 == 9:
            print(f"step {step + 1}: losses {loss[0]:.4f} and {loss[1]:.4f}")

    @eqx.filter_vmap(in_axes=(eqx.if_array(0), 0))
    def predict(model, state):
        inference = eqx.nn.inference_mode(model)
        return jax.vmap(inference, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(xs[:16], state)[0]

    predicted = predict(models, states)
    print("the two disagree by", float(jnp.abs(predicted[0] - predicted[1]).mean()))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), predicted=predicted, weight=models.last.weight)


if __name__ == "__main__":
    main()
