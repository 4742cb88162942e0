"""torch_optimizer_test.py - DiLoCoOptimizer in place of torch's own: refusals, outer optimizers
of torch, and loops written for torch alone. Skips itself (77) without torch."""
import copy
import logging
import os
import signal
import sys
import threading
import time
import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from diloco import _optimizer, _outer_torch
from torch_world import QUICK, InScratch, adamw, batch, inner_step, small, values


class Refusals(InScratch):
    def check(self, tensor, why, kind=diloco.Error):
        with self.assertRaisesRegex(kind, why):
            diloco.DiLoCoOptimizer([("w", tensor)], torch.optim.SGD([tensor], lr=1), self.store)

    def test_tensors_that_cannot_take_part(self):
        self.check(torch.zeros(3, device="meta"), "w is on the meta device", ValueError)
        self.check(torch.zeros(3, 4).to_sparse(), "w is sparse", diloco.RefusedError)
        self.check(torch.zeros(3, 8)[:, ::2], r"not contiguous \(strides \(8, 2\)\)", ValueError)
        self.check(torch.zeros(3, 1).expand(3, 4), "not contiguous", ValueError)
        self.check(torch.zeros(3, dtype=torch.float64), "w is float64: a tensor is one of")
        self.check(torch.zeros(0), "no elements", ValueError)
        with self.assertRaisesRegex(ValueError, "no parameters"):
            diloco.DiLoCoOptimizer([], torch.optim.SGD([torch.zeros(1)], lr=1), self.store)

    def test_optimizers_with_master_weights_are_refused_by_name(self):
        def like(name, module, **attributes):
            kind = type(name, (torch.optim.SGD,), {"__module__": module})
            inner = kind(model.parameters(), lr=1)
            inner.__dict__.update(attributes)
            return inner
        model = small()
        for words, inner in {
                "BF16_Optimizer of DeepSpeed": like("BF16_Optimizer",
                                                    "deepspeed.runtime.bf16_optimizer"),
                "FusedAdam of Apex": like("FusedAdam", "apex.optimizers.fused_adam",
                                          master_weights=True),
                "FP16_Optimizer of Apex": like("FP16_Optimizer", "apex.contrib.optimizers"),
                "SGD of Apex": like("SGD", "torch.optim.sgd", _amp_stash=object()),
                "FusedAdam of transformer_engine": like(
                    "FusedAdam", "transformer_engine.pytorch.optimizers", master_weights=True)
        }.items():
            with self.assertRaisesRegex(diloco.RefusedError, words + " keeps master weights"):
                self.optimizer(model, inner)
        for plain in (like("FusedAdam", "apex.optimizers.fused_adam", master_weights=False),
                      like("FusedAdam", "deepspeed.ops.adam.fused_adam")):
            self.optimizer(model, plain, sync_every=50).close()

    def test_an_optimizer_that_writes_its_own_weights_over_the_shared_model_is_found(self):
        class Keeps(torch.optim.SGD):
            masters = None

            def step(self, closure=None):
                parameters = self.param_groups[0]["params"]
                if self.masters is None:
                    self.masters = [p.detach().clone() for p in parameters]
                for m, p in zip(self.masters, parameters):
                    m -= self.param_groups[0]["lr"] * p.grad
                    p.data.copy_(m)
        class Plain(torch.optim.SGD):
            pass
        for kind, dtype in ((Keeps, torch.float32), (Keeps, torch.bfloat16), (Plain, torch.float32)):
            with self.subTest(kind.__name__, dtype=dtype):
                self.store = self.store.with_name(f"{kind.__name__}-{dtype}")
                model = small(dtype=dtype)
                opt = self.optimizer(model, kind(model.parameters(), lr=.02), sync_every=40,
                                     rounds=2)
                for step in range(40):
                    inner_step(model, opt, 0, step)
                if kind is Keeps:
                    with self.assertRaisesRegex(diloco.InvalidError, "Keeps has written over"):
                        inner_step(model, opt, 0, 40)
                    continue
                for step in range(40, 80):
                    inner_step(model, opt, 0, step)
                self.assertTrue(opt.done)

    def test_an_optimizer_of_torch_may_return_to_its_optimum_in_one_step(self):
        torch.manual_seed(1)
        x = torch.linalg.qr(torch.randn(64, 7))[0] * 8
        y = torch.cat([x.sum(1, keepdim=True), -x.sum(1, keepdim=True)], 1)
        model = torch.nn.Linear(7, 2, bias=False)
        opt = self.optimizer(model, torch.optim.SGD(model.parameters(), lr=.9), sync_every=10,
                             rounds=3)
        while not opt.done:
            torch.nn.functional.mse_loss(model(x), y).backward()
            opt.step()
            opt.zero_grad()

    def test_other_models_are_told(self):
        self.optimizer(small()).close()
        wide = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3))
        in_run = (r"tensor 0 is 0\.weight F32 parameter \[5, 6\] in fragment 0 in the run that "
                  "replica r0 created, ")
        for model, words in (
                (torch.nn.Linear(3, 3), in_run + r"weight F32 parameter \[3, 3\] .* on replica r1"),
                (wide, in_run + r"0\.weight F32 parameter \[4, 6\] .* on replica r1"),
                (small()[:1], "replica r0 created has 4 tensors, the model on replica r1 has 2")):
            with self.assertRaisesRegex(diloco.DiffersError, words):
                self.optimizer(model, replica="r1")

    def test_options_with_an_open_run(self):
        model = small()
        with diloco.Run(self.store, sync_every=2) as run:
            with self.assertRaisesRegex(ValueError, "sync_every"):
                diloco.DiLoCoOptimizer(model, adamw(model), run, sync_every=3)
            self.assertFalse(diloco.DiLoCoOptimizer(model, adamw(model), run).done)

    def test_a_step_of_diloco_behind_the_end(self):
        model = small()
        inner = adamw(model)
        with diloco.DiLoCo(self.store, [model], inner, sync_every=1, rounds=1, heartbeat=0.05) as d:
            inner_step(model, inner, 0, 0)
            self.assertTrue(d.done)
            before = values(model)
            with self.assertRaisesRegex(ValueError, "the run has ended"):
                inner_step(model, inner, 0, 1)
            self.assertEqualTensors(values(model), before)

    def test_diloco_is_entered_once_at_a_time(self):
        model = small()
        inner = adamw(model)
        d = diloco.DiLoCo(self.store, [model], inner, sync_every=50, heartbeat=0.05)
        self.addCleanup(d.close)
        with d:
            with self.assertRaisesRegex(diloco.InvalidError, "one with statement"), d:
                pass
            inner_step(model, inner, 0, 0)
        self.assertEqual(d.run.now.step, 1)
        inner_step(model, inner, 0, 1)
        self.assertEqual(d.run.now.step, 1)
        with d:
            inner_step(model, inner, 0, 2)
        self.assertEqual(d.run.now.step, 2)

    def test_parameters_that_are_added_to_the_inner_optimizer_are_refused_before_the_step(self):
        model = small()
        inner = adamw(model)
        opt = self.optimizer(model, inner, sync_every=2, rounds=1)
        inner_step(model, opt, 0, 0)
        inner.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
        before = values(model)
        with self.assertRaisesRegex(diloco.InvalidError, "AdamW has 5 parameters, and had 4"):
            inner_step(model, opt, 0, 1)
        self.assertEqualTensors(values(model), before)
        del inner.param_groups[1]
        inner_step(model, opt, 0, 1)
        self.assertTrue(opt.done)

    def test_a_store_or_a_name_of_another_type_is_refused(self):
        model = small()
        for store, replica, words in ((None, "r0", "the store is a NoneType"),
                                      (self.store, 0, "replica's name is 0"),
                                      (self.store, None, "replica's name is None")):
            with self.assertRaisesRegex(diloco.InvalidError, words):
                diloco.DiLoCoOptimizer(model, adamw(model), store, replica)

    def test_a_step_behind_the_end(self):
        model = small()
        opt = self.optimizer(model, sync_every=1, rounds=1)
        inner_step(model, opt, 0, 0)
        self.assertTrue(opt.done)
        before = values(model)
        with self.assertRaisesRegex(ValueError, "the run has ended"):
            opt.step()
        self.assertEqualTensors(values(model), before)
        with torch.no_grad():
            model[0].weight.add_(1)  # as a trainer that looks only after its step
        opt.adopt()
        self.assertEqualTensors(values(model), before)
        with self.assertRaisesRegex(ValueError, "same tensors"):
            opt.add_param_group({"params": [torch.zeros(1)]})

    def test_a_step_or_an_adoption_after_close_changes_nothing_and_says_so(self):
        for given in (False, True):
            with self.subTest(run_given=given):
                self.store = self.store.with_name(f"run{given}")
                model = small()
                run = diloco.Run(self.store, options=QUICK, sync_every=3, rounds=2)
                opt = diloco.DiLoCoOptimizer(model, adamw(model), run) if given else \
                    self.optimizer(model, sync_every=3, rounds=2)
                inner_step(model, opt, 0, 0)
                run.close() if given else opt.close()
                before = values(model)
                for call in (opt.step, opt.adopt):
                    with self.assertRaisesRegex(diloco.ClosedError, "closed: make a new optimizer"):
                        call()
                self.assertEqualTensors(values(model), before)
                opt.close()

    def test_a_reported_loss_that_is_no_number_is_refused_and_the_replica_goes_on(self):
        model = small()
        opt = self.optimizer(model, sync_every=3, rounds=2)
        for loss, words in ((torch.ones(8), r"a tensor of type float32 and shape \[8\]"),
                            (torch.ones(1, dtype=torch.complex64), "a tensor of type complex64"),
                            (torch.ones(0), r".*shape \[0\]"), ("0.5", "a str"), (None, "a NoneType"),
                            ([1, 2], "a list"), (1j, "a complex")):
            with self.assertRaisesRegex(diloco.InvalidError, f"loss is {words}.*loss.mean"):
                opt.report(loss, samples=4)
                opt.step()
        for number, loss in enumerate((2, torch.ones(1, 1), torch.tensor(3), float("nan"),
                                       torch.tensor(float("inf")), .5)):
            opt.report(loss, samples=4)
            opt.step()
            self.assertEqual(opt.run.now.step, number + 1)
        self.assertTrue(opt.done)

    def test_a_scheduler_that_follows_a_measure_is_refused_and_may_be_saved_as_extra(self):
        model = small()
        inner = adamw(model)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(inner, patience=0)
        with self.assertRaisesRegex(diloco.InvalidError, "ReduceLROnPlateau.*extra="):
            self.optimizer(model, inner, scheduler=plateau)
        opt = self.optimizer(model, inner, extra={"plateau": plateau}, sync_every=2, rounds=2)
        while not opt.done:
            inner_step(model, opt, 0, opt.run.now.step)
            plateau.step(1.)
        self.assertLess(inner.param_groups[0]["lr"], .01)

    def test_extra_state_has_to_be_plain(self):
        class Odd:
            def state_dict(self):
                return {"x": object()}

            def load_state_dict(self, state):
                raise AssertionError(state)
        model = small()
        for sync_every in (1, 50):  # before the first step, and not at the first due point
            with self.assertRaisesRegex(diloco.RefusedError, r"odd\.x is of type.*plain numbers"):
                self.optimizer(model, extra={"odd": Odd()}, sync_every=sync_every)


class OuterOptimizers(InScratch):
    """A run whose outer optimizer is torch's, beside the same loop in torch alone."""

    OPTIMIZERS = {
        "nesterov": lambda p: torch.optim.SGD(p, lr=0.7, momentum=0.9, nesterov=True),
        "plain": lambda p: torch.optim.SGD(p, lr=0.5),
        "adam": lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.8, 0.95)),
    }

    def by_torch(self, make, rounds, steps):
        model, theta = small(), [torch.nn.Parameter(v) for v in values(small())]
        inner, outer = adamw(model), make(theta)
        for step in range(rounds * steps):
            inner_step(model, inner, 0, step)
            if (step + 1) % steps:
                continue
            for t, p in zip(theta, model.parameters()):
                t.grad = t.detach() - p.detach()
            outer.step()
            with torch.no_grad():
                for t, p in zip(theta, model.parameters()):
                    p.copy_(t)
        return values(model)

    def train(self, model, opt, stop=None):
        while not opt.done and opt.run.now.step != stop:
            inner_step(model, opt, 0, opt.run.now.step)

    def live(self, make, stop=None, replica="r0", **options):
        model = small()
        with self.optimizer(model, replica=replica, outer_optimizer=make(model.parameters()),
                            **{"sync_every": 3, "rounds": 4, **options}) as opt:
            self.train(model, opt, stop)
            if stop:
                opt.save()
            else:
                self.assertTrue(opt.run.verify()["complete"])
        return values(model)

    def test_it_is_torch_s_own_to_the_last_bit(self):
        for name, make in self.OPTIMIZERS.items():
            self.store = self.store.with_name(name)
            with self.subTest(name):
                for a, b in zip(self.live(make), self.by_torch(make, 4, 3)):
                    self.assertTrue(torch.equal(a, b), (a - b).abs().max())

    def test_with_overlap_it_is_called_beside_training(self):
        self.live(self.OPTIMIZERS["nesterov"], fragments=2, overlap_steps=1)  # verifies the log

    def test_a_resume_and_a_joiner_go_on_from_its_vectors(self):
        make = self.OPTIMIZERS["adam"]
        whole = self.live(make)
        self.store = self.store.with_name("resumed")
        self.live(make, stop=8)
        for a, b in zip(whole, self.live(make)):
            self.assertTrue(torch.equal(a, b))
        late = self.live(make, replica="r1")  # the run has ended: the replica gets all of it
        for a, b in zip(whole, late):
            self.assertTrue(torch.equal(a, b))

    def test_diloco_takes_it_too(self):
        model, make = small(), self.OPTIMIZERS["nesterov"]
        inner = adamw(model)
        d = diloco.DiLoCo(self.store, [model], inner, make(model.parameters()), sync_every=3,
                          rounds=4, heartbeat=0.05)
        with d:
            while not d.done:
                inner_step(model, inner, 0, d.run.now.step)
        d.close()
        for a, b in zip(values(model), self.by_torch(make, 4, 3)):
            self.assertTrue(torch.equal(a, b))

    def test_another_one_is_refused_by_name(self):
        self.live(self.OPTIMIZERS["nesterov"])
        for words, make in {
                r"user:torch[0-9.]+-SGD-[0-9a-f]{8} in the run, user:torch[0-9.]+-SGD-":
                    self.OPTIMIZERS["plain"],
                "outer_learning_rate is 0.7 in the run, 0.5 here": lambda p: torch.optim.SGD(
                    p, lr=0.5, momentum=0.9, nesterov=True)}.items():
            with self.assertRaisesRegex(diloco.DiffersError, words):
                self.live(make, replica="r1")

    def test_another_release_of_torch_is_refused_by_its_number(self):
        make = self.OPTIMIZERS["nesterov"]
        with mock.patch.object(_outer_torch, "_RELEASE", "1.98"):
            self.live(make, stop=8)
        with mock.patch.object(_outer_torch, "_RELEASE", "1.99"):
            for replica in ("r0", "r1"):
                with self.assertRaisesRegex(diloco.DiffersError,
                                            "user:torch1.98-SGD-([0-9a-f]{8}) in the run, "
                                            r"user:torch1.99-SGD-\1 here"):
                    self.live(make, replica=replica)
        with mock.patch.object(_outer_torch, "_RELEASE", "1.98"):
            self.live(make)  # resumes

    def test_a_state_that_the_log_cannot_tell_is_refused(self):
        def two_groups(p):
            a, *rest = p
            return torch.optim.SGD([{"params": [a]}, {"params": rest, "lr": 2}], lr=1)
        for words, make in {"a state eta": torch.optim.ASGD,
                            "cannot begin": torch.optim.LBFGS,
                            "groups with different": two_groups}.items():
            with self.assertRaisesRegex(diloco.RefusedError, words):
                self.live(make)
        with self.assertRaisesRegex(diloco.InvalidError, "outer_optimizer is a int"):
            diloco.Run(self.store, outer_optimizer=3)


class DropIn(InScratch):
    def test_state_dict(self):
        model = small()
        opt = self.optimizer(model, sync_every=50)
        inner_step(model, opt, 0, 0)
        saved = copy.deepcopy(opt.state_dict())
        self.assertEqual(saved["diloco"]["step"], 1)
        inner_step(model, opt, 0, 1)
        opt.load_state_dict(saved)
        self.assertEqual(opt.state_dict()["state"][0]["step"].item(), 1)
        inner_step(model, opt, 0, 2)  # the groups are still the inner optimizer's
        with self.assertRaisesRegex(diloco.DiffersError, "of run nobody"):
            opt.load_state_dict({**saved, "diloco": {"run": "nobody"}})

    def test_a_scheduler_on_it_drives_the_inner_optimizer(self):
        model = small()
        inner = adamw(model)
        opt = self.optimizer(model, inner, sync_every=50)
        schedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=.1)
        inner_step(model, opt, 0, 0)
        schedule.step()
        self.assertAlmostEqual(inner.param_groups[0]["lr"], .001)
        inner.load_state_dict(copy.deepcopy(inner.state_dict()))  # which makes new groups
        inner_step(model, opt, 0, 1)
        schedule.step()
        self.assertAlmostEqual(inner.param_groups[0]["lr"], .0001)

    def schedules(self, steps, by_hand, **more):
        """The scheduler after some steps, and the warnings."""
        model = small()
        inner = adamw(model)
        schedule = torch.optim.lr_scheduler.LambdaLR(inner, lambda t: 1 / (1 + t))
        if more.pop("chained", False):
            schedule = torch.optim.lr_scheduler.ChainedScheduler([schedule])
        if "extra" in more:
            more["extra"] = {"schedule": schedule}
        with self.assertLogs("diloco", "WARNING") as log:
            logging.getLogger("diloco").warning("a first line")
            opt = self.optimizer(model, inner, sync_every=3, rounds=4,
                                 **{k: schedule if k == "scheduler" else v
                                    for k, v in more.items()})
            for step in range(steps):
                inner_step(model, opt, 0, step)
                if by_hand:
                    schedule.step()
            opt.close()
        return schedule, log.output[1:]

    def test_a_scheduler_that_is_not_saved_or_is_stepped_twice_is_warned_of(self):
        for words, by_hand, more in (
                ("after a restart it is at its first step: pass it as scheduler=", True, {}),
                ("also been stepped by its caller", True, {"scheduler": None}),
                (None, False, {"scheduler": None}), (None, True, {"extra": None}),
                (None, True, {"extra": None, "chained": True})):
            with self.subTest(by_hand=by_hand, more=more):
                self.store = self.store.with_name(f"{by_hand}{list(more)}")
                schedule, said = self.schedules(5, by_hand, **more)
                self.assertEqual(len(said), words is not None)  # once
                for line in said:
                    self.assertIn(words, line)
        self.store = self.store.with_name("restart")
        self.schedules(7, False, scheduler=None)
        self.assertEqual(self.schedules(2, False, scheduler=None)[0].last_epoch, 6 + 2)

    def test_parameters_of_the_optimizer_that_the_model_lacks_are_warned_of(self):
        model, head = small(), torch.nn.Linear(3, 2)
        inner = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=.1)
        with self.assertLogs("diloco", "WARNING") as log:
            self.optimizer(model, inner, sync_every=50)
        self.assertRegex(log.output[0], r"the SGD also trains 2 tensors .* shape \[2, 3\]")

    def test_a_parameter_that_the_model_has_no_more_is_refused(self):
        def assigned(model):
            model.load_state_dict({k: v + 1 for k, v in model.state_dict().items()}, assign=True)

        def tied(model):
            model[2].bias = model[0].weight
        for change, name in ((assigned, "0.weight"), (tied, "2.bias")):
            with self.subTest(name):
                self.store = self.store.with_name(name)
                model = small()
                opt = self.optimizer(model, sync_every=2)
                change(model)
                opt.step()
                with self.assertRaisesRegex(diloco.InvalidError,
                                            name + " of the model is another tensor than the one"):
                    opt.step()

    def test_a_state_dict_round_trip_through_a_file_goes_on_bitwise(self):
        ends = []
        for through_file in (False, True):
            self.store = self.store.with_name(f"file{through_file}")
            model = small()
            opt = self.optimizer(model, sync_every=50)
            for step in range(3):
                inner_step(model, opt, 0, step)
            if through_file:
                path = self.store.with_name("saved.pt")
                torch.save({"model": model.state_dict(), "opt": opt.state_dict()}, path)
                inner_step(model, opt, 0, 99)
                saved = torch.load(path, weights_only=True)
                model.load_state_dict(saved["model"])
                opt.load_state_dict(saved["opt"])
            for step in range(3, 6):
                inner_step(model, opt, 0, step)
            ends.append(values(model))
        self.assertEqualTensors(*ends)

    def test_a_grad_scaler_skips_a_step_that_overflows_and_counts_the_others(self):
        model = small()
        opt = self.optimizer(model, sync_every=50)
        scaler = torch.amp.GradScaler("cpu", init_scale=4)
        before = None
        for step in range(4):
            x, y = batch(0, step)
            opt.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y) * (float("inf") if step == 1 else 1)
            scaler.scale(loss).backward()
            before = values(model)
            scaler.step(opt)
            scaler.update()
            if step == 1:
                self.assertEqualTensors(values(model), before)
        self.assertEqual(opt.run.now.step, 3)
        self.assertEqual(scaler.get_scale(), 2)

    def test_accumulated_gradients_are_one_step(self):
        model, twin = small(), small()
        opt, plain = self.optimizer(model, sync_every=50), adamw(twin)
        for m, o in ((model, opt), (twin, plain)):
            for micro in range(6):
                x, y = batch(0, micro)
                (torch.nn.functional.mse_loss(m(x), y) / 3).backward()
                if micro % 3 == 2:
                    o.step()
                    o.zero_grad()
        self.assertEqual(opt.run.now.step, 2)
        self.assertEqualTensors(values(model), values(twin))

    def test_a_compiled_training_step_counts_and_exchanges(self):
        model = small()
        opt = self.optimizer(model, sync_every=2, rounds=2)

        @torch.compile(backend="eager")
        def train(x, y):
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss
        for step in range(4):
            train(*batch(0, step))
        self.assertTrue(opt.done)
        self.assertEqual(len(diloco.run(self.store).history()), 2)
        self.assertEqual(opt.run.now.step, 4)

    def test_an_exception_in_a_with_statement_leaves_a_run_that_can_be_resumed(self):
        model = small()
        with self.assertRaises(KeyError), diloco.DiLoCoOptimizer(
                model, adamw(model), self.store, sync_every=2, rounds=2) as opt:
            for step in range(3):
                inner_step(model, opt, 0, step)
            raise KeyError("the user's own")
        with self.assertRaises(diloco.ClosedError):
            opt.run.step()
        again = small(2)
        with diloco.DiLoCoOptimizer(again, adamw(again), self.store) as opt:
            self.assertTrue(opt.binding.resumed)
            while not opt.done:
                inner_step(again, opt, 0, opt.run.now.step)

    def test_two_optimizers_in_one_process_have_a_run_each(self):
        models = [small(1), small(2)]
        opts = []
        for i, model in enumerate(models):
            self.store = self.store.with_name(f"run{i}")
            opts.append(self.optimizer(model, sync_every=2, rounds=2 + i))
        while not all(opt.done for opt in opts):
            for model, opt in zip(models, opts):
                if not opt.done:
                    inner_step(model, opt, 0, opt.run.now.step)
        self.assertEqual([opt.run.now.step for opt in opts], [4, 6])
        self.assertNotEqual(opts[0].run.now.run, opts[1].run.now.run)

    def test_a_closure_gives_the_loss(self):
        model = small()
        opt = self.optimizer(model, sync_every=1, rounds=1)

        def closure():
            opt.zero_grad()
            loss = model(torch.ones(1, 6)).pow(2).sum()
            loss.backward()
            return loss
        loss = opt.step(closure)
        self.assertAlmostEqual(diloco.run(self.store).history()[0]["loss"], loss.item(), places=5)

    def test_a_report_in_a_closure_counts_for_its_own_step(self):
        model = small()
        opt = self.optimizer(model, sync_every=1, rounds=2)
        losses = []
        for step in range(2):
            def closure(step=step):
                x, y = batch(0, step)
                opt.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                opt.report(loss, samples=4 + step)
                return loss
            losses.append(opt.step(closure).item())
        rows = diloco.run(self.store).history()
        self.assertEqual([r["samples"] for r in rows], [4, 5])
        for row, loss in zip(rows, losses):
            self.assertAlmostEqual(row["loss"], loss, places=5)

    def test_the_mean_of_float16_losses_does_not_overflow(self):
        loss = torch.tensor(60000, dtype=torch.float16)
        report = {"loss": loss, "samples": 4, "tokens": 0}
        self.assertEqual(float(_optimizer.joined_report([report, report])["loss"]), loss.item())

    def test_an_averaged_model_that_is_updated_at_due_points_is_equal_on_all_replicas(self):
        self.together(2, sync_every=2, rounds=3)
        plain = diloco.run(self.store).theta_bytes()
        self.store = self.store.with_name("averaged")
        averages, models = [], [small(7), small(7)]

        def live(r):
            opt = self.optimizer(models[r], replica=f"r{r}", replicas=2, sync_every=2, rounds=3)
            average = torch.optim.swa_utils.AveragedModel(models[r])
            while not opt.done:
                step = opt.run.now.step
                inner_step(models[r], opt, r, step)
                if (step + 1) % 2 == 0:
                    average.update_parameters(models[r])
            opt.close()
            averages.append(values(average.module))
        threads = [threading.Thread(target=live, args=(r,)) for r in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqualTensors(*averages)
        self.assertEqual(diloco.run(self.store).theta_bytes(), plain)
        self.assertFalse(torch.equal(averages[0][0], models[0][0].weight))

    def test_ctrl_c_during_the_wait_ends_a_cell_and_the_object_continues(self):
        former = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, former)  # ignored: a shell's background job
        model, other = small(), small()
        opt = self.optimizer(model, sync_every=2, rounds=2, replicas=2)
        twin = self.optimizer(other, replica="r1")

        def kill():
            while diloco.run(self.store).status()["wait"]["n_there"] == 0:
                time.sleep(0.01)  # until r0 has contributed and only waits
            os.kill(os.getpid(), signal.SIGINT)

        def cell():
            while not opt.done:
                inner_step(model, opt, 0, opt.run.now.step)
        killer = threading.Thread(target=kill)
        killer.start()
        with self.assertRaises(KeyboardInterrupt):
            cell()
        killer.join()
        before = values(model)
        with self.assertRaisesRegex(diloco.InvalidError, "exchange of the last step was ended by "
                                                         "KeyboardInterrupt: call binding.wait"):
            cell()  # which takes no step
        self.assertEqualTensors(values(model), before)
        opt.save()  # a wait changes nothing that is saved

        def live():
            for step in range(4):
                inner_step(other, twin, 1, step)
        second = threading.Thread(target=live)
        second.start()
        opt.binding.wait()
        cell()
        second.join()
        self.assertTrue(opt.done and twin.done)
        self.assertEqualTensors(values(model), values(other))
        got, self.store = values(model), self.store.with_name("undisturbed")
        self.assertEqualTensors(values(self.together(2, lambda seed: small(), sync_every=2,
                                                     rounds=2)[0]), got)

    def test_an_interrupted_step_goes_on(self):
        model = small()
        opt = self.optimizer(model, sync_every=1, rounds=1, replicas=2)
        opt.run.interrupt()
        with self.assertRaises(diloco.Interrupted):
            inner_step(model, opt, 0, 0)
        with self.assertRaises(diloco.InvalidError):
            opt.binding.run.step()
        other = small()
        twin = self.optimizer(other, replica="r1")
        waiting = threading.Thread(target=opt.binding.wait)
        waiting.start()
        inner_step(other, twin, 1, 0)
        waiting.join()
        self.assertTrue(opt.done and twin.done)
        self.assertEqualTensors(values(model), values(other))


if __name__ == "__main__":
    unittest.main()
