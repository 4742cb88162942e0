#!/usr/bin/env python3
"""live.py PROGRAM: models go from transformers through a run and back.

For several shapes and types of a random model: import, a run of two replicas that begins from it,
verify, export; transformers loads what came out. Before training its values are to the bit those
that went in, after it the loss is lower. npz is read by numpy, gguf by the gguf package. Skips itself
(77) where transformers is not installed."""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import transformers
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
except ImportError as error:
    print(f"left out: models through transformers ({error})")
    sys.exit(77)
try:
    import gguf
except ImportError:
    gguf = None
    print("left out: the gguf package is not installed")

torch.set_num_threads(1)  # on a busy machine two threads wait for each other most of the time
program = str(pathlib.Path(sys.argv[1]).resolve())
COMMON = dict(vocab_size=300, hidden_size=48, num_hidden_layers=2, intermediate_size=80,
              num_attention_heads=4, max_position_embeddings=128)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
MODELS = {
    "plain": (LlamaForCausalLM, LlamaConfig(**COMMON), torch.float32, {}),
    "grouped_sharded": (LlamaForCausalLM, LlamaConfig(
        **COMMON, num_key_value_heads=2, rms_norm_eps=1e-5,
        rope_parameters={"rope_theta": 5e5, "rope_type": "default"}), torch.bfloat16,
        {"max_shard_size": "60KB"}),
    "tied_half": (LlamaForCausalLM, LlamaConfig(**COMMON, tie_word_embeddings=True),
                  torch.float16, {}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**COMMON, num_key_value_heads=1, head_dim=12),
              torch.float32, {}),
    "wide_linear": (LlamaForCausalLM, LlamaConfig(
        **COMMON, num_key_value_heads=2, head_dim=20,
        rope_parameters={"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}),
        torch.float32, {}),
    "narrow_llama3": (LlamaForCausalLM, LlamaConfig(
        **COMMON, head_dim=8, rope_parameters=LLAMA3), torch.float32, {}),
    "qwen3_wide": (Qwen3ForCausalLM, Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=16,
                                                 rope_parameters=LLAMA3), torch.float32, {}),
}
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def diloco(*args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
    return done.stdout


def refused(*args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 3, f"{args}: {done.stdout}{done.stderr}"
    return done.stderr


def values(model):
    return {k: v.detach() for k, v in model.state_dict().items()}


def check_same(expected, got, what):
    assert expected.keys() == got.keys(), (what, expected.keys() ^ got.keys())
    for name, value in expected.items():
        assert torch.equal(value, got[name]), f"{what}: {name} differs"


def check_gguf(path, expected, config):
    fields = gguf.GGUFReader(path)
    tensors = {t.name: t.data for t in fields.tensors}
    dim = config.head_dim
    assert fields.get_field(f"{config.model_type}.attention.key_length").contents() == dim
    assert len(fields.get_field("tokenizer.ggml.tokens").contents()) == config.vocab_size
    for i in range(config.num_hidden_layers):
        k = expected[f"model.layers.{i}.self_attn.k_proj.weight"].float().numpy()
        if config.model_type == "llama":  # as llama.cpp's converter has it
            k = k.reshape(-1, 2, dim // 2, k.shape[1]).swapaxes(1, 2).reshape(k.shape)
        assert numpy.array_equal(tensors[f"blk.{i}.attn_k.weight"], k), path
        up = expected[f"model.layers.{i}.mlp.up_proj.weight"].float().numpy()
        assert numpy.array_equal(tensors[f"blk.{i}.ffn_up.weight"], up), path
    embedding = expected["model.embed_tokens.weight"].float().numpy()
    assert numpy.array_equal(tensors["token_embd.weight"], embedding), path
    check_rope(fields, tensors, config)


def check_rope(fields, tensors, config):
    """With what the file says, positions turn as transformers turns them."""
    rope = config.rope_parameters
    assert ("rope_freqs.weight" in tensors) == (rope["rope_type"] == "llama3")
    kind = fields.get_field(f"{config.model_type}.rope.scaling.type")
    assert (kind.contents() if kind else "default") == rope["rope_type"].replace("llama3", "default")
    if rope["rope_type"] == "default":
        return
    dim = config.head_dim
    theirs, _ = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
    ours = rope["rope_theta"] ** (-torch.arange(0, dim, 2).double() / dim)
    ours /= (torch.tensor(tensors["rope_freqs.weight"]) if kind is None else
             fields.get_field(f"{config.model_type}.rope.scaling.factor").contents())
    assert torch.allclose(theirs.double(), ours, rtol=1e-6, atol=0)


def check_losses(folder, text, config, store):
    """Ours over the text's first windows is transformers' own."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = torch.tensor(list(text.read_bytes()))
    length, total, n = 32, 0.0, 0
    for begin in range(0, len(tokens) - 1, length):
        x = tokens[begin:begin + length + 1]
        with torch.no_grad():
            logits = model(x[None, :-1]).logits[0].double()
        total += torch.nn.functional.cross_entropy(logits, x[1:], reduction="sum").item()
        n += len(x) - 1
    ours = json.loads(diloco("eval", store, "--json", "--set", f"data.test_path={text}",
                             "--set", f"data.train_path={text}"))
    assert ours["targets"] == n, (ours, n)
    assert abs(ours["loss"] - total / n) < 1e-5, (ours["loss"], total / n)
    return ours["loss"]


def check(name, root):
    kind, config, dtype, how = MODELS[name]
    torch.manual_seed(1)
    model = kind(config).to(dtype)
    root.mkdir()
    text = root / "text.txt"
    text.write_text("the sea and the wind and the ship that sails. " * 60)
    model.save_pretrained(root / "in", **how)
    if how:
        assert (root / "in/model.safetensors.index.json").exists()
    diloco("import", str(root / "in"), "--out", str(root / "model"))
    common = ["train", str(root / "model/model.toml"), "--replicas", "2", "--quiet"]
    for option in (f"data.train_path={text}", "parameters.model.context=32", "trainer.batch_size=4",
                   "run.threads=1", "parameters.optimizer.lr=3e-3"):
        common += ["--set", option]

    # A step too small to move anything: the output equals the input.
    diloco(*common, "--store", str(root / "still"), "--set", "trainer.rounds=1",
           "--set", "trainer.local_steps_per_round=1", "--set", "parameters.optimizer.lr=0",
           "--set", "parameters.optimizer.weight_decay=0")
    diloco("export", str(root / "still"), "--to", "hf", "--out", str(root / "same"),
           "--dtype", DTYPES[dtype])
    back = AutoModelForCausalLM.from_pretrained(root / "same", dtype=dtype)
    check_same(values(model), values(back), name)
    diloco("export", str(root / "still"), "--to", "npz", "--out", str(root / "same.npz"))
    arrays = numpy.load(root / "same.npz")
    parameters = {k: v for k, v in model.named_parameters()}
    assert set(arrays) == set(parameters), name
    for key, value in parameters.items():
        assert numpy.array_equal(arrays[key], value.detach().float().numpy()), (name, key)
    if gguf and name == "qwen3_wide":
        assert "gguf's qwen3 has no place" in refused("export", str(root / "still"), "--to", "gguf",
                                                      "--out", str(root / "same.gguf"))
    elif gguf:
        diloco("export", str(root / "still"), "--to", "gguf", "--out", str(root / "same.gguf"))
        check_gguf(root / "same.gguf", values(model), config)
        # Of others transformers does not read all: heads' widths, slowed positions.
        if config.model_type == "llama" and config.rope_parameters["rope_type"] == "default":
            again = AutoModelForCausalLM.from_pretrained(root, gguf_file="same.gguf")
            check_same(values(model.float()), values(again), f"{name} from gguf")
            model.to(dtype)
    before = check_losses(root / "same", text, config, str(root / "still"))

    diloco(*common, "--store", str(root / "run"), "--set", "trainer.rounds=2",
           "--set", "trainer.local_steps_per_round=10")
    diloco("verify", str(root / "run"))
    diloco("export", str(root / "run"), "--to", "hf", "--out", str(root / "out"))
    after = check_losses(root / "out", text, config, str(root / "run"))
    assert after < before - 0.5, (name, before, after)
    print(f"{name}: loss {before:.3f}, after 2 entries {after:.3f}")


def check_tokenizer(root, words, cut):
    """The tokenizer in the gguf file gives the tokens of the tokenizer's own file."""
    root.mkdir()
    text = "the sea and the wind and the ship that sails. na\u00efve caf\u00e9 \u65e5\u672c, 1234!\n"
    (root / "text.txt").write_text(text * 40)
    diloco("data", "tokenizer", "--text", str(root / "text.txt"), "--vocab", "300", "--words", words,
           "--out", str(root / "tok.json"))
    diloco("data", "prepare", "--text", str(root / "text.txt"), "--tokenizer",
           str(root / "tok.json"), "--out", str(root / "tokens"))
    (root / "run.toml").write_text("[trainer]\nrounds = 1\nlocal_steps_per_round = 1\n"
                                   "[parameters.model]\nlayers = 1\nchannels = 32\nvocab = 310\n"
                                   "context = 16\n[data]\ndatasource = \"tokens\"\n"
                                   "tokenizer = \"bpe\"\n")
    common = ["--set", f"data.tokenizer_path={root / 'tok.json'}"]
    diloco("train", str(root / "run.toml"), "--quiet", "--store", str(root / "run"), *common,
           "--set", f"data.train_path={root / 'tokens'}")
    diloco("export", str(root / "run"), "--to", "gguf", "--out", str(root / "out.gguf"), *common)
    diloco("export", str(root / "run"), "--to", "hf", "--out", str(root / "out"), *common)
    fields = gguf.GGUFReader(root / "out.gguf")

    def said(key):
        return fields.get_field(f"tokenizer.ggml.{key}").contents()

    own = AutoTokenizer.from_pretrained(root / "out")
    tokens = said("tokens")
    assert said("model") == "gpt2" and said("pre") == cut, (said("model"), said("pre"))
    assert len(tokens) == 310 and tokens[0] == "<|endoftext|>" == own.eos_token
    assert said("eos_token_id") == 0 and said("token_type")[:2] == [3, 1]
    vocab = {t: i for i, t in enumerate(tokens[:len(own)])}
    assert vocab == own.get_vocab() and tokens[len(own)] == f"[PAD{len(own)}]"
    again = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in said("merges")]))
    again.pre_tokenizer = own.backend_tokenizer.pre_tokenizer
    corners = text + "I'll  go\n\n\tnow \U0001f600"
    assert again.encode(corners).ids == own(corners)["input_ids"]
    if words == "gpt2":  # transformers cuts no other way for this kind
        theirs = AutoTokenizer.from_pretrained(root, gguf_file="out.gguf")
        assert theirs(corners)["input_ids"] == own(corners)["input_ids"]
    print(f"{words}: the tokenizer in gguf is that of the folder")


with tempfile.TemporaryDirectory() as scratch:
    for model_name in MODELS:
        check(model_name, pathlib.Path(scratch) / model_name)
    if gguf:
        check_tokenizer(pathlib.Path(scratch) / "words1", "gpt2", "gpt-2")
        check_tokenizer(pathlib.Path(scratch) / "words2", "cl100k", "dbrx")
print(f"transformers {transformers.__version__}: {len(MODELS)} models in and out")
