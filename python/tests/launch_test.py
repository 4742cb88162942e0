"""launch_test.py - diloco.launch: an executor of the program, and one that a class of the user's defines."""
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import diloco

CONFIG = """
preset = "diloco"
[run]
replicas = 2
threads = 1
heartbeat = 0.5
patience = 240
[trainer]
rounds = 12
local_steps_per_round = 10
batch_size = 2
eval_batches = 2
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
[launch]
poll = 0.1
"""


class Folder(unittest.TestCase):
    def setUp(self):
        self.before = os.getcwd()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, self.before)
        os.chdir(folder.name)
        pathlib.Path("run.toml").write_text(CONFIG, "utf-8")
        draw = random.Random(7)
        words = ["".join(draw.choices("aeinrst", k=4)) for _ in range(50)]
        pathlib.Path("text.txt").write_text(" ".join(draw.choices(words, k=12000)), "utf-8")

    def digest(self, store):
        return diloco.run(store).verify()["digest"]


class OfTheProgram(Folder):
    def test_replicas_are_started_followed_read_and_collected(self):
        launched = diloco.launch("run.toml", store="run", options={"trainer.rounds": 4})
        self.assertEqual(launched.backend_name, "local")
        self.assertTrue(launched.supports_inter_replica_network)
        self.assertEqual([h.rank for h in launched.handles], [0, 1])
        launched.follow()
        self.assertEqual([s.state for s in launched.collect(60)], ["SUCCEEDED", "SUCCEEDED"])
        self.assertTrue(list(launched.stream_logs(1, follow=True)))
        self.assertTrue(diloco.run("run").status()["done"])

    def test_cancelled_replicas_are_over(self):
        launched = diloco.launch("run.toml", store="run", options={"trainer.rounds": 100000})
        launched.cancel()
        self.assertEqual([s.state for s in launched.collect(60)], ["CANCELLED", "CANCELLED"])

    def test_an_error_has_the_programs_sentence(self):
        with self.assertRaisesRegex(diloco.InvalidError, "there is no executor sulrm"):
            diloco.launch("run.toml", on="sulrm", store="run")
        with self.assertRaisesRegex(diloco.InvalidError, "does not list"):
            diloco.register_executor(type("Local", (diloco.Executor,), {"backend_name": "local"}))


# In place of the program: it writes its arguments down, and answers what `launch` asks for.
RECORDER = """#!/bin/sh
echo "$*" >>calls
case "$*" in
*executors*) echo '[{"name":"k8s","net":"private-ip"},{"name":"local","net":"private-ip"}]' ;;
*"launch status"*) echo '{"replicas":[]}' ;;
*--prepare*) echo '{"store":"s3://bucket/run","run":"1f0c2ab9"}' ;;
esac
"""


class Arguments(Folder):
    def setUp(self):
        super().setUp()
        program = pathlib.Path("recorder")
        program.write_text(RECORDER, "utf-8")
        program.chmod(0o755)
        patch = mock.patch("diloco._program.path", return_value=str(program.resolve()))
        patch.start()
        self.addCleanup(patch.stop)

    def check(self, options, words, to_status=None, on="k8s"):
        """After a launch with these options cancel() and stream_logs() have these words, and poll() has those of
        `to_status`."""
        launched = diloco.launch("run.toml", on=on, options=options)
        launched.cancel()
        self.assertEqual(list(launched.stream_logs(1)), [])
        self.assertEqual(launched.poll(), [])
        to_status = words if to_status is None else to_status
        self.assertEqual(pathlib.Path("calls").read_text("utf-8").splitlines()[-3:],
                         [f"launch cancel s3://bucket/run{words}", f"launch logs s3://bucket/run{words} --rank 1",
                          f"launch status s3://bucket/run{to_status} --set launch.prices= --json"])

    def test_options_that_no_book_may_name_are_those_of_the_launch(self):
        self.check(None, "")
        self.check({"launch.dir": pathlib.Path("/kept"), "launch.poll": 1}, " --set launch.dir=/kept", to_status="")
        self.check({"launch.dir": "/far"}, "", on="local")  # in the book
        self.check({"launch.ssh_config": "c", "launch.endpoint": "https://a"},
                   " --set launch.endpoint=https://a --set launch.ssh_config=c")


class Processes(diloco.Executor):
    """Replicas as children of this process."""

    backend_name = "test-processes"
    supports_inter_replica_network = True

    def __init__(self):
        self.processes = {}

    def launch_replicas(self, replicas):
        for r in replicas:
            if r.name not in self.processes:
                with open(r.name, "wb") as log:
                    self.processes[r.name] = subprocess.Popen(
                        [r.program, *r.argv], stdout=log, stderr=log, env={**os.environ, **r.env, **r.secrets})
        return [diloco.Handle(r.rank, r.generation, r.name, self.processes[r.name].pid) for r in replicas]

    def poll(self, handle):
        code = self.processes[handle.name].poll()
        if code is None:
            return diloco.Status("RUNNING")
        if code < 0:
            return diloco.Status("LOST", None, f"killed by signal {-code}")
        return diloco.Status("FAILED" if code else "SUCCEEDED", code)

    def stream_logs(self, handle, follow=False):
        with open(handle.name, encoding="utf-8", errors="replace") as lines:
            yield from (line.rstrip("\n") for line in lines)

    def cancel(self, handle):
        self.processes[handle.name].terminate()


class OfAClass(Folder):
    def setUp(self):
        super().setUp()
        diloco.register_executor(Processes)
        os.environ["DILOCO_TEST_WORD"] = "swordfish"
        self.addCleanup(os.environ.pop, "DILOCO_TEST_WORD")

    def test_a_killed_replica_is_started_again_and_the_run_ends_where_it_would_have(self):
        diloco.launch("run.toml", store="whole").follow()
        launched = diloco.launch("run.toml", on="test-processes", store="run",
                                 options={"launch.secrets": "DILOCO_TEST_WORD"})
        self.assertEqual(launched.backend_name, "test-processes")
        os.kill(launched.handles[1].id, signal.SIGKILL)
        launched.follow()
        self.assertEqual([h.generation for h in launched.handles], [0, 1])
        self.assertEqual([s.state for s in launched.collect(60)], ["SUCCEEDED", "SUCCEEDED"])
        self.assertTrue(list(launched.stream_logs(0)))
        self.assertEqual(self.digest("run"), self.digest("whole"))

    def test_a_secret_is_in_no_text_of_a_replica(self):
        seen = []
        kind = type("Nothing", (Processes,), {
            "backend_name": "test-nothing",
            "launch_replicas": lambda self, replicas: seen.extend(replicas) or [
                diloco.Handle(r.rank, r.generation, r.name) for r in replicas]})
        diloco.register_executor(kind)
        diloco.launch("run.toml", on="test-nothing", store="run", options={"launch.secrets": "DILOCO_TEST_WORD"})
        self.assertEqual(seen[0].secrets, {"DILOCO_TEST_WORD": "swordfish"})
        self.assertNotIn("swordfish", repr(seen))


class Scripted(diloco.Executor):
    """Replicas without a process. A test sets ``state``, a function of this executor and a handle, which returns a
    Status or an exception to raise."""

    backend_name = "test-scripted"
    state = None
    last = None  # the executor of the newest launch

    def __init__(self):
        Scripted.last = self
        self.started, self.asked, self.failed_at = {}, [], {}

    def launch_replicas(self, replicas):
        for r in replicas:
            self.started[r.generation] = time.monotonic()
        return [diloco.Handle(r.rank, r.generation, r.name) for r in replicas]

    def poll(self, handle):
        status = Scripted.state(self, handle)
        if isinstance(status, Exception):
            raise status
        if status.state == "FAILED":
            self.failed_at.setdefault(handle.generation, time.monotonic())
        return status

    def stream_logs(self, handle, follow=False):
        return iter(())

    def cancel(self, handle):
        self.asked.append(handle.generation)


def full_store_then_success(executor, handle):
    return diloco.Status("FAILED", 4) if handle.generation < 2 else diloco.Status("SUCCEEDED", 0)


def no_end_before_a_request(executor, handle):
    return diloco.Status("CANCELLED" if executor.asked else "RUNNING")


def silence_until_the_next_generation(executor, handle):
    """Generation 0 answers again after generation 1 was started, which ends after 0 was asked to stop."""
    if handle.generation == 1:
        return diloco.Status("SUCCEEDED" if executor.asked else "RUNNING")
    if 1 not in executor.started:
        return diloco.UnreachableError("no route to the host")
    return diloco.Status("CANCELLED" if executor.asked else "RUNNING")


class LimitsOfAClass(Folder):
    def setUp(self):
        super().setUp()
        diloco.register_executor(Scripted)
        pathlib.Path("batch.toml").write_text("[launch]\npoll = 0.02\n", "utf-8")

    def start(self, state, **options):
        Scripted.state = staticmethod(state)
        return diloco.launch_job("batch.toml", on="test-scripted", replicas=1, store="batch",
                                 options={"job.command": ["true"],
                                          **{f"launch.{name}": value for name, value in options.items()}})

    def test_store_that_did_not_answer_gets_a_pause_before_each_restart_that_doubles(self):
        launched = self.start(full_store_then_success)
        launched.follow()
        self.assertEqual([h.generation for h in launched.handles], [2])
        executor = Scripted.last
        self.assertGreater(executor.started[1] - executor.failed_at[0], 0.15)  # 8 looks
        self.assertGreater(executor.started[2] - executor.failed_at[1], 0.31)

    def test_replica_that_reaches_its_time_limit_is_stopped_once_and_has_failed(self):
        launched = self.start(no_end_before_a_request, timeout=0.01)
        with self.assertRaisesRegex(diloco.Error, "FAILED: stopped after launch.timeout"):
            launched.follow()
        self.assertEqual(Scripted.last.asked, [0])
        self.assertEqual([h.generation for h in launched.handles], [0])

    def test_replica_without_an_answer_is_lost_started_again_and_stopped_once_it_answers(self):
        launched = self.start(silence_until_the_next_generation, lost_after=0.1)
        launched.follow()
        self.assertEqual([h.generation for h in launched.handles], [1])
        self.assertEqual(Scripted.last.asked, [0])

    def test_cancel_asks_every_replica_although_one_does_not_answer(self):
        asked = []

        def cancel(_executor, handle):
            asked.append(handle.rank)
            raise diloco.UnreachableError(f"no route to the host of r{handle.rank}")

        diloco.register_executor(type("Deaf", (Scripted,), {"backend_name": "test-deaf", "cancel": cancel}))
        launched = diloco.launch_job("batch.toml", on="test-deaf", replicas=2, store="batch",
                                     options={"job.command": ["true"]})
        with self.assertRaisesRegex(diloco.UnreachableError, "host of r0"):
            launched.cancel()
        self.assertEqual(asked, [0, 1])

    def test_option_without_a_meaning_for_a_class_is_refused_by_its_name_and_nothing_starts(self):
        pathlib.Path("prices.toml").write_text('date = "2026-01-31"\ncurrency = "EUR"\nmachine_hour = 1\n', "utf-8")
        for options in ({"grace": 5}, {"dir": "kept"}, {"prices": "prices.toml", "budget": 9}):
            with self.assertRaisesRegex(diloco.RefusedError,
                                        f"launch.{next(iter(options))} has no meaning with the executor test-scripted"):
                self.start(no_end_before_a_request, **options)
            self.assertEqual(Scripted.last.started, {})


if __name__ == "__main__":
    unittest.main()
