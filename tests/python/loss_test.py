"""Tests the errors that a client gets when processes die."""
import os
import signal

import daemons
import numpy as np
import pytest
import stopwatch
import tessera
from programs_test import PRODUCT, A, B

P = tessera.P


def test_a_killed_worker_is_named(own_cluster):
    with tessera.connect(own_cluster.address, timeout=30) as client:
        lost = next(w for w in client.workers() if w.name == "w1")
        mesh = tessera.Mesh({"x": 2}, lost.devices)
        array = client.put(A, mesh, P("x"))
        own_cluster.kill_worker(1)
        watch = stopwatch.Stopwatch()
        with pytest.raises(tessera.UnavailableError) as caught:
            client.get(array, timeout=20)
        assert caught.value.reason == "WORKER_LOST", caught.value
        assert "w1" in caught.value.message
        assert isinstance(caught.value, ConnectionError)
        assert watch.unhindered() < 15
        assert array.state() == "LOST"
        daemons.eventually(
            lambda: {w.name: w.state for w in client.workers()} == {"w0": "READY", "w1": "LOST"})
        assert [d.worker for d in client.devices() if d.healthy] == ["w0", "w0"]
        # Work that does not need the lost worker goes on: new meshes use other devices.
        product, _ = client.run(PRODUCT, A, B)
        np.testing.assert_array_equal(product, A * B)


def test_a_killed_executor_comes_back(own_cluster):
    with tessera.connect(own_cluster.address, timeout=30) as client:
        worker = next(w for w in client.workers() if w.name == "w0")
        mesh = tessera.Mesh({"x": 2}, worker.devices)
        array = client.put(A, mesh, P("x"))
        executors = own_cluster.executor_pids(0)
        assert len(executors) == 1
        os.kill(executors[0], signal.SIGKILL)
        with pytest.raises(tessera.UnavailableError) as caught:
            client.get(array, timeout=20)
        assert caught.value.reason == "WORKER_LOST"
        assert "w0" in caught.value.message
        own_cluster.await_devices(4)
        again = client.put(A, mesh, P("x"))
        np.testing.assert_array_equal(client.get(again), A)


def test_an_array_that_two_workers_have_outlives_one_of_them(own_cluster):
    value = np.arange(1 << 16, dtype=np.float32)  # more bytes than the coordinator relays
    with tessera.connect(own_cluster.address, timeout=30) as client:
        first, second = (next(w for w in client.workers() if w.name == name)
                         for name in ("w0", "w1"))
        # Along "w" the devices belong to different workers.
        mesh = tessera.Mesh({"w": 2, "d": 2}, first.devices + second.devices)
        large, small = client.put(value, mesh, P("d")), client.put(A, mesh, P("d"))
        sharded = client.put(value, mesh, P("w"))
        executor, = own_cluster.executor_pids(0)
        os.kill(executor, signal.SIGKILL)
        np.testing.assert_array_equal(np.asarray(large), value)
        np.testing.assert_array_equal(np.asarray(small), A)
        with pytest.raises(tessera.UnavailableError) as caught:
            client.get(sharded, timeout=20)
        assert caught.value.reason == "WORKER_LOST"
        devices = ", ".join(map(str, first.devices))
        assert (f"is lost with its shard [0:{value.size // 2}], which was only on devices "
                f"{devices} of worker w0") in caught.value.message
        # The array is moved to the devices that are left, and used there.
        living = tessera.Mesh({"x": 2}, second.devices)
        moved = client.reshard(small, living, P("x"))
        np.testing.assert_array_equal(np.asarray(moved), A)
        product, _ = client.compile(PRODUCT, mesh=living)(moved, B)
        np.testing.assert_array_equal(np.asarray(product), A * B)


def test_restarts_are_told_as_what_they_are(own_cluster):
    """A burst of restarts costs clients retries and arrays, but never gives an error about
    permissions."""
    with tessera.connect(own_cluster.address, timeout=30) as client:
        worker = next(w for w in client.workers() if w.name == "w0")
        mesh = tessera.Mesh({"x": 2}, worker.devices)
        rounds = 5
        for _ in range(rounds):
            array = client.put(A, mesh, P("x"))
            executor, = own_cluster.executor_pids(0)
            os.kill(executor, signal.SIGKILL)
            # At this moment the executor may be gone, not yet back, or back. The client still has
            # the value and delivers it.
            again = client.put(B, mesh, P("x"))
            try:
                np.testing.assert_array_equal(client.get(array), A)
            except tessera.UnavailableError as lost:
                assert lost.reason == "WORKER_LOST", lost
            np.testing.assert_array_equal(client.get(again), B)


def test_a_worker_that_dies_in_the_middle_of_a_run(own_cluster):
    program = """mesh (x=4)
func main(%a: f32[4] P('x'), %b: f32[4]) -> (f32[]) {
  %c = multiply(%a, %b)
  %s = reduce_sum(%c) {dimensions=[0]}
  return %s
}
"""
    with tessera.connect(own_cluster.address, timeout=30) as client:
        exe = client.compile(program)
        request = tessera._proto.message("CreateArrayRequest")(
            spec=exe.inputs[0].to_proto(), session=client.session)
        made = client._call("ArrayService/CreateArray", request, None)
        run = exe.submit(client.array(made.array), B)
        own_cluster.kill_worker(0)
        with pytest.raises(tessera.Error) as caught:
            run.wait(timeout=20)
        assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "WORKER_LOST")
        assert "w0" in caught.value.message


def test_a_client_goes_on_after_a_restart_of_the_coordinator(own_cluster):
    with tessera.connect(own_cluster.address, timeout=30) as client:
        old, lost = client.put(A, tessera.Mesh({"x": 2}), P("x")), client.session
        own_cluster.restart_coordinator()
        own_cluster.await_devices(4)
        array = client.put(A, tessera.Mesh({"x": 2}), P("x"))
        np.testing.assert_array_equal(client.get(array), A)
        assert client.session not in (0, lost)
        product, _ = client.run(PRODUCT, A, B)
        np.testing.assert_array_equal(product, A * B)
        with pytest.raises(tessera.NotFoundError, match="the coordinator has restarted") as caught:
            client.get(old)
        assert caught.value.reason == "ARRAY_NOT_FOUND"


def test_a_coordinator_that_is_gone(own_cluster):
    client = tessera.connect(own_cluster.address, timeout=3)
    own_cluster.processes["coordinator"].kill()
    with pytest.raises(tessera.UnavailableError) as caught:
        client.devices()
    assert own_cluster.address in caught.value.message
    watch = stopwatch.Stopwatch()
    client.close()
    assert watch.unhindered() < 10
