"""torch_test.py - models bound to a run: the arithmetic is torch's own, a resume is bitwise, what
cannot take part is refused by name. Skips itself (77) without torch."""
import collections
import contextlib
import copy
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

try:
    import torch
except ImportError as error:
    print(f"left out: the Python package with torch ({error})")
    sys.exit(77)

import diloco
from diloco import _program, _state, _torch

torch.set_num_threads(1)
QUICK = {"run.heartbeat": 0.05, "run.patience": 2}


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
        models, raised = [model_of(7) for _ in range(n)], []

        def live(r):
            try:
                opt = self.optimizer(models[r], replica=f"r{r}", replicas=n, **options)
                for step in range(10**6):
                    if opt.done:
                        return opt.close()
                    inner_step(models[r], opt, r, step)
            except BaseException as error:
                raised.append(error)
        threads = [threading.Thread(target=live, args=(r,)) for r in range(n)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if raised:
            raise raised[0]
        return models

    def assertEqualTensors(self, a, b):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertTrue(torch.equal(x, y), (x, y))


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
                self.assertTrue(all(b.host.is_pinned() for b in opt.binding._bound))
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


class InnerStates(unittest.TestCase):
    OPTIMIZERS = [("SGD", {}), ("SGD", {"momentum": .9}), ("Adam", {"amsgrad": True}),
                  ("AdamW", {}), ("NAdam", {}), ("RAdam", {}), ("RMSprop", {"centered": True}),
                  ("Adagrad", {}), ("Adadelta", {}), ("Adamax", {}), ("ASGD", {}), ("Rprop", {}),
                  ("Adafactor", {})]

    def test_the_state_is_known_before_the_first_step(self):
        both = self.OPTIMIZERS + [("AdamW", {"fused": True}), ("SGD", {"fused": True})]
        for name, options in both:
            model = small()
            inner = getattr(torch.optim, name)(model.parameters(), lr=.01, **options)
            before = _state.slots_of(inner)
            inner_step(model, inner, 0, 0)
            self.assertEqual(before, _state.slots_of(inner), name)

    def test_what_is_packed_comes_back(self):
        for name, options in self.OPTIMIZERS:
            model = small()
            inner = getattr(torch.optim, name)(model.parameters(), lr=.01, **options)
            state = _state.InnerState(inner, _torch.Island())
            inner_step(model, inner, 0, 0)
            state.pack()
            twin = small()
            twin.load_state_dict(model.state_dict())
            other = getattr(torch.optim, name)(twin.parameters(), lr=.5, **options)
            theirs = _state.InnerState(other, _torch.Island())
            theirs.room()[:] = state.room()
            theirs.unpack()
            for m, o in ((model, inner), (twin, other)):
                inner_step(m, o, 0, 1)
            for a, b in zip(values(model), values(twin)):
                self.assertTrue(torch.equal(a, b), name)

    def test_a_scheduler_on_the_optimizer_does_no_harm(self):
        model = small()
        inner = adamw(model)
        torch.optim.lr_scheduler.StepLR(inner, 1)
        before = values(model)
        self.assertEqual(len(_state.slots_of(inner)), 12)
        for a, b in zip(before, values(model)):
            self.assertTrue(torch.equal(a, b))
        self.assertFalse(inner.state)

    def test_an_optimizer_that_looks_at_values(self):
        class Looks(torch.optim.SGD):
            def step(self, closure=None):
                if self.param_groups[0]["params"][0].sum().item() >= 0:
                    super().step(closure)
        model = small()
        inner = Looks(model.parameters(), lr=1, momentum=.9)
        self.assertEqual({s.name for s in _state.slots_of(inner)}, {"momentum_buffer"})

    def test_a_state_comes_back_where_it_was(self):
        """The meta device stands for CUDA: it is not the CPU."""
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.zeros(3, 3, device="meta"))
                self.scale = torch.nn.Parameter(torch.ones([], device="meta"))

        def places(inner):
            return [{name: v.device.type for name, v in sorted(inner.state[p].items())
                     if isinstance(v, torch.Tensor)} for p in _state.all_parameters(inner)]

        def resumed(name, **options):
            inner = getattr(torch.optim, name)(Model().parameters(), lr=.01, **options)
            if name != "Adagrad":  # which has its state at once
                inner.state.clear()
            state = _state.InnerState(inner, _torch.Island())
            state.room()[:len(_state.all_parameters(inner))] = 1
            state._groups._take = lambda saved: None
            state.unpack()
            return inner
        for name, options in self.OPTIMIZERS:
            live = getattr(torch.optim, name)(Model().parameters(), lr=.01, **options)
            for p in _state.all_parameters(live):
                p.grad = torch.zeros_like(p)
            try:
                live.step()
            except RuntimeError:  # it looks at values, which are not on the meta device
                continue
            with self.subTest(name):
                self.assertEqual(places(resumed(name, **options)), places(live))
        for name in ("AdamW", "NAdam", "RAdam", "ASGD", "Rprop", "RMSprop"):
            with self.subTest(name, capturable=True):
                there = {place for state in places(resumed(name, capturable=True))
                         for place in state.values()}
                self.assertEqual(there, {"meta"})

    def test_an_optimizer_that_cannot_take_a_step_by_itself_is_refused(self):
        with self.assertRaisesRegex(diloco.RefusedError, "LBFGS.*closure.*keep_inner_state=False"):
            _state.slots_of(torch.optim.LBFGS(small().parameters(), lr=1))

    def test_a_state_of_objects_is_refused(self):
        class Keeps(torch.optim.SGD):
            def step(self, closure=None):
                self.state[self.param_groups[0]["params"][0]]["history"] = [1, 2]
        with self.assertRaisesRegex(diloco.RefusedError, "keeps a list .history."):
            _state.slots_of(Keeps(small().parameters(), lr=1))


class Generators(unittest.TestCase):
    def machine(self, cuda, state=None):
        """The calls into CUDA of a machine with it or without; the list has the settings."""
        taken = []
        stack = contextlib.ExitStack()
        for name, call in {"is_available": lambda: cuda, "is_initialized": lambda: cuda,
                           "get_rng_state": lambda: state, "set_rng_state": taken.append}.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, call))
        return stack, taken

    def test_states_move_between_machines_with_and_without_cuda(self):
        theirs = torch.arange(16, dtype=torch.uint8)
        for cuda_before in (False, True):
            for cuda_after in (False, True):
                with self.subTest(before=cuda_before, after=cuda_after):
                    with self.machine(cuda_before, theirs)[0]:
                        saved = _state.Generators()
                        saved.pack()
                    expected = torch.rand(3)
                    stack, taken = self.machine(cuda_after)
                    with stack:
                        found = _state.Generators()
                        found.room()[:] = saved.room()
                        found.unpack()
                    self.assertTrue(torch.equal(torch.rand(3), expected))
                    self.assertEqual([t.tolist() for t in taken],
                                     [theirs.tolist()] if cuda_before and cuda_after else [])


class ExtraStates(unittest.TestCase):
    class Thing:
        def __init__(self, state=None):
            self.state = state

        def state_dict(self):
            return self.state

        def load_state_dict(self, state):
            self.state = state

    def json(self, thing, size=4096):
        return _state.Json("thing", size, thing.state_dict, thing.load_state_dict,
                           _torch.Island())

    def test_mappings_come_back_with_the_keys_that_they_had(self):
        state = {"by step": {8: .1, 12: {1.5: "x", None: [1, {True: 2}]}}, "": {},
                 "n": float("inf"), "like ours": {"diloco.mapping": ["dict", [[1, 2]]]},
                 "counts": collections.Counter([3, 3, 4]), "texts": collections.Counter("ab")}
        saved, found = self.json(self.Thing(state)), self.Thing()
        saved.pack()
        taken = self.json(found)
        taken.room()[:] = saved.room()
        taken.unpack()
        self.assertEqual(found.state, state)
        self.assertEqual(sorted(found.state["counts"].elements()), [3, 3, 4])
        self.assertIs(list(found.state["by step"][12][None][1])[0], True)

    def test_what_would_not_come_back_is_refused_by_its_place(self):
        for state, why in ((object(), "thing is of type object"),
                           ({"a": [0, {5: b"x"}]}, r"thing\.a\[1\]\.5 is of type bytes"),
                           ({"a": {(1, 2): 3}}, r"a key of thing\.a is of type tuple")):
            with self.assertRaisesRegex(diloco.RefusedError, why):
                self.json(self.Thing(state)).pack()


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
        for kind, dtype in ((Keeps, torch.float32), (Keeps, torch.bfloat16),
                            (torch.optim.SGD, torch.float32)):
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

    def test_other_models_are_told(self):
        self.optimizer(small()).close()
        model = torch.nn.Linear(3, 3)
        with self.assertRaises(diloco.DiffersError):
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

    def test_extra_state_has_to_be_plain(self):
        class Odd:
            def state_dict(self):
                return {"x": object()}

            def load_state_dict(self, state):
                raise AssertionError(state)
        model = small()
        opt = self.optimizer(model, extra={"odd": Odd()}, sync_every=1)
        with self.assertRaisesRegex(diloco.RefusedError, "plain numbers"):
            inner_step(model, opt, 0, 0)


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
                "user:torch-SGD-[0-9a-f]{8} in the run, user:torch-SGD-": self.OPTIMIZERS["plain"],
                "outer_learning_rate is 0.7 in the run, 0.5 here": lambda p: torch.optim.SGD(
                    p, lr=0.5, momentum=0.9, nesterov=True)}.items():
            with self.assertRaisesRegex(diloco.DiffersError, words):
                self.live(make, replica="r1")

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
    if not torch.cuda.is_available():
        print("left out: CUDA tensors of the Python package (no device)")
    unittest.main()
