"""diloco_test.py - diloco.DiLoCo: torchft's class in shape, schedule and constraints (LIB-8, LIB-11), over
managers of the test's own and over runs. Rows LIB-9 to LIB-19 have their names in src/loop's tests; here is
what Python adds. Skips itself without torch."""
import copy
import os
import pathlib
import pickle
import sys
import tempfile
import threading
import unittest
from unittest import mock

try:
    import torch
    from torch import nn
except ImportError:
    print("left out: diloco.DiLoCo (no torch)")
    sys.exit(77)

import diloco
from calls import in_threads
from diloco import _guards


class Table:
    """Managers of several replicas in one process: means of the tensors with the same place in
    each one's sequence of all-reduces of an entry. No waiting: all have to have begun."""

    def __init__(self, n=1, wait_s=0.0):
        self.boxes, self.n, self.wait_s = {}, n, wait_s
        self.changed = threading.Condition()
        self.managers = [Manager(self, i) for i in range(n)]


class Work:
    def __init__(self, table, key, tensor):
        self.table, self.key, self.tensor, self.waited = table, key, tensor, 0

    def wait(self):
        self.waited += 1
        table = self.table
        with table.changed:
            box = table.boxes[self.key]
            assert table.changed.wait_for(lambda: len(box) == table.n, table.wait_s), "not all here"
            self.tensor.copy_(sum(box.values()) / table.n)


class Manager:
    _use_async_quorum, _init_sync = False, True

    def __init__(self, table, index):
        self.table, self.index, self.step, self.registered = table, index, 0, {}
        self.calls, self.works, self.errors, self.raise_in, self.commit = [], [], [], None, True

    def _called(self, name):
        self.calls.append(name)
        if self.raise_in == name:
            self.raise_in = None
            raise ConnectionError(f"{name} went wrong")

    def allreduce(self, tensor, should_quantize=False):
        self._called("allreduce")
        key = (self.step, self.calls.count("start_quorum"), len(self.works))
        with self.table.changed:
            self.table.boxes.setdefault(key, {})[self.index] = tensor.clone()
            self.table.changed.notify_all()
        self.works.append(Work(self.table, key, tensor))
        self.quantized = should_quantize
        return self.works[-1]

    def start_quorum(self):
        self._called("start_quorum")
        self.works = []

    def should_commit(self):
        self._called("should_commit")
        commit, self.errors = self.commit and not self.errors, []
        self.step += commit
        return commit

    def current_step(self):
        return self.step

    def report_error(self, error):
        self.errors.append(error)

    def register_state_dict_fn(self, key, load, save):
        self.registered[key] = (load, save)

    def allow_state_dict_read(self):
        self.calls.append("allow")

    def disallow_state_dict_read(self):
        self.calls.append("disallow")


class Layer(nn.Module):
    def __init__(self, n=1, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((n,), value))
        self.bias = nn.Parameter(torch.full((2, 2), value))


def move(optimizer, by):
    """One inner step (SGD, rate 1) that adds ``by`` to every element."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.full_like(p, -by)
    optimizer.step()


def inner_of(*modules):
    return torch.optim.SGD([p for m in modules for p in m.parameters()], lr=1.0)


def outer_of(module, lr=0.7, momentum=0.9):
    return torch.optim.SGD(module.parameters(), lr=lr, momentum=momentum, nesterov=momentum > 0)


class Schedule(unittest.TestCase):
    """Traces worked by hand: two fragments at 1, -2 a step, outer SGD of rate 2; after 3, 6 and 9
    steps of sync_every 6 (src/loop/loop_test.c has the same)."""

    TRACES = {
        (0, 0.0): [(-11, -5), (-17, -23), (-35, -29)],
        (0, 0.5): [(-8, -5), (-14, -17), (-24.5, -23)],
        (0, 1.0): [(-5, -5), (-11, -11), (-17, -17)],
        (1, 0.0): [(-7, -5), (-13, -19), (-27, -25)],
        (1, 0.5): [(-6, -5), (-12, -15), (-21.5, -21)],
        (1, 1.0): [(-5, -5), (-11, -11), (-17, -17)],
    }

    def check(self, outer_of_layers):
        for (delay, alpha), expected in self.TRACES.items():
            layers = [Layer(), Layer()]
            inner, manager = inner_of(*layers), Table().managers[0]
            with diloco.DiLoCo(manager, layers, inner, outer_of_layers(layers), sync_every=6,
                               fragment_sync_delay=delay, fragment_update_alpha=alpha):
                for values in expected:
                    for _ in range(3):
                        move(inner, -2)
                    self.assertEqual(tuple(m.weight.item() for m in layers), values)
                    self.assertEqual(tuple(m.bias[1, 0].item() for m in layers), values)

    def test_one_torch_optimizer_for_each_fragment(self):
        self.check(lambda layers: [outer_of(m, 2, 0) for m in layers])

    def test_one_torch_optimizer_for_all(self):
        self.check(lambda layers: torch.optim.SGD([p for m in layers for p in m.parameters()],
                                                  lr=2.0))

    def test_the_library_s_own(self):
        self.check(lambda layers: {"outer_optimizer": "sgd", "outer_lr": 2})

    def test_calls_come_in_torchft_s_order(self):
        model, manager = Layer(), Table().managers[0]
        inner, outer = inner_of(model), outer_of(model)
        self.assertEqual(outer.state_dict()["state"], {})
        with diloco.DiLoCo(manager, [model], inner, outer, sync_every=2) as d:
            self.assertEqual(d._local_step, 0)
            move(inner, 1)
            self.assertEqual(manager.calls, ["disallow", "allow"])
            self.assertEqual(d._local_step, 1)
            manager.calls = []
            move(inner, 1)
            self.assertEqual(manager.calls, ["disallow", "allow", "start_quorum", "allreduce",
                                             "allreduce", "should_commit"])
            self.assertEqual(d._local_step, 0)
            self.assertEqual([w.waited for w in manager.works], [1, 1])
            shared = d._fragments[0].original_parameters
            for name, p in model.named_parameters():
                self.assertTrue(torch.equal(shared[name], p))
        self.assertEqual(len(outer.state_dict()["state"]), 2)
        manager.calls = []
        move(inner, 1)  # the hooks are gone
        self.assertEqual(manager.calls, [])

    def test_a_wait_comes_only_when_the_result_is_adopted(self):
        model, manager = Layer(), Table().managers[0]
        inner = inner_of(model)
        with diloco.DiLoCo(manager, [model], inner, sync_every=3, fragment_sync_delay=2):
            for waited in (0, 0, 1):
                move(inner, 1)
                self.assertEqual([w.waited for w in manager.works], [waited] * 2)


class Outer(unittest.TestCase):
    def test_built_in_is_pytorch_s_sgd_with_nesterov(self):
        torch.manual_seed(1)
        models = [Layer(5), Layer(5)]
        inners = [inner_of(m) for m in models]
        outers = [None, outer_of(models[1])]
        loops = [diloco.DiLoCo(Table().managers[0], [m], i, o, sync_every=1)
                 for m, i, o in zip(models, inners, outers)]
        with loops[0], loops[1]:
            for _ in range(50):
                by = torch.randn(()).item()
                for inner in inners:
                    move(inner, by)
        for a, b in zip(*(m.parameters() for m in models)):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)

    def test_an_optimizer_sees_theta_and_its_own_gradients_once_a_commit(self):
        layers, manager, seen = [Layer(), Layer()], Table().managers[0], []
        inner = inner_of(*layers)

        class Spy(torch.optim.SGD):
            def step(self, closure=None):
                seen.append([(p.item(), None if p.grad is None else p.grad.item())
                             for g in self.param_groups for p in g["params"] if p.numel() == 1])
                return super().step(closure)
        outer = Spy([p for m in layers for p in m.parameters()], lr=1.0)
        with diloco.DiLoCo(manager, layers, inner, outer, sync_every=2):
            move(inner, 3)
            manager.commit = False
            move(inner, 3)
            manager.commit = True
            move(inner, 3)
        # then entry 1: fragment 1 is back at 1 after the refusal, while fragment 0 trains on
        self.assertEqual(seen, [[(1.0, -3.0), (4.0, None)], [(10.0, None), (1.0, -3.0)]])

    def test_the_sign_is_before_minus_after(self):
        model, manager = Layer(), Table().managers[0]
        inner = inner_of(model)
        grads = []
        manager.allreduce = lambda t, should_quantize: (grads.append(t.clone()), Done())[1]
        with diloco.DiLoCo(manager, [model], inner, outer_of(model, 0.1, 0), sync_every=1):
            move(inner, 2)
        self.assertEqual([g.unique().tolist() for g in grads], [[-2.0], [-2.0]])
        self.assertEqual([tuple(g.shape) for g in grads], [(1,), (2, 2)])
        self.assertAlmostEqual(model.weight.item(), 1.2, places=6)


class Done:
    def wait(self):
        pass


class Buckets(unittest.TestCase):
    def run_with(self, **options):
        sizes = [6, 6, 25]
        model = nn.ParameterList([nn.Parameter(torch.arange(n) * 0.01) for n in sizes])
        inner, manager = inner_of(model), Table().managers[0]
        with diloco.DiLoCo(manager, [model], inner, sync_every=1, **options):
            for k in range(3):
                for i, p in enumerate(model):
                    p.grad = torch.linspace(-1, i + k, p.numel())
                inner.step()
        return [p.detach().clone() for p in model], len(manager.works)

    def test_sizes_that_do_not_divide_give_what_no_buckets_give(self):
        plain, n = self.run_with()
        self.assertEqual(n, 3)
        for cap, calls in ((40, 4), (16, 10), (1 << 20, 1)):
            values, n = self.run_with(use_bucketization=True, bucket_cap_mb=cap / 2**20)
            self.assertEqual(n, calls)
            for a, b in zip(plain, values):
                self.assertTrue(torch.equal(a, b))

    def test_quantize_is_passed_on(self):
        model, manager = Layer(), Table().managers[0]
        inner = inner_of(model)
        with diloco.DiLoCo(manager, [model], inner, sync_every=1, should_quantize=True):
            move(inner, 1)
        self.assertTrue(manager.quantized)


class Refusals(unittest.TestCase):
    def refused(self, words, *, layers=2, kind=diloco.InvalidError, outer=None, manager=None,
                **options):
        modules = [Layer() for _ in range(layers)]
        with self.assertRaisesRegex(kind, words):
            diloco.DiLoCo(manager or Table().managers[0], modules, inner_of(*modules), outer,
                          **{"sync_every": 6, **options})

    def test_constraints_are_torchft_s(self):
        asynchronous = Table().managers[0]
        asynchronous._use_async_quorum = True
        self.refused("use_async_quorum=False", manager=asynchronous)
        self.refused("less than the 2 fragments", sync_every=1)
        self.refused("not a multiple of the 2 fragments", sync_every=7)
        self.refused("fragment_sync_delay = 3", fragment_sync_delay=3)
        self.refused("fragment_update_alpha = 1.5", fragment_update_alpha=1.5)
        self.refused("sync_every = None", sync_every=None)
        self.refused("1 outer optimizers for 2 fragments", outer=[outer_of(Layer())])
        self.refused("backup_device = meta", backup_device="meta", kind=diloco.RefusedError)
        self.refused("replicas: only a run has options", replicas=2)
        with self.assertRaises(ValueError):  # as torchft's
            self.refused("", kind=ZeroDivisionError, sync_every=7)

    def check_tensor(self, words, parameter, kind=diloco.InvalidError):
        model = nn.Module()
        model.weight = parameter
        with self.assertRaisesRegex(kind, words):
            diloco.DiLoCo(Table().managers[0], [model],
                          torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1), sync_every=1)

    def test_tensors_that_cannot_take_part_are_named(self):
        def parameter(t, grad=True):
            return nn.Parameter(t, requires_grad=grad)
        self.check_tensor("weight is on the meta device", parameter(torch.ones(2, device="meta")))
        self.check_tensor("weight is not contiguous", parameter(torch.ones(2, 4)[:, ::2]))
        self.check_tensor("weight is sparse", parameter(torch.eye(2).to_sparse()),
                          diloco.RefusedError)
        self.check_tensor("weight is float64", parameter(torch.ones(2, dtype=torch.float64)),
                          diloco.RefusedError)
        self.check_tensor("weight is int64", parameter(torch.ones(2, dtype=torch.int64), False),
                          diloco.RefusedError)

    def test_a_parameter_in_two_fragments_is_named(self):
        layers = [Layer(), Layer()]
        layers[1].weight = layers[0].weight
        with self.assertRaisesRegex(diloco.InvalidError, "weight is in fragments 0 and 1"):
            diloco.DiLoCo(Table().managers[0], layers, inner_of(layers[0]), sync_every=2)

    def test_an_optimizer_of_another_model_is_refused(self):
        other = inner_of(Layer())
        with self.assertRaisesRegex(diloco.InvalidError, "SGD has none of the parameters"):
            diloco.DiLoCo(Table().managers[0], [Layer()], other, sync_every=1)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(diloco.InvalidError, "SGD has none of the parameters"):
                diloco.DiLoCo(folder + "/run", [Layer()], other, sync_every=1)
            with self.assertRaisesRegex(diloco.InvalidError, "SGD has none of the parameters"):
                diloco.DiLoCoOptimizer(Layer(), other, folder + "/run", sync_every=1)
            self.assertEqual(os.listdir(folder), [])

    def test_an_outer_optimizer_without_its_fragments_parameters_is_refused(self):
        layers = [Layer(), Layer()]
        partial = torch.optim.SGD([layers[0].weight, *layers[1].parameters()], lr=1)
        swapped = [outer_of(layers[1]), outer_of(layers[0])]
        for words, outer in {"SGD of fragment 0 does not have its parameter weight and 1 more":
                             outer_of(Layer()),
                             "fragment 0 does not have its parameter bias: ": partial,
                             "fragment 0 does not have its parameter weight and": swapped}.items():
            with self.assertRaisesRegex(diloco.InvalidError, words):
                diloco.DiLoCo(Table().managers[0], layers, inner_of(*layers), outer, sync_every=2)

    def test_frozen_parameters_may_be_missing_from_an_outer_optimizer(self):
        model, manager = Layer(), Table().managers[0]
        model.bias.requires_grad_(False)
        outer, inner = torch.optim.SGD([model.weight], lr=1), torch.optim.SGD([model.weight], lr=1)
        with diloco.DiLoCo(manager, [model], inner, outer, sync_every=1):
            move(inner, 1)
        self.assertEqual([model.weight.item(), model.bias[0, 0].item()], [2, 1])

    def test_the_inner_optimizer_as_the_outer_one_is_refused(self):
        model = Layer()
        inner = inner_of(model)
        for outer in (inner, [inner]):
            with self.assertRaisesRegex(diloco.InvalidError, "SGD is the inner and the outer"):
                diloco.DiLoCo(Table().managers[0], [model], inner, outer, sync_every=1)
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(diloco.InvalidError, "SGD is the inner and the outer"):
                diloco.DiLoCoOptimizer(model, inner, folder + "/run", outer_optimizer=inner)
            self.assertEqual(os.listdir(folder), [])

    def test_a_bucket_of_no_bytes_is_refused(self):
        for cap in (0, -1, float("nan")):
            self.refused("bucket_cap_mb = ", bucket_cap_mb=cap, use_bucketization=True)
            self.refused("bucket_cap_mb = ", bucket_cap_mb=cap)

    def test_a_second_diloco_on_one_optimizer_is_refused_until_the_first_is_left(self):
        model, inner = Layer(), None
        inner = inner_of(model)

        def another():
            return diloco.DiLoCo(Table().managers[0], [model], inner, sync_every=1)
        first, second = another(), another()
        with first:
            with self.assertRaisesRegex(diloco.InvalidError, "SGD already drives a DiLoCo"):
                another()
            with self.assertRaisesRegex(diloco.InvalidError, "SGD already drives a DiLoCo"):
                second.__enter__()
            move(inner, 1)
        with second:
            move(inner, 1)
        with tempfile.TemporaryDirectory() as folder:
            opt = diloco.DiLoCoOptimizer(model, inner, folder + "/run", sync_every=50)
            with self.assertRaisesRegex(diloco.InvalidError, "already drives a DiLoCoOptimizer"):
                another()
            with self.assertRaisesRegex(diloco.InvalidError, "already drives a DiLoCoOptimizer"):
                diloco.DiLoCoOptimizer(model, inner, folder + "/other", sync_every=50)
            opt.close()
            another()

    def test_copies_and_pickles_are_refused(self):
        model = Layer()
        d = diloco.DiLoCo(Table().managers[0], [model], inner_of(model), sync_every=1)
        with tempfile.TemporaryDirectory() as folder, diloco.DiLoCoOptimizer(
                model, inner_of(model), folder + "/run", sync_every=50) as opt:
            for thing in (d, opt, opt.run, opt.binding):
                for way in (copy.copy, copy.deepcopy, pickle.dumps):
                    with self.assertRaisesRegex(diloco.RefusedError,
                                                f"a {type(thing).__name__} cannot be copied"):
                        way(thing)
            copy.deepcopy(opt.state_dict())

    def in_a_fork(self, call):
        """The exception of ``call`` in a forked child."""
        back, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                call()
                said = "nothing was raised"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            os.write(told, said.encode())
            os._exit(0)
        os.close(told)
        with open(back) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        return said

    def test_a_step_in_a_forked_child_is_refused(self):
        model = Layer()
        inner = inner_of(model)
        refused = r"InvalidError: this {} was made by process \d+, and this is a fork"
        with diloco.DiLoCo(Table().managers[0], [model], inner, sync_every=2):
            self.assertRegex(self.in_a_fork(lambda: move(inner, 1)), refused.format("DiLoCo"))
        with tempfile.TemporaryDirectory() as folder:
            inner = inner_of(model)
            with diloco.DiLoCoOptimizer(model, inner, folder + "/run", sync_every=1,
                                        rounds=1) as opt:
                self.assertRegex(self.in_a_fork(opt.step), refused.format("DiLoCoOptimizer"))
                self.assertRegex(self.in_a_fork(opt.run.step), refused.format("Run"))
                self.assertEqual(self.in_a_fork(lambda: _guards.claim(inner, Layer())),
                                 "nothing was raised")  # the child may make its own
                move(opt, 1)  # the parent continues
                self.assertTrue(opt.done)

    def test_a_parameter_that_moved_is_named_before_anything_is_written(self):
        model, manager = Layer(), Table().managers[0]
        inner = inner_of(model)
        with diloco.DiLoCo(manager, [model], inner, sync_every=1):
            model.weight.data = model.weight.data.clone()
            with self.assertRaisesRegex(diloco.InvalidError, "weight has moved"):
                move(inner, 1)


class Votes(unittest.TestCase):
    def test_a_refused_commit_puts_back_the_parameters_and_keeps_the_momentum(self):
        model, manager = Layer(), Table().managers[0]
        inner, outer = inner_of(model), outer_of(model)
        with diloco.DiLoCo(manager, [model], inner, outer, sync_every=1):
            move(inner, 1)
            theta = model.weight.detach().clone()
            momentum = outer.state[model.weight]["momentum_buffer"].clone()
            manager.commit = False
            move(inner, 5)
            self.assertTrue(torch.equal(model.weight, theta))
            self.assertTrue(torch.equal(outer.state[model.weight]["momentum_buffer"], momentum))
            manager.commit = True
            move(inner, 1)
            self.assertEqual(manager.step, 2)
            self.assertFalse(torch.equal(model.weight, theta))

    def test_what_the_manager_raises_comes_out_of_the_step(self):
        for where in ("start_quorum", "allreduce", "should_commit"):
            model, manager = Layer(), Table().managers[0]
            inner = inner_of(model)
            with diloco.DiLoCo(manager, [model], inner, sync_every=1):
                manager.raise_in = where
                with self.assertRaisesRegex(ConnectionError, f"{where} went wrong"):
                    move(inner, 1)
                self.assertEqual("should_commit" in manager.calls, where != "start_quorum")
                self.assertEqual(model.weight.item(), 2 if where == "start_quorum" else 1)
                move(inner, 1)
                self.assertEqual(manager.step, 1)

    def test_a_nan_is_voted_down(self):
        model, manager = Layer(), Table().managers[0]
        inner = inner_of(model)
        with diloco.DiLoCo(manager, [model], inner, sync_every=1):
            with self.assertRaisesRegex(diloco.NumericError, "tensor 0.weight, element 0"):
                move(inner, float("nan"))
            self.assertEqual(manager.step, 0)
            self.assertEqual(model.weight.item(), 1)


class Replicas(unittest.TestCase):
    def train(self, manager, model, syncs, seed, options):
        generator = torch.Generator().manual_seed(seed)
        inner = torch.optim.AdamW(model.parameters(), lr=0.05)
        with diloco.DiLoCo(manager, list(model), inner, **options):
            while manager.step < syncs:
                x = torch.randn(8, 3, generator=generator)
                inner.zero_grad()
                ((model(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
                inner.step()
                yield

    def two(self, dtype=torch.float32, **options):
        torch.manual_seed(0)
        first = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        models = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)).to(dtype) for _ in range(2)]
        for m in models:
            m.load_state_dict(first.state_dict())
        return first, models, {"sync_every": 8, **options}

    def test_two_in_one_thread_meet_by_their_handles(self):
        first, models, options = self.two(fragment_sync_delay=1)
        table = Table(2)
        lives = [self.train(m, model, 6, i, options)
                 for i, (m, model) in enumerate(zip(table.managers, models))]
        while any([next(life, "over") != "over" for life in lives]):
            pass
        a, b = (m[1].state_dict() for m in models)  # the last fragment to be synchronised
        for name in a:
            self.assertTrue(torch.equal(a[name], b[name]), name)
            self.assertFalse(torch.equal(a[name], first[1].state_dict()[name]), name)

    def test_adopt_gives_every_replica_the_shared_model(self):
        for dtype in (torch.float32, torch.bfloat16):
            _, models, options = self.two(dtype, fragment_sync_delay=1)
            table, shared = Table(2), {}
            lives = []
            for i, model in enumerate(models):
                inner = inner_of(model)
                lives.append((inner, diloco.DiLoCo(table.managers[i], list(model), inner,
                                                   **options)))
            with lives[0][1], lives[1][1]:
                for step in range(10):  # the first fragment trains on after its exchange
                    for i, (inner, _) in enumerate(lives):
                        move(inner, 0.25 * (i + 1))
            for (_, d), model in zip(lives, models):
                before = d._fragments[0].original_parameters["weight"]
                self.assertFalse(torch.equal(model[0].weight.float(), before))
                d.adopt()
                for f, layer in enumerate(model):
                    for name, p in layer.named_parameters():
                        theta = d._fragments[f].original_parameters[name].to(dtype)
                        self.assertTrue(torch.equal(p, theta))
                        self.assertTrue(torch.equal(p, shared.setdefault((f, name), theta)))

    def starts(self, first, second, **options):
        """Two replicas that begin at these values. Returns the exception of each."""
        table, raised = Table(2, wait_s=30), [None, None]

        def live(i, value):
            try:
                model = Layer(3, value)
                inner = inner_of(model)
                with diloco.DiLoCo(table.managers[i], [model], inner, sync_every=1, **options):
                    move(inner, 1)
            except BaseException as error:
                raised[i] = error
        threads = [threading.Thread(target=live, args=a) for a in enumerate((first, second))]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return raised

    def test_different_starts_are_refused_on_every_replica(self):
        for error in self.starts(1.0, 1.0000001, check_start=True):
            self.assertIsInstance(error, diloco.InvalidError)
            self.assertRegex(str(error), "begin from different parameters")
        self.assertEqual(self.starts(1.0, 1.0, check_start=True), [None, None])
        self.assertEqual(self.starts(1.0, 2.0, check_start=False), [None, None])

    def test_starts_are_compared_unless_the_manager_makes_them_equal(self):
        self.assertEqual(self.starts(1.0, 2.0), [None, None])
        with mock.patch.object(Manager, "_init_sync", False):
            for error in self.starts(1.0, 2.0):
                self.assertRegex(str(error), "begin from different parameters.*init_sync=True")
            self.assertEqual(self.starts(1.0, 1.0), [None, None])
        with mock.patch.object(Manager, "_init_sync", None):  # of a class of its own
            self.assertRegex(str(self.starts(1.0, 2.0)[1]), "begin from different parameters")

    def test_two_in_threads(self):
        _, models, options = self.two()
        table = Table(2, wait_s=30)
        threads = [threading.Thread(target=lambda i=i: list(
            self.train(table.managers[i], models[i], 4, i, options))) for i in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([m.step for m in table.managers], [4, 4])
        self.assertTrue(torch.equal(models[0][1].weight, models[1][1].weight))

    def test_a_joiner_with_the_state_goes_on_bitwise(self):
        def member(outer):
            model, manager = Layer(3), Table().managers[0]
            inner = inner_of(model)
            d = diloco.DiLoCo(manager, [model], inner, outer_of(model) if outer else None,
                              sync_every=1)
            return model, manager, inner, d
        for outer in (False, True):
            ends = []
            for hand_over in (False, True):
                model, manager, inner, d = member(outer)
                with d:
                    for k in range(3):
                        move(inner, 0.1 * k)
                if hand_over:
                    saved = manager.registered["StreamingDiLoCoFragment_0"][1]()
                    weights = model.state_dict()
                    model, manager, inner, d = member(outer)
                    model.load_state_dict(weights)
                    manager.registered["StreamingDiLoCoFragment_0"][0](saved)
                with d:
                    for k in range(3):
                        move(inner, 0.3 * k)
                ends.append(model.weight.detach().clone())
            self.assertTrue(torch.equal(*ends))
            self.assertGreater(ends[0][0].item(), 2)

    def test_a_loop_that_goes_waits_for_what_is_in_flight(self):
        manager, model = Table().managers[0], Layer()
        inner = inner_of(model)
        d = diloco.DiLoCo(manager, [model], inner, sync_every=2, fragment_sync_delay=1)
        with d:
            move(inner, 1)
        self.assertEqual([w.waited for w in manager.works], [0, 0])
        d.close()
        self.assertEqual([w.waited for w in manager.works], [1, 1])
        with self.assertRaises(diloco.ClosedError), d:
            move(inner, 1)

    def test_shared_values_outlive_their_loop(self):
        d = diloco.DiLoCo(Table().managers[0], [model := Layer(3)], inner_of(model), sync_every=1)
        shared = d._fragments[0].original_parameters["weight"]
        del d
        self.assertEqual(shared.tolist(), [1, 1, 1])

    def test_state_of_other_parameters_is_refused(self):
        managers = []
        for n in (3, 4):
            manager, model = Table().managers[0], Layer(n)
            managers.append((manager, diloco.DiLoCo(manager, [model], inner_of(model),
                                                    sync_every=1)))
        saved = managers[0][0].registered["StreamingDiLoCoFragment_0"][1]()
        with self.assertRaisesRegex(diloco.InvalidError, "of other parameters"):
            managers[1][0].registered["StreamingDiLoCoFragment_0"][0](saved)


class Copies(unittest.TestCase):
    """Tensors that are not float32 in the CPU's memory."""

    def test_bfloat16_moves_with_theta_in_float32(self):
        for outer in (None, "torch"):
            model, manager = Layer(3).to(torch.bfloat16), Table().managers[0]
            inner = inner_of(model)
            d = diloco.DiLoCo(manager, [model], inner, outer_of(model) if outer else None,
                              sync_every=1, fragment_update_alpha=0.25)
            with d:
                move(inner, 1)  # theta 1 + 1.33 (torch's own in bfloat16); local 1/4 of the way to 2
            shared = d._fragments[0].original_parameters["weight"]
            self.assertEqual(shared.dtype, torch.float32)
            torch.testing.assert_close(shared, torch.full((3,), 2.33), rtol=0.004, atol=0)
            expected = torch.full((3,), 2.33 + 0.25 * (2 - 2.33)).to(torch.bfloat16)
            torch.testing.assert_close(model.weight.detach(), expected, rtol=0.01, atol=0)

    def test_channels_last_moves_as_plain_memory_does(self):
        ends = []
        for memory_format in (torch.contiguous_format, torch.channels_last):
            for outer in (None, "torch"):
                torch.manual_seed(1)
                model = nn.Conv2d(3, 2, 2).to(memory_format=memory_format)
                inner, manager = inner_of(model), Table().managers[0]
                with diloco.DiLoCo(manager, [model], inner, outer_of(model) if outer else None,
                                   sync_every=2, fragment_update_alpha=0.5):
                    for k in range(4):
                        for p in model.parameters():
                            p.grad = torch.linspace(-k, 1, p.numel()).view(p.shape)
                        inner.step()
                ends.append(model.weight.detach().contiguous())
        for end in ends[1:]:
            torch.testing.assert_close(ends[0], end, rtol=0, atol=1e-6)

    def test_a_dtensor_moves_its_local_shard(self):
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor
        if not dist.is_available():
            self.skipTest("torch without distributed")
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=0,
                                    world_size=1)
            self.addCleanup(dist.destroy_process_group)
            mesh = init_device_mesh("cpu", (1,))
            for outer in (None, "torch"):
                model, manager = nn.Module(), Table().managers[0]
                model.weight = nn.Parameter(distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]))
                inner = torch.optim.SGD(model.parameters(), lr=1.0)
                optimizer = outer_of(model, 0.5, 0) if outer else {"outer_optimizer": "sgd",
                                                                    "outer_lr": 0.5}
                with diloco.DiLoCo(manager, [model], inner, optimizer, sync_every=1):
                    move(inner, 1)
                self.assertTrue(torch.equal(model.weight.to_local(), torch.full((4, 2), 1.5)))
                self.assertEqual(tuple(manager.works[0].tensor.shape), (4, 2))

    def test_autograd_notices_what_was_overwritten(self):
        model, manager = Layer(), Table().managers[0]
        inner = inner_of(model)
        with diloco.DiLoCo(manager, [model], inner, sync_every=1):
            loss = (model.weight * model.weight).sum()
            move(inner, 1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                loss.backward()

    @unittest.skipUnless(torch.cuda.is_available(), "no CUDA device")
    def test_cuda_moves_as_the_cpu(self):
        ends = []
        for device in ("cpu", "cuda"):
            for outer in (None, "torch"):
                model, manager = Layer(1000).to(device), Table().managers[0]
                inner = inner_of(model)
                with diloco.DiLoCo(manager, [model], inner, outer_of(model) if outer else None,
                                   sync_every=2, fragment_sync_delay=1,
                                   fragment_update_alpha=0.25):
                    for k in range(8):
                        move(inner, 0.1 * k)
                self.assertEqual(manager.works[0].tensor.device.type, device)
                ends.append(model.weight.detach().cpu())
        for end in ends[1:]:
            torch.testing.assert_close(ends[0], end, rtol=1e-6, atol=1e-6)


class Runs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.store = pathlib.Path(scratch.name) / "run"

    def test_two_replicas_of_a_run_by_its_url(self):
        models = [nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)) for _ in range(2)]
        def live(i):
            inner = torch.optim.AdamW(models[i].parameters(), lr=0.05)
            d = diloco.DiLoCo(self.store, list(models[i]), inner, sync_every=4, replica=f"r{i}",
                              replicas=2, rounds=3, heartbeat=0.05)
            with d:
                while not d.done:
                    x = torch.randn(8, 3)
                    inner.zero_grad()
                    ((models[i](x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
                    inner.step()
            d.close()
        in_threads(*[lambda i=i: live(i) for i in range(2)])
        rows = diloco.run(self.store).history()
        self.assertEqual([r["fragment"] for r in rows], [0, 1] * 3)
        for a, b in zip(*(m.parameters() for m in models)):
            self.assertTrue(torch.equal(a, b))

    def test_what_is_of_managers_is_refused(self):
        model = Layer()
        for words, options in {"one outer optimizer for all": {"outer_optimizer": [outer_of(model)]},
                               "are of managers": {"use_bucketization": True},
                               "check_start are": {"check_start": True},
                               "managers": {"should_quantize": True}}.items():
            with self.assertRaisesRegex(diloco.InvalidError, words):
                diloco.DiLoCo(self.store, [model], inner_of(model), sync_every=1, **options)

    def test_a_run_that_was_given_has_to_be_as_asked(self):
        model = Layer()
        with diloco.Run(self.store, sync_every=5) as run:
            with self.assertRaisesRegex(diloco.InvalidError, "local_steps_per_round = 5"):
                diloco.DiLoCo(run, [model], inner_of(model), sync_every=4)
            inner = inner_of(model)
            with diloco.DiLoCo(run, [model], inner, sync_every=5) as d:
                for _ in range(5):
                    move(inner, 1)
                self.assertEqual(d.run.now.entry, 1)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("left out: diloco.DiLoCo with CUDA tensors (no CUDA device)")
    unittest.main()
