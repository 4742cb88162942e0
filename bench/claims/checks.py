"""Assertions of a row about its arms, and the verdict of an interval on them.

A verdict is one of HOLDS, FAILS (the interval excludes it) and OPEN. OPEN means that the interval
is too wide, or that the same test does not see the known-bad arm: more seeds are needed. A diverged
arm counts with the loss it ended with, which is far above any other."""
from stats import relative, slope

HOLDS, FAILS, OPEN = "holds", "does not hold", "inconclusive"


class Lower:
    """Arm a ends lower than arm b, by more than `by` percent of b."""

    def __init__(self, a, b, by=0.0):
        self.a, self.b, self.by = a, b, by
        self.arms = (a, b)

    def text(self):
        return f"{self.a} < {self.b}" + (f" by {self.by:g} %" if self.by else "")

    def judge(self, losses):
        d = relative(losses[self.a], losses[self.b])
        verdict = HOLDS if d.high < -self.by else FAILS if d.low > -self.by else OPEN
        return verdict, d


class Within:
    """Arm a is as good as arm b: at most `band` percent above it. The known-bad arm must be seen
    to be outside by the same test, or the row proves nothing."""

    def __init__(self, a, b, band, bad):
        self.a, self.b, self.band, self.bad = a, b, band, bad
        self.arms = (a, b, bad)

    def text(self):
        return f"{self.a} at most {self.band:g} % above {self.b}; {self.bad} is not"

    def judge(self, losses):
        d = relative(losses[self.a], losses[self.b])
        bad = relative(losses[self.bad], losses[self.b])
        if bad.low <= self.band:
            return OPEN, d
        verdict = HOLDS if d.high < self.band else FAILS if d.low > self.band else OPEN
        return verdict, d


class Trend:
    """The value changes in one direction over the arms, which stand for growing x."""

    def __init__(self, arms, rises, metric="loss"):
        self.series, self.rises, self.metric = arms, rises, metric
        self.arms = tuple(arm for _, arm in arms)

    def text(self):
        return f"{self.metric} {'rises' if self.rises else 'falls'} over {', '.join(self.arms)}"

    def judge(self, values):
        d = slope([(x, values[arm]) for x, arm in self.series])
        sign = 1 if self.rises else -1
        low, high = sorted((sign * d.low, sign * d.high))
        return HOLDS if low > 0 else FAILS if high < 0 else OPEN, d


class Equal:
    """The same number but for rounding."""

    def __init__(self, a, b, tolerance=1e-4):
        self.a, self.b, self.tolerance = a, b, tolerance
        self.arms = (a, b)

    def text(self):
        return f"{self.a} = {self.b} within {self.tolerance:g} %"

    def judge(self, losses):
        d = relative(losses[self.a], losses[self.b])
        worst = max(abs(v) for v in d.values)
        return HOLDS if worst <= self.tolerance else FAILS, d
