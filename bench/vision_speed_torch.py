#!/usr/bin/env python3
"""The PyTorch side of vision_speed: the same models, batches and optimizer step.

    vision_speed_torch.py [--model lenet5|resnet_18] [--batch N] [--threads N] [--steps N]
                          [--channels-last]
"""
import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "goldens"))
p = argparse.ArgumentParser()
p.add_argument("--model", default="lenet5")
p.add_argument("--batch", type=int, default=64)
p.add_argument("--threads", type=int, default=1)
p.add_argument("--steps", type=int, default=20)
p.add_argument("--channels-last", action="store_true")
a = p.parse_args()

import torch
import torch.nn.functional as F
from vision_models import LeNet5, ResNet18

torch.set_num_threads(a.threads)
torch.manual_seed(1)
gray = a.model == "lenet5"
model = (LeNet5() if gray else ResNet18()).train()
x = torch.randn(a.batch, 1 if gray else 3, 28 if gray else 32, 28 if gray else 32)
y = torch.randint(0, 10, (a.batch,))
if a.channels_last:
    model, x = (t.to(memory_format=torch.channels_last) for t in (model, x))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)


def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


step(), step()
seconds, processor = [], []
for _ in range(a.steps):
    begin, spent = time.perf_counter(), time.process_time()
    loss = step()
    seconds.append(time.perf_counter() - begin)
    processor.append(time.process_time() - spent)
print(json.dumps(dict(loss=loss.item(), seconds=seconds, processor_seconds=processor)))
