"""Denoising diffusion (DDPM) of two moons in plain JAX and Optax, data parallel; the sampler is one scan."""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec as P
from sklearn.datasets import make_moons

STEPS, HIDDEN, BATCH = 50, 64, 256
BETAS = np.linspace(1e-4, 0.2, STEPS, dtype=np.float32)
ALPHAS = 1 - BETAS
ALPHA_BARS = np.cumprod(ALPHAS)


def init(key):
    sizes = [2 + 16, HIDDEN, HIDDEN, 2]
    keys = jax.random.split(key, len(sizes) - 1)
    return [(jax.nn.initializers.he_normal()(k, (m, n)), jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:])]


def time_embedding(t):
    frequencies = jnp.exp(-jnp.log(1000.0) * jnp.arange(8) / 8)
    angles = t[:, None] * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def denoise(params, x, t):
    x = jnp.concatenate([x, time_embedding(t)], axis=1)
    for w, b in params[:-1]:
        x = jax.nn.silu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


def loss_fn(params, x, key):
    t_key, noise_key = jax.random.split(key)
    t = jax.random.randint(t_key, (len(x),), 0, STEPS)
    noise = jax.random.normal(noise_key, x.shape)
    alpha_bar = jnp.asarray(ALPHA_BARS)[t][:, None]
    noised = jnp.sqrt(alpha_bar) * x + jnp.sqrt(1 - alpha_bar) * noise
    return jnp.mean((denoise(params, noised, t) - noise) ** 2)


OPTIMIZER = optax.adam(3e-3)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, opt_state, x, key):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, key)
    updates, opt_state = OPTIMIZER.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


@functools.partial(jax.jit, static_argnums=2)
def sample(params, key, count):
    start_key, key = jax.random.split(key)

    def step(x, t):
        predicted = denoise(params, x, jnp.full(count, t))
        beta, alpha, alpha_bar = (jnp.asarray(a)[t] for a in (BETAS, ALPHAS, ALPHA_BARS))
        mean = (x - beta / jnp.sqrt(1 - alpha_bar) * predicted) / jnp.sqrt(alpha)
        noise = jax.random.normal(jax.random.fold_in(key, t), x.shape)
        return jnp.where(t > 0, mean + jnp.sqrt(beta) * noise, mean), None
    return jax.lax.scan(step, jax.random.normal(start_key, (count, 2)), jnp.arange(STEPS), reverse=True)[0]


def main():
    moons, _ = make_moons(1024, noise=0.05, random_state=0)
    moons = ((moons - moons.mean(0)) / moons.std(0)).astype(np.float32)
    mesh = jax.make_mesh((len(jax.devices()),), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    params = jax.device_put(init(jax.random.key(0)), NamedSharding(mesh, P()))
    opt_state = OPTIMIZER.init(params)
    rng, losses = np.random.default_rng(0), []
    for step in range(60):
        x = jax.device_put(moons[rng.integers(0, len(moons), BATCH)], NamedSharding(mesh, P("batch")))
        params, opt_state, loss = train_step(params, opt_state, x, jax.random.fold_in(jax.random.key(1), step))
        losses.append(loss)
        if step % 20 == 19:
            print(f"step {step + 1}: loss {loss:.4f}")
    samples = sample(params, jax.random.key(2), 64)
    print("samples have mean", samples.mean(0), "and deviation", samples.std(0))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], losses=np.stack(losses), samples=samples, weights=params[1][0])


if __name__ == "__main__":
    main()
