"""The session of a client. Threads renew its lease and hold it.

The session is replaced if the server has lost it. It ends when the client is closed or
garbage-collected, when the process ends, and at SIGTERM unless the program handles that signal."""

from __future__ import annotations

import collections
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import threading
import time
import weakref
from types import FrameType

from tessera import _proto, errors
from tessera._rpc import Connection

_LOG = logging.getLogger("tessera")
_CLOSE_TIMEOUT = 5.0  # timeout of closing a session, in seconds
_SIGTERM_TIMEOUT = 2.0  # timeout of closing all sessions at SIGTERM, in seconds
_HOLD_BACKOFF = 0.2  # seconds between attempts to hold a session whose stream broke
_FOREVER = 365 * 86_400.0
# A thread may come back from its wait this many seconds later because the machine is busy.
_LATE_AT_MOST = 0.1
# A call may last this many seconds longer than its timeout, because it finds out why there is no
# connection.
_CALL_MAY_BE_LATE = 1.0

_open: weakref.WeakSet[Session] = weakref.WeakSet()


def _now() -> float:
    """Returns the time of a clock that goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it.
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class LeaseClock:
    """Finds out whether a lease ended while this process did not run: the process was stopped by a
    signal or a debugger, or its machine slept.

    The thread that renews the lease says before each wait how long it waits at most. If it comes
    back far later, the process did not run in between. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lease_end = math.inf
        self._ran_at = -math.inf
        self._runs_again_by = math.inf
        self._pause = (-math.inf, -math.inf)

    def renewed(self, sent: float, lease: float) -> None:
        """Notes that the lease was opened or renewed by a call that was sent at `sent`."""
        with self._lock:
            self._lease_end = sent + lease

    def wait(self, now: float, bound: float) -> None:
        """Notes that the thread runs, and begins to wait for at most `bound` seconds."""
        with self._lock:
            if now > self._runs_again_by + _LATE_AT_MOST:
                self._pause = (self._ran_at, now)
            self._ran_at, self._runs_again_by = now, now + bound

    def ended_in_pause(self, now: float) -> bool:
        """Returns whether the lease ended while this process did not run."""
        end = self._lease_end
        if now < end:
            return False
        with self._lock:
            late = now > self._runs_again_by + _LATE_AT_MOST
            if late and self._ran_at < end:
                return True
            return self._pause[0] < end <= self._pause[1]


def _end_quietly(session: Session) -> None:
    try:
        session.end(_SIGTERM_TIMEOUT)
    except (errors.Error, ValueError) as error:
        _LOG.debug("ending session %d: %s", session.id, error)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pid = os.getpid()
    threads = [
        threading.Thread(target=_end_quietly, args=(s,), daemon=True)
        for s in list(_open)
        if s.process == pid
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_SIGTERM_TIMEOUT)
    os.kill(pid, signal.SIGTERM)


def _end_with_sigterm() -> None:
    """Handles SIGTERM, unless the program does. By default Python runs no exit handlers at it."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


class Session:
    """A session with a lease. If `lease` is None, the tenant's own session, which has no lease.

    `forgotten` holds the ids of garbage-collected arrays, which are freed at each renewal.
    Thread-safe.
    """

    def __init__(self, connection: Connection, lease: float | None, timeout: float) -> None:
        self.id = 0
        self.forgotten: collections.deque[int] = collections.deque()
        self._connection = connection
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.process = os.getpid()
        self.replaced_at = -_FOREVER  # time of the last replacement of a session that was lost
        # Held while the session is replaced. The lock is reentrant, because a finalizer may close
        # the client on the thread that replaces the session.
        self._replacing = threading.RLock()
        self._lease = 0.0  # length of the lease in seconds, bounded by the server
        self._clock = LeaseClock()
        # The errors of sessions that ended while this process did not run, by session.
        self._ended: dict[int, str] = {}
        if lease is None:
            return
        if not lease > 0:
            raise ValueError(f"lease is a number of seconds above 0, or None, not {lease!r}")
        self._wanted = lease
        self.id = self._create(timeout)
        self._thread = threading.Thread(target=self._renew, name="tessera-session", daemon=True)
        self._thread.start()
        self._start_holding()
        _open.add(self)
        _end_with_sigterm()

    def _create(self, timeout: float) -> int:
        script = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
        request = _proto.message("CreateSessionRequest")(
            display_name=f"{script} on {socket.gethostname()}"
        )
        _proto.set_duration(request.lease, self._wanted)
        sent = _now()
        session = self._connection.call("SessionService/CreateSession", request, timeout)
        self._lease = session.lease.seconds + session.lease.nanos / 1e9
        self._clock.renewed(sent, self._lease)
        return int(session.id)

    def replace(self, lost: int, timeout: float) -> int:
        """Opens a new, empty session in place of `lost` and returns its id.

        Called if the server does not know the session `lost`, because the server was restarted or
        this process was suspended for too long."""
        if not self._replacing.acquire(timeout=timeout):
            raise errors.DeadlineExceededError(
                f"session {lost} is gone, and no other session was opened within {timeout:g} s",
                reason="DEADLINE_EXCEEDED",
            )
        try:
            if self._stop.is_set():
                raise ValueError("the client is closed")
            if self.id == lost:
                in_pause = self._clock.ended_in_pause(_now())
                why = (
                    f"the lease ({self._lease:g} s) of session {lost} ended while this process "
                    "did not run, and its arrays and operations with it; make them again"
                )
                self.id = self._create(timeout)
                if in_pause:
                    self._ended[lost] = why
                self.replaced_at = time.monotonic()
                _LOG.warning(
                    "session %d is gone, and its arrays with it; session %d is in its place",
                    lost,
                    self.id,
                )
                if self._stop.is_set():  # The client was closed, and did not know the new session.
                    with contextlib.suppress(errors.Error):
                        self._delete(_CLOSE_TIMEOUT)
                    raise ValueError("the client is closed")
                self._start_holding()
            return self.id
        finally:
            self._replacing.release()

    def raise_if_ended(self, session: int, timeout: float) -> None:
        """Raises NotFoundError with reason SESSION_NOT_FOUND if this session of the client ended
        while the process did not run. Asks the server if that may just have happened: a server that
        was itself late extends the leases that it holds."""
        if session == self.id and self._clock.ended_in_pause(_now()):
            with contextlib.suppress(errors.Error):
                self._renew_now(session, timeout, timeout)
        if session in self._ended:
            raise errors.NotFoundError(self._ended[session], reason="SESSION_NOT_FOUND")

    def _renew_now(self, session: int, timeout: float, replace_timeout: float) -> None:
        """Renews the session or, if the server has lost it, replaces it."""
        request = _proto.message("RenewSessionRequest")(session=session)
        sent = _now()
        try:
            self._connection.call("SessionService/RenewSession", request, timeout)
            self._clock.renewed(sent, self._lease)
        except errors.NotFoundError:
            # Opening a session may take as long as an outage, which is no pause of the process.
            if threading.current_thread() is self._thread:
                self._clock.wait(_now(), math.inf)
            self.replace(session, replace_timeout)

    def was_lost(self, within: float, timeout: float) -> bool:
        """Returns whether the server has lost the session in the last `within` seconds, say by a
        restart. Asks the server, and replaces the session if it is lost."""
        if self._thread is not None and time.monotonic() > self.replaced_at + within:
            self._renew_now(self.id, timeout, timeout)
        return time.monotonic() < self.replaced_at + within

    def _start_holding(self) -> None:
        threading.Thread(
            target=self._hold, args=(self.id,), name="tessera-hold", daemon=True
        ).start()

    def _hold(self, session: int) -> None:
        """Holds the stream that keeps the session alive. Runs on a thread of its own for each
        session."""
        request = _proto.message("HoldSessionRequest")(session=session)
        while not self._stop.is_set() and session == self.id:
            try:
                for _ in self._connection.read_stream(
                    "SessionService/HoldSession", request, _FOREVER
                ):
                    pass
            except (errors.NotFoundError, errors.UnimplementedError):
                return  # The session has ended, or the server is older and has no HoldSession.
            except errors.Error as error:
                _LOG.debug("session %d is not held: %s", session, error)
            except ValueError:  # The channel was closed meanwhile.
                return
            self._stop.wait(_HOLD_BACKOFF)

    def _renew(self) -> None:
        due = time.monotonic() + self._lease / 3
        while True:
            wait = max(due - time.monotonic(), 0.0)
            self._clock.wait(_now(), wait)
            if self._stop.wait(wait):
                return
            interval = self._lease / 3
            session = self.id
            sent = time.monotonic()
            self._clock.wait(_now(), interval / 2 + _CALL_MAY_BE_LATE)
            try:
                # The timeout leaves time for more attempts within the lease.
                self._renew_now(session, interval / 2, interval)
                due = sent + self._lease / 3
            except errors.Error as error:
                due = time.monotonic() + interval / 4
                if not self._stop.is_set():
                    _LOG.warning("session %d is not renewed: %s", session, error)
                continue
            except ValueError:  # The channel was closed meanwhile.
                return
            self._clock.wait(_now(), interval / 2 + _CALL_MAY_BE_LATE)
            try:
                self.free_forgotten(interval / 2)
            except errors.Error as error:
                _LOG.debug("session %d: arrays are freed later: %s", session, error)
            except ValueError:
                return

    def take_forgotten(self) -> list[int]:
        """Takes the forgotten ids, for a call that frees the arrays."""
        ids: list[int] = []
        # Other threads may take ids at the same time, so the deque may become empty at any point.
        with contextlib.suppress(IndexError):
            while len(ids) < 10_000:
                ids.append(self.forgotten.popleft())
        return ids

    def free_forgotten(self, timeout: float) -> None:
        """Frees the forgotten arrays by a call. If the call fails, the next one tries again."""
        if ids := self.take_forgotten():
            request = _proto.message("DeleteArraysRequest")(arrays=ids)
            try:
                self._connection.call("ArrayService/DeleteArrays", request, timeout)
            except BaseException:
                self.forgotten.extend(ids)
                raise

    def end(self, timeout: float) -> None:
        """Ends the session at the server."""
        self._stop.set()
        # Wait for a replacement session that another thread is opening. If that takes too long,
        # that thread ends the new session.
        if self._replacing.acquire(timeout=timeout):
            self._replacing.release()
        self._delete(timeout)

    def _delete(self, timeout: float) -> None:
        request = _proto.message("DeleteSessionRequest")(session=self.id)
        self._connection.call("SessionService/DeleteSession", request, timeout, retry=False)

    def close(self) -> None:
        """Ends the session and closes the connection.

        Errors are ignored, since the server ends the session when the lease expires. In a forked
        child this does nothing, because the session belongs to the parent."""
        self._stop.set()
        if os.getpid() != self.process:
            return
        _open.discard(self)
        try:
            if self._thread is not None:
                self.end(_CLOSE_TIMEOUT)
            else:
                self.free_forgotten(_CLOSE_TIMEOUT)
        except errors.Error as error:
            _LOG.debug("closing session %d: %s", self.id, error)
        self._connection.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_TIMEOUT)
