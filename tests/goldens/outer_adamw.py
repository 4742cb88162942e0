"""Numbers of src/outer/outer_test.c's AdamW test: torch.optim.AdamW in float64, two tensors (a matrix, which
decays, and a vector, which does not), three steps."""
import torch

matrix = torch.tensor([[1.0, -2.0]], dtype=torch.float64, requires_grad=True)
vector = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
optimizer = torch.optim.AdamW(
    [{"params": [matrix], "weight_decay": 0.1}, {"params": [vector], "weight_decay": 0.0}],
    lr=0.01, betas=(0.9, 0.95), eps=1e-8)
for step in range(3):
    matrix.grad = torch.tensor([[0.3 * (step + 1), -0.1]], dtype=torch.float64)
    vector.grad = torch.tensor([0.2 - 0.3 * step], dtype=torch.float64)
    optimizer.step()
    print(torch.__version__, step, [f"{x:.10f}" for x in matrix[0].tolist() + vector.tolist()])
