"""gpu_ceilings.py - measure the speed of a card through PyTorch: matrix products in bfloat16 and float32,
and copies within its memory and to and from the host. Prints one line of JSON for each, for
scripts/gpu_check.sh. Inputs are random, since products of zeros are faster.

    gpu_ceilings.py DEVICE SIZE

SIZE is the side of the largest product; copies move 16 SIZE^2 bytes. DEVICE is cuda, or cpu to try the script.
"""
import json
import sys
import time

import torch


def median_seconds(device, work):
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    times = []
    for _ in range(9):
        wait()
        begin = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - begin)
    return sorted(times[2:])[3]  # the first two warm up


def show(**what):
    print(json.dumps(what), flush=True)


def products(device, size):
    shapes = {"square": (size, size, size), "linear of 124 M": (size, 2304, 768),
              "head of 124 M": (size, 50304, 768), "linear of 1.5 B": (size, 4800, 1600)}
    for dtype in (torch.bfloat16, torch.float32):
        for name, (m, n, k) in shapes.items():
            a, b = (torch.randn(shape, device=device).to(dtype) for shape in ((m, k), (k, n)))
            seconds = median_seconds(device, lambda: a @ b)
            show(ceiling="product", of=name, type=str(dtype).split(".")[1],
                 flops_per_s=2 * m * n * k / seconds)


def copies(device, size):
    n = 16 * size * size
    here = torch.randint(256, (n,), dtype=torch.uint8, device=device)
    there = torch.empty_like(here)
    show(ceiling="copy", of="within the card",
         bytes_per_s=2 * n / median_seconds(device, lambda: there.copy_(here)))
    for pinned in (True, False):
        if pinned and device == "cpu":
            continue
        host = torch.empty(n, dtype=torch.uint8, pin_memory=pinned)
        kind = "pinned" if pinned else "pageable"
        show(ceiling="copy", of=f"to the card, {kind}",
             bytes_per_s=n / median_seconds(device, lambda: here.copy_(host, non_blocking=pinned)))
        show(ceiling="copy", of=f"from the card, {kind}",
             bytes_per_s=n / median_seconds(device, lambda: host.copy_(here, non_blocking=pinned)))


if __name__ == "__main__":
    products(sys.argv[1], int(sys.argv[2]))
    copies(sys.argv[1], int(sys.argv[2]))
