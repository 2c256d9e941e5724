"""What the programs and the values of JAX mean here. JAX itself is imported when it is used."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera._array import Array
from tessera.errors import NotFoundError
from tessera.sharding import Mesh

if TYPE_CHECKING:
    from tessera._client import Client
    from tessera._executable import Executable, Plan

# Compiled forms of one function: what is not used for the longest time makes room.
_COMPILED_MAX = 256


@dataclasses.dataclass(frozen=True)
class Trees:
    """How the arguments and results of a JAX function lie in its program, which has only leaves."""

    arguments: Any  # the PyTreeDef of (args, kwargs)
    results: Any  # the PyTreeDef of the result
    kept: Sequence[int] | None  # which leaves of the arguments the program takes; None: all

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The program's arguments; TypeError for other trees than the function's."""
        import jax

        leaves: list[Any]
        leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(kwargs)))
        if tree != self.arguments:
            raise TypeError(
                f"the function takes arguments of the form {self.arguments}; {tree} is given"
            )
        return leaves if self.kept is None else [leaves[i] for i in self.kept]

    def numbers(self, args: Sequence[Any], which: Sequence[int]) -> list[int]:
        """The numbers of the program's arguments that are leaves of args[i], for i of `which`."""
        import jax

        owners = [i for i, a in enumerate(args) for _ in jax.tree_util.tree_leaves(a)]
        total = self.arguments.num_leaves
        kept = range(total) if self.kept is None else self.kept
        return [n for n, leaf in enumerate(kept) if leaf < len(owners) and owners[leaf] in which]

    def result(self, leaves: Sequence[Any]) -> Any:
        """What the function returns."""
        import jax

        return jax.tree_util.tree_unflatten(self.results, leaves)


def artifact_of(program: Any) -> tuple[bytes, Trees] | None:
    """The StableHLO artifact of a jax.export.Exported or a jax.stages.Lowered; None for others."""
    if hasattr(program, "mlir_module_serialized"):
        if len(program.platforms) > 1:
            raise ValueError(
                f"the function is exported for {', '.join(program.platforms)}, and takes the number "
                "of one of them as well; export it with platforms=('cpu',)"
            )
        trees = Trees(program.in_tree, program.out_tree, program.module_kept_var_idx)
        return bytes(program.mlir_module_serialized), trees
    if not (hasattr(program, "compiler_ir") and hasattr(program, "args_info")):
        return None
    import jax
    import jax.extend.mlir
    from jaxlib.mlir.dialects import stablehlo

    # As old a form as jax.export writes, which readers of four weeks ago know; with shardings.
    version = stablehlo.get_version_from_compatibility_requirement(
        stablehlo.StablehloCompatibilityRequirement.WEEK_4
    )
    module = program.compiler_ir("stablehlo")
    artifact = jax.extend.mlir.serialize_portable_artifact(module, version, True)
    trees = Trees(
        jax.tree_util.tree_structure(program.args_info),
        jax.tree_util.tree_structure(program.out_info),
        None,
    )
    return bytes(artifact), trees


def to_numpy(value: Any, dtype: np.dtype[Any]) -> Any:
    """A leaf as NumPy's array, for a parameter of this dtype. As in JAX, 64 bits give way to 32
    where the program was made with those."""
    if isinstance(value, Array):
        return value
    if _is_key(value):
        import jax

        value = jax.random.key_data(value)
    value = _native(value)
    if not hasattr(value, "dtype"):
        return np.asarray(value, dtype)
    array = np.asarray(value)
    wider = array.dtype.kind == dtype.kind and array.dtype.itemsize == 2 * dtype.itemsize
    return array.astype(dtype) if wider and dtype.itemsize in (4, 8) else array


def _native(value: Any) -> Any:
    """A value of DLPack's, and one of another byte order, as NumPy's array of this machine's."""
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    if isinstance(value, np.ndarray) and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return value


def _is_key(value: Any) -> bool:
    """Whether it is an array of jax.random.key's."""
    return "key<" in str(getattr(value, "dtype", ""))


def _abstract(value: Any) -> Any:
    """What jax.export is told of an argument: its type; of a number, which has none, itself."""
    import jax

    if isinstance(value, Array):
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    value = _native(value)
    if _is_key(value) or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return value
    dtype = jax.dtypes.canonicalize_dtype(value.dtype)
    return jax.ShapeDtypeStruct(value.shape, dtype, weak_type=_is_weak(value))


def _is_weak(value: Any) -> bool:
    """Whether JAX's promotion lets other dtypes decide."""
    return bool(getattr(value, "weak_type", False))


def _type_of(value: Any) -> tuple[Any, ...]:
    """The same for two arguments for which the same program will do."""
    value = _native(value)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return (type(value),)
    return (tuple(value.shape), str(value.dtype), _is_weak(value))


def _numbers_and_names(
    function: Callable[..., Any],
    numbers: Sequence[int] | int | None,
    names: Sequence[str] | str | None = None,
) -> tuple[frozenset[int], frozenset[str]]:
    """Arguments that are given by number, from the end if negative, or by name: by both."""
    chosen = {numbers} if isinstance(numbers, int) else set(numbers or ())
    named = {names} if isinstance(names, str) else set(names or ())
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return frozenset(chosen), frozenset(named)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [p for p in parameters if p.kind in kinds]
    chosen = {i + len(positional) if i < 0 else i for i in chosen}
    chosen |= {i for i, p in enumerate(positional) if p.name in named}
    named |= {
        p.name for i, p in enumerate(positional) if i in chosen and p.kind is not kinds[0]
    }
    return frozenset(chosen), frozenset(named)


class JitFunction:
    """A JAX function whose calls run on the cluster; made by Client.jit(). Thread-safe.

    A call takes what the function takes, pytrees of numbers, of NumPy's, JAX's or DLPack's arrays
    and of tessera.Array, and returns what it returns, with a tessera.Array for each array: at once,
    also before it has run. The results may be arguments of the next call, and stay on the cluster.
    """

    def __init__(
        self,
        client: Client,
        function: Callable[..., Any],
        *,
        mesh: Mesh | str | None,
        in_shardings: Any,
        out_shardings: Any,
        static_argnums: Sequence[int] | int | None,
        static_argnames: Sequence[str] | str | None,
        donate_argnums: Sequence[int] | int | None,
        timeout: float | None,
    ) -> None:
        self._client = client
        self._mesh = mesh
        self._static = _numbers_and_names(function, static_argnums, static_argnames)
        donated, _ = _numbers_and_names(function, donate_argnums)
        if donated & self._static[0]:
            raise ValueError(
                f"arguments {sorted(donated & self._static[0])} are static, and donated"
            )
        # By position among those that are not static.
        dynamic = [i for i in range(max(donated, default=-1) + 1) if i not in self._static[0]]
        self._donate = [dynamic.index(i) for i in sorted(donated)]
        self._timeout = timeout
        import jax

        shardings = {"in_shardings": in_shardings, "out_shardings": out_shardings}
        self._jitted = jax.jit(
            function,
            static_argnums=sorted(self._static[0]),
            static_argnames=sorted(self._static[1]),
            **{name: given for name, given in shardings.items() if given is not None},
        )
        self._lock = threading.Lock()
        self._compiled: dict[Any, Executable] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method of a class: with the instance as its first argument."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        executable = self.compile(*args, **kwargs)
        dynamic, named = self._dynamic(args, kwargs)
        # An argument that comes by name is not donated.
        donate = [i for i in self._donate if i < len(dynamic)]
        try:
            return executable(*dynamic, donate=donate, timeout=self._timeout, **named)
        except NotFoundError as error:
            if error.reason != "PROGRAM_NOT_FOUND":
                raise
        # The server has started anew, or had too many.
        with self._lock:
            self._compiled = {k: e for k, e in self._compiled.items() if e is not executable}
        executable = self.compile(*args, **kwargs)
        return executable(*dynamic, donate=donate, timeout=self._timeout, **named)

    def compile(self, *args: Any, **kwargs: Any) -> Executable:
        """The executable for arguments of these types, made when they come for the first time."""
        import jax

        numbers, names = self._static
        leaves, tree = jax.tree_util.tree_flatten(self._dynamic(args, kwargs))
        key = (
            tree,
            tuple(map(_type_of, leaves)),
            tuple((i, type(a), a) for i, a in enumerate(args) if i in numbers),
            tuple((k, type(kwargs[k]), kwargs[k]) for k in sorted(names) if k in kwargs),
            bool(jax.config.jax_enable_x64),
            jax.sharding.get_abstract_mesh(),
        )
        with self._lock:
            found = self._compiled.pop(key, None)
            if found is not None:
                self._compiled[key] = found  # The last that was used.
                return found
        executable = self._client.compile(
            self._export(args, kwargs), mesh=self._mesh, timeout=self._timeout
        )
        with self._lock:
            while len(self._compiled) >= _COMPILED_MAX:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = executable
        return executable

    def explain(self, *args: Any, **kwargs: Any) -> Plan:
        """The plan for arguments of these types."""
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
        abstract = functools.partial(jax.tree_util.tree_map, _abstract)
        # For no accelerator of this machine: what the workers have is the planner's business.
        return jax.export.export(self._jitted, platforms=("cpu",))(
            *(a if i in numbers else abstract(a) for i, a in enumerate(args)),
            **{k: v if k in names else abstract(v) for k, v in kwargs.items()},
        )
