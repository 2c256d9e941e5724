"""Operations: their state, why they wait, how they ended."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any

from tessera import _proto, _rpc, errors
from tessera._channel import MAX_WAIT, SERVER_GRACE_PERIOD, Channel
from tessera._rpc import Deadline

_ENDED = ("DONE", "FAILED", "CANCELLED")
_WATCH_ATTEMPTS = 6  # attempts that reach the server and bring no snapshot


@dataclasses.dataclass(frozen=True)
class PendingReason:
    """A reason why an operation has not started.

    `Operation.pending()` and `Plan.pending_reasons` have such reasons.

    Attributes:
        code (str): "WORKER_LOST", "WORKER_CORDONED", "COMPILING", "WAITING_FOR_UPLOAD",
            "WAITING_FOR_INPUT" or "WAITING_FOR_TURN".
        message (str): The reason in words, such as "array 7 has 2 of 4 shards".
        resources (tuple of str): The resources that the operation waits for, such as "arrays/7",
            "operations/12" or "workers/w0".

    Example:
        plan = client.explain("func main(%a: f32[4]) -> (f32[4]) { return %a }")
        for reason in plan.pending_reasons:
            print(reason.code, reason.message)
    """

    code: str  # "WAITING_FOR_UPLOAD"
    message: str
    resources: tuple[str, ...]  # "arrays/7"

    @staticmethod
    def from_proto(proto: Any) -> PendingReason:
        """Converts a message to a reason, for programs that use the messages of the service
        themselves.

        Args:
            proto (message): A message `tessera.v1.PendingReason`.

        Returns:
            PendingReason: the reason.
        """
        return PendingReason(proto.code, proto.message, tuple(proto.resources))


@dataclasses.dataclass(frozen=True)
class OperationStatus:
    """A snapshot of an operation.

    `Operation.status()`, `Operation.wait()`, `Operation.watch()` and `Client.operations()` return
    snapshots.

    Attributes:
        id (int): Id of the operation.
        name (str): Name of its executable.
        kind (str): "execute", "save", "load" or "reshard".
        state (str): "PENDING", "RUNNING", "DONE", "FAILED" or "CANCELLED".
        session (int): Id of the session that owns the operation.
        pending_reason (str): Reason why it has not started or, while it runs, which of its
            executors is away. "" if there is none.
        error (Error or None): The error of an operation that has failed or was cancelled.
        outputs (tuple of int): Ids of the arrays that it makes.
        create_time (datetime): When the operation was accepted, in UTC.
        start_time (datetime or None): When it was sent to the executors.
        end_time (datetime or None): When it ended.

    Example:
        double = client.compile("func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
        status = double.submit([1, 2]).wait()
        print(status.kind, status.state, status.end_time >= status.create_time)  # execute DONE True
    """

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
        """Whether the operation has ended: its state is DONE, FAILED or CANCELLED."""
        return self.state in _ENDED

    @staticmethod
    def from_proto(proto: Any) -> OperationStatus:
        """Converts a message to a snapshot, for programs that use the messages of the service
        themselves.

        Args:
            proto (message): A message `tessera.v1.Operation`.

        Returns:
            OperationStatus: the snapshot.
        """

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
    """A handle of an operation: a run, a save, a load or a reshard that the server has accepted.

    `Executable.submit()`, `Client.save()`, `Client.operation()` and `Array.operation` have such
    handles. The operation belongs to its session, and does not end with the handle. The server
    keeps the record of an operation that has ended until there are too many records. Then every
    method raises NotFoundError with reason OPERATION_NOT_FOUND; do not retry.

    Attributes:
        id (int): Id of the operation, unique in the cluster.

    Example:
        double = client.compile("func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
        run = double.submit([1, 2])
        print(client.operation(run.id).wait(timeout=60).state)  # DONE
    """

    def __init__(self, channel: Channel, id: int, session: int = 0) -> None:
        """Only the client makes operations; see the class."""
        self._channel = channel
        self._session = session  # the session in which the client made it; 0 if it did not
        self.id = id

    def status(self, timeout: float | None = None) -> OperationStatus:
        """Returns the present state of the operation, without waiting.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            OperationStatus: the snapshot.

        Raises:
            NotFoundError: Reason OPERATION_NOT_FOUND: see the class.
        """
        with self._channel._using(self._session):
            answer = self._channel._call_with(
                "OperationService/GetOperation", timeout, operation=self.id
            )
        return OperationStatus.from_proto(answer)

    def wait(self, timeout: float | None = None, *, fail_fast: bool = False) -> OperationStatus:
        """Waits for the end of the operation.

        Args:
            timeout (float): Number of seconds to wait. None means the timeout of `connect()`.
            fail_fast (bool): Whether to raise UnavailableError as soon as an executor that the
                operation needs is away or does not answer. The operation goes on, and nothing is
                lost.

        Returns:
            OperationStatus: the last snapshot, whose state is DONE.

        Raises:
            DeadlineExceededError: The operation has not ended in time; the message says what it
                waits for. It goes on. Call `wait()` again. Or the operation has failed because its
                own deadline has passed; then its `status()` has ended.
            CancelledError: The operation was cancelled.
            UnavailableError: Reason WORKER_AWAY, with `fail_fast`: an executor is away or does not
                answer; the message says which one and why. Call `wait()` again, or `cancel()`.
            Error: The error of an operation that has failed. Calling `wait()` again raises the same
                error. If its reason is WORKER_LOST, run the program again from inputs that still
                exist.

        Example:
            double = client.compile(
                "func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
            run = double.submit([1, 2])
            try:
                run.wait(timeout=60)
            except tessera.DeadlineExceededError as error:
                print("still at work:", error)
        """
        with self._channel._using(self._session):
            return self._wait(self._channel._deadline(timeout), fail_fast)

    def _wait(self, deadline: Deadline, fail_fast: bool) -> OperationStatus:
        request = _proto.message("WaitOperationRequest")(operation=self.id, fail_fast=fail_fast)
        while True:
            _proto.set_duration(request.timeout, min(deadline.left, MAX_WAIT))
            answer = self._channel._call(
                "OperationService/WaitOperation", request, deadline.left, SERVER_GRACE_PERIOD
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
        """Yields the present snapshot, then a new one after each change, until the operation has
        ended.

        The iterator connects again if its connection fails. Unlike `wait()`, it does not raise the
        error of the operation: the last snapshot has it.

        Args:
            timeout (float): Number of seconds after which the iterator gives up. None means the
                timeout of `connect()`.

        Yields:
            OperationStatus: each snapshot. The last one has ended.

        Raises:
            DeadlineExceededError: The operation has not ended in time. It goes on. Watch it again.
            NotFoundError: Reason OPERATION_NOT_FOUND: see the class.

        Example:
            double = client.compile(
                "func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
            for status in double.submit([1, 2]).watch(timeout=60):
                last = status.state
            print(last)  # DONE
        """
        deadline = self._channel._deadline(timeout)
        with self._channel._using(self._session):
            yield from self._watch(deadline)

    def _watch(self, deadline: Deadline) -> Iterator[OperationStatus]:
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
                    raise retries.final(error) from None

    def pending(self, timeout: float | None = None) -> list[PendingReason]:
        """Returns the reasons why the operation has not started.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Returns:
            A list of PendingReason, the most important one first. It is empty if the operation has
            started.

        Raises:
            NotFoundError: Reason OPERATION_NOT_FOUND: see the class.

        Example:
            double = client.compile(
                "func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
            run = double.submit([1, 2])
            for reason in run.pending():
                print(reason.code, reason.message)
            run.wait()
            print(run.pending())  # []
        """
        with self._channel._using(self._session):
            answer = self._channel._call_with(
                "OperationService/ExplainPending", timeout, operation=self.id
            )
        return [PendingReason.from_proto(r) for r in answer.reasons]

    def cancel(self, timeout: float | None = None) -> None:
        """Cancels the operation. If it has ended, the call changes nothing.

        The results of an operation that is cancelled fail with CANCELLED, and so does every later
        operation that reads them.

        Args:
            timeout (float): Number of seconds that the call may take. None means the timeout of
                `connect()`.

        Raises:
            NotFoundError: Reason OPERATION_NOT_FOUND: see the class.

        Example:
            double = client.compile(
                "func main(%a: f32[2]) -> (f32[2]) { %b = add(%a, %a) return %b }")
            run = double.submit([1, 2])
            run.cancel()
            *_, last = run.watch()
            print(last.state in ("CANCELLED", "DONE"))  # True
        """
        with self._channel._using(self._session):
            self._channel._call_with("OperationService/CancelOperation", timeout, operation=self.id)

    def __repr__(self) -> str:
        return f"<tessera.Operation {self.id}>"
