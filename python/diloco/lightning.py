"""A Lightning Trainer as a replica: one callback (needs lightning).

    trainer = lightning.Trainer(max_steps=-1, callbacks=[
        diloco.lightning.DiLoCoCallback("https://hub.example/run", "r0")])
    trainer.fit(module, data)

The run's length is the run's: training stops when it has ended.
"""

from __future__ import annotations

import math
import os
from typing import Any, Optional, Union

from lightning.pytorch.callbacks import Callback

from ._optimizer import bind, number, ranks
from ._run import Run
from ._torch import Binding, Fragments
from .errors import RefusedError


class DiLoCoCallback(Callback):
    """Joins the run when training begins, counts each optimizer step, exchanges at due points.

    Arguments as of `diloco.DiLoCoOptimizer`. ``samples``: of one optimizer step; None: rows of
    the last batch's first tensor, times accumulate_grad_batches and the ranks, which are one
    replica. RefusedError: several optimizers.
    """

    def __init__(self, run: Union[Run, str, "os.PathLike[str]"], replica: str = "r0", *,
                 fragments: Fragments = None, keep_inner_state: bool = True,
                 samples: Optional[int] = None, **options: Any) -> None:
        super().__init__()
        self._what = (run, replica, fragments, keep_inner_state, options)
        self._samples = samples
        self._steps = 0  # Lightning's global_step, as last seen
        self.binding: Optional[Binding] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        run, replica, fragments, keep, options = self._what
        if len(trainer.optimizers) != 1:
            raise RefusedError(f"{len(trainer.optimizers)} optimizers: a step of a replica is that "
                               "of one; use diloco.DiLoCoOptimizer with manual optimization")
        schedulers = {f"scheduler{i}": c.scheduler
                      for i, c in enumerate(trainer.lr_scheduler_configs)}
        self._steps = trainer.global_step
        self.binding = bind(pl_module, trainer.optimizers[0], run, replica, fragments, keep,
                            schedulers, dict(options), ranks(trainer.world_size))
        trainer.should_stop = trainer.should_stop or self.binding.done

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        assert self.binding is not None
        if trainer.global_step == self._steps or self.binding.done:
            return  # a micro-batch
        self._steps = trainer.global_step
        loss = outputs.get("loss", math.nan) if isinstance(outputs, dict) else outputs
        samples = self._samples or (rows(batch) * trainer.accumulate_grad_batches *
                                    trainer.world_size)
        self.binding.step(math.nan if loss is None else number(loss), samples)
        if self.binding.done:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self.binding is not None:
            self.binding.close()


def rows(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    while isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    return int(batch.shape[0]) if getattr(batch, "ndim", 0) else 1
