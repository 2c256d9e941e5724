"""A pseudo-spectral solver of the Navier-Stokes equations in two dimensions by FFT, and the gradient through it."""
import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np

N, DT, VISCOSITY = 32, 0.02, 5e-3
KX = np.fft.fftfreq(N, 1 / N)[:, None].astype(np.float32)
KY = np.fft.rfftfreq(N, 1 / N)[None, :].astype(np.float32)
SQUARES = KX**2 + KY**2
INVERSE = np.where(SQUARES == 0, 0, 1 / np.where(SQUARES == 0, 1, SQUARES)).astype(np.float32)
DEALIAS = ((np.abs(KX) < N / 3) & (np.abs(KY) < N / 3)).astype(np.float32)


def velocity(w_hat):
    psi_hat = w_hat * INVERSE
    return jnp.fft.irfft2(1j * KY * psi_hat, (N, N)), jnp.fft.irfft2(-1j * KX * psi_hat, (N, N))


def advection(w_hat):
    u, v = velocity(w_hat)
    w_x, w_y = jnp.fft.irfft2(1j * KX * w_hat, (N, N)), jnp.fft.irfft2(1j * KY * w_hat, (N, N))
    return -jnp.fft.rfft2(u * w_x + v * w_y) * DEALIAS


def step(w_hat, _):
    """Makes a Runge-Kutta step of second order, in which the viscous part is exact."""
    decay = jnp.exp(-VISCOSITY * SQUARES * DT)
    first = advection(w_hat)
    guess = (w_hat + DT * first) * decay
    w_hat = (w_hat + DT / 2 * first) * decay + DT / 2 * advection(guess)
    u, v = velocity(w_hat)
    w = jnp.fft.irfft2(w_hat, (N, N))
    return w_hat, jnp.stack([jnp.mean(u**2 + v**2) / 2, jnp.mean(w**2) / 2])


@functools.partial(jax.jit, static_argnums=1)
def solve(w, steps):
    w_hat, history = jax.lax.scan(step, jnp.fft.rfft2(w), length=steps)
    return jnp.fft.irfft2(w_hat, (N, N)), history


def spectrum(w):
    """Returns the energy in each ring of wave numbers."""
    density = jnp.abs(jnp.fft.fft2(w)) ** 2 / N**4
    k = np.fft.fftfreq(N, 1 / N)
    squares = k[:, None] ** 2 + k[None, :] ** 2
    rings = np.rint(np.sqrt(squares)).astype(np.int32)
    weights = np.where(squares == 0, 0, 0.5 / np.where(squares == 0, 1, squares)).astype(np.float32)
    return jnp.zeros(N // 2).at[rings].add(density * weights, mode="drop")


def main():
    x = 2 * np.pi * np.arange(N, dtype=np.float32) / N
    shear = np.where(x < np.pi, np.cosh(4 * (x - np.pi / 2)) ** -2, -(np.cosh(4 * (x - 3 * np.pi / 2)) ** -2))
    w = jnp.asarray(4 * shear[None, :] + 0.3 * np.cos(2 * x)[:, None], jnp.float32)
    w = w + 0.05 * jax.random.normal(jax.random.key(0), (N, N))
    end, history = solve(w - w.mean(), 100)
    print(f"energy {history[0, 0]:.5f} -> {history[-1, 0]:.5f}, enstrophy {history[0, 1]:.4f} -> {history[-1, 1]:.4f}")
    rings = jax.jit(spectrum)(end)
    print("spectrum:", np.asarray(rings[1:6]))
    sensitivity = jax.jit(jax.grad(lambda w: jnp.max(solve(w, 10)[1][:, 1])))(w)
    transformed = jnp.fft.fftshift(jnp.fft.fft(end, axis=0, norm="ortho"), axes=0)
    if len(sys.argv) > 1:
        np.savez(sys.argv[1], end=end, history=history, spectrum=rings, sensitivity=sensitivity,
                 transformed=transformed)


if __name__ == "__main__":
    main()
