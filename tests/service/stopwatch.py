"""A stopwatch for tests of promises, as base/testing/stopwatch.h: it can leave out the time in which the machine was
overloaded."""
import re
import time

# The seconds that unhindered() leaves out where the kernel does not say how busy the machine is.
UNKNOWN_STALL = 15


def stalled():
    """The seconds for which this machine was overloaded since it started; None if the kernel does not say."""
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
    """Started when it is made."""

    def __init__(self):
        self._start, self._stalled = time.monotonic(), stalled()

    def elapsed(self):
        """Seconds since the stopwatch was made."""
        return time.monotonic() - self._start

    def unhindered(self):
        """elapsed() without the time in which some process of this machine waited for a processor or a disk."""
        now = stalled()
        stall = UNKNOWN_STALL if now is None or self._stalled is None else now - self._stalled
        return max(0.0, self.elapsed() - stall)
