"""mnist_clients.py FOLDER: 100 logical clients, each with two digits of MNIST, by FedAvg."""
import sys

import torch
from mnist import images

import diloco

CLIENTS = 100


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))


class Digits(diloco.Client):
    def __init__(self, number, x, y):
        rows = y.argsort(stable=True).chunk(2 * CLIENTS)  # by label: two parts for each client
        mine = torch.cat([rows[number - 1], rows[-number]])
        self.x, self.y = x[mine], y[mine]

    def fit(self, parameters, config):
        model = net()
        model.load_state_dict(parameters)
        inner = torch.optim.SGD(model.parameters(), lr=0.2)
        draw = torch.Generator().manual_seed(config["next_sample"])
        for _ in range(config["local_steps"]):
            batch = torch.randint(len(self.x), (32,), generator=draw)
            inner.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(self.x[batch]), self.y[batch])
            loss.backward()
            inner.step()
        return model.state_dict(), len(self.x), {"loss": loss, "samples": 32 * config["local_steps"]}


if __name__ == "__main__":
    train, (x, y) = images(sys.argv[1], "train"), images(sys.argv[1], "t10k")

    def accuracy(entry, parameters):
        model = net()
        model.load_state_dict(parameters)
        return {"accuracy": (model(x).argmax(1) == y).float().mean().item()}
    last = diloco.run_clients(lambda number: Digits(number, *train), net(), "runs/clients",
                              preset="fedavg", clients__total_clients=CLIENTS,
                              clients__per_round=20, local_steps_per_round=15, rounds=20,
                              evaluate=accuracy)
    print(f"accuracy {accuracy(0, last)['accuracy']:.3f}")
