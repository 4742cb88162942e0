"""A Hugging Face Trainer as a replica: one callback (needs transformers).

    trainer = transformers.Trainer(model, args, train_dataset=data, callbacks=[
        diloco.huggingface.DiLoCoCallback("https://hub.example/run", "r0")])
    trainer.train()

The run's length is the run's: training stops when it has ended, so leave ``max_steps`` (or
``num_train_epochs``) above it.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from transformers import TrainerCallback

from ._island import preparing
from ._optimizer import bind, ranks, tensors_of
from ._run import Run
from ._state import KeepInner
from ._torch import Binding, Fragments
from ._trainers import check_first, end_former, note, warn_short, warn_unfinished
from .errors import RefusedError

_log = logging.getLogger("diloco")


def innermost_sampler(loader: Any) -> Any:
    """The sampler that decides the order of samples, inside accelerate's wrappers."""
    sampler = loader
    while True:
        inside = getattr(sampler, "batch_sampler", None)
        inside = getattr(sampler, "sampler", None) if inside is None else inside
        if inside is None:
            return sampler if sampler is not loader else None
        sampler = inside


class Later:
    """The set_epoch of a sampler or a data set, with the epochs of former processes added: the trainer
    counts its own from 0."""

    def __init__(self, set_epoch: Callable[[int], Any], epochs: int) -> None:
        self._set_epoch, self._epochs = set_epoch, epochs

    def __call__(self, epoch: int) -> Any:
        return self._set_epoch(epoch + self._epochs)


def with_epochs(loader: Any) -> List[Any]:
    """The parts of a data loader that are given each epoch's number."""
    parts: List[Any] = [innermost_sampler(loader), getattr(loader, "dataset", None)]
    return [part for part in parts if hasattr(part, "set_epoch")]


def restore(parts: Sequence[Any]) -> None:
    """Give the parts their own set_epoch again. An exception that ended a former training has left
    it, and the data set is the user's."""
    for part in parts:
        if isinstance(getattr(part, "__dict__", {}).get("set_epoch"), Later):
            del part.set_epoch


def _length(data: Any) -> int:
    """0: it has no length, as a stream."""
    try:
        return len(data)
    except TypeError:
        return 0


class Position:
    """The replica's place in the data: the pass over it (epoch), and the samples of that pass that are
    used, also by updates that a loss scaler skipped. An update that the end of the pass cuts counts as
    a whole one."""

    def __init__(self, loader: Any, samples: int, micro_batches: int) -> None:
        self._batch, self._update = samples, samples * micro_batches
        self._length, self._micro_batches = _length(loader), micro_batches
        self.now = {"epoch": 0, "used": 0,
                    "whole": -(-self._length // micro_batches) * self._update,  # 0: unknown
                    "rows": _length(getattr(loader, "dataset", None))}
        self._saved = dict(self.now)

    def state_dict(self) -> Dict[str, int]:
        return self.now

    def load_state_dict(self, state: Dict[str, int]) -> None:
        if set(state) != set(self.now):
            raise RefusedError("the place in the data was saved by another version: finish the run with "
                               "that one, or begin this replica with another run.state_dir")
        self._saved = dict(state)

    def restore(self) -> int:
        """Continue at the saved place. Returns the batches of the pass that have been used.
        RefusedError: the size of a batch has changed, and the place is within one."""
        then, now = self._saved, self.now
        at_end = bool(then["whole"]) and then["used"] >= then["whole"]
        used = 0 if at_end else then["used"]
        now["epoch"] = then["epoch"] + at_end
        if used and now["rows"] != then["rows"]:
            _log.warning("the training data has %d samples and had %d when this replica was saved, so "
                         "the order of this epoch is another: some of its samples are trained on "
                         "twice or not at all", now["rows"], then["rows"])
        if used % self._batch:
            raise RefusedError(f"this replica has used {used} samples of the epoch, which are not "
                               f"whole batches of {self._batch}: set per_device_train_batch_size "
                               "to what it was, or to a divisor of it, or ignore_data_skip=True, "
                               "which begins the data again")
        now["used"] = used
        batches = used // self._batch
        left = (self._length - batches) % self._micro_batches
        if batches and self._length and left:
            _log.warning("the last %d batches of this epoch are left out: Trainer takes no step of "
                         "fewer than %d batches in an epoch that it resumes", left,
                         self._micro_batches)
        return batches

    def begin_after(self, steps: int, restarts: bool) -> None:
        """Trainer begins after the steps of a checkpoint of its own. ``restarts``: at the first batch
        of their epoch (ignore_data_skip)."""
        updates = self.now["whole"] // self._update
        epoch, steps = divmod(steps, updates) if updates else (0, steps)
        self.now.update(epoch=epoch, used=0 if restarts else steps * self._update)

    def count_update(self) -> None:
        self.now["used"] += self._update

    def end_pass(self) -> None:
        self.now.update(epoch=self.now["epoch"] + 1, used=0)


class DiLoCoCallback(TrainerCallback):
    """Joins the run when training begins, counts each optimizer step, exchanges at due points.

    Arguments as of `diloco.DiLoCoOptimizer`. Samples are the batch's, times the accumulated
    micro-batches and the ranks, which are one replica. A resume from the run takes up the inner
    optimizer's and the scheduler's state, and continues after the batches that this replica
    has trained on, in the order of their epoch; Trainer's own checkpoints are not needed for it. A
    step that a loss scaler skipped does not count. RefusedError: load_best_model_at_end, which would
    load other values over the shared model, and resume_from_checkpoint where the run resumes.
    """

    def __init__(self, run: Union[Run, str, "os.PathLike[str]"], replica: str = "r0", *,
                 fragments: Fragments = None, keep_inner_state: KeepInner = True,
                 **options: Any) -> None:
        self._what = (run, replica, fragments, keep_inner_state, options)
        self.binding: Optional[Binding] = None
        self._optimizer: Any = None
        self._loader: Any = None  # its first epoch begins after the batches of earlier processes
        self._skips = 0  # batches of that epoch

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None,
                       optimizer: Any = None, lr_scheduler: Any = None,
                       train_dataloader: Any = None, **_others: Any) -> None:
        group = ranks(args.world_size)
        with preparing(lambda: tensors_of(model), group):
            extra = self._prepare(args, optimizer, lr_scheduler, train_dataloader)
            run, replica, fragments, keep, options = self._what
            inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
            self.binding = binding = bind(model, inner, run, replica, fragments, keep, extra,
                                          dict(options), group)
        note(run, replica, binding)
        binding.island.together(lambda: self._begin(args, state, binding))
        warn_short(binding, state.max_steps - state.global_step, "max_steps")
        control.should_training_stop = binding.done
        if binding.resumed and not binding.done and not args.ignore_data_skip:
            binding.island.together(lambda: self._go_on_after(train_dataloader))

    def _prepare(self, args: Any, optimizer: Any, lr_scheduler: Any,
                 loader: Any) -> Dict[str, Any]:
        """Returns the objects to save beside the optimizer's state. RefusedError."""
        run, replica, *_ = self._what
        if args.load_best_model_at_end:
            raise RefusedError("load_best_model_at_end would load a checkpoint of this replica over "
                               "the shared model at the end: leave it out")
        end_former(run, replica)
        self._skips = 0
        restore(with_epochs(loader))
        self._optimizer = optimizer
        samples = args.per_device_train_batch_size * max(1, args.n_gpu) * args.world_size
        self._position = Position(loader, samples, args.gradient_accumulation_steps)
        extra = {} if lr_scheduler is None else {"scheduler": lr_scheduler}
        return {**extra, "data": self._position}

    def _begin(self, args: Any, state: Any, binding: Binding) -> None:
        """The place in the data where Trainer begins. RefusedError."""
        check_first(binding, state.global_step, "leave out resume_from_checkpoint")
        if state.global_step and not binding.resumed:
            self._position.begin_after(state.global_step, args.ignore_data_skip)

    def _go_on_after(self, loader: Any) -> None:
        """Let the loader pass over the batches that this replica has used."""
        if not hasattr(loader, "skip_batches"):
            _log.warning("the data begins at its first batch again: a %s cannot pass over the batches "
                         "that this replica has trained on", type(loader).__name__)
            return
        try:
            skips = self._position.restore()
        except RefusedError:
            self._end()
            raise
        for part in with_epochs(loader):
            part.set_epoch = Later(part.set_epoch, self._position.now["epoch"])
        self._loader, self._skips = loader, skips
        loader.skip_batches += skips

    def on_step_begin(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if self._skips and state.global_step == 0 and self.binding is not None:
            self.binding.restore_generators()  # which the passed batches have used

    def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None,
                     **_others: Any) -> None:
        if self._skips:
            self._loader.skip_batches -= self._skips
            self._skips = 0
            model.zero_grad()  # of micro-batches that are no whole step
            if state.global_step == 0 and self.binding is not None and not self.binding.done:
                control.should_training_stop = False  # a stream had ended where it was saved
                self.binding.restore_generators()  # which the passed batches have used
        self._position.end_pass()

    def on_step_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        assert self.binding is not None
        if self.binding.done:  # since the beginning; one step was taken before this check
            self.binding.adopt()
            return
        self._position.count_update()
        if getattr(self._optimizer, "step_was_skipped", False):
            return
        samples = args.per_device_train_batch_size * max(1, args.n_gpu)
        samples *= args.gradient_accumulation_steps * args.world_size
        self.binding.step(samples=samples)
        if self.binding.done:
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_others: Any) -> None:
        if self.binding is not None:
            warn_unfinished(self.binding)
        self._end()

    def _end(self) -> None:
        restore(with_epochs(self._loader))
        if self.binding is not None:
            self.binding.close()
