"""torch_world.py - a small model, its inner steps, and a test's own run, for the tests with torch."""
import pathlib
import tempfile
import unittest

import torch

import diloco
from calls import in_threads

torch.set_num_threads(1)
QUICK = {"run.heartbeat": 0.05, "run.patience": 240}


def small(seed=1, dtype=torch.float32):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    return model.to(dtype)


def batch(replica, step, dtype=torch.float32):
    g = torch.Generator().manual_seed(1000 * replica + step)
    return torch.randn(4, 6, generator=g).to(dtype), torch.randn(4, 3, generator=g).to(dtype)


def inner_step(model, optimizer, replica, step):
    x, y = batch(replica, step, next(model.parameters()).dtype)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    if isinstance(optimizer, diloco.DiLoCoOptimizer):
        optimizer.report(loss, samples=4)
    optimizer.step()


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def values(model):
    return [p.detach().clone() for p in model.parameters()]


class Kinds(torch.nn.Module):
    """A tensor of each kind that has a mirror on a device."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.plain = torch.nn.Linear(6, 4)
        self.narrow = torch.nn.Linear(4, 4).bfloat16()
        self.shift = torch.nn.Parameter(torch.zeros(1, dtype=torch.float16))
        self.images = torch.nn.Conv2d(2, 2, 1).to(memory_format=torch.channels_last)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("flags", torch.zeros(3, dtype=torch.bool))

    def forward(self, x):
        self.seen += len(x)
        self.flags[self.seen % 3] = True
        h = self.narrow(self.plain(x).bfloat16()).float()
        # The factor keeps the gradient, and AdamW's square of it, away from float16's zero.
        return self.images(torch.cat([h, h], 1).reshape(-1, 2, 2, 2)).sum((1, 2, 3)) + \
            8 * self.shift.float()


def life_of_kinds(_test, store, upto, save_at=-1, device="cpu"):
    """Train `Kinds` to the end of a run, or to step ``upto``; its values."""
    model = Kinds().to(device)
    with diloco.DiLoCoOptimizer(model, adamw(model), store, sync_every=3, rounds=3,
                                fragments=2) as opt:
        while not opt.done and opt.run.now.step < upto:
            x = torch.randn(8, 6, generator=torch.Generator().manual_seed(opt.run.now.step))
            x = x.to(device)
            opt.zero_grad()
            (model(x) - x.sum(1)).pow(2).mean().backward()
            opt.step()
            if opt.run.now.step == save_at:
                opt.save()
    return [t.detach().cpu() for t in [*model.parameters(), *model.buffers()]]


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.store = pathlib.Path(scratch.name) / "run"

    def optimizer(self, model, inner=None, replica="r0", **options):
        opt = diloco.DiLoCoOptimizer(model, inner or adamw(model), self.store, replica,
                                     options=QUICK, **options)
        self.addCleanup(opt.close)
        return opt

    def together(self, n, model_of=small, upto=None, **options):
        """n replicas in threads, to the end of the run; their models."""
        models = [model_of(7) for _ in range(n)]

        def live(r):
            opt = self.optimizer(models[r], replica=f"r{r}", replicas=n, **options)
            for step in range(10**6):
                if opt.done:
                    return opt.close()
                inner_step(models[r], opt, r, step)
        in_threads(*[lambda r=r: live(r) for r in range(n)])
        return models

    def assertEqualTensors(self, a, b):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertTrue(torch.equal(x, y), (x, y))
