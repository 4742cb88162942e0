#!/usr/bin/env python3
"""mode_branches_test.py: the places that ask which mode a run is in, and the assertions of the
protocol.

A mode costs a reader what its branches cost, not what its own file does. So each question has a
ceiling: the number of places in src/ without tests that ask it. A change that removes one lowers
the ceiling; none may raise it. The aim is 12 each; instead of a mode, ask for the property that
matters (base/run_kind.h), or add a function to a table (protocol/mode.h, exchange/exec_mode.c). The
protocol's own share is counted apart, since it is read most.

The assertions of src/protocol have a floor in the same way: 10 a 1,000 lines. No assertion in src/
changes anything: it has no assignment, and no call of a function that fills its argument."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# question: pattern, files of the mode itself, ceiling in src/, ceiling in src/protocol
QUESTIONS = {
    "is it asynchronous?": (
        r"\bdl_machine_is_async\(|(?:->|\.)async\b(?!\s*=[^=])|\bschedule [!=]= DL_SCHEDULE_ASYNC\b",
        {"async", "async_phases", "pace_async", "run_kind"}, 12, 7),
    "has it logical clients?": (
        r"\bdl_config_federated\(|\btotal_clients\s*(?:[<>!=]|\?|&&|\|\|)",
        {"logical_clients", "simulated_time", "run_kind"}, 12, 2),
    "who combines?": (r"(?:[!=]=\s*|case\s+)DL_TOPOLOGY_(?:ALLGATHER|LEADER|SHARDED)\b",
                      {"topology"}, 3, 0),
}
LEAST_ASSERTIONS = 10  # a 1,000 lines
SIDE_EFFECT = re.compile(r"\bDL_ASSERT\((?:[^;\"]|\"[^\"]*\")*?"
                         r"(?:\+\+|--|[^=!<>]=[^=]|\bdl_size_(?:add|mul)\()")


def code_of(path):
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)


def sources(folder):
    return [p for p in sorted(folder.rglob("*.[ch]")) if not p.name.endswith("_test.c")]


def places(folder, pattern, own):
    """The places in a folder that match, without the mode's own files and the definition of a
    function that asks."""
    found = 0
    for path in sources(folder):
        if path.stem in own:
            continue
        code = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', code_of(path))
        code = re.sub(r"^(?:static inline |DL_)?\w+ dl_(?:machine_is_async|config_federated)\(.*?^}", "",
                      code, flags=re.M | re.S)
        found += len(re.findall(pattern, code))
    return found


def problems():
    for question, (pattern, own, most, most_in_protocol) in QUESTIONS.items():
        for folder, ceiling in ((SRC, most), (SRC / "protocol", most_in_protocol)):
            n = places(folder, pattern, own)
            where = folder.relative_to(ROOT)
            if n > ceiling:
                yield f"{where}: {n} places ask \"{question}\", at most {ceiling} may"
            elif n < ceiling:
                yield f"{where}: {n} places ask \"{question}\": lower the ceiling from {ceiling}"
    protocol = sources(SRC / "protocol")
    asserts = sum(len(re.findall(r"\bDL_ASSERT\(", code_of(p))) for p in protocol)
    lines = sum(len(p.read_text().splitlines()) for p in protocol)
    if asserts * 1000 < LEAST_ASSERTIONS * lines:
        yield f"src/protocol: {asserts} assertions in {lines} lines, at least {LEAST_ASSERTIONS} a 1,000"
    for path in sources(SRC):
        for match in SIDE_EFFECT.finditer(code_of(path)):
            yield f"{path.relative_to(ROOT)}: an assertion changes something: {match.group()}"


found = list(problems())
print("\n".join(found + [f"{len(found)} problems"]))
sys.exit(1 if found else 0)
