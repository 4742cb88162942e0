"""Torch tensors bound to a run: the one core under the optimizer and the callbacks.

A contiguous tensor in the CPU's memory is the run's own: the library reads and overwrites it in
place. Of any other one that can take part the library has the values in host memory (`_mirrors`).

Invariants: 1. Between two stops of the run there is no copy and no message between ranks. A stop
copies the fragments that are due there, and all where it saves.
2. Only rank 0 of an island has a run. The others help it at each stop, and learn when the next is.
3. The library has the inner optimizer's state packed where it saves it, during a stop, so that
a resume is bitwise. A stop that saves nothing packs nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from typing import (Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional,
                    Sequence, Tuple, Union)

import torch

from . import _agree, _copies
from ._base import check_frozen, check_some, register, split
from ._c import DTYPES
from ._guards import Unique
from ._island import Island, island_of
from ._memory import needs
from ._mirrors import Direct, Member, Mirrors, alone, bound, one_kind
from ._run import Memory, Run
from ._shards import Staged, check_placement, is_sharded
from ._survival import Survival
from .errors import ClosedError, Interrupted, InvalidError, RefusedError

_DTYPES = {getattr(torch, name): name for name in DTYPES}


# ---- permitted tensors ---------------------------------------------------------------------


def with_elements(tensors: Iterable[Tuple[str, Any]]) -> List[Tuple[str, Any]]:
    """Without the tensors of no elements, of which there is nothing to exchange."""
    return [(name, t) for name, t in tensors if t.numel()]


def check_tensor(name: str, t: torch.Tensor) -> None:
    """InvalidError, RefusedError: why a tensor cannot be bound, and what to do."""
    if t.is_meta:
        raise InvalidError(f"{name} is on the meta device and has no values: materialize the "
                           "model first (to_empty, load_state_dict)")
    if t.layout != torch.strided:
        raise RefusedError(f"{name} is sparse ({t.layout}): only dense tensors are synchronised")
    if t.dtype not in _DTYPES:
        raise RefusedError(f"{name} is {str(t.dtype)[6:]}: a tensor is one of "
                           f"{', '.join(DTYPES)}")
    if not is_dense(t.to_local() if is_sharded(t) else t):
        raise InvalidError(f"{name} is not contiguous (strides {tuple(t.stride())}): replace it "
                           "by its .contiguous() before the optimizer is made")
    if t.device.type not in ("cpu", "cuda"):
        raise RefusedError(f"{name} is on {t.device}: only CPU and CUDA tensors are bound")
    if t.numel() == 0:
        raise InvalidError(f"{name} has no elements")
    if is_sharded(t):
        check_placement(name, t)


def is_dense(t: torch.Tensor) -> bool:
    """Its elements fill their memory, in whatever order (channels_last, a transposed matrix)."""
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.shape)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def check_whole(tensors: Iterable[Tuple[str, torch.Tensor]]) -> None:
    """RefusedError, on every rank: FSDP1's, whose ranks have shards that look like whole
    tensors."""
    for name, t in tensors:
        if getattr(t, "_is_flat_param", False) or getattr(t, "_fsdp_flattened", False):
            raise RefusedError(f"{name} belongs to FullyShardedDataParallel (FSDP1), whose shards "
                               "would be taken for the whole model and lost: shard the model with "
                               "torch.distributed.fsdp.fully_shard (FSDP2) instead")


# ---- one tensor -----------------------------------------------------------------------------


def memory_of(t: torch.Tensor) -> Memory:
    return Memory(t.data_ptr(), _DTYPES[t.dtype], tuple(t.shape), t)


def bytes_of(t: torch.Tensor) -> Memory:
    """A uint8 tensor's memory. Does not need numpy, unlike ``t.numpy()``."""
    return Memory(t.data_ptr(), "bool", tuple(t.shape), t)


def filler(name: str, piece: Any, island: Island) -> Callable[[int], None]:
    """A function that packs a private piece to the address from which the library saves it. All
    ranks take part. It keeps no reference to the run."""
    size = piece.room().numel()

    def fill(address: int) -> None:
        place = (ctypes.c_ubyte * size).from_address(address)
        with island.asking(name), needs(lambda: f"save {name}"):
            piece.pack(torch.frombuffer(place, dtype=torch.uint8))
    return fill


Row = Tuple[str, str, torch.Tensor]  # name, role, tensor


def _like(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=dtype, device="meta")


def members_of(rows: Sequence[Row], island: Island, pipeline: bool) -> List[Member]:
    """DiffersError: ranks of one island have other tensors, and it is no pipeline."""
    if pipeline:
        return _stages(rows, island)
    island.check_equal([(name, f"{str(t.dtype)[6:]} {list(t.shape)}") for name, _, t in rows])
    return one_kind([Member(name, role, _like(t.shape, t.dtype), bound(name, t, island))
                     for name, role, t in rows])


def _stages(rows: Sequence[Row], island: Island) -> List[Member]:
    """The tensors of every rank, whose names begin with the rank's number."""
    every = island.gather([(name, role, tuple(t.shape), t.dtype) for name, role, t in rows])
    members = []
    for rank, stage in enumerate(island.tell(every)):
        for number, (name, role, shape, dtype) in enumerate(stage):
            mine = rows[number][2] if rank == island.rank else None
            place = (alone(mine) if mine is not None and island.leads else
                     Staged(mine, rank, island))
            members.append(Member(f"stage{rank}.{name}", role, _like(shape, dtype), place))
    return one_kind(members)


def check_stage(rows: Sequence[Row], base: Sequence[Tuple[str, Any]], island: Island,
                fragments: Any) -> None:
    """InvalidError, RefusedError: pipeline=True does not fit the other arguments."""
    if island.size == 1:
        raise InvalidError("pipeline=True needs group=, the ranks that have a stage each")
    for name, _, t in rows:
        if is_sharded(t):
            raise RefusedError(f"{name} is sharded, and pipeline=True takes stages that one rank "
                               "has whole: leave out FSDP and tensor parallelism in the stages")
    if base:
        raise RefusedError(f"{base[0][0]} is frozen, and the stages of a pipeline are compared with "
                           "no base: pass exchange=\"all\"")
    if isinstance(fragments, (list, tuple)):
        raise InvalidError("fragments of a pipeline are a number, since no rank has all modules")


# ---- fragments ------------------------------------------------------------------------------

Fragments = Union[None, int, Sequence[Any]]


def fragment_numbers(tensors: Sequence[Tuple[str, torch.Tensor]],
                     fragments: Sequence[Any]) -> List[int]:
    """The fragment of each tensor. ``fragments``: modules, or collections of tensors, which have
    to cover all."""
    owner: Dict[int, int] = {}
    for number, part in enumerate(fragments):
        members = ([*part.parameters(), *part.buffers()] if hasattr(part, "parameters")
                   else list(part))
        for t in members:
            if owner.setdefault(id(t), number) != number:
                raise InvalidError(f"a tensor is in fragments {owner[id(t)]} and {number}")
    for name, t in tensors:
        if id(t) not in owner:
            raise InvalidError(f"{name} is in no fragment: every tensor belongs to one")
    return [owner[id(t)] for _, t in tensors]


def check_filled(numbers: Sequence[int], fragments: Any) -> None:
    """InvalidError: a fragment that the caller gave has no tensor that is exchanged."""
    for number in range(len(fragments) if isinstance(fragments, (list, tuple)) else 0):
        if number not in numbers:
            raise InvalidError(f"fragment {number} has no tensor that is exchanged (its parameters "
                               "are frozen): join it with another fragment, or take "
                               "exchange=\"all\"")


def balanced(sizes: Sequence[int], n: int) -> List[int]:
    """The fragment of each tensor: n runs of neighbours, of about equal size."""
    if not 1 <= n <= len(sizes):
        raise InvalidError(f"{n} fragments of {len(sizes)} tensors: at least 1, and no empty one")
    total, before = sum(sizes), 0
    numbers: List[int] = []
    for i, size in enumerate(sizes):
        middle = min(n - 1, int((before + size / 2) * n / max(total, 1)))
        lowest = max(numbers[-1] if numbers else 0, n - (len(sizes) - i))
        highest = numbers[-1] + 1 if numbers else 0
        numbers.append(min(max(middle, lowest), highest))
        before += size
    return numbers


def fragments_of(run: Run) -> int:
    """How many the run has, or is to have."""
    n = int(run.setting("server.diloco.fragments"))
    if n == 0:
        raise InvalidError("server.diloco.fragments = 0 takes layers of a model that the program "
                           "knows: say how many fragments, or which parts they are")
    return n


# ---- a model bound to a run -----------------------------------------------------------------


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The model inside torch.compile's and DistributedDataParallel's modules."""
    parallel = torch.nn.parallel
    while True:
        if hasattr(module, "_orig_mod"):
            module = module._orig_mod  # type: ignore[assignment]
        elif isinstance(module, (parallel.DistributedDataParallel, parallel.DataParallel)):
            module = module.module
        else:
            return module


def plain_name(name: str) -> str:
    """A tensor's name in a model of which no part is compiled, so that replicas may differ."""
    return name.replace("_orig_mod.", "")


def named_parameters(module: torch.nn.Module) -> List[Tuple[str, torch.Tensor]]:
    return [(plain_name(n), p) for n, p in unwrapped(module).named_parameters()]


def named_buffers(module: torch.nn.Module) -> List[Tuple[str, torch.Tensor]]:
    return [(plain_name(n), b) for n, b in unwrapped(module).named_buffers()]


def plain_pairs(items: Sequence[Tuple[str, Any]]) -> List[Tuple[str, Any]]:
    """Of a wrapped model's named_parameters(), too."""
    names = [plain_name(name) for name, _ in items]
    if all(name.startswith("module.") for name in names):
        names = [name[len("module."):] for name in names]
    return [(name, t) for name, (_, t) in zip(names, items)]


def named_tensors(source: Any) -> Tuple[List[Tuple[str, torch.Tensor]],
                                        List[Tuple[str, torch.Tensor]]]:
    """(parameters, buffers) by name of a module, of (name, tensor) pairs, of tensors, or of an
    optimizer's groups. A module's buffers take part where they are in its state_dict."""
    if isinstance(source, torch.nn.Module):
        kept = {plain_name(n) for n in unwrapped(source).state_dict(keep_vars=True)}
        return (named_parameters(source),
                [(n, b) for n, b in named_buffers(source) if n in kept])
    items = list(source)
    if items and isinstance(items[0], tuple):
        items = plain_pairs(items)
    if items and isinstance(items[0], dict):
        items = [p for group in items for p in group["params"]]
    if items and not isinstance(items[0], tuple):
        items = [(f"p{i}", p) for i, p in enumerate(items)]
    if not items:
        raise InvalidError("no parameters: there is nothing to train")
    return items, []


_COUNT, _EXCHANGE = "the count of a step", "the exchange of the last step"
_ADOPTION = "an adoption of the shared model"


class Step(NamedTuple):
    """A step that the run has not counted yet, because its loss is still on the device."""

    loss: _copies.Loss
    samples: int
    tokens: int


class Binding(Unique):
    """Parameters, buffers and an inner optimizer, bound to a run and joined to it.

    ``run``: a Run that is not joined yet, or what opens one (called on rank 0 only).
    ``group``: of ranks that hold the same parameters, as one replica; DTensors have their own.
    ``pipeline``: each rank of the group has a stage of its own.
    ``private``: pieces with ``room()`` (a uint8 tensor), ``pack(room)`` and ``unpack()``.
    ``tensors_now``: the model's parameters and buffers by name as they are when it is called;
    empty: there is no module.
    ``exchange``, ``facts``: see `_base`. ``agreed``: see `_agree`.
    """

    def __init__(self, run: Union[Run, Callable[[], Run]], parameters: Sequence[Tuple[str, Any]],
                 buffers: Sequence[Tuple[str, Any]] = (), *, fragments: Fragments = None,
                 private: Callable[[Island], Mapping[str, Any]] = lambda island: {},
                 tensors_now: Callable[[], Mapping[str, Any]] = dict, group: Any = None,
                 optimizer: str = "optimizer", exchange: Optional[str] = None,
                 facts: Sequence[Tuple[str, str]] = (), pipeline: bool = False,
                 agreed: Optional[Mapping[str, _agree.Fact]] = None) -> None:
        exchanged, self._base = split(parameters, exchange)
        check_whole([*parameters, *buffers])
        self.island = island_of([t for _, t in [*parameters, *buffers]], group)
        self._tensors_now = tensors_now
        self._run: Optional[Run] = None
        self._uncounted: List[Step] = []
        self._may_defer = not isinstance(run, Run)  # else the caller may read it.
        self._until = 0  # steps before the next stop, from the last one
        self._steps = 0  # since the last stop
        self.done = False  # the run has ended, and the tensors are the shared model
        self._unfinished = self._way = ""  # see `_finishing`.
        self._closed = False
        self._waits = False  # Only a wait was interrupted, so the model is whole.
        self._former = ("", "", False)  # the three before an adoption that has not ended
        exchanged, buffers = with_elements(exchanged), with_elements(buffers)
        rows: List[Row] = [
            *((name, "parameter" if t.requires_grad else "frozen", t) for name, t in exchanged),
            *((name, "buffer", t) for name, t in buffers)]

        def check() -> None:
            for name, t in [*(exchanged or parameters), *buffers]:
                check_tensor(name, t)
            check_some(exchanged)
            if pipeline:
                check_stage(rows, self._base, self.island, fragments)
        try:
            with self.island.jointly():
                self.island.together(check)
                self._compare(rows, agreed or {}, pipeline)
                with needs(lambda: "keep the private state in host memory"):
                    self._private = private(self.island)
                self._survival = Survival([t for _, t in exchanged if t.requires_grad], optimizer)
                self._open(run, rows, fragments, facts)
                self._join()
        except BaseException:
            if self._run is not None and self._run is not run:
                self._run.close()  # the error's traceback would keep it
            raise

    def _compare(self, rows: Sequence[Row], agreed: Mapping[str, _agree.Fact],
                 pipeline: bool) -> None:
        """DiffersError, on all ranks: they have other tensors or arguments."""
        self._places = [(name, t, None if is_sharded(t) else t.data_ptr()) for name, _, t in rows]
        everyone = self.island.gather(dict(agreed))
        self.island.lead(lambda: _agree.check_messages(everyone))
        self._members = members_of(rows, self.island, pipeline)
        self.island.lead(lambda: _agree.check(everyone))

    def _open(self, run: Union[Run, Callable[[], Run]], rows: Sequence[Row], fragments: Fragments,
              facts: Sequence[Tuple[str, str]]) -> None:
        """Rank 0's run, with all that is registered before the join."""
        def open_run() -> List[int]:
            self._run = run if isinstance(run, Run) else run()
            count = fragments or fragments_of(self._run)
            numbers = (balanced([m.like.numel() for m in self._members], count)
                       if isinstance(count, int) else
                       fragment_numbers([(name, t) for name, _, t in rows], count))
            check_filled(numbers, fragments)
            return numbers
        numbers = self.island.lead(open_run)
        self._mirrors = Mirrors(self._members, numbers, self.island)
        self.island.lead(lambda: self._register(numbers))
        with needs(lambda: "compare the frozen parameters with the run's"):
            register(self._run, self.island, self._base, facts)

    def _register(self, fragments: Sequence[int]) -> None:
        """The members and private pieces with rank 0's run, in their order."""
        assert self._run is not None
        mirrored = False
        for number, (m, fragment) in enumerate(zip(self._members, fragments)):
            if isinstance(m.bound, Direct):
                memory = memory_of(m.bound.tensor.detach())
            else:
                memory = Memory(number + 1, _DTYPES[m.like.dtype], tuple(m.like.shape), m.bound)
                if not mirrored:
                    self._run.device(self._mirrors)
                mirrored = True
            self._run.tensor(m.name, memory, role=m.role, fragment=fragment)
        if mirrored:
            self._run.device(None)
        for name, piece in self._private.items():
            self._run.private(name, bytes_of(piece.room()), filler(name, piece, self.island))

    @property
    def run(self) -> Run:
        """Rank 0's run, with all steps counted. InvalidError: another rank of an island has no
        run."""
        if self._run is None:
            raise InvalidError("only rank 0 of an island of ranks has the run")
        self._count(wait=True)
        return self._run

    def _count(self, wait: bool) -> None:
        """Let the run count steps in their order; without ``wait`` up to the first whose loss is
        still on the device."""
        while self._run and self._uncounted and (wait or self._uncounted[0].loss.is_here()):
            step = self._uncounted.pop(0)
            self._run.step(step.loss.value(), step.samples, step.tokens)

    def _join(self) -> None:
        def join() -> bool:
            self.run.join()
            return self.run.now.resumed
        self.resumed = self.island.lead(join, self._help)
        self._changed()
        for name, piece in self._private.items() if self.resumed else ():
            with self.island.jointly(), needs(lambda: f"restore {name}"):  # noqa: B023: called here
                piece.unpack()
        self._look_ahead()

    def _look_ahead(self) -> None:
        def look() -> Tuple[int, bool, bool]:
            now = self.run.now
            return now.next_stop - now.position, self.run.done, self._survival.is_due
        self._until, done, self._has_adopted = self.island.lead(look)
        if done:  # fragments other than the last have trained on since they were adopted
            self.adopt()
        self.done = done

    def _check_places(self) -> None:
        """InvalidError: a tensor is no longer the one that was bound, or has other memory, so that
        the run would read and write memory outside the model. FSDP replaces shards itself."""
        check_frozen(self._base)
        now = self._tensors_now()
        for name, t, pointer in self._places:
            is_whole = pointer is not None and isinstance(t, torch.nn.Parameter)
            if is_whole and now and now.get(name) is not t:
                raise InvalidError(f"{name} of the model is another tensor than the one that the run "
                                   "has (load_state_dict with assign=True, or a tied or replaced "
                                   "parameter): replace it before the optimizer is made, or copy_ "
                                   "the values into it")
            is_other = not isinstance(t, torch.nn.Parameter) and now.get(name, t) is not t
            if is_other or pointer not in (None, t.data_ptr()):
                raise InvalidError(f"{name} has moved to other memory since it was bound: change "
                                   "it in place (copy_, add_), and move the model (.to, .data = "
                                   "…) before")

    def _changed(self) -> None:
        """The library may have overwritten tensors."""
        for m in self._members:
            if isinstance(m.bound, Direct):
                m.bound.changed()

    def _help(self, asked: Any) -> None:
        """Rank 0 packs a private piece, or copies tensors, and needs this rank's part of it."""
        if isinstance(asked, str):
            with needs(lambda: f"save {asked}"):
                self._private[asked].pack()
        else:
            self._mirrors.help(asked)

    def check_open(self) -> None:
        """InvalidError: the run has ended, or `InnerState.check`. ClosedError. Before an inner step, so that the tensors
        stay its result."""
        if self.done:
            raise InvalidError("the run has ended, and a step of this replica alone does not count "
                               "in it: stop when `done` is true")
        self._check_closed()
        if "torch.optimizer" in self._private:
            self._private["torch.optimizer"].check()
        self._check_finished()

    def _check_closed(self) -> None:
        alone = self._run if self.island.size == 1 else None  # which its caller may have closed
        if self._closed or alone is not None and alone.is_closed:
            raise ClosedError("the run is closed: make a new optimizer, which resumes from what "
                              "was saved last")

    def _check_finished(self) -> None:
        """InvalidError: an exchange or an adoption was not completed, so that the tensors may be
        partly the shared model."""
        has_ended = self.island.has_ended
        failed = ("this island of ranks has ended by an error" if has_ended else
                  "a copy of the model was not completed" if self._mirrors.failed else "")
        if failed or self._unfinished:
            what = failed if has_ended else self._unfinished or failed  # the same on all ranks
            raise InvalidError(f"{what}: {'' if failed else self._way}close this replica and start "
                               "it again; it resumes from what it saved last")

    @contextlib.contextmanager
    def _finishing(self, what: str, way: str = "") -> Iterator[None]:
        """Until the body has ended without an error, no step is counted and nothing is saved:
        ``_unfinished`` says why. ``way``: how to complete it after an error."""
        self._unfinished = f"{what} is in progress"
        try:
            with needs(lambda: f"complete {what}"):
                yield
        except BaseException as error:
            self._unfinished, self._way = f"{what} was ended by {type(error).__name__}", way
            raise
        self._unfinished = ""

    def adopt(self) -> None:
        """The tensors become the shared model as it now is. Steps since their last exchange are
        lost. After an error it may be called again. A count or an exchange that was not completed
        before it stays so. ClosedError."""
        self._check_closed()
        failed = self._mirrors.failed
        if not self._unfinished.startswith(_ADOPTION):
            self._former = (self._unfinished, self._way, self._waits)
        self._waits = False
        try:
            with self._finishing(_ADOPTION, "call adopt() once more, or "):
                self.island.lead(self._adopt, self._help)
        finally:
            self._mirrors.failed = failed  # the library made none of these copies
        self._unfinished, self._way, self._waits = self._former
        self._changed()

    def _adopt(self) -> None:
        """Rank 0. The library writes the whole model, in pieces of a fragment where that needs
        memory of its own."""
        mirrors, members = self._mirrors, self._members
        places = {m.name: memory_of(m.bound.tensor.detach()) for m in members
                  if isinstance(m.bound, Direct)}
        self.run.theta_into(places)
        for group in mirrors.groups(mirrors.numbers):
            hosts = {n: _copies.new_host(members[n].like) for n in group}
            self.run.theta_into({members[n].name: memory_of(t) for n, t in hosts.items()})
            mirrors.lead("up", group, hosts)

    def step(self, loss: Any = math.nan, samples: int = 1, tokens: int = 0) -> bool:
        """One optimizer step is complete on all ranks; True where the model was exchanged or
        adopted. ``loss``: a number, or a tensor of one, which a step between two stops does not
        wait for. Raises what Run.step does."""
        self.check_open()
        if self._has_adopted:
            self._has_adopted = False
            with self._finishing(_COUNT):
                self.island.lead(self._survival.check)
        self._until -= 1
        self._steps += 1
        if self._until > 0:
            if self._run is not None:
                with self.island.ending(), self._finishing(_COUNT):
                    self._uncounted.append(Step(self._loss(loss), samples, tokens))
                    self._count(wait=not self._may_defer)
            return False
        here = self.island.together(lambda: self._before_stop(loss))
        self._finish(lambda: self.run.step(here.value(), samples, tokens))
        return True

    @staticmethod
    def _loss(loss: Any) -> _copies.Loss:
        with needs(lambda: "copy the loss to host memory"):
            return _copies.queue.loss(loss)

    def _before_stop(self, loss: Any) -> Optional[_copies.Loss]:
        """Rank 0: the loss of the step."""
        self._check_places()
        if not self.island.leads:
            return None
        with self.island.ending(), self._finishing(_COUNT):
            self._survival.before(self._steps)
            return self._loss(loss)

    def wait(self) -> None:
        """Continue a step that was interrupted. InvalidError: something else was not completed."""
        def check() -> None:
            if not self._unfinished.startswith(_EXCHANGE):
                self._check_finished()
        self.island.together(check)
        self._finish(lambda: self.run.wait())

    def _finish(self, call: Callable[[], None]) -> None:
        self._waits = False
        with self._finishing(_EXCHANGE, "call binding.wait(), or "):
            def advance() -> None:
                call()
                self._changed()
                self._survival.after()
            try:
                self.island.lead(advance, self._help)
            except (Interrupted, KeyboardInterrupt):
                self._waits = not self._mirrors.failed
                raise
            self._steps = 0
            self._look_ahead()

    def restore_generators(self) -> None:
        """The random generators as they were when this replica was saved, if it was resumed."""
        if self.resumed and "torch.generators" in self._private:
            self._private["torch.generators"].unpack()

    def save(self) -> None:
        """Save what a resume needs, as it is now: the model and the inner state."""
        if not self._waits:
            self._check_finished()
        self.island.together(self._check_places)
        with needs(lambda: "save this replica"):
            self.island.lead(lambda: self.run.save(), self._help)

    def leave(self) -> None:
        self.island.lead(lambda: self.run.leave())

    def close(self) -> None:
        self._closed = True
        if self._run is not None:
            self._run.close()
        self._mirrors.close()
