"""The history of a run of kill_loop.py, and what is wrong with it.

Events are what a client did and saw, and what the killer did; times are seconds of one clock. The
rules are those of a service that loses nothing it acknowledged:

- An operation ends once: all that is heard of its end is the same, to the last question.
- An operation fails, and a call is refused, only if one of its workers was killed, shortly before or
  meanwhile; or at any time since its argument was begun, if it says that this is lost.
- An array holds what was computed: who reads it gets that, or hears why not.
- An array is lost only if one of its workers was killed after it was begun, or so shortly before
  that the coordinator had not noticed, and says which.
- Nothing happens that nobody asked for: what runs in a session is what was acknowledged in it.
- The bounds that were measured are kept.
"""
import collections
import dataclasses
import re

# How long after a kill its worker may still be away: it is noticed, the processes start again and
# attach, programs are compiled again.
AWAY = 20.0
# How long after a kill the coordinator may still send work to what was killed.
NOTICED = 1.0


@dataclasses.dataclass
class Kill:
    at: float
    worker: str  # "": the coordinator
    what: str  # "coordinator", "daemon" or "executor"


@dataclasses.dataclass
class Argument:
    """The array that a call is given."""
    array: int
    born: float  # when it was begun


@dataclasses.dataclass
class Ended:
    """What was heard of an operation's end."""
    operation: int
    began: float  # when it was asked for
    at: float
    workers: tuple
    state: str
    error: str = ""
    argument: Argument = None


@dataclasses.dataclass
class Refused:
    """A call that made nothing."""
    what: str
    began: float
    at: float
    workers: tuple
    error: str
    argument: Argument = None


@dataclasses.dataclass
class Read:
    """An array that was asked for: `error`, or whether it was what was computed."""
    array: int
    born: float  # when it was begun
    at: float
    workers: tuple
    right: bool = True
    error: str = ""
    lost: bool = False  # itself
    argument: Argument = None  # what it is made of


@dataclasses.dataclass
class Found:
    """The operations of a session that are known at its end, and those acknowledged in it."""
    session: int
    known: frozenset
    acknowledged: frozenset


@dataclasses.dataclass
class Measured:
    what: str
    bound: float
    seconds: float


def _since(began, e):
    """Since when a kill excuses that what began then fails."""
    if e.argument and re.search(rf"\barray {e.argument.array} is lost\b", e.error):
        return min(began - AWAY, e.argument.born - NOTICED)
    return began - AWAY


def _killed(kills, workers, since, until):
    return any(k.worker in workers and since <= k.at <= until for k in kills)


def violations(events):
    """A text for each broken promise, in the order of the events."""
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
    """At most forty of the texts, each followed by how many are like it but for numbers."""
    kinds = collections.defaultdict(list)
    for text in texts:
        kinds[re.sub(r"\d+", "#", text)[:80]].append(text)
    return [kind[0][:500] + (f" (and {len(kind) - 1} like it)" if kind[1:] else "")
            for kind in list(kinds.values())[:40]]
