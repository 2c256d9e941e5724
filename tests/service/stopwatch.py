"""A stopwatch for tests of promised times, like base/testing/stopwatch.h. It can leave out the time
in which the machine was overloaded."""
import re
import time

# how many seconds unhindered() leaves out if the kernel does not report how busy the machine is
UNKNOWN_STALL = 15


def stalled():
    """Returns for how many seconds this machine has been overloaded since it started, or None if
    the kernel does not report it."""
    total = 0
    for resource in ("cpu", "io"):
        try:
            with open(f"/proc/pressure/{resource}", encoding="utf-8") as file:
                found = re.search(r"^some .* total=(\d+)$", file.read(), re.M)
        except OSError:
            found = None
        if not found:
            return None
        total += int(found.group(1)) / 1e6
    return total


class Stopwatch:
    """Measures the time since it was made."""

    def __init__(self):
        self._start, self._stalled = time.monotonic(), stalled()

    def elapsed(self):
        """Returns the seconds since the stopwatch was made."""
        return time.monotonic() - self._start

    def unhindered(self):
        """Returns elapsed() without the time in which some process waited for a processor or a
        disk."""
        now = stalled()
        stall = UNKNOWN_STALL if now is None or self._stalled is None else now - self._stalled
        return max(0.0, self.elapsed() - stall)
