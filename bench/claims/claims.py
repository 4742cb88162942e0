#!/usr/bin/env python3
"""claims.py - the papers' claims, tried on a small model and real text.

    bench/claims/claims.py build/release/diloco --data FOLDER

FOLDER has texts (*.txt), of which val.txt is for validation. Its other files, in the order of their
names, are the shards' text, so that eight authors give eight shards that differ. Trains what is
missing under --out, prints each as it comes, and writes docs/claims.md with its pictures. It may be
stopped at any time, and the same command resumes; --hours stops it by itself. --overnight continues
without a limit and trains further seeds for rows that are inconclusive, up to --most-seeds. --quick
is what CI runs: a few rows, a small model, a text of simple sentences. Exit code 1: with --quick, a
claim does not hold; 130: stopped."""
import argparse
import pathlib
import shutil
import sys
import time

from checks import FAILS, HOLDS, OPEN, Trend, Within
from figure import draw
from rows import ARMS, QUICK, ROWS
from trials import TUNING_SEED, Bench, Failed, monitored, replicas_before_last

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VALIDATION = 128 << 10  # bytes of the validation text that are used
DERIVED = {"the replicas' mean": "every snapshot kept", "one replica": "every snapshot kept"}
SMALL = {"parameters.model.channels": 64, "parameters.model.ffn": 192,
         "parameters.model.context": 64}


class Clock:
    """How long trials take, to say how long the rest will."""

    def __init__(self, hours):
        self.start, self.spent, self.done = time.monotonic(), 0.0, 0
        self.until = self.start + hours * 3600 if hours else None

    def took(self, seconds):
        self.spent, self.done = self.spent + seconds, self.done + 1

    def left(self, n):
        if not self.done:
            return ""
        minutes = self.spent / self.done * n / 60
        return f", about {minutes:.0f} min left" if minutes >= 1 else ""

    def is_over(self):
        return self.until is not None and time.monotonic() > self.until


class OutOfTime(Exception):
    pass


class Lab:
    def __init__(self, bench, clock):
        self.bench, self.clock = bench, clock
        self.values = {"loss": {}, "cosine": {}, "norm": {}}  # metric: arm: seed: value

    def train(self, name, seed, n_left, more=None):
        known = self.bench.is_done(name, seed, (more or {}).items())
        if not known and self.clock.is_over():
            raise OutOfTime
        began = time.monotonic()
        folder, trial = self.bench.run(name, ARMS[name], seed, more)
        if not known:
            self.clock.took(time.monotonic() - began)
            print(f"{name}, seed {seed}: loss {trial['loss']:.4f}, {trial['entries']} entries"
                  f"{self.clock.left(n_left)}", flush=True)
        return folder, trial

    def tuned(self, name):
        """The values that did best on the tuning seed."""
        arm = ARMS[name]
        if not arm.tune:
            return {}
        (key, candidates), = arm.tune.items()
        losses = {}
        for value in candidates:
            losses[value] = self.train(name, TUNING_SEED, 1, {key: value})[1]["loss"]
        return {key: min(losses, key=losses.get)}

    def measure(self, name, seed, n_left):
        source = DERIVED.get(name, name)
        folder, trial = self.train(source, seed, n_left, self.tuned(source))
        for metric, value in {"loss": trial["loss"], **monitored(folder)}.items():
            self.values[metric].setdefault(source, {})[seed] = value
        if source in DERIVED.values():
            for derived, loss in replicas_before_last(self.bench, folder).items():
                self.values["loss"].setdefault(derived, {})[seed] = loss
        for part in ("store", "state"):  # the result and the record are enough from now on
            shutil.rmtree(folder / part, ignore_errors=True)


def arms_of(rows):
    return list(dict.fromkeys(arm for row in rows for check in row.checks for arm in check.arms))


def judge(row, values):
    """[(check, verdict, interval)], or None where arms are missing."""
    out = []
    for check in row.checks:
        of = values[getattr(check, "metric", "loss")]
        if any(not of.get(arm) for arm in check.arms):
            return None
        out.append((check, *check.judge(of)))
    return out


def summary(verdicts):
    worst = {v for _, v, _ in verdicts}
    return FAILS if FAILS in worst else OPEN if OPEN in worst else HOLDS


def band_of(check):
    return check.band if isinstance(check, Within) else None


def difference(check, d):
    return f"{d} a doubling" if isinstance(check, Trend) else str(d)


def read_remarks():
    """A person's remarks on rows that do not reproduce: remarks.md, `N: text`."""
    path = pathlib.Path(__file__).with_name("remarks.md")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {int(n): text.strip() for n, _, text in (line.partition(":") for line in lines)
            if n.strip().isdigit()}


def write_page(lab, rows, page, how):
    remarks, pictures = read_remarks(), page.parent / "claims"
    pictures.mkdir(exist_ok=True)
    text = ["# Claims of papers, tested here", "", how, "",
            "A claim of a paper is tried in short runs, as one or more checks. Each check compares "
            "*arms*: trainings that differ in some options. It is a paired difference over seeds, in per "
            "cent of the loss (or of the value named), with its 95 % interval. It *holds* or *does not "
            "hold* if the interval decides it. *inconclusive* means that the interval is too wide, or "
            "that the same check does not detect the arm that is known to be bad. The "
            "[glossary](glossary.md) explains the terms.", "",
            "| # | claim | published | here |", "|---|---|---|---|"]
    details = []
    for row in rows:
        verdicts = judge(row, lab.values)
        if verdicts is None:
            text.append(f"| {row.number} | {row.claim} | {row.published} | not trained yet |")
            continue
        link = f"[{summary(verdicts)}](#{row.number})"
        text.append(f"| {row.number} | {row.claim} | {row.published} | {link} |")
        name = f"{row.number}.svg"
        (pictures / name).write_text(draw(
            row.claim, [(c.text(), v, d, band_of(c)) for c, v, d in verdicts]), encoding="utf-8")
        details += ["", f'<a id="{row.number}"></a>', f"## {row.number}. {row.claim}", "",
                    f"![differences](claims/{name})", "", "| check | seeds | difference | |",
                    "|---|---|---|---|"]
        details += [f"| {c.text()} | {len(d.values)} | {difference(c, d)} | {v} |"
                    for c, v, d in verdicts]
        details += ["", "| arm | " + " | ".join(["loss", "seeds"]) + " |", "|---|---|---|"]
        for arm in arms_of([row]):
            losses = lab.values["loss"][arm].values()
            details.append(f"| {arm} | {sum(losses) / len(losses):.4f} | {len(losses)} |")
        for remark in (row.remark, remarks.get(row.number)):
            if remark:
                details += ["", remark[0].upper() + remark[1:] + "."]
    page.write_text("\n".join(text + details) + "\n", encoding="utf-8")


WORDS = """the a one this old young long dark cold small king queen sailor child horse river mountain ship house garden
letter winter evening stone bird saw heard found carried followed answered remembered opened crossed before after near under
over without quickly slowly again never often""".split()


def made_texts(out):
    """Sentences of a fixed random grammar, the same on every machine and in every version: 200 kB to train on, and
    20 kB for validation."""
    state = 1

    def draw(n):
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (state >> 33) % n

    def phrase():
        noun = WORDS[10 + draw(15)]
        adjective = WORDS[4 + draw(6)] + " " if draw(2) else ""
        return f"{WORDS[draw(4)]} {adjective}{noun}"

    def sentence():
        text = f"{phrase()} {WORDS[25 + draw(9)]} {phrase()}"
        if draw(3) == 0:
            text += f" {WORDS[34 + draw(6)]} {phrase()}"
        if draw(4) == 0:
            text += " " + WORDS[40 + draw(5)]
        return text.capitalize() + (".\n" if draw(5) == 0 else ". ")

    out.mkdir(parents=True, exist_ok=True)
    for name, size in (("train.txt", 200_000), ("val.txt", 20_000)):
        text = ""
        while len(text) < size:
            text += sentence()
        (out / name).write_text(text, encoding="utf-8")
    return out


def emptied(folder):
    """The folder of --quick, without the trials of another program or of other texts."""
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def find_data(folder, out):
    texts = sorted(folder.glob("*.txt"))
    validation = folder / "val.txt"
    if validation not in texts or len(texts) < 2:
        sys.exit(f"claims.py: {folder} has no val.txt, or no other *.txt beside it")
    out.mkdir(parents=True, exist_ok=True)
    short = out / "validation.txt"
    short.write_bytes(validation.read_bytes()[:VALIDATION])
    return ",".join(str(t) for t in texts if t != validation), short


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program")
    p.add_argument("--data", type=pathlib.Path, help="folder of texts, one of them val.txt")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/claims"),
                   help="where trials are kept (default build/claims)")
    p.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/claims.md")
    p.add_argument("--rows", help="only these, as 2,7,14")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--hours", type=float, help="stop after so many (default 2; 0: never)")
    p.add_argument("--overnight", action="store_true", help="further seeds for inconclusive rows")
    p.add_argument("--most-seeds", type=int, default=12)
    p.add_argument("--quick", action="store_true", help="a few rows on a small model")
    o = p.parse_args()
    if o.hours is None:
        o.hours = 0 if o.overnight or o.quick else 2
    return o


def train_rows(lab, rows, seeds):
    arms = arms_of(rows)
    todo = [(arm, seed) for seed in seeds for arm in arms]
    for i, (arm, seed) in enumerate(todo):
        n_left = sum(not lab.bench.is_done(DERIVED.get(a, a), s) for a, s in todo[i + 1:])
        lab.measure(arm, seed, n_left)


def is_open(row, values):
    verdicts = judge(row, values)
    return verdicts is not None and summary(verdicts) == OPEN


def settle(lab, rows, n_seeds, most):
    for n in range(n_seeds + 1, most + 1):
        unsettled = [r for r in rows if is_open(r, lab.values)]
        if not unsettled:
            return
        train_rows(lab, unsettled, [n])


def main():
    o = options()
    rows = ROWS
    if o.quick:
        rows = QUICK
        o.out = emptied(o.out / "quick")
        o.data = o.data or made_texts(o.out / "texts")
    if o.rows:
        wanted = {int(n) for n in o.rows.split(",")}
        rows = [r for r in rows if r.number in wanted]
    if not o.data:
        sys.exit("claims.py: --data FOLDER: texts (*.txt) of different kinds, best by different "
                 "authors, one of them val.txt; or --quick, which needs none")
    bench = Bench(o.program, o.out / "trials", find_data(o.data.resolve(), o.out.resolve()),
                  SMALL if o.quick else None, 2 if o.quick else 1)
    lab = Lab(bench, Clock(o.hours))
    stopped = None
    try:
        train_rows(lab, rows, range(1, o.seeds + 1))
        if o.overnight:
            settle(lab, rows, o.seeds, o.most_seeds)
    except (OutOfTime, KeyboardInterrupt) as why:
        stopped = "the hours are over" if isinstance(why, OutOfTime) else "interrupted"
    except Failed as why:
        sys.exit(f"claims.py: {why}")
    if not o.quick:
        write_page(lab, ROWS, o.page,
                   "Written by `make claims`; how to repeat it: [bench/claims](../bench/claims).")
    verdicts = {row: judge(row, lab.values) for row in rows}
    for row, found in verdicts.items():
        for check, verdict, d in found or []:
            print(f"{row.number:3}  {verdict:13}  {check.text()}: {difference(check, d)}")
    if stopped:
        print(f"stopped: {stopped}; the same command resumes")
        return 130
    return 1 if o.quick and any(summary(v) == FAILS for v in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
