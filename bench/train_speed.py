#!/usr/bin/env python3
"""Training speed of the engine against PyTorch, in one run.

    python3 bench/train_speed.py BUILD/bench/bench_train_speed PYTHON [--rounds N] [--processor]

PYTHON is an interpreter with torch. Each round runs train_speed, eager PyTorch and torch.compile
one after the other for every setting, so that other work of the machine affects all of them. The
table shows medians over all steps of all rounds. --processor counts processor time at one thread
instead, which is what a busy machine can still measure.
"""
import argparse
import json
import pathlib
import statistics
import subprocess

SETTINGS = {
    "1 M":  dict(layers=5, heads=4, channels=128, context=128, batch=8, steps=20),
    "10 M": dict(layers=6, heads=6, channels=384, context=256, batch=8, steps=3),
}


def seconds(command, setting, threads, key):
    flat = [str(x) for k, v in setting.items() for x in ("--" + k, v)]
    out = subprocess.run([*command, *flat, "--threads", str(threads)], check=True,
                         capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])[key]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("engine")
    p.add_argument("python")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--processor", action="store_true")
    a = p.parse_args()
    key = "processor_seconds" if a.processor else "seconds"
    torch = [a.python, str(pathlib.Path(__file__).with_name("train_speed_torch.py"))]
    commands = {"ours": [a.engine], "eager": torch, "compile": [*torch, "--compile"]}
    print("| parameters | threads | ours, tokens/s | eager | torch.compile | ours / eager"
          " | ours / compile |\n|---|---|---|---|---|---|---|")
    for label, setting in SETTINGS.items():
        for threads in (1,) if a.processor else (1, 2):
            times = {name: [] for name in commands}
            for _ in range(a.rounds):
                for name, command in commands.items():
                    times[name] += seconds(command, setting, threads, key)
            rate = {name: setting["batch"] * setting["context"] / statistics.median(t)
                    for name, t in times.items()}
            print(f"| {label} | {threads} | {rate['ours']:,.0f} | {rate['eager']:,.0f} |"
                  f" {rate['compile']:,.0f} | {rate['ours'] / rate['eager']:.2f} |"
                  f" {rate['ours'] / rate['compile']:.2f} |", flush=True)


main()
