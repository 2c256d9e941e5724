"""Tessera's devices for JAX: JAX_PLATFORMS=tessera python train.py.

JAX finds this package by its entry point and calls `initialize`. The cluster is the one whose
coordinator is at TESSERA_ADDRESS (with TESSERA_TOKEN and TESSERA_CA_FILE, as for every client).
TESSERA_EMBEDDED=N starts a cluster of N CPU devices in this process instead. Without either
variable nothing is registered, and JAX works as if this package were not installed: a plugin that
is registered but has no cluster would make every program fail.
"""

from __future__ import annotations

import os
import pathlib

from tessera_jax import callbacks

NAME = "tessera"


def library_path() -> str:
    """Returns the path of the plugin: TESSERA_PJRT_PLUGIN, or the file in this package."""
    named = os.environ.get("TESSERA_PJRT_PLUGIN")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name("pjrt_plugin_tessera.so")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: install tessera-jax from a build of Tessera, or set "
            "TESSERA_PJRT_PLUGIN to build/PRESET/lib/pjrt_plugin_tessera.so")
    return str(path)


def is_configured() -> bool:
    """Returns whether the environment names a cluster, or tells JAX to use Tessera.

    In the second case the plugin is registered even without a cluster, so that JAX reports what is
    missing.
    """
    return bool(os.environ.get("TESSERA_ADDRESS") or os.environ.get("TESSERA_EMBEDDED")
                or NAME in os.environ.get("JAX_PLATFORMS", "").split(","))


def initialize() -> None:
    """Registers the plugin if is_configured(). JAX calls this when it first looks for devices.

    A program may call it as well: a second call does nothing.
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
    """Returns the plan of a compiled program as text: where each value lies, what is moved, and how
    much memory a device needs.

    `compiled` is the result of jax.jit(f).lower(...).compile() for Tessera's devices.
    """
    return _told(compiled, "explain")


def visualize(compiled) -> None:
    """Prints a picture of a compiled program's plan: what each device holds, and what the devices
    exchange.

    `compiled` is the result of jax.jit(f).lower(...).compile() for Tessera's devices. For a picture
    of an array that exists, use jax.debug.visualize_array_sharding.
    """
    print(_told(compiled, "visualize"))


def visualize_svg(compiled) -> str:
    """Returns the arrays in the picture of visualize() as an SVG document."""
    return _told(compiled, "visualize_svg")


def _told(compiled, name: str) -> str:
    analysis = compiled.cost_analysis() or {}
    if name not in analysis:
        raise ValueError("the program is not compiled for Tessera's devices: there is no plan to explain")
    return analysis[name]


def _lower_as_on_cpus() -> None:
    """Makes JAX lower programs for Tessera as for CPUs.

    JAX then writes linear algebra as custom calls with the names of LAPACK, which Tessera reads.
    """
    from jax._src.interpreters import mlir

    for primitive, rule in mlir._platform_specific_lowerings["cpu"].items():
        mlir._platform_specific_lowerings[NAME].setdefault(primitive, rule)


def _allow_donation() -> None:
    """Adds Tessera to JAX's list of platforms that are told which arguments are donated."""
    from jax._src.interpreters import mlir

    if NAME not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(NAME)
