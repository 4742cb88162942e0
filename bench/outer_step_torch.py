"""The work of bench_outer_step in PyTorch. It is SGD(momentum, nesterov=True) on the base, alone;
with gradient = base - local before it and a copy to the local parameters after it; and with the
mean of four members' gradients before it.

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
        "delta, outer step, adopt": "delta, step, adopt",
        "outer step, 4 members": "mean of 4, step"}
MEMBERS = 4


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
    del local
    members = [torch.full((N,), 1e-3) for _ in range(MEMBERS)]
    entry = []
    for _ in range(3):
        begin = time.perf_counter()
        torch.mul(members[0], 1 / MEMBERS, out=base.grad)
        for g in members[1:]:
            base.grad.add_(g, alpha=1 / MEMBERS)
        optimizer.step()
        entry.append(time.perf_counter() - begin)
    return {"step alone": step, "delta, step, adopt": whole, "mean of 4, step": entry}


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
            kind = "fused=True" if fused else "default"
            for name, seconds in torch_times(fused).items():
                ms = statistics.median(seconds) * 1e3
                runs.setdefault(f"torch {kind}, {name}", []).append(ms)
    median = {name: statistics.median(ms) for name, ms in runs.items()}
    print(f"torch {torch.__version__}, {N} elements, {ROUNDS} rounds, {THREADS} threads")
    for name, ms in median.items():
        ours = next((median[same] for same in OURS.values() if name.endswith(f", {same}")), ms)
        print(f"{name:38} {ms:8.1f} ms  {ms / ours:6.2f} times ours")


main()
