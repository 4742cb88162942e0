"""Estimate a run's cost before paying for machines: the program's planner."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Mapping, Optional

from . import _program
from ._config import option_text
from .errors import Error, Interrupted, InvalidError, RefusedError, UnreachableError

_BY_EXIT_CODE = {2: InvalidError, 3: RefusedError, 4: UnreachableError, 130: Interrupted}


def run_program(*arguments: str) -> str:
    """Run the program and return its output. Error and its kin, by the exit code, with its own
    sentence."""
    done = subprocess.run([_program.path(), *arguments], capture_output=True, text=True)
    if done.returncode:
        kind = _BY_EXIT_CODE.get(done.returncode, Error)
        raise kind(done.stderr.strip().removeprefix("diloco: "))
    return done.stdout


def plan(config: Any = None, options: Optional[Mapping[str, Any]] = None,
         **flags: Any) -> Dict[str, Any]:
    """How busy the machines will be with each method, how long the run takes, what it moves and
    costs, and which to take: ``diloco plan --json`` (docs/planner.md).

    ``config``: a configuration file, whose model it is; or say ``params`` (count), ``layers`` and
    ``step_seconds``. ``link="50mbit,100ms"`` or ``gbit``; ``replicas``, ``steps``, ``cost`` and
    the other flags of `diloco plan --help`, with "_" for "-". ``options``: settings by name.
    """
    arguments: List[str] = ["plan", "--json"]
    if config is not None:
        arguments.append(os.fspath(config))
    for name, value in (options or {}).items():
        arguments += ["--set", f"{name}={option_text(value)}"]
    for flag, value in flags.items():
        if value is None or value is False:
            continue
        arguments.append("--" + flag.replace("_", "-"))
        if value is not True:
            arguments.append(option_text(value))
    answer: Dict[str, Any] = json.loads(run_program(*arguments))
    return answer
