#!/usr/bin/env python3
"""tokens.py PROGRAM [TEXT…]: our tokens are those of Hugging Face's tokenizers and of tiktoken.

On text with the corners of Unicode, on random text, and on the files named. It uses tokenizers that
we trained (both ways of cutting words), one that Hugging Face trained, and tiktoken's kind of
ranks. Our trained vocabulary equals that of Hugging Face's trainer. Skips itself (77) without
tokenizers."""
import base64
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import tokenizers
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError as error:
    print(f"left out: tokens as Hugging Face's tokenizers has them ({error})")
    sys.exit(77)
try:
    import tiktoken
except ImportError:
    tiktoken = None
    print("left out: tiktoken is not installed")

program = str(pathlib.Path(sys.argv[1]).resolve())
END = "<|endoftext|>"
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CORNERS = [
    "I'll we've they're it's I'd don't 'S 'T 'LL 'Re 'vE '\u017f l'l 'x ''s '' 'lx",
    "a  b   c\t\td \t e\n f\n\n g\r\nh\r\r i \n \n j  \n", "   ", "\n", " \n ", "\t \t", "x   ",
    "1 12 123 1234 12345 1,234.5 \u0661\u0662\u0663\u0664 \u00bd\u00b2\u2167 x1y2 1a",
    "na\u00efve caf\u00e9 e\u0301 \u00c5ngstr\u00f6m \u0130stanbul stra\u00dfe \ufb01",
    "\u65e5\u672c\u8a9e \u4e2d\u6587\u3001\u3002 \ud55c\uad6d\uc5b4 \u0e20\u0e32\u0e29\u0e32 "
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001d54f\U0001d7d8 \U00020000",
    "\u00a0x\u2003y\u3000z\u2028w\u2029v\u0085u\u200bt\ufeffs\u180er\u1680q\u202fp\u205fo",
    "\u00a0\u00a0x \u00a0y\u3000\u3000\n\u3000z \u2003\n\n", "a\u0000b\u0001c\u007fd\u00ade",
    "!!!\n\n??? ...\r\n---\n- x\n#include <stdio.h>\n\tint a[3] = {1, 2};\r\n", "((x)) [[y]] ``z``",
    f"{END}a{END}{END} b{END}\n <|endoftex {END} ", "'\u2019s don\u2019t", "\u0300a \u0300 b\u0300",
    "_a __b a_b -c --d e-f 's-'t", "a" * 300 + " " * 300 + "b" * 77 + "\n" * 99 + "ab" * 500,
]


def random_text(rng):
    pools = ["abcdefgh ABC", " \t\n\r\u00a0\u3000", "0123456789\u0663\u00bd", "'sStTrReEvVmMlLdD\u017f ",
             "!?.,-_()\u2019\u20ac\u00ad", "\u65e5\u672c\u4e2d\u00e9\u00fc\u0439\u0627\U0001f600\u0301"]
    chars = "".join(pools)
    out = []
    while len(out) < 3000:
        pool = rng.choice([*pools, chars])
        out += rng.choices(pool, k=rng.randint(1, 6))
    return "".join(out)


def diloco(*args):
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"


def ours(root, tokenizer, text):
    """Tokens of each text."""
    folder, out = root / "texts", root / "tokens"
    subprocess.run(["rm", "-rf", folder, out], check=True)
    folder.mkdir()
    for i, t in enumerate(text):
        (folder / f"{i:05}.txt").write_bytes(t.encode())
    diloco("data", "prepare", "--text", folder, "--tokenizer", tokenizer, "--out", out)
    shards = []
    for path in sorted(out.glob("*.bin")):
        data = path.read_bytes()
        magic, _, n = struct.unpack("<iii", data[:12])
        shards.append(list(struct.unpack(f"<{n}{'I' if magic == 20240801 else 'H'}", data[1024:])))
    return shards


def compare(expected, got, texts, what):
    for text, e, g in zip(texts, expected, got, strict=True):
        if e != g:
            at = next((i for i, (a, b) in enumerate(zip(e, g)) if a != b), min(len(e), len(g)))
            sys.exit(f"{what}: token {at} of {text[:200]!r} ({len(text)} characters): "
                     f"expected {e[at - 2:at + 5]}, got {g[at - 2:at + 5]}")
    print(f"{what}: {sum(map(len, expected))} tokens of {len(texts)} texts are the same")


def pre_tokenizer(words):
    if words == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CL100K), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def theirs_trained(path, words, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizer(words)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([path.read_bytes().decode()], trainers.BpeTrainer(
        vocab_size=vocab, min_frequency=2, special_tokens=[END], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def check_hugging_face(root, texts, learnt_from):
    for words in ("gpt2", "cl100k"):
        mine, vocab = root / f"{words}.json", 1200
        diloco("data", "tokenizer", "--text", learnt_from, "--words", words, "--vocab", vocab,
               "--out", mine)
        loaded = Tokenizer.from_file(str(mine))
        end = loaded.token_to_id(END)
        expected = [[end, *loaded.encode(t).ids] for t in texts]
        compare(expected, ours(root, mine, texts), texts, f"{words}, trained here")
        assert loaded.decode(expected[0][1:]) == texts[0]

        other = theirs_trained(learnt_from, words, vocab)
        a, b = json.loads(mine.read_text())["model"], json.loads(other.to_str())["model"]
        assert a["vocab"] == b["vocab"], f"{words}: another vocabulary than their trainer's"
        assert [tuple(m) for m in a["merges"]] == [tuple(m) for m in b["merges"]], words
        theirs = root / "theirs.json"
        other.save(str(theirs))
        # As old files have them: merges as one text, and Llama 3's whole words.
        model = json.loads(theirs.read_text())
        model["model"]["merges"] = [" ".join(m) for m in model["model"]["merges"]]
        model["model"]["ignore_merges"] = True
        theirs.write_text(json.dumps(model))
        loaded = Tokenizer.from_file(str(theirs))
        expected = [[end, *loaded.encode(t).ids] for t in texts]
        compare(expected, ours(root, theirs, texts), texts, f"{words}, trained by Hugging Face")


def check_tiktoken(root, texts):
    """The vocabulary that we trained, as ranks: bytes first, then the merges."""
    model = json.loads((root / "gpt2.json").read_text())["model"]
    to_byte = {c: b for b, c in zip(range(256), map(chr, bytes_to_unicode()))}
    ranks = {}
    for b in range(256):
        ranks[bytes([b])] = len(ranks)
    for left, right in model["merges"]:
        ranks[bytes(to_byte[c] for c in left + right)] = len(ranks)
    path = root / "ranks.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(k) + b" %d\n" % v for k, v in ranks.items()))
    encoding = tiktoken.Encoding("test", pat_str=GPT2, mergeable_ranks=ranks, special_tokens={})
    expected = [encoding.encode_ordinary(t) for t in texts]
    compare(expected, ours(root, path, texts), texts, "tiktoken's ranks")


def bytes_to_unicode():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(256, 512))
    return [b if b in plain else next(rest) for b in range(256)]


with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    rng = random.Random(1)
    files = [pathlib.Path(p).read_bytes().decode() for p in sys.argv[2:]]
    everything = CORNERS + [random_text(rng) for _ in range(60)] + files
    source = folder / "learn.txt"
    source.write_bytes(("\n".join(files[:1]) + "\n".join(everything[:40]) +
                      "the sea and the wind and the ship that sails the sea. " * 50).encode())
    check_hugging_face(folder, everything, source)
    if tiktoken:
        check_tiktoken(folder, everything)
print(f"tokenizers {tokenizers.__version__}, tiktoken {tiktoken.__version__ if tiktoken else '-'}")
