"""Transfers array bytes between this process and the executors by tickets, shards in parallel.

An interrupted transfer resumes where it stopped, as long as it makes progress and its deadline has
not passed.
"""

from __future__ import annotations

import concurrent.futures
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tessera import _crc32c, _dtypes, _proto, errors
from tessera._rpc import Connection, Deadline, backoff_after, is_retryable
from tessera.sharding import ArraySpec

CHUNK = 1 << 20  # size of a chunk in bytes
_PARALLEL = 4
# The DNS name in every worker's certificate. The certificate contains no addresses.
_WORKER_SERVER_NAME = "worker.tessera"
_ATTEMPTS_WITHOUT_PROGRESS = 4
_STATUS_TIMEOUT = 10.0  # timeout of GetShardStatus, in seconds
# If an executor restarts or is lost, the coordinator gives new tickets within this many seconds: for
# its next process, or for another executor that has the shards.
_TICKET_RETRY_TIMEOUT = 5.0

_T = TypeVar("_T")

_Request = _proto.message("WriteRequest")
_Bytes = memoryview


class Transfers:
    """Transfers arrays over connections to executors, which it keeps. Thread-safe; closed once."""

    def __init__(self, ca: bytes | None, patience: float) -> None:
        self._ca = ca
        self._patience = patience  # how many seconds transfers look for an executor that is away
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._closed = False

    def close(self) -> None:
        """Closes the connections, which cancels their transfers."""
        with self._lock:
            self._closed = True
            connections, self._connections = list(self._connections.values()), {}
        for connection in connections:
            connection.close()

    def _connection_to(self, endpoint: str) -> Connection:
        with self._lock:
            if self._closed:
                raise ValueError("the client is closed")
            if endpoint not in self._connections:
                # The ticket is the only credential that an executor gets. It does not get the
                # token.
                self._connections[endpoint] = Connection(
                    endpoint, self._ca, server_name=_WORKER_SERVER_NAME
                )
            return self._connections[endpoint]

    # ---- Uploads. ----

    def write(
        self,
        spec: ArraySpec,
        tickets: Sequence[Any],
        value: Any,
        deadline: Deadline,
        check: Callable[[Any], None],
    ) -> None:
        """Uploads all shards of an array that has just been created. Calls `check` with the ticket
        between attempts. It raises an error if the array is lost, and NotNeeded if this shard need
        not be written any more, because its executor is lost and other devices get the same."""

        def job(ticket: Any) -> None:
            block = np.ascontiguousarray(value[spec.block_of(ticket.ordinal)])
            try:
                try:
                    self._write_shard(ticket, _bytes_of(block), deadline, lambda: check(ticket))
                except errors.UnavailableError:
                    check(ticket)
                    raise
            except NotNeeded:
                pass

        _run([functools.partial(job, t) for t in tickets])

    def _write_shard(
        self, ticket: Any, data: _Bytes, deadline: Deadline, check: Callable[[], None]
    ) -> None:
        connection = self._connection_to(ticket.endpoint)
        upload = _Upload(ticket.ticket, data)
        tries = _Tries(connection, deadline, self._patience, check)
        offset, is_first = 0, True
        while True:
            try:
                if not is_first:
                    status = _status(connection, ticket, deadline)
                    if status.complete:
                        return
                    if status.committed_bytes > offset:
                        offset = min(status.committed_bytes, len(data))
                        tries.progress()
                is_first = False
                response = connection.write_stream(
                    "DataService/Write", upload.requests(offset), deadline.left
                )
                break
            except errors.Error as error:
                tries.back_off_or_raise(error)
        if response.committed_bytes != len(data) or response.crc32c != upload.crc32c():
            raise errors.DataLossError(
                f"the executor at {ticket.endpoint} stored {response.committed_bytes} of "
                f"{len(data)} bytes with checksum {response.crc32c:#x}: put the array again",
                reason="CHECKSUM_MISMATCH",
            )

    # ---- Downloads. ----

    def read(
        self,
        spec: ArraySpec,
        tickets: Callable[[], Sequence[Any]],
        deadline: Deadline,
        check: Callable[[Any], None],
        bits: bool = False,
    ) -> Any:
        """Downloads an array. `tickets` returns tickets for the distinct shards of the array. It is
        called again while executors reject the tickets as stale. The new tickets may be for other
        executors, which hold replicas of the shards. Calls `check` with the ticket between
        attempts. It raises an error if the array is lost, and TICKET_STALE if another executor is
        to be read."""
        dtype = _dtypes.bits_of(spec.dtype) if bits else _dtypes.to_numpy(spec.dtype)
        value = np.empty(spec.shape, dtype)
        done: set[int] = set()

        def job(ticket: Any) -> None:
            if ticket.ordinal in done:
                return
            # With the ellipsis, indexing gives a view even if the array is a scalar.
            at: Any = (*spec.block_of(ticket.ordinal), ...)
            block = value[at]
            direct = block.flags.c_contiguous
            into = block if direct else np.empty(spec.block_shape, dtype)
            self._read_shard(ticket, _bytes_of(into), deadline, lambda: check(ticket))
            if not direct:
                value[at] = into
            done.add(ticket.ordinal)

        with_fresh_tickets(deadline, lambda: _run([functools.partial(job, t) for t in tickets()]))
        return value

    def _read_shard(
        self, ticket: Any, into: _Bytes, deadline: Deadline, check: Callable[[], None]
    ) -> None:
        connection = self._connection_to(ticket.endpoint)
        request = _proto.message("ReadRequest")(ticket=ticket.ticket)
        tries = _Tries(connection, deadline, self._patience, check)
        at = 0
        while True:
            try:
                request.offset = at
                for chunk in connection.read_stream("DataService/Read", request, deadline.left):
                    size = len(chunk.data)
                    if chunk.offset != at or at + size > len(into):
                        raise errors.InternalError(
                            f"the executor at {ticket.endpoint} sent {size} bytes at "
                            f"{chunk.offset}, when {at} of {len(into)} were there"
                        )
                    if _crc32c.crc32c(chunk.data) != chunk.crc32c:
                        raise errors.DataLossError(
                            f"a chunk from {ticket.endpoint} does not match its checksum",
                            reason="CHECKSUM_MISMATCH",
                        )
                    into[at : at + size] = chunk.data
                    at += size
                    tries.progress()
                if at == len(into):
                    return
                raise errors.InternalError(
                    f"the executor at {ticket.endpoint} sent {at} of {len(into)} bytes"
                )
            except errors.Error as error:
                tries.back_off_or_raise(error)


class NotNeeded(Exception):
    """A shard of an upload need not be written any more."""


class ExecutorLost(Exception):
    """An executor was lost before the transfer was complete. The first argument is the reason."""


def with_fresh_tickets(deadline: Deadline, attempt: Callable[[], _T]) -> _T:
    """Calls `attempt` until its tickets are accepted, and returns its result.

    Retries for a few seconds while the tickets are stale or `attempt` raises ExecutorLost, which
    both happen when an executor restarts or is lost."""
    end: Deadline | None = None  # Set at the first failure.
    failures = 0
    while True:
        try:
            return attempt()
        except ExecutorLost as lost:
            error = lost.args[0]
        except errors.UnavailableError as unavailable:
            if unavailable.reason != "TICKET_STALE":
                raise
            error = unavailable
        end = end or Deadline(min(deadline.left, _TICKET_RETRY_TIMEOUT))
        failures += 1
        if not end.sleep(backoff_after(failures, error)):
            raise error


def _bytes_of(array: Any) -> _Bytes:
    """Returns the bytes of a contiguous array of any dtype. Arrays with dtypes of ml_dtypes do not
    support the buffer protocol, so the bytes are viewed as uint8."""
    return memoryview(array.reshape(-1).view(np.uint8))


class _Upload:
    """The messages that upload one shard. The checksum of each chunk is computed once."""

    def __init__(self, ticket: str, data: _Bytes) -> None:
        self._ticket = ticket
        self._data = data
        self._sums: dict[int, int] = {}  # checksums of chunks, by their offsets

    def requests(self, offset: int) -> Iterator[Any]:
        """Yields the messages from `offset` on. Even an empty shard has one, with the ticket."""
        first = True
        while first or offset < len(self._data):
            end = min(offset - offset % CHUNK + CHUNK, len(self._data))
            part = bytes(self._data[offset:end])
            crc = _crc32c.crc32c(part) if offset % CHUNK else self._sum(offset, part)
            request = _Request(offset=offset, data=part, crc32c=crc)
            if first:
                request.ticket = self._ticket
            yield request
            offset, first = end, False

    def crc32c(self) -> int:
        """Returns the checksum of the whole shard."""
        whole = 0
        for at in range(0, len(self._data), CHUNK):
            part = self._data[at : at + CHUNK]
            whole = _crc32c.combine(whole, self._sum(at, part), len(part))
        return whole

    def _sum(self, at: int, part: bytes | _Bytes) -> int:
        if at not in self._sums:
            self._sums[at] = _crc32c.crc32c(part)
        return self._sums[at]


def _status(connection: Connection, ticket: Any, deadline: Deadline) -> Any:
    request = _proto.message("GetShardStatusRequest")(ticket=ticket.ticket)
    timeout = min(deadline.left, _STATUS_TIMEOUT)
    return connection.call("DataService/GetShardStatus", request, timeout, retry=False)


class _Tries:
    """The attempts to move one shard.

    While the executor can be reached, there are at most _ATTEMPTS_WITHOUT_PROGRESS attempts that
    make none. While it cannot be reached, there are attempts for `patience` seconds from the first
    one that does not reach it."""

    def __init__(
        self,
        connection: Connection,
        deadline: Deadline,
        patience: float,
        check: Callable[[], None],
    ) -> None:
        self._connection, self._deadline = connection, deadline
        self._patience, self._check = patience, check
        self._failures = self._unreached = 0
        self._stuck_since: float | None = None

    def progress(self) -> None:
        """Counts the attempts anew: bytes have arrived."""
        self._failures, self._unreached, self._stuck_since = 0, 0, None

    def back_off_or_raise(self, error: errors.Error) -> None:
        """Backs off after an attempt with this error, or raises the error of the transfer."""
        now = time.monotonic()
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        if is_retryable(error) or error.reason in ("CHECKSUM_MISMATCH", "DEADLINE_EXCEEDED"):
            self._check()
            sleep: Callable[[float], None] = time.sleep
            if error.reason == "UNREACHABLE":
                # Without a connection the next attempt would fail at once, so wait for one.
                sleep = self._connection.connect
                self._unreached += 1
                backoff = backoff_after(self._unreached, error)
                again = now + backoff < self._stuck_since + self._patience
            else:
                self._failures += 1
                backoff = backoff_after(self._failures, error)
                again = self._failures < _ATTEMPTS_WITHOUT_PROGRESS
            if again and self._deadline.sleep(backoff, sleep):
                return
        raise _as_lost(error, self._connection.address, now - self._stuck_since) from None


def _as_lost(error: errors.Error, endpoint: str, waited: float) -> errors.Error:
    """Returns the error WORKER_LOST for an executor that cannot be reached, because the executor is
    lost as far as this process can tell. Returns other errors unchanged."""
    if not isinstance(error, errors.UnavailableError) or error.reason not in ("", "UNREACHABLE"):
        return error
    return errors.UnavailableError(
        f"the executor at {endpoint} does not answer: {error.message}; no byte got through for "
        f"{waited:.1f} s",
        reason="WORKER_LOST",
        metadata={"endpoint": endpoint},
    )


def _run(jobs: Sequence[Callable[[], None]]) -> None:
    """Runs jobs in parallel. If a job fails, drops the jobs that have not begun, waits for the
    others, and raises the error of the first failed job."""
    if len(jobs) == 1:
        return jobs[0]()
    with concurrent.futures.ThreadPoolExecutor(min(_PARALLEL, len(jobs))) as pool:
        futures = [pool.submit(job) for job in jobs]
        concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
    for future in futures:
        if not future.cancelled():
            future.result()
