"""The model of train_speed.c in PyTorch, timed the same way.

Written as a careful PyTorch user would: q/k/v and gate/up are one product each, attention is
scaled_dot_product_attention, RMSNorm is the built-in, AdamW is the fused one. Prints one line
of JSON with the seconds of each step. train_speed.py runs this and train_speed in turn. With
--device cuda it trains on a card, in bfloat16 by autocast if --dtype says so. "bytes" is then the
memory that the card has less after a step than before the model was made, and "allocated_bytes" is
the most that tensors had at once. --seconds ends the steps early, after at least one.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Block(nn.Module):
    def __init__(self, channels, heads, ffn):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.RMSNorm(channels, eps=1e-5)
        self.norm2 = nn.RMSNorm(channels, eps=1e-5)
        self.qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.out = nn.Linear(channels, channels, bias=False)
        self.gate_up = nn.Linear(channels, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, channels, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        q, k, v = (h.view(b, t, self.heads, -1).transpose(1, 2)
                   for h in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v,
                                           is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Gpt(nn.Module):
    def __init__(self, layers, heads, channels, ffn, context, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, channels)
        self.blocks = nn.ModuleList(Block(channels, heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(channels, eps=1e-5)
        d = channels // heads
        angle = torch.outer(torch.arange(context).float(),
                            10000.0 ** (-torch.arange(0, d, 2).float() / d)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    p = argparse.ArgumentParser()
    for name, value in dict(layers=6, heads=6, channels=384, ffn=0, context=256, batch=8,
                            vocab=256, threads=1, steps=5).items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    p.add_argument("--seconds", type=float, default=1e9)
    a = p.parse_args()
    on_card = a.device != "cpu"
    wait = torch.cuda.synchronize if on_card else lambda: None
    left = (lambda: torch.cuda.mem_get_info()[0]) if on_card else lambda: 0
    wait()  # so that the card's context is there
    left_before, most = left(), 0
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    ffn = a.ffn or -(-8 * a.channels // 3 // 32) * 32
    model = Gpt(a.layers, a.heads, a.channels, ffn, a.context, a.vocab).to(a.device)
    step_model = torch.compile(model) if a.compile else model
    opt = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.1, fused=True)

    seconds, processor = [], []
    for i in range(3 + a.steps):  # three to warm up and compile
        if len(seconds) > 3 and sum(seconds[3:]) > a.seconds:
            break
        text = torch.randint(a.vocab, (a.batch, a.context + 1), device=a.device)
        wait()
        begin, begin_processor = time.perf_counter(), time.process_time()
        opt.zero_grad(set_to_none=True)
        with torch.autocast(a.device, torch.bfloat16, enabled=a.dtype == "bfloat16"):
            loss = step_model(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        wait()
        seconds.append(time.perf_counter() - begin)
        processor.append(time.process_time() - begin_processor)
        most = max(most, left_before - left())
    print(json.dumps({"torch": torch.__version__, "compiled": a.compile, "loss": loss.item(),
                      "device": torch.cuda.get_device_name() if on_card else "cpu",
                      "bytes": most,
                      "allocated_bytes": torch.cuda.max_memory_allocated() if on_card else 0,
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "tokens": a.batch * a.context, "seconds": seconds[3:],
                      "processor_seconds": processor[3:]}))


main()
