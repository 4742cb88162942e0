#!/usr/bin/env python3
"""claims_test.py - the statistics and the verdicts of the claims, on numbers worked by hand. And
the table itself: every arm that a check names is there, and every arm is named."""
import unittest

from checks import FAILS, HOLDS, OPEN, Equal, Lower, Trend, Within
from claims import DERIVED, arms_of, is_open, summary
from figure import draw
from rows import ARMS, QUICK, ROWS, Row
from stats import Interval, relative, slope


def seeds(*values):
    return dict(enumerate(values, 1))


class Statistics(unittest.TestCase):
    def test_interval_is_students(self):
        d = Interval([1, 2, 3])  # deviation 1, 4.303 / sqrt 3 = 2.484
        self.assertAlmostEqual(d.mean, 2)
        self.assertAlmostEqual(d.low, 2 - 2.484, places=3)
        self.assertAlmostEqual(d.high, 2 + 2.484, places=3)

    def test_one_value_tells_nothing(self):
        self.assertEqual(Interval([5]).high, float("inf"))

    def test_difference_is_paired_and_in_percent(self):
        d = relative(seeds(1.1, 2.2, 3.3), {**seeds(1, 2, 3), 9: 7})
        self.assertEqual(len(d.values), 3)
        self.assertAlmostEqual(d.mean, 10)
        self.assertAlmostEqual(d.half, 0, places=9)

    def test_slope_is_percent_a_doubling(self):
        d = slope([(1, seeds(1.0, 2.0)), (2, seeds(1.05, 2.1)), (4, seeds(1.1025, 2.205))])
        self.assertAlmostEqual(d.mean, 4.879, places=3)  # ln 1.05


class Verdicts(unittest.TestCase):
    losses = {"base": seeds(1, 1, 1), "same": seeds(1.001, 0.999, 1), "bad": seeds(1.2, 1.21, 1.19),
              "worse": seeds(1.05, 1.051, 1.049), "wild": seeds(0.9, 1.1, 1.0)}

    def judge(self, check):
        return check.judge(self.losses)[0]

    def test_lower(self):
        self.assertEqual(self.judge(Lower("base", "worse")), HOLDS)
        self.assertEqual(self.judge(Lower("worse", "base")), FAILS)
        self.assertEqual(self.judge(Lower("wild", "base")), OPEN)
        self.assertEqual(self.judge(Lower("base", "worse", by=10)), FAILS)

    def test_within_needs_a_known_bad_arm_that_it_sees(self):
        self.assertEqual(self.judge(Within("same", "base", 1, "bad")), HOLDS)
        self.assertEqual(self.judge(Within("same", "base", 1, "same")), OPEN)
        self.assertEqual(self.judge(Within("worse", "base", 1, "bad")), FAILS)
        self.assertEqual(self.judge(Within("wild", "base", 1, "bad")), OPEN)

    def test_trend(self):
        series = [(1, "base"), (2, "worse"), (4, "bad")]
        self.assertEqual(self.judge(Trend(series, rises=True)), HOLDS)
        self.assertEqual(self.judge(Trend(series, rises=False)), FAILS)

    def test_equal(self):
        self.assertEqual(self.judge(Equal("base", "base")), HOLDS)
        self.assertEqual(self.judge(Equal("same", "base")), FAILS)

    def test_a_row_is_as_good_as_its_worst_check(self):
        self.assertEqual(summary([(0, HOLDS, 0), (0, OPEN, 0)]), OPEN)
        self.assertEqual(summary([(0, FAILS, 0), (0, OPEN, 0)]), FAILS)

    def test_a_row_that_nothing_was_measured_of_is_not_open(self):
        row = Row(0, "", "", [Lower("base", "wild")])
        self.assertTrue(is_open(row, {"loss": self.losses}))
        self.assertFalse(is_open(row, {"loss": {}}))


class Table(unittest.TestCase):
    def test_arms_are_those_that_checks_name(self):
        named = {DERIVED.get(arm, arm) for arm in arms_of(ROWS)}
        self.assertEqual(named, set(ARMS))

    def test_quick_rows_exist(self):
        self.assertLess({row.number for row in QUICK}, {row.number for row in ROWS})

    def test_a_picture_is_whole(self):
        svg = draw("a < b", [("x < y", HOLDS, Interval([1, 2, 3]), 5)])
        self.assertTrue(svg.startswith("<svg") and svg.endswith("</svg>\n"))
        self.assertIn("a &lt; b", svg)


if __name__ == "__main__":
    unittest.main()
