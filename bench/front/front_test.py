#!/usr/bin/env python3
"""front_test.py - the tables of the front, on numbers worked by hand."""
import unittest
import xml.etree.ElementTree

import front
from arms import GLOBAL_BATCH, all_arms
from picture import draw

DENSE = 1000.0


def points():
    """Two synchronous arms and three arms of two replicas, two seeds each."""
    def of(first, second, sent):
        return {1: (first, sent), 2: (second, sent)}
    return {(1, "i.i.d.", "AdamW, data-parallel"): of(2.0, 2.0, DENSE),
            (1, "i.i.d.", "Muon, data-parallel"): of(1.6, 1.6, DENSE),
            (2, "i.i.d.", "near, H 5, f32"): of(1.6, 1.6, 200.0),
            (2, "i.i.d.", "far, H 50, f32"): of(1.68, 1.68, 20.0),
            (2, "i.i.d.", "beaten, H 10, f32"): of(1.76, 1.76, 100.0),
            (4, "i.i.d.", "near, H 5, f32"): of(1.7, 1.7, 200.0)}


class Front(unittest.TestCase):
    def setUp(self):
        self.name, self.baseline = front.better_baseline(points())
        self.rows = front.rows_of(points(), 2, "i.i.d.", self.baseline, DENSE)

    def test_baseline_is_the_better_synchronous_arm(self):
        self.assertEqual(self.name, "Muon, data-parallel")
        self.assertEqual(self.baseline, {1: 1.6, 2: 1.6})

    def test_rows_are_those_of_one_number_of_replicas_fewest_bytes_first(self):
        self.assertEqual([row[0].split(",")[0] for row in self.rows], ["far", "beaten", "near"])
        self.assertEqual([row[2] for row in self.rows], [50, 10, 5])
        self.assertAlmostEqual(self.rows[0][3].mean, 5)

    def test_fewest_bytes_at_a_gap(self):
        self.assertEqual(front.fewest(self.rows, 0)[2], 5)
        self.assertEqual(front.fewest(self.rows, 4.9)[2], 5)
        self.assertEqual(front.fewest(self.rows, 5.1)[2], 50)
        self.assertIsNone(front.fewest(self.rows, -1))

    def test_front_leaves_out_what_is_beaten_in_both(self):
        self.assertEqual([row[0].split(",")[0] for row in front.front_of(self.rows)],
                         ["far", "near"])

    def test_picture_is_xml_with_a_dot_an_arm(self):
        root = xml.etree.ElementTree.fromstring(draw("two & more", self.rows, {"far, H 50, f32"}))
        self.assertEqual(len(root.findall("{*}circle")), 3)

    def test_a_fallen_arm_does_not_hide_the_others(self):
        bad = {**points(), (2, "i.i.d.", "fallen, H 500, f32"): {1: (float("inf"), 1.0)}}
        rows = front.rows_of(bad, 2, "i.i.d.", self.baseline, DENSE)
        self.assertEqual(front.fewest(rows, 5.1)[0], "far, H 50, f32")
        xml.etree.ElementTree.fromstring(draw("fallen", rows, set()))


class Arms(unittest.TestCase):
    def test_names_differ(self):
        names = [arm.name for arm in all_arms()]
        self.assertEqual(len(names), len(set(names)))

    def test_every_arm_sees_the_same_tokens(self):
        for arm in all_arms():
            for m in (2, 4, 8):
                self.assertEqual(int(arm.settings(m)["trainer.batch_size"]) * m, GLOBAL_BATCH)

    def test_an_arm_is_tuned_by_its_own_h(self):
        for arm in all_arms():
            self.assertEqual((arm.tuned_as.h, arm.tuned_as.method), (arm.h, arm.method))


if __name__ == "__main__":
    unittest.main()
