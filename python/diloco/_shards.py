"""Tensors that the ranks of an island hold together: shards of DTensors, and pipeline stages.

``host`` is memory for all values of a tensor on rank 0, and None on the other ranks. A shard travels
between its rank and rank 0 only. ``down`` fills ``host`` and ``up`` copies it back. Both begin copies
and messages, which ``Island.finish`` and then ``_copies.queue.wait`` complete. ``cut`` makes host
memory for the values of a shard, which is in use until then.
"""

from __future__ import annotations

import math
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from . import _copies
from ._island import Island
from .errors import RefusedError


class Box(NamedTuple):
    """A part of a tensor: the index of its first element, and its shape."""

    begin: Tuple[int, ...]
    shape: Tuple[int, ...]

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        for dim, (begin, size) in enumerate(zip(self.begin, self.shape)):
            whole = whole.narrow(dim, begin, size)
        return whole

    def meets(self, other: "Box") -> bool:
        return all(a < b + m and b < a + n for a, n, b, m in zip(
            self.begin, self.shape, other.begin, other.shape))


def is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "to_local")


def check_placement(name: str, t: Any) -> None:
    for p in t.placements:
        if p.is_partial():
            raise RefusedError(f"{name} is placed as {p}: its values are not summed over the ranks "
                               "yet: redistribute it to shards or replicas")


def box_of(t: Any) -> Box:
    """This rank's part of a DTensor."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    shape, begin = compute_local_shape_and_global_offset(t.shape, t.device_mesh, t.placements)
    return Box(tuple(begin), tuple(shape))


def _check_tiles(name: str, shape: Sequence[int], boxes: Sequence[Box]) -> None:
    """RefusedError: the parts do not cover the tensor, each element once. (A part whose elements
    are no box has a box that meets another one.)"""
    parts = [b for b in set(boxes) if math.prod(b.shape)]
    if sum(math.prod(b.shape) for b in parts) != math.prod(shape) or any(
            a.meets(b) for i, a in enumerate(parts) for b in parts[:i]):
        raise RefusedError(f"{name} {list(shape)} has shards that do not cover it, each element "
                           f"once ({', '.join(f'{list(b.shape)} at {list(b.begin)}' for b in parts)})"
                           ": give each replica, as group=, all ranks of its device mesh, and "
                           "dimensions that the ranks divide")


def boxes_of(name: str, t: Any, island: Island) -> List[Box]:
    """Every rank's part, by rank. All ranks ask for the same tensors in the same order."""
    key = (tuple(t.shape), str(t.placements), tuple(t.device_mesh.mesh.shape))
    if key not in island.boxes:
        def check() -> List[Box]:
            _check_tiles(name, t.shape, found)
            return found
        found = island.gather(box_of(t))
        island.boxes[key] = island.lead(check)
    boxes: List[Box] = island.boxes[key]
    return boxes


Cut = Callable[[torch.Tensor], torch.Tensor]


def _at_host(t: torch.Tensor, cut: Cut) -> torch.Tensor:
    """The values in row-major order in host memory, once the queued copies are complete."""
    if _copies.queue.is_at_host(t):
        return t.contiguous()
    room = cut(t)
    _copies.queue.to_host(room, t)
    return room


def _take(t: torch.Tensor, island: Island, cut: Cut) -> None:
    """Receive a tensor's values from rank 0."""
    room = cut(t)
    island.expect(room, 0, lambda: _copies.queue.to_device(t, room))


class Sharded:
    """A DTensor of an island."""

    def __init__(self, t: Any, island: Island, name: str = "a state of the optimizer") -> None:
        self._tensor, self._island = t, island
        self._boxes = boxes_of(name, t, island)

    @property
    def local(self) -> torch.Tensor:
        """This rank's part."""
        part: torch.Tensor = self._tensor.to_local().detach()
        return part

    def _others(self) -> List[Tuple[int, Box]]:
        """The other ranks with elements."""
        return [(rank, box) for rank, box in enumerate(self._boxes)
                if rank and math.prod(box.shape)]

    def down(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        local, island = self.local, self._island
        mine = self._boxes[island.rank]
        if host is None:
            if local.numel() and self._boxes.index(mine) == island.rank:  # others have copies
                island.post(_at_host(local, cut), 0)
            return
        _copies.queue.to_host(mine.of(host), local)
        for rank, box in self._others():
            if self._boxes.index(box) == rank:
                self._receive(box.of(host), rank)

    def _receive(self, part: torch.Tensor, rank: int) -> None:
        if part.is_contiguous():
            self._island.expect(part, rank)
        else:
            room = torch.empty(part.shape, dtype=part.dtype)
            self._island.expect(room, rank, lambda: part.copy_(room))

    def up(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        local, island = self.local, self._island
        if host is not None:
            _copies.queue.to_device(local, self._boxes[0].of(host))
            for rank, box in self._others():
                island.post(box.of(host).contiguous(), rank)
        elif local.numel():
            _take(local, island, cut)


class Staged:
    """A tensor that one rank of an island has, and not rank 0. ``tensor``: None on the other
    ranks."""

    def __init__(self, tensor: Optional[torch.Tensor], owner: int, island: Island) -> None:
        self._tensor, self._owner, self._island = tensor, owner, island

    @property
    def local(self) -> torch.Tensor:
        """This rank's part."""
        return torch.empty(0) if self._tensor is None else self._tensor.detach()

    def down(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        if self._tensor is not None:
            self._island.post(_at_host(self.local, cut), 0)
        elif host is not None:
            self._island.expect(host, self._owner)

    def up(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        if self._tensor is not None:
            _take(self.local, self._island, cut)
        elif host is not None:
            self._island.post(host, self._owner)


class OfRank:
    """A private piece of one rank of an island (its optimizer's state), which rank 0 keeps for it.
    ``piece``: on that rank alone."""

    def __init__(self, piece: Any, owner: int, size: int, island: Island) -> None:
        self._piece, self._owner, self._island = piece, owner, island
        self._memory = _copies.Room(size if island.leads and piece is None else 0)
        self._room = self._memory.bytes if piece is None else piece.room()

    def room(self) -> torch.Tensor:
        return self._room

    def pack(self, room: Optional[torch.Tensor] = None) -> None:
        room = self._room if room is None else room
        if self._piece is not None:
            self._piece.pack(room)
        self._move(room, to_lead=True)

    def unpack(self) -> None:
        self._move(self._room, to_lead=False)
        self._memory.drop()
        if self._piece is not None:
            self._piece.unpack()

    def _move(self, room: torch.Tensor, to_lead: bool) -> None:
        if self._owner == 0 or not (self._island.leads or self._piece is not None):
            return
        if to_lead == (self._piece is not None):
            self._island.post(room, 0 if to_lead else self._owner)
        else:
            self._island.expect(room, self._owner if to_lead else 0)
        self._island.finish()
