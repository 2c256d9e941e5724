"""Whether a figure of a process grows without end: what soak.py asks of its samples.

A line is fitted to each series, and the series grows if the slope of the line is greater than its error
and greater than a floor. What makes memory hard to judge decides how:

- Samples that follow each other are alike, so that the usual error of a line is far too small. The
  time is cut into BLOCKS blocks, and each counts once, with the mean of its middle half. How alike
  neighbouring blocks still are (the correlation of what the line leaves over) makes the error
  greater.
- Memory goes up and down in saw teeth, and single samples are far off. The middle of a block does
  not see a short tooth, and the slope is that of Theil and Sen: the median of the slopes between any
  two blocks, which a few blocks cannot move.
- Memory that is taken once and kept is a step, and no leak. What counts is the line that is left when
  the greatest rise over two blocks has been made as small as the usual one. A leak hardly changes by
  that; a step vanishes.
- With some fifty series in a run, chance must not fail one in a thousand of them: the error is SIGMAS
  standard errors, which independent blocks exceed once in 4,000 times (Student's t, ten degrees of
  freedom, one side). A series that wanders, with memory of a minute or more, is flagged in about one
  of a hundred short runs. A longer run tells.
- A slope can be certain and not matter: an allocator that takes another page, a file that grows by a
  row. A floor is a slope that nobody would act on, given the time that was measured.

A series that falls is told as such, and is no fault: memory that is given back is not lost.
"""
import dataclasses

import numpy as np

BLOCKS = 12
SIGMAS = 5.0
CORRELATION_MAX = 0.8  # Twelve blocks cannot tell more; the error is then three times as great.
HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Floor:
    """A slope below the greatest of these counts as zero."""
    per_hour: float
    share_per_hour: float  # of the median of the series
    in_all: float  # growth over the time that was measured, which is short in a short run


@dataclasses.dataclass(frozen=True)
class Trend:
    level: float  # the median
    slope: float  # per hour
    error: float  # of the slope
    floor: float  # per hour
    verdict: str  # "flat", "grows", "falls" or "steps": what grew did so at once


def _blocks(times, values):
    """The mean time of each block, and the middle of its values."""
    edges = np.linspace(times[0], times[-1], BLOCKS + 1)
    number = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, BLOCKS - 1)
    used = [b for b in range(BLOCKS) if (number == b).any()]
    return (np.array([times[number == b].mean() for b in used]),
            np.array([_middle(values[number == b]) for b in used]))


def _middle(values):
    """The mean of the middle half: no spike moves it, and of whole numbers it is finer than a
    median."""
    quarter = len(values) // 4
    return np.sort(values)[quarter:len(values) - quarter].mean()


def _line(times, values):
    """The slope, and its error."""
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
    """The greatest rise over two blocks, made as small as the usual one. A step that lies within a
    block shows as two rises, before and behind it."""
    rises = np.diff(values)
    greatest = int(np.argmax(rises[1:] + rises[:-1]))
    rises[greatest:greatest + 2] = np.median(rises)
    return values[0] + np.concatenate([[0], np.cumsum(rises)])


def trend(times, values, floor):
    """The trend of a series; ValueError if it is too short to have one. Times are in seconds."""
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
