"""The programs of bench/compile.cc in JAX on the CPU.

`bench-compile --jax PYTHON` runs this script. The arguments are the GPT's number of layers and then the names of the
rows of bench-compile's table that are to be measured.
"""
import sys

import served_jax

VOCABULARY, LENGTH, WIDTH, HEADS = 256, 64, 64, 4
HEAD_WIDTH, HIDDEN, NUMBERS = WIDTH // HEADS, 4 * WIDTH, 1024


def unit(salt, *shape):
    import math

    import numpy as np

    i = np.arange(math.prod(shape), dtype=np.uint32)
    h = (i + np.uint32(salt * 7919)) * np.uint32(2654435761)
    return ((h >> np.uint32(8)) * 2.0**-24).reshape(shape)


def numbers(salt, *shape, low=-1, high=1, dtype="float32"):
    import jax.numpy as jnp

    return jnp.asarray(low + (high - low) * unit(salt, *shape), dtype=dtype)


def integers(salt, limit, *shape):
    import jax.numpy as jnp
    import numpy as np

    return jnp.asarray(np.floor(unit(salt, *shape) * limit).astype(np.int32))


def functions(x):
    import jax
    from jax import lax

    return [
        lax.exp(x), lax.expm1(x), lax.exp2(x), lax.log(x), lax.log1p(x), lax.sin(x), lax.cos(x), lax.tan(x),
        lax.sqrt(x), lax.rsqrt(x), lax.cbrt(x), lax.erf(x), lax.erf_inv(x), lax.erfc(x), lax.asin(x), lax.acos(x),
        lax.atan(x), lax.sinh(x), lax.cosh(x), lax.asinh(x), lax.atanh(x), lax.tanh(x), lax.acosh(x + 1),
        lax.lgamma(x), lax.digamma(x), lax.logistic(x), lax.atan2(x, x + 1), lax.pow(x, x), jax.nn.gelu(x),
        jax.nn.silu(x)
    ]


def sines_and_products(x):
    from jax import lax

    y = x
    for _ in range(30):
        y = lax.sin(y) * x
    return y


def norm(x, scale):
    import jax.numpy as jnp
    from jax import lax

    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(jnp.square(centred), -1, keepdims=True) + 1e-5) * scale


def norm_and_softmax(x, w, v):
    import jax
    import jax.numpy as jnp

    return jax.grad(lambda x: jnp.sum(jax.nn.softmax(norm(x, w)) * v))(x)


def gathers_scatters_sorts(x, ids):
    import jax.numpy as jnp

    y = x
    for i in range(15):
        at = ids[:NUMBERS - 16 * (i + 1)]
        y = jnp.take(jnp.sort(y), at)
        y = y.at[at].add(y)
    return y


def chain(ops):
    from jax import lax

    def run(x):
        y = x
        for i in range(ops):
            y = lax.tanh(y) if i % 10 == 9 else y * x if i % 2 == 0 else y + x
        return y

    return run


# ---- The GPT of examples/gpt_model.cc. ---------------------------------------------------------------------------


def gpt_state(layers):
    import jax
    import jax.numpy as jnp

    salt = 0

    def weights(*shape):
        nonlocal salt
        salt += 1
        return numbers(salt, *shape, low=-0.1, high=0.1)

    def scale():
        nonlocal salt
        salt += 1
        return numbers(salt, WIDTH, low=0.9, high=1.1)

    p = {"tokens": weights(VOCABULARY, WIDTH), "positions": weights(LENGTH, WIDTH), "blocks": []}
    for _ in range(layers):
        p["blocks"].append({
            "norm1": scale(),
            "qkv": weights(WIDTH, 3, HEADS, HEAD_WIDTH),
            "out": weights(HEADS, HEAD_WIDTH, WIDTH),
            "norm2": scale(),
            "up": weights(WIDTH, HIDDEN),
            "down": weights(HIDDEN, WIDTH),
        })
    p["norm"] = scale()
    zeros = jax.tree.map(jnp.zeros_like, p)
    return {"params": p, "m": zeros, "v": zeros, "step": jnp.float32(0)}


def dropout(x, key):
    import jax
    import jax.numpy as jnp

    keep = 0.9
    return jnp.where(jax.random.bernoulli(key, keep, x.shape), x / keep, 0)


def attention(p, x):
    import jax
    import jax.numpy as jnp

    length = x.shape[1]
    qkv = jnp.einsum("btd,dchk->cbhtk", x, p["qkv"])
    scores = jnp.einsum("bhtk,bhsk->bhts", qkv[0], qkv[1]) / HEAD_WIDTH**0.5
    at = jnp.arange(length)
    weights = jax.nn.softmax(jnp.where(at[:, None] >= at[None, :], scores, -1e9))
    return jnp.einsum("bthk,hkd->btd", jnp.einsum("bhts,bhsk->bthk", weights, qkv[2]), p["out"])


def loss(p, text, key):
    import jax
    import jax.numpy as jnp

    inputs, targets = text[:, :-1], text[:, 1:]
    x = jnp.take(p["tokens"], inputs, axis=0) + p["positions"][:inputs.shape[1]]
    for i, block in enumerate(p["blocks"]):
        x = x + dropout(attention(block, norm(x, block["norm1"])), jax.random.fold_in(key, 2 * i))
        hidden = jax.nn.gelu(norm(x, block["norm2"]) @ block["up"])
        x = x + dropout(hidden @ block["down"], jax.random.fold_in(key, 2 * i + 1))
    log_p = jax.nn.log_softmax(norm(x, p["norm"]) @ p["tokens"].T)
    return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], -1))


def gpt_step(state, text, key):
    return adam_step(state, lambda p: loss(p, text, key))


def adam_step(state, loss):
    import jax
    import jax.numpy as jnp

    value, grads = jax.value_and_grad(loss)(state["params"])
    rate, beta1, beta2, epsilon = 3e-3, 0.9, 0.999, 1e-8
    step = state["step"] + 1
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["v"], grads)
    c1, c2 = 1 - jnp.power(beta1, step), 1 - jnp.power(beta2, step)
    params = jax.tree.map(lambda p, m, v: p - rate * (m / c1) / (jnp.sqrt(v / c2) + epsilon),
                          state["params"], m, v)
    return {"params": params, "m": m, "v": v, "step": step}, value


def programs(layers, wanted):
    """Returns the wanted rows: for each name, a function and its arguments."""
    import jax

    x = numbers(1, NUMBERS)
    positive = [numbers(1, NUMBERS, low=0.1, high=0.9, dtype=d) for d in ("float32", "bfloat16")]
    rows = {
        "60 functions": (lambda x, narrow: functions(narrow) + functions(x), positive),
        "60 sines and products": (sines_and_products, [x]),
        "norm, softmax, gradient":
            (norm_and_softmax, [numbers(1, 128, 256), numbers(2, 256), numbers(3, 128, 256)]),
        "60 gathers, scatters, sorts":
            (gathers_scatters_sorts, [x, integers(2, NUMBERS // 2, NUMBERS)]),
        f"step of a GPT of {layers}":
            (gpt_step, [gpt_state(layers), integers(1000, VOCABULARY, 2, LENGTH + 1), jax.random.key(1)]),
    }
    for name in wanted:
        if name.startswith("chain of "):
            rows[name] = (chain(int(name.split()[-1])), [x])
    return {name: rows[name] for name in wanted}


def main():
    served_jax.prepare()
    served_jax.serve_compilations(programs(int(sys.argv[1]), sys.argv[2:]))


if __name__ == "__main__":
    main()
