"""Tests that kill_history.py finds each kind of broken promise, and nothing else."""
import unittest

from kill_history import (Argument, Ended, Found, Kill, Measured, Read, Refused, alike,
                          violations)

KILL = Kill(10, "w0", "executor")
LOST = "array 3 is lost with its shards on worker w0"


class KillHistoryTest(unittest.TestCase):
    def check(self, *events, broken=None):
        found = violations([KILL, *events])
        if broken is None:
            self.assertEqual(found, [])
        else:
            self.assertEqual(len(found), 1, found)
            self.assertIn(broken, found[0])

    def test_an_operation_ends_once(self):
        self.check(Ended(1, 1, 2, ("w1",), "DONE"), Ended(1, 1, 50, ("w1",), "DONE"))
        self.check(Ended(1, 1, 2, ("w0",), "DONE"), Ended(1, 1, 50, ("w0",), "FAILED", "why"),
                   broken="and later as FAILED")

    def test_an_operation_fails_for_a_kill_alone(self):
        self.check(Ended(1, 9, 11, ("w0", "w1"), "FAILED", "why"))
        self.check(Ended(1, 9, 11, ("w1",), "FAILED", "why"), broken="none of which was killed")
        self.check(Ended(1, 1, 9, ("w0",), "FAILED", "why"), broken="none of which was killed")
        self.check(Ended(1, 50, 51, ("w0",), "FAILED", "why"), broken="none of which was killed")
        self.check(Refused("put", 9, 11, ("w0",), "why"))
        self.check(Refused("put", 1, 9, ("w0",), "why"), broken="put on")

    def test_a_lost_argument_excuses_what_is_given_it(self):
        old, new = Argument(3, 9), Argument(3, 12)
        for event in (lambda a, e: Ended(1, 50, 51, ("w0",), "FAILED", e, a),
                      lambda a, e: Refused("execute", 50, 51, ("w0",), e, a),
                      lambda a, e: Read(4, 50, 51, ("w0", "w1"), error=e, argument=a)):
            self.check(event(old, LOST))
            self.check(event(new, LOST), broken="none of which was killed")
            self.check(event(old, "why"), broken="none of which was killed")
            self.check(event(old, LOST.replace("3", "33")), broken="none of which was killed")

    def test_the_death_of_the_coordinator_excuses_nothing(self):
        for event in (Ended(1, 9, 11, ("w1",), "FAILED", "why"), Refused("put", 9, 11, ("w1",), "why"),
                      Read(3, 9, 11, ("w1",), error="why")):
            self.assertEqual(len(violations([Kill(10, "", "coordinator"), event])), 1)

    def test_an_array_holds_what_was_computed(self):
        self.check(Read(3, 1, 2, ("w1",)))
        self.check(Read(3, 1, 2, ("w0",), right=False), broken="not what was computed")

    def test_an_array_is_lost_with_its_owner(self):
        self.check(Read(3, 1, 11, ("w0", "w1"), error=LOST, lost=True))
        self.check(Read(3, 1, 11, ("w1",), error=LOST, lost=True), broken="none of which was killed")
        self.check(Read(3, 10.5, 12, ("w0",), error=LOST, lost=True))
        self.check(Read(3, 11.5, 12, ("w0",), error=LOST, lost=True),
                   broken="none of which was killed")
        self.check(Read(3, 1, 11, ("w0",), error="it is lost", lost=True), broken="not named")

    def test_nothing_happens_that_nobody_asked_for(self):
        self.check(Found(7, frozenset({1}), frozenset({1, 2})))
        self.check(Found(7, frozenset({1, 3}), frozenset({1, 2})), broken="[3]")

    def test_bounds_are_kept(self):
        self.check(Measured("serves again", 3, 2.9))
        self.check(Measured("serves again", 3, 3.1), broken="promised 3 s")

    def test_texts_that_differ_in_numbers_are_told_once(self):
        self.assertEqual(alike(["array 1 is lost", "it does not end", "array 22 is lost"]),
                         ["array 1 is lost (and 1 like it)", "it does not end"])
        self.assertEqual(len(alike([chr(ord("a") + n % 26) * (1 + n // 26) for n in range(100)])), 40)


if __name__ == "__main__":
    unittest.main()
