"""Code that the callbacks of trainers share."""

from __future__ import annotations

import logging
import threading
import weakref
from typing import Any, Dict, NamedTuple, Tuple

from ._run import Run, store_text
from ._torch import Binding
from .errors import RefusedError

_log = logging.getLogger("diloco")


class _Training(NamedTuple):
    binding: "weakref.ReferenceType[Binding]"
    thread: int


_trainings: Dict[Tuple[str, str], _Training] = {}  # the last one of each replica of this process


def end_former(run: Any, replica: str) -> None:
    """Close the binding of a training of this replica that an exception has ended. A notebook keeps
    the exception, and with it the trainer. One thread runs one training at a time."""
    if isinstance(run, Run):
        return
    former = _trainings.pop((store_text(run), replica), None)
    binding = former.binding() if former else None
    if former and binding is not None and former.thread == threading.get_ident():
        binding.close()


def note(run: Any, replica: str, binding: Binding) -> None:
    """Remember the binding for `end_former`."""
    if not isinstance(run, Run):
        _trainings[store_text(run), replica] = _Training(weakref.ref(binding),
                                                         threading.get_ident())


def check_first(binding: Binding, steps: int, how: str) -> None:
    """RefusedError, and the binding is closed: the run resumes a replica, and the trainer has taken
    steps already, so that the data would continue at another place than the model."""
    if binding.resumed and steps and not binding.done:
        binding.close()
        raise RefusedError(f"the run resumes this replica at the place of its last exchange, and the "
                           f"trainer begins after {steps} steps: {how}, because the run restores "
                           "the state of the optimizer, the scheduler and the data")


def _place(binding: Binding) -> Tuple[int, int]:
    """(steps that this replica has reached, steps of the whole run)."""
    def place() -> Tuple[int, int]:
        now = binding.run.now
        return now.position, now.positions
    found: Tuple[int, int] = binding.island.lead(place)
    return found


def warn_short(binding: Binding, steps: int, option: str) -> None:
    """A warning if the trainer takes fewer steps than the run has left."""
    at, whole = _place(binding)
    if steps < whole - at and not binding.done:
        _log.warning("the trainer ends after %d steps, and the run has %d left: set %s to at least "
                     "%d, or start this replica again after it", steps, whole - at, option,
                     whole - at)


def warn_unfinished(binding: Binding) -> None:
    """A warning if training has ended before the run."""
    if not binding.done:
        at, whole = _place(binding)
        _log.warning("training has ended after %d of the run's %d steps, so the model is this "
                     "replica's and not the shared one; the same command continues at the last "
                     "exchange", at, whole)
