"""train_gpt.py [--NAME=VALUE …]: a GPT in one file, in the shape of nanoGPT's train.py. Its settings
are variables, its tokens are in train.bin and val.bin (16 bits each), and it saves ckpt.pt. The lines
that a script for one machine does not have end in "# diloco".

    python train_gpt.py --data=FOLDER --replica=r0 &
    python train_gpt.py --data=FOLDER --replica=r1
"""
import math
import pathlib
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional

import diloco  # diloco

out_dir, data = "out", "data"
vocab_size, block_size, n_layer, n_head, n_embd = 256, 64, 2, 4, 64
batch_size, gradient_accumulation_steps = 8, 2
learning_rate, min_lr, warmup_iters, max_iters = 3e-3, 3e-4, 10, 200
weight_decay, beta1, beta2, grad_clip = 0.1, 0.9, 0.95, 1.0
eval_interval, eval_iters, seed = 50, 16, 1337
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype, compile_model = "float32", False
store, replica, replicas, sync_every = "runs/gpt", "r0", 2, 25  # diloco

for word in sys.argv[1:]:
    name, _, text = word.lstrip("-").partition("=")
    now = globals().get(name)
    if not isinstance(now, (bool, int, float, str)):
        sys.exit(f"train_gpt.py: there is no setting {name}")
    globals()[name] = text == "True" if isinstance(now, bool) else type(now)(text)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(),
                                 nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, n_head, c // n_head).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(c, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, x, targets):
        h = self.wte(x) + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.h:
            h = block(h)
        logits = self.lm_head(self.ln_f(h))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch_at(split, begins):
    tokens = numpy.memmap(pathlib.Path(data) / f"{split}.bin", dtype=numpy.uint16, mode="r")
    rows = numpy.stack([tokens[b:b + block_size + 1] for b in begins]).astype(numpy.int64)
    return torch.from_numpy(rows[:, :-1]).to(device), torch.from_numpy(rows[:, 1:]).to(device)


def n_begins(split):
    return (pathlib.Path(data) / f"{split}.bin").stat().st_size // 2 - block_size


def get_batch():
    return batch_at("train", torch.randint(n_begins("train"), (batch_size,)).tolist())


@torch.no_grad()
def estimate_loss():
    begins = numpy.linspace(0, n_begins("val") - 1, eval_iters * batch_size).astype(int)
    losses = [model(*batch_at("val", part)).item() for part in begins.reshape(eval_iters, -1)]
    return sum(losses) / eval_iters


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / max(1, max_iters - warmup_iters))
    return min_lr + 0.5 * (1 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def save(iter_num):
    pathlib.Path(out_dir).mkdir(parents=True, exist_ok=True)
    torch.save({"model": model.state_dict(), "iter_num": iter_num}, f"{out_dir}/ckpt.pt")


torch.manual_seed(seed)
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), learning_rate, (beta1, beta2),
                              weight_decay=weight_decay)
torch.manual_seed(seed + 1 + int(replica[1:]))  # diloco: its own batches
optimizer = diloco.DiLoCoOptimizer(model, optimizer, store, replica, replicas=replicas,  # diloco
                                   sync_every=sync_every, rounds=max_iters // sync_every)  # diloco
scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")
context = torch.autocast(device, getattr(torch, dtype), enabled=dtype != "float32")
trained = torch.compile(model) if compile_model else model

iter_num = optimizer.run.now.step  # diloco: a resume begins where it was
while not optimizer.done:  # diloco: was a range of max_iters
    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)
    if iter_num % eval_interval == 0:
        print(f"step {iter_num}: val loss {estimate_loss():.4f}", flush=True)
    total = 0.0
    for _ in range(gradient_accumulation_steps):
        with context:
            loss = trained(*get_batch()) / gradient_accumulation_steps
        scaler.scale(loss).backward()
        total = total + loss.detach()  # .item() would wait for the device
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    n = batch_size * gradient_accumulation_steps  # diloco
    optimizer.report(total, samples=n, tokens=n * block_size)  # diloco
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    iter_num += 1
optimizer.close()  # diloco
save(max_iters)
print(f"step {max_iters}: val loss {estimate_loss():.4f}")
