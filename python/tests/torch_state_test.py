"""torch_state_test.py - inner optimizers' states, random generators and extra states come back as
they were saved. Skips itself (77) without torch."""
import collections
import contextlib
import sys
import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from diloco import _state, _torch
from torch_world import adamw, inner_step, small, values


class InnerStates(unittest.TestCase):
    OPTIMIZERS = [("SGD", {}), ("SGD", {"momentum": .9}), ("Adam", {"amsgrad": True}),
                  ("AdamW", {}), ("NAdam", {}), ("RAdam", {}), ("RMSprop", {"centered": True}),
                  ("Adagrad", {}), ("Adadelta", {}), ("Adamax", {}), ("ASGD", {}), ("Rprop", {}),
                  ("Adafactor", {})]

    def test_the_state_is_known_before_the_first_step(self):
        both = self.OPTIMIZERS + [("AdamW", {"fused": True}), ("SGD", {"fused": True})]
        for name, options in both:
            model = small()
            inner = getattr(torch.optim, name)(model.parameters(), lr=.01, **options)
            before = _state.slots_of(inner)
            inner_step(model, inner, 0, 0)
            self.assertEqual(before, _state.slots_of(inner), name)

    def test_what_is_packed_comes_back(self):
        for name, options in self.OPTIMIZERS:
            model = small()
            inner = getattr(torch.optim, name)(model.parameters(), lr=.01, **options)
            state = _state.InnerState(inner, _torch.Island())
            inner_step(model, inner, 0, 0)
            state.pack()
            twin = small()
            twin.load_state_dict(model.state_dict())
            other = getattr(torch.optim, name)(twin.parameters(), lr=.5, **options)
            theirs = _state.InnerState(other, _torch.Island())
            theirs.room()[:] = state.room()
            theirs.unpack()
            for m, o in ((model, inner), (twin, other)):
                inner_step(m, o, 0, 1)
            for a, b in zip(values(model), values(twin)):
                self.assertTrue(torch.equal(a, b), name)

    def test_a_scheduler_on_the_optimizer_does_no_harm(self):
        model = small()
        inner = adamw(model)
        torch.optim.lr_scheduler.StepLR(inner, 1)
        before = values(model)
        self.assertEqual(len(_state.slots_of(inner)), 12)
        for a, b in zip(before, values(model)):
            self.assertTrue(torch.equal(a, b))
        self.assertFalse(inner.state)

    def test_an_optimizer_that_looks_at_values(self):
        class Looks(torch.optim.SGD):
            def step(self, closure=None):
                if self.param_groups[0]["params"][0].sum().item() >= 0:
                    super().step(closure)
        model = small()
        inner = Looks(model.parameters(), lr=1, momentum=.9)
        self.assertEqual({s.name for s in _state.slots_of(inner)}, {"momentum_buffer"})

    def test_a_state_comes_back_where_it_was(self):
        """The meta device stands for CUDA: it is not the CPU."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(3, 3, device="meta"))
                self.scale = torch.nn.Parameter(torch.ones([], device="meta"))

        def places(inner):
            return [{name: v.device.type for name, v in sorted(inner.state[p].items())
                     if isinstance(v, torch.Tensor)} for p in _state.all_parameters(inner)]

        def resumed(name, **options):
            inner = getattr(torch.optim, name)(Model().parameters(), lr=.01, **options)
            if name != "Adagrad":  # which has its state at once
                inner.state.clear()
            state = _state.InnerState(inner, _torch.Island())
            state.room()[:len(_state.all_parameters(inner))] = 1
            state._groups._take = lambda saved: None
            state.unpack()
            return inner
        for name, options in self.OPTIMIZERS:
            live = getattr(torch.optim, name)(Model().parameters(), lr=.01, **options)
            for p in _state.all_parameters(live):
                p.grad = torch.zeros_like(p)
            try:
                live.step()
            except RuntimeError:  # it looks at values, which are not on the meta device
                continue
            with self.subTest(name):
                self.assertEqual(places(resumed(name, **options)), places(live))
        for name in ("AdamW", "NAdam", "RAdam", "ASGD", "Rprop", "RMSprop"):
            with self.subTest(name, capturable=True):
                there = {place for state in places(resumed(name, capturable=True))
                         for place in state.values()}
                self.assertEqual(there, {"meta"})

    def test_an_optimizer_that_cannot_take_a_step_by_itself_is_refused(self):
        with self.assertRaisesRegex(diloco.RefusedError, "LBFGS.*closure.*keep_inner_state=False"):
            _state.slots_of(torch.optim.LBFGS(small().parameters(), lr=1))

    def test_a_state_of_objects_is_refused(self):
        class Keeps(torch.optim.SGD):
            def step(self, closure=None):
                self.state[self.param_groups[0]["params"][0]]["history"] = [1, 2]
        with self.assertRaisesRegex(diloco.RefusedError, "keeps a list .history."):
            _state.slots_of(Keeps(small().parameters(), lr=1))


class Generators(unittest.TestCase):
    def machine(self, cuda, state=None):
        """The calls into CUDA of a machine with it or without; the list has the settings."""
        taken = []
        stack = contextlib.ExitStack()
        for name, call in {"is_available": lambda: cuda, "is_initialized": lambda: cuda,
                           "get_rng_state": lambda: state, "set_rng_state": taken.append}.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, call))
        return stack, taken

    def test_states_move_between_machines_with_and_without_cuda(self):
        theirs = torch.arange(16, dtype=torch.uint8)
        for cuda_before in (False, True):
            for cuda_after in (False, True):
                with self.subTest(before=cuda_before, after=cuda_after):
                    with self.machine(cuda_before, theirs)[0]:
                        saved = _state.Generators()
                        saved.pack()
                    expected = torch.rand(3)
                    stack, taken = self.machine(cuda_after)
                    with stack:
                        found = _state.Generators()
                        found.room()[:] = saved.room()
                        found.unpack()
                    self.assertTrue(torch.equal(torch.rand(3), expected))
                    self.assertEqual([t.tolist() for t in taken],
                                     [theirs.tolist()] if cuda_before and cuda_after else [])


class ExtraStates(unittest.TestCase):
    class Thing:
        def __init__(self, state=None):
            self.state = state

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

    def json(self, thing, size=4096):
        return _state.Json("thing", size, thing.state_dict, thing.load_state_dict,
                           _torch.Island())

    def back(self, state):
        """The state of a thing after it was saved and restored."""
        saved, found = self.json(self.Thing(state)), self.Thing()
        saved.pack()
        taken = self.json(found)
        taken.room()[:] = saved.room()
        taken.unpack()
        return found.state

    def test_mappings_come_back_with_the_keys_that_they_had(self):
        state = {"by step": {8: .1, 12: {1.5: "x", None: [1, {True: 2}]}}, "": {},
                 "n": float("inf"), "like ours": {"diloco.mapping": ["dict", [[1, 2]]]},
                 "counts": collections.Counter([3, 3, 4]), "texts": collections.Counter("ab")}
        found = self.back(state)
        self.assertEqual(found, state)
        self.assertEqual(sorted(found["counts"].elements()), [3, 3, 4])
        self.assertIs(list(found["by step"][12][None][1])[0], True)

    def test_scalars_of_numpy_come_back_as_plain_numbers(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy")
        state = {"at": numpy.int64(3), "rate": numpy.float32(.1), "on": numpy.bool_(True)}
        found = self.back(state)
        self.assertEqual(found, state)
        self.assertEqual([type(v) for v in found.values()], [int, float, bool])
        for odd in (numpy.zeros(()), numpy.complex64(1), numpy.longdouble(1)):
            with self.assertRaisesRegex(diloco.RefusedError, r"thing\.at is of type"):
                self.json(self.Thing({"at": odd})).pack()

    def test_what_would_not_come_back_is_refused_by_its_place(self):
        for state, why in ((object(), "thing is of type object"),
                           ({"a": [0, {5: b"x"}]}, r"thing\.a\[1\]\.5 is of type bytes"),
                           ({"a": {(1, 2): 3}}, r"a key of thing\.a is of type tuple")):
            with self.assertRaisesRegex(diloco.RefusedError, why):
                self.json(self.Thing(state)).pack()


if __name__ == "__main__":
    unittest.main()
