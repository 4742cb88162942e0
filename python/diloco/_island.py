"""Islands: ranks that hold one replica together. Rank 0 talks to the store.

The ranks' own process group carries their gradients. The messages of this file have a gloo
connection of their own through host memory. It serves CPU and CUDA tensors alike, and a rank waits
in it for as long as rank 0 waits for the store. The time-out of the ranks' group (10 minutes with
NCCL) would end such a wait.

A rank that fails while the others wait for its tensors cannot send them an error instead. It writes
the error to the store through which the ranks found each other, and closes its connection. Each other
rank then finds the connection closed, and raises the error from the store.

A rank that fails before its island is made writes the error to that store, too. The ranks connect only
when all have come, and until then they wait for that or for such an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import json
import pickle
from typing import (Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Type,
                    Union)

import torch

from . import _copies
from ._memory import OutOfMemoryError, is_full
from .errors import (BY_STATUS, DiffersError, Error, InvalidError, NoMemoryError, RefusedError,
                     UnreachableError)

_CONNECT = datetime.timedelta(minutes=10)  # for all ranks to make their optimizer
_WAIT = datetime.timedelta(days=30)  # for rank 0, which itself gives up after run.store_timeout

# Keys of the store: the number of ranks that are ready to connect; `_ALL`, or the error of a rank that
# failed before; the error that ended the island.
_READY, _CALLED, _ENDED = "ready", "called", "ended"
_ALL = "all"

_made: Dict[Tuple[int, ...], int] = {}  # number of the newest island, by ranks


def _next_store(ranks: Tuple[int, ...]) -> Any:
    """The store of the next island of these ranks. Every one of them counts its islands, also those
    that were not made."""
    dist = torch.distributed
    number = _made[ranks] = _made.get(ranks, -1) + 1
    return dist.PrefixStore(f"diloco/{'_'.join(map(str, ranks))}/{number}",
                            dist.distributed_c10d._get_default_store())


def _gather_at(store: Any, n: int) -> Optional[str]:
    """Wait until n ranks have come. Returns the error that one of them has written instead."""
    if store.add(_READY, 1) == n:
        store.compare_set(_CALLED, "", _ALL)
    store.wait([_CALLED], _CONNECT)
    text: str = store.get(_CALLED).decode()
    return None if text == _ALL else text


def _connected(ranks: Tuple[int, ...]) -> Tuple[Any, Any]:
    """A gloo connection between these ranks of the world, and a store of their own. Every one of them
    calls this, in the same order. RefusedError: torch has no gloo. UnreachableError: a rank did not
    call it. Or the error of a rank that has failed before (`preparing`)."""
    dist = torch.distributed
    if not dist.is_gloo_available():
        raise RefusedError("this torch was built without gloo, through which the ranks of an "
                           "island exchange: install a torch with gloo")
    store = _next_store(ranks)
    try:
        failed = _gather_at(store, len(ranks))
        if failed is None:
            return (dist.ProcessGroupGloo(store, ranks.index(dist.get_rank()), len(ranks),
                                          _CONNECT), store)
    except RuntimeError as error:
        raise UnreachableError(f"the {len(ranks)} ranks of an island did not find each other "
                               f"({_first_line(error)}): make the optimizer on each of ranks "
                               f"{', '.join(map(str, ranks))}, in the same order") from error
    raise _error_of(failed)


def _first_line(error: BaseException) -> str:
    text = str(error).partition("] ")[2] or str(error)
    return text.partition("\n")[0].partition(". This is typically")[0]


def as_bytes(t: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's memory as uint8, for gloo, which does not know every type."""
    return t.reshape(-1).view(torch.uint8)


class _Work(NamedTuple):
    """A message in flight."""

    work: Any
    rank: int  #: the other end
    room: torch.Tensor  #: kept alive until the message is complete
    then: Optional[Callable[[], Any]]  #: called after it


class _Asked(NamedTuple):
    """A message in place of a value: rank 0 needs something of the other ranks first."""

    what: Any


def _text_of(error: BaseException) -> str:
    """An error as it is written to the store."""
    return json.dumps([type(error).__name__, str(error)])


def _error_of(text: Union[str, bytes]) -> Error:
    """The error that a rank has written to the store, whose bytes are not to be executed."""
    try:
        name, words = json.loads(text)
        kinds: Dict[str, Type[Error]] = {kind.__name__: kind for kind in BY_STATUS.values()}
        kinds[OutOfMemoryError.__name__] = OutOfMemoryError
        return kinds.get(str(name), UnreachableError)(str(words))
    except (ValueError, TypeError):
        return UnreachableError("the island has ended with an error that cannot be read")


def _failure(error: BaseException, rank: int, size: int, way: str) -> Error:
    """The error of the other ranks after one of this rank."""
    kind = type(error) if isinstance(error, Error) else UnreachableError
    cause = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    return kind(f"rank {rank} of this island of {size} has failed ({cause}): {way}")


def _sendable(error: BaseException) -> BaseException:
    """The error itself, or its text where a pickle of it cannot be made or read."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:  # noqa: B902: whatever the caller's own exception raises there
        return RuntimeError(f"{type(error).__name__}: {error}")


class Island:
    """The ranks of one replica, by their numbers in the world. Without ranks there is one."""

    def __init__(self, ranks: Sequence[int] = (), group: Any = None) -> None:
        self.size, self.rank = max(1, len(ranks)), 0
        self.group = group  # of the caller's: for tensors that gloo would copy through the host
        self.boxes: Dict[Any, Any] = {}  # of shards, which `_shards` keeps here
        self._posts: List[Tuple[torch.Tensor, int]] = []  # to send, and the other end
        self._works: List[_Work] = []
        self._failed: Optional[BaseException] = None  # it has ended the island
        self._told: Optional[BaseException] = None  # the last one that all ranks have raised
        if self.size > 1:
            self.rank = list(ranks).index(torch.distributed.get_rank())
            self._gloo, self._store = _connected(tuple(ranks))

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def has_ended(self) -> bool:
        """A rank has failed or is lost: no call of this island succeeds any more."""
        return self._failed is not None

    # ---- messages of host memory ----

    @contextlib.contextmanager
    def _talking(self, rank: Optional[int]) -> Iterator[None]:
        """UnreachableError: the connection to the other rank (None: to one of them) is lost, now
        or before. Or the error of the rank that has ended the island."""
        if self._failed is not None:
            raise self._failed
        try:
            yield
        except RuntimeError as error:
            lost = UnreachableError(
                f"{'a rank' if rank is None else f'rank {rank}'} of this island of {self.size} has "
                "ended or cannot be reached "
                f"({_first_line(error)}): see that rank's own error, and start all ranks again; "
                "the replica resumes from what it saved last")
            raise self._end_with(lost) from error

    # ---- the end of an island ----

    def _end_with(self, error: Exception) -> BaseException:
        """Close the connection. Returns the error that the island ends with: the first one that a rank
        has written to the store."""
        self._failed = error
        with contextlib.suppress(RuntimeError):  # The store may have ended with its rank.
            self._failed = _error_of(self._store.compare_set(_ENDED, "", _text_of(error)))
        # gloo closes a connection when nothing refers to it. So no message is in a local variable,
        # which the traceback of an error would keep.
        self._gloo, self._works, self._posts = None, [], []
        return self._failed

    def _ended(self, error: BaseException) -> BaseException:
        """The error to raise on this rank, after one that the other ranks may not know. It ends the
        island."""
        if self.size == 1 or error in (self._told, self._failed):
            return error
        ended = self._end_with(_failure(
            error, self.rank, self.size,
            "start all ranks again; the replica resumes from what it saved last"))
        return ended if isinstance(error, Exception) else error

    def _named(self, error: BaseException) -> BaseException:
        """With this rank's number, if its memory is full."""
        if not is_full(error):
            return error
        kind = (type(error) if isinstance(error, NoMemoryError) else
                OutOfMemoryError if isinstance(error, RuntimeError) else NoMemoryError)
        return kind(f"rank {self.rank} of this island of {self.size}: {error}")

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """An exception in the body, on one rank, ends the island. It is raised on all ranks, with the
        number of the rank."""
        try:
            yield
        except BaseException as error:
            ended = self._ended(error)
            if ended is error:
                raise
            raise ended from error

    @contextlib.contextmanager
    def jointly(self) -> Iterator[None]:
        """As `ending`. No rank leaves the body before all have completed it."""
        with self.ending():
            yield
            self.together(lambda: None)

    def post(self, t: torch.Tensor, rank: int) -> None:
        """Send a contiguous tensor in host memory in `finish`, once its copies from the device are
        complete."""
        self._posts.append((t, rank))

    def expect(self, t: torch.Tensor, rank: int,
               then: Optional[Callable[[], Any]] = None) -> None:
        """Begin to receive into a contiguous tensor in host memory; `finish` completes it and then
        calls ``then``."""
        with self._talking(rank):
            room = as_bytes(t)
            self._works.append(_Work(self._gloo.recv([room], rank, 0), rank, room, then))

    def finish(self) -> None:
        """Complete the messages: wait for copies from the device once, send all, then wait."""
        posts, self._posts = self._posts, []
        if posts:
            _copies.queue.wait()
        for t, rank in posts:
            with self._talking(rank):
                room = as_bytes(t)
                self._works.append(_Work(self._gloo.send([room], rank, 0), rank, room, None))
        while self._works:
            with self._talking(self._works[0].rank):
                self._works[0].work.wait(_WAIT)
            then = self._works.pop(0).then
            if then:
                then()

    def _post(self, rank: int, value: Any) -> None:
        """Send any value. Does not need numpy, unlike torch's send_object_list."""
        text = pickle.dumps(_sendable(value) if isinstance(value, BaseException) else value)
        for t in (torch.tensor([len(text)]).view(torch.uint8),
                  torch.frombuffer(bytearray(text), dtype=torch.uint8)):
            self._gloo.send([t], rank, 0).wait(_WAIT)

    def _receive(self, rank: int) -> Any:
        with self._talking(rank):
            size = torch.zeros(1, dtype=torch.int64)
            self._gloo.recv([size.view(torch.uint8)], rank, 0).wait(_WAIT)
            room = torch.empty(int(size.item()), dtype=torch.uint8)
            self._gloo.recv([room], rank, 0).wait(_WAIT)
        return pickle.loads(ctypes.string_at(room.data_ptr(), room.numel()))

    @contextlib.contextmanager
    def asking(self, what: Any) -> Iterator[None]:
        """Rank 0, within `lead`: the other ranks call its ``helper`` while the body runs. An exception
        of one rank ends the island."""
        with self.ending():
            for rank in range(1, self.size):
                with self._talking(rank):
                    self._post(rank, _Asked(what))
            yield
            for rank in range(1, self.size):
                self._receive(rank)

    def _help(self, helper: Callable[[Any], None], what: Any) -> None:
        """Another rank: its part of `asking`."""
        with self.ending():
            helper(what)
            with self._talking(0):
                self._post(0, None)

    # ---- calls that all ranks make together ----

    def tell(self, value: Any, helper: Optional[Callable[[Any], None]] = None) -> Any:
        """Rank 0's value, on all ranks; an exception is raised on all of them. ``helper``: called
        by the other ranks, which wait for it, with what rank 0 asks for."""
        self.finish()
        if not self.leads:
            value = self._receive(0)
            while isinstance(value, _Asked) and helper is not None:
                self._help(helper, value.what)
                value = self._receive(0)
        for rank in range(1, self.size if self.leads else 0):
            with self._talking(rank):
                self._post(rank, value)
        if isinstance(value, BaseException):
            self._told = value
            raise value
        return value

    def gather(self, value: Any) -> List[Any]:
        """Every rank's value, by rank, on rank 0; on the others an empty list."""
        self.finish()
        if self.leads:
            return [value, *(self._receive(rank) for rank in range(1, self.size))]
        with self._talking(0):
            self._post(0, value)
        return []

    def lead(self, call: Callable[[], Any],
             helper: Optional[Callable[[Any], None]] = None) -> Any:
        """The result of ``call`` on rank 0, or its exception, on all ranks. ``helper``: see
        `tell`."""
        if self.size == 1:
            return call()
        value = None
        if self.leads:
            try:
                value = call()
            except BaseException as error:  # noqa: B902: raised again on every rank
                if self._failed is not None:  # They have it from the store.
                    raise
                value = self._named(error)
        return self.tell(value, helper)

    def together(self, call: Callable[[], Any]) -> Any:
        """The result of ``call`` on this rank. An exception of one rank is raised on all ranks."""
        if self.size == 1:
            return call()
        value = raised = None
        try:
            value = call()
        except Exception as error:  # noqa: B902: raised below
            raised = self._named(error)
        found = [e for e in self.gather(raised) if e is not None]
        self.tell(found[0] if found else None)
        return value

    def _meet(self) -> None:
        """No rank continues before all have come here."""
        options = torch.distributed.AllreduceOptions()
        options.timeout = _WAIT
        with self._talking(None):
            self._gloo.allreduce([torch.zeros(1)], options).wait()

    def _takes_group(self, t: torch.Tensor) -> bool:
        """Whether the caller's group carries it: gloo would copy it through host memory."""
        return t.is_cuda and self.group is not None

    def share(self, t: torch.Tensor, host: Optional[torch.Tensor] = None) -> None:
        """Rank 0's values, on all ranks. ``host``: rank 0's values in host memory, where it has
        them; then its copies to the device may be in flight."""
        if self.size == 1:
            return
        if self._takes_group(t):
            room = t.contiguous()
            self._meet()  # The group would wait for a rank that has failed, until its time-out.
            torch.distributed.broadcast(
                room, torch.distributed.get_global_rank(self.group, 0), group=self.group)
        else:
            room = t.cpu().contiguous() if host is None else host
            options = torch.distributed.BroadcastOptions()
            options.rootRank, options.rootTensor, options.timeout = 0, 0, _WAIT
            with self._talking(None if self.leads else 0):
                self._gloo.broadcast([as_bytes(room)], options).wait()
        if room is not t and room is not host:
            t.copy_(room)

    def check_equal(self, rows: Sequence[Tuple[str, str]]) -> None:
        """DiffersError, on all ranks: a rank has other tensors than rank 0. ``rows``: name and
        description."""
        def compare() -> None:
            for rank, theirs in enumerate(everyone):
                for number in range(max(len(rows), len(theirs))):
                    ours = " ".join(rows[number]) if number < len(rows) else "no tensor"
                    other = " ".join(theirs[number]) if number < len(theirs) else "no tensor"
                    if ours != other:
                        raise DiffersError(
                            f"the ranks of this island disagree on tensor {number}: rank 0 has "
                            f"{ours}, rank {rank} has {other}: make the same model on all ranks, or "
                            "pass pipeline=True where each rank has a stage of its own")
        if self.size == 1:
            return
        everyone = self.gather(list(rows))
        self.lead(compare)


def _members(tensors: Sequence[torch.Tensor], group: Any) -> Tuple[Sequence[int], Any]:
    """The ranks of an island, and their process group where it is known. Errors are those of
    `island_of`."""
    meshes = _meshes(tensors)
    if group is not None and hasattr(group, "mesh"):  # a DeviceMesh
        ranks, group = _ranks_of(group), group.get_group() if group.ndim == 1 else None
    elif group is not None:
        ranks = sorted(torch.distributed.get_process_group_ranks(group))
    elif meshes:
        ranks = max((_ranks_of(m) for m in meshes), key=len)
    else:
        return (), None
    for mesh in meshes:
        if not set(_ranks_of(mesh)) <= set(ranks):
            raise RefusedError(f"a parameter is on the device mesh of ranks {_ranks_of(mesh)}, and "
                               f"this replica has ranks {ranks}: pass group=, a device mesh or "
                               "process group with all ranks of the replica")
    if torch.distributed.get_rank() not in ranks:
        raise InvalidError(f"this is rank {torch.distributed.get_rank()}, which is not in the "
                           f"group {ranks} of its replica: pass the group that it is in")
    return ranks, group


def island_of(tensors: Sequence[torch.Tensor], group: Any = None) -> Island:
    """The ranks of ``group`` (a process group, or a device mesh), else of the largest mesh that a
    DTensor is on. RefusedError: a mesh has ranks outside of it."""
    return Island(*_members(tensors, group))


@contextlib.contextmanager
def preparing(tensors: Callable[[], Sequence[torch.Tensor]], group: Any) -> Iterator[None]:
    """An exception in the body, before this rank makes its island, is raised on the other ranks as
    well, where they make theirs. ``tensors``, ``group``: as of `island_of`. If ``tensors`` raises,
    the ranks are those of ``group``."""
    made = dict(_made)
    try:
        yield
    except BaseException as error:
        if _made == made:
            with contextlib.suppress(Exception):  # The error of the body is the one to raise.
                _refuse(error, tensors, group)
        raise


def _refuse(error: BaseException, tensors: Callable[[], Sequence[torch.Tensor]],
            group: Any) -> None:
    """The next island of these ranks is not made."""
    found: Sequence[torch.Tensor] = []
    with contextlib.suppress(Exception):
        found = tensors()
    ranks = tuple(_members(found, group)[0])
    if len(ranks) > 1:
        rank = ranks.index(torch.distributed.get_rank())
        _next_store(ranks).compare_set(_CALLED, "", _text_of(_failure(
            error, rank, len(ranks), "make the optimizer on all ranks again")))


def _meshes(tensors: Sequence[torch.Tensor]) -> List[Any]:
    found: List[Any] = []
    for t in tensors:
        mesh = getattr(t, "device_mesh", None)
        if mesh is not None and not any(mesh is m for m in found):
            found.append(mesh)
    return found


def _ranks_of(mesh: Any) -> List[int]:
    return sorted(int(r) for r in mesh.mesh.flatten().tolist())
