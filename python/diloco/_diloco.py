"""`DiLoCo`: torchft's context manager of that name, over the C loop or over a run.

With a manager (any object with the methods of torchft's): theta and the outer state are the C
loop's, in host memory; the manager's functions are its communicator. A float32 parameter in the
CPU's memory is read and written in place. Another one (bfloat16, float16, CUDA, the local shard of
a DTensor) passes in chunks through a staging buffer, pinned for CUDA, on the current stream. With a
run: the tensors are bound to it as for `DiLoCoOptimizer`.

Either way ``inner_optimizer.step()`` is hooked, and all else happens after it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import sys
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ._base import take_mode
from ._config import Config
from ._loop import Exchange, Loop, OuterStep, Reduce
from ._memory import needs
from ._place import Place, StagedCopies, places_of
from ._run import Run
from ._guards import Unique, bare, check_two, claim, release
from ._state import all_parameters, check_trains, pieces
from ._shards import is_sharded
from ._survival import suspect
from ._torch import Binding, named_parameters
from .errors import InvalidError, RefusedError

Outer = Union[None, str, Mapping[str, Any], torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]

_BUCKET_MB = 1024  # torchft's


def _floats(pointer: int, n: int, owner: Any = None) -> torch.Tensor:
    """The library's memory as a tensor of n float32, which keeps ``owner`` alive."""
    kind = type("Floats", (ctypes.Array,), {"_type_": ctypes.c_float, "_length_": n})
    memory = kind.from_address(pointer)  # type: ignore[attr-defined]
    memory.owner = owner
    return torch.frombuffer(memory, dtype=torch.float32)


# ---- the manager as an exchange -------------------------------------------------------------


class _Back:
    """An all-reduce on a device: its result comes back to the loop's memory."""

    def __init__(self, work: Any, sent: torch.Tensor, home: torch.Tensor) -> None:
        self._work, self._sent, self._home = work, sent, home

    def wait(self) -> None:
        self._work.wait()
        self._home.copy_(self._sent)


class _ManagerExchange(Exchange):
    """torchft's manager. It keeps errors of its all-reduces to itself and votes no."""

    def __init__(self, manager: Any, places: Sequence[Sequence[Place]],
                 fingerprint: Optional[Callable[[], torch.Tensor]]) -> None:
        self._manager, self._places = manager, places
        self._fingerprint = fingerprint  # None: the starts are not compared
        self._mine: Optional[torch.Tensor] = None  # to be compared
        self._comparing: Optional[Tuple[Any, torch.Tensor, torch.Tensor]] = None  # in flight
        self.voted = False  # since this was last set: parameters are overwritten after a vote

    def all_reduce(self, reduce: Reduce) -> Any:
        self._begin_comparing()
        home = _floats(reduce.pointer, reduce.n)
        row = self._places[reduce.fragment]
        place = row[0] if reduce.tensor is None else row[reduce.part]
        if reduce.tensor is not None:
            home = home.view(place.shape)
        if place.device.type == "cpu":
            return self._manager.allreduce(home, should_quantize=reduce.quantize)
        sent = home.to(place.device)
        work = self._manager.allreduce(sent, should_quantize=reduce.quantize)
        return _Back(work, sent, home)

    def _check(self) -> None:
        for row in self._places:
            for place in row:
                place.check()

    def start_quorum(self) -> int:
        self._manager.start_quorum()
        self._check()
        entry = int(self._manager.current_step())
        self._mine = self._fingerprint() if entry == 0 and self._fingerprint else None
        return entry

    def _begin_comparing(self) -> None:
        """With the first all-reduce of entry 0, so that what it raises is treated alike."""
        if self._mine is None:
            return
        mine, self._mine = self._mine, None
        mean = mine.to(self._places[0][0].device).clone()
        self._comparing = self._manager.allreduce(mean, should_quantize=False), mean, mine

    def _compare_starts(self) -> None:
        """InvalidError, on all replicas: they begin from different parameters. A mean of equal
        small integers is exact. An all-reduce that failed votes no by itself."""
        if self._comparing is None:
            return
        (work, mean, mine), self._comparing = self._comparing, None
        work.wait()
        errored = getattr(self._manager, "errored", lambda: None)()
        if errored is None and not torch.equal(mean.cpu(), mine):
            raise InvalidError("the replicas begin from different parameters, and would never "
                               "become equal: load the same weights or set the same seed on each, "
                               "or make the manager bring them to one state (torchft: "
                               "init_sync=True)")

    def should_commit(self, well: bool) -> bool:
        self._compare_starts()
        self._check()
        self.voted = True
        if not well and hasattr(self._manager, "report_error"):
            self._manager.report_error(RuntimeError("the outer loop cannot commit this entry"))
        return bool(self._manager.should_commit())


# ---- outer optimizers -----------------------------------------------------------------------


class _TorchOuter:
    """The caller's optimizers: one ``step`` for each committed fragment, with the parameters at
    theta and the mean of theta - local as their gradients. Other gradients are cleared, since
    those of the last inner step are no business of an outer optimizer."""

    def __init__(self, places: Sequence[Sequence[Place]],
                 optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._places, self.optimizers = places, optimizers
        self.failed = False  # the other replicas have taken a step that this one has not

    def __call__(self, step: OuterStep) -> None:
        failed, self.failed = self.failed, True
        with needs(lambda: f"take the outer step of fragment {step.fragment}"):
            self._step(step)
        self.failed = failed

    def _step(self, step: OuterStep) -> None:
        optimizer = self.optimizers[step.fragment]
        theta, g = _floats(step.theta, step.n), _floats(step.g, step.n)
        locals_ = [self._enter(place, theta) for place in self._places[step.fragment]]
        try:
            optimizer.zero_grad()
            for place in self._places[step.fragment]:
                place.parameter.grad = place.like(place.part(g))
            optimizer.step()
        finally:
            for place, local in zip(self._places[step.fragment], locals_):
                self._leave(place, theta, local)
            optimizer.zero_grad()

    @staticmethod
    def _enter(place: Place, theta: torch.Tensor) -> torch.Tensor:
        """The parameter is theta: in the loop's own memory where it can be, else by a copy. Returns a
        function that brings it back."""
        if place.direct and not is_sharded(place.parameter):
            before = place.parameter.data
            place.parameter.data = place.part(theta)
            return before
        before = place.local().clone()
        with torch.no_grad():
            place.local().copy_(place.part(theta))
        return before

    @staticmethod
    def _leave(place: Place, theta: torch.Tensor, before: torch.Tensor) -> None:
        if place.direct and not is_sharded(place.parameter):
            place.parameter.data = before
            return
        with torch.no_grad():
            place.part(theta).copy_(place.local())
            place.local().copy_(before)


def _options_of(outer: Union[str, Mapping[str, Any]]) -> Dict[str, Any]:
    """One of the library's own, as options of `Config`."""
    return {"outer_optimizer": outer} if isinstance(outer, str) else dict(outer)


def _run_options(outer: Any) -> Dict[str, Any]:
    """As keywords of `Run`."""
    if outer is None:
        return {}
    return _options_of(outer) if _is_ours(outer) else {"outer_optimizer": outer}


def _is_ours(outer: Any) -> bool:
    return outer is None or isinstance(outer, (str, Mapping))


# ---- over a manager -------------------------------------------------------------------------


class _Fragment:
    """One fragment: its shared values, and its outer state for checkpoints."""

    def __init__(self, loop: Loop, number: int, places: Sequence[Place],
                 optimizer: Optional[torch.optim.Optimizer]) -> None:
        view, self._loop = loop.view(number), loop
        self._places, self._optimizer, self._commits = places, optimizer, view.commits
        #: theta, by name, in the loop's own memory
        self.original_parameters = self._named(view.theta, view.n)
        self._vectors = {v: self._named(at, view.n) for v, at in view.vectors.items()}

    def _named(self, pointer: int, n: int) -> Dict[str, torch.Tensor]:
        whole = _floats(pointer, n, self._loop)
        return {place.name: place.part(whole) for place in self._places}

    def state_dict(self) -> Dict[str, Any]:
        """Copies: "original_parameters", and "outer_optimizer": the caller's own state_dict, or
        the vectors by name and the number of commits."""
        outer = self._optimizer.state_dict() if self._optimizer else {
            "vectors": {v: {n: t.clone() for n, t in named.items()}
                        for v, named in self._vectors.items()}}
        return {"original_parameters": {n: t.clone() for n, t in self.original_parameters.items()},
                "outer_optimizer": outer, "commits": self._commits[0]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """InvalidError: not of these parameters."""
        theta, outer = state["original_parameters"], state["outer_optimizer"]
        vectors = self._vectors if not self._optimizer else {}
        pairs = [(self.original_parameters, theta),
                 *((named, outer.get("vectors", {}).get(v, {})) for v, named in vectors.items())]
        for ours, theirs in pairs:
            if {n: t.shape for n, t in ours.items()} != {n: t.shape for n, t in theirs.items()}:
                raise InvalidError("this state is of other parameters or another outer optimizer")
        if self._optimizer:
            self._optimizer.load_state_dict(outer)
        for ours, theirs in pairs:
            for name, tensor in ours.items():
                tensor.copy_(theirs[name])
        self._commits[0] = state.get("commits", self._commits[0])


def _makes_starts_equal(manager: Any) -> bool:
    """A Manager of torchft gives all replicas the state of one at the first quorum, unless it was
    made with init_sync=False. Of one of another class nothing is known."""
    init_sync = getattr(manager, "_init_sync", None)
    if init_sync is not None:
        return bool(init_sync)
    torchft = sys.modules.get("torchft.manager")  # a double of its class has no such attribute
    return torchft is not None and isinstance(manager, torchft.Manager)


class _OverManager:
    def __init__(self, manager: Any, fragments: Sequence[torch.nn.Module], inner: Any, outer: Outer,
                 sync_every: int, pin_memory: bool, bucket_bytes: int, should_quantize: bool,
                 delay: int, alpha: float, check_start: Optional[bool]) -> None:
        if getattr(manager, "_use_async_quorum", False):
            raise InvalidError("DiLoCo needs a quorum before it begins: make the "
                               "manager with use_async_quorum=False")
        rows = places_of(fragments)
        self._rows, optimizers = rows, self._optimizers(outer, rows)
        self._all = [place for row in rows for place in row]
        check_trains(inner, (place.parameter for place in self._all))
        self._copies = (None if all(p.direct for p in self._all) else
                        StagedCopies(self._all, pin_memory))
        self._outer = _TorchOuter(rows, optimizers) if optimizers else None
        if check_start is None:
            check_start = not _makes_starts_equal(manager)
        self._exchange = _ManagerExchange(manager, rows, self._start if check_start else None)
        self.loop = Loop(
            self._exchange, sync_every=sync_every, fragments=len(rows),
            delay=delay, alpha=alpha, bucket_bytes=bucket_bytes, should_quantize=should_quantize,
            outer=self._outer or self._config(outer), copies=self._copies)
        for place in self._all:
            self.loop.tensor(f"{place.fragment}.{place.name}", place.memory(), place.shape,
                             place.fragment)
        self.loop.start()
        self.fragments = [_Fragment(self.loop, f, row, optimizers[f] if optimizers else None)
                          for f, row in enumerate(rows)]
        self._manager = manager
        if hasattr(manager, "register_state_dict_fn"):
            for f, fragment in enumerate(self.fragments):
                manager.register_state_dict_fn(f"StreamingDiLoCoFragment_{f}",
                                               fragment.load_state_dict, fragment.state_dict)

    def _start(self) -> torch.Tensor:
        """A digest of theta as 16 integers below 2^16."""
        digest = hashlib.blake2b(digest_size=32)
        for f in range(len(self._rows)):
            view = self.loop.view(f)
            digest.update(memoryview((ctypes.c_char * (4 * view.n)).from_address(view.theta)))
        numbers = struct.unpack("<16H", digest.digest())
        return torch.tensor(numbers, dtype=torch.float32)

    @staticmethod
    def _config(outer: Any) -> Optional[Config]:
        return None if outer is None else Config(**_options_of(outer))

    @staticmethod
    def _optimizers(outer: Any, rows: Sequence[Sequence[Place]]) -> List[torch.optim.Optimizer]:
        """One for each fragment; none: the library's. InvalidError: one lacks a parameter of its
        fragment, which then would never move."""
        if _is_ours(outer):
            return []
        n = len(rows)
        optimizers = list(outer) if isinstance(outer, (list, tuple)) else [outer] * n
        if len(optimizers) != n:
            raise InvalidError(f"{len(optimizers)} outer optimizers for {n} fragments: give one "
                               "for each, or one for all")
        for f, (optimizer, row) in enumerate(zip(optimizers, rows)):
            has = {id(p) for p in all_parameters(optimizer)}
            lacks = [place.name for place in row
                     if place.parameter.requires_grad and id(place.parameter) not in has]
            if lacks:
                more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
                raise InvalidError(f"the outer {type(optimizer).__name__} of fragment {f} does not "
                                   f"have its parameter {lacks[0]}{more}: make it of the "
                                   "fragment's own parameters, one optimizer for each fragment in "
                                   "their order, or one for all")
        return optimizers

    def before(self) -> None:
        if self._outer is not None and self._outer.failed:
            raise InvalidError("the outer step of a committed entry was not completed, so that the "
                               "other replicas have another model: end this process, and let the "
                               "manager give a new one their state")
        if self._copies is not None and self._copies.failed:
            raise InvalidError("a copy of the shared model to the parameters was not completed: "
                               "free memory and call adopt()")
        if hasattr(self._manager, "disallow_state_dict_read"):
            self._manager.disallow_state_dict_read()

    def after(self) -> None:
        if hasattr(self._manager, "allow_state_dict_read"):
            self._manager.allow_state_dict_read()
        try:
            self.loop.step()
        finally:
            if self._exchange.voted:
                self._exchange.voted = False
                for place in self._all:  # the library wrote without autograd's knowledge
                    torch.autograd.graph.increment_version(place.parameter)

    def adopt(self) -> None:
        with torch.no_grad():
            for fragment, row in zip(self.fragments, self._rows):
                for place in row:
                    place.check()
                    with needs(lambda: f"copy {place.name} from host memory to "  # noqa: B023
                                       f"{place.device}"):  # noqa: B023
                        place.local().copy_(fragment.original_parameters[place.name])
        if self._copies is not None:
            self._copies.failed = False

    def close(self) -> None:
        self.loop.close()


# ---- over a run -----------------------------------------------------------------------------


class _OverRun:
    def __init__(self, run: Any, fragments: Sequence[torch.nn.Module], inner: Any, outer: Any,
                 sync_every: Optional[int], delay: int, alpha: float, replica: str,
                 options: Dict[str, Any]) -> None:
        if isinstance(outer, (list, tuple)):
            raise InvalidError("a run has one outer optimizer for all fragments: give one")
        exchange = take_mode(options)
        wanted: Dict[str, Optional[float]] = {
            "trainer.local_steps_per_round": sync_every,
            "server.diloco.fragments": len(fragments),
            "server.diloco.overlap_steps": delay,
            "server.diloco.local_mix": alpha}
        if isinstance(run, Run):
            if options or outer is not None:
                raise InvalidError("options and the outer optimizer belong to the Run that was "
                                   "given")
            for option, value in wanted.items():
                if value is not None and float(run.setting(option)) != value:
                    raise InvalidError(f"the run has {option} = {run.setting(option)}, and here "
                                       f"it is to be {value}")
        parameters = [(f"{f}.{n}", p) for f, module in enumerate(fragments)
                      for n, p in named_parameters(module)]
        check_trains(inner, (p for _, p in parameters))
        keywords = {**_run_options(outer), **options}
        given: Dict[str, Any] = {k: v for k, v in wanted.items() if v is not None}
        if len(fragments) > 1:
            given["server.diloco.schedule"] = "torchft"

        def opened() -> Run:
            return Run(run, replica, given, _model="torch", **keywords)
        self.binding = Binding(run if isinstance(run, Run) else opened, parameters,
                               fragments=list(fragments),
                               private=lambda island: pieces(inner, island, True, {}),
                               optimizer=suspect(inner), exchange=exchange)

    def before(self) -> None:
        self.binding.check_open()

    def after(self) -> None:
        self.binding.step()

    def adopt(self) -> None:
        self.binding.adopt()

    def close(self) -> None:
        self.binding.close()


# ---- the class ------------------------------------------------------------------------------


class DiLoCo(Unique):
    """DiLoCo (2311.08105) and its streaming form (2501.18512) around a torch training loop.

    ::

        with diloco.DiLoCo(manager, [model], inner, outer, sync_every=500):
            for batch in data:
                inner.zero_grad()
                model(batch).loss.backward()
                inner.step()            # and every 500 steps a synchronisation

    ``manager``: an object with the methods of torchft's Manager (``allreduce`` that returns a
    handle with ``wait``, ``start_quorum``, ``should_commit``, ``current_step``; where they are
    there ``register_state_dict_fn``, ``report_error``, ``allow_state_dict_read`` and its
    opposite), whose all-reduce is a mean; or a run: its URL, then with ``replica`` and options of
    `Run` as keywords, or a `Run` that is not joined yet.
    ``model_fragments``: modules, synchronised one after the other; their parameters, not their
    buffers.
    ``outer_optimizer``: None (Nesterov, 0.7, 0.9), a name ("sgd") or options ({"outer_optimizer":
    "momentum", "outer_lr": 0.5}) of the library's own; or a torch optimizer (with a manager also
    one for each fragment): its ``step`` is called once for each committed fragment. With a run
    every replica takes that step for itself, so its state is in the run (`OuterOptimizer`).
    ``sync_every``: steps in which every fragment is synchronised once; a multiple of their number.
    ``fragment_sync_delay``: steps that are taken while a fragment's all-reduce runs, less than
    sync_every / fragments. ``fragment_update_alpha``: the weight of the replica's own values when
    it adopts, 0 to 1.
    ``use_bucketization``, ``bucket_cap_mb`` (1024): all-reduce in pieces of that many MB instead
    of tensor by tensor. ``should_quantize``: passed on to ``allreduce``. ``pin_memory``: the
    staging buffer of CUDA tensors. ``backup_device``: None or the CPU; theta is kept there.
    ``check_start``: compare the replicas' first parameters at entry 0, by one more all-reduce of
    16 numbers, and raise InvalidError on each where they differ. None: with every manager but
    torchft's with ``init_sync=True``, which gives the replicas one state. All replicas of a run
    give the same.

    Where ``should_commit`` says no the fragment's parameters are back at the last committed
    values, the outer state is as it was, and the fragment is due again; data is not replayed.
    A mean with a NaN is voted down and raises NumericError. Other exceptions: InvalidError (a
    ValueError) and RefusedError, by name, before anything is done; from ``inner.step()`` what the
    manager raises, or what Run.step does.

    Leaving the ``with`` takes the hooks away; `close` frees the memory, or closes the run.
    """

    def __init__(self, manager: Any, model_fragments: Sequence[torch.nn.Module],
                 inner_optimizer: torch.optim.Optimizer, outer_optimizer: Outer = None,
                 sync_every: Optional[int] = None, backup_device: Any = None,
                 pin_memory: bool = True, use_bucketization: bool = False,
                 bucket_cap_mb: Optional[float] = None, should_quantize: bool = False,
                 fragment_sync_delay: int = 0, fragment_update_alpha: float = 0.0, *,
                 check_start: Optional[bool] = None, replica: str = "r0",
                 **options: Any) -> None:
        if backup_device is not None and torch.device(backup_device).type != "cpu":
            raise RefusedError(f"backup_device = {backup_device}: theta and the outer state are "
                               "kept in the CPU's memory")
        if isinstance(model_fragments, torch.nn.Module):
            raise InvalidError("model_fragments is a list of modules: [model]")
        if bucket_cap_mb is not None and not bucket_cap_mb * 2**20 >= 1:
            raise InvalidError(f"bucket_cap_mb = {bucket_cap_mb}: a bucket has at least one byte")
        inner_optimizer = bare(inner_optimizer)  # whose step is called only where one is taken
        check_two(inner_optimizer, outer_optimizer)
        claim(inner_optimizer, self)  # raises where another one is entered
        release(inner_optimizer, self)
        self._optimizer: Any = inner_optimizer
        self._hooks: List[Any] = []
        self._made_here()
        self._side: Union[_OverManager, _OverRun]
        if isinstance(manager, (str, os.PathLike, Run)):
            if (use_bucketization or bucket_cap_mb is not None or should_quantize
                    or check_start is not None):
                raise InvalidError("use_bucketization, bucket_cap_mb, should_quantize and "
                                   "check_start are of managers; a run has server.diloco.codec, "
                                   "and its first state is in its log")
            self._side = _OverRun(manager, model_fragments, inner_optimizer, outer_optimizer,
                                  sync_every, fragment_sync_delay, fragment_update_alpha, replica,
                                  options)
            return
        if options:
            raise InvalidError(f"{', '.join(options)}: only a run has options")
        if sync_every is None or sync_every < 1:
            raise InvalidError(f"sync_every = {sync_every}: with a manager, say every how many "
                               "steps all fragments are synchronised")
        cap = int((_BUCKET_MB if bucket_cap_mb is None else bucket_cap_mb) * 2**20)
        self._side = _OverManager(manager, model_fragments, inner_optimizer, outer_optimizer,
                                  sync_every, pin_memory, cap if use_bucketization else 0,
                                  should_quantize, fragment_sync_delay, fragment_update_alpha,
                                  check_start)

    def __enter__(self) -> DiLoCo:
        if self._hooks:
            raise InvalidError("this DiLoCo has been entered already, and a second time would count "
                               "each step twice: use one with statement around the loop")
        claim(self._optimizer, self)
        self._hooks = [self._optimizer.register_step_pre_hook(lambda *_: self._before()),
                       self._optimizer.register_step_post_hook(lambda *_: self._side.after())]
        return self

    def __exit__(self, *_exception: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        release(self._optimizer, self)

    def _before(self) -> None:
        self._check_process()
        self._side.before()

    @property
    def run(self) -> Run:
        """The run, where there is one. InvalidError."""
        if isinstance(self._side, _OverRun):
            return self._side.binding.run
        raise InvalidError("this DiLoCo has a manager and no run")

    @property
    def done(self) -> bool:
        """The run has ended, and the parameters are the shared model. With a manager never true:
        call `adopt` after the last step."""
        return isinstance(self._side, _OverRun) and self._side.binding.done

    def adopt(self) -> None:
        """Make the parameters the shared model as it was last committed, on every replica the
        same. Steps since the last exchange of a fragment are lost. With a run that has ended it is
        done already."""
        self._check_process()
        self._side.adopt()

    def close(self) -> None:
        """Free the loop's memory, or close the run. Saves nothing."""
        self._side.close()

    # As torchft calls them.

    @property
    def _fragments(self) -> List[_Fragment]:
        return self._side.fragments if isinstance(self._side, _OverManager) else []

    @property
    def _local_step(self) -> int:
        return self._side.loop.now.step if isinstance(self._side, _OverManager) else 0
