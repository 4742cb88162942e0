"""adapter_test.py - a model of which a small part trains: only that part is exchanged, and a
replica with another base or another adapter is refused by name. Skips itself (77) without torch;
the PEFT folder without peft and transformers."""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import torch
except ImportError as error:
    print(f"left out: adapters ({error})")
    sys.exit(77)
try:
    import peft
    import transformers
except ImportError as error:
    print(f"left out of adapter_test: PEFT models ({error})")
    peft = None

import diloco
from diloco import _program

torch.set_num_threads(1)
QUICK = {"run.heartbeat": 0.05, "run.patience": 240}


class Adapted(torch.nn.Module):
    """A frozen linear layer with a low-rank adapter, by hand."""

    def __init__(self, width, rank, seed=1, dtype=torch.float32):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.base = torch.nn.Parameter(torch.randn(width, width, generator=g).to(dtype),
                                       requires_grad=False)
        g = torch.Generator().manual_seed(7)
        self.lora_A = torch.nn.Parameter(torch.randn(rank, width, generator=g) / width ** .5)
        self.lora_B = torch.nn.Parameter(torch.zeros(width, rank))

    def forward(self, x):
        return x @ self.base.to(x.dtype).T + x @ self.lora_A.T @ self.lora_B.T


def inner_step(model, opt, seed):
    x = torch.randn(4, model.base.shape[1], generator=torch.Generator().manual_seed(seed))
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()


def sgd(model):
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)


class InScratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.store = self.folder / "run"

    def optimizer(self, model, replica="r0", **options):
        opt = diloco.DiLoCoOptimizer(model, sgd(model), self.store, replica, options=QUICK,
                                     **options)
        self.addCleanup(opt.close)
        return opt

    def size(self):
        return sum(f.stat().st_size for f in self.folder.rglob("*") if f.is_file())

    def tensors(self):
        return {t["name"]: t["role"] for t in
                json.loads((self.store / "run.json").read_text())["tensors"]}


class Exchange(InScratch):
    def test_two_replicas_agree_on_the_adapter_and_keep_their_base(self):
        models, raised = [Adapted(8, 2) for _ in range(2)], []

        def live(r):
            try:
                with self.optimizer(models[r], f"r{r}", replicas=2, sync_every=2, rounds=3) as opt:
                    for step in range(10**6):
                        if opt.done:
                            return
                        inner_step(models[r], opt, 1000 * r + step)
            except BaseException as error:
                raised.append(error)
        threads = [threading.Thread(target=live, args=(r,)) for r in range(2)]
        [t.start() for t in threads], [t.join() for t in threads]
        self.assertEqual(raised, [])
        for p, q, first in zip(models[0].parameters(), models[1].parameters(),
                               Adapted(8, 2).parameters()):
            self.assertTrue(torch.equal(p, q))
            self.assertEqual(torch.equal(p, first), not p.requires_grad)
        self.assertEqual(self.tensors(), {"lora_A": "parameter", "lora_B": "parameter"})

    def test_a_model_with_the_ratio_of_7_b_and_rank_16_sends_only_its_adapter(self):
        """LLaMA-7B with rank 16 on q and v: 8.4 M of 6.7 G parameters, 1 in 803. Here 1 in 800."""
        model = Adapted(1600, 1, dtype=torch.bfloat16)
        adapter = sum(p.numel() for p in model.parameters() if p.requires_grad)
        base = model.base.numel()
        self.assertEqual(base // adapter, 800)
        rounds = 4
        with self.optimizer(model, sync_every=1, rounds=rounds) as opt:
            before = opt.run.now.bytes_sent
            while not opt.done:
                inner_step(model, opt, 0)
            sent = opt.run.now.bytes_sent - before
            contributions = [row["bytes"] for row in diloco.run(self.store).history()]
        self.assertEqual(len(contributions), rounds)
        for size in contributions:  # float32 and the header of a contribution
            self.assertGreater(size, 4 * adapter)
            self.assertLess(size, 4 * adapter + 4096)
        # Contributions, log entries, heartbeats, and snapshots of the state (theta and momentum).
        self.assertLess(sent, rounds * (3 * 4 * adapter + 16384))
        self.assertLess(self.size(), 2 * base // 10)  # nowhere a copy of the base, in any type
        # At this size of state 7 B and rank 16 is 8.4 M float32: 34 MB, and 17 MB as bfloat16.
        self.assertLess(contributions[0] / adapter * 8.4e6, 50e6)

    def test_all_sends_frozen_parameters_too(self):
        model = Adapted(8, 2)
        with self.optimizer(model, sync_every=1, rounds=1, exchange="all"):
            self.assertEqual(self.tensors()["base"], "frozen")

    def test_a_model_without_frozen_parameters_exchanges_all(self):
        model = Adapted(8, 2)
        model.base.requires_grad_(True)
        with self.optimizer(model, sync_every=1, rounds=1):
            self.assertEqual(len(self.tensors()), 3)
            self.assertNotIn("base", json.loads((self.store / "run.json").read_text()))

    def test_topologies_of_the_run_keep_their_names(self):
        with self.optimizer(Adapted(8, 2), sync_every=1, rounds=1, exchange="leader") as opt:
            self.assertEqual(opt.run.setting("server.diloco.exchange"), "leader")
            self.assertEqual(sorted(self.tensors()), ["lora_A", "lora_B"])

    def test_a_base_of_a_type_that_cannot_be_exchanged_is_compared_all_the_same(self):
        model = Adapted(8, 2)
        model.packed = torch.nn.Parameter(torch.arange(9, dtype=torch.uint8), requires_grad=False)
        with self.optimizer(model, sync_every=1, rounds=1):
            kinds = {t["name"]: t["kind"] for t in
                     json.loads((self.store / "run.json").read_text())["base"]}
        self.assertEqual(kinds, {"base": "float32 [8, 8]", "packed": "uint8 [9]"})

    def test_a_resume_is_bitwise(self):
        def live(model, store, stops):
            for stop in stops:
                with diloco.DiLoCoOptimizer(model, sgd(model), store, options=QUICK, sync_every=2,
                                            rounds=3) as opt:
                    for step in range(opt.run.now.step, stop):
                        inner_step(model, opt, step)
                    if stop < 6:
                        opt.save()
            return [p.detach().clone() for p in model.parameters()]
        whole = live(Adapted(8, 2), self.folder / "whole", [6])
        cut = live(Adapted(8, 2), self.folder / "cut", [3, 6])
        for a, b in zip(whole, cut):
            self.assertTrue(torch.equal(a, b))

    def test_with_diloco_the_base_is_not_sent(self):
        model = Adapted(8, 2)
        inner = sgd(model)
        with diloco.DiLoCo(self.store, [model], inner, sync_every=1, rounds=1) as sync:
            inner_step(model, inner, 0)
        self.assertEqual(sorted(self.tensors()), ["0.lora_A", "0.lora_B"])
        sync.close()


class Refusals(InScratch):
    def refused(self, words, model, kind=diloco.DiffersError, **options):
        with self.assertRaisesRegex(kind, words):
            self.optimizer(model, "r1", sync_every=1, rounds=2, **options)

    def test_another_base_is_refused_by_the_tensor_that_differs(self):
        self.optimizer(Adapted(8, 2), sync_every=1, rounds=2)
        self.refused(r"base tensor base \(float32 \[8, 8\]\) has other values on replica r1 than "
                     "in the run that replica r0 created",
                     Adapted(8, 2, seed=2))
        self.refused(r"base tensor 0 is base float32 \[8, 8\] in the run that replica r0 created, base "
                     r"bfloat16 \[8, 8\] on replica r1",
                     Adapted(8, 2, dtype=torch.bfloat16))
        self.optimizer(Adapted(8, 2), "r2", sync_every=1, rounds=2)  # the same one joins

    def test_an_adapter_of_another_rank_is_refused_by_name(self):
        self.optimizer(Adapted(8, 2), sync_every=1, rounds=2)
        self.refused(r"lora_A F32 parameter \[2, 8\] .* in the run that replica r0 created, lora_A F32 "
                     r"parameter \[3, 8\] .* on replica r1",
                     Adapted(8, 3))

    def test_a_replica_that_exchanges_its_base_is_refused_by_name(self):
        self.optimizer(Adapted(8, 2), sync_every=1, rounds=2)
        self.refused("base F32 frozen", Adapted(8, 2), exchange="all")

    def test_a_model_of_which_nothing_trains_is_refused(self):
        model = Adapted(8, 2)
        inner = sgd(model)
        model.requires_grad_(False)
        with self.assertRaisesRegex(diloco.InvalidError, "every parameter is frozen"):
            diloco.DiLoCoOptimizer(model, inner, self.store, sync_every=1, rounds=1)
        self.assertFalse(self.store.exists())

    def test_a_fragment_of_frozen_parameters_is_refused_by_its_number(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), Adapted(3, 1))
        model[0].requires_grad_(False)
        with self.assertRaisesRegex(diloco.InvalidError, "fragment 0 has no tensor"):
            diloco.DiLoCoOptimizer(model, sgd(model), self.store, sync_every=2, rounds=1,
                                   fragments=[model[0], model[1]])

    def test_a_base_that_is_unfrozen_later_is_refused_at_the_next_exchange(self):
        model = Adapted(8, 2)
        opt = self.optimizer(model, sync_every=1, rounds=2)
        inner_step(model, opt, 0)
        model.base.requires_grad_(True)
        with self.assertRaisesRegex(diloco.InvalidError, "base was frozen when the run was joined"):
            inner_step(model, opt, 1)

    def test_a_base_on_the_meta_device_is_refused_by_name(self):
        model = Adapted(8, 2)
        model.base = torch.nn.Parameter(torch.empty(8, 8, device="meta"), requires_grad=False)
        self.refused("base is on the meta device", model, diloco.InvalidError)


@unittest.skipUnless(peft, "no peft")
class Peft(InScratch):
    def model(self, **lora):
        torch.manual_seed(3)
        base = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2))
        config = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], **lora}
        return peft.get_peft_model(base, peft.LoraConfig(**config))

    def trained(self, model, **options):
        ids = torch.randint(32, (4, 8), generator=torch.Generator().manual_seed(5))
        inner = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
        with diloco.DiLoCoOptimizer(model, inner, self.store, options=QUICK, sync_every=2,
                                    rounds=2, **options) as opt:
            while not opt.done:
                opt.zero_grad()
                model(input_ids=ids, labels=ids).loss.backward()
                opt.step()
        return ids

    def test_the_shared_adapter_is_a_peft_folder_that_loads_with_equal_outputs(self):
        model = self.model()
        ids = self.trained(model)
        fresh = self.model()
        diloco.peft.save(self.store, fresh, self.folder / "adapter")
        self.assertEqual(sorted(p.name for p in (self.folder / "adapter").iterdir()
                                if p.name != "README.md"),
                         ["adapter_config.json", "adapter_model.safetensors"])
        base = self.model().unload()
        loaded = peft.PeftModel.from_pretrained(base, self.folder / "adapter")
        model.eval(), loaded.eval(), fresh.eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits))
            self.assertFalse(torch.equal(fresh(input_ids=ids).logits, model(input_ids=ids).logits))

    def test_a_model_of_five_dimensions_has_its_own_shape(self):
        model = torch.nn.Conv3d(1, 3, (2, 2, 4), bias=False)
        opt = diloco.DiLoCoOptimizer(model, sgd(model), self.store, options=QUICK, sync_every=1,
                                     rounds=1)
        with opt:
            model(torch.randn(2, 1, 4, 4, 4)).square().mean().backward()
            opt.step()
            for run in (opt.run, self.store):  # a joined run, and a log
                state = diloco.peft.shared_state(run, torch.nn.Conv3d(1, 3, (2, 2, 4), bias=False))
                self.assertTrue(torch.equal(state["weight"], model.weight))
        with self.assertRaisesRegex(diloco.InvalidError, r"weight is \[3, 1, 2, 8\] in the run and"):
            diloco.peft.shared_state(self.store, torch.nn.Conv3d(1, 3, (2, 2, 3), bias=False))

    def test_a_model_with_batch_norm_and_flags_is_saved_with_the_runs_buffers(self):
        def model():
            torch.manual_seed(3)
            base = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6))
            base.register_buffer("flags", torch.zeros(2, dtype=torch.bool))
            return peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["0"]))
        trained = model()
        trained.get_base_model().flags[1] = True
        inner = torch.optim.SGD([p for p in trained.parameters() if p.requires_grad], lr=.1)
        with diloco.DiLoCoOptimizer(trained, inner, self.store, options=QUICK, sync_every=2,
                                    rounds=2) as opt:
            while not opt.done:
                trained(torch.randn(8, 4)).square().mean().backward()
                opt.step()
        state = diloco.peft.shared_state(self.store, model())
        for name, value in trained.state_dict().items():
            self.assertEqual(state[name].dtype, value.dtype, name)
            self.assertTrue(torch.equal(state[name], value), name)
        self.assertEqual(state["base_model.model.1.num_batches_tracked"], 4)
        diloco.peft.save(self.store, model(), self.folder / "adapter")
        self.assertTrue((self.folder / "adapter" / "adapter_model.safetensors").exists())

    def test_the_program_exports_the_adapter_without_the_model(self):
        model = self.model(use_rslora=True)
        ids = self.trained(model)
        out = subprocess.run([_program.path(), "export", str(self.store), "--adapter", "--out",
                              str(self.folder / "adapter")], capture_output=True, text=True)
        self.assertEqual(out.returncode, 0, out.stderr)
        loaded = peft.PeftModel.from_pretrained(self.model().unload(), self.folder / "adapter")
        self.assertEqual(sorted(loaded.peft_config["default"].target_modules),
                         [f"model.layers.{i}.self_attn.{m}_proj" for i in (0, 1) for m in "qv"])
        model.eval(), loaded.eval()
        with torch.no_grad():
            self.assertTrue(torch.equal(loaded(input_ids=ids).logits, model(input_ids=ids).logits))

    def test_the_rank_and_the_scale_are_compared_by_name(self):
        self.trained(self.model())
        for lora, words in (({"r": 2}, r"lora_A.default.weight F32 parameter \[4, 16\]"),
                            ({"lora_alpha": 16},
                             "peft_config.default.*lora_alpha 8 in the run that replica r0 created, "
                             "peft_config.default.*lora_alpha 16 on replica r1")):
            other = self.model(**lora)
            inner = torch.optim.SGD([p for p in other.parameters() if p.requires_grad], lr=1)
            with self.assertRaisesRegex(diloco.DiffersError, words):
                diloco.DiLoCoOptimizer(other, inner, self.store, "r1")

    def test_a_model_that_is_not_the_runs_is_refused_by_name(self):
        self.trained(self.model())
        for lora, words in (({"r": 2}, r"lora_A.default.weight is \[4, 16\] in the run and "
                                       r"\[2, 16\] in this model"),
                            ({"target_modules": ["q_proj"]}, "the run has .*v_proj.*this model "
                                                             "has not"),
                            ({"target_modules": ["q_proj", "v_proj", "o_proj"]},
                             "o_proj.* trains in this model and is not in the run")):
            with self.assertRaisesRegex(diloco.InvalidError, words):
                diloco.peft.save(self.store, self.model(**lora), self.folder / "adapter")
        with self.assertRaisesRegex(diloco.InvalidError, "a Linear is no PEFT model"):
            diloco.peft.save(self.store, torch.nn.Linear(2, 2), self.folder / "adapter")


if peft:
    import diloco.peft  # noqa: E402


if __name__ == "__main__":
    unittest.main()
