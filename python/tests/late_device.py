"""late_device.py - substitutes for a device, for the tests with torch. Copies are late and in any
order, or a device's memory is full. `Cuda` is torch.cuda of a machine with several devices."""
import contextlib
import random
from unittest import mock

import torch

from diloco import _copies

NO_MEMORY = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)  # by torch's release


class LateLoss:
    """A loss that is on a device for some time."""

    def __init__(self, late, loss):
        self._late, self._loss, self._is_here = late, loss, False

    def is_here(self):
        self._is_here = self._is_here or self._late.draws(0.3)
        return self._is_here

    def value(self):
        self._late.n_waits += not self._is_here
        self._is_here = True
        return float(self._loss)


class Late:
    """Copies as a device makes them: late and in any order, until they are waited for. A place that
    a copy writes holds other values until then. All tensors are on the device."""

    def __init__(self, seed):
        self._random, self._queued = random.Random(seed), []
        self.n_late = self.n_waits = 0
        self.blocks = []  # sizes
        self.copied = {"to host": [], "to device": []}  # addresses of tensors on the device

    def draws(self, chance):
        return self._random.random() < chance

    def is_at_host(self, t):
        return False

    def _queue(self, way, target, source, tensor):
        self.copied[way].append(tensor.data_ptr())
        target.fill_(1)
        self._queued.append((target, source))

    def to_host(self, host, source):
        self._queue("to host", host, source.clone(), source)  # in the order of the device's stream

    def to_device(self, target, host):
        self._queue("to device", target, host, target)  # host memory is in use until the end

    def loss(self, loss):
        return LateLoss(self, loss)

    def block(self, size, tensors):
        self.blocks.append(size)
        return _copies.Block(size)

    def wait(self):
        self._random.shuffle(self._queued)
        self.n_late += len(self._queued)
        while self._queued:
            target, values = self._queued.pop()
            target.copy_(values)


class Full(Late):
    """A device whose memory is full at one copy to it, the n-th."""

    def __init__(self, seed, n):
        super().__init__(seed)
        self.n_left = n

    def to_device(self, target, host):
        self.n_left -= 1
        if self.n_left == 0:
            raise NO_MEMORY("CUDA out of memory. Tried to allocate 2.00 GiB.")
        super().to_device(target, host)


class Cuda:
    """torch.cuda of a machine with several devices, whose tensors are in host memory. Keeps the
    devices on which a call made a context."""

    def __init__(self):
        self.contexts, self.pinned, self.generators, self._current = set(), {}, [], 0
        self.name = "Card A"

    @contextlib.contextmanager
    def device(self, device):
        former, self._current = self._current, device.index
        yield
        self._current = former

    def _use(self, device=None):
        self.contexts.add(self._current if device is None else device.index)

    def current_stream(self, device=None):
        return mock.Mock(synchronize=lambda: self._use(device))

    def cudart(self):
        return self

    def cudaHostRegister(self, address, size, flags):
        self._use()
        self.pinned[address] = size
        return 0

    def cudaHostUnregister(self, address):
        self._use()
        del self.pinned[address]

    def get_device_name(self, device=None):
        self._use(device)
        return self.name

    def is_available(self):
        return True

    is_initialized = is_available

    def get_rng_state(self, device=None):
        self._use(device)
        self.generators.append(device)
        return torch.zeros(16, dtype=torch.uint8)

    def set_rng_state(self, state, device=None):
        self._use(device)
