"""launch_job_test.py - diloco.launch_job: ranks of a command, and a PyTorch script whose ranks are replicas of a run."""
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import diloco
from diloco._plan import run_program
from launch_test import Processes

try:
    import torch  # pylint: disable=unused-import
except ImportError:
    torch = None

# A replica of the run that the launch names. The first process of rank 1 kills itself after its first due point.
TRAIN = """
import os, pathlib, signal
import torch
import diloco

place = diloco.place_here()
torch.manual_seed(place.rank)
model = torch.nn.Linear(6, 1)
inner = torch.optim.SGD(model.parameters(), lr=0.05)
with diloco.DiLoCoOptimizer(model, inner, place.store, place.replica, replicas=place.replicas, sync_every=5, rounds=4,
                            run__patience=240) as opt:
    while not opt.done:
        x = torch.randn(8, 6)
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        opt.step()
        opt.zero_grad()
        if place.rank == 1 and opt.run.now.step == 7 and not pathlib.Path("killed").exists():
            pathlib.Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path(f"bias-{place.replica}").write_text(repr(model.bias.item()))
print(place.replica, "is done")
"""


def status_of(store):
    return run_program("launch", "status", store)


class Folder(unittest.TestCase):
    def setUp(self):
        self.before = os.getcwd()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, self.before)
        os.chdir(folder.name)
        pathlib.Path("batch.toml").write_text("[launch]\npoll = 0.1\n", "utf-8")

    def start(self, *command, **more):
        options = {"job.command": list(command), **more.pop("options", {})}
        return diloco.launch_job("batch.toml", replicas=2, store="batch", options=options, **more)


class Commands(Folder):
    def test_ranks_run_are_read_and_complete_the_batch(self):
        launched = self.start("sh", "-c", 'echo "a, b: $DILOCO_RANK of $DILOCO_RANKS, $0"', "{rank}")
        self.assertEqual(launched.backend_name, "local")
        self.assertEqual([h.rank for h in launched.handles], [0, 1])
        launched.follow()
        self.assertEqual([s.state for s in launched.collect(60)], ["SUCCEEDED", "SUCCEEDED"])
        self.assertEqual(list(launched.stream_logs(1)), ["a, b: 1 of 2, 1"])
        self.assertIn("the batch is complete", status_of("batch"))

    def test_collect_raises_at_its_timeout_and_the_ranks_continue(self):
        launched = self.start("sh", "-c", "while [ -e batch.toml ] && [ ! -e end ]; do sleep 0.05; done")
        with self.assertRaisesRegex(diloco.TimedOutError, "these replicas are not over: diloco-.*-r0-g0, diloco-.*-r1-g0"):
            launched.collect(0.1)
        pathlib.Path("end").touch()
        self.assertEqual([s.state for s in launched.collect(60)], ["SUCCEEDED", "SUCCEEDED"])

    def test_rank_that_fails_is_an_error_with_its_exit_code(self):
        launched = self.start("sh", "-c", 'exit "$DILOCO_RANK"')
        with self.assertRaisesRegex(diloco.Error, "the batch is not complete; r1: FAILED: exit code 1"):
            launched.follow()

    def test_class_starts_ranks_and_judges_their_exit_codes(self):
        diloco.register_executor(type("JobProcesses", (Processes,), {"backend_name": "test-job"}))
        launched = self.start("sh", "-c", "echo of $DILOCO_RANKS: $0", "rank{rank}", on="test-job")
        launched.follow()
        self.assertEqual(list(launched.stream_logs(1)), ["of 2: rank1"])
        with self.assertRaisesRegex(diloco.Error, "the batch is not complete: .*FAILED"):
            diloco.launch_job("batch.toml", on="test-job", replicas=1, store="other",
                              options={"job.command": ["false"]}).follow()

    def test_batch_with_a_run_is_complete_only_with_the_run(self):
        launched = self.start("true", options={"job.run": "run"})
        with self.assertRaisesRegex(diloco.Error, "exit code 0, and the batch is not complete"):
            launched.follow()
        self.assertNotIn("complete", status_of("batch"))
        with self.assertRaisesRegex(diloco.RefusedError, "whose ranks train the run in .*/run"):
            self.start("true", options={"job.run": "another"})


class Places(unittest.TestCase):
    def test_place_is_that_of_the_launch(self):
        variables = {"DILOCO_STORE": "s3://bucket/run", "DILOCO_RANK": "3", "DILOCO_RANKS": "8"}
        with mock.patch.dict(os.environ, variables):
            self.assertEqual(diloco.place_here(), diloco.Place("s3://bucket/run", "r3", 3, 8))
        for name in variables:
            with mock.patch.dict(os.environ, {**variables, name: ""}), self.assertRaises(diloco.InvalidError):
                diloco.place_here()


@unittest.skipUnless(torch, "needs torch")
class Scripts(Folder):
    def test_script_that_is_killed_is_started_again_and_the_run_completes(self):
        pathlib.Path("train.py").write_text(TRAIN, "utf-8")
        launched = self.start(sys.executable, "train.py", options={"job.run": "run"})
        launched.follow()
        self.assertEqual([h.generation for h in launched.handles], [0, 1])
        self.assertEqual([s.state for s in launched.collect(60)], ["SUCCEEDED", "SUCCEEDED"])
        self.assertEqual(list(launched.stream_logs(1)), ["r1 is done"])
        self.assertIn("the batch is complete", status_of("batch"))
        self.assertTrue(diloco.run("run").status()["done"])
        self.assertEqual(pathlib.Path("bias-r0").read_text("utf-8"), pathlib.Path("bias-r1").read_text("utf-8"))


if __name__ == "__main__":
    unittest.main()
