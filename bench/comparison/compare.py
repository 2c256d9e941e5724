#!/usr/bin/env python3
"""Runs one training on Tessera, on JAX and on Ray, and breaks it, each several times and in turns. Prints a table.

  scripts/compare [--rounds 3] [--patience 120] [--page docs/comparison.md]

scripts/compare builds what this program needs and makes its environment. A system is a command that prints the loss of
each step, a line each, and a way to find the process that computes one half of the batch. The program measures the
time from the start of the command to its first loss, the time of a step, and the time from the end (kill -9) or the
stop (SIGSTOP) of that process until the command ends. It also notes the last line of the command's error.
"""
import argparse
import contextlib
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests/service"), str(ROOT / "scripts")]
import daemons  # noqa: E402
import plugin_path  # noqa: E402

PYTHON = ROOT / "build/comparison-venv/bin/python"  # has JAX and Ray
STEPS_BEFORE_FAULT = 200


class Training:
    """A command that prints the loss of each step. Reads its lines on a thread and notes when each arrived."""

    def __init__(self, command, env=None):
        self.begin = time.monotonic()
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, env={**clean_environment(), **(env or {})}, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            start_new_session=True)
        self.times = []
        self.changed = threading.Condition()  # notified at each step, and when the output ends
        self.has_ended = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            with contextlib.suppress(ValueError), self.changed:
                float(line)
                self.times.append(time.monotonic())
                self.changed.notify()
        with self.changed:
            self.has_ended = True
            self.changed.notify()

    def wait_for_steps(self, count, patience):
        with self.changed:
            self.changed.wait_for(lambda: len(self.times) >= count or self.has_ended, patience)
            if len(self.times) < count:
                raise RuntimeError(f"{self.process.args} made {len(self.times)} steps:\n{self.error()}")

    def wait_for_end(self, patience):
        """Returns the seconds until the command has ended, or None if it has not within `patience`."""
        begin = time.monotonic()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        return time.monotonic() - begin

    def error(self):
        self.errors.seek(0)
        return self.errors.read()

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        self.errors.close()


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "JAX_", "XLA_", "RAY_"))}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Tessera:
    """A coordinator and two workers on this machine, and the script of JAX on them by the PJRT plugin."""
    name = "Tessera, a cluster"
    script = "train_jax.py"

    def __enter__(self):
        self.cluster = daemons.Cluster(workers=2, devices=1)
        return self

    def __exit__(self, *_):
        self.cluster.close()

    def train(self):
        return Training([PYTHON, HERE / self.script], plugin_environment(TESSERA_ADDRESS=self.cluster.address))

    def victim(self, _training):
        return self.cluster.executor_pids(1)[0]


def plugin_environment(**more):
    return {"TESSERA_PJRT_PLUGIN": os.environ["TESSERA_PJRT_PLUGIN"], "JAX_PLATFORMS": "tessera",
            "PYTHONPATH": plugin_path.plugin_path(ROOT / "build/comparison"), **more}


class TesseraEmbedded:
    """train_jax.py on a cluster of two devices inside the process of the script: no process can be killed alone."""
    name = "Tessera, inside the script's process"
    script = "train_jax.py"
    victim = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def train(self):
        return Training([PYTHON, HERE / self.script], plugin_environment(TESSERA_EMBEDDED="2"))


class Jax(TesseraEmbedded):
    """train_jax.py on two of JAX's own CPU devices, in one process."""
    name = "JAX, one process"

    def train(self):
        return Training([PYTHON, HERE / self.script],
                        {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"})


class JaxProcesses:
    """JAX with a process for each device, as on several hosts."""
    name = "JAX, a process for each device"
    script = "train_jax_processes.py"

    def __enter__(self):
        self.other = None
        return self

    def __exit__(self, *_):
        if self.other is not None:
            self.other.close()

    def train(self):
        if self.other is not None:
            self.other.close()
        port = str(free_port())
        command, env = [PYTHON, HERE / self.script], {"JAX_PLATFORMS": "cpu"}
        first = Training([*command, "0", port], env)
        self.other = Training([*command, "1", port], env)
        return first

    def victim(self, _training):
        return self.other.process.pid


class Ray:
    """Ray on this machine, with two actors."""
    name = "Ray, two actors"
    script = "train_ray.py"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def train(self):
        return Training([PYTHON, HERE / self.script], {"JAX_PLATFORMS": "cpu"})

    def victim(self, training):
        """The process of one actor, by its title."""
        for pid in descendants(training.process.pid):
            title = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            if title.startswith(b"ray::Worker"):
                return pid
        raise RuntimeError("no actor of Ray's was found")


def descendants(pid):
    """Returns the ids of the processes that `pid` has started, directly or through others."""
    found, parents = [], {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
    queue = [pid]
    while queue:
        parent = queue.pop()
        children = [pid for pid, its_parent in parents.items() if its_parent == parent]
        found += children
        queue += children
    return found


SYSTEMS = [Tessera, TesseraEmbedded, Jax, JaxProcesses, Ray]


def lines_of_code(script):
    """The number of lines that are neither empty, nor comments, nor the docstring of the file."""
    text = re.sub(r'^""".*?"""\n', "", (HERE / script).read_text(), count=1, flags=re.S)
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in text.splitlines())


def last_error(text):
    """Returns the line that a person reads first: the last line that names an error and is no frame of a C++ stack."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"Error|error|terminat|Timeout|died|lost", line)]
    lines = [line for line in lines if not line.startswith("@ ")]
    return re.sub(r"\s+", " ", lines[-1])[:160] if lines else ""


def measure_start(system, patience):
    """Returns the seconds to the first loss, and the median seconds of a step."""
    training = system.train()
    try:
        training.wait_for_steps(STEPS_BEFORE_FAULT, patience)
        first = training.times[0] - training.begin
        steps = training.times[20:STEPS_BEFORE_FAULT]  # The first steps fill caches.
        return first, statistics.median(b - a for a, b in zip(steps, steps[1:]))
    finally:
        training.close()


def measure_fault(system, signal_number, patience):
    """Returns the seconds from the signal to the end of the script, and its error. The seconds are None if the script
    did not end."""
    training = system.train()
    victim = None
    try:
        training.wait_for_steps(STEPS_BEFORE_FAULT, patience)
        victim = system.victim(training)
        os.kill(victim, signal_number)
        seconds = training.wait_for_end(patience)
        return seconds, last_error(training.error())
    finally:
        if victim is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGCONT)
        training.close()


def format_seconds(values, patience):
    ended = [v for v in values if v is not None]
    if len(ended) < len(values):
        return f"not within {patience} s"
    middle = statistics.median(ended)
    return f"{middle:.1f} s" if middle >= 1 else f"{1000 * middle:.0f} ms" if middle >= 0.01 else f"{1000 * middle:.2f} ms"


def run(rounds, patience):
    rows = {system: dict(first=[], step=[], killed=[], stopped=[], kill_error="", stop_error="") for system in SYSTEMS}
    for number in range(rounds):
        for system_class in SYSTEMS:
            row = rows[system_class]
            print(f"round {number + 1} of {rounds}: {system_class.name}", file=sys.stderr, flush=True)
            with system_class() as system:
                first, step = measure_start(system, patience)
                row["first"].append(first), row["step"].append(step)
                if system.victim is None:
                    continue
                ended, row["kill_error"] = measure_fault(system, signal.SIGKILL, patience)
                row["killed"].append(ended)
            with system_class() as system:
                # A stop that nobody notices takes all of the patience, so it is measured once.
                if row["stopped"] and row["stopped"][-1] is None:
                    continue
                ended, row["stop_error"] = measure_fault(system, signal.SIGSTOP, patience)
                row["stopped"].append(ended)
    return rows


def table(rows, patience):
    out = ["| | first loss | a step | worker killed: the script ends after | worker stopped: the script ends after | "
           "lines of the script |", "|---|---|---|---|---|---|"]
    for system, row in rows.items():
        faults = [format_seconds(row[key], patience) if row[key] else "" for key in ("killed", "stopped")]
        first, step = (format_seconds(row[key], patience) for key in ("first", "step"))
        out.append(f"| {system.name} | {first} | {step} | {faults[0]} | {faults[1]} | "
                   f"{lines_of_code(system.script)} |")
    out += ["", "The last line of each error:", ""]
    for system, row in rows.items():
        for key, what in (("kill_error", "killed"), ("stop_error", "stopped")):
            if row[key]:
                out.append(f"- {system.name}, worker {what}: `{row[key]}`")
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=int, default=120, help="seconds for a start, and for a script to end")
    parser.add_argument("--page", type=pathlib.Path, help="a page whose table is replaced")
    args = parser.parse_args()
    text = table(run(args.rounds, args.patience), args.patience)
    print(text)
    if args.page:
        page = args.page.read_text()
        begin, end = "<!-- table: begin -->\n", "<!-- table: end -->\n"
        before, rest = page.split(begin)
        args.page.write_text(before + begin + "\n" + text + "\n" + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
