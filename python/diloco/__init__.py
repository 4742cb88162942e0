"""DiLoCo training: replicas that train alone for many steps and then exchange how far they moved.

    DiLoCoOptimizer  a torch optimizer whose steps are a replica's steps of a run
    DiLoCo           the same with the shape of torchft's class, over a manager or a run
    Run              one replica of a run over buffers of any kind, without torch
    Client           a logical client of a federated run; run_clients, evaluate_clients
    launch_local     replicas on this machine, one process each
    launch           replicas on other machines, by an executor; Executor is the base of your own
    launch_job       ranks of a command on other machines, such as a script with PyTorch; place_here
                     is the place of such a rank
    run              a run's log, status, settings and shared model
    plan             time, traffic and cost of a run before it is started
    peft             a run's shared adapter as a PEFT folder
    errors           the exceptions; all of them are an `Error`

The library is C, bound by ctypes. Neither numpy nor torch is needed to import this package.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, List

from . import errors
from ._clients import Client, evaluate_clients, run_clients
from ._config import Config, presets
from ._launch import (Executor, Handle, Launched, Replica, Status, launch, launch_job,
                      register_executor)
from ._local import Place, ReplicaFailed, launch_local, place_here
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

# Modules that need torch are imported when they are asked for.
_LAZY = {"DiLoCo": "_diloco", "DiLoCoOptimizer": "_optimizer"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'diloco' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> List[str]:
    """The names that help() shows. The exceptions are left to `errors`, so the list begins with the
    trainers. Without torch the classes that need it are left out."""
    there = importlib.util.find_spec("torch") is not None

    def is_shown(name: str) -> bool:
        value = globals().get(name)
        return (there or name not in _LAZY) and not (
            isinstance(value, type) and issubclass(value, BaseException))
    return sorted(filter(is_shown, {*globals(), *__all__}))


__all__ = [
    "Client", "ClosedError", "Config", "DiLoCo", "DiLoCoOptimizer", "DiffersError", "Error", "Executor", "FencedError",
    "FullError", "Handle", "IOFailedError", "Interrupted", "InvalidError", "Launched", "LibraryError", "Memory",
    "NoMemoryError", "NotThereError", "NumericError",
    "OuterOptimizer", "OuterStep", "Place", "ProtocolError", "RefusedError", "ReplicaFailed",
    "Replica", "Run", "RunInfo", "RunLog", "Status", "TakenError", "TimedOutError", "UnreachableError", "__version__",
    "errors", "evaluate_clients", "launch", "launch_job", "launch_local", "place_here", "plan", "presets",
    "register_executor", "run", "run_clients",
]
