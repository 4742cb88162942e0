"""cuda_test.py - models on a card as users train them: on a stream of their own, as a graph, compiled,
with an exchange at each step, with generators of the device. Without a card the same runs on the CPU,
where streams and graphs are left out. Skips itself (77) without torch."""
import contextlib
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from torch_world import InScratch, adamw, batch, life_of_kinds, small, values

CARD = torch.cuda.is_available()
DEVICE = "cuda" if CARD else "cpu"


def a_stream():
    """A context in which work is queued to a stream of its own."""
    return torch.cuda.stream(torch.cuda.Stream()) if CARD else contextlib.nullcontext()


class OnDevice(InScratch):
    def train(self, store, device=DEVICE, wrap=lambda model: model, upto=12, seed=3, model_of=small,
              between=lambda opt: None, **options):
        """Train to step `upto`; the model, whose values are those of the run."""
        torch.manual_seed(seed)
        model = model_of().to(device)
        options = {"sync_every": 3, "rounds": 4, **options}
        with diloco.DiLoCoOptimizer(model, adamw(model), store, **options) as opt:
            step_model = wrap(model)
            while not opt.done and opt.run.now.step < upto:
                x, y = (t.to(device) for t in batch(0, opt.run.now.step))
                opt.zero_grad()
                torch.nn.functional.mse_loss(step_model(x), y).backward()
                between(opt)
                opt.step()
            if opt.done:
                for p, theta in zip(model.parameters(), opt.run.theta().values()):
                    self.assertTrue(torch.equal(p.cpu(), torch.from_numpy(theta)))
        return values(model.cpu())

    def assert_near(self, ours, theirs):
        for a, b in zip(ours, theirs):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    def test_work_on_another_stream_is_exchanged_whole(self):
        whole = self.train(f"{self.store}-whole")
        with a_stream():
            self.assertEqualTensors(self.train(self.store), whole)

    def test_every_kind_of_tensor_trains_as_on_the_cpu_and_resumes_to_the_bit(self):
        whole = life_of_kinds(self, f"{self.store}-whole", 18, device=DEVICE)
        life_of_kinds(self, self.store, 7, save_at=7, device=DEVICE)
        self.assertEqualTensors(life_of_kinds(self, self.store, 18, device=DEVICE), whole)
        for a, b in zip(whole, life_of_kinds(self, f"{self.store}-cpu", 18)):
            near = 2**-6 if a.dtype in (torch.bfloat16, torch.float16) else 1e-2
            torch.testing.assert_close(a, b, rtol=near, atol=near)

    def test_an_exchange_at_each_step_follows_the_cpu(self):
        options = {"sync_every": 1, "rounds": 50, "upto": 50}
        self.assert_near(self.train(self.store, **options),
                         self.train(f"{self.store}-cpu", "cpu", **options))

    def test_a_compiled_model_follows_the_plain_one(self):
        backend = "inductor" if CARD else "eager"
        compiled = self.train(self.store, wrap=lambda m: torch.compile(m, backend=backend))
        self.assert_near(compiled, self.train(f"{self.store}-plain"))

    def test_a_graph_reads_the_parameters_that_were_adopted(self):
        def wrap(model):
            x = torch.zeros(4, 6, device=DEVICE)
            return torch.cuda.make_graphed_callables(model, (x,)) if CARD else model
        self.assert_near(self.train(self.store, wrap=wrap), self.train(f"{self.store}-plain"))

    def test_host_copies_are_not_read_between_stops(self):
        def spoil(opt):
            block = opt.binding._mirrors._block
            if block is not None:
                block._room.fill_(255)  # no number in any of the float types
        whole = self.train(f"{self.store}-whole")
        self.assertEqualTensors(self.train(self.store, between=spoil), whole)

    def test_dropout_on_the_device_resumes_to_the_bit(self):
        def model_of():
            return torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Dropout(.3),
                                       torch.nn.Linear(9, 3))
        whole = self.train(f"{self.store}-whole", model_of=model_of)
        self.train(self.store, upto=7, model_of=model_of)
        resumed = self.train(self.store, model_of=model_of, seed=4)
        self.assertEqualTensors(resumed, whole)


if __name__ == "__main__":
    if not CARD:
        print("left out: streams and graphs of a card (no CUDA device)")
    unittest.main()
