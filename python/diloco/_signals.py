"""Ctrl-C during a wait in the library.

Python runs its signal handlers between bytecodes, and a call into C is one bytecode: without
help a Ctrl-C would wait as long as the call does. While a call of the main thread waits, the
interpreter's own C handler writes each signal's number to a socket of ours. A thread reads it and
interrupts the run. The call returns, and then Python's handler runs and raises KeyboardInterrupt
(or does what the program made it do). The former owner of the wakeup descriptor (an event loop) is
written to as well and gets it back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

_STOPS = (signal.SIGINT, signal.SIGTERM)


class _Watch:
    """One socket pair and one thread for the process; the thread dies with it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.reader, self.writer = socket.socketpair()
        self.writer.setblocking(False)
        # Held while a signal acts, so that it acts in its own call. A handler of the program may
        # begin a call where this thread has it.
        self._lock = threading.RLock()
        self._interrupt: Optional[Callable[[], None]] = None
        self.former = -1
        threading.Thread(target=self._read, name="diloco-signals", daemon=True).start()

    def _read(self) -> None:
        while self.reader.recv(1, socket.MSG_PEEK):
            with self._lock:
                self._act()

    def _act(self) -> None:
        """Read the signals that have come, and act on them. The lock is held."""
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = self.reader.recv(64, socket.MSG_DONTWAIT)
        if self._interrupt and any(n in _STOPS for n in numbers):
            self._interrupt()
        if self.former >= 0 and numbers:
            with contextlib.suppress(OSError):
                os.write(self.former, numbers)

    def call(self, interrupt: Optional[Callable[[], None]]) -> None:
        """A call begins; None: it has ended. Signals that came before do not interrupt it."""
        with self._lock:
            self._interrupt = None
            self._act()
            self._interrupt = interrupt


_watch: Optional[_Watch] = None


@contextlib.contextmanager
def interrupting(interrupt: Callable[[], None]) -> Iterator[None]:
    """While the body runs, SIGINT and SIGTERM that have a Python handler call ``interrupt``, on
    another thread. Only the main thread gets signals; elsewhere this does nothing."""
    global _watch
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if _watch is None or _watch.pid != os.getpid():  # a fork takes no threads along
        _watch = _Watch()
    watch = _watch
    watch.call(interrupt)
    watch.former = signal.set_wakeup_fd(watch.writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(watch.former, warn_on_full_buffer=False)
        watch.call(None)
        watch.former = -1


@contextlib.contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """While the body runs, the first SIGINT or SIGTERM that has a Python handler waits for
    ``release``, which is called after the body, and interrupts nothing; a second one acts at
    once."""
    came: List[Tuple[int, Any]] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    former: Dict[int, Any] = {n: signal.getsignal(n) for n in _STOPS}
    former = {n: handler for n, handler in former.items() if callable(handler)}

    def hold(number: int, frame: Any) -> None:
        if came:
            former[number](number, frame)
        else:
            came.append((number, frame))

    def release() -> None:
        for number, frame in came:
            former[number](number, frame)
    wakeup = signal.set_wakeup_fd(-1)
    ours = _watch is not None and wakeup == _watch.writer.fileno()
    theirs = _watch.former if _watch and ours else wakeup
    try:
        signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        for number in former:
            signal.signal(number, hold)
        yield release
    finally:
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        for number, handler in former.items():
            signal.signal(number, handler)
