"""Tests what a client still has after its connection or its coordinator was away for a while.

TESSERA_CUT_SECONDS sets how long the link to the coordinator is cut; 4 by default."""
import concurrent.futures
import os
import signal
import threading
import time

import daemons
import numpy as np
import pytest
import stopwatch
import tcp_proxy
import tessera
from programs_test import PRODUCT, A, B, waiting

P = tessera.P
MESH = tessera.Mesh({"x": 2})
# An outage is longer than a single call tolerates, and shorter than a session is kept without a
# connection.
OUTAGE = float(os.environ.get("TESSERA_CUT_SECONDS", 4))
PATIENCE = 60


def pass_time(seconds):
    """Waits for `seconds`. No event happens in this time that a test could wait for instead."""
    threading.Event().wait(seconds)


@pytest.fixture
def own_cluster():
    """A cluster whose sessions survive outages, on a busy machine too."""
    with daemons.Cluster(coordinator_flags=["--session-grace-ms=60000",
                                            "--canary-interval-ms=0"]) as running:
        yield running


@pytest.fixture
def proxy(own_cluster):
    with tcp_proxy.Proxy(own_cluster.address) as running:
        yield running


def operations(client):
    return [o.id for o in client.operations(all_sessions=True)]


def test_runs_whose_answers_are_lost_run_once_and_consume_once(own_cluster, proxy):
    with tessera.connect(proxy.address, timeout=PATIENCE) as client, \
            tessera.connect(own_cluster.address, timeout=PATIENCE) as witness:
        exe = client.compile(PRODUCT)
        mesh = tessera.Mesh({"x": 2}, exe.devices)
        runs = 15
        before = len(operations(witness))
        for number in range(runs):
            donated = client.put(A, mesh, P("x"))
            proxy.cut_answer_after(1 + 7 * number)
            run = exe.submit(donated, B, donate=[0])
            assert run.wait().state == "DONE"
            np.testing.assert_array_equal(client.get(run.outputs[0]), A * B)
            with pytest.raises(tessera.FailedPreconditionError) as gone:
                client.get(donated)
            assert gone.value.reason == "ARRAY_DELETED"
        assert proxy.cuts >= runs // 2
        assert len(operations(witness)) == before + runs


def waits_through(client, outage):
    """Waits for a run, watches it and begins other calls while `outage` happens."""
    kept, session = client.put(A, MESH, P("x")), client.session
    run, _ = waiting(client)
    with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
        waits = pool.submit(run.wait, PATIENCE)
        watches = pool.submit(lambda: [s.state for s in run.watch(PATIENCE)])
        daemons.eventually(lambda: run.status().state == "PENDING")
        outage(lambda: pool.submit(lambda: client.get(client.put(B, MESH, P("x")))))
        assert not waits.done() and not watches.done()
        np.testing.assert_array_equal(client.get(kept), A)
        assert client.session == session
        run.cancel()
        with pytest.raises(tessera.CancelledError):
            waits.result(PATIENCE)
        assert watches.result(PATIENCE)[-1] == "CANCELLED"


@pytest.mark.parametrize("way", ["refused", "silent"])
def test_a_client_goes_on_after_an_outage(proxy, way):
    def outage(begin):
        proxy.go_away() if way == "refused" else proxy.hold()
        call = begin()
        pass_time(OUTAGE)
        assert not call.done()
        proxy.come_back() if way == "refused" else proxy.let_through()
        np.testing.assert_array_equal(call.result(PATIENCE), B)

    with tessera.connect(proxy.address, timeout=PATIENCE) as client:
        waits_through(client, outage)


def test_a_client_bears_a_coordinator_that_stands_still(own_cluster):
    def outage(begin):
        coordinator = own_cluster.processes["coordinator"]
        coordinator.send_signal(signal.SIGSTOP)
        call = begin()
        pass_time(10)
        assert not call.done()
        coordinator.send_signal(signal.SIGCONT)
        np.testing.assert_array_equal(call.result(PATIENCE), B)

    with tessera.connect(own_cluster.address, timeout=PATIENCE) as client:
        waits_through(client, outage)


def test_a_link_that_stays_silent_is_told_with_the_call_its_time_and_the_address(proxy):
    with tessera.connect(proxy.address, timeout=PATIENCE, reconnect=3) as client:
        assert client.devices()
        proxy.hold()
        watch = stopwatch.Stopwatch()
        with pytest.raises(tessera.UnavailableError) as caught:
            client.devices()
        assert watch.unhindered() < 20
        assert caught.value.reason == "UNREACHABLE"
        assert f"ClusterService/ListDevices at {proxy.address}: " in caught.value.message
        assert "the call has waited for it for" in caught.value.message
        proxy.let_through()
        assert client.devices()


def test_an_outage_that_lasts_too_long_is_told_within_the_bound(proxy):
    with tessera.connect(proxy.address, timeout=PATIENCE, reconnect=3) as client:
        assert client.devices()
        proxy.go_away()
        start = time.monotonic()
        with pytest.raises(tessera.UnavailableError) as caught:
            client.devices()
        assert caught.value.reason == "UNREACHABLE"
        assert f"ClusterService/ListDevices at {proxy.address}: " in caught.value.message
        assert "the call has waited for it for" in caught.value.message
        first = time.monotonic() - start
        assert 1 < first < 10
        # Later calls do not keep trying for as long as the first one.
        watch = stopwatch.Stopwatch()
        with pytest.raises(tessera.UnavailableError):
            client.devices()
        assert watch.unhindered() < max(first, 3)
        proxy.come_back()

        def answers():
            try:
                return client.devices()
            except tessera.UnavailableError:
                return None

        daemons.eventually(answers)
