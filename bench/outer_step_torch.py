"""PyTorch doing what bench_outer_step's last row does: gradient = base - local, one
SGD(momentum, nesterov=True) step on the base, copy to the local parameters.

    python3 outer_step_torch.py BENCH [elements] [rounds]

BENCH is the built bench_outer_step: each round runs it and both PyTorch optimizers, one after
the other, so that a busy moment meets all; medians count. Prints milliseconds and how many
times faster the fused step is.
"""
import re
import statistics
import subprocess
import sys
import time

import torch

BENCH = sys.argv[1]
N = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000_000
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
THREADS = torch.get_num_threads()
OURS = {"outer step, 1 member": "step alone", "outer step, 1 member, digests": "step and digests",
        "delta, outer step, adopt": "delta, step, adopt"}


def torch_times(fused):
    base = torch.nn.Parameter(torch.ones(N))
    local = torch.full((N,), 0.999)
    base.grad = torch.zeros(N)
    optimizer = torch.optim.SGD([base], lr=1e-6, momentum=0.5, nesterov=True, fused=fused)
    optimizer.step()  # makes the momentum buffer
    step, whole = [], []
    for _ in range(3):
        begin = time.perf_counter()
        torch.sub(base.data, local, out=base.grad)
        middle = time.perf_counter()
        optimizer.step()
        end = time.perf_counter()
        local.copy_(base.data)
        whole.append(time.perf_counter() - begin)
        step.append(end - middle)
    return statistics.median(step) * 1e3, statistics.median(whole) * 1e3


def our_times():
    text = subprocess.run([BENCH, str(N), "3", str(THREADS)], check=True, capture_output=True,
                          text=True).stdout
    found = re.findall(r"^(\S.*?)  +([\d.]+) +[\d.]+", text, re.M)
    return {OURS[name]: float(ms) for name, ms in found if name in OURS}


def main():
    runs = {}
    for _ in range(ROUNDS):
        for name, ms in our_times().items():
            runs.setdefault(name, []).append(ms)
        for fused in (None, True):
            step, whole = torch_times(fused)
            kind = "fused=True" if fused else "default"
            runs.setdefault(f"torch {kind}, step alone", []).append(step)
            runs.setdefault(f"torch {kind}, delta, step, adopt", []).append(whole)
    median = {name: statistics.median(ms) for name, ms in runs.items()}
    print(f"torch {torch.__version__}, {N} elements, {ROUNDS} rounds, {THREADS} threads")
    for name, ms in median.items():
        ours = median["delta, step, adopt" if "adopt" in name else "step alone"]
        print(f"{name:38} {ms:8.1f} ms  {ms / ours:6.2f} times ours")


main()
