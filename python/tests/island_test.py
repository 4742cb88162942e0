"""island_test.py - the ranks of an FSDP mesh are one replica, whose rank 0 talks to the store. Two
ranks with sharded parameters train as one process with whole ones does, and resume bitwise. So do
the ranks of DDP, as a group. A rank may wait for another replica longer than the time-out of its own
process group. Skips itself (77) without torch."""
import datetime
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(f"left out: sharded models ({error})")
    sys.exit(77)

import diloco
from ports import free_port

OPTIONS = {"run.heartbeat": 0.05, "run.patience": 240}


class Counts(torch.nn.Module):
    """A buffer, which ranks have whole whatever happens to the parameters."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += len(x)
        return x


def model_of():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), Counts(), torch.nn.Linear(5, 3))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(4, 6, generator=g), torch.randn(4, 3, generator=g)


def train(model, store, upto, **more):
    """From where the replica was to step upto; whole parameters."""
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(inner, 4, gamma=.1)
    with diloco.DiLoCoOptimizer(model, inner, store, options=OPTIONS, sync_every=3, rounds=3,
                                scheduler=schedule, **more) as opt:
        step = opt.binding.island.lead(lambda: opt.run.now.step)
        while not opt.done and step < upto:
            x, y = batch(step)
            opt.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            opt.step()
            step += 1
        resumed = opt.binding.resumed
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p
             for p in [*model.parameters(), *model.buffers()]]
    return resumed, [p.detach().tolist() for p in whole], schedule.last_epoch


def rank(place, port, store):
    """One rank: a whole run, then one that stops between due points and is resumed."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.replicas)
    try:
        lives = []
        for name, upto in (("whole", 9), ("parts", 7), ("parts", 9)):
            model = model_of()
            fully_shard(model)
            lives.append(train(model, f"{store}-{name}", upto))
        for upto in (7, 9):  # each rank has all of it
            model = torch.nn.parallel.DistributedDataParallel(model_of())
            lives.append(train(model.module, f"{store}-ddp", upto, group=dist.group.WORLD))
        refused = ""
        try:
            train(model, f"{store}-other/\0", 1)
        except ValueError as error:  # rank 0's own, on every rank
            refused = str(error)
        return lives, refused
    finally:
        dist.destroy_process_group()


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


def over_a_manager(model):
    """Two layers, the last with fewer rows than ranks; whole parameters."""
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with diloco.DiLoCo(Alone(), [model], inner, sync_every=2):
        for step in range(4):
            inner.zero_grad()
            model(batch(step)[0]).pow(2).mean().backward()
            inner.step()
    return [p.full_tensor().tolist() if hasattr(p, "full_tensor") else p.tolist()
            for p in model.parameters()]


def narrow():
    torch.manual_seed(6)
    return torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Linear(3, 1, bias=False))


def refused_with(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    return "not refused"


def sharded_rank(place, port, store):
    """The results of each rank for models that have shards."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.replicas)
    try:
        model = narrow()
        fully_shard(model)
        found = [over_a_manager(model)]

        def one_row_alone():
            last = narrow()
            fully_shard(last)
            inner = torch.optim.SGD(last.parameters(), lr=0.1)
            diloco.DiLoCo(Alone(), list(last), inner, sync_every=2)
        found.append(refused_with(diloco.InvalidError, one_row_alone))
        for original in (False, True):
            def first_fsdp():
                flat = FullyShardedDataParallel(narrow(), device_id=torch.device("cpu"),
                                                use_orig_params=original)
                inner = torch.optim.SGD(flat.parameters(), lr=0.1)
                diloco.DiLoCoOptimizer(flat, inner, f"{store}-flat", group=dist.group.WORLD)
            found.append(refused_with(diloco.RefusedError, first_fsdp))
        return found
    finally:
        dist.destroy_process_group()


TIME_OUT = datetime.timedelta(seconds=1)  # of the ranks' own process group


def one_step(store, replica, before=lambda: None, **more):
    """One step, and the exchange after it with the other replica; the parameters."""
    model = model_of()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with diloco.DiLoCoOptimizer(model, inner, store, replica, options=OPTIONS, replicas=2,
                                sync_every=1, rounds=1, **more) as opt:
        model(batch(len(replica))[0]).pow(2).mean().backward()
        before()
        opt.step()
    return [p.tolist() for p in model.parameters()]


def waiting_rank(place, port, store, mark):
    """A rank that waits for the other replica. That replica waits for ``mark``, which rank 1 makes when
    twice the time-out has passed in its own wait."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.replicas)
    try:
        dist.barrier()
        dist.distributed_c10d._set_pg_timeout(TIME_OUT, dist.group.WORLD)
        late = threading.Timer(2 * TIME_OUT.total_seconds(), pathlib.Path(mark).touch)
        return one_step(store, "r0", late.start if place.rank else lambda: None,
                        group=dist.group.WORLD)
    finally:
        dist.destroy_process_group()


class Islands(unittest.TestCase):
    def test_two_ranks_are_one_replica(self):
        with tempfile.TemporaryDirectory() as folder:
            store = str(pathlib.Path(folder) / "run")
            a, b = diloco.launch_local(2, rank, free_port(), store)
            _, alone, _ = train(model_of(), f"{store}-alone", 9)
            self.assertEqual(len(diloco.run(f"{store}-whole").status()["replicas"]), 1)
        self.assertEqual(a, b)
        (whole, _, second, _, fourth), refused = a
        self.assertEqual([life[0] for life in a[0]], [False, False, True, False, True])
        self.assertEqual(whole[1:], second[1:])  # to the bit
        self.assertEqual([whole[2], fourth[2]], [9, 9])
        self.assertIn("zero byte", refused)
        for sharded, copied, theirs in zip(whole[1], fourth[1], alone):
            for ours in (sharded, copied):  # the mean of two equal gradients rounds
                torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=0,
                                           atol=1e-5)

    def test_a_wait_for_another_replica_outlasts_the_time_out_of_the_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            store, mark, found = f"{folder}/run", pathlib.Path(folder) / "late", []
            over = threading.Event()

            def other():
                while not mark.exists() and not over.is_set():
                    time.sleep(0.05)
                if not over.is_set():  # The ranks have not failed.
                    found.append(one_step(store, "r1"))
            late = threading.Thread(target=other)
            late.start()
            try:
                ranks = diloco.launch_local(2, waiting_rank, free_port(), store, str(mark),
                                            store=store)
            finally:
                over.set()
                late.join()
        self.assertEqual(ranks + found, found * 3)

    def test_shards_over_a_manager_and_those_of_fsdp1(self):
        with tempfile.TemporaryDirectory() as folder:
            a, b = diloco.launch_local(2, sharded_rank, free_port(), folder + "/run")
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual(a, b)
        torch.testing.assert_close(a[0], over_a_manager(narrow()), rtol=0, atol=1e-6)
        self.assertRegex(a[1], "fragment 1 has no parameter with a row for every rank")
        for said in a[2:]:
            self.assertRegex(said, r"FullyShardedDataParallel \(FSDP1\)")


if __name__ == "__main__":
    unittest.main()
