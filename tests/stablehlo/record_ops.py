"""Writes small programs of StableHLO's ops with their arguments and expected results.

  python tests/stablehlo/record_ops.py            # tests/stablehlo/recorded/ops.jsonl
  python tests/stablehlo/record_ops.py --seeds    # also the seeds in tests/fuzz/stablehlo

Each line is a case in the format of StableHLO's own suite: its name, its artifact, its arguments, its
results and their tolerances. The expected results of an op are computed here in NumPy, with doubles, if
NumPy can compute them; otherwise XLA computes them on the CPU. If both can, the two are compared. The
script needs jax 0.10.2.
"""
import base64
import json
import pathlib
import sys

import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import export, lax
from jax._src import xla_bridge
from jax._src.interpreters import mlir
from jaxlib import _jax
from jaxlib import xla_client
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

HERE = pathlib.Path(__file__).parent
CPU = xla_bridge.get_backend("cpu")
rng = np.random.default_rng(11)
NAMES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "ui8",
    "uint16": "ui16", "uint32": "ui32", "uint64": "ui64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float64": "f64", "complex64": "complex<f32>", "complex128": "complex<f64>",
    "int4": "i4", "uint4": "ui4", "int2": "i2", "uint2": "ui2",
    "float8_e3m4": "f8E3M4", "float8_e4m3": "f8E4M3", "float8_e4m3b11fnuz": "f8E4M3B11FNUZ",
    "float8_e4m3fn": "f8E4M3FN", "float8_e4m3fnuz": "f8E4M3FNUZ", "float8_e5m2": "f8E5M2",
    "float8_e5m2fnuz": "f8E5M2FNUZ", "float8_e8m0fnu": "f8E8M0FNU", "float4_e2m1fn": "f4E2M1FN",
}
lines = {}


def mlir_type(a):
    a = np.asarray(a)
    return "tensor<" + "".join(f"{d}x" for d in a.shape) + NAMES[a.dtype.name] + ">"


def artifact(text):
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        return _jax.mlir.serialize_portable_artifact(module, stablehlo.get_current_version(), True)


def xla(text, args):
    with mlir.make_ir_context():
        devices = _jax.DeviceList(tuple(CPU.local_devices()[:1]))
        run = CPU.compile_and_load(ir.Module.parse(text), devices, xla_client.CompileOptions())
    out = run.execute_sharded([jax.device_put(np.asarray(a)) for a in args])
    return [np.asarray(shards[0]) for shards in out.disassemble_into_single_device_arrays()]


def value(a):
    a = np.asarray(a)
    # An integer of fewer than 8 bits is stored sign-extended in a byte.
    stored = a.astype(np.int8) if a.dtype.name in ("int2", "int4") else a
    return {"dtype": NAMES[a.dtype.name], "shape": list(a.shape),
            "data": base64.b64encode(np.ascontiguousarray(stored).tobytes()).decode()}


def near(a, b, bound):
    a, b = (np.asarray(x).astype(np.complex128) for x in (a, b))
    assert a.shape == b.shape, (a.shape, b.shape)
    close = np.abs(a - b) <= bound * (1 + np.abs(b))
    assert np.all(close | (a == b) | (np.isnan(a) & np.isnan(b))), (a, b)


def keep(name, data, args, expected, check=("eq", 0)):
    assert name not in lines, name
    kind, most = check
    expected = [np.asarray(e) for e in expected]
    checks = [{"kind": kind if e.dtype.kind in "fcV" and kind != "eq" else "eq", "max": most}
              for e in expected]
    lines[name] = json.dumps({"name": name, "program": base64.b64encode(data).decode(),
                              "inputs": [value(a) for a in args],
                              "expected": [value(e) for e in expected], "checks": checks})


def function(body, args, results, extra=""):
    params = ", ".join(f"%a{i}: {mlir_type(a)}" for i, a in enumerate(args))
    types = ", ".join(mlir_type(r) for r in results)
    return f"{extra}\nfunc.func public @main({params}) -> ({types}) {{\n{body}\n}}"


def of_text(name, body, args, expected=None, check=("eq", 0), like=None, compare=None, extra=""):
    """Adds a case. The results are `expected`, or XLA's if `expected` is None. `compare` bounds their difference."""
    shapes = expected if expected is not None else like
    text = function(body, args, shapes, extra)
    if expected is None or compare is not None:
        said = xla(text, args)
        if compare is not None:
            for got, want in zip(said, expected):
                near(got, want, compare)
        expected = said if expected is None else expected
    keep(name, artifact(text), args, expected, check)


def op(name, what, args, attrs="", **kwargs):
    """Adds a case whose program is one op."""
    results = kwargs["expected"] if kwargs.get("expected") is not None else kwargs["like"]
    n = len(results)
    names = ", ".join(f"%0#{i}" for i in range(n)) if n > 1 else "%0"
    given = ", ".join(f"%a{i}" for i in range(len(args)))
    ins = ", ".join(mlir_type(a) for a in args)
    outs = ", ".join(mlir_type(r) for r in results)
    of_text(name, f'''  %0{f":{n}" if n > 1 else ""} = "{what}"({given}) {{{attrs}}}
      : ({ins}) -> ({outs})
  return {names} : {outs}''', args, **kwargs)


def floats(*shape, dtype=np.float32, spread=2.0):
    return (np.round(rng.uniform(-spread, spread, shape) * 64) / 64).astype(dtype)


# ---- Batch normalization. ------------------------------------------------------------------------
def spread_of(v, like, dim):
    shape = [1] * like.ndim
    shape[dim] = -1
    return v.reshape(shape)


def training(x, scale, offset, eps, dim):
    others = tuple(d for d in range(x.ndim) if d != dim)
    mean = x.mean(others)
    var = ((x - spread_of(mean, x, dim)) ** 2).mean(others)
    return inference(x, scale, offset, mean, var, eps, dim) + [mean, var]


def inference(x, scale, offset, mean, var, eps, dim):
    s = lambda v: spread_of(v, x, dim)
    return [(x - s(mean)) / np.sqrt(s(var) + eps) * s(scale) + s(offset)]


def gradient(x, scale, mean, var, grad, eps, dim):
    others = tuple(d for d in range(x.ndim) if d != dim)
    s = lambda v: spread_of(v, x, dim)
    n = x.size / x.shape[dim]
    centered, raised = x - s(mean), s(var) + eps
    left = n * grad - s(grad.sum(others)) - centered / raised * s((grad * centered).sum(others))
    return [s(scale) / np.sqrt(raised) / n * left,
            (grad * centered / np.sqrt(raised)).sum(others), grad.sum(others)]


for dtype, check, apart in ((np.float16, ("ulp", 1), 4e-2), (ml_dtypes.bfloat16, ("ulp", 1), 2e-1),
                            (np.float32, ("abs", 2e-5), 1e-4), (np.float64, ("abs", 1e-12), 1e-4)):
    for shape, dim in (((6, 4), 1), ((2, 3, 4), 0), ((2, 4, 3, 2), 1), ((3, 2, 2, 4), 3)):
        k = shape[dim]
        x, grad = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype)
        scale, offset, mean = (floats(k, dtype=dtype) for _ in range(3))
        var = np.abs(floats(k, dtype=dtype)) + dtype(0.25)
        eps = np.float32(0.0625)
        attrs = f"epsilon = 0.0625 : f32, feature_index = {dim} : i64"
        label = f"{np.dtype(dtype).name}_{'x'.join(map(str, shape))}_{dim}"
        wide = lambda *vs: [np.asarray(v).astype(np.float64) for v in vs]
        to = lambda vs: [np.asarray(v).astype(dtype) for v in vs]
        op(f"batch_norm_training/{label}", "stablehlo.batch_norm_training", [x, scale, offset],
           attrs, expected=to(training(*wide(x, scale, offset), eps, dim)), check=check,
           compare=apart)
        op(f"batch_norm_inference/{label}", "stablehlo.batch_norm_inference",
           [x, scale, offset, mean, var], attrs,
           expected=to(inference(*wide(x, scale, offset, mean, var), eps, dim)), check=check,
           compare=apart)
        # The gradient subtracts sums that nearly cancel, so it needs a larger tolerance.
        loose = ("abs", {2: 2e-2, 4: 1e-4, 8: 1e-12}[np.dtype(dtype).itemsize])
        if dtype is ml_dtypes.bfloat16:
            loose = ("abs", 0.1)
        op(f"batch_norm_grad/{label}", "stablehlo.batch_norm_grad", [x, scale, mean, var, grad],
           attrs, expected=to(gradient(*wide(x, scale, mean, var, grad), eps, dim)), check=loose,
           compare=apart)

# ---- Einsum. -------------------------------------------------------------------------------------
for config, left, right in (("ij,jk->ik", (3, 4), (4, 2)), ("bij,bjk->bki", (2, 3, 4), (2, 4, 2)),
                            ("ij,kj->", (3, 4), (2, 4)), ("abc,cd->da", (2, 3, 4), (4, 2)),
                            ("i,j->ji", (4,), (2,)), ("ijk,ik->ij", (2, 4, 3), (2, 3))):
    a, b = floats(*left), floats(*right)
    op(f"einsum/{config}", "stablehlo.einsum", [a, b], f'einsum_config = "{config}"',
       expected=[np.einsum(config, a.astype(np.float64), b).astype(np.float32)],
       check=("abs", 1e-5))
a = rng.integers(-9, 9, (2, 4, 3)).astype(np.int32)
for config in ("ijk->kij", "ijk->ji", "ijk->", "ijk->ijk"):
    op(f"unary_einsum/{config}", "stablehlo.unary_einsum", [a], f'einsum_config = "{config}"',
       expected=[np.einsum(config, a).astype(np.int32)])

# ---- Indexing, and sizes. ------------------------------------------------------------------------
x = floats(4, 6, 2)
at = np.array([[5, 0], [2, 2], [1, 3], [4, 4]], np.int32)
op("torch_index_select/dim_1", "stablehlo.torch_index_select", [x, at],
   "dim = 1 : i64, batch_dims = 0 : i64", expected=[np.take(x, at, axis=1)])
op("torch_index_select/batch", "stablehlo.torch_index_select", [x, at],
   "dim = 1 : i64, batch_dims = 1 : i64",
   expected=[np.stack([x[i][at[i]] for i in range(4)])])
op("torch_index_select/dim_2", "stablehlo.torch_index_select", [x, np.array([1, 0, 1], np.int64)],
   "dim = 2 : i64, batch_dims = 0 : i64", expected=[x[:, :, [1, 0, 1]]])
of_text("set_dimension_size/whole", """  %n = stablehlo.constant dense<6> : tensor<i32>
  %0 = "stablehlo.set_dimension_size"(%a0, %n) {dimension = 1 : i64}
      : (tensor<4x6x2xf32>, tensor<i32>) -> tensor<4x6x2xf32>
  return %0 : tensor<4x6x2xf32>""", [x], expected=[x])
op("cross_replica_sum/alone", "stablehlo.cross-replica-sum", [x],
   "replica_groups = dense<0> : tensor<1x1xi64>", expected=[x])
image, kernel = floats(2, 6, 6, 2), floats(3, 3, 2, 4)
LAYOUT = """dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
    batch_group_count = 1 : i64, feature_group_count = 1 : i64"""
convolved = np.asarray(lax.conv_general_dilated(
    image, kernel, (1, 1), ((1, 0), (2, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")))
of_text("dynamic_conv/padding", f"""
  %p = stablehlo.constant dense<[[1, 0], [2, 1]]> : tensor<2x2xi64>
  %0 = "stablehlo.dynamic_conv"(%a0, %a1, %p) {{{LAYOUT}}}
      : ({mlir_type(image)}, {mlir_type(kernel)}, tensor<2x2xi64>) -> {mlir_type(convolved)}
  return %0 : {mlir_type(convolved)}""", [image, kernel], expected=[convolved], check=("abs", 1e-4))
for precision in ("DEFAULT", "HIGH", "HIGHEST"):
    op(f"convolution/{precision}", "stablehlo.convolution", [image, kernel], f"""{LAYOUT},
    padding = dense<[[1, 0], [2, 1]]> : tensor<2x2xi64>,
    precision_config = [#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]""",
       expected=[convolved], check=("abs", 1e-4), compare=1e-5)

# ---- Tuples and tokens. --------------------------------------------------------------------------
n = np.arange(4, dtype=np.int32)
y = floats(4)
INNER = "tuple<tensor<4xf32>, tensor<4xi32>>"
PAIR = f"tuple<{INNER}, !stablehlo.token, tensor<4xf32>>"


def tuples(name, text, args, expected):
    keep(name, artifact(text), args, expected)


tuples("tuple/within", f"""func.func public @main(%a0: tensor<4xf32>, %a1: tensor<4xi32>)
    -> (tensor<4xi32>, tensor<4xf32>) {{
  %t = stablehlo.create_token : !stablehlo.token
  %0 = stablehlo.tuple %a0, %a1 : {INNER}
  %1 = stablehlo.add %a0, %a0 : tensor<4xf32>
  %2 = stablehlo.tuple %0, %t, %1 : {PAIR}
  %3 = stablehlo.get_tuple_element %2[0] : ({PAIR}) -> {INNER}
  %4 = stablehlo.get_tuple_element %3[1] : ({INNER}) -> tensor<4xi32>
  %5 = stablehlo.get_tuple_element %2[2] : ({PAIR}) -> tensor<4xf32>
  return %4, %5 : tensor<4xi32>, tensor<4xf32>
}}""", [y, n], [n, y + y])
tuples("tuple/at_the_boundary", f"""func.func public @main(%a0: {INNER}, %a1: tensor<4xf32>)
    -> {PAIR} {{
  %t = stablehlo.create_token : !stablehlo.token
  %0 = stablehlo.get_tuple_element %a0[0] : ({INNER}) -> tensor<4xf32>
  %1 = stablehlo.add %0, %a1 : tensor<4xf32>
  %2 = func.call @inner(%a0) : ({INNER}) -> {INNER}
  %3 = stablehlo.tuple %2, %t, %1 : {PAIR}
  return %3 : {PAIR}
}}
func.func private @inner(%a0: {INNER}) -> {INNER} {{
  %0 = stablehlo.get_tuple_element %a0[0] : ({INNER}) -> tensor<4xf32>
  %1 = stablehlo.negate %0 : tensor<4xf32>
  %2 = stablehlo.get_tuple_element %a0[1] : ({INNER}) -> tensor<4xi32>
  %3 = stablehlo.tuple %1, %2 : {INNER}
  return %3 : {INNER}
}}""", [y, n, y], [-y, n, y + y])
tuples("token/at_the_boundary", """func.func public @main(%a0: !stablehlo.token, %a1: tensor<4xf32>)
    -> (!stablehlo.token, tensor<4xf32>) {
  %0 = stablehlo.create_token : !stablehlo.token
  %1 = stablehlo.after_all %0, %a0 : !stablehlo.token
  %2:2 = stablehlo.optimization_barrier %1, %a1 : !stablehlo.token, tensor<4xf32>
  %3 = stablehlo.optimization_barrier %2#0 : !stablehlo.token
  %4 = stablehlo.add %2#1, %a1 : tensor<4xf32>
  return %3, %4 : !stablehlo.token, tensor<4xf32>
}""", [y], [y + y])
tuples("token/through_a_loop", """func.func public @main(%a0: tensor<4xf32>) -> tensor<4xf32> {
  %t = stablehlo.create_token : !stablehlo.token
  %z = stablehlo.constant dense<0> : tensor<i32>
  %k = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:3 = stablehlo.while(%i = %z, %s = %t, %x = %a0) : tensor<i32>, !stablehlo.token, tensor<4xf32>
  cond {
    %1 = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %i, %one : tensor<i32>
    %2 = stablehlo.after_all %s, %t : !stablehlo.token
    %3 = stablehlo.add %x, %a0 : tensor<4xf32>
    stablehlo.return %1, %2, %3 : tensor<i32>, !stablehlo.token, tensor<4xf32>
  }
  return %0#2 : tensor<4xf32>
}""", [y], [4 * y])
tuples("tuple/within_a_branch", f"""
func.func public @main(%a0: tensor<i1>, %a1: tensor<4xf32>, %a2: tensor<4xi32>)
    -> (tensor<4xf32>, tensor<4xi32>) {{
  %t = stablehlo.tuple %a1, %a2 : {INNER}
  %0:2 = "stablehlo.if"(%a0) ({{
    stablehlo.return %a1, %a2 : tensor<4xf32>, tensor<4xi32>
  }}, {{
    %1 = stablehlo.get_tuple_element %t[0] : ({INNER}) -> tensor<4xf32>
    %2 = stablehlo.get_tuple_element %t[1] : ({INNER}) -> tensor<4xi32>
    %3 = stablehlo.negate %1 : tensor<4xf32>
    stablehlo.return %3, %2 : tensor<4xf32>, tensor<4xi32>
  }}) : (tensor<i1>) -> (tensor<4xf32>, tensor<4xi32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xi32>
}}""", [np.array(False), y, n], [-y, n])

# ---- Bits. ---------------------------------------------------------------------------------------
for dtype in (np.uint8, np.int8, np.int16, ml_dtypes.bfloat16, np.float32, np.uint64, np.float64):
    width = np.dtype(dtype).itemsize
    whole = rng.integers(0, 250, (2, 2, width)).astype(np.uint8)
    bits = np.unpackbits(whole, axis=-1, bitorder="little").astype(bool)
    number = whole.view(dtype).reshape(2, 2)
    label = np.dtype(dtype).name
    op(f"bitcast_convert/bits_to_{label}", "stablehlo.bitcast_convert", [bits], expected=[number])
    op(f"bitcast_convert/{label}_to_bits", "stablehlo.bitcast_convert", [number], expected=[bits])
c64 = (floats(3, 2) + 1j * floats(3, 2)).astype(np.complex64)
c128 = c64.view(np.complex128).reshape(3)
op("bitcast_convert/c64_to_c128", "stablehlo.bitcast_convert", [c64], expected=[c128])
op("bitcast_convert/c128_to_c64", "stablehlo.bitcast_convert", [c128], expected=[c64])
four = rng.integers(-8, 8, (3, 2)).astype(ml_dtypes.int4)
low, high = (four[:, i].astype(np.uint8) & 15 for i in range(2))
packed = (low | high << 4).astype(np.uint8).view(np.int8)
op("bitcast_convert/i4_to_i8", "stablehlo.bitcast_convert", [four], expected=[packed])
op("bitcast_convert/i8_to_i4", "stablehlo.bitcast_convert", [packed], expected=[four])
op("bitcast_convert/bits_to_i4", "stablehlo.bitcast_convert",
   [((low[:, None] >> np.arange(4)) & 1).astype(bool)], expected=[four[:, 0]])

# ---- Algorithms of products. ---------------------------------------------------------------------
def tf32(v):
    bits = v.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0xfff + ((bits >> 13) & 1)) & 0xffffe000).astype(np.uint32).view(np.float32)


left = rng.standard_normal((4, 8)).astype(np.float32)
right = rng.standard_normal((8, 6)).astype(np.float32)


def algorithm(operands, total, products, imprecise="false"):
    return f"""algorithm = #stablehlo.dot_algorithm<lhs_precision_type = {operands},
      rhs_precision_type = {operands}, accumulation_type = {total}, lhs_component_count = 1,
      rhs_component_count = 1, num_primitive_operations = {products},
      allow_imprecise_accumulation = {imprecise}>"""


DOT = """dot_dimension_numbers =
      #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"""
exact = lambda a, b: a.astype(np.float64) @ b.astype(np.float64)
for operands, total, products, take in (
        ("bf16", "f32", 1, None), ("bf16", "f32", 3, None), ("bf16", "f32", 6, None),
        ("bf16", "f32", 9, None), ("f32", "f32", 1, None), ("tf32", "f32", 1, tf32),
        ("tf32", "f32", 3, None), ("f16", "f32", 1, lambda v: v.astype(np.float16))):
    take = take or (lambda v: v)
    xla_runs = operands in ("bf16", "f32") and products < 9
    op(f"dot_general_algorithm/{operands}_{total}_{products}", "stablehlo.dot_general",
       [left, right], f"{DOT}, {algorithm(operands, total, products)}",
       expected=[exact(take(left), take(right)).astype(np.float32)], check=("abs", 2e-6),
       compare=1e-5 if xla_runs else None)
op("dot_general_algorithm/f64", "stablehlo.dot_general", [left, right],
   f"{DOT}, {algorithm('f64', 'f64', 1)}", expected=[exact(left, right).astype(np.float32)],
   check=("ulp", 0))
halves = [left.astype(np.float16), right.astype(np.float16)]
op("dot_general_algorithm/f16_f16", "stablehlo.dot_general", halves,
   f"{DOT}, {algorithm('f16', 'f16', 1)}", expected=[exact(*halves).astype(np.float16)],
   check=("ulp", 1), compare=1e-2)
eighths = [left.astype(ml_dtypes.float8_e4m3fn), right.astype(ml_dtypes.float8_e4m3fn)]
op("dot_general_algorithm/f8_f32", "stablehlo.dot_general", eighths,
   f"{DOT}, {algorithm('f8E4M3FN', 'f32', 1, 'true')}",
   expected=[exact(*eighths).astype(np.float32)], check=("abs", 2e-6))
for name in ("DEFAULT", "F16_F16_F16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
             "F32_F32_F32", "F64_F64_F64"):
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float16, np.float64):
        args = [left.astype(dtype), right.astype(dtype)]
        fn = jax.jit(lambda a, b: jnp.matmul(a, b, precision=getattr(lax.DotAlgorithmPreset, name)))
        exported = export.export(fn)(*args)
        bound = {2: ("ulp", 1), 4: ("abs", 2e-6), 8: ("abs", 1e-14)}[np.dtype(dtype).itemsize]
        if dtype is np.float64 and name != "F64_F64_F64" and name != "DEFAULT":
            bound = ("abs", 1e-2 if name.startswith("F16") else 2e-6)
        if name == "F16_F16_F16" and dtype is np.float32:
            bound = ("abs", 1e-2)
        keep(f"dot_general_preset/{name}_{np.dtype(dtype).name}", exported.mlir_module_serialized,
             args, [np.asarray(fn(*args))], bound)

# ---- Products and sums of few bits. --------------------------------------------------------------
FEW = [ml_dtypes.float8_e3m4, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3b11fnuz,
       ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2,
       ml_dtypes.float8_e5m2fnuz, ml_dtypes.float4_e2m1fn, ml_dtypes.int4, ml_dtypes.uint4,
       ml_dtypes.int2, ml_dtypes.uint2, np.int8, np.uint8]
for dtype in FEW:
    name = np.dtype(dtype).name
    is_float = name.startswith("float")
    if is_float:
        draw = lambda *s: (rng.integers(-4, 5, s) / 2).astype(dtype)
    else:
        least, most = (0, 3) if "uint2" in name else (-2, 1) if "int2" in name else \
            (0, 15) if name.startswith("uint") else (-8, 7)
        draw = lambda *s: rng.integers(least, most, s, endpoint=True).astype(dtype)
    total = np.float32 if is_float else np.int32
    a, b = draw(4, 8), draw(8, 6)
    product = a.astype(np.float64) @ b.astype(np.float64)
    op(f"dot_general_few/{name}", "stablehlo.dot_general", [a, b], DOT,
       expected=[product.astype(total)])
    if is_float:
        op(f"dot_general_few/{name}_as_itself", "stablehlo.dot_general", [a, b], DOT,
           expected=[product.astype(np.float32).astype(dtype)])
    im, ker = draw(2, 4, 4, 2), draw(2, 2, 2, 4)
    conv = np.asarray(lax.conv_general_dilated(
        im.astype(np.float64), ker.astype(np.float64), (1, 1), "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC")))
    op(f"convolution_few/{name}", "stablehlo.convolution", [im, ker],
       f"{LAYOUT}, padding = dense<0> : tensor<2x2xi64>", expected=[conv.astype(total)])
    r = (np.arange(8) % 3).reshape(2, 4).astype(dtype)
    most = np.max(r.astype(np.float32), axis=1).astype(dtype)
    reduced = f"""
  %init = stablehlo.constant dense<0{".0" if is_float else ""}> : tensor<{NAMES[name]}>
  %0 = stablehlo.reduce(%a0 init: %init) applies stablehlo.maximum across dimensions = [1]
      : ({mlir_type(r)}, tensor<{NAMES[name]}>) -> {mlir_type(most)}
  return %0 : {mlir_type(most)}"""
    of_text(f"reduce_few/{name}", reduced, [r], expected=[most])

# ---- CHLO ops, which are exported as their decompositions. ---------------------------------------
points = np.array([-3.5, -1, -0.75, -0.0, 0.0, 0.25, 0.9, 1, 2.5, 4], np.float32)
for what, take in (("square", np.square), ("sinh", np.sinh), ("cosh", np.cosh), ("asin", np.arcsin),
                   ("acos", np.arccos), ("atan", np.arctan), ("asinh", np.arcsinh),
                   ("acosh", np.arccosh), ("atanh", np.arctanh), ("tan", np.tan)):
    with np.errstate(all="ignore"):
        wanted = take(points.astype(np.float64)).astype(np.float32)
    of_text(f"chlo/{what}", f"""  %0 = chlo.{what} %a0 : tensor<10xf32> -> tensor<10xf32>
  return %0 : tensor<10xf32>""", [points], expected=[wanted], check=("ulp", 4))
special = np.array([np.inf, -np.inf, np.nan, 0, 1], np.float32)
for what, wanted in (("is_inf", np.isinf(special)), ("is_pos_inf", np.isposinf(special)),
                     ("is_neg_inf", np.isneginf(special))):
    of_text(f"chlo/{what}", f"""  %0 = chlo.{what} %a0 : tensor<5xf32> -> tensor<5xi1>
  return %0 : tensor<5xi1>""", [special], expected=[wanted])
c = (floats(4) + 1j * floats(4)).astype(np.complex64)
of_text("chlo/conj", """  %0 = chlo.conj %a0 : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>""", [c], expected=[np.conj(c)])
of_text("chlo/next_after", """
  %0 = chlo.broadcast_next_after %a0, %a1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>""", [y, y[::-1].copy()], expected=[np.nextafter(y, y[::-1])])
of_text("chlo/constant_like", """
  %0 = "chlo.constant_like"(%a0) {value = 3.5 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>""", [y], expected=[np.full(4, 3.5, np.float32)])
words = rng.integers(0, 2**32, 4).astype(np.uint32)
of_text("chlo/mulhi", """
  %0 = chlo.mulhi %a0, %a1 : tensor<4xui32>, tensor<4xui32> -> tensor<4xui32>
  return %0 : tensor<4xui32>""", [words, words[::-1].copy()],
        expected=[(words.astype(np.uint64) * words[::-1] >> np.uint64(32)).astype(np.uint32)])
row = floats(4)
tall = floats(3, 4)
for what, take in (("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply),
                   ("divide", np.divide), ("maximum", np.maximum), ("minimum", np.minimum)):
    with np.errstate(all="ignore"):
        wanted = take(tall, row).astype(np.float32)
    of_text(f"chlo/broadcast_{what}", f"""
  %0 = chlo.broadcast_{what} %a0, %a1 : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>""", [tall, row], expected=[wanted], check=("ulp", 1))
of_text("chlo/broadcast_compare", """
  %0 = chlo.broadcast_compare %a0, %a1 {comparison_direction =
      #chlo<comparison_direction LT>} : (tensor<3x4xf32>, tensor<4xf32>) -> tensor<3x4xi1>
  return %0 : tensor<3x4xi1>""", [tall, row], expected=[tall < row])
of_text("chlo/top_k", """
  %0:2 = chlo.top_k(%a0, k = 2) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
  return %0#0, %0#1 : tensor<3x2xf32>, tensor<3x2xi32>""", [tall],
        expected=[-np.sort(-tall, axis=1)[:, :2],
                  np.argsort(-tall, axis=1, kind="stable")[:, :2].astype(np.int32)])
ragged, stacked = floats(6, 4), floats(2, 4, 3)
sizes = np.array([2, 4], np.int64)
of_text("chlo/ragged_dot", """
  %0 = "chlo.ragged_dot"(%a0, %a1, %a2) {ragged_dot_dimension_numbers =
      #chlo.ragged_dot<lhs_batching_dimensions = [], rhs_batching_dimensions = [],
        lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],
        lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>,
      precision_config = [#chlo<precision DEFAULT>, #chlo<precision DEFAULT>]}
      : (tensor<6x4xf32>, tensor<2x4x3xf32>, tensor<2xi64>) -> tensor<6x3xf32>
  return %0 : tensor<6x3xf32>""", [ragged, stacked, sizes],
        expected=[np.concatenate([ragged[:2] @ stacked[0], ragged[2:] @ stacked[1]])],
        check=("abs", 1e-5))
rows, start = floats(5, 3), floats(3)
sums = np.stack([start + rows[:i + 1].sum(axis=0, dtype=np.float32) for i in range(5)])
of_text("chlo/scan", """  %0:2 = "chlo.scan"(%a0, %a1) <{dimension = 0 : i64, is_reverse = false,
      operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1, 1>}> ({
  ^bb0(%a: tensor<3xf32>, %c: tensor<3xf32>):
    %s = stablehlo.add %a, %c : tensor<3xf32>
    stablehlo.return %s, %s : tensor<3xf32>, tensor<3xf32>
  }) : (tensor<5x3xf32>, tensor<3xf32>) -> (tensor<5x3xf32>, tensor<3xf32>)
  return %0#0, %0#1 : tensor<5x3xf32>, tensor<3xf32>""", [rows, start], expected=[sums, sums[-1]])
of_text("composite/of_another_name", """
  %0 = stablehlo.composite "my.op" %a0 {composite_attributes = {n = 3 : i32},
      decomposition = @impl, version = 3 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>""", [y], expected=[y + y], extra="""
func.func private @impl(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}""")

# ---- Quantized numbers. --------------------------------------------------------------------------
# JAX's MLIR has no quantized types. So an artifact is written with integer types of unused widths as
# placeholders, which are then replaced in its bytes. Names of ops are replaced in the same way.
def read_varint(data, at):
    first = data[at]
    if first == 0:
        return int.from_bytes(data[at + 1:at + 9], "little"), at + 9
    more = (first & -first).bit_length() - 1
    return int.from_bytes(data[at:at + more + 1], "little") >> (more + 1), at + more + 1


def varint(n):
    for more in range(8):
        if n >> (7 * more + 7) == 0:
            return ((n << 1 | 1) << more).to_bytes(more + 1, "little")
    return b"\0" + n.to_bytes(8, "little")


def zigzag(n):
    return varint((n << 1 ^ n >> 63) & (2**64 - 1))


def bits_of(scale):
    return zigzag(int(np.float64(scale).view(np.int64)))


CODES = {"ui16": 17, "ui64": 19, "i16": 12, "i8": 11, "i4": 10, "i32": 13, "f32": 4}


class Quantized:
    def __init__(self, storage, scale, zero, least, most, dim=None, signed=True):
        self.storage, self.scale, self.zero, self.dim = storage, scale, zero, dim
        self.least, self.most, self.signed = least, most, signed

    def entry(self, index):
        head = [int(self.signed), index[CODES[self.storage]], index[CODES["f32"]]]
        if self.dim is None:
            return b"".join([varint(24), *map(varint, head), bits_of(self.scale), zigzag(self.zero),
                             zigzag(self.least), zigzag(self.most)])
        return b"".join([varint(30), *map(varint, head), varint(self.dim), zigzag(self.least),
                         zigzag(self.most), varint(len(self.scale)), *map(bits_of, self.scale),
                         varint(len(self.zero)), *map(zigzag, self.zero)])

    def along(self, v, numbers, dtype):
        numbers = np.asarray(numbers, dtype)
        return numbers if self.dim is None else spread_of(numbers, v, self.dim)

    def real(self, v):
        whole = v.astype(np.int64) - self.along(v, self.zero, np.int64)
        return (whole.astype(np.float32) * self.along(v, self.scale, np.float32)).astype(np.float32)

    def quantize(self, v):
        moved = (v.astype(np.float32) / self.along(v, self.scale, np.float32)).astype(np.float32)
        moved = (moved + self.along(v, self.zero, np.float32)).astype(np.float32)
        numbers = np.rint(np.clip(moved, self.least, self.most)).astype(np.int64)
        return numbers.astype({"i8": np.int8 if self.signed else np.uint8, "i32": np.int32,
                               "i16": np.int16, "i4": ml_dtypes.int4}[self.storage])


def opened(data):
    """Returns the head of an artifact and its sections by number, in the order of the file."""
    at = data.index(b"\0", 4) + 1
    head, sections = data[:at], {}
    while at < len(data):
        section, at = data[at], at + 1
        size, at = read_varint(data, at)
        if section & 0x80:  # the section is aligned
            alignment, at = read_varint(data, at)
            at += -at % alignment
        sections[section & 0x7F] = data[at:at + size]
        at += size
    return head, sections


def closed(head, sections):
    return head + b"".join(bytes([n]) + varint(len(s)) + s for n, s in sections.items())


def entries_of(sections):
    """Returns the attributes and types: the number of each, pairs of a dialect and a count, and pairs
    of the bytes of an entry and its flag."""
    offsets = sections[3]
    num_attrs, at = read_varint(offsets, 0)
    num_types, at = read_varint(offsets, at)
    groups, entries, place = [], [], 0
    while at < len(offsets):
        dialect, at = read_varint(offsets, at)
        count, at = read_varint(offsets, at)
        groups.append((dialect, count))
        for _ in range(count):
            size, at = read_varint(offsets, at)
            entries.append([sections[2][place:place + (size >> 1)], size & 1])
            place += size >> 1
    return num_attrs, num_types, groups, entries


def set_entries(sections, num_attrs, num_types, groups, entries):
    offsets, k = varint(num_attrs) + varint(num_types), 0
    for dialect, count in groups:
        offsets += varint(dialect) + varint(count)
        for entry, custom in entries[k:k + count]:
            offsets += varint(len(entry) << 1 | custom)
        k += count
    sections[2], sections[3] = b"".join(e for e, _ in entries), offsets


def with_entries(data, change):
    head, sections = opened(data)
    num_attrs, num_types, groups, entries = entries_of(sections)
    changed = [[change(entry), custom] for entry, custom in entries]
    assert changed != entries
    set_entries(sections, num_attrs, num_types, groups, changed)
    return closed(head, sections)


def with_names(sections, names):
    n, at = read_varint(sections[0], 0)
    sizes = []
    for _ in range(n):
        size, at = read_varint(sections[0], at)
        sizes.append(size)
    texts = []
    for size in reversed(sizes):
        texts.append(sections[0][at:at + size])
        at += size
    for old, new in names.items():
        texts[texts.index(old.encode() + b"\0")] = new.encode() + b"\0"
    sections[0] = varint(n) + b"".join(varint(len(t)) for t in reversed(texts)) + b"".join(texts)


def with_types(data, types, names):
    head, sections = opened(data)
    with_names(sections, names)
    num_attrs, num_types, groups, entries = entries_of(sections)
    vhlo, index = groups[-1][0], {}
    for i, (entry, _) in enumerate(entries[num_attrs:]):
        if len(entry) == 1:
            index.setdefault(read_varint(entry, 0)[0], i)
    for placeholder, of in types.items():
        *shape, scalar = placeholder.split("x")
        if shape:  # only this tensor type gets a new element type, appended after all others
            tensor = b"".join([varint(20), varint(len(shape)), *(zigzag(int(d)) for d in shape)])
            place = [e for e, _ in entries].index(tensor + varint(index[CODES[scalar]]))
            groups.append((vhlo, 1))
            entries[place][0] = tensor + varint(num_types)
            entries.append([of.entry(index), 1])
            num_types += 1
        else:
            entries[num_attrs + index[CODES[scalar]]][0] = of.entry(index)
    set_entries(sections, num_attrs, num_types, groups, entries)
    return closed(head, sections)


def quantized(name, params, body, results, types, args, expected, names=None, check=("eq", 0),
              extra=""):
    """Adds a case. `params` and `results` are types with placeholders."""
    used = sorted({t.storage for t in types.values()} | {"f32"})
    mentioned = ", ".join(f"%u{i}: tensor<1x{t}>" for i, t in enumerate(used))
    extra += f"\nfunc.func private @types({mentioned}) {{\n  return\n}}"
    given = ", ".join(f"%a{i}: {p}" for i, p in enumerate(params))
    text = (f"{extra}\nfunc.func public @main({given}) -> ({', '.join(results)}) "
            f"{{\n{body}\n}}")
    keep(name, with_types(artifact(text), types, names or {}), args, expected, check)


PER_TENSOR = Quantized("i8", 0.25, 3, -128, 127)
NARROW = Quantized("i8", 0.1, -5, -100, 100)
UNSIGNED = Quantized("i8", 0.125, 128, 0, 255, signed=False)
real = np.array([[-40, -1.1, 0.0, 0.126], [0.375, 1.6, 31.0, 99]], np.float32)
for label, q in (("s8", PER_TENSOR), ("range", NARROW), ("u8", UNSIGNED),
                 ("s16", Quantized("i16", 0.001, -7, -32768, 32767)),
                 ("s4", Quantized("i4", 0.5, 1, -8, 7)),
                 ("s32", Quantized("i32", 0.5, 0, -2**31, 2**31 - 1)),
                 ("per_axis", Quantized("i8", [0.5, 0.25, 0.3, 2.0], [0, 1, -2, 3], -128, 127, 1))):
    if q.storage == "i16":
        holder = "ui64"
    else:
        holder = "ui16"
    t = f"tensor<2x4x{holder}>"
    stored = q.quantize(real)
    quantized(f"uniform_quantize/{label}", ["tensor<2x4xf32>"],
              f"  %0 = stablehlo.convert %a0 : (tensor<2x4xf32>) -> {t}\n  return %0 : {t}", [t],
              {holder: q}, [real], [stored], {"convert_v1": "uniform_quantize_v1"})
    quantized(f"uniform_dequantize/{label}", [t],
              f"  %0 = stablehlo.convert %a0 : ({t}) -> tensor<2x4xf32>\n"
              "  return %0 : tensor<2x4xf32>",
              ["tensor<2x4xf32>"], {holder: q}, [stored], [q.real(stored)],
              {"convert_v1": "uniform_dequantize_v1"})
A = Quantized("i8", 0.5, -3, -128, 127)
B = Quantized("i8", 0.125, 7, -128, 127)
qa, qb = A.quantize(floats(2, 4, spread=20)), B.quantize(floats(2, 4, spread=8))
quantized("uniform_quantize/again", ["tensor<2x4xui16>"],
          "  %0 = stablehlo.convert %a0 : (tensor<2x4xui16>) -> tensor<2x4xui64>\n"
          "  return %0 : tensor<2x4xui64>", ["tensor<2x4xui64>"], {"ui16": A, "ui64": B}, [qa],
          [B.quantize(A.real(qa))], {"convert_v1": "uniform_quantize_v1"})
T = "tensor<2x4xui16>"
for what, take in (("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply),
                   ("maximum", np.maximum), ("minimum", np.minimum)):
    other = A.quantize(floats(2, 4, spread=20))
    quantized(f"{what}_quantized/s8", [T, T],
              f"  %0 = stablehlo.{what} %a0, %a1 : {T}\n  return %0 : {T}", [T], {"ui16": A},
              [qa, other], [A.quantize(take(A.real(qa), A.real(other)))])
quantized("chain_quantized/s8", [T, T], f"""  %0 = stablehlo.add %a0, %a1 : {T}
  %1 = stablehlo.transpose %0, dims = [1, 0] : ({T}) -> tensor<4x2xui16>
  %2 = stablehlo.slice %1 [1:3, 0:2] : (tensor<4x2xui16>) -> tensor<2x2xui16>
  %3 = func.call @twice(%2) : (tensor<2x2xui16>) -> tensor<2x2xui16>
  return %3 : tensor<2x2xui16>""", ["tensor<2x2xui16>"], {"ui16": A}, [qa, other],
          [(lambda v: A.quantize(A.real(v) + A.real(v)))(
              A.quantize(A.real(qa) + A.real(other)).T[1:3])],
          extra="""func.func private @twice(%x: tensor<2x2xui16>) -> tensor<2x2xui16> {
  %0 = stablehlo.add %x, %x : tensor<2x2xui16>
  return %0 : tensor<2x2xui16>
}""")
quantized("compare_quantized/s8", [T, T],
          f"  %0 = stablehlo.compare LT, %a0, %a1 : ({T}, {T}) -> tensor<2x4xi1>\n"
          "  return %0 : tensor<2x4xi1>", ["tensor<2x4xi1>"], {"ui16": A}, [qa, other],
          [A.real(qa) < A.real(other)])
quantized("reduce_quantized/maximum", [T], f"""  %i = stablehlo.constant dense<0> : tensor<ui16>
  %0 = stablehlo.reduce(%a0 init: %i) applies stablehlo.maximum across dimensions = [1]
      : ({T}, tensor<ui16>) -> tensor<2xui16>
  return %0 : tensor<2xui16>""", ["tensor<2xui16>"],
          {"ui16": Quantized("i16", 0.5, -3, -32768, 32767)}, [qa.astype(np.int16)],
          [np.maximum(qa.astype(np.int16).max(axis=1), 0)])


# Quantized products are summed as integers and rescaled afterwards.
def rescaled(total, factor, result, dim=None):
    factor = np.asarray(factor, np.float64).astype(np.float32)
    if dim is not None:
        factor = spread_of(factor, total, dim)
    value = (total.astype(np.float32) * factor).astype(np.float32)
    return result.quantize(value) if result else value


lhs, rhs = (rng.integers(-128, 128, s).astype(np.int8) for s in ((2, 3, 8), (2, 8, 5)))
OUT = Quantized("i8", 3.0, 2, -128, 127)
SUMS = Quantized("i32", 0.0625, 0, -2**31, 2**31 - 1)
BATCHED = """dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0],
    rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2],
    rhs_contracting_dimensions = [1]>"""
total = np.einsum("bij,bjk->bik", lhs.astype(np.int64) + 3, rhs.astype(np.int64) - 7)
for label, result in (("s8", OUT), ("s32", SUMS)):
    quantized(f"dot_general_quantized/{label}", ["tensor<2x3x8xui16>", "tensor<2x8x5xui64>"],
              f"""  %0 = "stablehlo.dot_general"(%a0, %a1) {{{BATCHED}}}
      : (tensor<2x3x8xui16>, tensor<2x8x5xui64>) -> tensor<2x3x5xi16>
  return %0 : tensor<2x3x5xi16>""", ["tensor<2x3x5xi16>"], {"ui16": A, "ui64": B, "i16": result},
              [lhs, rhs], [rescaled(total, 0.5 * 0.125, result)])
quantized("dot_general_quantized/float_result", ["tensor<2x3x8xui16>", "tensor<2x8x5xui64>"],
          f"""  %0 = "stablehlo.dot_general"(%a0, %a1) {{{BATCHED}}}
      : (tensor<2x3x8xui16>, tensor<2x8x5xui64>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>""", ["tensor<2x3x5xf32>"], {"ui16": A, "ui64": B}, [lhs, rhs],
          [rescaled(total, 0.5 * 0.125, None)], check=("ulp", 0))
scales, zeros = [0.125, 0.5, 0.3, 1.0, 2.0], [0, 0, 0, 4, -4]
AXIS = Quantized("i8", scales, zeros, -128, 127, 2)
total = np.einsum("bij,bjk->bik", lhs.astype(np.int64) + 3,
                  rhs.astype(np.int64) - np.array(zeros)[None, None, :])
quantized("dot_general_quantized/per_axis", ["tensor<2x3x8xui16>", "tensor<2x8x5xui64>"],
          f"""  %0 = "stablehlo.dot_general"(%a0, %a1) {{{BATCHED}}}
      : (tensor<2x3x8xui16>, tensor<2x8x5xui64>) -> tensor<2x3x5xi16>
  return %0 : tensor<2x3x5xi16>""", ["tensor<2x3x5xi16>"], {"ui16": A, "ui64": AXIS, "i16": OUT},
          [lhs, rhs], [rescaled(total, [0.5 * s for s in scales], OUT, 2)])
weights = np.round(floats(2, 3, 8) * 4) / 4
quantized("dot_general_quantized/hybrid", ["tensor<2x3x8xf32>", "tensor<2x8x5xui64>"],
          f"""  %0 = "stablehlo.dot_general"(%a0, %a1) {{{BATCHED}}}
      : (tensor<2x3x8xf32>, tensor<2x8x5xui64>) -> tensor<2x3x5xf32>
  return %0 : tensor<2x3x5xf32>""", ["tensor<2x3x5xf32>"], {"ui64": B}, [weights, rhs],
          [np.einsum("bij,bjk->bik", weights.astype(np.float64), B.real(rhs)).astype(np.float32)],
          check=("abs", 1e-4))
im, ker = (rng.integers(-128, 128, s).astype(np.int8) for s in ((2, 4, 4, 2), (2, 2, 2, 3)))
KER = Quantized("i8", [0.25, 0.5, 0.1], [0, 5, -9], -128, 127, 3)
total = np.rint(np.asarray(lax.conv_general_dilated(
    (im.astype(np.float64) + 3), ker.astype(np.float64) - np.array([0, 5, -9]), (1, 1),
    ((1, 0), (0, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")))).astype(np.int64)
quantized("convolution_quantized/per_axis", ["tensor<2x4x4x2xui16>", "tensor<2x2x2x3xui16>"],
          f"""  %0 = "stablehlo.convolution"(%a0, %a1) {{{LAYOUT},
      padding = dense<[[1, 0], [0, 1]]> : tensor<2x2xi64>}}
      : (tensor<2x4x4x2xui16>, tensor<2x2x2x3xui16>) -> tensor<2x4x4x3xi16>
  return %0 : tensor<2x4x4x3xi16>""", ["tensor<2x4x4x3xi16>"],
          {"ui16": A, "2x2x2x3xui16": KER, "i16": OUT},
          [im, ker], [rescaled(total, [0.5 * s for s in (0.25, 0.5, 0.1)], OUT, 3)])

# ---- Booleans: `add` means "or" and `multiply` means "and" in every op that uses them. ------------
BOOL = "tensor<i1>"
either, all_true = np.array([0, 0, 1, 1], bool), np.ones(256, bool)
for what, take in (("add", np.logical_or), ("multiply", np.logical_and)):
    op(f"booleans/{what}", f"stablehlo.{what}", [either, either[[0, 2, 1, 3]]],
       expected=[take(either, either[[0, 2, 1, 3]])], compare=0)
    table = rng.integers(0, 4, (6, 4)) > (0 if what == "multiply" else 2)
    every = np.logical_or if what == "add" else np.logical_and
    for init in ("false", "true"):
        wanted = every(every.reduce(table, 1), init == "true")
        of_text(f"booleans/reduce_{what}_{init}", f"""
  %init = stablehlo.constant dense<{init}> : {BOOL}
  %0 = stablehlo.reduce(%a0 init: %init) applies stablehlo.{what} across dimensions = [1]
      : ({mlir_type(table)}, {BOOL}) -> {mlir_type(wanted)}
  return %0 : {mlir_type(wanted)}""", [table], expected=[wanted], compare=0)
    combine = f"""({{
  ^bb0(%x: {BOOL}, %y: {BOOL}):
    %z = stablehlo.{what} %x, %y : {BOOL}
    stablehlo.return %z : {BOOL}
  }})"""
    neutral = "false" if what == "add" else "true"
    pairs = every(table[:, :-1], table[:, 1:])
    running = every.accumulate(table, 1)
    for label, window, padding, wanted in (
            ("window", "1, 2", "[[0, 0], [0, 0]]", pairs),
            ("cumulative", "1, 4", "[[0, 0], [3, 0]]", running)):
        of_text(f"booleans/reduce_{label}_{what}", f"""
  %init = stablehlo.constant dense<{neutral}> : {BOOL}
  %0 = "stablehlo.reduce_window"(%a0, %init) <{{window_dimensions = array<i64: {window}>,
      padding = dense<{padding}> : tensor<2x2xi64>}}> {combine}
      : ({mlir_type(table)}, {BOOL}) -> {mlir_type(wanted)}
  return %0 : {mlir_type(wanted)}""", [table], expected=[wanted], compare=0)
    places, written = np.array([[1], [4], [1], [9]], np.int32), either
    start = np.array([0, 1, 1, 1, 0], bool)
    wanted = start.copy()
    for (at,), v in zip(places[:3], written):
        wanted[at] = take(wanted[at], v)
    of_text(f"booleans/scatter_{what}", f"""
  %0 = "stablehlo.scatter"(%a0, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}>
      {combine} : ({mlir_type(start)}, {mlir_type(places)}, {mlir_type(written)})
      -> {mlir_type(start)}
  return %0 : {mlir_type(start)}""", [start, places, written], expected=[wanted], compare=0)
# The comparison GT chooses the second element of a pair unless it is false and the first is true.
chosen = np.array([1, 0, 0, 1, 1, 1], bool)
of_text("booleans/select_and_scatter_add", f"""
  %init = stablehlo.constant dense<false> : {BOOL}
  %0 = "stablehlo.select_and_scatter"(%a0, %a1, %init) <{{window_dimensions = array<i64: 2>,
      window_strides = array<i64: 2>}}> ({{
  ^bb0(%x: {BOOL}, %y: {BOOL}):
    %z = stablehlo.compare GT, %x, %y : ({BOOL}, {BOOL}) -> {BOOL}
    stablehlo.return %z : {BOOL}
  }}, {{
  ^bb0(%x: {BOOL}, %y: {BOOL}):
    %z = stablehlo.add %x, %y : {BOOL}
    stablehlo.return %z : {BOOL}
  }}) : ({mlir_type(chosen)}, tensor<3xi1>, {BOOL}) -> {mlir_type(chosen)}
  return %0 : {mlir_type(chosen)}""", [chosen, np.array([1, 1, 0], bool)],
        expected=[np.array([1, 0, 0, 1, 0, 0], bool)], compare=0)
# An 8-bit sum of 256 true products would overflow to 0.
for n in (0, 1, 5, 256):
    a, b = rng.integers(0, 3, (4, n)) > 1, rng.integers(0, 3, (n, 6)) > 1
    if n == 256:
        a[0], b[:, 0] = True, True
        a[1] = False
    for what in ("dot_general", "dot"):
        dims = DOT if what == "dot_general" else ""
        op(f"booleans/{what}_{n}", f"stablehlo.{what}", [a, b], dims, expected=[(a @ b)],
           compare=0)
    if n == 5:
        op("booleans/dot_general_count", "stablehlo.dot_general", [a, b], DOT,
           expected=[a.astype(np.int32) @ b.astype(np.int32)], compare=0)
a, b = rng.integers(0, 3, (2, 3, 4)) > 1, rng.integers(0, 3, (2, 4, 5)) > 1
op("booleans/dot_general_batch", "stablehlo.dot_general", [a, b], f"""{BATCHED},
    precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]""",
   expected=[np.einsum("bij,bjk->bik", a.astype(int), b.astype(int)) > 0], compare=0)
for config in ("ij,jk->ik", "ij,kl->il"):
    op(f"booleans/einsum/{config}", "stablehlo.einsum", [a[0], b[0]], f'einsum_config = "{config}"',
       expected=[np.einsum(config, a[0].astype(int), b[0].astype(int)) > 0])
op("booleans/unary_einsum", "stablehlo.unary_einsum", [a], 'einsum_config = "ijk->ki"',
   expected=[np.einsum("ijk->ki", a.astype(int)) > 0])
im, ker = rng.integers(0, 3, (2, 4, 4, 2)) > 1, rng.integers(0, 3, (2, 2, 2, 4)) > 1
conv = np.asarray(lax.conv_general_dilated(
    im.astype(np.float64), ker.astype(np.float64), (1, 1), "VALID",
    dimension_numbers=("NHWC", "HWIO", "NHWC")))
op("booleans/convolution", "stablehlo.convolution", [im, ker],
   f"{LAYOUT}, padding = dense<0> : tensor<2x2xi64>", expected=[conv > 0])

# ---- Cube roots of complex numbers. XLA has none; StableHLO's reference takes the principal root. -
def cube_root(z):
    theta = np.arctan2(z.imag, z.real) / 3
    return np.cbrt(np.abs(z)) * (np.cos(theta) + 1j * np.sin(theta))


for dtype, large in ((np.complex64, 3e38), (np.complex128, 1.2e308)):
    name = np.dtype(dtype).name
    usual = [8, -8, complex(-8, -0.0), 1j, -1j, 2 + 3j, -2 + 3j, -2 - 3j, 0.001 - 4j,
             complex(large, large), complex(-1e-30, 1e-30)]
    z = np.array(usual, dtype)
    op(f"cbrt/{name}", "stablehlo.cbrt", [z],
       expected=[cube_root(z.astype(np.complex128)).astype(dtype)], check=("ulp", 8))
    # Here the root of an infinite real number is real. The reference multiplies 0 by infinity instead.
    z = np.array([0, complex(-0.0, 0), complex(0, -0.0), complex(np.inf, 0), complex(np.inf, 1),
                  complex(-np.inf, 0), complex(0, np.inf), complex(np.inf, -np.inf),
                  complex(np.nan, 1), complex(1, np.nan)], dtype)
    wide, whole = np.inf, complex(np.nan, np.nan)
    op(f"cbrt/{name}_special", "stablehlo.cbrt", [z],
       expected=[np.array([0, 0, complex(0, -0.0), wide, wide, complex(wide, wide),
                           complex(wide, wide), complex(wide, -wide), whole, whole], dtype)])

# ---- Conversions of complex numbers ignore the imaginary part, also to booleans. -----------------
z = np.array([0, 1, 1j, -2.5 + 1j, complex(-0.0, 1), complex(np.nan, 0), complex(0, np.nan)])
for dtype in (np.complex64, np.complex128):
    name = np.dtype(dtype).name
    op(f"convert/{name}_to_bool", "stablehlo.convert", [z.astype(dtype)], expected=[z.real != 0],
       compare=0)
    op(f"convert/{name}_to_int32", "stablehlo.convert", [z.astype(dtype)],
       expected=[np.nan_to_num(z.real).astype(np.int32)], compare=0)

# ---- NaN becomes infinity in a format without a mantissa, as in StableHLO's reference. -----------
for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
    x = np.array([0, -0.0, 1, 1.5, -1.5, 3, np.inf, -np.inf, np.nan, -np.nan], dtype)
    for exponent, mantissa in ((5, 0), (8, 0), (11, 0), (5, 1)):
        wanted = np.array([0, -0.0, 1, 2, -2, 2, np.inf, -np.inf, np.inf, np.inf], dtype)
        if mantissa == 1:
            wanted = x
        # XLA's compiler keeps NaNs, but its evaluator, which folds constants, makes them infinite.
        op(f"reduce_precision/{np.dtype(dtype).name}_e{exponent}m{mantissa}",
           "stablehlo.reduce_precision", [x],
           f"exponent_bits = {exponent} : i32, mantissa_bits = {mantissa} : i32",
           expected=[wanted])

# ---- Scatters of windows without elements, which do not change the operand. ----------------------
start = floats(4, 6)
rows, none = np.array([[1], [3]], np.int32), np.zeros((2, 0), np.int32)
SUM = """({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %z = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %z : tensor<f32>
  })"""
OWN = SUM.replace("return %z", "return %w").replace(
    "    stablehlo.return", "    %w = stablehlo.multiply %z, %y : tensor<f32>\n    stablehlo.return")
for label, at, shape, dims in (
        ("along_all_of_a_row", rows, (2, 0),
         "update_window_dims = [1], inserted_window_dims = [0]"),
        ("along_rows", rows, (2, 0, 6), "update_window_dims = [1, 2]"),
        ("along_both", rows, (2, 0, 0), "update_window_dims = [1, 2]"),
        ("nowhere", none, (2, 0, 3), "update_window_dims = [1, 2]"),
        ("at_no_positions", rows[:0], (0, 6),
         "update_window_dims = [1], inserted_window_dims = [0]")):
    to = "" if at is none else "scatter_dims_to_operand_dims = [0],"
    updates = np.zeros(shape, np.float32)
    for combine, region in (("add", SUM), ("own", OWN)):
        of_text(f"scatter_of_nothing/{label}_{combine}", f"""
  %0 = "stablehlo.scatter"(%a0, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<
      {dims}, {to} index_vector_dim = 1>}}> {region}
      : ({mlir_type(start)}, {mlir_type(at)}, {mlir_type(updates)}) -> {mlir_type(start)}
  return %0 : {mlir_type(start)}""", [start, at, updates], expected=[start], compare=0)
# An operand without elements cannot take an update.
empty, updates = np.zeros((0, 3), np.float32), floats(2, 3)
of_text("scatter_of_nothing/to_nothing", f"""
  %0 = "stablehlo.scatter"(%a0, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}}> {SUM}
      : ({mlir_type(empty)}, {mlir_type(rows)}, {mlir_type(updates)}) -> {mlir_type(empty)}
  return %0 : {mlir_type(empty)}""", [empty, rows, updates], expected=[empty], compare=0)

# ---- Seeds of the fuzz target: refused programs, and one accepted program of each kind. ----------
seeds = {}
for name in ("batch_norm_training/float32_6x4_1", "batch_norm_grad/float16_2x3x4_0",
             "einsum/bij,bjk->bki", "torch_index_select/batch", "dynamic_conv/padding",
             "tuple/at_the_boundary", "tuple/within_a_branch", "token/through_a_loop",
             "bitcast_convert/c128_to_c64", "bitcast_convert/bits_to_float32",
             "dot_general_algorithm/tf32_f32_1", "uniform_quantize/per_axis",
             "chain_quantized/s8", "dot_general_quantized/per_axis",
             "convolution_quantized/per_axis", "booleans/reduce_add_false",
             "booleans/dot_general_5"):
    label = "".join(c if c.isalnum() else "_" for c in name)
    seeds[f"ops_{label}"] = base64.b64decode(json.loads(lines[name])["program"])


def refused(name, body, params="%a0: tensor<4xf32>", results="tensor<4xf32>", extra=""):
    seeds[f"ops_refused_{name}"] = artifact(
        f"{extra}\nfunc.func public @main({params}) -> {results} {{\n{body}\n}}")


refused("infeed", """  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]}
      : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %0#0 : tensor<4xf32>""")
refused("outfeed", """  %t = stablehlo.create_token : !stablehlo.token
  %0 = "stablehlo.outfeed"(%a0, %t) {outfeed_config = ""}
      : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  return %a0 : tensor<4xf32>""")
refused("send", """  %t = stablehlo.create_token : !stablehlo.token
  %0 = "stablehlo.send"(%a0, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>,
      is_host_transfer = true} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token
  return %a0 : tensor<4xf32>""")
refused("recv", """  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>,
      is_host_transfer = true} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)
  return %0#0 : tensor<4xf32>""")
refused("rng", """  %l = stablehlo.constant dense<0.0> : tensor<f32>
  %h = stablehlo.constant dense<1.0> : tensor<f32>
  %n = stablehlo.constant dense<4> : tensor<1xi64>
  %0 = stablehlo.rng %l, %h, %n, distribution = UNIFORM
      : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  return %0 : tensor<4xf32>""")
refused("einsum_diagonal", """  %0 = "stablehlo.unary_einsum"(%a0) {einsum_config = "ii->i"}
      : (tensor<4x4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>""", "%a0: tensor<4x4xf32>")
refused("einsum_letters", """  %0 = "stablehlo.unary_einsum"(%a0) {einsum_config = "ijk->i"}
      : (tensor<4x4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>""", "%a0: tensor<4x4xf32>")
refused("size", """  %n = stablehlo.constant dense<3> : tensor<i32>
  %0 = "stablehlo.set_dimension_size"(%a0, %n) {dimension = 0 : i64}
      : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
  return %0 : tensor<?xf32, #stablehlo.bounds<4>>""",
        results="tensor<?xf32, #stablehlo.bounds<4>>")
refused("callback", """  %t = stablehlo.create_token : !stablehlo.token
  %0 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%t) {has_side_effect = true}
      : (!stablehlo.token) -> !stablehlo.token
  return %a0 : tensor<4xf32>""")
refused("algorithm_of_f8", f"""  %0 = "stablehlo.dot_general"(%a0, %a0) {{dot_dimension_numbers =
      #stablehlo.dot<lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]>,
      {algorithm("f8E4M3FN", "f32", 1)}}} : (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>
  return %0 : tensor<f32>""", results="tensor<f32>")
# No algorithm has this number of products. MLIR would not write it, so the bytes are changed.
seeds["ops_refused_algorithm"] = with_entries(
    artifact(function(f"""  %0 = "stablehlo.dot_general"(%a0, %a1) {{{DOT},
      {algorithm("bf16", "f32", 9)}}} : ({mlir_type(left)}, {mlir_type(right)}) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>""", [left, right], [np.zeros((4, 6), np.float32)])),
    lambda entry: (entry[:-1] + zigzag(7) if entry.endswith(zigzag(9)) and len(entry) == 3
                   else entry))
# These calls pass tokens to routines that expect matrices.
refused("token_for_a_matrix", """  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%t) {mhlo.backend_config = {uplo = 76 : ui8}, api_version = 4 : i32}
      : (!stablehlo.token) -> (tensor<4x4xf32>, tensor<i32>)
  return %0#0 : tensor<4x4xf32>""", results="tensor<4x4xf32>")
refused("tokens_for_arrays", """  %t = stablehlo.create_token : !stablehlo.token
  %0:2 = stablehlo.custom_call @ApproxTopK(%t, %t, %t, %t)
      : (!stablehlo.token, !stablehlo.token, !stablehlo.token, !stablehlo.token) -> (tensor<4xf32>, tensor<4xi32>)
  return %0#0 : tensor<4xf32>""")
# The padding is a list of one element that is broadcast to two.
refused("padding_of_few", """  %k = stablehlo.constant dense<1.0> : tensor<3x1x1xf32>
  %l = stablehlo.constant dense<1> : tensor<1xi64>
  %p = stablehlo.broadcast_in_dim %l, dims = [1] : (tensor<1xi64>) -> tensor<1x2xi64>
  %0 = "stablehlo.dynamic_conv"(%a0, %k, %p) {
      dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>,
      feature_group_count = 1 : i64, batch_group_count = 1 : i64}
      : (tensor<1x4x1xf32>, tensor<3x1x1xf32>, tensor<1x2xi64>) -> tensor<1x4x1xf32>
  return %0 : tensor<1x4x1xf32>""", "%a0: tensor<1x4x1xf32>", "tensor<1x4x1xf32>")
out = HERE / "recorded" / "ops.jsonl"
out.write_text("\n".join(lines.values()) + "\n")
print(f"{len(lines)} programs, {out.stat().st_size} bytes")
if "--seeds" in sys.argv:
    for name, data in seeds.items():
        (HERE.parent / "fuzz" / "stablehlo" / f"{name}.mlirbc").write_bytes(data)
