"""defences.py: what is tried against what, as tables: attacks, defences, tasks, cells."""
from collections import namedtuple

N, BAND = 8, 3.0  # members; per cent
ATTACKS = {
    "scale": "1000 g", "sign_flip": "−g", "ipm": "−2 times the honest mean",
    "ipm_small": "−½ times the honest mean: shorter than any honest movement",
    "alie": '"a little is enough": the honest mean less 1.5 standard deviations of each element',
    "gaussian": "noise as long as 10 g", "nan": "a NaN", "inf": "an infinity", "zero": "nothing",
    "mimic": "what one honest member sends",
    "copy": "what another honest member sends, each", "stale": "what it sent for its first entry, over and over",
    "label_flip": "what it has learnt of wrong data: letters from the other end of the alphabet, a "
                  "for z; images labelled 9 − y",
}
OWNER = "slice_owner"
Defence = namedtuple("Defence", "name settings fewest")  # fewest(f): members that it needs
Task = namedtuple("Task", "name config title unit")
# A trial; owners: members that combine each slice (exchange "sharded"), 0: everybody reads all.
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


CHECKS = {"check.norm": "5", "check.cosine": "0", "check.copy": "0.999", "check.ban_after": "3"}
# For strangers, of whom nobody knows how many lie: what is coarse is rejected and banned, of the rest
# a quarter is cut off at either end. The cosine is below 0, since honest ones may be orthogonal.
OPEN = {"server.diloco.combiner": "trimmed_mean", "server.diloco.trim": "0.25",
        "server.diloco.robust_fallback": "mean", "check.norm": "5", "check.cosine": "-0.05",
        "check.copy": "0.999", "check.ban_after": "3"}
MEAN = Defence("mean", lambda f: {"server.diloco.combiner": "mean"}, lambda f: 1)


def checked(d):
    return Defence(f"{d.name}, checks", lambda f: {**d.settings(f), **CHECKS}, d.fewest)


STRANGERS = Defence("open", lambda f: OPEN, lambda f: 1)
NNM_MEDIAN = combiner("median", lambda f: 2 * f + 1, before="nnm")
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
    NNM_MEDIAN,
    combiner("trimmed_mean", lambda f: 2 * f + 1, before="nnm"),
    combiner("krum", lambda f: 2 * f + 3, before="nnm", f_counts=True),
]
DEFENCES = [MEAN, checked(MEAN), *COMBINERS[1:], checked(NNM_MEDIAN)]
UNBOUND = ("mean", "mean, checks", "clipped_mean")  # no rule's proof speaks for these
BORDER = 1.25  # a first seed that comes so near to the band, by a factor, is not alone


def within(defence, f):
    return N >= defence.fewest(f)


def honest(trial):
    """What a trial is held against: the same rule and seed, nobody lies. Slices come to the bits of
    who reads all, and rules that do not count f come to the same for all f."""
    settings = trial.defence.settings
    same = next(f for f in (1, 2, 3) if settings(f) == settings(trial.f))
    return trial._replace(attack="honest", f=same, owners=0)


def cells():
    """All of seed 1; what is left out is beyond the bound of its defence."""
    for f in (2, 1, 3):
        for attack in ATTACKS:
            for defence in DEFENCES:
                if within(defence, f):
                    yield Trial(GPT, defence, attack, f, SEEDS[0], 0)
    for defence in COMBINERS:
        for f in (1, 2, 3):
            if within(defence, f):
                yield from (Trial(GPT, defence, OWNER, f, SEEDS[0], o) for o in (1, f + 1))
    for attack in ATTACKS:
        for defence in DEFENCES:
            if within(defence, 2):
                yield Trial(LENET, defence, attack, 2, SEEDS[0], 0)
