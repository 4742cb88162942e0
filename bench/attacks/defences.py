"""defences.py: the combinations that are tried, as tables: attacks, defences, tasks, cells."""
from collections import namedtuple

N, BAND = 8, 3.0  # members; per cent
ATTACKS = {
    "scale": "1000 g", "sign_flip": "−g", "ipm": "−2 times the honest mean",
    "ipm_small": "−½ times the honest mean: shorter than any honest movement",
    "alie": '"a little is enough": the honest mean less 1.5 standard deviations of each element',
    "gaussian": "noise as long as 10 g", "nan": "a NaN", "inf": "an infinity", "zero": "zeros",
    "mimic": "the movement of one honest member",
    "copy": "each the movement of another honest member", "stale": "its own movement for its first entry, again and again",
    "label_flip": "the movement of training on wrong data: letters from the other end of the alphabet, a "
                  "for z; images labelled 9 − y",
}
OWNER = "slice_owner"
# fewest(f): members that it needs, which grows by as much with each f.
Defence = namedtuple("Defence", "name settings fewest")
Task = namedtuple("Task", "name config title unit")
# A trial; owners: members that combine each slice (exchange "sharded"), 0: every member reads all.
Trial = namedtuple("Trial", "task defence attack f seed owners")

GPT = Task("gpt", "base.toml", "A GPT on eight authors", "validation loss")
LENET = Task("lenet", "lenet.toml", "LeNet-5 on MNIST", "accuracy")
SEEDS = (1, 2, 3)


def combiner(name, fewest, before=None, f_counts=False):
    """f_counts: the rule takes f into its reckoning, not into its bound alone."""
    def settings(f):
        more = {"server.diloco.pre_aggregation": before} if before else {}
        if f_counts or before == "nnm":
            more["server.diloco.byzantine"] = f
        if name == "trimmed_mean":
            more["server.diloco.trim"] = f / N
        return {"server.diloco.combiner": name, **more}
    return Defence(f"{before}, {name}" if before else name, settings, fewest)


CHECKS = {"check.norm": "5", "check.short": "0.2", "check.cosine": "0", "check.copy": "0.999",
          "check.repeat": "16", "check.ban_after": "3"}
# All their contributions are rejected, in every trial, so these trials are of the honest members
# alone: one of them represents all. "mean, checks" of 2 is trained on each, to see that.
SEEN = ("scale", "sign_flip", "ipm", "ipm_small", "gaussian", "nan", "inf", "zero", "mimic", "copy")
# For untrusted members, of which an unknown number is malicious: detected ones are rejected and
# banned, and each of the rest is mixed with its nearest. The cosine is below 0, since honest ones
# may be orthogonal.
OPEN = {"server.diloco.combiner": "median", "server.diloco.pre_aggregation": "nnm",
        "server.diloco.byzantine": "2", "server.diloco.robust_fallback": "mean",
        **CHECKS, "check.cosine": "-0.05"}
MEAN = Defence("mean", lambda f: {"server.diloco.combiner": "mean"}, lambda f: 1)


def checked(d):
    return Defence(f"{d.name}, checks", lambda f: {**d.settings(f), **CHECKS}, d.fewest)


STRANGERS = Defence("open", lambda f: OPEN, lambda f: 2 * f + 1)
COMBINERS = [
    MEAN,
    combiner("clipped_mean", lambda f: 1),
    combiner("median", lambda f: 2 * f + 1),
    combiner("trimmed_mean", lambda f: 2 * f + 1),
    combiner("krum", lambda f: 2 * f + 3, f_counts=True),
    combiner("multi_krum", lambda f: 2 * f + 3, f_counts=True),
    combiner("bulyan", lambda f: 4 * f + 3, f_counts=True),
    combiner("geometric_median", lambda f: 2 * f + 1),
    combiner("centered_clip", lambda f: 2 * f + 1),
    combiner("median", lambda f: 2 * f + 1, before="nnm"),
    combiner("trimmed_mean", lambda f: 2 * f + 1, before="nnm"),
    combiner("krum", lambda f: 2 * f + 3, before="nnm", f_counts=True),
]
CHECKED = [checked(d) for d in COMBINERS]
DEFENCES = [*COMBINERS, *CHECKED]
BORDER = 1.25  # a first seed that comes so near to the band, by a factor, is not alone


def within(defence, f):
    return N >= defence.fewest(f)


def bound(defence):
    """The bound of its proof, and the f of N that are within it; "" where no proof speaks for it."""
    none, one = defence.fewest(0), defence.fewest(1)
    if none == one:
        return ""
    return f"n ≥ {one - none} f + {none}: {max(f for f in range(N) if within(defence, f))} of {N}"


def honest(trial):
    """The baseline of a trial: the same rule and seed, without malicious members and checks, so
    that the cost of checks shows. Slices give the bits of a replica that reads all, and rules that
    do not count f give the same for all f."""
    alone = COMBINERS[CHECKED.index(trial.defence)] if trial.defence in CHECKED else trial.defence
    same = next(f for f in (1, 2, 3) if alone.settings(f) == alone.settings(trial.f))
    return trial._replace(defence=alone, attack="honest", f=same, owners=0)


def trained(trial):
    """The trial that stands for it."""
    each = trial.task is GPT and trial.defence is CHECKED[0] and trial.f == 2
    alike = trial.defence in CHECKED and trial.attack in SEEN and not each
    return trial._replace(attack=SEEN[0]) if alike else trial


def cells():
    """All of seed 1, the boldest first; omitted ones are beyond the bound of their defence."""
    of = ((GPT, 2), (GPT, 3), (GPT, 1), (LENET, 2))
    for attacks in ((*SEEN, "stale"), ("alie", "label_flip")):
        for task, f in of:
            for defence in DEFENCES:
                if within(defence, f):
                    yield from (trained(Trial(task, defence, a, f, SEEDS[0], 0)) for a in attacks)
        yield from (Trial(GPT, STRANGERS, a, 2, SEEDS[0], 0) for a in attacks)
    for defence in COMBINERS:
        for f in (1, 2, 3):
            if within(defence, f):
                yield from (Trial(GPT, defence, OWNER, f, SEEDS[0], o) for o in (1, f + 1))
