"""Calls to one server: channels, credentials, deadlines, retries, errors."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import math
import os
import pathlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc

from tessera import _proto, _reach, errors

# These keepalive times match the server's: a connection that carries no data during a call is
# pinged after 20 s, and is closed if the ping has no answer after 15 s.
_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 20_000, 15_000
_OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", 256 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    # A client must reconnect within the coordinator's session_grace_ms.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # How long one attempt to connect may take; the default of 20 s would waste most of an outage.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # One channel per client, so that closing one does not affect another.
    ("grpc.use_local_subchannel_pool", 1),
]
_EXAMPLE = "127.0.0.1:8470"
_ATTEMPTS = 5
_INITIAL_BACKOFF = 0.1
_MAX_BACKOFF = 1.0
# How many seconds a call waits for the server in an outage that has already lasted too long.
_MIN_RECONNECT = 1.5
# How many seconds a server may at least take to answer, beyond the time for which the call asks it
# to wait. If calls look longer for a server that is away, it may take that long.
_MIN_ANSWER = 10.0
# Methods that a server may answer late without being asked to wait, because it reads programs or
# files first, or waits for executors. docs/bounds.md lists their bounds. A link that goes silent
# meanwhile is found by keepalive.
_SLOW = {
    "ArrayService/CreateArray",
    "ArrayService/GetFile",
    "ArrayService/LoadArrays",
    "ArrayService/WriteArray",
    "ProgramService/CompileProgram",
    "ProgramService/ExplainProgram",
    "ProgramService/GetProgram",
    "ProgramService/InspectProgram",
    "ProgramService/ListPrograms",
    "ProgramService/RunProgram",
    "ProgramService/UploadProgram",
}
# Errors which mean that nothing was executed and a retry may succeed.
_RETRYABLE_REASONS = ("SERVER_STOPPING", "UNREACHABLE", "RATE_LIMITED", "QUEUE_FULL")


class Deadline:
    """The deadline of a call and of all its parts."""

    def __init__(self, timeout: float) -> None:
        if not timeout >= 0:
            raise ValueError(f"a timeout is a number of seconds, not {timeout!r}")
        self.timeout = timeout
        self._end = time.monotonic() + timeout

    @property
    def left(self) -> float:
        """The number of seconds that remain, at least 0."""
        return max(self._end - time.monotonic(), 0.0)

    def sleep(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Sleeps, if that leaves time for another attempt. Returns whether it did."""
        if seconds >= self.left:
            return False
        sleep(seconds)
        return True


class Outage:
    """Decides how long the calls of one connection look for a server that has gone away or is
    silent.

    They look for `patience` seconds in all, counted from the first call that does not reach the
    server. After that each call looks only briefly, until the server is back. For a server that has
    never answered there is no patience, and a call only makes its few attempts. Thread-safe."""

    def __init__(self, patience: float) -> None:
        if not patience >= 0:
            raise ValueError(f"a timeout is a number of seconds, not {patience!r}")
        self.patience = patience
        self._lock = threading.Lock()
        self._answered_at: float | None = None  # the time of the last answer
        self._began: float | None = None

    def over(self) -> None:
        """Ends the outage: the server has answered."""
        with self._lock:
            self._answered_at, self._began = time.monotonic(), None

    def until(self, since: float | None = None) -> float | None:
        """Returns the time, by time.monotonic(), until which a call looks that has not reached the
        server since the time `since`, or since now. Returns None if there is no patience."""
        now = time.monotonic()
        with self._lock:
            if self._answered_at is None or not self.patience:
                return None
            # A silent attempt may have begun before another call was answered.
            since = max(now if since is None else since, self._answered_at)
            self._began = since if self._began is None else min(self._began, since)
            return max(self._began + self.patience, now + min(self.patience, _MIN_RECONNECT))

    def was_answered(self) -> bool:
        """Returns whether the server has ever answered."""
        with self._lock:
            return self._answered_at is not None

    def exhausted(self) -> bool:
        """Returns whether an outage has lasted for longer than there is patience."""
        with self._lock:
            return (
                self._answered_at is None
                or not self.patience
                or (
                    self._began is not None
                    and time.monotonic() >= self._began + self.patience
                )
            )

    def attempt_limit(self) -> float:
        """Returns how many seconds an attempt that begins now may wait for an answer."""
        now = time.monotonic()
        with self._lock:
            if self._began is None:
                return math.inf
            return max(self._began + self.patience - now, _MIN_RECONNECT)


class Retries:
    """The attempts of one call within `deadline`.

    While the server can be reached, there are at most `attempts` attempts. While the server cannot
    be reached, there are as many attempts as `outage` allows. `connect` waits for the given number
    of seconds, or until there is a connection."""

    def __init__(
        self,
        outage: Outage,
        deadline: Deadline,
        connect: Callable[[float], None],
        attempts: int = _ATTEMPTS,
    ) -> None:
        self._outage, self._deadline, self._attempts = outage, deadline, attempts
        self._connect = connect
        self._failures = self._unreached = 0
        self._until: float | None = None
        self._since: float | None = None  # when the first attempt began that did not get through

    def progress(self) -> None:
        """Counts the attempts anew: the server has answered."""
        self._outage.over()
        self._failures, self._unreached, self._until, self._since = 0, 0, None, None

    def limit(self, wait: float | None) -> float:
        """Returns how many seconds the attempt that begins now may take if the server is asked to
        wait for `wait` seconds. None stands for a call that may take any time. A server that has
        never answered may take until the deadline of the call."""
        if wait is None or not self._outage.was_answered():
            return math.inf
        answer = _MIN_ANSWER if wait else max(self._outage.patience, _MIN_ANSWER)
        return wait + min(answer, self._outage.attempt_limit())

    def again(
        self, error: errors.Error, since: float | None = None, silent: bool = False
    ) -> bool:
        """Returns whether to make another attempt after one with this error. Before it returns
        True, it has backed off.

        since   The time since which the server has not been reached, if that is not now.
        silent  Whether the attempt was left without an answer on a connection that is still open.
        """
        if error.details:
            self._outage.over()
        if not is_retryable(error):
            return False
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if since is not None:
            self._since = min(self._since, since)
            self._until = self._outage.until(since)
        if silent:
            # The attempt has taken its time already, so there is no wait before the next one.
            return not self._outage.exhausted() and self._deadline.left > 0
        sleep: Callable[[float], None] = time.sleep
        if error.reason == "UNREACHABLE":
            sleep = self._connect
            if self._until is None:
                self._until = self._outage.until()
            if self._until is not None:
                self._unreached += 1
                backoff = backoff_after(self._unreached, error)
                return time.monotonic() + backoff < self._until and self._deadline.sleep(
                    backoff, sleep
                )
        self._failures += 1
        if self._failures >= self._attempts:
            return False
        return self._deadline.sleep(backoff_after(self._failures, error), sleep)

    def final(self, error: errors.Error) -> errors.Error:
        """Returns the error of a call that is given up after `error`. If the server was not
        reached, it says for how long the call has waited."""
        if error.reason != "UNREACHABLE" or self._since is None:
            return error
        waited = time.monotonic() - self._since
        if waited < _MIN_RECONNECT:
            return error
        return type(error)(
            f"{error.message}; the call has waited for it for {waited:.1f} s",
            reason=error.reason,
            metadata=error.metadata,
            retry_delay=error.retry_delay,
            details=error.details,
        )


class Connection:
    """A channel to one address. Thread-safe; closed once.

    server_name   The name that the certificate must have in place of the address.
    reconnect     How many seconds calls look for a server that has gone away; see Outage.
    """

    def __init__(
        self,
        address: str,
        ca: bytes | None,
        token: str | None = None,
        server_name: str | None = None,
        reconnect: float = 0.0,
    ) -> None:
        self.address = address
        self._outage = Outage(reconnect)
        self._stubs: dict[str, Any] = {}  # stubs of unary methods, by name
        self._ca, self._name = ca, server_name
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        if ca is None:
            self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(root_certificates=ca)
            options = list(_OPTIONS)
            if server_name:
                options.append(("grpc.ssl_target_name_override", server_name))
            self._channel = grpc.secure_channel(address, credentials, options=options)

    def close(self) -> None:
        """Closes the channel, which cancels its calls."""
        self._channel.close()

    def call(
        self, name: str, request: Any, timeout: float, *, retry: bool = True, grace: float = 0.0
    ) -> Any:
        """Makes a unary call and returns the response.

        With `retry`, a call that was rejected before it was executed is retried. An unset
        request_id is filled in, so that a call that may have been executed can safely be retried
        as well. The answer of a server that can be reached may come `grace` seconds after the
        timeout."""
        method = _proto.method(name)
        if retry and "request_id" in method.request.DESCRIPTOR.fields_by_name:
            request.request_id = request.request_id or uuid.uuid4().hex
        stub = self._stubs.get(name)
        if stub is None:
            stub = self._stubs[name] = self._channel.unary_unary(
                method.path, method.request.SerializeToString, method.response.FromString
            )
        deadline = Deadline(timeout)
        retries = self.retries(deadline)
        slow = method.path.removeprefix(f"/{_proto.PACKAGE}.") in _SLOW
        wait = None if slow else _wait_of(request)
        first = True
        while True:
            left, limit = deadline.left + grace, retries.limit(wait)
            began = time.monotonic()
            try:
                answer = stub(request, timeout=min(left, limit), metadata=self._metadata)
                retries.progress()
                return answer
            except grpc.RpcError as error:
                found = to_error(error, self.address, name)
                reached = bool(found.details)  # The error is the server's own.
                since, silent = None, False
                if not reached and found.reason == "DEADLINE_EXCEEDED":
                    silent = limit < left
                    since = min(time.monotonic(), began + (wait or 0.0)) if silent else None
                    found = self._no_answer(name, timeout, silent)
                elif not reached and _gave_up(found):
                    since = time.monotonic() - (_KEEPALIVE_MS + _KEEPALIVE_TIMEOUT_MS) / 1e3
                    found = errors.UnavailableError(found.message, reason="UNREACHABLE")
                elif first and found.reason == "UNREACHABLE":
                    # A retry cannot succeed if the two sides do not agree on TLS.
                    if mismatch := _reach.explain(self.address, self._ca, self._name):
                        raise mismatch from None
                first = False
                if not retry or not retries.again(found, since, silent):
                    raise retries.final(found) from None

    def _no_answer(self, name: str, timeout: float, silent: bool) -> errors.Error:
        """Returns the error of an attempt without an answer: of one that was given up because the
        server is silent, or of one at whose end the timeout of the call had passed."""
        where = f"{name} at {self.address}"
        if silent:
            return errors.UnavailableError(f"{where}: nothing came back", reason="UNREACHABLE")
        return errors.DeadlineExceededError(
            f"{where}: no answer within {timeout:g} s", reason="DEADLINE_EXCEEDED"
        )

    def retries(self, deadline: Deadline, attempts: int = _ATTEMPTS) -> Retries:
        """Returns the attempts for a call that the caller repeats itself."""
        return Retries(self._outage, deadline, self.connect, attempts)

    def connect(self, seconds: float) -> None:
        """Waits for a connection, at most for `seconds`.

        gRPC has no thread that would make a connection in the background: it continues a handshake
        only while some call waits, and a call that does not wait fails at once."""
        # Pause first, so that a server that accepts connections and ends every call is not called
        # without a pause.
        time.sleep(seconds / 10)
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        with contextlib.suppress(grpc.RpcError):  # Any answer shows that there is a connection.
            check(b"", timeout=0.9 * seconds, wait_for_ready=True)

    def read_stream(self, name: str, request: Any, timeout: float) -> Iterator[Any]:
        """Makes a call with a response stream and yields the responses. The call is not retried.
        Leaving the iterator early cancels the call."""
        method = _proto.method(name)
        stub = self._channel.unary_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        call = stub(request, timeout=timeout, metadata=self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise to_error(error, self.address, name) from None
        finally:
            call.cancel()

    def write_stream(self, name: str, requests: Iterable[Any], timeout: float) -> Any:
        """Makes a call with a request stream and returns the response. The call is not retried."""
        method = _proto.method(name)
        stub = self._channel.stream_unary(
            method.path, method.request.SerializeToString, method.response.FromString
        )
        try:
            return stub(iter(requests), timeout=timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            raise to_error(error, self.address, name) from None


def _wait_of(request: Any) -> float:
    """Returns for how many seconds a request asks the server to wait."""
    if "timeout" not in request.DESCRIPTOR.fields_by_name:
        return 0.0
    return float(request.timeout.seconds) + float(request.timeout.nanos) / 1e9


def _gave_up(error: errors.Error) -> bool:
    """Returns whether keepalive gave up the connection, because nothing came back on it."""
    return isinstance(error, errors.UnavailableError) and (
        "keepalive" in error.message or "ping timeout" in error.message
    )


def is_retryable(error: errors.Error) -> bool:
    """Returns whether a retry may succeed: the connection failed, or the server refused the call
    for a reason that passes."""
    if isinstance(error, errors.UnavailableError) and not error.reason:
        return True
    return error.reason in _RETRYABLE_REASONS


def backoff_after(failures: int, error: errors.Error) -> float:
    """Returns how many seconds to wait after this number of failed attempts. The wait is doubled
    each time up to a bound, and has jitter."""
    doubled = min(_INITIAL_BACKOFF * 2.0 ** min(failures - 1, 32), _MAX_BACKOFF)
    return max(doubled * (0.5 + random.random()), error.retry_delay or 0.0)


def to_error(error: grpc.RpcError, address: str, name: str) -> errors.Error:
    """Converts the error of a failed gRPC call."""
    number = error.code().value[0]
    metadata: Any = error.trailing_metadata() or ()  # Stubs hide that its items are pairs.
    for key, value in metadata:
        if key == "grpc-status-details-bin":
            status = _proto.message("google.rpc.Status").FromString(value)
            return from_status(number, error.details() or status.message, status)
    text = error.details() or "no message"
    reason = ""
    if number == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]:
        reason = "DEADLINE_EXCEEDED"
    elif number == grpc.StatusCode.UNAVAILABLE.value[0] and _reach.never_connected(text):
        reason = "UNREACHABLE"
    return errors.class_of(number)(f"{name} at {address}: {text}", reason=reason)


def from_status(number: int, text: str, status: Any) -> errors.Error:
    """Converts a google.rpc.Status to an error."""
    details = [_detail(any_) for any_ in status.details]
    info: dict[str, Any] = {}
    delay = None
    for detail in details:
        kind = detail.get("@type", "").rpartition("/")[2]
        if kind == "google.rpc.ErrorInfo" and not info:
            info = detail
        elif kind == "google.rpc.RetryInfo":
            delay = float(detail.get("retryDelay", "0s").rstrip("s"))
    return errors.class_of(number)(
        text,
        reason=info.get("reason", ""),
        metadata=info.get("metadata", {}),
        retry_delay=delay,
        details=details,
    )


def _detail(any_: Any) -> dict[str, Any]:
    try:
        return _proto.to_json(any_)
    except Exception:  # The type is a newer server's. Releases of protobuf raise different errors.
        return {"@type": any_.type_url, "value": base64.b64encode(any_.value).decode()}


def check_address(address: str) -> None:
    """Raises ValueError for an invalid HOST:PORT. Names are not resolved."""
    if not isinstance(address, str):
        raise TypeError(f"an address is a text HOST:PORT, not {type(address).__name__}")
    if address.startswith("unix:"):
        return
    host, colon, port = address.removeprefix("dns:///").rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    wrong = ""
    if "://" in address.removeprefix("dns:///"):
        wrong = "a scheme does not belong there"
    elif "/" in address.removeprefix("dns:///"):
        wrong = "a path does not belong there"
    elif not colon or address.endswith("]"):
        wrong = "the port is missing"
    elif ":" in host and not bracketed:
        wrong = "the address of IPv6 stands in brackets, as in [::1]:8470"
    elif not host.strip("[]"):
        wrong = "the host is missing"
    elif not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        wrong = f"the port {port!r} is not a number from 1 to 65535"
    if wrong:
        raise errors.InvalidArgumentError(
            f"address {address!r}: {wrong}; HOST:PORT is expected, as in {_EXAMPLE}",
            reason="VALUE_ERROR",
        )


def read_ca(path: str | os.PathLike[str]) -> bytes:
    """Reads the PEM text of the cluster's CA from a file."""
    try:
        pem = pathlib.Path(path).read_bytes()
        wrong = "" if _reach.holds_certificates(pem) else "it holds no PEM certificate"
    except OSError as error:
        wrong = error.strerror or str(error)
    if not wrong:
        return pem
    raise errors.FailedPreconditionError(
        f"the cluster's authority cannot be read from {os.fspath(path)}: {wrong}; give its ca.pem "
        "in ca= or TESSERA_CA_FILE",
        reason="TLS_MISMATCH",
    )


def is_loopback(address: str) -> bool:
    """Returns whether HOST:PORT is on this machine, so that plain text is safe."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost" or address.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
