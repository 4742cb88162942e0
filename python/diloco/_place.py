"""Parameters under `DiLoCo`: where their values are, and copies of those that the loop cannot read
in place."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Sequence

import torch

from . import _copies
from ._loop import Copies
from ._memory import needs
from ._run import Memory
from ._shards import is_sharded
from ._torch import check_tensor, named_parameters, with_elements
from .errors import InvalidError, RefusedError

_STAGING = 1 << 20  # elements


class Place:
    """A parameter and where it is."""

    def __init__(self, name: str, parameter: torch.Tensor, fragment: int, begin: int) -> None:
        check_tensor(name, parameter)
        if not parameter.is_floating_point():
            raise RefusedError(f"{name} is {str(parameter.dtype)[6:]}: only parameters of float32, "
                               "bfloat16 and float16 are synchronised")
        self.name, self.parameter, self.fragment = name, parameter, fragment
        self.begin = begin  # in its fragment
        local = self.local()
        self.shape, self.n = tuple(local.shape), local.numel()
        self.device = local.device
        self.direct = (local.device.type == "cpu" and local.dtype == torch.float32
                       and local.is_contiguous())
        self._pointer = local.data_ptr()

    def local(self) -> torch.Tensor:
        """Its values that this rank has."""
        p = self.parameter
        return p.to_local().detach() if is_sharded(p) else p.detach()

    def memory(self) -> Optional[Memory]:
        return Memory(self._pointer, "float32", self.shape, None) if self.direct else None

    def check(self) -> None:
        """InvalidError: its memory is no longer where it was registered."""
        if self.local().data_ptr() != self._pointer:
            raise InvalidError(f"{self.name} has moved to other memory since DiLoCo was made: move "
                               "the model (.to, .data = …) before")

    def part(self, fragment: torch.Tensor) -> torch.Tensor:
        """Its part of a vector of the fragment."""
        return fragment[self.begin:self.begin + self.n].view(self.shape)

    def like(self, values: torch.Tensor) -> torch.Tensor:
        """Local values as what the parameter is: its type, device and placement."""
        values = values.to(self.device, self.parameter.dtype)
        if not is_sharded(self.parameter):
            return values
        from torch.distributed.tensor import DTensor
        p: Any = self.parameter
        return DTensor.from_local(values, p.device_mesh, p.placements, run_check=False,
                                  shape=p.shape, stride=p.stride())


def places_of(fragments: Sequence[torch.nn.Module]) -> List[List[Place]]:
    """Of each fragment its parameters that this rank has values of. InvalidError: one is in two,
    or a rank has none."""
    owner: Dict[int, int] = {}
    rows: List[List[Place]] = []
    for f, module in enumerate(fragments):
        row: List[Place] = []
        begin = 0
        for name, p in with_elements(named_parameters(module)):
            if owner.setdefault(id(p), f) != f:
                raise InvalidError(f"{name} is in fragments {owner[id(p)]} and {f}: a parameter "
                                   "that is shared belongs to one")
            place = Place(name, p, f, begin)
            if place.n == 0:
                continue  # a shard with fewer rows than ranks: other ranks have them
            row.append(place)
            begin += place.n
        if not any(_is_on_every_rank(p) for p in module.parameters()):
            raise InvalidError(f"fragment {f} has no parameter with a row for every rank of its "
                               "mesh, so a rank would have nothing to exchange: join it with "
                               "another fragment, or take fewer ranks")
        rows.append(row)
    return rows


def _is_on_every_rank(p: torch.Tensor) -> bool:
    """Every rank finds the same answer without a message."""
    if not is_sharded(p):
        return True
    sharded: Any = p
    ranks = math.prod(sharded.device_mesh.size(dim) for dim, placement
                      in enumerate(sharded.placements) if placement.is_shard())
    rows = -(-p.shape[0] // ranks) if p.dim() else 1  # of the first ranks, as torch.chunk deals
    return bool(ranks == 1 or rows * (ranks - 1) < p.shape[0])


class StagedCopies(Copies):
    """Parameters that are not contiguous float32 in the CPU's memory."""

    def __init__(self, places: Sequence[Place], pin_memory: bool) -> None:
        self._places = places
        self.failed = False  # a parameter is partly the shared one
        n = min(_STAGING, max(p.n for p in places))
        self._block = _copies.queue.block(4 * n, [p.local() for p in places] if pin_memory else [])
        self._room = self._block.cut(4 * n).view(torch.float32)
        self.staging = Memory(self._room.data_ptr(), "float32", (n,), self._room)

    def read(self, host: int, tensor: int, first: int, n: int) -> None:
        place = self._places[tensor]
        with needs(lambda: f"copy {place.name} from {place.device} to host memory"):
            self._room[:n].copy_(place.local().reshape(-1)[first:first + n])

    def write(self, host: int, tensor: int, first: int, n: int) -> None:
        place = self._places[tensor]
        local = place.local()
        failed, self.failed = self.failed, True
        with torch.no_grad(), needs(lambda: f"copy {place.name} from host memory to {place.device}"):
            whole = local.reshape(-1)  # a copy where its memory is in another order (channels_last)
            whole[first:first + n].copy_(self._room[:n])
            if not local.is_contiguous():
                local.copy_(whole.view(local.shape))
        self.failed = failed
