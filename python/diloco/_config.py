"""The settings of a run, by name: those of docs/options.md."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any, Dict, List, Mapping, Optional

from . import _c

# Where an option is looked for whose name a keyword gives without its group.
GROUPS = ("", "server.diloco.", "run.", "trainer.")


def option_text(value: Any) -> str:
    """A value as the library reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(v) for v in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


class Config:
    """All options of a run; an option that is not set has its default.

    ``Config({"run.replicas": 2}, preset="streaming", sync_every=100)``: the preset's values
    first, then the mapping's, then the keywords'. InvalidError: no such option (the nearest is
    named), a value out of range, no such preset. A keyword is an alias (``sync_every``), or an
    option's name without its group (``replicas``, ``codec``), or with "__" for its dots.
    """

    def __init__(self, options: Optional[Mapping[str, Any]] = None, *,
                 preset: Optional[str] = None, **keywords: Any) -> None:
        library = _c.lib()
        handle = library.diloco_config_create()
        if not handle:
            raise MemoryError("out of memory for a configuration")
        self._handle = ctypes.c_void_p(handle)
        weakref.finalize(self, library.diloco_config_destroy, self._handle)
        if preset is not None:
            _c.check(library.diloco_preset_apply(self._handle, _c.text(preset)))
        self.update(options or {})
        self.update({self._option(k): v for k, v in keywords.items()})

    def update(self, options: Mapping[str, Any]) -> None:
        """Set several; those before a wrong one are set."""
        for name, value in options.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        _c.check(_c.lib().diloco_config_set(self._handle, _c.text(name),
                                            _c.text(option_text(value)), b"python"))

    def default(self, name: str, value: Any) -> None:
        """Another default: the value where neither the caller nor a run that exists gives one."""
        if self.origin(name) == "default":
            _c.check(_c.lib().diloco_config_set(self._handle, _c.text(name),
                                                _c.text(option_text(value)), b"default"))

    def __getitem__(self, name: str) -> str:
        """The value as text; a secret reads "***"."""
        room = ctypes.create_string_buffer(8192)
        _c.check(_c.lib().diloco_config_get(self._handle, _c.text(name), room, len(room)))
        return room.value.decode()

    def _option(self, keyword: str) -> str:
        """``rounds`` is trainer.rounds; two underscores are a dot: ``run__deadline``. A name that
        no group has is left as it is: the library says what is near to it."""
        name = keyword.replace("__", ".")
        return next((g + name for g in GROUPS if self.origin(g + name)), name)

    def origin(self, name: str) -> str:
        """Where the value comes from: "default", "preset streaming", "python", "run"."""
        said = _c.lib().diloco_config_origin(self._handle, _c.text(name))
        return said.decode() if said else ""


def presets() -> List[Dict[str, Any]]:
    """The presets: name, summary, citation, values by option."""
    rows: List[Dict[str, Any]] = []
    library = _c.lib()
    while True:
        row = library.diloco_preset_at(len(rows))
        if not row:
            return rows
        p, values, i = row.contents, {}, 0
        while p.values and p.values[i].name:
            values[p.values[i].name.decode()] = p.values[i].value.decode()
            i += 1
        rows.append({"name": p.name.decode(), "summary": p.summary.decode(),
                     "citation": (p.citation or b"").decode(), "values": values})
