"""Tests with real daemons which session owns what, and how long that is kept."""
import concurrent.futures
import os
import signal
import subprocess
import sys

import daemons
import numpy as np
import pytest
import tessera

MESH = tessera.Mesh({"x": 2})
VALUE = np.arange(4, dtype=np.float32)


@pytest.fixture
def witness(cluster):
    """A client that outlives the others and looks at their arrays and sessions."""
    with tessera.connect(cluster.address, lease=None, timeout=30) as connected:
        yield connected


def is_gone(client, array):
    try:
        client.call("ArrayService/GetArray", {"array": str(array)})
    except (tessera.NotFoundError, tessera.FailedPreconditionError):
        return True
    return False


def test_leaving_frees_what_the_session_has(cluster, witness):
    with tessera.connect(cluster.address, lease=60) as client:
        array = client.put(VALUE, MESH)
        session = {"session": str(client.session)}
        found = client.call("SessionService/GetSession", session)
        assert found["lease"] == "60s" and found["arrays"] == "1"
        assert os.path.basename(sys.argv[0]) in found["displayName"]
        assert not is_gone(witness, array.id)
    assert is_gone(witness, array.id)
    with pytest.raises(tessera.NotFoundError) as caught:
        witness.call("SessionService/GetSession", session)
    assert caught.value.reason == "SESSION_NOT_FOUND"


def test_the_lease_holds_while_the_client_does_nothing(cluster, witness):
    with tessera.connect(cluster.address, lease=5) as client:
        array = client.put(VALUE, MESH)
        before = client.call("SessionService/GetSession", {"session": str(client.session)})

        def renewed():
            now = witness.call("SessionService/GetSession", {"session": str(client.session)})
            return now["expireTime"] > before["expireTime"]

        daemons.eventually(renewed, 20)
        np.testing.assert_array_equal(client.get(array), VALUE)


def test_things_without_a_session_stay(cluster, witness):
    with tessera.connect(cluster.address, lease=None) as client:
        assert client.session == 0
        array = client.put(VALUE, MESH)
        client._session.forgotten.clear()
        kept = array.id
        array._client = None  # this handle no longer frees its array
    assert not is_gone(witness, kept)
    witness.delete(witness.array(kept))
    assert is_gone(witness, kept)


SCRIPT = """
import os, signal, sys
import numpy as np
import tessera

client = tessera.connect({address!r}, lease={lease})
array = client.put(np.zeros(4, np.float32), tessera.Mesh({{"x": 2}}))
print(client.session, array.id, flush=True)
{end}
"""


def run_script(cluster, end, lease):
    script = SCRIPT.format(address=cluster.address, lease=lease, end=end)
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(tessera.__file__)),
                                         os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "PYTHONPATH": path})
    session, array = map(int, done.stdout.split())
    return done, session, array


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
def test_a_script_that_ends_leaves_nothing(cluster, witness, end):
    done, _, array = run_script(cluster, end, lease=3600)
    assert done.returncode == 0 and done.stderr == ""
    assert is_gone(witness, array)


def test_a_script_that_fails_leaves_nothing(cluster, witness):
    done, _, array = run_script(cluster, "raise KeyError('mine')", lease=3600)
    assert done.returncode == 1 and done.stderr.rstrip().endswith("KeyError: 'mine'")
    assert is_gone(witness, array)


def test_a_script_that_is_killed_loses_its_things_with_the_lease(cluster, witness):
    done, session, array = run_script(cluster, "os.kill(os.getpid(), signal.SIGKILL)", lease=0.5)
    assert done.returncode == -signal.SIGKILL
    daemons.eventually(lambda: is_gone(witness, array), 10)
    with pytest.raises(tessera.NotFoundError) as caught:
        witness.call("SessionService/GetSession", {"session": str(session)})
    assert caught.value.reason == "SESSION_NOT_FOUND"


STOPPED = """
import os, signal, sys, threading
import numpy as np
import tessera

client = tessera.connect({address!r}, lease={lease}, timeout=30)
mesh = tessera.Mesh({{"x": 1}})
twice = client.compile("func main(%a: f32[2]) -> (f32[2]) {{ %b = add(%a, %a) return %b }}")
given = client.put(np.array([1, 2], np.float32), mesh)
run = twice.submit(given)
made, = run.outputs
request = tessera._proto.message("CreateArrayRequest")(
    spec=twice.inputs[0].to_proto(), session=client.session)
missing = client.array(client._call("ArrayService/CreateArray", request, None).array)
waits = twice.submit(missing)
ends = {{}}

def end(name, call):
    try:
        call()
        ends[name] = "no error"
    except tessera.Error as error:
        ends[name] = f"{{error.reason}}: {{error.message}}"

begun = threading.Thread(target=end, args=("begun wait", lambda: waits.wait(30)))
begun.start()
print(client.session, "ready", flush=True)
sys.stdin.readline()
end("read", lambda: client.get(given))
end("read of a result", lambda: client.get(made))
end("state", given.state)
end("run", lambda: twice(given))
end("wait", lambda: run.wait())
end("watch", lambda: list(waits.watch()))
end("status", run.status)
end("reshard", lambda: client.reshard(given, mesh, tessera.P("x")))
begun.join()
for name, text in ends.items():
    print(name, "=", text)
new, = twice(np.array([3, 4], np.float32))
print("new =", client.get(new).tolist(), client.session, flush=True)
"""


def test_a_script_that_was_stopped_for_longer_than_its_lease_is_told(cluster, witness):
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(tessera.__file__)),
                                         os.environ.get("PYTHONPATH")]))
    script = subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(address=cluster.address, lease=1.5)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": path})
    try:
        session, word = script.stdout.readline().split()
        assert word == "ready"
        daemons.freeze(script.pid)

        def ended():
            try:
                witness.call("SessionService/GetSession", {"session": session})
            except tessera.NotFoundError:
                return True
            return False

        daemons.eventually(ended)
        os.kill(script.pid, signal.SIGCONT)
        said, _ = script.communicate("\n", timeout=100)
    finally:
        script.kill()
    ends = dict(line.split(" = ", 1) for line in said.splitlines() if " = " in line)
    value, another = ends.pop("new").rsplit(" ", 1)
    assert value == "[6.0, 8.0]" and another != session
    assert len(ends) == 9
    for name, text in ends.items():
        assert text.startswith(f"SESSION_NOT_FOUND: the lease (1.5 s) of session {session} ended "
                               "while this process did not run"), (name, text)


WAIT = "import time\nwhile True: time.sleep(1)"


def test_a_script_that_is_terminated_leaves_nothing(cluster, witness):
    done, _, array = run_script(cluster, f"os.kill(os.getpid(), signal.SIGTERM)\n{WAIT}", lease=3600)
    assert done.returncode == -signal.SIGTERM and done.stderr == ""
    assert is_gone(witness, array)


def test_a_script_that_handles_the_signal_itself_does(cluster, witness):
    end = f"""signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
again = tessera.connect({cluster.address!r})
os.kill(os.getpid(), signal.SIGTERM)
{WAIT}"""
    done, session, array = run_script(cluster, end, lease=3600)
    assert done.returncode == 7 and not is_gone(witness, array)
    witness.call("SessionService/DeleteSession", {"session": str(session)})


def grpc_can_fork():
    """Returns whether a process with a channel can fork at all. With gRPC 1.51 of Debian 13 the
    fork waits for ever."""
    script = ("import os, grpc\nchannel = grpc.insecure_channel('127.0.0.1:1')\n"
              "try: grpc.channel_ready_future(channel).result(0.2)\n"
              "except grpc.FutureTimeoutError: pass\n"
              "child = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0)\nos._exit(0)\n")
    try:
        return subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=20,
                              check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.skipif(not grpc_can_fork(), reason="this gRPC never lets a process with a channel fork")
def test_a_forked_child_leaves_its_parents_session_alone(cluster, witness):
    end = """
child = os.fork()
if child == 0:
    client.close()
    os._exit(0)
os.waitpid(child, 0)
client.get(array)
os._exit(9)"""
    done, session, array = run_script(cluster, end, lease=3600)
    assert done.returncode == 9 and not is_gone(witness, array)
    witness.call("SessionService/DeleteSession", {"session": str(session)})


RUN = """
text = "mesh (x=2)\\nfunc main(%a: f32[4] P('x')) -> (f32[4] P('x')) {\\n  return %a\\n}\\n"
exe = client.compile(text)
create = tessera._proto.message("CreateArrayRequest")(
    spec=exe.inputs[0].to_proto(), session=client.session)
missing = client.array(client._call("ArrayService/CreateArray", create, None).array)
run = exe.submit(missing)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_script_runs_ends_long_before_its_lease(cluster, witness):
    done, session, array = run_script(cluster, RUN, lease=3600)
    assert done.returncode == -signal.SIGKILL, done.stderr

    def live():
        return {o.session for o in witness.operations(live=True, all_sessions=True)}

    # The grace period is 30 s.
    daemons.eventually(lambda: session not in live(), 45)
    assert not is_gone(witness, array), "arrays stay as long as the lease"
    witness.call("SessionService/DeleteSession", {"session": str(session)})


def test_the_end_of_a_session_cancels_what_runs(cluster, witness):
    from programs_test import waiting
    with tessera.connect(cluster.address) as client:
        run, _ = waiting(client)
    status = witness.operation(run.id).status()
    assert status.state == "CANCELLED"


def test_a_session_that_is_gone_is_replaced_once(cluster, witness):
    with tessera.connect(cluster.address, lease=3600, timeout=30) as client:
        lost = client.session
        client.call("SessionService/DeleteSession", {"session": str(lost)})
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            arrays = list(pool.map(lambda _: client.put(VALUE, MESH), range(16)))
        assert client.session != lost
        found = witness.call("SessionService/GetSession", {"session": str(client.session)})
        assert found["arrays"] == "16" and found["lease"] == "3600s"
    assert all(is_gone(witness, a.id) for a in arrays)


def test_a_session_that_is_gone_is_replaced_by_the_renewal(cluster, witness):
    with tessera.connect(cluster.address, lease=3, timeout=30) as client:
        lost = client.session
        witness.call("SessionService/DeleteSession", {"session": str(lost)})
        daemons.eventually(lambda: client.session != lost, 20)
        array = client.put(VALUE, MESH)
        before = witness.call("SessionService/GetSession", {"session": str(client.session)})

        def renewed():
            now = witness.call("SessionService/GetSession", {"session": str(client.session)})
            return now["expireTime"] > before["expireTime"]

        daemons.eventually(renewed, 20)
        np.testing.assert_array_equal(client.get(array), VALUE)


def test_a_closed_client_opens_no_session(cluster):
    client = tessera.connect(cluster.address, timeout=30)
    client.close()
    with pytest.raises(ValueError, match="closed"):
        client._session.replace(client.session, 5)
