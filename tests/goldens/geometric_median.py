"""Write geometric_median.h: the geometric medians of 10,000 random cases, found in float64 by
Newton's method on the vectors themselves (src/combine works on their dot products).

The cases come from a generator that src/combine/geometric_median_test.c repeats: plain and coarse
values, zeros, tight clusters, far outliers, one dimension. The header has one number a case:
the sum of the coordinates, in the case's unit and weighted by 1 to 7, so that one wrong coordinate
shows. A line has 50 cases.

    python3 tests/goldens/geometric_median.py >tests/goldens/geometric_median.h"""
import numpy as np

CASES, A_LINE = 10000, 50


class Draw:
    def __init__(self, state):
        self.state = state

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def case(draw):
    kind = draw.below(6)
    n, d = 1 + draw.below(11), 1 if kind == 5 else 1 + draw.below(5)
    x = np.array([[draw.below(2001) - 1000 for _ in range(d)] for _ in range(n)], dtype=float) / 256
    if kind == 1:
        x = np.round(x)
    if kind == 3:
        x = x / 16 + 3
    for m in range((n - 1) // 2):
        if kind == 2:
            x[m] = 0
        if kind == 4:
            x[m] *= 2.0 ** (10 + draw.below(21))
    return x.astype(np.float32).astype(float)


def seen_from(k, x):
    """The sum of the unit vectors to the inputs elsewhere, the inputs here, the sum of 1/distance."""
    distance = np.linalg.norm(x - x[k], axis=1)
    away = distance > 0
    pull = ((x[away] - x[k]) / distance[away][:, None]).sum(axis=0)
    return pull, (~away).sum(), (1 / distance[away]).sum()


def slope_of(z, x):
    off = z - x
    distance = np.linalg.norm(off, axis=1)
    return (off / distance[:, None]).sum(axis=0), off / distance[:, None], 1 / distance


def geometric_median(x):
    seen = [seen_from(k, x) for k in range(len(x))]
    minimal = [k for k, (pull, here, _) in enumerate(seen) if np.linalg.norm(pull) <= here * (1 + 1e-9)]
    if minimal:
        return x[minimal].mean(axis=0)
    k = int(np.argmin([np.linalg.norm(x - p, axis=1).sum() for p in x]))
    pull, here, weights = seen[k]
    z = x[k] + (1 - here / np.linalg.norm(pull)) * pull / weights
    for _ in range(2000):
        slope, unit, near = slope_of(z, x)
        curve = near.sum() * np.eye(len(z)) - (unit * near[:, None]).T @ unit
        step, length = np.linalg.lstsq(curve, -slope, rcond=None)[0], 1.0
        while length > 1e-12 and slope_of(z + length * step, x)[0] @ step > -0.5 * (slope @ step):
            length /= 2  # it went up again on the other side
        z = z + length * step
        if np.linalg.norm(length * step) < 1e-13 * unit_of(x):
            break
    return z


def unit_of(x):
    """The median distance from the last input, which is never one of the far ones, or 1."""
    return np.sort(np.linalg.norm(x - x[-1], axis=1))[len(x) // 2] or 1.0


def main():
    draw, sums = Draw(1), []
    for i in range(CASES):
        x = case(draw)
        median = geometric_median(x)
        sums.append(sum((1 + (i + 3 * j) % 7) * v for j, v in enumerate(median)) / unit_of(x))
    print("/* Written by geometric_median.py (numpy, float64): 10,000 cases, one sum for each. */")
    print("/* clang-format off */\nstatic const double medians[] = {")
    for k in range(0, len(sums), A_LINE):
        print("    " + " ".join(f"{v:.6f}," for v in sums[k:k + A_LINE]))
    print("};")


if __name__ == "__main__":
    main()
