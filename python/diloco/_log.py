"""Reading a run's log: diloco/inspect.h as rows."""

from __future__ import annotations

import ctypes
import importlib
import json
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from . import _c
from ._config import Config
from ._guards import check_store
from ._run import array_over, store_text
from .errors import Interrupted, InvalidError, NotThereError


def _lines(pointer: Any, n: int) -> List[str]:
    return [pointer[i].decode() for i in range(n)]


def _fields(struct: Any) -> Dict[str, Any]:
    """A struct's plain members; texts decoded."""
    row = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, bytes):
            value = value.decode()
        if value is None or isinstance(value, (bool, int, float, str)):
            row[name] = value
    row.pop("size", None)
    return row


def _entry_row(e: _c.LogEntry) -> Dict[str, Any]:
    row = _fields(e)
    for key in ("n_members", "n_roster", "n_rejected"):
        row.pop(key)
    row["members"] = _lines(e.members, e.n_members)
    row["weights"] = [e.weights[i] for i in range(e.n_members)]
    row["roster"] = _lines(e.roster, e.n_roster)
    row["rejected"] = dict(zip(_lines(e.rejected, e.n_rejected),
                               _lines(e.rejected_for, e.n_rejected)))
    return row


def _rejected(r: _c.Rejections) -> Dict[str, int]:
    return {r.reasons[i].reason.decode(): r.reasons[i].n for i in range(r.n_reasons)}


# Columns of an entry that are in the record, by event and member.
_RECORDED = {"eval": {"loss": "validation_loss", "loss_after_sync": "validation_loss_after_sync"},
             "commit": {"peer_grad_similarity": "similarity",
                        "aggregated_grad_norm": "update_norm",
                        "weight_divergence": "weight_divergence", "time": "time"}}


def _recorded(lines: Iterable[Mapping[str, Any]]) -> Dict[int, Dict[str, Any]]:
    """The columns of each entry that the record has: of several replicas the first that has a
    number, and of `time` the earliest."""
    found: Dict[int, Dict[str, Any]] = {}
    for line in lines:
        event = str(line.get("event"))
        if event not in _RECORDED or not isinstance(line.get("entry"), int):
            continue
        # An evaluation counts the entries that came before it.
        row = found.setdefault(line["entry"] - (event == "eval"), {})
        for key, name in _RECORDED[event].items():
            value = line.get(key)
            if value is not None and (name not in row or (name == "time" and value < row[name])):
                row[name] = value
    return found


def _table(rows: List[Dict[str, Any]], kind: Optional[str]) -> Any:
    """Rows as a table of the library of that name; without a name, of the first that is there."""
    for name in ("pandas", "polars"):
        if kind not in (None, name):
            continue
        try:
            library = importlib.import_module(name)
        except ImportError as error:
            if kind:
                raise InvalidError(f"kind {name!r}: {error}; install it with pip install {name}, "
                                   "or give kind='rows'") from None
            continue
        if name == "pandas":
            return library.DataFrame(rows)
        return library.DataFrame(rows, infer_schema_length=None, strict=False)
    if kind not in (None, "rows"):
        raise InvalidError(f"kind {kind!r}: give 'pandas', 'polars' or 'rows'")
    return rows


class RunLog:
    """A run as every reader sees it; nothing is written. NotThereError: no run there."""

    def __init__(self, store: Any) -> None:
        check_store(store)
        self.store = store_text(store)

    def history(self, begin: int = 0, last: Optional[int] = None) -> List[Dict[str, Any]]:
        """The entries from ``begin`` on, or the newest ``last`` entries: earlier ones are not read.
        One row each: entry, commit (or abort), fragment,
        position, members (generations) with their weights, loss (mean over the members), bytes (of
        their contributions), steps and samples that they took, rejected (generations, each with the
        reason), base, result and prev (digests). `frame` makes a table of them."""
        rows: List[Dict[str, Any]] = []
        if last is not None:
            begin = self._begin_of(begin, last)

        def take(_user: Any, entry: Any) -> None:
            rows.append(_entry_row(entry.contents))
        _walk(_c.ENTRY_FN, take, lambda fn: _c.lib().diloco_log_walk(self._url, begin, fn, None))
        return rows

    def _begin_of(self, begin: int, last: int) -> int:
        """The first of the newest ``last`` entries."""
        if begin:
            raise InvalidError("begin and last both say which entry is first; give one")
        if last < 1:
            raise InvalidError(f"last is {last}: give at least 1")
        n = ctypes.c_uint64()
        _c.check(_c.lib().diloco_log_length(ctypes.byref(n), self._url))
        return max(n.value - last, 0)

    def records(self) -> List[Dict[str, Any]]:
        """The record that the replicas left in the store (docs/architecture.md section 9): one
        generation after the other. NotThereError: no record either."""
        rows: List[Dict[str, Any]] = []

        def take(_user: Any, line: int, length: int) -> None:
            rows.append(json.loads(ctypes.string_at(line, length)))
        _walk(_c.LINE_FN, take, lambda fn: _c.lib().diloco_record_walk(self._url, fn, None))
        return rows

    def frame(self, of: str = "entries", kind: Optional[str] = None) -> Any:
        """A table of the run: a pandas or polars DataFrame, where one of them is installed, else a
        list of dicts. ``kind``: "pandas", "polars" or "rows" instead. ``of``: "entries", the rows of
        `history` with validation_loss, similarity, update_norm and more columns of the record; or
        an event of the record ("step", "commit", "eval", …), one row each. InvalidError: that kind
        is not installed. NotThereError: no run there."""
        if of == "entries":
            return _table(self._entries(), kind)
        return _table([line for line in self.records() if line.get("event") == of], kind)

    def _entries(self) -> List[Dict[str, Any]]:
        rows = self.history()
        try:
            found = _recorded(self.records())
        except NotThereError:  # no replica has left a part of its record yet
            found = {}
        names = [name for columns in _RECORDED.values() for name in columns.values()]
        for row in rows:
            recorded = found.get(row["entry"], {})
            row["rejected"] = ", ".join(f"{r}: {why}" for r, why in row["rejected"].items())
            row.update({name: recorded.get(name) for name in names})
        return rows

    def status(self, watch_s: float = 0.0) -> Dict[str, Any]:
        """The run and its replicas; ``watch_s``: seconds to watch heartbeats, to separate
        the living (`alive`) from the dead. Rates are bits/s; ``rejected``: contributions that the
        log has refused, by the word that it gives for it."""
        read = _c.RunStatus()
        _c.check(_c.lib().diloco_run_status_read_sized(ctypes.byref(read), ctypes.sizeof(read),
                                                       self._url, watch_s))
        row = _fields(read)
        for pointer in ("n_replicas", "memory"):
            row.pop(pointer, None)
        row["rejected"] = _rejected(read.rejected)
        replicas = [read.replicas[i].contents for i in range(read.n_replicas)]
        row["replicas"] = [{**_fields(r), "rejected": _rejected(r.rejected)} for r in replicas]
        if read.wait:
            missing = read.wait.contents.missing
            row["wait"] = _fields(read.wait.contents)
            row["wait"]["missing"] = [m.value.decode() for m in missing if m.value]
        _c.lib().diloco_run_status_free(ctypes.byref(read))
        return row

    def config(self) -> Config:
        """The run's own settings."""
        config = Config()
        _c.check(_c.lib().diloco_run_config(config._handle, self._url))
        return config

    def verify(self, threads: int = 1,
               progress: Optional[Callable[[int, int], None]] = None,
               from_snapshot: bool = False) -> Dict[str, Any]:
        """Check the chain of the whole log, replay what can be replayed, compare every digest.
        ``from_snapshot``: only from the oldest snapshot on (``first_chained``), in a time that does
        not grow with the log. The state of that snapshot is trusted.
        ProtocolError: something does not fit; the text names the entry and the difference. An
        exception of ``progress`` (a Ctrl-C too) comes out when the replay is over."""
        report = _c.VerifyReport()
        raised: List[BaseException] = []

        def tell(_user: Any, done: int, total: int) -> None:
            try:
                if progress and not raised:
                    progress(done, total)
            except BaseException as error:  # noqa: B902: raised again below
                raised.append(error)
        verify = (_c.lib().diloco_verify_from_snapshot_sized if from_snapshot else
                  _c.lib().diloco_verify_sized)
        status = verify(ctypes.byref(report), ctypes.sizeof(report), self._url, threads,
                        _c.VERIFY_FN(tell), None)
        if raised:
            raise raised[0]
        _c.check(status)
        return _fields(report)

    def theta_bytes(self, entries: Optional[int] = None) -> bytes:
        """The shared model after the last entry (or after ``entries`` of them) as the bytes of a
        safetensors file, to be written to disk or given to safetensors.torch.load. Beside the
        model's tensors it holds the outer optimizer's vectors, as "diloco.momentum.NAME", for a
        run that continues from there."""
        data, length, at = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_uint64()
        upto = 2**64 - 1 if entries is None else entries
        _c.check(_c.lib().diloco_theta_read(ctypes.byref(data), ctypes.byref(length),
                                            ctypes.byref(at), self._url, upto))
        try:
            return ctypes.string_at(data, length.value)
        finally:
            _c.lib().diloco_free(data)

    def theta(self, entries: Optional[int] = None) -> Dict[str, Any]:
        """The model's tensors in `theta_bytes` by name: numpy arrays, or memoryviews where numpy
        is not installed. A tensor has at most four dimensions: further ones are folded into the
        last."""
        kinds = {"F32": "float32", "I64": "int64", "BOOL": "bool"}
        blob = self.theta_bytes(entries)
        head = int.from_bytes(blob[:8], "little")
        header = json.loads(blob[8:8 + head])
        header.pop("__metadata__", None)

        def array(t: Any) -> Any:
            begin, end = (8 + head + offset for offset in t["data_offsets"])
            return array_over(bytearray(blob[begin:end]), kinds[t["dtype"]], tuple(t["shape"]))
        return {name: array(t) for name, t in header.items() if not name.startswith("diloco.")}

    @property
    def _url(self) -> bytes:
        return _c.text(self.store)


def _walk(kind: Any, take: Callable[..., None], call: Callable[[Any], int]) -> None:
    """Let the library call ``take``; an exception of that ends the walk and is raised here."""
    raised: List[BaseException] = []

    def each(*arguments: Any) -> int:
        try:
            take(*arguments)
            return 0
        except BaseException as error:  # noqa: B902: raised again below
            raised.append(error)
            return Interrupted.status
    status = call(kind(each))
    if raised:
        raise raised[0]
    _c.check(status)


def run(store: Any) -> RunLog:
    """The log of the run at ``store``: ``diloco.run(url).history()``."""
    return RunLog(store)
