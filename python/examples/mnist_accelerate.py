"""mnist_accelerate.py FOLDER STORE REPLICA: one replica by a loop of Hugging Face's accelerate. The
lines that a plain loop does not have end in "# diloco"."""
import sys

import accelerate
import torch
from mnist import images

import diloco  # diloco


def main(folder, store, replica):
    accelerator = accelerate.Accelerator()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(*images(folder, "train"))
    order = torch.Generator().manual_seed(int(replica[1:]))  # diloco: its own order
    loader = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, generator=order)
    model, inner, loader = accelerator.prepare(model, inner, loader)
    opt = diloco.DiLoCoOptimizer(model, inner, store, replica,  # diloco
                                 replicas=2, sync_every=20, rounds=6)  # diloco
    while not opt.done:  # diloco: was a range of epochs
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            opt.report(loss, samples=len(x))  # diloco
            opt.step()
            opt.zero_grad()
            if opt.done:  # diloco
                break  # diloco
    opt.close()  # diloco
    x, y = (t.to(accelerator.device) for t in images(folder, "t10k"))
    print(f"accuracy {(model(x).argmax(1) == y).float().mean().item():.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
