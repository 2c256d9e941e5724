"""Diffrax: stochastic differential equations. Strong convergence on one Brownian path, and moments of many paths."""
import sys

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

THETA, MU, SIGMA = 1.5, 0.7, 0.4


def ornstein_uhlenbeck(key):
    ts = jnp.linspace(0, 2, 11)
    motion = diffrax.VirtualBrownianTree(0.0, 2.0, tol=1e-3, shape=(), key=key)
    terms = diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, args: THETA * (MU - y)),
                              diffrax.ControlTerm(lambda t, y, args: SIGMA, motion))
    solution = diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 2.0, dt0=0.05, y0=jnp.asarray(0.0),
                                   saveat=diffrax.SaveAt(ts=ts))
    return solution.ys


def geometric(dt, key):
    """Returns the end of a geometric Brownian motion, computed by the solver and by the exact
    formula."""
    motion = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-4, shape=(), key=key)
    terms = diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, args: 0.5 * y),
                              diffrax.ControlTerm(lambda t, y, args: 0.8 * y, motion))
    solution = diffrax.diffeqsolve(terms, diffrax.ItoMilstein(), 0.0, 1.0, dt0=dt, y0=jnp.asarray(1.0), max_steps=256)
    exact = jnp.exp((0.5 - 0.8**2 / 2) + 0.8 * motion.evaluate(0.0, 1.0))
    return solution.ys[-1], exact


def main():
    paths = jax.jit(jax.vmap(ornstein_uhlenbeck))(jax.random.split(jax.random.key(0), 64))
    variance = SIGMA**2 / (2 * THETA) * (1 - np.exp(-2 * THETA * 2.0))
    print(f"mean {paths[:, -1].mean():.3f}, variance {paths[:, -1].var():.4f}; in theory {variance:.4f}")
    keys = jax.random.split(jax.random.key(1), 16)
    errors, ends = [], []
    for dt in (1 / 8, 1 / 32, 1 / 128):
        got, exact = jax.jit(jax.vmap(geometric, in_axes=(None, 0)))(dt, keys)
        errors.append(jnp.abs(got - exact).mean())
        ends.append(got)
        print(f"steps of {dt:.4f}: strong error {errors[-1]:.5f}")
    sensitivity = jax.grad(lambda y0: diffrax.diffeqsolve(
        diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, args: -y), diffrax.ControlTerm(
            lambda t, y, args: 0.3 * jnp.cos(y), diffrax.VirtualBrownianTree(0.0, 1.0, 1e-3, (), jax.random.key(2)))),
        diffrax.Heun(), 0.0, 1.0, 0.1, y0).ys[-1])(jnp.asarray(0.3))
    print("the gradient through a Stratonovich path is", sensitivity)
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], paths=paths, errors=np.stack(errors), ends=np.stack(ends), sensitivity=sensitivity)


if __name__ == "__main__":
    main()
