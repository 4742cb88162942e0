"""Refusals of an object that belongs to one process, and to one optimizer."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

from .errors import InvalidError, RefusedError


class Unique:
    """An object that can be neither copied nor pickled, and works only in the process that made
    it: its connection and its threads are not in a copy, nor in a forked child."""

    _maker = 0  # process id; 0: not made yet

    def _made_here(self) -> None:
        self._maker = os.getpid()

    def _check_process(self) -> None:
        """InvalidError: this is a forked child, in which a step would wait for ever."""
        if self._maker not in (0, os.getpid()):
            raise InvalidError(f"this {type(self).__name__} was made by process {self._maker}, and "
                               f"this is a fork of it, process {os.getpid()}: its threads are not "
                               "here; make a new one in this process")

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise RefusedError(f"a {type(self).__name__} cannot be copied or pickled, because it holds "
                           "a connection and this replica's place: make a new one, and keep the "
                           "state_dict of the model and of the inner optimizer")


def check_store(store: Any) -> None:
    """InvalidError: it is neither a text nor a path."""
    if not isinstance(store, (str, bytes, os.PathLike)):
        raise InvalidError(f"the store is a {type(store).__name__}: give a folder's path or a URL "
                           "such as http://HOST:PORT/RUN")


def check_replica(replica: Any) -> None:
    """InvalidError: it is no text."""
    if not isinstance(replica, str):
        raise InvalidError(f"the replica's name is {replica!r}: give a text such as \"r0\"")


_stepped_by: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def claim(inner: Any, owner: Any) -> None:
    """From now on only ``owner`` hears of the optimizer's steps, until `release`. InvalidError:
    another one is."""
    held = _stepped_by.get(inner)
    other = held() if held is not None else None
    if other is not None and other is not owner and other._maker == os.getpid():
        raise InvalidError(f"the {type(inner).__name__} already drives a {type(other).__name__}, "
                           "and a second one would count each step twice: close the first, or "
                           "leave its with statement")
    _stepped_by[inner] = weakref.ref(owner)


def release(inner: Any, owner: Any) -> None:
    held = _stepped_by.get(inner)
    if held is not None and held() is owner:
        del _stepped_by[inner]


def check_two(inner: Any, outer: Any) -> None:
    """InvalidError: the inner optimizer is also the outer one, or one of them."""
    if any(o is inner for o in (outer if isinstance(outer, (list, tuple)) else [outer])):
        raise InvalidError(f"the {type(inner).__name__} is the inner and the outer optimizer: make "
                           "two, since each has its own learning rate and state")


def check_masters(inner: Any) -> None:
    """RefusedError: an optimizer with master weights of its own, which its next step would write
    over what was adopted."""
    kinds = type(inner).__mro__
    homes = [kind.__module__ for kind in kinds]
    theirs = ""
    if any(home.startswith("deepspeed.runtime.") for home in homes):
        theirs = "DeepSpeed"
    elif any(home.startswith("apex.") for home in homes) and (
            any(kind.__name__ == "FP16_Optimizer" for kind in kinds)
            or getattr(inner, "master_weights", False)) or hasattr(inner, "_amp_stash"):
        theirs = "Apex"
    elif getattr(inner, "master_weights", False):
        theirs = type(inner).__module__.partition(".")[0]
    if theirs:
        raise RefusedError(f"{type(inner).__name__} of {theirs} keeps master weights of its own, "
                           "and its next step would write them over the shared model: take a "
                           "torch optimizer, with parameters in float32 under autocast")


def bare(inner: Any) -> Any:
    """The optimizer inside the one that accelerate's prepare returns."""
    return inner.optimizer if hasattr(inner, "step_was_skipped") else inner


def _adds_up() -> bool:
    """Whether accelerate's state, one for the process, says that this micro-batch is no step."""
    accelerate = sys.modules.get("accelerate.state")
    return accelerate is not None and not accelerate.GradientState().sync_gradients


class Accumulation:
    """Whether accelerate only adds up gradients at a micro-batch. An exception that ends another loop
    of this process leaves its state as it was. Where a bare optimizer is made after that, the state
    does not count until it has changed."""

    def __init__(self, inner: Any) -> None:
        self._is_left = bare(inner) is inner and _adds_up()

    def adds_up(self, inner: Any) -> bool:
        """Whether the optimizer takes no step now. InvalidError: it is not accelerate's, and would
        take one."""
        if not _adds_up():
            self._is_left = False
            return False
        if self._is_left:
            return False
        if bare(inner) is inner:
            raise InvalidError(f"accelerate adds up the gradients of several batches, and the "
                               f"{type(inner).__name__} would take a step at each: make the "
                               "optimizer from the one that accelerator.prepare returns")
        return True
