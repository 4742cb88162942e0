#!/usr/bin/env python3
"""attacks.py: each combiner against malicious members, on real training.

    bench/attacks/attacks.py build/release/diloco build/release/tests/hostile.so --data FOLDER
                             --mnist FOLDER

Eight replicas train a small model; f of them are real replicas whose contributions are rewritten on
their way into the store (tests/attack/hostile.c), or which have other data. A defence holds against
an attack when the shared model ends within 3 % of what the same combiner reaches with eight honest
members. Results are kept in --out and never trained again; docs/robustness.md is written from what
there is.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent / "claims"))
import data  # noqa: E402
import page  # noqa: E402
from claims import find_data, made_texts  # noqa: E402
from defences import (BAND, BORDER, DEFENCES, GPT, LENET, MEAN, N, OWNER, SEEDS, STRANGERS, Trial, cells,
                      honest, trained)  # noqa: E402

GRID = ((0.3, 0.3), (0.5, 0.3), (0.5, 0.6), (0.7, 0.0), (0.7, 0.3), (1.0, 0.0))
WAIT_S = 120  # for replicas that begin


class Failed(Exception):
    pass


class Bench:
    def __init__(self, options):
        self.o = options
        self.paths = {}  # task: (of honest members, of those of label_flip), as settings
        self.stop = threading.Event()

    def take_texts(self, train, test):
        flipped = data.flip_texts(train, self.o.out / "texts_flipped")
        self.paths[GPT] = [{"data.train_path": paths, "data.test_path": test}
                           for paths in (train, flipped)]

    def take_images(self, folder):
        self.paths[LENET] = [{"data.train_path": path}
                             for path in data.take_images(folder, self.o.out)]

    def folder(self, t):
        """(gpt/nnm+krum/alie-2, say; other seeds and numbers of owners follow.)"""
        name = f"{t.attack}-{t.f}" + (f"-seed{t.seed}" if t.seed != SEEDS[0] else "")
        name += f"-owners{t.owners}" if t.owners else ""
        return self.o.out / t.task.name / t.defence.name.replace(", ", "+") / name

    def result(self, t):
        """Loss, or accuracy of images; a run that diverged has an infinite loss, or no accuracy."""
        try:
            found = json.loads((self.folder(t) / "result.json").read_text())
        except FileNotFoundError:
            return None
        if t.task is LENET:
            return found["accuracy"] or 0.0
        return math.inf if found["loss"] is None else found["loss"]

    def results(self, t):
        """Of all seeds that are there."""
        t = trained(t)
        there = (self.result(t._replace(seed=seed)) for seed in SEEDS)
        return [r for r in there if r is not None]

    def known(self, t):
        """The loss of accuracy of a trial, in per cent, seed by seed."""
        lost, t = [], trained(t)
        for seed in SEEDS:
            ours = t._replace(seed=seed)
            best, result = self.result(honest(ours)), self.result(ours)
            if best is not None and result is not None:
                lost.append((result / best - 1) * (-100 if t.task is LENET else 100))
        return lost

    # ---- training

    def command(self, verb, t, *more, **settings):
        words = [self.o.program, verb, *more, "--quiet", "--json", "--store", self.folder(t) / "run"]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        return [str(w) for w in words]

    def start(self, command, env=None):
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, **(env or {})})

    def settings(self, t):
        owners = {"server.diloco.exchange": "sharded",
                  "server.diloco.slice_owners": t.owners} if t.owners else {}
        return {**self.paths[t.task][0], "run.threads": 1, "run.seed": t.seed,
                **t.defence.settings(max(t.f, 1)), **owners, **self.o.settings}

    def run(self, t):
        """Malicious members run in one crew with the others."""
        env = {}
        if t.attack != "honest":
            env = {"LD_PRELOAD": str(self.o.hostile), "ATTACK": t.attack, "HONEST": str(N - t.f),
                   "ATTACKERS": ",".join(f"r{i}" for i in range(N - t.f, N))}
        one = self.start(self.command("train", t, HERE / t.task.config, **self.settings(t)), env)
        return one.communicate(), one.returncode

    def run_on_wrong_data(self, t):
        """Those who have other data are a machine of their own, which joins: r6 and r7, say."""
        run = self.folder(t) / "run"
        first = self.start(self.command("train", t, HERE / t.task.config, **self.settings(t),
                                        **{"run.local_replicas": N - t.f}))
        end = time.monotonic() + WAIT_S
        while len(list((run / "gen").glob("r*"))) < N - t.f:
            if first.poll() is not None or time.monotonic() > end:
                first.kill()
                raise Failed(f"{run}: {first.communicate()[1].strip().splitlines()[-1:]}")
            time.sleep(0.02)
        join = self.command("join", t, run, "--replicas", t.f,
                            **{**self.paths[t.task][1], "run.threads": 1,
                               "run.state_dir": f"{run}.others"})
        join.remove("--store"), join.remove(str(run))  # given once, as the place to join
        second = self.start(join)
        said = first.communicate()
        wrong = second.communicate()[1]
        if second.returncode not in (0, 130) and not self.diverged(wrong):
            raise Failed(f"{run}: {wrong.strip().splitlines()[-1:]}")
        return said, first.returncode

    @staticmethod
    def diverged(text):
        return "not finite" in text or "moved by" in text

    def train(self, t):
        folder = self.folder(t)
        if self.result(t) is not None or self.stop.is_set():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        said, code = (self.run_on_wrong_data if t.attack == "label_flip" else self.run)(t)
        if code == 130:
            self.stop.set()
            return
        if code and not self.diverged(said[1]):
            raise Failed(f"{folder}: {said[1].strip().splitlines()[-1:]}")
        self.keep(t, said[0] if not code else "")
        for rest in folder.glob("run*"):
            shutil.rmtree(rest)

    def keep(self, t, said):
        """A run that diverges says so and fails: that is a result."""
        told = json.loads(said.strip().splitlines()[-1]) if said else {}
        if said and told.get("validation_loss") is None:  # another machine's turn to evaluate
            told = self.evaluate(t)
        loss, accuracy = (told.get(k) for k in ("validation_loss", "accuracy"))
        if loss is not None and not math.isfinite(loss):
            loss = accuracy = None
        result = {"loss": loss, "accuracy": accuracy, "rejected": self.rejected(t)}
        (self.folder(t) / "result.json").write_text(json.dumps(result) + "\n")

    def evaluate(self, t):
        run = self.folder(t) / "run"
        sets = [w for k, v in self.paths[t.task][0].items() for w in ("--set", f"{k}={v}")]
        done = subprocess.run([str(w) for w in (self.o.program, "eval", run, *sets, "--json")],
                              capture_output=True, text=True, check=True)
        told = json.loads(done.stdout)
        return {"validation_loss": told["loss"], "accuracy": told["accuracy"]}

    def rejected(self, t):
        """Contributions that the log does not use, by the reason that it gives."""
        done = subprocess.run([str(self.o.program), "status", str(self.folder(t) / "run"), "--json"],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["rejected"]


# ---- all of it

def train_all(bench, wanted, end):
    """Run the missing trials, several at a time, and print the progress. True: all are there."""
    todo = [t for t in dict.fromkeys(x for t in wanted for x in (honest(t), t))
            if bench.result(t) is None]
    began = time.monotonic()

    def one(t):
        if time.monotonic() > end:
            bench.stop.set()
        bench.train(t)

    with ThreadPoolExecutor(bench.o.jobs) as pool:
        futures = [pool.submit(one, t) for t in todo]
        try:
            for i, future in enumerate(as_completed(futures), 1):
                future.result()
                if bench.stop.is_set():
                    break
                left = (time.monotonic() - began) / i * (len(todo) - i)
                print(f"{i} of {len(todo)} trials, {left / 60:.0f} min left", file=sys.stderr,
                      end="\n" if i == len(todo) or not sys.stderr.isatty() else "\r", flush=True)
        except BaseException:
            bench.stop.set()
            raise
    return not bench.stop.is_set()


def near_the_border(bench, t):
    lost = bench.known(t)
    return lost and BAND / BORDER <= lost[0] <= BAND * BORDER


def try_outer(bench):
    """The honest mean with other outer settings: the table of README.md."""
    for task in (t for t in (GPT, LENET) if t in bench.paths):
        print(f"\n| outer learning rate | momentum | {task.unit} |\n|---|---|---|")
        tried = [Trial(task, MEAN._replace(
            name=f"mean, lr {lr} mu {mu}",
            settings=lambda f, lr=lr, mu=mu: {"server.diloco.outer_learning_rate": lr,
                                              "server.diloco.outer_momentum": mu}),
            "honest", 1, SEEDS[0], 0) for lr, mu in GRID]
        if not train_all(bench, tried, math.inf):
            return 130
        for (lr, mu), t in zip(GRID, tried):
            print(f"| {lr} | {mu} | {bench.result(t):.3f} |")
    return 0


def quick(bench):
    """The mean, that does not hold, one that does, the rule that docs/robustness.md names for
    untrusted members, and a malicious slice owner, alone and with another."""
    wrong = "\n".join(page.open_block()) not in bench.o.page.read_text(encoding="utf-8")
    if wrong:
        print("WRONG: docs/robustness.md has another block for strangers than OPEN")
    median = next(d for d in DEFENCES if d.name == "median")
    for defence, attack, f, owners, holds in (
            (median, "scale", 2, 0, True), (MEAN, "scale", 2, 0, False),
            (STRANGERS, "stale", 2, 0, True), (STRANGERS, "sign_flip", 2, 0, True),
            (median, OWNER, 1, 2, True)):
        t = Trial(GPT, defence, attack, f, SEEDS[0], owners)
        for what in (honest(t), t):
            bench.train(what)
        value, = bench.known(t)
        good = (value <= 2 * BAND) == holds and (not owners or value == 0)
        wrong += not good
        spared = json.loads((bench.folder(honest(t)) / "result.json").read_text())
        if spared["rejected"]:
            print(f"WRONG: {defence.name} rejects honest members: {spared['rejected']}")
            wrong += 1
        print(f"{'ok' if good else 'WRONG'}: {defence.name}, {f} of {N} {attack}: "
              f"{page.text_of([value])} %")
    return wrong


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("program", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("hostile", type=lambda s: pathlib.Path(s).resolve())
    p.add_argument("--data", type=pathlib.Path, help="folder of texts, one of them val.txt")
    p.add_argument("--mnist", type=pathlib.Path, help="folder of MNIST's four files")
    p.add_argument("--out", type=lambda s: pathlib.Path(s).resolve(),
                   default=pathlib.Path("build/attacks").resolve())
    p.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/robustness.md")
    p.add_argument("--hours", type=float, default=0, help="stop after so many (0: when all is done)")
    p.add_argument("--jobs", type=int, default=2, help="trials at a time")
    p.add_argument("--outer", action="store_true", help="the honest mean with other outer settings")
    p.add_argument("--quick", action="store_true", help="a few on a smaller model, for the tests")
    o = p.parse_args()
    o.settings = {}
    if o.quick:
        o.out = pathlib.Path("attacks_quick").resolve()
        shutil.rmtree(o.out, ignore_errors=True)
        o.settings = {"trainer.local_steps_per_round": 10, "trainer.rounds": 5,
                      "trainer.batch_size": 4, "parameters.model.layers": 1,
                      "parameters.model.channels": 32, "parameters.model.ffn": 64,
                      "parameters.model.context": 32}
        o.data = made_texts(o.out / "texts")
    if not o.data:
        sys.exit("attacks.py: --data FOLDER: texts (*.txt), one of them val.txt; or --quick")
    return o


def main():
    o = options()
    bench = Bench(o)
    bench.take_texts(*find_data(o.data.resolve(), o.out))
    if o.mnist:
        bench.take_images(o.mnist.resolve())
    if o.quick:
        return quick(bench)
    if o.outer:
        return try_outer(bench)
    every = list(dict.fromkeys(cells()))
    wanted = [t for t in every if t.task in bench.paths]
    end = time.monotonic() + 3600 * (o.hours or math.inf)
    try:
        done = train_all(bench, wanted, end)
        again = [t._replace(seed=seed) for t in wanted if near_the_border(bench, t)
                 for seed in SEEDS[1:]]
        done = done and train_all(bench, again, end)
    except KeyboardInterrupt:
        done = False
    except Failed as why:
        sys.exit(f"attacks.py: {why}")
    page.write(bench, o.page)
    left = sum(not bench.known(t) for t in every)
    print(f"{o.page}: {left} of {len(every)} not yet run")
    return 0 if done else 130


if __name__ == "__main__":
    sys.exit(main())
