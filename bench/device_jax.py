"""The kernels and products of bench/device.cc in JAX on the same GPU, for scripts/gpu_check.

Each time is the mean of a batch of calls that are all dispatched before any is waited for, as in
bench-device. The median of several batches is printed. Every call makes a new result array here, while
bench-device writes into the same array.
"""
import statistics
import sys
import time

BATCH, ROUNDS = 10, 11


def main():
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        print(f"no JAX here: {error}")
        return 0
    if jax.default_backend() != "gpu":
        print(f"JAX {jax.__version__} has no GPU here")
        return 0
    count, n = 1 << 26, 4096
    x = jax.random.normal(jax.random.key(0), (count,), jnp.float32)
    y = jax.random.normal(jax.random.key(1), (count,), jnp.float32)
    rows = x.reshape(-1, 1024)
    cases = {
        "add": (jax.jit(lambda x, y: x + y), (x, y)),
        "exp(tanh(x) x)": (jax.jit(lambda x: jnp.exp(jnp.tanh(x) * x)), (x,)),
        "row sum": (jax.jit(lambda x: x.sum(axis=1)), (rows,)),
    }
    for dtype, precision in ((jnp.bfloat16, None), (jnp.float32, "default"), (jnp.float32, "highest")):
        a = jax.random.normal(jax.random.key(2), (n, n), dtype)
        name = f"{n}^3 {jnp.dtype(dtype).name}" + (f", {precision}" if precision else "")
        cases[name] = (jax.jit(lambda a, b, p=precision: jnp.matmul(a, b, precision=p)), (a, a))
    samples = {name: [] for name in cases}
    for f, args in cases.values():
        f(*args).block_until_ready()
    for _ in range(ROUNDS):
        for name, (f, args) in cases.items():
            begin = time.perf_counter()
            for _ in range(BATCH):
                out = f(*args)
            out.block_until_ready()
            samples[name].append((time.perf_counter() - begin) / BATCH * 1e6)
    print(f"{f'JAX {jax.__version__}':28} {'us':>12}")
    for name, times in samples.items():
        print(f"{name:28} {statistics.median(times):12.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
