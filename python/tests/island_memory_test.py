"""island_memory_test.py - memory is full on one of two ranks of a replica, at a loss, a capture, an
adoption, a save or a resume. Both ranks end with one error that names the rank, although neither process
has ended, and a new start is bitwise. Skips itself (77) without torch."""
import contextlib
import os
import sys
import tempfile
import unittest
from typing import NamedTuple
from unittest import mock

try:
    import torch
    import torch._dynamo  # optimizers import it, in two seconds; the forked ranks need not
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(f"left out: ranks without memory ({error})")
    sys.exit(77)

import diloco
from diloco import _copies, _island, _optimizer
from calls import raised
from late_device import NO_MEMORY, Late
from ports import free_port

OPTIONS = {"run.heartbeat": 0.05, "run.patience": 240}
STEPS = 4  # of a run; two of a round
TEXT = "CUDA out of memory. Tried to allocate 2.00 GiB."
WAYS = {"down": "to host", "up": "to device"}


class Scarce(Late):
    """A device whose memory is full at one copy, the n-th of a kind from now on. ``is_late``: as of
    `Late`."""

    def __init__(self, is_late=True):
        super().__init__(1)
        self._is_late = is_late
        self.fill("down", 0)

    def fill(self, way, n):
        self._way, self._n_left = WAYS.get(way, way), n

    def use(self, way):
        if way == self._way:
            self._n_left -= 1
            if self._n_left == 0:
                raise NO_MEMORY(TEXT)

    def _queue(self, way, *arguments):
        self.use(way)
        super()._queue(way, *arguments)
        if not self._is_late:
            self.wait()

    def loss(self, loss):
        self.use("loss")
        return super().loss(loss)


class Replica:
    """A rank's model and its optimizer, which a loop that has ended by an error leaves open."""

    def __init__(self, store, kind):
        torch.manual_seed(5)
        self.model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4))
        if kind == "shards":
            fully_shard(self.model)
        inner = torch.optim.AdamW(self.model.parameters(), lr=.01)
        self.opt = diloco.DiLoCoOptimizer(self.model, inner, store, options=OPTIONS, sync_every=2,
                                          rounds=STEPS // 2, group=dist.group.WORLD)
        self.step = self.opt.binding.island.lead(lambda: self.opt.run.now.step)

    def train(self, upto=STEPS):
        while not self.opt.done and self.step < upto:
            self.opt.zero_grad()
            x = torch.randn(4, 6, generator=torch.Generator().manual_seed(self.step))
            self.model(x).pow(2).mean().backward()
            self.opt.step()
            self.step += 1
        return self

    def end(self):
        self.opt.close()
        return [(p.full_tensor() if hasattr(p, "full_tensor") else p).tolist()
                for p in self.model.parameters()]


class Case(NamedTuple):
    kind: str  #: each rank has "shards", or the "whole" model; "group": which their group broadcasts
    victim: int  #: rank
    at: str
    way: str
    n: int  #: copy


CASES = [Case("shards", victim, at, way, n) for victim in range(2) for at, way, n in (
    ("stop", "down", 2), ("stop", "up", 2), ("save", "down", 2), ("resume", "up", 2),
    ("resume", "up", 6))]  # four copies of parameters, then of moments
CASES += [Case("whole", 0, "start", "loss", 1), Case("whole", 1, "start", "report", 1)]  # before the stop
CASES += [Case(kind, 0, "stop", "loss", 1) for kind in ("shards", "whole")]
CASES += [Case(kind, 0, "stop", "up", 2) for kind in ("whole", "group")]


def without_memory(store, case, rank):
    """The errors of a replica whose memory is full in the first round, at its stop, a save or a resume,
    and its values after a new start."""
    _copies.queue = Scarce(is_late=case.kind != "group")
    replica = Replica(store, case.kind)
    replica.train({"start": 0, "stop": 1}.get(case.at, 3))
    if case.at == "save":
        replica.opt.save()
    if case.at == "resume":
        replica.end()
    _copies.queue.fill(case.way, case.n if rank == case.victim else 0)
    call = {"save": replica.opt.save, "resume": lambda: Replica(store, case.kind)}.get(
        case.at, lambda: replica.train(2))
    errors = [raised(call)]
    if case.at != "resume":
        errors += [raised(replica.opt.step), raised(replica.opt.save)]
    dist.barrier()  # Neither process has ended.
    replica.opt.close()
    _copies.queue = Scarce(is_late=case.kind != "group")
    return errors, Replica(store, case.kind).train().end()


def patched(case):
    """Losses of micro-batches need memory. ``group``: as of tensors on CUDA, which are not copied through
    host memory."""
    def joined(reports):
        _copies.queue.use("report")
        return joined_report(reports)
    joined_report, stack = _optimizer.joined_report, contextlib.ExitStack()
    stack.enter_context(mock.patch.object(_optimizer, "joined_report", joined))
    stack.enter_context(mock.patch.object(_island.Island, "_takes_group",
                                          lambda island, t: case.kind == "group"))
    return stack


def rank(place, port, store):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.replicas)
    calm = {kind: Replica(f"{store}/{kind}", kind).train().end() for kind in ("shards", "whole")}
    found = []
    for i, case in enumerate(CASES):
        with patched(case):
            found.append(without_memory(f"{store}/{i}", case, place.rank))
    dist.barrier()
    dist.destroy_process_group()
    return calm, found


class OneRankWithoutMemory(unittest.TestCase):
    def test_both_ranks_end_with_its_error_and_a_new_start_is_bitwise(self):
        with tempfile.TemporaryDirectory() as folder:
            first, second = diloco.launch_local(2, rank, free_port(), folder, store=folder,
                                                start="fork")
        self.assertEqual(first, second)
        calm, found = first
        for case, (errors, values) in zip(CASES, found):
            with self.subTest(case=case):
                kind, text = errors[0]
                self.assertTrue(issubclass(kind, diloco.NoMemoryError), kind)
                self.assertRegex(text, f"rank {case.victim} of this island of 2 has failed .no memory to .*"
                                       f"{TEXT}.*: start all ranks again")
                for kind, text in errors[1:]:
                    self.assertIs(kind, diloco.InvalidError)
                    self.assertRegex(text, ": close this replica and start it again")
                self.assertEqual(values, calm["shards" if case.kind == "shards" else "whole"])

    def test_an_error_of_torch_that_all_ranks_raise_has_the_number_of_its_rank(self):
        error = _island.Island()._named(NO_MEMORY(TEXT))
        self.assertIsInstance(error, diloco.NoMemoryError)
        self.assertIsInstance(error, NO_MEMORY)
        self.assertEqual(str(error), f"rank 0 of this island of 1: {TEXT}")
        self.assertEqual(str(_island.Island()._named(ValueError("wrong"))), "wrong")


if __name__ == "__main__":
    unittest.main()
