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
            "With `run.roster = \"open\"` ([security.md](security.md)) a run should have this "
            "configuration, which `make test` tries. `byzantine` is the number of malicious members that "
            "the run tolerates although no check finds them, for example a quarter of the expected "
            "members. If fewer than 2 · `byzantine` + 1 members count, the combiner falls back to the "
            "mean, and the record says so. The checks do not reject honest members with similar data. If "
            "members have different kinds of data, look at `peer_grad_similarity` first, and lower "
            "`cosine`. If their speeds differ much, so that they take different numbers of steps, lower "
            "`short`.",
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
    said = ", and all gave the same number" if len(each) == 1 else ""
    if all(is_honest_alone(bench, *of) for of in ((GPT, 1), (GPT, 2), (GPT, 3), (LENET, 2))):
        said += (". With every combiner that number equals, to the last digit, the one of a NaN without "
                 "checks, where only the honest members count, too")
    return ["*always rejected* is one row for the attacks " + ", ".join(SEEN) + ". The checks reject all "
            f"their contributions, so only the honest members count. The row has the numbers of {SEEN[0]}. "
            f"With the mean and 2 of {N}, and with the configuration for untrusted members, each of these "
            f"attacks was trained{said}.", ""]


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
    left = [("*always rejected*", SEEN[0]), *((a, a) for a in ATTACKS if a not in SEEN)]
    text += ["", "With checks:", *table(["attack", *(d.name for d in alone)],
                                        losses(bench, task, f, checked, left))]
    beyond = [d.name for d in COMBINERS if not within(d, f)]
    if beyond:
        text += ["", "Not run, because beyond their bound: " + "; ".join(beyond) + "."]
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
            "A cell names the attacks that succeeded against a combiner, or says that it holds. The bound is "
            "the condition of the combiner's proof on n members with f malicious ones, and the largest f for "
            f"n = {N}. The proof says that the result is near the honest contributions, not that training "
            f"loses nothing; the test here allows {BAND:g} %. Combiners without a bound have no proof.",
            *table(head, rows(COMBINERS)), "",
            "A combiner alone reads one entry, and only its members' positions relative to each other. So each "
            "kind of combiner has its weakness:", "",
            "- **Short movements.** Honest movements are further from each other than from 0, so a short one is "
            "nearer to each of them than they are to each other. Combiners that choose members (krum, "
            "multi_krum) choose it (zero, ipm_small). The geometric median moves toward it by less. nnm "
            "(Allouah et al. 2023) first replaces each contribution by the mean of its nearest ones, at the "
            "cost of one pass. That helps until as many are short as it leaves out.",
            "- **Opposite movements.** Combiners by element lose length to members that pull back (sign_flip, "
            "ipm), most of all if these are nearly half.",
            "- **Old movements.** One entry does not show that a movement is an old honest one (stale).", "",
            "With checks, a member does not count if its movement is short (`check.short`), points back "
            "(`check.cosine`), or is too long (`check.norm`). The same holds if it repeats an earlier one of "
            "its own (`check.repeat`) or copies another member's (`check.copy`). After three rejections, other "
            "than for a copy, the member is banned.",
            *table(head, rows(CHECKED)), "",
            f"The configuration [above](#a-run-open-to-untrusted-members) with 2 of {N}: "
            f"{beaten_by(bench, GPT, STRANGERS, 2)}."]


def owners(bench):
    def cell(defence, f, n):
        if not within(defence, f):
            return "beyond its bound"
        return text_of(bench.known(Trial(GPT, defence, OWNER, f, SEEDS[0], n)))

    rows = [[d.name, *(cell(d, f, n) for f in (1, 2, 3) for n in (1, f + 1))] for d in COMBINERS]
    return ["", "## Owners of slices that publish wrong results", "",
            "With `server.diloco.exchange = \"sharded\"` each member combines a slice for all. In this test "
            "the f malicious members contribute honestly. But they publish each combined slice, and each "
            "measurement of members, multiplied by −1000, all in the same way. With one owner for each slice "
            "no replica notices this during the run; only `diloco verify` disputes it afterwards, by name. "
            "With f + 1 owners (`server.diloco.slice_owners`) one of them is honest. The planner finds two "
            "results for one slice and warns. For that entry every replica reads the contributions of all "
            "members, as with allgather. The bits are the same as without the malicious owners. Other "
            "replicas do not check the planner itself ([security.md](security.md#limits)).",
            *table(["combiner", *(f"{f} of {N}, {n} owner{'s' * (n > 1)}" for f in (1, 2, 3)
                                  for n in (1, f + 1))], rows)]


def write(bench, page):
    text = ["# Attacks by malicious members", "",
            "`make attacks` ([bench/attacks](../bench/attacks)) writes this page from its results. Eight "
            "replicas train, and the last f of them are malicious. These are real replicas whose contributions "
            "are rewritten before they are named (`tests/attack/hostile.c`), or which train on wrong data. "
            "[The algorithms](algorithms.md#combiners) define the combiners and checks, the "
            "[glossary](glossary.md) the terms.", "",
            "A cell is the rise in per cent of the shared model's last validation loss over that of the same "
            "combiner with eight honest members. For LeNet-5, whose loss is near 0, it is the loss of accuracy "
            f"in per cent. A value above {BAND:g} is bold: the attack has succeeded. A cell has one seed. If "
            f"that was within a factor of {BORDER:g} of {BAND:g}, it has several, as their mean and half their "
            "range. The first row has the result without malicious members, so it shows the cost of the "
            "combiner itself.", "",
            "Each combiner was tried alone, and with checks: " +
            ", ".join(f"`{k} = {v}`" for k, v in CHECKS.items()) + ". Results with checks are relative to the "
            "honest run without checks, so they include the cost of the checks. \"nnm, …\" is "
            "`pre_aggregation = \"nnm\"` before the combiner. A NaN or an infinity is always rejected. If too "
            "few members are left, a combiner falls back to the mean here (`robust_fallback = \"mean\"`).", "",
            *seen_block(bench),
            *open_block(), "## Attacks", *table(["attack", "the malicious members send"], ATTACKS.items())]
    text += holding(bench)
    text += ["", f"## {GPT.title}"]
    for f in (1, 2, 3):
        text += section(bench, page, GPT, f)
    text += ["", f"## {LENET.title}", *section(bench, page, LENET, 2), *owners(bench)]
    page.write_text("\n".join(text) + "\n", encoding="utf-8")
