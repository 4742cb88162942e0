#!/usr/bin/env python3
"""front.py - bytes at equal loss: how few bytes a replica sends for a loss gap of 0, 1, 2 and 5 %.

    bench/front/front.py build/release/diloco --data FOLDER

FOLDER has texts (*.txt), of which val.txt is for validation. Every arm of arms.py is trained on as
many tokens as synchronous training with AdamW and with Muon, whose better one is the baseline. Each
method's inner learning rate is tuned for its H, and the baselines' too, on a seed that is compared
with nothing. Trials are kept under --out and never trained twice: after an interruption the same
command resumes. --hours limits a call (default 2), --overnight does not. The results so far are in
front.md, front.json and front-*.svg under --out, renewed after every trial. --quick trains a few arms
of a small model on a text of simple sentences, to try the program. Trials of measured.jsonl beside
this file are not trained again either, if texts and settings are the same."""
import argparse
import json
import pathlib
import shutil
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "claims"))

from arms import BASELINES, all_arms  # noqa: E402
from claims import SMALL, emptied, find_data, made_texts  # noqa: E402
from measured import Measured, digest  # noqa: E402
from picture import draw  # noqa: E402
from stats import relative  # noqa: E402
from trials import TUNING_SEED, Bench, Failed  # noqa: E402

STEPS = 4600  # a multiple of every H
GAPS = (0, 1, 2, 5)  # percent
QUICK = "diloco, H 20, int|averaging, H 20,|streaming, Muon, H 20,"
PARTITIONS = {"i.i.d.": "whole", "an author or two each": "contiguous"}


class OutOfTime(Exception):
    """The hours are over."""


class Trial:
    """The two attributes of an arm that trials.Bench reads."""

    def __init__(self, steps, settings):
        self.steps, self.settings = steps, settings


def widened(rates, best):
    """`rates`, ascending, with a further one where the best is at an end: as 1.5e-3, for --set."""
    def of(value):
        digits, power = f"{value:.3e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    if len(rates) == 1 or best not in (rates[0], rates[-1]):
        return rates
    if best == rates[0]:
        return (of(float(best) / 2), *rates)
    return (*rates, of(float(best) * 2))


class Lab:
    """Trains arms, each with the inner learning rate that is best for it."""

    def __init__(self, bench, measured, hours, steps):
        self.bench, self.measured, self.steps = bench, measured, steps
        self.until = time.monotonic() + 3600 * hours if hours else None
        self.rates = {}
        self.points = {}  # (M, partition, arm): {seed: (loss, bytes a replica)}

    def train(self, arm, m, partition, seed, rate):
        """Facts of a trial, from its folder where it is there."""
        name = f"{arm.name}, M {m}, {partition}"
        trial = Trial(arm.steps(self.steps), {
            **arm.settings(m), "data.partition": PARTITIONS[partition],
            "preset": arm.method.preset if hasattr(arm, "method") else "single"})
        more = {"lr": rate}
        identity = self.measured.identity(trial.steps, self.bench.settings(trial, more), seed)
        if known := self.measured.find(identity):
            return known
        if self.until and time.monotonic() > self.until:
            raise OutOfTime
        began = time.monotonic()
        folder, _ = self.bench.run(name, trial, seed, more)
        facts = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        replicas = int(arm.settings(m)["run.replicas"])
        if facts["steps"] > replicas * self.steps:
            raise Failed(f"{name}: {facts['steps']} steps of {replicas} replicas, more than "
                         f"{self.steps} each")
        print(f"{name}, lr {rate}, seed {seed}: loss {facts['loss']:.4f}, "
              f"{time.monotonic() - began:.0f} s", flush=True)
        facts = self.measured.add(identity, facts, trial=name, lr=rate, seed=seed)
        for part in ("store", "state"):  # the result is enough from now on
            shutil.rmtree(folder / part, ignore_errors=True)
        return facts

    def rate(self, arm, rates):
        """The best inner learning rate, found with two replicas and i.i.d. data. While it is the
        lowest or the highest that was tried, half or twice as much is tried, too."""
        leader = arm.tuned_as
        if leader.name not in self.rates:
            losses = {}
            while (new := next((r for r in rates if r not in losses), None)) is not None:
                losses[new] = self.train(leader, 2, "i.i.d.", TUNING_SEED, new)["loss"]
                if all(r in losses for r in rates):
                    rates = widened(rates, min(losses, key=losses.get))
            self.rates[leader.name] = min(losses, key=losses.get)
        return self.rates[leader.name]

    def measure(self, arm, rates, m, partition, seed):
        facts = self.train(arm, m, partition, seed, self.rate(arm, rates))
        sent = facts["bytes_sent"] / m if hasattr(arm, "method") else facts["data_parallel_bytes"]
        self.points.setdefault((m, partition, arm.name), {})[seed] = (facts["loss"], sent)

    def baseline(self, seed):
        for arm in BASELINES:
            self.measure(arm, arm.rates, 1, "i.i.d.", seed)


def losses_of(points):
    return {seed: loss for seed, (loss, _) in points.items()}


def better_baseline(points):
    """Name and losses of the better of the synchronous arms."""
    found = {name: losses_of(of) for (m, _, name), of in points.items() if m == 1}
    if not found:
        return None, {}
    name = min(found, key=lambda n: sum(found[n].values()) / len(found[n]))
    return name, found[name]


def rows_of(points, m, partition, baseline, dense):
    """[(arm, bytes a replica, times fewer than data-parallel, gap)], fewest bytes first."""
    rows = []
    for (of_m, of_partition, name), found in points.items():
        if (of_m, of_partition) != (m, partition) or not losses_of(found).keys() & baseline.keys():
            continue
        sent = sum(b for _, b in found.values()) / len(found)
        rows.append((name, sent, dense / sent, relative(losses_of(found), baseline)))
    return sorted(rows, key=lambda row: row[1])


def fewest(rows, gap):
    """The arm of the fewest bytes whose mean gap is at most this many percent."""
    return next((row for row in rows if row[3].mean <= gap), None)


def front_of(rows):
    """The arms that no other arm beats in both bytes and gap."""
    out, best = [], float("inf")
    for row in rows:
        if row[3].mean < best:
            out.append(row)
            best = row[3].mean
    return out


def interval(gap):
    return str(gap) if len(gap.values) > 1 else f"{gap.mean:+.2f} % (one seed)"


def write(lab, out, replicas):
    """front.md, front.json and the pictures of what is there."""
    name, baseline = better_baseline(lab.points)
    if not baseline:
        return
    dense = next(b for (m, _, _), of in lab.points.items() if m == 1 for _, b in of.values())
    text = ["# Bytes at equal loss", "",
            f"Baseline: {name}, {len(baseline)} seeds, loss "
            f"{sum(baseline.values()) / len(baseline):.4f}; data-parallel training in float32 sends "
            f"{dense / 1e6:,.0f} MB a replica. Gaps are paired by seed, with 95 % intervals."]
    facts = []
    for partition in PARTITIONS:
        for m in replicas:
            rows = rows_of(lab.points, m, partition, baseline, dense)
            if not rows:
                continue
            front = {row[0] for row in front_of(rows)}
            title = f"{m} replicas, {partition}"
            text += ["", f"## {title}", "", "| gap at most | fewest bytes | arm |", "|---|---|---|"]
            for gap in GAPS:
                row = fewest(rows, gap)
                text.append(f"| {gap} % | " + (f"1/{row[2]:,.0f} | {row[0]} |" if row
                                               else "none found | |"))
            text += ["", "| arm | a replica sends | times fewer | gap | on the front |",
                     "|---|---|---|---|---|"]
            text += [f"| {n} | {sent / 1e6:,.3f} MB | {fewer:,.0f} | {interval(gap)} | "
                     f"{'yes' if n in front else ''} |" for n, sent, fewer, gap in rows]
            facts += [{"replicas": m, "partition": partition, "arm": n, "bytes": sent,
                       "times_fewer": fewer, "gap_percent": gap.mean, "seeds": len(gap.values),
                       "half_interval": gap.half if len(gap.values) > 1 else None,
                       "front": n in front} for n, sent, fewer, gap in rows]
            picture = f"front-{m}-{'iid' if partition == 'i.i.d.' else 'authors'}.svg"
            (out / picture).write_text(draw(title, rows, front), encoding="utf-8")
    (out / "front.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    (out / "front.json").write_text(json.dumps(
        {"baseline": name, "rates": lab.rates, "points": facts}, indent=1) + "\n", encoding="utf-8")


def context_of(data):
    """Of the texts and the model; paths and names do not count."""
    texts, validation = data
    files = [pathlib.Path(text) for text in texts.split(",")] + [validation]
    return digest((HERE / "front.toml").read_bytes(), *(path.read_bytes() for path in files))


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program")
    p.add_argument("--data", type=pathlib.Path, help="folder of texts, one of them val.txt")
    p.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/front"))
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--replicas", default="2,4,8", help="numbers of replicas (default 2,4,8)")
    p.add_argument("--partitions", type=int, choices=(1, 2), default=2, help="1: i.i.d. alone")
    p.add_argument("--arms", default="", help="only arms whose name has one of these, A|B")
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                   help="for all arms: another model, say")
    p.add_argument("--hours", type=float, default=2)
    p.add_argument("--overnight", action="store_true")
    p.add_argument("--quick", action="store_true")
    o = p.parse_args()
    if o.quick:
        o.out = emptied(o.out / "quick")
        o.data = o.data or made_texts(o.out / "texts")
        o.steps, o.seeds, o.replicas, o.partitions, o.arms = 40, 1, "2", 1, QUICK
        o.set = [f"{key}={value}" for key, value in SMALL.items()] + o.set
    if not o.data:
        p.error("--data FOLDER: texts (*.txt), best by different authors, one of them val.txt; or "
                "--quick, which needs none")
    return o


def main():
    o = options()
    changes = dict(pair.split("=", 1) for pair in o.set)
    data = find_data(o.data.resolve(), o.out.resolve())
    bench = Bench(o.program, o.out / "trials", data, changes, base=HERE / "front.toml")
    measured = Measured([HERE / "measured.jsonl", o.out / "measured.jsonl"], context_of(data))
    lab = Lab(bench, measured, 0 if o.overnight else o.hours, o.steps)
    replicas = [int(m) for m in o.replicas.split(",")]
    arms = [a for a in all_arms() if any(word in a.name for word in o.arms.split("|"))]
    partitions = list(PARTITIONS)[:o.partitions]
    try:
        for seed in range(1, o.seeds + 1):  # one whole front first, then more seeds
            lab.baseline(seed)
            for partition in partitions:
                for m in replicas:
                    for arm in arms:
                        lab.measure(arm, arm.method.rates, m, partition, seed)
                        write(lab, o.out, replicas)
    except (OutOfTime, KeyboardInterrupt) as why:
        print(f"stopped: {'the hours are over' if isinstance(why, OutOfTime) else 'interrupted'}; "
              "the same command resumes")
        return 130
    except Failed as why:
        sys.exit(f"front.py: {why}")
    finally:
        write(lab, o.out, replicas)
    return 0


if __name__ == "__main__":
    sys.exit(main())
