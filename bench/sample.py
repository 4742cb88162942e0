#!/usr/bin/env python3
"""sample.py BENCH_SAMPLE: tokens a second of our decoder and of transformers' generate, which keeps keys and
values too, with one model's sizes (10 M parameters), taking turns."""
import subprocess
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

LAYERS, CHANNELS, HEADS, VOCAB, CONTEXT, TOKENS, THREADS = 6, 320, 5, 4096, 512, 128, 2
torch.set_num_threads(THREADS)
ffn = (8 * CHANNELS + 2) // 3
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=VOCAB, hidden_size=CHANNELS, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
    intermediate_size=(ffn + 31) // 32 * 32, max_position_embeddings=CONTEXT,
    tie_word_embeddings=True)).eval()
model.generation_config.eos_token_id = None
prompt = torch.arange(CONTEXT // 2)[None]
best = 0.0
for turn in range(3):
    time.sleep(1)  # PyTorch's threads still spin after their last work
    ours = subprocess.run([sys.argv[1], *map(str, (LAYERS, CHANNELS, HEADS, VOCAB, CONTEXT, TOKENS // 5 * 2,
                                                   THREADS))],
                          check=True, capture_output=True, text=True).stdout
    with torch.no_grad():
        begin = time.perf_counter()
        model.generate(prompt, max_new_tokens=1, do_sample=False, pad_token_id=0)
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        model.generate(prompt, max_new_tokens=TOKENS + 1, do_sample=False, pad_token_id=0)
        rest = time.perf_counter() - begin - first
    best = max(best, TOKENS / rest)
    tokens = float(ours.split(":")[1].split()[0])
    print(f"ours {ours.strip()}; transformers {TOKENS / rest:.1f} tokens/s: {tokens * rest / TOKENS:.1f} x")
print(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters of transformers'")
