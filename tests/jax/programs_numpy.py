"""Array code as people write it with jax.numpy and jax.lax."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from registry import (bf16, c64, f16, f32, flags, positive_definite, program, s8, s16, s32, u8, u16,
                      u32)


# ---- Indexing. -----------------------------------------------------------------------------------
@program(f32(6, 8))
def slices_of_every_kind(x):
    return x[1:5, ::2], x[::-1], x[-2:, :-3], x[..., None, 3], x[4], x[5:1:-2, 1]


@program(f32(6, 8), s32(3, low=-6, high=6), s32(3, low=0, high=8))
def fancy_indexing(x, i, j):
    return x[i], x[:, j], x[i, j], x[i[:, None], j], x[i, 2:4], x[2, j]


@program(f32(6, 8), s32(4, low=-9, high=12))
def take_modes(x, i):
    return (jnp.take(x, i, axis=0, mode="clip"), jnp.take(x, i, axis=1, mode="wrap"),
            jnp.take(x, i, axis=0, mode="fill", fill_value=-1.0))


@program(f32(5, 7), s32(5, 2, low=0, high=7))
def take_along(x, i):
    return jnp.take_along_axis(x, i, axis=1)


@program(f32(6, 4), s32(3, low=0, high=6), f32(3, 4))
def updates_at(x, i, v):
    return (x.at[i].add(v), x.at[i].max(v), x.at[i].min(v), x.at[i, 1].multiply(v[:, 0]),
            x.at[1:4].set(v), x.at[:, 2].set(0.0), x.at[i].get(mode="fill", fill_value=0))


@program(f32(8, 8), flags(8, 8))
def masked_update(x, m):
    return jnp.where(m, x, 0.0), x.at[jnp.nonzero(m, size=10, fill_value=0)].set(9.0)


@program(f32(8, 8), s32(low=0, high=8), s32(low=0, high=12))
def dynamic_slices(x, i, j):
    row = lax.dynamic_index_in_dim(x, i, keepdims=False)
    block = lax.dynamic_slice(x, (i, j), (3, 2))
    return row, block, lax.dynamic_update_slice(x, block * 2, (j, i))


@program(f32(5, 6))
def rolls_and_flips(x):
    return jnp.roll(x, 2, axis=1), jnp.roll(x, (1, -1), (0, 1)), jnp.flip(x), jnp.rot90(x)


@program(f32(4, 5), f32(4, 5))
def stacks_and_splits(a, b):
    parts = jnp.split(jnp.concatenate([a, b], axis=1), 5, axis=1)
    return jnp.stack([a, b], axis=1), sum(parts), jnp.tile(a, (2, 3)), jnp.repeat(b, 3, axis=0)


@program(f32(3, 4, 5))
def pads_of_every_mode(x):
    widths = ((1, 2), (0, 1), (2, 2))
    modes = ("constant", "edge", "reflect", "wrap", "symmetric")
    return [jnp.pad(x, widths, mode=m) for m in modes]


@program(f32(3, 4, 5))
def shapes_of_every_kind(x):
    return (x.reshape(12, 5).T, jnp.moveaxis(x, 0, -1), jnp.swapaxes(x, 0, 1), x.ravel()[::7],
            jnp.expand_dims(x, (0, 3)), jnp.broadcast_to(x[0], (2, 4, 5)), jnp.atleast_2d(x[0, 0]))


@program(f32(9))
def diagonals(x):
    m = jnp.diag(x)
    return (m, jnp.diagonal(m + 1), jnp.tril(m + x), jnp.triu(m + x, 1), jnp.trace(m + x),
            jnp.tri(4, 5))


# ---- Order. --------------------------------------------------------------------------------------
@program(f32(6, 10), s32(6, 10))
def sorts(x, i):
    return (jnp.sort(x, axis=1), jnp.argsort(i, axis=0), jnp.sort(i, descending=True),
            jnp.argmax(x, axis=1), jnp.argmin(i))


@program(s32(12, low=0, high=4), f32(12), f32(12))
def sort_by_keys(k, a, b):
    return lax.sort((k, a, b), num_keys=2), jnp.lexsort((a, k))


@program(f32(20), f32(7))
def searches(x, v):
    edges = jnp.sort(x)
    return (jnp.searchsorted(edges, v), jnp.searchsorted(edges, v, side="right", method="sort"),
            jnp.digitize(v, edges), jnp.interp(v, edges, x))


@program(s32(24, low=0, high=9))
def uniques_and_counts(x):
    values, inverse, counts = jnp.unique(x, size=9, fill_value=-1, return_inverse=True,
                                         return_counts=True)
    return values, inverse, counts, jnp.bincount(x, length=9)


@program(f32(6, 16))
def top_k(x):
    return lax.top_k(x, 3), jax.nn.one_hot(jnp.argmax(x, 1), 16)


@program(f32(5, 9))
def quantiles(x):
    return jnp.median(x, axis=1), jnp.quantile(x, jnp.array([0.1, 0.5, 0.9]), axis=0), jnp.ptp(x)


@program(f32(40))
def histogram(x):
    return jnp.histogram(x, bins=6, range=(-2, 2))


# ---- Sums of all kinds. --------------------------------------------------------------------------
@program(f32(4, 6, 5))
def reductions(x):
    return (x.sum(), x.mean(0), x.max((0, 2)), x.min(1, keepdims=True), x.prod(axis=1), x.std(),
            x.var(2, ddof=1), jnp.all(x > -3), jnp.any(x > 1.9, axis=1), jnp.count_nonzero(x))


@program(f32(4, 6), flags(4, 6))
def nan_reductions(x, m):
    y = jnp.where(m, x, jnp.nan)
    return jnp.nansum(y, 1), jnp.nanmax(y), jnp.nanmean(y, 0), jnp.isnan(y), jnp.nan_to_num(y)


@program(f32(5, 8))
def cumulative(x):
    return (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, axis=1), lax.cummin(x, axis=0),
            lax.cumlogsumexp(x, axis=1), jnp.diff(x), jnp.cumsum(x[:, ::-1], 1)[:, ::-1])


@program(f32(4, 3, 6), f32(4, 6, 5), f32(5, 3))
def einsums(a, b, c):
    return (jnp.einsum("bij,bjk->bik", a, b), jnp.einsum("bij,bjk,ki->b", a, b, c),
            jnp.einsum("bij->ji", a), jnp.einsum("ij,kl->ikjl", c, c),
            jnp.einsum("bij,bij->", a, a))


@program(f32(4, 6), f32(6, 5), f32(6))
def products(a, b, v):
    return (a @ b, a @ v, jnp.outer(v, v), jnp.inner(a, v), jnp.vdot(v, v), jnp.tensordot(a, b, 1),
            jnp.kron(a[:2, :2], b[:2, :2]), jnp.cross(v[:3], v[3:]))


@program(s8(6, 8), s8(8, 4), bf16(4, 8), bf16(8, 3))
def products_of_small_dtypes(a, b, c, d):
    return (lax.dot(a, b, preferred_element_type=jnp.int32), c @ d,
            lax.dot(c, d, preferred_element_type=jnp.float32))


@program(f32(6, 6), positive_definite(6))
def norms_and_powers(a, p):
    return (jnp.linalg.norm(a), jnp.linalg.norm(a, axis=1), jnp.linalg.norm(a, 1),
            jnp.linalg.matrix_power(a, 3), jax.scipy.linalg.expm(p / 4))


@program(positive_definite(6), f32(6))
def linear_solve(a, b):
    return jnp.linalg.solve(a, b)


@program(positive_definite(6), f32(6, 2))
def cholesky_solve(a, b):
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(a), b), jnp.linalg.slogdet(a)[1]


@program(positive_definite(5))
def eigenvalues(a):
    return jnp.linalg.eigvalsh(a)


@program(f32(30, 3))
def covariance(x):
    return jnp.cov(x.T), jnp.corrcoef(x.T)


@program(f32(9), f32(4))
def polynomials(x, p):
    return jnp.polyval(p, x), jnp.polyder(p), jnp.convolve(x, p)


# ---- Functions and dtypes. -----------------------------------------------------------------------
@program(f32(64))
def functions_of_one(x):
    a = jnp.abs(x) + 0.1
    return (jnp.exp(x), jnp.log(a), jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.tanh(x), jnp.sqrt(a),
            lax.rsqrt(a), jnp.cbrt(x), jnp.log1p(a), jnp.expm1(x), jnp.sign(x), jnp.floor(x),
            jnp.ceil(x), jnp.round(x), jnp.trunc(x), jnp.square(x), jnp.reciprocal(a), jnp.exp2(x))


@program(f32(64, low=-0.95, high=0.95))
def inverse_functions(x):
    return (jnp.arcsin(x), jnp.arccos(x), jnp.arctan(x), jnp.arctanh(x), jnp.sinh(x), jnp.cosh(x),
            jnp.arcsinh(x), jnp.arccosh(x + 2.5), lax.erf_inv(x), jnp.sinc(x))


@program(f32(32, low=0.2, high=6), f32(32, low=0.2, high=6))
def special_functions(x, y):
    s = jax.scipy.special
    return (s.erf(x), s.erfc(x), s.gammaln(x), s.digamma(x), s.logsumexp(x), s.xlogy(x, y),
            s.expit(x), s.logit(x / 7), s.entr(x), s.betaln(x, y), s.i0e(x), s.ndtr(x - 3))


@program(f32(40), f32(40))
def functions_of_two(x, y):
    return (x + y, x - y, x * y, x / y, jnp.arctan2(x, y), jnp.hypot(x, y),
            jnp.power(jnp.abs(x), y),
            jnp.maximum(x, y), jnp.minimum(x, y), jnp.fmod(x, 0.7), x % 0.7, x // 0.7,
            jnp.logaddexp(x, y), jnp.copysign(x, y), jnp.heaviside(x, 0.5), jnp.nextafter(x, y))


@program(s32(30), s32(30, low=1, high=9))
def integer_arithmetic(a, b):
    return (a // b, a % b, jnp.divmod(a, b), lax.div(a, b), lax.rem(a, b), a**2, -a, abs(a),
            jnp.gcd(a, b), jnp.lcm(a, b), jnp.sign(a), jnp.clip(a, -9, 9))


@program(u32(20), u32(20, high=40), u8(20), s8(20))
def bits(a, n, b, c):
    return (a & 0xFF, a | n, a ^ n, ~a, a << n, a >> n, c >> 2, lax.population_count(a), lax.clz(b),
            lax.shift_right_logical(c, np.int8(1)), jnp.bitwise_count(b), b * b, c + c)


@program(u8(7), flags(3, 16))
def packed_bits(b, m):
    return jnp.unpackbits(b), jnp.packbits(m, axis=1), jnp.packbits(jnp.unpackbits(b)) == b


@program(f32(20), s32(20), u8(20), flags(20), f16(20), bf16(20))
def conversions(f, i, u, m, h, b):
    return (f.astype(jnp.int32), f.astype(jnp.bfloat16), i.astype(jnp.int8), i.astype(jnp.uint8),
            u.astype(jnp.float16), m.astype(jnp.float32), h.astype(jnp.float32),
            b.astype(jnp.int16),
            (h + b).dtype.type(1), lax.bitcast_convert_type(f, jnp.uint32),
            lax.bitcast_convert_type(u.reshape(5, 4), jnp.uint32), f.astype(bool),
            lax.reduce_precision(f, 5, 4), f.astype(jnp.float8_e4m3fn).astype(jnp.float32))


@program(bf16(16, 8), f16(16, 8))
def half_precision(b, h):
    return (jnp.exp(b) + b, b.sum(0), jax.nn.softmax(h, axis=1), h.mean(),
            (b * h).astype(jnp.float32),
            jnp.tanh(h), b.max(1), jnp.sort(b, axis=0), jnp.argmax(h, 1))


@program(s16(24), u16(24))
def sixteen_bits(a, b):
    return a + a, a * a, b * b, b >> 3, a.sum(), jnp.cumsum(b), jnp.sort(a), a.astype(jnp.uint16)


@program(flags(6, 7), flags(6, 7))
def truth(a, b):
    return (a & b, a | b, a ^ b, ~a, jnp.logical_and(a, ~b), a.sum(1), a.all(0), b.any(1),
            jnp.where(a, 1, 0), jnp.argmax(a, 1), jnp.cumsum(b, 1), a == b, a < b)


@program(c64(4, 5), c64(4, 5), f32(4, 5))
def complex_arithmetic(a, b, x):
    return (a * b, a / b, jnp.conj(a), a.real, b.imag, jnp.abs(a), jnp.angle(b),
            lax.complex(x, x + 1))


@program(c64(4, 6), c64(4, 6))
def complex_moves(a, b):
    return (a.T, a[::-1, 1:3], jnp.concatenate([a, b]), jnp.where(jnp.arange(6) < 3, a, b), a + b,
            a - b)


@program(c64(3, 4), c64(4, 2))
def complex_product(a, b):
    return a @ b


@program(f32(4, 16))
def fourier(x):
    f = jnp.fft.rfft(x)
    return f.real, f.imag, jnp.fft.irfft(f)


@program(f32(2, 9, 9, 3), f32(3, 3, 3, 4))
def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


@program(f32(2, 8, 8, 3))
def pooling(x):
    largest = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return largest, lax.reduce_window(x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") / 9


@program(f32(5, 6))
def image_resize(x):
    return jax.image.resize(x, (10, 9), "bilinear"), jax.image.resize(x, (3, 3), "nearest")


@program(f32(12, 3), s32(12, low=0, high=5))
def segments(x, i):
    return (jax.ops.segment_sum(x, i, 5), jax.ops.segment_max(x, i, 5),
            jax.ops.segment_min(x, i, 5),
            jax.ops.segment_prod(x, i, 5), jax.ops.segment_sum(x, jnp.sort(i), 5, True))


@program(f32(6))
def meshgrids(x):
    a, b = jnp.meshgrid(x, jnp.linspace(0, 1, 4), indexing="ij")
    return a * b, jnp.arange(3, 30, 4), jnp.eye(4, 5, 1), jnp.logspace(0, 2, 5), jnp.indices((2, 3))


@program(f32(16))
def activations(x):
    n = jax.nn
    return [f(x) for f in (n.relu, n.gelu, n.silu, n.elu, n.selu, n.softplus, n.sigmoid, n.mish,
                           n.leaky_relu, n.hard_tanh, n.log_sigmoid, n.softmax, n.log_softmax,
                           n.standardize, n.relu6, n.celu, n.glu, n.squareplus)]
