"""Results at the limits of dtypes, shapes and indices, as JAX gives them."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from registry import bf16, c64, f32, flags, normal, positive_definite, program, s32, s8, u8

INF, NAN = np.inf, np.nan
# The values contain no subnormal numbers and none whose reciprocal is subnormal, because XLA on
# CPUs treats those as zero.
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2e-38, 8e37, 0.5, -2.5, 7e4], np.float32)
INTS = np.array([0, 1, -1, 2, -2, 2**31 - 1, -2**31, 17, -17, 2**30], np.int32)


@program(SPECIAL)
def special_values_of_functions(x):
    return [f(x) for f in (jnp.exp, jnp.log, jnp.sqrt, jnp.tanh, jnp.sign, jnp.round, jnp.floor,
                           jnp.cbrt, jnp.log1p, jnp.expm1, jnp.reciprocal, lax.rsqrt, lax.logistic,
                           jnp.isfinite, jnp.isnan, jnp.isinf, jnp.signbit, jnp.abs, jnp.arctan,
                           lax.erf, jnp.isposinf)]


@program(SPECIAL[:, None], SPECIAL)
def special_values_of_pairs(x, y):
    return (x + y, x * y, x / y, jnp.maximum(x, y), jnp.minimum(x, y), jnp.power(x, y), x < y,
            x == y,
            x != y, jnp.arctan2(x, y), jnp.fmod(x, y), jnp.copysign(x, y), jnp.fmax(x, y),
            jnp.logaddexp(x, y), jnp.hypot(x, y), x % y)


@program(np.concatenate([SPECIAL, [3e9, -3e9, 255.7, -0.9, 300]]).astype(np.float32))
def special_values_converted(x):
    return (x.astype(jnp.int32), x.astype(jnp.int8), x.astype(jnp.uint8), x.astype(jnp.uint32),
            x.astype(jnp.bfloat16), x.astype(jnp.float16), x.astype(bool),
            x.astype(jnp.float8_e5m2).astype(jnp.float32))


@program(np.stack([SPECIAL, SPECIAL[::-1]]))
def special_values_reduced(x):
    return (x.max(1), x.min(1), jnp.argmax(x, 1), jnp.argmin(x, 1), jnp.sort(x, 1),
            jnp.argsort(x, 1),
            lax.top_k(x, 4), lax.cummax(x, 1), jnp.nanargmax(x, 1), jnp.unique(x, size=24),
            jnp.any(x), jnp.all(x), jnp.nanmin(x, 1))


@program(INTS[:, None], INTS)
def integers_that_overflow(a, b):
    a, b = jnp.broadcast_arrays(a, b)
    return (a + b, a - b, a * b, lax.div(a, b), lax.rem(a, b), a // b, a % b, lax.shift_left(a, b),
            lax.shift_right_arithmetic(a, b), lax.shift_right_logical(a, b), -a, abs(a), a < b,
            a.astype(jnp.uint32) < b.astype(jnp.uint32), lax.integer_pow(a, 5), jnp.sign(b))


@program(s8(64), u8(64))
def small_integers_that_overflow(a, b):
    return (a * a, a + a, b * b, b - 7, abs(a), -b, a.sum(dtype=jnp.int8), b.sum(), b.mean(),
            lax.div(a, (a | 1)), jnp.cumsum(b, dtype=jnp.uint8), a.astype(jnp.uint8), a.prod(),
            jnp.power(b, 3), a.astype(jnp.bfloat16), b >> 9, jnp.dot(a, a))


@program(f32(4, 0, 3), f32(0))
def empty_arrays(x, y):
    return (x + 1, x.sum(1), y.sum(), jnp.concatenate([y, y]), x.reshape(0, 12),
            x @ jnp.ones((3, 2)),
            jnp.einsum("abc,abd->cd", x, x), jnp.sort(y), y[::-1], jnp.all(y > 0), x.swapaxes(0, 2),
            y.prod(), jnp.pad(y, 2), jnp.cumsum(y))


@program(f32(), s32(), f32(1, 1, 1))
def scalars_and_ones(x, i, y):
    return (x * i, y.squeeze(), y + x, jnp.sort(y, 1), y.sum((0, 2)), x[None] @ y[0, 0],
            jnp.stack([x, x]),
            y[0, i], y.at[i, 0, 0].set(x), jnp.argmax(y), jnp.broadcast_to(y, (2, 1, 3)), y.T @ y)


@program(f32(5, 4), np.array([-7, -5, -1, 0, 4, 5, 9], np.int32))
def indices_out_of_bounds(x, i):
    return (x[i], x.at[i].set(7.0), x.at[i].add(1.0, mode="drop"), x.at[i].get(mode="clip"),
            x.at[i].get(mode="fill"), x.at[i].mul(2.0, mode="clip"),
            lax.dynamic_slice(x, (i[0], i[6]), (2, 3)), jnp.take(x, i, 0),
            lax.dynamic_update_slice(x, x[:2, :2], (i[6], i[0])))


@program(np.array([3, 3, 1, 3, 1, 0], np.int32), f32(6, 2))
def duplicate_indices(i, v):
    x = jnp.ones((5, 2))
    return (x.at[i].add(v), x.at[i].mul(v), x.at[i].max(v), x.at[i].min(v),
            jax.grad(lambda v: (x.at[i].add(v) ** 3).sum())(v), x.at[i].apply(jnp.sin))


@program(np.array([2, 1, 2, 0, 1, 2, 0, 1], np.int32), flags(8))
def stable_orders(x, m):
    return (jnp.argsort(x), jnp.argsort(-x), jnp.argsort(x, descending=True), jnp.argmax(x),
            lax.top_k(x, 5), jnp.argsort(m), jnp.argmin(x), jnp.nonzero(m, size=8, fill_value=-1))


@program(np.array([1e-30, 1e30, 1e38, -1e38, 88.9, -104], np.float32))
def sums_near_the_limits(x):
    return (jax.nn.logsumexp(x), jax.nn.softmax(x), x[:3].mean(), jnp.linalg.norm(x[:2]),
            jnp.cumsum(x),
            jax.nn.softplus(x), jax.nn.gelu(x), jax.nn.log_sigmoid(x), jnp.sinh(x[4:]),
            jnp.square(x))


@program(bf16(1000), f32(37, 53))
def long_sums(b, x):
    return b.sum(), b.mean(), x.sum(), x.sum(0), x.sum(1), jnp.cumsum(x.ravel()), x.var(), x.prod(0)


@program(f32(3, 5, 7, 2), f32(7, 3, 2, 4))
def unusual_contractions(a, b):
    return (jnp.einsum("abcd,cade->eb", a, b), jnp.einsum("abcd,cade->acbe", a, b),
            jnp.tensordot(a, b, ((2, 0), (0, 1))), jnp.einsum("abcd->dbca", a),
            jnp.einsum("aabb->ab", jnp.ones((3, 3, 2, 2)) * a[:, :2, :2, :].sum()))


@program(f32(6, 7), s32(low=-20, high=20))
def dynamic_shifts(x, n):
    return jnp.roll(x, n, 1), jnp.roll(x, n), lax.dynamic_slice_in_dim(x, n, 3), x[n % 6]


@program(f32(4, 3), flags(), s32(low=5, high=6))
def loops_that_do_not_run(x, p, n):
    return (lax.fori_loop(n, 2, lambda i, c: c + 1, x),
            lax.scan(lambda c, v: (c + v, v), x[0], x[:0]),
            lax.while_loop(lambda c: c.sum() > 1e9, lambda c: c * 2, x),
            lax.switch(n, [jnp.sin], x),
            lax.switch(-n, [jnp.sin, jnp.cos], x), lax.cond(p, lambda: x, lambda: x))


# ---- Programs with ops that few programs have. ---------------------------------------------------
@program(normal(5, 5), normal(5, 3))
def qr_and_svd(a, b):
    return jnp.abs(jnp.linalg.qr(a)[1]), jnp.linalg.svd(b, compute_uv=False)


@program(positive_definite(5))
def inverse_and_determinant(a):
    return jnp.linalg.inv(a), jnp.linalg.det(a)


@program(positive_definite(5), f32(5, 2))
def triangular_solves(a, b):
    return jax.scipy.linalg.solve_triangular(jnp.tril(a), b, lower=True)


@program(f32(12, 12))
def large_windows(x):
    return lax.reduce_window(x, 0.0, lax.add, (9, 9), (1, 1), "VALID")


@program(f32(4, 9), s32(4, 9), f32(8))
def windows_of_every_kind(x, i, y):
    """Windows that are dilated, strided and padded on either side, over several arrays, with
    several computations."""
    def larger(a, b):
        keep = a[0] >= b[0]
        return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])
    return (lax.reduce_window((x, i), (-jnp.inf, 0), larger, (2, 3), (1, 2), "SAME"),
            lax.reduce_window(x, 0.0, lax.add, (2, 3), (2, 1), ((1, 0), (0, 4)), (1, 2), (2, 2)),
            lax.reduce_window(i, 1, lax.mul, (1, 4), (1, 3), "VALID"),
            lax.reduce_window(i, -99, lax.max, (3, 1), (1, 1), ((-1, 0), (0, -2))),
            lax.reduce_window(x, 0.0, lax.add, (5, 1), (1, 1), "VALID"),
            lax.reduce_window(y, -jnp.inf, jnp.logaddexp, (8,), (1,), ((7, 0),)))


@program(f32(2, 8, 8, 1))
def gradient_of_pooling(x):
    def pooled(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.grad(lambda x: (pooled(x) ** 2).sum())(x)


@program(f32(2, 5, 5, 3), f32(3, 3, 3, 4))
def transposed_convolution(x, w):
    return lax.conv_transpose(x, w, (2, 2), "SAME")


@program(f32(3, 64))
def approximate_top_k(x):
    return lax.approx_max_k(x, 5)


@program(c64(8))
def complex_functions(z):
    return jnp.exp(z), jnp.log(z), jnp.sqrt(z), jnp.sin(z), jnp.tanh(z), z**2, 1 / z


@program(c64(4, 8))
def complex_fourier(z):
    return jnp.fft.fft(z), jnp.fft.ifft2(z)


@program(f32(20, low=0.2, high=5), f32(20, low=0.2, high=5))
def incomplete_functions(a, x):
    s = jax.scipy.special
    return s.gammainc(a, x), s.gammaincc(a, x), s.betainc(a, x, x / 6), s.zeta(a + 1.5, x), s.i1e(x)


@program(s8(16, low=-8, high=8), f32(16))
def four_bit_integers(a, x):
    # These sums fit into four bits. For sums that do not, XLA on CPUs keeps more bits where it
    # fuses.
    q = (a // 2).astype(jnp.int4)
    return ((q + q).astype(jnp.int8), q.astype(jnp.float32) * x,
            jnp.abs(x).astype(jnp.uint4).astype(jnp.int32))


@program(f32(4, 8), f32(8, 4))
def eight_bit_floats(a, b):
    small = lambda v: v.astype(jnp.float8_e4m3fn)
    return lax.dot(small(a), small(b), preferred_element_type=jnp.float32), (
        small(a) + small(a)).astype(jnp.float32)


@program(f32(10, 4), f32(3, 4, 5), np.array([3, 5, 2], np.int32))
def ragged_product(x, w, sizes):
    return lax.ragged_dot(x, w, sizes)


@program(f32(6), f32(6), f32(6), f32(6, 2))
def tridiagonal_solve(a, b, c, d):
    return lax.linalg.tridiagonal_solve(a.at[0].set(0), b + 9, c.at[-1].set(0), d)
