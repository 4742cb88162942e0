#!/usr/bin/env python3
"""Reference numbers for src/model/gpt_test.c, from PyTorch in float64.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0
    venv/bin/python tests/goldens/gpt_torch.py > tests/goldens/gpt_torch.h

The model is written out plainly: the whole attention matrix, separate projections, keys and
values repeated for their group. Parameters and tokens are formulas that the C test repeats,
so no seed is involved. Float64, so that the test's tolerance is our own rounding alone.
"""
import math
import sys

import torch
import torch.nn.functional as F

LAYERS, CHANNELS, HEADS, KV_HEADS, FFN, T, VOCAB, ROWS, STEPS = 2, 32, 4, 2, 48, 40, 61, 3, 10
LR, DECAY, CLIP, EPS = 2e-3, 0.1, 1.0, 1e-5
D = CHANNELS // HEADS


QK_NORM, Z_LOSS = False, 0.0


def names_and_shapes(tied):
    yield "model.embed_tokens.weight", (VOCAB, CHANNELS)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "self_attn.q_proj.weight", (CHANNELS, CHANNELS)
        yield at + "self_attn.k_proj.weight", (KV_HEADS * D, CHANNELS)
        yield at + "self_attn.v_proj.weight", (KV_HEADS * D, CHANNELS)
        yield at + "self_attn.o_proj.weight", (CHANNELS, CHANNELS)
        yield at + "mlp.gate_proj.weight", (FFN, CHANNELS)
        yield at + "mlp.up_proj.weight", (FFN, CHANNELS)
        yield at + "mlp.down_proj.weight", (CHANNELS, FFN)
        yield at + "input_layernorm.weight", (CHANNELS,)
        yield at + "post_attention_layernorm.weight", (CHANNELS,)
        if QK_NORM:
            yield at + "self_attn.q_norm.weight", (D,)
            yield at + "self_attn.k_norm.weight", (D,)
    yield "model.norm.weight", (CHANNELS,)
    if not tied:
        yield "lm_head.weight", (VOCAB, CHANNELS)


def parameter(index, shape):
    n = math.prod(shape)
    k = torch.arange(n, dtype=torch.float64)
    wave = torch.sin(k * 0.7 + index * 1.3)
    value = 1 + 0.1 * wave if len(shape) == 1 else 0.2 * wave
    return value.float().double().reshape(shape).requires_grad_()


def tokens(step):
    """inputs and targets; every seventh target is not counted"""
    k = torch.arange(ROWS * T).reshape(ROWS, T)
    inputs = (k * k * 7 + k * 3 + step * 5) % VOCAB
    targets = (inputs * 3 + k + 1) % VOCAB
    return inputs, torch.where(k % 7 == 6, -1, targets)


def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rotate(x):
    angle = torch.outer(torch.arange(T).double(),
                        10000.0 ** (-torch.arange(0, D, 2).double() / D)).repeat(1, 2)
    half = torch.cat((-x[..., D // 2:], x[..., :D // 2]), dim=-1)
    return x * angle.cos() + half * angle.sin()


def losses_of(p, tied, inputs, targets):
    """the loss, and what z_loss adds to what is minimised"""
    x = p["model.embed_tokens.weight"][inputs]
    hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
    for i in range(LAYERS):
        w = lambda name: p[f"model.layers.{i}.{name}.weight"]
        y = rms(x, w("input_layernorm"))
        q, k, v = ((y @ w(f"self_attn.{n}_proj").T).view(ROWS, T, -1, D).transpose(1, 2)
                   for n in "qkv")
        if QK_NORM:
            q, k = rms(q, w("self_attn.q_norm")), rms(k, w("self_attn.k_norm"))
        k, v = (h.repeat_interleave(HEADS // KV_HEADS, dim=1) for h in (rotate(k), v))
        score = (rotate(q) @ k.transpose(2, 3) / math.sqrt(D)).masked_fill(hidden, -math.inf)
        y = (score.softmax(-1) @ v).transpose(1, 2).reshape(ROWS, T, CHANNELS)
        x = x + y @ w("self_attn.o_proj").T
        y = rms(x, w("post_attention_layernorm"))
        x = x + (F.silu(y @ w("mlp.gate_proj").T) * (y @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    head = p["model.embed_tokens.weight" if tied else "lm_head.weight"]
    logits = rms(x, p["model.norm.weight"]) @ head.T
    lse = logits.logsumexp(-1)[targets >= 0]
    return (F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1),
            Z_LOSS * lse.pow(2).mean())


def array(name, values):
    text = ", ".join(f"{v:.10g}" for v in values)
    print(f"static const double {name}[] = {{{text}}};")


def by_decay(tensors):
    """torch's parameter groups: decay is of matrices only"""
    tensors = list(tensors)
    return [{"params": [v for v in tensors if v.dim() > 1], "weight_decay": DECAY},
            {"params": [v for v in tensors if v.dim() == 1], "weight_decay": 0.0}]


def adamw(tensors):
    # eps is large because a first AdamW step turns a gradient that is only rounding noise into lr.
    return torch.optim.AdamW(by_decay(tensors), lr=LR, eps=1e-3)


def muon(p):
    """Muon on the matrices between embedding and head, AdamW on everything else"""
    hidden = [v for n, v in p.items() if v.dim() > 1 and n.startswith("model.layers.")]
    rest = [v for v in p.values() if all(v is not h for h in hidden)]
    return [torch.optim.Muon(hidden, lr=LR, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
            adamw(rest)]


def train(label, tied, optimizers):
    p = {n: parameter(i, s) for i, (n, s) in enumerate(names_and_shapes(tied))}
    opts = optimizers(p)
    losses, norms = [], []
    for step in range(STEPS):
        for v in p.values():
            v.grad = None
        loss, beside = losses_of(p, tied, *tokens(step))
        (loss + beside).backward()
        if step == 0:
            grads = [v.grad.clone() for v in p.values()]
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())
        for opt in opts:
            opt.step()
    array(label + "_losses", losses)
    array(label + "_norms", norms)
    array(label + "_tensor_norms", (g.norm().item() for g in grads))
    array(label + "_elements", (g.flatten()[g.numel() * 2 // 3].item() for g in grads))


# torch.optim.Muon iterates in bfloat16; here it is to stay in float64, as all else.
torch.Tensor.bfloat16 = lambda self: self
torch.set_num_threads(1)
print(f"/* gpt_torch.h - written by gpt_torch.py with torch {torch.__version__}, python"
      f" {sys.version.split()[0]}. */\n/* clang-format off */")
for key, value in dict(LAYERS=LAYERS, CHANNELS=CHANNELS, HEADS=HEADS, KV_HEADS=KV_HEADS, FFN=FFN,
                       T=T, VOCAB=VOCAB, ROWS=ROWS, STEPS=STEPS).items():
    print(f"#define GOLDEN_{key} {value}")
train("tied_adamw", True, lambda p: [adamw(p.values())])
train("untied_adamw", False, lambda p: [adamw(p.values())])
train("untied_muon", False, muon)
QK_NORM, Z_LOSS = True, 0.1  # z_loss a thousand times what is usual, so that it shows
LR = 5e-4  # with 2e-3 the eighth step is another in float32, in PyTorch too
train("qk_norm_z_loss", True, lambda p: [adamw(p.values())])
QK_NORM, Z_LOSS = False, 0.0
# Decoupled decay, which torch's SGD does not have: see src/nn/inner.h.
DECAY = 0.0
train("tied_sgd", True,
      lambda p: [torch.optim.SGD(by_decay(p.values()), lr=0.02, momentum=0.9)])
