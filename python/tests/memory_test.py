"""memory_test.py - memory is full at each new tensor of a join, an exchange, a save and an adoption.
The error names the place, no half-adopted model trains on or is saved, and a restart is bitwise. Skips
itself (77) without torch."""
import contextlib
import json
import sys
import unittest
from unittest import mock

try:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from diloco import _copies, _diloco, _place, _torch
from late_device import NO_MEMORY, Full, Late
from torch_world import QUICK, InScratch, adamw

TEXT = "CUDA out of memory. Tried to allocate 2.00 GiB."


class Pair(torch.nn.Module):
    """Parameters in another memory order and in bfloat16: the run has copies of them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.first = torch.nn.Conv2d(2, 2, (1, 2), bias=False).to(memory_format=torch.channels_last)
        self.second = torch.nn.Linear(2, 1, bias=False).bfloat16()

    def forward(self, x):
        return self.second(self.first(x).sum((2, 3)).bfloat16()).float()


class Scarce(TorchDispatchMode):
    """Memory that is full at one new tensor, the n-th."""

    def __init__(self, n):
        super().__init__()
        self.n_left = n

    def __torch_dispatch__(self, func, _types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        new = any(str(r.type) == "Tensor" and r.alias_info is None for r in func._schema.returns)
        if new and isinstance(made, torch.Tensor) and not made.is_meta:
            self.take()
        return made

    def take(self):
        self.n_left -= 1
        if self.n_left == 0:
            raise NO_MEMORY(TEXT)


@contextlib.contextmanager
def full_at(n):
    """All calls of a binding share memory that is full at its n-th new tensor or room."""
    scarce = Scarce(n)

    def room(*args, _call=_copies.Room.__init__):
        scarce.take()
        _call(*args)
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(_copies.Room, "__init__", room))
        for name in ("__init__", "step", "save"):
            def within(*args, _call=getattr(_torch.Binding, name), **more):
                with scarce:
                    return _call(*args, **more)
            stack.enter_context(mock.patch.object(_torch.Binding, name, within))
        yield


@contextlib.contextmanager
def full_at_copy(n):
    """The device's memory is full at the n-th copy to it."""
    with mock.patch.object(_copies, "queue", Full(1, n)):
        yield


class FullMemory(InScratch):
    def setUp(self):
        super().setUp()
        late = mock.patch.object(_copies, "queue", Late(1))
        late.start()
        self.addCleanup(late.stop)

    def start(self, store, **options):
        self.model, self.opt = Pair(), None
        self.opt = diloco.DiLoCoOptimizer(self.model, adamw(self.model), store, options=QUICK,
                                          sync_every=2, rounds=2, **options)
        self.addCleanup(self.opt.close)

    def train(self, upto=4):
        while not self.opt.done and self.opt.run.now.step < upto:
            step = self.opt.run.now.step
            x = torch.randn(4, 2, 2, 2, generator=torch.Generator().manual_seed(step))
            self.opt.zero_grad()
            (self.model(x) - x.sum((1, 2, 3))[:, None]).pow(2).mean().backward()
            self.opt.step()
            if step == 0:
                self.opt.save()

    def values(self):
        return [p.detach().clone() for p in self.model.parameters()]

    def live(self, store, **options):
        self.start(store, **options)
        self.train()
        self.opt.close()
        return self.values()

    def ended_by(self, memory, store, **options):
        """The error that ends a training, or None."""
        try:
            with memory:
                self.start(store, **options)
                self.train()
        except NO_MEMORY as error:
            return error
        return None

    def check_each(self, full, **options):
        """The errors' first words, in the order of their places."""
        plain, words = self.live(f"{self.store}-plain", **options), []
        for n in range(1, 1000):
            store = f"{self.store}-{n}"
            error = self.ended_by(full(n), store, **options)
            if error is None:
                self.assertEqualTensors(self.values(), plain)
                return list(dict.fromkeys(words))
            with self.subTest(n=n, error=str(error)):
                self.assertIsInstance(error, MemoryError)
                what, _, reason = str(error).partition(": ")
                self.assertEqual(reason, TEXT)
                words.append(what)
                if self.opt is not None:
                    self.assertFalse(self.opt.done)
                    with contextlib.suppress(diloco.InvalidError):
                        self.train(10**6)  # as a loop that catches the error and continues
                        self.assertEqualTensors(self.values(), plain)
                    self.opt.close()
                self.assertEqualTensors(self.live(store, **options), plain)
        return None

    def test_at_each_new_tensor_the_error_names_the_place_and_the_restart_is_bitwise(self):
        for options in ({}, {"overlap_steps": 1}):
            with self.subTest(options):
                self.store = self.store.with_name(f"run{len(options)}")
                words = self.check_each(full_at, **options)
                for what in ("keep the state of AdamW in host memory (65680 bytes)",
                             "keep copies of the model in host memory (128 bytes)",
                             "copy first.weight (32 bytes) from cpu to host memory",
                             "save torch.optimizer"):
                    self.assertIn(f"no memory to {what}", words)

    def test_at_each_copy_to_the_device_no_half_adopted_model_goes_on(self):
        for options in ({}, {"overlap_steps": 1}):
            with self.subTest(options):
                self.store = self.store.with_name(f"copy{len(options)}")
                self.assertEqual(self.check_each(full_at_copy, **options), [
                    "no memory to copy first.weight (32 bytes) from host memory to cpu",
                    "no memory to copy second.weight (4 bytes) from host memory to cpu"])

    def test_an_adoption_that_stopped_halfway_is_refused_until_it_is_repeated(self):
        self.start(self.store)
        self.train(3)
        with self.assertRaisesRegex(diloco.NoMemoryError, "copy second.weight"), full_at_copy(2):
            self.opt.adopt()
        before = self.values()
        for call in (self.opt.step, self.opt.save):
            with self.assertRaisesRegex(diloco.InvalidError,
                                        "adoption of the shared model was ended by OutOfMemoryErr.*"
                                        "call adopt.. once more, or close this replica and start"):
                call()
        self.assertEqualTensors(self.values(), before)
        self.opt.adopt()
        self.train()
        self.assertTrue(self.opt.done)

    def interrupted(self):
        """An exchange that has been ended while it waited for another replica."""
        self.start(self.store, replicas=2)
        self.opt.step()
        self.opt.run.interrupt()
        with self.assertRaises(diloco.Interrupted):
            self.opt.step()

    def test_an_adoption_that_stopped_halfway_after_an_interrupt_is_not_saved(self):
        self.interrupted()
        self.opt.save()
        for _ in range(2):
            with self.assertRaisesRegex(diloco.NoMemoryError, "copy second.w"), full_at_copy(2):
                self.opt.adopt()
            for call in (self.opt.save, self.opt.step, self.opt.binding.wait):
                with self.assertRaisesRegex(diloco.InvalidError,
                                            "adoption of the shared model was ended by OutOf.*"
                                            "call adopt.. once more"):
                    call()

    def test_an_adoption_after_an_interrupt_leaves_the_exchange_to_be_waited_for(self):
        self.interrupted()
        with self.assertRaises(diloco.NoMemoryError), full_at_copy(2):
            self.opt.adopt()
        self.opt.adopt()
        before = self.values()
        with self.assertRaisesRegex(diloco.InvalidError, "exchange of the last step was ended by "
                                                         "Interrupted: call binding.wait"):
            self.opt.step()
        self.assertEqualTensors(self.values(), before)
        self.opt.save()  # the model is whole

    def test_a_step_that_was_not_counted_is_no_wait_and_no_adoption_away(self):
        self.start(self.store)
        with self.assertRaisesRegex(diloco.NoMemoryError, "copy the loss"), \
                mock.patch.object(_copies.queue, "loss", side_effect=NO_MEMORY(TEXT)):
            self.opt.step()
        self.opt.adopt()
        for call in (self.opt.binding.wait, self.opt.step, self.opt.save):
            with self.assertRaisesRegex(diloco.InvalidError, "count of a step was ended by OutOfM.*"
                                                             ": close this replica and start"):
                call()

    def test_a_save_without_memory_in_python_keeps_the_former_one_and_training_continues(self):
        plain = self.live(f"{self.store}-plain")
        self.start(self.store)
        self.train(1)
        with self.assertRaisesRegex(diloco.NoMemoryError, "save torch.optimizer: Python's Mem"), \
                mock.patch.object(json, "dumps", side_effect=MemoryError):
            self.opt.save()
        self.train()
        self.assertEqualTensors(self.values(), plain)

    def test_a_join_without_memory_leaves_no_run_open(self):
        with self.assertRaises(diloco.NoMemoryError) as kept, full_at_copy(2):
            self.start(self.store)
        self.assertIsNotNone(kept.exception)  # a notebook keeps it, and with it the binding
        self.start(self.store)
        self.train()
        self.assertTrue(self.opt.done)


class Alone:
    """A manager of one replica: a mean of one is the value itself."""

    def __init__(self):
        self.step = 0

    def allreduce(self, tensor, should_quantize=False):
        return self

    def wait(self):
        pass

    def start_quorum(self):
        pass

    def should_commit(self):
        self.step += 1
        return True

    def current_step(self):
        return self.step


class OverAManager(unittest.TestCase):
    def live(self, outer=None):
        """The parameters at the end, and the errors in their order. It continues after each, by adopt()
        if the class demands it."""
        model, raised = Pair(), []
        inner = torch.optim.SGD(model.parameters(), lr=.1)
        with diloco.DiLoCo(Alone(), [model], inner, outer and outer(model.parameters()),
                           sync_every=2) as sync:
            for step in range(4):
                x = torch.randn(4, 2, 2, 2, generator=torch.Generator().manual_seed(step))
                inner.zero_grad()
                (model(x) - x.sum((1, 2, 3))[:, None]).pow(2).mean().backward()
                try:
                    inner.step()
                except NO_MEMORY as error:
                    raised.append(error)
                except diloco.InvalidError as error:
                    raised.append(error)
                    if "call adopt" not in str(error):
                        break
                    sync.adopt()
                    inner.step()
        sync.close()
        return [p.detach().clone() for p in model.parameters()], raised

    def test_a_parameter_that_was_not_restored_is_refused_until_it_is_adopted(self):
        plain, _ = self.live()
        written = []

        def write(copies, host, tensor, first, n, _write=_place.StagedCopies.write):
            written.append(tensor)
            with Scarce(1) if len(written) == 1 else contextlib.nullcontext():
                _write(copies, host, tensor, first, n)
        with mock.patch.object(_place.StagedCopies, "write", write):
            _, raised = self.live()
        self.assertRegex(str(raised[0]), "no memory to copy first.weight from host memory to cpu")
        self.assertRegex(str(raised[1]), "to the parameters was not completed: free memory and call")
        self.assertEqual(len(raised), 2)

    def test_an_outer_step_that_was_not_completed_ends_the_replica(self):
        def outer(parameters):
            return torch.optim.SGD(parameters, lr=.7)
        with mock.patch.object(_diloco._TorchOuter, "_step", side_effect=NO_MEMORY(TEXT)):
            _, raised = self.live(outer)
        self.assertRegex(str(raised[0]), "no memory to take the outer step of fragment 0: CUDA out of")
        self.assertRegex(str(raised[1]), "outer step of a committed entry was not completed")
        self.assertEqual(len(raised), 2)


if __name__ == "__main__":
    unittest.main()
