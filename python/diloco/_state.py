"""A replica's private state in a torch training loop, as bytes that the run saves beside itself. It has
the inner optimizer's state, the random generators, and small objects with a ``state_dict``.

The library wants to know the size before the first step, when most optimizers have no state yet.
So a copy of the optimizer on the meta device (no memory, no arithmetic) takes a step there, and
its state gives names, shapes and types. Where that cannot be (an optimizer that looks at values),
the copy is on the CPU.

    1 byte a parameter      it has state
    tensors, one after the other, in the order of parameters and of names
    float64 a number
    JSON, padded with zeros learning rates and other options of the groups
"""

from __future__ import annotations

import collections
import json
import logging
import re
import sys
from typing import (Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple,
                    Union)

import torch

from . import _copies
from ._guards import check_masters
from ._island import Island
from ._memory import is_full, needs
from ._outer_torch import copy_of
from ._mirrors import Mirror
from ._shards import OfRank, Sharded, is_sharded
from .errors import InvalidError, ProtocolError, RefusedError

_JSON_ROOM = 64 * 1024
_log = logging.getLogger("diloco")


class Slot(NamedTuple):
    """One value of a parameter's state."""

    parameter: int
    name: str
    kind: str  #: "like": of the parameter's shape and place; "there": on its device; "tensor":
    #: where torch makes it; "number"
    shape: Tuple[int, ...]
    dtype: torch.dtype
    python: type  #: of a number


def all_parameters(inner: Any) -> List[torch.Tensor]:
    return [p for group in inner.param_groups for p in group["params"]]


def check_trains(inner: Any, parameters: Iterable[torch.Tensor]) -> None:
    """RefusedError: it has master weights. InvalidError: the inner optimizer has none of these
    parameters (but another model's, or copies), so it would not train the shared values."""
    check_masters(inner)
    ours = {id(p) for p in parameters}
    if not any(id(p) in ours for p in all_parameters(inner)):
        raise InvalidError(f"the {type(inner).__name__} has none of the parameters that are "
                           "synchronised: make it of the same model's parameters")


def warn_others(inner: Any, parameters: Iterable[torch.Tensor]) -> None:
    """A warning if the optimizer trains parameters that are not the model's, such as a loss's own."""
    ours = {id(p) for p in parameters}
    others = [p for p in all_parameters(inner) if p.requires_grad and id(p) not in ours]
    if others:
        _log.warning("the %s also trains %d tensors that are not in the model that was passed (the "
                     "first has the shape %s): they stay this replica's own, and other replicas do "
                     "not get them; pass a module that has them, too", type(inner).__name__,
                     len(others), list(others[0].shape))


def _probe(inner: Any, device: str) -> Dict[int, Mapping[str, Any]]:
    """State after one step, by number of the parameter, of a copy on another device."""
    stand_ins: List[torch.Tensor] = []
    groups = []
    for group in inner.param_groups:
        mine = []
        for p in group["params"]:
            q = torch.nn.Parameter(torch.zeros(p.shape, dtype=p.dtype, device=device),
                                   requires_grad=p.requires_grad)
            q.grad = torch.zeros_like(q) if p.requires_grad else None
            mine.append(q)
        stand_ins += mine
        groups.append({**group, "params": mine})
        if "capturable" in group:  # which no copy's device is
            groups[-1]["capturable"] = False
    copy = copy_of(inner, groups)
    type(inner).step(copy)
    return {i: copy.state[q] for i, q in enumerate(stand_ins) if q in copy.state}


class _Template(NamedTuple):
    states: Dict[int, Mapping[str, Any]]
    device: str  #: "meta", "cpu": of the copy that took a step; "": they are the optimizer's own


def _template(inner: Any) -> _Template:
    """RefusedError: an optimizer that cannot take a step by itself."""
    have = {i: inner.state[p] for i, p in enumerate(all_parameters(inner)) if p in inner.state}
    if have and len(have) == sum(p.requires_grad for p in all_parameters(inner)):
        return _Template(have, "")
    try:
        return _Template(_probe(inner, "meta"), "meta")
    except Exception:  # noqa: B902: whatever an optimizer does with values that are not there
        pass
    try:
        return _Template(_probe(inner, "cpu"), "cpu")
    except Exception as error:  # noqa: B902: a closure that it lacks, a device that it wants
        if is_full(error):
            raise
        raise RefusedError(
            f"the state of {type(inner).__name__} is unknown before its first step ({error}): "
            "pass keep_inner_state=False, and a replica that restarts begins with new "
            "moments") from error


def _is_there(p: torch.Tensor, group: Mapping[str, Any], name: str, value: torch.Tensor,
              probed: str) -> bool:
    """Is the value where the parameter is, or would be for its own optimizer?"""
    if value.device.type == p.device.type:
        return True
    if not probed:
        return False
    if group.get("capturable") or group.get("fused"):  # these count steps there as well
        return True
    if probed == "meta":
        return bool(value.device.type == "meta")
    return value.dim() > 0 or p.dim() == 0 and name != "step"


def slots_of(inner: Any) -> List[Slot]:
    """RefusedError: a value that is neither a tensor nor a number; or the slots are unknown."""
    owners = [(p, group) for group in inner.param_groups for p in group["params"]]
    template, slots = _template(inner), []
    for i, state in sorted(template.states.items()):
        p, group = owners[i]
        for name, value in sorted(state.items(), key=lambda item: str(item[0])):
            if isinstance(value, torch.Tensor):
                there = _is_there(p, group, name, value, template.device)
                like = there and value.shape == p.shape and (value.dim() > 0 or name != "step")
                slots.append(Slot(i, name, "like" if like else "there" if there else "tensor",
                                  tuple(value.shape), value.dtype, float))
            elif isinstance(value, (bool, int, float)):
                slots.append(Slot(i, name, "number", (), torch.float64, type(value)))
            elif value is not None:
                raise RefusedError(
                    f"{type(inner).__name__} keeps a {type(value).__name__} ({name}) in its "
                    "state, which cannot be saved for a bitwise resume: pass "
                    "keep_inner_state=False, and a replica that restarts begins with new moments")
    return slots


def _is_plain(value: torch.Tensor) -> bool:
    """Whether its memory is the host's, and has its values in row-major order."""
    return _copies.queue.is_at_host(value) and not is_sharded(value) and value.is_contiguous()


def _empty(slot: Slot, p: torch.Tensor) -> torch.Tensor:
    if slot.kind == "like":
        return torch.zeros_like(p, dtype=slot.dtype, requires_grad=False)
    if slot.kind == "there":
        return torch.zeros(slot.shape, dtype=slot.dtype, device=p.device)
    return torch.zeros(slot.shape, dtype=slot.dtype)


class InnerState:
    """The inner optimizer's state and its groups' options as one room of bytes."""

    def __init__(self, inner: Any, island: Island) -> None:
        self._inner, self._island = inner, island
        with needs(lambda: f"find the state of {type(inner).__name__} by a step of a copy"):
            self._slots = slots_of(inner)
        self._groups = Json(f"{type(inner).__name__}.param_groups", _JSON_ROOM, self._options,
                            self._take_options, island)
        self._names: Dict[int, Set[str]] = collections.defaultdict(set)
        for slot in self._slots:
            self._names[slot.parameter].add(slot.name)
        sizes = [s.dtype.itemsize * max(1, torch.Size(s.shape).numel()) for s in self._slots]
        self._flags = len(all_parameters(inner))
        self._begins, at = [], _aligned(self._flags)
        for size in sizes:
            self._begins.append(at)
            at = _aligned(at + size)
        self._json_at = at
        size = at + _JSON_ROOM if island.leads else 0
        with needs(lambda: f"keep the state of {type(inner).__name__} in host memory "
                           f"({size} bytes)"):
            self._memory = _copies.Room(size)
        self._room = self._memory.bytes

    def room(self) -> torch.Tensor:
        return self._room

    def check(self) -> None:
        """InvalidError: parameters were added or removed since the join."""
        count = sum(len(group["params"]) for group in self._inner.param_groups)
        if count != self._flags:
            raise InvalidError(f"the {type(self._inner).__name__} has {count} parameters, and had "
                               f"{self._flags} when the run was joined: all replicas register the "
                               "same tensors then, so add_param_group comes before it: take "
                               "the group away to continue")

    def _view(self, room: torch.Tensor, slot: Slot, begin: int) -> Optional[torch.Tensor]:
        if not self._island.leads:
            return None
        n = torch.Size(slot.shape).numel()
        flat = room[begin:begin + n * slot.dtype.itemsize]
        return flat.view(slot.dtype).reshape(slot.shape)

    def _moved(self, value: torch.Tensor) -> Union[Mirror, Sharded]:
        return Sharded(value, self._island) if is_sharded(value) else Mirror(value)

    def _each(self, present: List[bool]) -> List[Tuple[Slot, int]]:
        return [(s, b) for s, b in zip(self._slots, self._begins) if present[s.parameter]]

    def _check_names(self, parameters: Sequence[torch.Tensor]) -> None:
        """RefusedError: the state has other values than after the optimizer's first step."""
        for i, p in enumerate(parameters):
            names = {name for name, value in self._inner.state.get(p, {}).items() if value is not None}
            other = names ^ self._names[i] if names else set()
            if other:
                name = min(other, key=str)
                raise RefusedError(
                    f"{type(self._inner).__name__} {'began' if name in names else 'ceased'} to keep "
                    f"{name} in its state after its first step, so no room is kept for it: pass "
                    "keep_inner_state=False, and a replica that restarts begins with new moments")

    def pack(self, room: Optional[torch.Tensor] = None) -> None:
        room = self._room if room is None else room
        state, parameters = self._inner.state, all_parameters(self._inner)
        self._check_names(parameters)
        present = [bool(state.get(p)) for p in parameters]
        moved, in_host = [], []
        for slot, begin in self._each(present):
            value = state[parameters[slot.parameter]].get(slot.name)
            if slot.kind == "number":
                value = torch.tensor(float(value), dtype=torch.float64)
            if tuple(value.shape) != slot.shape or value.dtype != slot.dtype:
                raise RefusedError(f"{type(self._inner).__name__} changed the shape of {slot.name} "
                                   "in its state: pass keep_inner_state=False")
            view = self._view(room, slot, begin)
            if view is not None and _is_plain(value):
                in_host.append((view, value.detach()))
            else:
                moved.append((self._moved(value), view))
        _copies.copy_host(in_host)
        for m, view in moved:
            m.down(view)
        self._island.finish()
        _copies.queue.wait()
        if self._island.leads:
            room[:self._flags] = torch.tensor(present, dtype=torch.uint8)
            room[self._json_at:] = self._groups.packed()

    def unpack(self) -> None:
        """Restore from the room, which then is empty."""
        state, parameters = self._inner.state, all_parameters(self._inner)
        lead = self._island.lead
        present = lead(lambda: [bool(b) for b in self._room[:self._flags].tolist()])
        for slot, begin in self._each(present):
            p = parameters[slot.parameter]
            with needs(lambda: f"restore {slot.name} of parameter {slot.parameter} of "  # noqa: B023
                               f"{type(self._inner).__name__} on {p.device}"):  # noqa: B023
                value = _empty(slot, p)
                self._moved(value).up(self._view(self._room, slot, begin))
                self._island.finish()
                _copies.queue.wait()
                if not is_sharded(value):
                    self._island.share(value)
            state[p][slot.name] = slot.python(value.item()) if slot.kind == "number" else value
        self._groups.unpack_from(lead(lambda: self._room[self._json_at:]))
        self._memory.drop()

    def _options(self) -> Any:
        return [{k: v.item() if isinstance(v, torch.Tensor) else v for k, v in group.items()
                 if isinstance(v, (bool, int, float, list, tuple)) and k != "params"
                 and k != "param_names" or isinstance(v, torch.Tensor) and v.numel() == 1}
                for group in self._inner.param_groups]

    def _take_options(self, saved: Any) -> None:
        for group, options in zip(self._inner.param_groups, saved):
            for key, value in options.items():
                if isinstance(group.get(key), torch.Tensor):
                    group[key].fill_(value)
                elif key in group:
                    group[key] = type(group[key])(value) if isinstance(value, list) else value


def _aligned(n: int) -> int:
    return (n + 15) // 16 * 16


_MAPPING = "diloco.mapping"  # [kind, pairs]: a mapping that a JSON object cannot be
_KINDS = {"dict": dict, "Counter": collections.Counter}


def _number_of(value: Any) -> Any:
    """A scalar of numpy as Python's own; other values as they are."""
    numpy = sys.modules.get("numpy")
    return value.item() if numpy is not None and isinstance(value, numpy.generic) else value


def _plain(value: Any, place: str) -> Any:
    """The value as JSON knows it, tuples as lists. RefusedError: it would not come back equal."""
    value = _number_of(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v, f"{place}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, dict):
        raise RefusedError(f"{place} is of type {type(value).__name__}: a state that is to be "
                           "saved is plain numbers, texts, lists and mappings")
    for key in value:
        if key is not None and not isinstance(key, (bool, int, float, str)):
            raise RefusedError(f"a key of {place} is of type {type(key).__name__}: in a state that "
                               "is to be saved it is a text or a number")
    plain = {key: _plain(v, f"{place}.{key}") for key, v in value.items()}
    kind = "Counter" if isinstance(value, collections.Counter) else "dict"
    if kind == "dict" and _MAPPING not in plain and all(isinstance(key, str) for key in plain):
        return plain
    return {_MAPPING: [kind, list(plain.items())]}


def _as_it_was(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_it_was(v) for v in value]
    if not isinstance(value, dict):
        return value
    if _MAPPING not in value:
        return {key: _as_it_was(v) for key, v in value.items()}
    kind, pairs = value[_MAPPING]
    return _KINDS[kind]({key: _as_it_was(v) for key, v in pairs})


class Json:
    """A value as JSON in a room of fixed size, padded with zeros. ``name`` is for messages."""

    def __init__(self, name: str, size: int, get: Any, take: Any, island: Island) -> None:
        self._get, self._take, self._size, self._island = get, take, size, island
        self._name = name
        self._room = torch.zeros(size, dtype=torch.uint8)

    def room(self) -> torch.Tensor:
        return self._room

    def packed(self) -> torch.Tensor:
        try:
            text = json.dumps(_plain(self._get(), self._name)).encode()
        except RecursionError:
            raise RefusedError(f"{self._name} holds itself: a state that is to be saved is plain "
                               "numbers, texts, lists and mappings") from None
        if len(text) > self._size:
            raise RefusedError(f"{self._name}: a state that is to be saved has {len(text)} bytes "
                               f"as text, of at most {self._size}")
        return torch.frombuffer(bytearray(text.ljust(self._size, b"\0")), dtype=torch.uint8)

    def unpack_from(self, room: torch.Tensor) -> None:
        text = bytes(room.tolist()).rstrip(b"\0")
        if not text:
            return
        try:
            self._take(_as_it_was(json.loads(text)))
        except ValueError as error:
            raise ProtocolError(f"saved private state is not the text it was: {error}") from None

    def pack(self, room: Optional[torch.Tensor] = None) -> None:
        (self._room if room is None else room)[:] = self.packed()

    def unpack(self) -> None:
        self.unpack_from(self._island.lead(lambda: self._room))


_CUDA_STATE = 16  # bytes of a CUDA generator's state
_CUDA_DEVICES = 16


class Generators:
    """The states of torch's random generators: the CPU's, then 1 byte (the number of CUDA's that
    follow) and those of the model's CUDA devices, in their order. The size is the same on every
    machine, so that a replica may move between machines with and without CUDA.

    ``devices``: where the model is; none: the current device, if CUDA is in use."""

    def __init__(self, devices: Sequence[torch.device] = ()) -> None:
        self._devices: List[Tuple[torch.device, ...]] = [(d,) for d in devices[:_CUDA_DEVICES]]
        self._n = torch.get_rng_state().numel()
        self._room = torch.zeros(self._n + 1 + _CUDA_STATE * _CUDA_DEVICES, dtype=torch.uint8)

    def room(self) -> torch.Tensor:
        return self._room

    def _each(self) -> List[Tuple[Tuple[torch.device, ...], slice]]:
        """Arguments of CUDA's functions, and the place of the state."""
        begin = self._n + 1
        return [(d, slice(begin + i * _CUDA_STATE, begin + (i + 1) * _CUDA_STATE))
                for i, d in enumerate(self._devices or [()])]

    def pack(self, room: Optional[torch.Tensor] = None) -> None:
        room = self._room if room is None else room
        cuda = _copies.cuda
        in_use = cuda.is_available() and cuda.is_initialized()
        room[:self._n] = torch.get_rng_state()
        room[self._n] = len(self._each()) if in_use else 0
        for device, at in self._each() if in_use else ():
            room[at] = cuda.get_rng_state(*device)

    def unpack(self) -> None:
        cuda = _copies.cuda
        torch.set_rng_state(self._room[:self._n].clone())
        saved = int(self._room[self._n]) if cuda.is_available() else 0
        for device, at in self._each()[:saved]:
            cuda.set_rng_state(self._room[at].clone(), *device)


def _cuda_devices(inner: Any) -> List[torch.device]:
    """The devices of the optimizer's parameters, each once."""
    found = (_copies.device_of(p) for p in all_parameters(inner))
    return list(dict.fromkeys(d for d in found if d is not None))


def _of_ranks(name: str, mine: Any, island: Island) -> Dict[str, Any]:
    """The piece of each rank of a pipeline, by name."""
    sizes = island.tell(island.gather(mine.room().numel()))
    return {f"{name}.stage{rank}": OfRank(mine if rank == island.rank else None, rank, size, island)
            for rank, size in enumerate(sizes)}


KeepInner = Union[bool, str]


def take_keep(keep: KeepInner, options: Dict[str, Any]) -> bool:
    """Whether inner state is kept; "entry:N" also sets how often it is saved. InvalidError: it is
    neither, or ``options`` has another run.save_every."""
    if isinstance(keep, bool):
        return keep
    match = re.fullmatch(r"entry:([1-9][0-9]*)", keep) if isinstance(keep, str) else None
    if match is None:
        raise InvalidError(f"keep_inner_state={keep!r}: it is True, False, or \"entry:N\", which saves "
                           "the private state every N entries")
    if options.setdefault("run__save_every", int(match[1])) != int(match[1]):
        raise InvalidError(f"keep_inner_state={keep!r} and run__save_every="
                           f"{options['run__save_every']} differ: pass one of them")
    return True


def check_saves(run: Any, keep: KeepInner, options: Dict[str, Any]) -> None:
    """Remove from ``options`` the option that `take_keep` added. InvalidError: a Run of the caller's
    own does not save every N entries, as ``keep`` demands."""
    every = options.pop("run__save_every", None) if isinstance(keep, str) else None
    if every is not None and run.setting("run.save_every") != str(every):
        raise InvalidError(f"keep_inner_state={keep!r}, and the Run that was given saves every "
                           f"{run.setting('run.save_every')} entries: make it with "
                           f"run__save_every={every}")


def pieces(inner: Any, island: Island, keep_inner_state: bool, extra: Mapping[str, Any],
           pipeline: bool = False) -> Dict[str, Any]:
    """The private pieces of a training loop, by name."""
    found: Dict[str, Any] = {}
    if keep_inner_state and pipeline:
        found.update(_of_ranks("torch.optimizer", InnerState(inner, Island()), island))
    elif keep_inner_state:
        found["torch.optimizer"] = InnerState(inner, island)
    if pipeline:
        found.update(_of_ranks("torch.generators", Generators(_cuda_devices(inner)), island))
    elif island.size == 1:  # ranks of another island have generators each
        found["torch.generators"] = Generators(_cuda_devices(inner))
    for name, thing in extra.items():
        found[f"torch.extra.{name}"] = Json(name, _JSON_ROOM, thing.state_dict,
                                            thing.load_state_dict, island)
        found[f"torch.extra.{name}"].packed()  # Refused now, and not at the first due point.
    return found
