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
registered and has no cluster would make every program fail. With one of them, a program runs on Tessera's devices or
fails; it never runs on JAX's own CPU instead. docs/jax.md has a table of all variables.

Ctrl-C cancels the runs that the program waits for, and `cancel()` cancels all runs. A device of JAX has two more
attributes, which change: `device.state` is "ready" unless something is wrong with the device, and `device.why` says
what that is.

The plan of a compiled program tells where its values lie and what its devices exchange: `explain()` returns it as text,
`visualize()` prints a picture of it, and `visualize_svg()` returns one.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys

from tessera_jax import callbacks, interrupts, library, states, variables

__all__ = ["cancel", "explain", "initialize", "is_configured", "library_path", "visualize", "visualize_svg"]

NAME = "tessera"
_PRIORITY = 500  # among JAX's platforms; its own CPU has 0
_plugin: library.Library | None = None
_has_warned = False


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
        bool: True if tessera is an entry of JAX_PLATFORMS. False if only other platforms are. Without JAX_PLATFORMS,
        True if TESSERA_ADDRESS or TESSERA_EMBEDDED is set and not empty.

    Example:
        import tessera_jax

        if not tessera_jax.is_configured():
            print("this program runs on JAX's own devices")
    """
    if _platforms():
        return NAME in _platforms()
    return bool(os.environ.get("TESSERA_ADDRESS") or os.environ.get("TESSERA_EMBEDDED"))


def initialize() -> None:
    """Registers the plugin with JAX if `is_configured()`.

    JAX calls this function for an installed package. A program calls it only if the package is not installed but on
    PYTHONPATH, and then before it first looks for devices. A second call does nothing. The cluster is connected or
    started when JAX first looks for devices.

    The function raises nothing, because JAX would go on with its own CPU. If the plugin is missing or cannot be loaded,
    if no coordinator answers, or if there are no devices, JAX raises a RuntimeError that says so wherever the program
    looks for devices or uses them.

    Variables that begin with TESSERA_ and do not exist are named on stderr, unless JAX_PLATFORMS has only other
    platforms.

    Example:
        import jax
        import tessera_jax

        tessera_jax.initialize()
        print({device.platform for device in jax.devices()})  # {'tessera'}
    """
    global _has_warned, _plugin
    if _platforms() and NAME not in _platforms():
        return
    if not _has_warned:
        _has_warned = True
        variables.warn_of_unknown(os.environ)
    if not is_configured():
        return
    from jax._src import xla_bridge  # the documented way of plugins

    if NAME in xla_bridge._backend_factories:
        return
    try:
        path = library_path()
        _plugin = library.Library(path)
        xla_bridge.register_plugin(NAME, priority=_PRIORITY, library_path=path)
        _lower_as_on_cpus()
        _allow_donation()
        callbacks.install(_plugin, NAME)
        interrupts.install(_plugin)
        states.install(_plugin, NAME)
    except Exception as error:
        _register_failure(str(error))
        return
    registration = xla_bridge._backend_factories[NAME]
    xla_bridge._backend_factories[NAME] = dataclasses.replace(
        registration, factory=_without_others(registration.factory))


def cancel() -> int:
    """Cancels all runs of this process that have not ended.

    The results of a cancelled run, and of the runs that take them, are errors from then on: using one raises a
    JaxRuntimeError with the word CANCELLED. Arrays that were donated to a run that has begun may be gone. Runs of other
    processes go on. Ctrl-C cancels less, namely the runs that the main thread has started, and only while it waits for
    a run.

    Returns:
        int: the number of runs that were cancelled; 0 if all had ended, or if no cluster is used.

    Raises:
        RuntimeError: The coordinator does not answer within ten seconds. Retry when it is back.

    Example:
        import jax
        import tessera_jax

        @jax.jit
        def turn(x):
            return jax.lax.fori_loop(0, 2**31 - 1, lambda i, x: jax.numpy.sin(x) + 1, x)

        y = turn(jax.numpy.arange(4.0))  # would run for an hour
        print(tessera_jax.cancel())  # 1
    """
    return 0 if _plugin is None else _plugin.cancel_runs()


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


def _platforms() -> list[str]:
    """Returns the platforms that the program or JAX_PLATFORMS tells JAX to use; none if JAX is to choose."""
    jax = sys.modules.get("jax")
    platforms = jax.config.jax_platforms if hasattr(jax, "config") else os.environ.get("JAX_PLATFORMS")
    return platforms.split(",") if platforms else []


def _without_others(make):
    """Returns a function that calls `make`, which makes JAX's client of the cluster.

    JAX makes its clients one after the other. If one cannot be made, it raises an error, but keeps those that it has
    made, and would use the first of them, its own CPU, from the next call on. Therefore the others are dropped then:
    the next call tries again, and raises the error again.
    """
    from jax._src import xla_bridge

    def make_or_drop_others():
        client = None
        try:
            client = make()
        finally:
            if client is None:
                try:
                    xla_bridge._backends.clear()
                except KeyboardInterrupt:  # Ctrl-C has ended the wait, and Python raises it here
                    xla_bridge._backends.clear()
                    raise
        return client

    return make_or_drop_others


def _register_failure(why: str) -> None:
    """Registers a platform that cannot be used, so that JAX raises a RuntimeError with `why` where it is used."""
    from jax._src import xla_bridge

    def fail():
        raise RuntimeError(f"JAX is to use Tessera's devices, and {why}")

    xla_bridge.register_backend_factory(NAME, _without_others(fail), priority=_PRIORITY, fail_quietly=False)
