#!/usr/bin/env python3
"""due_point.py - how long a due point stops a training loop in PyTorch, and what limits it.

    due_point.py [--parameters 500000000] [--steps 24] [--overlap 22] [--pause 1] [--rounds 4]
                 [--dtype float32] [--dir .] [--no-save] LIBRARY[,PACKAGE]...

Each LIBRARY is a folder with libdiloco-train.so, and PACKAGE the folder of its Python package if it
is not the one on PYTHONPATH; the first is the reference. They take turns, each
in a process of its own: one replica with AdamW on CPU tensors, over a folder. A step is the inner
optimizer's step and a pause, in which the forward and backward passes would be. The stall is the
time of opt.step() above the median of all steps, in the steps that capture and adopt an entry. Both
parts are printed beside their sum. The
first entry is left out, and the last, which has no later steps to overlap with. Let --overlap be long enough for an exchange:
training waits for a result that is not there yet. Beside it: one copy of the due bytes (parameters
and moments), and the bandwidths of a save and of a plain file. bench/loop.md has results. Needs:
diloco on PYTHONPATH, torch.
"""
import argparse
import errno
import math
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TENSORS = 16


def due_bytes(args):
    """Of a save: parameters, which the state has as float32, and two moments of their own type."""
    return args.parameters * {"float32": 12, "bfloat16": 8}[args.dtype]


def replica(args, folder):
    import torch
    import diloco

    dtype = getattr(torch, args.dtype)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            n = args.parameters // TENSORS
            self.w = torch.nn.ParameterList(torch.nn.Parameter(torch.randn(n).to(dtype))
                                            for _ in range(TENSORS))

    model = Model()
    for p in model.parameters():
        p.grad = torch.full_like(p, 1e-3)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    options = {"server.diloco.overlap_steps": args.overlap}
    if args.no_save:
        options["run.state_dir"] = "none"
    took, save = [], math.nan
    with diloco.DiLoCoOptimizer(model, inner, f"{folder}/run", "r0", sync_every=args.steps,
                                rounds=args.rounds, codec="int4", replicas=1,
                                options=options) as opt:
        while not opt.done:
            time.sleep(args.pause)
            began = time.monotonic()
            opt.step()
            took.append(time.monotonic() - began)
            if len(took) == args.steps * (args.rounds - 1):
                opt.save()  # and the saves and uploads before it, which the second does not wait for
                began = time.monotonic()
                opt.save()
                save = time.monotonic() - began
    plain = statistics.median(took)
    stops = range(2 * args.steps - 1, args.steps * (args.rounds - 1), args.steps)  # take; adopt
    takes = [max(0, took[t] - plain) for t in stops]
    adopts = [max(0, took[t + args.overlap] - plain) for t in stops]
    stall = statistics.median(map(sum, zip(takes, adopts)))
    print(plain, stall, statistics.median(takes), statistics.median(adopts),
          due_bytes(args) / save)


def copy_seconds(n_bytes):
    """Once, into memory that is there already."""
    import torch
    a, b, took = torch.ones(n_bytes // 4), torch.ones(n_bytes // 4), []
    for _ in range(5):
        began = time.monotonic()
        b.copy_(a)
        took.append(time.monotonic() - began)
    return statistics.median(took)


def written(folder, pieces, piece, flags):
    """Bytes a second of a file of such pieces, until it is on disk."""
    at = f"{folder}/plain"
    began = time.monotonic()
    fd = os.open(at, os.O_CREAT | os.O_WRONLY | flags)
    for _ in range(pieces):
        os.write(fd, piece)
    os.fsync(fd)
    os.close(fd)
    took = time.monotonic() - began
    os.unlink(at)
    return pieces * len(piece) / took


def disk_rates(folder, n_bytes):
    """Those of a plain file, through the system's cache and past it (0: it has to be used)."""
    with mmap.mmap(-1, 32 << 20) as piece:  # at a multiple of a page
        piece.write(os.urandom(1 << 20) * 32)
        pieces = max(1, n_bytes // len(piece))
        through = written(folder, pieces, piece, 0)
        try:
            return through, written(folder, pieces, piece, os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return through, 0


def turn(args, folder, library):
    command = [sys.executable, __file__, "--replica", folder]
    for name in ("parameters", "steps", "overlap", "pause", "rounds", "dtype"):
        command += [f"--{name}", str(getattr(args, name))]
    place, _, package = library.partition(",")
    environment = {**os.environ, "DILOCO_LIBRARY": place}
    if package:
        environment["PYTHONPATH"] = package
    out = subprocess.run(command + ["--no-save"] * args.no_save, check=True,
                         stdout=subprocess.PIPE, text=True, env=environment).stdout
    return [float(x) for x in out.split()]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("libraries", nargs="*")
    p.add_argument("--parameters", type=int, default=500_000_000)
    p.add_argument("--steps", type=int, default=24)
    p.add_argument("--overlap", type=int, default=22)
    p.add_argument("--pause", type=float, default=1)
    p.add_argument("--rounds", type=int, default=4)
    p.add_argument("--turns", type=int, default=3)
    p.add_argument("--dir", type=pathlib.Path, default=".")
    p.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    p.add_argument("--no-save", action="store_true")
    p.add_argument("--replica", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.replica:
        return replica(args, args.replica)
    due = due_bytes(args)
    print(f"{args.parameters:,} parameters, {due / 1e9:.1f} GB due, overlap {args.overlap} of {args.steps}")
    stalls = {library: [] for library in args.libraries}
    for number in range(args.turns):
        for library in args.libraries:
            with tempfile.TemporaryDirectory(dir=args.dir) as folder:
                plain, stall, take, adopt, save = turn(args, folder, library)
                through, past = disk_rates(folder, min(due, 1 << 30))
            stalls[library].append(stall)
            print(f"turn {number}: {library}: step {plain:.2f} s, stall {stall:.2f} s "
                  f"(capture {take:.2f} s, adopt {adopt:.2f} s), "
                  f"save {save / 1e6:.0f} MB/s; copy {copy_seconds(due):.2f} s, "
                  f"disk {through / 1e6:.0f} MB/s, past the cache {past / 1e6:.0f} MB/s",
                  flush=True)
    reference = statistics.median(stalls[args.libraries[0]])
    for library, seconds in stalls.items():
        median = statistics.median(seconds)
        print(f"{library}: {median:.2f} s a round, {reference / median:.1f} times shorter")


if __name__ == "__main__":
    main()
