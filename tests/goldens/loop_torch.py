"""Writes loop_torch.h: 1,000 synchronisations of one replica whose outer optimizer is PyTorch's own
SGD(momentum, nesterov=True), for src/loop/torch_test.c.

    python3 tests/goldens/loop_torch.py > tests/goldens/loop_torch.h

Each round moves the 16 local values by random multiples of 2^-16 (the generator below, which the test
repeats), takes g = theta - local in float32 and lets PyTorch step. 16 elements, so that PyTorch's loops
run in whole vectors: their add with a factor is a fused multiply-add there. Its momentum is
mu * v rounded, then + g, where ours is one fma: with mu = 0.5 the product is exact and all bits agree."""
import platform

import torch

N, ROUNDS, LR = 16, 1000, 0.7
torch.set_num_threads(1)


def moves(rounds):
    state = 12345
    for _ in range(rounds):
        row = []
        for _ in range(N):
            state = (state * 1664525 + 1013904223) % 2**32
            row.append(((state >> 15) - 2**16) / 2**16)
        yield torch.tensor(row, dtype=torch.float32)


def trace(mu):
    theta = torch.nn.Parameter(torch.zeros(N))
    optimizer = torch.optim.SGD([theta], lr=LR, momentum=mu, nesterov=True)
    for move in moves(ROUNDS):
        local = theta.detach() + move
        theta.grad = theta.detach() - local
        optimizer.step()
    momentum = optimizer.state[theta]["momentum_buffer"]
    return theta.detach(), momentum


def words(x):
    return ", ".join(f"0x{w & 0xffffffff:08x}" for w in x.view(torch.int32).tolist())


print(f"/* loop_torch.h - written by loop_torch.py with torch {torch.__version__}, python "
      f"{platform.python_version()}, {torch.backends.cpu.get_cpu_capability()}. */\n/* clang-format off */\n#include <stdint.h>")
for name, mu in (("exact", 0.5), ("paper", 0.9)):
    theta, momentum = trace(mu)
    print(f"static const uint32_t {name}_theta[] = {{{words(theta)}}};")
    print(f"static const uint32_t {name}_momentum[] = {{{words(momentum)}}};")
