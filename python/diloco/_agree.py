"""The arguments that all ranks of an island give alike. Rank 0's are those of the run, and a rank with
another optimizer would wait for messages that no rank sends."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from ._guards import check_replica, check_store
from ._run import Run
from .errors import DiffersError

_NUMBERS = (bool, int, float)


class Fact(NamedTuple):
    exact: str  #: for the comparison; a digest, because the ranks' connection is not encrypted
    shown: str  #: for a message, without secrets


def _fact(exact: str, shown: str) -> Fact:
    return Fact(hashlib.sha256(exact.encode(errors="surrogatepass")).hexdigest(), shown)


def _shown(value: Any) -> str:
    """Options may be secrets, so only a number is shown."""
    return repr(value) if value is None or isinstance(value, _NUMBERS) else "a value"


def _argument(value: Any) -> Fact:
    """Of a part that is an object, its type."""
    plain = value is None or isinstance(value, (str, *_NUMBERS, os.PathLike))
    return _fact(str(value) if plain else type(value).__name__, _shown(value))


def arguments(run: Any, replica: str, options: Mapping[str, Any], extra: Mapping[str, Any],
              keeps_inner_state: bool, fragments: Any, pipeline: bool,
              group: Any) -> Dict[str, Fact]:
    """The arguments of an optimizer that all ranks give alike."""
    parts = f"{len(fragments)} parts" if isinstance(fragments, (list, tuple)) else repr(fragments)
    names = ", ".join(sorted(extra)) or "nothing"
    kind = "none" if group is None else type(group).__name__
    facts = {"pipeline": _fact(str(pipeline), str(pipeline)), "fragments": _fact(parts, parts),
             "group": _fact(kind, kind),
             "keep_inner_state": _fact(str(keeps_inner_state), str(keeps_inner_state)),
             "the scheduler and the extra state": _fact(names, names)}
    if not isinstance(run, Run):
        check_store(run)
        check_replica(replica)
        facts["the store of the run"] = _fact(str(os.fspath(run)), "a store")
        facts["replica"] = _fact(replica, repr(replica))
        whole = options.get("options") or {}
        every = {**{k: v for k, v in options.items() if k != "options"}, **whole}
        facts.update({f"option {name}": _argument(value) for name, value in every.items()})
    return facts


def _number(value: Any) -> Any:
    """A tensor of one element as a number, on whichever device it is."""
    return float(value) if getattr(value, "numel", lambda: 0)() == 1 else value


def _option(value: Any) -> str:
    """A number or several of them, else nothing or how many things it has: objects and tensors differ
    between ranks by their addresses, devices or memory."""
    if isinstance(value, (tuple, list)):
        items = [_number(item) for item in value]
        plain = all(item is None or isinstance(item, _NUMBERS) for item in items)
        return str(items) if plain else f"{len(items)} items"
    value = _number(value)
    return str(value) if isinstance(value, _NUMBERS) else ""


def _options_of(group: Mapping[str, Any]) -> str:
    found = [(k, _option(v)) for k, v in sorted(group.items()) if k not in ("params", "param_names")]
    return ", ".join(f"{k} {text}" for k, text in found if text)


def optimizer_facts(inner: Any, parameters: Sequence[Tuple[str, Any]]) -> Dict[str, Fact]:
    """The optimizer's type, the options of its groups, and each parameter's place in them."""
    kind = type(inner).__name__
    facts = {"the inner optimizer": _fact(kind, kind)}
    places = {}
    for g, group in enumerate(inner.param_groups):
        text = _options_of(group)
        facts[f"group {g} of the inner optimizer"] = _fact(text, text)
        places.update({id(p): f"place {i} of group {g}" for i, p in enumerate(group["params"])})
    for name, p in parameters:
        place = places.get(id(p), "no place")
        facts[f"{name} in the inner optimizer"] = _fact(place, place)
    return facts


def check(everyone: List[Dict[str, Fact]]) -> None:
    """DiffersError: a rank's facts are not those of rank 0."""
    none = Fact("", "none")
    for rank, theirs in enumerate(everyone):
        for name in [*everyone[0], *(n for n in theirs if n not in everyone[0])]:
            ours, other = everyone[0].get(name, none), theirs.get(name, none)
            if ours.exact == other.exact:
                continue
            seen = (f"rank 0 has {ours.shown}, rank {rank} has {other.shown}"
                    if ours.shown != other.shown else f"rank {rank} has another one than rank 0")
            raise DiffersError(f"the ranks of this island disagree on {name}: {seen}: make the "
                               "optimizer with the same arguments on all ranks")


def check_messages(everyone: Sequence[Mapping[str, Fact]]) -> None:
    """As `check`, of the arguments that decide which messages the ranks exchange next."""
    check([{k: v for k, v in facts.items() if k == "pipeline"} for facts in everyone])
