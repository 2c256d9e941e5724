"""Makes the devices of a Tessera cluster devices of JAX.

A program of JAX needs no changed line, and no import of this package. If the package is installed, JAX finds it by its
entry point, and calls `initialize()` when the program first looks for devices.

Example:
    import jax

    print(jax.devices())  # [TesseraDevice(id=0), TesseraDevice(id=1), ...]
    print(jax.numpy.arange(3) + 1)  # [1 2 3]

Environment variables name the cluster: TESSERA_ADDRESS=HOST:PORT is a coordinator (with TESSERA_TOKEN and
TESSERA_CA_FILE, as for every client), and TESSERA_EMBEDDED=N starts a cluster of N CPU devices in this process instead.
Without either variable nothing is registered, and JAX works as if the package were not installed: a plugin that is
registered and has no cluster would make every program fail. docs/jax.md has a table of all variables.

The plan of a compiled program tells where its values lie and what its devices exchange: `explain()` returns it as text,
`visualize()` prints a picture of it, and `visualize_svg()` returns one.
"""

from __future__ import annotations

import os
import pathlib

from tessera_jax import callbacks

__all__ = ["explain", "initialize", "is_configured", "library_path", "visualize", "visualize_svg"]

NAME = "tessera"


def library_path() -> str:
    """Returns the path of the plugin, the shared object that JAX loads.

    Returns:
        str: the file that TESSERA_PJRT_PLUGIN names or, without that variable, the file in this package.

    Raises:
        FileNotFoundError: There is no such file. Install the package from a build of Tessera, or set
            TESSERA_PJRT_PLUGIN.

    Example:
        import tessera_jax

        print(tessera_jax.library_path())  # .../pjrt_plugin_tessera.so
    """
    named = os.environ.get("TESSERA_PJRT_PLUGIN")
    path = pathlib.Path(named) if named else pathlib.Path(__file__).with_name("pjrt_plugin_tessera.so")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: install tessera-jax from a build of Tessera, or set "
            "TESSERA_PJRT_PLUGIN to build/PRESET/lib/pjrt_plugin_tessera.so")
    return str(path)


def is_configured() -> bool:
    """Returns whether the environment names a cluster, or tells JAX to use Tessera.

    In the second case the plugin is registered even without a cluster, so that JAX reports what is missing.

    Returns:
        bool: True if TESSERA_ADDRESS or TESSERA_EMBEDDED is set and not empty, or if tessera is an entry of
        JAX_PLATFORMS.

    Example:
        import tessera_jax

        if not tessera_jax.is_configured():
            print("this program runs on JAX's own devices")
    """
    return bool(os.environ.get("TESSERA_ADDRESS") or os.environ.get("TESSERA_EMBEDDED")
                or NAME in os.environ.get("JAX_PLATFORMS", "").split(","))


def initialize() -> None:
    """Registers the plugin with JAX if `is_configured()`.

    JAX calls this function for an installed package. A program calls it only if the package is not installed but on
    PYTHONPATH, and then before it first looks for devices. A second call does nothing. The cluster is connected or
    started when JAX first looks for devices, and errors about it are raised there.

    Raises:
        FileNotFoundError: There is no plugin; see `library_path()`.
        ImportError: The plugin and this package come from different builds. Install both from the same build.
        RuntimeError: The plugin cannot be loaded, for example because a library that it needs is missing.

    Example:
        import jax
        import tessera_jax

        tessera_jax.initialize()
        print({device.platform for device in jax.devices()})  # {'tessera'}
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
    """Returns the plan of a compiled program as text.

    The plan tells where each value lies, what moves between devices, how much memory a device needs, and how long a run
    is predicted to take. docs/planner.md explains how to read it. The first call asks the coordinator for the plan;
    later calls for the same program do not.

    Args:
        compiled (jax.stages.Compiled): The result of `jax.jit(f).lower(...).compile()` for Tessera's devices.

    Returns:
        str: the text, of several lines.

    Raises:
        ValueError: The program is compiled for other devices. Do not retry.
        RuntimeError: JAX's error if the coordinator does not answer. Retry when it is back.

    Example:
        import jax
        import tessera_jax
        from jax.sharding import NamedSharding, PartitionSpec as P

        rows = NamedSharding(jax.make_mesh((2,), ("x",)), P("x"))
        x = jax.device_put(jax.numpy.ones((4, 2)), rows)
        compiled = jax.jit(lambda x: x.sum(axis=0)).lower(x).compile()
        print("psum" in tessera_jax.explain(compiled))  # True
    """
    return _told(compiled, "explain")


def visualize(compiled) -> None:
    """Prints a picture of a compiled program's plan: what each device has, and what the devices exchange.

    The picture has no colors, and lines of Unicode. For a picture of an array that exists, use
    `jax.debug.visualize_array_sharding`.

    Args:
        compiled (jax.stages.Compiled): The result of `jax.jit(f).lower(...).compile()` for Tessera's devices.

    Raises:
        ValueError: The program is compiled for other devices. Do not retry.
        RuntimeError: JAX's error if the coordinator does not answer. Retry when it is back.

    Example:
        import jax
        import tessera_jax

        compiled = jax.jit(lambda x: x * 2).lower(jax.numpy.ones(4)).compile()
        tessera_jax.visualize(compiled)
    """
    print(_told(compiled, "visualize"))


def visualize_svg(compiled) -> str:
    """Returns the arrays in the picture of `visualize()` as an SVG document.

    Args:
        compiled (jax.stages.Compiled): The result of `jax.jit(f).lower(...).compile()` for Tessera's devices.

    Returns:
        str: the document. Write it to a file that ends in .svg to see it in a browser.

    Raises:
        ValueError: The program is compiled for other devices. Do not retry.
        RuntimeError: JAX's error if the coordinator does not answer. Retry when it is back.

    Example:
        import pathlib

        import jax
        import tessera_jax

        compiled = jax.jit(lambda x: x * 2).lower(jax.numpy.ones(4)).compile()
        pathlib.Path("plan.svg").write_text(tessera_jax.visualize_svg(compiled))
    """
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
