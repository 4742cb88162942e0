"""The table of claims: for each row what was published, which arms are trained, what is asserted.

The numbers are those of docs/algorithms.md's sources; "Theta" is the shared model. An arm has the
settings that it changes in base.toml and the optimizer steps of each replica. Where a fair
comparison needs it, it has an option that is tuned on a seed of its own."""
from checks import Equal, Lower, Trend, Within

STEPS = 300


class Arm:
    def __init__(self, steps=STEPS, tune=None, **settings):
        self.steps, self.tune = steps, tune
        self.settings = {SHORT[key]: str(value) for key, value in settings.items()}


SHORT = {
    "preset": "preset", "replicas": "run.replicas", "H": "trainer.local_steps_per_round",
    "batch": "trainer.batch_size", "inner": "trainer.optimizer", "lr": "lr", "eps": "outer_eps",
    "clip": "trainer.gradient_clip", "decay": "parameters.optimizer.weight_decay",
    "schedule": "trainer.lr_scheduler", "warmup": "parameters.learning_rate.warmup_steps",
    "outer": "server.diloco.outer_optimizer", "outer_lr": "outer_lr", "mu": "outer_momentum",
    "codec": "codec", "prune": "server.diloco.codec_prune", "keep": "server.diloco.codec_keep",
    "feedback": "server.diloco.error_feedback", "fragments": "server.diloco.fragments",
    "pattern": "server.diloco.fragment_pattern", "tau": "server.diloco.overlap_steps",
    "combiner": "combiner", "close_at": "run.close_at", "uncounted": "run.on_uncounted",
    "frozen": "parameters.model.frozen", "layers": "parameters.model.layers",
    "channels": "parameters.model.channels", "ffn": "parameters.model.ffn",
    "partition": "data.partition", "dylu": "dylu", "retain": "run.retain",
    "snapshots": "run.snapshot_every", "exchange": "server.diloco.exchange",
}
RATES = {"outer_lr": ("0.4", "0.7", "1")}
SLOW_RATES = {"outer_lr": ("0.1", "0.3", "0.7")}
SGD = {"inner": "sgd", "lr": 0.1, "clip": 0, "decay": 0, "schedule": "constant", "warmup": 0}
PARTS = {"fragments": 3, "outer_lr": 0.4}  # pairs of layers, and what is around them
SMALL = {"layers": 2, "channels": 64, "ffn": 192}


def at_fixed_tokens(m, **size):
    return Arm(steps=1200 // m, H=15, replicas=m, warmup=15, tune=RATES, **size)


ARMS = {
    "diloco": Arm(),
    "single": Arm(preset="single", replicas=1),
    "data_parallel": Arm(preset="data_parallel", H=1),
    # 1
    "H = 1, SGD inside and outside": Arm(steps=60, H=1, outer="sgd", outer_lr=1, **SGD),
    "data_parallel, SGD": Arm(steps=60, H=1, preset="data_parallel", outer="sgd", **SGD),
    # 2, 4, 19, which wants replicas that see each other's contributions whole
    "M = 2": Arm(replicas=2), "M = 8": Arm(replicas=8, exchange="allgather"),
    "single, 8 times the steps": Arm(steps=8 * STEPS, preset="single", replicas=1),
    # 3: as many samples a step fewer as steps more
    **{f"H = {h}": Arm(steps=1600, H=h, batch=1, tune=RATES) for h in (1, 5, 20, 50, 100, 200)},
    # 5
    **{f"M = {m}, equal tokens": at_fixed_tokens(m) for m in (1, 2, 4, 8)},
    **{f"M = {m}, equal tokens, small": at_fixed_tokens(m, **SMALL) for m in (1, 2, 4, 8)},
    # 6
    "half of the contributions dropped": Arm(replicas=8, close_at=4, uncounted="keep"),
    "frozen layers": Arm(frozen="model.layers"),
    # 7, 8, 9
    "e3m0": Arm(codec="e3m0"), "bf16": Arm(codec="bf16"), "int4": Arm(codec="int4"),
    "int2": Arm(codec="int2"), "sign": Arm(codec="sign"),
    "int2, feedback": Arm(codec="int2", feedback=1),
    **{f"prune {p} %": Arm(codec="prune", prune=p / 100) for p in (25, 50, 75)},
    # 10, 11
    **{f"tau = {t}": Arm(tau=t, **PARTS) for t in (0, 1, 2, 5)},
    "sequential": Arm(tau=0, pattern="sequential", **PARTS),
    "diloco, outer lr 0.4": Arm(outer_lr=0.4),
    # 12
    "every snapshot kept": Arm(retain="all", snapshots=0),
    # 14
    "eager": Arm(preset="eager", mu=0.6), "delayed": Arm(preset="delayed", mu=0.6),
    # 15
    "outer sgd 1": Arm(outer="sgd", outer_lr=1),
    "nesterov 1": Arm(outer_lr=1),
    "schedule_free": Arm(outer="schedule_free", tune={"outer_lr": ("0.7", "1", "2")}),
    "adam, eps 0.1": Arm(outer="adam", eps=0.1, tune={"outer_lr": ("0.1", "0.3", "0.7")}),
    "adam, eps 1e-8": Arm(outer="adam", eps=1e-8, outer_lr=0.3),
    # 16
    "async, nesterov": Arm(preset="async", outer="nesterov", mu=0.6, tune=SLOW_RATES),
    "async, delayed_nesterov": Arm(preset="async", mu=0.6, tune=SLOW_RATES),
    "async, delayed_nesterov, DyLU": Arm(preset="async", mu=0.6, dylu="true", tune=SLOW_RATES),
    # 21
    "sparse": Arm(preset="sparse"),
    "sparse, no feedback": Arm(preset="sparse", feedback=0),
}


class Row:
    def __init__(self, number, claim, published, checks, remark=""):
        self.number, self.claim, self.published = number, claim, published
        self.checks, self.remark = checks, remark


def equal_tokens(size=""):
    return [(m, f"M = {m}, equal tokens{size}") for m in (1, 2, 4, 8)]


ROWS = [
    Row(1, "H = 1 with SGD inside and outer SGD 1.0 is data parallel", "identity",
        [Equal("H = 1, SGD inside and outside", "data_parallel, SGD")]),
    Row(2, "8 replicas beat one with the same steps each; one with 8 times the steps beats both",
        "perplexity 7.5 % lower",
        [Lower("M = 8", "single"), Lower("single, 8 times the steps", "M = 8")]),
    Row(3, "a larger H costs a little", "perplexity +2.9 % from H 50 to 1000",
        [Trend([(h, f"H = {h}") for h in (20, 50, 100, 200)], rises=True),
         Lower("H = 5", "H = 1")]),
    Row(4, "more replicas with the same steps each are better",
        "perplexity 16.23, 15.23, 15.08, 15.02 with 1, 4, 8, 16",
        [Trend([(1, "single"), (2, "M = 2"), (4, "diloco"), (8, "M = 8")], rises=False)]),
    Row(5, "with equal tokens in all, more replicas cost something, less in a larger model",
        "loss +0.7, +2.0, +3.9 % with 2, 4, 8",
        [Trend(equal_tokens(), rises=True), Trend(equal_tokens(", small"), rises=True)],
        "compare the two slopes: the larger model's should be smaller"),
    Row(6, "half of the contributions may be lost", "perplexity +2.1 %",
        [Within("half of the contributions dropped", "M = 8", 5, "frozen layers")],
        "an entry closes with the first four of eight contributions; the other replicas train on from their own parameters"),
    Row(7, "e3m0 on the wire costs nothing", "no change",
        [Within("e3m0", "diloco", 0.3, "int2")]),
    Row(8, "bf16 and int4 cost nothing; 2 bits and 1 bit cost much, and feedback repairs 2 bits",
        "loss +.09, +.09, +32, +83 %",
        [Within("bf16", "diloco", 0.3, "int2"), Within("int4", "diloco", 0.3, "int2"),
         Lower("int4", "int2"), Lower("int2", "sign"), Lower("int2, feedback", "int2")]),
    Row(9, "dropping elements costs more than using few bits",
        "perplexity -.06, +.39, +1.66 % at 25, 50, 75 %",
        [Trend([(2, "prune 25 %"), (4, "prune 50 %"), (8, "prune 75 %")], rises=True),
         Lower("int4", "prune 75 %")]),
    Row(10, "results may come a few steps late", "below 0.2 % up to tau = 10",
        [Within(f"tau = {t}", "tau = 0", 0.5, "frozen layers") for t in (1, 2, 5)]),
    Row(11, "fragments one at a time are as good as all at once, and strided ones as sequential ones",
        "loss 2.67 and 2.68",
        [Within("tau = 0", "diloco, outer lr 0.4", 0.5, "frozen layers"),
         Within("sequential", "tau = 0", 0.5, "frozen layers")]),
    Row(12, "the shared model is better than the replicas' mean, which is better than one replica",
        "loss 2.67, 2.68, 2.77",
        [Lower("every snapshot kept", "the replicas' mean"),
         Lower("the replicas' mean", "one replica")]),
    Row(14, "eager costs little where naive delay costs much", "loss 2.67, 2.69, 3.01",
        [Lower("eager", "delayed"), Lower("diloco, outer lr 0.4", "delayed"),
         Within("eager", "diloco, outer lr 0.4", 1, "delayed")]),
    Row(15, "outer optimizers: Nesterov and schedule-free < SGD < one replica; Adam needs "
        "a large epsilon", "perplexity 17.25, 16.88, 17.75; data parallel 18.07",
        [Lower("diloco", "outer sgd 1"), Lower("nesterov 1", "outer sgd 1"),
         Lower("schedule_free", "outer sgd 1"), Lower("outer sgd 1", "single"), Lower("nesterov 1", "data_parallel"),
         Lower("adam, eps 0.1", "adam, eps 1e-8")]),
    Row(16, "asynchronous Nesterov is worse than synchronous; delayed Nesterov repairs it",
        "perplexity 44.27, repaired 41.13, synchronous 41.35",
        [Lower("diloco", "async, nesterov"),
         Lower("async, delayed_nesterov", "async, nesterov"),
         Lower("async, delayed_nesterov, DyLU", "async, nesterov")]),
    Row(19, "with more replicas contributions are less alike, and their mean is shorter",
        "cosine .3 with 2, .1 with 16",
        [Trend([(2, "M = 2"), (4, "diloco"), (8, "M = 8")], rises=False, metric="cosine"),
         Trend([(2, "M = 2"), (4, "diloco"), (8, "M = 8")], rises=False, metric="norm")]),
    Row(21, "1.6 % of the elements with error feedback are as good as all of them",
        "better at 512 M parameters",
        [Within("sparse", "diloco", 1, "sparse, no feedback"),
         Lower("sparse", "sparse, no feedback")]),
]

# The rows of CI, on a small model, half of the steps and two seeds: the identity, and the one large difference. Of a
# small difference two seeds say nothing, so their verdict would be that of chance.
QUICK = [ROWS[0], Row(14, "naive delay costs much", "loss 2.67, 3.01", [Lower("diloco, outer lr 0.4", "delayed")])]
