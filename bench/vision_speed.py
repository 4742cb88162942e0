#!/usr/bin/env python3
"""Steps of image models against PyTorch and against oneDNN's convolutions alone, in one run.

    python3 bench/vision_speed.py BUILD/bench PYTHON [--rounds N] [--processor]

PYTHON is an interpreter with torch. Each round runs ours, PyTorch, PyTorch in channels_last and,
for ResNet-18 where libdnnl-dev was there to build with, oneDNN. They run one after the other, so
that other work of the machine affects all of them. The table shows medians. --processor counts
processor time at one thread instead, which is what a busy machine can still measure.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

STEPS = {"lenet5": 40, "resnet_18": 2}


def seconds(command, threads, key):
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    return json.loads(out.splitlines()[0])[key]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("python")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--processor", action="store_true")
    a = p.parse_args()
    key = "processor_seconds" if a.processor else "seconds"
    torch = [a.python, str(pathlib.Path(__file__).with_name("vision_speed_torch.py"))]
    dnnl = str(a.build / "bench_vision_dnnl")
    print("| model | threads | ours, steps/s | PyTorch | channels_last | ours / PyTorch"
          " | oneDNN's convolutions alone | ours / those |\n|---|---|---|---|---|---|---|---|")
    for model, steps in STEPS.items():
        commands = {"ours": [str(a.build / "bench_vision_speed")], "torch": torch,
                    "last": [*torch, "--channels-last"]}
        commands = {k: [*c, "--model", model] for k, c in commands.items()}
        if model == "resnet_18" and os.path.exists(dnnl):
            commands["dnnl"] = [dnnl]
        for threads in (1,) if a.processor else (1, 2):
            times = {name: [] for name in commands}
            for _ in range(a.rounds):
                for name, command in commands.items():
                    more = [] if name == "dnnl" else ["--threads", str(threads)]
                    times[name] += seconds([*command, "--steps", str(steps), *more], threads, key)
            rate = {name: 1 / statistics.median(t) for name, t in times.items()}
            alone = (f"{rate['dnnl']:.2f} | {rate['ours'] / rate['dnnl']:.2f}"
                     if "dnnl" in rate else "- | -")
            print(f"| {model} | {threads} | {rate['ours']:.3g} | {rate['torch']:.3g} |"
                  f" {rate['last']:.3g} | {rate['ours'] / rate['torch']:.2f} | {alone} |", flush=True)


main()
