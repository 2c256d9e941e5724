"""The exceptions of calls: one subclass of `Error` per canonical code.

The code tells a program what to do, `reason` and `metadata` tell it what happened, and the message
tells a person. Reasons are listed in docs/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Error(Exception):
    """The error of a call that did not succeed.

    code      The name of the code in google.rpc.Code, such as "UNAVAILABLE".
    message   The message for people, in English.
    reason    The reason, a row of docs/errors.md such as "WORKER_LOST", or "" if the server gave
              none.
    metadata  Facts about this one error, by name.
    retry_delay  The number of seconds after which the same call may succeed, if the server gave it.
    details   The details of the gRPC status, as JSON of google.rpc's messages.
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
    """The operation was cancelled."""

    code = "CANCELLED"


class UnknownError(Error):
    """The server gave no reason."""


class InvalidArgumentError(Error, ValueError):
    """The program or the call is wrong; the message says where."""

    code = "INVALID_ARGUMENT"


class DeadlineExceededError(Error, TimeoutError):
    """The deadline passed."""

    code = "DEADLINE_EXCEEDED"


class NotFoundError(Error, LookupError):
    """Nothing has this name."""

    code = "NOT_FOUND"


class AlreadyExistsError(Error):
    """Something else has this name."""

    code = "ALREADY_EXISTS"


class PermissionDeniedError(Error, PermissionError):
    """The caller's role or the ticket does not permit the call."""

    code = "PERMISSION_DENIED"


class ResourceExhaustedError(Error):
    """A queue, a memory or a limit is full."""

    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(Error):
    """The call is right, but the state does not allow it."""

    code = "FAILED_PRECONDITION"


class AbortedError(Error):
    """The operation was stopped because something else failed first."""

    code = "ABORTED"


class OutOfRangeError(Error):
    """A value is out of range."""

    code = "OUT_OF_RANGE"


class UnimplementedError(Error, NotImplementedError):
    """This server does not support the call."""

    code = "UNIMPLEMENTED"


class InternalError(Error):
    """The error is due to a bug in Tessera."""

    code = "INTERNAL"


class UnavailableError(Error, ConnectionError):
    """A worker or the server is unavailable."""

    code = "UNAVAILABLE"


class DataLossError(Error):
    """Bytes are corrupt."""

    code = "DATA_LOSS"


class UnauthenticatedError(Error):
    """The call has no token, or one that the server does not know."""

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
