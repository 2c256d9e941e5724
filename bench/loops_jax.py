"""The loops of bench/loops.cc in JAX on the CPU.

`bench-loops --jax PYTHON` runs this script. The argument is the number of iterations of the long loops.
"""
import sys

import served_jax


def loops(length):
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax.sharding import NamedSharding, PartitionSpec as P

    def ramp(*shape):
        n = np.arange(np.prod(shape))
        return jnp.asarray((((n * 7) % 61) * 0.01 - 0.3).astype(np.float32).reshape(shape))

    def scan_vector(c, xs):
        def body(c, x):
            c = c * 0.5 + x
            return c, c
        return lax.scan(body, c, xs)

    def rnn(h, xs, u, w, b):
        def body(h, x):
            return jnp.tanh(x @ u + h @ w + b), None
        return lax.scan(body, h, xs)[0]

    def product(x, w):
        return lax.scan(lambda x, _: (x @ w, None), x, None, length=length)[0]

    def nested(c, xs):
        def inner(c, x):
            return c * 0.5 + x, None

        def outer(c, rows):
            c = lax.scan(inner, c, rows)[0]
            return c, c
        return lax.scan(outer, c, xs)

    def while_(x, limit):
        def goes_on(carry):
            i, x = carry
            return jnp.logical_and(i < limit, jnp.max(x) < 1e6)

        def body(carry):
            i, x = carry
            return i + 1, x * 0.5 + 1.0
        return lax.while_loop(goes_on, body, (jnp.int32(0), x))

    mesh = jax.make_mesh((2,), ("i",))

    def summed(c, xs):
        def body(c, x):
            c = lax.psum(c * 0.25 + x, "i")
            return lax.pcast(c, "i", to="varying"), None
        return lax.scan(body, c, xs)[0]

    over_two = jax.shard_map(summed, mesh=mesh, in_specs=(P("i"), P(None, "i")), out_specs=P("i"))
    put = lambda x, *spec: jax.device_put(x, NamedSharding(mesh, P(*spec)))
    # An orthogonal matrix: repeated products with it neither grow nor vanish.
    v = ramp(32)
    mirror = jnp.eye(32) - 2 * jnp.outer(v, v) / jnp.dot(v, v)
    rows = 32
    return {
        "f32[16]": (scan_vector, (ramp(16), ramp(length, 16))),
        "rnn": (rnn, (ramp(16, 64), ramp(length, 16, 32), ramp(32, 64), ramp(64, 64), ramp(64))),
        "product": (product, (ramp(32, 32), mirror)),
        "nested": (nested, (ramp(16), ramp(length // rows, rows, 16))),
        "while": (while_, (ramp(16), jnp.int32(length))),
        "psum": (over_two, (put(ramp(32), "i"), put(ramp(length, 32), None, "i"))),
    }


if __name__ == "__main__":
    served_jax.prepare(devices=2)
    served_jax.serve(loops(int(sys.argv[1])))
