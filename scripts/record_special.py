#!/usr/bin/env python3
"""Records the results of JAX for the special functions of tests/special, whose test compares with them.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_special.py build/dev/bin/dump_special [ROW ...]

Writes tests/special/recorded.jsonl: a line with the source, then a line for each row. The line of a row has
the exact bytes of its points, of the values in f64 and f32 (both at the points rounded to f32), and of the
derivatives in f64, forward and backward.
"""
import json
import os
import pathlib
import subprocess
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.scipy.special as jsp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

jax.config.update("jax_enable_x64", True)
RECORDED = pathlib.Path(__file__).resolve().parent.parent / "tests/special/recorded.jsonl"


def function(row):
    return lambda *x: eval(row["python"], {"jsp": jsp, "lax": lax, "jnp": jnp, "x": x})


def main():
    listed = subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout
    lines = [json.dumps({"source": f"jax {jax.__version__}, scripts/record_special.py"})]
    before = {}
    if sys.argv[2:]:  # Record only the named rows, and keep the others unchanged.
        before = {r["name"]: r for r in map(json.loads, RECORDED.read_text().splitlines()[1:])}
    for row in map(json.loads, listed.splitlines()):
        if before and row["name"] not in sys.argv[2:]:
            lines.append(json.dumps(before[row["name"]]))
            continue
        points = [np.frombuffer(bytes.fromhex(p), np.float64).astype(np.float32)
                  for p in row["points"]]
        wide = [p.astype(np.float64) for p in points]
        out = dict(row)
        with np.errstate(all="ignore"):
            f = jax.jit(function(row))
            out["f64"] = np.asarray(f(*wide), np.float64).tobytes().hex()
            out["f32"] = np.asarray(f(*points), np.float32).tobytes().hex()
            slopes, backward = [], []
            for i in row["derivatives"]:
                def slope(v, *x, i=i):
                    def along(v):
                        return function(row)(*x[:i], v, *x[i + 1:])
                    return jax.jvp(along, (v,), (jnp.ones_like(v),))[1]
                slopes.append(np.asarray(jax.jit(slope)(wide[i], *wide), np.float64).tobytes().hex())
                def back(v, *x, i=i):
                    return jax.grad(lambda v: function(row)(*x[:i], v, *x[i + 1:]).sum())(v)
                # JAX cannot reverse the loops in the rules of some functions; the forward derivative is used then.
                try:
                    slope = np.asarray(jax.jit(back)(wide[i], *wide), np.float64)
                    backward.append(slope.tobytes().hex())
                except ValueError:
                    backward.append(slopes[-1])
            out["slopes"], out["backward"] = slopes, backward
        lines.append(json.dumps(out))
        print(row["name"], flush=True)
    RECORDED.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
