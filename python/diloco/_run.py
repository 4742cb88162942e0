"""A replica's side of a run: diloco/run.h with Python's manners."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import math
import operator
import os
import re
import socket
import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _c
from ._config import Config
from ._guards import Unique, check_replica, check_store
from ._outer import OuterOptimizer, Registered, part_of
from ._signals import interrupting
from .errors import ClosedError, Interrupted, InvalidError, IOFailedError, NotThereError


_MOST = 1 << 40  # samples or tokens of a step, as in the library


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """The progress of a replica. Counts are of optimizer steps, samples and log entries."""

    run: str  #: id
    generation: int  #: of this process of the replica
    entry: int  #: next entry of the log
    entries: int  #: of the whole run
    position: int  #: t of this replica
    positions: int  #: t at the end of the run
    next_stop: int  #: position at which something is exchanged or adopted next
    fragments: int  #: P: entries of a round
    step: int  #: optimizer steps that this replica completed, in all its processes
    sample: int  #: next sample of its stream, counted over all its processes
    shard: int  #: which shard of the data is this replica's
    resumed: bool  #: join took up saved private state
    interrupted: bool
    bytes_sent: int
    bytes_received: int
    loss_mean: float  #: over the members of the last commit; NaN before


class Memory(NamedTuple):
    """The memory of a tensor, as diloco_run_tensor takes it."""

    pointer: int
    dtype: str  #: a key of DTYPES
    shape: Tuple[int, ...]
    owner: Any  #: keeps the memory alive


class DeviceCopies:
    """Copies between host memory and tensors, gradients or private pieces elsewhere (diloco_device).
    The library calls them on the thread that called it. ``tensor``: the pointer of its Memory. An
    exception is raised by the call in progress."""

    name: Optional[str] = None  #: the device's name, such as the card's; None: not known

    def alloc(self, size: int) -> int:
        """The address of ``size`` bytes of host memory for a tensor or a gradient, until the run is
        closed. Private pieces are copied to and from other host memory."""
        raise NotImplementedError

    def copy_in(self, host: int, tensor: int, size: int) -> None:
        """Begin to copy a tensor's values to host memory."""
        raise NotImplementedError

    def copy_out(self, tensor: int, host: int, size: int) -> None:
        """Begin to copy values from host memory to a tensor."""
        raise NotImplementedError

    def synchronise(self) -> None:
        """Complete the copies that were begun."""
        raise NotImplementedError


_FORMATS = {("f", 4): "float32", ("e", 2): "float16", ("l", 8): "int64", ("q", 8): "int64",
            ("?", 1): "bool"}


def memory_of(data: Any) -> Memory:
    """A writable, contiguous buffer (a numpy array, an array.array) as the library sees it.
    InvalidError."""
    try:
        view = memoryview(data)
    except TypeError:
        raise InvalidError(
            f"a {type(data).__name__} gives no buffer: pass a numpy array or another writable "
            "buffer, and torch tensors through diloco.DiLoCoOptimizer") from None
    dtype = _FORMATS.get((view.format.lstrip("@=<"), view.itemsize))
    if dtype is None:
        raise InvalidError(f"elements of format {view.format!r} ({view.itemsize} bytes): a tensor "
                           f"is one of {', '.join(_c.DTYPES)}")
    if view.readonly or not view.c_contiguous or not view.nbytes:
        why = ("read-only" if view.readonly else
               "empty" if not view.nbytes else "not contiguous")
        raise InvalidError(f"the buffer is {why}: the library overwrites it in place")
    shape = tuple(view.shape or ())
    anchor = ctypes.c_char.from_buffer(view.cast("B"))  # holds the buffer's export
    return Memory(ctypes.addressof(anchor), dtype, shape, (data, anchor))


def _folded(shape: Sequence[int]) -> List[int]:
    """At most MAX_DIMS dimensions: the others are folded into the last."""
    dims = list(shape[:_c.MAX_DIMS])
    if len(shape) > _c.MAX_DIMS:
        dims[-1] = math.prod(shape[_c.MAX_DIMS - 1:])
    return dims


def is_shape_of(there: Sequence[int], here: Sequence[int]) -> bool:
    """Whether a tensor of a run with shape ``there`` may be a model's of shape ``here``. The run has
    it in at most MAX_DIMS dimensions."""
    return list(there) in (list(here), _folded(here))


def store_text(store: Any) -> str:
    """A folder's path is made whole, so that a run stays where it is if the process goes elsewhere
    (`os.chdir`)."""
    text = os.fsdecode(os.fspath(store))
    return text if not text or "://" in text else os.path.abspath(text)


def _check_start(config: Config) -> None:
    """The first state of a run is the caller's tensors, so init_from may not promise another one."""
    if config["trainer.init_from"] and config["trainer.init_as"] == "model":
        raise InvalidError("trainer.init_from loads no model here: load it into yours and leave the "
                           "option out, or with trainer.init_as = \"continuation\" load it and "
                           "name it, and the outer optimizer's state is continued")


def counted(what: str, n: Any) -> int:
    """The number of samples or tokens of a step. InvalidError: another value."""
    try:
        number = operator.index(n)
    except TypeError:
        number = -1
    if not 0 <= number <= _MOST:
        raise InvalidError(f"{what} = {n!r}: a whole number from 0 to {_MOST}")
    return number


def state_dir(store: str) -> str:
    """The default place of private state: "" is beside a folder; of a store elsewhere under
    runs/, where the program has it as well; threads of one process (mem://) have none."""
    scheme, apart, place = store.partition("://")
    if not apart or scheme == "file":
        return ""
    if scheme == "mem":
        return "none"
    name = re.sub(r"[^A-Za-z0-9._=-]", "-", place.rstrip("/"))
    return os.path.abspath(f"runs/{name}.local/{socket.gethostname() or 'host'}")


class Run(Unique):
    """One replica of a run: open, register tensors, join, then ``step`` after each optimizer step.

    ::

        with diloco.Run("runs/demo", "r0", replicas=2, sync_every=100, rounds=10) as run:
            run.tensor("w", w)          # a float32 numpy array, overwritten in place
            run.join()
            while not run.done:
                loss = train_step(w)
                run.step(loss=loss, samples=8)

    ``store``: a folder, file:///folder, http://HOST:PORT/RUN at a hub, s3://… (docs/stores.md).
    ``replica``: this replica's name, the same in all its processes; its number is its shard of
    the data. Options as in `Config`; others are the run's own where it exists
    already. RefusedError, InvalidError: a combination that cannot be faithful, by name. Private
    state is stored beside a folder, and of other stores in runs/<its name>.local here (run.state_dir).
    ``outer_optimizer``: a name of the library's own; or a torch optimizer (its parameters do not
    matter, its options do, and its learning rate is the run's where no option says another), or
    an `OuterOptimizer`: called once for each committed fragment. All replicas give the same one.

    One thread at a time, except `interrupt`. Leaving the ``with`` closes the run and saves
    nothing: a resume starts from the last due point, or the last `save`.
    """

    def __init__(self, store: Any, replica: str = "r0", options: Optional[Mapping[str, Any]] = None,
                 *, preset: Optional[str] = None, outer_optimizer: Any = None,
                 _model: str = "python", **keywords: Any) -> None:
        library = _c.lib()
        check_store(store)
        check_replica(replica)
        self.store = store_text(store)
        self.replica = replica
        if isinstance(outer_optimizer, str):
            keywords["outer_optimizer"], outer_optimizer = outer_optimizer, None
        self._config = config = Config(options, preset=preset, **keywords)
        config["run.store"] = self.store
        config.default("trainer.model_name", _model)
        _check_start(config)
        if not config["run.state_dir"]:
            config["run.state_dir"] = state_dir(self.store)
        self._handle = ctypes.c_void_p()
        self._kept: List[Any] = []  # memory and callbacks that the library has pointers to
        self._tensors: Dict[str, Memory] = {}
        self._registered: List[Registered] = []
        self._raised: Optional[BaseException] = None  # in a callback
        self._is_left = False  # a signal's interrupt, which its own call may not have used
        parts, kept = self._parts(outer_optimizer)
        _c.check(library.diloco_run_open_with_sized(
            ctypes.byref(self._handle), config._handle, _c.text(replica), ctypes.byref(parts),
            ctypes.sizeof(parts)))
        self._kept.append(_c.warn_of_waits(self._handle, self.store))
        # The exchange may call back until it is closed: its callbacks are kept as long.
        self._made_here()
        self._called = kept  # until the library has released its memory
        self._close = weakref.finalize(self, _close, self._handle, kept, os.getpid())

    def _parts(self, outer: Any) -> Tuple[_c.UserParts, List[Any]]:
        """The parts that the caller supplies, and the objects to keep for them. Sets the learning
        rate."""
        parts = _c.UserParts()
        if outer is None:
            return parts, []
        if not isinstance(outer, OuterOptimizer):
            from ._outer_torch import outer_of
            rate = "server.diloco.outer_learning_rate"
            every = self._config["server.diloco.apply_outer_optimizer_to"] == "all_floating"
            outer, lr = outer_of(outer, self._registered, every)
            if self._config.origin(rate) == "default":
                self._config[rate] = lr
        me = weakref.ref(self)

        def guard(call: Callable[[], Any]) -> Any:
            run = me()
            return run._guard(call) if run is not None else None

        def stopping() -> bool:
            run = me()
            return run is not None and run._raised is not None
        kept = part_of(outer, guard, stopping)
        parts.outer = ctypes.pointer(kept[0])
        return parts, [parts, *kept]

    # ---- before join ----

    def setting(self, name: str) -> str:
        """An option's value as it will be: the one given here, else that of the run if
        it exists already, else the default."""
        theirs = Config()
        if self._config.origin(name) == "default":
            status = _c.lib().diloco_run_config(theirs._handle, _c.text(self.store))
            if status != NotThereError.status:
                _c.check(status)
                return theirs[name]
        return self._config[name]

    def tensor(self, name: str, data: Any, *, role: str = "parameter", fragment: int = 0,
               gradient: Any = None) -> None:
        """Register a tensor: all replicas the same ones, in the same order.

        ``data``: a writable contiguous buffer of float32, float16, int64 or bool (bytes), or a
        `Memory`, also of bfloat16; it stays yours, at its place, until close. ``role``:
        "parameter" is moved by the outer optimizer, "frozen" and "buffer" take the weighted mean. ``gradient``, with preset
        data_parallel: a float32 buffer of the same shape, read at each step. InvalidError.
        """
        memory = data if isinstance(data, Memory) else memory_of(data)
        dims = _folded(memory.shape)
        tensor = _c.Tensor(name=_c.text(name), data=memory.pointer, dtype=_c.DTYPES[memory.dtype],
                           role=_c.ROLES[role], n_dims=len(dims),
                           shape=(ctypes.c_size_t * _c.MAX_DIMS)(*dims), fragment=fragment)
        _c.check(_c.lib().diloco_run_tensor_sized(self._open, ctypes.byref(tensor),
                                                  ctypes.sizeof(tensor)))
        self._tensors[name] = memory
        self._registered.append(Registered(fragment, role, memory.dtype, tuple(memory.shape)))
        if gradient is not None:
            g = gradient if isinstance(gradient, Memory) else memory_of(gradient)
            if (g.dtype, g.shape) != ("float32", memory.shape):
                raise ValueError(f"the gradient of {name} is {g.dtype}{list(g.shape)}: it has to "
                                 f"be float32{list(memory.shape)}")
            _c.check(_c.lib().diloco_run_gradient(self._open, _c.text(name), g.pointer))
            self._kept.append(g)

    def device(self, copies: Optional[DeviceCopies]) -> None:
        """The tensors, gradients and private pieces that are registered after this call are not in
        host memory: ``copies`` moves the values that a call needs. The library keeps a copy of each
        tensor and gradient in host memory. The pointer of such a Memory may be any number but 0.
        None: they are in host memory again. Before join. InvalidError."""
        if copies is None:
            _c.check(_c.lib().diloco_run_device_sized(self._open, None, 0))
            return
        me = weakref.ref(self)

        def alloc(_user: Any, size: int) -> Optional[int]:
            run = me()
            address: Optional[int] = run._guard(lambda: copies.alloc(size)) if run else None
            return address
        device = _c.Device(
            copy_in=_c.COPY_FN(self._reporting(lambda _stream, *to_host: copies.copy_in(*to_host))),
            copy_out=_c.COPY_FN(self._reporting(lambda _stream, *out: copies.copy_out(*out))),
            synchronise=_c.SYNCHRONISE_FN(self._reporting(lambda _stream: copies.synchronise())),
            alloc=_c.ALLOC_FN(alloc), release=_c.RELEASE_FN(lambda _user, _memory: None),
            name=None if copies.name is None else _c.text(copies.name))
        _c.check(_c.lib().diloco_run_device_sized(self._open, ctypes.byref(device),
                                                  ctypes.sizeof(device)))
        self._called += [device, copies]

    def private(self, name: str, data: Any,
                fill: Optional[Callable[[int], None]] = None) -> None:
        """Register bytes that belong to this replica alone (inner moments, counters): saved
        beside the run, given back on resume, never sent. ``data``: a writable buffer, or a
        `Memory`, on the device that was named last (`device`). ``fill``: called with an address in
        host memory whenever the bytes are saved, to write all of them there, instead of keeping
        them in ``data``, which then is only where a resume finds them. Its exception is that of the
        step, and nothing is saved. It may not use this run."""
        if isinstance(data, Memory):
            pointer, size = data.pointer, _c.ITEM_SIZES[data.dtype] * math.prod(data.shape)
            kept: Any = data
        else:
            view = memoryview(data).cast("B")
            anchor = ctypes.c_char.from_buffer(view)
            pointer, size, kept = ctypes.addressof(anchor), view.nbytes, (data, anchor)
        if fill is None:
            _c.check(_c.lib().diloco_run_private(self._open, _c.text(name), pointer, size))
        else:
            callback = _c.FILL_FN(self._reporting(fill))
            _c.check(_c.lib().diloco_run_private_by(self._open, _c.text(name), pointer, size,
                                                    callback, None))
            self._kept.append(callback)
        self._kept.append(kept)

    def base(self, name: str, kind: str, data: Any, size: int) -> None:
        """Register a tensor that the model has and that is never exchanged, such as a frozen weight
        under an adapter. ``kind``: its type and shape as text. ``data``: bytes, or the address of
        ``size`` bytes in host memory, read during this call only. `join` raises DiffersError, with
        the name, where the run has another one. Before join. InvalidError."""
        _c.check(_c.lib().diloco_run_base(self._open, _c.text(name), _c.text(kind), data, size))

    def data_digest(self, digest: str) -> None:
        """32 hex digits of the data: replicas on other data are warned about."""
        _c.check(_c.lib().diloco_run_data_digest(self._open, _c.text(digest)))

    def on_record(self, fn: Callable[[Dict[str, Any]], None]) -> None:
        """Call ``fn`` with each event of the record (docs/architecture.md section 9), during the call
        that caused it, whose result an exception of ``fn`` then is."""
        def deliver(_user: Any, line: int, length: int) -> None:
            self._guard(lambda: fn(json.loads(ctypes.string_at(line, length))))
        callback = _c.RECORD_FN(deliver)
        self._kept.append(callback)
        _c.lib().diloco_run_on_record(self._open, callback, None)

    def on_lr(self, fn: Callable[[int], float]) -> None:
        """The outer learning rate of an entry, where it follows a schedule: all replicas have to
        agree. Before join."""
        def ask(_user: Any, entry: int) -> float:
            rate = self._guard(lambda: float(fn(entry)))
            return math.nan if rate is None else rate
        callback = _c.LR_FN(ask)
        self._kept.append(callback)
        _c.lib().diloco_run_on_lr(self._open, callback, None)

    def on_probe(self, fn: Callable[[Dict[str, Any]], float]) -> None:
        """Where check.probe is set: the loss, on samples that no replica trains on, of a model
        that is no replica's, given by name as `theta` gives it (only to be read, during the call).
        Called by the replica that closes an entry; the tensors have to be afterwards as they were.
        Before join."""
        def ask(_user: Any, loss: Any, data: Any, n: int) -> int:
            def measure() -> float:
                tensors = list(self._tensors.items())[:n]
                return float(fn({name: _array_at(data[i], memory)
                                 for i, (name, memory) in enumerate(tensors)}))
            found = self._guard(measure)
            if found is None:
                return IOFailedError.status
            loss[0] = found
            return 0
        callback = _c.PROBE_FN(ask)
        self._kept.append(callback)
        _c.lib().diloco_run_on_probe(self._open, callback, None)

    def create(self) -> None:
        """Only create the run if the store holds none; never join."""
        self._wait(_c.lib().diloco_run_create)

    def split(self) -> None:
        """The exchange has a thread of its own, so that it continues between `prepare` and `perform`
        also where no steps overlap it. Before join."""
        _c.check(_c.lib().diloco_run_split(self._open))

    def join(self) -> None:
        """Create the run (its first state is the tensors' present values), join or resume it.
        The tensors then hold the state to train from. DiffersError: the store holds another
        run, and how it differs. UnreachableError, RefusedError, Interrupted."""
        self._wait(_c.lib().diloco_run_join)

    # ---- after join ----

    def step(self, loss: float = math.nan, samples: int = 1, tokens: int = 0) -> None:
        """One optimizer step is complete. ``loss``: its mean; ``samples``, ``tokens``:
        the data of the step. At a due point this exchanges, waits for the entry, and overwrites the
        tensors with the shared model. Interrupted: call `wait`, or close and resume.
        FencedError: a later generation of this replica exists: stop. UnreachableError: the store did
        not come back within run.store_timeout; the saved state allows to resume."""
        report = _report(loss, samples, tokens)
        self._wait(_c.lib().diloco_step_sized, ctypes.byref(report), ctypes.sizeof(report),
                   again=(None, 0))

    def prepare(self, loss: float = math.nan, samples: int = 1, tokens: int = 0) -> bool:
        """The first half of `step`: counts it, and takes and sends what is due, without waiting
        for other replicas. True: `perform` has to come before the next step; until then the tensors
        are left alone. Interrupted: the step is counted; call `perform`."""
        report, due = _report(loss, samples, tokens), ctypes.c_bool()
        self._wait(_c.lib().diloco_run_prepare_sized, ctypes.byref(report), ctypes.sizeof(report),
                   ctypes.byref(due), again=(None, 0, ctypes.byref(due)))
        return due.value

    def perform(self) -> None:
        """The second half: waits for the entry and overwrites the tensors. Nothing prepared:
        nothing. Interrupted: call it again."""
        self._wait(_c.lib().diloco_run_perform)

    def wait(self) -> None:
        """Continue a step that was interrupted while it waited."""
        self._wait(_c.lib().diloco_step_sized, None, 0)

    @property
    def done(self) -> bool:
        """All entries of the run are folded; the tensors hold its result."""
        return bool(_c.lib().diloco_run_done(self._open))

    @property
    def now(self) -> RunInfo:
        info = _c.RunInfo()
        _c.lib().diloco_run_now_sized(self._open, ctypes.byref(info), ctypes.sizeof(info))
        values = {f.name: getattr(info, f.name) for f in dataclasses.fields(RunInfo)}
        return RunInfo(**{**values, "run": info.run.decode()})

    def theta_into(self, places: Mapping[str, Memory]) -> None:
        """Copy the shared model into ``places``, by name; tensors without a place are left out."""
        n = len(self._tensors)
        pointers = (ctypes.c_void_p * n)()
        for i, (name, memory) in enumerate(self._tensors.items()):
            place = places.get(name)
            if place is None:
                continue
            if (place.dtype, math.prod(place.shape)) != (memory.dtype, math.prod(memory.shape)):
                raise ValueError(f"the place of {name} is {place.dtype}{list(place.shape)}, the "
                                 f"tensor {memory.dtype}{list(memory.shape)}")
            pointers[i] = place.pointer
        _c.check(_c.lib().diloco_run_theta(self._open, pointers, n))

    def theta(self) -> Dict[str, Any]:
        """The shared model as it now is and is to be evaluated, by name: numpy arrays, or
        memoryviews where numpy is not installed. bfloat16 is given as its bits, in uint16, for
        numpy has no such type. Between steps."""
        arrays = {name: _new_array(m.dtype, m.shape) for name, m in self._tensors.items()}
        self.theta_into({name: Memory(_address(a), m.dtype, m.shape, a) for (name, m), a in
                         zip(self._tensors.items(), arrays.values())})
        return arrays

    def record(self, event: Mapping[str, Any]) -> None:
        """Put an event of your own into the run's record."""
        line = json.dumps(event).encode()
        _c.lib().diloco_run_record(self._open, line, len(line))

    def verify(self) -> Dict[str, Any]:
        """Check the chain of the whole log and replay it, with the run's own outer optimizer:
        entries, commits, aborts, voids, complete, digest. ProtocolError: something does not fit,
        and which entry. Before join or after."""
        report = _c.VerifyReport()
        self._wait(_c.lib().diloco_run_verify_sized, ctypes.byref(report), ctypes.sizeof(report), 1)
        values = {f[0]: getattr(report, f[0]) for f in report._fields_}
        return {**values, "digest": report.digest.decode()}

    def save(self) -> None:
        """Save the private state as it is now, so that a resume is bitwise. Interrupted: nothing
        new is saved."""
        self._wait(_c.lib().diloco_run_save)

    def leave(self) -> None:
        """Say that this replica leaves for good: the others stop waiting for it."""
        self._wait(_c.lib().diloco_run_leave)

    def interrupt(self) -> None:
        """Make the current blocking call, or the next one that waits, raise Interrupted soon;
        then it is spent. Any thread."""
        self._is_left = False
        _c.lib().diloco_run_interrupt(self._open)

    def close(self) -> None:
        """Stop the helpers and free everything. Saves nothing. A second time does nothing."""
        self._close()
        self._handle = ctypes.c_void_p()
        self._kept.clear()
        self._called.clear()
        self._tensors.clear()

    @property
    def is_closed(self) -> bool:
        return not self._handle

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()

    # ---- how it calls ----

    @property
    def _open(self) -> ctypes.c_void_p:
        if not self._handle:
            raise ClosedError("the run is closed")
        self._check_process()
        return self._handle

    def _guard(self, call: Callable[[], Any]) -> Any:
        """Run a callback of the user; its exception leaves the call into the library."""
        try:
            return call()
        except BaseException as error:  # noqa: B902: it is raised again in _wait
            self._raised = error
            return None

    def _reporting(self, call: Callable[..., None]) -> Callable[..., int]:
        """A callback for C, without its first argument: returns 0, or IOFailedError's status if
        ``call`` raised. It keeps no reference to the run."""
        me = weakref.ref(self)

        def safe(_user: Any, *arguments: Any) -> int:
            def called() -> bool:
                call(*arguments)
                return True
            run = me()
            return 0 if run is not None and run._guard(called) else IOFailedError.status
        return safe

    def _wait(self, function: Callable[..., int], *arguments: Any,
              again: Optional[Tuple[Any, ...]] = None) -> None:
        """A call that may wait: without the interpreter's lock, ended by Ctrl-C. ``again``: the
        arguments with which it continues after an interrupt; None: the same."""
        handle = self._open
        heard: List[bool] = []

        def interrupt() -> None:
            heard.append(True)
            _c.lib().diloco_run_interrupt(handle)
        try:
            with interrupting(interrupt):
                status = function(handle, *arguments)
                if status == Interrupted.status and self._is_left and not heard:
                    self._is_left = False  # of a signal in an earlier call, which has acted there
                    status = function(handle, *(arguments if again is None else again))
                raised, self._raised = self._raised, None
                if raised is not None:
                    raise raised
                _c.check(status)
        finally:
            self._is_left = self._is_left or bool(heard)


def _report(loss: float, samples: Any, tokens: Any) -> _c.StepReport:
    return _c.StepReport(loss=loss, samples=counted("samples", samples),
                         tokens=counted("tokens", tokens))


def _close(handle: ctypes.c_void_p, _kept: Sequence[Any], pid: int) -> None:
    if os.getpid() == pid:  # a fork has the handle and none of its threads
        _c.lib().diloco_run_close(handle)


def _address(buffer: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memoryview(buffer).cast("B")))


def array_over(room: Any, dtype: str, shape: Tuple[int, ...]) -> Any:
    """A numpy array over bytes, or a memoryview where numpy is not installed."""
    try:
        import numpy
        kind = "uint16" if dtype == "bfloat16" else dtype
        return numpy.frombuffer(room, kind).reshape(shape)
    except ImportError:
        letter = {"float32": "f", "int64": "q", "bool": "?", "bfloat16": "H", "float16": "e"}[dtype]
        flat: Any = memoryview(room)
        return flat.cast(letter, shape) if shape else flat.cast(letter)


def _new_array(dtype: str, shape: Tuple[int, ...]) -> Any:
    return array_over(bytearray(math.prod(shape) * _c.ITEM_SIZES[dtype]), dtype, shape)


def _array_at(pointer: int, memory: Memory) -> Any:
    """The library's memory, like a tensor: only to be read, during the call that gave it."""
    kind: Any = ctypes.c_char * (math.prod(memory.shape) * _c.ITEM_SIZES[memory.dtype])
    room = memoryview(kind.from_address(pointer)).cast("B").toreadonly()
    return array_over(room, memory.dtype, memory.shape)
