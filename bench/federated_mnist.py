#!/usr/bin/env python3
"""federated_mnist.py BUILD [--rounds 60] [--steps 160] [--seeds 1] [--threads 1]

DiLoCo against FedAvg at equal optimizer steps: LeNet-5 on MNIST, by Plato's two configuration files
(configs/MNIST), scaled to about ten minutes on two cores by --set alone:

    clients       50 of 1000 samples, 10 of them a round (there: all 50)
    a round       160 steps of 32 samples, which is FedAvg's 5 epochs; DiLoCo's H is as long (there: 500
                  of 512 samples, so that equal steps are 16 times the samples)
    warm-up       a tenth of a client's steps, as there
    the rest      as the files have it: AdamW 4e-4, decay 0.1, Nesterov .7 .9, uniform; FedAvg as it is

so that both take the same steps on the same samples in the same rounds, and what differs is the outer
step and the clients' weights. The data is MNIST's four files (IDX, gzip or not) in $DATA. Equal steps
are reported beside samples, bytes and time; bench/federated.md has results."""
import argparse
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARMS = {"DiLoCo": "diloco_lenet5", "FedAvg": "fedavg_lenet5_diloco_comparison"}
CLIENTS, PER_ROUND, SAMPLES, BATCH = 50, 10, 1000, 32


def settings(args, seed):
    warmup = args.rounds * PER_ROUND // CLIENTS * args.steps // 10
    return {
        "clients.total_clients": CLIENTS, "clients.per_round": PER_ROUND,
        "data.partition_size": SAMPLES, "data.train_path": os.environ["DATA"],
        "trainer.rounds": args.rounds, "trainer.local_steps_per_round": args.steps,
        "trainer.batch_size": BATCH, "trainer.target_accuracy": 0,
        "parameters.learning_rate.warmup_steps": warmup,
        "run.seed": seed, "data.random_seed": seed, "run.threads": args.threads,
        "results.types": "round,accuracy,elapsed_time,comm_overhead,steps,samples",
    }


def train(args, arm, seed, work):
    """The rows of its results file, as numbers, and its wall time."""
    store = work / f"{arm}-{seed}"
    command = [args.build / "diloco", "train", ROOT / f"configs/MNIST/{ARMS[arm]}.toml", "--quiet",
               "--store", store, "--replicas", str(args.workers)]
    for key, value in settings(args, seed).items():
        command += ["--set", f"{key}={value}"]
    began = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with open(f"{store}.csv", newline="") as file:
        rows = [{k: float(v) if v else None for k, v in row.items()} for row in csv.DictReader(file)]
    return rows, time.monotonic() - began


def first_round_at(rows, accuracy):
    return next((f"{row['round']:.0f}" for row in rows if (row["accuracy"] or 0) >= accuracy), "–")


def line(arm, seed, rows, seconds):
    last, best = rows[-1], max(row["accuracy"] for row in rows if row["accuracy"])
    return (f"| {arm} | {seed} | {last['steps']:.0f} | {last['samples']:.0f} | "
            f"{last['accuracy']:.4f} | {best:.4f} | {first_round_at(rows, .9)} | "
            f"{first_round_at(rows, .97)} | {last['comm_overhead']:.0f} | {seconds:.0f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("--rounds", type=int, default=60)
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--workers", type=int, default=2)
    args = p.parse_args()
    if "DATA" not in os.environ:
        sys.exit("federated_mnist.py: DATA names no folder with MNIST's files")
    print("| | seed | steps | samples | accuracy | best | 90 % in round | 97 % in round | MB sent | s |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    ends = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as work:
        for seed in range(1, args.seeds + 1):
            for arm in ARMS:
                rows, seconds = train(args, arm, seed, pathlib.Path(work))
                ends[arm].append(rows[-1]["accuracy"])
                print(line(arm, seed, rows, seconds), flush=True)
    differences = [d - f for d, f in zip(*ends.values())]
    print(f"\nDiLoCo - FedAvg, by seed: {', '.join(f'{d:+.4f}' for d in differences)}")


main()
