#!/usr/bin/env python3
"""sync.py - one exchange of 100 MB of float32 among four replicas on this machine. It goes through
the hub, through a bucket, and as an all-reduce by Gloo and by Open MPI. Beside it are the limits of
loopback, disk and hashing. All in one run.

    sync.py BUILD [--parameters 25000000] [--replicas 4] [--rounds 8] [--torch PYTHON] [--quick]

BUILD has diloco and bench/bench_file_sync. Parts that are left out are named: Gloo without --torch,
and Open MPI without mpirun and mpicc (Debian's openmpi-bin, libopenmpi-dev; nothing else of the
project needs them). The bucket needs tests/servers/rgw.sh, which sets CLOUD_TEST_URL:

    sh tests/servers/rgw.sh python3 bench/sync.py build --torch venv/bin/python

bench/sync.md has results.
"""
import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

GLOO = """
import sys, time, torch, torch.distributed as dist
rank, world, n, rounds, at = int(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + at, rank=rank, world_size=world)
x = torch.ones(n)
for round in range(rounds + 1):
    dist.barrier()
    began = time.monotonic()
    dist.all_reduce(x)
    took = torch.tensor(time.monotonic() - began)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    x.fill_(1)
    if rank == 0 and round:
        print(float(took))
"""

MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    const int n = atoi(argv[1]), rounds = argc > 2 ? atoi(argv[2]) : 1;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    float *x = malloc(sizeof *x * (size_t)n);
    for (int round = 0; round <= rounds; round++) {
        for (int i = 0; i < n; i++) x[i] = 1;
        MPI_Barrier(MPI_COMM_WORLD);
        double took = MPI_Wtime(), slowest;
        MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        took = MPI_Wtime() - took;
        MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0 && round) printf("%f\n", slowest);
    }
    MPI_Finalize();
}
"""


def median(text):
    return statistics.median(float(x) for x in text.split())


def loopback(n_bytes, pairs):
    """Seconds for a number of connections over loopback to move that much each, at once."""
    listener = socket.create_server(("127.0.0.1", 0))
    piece = bytes(1 << 20)

    def give(s):
        for _ in range(n_bytes >> 20):
            s.sendall(piece)

    def take(s):
        left, room = n_bytes >> 20 << 20, bytearray(1 << 20)
        while left:
            left -= s.recv_into(room)

    def talk(to, s):
        thread = threading.Thread(target=to, args=(s,))
        thread.start()
        return thread

    ends = []
    for _ in range(pairs):
        a = socket.create_connection(listener.getsockname())
        ends.append((a, listener.accept()[0]))
    began = time.monotonic()
    threads = [talk(give, a) for a, _ in ends] + [talk(take, b) for _, b in ends]
    for t in threads:
        t.join()
    return time.monotonic() - began


def gloo(args, folder):
    script, at = folder / "gloo.py", folder / "gloo.store"
    script.write_text(GLOO)
    ranks = [subprocess.Popen([args.torch, script, str(rank), str(args.replicas),
                               str(args.parameters), str(args.rounds), at],
                              stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
             for rank in range(args.replicas)]
    told = [r.communicate(timeout=600)[0] for r in ranks]
    return median(told[0])


def mpi(args, folder):
    source, program = folder / "mpi.c", folder / "mpi"
    source.write_text(MPI)
    subprocess.run(["mpicc", "-O2", "-o", program, source], check=True)
    out = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl",
                          "tcp,self", "-n", str(args.replicas), program, str(args.parameters),
                          str(args.rounds)], check=True, capture_output=True, text=True).stdout
    return median(out)


def sync(args, folder, url, *settings, rounds=None):
    """Seconds of an exchange, of as much written to plain files and read by every process, and of a
    digest of each replica's."""
    out = subprocess.run([args.build / "bench/bench_file_sync", str(args.parameters),
                          str(args.replicas), str(rounds or args.rounds), folder, url, *settings],
                         check=True, capture_output=True, text=True).stdout
    found = re.search(r"digest ([\d.]+) s, plain ([\d.]+) s, sync ([\d.]+) s", out)
    digest, plain, exchange = (float(x) for x in found.groups())
    return exchange, plain, digest


class Hub:
    def __init__(self, args, folder):
        self.folder = folder
        self.process = subprocess.Popen([args.build / "diloco", "serve", folder, "--listen",
                                         "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.address = None
        while not self.address:
            self.address = re.search(r"127\.0\.0\.1:\d+", self.process.stdout.readline())
        self.address = self.address.group(0)

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder)


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("build", type=lambda at: pathlib.Path(at).resolve())
    p.add_argument("--parameters", type=int, default=25000000)
    p.add_argument("--replicas", type=int, default=4)
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--torch", help="a python that has PyTorch")
    p.add_argument("--quick", action="store_true", help="float32 only")
    return p.parse_args()


def main():
    args = parse()
    mb = 4e-6 * args.parameters
    print(f"{args.replicas} replicas, {mb:.0f} MB of float32 each; median of {args.rounds}, slowest "
          "process")
    reference = None

    def tell(what, seconds):
        ratio = f"{seconds / reference:6.2f} times Gloo" if reference else ""
        print(f"{what:44} {1000 * seconds:8.0f} ms {ratio}", flush=True)

    codecs = ["f32"] if args.quick else ["f32", "bf16", "int8", "int4", "e3m0"]
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir="/dev/shm") as shm:
        folder, shm = pathlib.Path(name), pathlib.Path(shm)
        if args.torch:
            reference = gloo(args, folder)
            tell("Gloo all-reduce", reference)
        else:
            print("left out: Gloo; --torch PYTHON")
        if shutil.which("mpirun") and shutil.which("mpicc"):
            tell("Open MPI all-reduce, TCP", mpi(args, folder))
        else:
            print("left out: Open MPI; openmpi-bin, libopenmpi-dev")
        pairs = args.replicas * (args.replicas - 1)
        tell(f"loopback: {pairs} streams of it", loopback(4 * args.parameters, pairs))
        places = [("memory", shm), ("disk", folder)]
        for i, (where, at) in enumerate(places):
            hub = Hub(args, at / "hub")
            for codec in codecs if i == 0 else codecs[:1]:
                seconds, plain, digest = sync(args, at, f"http://{hub.address}/{codec}",
                                      f"server.diloco.codec={codec}")
                if codec == "f32" and i == 0:
                    tell("hashing: each its own, once", digest)
                if codec == "f32":
                    tell(f"plain files, {where}", plain)
                tell(f"hub in {where}, {codec}", seconds)
            hub.close()
        bucket = os.environ.get("CLOUD_TEST_URL")
        if bucket:
            place, query = bucket.split("?", 1)
            # A bucket of Ceph frees deleted objects later, and its 4 GB are in memory.
            url = f"{place}/sync{time.time_ns()}?{query}"
            tell("bucket, f32", sync(args, folder, url, rounds=min(args.rounds, 3))[0])
        else:
            print("left out: the bucket; CLOUD_TEST_URL (tests/servers/rgw.sh)")


if __name__ == "__main__":
    main()
