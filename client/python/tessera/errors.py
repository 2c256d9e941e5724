"""The exceptions of calls: one subclass of `Error` per canonical code.

The code tells a program what to do, `reason` and `metadata` tell it what happened, and the message
tells a person. Reasons are listed in docs/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Error(Exception):
    """The error of a call that did not succeed, or of an operation that failed.

    The class or `code` says what a program can do; `reason` and `metadata` say what happened; the
    message is for people. docs/errors.md lists the reasons, and says for each whether to retry.
    Some classes are also built-in ones, so that `except ValueError`, TimeoutError, LookupError,
    PermissionError, ConnectionError and NotImplementedError catch them.

    Attributes:
        code (str): Name of the code in google.rpc.Code, such as "UNAVAILABLE". Each subclass has
            one.
        message (str): The message for people, in English.
        reason (str): The reason, such as "WORKER_LOST", or "" if the server gave none.
        metadata (dict of str to str): Facts about this one error, by name.
        retry_delay (float or None): Number of seconds after which the same call may succeed, if the
            server gave one.
        details (list of dict): The details of the gRPC status: messages of google.rpc as JSON.

    Example:
        try:
            client.array(7)
        except tessera.Error as error:
            print(error.code, error.reason)  # NOT_FOUND ARRAY_NOT_FOUND
    """

    code = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        metadata: Mapping[str, str] | None = None,
        retry_delay: float | None = None,
        details: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Makes an error with these attributes; see the class."""
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_delay = retry_delay
        self.details = [dict(d) for d in details]

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.code}{reason}: {self.message}"


class CancelledError(Error):
    """The operation, or an operation whose results it reads, was cancelled.

    Do not retry, unless the cancellation was a mistake: then run the program again.

    Example:
        double = client.compile("func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
        run = double.submit([1, 2])
        try:
            run.wait()
        except tessera.CancelledError:
            print("someone has cancelled the run")
    """

    code = "CANCELLED"


class UnknownError(Error):
    """The error has a code that this client does not know, or no code.

    Tessera's coordinator does not use this code; a proxy on the way may. Look at the message.

    Example:
        try:
            client.devices()
        except tessera.UnknownError as error:
            print("not an answer of the coordinator:", error.message)
    """


class InvalidArgumentError(Error, ValueError):
    """The program or the call is wrong; the message says where and what was expected.

    Do not retry. The class is also a ValueError.

    Example:
        try:
            client.compile("func main(%a: f32[2]) -> (f32[3]) { return %a }")
        except tessera.InvalidArgumentError as error:
            print(error.reason)  # MALFORMED_PROGRAM
    """

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """The timeout of a call or the deadline of a run has passed.

    A method that only reads or waits may be called again; the work on the cluster goes on. A run
    that has failed because its own deadline passed has ended: run the program again with a later
    one. With reason COMPILE_TIMEOUT, retry. The class is also a TimeoutError.

    Example:
        def wait_for(run, minutes):
            for _ in range(minutes):
                try:
                    return run.wait(timeout=60)
                except tessera.DeadlineExceededError as error:
                    print("still waiting:", error.message)

        double = client.compile("func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
        print(wait_for(double.submit([1, 2]), minutes=5).state)  # DONE
    """

    code = "DEADLINE_EXCEEDED"


class NotFoundError(Error, LookupError):
    """The coordinator knows nothing with this name or id.

    Do not retry. After a restart of the coordinator without a state folder, make arrays and
    executables again. The class is also a LookupError.

    Example:
        try:
            client.operation(7).status()
        except tessera.NotFoundError as error:
            print(error.reason)  # OPERATION_NOT_FOUND
    """

    code = "NOT_FOUND"


class AlreadyExistsError(Error):
    """Something else has this name.

    Do not retry with the same name.

    Example:
        one = client.put(np.ones(2), tessera.Mesh({"x": 1}))
        client.save("docs/one.npy", one, overwrite=True)
        try:
            client.save("docs/one.npy", one)
        except tessera.AlreadyExistsError:
            print("the file exists")  # the file exists
    """

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """The role of the token does not allow the call, or a ticket does not allow the transfer.

    Do not retry; ask for a token with another role. The class is also a PermissionError.

    Example:
        try:
            client.call("AdminService/CordonWorker", {"worker": "w0"})
            client.call("AdminService/UncordonWorker", {"worker": "w0"})
        except tessera.PermissionDeniedError:
            print("this needs the role operator")
    """

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error):
    """A queue, a memory, a disk or a limit is full.

    With the reasons RATE_LIMITED and QUEUE_FULL, retry after `retry_delay` seconds. With
    OUT_OF_MEMORY, delete arrays or shard them further. With LIMIT_EXCEEDED, make less or smaller
    things.

    Example:
        program = "func main(%a: f32[1024]) -> (f32[1024]) { %b = add(%a, %a) return %b }"
        try:
            client.explain(program, device_memory_bytes=4096)
        except tessera.ResourceExhaustedError as error:
            print(error.reason)  # OUT_OF_MEMORY
    """

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error):
    """The call is right, but the state does not allow it.

    Do not retry before something has changed. With reason NOT_ENOUGH_DEVICES that is the cluster.

    Example:
        array = client.put(np.ones(2), tessera.Mesh({"x": 1}))
        array.delete()
        try:
            client.get(array)
        except tessera.FailedPreconditionError as error:
            print(error.reason)  # ARRAY_DELETED
    """

    code = "FAILED_PRECONDITION"


class AbortedError(Error):
    """The operation was stopped because another device or operation failed first.

    If the reason is PEER_FAILED, the message names that failure, which decides whether to retry. If it is
    PEER_ABORTED, an operation before this one on the same devices was broken off in an exchange: run this one again.

    Example:
        double = client.compile("func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
        try:
            double.submit([1, 2]).wait()
        except tessera.AbortedError as error:
            print("the first failure:", error.message)
    """

    code = "ABORTED"


class OutOfRangeError(Error):
    """A value is out of range.

    Tessera's coordinator does not use this code; a proxy on the way may. Do not retry.

    Example:
        try:
            client.devices()
        except tessera.OutOfRangeError as error:
            print("not an answer of the coordinator:", error.message)
    """

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """This server lacks an op, a form of an op, or a method.

    Do not retry. A newer server may have it. The class is also a NotImplementedError.

    Example:
        try:
            client.compile("func main(%a: f32[2]) -> (f32[2]) { %b = twist(%a) return %b }")
        except tessera.UnimplementedError as error:
            print(error.reason)  # UNKNOWN_OP
    """

    code = "UNIMPLEMENTED"


class InternalError(Error):
    """The error is due to a bug of Tessera.

    Report it with the log of the coordinator. A program that fails in this way twice is refused for
    an hour (PROGRAM_QUARANTINED).

    Example:
        try:
            client.run("func main(%a: f32[2]) -> (f32[2]) { return %a }", [1, 2])
        except tessera.InternalError as error:
            print("please report:", error)
    """

    code = "INTERNAL"


class UnavailableError(Error, ConnectionError):
    """A worker was lost, or no coordinator answers.

    Retry. With reason WORKER_LOST, run the program again, from inputs that still exist. With
    UNREACHABLE or SERVER_STOPPING, the client has retried already; retry when the coordinator is
    back. The class is also a ConnectionError.

    Example:
        def run_again_if_lost(program, *values, attempts=3):
            for attempt in range(1, attempts + 1):
                try:
                    return client.run(program, *values)
                except tessera.UnavailableError as error:
                    if error.reason != "WORKER_LOST" or attempt == attempts:
                        raise

        print(run_again_if_lost("func main(%a: f32[2]) -> (f32[2]) { return %a }", [1, 2]))
    """

    code = "UNAVAILABLE"


class DataLossError(Error):
    """Bytes are corrupt.

    With reason CHECKSUM_MISMATCH, retry: bytes have changed on the way. With FILE_CORRUPT, write
    the file again.

    Example:
        one = client.put(np.ones(2), tessera.Mesh({"x": 1}))
        client.save("docs/checkpoint.npy", one, overwrite=True)
        try:
            (one,) = client.load("docs/checkpoint.npy", {"": (one.mesh, tessera.P())}).values()
        except tessera.DataLossError:
            print("the checkpoint is corrupt; take an older one")
    """

    code = "DATA_LOSS"


class UnauthenticatedError(Error):
    """The call has no token, or one that the server does not accept.

    The reason is TOKEN_MISSING, TOKEN_UNKNOWN, TOKEN_EXPIRED or TOKEN_REVOKED. Do not retry; set
    TESSERA_TOKEN, or ask the operator of the cluster for a token.

    Example:
        try:
            tessera.connect("127.0.0.1:8470").close()
        except tessera.UnauthenticatedError as error:
            print("no access:", error.reason)
    """

    code = "UNAUTHENTICATED"


_NUMBERS: tuple[type[Error] | None, ...] = (
    None, CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError, NotFoundError,
    AlreadyExistsError, PermissionDeniedError, ResourceExhaustedError, FailedPreconditionError,
    AbortedError, OutOfRangeError, UnimplementedError, InternalError, UnavailableError,
    DataLossError, UnauthenticatedError,
)  # fmt: skip


def class_of(code: int) -> type[Error]:
    """Returns the class for a number of google.rpc.Code other than OK."""
    return (_NUMBERS[code] if 0 < code < len(_NUMBERS) else None) or UnknownError
