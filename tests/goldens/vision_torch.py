#!/usr/bin/env python3
"""Reference numbers for src/model/vision_test.c, from PyTorch in float64.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0
    venv/bin/python tests/goldens/vision_torch.py > tests/goldens/vision_torch.h

Parameters, buffers, images and labels are
formulas that the C test repeats, so no seed is involved. Float64, so that the test's tolerance is
our own rounding alone.
"""
import math
import sys

import torch
import torch.nn.functional as F

from vision_models import MLP, LeNet5, ResNet18

LR, DECAY, CLIP, STEPS = 2e-3, 0.1, 1.0, 4


def value(index, name, t):
    k = torch.arange(t.numel(), dtype=torch.float64)
    wave = torch.sin(k * 0.7 + k * k * 0.013 + index * 1.3)
    if t.dim() > 1:
        v = wave * math.sqrt(2 / t[0].numel())
    elif name.endswith("running_var") or (name.endswith("weight")):
        v = 1 + 0.1 * wave
    else:
        v = 0.1 * wave
    return v.float().double().reshape(t.shape)


def images(rows, shape, step, mean, deviation):
    n = math.prod(shape)
    k = torch.arange(n)
    r = torch.arange(rows).reshape(-1, 1)
    b = (k * (3 + r) + k * k % 91 * (r + 2) + r * 31 + step * 17) % 256
    x = b.double().reshape(rows, *shape) / 255
    m = torch.tensor(mean).float().double().reshape(-1, 1, 1)
    return (x - m) / torch.tensor(deviation).float().double().reshape(-1, 1, 1)


def labels(rows, step):
    return (torch.arange(rows) * 3 + step) % 10


def array(name, values, kind="double"):
    text = ", ".join(f"{v:.10g}" for v in values)
    print(f"static const {kind} {name}[] = {{{text}}};")


def train(label, model, rows, shape, mean, deviation):
    model = model.double().train()
    with torch.no_grad():
        for i, (name, t) in enumerate(model.state_dict().items()):
            if t.is_floating_point():
                t.copy_(value(i, name, t))
    p = list(model.parameters())
    opt = torch.optim.AdamW([{"params": [v for v in p if v.dim() > 1], "weight_decay": DECAY},
                             {"params": [v for v in p if v.dim() == 1], "weight_decay": 0.0}],
                            lr=LR, eps=1e-3)
    losses, norms = [], []
    for step in range(STEPS):
        opt.zero_grad()
        loss = F.cross_entropy(model(images(rows, shape, step, mean, deviation)), labels(rows, step))
        loss.backward()
        if step == 0:
            grads = [v.grad.clone() for v in p]
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(p, CLIP).item())
        opt.step()
    model.eval()
    logits = model(images(rows, shape, STEPS, mean, deviation))
    losses.append(F.cross_entropy(logits, labels(rows, STEPS)).item())
    array(label + "_losses", losses)  # the last in eval mode
    array(label + "_norms", norms)
    array(label + "_tensor_norms", (g.norm().item() for g in grads))
    array(label + "_elements", (g.flatten()[g.numel() * 2 // 3].item() for g in grads))
    buffers = [b for b in model.buffers()]
    if buffers:
        array(label + "_buffers", (b.flatten()[b.numel() * 2 // 3].item() for b in buffers))


torch.set_num_threads(2)
print(f"/* vision_torch.h - written by vision_torch.py with torch {torch.__version__}, python"
      f" {sys.version.split()[0]}. */\n/* clang-format off */")
print(f"#define GOLDEN_STEPS {STEPS}")
MNIST = ((1, 28, 28), (0.1307,), (0.3081,))
CIFAR = ((3, 32, 32), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
train("lenet5", LeNet5(), 13, *MNIST)
train("mlp", MLP(), 5, *CIFAR)
train("resnet", ResNet18(), 4, *CIFAR)
