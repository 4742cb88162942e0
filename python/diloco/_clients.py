"""Logical clients in Python: diloco/clients.h with the shape of Flower's NumPyClient.

``run_clients`` is one process of a federated run. The library decides whose turn it is, keeps each
client's private state and combines; `Client.fit` trains. Parameters are what the caller's own are:
torch tensors or numpy arrays, in a mapping or a sequence.
"""

from __future__ import annotations

import array
import ctypes
import json
import math
import numbers
import operator
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from . import _c
from ._config import Config
from ._log import RunLog
from ._run import Memory, Run, counted, is_shape_of, memory_of
from .errors import InvalidError, IOFailedError

_ARRAY = "diloco.array"  # in a packed state: [type, shape, begin] of its bytes
_PAIRS = "diloco.pairs"  # a mapping whose keys are not all texts


class Client:
    """One logical client. Override `fit`; `evaluate` where `evaluate_clients` is called. A run with
    keys (run.roster other than "trusted") refuses logical clients.

    ``number``: 1 to clients.total_clients, as in the log. ``state``: the client's private state, a
    mapping of plain values, torch tensors and numpy arrays; empty at first. The state that `fit`
    leaves comes back in the next round that asks the client, on any worker, and is never sent.
    """

    number: int = 0
    state: Dict[str, Any] = {}

    def fit(self, parameters: Any, config: Dict[str, Any]) -> Tuple[Any, int, Dict[str, Any]]:
        """Train on the client's data. ``parameters``: the shared model, a copy. ``config``:
        "client", "entry", "local_steps" (0: as many as the epochs have), "epochs", "steps" and
        "next_sample" (of this client, before). Returns the parameters, how many samples the client
        has, and a mapping: "steps" (default local_steps), "samples" it was trained on (default: how
        many it has), "tokens", "loss"; other numbers go to the run's record."""
        raise NotImplementedError

    def evaluate(self, parameters: Any, config: Dict[str, Any]) -> Tuple[float, int,
                                                                         Dict[str, Any]]:
        """The loss, the number of samples, and other measures of the shared model on the client's
        data."""
        raise NotImplementedError


# ---- private state as bytes ------------------------------------------------------------------


def _is_torch(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def _number(value: Any) -> float:
    return float(value.detach() if _is_torch(value) else value)


def _raw(value: Any) -> Tuple[str, List[int], bytes]:
    if _is_torch(value):
        t = value.detach().cpu().contiguous()
        size = t.numel() * t.element_size()
        return (f"torch.{str(t.dtype)[6:]}", list(t.shape),
                ctypes.string_at(t.data_ptr(), size) if size else b"")
    return str(value.dtype), list(value.shape), value.tobytes()


def packed(state: Mapping[str, Any]) -> bytes:
    """InvalidError: a value that is no number, text, list, mapping, tensor or array; its place."""
    blob = bytearray()

    def plain(value: Any, place: str) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (list, tuple)):
            return [plain(v, f"{place}[{i}]") for i, v in enumerate(value)]
        if isinstance(value, Mapping):
            pairs = [[k, plain(v, f"{place}.{k}")] for k, v in value.items()]
            return dict(pairs) if all(isinstance(k, str) for k in value) else {_PAIRS: pairs}
        if _is_torch(value) or (hasattr(value, "dtype") and hasattr(value, "tobytes")):
            kind, shape, raw = _raw(value)
            begin = len(blob)
            blob.extend(raw)
            return {_ARRAY: [kind, shape, begin, len(raw)]}
        raise InvalidError(f"{place} is a {type(value).__name__}: a client's state is of numbers, "
                           "texts, lists, mappings, tensors and arrays")
    head = json.dumps(plain(state, "state")).encode()
    return len(head).to_bytes(8, "little") + head + bytes(blob)


def _array(kind: str, shape: List[int], raw: bytes) -> Any:
    if kind.startswith("torch."):
        import torch
        dtype = getattr(torch, kind[6:])
        return (torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape) if raw
                else torch.empty(shape, dtype=dtype))
    import numpy
    return numpy.frombuffer(bytearray(raw), kind).reshape(shape)


def unpacked(data: bytes) -> Dict[str, Any]:
    head = 8 + int.from_bytes(data[:8], "little")

    def value_of(value: Any) -> Any:
        if isinstance(value, list):
            return [value_of(v) for v in value]
        if not isinstance(value, dict):
            return value
        if _ARRAY in value:
            kind, shape, begin, size = value[_ARRAY]
            return _array(kind, shape, data[head + begin:head + begin + size])
        if _PAIRS in value:
            return {k: value_of(v) for k, v in value[_PAIRS]}
        return {k: value_of(v) for k, v in value.items()}
    return dict(value_of(json.loads(data[8:head]))) if head > 8 else {}


# ---- parameters ------------------------------------------------------------------------------


class _Place(NamedTuple):
    name: str
    role: str
    mine: Any  #: tensor or array that the run reads and overwrites
    memory: Optional[Memory]  #: None: it has no elements, and the run does not have it


def _own(value: Any) -> Tuple[Any, Optional[Memory]]:
    if _is_torch(value):
        from ._torch import check_tensor, memory_of as tensor_memory
        t = value.detach().cpu().clone().contiguous()
        if not t.numel():
            return t, None
        check_tensor("parameters", t)
        return t, tensor_memory(t)
    import numpy
    mine = numpy.array(value, order="C")
    return mine, memory_of(mine) if mine.size else None


class _Model:
    """The shared model in this process's memory, given and taken in the caller's shape."""

    def __init__(self, initial: Any) -> None:
        roles: Dict[str, str] = {}
        if hasattr(initial, "named_parameters"):
            from ._torch import named_tensors
            parameters, buffers = named_tensors(initial)
            roles = {n: "frozen" for n, p in parameters if not p.requires_grad}
            roles.update({n: "buffer" for n, _ in buffers})
            initial = dict([*parameters, *buffers])
        self._names = list(initial) if isinstance(initial, Mapping) else None
        values = list(initial.values()) if isinstance(initial, Mapping) else list(initial)
        self.places: List[_Place] = []
        for i, value in enumerate(values):
            name = self._names[i] if self._names is not None else f"p{i}"
            mine, memory = _own(value)
            trains = memory and memory.dtype in ("float32", "float16", "bfloat16")
            role = "parameter" if trains else "buffer"
            self.places.append(_Place(name, roles.get(name, role), mine, memory))

    def shaped(self, values: List[Any]) -> Any:
        return dict(zip(self._names, values)) if self._names is not None else values

    def given(self) -> Any:
        """A copy."""
        return self.shaped([p.mine.clone() if _is_torch(p.mine) else p.mine.copy()
                            for p in self.places])

    def take(self, client: str, values: Any) -> None:
        """InvalidError: a tensor is missing, or of another shape; by name."""
        if self._names is not None:
            missing = [n for n in self._names if n not in values]
            if missing:
                raise InvalidError(f"{client} returned no {missing[0]}: fit returns all parameters")
            values = [values[n] for n in self._names]
        if len(values) != len(self.places):
            raise InvalidError(f"{client} returned {len(values)} parameters of {len(self.places)}")
        for place, value in zip(self.places, values):
            if tuple(value.shape) != tuple(place.mine.shape):
                raise InvalidError(f"{client} returned {place.name} with shape "
                                   f"{list(value.shape)}, not {list(place.mine.shape)}")
            if _is_torch(place.mine):
                import torch
                place.mine.copy_(value.detach() if _is_torch(value) else torch.as_tensor(value))
            else:
                place.mine[...] = value.detach().cpu().numpy() if _is_torch(value) else value


# ---- which samples a client has ---------------------------------------------------------------


class _Samples:
    """The run's data.sampler over the classes of the caller's samples. InvalidError."""

    def __init__(self, classes: Any, config: Config) -> None:
        try:
            values = array.array("i", classes.tolist() if hasattr(classes, "tolist") else classes)
        except (TypeError, OverflowError) as error:
            raise InvalidError("classes are whole numbers, one for each sample "
                               f"({error})") from None
        library, self._handle = _c.lib(), ctypes.c_void_p()
        _c.check(library.diloco_division_create(
            ctypes.byref(self._handle), config._handle, values.buffer_info()[0], len(values),
            int(config["clients.total_clients"])))
        weakref.finalize(self, library.diloco_division_destroy, self._handle)

    def of(self, client: int) -> array.array[int]:
        """The numbers of the client's samples."""
        library = _c.lib()
        rows = array.array("q", bytes(8 * library.diloco_division_size(self._handle, client)))
        _c.check(library.diloco_division_list(rows.buffer_info()[0], self._handle, client))
        return rows


def _check_sampler(sampler: str, given: bool) -> None:
    """InvalidError: the sampler would be ignored, since there are no classes to divide by."""
    if given or sampler not in ("contiguous", "iid"):  # the default, and that of presets
        raise InvalidError(f"data.sampler = \"{sampler}\" divides samples by their classes: give "
                           "classes, the class of each sample, or leave data.sampler out and let "
                           "each client choose its own samples")


def _maker(make: Callable[..., Client], classes: Any, config: Config) -> Callable[[int], Client]:
    """``make`` as a function of the client's number alone."""
    if classes is None:
        _check_sampler(config["data.sampler"], False)
        return make
    samples = _Samples(classes, config)
    return lambda number: make(number, samples.of(number))


# ---- one process of a run --------------------------------------------------------------------


class _Process:
    def __init__(self, run: Run, model: _Model, make: Optional[Callable[[int], Client]],
                 room: bytearray, evaluate: Optional[Callable[[int, Any], Any]]) -> None:
        self.run, self.model, self.make, self.room = run, model, make, room
        self.evaluate = evaluate
        self.role = run.setting("run.role")
        self.every = int(run.setting("trainer.eval_every"))
        self.local_steps = int(run.setting("trainer.local_steps_per_round"))
        self.epochs = int(run.setting("trainer.epochs"))

    def _keep(self, name: str, state: Mapping[str, Any]) -> None:
        data = packed(state) if state else b""
        if len(data) > len(self.room):
            raise InvalidError(f"the private state of {name} has {len(data)} bytes, and "
                               f"state_bytes = {len(self.room)}: give run_clients a state_bytes of "
                               "at least that, on all workers")
        self.room[:] = data + bytes(len(self.room) - len(data))

    def fit(self, turn: Any, report: Any) -> None:
        assert self.make is not None
        name = f"client{turn.client}"
        client = self.make(turn.client)
        client.number = turn.client
        client.state = unpacked(bytes(self.room)) if len(self.room) and not turn.fresh else {}
        config = {"client": turn.client, "entry": turn.entry, "local_steps": self.local_steps,
                  "epochs": self.epochs, "steps": turn.steps, "next_sample": turn.next_sample}
        parameters, holds, metrics = client.fit(self.model.given(), config)
        metrics = dict(metrics or {})
        report.holds = counted(f"the samples of {name}", holds)
        steps = metrics.pop("steps", self.local_steps if holds else 0)
        report.steps = counted(f"\"steps\" of {name}", steps)
        report.samples = counted(f"\"samples\" of {name}", metrics.pop("samples", holds))
        report.tokens = counted(f"\"tokens\" of {name}", metrics.pop("tokens", 0))
        report.loss = _number(metrics.pop("loss", math.nan))
        self.model.take(name, parameters)
        self._keep(name, client.state)
        if metrics:
            self.run.record({"event": "metrics", "client": name, "entry": turn.entry,
                             **{k: _number(v) for k, v in metrics.items()}})

    def round(self, entry: int) -> None:
        now = self.run.now
        due = now.entry == now.entries or (self.every > 0 and now.entry % self.every == 0)
        if self.evaluate is None or not due or self.role == "worker":
            return
        measures = self.evaluate(entry, self.model.given())
        if measures:
            self.run.record({"event": "evaluation", "entry": entry,
                             **{k: _number(v) for k, v in measures.items()}})


def run_clients(make: Optional[Callable[..., Client]], initial: Any, store: Any,
                replica: str = "r0", *, classes: Any = None, state_bytes: int = 0,
                evaluate: Optional[Callable[[int, Any], Optional[Mapping[str, float]]]] = None,
                **options: Any) -> Any:
    """Live one process of a federated run to its end; the shared model, in the shape of
    ``initial``.

    ::

        model = diloco.run_clients(MyClient, net, "runs/fed", preset="fedavg",
                                   clients__total_clients=1000, clients__per_round=20, rounds=50)

    ``make``: called with a client's number before each of its turns, gives its `Client`; None for
    ``role="server"``. ``classes``: the class of each training sample, from 0. The run's
    data.sampler then divides the samples, and ``make`` is called with the number and the client's
    samples, an array of their numbers. ``initial``: a torch module, or a mapping or sequence of torch tensors or
    numpy arrays, from which a new run begins. ``state_bytes``: room for one client's packed private
    state, the same on all workers. ``evaluate``: called with the entry and a copy of the shared
    model after every trainer.eval_every rounds and the last one, by a process that closes rounds;
    its result goes to the record. Options as of `Run`: ``role`` is "both", "worker" or
    "server".

    The result of ``fit`` has to follow from the parameters, the client's state and its data, since
    another worker may train the same client. Raises what the two functions raise, InvalidError for
    results that do not fit the run, and what Run.join and Run.step do.
    """
    model, room = _Model(initial), bytearray(state_bytes)
    with Run(store, replica, _model="python", **options) as run:
        if make is not None and classes is None and run._config.origin("data.sampler") == "python":
            _check_sampler(run._config["data.sampler"], True)
        for place in model.places:
            if place.memory:
                run.tensor(place.name, place.memory, role=place.role)
        if state_bytes:
            run.private("client.state", room)
        process: List[_Process] = []

        def here() -> _Process:
            """Once the run's own settings are known: after the join."""
            if not process:
                by_number = make and _maker(make, classes, RunLog(run.store).config())
                process.append(_Process(run, model, by_number, room, evaluate))
            return process[0]

        def called(call: Callable[[], None]) -> int:
            run._guard(call)
            return 0 if run._raised is None else IOFailedError.status

        fit = _c.FIT_FN(lambda _u, turn, report: called(
            lambda: here().fit(turn.contents, report.contents)))
        round_ = _c.ROUND_FN(lambda _u, entry: called(lambda: here().round(entry)))
        calls = _c.Clients(user=None, fit=fit if make is not None else _c.FIT_FN(), round=round_)
        run._wait(_c.lib().diloco_clients_run_sized, ctypes.byref(calls), ctypes.sizeof(calls))
        return model.given()


def _numbers(clients: Iterable[int], total: int) -> List[int]:
    """InvalidError: the list is empty, or one is not from 1 to ``total``."""
    asked = list(clients)
    wrong = [n for n in asked if not (isinstance(n, numbers.Integral) and 1 <= n <= total)]
    if wrong or not asked:
        raise InvalidError(f"{wrong[0]!r} is no client of the run: they are 1 to {total}" if wrong
                           else "give the numbers of the clients that evaluate the model")
    return [int(n) for n in asked]


def _evaluated(client: Client, parameters: Any) -> Tuple[float, int, Dict[str, Any]]:
    """InvalidError: `evaluate` returned something else than it has to."""
    got = client.evaluate(parameters, {"client": client.number})
    try:
        loss, n, measures = got
        return float(loss), operator.index(n), dict(measures)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"evaluate of client{client.number} has to return the loss, the number "
                           f"of samples and a mapping of other measures ({error})") from None


def evaluate_clients(make: Callable[..., Client], initial: Any, store: Any,
                     clients: Iterable[int], *, classes: Any = None) -> Dict[str, Any]:
    """Evaluate a run's shared model on clients' own data: the mean loss by samples, "samples", and
    each client's measures under its number. ``make``, ``classes`` and ``initial`` as for
    `run_clients`; of ``initial`` only the shapes are used. ``clients``: their numbers, 1 to
    clients.total_clients."""
    model, theta, config = _Model(initial), RunLog(store).theta(), RunLog(store).config()
    asked = _numbers(clients, int(config["clients.total_clients"]))
    make = _maker(make, classes, config)
    theta.update({p.name: p.mine for p in model.places if not p.memory})
    missing = [p.name for p in model.places if p.name not in theta]
    if missing:
        raise InvalidError(f"the run has no {missing[0]}: make the model that the run trains")
    model.take("the run", model.shaped([
        t.reshape(p.mine.shape) if is_shape_of(t.shape, p.mine.shape) else t
        for p, t in ((p, theta[p.name]) for p in model.places)]))
    total, samples, each = 0.0, 0, {}
    for number in asked:
        client = make(number)
        client.number, client.state = number, {}
        loss, n, measures = _evaluated(client, model.given())
        total, samples = total + loss * n, samples + n
        each[number] = {"loss": loss, "samples": n, **measures}
    return {"loss": total / samples if samples else math.nan, "samples": samples, "clients": each}
