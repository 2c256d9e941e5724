"""Operations: their state, why they wait, how they ended."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from tessera import _proto, _rpc, errors
from tessera._channel import Channel

_ENDED = ("DONE", "FAILED", "CANCELLED")
# The longest wait of one call; the server has its own bound.
_WAIT = 30.0
# Added to the timeout of a call that waits.
_GRACE = 10.0


@dataclasses.dataclass(frozen=True)
class PendingReason:
    """Why an operation has not started."""

    code: str  # "WAITING_FOR_UPLOAD"
    message: str
    resources: tuple[str, ...]  # "arrays/7"


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
        """Converts from or to the protobuf message."""

        def time(field: str) -> datetime.datetime | None:
            if not proto.HasField(field):
                return None
            found: datetime.datetime = getattr(proto, field).ToDatetime(datetime.timezone.utc)
            return found

        state = proto.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[proto.state]
        return OperationStatus(
            id=proto.id,
            name=proto.name,
            kind=proto.kind,
            state=state.name.removeprefix("OPERATION_STATE_"),
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
        request = _proto.message("GetOperationRequest")(operation=self.id)
        return OperationStatus.from_proto(
            self._channel._call("OperationService/GetOperation", request, timeout)
        )

    def wait(self, timeout: float | None = None) -> OperationStatus:
        """Waits for the end. Raises the operation's error when it failed or was cancelled, and
        DeadlineExceededError, which says what it waits for, when it has not ended in time; it goes
        on then."""
        deadline = self._channel._deadline(timeout)
        request = _proto.message("WaitOperationRequest")(operation=self.id)
        while True:
            patience = min(deadline.left, _WAIT)
            _proto.set_duration(request.timeout, patience)
            status = OperationStatus.from_proto(
                self._channel._call("OperationService/WaitOperation", request, patience + _GRACE)
            )
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
        tries = 0
        while True:
            try:
                for proto in self._channel._read_stream(
                    "OperationService/WatchOperation", request, deadline.left
                ):
                    status, tries = OperationStatus.from_proto(proto), 0
                    if status != last:
                        yield status
                    if status.ended:
                        return
                    last = status
            except errors.Error as error:
                tries += 1
                if tries > 5 or not _rpc.is_passing(error):
                    raise
                if not deadline.pause(_rpc.pause_before(tries, error)):
                    raise

    def pending(self, timeout: float | None = None) -> list[PendingReason]:
        """Why it has not started, the most important reason first; empty if it has."""
        request = _proto.message("ExplainPendingRequest")(operation=self.id)
        answer = self._channel._call("OperationService/ExplainPending", request, timeout)
        return [PendingReason(r.code, r.message, tuple(r.resources)) for r in answer.reasons]

    def cancel(self, timeout: float | None = None) -> None:
        """Cancels it if it has not ended; its results then fail with CANCELLED."""
        request = _proto.message("CancelOperationRequest")(operation=self.id)
        self._channel._call("OperationService/CancelOperation", request, timeout)

    def __repr__(self) -> str:
        return f"<tessera.Operation {self.id}>"
