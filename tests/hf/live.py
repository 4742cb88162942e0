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
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
    from transformers import Qwen3Config, Qwen3ForCausalLM
except ImportError as error:
    print(f"left out: models through transformers ({error})")
    sys.exit(77)
try:
    import gguf
except ImportError:
    gguf = None
    print("left out: the gguf package is not installed")

program = str(pathlib.Path(sys.argv[1]).resolve())
COMMON = dict(vocab_size=300, hidden_size=48, num_hidden_layers=2, intermediate_size=80,
              num_attention_heads=4, max_position_embeddings=128)
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
}
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def diloco(*args):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
    return done.stdout


def values(model):
    return {k: v.detach() for k, v in model.state_dict().items()}


def check_same(expected, got, what):
    assert expected.keys() == got.keys(), (what, expected.keys() ^ got.keys())
    for name, value in expected.items():
        assert torch.equal(value, got[name]), f"{what}: {name} differs"


def check_gguf(path, expected, config):
    fields = gguf.GGUFReader(path)
    tensors = {t.name: t.data for t in fields.tensors}
    dim = config.hidden_size // config.num_attention_heads
    for i in range(config.num_hidden_layers):
        k = expected[f"model.layers.{i}.self_attn.k_proj.weight"].float().numpy()
        if config.model_type == "llama":  # as llama.cpp's converter has it
            k = k.reshape(-1, 2, dim // 2, k.shape[1]).swapaxes(1, 2).reshape(k.shape)
        assert numpy.array_equal(tensors[f"blk.{i}.attn_k.weight"], k), path
        up = expected[f"model.layers.{i}.mlp.up_proj.weight"].float().numpy()
        assert numpy.array_equal(tensors[f"blk.{i}.ffn_up.weight"], up), path
    embedding = expected["model.embed_tokens.weight"].float().numpy()
    assert numpy.array_equal(tensors["token_embd.weight"], embedding), path


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

    # A step too small to move anything: what comes out is what went in.
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
    if gguf:
        diloco("export", str(root / "still"), "--to", "gguf", "--out", str(root / "same.gguf"))
        check_gguf(root / "same.gguf", values(model), config)
    before = check_losses(root / "same", text, config, str(root / "still"))

    diloco(*common, "--store", str(root / "run"), "--set", "trainer.rounds=2",
           "--set", "trainer.local_steps_per_round=10")
    diloco("verify", str(root / "run"))
    diloco("export", str(root / "run"), "--to", "hf", "--out", str(root / "out"))
    after = check_losses(root / "out", text, config, str(root / "run"))
    assert after < before - 0.5, (name, before, after)
    print(f"{name}: loss {before:.3f}, after 2 entries {after:.3f}")


with tempfile.TemporaryDirectory() as scratch:
    for model_name in MODELS:
        check(model_name, pathlib.Path(scratch) / model_name)
print(f"transformers {transformers.__version__}: {len(MODELS)} models in and out")
