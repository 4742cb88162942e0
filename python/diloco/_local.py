"""Replicas on this machine: `launch_local` starts n processes, by torchrun's where that has
started them already, and ends all of them.

Processes are spawned: a fresh interpreter imports what they need. In a notebook or a
prompt, whose functions no other interpreter could import, they are forked. They then have one torch
thread each, since OpenMP does not survive a fork. The children ask Linux to be killed when the
parent dies, however it dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import sys
import tempfile
import threading
import traceback
from typing import Any, Callable, Dict, Iterator, List, Optional

from .errors import Error, InvalidError


@dataclasses.dataclass(frozen=True)
class Place:
    """The identity of a process of `launch_local` or `launch_job`."""

    store: str  #: the run's store
    replica: str  #: "r0", …: this process's name in the run
    rank: int  #: its number
    replicas: int  #: how many there are


def place_here() -> Place:
    """The place of this process as a rank of `diloco launch job` with job.run: rank N is the
    replica rN of that run. The ranks of an island that `diloco.torchrun` starts have one place.
    InvalidError: no such launch has started this process."""
    found = [os.environ.get(name) for name in ("DILOCO_STORE", "DILOCO_RANK", "DILOCO_RANKS")]
    store, rank, replicas = found
    if not store or not rank or not replicas or not (rank.isdigit() and replicas.isdigit()):
        raise InvalidError("this process has no place in a run: start it by diloco launch job with "
                           "job.run, or set DILOCO_STORE, DILOCO_RANK and DILOCO_RANKS")
    return Place(store, f"r{rank}", int(rank), int(replicas))


class ReplicaFailed(Error, RuntimeError):
    """A replica's function raised, or its process was killed; the text has its traceback."""


def launch_local(n: int, fn: Callable[..., Any], *args: Any, store: Any = None,
                 start: Optional[str] = None) -> List[Any]:
    """Call ``fn(place, *args)`` in ``n`` processes, one replica each; their results, in order.

    ``store``: where the run is; None: a temporary folder, gone when this returns. ``start``:
    "spawn" or "fork" instead of what fits. fn and its results have to be picklable where processes
    are spawned, and a script has to guard its main part with ``if __name__ == "__main__"``.

    Under torchrun (or whatever sets RANK and WORLD_SIZE) this process is one of the n already: fn
    is called here, and the list has its result alone; ``store`` then has to be given.

    ReplicaFailed: one failed; the others have been stopped. Ctrl-C stops all of them.
    """
    if "WORLD_SIZE" in os.environ and "RANK" in os.environ:
        return [fn(_place_of_launcher(n, store), *args)]
    with contextlib.ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="diloco-"))
            store = pathlib.Path(folder) / "run"
        places = [Place(str(os.fspath(store)), f"r{i}", i, n) for i in range(n)]
        return _Crew(places, fn, args, start or _way_to_start(fn)).results()


def _place_of_launcher(n: int, store: Any) -> Place:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if size != n:
        raise InvalidError(f"a launcher has started {size} processes, and launch_local is to be "
                           f"{n}: let the numbers agree")
    if store is None:
        raise InvalidError("under torchrun every process needs the place of the run: give "
                           "launch_local a store")
    return Place(str(os.fspath(store)), f"r{rank}", rank, size)


def _way_to_start(fn: Callable[..., Any]) -> str:
    """Whether another interpreter can import fn."""
    main = sys.modules["__main__"]
    of_prompt = fn.__module__ == "__main__" and not os.path.exists(getattr(main, "__file__", ""))
    return "fork" if of_prompt and "fork" in multiprocessing.get_all_start_methods() else "spawn"


class _Crew:
    """The processes, from their start to their end."""

    def __init__(self, places: List[Place], fn: Callable[..., Any], args: Any, start: str) -> None:
        self._places, self._context = places, multiprocessing.get_context(start)
        self._forks = start == "fork"
        self._what = (fn, args)
        self._processes: List[Any] = []
        self._pipes: List[Any] = []
        if self._forks and _cuda_is_in_use():
            raise InvalidError("CUDA is in use here already, and does not work after a fork: "
                               "call launch_local before the first use, or from a script")

    def results(self) -> List[Any]:
        try:
            with _threads_each(len(self._places)):
                for place in self._places:
                    with _interrupt_held_back():
                        self._start(place)
            return self._collect()
        finally:
            self._stop()

    def _start(self, place: Place) -> None:
        ours, theirs = self._context.Pipe(duplex=False)
        self._pipes.append(ours)
        process = self._context.Process(  # type: ignore[attr-defined]
            target=_child, name=f"diloco-{place.replica}", daemon=False,
            args=(theirs, os.getpid(), self._forks, place, *self._what))
        try:
            process.start()
        except (AttributeError, TypeError) as error:  # pickle's
            raise InvalidError(f"the function or its arguments cannot be sent to a new process "
                               f"({error}): define it at the top of a module, or pass "
                               "start=\"fork\"") from error
        theirs.close()
        self._processes.append(process)

    def _collect(self) -> List[Any]:
        found: Dict[int, Any] = {}
        while len(found) < len(self._pipes):
            waiting = [p for i, p in enumerate(self._pipes) if i not in found]
            for pipe in multiprocessing.connection.wait(waiting):
                i = self._pipes.index(pipe)
                found[i] = self._result_of(i)
        for process in self._processes:
            process.join()
        return [found[i] for i in range(len(found))]

    def _result_of(self, i: int) -> Any:
        name = self._places[i].replica
        try:
            fine, value = self._pipes[i].recv()
        except EOFError:
            self._processes[i].join()
            raise ReplicaFailed(f"replica {name} ended without a result, with exit code "
                                f"{self._processes[i].exitcode}") from None
        if not fine:
            raise ReplicaFailed(f"replica {name} failed:\n{value}")
        return value

    def _stop(self) -> None:
        for process in self._processes:
            if process.is_alive():
                process.terminate()
        for process in self._processes:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        for pipe in self._pipes:
            pipe.close()


def _cuda_is_in_use() -> bool:
    torch = sys.modules.get("torch")
    return bool(torch is not None and torch.cuda.is_initialized())


@contextlib.contextmanager
def _threads_each(n: int) -> Iterator[None]:
    """Processes started within share the cores, unless the environment says otherwise."""
    if "OMP_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // n))
    try:
        yield
    finally:
        del os.environ["OMP_NUM_THREADS"]


_held_back: Any = None  # the handler of SIGINT while a process is started


@contextlib.contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """A KeyboardInterrupt between a process's start and its entry in the list would leave it running."""
    global _held_back
    came: List[int] = []
    former = signal.getsignal(signal.SIGINT)
    if former is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    _held_back = former
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        _held_back = None
    if came:
        signal.raise_signal(signal.SIGINT)


_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        os._exit(1)


def _child(pipe: Any, parent: int, forked: bool, place: Place, fn: Callable[..., Any],
           args: Any) -> None:
    _die_with(parent)
    if _held_back is not None:  # forked
        signal.signal(signal.SIGINT, _held_back)
    if forked and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    try:
        said = (True, fn(place, *args))
    except BaseException:  # noqa: B902: the parent raises it
        said = (False, traceback.format_exc())
    with contextlib.suppress(BrokenPipeError):
        pipe.send(said)
    pipe.close()
