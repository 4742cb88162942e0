#!/usr/bin/env python3
"""tokenizer.py PROGRAM TEXT…: bytes of text encoded a second of one core, ours against Hugging Face's
tokenizers and tiktoken, with one vocabulary, in one run. Prints a table for bench/tokenizer.md."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

try:
    import tiktoken
except ImportError:
    tiktoken = None

program, texts = sys.argv[1], sys.argv[2:]
REPEATS = 5


def cpu(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def best(run, who):
    times = []
    for _ in range(REPEATS):
        begin = cpu(who)
        run()
        times.append(cpu(who) - begin)
    return min(times)


with tempfile.TemporaryDirectory() as scratch:
    root = pathlib.Path(scratch)
    contents = [pathlib.Path(t).read_bytes().decode() for t in texts]
    size = sum(len(c.encode()) for c in contents)
    for words in ("gpt2", "cl100k"):
        path = root / f"{words}.json"
        begin = time.perf_counter()
        subprocess.run([program, "data", "tokenizer", "--text", ",".join(texts), "--vocab", "32000",
                        "--words", words, "--out", path], check=True, capture_output=True)
        learnt = time.perf_counter() - begin

        def ours():
            subprocess.run(["rm", "-rf", root / "out"], check=True)
            subprocess.run([program, "data", "prepare", "--text", ",".join(texts), "--tokenizer",
                            path, "--out", root / "out"], check=True, capture_output=True)

        theirs = tokenizers.Tokenizer.from_file(str(path))

        def hugging_face():
            for content in contents:
                theirs.encode(content)

        lines = [line for content in contents for line in content.splitlines(keepends=True)]

        def hugging_face_lines():
            for line in lines:
                theirs.encode(line)

        a = best(ours, resource.RUSAGE_CHILDREN)
        rows = [("diloco data prepare, all of it", a),
                ("tokenizers, a file at a time", best(hugging_face, resource.RUSAGE_SELF)),
                ("tokenizers, a line at a time", best(hugging_face_lines, resource.RUSAGE_SELF))]
        if tiktoken and words == "cl100k":
            model = json.loads(path.read_text())["model"]
            plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
            rest = iter(range(256, 512))
            byte = {chr(b if b in plain else next(rest)): b for b in range(256)}
            ranks = {bytes([b]): b for b in range(256)}
            for left, right in model["merges"]:
                ranks[bytes(byte[c] for c in left + right)] = len(ranks)
            pattern = json.loads(path.read_text())["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
            encoding = tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks,
                                         special_tokens={})
            rows.append(("tiktoken, a file at a time",
                         best(lambda: [encoding.encode_ordinary(c) for c in contents],
                              resource.RUSAGE_SELF)))
        print(f"\n{words}, 32,000 tokens (learnt in {learnt:.1f} s), {size / 1e6:.1f} MB:\n")
        print("| | MB/s of a core | ours is |\n|---|---|---|")
        for name, seconds in rows:
            print(f"| {name} | {size / 1e6 / seconds:.1f} | {seconds / a:.1f} x |")
