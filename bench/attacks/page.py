"""page.py: docs/robustness.md and its pictures, from the trials that are there."""
import json
import math
from collections import namedtuple

from defences import (ATTACKS, BAND, BORDER, CHECKED, CHECKS, COMBINERS, DEFENCES, GPT, LENET, N, OPEN,
                      OWNER, SEEDS, SEEN, STRANGERS, Trial, bound, honest, within)
from figure import draw

Interval = namedtuple("Interval", "mean low high")


def text_of(values):
    """A cell: the mean of its seeds, and their distance from it."""
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
    return ["## A run open to untrusted members", "",
            "With `run.roster = \"open\"` ([security.md](security.md)) this is what a run should have, "
            "and what `make test` tries. `byzantine` is the number of malicious members that it bears and that no check sees: a "
            "quarter of the members that are expected, say. With fewer than 2 · `byzantine` + 1 that are "
            "used it gives way to the mean, which is recorded; honest members of like data are not "
            "rejected by it. Where each has data of its own kind, look at `peer_grad_similarity` first, "
            "and lower the cosine; where their speeds differ much and they take other numbers of steps, "
            "lower `short`.",
            "", "```toml", *lines, "```", ""]


def is_honest_alone(bench, task, f):
    """Do the remaining members end at the same loss as when the others send unusable
    contributions?"""
    return all(bench.result(Trial(task, d, "nan", f, SEEDS[0], 0)) ==
               bench.result(Trial(task, c, SEEN[0], f, SEEDS[0], 0))
               for d, c in zip(COMBINERS, CHECKED) if within(d, f))


def seen_block(bench):
    """Of the trials with checks that are one trial: is it so, where it can be seen?"""
    each = {bench.result(Trial(GPT, CHECKED[0], attack, 2, SEEDS[0], 0)) for attack in SEEN}
    said = ", and ended in the same number" if len(each) == 1 else ""
    if all(is_honest_alone(bench, *of) for of in ((GPT, 1), (GPT, 2), (GPT, 3), (LENET, 2))):
        said += (". Under every combiner the number is, to the last digit, that of a NaN without checks, "
                 "which is of the honest members alone, too")
    return ["*seen at once*: of " + ", ".join(SEEN) + " the checks reject every contribution, so "
            f"only the honest members count under each of them. {SEEN[0]} was trained for all of them; "
            f"under the mean with 2 of {N}, and with the block for untrusted members, each was{said}.", ""]


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


def losses(bench, task, f, columns, attacks):
    """Rows of a table: attacks is (what it is called, which trial) of each."""
    return [[name, *(text_of(bench.known(Trial(task, d, attack, f, SEEDS[0], 0))) for d in columns)]
            for name, attack in attacks]


def section(bench, page, task, f):
    alone, checked = ([d for d in some if within(d, f)] for some in (COMBINERS, CHECKED))
    rows = [["*honest: " + task.unit + "*", *(honest_of(bench, task, d, f) for d in alone)],
            *losses(bench, task, f, alone, ((a, a) for a in ATTACKS))]
    text = ["", f"### {f} of {N}", *table(["attack", *(d.name for d in alone)], rows)]
    left = [("*seen at once*", SEEN[0]), *((a, a) for a in ATTACKS if a not in SEEN)]
    text += ["", "With checks:", *table(["attack", *(d.name for d in alone)],
                                        losses(bench, task, f, checked, left))]
    beyond = [d.name for d in COMBINERS if not within(d, f)]
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
    missing = sum(value is None for value in found.values())
    return f"{missing} not yet run" if missing else "holds"


def holding(bench):
    """The combiners that hold against all attacks tried, by f, and the attacks that beat the others."""
    def rows(defences):
        return [[d.name, bound(d) or "none",
                 *(beaten_by(bench, task, d, f) for task, f in ((GPT, 1), (GPT, 2), (GPT, 3), (LENET, 2)))]
                for d in defences]

    head = ["combiner", "bound", *(f"{f} of {N}" for f in (1, 2, 3)), f"LeNet-5, 2 of {N}"]
    return ["", "## Combiners against all attacks", "",
            "A cell names the attacks that a combiner did not withstand, or says that it holds. A bound is "
            "the condition of the rule's proof on n members with f malicious ones, and so their number in "
            "eight. It says that the rule's result stays near the honest ones, not that training loses "
            "nothing by it; the test here is 3 %. Where there is no proof, nothing is promised.", *table(head, rows(COMBINERS)), "",
            "Alone, a rule sees one entry, and only its members' positions relative to each other. Honest "
            "movements are further from each other than from 0. So a short movement is nearer to each of them "
            "than they are to each other. Rules that choose members (krum, multi_krum) are drawn to it, and "
            "follow members that send nothing (zero, ipm_small). The geometric median moves toward them by "
            "less. Mixing each with its nearest first (nnm; Allouah et al. 2023) takes that away, at the cost "
            "of one walk, until as many are short as it leaves out. Rules by element lose length to members "
            "that pull back (sign_flip, ipm), the more the nearer to half of them do. And one entry does not "
            "show that a movement is an old honest one (stale).", "",
            "With checks, a member does not count and is banned if its movement is short (`check.short`), "
            "points back (`check.cosine`), or is too long (`check.norm`). The same holds if it repeats an "
            "earlier one of its own (`check.repeat`) or copies another member's (`check.copy`):",
            *table(head, rows(CHECKED)), "",
            f"The block for a run open to untrusted members, above, with 2 of {N}: "
            f"{beaten_by(bench, GPT, STRANGERS, 2)}."]


def owners(bench):
    def cell(defence, f, n):
        if not within(defence, f):
            return "beyond its bound"
        return text_of(bench.known(Trial(GPT, defence, OWNER, f, SEEDS[0], n)))

    rows = [[d.name, *(cell(d, f, n) for f in (1, 2, 3) for n in (1, f + 1))] for d in COMBINERS]
    return ["", "## Owners of slices that publish wrong results", "",
            "With `server.diloco.exchange = \"sharded\"` each member combines a slice for all. Here the f "
            "malicious members contribute honestly. They publish every combined slice, or measurement of "
            "members for a rule that measures, as −1000 times its value, all alike. With one owner a slice no "
            "replica sees it during the run (`diloco verify` disputes it afterwards, by name). With f + 1 "
            "(`server.diloco.slice_owners`) one of them is honest. The planner finds two results of one slice "
            "and says so, and every replica reads all the members for that entry, as in an allgather. The "
            "bits are the same as without the malicious owners. The planner's own word is not checked by "
            "others ([security.md](security.md#limits)).",
            *table(["combiner", *(f"{f} of {N}, {n} owner{'s' * (n > 1)}" for f in (1, 2, 3)
                                  for n in (1, f + 1))], rows)]


def write(bench, page):
    text = ["# What malicious members can do", "",
            "Written by `make attacks` ([bench/attacks](../bench/attacks)) from what it has trained, "
            "not by hand. Eight replicas train; the last f of them are real replicas whose contributions "
            "are rewritten before they get their names (`tests/attack/hostile.c`), or which train on "
            "wrong data. A cell is how far the shared model's validation loss ends above that of the "
            "same combiner with eight honest members, in per cent; of LeNet-5, whose loss is near 0, how "
            f"much of its accuracy is lost, in per cent. More than {BAND:g} is bold: the attack has won. "
            f"One seed a cell; more where the first came within a factor of {BORDER:g} of that border, and "
            "then their mean and half their range. The first row is what a defence costs by itself.", "",
            "Each combiner was tried alone, and with checks: " +
            ", ".join(f"`{k} = {v}`" for k, v in CHECKS.items()) + ". These are held against the same "
            "honest run, without checks, so that what checks cost shows. \"nnm, …\" is "
            "`pre_aggregation = \"nnm\"` before the rule. A NaN or an infinity is rejected in either "
            "case; with fewer left than it needs, a combiner gives way to the mean here "
            "(`robust_fallback = \"mean\"`).", "",
            *seen_block(bench),
            *open_block(), "## Attacks", *table(["attack", "the hostile members send"], ATTACKS.items())]
    text += holding(bench)
    text += ["", f"## {GPT.title}"]
    for f in (1, 2, 3):
        text += section(bench, page, GPT, f)
    text += ["", f"## {LENET.title}", *section(bench, page, LENET, 2), *owners(bench)]
    page.write_text("\n".join(text) + "\n", encoding="utf-8")
