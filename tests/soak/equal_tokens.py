#!/usr/bin/env python3
"""equal_tokens.py PROGRAM [OUT]: SWM-32. Four replicas that exchange every 100 steps end within 2 %
of synchronous training on as many tokens, on average of three seeds. Each arm has its best learning
rate (bench/equal_tokens.md has the scan). Needs classics/ in DILOCO_DATA, and an hour of two cores.
Results of an earlier call in OUT are not trained again."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BAND, SEEDS, STEPS, VALIDATION = 0.02, 3, 5000, 128 << 10
CONFIG = pathlib.Path(__file__).resolve().parents[2] / "bench/equal_tokens.toml"
ARMS = {
    "four": ["preset=diloco", "trainer.batch_size=32", "lr=1e-2"],
    "synchronous": ["preset=single", "run.replicas=1", "trainer.batch_size=128", "lr=3e-3"],
}


def sets(values):
    return [word for value in values for word in ("--set", value)]


def losses(program, arm, settings, folder, shared):
    """The shared model's loss on all of the validation text, of each seed."""
    preset, *others = settings
    out = subprocess.run([program, "sweep", CONFIG, "--json", "--quiet", "--out", folder / arm,
                          "--equal-steps", str(STEPS), "--seeds", str(SEEDS), "--set-values",
                          preset] + sets(others + shared),
                         check=True, stdout=subprocess.PIPE).stdout
    trials = json.loads(out)["trials"]
    return [t["loss"] for t in sorted(trials, key=lambda t: t["seed"])], trials[0]["tokens"]


def main():
    data = pathlib.Path(os.environ.get("DILOCO_DATA", "/nowhere")) / "classics"
    if not data.is_dir():
        print("left out: equal tokens, which need DILOCO_DATA (a folder with classics/)")
        return 77
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else work)
        train, validation = folder / "train", folder / "validation.txt"
        train.mkdir(parents=True, exist_ok=True)
        for text in data.glob("*.txt"):
            if text.name != "val.txt" and not (train / text.name).exists():
                (train / text.name).symlink_to(text)
        validation.write_bytes((data / "val.txt").read_bytes()[:VALIDATION])
        shared = ["data.partition=whole", f"data.train_path={train}",
                  f"data.test_path={validation}"]
        four, tokens = losses(sys.argv[1], "four", ARMS["four"], folder, shared)
        one, as_many = losses(sys.argv[1], "synchronous", ARMS["synchronous"], folder, shared)
    above = [a / b - 1 for a, b in zip(four, one)]
    mean = sum(above) / SEEDS
    print(f"{tokens} and {as_many} tokens; above synchronous training:",
          *(f"{100 * x:+.2f} %" for x in above), f"mean {100 * mean:+.2f} %")
    return 0 if len(above) == SEEDS and tokens == as_many and mean <= BAND else 1


sys.exit(main())
