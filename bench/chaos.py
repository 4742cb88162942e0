#!/usr/bin/env python3
"""chaos.py - a run of many replicas, of which one is killed now and then (kill -9), beside the same
run left alone.

    chaos.py PROGRAM [--minutes 30] [--quiet-minutes 10] [--replicas 16] [--kills-per-hour 125]
                     [--steps 50] [--seed 1] [--set KEY=VALUE]…

Kills come at exponential intervals, of a replica drawn evenly; the launcher starts it again at
once, from its saved state. The report comes from the log: the times of its entries, and the
generations that they count. bench/chaos.md has results.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

CONFIG = """preset = "diloco"
[run]
replicas = {replicas}
threads = 1
restarts = 100000
heartbeat = 1
patience = 15
snapshot_every = 60
[trainer]
rounds = 1000000
local_steps_per_round = {steps}
batch_size = 4
[parameters.model]
layers = 2
heads = 2
channels = 64
context = 64
[data]
train_path = "text.txt"
"""


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("program", type=pathlib.Path)
    p.add_argument("--minutes", type=float, default=30)
    p.add_argument("--quiet-minutes", type=float, default=10, help="of the run left alone")
    p.add_argument("--replicas", type=int, default=16)
    p.add_argument("--kills-per-hour", type=float, default=125)
    p.add_argument("--steps", type=int, default=50, help="between two exchanges")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--set", action="append", default=[], help="of the program, for both runs")
    return p.parse_args()


def write_text(path):
    rng = random.Random(7)
    words = "the a one sea ship wind and of to king night old told sails deep home far".split()
    path.write_text(" ".join(rng.choice(words) for _ in range(200000)))


class Run:
    """A command with its replicas, and what happened to them."""

    def __init__(self, args, folder, name):
        self.store = folder / name
        self.kills = []  # (when, replica)
        self.asked = []  # when a process was killed whose replica the launcher has not named yet
        command = [args.program.resolve(), "train", "chaos.toml", "--store", self.store]
        for setting in args.set:
            command += ["--set", setting]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True,
                                        start_new_session=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            killed = re.match(r"(\S+) was killed by signal 9", line)
            if killed:
                self.kills.append((self.asked.pop(0), killed.group(1)))

    def wait_for_entry(self, entry):
        while not (self.store / f"log/{entry:010}.json").exists():
            if self.process.poll() is not None:
                sys.exit(f"the run ended with {self.process.returncode}")
            time.sleep(0.1)

    def kill_one(self, rng):
        task = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        pids = sorted(int(pid) for pid in pathlib.Path(task).read_text().split())
        self.asked.append(time.time())
        os.kill(rng.choice(pids), signal.SIGKILL)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=300)
        self.reader.join()

    def entries(self, program):
        """(time, commit?, generations that it counts), in order."""
        told = subprocess.run([program.resolve(), "log", self.store, "--json"], check=True,
                              capture_output=True, text=True).stdout
        for line in told.splitlines():
            e = json.loads(line)
            when = (self.store / f"log/{e['entry']:010}.json").stat().st_mtime
            yield when, e["kind"] == "commit", e["members"]


def watch(run, seconds, kills_per_hour, rng):
    """Let it continue; kill some. Returns the times at which it was looked at."""
    run.wait_for_entry(2)
    began = time.time()
    ends = began + seconds
    while True:
        pause = rng.expovariate(kills_per_hour / 3600) if kills_per_hour else seconds
        if time.time() + pause >= ends:
            time.sleep(max(0, ends - time.time()))
            return began, ends
        time.sleep(pause)
        run.kill_one(rng)


def life(text):
    replica, generation = text.rsplit(".", 1)
    return replica, int(generation)


def lifetimes(run):
    """Start of each generation; by replica, in order."""
    born = {}
    for path in sorted((run.store / "gen").iterdir()):
        born.setdefault(life(path.name)[0], []).append(path.stat().st_mtime)
    return born


def n_dead(run, born, when):
    """Replicas that were killed and have not claimed their next generation."""
    dead = 0
    for replica, lives in born.items():
        last = max((t for t, r in run.kills if r == replica and t <= when), default=None)
        dead += last is not None and not any(last < b <= when for b in lives)
    return dead


def measure(run, program, began, ended, replicas, steps):
    entries = list(run.entries(program))
    seen = [e for e in entries if began <= e[0] < ended]
    commits = [e for e in seen if e[1]]
    born = lifetimes(run)
    after, rejoined = [], []
    for when, replica in run.kills:
        later = [e for e in entries if e[0] > when and e[1]]
        lives_then = sum(b <= when for b in born[replica])
        back = [t for t, _, members in later
                if any(life(m)[0] == replica and life(m)[1] >= lives_then for m in members)]
        if later:
            after.append(later[0][0] - when)
        if back:
            rejoined.append(back[0] - when)
    counted = sum(len(m) for _, _, m in commits)
    alive = sum(replicas - n_dead(run, born, t) for t, _, _ in commits)
    return {"minutes": (ended - began) / 60, "kills": len(run.kills), "commits": len(commits),
            "aborts": len(seen) - len(commits), "participation": counted / max(alive, 1),
            "steps_per_s": counted * steps / (ended - began), "commit_s": after,
            "rejoin_s": rejoined}


def line(name, r, quiet):
    def spread(times):
        if not times:
            return "-"
        return f"{statistics.median(times):.1f} s, at most {max(times):.1f} s"

    print(f"{name}: {r['minutes']:.1f} minutes, {r['kills']} kills, {r['commits']} commits, "
          f"{r['aborts']} aborts")
    print(f"  counted steps/s {r['steps_per_s']:.1f}, "
          f"{100 * r['steps_per_s'] / quiet['steps_per_s']:.1f} % of the run left alone")
    print(f"  participation (counted / alive) {100 * r['participation']:.1f} %")
    print(f"  from a kill to the next commit: {spread(r['commit_s'])}")
    print(f"  from a kill to a commit that counts the next life: {spread(r['rejoin_s'])}")


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / "text.txt")
        (folder / "chaos.toml").write_text(CONFIG.format(replicas=args.replicas, steps=args.steps))
        results = {}
        for what, minutes, kills in (("alone", args.quiet_minutes, 0),
                                     ("killed", args.minutes, args.kills_per_hour)):
            run = Run(args, folder, what)
            try:
                began, ended = watch(run, 60 * minutes, kills, random.Random(args.seed))
            finally:
                run.stop()
            results[what] = measure(run, args.program, began, ended, args.replicas, args.steps)
            subprocess.run([args.program.resolve(), "verify", run.store, "--json"], check=True,
                           stdout=subprocess.DEVNULL)
        for what, r in results.items():
            line(what, r, results["alone"])
        print(json.dumps(results))


if __name__ == "__main__":
    main()
