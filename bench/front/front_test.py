#!/usr/bin/env python3
"""front_test.py - the tables of the front, on numbers worked by hand."""
import json
import math
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import front
from arms import GLOBAL_BATCH, all_arms
from measured import Measured
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


class Untrained:
    """In place of the claims' Bench: training again would be the failure."""

    def settings(self, trial, more):
        return {**trial.settings, **more}

    def run(self, name, trial, seed, more):
        raise AssertionError(f"{name}, seed {seed} is trained again")


class Known(unittest.TestCase):
    FACTS = {"loss": 1.5, "bytes_sent": 20, "data_parallel_bytes": 40, "steps": 4, "entries": 2}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.theirs, self.ours = (pathlib.Path(folder.name) / n for n in ("theirs", "ours"))

    def add(self, path, context, steps, settings, facts=None):
        kept = Measured([path], context)
        kept.add(kept.identity(steps, settings, 1), facts or self.FACTS, trial="an arm", lr="1")

    def find(self, context, steps, settings, seed=1):
        kept = Measured([self.theirs, self.ours], context)
        return kept.find(kept.identity(steps, settings, seed))

    def test_trials_of_all_files_are_found(self):
        self.add(self.theirs, "texts", 4, {"lr": "1"})
        self.add(self.ours, "texts", 4, {"lr": "2"}, {**self.FACTS, "loss": math.inf})
        self.assertEqual(self.find("texts", 4, {"lr": "1"})["loss"], 1.5)
        self.assertEqual(self.find("texts", 4, {"lr": "2"})["loss"], math.inf)

    def test_other_texts_steps_settings_and_seeds_are_other_trials(self):
        self.add(self.ours, "texts", 4, {"lr": "1"})
        self.assertIsNone(self.find("other texts", 4, {"lr": "1"}))
        self.assertIsNone(self.find("texts", 5, {"lr": "1"}))
        self.assertIsNone(self.find("texts", 4, {"lr": "1", "outer_lr": "1"}))
        self.assertIsNone(self.find("texts", 4, {"lr": "1"}, seed=2))

    def test_a_known_trial_is_not_trained(self):
        arm = next(a for a in all_arms() if a.method.preset == "diloco")
        settings = {**arm.settings(2), "data.partition": "whole", "preset": "diloco", "lr": "1"}
        self.add(self.ours, "texts", 40, settings)
        lab = front.Lab(Untrained(), Measured([self.ours], "texts"), 0, 40)
        self.assertEqual(lab.train(arm, 2, "i.i.d.", 1, "1")["loss"], 1.5)
        with self.assertRaises(AssertionError):
            lab.train(arm, 2, "i.i.d.", 2, "1")


class Valley:
    """In place of the claims' Bench: the loss of an inner learning rate is lowest at `best`."""

    def __init__(self, folder, best):
        self.folder, self.best, self.tried = folder, best, []

    def settings(self, trial, more):
        return {**trial.settings, **more}

    def run(self, name, trial, seed, more):
        self.tried.append(more["lr"])
        loss = abs(math.log2(float(more["lr"]) / self.best))
        facts = {**Known.FACTS, "loss": loss, "steps": 1}
        (self.folder / "result.json").write_text(json.dumps(facts))
        return self.folder, None


class Tuning(unittest.TestCase):
    def rate(self, best, rates):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            valley = Valley(folder, best)
            lab = front.Lab(valley, Measured([folder / "measured.jsonl"], "texts"), 0, 40)
            return lab.rate(all_arms()[0], rates), valley.tried

    def test_the_best_rate_has_worse_ones_on_both_sides(self):
        rates = ("1.5e-3", "3e-3", "6e-3")
        self.assertEqual(self.rate(3e-3, rates), ("3e-3", list(rates)))
        self.assertEqual(self.rate(8e-4, rates), ("7.5e-4", [*rates, "7.5e-4", "3.75e-4"]))
        self.assertEqual(self.rate(2.4e-2, rates),
                         ("2.4e-2", [*rates, "1.2e-2", "2.4e-2", "4.8e-2"]))

    def test_one_rate_is_taken_as_it_is(self):
        self.assertEqual(self.rate(1, ("3e-3",)), ("3e-3", ["3e-3"]))


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
