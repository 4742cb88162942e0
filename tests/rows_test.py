#!/usr/bin/env python3
"""rows_test.py: every row of the requirements names tests that are there (FED-7).

A row of docs/contract.md or docs/requirements.md ends with a cell that says "not yet", or names
files, and in brackets tests in them. A named test is in that file; a file without named tests has
the row's number in it."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("docs/contract.md", "docs/requirements.md")
ROWS = {"FED": 47, "SWM": 36, "ALG": 35, "LIB": 25, "STO": 17, "R": 22}


def is_named(row, path, names):
    path = ROOT / path
    text = path.read_text() if path.is_file() else ""
    if names:
        return all(re.search(rf"\b{name}\b", text) for name in names)
    group, number = row.split("-")
    return re.search(rf"^.*\b{group}-.*\b{number}\b", text, re.M) is not None


def tests_of(cell):
    """(path, [names]) of "`path` (`a`, `b`); `path`"."""
    for part in cell.split(";"):
        path, *names = re.findall(r"`([^`]+)`", part) or [part]
        yield path, names


def problems(rows):
    for group, n in ROWS.items():
        for row in (f"{group}-{i}" for i in range(1, n + 1)):
            if row not in rows:
                yield f"there is no row {row}"
            elif not rows[row].startswith("not yet"):
                for path, names in tests_of(rows[row]):
                    if not is_named(row, path, names):
                        yield f"{row}: {path} has no test of it, or not {names}"


def main():
    rows = {}
    for page in PAGES:
        rows |= re.findall(r"^\| ([A-Z]+-\d+) \|.*?([^|]+) \|$", (ROOT / page).read_text(), re.M)
    rows = {row: cell.strip() for row, cell in rows.items()}
    found = list(problems(rows))
    missing = [row for row, cell in rows.items() if cell.startswith("not yet")]
    print("\n".join(found + [f"{len(rows) - len(missing)} of {len(rows)} rows have a test, "
                             f"{len(found)} problems"]))
    return 1 if found else 0


sys.exit(main())
