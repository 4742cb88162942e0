"""run_test.py - a run over plain buffers: start to end, errors, callbacks, the log's rows."""
import array
import ctypes
import json
import logging
import math
import os
import pathlib
import pydoc
import signal
import socket
import subprocess
import sys
import time
import unittest

import diloco
from diloco import _program, _run
from calls import in_threads
from run_world import QUICK, InScratch


def train(run, weights, pull, before_each=lambda run: None):
    """Each step moves the weights half the way to pull."""
    while not run.done:
        before_each(run)
        for i in range(len(weights)):
            weights[i] += (pull - weights[i]) / 2
        run.step(loss=abs(pull - weights[0]), samples=4, tokens=16)


class Elsewhere(_run.DeviceCopies):
    """A device whose memory has numbers and no addresses, and whose copies are late."""

    def __init__(self):
        self.arrays, self.rooms, self.queued = [], {}, []

    def memory(self, dtype, values):
        self.arrays.append(values)
        return _run.Memory(len(self.arrays), dtype, (len(values),), self)

    def alloc(self, size):
        room = ctypes.create_string_buffer(size)
        self.rooms[ctypes.addressof(room)] = room
        return ctypes.addressof(room)

    def copy_in(self, host, tensor, size):
        source = self.arrays[tensor - 1]
        self.queued.append(lambda: ctypes.memmove(host, source.tobytes(), size))

    def copy_out(self, tensor, host, size):
        target = memoryview(self.arrays[tensor - 1]).cast("B")
        self.queued.append(lambda: target.__setitem__(slice(None), ctypes.string_at(host, size)))

    def synchronise(self):
        while self.queued:
            self.queued.pop()()


class Life(InScratch):
    def replica(self, name, pull, after=None, before_each=lambda run: None, **options):
        weights = array.array("f", [0] * 5)
        with diloco.Run(self.store, name, QUICK, **options) as run:
            run.tensor("w", weights)
            run.join()
            train(run, weights, pull, before_each)
            if after:
                after(run)
        return weights

    def test_two_replicas_end_with_one_model(self):
        ends = {}
        in_threads(*[lambda n=n, p=p: ends.update({n: self.replica(
            n, p, replicas=2, sync_every=3, rounds=4)}) for n, p in (("r0", 1), ("r1", -1))])
        self.assertEqual(ends["r0"], ends["r1"])
        rows = diloco.run(self.store).history()
        self.assertEqual([r["entry"] for r in rows], [0, 1, 2, 3])
        self.assertTrue(all(r["commit"] and r["members"] == ["r0.0000", "r1.0000"] and
                            r["weights"] == [.5, .5] and r["samples"] == 24 for r in rows))
        self.assertEqual(diloco.run(self.store).history(3), rows[3:])
        self.assertTrue(diloco.run(self.store).verify()["complete"])
        shared = diloco.run(self.store).theta_bytes()
        self.assertEqual(shared[-20:], ends["r0"].tobytes())

    def test_joining_needs_no_settings(self):
        self.replica("r0", 1, sync_every=2, rounds=2)
        seen = []
        self.replica("r1", 1, after=lambda run: seen.append(run.now))
        self.assertEqual((seen[0].entries, seen[0].positions), (2, 4))
        self.assertEqual(diloco.run(self.store).config()["sync_every"], "2")

    def test_another_setting_is_told(self):
        self.replica("r0", 1, sync_every=2, rounds=2)
        with self.assertRaisesRegex(diloco.DiffersError, "local_steps_per_round"):
            self.replica("r1", 1, sync_every=3)

    def test_theta_is_the_shared_model_and_not_the_local_one(self):
        weights = array.array("f", [1, 2, 3, 4])
        with diloco.Run(self.store, sync_every=9) as run:
            run.tensor("w", weights)
            run.join()
            weights[0] = 7
            run.step()
            self.assertEqual(bytes(run.theta()["w"]), array.array("f", [1, 2, 3, 4]).tobytes())

    def test_private_state_comes_back(self):
        def train(upto):
            weights, count = array.array("f", [0] * 4), array.array("q", [0])
            with diloco.Run(self.store, sync_every=2, rounds=9) as run:
                run.tensor("w", weights)
                run.private("count", count)
                run.join()
                resumed, begin = run.now.resumed, count[0]
                while run.now.step < upto:
                    count[0] += 1
                    run.step()
                run.save()
            return resumed, begin
        self.assertEqual(train(5), (False, 0))
        self.assertEqual(train(8), (True, 5))

    def test_private_state_on_a_device_comes_back(self):
        def train(upto):
            device, weights = Elsewhere(), array.array("f", [0] * 4)
            there, here = array.array("q", [0]), array.array("q", [0])
            with diloco.Run(self.store, sync_every=2, rounds=9) as run:
                run.tensor("w", weights)
                run.device(device)
                run.private("there", device.memory("int64", there))
                run.device(None)
                run.private("here", here)
                run.join()
                begin = there[0], here[0]
                while run.now.step < upto:
                    there[0] += 1
                    here[0] += 2
                    run.step()
                run.save()
            return begin
        self.assertEqual(train(5), (0, 0))
        self.assertEqual(train(8), (5, 10))

    def test_gradient_on_a_device_gives_the_bits_of_one_in_host_memory(self):
        def trained(device):
            weights, gradient = array.array("f", [1, 2, 3, 4]), array.array("f", [0] * 4)
            with diloco.Run(f"{self.store}-{device is None}", preset="data_parallel", rounds=3) as run:
                if device is None:
                    run.tensor("w", weights, gradient=gradient)
                else:
                    run.device(device)
                    run.tensor("w", device.memory("float32", weights),
                               gradient=device.memory("float32", gradient))
                run.join()
                while not run.done:
                    gradient[:] = array.array("f", [w / 3 + run.now.step for w in weights])
                    run.step(samples=1)
            return bytes(weights)
        here = trained(None)
        self.assertEqual(trained(Elsewhere()), here)
        self.assertNotEqual(here, array.array("f", [1, 2, 3, 4]).tobytes())

    def test_state_of_a_store_elsewhere_goes_where_the_program_has_it(self):
        host = socket.gethostname()
        self.assertEqual(_run.state_dir("http://hub:80/team/x/"),
                         os.path.abspath(f"runs/hub-80-team-x.local/{host}"))
        self.assertEqual((_run.state_dir("runs/x"), _run.state_dir("file:///x"),
                          _run.state_dir("mem://x")), ("", "", "none"))

    def test_a_run_stays_where_it_is_if_the_process_goes_elsewhere(self):
        first, other = pathlib.Path(self.store).parent, pathlib.Path(self.store).parent / "other"
        other.mkdir()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(first)
        w = array.array("f", [1])
        with diloco.Run("near", sync_every=1, rounds=2) as run:
            run.tensor("w", w)
            run.join()
            run.step()
            os.chdir(other)
            run.step()
            self.assertTrue(run.done)
        self.assertEqual(list(other.iterdir()), [])
        self.assertEqual(diloco.run(first / "near").verify()["commits"], 2)

    def test_status_and_records_are_rows(self):
        self.replica("r0", 1, sync_every=2, rounds=2,
                     after=lambda run: run.record({"event": "mine", "x": 1}))
        status = diloco.run(self.store).status()
        self.assertEqual((status["entries"], status["done"], status["parameters"]), (2, True, 5))
        self.assertEqual(status["replicas"][0]["replica"], "r0")
        events = [r["event"] for r in diloco.run(self.store).records()]
        self.assertEqual((events.count("commit"), events.count("mine")), (2, 1))

    def test_what_the_log_refuses_is_told_by_its_word(self):
        def live(name, pull, **more):
            self.replica(name, pull, replicas=2, sync_every=2, rounds=2, check__element=10, **more)

        def behind_r1(run):  # entry 1 does not wait for the replica that entry 0 refused
            while run.now.entry == 1 and not (self.store / "c/0000000001/r1.0000").exists():
                time.sleep(0.01)
        in_threads(lambda: live("r0", 1, before_each=behind_r1), lambda: live("r1", 1000))
        status = diloco.run(self.store).status()
        self.assertEqual(status["rejected"], {"bound": 2})
        self.assertEqual([r["rejected"] for r in status["replicas"]], [{}, {"bound": 2}])

    def test_presets_are_rows_and_apply(self):
        rows = {p["name"]: p for p in diloco.presets()}
        self.assertIn("2311.08105", rows["diloco"]["citation"])
        config = diloco.Config(preset="streaming")
        for name, value in rows["streaming"]["values"].items():
            self.assertEqual(diloco.Config({name: value})[name], config[name])
            self.assertEqual(config.origin(name), "preset streaming")


FORK = """
import array, os, sys, diloco
w = array.array("f", [0] * 4)
run = diloco.Run(sys.argv[1], "r0", sync_every=2, rounds=5, options={"run.heartbeat": "0.05"})
run.tensor("w", w)
run.join()
child = os.fork()
if child:
    _, how = os.waitpid(child, 0)
    run.step(samples=1)
    print(how, run.now.position)
sys.exit(0)
"""


class Fork(InScratch):
    def test_a_forked_child_ends_and_the_run_goes_on(self):
        done = subprocess.run([sys.executable, "-c", FORK, str(self.store)], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.stdout, done.returncode), ("0 1\n", 0), done.stderr)


class Errors(InScratch):
    def open(self, **options):
        run = diloco.Run(self.store, **options)
        self.addCleanup(run.close)
        return run

    def test_options(self):
        with self.assertRaisesRegex(diloco.InvalidError, "did you mean"):
            diloco.Config(sync_evry=3)
        with self.assertRaisesRegex(ValueError, "run.replicas"):
            diloco.Config({"run.replicas": "many"})
        with self.assertRaisesRegex(diloco.InvalidError, "preset"):
            diloco.Config(preset="nobody")
        config = diloco.Config({"run.heartbeat": 2}, rounds=7, codec="int8", run__deadline=5)
        self.assertEqual([config[n] for n in ("run.heartbeat", "trainer.rounds", "run.deadline",
                                              "server.diloco.codec")], ["2", "7", "5", "int8"])
        run = self.open(overlap_steps=5, sync_every=5)
        run.tensor("w", array.array("f", [1]))
        with self.assertRaises(diloco.RefusedError):
            run.join()
        with self.assertRaisesRegex(diloco.InvalidError, "replica's name"):
            diloco.Run(self.store, "r 0")

    def test_a_store_or_a_name_of_another_type_is_refused(self):
        for store in (None, 7, ["runs/a"]):
            for call in (diloco.Run, diloco.run):
                with self.assertRaisesRegex(diloco.InvalidError, "store is a .*a folder's path or"):
                    call(store)
        for replica in (0, None, b"r0"):
            with self.assertRaisesRegex(diloco.InvalidError, "replica's name is .*: give a text"):
                diloco.Run(self.store, replica)

    def test_buffers(self):
        run = self.open()
        for data, why in ((b"1234", "format"), (array.array("d", [1]), "float32"),
                          (memoryview(bytes(4)).cast("f"), "read-only"),
                          (array.array("f"), "empty"), (7, "no buffer"),
                          (memoryview(array.array("f", [1, 2, 3, 4]))[::2], "not contiguous")):
            with self.assertRaisesRegex(diloco.InvalidError, why):
                run.tensor("w", data)
        with self.assertRaisesRegex(ValueError, "gradient of w"):
            run.tensor("w", array.array("f", [1]), gradient=array.array("f", [1, 2]))

    def test_counts_that_no_step_has_are_refused(self):
        run = self.open(sync_every=1, rounds=1)
        run.tensor("w", array.array("f", [1]))
        run.join()
        for given in ({"samples": -1}, {"samples": 2**63}, {"tokens": 10**30}, {"samples": 1.5},
                      {"tokens": None}):
            with self.assertRaisesRegex(diloco.InvalidError, f"^{next(iter(given))} = .*whole number"):
                run.step(**given)
        run.step(samples=1, tokens=2**40)
        self.assertTrue(run.done)

    def test_calls_out_of_order(self):
        run = self.open()
        with self.assertRaisesRegex(diloco.InvalidError, "no tensors"):
            run.join()
        with self.assertRaisesRegex(diloco.InvalidError, "needs diloco_run_join first"):
            run.step()
        run.close()
        run.close()
        with self.assertRaises(diloco.ClosedError):
            run.step()

    def test_logs_that_are_not_there(self):
        with self.assertRaises(LookupError):
            diloco.run(self.store).history()
        with self.assertRaises(diloco.UnreachableError):
            diloco.run("http://127.0.0.1:9/run").history()

    def test_what_a_callback_raises_leaves_the_call(self):
        run = self.open(sync_every=1, rounds=1)
        run.tensor("w", array.array("f", [1]))

        def fail(event):
            raise KeyError(event["event"])
        run.on_record(fail)
        with self.assertRaises(KeyError):
            run.join()
        run.close()
        run = self.open(sync_every=1)
        run.tensor("w", array.array("f", [1]))
        run.on_lr(lambda entry: 1 / 0)
        with self.assertRaises(ZeroDivisionError):
            run.join()

    def test_what_the_progress_of_verify_raises_comes_out_of_it(self):
        with self.open(sync_every=1, rounds=4) as run:
            run.tensor("w", array.array("f", [1]))
            run.join()
            while not run.done:
                run.step()
        for kind in (KeyError, KeyboardInterrupt):
            told = []

            def progress(done, total):
                told.append(done)
                raise kind(done)
            with self.assertRaises(kind) as raised:
                diloco.run(self.store).verify(progress=progress)
            self.assertEqual(raised.exception.args, (told[0],))
            self.assertEqual(len(told), 1)

    def test_the_end_of_a_log_is_read_alone(self):
        with self.open(sync_every=1, rounds=4) as run:
            run.tensor("w", array.array("f", [1]))
            run.join()
            while not run.done:
                run.step(loss=1.0)
        log = diloco.run(self.store)
        self.assertEqual([row["entry"] for row in log.history(last=2)], [2, 3])
        self.assertEqual(log.history(last=9), log.history())
        for begin, last, why in ((0, 0, "at least 1"), (1, 2, "give one")):
            with self.assertRaisesRegex(diloco.InvalidError, why):
                log.history(begin, last)
        # Of so short a run the only snapshot is the last one, so all of it is verified.
        self.assertEqual(log.verify(from_snapshot=True), log.verify())

    def test_the_library_is_looked_for_where_the_environment_says(self):
        empty = self.store.parent / "empty"
        empty.mkdir()
        for where, why in (("/nowhere", "does not exist"), (str(empty), "does not exist"),
                           (sys.executable, "does not load")):
            done = subprocess.run([sys.executable, "-c", "import diloco; diloco.Config()"],
                                  env={**os.environ, "DILOCO_LIBRARY": where},
                                  capture_output=True, text=True)
            self.assertIn("LibraryError", done.stderr)
            self.assertIn(why, done.stderr)
            self.assertEqual("DILOCO_LIBRARY" in done.stderr, why == "does not exist", done.stderr)


class Words(InScratch):
    """The texts for a reader of a run and of the package."""

    def finish(self, **options):
        with diloco.Run(self.store, "r0", QUICK, sync_every=1, rounds=1, **options) as run:
            run.tensor("w", array.array("f", [1]))
            run.join()
            run.step()

    def test_a_run_without_reports_has_no_loss(self):
        with self.assertLogs("diloco", "INFO") as logs:
            self.finish()
        lines = [line for line in logs.output if "entry 0" in line]
        self.assertEqual(len(lines), 1)
        self.assertIn("no loss", lines[0])
        said = subprocess.check_output([_program.path(), "log", self.store], text=True)
        self.assertIn("no loss", said)
        self.assertNotIn("nan", said)

    def test_status_says_that_the_model_is_pythons(self):
        self.finish()
        self.assertEqual(diloco.run(self.store).status()["model"], "python")

    def test_a_run_of_another_model_name_keeps_it(self):
        self.finish(model_name="theirs")
        with diloco.Run(self.store, "r1", QUICK) as run:
            run.tensor("w", array.array("f", [1]))
            run.join()
        self.assertEqual(diloco.run(self.store).status()["model"], "theirs")

    def test_help_begins_with_what_trains(self):
        text = pydoc.plain(pydoc.render_doc(diloco))
        self.assertLess(text.index("DiLoCoOptimizer"), text.index("Error"))
        self.assertNotIn("class FencedError", text)
        self.assertIn("class Error(", pydoc.plain(pydoc.render_doc(diloco.errors)))
        everything = {}
        exec("from diloco import *", everything)
        self.assertIs(everything["FencedError"], diloco.FencedError)


class Talk(InScratch):
    def test_the_librarys_lines_go_to_pythons_logger(self):
        with self.assertLogs("diloco", logging.WARNING) as lines:
            with diloco.Run(self.store, "nobody", replicas=2) as run:
                run.tensor("w", array.array("f", [1]))
                run.join()
        self.assertIn("has no number in its name", lines.output[0])

    def test_the_record_is_told_as_events(self):
        events = []
        with diloco.Run(self.store, sync_every=1, rounds=2) as run:
            run.tensor("w", array.array("f", [1]))
            run.on_record(events.append)
            run.join()
            while not run.done:
                run.step(loss=2)
        self.assertEqual([e["entry"] for e in events if e["event"] == "commit"], [0, 1])
        self.assertTrue(json.dumps(events))
        end, traffic = events[-2:]
        self.assertEqual([end["event"], traffic["event"]], ["end", "traffic"])
        self.assertFalse(math.isnan(end["utilization"]))
        self.assertGreater(traffic["sent"]["first_model"], 0)

    def probed(self, fn, **options):
        w = array.array("f", [0])
        with diloco.Run(self.store, "r0", {"check.probe": 2}, sync_every=1, rounds=2, **options) as run:
            run.tensor("w", w)
            run.on_probe(fn)
            run.join()
            while not run.done:
                w[0] += 1
                run.step(loss=0)

    def test_a_probe_sees_models_that_are_no_replica_s(self):
        seen = []

        def loss(model):
            seen.append(list(memoryview(model["w"])))
            return abs(10 - seen[-1][0])
        self.probed(loss, outer_optimizer="sgd", outer_lr=1)
        self.assertEqual(seen, [[0], [1], [1], [2]])  # theta and the contribution, of two entries
        with self.assertRaises(ZeroDivisionError):
            self.store = self.store.with_name("raises")
            self.probed(lambda _: 1 / 0)

    def test_the_outer_learning_rate_may_follow_a_schedule(self):
        with diloco.Run(self.store, sync_every=1, rounds=3, outer_optimizer="sgd") as run:
            w = array.array("f", [0])
            run.tensor("w", w)
            run.on_lr(lambda entry: [1, .5, 0, 0][entry])
            run.join()
            for expected in (1, 1.5, 1.5):
                w[0] += 1
                run.step()
                self.assertEqual(w[0], expected)


class OuterOptimizers(InScratch):
    def heavy_ball(self, name="heavy-ball", say=lambda n: None):
        calls = []

        def step(s):
            calls.append((s.fragment, s.commits, s.learning_rate))
            say(len(calls))
            v = s.vectors["momentum"]
            for i, g in enumerate(s.g):
                v[i] = s.momentum * v[i] + g
                s.theta[i] -= s.learning_rate * v[i]
        return diloco.OuterOptimizer(name, step, ["momentum"]), calls

    def replica(self, name, outer, **options):
        options = {"sync_every": 2, "rounds": 3, **options}
        weights = array.array("f", [0] * 5)
        with diloco.Run(self.store, name, QUICK, outer_optimizer=outer, **options) as run:
            run.tensor("w", weights)
            run.join()
            train(run, weights, 1)
            return list(memoryview(run.theta()["w"])), run.verify()

    def test_lib_10_it_is_called_once_per_committed_fragment(self):
        outer, calls = self.heavy_ball()
        theta, report = self.replica("r0", outer, outer_lr=0.5)
        self.assertEqual(calls[:3], [(0, n, 0.5) for n in range(3)])
        self.assertEqual(len(calls), 6)  # once more by the replay of verify
        self.assertTrue(report["complete"])
        self.assertEqual((report["commits"], report["voids"]), (3, 0))
        with self.assertRaisesRegex(diloco.RefusedError, "user:heavy-ball"):
            diloco.run(self.store).verify()

    def test_replicas_of_it_end_with_one_model(self):
        ends = {}

        def live(name):
            ends[name] = self.replica(name, self.heavy_ball()[0], replicas=2, min_replicas=2)[0]
        in_threads(lambda: live("r0"), lambda: live("r1"))
        self.assertEqual(ends["r0"], ends["r1"])
        self.assertNotEqual(ends["r0"][0], 0)

    def test_who_lacks_it_is_refused_by_name(self):
        self.replica("r0", self.heavy_ball()[0])
        with self.assertRaisesRegex(diloco.RefusedError, "user:heavy-ball"):
            self.replica("r1", None)
        with self.assertRaisesRegex(diloco.DiffersError, "user:heavy-ball in the run, user:other"):
            self.replica("r1", self.heavy_ball("other")[0])
        with self.assertRaisesRegex(diloco.InvalidError, "is not a valid name"):
            self.replica("r1", self.heavy_ball("no name")[0])
        with self.assertRaisesRegex(diloco.InvalidError, "at most 2 vectors"):
            self.replica("r1", diloco.OuterOptimizer("many", print, ["a", "b", "c"]))

    def test_the_program_refuses_such_a_run_by_name(self):
        self.replica("r0", self.heavy_ball()[0])
        program = pathlib.Path(os.environ.get("DILOCO_BUILD", "/nowhere")) / "diloco"
        if not program.exists():
            self.skipTest("no program was built")
        for arguments in (["verify"], ["join", "--set", "data.train_path=/dev/null"]):
            ran = subprocess.run([program, *arguments, self.store], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 3, ran.stderr)
            self.assertIn("user:heavy-ball is supplied by a program", ran.stderr)
        ran = subprocess.run([program, "log", self.store], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)  # commands that do not compute can read it

    def test_what_it_raises_comes_out_of_the_step(self):
        def say(n):
            raise KeyError(n)
        for overlap in ({}, {"overlap_steps": 1}):
            self.store = self.store.with_name(f"raises-{len(overlap)}")
            with self.subTest(overlap), self.assertRaises(KeyError):
                self.replica("r0", self.heavy_ball(say=say)[0], **overlap)

    def interrupted(self, name, signals, outer_of):
        """A replica whose second outer step gets signals. Returns the results of its steps and its
        model."""
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, former)  # ignored: a shell's background job
        raised, weights = [], array.array("f", [0] * 5)

        def say(n):
            for _ in range(signals if n == 2 else 0):
                os.kill(os.getpid(), signal.SIGINT)
        with diloco.Run(self.store.with_name(name), "r0", QUICK, sync_every=2, rounds=3,
                        outer_optimizer=outer_of(say)[0]) as run:
            run.tensor("w", weights)
            run.join()
            while not run.done:
                for i in range(5):
                    weights[i] += 1
                try:
                    run.step()
                except KeyboardInterrupt as error:
                    raised.append(type(error))
                    if signals == 1:
                        run.wait()
                    else:
                        break
            return raised, list(weights), signal.getsignal(signal.SIGINT)

    def test_ctrl_c_during_it_waits_for_its_end_and_the_run_goes_on(self):
        def outer_of(say):
            return self.heavy_ball(say=say)
        _, whole, _ = self.interrupted("whole", 0, outer_of)
        raised, end, handler = self.interrupted("stopped", 1, outer_of)
        self.assertEqual(raised, [KeyboardInterrupt])
        self.assertEqual(end, whole)
        self.assertIs(handler, signal.default_int_handler)

    def test_a_second_ctrl_c_during_it_ends_it(self):
        raised, _, handler = self.interrupted("twice", 2, lambda say: self.heavy_ball(say=say))
        self.assertEqual(raised, [KeyboardInterrupt])
        self.assertIs(handler, signal.default_int_handler)

    def test_ctrl_c_and_a_number_gone_wrong(self):
        def outer_of(say):
            def both(n):
                say(n)
                if n == 2:
                    raise diloco.NumericError("a NaN")
            return self.heavy_ball(say=both)
        raised, _, _ = self.interrupted("both", 1, outer_of)
        self.assertEqual(raised, [KeyboardInterrupt])
        log = diloco.run(self.store.with_name("both")).history()
        self.assertEqual([bool(e["commit"]) for e in log][:3], [True, False, True])

    def test_a_number_gone_wrong_aborts_the_entry(self):
        def say(n):
            if n == 2:
                raise diloco.NumericError("a NaN")
        outer, calls = self.heavy_ball(say=say)
        _, report = self.replica("r0", outer)
        self.assertEqual((report["commits"], report["aborts"]), (2, 1))
        self.assertEqual([c[1] for c in calls[:3]], [0, 1, 1])


class Halves(InScratch):
    def live(self, store, halves):
        weights = array.array("f", [0] * 5)
        with diloco.Run(store, "r0", QUICK, sync_every=2, rounds=3) as run:
            run.tensor("w", weights)
            if halves:
                run.split()
            run.join()
            while not run.done:
                weights[0] += 1
                if not halves:
                    run.step(loss=0)
                elif run.prepare(loss=0):
                    run.perform()
        return list(weights)

    def test_prepare_and_perform_are_step(self):
        whole = self.live(self.store, False)
        self.assertEqual(self.live(self.store.with_name("halves"), True), whole)


if __name__ == "__main__":
    unittest.main()
