#!/usr/bin/env python3
"""plan_published.py: the published utilisation models once more, independently of src/plan: whole
runs, event by event, every layer and bucket, the whole grid; no bisection, no closed forms, no
step skipped. Prints the numbers that src/plan/published_test.c holds it to; standard library only.

    python3 tests/goldens/plan_published.py > tests/goldens/plan_published.h
"""
GRID = [0.1 * 10 ** (4 * i / 49) for i in range(50)]
TARGETS = (0.5, 0.8, 0.9, 0.95, 0.99)


def due(method, t, layer, H, P):
    if method == "data_parallel":
        return True
    if method == "diloco":
        return t % H == 0
    return t % H == (layer % P) * H // P


def paper(method, N, L, T, H, F, tau, bits, gbit):
    """Compute time over total time by the rules of 2501.18512's tables."""
    P, steps = L // F, max(3 * H, 100)
    slice_s, transfer_s = T / (3 * L - 1), N * bits / L / (gbit * 1e9)
    arrives = {}
    compute = link = 0.0
    for t in range(1, steps + 1):
        for layer in range(L):
            compute = max(compute, arrives.pop((t, layer), 0.0)) + slice_s
        for layer in reversed(range(L)):
            compute += slice_s
            if layer:
                compute += slice_s
            if due(method, t, layer, H, P):
                link = max(link, compute) + transfer_s
                arrives[t + 1 + tau, layer] = link
    return steps * T / max(compute, link)


def paper_cell(*row):
    """The last grid point still below each target (the first point without one)."""
    curve = [paper(*row, gbit) for gbit in GRID]
    return [max((i for i, u in enumerate(curve) if u < target), default=0) for target in TARGETS]


def calculator(method, N, L, T, H, F, tau, bits, M, gbit):
    P = L // F if method == "streaming" else 1
    steps, K = max(3 * H, 2000), 128
    forward, backward = T / 3, 2 * T / 3
    now = link = 0.0
    deadline = {}
    for t in range(1, steps + 1):
        n = sum(due(method, t, p, H, P) for p in range(P))
        if n:
            each = N * bits * n / P / K * 2 * (1 - 1 / M) / (gbit * 1e9)
            for k in range(K):
                link = max(link, now + forward + (k + 1) / K * backward) + each
            deadline[t + tau] = link
        now = max(now + T, deadline.pop(t, 0.0))
    return steps * T / max(now, link)


# The rows of algorithms.md 6.3 and others: H, tau, bits, depths, more fragments than steps.
PAPER = [
    ("data_parallel", 1e9, 24, 0.1, 1, 3, 0, 16),
    ("diloco", 1e9, 24, 0.1, 100, 3, 0, 16),
    ("streaming", 1e9, 24, 0.1, 100, 3, 0, 16),
    ("streaming", 1e9, 24, 0.1, 100, 3, 1, 16),
    ("streaming", 1e9, 24, 0.1, 100, 3, 1, 4),
    *(("diloco", 405e9, 126, 26.9, H, 3, 0, 16) for H in (1, 10, 50, 100, 300)),
    ("data_parallel", 10e9, 48, 0.8, 1, 3, 0, 16),
    ("streaming", 10e9, 48, 0.8, 100, 3, 5, 4),
    ("streaming", 100e9, 108, 4.9, 30, 3, 1, 16),
    ("streaming", 1e9, 24, 0.1, 30, 5, 2, 8),
    ("streaming", 35e6, 6, 0.02, 4, 1, 3, 16),
    ("diloco", 1e9, 24, 0.1, 30, 3, 4, 4),
    ("diloco", 1e9, 1, 0.1, 7, 1, 0, 32),
]
CALCULATOR = [
    ("data_parallel", 1e9, 24, 0.1, 1, 3, 0, 16, 2, 50.0),
    ("diloco", 1e9, 24, 0.1, 100, 3, 0, 16, 2, 2.0),
    ("diloco", 1e9, 24, 0.1, 100, 3, 5, 16, 8, 20.0),
    ("streaming", 1e9, 24, 0.1, 100, 3, 0, 16, 2, 5.0),
    ("streaming", 1e9, 24, 0.1, 100, 3, 1, 4, 4, 1.0),
    ("streaming", 35e6, 6, 0.02, 4, 1, 3, 16, 3, 30.0),
]


def number(x):
    return f"{x:.17g}"


def main():
    print("/* Written by plan_published.py beside it. */\n/* clang-format off */")
    print("static const struct { dl_published p; int cell[5]; } paper_rows[] = {")
    for row in PAPER:
        method, N, L, T, H, F, tau, bits = row
        print(f"{{{{DL_RULES_PAPER, DL_PUBLISHED_{method.upper()}, {N:g}, {T:g}, {bits}, {L}, {H}, {F}, {tau}, 2}},"
              f" {{{', '.join(map(str, paper_cell(*row)))}}}}},", flush=True)
    print("};\nstatic const struct { dl_published p; double gbit, utilization; } calculator_rows[] = {")
    for row in CALCULATOR:
        method, N, L, T, H, F, tau, bits, M, gbit = row
        print(f"{{{{DL_RULES_CALCULATOR, DL_PUBLISHED_{method.upper()}, {N:g}, {T:g}, {bits}, {L}, {H}, {F}, {tau}, {M}}},"
              f" {gbit:g}, {number(calculator(*row))}}},")
    print("};\n/* clang-format on */")


main()
