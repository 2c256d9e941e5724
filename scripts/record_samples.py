#!/usr/bin/env python3
"""Records what JAX computes for every op sample, for tests/ops to compare with.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_samples.py build/dev/bin/dump_samples [family ...] [--folder F]

Reads the samples that dump_samples prints, evaluates each with jax.lax on CPU devices and writes
tests/ops/recorded/<family>.jsonl (or the file of that name in F): a line with the source of the values, then a line for
each sample with its digest and the exact bytes of every result on every lane. The tests read only these files.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax  # noqa: E402
import jax.ad_checkpoint  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax._src.lax import lax as lax_internal  # noqa: E402
from jax._src.lax import linalg, parallel, slicing  # noqa: E402
from jax._src.lib.mlir import ir as mlir_ir  # noqa: E402
from jax._src.lib.mlir.dialects import hlo  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402
from jax.extend.random import threefry2x32_p  # noqa: E402
from jax.interpreters import mlir  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402
from sample_dtypes import DTYPES  # noqa: E402

jax.config.update("jax_enable_x64", True)

FAMILIES = ["elementwise", "data_movement", "indexing", "reduction", "contraction", "random",
            "collectives", "control", "linear_algebra", "programs"]


def array(type_, hex_):
    return np.frombuffer(bytes.fromhex(hex_), DTYPES[type_["dtype"]]).reshape(type_["shape"])


# ---- Ops: maps a wire name to f(attrs, operands, regions), which returns a value or a list. ------

def unary(name):
    return lambda a, x, r: getattr(lax, name)(x[0])


def binary(name):
    return lambda a, x, r: getattr(lax, name)(x[0], x[1])


def reduction(name):
    """Returns the function of a reduction in lax, which does not have the wider accumulators of jnp."""
    return lambda a, x, r: getattr(lax, name)(x[0], axes=tuple(a["dimensions"]))


def bool_extremum(name):
    def f(a, x, r):
        if x[0].dtype == np.bool_:  # For booleans, the maximum is "or" and the minimum is "and".
            return getattr(lax, {"reduce_max": "reduce_or", "reduce_min": "reduce_and"}[name])(
                x[0], axes=tuple(a["dimensions"]))
        return reduction(name)(a, x, r)
    return f


def dot(a, x, r):
    dims = ((a["lhs_contracting_dimensions"], a["rhs_contracting_dimensions"]),
            (a["lhs_batching_dimensions"], a["rhs_batching_dimensions"]))
    wide = a.get("preferred_element_type")
    return lax.dot_general(x[0], x[1], dims, precision=lax.Precision.HIGHEST,
                           preferred_element_type=DTYPES[wide] if wide else None)


def convolution(a, x, r):
    def spec(first, second, spatial):
        return (a[first], a[second], *a[spatial])
    wide = a.get("preferred_element_type")
    return lax.conv_general_dilated(
        x[0], x[1], a["window_strides"], list(zip(a["padding"][::2], a["padding"][1::2])),
        a["lhs_dilation"], a["rhs_dilation"],
        lax.ConvDimensionNumbers(
            spec("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions"),
            spec("kernel_output_feature_dimension", "kernel_input_feature_dimension",
                 "kernel_spatial_dimensions"),
            spec("output_batch_dimension", "output_feature_dimension",
                 "output_spatial_dimensions")),
        a["feature_group_count"], a["batch_group_count"], precision=lax.Precision.HIGHEST,
        preferred_element_type=DTYPES[wide] if wide else None)


def sliding_window_view(a, x, r):
    x = jnp.asarray(x[0])
    for d, size, stride, dilation in zip(a["dimensions"], a["window_dimensions"],
                                         a["window_strides"], a["window_dilations"]):
        span = (size - 1) * dilation + 1
        count = max((x.shape[d] - span) // stride + 1, 0)
        at = np.arange(count)[:, None] * stride + np.arange(size) * dilation
        x = jnp.moveaxis(jnp.take(x, at, axis=d, mode="clip") if count else jnp.zeros(
            (*x.shape[:d], 0, size, *x.shape[d + 1:]), x.dtype), d + 1, -1)
    return x


def cholesky(a, x, r):
    """Returns the Cholesky factor. lax reads only the lower triangle and returns the lower factor, so the upper factor
    is computed from the transpose."""
    if a["lower"]:
        return lax.linalg.cholesky(x[0], symmetrize_input=False)
    lower = lax.linalg.cholesky(jnp.swapaxes(x[0], -1, -2).conj(), symmetrize_input=False)
    return jnp.swapaxes(lower, -1, -2).conj()


def triangular_solve(a, x, r):
    return lax.linalg.triangular_solve(
        x[0], x[1], left_side=a["left_side"], lower=a["lower"],
        transpose_a=a["transpose_a"] != "NO_TRANSPOSE", unit_diagonal=a["unit_diagonal"],
        conjugate_a=a["transpose_a"] == "ADJOINT")


def svd(a, x, r):
    out = lax.linalg.svd(x[0], full_matrices=a["full_matrices"], compute_uv=a["compute_uv"],
                         algorithm=lax.linalg.SvdAlgorithm.QR if a.get("algorithm") else None)
    return [out[1], out[0], out[2]] if a["compute_uv"] else [out]


def eig(a, x, r):
    return list(lax.linalg.eig(
        x[0], compute_left_eigenvectors=a["compute_left_eigenvectors"],
        compute_right_eigenvectors=a["compute_right_eigenvectors"]))


def all_gather(a, x, r):
    gather = lax.all_gather if a["to"] == "varying" else parallel.all_gather_invariant
    return gather(x[0], tuple(a["axes"]), axis=a["all_gather_dimension"], tiled=a["tiled"])


def ppermute(a, x, r):
    perm = list(zip(a["perm"][::2], a["perm"][1::2]))
    return lax.ppermute(x[0], tuple(a["axes"]), perm)


def scan(a, x, r):
    consts, carry = a["num_consts"], a["num_carry"]
    first = x[consts:consts + carry]

    def body(c, s):
        out = r[0](*x[:consts], *c, *s)
        return list(out[:carry]), list(out[carry:])

    last, ys = lax.scan(body, list(first), list(x[consts + carry:]), length=a["length"],
                        reverse=a["reverse"])
    return list(last) + list(ys)


def while_loop(a, x, r):
    n = a["num_predicate_consts"]
    m = n + a["num_body_consts"]
    return lax.while_loop(lambda c: r[0](*x[:n], *c)[0], lambda c: list(r[1](*x[n:m], *c)),
                          list(x[m:]))


def switch(a, x, r):
    return lax.switch(x[0], [lambda *args, f=f: list(f(*args)) for f in r], *x[1:])


def custom_jvp(a, x, r):
    n = a["num_consts"]
    consts, args = x[:n], x[n:]
    f = jax.custom_jvp(lambda *args: tuple(r[0](*consts, *args)))

    def rule(primals, tangents):
        inexact = [t for p, t in zip(primals, tangents) if jnp.issubdtype(p.dtype, jnp.inexact)]
        out = r[1](*consts, *primals, *inexact)
        return tuple(out[:len(out) - len(inexact)]), tuple(out[len(out) - len(inexact):])

    f.defjvp(rule)
    return list(f(*args))


def custom_vjp(a, x, r):
    n = a["num_consts"]
    f = jax.custom_vjp(lambda *args: tuple(r[0](*x[:n], *args)))
    num_results = len(jax.eval_shape(lambda: r[0](*x)))

    def fwd(*args):
        out = r[1](*x[:n], *args)
        return tuple(out[:num_results]), out[num_results:]

    f.defvjp(fwd, lambda residuals, cts: tuple(r[2](*x[:n], *residuals, *cts)))
    return list(f(*x[n:]))


def custom_lin(a, x, r):
    """Evaluates the op by transposing its region, because the region is the transpose of the op."""
    n, cotangents = a["num_residuals"], r[0].params[a["num_residuals"]:]
    back = lambda *cts: tuple(r[0](*x[:n], *cts))
    return list(jax.linear_transpose(back, *cotangents)(tuple(x[n:])))


def linear_solve(a, x, r):
    n = a["num_consts"]
    of = lambda region: lambda v: list(region(*x[:n], *v))
    return lax.custom_linear_solve(of(r[1]), list(x[n:]), lambda _, b: of(r[0])(b),
                                   lambda _, b: of(r[2])(b))


def spec(dims):
    return PartitionSpec(*[tuple(d) if d else None for d in dims])


def manual_computation(a, x, r):
    f = jax.shard_map(lambda *args: tuple(r[0](*args)), mesh=MESH[-1],
                      in_specs=tuple(map(spec, a["in_specs"])),
                      out_specs=tuple(map(spec, a["out_specs"])),
                      axis_names=set(a["manual_axes"]), check_vma=a["check_vma"])
    return list(f(*x))


def power(a, x, r):
    """Returns x to a power. lax.pow refuses an integer base, so jnp.power is used for it, which multiplies."""
    return (lax.pow if jnp.issubdtype(x[0].dtype, jnp.floating) else jnp.power)(x[0], x[1])


def mode_of(a):
    return getattr(lax.GatherScatterMode, a["mode"].upper())


def vectors_last(a, indices):
    """Moves the index vectors to the last dim, where lax expects them."""
    at = a["index_vector_dim"]
    return indices[..., None] if at == indices.ndim else jnp.moveaxis(indices, at, -1)


def batching_dims(a, names, indices):
    """Returns the numbers that the batching dims of indices have after the index vectors are moved to the last dim."""
    at = a["index_vector_dim"]
    return tuple(d - (d > at) for d in a[names])


def gather(a, x, r):
    dims = lax.GatherDimensionNumbers(
        offset_dims=tuple(a["offset_dims"]), collapsed_slice_dims=tuple(a["collapsed_slice_dims"]),
        start_index_map=tuple(a["start_index_map"]),
        operand_batching_dims=tuple(a["operand_batching_dims"]),
        start_indices_batching_dims=batching_dims(a, "start_indices_batching_dims", x[1]))
    fill = a.get("fill_value")
    return lax.gather(x[0], vectors_last(a, x[1]), dims, tuple(a["slice_sizes"]), mode=mode_of(a),
                      fill_value=None if fill is None else array(fill, fill["hex"]).item())


def scatter_dims(a, indices):
    return lax.ScatterDimensionNumbers(
        update_window_dims=tuple(a["update_window_dims"]),
        inserted_window_dims=tuple(a["inserted_window_dims"]),
        scatter_dims_to_operand_dims=tuple(a["scatter_dims_to_operand_dims"]),
        operand_batching_dims=tuple(a["input_batching_dims"]),
        scatter_indices_batching_dims=batching_dims(a, "scatter_indices_batching_dims", indices))


def scatter(name):
    def f(a, x, r):
        return getattr(lax, name)(x[0], vectors_last(a, x[1]), x[2], scatter_dims(a, x[1]),
                                  mode=mode_of(a), unique_indices=a.get("unique_indices", False))
    return f


# ---- Computations: regions that work on scalars. ----

def computation(region, operands, times=1):
    """Returns the jaxpr of a region with one result. The region has `times` consecutive params for each operand."""
    scalars = [jax.ShapeDtypeStruct((), o.dtype) for o in operands for _ in range(times)]
    return jax.make_jaxpr(lambda *s: region(*s)[0])(*scalars)


def scatter_by(a, x, r):
    update = computation(r[0], [x[0], x[2]])
    return slicing.scatter_p.bind(
        x[0], vectors_last(a, x[1]), x[2], update_jaxpr=update.jaxpr,
        update_consts=tuple(update.consts), dimension_numbers=scatter_dims(a, x[1]),
        indices_are_sorted=False, unique_indices=False, mode=mode_of(a))


def reduce(a, x, r):
    n = len(x) // 2
    return list(lax.reduce(tuple(x[:n]), tuple(x[n:]), lambda l, e: tuple(r[0](*l, *e)),
                           a["dimensions"]))


def lower_sort_by(ctx, *x, comparator, dimension, is_stable):
    op = hlo.SortOp([v.type for v in x], x, dimension=mlir.i64_attr(dimension),
                    is_stable=mlir_ir.BoolAttr.get(is_stable))
    scalars = [mlir.aval_to_ir_type(ctx.module_context, jax.core.ShapedArray((), v.dtype))
               for v in ctx.avals_in for _ in range(2)]
    block = op.comparator.blocks.append(*scalars)
    with mlir_ir.InsertionPoint(block):
        out, _ = mlir.jaxpr_subcomp(
            ctx.module_context, comparator.jaxpr, ctx.name_stack, mlir.TokenSet(),
            comparator.consts, *block.arguments, dim_var_values=ctx.dim_var_values,
            const_lowering=ctx.const_lowering, outer_traceback=ctx.traceback)
        hlo.return_(out)
    return op.results


sort_by_p = Primitive("sort_by")  # StableHLO's sort with any comparator, for which lax has no function
sort_by_p.multiple_results = True
sort_by_p.def_abstract_eval(lambda *x, **_: list(x))
sort_by_p.def_impl(lambda *x, **params: jax.jit(lambda *y: sort_by_p.bind(*y, **params))(*x))
mlir.register_lowering(sort_by_p, lower_sort_by)


def sort_by(a, x, r):
    return list(sort_by_p.bind(*x, comparator=computation(r[0], x, times=2),
                               dimension=a["dimension"], is_stable=a["is_stable"]))


def compare(a, x, r):
    if "compare_type" in a:
        return TOTAL_ORDER[a["direction"]].bind(x[0], x[1])
    return COMPARE[a["direction"]](x[0], x[1])


TOTAL_ORDER = {"EQ": lax_internal.eq_to_p, "LT": lax_internal.lt_to_p, "LE": lax_internal.le_to_p}
COMPARE = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}
MESH = []  # the mesh of the sample that is being evaluated
OPS = {
    "round_nearest_afz": lambda a, x, r: lax.round(x[0], lax.RoundingMethod.AWAY_FROM_ZERO),
    "round_nearest_even": lambda a, x, r: lax.round(x[0], lax.RoundingMethod.TO_NEAREST_EVEN),
    "not": unary("bitwise_not"),
    "and": binary("bitwise_and"),
    "or": binary("bitwise_or"),
    "xor": binary("bitwise_xor"),
    "power": power,
    "compare": compare,
    "select": lambda a, x, r: lax.select_n(x[0], x[2], x[1]),
    "clamp": lambda a, x, r: lax.clamp(x[0], x[1], x[2]),
    "convert": lambda a, x, r: lax.convert_element_type(x[0], DTYPES[a["dtype"]]),
    "bitcast_convert": lambda a, x, r: lax.bitcast_convert_type(x[0], DTYPES[a["dtype"]]),
    "reduce_precision": lambda a, x, r: lax.reduce_precision(
        x[0], a["exponent_bits"], a["mantissa_bits"]),
    "stop_gradient": unary("stop_gradient"),
    "checkpoint_name": lambda a, x, r: jax.ad_checkpoint.checkpoint_name(x[0], a["name"]),
    "constant": lambda a, x, r: jnp.asarray(array(a["value"], a["value"]["hex"])),
    "iota": lambda a, x, r: lax.broadcasted_iota(
        DTYPES[a["dtype"]], a["shape"], a["iota_dimension"]),
    "broadcast_in_dim": lambda a, x, r: lax.broadcast_in_dim(
        x[0], a["shape"], a["broadcast_dimensions"]),
    "reshape": lambda a, x, r: lax.reshape(x[0], a["shape"]),
    "transpose": lambda a, x, r: lax.transpose(x[0], a["permutation"]),
    "slice": lambda a, x, r: lax.slice(x[0], a["start_indices"], a["limit_indices"], a["strides"]),
    "concatenate": lambda a, x, r: lax.concatenate(x, a["dimension"]),
    "pad": lambda a, x, r: lax.pad(x[0], x[1], list(zip(
        a["edge_padding_low"], a["edge_padding_high"], a["interior_padding"]))),
    "reverse": lambda a, x, r: lax.rev(x[0], a["dimensions"]),
    # These two use the primitives, because the functions of lax count negative starts from the end.
    "dynamic_slice": lambda a, x, r: lax.dynamic_slice_p.bind(
        *x, slice_sizes=tuple(a["slice_sizes"])),
    "dynamic_update_slice": lambda a, x, r: lax.dynamic_update_slice_p.bind(*x),
    "gather": gather,
    **{name: scatter(name)
       for name in ("scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max")},
    "scatter_by": scatter_by,
    "reduce": reduce,
    "reduce_sum": reduction("reduce_sum"),
    "reduce_prod": reduction("reduce_prod"),
    "reduce_max": bool_extremum("reduce_max"),
    "reduce_min": bool_extremum("reduce_min"),
    "reduce_and": reduction("reduce_and"),
    "reduce_or": reduction("reduce_or"),
    "argmax": lambda a, x, r: lax.argmax(x[0], a["dimension"], DTYPES[a["index_dtype"]]),
    "argmin": lambda a, x, r: lax.argmin(x[0], a["dimension"], DTYPES[a["index_dtype"]]),
    **{name: (lambda name: lambda a, x, r: getattr(lax, name)(
        x[0], axis=a["dimension"], reverse=a["reverse"]))(name)
       for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")},
    "sort": lambda a, x, r: list(lax.sort(tuple(x), dimension=a["dimension"],
                                          is_stable=a["is_stable"], num_keys=a["num_keys"])),
    "sort_by": sort_by,
    "top_k": lambda a, x, r: list(lax.top_k(x[0], a["k"], axis=a["dimension"])),
    "dot_general": dot,
    "convolution": convolution,
    "sliding_window_view": sliding_window_view,
    "fft": lambda a, x, r: lax.fft(x[0], a["fft_type"], tuple(a["fft_length"])),
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "tridiagonal_solve": lambda a, x, r: lax.linalg.tridiagonal_solve(*x),
    "lu": lambda a, x, r: list(lax.linalg.lu(x[0])),
    "geqrf": lambda a, x, r: list(linalg.geqrf(x[0])),
    "householder_product": lambda a, x, r: lax.linalg.householder_product(*x),
    "geqp3": lambda a, x, r: list(linalg.geqp3(*x)),
    "qr": lambda a, x, r: list(lax.linalg.qr(x[0], full_matrices=a["full_matrices"],
                                             pivoting=a.get("pivoting", False))),
    "eig": eig,
    "schur": lambda a, x, r: list(lax.linalg.schur(
        x[0], compute_schur_vectors=a["compute_schur_vectors"])),
    "hessenberg": lambda a, x, r: list(lax.linalg.hessenberg(x[0])),
    "tridiagonal": lambda a, x, r: list(lax.linalg.tridiagonal(x[0], lower=a["lower"])),
    "eigh": lambda a, x, r: list(lax.linalg.eigh(
        x[0], lower=a["lower"], symmetrize_input=False, sort_eigenvalues=False)),
    "svd": svd,
    "threefry2x32": lambda a, x, r: list(threefry2x32_p.bind(
        *jnp.broadcast_arrays(*x[:2], *x[2:]))),
    "psum": lambda a, x, r: lax.psum(x[0], tuple(a["axes"])),
    "pmax": lambda a, x, r: lax.pmax(x[0], tuple(a["axes"])),
    "pmin": lambda a, x, r: lax.pmin(x[0], tuple(a["axes"])),
    "all_gather": all_gather,
    "psum_scatter": lambda a, x, r: lax.psum_scatter(
        x[0], tuple(a["axes"]), scatter_dimension=a["scatter_dimension"], tiled=a["tiled"]),
    "ppermute": ppermute,
    "all_to_all": lambda a, x, r: lax.all_to_all(
        x[0], tuple(a["axes"]), a["split_dimension"], a["concat_dimension"], tiled=a["tiled"]),
    "axis_index": lambda a, x, r: lax.axis_index(tuple(a["axes"])),
    "pvary": lambda a, x, r: lax.pcast(x[0], tuple(a["axes"]), to="varying"),
    "preduced": lambda a, x, r: lax.pcast(x[0], tuple(a["axes"]), to="reduced"),
    "vary_unreduced_cast": lambda a, x, r: lax.pcast(x[0], tuple(a["axes"]), to="unreduced"),
    "reduced_vary_cast": lambda a, x, r: lax.pcast(x[0], tuple(a["axes"]), to="varying"),
    "call": lambda a, x, r: list(jax.jit(lambda *args: tuple(r[0](*args)))(*x)),
    "checkpoint": lambda a, x, r: list(jax.checkpoint(lambda *args: tuple(r[0](*args)))(*x)),
    "optimization_barrier": lambda a, x, r: list(lax.optimization_barrier(tuple(x))),
    "case": switch,
    "custom_jvp_call": custom_jvp,
    "custom_vjp_call": custom_vjp,
    "custom_lin": custom_lin,
    "custom_linear_solve": linear_solve,
    "integer_pow": lambda a, x, r: lax.integer_pow(x[0], a["y"]),
    "scan": scan,
    "while": while_loop,
    "manual_computation": manual_computation,
    "sharding_constraint": lambda a, x, r: lax.with_sharding_constraint(
        x[0], jax.sharding.NamedSharding(MESH[-1], spec(a["sharding"]))),
}
for wire, name in {
        "negate": "neg", "exponential": "exp", "exponential_minus_one": "expm1",
        "log_plus_one": "log1p", "sine": "sin", "cosine": "cos", "popcnt": "population_count",
        "count_leading_zeros": "clz"}.items():
    OPS[wire] = unary(name)
for wire, name in {
        "subtract": "sub", "multiply": "mul", "divide": "div", "remainder": "rem",
        "maximum": "max", "minimum": "min"}.items():
    OPS[wire] = binary(name)


def meaning(wire):
    """Returns the function of an op. An op that is not in OPS has the name and the arguments of a function in lax."""
    return OPS.get(wire) or (lambda a, x, r: getattr(lax, wire)(*x))


def callable_of(region):
    f = lambda *xs: run(region, xs)
    f.params = [jax.ShapeDtypeStruct(tuple(t["shape"]), DTYPES[t["dtype"]])
                for t in region["types"][:region["params"]]]
    return f


def run(fn, args, params=None):
    """Evaluates a function of ops. `args` are the JAX values of its first values, or of the values `params`."""
    env = dict(enumerate(args) if params is None else zip(params, args, strict=True))
    for op in fn["ops"]:
        regions = [callable_of(region) for region in op["regions"]]
        out = meaning(op["op"])(op["attrs"], [env[i] for i in op["operands"]], regions)
        out = out if isinstance(out, list) else [out]
        env.update(zip(op["results"], out, strict=True))
    return [env[i] for i in fn["results"]]


# ---- Samples. ------------------------------------------------------------------------------------

def mesh_of(sample):
    names = tuple(name for name, _ in sample["mesh"])
    sizes = [size for _, size in sample["mesh"]]
    devices = np.array(jax.devices()[:int(np.prod(sizes))]).reshape(sizes)
    return Mesh(devices, names)


def evaluate_plain(sample):
    args = [array(o, o["lanes"][0]) for o in sample["operands"]]
    if sample["mesh"]:
        MESH[:] = [mesh_of(sample)]
    out = jax.jit(lambda *xs: tuple(run(sample["function"], xs)))(*map(jnp.asarray, args))
    return [[np.asarray(o)] for o in out]


# Ops that may be in one branch with other ops, whatever their dtypes are.
MOVES = {"bitcast_convert", "broadcast_in_dim", "constant", "reshape", "select", "slice", "transpose"}


def branches(program):
    """Splits the ops, in order, into branches so that at most one op of a branch rounds."""
    rows, rounds_already = [[]], False
    for op in program["ops"]:
        dtypes = {program["types"][i]["dtype"] for i in op["operands"] + op["results"]}
        rounds = op["op"] not in MOVES and any(d[0] in "fbc" and d != "bool" for d in dtypes)
        if rounds and rounds_already:
            rows.append([])
        rounds_already |= rounds
        rows[-1].append(op)
    return rows


def evaluate_program(sample):
    """Evaluates a program op by op. If XLA compiles ops together, it keeps digits that bf16 would round away, and
    rounds a product and the sum that contains it only once. So each op that rounds is in a branch of a conditional of
    its own, because XLA does not fuse across branches. This takes a third of the time that one program for each op
    would take."""
    program = sample["function"]["ops"][0]["regions"][0]
    types = [(t["shape"], DTYPES[t["dtype"]]) for t in program["types"]]
    args = [jnp.asarray(array(o, o["lanes"][0])) for o in sample["operands"]]

    def whole(go, *args):
        env = dict(enumerate(args))
        rows = branches(program)
        for at, row in enumerate(rows):
            made = {i for op in row for i in op["results"]}
            read = sorted({i for op in row for i in op["operands"]} - made)
            later = {i for row in rows[at + 1:] for op in row for i in op["operands"]}
            kept = sorted(made & (later | set(program["results"])))
            out = lax.cond(go, lambda *x: run({"ops": row, "results": kept}, x, read),
                           lambda *x: [jnp.zeros(*types[i]) for i in kept], *[env[i] for i in read])
            env.update(zip(kept, out, strict=True))
        return [env[i] for i in program["results"]]

    return [[np.asarray(o)] for o in jax.jit(whole)(True, *args)]


def evaluate_manual(sample):
    """Evaluates a sample of per-device code. An operand has one block for each coordinate: it gets leading dims for the
    axes along which it varies."""
    mesh = mesh_of(sample)
    names, sizes = mesh.axis_names, mesh.devices.shape

    def lead(type_):
        varying = type_.get("varying", [])
        return PartitionSpec(*[n if n in varying else None for n in names])

    args = []
    for o in sample["operands"]:
        blocks = np.stack([array(o, h) for h in o["lanes"]]).reshape(*sizes, *o["shape"])
        keep = tuple(slice(None) if n in o.get("varying", []) else slice(0, 1) for n in names)
        args.append(jnp.asarray(blocks[keep]))

    def body(*xs):
        out = run(sample["function"], [x.reshape(x.shape[len(names):]) for x in xs])
        return tuple(o.reshape((1,) * len(names) + o.shape) for o in out)

    out = jax.jit(jax.shard_map(
        body, mesh=mesh, in_specs=tuple(map(lead, sample["operands"])),
        out_specs=tuple(map(lead, sample["results"]))))(*args)
    lanes = []
    for o, type_ in zip(out, sample["results"], strict=True):
        whole = np.broadcast_to(np.asarray(o), (*sizes, *type_["shape"]))
        lanes.append(list(whole.reshape(-1, *type_["shape"])))
    return lanes


def bits(block):
    """Returns the bytes of an array as hex digits. Integers of 2 and 4 bits are sign-extended to 8 bits."""
    if block.dtype in (ml_dtypes.int2, ml_dtypes.int4):
        block = block.astype(np.int8)
    return np.ascontiguousarray(block).tobytes().hex()


def record(sample):
    evaluate = evaluate_manual if sample["manual"] else evaluate_plain
    if sample["sample"].startswith("call/program/"):
        evaluate = evaluate_program
    lanes = evaluate(sample)
    results = []
    for type_, blocks in zip(sample["results"], lanes, strict=True):
        for b in blocks:
            want = (np.dtype(DTYPES[type_["dtype"]]), tuple(type_["shape"]))
            if (b.dtype, b.shape) != want:
                raise TypeError(f"JAX gives {b.dtype}{b.shape}, the op infers {want}")
        results.append({"dtype": type_["dtype"], "shape": type_["shape"],
                        "lanes": [bits(b) for b in blocks]})
    return {"sample": sample["sample"], "digest": sample["digest"], "results": results}


def main():
    usage = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    usage.add_argument("dump_samples")
    usage.add_argument("family", nargs="*", default=FAMILIES)
    usage.add_argument("--folder", type=pathlib.Path,
                       default=pathlib.Path(__file__).resolve().parent.parent / "tests/ops/recorded")
    usage.add_argument("--resume", action="store_true",
                       help="keep the recorded samples that have not changed; a sample during which the "
                            "last run was killed, as XLA's compiler can do, is recorded as failed")
    args = usage.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    source = f"jax {jax.__version__}, jaxlib {jax.lib.__version__}, numpy {np.__version__}, cpu"
    failures = []
    for family in args.family:
        path = args.folder / f"{family}.jsonl"
        have = {}
        running = path.with_suffix(".running")  # a file that names the sample that is being evaluated
        killed = running.read_text() if args.resume and running.exists() else None
        if args.resume and path.exists():
            for text in path.read_text().splitlines()[1:]:
                with contextlib.suppress(json.JSONDecodeError):  # The last line may have been cut off.
                    kept = json.loads(text)
                    have[kept["sample"], kept["digest"]] = text
        dump = subprocess.run([args.dump_samples, family], check=True, text=True,
                              stdout=subprocess.PIPE)
        samples = [s for s in map(json.loads, dump.stdout.splitlines()) if s["record"]]
        with path.open("w", buffering=1) as file:
            print(json.dumps({"source": source}), file=file)
            for sample in samples:
                text = have.get((sample["sample"], sample["digest"]))
                if killed == sample["digest"]:
                    text = json.dumps({"sample": sample["sample"], "digest": sample["digest"],
                                       "failed": "JAX's process was killed", "results": []})
                try:
                    if not text:
                        running.write_text(sample["digest"])
                        text = json.dumps(record(sample), separators=(",", ":"))
                    print(text, file=file)
                except Exception as e:  # makes the run fail at the end; a row that JAX may refuse says so
                    why = str(e).splitlines()[0]
                    failures.append(f"{sample['sample']}: {type(e).__name__}: {why}")
        running.unlink(missing_ok=True)
        print(f"{family}: {len(samples)} samples")
    if failures:
        sys.exit("not recorded:\n  " + "\n  ".join(failures))


if __name__ == "__main__":
    main()
