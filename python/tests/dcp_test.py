"""dcp_test.py - a run as a checkpoint of torch.distributed (DCP), and runs that begin from one.
Skips itself (77) without torch."""
import os
import subprocess
import sys
import unittest

try:
    import torch
    import torch.distributed.checkpoint as dcp
except ImportError as error:
    print(f"left out: DCP checkpoints ({error})")
    sys.exit(77)

import diloco
import diloco.dcp
from diloco import _program
from torch_world import QUICK, InScratch, adamw, batch, inner_step, small, values


class Checkpoints(InScratch):
    def setUp(self):
        super().setUp()
        self.folder = self.store.with_name("checkpoint")

    def trained(self, name, model, rounds, **options):
        self.store = self.store.with_name(name)
        opt = self.optimizer(model, sync_every=3, rounds=rounds, **options)
        for step in range(10**6):
            if opt.done:
                break
            inner_step(model, opt, 0, step)
        opt.close()
        return self.store

    def test_a_checkpoint_has_the_shared_model_under_its_own_names(self):
        model = small()
        model.register_buffer("seen", torch.tensor([3, 4]))
        diloco.dcp.save(self.trained("first", model, 2), self.folder)
        state = {"model": {k: torch.zeros_like(v) for k, v in model.state_dict().items()}}
        dcp.load(state, checkpoint_id=self.folder, no_dist=True)  # torch's own reader alone
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(state["model"][name], value), name)

    def test_a_run_that_is_resumed_from_it_continues_as_from_the_run_itself(self):
        first = self.trained("first", small(), 2)
        environment = {**os.environ, "DILOCO_PYTHON": sys.executable}
        out = subprocess.run([_program.path(), "export", str(first), "--to", "dcp", "--out",
                              str(self.folder)], env=environment, capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("after 2 entries: 4 tensors", out.stdout)
        self.assertFalse(list(self.folder.glob("*.part")))
        model = small(9)
        resumed = self.trained("resumed", model, 2, **diloco.dcp.resume(self.folder, model))
        twin = small(9)
        diloco.dcp.load(self.folder, twin)
        direct = self.trained("direct", twin, 2, init_from=str(first), init_as="continuation")
        self.assertEqualTensors(values(model), values(twin))
        fresh = small(9)
        diloco.dcp.load(self.folder, fresh)
        self.trained("fresh", fresh, 2)
        self.assertFalse(torch.equal(values(fresh)[0], values(model)[0]))  # its momentum was zero
        self.assertEqual(diloco.run(resumed).verify()["digest"], diloco.run(direct).verify()["digest"])

    def test_the_ranks_of_an_island_resume_from_it_together(self):
        first = self.trained("first", small(), 2)
        diloco.dcp.save(first, self.folder)
        whole = small(9)
        diloco.dcp.load(self.folder, whole)
        direct = self.trained("direct", whole, 2, init_from=str(first), init_as="continuation")
        store = self.store.with_name("island")
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(rank), str(self.folder),
                                   str(store)]) for rank in range(2)]
        self.assertEqual([rank.wait() for rank in ranks], [0, 0])
        sharded, one = diloco.run(store).theta(), diloco.run(direct).theta()
        for name in one:  # the sums of two ranks are in another order
            self.assertTrue(torch.allclose(torch.tensor(sharded[name]), torch.tensor(one[name]),
                                           atol=1e-5), name)

    def test_a_model_of_five_dimensions_comes_back_in_its_own_shape(self):
        def cubes(width=2, layout=torch.contiguous_format):
            torch.manual_seed(width)
            return torch.nn.Conv3d(1, 3, (width, 2, 4), bias=False).to(memory_format=layout)
        model = cubes()
        opt = self.optimizer(model, sync_every=2, rounds=2)
        while not opt.done:
            model(torch.randn(2, 1, 4, 4, 4)).square().mean().backward()
            opt.step()
        opt.close()
        diloco.dcp.save(self.store, self.folder)
        for layout in (torch.contiguous_format, torch.channels_last_3d):
            for load in (diloco.dcp.load, diloco.dcp.resume):
                twin = cubes(layout=layout)
                torch.nn.init.zeros_(twin.weight)
                options = load(self.folder, twin)
                self.assertEqualTensors(values(twin), values(model))
        self.store = self.store.with_name("second")
        self.optimizer(twin, sync_every=2, rounds=2, **options).close()
        for wrong in (cubes(1), cubes(3)):
            with self.assertRaisesRegex(diloco.InvalidError, r"weight is \[3, 1, 2, 8\] in"):
                diloco.dcp.load(self.folder, wrong)

    def test_a_parameter_without_elements_need_not_be_there(self):
        def model(seed=1):
            made = small(seed)
            made.register_parameter("none", torch.nn.Parameter(torch.empty(0, 3)))
            return made
        first, twin = model(), model(9)
        diloco.dcp.save(self.trained("first", first, 2), self.folder)
        diloco.dcp.resume(self.folder, twin)
        self.assertEqualTensors(values(twin), values(first))

    def test_a_checkpoint_of_another_program_gives_its_model_alone(self):
        model = small()
        dcp.save({"model": model.state_dict()}, checkpoint_id=self.folder, no_dist=True)
        twin = small(4).to(torch.bfloat16)
        diloco.dcp.load(self.folder, twin)
        self.assertEqualTensors(values(twin), [v.to(torch.bfloat16) for v in values(model)])
        with self.assertRaisesRegex(diloco.RefusedError, "no state of an outer optimizer.*load"):
            diloco.dcp.resume(self.folder, twin)

    def test_a_model_that_does_not_fit_is_refused_by_name_and_keeps_its_values(self):
        dcp.save({"model": small().state_dict()}, checkpoint_id=self.folder, no_dist=True)
        shorter = torch.nn.Sequential(torch.nn.Linear(6, 5))
        wider = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4))
        longer = torch.nn.Sequential(*small(), torch.nn.Linear(3, 2))
        for other, words in ((shorter, "has 2.weight, and this model has not"),
                             (wider, r"2.weight is \[3, 5\] in the checkpoint .* and \[4, 5\]"),
                             (longer, "3.weight trains in this model and is not in")):
            before = values(other)
            with self.assertRaisesRegex(diloco.InvalidError, words):
                diloco.dcp.load(self.folder, other)
            self.assertEqualTensors(values(other), before)
        stages = {f"stage0.{k}": v for k, v in small().state_dict().items()}  # of a pipeline's run
        dcp.save({"model": stages}, checkpoint_id=self.folder / "stages", no_dist=True)
        with self.assertRaisesRegex(diloco.InvalidError, "0.weight trains in this model"):
            diloco.dcp.load(self.folder / "stages", small())
        with self.assertRaisesRegex(diloco.InvalidError, "no DCP checkpoint"):
            diloco.dcp.load(self.folder / "empty", small())

    def test_export_refuses_another_type_and_a_folder_with_a_checkpoint(self):
        first = self.trained("first", small(), 1)
        diloco.dcp.save(first, self.folder)
        environment = {**os.environ, "DILOCO_PYTHON": sys.executable}
        for flags, words in ((["--dtype", "bf16"], "in f32"), ([], "has a checkpoint")):
            out = subprocess.run([_program.path(), "export", str(first), "--to", "dcp", "--out",
                                  str(self.folder), *flags], env=environment, capture_output=True,
                                 text=True)
            self.assertNotEqual(out.returncode, 0)
            self.assertIn(words, out.stderr)


def rank_of_an_island(rank, folder, store):
    from torch.distributed.fsdp import fully_shard
    torch.distributed.init_process_group("gloo", f"file://{store}.rendezvous", rank=int(rank),
                                         world_size=2)
    model = small(9)
    fully_shard(model)
    inner = adamw(model)
    with diloco.DiLoCoOptimizer(model, inner, store, options=QUICK, sync_every=3, rounds=2,
                                **diloco.dcp.resume(folder, model)) as opt:
        step = 0
        while not opt.done:
            x, y = batch(0, step)
            opt.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            opt.step()
            step += 1
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_of_an_island(*sys.argv[2:])
    else:
        unittest.main()
