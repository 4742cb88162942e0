#!/usr/bin/env python3
"""attacks.py: what each combiner makes of members that lie, on real training.

    bench/attacks/attacks.py build/release/diloco build/release/tests/hostile.so --data FOLDER

Eight replicas train a small GPT; f of them are real replicas whose contributions are rewritten on
their way into the store (tests/attack/hostile.c). A defence holds against an attack when the shared
model ends within 3 % of the loss that the same combiner reaches with eight honest members. Results
are kept in --out and never trained again; docs/robustness.md is written from what there is.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections import namedtuple

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent / "claims"))
from claims import find_data, own_texts  # noqa: E402
from figure import draw  # noqa: E402

N, BAND = 8, 3.0  # members; per cent
NAMES = {
    "scale": "1000 g", "sign_flip": "−g", "ipm": "−2 times the honest mean",
    "alie": '"a little is enough": the honest mean less 1.5 standard deviations of each element',
    "gaussian": "noise as long as 10 g", "nan": "a NaN", "inf": "an infinity", "zero": "nothing",
    "mimic": "what one honest member sends",
    "copy": "what another honest member sends, each", "stale": "what it sent the entry before",
}
Interval = namedtuple("Interval", "mean low high")
Defence = namedtuple("Defence", "name settings fewest")  # fewest(f): members that it needs


def combiner(name, fewest, **more):
    return Defence(name, lambda f: {"server.diloco.combiner": name, "server.diloco.byzantine": f,
                                    **{k: v(f) for k, v in more.items()}}, fewest)


CHECKS = {"check.norm": "5", "check.cosine": "0", "check.copy": "0.999", "check.ban_after": "3"}
# For strangers, of whom nobody knows how many lie: what is coarse is rejected and banned, of the rest
# a quarter is cut off at either end. The cosine is below 0, since honest ones may be orthogonal.
OPEN = {"server.diloco.combiner": "trimmed_mean", "server.diloco.trim": "0.25",
        "server.diloco.robust_fallback": "mean", "check.norm": "5", "check.cosine": "-0.05",
        "check.copy": "0.999", "check.ban_after": "3"}
DEFENCES = [
    Defence("mean", lambda f: {"server.diloco.combiner": "mean"}, lambda f: 1),
    Defence("mean, checks", lambda f: {"server.diloco.combiner": "mean", **CHECKS}, lambda f: 1),
    combiner("clipped_mean", lambda f: 1),
    combiner("median", lambda f: 2 * f + 1),
    Defence("trimmed_mean", lambda f: {"server.diloco.combiner": "trimmed_mean",
                                       "server.diloco.trim": f / N or 1 / N}, lambda f: 2 * f + 1),
    combiner("krum", lambda f: 2 * f + 3),
    combiner("multi_krum", lambda f: 2 * f + 3),
    combiner("bulyan", lambda f: 4 * f + 3),
    combiner("geometric_median", lambda f: 2 * f + 1),
    combiner("centered_clip", lambda f: 2 * f + 1),
]


class Failed(Exception):
    pass


class Bench:
    def __init__(self, options, data):
        self.o, self.data = options, data

    def folder(self, defence, attack, f):
        return self.o.out / defence.name.replace(", ", "+") / f"{attack}-{f}"

    def known(self, defence, attack, f):
        """Relative loss in per cent of a trial that is there; None: it is not."""
        honest, result = (self.read(self.folder(defence, *what))
                          for what in (("honest", f), (attack, f)))
        if honest is None or result is None:
            return None
        return (result / honest - 1) * 100

    @staticmethod
    def read(folder):
        try:
            loss = json.loads((folder / "result.json").read_text())["loss"]
        except FileNotFoundError:
            return None
        return math.inf if loss is None else loss

    def train(self, defence, attack, f):
        folder = self.folder(defence, attack, f)
        if self.read(folder) is not None:
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        settings = {"data.train_path": self.data[0], "data.test_path": self.data[1],
                    "run.threads": 1, **defence.settings(max(f, 1)), **self.o.settings}
        command = [self.o.program, "train", HERE / "base.toml", "--quiet", "--json",
                   "--store", folder / "run"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        env = dict(os.environ)
        if attack != "honest":
            env |= {"LD_PRELOAD": str(self.o.hostile), "ATTACK": attack, "HONEST": str(N - f),
                    "ATTACKERS": ",".join(f"r{i}" for i in range(N - f, N))}
        done = subprocess.run([str(w) for w in command], capture_output=True, text=True, env=env,
                              timeout=900, check=False)
        if done.returncode == 130:
            raise KeyboardInterrupt
        self.keep(folder, done)
        shutil.rmtree(folder / "run", ignore_errors=True)
        shutil.rmtree(f"{folder / 'run'}.local", ignore_errors=True)

    def keep(self, folder, done):
        """A run that diverges says so and fails: that is a result."""
        lines = done.stdout.strip().splitlines()
        try:
            loss = json.loads(lines[-1])["validation_loss"] if lines else None
        except (json.JSONDecodeError, KeyError):
            loss = None
        if done.returncode and "not finite" not in done.stderr and "moved by" not in done.stderr:
            raise Failed(f"{folder}: {done.stderr.strip().splitlines()[-1:]}")
        if loss is not None and not math.isfinite(loss):
            loss = None
        result = {"loss": loss, "rejected": self.rejected(folder / "run")}
        (folder / "result.json").write_text(json.dumps(result) + "\n")

    def rejected(self, run):
        """Contributions that the log does not use, by the reason that it gives."""
        done = subprocess.run([self.o.program, "status", run, "--json"], capture_output=True,
                              text=True, check=True)
        return json.loads(done.stdout)["rejected"]


def cells(names=tuple(NAMES)):
    """All trials, the telling ones first: what is left out is beyond the bound of its defence."""
    for f in (2, 1, 3):
        for attack in names:
            for defence in DEFENCES:
                if N >= defence.fewest(f):
                    yield defence, attack, f


def text_of(value):
    if value is None:
        return "not yet run"
    if math.isinf(value):
        return "**diverged**"
    return f"{value:+.1f}" if value <= BAND else f"**{value:+.1f}**"


def worst(bench, defence, f):
    values = [bench.known(defence, attack, f) for attack in NAMES]
    there = [(v, a) for v, a in zip(values, NAMES) if v is not None]
    return max(there) if there else None


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


def write_page(bench, page):
    text = ["# What members that lie can do", "",
            "Written by `make attacks` ([bench/attacks](../bench/attacks)) from what it has trained, "
            "not by hand. Eight replicas train a byte-level GPT; the last f of them are real replicas "
            "whose contributions are rewritten before they get their names (`tests/attack/hostile.c`). "
            "A cell is how far the shared model's validation loss ends above that of the same combiner "
            f"with eight honest members, in per cent; more than {BAND:g} is bold: the attack has "
            "won. One seed a cell. A cell below 0 is no merit of a defence: the attack has shortened an "
            "outer step that is too long for so short a run.", "",
            "\"mean, checks\" is the plain mean with " +
            ", ".join(f"`{k} = {v}`" for k, v in CHECKS.items()) + ".", "",
            *open_block(), "## Attacks", "", "| attack | what is sent |", "|---|---|"]
    text += [f"| {name} | {what} |" for name, what in NAMES.items()]
    for f in (1, 2, 3):
        row = [d for d in DEFENCES if N >= d.fewest(f)]
        text += ["", f"## {f} of {N}", "", "| attack | " + " | ".join(d.name for d in row) + " |",
                 "|---|" + "---|" * len(row)]
        text += [f"| {attack} | " + " | ".join(text_of(bench.known(d, attack, f)) for d in row) + " |"
                 for attack in NAMES]
        beyond = [d.name for d in DEFENCES if N < d.fewest(f)]
        if beyond:
            text += ["", "Beyond their bound, and not run: " + ", ".join(beyond) + "."]
        found = [(d, worst(bench, d, f)) for d in row]
        lines = [(f"{d.name}: {w[1]}", "holds" if w[0] <= BAND else "does not hold",
                  Interval(min(w[0], 100.0), min(w[0], 100.0), min(w[0], 100.0)), BAND)
                 for d, w in found if w]
        if lines:
            folder = page.with_suffix("")
            folder.mkdir(exist_ok=True)
            (folder / f"{f}.svg").write_text(
                draw(f"{f} of {N}: the worst attack that was run, at most 100 %", lines))
            text += ["", f"![the worst attacks]({folder.name}/{f}.svg)"]
    page.write_text("\n".join(text) + "\n", encoding="utf-8")


def quick(bench):
    """The mean, that does not hold, one that does, and what docs/robustness.md says for strangers."""
    wrong = "\n".join(open_block()) not in (ROOT / "docs/robustness.md").read_text(encoding="utf-8")
    if wrong:
        print("WRONG: docs/robustness.md has another block for strangers than OPEN")
    by_name = {d.name: d for d in [*DEFENCES, Defence("open", lambda f: OPEN, lambda f: 1)]}
    for name, attack, f, holds in (("median", "scale", 2, True), ("mean", "scale", 2, False),
                                   ("open", "scale", 2, True), ("open", "sign_flip", 2, True)):
        for what in ("honest", attack):
            bench.train(by_name[name], what, f)
        value = bench.known(by_name[name], attack, f)
        good = (value <= 2 * BAND) == holds
        wrong += not good
        spared = json.loads((bench.folder(by_name[name], "honest", f) / "result.json").read_text())
        if spared["rejected"]:
            print(f"WRONG: {name} rejects honest members: {spared['rejected']}")
            wrong += 1
        print(f"{'ok' if good else 'WRONG'}: {name}, {f} of {N} {attack}: {text_of(value)} %")
    return wrong


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("hostile", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("--data", type=pathlib.Path, help="folder of texts, one of them val.txt")
    p.add_argument("--out", type=lambda s: pathlib.Path(s).resolve(),
                   default=pathlib.Path("build/attacks").resolve())
    p.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/robustness.md")
    p.add_argument("--hours", type=float, default=2, help="stop after so many (0: never)")
    p.add_argument("--quick", action="store_true", help="three on a smaller model, for the tests")
    o = p.parse_args()
    o.settings = {}
    if o.quick:
        o.out = pathlib.Path("attacks_quick").resolve()
        shutil.rmtree(o.out, ignore_errors=True)
        o.settings = {"trainer.local_steps_per_round": 10, "trainer.rounds": 5,
                      "trainer.batch_size": 4, "parameters.model.layers": 1,
                      "parameters.model.channels": 32, "parameters.model.ffn": 64,
                      "parameters.model.context": 32}
        o.data = own_texts(o.out / "texts")
    return o


def main():
    o = options()
    if not o.data:
        sys.exit("attacks.py: --data FOLDER: texts (*.txt), one of them val.txt; or --quick")
    bench = Bench(o, find_data(o.data.resolve(), o.out))
    if o.quick:
        return quick(bench)
    end, stopped = time.monotonic() + 3600 * (o.hours or math.inf), False
    try:
        for defence, attack, f in cells():
            for what in ("honest", attack):
                if time.monotonic() > end:
                    raise KeyboardInterrupt
                bench.train(defence, what, f)
    except KeyboardInterrupt:
        stopped = True
    except Failed as why:
        sys.exit(f"attacks.py: {why}")
    write_page(bench, o.page)
    left = sum(bench.known(*cell) is None for cell in cells())
    print(f"{o.page}: {left} of {sum(1 for _ in cells())} not yet run")
    return 130 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
