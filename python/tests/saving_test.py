"""saving_test.py - a replica's private state is packed when it is saved, and only then. Skips
itself (77) without torch."""
import concurrent.futures
import ctypes
import itertools
import mmap
import pathlib
import random
import signal
import sys
import threading
import time
import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
import forks
from diloco import _copies, _state
from torch_world import QUICK, InScratch, adamw, inner_step, small, values


class Saving(InScratch):
    def counted(self):
        """The calls of InnerState.pack: whether each is into the piece's own room."""
        calls, pack = [], _state.InnerState.pack

        def counting(state, room=None):
            own = state.room().data_ptr()
            calls.append(room is None or room.data_ptr() == own)
            pack(state, room)
        patch = mock.patch.object(_state.InnerState, "pack", counting)
        patch.start()
        self.addCleanup(patch.stop)
        return calls

    def train(self, model, opt, upto=10**6):
        while not opt.done and opt.run.now.step < upto:
            inner_step(model, opt, 0, opt.run.now.step)

    def test_stops_that_do_not_save_pack_nothing(self):
        for delay, save_every, n in ((0, 1, 4), (0, 2, 2), (2, 1, 4), (2, 3, 2)):
            with self.subTest(delay=delay, save_every=save_every):
                self.store = self.store.with_name(f"{delay}-{save_every}")
                calls, model = self.counted(), small()
                opt = self.optimizer(model, sync_every=4, rounds=4, overlap_steps=delay,
                                     run__save_every=save_every)
                self.train(model, opt)
                self.assertEqual(len(calls), n)

    def test_with_overlap_it_is_packed_into_the_copy_that_is_written(self):
        calls, model = self.counted(), small()
        opt = self.optimizer(model, sync_every=4, rounds=3, overlap_steps=2)
        self.train(model, opt)
        self.assertEqual(calls, [False] * 3)
        self.assertFalse(opt.binding._private["torch.optimizer"].room().any())

    def pages(self, opt):
        """The pages in memory of the place from which the optimizer's state is restored."""
        room = opt.binding._private["torch.optimizer"].room()
        begin = room.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
        size = room.data_ptr() + room.numel() - begin
        found = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        self.assertEqual(ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(size),
                                                   found), 0)
        return sum(page & 1 for page in found)

    def test_the_place_of_a_resume_takes_memory_only_while_it_joins(self):
        model = small()
        opt = self.optimizer(model, sync_every=4, rounds=4, overlap_steps=2)
        self.train(model, opt, upto=9)
        opt.save()
        self.assertEqual(self.pages(opt), 0)
        opt.close()
        opt = self.optimizer(model, sync_every=4, rounds=4, overlap_steps=2)
        self.assertTrue(opt.binding.resumed)
        self.assertEqual(self.pages(opt), 0)

    def test_moments_in_host_memory_are_copied_by_one_call(self):
        calls, model = [], small()
        copy_host = _copies.copy_host
        opt = self.optimizer(model, sync_every=4, rounds=2)
        with mock.patch.object(_copies, "copy_host",
                               lambda pairs: (calls.append(len(pairs)), copy_host(pairs))):
            self.train(model, opt)
        self.assertEqual(calls, [3 * len(list(model.parameters()))] * 2)  # two moments, the step

    def test_a_replica_resumes_from_it_to_the_bit(self):
        for overlap in (0, 2):
            with self.subTest(overlap=overlap):
                options = dict(sync_every=4, rounds=4, overlap_steps=overlap)
                whole = small()
                self.store = self.store.with_name(f"whole{overlap}")
                self.train(whole, self.optimizer(whole, **options))
                self.store = self.store.with_name(f"stopped{overlap}")
                model = small()
                opt = self.optimizer(model, **options)
                self.train(model, opt, upto=9)
                opt.close()  # saves nothing: the last due point did
                again = small(3)
                opt = self.optimizer(again, **options)
                self.assertTrue(opt.binding.resumed)
                self.train(again, opt)
                self.assertEqualTensors(values(again), values(whole))

    def both(self, models):
        """Two replicas in threads, to the end of the run."""
        def live(r):
            opt = self.optimizer(models[r], replica=f"r{r}", replicas=2, sync_every=4, rounds=3)
            while not opt.done:
                inner_step(models[r], opt, r, opt.run.now.step)
            opt.close()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(live, range(2)))

    def test_a_replica_that_was_stopped_while_it_waited_resumes_from_it_to_the_bit(self):
        whole = [small(7), small(7)]
        self.store = self.store.with_name("whole")
        self.both(whole)
        self.store = self.store.with_name("stopped")
        model = small(7)
        opt = self.optimizer(model, replica="r0", replicas=2, sync_every=4, rounds=3)

        def interrupt():
            while not list(self.store.glob("c/0000000000/r0.*")):
                time.sleep(0.01)
            opt.binding._run.interrupt()
        waiting = threading.Thread(target=interrupt, daemon=True)
        waiting.start()
        with self.assertRaises(diloco.Interrupted):
            while True:
                inner_step(model, opt, 0, opt.run.now.step)
        waiting.join()
        opt.close()
        again = [small(3), small(3)]
        self.both(again)  # r0 joins at the due point, and saves once more
        self.assertEqualTensors(values(again[0]), values(whole[0]))

    def test_a_state_that_cannot_be_packed_fails_the_step_with_its_own_error(self):
        def widen(state):
            state["exp_avg"] = state["exp_avg"].double()
        changes = ((widen, "changed the shape of exp_avg"),
                   (lambda state: state.update(late=torch.zeros(3)), "began to keep late"),
                   (lambda state: state.pop("exp_avg"), "ceased to keep exp_avg"))
        for overlap, (change, text) in itertools.product((0, 1), changes):
            with self.subTest(text, overlap=overlap):
                self.store = self.store.with_name(f"run{overlap}{len(text)}")
                model = small()
                inner = adamw(model)
                opt = self.optimizer(model, inner, sync_every=2, rounds=2, overlap_steps=overlap)
                inner_step(model, opt, 0, 0)
                change(inner.state[next(model.parameters())])
                with mock.patch.object(inner, "step", lambda: None):
                    with self.assertRaisesRegex(diloco.RefusedError, f"AdamW {text}"):
                        opt.step()


# A replica that kills itself, as kill -9 does, at the point that its last argument names.
REPLICA = """
import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
import diloco
from diloco import _state
from torch_world import QUICK, adamw, inner_step, small, values

store, point, number = sys.argv[2], sys.argv[3], int(sys.argv[4])
reached = 0

def reach(here):
    global reached
    reached += here == point
    if here == point and reached == number:
        os.kill(os.getpid(), signal.SIGKILL)

pack = _state.InnerState.pack
def pack_and_reach(state, room=None):
    reach("before the moments")
    pack(state, room)
    reach("after the moments")
_state.InnerState.pack = pack_and_reach
model = small()
with diloco.DiLoCoOptimizer(model, adamw(model), store, "r0", sync_every=4, rounds=5,
                            overlap_steps=2, options=QUICK) as opt:
    while not opt.done:
        inner_step(model, opt, 0, opt.run.now.step)
        reach("a step")
pathlib.Path(store + ".values").write_bytes(b"".join(v.numpy().tobytes() for v in values(model)))
"""


class Killed(InScratch):
    def setUp(self):
        super().setUp()
        self.script = self.store.with_name("replica.py")
        self.script.write_text(REPLICA)
        self.interpreter = forks.Interpreter("torch", "torch._dynamo")
        self.addCleanup(self.interpreter.close)

    def live(self, store, point="", number=0):
        """Run one process of the replica; its exit code."""
        tests = pathlib.Path(__file__).resolve().parent
        replica = self.interpreter.start([self.script, tests, store, point, number], store.parent)
        self.assertEqual(replica.communicate()[0], "")
        return replica.returncode

    def test_a_replica_killed_during_overlap_resumes_to_the_bit(self):
        whole = self.store.with_name("whole")
        self.assertEqual(self.live(whole), 0)
        want = whole.with_name("whole.values").read_bytes()
        points = [("before the moments", 3), ("after the moments", 1)]
        points += [("a step", n) for n in (9, 11)]  # during the second overlap, and after it
        for i, (point, number) in enumerate(points):
            with self.subTest(point=point, number=number):
                store = self.store.with_name(f"killed{i}")
                self.assertEqual(self.live(store, point, number), -signal.SIGKILL)
                self.assertEqual(self.live(store), 0)
                self.assertEqual(store.with_name(f"killed{i}.values").read_bytes(), want)


class HostCopies(unittest.TestCase):
    def test_moves_are_cut_into_parts_that_have_each_byte_once(self):
        draw = random.Random(5)
        for n in (1, 2, 3, 8):
            sizes = [draw.choice((0, 1, 63, 4096, 100_000)) for _ in range(draw.randrange(12))]
            begins = [1000 + sum(sizes[:i]) for i in range(len(sizes))]
            parts = _copies.parts_of([(b, 7 + b, size) for b, size in zip(begins, sizes)], n)
            self.assertLessEqual(len(parts), n)
            at, each = 1000, -(-sum(sizes) // n)
            for part in parts:
                self.assertLessEqual(sum(size for _, _, size in part), each)
                for target, source, size in part:
                    self.assertEqual((target, source), (at, at + 7) if size else (target, target + 7))
                    at += size
            self.assertEqual(at, 1000 + sum(sizes))

    def test_copied_values_are_equal_for_every_number_of_threads(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        sources = [torch.randn(3_000_001), torch.empty(0), torch.tensor(7.0, dtype=torch.float64),
                   torch.arange(9, dtype=torch.int64), torch.randn(1000, 700).bfloat16()]
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            targets = [torch.zeros_like(s) for s in sources]
            _copies.copy_host(list(zip(targets, sources)))
            for t, s in zip(targets, sources):
                self.assertTrue(torch.equal(t, s))


class OwnRun(InScratch):
    def own(self, keep, **options):
        run = diloco.Run(self.store, "r0", QUICK, _model="torch", sync_every=2, rounds=4, **options)
        self.addCleanup(run.close)
        model = small()
        opt = diloco.DiLoCoOptimizer(model, adamw(model), run, keep_inner_state=keep)
        self.addCleanup(opt.close)
        return model, opt

    def test_a_run_of_the_callers_own_saves_every_n_entries(self):
        calls, pack = [], _state.InnerState.pack
        with mock.patch.object(_state.InnerState, "pack",
                               lambda *a: (calls.append(1), pack(*a))[1]):
            model, opt = self.own("entry:2", run__save_every=2)
            while not opt.done:
                inner_step(model, opt, 0, opt.run.now.step)
        self.assertEqual(len(calls), 2)

    def test_a_run_that_saves_at_other_entries_is_refused_by_the_option(self):
        with self.assertRaisesRegex(diloco.InvalidError,
                                    "saves every 3 entries.*run__save_every=2"):
            self.own("entry:2", run__save_every=3)


if __name__ == "__main__":
    unittest.main()
