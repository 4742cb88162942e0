"""Copies between a tensor's device and host memory.

Copies in both directions are queued on the current stream of the tensor's own device, which need
not be the current device. `wait` waits on every device that has one, whether the host memory is
pinned or not.

A call that needs a device's context names the device. Otherwise it would make a context on the
current device, which is GPU 0 in a process that chose none.

A loss on a device is copied to host memory beside training, so that a step does not wait for it.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import weakref
from typing import Any, Iterable, List, Optional, Protocol, Sequence, Set, Tuple

import torch

from . import _c
from .errors import NoMemoryError

cuda: Any = torch.cuda  # a test has one of its own
_PORTABLE = 1  # cudaHostRegisterPortable: pinned for the contexts of all devices
_ALIGNMENT = 64
_NAME_MAX = 127  # characters of a device's name in private state (docs/formats.md)


def device_of(t: torch.Tensor) -> Optional[torch.device]:
    """The tensor's device; None: host memory."""
    return t.device if t.is_cuda else None


def names_of(tensors: Iterable[torch.Tensor]) -> str:
    """The names of the devices that have these tensors, each once and in the order of their
    numbers; "cpu": all are in host memory. Only these devices are asked. Cut to the length that
    private state keeps."""
    devices = {d for d in map(device_of, tensors) if d is not None}
    names = [cuda.get_device_name(d) for d in sorted(devices, key=lambda d: d.index or 0)]
    return ", ".join(dict.fromkeys(names))[:_NAME_MAX] or "cpu"


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
        with cuda.device(loss.device):
            self._host = torch.empty((), dtype=torch.float64, pin_memory=True)
            self._host.copy_(loss.detach().reshape(()), non_blocking=True)
            self._event = cuda.Event()
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

    def is_at_host(self, t: torch.Tensor) -> bool:
        """Whether the host reads and writes the tensor's memory itself."""
        return device_of(t) is None

    def to_host(self, host: torch.Tensor, source: torch.Tensor) -> None:
        host.copy_(source, non_blocking=True)
        self._note(source)

    def to_device(self, target: torch.Tensor, host: torch.Tensor) -> None:
        target.copy_(host, non_blocking=True)
        self._note(target)

    def _note(self, t: torch.Tensor) -> None:
        device = device_of(t)
        if device is not None:
            self._devices.add(device)

    def loss(self, loss: Any) -> Loss:
        on_device = isinstance(loss, torch.Tensor) and loss.is_cuda
        return DeviceLoss(loss) if on_device else HostLoss(loss)

    def wait(self) -> None:
        """Wait until the queued copies are complete."""
        while self._devices:
            cuda.current_stream(self._devices.pop()).synchronize()

    def block(self, size: int, tensors: Iterable[torch.Tensor]) -> Block:
        """Host memory for the values of these tensors, pinned if one of them is on a device."""
        return Block(size, next((d for d in map(device_of, tensors) if d is not None), None))


Move = Tuple[int, int, int]  # address to copy to, address to copy from, bytes
_SHARED = 1 << 20  # bytes that are worth a thread


def parts_of(moves: Sequence[Move], n: int) -> List[List[Move]]:
    """The moves in at most ``n`` parts of about the same number of bytes. A large move is cut."""
    each = max(1, -(-sum(size for _, _, size in moves) // n))
    parts: List[List[Move]] = [[]]
    room = each
    for target, source, size in moves:
        while size > room:
            parts[-1].append((target, source, room))
            target, source, size = target + room, source + room, size - room
            parts.append([])
            room = each
        parts[-1].append((target, source, size))
        room -= size
    return parts


def _move(moves: Sequence[Move]) -> None:
    for target, source, size in moves:
        # Both without the GIL.
        copy = _c.lib().diloco_copy if size >= _SHARED else ctypes.memmove
        copy(target, source, size)


def copy_host(pairs: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy tensors between places in host memory, (target, source), each of one type and
    contiguous. It uses as many threads as torch does, and waits for them once. torch's own copy
    waits for its threads at each tensor, and they spin, so that other work on the cores makes it
    several times slower (bench/loop.md)."""
    moves = [(t.data_ptr(), s.data_ptr(), bytes_of(s)) for t, s in pairs]
    n = min(torch.get_num_threads(), sum(size for _, _, size in moves) // _SHARED)
    first, *rest = parts_of(moves, max(1, n))
    threads: List[threading.Thread] = []
    try:
        for part in rest:
            threads.append(threading.Thread(target=_move, args=(part,)))
            threads[-1].start()
        _move(first)
    finally:
        for t in threads:
            if t.ident is not None:  # it was started
                t.join()


def _unpin(device: torch.device, address: int, _room: torch.Tensor) -> None:
    with cuda.device(device):
        cuda.cudart().cudaHostUnregister(address)


class Block:
    """Host memory of one size that is cut into pieces. It is registered as it is, because torch's
    own pinned memory has a power of two of bytes.

    ``device``: the device to pin it for; None: it stays pageable. NoMemoryError: it cannot be
    pinned."""

    def __init__(self, size: int, device: Optional[torch.device] = None) -> None:
        # Whole pages: a page that is shared with other memory could be pinned twice.
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        room = torch.empty(self.size + mmap.PAGESIZE, dtype=torch.uint8)
        begin = -room.data_ptr() % mmap.PAGESIZE
        self._room, self._used = room[begin:begin + self.size], 0
        if device is not None and size:
            self._pin(device)

    def _pin(self, device: torch.device) -> None:
        address = self._room.data_ptr()
        with cuda.device(device):
            status = int(cuda.cudart().cudaHostRegister(address, self.size, _PORTABLE))
        if status:
            raise NoMemoryError(f"{self.size} bytes of host memory for the copies of {device} "
                                f"cannot be pinned (CUDA error {status}): free memory, or raise "
                                "the limit of locked memory (ulimit -l)")
        weakref.finalize(self, _unpin, device, address, self._room).atexit = False

    def cut(self, size: int) -> torch.Tensor:
        """The next ``size`` bytes. NoMemoryError: fewer are left."""
        begin, end = self._used, self._used + size
        if end > self.size:
            raise NoMemoryError(f"{size} bytes of a block of {self.size}, of which {begin} are in "
                                "use")
        self._used = aligned(end)
        return self._room[begin:end]

    def like(self, t: torch.Tensor) -> torch.Tensor:
        """A piece for a tensor's values, in row-major order."""
        return self.cut(bytes_of(t)).view(t.dtype).reshape(t.shape)

    def clear(self) -> None:
        """Make all pieces free again."""
        self._used = 0


class Room:
    """Host memory of ``size`` zeros. A page takes memory from its first write until `drop`."""

    def __init__(self, size: int) -> None:
        try:
            self._map = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(str(error)) from None
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)[:size]

    def drop(self) -> None:
        """Make all bytes zero again, and give the memory back."""
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)


def bytes_of(t: torch.Tensor) -> int:
    return int(t.numel() * t.element_size())


def aligned(size: int) -> int:
    """The bytes that a piece of ``size`` bytes takes in a block."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def new_host(t: torch.Tensor) -> torch.Tensor:
    """Pageable host memory for a tensor's values."""
    return torch.empty(t.shape, dtype=t.dtype)


queue = Copies()  # of the process; a test has one of its own, which is late
