"""Control flow, transforms and random numbers."""
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from registry import f32, flags, key, normal, program, s32, weights


# ---- Control flow. -------------------------------------------------------------------------------
@program(f32(6), flags())
def cond(x, p):
    return lax.cond(p, lambda x: jnp.sin(x) * 2, lambda x: x - 1, x)


@program(f32(6), s32(low=-2, high=5))
def switch(x, i):
    return lax.switch(i, [jnp.sin, jnp.cos, lambda x: x * x, lambda x: x.at[0].set(0)], x)


@program(s32(low=20, high=60))
def collatz(n):
    def step(state):
        n, steps = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1
    return lax.while_loop(lambda s: s[0] > 1, step, (n, 0))


@program(f32(low=1, high=9))
def newton_while(x):
    def done(state):
        return jnp.abs(state**2 - x) > 1e-5
    return lax.while_loop(done, lambda y: (y + x / y) / 2, x)


@program(f32(5, 5))
def fori(x):
    return lax.fori_loop(0, 7, lambda i, c: jnp.tanh(c @ x) + i * 0.1, x)


@program(f32(5), s32(low=0, high=9))
def fori_dynamic_bound(x, n):
    return lax.fori_loop(0, n, lambda i, c: c.at[i % 5].add(i), x)


@program(f32(4), f32(7, 4))
def scan_with_outputs(c, xs):
    def step(carry, x):
        new = jnp.sin(carry) + x
        return new, (new * 2, x.sum())
    return lax.scan(step, c, xs)


@program(f32(4), f32(6, 4))
def scan_reverse_unrolled(c, xs):
    step = lambda c, x: (c * 0.5 + x, c)
    return lax.scan(step, c, xs, reverse=True), lax.scan(step, c, xs, unroll=4)


@program(f32(3, 4))
def scan_of_scan(x):
    def inner(c, v):
        return c + v, c * v
    def outer(c, row):
        last, ys = lax.scan(inner, c, row)
        return last, ys
    return lax.scan(outer, 0.0, x)


@program(f32(6, 3))
def map_over_rows(x):
    return lax.map(lambda r: jnp.outer(r, r).sum(), x), lax.map(jnp.sin, x, batch_size=4)


@program(f32(9, 3), f32(9, 3))
def associative_scan(a, b):
    def combine(l, r):
        return l[0] * r[0], r[0] * l[1] + r[1]
    return lax.associative_scan(combine, (a / 2, b)), lax.associative_scan(jnp.add, a, reverse=True)


@program(s32(low=0, high=3), f32(4))
def cond_in_while(i, x):
    def body(state):
        n, x = state
        return n + 1, lax.cond(n % 2 == 0, lambda v: v * 2, lambda v: v - 1, x)
    return lax.while_loop(lambda s: s[0] < 6, body, (i, x))


@program(f32(4))
def nested_jit(x):
    inner = jax.jit(lambda a, b: a * b + jnp.sum(a))
    return inner(x, inner(x, x)) + jax.jit(jnp.sin)(x)


@program(f32(4))
def platform_dependent(x):
    return lax.platform_dependent(x, cpu=lambda x: x * 2, default=lambda x: x * 2)


@program(s32(5, low=0, high=40))
def fibonacci(n):
    def fib(k):
        return lax.fori_loop(0, k, lambda _, s: (s[1], s[0] + s[1]), (0, 1))[0]
    return jax.vmap(fib)(n)


@program(f32(8))
def reduce_of_pairs(x):
    """Computes an argmax by a reduction with its own combining function."""
    def larger(a, b):
        keep = a[0] >= b[0]
        return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])
    return lax.reduce((x, jnp.arange(8)), (-jnp.inf, 0), larger, (0,))


# ---- Transforms. ---------------------------------------------------------------------------------
def _loss(w, x):
    return jnp.mean(jnp.tanh(x @ w) ** 2)


@program(weights(4, 3), f32(6, 4))
def grad_and_value(w, x):
    return jax.value_and_grad(_loss, (0, 1))(w, x)


@program(f32(5), f32(5))
def vjp_and_jvp(x, t):
    f = lambda x: jnp.sin(x) * x.sum()
    y, pull = jax.vjp(f, x)
    return y, pull(t), jax.jvp(f, (x,), (t,))


@program(f32(4))
def jacobians(x):
    f = lambda x: jnp.stack([x[0] * x[1], jnp.sin(x[2]), x.prod()])
    return jax.jacfwd(f)(x), jax.jacrev(f)(x)


@program(f32(4))
def hessian(x):
    return jax.hessian(lambda x: jnp.sum(jnp.exp(x) * x[::-1]) + jnp.prod(x))(x)


@program(weights(4, 3), f32(6, 4), f32(4, 3))
def hessian_vector_product(w, x, v):
    return jax.jvp(lambda w: jax.grad(_loss)(w, x), (w,), (v,))[1]


@program(f32(5), f32(5))
def linearized(x, t):
    y, push = jax.linearize(lambda x: jnp.tanh(x) * jnp.cumsum(x), x)
    return y, push(t), jax.linear_transpose(push, t)(t)


@program(f32(3, 4, 5), f32(5, 2))
def vmap_nestings(x, w):
    f = lambda row, w: jnp.tanh(row @ w)
    return (jax.vmap(jax.vmap(f, (0, None)), (0, None))(x, w),
            jax.vmap(f, (1, None), 1)(x[0].T, w),
            jax.vmap(jnp.dot, (1, 0))(x[0, :, :4], x[1, :, :4]))


@program(f32(5, 4), f32(5, 6, 4))
def vmap_of_grad_of_scan(c, xs):
    def loss(c, xs):
        return lax.scan(lambda c, x: (jnp.sin(c) * x, c.sum()), c, xs)[1].sum()
    return jax.vmap(jax.grad(loss, (0, 1)))(c, xs)


@program(weights(4, 3), f32(6, 4))
def per_example_gradients(w, x):
    return jax.vmap(jax.grad(lambda w, x: _loss(w, x[None])), (None, 0))(w, x)


@program(f32(5), flags(5))
def vmap_of_cond(x, p):
    return jax.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x))(p, x)


@program(f32(5, low=1, high=9))
def vmap_of_while(x):
    def root(x):
        return lax.while_loop(lambda y: jnp.abs(y * y - x) > 1e-3, lambda y: (y + x / y) / 2, x)
    return jax.vmap(root)(x)


@program(f32(6))
def grad_of_while_forward(x):
    f = lambda x: lax.while_loop(lambda s: s[0] < 4, lambda s: (s[0] + 1, jnp.sin(s[1])), (0, x))[1]
    return jax.jvp(f, (x,), (jnp.ones_like(x),))


@program(f32(6))
def custom_jvp(x):
    @jax.custom_jvp
    def softabs(x):
        return jnp.sqrt(x * x + 0.01)
    softabs.defjvp(lambda p, t: (softabs(*p), t[0] * jnp.tanh(p[0])))
    return softabs(x), jax.grad(lambda x: softabs(x).sum())(x)


@program(f32(6))
def custom_vjp(x):
    @jax.custom_vjp
    def clipped(x):
        return x
    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.5, 0.5),))
    return jax.grad(lambda x: (clipped(x) ** 3).sum())(x)


@program(weights(5, 5), f32(4, 5))
def remat(w, x):
    @partial(jax.checkpoint, policy=jax.checkpoint_policies.dots_saveable)
    def block(x):
        return jnp.tanh(jnp.sin(x @ w) @ w)
    return jax.grad(lambda x: block(block(x)).sum())(x)


@program(f32(6, low=0.5, high=3))
def implicit_root(x):
    """The derivative of a root does not go through the iterations that found it."""
    def solve(f, guess):
        return lax.fori_loop(0, 8, lambda _, y: y - f(y) / jax.grad(lambda z: f(z).sum())(y), guess)
    def root(x):
        return lax.custom_root(lambda y: y * y - x, x, solve, lambda g, y: y / g(jnp.ones_like(y)))
    return root(x), jax.grad(lambda x: root(x).sum())(x)


@program(f32(4), f32(4))
def stop_gradient(x, y):
    return jax.grad(lambda x: jnp.sum(x * lax.stop_gradient(x * y)))(x)


@program(f32(6, 5), s32(4, low=0, high=6))
def grad_of_indexing(x, i):
    def f(x):
        return (x[i] ** 2).sum() + jnp.take_along_axis(x, jnp.argsort(x, 1), 1)[:, 0].sum()
    return jax.grad(f)(x), jax.grad(lambda x: jnp.sort(x, 0)[1].sum())(x)


@program(f32(4, 5))
def grad_of_reductions(x):
    def f(x):
        return (jnp.max(x, 0) * jnp.prod(x, 0) + jax.nn.logsumexp(x, 0) + jnp.cumsum(x, 0)[1]).sum()
    return jax.grad(f)(x), jax.grad(lambda x: jnp.linalg.norm(x))(x)


# ---- Random numbers. -----------------------------------------------------------------------------
@program(key(3))
def random_splits(k):
    a, b, c = jax.random.split(k, 3)
    return (a, jax.random.fold_in(b, 7), jax.random.bits(c, (5,)),
            jax.random.bits(c, (6,), jnp.uint8))


@program(key(4))
def random_floats(k):
    r = jax.random
    return (r.uniform(k, (5, 3)), r.normal(k, (9,)), r.normal(k, (8,), jnp.bfloat16),
            r.exponential(k, (6,)), r.gumbel(k, (6,)), r.laplace(k, (5,)), r.cauchy(k, (3,)),
            r.logistic(k, (3,)), r.truncated_normal(k, -1, 1, (7,)))


@program(key(5), normal(4, 6))
def random_choices(k, logits):
    r = jax.random
    return (r.bernoulli(k, 0.3, (8,)), r.categorical(k, logits), r.permutation(k, 10),
            r.randint(k, (7,), -3, 9), r.choice(k, 10, (4,), replace=False), r.rademacher(k, (5,)),
            r.choice(k, jnp.arange(5.0), (6,), p=jnp.array([0.1, 0.2, 0.3, 0.2, 0.2])))


@program(key(6))
def random_gammas(k):
    r = jax.random
    return (r.gamma(k, 2.0, (4,)), r.beta(k, 2.0, 3.0, (4,)), r.dirichlet(k, jnp.ones(3)),
            r.poisson(k, 3.0, (5,)))


@program(key(7), normal(8, 6))
def random_permuted_rows(k, x):
    return jax.random.permutation(k, x), jax.vmap(jax.random.permutation)(jax.random.split(k, 8), x)


@program(s32(low=0, high=99))
def random_typed_keys(seed):
    k = jax.random.key(seed)
    return jax.random.normal(k, (4,)), jax.random.key_data(jax.random.split(k))


@program(s32(low=0, high=99))
def random_by_rbg(seed):
    return jax.random.uniform(jax.random.key(seed, impl="rbg"), (4, 3))


@program(s32(low=0, high=99))
def random_bits_by_rbg(seed):
    key = jax.random.key(seed, impl="rbg")
    # the counter of this generator is about to overflow
    state = jax.random.key_data(key).at[2:].set(2**32 - 2)
    bits = [lax.rng_bit_generator(state, shape, dtype) for shape, dtype in (
        ((7,), jnp.uint32), ((3, 5), jnp.uint16), ((2, 3), jnp.uint8), ((5,), jnp.uint32))]
    return bits, jax.random.normal(jax.random.fold_in(key, 3), (5,)), jax.random.split(key).shape[0]


@program(key(8))
def random_walk(k):
    def step(carry, k):
        new = carry + jax.random.normal(k, (3,))
        return new, new
    return lax.scan(step, jnp.zeros(3), jax.random.split(k, 12))
