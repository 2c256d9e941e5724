"""Tests that soak.py takes the right samples and fails if a series of samples grows."""
import os
import pathlib
import subprocess
import tempfile
import threading
import unittest

import load
import numpy as np
import soak
from kill_history import Ended, Read, Refused

MIB = soak.MIB


class FiguresTest(unittest.TestCase):
    def test_they_are_those_of_the_process(self):
        before = soak.figures(os.getpid())
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        with open("/dev/null"):
            memory = bytearray(os.urandom(1)) * int(32 * MIB)
            thread.start()
            after = soak.figures(os.getpid())
            end.set()
            thread.join()
        self.assertEqual(after["descriptors"], before["descriptors"] + 1)
        self.assertEqual(after["threads"], before["threads"] + 1)
        self.assertAlmostEqual(after["memory"] - before["memory"], len(memory), delta=4 * MIB)

    def test_a_process_that_has_ended_has_none(self):
        with subprocess.Popen(["true"]) as process:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            self.assertIsNone(soak.figures(process.pid), "a zombie")
        self.assertIsNone(soak.figures(process.pid))

    def test_children_of_children_are_below(self):
        with subprocess.Popen(["sh", "-c", "cat; true"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdin.write(b"it runs\n")
            process.stdin.flush()
            process.stdout.readline()
            below = soak.descendants(os.getpid())
            self.assertIn(process.pid, below)
            self.assertEqual(len(soak.descendants(process.pid)), 1)
            self.assertLess(set(soak.descendants(process.pid)), set(below))
            process.stdin.close()


class TrendsTest(unittest.TestCase):
    def rows(self, *lines):
        """Returns the trends of series that are given as (name, pid, metric, function of time)."""
        random = np.random.default_rng(1)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "samples.txt"
            with open(path, "w") as file:
                for at in np.arange(0, 600, 2.0):
                    for name, pid, metric, value in lines:
                        if value(at) is not None:
                            noisy = value(at) + (random.normal(0, MIB / 5) if metric == "memory" else 0)
                            print(at, name, pid, metric, noisy, sep="\t", file=file)
            return soak.trends(soak.read_samples(path), 240, 600)

    def test_a_process_that_leaks_is_told_from_those_that_do_not(self):
        rows = self.rows(
            ("w0", 1, "memory", lambda t: 50 * MIB),
            ("w1", 2, "memory", lambda t: 50 * MIB + MIB * t / 60),
            ("w1", 2, "descriptors", lambda t: 40 + t // 60),
            # grows during the warm-up only
            ("coordinator", 3, "memory", lambda t: MIB * min(90, t)),
            ("state.db", "", "disk", lambda t: MIB * min(4, 1 + t // 60)))
        self.assertEqual({(name, pid, metric) for name, pid, metric, t in rows if t.verdict == "grows"},
                         {("w1", "2", "memory"), ("w1", "2", "descriptors")})
        self.assertEqual(len(rows), 5)
        text = soak.table(rows)
        self.assertEqual(text.count("grows"), 2, text)
        self.assertEqual(len(text.splitlines()), 6)

    def test_processes_that_come_and_go_have_no_trend_of_their_own(self):
        rows = self.rows(
            ("w0/helper", 1, "memory", lambda t: 10 * MIB if t < 300 else None),
            ("w0/helper", 2, "memory", lambda t: 10 * MIB if t > 300 else None),
            ("w0/helper", 3, "memory", lambda t: 10 * MIB if t > 100 else None))
        self.assertEqual([pid for _, pid, _, _ in rows], ["3"])

    def test_series_that_are_too_short_have_none(self):
        rows = self.rows(("w0", 1, "memory", lambda t: 10 * MIB if t > 570 or 240 <= t < 260 else None))
        self.assertEqual(rows, [])
        self.assertEqual(soak.trends({("w0", "1", "memory"): ([1.0], [1.0])}, float("inf"), 10), [])


class WarmUpTest(unittest.TestCase):
    def end(self, runs_per_s, seconds):
        times = [float(t) for t in range(0, seconds, 2)]
        series = {("load", "", "runs"): (times, [runs_per_s * t for t in times])}
        return soak.end_of_warm_up(series, seconds)

    def test_it_takes_time_and_work(self):
        self.assertEqual(self.end(runs_per_s=1000, seconds=600), 240)
        self.assertEqual(self.end(runs_per_s=1000, seconds=8 * 3600), 1800)
        self.assertEqual(self.end(runs_per_s=25, seconds=600), 400)
        self.assertEqual(self.end(runs_per_s=1, seconds=600), float("inf"))


class AcknowledgedTest(unittest.TestCase):
    def test_the_last_runs_are_remembered(self):
        acknowledged = load.Acknowledged()
        self.assertEqual(acknowledged.ids(), frozenset())
        acknowledged.add(7)
        self.assertEqual(acknowledged.ids(), {7})
        last = 100 + load.REMEMBERED
        for operation in range(100, last + 1):
            acknowledged.add(operation)
        self.assertEqual(acknowledged.ids(), frozenset(range(101, last + 1)))


class JudgeTest(unittest.TestCase):
    def test_nothing_excuses_a_call_that_fails(self):
        judge = soak.Judge()
        judge.add(Ended(1, 1, 2, ("w0",), "DONE"))
        judge.add(Read(1, 1, 2, ("w0",)))
        self.assertEqual(judge.broken, [])
        judge.add(Refused("put", 1, 2, ("w0",), "why"))
        judge.add(Ended(2, 1, 2, ("w0",), "FAILED", "why"))
        judge.add(Read(2, 1, 2, ("w0",), right=False))
        self.assertEqual(len(judge.broken), 3)
        for _ in range(2 * soak.BROKEN_MAX):
            judge.add(Refused("put", 1, 2, ("w0",), "why"))
        self.assertEqual(len(judge.broken), soak.BROKEN_MAX)


if __name__ == "__main__":
    unittest.main()
