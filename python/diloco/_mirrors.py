"""Tensors that the library does not read in place: on a device, in another memory order, or on the
ranks of an island.

The library keeps their values in host memory and asks `Mirrors` for copies, in the calls that need
them. It asks for the tensors of one fragment, and at a join or a save for all. On an island rank 0
passes such a request on to the other ranks, which then are in ``Island.lead`` and help.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Union

import torch

from . import _copies
from ._island import Island
from ._memory import needs
from ._run import DeviceCopies
from ._shards import Cut, Sharded, Staged, is_sharded


class Direct:
    """A tensor whose memory the library reads and overwrites itself."""

    def __init__(self, t: torch.Tensor) -> None:
        self.tensor = t

    def changed(self) -> None:
        """The library wrote it without torch's knowledge."""
        torch.autograd.graph.increment_version(self.tensor)


class Mirror:
    """A tensor of this process."""

    def __init__(self, t: torch.Tensor) -> None:
        self._tensor = t

    @property
    def local(self) -> torch.Tensor:
        """This rank's part."""
        return self._tensor.detach()

    def down(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        if host is not None:
            _copies.queue.to_host(host, self.local)

    def up(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        if host is not None:
            _copies.queue.to_device(self.local, host)


class Shared(Mirror):
    """A tensor that every rank of an island has whole (DDP's parameters, buffers): rank 0's is
    the run's, and what is adopted goes to the others."""

    def __init__(self, t: torch.Tensor, island: Island) -> None:
        super().__init__(t)
        self._island = island

    def up(self, host: Optional[torch.Tensor], cut: Cut = _copies.new_host) -> None:
        super().up(host)
        self._island.share(self.local, host)


Mirrored = Union[Mirror, Sharded, Staged]
Bound = Union[Direct, Mirrored]


def alone(t: torch.Tensor) -> Union[Direct, Mirror]:
    return Direct(t) if _copies.queue.is_at_host(t) and t.is_contiguous() else Mirror(t)


def bound(name: str, t: torch.Tensor, island: Island) -> Bound:
    if is_sharded(t):
        return Sharded(t, island, name)
    return Shared(t, island) if island.size > 1 else alone(t)


class Member(NamedTuple):
    """A tensor of the replica, as its run knows it."""

    name: str
    role: str
    like: torch.Tensor  #: has its shape and type
    bound: Bound


def one_kind(members: Sequence[Member]) -> List[Member]:
    """Members of which those after the first mirrored one are mirrored as well. A run knows few
    changes between tensors of a device and of host memory, which otherwise could alternate."""
    found: List[Member] = []
    for m in members:
        if found and isinstance(m.bound, Direct) and not isinstance(found[-1].bound, Direct):
            m = m._replace(bound=Mirror(m.bound.tensor))
        found.append(m)
    return found


def _total(tensors: Iterable[torch.Tensor]) -> int:
    return sum(_copies.aligned(_copies.bytes_of(t)) for t in tensors)


class Mirrors(DeviceCopies):
    """The copies of an island's tensors, on each rank of it. ``fragments``: of each member. A
    member's number is its position; the library knows it by the number after that."""

    def __init__(self, members: Sequence[Member], fragments: Sequence[int], island: Island) -> None:
        self._members, self._fragments, self._island = members, fragments, island
        self._bound: Dict[int, Mirrored] = {n: m.bound for n, m in enumerate(members)
                                            if not isinstance(m.bound, Direct)}
        self.numbers = list(self._bound)
        self._pieces: Dict[int, torch.Tensor] = {}  # rank 0: of the block, by address
        self._queued: Dict[str, Dict[int, torch.Tensor]] = {"down": {}, "up": {}}
        self._block: Optional[_copies.Block] = None
        self.failed = False  # a copy was not made: neither the model nor the copies are whole
        self.name = _copies.names_of(b.local for b in self._bound.values())

    def groups(self, numbers: Sequence[int]) -> List[List[int]]:
        """Members by their fragment."""
        return [[n for n in numbers if self._fragments[n] == f]
                for f in sorted({self._fragments[n] for n in numbers})]

    def _size(self) -> int:
        """The bytes that this rank needs. Rank 0 has the whole model, another rank its shards of the
        largest fragment."""
        if self._island.leads:
            return _total(self._members[n].like for n in self._bound)
        return max(_total(b.local for b in map(self._bound.__getitem__, group)
                          if not isinstance(b, Mirror)) for group in self.groups(self.numbers))

    def _memory(self) -> _copies.Block:
        if self._block is None:
            size = self._size()
            with needs(lambda: f"keep copies of the model in host memory ({size} bytes)"):
                self._block = _copies.queue.block(size, (b.local for b in self._bound.values()))
        return self._block

    # ---- the library's calls, on rank 0 ----

    def alloc(self, size: int) -> int:
        piece = self._memory().cut(size)
        address = int(piece.data_ptr())
        self._pieces[address] = piece
        return address

    def copy_in(self, host: int, tensor: int, size: int) -> None:
        self._queue("down", tensor - 1, host, size)

    def copy_out(self, tensor: int, host: int, size: int) -> None:
        self._queue("up", tensor - 1, host, size)

    def _queue(self, way: str, number: int, host: int, size: int) -> None:
        like = self._members[number].like
        self._queued[way][number] = self._pieces[host][:size].view(like.dtype).reshape(like.shape)

    def synchronise(self) -> None:
        for way in ("down", "up"):
            hosts, self._queued[way] = self._queued[way], {}
            for group in self.groups(list(hosts)):
                self.lead(way, group, hosts)

    def lead(self, way: str, numbers: Sequence[int], hosts: Dict[int, torch.Tensor]) -> None:
        """Rank 0, within ``Island.lead``: copy these members of one fragment, on all ranks."""
        with self._island.asking((way, numbers)):
            self._move(way, numbers, hosts)

    # ---- all ranks ----

    def close(self) -> None:
        """Give the host memory back. The run is closed."""
        self._pieces, self._block = {}, None

    def help(self, asked: Any) -> None:
        """A rank other than 0: its part of `lead`."""
        way, numbers = asked
        self._memory().clear()
        self._move(way, numbers, {})

    def _move(self, way: str, numbers: Sequence[int], hosts: Dict[int, torch.Tensor]) -> None:
        failed, self.failed = self.failed, True
        for n in numbers:
            b = self._bound[n]
            with needs(lambda: self._said(way, n)):  # noqa: B023: it is called here
                (b.down if way == "down" else b.up)(hosts.get(n), self._cut)
        with needs(lambda: f"complete the copies of fragment {self._fragments[numbers[0]]}"):
            self._island.finish()
            _copies.queue.wait()
        self.failed = failed

    def _said(self, way: str, number: int) -> str:
        m = self._members[number]
        there, here = f"{self._bound[number].local.device}", "host memory"
        places = f"from {there} to {here}" if way == "down" else f"from {here} to {there}"
        return f"copy {m.name} ({_copies.bytes_of(m.like)} bytes) {places}"

    def _cut(self, t: torch.Tensor) -> torch.Tensor:
        return self._memory().like(t)
