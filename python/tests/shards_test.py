"""shards_test.py - the shards of an island's ranks travel by fragment, also where copies between a
device and host memory come late and in any order. Skips itself (77) without torch."""
import sys
import unittest
from unittest import mock

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(f"left out: the shards of an island ({error})")
    sys.exit(77)

import diloco
from diloco import _copies, _island
from late_device import Late
from mesh_test import (Block, InScratch, OPTIONS, batch, gradients, joined, launch, tensor_parallel,
                       whole)

STEPS, DUE = 10, (3, 5, 7, 9)  # of a run of two rounds and two fragments, and where one is due


def sharded(_n):
    model = whole()
    for block in model:
        fully_shard(block)
    fully_shard(model)
    return model


def copied(_n):
    return whole()  # the batches are equal on all ranks, so the gradients need no sum


def narrow(n):
    model = whole().bfloat16()
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def narrow_gradients(model, step):
    x, y = batch(step)
    torch.nn.functional.mse_loss(model(x.bfloat16()), y.bfloat16()).backward()


def stage(_n):
    """A block of its own on each rank, which trains by itself."""
    torch.manual_seed(dist.get_rank())
    return Block()


WAYS = {"shards": (sharded, {}), "tensor parallel": (tensor_parallel, {}),
        "copies": (copied, {"group": True}), "bfloat16 shards": (narrow, {}),
        "stages": (stage, {"group": True, "pipeline": True})}


class Posts:
    """The messages with tensors that a rank sends, by step."""

    def __init__(self):
        self.of_step = [0]
        post = _island.Island.post

        def counted(island, t, rank):
            self.of_step[-1] += t.numel() * t.element_size()
            post(island, t, rank)
        self.patch = mock.patch.object(_island.Island, "post", counted)


def train(n, way, store):
    """A whole run of two fragments: its values, and the bytes that this rank sent in each step."""
    make, more = WAYS[way]
    model, posts = make(n), Posts()
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    if more:
        more = {**more, "group": dist.group.WORLD}
    parts = 2 if "pipeline" in more else [model[0], model[1]]
    backward = narrow_gradients if way == "bfloat16 shards" else gradients
    with posts.patch, diloco.DiLoCoOptimizer(
            model, inner, store, options={**OPTIONS, "run.state_dir": "none"}, sync_every=4,
            rounds=2, fragments=parts, **more) as opt:
        for step in range(STEPS):
            posts.of_step.append(0)
            opt.zero_grad()
            backward(model, step)
            opt.step()
        assert opt.done
    values = [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().tolist()
              for p in model.parameters()]
    return values, posts.of_step[1:]


def rank(place, port, store):
    joined(place, port)
    found = {}
    for way in WAYS:
        results = [train(place.replicas, way, f"{store}/{way}")]
        for seed in range(2):
            with mock.patch.object(_copies, "queue", Late(10 * seed + place.rank)):
                results.append(train(place.replicas, way, f"{store}/{way} {seed}"))
        found[way] = results
    dist.destroy_process_group()
    return found


class Shards(InScratch):
    def check(self, ranks):
        everyone = launch(ranks, rank, self.folder)
        for way in WAYS:
            with self.subTest(way=way, ranks=ranks):
                for found in everyone:
                    same = found if way == "stages" else everyone[0]  # Each rank has its own stage.
                    for values, posts in found[way]:
                        self.assertEqual(values, same[way][0][0])
                        self.assertEqual(posts, found[way][0][1])
        last = everyone[-1]
        self.assertEqual([sum(posts) for _, posts in last["copies"]], [0] * 3)  # rank 0 has them
        # At a due point the last rank sends its rows of one block.
        block = sum(p[0].numel() * 4 * max(0, len(p) - (ranks - 1) * -(-len(p) // ranks))
                    for p in whole()[0].parameters())
        self.assertEqual(last["shards"][0][1], [block * (step in DUE) for step in range(STEPS)])

    def test_two_ranks(self):
        self.check(2)

    def test_four_ranks(self):
        self.check(4)


if __name__ == "__main__":
    unittest.main()
