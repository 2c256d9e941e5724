"""Calls to the coordinator in the client's session, shared by Client, Array and Operation."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from tessera import _proto, errors
from tessera._rpc import Connection, Deadline, Retries, backoff_after
from tessera._session import Session
from tessera._transfer import NotNeeded, Transfers

# The longest wait of one call, in seconds. The server has a bound of its own.
MAX_WAIT = 30.0
# Added to the timeout of a call that waits, so that the server's answer arrives in time.
SERVER_GRACE_PERIOD = 10.0
# If an executor does not respond, the coordinator is asked for this many seconds whether the
# executor's arrays are lost.
_LOSS_REPORT_TIMEOUT = 5.0
# How many seconds the coordinator may take to say whether an array is lost, between two attempts to
# move its bytes, and the reasons of its answer if it is.
_LOSS_QUESTION_TIMEOUT = 2.0
_LOSSES = ("WORKER_LOST", "ARRAY_DELETED", "ARRAY_NOT_FOUND")
# How many seconds workers may take to return to a coordinator that was restarted.
_RETURN_TIMEOUT = 30.0


def _close(session: Session, transfers: Transfers) -> None:
    transfers.close()
    session.close()


class Channel:
    """A connection with a session. Thread-safe. Arrays own it, so they keep the session open."""

    def __init__(
        self, connection: Connection, session: Session, transfers: Transfers, timeout: float
    ) -> None:
        self._connection = connection
        self._session = session
        self._transfers = transfers
        self._timeout = timeout
        self._relays = True  # whether the coordinator relays small arrays; see relay_bytes_max
        self._finalizer = weakref.finalize(self, _close, session, transfers)

    @property
    def session(self) -> int:
        """The id of the session. Session 0 is the tenant's own session, which has no lease."""
        return self._session.id

    def _deadline(self, timeout: float | None) -> Deadline:
        return Deadline(self._timeout if timeout is None else timeout)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("the client is closed")

    @contextlib.contextmanager
    def _using(self, *sessions: int) -> Iterator[None]:
        """Makes the calls in its block fail with SESSION_NOT_FOUND if they use what one of these
        sessions of the client had, and the session ended while the process did not run. Session 0
        stands for what the client has not made itself."""

        def check() -> None:
            for session in set(sessions):
                if session:
                    self._session.raise_if_ended(session, self._timeout)

        check()
        try:
            yield
        except errors.Error:
            check()
            raise

    def _call_with(self, method: str, timeout: float | None, **fields: Any) -> Any:
        """Calls a unary method with a request that has these fields."""
        return self._call(method, _proto.method(method).request(**fields), timeout)

    def _call(
        self, method: str, request: Any, timeout: float | None, grace: float = 0.0
    ) -> Any:
        self._check_open()
        deadline = self._deadline(timeout)
        failures = 0
        while True:
            try:
                return self._connection.call(method, request, deadline.left, grace=grace)
            except errors.FailedPreconditionError as error:
                # After a restart the coordinator has no devices until its workers have found it
                # again, so the call is repeated for a while.
                if error.reason != "NOT_ENOUGH_DEVICES":
                    raise
                if not self._session.was_lost(_RETURN_TIMEOUT, deadline.left):
                    raise
                failures += 1
                if not deadline.sleep(backoff_after(failures, error)):
                    raise

    def _call_in_session(self, method: str, request: Any, timeout: float) -> Any:
        """Calls a method in the client's session or, if the server has lost that, in a new one."""
        deadline = Deadline(timeout)
        request.session = session = self.session
        try:
            return self._call(method, request, deadline.left)
        except errors.NotFoundError as error:
            if error.reason != "SESSION_NOT_FOUND":
                raise
        request.session = self._session.replace(session, deadline.left)
        request.request_id = ""  # A request in another session is a new request.
        return self._call(method, request, deadline.left)

    def _retries(self, deadline: Deadline, attempts: int) -> Retries:
        return self._connection.retries(deadline, attempts)

    def _read_stream(self, method: str, request: Any, timeout: float) -> Iterator[Any]:
        self._check_open()
        return self._connection.read_stream(method, request, timeout)

    def _pages(
        self, method: str, field: str, timeout: float | None, **fields: Any
    ) -> Iterator[Any]:
        deadline = self._deadline(timeout)
        request = _proto.method(method).request(**fields)
        while True:
            answer = self._call(method, request, deadline.left)
            yield from getattr(answer, field)
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    def _read_tickets(self, array: int, deadline: Deadline) -> Any:
        return self._when_ready("ArrayService/CreateReadTickets", array, deadline)

    def _read_relayed(self, array: int, deadline: Deadline) -> bytes | None:
        """Returns the elements of a small array, by one call. Returns None if the coordinator does
        not relay arrays."""
        if self._relays:
            try:
                answer = self._when_ready("ArrayService/ReadArray", array, deadline)
                return bytes(answer.literal.data)
            except (errors.ResourceExhaustedError, errors.UnimplementedError) as error:
                # Only with these reasons is the error about the relay itself. An error of the run
                # that made the array has another reason.
                if error.reason not in ("LIMIT_EXCEEDED", ""):
                    raise
                self._relays = False
        return None

    def _when_ready(self, method: str, array: int, deadline: Deadline) -> Any:
        """Makes a call that the coordinator answers when the array is ready."""
        request = _proto.method(method).request(array=array)
        while True:
            _proto.set_duration(request.timeout, min(deadline.left, MAX_WAIT))
            try:
                return self._call(method, request, deadline.left, SERVER_GRACE_PERIOD)
            except errors.DeadlineExceededError as error:
                if error.reason != "DEADLINE_EXCEEDED" or not deadline.left:
                    raise

    def _loss_reason(self, array: int, error: errors.Error) -> errors.Error:
        """Returns the coordinator's reason why an executor does not respond. Returns `error` if the
        coordinator knows none."""
        if error.reason == "TICKET_STALE":
            return error  # The executor is not lost.
        try:
            self._read_tickets(array, Deadline(_LOSS_REPORT_TIMEOUT))
        except errors.UnavailableError as found:
            return found if found.reason else error
        except errors.Error:
            pass
        return error

    def _check_target(self, array: int, ordinal: int) -> None:
        """Checks an array that is being uploaded. Raises the coordinator's error if it knows that
        the array is lost or deleted, and NotNeeded if this shard need not be written any more. Asks
        only briefly: the coordinator may be away as well."""
        try:
            answer = self._ask("ArrayService/CreateWriteTickets", array, ordinal)
        except errors.InvalidArgumentError as error:
            if error.reason == "VALUE_ERROR":  # All shards that are needed have been written.
                raise NotNeeded from None
            return
        if answer is not None and not answer.tickets:
            raise NotNeeded

    def _check_source(self, array: int, used: Any) -> None:
        """Checks an array that is being downloaded. Raises the coordinator's error if it knows that
        the array is lost or deleted, and TICKET_STALE if it would now give a ticket for another
        executor than `used` is for. Asks only briefly."""
        answer = self._ask("ArrayService/CreateReadTickets", array, used.ordinal)
        now = [t.endpoint for t in answer.tickets if t.ordinal == used.ordinal] if answer else []
        if now and now[0] != used.endpoint:
            raise errors.UnavailableError(
                f"array {array}: shard {used.ordinal} is not read from {used.endpoint} any more, "
                f"but from {now[0]}",
                reason="TICKET_STALE",
            )

    def _ask(self, method: str, array: int, ordinal: int) -> Any:
        """Asks for tickets of one shard. Returns the answer, or None if there is none. Raises the
        error if it says that the array is gone, or that the request is wrong."""
        request = _proto.method(method).request(array=array, ordinals=[ordinal])
        try:
            return self._connection.call(method, request, _LOSS_QUESTION_TIMEOUT, retry=False)
        except errors.Error as error:
            if error.reason in _LOSSES or isinstance(error, errors.InvalidArgumentError):
                raise
            return None

    def _forget(self, array: int) -> None:
        """Notes that an array was garbage-collected. A finalizer calls this on any thread, so it
        takes no lock and makes no call."""
        self._session.forgotten.append(array)
