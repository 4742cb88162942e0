"""PyTorch operations doing what the codecs do, against bench_codec, on one core.

    python3 bench/codec_torch.py build/bench/bench_codec [rows] [columns] [rounds]

Each round runs bench_codec for one codec and then PyTorch for the same, so that a busy moment meets
both; minima count. Prints milliseconds and how many times faster the codec is. The PyTorch versions
are written with whole-tensor operations, as people do, on the fastest way found for each.
"""
import re
import subprocess
import sys
import time

import torch

BENCH = sys.argv[1]
ROWS = int(sys.argv[2]) if len(sys.argv) > 2 else 5120
COLUMNS = int(sys.argv[3]) if len(sys.argv) > 3 else 5120
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 3
BLOCK = 256
torch.set_num_threads(1)


def scaled(x, most):
    blocks = x.view(-1, BLOCK)
    scale = blocks.abs().amax(1, keepdim=True) / most
    return blocks, torch.where(scale > 0, scale, 1)


def pack(q):
    q = q.view(-1, 2)
    return (q[:, 0] & 15) | (q[:, 1] << 4)


def unpack(codes):
    low, high = (codes << 4) >> 4, codes >> 4
    return torch.stack((low, high), 1)


def int8_encode(x):
    blocks, scale = scaled(x, 127)
    return (blocks / scale).round_().clamp_(-127, 127).to(torch.int8), scale


def int8_decode(code):
    return code[0].float() * code[1]


def int4_encode(x):
    blocks, scale = scaled(x, 7)
    return pack((blocks / scale).round_().clamp_(-7, 7).to(torch.int8)), scale


def int4_decode(code):
    return unpack(code[0]).view(-1, BLOCK).float() * code[1]


def e3m0_encode(x):
    blocks, scale = scaled(x, 1)
    y = blocks.abs() / scale
    exponent = torch.floor(torch.log2(y))
    code = exponent + (y >= 1.5 * torch.exp2(exponent)) + 7
    code = torch.where(y < 1 / 128, 0, code.clamp_(1, 7))
    return pack((code * torch.sign(blocks)).to(torch.int8)), scale


def e3m0_decode(code):
    q = unpack(code[0]).view(-1, BLOCK).float()
    return torch.where(q == 0, 0, torch.sign(q) * torch.exp2(q.abs() - 7)) * code[1]


def topk_encode(x):
    chunks = x.view(ROWS // 64, 64, COLUMNS // 64, 64).transpose(1, 2).reshape(-1, 4096)
    _, index = torch.topk(chunks.abs(), 64, dim=1)
    return torch.gather(chunks, 1, index), index.to(torch.int16)


def topk_decode(code):
    values, index = code
    chunks = torch.zeros(values.shape[0], 4096).scatter_(1, index.long(), values)
    return chunks.view(ROWS // 64, COLUMNS // 64, 64, 64).transpose(1, 2).reshape(ROWS, COLUMNS)


CASES = {"int8": (int8_encode, int8_decode), "int4": (int4_encode, int4_decode),
         "e3m0": (e3m0_encode, e3m0_decode), "topk": (topk_encode, topk_decode)}


def ms(function, argument):
    begin = time.perf_counter()
    result = function(argument)
    return (time.perf_counter() - begin) * 1e3, result


def our_times(codec):
    text = subprocess.run([BENCH, str(ROWS), str(COLUMNS), "3", codec], check=True,
                          capture_output=True, text=True).stdout
    row = re.search(rf"^{codec}(?: f32)? .*", text, re.M).group()
    numbers = row.replace(f"{codec} f32", codec).split()[1:]
    return float(numbers[2]), float(numbers[11])  # encode; decode to memory


def main():
    assert ROWS % 64 == 0 and COLUMNS % 64 == 0, "whole chunks only"
    x = torch.randn(ROWS, COLUMNS)
    print(f"torch {torch.__version__}, {ROWS} x {COLUMNS} floats, one core, minimum of {ROUNDS}")
    print(f"{'codec':8}{'encode: torch':>16}{'ours':>9}{'times':>8}"
          f"{'decode: torch':>16}{'ours':>9}{'times':>8}")
    for name, (encode, decode) in CASES.items():
        theirs, ours = [[], []], [[], []]
        for _ in range(ROUNDS):
            for i, value in enumerate(our_times(name)):
                ours[i].append(value)
            took, code = ms(encode, x)
            theirs[0].append(took)
            theirs[1].append(ms(decode, code)[0])
        row = f"{name:8}"
        for a, b in zip(theirs, ours):
            row += f"{min(a):16.1f}{min(b):9.2f}{min(a) / min(b):8.1f}"
        print(row, flush=True)


main()
