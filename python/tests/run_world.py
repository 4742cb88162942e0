"""run_world.py - a store in a folder of its own, for the tests of runs over plain buffers."""
import pathlib
import tempfile
import unittest

QUICK = {"run.heartbeat": 0.05, "run.patience": 20}


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.store = pathlib.Path(scratch.name) / "run"
