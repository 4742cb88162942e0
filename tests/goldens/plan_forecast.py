#!/usr/bin/env python3
"""plan_forecast.py: the planner's forecast once more, independently of src/plan: every replica of a
run plays its steps and its exchanges over its own two queues, object by object. Prints the numbers
that src/plan/forecast_test.c holds it to; standard library only.

    python3 tests/goldens/plan_forecast.py > tests/goldens/plan_forecast.h
"""


def run(N, step_s, steps, M, up_bps, down_bps, latency_s, H, P, tau, bits):
    """(wall seconds, bytes sent by a replica, bytes read from the store) of an allgather run whose
    replicas are equal, so that one is played and stands for all."""
    fragment_bytes = N / P * bits / 8
    clock = up = down = 0.0
    arrives, sent, read, last = {}, 0.0, 0.0, 0.0
    for t in range(1, steps + 1):
        clock += step_s
        for p in range(P):
            offset = p * H // P
            if t < offset + H or (t - offset) % H:
                continue
            up = max(up, clock) + fragment_bytes * 8 / up_bps
            sent += fragment_bytes
            uploaded = up
            for _ in range(M - 1):
                down = max(down, uploaded) + fragment_bytes * 8 / down_bps
                read += fragment_bytes
            # read log, put, list, M - 1 gets, create log, read log
            arrives.setdefault(t + tau, []).append(down + (5 + M - 1) * latency_s)
            last = max(last, arrives[t + tau][-1])
        for at in arrives.pop(t, []):
            clock = max(clock, at)
    return max(clock, last), sent, M * read


ROWS = [  # N, step_s, steps, M, up, down, latency, H, P, tau, bits
    (30.8e6, 0.2, 1000, 4, 50e6, 50e6, 0.1, 500, 1, 0, 32),
    (30.8e6, 0.2, 1000, 4, 50e6, 50e6, 0.0, 100, 3, 1, 4.125),
    (30.8e6, 0.2, 999, 2, 200e6, 400e6, 0.05, 30, 1, 30, 32),
    (1e9, 0.5, 700, 2, 1e9, 1e9, 0.02, 24, 24, 2, 4.125),
    (1e6, 0.01, 100, 3, 1e9, 1e9, 0.001, 1, 1, 0, 32),
    (1e8, 0.1, 1000, 2, 1e8, 1e8, 0.01, 100, 7, 20, 8.125),
]


def main():
    print("/* Written by plan_forecast.py beside it. */\n/* clang-format off */")
    print("static const struct { dl_plan_task task; dl_plan_choice choice; double wall_s, sent, read; }"
          " rows[] = {")
    for row in ROWS:
        N, step_s, steps, M, up, down, latency, H, P, tau, bits = row
        wall, sent, read = run(*row)
        print(f"{{{{{N:g}, {step_s:g}, {steps}, {M}, {{{up:g}, {down:g}, {latency:g}}}, 0, 0}},"
              f" {{{H}, {P}, {tau}, {bits:g}, DL_ALLGATHER}}, {wall:.17g}, {sent:.17g}, {read:.17g}}},")
    print("};\n/* clang-format on */")


main()
