"""Tests retries, resumed transfers, deadlines, TLS and tokens with a server that misbehaves on
demand."""
import collections
import subprocess
import threading
import time

import daemons
import grpc
import numpy as np
import pytest
import stopwatch
import tcp_proxy
import tessera
from fake_server import FakeServer, fail
from tessera import _crc32c, _proto, _transfer

P = tessera.P
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
MESH = tessera.Mesh({"x": 2}, [0, 1])


class Shards:
    """A DataService that keeps the data that it is sent, and the part of the coordinator that
    issues tickets."""

    def __init__(self, count=2):
        self.data = [bytearray() for _ in range(count)]
        self.reads = 0
        self.cut_writes = []  # for each coming call, the number of chunks after which it is cut
        self.cut_reads = []
        self.spoil = False  # whether to damage the next chunk that is read
        self.offsets = []  # offset at which each call began
        self.server = None
        self.endpoint = None  # address of the DataService if it is not the server's

    def tickets(self):
        endpoint = self.endpoint or self.server.address
        return [{"ordinal": i, "endpoint": endpoint, "ticket": f"t{i}"}
                for i in range(len(self.data))]

    def handlers(self):
        message = _proto.message

        def create(request, context):
            self.spec = request.spec
            return message("CreateArrayResponse")(array=7, tickets=self.tickets())

        def read_tickets(request, context):
            return message("CreateReadTicketsResponse")(spec=self.spec, tickets=self.tickets())

        def write(requests, context):
            left = self.cut_writes.pop(0) if self.cut_writes else None
            shard = None
            for request in requests:
                if request.ticket:
                    shard = self.data[int(request.ticket[1:])]
                    self.offsets.append(request.offset)
                    assert request.offset <= len(shard)
                    del shard[request.offset:]
                if left == 0:
                    context.abort(UNAVAILABLE, "cut")
                left = None if left is None else left - 1
                assert request.offset == len(shard)
                assert request.crc32c == _crc32c.crc32c(request.data)
                shard += request.data
            return message("WriteResponse")(committed_bytes=len(shard),
                                            crc32c=_crc32c.crc32c(shard))

        def status(request, context):
            shard = self.data[int(request.ticket[1:])]
            return message("GetShardStatusResponse")(committed_bytes=len(shard))

        def read(request, context):
            left = self.cut_reads.pop(0) if self.cut_reads else None
            self.offsets.append(request.offset)
            shard = bytes(self.data[int(request.ticket[1:])])
            for at in range(request.offset, len(shard), _transfer.CHUNK):
                if left == 0:
                    context.abort(UNAVAILABLE, "cut")
                left = None if left is None else left - 1
                part = shard[at:at + _transfer.CHUNK]
                crc, self.spoil = _crc32c.crc32c(part) ^ self.spoil, False
                yield message("ReadResponse")(offset=at, data=part, crc32c=crc)

        def delete(request, context):
            return message("DeleteArraysResponse")()

        return {"ArrayService/CreateArray": create, "ArrayService/CreateReadTickets": read_tickets,
                "ArrayService/DeleteArrays": delete, "DataService/Write": write,
                "DataService/GetShardStatus": status, "DataService/Read": read}


@pytest.fixture
def shards(monkeypatch):
    monkeypatch.setattr(_transfer, "CHUNK", 1000)
    monkeypatch.setattr("tessera._rpc._INITIAL_BACKOFF", 0.001)
    shards = Shards()
    with FakeServer(shards.handlers()) as shards.server:
        yield shards


def connect(server, **more):
    return tessera.connect(server.address, lease=None, timeout=20, **more)


VALUE = np.arange(20_000, dtype=np.uint16).reshape(2, 10_000)


def test_a_transfer_without_faults(shards):
    with connect(shards.server) as client:
        array = client.put(VALUE, MESH, P("x"))
        assert bytes(shards.data[1]) == VALUE[1].tobytes()
        np.testing.assert_array_equal(client.get(array), VALUE)
    assert shards.offsets == [0, 0, 0, 0]


def test_an_upload_goes_on_where_it_was_cut(shards):
    shards.cut_writes = [7, 3, 5]
    with connect(shards.server) as client:
        client.put(VALUE, MESH, P("x"))
    assert [bytes(d) for d in shards.data] == [VALUE[0].tobytes(), VALUE[1].tobytes()]
    assert sum(o > 0 for o in shards.offsets) >= 2


def test_an_upload_that_is_whole_already_is_not_sent_again(shards):
    def write(requests, context):
        list(requests)
        context.abort(UNAVAILABLE, "the answer is lost")

    def status(request, context):
        return _proto.message("GetShardStatusResponse")(complete=True)

    shards.server.handlers.update({"DataService/Write": write,
                                   "DataService/GetShardStatus": status})
    with connect(shards.server) as client:
        client.put(VALUE, MESH, P("x"))
    assert shards.server.calls("DataService/Write") == 2


def test_a_download_goes_on_where_it_was_cut(shards):
    with connect(shards.server) as client:
        array = client.put(VALUE, MESH, P("x"))
        shards.offsets.clear()
        shards.cut_reads = [11, 2, 19]
        np.testing.assert_array_equal(client.get(array), VALUE)
    assert sorted(shards.offsets)[0] == 0 and max(shards.offsets) >= 2000


def test_a_spoilt_chunk_is_asked_for_again(shards):
    with connect(shards.server) as client:
        array = client.put(VALUE, MESH, P("x"))
        shards.spoil = True
        np.testing.assert_array_equal(client.get(array), VALUE)
    assert len(shards.offsets) == 5


def test_a_stored_shard_of_another_checksum_is_no_success(shards):
    def write(requests, context):
        size = sum(len(r.data) for r in requests)
        return _proto.message("WriteResponse")(committed_bytes=size, crc32c=1)

    shards.server.handlers["DataService/Write"] = write
    with connect(shards.server) as client, pytest.raises(tessera.DataLossError) as caught:
        client.put(VALUE, MESH, P("x"))
    assert caught.value.reason == "CHECKSUM_MISMATCH"


def test_a_transfer_without_progress_is_given_up(shards):
    shards.cut_writes = [0] * 100
    with connect(shards.server) as client, pytest.raises(tessera.UnavailableError) as caught:
        client.put(VALUE, MESH, P("x"))
    assert caught.value.reason == "WORKER_LOST"
    assert caught.value.metadata == {"endpoint": shards.server.address}
    assert 4 <= len(shards.offsets) <= 8


@pytest.fixture
def proxied(shards, monkeypatch):
    """Returns shards behind a proxy. `away()` makes the proxy refuse connections until it has refused
    one."""
    with tcp_proxy.Proxy(shards.server.address) as proxy:
        shards.endpoint = proxy.address
        waits = []

        def come_back():
            daemons.eventually(lambda: proxy.refused)
            proxy.come_back()

        def away():
            proxy.go_away()
            waits.append(threading.Thread(target=come_back))
            waits[-1].start()

        shards.away = away
        monkeypatch.setattr("tessera._rpc._INITIAL_BACKOFF", 0.1)
        yield shards
        for wait in waits:
            wait.join()


def test_an_upload_waits_for_an_executor_that_comes_back(proxied):
    del proxied.data[1]
    good = proxied.server.handlers["DataService/Write"]
    calls = []

    def write(requests, context):
        calls.append(True)
        if len(calls) == 1:  # the client asks how much was written, and the executor answers
            context.abort(UNAVAILABLE, "cut")
        if len(calls) == 2:
            proxied.away()
        return good(requests, context)

    proxied.server.handlers["DataService/Write"] = write
    with connect(proxied.server) as client:
        client.put(VALUE[:1], tessera.Mesh({"x": 1}, [0]), P("x"))
    assert bytes(proxied.data[0]) == VALUE[0].tobytes()
    assert len(calls) >= 3


def test_a_download_waits_for_an_executor_that_comes_back(proxied):
    with connect(proxied.server) as client:
        array = client.put(VALUE, MESH, P("x"))
        proxied.away()
        np.testing.assert_array_equal(client.get(array), VALUE)


def test_an_executor_that_stays_away_is_lost(shards, monkeypatch):
    monkeypatch.setattr(_transfer, "_TICKET_RETRY_TIMEOUT", 0.2)
    with tcp_proxy.Proxy(shards.server.address) as proxy:
        shards.endpoint = proxy.address
        with connect(shards.server, reconnect=2) as client:
            array = client.put(VALUE, MESH, P("x"))
            proxy.go_away()
            start = time.monotonic()
            with pytest.raises(tessera.UnavailableError) as caught:
                client.get(array)
            assert 1 < time.monotonic() - start < 15
    assert caught.value.reason == "WORKER_LOST"
    assert caught.value.metadata == {"endpoint": proxy.address}
    assert "no byte got through for" in caught.value.message


def test_an_executor_whose_array_is_lost_is_not_waited_for(shards):
    def lost(request, context):
        if proxy.refused:
            fail(context, UNAVAILABLE, "worker w1 was lost", reason="WORKER_LOST")
        return good(request, context)

    with tcp_proxy.Proxy(shards.server.address) as proxy:
        good = shards.server.handlers["ArrayService/CreateReadTickets"]
        shards.server.handlers["ArrayService/CreateReadTickets"] = lost
        shards.endpoint = proxy.address
        with connect(shards.server, reconnect=3600) as client:
            array = client.put(VALUE, MESH, P("x"))
            proxy.go_away()
            with pytest.raises(tessera.UnavailableError, match="w1 was lost") as caught:
                client.get(array)
    assert caught.value.reason == "WORKER_LOST"


def test_a_download_goes_on_at_the_executor_of_a_replica(shards):
    with tcp_proxy.Proxy(shards.server.address) as proxy:
        shards.endpoint = proxy.address
        with connect(shards.server) as client:
            array = client.put(VALUE, MESH, P("x"))
            proxy.go_away()
            good = shards.server.handlers["ArrayService/CreateReadTickets"]

            def read_tickets(request, context):
                answer = good(request, context)
                shards.endpoint = None  # the next tickets are for the server itself
                return answer

            shards.server.handlers["ArrayService/CreateReadTickets"] = read_tickets
            np.testing.assert_array_equal(client.get(array), VALUE)
    # For the first tickets, after the first attempt, and for the next tickets.
    assert shards.server.calls("ArrayService/CreateReadTickets") >= 3


def test_an_upload_ends_without_a_shard_that_is_not_needed(shards):
    all_tickets, asked = shards.tickets, []

    def write_tickets(request, context):
        asked.append(list(request.ordinals))
        return _proto.message("CreateWriteTicketsResponse")()

    shards.server.handlers["ArrayService/CreateWriteTickets"] = write_tickets
    with tcp_proxy.Proxy(shards.server.address) as proxy, connect(shards.server) as client:
        proxy.go_away()
        shards.tickets = lambda: [all_tickets()[0], all_tickets()[1] | {"endpoint": proxy.address}]
        client.put(VALUE, MESH, P("x"))
    assert bytes(shards.data[0]) == VALUE[0].tobytes()
    assert asked == [[1]]


def test_stale_tickets_are_asked_for_anew(shards):
    with connect(shards.server) as client:
        array = client.put(VALUE, MESH, P("x"))
        good = shards.server.handlers["DataService/Read"]
        refused = []

        def read(request, context):
            if len(refused) < 3:
                refused.append(request.ticket)
                fail(context, UNAVAILABLE, reason="TICKET_STALE")
            yield from good(request, context)

        shards.server.handlers["DataService/Read"] = read
        np.testing.assert_array_equal(client.get(array), VALUE)
    assert 3 <= shards.server.calls("ArrayService/CreateReadTickets") <= 4


def test_a_put_whose_executor_has_restarted_is_made_anew(shards):
    good = shards.server.handlers["DataService/Write"]
    refused = []

    def write(requests, context):
        if not refused:
            refused.append(True)
            fail(context, UNAVAILABLE, reason="TICKET_STALE")
        return good(requests, context)

    shards.server.handlers["DataService/Write"] = write
    with connect(shards.server) as client:
        array = client.put(VALUE, MESH, P("x"))
        np.testing.assert_array_equal(client.get(array), VALUE)
    assert shards.server.calls("ArrayService/CreateArray") == 2


def test_forged_tickets_are_not_asked_for_anew(shards):
    with connect(shards.server) as client:
        array = client.put(VALUE, MESH, P("x"))

        def read(request, context):
            fail(context, grpc.StatusCode.PERMISSION_DENIED, reason="TICKET_REFUSED")
            yield

        shards.server.handlers["DataService/Read"] = read
        with pytest.raises(tessera.PermissionDeniedError):
            client.get(array)
    assert shards.server.calls("ArrayService/CreateReadTickets") == 1


def test_blocks_that_are_not_contiguous_are_put_together(shards):
    value = np.arange(40_000, dtype=np.int32).reshape(100, 400)
    with connect(shards.server) as client:
        array = client.put(value.T, MESH, P(None, "x"))
        np.testing.assert_array_equal(client.get(array), value.T)
        assert bytes(shards.data[1]) == value.T[:, 50:].tobytes()


# ---- Single calls. ----

def answering(*outcomes):
    """Returns a handler of GetArray that ends each call with the next outcome. None stands for
    success."""
    left = list(outcomes)

    def get(request, context):
        outcome = left.pop(0)
        if outcome:
            fail(context, *outcome[:2], **outcome[2])
        return _proto.message("Array")(id=request.array, state="READY")

    return {"ArrayService/GetArray": get}


def get_array(server):
    with connect(server) as client:
        return client.call("ArrayService/GetArray", {"array": "7"})


STOPPING = (UNAVAILABLE, "going down", {"reason": "SERVER_STOPPING"})
BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, "slow", {"reason": "RATE_LIMITED", "retry_delay": 0.01})


@pytest.mark.parametrize("outcome", [STOPPING, BUSY, (UNAVAILABLE, "no details", {})])
def test_calls_that_may_succeed_later_are_made_again(outcome, monkeypatch):
    monkeypatch.setattr("tessera._rpc._INITIAL_BACKOFF", 0.001)
    with FakeServer(answering(outcome, outcome, None)) as server:
        assert get_array(server)["state"] == "READY"
        assert server.calls("ArrayService/GetArray") == 3


@pytest.mark.parametrize("outcome, kind", [
    ((UNAVAILABLE, "gone", {"reason": "WORKER_LOST", "metadata": {"worker": "w0"}}),
     tessera.UnavailableError),
    ((grpc.StatusCode.NOT_FOUND, "no", {"reason": "ARRAY_NOT_FOUND"}), tessera.NotFoundError),
    ((grpc.StatusCode.RESOURCE_EXHAUSTED, "big", {"reason": "LIMIT_EXCEEDED"}),
     tessera.ResourceExhaustedError),
])
def test_other_calls_are_not(outcome, kind):
    with FakeServer(answering(outcome)) as server, pytest.raises(kind) as caught:
        get_array(server)
    error = caught.value
    assert (error.message, error.reason) == (outcome[1], outcome[2]["reason"])
    assert error.metadata == dict(outcome[2].get("metadata", {}))
    assert error.details[0]["domain"] == "tessera.dev"
    assert str(error) == f"{kind.code} ({error.reason}): {error.message}"


def test_nobody_there_is_unreachable(monkeypatch):
    monkeypatch.setattr("tessera._rpc._INITIAL_BACKOFF", 0.001)
    with pytest.raises(tessera.UnavailableError, match="refused") as caught:
        tessera.connect("127.0.0.1:1", timeout=5)
    assert caught.value.reason == "UNREACHABLE"


@pytest.mark.parametrize("address, words", [
    ("127.0.0.1", "the port is missing"), ("[::1]", "the port is missing"),
    ("127.0.0.1:74006", "the port '74006' is not a number from 1 to 65535"),
    ("127.0.0.1:0", "the port '0'"), ("127.0.0.1:", "the port ''"), ("here:http", "the port 'http'"),
    (":8470", "the host is missing"), ("::1:8470", "in brackets"),
    ("http://127.0.0.1:8470", "a scheme"), ("127.0.0.1:8470/", "a path")])
def test_an_address_that_is_none_is_told_at_once(address, words):
    with pytest.raises(tessera.InvalidArgumentError, match="HOST:PORT is expected") as caught:
        tessera.connect(address, insecure=True)
    assert caught.value.reason == "VALUE_ERROR" and words in caught.value.message
    assert isinstance(caught.value, ValueError)


def test_an_address_may_say_that_it_is_a_name():
    with FakeServer({}) as server, tessera.connect(
            f"dns:///{server.address}", lease=None, insecure=True) as client:
        assert client.address.startswith("dns:///")


@pytest.mark.parametrize("holds, words", [
    (None, "No such file"), (b"", "no PEM certificate"), (b"root:x:0:0\n", "no PEM certificate"),
    (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "no PEM certificate")])
def test_a_file_that_holds_no_authority_is_named(tmp_path, monkeypatch, holds, words):
    path = tmp_path / "ca.pem"
    if holds is not None:
        path.write_bytes(holds)
    monkeypatch.setenv("TESSERA_CA_FILE", str(path))
    with pytest.raises(tessera.FailedPreconditionError, match="TESSERA_CA_FILE") as caught:
        tessera.connect("127.0.0.1:8470", timeout=5)
    assert caught.value.reason == "TLS_MISMATCH"
    assert str(path) in caught.value.message and words in caught.value.message


def test_tls_to_a_plain_server_is_told_so(authority):
    with FakeServer({}) as server:
        with pytest.raises(tessera.FailedPreconditionError, match="does not speak TLS") as caught:
            tessera.connect(server.address, ca=authority / "cert.pem", timeout=5)
    assert caught.value.reason == "TLS_MISMATCH"


def test_calls_are_not_made_again_for_ever(monkeypatch):
    monkeypatch.setattr("tessera._rpc._INITIAL_BACKOFF", 0.001)
    with FakeServer(answering(*[STOPPING] * 9)) as server, pytest.raises(tessera.UnavailableError):
        get_array(server)
    assert server.calls("ArrayService/GetArray") == 5


def test_a_retry_that_would_come_too_late_is_not_waited_for():
    late = (*BUSY[:2], {**BUSY[2], "retry_delay": 1000.0})
    with FakeServer(answering(late)) as server:
        watch = stopwatch.Stopwatch()
        with pytest.raises(tessera.ResourceExhaustedError) as caught:
            get_array(server)
    assert watch.unhindered() < 10
    assert caught.value.retry_delay == 1000


def test_mutations_that_are_made_again_have_one_request_id(monkeypatch):
    monkeypatch.setattr("tessera._rpc._INITIAL_BACKOFF", 0.001)
    seen = []

    def create(request, context):
        seen.append(request.request_id)
        if len(seen) < 3:
            context.abort(UNAVAILABLE, "cut")
        return _proto.message("Session")(id=5)

    with FakeServer({"SessionService/CreateSession": create}) as server, connect(server) as client:
        client.call("SessionService/CreateSession")
        client.call("SessionService/CreateSession")
    assert len(seen) == 4 and seen[0] == seen[1] == seen[2] != seen[3]
    assert all(len(s) == 32 for s in seen)


def test_details_of_an_unknown_type_do_no_harm():
    def get(request, context):
        status = _proto.message("google.rpc.Status")(code=5)
        status.details.add(type_url="type.googleapis.com/of.the.Future", value=b"\x01")
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
        context.abort(grpc.StatusCode.NOT_FOUND, "no")

    with FakeServer({"ArrayService/GetArray": get}) as server:
        with pytest.raises(tessera.NotFoundError) as caught:
            get_array(server)
    assert caught.value.details == [{"@type": "type.googleapis.com/of.the.Future", "value": "AQ=="}]


def test_a_server_that_never_answers():
    release = threading.Event()

    def get(request, context):
        release.wait(30)
        return _proto.message("Array")()

    with FakeServer({"ArrayService/GetArray": get}) as server, connect(server) as client:
        watch = stopwatch.Stopwatch()
        with pytest.raises(TimeoutError) as caught:
            client.call("ArrayService/GetArray", timeout=0.2)
        release.set()
        assert watch.elapsed() >= 0.2 and watch.unhindered() < 10
    assert isinstance(caught.value, tessera.DeadlineExceededError)
    assert caught.value.reason == "DEADLINE_EXCEEDED"
    assert "GetArray" in str(caught.value) and server.address in str(caught.value)


def test_a_server_that_falls_silent_is_named_with_the_call_and_its_time(monkeypatch):
    monkeypatch.setattr("tessera._rpc._MIN_ANSWER", 0.5)
    calls, release = [], threading.Event()

    def get(request, context):
        calls.append(True)
        if len(calls) > 1:
            context.add_callback(release.set)
            release.wait(30)
        return _proto.message("Array")(id=request.array, state="READY")

    with FakeServer({"ArrayService/GetArray": get}) as server, connect(server, reconnect=1) as client:
        client.call("ArrayService/GetArray")
        start = time.monotonic()
        with pytest.raises(tessera.UnavailableError) as caught:
            client.call("ArrayService/GetArray")
        assert 1 <= time.monotonic() - start < 15
    assert caught.value.reason == "UNREACHABLE"
    assert f"ArrayService/GetArray at {server.address}: nothing came back" in caught.value.message


def test_a_wait_at_the_server_is_no_outage(monkeypatch):
    """The server takes as long as it is asked to, which is longer than calls look for one."""
    monkeypatch.setattr("tessera._rpc._MIN_ANSWER", 0.5)

    def wait(request, context):
        threading.Event().wait(request.timeout.seconds)
        return _proto.message("Operation")(id=7, state="OPERATION_STATE_DONE")

    with FakeServer({"OperationService/WaitOperation": wait}) as server:
        with connect(server, reconnect=0.5) as client:
            assert client.operation(7).wait(timeout=2).state == "DONE"


def test_calls_look_for_a_coordinator_for_thirty_seconds(monkeypatch):
    made = []
    connection = tessera._client.Connection

    def note(*args, reconnect, **more):
        made.append(reconnect)
        return connection(*args, reconnect=reconnect, **more)

    monkeypatch.setattr(tessera._client, "Connection", note)
    monkeypatch.delenv("TESSERA_RECONNECT", raising=False)
    with FakeServer({}) as server:
        tessera.connect(server.address, lease=None).close()
        monkeypatch.setenv("TESSERA_RECONNECT", "95")
        tessera.connect(server.address, lease=None).close()
        tessera.connect(server.address, lease=None, reconnect=2).close()
        monkeypatch.setenv("TESSERA_RECONNECT", "soon")
        with pytest.raises(ValueError, match="TESSERA_RECONNECT: .* got 'soon'"):
            tessera.connect(server.address, lease=None)
    assert made == [30, 95, 2]


def test_nobody_listens():
    with FakeServer({}) as server:
        address = server.address
    watch = stopwatch.Stopwatch()
    with pytest.raises(tessera.UnavailableError, match=address):
        tessera.connect(address, timeout=5)
    assert watch.unhindered() < 10


def test_a_closed_client_says_so():
    with FakeServer(answering()) as server:
        client = connect(server)
        client.close()
        client.close()
        with pytest.raises(ValueError, match="the client is closed"):
            client.devices()
        assert "closed" in repr(client)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_timeouts_that_are_none(timeout):
    with FakeServer({}) as server, connect(server) as client:
        with pytest.raises(ValueError, match="a timeout is a number of seconds"):
            client.call("ArrayService/GetArray", timeout=timeout)


# ---- The lease. ----

def sessions(lease, renewals, renew=None):
    message = _proto.message

    def create(request, context):
        answer = message("Session")(id=3)
        _proto.set_duration(answer.lease, lease)
        return answer

    def renewed(request, context):
        renewals.append(request.session)
        if renew:
            renew(context)
        return message("Session")(id=3)

    def delete(request, context):
        renewals.append(-request.session)
        return message("DeleteSessionResponse")()

    return {"SessionService/CreateSession": create, "SessionService/RenewSession": renewed,
            "SessionService/DeleteSession": delete}


def await_that(condition, patience=10):
    daemons.eventually(condition, patience)


def test_the_end_of_a_lease_in_a_pause_is_told_from_others():
    from tessera._session import LeaseClock
    clock = LeaseClock()
    clock.renewed(0, 60)
    clock.wait(5, 1)  # runs at 5, and again by 6
    assert not clock.ended_in_pause(59)
    assert clock.ended_in_pause(70), "the thread has not run yet"
    clock.wait(70, 1)
    assert clock.ended_in_pause(70.5), "the thread has run"
    clock.renewed(70, 60)
    assert not clock.ended_in_pause(71), "the server still had the session"
    for second in range(71, 140):
        clock.wait(second, 1)
    assert not clock.ended_in_pause(140), "the renewals failed while the process ran"
    clock.wait(300, 1)
    assert not clock.ended_in_pause(300), "the pause came later"


def test_the_lease_is_renewed_as_often_as_the_server_granted_it():
    renewals = []
    with FakeServer(sessions(0.6, renewals)) as server:
        with tessera.connect(server.address, lease=3600) as client:
            assert client.session == 3
            await_that(lambda: len(renewals) >= 3)
        assert renewals[-1] == -3 and set(renewals[:-1]) == {3}


def test_a_renewal_that_fails_is_tried_again():
    renewals = []

    def busy(context):
        if len(renewals) < 3:
            fail(context, grpc.StatusCode.INTERNAL, reason="INTERNAL")

    with FakeServer(sessions(0.6, renewals, busy)) as server:
        with tessera.connect(server.address):
            await_that(lambda: len(renewals) >= 5)


def test_a_session_that_is_gone_is_not_renewed_but_replaced():
    renewals = []

    def gone(context):
        if renewals[-1] == 3:
            fail(context, grpc.StatusCode.NOT_FOUND, reason="SESSION_NOT_FOUND")

    handlers = sessions(0.6, renewals, gone)
    first = handlers["SessionService/CreateSession"]

    def create(request, context):
        session = first(request, context)
        session.id += server.calls("SessionService/CreateSession") - 1
        return session

    with FakeServer(handlers | {"SessionService/CreateSession": create}) as server:
        with tessera.connect(server.address) as client:
            await_that(lambda: len(renewals) >= 4)
            assert client.session == 4
        assert renewals[0] == 3 and set(renewals[1:-1]) == {4} and renewals[-1] == -4


def test_a_renewal_without_an_answer_is_tried_again_within_the_lease():
    """The call may take half an interval, and the next try follows a quarter later. The lease ends
    two intervals after the time of its first renewal."""
    renewals, times, never = [], [], threading.Event()
    interval = 2.0

    def silent(context):
        times.append(time.monotonic())
        if len(times) == 1:
            context.add_callback(never.set)
            never.wait(30)

    with FakeServer(sessions(3 * interval, renewals, silent)) as server:
        with tessera.connect(server.address):
            await_that(lambda: len(times) >= 2, 30)
    assert interval / 2 <= times[1] - times[0] < 1.1 * interval


def test_the_next_renewal_counts_from_when_the_last_was_sent():
    renewals, times, never = [], [], threading.Event()
    interval = 2.0

    def slow(context):
        times.append(time.monotonic())
        if len(times) == 1:
            never.wait(0.4 * interval)

    with FakeServer(sessions(3 * interval, renewals, slow)) as server:
        with tessera.connect(server.address):
            await_that(lambda: len(times) >= 2, 30)
    assert 0.8 * interval <= times[1] - times[0] < 1.2 * interval


def deletions(freed):
    """Returns a handler of DeleteArrays that refuses the first call."""
    def delete(request, context):
        freed.append(list(request.arrays))
        if len(freed) == 1:
            fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, reason="DISK_FULL")
        return _proto.message("DeleteArraysResponse")()

    return {"ArrayService/DeleteArrays": delete}


def test_arrays_that_could_not_be_freed_are_freed_later():
    freed = []
    with FakeServer(sessions(3600, []) | deletions(freed)) as server:
        with tessera.connect(server.address) as client:
            client._session.forgotten.extend([7, 8])
            with pytest.raises(tessera.ResourceExhaustedError) as caught:
                client._session.free_forgotten(10)
            assert caught.value.reason == "DISK_FULL"
            client._session.free_forgotten(10)
            assert freed == [[7, 8], [7, 8]] and not client._session.forgotten


def test_a_renewal_after_which_arrays_are_not_freed_is_one():
    renewals, freed = [], []
    with FakeServer(sessions(0.6, renewals) | deletions(freed)) as server:
        with tessera.connect(server.address) as client:
            client._session.forgotten.append(7)
            await_that(lambda: len(freed) >= 2)
            assert freed == [[7], [7]] and client.session == 3


class Contended(collections.deque):
    """A queue from which another thread takes the last element just before popleft() does."""

    def popleft(self):
        if len(self) == 1:
            self.clear()
        return super().popleft()


def test_two_threads_that_free_at_once_do_not_disturb_each_other():
    with FakeServer(sessions(3600, [])) as server, tessera.connect(server.address) as client:
        client._session.forgotten = Contended([7, 8])
        assert client._session.take_forgotten() == [7]
        assert client._session.take_forgotten() == []


def test_forgetting_the_client_ends_the_session():
    renewals = []
    with FakeServer(sessions(60, renewals)) as server:
        client = tessera.connect(server.address)
        del client
        await_that(lambda: renewals == [-3])


# ---- TLS and tokens. ----

@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Makes a self-signed certificate for localhost."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60)
    return folder


def test_tls_and_a_token(authority, monkeypatch):
    pair = [(authority / "key.pem").read_bytes(), (authority / "cert.pem").read_bytes()]
    credentials = grpc.ssl_server_credentials([pair])
    with FakeServer(answering(None, None), credentials) as server:
        with connect(server, ca=authority / "cert.pem", token="tsr_secret") as client:
            client.call("ArrayService/GetArray")
        monkeypatch.setenv("TESSERA_ADDRESS", server.address)
        monkeypatch.setenv("TESSERA_CA_FILE", str(authority / "cert.pem"))
        monkeypatch.setenv("TESSERA_TOKEN", "tsr_other")
        with tessera.connect(lease=None) as client:
            client.call("ArrayService/GetArray")
    assert [m["authorization"] for _, m in server.seen] == ["Bearer tsr_secret", "Bearer tsr_other"]


def test_executors_are_shown_no_token(shards):
    with connect(shards.server, token="tsr_secret") as client:
        client.put(VALUE, MESH, P("x"))
    for name, metadata in shards.server.seen:
        assert ("authorization" in metadata) == (not name.startswith("DataService/")), name


def test_another_authority_is_refused(authority, tmp_path):
    other = tmp_path / "other.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", tmp_path / "key.pem", "-out", other, "-days", "2", "-subj", "/CN=x"],
        check=True, capture_output=True, timeout=60)
    pair = [(authority / "key.pem").read_bytes(), (authority / "cert.pem").read_bytes()]
    with FakeServer(answering(None), grpc.ssl_server_credentials([pair])) as server:
        with connect(server, ca=other) as client, \
                pytest.raises(tessera.FailedPreconditionError, match="does not come from") as caught:
            client.call("ArrayService/GetArray", timeout=3)
    assert caught.value.reason == "TLS_MISMATCH"
    assert server.seen == []


def test_plain_text_stays_on_this_machine():
    with pytest.raises(ValueError, match="the address is not on this machine"):
        tessera.connect("203.0.113.7:8470", timeout=1)
    with pytest.raises(tessera.Error):
        tessera.connect("203.0.113.7:1", insecure=True, timeout=0.1)


def test_executors_are_known_by_the_name_in_their_certificates(authority, shards, tmp_path):
    """The certificates of executors contain no address. So a coordinator cannot pass for an
    executor."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem", "-days", "2",
         "-subj", "/CN=w", "-addext", "subjectAltName=DNS:worker.tessera"],
        check=True, capture_output=True, timeout=60)
    both = tmp_path / "ca.pem"
    both.write_bytes((authority / "cert.pem").read_bytes() + (tmp_path / "cert.pem").read_bytes())

    def credentials(folder):
        pair = [(folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()]
        return grpc.ssl_server_credentials([pair])

    handlers = shards.handlers()
    data = {k: v for k, v in handlers.items() if k.startswith("DataService/")}
    with FakeServer(handlers, credentials(authority)) as coordinator, \
            FakeServer(data, credentials(tmp_path)) as executor, \
            connect(coordinator, ca=both) as client:
        shards.server = executor
        array = client.put(VALUE, MESH, P("x"))
        np.testing.assert_array_equal(client.get(array), VALUE)
        shards.server = coordinator
        with pytest.raises(tessera.UnavailableError):
            client.get(array, timeout=3)
    assert coordinator.calls("DataService/Read") == 0
