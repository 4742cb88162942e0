"""PyTorch combining the same members as bench_combine, beside it.

    python3 combine_torch.py BENCH [elements] [members] [rounds]

BENCH is the built bench_combine: each round runs it and the PyTorch operations, one after the other, so that a
busy moment meets all; medians count. Ours is the whole outer step, PyTorch's the combination alone.
"""
import re
import statistics
import subprocess
import sys
import time

import torch

BENCH = sys.argv[1]
N = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000_000
M = int(sys.argv[3]) if len(sys.argv) > 3 else 8
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 5
THREADS = torch.get_num_threads()
F = 1


def krum(x):
    gram = x @ x.T
    d2 = (gram.diagonal()[:, None] + gram.diagonal() - 2 * gram).clamp(min=0)
    scores = d2.sort(dim=1).values[:, 1: M - F - 1].sum(dim=1)
    return x[scores.argmin()]


RULES = {
    "mean": lambda x: x.mean(dim=0),
    "median": lambda x: x.median(dim=0).values,
    "trimmed_mean": lambda x: x.sort(dim=0).values[1: M - 1].mean(dim=0),
    "krum": krum,
}


def our_times():
    text = subprocess.run([BENCH, str(N), str(M), "3", str(THREADS)], check=True, capture_output=True,
                          text=True).stdout
    return {name: float(ms) for name, ms in re.findall(r"^(\w+) +([\d.]+) +[\d.]+$", text, re.M)}


def main():
    x = torch.stack([(torch.arange(N) * 7919 + m * 104729).remainder(1000).float() * 1e-6 for m in range(M)])
    ours, theirs = {}, {}
    for _ in range(ROUNDS):
        for name, ms in our_times().items():
            ours.setdefault(name, []).append(ms)
        for name, rule in RULES.items():
            begin = time.perf_counter()
            rule(x)
            theirs.setdefault(name, []).append((time.perf_counter() - begin) * 1e3)
    print(f"torch {torch.__version__}, {N} elements, {M} members, {THREADS} threads, {ROUNDS} rounds")
    for name, times in theirs.items():
        a, b = statistics.median(times), statistics.median(ours[name])
        print(f"{name:16} torch {a:8.1f} ms, ours {b:8.1f} ms, {a / b:6.1f} times")


if __name__ == "__main__":
    main()
