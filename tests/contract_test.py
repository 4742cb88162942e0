#!/usr/bin/env python3
"""contract_test.py MATRIX_TEST [--write]: docs/contract.md says what the program says (FED-6, 7).

The tables of refusals and warnings are those of `matrix_test --contract`, the list of keys is that
of src/cli/plato.c, and every row FED-n is either "not yet" or names tests that are where the page
says, under that name or with the row's number. --write puts the first two into the page."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/contract.md"
N_ROWS = 47


def keys():
    """(key, the value that is fine or None, what is said instead) of the table in plato.c."""
    text = (ROOT / "src/cli/plato.c").read_text()
    table = re.search(r"\} keys\[\] = \{(.*?)\n\};", text, re.S).group(1)
    table = re.sub(r'"\s*\n\s*"', "", table)
    string = r'("(?:[^"\\]|\\.)*"|NULL)'
    for row in re.findall(rf"\{{{string},\s*{string},\s*{string}\}}", table):
        yield [None if p == "NULL" else p[1:-1].replace('\\"', '"') for p in row]


def key_table():
    lines = ["", "| key | asks for nothing | what is said behind it |", "|---|---|---|"]
    for key, fine, instead in keys():
        if fine != "*":
            lines.append(f"| `{key}` | {f'`{fine}`' if fine else ''} | {instead} |")
    return "\n".join(lines + ["", ""])


def replace(page, mark, text):
    return re.sub(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page,
                  flags=re.S)


def is_named(number, test):
    path, names = ROOT / test[1], test[0]
    text = path.read_text() if path.exists() else ""
    if not names:
        return re.search(rf"^.*FED-.*\b{number}\b", text, re.M) is not None
    return all(re.search(rf"\b{name}\b", text) for name in names)


def tests_of(cell):
    """([names], path) of "`path` (`a`, `b`); `path`"."""
    for part in cell.split(";"):
        found = re.findall(r"`([^`]+)`", part)
        yield found[1:], found[0]


def problems(page, program):
    rows = dict(re.findall(r"^\| FED-(\d+) \| (.*) \|$", page, re.M))
    for number in range(1, N_ROWS + 1):
        cell = rows.get(str(number))
        if cell is None:
            yield f"there is no row FED-{number}"
        elif not cell.startswith("not yet"):
            for test in tests_of(cell):
                if not is_named(number, test):
                    yield f"FED-{number}: {test[1]} has no test of it, or not {test[0]}"
    for key, fine, _ in keys():
        if fine == "*" and f"`{key}`" not in page:
            yield f"the key {key} is not in the page"
    if page != written(page, program):
        yield f"it is not what is printed: {pathlib.Path(__file__).name} MATRIX_TEST --write"


def written(page, program):
    tables = subprocess.run([program, "--contract"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout
    tables = tables.replace("\n## ", "\n### ")
    return replace(replace(page, "generated", tables + "\n"), "keys", key_table())


def main():
    program, page = str(pathlib.Path(sys.argv[1]).resolve()), PAGE.read_text()
    if "--write" in sys.argv:
        PAGE.write_text(written(page, program))
        return 0
    found = list(problems(page, program))
    missing = len(re.findall(r"^\| FED-\d+ \| not yet", page, re.M))
    print("\n".join([f"docs/contract.md: {p}" for p in found] +
                    [f"{N_ROWS - missing} of {N_ROWS} rows have a test, {len(found)} problems"]))
    return 1 if found else 0


sys.exit(main())
