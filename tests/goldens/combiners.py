"""Numbers of src/combine/combine_plan_test.c: every robust rule written out naively in float64 from
its definition (ref: docs/algorithms.md, "Combiners"). The vectors are small, and variants of the
rules differ on them: squared or plain distances, n - f - 2 or n - f - 1 neighbours, whole vectors
or tensor by tensor."""
import numpy as np

from geometric_median import geometric_median

X = np.array([[5, -3, -2], [2, -5, 6], [0, 6, -5], [-3, 5, 5], [4, 5, 4], [-5, 0, 6], [-9, -4, 1], [6, -3, 6]],
             dtype=float)
F = 1


def krum_scores(x, f, squared=True, more=0):
    d = np.array([[np.sum((a - b) ** 2) for b in x] for a in x])
    if not squared:
        d = np.sqrt(d)
    k = max(len(x) - f - 2, 1) + more
    return np.array([np.sort(np.delete(row, i))[:k].sum() for i, row in enumerate(d)])


def krum(x, f, **variant):
    return x[np.argmin(krum_scores(x, f, **variant))]


def multi_krum(x, f):
    return x[np.argsort(krum_scores(x, f), kind="stable")[: len(x) - f]].mean(axis=0)


def bulyan(x, f):
    left, chosen = list(range(len(x))), []
    while len(chosen) < len(x) - 2 * f:
        chosen.append(left.pop(int(np.argmin(krum_scores(x[left], f)))))
    s, out = np.sort(x[chosen], axis=0), []
    for column in s.T:
        near = sorted(column, key=lambda v: (abs(v - np.median(column)), v))[: len(chosen) - 2 * f]
        out.append(np.mean(near))
    return np.array(out)


def trimmed(x, k):
    return np.sort(x, axis=0)[k: len(x) - k].mean(axis=0)


def nnm(x, f):
    return np.array([x[np.argsort([-1 if j == i else np.sum((a - b) ** 2) for j, b in enumerate(x)],
                                  kind="stable")[: len(x) - f]].mean(axis=0) for i, a in enumerate(x)])


def clipped(x, w):
    norms = np.linalg.norm(x, axis=1)
    return (w * np.minimum(1, np.median(norms) / norms)) @ x / w.sum()


def rda(x, w):
    norms = np.linalg.norm(x, axis=1)
    s = (w / norms) @ x
    return (w @ norms) / w.sum() * s / np.linalg.norm(s)


def show(name, v):
    print(f"{name:24}", ", ".join(f"{float(c):.9g}" for c in v))


W = np.array([3.0, 1, 7, 2, 5, 1, 1, 4])
show("median", np.median(X, axis=0))
show("trimmed_mean .2", trimmed(X, 1))
show("krum", krum(X, F))
show("krum, plain distances", krum(X, F, squared=False))
show("krum, n - f - 1", krum(X, F, more=1))
show("krum, tensors 0:2, 2:3", np.concatenate([krum(X[:, :2], F), krum(X[:, 2:], F)]))
show("krum scores", krum_scores(X, F))
show("multi_krum", multi_krum(X, F))
show("bulyan", bulyan(X, F))
show("geometric_median", geometric_median(X))
show("clipped_mean", clipped(X, W))
show("rda", rda(X, W))
show("nnm, then krum", krum(nnm(X, F), F))
show("nnm, then median", np.median(nnm(X, F), axis=0))
show("nnm, then bulyan", bulyan(nnm(X, F), F))
show("nnm, geometric_median", geometric_median(nnm(X, F)))
