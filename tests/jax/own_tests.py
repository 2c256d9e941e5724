"""Runs JAX's own tests, from the installed version, on Tessera's devices.

  python tests/jax/own_tests.py --tests JAX/tests [--number N] [--rewrite] [FILE...]

JAX/tests is the folder of tests in a checkout of JAX. Without --tests the checkout is fetched from
GitHub at the tag of the installed version. Tests that do not pass are listed in own_failures.txt
with name and reason. The list only shrinks: the run fails if a test outside the list fails, and
also if a test of the list passes. --number runs only so many tests of each file, chosen by --seed.
Slow tests are left out (JAX_SKIP_SLOW_TESTS), and one case of each generated test is run
(JAX_NUM_GENERATED_CASES=1).
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax

HERE = pathlib.Path(__file__).resolve().parent
LIST = HERE / "own_failures.txt"
FILES = ("lax_test", "lax_numpy_test", "lax_numpy_indexing_test", "lax_control_flow_test", "lax_vmap_test",
         "lax_autodiff_test", "api_test", "nn_test", "shard_map_test", "pjit_test", "pmap_test")
DEVICES = 8
# longest time for the tests of one file, in seconds
PATIENCE = 1800


def fetched(folder):
    tag = f"jax-v{jax.__version__}"
    cloned = subprocess.run(["git", "clone", "-q", "--depth", "1", "--branch", tag, "https://github.com/jax-ml/jax",
                             folder])
    if cloned.returncode != 0:
        print("own_tests: JAX's tests are not to be had; name their folder with --tests", file=sys.stderr)
        sys.exit(77)
    return pathlib.Path(folder) / "tests"


def run_file(tests, name, number, seed):
    """Runs the tests of one file, or `number` of them. Returns {test: (outcome, message)}."""
    with tempfile.NamedTemporaryFile(suffix=".json") as outcomes:
        env = {**os.environ, "JAX_PLATFORMS": "tessera,cpu", "TESSERA_EMBEDDED": str(DEVICES),
               "JAX_SKIP_SLOW_TESTS": "1", "JAX_NUM_GENERATED_CASES": "1", "TESSERA_JAX_TESTS": str(number),
               "TESSERA_JAX_TESTS_SEED": str(seed), "TESSERA_JAX_OUTCOMES": outcomes.name,
               "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "own_tests_plugin",
                               f"{name}.py"], cwd=tests, env=env, capture_output=True, text=True, timeout=PATIENCE)
        text = pathlib.Path(outcomes.name).read_text()
    if not text:
        return {f"{name}.py": ("failed", f"pytest ended with {done.returncode}: " + (done.stdout + done.stderr)[-2000:])}
    return json.loads(text)


def read_list():
    found = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(maxsplit=1)
            found[name] = reason
    return found


def write_list(found):
    head = [line for line in LIST.read_text().splitlines() if line.startswith("#")]
    LIST.write_text("\n".join(head + [f"{name}  {reason}" for name, reason in sorted(found.items())]) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=pathlib.Path, help="the folder of JAX's tests")
    parser.add_argument("--number", type=int, default=0, help="number of tests of each file; 0 means all")
    parser.add_argument("--seed", default="1", help="seed of the choice of tests")
    parser.add_argument("--rewrite", action="store_true", help="write own_failures.txt anew for these files")
    parser.add_argument("files", nargs="*", metavar="FILE", default=FILES)
    options = parser.parse_args()
    expected, verdict = read_list(), 0
    with tempfile.TemporaryDirectory() as folder:
        tests = options.tests or fetched(folder)
        for name in options.files:
            outcomes = run_file(tests, name, options.number, options.seed)
            passed = [t for t, (kind, _) in outcomes.items() if kind == "passed"]
            failed = {t: what for t, (kind, what) in outcomes.items() if kind == "failed"}
            share = len(passed) / max(len(passed) + len(failed), 1)
            print(f"{name:26} {len(passed):5} passed {len(failed):4} failed  {share:.1%}", flush=True)
            if options.rewrite:
                expected = {t: r for t, r in expected.items() if not t.startswith(f"{name}.py")}
                expected.update({t: what.replace("\n", " ") for t, what in failed.items()})
                continue
            for test, what in failed.items():
                if test not in expected:
                    verdict = 1
                    print(f"  FAILED    {test}: {what}")
            for test in set(passed) & set(expected):
                verdict = 1
                print(f"  RUNS NOW  {test}: take it out of {LIST.name}")
    if options.rewrite:
        write_list(expected)
    return verdict


if __name__ == "__main__":
    sys.exit(main())
