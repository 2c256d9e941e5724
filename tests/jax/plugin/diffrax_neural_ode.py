"""Diffrax and Equinox: a neural ordinary differential equation learns a family of spirals."""
import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Field(eqx.Module):
    mlp: eqx.nn.MLP
    scale: jax.Array

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(2, 2, width_size=32, depth=2, activation=jax.nn.softplus, final_activation=jnp.tanh,
                              key=key)
        self.scale = jnp.ones(())

    def __call__(self, t, y, args):
        return self.scale * self.mlp(y)


class NeuralODE(eqx.Module):
    field: Field

    def __call__(self, ts, y0):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(self.field), diffrax.Tsit5(), t0=ts[0], t1=ts[-1], dt0=ts[1] - ts[0], y0=y0,
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6), saveat=diffrax.SaveAt(ts=ts),
            adjoint=diffrax.RecursiveCheckpointAdjoint()).ys


def spirals(ts, key):
    y0 = jax.random.uniform(key, (64, 2), minval=-0.6, maxval=1.0)

    def solve(y0):
        term = diffrax.ODETerm(lambda t, y, args: jnp.stack([y[1], -0.1 * y[1] - jnp.sin(2 * y[0])]))
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), ts[0], ts[-1], 0.1, y0, saveat=diffrax.SaveAt(ts=ts)).ys
    return jax.vmap(solve)(y0)


@eqx.filter_value_and_grad
def loss_fn(model, ts, ys):
    return jnp.mean((jax.vmap(model, in_axes=(None, 0))(ts, ys[:, 0]) - ys) ** 2)


@eqx.filter_jit
def make_step(model, opt_state, optimizer, ts, ys):
    loss, grads = loss_fn(model, ts, ys)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def main():
    ts = jnp.linspace(0, 3, 20)
    ys = spirals(ts, jax.random.key(0))
    model = NeuralODE(Field(jax.random.key(1)))
    optimizer = optax.adabelief(5e-3)
    opt_state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    losses = []
    for step in range(20):
        batch = ys[(step % 2) * 32:][:32]
        model, opt_state, loss = make_step(model, opt_state, optimizer, ts, batch)
        losses.append(loss)
        if step % 5 == 4:
            print(f"step {step + 1}: loss {loss:.5f}")
    solved = model(ts, ys[0, 0])
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], data=ys, losses=np.stack(losses), solved=solved)


if __name__ == "__main__":
    main()
