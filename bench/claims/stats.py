"""Paired differences: mean and 95 % interval by Student's t, which asks for no tables but this one."""
import math
import statistics

# 97.5 % points of Student's t for 1, 2, ... degrees of freedom (any statistics book)
T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)


class Interval:
    """Mean of the values and the half-width of its 95 % interval; infinite with one value."""

    def __init__(self, values):
        self.values = list(values)
        self.mean = statistics.fmean(self.values)
        n = len(self.values)
        if n < 2:
            self.half = math.inf
        else:
            t = T975[min(n - 1, len(T975)) - 1]
            self.half = t * statistics.stdev(self.values) / math.sqrt(n)
        self.low, self.high = self.mean - self.half, self.mean + self.half

    def __str__(self):
        return f"{self.mean:+.2f} % [{self.low:+.2f}, {self.high:+.2f}]"


def relative(a, b):
    """By how many percent a[seed] is above b[seed], seed by seed, where both were trained."""
    seeds = sorted(a.keys() & b.keys())
    return Interval(100 * (a[s] / b[s] - 1) for s in seeds)


def slope(series):
    """Percent by which the value rises with each doubling: series is [(x, {seed: value})]; a line
    through log2 x and log value for each seed."""
    seeds = sorted(set.intersection(*(set(values) for _, values in series)))
    xs = [math.log2(x) for x, _ in series]
    middle = statistics.fmean(xs)
    spread = sum((x - middle) ** 2 for x in xs)

    def of(seed):
        ys = [math.log(values[seed]) for _, values in series]
        return 100 * sum((x - middle) * y for x, y in zip(xs, ys)) / spread
    return Interval(of(s) for s in seeds)
