#!/usr/bin/env python3
"""Runs the JAX programs of docs/seeds and records what they print.

  scripts/jax_venv
  build/jax-venv/bin/python scripts/record_seeds.py           # writes examples/seeds/recorded.json
  build/jax-venv/bin/python scripts/record_seeds.py --check   # compares with it

The pages show parts of the programs and of what is recorded; examples/seeds/pages_test.py compares.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent / "examples/seeds"
RECORDED = HERE / "recorded.json"


def run(program):
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"})
    if done.returncode:
        sys.exit(f"{program}: {done.stderr}")
    return {"program": program.read_text().split("\n"), "prints": done.stdout.split("\n")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the recorded output and write nothing")
    args = parser.parse_args()
    programs = [p for p in sorted(HERE.glob("*.py")) if not p.name.endswith("_test.py")]
    now = {"versions": {name: importlib.metadata.version(name) for name in ("jax", "equinox")},
           "programs": {p.stem: run(p) for p in programs}}
    if not args.check:
        RECORDED.write_text(json.dumps(now, indent=1) + "\n")
        return
    recorded = json.loads(RECORDED.read_text())
    print("recorded with", recorded["versions"], "compared with", now["versions"])
    differ = [name for name, got in now["programs"].items() if got != recorded["programs"].get(name)]
    for name in differ:
        print(f"{name} differs: it prints", *now["programs"][name]["prints"], sep="\n  ")
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
