#!/usr/bin/env python3
"""Records the results of jax.numpy and jax.numpy.linalg for the rows of tests/numpy, whose test compares
with them.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_numpy.py [ROW ...]

Writes tests/numpy/recorded.jsonl: a line with the source, then a line for each row. The line of a row has
its inputs, its results with jax_enable_x64 and without, and the derivatives in f64 of the sum of its real
results by each input of floats. tests/numpy/rows.cc has the same rows in C++.
"""
import json
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.scipy.linalg import expm  # noqa: E402

RECORDED = pathlib.Path(__file__).resolve().parent.parent / "tests/numpy/recorded.jsonl"
NAMES = {"float32": "f32", "float64": "f64", "int32": "s32", "int64": "s64", "uint32": "u32", "int8": "s8",
         "bool": "bool", "complex64": "c64", "complex128": "c128"}
WIDE = {"float64": (jnp.float64, jnp.float32), "complex128": (jnp.complex128, jnp.complex64)}

rng = np.random.default_rng(7)
# Tuples of a name, a function of the inputs, the inputs, whether derivatives are recorded, and the modes.
ROWS = []


# The modes of rows whose results would be wide with x64 because of JAX's defaults. The SDK's defaults are f32 and s32.
X32 = ("x32",)


def row(name, function, *inputs, grads=True, modes=("x64", "x32")):
    ROWS.append((name, function, inputs, grads, modes))


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32).astype(np.float64)


def complexes(*shape):
    return normal(*shape) + 1j * normal(*shape)


def ints(*shape, low=-9, high=10):
    return rng.integers(low, high, shape).astype(np.int32)


L = jnp.linalg
X, Y = normal(3, 4), normal(3, 4)
T = normal(2, 3, 4)
V, W = normal(5), normal(5)
Z = complexes(3, 2)
I, J = ints(7), ints(7)
J[J == 0] = 3
POINTS = np.array([-np.inf, -1e3, -2.5, -1.5, -1, -0.5, -1e-9, -0.0, 0.0, 1e-9, 0.3, 0.5, 1, 1.5, 2.5, 1e3, np.inf,
                   np.nan])
FINITE = np.array([-30., -2.5, -1.5, -1, -0.25, 0.125, 0.5, 1, 1.75, 2.5, 30.])
POSITIVE = np.array([1e-6, 0.25, 1, 2, 3, 10, 1000, 1e6])
NANS = X.copy()
NANS[0, 1] = NANS[1] = np.nan
BOOLS = np.array([True, False, True, True])

# ---- ufuncs.h. -----------------------------------------------------------------------------------

for name in ["sinc", "fabs", "rint", "trunc", "deg2rad", "rad2deg", "positive", "reciprocal"]:
    row(name, getattr(jnp, name), FINITE)
for name in ["log2", "log10"]:
    row(name, getattr(jnp, name), POSITIVE)
    row(name + "_complex", getattr(jnp, name), Z, grads=False)
for name in ["isnan", "isinf", "isposinf", "isneginf", "isfinite", "signbit", "nan_to_num", "rint", "trunc", "fabs",
             "reciprocal", "sinc"]:
    row(name + "_special", getattr(jnp, name), POINTS, grads=False)
for name in ["isnan", "isinf", "signbit", "nan_to_num", "rint", "trunc", "fabs", "log2", "deg2rad", "invert",
             "reciprocal"]:
    row(name + "_s32", getattr(jnp, name), np.abs(I) + 1 if name == "log2" else J, modes=X32 if name == "rint" else
        ("x64", "x32"))
row("isnan_complex", jnp.isnan, np.array([1 + 1j, complex(np.nan, 0), complex(0, np.inf)]), grads=False)
row("isinf_complex", jnp.isinf, np.array([1 + 1j, complex(np.nan, 0), complex(0, np.inf)]), grads=False)
row("nan_to_num_by", lambda x: jnp.nan_to_num(x, nan=1.5, posinf=7.0, neginf=-7.0), POINTS, grads=False)
row("angle", jnp.angle, Z, grads=False)
row("angle_degrees", lambda x: jnp.angle(x, deg=True), FINITE)
PAIRS = np.array([-np.inf, -2.5, -1, -0.0, 0.0, 0.5, 2, np.inf, np.nan])
P0, P1 = [p.ravel() for p in np.meshgrid(PAIRS, PAIRS)]
F0, F1 = normal(9) * 3, normal(9) * 3
for name in ["floor_divide", "mod", "fmod", "fmax", "fmin", "logaddexp", "logaddexp2", "hypot", "heaviside", "copysign",
             "float_power"]:
    row(name, getattr(jnp, name), np.abs(F0) if name == "float_power" else F0, F1)
for name in ["fmod", "fmax", "fmin", "logaddexp", "logaddexp2", "hypot", "heaviside", "copysign", "isclose"]:
    row(name + "_special", getattr(jnp, name), P0, P1, grads=False)
for name in ["floor_divide", "mod", "fmod", "fmax", "logaddexp", "hypot", "float_power", "bitwise_and", "bitwise_or",
             "bitwise_xor", "logical_xor", "true_divide"]:
    row(name + "_s32", getattr(jnp, name), np.abs(I) + 1 if name == "float_power" else I, J, grads=False)
SHIFTS = np.array([0, 1, 2, 3, 4, 5, 6], np.int32)
row("left_shift", jnp.left_shift, I, SHIFTS)
row("right_shift", jnp.right_shift, I, SHIFTS)
row("right_shift_u32", jnp.right_shift, I.astype(np.uint32), SHIFTS.astype(np.uint32))
row("divmod", lambda x, y: jnp.divmod(x, y), F0, F1)
row("divmod_s32", lambda x, y: jnp.divmod(x, y), I, J)
row("isclose", lambda x: jnp.isclose(x, x + 1e-6, atol=1e-7), FINITE, grads=False)
row("isclose_equal_nan", lambda x, y: jnp.isclose(x, y, equal_nan=True), P0, P1, grads=False)
row("allclose", lambda x, y: [jnp.allclose(x, y), jnp.allclose(x, x), jnp.allclose(x, x + 1, rtol=1., atol=3.)], X, Y,
    grads=False)
row("array_equal", lambda x, y: [jnp.array_equal(x, y), jnp.array_equal(y, y), jnp.array_equal(x, x, equal_nan=True),
                                 jnp.array_equal(x, x[:2])], NANS, X, grads=False)

# ---- shapes.h. -----------------------------------------------------------------------------------

row("ravel", jnp.ravel, X)
row("moveaxis", lambda x: [jnp.moveaxis(x, 0, -1), jnp.moveaxis(x, (0, 2), (1, 0))], T)
row("matrix_transpose", lambda x: [jnp.matrix_transpose(x), jnp.permute_dims(x, (2, 0, 1))], T)
row("atleast", lambda s, v, m: [f(x) for f in (jnp.atleast_1d, jnp.atleast_2d, jnp.atleast_3d) for x in (s, v, m)],
    np.array(2.5), V, X)
row("broadcast_arrays", lambda x, y: list(jnp.broadcast_arrays(x, y)), normal(3, 1), normal(4))
row("stacks", lambda v, w: [jnp.hstack([v, w]), jnp.vstack([v, w]), jnp.dstack([v, w]), jnp.column_stack([v, w])], V, W)
row("stacks_2d", lambda x, y: [jnp.hstack([x, y]), jnp.vstack([x, y]), jnp.dstack([x, y]), jnp.column_stack([x, y]),
                               jnp.concat([x, y], axis=1)], X, Y)
row("append", lambda x, y: [jnp.append(x, y), jnp.append(x, y, 0)], X, Y)
row("append_s32", lambda x, y: jnp.append(x, y), X, I)
row("split", lambda x: jnp.split(x, 2, 1) + jnp.split(x, [1, 1, 3], 1), X)
row("array_split", lambda x: jnp.array_split(x, 3) + jnp.array_split(x, [2]), V)
row("hvdsplit", lambda v, t: jnp.hsplit(v, 5) + jnp.hsplit(t, 3) + jnp.vsplit(t, 2) + jnp.dsplit(t, 2), V, T)
row("unstack", lambda x: list(jnp.unstack(x, axis=1)), X)
row("tile", lambda x, v: [jnp.tile(x, 2), jnp.tile(x, (2, 3)), jnp.tile(v, (2, 1, 3)), jnp.tile(x, (2, 1, 0)),
                          jnp.tile(x, (1, 1))], X, V)
row("repeat", lambda x: [jnp.repeat(x, 2), jnp.repeat(x, 3, 0), jnp.repeat(x, 2, -1), jnp.repeat(x, 0, 1)], X)
row("repeat_each", lambda x: [jnp.repeat(x, np.array([2, 0, 3]), 0), jnp.repeat(x, np.array([1, 0, 2, 1]), axis=1)], X)
row("repeat_total", lambda x, n: [jnp.repeat(x, n, 0, total_repeat_length=k) for k in (4, 5, 8)], X,
    np.array([2, 0, 3], np.int32))
row("roll", lambda x: [jnp.roll(x, 2), jnp.roll(x, -1, 0), jnp.roll(x, 7, 1), jnp.roll(x, (1, 2), (0, 1)),
                       jnp.roll(x, 1, (0, 1))], X)
row("flips", lambda x: [jnp.flipud(x), jnp.fliplr(x), *[jnp.rot90(x, k) for k in (-1, 0, 1, 2, 3)]], X)
row("rot90_axes", lambda x: [jnp.rot90(x, k, (2, 0)) for k in (1, 3)], T)
row("pad", lambda x: [jnp.pad(x, 1), jnp.pad(x, ((1, 2), (0, 3)), constant_values=2.5)], X)
for mode in ["edge", "reflect", "symmetric", "wrap"]:
    row("pad_" + mode, lambda x, mode=mode: [jnp.pad(x, ((2, 1), (0, 3)), mode), jnp.pad(x, ((5, 7), (9, 4)), mode)], X)
row("pad_one", lambda x: [jnp.pad(x, 3, mode) for mode in ("edge", "reflect", "symmetric", "wrap")], np.array([1.5]))
row("diagonal", lambda x, t: [jnp.diagonal(x), jnp.diagonal(x, 1), jnp.diagonal(x, -2), jnp.diagonal(x, 5),
                              jnp.diagonal(t, 0, 1, 2), jnp.diagonal(t, 1, 2, 0)], X, T)
row("diag", lambda x, v: [jnp.diag(x, 1), jnp.diag(v), jnp.diag(v, 2), jnp.diag(v, -1), jnp.diagflat(x, 1)], X, V)
row("triangles", lambda x, t: [jnp.tril(x), jnp.triu(x), jnp.tril(x, -1), jnp.triu(x, 2), jnp.tril(t, 1)], X, T)
row("tri", lambda x: [jnp.tri(3), jnp.tri(3, 5, 1), jnp.tri(4, 2, -1, dtype=jnp.int32), jnp.eye(3, 4, 1), jnp.identity(2)],
    V, grads=False, modes=X32)
row("linspace", lambda a, b: [jnp.linspace(a, b, 7), jnp.linspace(a, b, 7, endpoint=False), jnp.linspace(a, b, 1),
                              jnp.linspace(a, b, 0)], np.array(-1.3), np.array(2.7))
row("linspace_arrays", lambda a, b: [jnp.linspace(a, b, 4), jnp.linspace(a, b, 4, axis=-1), jnp.linspace(a, b, 3, axis=1)],
    normal(2, 3), normal(3))
row("linspace_s32", lambda a, b: [jnp.linspace(a, b, 6), jnp.linspace(a, b, 6, dtype=jnp.int32)], np.array(-3, np.int32),
    np.array(11, np.int32))
row("logspace", lambda a, b: [jnp.logspace(a, b, 5), jnp.logspace(a, b, 5, base=2.0), jnp.logspace(a, b, 4, endpoint=False)],
    np.array(-1.0), np.array(2.5))
row("geomspace", lambda a, b: [jnp.geomspace(a, b, 5), jnp.geomspace(-a, -b, 4, endpoint=False)], np.array(0.5),
    np.array(30.0))
row("geomspace_arrays", lambda a, b: jnp.geomspace(a, b, 3, axis=1), np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([8.0, 9.0]))
row("meshgrid", lambda a, b: jnp.meshgrid(a, b) + jnp.meshgrid(a, b, indexing="ij") + jnp.meshgrid(a, b, sparse=True),
    normal(2), normal(3))

# ---- statistics.h. -------------------------------------------------------------------------------

row("var_ddof", lambda x: [jnp.var(x, ddof=1), jnp.var(x, 0, ddof=1), jnp.var(x, 1, ddof=4)], X, grads=False)
row("std", lambda x: [jnp.std(x), jnp.std(x, 1), jnp.std(x, 0, keepdims=True, ddof=1)], X)
row("std_s32", lambda x: jnp.std(x), I)
row("std_complex", lambda x: [jnp.std(x), jnp.var(x), jnp.var(x, 0)], Z, grads=False)
row("ptp", lambda x: [jnp.ptp(x), jnp.ptp(x, 0), jnp.ptp(x, 1, keepdims=True)], X)
row("count_nonzero", lambda x: [jnp.count_nonzero(x), jnp.count_nonzero(x > 0), jnp.count_nonzero(x, 0)],
    ints(4, 3, low=0, high=2), modes=X32)
row("average", lambda x, w, v: [jnp.average(x), jnp.average(x, weights=w), jnp.average(x, 1, weights=w),
                                jnp.average(x, 1, weights=v, keepdims=True)], X, np.abs(Y), np.abs(normal(4)))
ODD = normal(5, 3)
row("median", lambda x, y: [jnp.median(x), jnp.median(x, 0), jnp.median(y, 0), jnp.median(x, (0, 1), keepdims=True)], X,
    ODD)
row("median_nans", lambda x: [jnp.median(x), jnp.median(x, 0), jnp.median(x, 1)], NANS, grads=False)
Q = np.array([0.0, 0.1, 0.5, 0.77, 1.0])
row("quantile", lambda x, q: [jnp.quantile(x, q), jnp.quantile(x, q, 0), jnp.quantile(x, q[3], 1),
                              jnp.quantile(x, q, 1, keepdims=True)], X, Q)
row("quantile_methods", lambda x, q: [jnp.quantile(x, q, 0, method=m) for m in ("lower", "higher", "midpoint", "nearest")],
    X, Q, grads=False)
row("quantile_axes", lambda x, q: jnp.quantile(x, q, (0, 2)), T, Q)
row("percentile", lambda x: [jnp.percentile(x, 30.0), jnp.percentile(x, 90.0, 1, method="higher")], X)
row("quantile_s32", lambda x: jnp.quantile(x, 0.25), I)
for name in ["nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"]:
    row(name, lambda x, f=getattr(jnp, name): [f(x), f(x, 0), f(x, 1, keepdims=True)], NANS, grads=False)
row("nansums_s32", lambda x: [jnp.nansum(x), jnp.nanmax(x), jnp.nanmean(x), jnp.nanvar(x)], I, modes=X32)
row("cov", lambda x, v: [jnp.cov(x), jnp.cov(x, rowvar=False), jnp.cov(x, ddof=0), jnp.cov(v)], X, V)
row("cov_complex", jnp.cov, Z, grads=False)
row("corrcoef", lambda x, v: [jnp.corrcoef(x), jnp.corrcoef(x, rowvar=False), jnp.corrcoef(v)], X, V, grads=False)
row("diff", lambda x: [jnp.diff(x), jnp.diff(x, axis=0), jnp.diff(x, 2), jnp.diff(x, 4), jnp.diff(x, 5), jnp.diff(x, 0)], X)
row("diff_bool", jnp.diff, BOOLS)
row("gradient", lambda x: [jnp.gradient(x, 0.5, axis=1), jnp.gradient(x, 1.0, axis=0)], X)
row("trapezoid", lambda y, x, v: [jnp.trapezoid(y), jnp.trapezoid(y, dx=0.5, axis=0), jnp.trapezoid(y, x, axis=0),
                                  jnp.trapezoid(y, v)], X, Y, normal(4))
GRID = np.array([-2.0, -1.0, 0.5, 0.75, 3.0])
row("interp", lambda x, xp, fp: [jnp.interp(x, xp, fp), jnp.interp(x, xp, fp, left=-5.0, right=7.0)], 2 * normal(3, 4), GRID, V)

# ---- products.h. ---------------------------------------------------------------------------------

row("inner", lambda x, y, v: [jnp.inner(x, y), jnp.inner(v, v), jnp.inner(x, 2.5)], X, Y, V)
row("outer", lambda x, v: [jnp.outer(x, v), L.outer(v, v)], X, V)
row("outer_s32", jnp.outer, I, np.float64(0.5) * V)
row("vdot", lambda x, y, z: [jnp.vdot(x, y), jnp.vdot(z, z)], X, Y, Z, grads=False)
row("vecdot", lambda x, y, t: [jnp.vecdot(x, y), jnp.vecdot(x, y, axis=0), jnp.vecdot(t, x)], X, Y, T)
row("vecdot_complex", lambda z: jnp.vecdot(z, z * 1j), Z, grads=False)
row("matvec", lambda t, v: [jnp.matvec(t, v), jnp.matvec(t[0], v[0])], T, normal(2, 4))
row("vecmat", lambda v, t: [jnp.vecmat(v, t), jnp.vecmat(v[0], t[0])], normal(2, 3), T)
row("tensordot", lambda x, t: [jnp.tensordot(x, t[0].T, 1), jnp.tensordot(x, t[0], 2), jnp.tensordot(x, t, ((1,), (2,))),
                               jnp.tensordot(x, t, ((0, 1), (1, 2))), jnp.tensordot(x, t[0, 0], 0)], X, T)
row("kron", lambda x, y, v: [jnp.kron(x, y), jnp.kron(x, v), jnp.kron(v, x)], normal(2, 3), normal(2, 2), V)
A3, B3 = normal(4, 3), normal(4, 3)
row("cross", lambda a, b: [jnp.cross(a, b), jnp.cross(a.T, b.T, axis=0), jnp.cross(a[:, :2], b[:, :2]),
                           jnp.cross(a[:, :2], b), jnp.cross(a, b[0])], A3, B3)

# ---- linalg.h. -----------------------------------------------------------------------------------

SQUARE = normal(3, 3) + 3 * np.eye(3)
SYMMETRIC = SQUARE + SQUARE.T
row("linalg_trace", lambda x, t: [L.trace(x), L.trace(x, offset=1), L.trace(t), L.diagonal(t, offset=-1)], X, T)
row("vector_norm", lambda x: [L.vector_norm(x), L.vector_norm(x, axis=1), L.vector_norm(x, ord=1, axis=0),
                              L.vector_norm(x, ord=3, axis=(0, 1)), L.vector_norm(x, ord=np.inf, keepdims=True)], X)
row("matrix_norm", lambda t: [L.matrix_norm(t), L.matrix_norm(t, ord=1), L.matrix_norm(t, ord=np.inf, keepdims=True),
                              L.matrix_norm(t, ord="nuc"), L.matrix_norm(t, ord=2)], T, grads=False)
row("qr_r", lambda x: jnp.abs(L.qr(x, mode="r")), X)
row("qr_raw", lambda x: list(L.qr(x, mode="raw")), normal(4, 3), grads=False)
row("eigh_uplo", lambda x: [L.eigh(x, "U", symmetrize_input=False)[0], L.eigvalsh(x, "L", symmetrize_input=False),
                            L.eigvalsh(x, "U", symmetrize_input=False)], SQUARE, grads=False)
row("eigvalsh_uplo", lambda x: L.eigvalsh(x, "U"), SYMMETRIC)
row("tensorinv", lambda x: L.tensorinv(x), normal(2, 3, 6))
row("tensorinv_1", lambda x: L.tensorinv(x, 1), normal(4, 2, 2))
row("tensorsolve", lambda a, b: L.tensorsolve(a, b), normal(2, 3, 6), normal(2, 3))
row("tensorsolve_axes", lambda a, b: L.tensorsolve(a, b, axes=(1,)), normal(2, 6, 3), normal(2, 3))
EMPTY, ROWLESS, COLUMNLESS = np.zeros((0,)), np.zeros((0, 3)), np.zeros((3, 0))
row("norm_of_nothing", lambda v, m, n: [f for f in (L.norm(v), L.norm(v, 1), L.norm(v, np.inf), L.norm(v, 3), L.norm(m, axis=0),
                                                    L.norm(m, np.inf, axis=0))] +
    [L.norm(x, o) for x in (m, n) for o in (None, "nuc", 1, 2, np.inf)] + [L.norm(m, -1), L.norm(n, -np.inf)],
    EMPTY, ROWLESS, COLUMNLESS, grads=False)
row("pinv_of_nothing", lambda m, n: [L.pinv(m), L.pinv(n)], ROWLESS, COLUMNLESS, grads=False)
row("expm_of_nothing", lambda m: expm(m), np.zeros((0, 0)), grads=False)
row("lstsq_of_nothing", lambda m, n, v: [*L.lstsq(m, v[:0]), *L.lstsq(n, v), *L.lstsq(n, jnp.stack([v, v], 1))], ROWLESS,
    COLUMNLESS, normal(3), grads=False, modes=X32)
row("of_no_matrices", lambda t: [L.cond(t), L.cond(t, 1), L.pinv(t), L.norm(t, 2, axis=(1, 2)), L.matrix_rank(t), expm(t)],
    np.zeros((0, 2, 2)), grads=False, modes=X32)


# ---- The file. ----------------------------------------------------------------------------------

def written(x):
    x = np.asarray(x)
    return {"dtype": NAMES[str(x.dtype)], "shape": list(x.shape), "hex": x.tobytes().hex()}


def results(function, x):
    out = function(*x)
    return list(out) if isinstance(out, (list, tuple)) else [out]


def total(function, *x):
    return sum(jnp.sum(y) for y in results(function, x) if jnp.issubdtype(y.dtype, jnp.floating))


def main():
    lines = [json.dumps({"source": f"jax {jax.__version__}, scripts/record_numpy.py"})]
    before = {}
    if sys.argv[1:]:  # Record only the named rows, and keep the others unchanged.
        before = {r["name"]: r for r in map(json.loads, RECORDED.read_text().splitlines()[1:])}
    for name, function, inputs, grads, modes in ROWS:
        if name in before and name not in sys.argv[1:]:
            lines.append(json.dumps(before[name]))
            continue
        out = {"name": name, "inputs": [written(x) for x in inputs]}
        for i, mode in enumerate(("x64", "x32")):
            if mode not in modes:
                continue
            with jax.enable_x64(mode == "x64"):
                at = [jnp.asarray(x, WIDE[str(x.dtype)][i] if str(x.dtype) in WIDE else x.dtype) for x in inputs]
                out[mode] = [written(y) for y in jax.jit(lambda *x: results(function, x))(*at)]
        floats = [i for i, x in enumerate(inputs) if x.dtype == np.float64]
        if grads and floats:
            with jax.enable_x64(True):
                slopes = jax.jit(jax.grad(lambda *x: total(function, *x), argnums=floats))
                out["grads"] = [written(g) for g in slopes(*map(jnp.asarray, inputs))]
        lines.append(json.dumps(out))
    RECORDED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
