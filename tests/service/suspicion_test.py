"""Tests that suspicion.py counts rounds, reads logs and compares losses as it says."""
import unittest

import daemons
import suspicion
from suspicion import Results, cells_of_page, evidence, lost, outcome_of, page
from suspicion_cases import CASES, rounds_of
from training import compare

SHORT = next(c for c in CASES if c.seconds == 12)
LONG = next(c for c in CASES if c.seconds == 50)
AWAY = 'W 2026-01-01 scheduler.cc:1 worker away worker=w1 host=h lost_after=1m why="it was silent for 1.5s"'
PAGE = daemons.ROOT / "docs/faults.md"


def outcome(failed=False, seconds=1.0, skipped=""):
    rows = [] if skipped else [["the arrays are read again", "5 s", seconds, "s", int(not failed)]]
    return {"skipped": skipped, "failed": failed, "rows": rows}


class SuspicionTest(unittest.TestCase):
    def test_long_cases_have_fewer_rounds(self):
        self.assertEqual([rounds_of(SHORT, n) for n in (None, 1, 20)], [5, 1, 20])
        self.assertEqual([rounds_of(LONG, n) for n in (None, 1, 2, 20)], [1, 1, 1, 5])

    def test_numbers_are_those_of_the_list(self):
        self.assertEqual([c.number for c in CASES], [str(n + 1) for n in range(len(CASES))])
        self.assertEqual(len({c.name for c in CASES}), len(CASES))

    def test_evidence_names_the_suspect_and_a_reason(self):
        self.assertEqual(evidence(AWAY, "w1"), ["it was silent for 1.5s"])
        self.assertEqual(evidence(AWAY, "w1/0"), ["it was silent for 1.5s"])
        own = 'executor away executor=w1/0 why="it has not answered its worker for 1.5s" host=h'
        self.assertEqual(evidence(own, "w1/0"), ["it has not answered its worker for 1.5s"])
        self.assertEqual(evidence("executor away why=silent executor=w1/0", "w1"), ["silent"])
        for line, suspect in ((AWAY, "w0"), (AWAY, "w11"), (AWAY.replace("w1", "w11"), "w1"),
                              (AWAY.partition(" why")[0], "w1"), (AWAY.replace("away", "lost"), "w1"),
                              (AWAY.replace('"it was silent for 1.5s"', '""'), "w1"), ("", "w1")):
            self.assertEqual(evidence(line, suspect), [], (line, suspect))

    def test_losses_are_found(self):
        gone = AWAY.replace("worker away", "worker lost")
        self.assertEqual(lost("\n".join([AWAY, gone, "executor lost executor=w1/0"])),
                         [gone, "executor lost executor=w1/0"])
        self.assertEqual(lost(AWAY), [])

    def test_losses_of_trainings_are_compared_to_the_last_bit(self):
        self.assertEqual(compare(["0x1p-1", "0x1p-2"], ["0x1p-1", "0x1p-2"]), "")
        self.assertIn("step 1 is", compare(["0x1p-1", "0x1.000002p-2"], ["0x1p-1", "0x1p-2"]))
        self.assertIn("1 steps, and 2", compare(["0x1p-1"], ["0x1p-1", "0x1p-2"]))

    def test_the_worst_round_is_shown_and_every_round_counts(self):
        results = Results()
        for each in (outcome(seconds=0.5), outcome(failed=True, seconds=7.0), outcome(seconds=0.25)):
            results.add(SHORT, each)
        self.assertTrue(results.is_broken({SHORT: 3}))
        self.assertEqual(results.cells(SHORT, {SHORT: 3}), ("7.00 s", "2 of 3"))
        [row] = results.rows.values()
        self.assertEqual(row.passed, 2)

    def test_rounds_that_pass_break_nothing(self):
        results = Results()
        results.add(SHORT, outcome())
        results.add(LONG, outcome(skipped="no engine"))
        self.assertFalse(results.is_broken({SHORT: 1, LONG: 1}))
        self.assertTrue(results.is_broken({SHORT: 2, LONG: 1}))
        self.assertEqual(results.cells(LONG, {LONG: 1}), ("left out: no engine", ""))

    def test_an_event_that_never_came_is_the_worst(self):
        said, found = outcome_of('lines\n' + suspicion.MARK + '{"skipped": "", "failed": true, "rows": '
                                 '[["the arrays are read again", "5 s", Infinity, "s", 0]]}\n')
        self.assertEqual(said, "lines\n")
        results = Results()
        results.add(SHORT, found)
        self.assertEqual(results.cells(SHORT, {SHORT: 1}), ("inf s", "0 of 1"))

    def test_a_round_that_ended_early_has_failed(self):
        said, found = outcome_of("Traceback\n")
        self.assertEqual((said, found["failed"]), ("Traceback\n", True))
        results = Results()
        results.add(SHORT, found)
        self.assertTrue(results.is_broken({SHORT: 1}))
        self.assertEqual(results.cells(SHORT, {SHORT: 1}), ("", "0 of 1"))

    def test_a_case_that_is_measured_leaves_the_others(self):
        old = page(PAGE.read_text(), {SHORT.name: ("1.00 s", "5 of 5")})
        self.assertEqual(list(cells_of_page(old)), [c.name for c in CASES])
        new = page(old, {LONG.name: ("2.00 s", "1 of 1")})
        self.assertEqual(cells_of_page(new),
                         cells_of_page(old) | {LONG.name: ("2.00 s", "1 of 1")})
        self.assertTrue(new.startswith(PAGE.read_text().partition(f"\n{suspicion.HEADING}")[0]))

    def test_the_page_has_the_cases(self):
        if suspicion.HEADING in PAGE.read_text():
            self.assertEqual(PAGE.read_text(), page(PAGE.read_text(), {}),
                             "suspicion.py --only 12 --rounds 1 --page docs/faults.md")


if __name__ == "__main__":
    unittest.main()
