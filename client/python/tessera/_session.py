"""The lease of a session: renewed and held by threads, ended when the client is closed or forgotten,
when the process ends, and at SIGTERM where the program leaves that to its default."""

from __future__ import annotations

import collections
import logging
import os
import signal
import socket
import sys
import threading
import weakref
from types import FrameType

from tessera import _proto, errors
from tessera._rpc import Connection

_LOG = logging.getLogger("tessera")
_GOODBYE = 5.0  # seconds that closing may take
_TERMINATED = 2.0  # those of all sessions together at SIGTERM
_HOLD_AGAIN = 0.2  # between attempts to hold a session whose stream broke
_FOREVER = 365 * 86_400.0

_open: weakref.WeakSet[Session] = weakref.WeakSet()


def _end_quietly(session: Session) -> None:
    try:
        session.end(_TERMINATED)
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
        thread.join(_TERMINATED)
    os.kill(pid, signal.SIGTERM)


def _end_with_sigterm() -> None:
    """Python ends without a word at SIGTERM; a handler of the program's own is left alone."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


class Session:
    """A leased session, or with `lease` None the tenant's own, which has no lease. Thread-safe.

    Frees what is put into `forgotten`, ids of arrays, each time it renews.
    """

    def __init__(self, connection: Connection, lease: float | None, timeout: float) -> None:
        self.id = 0
        self.forgotten: collections.deque[int] = collections.deque()
        self._connection = connection
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.process = os.getpid()
        if lease is None:
            return
        if not lease > 0:
            raise ValueError(f"lease is a number of seconds above 0, or None, not {lease!r}")
        script = os.path.basename(sys.argv[0] if sys.argv else "") or "python"
        request = _proto.message("CreateSessionRequest")(
            display_name=f"{script} on {socket.gethostname()}"
        )
        _proto.set_duration(request.lease, lease)
        session = connection.call("SessionService/CreateSession", request, timeout)
        self.id = session.id
        # The server may have bounded it.
        granted = session.lease.seconds + session.lease.nanos / 1e9
        self._thread = threading.Thread(
            target=self._renew, args=(granted,), name="tessera-session", daemon=True
        )
        self._thread.start()
        threading.Thread(target=self._hold, name="tessera-hold", daemon=True).start()
        _open.add(self)
        _end_with_sigterm()

    def _hold(self) -> None:
        """By this stream the coordinator knows that the client is there."""
        request = _proto.message("HoldSessionRequest")(session=self.id)
        while not self._stop.is_set():
            try:
                for _ in self._connection.read_stream(
                    "SessionService/HoldSession", request, _FOREVER
                ):
                    pass
            except (errors.NotFoundError, errors.UnimplementedError):
                return  # It has ended, or the server is older.
            except errors.Error as error:
                _LOG.debug("session %d is not held: %s", self.id, error)
            except ValueError:  # The channel was closed meanwhile.
                return
            self._stop.wait(_HOLD_AGAIN)

    def _renew(self, lease: float) -> None:
        request = _proto.message("RenewSessionRequest")(session=self.id)
        pause = lease / 3
        while not self._stop.wait(pause):
            pause = lease / 12  # When it fails there is time for more.
            try:
                self._connection.call("SessionService/RenewSession", request, lease / 3)
                pause = lease / 3
                self.free_forgotten(lease / 3)
            except errors.NotFoundError as error:
                _LOG.warning("session %d is gone, and its arrays with it: %s", self.id, error)
                return
            except errors.Error as error:
                if not self._stop.is_set():
                    _LOG.warning("session %d is not renewed: %s", self.id, error)
            except ValueError:  # The channel was closed meanwhile.
                return

    def take_forgotten(self) -> list[int]:
        """The ids that have come since, for a call that frees them."""
        ids: list[int] = []
        while self.forgotten and len(ids) < 10_000:
            ids.append(self.forgotten.popleft())
        return ids

    def free_forgotten(self, timeout: float) -> None:
        """Frees them by a call of its own."""
        if ids := self.take_forgotten():
            request = _proto.message("DeleteArraysRequest")(arrays=ids)
            self._connection.call("ArrayService/DeleteArrays", request, timeout)

    def end(self, timeout: float) -> None:
        """Ends the session at the server."""
        self._stop.set()
        request = _proto.message("DeleteSessionRequest")(session=self.id)
        self._connection.call("SessionService/DeleteSession", request, timeout, retry=False)

    def close(self) -> None:
        """Ends the session and closes the connection. The server does the same when the lease runs
        out, so what goes wrong here matters little. In a forked child the session is the parent's,
        and stays."""
        self._stop.set()
        if os.getpid() != self.process:
            return
        _open.discard(self)
        try:
            if self._thread is not None:
                self.end(_GOODBYE)
            else:
                self.free_forgotten(_GOODBYE)
        except errors.Error as error:
            _LOG.debug("closing session %d: %s", self.id, error)
        self._connection.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_GOODBYE)
