"""island_setup_test.py - one of two ranks of a replica fails while it makes its optimizer. Each rank
raises an error that says why, although neither process has ended, and both can make it again. Skips
itself (77) without torch."""
import contextlib
import os
import sys
import tempfile
import unittest
from typing import Any, Callable, NamedTuple
from unittest import mock

try:
    import torch
    import torch._dynamo  # optimizers import it, in two seconds; the forked ranks need not
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(f"left out: ranks that make their optimizer ({error})")
    sys.exit(77)

import diloco
from diloco import _optimizer
from calls import raised
from ports import free_port


class Odd(Exception):
    """An exception of which no pickle can be made."""

    def __init__(self, words):
        super().__init__(words)
        self.owner = lambda: None


def failing(owner, name, error):
    """Let a function raise an error."""
    return lambda: mock.patch.object(owner, name, mock.Mock(side_effect=error))


def same(model):
    return model


def other(_model):
    return torch.nn.Linear(2, 2)


def empty(_model):
    return iter([])


class Case(NamedTuple):
    """A failure of one rank, the victim. On the other all is well."""

    victim: int
    kind: type  #: of the victim's error
    others: Any  #: of the other rank's error
    words: str
    is_sharded: bool = False
    patched: Callable[[], Any] = contextlib.nullcontext
    source: Callable[[Any], Any] = same  #: the first argument of the optimizer
    trained: Callable[[Any], Any] = same  #: the inner optimizer's model


CASES = [Case(victim, diloco.InvalidError, diloco.InvalidError, "AdamW has none of the parameters",
              is_sharded, trained=other) for victim in range(2) for is_sharded in (False, True)]
CASES += [Case(victim, diloco.InvalidError, diloco.InvalidError, "no parameters: there is nothing",
               source=empty) for victim in range(2)]
CASES += [Case(1, OSError, diloco.UnreachableError, "OSError: no disk",
               patched=failing(_optimizer, "claim", OSError("no disk")))]
CASES += [Case(victim, diloco.NoMemoryError, diloco.NoMemoryError,
               "no memory to keep the private state in host memory: none left", is_sharded,
               patched=failing(_optimizer, "pieces", MemoryError("none left")))
          for victim in range(2) for is_sharded in (False, True)]
CASES += [Case(0, Odd, RuntimeError, "an odd one",
               patched=failing(diloco.Run, "__init__", Odd("an odd one")))]


def train(store, case, is_victim):
    """Train a model to the end of the run; its values."""
    if not is_victim:
        case = case._replace(patched=contextlib.nullcontext, source=same, trained=same)
    torch.manual_seed(5)
    model = torch.nn.Linear(6, 4)
    if case.is_sharded:
        fully_shard(model)
    inner = torch.optim.AdamW(case.trained(model).parameters())
    with case.patched():
        opt = diloco.DiLoCoOptimizer(case.source(model), inner, store, sync_every=1, rounds=1,
                                     group=None if case.is_sharded else dist.group.WORLD)
    with opt:
        model(torch.ones(1, 6)).sum().backward()
        opt.step()
    return [(p.full_tensor() if case.is_sharded else p).tolist() for p in model.parameters()]


def rank(place, port, store):
    """For each case this rank's error, and its values after both ranks have made their optimizer."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.replicas)
    found = []
    for i, case in enumerate(CASES):
        found.append((raised(lambda: train(f"{store}/{i}", case, place.rank == case.victim)),
                      train(f"{store}/{i}", case, False)))
    dist.barrier()
    dist.destroy_process_group()
    return found


class OneRankThatFails(unittest.TestCase):
    def test_both_ranks_raise_and_both_may_try_again(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = diloco.launch_local(2, rank, free_port(), folder, store=folder, start="fork")
        for i, case in enumerate(CASES):
            with self.subTest(case=case):
                kind, text = ranks[case.victim][i][0]
                self.assertTrue(issubclass(kind, case.kind), kind)
                self.assertIn(case.words.removeprefix("OSError: "), text)
                kind, text = ranks[1 - case.victim][i][0]
                self.assertTrue(issubclass(kind, case.others), kind)
                self.assertIn(case.words, text)
                if case.kind is not Odd:
                    self.assertRegex(text, rf"rank {case.victim} of this island of 2 has failed \(.*\)"
                                           ": (make the optimizer on|start) all ranks again")
                self.assertEqual(ranks[0][i][1], ranks[1][i][1])


if __name__ == "__main__":
    unittest.main()
