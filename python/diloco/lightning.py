"""A Lightning Trainer as a replica: one callback (needs lightning).

    trainer = lightning.Trainer(max_steps=-1, callbacks=[
        diloco.lightning.DiLoCoCallback("https://hub.example/run", "r0")])
    trainer.fit(module, data)

The run's length is the run's: training stops when it has ended.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any, Dict, List, Optional, Union

import torch
from lightning.pytorch import callbacks as _callbacks
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.model_helpers import is_overridden

from ._island import Island, preparing
from ._optimizer import bind, ranks, tensors_of
from ._run import Run
from ._state import KeepInner
from ._torch import Binding, Fragments
from ._trainers import check_first, end_former, note, warn_unfinished
from .errors import RefusedError


_AVERAGES = tuple(getattr(_callbacks, name) for name in (
    "StochasticWeightAveraging", "WeightAveraging") if hasattr(_callbacks, name))  # by release


def check_no_average(callbacks: List[Any]) -> None:
    """RefusedError: a callback writes this replica's average over the shared model."""
    for callback in callbacks:
        if isinstance(callback, _AVERAGES):
            raise RefusedError(
                f"{type(callback).__name__} would write an average of this replica's own values over "
                "the shared model at the end of training: leave it out, and update a "
                "torch.optim.swa_utils.AveragedModel of the module at due points instead")


def changes_batches(trainer: Any) -> bool:
    """The user's own hooks may change the rows of a batch after it has left the data loader."""
    hooks = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    return any(thing is not None and is_overridden(hook, thing) for hook in hooks
               for thing in (trainer.lightning_module, trainer.datamodule))


class Position:
    """Where the data is: the epoch, the batches of it that were used, and torch's generator as the
    epoch began, from which a shuffled order follows. `go_on` sets Lightning's loop."""

    def __init__(self) -> None:
        self.epoch, self.batches, self.samples = 0, 0, 0
        self._before = torch.get_rng_state()
        self._former = 0  # epochs of former processes

    def state_dict(self) -> Dict[str, Any]:
        return {"epoch": self.epoch, "batches": self.batches, "samples": self.samples,
                "generator": bytes(self._before.tolist()).hex()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.epoch = self._former = state["epoch"]
        self.batches, self.samples = state["batches"], state["samples"]
        self._before = torch.tensor(list(bytes.fromhex(state["generator"])), dtype=torch.uint8)

    def begin(self, trainer: Any, resumed: bool, island: Island) -> None:
        """Let the first epoch begin after the batches that were used. RefusedError, on all ranks:
        rank 0, whose place was saved, has fewer, or they have other numbers of samples."""
        passed = island.together(lambda: self._pass(trainer, resumed))
        island.lead(lambda: self._check(passed, changes_batches(trainer)))

    def _pass(self, trainer: Any, resumed: bool) -> List[int]:
        """Pass the batches that were used. Returns the rows of each."""
        fetcher, now = trainer.fit_loop._data_fetcher, torch.get_rng_state()
        if resumed and self.batches >= trainer.fit_loop.max_batches:
            self.epoch, self.batches, self.samples = self.epoch + 1, 0, 0
            self._former, resumed = self.epoch, False
        if resumed:
            torch.set_rng_state(self._before)
        self._before = torch.get_rng_state()
        self._set_epoch(trainer)
        iter(fetcher)  # again, since another generator's state was there when the loop did it
        passed: List[int] = []
        with contextlib.suppress(StopIteration):
            while len(passed) < self.batches:
                passed.append(rows(next(fetcher)[0]))
        if resumed:
            torch.set_rng_state(now)
        return passed

    def _check(self, passed: List[int], changed: bool) -> None:
        """Rank 0. ``passed``: rows of each batch, as the data loader has them."""
        n_there, rows_there = len(passed), sum(passed)
        if n_there == self.batches and (changed or rows_there == self.samples):
            return  # with `changed`, `on_train_batch_end` has counted other rows
        of, of_there = f" of {self.samples} samples", f" of {rows_there} samples"
        if changed:
            of = of_there = ""
        raise RefusedError(f"this replica has used {self.batches} batches{of} in this epoch, and the "
                           f"data loader has {n_there}{of_there} there: give it the data and the "
                           "batch_size that it had, since other samples would be left out or "
                           "repeated")

    def next_epoch(self, trainer: Any) -> None:
        if trainer.current_epoch == 0:
            return  # `begin` has done it
        self.epoch, self.batches, self.samples = self._former + trainer.current_epoch, 0, 0
        self._before = torch.get_rng_state()
        self._set_epoch(trainer)

    def _set_epoch(self, trainer: Any) -> None:
        for loader in trainer.fit_loop._combined_loader.flattened:
            samplers: List[Any] = [getattr(loader, "sampler", None), getattr(
                getattr(loader, "batch_sampler", None), "sampler", None)]
            for sampler in samplers:
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(self.epoch)


class DiLoCoCallback(Callback):
    """Joins the run when training begins, counts each optimizer step, exchanges at due points.

    Arguments as of `diloco.DiLoCoOptimizer`. ``samples``: of one optimizer step; None: rows of
    its batches' first tensors, times the ranks, which are one replica. A resume continues after the batches that this replica has trained on, in the order of
    their epoch. RefusedError: several optimizers, a callback that averages weights, a trainer that
    has taken steps where the run resumes, or a data loader with other batches there.
    """

    def __init__(self, run: Union[Run, str, "os.PathLike[str]"], replica: str = "r0", *,
                 fragments: Fragments = None, keep_inner_state: KeepInner = True,
                 samples: Optional[int] = None, **options: Any) -> None:
        super().__init__()
        self._what = (run, replica, fragments, keep_inner_state, options)
        self._samples = samples
        self._steps = 0  # Lightning's global_step, as last seen
        self._rows = 0  # of batches since then
        self.binding: Optional[Binding] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        group = ranks(trainer.world_size)
        with preparing(lambda: tensors_of(pl_module), group):
            extra = self._prepare(trainer)
            run, replica, fragments, keep, options = self._what
            self.binding = binding = bind(pl_module, trainer.optimizers[0], run, replica, fragments,
                                          keep, extra, dict(options), group)
        note(run, replica, binding)
        binding.island.together(lambda: check_first(binding, trainer.global_step,
                                                    "make a new Trainer without ckpt_path"))
        trainer.should_stop = trainer.should_stop or binding.done
        if not trainer.should_stop:
            self._position.begin(trainer, binding.resumed, binding.island)

    def _prepare(self, trainer: Any) -> Dict[str, Any]:
        """Returns the objects to save beside the optimizer's state. RefusedError."""
        run, replica, *_ = self._what
        if len(trainer.optimizers) != 1:
            raise RefusedError(f"{len(trainer.optimizers)} optimizers: a step of a replica is that "
                               "of one; use diloco.DiLoCoOptimizer with manual optimization")
        check_no_average(trainer.callbacks)
        end_former(run, replica)
        self._position = Position()
        self._steps, self._rows = trainer.global_step, 0
        extra = {f"scheduler{i}": c.scheduler
                 for i, c in enumerate(trainer.lr_scheduler_configs)}
        return {**extra, "data": self._position}

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._position.next_epoch(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        assert self.binding is not None
        self._position.batches += 1
        self._position.samples += rows(batch)
        self._rows += rows(batch)
        if trainer.global_step == self._steps or self.binding.done:
            return  # a micro-batch
        self._steps = trainer.global_step
        loss = outputs.get("loss", math.nan) if isinstance(outputs, dict) else outputs
        samples, self._rows = self._samples or self._rows * trainer.world_size, 0
        self.binding.step(math.nan if loss is None else loss, samples)
        if self.binding.done:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.binding is not None:
            warn_unfinished(self.binding)
            self.binding.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.binding is not None:
            self.binding.close()


def rows(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    while isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    return int(batch.shape[0]) if getattr(batch, "ndim", 0) else 1
