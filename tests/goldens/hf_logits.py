#!/usr/bin/env python3
"""hf_logits.py > hf_logits.h: configurations and logits of transformers' own models, for
src/interop/import_test.c. Recorded with transformers 5.23.0 and torch 2.13.0 (CPU, float32).

Element k of a tensor is a wave whose phase is the sum of the bytes of its name. So both sides make
the same weights; a token is a square of its place."""
import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

LENGTHS = (1, 2, 17, 40)
COMMON = dict(vocab_size=61, hidden_size=24, num_hidden_layers=2, intermediate_size=40,
              num_attention_heads=4, max_position_embeddings=64, bos_token_id=None,
              eos_token_id=None)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 0.5,
          "high_freq_factor": 2.0, "original_max_position_embeddings": 16}
MODELS = {
    "many heads": LlamaForCausalLM(LlamaConfig(**COMMON)),
    "shared keys, tied": LlamaForCausalLM(LlamaConfig(
        **COMMON, num_key_value_heads=2, tie_word_embeddings=True)),
    "one key, eps, theta": LlamaForCausalLM(LlamaConfig(
        **COMMON, num_key_value_heads=1, rms_norm_eps=1e-2,
        rope_parameters={"rope_theta": 500.0, "rope_type": "default"})),
    "qwen3": Qwen3ForCausalLM(Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=6)),
    "wide heads, linear": LlamaForCausalLM(LlamaConfig(
        **COMMON, num_key_value_heads=2, head_dim=10,
        rope_parameters={"rope_theta": 100.0, "rope_type": "linear", "factor": 3.0})),
    "narrow heads, llama3": LlamaForCausalLM(LlamaConfig(**COMMON, head_dim=4, rope_parameters=LLAMA3)),
    "qwen3, wide heads, llama3": Qwen3ForCausalLM(Qwen3Config(
        **COMMON, num_key_value_heads=1, head_dim=14, rope_parameters=LLAMA3)),
}


def fill(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            k = torch.arange(p.numel(), dtype=torch.float64)
            wave = torch.sin(k * 0.7 + sum(name.encode()) * 1.3)
            p.copy_((1 + 0.1 * wave if p.dim() == 1 else 0.2 * wave).reshape(p.shape))


def text(config):
    return json.dumps(json.dumps(json.loads(config.to_json_string())))  # as in a folder


print("/* Recorded by hf_logits.py. */\n#ifndef DL_TESTS_HF_LOGITS_H\n#define DL_TESTS_HF_LOGITS_H\n\n"
      "#include <stddef.h>\n")
print(f"enum {{ HF_LENGTHS = {len(LENGTHS)}, HF_VOCAB = {COMMON['vocab_size']} }};")
print(f"static const size_t hf_lengths[HF_LENGTHS] = {{{', '.join(map(str, LENGTHS))}}};\n")
print("typedef struct hf_model {\n    const char *name, *config;\n"
      "    float logits[HF_LENGTHS][HF_VOCAB];\n} hf_model;\n")
print("/* clang-format off */\nstatic const hf_model hf_models[] = {")
for name, model in MODELS.items():
    fill(model.eval())
    tokens = torch.tensor([[t * t % 61 for t in range(max(LENGTHS))]])
    with torch.no_grad():
        logits = model(tokens).logits[0]
    print(f'{{"{name}",\n {text(model.config)},\n {{')
    for n in LENGTHS:
        print("  {" + ", ".join(f"{x:.7g}f" if "." in f"{x:.7g}" or "e" in f"{x:.7g}" else
                                f"{x:.7g}.0f" for x in logits[n - 1].tolist()) + "},")
    print(" }},")
print("};\n/* clang-format on */\n\n#endif")
