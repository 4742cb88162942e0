"""trainer_island_test.py - two ranks of Hugging Face's Trainer and of Lightning are one replica under
DDP. An error of the callback on one rank is raised on both, and FSDP1 is refused by name on both. Each
trainer is left out where it is not installed; all of it (77) without torch or without both."""
import importlib
import logging
import os
import sys
import tempfile
import unittest
import warnings
from unittest import mock

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import torch._dynamo  # optimizers import it, in two seconds; the forked ranks need not
    import torch.distributed as dist
    from torch.distributed.fsdp import FullyShardedDataParallel
except ImportError as error:
    print(f"left out: trainers on two ranks ({error})")
    sys.exit(77)

import diloco
from calls import raised
from ports import free_port

NEEDS = {"huggingface": ("transformers", "accelerate"), "lightning": ("lightning",)}
OPTIONS = {"run.heartbeat": 0.05, "run.patience": 240}
BATCH, STEPS, ROUNDS = 2, 3, 2  # rows of a rank's batch; steps of a round


def installed(trainer):
    try:
        for name in (*NEEDS[trainer], f"diloco.{trainer}"):
            importlib.import_module(name)
    except ImportError as error:
        print(f"left out: two ranks of {trainer} ({error})")
        return False
    return True


HERE = [trainer for trainer in NEEDS if installed(trainer)]
if not HERE:
    sys.exit(77)
torch.set_num_threads(1)
warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regression(torch.nn.Module):
    """``is_sharded``: by FSDP1, as its user wraps a part of a model. The trainers' own strategies of
    FSDP1 need a GPU."""

    def __init__(self, is_sharded=False):
        super().__init__()
        torch.manual_seed(6)
        self.layer = torch.nn.Linear(6, 1)
        if is_sharded:
            self.layer = FullyShardedDataParallel(self.layer, device_id=torch.device("cpu"))

    def forward(self, x):
        return {"loss": (self.layer(x) - x.sum(1, keepdim=True)).pow(2).mean()}


def rows():
    return torch.randn(64, 6, generator=torch.Generator().manual_seed(1))


def callback_of(trainer, store):
    module = importlib.import_module(f"diloco.{trainer}")
    return module.DiLoCoCallback(store, sync_every=STEPS, rounds=ROUNDS, options=OPTIONS)


def by_huggingface(model, store):
    import transformers
    arguments = transformers.TrainingArguments(
        f"{store}-out", per_device_train_batch_size=BATCH, max_steps=100, learning_rate=.01,
        use_cpu=True, ddp_backend="gloo", ddp_find_unused_parameters=False, report_to=[],
        save_strategy="no", logging_strategy="no", disable_tqdm=True)
    transformers.Trainer(model, arguments, train_dataset=[{"x": row} for row in rows()],
                         callbacks=[callback_of("huggingface", store)]).train()


def by_lightning(model, store):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, _index):
            return self.model(batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=.01)
    lightning.Trainer(max_epochs=-1, accelerator="cpu", devices=2, strategy="ddp", logger=False,
                      enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, callbacks=[callback_of("lightning", store)]
                      ).fit(Module(), torch.utils.data.DataLoader(rows(), batch_size=BATCH))


def flat(tensors):
    return [value for t in tensors for value in torch.as_tensor(t).flatten().tolist()]


def failures(trainer, fit, store, is_victim):
    """This rank's errors where the callback fails on the other one, before it binds the model and
    after that."""
    module, found = importlib.import_module(f"diloco.{trainer}"), []
    for name in ("Position", "check_first"):
        failing = mock.Mock(side_effect=OSError(f"{name} has failed"))
        with mock.patch.object(module, name, failing if is_victim else getattr(module, name)):
            found.append(raised(lambda: fit(Regression(), f"{store}-{name}")))
    return found


def rank(place, port, store):
    """For each trainer the parameters at the end, how FSDP1 is refused, and the errors of a rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(place.rank),
                      LOCAL_RANK=str(place.rank), WORLD_SIZE=str(place.replicas))
    dist.init_process_group("gloo")
    found, errors = {}, {}
    for trainer in HERE:
        fit, model, refused = globals()[f"by_{trainer}"], Regression(), "not refused"
        fit(model, f"{store}-{trainer}")
        try:
            fit(Regression(is_sharded=True), f"{store}-{trainer}-sharded")
        except diloco.RefusedError as error:
            refused = str(error)
        failed = failures(trainer, fit, f"{store}-{trainer}", place.rank == 1)
        again = Regression()
        fit(again, f"{store}-{trainer}-again")
        found[trainer] = [flat(p.detach() for p in m.parameters()) for m in (model, again)], refused
        errors[trainer] = failed
    dist.destroy_process_group()
    return found, errors


class TwoRanks(unittest.TestCase):
    def check_errors(self, well, victim):
        """The errors of a rank on which all is well, and of the other."""
        for trainer in HERE:
            with self.subTest(trainer):
                self.assertEqual([kind for kind, _ in victim[trainer]], [OSError] * 2)
                self.assertEqual([kind for kind, _ in well[trainer]],
                                 [diloco.UnreachableError, OSError])
                for name, (_, text) in zip(("Position", "check_first"), well[trainer]):
                    self.assertIn(f"{name} has failed", text)
                self.assertIn("rank 1 of this island of 2 has failed", well[trainer][0][1])

    def test_ranks_of_ddp_are_one_replica_with_the_same_errors_and_fsdp1_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (first, well), (second, victim) = diloco.launch_local(
                2, rank, free_port(), f"{folder}/run", store=f"{folder}/run", start="fork")
            self.assertEqual(first, second)
            self.check_errors(well, victim)
            for trainer, ((values, again), refused) in first.items():
                with self.subTest(trainer):
                    log = diloco.run(f"{folder}/run-{trainer}")
                    self.assertEqual([(row["members"], row["samples"]) for row in log.history()],
                                     [(["r0.0000"], 2 * BATCH * STEPS)] * ROUNDS)
                    self.assertEqual(values, flat(log.theta().values()))
                    self.assertEqual(values, again)
                    self.assertNotEqual(values, flat(Regression().state_dict().values()))
                    self.assertIn("FullyShardedDataParallel (FSDP1)", refused)
                    self.assertFalse(os.path.exists(f"{folder}/run-{trainer}-sharded"))


if __name__ == "__main__":
    unittest.main()
