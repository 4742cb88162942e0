"""Replicas on other machines: `launch` starts them by an executor of the program, or by one that
a Python class defines, and returns what follows, reads and stops them. `launch_job` does the same
for the ranks of a command."""

from __future__ import annotations

import abc
import dataclasses
import json
import os
import subprocess
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type

from . import _program
from ._config import option_text
from ._log import run
from ._plan import run_program
from .errors import (Error, InvalidError, NotThereError, RefusedError, TimedOutError,
                     UnreachableError)

_OVER = ("SUCCEEDED", "FAILED", "CANCELLED", "LOST")
_ANSWERS_NO_STORE = 4  # the exit code of a replica whose store did not answer
# Options that the program does not take from the store, which others may write.
_NOT_OF_BOOK = ("launch.endpoint", "launch.ssh_config")
# The executor whose cancel and logs use launch.dir of this machine. The others keep their own.
_KEEPS_OUTPUT = "k8s"
# Options of [launch] that a launch by a Python executor uses.
_OF_CLASS = ("launch.executor", "launch.binary", "launch.timeout", "launch.restarts",
             "launch.lost_after", "launch.poll", "launch.env", "launch.secrets")
# A poll must not read all records of the run, which costs of the store are counted from.
_NO_COSTS = ("--set", "launch.prices=")
_POLL_S = 1.0  # seconds between two looks at replicas of a Python executor, without launch.poll
_FIRST_PAUSE = 8  # looks before the first restart of a replica whose store did not answer


@dataclasses.dataclass(frozen=True)
class Replica:
    """One replica in one generation, as an executor starts it."""

    rank: int  #: its number
    generation: int  #: how often this rank was started before
    name: str  #: "diloco-<run>-r<rank>-g<generation>"; started at most once
    program: str  #: this machine's `diloco`
    argv: List[str]  #: its arguments
    env: Dict[str, str]  #: variables, DILOCO_RANK and DILOCO_JOB among them
    secrets: Dict[str, str] = dataclasses.field(repr=False)  #: for the backend's secret channel


@dataclasses.dataclass
class Handle:
    """A replica that was started."""

    rank: int  #: its number
    generation: int  #: how often this rank was started before
    name: str  #: in the executor's console
    id: Any = None  #: how the backend names it


@dataclasses.dataclass
class Status:
    """A replica's state when it was polled (docs/launch.md has the states)."""

    state: str  #: PENDING, STARTING, RUNNING, SUCCEEDED, FAILED, CANCELLED or LOST
    exit_code: Optional[int] = None  #: None: not known
    message: str = ""  #: for a person

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in _OVER


class Executor(abc.ABC):
    """Base of executors in Python. A subclass has a `backend_name` and is registered by
    `register_executor`. A name that is launched a second time starts nothing."""

    backend_name = ""  #: the name that `launch(on=…)` takes
    supports_inter_replica_network = False  #: whether replicas reach each other

    @abc.abstractmethod
    def launch_replicas(self, replicas: Sequence[Replica]) -> List[Handle]:
        """Start these, and return their handles in the same order."""

    @abc.abstractmethod
    def poll(self, handle: Handle) -> Status:
        """The state now. UnreachableError: the backend does not answer. The state then stays as
        it was, and becomes LOST after launch.lost_after seconds without an answer."""

    @abc.abstractmethod
    def stream_logs(self, handle: Handle, follow: bool = False) -> Iterator[str]:
        """The output, line by line; with ``follow`` until the replica has ended."""

    @abc.abstractmethod
    def cancel(self, handle: Handle) -> None:
        """Ask it to stop, without waiting. One that has ended is no error."""


_registered: Dict[str, Type[Executor]] = {}


def register_executor(kind: Type[Executor]) -> Type[Executor]:
    """Make a subclass of `Executor` known to `launch` by its backend_name; usable as a decorator.
    InvalidError: it has no name, or the program has an executor of this name."""
    name = kind.backend_name
    if not name or name in _of_program():
        raise InvalidError(f"backend_name = {name!r}: choose a name that  diloco launch executors  "
                           "does not list")
    _registered[name] = kind
    return kind


def _of_program() -> Dict[str, Dict[str, Any]]:
    return {row["name"]: row for row in json.loads(run_program("launch", "executors", "--json"))}


def launch(config: Any, on: str = "local", *, replicas: Any = None, store: Any = None,
           options: Optional[Mapping[str, Any]] = None) -> Launched:
    """Create the run of this configuration file unless it exists, start its replicas with the
    executor ``on``, and return without waiting for them.

    ``on``: "local", "slurm", "ssh://a,b" and what else `diloco launch executors` lists, or the
    name of a registered `Executor`. ``replicas``: a number or "4..16". ``store``: the run's URL.
    ``options``: settings by name, those of [launch] among them.

    Error and its kin, by the program's exit code and with its sentence.
    """
    return _start(["launch"], config, on, replicas, store, options)


def launch_job(config: Any, on: str = "local", *, replicas: Optional[int] = None, store: Any = None,
               options: Optional[Mapping[str, Any]] = None) -> Launched:
    """Start the ranks of a batch, whose file names a command (job.command), with the executor
    ``on``, and return without waiting for them. A rank finds its place by `place_here`.

    ``replicas``: the number of ranks, instead of the file's. ``store``: of the batch's record.
    ``options``: settings by name; "job.command" may be a list of words. The other arguments are
    those of `launch`. The batch is complete when every rank has ended with exit code 0, and the
    run of job.run, if any, is complete. Another call with the same arguments finds ranks that run,
    and starts those that failed once more.

    Error and its kin, by the program's exit code and with its sentence.
    """
    settings = dict(options or {})
    command = settings.get("job.command")
    if isinstance(command, (list, tuple)):
        settings["job.command"] = json.dumps([str(word) for word in command])
    return _start(["launch", "job"], config, on, replicas, store, settings)


def _start(command: List[str], config: Any, on: str, replicas: Any, store: Any,
           options: Optional[Mapping[str, Any]]) -> Launched:
    words = [*command, os.fspath(config)]
    sets = {name: ["--set", f"{name}={option_text(value)}"]
            for name, value in (options or {}).items()}
    if replicas is not None:
        words += ["--replicas", str(replicas)]
    if store is not None:
        words += ["--store", os.fspath(store)]
    for pair in sets.values():
        words += pair
    prepared = json.loads(run_program(*words, "--prepare", *_place(on)))
    is_batch = "job" in command
    if on in _registered:
        return _ByClass(prepared, is_batch, _registered[on]())
    own = [word for name in _NOT_OF_BOOK for word in sets.get(name, [])]
    folder = sets.get("launch.dir", []) if on == _KEEPS_OUTPUT else []
    launched = _ByProgram(prepared, on, words, own, folder)
    launched.start()
    return launched


def _place(on: str) -> List[str]:
    return [] if on in _registered else ["--on", on]


class Launched(abc.ABC):
    """The replicas that `launch` has started, or the ranks of `launch_job`."""

    backend_name: str  #: of their executor
    supports_inter_replica_network: bool  #: whether replicas reach each other
    _period = 0.2  # seconds between two looks

    def __init__(self, prepared: Mapping[str, Any]) -> None:
        self.store: str = prepared["store"]  #: URL of the run, or of the batch's record
        self._run: str = prepared["run"]

    @property
    @abc.abstractmethod
    def handles(self) -> List[Handle]:
        """The newest generation of each rank, in the order of ranks."""

    @abc.abstractmethod
    def poll(self) -> List[Status]:
        """The state of each handle."""

    @abc.abstractmethod
    def stream_logs(self, rank: int, follow: bool = False) -> Iterator[str]:
        """The output of a replica, line by line; with ``follow`` until it has ended."""

    @abc.abstractmethod
    def cancel(self) -> None:
        """Stop all. `launch` starts them again."""

    @abc.abstractmethod
    def follow(self) -> None:
        """Start lost replicas again until the run or the batch is complete. Error: every replica
        has ended, and it is not complete."""

    def collect(self, timeout: Optional[float] = None) -> List[Status]:
        """Wait until all are over, at most ``timeout`` seconds; their states. TimedOutError."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            states = self.poll()
            if all(state.is_over for state in states):
                return states
            if until is not None and time.monotonic() > until:
                running = [h.name for h, s in zip(self.handles, states) if not s.is_over]
                raise TimedOutError(f"after {timeout} s these replicas are not over: "
                                    f"{', '.join(running)}")
            time.sleep(self._period)


class _ByProgram(Launched):
    """An executor of the program; its book is in the run's store. ``own`` are the arguments for
    options that commands about the run do not take from there, and ``folder`` those for the
    folder of kept output."""

    def __init__(self, prepared: Mapping[str, Any], on: str, words: List[str],
                 own: List[str], folder: List[str]) -> None:
        super().__init__(prepared)
        self._own = own
        self._folder = folder
        self.backend_name = on.split("://")[0]
        net = _of_program()[self.backend_name]["net"]
        self.supports_inter_replica_network = net != "none"
        self._call = [*words, "--on", on, "--quiet"]

    def start(self) -> None:
        run_program(*self._call, "--detach")

    def _rows(self) -> List[Dict[str, Any]]:
        rows: List[Dict[str, Any]] = json.loads(
            run_program("launch", "status", self.store, *self._own, *_NO_COSTS,
                        "--json"))["replicas"]
        return rows

    @property
    def handles(self) -> List[Handle]:
        return [Handle(r["rank"], r["generation"], r["name"], r["id"]) for r in self._rows()]

    def poll(self) -> List[Status]:
        return [Status(r["state"], r["exit_code"], r["message"]) for r in self._rows()]

    def stream_logs(self, rank: int, follow: bool = False) -> Iterator[str]:
        words = [_program.path(), "launch", "logs", self.store, *self._folder, *self._own,
                 "--rank", str(rank)]
        with subprocess.Popen([*words, *(["--follow"] if follow else [])], text=True,
                              errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            assert process.stdout and process.stderr
            try:
                for line in process.stdout:
                    yield line.rstrip("\n")
                said = process.stderr.read().strip()
            finally:
                process.terminate()  # the reader may have stopped early
        if process.returncode > 0:
            raise Error(said.removeprefix("diloco: "))

    def cancel(self) -> None:
        run_program("launch", "cancel", self.store, *self._folder, *self._own)

    def follow(self) -> None:
        run_program(*self._call)


@dataclasses.dataclass
class _Start:
    """One generation of a rank. Times are those of time.monotonic()."""

    handle: Handle
    status: Status = dataclasses.field(default_factory=lambda: Status("PENDING"))
    running_since: Optional[float] = None
    silent_since: Optional[float] = None  # the first of the polls without an answer
    ended_at: float = 0.0
    is_late: bool = False  # it has run for launch.timeout seconds
    is_asked: bool = False  # and was asked to stop


class _ByClass(Launched):
    """A Python executor. The record of what was started is in this object alone. RefusedError: an
    option of [launch] was given that has no effect here."""

    def __init__(self, prepared: Mapping[str, Any], is_batch: bool, executor: Executor) -> None:
        super().__init__(prepared)
        for name in prepared["given"]:
            if name not in _OF_CLASS:
                raise RefusedError(f"{name} has no meaning with the executor "
                                   f"{executor.backend_name}, a class of Python: omit it")
        self._prepared, self._is_batch, self._executor = prepared, is_batch, executor
        self._period = prepared["poll"] or _POLL_S
        self.backend_name = executor.backend_name
        self.supports_inter_replica_network = executor.supports_inter_replica_network
        self._starts = [_Start(handle) for handle in executor.launch_replicas(
            [self._replica(rank, 0) for rank in range(prepared["max"])])]
        # Replicas that were declared LOST without an answer: they may run on, and cost.
        self._orphans: List[Handle] = []

    def _replica(self, rank: int, generation: int) -> Replica:
        of = self._prepared
        name = f"diloco-{self._run[:8]}-r{rank}-g{generation}"
        given = dict(item.split("=", 1) for item in of["env"])
        return Replica(rank, generation, name, of["program"],
                       [word.replace("{rank}", str(rank)) for word in of["argv"]],
                       {"DILOCO_RANK": str(rank), "DILOCO_JOB": name, **given},
                       {key: os.environ[key] for key in of["secrets"]})

    @property
    def handles(self) -> List[Handle]:
        return [start.handle for start in self._starts]

    def _limit(self, start: _Start, status: Status) -> Status:
        """Ask a replica to stop that has run for launch.timeout seconds. Once it has ended, it is
        FAILED, so that it is not started again."""
        timeout = self._prepared["timeout"]
        if status.state == "RUNNING":
            if start.running_since is None:
                start.running_since = time.monotonic()
            if start.is_late or 0 < timeout <= time.monotonic() - start.running_since:
                asked, start.is_late = start.is_asked, True
                if not asked:
                    self._executor.cancel(start.handle)
                    start.is_asked = True
        elif start.is_late and status.is_over and status.state != "SUCCEEDED":
            return Status("FAILED", None, "stopped after launch.timeout")
        return status

    def _look(self, start: _Start) -> None:
        """Poll a replica that is not over."""
        limit = self._prepared["lost_after"]
        try:
            start.status = self._limit(start, self._executor.poll(start.handle))
            start.silent_since = None
        except UnreachableError as error:
            now = time.monotonic()
            if start.silent_since is None:
                start.silent_since = now
            start.status = dataclasses.replace(start.status, message=str(error))
            if now - start.silent_since >= limit:
                start.status = Status("FAILED", None, "no answer after launch.timeout") \
                    if start.is_late else \
                    Status("LOST", None, f"no answer for {limit:.0f} s: {error}")
                self._orphans.append(start.handle)
        start.ended_at = time.monotonic()

    def _stop_orphans(self) -> None:
        """Ask orphans to stop as soon as their backend answers, and forget those that are over."""
        left = []
        for handle in self._orphans:
            try:
                if self._executor.poll(handle).is_over:
                    continue
                self._executor.cancel(handle)
            except UnreachableError:
                pass
            left.append(handle)
        self._orphans = left

    def poll(self) -> List[Status]:
        self._stop_orphans()
        for start in self._starts:
            if not start.status.is_over:  # the state of a generation that is over is final
                self._look(start)
        return [start.status for start in self._starts]

    def stream_logs(self, rank: int, follow: bool = False) -> Iterator[str]:
        return self._executor.stream_logs(self._starts[rank].handle, follow)

    def cancel(self) -> None:
        failed: Optional[UnreachableError] = None
        for handle in [*self.handles, *self._orphans]:
            try:
                self._executor.cancel(handle)
            except UnreachableError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _is_missing(self, start: _Start) -> bool:
        """Whether the next generation is to be started, now or after a pause."""
        status = start.status
        lost = status.state == "LOST" or (status.state == "FAILED" and
                                          status.exit_code == _ANSWERS_NO_STORE)
        return lost and start.handle.generation < int(self._prepared["restarts"])

    def _is_pausing(self, start: _Start) -> bool:
        """Whether the store gets more time to recover, as from the program's own launcher."""
        pause = _FIRST_PAUSE * self._period * 2.0 ** min(start.handle.generation, 60)
        return start.status.state == "FAILED" and time.monotonic() - start.ended_at < pause

    def _restart(self) -> bool:
        """Start the next generation of lost replicas. False: none is missing."""
        missing = False
        for i, start in enumerate(self._starts):
            if not self._is_missing(start):
                continue
            missing = True
            if not self._is_pausing(start):
                again = self._replica(start.handle.rank, start.handle.generation + 1)
                self._starts[i] = _Start(self._executor.launch_replicas([again])[0])
        return missing

    def _is_done(self, states: Sequence[Status]) -> bool:
        if not self._is_batch:
            return bool(run(self.store).status()["done"])
        trained = self._prepared.get("trained")
        if not all(state.state == "SUCCEEDED" for state in states):
            return False
        try:
            return trained is None or bool(run(trained).status()["done"])
        except NotThereError:
            return False

    def _has_ended(self) -> bool:
        """One look. Whether everything is complete and over. Error: it never will be."""
        states = self.poll()
        done = self._is_done(states)
        over = all(state.is_over for state in states)
        if not done and not self._restart() and over:
            ends = [f"{h.name}: {s.state}: {s.message}" for h, s in zip(self.handles, states)]
            what = "batch" if self._is_batch else "run"
            raise Error(f"every replica is over, and the {what} is not complete: "
                        + "; ".join(ends))
        return done and over

    def follow(self) -> None:
        while True:
            try:
                if self._has_ended():
                    return
            except UnreachableError:  # of the store, or of a start: the next look tries it again
                pass
            time.sleep(self._period)
