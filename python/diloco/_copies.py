"""Copies between a tensor's device and host memory.

A copy to host memory is queued on the current stream of the tensor's own device, which need not be
the current device. `wait` waits on every device that has one, whether the host memory is pinned or
not. A copy to the device needs no wait, because the tensor's next use is on the same stream.

A loss on a device is copied to host memory beside training, so that a step does not wait for it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import Any, Protocol, Set

import torch


class Loss(Protocol):
    """The loss of a step."""

    def is_here(self) -> bool:
        """Whether `value` does not wait."""

    def value(self) -> float:
        """The number."""


class HostLoss:
    """A number, or a tensor of one element in host memory."""

    def __init__(self, loss: Any) -> None:
        self._value = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)

    def is_here(self) -> bool:
        return True

    def value(self) -> float:
        return self._value


class DeviceLoss:
    """A CUDA tensor of one element, whose value is on its way to host memory."""

    def __init__(self, loss: torch.Tensor) -> None:
        with torch.cuda.device(loss.device):
            self._host = torch.empty((), dtype=torch.float64, pin_memory=True)
            self._host.copy_(loss.detach().reshape(()), non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record()

    def is_here(self) -> bool:
        return bool(self._event.query())

    def value(self) -> float:
        self._event.synchronize()
        return float(self._host)


class Copies(threading.local):
    """Each thread has copies and a current stream of its own."""

    def __init__(self) -> None:
        self._devices: Set[torch.device] = set()  # with copies that were not waited for

    def to_host(self, host: torch.Tensor, source: torch.Tensor) -> None:
        host.copy_(source, non_blocking=True)
        if source.is_cuda:
            self._devices.add(source.device)

    def to_device(self, target: torch.Tensor, host: torch.Tensor) -> None:
        target.copy_(host, non_blocking=True)

    def loss(self, loss: Any) -> Loss:
        on_device = isinstance(loss, torch.Tensor) and loss.is_cuda
        return DeviceLoss(loss) if on_device else HostLoss(loss)

    def wait(self) -> None:
        """The copies to host memory are complete."""
        while self._devices:
            torch.cuda.current_stream(self._devices.pop()).synchronize()


queue = Copies()  # of the process; a test has one of its own, which is late


def new_host(t: torch.Tensor) -> torch.Tensor:
    """Host memory for a tensor's values, pinned for CUDA by the context of the tensor's device."""
    guard: Any = torch.cuda.device(t.device) if t.is_cuda else contextlib.nullcontext()
    with guard:
        return torch.empty(t.shape, dtype=t.dtype, pin_memory=t.is_cuda)
