#!/usr/bin/env python3
"""phases_test.py: the phase table of src/protocol/phases.c says what the code does, and
docs/protocol.md says what the table says.

A phase's last column is the set of phases that its handler may enter, through whatever it calls.
The test follows the calls in src/protocol and compares. `dl_machine_next` asserts the table after
each move, so a phase that is missing there would stop a replica."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src/protocol"
FUNCTION = re.compile(r"^(static )?[\w *]*?\b(\w+)\([^;{]*?\)\n\{\n(.*?)^\}", re.M | re.S)
ROW = re.compile(r"\[(DL_\w+)\]\s*=\s*\{\"([^\"]+)\",\s+([\w() |]+),\s+(\w+),\s+[\w |]+,\s+([^}]+)\}")
DOC_ROW = re.compile(r"^\| ([a-z, ]+) \| ([A-Z_, ]+) \| (?:`(\w+)`|none) \|", re.M)


def without_comments(path):
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)


def phases():
    """The names of the enumeration, in order."""
    body = re.search(r"typedef enum dl_phase \{(.*?)\} dl_phase;",
                     without_comments(FOLDER / "machine_parts.h"), re.S).group(1)
    return re.findall(r"\bDL_\w+\b", body)


def functions():
    """{(file, name): body} of the protocol without its tests and the table itself. The file of a
    function that all files may call is None."""
    found = {}
    for path in sorted(FOLDER.rglob("*.c")):
        if path.name.endswith("_test.c") or path.name == "phases.c":
            continue
        for static, name, body in FUNCTION.findall(without_comments(path)):
            found[path.name if static else None, name] = path.name, body
    return found


def hooks(code):
    """{member: functions} of the tables of mode.h and topology_rules.h."""
    found = {}
    for path in sorted(FOLDER.rglob("*.c")):
        for member, name in re.findall(r"^\s+\.(\w+) = (\w+),$", without_comments(path), re.M):
            key = callee(code, path.name, name)
            if key:
                found.setdefault(member, set()).add(key)
    return found


def callee(code, file, name):
    """The function of that name which a file may call."""
    return next((key for key in ((file, name), (None, name)) if key in code), None)


def entered(code, tables, names, handler):
    """The phases that `handler` may enter, in any mode and topology."""
    seen, todo, found = set(), [(None, handler)], set()
    while todo:
        at = todo.pop()
        if at is None or at in seen:
            continue
        seen.add(at)
        file, body = code[at]
        body = re.sub(r"phase [!=]= DL_\w+", "", body)
        found |= set(re.findall(r"\w+", body)) & names
        todo += [callee(code, file, name) for name in set(re.findall(r"(?<!->)\b(\w+)\(", body))]
        for member in set(re.findall(r"->(\w+)\(", body)):
            todo += tables.get(member, ())
    return found - {"DL_OVER"}


def table(names):
    """{phase: (name, requests, handler, phases it leads to)} of phases.c."""
    text = without_comments(FOLDER / "phases.c").replace("\\\n", " ")
    macros = dict(re.findall(r"^#define (\w+)\s+(.*)$", text, re.M))

    def expand(value):
        found = set(re.findall(r"TO\((\w+)\)", value))
        for word in re.findall(r"\b[A-Z_]+\b", value):
            if word in macros:
                found |= expand(macros[word])
        return found & names

    return {phase: (name, re.findall(r"ASKS\((\w+)\)", asks), handler, expand(leads))
            for phase, name, asks, handler, leads in ROW.findall(text)}


def problems():
    names = phases()
    code, rows = functions(), table(set(names))
    tables = hooks(code)
    for phase in names:
        if phase not in rows:
            yield f"phases.c has no row for {phase}"
            continue
        _, _, handler, leads = rows[phase]
        if handler == "NULL":
            continue
        if (None, handler) not in code:
            yield f"{phase}: nothing defines {handler}"
            continue
        enters = entered(code, tables, set(names), handler)
        for other in sorted(enters - leads):
            yield f"{phase}: {handler} may enter {other}, and its row does not say so"
        for other in sorted(leads - enters):
            yield f"{phase}: its row leads to {other}, and {handler} never enters that"
    documented = {name: (asks.split(", "), handler or "NULL")
                  for name, asks, handler in DOC_ROW.findall((ROOT / "docs/protocol.md").read_text())}
    known = {row[0]: (row[1], row[2]) for row in rows.values()}
    for name in sorted({*known, *documented}):
        if known.get(name) != documented.get(name):
            yield f"docs/protocol.md: {name} is {documented.get(name)}, in phases.c {known.get(name)}"


found = list(problems())
print("\n".join(found + [f"{len(found)} problems in the phase table"]))
sys.exit(1 if found else 0)
