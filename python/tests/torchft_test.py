"""torchft_test.py - torchft's own tests of its DiLoCo class, run with ours in its place by one line
(LIB-11). They come in torchft's wheel (torchft-nightly), with its manager and its quorum service.
Skips itself where torchft is not installed.

Two of its unit tests call private methods of its fragments (_save_grads and kin) instead of
stepping. For those `Swapped` adds them in torch's words, around our all-reduce."""
import re
import sys
import threading
import time
import unittest
import urllib.request

try:
    import torch
    import parameterized  # noqa: F401: its tests need it
    import torchft.local_sgd
except ImportError as error:
    print(f"left out: torchft's own tests with our class ({error})")
    sys.exit(77)

import diloco
from diloco._diloco import _ManagerExchange
from diloco._loop import Reduce


class Fragment:
    """torchft's private methods over one of ours, of which there is one."""

    def __init__(self, fragment, side):
        self.original_parameters = fragment.original_parameters
        self._places, self._side, self._grads, self._kept = fragment._places, side, {}, []

    def save_parameters(self):
        self._side.loop.backup()

    def _save_grads(self):
        for p in self._places:
            self._grads[p.name] = self.original_parameters[p.name] - p.local()

    def _average_grads(self):
        exchange = _ManagerExchange(self._side._manager, [self._places], None)
        for part, p in enumerate(self._places):
            g = self._grads[p.name]
            exchange.all_reduce(Reduce(0, 0, part, p.name, False, g.data_ptr(), g.numel())).wait()

    def _set_grads(self):
        for p in self._places:
            p.parameter.grad = self._grads[p.name]


class Swapped(diloco.DiLoCo):
    _shims = None

    @property
    def _fragments(self):
        if self._shims is None:
            self._shims = [Fragment(f, self._side) for f in super()._fragments]
        return self._shims


torchft.local_sgd.DiLoCo = Swapped  # before its tests import it
import torchft._test.diloco_trainer as trainer  # noqa: E402
import torchft.diloco_regression_test as regression  # noqa: E402
import torchft.local_sgd_integ_test as integration  # noqa: E402
import torchft.local_sgd_test as unit  # noqa: E402
from torchft.coordination import LighthouseServer  # noqa: E402
from torchft.manager_integ_test import EventInjectorEvent  # noqa: E402


def wait_for(condition):
    while not condition():
        time.sleep(0.01)


class LateReplica:
    """Waits that torchft's test of a replica that joins two others late lacks. Its barrier releases
    all three before the late one requests a quorum. If the others reach their last step first,
    that request never finds a second member. Here the late replica's manager starts when the
    others are at the barrier, and they continue when the lighthouse has its request. The quorum
    that follows includes all three: a long join timeout waits for every live replica."""

    def __init__(self):
        self.barrier, self.requested = None, threading.Event()

    def lighthouse(self, **arguments):
        self.server = LighthouseServer(**arguments, join_timeout_ms=60_000)
        return self.server

    def before_manager(self, replica):
        if replica == "0":
            wait_for(lambda: self.barrier.n_waiting == self.barrier.parties - 1)

    def after_barrier(self, step):
        if step > 0:
            wait_for(lambda: self.requested.is_set() or self.in_lighthouse())
            self.requested.set()

    def in_lighthouse(self):
        with urllib.request.urlopen(self.server.address() + "/status") as page:
            return re.search(r"\[[1-9]\d*/\d+ participants healthy\]", page.read().decode())


class Injector(integration.EventInjector):
    def barrier_at(self, rank, step, barrier):
        late.barrier = barrier
        return super().barrier_at(rank, step, barrier)

    def check(self, rank, step):
        barriers = self.count[EventInjectorEvent.Barrier]
        super().check(rank, step)
        if self.count[EventInjectorEvent.Barrier] > barriers:
            late.after_barrier(step)


class Integration(integration.LocalSGDIntegTest):
    def setUp(self):
        super().setUp()
        global late
        late = LateReplica() if "upscale" in self._testMethodName else None
        integration.LighthouseServer = late.lighthouse if late else LighthouseServer


def manager(**arguments):
    if late:
        late.before_manager(arguments["replica_id"])
    # Its trainer gives its managers fixed ports, which another process of the machine may use.
    return torchft.manager.Manager(**{**arguments, "port": 0})


def one_at_a_time(function):
    lock = threading.Lock()

    def locked(*arguments):
        with lock:
            return function(*arguments)
    return locked


late = None
trainer.Manager = manager
# Its replicas are threads: each asks whether torch's default group is there, and then makes it.
trainer.DiLoCoTrainer.setup_distributed = one_at_a_time(trainer.DiLoCoTrainer.setup_distributed)
integration.EventInjector = Injector

# Its recorded traces are not in the wheel: without them it computes what is expected.
regression.handle_fixture = lambda *_: None


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    suite.addTests(loader.loadTestsFromTestCase(unit.DiLoCoTest))
    suite.addTests(loader.loadTestsFromTestCase(regression.DiLoCoMockedUpdateTest))
    for name in loader.getTestCaseNames(Integration):
        if "diloco" in name:
            suite.addTest(Integration(name))
    return suite


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
