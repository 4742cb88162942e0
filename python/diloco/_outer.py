"""An outer optimizer of the caller's own for a run: diloco/user.h with Python's manners."""

from __future__ import annotations

import ctypes
import dataclasses
import re
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

from . import _c
from ._signals import held_back
from .errors import InvalidError, IOFailedError, NumericError


class OuterStep(NamedTuple):
    """One outer step of a fragment. theta, vectors and g are memoryviews of float32, of the library's own memory, and
    valid during the call; numpy.frombuffer and torch.frombuffer take them as they are."""

    fragment: int
    commits: int  #: outer steps that were taken on the fragment: 0 at the first
    learning_rate: float  #: of the entry: server.diloco.outer_learning_rate by its schedule
    momentum: float  #: server.diloco.outer_momentum
    theta: Any  #: in: the shared parameters, one after the other; out: the new ones
    vectors: Dict[str, Any]  #: the optimizer's own, as long as theta; 0 at first
    g: Any  #: the combined movement, before - after: step against it; only read


@dataclasses.dataclass(frozen=True)
class OuterOptimizer:
    """An outer optimizer of the caller's own: ``diloco.Run(…, outer_optimizer=OuterOptimizer(…))``.

    ``step`` is called once for each committed fragment (once more where another's proposal of the
    entry won, and for entries that a join or a resume replays), and changes ``theta`` and
    ``vectors`` in place. Every replica calls it for itself and has to get the same
    bits, so it is a function of its argument alone. Its memory is in ``vectors``, at most two.
    ``name``: 1 to 26 letters, digits and ._- signs; the run's option says "user:<name>", and a
    replica without an optimizer of that name is refused. One that computes something else needs
    another name. NumericError aborts the entry. Any other exception of ``step`` is raised by the
    run's step, and ends the run. A Ctrl-C waits until the current call is over, and the run can
    continue; a second one acts at once.
    """

    name: str
    step: Callable[[OuterStep], None]
    vectors: Sequence[str] = ()


class Registered(NamedTuple):
    """A tensor of a run, as far as an outer optimizer is concerned."""

    fragment: int
    role: str
    dtype: str
    shape: Tuple[int, ...]


def _floats(pointer: int, n: int) -> Any:
    kind: Any = ctypes.c_float * n
    return memoryview(kind.from_address(pointer)).cast("B").cast("f")


def part_of(outer: OuterOptimizer, guard: Callable[[Callable[[], Any]], Any],
            stopping: Callable[[], bool]) -> List[Any]:
    """The C struct, and all objects that the run needs until its end. ``guard`` runs functions that
    may raise. ``stopping``: an exception was raised that will end the current call."""
    if len(outer.vectors) > _c.USER_VECTORS:
        raise InvalidError(f"an outer optimizer has at most {_c.USER_VECTORS} vectors, not "
                           f"{len(outer.vectors)}")

    def take(c: Any) -> int:
        at = c.contents
        vectors = {v: _floats(at.vectors[k], at.n) for k, v in enumerate(outer.vectors)}
        outer.step(OuterStep(at.fragment, at.commits, at.learning_rate, at.momentum,
                             _floats(at.theta, at.n), vectors, _floats(at.g, at.n)))
        return 0

    def keep(error: BaseException) -> None:  # it is raised again in the call that waits
        def again() -> None:
            raise error
        guard(again)

    def told(c: Any) -> int:
        try:
            return take(c)
        except NumericError as error:  # the library words it, and continues
            return error.status
        except BaseException as error:  # noqa: B902: it ends the run
            keep(error)
            return IOFailedError.status

    def call(_user: Any, c: Any) -> int:
        if stopping():  # asked again during the call, say over the entries of a join
            return told(c)
        status = None
        try:
            with held_back() as release:  # a step that stopped halfway could not be taken again
                status = told(c)
            release()
        except BaseException as error:  # noqa: B902: a signal's; the run continues after it
            keep(error)
        return told(c) if status is None else status

    step = _c.USER_STEP_FN(call)
    names = (ctypes.c_char_p * _c.USER_VECTORS)(*(_c.text(v) for v in outer.vectors))
    return [_c.UserOuter(name=_c.text(outer.name), n_vectors=len(outer.vectors),
                         vector_names=names, step=step), step, names, outer]


def short_name(prefix: str, kind: str, digest: str) -> str:
    """At most 26 characters that say which optimizer, with which options."""
    end = f"-{digest[:8]}"
    letters = re.sub(r"[^A-Za-z0-9]", "", kind)[:26 - len(prefix) - 1 - len(end)]
    return f"{prefix}-{letters}{end}"
