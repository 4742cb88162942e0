"""torchft_test.py - torchft's own tests of its DiLoCo class, run with ours in its place by one line
(LIB-11). They come in torchft's wheel (torchft-nightly), with its manager and its quorum service.
Skips itself where torchft is not installed.

Two of its unit tests call private methods of its fragments (_save_grads and kin) instead of
stepping. For those `Swapped` adds them in torch's words, around our all-reduce."""
import sys
import unittest

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

# Its trainer gives its managers fixed ports, which another process of the machine may use.
trainer.Manager = lambda **arguments: torchft.manager.Manager(**{**arguments, "port": 0})

# Its recorded traces are not in the wheel: without them it computes what is expected.
regression.handle_fixture = lambda *_: None


def load_tests(loader, _tests, _pattern):
    suite = unittest.TestSuite()
    suite.addTests(loader.loadTestsFromTestCase(unit.DiLoCoTest))
    suite.addTests(loader.loadTestsFromTestCase(regression.DiLoCoMockedUpdateTest))
    for name in loader.getTestCaseNames(integration.LocalSGDIntegTest):
        if "diloco" in name:
            suite.addTest(integration.LocalSGDIntegTest(name))
    return suite


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
