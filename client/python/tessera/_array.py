"""Arrays on the devices of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera import _dtypes, _proto, _values, errors
from tessera._channel import Channel
from tessera._operation import Operation
from tessera._rpc import Deadline
from tessera._transfer import ExecutorLost, with_fresh_tickets
from tessera.sharding import ArraySpec, Mesh, P

# Arrays that were garbage-collected are freed with the next run, or earlier if there are more than
# this number.
_FORGOTTEN_MAX = 256
# Arrays of up to this many bytes are read from the coordinator, by one call instead of two.
_RELAYED_MAX = 1 << 16


class Array:
    """A handle of an immutable array on the devices of a cluster.

    `Client.put()`, `Client.load()`, `Client.reshard()` and calls of executables return handles. A
    handle exists as soon as the call that makes the array is accepted, and may be an argument of
    other calls at once. Reading the array waits for its bytes, or raises the error of the operation
    that computes it.

    When a handle is garbage-collected, its array is freed with one of the client's next calls.
    `delete()` frees it at once. `np.asarray(array)` downloads the array, as `Client.get()` does.
    `torch.from_dlpack(array)` and the like get a copy of it in the memory of this process.

    Attributes:
        id (int): Id of the array, unique in the cluster.
        spec (ArraySpec): The dtype, the shape and the placement.
        operation (Operation or None): The operation that computes, loads or moves the array. None
            if the array was put, or if the handle was made by `Client.array()`.

    Example:
        array = client.put(np.ones((4, 2), np.float32), tessera.Mesh({"x": 2}), tessera.P("x"))
        print(array.shape, array.dtype, array.nbytes, array.sharding)  # (4, 2) float32 32 P('x')
        print(np.asarray(array).sum())  # 8.0
    """

    def __init__(
        self,
        channel: Channel,
        id: int,
        spec: ArraySpec,
        operation: Operation | None = None,
        session: int = 0,
    ) -> None:
        """Only the client makes handles; see the class."""
        self._channel = channel
        self._session = session  # the session in which the client made the array; 0 if it did not
        self.id = id
        self.spec = spec
        self.operation = operation  # the operation that computes the array; None if it was put

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements. Raises TypeError if that is a dtype of ml_dtypes, and
        the package is not installed.
        """
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
        """The number of bytes of the whole array, without replicas."""
        return self.spec.nbytes

    @property
    def mesh(self) -> Mesh:
        """The mesh on which the array lies, with its devices."""
        return self.spec.mesh

    @property
    def sharding(self) -> P:
        """The partition spec: how the dims are sharded over the mesh."""
        return self.spec.spec

    def state(self, timeout: float | None = None) -> str:
        """Returns the state of the array, without waiting for it.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            str: "PENDING", "READY", "FAILED" or "LOST".

        Raises:
            FailedPreconditionError: Reason ARRAY_DELETED: the array was deleted or donated. Do not
                retry.
            NotFoundError: Reason ARRAY_NOT_FOUND: the coordinator does not know the array. Do not
                retry.
        """
        with self._channel._using(self._session):
            answer = self._channel._call_with("ArrayService/GetArray", timeout, array=self.id)
        return str(_proto.to_json(answer)["state"])

    def numpy(self, timeout: float | None = None, *, bits: bool = False) -> np.ndarray[Any, Any]:
        """Waits for the array and downloads it. Does the same as `Client.get()` with this array.

        Args:
            timeout (float): Number of seconds that waiting and downloading may take together. None
                means the timeout of `connect()`.
            bits (bool): Whether to return the elements as unsigned integers of the same width, as
                for `Client.get()`.

        Returns:
            numpy.ndarray: the whole array, in memory of its own.

        Raises:
            Error: The errors of `Client.get()`.
        """
        deadline = self._channel._deadline(timeout)
        # If there is no such dtype, this raises before the transfer.
        dtype = _dtypes.bits_of(self.spec.dtype) if bits else _dtypes.to_numpy(self.spec.dtype)
        with self._channel._using(self._session):
            value = self._read(dtype, deadline, bits)
        return _dtypes.from_service(self.spec.dtype, value)

    def _read(self, dtype: Any, deadline: Deadline, bits: bool) -> np.ndarray[Any, Any]:
        if self.nbytes <= _RELAYED_MAX:
            data = self._channel._read_relayed(self.id, deadline)
            if data is not None:
                return np.frombuffer(bytearray(data), dtype).reshape(self.shape)

        def tickets() -> Sequence[Any]:
            found: Sequence[Any] = self._channel._read_tickets(self.id, deadline).tickets
            return found

        def check(ticket: Any) -> None:
            self._channel._check_source(self.id, ticket)

        try:
            value: np.ndarray[Any, Any] = self._channel._transfers.read(
                self.spec, tickets, deadline, check, bits=bits
            )
        except errors.UnavailableError as error:
            raise self._channel._loss_reason(self.id, error) from None
        return value

    def delete(self, timeout: float | None = None) -> None:
        """Frees the array now. An array that was freed before is no error.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.
        """
        self._channel._call_with("ArrayService/DeleteArrays", timeout, arrays=[self.id])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Downloads the array for NumPy. Raises ValueError if `copy` is False, and the errors of
        numpy().
        """
        if copy is False:
            raise ValueError("an array on devices is always copied")
        value = self.numpy()
        return value if dtype is None else value.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a copy in the memory of this process, for torch.from_dlpack and the like. Waits
        like numpy(). Raises BufferError for another device than the CPU, for a stream, and if
        `copy` is False.
        """
        if dl_device is not None and tuple(dl_device) != _values.CPU_DEVICE:
            raise BufferError(f"an array is copied to the CPU, not to DLPack's device {dl_device}")
        if copy is False or stream is not None:
            raise BufferError("an array on devices is always copied, and to the CPU")
        return _values.to_dlpack(self.numpy(), max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns DLPack's number of the CPU, where `__dlpack__` makes its copy."""
        return _values.CPU_DEVICE

    def __len__(self) -> int:
        """Returns the size of the first dim. Raises TypeError for a scalar."""
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
    """Creates an array on devices, writes its shards, and returns its handle."""
    deadline = Deadline(timeout)
    if len(channel._session.forgotten) > _FORGOTTEN_MAX:
        channel._session.free_forgotten(deadline.left)
    value = value.astype(_dtypes.to_numpy(spec.dtype), copy=False)
    value = _dtypes.to_service(spec.dtype, value)
    if value.nbytes <= _RELAYED_MAX and channel._relays:
        array = _put_relayed(channel, value, spec, deadline)
        if array is not None:
            return array
    return with_fresh_tickets(deadline, lambda: _put_once(channel, value, spec, deadline))


def _put_relayed(channel: Channel, value: Any, spec: ArraySpec, deadline: Deadline) -> Array | None:
    """Puts a small array in one call. Returns None if the caller must try tickets instead."""
    request = _proto.message("WriteArrayRequest")(spec=spec.to_proto(), data=value.tobytes())
    try:
        made = channel._call_in_session("ArrayService/WriteArray", request, deadline.left)
    except errors.UnavailableError:  # An executor may be restarting.
        return None
    except (errors.ResourceExhaustedError, errors.UnimplementedError) as error:
        if error.reason not in ("LIMIT_EXCEEDED", ""):
            raise
        return None
    return Array(channel, made.array, spec, session=request.session)


def _put_once(channel: Channel, value: Any, spec: ArraySpec, deadline: Deadline) -> Array:
    request = _proto.message("CreateArrayRequest")(spec=spec.to_proto())
    made = channel._call_in_session("ArrayService/CreateArray", request, deadline.left)
    array = Array(channel, made.array, spec, session=request.session)
    try:
        channel._transfers.write(
            spec,
            made.tickets,
            value,
            deadline,
            lambda ticket: channel._check_target(array.id, ticket.ordinal),
        )
    except errors.UnavailableError as error:
        reason = channel._loss_reason(array.id, error)
        if reason is not error:
            raise ExecutorLost(reason) from None
        raise
    return array
