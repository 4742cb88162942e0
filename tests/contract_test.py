#!/usr/bin/env python3
"""contract_test.py MATRIX_TEST [--write]: docs/contract.md says what the program says (FED-6, 7).

The tables of refusals and warnings are those of `matrix_test --contract`, and the list of keys is
that of src/cli/settings/plato.c. --write puts them into the page."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/contract.md"


def keys():
    """(key, the value that is fine or None, what is said instead) of the table in plato.c."""
    text = (ROOT / "src/cli/settings/plato.c").read_text()
    table = re.search(r"\} keys\[\] = \{(.*?)\n\};", text, re.S).group(1)
    table = re.sub(r'"\s*\n\s*"', "", table)
    string = r'("(?:[^"\\]|\\.)*"|NULL)'
    for row in re.findall(rf"\{{{string},\s*{string},\s*{string}\}}", table):
        yield [None if p == "NULL" else p[1:-1].replace('\\"', '"') for p in row]


def key_table():
    lines = ["", "| key | value without effect | notice for other values |", "|---|---|---|"]
    for key, fine, instead in keys():
        if fine != "*":
            lines.append(f"| `{key}` | {f'`{fine}`' if fine else ''} | {instead} |")
    return "\n".join(lines + ["", ""])


def replace(page, mark, text):
    return re.sub(rf"(<!-- {mark} -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page,
                  flags=re.S)


def problems(page, program):
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
    if len(sys.argv) < 2:
        sys.exit(f"{pathlib.Path(__file__).name}: give the path of the program matrix_test "
                 "(build/release/tests/matrix_test)")
    program, page = str(pathlib.Path(sys.argv[1]).resolve()), PAGE.read_text()
    if "--write" in sys.argv:
        PAGE.write_text(written(page, program))
        return 0
    found = list(problems(page, program))
    print("\n".join([f"docs/contract.md: {p}" for p in found] + [f"{len(found)} problems"]))
    return 1 if found else 0


sys.exit(main())
