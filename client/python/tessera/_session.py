"""The lease of a session: threads renew and hold it. It is replaced if the server has lost it, and
ended when the client is closed or garbage-collected, when the process ends, and at SIGTERM unless
the program handles that."""

from __future__ import annotations

import collections
import contextlib
import logging
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
_CLOSE_TIMEOUT = 5.0  # timeout of closing, in seconds
_SIGTERM_TIMEOUT = 2.0  # that of all sessions together at SIGTERM
_HOLD_BACKOFF = 0.2  # between attempts to hold a session whose stream broke
_FOREVER = 365 * 86_400.0

_open: weakref.WeakSet[Session] = weakref.WeakSet()


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
    """Handles SIGTERM, at which Python runs no exit handlers, unless the program handles it."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


class Session:
    """A leased session, or with `lease` None the tenant's own, which has no lease. Thread-safe.

    `forgotten` has the ids of garbage-collected arrays, which are freed at each renewal.
    """

    def __init__(self, connection: Connection, lease: float | None, timeout: float) -> None:
        self.id = 0
        self.forgotten: collections.deque[int] = collections.deque()
        self._connection = connection
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.process = os.getpid()
        self.replaced_at = -_FOREVER  # when the server had last lost it
        # Held while the session is replaced. Reentrant: a finalizer may close the client meanwhile.
        self._replacing = threading.RLock()
        self._lease = 0.0  # seconds, bounded by the server
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
        session = self._connection.call("SessionService/CreateSession", request, timeout)
        self._lease = session.lease.seconds + session.lease.nanos / 1e9
        return int(session.id)

    def replace(self, lost: int, timeout: float) -> int:
        """Opens a new, empty session in place of `lost`, which the server does not know (it was
        restarted, or this process was suspended for too long)."""
        if not self._replacing.acquire(timeout=timeout):
            raise errors.DeadlineExceededError(
                f"session {lost} is gone, and within {timeout:g} s there is no other",
                reason="DEADLINE_EXCEEDED",
            )
        try:
            if self._stop.is_set():
                raise ValueError("the client is closed")
            if self.id == lost:
                self.id = self._create(timeout)
                self.replaced_at = time.monotonic()
                _LOG.warning(
                    "session %d is gone, and its arrays with it; session %d is in its place",
                    lost,
                    self.id,
                )
                if self._stop.is_set():  # The client was closed without knowledge of this one.
                    with contextlib.suppress(errors.Error):
                        self._delete(_CLOSE_TIMEOUT)
                    raise ValueError("the client is closed")
                self._start_holding()
            return self.id
        finally:
            self._replacing.release()

    def was_lost(self, within: float, timeout: float) -> bool:
        """Whether the server has lost the session in the last seconds, as by a restart; asks it."""
        if self._thread is not None and time.monotonic() > self.replaced_at + within:
            session = self.id
            request = _proto.message("RenewSessionRequest")(session=session)
            try:
                self._connection.call("SessionService/RenewSession", request, timeout)
            except errors.NotFoundError:
                self.replace(session, timeout)
        return time.monotonic() < self.replaced_at + within

    def _start_holding(self) -> None:
        threading.Thread(
            target=self._hold, args=(self.id,), name="tessera-hold", daemon=True
        ).start()

    def _hold(self, session: int) -> None:
        """Holds the stream that keeps the session alive. Each session has one."""
        request = _proto.message("HoldSessionRequest")(session=session)
        while not self._stop.is_set() and session == self.id:
            try:
                for _ in self._connection.read_stream(
                    "SessionService/HoldSession", request, _FOREVER
                ):
                    pass
            except (errors.NotFoundError, errors.UnimplementedError):
                return  # It has ended, or the server is older.
            except errors.Error as error:
                _LOG.debug("session %d is not held: %s", session, error)
            except ValueError:  # The channel was closed meanwhile.
                return
            self._stop.wait(_HOLD_BACKOFF)

    def _renew(self) -> None:
        due = time.monotonic() + self._lease / 3
        while not self._stop.wait(max(due - time.monotonic(), 0.0)):
            interval = self._lease / 3
            session = self.id
            request = _proto.message("RenewSessionRequest")(session=session)
            sent = time.monotonic()
            try:
                try:
                    # One without an answer leaves time for more attempts within the lease.
                    self._connection.call("SessionService/RenewSession", request, interval / 2)
                except errors.NotFoundError:
                    self.replace(session, interval)
                due = sent + self._lease / 3
            except errors.Error as error:
                due = time.monotonic() + interval / 4
                if not self._stop.is_set():
                    _LOG.warning("session %d is not renewed: %s", session, error)
                continue
            except ValueError:  # The channel was closed meanwhile.
                return
            try:
                self.free_forgotten(interval / 2)
            except errors.Error as error:
                _LOG.debug("session %d: arrays are freed later: %s", session, error)
            except ValueError:
                return

    def take_forgotten(self) -> list[int]:
        """Takes the forgotten ids, for a call that frees them."""
        ids: list[int] = []
        # Other threads take some at the same time.
        with contextlib.suppress(IndexError):
            while len(ids) < 10_000:
                ids.append(self.forgotten.popleft())
        return ids

    def free_forgotten(self, timeout: float) -> None:
        """Frees the forgotten ids by a call. If it fails, they are there for the next one."""
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
        # Waits for a replacement that is being opened; at the timeout its opener ends it.
        if self._replacing.acquire(timeout=timeout):
            self._replacing.release()
        self._delete(timeout)

    def _delete(self, timeout: float) -> None:
        request = _proto.message("DeleteSessionRequest")(session=self.id)
        self._connection.call("SessionService/DeleteSession", request, timeout, retry=False)

    def close(self) -> None:
        """Ends the session and closes the connection. Errors are ignored, as the server ends the
        session when the lease expires. In a forked child the session is the parent's, and stays."""
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
