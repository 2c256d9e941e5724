"""Diffrax: Robertson's stiff chemical reactions with Kvaerno5 in double precision, their rates' gradient, an event."""
import sys

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix

jax.config.update("jax_enable_x64", True)


def robertson(t, y, rates):
    k1, k2, k3 = rates
    a = -k1 * y[0] + k3 * y[1] * y[2]
    c = k2 * y[1] ** 2
    return jnp.stack([a, -a - c, c])


@jax.jit
def solve(rates):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(robertson), diffrax.Kvaerno5(), t0=0.0, t1=100.0, dt0=0.0002, y0=jnp.array([1.0, 0.0, 0.0]),
        args=rates, saveat=diffrax.SaveAt(ts=jnp.array([0.0, 1e-4, 1e-2, 1.0, 10.0, 100.0])),
        stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8), max_steps=1024)


@jax.jit
def bouncing():
    """Returns when a ball that falls with drag hits the ground."""
    event = diffrax.Event(lambda t, y, args, **kwargs: y[0], root_finder=optimistix.Newton(1e-8, 1e-8))
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: jnp.stack([y[1], -9.81 - 0.1 * y[1]])), diffrax.Dopri5(), 0.0, jnp.inf,
        0.05, jnp.array([10.0, 0.0]), event=event, stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-9))
    return solution.ts[0], solution.ys[0]


def main():
    rates = jnp.array([0.04, 3e7, 1e4])
    solution = solve(rates)
    print("concentrations:", solution.ys, "after", solution.stats["num_steps"], "steps", sep="\n")
    gradient = jax.grad(lambda rates: solve(rates).ys[-1, 0])(rates)
    print("sensitivity of the first to the rates:", gradient)
    time, state = bouncing()
    print(f"the ball lands after {time:.6f} s at {state[1]:.4f} m/s")
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], ys=solution.ys, total=solution.ys.sum(1), gradient=gradient, time=time, state=state)


if __name__ == "__main__":
    main()
