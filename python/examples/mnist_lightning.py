"""mnist_lightning.py FOLDER STORE REPLICA: one replica by Lightning's Trainer. The lines that a
plain Lightning script does not have end in "# diloco"."""
import sys

import lightning
import torch
from mnist import images

import diloco.lightning  # diloco


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(),
                                       torch.nn.Linear(64, 10))

    def training_step(self, batch, _index):
        x, y = batch
        return torch.nn.functional.cross_entropy(self.net(x), y)

    def test_step(self, batch, _index):
        x, y = batch
        self.log("accuracy", (self.net(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def loader(folder, part, order=None):
    data = torch.utils.data.TensorDataset(*images(folder, part))
    return torch.utils.data.DataLoader(data, batch_size=64, shuffle=order is not None,
                                       generator=order)


def main(folder, store, replica):
    torch.manual_seed(0)
    model = Classifier()
    order = torch.Generator().manual_seed(int(replica[1:]))  # diloco: its own order
    share = diloco.lightning.DiLoCoCallback(store, replica, replicas=2,  # diloco
                                            sync_every=20, rounds=6)  # diloco
    trainer = lightning.Trainer(max_epochs=-1,  # diloco: was a number of epochs
                                callbacks=[share],  # diloco
                                logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, loader(folder, "train", order))
    found = trainer.test(model, loader(folder, "t10k"), verbose=False)
    print(f"accuracy {found[0]['accuracy']:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
