"""A torch optimizer as a run's outer optimizer.

A run's outer step is a pure function of theta, the vectors and the number of commits, so that
a joining replica can continue. An optimizer's state is brought into that form. A tensor of a
parameter's shape (momentum_buffer; exp_avg, exp_avg_sq) is a vector of the run. A count of steps is
the number of commits. Both are found by letting a copy take two steps on three numbers. On each
call a copy of the optimizer is made whose parameters are views of theta, in their shapes, so
optimizers that look at matrices see them.
"""

from __future__ import annotations

import collections
import copy
import ctypes
import hashlib
import math
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch

from ._outer import OuterOptimizer, OuterStep, Registered, short_name
from .errors import InvalidError, RefusedError

# Another release of torch may round an optimizer's step differently.
_RELEASE = ".".join(re.findall(r"\d+", torch.__version__)[:2])
_LIVE = ("params", "lr", "initial_lr")  # of a group: not options that decide which optimizer it is


def copy_of(inner: Any, groups: List[Dict[str, Any]]) -> Any:
    """The optimizer with other parameters, without state, without the hooks of the original."""
    other: Any = object.__new__(type(inner))
    other.__dict__.update({k: v for k, v in inner.__dict__.items() if k != "step"})
    for name, value in inner.__dict__.items():
        if name.startswith("_optimizer_") and isinstance(value, dict):
            other.__dict__[name] = collections.OrderedDict()
    other.param_groups, other.state = groups, collections.defaultdict(dict)
    return other


class _State(NamedTuple):
    """How a parameter's state follows from the run's."""

    vectors: Tuple[str, ...]
    counters: Dict[str, Any]  #: by name, a value whose kind it has


def _one_group(optimizer: Any) -> Dict[str, Any]:
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
    if any(g != groups[0] for g in groups):
        raise RefusedError(f"outer optimizer {type(optimizer).__name__} has groups with different "
                           "options: with a run, all parameters have one")
    return groups[0]


def _probe(optimizer: Any, group: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """A parameter's state after one step, and after two."""
    p = torch.nn.Parameter(torch.zeros(3))
    other, seen = copy_of(optimizer, [{**group, "params": [p]}]), []
    for _ in range(2):
        p.grad = torch.zeros(3)
        type(optimizer).step(other)
        seen.append({k: copy.deepcopy(v) for k, v in other.state[p].items() if v is not None})
    return seen


def _learn(optimizer: Any, group: Mapping[str, Any]) -> _State:
    """RefusedError: a state that the run could not give to a joiner."""
    kind = type(optimizer).__name__
    try:
        once, twice = _probe(optimizer, group)
    except Exception as error:  # noqa: B902: whatever an optimizer does without its own state
        raise RefusedError(f"outer optimizer {kind} cannot begin from theta and vectors of zeros "
                           f"alone ({error}): name one of the library's, or give "
                           "diloco.OuterOptimizer") from error
    vectors, counters = [], {}
    for name, value in twice.items():
        if isinstance(value, torch.Tensor) and value.shape == (3,):
            vectors.append(name)
        elif name in once and float(once[name]) == 1 and float(value) == 2:
            counters[name] = value
        else:
            raise RefusedError(f"outer optimizer {kind} has a state {name} that is neither a "
                               "vector nor the number of steps: the run's log cannot pass it to "
                               "a replica that joins")
    return _State(tuple(vectors), counters)


class _TorchStep:
    def __init__(self, optimizer: Any, group: Dict[str, Any], state: _State,
                 registered: Sequence[Registered], all_floating: bool) -> None:
        self._optimizer, self._group, self._state = optimizer, group, state
        self._registered, self._all_floating = registered, all_floating

    def _shapes(self, fragment: int) -> List[Tuple[int, ...]]:
        """Of what the outer optimizer moves in a fragment, in the order of its memory."""
        return [r.shape for r in self._registered
                if r.fragment == fragment and (r.role == "parameter" or (
                    self._all_floating and r.dtype not in ("int64", "bool")))]

    def _rate(self, told: float) -> float:
        """The entry's, which is a float32; as it was written, where it is that."""
        mine = float(self._group["lr"])
        return mine if ctypes.c_float(mine).value == told else told

    def _state_of(self, views: Mapping[str, torch.Tensor], commits: int) -> Dict[str, Any]:
        counters: Dict[str, Any] = {
            name: torch.full_like(v, commits) if isinstance(v, torch.Tensor) else type(v)(commits)
            for name, v in self._state.counters.items()}
        return {**views, **counters}

    def __call__(self, step: OuterStep) -> None:
        theta, vectors = torch.frombuffer(step.theta, dtype=torch.float32), {
            name: torch.frombuffer(v, dtype=torch.float32) for name, v in step.vectors.items()}
        g = torch.frombuffer(step.g, dtype=torch.float32).clone()  # theirs is only to be read
        shapes = self._shapes(step.fragment)
        sizes = [math.prod(s) for s in shapes]
        if sum(sizes) != theta.numel():
            raise InvalidError(f"fragment {step.fragment} has {theta.numel()} elements, and "
                               f"{sum(sizes)} were registered")

        def parts(whole: torch.Tensor) -> List[torch.Tensor]:
            return [p.view(s) for p, s in zip(whole.split(sizes), shapes)]
        parameters = [torch.nn.Parameter(p) for p in parts(theta)]
        of_each = {name: parts(v) for name, v in vectors.items()}
        other = copy_of(self._optimizer, [{**self._group, "params": parameters,
                                           "lr": self._rate(step.learning_rate)}])
        for i, (p, grad) in enumerate(zip(parameters, parts(g))):
            p.grad = grad
            if step.commits:
                other.state[p] = self._state_of({n: v[i] for n, v in of_each.items()}, step.commits)
        type(self._optimizer).step(other)
        for i, p in enumerate(parameters):
            for name, views in of_each.items():
                value = other.state[p].get(name)
                if value is not None and value.data_ptr() != views[i].data_ptr():
                    views[i].copy_(value)


def outer_of(optimizer: Any, registered: Sequence[Registered],
             all_floating: bool) -> Tuple[OuterOptimizer, float]:
    """The optimizer for a run, and its learning rate. ``registered`` may still grow. InvalidError:
    it is no optimizer; RefusedError: one whose state the log cannot hold."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidError(f"outer_optimizer is a {type(optimizer).__name__}: it is a name, a "
                           "torch optimizer, or a diloco.OuterOptimizer")
    group = _one_group(optimizer)
    state = _learn(optimizer, group)
    kind = type(optimizer)
    said = repr(sorted((k, repr(v)) for k, v in group.items() if k not in _LIVE))
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__} {said}".encode()).hexdigest()
    step = _TorchStep(optimizer, group, state, registered, all_floating)
    name = short_name(f"torch{_RELEASE}", kind.__name__, digest)
    return OuterOptimizer(name, step, state.vectors), float(group["lr"])
