"""Runs real JAX programs on a cluster, and compares the results with those of JAX on this machine.

  python tests/jax/run.py                    # every program; scripts/jax_programs makes the venv
  python tests/jax/run.py gpt_step map_psum  # only these

Each program (programs_*.py) is exported as a user would do it and sent to a cluster of four CPU
devices. The results are compared with those of jax.jit on the CPU. A program that says nothing
about devices runs three times: on one device, with its arguments sharded over two, and over 2x2.

Programs that do not run yet are in expected_failures.txt, one per line: "NAME  WORDS", where the
error contains these words. The run fails for a wrong number, for another error, and for a program
of that list that runs.
"""
import argparse
import collections
import contextlib
import importlib
import os
import pathlib
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "service")]

import jax  # noqa: E402
import jax.export  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec as P  # noqa: E402
from registry import PROGRAMS, mesh_of  # noqa: E402

# The names of source files in exported programs have no folders, so that they do not depend on the
# path of this checkout.
jax.config.update("jax_hlo_source_file_canonicalization_regex", ".*/")
MODULES = ("programs_numpy", "programs_control", "programs_edges", "programs_models",
           "programs_algorithms", "programs_libraries", "programs_linalg", "programs_sharded")
EXPECTED_FAILURES = HERE / "expected_failures.txt"
LAYOUTS = {1: None, 2: (2, 1), 4: (2, 2)}
# Tolerance relative to the largest number of a result. In f32, sums are added in different orders
# and functions are approximated differently. In half precision, XLA on CPUs computes in f32 and
# rounds elsewhere than we do; the tolerance is two units in the last place.
RTOL = {"float32": 2e-5, "complex64": 2e-5, "float16": 2**-9, "bfloat16": 2**-6}


def is_spec(value):
    return isinstance(value, P)


def shardings_of(mesh, specs, args):
    """Returns the sharding of each leaf of the arguments. A spec stands for all leaves below it."""
    whole = [jax.tree.map(lambda _, spec=s: NamedSharding(mesh, spec), a) if is_spec(s)
             else jax.tree.map(lambda s: NamedSharding(mesh, s), s, is_leaf=is_spec)
             for s, a in zip(specs, args)]
    return tuple(whole)


def shardings_over(mesh, args):
    """Returns a sharding for each argument that splits its first divisible dims over the axes of
    the mesh."""
    def sharding(a):
        axes, spec = [n for n in mesh.axis_names if mesh.shape[n] > 1], []
        for size in np.shape(a):
            fits = bool(axes) and size % mesh.shape[axes[0]] == 0
            spec.append(axes.pop(0) if fits else None)
        return NamedSharding(mesh, P(*spec))
    return tuple(jax.tree.map(sharding, a) for a in args)


def jitted(program, args, devices):
    """Returns the function jitted as its user would do it, and the arguments that the user would
    pass."""
    options = {}
    if program.mesh_shape is not None:
        mesh = program.mesh()
        shardings = shardings_of(mesh, program.shardings, args)
        if program.explicit:
            args = jax.tree.map(jax.device_put, args, shardings)
        else:
            options["in_shardings"] = shardings
        if program.out_shardings is not None:
            options["out_shardings"] = NamedSharding(mesh, program.out_shardings)
    elif devices > 1:
        options["in_shardings"] = shardings_over(mesh_of(LAYOUTS[devices]), args)
    return jax.jit(program.function, **options), args


def within(program):
    return jax.set_mesh(program.mesh()) if program.explicit else contextlib.nullcontext()


def types_of(program, args):
    def type_of(a):
        sharding = a.sharding if program.explicit else None
        return jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding)
    return jax.tree.map(type_of, args)


def export(program, args, devices):
    with within(program):
        function, args = jitted(program, args, devices)
        unchecked = [jax.export.DisabledSafetyCheck.custom_call(t) for t in program.custom_calls]
        return jax.export.export(function, platforms=["cpu"], disabled_checks=unchecked)(
            *types_of(program, args))


def expected(program, args):
    with within(program):
        function, args = jitted(program, args, 1)
        return jax.device_get(function(*args))


def mismatch(program, got, want):
    """Returns where the results differ, or "" if they are close enough."""
    if jax.tree.structure(got) != jax.tree.structure(want):
        return f"results of the form {jax.tree.structure(got)}, not {jax.tree.structure(want)}"
    for i, (g, w) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(want))):
        g, w = np.asarray(g), np.asarray(w)
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"result {i} is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}"
        rtol = RTOL.get(w.dtype.name, 0)
        if rtol == 0:
            wrong = g != w
        else:
            wide = np.complex128 if w.dtype.kind == "c" else np.float64
            g, w = g.astype(wide), w.astype(wide)
            finite = np.isfinite(w)
            scale = np.max(np.abs(w), where=finite, initial=0)
            with np.errstate(invalid="ignore"):
                far = np.abs(g - w) > max(rtol, program.rtol or 0) * scale
            same = (g == w) | (np.isnan(g) & np.isnan(w))
            wrong = ~same & (far | ~finite | ~np.isfinite(g))
        if np.any(wrong):
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            return (f"result {i}{list(at)} is {g[at]!r}, not {w[at]!r} "
                    f"({np.count_nonzero(wrong)} of {wrong.size} differ)")
    return ""


def read_expected_failures():
    found = {}
    for line in EXPECTED_FAILURES.read_text().splitlines():
        if line and not line.startswith("#"):
            name, words = line.split(maxsplit=1)
            found[name] = words
    return found


Outcome = collections.namedtuple("Outcome", "kind what seconds")  # kind: ok, wrong or error


def run_on_cluster(client, program):
    """Runs a program with different numbers of devices. Returns an Outcome for each number."""
    args = program.inputs()
    want = expected(program, args)
    outcomes = {}
    for devices in LAYOUTS if program.mesh_shape is None else (4,):
        exported = export(program, args, devices)
        start = time.monotonic()
        try:
            on = len(client.compile(exported, timeout=60).devices)
            what = "" if on == devices else f"it runs on {on}"
            what = what or mismatch(program, client.run(exported, *args, timeout=60), want)
            kind = "wrong" if what else "ok"
        except Exception as error:  # any exception is an outcome that is reported
            kind, what = "error", f"{type(error).__name__}: {error}".replace("\n", " ")
        outcomes[devices] = Outcome(kind, what, time.monotonic() - start)
    return outcomes


def judge(name, outcomes, failures):
    """Returns (verdict, why). The verdicts "ran" and "expected failure" are successes."""
    for devices, outcome in outcomes.items():
        if outcome.kind == "wrong":
            return "WRONG", f"on {devices}: {outcome.what}"
    words = failures.get(name)
    errors = {d: o.what for d, o in outcomes.items() if o.kind == "error"}
    if words is None:
        for devices, what in errors.items():
            return "FAILED", f"on {devices}: {what}"
        return "ran", ""
    if not errors:
        return "RUNS NOW", f"take it out of {EXPECTED_FAILURES.name}"
    for devices, what in errors.items():
        if words not in what:
            return "FAILED", f"on {devices}, not for {words}: {what}"
    return "expected failure", words


@contextlib.contextmanager
def connected():
    import daemons
    import tessera
    with daemons.Cluster() as cluster, tessera.connect(cluster.address, timeout=60) as client:
        yield client


def main(connect=connected):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs to run; by default all")
    names = parser.parse_args().names
    for module in MODULES:
        importlib.import_module(module)
    failures = read_expected_failures()
    for name in [*names, *failures]:
        if name not in PROGRAMS:
            parser.error(f"no program is named {name}")
    verdicts, runs = collections.Counter(), collections.Counter()
    lacking = collections.Counter()
    with connect() as client:
        for name in names or PROGRAMS:
            outcomes = run_on_cluster(client, PROGRAMS[name])
            verdict, why = judge(name, outcomes, failures)
            verdicts[verdict] += 1
            runs.update(f"{d} devices" for d, o in outcomes.items() if o.kind == "ok")
            if verdict == "expected failure":
                lacking[why] += 1
            seconds = " ".join(f"{d}:{o.seconds:.2f}s" for d, o in outcomes.items())
            print(f"{name:42} {verdict:17} {seconds}  {why}", flush=True)
    of_shards = sum(p.mesh_shape is not None for p in PROGRAMS.values())
    print(f"\n{len(PROGRAMS)} programs, {of_shards} of them sharded; {dict(verdicts)}")
    print(f"right on {dict(runs)}")
    for what, n in lacking.most_common():
        print(f"  {n:3} for {what}")
    return 0 if set(verdicts) <= {"ran", "expected failure"} else 1


if __name__ == "__main__":
    sys.exit(main())
