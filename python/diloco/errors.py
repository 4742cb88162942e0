"""The exceptions of calls that do not succeed: one class for each status of diloco/status.h.

The text is the library's own sentence: the failure, its place, and the way out. Where
Python has a class of the same meaning ours is one of it too, so that ``except ValueError`` and
``except ConnectionError`` do what they say.
"""

from __future__ import annotations

from typing import Dict, Type


class Error(Exception):
    """Any failure of the library. ``status`` is its diloco_status."""

    status = -1


class InvalidError(Error, ValueError):
    """A value, option or call that is wrong."""

    status = 1


class RefusedError(Error):
    """A combination that cannot be faithful, or is not supported."""

    status = 2


class UnreachableError(Error, ConnectionError):
    """The store or a peer cannot be reached."""

    status = 3


class Interrupted(Error):
    """Stopped on request; the run can be resumed."""

    status = 4


class NoMemoryError(Error, MemoryError):
    """No memory."""

    status = 5


class IOFailedError(Error, OSError):
    """The operating system refused a read or a write."""

    status = 6


class FullError(Error, OSError):
    """No space left where it was to be written."""

    status = 7


class NotThereError(Error, LookupError):
    """No object, file or name of that kind (yet)."""

    status = 8


class TakenError(Error):
    """The name is taken, by other bytes."""

    status = 9


class ProtocolError(Error):
    """Bytes from outside that are truncated, damaged or foreign."""

    status = 10


class NumericError(Error, ArithmeticError):
    """A NaN or an infinity where none may be."""

    status = 11


class TimedOutError(Error, TimeoutError):
    """Not in the time given."""

    status = 12


class ClosedError(Error):
    """The handle was closed or aborted."""

    status = 13


class FencedError(Error):
    """A later generation of this replica has taken over: stop."""

    status = 14


class DiffersError(Error):
    """The store holds another run, model or program version."""

    status = 15


class LibraryError(Error, ImportError):
    """The C library is missing, or of another version."""


BY_STATUS: Dict[int, Type[Error]] = {
    kind.status: kind for kind in Error.__subclasses__() if kind.status > 0
}
