#!/usr/bin/env python3
"""slow_link.py BUILD TEXT [ROUNDS [PERCENT…]] [--delay MS] [--methods NAME,…]: training on slow
links, by --link (bench/slow_link.md).

First a run without exchange: the time of a step, and tokens/s of a replica. Then the rates at which
blocking f32 diloco at H = 128 has to be busy 11.6, 36.1 and 71.5 % of the time. They follow from
compute : exchange = u : 1 - u and the bytes of an exchange (one contribution up, the others' down).
On each of these links: diloco, streaming, sparse, through a hub on loopback. And the record of
diloco on each, put on the others by `diloco plan --replay`, against the measured times."""
import argparse, json, os, re, subprocess, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("build")
parser.add_argument("text")
parser.add_argument("rounds", nargs="?", type=int, default=8)
parser.add_argument("percent", nargs="*", type=float, default=(11.6, 36.1, 71.5))
parser.add_argument("--delay", type=float, default=10, help="milliseconds of a request, 0: none")
parser.add_argument("--methods", default="diloco,streaming,sparse")
args = parser.parse_args()

REPLICAS, H, DELAY_S, ROUNDS = 2, 128, args.delay / 1e3, args.rounds
TARGETS = [percent / 100 for percent in args.percent]
REQUESTS = 10  # of an exchange of diloco, one after the other
# A run's first and last contributions move while nothing is trained; of those who train on while
# others move a run has so many rounds more that this is no part of what is measured.
LONGER = {"diloco": 1, "streaming": 5, "sparse": 4}
METHODS = {
    "diloco": ("diloco", {"trainer.local_steps_per_round": H}),
    # An exchange in flight may take nearly as long as until the fragment is due again.
    "streaming": ("streaming", {"trainer.local_steps_per_round": 100,
                                "server.diloco.fragment_layers": 1,
                                "server.diloco.overlap_steps": 90}),
    "sparse": ("sparse", {"trainer.local_steps_per_round": H}),
}
CONFIG = {
    "run.replicas": REPLICAS, "run.threads": 1, "run.snapshot_every": 1e6, "trainer.batch_size": 12,
    "trainer.eval_every": 0, "trainer.eval_batches": 1, "parameters.model.layers": 4,
    "parameters.model.channels": 96, "parameters.model.context": 64,
}


class Bench:
    def __init__(self, program, text, work):
        self.program, self.text, self.work, self.n = program, text, work, 0
        self.hub = subprocess.Popen([program, "serve", os.path.join(work, "hub"), "--listen",
                                     "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        found = None
        while not found:
            found = re.search(r"http://[0-9.:]+", self.hub.stdout.readline())
        self.url = found.group()

    def end(self):
        self.hub.terminate()
        self.hub.wait()

    def train(self, preset, values, link=None, alone=0):
        """Lines of the record, and the file."""
        self.n += 1
        record = os.path.join(self.work, f"{self.n}.jsonl")
        sets = dict(CONFIG, **{"data.train_path": self.text, "run.alone_tokens_per_s": alone})
        sets.update(values)
        command = [self.program, "train", "--preset", preset, "--quiet", "--record", record,
                   "--store", f"{self.url}/{self.n}"]
        for key, value in sets.items():
            command += ["--set", f"{key}={value}"]
        if link:
            command += ["--link", link]
        subprocess.run(command, check=True, cwd=self.work, timeout=580)
        with open(record) as lines:
            return [json.loads(line) for line in lines], record

    def replay(self, record, link):
        answer = subprocess.run([self.program, "plan", "--replay", record, "--link", link, "--json"],
                                check=True, capture_output=True, text=True)
        return json.loads(answer.stdout)


def rounds_of(lines):
    """Of all replicas: seconds in steps, seconds that training waited, and tokens. The run's last
    snapshot is not in it: a run of some rounds would be mostly that."""
    of = {event: [line for line in lines if line["event"] == event]
          for event in ("step", "commit", "adopt")}
    steps = sum(line["tokens"] / line["tokens_per_s"] for line in of["step"])
    beside = sum(line["wait_s"] for line in of["adopt"])
    waits = sum(line["wait_s"] + line["exchange_s"] for line in of["commit"])
    return steps, beside if of["adopt"] else waits, sum(line["tokens"] for line in of["step"])


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def measure(bench):
    alone, _ = bench.train("diloco", {"trainer.local_steps_per_round": H * ROUNDS,
                                      "trainer.rounds": 1})
    steps = [line for line in alone if line["event"] == "step"]
    step_s = mean(line["tokens"] / line["tokens_per_s"] for line in steps)
    rate = steps[0]["tokens"] / step_s
    payload = next(line["bytes"] for line in alone if line["event"] == "contribution")
    params = next(line["params"] for line in alone if line["event"] == "run")
    print(f"{params} parameters, {payload} bytes a contribution, step {1e3 * step_s:.1f} ms, "
          f"{rate:.0f} tokens/s a replica alone\n")
    print("| link | wanted | method | busy | throughput_ratio |\n|---|---|---|---|---|")
    blocking = []
    for target in TARGETS:
        exchange_s = H * step_s * (1 - target) / target - REQUESTS * DELAY_S
        link = f"{8e-3 * payload * REPLICAS / exchange_s:.0f}kbit"
        if DELAY_S:
            link += f",{1e3 * DELAY_S:.0f}ms"
        for name in args.methods.split(","):
            preset, values = METHODS[name]
            rounds = ROUNDS * LONGER[name]
            lines, record = bench.train(preset, dict(values, **{"trainer.rounds": rounds}),
                                        link, rate)
            busy, waited, tokens = rounds_of(lines)
            if name == "diloco":
                blocking.append((link, record, busy / REPLICAS))
            print(f"| {link} | {100 * target:.1f} % | {name} | "
                  f"{100 * busy / (busy + waited):.1f} % | "
                  f"{100 * tokens / (busy + waited) / rate:.1f} % |", flush=True)
    # On a machine with other work steps are not equally fast in two runs. The last column uses the
    # seconds of the steps on the other link in place of the record's own.
    if len(blocking) < 2:
        return
    print("\n| replayed from | on | predicted | measured | off by | with its steps |\n"
          "|---|---|---|---|---|---|")
    for source, record, steps_s in blocking:
        for link, other, other_steps_s in blocking:
            if link == source:
                continue
            told = bench.replay(record, link)["predicted_wall_s"]
            took = bench.replay(other, link)["measured_wall_s"]
            print(f"| {source} | {link} | {told:.1f} s | {took:.1f} s | "
                  f"{100 * (told / took - 1):+.1f} % | "
                  f"{100 * ((told + other_steps_s - steps_s) / took - 1):+.1f} % |")


def main():
    program = os.path.join(os.path.abspath(args.build), "diloco")
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(program, os.path.abspath(args.text), work)
        try:
            measure(bench)
        finally:
            bench.end()


main()
