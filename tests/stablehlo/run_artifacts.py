#!/usr/bin/env python3
"""Runs the artifacts that dump_artifacts writes in the installed JAX.

  build/jax-venv/bin/python tests/stablehlo/run_artifacts.py build/dev/bin/dump_artifacts

StableHLO's own deserializer reads and verifies every artifact. Artifacts with recorded values are
compiled and run on the CPU, some on several devices. The results must agree with those that JAX gave
for the op itself, within the tolerance of the op's sample.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

RECORDED = pathlib.Path(__file__).parents[1] / "ops" / "recorded"
SKIPPED = 77  # exit status that tells ctest that a test was skipped
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))

try:
    import jax
    import numpy as np
    from jax._src import compiler, xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg
    from jax._src.lib import xla_client
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo
    from sample_dtypes import DTYPES
except ImportError as error:
    print(f"skipped: {sys.executable} has no JAX: {error}")
    sys.exit(SKIPPED)

# Samples for which XLA gives another result than StableHLO specifies, and how they differ.
OF_XLA = {"convert/f8e8m0fnu/to_bool": "the least number, a subnormal of f32, is taken for 0",
          "cholesky/f64/not_definite": "both triangles are NaNs"}
FLOATS = {"f16": (16, 10), "bf16": (16, 7), "f32": (32, 23), "f64": (64, 52)}  # bits, mantissa


def array(value):
    return np.frombuffer(bytes.fromhex(value["hex"]), DTYPES[value["dtype"]]).reshape(
        value["shape"])


def ordinals(x, bits):
    """Maps floats to whole numbers in the same order, so that neighbours differ by one."""
    whole = x.view(f"int{bits}").astype(object)
    return np.where(whole >= 0, whole, -(whole + 2 ** (bits - 1)))


def difference(got, want, dtype, ulps, bound):
    """Returns why `got` differs from `want`, or "". Unless `bound` is None, it limits each absolute difference."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if not np.size(got):
        return ""
    if dtype.startswith("c"):
        part = "f32" if dtype == "c64" else "f64"
        return difference(np.ravel(got).view(DTYPES[part]), np.ravel(want).view(DTYPES[part]), part,
                          ulps, bound)
    got, want = np.atleast_1d(got), np.atleast_1d(want)
    if not dtype.startswith(("f", "bf")):
        if dtype.endswith(("2", "4")) and len(dtype) == 2:  # ignore the unused bits
            got, want = got.astype(np.int8), want.astype(np.int8)
        return "" if np.array_equal(got, want) else f"is {got.tolist()}, expected {want.tolist()}"
    with np.errstate(all="ignore"):
        g, w = got.astype(np.float64), want.astype(np.float64)
        nans = np.isnan(g) & np.isnan(w)
        bits = 8 if dtype not in FLOATS else FLOATS[dtype][0]
        apart = got.view(f"int{bits}") != want.view(f"int{bits}")
        finite = np.isfinite(g) & np.isfinite(w)
        if bound is not None:
            apart &= ~(np.abs(g - w) <= bound) | ~finite
        elif ulps > 0:
            distance = np.abs(ordinals(got, bits) - ordinals(want, bits))
            apart &= (distance > ulps).astype(bool) | ~finite
    apart &= ~nans
    if not apart.any():
        return ""
    at = np.argwhere(apart)[0]
    return f"element {at.tolist()} is {got[tuple(at)]!r}, expected {want[tuple(at)]!r}"


class Runner:
    def __init__(self):
        jax.config.update("jax_enable_x64", True)
        linalg.initialize_lapack()  # normally done by the first op of JAX
        self.context = mlir.make_ir_context()
        self.backend = xla_bridge.get_backend("cpu")
        self.devices = self.backend.local_devices()

    def read(self, artifact):
        with self.context:
            module = stablehlo.deserialize_portable_artifact(self.context, artifact)
            module.operation.verify()
            return module

    def run(self, module, operands, num_devices):
        """Returns the results. Every device holds every operand and every result whole."""
        devices = self.devices[:num_devices]
        options = compiler.get_compile_options(num_replicas=1, num_partitions=num_devices,
                                               device_assignment=np.arange(num_devices)[None])
        if num_devices > 1:
            options.executable_build_options.use_spmd_partitioning = True
            options.executable_build_options.use_shardy_partitioner = True
        with self.context:
            executable = self.backend.compile_and_load(
                module, xla_client.DeviceList(tuple(devices)), options)
        everywhere = NamedSharding(Mesh(np.array(devices), "d"), PartitionSpec())
        results = executable.execute_sharded([jax.device_put(x, everywhere) for x in operands])
        return [np.asarray(shards[0]) for shards in
                results.disassemble_into_single_device_arrays()]


def check(runner, folder, sample):
    """Returns how the sample fails, or "", and whether it ran."""
    try:
        module = runner.read((folder / sample["file"]).read_bytes())
    except Exception as error:  # the deserializer may throw anything
        return f"is not read: {error}", False
    if "excluded" in sample:
        return "", False
    try:
        got = runner.run(module, [array(x) for x in sample["operands"]],
                         sample["devices"])
    except Exception as error:
        return f"does not run: {str(error)[:500]}", False
    want = [array(x) for x in sample["expected"]]
    if len(got) != len(want):
        return f"has {len(got)} results, expected {len(want)}", True
    for i, (g, w) in enumerate(zip(got, want)):
        dtype = sample["expected"][i]["dtype"]
        bound = None
        if "magnitudes" in sample and dtype in FLOATS:
            epsilon = 2.0 ** -FLOATS[dtype][1]
            bound = sample["terms"] * epsilon * np.atleast_1d(
                array(sample["magnitudes"][i]).astype(np.float64))
        part = {"c64": "f32", "c128": "f64"}.get(dtype, dtype)
        if "scaled" in sample and part in FLOATS:
            parts = np.ravel(w).view(DTYPES[part]).astype(np.float64)
            finite = np.abs(parts[np.isfinite(parts)])
            bound = sample["scaled"] * 2.0 ** -FLOATS[part][1] * np.max(finite, initial=0)
        ulps = sample["ulps"][i] if "ulps" in sample else 0
        why = difference(g, w, dtype, ulps, bound)
        if why:
            return f"result {i}: {why}", True
    return "", True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump_artifacts", type=pathlib.Path)
    parser.add_argument("--only", default="", help="run only samples whose names begin with this text")
    parser.add_argument("--every", type=int, default=1, help="run only every N-th sample")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.dump_artifacts, folder, RECORDED], check=True)
        return run_all(pathlib.Path(folder), arguments)


def run_all(folder, arguments):
    runner = Runner()
    read = ran = 0
    failures = collections.defaultdict(list)
    for i, line in enumerate((folder / "samples.jsonl").read_text().splitlines()):
        sample = json.loads(line)
        if not sample["sample"].startswith(arguments.only):
            continue
        if i % arguments.every != 0:
            sample["excluded"] = "another one runs"
        why, did_run = check(runner, folder, sample)
        read += 0 if why.startswith("is not read") else 1
        ran += 1 if did_run else 0
        if did_run and sample["sample"] in OF_XLA:
            why = "" if why else "agrees now: it is no longer one of OF_XLA"
        if why:
            failures[sample["op"]].append(f"{sample['sample']}: {why}")
    for lines in failures.values():
        print("\n".join(lines))
    failed = sum(len(lines) for lines in failures.values())
    print(f"jax {jax.__version__}: {read} artifacts read, {ran} run, {failed} fail",
          {op: len(lines) for op, lines in failures.items()})
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
