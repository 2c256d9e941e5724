"""The history of a run of kill_loop.py and the promises that it broke.

An event records what a client did and saw, or what the killer did. Times are in seconds of one
clock. The rules are those of a service that loses nothing that it has acknowledged:

- An operation ends once: every answer about its end is the same, up to the last one.
- An operation fails, and a call is refused, only if one of its workers was killed during it or
  shortly before. If the error says that the argument is lost, the kill may have been at any time
  since the argument was begun.
- An array holds the values that were computed: a reader gets those values or an error.
- An array is lost only if one of its workers was killed after it was begun, or so shortly before
  that the coordinator had not noticed the kill yet. The error names the worker.
- A session has no other operations than those that were acknowledged in it, so that nothing
  happens that no client asked for.
- The measured times stay within their bounds.
"""
import collections
import dataclasses
import re

# The longest time in seconds for which a worker may be away after a kill. In this time the kill is noticed, the
# processes start again and attach, and programs are compiled again.
AWAY = 20.0
# The time in seconds after a kill in which the coordinator may still send work to the killed process.
NOTICED = 1.0


@dataclasses.dataclass
class Kill:
    at: float
    worker: str  # "" for the coordinator
    what: str  # "coordinator", "daemon" or "executor"


@dataclasses.dataclass
class Argument:
    """The array that was passed to a call."""
    array: int
    born: float  # time when a client began to make it


@dataclasses.dataclass
class Ended:
    """An answer about the end of an operation."""
    operation: int
    began: float  # time when the operation was asked for
    at: float
    workers: tuple
    state: str
    error: str = ""
    argument: Argument = None


@dataclasses.dataclass
class Refused:
    """A call that was refused and made nothing."""
    what: str
    began: float
    at: float
    workers: tuple
    error: str
    argument: Argument = None


@dataclasses.dataclass
class Read:
    """The result of reading an array: either `error`, or `right` if the values were those
    computed."""
    array: int
    born: float  # time when a client began to make it
    at: float
    workers: tuple
    right: bool = True
    error: str = ""
    lost: bool = False  # whether this array itself is lost
    argument: Argument = None  # the array that it is made from


@dataclasses.dataclass
class Found:
    """The operations that a session has at its end, and those that were acknowledged in it."""
    session: int
    known: frozenset
    acknowledged: frozenset


@dataclasses.dataclass
class Measured:
    what: str
    bound: float
    seconds: float


def _since(began, e):
    """Returns the time since when a kill excuses the failure of something that began at `began`."""
    if e.argument and re.search(rf"\barray {e.argument.array} is lost\b", e.error):
        return min(began - AWAY, e.argument.born - NOTICED)
    return began - AWAY


def _killed(kills, workers, since, until):
    return any(k.worker in workers and since <= k.at <= until for k in kills)


def violations(events):
    """Returns a text for each broken promise, in the order of the events."""
    kills = [e for e in events if isinstance(e, Kill)]
    ends = {}
    out = []
    for e in events:
        if isinstance(e, Ended):
            first = ends.setdefault(e.operation, e)
            if (first.state, first.error) != (e.state, e.error):
                out.append(f"operation {e.operation} ended as {first.state} {first.error!r}, and "
                           f"later as {e.state} {e.error!r}")
            elif e is first and e.state != "DONE" and not _killed(kills, e.workers,
                                                                  _since(e.began, e), e.at):
                out.append(f"operation {e.operation} on {e.workers}, none of which was killed, is "
                           f"{e.state}: {e.error}")
        elif isinstance(e, Refused):
            if not _killed(kills, e.workers, _since(e.began, e), e.at):
                out.append(f"{e.what} on {e.workers}, none of which was killed: {e.error}")
        elif isinstance(e, Read):
            out.extend(_read(e, kills))
        elif isinstance(e, Found):
            strange = sorted(e.known - e.acknowledged)
            if strange:
                out.append(f"session {e.session} has operations that nobody acknowledged: {strange}")
        elif isinstance(e, Measured) and e.seconds > e.bound:
            out.append(f"{e.what}: {e.seconds:.2f} s, promised {e.bound:g} s")
    return out


def _read(e, kills):
    if not e.error:
        return [] if e.right else [f"array {e.array} on {e.workers} is not what was computed"]
    since = e.born - NOTICED if e.lost else _since(e.born, e)
    if not _killed(kills, e.workers, since, e.at):
        return [f"array {e.array} on {e.workers}, none of which was killed since it was begun: "
                f"{e.error}"]
    if e.lost and not any(w in e.error for w in e.workers):
        return [f"array {e.array} on {e.workers} is lost, and its owner is not named: {e.error}"]
    return []


def alike(texts):
    """Returns at most forty of the texts. A text stands for all that differ from it only in
    numbers, and says how many there are."""
    kinds = collections.defaultdict(list)
    for text in texts:
        kinds[re.sub(r"\d+", "#", text)[:80]].append(text)
    return [kind[0][:500] + (f" (and {len(kind) - 1} like it)" if kind[1:] else "")
            for kind in list(kinds.values())[:40]]
