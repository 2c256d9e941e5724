"""Exports sharded training steps from JAX, and counts the bytes that their collectives send in JAX's optimised HLO.

  python collectives_jax.py FOLDER

Writes a StableHLO artifact FOLDER/<program>.mlirbc for each program, and prints a line for each to stdout: the
program's title, the artifact's file name, and the bytes that a device sends in a run. The bytes are counted as in
bench/collectives.cc: in groups of n devices, an all-reduce sends 2(n-1)/n of its result. An all-gather, a
reduce-scatter and an all-to-all send (n-1)/n of the whole array, and a collective-permute sends all of it.
"""
import os
import pathlib
import re
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.sharding import NamedSharding, PartitionSpec as P

jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")

WIDTHS = {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1,
          "pred": 1}


def shape_bytes(text):
    total = 0
    for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
        total += WIDTHS[dtype] * int(np.prod([int(d) for d in dims.split(",") if d], dtype=np.int64))
    return total


def group_size(line):
    m = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if m:
        return int(m.group(2))
    m = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if m:
        return len(m.group(1).split(","))
    m = re.search(r"replica_groups=mesh\[(.*?)\](?:, device_ids=\(.*?\)\))? \{(.*?)\}", line)
    sizes = dict(re.findall(r"('\w+')=(\d+)", m.group(1)))
    # Each entry names an axis, or a part of one: 'a':(1)2 is a part with 2 positions of the axis 'a'.
    return int(np.prod([int(part or sizes[axis])
                        for axis, part in re.findall(r"('\w+')(?::\(\d+\)(\d+))?", m.group(2))]))


def bytes_sent(hlo):
    """Returns the bytes that one device sends. Counts each op once, which is right because the program has no loops."""
    assert " while(" not in hlo
    total = 0
    for line in hlo.splitlines():
        m = re.search(r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|"
                      r"collective-permute)(?:-start)?\(", line)
        if not m:
            continue
        out, kind = shape_bytes(m.group(1)), m.group(2)
        if kind == "collective-permute":
            total += out
            continue
        n = group_size(line)
        if kind == "all-reduce":
            total += 2 * out * (n - 1) // n
        elif kind == "reduce-scatter":
            total += out * (n - 1)  # the whole array is n times the result
        else:
            total += out * (n - 1) // n
    return total


# ---- The programs. ------------------------------------------------------------------------------

def mlp_loss(params, batch):
    x, y = batch
    for i, (w1, w2) in enumerate(params):
        h = constrain(jax.nn.gelu(x @ w1), "hidden")
        x = constrain(x + h @ w2, "activations")
    return jnp.mean((x - y) ** 2)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


HEADS = 8


def gpt_loss(params, batch):
    tokens, targets = batch
    table, layers = params
    x = constrain(table[tokens], "activations")
    b, t, d = x.shape
    mask = jnp.tril(jnp.ones((t, t), bool))
    for wq, wk, wv, wo, w1, w2 in layers:
        y = norm(x)
        q, k, v = (constrain((y @ w).reshape(b, t, HEADS, d // HEADS), "heads")
                   for w in (wq, wk, wv))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // HEADS) ** 0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        z = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(b, t, d)
        x = constrain(x + z @ wo, "activations")
        h = constrain(jax.nn.gelu(norm(x) @ w1), "hidden")
        x = constrain(x + h @ w2, "activations")
    logits = norm(x) @ table.T
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - chosen)


LAYOUT = {}


def constrain(x, what):
    spec = LAYOUT.get(what)
    return x if spec is None else jax.lax.with_sharding_constraint(x, spec)


def adam(loss_fn):
    def step(params, m, v, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
        params = jax.tree.map(lambda p, m, v: p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), params, m, v)
        return params, m, v, loss
    return step


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp(width=512, hidden=2048, batch=1024, layers=3):
    params = [(f32(width, hidden), f32(hidden, width))] * layers
    return mlp_loss, params, (f32(batch, width), f32(batch, width))


def gpt(width=256, hidden=1024, batch=16, seq=128, vocab=1024, layers=2):
    layer = (f32(width, width),) * 4 + (f32(width, hidden), f32(hidden, width))
    tokens = jax.ShapeDtypeStruct((batch, seq), jnp.int32)
    return gpt_loss, (f32(vocab, width), [layer] * layers), (tokens, tokens)


# Returns the layouts by name. A layout has the mesh's axes with their sizes; the specs of the weights whose
# result has a hidden or head dim, of the weights whose operand has one, of the embedding table and of the
# batch; and the specs of the values that `constrain` constrains. The rank of these values depends on the model.
def layouts(is_gpt):
    t = (None,) if is_gpt else ()  # the dim of positions
    return {
        "data": (("data", 8), P(), P(), P(), P("data"), {}),
        "tensor": (("model", 8), P(None, "model"), P("model"), P(), P(),
                   {"hidden": P(None, *t, "model"), "heads": P(None, *t, "model"),
                    "activations": P()}),
        "data and tensor": (("data", 2, "model", 4), P(None, "model"), P("model"), P(), P("data"),
                            {"hidden": P("data", *t, "model"), "heads": P("data", *t, "model"),
                             "activations": P("data")}),
        "sequence": (("data", 2, "model", 4), P(None, "model"), P("model"), P(), P("data"),
                     {"hidden": P("data", *t, "model"), "heads": P("data", *t, "model"),
                      "activations": P("data", "model") if is_gpt else P(("data", "model"))}),
        "fully sharded": (("data", 8), P("data"), P("data"), P("data"), P("data"), {}),
        "fully sharded and tensor": (("data", 2, "model", 4), P("data", "model"),
                                     P("model", "data"), P(None, "data"), P("data"),
                                     {"hidden": P("data", *t, "model"),
                                      "heads": P("data", *t, "model"),
                                      "activations": P("data")}),
    }


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for model in ("MLP", "GPT"):
        loss, params, batch = (gpt if model == "GPT" else mlp)()
        for name, (axes, up_spec, down_spec, table_spec, batch_spec, value_specs) in layouts(model == "GPT").items():
            mesh = jax.make_mesh(axes[1::2], axes[0::2],
                                 axis_types=(jax.sharding.AxisType.Auto,) * (len(axes) // 2))
            sharding = lambda spec: NamedSharding(mesh, spec)
            LAYOUT.clear()
            LAYOUT.update({k: sharding(v) for k, v in value_specs.items()})
            if model == "GPT":
                up, down = sharding(up_spec), sharding(down_spec)
                specs = (sharding(table_spec), [(up,) * 3 + (down, up, down) for _ in params[1]])
            else:
                specs = [(sharding(up_spec), sharding(down_spec)) for _ in params]
            batches = (sharding(batch_spec),) * 2
            step = jax.jit(adam(loss), in_shardings=(specs, specs, specs, batches),
                           out_shardings=(specs, specs, specs, sharding(P())))
            title = f"{model}, {name}"
            artifact = export.export(step)(params, params, params, batch)
            file = title.lower().replace(", ", "_").replace(" ", "_") + ".mlirbc"
            (folder / file).write_bytes(artifact.mlir_module_serialized)
            hlo = step.lower(params, params, params, batch).compile().as_text()
            print(f"{title}\t{file}\t{bytes_sent(hlo)}", flush=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
