#!/usr/bin/env python3
"""Runs the programs of tests/semantics in an installed JAX and records what they answer.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_semantics.py build/dev/bin/dump_semantics [ROW ...]
  build/jax-venv/bin/python scripts/record_semantics.py build/dev/bin/dump_semantics --check [ROW ...]

Writes tests/semantics/recorded.jsonl, with one line for each row. The line has the dtype, shape, weak type,
sharding and elements of each result, or the text of the types if the program asks for types. For an error
it has the classes and the first line of the message; the message must contain the phrases that the row
gives. ROW is the beginning of a name: only the rows with such names are run and replaced. With --check,
nothing is written: it prints the rows for which this JAX gives other results than the recorded ones, and
exits with 1 if there are any.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import warnings

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402

jax.config.update("jax_num_cpu_devices", 8)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402

RECORDED = pathlib.Path(__file__).resolve().parent.parent / "tests/semantics/recorded.jsonl"


def dtype_text(dtype):
    name = str(dtype)
    if name.startswith("key<"):
        return name
    names = {"bool": "bool", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128",
             "float0": "float0"}
    short = name.replace("uint", "u").replace("int", "s").replace("float", "f")
    return names.get(name, names.get(str(dtype), short))


def axes_of(entry):
    return [] if entry is None else [entry] if isinstance(entry, str) else list(entry)


def type_text(t):
    """Returns a type in the form that ir::Type prints: f32[8@data,512]{V:model}; a weak type is f32[]~."""
    sharding = getattr(t, "sharding", None)
    spec = getattr(sharding, "spec", PartitionSpec())
    entries = list(spec.partitions) + [None] * len(t.shape)
    dims = [f"{n}" + "".join(f"@{a}" for a in axes_of(entries[d]))
            for d, n in enumerate(t.shape)]
    manual = getattr(t, "mat", None)
    states = {"V": set(getattr(manual, "varying", ()) or ()),
              "U": set(getattr(manual, "unreduced", ()) or ()) | set(spec.unreduced),
              "R": set(getattr(manual, "reduced", ()) or ()) | set(spec.reduced)}
    text = ";".join(f"{k}:{','.join(sorted(v))}" for k, v in states.items() if v)
    return (f"{dtype_text(t.dtype)}[{','.join(dims)}]" + (f"{{{text}}}" if text else "")
            + ("~" if getattr(t, "weak_type", False) else ""))


def number(v):
    if isinstance(v, complex):
        return [number(v.real), number(v.imag)]
    return v if not isinstance(v, float) or math.isfinite(v) else str(v)


def leaf(x):
    if isinstance(x, (bool, np.bool_)):
        return {"text": str(bool(x)).lower()}
    if x is None or isinstance(x, (int, str)):
        return {"text": str(x)}
    if isinstance(x, float):
        return {"text": "%.17g" % x}
    if isinstance(x, (jax.core.ShapedArray, jax.ShapeDtypeStruct)):
        return {"text": type_text(x)}
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    out = {"dtype": dtype_text(x.dtype), "shape": list(x.shape),
           "weak": bool(getattr(x, "weak_type", False))}
    sharding = getattr(x, "sharding", None)
    if isinstance(sharding, NamedSharding):
        spec = list(sharding.spec.partitions) + [None] * x.ndim
        out["sharding"] = [axes_of(s) for s in spec[:x.ndim]]
        if sharding.spec.unreduced:
            out["unreduced"] = sorted(sharding.spec.unreduced)
            x = jax.sharding.reshard(x, PartitionSpec())
    if x.dtype == jax.dtypes.float0:
        return {**out, "dtype": "float0"}
    out["values"] = [number(v) for v in np.asarray(x).ravel().tolist()]
    return out


def mesh_of(axis_type):
    def make(**axes):
        types = (axis_type,) * len(axes)
        return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types)
    return make


def dataclass_tree(cls):
    import dataclasses
    cls = dataclasses.dataclass(cls)
    return jax.tree_util.register_dataclass(cls)


# ---- Equinox's filters, written from its documentation, so that it need not be installed. --------

class Filters:
    """The functions of Equinox that the rows named filters/ use, written from its documentation.

    Equinox 0.13.8 gives the same results for all rows."""

    @staticmethod
    def is_array(x):
        return isinstance(x, (jax.Array, np.ndarray, np.generic))

    @staticmethod
    def is_inexact_array(x):
        return Filters.is_array(x) and bool(jnp.issubdtype(x.dtype, jnp.inexact))

    @staticmethod
    def is_array_like(x):
        return Filters.is_array(x) or isinstance(x, (bool, int, float, complex))

    @staticmethod
    def filter(tree, spec, inverse=False, replace=None):
        def mask(flag, part):
            holds = flag if callable(flag) else lambda _: flag
            return jax.tree.map(lambda x: x if bool(holds(x)) != inverse else replace, part)
        return jax.tree.map(mask, spec, tree) if not callable(spec) else mask(spec, tree)

    @staticmethod
    def partition(tree, spec):
        return Filters.filter(tree, spec), Filters.filter(tree, spec, inverse=True)

    @staticmethod
    def combine(*trees):
        def first(*leaves):
            return next((x for x in leaves if x is not None), None)
        return jax.tree.map(first, *trees, is_leaf=lambda x: x is None)

    @staticmethod
    def filter_jit(f):
        def call(*args):
            arrays, static = Filters.partition(args, Filters.is_array)
            leaves, treedef = jax.tree.flatten(static, is_leaf=lambda x: x is None)
            kept = []

            def traced(arrays):
                out = f(*Filters.combine(arrays, jax.tree.unflatten(treedef, leaves)))
                a, s = Filters.partition(out, Filters.is_array)
                kept.append(s)
                return a
            out = jax.jit(traced)(arrays)
            return Filters.combine(out, kept[-1])
        return call

    @staticmethod
    def filter_vmap(f, in_axes=None, out_axes=0):
        def call(*args):
            arrays, static = Filters.partition(args, Filters.is_array)
            axes = jax.tree.map(lambda x: 0, arrays) if in_axes is None else in_axes
            if not jax.tree.leaves(axes):
                return f(*args)
            return jax.vmap(lambda a: f(*Filters.combine(a, static)), (axes,), out_axes)(arrays)
        return call

    @staticmethod
    def filter_value_and_grad(f):
        def call(first, *rest):
            diff, static = Filters.partition(first, Filters.is_inexact_array)
            return jax.value_and_grad(lambda d: f(Filters.combine(d, static), *rest))(diff)
        return call

    @staticmethod
    def filter_grad(f):
        def call(*args):
            if not args:
                raise TypeError("filter_grad differentiates the first positional argument, of none")
            return Filters.filter_value_and_grad(f)(*args)[1]
        return call

    @staticmethod
    def filter_shard(x, sharding):
        arrays, static = Filters.partition(x, Filters.is_array)
        return Filters.combine(lax.with_sharding_constraint(arrays, sharding), static)


def filters():
    """Returns Equinox if it is installed, and otherwise the class Filters above."""
    try:
        import equinox
        return equinox
    except ImportError:
        return Filters


def names():
    """Returns the names that the programs can use, with their values."""
    seen = []

    def see(x):
        seen.append(jax.typeof(x))
        return x

    def ar(*shape):
        return jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)

    def ints(*shape):
        return jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)

    def mixed(**axes):
        """Makes a mesh with axes of different types: mixed(x=(2, 'Auto'), y=(2, 'Explicit'))."""
        return jax.make_mesh(tuple(n for n, _ in axes.values()), tuple(axes),
                             axis_types=tuple(getattr(AxisType, t) for _, t in axes.values()))

    def no_promotion():
        return jax.numpy_dtype_promotion("strict")

    return {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "P": PartitionSpec, "AxisType": AxisType,
            "NamedSharding": NamedSharding, "shard_map": jax.shard_map, "set_mesh": jax.set_mesh,
            "reshard": jax.sharding.reshard, "auto_axes": jax.sharding.auto_axes,
            "explicit_axes": jax.sharding.explicit_axes, "typeof": jax.typeof, "jit": jax.jit,
            "grad": jax.grad, "vmap": jax.vmap, "jvp": jax.jvp, "vjp": jax.vjp, "pmap": jax.pmap,
            "linearize": jax.linearize, "linear_transpose": jax.linear_transpose,
            "auto": mesh_of(AxisType.Auto), "explicit": mesh_of(AxisType.Explicit), "mixed": mixed,
            "put": lambda x, mesh, spec: jax.device_put(x, NamedSharding(mesh, spec)),
            "ar": ar, "ints": ints, "see": see, "seen": seen, "eqx": filters(),
            "dataclass_tree": dataclass_tree}


def first_line(message):
    lines = [line for line in str(message).splitlines() if line.strip()]
    return lines[0][:300] if lines else ""


def run(row):
    env = names()
    try:
        exec(compile(row["python"], row["name"], "exec"), env)
    except Exception as e:
        if not row["fails"]:
            raise
        missing = [p for p in row["phrases"] if p not in str(e)]
        if missing:
            raise AssertionError(f"{missing} not in {type(e).__name__}: {e}") from e
        classes = [c.__name__ for c in type(e).__mro__ if c not in (Exception, BaseException, object)]
        return {"error": classes, "message": first_line(e)}
    if row["fails"]:
        raise AssertionError(f"no error, but {env.get('out')}")
    out = env["out"]
    is_leaf = lambda x: x is None or isinstance(x, (jax.core.ShapedArray, jax.ShapeDtypeStruct))
    return {"results": [leaf(x) for x in jax.tree.leaves(out, is_leaf=is_leaf)]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dump")
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_intermixed_args()
    warnings.simplefilter("ignore")
    listed = subprocess.run([args.dump], check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in listed.splitlines()]
    chosen = [r for r in rows if not args.rows or r["name"].startswith(tuple(args.rows))]
    old = {}
    if RECORDED.exists():
        for line in RECORDED.read_text().splitlines():
            j = json.loads(line)
            if "name" in j:
                old[j["name"]] = j
    new, wrong = {}, 0
    for row in chosen:
        try:
            got = run(row)
        except Exception as e:
            print(f"{row['name']}: {type(e).__name__}: {e}", file=sys.stderr)
            wrong += 1
            continue
        new[row["name"]] = {"name": row["name"], "python": row["python"], **got}
        if args.check:
            want = old.get(row["name"], {})
            said = {k: v for k, v in want.items() if k not in ("name", "python", "message")}
            says = {k: v for k, v in got.items() if k != "message"}
            if said != says:
                print(f"{row['name']}: recorded {said}; this JAX says {got}", file=sys.stderr)
                wrong += 1
    print(f"{len(chosen)} programs, {wrong} wrong; jax {jax.__version__}")
    if args.check:
        return 1 if wrong else 0
    if args.rows:
        new = {**old, **new}
    lines = [json.dumps({"source": f"jax {jax.__version__}, scripts/record_semantics.py"})]
    lines += [json.dumps(new[row["name"]]) for row in rows if row["name"] in new]
    RECORDED.write_text("\n".join(lines) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
