"""Does what is adopted outlive the next inner step?"""

from __future__ import annotations

from typing import Optional, Sequence

import torch

from .errors import InvalidError

_SAMPLES = 64  # elements of a tensor
_LONG = 8  # steps, and elements: one step does not lead back to where that many led


def suspect(optimizer: object) -> str:
    """The name of an optimizer that may have weights of its own; "" for torch's, which have none. A
    fast one leads back to where it was, its optimum, so it would look like one that has. Apex
    gives weights to torch's, and this attribute."""
    kind = type(optimizer)
    known = kind.__module__.startswith("torch.optim.") and not hasattr(optimizer, "_amp_stash")
    return "" if known else kind.__name__


class Survival:
    """Looks once whether what was adopted first outlives the next inner step. An optimizer with
    weights of its own writes them over it: the parameters are back where they were before.
    ``optimizer``: its name; "": it is not looked at."""

    def __init__(self, tensors: Sequence[torch.Tensor], optimizer: str) -> None:
        self._tensors, self._optimizer = tensors, optimizer
        self._before: Optional[torch.Tensor] = None
        self._theta: Optional[torch.Tensor] = None
        self._waits = bool(optimizer)  # for the first adoption, or for the step after it

    def _sample(self) -> torch.Tensor:
        """Some elements of each tensor's local part."""
        parts = [torch.empty(0)]
        for t in self._tensors:
            local = (t.to_local() if hasattr(t, "to_local") else t).detach().reshape(-1)
            parts.append(local[::max(1, local.numel() // _SAMPLES)][:_SAMPLES].float().cpu())
        return torch.cat(parts)

    def before(self, steps: int) -> None:
        """Something may be adopted now, ``steps`` after the last time."""
        if self._waits and not self.is_due and steps >= _LONG:
            self._before = self._sample()

    def after(self) -> None:
        """Keep what an adoption changed."""
        if self._before is None or self.is_due:
            return
        theta = self._sample()
        self._moved = theta != self._before
        if int(self._moved.sum()) >= _LONG:
            self._theta = theta

    @property
    def is_due(self) -> bool:
        """The next step is the first after the first adoption."""
        return self._waits and self._theta is not None

    def check(self) -> None:
        """InvalidError: the step has undone the adoption."""
        assert self._before is not None and self._theta is not None
        now, before, theta = (v[self._moved] for v in (self._sample(), self._before, self._theta))
        self._waits, self._before, self._theta = False, None, None

        back = before - theta
        if float((now - theta) @ back) > 0.75 * float(back @ back):  # 1 and a step, or a step
            raise InvalidError(f"the {self._optimizer} has written over the shared model that was "
                               "adopted: it keeps weights of its own beside the parameters; take "
                               "an optimizer that updates the parameters themselves")
