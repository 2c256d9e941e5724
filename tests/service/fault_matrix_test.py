"""Checks that the table in docs/faults.md agrees with the rows of fault_matrix.py."""
import unittest

import daemons
from fault_matrix import ROWS, cells_of_page, page

PAGE = (daemons.ROOT / "docs/faults.md").read_text()


class FaultMatrixTest(unittest.TestCase):
    def test_the_page_has_the_rows(self):
        self.assertEqual(PAGE, page(PAGE, {}), "fault_matrix.py --only 0 --page docs/faults.md")

    def test_every_row_was_measured(self):
        self.assertEqual(list(cells_of_page(PAGE)), list(range(1, 38)))
        for number, cells in cells_of_page(PAGE).items():
            measured, passed = cells[-2:]
            self.assertRegex(f"{measured} | {passed}", r"^(left out: .+ \| |.+ \| (\d+) of \2)$",
                             f"row {number}")

    def test_a_row_that_is_measured_leaves_the_others(self):
        row = ROWS[3]
        new = page(PAGE, {row.number: ("1.00 s", "3 of 3")})
        self.assertEqual(cells_of_page(new),
                         cells_of_page(PAGE) | {row.number: (row.fault, row.injector, row.bound,
                                                             "1.00 s", "3 of 3")})


if __name__ == "__main__":
    unittest.main()
