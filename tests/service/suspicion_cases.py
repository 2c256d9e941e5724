"""The cases of suspicion.py: what stands still or is cut off, and for how long."""
import contextlib
import dataclasses
import os
import signal

import containers
import daemons

LONG = 30  # seconds; longer cases have fewer rounds


@contextlib.contextmanager
def standing(pids, resumed=None):
    """Stops processes while the context lasts. They go on in the order of `resumed`, if it is given."""
    try:
        for pid in pids:
            daemons.freeze(pid)
        yield
    finally:
        for pid in resumed or pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def coordinator_stands(scene):
    return standing([scene.cluster.daemon_pid("coordinator")])


def idle_executor_stands(scene):
    return standing(scene.cluster.executor_pids(1))


def busy_executor_stands(scene):
    return standing(scene.cluster.executor_pids(0))


def idle_daemon_stands(scene):
    return standing([scene.cluster.daemon_pid("w1")])


def busy_daemon_stands(scene):
    return standing([scene.cluster.daemon_pid("w0")])


def coordinator_and_worker_stand(scene):
    """Stops both. In every other round the worker is the first to go on."""
    pids = [scene.cluster.daemon_pid("coordinator"), scene.cluster.daemon_pid("w0"),
            *scene.cluster.executor_pids(0)]
    return standing(pids, pids if scene.number % 2 else pids[::-1])


@contextlib.contextmanager
def _paused(cluster, name):
    containers.docker("pause", cluster.container(name))
    try:
        yield
    finally:
        containers.docker("unpause", cluster.container(name))


def coordinator_is_paused(scene):
    return _paused(scene.cluster, "coordinator")


def worker_is_paused(scene):
    return _paused(scene.cluster, "w0")


@contextlib.contextmanager
def link_is_refused(scene):
    scene.link.go_away()
    try:
        yield
    finally:
        scene.link.come_back()


@contextlib.contextmanager
def _held(proxy):
    proxy.hold()
    try:
        yield
    finally:
        proxy.let_through()


def link_is_held(scene):
    return _held(scene.link)


def worker_link_is_held(scene):
    return _held(scene.worker_link)


@dataclasses.dataclass(frozen=True)
class Case:
    """Something that stands still for `seconds`.

    fault      Returns the context in which it stands still.
    across     Whether the trainings run on both workers. Otherwise they run on w0, because a member
               that has a launch and is missing from its collective ends it after
               `collective_timeout_ms`.
    suspect    Who is away, says the coordinator's log. "" if the coordinator cannot see it.
    undisturbed  Whether the trainings go on during the fault.
    link       Whether the clients reach the coordinator through a proxy. A run of theirs then waits
               for its argument during the fault, and must not end.
    worker_link  Whether w1 reaches the coordinator through a proxy.
    contained  Whether the daemons are in containers.
    """

    number: str
    name: str
    seconds: float
    fault: object
    across: bool = False
    suspect: str = ""
    undisturbed: bool = False
    link: bool = False
    worker_link: bool = False
    contained: bool = False


def _cases():
    def add(name, lengths, fault, **more):
        for seconds in lengths:
            cases.append(Case(str(len(cases) + 1), f"{name} for {seconds} s", seconds, fault, **more))
    cases = []
    add("SIGSTOP of the coordinator", (12, 25, 50), coordinator_stands, across=True)
    add("SIGSTOP of an idle executor", (12, 30), idle_executor_stands, suspect="w1/0",
        undisturbed=True)
    add("SIGSTOP of a busy executor", (12, 30), busy_executor_stands, suspect="w0/0")
    add("SIGSTOP of an idle worker's daemon", (30,), idle_daemon_stands, suspect="w1",
        undisturbed=True)
    # Executors that work report to the coordinator themselves, so nobody suspects this one.
    add("SIGSTOP of a busy worker's daemon", (30,), busy_daemon_stands)
    add("SIGSTOP of coordinator and worker", (30,), coordinator_and_worker_stand)
    add("docker pause of the coordinator", (25,), coordinator_is_paused, across=True, contained=True)
    add("docker pause of a worker", (25,), worker_is_paused, suspect="w0", contained=True)
    add("clients' link refused", (3, 12, 25), link_is_refused, link=True)
    add("clients' link silent", (3, 12, 25), link_is_held, link=True)
    add("a worker's link silent", (12, 30), worker_link_is_held, across=True, suspect="w1",
        worker_link=True)
    return tuple(cases)


CASES = _cases()


def rounds_of(case, wanted):
    """Returns the number of rounds of a case, given --rounds or None."""
    if wanted is None:
        return 1 if case.seconds > LONG else 5
    return max(1, wanted // 4) if case.seconds > LONG else wanted
