"""Molecular dynamics of a Lennard-Jones cluster: it is minimised and heated, and its vibrations
follow from the Hessian. Many copies run at once, spread over all devices.
"""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

ATOMS, COPIES, DT = 13, 8, 0.005


def energy(positions):
    i, j = np.triu_indices(ATOMS, 1)
    squares = jnp.sum((positions[i] - positions[j]) ** 2, axis=-1)
    sixth = 1 / squares**3
    return 4 * jnp.sum(sixth**2 - sixth)


def icosahedron():
    golden = (1 + 5**0.5) / 2
    corners = [(0, a, b * golden) for a in (-1, 1) for b in (-1, 1)]
    corners = np.array([np.roll(c, k) for c in corners for k in range(3)])
    return np.concatenate([np.zeros((1, 3)), 1.1 * corners / np.linalg.norm(corners[0])]).astype(np.float32)


@jax.jit
def descend(positions):
    """Follows the gradients until they are small."""
    def going_on(carry):
        _, gradient, step = carry
        return (jnp.max(jnp.abs(gradient)) > 1e-4) & (step < 2000)

    def step(carry):
        positions, gradient, step = carry
        positions = positions - 0.002 * gradient
        return positions, jax.grad(energy)(positions), step + 1
    return jax.lax.while_loop(going_on, step, (positions, jax.grad(energy)(positions), 0))


@functools.partial(jax.jit, static_argnums=2)
def simulate(positions, velocities, steps):
    """Integrates with velocity Verlet. Returns the last state, and the energies of every step."""
    def step(carry, _):
        x, v, force = carry
        v = v + DT / 2 * force
        x = x + DT * v
        force = -jax.grad(energy)(x)
        v = v + DT / 2 * force
        kinetic = 0.5 * jnp.sum(v**2)
        return (x, v, force), jnp.stack([energy(x), kinetic])

    def one(x, v):
        (x, v, _), energies = jax.lax.scan(step, (x, v, -jax.grad(energy)(x)), length=steps)
        return x, v, energies
    return jax.vmap(one)(positions, velocities)


def main():
    minimum, _, steps = descend(icosahedron())
    print(f"energy {energy(minimum):.5f} (known: -44.32680) after {steps} steps")
    hessian = jax.jit(jax.hessian(energy))(minimum).reshape(3 * ATOMS, 3 * ATOMS)
    frequencies = jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(hessian)[6:], 0))
    product = jax.jvp(jax.grad(energy), (minimum,), (jnp.ones_like(minimum),))[1]
    print(f"vibrations from {frequencies[0]:.3f} to {frequencies[-1]:.3f}")
    print(f"moved as a whole, its force changes by {jnp.abs(product).max():.5f}")

    mesh = jax.make_mesh((len(jax.devices()),), ("copies",), axis_types=(jax.sharding.AxisType.Auto,))
    heat = jnp.linspace(0.1, 0.5, COPIES)[:, None, None]
    velocities = heat * jax.random.normal(jax.random.key(0), (COPIES, ATOMS, 3))
    velocities = velocities - velocities.mean(1, keepdims=True)
    x, v = jax.device_put((jnp.tile(minimum, (COPIES, 1, 1)), velocities), NamedSharding(mesh, P("copies")))
    x, v, energies = simulate(x, v, 60)
    total = energies.sum(-1)
    print("energy drifts by", float(jnp.abs(total - total[:, :1]).max()))
    radii = jnp.sqrt(jnp.mean(jnp.sum((x - x.mean(1, keepdims=True)) ** 2, -1), axis=1))
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], minimum=minimum, frequencies=frequencies, energies=energies, positions=x, radii=radii)


if __name__ == "__main__":
    main()
