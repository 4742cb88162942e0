"""Errors that say that memory is full, as torch, Python and devices word them: `needs` adds what
needed the memory, and where."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import torch

from . import _copies
from .errors import NoMemoryError

_TEXTS = ("out of memory", "can't allocate memory", "not enough memory")
_OfTorch: Any = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)  # by torch's release


class OutOfMemoryError(NoMemoryError, _OfTorch):
    """Torch's own error with the place: a handler of either kind gets it."""


def is_full(error: BaseException) -> bool:
    """Whether an exception says that memory is full."""
    return isinstance(error, (MemoryError, _OfTorch)) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS))


@contextlib.contextmanager
def needs(what: Callable[[], str]) -> Iterator[None]:
    """NoMemoryError, and torch's own if it was torch's: memory is full in the body. ``what`` describes
    the use of the memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, NoMemoryError) or not is_full(error):
            raise
        with contextlib.suppress(RuntimeError):  # copies in flight: the caller may free their memory
            _copies.queue.wait()
        kind = OutOfMemoryError if isinstance(error, RuntimeError) else NoMemoryError
        reason = " ".join(str(error).split()) or "Python's MemoryError"
        raise kind(f"no memory to {what()}: {reason}") from error
