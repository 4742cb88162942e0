"""DiLoCo training: replicas on machines that can barely talk to each other.

`Run` is one replica of a run, over any buffers; `run` reads a run's log. The library is C, bound
by ctypes; numpy and torch are used where they are installed and needed nowhere else.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._config import Config, presets
from ._local import Place, ReplicaFailed, launch_local
from ._log import RunLog, run
from ._outer import OuterOptimizer, OuterStep
from ._plan import plan
from ._run import Memory, Run, RunInfo
from ._version import __version__
from .errors import (ClosedError, DiffersError, Error, FencedError, FullError, Interrupted,
                     InvalidError, IOFailedError, LibraryError, NoMemoryError, NotThereError,
                     NumericError, ProtocolError, RefusedError, TakenError, TimedOutError,
                     UnreachableError)

if TYPE_CHECKING:
    from ._diloco import DiLoCo
    from ._optimizer import DiLoCoOptimizer

# What needs torch is imported when it is asked for.
_LAZY = {"DiLoCo": "_diloco", "DiLoCoOptimizer": "_optimizer"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'diloco' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


__all__ = [
    "ClosedError", "Config", "DiLoCo", "DiLoCoOptimizer", "DiffersError", "Error", "FencedError",
    "FullError", "IOFailedError", "Interrupted", "InvalidError", "LibraryError", "Memory",
    "NoMemoryError", "NotThereError", "NumericError",
    "OuterOptimizer", "OuterStep", "Place", "ProtocolError", "RefusedError", "ReplicaFailed",
    "Run", "RunInfo", "RunLog", "TakenError", "TimedOutError", "UnreachableError", "__version__",
    "launch_local", "plan", "presets", "run",
]
