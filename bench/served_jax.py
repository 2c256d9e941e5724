"""Makes and times calls of JAX on the CPU for bench/compared.h, which runs the scripts that use this module.

A script calls prepare() before it imports jax, and then serve(), serve_compilations() or serve_lowerings() with its
calls. That function then reads lines from standard input and prints one line for each:

  time<TAB>NAME<TAB>N        makes the call NAME N times, waits for each, and prints the times in microseconds
  enqueue<TAB>NAME<TAB>N     makes the call N times, then waits, and prints the mean time to make a call
  check<TAB>NAME<TAB>FILE    compares the call's results with the numbers in the file, and prints "equal" or the
                             difference
"""
import contextlib
import os
import sys
import time


def prepare(devices=1):
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"


def difference(results, path):
    import jax
    import jax.numpy as jnp
    import numpy as np

    got = np.fromfile(path)
    offset = 0
    for i, x in enumerate(jax.tree.leaves(results)):
        parts = 2 if jnp.iscomplexobj(x) else 1
        ours, offset = got[offset:offset + parts * x.size], offset + parts * x.size
        if ours.size < parts * x.size:
            return f"result {i} has fewer numbers than JAX's, {x.dtype}{x.shape}"
        theirs = np.asarray(x).ravel()
        theirs = theirs.view(theirs.real.dtype).astype(np.float64)
        tolerance = 100 * float(jnp.finfo(x.dtype).eps) if jnp.issubdtype(x.dtype, jnp.inexact) else 0
        if x.dtype == jnp.bfloat16:
            tolerance /= 25
        absolute_tolerance = tolerance * np.abs(theirs).max(initial=0)
        if not np.allclose(ours, theirs, rtol=tolerance, atol=absolute_tolerance, equal_nan=True):
            worst = np.argmax(np.abs(ours - theirs))
            return f"result {i} has {ours[worst]} at {worst}, JAX's {theirs[worst]}"
    return "equal" if offset == got.size else f"JAX has {offset} numbers, not {got.size}"


def serve(calls, compared=None):
    """Serves calls of jitted functions. `calls` maps a name to a function, its arguments and, if it needs one, a
    function that makes the context to call it in. `compared` maps a name to a function of the call's
    results, and the result of that function is compared in place of the results."""
    import jax

    compiled = {}
    for name, (f, args, *context) in calls.items():
        context = context[0] if context else contextlib.nullcontext
        run = jax.jit(f)
        with context():
            results = jax.block_until_ready(run(*args))
        single = isinstance(results, jax.Array)
        wait = type(results).block_until_ready if single else jax.block_until_ready
        compiled[name] = (run, args, context, wait)
    print("ready", flush=True)
    clock = time.perf_counter_ns
    for line in sys.stdin:
        command, name, operand = line.rstrip("\n").split("\t")
        run, args, context, wait = compiled[name]
        with context():
            if command == "check":
                results = run(*args)
                if compared and name in compared:
                    results = compared[name](results)
                print(difference(results, operand), flush=True)
                continue
            times = []
            if command == "enqueue":
                begin = clock()
                for _ in range(int(operand)):
                    results = run(*args)
                times.append((clock() - begin) / int(operand))
                wait(results)
            else:
                for _ in range(int(operand)):
                    begin = clock()
                    wait(run(*args))
                    times.append(clock() - begin)
        print(*(f"{t * 1e-3:.2f}" for t in times), flush=True)


def serve_compilations(programs):
    """Serves compilations. `programs` maps a name to a function and its arguments. The time is that of the function's
    first call after jax.clear_caches(), less the time of a call after it is compiled. "NAME, cpu" asks for the
    processor time of the compilation that was timed last. Only the last result is compared."""
    import jax

    def run(f, args):
        clocks = time.perf_counter_ns, time.process_time_ns
        begin = [clock() for clock in clocks]
        results = jax.block_until_ready(f(*args))
        return results, [clock() - b for clock, b in zip(clocks, begin)]

    print("ready", flush=True)
    for line in sys.stdin:
        command, name, operand = line.rstrip("\n").split("\t")
        if name.endswith(", cpu"):
            print(f"{cpu * 1e-3:.2f}", flush=True)
            continue
        f, args = programs[name]
        if command == "check":
            results, _ = run(jax.jit(f), args)
            print(difference(jax.tree.leaves(results)[-1:], operand), flush=True)
            continue
        jax.clear_caches()
        jitted = jax.jit(f)
        first, *later = (run(jitted, args)[1] for _ in range(3))
        wall, cpu = (t - min(others) for t, *others in zip(first, *later))
        print(f"{wall * 1e-3:.2f}", flush=True)


def serve_lowerings(programs):
    """Serves lowerings. `programs` maps a name to a function, its arguments and, if it needs one, a function that makes
    the context to call it in. jit(f).trace(...).lower() is timed N times, each time after jax.clear_caches(). "NAME,
    cpu" asks for the processor times of the lowerings that were timed last. Only the last result is compared."""
    import jax

    print("ready", flush=True)
    cpu = []
    for line in sys.stdin:
        command, name, operand = line.rstrip("\n").split("\t")
        if name.endswith(", cpu"):
            print(*(f"{t * 1e-3:.2f}" for t in cpu), flush=True)
            continue
        f, args, *context = programs[name]
        with (context[0] if context else contextlib.nullcontext)():
            if command == "check":
                results = jax.jit(f)(*args)
                print(difference(jax.tree.leaves(results)[-1:], operand), flush=True)
                continue
            wall, cpu = [], []
            for _ in range(int(operand)):
                jax.clear_caches()
                clocks = time.perf_counter_ns, time.process_time_ns
                begin = [clock() for clock in clocks]
                jax.jit(f).trace(*args).lower()
                for times, clock, b in zip((wall, cpu), clocks, begin):
                    times.append(clock() - b)
        print(*(f"{t * 1e-3:.2f}" for t in wall), flush=True)
