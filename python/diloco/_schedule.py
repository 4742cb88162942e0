"""The scheduler of the inner learning rate: it is stepped once for each step, and saved."""

from __future__ import annotations

import logging
from typing import Any, Mapping, Sequence

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from .errors import InvalidError

_log = logging.getLogger("diloco")


def _has_scheduler(optimizer: Any) -> bool:
    """Whether a scheduler of torch was made for it: these wrap its step."""
    return bool(getattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched", False))


def _is_scheduler(saved: Any) -> bool:
    """Torch's own (ChainedScheduler has no last_epoch), another one, or a wrapper of accelerate."""
    return (isinstance(saved, LRScheduler) or hasattr(saved, "last_epoch")
            or hasattr(saved, "scheduler"))


def _check_steps_alone(scheduler: Any) -> None:
    """InvalidError: its step needs a measure, which the optimizer's step has not."""
    if isinstance(getattr(scheduler, "scheduler", scheduler), ReduceLROnPlateau):
        raise InvalidError("scheduler= is a ReduceLROnPlateau, whose step needs a measure such as the "
                           "validation loss: pass it as extra={\"plateau\": scheduler}, so that it is "
                           "saved, and call its step(measure) yourself")


class Schedule:
    """The scheduler that a `DiLoCoOptimizer` steps, or None. ``saved``: objects whose state
    is saved, and ``optimizers``: those that a scheduler may have been made for. InvalidError: a
    scheduler that cannot be stepped without a measure."""

    def __init__(self, scheduler: Any, saved: Mapping[str, Any],
                 optimizers: Sequence[Any]) -> None:
        _check_steps_alone(scheduler)
        self._scheduler, self._optimizers = scheduler, optimizers
        self._is_saved = any(map(_is_scheduler, saved.values()))
        self._last: Any = None
        self._steps = 0
        self._warned = False

    def _at(self) -> Any:
        return getattr(getattr(self._scheduler, "scheduler", self._scheduler), "last_epoch", None)

    def _warn(self, text: str) -> None:
        if not self._warned:
            _log.warning("%s", text)
        self._warned = True

    def step(self) -> None:
        """After a step of the inner optimizer."""
        if self._scheduler is None:
            if not self._is_saved and any(map(_has_scheduler, self._optimizers)):
                self._warn("a scheduler of the learning rate is not saved with the replica, so after "
                           "a restart it is at its first step: pass it as scheduler=, and do not "
                           "step it yourself")
            return
        if self._steps and self._last != self._at():
            self._warn("the scheduler that was passed as scheduler= has also been stepped by its "
                       "caller, so the learning rate changes too fast: leave out its step()")
        self._scheduler.step()
        self._steps += 1
        self._last = self._at()
