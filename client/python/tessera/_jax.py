"""What the programs and the values of JAX mean here. JAX itself is imported when it is used."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera._array import Array
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
        trees = Trees(program.in_tree, program.out_tree, program.module_kept_var_idx)
        return bytes(program.mlir_module_serialized), trees
    if not (hasattr(program, "compiler_ir") and hasattr(program, "args_info")):
        return None
    import jax
    from jaxlib.mlir.dialects import stablehlo

    # As old a form as jax.export writes, which readers of four weeks ago know.
    version = stablehlo.get_version_from_compatibility_requirement(
        stablehlo.StablehloCompatibilityRequirement.WEEK_4
    )
    module = program.compiler_ir("stablehlo")
    artifact = stablehlo.serialize_portable_artifact(module, version)
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
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        value = np.from_dlpack(value)
    if not hasattr(value, "dtype"):
        return np.asarray(value, dtype)
    array = np.asarray(value)
    wider = array.dtype.kind == dtype.kind and array.dtype.itemsize == 2 * dtype.itemsize
    return array.astype(dtype) if wider and dtype.itemsize in (4, 8) else array


def _is_key(value: Any) -> bool:
    """Whether it is an array of jax.random.key's."""
    return "key<" in str(getattr(value, "dtype", ""))


def _abstract(value: Any) -> Any:
    """What jax.export is told of an argument: its type; of a number, which has none, itself."""
    import jax

    if isinstance(value, Array):
        return jax.ShapeDtypeStruct(value.shape, value.dtype)
    if _is_key(value) or not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return value
    return jax.ShapeDtypeStruct(value.shape, jax.dtypes.canonicalize_dtype(value.dtype))


def _type_of(value: Any) -> tuple[Any, ...]:
    """The same for two arguments for which the same program will do."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return (type(value),)
    return (tuple(value.shape), str(value.dtype))


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
        static_argnums: Sequence[int],
        static_argnames: Sequence[str],
        donate_argnums: Sequence[int],
        timeout: float | None,
    ) -> None:
        self._client = client
        self._mesh = mesh
        self._static = (frozenset(static_argnums), frozenset(static_argnames))
        # By position among those that are not static.
        dynamic = [i for i in range(max(donate_argnums, default=-1) + 1) if i not in static_argnums]
        self._donate = [dynamic.index(i) for i in donate_argnums]
        self._timeout = timeout
        import jax

        shardings = {"in_shardings": in_shardings, "out_shardings": out_shardings}
        self._jitted = jax.jit(
            function,
            static_argnums=tuple(static_argnums),
            static_argnames=tuple(static_argnames),
            **{name: given for name, given in shardings.items() if given is not None},
        )
        self._lock = threading.Lock()
        self._compiled: dict[Any, Executable] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        executable = self.compile(*args, **kwargs)
        dynamic, named = self._dynamic(args, kwargs)
        return executable(*dynamic, donate=self._donate, timeout=self._timeout, **named)

    def compile(self, *args: Any, **kwargs: Any) -> Executable:
        """The executable for arguments of these types, made when they come for the first time."""
        import jax

        numbers, names = self._static
        leaves, tree = jax.tree_util.tree_flatten(self._dynamic(args, kwargs))
        key = (
            tree,
            tuple(map(_type_of, leaves)),
            tuple((i, a) for i, a in enumerate(args) if i in numbers),
            tuple(sorted((k, v) for k, v in kwargs.items() if k in names)),
            bool(jax.config.jax_enable_x64),
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
