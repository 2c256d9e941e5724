"""Decides whether a figure of a process grows without end. soak.py calls it for each series of
samples.

A line is fitted to the series. The series grows if the slope of the line is greater than both its
error and a floor. The method is chosen for the difficulties of memory:

- Consecutive samples are similar, so the usual error of a line would be far too small. The time is
  therefore cut into BLOCKS blocks, and each block counts once, with the mean of its middle half. If
  neighbouring blocks are still similar (if the residuals of the line correlate), the error
  is increased.
- Memory goes up and down like saw teeth, and single samples are far off. The middle of a block
  ignores a short tooth. The slope is that of Theil and Sen, the median of the slopes between any
  two blocks, so a few blocks cannot change it.
- Memory that is taken once and kept is a step and not a leak. So the verdict depends on a second
  line, which is fitted after the greatest rise over two blocks was reduced to the usual one. This
  hardly changes a leak, but removes a step.
- A run has some fifty series, and chance must fail fewer than one of a thousand. The error is
  SIGMAS standard errors, which independent blocks exceed once in 4,000 times (Student's t, ten
  degrees of freedom, one side). A series that wanders, with a correlation time of a minute or more,
  is flagged in about one of a hundred short runs. A longer run gives certainty.
- A slope can be certain and still not matter, for example if an allocator takes another page or a
  file grows by a row. The floor is a slope that nobody would act on, given the measured time.

A falling series is reported as such and is no fault: memory that is given back is not lost.
"""
import dataclasses

import numpy as np

BLOCKS = 12
SIGMAS = 5.0
# Twelve blocks cannot show a higher correlation. The error is then three times as great.
CORRELATION_MAX = 0.8
HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Floor:
    """The slopes that count as zero: every slope below the greatest of these."""
    per_hour: float
    share_per_hour: float  # share of the median of the series
    in_all: float  # growth over the whole measured time, which matters in a short run


@dataclasses.dataclass(frozen=True)
class Trend:
    level: float  # median of the series
    slope: float  # slope of the line, per hour
    error: float  # error of the slope, per hour
    floor: float  # least slope that counts, per hour
    verdict: str  # "flat", "grows", "falls" or "steps" (it grew, but all at once)


def _blocks(times, values):
    """Returns the mean time and the middle value of each block."""
    edges = np.linspace(times[0], times[-1], BLOCKS + 1)
    number = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, BLOCKS - 1)
    used = [b for b in range(BLOCKS) if (number == b).any()]
    return (np.array([times[number == b].mean() for b in used]),
            np.array([_middle(values[number == b]) for b in used]))


def _middle(values):
    """Returns the mean of the middle half. Spikes do not change it, and for whole numbers it is
    finer than a median."""
    quarter = len(values) // 4
    return np.sort(values)[quarter:len(values) - quarter].mean()


def _line(times, values):
    """Returns the slope of the line and its error."""
    i, j = np.triu_indices(len(times), 1)
    slope = np.median((values[j] - values[i]) / (times[j] - times[i]))
    left = values - slope * times
    left = left - np.median(left)
    squares = float((left**2).sum())
    if squares == 0:
        return float(slope), 0.0
    spread = float(((times - times.mean())**2).sum())
    alike = np.clip((left[1:] * left[:-1]).sum() / squares, 0, CORRELATION_MAX)
    error = np.sqrt(squares / (len(times) - 2) / spread * (1 + alike) / (1 - alike))
    return float(slope), float(SIGMAS * error)


def _without_its_step(values):
    """Returns the values with the greatest rise over two blocks reduced to the usual rise. Two
    blocks are needed because a step inside a block shows as two rises, one before and one after
    that block."""
    rises = np.diff(values)
    greatest = int(np.argmax(rises[1:] + rises[:-1]))
    rises[greatest:greatest + 2] = np.median(rises)
    return values[0] + np.concatenate([[0], np.cumsum(rises)])


def trend(times, values, floor):
    """Returns the trend of a series. Raises ValueError if the series is too short. Times are in
    seconds."""
    times, values = np.asarray(times, float), np.asarray(values, float)
    if len(times) < 2 * BLOCKS:
        raise ValueError(f"{len(times)} samples; a trend wants {2 * BLOCKS}")
    at, middles = _blocks(times, values)
    if len(at) < BLOCKS:
        raise ValueError(f"{len(at)} of {BLOCKS} blocks of time have samples")
    hours = (times[-1] - times[0]) / HOUR
    level = float(np.median(values))
    least = max(floor.per_hour, floor.share_per_hour * abs(level), floor.in_all / hours)
    slope, error = (HOUR * x for x in _line(at, middles))
    rest, rest_error = (HOUR * x for x in _line(at, _without_its_step(middles)))
    if rest > max(rest_error, least):
        verdict = "grows"
    elif abs(slope) > max(error, least):
        verdict = "steps" if slope > 0 else "falls"
    else:
        verdict = "flat"
    return Trend(level, slope, error, least, verdict)
