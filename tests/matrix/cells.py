#!/usr/bin/env python3
"""cells.py - a covering set of the matrix, trained: every two values that go together are together
in a cell that trains three rounds of a tiny model, verifies, and warns as it should; every two that
do not (whatever else is chosen, each preset's own values) are together in a cell that is refused
with the sentence that the pure function has for it (STO-8).

The cells are found greedily and are the same on every machine. To run one cell, name its settings as
--list prints them:

    tests/matrix/cells.py build/diloco build/tests/matrix_test --cell 'preset=streaming codec=topk'
"""
import argparse
import itertools
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MOST = 330
AT_LEAST = 5  # cells of each preset
ROUNDS = 3

CONFIG = """
[run]
threads = 1
heartbeat = 1
patience = 60
[trainer]
rounds = 3
batch_size = 1
eval_batches = 1
[parameters.model]
layers = 3
heads = 1
channels = 8
context = 16
[data]
train_path = "text.txt"
"""


class Matrix:
    """The axes of rules.txt but the store's, and the program that judges."""

    def __init__(self, program, judge):
        self.judge = subprocess.Popen([judge, "--judge"], cwd=ROOT, text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.names, self.axes, self.judged, self.tries = {}, [], {}, 0
        for line in (HERE / "rules.txt").read_text().splitlines():
            words = line.split()
            if words[:1] == ["name"]:
                self.names[words[1]] = words[2]
            elif words[:1] in (["axis"], ["beside"]) and not words[1].startswith("store="):
                self.axes.append(self.values(program, words[1:]))

    def values(self, program, words):
        """A preset's own value is one more, but H's: it would be hundreds of steps."""
        short = words[0].split("=")[0]
        found = [] if short in ("preset", "H", "replicas") else [None]
        for word in words:
            if word.endswith("=*"):
                found += [f"{short}={name}" for name in self.choices(program, self.names[short])]
            else:
                found.append(word)
        return list(dict.fromkeys(found))

    def choices(self, program, option):
        page = subprocess.run([program, "options", "--markdown"], capture_output=True, text=True,
                              check=True).stdout.replace("\\_", "_")
        row = re.search(rf"^\| `{re.escape(option)}`[^|]*\| one of ([^|]*) \|", page, re.M)
        return row.group(1).split(", ")

    def ask(self, cell):
        """The answer of the pure function: the exit code, and its sentence or its warnings."""
        text = words_of(cell)
        if text not in self.judged:
            self.judge.stdin.write(text + "\n")
            self.judge.stdin.flush()
            code, _, said = self.judge.stdout.readline().strip().partition(" ")
            self.judged[text] = int(code), said
        return self.judged[text]


def words_of(cell):
    return " ".join(v.replace("+", " ") for v in cell if v)


def pairs_of(cell):
    return set(itertools.combinations(enumerate(cell), 2))


def pair(a, b):
    return (a, b) if a[0] < b[0] else (b, a)


def every_pair(matrix):
    return [((i, v), (k, w)) for i, k in itertools.combinations(range(len(matrix.axes)), 2)
            for v in matrix.axes[i] for w in matrix.axes[k]]


def by_gain(matrix, rng, cell, axis, wanted):
    """The values of an axis, first those that add most wanted pairs to the cell."""
    values = list(matrix.axes[axis])
    rng.shuffle(values)
    return sorted(values, key=lambda v: -sum(
        pair((axis, v), (k, w)) in wanted for k, w in enumerate(cell) if k != axis))


def plain_cell(matrix, fixed):
    """A cell that is not refused, with the fixed values (axis: value) and otherwise the preset's
    own where it has any; None: no value."""
    for cell in itertools.product(*([fixed[i]] if i in fixed else values[:1] if values[0] is None
                                    else values for i, values in enumerate(matrix.axes))):
        if matrix.ask(cell)[0] == 0:
            return cell
    return None


def exchanged(matrix, rng, cell, fixed, wanted, accepts):
    """The cell, with each value that is not fixed exchanged for the most wanted acceptable one."""
    for axis in rng.sample(range(len(cell)), len(cell)):
        if axis in fixed:
            continue
        for v in by_gain(matrix, rng, cell, axis, wanted):
            other = (*cell[:axis], v, *cell[axis + 1:])
            if accepts(other):
                cell = other
                break
    return cell


def with_more(matrix, rng, cell, fixed, wanted, accepts):
    """The best of some such cells, each exchanged again in the light of its other values."""
    tries = []
    for _ in range(matrix.tries):
        other = exchanged(matrix, rng, cell, fixed, wanted, accepts)
        tries += [other, exchanged(matrix, rng, other, fixed, wanted, accepts)]
    return max(tries, key=lambda c: sum(p in wanted for p in pairs_of(c)))


def is_trained(matrix):
    return lambda cell: matrix.ask(cell)[0] == 0


def take(cells, cell, wanted):
    cells.append(cell)
    for p in pairs_of(cell):
        wanted.pop(p, None)


def trained_cells(matrix, rng):
    """Cells that are not refused, and the pairs that none of them has."""
    cells, wanted, never = [], dict.fromkeys(every_pair(matrix)), {}
    while wanted:
        first = next(iter(wanted))
        cell = plain_cell(matrix, dict(first))
        if cell:
            take(cells, with_more(matrix, rng, cell, dict(first), wanted, is_trained(matrix)), wanted)
        else:
            never[first] = wanted.pop(first)
    return cells, never


def refused_cells(matrix, rng, never):
    cells, wanted = [], dict(never)
    while wanted:
        fixed = dict(next(iter(wanted)))
        cell = tuple(fixed.get(i, values[0]) for i, values in enumerate(matrix.axes))
        take(cells, with_more(matrix, rng, cell, fixed, wanted, lambda _: True), wanted)
    return cells


def covering_set(matrix):
    """With few tries; with more of them where that leaves too many cells."""
    for matrix.tries in (3, 10):
        rng = random.Random(1)
        cells, never = trained_cells(matrix, rng)
        cells += refused_cells(matrix, rng, never)
        if len(cells) <= MOST:
            break
    for preset in matrix.axes[0]:
        n = sum(cell[0] == preset for cell in cells)
        if n < AT_LEAST:
            sys.exit(f"{preset} is in {n} cells only")
    if len(cells) > MOST:
        sys.exit(f"{len(cells)} cells are more than {MOST}")
    return cells


# ---- running ---------------------------------------------------------------------------------


class Failure(Exception):
    pass


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def settings_of(matrix, cell):
    for word in words_of(cell).split():
        name, _, value = word.partition("=")
        if name == "preset":
            yield from ("--preset", value)
        else:
            yield from ("--set", f"{matrix.names.get(name, name)}={value}")


def check_refused(code, said, got, err, store):
    if got != code:
        raise Failure(f"exit code {got} instead of {code}: {err}")
    # The source of a setting may precede it.
    if not (err.startswith("diloco: ") and err.endswith(f": {said}\n")):
        raise Failure(f"it says  {err.strip()}\ninstead of  diloco: {said}")
    if store.exists():
        raise Failure("it left something in the store")


def warnings_in(record):
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    ends = sum(line["event"] == "end" for line in lines)
    return ends, {line["code"]: line["text"] for line in lines if line["event"] == "warn"}


def check_nodes(program, store):
    """Of a run without a log, whose nodes each have a model."""
    got, out, err = run(program, "status", str(store), "--json")
    nodes = [] if got else json.loads(out)["nodes"]
    if not nodes or not all(node["done"] and node["round"] == ROUNDS for node in nodes):
        raise Failure(f"not every node came to its end: {out}{err}")


def check_trained(program, said, got, err, store):
    if got:
        raise Failure(f"exit code {got}: {err}")
    ends, warned = warnings_in(store.with_suffix(".jsonl"))
    missing = set(said.split()) - set(warned)
    if missing or not ends:
        raise Failure(f"the record has no warning {missing} or no end")
    for code in said.split():
        if warned[code] not in err:
            raise Failure(f"stderr has no warning {code}: {err}")
    got, out, err = run(program, "verify", str(store), "--json")
    if got == 3 and "has no log" in err:
        return check_nodes(program, store)
    if got:
        raise Failure(f"verify: exit code {got}: {err}")
    report = json.loads(out)
    # On a slow machine there is a snapshot in between, and verify replays from there.
    if not report["complete"] or report["first_replayed"] + report["commits"] < ROUNDS:
        raise Failure(f"the log is not whole: {out}")


def run_cell(program, matrix, cell, folder):
    code, said = matrix.ask(cell)
    store = folder / "run"
    got, _, err = run(program, "train", str(folder / "tiny.toml"), "--store", str(store), "--json",
                      "--record", str(store.with_suffix(".jsonl")), *settings_of(matrix, cell))
    if code:
        check_refused(code, said, got, err, store)
    else:
        check_trained(program, said, got, err, store)
    return code


def make_folder(folder):
    rng = random.Random(7)
    words = "the a one sea ship wind and of to king night old told sails deep home far".split()
    (folder / "text.txt").write_text(" ".join(rng.choice(words) for _ in range(6000)))
    (folder / "tiny.toml").write_text(CONFIG.replace("text.txt", str(folder / "text.txt")))


def run_all(program, matrix, cells, verbose):
    failed, codes = [], []
    for cell in cells:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_folder(folder)
            try:
                codes.append(run_cell(program, matrix, cell, folder))
                what = "refused" if codes[-1] else "trained"
            except (Failure, subprocess.TimeoutExpired) as failure:
                failed.append(cell)
                what = f"FAILED: {failure}"
        if verbose or cell in failed:
            print(f"{time.monotonic() - began:5.1f} s  {words_of(cell)}  {what}", flush=True)
    print(f"{codes.count(0)} cells trained and verified, {len(codes) - codes.count(0)} refused, "
          f"{len(failed)} failed")
    return len(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="diloco")
    parser.add_argument("judge", help="matrix_test")
    parser.add_argument("--every", type=int, default=1, metavar="N",
                        help="each N-th cell only")
    parser.add_argument("--cell", metavar="SETTINGS", help="one cell: 'preset=eager codec=int4 H=4'")
    parser.add_argument("--list", action="store_true", help="print the cells and what is said to each")
    parser.add_argument("--verbose", action="store_true", help="a line for each cell")
    given = parser.parse_args()
    program = shutil.which(given.program) or str(pathlib.Path(given.program).resolve())
    matrix = Matrix(str(pathlib.Path(program).resolve()), str(pathlib.Path(given.judge).resolve()))
    cells = [tuple(given.cell.split())] if given.cell else covering_set(matrix)[::given.every]
    if given.list:
        for cell in cells:
            print(words_of(cell), "->", *matrix.ask(cell))
        return 0
    return 1 if run_all(str(pathlib.Path(program).resolve()), matrix, cells,
                        given.verbose or given.cell) else 0


sys.exit(main())
