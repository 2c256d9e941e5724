"""The one op of bench/dispatch.cc in JAX on the CPU: jit(x + x) and block_until_ready.

Run by bench-dispatch --jax PYTHON with the number of elements.
"""
import sys

import served_jax


def main():
    served_jax.prepare()
    import jax.numpy as jnp
    import numpy as np

    x = jnp.asarray(np.arange(int(sys.argv[1]), dtype=np.float32))
    served_jax.serve({"x + x": (lambda x: x + x, (x,))})


if __name__ == "__main__":
    main()
