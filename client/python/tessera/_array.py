"""Arrays on devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera import _dtypes, _proto, errors
from tessera._channel import Channel
from tessera._operation import Operation
from tessera._rpc import Deadline
from tessera._transfer import ExecutorLost, with_fresh_tickets
from tessera.sharding import ArraySpec, Mesh, P

# Arrays that were garbage-collected are freed with the next run, or beyond this many.
_FORGOTTEN_MAX = 256


class Array:
    """An immutable array on the devices of a cluster.

    A handle, which exists as soon as the call that makes the array is accepted. Reading the array
    waits for its bytes, or raises the error of the operation that computes it. When the last handle
    is garbage-collected the array is freed with one of the client's next calls; delete() frees it
    at once.
    """

    def __init__(
        self, channel: Channel, id: int, spec: ArraySpec, operation: Operation | None = None
    ) -> None:
        self._channel = channel
        self.id = id
        self.spec = spec
        self.operation = operation  # the one that computes it; None: it was put

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype."""
        return _dtypes.to_numpy(self.spec.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array."""
        return self.spec.shape

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.spec.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array, without replicas."""
        return self.spec.nbytes

    @property
    def mesh(self) -> Mesh:
        """The mesh with its devices."""
        return self.spec.mesh

    @property
    def sharding(self) -> P:
        """The partition spec."""
        return self.spec.spec

    def state(self, timeout: float | None = None) -> str:
        """ "PENDING", "READY", "FAILED" or "LOST"; does not wait."""
        answer = self._channel._call_with("ArrayService/GetArray", timeout, array=self.id)
        return str(_proto.to_json(answer)["state"])

    def numpy(self, timeout: float | None = None, *, bits: bool = False) -> np.ndarray[Any, Any]:
        """Like Client.get()."""
        deadline = self._channel._deadline(timeout)
        if not bits:
            _dtypes.to_numpy(self.spec.dtype)  # Raises before the transfer.

        def tickets() -> Sequence[Any]:
            found: Sequence[Any] = self._channel._read_tickets(self.id, deadline).tickets
            return found

        try:
            value: np.ndarray[Any, Any] = self._channel._transfers.read(
                self.spec, tickets, deadline, bits=bits
            )
        except errors.UnavailableError as error:
            raise self._channel._loss_reason(self.id, error) from None
        return value

    def delete(self, timeout: float | None = None) -> None:
        """Frees the array now. Idempotent."""
        self._channel._call_with("ArrayService/DeleteArrays", timeout, arrays=[self.id])

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
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel._forget(self.id)


def put_array(channel: Channel, value: Any, spec: ArraySpec, timeout: float) -> Array:
    """Creates an array and writes its shards."""
    deadline = Deadline(timeout)
    if len(channel._session.forgotten) > _FORGOTTEN_MAX:
        channel._session.free_forgotten(deadline.left)
    value = value.astype(_dtypes.to_numpy(spec.dtype), copy=False)
    return with_fresh_tickets(deadline, lambda: _put_once(channel, value, spec, deadline))


def _put_once(channel: Channel, value: Any, spec: ArraySpec, deadline: Deadline) -> Array:
    request = _proto.message("CreateArrayRequest")(spec=spec.to_proto())
    made = channel._call_in_session("ArrayService/CreateArray", request, deadline.left)
    array = Array(channel, made.array, spec)
    try:
        channel._transfers.write(spec, made.tickets, value, deadline)
    except errors.UnavailableError as error:
        reason = channel._loss_reason(array.id, error)
        if reason is not error:
            raise ExecutorLost(reason) from None
        raise
    return array
