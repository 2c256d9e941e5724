"""Operations: their state, why they wait, how they ended."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from tessera import _proto, _rpc, errors
from tessera._channel import MAX_WAIT, SERVER_GRACE_PERIOD, Channel

_ENDED = ("DONE", "FAILED", "CANCELLED")
_WATCH_ATTEMPTS = 6  # attempts that reach the server and bring no snapshot


@dataclasses.dataclass(frozen=True)
class PendingReason:
    """One reason why an operation has not started."""

    code: str  # "WAITING_FOR_UPLOAD"
    message: str
    resources: tuple[str, ...]  # "arrays/7"

    @staticmethod
    def from_proto(proto: Any) -> PendingReason:
        """Converts the protobuf message to a PendingReason."""
        return PendingReason(proto.code, proto.message, tuple(proto.resources))


@dataclasses.dataclass(frozen=True)
class OperationStatus:
    """A snapshot of an operation."""

    id: int
    name: str  # name of the executable
    kind: str  # "execute", "save", "load", "reshard"
    state: str  # "PENDING", "RUNNING", "DONE", "FAILED", "CANCELLED"
    session: int
    pending_reason: str
    error: errors.Error | None
    outputs: tuple[int, ...]  # ids of the arrays that it makes
    create_time: datetime.datetime | None
    start_time: datetime.datetime | None
    end_time: datetime.datetime | None

    @property
    def ended(self) -> bool:
        """Whether the operation has ended."""
        return self.state in _ENDED

    @staticmethod
    def from_proto(proto: Any) -> OperationStatus:
        """Converts the protobuf message to an OperationStatus."""

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
    """An operation that the server has accepted.

    It survives this process, and the server keeps its record for a while after it has ended.
    """

    def __init__(self, channel: Channel, id: int) -> None:
        self._channel = channel
        self.id = id

    def status(self, timeout: float | None = None) -> OperationStatus:
        """Returns the current snapshot."""
        answer = self._channel._call_with(
            "OperationService/GetOperation", timeout, operation=self.id
        )
        return OperationStatus.from_proto(answer)

    def wait(self, timeout: float | None = None) -> OperationStatus:
        """Waits for the end of the operation and returns the last snapshot.

        Raises the operation's error if it failed or was cancelled. If the operation has not ended
        in time, raises DeadlineExceededError, which says what the operation waits for; the
        operation then continues."""
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
        """Yields the current snapshot, and a new one per change until the operation has ended.

        Reconnects if the connection fails. Raises DeadlineExceededError if the operation has not
        ended in time."""
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
        """Returns the reasons why the operation has not started, the most important one first. The
        list is empty if the operation has started."""
        answer = self._channel._call_with(
            "OperationService/ExplainPending", timeout, operation=self.id
        )
        return [PendingReason.from_proto(r) for r in answer.reasons]

    def cancel(self, timeout: float | None = None) -> None:
        """Cancels the operation if it has not ended. Its results then fail with CANCELLED."""
        self._channel._call_with("OperationService/CancelOperation", timeout, operation=self.id)

    def __repr__(self) -> str:
        return f"<tessera.Operation {self.id}>"
