"""mesh_test.py - a replica of two or four ranks, by every way to divide a model: two-dimensional
meshes, tensor parallelism, CPU offload, pipeline stages. Each trains as one process with the whole
model does and resumes bitwise. A rank that fails or ends is one clear error on the others.
Skips itself (77) without torch."""
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import unittest

try:
    import torch
    import torch._dynamo  # optimizers import it, in two seconds; the forked ranks need not
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
    from torch.distributed.tensor import Replicate, distribute_tensor
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
except ImportError as error:
    print(f"left out: models on meshes of ranks ({error})")
    sys.exit(77)

import diloco
from diloco import _agree, _island
from ports import free_port

OPTIONS = {"run.heartbeat": 0.05, "run.patience": 240}
STEPS, PAUSE = 9, 7  # of a run; where a first process stops, between two due points


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(6), torch.nn.Linear(6, 8)
        self.down = torch.nn.Linear(8, 6)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def whole():
    torch.manual_seed(5)
    return torch.nn.Sequential(Block(), Block())


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(4, 6, generator=g), torch.randn(4, 6, generator=g)


def gradients(model, step):
    x, y = batch(step)
    torch.nn.functional.mse_loss(model(x), y).backward()


def train(model, store, upto, backward=gradients, **more):
    """From the step where the replica was to step ``upto``: (was resumed, its values)."""
    inner = torch.optim.AdamW(model.parameters(), lr=0.01)
    with diloco.DiLoCoOptimizer(model, inner, store, options=OPTIONS, sync_every=3, rounds=3,
                                **more) as opt:
        step = opt.binding.island.lead(lambda: opt.run.now.step)
        while not opt.done and step < upto:
            opt.zero_grad()
            backward(model, step)
            opt.step()
            step += 1
        resumed = opt.binding.resumed
    values = {name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().tolist()
              for name, p in model.named_parameters()}
    return resumed, values


# ---- ways to divide the model ----------------------------------------------------------------


def two_dimensions(n):
    """Replicas of shards (HSDP)."""
    model = whole()
    fully_shard(model, mesh=init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("rep", "shard")))
    return model


def offloaded(n):
    model = whole()
    fully_shard(model, mesh=init_device_mesh("cpu", (n,)),
                offload_policy=CPUOffloadPolicy(pin_memory=False))
    return model


def tensor_parallel(n):
    """Rows and columns over one dimension of the mesh, FSDP over the other."""
    mesh = init_device_mesh("cpu", (n // 2, 2), mesh_dim_names=("dp", "tp"))
    model = whole()
    for block in model:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        if n > 2:
            fully_shard(block, mesh=mesh["dp"])
    if n > 2:
        fully_shard(model, mesh=mesh["dp"])
    return model


WAYS = {"two dimensions": two_dimensions, "offloaded": offloaded,
        "tensor parallel": tensor_parallel}


def stage_gradients(model, step):
    """Both stages on one rank each: activations go forward, their gradients come back."""
    x, y = batch(step)
    if dist.get_rank() == 0:
        out = model(x)
        dist.send(out.detach(), 1)
        grad = torch.empty_like(out)
        dist.recv(grad, 1)
        out.backward(grad)
    else:
        got = torch.empty(4, 6)
        dist.recv(got, 0)
        got.requires_grad_()
        torch.nn.functional.mse_loss(model(got), y).backward()
        dist.send(got.grad, 0)


def refused(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    return "not refused"


def joined(place, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=place.rank, world_size=place.replicas)


def divided(place, port, store):
    """Each way: a whole run, then one in two processes' worth of steps."""
    found = {"alone": train(whole(), f"{store}/alone{place.rank}", STEPS)}
    joined(place, port)
    for way, make in WAYS.items():
        path = f"{store}/{way}"
        first = train(make(place.replicas), path, STEPS)
        train(make(place.replicas), path + " parts", PAUSE)
        found[way] = first, train(make(place.replicas), path + " parts", STEPS)
    dist.destroy_process_group()
    return found


def staged(place, port, store):
    alone = train(whole(), f"{store}/alone{place.rank}", STEPS)
    joined(place, port)
    more = {"group": dist.group.WORLD, "pipeline": True, "backward": stage_gradients}
    lives = [train(whole()[place.rank], f"{store}/{run}", upto, **more)
             for run, upto in (("whole", STEPS), ("parts", PAUSE), ("parts", STEPS))]
    dist.destroy_process_group()
    return alone, lives


class Rotten(torch.nn.Module):
    """One rank has another parameter, or one that cannot take part."""

    def __init__(self, wrong):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(3))
        self.b = torch.nn.Parameter(wrong)


def disagreeing(place, port, store):
    """The refusals that every rank has to see, although one rank alone is wrong."""
    joined(place, port)
    odd = place.rank == place.replicas - 1

    def bound(model, **more):
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        diloco.DiLoCoOptimizer(model, inner, store + "/none", **more)
    world = dist.group.WORLD
    rotten = Rotten(torch.zeros(4 if odd else 5))
    strided = Rotten((torch.zeros(4, 4, dtype=torch.float64) if odd else torch.zeros(4, 4)))
    said = [refused(diloco.DiffersError, lambda: bound(rotten, group=world)),
            refused(diloco.RefusedError, lambda: bound(strided, group=world)),
            refused(diloco.InvalidError, lambda: bound(whole(), pipeline=True)),
            refused(diloco.RefusedError, lambda: bound(offloaded(place.replicas), group=world,
                                                       pipeline=True))]
    part = distribute_tensor(torch.zeros(4, 2), init_device_mesh("cpu", (place.replicas,)),
                             [Replicate()])
    half = dist.new_group([0, 1])
    if place.rank < 2:
        said.append(refused(diloco.RefusedError, lambda: bound(
            torch.nn.ParameterList([torch.nn.Parameter(part)]), group=half)))
    dist.barrier()
    dist.destroy_process_group()
    return said


def with_other_arguments(place, port, store):
    """The refusals of every rank if the last one makes its optimizer in another way."""
    joined(place, port)
    odd = place.rank == place.replicas - 1

    def bound(make, kind="AdamW", lr=.01, parameters=4, scheduler=False, **more):
        model = make()
        inner = getattr(torch.optim, kind)(list(model.parameters())[:parameters], lr=lr)
        if scheduler:
            more["scheduler"] = torch.optim.lr_scheduler.StepLR(inner, 2)
        if make is narrow:
            more["group"] = dist.group.WORLD
        more = {"run": store + "/none", "keep_inner_state": True, "sync_every": 3, **more}
        diloco.DiLoCoOptimizer(model, inner, more.pop("run"), **more)

    def narrow():
        return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 3))

    def sharded():
        return fully_shard(narrow())
    others = [{"kind": "SGD"}, {"lr": .02}, {"parameters": 2}, {"keep_inner_state": False},
              {"scheduler": True}, {"sync_every": 4}, {"run": store + "/other"}, {"replica": "r1"},
              {"options": {"s3.secret_key": f"hidden{place.rank}"}}]
    said = [refused(diloco.DiffersError, lambda o=o, make=make: bound(make, **o if odd else {}))
            for make in (narrow, sharded) for o in others[:-1]]
    said.append(refused(diloco.DiffersError, lambda: bound(narrow, **others[-1])))
    said += [refused(diloco.DiffersError, lambda one=one: bound(narrow, pipeline=odd == one))
             for one in (True, False)]
    world = {"group": dist.group.WORLD}
    said.append(refused(diloco.DiffersError, lambda: bound(whole if odd else narrow, **world)))
    said.append(refused(diloco.DiffersError, lambda: bound(sharded, **world if odd else {})))
    dist.barrier()
    dist.destroy_process_group()
    return said


def ending(rank, port, store, victim, pipe, n, is_sharded):
    """A rank of n; one may be killed between two exchanges, before its gradients. Sends its error or
    its values."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=n)

    def backward(model, step):
        x, y = batch(step)
        loss = torch.nn.functional.mse_loss(model(x), y)
        if step == 4 and rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
    try:
        if is_sharded:
            pipe.send(train(fully_shard(whole()), store, STEPS, backward))
        else:
            pipe.send(train(whole(), store, STEPS, backward, group=dist.group.WORLD))
    except RuntimeError as error:  # torch's own
        pipe.send(f"torch: {error}")
    except diloco.UnreachableError as error:
        pipe.send(str(error))


def launch(n, fn, store):
    """The results of n forked ranks, which need not import torch. (No thread of torch's is here.)"""
    return diloco.launch_local(n, fn, free_port(), store, store=store, start="fork")


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name


class Divided(InScratch):
    def check(self, ranks):
        everyone = launch(ranks, divided, self.folder)
        for found in everyone:
            self.assertEqual(found, everyone[0])
        _, alone = everyone[0].pop("alone")
        for way, ((_, first), (resumed, second)) in everyone[0].items():
            with self.subTest(way=way, ranks=ranks):
                self.assertTrue(resumed)
                self.assertEqual(first, second)  # to the bit
                for name, values in alone.items():  # sums in another order round
                    torch.testing.assert_close(torch.tensor(first[name]), torch.tensor(values),
                                               rtol=0, atol=1e-5)
                self.assertEqual(len(diloco.run(f"{self.folder}/{way}").status()["replicas"]), 1)

    def test_two_ranks_train_as_one_process(self):
        self.check(2)

    def test_four_ranks_train_as_one_process(self):
        self.check(4)


class Stages(InScratch):
    def test_a_pipeline_trains_as_one_process_and_resumes(self):
        for rank, ((_, alone), lives) in enumerate(launch(2, staged, self.folder)):
            (_, first), _, (resumed, second) = lives
            self.assertTrue(resumed)
            self.assertEqual(first, second)
            for name, values in first.items():
                torch.testing.assert_close(torch.tensor(values),
                                           torch.tensor(alone[f"{rank}.{name}"]), rtol=0, atol=1e-5)
        theta = diloco.run(self.folder + "/whole").theta()
        self.assertIn("stage0.up.weight", theta)
        self.assertIn("stage1.up.weight", theta)


class Failures(InScratch):
    def test_every_rank_hears_that_one_differs(self):
        everyone = launch(3, disagreeing, self.folder)
        for said in everyone:
            self.assertRegex(said[0], r"tensor 1: rank 0 has b float32 \[5\], rank 2 has b "
                                      r"float32 \[4\]")
            self.assertRegex(said[1], "b is float64")
            self.assertRegex(said[2], "pipeline=True needs group=")
            self.assertRegex(said[3], "is sharded, and pipeline=True takes stages")
        for said in everyone[:2]:
            self.assertRegex(said[4], r"device mesh of ranks \[0, 1, 2\], and this replica has "
                                      r"ranks \[0, 1\]")
        self.assertEqual(os.listdir(self.folder), [])

    def test_every_rank_hears_that_one_has_other_arguments(self):
        words = ["the inner optimizer: rank 0 has AdamW, rank 1 has SGD",
                 r"group 0 of the inner optimizer: rank 0 has .*lr 0\.01.*, rank 1 has .*lr 0\.02",
                 "1.weight in the inner optimizer: rank 0 has place 2 of group 0, rank 1 has no place",
                 "keep_inner_state: rank 0 has True, rank 1 has False",
                 "the scheduler and the extra state: rank 0 has nothing, rank 1 has scheduler",
                 "option sync_every: rank 0 has 3, rank 1 has 4",
                 "the store of the run: rank 1 has another one than rank 0",
                 "replica: rank 0 has 'r0', rank 1 has 'r1'"]
        for said in launch(2, with_other_arguments, self.folder):
            for found, expected in zip(said, words + words):
                self.assertRegex(found, "the ranks of this island disagree on " + expected)
            *_, secret, one_stage, one_whole, other_model, one_group = said
            self.assertIn("on option s3.secret_key: rank 1 has another one than rank 0", secret)
            self.assertNotIn("hidden", secret)
            self.assertIn("on pipeline: rank 0 has False, rank 1 has True", one_stage)
            self.assertIn("on pipeline: rank 0 has True, rank 1 has False", one_whole)
            self.assertRegex(other_model, r"on tensor 0: rank 0 has .*, or pass pipeline=True where")
            self.assertIn("on group: rank 0 has none, rank 1 has ProcessGroup", one_group)
        self.assertEqual(os.listdir(self.folder), [])

    def test_facts_that_ranks_compare_have_no_secrets_and_no_objects(self):
        facts = _agree.arguments("https://a:hidden@hub.example/run", "r0",
                                 {"token": "hidden", "options": {"s3.secret_key": "hidden"}}, {},
                                 True, 2, False, None)
        self.assertIn("option s3.secret_key", facts)
        self.assertNotIn(b"hidden", pickle.dumps(facts))

        def options(**more):
            w = torch.nn.Parameter(torch.zeros(3))
            inner = torch.optim.SGD([{"params": [w], "lr": .5, **more}])
            return _agree.optimizer_facts(inner, [("w", w)])
        _agree.check([options(betas=(.5, .25), views=[torch.zeros(2)], hooks=(object(),)),
                      options(betas=(torch.tensor(.5), .25), views=[torch.ones(2)],
                              hooks=(object(),))])
        for ours, theirs, words in (((.5, .25), (.5, .75), r"betas \[0.5, 0.25\].*betas \[0.5, 0.75"),
                                    ((None, 1), (None, 2), r"\[None, 1\].*\[None, 2\]"),
                                    ([[]], [[], []], "betas 1 items.*betas 2 items")):
            with self.assertRaisesRegex(diloco.DiffersError, words):
                _agree.check([options(betas=ours), options(betas=theirs)])

    def island(self, store, victim, n=3, is_sharded=False):
        """The message of each of n ranks; None for the victim."""
        context, port, ends, processes = multiprocessing.get_context("fork"), free_port(), [], []
        for rank in range(n):
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=ending, args=(rank, port, store, victim, theirs,
                                                                  n, is_sharded)))
            processes[-1].start()
            theirs.close()
            ends.append(ours)
        found = [None if rank == victim else end.recv() for rank, end in enumerate(ends)]
        for process in processes:
            process.join()
        return found

    def test_a_rank_that_dies_ends_the_island_and_a_new_start_resumes(self):
        calm = self.island(self.folder + "/calm", None)
        for victim, named in ((2, "rank (0|2)"), (0, "rank 0")):
            with self.subTest(victim=victim):
                store = f"{self.folder}/{victim}"
                for rank, said in enumerate(self.island(store, victim)):
                    if rank != victim:
                        self.assertRegex(said, named + " of this island of 3 has ended")
                again = self.island(store, None)
                self.assertEqual([resumed for resumed, _ in again], [True] * 3)
                self.assertEqual([values for _, values in again], [values for _, values in calm])

    def test_a_rank_of_shards_that_dies_ends_the_others_collective_and_a_new_start_resumes(self):
        calm = self.island(self.folder + "/calm", None, 2, True)
        for victim in (1, 0):
            with self.subTest(victim=victim):
                store = f"{self.folder}/{victim}"
                self.assertRegex(self.island(store, victim, 2, True)[1 - victim], "^torch: ")
                again = self.island(store, None, 2, True)
                self.assertEqual([resumed for resumed, _ in again], [True] * 2)
                self.assertEqual([values for _, values in again], [values for _, values in calm])

    def test_shards_that_do_not_cover_a_tensor_are_refused_by_its_name(self):
        from diloco import _shards
        box = _shards.Box
        _shards._check_tiles("w", (4, 2), [box((0, 0), (2, 2)), box((2, 0), (2, 2))])
        _shards._check_tiles("w", (1, 2), [box((0, 0), (1, 2)), box((1, 0), (0, 2))])
        for boxes in ([box((0, 0), (2, 2)), box((1, 0), (2, 2))], [box((0, 0), (3, 2))]):
            with self.assertRaisesRegex(diloco.RefusedError, r"w \[4, 2\] has shards that do not"):
                _shards._check_tiles("w", (4, 2), boxes)

    def test_ranks_that_do_not_find_each_other_are_named(self):
        self.assertEqual(_island._first_line(RuntimeError("[x.cc:1] Gone. This is typically …")),
                         "Gone")


if __name__ == "__main__":
    unittest.main()
