"""Finds the client, provides a cluster to the tests that need one, and checks what must hold after
each test."""
import gc
import os
import pathlib
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/service"))
# The package is either where the build has put it or where pip has installed it from the source
# tree.
_places = [os.environ.get("TESSERA_PYTHON_DIR"), ROOT / "build/dev/python", ROOT / "client/python"]
for place in filter(None, _places):
    if (pathlib.Path(place) / "tessera/_proto.binpb").exists():
        sys.path.insert(0, str(place))
        break
for name in ("TESSERA_ADDRESS", "TESSERA_CA_FILE", "TESSERA_TOKEN", "TESSERA_RECONNECT"):
    os.environ.pop(name, None)

import daemons  # noqa: E402
import tessera  # noqa: E402


def pytest_sessionfinish(session, exitstatus):
    """Exits with 77 if every test was skipped, so that CTest does not say that they passed."""
    stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if exitstatus == pytest.ExitCode.OK and stats.get("skipped") and not stats.get("passed"):
        session.exitstatus = 77


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Two workers with two CPU devices each, which every test must leave unharmed."""
    files = tmp_path_factory.mktemp("files")
    with daemons.Cluster(worker_flags=[f"--files-dir={files}"]) as running:
        before = {n: (p.pid, p.poll()) for n, p in running.processes.items()}
        executors = [running.executor_pids(w) for w in (0, 1)]
        yield running
        assert before == {n: (p.pid, p.poll()) for n, p in running.processes.items()}
        assert executors == [running.executor_pids(w) for w in (0, 1)]


@pytest.fixture
def client(cluster):
    with tessera.connect(cluster.address, timeout=30) as connected:
        yield connected


@pytest.fixture
def own_cluster():
    """A cluster that the test may damage."""
    with daemons.Cluster() as running:
        yield running


def _threads():
    # gRPC's own threads end a moment after their channels.
    return {t for t in threading.enumerate() if t.name.startswith(("tessera", "ThreadPool"))}


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = _threads()
    yield
    gc.collect()
    daemons.eventually(lambda: _threads() <= before, 5, "the client's threads end")
