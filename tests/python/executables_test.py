"""Tests with real daemons that a program is compiled again when the coordinator has dropped its executable:
because it keeps only a few, or because it was restarted without a state folder."""
import concurrent.futures
import logging

import daemons
import grpc
import numpy as np
import pytest
import tessera
from fake_server import FakeServer, fail
from tessera import _proto
from tessera._rpc import Deadline

A = np.array([1, 2], np.float32)


def doubling(times):
    """Returns a program that doubles its argument `times` times. Each number makes another program."""
    lines = [f"  %v{i + 1} = add(%v{i}, %v{i})" for i in range(times)]
    return "\n".join(["func main(%v0: f32[2]) -> (f32[2]) {", *lines, f"  return %v{times}", "}", ""])


@pytest.fixture
def small():
    """A cluster whose coordinator keeps two executables."""
    with daemons.Cluster(workers=1, coordinator_flags=["--executables-max=2",
                                                       "--canary-interval-ms=0"]) as running:
        yield running


def evict(client):
    """Runs two other programs, which fill the coordinator's cache."""
    for times in (5, 6):
        out, = client.compile(doubling(times))(A)
        np.testing.assert_array_equal(client.get(out), A * 2**times)


def runs(client):
    return sum(o.kind == "execute" for o in client.operations(all_sessions=True))


def test_an_evicted_program_is_compiled_again(small, caplog):
    with tessera.connect(small.address, timeout=30) as client:
        double = client.compile(doubling(1), name="double")
        first = double.id
        with caplog.at_level(logging.DEBUG, logger="tessera"):
            for _ in range(3):
                np.testing.assert_array_equal(client.get(double(A)[0]), 2 * A)
                evict(client)
        assert double.id != first
        assert runs(client) == 9, "no run happens twice"
        assert caplog.text.count("double: executable") == 2, caplog.text
        assert f"double: executable {first} is gone" in caplog.text
        assert double.explain().devices == double.devices


def test_calls_at_the_same_time_compile_an_evicted_program_once(small, caplog):
    with tessera.connect(small.address, timeout=30) as client:
        double = client.compile(doubling(1), name="double")
        evict(client)
        with caplog.at_level(logging.DEBUG, logger="tessera"), \
                concurrent.futures.ThreadPoolExecutor(8) as pool:
            for out, in pool.map(lambda _: double(A), range(16)):
                np.testing.assert_array_equal(client.get(out), 2 * A)
        assert caplog.text.count("double: executable") == 1, caplog.text


def test_programs_come_back_after_a_restart_without_state(own_cluster):
    with tessera.connect(own_cluster.address, timeout=60) as client:
        double = client.compile(doubling(1))
        np.testing.assert_array_equal(client.get(double(A)[0]), 2 * A)
        own_cluster.restart_coordinator()
        # The call waits for the workers, which have to find the coordinator again.
        np.testing.assert_array_equal(client.get(double(A)[0]), 2 * A)


def lost():
    """Returns the handlers of a server that has no executable, and a list of what it was asked for."""
    asked = []

    def compile(request, context):
        asked.append("compile")
        return _proto.message("CompileProgramResponse")(executable=len(asked))

    def execute(request, context):
        asked.append(request.executable)
        fail(context, grpc.StatusCode.NOT_FOUND, "no such executable", reason="PROGRAM_NOT_FOUND")

    return {"ProgramService/CompileProgram": compile, "ProgramService/ExecuteProgram": execute}, asked


def test_a_program_that_is_lost_again_at_once_is_an_error():
    handlers, asked = lost()
    with FakeServer(handlers) as server, tessera.connect(server.address, lease=None, timeout=20) as client:
        nothing = client.compile("func main() -> () { return }", name="nothing")
        with pytest.raises(tessera.NotFoundError, match="nothing: executable 1 was gone .* executable 3 was gone"):
            nothing()
    assert asked == ["compile", 1, "compile", 3]


def test_a_loss_that_another_call_repaired_does_not_count():
    handlers, asked = lost()
    refuse = handlers["ProgramService/ExecuteProgram"]

    def execute(request, context):
        if request.executable == 1:  # another call has the program compiled meanwhile
            nothing._replace(1, Deadline(20))
        if request.executable < 4:
            refuse(request, context)
        return _proto.message("ExecuteProgramResponse")(operation=9)

    handlers["ProgramService/ExecuteProgram"] = execute
    with FakeServer(handlers) as server, tessera.connect(server.address, lease=None, timeout=20) as client:
        nothing = client.compile("func main() -> () { return }", name="nothing")
        nothing()
    assert asked == ["compile", "compile", 1, 2, "compile"]


def test_the_error_of_the_second_compilation_is_that_of_the_call():
    handlers, asked = lost()
    good = handlers["ProgramService/CompileProgram"]

    def compile(request, context):
        if asked:
            fail(context, grpc.StatusCode.FAILED_PRECONDITION, "too few", reason="NOT_ENOUGH_DEVICES")
        return good(request, context)

    handlers["ProgramService/CompileProgram"] = compile
    with FakeServer(handlers) as server, tessera.connect(server.address, lease=None, timeout=20) as client:
        nothing = client.compile("func main() -> () { return }")
        for _ in range(2):  # the next call tries again
            with pytest.raises(tessera.FailedPreconditionError, match="too few"):
                nothing()
    assert asked == ["compile", 1, 1]
