"""Runs StableHLO's conformance cases through the service, as users do: a worker compiles and runs
each artifact that is sent over gRPC. (tests/stablehlo/served_cases_test.cc runs more of them.)

The cases are in a folder outside the checkout, which TESSERA_SHARED names. Without it the test is skipped.
"""
import base64
import gzip
import json
import os
import pathlib

import numpy as np
import pytest
import tessera

SHARED = os.environ.get("TESSERA_SHARED")
CASES = pathlib.Path(SHARED or "/nowhere") / "stablehlo/cases/interpret.jsonl.gz"
# At least this many cases must be right. The number grows when Tessera gets more ops.
RIGHT = 203

DTYPES = {"i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128",
          **{f"{s}{n}": f"{t}{n}" for s, t in (("i", "int"), ("ui", "uint")) for n in (8, 16, 32, 64)},
          **{f"f{n}": f"float{n}" for n in (16, 32, 64)}}


def array_of(value):
    """Returns the array of a value, or None if this client does not have its dtype."""
    if value["dtype"] not in DTYPES:
        return None
    data = base64.b64decode(value["data"])
    return np.frombuffer(data, DTYPES[value["dtype"]]).reshape(value["shape"])


def differs(got, want, check):
    """Returns what is wrong with a result, or "" if it is right."""
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"is {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    same = (got == want) | ((got != got) & (want != want))
    most = check.get("max") or 0
    with np.errstate(all="ignore"):
        if check["kind"] == "ulp":
            unit = np.spacing(np.maximum(np.abs(got), np.abs(want)))
            same |= np.abs(got - want) <= most * unit
        elif check["kind"] == "abs":
            same |= np.abs(got - want) <= most
    return "" if np.all(same) else f"is {got.ravel()[:8]}, not {want.ravel()[:8]}"


@pytest.mark.skipif(not CASES.exists(), reason="TESSERA_SHARED does not name the cases")
def test_every_case_that_is_read_gives_what_it_says(client):
    right, wrong, lacking = 0, [], []
    with gzip.open(CASES, "rt") as lines:
        for case in map(json.loads, lines):
            name = case["name"]
            if "upstream_disabled" in case:
                continue
            inputs, expected = ([array_of(v) for v in case[k]] for k in ("inputs", "expected"))
            if any(a is None for a in inputs + expected):
                lacking.append(f"{name}: dtype")
                continue
            try:
                executable = client.compile(base64.b64decode(case["program"]))
            except (tessera.UnimplementedError, tessera.InvalidArgumentError) as error:
                assert error.reason, name
                lacking.append(f"{name}: {error.message}")
                continue
            results = [client.get(out) for out in executable(*inputs)]
            assert len(results) == len(expected), name
            problems = [f"{name}: result {i} {problem}"
                        for i, (g, w, c) in enumerate(zip(results, expected, case["checks"]))
                        if (problem := differs(g, w, c))]
            wrong += problems
            right += not problems
    print(f"{right} right, {len(lacking)} lacking", *lacking, sep="\n  ")
    assert not wrong, "\n".join(wrong)
    assert right >= RIGHT
