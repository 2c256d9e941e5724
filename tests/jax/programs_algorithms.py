"""Algorithms: filters, samplers, solvers, simulations, dynamic programming."""
import jax
import jax.numpy as jnp
from jax import lax
from programs_models import descend
from registry import f32, flags, key, normal, positive_definite, program, s32


@program(f32(24, 2))
def k_means(x):
    def step(centres, _):
        near = jnp.argmin(((x[:, None] - centres) ** 2).sum(-1), 1)
        sums = jax.ops.segment_sum(x, near, 3)
        n = jax.ops.segment_sum(jnp.ones(24), near, 3)
        return jnp.where(n[:, None] > 0, sums / jnp.maximum(n, 1)[:, None], centres), near
    return lax.scan(step, x[:3], length=6)


@program(normal(20, 5))
def principal_component(x):
    c = (x - x.mean(0)).T @ (x - x.mean(0)) / 20
    def step(_, v):
        v = c @ v
        return v / jnp.linalg.norm(v)
    v = lax.fori_loop(0, 30, step, jnp.ones(5) / 5**0.5)
    return v, v @ c @ v


@program(f32(10), f32(10))
def kalman_filter(z, u):
    a = jnp.array([[1.0, 0.1], [0.0, 1.0]])
    def step(state, inputs):
        m, p = state
        z, u = inputs
        m, p = a @ m + jnp.array([0.0, 0.1]) * u, a @ p @ a.T + 0.01 * jnp.eye(2)
        gain = p[:, 0] / (p[0, 0] + 0.5)
        m, p = m + gain * (z - m[0]), p - jnp.outer(gain, p[0])
        return (m, p), m
    return lax.scan(step, (jnp.zeros(2), jnp.eye(2)), (z, u))


@program(f32(3, 3), f32(3, 5), s32(12, low=0, high=5))
def hidden_markov_model(transition, emission, seen):
    """Computes the likelihood of a sequence by the forward algorithm, and its best path
    (Viterbi)."""
    t, e = jax.nn.log_softmax(transition), jax.nn.log_softmax(emission)
    def forward(alpha, s):
        return jax.nn.logsumexp(alpha[:, None] + t, 0) + e[:, s], None
    def viterbi(score, s):
        each = score[:, None] + t
        return each.max(0) + e[:, s], each.argmax(0)
    alpha, _ = lax.scan(forward, e[:, seen[0]], seen[1:])
    score, back = lax.scan(viterbi, e[:, seen[0]], seen[1:])
    last = score.argmax()
    _, path = lax.scan(lambda s, b: (b[s], s), last, back, reverse=True)
    return jax.nn.logsumexp(alpha), path, jax.grad(
        lambda e: jax.nn.logsumexp(lax.scan(forward, e[:, seen[0]], seen[1:])[0]))(e)


@program(f32(3, low=0.5, high=2))
def ode_by_euler_and_rk4(y):
    def f(y):  # the equations of Lotka and Volterra, with a middle species that eats and is eaten
        eats = jnp.array([[0, -1, 0], [1, 0, -1], [0, 1, 0.0]])
        return y * (jnp.array([1.0, -0.5, -0.8]) + eats @ y)
    def euler(y, _):
        return y + 0.01 * f(y), y
    def rk4(y, _):
        a = f(y); b = f(y + 0.025 * a); c = f(y + 0.025 * b); d = f(y + 0.05 * c)
        return y + 0.05 / 6 * (a + 2 * b + 2 * c + d), None
    return (lax.scan(euler, y, length=20),
            jax.grad(lambda y: lax.scan(rk4, y, length=20)[0].sum())(y))


@program(f32(4), key(11), positive_definite(4))
def hamiltonian_monte_carlo(q, k, precision):
    energy = lambda q: 0.5 * q @ precision @ q
    def transition(q, k):
        kp, ku = jax.random.split(k)
        p = jax.random.normal(kp, q.shape)
        def leap(state, _):
            q, p = state
            p = p - 0.05 * jax.grad(energy)(q)
            q = q + 0.1 * p
            return (q, p - 0.05 * jax.grad(energy)(q)), None
        (new, p2), _ = lax.scan(leap, (q, p), length=5)
        ratio = energy(q) + 0.5 * p @ p - energy(new) - 0.5 * p2 @ p2
        q = jnp.where(jnp.log(jax.random.uniform(ku)) < ratio, new, q)
        return q, q
    return lax.scan(transition, q, jax.random.split(k, 6))


@program(f32(10, 2), f32(10), f32(5, 2))
def gaussian_process(x, y, at):
    kernel = lambda a, b: jnp.exp(-((a[:, None] - b) ** 2).sum(-1))
    matrix = kernel(x, x) + 0.5 * jnp.eye(10)
    alpha, _ = jax.scipy.sparse.linalg.cg(lambda v: matrix @ v, y, maxiter=10)
    return kernel(at, x) @ alpha


@program(normal(2, 8, 5), s32(2, 3, low=1, high=5))
def ctc_loss(logits, labels):
    def of_one(logits, labels):
        log_p = jax.nn.log_softmax(logits)
        extended = jnp.zeros(7, jnp.int32).at[1::2].set(labels)
        skip = (extended != 0) & (extended != jnp.roll(extended, 2)) & (jnp.arange(7) >= 2)
        def step(alpha, p):
            one = jnp.concatenate([jnp.array([-1e9]), alpha[:-1]])
            two = jnp.where(skip, jnp.concatenate([jnp.full(2, -1e9), alpha[:-2]]), -1e9)
            return jax.nn.logsumexp(jnp.stack([alpha, one, two]), 0) + p[extended], None
        start = jnp.full(7, -1e9).at[:2].set(log_p[0, extended[:2]])
        alpha, _ = lax.scan(step, start, log_p[1:])
        return -jnp.logaddexp(alpha[-1], alpha[-2])
    mean = lambda l: jax.vmap(of_one)(l, labels).mean()
    return jax.value_and_grad(mean)(logits)


@program(s32(8, low=0, high=4), s32(9, low=0, high=4))
def edit_distance(a, b):
    def row(last, x):
        def cell(left, inputs):
            up, diagonal, y = inputs
            best = jnp.minimum(jnp.minimum(left, up) + 1, diagonal + (x != y))
            return best, best
        first = last[0] + 1
        _, rest = lax.scan(cell, first, (last[1:], last[:-1], b))
        return jnp.concatenate([first[None], rest]), None
    return lax.scan(row, jnp.arange(10), a)[0][-1]


@program(f32(6, 6, low=0.1, high=5), flags(6, 6))
def shortest_paths(weight, edge):
    d = jnp.where(edge, weight, jnp.inf).at[jnp.arange(6), jnp.arange(6)].set(0)
    return lax.fori_loop(0, 6, lambda k, d: jnp.minimum(d, d[:, k, None] + d[k]), d)


@program(flags(8, 8))
def game_of_life(board):
    def step(b, _):
        n = sum(jnp.roll(b, (i, j), (0, 1)).astype(jnp.int32)
                for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        return (n == 3) | (b & (n == 2)), n.sum()
    return lax.scan(step, board, length=5)


@program(f32(10, 10))
def heat_equation(u):
    def step(u, _):
        inner = u[1:-1, 1:-1]
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        return u.at[1:-1, 1:-1].set(inner + 0.1 * (around - 4 * inner)), None
    return lax.scan(step, u, length=15)[0]


@program(normal(12, 2), f32(12))
def n_body_energy_gradient(x, mass):
    def energy(x):
        d = x[:, None] - x
        r = jnp.sqrt((d**2).sum(-1) + 0.01)
        return -jnp.sum(jnp.triu(jnp.abs(mass[:, None] * mass) / r, 1))
    return jax.value_and_grad(energy)(x)


@program(f32(20, 5), flags(20), normal(5))
def logistic_regression_by_newton(x, y, w):
    def step(w, _):
        loss = lambda w: jnp.mean(jax.nn.softplus(jnp.where(y, -1, 1) * (x @ w))) + 0.1 * w @ w
        h, g = jax.hessian(loss)(w), jax.grad(loss)(w)
        direction, _ = jax.scipy.sparse.linalg.cg(h, g, maxiter=5)
        return w - direction, loss(w)
    return lax.scan(step, w, length=3)


@program(normal(4, 3), normal(3, 2), normal(6, 4), key(3))
def policy_gradient_step(w1, w2, states, k):
    def loss(ws):
        logits = jnp.tanh(states @ ws[0]) @ ws[1]
        actions = jax.random.categorical(k, lax.stop_gradient(logits))
        returns = jnp.cumsum(jnp.where(actions == 1, 1.0, -0.5)[::-1])[::-1]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), actions[:, None], 1)[:, 0]
        return -jnp.mean(picked * (returns - returns.mean()))
    return descend(loss, (w1, w2))
