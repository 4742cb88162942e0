"""The arms of the front: a method, H, a codec and tau, and which value each method tunes.

All arms see as many tokens in as many steps: M replicas share one global batch. So one synchronous
baseline serves every M, and a ladder of H changes the bytes alone."""
import dataclasses
import itertools

GLOBAL_BATCH = 32  # sequences a step, over all replicas
RATES = ("1.5e-3", "3e-3", "6e-3")
MUON_RATES = ("3e-3", "6e-3", "1.2e-2")
LADDER = (5, 10, 20, 50, 100, 200)
CODECS = {
    "f32": {}, "int4": {"codec": "int4"}, "e3m0": {"codec": "e3m0"},
    "int2 with feedback": {"codec": "int2", "server.diloco.error_feedback": "1"},
    "topk 1/64": {"codec": "topk", "server.diloco.codec_keep": "0.015625",
                  "server.diloco.codec_values": "2bit", "server.diloco.error_feedback": "0.95"},
}
MUON = {"trainer.optimizer": "muon"}
# The presets' momentum of 0.9 is for hundreds of entries.
MU = {"outer_momentum": "0.6"}


@dataclasses.dataclass(frozen=True)
class Method:
    """A family of arms. `ladder` and `codecs` are its H and what goes over the wire."""
    name: str
    preset: str
    settings: dict
    rates: tuple = RATES
    ladder: tuple = LADDER
    codecs: tuple = ("f32",)
    taus: tuple = (None,)


METHODS = (
    Method("diloco", "diloco", MU, codecs=("f32", "int4", "e3m0", "int2 with feedback",
                                           "topk 1/64")),
    Method("muloco", "muloco", {}, MUON_RATES, codecs=("f32", "int4")),
    Method("slow momentum", "diloco", {**MU, "trainer.optimizer": "qhadamw"}),
    Method("averaging", "diloco", {"server.diloco.outer_optimizer": "sgd", "outer_lr": "1",
                                   "outer_momentum": "0"}),
    Method("streaming", "streaming", {**MU, "server.diloco.fragment_layers": "1"},
           codecs=("e3m0",), taus=(0, 1, 5)),
    Method("streaming, Muon", "streaming",
           {**MU, **MUON, "server.diloco.fragment_layers": "1"}, MUON_RATES, codecs=("e3m0",)),
    Method("sparse", "sparse", {}, ladder=(10, 20, 50), codecs=("topk 1/64",)),
    Method("sparse, Muon", "sparse", MUON, MUON_RATES, ladder=(20, 50, 100), codecs=("topk 1/64",)),
    Method("eager", "eager", MU, ladder=(20, 50, 100)),
)


@dataclasses.dataclass(frozen=True)
class Arm:
    method: Method
    h: int
    codec: str
    tau: int | None

    @property
    def name(self):
        tau = "" if self.tau is None else f", tau {self.tau}"
        return f"{self.method.name}, H {self.h}, {self.codec}{tau}"

    def steps(self, all_steps):
        """Optimizer steps to ask for. A run of fragments ends when the last of them is exchanged, up to
        H steps after the first; it takes a round less, so that no arm sees more tokens."""
        return all_steps - (self.h if self.method.preset == "streaming" else 0)

    @property
    def tuned_as(self):
        """Arms that share their inner learning rate: it depends on H, hardly on the codec."""
        return Arm(self.method, self.h, self.method.codecs[0], self.method.taus[0])

    def settings(self, m):
        tau = {} if self.tau is None else {"server.diloco.overlap_steps": str(self.tau)}
        return {**self.method.settings, **CODECS[self.codec], **tau,
                "trainer.local_steps_per_round": str(self.h), "run.replicas": str(m),
                "trainer.batch_size": str(GLOBAL_BATCH // m)}


def all_arms():
    return [Arm(method, h, codec, tau) for method in METHODS for h, codec, tau in
            itertools.product(method.ladder, method.codecs, method.taus)]


class Baseline:
    """Synchronous training: one process with the replicas' batches joined, so the gradients of
    data-parallel training, which sends 4 bytes a parameter after every step."""

    def __init__(self, name, rates, **settings):
        self.name, self.rates, self.given = name, rates, settings

    def steps(self, all_steps):
        return all_steps

    @property
    def tuned_as(self):
        return self

    def settings(self, _):
        return {**self.given, "run.replicas": "1", "trainer.batch_size": str(GLOBAL_BATCH),
                "trainer.local_steps_per_round": "20"}


BASELINES = (Baseline("AdamW, data-parallel", RATES),
             Baseline("Muon, data-parallel", MUON_RATES, **MUON))
