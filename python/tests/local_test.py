"""local_test.py - launch_local and plan: processes, their failures, and their leftovers."""
import array
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import diloco

QUICK = {"run.heartbeat": 0.05, "run.patience": 240}


def replica(place, steps):
    w = array.array("f", [0] * 4)
    with diloco.Run(place.store, place.replica, QUICK, replicas=place.replicas, sync_every=steps,
                    rounds=2) as run:
        run.tensor("w", w)
        run.join()
        while not run.done:
            w[0] += 1 + place.rank
            run.step(loss=1)
    return place.rank, w.tobytes()


def fail_as_r1(place):
    if place.rank == 1:
        raise KeyError("what r1 says")
    while True:
        signal.pause()  # until it is ended


def killed(place):
    os.kill(os.getpid(), signal.SIGKILL)


WAITING = """
import signal, sys; sys.path.insert(0, sys.argv[1])
import local_test, diloco
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored: a shell's background job
    diloco.launch_local(2, local_test.tell_and_wait, sys.argv[2])
"""


def tell_and_wait(place, folder):
    (pathlib.Path(folder) / f"{os.getpid()}").write_text(place.store)
    array_ = array.array("f", [0])
    run = diloco.Run(place.store, place.replica, QUICK, replicas=3, sync_every=1)
    run.tensor("w", array_)
    run.join()
    run.step()  # for a third that never comes


def alive(pid):
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


class Launch(unittest.TestCase):
    def scratch(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def check_two(self, results):
        self.assertEqual([r[0] for r in results], [0, 1])
        self.assertEqual(results[0][1], results[1][1])

    def test_results_come_in_order_and_the_temporary_store_goes(self):
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(self.scratch())
        self.check_two(diloco.launch_local(2, replica, 3))
        self.assertEqual(os.listdir(tempfile.tempdir), [])

    def test_a_store_that_is_given_stays(self):
        store = self.scratch() / "run"
        self.check_two(diloco.launch_local(2, replica, 3, store=store, start="fork"))
        self.assertEqual(len(diloco.run(store).history()), 2)

    def test_at_a_prompt_functions_have_no_module(self):
        code = "import diloco\ndef f(place): return place.rank * 10\n" \
               "print(diloco.launch_local(2, f))\n"
        said = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True)
        self.assertEqual(said.stdout.strip(), "[0, 10]", said.stderr)

    def test_under_a_launcher_this_process_is_one_of_them(self):
        os.environ.update(RANK="1", WORLD_SIZE="2")
        self.addCleanup(lambda: [os.environ.pop(k) for k in ("RANK", "WORLD_SIZE")])
        place = diloco.launch_local(2, lambda place: place, store="runs/x")[0]
        self.assertEqual(place, diloco.Place("runs/x", "r1", 1, 2))
        with self.assertRaisesRegex(ValueError, "has started 2 processes"):
            diloco.launch_local(3, replica, store="runs/x")
        with self.assertRaisesRegex(ValueError, "give launch_local a store"):
            diloco.launch_local(2, replica)

    def test_a_failure_stops_the_others_and_is_told(self):
        with self.assertRaisesRegex(diloco.ReplicaFailed, "(?s)replica r1 failed.*what r1 says"):
            diloco.launch_local(2, fail_as_r1)  # r0 would wait for ever
        with self.assertRaisesRegex(diloco.ReplicaFailed, "exit code -9"):
            diloco.launch_local(1, killed)

    def check_ctrl_c_at_a_start(self, way):
        start = multiprocessing.process.BaseProcess.start
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, former)

        def start_and_interrupt(process):
            start(process)
            os.kill(os.getpid(), signal.SIGINT)

        with mock.patch.object(multiprocessing.process.BaseProcess, "start", start_and_interrupt):
            with self.assertRaises(KeyboardInterrupt):
                diloco.launch_local(1, fail_as_r1, start=way)  # r0 would wait for ever
        left = multiprocessing.active_children()
        for process in left:
            process.kill()
        self.assertEqual(left, [])

    def test_ctrl_c_while_a_process_is_started_leaves_none(self):
        self.check_ctrl_c_at_a_start("spawn")
        self.check_ctrl_c_at_a_start("fork")
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_what_cannot_be_sent_is_told(self):
        with self.assertRaisesRegex(ValueError, "top of a module"):
            diloco.launch_local(1, lambda place: 1, start="spawn")

    def check_end(self, number, code):
        """The parent gets a signal while both replicas wait: no process and no file is left."""
        folder = self.scratch()
        script = folder / "script.py"
        script.write_text(WAITING)
        (folder / "pids").mkdir()
        parent = subprocess.Popen([sys.executable, script, pathlib.Path(__file__).parent,
                                   folder / "pids"], stderr=subprocess.PIPE, text=True)
        while len(told := list((folder / "pids").iterdir())) < 2 or not all(
                p.read_text() for p in told):
            self.assertIsNone(parent.poll(), "the replicas never waited")
            time.sleep(0.05)
        parent.send_signal(number)
        self.assertEqual(parent.wait(), code, parent.stderr.read())
        parent.stderr.close()
        for p in told:
            while alive(int(p.name)):
                time.sleep(0.05)  # the test's own time limit ends this
        return pathlib.Path(told[0].read_text()).parent

    def test_ctrl_c_leaves_nothing(self):
        store = self.check_end(signal.SIGINT, -signal.SIGINT)
        self.assertFalse(store.exists())

    def test_a_killed_parent_takes_its_replicas_along(self):
        store = self.check_end(signal.SIGKILL, -signal.SIGKILL)
        for path in sorted(store.rglob("*"), reverse=True):  # no process was left to remove it
            path.rmdir() if path.is_dir() else path.unlink()
        store.rmdir()


class Plan(unittest.TestCase):
    def test_the_planner_answers_as_an_object(self):
        answer = diloco.plan(params=1e8, layers=12, step_seconds=.5, link="100mbit,50ms",
                             replicas=4)
        self.assertEqual(answer["task"]["replicas"], 4)
        self.assertIn("diloco", [m["name"] for m in answer["methods"]])

    def test_its_errors_are_ours(self):
        with self.assertRaisesRegex(ValueError, "plan needs a model"):
            diloco.plan()
        with self.assertRaisesRegex(ValueError, "no flag --lnik"):
            diloco.plan(lnik="x")


if __name__ == "__main__":
    unittest.main()
