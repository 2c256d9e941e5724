"""Reinforcement learning: REINFORCE with a baseline balances a pole. The physics are written in JAX
too, so an episode is one scan, and parallel episodes are one vmap.
"""
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

EPISODES, STEPS, GAMMA = 32, 100, 0.98


class State(NamedTuple):
    x: jax.Array
    v: jax.Array
    angle: jax.Array
    spin: jax.Array


def physics(state, action):
    force = jnp.where(action == 1, 10.0, -10.0)
    sin, cos = jnp.sin(state.angle), jnp.cos(state.angle)
    push = (force + 0.05 * state.spin**2 * sin) / 1.1
    spin_rate = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    acceleration = push - 0.05 * spin_rate * cos / 1.1
    return State(state.x + 0.02 * state.v, state.v + 0.02 * acceleration,
                 state.angle + 0.02 * state.spin, state.spin + 0.02 * spin_rate)


def init(key):
    keys = jax.random.split(key)
    return {"hidden": jax.random.normal(keys[0], (4, 32)) / 2, "bias": jnp.zeros(32),
            "out": jax.random.normal(keys[1], (32, 2)) / 20}


def policy(params, state):
    hidden = jnp.tanh(jnp.stack(state) * jnp.array([0.5, 0.5, 5.0, 1.0]) @ params["hidden"] + params["bias"])
    return hidden @ params["out"]


def episode(params, key):
    start_key, key = jax.random.split(key)
    start = State(*jax.random.uniform(start_key, (4,), minval=-0.05, maxval=0.05))

    def step(carry, key):
        state, alive = carry
        action = jax.random.categorical(key, policy(params, state))
        after = physics(state, action)
        upright = (jnp.abs(after.angle) < 0.2095) & (jnp.abs(after.x) < 2.4)
        return (after, alive & upright), (state, action, alive)
    return jax.lax.scan(step, (start, jnp.array(True)), jax.random.split(key, STEPS))[1]


OPTIMIZER = optax.adam(2e-2)


@jax.jit
def train_step(params, opt_state, key):
    states, actions, alive = jax.vmap(episode, in_axes=(None, 0))(params, jax.random.split(key, EPISODES))
    rewards = alive.astype(jnp.float32)
    returns = jax.lax.scan(lambda total, r: (r + GAMMA * total,) * 2, jnp.zeros(EPISODES), rewards.T, reverse=True)[1].T
    advantages = jnp.where(alive, returns - returns.mean(0), 0) / 10

    def loss_fn(params):
        logits = jax.vmap(jax.vmap(policy, (None, 0)), (None, 0))(params, states)
        log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[..., None], axis=-1)[..., 0]
        return -jnp.sum(log_probs * advantages * alive) / alive.sum()

    loss, grads = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = OPTIMIZER.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss, alive.sum(1)


def main():
    params = init(jax.random.key(0))
    opt_state = OPTIMIZER.init(params)
    losses, lengths = [], []
    for i, key in enumerate(jax.random.split(jax.random.key(1), 20)):
        params, opt_state, loss, length = train_step(params, opt_state, key)
        losses.append(loss)
        lengths.append(length)
        if i % 5 == 4:
            print(f"update {i + 1}: the pole stays up for {length.mean():.1f} of {STEPS} steps")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), lengths=np.stack(lengths), out=params["out"])


if __name__ == "__main__":
    main()
