"""A Hugging Face Trainer as a replica: one callback (needs transformers).

    trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[
        diloco.huggingface.DiLoCoCallback("https://hub.example/run", "r0")])
    trainer.train()

The run's length is the run's: training stops when it has ended, so leave ``max_steps`` (or
``num_train_epochs``) above it.
"""

from __future__ import annotations

import os
from typing import Any, Optional, Union

from transformers import TrainerCallback

from ._optimizer import bind, ranks
from ._run import Run
from ._torch import Binding, Fragments


class DiLoCoCallback(TrainerCallback):
    """Joins the run when training begins, counts each optimizer step, exchanges at due points.

    Arguments as of `diloco.DiLoCoOptimizer`. Samples are the batch's, times the accumulated
    micro-batches and the ranks, which are one replica. A resume from the run takes up the inner
    optimizer's and the scheduler's state; Trainer's own checkpoints are not needed for it. A step
    that a loss scaler skipped is none.
    """

    def __init__(self, run: Union[Run, str, "os.PathLike[str]"], replica: str = "r0", *,
                 fragments: Fragments = None, keep_inner_state: bool = True,
                 **options: Any) -> None:
        self._what = (run, replica, fragments, keep_inner_state, options)
        self.binding: Optional[Binding] = None
        self._optimizer: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None,
                       optimizer: Any = None, lr_scheduler: Any = None, **_others: Any) -> None:
        run, replica, fragments, keep, options = self._what
        self._optimizer = optimizer
        inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
        extra = {} if lr_scheduler is None else {"scheduler": lr_scheduler}
        self.binding = bind(model, inner, run, replica, fragments, keep, extra, dict(options),
                            ranks(args.world_size))
        control.should_training_stop = self.binding.done

    def on_step_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        assert self.binding is not None
        if self.binding.done:  # since the beginning; one step was taken before anybody asked
            self.binding.adopt()
            return
        if getattr(self._optimizer, "step_was_skipped", False):
            return
        samples = args.per_device_train_batch_size * max(1, args.n_gpu)
        samples *= args.gradient_accumulation_steps * args.world_size
        self.binding.step(samples=samples)
        if self.binding.done:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if self.binding is not None:
            self.binding.close()
