"""The chains of bench/elementwise.cc in JAX on the CPU.

`bench-elementwise --jax PYTHON` runs this script, which prints a line "name<TAB>threads<TAB>seconds" for each case with
the time of the fastest round. XLA's thread pool has one thread for each CPU that its process may use. The script
therefore measures each number of threads in a child that may use as many CPUs.
"""
import os
import subprocess
import sys
import time

ROW = 1024


def measure(elements, rounds, threads):
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    import numpy as np

    def fill(n):
        return jnp.asarray(((np.arange(n) % 61) * 0.05 - 1.5).astype(np.float32))

    rows = elements // ROW
    x = fill(elements).reshape(rows, ROW)
    w, b, g = fill(ROW), fill(ROW), fill(ROW)
    m, r = fill(rows).reshape(rows, 1), fill(rows).reshape(rows, 1)
    cases = {
        "x * w + b": (lambda x, w, b, g, m, r: x * w + b),
        "tanh(x * w + b) * g": (lambda x, w, b, g, m, r: jnp.tanh(x * w + b) * g),
        "exp(x - m) * r": (lambda x, w, b, g, m, r: jnp.exp(x - m) * r),
        "row sum": (lambda x, w, b, g, m, r: jnp.sum(x, axis=1)),
    }
    for name, f in cases.items():
        run = jax.jit(f)
        for _ in range(2):
            run(x, w, b, g, m, r).block_until_ready()
        seconds = []
        for _ in range(rounds):
            begin = time.perf_counter()
            run(x, w, b, g, m, r).block_until_ready()
            seconds.append(time.perf_counter() - begin)
        print(f"{name}\t{threads}\t{min(seconds)}", flush=True)


def main():
    elements, rounds = int(sys.argv[1]), int(sys.argv[2])
    if len(sys.argv) > 3:
        threads = int(sys.argv[3])
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        measure(elements, rounds, threads)
        return
    for threads in (1, 2):
        subprocess.run([sys.executable, *sys.argv, str(threads)], check=True)


if __name__ == "__main__":
    main()
