"""The plugin that own_tests.py loads into pytest. It makes JAX see Tessera's devices, and writes
the outcome of each test to a file."""
import json
import os
import random

import tessera_jax

tessera_jax.initialize()
_outcomes = {}


def name_of(nodeid):
    return nodeid.rsplit("/", 1)[-1]


def pytest_collection_modifyitems(config, items):
    """Keeps only TESSERA_JAX_TESTS tests of a file, chosen by the seed. With 0 it keeps all."""
    number = int(os.environ.get("TESSERA_JAX_TESTS", "0"))
    if number:
        items.sort(key=lambda item: item.nodeid)
        chosen = set(random.Random(os.environ["TESSERA_JAX_TESTS_SEED"]).sample(range(len(items)), min(number, len(items))))
        config.hook.pytest_deselected(items=[x for i, x in enumerate(items) if i not in chosen])
        items[:] = [x for i, x in enumerate(items) if i in chosen]


def pytest_runtest_logreport(report):
    name = name_of(report.nodeid)
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        _outcomes[name] = ["failed", (crash.message if crash else str(report.longrepr)).strip().splitlines()[0][:300]]
    elif report.skipped:
        _outcomes.setdefault(name, ["skipped", ""])
    elif report.when == "call":
        _outcomes.setdefault(name, ["passed", ""])


def pytest_sessionfinish():
    with open(os.environ["TESSERA_JAX_OUTCOMES"], "w") as file:
        json.dump(_outcomes, file)
