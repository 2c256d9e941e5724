"""Optimistix and Lineax: a curve fit by Gauss-Newton and Levenberg-Marquardt, roots, fixed points,
and linear systems that are given only as functions.
"""
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx


def residuals(params, data):
    t, y = data
    return params["height"] * jnp.exp(-params["rate"] * t) * jnp.cos(params["frequency"] * t) - y


@eqx.filter_jit
def fit(solver, params, data):
    return optx.least_squares(residuals, solver, params, args=data)


def laplacian(x):
    return 2.1 * x - jnp.roll(x, 1) - jnp.roll(x, -1)


def main():
    rng = np.random.default_rng(0)
    t = jnp.linspace(0, 4, 60)
    y = 2.0 * np.exp(-0.5 * np.asarray(t)) * np.cos(3 * np.asarray(t)) + 0.01 * rng.normal(size=60)
    data, saved = (t, jnp.asarray(y, dtype=jnp.float32)), {}
    start = {"height": jnp.array(1.5), "rate": jnp.array(0.3), "frequency": jnp.array(2.8)}
    for solver in (optx.GaussNewton(1e-4, 1e-5), optx.LevenbergMarquardt(1e-4, 1e-5), optx.Dogleg(1e-4, 1e-5)):
        name = type(solver).__name__
        solution = fit(solver, start, data)
        saved[name] = jnp.stack(list(solution.value.values()))
        print(name, {k: float(v) for k, v in solution.value.items()}, "in", int(solution.stats["num_steps"]), "steps")

    # The derivative of a root follows from the implicit function theorem.
    def root(a):
        return optx.root_find(lambda x, a: jnp.tanh(x) + x - a, optx.Newton(1e-5, 1e-5), jnp.array(0.5), args=a).value
    saved["root"], saved["root_slope"] = jax.value_and_grad(root)(jnp.array(1.3))
    saved["bisected"] = optx.root_find(lambda x, a: x**3 - a, optx.Bisection(1e-5, 1e-5), jnp.array(1.0), args=5.0,
                                       options={"lower": 0.0, "upper": 3.0}).value
    saved["fixed"] = optx.fixed_point(lambda x, _: jnp.cos(x), optx.FixedPointIteration(1e-5, 1e-5), 0.5).value
    saved["minimum"] = optx.minimise(lambda x, _: jnp.sum((x - jnp.arange(3.0)) ** 4 + (x - 1) ** 2),
                                     optx.BFGS(1e-4, 1e-5), jnp.zeros(3)).value

    b = jnp.asarray(rng.normal(size=24), dtype=jnp.float32)
    operator = lx.FunctionLinearOperator(laplacian, jax.eval_shape(lambda: b), lx.positive_semidefinite_tag)
    saved["cg"] = lx.linear_solve(operator, b, lx.CG(1e-5, 1e-5)).value
    saved["gmres"] = lx.linear_solve(operator, b, lx.GMRES(1e-5, 1e-5, restart=24), throw=False).value
    matrix = lx.MatrixLinearOperator(jnp.asarray(rng.normal(size=(8, 5)), dtype=jnp.float32))
    saved["qr"] = lx.linear_solve(matrix, b[:8], lx.QR()).value
    tridiagonal = lx.TridiagonalLinearOperator(jnp.full(24, 3.0), jnp.full(23, -1.0), jnp.full(23, -1.0))
    saved["tridiagonal"] = lx.linear_solve(tridiagonal, b).value
    print("root", saved["root"], "slope", saved["root_slope"], "fixed point", saved["fixed"])
    print("residual of CG", float(jnp.linalg.norm(laplacian(saved["cg"]) - b)))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], **saved)


if __name__ == "__main__":
    main()
