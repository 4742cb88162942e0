"""make.py: one small object of each binary format, made by the program itself."""
import json
import os
import pathlib
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CONFIG = """preset = "diloco"
[run]
replicas = 2
retain = "all"
[trainer]
rounds = 1
local_steps_per_round = 2
batch_size = 1
[parameters.model]
layers = 1
heads = 1
channels = 2
context = 8
[data]
train_path = "text.txt"
"""
ENTRY = "0000000000"
# A fake bucket whose bytes under one name are written down when it ends.
BUCKET = """
import http.server, runpy, signal, sys
path, port, name, out = sys.argv[1:]
sys.argv = [path, port]
def serve(server):
    def end(*_):
        objects = server.RequestHandlerClass.do_PUT.__globals__["objects"]
        open(out, "wb").write(next(v[0] for k, v in objects.items() if k.endswith(name)))
        sys.exit(0)
    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    while True:
        server.handle_request()
http.server.ThreadingHTTPServer.serve_forever = serve
runpy.run_path(path)
"""


def byte_tokenizer():
    """A tokenizer.json with one token for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    names = {b: chr(b) for b in plain} | {b: chr(256 + n) for n, b in enumerate(others)}
    return {"version": "1.0", "decoder": {"type": "ByteLevel"},
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                              "use_regex": True},
            "model": {"type": "BPE", "vocab": {names[b]: b for b in range(256)}, "merges": []}}


def make(program, folder):
    """{name: bytes} of one object of each format. Works in `folder`, which is empty."""
    folder = pathlib.Path(folder)
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), "LC_ALL": "C",
           "GS_ACCESS_KEY_ID": "access", "GS_SECRET_ACCESS_KEY": "secret"}
    text = "\n".join(f"the quick brown fox {n} jumps over the lazy dog" for n in range(120))
    (folder / "text.txt").write_text(text)
    (folder / "short.txt").write_text(text[:200])
    (folder / "run.toml").write_text(CONFIG)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))

    def diloco(*arguments):
        done = subprocess.run([program, *arguments], cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"diloco {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def run(store, *options):
        sets = [part for option in options for part in ("--set", option)]
        diloco("train", "run.toml", "--store", store, "--quiet", *sets)

    def read(pattern):
        found = sorted(folder.glob(pattern))
        if not found:
            sys.exit(f"no {pattern} was made")
        return found[0].read_bytes()

    run("plain", "run.track=tensorboard:curves")
    key = diloco("id").strip()
    (folder / "members").write_text(f"r0 {key}\nr1 {key}\n")
    run("keyed", "run.roster=closed", "run.members=members")
    run("leader", "server.diloco.exchange=leader", "server.diloco.codec=int8")
    run("sharded", "server.diloco.exchange=sharded", "server.diloco.combiner=clipped_mean")
    run("packed", "server.diloco.compression=zstd")
    run("clients", "preset=fedavg", "clients.total_clients=2", "clients.per_round=2", "clients.state=state")
    for store in ("plain", "keyed", "leader", "sharded", "packed"):
        diloco("verify", store)
    diloco("data", "prepare", "--text", "short.txt", "--tokenizer", "tokenizer.json", "--out", "tokens", "--quiet")

    sys.path.insert(0, str(HERE.parent))
    port = subprocess.run([sys.executable, HERE.parent / "free_port.py"], capture_output=True, text=True,
                          check=True).stdout.strip()
    bucket = subprocess.Popen([sys.executable, "-c", BUCKET, HERE.parent / "servers/gcs_fake.py", port,
                               f"c/{ENTRY}/r0.0000", folder / "pointer"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        bucket.stdout.readline()
        run(f"gs://bucket/r?endpoint=http://127.0.0.1:{port}&halves=yes")
    finally:
        bucket.send_signal(signal.SIGTERM)
        bucket.wait()

    return {
        "contribution": read(f"plain/c/{ENTRY}/r0.0000"),
        "signed": read(f"keyed/c/{ENTRY}/r0.0000"),
        "int8": read(f"leader/c/{ENTRY}/r0.0000"),
        "combined": read(f"leader/x/{ENTRY}/r*"),
        "table": read(f"sharded/c/{ENTRY}/r0.0000"),
        "slice": read(f"sharded/b/{ENTRY}/0000/r0.0000"),
        "measured": read(f"sharded/x/{ENTRY}/measured/0000/r*"),
        "combined_slice": read(f"sharded/x/{ENTRY}/0000/r*"),
        "packed": read(f"packed/c/{ENTRY}/r0.0000"),
        "state": read("plain/theta0/*"),
        "local_state": read("plain.local/*/r0/local.safetensors"),
        "client_state": read("state/st/*/client1/*"),
        "pointer": read("pointer"),
        "tokens": read("tokens/000000.bin"),
        "curves": read("curves/r0/events.out.tfevents.*"),
        "record": read("plain/rec/r0.0000/0000000000.jsonl.zst"),
    }
