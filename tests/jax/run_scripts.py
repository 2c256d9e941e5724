"""Runs the scripts of tests/jax/plugin on JAX's own CPU and on Tessera, and compares their results.

  TESSERA_BIN_DIR=build/dev/bin TESSERA_PJRT_PLUGIN=build/dev/lib/pjrt_plugin_tessera.so \\
    python tests/jax/run_scripts.py [--embedded] [--devices N]... [NAME...]

The scripts know nothing of Tessera. Each runs in a process of its own, on the CPU and on clusters
with one and with four devices. The Python that runs this needs the packages of requirements.txt
(scripts/jax_venv). A cluster is a coordinator and workers, reached over gRPC; with --embedded it is
inside the script's process. In the last run a worker is killed while a script trains (FAULT).
"""
import argparse
import collections
import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE.parent / "service"), str(ROOT / "scripts")]
SCRIPTS = {path.stem: path for path in sorted((HERE / "plugin").glob("*.py"))}
PATIENCE = 300  # seconds that a script may take
MEMORY = ["--device-memory-bytes=536870912"]
CLUSTERS = {1: dict(workers=1, devices=1, worker_flags=MEMORY), 4: dict(workers=2, devices=2, worker_flags=MEMORY)}
METRICS = {"coordinator": {"TESSERA_METRICS_LISTEN": "127.0.0.1:0"}}
FAULT, FAULT_SCRIPT = "a_killed_worker", "fsdp_transformer"

FAULT_PATIENCE = 60
FAULT_SAYS = {"worker": r"(?m)^.*JaxRuntimeError: (ABORTED|UNAVAILABLE): WORKER_LOST: .*\bw1\b.*$",
              "line": rf'File ".*{FAULT_SCRIPT}.py", line \d+, in main'}

# (rtol, atol) for the arrays that a script saves. They are f32 and come from some dozens of steps
# in which sums are added in different orders.
CLOSE = (1e-4, 1e-5)
# Tolerances where CLOSE cannot hold: script -> array, or "*" -> (rtol, atol), each with its reason.
#
# For chains of samplers: whether a step is accepted may depend on the last bit of a sum. From the first
# decision that differs, the two chains are different samples of one posterior. The draws before
# that are compared like other arrays. The means of n effective draws with standard deviation s
# differ by s * sqrt(2 / n) (one standard deviation), and their standard deviations by about s /
# sqrt(n). The tolerance is four times as much.
TOLERANCES = {
    "blackjax_hmc": {"loc": (0, 0.013), "loc_std": (0, 0.009), "scale": (0, 0.01), "scale_std": (0, 0.007),
                     "r_hat": (0, 0.02)},  # n = 1,600, s = 0.09 and 0.066
    "numpyro_eight_schools": {"mu": (0, 0.26), "theta": (0, 0.45), "theta_std": (0, 0.45), "log_density": (0, 0.03),
                              "r_hat": (0, 0.01)},  # n = 5,000, s = 3.3 and 5.5
    "numpyro_regression": {"slopes_mean": (0, 0.008), "slopes_std": (0, 0.005), "intercept_mean": (0, 0.008),
                           "sigma_mean": (0, 0.006), "predicted": (0, 0.016),
                           "r_hat": (0, 0.02)},  # n = 700, s = 0.037
    # The values are bf16: one that is rounded the other way is off by one unit.
    "orbax_checkpoint": {"average": (2**-7, 1e-5)},
    # L-BFGS stops where the gradient is below 1e-3. The smallest curvature there is 0.4, so the
    # result may be anywhere within 2.6e-3.
    "optax_optimisers": {"found": (0, 1e-3)},
}


class Wrong(Exception):
    """A script did or saved something that it should not have."""


def last_lines(said, count=20):
    lines = [line for line in said.replace("\r", "\n").splitlines() if line.strip()]
    return "\n".join((["..."] if len(lines) > count else []) + lines[-count:])


def environment(path, platform, **more):
    """Returns the environment of a script. It has no settings of JAX or Tessera except the plugin's
    path and those given."""
    kept = {k: v for k, v in os.environ.items()
            if k == "TESSERA_PJRT_PLUGIN" or not k.startswith(("JAX_", "XLA_", "TESSERA_"))}
    return {**kept, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "JAX_PLATFORMS": platform, **more}


def run_script(name, env, folder):
    """Runs a script. Returns the arrays that it saved, by name, and the seconds that it took."""
    saved = pathlib.Path(folder) / "saved.npz"
    saved.unlink(missing_ok=True)
    start = time.monotonic()
    try:
        done = subprocess.run([sys.executable, SCRIPTS[name], saved], env=env, cwd=folder, text=True, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as expired:
        said = (expired.stdout or b"").decode(errors="replace")
        raise Wrong(f"not done after {PATIENCE} s\n{last_lines(said)}") from None
    seconds = time.monotonic() - start
    if done.returncode != 0:
        raise Wrong(f"exit status {done.returncode}\n{last_lines(done.stdout)}")
    with np.load(saved) as arrays:
        return dict(arrays), seconds


def mismatches(name, got, want):
    """Returns a line for each array that differs."""
    if got.keys() != want.keys():
        return [f"it saved {sorted(got)}, not {sorted(want)}"]
    lines, tolerances = [], TOLERANCES.get(name, {})
    for key, w in want.items():
        g = got[key]
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            lines.append(f"{key} is {g.dtype}{list(g.shape)}, not {w.dtype}{list(w.shape)}")
            continue
        if not np.all(np.isfinite(w)):
            lines.append(f"{key} is not finite on the CPU: nothing to compare with")
            continue
        rtol, atol = tolerances.get(key, tolerances.get("*", CLOSE)) if w.dtype.kind in "fc" else (0, 0)
        wrong = ~np.isclose(g, w, rtol=rtol, atol=atol)
        if wrong.any():
            at = tuple(int(k) for k in np.argwhere(wrong)[0])
            lines.append(f"{key}{list(at)} is {g[at]!r}, not {w[at]!r} ({np.count_nonzero(wrong)} of {wrong.size} "
                         f"differ, by up to {np.max(np.abs(g - w)):.3g}; rtol {rtol}, atol {atol})")
    return lines


@dataclasses.dataclass(frozen=True)
class Place:
    """A cluster: the variables by which a script finds it, and a function that counts its ended
    runs."""
    variables: dict
    runs: Callable = lambda: math.nan


def runs_of(cluster):
    log = (cluster.folder / "coordinator.log").read_text()
    address = re.search(r"metrics\S* .*(127\.0\.0\.1:\d+)", log)[1]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        counted = re.findall(r"(?m)^tessera_operations_completed_total{(.*)} (\S+)$", answer.read().decode())
    return sum(int(float(count)) for labels, count in counted if 'kind="execute"' in labels)


def run_everywhere(name, path, places):
    """Runs a script on the CPU and on each of `places` (devices -> Place). Returns (verdict,
    seconds by place, why)."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            want, seconds["cpu"] = run_script(name, environment(path, "cpu"), folder)
        except Wrong as error:
            return "FAILED ON CPU", seconds, str(error)
        why = []
        for devices, place in places.items():
            env = environment(path, "tessera,cpu", TESSERA_MIN_DEVICES=str(devices), **place.variables)
            before = place.runs()
            try:
                got, seconds[devices] = run_script(name, env, folder)
                if place.runs() == before:
                    raise Wrong("nothing ran on the cluster")
                why += [f"on {devices}: {line}" for line in mismatches(name, got, want)]
            except Wrong as error:
                why.append(f"on {devices}: {error}")
    return "FAILED" if why else "ran", seconds, "\n".join(why)


@contextlib.contextmanager
def clusters(devices, embedded):
    """Yields a Place for each number of devices."""
    if embedded:
        yield {n: Place({"TESSERA_EMBEDDED": str(n)}) for n in devices}
        return
    import daemons
    with contextlib.ExitStack() as stack:
        started = {n: stack.enter_context(daemons.Cluster(**CLUSTERS[n], environments=METRICS)) for n in devices}
        yield {n: Place({"TESSERA_ADDRESS": c.address}, functools.partial(runs_of, c)) for n, c in started.items()}


def killed_worker(path):
    """Kills a worker while a script trains for long. The script must end with an exception that
    names the worker and the line of the script. Returns the exception's text, and the seconds from
    the kill to the end of the script."""
    import daemons
    with tempfile.TemporaryDirectory() as folder, daemons.Cluster(**CLUSTERS[4]) as cluster:
        env = environment(path, "tessera,cpu", TESSERA_ADDRESS=cluster.address, TESSERA_MIN_DEVICES="4")
        saved = pathlib.Path(folder) / "saved.npz"
        training = subprocess.Popen([sys.executable, SCRIPTS[FAULT_SCRIPT], saved, str(10**6)], env=env, cwd=folder,
                                    text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT)
        impatience = threading.Timer(PATIENCE, training.kill)
        impatience.start()
        try:
            before = ""
            for line in training.stdout:
                before += line
                if line.startswith("step 20:"):
                    break
            else:
                raise Wrong(f"it never came to step 20\n{last_lines(before)}")
            cluster.kill_worker(1)
            start = time.monotonic()
            said, _ = training.communicate(timeout=FAULT_PATIENCE)
        except subprocess.TimeoutExpired:
            raise Wrong(f"still there {FAULT_PATIENCE} s after its worker was killed") from None
        finally:
            impatience.cancel()
            training.kill()
            training.wait()
    seconds = time.monotonic() - start
    for what, pattern in FAULT_SAYS.items():
        if not re.search(pattern, said):
            raise Wrong(f"what it says names no {what}\n{last_lines(said)}")
    return re.search(FAULT_SAYS["worker"], said)[0], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--embedded", action="store_true", help="put the cluster into the script's process")
    parser.add_argument("--devices", type=int, action="append", choices=CLUSTERS,
                        help="number of devices of a cluster; by default clusters of 1 and of 4 devices are used")
    parser.add_argument("names", nargs="*", help=f"scripts to run, or {FAULT}; by default all")
    options = parser.parse_args()
    for name in [*options.names, *TOLERANCES]:
        if name not in SCRIPTS and name != FAULT:
            parser.error(f"no script is named {name}")
    verdicts = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        import plugin_path
        path = plugin_path.plugin_path(folder)
        with clusters(options.devices or list(CLUSTERS), options.embedded) as places:
            for name in options.names or SCRIPTS:
                if name == FAULT:
                    continue
                verdict, seconds, why = run_everywhere(name, path, places)
                verdicts[verdict] += 1
                times = " ".join(f"{place}:{s:.1f}s" for place, s in seconds.items())
                print(f"{name:28} {verdict:14} {times}", flush=True)
                if why:
                    print(re.sub("^", "    ", why, flags=re.MULTILINE), flush=True)
        if FAULT in options.names or not (options.names or options.embedded):
            try:
                text, seconds = killed_worker(path)
                verdict, times = "ran", f"{seconds:.1f}s after the kill: {text}"
            except Wrong as error:
                verdict, times = "FAILED", str(error)
            verdicts[verdict] += 1
            print(f"{FAULT:28} {verdict:14} {times}", flush=True)
    print(f"\n{sum(verdicts.values())} scripts; {dict(verdicts)}")
    return 0 if set(verdicts) <= {"ran"} else 1


if __name__ == "__main__":
    sys.exit(main())
