"""mnist.py FOLDER: two replicas here, each with half of MNIST (its gzipped files)."""
import gzip
import sys

import numpy
import torch

import diloco


def images(folder, part):
    with gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz") as x, \
            gzip.open(f"{folder}/{part}-labels-idx1-ubyte.gz") as y:
        return (torch.from_numpy(numpy.frombuffer(x.read()[16:], numpy.uint8) / numpy.float32(255))
                .reshape(-1, 784), torch.tensor(list(y.read()[8:])))


def train(place, folder, rounds):
    x, y = (t[place.rank::place.replicas] for t in images(folder, "train"))
    model = torch.nn.Sequential(torch.nn.Linear(784, 128), torch.nn.ReLU(),
                                torch.nn.Linear(128, 10))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with diloco.DiLoCoOptimizer(model, inner, place.store, place.replica, rounds=rounds,
                                sync_every=50, replicas=place.replicas) as opt:
        while not opt.done:
            batch = torch.randint(len(x), (64,))
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            opt.report(loss, samples=64)
            opt.step()
            opt.zero_grad()
    x, y = images(folder, "t10k")
    return (model(x).argmax(1) == y).float().mean().item()


if __name__ == "__main__":
    print(f"accuracy {diloco.launch_local(2, train, sys.argv[1], 8)[0]:.3f}")
