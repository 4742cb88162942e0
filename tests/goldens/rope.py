#!/usr/bin/env python3
"""rope.py > rope_golden.h: frequencies of rotary positions for src/nn/rope_test.c, from transformers' own
functions. Recorded with transformers 5.23.0 and torch 2.13.0 (CPU, float32)."""
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192)
CASES = (
    (64, dict(rope_type="linear", factor=4.0, rope_theta=10000.0)),
    (128, dict(**LLAMA3, rope_theta=500000.0)),                    # Llama 3.1
    (64, dict(LLAMA3, factor=32.0, rope_theta=500000.0)),          # Llama 3.2 1B
    (14, dict(LLAMA3, factor=3.0, low_freq_factor=0.5, high_freq_factor=6.0, rope_theta=100.0,
              original_max_position_embeddings=40)),
)


def number(x):
    return f"{x:.9g}"


print("/* Recorded by rope.py. */\n#ifndef DL_TESTS_GOLDENS_ROPE_H\n#define DL_TESTS_GOLDENS_ROPE_H\n\n"
      '#include "nn/rope.h"\n')
print(f"enum {{ GOLDEN_ROPES = {len(CASES)} }};")
print("typedef struct golden_rope {\n    size_t dim;\n    dl_rope rope;\n"
      "    double frequencies[64];\n} golden_rope;\n")
print("/* clang-format off */\nstatic const golden_rope golden_ropes[GOLDEN_ROPES] = {")
for dim, rope in CASES:
    config = LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, head_dim=dim,
                         max_position_embeddings=131072, rope_parameters=dict(rope))
    frequencies, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu")
    assert factor == 1.0
    fields = [f".theta = {number(rope['rope_theta'])}",
              f".scaling = DL_ROPE_{rope['rope_type'].upper()}", f".factor = {number(rope['factor'])}"]
    if rope["rope_type"] == "llama3":
        fields += [f".low = {number(rope['low_freq_factor'])}",
                   f".high = {number(rope['high_freq_factor'])}",
                   f".original = {rope['original_max_position_embeddings']}"]
    print(f"{{{dim}, {{{', '.join(fields)}}},\n "
          f"{{{', '.join(number(x) for x in frequencies.tolist())}}}}},")
print("};\n/* clang-format on */\n\n#endif")
