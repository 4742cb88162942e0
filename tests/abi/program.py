#!/usr/bin/env python3
"""program.py PROGRAM [--renew]: the program keeps what docs/releasing.md promises within a series.

program.txt holds one promise a line, and each must still be true; more may be true. --renew writes
it again: for a release that adds something, or for a new series. Lines:

    alias lr parameters.optimizer.lr        another name of an option
    choice run.on_missing wait              a value that an option takes
    command train                           a command, and "flag train --replicas N"
    exit 2 train none.toml                  an exit code, of a command that is run
    json status entries number              a member of what --json prints, and its type
    option run.replicas 1                   an option, and its default
    python DiLoCo                           a name of the Python package
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMISES = pathlib.Path(__file__).with_suffix(".txt")
CONFIG = """
preset = "diloco"
[run]
replicas = 2
threads = 1
[trainer]
rounds = 2
local_steps_per_round = 2
batch_size = 2
eval_batches = 2
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
"""
# The text after the first "/" distinguishes commands of one name; it is not given to the program.
JSON = ["train run.toml", "status runs/run", "log runs/run", "log/traffic runs/run --traffic",
        "log/moved runs/run --moved 1", "verify runs/run", "report runs/run", "eval run.toml",
        "eval/text runs/run --text text.txt", "presets sparse", "doctor", "doctor/config run.toml",
        "doctor/store runs", "data run.toml",
        "data_tokenizer --text text.txt --vocab 300 --out tok.json",
        "data_prepare --text text.txt --tokenizer tok.json --out tokens",
        "export run.toml --to hf --out hf", "import hf --out model", "id --key id.pem",
        "plan run.toml --link 50mbit,100ms --step-seconds 0.01 --steps 100",
        "sweep run.toml --set-values trainer.batch_size=1,2"]
# 130 is in tests/e2e/interrupt.sh. Port 1 answers nothing.
EXIT = ["status runs/run", "status none", "train none.toml", "train --no-such-flag",
        "train run.toml --set trainer.preserve_optimizer_state=false",
        "status http://127.0.0.1:1/run"]
TYPES = {dict: "object", list: "array", str: "text", bool: "truth", int: "number", float: "number",
         type(None): "null"}
FREE = ("values", "rejected")  # objects whose members are names of options or reasons


class Program:
    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())

    def run(self, line):
        command, *rest = line.split()
        words = command.split("/")[0].split("_") + rest
        return subprocess.run([self.path, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True)

    def says(self, line):
        done = self.run(line)
        if done.returncode:
            sys.exit(f"program.py: {line}: exit code {done.returncode}: {done.stderr}")
        return done.stdout


def options(page):
    for row in re.findall(r"^\| (`.*) \|$", page.replace("\\_", "_"), re.M):
        names, kind, default = row.split(" | ")[:3]
        name, *aliases = re.findall(r"`([^`]+)`", names)
        yield f"option {name} {default.strip('`')}"
        for alias in aliases:
            yield f"alias {alias} {name}"
        for choice in kind[len("one of "):].split(", ") if kind.startswith("one of ") else []:
            yield f"choice {name} {choice}"


def commands(program):
    for name in re.findall(r"^  ([a-z]+(?: [a-z]+)?)  ", program.says("help"), re.M):
        yield f"command {name}"
        flags = program.says(name + " --help").split("\nFlags:\n")[1].split("\n\n")[0]
        for flag in re.findall(r"^  (--\S+(?: [A-Z][^ ]*)?)", flags, re.M):
            yield f"flag {name} {flag}"


def members(value, path=""):
    """Pairs of a member's path and type; of an array, those of all its elements."""
    if path:
        yield path, TYPES[type(value)]
    if isinstance(value, dict) and path.split(".")[-1] not in FREE:
        for key, inner in value.items():
            yield from members(inner, f"{path}.{key}" if path else key)
    if isinstance(value, list):
        for inner in value:
            if isinstance(inner, (dict, list)):
                yield from members(inner, path + "[]")


def json_lines(program):
    for line in JSON:
        found = {}
        for text in program.says(line + " --json").splitlines():
            for path, kind in members(json.loads(text)):
                if kind != "null" or path not in found:  # a value may be missing
                    found[path] = kind
        for path, kind in found.items():
            yield f"json {line.split()[0]} {path} {kind}"


def python_names():
    done = subprocess.run([sys.executable, "-c", "import diloco; print(*diloco.__all__)"],
                          stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    return (f"python {name}" for name in done.stdout.split())


def true_now(program):
    pathlib.Path("run.toml").write_text(CONFIG)
    pathlib.Path("text.txt").write_text((ROOT / "docs/architecture.md").read_text()[:20000])
    found = set(options(program.says("options --markdown")))
    found.update(commands(program), json_lines(program), python_names())
    found.update(f"exit {program.run(line).returncode} {line}" for line in EXIT)
    return found


def is_kept(promise, found):
    """A member that is null now, or was when it was promised, keeps its name alone."""
    if promise in found or not promise.startswith("json "):
        return promise in found
    name, kind = promise.rsplit(" ", 1)
    return f"{name} null" in found or \
        (kind == "null" and any(line.rsplit(" ", 1)[0] == name for line in found))


def main():
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        found = true_now(Program(program_path))
        os.chdir("/")
    if sys.argv[2:] == ["--renew"]:
        PROMISES.write_text("\n".join(sorted(found)) + "\n")
    promises = PROMISES.read_text().splitlines()
    wrong = [promise for promise in promises if not is_kept(promise, found)]
    print("\n".join(wrong + [f"{len(promises)} promises, {len(wrong)} broken"]))
    return 1 if wrong else 0


program_path = os.path.abspath(sys.argv[1])
sys.exit(main())
