"""The rows of bench/ops.cc in JAX on the CPU.

`bench-ops --jax PYTHON` runs this script. The arguments are the numbers of elements, separated by commas, and then the
names of the wanted rows.
"""
import math
import sys

import served_jax


def rows_of(n):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax

    side = math.isqrt(n)
    vocabulary, width, tokens = (50_000, 256, 8_192) if n >= 1_000_000 else (500, 16, 64)

    def bits(salt, shape):
        h = np.arange(math.prod(shape), dtype=np.uint32) + np.uint32(salt * 0x01000193 % 2**32)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).reshape(shape)

    def numbers(salt, *shape, dtype=np.float32):
        return jnp.asarray((bits(salt, shape) >> np.uint32(8)) * 2.0**-22 - 2.0, dtype=dtype)

    def integers(salt, limit, *shape):
        return jnp.asarray((bits(salt, shape) % np.uint32(limit)).astype(np.int32))

    x, y, z = numbers(1, n), numbers(2, n), numbers(3, n)
    half = numbers(4, n // 2)
    m, w = numbers(5, side, side), numbers(6, side)
    b = numbers(7, side)
    indices, row_indices = integers(8, n, n), integers(9, side, side)
    element_indices = integers(10, side, side, side)
    distinct = jnp.asarray((np.arange(n // 2, dtype=np.int64) * 7919 % n).astype(np.int32))
    start = jnp.int32(n // 4)
    keys = integers(11, 2**31 - 1, n)
    table, ids = numbers(12, vocabulary, width), integers(13, vocabulary, tokens)
    weights = numbers(14, tokens, width)
    x64 = lambda: jax.enable_x64(True)
    with x64():
        wide = numbers(15, n, dtype=np.float64)

    def layer_norm(x, w, b):
        mean = jnp.mean(x, 1, keepdims=True)
        return (x - mean) * lax.rsqrt(jnp.var(x, 1, keepdims=True) + 1e-5) * w + b

    def rms_norm(x, w):
        return x * lax.rsqrt(jnp.mean(x * x, 1, keepdims=True) + 1e-5) * w

    def chain(x, y, z):
        return jnp.tanh(x * y + z) * y

    def embedding_gradient(table, ids, weights):
        return jax.grad(lambda t: jnp.sum(jnp.take(t, ids, axis=0) * weights))(table)

    rows = {
        "take of scalars": (lambda x, i: jnp.take(x, i), (x, indices)),
        "take of rows": (lambda m, i: jnp.take(m, i, axis=0), (m, row_indices)),
        "take_along_axis": (lambda m, i: jnp.take_along_axis(m, i, 1), (m, element_indices)),
        "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i,), (n // 2,)), (x, start)),
        "dynamic_update_slice": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), (x, half, start)),
        "at[].set": (lambda x, i, u: x.at[i].set(u), (x, distinct, half)),
        "at[].add": (lambda x, i, u: x.at[i].add(u), (x, indices, y)),
        "embedding": (lambda t, i: jnp.take(t, i, axis=0), (table, ids)),
        "embedding gradient": (embedding_gradient, (table, ids, weights)),
        "sort f32": (jnp.sort, (x,)),
        "sort s32": (jnp.sort, (keys,)),
        "argsort": (jnp.argsort, (x,)),
        "sort of rows": (jnp.sort, (m,)),
        "argsort of rows": (jnp.argsort, (m,)),
        "sort of pairs": (lambda x, k: lax.sort((x, k)), (x, keys)),
        "top_k of 10": (lambda x: lax.top_k(x, 10), (x,)),
        "top_k of 10 of rows": (lambda m: lax.top_k(m, 10), (m,)),
        "cumsum": (jnp.cumsum, (x,)),
        "cumsum of columns": (lambda m: jnp.cumsum(m, 0), (m,)),
        "cumsum of rows": (lambda m: jnp.cumsum(m, 1), (m,)),
        "cumlogsumexp": (lax.cumlogsumexp, (x,)),
        "argmax": (jnp.argmax, (x,)),
        "sum": (jnp.sum, (x,)),
        "max": (jnp.max, (x,)),
        "row sums": (lambda m: jnp.sum(m, 1), (m,)),
        "column sums": (lambda m: jnp.sum(m, 0), (m,)),
        "var": (jnp.var, (x,)),
        "logsumexp": (jax.nn.logsumexp, (x,)),
        "sort_by": (lambda x: -jnp.sort(-x), (x,)),
        "reduce": (lambda x: lax.reduce(x, jnp.float32(-10), lambda a, b: jnp.where(a < b, b, a), (0,)), (x,)),
        "at[].apply": (lambda x, i: x.at[i].apply(jnp.square), (x, distinct)),
    }
    for suffix in ("", " bf16"):
        k, s, c = (a.astype(jnp.bfloat16) if suffix else a for a in (m, w, b))
        rows |= {
            f"softmax{suffix}": (jax.nn.softmax, (k,)),
            f"log_softmax{suffix}": (jax.nn.log_softmax, (k,)),
            f"layer norm{suffix}": (layer_norm, (k, s, c)),
            f"rms norm{suffix}": (rms_norm, (k, s)),
        }
    for dtype in ("f32", "bf16"):
        u, v, t = ((a if dtype == "f32" else a.astype(jnp.bfloat16)) for a in (x, y, z))
        rows |= {
            f"add {dtype}": (lambda x, y: x + y, (u, v)),
            f"exp {dtype}": (jnp.exp, (u,)),
            f"tanh {dtype}": (jnp.tanh, (u,)),
            f"gelu {dtype}": (jax.nn.gelu, (u,)),
            f"tanh(x y + z) y {dtype}": (chain, (u, v, t)),
        }
    images, image, c = (8, 44, 64) if n >= 1_000_000 else (1, 8, 16)
    x = numbers(16, images, image, image, c)

    def conv(stride=1, image="NHWC", kernel="HWIO", groups=1):
        return lambda x, k: lax.conv_general_dilated(
            x, k, (stride, stride), "SAME", dimension_numbers=(image, kernel, image),
            feature_group_count=groups)

    def pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    rows |= {
        "conv 3x3": (conv(), (x, numbers(17, 3, 3, c, c))),
        "conv 3x3 of stride 2": (conv(2), (x, numbers(17, 3, 3, c, c))),
        "conv 1x1": (conv(), (x, numbers(18, 1, 1, c, c))),
        "conv 3x3 of channels": (conv(groups=c), (x, numbers(19, 3, 3, 1, c))),
        "conv 3x3 nchw": (conv(image="NCHW", kernel="OIHW"),
                          (numbers(20, images, c, image, image), numbers(21, c, c, 3, 3))),
        "conv 3x3 gradients": (jax.grad(lambda x, k: jnp.sum(jnp.square(conv()(x, k))), (0, 1)),
                               (x, numbers(17, 3, 3, c, c))),
        "max pool 2x2": (pool, (x,)),
        "max pool 2x2 gradient": (jax.grad(lambda x: jnp.sum(jnp.square(pool(x)))), (x,)),
        "window sums 3x3": (lambda x: lax.reduce_window(
            x, 0.0, lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"), (x,)),
    }
    def resnet_params():
        params, salt = [], iter(range(100, 200))

        def add(fan_in, *shape):
            params.append(numbers(next(salt), *shape) * np.float32(1 / math.sqrt(fan_in)))

        def add_conv(size, c_in, c_out):
            add(size * size * c_in, size, size, c_in, c_out)
            params.extend([jnp.ones(c_out), jnp.zeros(c_out)])

        add_conv(7, 3, 64)
        c_in = 64
        for c_out in (64, 128, 256, 512):
            for _ in range(2):
                add_conv(3, c_in, c_out)
                add_conv(3, c_out, c_out)
                if c_in != c_out:
                    add_conv(1, c_in, c_out)
                c_in = c_out
        add(512, 512, 1000)
        return params + [jnp.zeros(1000)]

    def resnet_loss(params, x, labels):
        rest = iter(params)

        def conv(x, stride):
            kernel, scale, bias = next(rest), next(rest), next(rest)
            y = lax.conv_general_dilated(x, kernel, (stride, stride), "SAME",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
            centered = y - jnp.mean(y, (0, 1, 2))
            return centered * lax.rsqrt(jnp.mean(jnp.square(centered), (0, 1, 2)) + 1e-5) * scale + bias

        x = jax.nn.relu(conv(x, 2))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        c_in = 64
        for c_out in (64, 128, 256, 512):
            for block in range(2):
                stride = 2 if block == 0 and c_out > 64 else 1
                y = conv(jax.nn.relu(conv(x, stride)), 1)
                x = jax.nn.relu(y + (x if c_in == c_out else conv(x, stride)))
                c_in = c_out
        scores = jax.nn.log_softmax(jnp.mean(x, (1, 2)) @ next(rest) + next(rest))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], 1))

    def resnet_step(params, images, labels):
        loss, grads = jax.value_and_grad(resnet_loss)(params, images, labels)
        return loss, *(p - 0.01 * g for p, g in zip(params, grads))

    if n >= 1_000_000:
        rows["resnet-18 step"] = (resnet_step, (resnet_params(), numbers(30, 8, 64, 64, 3), integers(31, 1000, 8)))
    small = min(side, 256)
    tall = numbers(24, 2 * small, small)

    def positive_definite(m):
        return m @ jnp.swapaxes(m, -1, -2) / m.shape[-1] + 2 * jnp.eye(m.shape[-1])

    p = positive_definite(m)
    rows |= {
        "cholesky": (jnp.linalg.cholesky, (p,)),
        "cholesky of 8 x 8": (jnp.linalg.cholesky, (positive_definite(numbers(25, n // 64, 8, 8)),)),
        "cholesky gradient": (jax.grad(lambda m: jnp.sum(jnp.square(jnp.linalg.cholesky(m)))), (p,)),
        "triangular_solve": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True, lower=True),
                             (p, numbers(23, side, 8))),
        "solve": (jnp.linalg.solve, (p, numbers(23, side, 8))),
        "det": (lambda a: jnp.linalg.slogdet(a)[1], (p,)),
        "qr": (jnp.linalg.qr, (tall,)),
        "eigh": (jnp.linalg.eigh, (positive_definite(numbers(22, small, small)),)),
        "svd": (lambda a: jnp.linalg.svd(a, full_matrices=False), (tall,)),
    }
    a, b = (lax.complex(numbers(i, n), numbers(i + 1, n)) for i in (26, 28))
    rows |= {
        "x y c64": (lambda x, y: x * y, (a, b)),
        "abs c64": (jnp.abs, (a,)),
        "exp(x) y + x c64": (lambda x, y: jnp.exp(x) * y + x, (a, b)),
        "matmul c64": (lambda m: m @ m, (a[:side * side].reshape(side, side),)),
    }

    def along_rows(length):
        count, length = max(n // length, 1), min(length, n)
        return a[:count * length].reshape(count, length)

    rows |= {
        "fft": (jnp.fft.fft, (a,)),
        "fft of 1024": (jnp.fft.fft, (along_rows(1024),)),
        "fft of 360": (jnp.fft.fft, (along_rows(360),)),
        "fft of 997": (jnp.fft.fft, (along_rows(997),)),
        "rfft of 1024": (lambda x: jnp.fft.rfft(x.real), (along_rows(1024),)),
    }
    rows |= {
        "sin f64": (jnp.sin, (wide,), x64),
        "exp f64": (jnp.exp, (wide,), x64),
        "log f64": (lambda x: jnp.log(x + 3), (wide,), x64),
    }
    return {f"{name}, {n}": row for name, row in rows.items()}


def compared(n):
    """Returns a function for each row whose results are not compared themselves. The result of the function is compared
    instead: it is the product of the factors of a decomposition, because the factors are not unique."""
    rows = {
        "eigh": lambda r: (r[0], (r[1] * r[0]) @ r[1].T),
        "svd": lambda r: (r[1], (r[0] * r[1]) @ r[2]),
        "qr": lambda r: (r[0] @ r[1],),
    }
    return {f"{name}, {n}": row for name, row in rows.items()}


def main():
    served_jax.prepare()
    sizes, wanted = sys.argv[1].split(","), sys.argv[2:]
    calls, products = {}, {}
    for n in sizes:
        products |= compared(int(n))
        calls |= {name: row for name, row in rows_of(int(n)).items() if name in wanted}
    served_jax.serve(calls, products)


if __name__ == "__main__":
    main()
