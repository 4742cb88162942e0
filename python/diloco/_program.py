"""The program `diloco`: where it is, and the wheel's command of that name."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

from .errors import LibraryError


def path() -> str:
    """The program beside the library that is in use: in DILOCO_LIBRARY's folder, the wheel, or
    on PATH. LibraryError."""
    said = os.environ.get("DILOCO_LIBRARY")
    folder = pathlib.Path(said) if said else pathlib.Path(__file__).parent / "_lib"
    beside = (folder if folder.is_dir() else folder.parent) / "diloco"
    if os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which("diloco")
    if not found:
        raise LibraryError("the program diloco is neither beside the library nor on PATH: install "
                           "the package with `pip install ./python`")
    return found


def main() -> None:
    """The command: becomes the program."""
    program = str(pathlib.Path(__file__).parent / "_lib" / "diloco")
    os.environ.setdefault("DILOCO_PYTHON", sys.executable)  # for `diloco track`
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        raise SystemExit(f"{program} does not start: {error.strerror}. It is of another platform: "
                         "install the wheel of this platform, or build one here with `pip install "
                         "./python`") from None
