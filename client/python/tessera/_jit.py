"""JAX functions whose calls run on the cluster: JitFunction.

JAX itself is imported only when it is used."""

from __future__ import annotations

import functools
import inspect
import operator
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tessera import _values
from tessera._array import Array
from tessera._channel import Channel
from tessera._compile import compile_program
from tessera._executable import Executable, Plan
from tessera._programs import read_program
from tessera._trees import is_key
from tessera.sharding import Mesh

# The most compiled forms that one function keeps. If there are more, the form that was not used for
# the longest time is dropped.
_COMPILED_MAX = 256
# The options of JAX's configuration that change the program of a function. Each thread has its own
# values of them, since jax.enable_x64(True) and the like set them within a block.
_OPTIONS = (
    "jax_allow_f16_reductions",
    "jax_check_static_indices",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disable_jit",
    "jax_enable_x64",
    "jax_explicit_x64_dtypes",
    "jax_high_dynamic_range_gumbel",
    "jax_legacy_prng_key",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_random_seed_offset",
    "jax_softmax_custom_jvp",
    "jax_threefry_partitionable",
)


def _abstract(value: Any, placed: bool = True) -> Any:
    """Returns the form in which jax.export gets an argument: its type or, for a Python number,
    which has no type, the number itself.

    placed  Whether JAX's arrays get the same sharding on the cluster as they have here.
    """
    import jax

    if isinstance(value, Array):
        return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=_explicit_sharding(value))
    value = _values.native(value)
    if is_key(value) or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return value
    dtype = jax.dtypes.canonicalize_dtype(value.dtype)
    sharding = _sharding_here(value)
    if sharding is not None and not placed and not _is_explicit(sharding.mesh):
        sharding = None
    return jax.ShapeDtypeStruct(
        value.shape, dtype, weak_type=_is_weak(value), sharding=sharding
    )


def _is_explicit(mesh: Any) -> bool:
    """Returns whether shardings over this mesh of JAX are part of types."""
    import jax

    return jax.sharding.AxisType.Explicit in mesh.axis_types


def _explicit_sharding(array: Array) -> Any:
    """Returns the sharding for the type of an array on the cluster, if JAX's current mesh has the
    axes of the array's mesh."""
    import jax

    mesh = jax.sharding.get_abstract_mesh()
    if not array.spec.spec or mesh.empty or array.mesh.axes != dict(mesh.shape):
        return None
    types = dict(zip(mesh.axis_names, mesh.axis_types))
    spec = [
        tuple(a for a in axes if types[a] == jax.sharding.AxisType.Explicit)
        for axes in array.spec.spec
    ]
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))


def _sharding_here(value: Any) -> Any:
    """Returns the sharding of a JAX array over several devices of this process, or None if it has
    none."""
    import jax

    found = getattr(value, "sharding", None)
    several = isinstance(found, jax.sharding.NamedSharding) and found.mesh.size > 1
    return found if several else None


def _is_weak(value: Any) -> bool:
    """Returns whether the value is weakly typed, so that other dtypes decide in JAX's promotion."""
    return bool(getattr(value, "weak_type", False))


def _type_of(value: Any) -> tuple[Any, ...]:
    """Returns a key that is the same for two arguments if the same program works for both."""
    if isinstance(value, Array):
        return (value.spec.shape, value.spec.dtype)
    value = _values.native(value)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return (type(value),)
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype)
    return (tuple(value.shape), str(value.dtype), _is_weak(value), _sharding_here(value))


def _options() -> tuple[Any, ...]:
    """Returns the state of JAX that changes the program of a function. It is part of the key of a
    compiled form."""
    import jax

    # Releases of JAX have different options.
    found = (getattr(jax.config, name, None) for name in _OPTIONS)
    return (*found, jax.sharding.get_abstract_mesh())


def _another(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that does the same, and which JAX has not traced yet.

    JAX does not trace a function again for every option that changes its program, such as
    jax_default_prng_impl."""
    if not hasattr(function, "__name__"):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class _Chosen(NamedTuple):
    """A choice of a function's arguments, by number and by name."""

    numbers: frozenset[int]
    names: frozenset[str]


def _choose(
    function: Callable[..., Any],
    numbers: Iterable[int] | int | None,
    names: Iterable[str] | str | None,
) -> _Chosen:
    """Returns the arguments that the user has chosen, in the form that jax.jit takes and has
    checked: by number, from the end if negative, and by name.

    If the user gives only numbers or only names, the other form is derived from the signature."""
    several: Iterable[Any] = [numbers] if isinstance(numbers, (int, np.integer)) else (numbers or ())
    chosen = {operator.index(i) for i in several}
    named = {names} if isinstance(names, str) else set(names or ())
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return _Chosen(frozenset(chosen), frozenset(named))
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p for p in parameters if p.kind in kinds]
    chosen = {i + len(positional) if i < 0 else i for i in chosen}
    of_both = [(i, p.name) for i, p in enumerate(positional) if p.kind is not kinds[0]]
    if numbers is None:
        chosen = {i for i, name in of_both if name in named}
    elif names is None:
        named = {name for i, name in of_both if i in chosen}
    return _Chosen(frozenset(chosen), frozenset(named))


class _Compiled(NamedTuple):
    """One compiled form of a function."""

    executable: Executable
    donated: Sequence[int]  # numbers of the program's arguments that are donated


class JitFunction:
    """A JAX function whose calls run on the cluster.

    `Client.jit()` makes it. A call takes the arguments of the function: pytrees of numbers, of
    arrays of NumPy, JAX or DLPack, and of `tessera.Array`s that earlier calls returned. The arrays
    of the result stay on the cluster. The function is exported and compiled when it is first called
    with arguments of these types, and with these options of JAX's configuration. A function keeps
    256 compiled forms, and drops the form that was not used for the longest time.

    It has the name and the docstring of the function. In a class it is a method: the instance is
    the first argument, which `static_argnums=0` makes static.

    Example:
        @client.jit
        def scaled(x, factor):
            return x * factor

        y = scaled(np.ones(3, np.float32), 2)  # compiles
        z = scaled(y, 2)  # y stays on the cluster
        print(client.get(z))  # [4. 4. 4.]
    """

    def __init__(
        self,
        channel: Channel,
        function: Callable[..., Any],
        *,
        mesh: Mesh | str | None,
        in_shardings: Any,
        out_shardings: Any,
        static_argnums: Sequence[int] | int | None,
        static_argnames: Sequence[str] | str | None,
        donate_argnums: Sequence[int] | int | None,
        donate_argnames: Sequence[str] | str | None,
        timeout: float | None,
    ) -> None:
        """Makes the function of Client.jit(), whose arguments these are."""
        import jax

        self._channel = channel
        self._mesh = mesh
        self._timeout = timeout
        shardings = {"in_shardings": in_shardings, "out_shardings": out_shardings}
        self._placed = in_shardings is None
        given = {name: value for name, value in shardings.items() if value is not None}
        # This call is only for JAX's checks of the arguments. Donation is not passed on to JAX
        # below: in an artifact it would say which memory a result shares.
        jax.jit(
            function,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
        )
        self._static = _choose(function, static_argnums, static_argnames)
        self._donated = _choose(function, donate_argnums, donate_argnames)
        self._function = function
        self._options = {
            "static_argnums": sorted(self._static.numbers),
            "static_argnames": sorted(self._static.names),
            **given,
        }
        self._lock = threading.Lock()
        self._compiled: dict[Any, _Compiled] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Makes the function a method of a class: the instance is the first argument."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function and returns its result, which may not be ready yet.

        If the coordinator has dropped the executable, as after a restart, the function is compiled
        again.

        Args:
            *args (pytree): The arguments of the function.
            **kwargs (pytree): The arguments of the function that are given by name.

        Returns:
            The pytree of the result, with an Array for each leaf.

        Raises:
            Error: The errors of `Client.compile()` and `Executable.submit()`. An error of the run
                itself is raised when a result is read.
            Exception: Any exception that JAX raises while it traces the function, unchanged.
        """
        compiled, leaves = self._find(args, kwargs)
        return compiled.executable._run_leaves(leaves, compiled.donated, self._timeout)

    def compile(self, *args: Any, **kwargs: Any) -> Executable:
        """Returns the executable for arguments of these types. Compiles it if there is none yet.

        Args:
            *args (pytree): The arguments of the function. Only their types and static values
                matter.
            **kwargs (pytree): The arguments of the function that are given by name.

        Returns:
            Executable: the executable, which is called with the arguments that are not static.

        Raises:
            Error: The errors of `Client.compile()`.
            Exception: Any exception that JAX raises while it traces the function, unchanged.
        """
        return self._find(args, kwargs)[0].executable

    def _find(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[_Compiled, list[Any]]:
        """Returns the form that is compiled for arguments of these types, and the leaves of the
        arguments."""
        import jax

        numbers, names = self._static
        dynamic, named = self._dynamic(args, kwargs)
        leaves, tree = jax.tree_util.tree_flatten((dynamic, named))
        key = (
            tree,
            tuple(map(_type_of, leaves)),
            tuple((i, type(a), a) for i, a in enumerate(args) if i in numbers),
            tuple((k, type(kwargs[k]), kwargs[k]) for k in sorted(names) if k in kwargs),
            _options(),
            self._placements(leaves),
        )
        with self._lock:
            found = self._compiled.pop(key, None)
            if found is not None:
                self._compiled[key] = found  # Moves the form to the end: it was used last.
                return found, leaves
        program = read_program("jit", self._export(args, kwargs))
        executable = compile_program(
            self._channel, program, mesh=self._mesh, timeout=self._timeout
        )
        # The donated arguments, by position among the arguments that are not static.
        donated: list[int | str] = [
            position
            for position, i in enumerate(i for i in range(len(args)) if i not in numbers)
            if i in self._donated.numbers
        ]
        donated += sorted(self._donated.names & named.keys())
        found = _Compiled(executable, executable._numbers(dynamic, named, donated))
        with self._lock:
            while len(self._compiled) >= _COMPILED_MAX:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = found
        return found, leaves

    def _placements(self, leaves: Sequence[Any]) -> Any:
        """Returns the shardings of the cluster's arrays if shardings are part of types, and None if
        not."""
        import jax

        mesh = jax.sharding.get_abstract_mesh()
        if mesh.empty or not _is_explicit(mesh):
            return None
        return tuple(
            (leaf.spec.spec, tuple(leaf.mesh.axes.items())) if isinstance(leaf, Array) else None
            for leaf in leaves
        )

    def explain(self, *args: Any, **kwargs: Any) -> Plan:
        """Returns the plan for arguments of these types. Compiles the function for them if needed.

        Args:
            *args (pytree): The arguments of the function. Only their types and static values
                matter.
            **kwargs (pytree): The arguments of the function that are given by name.

        Returns:
            Plan: the plan.

        Raises:
            Error: The errors of `Client.compile()`.
            Exception: Any exception that JAX raises while it traces the function, unchanged.

        Example:
            double = client.jit(lambda x: x + x)
            plan = double.explain(np.ones(4, np.float32))
            print(len(plan.devices), "device")  # 1 device
        """
        return self.compile(*args, **kwargs).explain(self._timeout)

    def _dynamic(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        numbers, names = self._static
        return (
            tuple(a for i, a in enumerate(args) if i not in numbers),
            {k: v for k, v in kwargs.items() if k not in names},
        )

    def _export(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        import jax
        import jax.export

        numbers, names = self._static
        told = functools.partial(_abstract, placed=self._placed)
        abstract = functools.partial(jax.tree_util.tree_map, told)
        jitted = jax.jit(_another(self._function), **self._options)
        # Export for CPUs, whatever accelerator this machine has: the planner decides for the
        # devices of the workers.
        return jax.export.export(jitted, platforms=("cpu",))(
            *(a if i in numbers else abstract(a) for i, a in enumerate(args)),
            **{k: v if k in names else abstract(v) for k, v in kwargs.items()},
        )
