"""waits_test.py - a run over plain buffers that waits for another replica: interrupts and signals end one
call. A table has every call that waits."""
import array
import asyncio
import contextlib
import os
import pathlib
import re
import signal
import threading
import time
import unittest
from unittest import mock

import diloco
from diloco import _c, _run
from calls import in_threads
from run_world import QUICK, InScratch


class Waits(InScratch):
    """A replica that waits for another one which never comes."""

    def waiting(self, joins=True):
        run = diloco.Run(self.store, "r0", QUICK, replicas=2, sync_every=1)
        self.addCleanup(run.close)
        run.tensor("w", array.array("f", [1]))
        if joins:
            run.join()
        return run

    def test_others_run_while_a_step_waits(self):
        run, counts = self.waiting(), []

        def count():
            for i in range(100_000):
                counts.append(i)
            run.interrupt()
        counter = threading.Thread(target=count)
        counter.start()
        with self.assertRaises(diloco.Interrupted):
            run.step()
        counter.join()
        self.assertEqual(len(counts), 100_000)

    def test_a_long_wait_is_warned_of(self):
        with mock.patch.object(_c, "WAIT_REPORTED_S", .01):
            run = self.waiting()
        with self.assertLogs("diloco", "WARNING") as log:
            self.step_with_another(run, heard=lambda: len(log.output) > 1)
        for line in log.output[:2]:
            self.assertRegex(line, rf"waiting for entry 0, 0 s .* diloco status {self.store} --why")

    def test_a_step_that_was_interrupted_goes_on(self):
        run = self.waiting()
        run.interrupt()
        with self.assertRaises(diloco.Interrupted):
            run.step(samples=3)
        with self.assertRaisesRegex(diloco.InvalidError, "in flight"):
            run.step()
        with diloco.Run(self.store, "r1", QUICK) as other:
            other.tensor("w", array.array("f", [1]))
            other.join()
            in_threads(run.wait, other.step)
        self.assertEqual(diloco.run(self.store).history()[0]["samples"], 4)

    def step_until(self, run, then):
        """A step of r0. A thread calls ``then`` when r0 has contributed and only waits."""
        ended = threading.Event()

        def watch():
            try:
                while diloco.run(self.store).status()["wait"]["n_there"] == 0:
                    if ended.wait(0.01):
                        return
                then()
            except BaseException:
                run.interrupt()
                raise
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            run.step()
        finally:
            ended.set()
            watcher.join()

    def check_signal(self, number):
        self.step_until(self.waiting(), lambda: os.kill(os.getpid(), number))

    def test_ctrl_c_ends_a_wait(self):
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, former)  # ignored: a shell's background job
        with self.assertRaises(KeyboardInterrupt):
            self.check_signal(signal.SIGINT)
        self.assertEqual(signal.set_wakeup_fd(-1), -1)

    def test_ctrl_c_in_a_notebook_ends_the_cell_and_the_event_loop_keeps_its_signals(self):
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, former)
        loop = asyncio.new_event_loop()
        self.addCleanup(loop.close)
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)  # the loop has the wakeup descriptor

        async def cell():
            with self.assertRaises(KeyboardInterrupt):
                self.check_signal(signal.SIGINT)
            os.kill(os.getpid(), signal.SIGUSR1)
            await heard.wait()
        loop.run_until_complete(cell())
        self.assertTrue(heard.is_set())

    def test_a_handler_of_the_programs_own_runs(self):
        called = []
        former = signal.signal(signal.SIGTERM, lambda *_: called.append(1))
        self.addCleanup(signal.signal, signal.SIGTERM, former)
        with self.assertRaises(diloco.Interrupted):
            self.check_signal(signal.SIGTERM)
        self.assertEqual(called, [1])

    @contextlib.contextmanager
    def signals(self, number):
        """A function that sends this process a signal, and returns when the run was interrupted."""
        library, heard = _c.lib(), threading.Event()
        interrupt = library.diloco_run_interrupt

        def interrupting(handle):
            interrupt(handle)
            heard.set()

        def send():
            try:
                os.kill(os.getpid(), number)
            finally:
                heard.wait()
        with mock.patch.object(library, "diloco_run_interrupt", interrupting):
            yield send

    def save_with_signal(self, run, number):
        """A save during which a signal comes and interrupts the run."""
        saves = []

        def fill(_address):
            if saves:
                saves.pop()()
        run.private("piece", bytearray(8), fill)
        run.join()
        with self.signals(number) as send:
            saves.append(send)
            run.save()

    def step_with_another(self, run, heard=lambda: True):
        """A step that waits for r1, which comes when that has been heard."""
        def other():
            while not heard():
                time.sleep(.001)
            with diloco.Run(self.store, "r1", QUICK) as late:
                late.tensor("w", array.array("f", [1]))
                late.join()
                late.step()
        self.step_until(run, other)

    def test_a_signal_during_a_save_acts_once(self):
        called = []
        for number, handler in ((signal.SIGINT, signal.default_int_handler),
                                (signal.SIGTERM, lambda *_: called.append(1))):
            with self.subTest(number):
                former = signal.signal(number, handler)
                self.addCleanup(signal.signal, number, former)
                self.store = self.store.with_name(f"run{number}")
                run = self.waiting(joins=False)
                with contextlib.suppress(KeyboardInterrupt):
                    self.save_with_signal(run, number)
                    self.assertEqual(called, [1])
                self.step_with_another(run)
                self.assertEqual(diloco.run(self.store).history()[0]["members"],
                                 ["r0.0000", "r1.0000"])

    def after_a_signal(self, run, name, counts, call):
        """The result of a call that waits, after a signal in an earlier call that did not wait. Its C
        function returns once that it was interrupted. ``counts``: after it has counted its step."""
        library, left = _c.lib(), [1]
        function = getattr(library, name)

        def interrupted_once(*arguments):
            if left:
                left.clear()
                status = function(*arguments) if counts else 0
                return status or diloco.Interrupted.status
            return function(*arguments)

        def earlier(_handle):
            send()
            return 0
        with mock.patch.object(library, "diloco_run_interrupt"):
            with self.signals(signal.SIGTERM) as send:
                run._wait(earlier)
        with mock.patch.object(library, name, interrupted_once):
            found = call()
        self.assertEqual(left, [], name)
        return found

    def test_a_signal_of_an_earlier_call_ends_no_call_that_waits(self):
        former = signal.signal(signal.SIGTERM, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGTERM, former)
        run = diloco.Run(self.store, "r0", QUICK, sync_every=1, rounds=2)
        self.addCleanup(run.close)
        run.tensor("w", array.array("f", [1]))
        calls = [  # every one that waits, in an order that a run permits
            ("diloco_run_create", False, run.create, None),
            ("diloco_run_join", False, run.join, None),
            ("diloco_step_sized", True, lambda: run.step(samples=3), None),
            ("diloco_step_sized", False, run.wait, None),
            ("diloco_run_prepare_sized", True, lambda: run.prepare(samples=5), True),
            ("diloco_run_perform", False, run.perform, None),
            ("diloco_run_save", False, run.save, None),
            ("diloco_run_verify_sized", False, lambda: run.verify()["commits"], 2),
            ("diloco_run_leave", False, run.leave, None)]
        for name, counts, call, expected in calls:
            with self.subTest(name):
                self.assertEqual(self.after_a_signal(run, name, counts, call), expected)
        self.assertEqual([row["samples"] for row in diloco.run(self.store).history()], [3, 5])
        text = pathlib.Path(_run.__file__).read_text()
        self.assertEqual(set(re.findall(r"_wait\(_c\.lib\(\)\.(\w+)", text)),
                         {name for name, *_ in calls})

    def test_an_interrupt_of_the_programs_own_after_a_signal_ends_the_next_wait(self):
        former = signal.signal(signal.SIGTERM, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGTERM, former)
        run = self.waiting(joins=False)
        self.save_with_signal(run, signal.SIGTERM)
        run.interrupt()
        with self.assertRaises(diloco.Interrupted):
            run.step()


if __name__ == "__main__":
    unittest.main()
