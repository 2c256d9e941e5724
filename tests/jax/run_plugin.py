"""Runs the programs of run.py through the PJRT plugin.

  TESSERA_PJRT_PLUGIN=build/dev/lib/pjrt_plugin_tessera.so \\
    PYTHONPATH=client/python/tessera_jax python tests/jax/run_plugin.py [--processes] [NAME...]

JAX jits the functions of run.py on Tessera's devices and on JAX's own CPUs, in one process. The
cluster is in this process too; with --processes it consists of a coordinator and workers in
processes of their own. plugin_failures.txt lists the programs that do not run yet, in the form that
expected_failures.txt has for run.py.
"""
import argparse
import collections
import contextlib
import importlib
import os
import pathlib
import sys
import time

DEVICES = 4
os.environ["JAX_PLATFORMS"] = "tessera,cpu"
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "service")]

import run  # noqa: E402  (it sets the number of JAX's own devices)
from registry import PROGRAMS, meshes_of  # noqa: E402

import jax  # noqa: E402
import tessera_jax  # noqa: E402

EXPECTED_FAILURES = HERE / "plugin_failures.txt"


def on_platform(platform):
    jax.clear_caches()  # traced functions hold the meshes of the other platform
    stack = contextlib.ExitStack()
    devices = jax.devices(platform)
    stack.enter_context(meshes_of(devices))
    stack.enter_context(jax.default_device(devices[0]))
    return stack


def run_program(program):
    """Runs a program with different numbers of devices. Returns an Outcome for each number."""
    args = program.inputs()
    with on_platform("cpu"):
        want = run.expected(program, args)
    outcomes = {}
    for devices in run.LAYOUTS if program.mesh_shape is None else (4,):
        start = time.monotonic()
        try:
            with on_platform("tessera"), run.within(program):
                function, given = run.jitted(program, args, devices)
                got = function(*given)
                platforms = {d.platform for leaf in jax.tree.leaves(got) for d in leaf.devices()}
                got = jax.device_get(got)
            what = "" if platforms <= {"tessera"} else f"it runs on {platforms}"
            what = what or run.mismatch(program, got, want)
            kind = "wrong" if what else "ok"
        except Exception as error:  # any exception is an outcome that is reported
            kind, what = "error", f"{type(error).__name__}: {error}".replace("\n", " ")
        outcomes[devices] = run.Outcome(kind, what, time.monotonic() - start)
    return outcomes


@contextlib.contextmanager
def cluster(processes):
    if not processes:
        os.environ["TESSERA_EMBEDDED"] = str(DEVICES)
        yield
        return
    import daemons
    with daemons.Cluster() as started:
        os.environ["TESSERA_ADDRESS"] = started.address
        yield


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", action="store_true", help="start the coordinator and the workers as processes")
    parser.add_argument("names", nargs="*", help="programs to run; by default all")
    options = parser.parse_args()
    run.EXPECTED_FAILURES = EXPECTED_FAILURES
    verdicts = collections.Counter()
    with cluster(options.processes):
        tessera_jax.initialize()  # JAX calls this itself for an installed package
        for module in run.MODULES:
            importlib.import_module(module)
        failures = run.read_expected_failures()
        for name in [*options.names, *failures]:
            if name not in PROGRAMS:
                parser.error(f"no program is named {name}")
        for name in options.names or PROGRAMS:
            outcomes = run_program(PROGRAMS[name])
            verdict, why = run.judge(name, outcomes, failures)
            verdicts[verdict] += 1
            seconds = " ".join(f"{d}:{o.seconds:.2f}s" for d, o in outcomes.items())
            print(f"{name:42} {verdict:17} {seconds}  {why}", flush=True)
    print(f"\n{sum(verdicts.values())} programs; {dict(verdicts)}")
    return 0 if set(verdicts) <= {"ran", "expected failure"} else 1


if __name__ == "__main__":
    sys.exit(main())
