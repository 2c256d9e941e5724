"""Handles to arrays on devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tessera import _dtypes
from tessera.sharding import ArraySpec, Mesh, P

if TYPE_CHECKING:
    from tessera._client import Client
    from tessera._operation import Operation


class Array:
    """An immutable array on the devices of a cluster.

    A handle: there as soon as the call that makes it is accepted, before there are bytes. Errors of
    what makes it come to whoever reads it. When the last handle is gone the array is freed with one
    of the client's next calls; delete() frees it at once.
    """

    def __init__(
        self, client: Client, id: int, spec: ArraySpec, operation: Operation | None = None
    ) -> None:
        self._client = client
        self.id = id
        self.spec = spec
        self.operation = operation  # that makes it; None: it was put

    @property
    def dtype(self) -> np.dtype[Any]:
        """As NumPy has it."""
        return _dtypes.to_numpy(self.spec.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole array."""
        return self.spec.shape

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.spec.shape)

    @property
    def nbytes(self) -> int:
        """Of the whole array, counted once."""
        return self.spec.nbytes

    @property
    def mesh(self) -> Mesh:
        """Where it lies."""
        return self.spec.mesh

    @property
    def sharding(self) -> P:
        """How it lies there."""
        return self.spec.spec

    def state(self, timeout: float | None = None) -> str:
        """ "PENDING", "READY", "FAILED" or "LOST", without waiting for it."""
        answer = self._client.call("ArrayService/GetArray", {"array": str(self.id)}, timeout)
        return str(answer["state"])

    def numpy(self, timeout: float | None = None) -> np.ndarray[Any, Any]:
        """As Client.get()."""
        return self._client.get(self, timeout=timeout)

    def delete(self, timeout: float | None = None) -> None:
        """Frees it at once. Deleting it again changes nothing."""
        self._client.delete(self, timeout=timeout)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array on devices is always copied")
        value = self.numpy()
        return value if dtype is None else value.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a scalar")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<tessera.Array {self.id} {self.spec!r}>"

    def __del__(self) -> None:
        client = getattr(self, "_client", None)
        if client is not None:
            client._forget(self.id)
