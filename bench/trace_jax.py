"""The training steps of bench/trace.cc in JAX on the CPU.

`bench-trace --jax PYTHON` runs this script. The argument is the GPT's number of layers.
"""
import sys

import compile_jax as gpt
import served_jax

BATCH = 8


def attention(p, x, whole_text, summed_einsum, query_positions):
    import jax
    import jax.numpy as jnp

    qkv = jnp.einsum("btd,dchk->cbhtk", x, p["qkv"])  # c stands for query, key and value
    keys, values = whole_text(qkv[1]), whole_text(qkv[2])
    scores = jnp.einsum("bhtk,bhsk->bhts", qkv[0], keys) / gpt.HEAD_WIDTH**0.5
    past = jnp.expand_dims(query_positions(x.shape[1]), 1) >= jnp.arange(gpt.LENGTH)
    weights = jax.nn.softmax(scores + jnp.where(past, 0.0, -1e9))
    return summed_einsum("bthk,hkd->btd", jnp.einsum("bhts,bhsk->bthk", weights, values), p["out"])


def loss_of(embed, whole_text, summed_einsum, query_positions, global_mean):
    """Returns the loss function of the model of examples/gpt_three_ways.cc. The arguments are the operations that the
    two ways to write a sharded model write differently, as in `Way` of bench/trace.cc."""
    import jax
    import jax.numpy as jnp

    def loss(p, inputs, targets):
        x = embed(p["tokens"], inputs) + p["positions"]
        for block in p["blocks"]:
            x = x + attention(block, gpt.norm(x, block["norm1"]), whole_text, summed_einsum, query_positions)
            hidden = jax.nn.gelu(gpt.norm(x, block["norm2"]) @ block["up"])
            x = x + summed_einsum("btf,fd->btd", hidden, block["down"])
        log_p = jax.nn.log_softmax(jnp.einsum("btd,vd->btv", gpt.norm(x, p["norm"]), p["tokens"]))
        return global_mean(-jnp.take_along_axis(log_p, targets[..., None], -1))

    return loss


def step_of(loss):

    def step(state, inputs, targets):
        return gpt.adam_step(state, lambda p: loss(p, inputs, targets))

    return step


def on_meshes(layers):
    """Returns the steps on a sharded batch: one with types that carry shardings, and one with shard_map."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    tokens, heads = P("data", "seq"), P("data", "tensor")
    block = {
        "norm1": P(),
        "qkv": P(None, None, "tensor"),
        "out": P("tensor"),
        "norm2": P(),
        "up": P(None, "tensor"),
        "down": P("tensor")
    }
    specs = {"tokens": P(), "positions": P("seq"), "blocks": [block] * layers, "norm": P()}

    def mesh_of(kind):
        return jax.make_mesh((2, 2, 2), ("data", "tensor", "seq"), axis_types=(kind,) * 3)

    explicit = loss_of(embed=lambda table, ids: table.at[ids].get(out_sharding=tokens),
                       whole_text=lambda x: jax.sharding.reshard(x, heads),
                       summed_einsum=lambda spec, x, w: jnp.einsum(spec, x, w, out_sharding=tokens),
                       query_positions=jnp.arange,
                       global_mean=jnp.mean)
    auto = mesh_of(AxisType.Auto)
    mapped = jax.shard_map(loss_of(embed=lambda table, ids: jnp.take(table, ids, axis=0),
                                   whole_text=lambda x: lax.all_gather(x, "seq", axis=2, tiled=True),
                                   summed_einsum=lambda spec, x, w: lax.psum(jnp.einsum(spec, x, w), "tensor"),
                                   query_positions=lambda n: lax.axis_index("seq") * n + jnp.arange(n),
                                   global_mean=lambda x: lax.pmean(jnp.mean(x), ("data", "seq"))),
                           mesh=auto,
                           in_specs=(specs, tokens, tokens),
                           out_specs=P())
    rows = {}
    for name, loss, mesh in (("Explicit", explicit, mesh_of(AxisType.Explicit)), ("shard_map", mapped, auto)):
        place = lambda tree, specs: jax.tree.map(lambda x, s: jax.device_put(x, NamedSharding(mesh, s)), tree, specs)
        state = gpt.gpt_state(layers)
        state = {
            "params": place(state["params"], specs),
            "m": place(state["m"], specs),
            "v": place(state["v"], specs),
            "step": place(state["step"], P())
        }
        texts = [place(gpt.integers(salt, gpt.VOCABULARY, BATCH, gpt.LENGTH), tokens) for salt in (1000, 1001)]
        rows[name] = (step_of(loss), [state, *texts], lambda mesh=mesh: jax.set_mesh(mesh))
    return rows


def main():
    served_jax.prepare(devices=8)
    import jax

    layers = int(sys.argv[1])
    rows = {
        "one device":
            (gpt.gpt_step, [gpt.gpt_state(layers),
                            gpt.integers(1000, gpt.VOCABULARY, 2, gpt.LENGTH + 1),
                            jax.random.key(1)])
    }
    served_jax.serve_lowerings(rows | on_meshes(layers))


if __name__ == "__main__":
    main()
