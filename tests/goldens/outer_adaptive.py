"""Numbers of src/outer/outer_test.c's adaptive rows: Adam by torch.optim.Adam; FedAdam, FedYogi and FedAdagrad by
algorithm 2 of arXiv:2003.00295 written out, v from 0. float64, one element, g = 1, -0.5, 2, 0.1."""
import torch

LR, B1, B2, EPS = 0.1, 0.9, 0.99, 0.1
GRADIENTS = [1.0, -0.5, 2.0, 0.1]

theta = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
adam = torch.optim.Adam([theta], lr=LR, betas=(B1, B2), eps=EPS)
trace = []
for g in GRADIENTS:
    theta.grad = torch.tensor([g], dtype=torch.float64)
    adam.step()
    trace.append(theta.item())
print(torch.__version__, "adam", [f"{x:.10f}" for x in trace])


def sign(x):
    return (x > 0) - (x < 0)


for name, second in {
    "fedadam": lambda v, s: B2 * v + (1 - B2) * s,
    "fedyogi": lambda v, s: v - (1 - B2) * s * sign(v - s),
    "fedadagrad": lambda v, s: v + s,
}.items():
    theta, m, v, trace = 0.5, 0.0, 0.0, []
    for g in GRADIENTS:
        m = B1 * m + (1 - B1) * g
        v = second(v, g * g)
        theta -= LR * m / (v ** 0.5 + EPS)
        trace.append(theta)
    print(name, [f"{x:.10f}" for x in trace])
