"""The one op of bench/dispatch.cc in JAX on the CPU: jit(x + x) and block_until_ready.

Run by bench-dispatch --jax PYTHON. For each line "N" on standard input it makes N round trips, one at a
time, and prints a line with their times in microseconds.
"""
import os
import sys
import time


def main():
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np

    double = jax.jit(lambda x: x + x)
    x = jnp.asarray(np.arange(int(sys.argv[1]), dtype=np.float32))
    got = double(x).block_until_ready()
    assert (np.asarray(got) == 2 * np.arange(x.size, dtype=np.float32)).all()
    print("ready", flush=True)
    clock = time.perf_counter_ns
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = clock()
            double(x).block_until_ready()
            times.append(clock() - begin)
        print(*(f"{t * 1e-3:.2f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
