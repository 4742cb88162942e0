"""torch_test.py - models bound to a run: the arithmetic is torch's own, and a resume is bitwise. Skips
itself (77) without torch."""
import copy
import subprocess
import sys
import unittest

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from diloco import _program, _torch
from torch_world import InScratch, adamw, batch, inner_step, small, values


class Arithmetic(InScratch):
    def test_it_is_algorithm_1_of_diloco(self):
        """Against torch's own SGD(nesterov) on the mean of two replicas' movements."""
        got = self.together(2, sync_every=3, rounds=4)
        self.assertEqualTensors(values(got[0]), values(got[1]))

        shared = small(7)
        outer = torch.optim.SGD(shared.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        locals_ = [small(7) for _ in range(2)]
        inners = [adamw(m) for m in locals_]
        for round_ in range(4):
            for r in range(2):
                locals_[r].load_state_dict(shared.state_dict())
                for step in range(3 * round_, 3 * round_ + 3):
                    inner_step(locals_[r], inners[r], r, step)
            for p, a, b in zip(shared.parameters(), *[m.parameters() for m in locals_]):
                p.grad = ((p - a) + (p - b)).detach() / 2
            outer.step()
        for x, y in zip(values(got[0]), values(shared)):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-6)

    def test_fragments_by_parts_and_by_number(self):
        parts = lambda m: [m[0], [*m[2].parameters()]]  # noqa: E731
        model = small()
        opt = self.optimizer(model, fragments=parts(model), sync_every=4, rounds=2)
        for step in range(10**6):
            if opt.done:
                break
            inner_step(model, opt, 0, step)
        self.assertEqual([r["fragment"] for r in diloco.run(self.store).history()], [0, 1, 0, 1])
        self.assertEqual(_torch.balanced([10, 1, 1, 1, 10, 9], 3), [0, 0, 1, 1, 1, 2])
        self.assertEqual(_torch.balanced([1, 1, 100], 3), [0, 1, 2])
        with self.assertRaisesRegex(ValueError, "no empty one"):
            _torch.balanced([1, 1], 3)
        with self.assertRaisesRegex(ValueError, "0.bias is in no fragment"):
            _torch.fragment_numbers(list(model.named_parameters()), [[model[0].weight]])
        with self.assertRaisesRegex(ValueError, "in fragments 0 and 1"):
            _torch.fragment_numbers(list(model.named_parameters()), [model, model[0]])

    def test_keep_inner_state_says_how_often_it_is_saved(self):
        for keep, every in ((True, "1"), ("entry:3", "3")):
            opt = self.optimizer(small(), keep_inner_state=keep, sync_every=2, rounds=3)
            self.assertEqual(opt.run.setting("run.save_every"), every)
            opt.close()
        for keep, options, why in (("entry:0", {}, "every N entries"), ("each", {}, "every N entries"),
                                   ("entry:2", {"run__save_every": 4}, "pass one of them")):
            with self.assertRaisesRegex(diloco.InvalidError, why):
                self.optimizer(small(), keep_inner_state=keep, sync_every=2, rounds=3, **options)

    def test_tensors_without_elements_are_left_out(self):
        for restart in (False, True):
            model = small()
            model.register_parameter("none", torch.nn.Parameter(torch.empty(0, 3)))
            model.register_buffer("nothing", torch.empty(0))
            opt = self.optimizer(model, sync_every=2, rounds=3)
            self.assertEqual(opt.run.now.resumed, restart)
            for step in range(10**6 if restart else 3):
                if opt.done:
                    break
                inner_step(model, opt, 0, step)
            opt.close()
        self.assertEqual(model.none.shape, (0, 3))
        self.assertNotIn("none", diloco.run(self.store).theta())

    def test_a_finished_model_of_fragments_is_the_shared_one_and_a_restart_finds_it(self):
        got = self.together(2, fragments=2, sync_every=4, rounds=2, local_mix=0.5)
        self.assertEqualTensors(values(got[0]), values(got[1]))
        shared = [torch.as_tensor(t) for t in diloco.run(self.store).theta().values()]
        for p in got[0].parameters():
            self.assertTrue(any(torch.equal(p, t.view(p.shape)) for t in shared
                                if t.numel() == p.numel()))
        again = small(9)
        self.assertTrue(self.optimizer(again).done)
        self.assertEqualTensors(values(again), values(got[0]))

    def test_adopt_in_the_middle_of_a_run_gives_the_shared_model(self):
        model = small()
        opt = self.optimizer(model, sync_every=4, rounds=2)
        for step in range(5):
            inner_step(model, opt, 0, step)
        shared = [torch.as_tensor(t).view(p.shape)
                  for t, p in zip(opt.run.theta().values(), model.parameters())]
        self.assertFalse(torch.equal(model[0].weight, shared[0]))
        opt.adopt()
        self.assertEqualTensors(values(model), shared)

    def test_a_joiner_takes_the_runs_fragments(self):
        self.optimizer(small(), fragments=2, sync_every=4).close()
        model = small(2)
        opt = self.optimizer(model, replica="r1")
        self.assertEqual(opt.run.now.fragments, 2)
        self.assertEqualTensors(values(model), values(small()))

    def test_overlap_trains_on_while_bytes_move(self):
        self.together(2, fragments=2, sync_every=4, rounds=3, fragment_sync_delay=1)
        rows = diloco.run(self.store).history()
        self.assertEqual([(r["fragment"], len(r["members"])) for r in rows], [(0, 2), (1, 2)] * 3)
        self.assertTrue(diloco.run(self.store).verify()["complete"])

    def test_buffers_take_the_mean_and_counters_too(self):
        def model_of(seed):
            torch.manual_seed(seed)
            return torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.BatchNorm1d(3))
        got = self.together(2, model_of, sync_every=3, rounds=2)
        self.assertEqual(got[0][1].num_batches_tracked.item(), 6)
        self.assertTrue(torch.equal(got[0][1].running_mean, got[1][1].running_mean))

    def test_channels_last_trains_as_plain_memory_does(self):
        def model_of(seed):
            torch.manual_seed(seed)
            return torch.nn.Sequential(torch.nn.Unflatten(1, (2, 1, 3)),
                                       torch.nn.Conv2d(2, 4, (1, 2)), torch.nn.Flatten(),
                                       torch.nn.Linear(8, 3))

        def last(seed):
            return model_of(seed).to(memory_format=torch.channels_last)
        self.assertFalse(last(7)[1].weight.is_contiguous())
        plain = self.together(2, model_of, sync_every=3, rounds=2)
        self.store = self.store.with_name("last")
        permuted = self.together(2, last, sync_every=3, rounds=2)
        self.assertFalse(permuted[0][1].weight.is_contiguous())
        for a, b in zip(values(plain[0]), values(permuted[0])):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
        self.assertEqualTensors(values(permuted[0]), values(permuted[1]))

    def test_compiled_and_wrapped_models_have_the_names_of_plain_ones(self):
        class Wrapped(torch.nn.Module):  # DistributedDataParallel changes names so
            def __init__(self, module):
                super().__init__()
                self.module = module

        def partly(model):
            model[2] = torch.compile(model[2], backend="eager")
            return model
        plain = [name for name, _ in small().named_parameters()]
        for source in (torch.compile(small(), backend="eager"), partly(small()),
                       torch.nn.DataParallel(small()),
                       torch.compile(torch.nn.DataParallel(partly(small())), backend="eager"),
                       Wrapped(small()).named_parameters(),
                       torch.compile(Wrapped(small()), backend="eager").named_parameters()):
            self.assertEqual([name for name, _ in _torch.named_tensors(source)[0]], plain)
        own = [name for name, _ in _torch.named_tensors(Wrapped(small()))[0]]
        self.assertEqual(own, [f"module.{name}" for name in plain])  # a model of its own names

    def test_a_compiled_replica_joins_a_plain_one(self):
        def model_of(seed, made=[]):  # noqa: B006: the first is plain
            made.append(seed)
            return small(seed) if len(made) == 1 else torch.compile(small(seed), backend="eager")
        got = self.together(2, model_of, sync_every=3, rounds=2)
        self.assertEqualTensors(values(got[0]), values(got[1]))

    def test_frozen_parameters_stay(self):
        model = small()
        model[0].weight.requires_grad_(False)
        before = model[0].weight.clone()
        opt = self.optimizer(model, torch.optim.SGD(model[2].parameters(), lr=.1), sync_every=1,
                             rounds=2)
        inner_step(model, opt, 0, 0)
        self.assertTrue(torch.equal(model[0].weight, before))

    def test_half_precision_is_theta_rounded(self):
        for dtype in (torch.bfloat16, torch.float16):
            model = small(dtype=dtype)
            store = f"{self.store}-{dtype}"
            with diloco.DiLoCoOptimizer(model, torch.optim.SGD(model.parameters(), lr=.5), store,
                                        sync_every=1, rounds=3) as opt:
                before = values(model)
                inner_step(model, opt, 0, 0)
                for p, b, theta in zip(model.parameters(), before, opt.run.theta().values()):
                    self.assertEqual(p.dtype, dtype)
                    self.assertTrue(torch.equal(p, torch.from_numpy(theta).view(dtype)))
                    self.assertFalse(torch.equal(p, b))
                shared = diloco.run(store).theta()  # float32, of which that is the nearest
                for name, p in model.named_parameters():
                    self.assertEqual(str(shared[name].dtype), "float32")
                    self.assertTrue(torch.equal(p, torch.from_numpy(shared[name]).to(dtype)))


@unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
class Cuda(InScratch):
    def test_it_ends_near_where_the_cpu_does(self):
        ends = []
        for device in ("cpu", "cuda"):
            model = small().to(device)
            inner = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9)
            with diloco.DiLoCoOptimizer(model, inner, f"{self.store}-{device}", sync_every=3,
                                        rounds=4) as opt:
                for step in range(12):
                    x, y = batch(0, step)
                    opt.zero_grad()
                    torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
                    opt.step()
                self.assertTrue(opt.done)
                for p, theta in zip(model.parameters(), opt.run.theta().values()):
                    self.assertTrue(torch.equal(p.cpu(), torch.from_numpy(theta)))
                ends.append(values(model.cpu()))
        for a, b in zip(*ends):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

    def test_a_mirror_is_pinned_and_a_resume_takes_up_moments(self):
        def life(store, upto):
            torch.manual_seed(3)
            model = small().cuda()
            with diloco.DiLoCoOptimizer(model, adamw(model), store, sync_every=3,
                                        rounds=3) as opt:
                self.assertTrue(opt.binding._mirrors._memory()._room.is_pinned())
                while not opt.done and opt.run.now.step < upto:
                    x, y = batch(0, opt.run.now.step)
                    opt.zero_grad()
                    torch.nn.functional.mse_loss(model(x.cuda()), y.cuda()).backward()
                    opt.step()
                return values(model)
        whole = life(f"{self.store}-whole", 9)
        life(self.store, 7)
        self.assertEqualTensors(life(self.store, 9), whole)


class Resume(InScratch):
    def life(self, upto, store, save_at=None):
        """A process of a replica with dropout, a scheduler and AdamW, from its saved step to upto."""
        torch.manual_seed(11)
        model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Dropout(.3),
                                    torch.nn.Linear(9, 3))
        inner = adamw(model)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, 20)
        with diloco.DiLoCoOptimizer(model, inner, store, sync_every=4, rounds=3,
                                    scheduler=schedule) as opt:
            while not opt.done and opt.run.now.step < upto:
                inner_step(model, opt, 0, opt.run.now.step)
                if opt.run.now.step == save_at:
                    opt.save()
            return opt.binding.resumed, values(model), copy.deepcopy(inner.state_dict())

    def test_a_resume_is_bitwise(self):
        whole = self.life(12, f"{self.store}-whole")
        # Saved by hand in the middle of a round; then killed a step later.
        self.life(7, self.store, save_at=6)
        resumed, end, state = self.life(12, self.store)
        self.assertTrue(resumed)
        self.assertEqualTensors(end, whole[1])
        for i, s in whole[2]["state"].items():
            for name, value in s.items():
                self.assertTrue(torch.equal(value, state["state"][i][name]), name)
        self.assertEqual(whole[2]["param_groups"], state["param_groups"])

    def test_what_was_saved_at_a_due_point_is_taken_up(self):
        whole = self.life(12, f"{self.store}-whole")
        self.life(10, self.store)  # the due point at 8 saved by itself
        resumed, end, _ = self.life(12, self.store)
        self.assertTrue(resumed)
        self.assertEqualTensors(end, whole[1])

    def test_a_scheduler_that_keeps_steps_as_keys_goes_on(self):
        def life(upto):
            model = small()
            inner = torch.optim.SGD(model.parameters(), lr=1.0)
            schedule = torch.optim.lr_scheduler.MultiStepLR(inner, [8, 10, 10], gamma=.1)
            rates = []
            with diloco.DiLoCoOptimizer(model, inner, self.store, sync_every=5, rounds=3,
                                        scheduler=schedule) as opt:
                while not opt.done and opt.run.now.step < upto:
                    inner_step(model, opt, 0, opt.run.now.step)
                    rates.append(inner.param_groups[0]["lr"])
            return rates, schedule.milestones
        life(6)
        rates, milestones = life(15)
        self.assertEqual(rates[:2], [1.0] * 2)  # steps 6 and 7
        self.assertEqual([round(r, 9) for r in rates[2:5]], [.1, .1, .001])
        self.assertEqual(list(milestones.elements()), [8, 10, 10])

    def test_another_inner_optimizer_is_told(self):
        model = small()
        opt = self.optimizer(model, sync_every=2)
        opt.save()
        opt.close()
        with self.assertRaisesRegex(diloco.DiffersError, "torch.optimizer"):
            self.optimizer(model, torch.optim.SGD(model.parameters(), lr=1), sync_every=2)


class Shared(InScratch):
    def test_a_run_is_lengthened_with_its_model_moments_and_momentum(self):
        first = small()
        inner = adamw(first)
        with self.optimizer(first, inner, sync_every=2, rounds=2) as opt:
            for step in range(4):
                inner_step(first, opt, 0, step)
            saved = opt.state_dict()
        end, before = diloco.run(self.store).theta_bytes(), self.store
        self.store = self.store.with_name("longer")
        model = small(2)
        model.load_state_dict(first.state_dict())
        inner = adamw(model)
        inner.load_state_dict({k: v for k, v in saved.items() if k != "diloco"})
        opt = self.optimizer(model, inner, sync_every=2, rounds=2, init_from=str(before),
                             init_as="continuation")
        self.assertEqual(diloco.run(self.store).theta_bytes(), end)  # with the momentum
        self.assertEqual(inner.state[model[0].weight]["step"].item(), 4)
        inner_step(model, opt, 0, 4)

        self.store = self.store.with_name("other")
        with self.assertRaisesRegex(diloco.DiffersError, "load its shared model first"):
            self.optimizer(small(3), init_from=str(before), init_as="continuation")
        with self.assertRaisesRegex(diloco.InvalidError, "init_from loads no model here"):
            self.optimizer(small(3), init_from=str(before))
        self.assertFalse((self.store / "run.json").exists())

    def test_an_extension_begins_after_the_last_sample_and_resumes_without_the_first_run(self):
        first = small()
        with self.optimizer(first, sync_every=2, rounds=2, batch_size=4) as opt:
            for step in range(4):
                inner_step(first, opt, 0, step)
        before, self.store = self.store, self.store.with_name("longer")
        options = {"sync_every": 2, "rounds": 2, "batch_size": 4, "init_from": str(before),
                   "init_as": "extension"}
        opt = self.optimizer(first, **options)
        self.assertEqual((opt.run.now.position, opt.run.now.sample), (0, 16))
        for step in range(2):
            inner_step(first, opt, 0, 4 + step)
        opt.close()
        before.rename(before.with_name("gone"))
        opt = self.optimizer(small(2), **options)
        self.assertTrue(opt.run.now.resumed)
        self.assertEqual((opt.run.now.position, opt.run.now.sample), (2, 24))
        opt.close()

    def test_status_and_export_know_a_model_of_torchs(self):
        model = small()
        with self.optimizer(model, sync_every=1, rounds=1) as opt:
            inner_step(model, opt, 0, 0)
        self.assertEqual(diloco.run(self.store).status()["model"], "torch")
        said = subprocess.run([_program.path(), "export", self.store, "--to", "hf", "--out",
                               self.store.with_name("out")], capture_output=True, text=True)
        self.assertIn("the run's model is torch", said.stderr)

    def test_theta_of_the_log_is_what_the_model_loads(self):
        try:
            import numpy  # noqa: F401: the log's arrays are of it
        except ImportError:
            self.skipTest("no numpy")
        model = small()
        opt = self.optimizer(model, sync_every=2, rounds=2)
        for step in range(4):
            inner_step(model, opt, 0, step)
        log = diloco.run(self.store)
        other = small(2)
        other.load_state_dict({k: torch.from_numpy(v) for k, v in log.theta().items()})
        self.assertEqualTensors(values(model), values(other))
        self.assertIn(b'"diloco.momentum.0.weight"', log.theta_bytes())


class Places(InScratch):
    """The run reads and writes the model, or raises an error."""

    def until_due(self, model, opt, change):
        for step in range(3):
            change(model)
            inner_step(model, opt, 0, step)

    def test_a_parameter_with_other_memory_is_refused_at_the_next_exchange(self):
        model = small()
        opt = self.optimizer(model, sync_every=3, rounds=2)

        def replace(m):
            m[0].weight.data = m[0].weight.data.clone()
        with self.assertRaisesRegex(diloco.InvalidError, "0.weight has moved to other memory"):
            self.until_due(model, opt, replace)

    def test_a_buffer_that_was_replaced_is_refused_and_one_changed_in_place_is_shared(self):
        for changes, how in ((False, "replaced"), (True, "in place")):
            with self.subTest(how):
                self.store = self.store.with_name(how)
                model = small()
                model.register_buffer("ema", torch.zeros(2))
                opt = self.optimizer(model, sync_every=3, rounds=2)

                def change(m):
                    if changes:
                        m.ema.add_(1)
                    else:
                        m.ema = m.ema + 1
                if changes:
                    self.until_due(model, opt, change)
                    self.assertEqual(opt.run.theta()["ema"].tolist(), [3, 3])
                    continue
                with self.assertRaisesRegex(diloco.InvalidError, "ema has moved"):
                    self.until_due(model, opt, change)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("left out: CUDA tensors of the Python package (no device)")
    unittest.main()
