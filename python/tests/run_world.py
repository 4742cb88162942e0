"""run_world.py - a store in a folder of its own, for the tests of runs over plain buffers."""
import pathlib
import tempfile
import threading
import unittest

QUICK = {"run.heartbeat": 0.05, "run.patience": 20}


def in_threads(*calls):
    raised = []

    def guarded(call):
        try:
            call()
        except BaseException as error:
            raised.append(error)
    threads = [threading.Thread(target=guarded, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.store = pathlib.Path(scratch.name) / "run"
