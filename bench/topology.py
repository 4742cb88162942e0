#!/usr/bin/env python3
"""topology.py - the time of one exchange by each topology, over links of a given speed.

    topology.py BUILD [--link 100mbit,20ms] [--megabytes 0.1,1,10] [--replicas 2,4,8,16] [--rounds 5] [--json FILE]

BUILD has diloco and bench/bench_file_sync. Every replica is a process with a link of its own (run.link) to a hub on this
machine. Each time is the median of the rounds, of the slowest process. bench/topology.md has results.
"""
import argparse
import json
import pathlib
import tempfile

import sync

TOPOLOGIES = ("allgather", "leader", "sharded")


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=lambda at: pathlib.Path(at).resolve())
    p.add_argument("--link", default="100mbit,20ms")
    p.add_argument("--megabytes", type=numbers(float), default=[0.1, 1, 10], help="of float32 that a replica contributes")
    p.add_argument("--replicas", type=numbers(int), default=[2, 4, 8, 16])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", type=pathlib.Path)
    return p.parse_args()


def measure(args, folder, megabytes, replicas):
    """Seconds of an exchange by each topology."""
    args.parameters, args.replicas = int(megabytes * 1e6 / 4), replicas
    hub = sync.Hub(args, folder / "hub")
    try:
        return {name: sync.sync(args, folder, f"http://{hub.address}/{name}", f"server.diloco.exchange={name}",
                                f"run.link={args.link}")[0] for name in TOPOLOGIES}
    finally:
        hub.close()


def main():
    args = parse()
    rows = []
    sizes, members = args.megabytes, args.replicas
    print(f"links of {args.link}; seconds of an exchange, median of {args.rounds}")
    print("| MB | replicas | allgather | leader | sharded | fastest |\n|---|---|---|---|---|---|")
    for megabytes in sizes:
        for replicas in members:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
                seconds = measure(args, pathlib.Path(folder), megabytes, replicas)
            rows.append({"megabytes": megabytes, "replicas": replicas, "seconds": seconds})
            times = " | ".join(f"{seconds[name]:.2f}" for name in TOPOLOGIES)
            print(f"| {megabytes:g} | {replicas} | {times} | {min(seconds, key=seconds.get)} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"link": args.link, "rounds": args.rounds, "rows": rows}), "utf-8")


if __name__ == "__main__":
    main()
