"""Gaussian process regression: the marginal likelihood by Cholesky, its maximum by gradients, prediction, a sample."""
import sys

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)


def kernel(params, a, b):
    """Returns a Matern 5/2 kernel plus a periodic kernel."""
    distance = jnp.sqrt(5.0) * jnp.abs(a[:, None] - b[None, :]) / jnp.exp(params["length"])
    matern = jnp.exp(params["height"]) * (1 + distance + distance**2 / 3) * jnp.exp(-distance)
    wave = jnp.sin(jnp.pi * (a[:, None] - b[None, :]) / jnp.exp(params["period"]))
    return matern + jnp.exp(params["wave"]) * jnp.exp(-2 * wave**2)


def noisy(params, x):
    return kernel(params, x, x) + (jnp.exp(params["noise"]) + 1e-4) * jnp.eye(len(x))


def negative_log_likelihood(params, x, y):
    factor, lower = jsl.cho_factor(noisy(params, x), lower=True)
    alpha = jsl.cho_solve((factor, lower), y)
    return 0.5 * y @ alpha + jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * len(x) * jnp.log(2 * jnp.pi)


@jax.jit
def predict(params, x, y, new):
    chol = jnp.linalg.cholesky(noisy(params, x))
    between = kernel(params, x, new)
    solved = jsl.solve_triangular(chol, between, lower=True)
    mean = solved.T @ jsl.solve_triangular(chol, y, lower=True)
    return mean, kernel(params, new, new) - solved.T @ solved


def main():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 6, 40))
    y = (np.sin(2 * np.pi * x / 1.5) + 0.3 * x + 0.1 * rng.normal(size=40))
    mean_y, x, y = y.mean(), jnp.asarray(x), jnp.asarray(y - y.mean())
    params = {"length": jnp.log(2.0), "height": jnp.log(1.0), "period": jnp.log(1.4), "wave": jnp.log(1.0),
              "noise": jnp.log(0.1)}
    optimizer = optax.adam(0.05)

    @jax.jit
    def fit(params):
        def step(carry, _):
            params, state = carry
            value, grads = jax.value_and_grad(negative_log_likelihood)(params, x, y)
            updates, state = optimizer.update(grads, state)
            return (optax.apply_updates(params, updates), state), value
        (params, _), values = jax.lax.scan(step, (params, optimizer.init(params)), length=60)
        return params, values

    params, values = fit(params)
    print(f"negative log likelihood {values[0]:.3f} -> {values[-1]:.3f}")
    print({name: round(float(jnp.exp(value)), 4) for name, value in params.items()})
    new = jnp.linspace(0, 8, 33)
    mean, covariance = predict(params, x, y, new)
    deviation = jnp.sqrt(jnp.diag(covariance))
    sample = mean + jnp.linalg.cholesky(covariance + 1e-3 * jnp.eye(33)) @ jax.random.normal(jax.random.key(0), (33,))
    hessian = jax.jit(jax.hessian(negative_log_likelihood))(params, x, y)
    curvature = jnp.linalg.eigvalsh(jnp.array([[hessian[a][b] for b in sorted(params)] for a in sorted(params)]))
    print("at 8:", float(mean[-1] + mean_y), "+-", float(deviation[-1]), "curvatures", np.asarray(curvature).round(2))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], values=values, params=jnp.stack([params[n] for n in sorted(params)]), mean=mean,
                 deviation=deviation, sample=sample, curvature=curvature)


if __name__ == "__main__":
    main()
