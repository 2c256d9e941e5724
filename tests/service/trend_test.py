"""Tests that trend.py tells a leak from noise, steps and saw teeth."""
import unittest

import numpy as np
from trend import HOUR, Floor, trend

MIB = 2.0**20
MEMORY = Floor(per_hour=MIB, share_per_hour=0.01, in_all=MIB / 2)
COUNT = Floor(per_hour=1, share_per_hour=0.01, in_all=1.5)
# Six minutes with a sample every two seconds. A run of ten minutes leaves this much after its
# warm-up.
TIMES = np.arange(0, 360, 2.0)
SEEDS = 200


def noise(seed, alike=0.0, size=MIB / 2):
    """Returns normal noise with standard deviation `size`. The share `alike` of each sample comes
    from the previous sample."""
    random = np.random.default_rng(seed)
    fresh = random.normal(0, size * np.sqrt(1 - alike**2), len(TIMES))
    out, last = [], random.normal(0, size)
    for step in fresh:
        last = alike * last + step
        out.append(last)
    return np.array(out)


def per_minute(amount):
    return amount / 60 * TIMES


class TrendTest(unittest.TestCase):
    def verdicts(self, series, floor=MEMORY, seeds=SEEDS):
        found = [trend(TIMES, series(seed), floor).verdict for seed in range(seeds)]
        return {v: found.count(v) for v in set(found)}

    def test_flat_noise_passes(self):
        for size in (MIB / 100, MIB / 2, 10 * MIB):
            with self.subTest(size=size):
                found = self.verdicts(lambda seed: 50 * MIB + noise(seed, size=size))
                self.assertNotIn("grows", found)

    def test_noise_whose_samples_are_alike_passes(self):
        # With 0.9, a fifth of a deviation is left after 30 s, which is the length of a block. With
        # 0.97, two thirds are left after 30 s, and four tenths after a minute.
        for alike, wrong in ((0.9, 0), (0.97, SEEDS // 50)):
            with self.subTest(alike=alike):
                found = self.verdicts(lambda seed: 50 * MIB + noise(seed, alike, 2 * MIB))
                self.assertLessEqual(found.get("grows", 0), wrong, found)

    def test_a_leak_under_noise_is_found(self):
        for alike, size in ((0.0, MIB / 2), (0.9, MIB / 4)):
            with self.subTest(alike=alike):
                found = self.verdicts(
                    lambda seed: 50 * MIB + per_minute(MIB) + noise(seed, alike, size))
                self.assertEqual(found, {"grows": SEEDS})

    def test_the_slope_is_that_of_the_leak(self):
        for seed in range(20):
            found = trend(TIMES, 50 * MIB + per_minute(MIB) + noise(seed), MEMORY)
            self.assertLess(abs(found.slope - 60 * MIB), found.error)

    def test_a_leak_in_small_steps_is_found(self):
        """An allocator takes memory in pieces; here it takes 1 MiB each minute."""
        found = self.verdicts(
            lambda seed: 50 * MIB + MIB * np.floor(TIMES / 60) + noise(seed, size=MIB / 10))
        self.assertEqual(found, {"grows": SEEDS})

    def test_one_step_passes_wherever_it_is(self):
        for at in np.linspace(0, 360, 25):
            with self.subTest(at=at):
                found = self.verdicts(lambda seed: 50 * MIB + 20 * MIB * (TIMES >= at) +
                                      noise(seed, size=MIB / 10), seeds=10)
                self.assertNotIn("grows", found)

    def test_a_leak_with_a_step_is_found(self):
        found = self.verdicts(lambda seed: 50 * MIB + 20 * MIB * (TIMES >= 100) + per_minute(MIB) +
                              noise(seed))
        self.assertEqual(found, {"grows": SEEDS})

    def test_saw_teeth_pass_and_a_leak_below_them_is_found(self):
        for period in (5, 30, 47, 90):
            with self.subTest(period=period):
                teeth = 5 * MIB * (TIMES % period) / period
                found = self.verdicts(lambda seed: 50 * MIB + teeth + noise(seed, size=MIB / 10))
                self.assertNotIn("grows", found)
                if period < 60:
                    found = self.verdicts(lambda seed: 50 * MIB + teeth + per_minute(2 * MIB) +
                                          noise(seed, size=MIB / 10))
                    self.assertEqual(found, {"grows": SEEDS})

    def test_single_samples_that_are_far_off_do_not_count(self):
        def spikes(seed):
            out = 50 * MIB + noise(seed, size=MIB / 10)
            out[-10:-1:3] += 500 * MIB
            return out

        self.assertNotIn("grows", self.verdicts(spikes))

    def test_what_falls_is_no_leak(self):
        found = self.verdicts(lambda seed: 50 * MIB - per_minute(MIB) + noise(seed))
        self.assertEqual(found, {"falls": SEEDS})

    def test_descriptors_are_counted(self):
        random = np.random.default_rng(1)
        jitter = random.integers(0, 3, len(TIMES))
        for series, verdict in ((40 + jitter, "flat"), (np.full(len(TIMES), 40), "flat"),
                                (40 + jitter + (TIMES > 180), "flat"),
                                (40 + jitter + np.floor(TIMES / 60), "grows"),
                                (40 + np.floor(TIMES / 30), "grows")):
            self.assertEqual(trend(TIMES, series, COUNT).verdict, verdict, series)

    def test_slopes_below_the_floor_are_flat(self):
        grown = trend(TIMES, 50 * MIB + per_minute(MIB / 20), MEMORY)
        self.assertEqual(grown.verdict, "flat")
        self.assertAlmostEqual(grown.slope, 3 * MIB, delta=MIB / 100)
        # because the measured time is so short
        self.assertAlmostEqual(grown.floor, 5 * MIB, delta=MIB / 10)
        day = np.linspace(0, 24 * HOUR, 2000)
        slow = trend(day, 50 * MIB + 2 * MIB * day / HOUR, MEMORY)
        self.assertEqual((slow.verdict, slow.floor), ("grows", MIB))

    def test_too_few_samples_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "23 samples"):
            trend(TIMES[:23], TIMES[:23], MEMORY)


if __name__ == "__main__":
    unittest.main()
