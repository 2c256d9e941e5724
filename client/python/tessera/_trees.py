"""The pytrees of JAX functions, and their leaves as NumPy arrays.

JAX itself is imported only when it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tessera import _values

# JAX's names of the platforms for each kind of devices.
_PLATFORMS = {"cpu": ("cpu",), "gpu": ("cuda", "rocm")}


@dataclasses.dataclass(frozen=True)
class Trees:
    """The pytrees of the arguments and results of a JAX function, whose program has only leaves."""

    arguments: Any  # the PyTreeDef of (args, kwargs)
    results: Any  # the PyTreeDef of the result
    kept: Sequence[int] | None  # the leaves of the arguments that the program takes; None for all
    # The platforms of the program. If there are several, the program's first argument is the number
    # of the platform that it runs on.
    platforms: Sequence[str] = ("cpu",)

    def platform_on(self, kind: str) -> int | None:
        """Returns the number of the platform for a kind of devices, or None if the program does not
        take that number."""
        if len(self.platforms) < 2:
            return None
        for number, name in enumerate(self.platforms):
            if name in _PLATFORMS.get(kind, ()):
                return number
        raise ValueError(
            f"the function is exported for {', '.join(self.platforms)}, and its devices here are "
            f"of the kind {kind}: export it for {' or '.join(_PLATFORMS.get(kind, (kind,)))} as well"
        )

    def leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Returns the program's arguments for the arguments of a call. Raises TypeError if their
        pytrees are not those of the function."""
        import jax

        leaves: list[Any]
        leaves, tree = jax.tree_util.tree_flatten((tuple(args), dict(kwargs)))
        if tree != self.arguments:
            raise TypeError(
                f"the function takes arguments of the form {self.arguments}; {tree} is given"
            )
        return self.taken(leaves)

    def taken(self, leaves: list[Any]) -> list[Any]:
        """Returns the leaves that the program takes."""
        return leaves if self.kept is None else [leaves[i] for i in self.kept]

    def numbers(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], which: Iterable[int | str]
    ) -> list[int]:
        """Returns the numbers of the program's arguments that are leaves of the function's
        arguments `which`, which are given by number or by name."""
        import jax

        wanted = set(which)
        # This is the order in which JAX flattens arguments: first args, then kwargs in the order of
        # their names.
        owned = [*enumerate(args), *sorted(kwargs.items())]
        owners = [owner for owner, a in owned for _ in jax.tree_util.tree_leaves(a)]
        kept = range(len(owners)) if self.kept is None else self.kept
        return [n for n, leaf in enumerate(kept) if owners[leaf] in wanted]

    def result(self, leaves: Sequence[Any]) -> Any:
        """Returns the result of the function, made of the leaves."""
        import jax

        return jax.tree_util.tree_unflatten(self.results, leaves)


def to_numpy(value: Any, dtype: np.dtype[Any]) -> Any:
    """Converts a leaf to a NumPy array for a parameter of this dtype.

    An array of 64 bits is converted to 32 bits if the program was made with 32 bits, as in JAX."""
    if is_key(value):
        import jax

        value = jax.random.key_data(value)
    value = _values.native(value)
    if not hasattr(value, "dtype"):
        return np.asarray(value, dtype)
    array = np.asarray(value)
    wider = array.dtype.kind == dtype.kind and array.dtype.itemsize == 2 * dtype.itemsize
    return array.astype(dtype) if wider and dtype.itemsize in (4, 8) else array


def is_key(value: Any) -> bool:
    """Returns whether the value is an array of keys, as jax.random.key makes them."""
    return "key<" in str(getattr(value, "dtype", ""))
