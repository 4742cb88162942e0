#!/usr/bin/env python3
"""copy_moments.py - how long the copy of an optimizer's moments takes at a due point.

    copy_moments.py [--megabytes 800] [--turns 5] LIBRARY[,PACKAGE]...

Each LIBRARY is a folder with libdiloco-train.so, and PACKAGE the folder of its Python package if it
is not the one on PYTHONPATH. They take turns, each in a process of its own, with two threads. Each
prints the median of seven copies of 32 tensors, and its ratio to torch's own copy of the same
tensors by turns in the same process. bench/loop.md has results. Needs: diloco on PYTHONPATH, torch.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

TENSORS, COPIES = 32, 7


def measure(megabytes):
    import torch
    from diloco import _copies
    torch.set_num_threads(2)
    n = megabytes * 250_000 // TENSORS
    pairs = [(torch.zeros(n), torch.rand(n)) for _ in range(TENSORS)]

    def by_torch():
        for target, source in pairs:
            target.copy_(source)
    took = {by_torch: [], _copies.copy_host: []}
    for _ in range(COPIES):
        for copy, seconds in took.items():
            began = time.monotonic()
            copy() if copy is by_torch else copy(pairs)
            seconds.append(time.monotonic() - began)
    theirs, ours = map(statistics.median, took.values())
    print(f"{ours:.3f} s, {ours / theirs:.2f} of torch's copy")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("libraries", nargs="*")
    p.add_argument("--megabytes", type=int, default=800)
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.measure:
        return measure(args.megabytes)
    for turn in range(args.turns):
        for library in args.libraries:
            place, _, package = library.partition(",")
            out = subprocess.run([sys.executable, __file__, "--measure", "--megabytes", str(args.megabytes)],
                                 check=True, stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "DILOCO_LIBRARY": place, "OMP_WAIT_POLICY": "passive",
                                      **({"PYTHONPATH": package} if package else {})}).stdout
            print(f"turn {turn}: {library}: {out}", end="", flush=True)


if __name__ == "__main__":
    main()
