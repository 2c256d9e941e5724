"""Operations: their state, why they wait, how they ended."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from tessera import _proto, _rpc, errors
from tessera._channel import MAX_WAIT, SERVER_GRACE_PERIOD, Channel

_ENDED = ("DONE", "FAILED", "CANCELLED")
_WATCH_ATTEMPTS = 6  # without a snapshot, of those that reach the server


@dataclasses.dataclass(frozen=True)
class PendingReason:
    """Why an operation has not started."""

    code: str  # "WAITING_FOR_UPLOAD"
    message: str
    resources: tuple[str, ...]  # "arrays/7"

    @staticmethod
    def from_proto(proto: Any) -> PendingReason:
        """Converts the protobuf message."""
        return PendingReason(proto.code, proto.message, tuple(proto.resources))


@dataclasses.dataclass(frozen=True)
class OperationStatus:
    """A snapshot of an operation."""

    id: int
    name: str  # of the executable
    kind: str  # "execute", "save", "load", "reshard"
    state: str  # "PENDING", "RUNNING", "DONE", "FAILED", "CANCELLED"
    session: int
    pending_reason: str
    error: errors.Error | None
    outputs: tuple[int, ...]  # arrays
    create_time: datetime.datetime | None
    start_time: datetime.datetime | None
    end_time: datetime.datetime | None

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state in _ENDED

    @staticmethod
    def from_proto(proto: Any) -> OperationStatus:
        """Converts the protobuf message."""

        def time(field: str) -> datetime.datetime | None:
            if not proto.HasField(field):
                return None
            found: datetime.datetime = getattr(proto, field).ToDatetime(datetime.timezone.utc)
            return found

        return OperationStatus(
            id=proto.id,
            name=proto.name,
            kind=proto.kind,
            state=_proto.state_of(proto),
            session=proto.session,
            pending_reason=proto.pending_reason,
            error=_rpc.from_status(proto.error.code, proto.error.message, proto.error)
            if proto.error.code
            else None,
            outputs=tuple(proto.outputs),
            create_time=time("create_time"),
            start_time=time("start_time"),
            end_time=time("end_time"),
        )


class Operation:
    """An accepted operation. Survives this process; the server retains its record for a while."""

    def __init__(self, channel: Channel, id: int) -> None:
        self._channel = channel
        self.id = id

    def status(self, timeout: float | None = None) -> OperationStatus:
        """The current snapshot."""
        answer = self._channel._call_with(
            "OperationService/GetOperation", timeout, operation=self.id
        )
        return OperationStatus.from_proto(answer)

    def wait(self, timeout: float | None = None) -> OperationStatus:
        """Waits for the end. Raises the operation's error if it failed or was cancelled, and
        DeadlineExceededError, which says what it waits for, if it has not ended in time; it then
        continues."""
        deadline = self._channel._deadline(timeout)
        request = _proto.message("WaitOperationRequest")(operation=self.id)
        while True:
            wait = min(deadline.left, MAX_WAIT)
            _proto.set_duration(request.timeout, wait)
            answer = self._channel._call(
                "OperationService/WaitOperation", request, wait + SERVER_GRACE_PERIOD
            )
            status = OperationStatus.from_proto(answer)
            if status.error is not None:
                raise status.error
            if status.ended:
                return status
            if not deadline.left:
                why = status.pending_reason or f"it is {status.state}"
                raise errors.DeadlineExceededError(
                    f"operation {self.id} ({status.name}) has not ended within "
                    f"{deadline.timeout:g} s: {why}; it goes on",
                    reason="DEADLINE_EXCEEDED",
                    metadata={"operation": str(self.id), "state": status.state},
                )

    def watch(self, timeout: float | None = None) -> Iterator[OperationStatus]:
        """Yields the current snapshot and one per change until it has ended; reconnects if the
        connection fails. DeadlineExceededError if it has not ended in time."""
        deadline = self._channel._deadline(timeout)
        request = _proto.message("WatchOperationRequest")(operation=self.id)
        last: OperationStatus | None = None
        retries = self._channel._retries(deadline, _WATCH_ATTEMPTS)
        while True:
            try:
                for proto in self._channel._read_stream(
                    "OperationService/WatchOperation", request, deadline.left
                ):
                    status = OperationStatus.from_proto(proto)
                    retries.progress()
                    if status != last:
                        yield status
                    if status.ended:
                        return
                    last = status
            except errors.Error as error:
                if not retries.again(error):
                    raise

    def pending(self, timeout: float | None = None) -> list[PendingReason]:
        """Why it has not started, the most important reason first; empty if it has."""
        answer = self._channel._call_with(
            "OperationService/ExplainPending", timeout, operation=self.id
        )
        return [PendingReason.from_proto(r) for r in answer.reasons]

    def cancel(self, timeout: float | None = None) -> None:
        """Cancels it if it has not ended; its results then fail with CANCELLED."""
        self._channel._call_with("OperationService/CancelOperation", timeout, operation=self.id)

    def __repr__(self) -> str:
        return f"<tessera.Operation {self.id}>"
