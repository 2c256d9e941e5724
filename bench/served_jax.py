"""Serves calls of JAX on the CPU to bench/compared.h, which runs the scripts that use it.

A script calls prepare() before it imports jax, and serve(), serve_compilations() or serve_lowerings() with its calls.
For each line "time<TAB>NAME<TAB>N" on standard input that call is made N times, each waited for, and the times are
printed in microseconds; for "enqueue" in place of "time" none is waited for until all are made, and the mean time of
those N is printed. For "check<TAB>NAME<TAB>FILE" its results are compared with the numbers in the file: "equal" is
printed, or what differs.
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
    at = 0
    for i, x in enumerate(jax.tree.leaves(results)):
        parts = 2 if jnp.iscomplexobj(x) else 1
        ours, at = got[at:at + parts * x.size], at + parts * x.size
        if ours.size < parts * x.size:
            return f"result {i} has fewer numbers than JAX's, {x.dtype}{x.shape}"
        theirs = np.asarray(x).ravel()
        theirs = theirs.view(theirs.real.dtype).astype(np.float64)
        near = 100 * float(jnp.finfo(x.dtype).eps) if jnp.issubdtype(x.dtype, jnp.inexact) else 0
        if x.dtype == jnp.bfloat16:
            near /= 25
        near_zero = near * np.abs(theirs).max(initial=0)
        if not np.allclose(ours, theirs, rtol=near, atol=near_zero, equal_nan=True):
            worst = np.argmax(np.abs(ours - theirs))
            return f"result {i} has {ours[worst]} at {worst}, JAX's {theirs[worst]}"
    return "equal" if at == got.size else f"JAX has {at} numbers, not {got.size}"


def serve(calls, compared=None):
    """`calls`: by name, a function, its arguments and, if it has one, a maker of the context to call it in.
    `compared`: by name, a function of the results whose results are compared in their place."""
    import jax

    compiled = {}
    for name, (f, args, *around) in calls.items():
        around = around[0] if around else contextlib.nullcontext
        run = jax.jit(f)
        with around():
            results = jax.block_until_ready(run(*args))
        single = isinstance(results, jax.Array)
        wait = type(results).block_until_ready if single else jax.block_until_ready
        compiled[name] = (run, args, around, wait)
    print("ready", flush=True)
    clock = time.perf_counter_ns
    for line in sys.stdin:
        what, name, operand = line.rstrip("\n").split("\t")
        run, args, around, wait = compiled[name]
        with around():
            if what == "check":
                results = run(*args)
                if compared and name in compared:
                    results = compared[name](results)
                print(difference(results, operand), flush=True)
                continue
            times = []
            if what == "enqueue":
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
    """`programs`: by name, a function and its arguments. What is timed is the first call of the function in a process
    without caches, less a call once it is compiled; "NAME, cpu" stands for the processor time of the last that was
    timed. What is compared is the last result."""
    import jax

    def run(f, args):
        clocks = time.perf_counter_ns, time.process_time_ns
        begin = [clock() for clock in clocks]
        results = jax.block_until_ready(f(*args))
        return results, [clock() - b for clock, b in zip(clocks, begin)]

    print("ready", flush=True)
    for line in sys.stdin:
        what, name, operand = line.rstrip("\n").split("\t")
        if name.endswith(", cpu"):
            print(f"{cpu * 1e-3:.2f}", flush=True)
            continue
        f, args = programs[name]
        if what == "check":
            results, _ = run(jax.jit(f), args)
            print(difference(jax.tree.leaves(results)[-1:], operand), flush=True)
            continue
        jax.clear_caches()
        jitted = jax.jit(f)
        first, *later = (run(jitted, args)[1] for _ in range(3))
        wall, cpu = (t - min(others) for t, *others in zip(first, *later))
        print(f"{wall * 1e-3:.2f}", flush=True)


def serve_lowerings(programs):
    """`programs`: by name, a function, its arguments and, if it has one, a maker of the context to call it in. What is
    timed is jit(f).trace(...).lower(), N times, without caches; "NAME, cpu" stands for the processor times of
    those that were timed last. What is compared is the last result."""
    import jax

    print("ready", flush=True)
    cpu = []
    for line in sys.stdin:
        what, name, operand = line.rstrip("\n").split("\t")
        if name.endswith(", cpu"):
            print(*(f"{t * 1e-3:.2f}" for t in cpu), flush=True)
            continue
        f, args, *around = programs[name]
        with (around[0] if around else contextlib.nullcontext)():
            if what == "check":
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
