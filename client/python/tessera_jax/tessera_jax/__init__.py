"""Tessera's devices for JAX: JAX_PLATFORMS=tessera python train.py.

JAX finds this package by its entry point and calls `initialize`. The cluster is the coordinator at
TESSERA_ADDRESS (with TESSERA_TOKEN and TESSERA_CA_FILE as for every client), or TESSERA_EMBEDDED=N
makes one of N CPU devices in this process. Without either nothing is registered, and JAX is as if
the package was not there: a plugin that is registered and has no cluster fails every program.
"""

from __future__ import annotations

import os
import pathlib

from tessera_jax import callbacks

NAME = "tessera"


def library_path() -> str:
    """The shared object: TESSERA_PJRT_PLUGIN, or the one in this package."""
    named = os.environ.get("TESSERA_PJRT_PLUGIN")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name("pjrt_plugin_tessera.so")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: install tessera-jax from a build of Tessera, or set "
            "TESSERA_PJRT_PLUGIN to build/PRESET/lib/pjrt_plugin_tessera.so")
    return str(path)


def is_configured() -> bool:
    """Whether a cluster is named, or JAX is told to use Tessera and shall say what is missing."""
    return bool(os.environ.get("TESSERA_ADDRESS") or os.environ.get("TESSERA_EMBEDDED")
                or NAME in os.environ.get("JAX_PLATFORMS", "").split(","))


def initialize() -> None:
    """Registers the plugin, if a cluster is named. JAX calls it when it first looks for devices.

    A program may call it, too: a second call does nothing.
    """
    if not is_configured():
        return
    from jax._src import xla_bridge  # the documented way of plugins

    if NAME in xla_bridge._backend_factories:
        return
    path = library_path()
    xla_bridge.register_plugin(NAME, priority=500, library_path=path)
    _lower_as_on_cpus()
    _allow_donation()
    callbacks.install(path, NAME)


def explain(compiled) -> str:
    """The plan of a compiled program, as text: where each value lies, what moves, the memory of a device.

    `compiled` is jax.jit(f).lower(...).compile(), for Tessera's devices.
    """
    return _told(compiled, "explain")


def visualize(compiled) -> None:
    """Prints a picture of a compiled program's plan: what each device holds, and what they exchange.

    `compiled` is jax.jit(f).lower(...).compile(), for Tessera's devices. Of an array that is there,
    jax.debug.visualize_array_sharding is a picture.
    """
    print(_told(compiled, "visualize"))


def visualize_svg(compiled) -> str:
    """The arrays of that picture as an SVG document."""
    return _told(compiled, "visualize_svg")


def _told(compiled, name: str) -> str:
    analysis = compiled.cost_analysis() or {}
    if name not in analysis:
        raise ValueError("the program is not compiled for Tessera's devices: there is no plan to explain")
    return analysis[name]


def _lower_as_on_cpus() -> None:
    """Tessera reads what JAX writes for CPUs: linear algebra comes as calls of LAPACK's names."""
    from jax._src.interpreters import mlir

    for primitive, rule in mlir._platform_specific_lowerings["cpu"].items():
        mlir._platform_specific_lowerings[NAME].setdefault(primitive, rule)


def _allow_donation() -> None:
    """JAX keeps a list of the platforms to which it says that an argument is donated."""
    from jax._src.interpreters import mlir

    if NAME not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(NAME)
