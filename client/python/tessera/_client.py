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
from tessera._executable import Executable, Plan
from tessera._jax import JitFunction
from tessera._operation import Operation, OperationStatus
from tessera._programs import read_program
from tessera._rpc import Connection
from tessera._session import Session
from tessera._transfer import Transfers
from tessera.sharding import ArraySpec, Device, Mesh, P, set_placement

_DEFAULT_ADDRESS = "127.0.0.1:8470"
# The default of arguments that must be given, so that the error can say what they are for.
_REQUIRED: Any = None
# How many seconds after its deadline the error of a run may arrive.
_RESULT_GRACE_PERIOD = 0.5


@dataclasses.dataclass(frozen=True)
class Worker:
    """One worker of the cluster."""

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
    reconnect: float = 30.0,
) -> Client:
    """Connects to a coordinator and opens a session there.

    address   HOST:PORT of the coordinator. The default is TESSERA_ADDRESS or, without that
              variable, 127.0.0.1:8470.
    ca        The PEM file of the cluster's CA; calls then use TLS. The default is TESSERA_CA_FILE.
              Without either, calls use plain text, which is allowed to this machine only.
    token     The text of the bearer token. The default is TESSERA_TOKEN or, without that variable,
              no token.
    lease     How many seconds the session outlives this process if that is killed. If None, the
              client uses the tenant's own session, where arrays and operations stay until they are
              deleted.
    timeout   The timeout, in seconds, of calls that are given no timeout.
    insecure  Allows plain text to another machine. That includes the token.
    reconnect How many seconds calls look for a coordinator that has gone away, each within its own
              timeout. After that, and until the coordinator is back, calls fail with reason
              UNREACHABLE within a few seconds. The session, arrays and operations stay valid
              meanwhile.

    Raises InvalidArgumentError if the address is invalid, and FailedPreconditionError with reason
    TLS_MISMATCH if the file `ca` cannot be read or has no certificate.
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
    connection = Connection(address, ca_pem, token, reconnect=reconnect)
    try:
        session = Session(connection, lease, timeout)
    except BaseException:
        connection.close()
        raise
    return Client(connection, session, Transfers(ca_pem), timeout)


class Client(Channel):
    """A connection with a session. Made by connect(). Thread-safe.

    The client is a context manager: leaving it ends the session, which cancels the session's
    operations and frees its arrays. The garbage collection of the client and the end of the process
    do the same. If the coordinator has lost the session, say by a restart, the next call opens
    another session, which is empty.
    """

    def close(self) -> None:
        """Ends the session. Idempotent."""
        self._finalizer()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The address of the coordinator."""
        return self._connection.address

    # ---- The cluster. ----

    def devices(self, timeout: float | None = None) -> list[Device]:
        """Returns every device of the cluster, healthy or not, in the order of ids."""
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
        """Returns all workers that have registered since the coordinator started, in the order of
        names."""
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
        """Returns the version, limits and timeouts of the server, with the field names of the RPC
        GetCapabilities."""
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
        """Uploads an array to devices and returns its handle.

        Each shard goes directly to its executor. A tessera.Array, which is on devices already, is
        resharded. Raises TypeError if no mesh is given."""
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

        The bytes move from device to device. The call returns at once; a later error is raised when
        the result is read."""
        _check_arrays("reshard", [array])
        _check_placement("reshard", mesh, spec)
        deadline = self._deadline(timeout)
        mesh = self._resolve(mesh, deadline.left)
        wanted = ArraySpec(array.spec.dtype, array.spec.shape, mesh, spec)
        request = _proto.message("ReshardArrayRequest")(
            array=array.id, placement=wanted.to_proto().placement
        )
        answer = self._call_in_session("ArrayService/ReshardArray", request, deadline.left)
        made = answer.array
        return Array(
            self, made.id, ArraySpec.from_proto(made.spec), Operation(self, answer.operation.id)
        )

    def get(
        self, array: Array, *, timeout: float | None = None, bits: bool = False
    ) -> np.ndarray[Any, Any]:
        """Waits for an array and downloads it. Raises the error of the run that computes it.

        bits  Returns the elements as unsigned integers of the same width. This is for dtypes that
              NumPy lacks, such as bf16, if ml_dtypes is not installed. An element of fewer than 8
              bits is in the low bits of a byte.
        """
        _check_arrays("get", [array])
        return array.numpy(timeout, bits=bits)

    def array(self, id: int, timeout: float | None = None) -> Array:
        """Returns a handle of the array with this id, which another client may have made.

        As with every tessera.Array, the array is freed when the handle is garbage-collected."""
        found = self._call_with("ArrayService/GetArray", timeout, array=id)
        return Array(self, id, ArraySpec.from_proto(found.spec))

    def delete(self, *arrays: Array, timeout: float | None = None) -> None:
        """Frees arrays now. Idempotent."""
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
        """Has the workers write arrays to files under their --files-dir, and waits until the files
        are written. Each worker writes its own shards. Returns the operation, which has ended.

        path       The path of the file, which ends in .safetensors or .npy. A .npy file holds one
                   array without a name.
        overwrite  Whether to replace a file that exists. If False, such a file is an error.
        timeout    The timeout of the call and the wait together. If the files are not written in
                   time, raises DeadlineExceededError; the workers then continue.
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
        """Has the workers read arrays from a file under their --files-dir, and returns the arrays
        by name.

        Each worker reads what its shards need. The name of the array in a .npy file is ""."""
        deadline = self._deadline(timeout)
        request = _proto.message("LoadArraysRequest")(path=path)
        for name, (mesh, spec) in _check_placements(placements).items():
            mesh = self._resolve(mesh, deadline.left)
            set_placement(request.arrays.add(name=name).placement, mesh, spec)
        answer = self._call_in_session("ArrayService/LoadArrays", request, deadline.left)
        operation = Operation(self, answer.operation.id)
        return {
            name: Array(self, made.id, ArraySpec.from_proto(made.spec), operation)
            for name, made in zip(placements, answer.arrays)
        }

    def saved_arrays(
        self, path: str, *, timeout: float | None = None
    ) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Returns the dtypes and shapes, by name, of the arrays in a file under the workers'
        --files-dir, in the order of the file. The name of the array in a .npy file is ""."""
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
        """Plans a program for devices and returns the executable. The server caches plans by
        program and devices.

        program  The program in one of these forms: text; a tessera.v1.Program or the bytes of one;
                 or StableHLO, which is a jax.export.Exported, the result of jax.jit(f).lower(...),
                 or the bytes of a portable artifact.
        mesh     The mesh whose devices are taken, in the order of the program's own mesh, or the
                 name of a mesh that the cluster knows. If None, the server chooses the devices.
        name     The name in metrics, operations and errors.
        on_progress  Called while a large artifact is uploaded, with the number of bytes that have
                 arrived and the number of all bytes.
        """
        given = read_program("compile", program)
        _check_mesh("compile", mesh)
        deadline = self._deadline(timeout)
        request = _proto.message("CompileProgramRequest")(name=name)
        explain = _proto.message("ExplainProgramRequest")()
        for target in (request, explain):
            given.set_in(target, self, deadline, on_progress)
            _set_mesh(target, mesh)
        compiled = self._call("ProgramService/CompileProgram", request, deadline.left)
        executable = Executable(self, compiled, explain, given.trees)
        if given.trees is not None and len(given.trees.platforms) > 1:
            # All devices of a program are of one kind.
            found = {d.kind for d in self.devices(deadline.left) if d.id in executable.devices}
            executable._platform = given.trees.platform_on(next(iter(found), "cpu"))
        if not explain.mesh:
            del explain.devices[:]
            explain.devices.extend(executable.devices)
        return executable

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
        """Returns a function whose calls run a JAX function on the cluster. Used as @client.jit or
        @client.jit(donate_argnums=(0,)).

        The function is exported and compiled when it is first called with arguments of certain
        types.

        mesh, timeout    The same as for compile() and for calls of the executable.
        in_shardings, out_shardings  The same as for jax.jit. They are shardings over a
                         jax.sharding.AbstractMesh, whose devices need not be in this machine. If
                         None, the planner chooses.
        static_argnums, static_argnames  The same as for jax.jit.
        donate_argnums, donate_argnames  The same as for jax.jit: arguments to delete once they have
                         been read, such as the state of a training step.
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

        program              The same as for compile().
        mesh                 The same as for compile().
        device_memory_bytes  If above 0, the plan is for absent devices, as many as the program's
                             mesh has, each with this much memory. In that case `mesh` must not name
                             devices. A program that does not fit raises OUT_OF_MEMORY.
        """
        given = read_program("explain", program)
        _check_mesh("explain", mesh)
        deadline = self._deadline(timeout)
        request = _proto.message("ExplainProgramRequest")(device_memory_bytes=device_memory_bytes)
        given.set_in(request, self, deadline, None)
        _set_mesh(request, mesh)
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

        Returns the results as a tuple of NumPy arrays or, for a JAX function, in the pytree of its
        result. `program` has the same forms as for compile()."""
        deadline = self._deadline(timeout)
        executable = self.compile(program, mesh=mesh, timeout=deadline.left)
        run = executable.submit(*args, deadline=deadline.left, timeout=deadline.left, **kwargs)
        # The server ends a late run itself, and its error says what the run was doing.
        return executable.result(
            [self.get(a, timeout=deadline.left + _RESULT_GRACE_PERIOD) for a in run.outputs]
        )

    # ---- Operations. ----

    def operation(self, id: int) -> Operation:
        """Returns a handle of the operation with this id. Makes no call."""
        return Operation(self, id)

    def operations(
        self, *, live: bool = False, all_sessions: bool = False, timeout: float | None = None
    ) -> list[OperationStatus]:
        """Returns the operations of the session or, with all_sessions, those of the tenant, in the
        order of ids."""
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
        """Calls any unary method, with the request and the response in protobuf's JSON mapping, in
        which 64-bit integers are strings:
        call("AdminService/DrainWorker", {"worker": "w0"}). Raises ValueError for unknown names."""
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


def _set_mesh(request: Any, mesh: Mesh | str | None) -> None:
    if isinstance(mesh, str):
        request.mesh = mesh
    elif mesh is not None:
        request.devices.extend(mesh.devices or ())


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
