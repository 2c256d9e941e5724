"""Optax: many optimisers on one regression, and L-BFGS with its line search on Rosenbrock's function."""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

OPTIMISERS = {
    "sgd": optax.sgd(0.1, momentum=0.9), "adam": optax.adam(0.05), "adamax": optax.adamax(0.05),
    "nadam": optax.nadam(0.05), "lion": optax.lion(0.01), "adafactor": optax.adafactor(0.05, min_dim_size_to_factor=4),
    "lamb": optax.lamb(0.05), "rmsprop": optax.rmsprop(0.02), "adagrad": optax.adagrad(0.2), "yogi": optax.yogi(0.05),
    "radam": optax.radam(0.05), "amsgrad": optax.amsgrad(0.05),
    "schedule_free": optax.contrib.schedule_free_adamw(0.05), "muon": optax.contrib.muon(0.05),
    "prodigy": optax.contrib.prodigy(1.0), "noisy": optax.noisy_sgd(0.1, eta=0.001, key=0),
}


def loss_fn(params, x, y):
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - y) ** 2)


def start():
    keys = jax.random.split(jax.random.key(0))
    return {"w1": jax.random.normal(keys[0], (8, 16)) / 3, "b1": jnp.zeros(16),
            "w2": jax.random.normal(keys[1], (16, 4)) / 4}


@functools.partial(jax.jit, static_argnums=0)
def train(optimiser, params, x, y):
    def step(carry, _):
        params, state = carry
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        updates, state = optimiser.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), loss
    (params, _), losses = jax.lax.scan(step, (params, optimiser.init(params)), length=15)
    return losses


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@jax.jit
def minimise(x):
    optimiser = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(rosenbrock)

    def step(carry):
        x, state = carry
        value, grad = value_and_grad(x, state=state)
        updates, state = optimiser.update(grad, state, x, value=value, grad=grad, value_fn=rosenbrock)
        return optax.apply_updates(x, updates), state

    def going_on(carry):
        _, state = carry
        count = optax.tree.get(state, "count")
        norm = optax.tree.norm(optax.tree.get(state, "grad"))
        return (count == 0) | ((count < 100) & (norm >= 1e-3))
    return jax.lax.while_loop(going_on, step, (x, optimiser.init(x)))


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8)).astype(np.float32)
    y = np.stack([x[:, 0] * x[:, 1], np.sin(x[:, 2]), np.abs(x[:, 3]), x[:, 4]], axis=1)
    losses = {}
    for name, optimiser in OPTIMISERS.items():
        losses[name] = train(optimiser, start(), x, y)
        print(f"{name:14} {losses[name][0]:.4f} -> {losses[name][-1]:.4f}")
    found, state = minimise(jnp.array([-1.2, 1.0, 0.5, 2.0]))
    print("L-BFGS finds", found, "after", optax.tree.get(state, "count"), "steps")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], found=found, **losses)


if __name__ == "__main__":
    main()
