"""frame_test.py - a run as a table: pandas or polars where one is installed, rows otherwise."""
import array
import importlib.util
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import diloco
from diloco import _log

HIDDEN = {"pandas": None, "polars": None}  # an import of either fails


class Frame(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.log = diloco.run(pathlib.Path(scratch.name) / "run")
        weights = array.array("f", [0] * 5)
        with diloco.Run(cls.log.store, "r0", {"run.heartbeat": 0.05}, sync_every=2,
                        rounds=3) as run:
            run.tensor("w", weights)
            run.join()
            while not run.done:
                weights[0] += 1
                run.step(loss=1.5, samples=4, tokens=16)

    def test_without_a_library_it_is_rows_with_the_columns_of_the_record(self):
        with mock.patch.dict(sys.modules, HIDDEN):
            rows = self.log.frame()
        self.assertEqual([r["entry"] for r in rows], [0, 1, 2])
        self.assertEqual(rows[0]["loss"], 1.5)
        self.assertGreater(rows[0]["update_norm"], 0)
        self.assertGreater(rows[2]["time"], 1.6e9)
        self.assertIsNone(rows[0]["validation_loss"])

    def test_an_event_of_the_record_is_a_table(self):
        rows = self.log.frame("commit", kind="rows")
        self.assertEqual([r["entry"] for r in rows], [0, 1, 2])
        self.assertEqual(self.log.frame("no such event", kind="rows"), [])

    def test_a_kind_that_is_not_there_is_refused_by_name(self):
        with mock.patch.dict(sys.modules, HIDDEN):
            with self.assertRaisesRegex(diloco.InvalidError, "pip install polars"):
                self.log.frame(kind="polars")
        with self.assertRaisesRegex(diloco.InvalidError, "'pandas', 'polars' or 'rows'"):
            self.log.frame(kind="excel")

    def test_a_run_that_is_not_there_is_told(self):
        with self.assertRaises(diloco.NotThereError):
            diloco.run(self.log.store + "-none").frame()

    def test_evaluations_belong_to_the_entry_before_them(self):
        lines = [{"event": "eval", "entry": 2, "loss": 0.5, "loss_after_sync": None},
                 {"event": "commit", "entry": 1, "time": 9.0, "peer_grad_similarity": 0.25},
                 {"event": "commit", "entry": 1, "time": 8.0, "peer_grad_similarity": 0.75},
                 {"event": "warn", "text": "x"}, {"event": "eval"}]
        self.assertEqual(_log._recorded(lines),
                         {1: {"validation_loss": 0.5, "time": 8.0, "similarity": 0.25}})

    def test_real_libraries_have_the_same_rows(self):
        rows = self.log.frame(kind="rows")
        for name in ("pandas", "polars"):
            if importlib.util.find_spec(name) is None:
                print(f"left out of frame_test: {name} (not installed)")
                continue
            frame = self.log.frame(kind=name)
            self.assertEqual(list(frame["loss"]), [r["loss"] for r in rows])
            self.assertEqual(list(frame["members"][0]), rows[0]["members"])
            self.assertEqual(len(self.log.frame("commit", kind=name)), 3)


if __name__ == "__main__":
    unittest.main()
