"""The client of a cluster: connect() and Client."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from tessera import _dtypes, _proto, _rpc, _values, errors
from tessera._array import Array, put_array
from tessera._channel import Channel
from tessera._compile import compile_program, set_mesh
from tessera._executable import Executable, Plan
from tessera._jit import JitFunction
from tessera._operation import Operation, OperationStatus
from tessera._programs import read_program
from tessera._rpc import Connection
from tessera._session import Session
from tessera._transfer import Transfers
from tessera.sharding import ArraySpec, Device, Mesh, P, set_placement

_DEFAULT_ADDRESS = "127.0.0.1:8470"
_DEFAULT_RECONNECT = 30.0
# The default value of arguments that must be given. It lets the error say what the argument is for.
_REQUIRED: Any = None
# How many seconds after its deadline the error of a run may arrive.
_RESULT_GRACE_PERIOD = 0.5


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker of the cluster: a daemon that runs programs on the devices of one host.

    `Client.workers()` returns the workers as they are at that moment.

    Attributes:
        name (str): Name of the worker, such as "w0".
        state (str): "READY"; "SUSPECT", if the worker has been silent for longer than a heartbeat
            takes; "CORDONED", if it takes no new programs; "DRAINING", if operations that have not
            started there wait as well; or "LOST", if it is gone and its arrays with it.
        reason (str): Reason why the worker is not ready, "" if it is.
        host (str): Name of the host.
        devices (tuple of int): Ids of its devices.
        operations (int): Number of operations that run there.
        arrays (int): Number of arrays that have shards there.

    Example:
        for worker in client.workers():
            print(worker.name, worker.state, len(worker.devices), "devices")
    """

    name: str
    state: str  # "READY", "SUSPECT", "CORDONED", "DRAINING", "LOST"
    reason: str
    host: str
    devices: tuple[int, ...]
    operations: int
    arrays: int


def connect(
    address: str | None = None,
    ca: str | os.PathLike[str] | None = None,
    token: str | None = None,
    *,
    lease: float | None = 60.0,
    timeout: float = 60.0,
    insecure: bool = False,
    reconnect: float | None = None,
) -> Client:
    """Connects to a coordinator and opens a session there.

    The session owns the arrays and operations of the client. A thread renews its lease. The session
    ends with the client, with this process, or when the lease runs out. At SIGTERM it ends as well,
    unless the program handles that signal itself.

    Args:
        address (str): Address of the coordinator, HOST:PORT. None means TESSERA_ADDRESS or, without
            that variable, 127.0.0.1:8470.
        ca (str or path): The PEM file with the certificate of the cluster's authority; calls then
            use TLS. None means TESSERA_CA_FILE. Without either, calls use plain text, which is
            allowed to this machine only.
        token (str): Text of the bearer token. None means TESSERA_TOKEN or, without that variable,
            no token.
        lease (float): How many seconds the arrays of the session outlive this process if it is
            killed. The operations of the session are cancelled within seconds. The server has an
            upper bound (`session_lease_ms_max` of `Client.capabilities()`). None means the tenant's
            own session, where arrays and operations stay until they are deleted; `connect()` makes
            no call then.
        timeout (float): Timeout, in seconds, of calls that are given no timeout.
        insecure (bool): Whether to allow plain text to another machine. The token is then sent in
            plain text, too.
        reconnect (float): How many seconds calls look for a coordinator that has gone away or does
            not answer, and transfers for an executor, each within its own timeout. After that, and
            until the coordinator is back, calls fail with reason UNREACHABLE within a few seconds;
            the message says how long the call has waited. The session, arrays and operations stay
            valid meanwhile. None means TESSERA_RECONNECT or, without that variable, 30.

    Returns:
        Client: the connected client. Use it in a `with` statement, or call `Client.close()`.

    Raises:
        InvalidArgumentError: Reason VALUE_ERROR: the address is not HOST:PORT. Do not retry. This
            error is also a ValueError.
        ValueError: The address is on another machine, and there is neither `ca` nor `insecure`; or
            `lease`, `timeout` or `reconnect` is out of range. Do not retry.
        FailedPreconditionError: Reason TLS_MISMATCH: the file `ca` cannot be read or has no
            certificate, or one side uses TLS and the other does not, or the certificate of the
            coordinator does not come from this authority. Do not retry.
        UnavailableError: Reason UNREACHABLE: no coordinator answers at the address. Retry when it
            runs.
        UnauthenticatedError: Reason TOKEN_MISSING, TOKEN_UNKNOWN, TOKEN_EXPIRED or TOKEN_REVOKED:
            the cluster asks for a valid token. Do not retry.
        PermissionDeniedError: Reason ROLE_MISSING: the role of the token may not open a session. Do
            not retry, or use `lease=None` to look only.
        ResourceExhaustedError: Reason LIMIT_EXCEEDED: there are too many sessions. Retry when
            others have ended.
        DeadlineExceededError: The coordinator did not answer within `timeout`. Retry.

    Example:
        with tessera.connect("127.0.0.1:8470", timeout=10) as client:
            print(len(client.devices()), "devices")  # 4 devices
    """
    address = address or os.environ.get("TESSERA_ADDRESS") or _DEFAULT_ADDRESS
    ca = ca or os.environ.get("TESSERA_CA_FILE") or None
    token = token or os.environ.get("TESSERA_TOKEN") or None
    _rpc.check_address(address)
    if not ca and not insecure and not _rpc.is_loopback(address):
        raise ValueError(
            f"connect({address!r}): the address is not on this machine, and plain text is not "
            "safe there: give the cluster's authority (ca=, TESSERA_CA_FILE), or say "
            "insecure=True"
        )
    ca_pem = None if ca is None else _rpc.read_ca(ca)
    if reconnect is None:
        reconnect = _reconnect_of_environment()
    connection = Connection(address, ca_pem, token, reconnect=reconnect)
    try:
        session = Session(connection, lease, timeout)
    except BaseException:
        connection.close()
        raise
    return Client(connection, session, Transfers(ca_pem, reconnect), timeout)


def _reconnect_of_environment() -> float:
    text = os.environ.get("TESSERA_RECONNECT") or str(_DEFAULT_RECONNECT)
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"TESSERA_RECONNECT: expected a number of seconds, got {text!r}") from None


class Client(Channel):
    """A connection to a coordinator, with a session.

    `connect()` makes it. Leaving its `with` statement ends the session, which cancels the
    operations of the session and frees its arrays. The garbage collection of the client and the end
    of the process do the same. If the coordinator has lost the session, as after a restart without
    a state folder, the client's next call opens another session. The arrays and operations of the
    old session are then gone, and using one raises NotFoundError. If the lease ended because the
    process was stopped, or its machine slept, for too long, the reason of that error is
    SESSION_NOT_FOUND, and the message says so.

    Any number of threads may use a client. A process that is forked must not use the client of its
    parent.

    Within the timeout of a call, the client repeats a call that was refused before it did anything,
    and a call that was not answered. It does so a few times or, if the coordinator has gone away,
    for the time `reconnect` of `connect()`. A call that changes something carries a request id, so
    that its repetition changes nothing twice. Every method that makes a call may raise these
    errors, which the descriptions of the methods leave out:

    - UnavailableError with reason UNREACHABLE or SERVER_STOPPING: no coordinator answers, and
      repeating the call has not helped. Retry when it is back.
    - ResourceExhaustedError with reason RATE_LIMITED or QUEUE_FULL: there are too many calls, or
      too many operations wait. Retry after `Error.retry_delay` seconds.
    - DeadlineExceededError with reason DEADLINE_EXCEEDED: the timeout has passed. A method that
      only reads or waits may be called again. After a method that makes something, look first
      whether it was made.
    - UnauthenticatedError and PermissionDeniedError: the token is not valid, or its role may not
      make the call. Do not retry.
    - ResourceExhaustedError with reason DISK_FULL and UnavailableError with reason STORE_FAILED:
      the coordinator cannot write its state. Retry when an operator has repaired its disk.
    - FailedPreconditionError with reason STALE_EPOCH: another coordinator has taken over. Connect
      to that one.
    - InternalError: a bug of Tessera. Report it.
    - ValueError: the client is closed, or a timeout is negative.

    Example:
        client = tessera.connect("127.0.0.1:8470")
        try:
            array = client.put(np.ones(4, np.float32), tessera.Mesh({"x": 1}))
            print(client.get(array))  # [1. 1. 1. 1.]
        finally:
            client.close()
    """

    def close(self) -> None:
        """Ends the session, which cancels its operations and frees its arrays, and closes the
        connection.

        A client with `lease=None` ends no session; it frees only the arrays whose handles are
        garbage-collected. Calling the method again does nothing. It raises no error: if the
        coordinator does not answer, the session ends with its lease.
        """
        self._finalizer()

    def __enter__(self) -> Client:
        """Returns the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the client, like close()."""
        self.close()

    @property
    def address(self) -> str:
        """The address of the coordinator, HOST:PORT."""
        return self._connection.address

    # ---- The cluster. ----

    def devices(self, timeout: float | None = None) -> list[Device]:
        """Lists the devices of the cluster.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A list of Device with every device, healthy or not, in the order of ids.

        Example:
            gpus = [d for d in client.devices() if d.kind == "gpu" and d.healthy]
            print(len(gpus), "GPUs")  # 0 GPUs
        """
        return [
            Device(
                id=d.id,
                kind=d.kind,
                worker=d.worker,
                host=d.host,
                executor=d.executor,
                healthy=d.healthy,
                reason=d.reason,
                memory_bytes=d.memory_bytes,
                cordoned=d.cordoned,
            )
            for d in self._pages("ClusterService/ListDevices", "devices", timeout)
        ]

    def workers(self, timeout: float | None = None) -> list[Worker]:
        """Lists the workers of the cluster.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A list of Worker with all workers that have registered since the coordinator started, in
            the order of names.
        """
        found = []
        for w in self._pages("ClusterService/ListWorkers", "workers", timeout):
            found.append(
                Worker(
                    name=w.name,
                    state=_proto.state_of(w),
                    reason=w.reason,
                    host=w.host,
                    devices=tuple(w.devices),
                    operations=w.operations,
                    arrays=w.arrays,
                )
            )
        return found

    def capabilities(self, timeout: float | None = None) -> dict[str, Any]:
        """Returns the version, the limits and the timeouts of the server.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A dict with the fields of the message GetCapabilitiesResponse by name. Numbers whose
            names end in `_ms` are milliseconds, and those whose names contain `bytes` are bytes.
            `features` is a list of str.

        Example:
            limits = client.capabilities()
            print(limits["relay_bytes_max"], limits["session_lease_ms"])  # 4194304 60000
        """
        answer = self._call_with("ClusterService/GetCapabilities", timeout)
        return {
            f.name: list(v) if f.name == "features" else v
            for f in answer.DESCRIPTOR.fields
            for v in [getattr(answer, f.name)]
        }

    # ---- Arrays. ----

    def put(
        self, value: Any, mesh: Mesh = _REQUIRED, spec: P = P(), *, timeout: float | None = None
    ) -> Array:
        """Uploads an array to devices, and returns its handle when the devices have it.

        The shards go in parallel, directly from this process to the executors, with checksums. An
        interrupted transfer is continued. An array of up to 64 KiB goes by way of the coordinator,
        in one call. A `tessera.Array`, which is on devices already, is resharded, as by
        `reshard()`.

        Args:
            value (array-like): The array: of NumPy, of JAX, of any library with DLPack whose memory
                is on the CPU, or a number or nested lists. An array keeps its dtype. Python's
                integers become s64, and its floats f64.
            mesh (Mesh): The devices. A mesh without devices takes the first ones that are healthy
                and not cordoned. The argument must be given.
            spec (P): Says how the dims are sharded over the mesh. With `P()` each device has the
                whole array.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            Array: the handle, with the shape and the dtype of `value`.

        Raises:
            TypeError: `mesh` or `spec` has another type, Tessera lacks the dtype of `value`, or
                this process cannot read its memory. Do not retry.
            ValueError: The spec names an axis that the mesh lacks, or has more entries than `value`
                has dims, or a dim does not divide evenly. Do not retry.
            FailedPreconditionError: Reason NOT_ENOUGH_DEVICES: the cluster has too few healthy
                devices, or a device does not exist. Retry when the cluster has grown.
            ResourceExhaustedError: Reason OUT_OF_MEMORY: a device is full. Reason LIMIT_EXCEEDED:
                there are too many arrays. Delete arrays first.
            UnavailableError: Reason WORKER_LOST: an executor was lost meanwhile. Put the array
                again.
            DataLossError: Reason CHECKSUM_MISMATCH: bytes changed on the way. Put the array again.

        Example:
            mesh = tessera.Mesh({"x": 2, "y": 2})
            rows = client.put(np.zeros((8, 4), np.float32), mesh, tessera.P("x"))
            print(rows.shape, rows.dtype, rows.spec.block_shape)  # (8, 4) float32 (4, 4)
        """
        _check_placement("put", mesh, spec)
        if isinstance(value, Array):
            return self.reshard(value, mesh, spec, timeout=timeout)
        array = np.asarray(_values.native(value))
        deadline = self._deadline(timeout)
        mesh = self._resolve(mesh, deadline.left)
        described = ArraySpec(_dtypes.from_numpy(array.dtype), array.shape, mesh, spec)
        return put_array(self, array, described, deadline.left)

    def reshard(
        self, array: Array, mesh: Mesh, spec: P = P(), *, timeout: float | None = None
    ) -> Array:
        """Returns a copy of an array with another placement.

        The bytes move from device to device. The call returns at once, and the source is kept. A
        later error is raised when the result is read.

        Args:
            array (Array): The source.
            mesh (Mesh): The devices of the copy, as for `put()`.
            spec (P): Says how the dims of the copy are sharded, as for `put()`.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            Array: the handle of the copy, whose `operation` is the move.

        Raises:
            TypeError: An argument has another type. Do not retry.
            ValueError: The spec does not fit the shape and the mesh, as for `put()`. Do not retry.
            FailedPreconditionError: Reason ARRAY_DELETED: the source was deleted or donated. Do not
                retry. Reason NOT_ENOUGH_DEVICES: as for `put()`.
            NotFoundError: Reason ARRAY_NOT_FOUND: the coordinator does not know the source, as
                after a restart without a state folder. Make the source again.
            UnavailableError: Reason WORKER_LOST: shards of the source are lost with a worker, and no
                other worker has them. Make the source again.
            ResourceExhaustedError: Reason LIMIT_EXCEEDED: there are too many arrays. Delete arrays
                first.
            Error: The error of the operation that should have made the source.

        Example:
            mesh = tessera.Mesh({"x": 2})
            rows = client.put(np.arange(8, dtype=np.float32).reshape(4, 2), mesh, tessera.P("x"))
            columns = client.reshard(rows, mesh, tessera.P(None, "x"))
            print(columns.sharding, columns.spec.block_shape)  # P(None, 'x') (4, 1)
        """
        _check_arrays("reshard", [array])
        _check_placement("reshard", mesh, spec)
        deadline = self._deadline(timeout)
        mesh = self._resolve(mesh, deadline.left)
        wanted = ArraySpec(array.spec.dtype, array.spec.shape, mesh, spec)
        request = _proto.message("ReshardArrayRequest")(
            array=array.id, placement=wanted.to_proto().placement
        )
        with self._using(array._session):
            answer = self._call_in_session("ArrayService/ReshardArray", request, deadline.left)
        made, session = answer.array, request.session
        return Array(
            self,
            made.id,
            ArraySpec.from_proto(made.spec),
            Operation(self, answer.operation.id, session),
            session,
        )

    def get(
        self, array: Array, *, timeout: float | None = None, bits: bool = False
    ) -> np.ndarray[Any, Any]:
        """Waits for an array and downloads it.

        Args:
            array (Array): The array.
            timeout (float): Number of seconds that waiting and downloading may take together. None
                means the timeout of `connect()`.
            bits (bool): Whether to return the elements as unsigned integers of the same width. This
                is for dtypes that NumPy lacks, such as bf16, if ml_dtypes is not installed. An
                element of fewer than 8 bits is in the low bits of a byte.

        Returns:
            numpy.ndarray: the whole array, in memory of its own, with the shape and dtype of the
            handle.

        Raises:
            TypeError: `array` is not an Array, or its dtype needs ml_dtypes, which is not installed
                or lacks the dtype. Use `bits=True`.
            FailedPreconditionError: Reason ARRAY_DELETED: the array was deleted, or donated to a
                run. Do not retry.
            NotFoundError: Reason ARRAY_NOT_FOUND: the coordinator does not know the array, as after
                a restart without a state folder. Reason SESSION_NOT_FOUND: the lease of the session
                ended while this process did not run. Make the array again.
            UnavailableError: Reason WORKER_LOST: shards are lost with a worker, and no other worker
                has them; the message says which. Make the array again, from inputs that still
                exist.
            DeadlineExceededError: The array was not ready, or not downloaded, in time. The run that
                computes it goes on. Retry.
            DataLossError: Reason CHECKSUM_MISMATCH: bytes changed on the way, several times. Retry.
            Error: The error of the operation that computes the array, for example CancelledError or
                AbortedError. Calling `get()` again raises the same error; run the program again.

        Example:
            array = client.put([1.5, 2.5], tessera.Mesh({"x": 2}), tessera.P("x"))
            print(client.get(array))  # [1.5 2.5]
        """
        _check_arrays("get", [array])
        return array.numpy(timeout, bits=bits)

    def array(self, id: int, timeout: float | None = None) -> Array:
        """Returns a handle of an array that exists, which another client may have made.

        The array is freed when the handle is garbage-collected, as with every handle.

        Args:
            id (int): Id of the array, `Array.id`.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            Array: the handle, whose `operation` is None.

        Raises:
            NotFoundError: Reason ARRAY_NOT_FOUND: the tenant has no such array. Do not retry.
            FailedPreconditionError: Reason ARRAY_DELETED: the array was deleted or donated. Do not
                retry.
            ValueError: The array is unreduced: its shards are terms of a sum. This client has no
                such arrays; reduce it in the program that makes it.
        """
        found = self._call_with("ArrayService/GetArray", timeout, array=id)
        return Array(self, id, ArraySpec.from_proto(found.spec))

    def delete(self, *arrays: Array, timeout: float | None = None) -> None:
        """Frees arrays now. An array that was freed before is no error.

        Args:
            *arrays (Array): The arrays.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Raises:
            TypeError: An argument is not an Array. Do not retry.

        Example:
            a = client.put(np.zeros(4), tessera.Mesh({"x": 2}))
            b = client.put(np.ones(4), tessera.Mesh({"x": 2}))
            client.delete(a, b)
        """
        _check_arrays("delete", arrays)
        self._call_with("ArrayService/DeleteArrays", timeout, arrays=[a.id for a in arrays])

    def save(
        self,
        path: str,
        arrays: Mapping[str, Array] | Array,
        *,
        overwrite: bool = False,
        timeout: float | None = None,
    ) -> Operation:
        """Lets the workers write arrays to a file below their folder of files, and waits until the
        file is complete.

        Each worker writes its own shards. The workers must have been started with `--files-dir`.
        Arrays that lie on several hosts need a folder that these hosts share.

        Args:
            path (str): Path of the file below the folder of files. It ends in .safetensors or .npy,
                which decides the format.
            arrays (Mapping of str to Array, or Array): The arrays by their names in the file. A
                .npy file has one array, without its name.
            overwrite (bool): Whether to replace a file that exists. If False, such a file is an
                error.
            timeout (float): Number of seconds that the call and the wait may take together. None
                means the timeout of `connect()`.

        Returns:
            Operation: the operation that has written the file. It has ended.

        Raises:
            TypeError: `arrays` has another type. Do not retry.
            InvalidArgumentError: Reason VALUE_ERROR: the path leaves the folder of files or has
                another ending, or the format cannot hold the arrays. Do not retry.
            AlreadyExistsError: The file exists, and `overwrite` is False. Do not retry.
            FailedPreconditionError: Reason FILES_DISABLED: the workers have no folder of files.
                Reason ARRAY_DELETED: an array was deleted or donated. Do not retry.
            NotFoundError: Reason ARRAY_NOT_FOUND: the coordinator does not know an array. Do not
                retry.
            ResourceExhaustedError: Reason NO_SPACE: the disk is full. Retry when it has room.
            UnavailableError: Reason WORKER_LOST: a worker was lost meanwhile. There is no file
                then. Make the lost arrays again.
            DeadlineExceededError: The file was not complete in time. The workers go on;
                `metadata["operation"]` of the error is the id of the operation, for `operation()`.

        Example:
            w = client.put(np.ones((4, 2), np.float32), tessera.Mesh({"x": 2}), tessera.P("x"))
            client.save("docs/model.safetensors", {"w": w}, overwrite=True)
            print(client.saved_arrays("docs/model.safetensors"))  # {'w': ('f32', (4, 2))}
        """
        deadline = self._deadline(timeout)
        named = {"": arrays} if isinstance(arrays, Array) else arrays
        if not isinstance(named, Mapping):
            raise TypeError(
                "save() takes an array, or arrays by name, as in {'w': w}, not "
                f"{type(named).__name__}"
            )
        _check_arrays("save", list(named.values()))
        request = _proto.message("SaveArraysRequest")(path=path, overwrite=overwrite)
        for name, array in named.items():
            request.arrays.add(name=name, array=array.id)
        with self._using(*(array._session for array in named.values())):
            answer = self._call("ArrayService/SaveArrays", request, deadline.left)
            operation = Operation(self, answer.id)
            operation.wait(deadline.left)
        return operation

    def load(
        self,
        path: str,
        placements: Mapping[str, tuple[Mesh, P]],
        *,
        timeout: float | None = None,
    ) -> dict[str, Array]:
        """Lets the workers read arrays from a file below their folder of files.

        Each worker reads only what its shards need. The call returns at once; a later error is
        raised when an array is read.

        Args:
            path (str): Path of the file below the folder of files, as for `save()`.
            placements (Mapping of str to a pair of Mesh and P): The placement of each array by its
                name in the file. The placement may differ from the one with which the array was
                saved. The name of the array in a .npy file is "".
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A dict with an Array for each name of `placements`.

        Raises:
            TypeError: `placements` has another type. Do not retry.
            InvalidArgumentError: Reason VALUE_ERROR, UNKNOWN_AXIS or INDIVISIBLE: the path or a
                placement is wrong. Do not retry.
            NotFoundError: Reason FILE_NOT_FOUND: there is no such file, or it has no array of this
                name. Do not retry.
            DataLossError: Reason FILE_CORRUPT: the file does not have the format of its name, or is
                cut short. Do not retry.
            FailedPreconditionError: Reason FILES_DISABLED: as for `save()`. Reason
                NOT_ENOUGH_DEVICES: as for `put()`.
            UnavailableError: Reason WORKER_LOST: no worker can read the file now. Retry.

        Example:
            saved = client.put([0.0, 1.0, 2.0, 3.0], tessera.Mesh({"x": 2}), tessera.P("x"))
            client.save("docs/four.npy", saved, overwrite=True)
            loaded = client.load("docs/four.npy", {"": (tessera.Mesh({"z": 4}), tessera.P("z"))})
            print(client.get(loaded[""]))  # [0. 1. 2. 3.]
        """
        deadline = self._deadline(timeout)
        request = _proto.message("LoadArraysRequest")(path=path)
        for name, (mesh, spec) in _check_placements(placements).items():
            mesh = self._resolve(mesh, deadline.left)
            set_placement(request.arrays.add(name=name).placement, mesh, spec)
        answer = self._call_in_session("ArrayService/LoadArrays", request, deadline.left)
        session = request.session
        operation = Operation(self, answer.operation.id, session)
        return {
            name: Array(self, made.id, ArraySpec.from_proto(made.spec), operation, session)
            for name, made in zip(placements, answer.arrays)
        }

    def saved_arrays(
        self, path: str, *, timeout: float | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Lists the arrays in a file below the workers' folder of files.

        Args:
            path (str): Path of the file below the folder of files, as for `save()`.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A dict with the dtype (str) and the shape (tuple of int) of each array by its name, in
            the order of the file. The name of the array in a .npy file is "".

        Raises:
            InvalidArgumentError: Reason VALUE_ERROR: the path leaves the folder of files or has
                another ending. Do not retry.
            NotFoundError: Reason FILE_NOT_FOUND: there is no such file. Do not retry.
            DataLossError: Reason FILE_CORRUPT: the file does not have the format of its name, or is
                cut short. Do not retry.
            FailedPreconditionError: Reason FILES_DISABLED: the workers have no folder of files. Do
                not retry.
            UnavailableError: Reason WORKER_LOST: no worker can read the file now. Retry.
        """
        answer = self._call_with("ArrayService/GetFile", timeout, path=path)
        return {e.name: (e.dtype, tuple(e.shape)) for e in answer.arrays}

    def _resolve(self, mesh: Mesh, timeout: float) -> Mesh:
        if mesh.devices is not None:
            return mesh
        free = [d for d in self.devices(timeout) if d.healthy and not d.cordoned]
        if len(free) < mesh.size:
            raise errors.FailedPreconditionError(
                f"{mesh} needs {mesh.size} devices, {len(free)} are healthy and not cordoned: "
                "use a smaller mesh, or add workers",
                reason="NOT_ENOUGH_DEVICES",
            )
        return mesh.on(free[: mesh.size])

    # ---- Programs. ----

    def compile(
        self,
        program: str | bytes | Any,
        *,
        mesh: Mesh | str | None = None,
        name: str = "",
        timeout: float | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> Executable:
        """Plans a program for devices, compiles it, and returns the executable.

        The server keeps what it has compiled: compiling the same program for the same devices again
        returns at once.

        Args:
            program (str, bytes or object): The program in one of these forms: text
                (docs/programs.md); a `tessera.v1.Program` or the bytes of one; or StableHLO, which
                is a `jax.export.Exported`, the result of `jax.jit(f).lower(...)`, or the bytes of a
                portable artifact.
            mesh (Mesh or str): The devices, in the order of the program's own mesh, or the name of
                a mesh that the cluster knows. If None, the server chooses.
            name (str): Name in metrics, operations and errors. By default it is the name of the
                function.
            timeout (float): Number of seconds that uploading and compiling may take. None means the
                timeout of `connect()`.
            on_progress (callable): Called while an artifact of more than 1 MiB is uploaded, with
                two ints: how many bytes have arrived, and how many there are.

        Returns:
            Executable: the compiled program. If the program comes from a JAX function, the
            executable takes and returns the pytrees of that function.

        Raises:
            TypeError: `program` has none of the forms, or `mesh` has another type. Do not retry.
            InvalidArgumentError: The program is wrong; the message says where. The reason is
                MALFORMED_PROGRAM, TYPE_ERROR, SHARDING_TYPE_ERROR, INDIVISIBLE, UNKNOWN_AXIS or the
                like. Do not retry.
            UnimplementedError: Reason UNKNOWN_OP or NOT_IMPLEMENTED: the server lacks an op, or a
                form of it. Do not retry.
            FailedPreconditionError: Reason NOT_ENOUGH_DEVICES: the cluster is too small for the
                mesh. Retry when it has grown. Reason PROGRAM_QUARANTINED: the program has twice
                ended the process that read it. Do not retry within the hour.
            NotFoundError: Reason MESH_NOT_FOUND: the cluster knows no mesh of this name. Do not
                retry.
            ResourceExhaustedError: Reason OUT_OF_MEMORY: the plan does not fit the devices. Reason
                LIMIT_EXCEEDED: the program exceeds a limit of the server. Do not retry.
            DeadlineExceededError: Reason COMPILE_TIMEOUT: compiling takes too long. The parts of
                the program that have been compiled are kept. Retry.
            UnavailableError: Reason WORKER_LOST: devices are away. Retry.
            ValueError: The function was exported for several platforms, and none is that of the
                devices. Export it for that one as well.

        Example:
            double = client.compile(
                "mesh (x=2) func main(%a: f32[4]) -> (f32[4]) { %b = add(%a, %a) return %b }")
            (b,) = double([1, 2, 3, 4])
            print(client.get(b))  # [2. 4. 6. 8.]

        Example:
            import jax
            import jax.export

            x = np.ones((2, 3), np.float32)
            exported = jax.export.export(jax.jit(lambda x: {"total": x.sum()}))(x)
            total = client.compile(exported)
            print(client.get(total(x)["total"]))  # 6.0
        """
        given = read_program("compile", program)
        _check_mesh("compile", mesh)
        return compile_program(
            self, given, mesh=mesh, name=name, timeout=timeout, on_progress=on_progress
        )

    def jit(
        self,
        function: Callable[..., Any] | None = None,
        *,
        mesh: Mesh | str | None = None,
        in_shardings: Any = None,
        out_shardings: Any = None,
        static_argnums: Sequence[int] | int | None = None,
        static_argnames: Sequence[str] | str | None = None,
        donate_argnums: Sequence[int] | int | None = None,
        donate_argnames: Sequence[str] | str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Returns a function whose calls run a JAX function on the cluster.

        Use it as `@client.jit` or `@client.jit(donate_argnums=(0,))`, in place of `@jax.jit`. The
        function is exported and compiled when it is first called with arguments of certain types.
        JAX must be installed. docs/from_jax.md shows more.

        Args:
            function (callable): The JAX function. If None, the method returns a decorator.
            mesh (Mesh or str): The devices, as for `compile()`.
            in_shardings (pytree): Shardings of the arguments, as for `jax.jit`, over a
                `jax.sharding.AbstractMesh`, whose devices need not be in this machine. If None, the
                planner chooses.
            out_shardings (pytree): Shardings of the result, in the same form.
            static_argnums (int or sequence of int): Numbers of the static arguments, as for
                `jax.jit`.
            static_argnames (str or sequence of str): Names of the static arguments, as for
                `jax.jit`.
            donate_argnums (int or sequence of int): Numbers of the arguments to delete once they
                have been read, such as the state of a training step, as for `jax.jit`.
            donate_argnames (str or sequence of str): Names of the arguments to delete, as for
                `jax.jit`.
            timeout (float): Number of seconds that compiling or a call may take. None means the
                timeout of `connect()`.

        Returns:
            JitFunction: the function, or a decorator that returns one.

        Raises:
            TypeError: `mesh` has another type. Do not retry.
            ValueError: JAX refuses `static_argnums` or the like. Do not retry.
            ImportError: JAX is not installed.

        Example:
            import jax.numpy as jnp

            @client.jit
            def norm(params):
                return jnp.sqrt(sum((p**2).sum() for p in params.values()))

            print(client.get(norm({"w": np.full(9, 1.0, np.float32), "b": np.float32(4)})))  # 5.0
        """
        if function is None:
            return functools.partial(
                self.jit,
                mesh=mesh,
                in_shardings=in_shardings,
                out_shardings=out_shardings,
                static_argnums=static_argnums,
                static_argnames=static_argnames,
                donate_argnums=donate_argnums,
                donate_argnames=donate_argnames,
                timeout=timeout,
            )
        _check_mesh("jit", mesh)
        return JitFunction(
            self,
            function,
            mesh=mesh,
            in_shardings=in_shardings,
            out_shardings=out_shardings,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
            donate_argnums=donate_argnums,
            donate_argnames=donate_argnames,
            timeout=timeout,
        )

    def explain(
        self,
        program: str | bytes | Any,
        *,
        mesh: Mesh | str | None = None,
        device_memory_bytes: int = 0,
        timeout: float | None = None,
    ) -> Plan:
        """Returns the plan of a program, without compiling it.

        Args:
            program (str, bytes or object): The program, in the forms of `compile()`.
            mesh (Mesh or str): The devices, as for `compile()`.
            device_memory_bytes (int): If above 0, the plan is for absent devices, as many as the
                mesh of the program has, each with this many bytes of memory. `mesh` must not name
                devices then.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            Plan: where each value lies, what devices exchange, and how much memory they need.

        Raises:
            ResourceExhaustedError: Reason OUT_OF_MEMORY: the plan does not fit
                `device_memory_bytes`, or the devices. Do not retry.
            InvalidArgumentError: The program is wrong, as for `compile()`, or the plan is for
                absent devices and `mesh` names devices. Do not retry.
            Error: The other errors of `compile()`.

        Example:
            double = "func main(%a: f32[4]) -> (f32[4]) { %b = add(%a, %a) return %b }"
            plan = client.explain(double)
            print(plan.memory_bound_bytes, "bytes")  # 32 bytes
        """
        given = read_program("explain", program)
        _check_mesh("explain", mesh)
        deadline = self._deadline(timeout)
        request = _proto.message("ExplainProgramRequest")(device_memory_bytes=device_memory_bytes)
        given.set_in(request, self, deadline, None)
        set_mesh(request, mesh)
        return Plan.from_proto(self._call("ProgramService/ExplainProgram", request, deadline.left))

    def run(
        self,
        program: str | bytes | Any,
        *args: Any,
        mesh: Mesh | str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Any:
        """Compiles a program, uploads the arguments, runs it and downloads the results.

        Args:
            program (str, bytes or object): The program, in the forms of `compile()`.
            *args (array-like): The arguments, as for `Executable.submit()`.
            mesh (Mesh or str): The devices, as for `compile()`.
            timeout (float): Number of seconds that all of it may take. The server ends a run that
                is late. None means the timeout of `connect()`.
            **kwargs (array-like): The arguments of a JAX function that are given by name.

        Returns:
            A tuple of numpy.ndarray, one for each result. For a JAX function, the pytree of its
            result, with a numpy.ndarray for each leaf.

        Raises:
            Error: The errors of `compile()`, `Executable.submit()` and `get()`.

        Example:
            double = "func main(%a: f32[3]) -> (f32[3]) { %b = add(%a, %a) return %b }"
            (b,) = client.run(double, [1, 2, 3])
            print(b)  # [2. 4. 6.]
        """
        deadline = self._deadline(timeout)
        executable = self.compile(program, mesh=mesh, timeout=deadline.left)
        run = executable.submit(*args, deadline=deadline.left, timeout=deadline.left, **kwargs)
        # The server ends a late run itself, and its error says what the run was doing.
        return executable.result(
            [self.get(a, timeout=deadline.left + _RESULT_GRACE_PERIOD) for a in run.outputs]
        )

    # ---- Operations. ----

    def operation(self, id: int) -> Operation:
        """Returns a handle of an operation, which another client may have started. Makes no call.

        Args:
            id (int): Id of the operation, `Operation.id`.

        Returns:
            Operation: the handle. If there is no such operation, its methods raise NotFoundError
            with reason OPERATION_NOT_FOUND.
        """
        return Operation(self, id)

    def operations(
        self, *, live: bool = False, all_sessions: bool = False, timeout: float | None = None
    ) -> list[OperationStatus]:
        """Lists operations: those that have not ended, and a number of those that have.

        Args:
            live (bool): Whether to list only operations that have not ended.
            all_sessions (bool): Whether to list the operations of all sessions of the tenant. If
                False, those of this client's session are listed. An operator gets the operations of
                all tenants.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A list of OperationStatus, in the order of ids.

        Raises:
            NotFoundError: Reason SESSION_NOT_FOUND: the coordinator has lost the session, and no
                call has opened another one yet. Make any call that makes something, or pass
                `all_sessions=True`.

        Example:
            client.run("func main(%a: f32[]) -> (f32[]) { return %a }", 1)
            print([operation.state for operation in client.operations()])  # ['DONE']
        """
        return [
            OperationStatus.from_proto(o)
            for o in self._pages(
                "OperationService/ListOperations",
                "operations",
                timeout,
                session=0 if all_sessions else self.session,
                all_sessions=all_sessions,
                live_only=live,
            )
        ]

    # ---- Any call. ----

    def call(
        self,
        method: str,
        request: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> dict[str, Any]:
        """Calls any method of the service, with messages as JSON. docs/rpcs.md lists the methods.

        Args:
            method (str): Name of the method: "SERVICE/METHOD".
            request (Mapping): The request in protobuf's JSON mapping, in which integers of 64 bits
                are strings. None means an empty request.
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A dict with the response in protobuf's JSON mapping. Fields that are empty are left out.

        Raises:
            ValueError: There is no such method, it is a stream, or the request does not fit it. Do
                not retry.
            Error: The errors of the method, which its comment in proto/tessera/v1 lists.

        Example:
            found = client.call("SessionService/GetSession", {"session": str(client.session)})
            print(found["lease"])  # 60s
        """
        described = _proto.method(method)
        if any(described.streams):
            raise ValueError(f"{method!r} is a stream; call() is for methods with one answer")
        message = described.request()
        try:
            _proto.from_json(dict(request or {}), message)
        except _proto.ParseError as error:
            raise ValueError(f"{method}: the request does not fit it: {error}") from None
        return _proto.to_json(self._call(method, message, timeout))

    def __repr__(self) -> str:
        closed = "" if self._finalizer.alive else " closed"
        return f"<tessera.Client {self.address} session {self.session}{closed}>"


# ---- Checks of argument types. ----


def _kind(value: Any) -> str:
    return type(value).__name__


def _check_arrays(method: str, arrays: Sequence[Any]) -> None:
    for array in arrays:
        if isinstance(array, Array):
            continue
        hint = "; client.array(ID) is the handle of an array that exists"
        raise TypeError(
            f"{method}() takes a tessera.Array, not {_kind(array)}"
            f"{hint if isinstance(array, int) else ''}"
        )


def _check_placement(method: str, mesh: Any, spec: Any) -> None:
    if not isinstance(mesh, Mesh):
        given = "none is given" if mesh is None else f"{_kind(mesh)} is given"
        raise TypeError(
            f"{method}() takes a tessera.Mesh, which says on which devices the array is to lie, as "
            f"in tessera.Mesh({{'x': 2}}); {given}"
        )
    if not isinstance(spec, P):
        raise TypeError(
            f"{method}() takes a tessera.P, which says how the array is to lie on the mesh, as in "
            f"tessera.P('x'); {_kind(spec)} is given"
        )


def _check_placements(placements: Any) -> Mapping[str, tuple[Mesh, P]]:
    if not isinstance(placements, Mapping):
        raise TypeError(
            "load() takes the placement of each array by its name, as in "
            f"{{'w': (tessera.Mesh({{'x': 2}}), tessera.P('x'))}}; {_kind(placements)} is given"
        )
    for name, placement in placements.items():
        if not isinstance(placement, tuple) or len(placement) != 2:
            raise TypeError(
                f"load() takes a pair of a tessera.Mesh and a tessera.P for {name!r}; "
                f"{_kind(placement)} is given"
            )
        _check_placement("load", *placement)
    return placements


def _check_mesh(method: str, mesh: Any) -> None:
    if mesh is not None and not isinstance(mesh, (Mesh, str)):
        raise TypeError(
            f"{method}() takes a tessera.Mesh or the name of a mesh of the cluster, not "
            f"{_kind(mesh)}"
        )
