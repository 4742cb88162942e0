"""example_data.py - small data and models in the formats that the scripts in python/examples read."""
import array
import gzip
import json
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("DILOCO_DATA", ROOT.parent / "shared/data"))
SHAKESPEARE = DATA / "tinyshakespeare/input.txt"


def idx(folder, name, header, data):
    """``header``: how many bytes, which the example passes over."""
    with gzip.open(folder / name, "wb") as f:
        f.write(bytes(header) + bytes(data))


def tokenizer_of_bytes(folder, first=0):
    """Write a tokenizer with a token for each byte, as transformers loads it; its tokens, of which
    ``first`` is the lowest."""
    import tokenizers
    import transformers
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(
        {letter: first + i for i, letter in enumerate([*letters, "<end>", "<pad>"])}, []))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<end>",
                                         pad_token="<pad>").save_pretrained(folder)
    return range(first, first + len(letters) + 2)


def small_llama(folder):
    """A Llama of bytes, with its tokenizer, as transformers loads it."""
    import torch
    import transformers
    tokens = tokenizer_of_bytes(folder)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=64)).save_pretrained(folder)
    return folder


def drawn_digits(folder):
    """Images whose label is where their bright row is, in MNIST's format."""
    for part, n in (("train", 600), ("t10k", 100)):
        labels = [i % 10 for i in range(n)]
        pixels = b"".join(bytes(200 if row // 2 == label else (i * row) % 50
                                for row in range(28) for _ in range(28))
                          for i, label in enumerate(labels))
        idx(folder, f"{part}-images-idx3-ubyte.gz", 16, pixels)
        idx(folder, f"{part}-labels-idx1-ubyte.gz", 8, labels)
    return folder


def tokens_of_bytes(folder):
    """train.bin and val.bin of a text, as nanoGPT's prepare.py writes them."""
    if not SHAKESPEARE.is_file():
        print("left out: Shakespeare, the documentation is in its place (no file)")
    text = (SHAKESPEARE.read_bytes() if SHAKESPEARE.is_file()
            else b"".join(f.read_bytes() for f in sorted((ROOT / "docs").glob("*.md"))))[:400_000]
    for part, values in (("train", text[:-40_000]), ("val", text[-40_000:])):
        (folder / f"{part}.bin").write_bytes(array.array("H", list(values)).tobytes())
    return folder


def paragraphs(folder):
    """A data set of texts: this project's own."""
    folder.mkdir()
    texts = [p for page in ("round", "protocol", "architecture")
             for p in (ROOT / f"docs/{page}.md").read_text().split("\n\n") if len(p) > 80]
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return folder
