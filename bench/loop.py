"""A synchronisation of 100 M float32 in PyTorch through diloco.DiLoCo, against the operations of torchft's
DiLoCo class doing the same, in one process, taking turns.

    DILOCO_LIBRARY=build PYTHONPATH=python python3 bench/loop.py [elements] [rounds]     # torch, CPU build

All have an exchange that does nothing. The rival is torchft's own class where torchft is installed.
Else its operations are written out here, parameter by parameter: difference, clone, restore,
SGD(nesterov=True), save, lerp. `whole` is the time of the inner optimizer's step at a boundary less
its time elsewhere. `outer step` is the part of it after the vote, and `CPU` the time of all
threads, which a busy machine shows better. bench/loop.md has results."""
import statistics
import sys
import time

import torch

import diloco

N = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000_000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
TENSORS = 96  # of two sizes, as those of a model of this size


class Work:
    def __init__(self, tensor=None):
        self.tensor = tensor

    def wait(self, timeout=None):
        return True

    def get_future(self):
        future = torch.futures.Future()
        future.set_result([self.tensor])
        return future


class Manager:
    """All is well, and the mean is one's own."""
    _use_async_quorum = False

    def __init__(self):
        self.step, self.voted = 0, 0.0

    def allreduce(self, tensor, should_quantize=False):
        return Work(tensor)

    def start_quorum(self):
        pass

    def current_step(self):
        return self.step

    def should_commit(self):
        self.step += 1
        self.voted = time.perf_counter()
        return True

    def register_state_dict_fn(self, *_):
        pass

    allow_state_dict_read = disallow_state_dict_read = start_quorum


class Nothing(torch.optim.Optimizer):
    """An inner optimizer that takes no time."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        pass


class WrittenOut:
    """torchft's operations at a synchronisation, in their order."""

    def __init__(self, manager, modules, inner, outer, sync_every):
        self.manager, self.parameters, self.outer = manager, list(modules[0].parameters()), outer
        self.global_ = [p.detach().clone() for p in self.parameters]
        inner.register_step_post_hook(lambda *_: self.sync())

    @torch.no_grad()
    def sync(self):
        self.manager.start_quorum()
        grads = [g - p for g, p in zip(self.global_, self.parameters)]
        for work in [self.manager.allreduce(g) for g in grads]:
            work.wait()
        local = [p.detach().clone() for p in self.parameters]
        for p, g in zip(self.parameters, self.global_):
            p.data.copy_(g)
        self.manager.should_commit()
        for p, g in zip(self.parameters, grads):
            p.grad = g
        self.outer.step()
        for p, g in zip(self.parameters, self.global_):
            g.copy_(p.detach().clone())
        for p, x in zip(self.parameters, local):
            p.data.lerp_(x, 0.0)
        self.outer.zero_grad()

    def __enter__(self):
        return self


def rival():
    try:
        from torchft.local_sgd import DiLoCo
        return "torchft", DiLoCo
    except ImportError:
        return "torchft's operations", WrittenOut


def model():
    big, small = N * 2 // (3 * (TENSORS // 2)), N // (3 * (TENSORS // 2))
    return torch.nn.ParameterList([torch.nn.Parameter(torch.ones(big if i % 2 else small))
                                   for i in range(TENSORS)])


class Case:
    def __init__(self, name, kind, outer):
        self.name, self.whole, self.outer_step, self.cpu = name, [], [], []
        module, self.manager = model(), Manager()
        self.inner = Nothing(module.parameters())
        self.parameters = list(module)
        self.loop = kind(self.manager, [module], self.inner, outer(module), sync_every=1)
        self.loop.__enter__()

    def turn(self):
        with torch.no_grad():
            for p in self.parameters:
                p.mul_(1.0001)
        begin, cpu = time.perf_counter(), time.process_time()
        self.inner.step()
        end = time.perf_counter()
        self.cpu.append(time.process_time() - cpu)
        self.whole.append(end - begin)
        self.outer_step.append(end - self.manager.voted)


def sgd(fused):
    return lambda module: torch.optim.SGD(module.parameters(), lr=0.7, momentum=0.9, nesterov=True,
                                          fused=fused)


def quiet_steps(n=20000):
    """Seconds that diloco.DiLoCo adds to a step between synchronisations."""
    times = []
    for hooked in (False, True):
        module = torch.nn.Linear(1, 1)
        inner, manager = Nothing(module.parameters()), Manager()
        loop = diloco.DiLoCo(manager, [module], inner, sync_every=n + 1)
        if hooked:
            loop.__enter__()
        begin = time.perf_counter()
        for _ in range(n):
            inner.step()
        times.append((time.perf_counter() - begin) / n)
    return times[1] - times[0]


def main():
    name, kind = rival()
    cases = [Case("diloco, its own Nesterov", diloco.DiLoCo, lambda _: None),
             Case("diloco, torch's SGD(fused=True)", diloco.DiLoCo, sgd(True)),
             Case(f"{name}, SGD", kind, sgd(None)),
             Case(f"{name}, SGD(fused=True)", kind, sgd(True))]
    for case in cases:
        case.turn()  # takes memory
        case.whole.clear(), case.outer_step.clear(), case.cpu.clear()
    for _ in range(ROUNDS):
        for case in cases:
            case.turn()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {N} elements in {TENSORS} tensors, "
          f"{ROUNDS} rounds, medians")
    for case in cases:
        print(f"{case.name:34}", *(
            f"{what} {statistics.median(theirs) * 1e3:7.1f} ms "
            f"({statistics.median(a / b for a, b in zip(theirs, ours)):5.2f} times ours)"
            for what, theirs, ours in (("whole", case.whole, cases[0].whole),
                                       ("outer step", case.outer_step, cases[0].outer_step),
                                       ("CPU", case.cpu, cases[0].cpu))), sep="   ")
    print(f"a step between synchronisations: {quiet_steps() * 1e6:.2f} us more in Python")


main()
