"""The outer loop over an exchange of one's own: diloco/loop.h with Python's manners.

The C loop calls back an `Exchange`. Its exceptions leave the call that caused them,
once the loop has put itself in order."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import os
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import _c
from ._config import Config
from ._guards import Unique
from ._run import Memory, _folded
from .errors import ClosedError


class Reduce(NamedTuple):
    """One all-reduce: the float32 values there are to become their mean over the replicas."""

    entry: int
    fragment: int
    part: int  #: of the fragment: a tensor in registering order, or a bucket
    tensor: Optional[str]  #: its name; None: a bucket
    quantize: bool
    pointer: int
    n: int


class Exchange:
    """The callbacks of a loop."""

    def all_reduce(self, reduce: Reduce) -> Any:
        """Begin; the result has a ``wait()``, called once, after which the mean is there."""
        raise NotImplementedError

    def start_quorum(self) -> int:
        """Agree on the participants. Returns the number of entries committed so far."""
        raise NotImplementedError

    def should_commit(self, well: bool) -> bool:
        """Vote. ``well``: here all went well."""
        raise NotImplementedError


class Copies:
    """Tensors that are not float32 in the CPU's memory, by their number. ``staging``: where the
    pieces are copied through, kept alive by the caller that made this."""

    staging: Memory

    def read(self, host: int, tensor: int, first: int, n: int) -> None:
        raise NotImplementedError

    def write(self, host: int, tensor: int, first: int, n: int) -> None:
        raise NotImplementedError


class OuterStep(NamedTuple):
    """A committed fragment: theta before, to become theta after, and the mean of g."""

    entry: int
    fragment: int
    n: int
    theta: int  #: pointer
    g: int  #: pointer


class View(NamedTuple):
    """A fragment's state in place, until the loop is gone: pointers to ``n`` floats each."""

    n: int
    theta: int
    vectors: Dict[str, int]
    commits: Any  #: a pointer to a c_uint64


@dataclasses.dataclass(frozen=True)
class LoopInfo:
    step: int  #: since the last synchronisation was due
    entry: int  #: of the last prepare
    fragment: int  #: prepared and not performed; -1: none
    commits: int
    refused: int


def _guarded(raised: List[BaseException], call: Callable[..., None]) -> Callable[..., int]:
    """For C: 0, or ClosedError's status and the exception kept."""
    def safe(_user: Any, *arguments: Any) -> int:
        try:
            call(*arguments)
            return 0
        except BaseException as error:  # noqa: B902: raised by Loop._call
            raised.append(error)
            return ClosedError.status
    return safe


def _communicator(exchange: Exchange, raised: List[BaseException]) -> _c.Communicator:
    works: Dict[int, Any] = {}
    tokens = itertools.count(1)
    entry = [0]

    def all_reduce(reduce: Any, handle: Any) -> None:
        r = reduce.contents
        work = exchange.all_reduce(Reduce(r.entry, r.fragment, r.part,
                                          r.tensor.decode() if r.tensor else None, r.quantize,
                                          r.data, r.n))
        token = next(tokens)
        works[token] = work
        handle[0] = token

    def wait(handle: int) -> None:
        works.pop(handle).wait()

    def start_quorum() -> None:
        entry[0] = exchange.start_quorum()

    def should_commit(well: bool, commit: Any) -> None:
        commit[0] = bool(exchange.should_commit(well))
    return _c.Communicator(all_reduce=_c.ALL_REDUCE_FN(_guarded(raised, all_reduce)),
                           wait=_c.WAIT_FN(_guarded(raised, wait)),
                           start_quorum=_c.QUORUM_FN(_guarded(raised, start_quorum)),
                           current_step=_c.CURRENT_STEP_FN(lambda _user: entry[0]),
                           should_commit=_c.COMMIT_FN(_guarded(raised, should_commit)))


def _outer(step: Callable[[OuterStep], None], raised: List[BaseException]) -> Any:
    def call(c: Any) -> None:
        o = c.contents
        step(OuterStep(o.entry, o.fragment, o.n, o.theta, o.g))
    return _c.LOOP_OUTER_FN(_guarded(raised, call))


def _copy(copies: Copies, raised: List[BaseException]) -> _c.LoopCopy:
    return _c.LoopCopy(read=_c.READ_FN(_guarded(raised, copies.read)),
                       write=_c.WRITE_FN(_guarded(raised, copies.write)),
                       staging=copies.staging.pointer, n_staging=copies.staging.shape[0])


class Loop(Unique):
    """See diloco/loop.h, whose words the arguments are. ``outer``: a function of the caller's, or
    one of the library's own by its options; None: Nesterov, 0.7, 0.9. One thread at a time."""

    def __init__(self, exchange: Exchange, *, sync_every: int, fragments: int = 1, delay: int = 0,
                 alpha: float = 0.0, bucket_bytes: int = 0, should_quantize: bool = False,
                 outer: Any = None, copies: Optional[Copies] = None) -> None:
        library = _c.lib()
        self._step = library.diloco_loop_step  # called after each inner step
        self._raised: List[BaseException] = []
        communicator = _communicator(exchange, self._raised)
        options = _c.LoopOptions(fragments=fragments, sync_every=sync_every,
                                 fragment_sync_delay=delay, fragment_update_alpha=alpha,
                                 bucket_bytes=bucket_bytes, should_quantize=should_quantize)
        if isinstance(outer, Config):
            options.config = outer._handle
        elif outer is not None:
            options.outer = _outer(outer, self._raised)
        if copies is not None:
            options.copy = ctypes.pointer(_copy(copies, self._raised))
        self._handle = ctypes.c_void_p()
        _c.check(library.diloco_loop_create(ctypes.byref(self._handle), ctypes.byref(options),
                                            ctypes.byref(communicator)))
        self._kept: List[Any] = []  # memory that the library has pointers to
        self._made_here()
        # The loop waits for exchanges in flight when it is closed, so the callbacks outlive it.
        callbacks = (communicator, options, copies)
        self.close = weakref.finalize(self, _destroy, self._handle, callbacks, os.getpid())
        self.close.atexit = False  # no wait for an exchange when the interpreter ends

    def tensor(self, name: str, memory: Optional[Memory], shape: Any, fragment: int) -> None:
        """Register; ``memory`` None: through ``copies``."""
        dims = _folded(tuple(shape))
        c = _c.Tensor(name=_c.text(name), data=memory.pointer if memory else None,
                      dtype=_c.DTYPES["float32"], role=_c.ROLES["parameter"], n_dims=len(dims),
                      shape=(ctypes.c_size_t * _c.MAX_DIMS)(*dims), fragment=fragment)
        self._call(_c.lib().diloco_loop_tensor_sized, ctypes.byref(c), ctypes.sizeof(c))
        self._kept.append(memory)

    def start(self) -> None:
        self._call(_c.lib().diloco_loop_start)

    def step(self) -> None:
        self._call(self._step)

    def prepare(self) -> None:
        self._call(_c.lib().diloco_loop_prepare)

    def perform(self) -> bool:
        committed = ctypes.c_bool()
        self._call(_c.lib().diloco_loop_perform, ctypes.byref(committed))
        return committed.value

    def backup(self) -> None:
        self._call(_c.lib().diloco_loop_backup)

    def restore(self) -> None:
        self._call(_c.lib().diloco_loop_restore)

    def save(self, path: str) -> None:
        self._call(_c.lib().diloco_loop_save, _c.text(path))

    def load(self, path: str) -> None:
        self._call(_c.lib().diloco_loop_load, _c.text(path))

    @property
    def now(self) -> LoopInfo:
        info = _c.LoopInfo()
        _c.lib().diloco_loop_now(self._open, ctypes.byref(info))
        return LoopInfo(info.step, info.entry, info.fragment, info.commits, info.refused)

    def view(self, fragment: int) -> View:
        v = _c.LoopFragment()
        self._call(_c.lib().diloco_loop_view, fragment, ctypes.byref(v))
        vectors = {v.names[k].decode(): v.vectors[k] for k in range(v.n_vectors)}
        return View(v.n, v.theta, vectors, v.commits)

    @property
    def _open(self) -> ctypes.c_void_p:
        if not self.close.alive:
            raise ClosedError("the loop is closed")
        self._check_process()
        return self._handle

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        status = function(self._open, *arguments)
        if status and self._raised:
            error = self._raised[0]
            self._raised.clear()
            raise error
        _c.check(status)


def _destroy(handle: ctypes.c_void_p, _callbacks: Any, pid: int) -> None:
    if os.getpid() == pid:  # a fork has the handle and none of its threads
        _c.lib().diloco_loop_destroy(handle)
