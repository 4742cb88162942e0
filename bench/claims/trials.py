"""Trials: one arm, one seed, trained by `diloco sweep` in a folder of its own, once. A trial with a
result.json is never trained again, and a stopped one resumes."""
import array
import json
import pathlib
import statistics
import struct
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TUNING_SEED = 1000  # compared with nothing


class Failed(Exception):
    pass


def name_of(arm):
    return "".join(c if c.isalnum() or c in ".=" else "_" for c in arm)


class Bench:
    """Trains arms with one program on one folder of data, and keeps everything under `out`."""

    def __init__(self, program, out, data, changes=None, divide=1, base=HERE / "base.toml"):
        self.program, self.out = pathlib.Path(program).resolve(), pathlib.Path(out)
        self.train, self.test = data
        self.changes, self.divide, self.base = changes or {}, divide, base
        self.out.mkdir(parents=True, exist_ok=True)

    def settings(self, arm, more):
        return {**self.changes, **arm.settings, **more}

    def folder(self, name, seed, more):
        extra = "".join(f",{k.split('.')[-1]}={v}" for k, v in more.items())
        return self.out / f"{name_of(name)}{name_of(extra)}" / f"seed={seed}"

    def is_done(self, name, seed, more=()):
        return any(self.folder(name, seed, dict(more)).glob("*/result.json"))

    def run(self, name, arm, seed, more=None):
        """The result of a trial. Its loss is infinite where training diverged."""
        more = more or {}
        folder = self.folder(name, seed, more)
        settings = self.settings(arm, more)
        preset = settings.pop("preset", "diloco")
        command = [self.program, "sweep", self.base, "--quiet", "--json", "--out", folder,
                   "--set", f"data.train_path={self.train}", "--set", f"data.test_path={self.test}",
                   "--equal-steps", str(arm.steps // self.divide), "--seed", str(seed),
                   "--seeds", "1", "--set-values", f"preset={preset}"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False)
        if done.returncode == 130:
            raise KeyboardInterrupt
        if done.returncode != 0:
            raise Failed(f"{name}, seed {seed}: {done.stderr.strip().splitlines()[-1:]}\n"
                         f"{' '.join(str(word) for word in command)}")
        trial = json.loads(done.stdout)["trials"][0]
        return pathlib.Path(trial["folder"]), trial

    def evaluate(self, folder, tensors):
        """Loss on the validation text of a model given as a safetensors file: a step of a run of
        its own with a learning rate of 0."""
        command = [self.program, "sweep", self.base, "--quiet", "--json", "--out", folder,
                   "--set", f"data.train_path={self.train}", "--set", f"data.test_path={self.test}",
                   "--set", f"trainer.init_from={tensors}", "--set", "lr=0",
                   "--set", "run.replicas=1", "--set", "trainer.local_steps_per_round=1",
                   "--equal-steps", "1", "--set-values", "preset=single"]
        for key, value in self.changes.items():
            command += ["--set", f"{key}={value}"]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            raise Failed(done.stderr.strip())
        return json.loads(done.stdout)["trials"][0]["loss"]


def monitored(folder):
    """Means over the commits of a run: cosine between contributions, and the length of their mean
    over the mean of their lengths."""
    cosines, means, lengths = {}, {}, {}
    with open(folder / "record.jsonl", encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "commit":
                if event["peer_grad_similarity"] is not None:
                    cosines[event["entry"]] = event["peer_grad_similarity"]
                means[event["entry"]] = event["aggregated_grad_norm"]
            elif event["event"] == "contribution":
                lengths.setdefault(event["entry"], []).append(event["pseudo_grad_norm"])
    ratios = [means[e] / statistics.fmean(lengths[e]) for e in means if lengths.get(e)]
    if not cosines:  # entries of one member
        return {}
    return {"cosine": statistics.fmean(cosines.values()), "norm": statistics.fmean(ratios)}


# ---- the replicas before the last entry, from its contributions (docs/formats.md) -------------

def read_tensors(path):
    """Header and float32 array of each tensor of a safetensors file."""
    data = path.read_bytes()
    n = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    body = data[8 + n:]
    return {name: (t["shape"], array.array("f", body[t["data_offsets"][0]:t["data_offsets"][1]]))
            for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            out.write(values.tobytes())


def read_contribution(path):
    data = path.read_bytes()
    n_bytes = struct.unpack_from("<Q", data, 264)[0]
    return array.array("f", data[512:512 + n_bytes])


def replicas_before_last(bench, folder):
    """Losses of the mean of the replicas' parameters and of one of them, just before the last
    entry. Each is the shared model less its pseudo-gradient; f32 on the wire, one fragment."""
    kept = folder / "replicas.json"
    if kept.exists():
        return json.loads(kept.read_text())
    store = folder / "store"
    last = sorted((store / "c").iterdir())[-1]
    snapshot = next((store / "snap" / last.name).iterdir()) / "state.safetensors"
    order = json.loads((store / "run.json").read_text())["tensors"]
    moved = [read_contribution(path) for path in sorted(last.iterdir())]
    tensors = read_tensors(snapshot)

    def less(g):
        out, at = {}, 0
        for tensor in order:
            shape, values = tensors[tensor["name"]]
            out[tensor["name"]] = (shape, array.array(
                "f", (v - g[at + i] for i, v in enumerate(values))))
            at += len(values)
        return out

    def loss_of(g):
        with tempfile.TemporaryDirectory() as work:
            model = pathlib.Path(work) / "model.safetensors"
            write_tensors(model, less(g))
            return bench.evaluate(pathlib.Path(work) / "eval", model)

    mean = array.array("f", (sum(gs) / len(moved) for gs in zip(*moved)))
    losses = {"the replicas' mean": loss_of(mean), "one replica": loss_of(moved[0])}
    kept.write_text(json.dumps(losses))
    return losses
