"""page.py: docs/robustness.md and its pictures, from the trials that are there."""
import json
import math
from collections import namedtuple

from defences import (ATTACKS, BAND, BORDER, CHECKS, COMBINERS, DEFENCES, GPT, LENET, N, OPEN, OWNER, SEEDS,
                      UNBOUND, Trial, honest, within)
from figure import draw

Interval = namedtuple("Interval", "mean low high")


def text_of(values):
    """A cell: the mean of its seeds, and how far they lie from it."""
    if not values:
        return "not yet run"
    if any(math.isinf(v) for v in values):
        return "**diverged**"
    mean = sum(values) / len(values)
    if mean >= 1000:
        return "**over 1000**"
    text = f"{mean:+.1f}"
    if len(values) > 1:
        text += f" ± {(max(values) - min(values)) / 2:.1f}"
    return f"**{text}**" if mean > BAND else text


def open_block():
    """OPEN as a part of a configuration file."""
    lines, section = [], None
    for key, value in OPEN.items():
        *path, name = key.split(".")
        if path != section:
            lines += [*([""] if lines else []), f"[{'.'.join(path)}]"]
            section = path
        lines.append(f'{name} = {value if value[0] in "-0123456789" else json.dumps(value)}')
    return ["## A run open to strangers", "",
            "With `run.roster = \"open\"` ([security.md](security.md)) this is what a run should have, "
            "and what `make test` tries. With fewer than four that are used, the trimmed mean gives way "
            "to the mean, which is recorded; honest members of like data are not rejected by it. Where "
            "each has data of its own kind, look at `peer_grad_similarity` first, and lower the cosine.",
            "", "```toml", *lines, "```", ""]


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(head, rows):
    return ["", row(head), "|---" * len(head) + "|", *map(row, rows)]


def mean_of(values):
    return sum(values) / len(values) if values else None


def worst(bench, task, defence, f):
    """Of all attacks, the mean of the seeds: (per cent, attack, values)."""
    found = [(mean_of(v), attack, v) for attack in ATTACKS
             if (v := bench.known(Trial(task, defence, attack, f, SEEDS[0], 0)))]
    return max(found, default=None)


def honest_of(bench, task, defence, f):
    values = bench.results(honest(Trial(task, defence, "honest", f, SEEDS[0], 0)))
    if not values:
        return "not yet run"
    return f"{100 * values[0]:.1f} %" if task is LENET else f"{values[0]:.3f}"


def picture(bench, page, task, f):
    lines = []
    for defence in DEFENCES:
        found = worst(bench, task, defence, f) if within(defence, f) else None
        if found:
            low, mean, high = (min(v, 100.0) for v in (min(found[2]), found[0], max(found[2])))
            lines.append((f"{defence.name}: {found[1]}", "holds" if mean <= BAND else "does not hold",
                          Interval(mean, low, high), BAND))
    if not lines:
        return []
    name = f"{f}.svg" if task is GPT else f"{task.name}_{f}.svg"
    folder = page.with_suffix("")
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(draw(f"{f} of {N}: the worst attack, at most 100 %", lines))
    return ["", f"![the worst attacks]({folder.name}/{name})"]


def section(bench, page, task, f):
    columns = [d for d in DEFENCES if within(d, f)]
    rows = [["*honest: " + task.unit + "*", *(honest_of(bench, task, d, f) for d in columns)]]
    rows += [[attack, *(text_of(bench.known(Trial(task, d, attack, f, SEEDS[0], 0)))
                        for d in columns)] for attack in ATTACKS]
    text = ["", f"### {f} of {N}", *table(["attack", *(d.name for d in columns)], rows)]
    beyond = [d.name for d in DEFENCES if not within(d, f)]
    if beyond:
        text += ["", "Beyond their bound, and not run: " + ", ".join(beyond) + "."]
    return text + picture(bench, page, task, f)


def beaten_by(bench, task, defence, f):
    if not within(defence, f):
        return "beyond its bound"
    found = {attack: mean_of(bench.known(Trial(task, defence, attack, f, SEEDS[0], 0)))
             for attack in ATTACKS}
    lost = [attack for attack, value in found.items() if value is not None and value > BAND]
    if lost:
        return "**" + ", ".join(lost) + "**"
    return "not yet run" if None in found.values() else "holds"


def holding(bench):
    """Who holds against everything that was tried, by f; and what beats the others."""
    rows = [[d.name + " (bears nobody)" * (d.name in UNBOUND),
             *(beaten_by(bench, task, d, f) for task, f in ((GPT, 1), (GPT, 2), (GPT, 3), (LENET, 2)))]
            for d in DEFENCES]
    return ["", "## What holds against everything", "",
            "Or what a defence was beaten by. Honest movements are further from each other than from 0, so what is short "
            "is nearer to each of them than they are to each other: rules that choose or weigh members "
            "(krum, geometric_median) are drawn to it, and follow members that send nothing. Mixing each "
            "with its nearest first (nnm; Allouah et al. 2023) takes that away, at the cost of one walk. "
            "Checks find what is coarse, and not what was honest once (stale).",
            *table(["defence", "1 of 8", "2 of 8", "3 of 8", "LeNet-5, 2 of 8"], rows)]


def owners(bench):
    def cell(defence, f, n):
        if not within(defence, f):
            return "beyond its bound"
        return text_of(bench.known(Trial(GPT, defence, OWNER, f, SEEDS[0], n)))

    rows = [[d.name, *(cell(d, f, n) for f in (1, 2, 3) for n in (1, f + 1))] for d in COMBINERS]
    return ["", "## Owners of slices that lie", "",
            "With `server.diloco.exchange = \"sharded\"` each member combines a slice for all. Here the f "
            "of them contribute honestly, and whatever they combine, or measure of members for a rule "
            "that measures, they publish as −1000 times that, all alike. With one owner a slice nobody "
            "sees it while the run goes on (`diloco verify` disputes it afterwards, by name). With f + 1 "
            "(`server.diloco.slice_owners`) one of them is honest: who plans finds two results of one "
            "slice, says so, and everybody reads all the members for that entry, which is what an "
            "allgather does: the same bits as if nobody had lied. The planner's own word is not checked "
            "by others ([security.md](security.md#what-is-not-promised)).",
            *table(["combiner", *(f"{f} of {N}, {n} owner{'s' * (n > 1)}" for f in (1, 2, 3)
                                  for n in (1, f + 1))], rows)]


def write(bench, page):
    text = ["# What members that lie can do", "",
            "Written by `make attacks` ([bench/attacks](../bench/attacks)) from what it has trained, "
            "not by hand. Eight replicas train; the last f of them are real replicas whose contributions "
            "are rewritten before they get their names (`tests/attack/hostile.c`), or which train on "
            "wrong data. A cell is how far the shared model's validation loss ends above that of the "
            "same combiner with eight honest members, in per cent; of LeNet-5, whose loss is near 0, how "
            f"much of its accuracy is lost, in per cent. More than {BAND:g} is bold: the attack has won. "
            f"One seed a cell; more where the first came within a factor of {BORDER:g} of that border, and "
            "then their mean and half their range. The first row is what a defence costs by itself.", "",
            "\"mean, checks\" is the plain mean with " +
            ", ".join(f"`{k} = {v}`" for k, v in CHECKS.items()) + ". \"nnm, …\" is "
            "`pre_aggregation = \"nnm\"` before the rule, \"…, checks\" the rule with those checks. A NaN or an infinity is rejected whatever the "
            "combiner; with fewer left than it needs, it gives way to the mean here "
            "(`robust_fallback = \"mean\"`).", "",
            *open_block(), "## Attacks", *table(["attack", "what is sent"], ATTACKS.items())]
    text += holding(bench)
    text += ["", f"## {GPT.title}"]
    for f in (1, 2, 3):
        text += section(bench, page, GPT, f)
    text += ["", f"## {LENET.title}", *section(bench, page, LENET, 2), *owners(bench)]
    page.write_text("\n".join(text) + "\n", encoding="utf-8")
