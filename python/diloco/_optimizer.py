"""`DiLoCoOptimizer`: a torch optimizer whose steps are a replica's steps of a run."""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

import torch

from . import _agree
from ._base import adapter_facts, take_mode
from ._guards import Accumulation, Unique, bare, check_two, claim, release
from ._island import preparing
from ._memory import needs
from ._run import Run, counted
from ._schedule import Schedule
from ._state import KeepInner, check_saves, check_trains, pieces, take_keep, warn_others
from ._torch import Binding, Fragments, named_buffers, named_parameters, named_tensors
from ._survival import suspect
from .errors import DiffersError, InvalidError


def bind(source: Any, inner: Any, run: Union[Run, str, "os.PathLike[str]"], replica: str,
         fragments: Fragments, keep_inner_state: KeepInner, extra: Mapping[str, Any],
         options: Dict[str, Any], group: Any = None, pipeline: bool = False) -> Binding:
    """A model and its inner optimizer, bound to a run and joined to it."""
    with preparing(lambda: tensors_of(source), group):
        return _bind(source, inner, run, replica, fragments, keep_inner_state, extra, options,
                     group, pipeline)


def _bind(source: Any, inner: Any, run: Union[Run, str, "os.PathLike[str]"], replica: str,
          fragments: Fragments, keep_inner_state: KeepInner, extra: Mapping[str, Any],
          options: Dict[str, Any], group: Any, pipeline: bool) -> Binding:
    inner = bare(inner)
    parameters, buffers = named_tensors(source)
    exchange = take_mode(options)
    keeps = take_keep(keep_inner_state, options)
    check_two(inner, options.get("outer_optimizer"))
    check_trains(inner, (p for _, p in parameters))
    warn_others(inner, (p for _, p in parameters))
    opened: Any = run
    if not isinstance(run, Run):
        if fragments is not None:
            options.setdefault("fragments",
                               fragments if isinstance(fragments, int) else len(fragments))

        def opened() -> Run:
            return Run(run, replica, _model="torch", **options)
    else:
        check_saves(run, keep_inner_state, options)
    if isinstance(run, Run) and options:
        raise InvalidError("options belong to the Run that was given: "
                           f"{', '.join(options)}")

    facts = _agree.arguments(run, replica, options, extra, keeps, fragments, pipeline, group)
    if not pipeline:  # whose stages have an optimizer each
        facts.update(_agree.optimizer_facts(inner, parameters))

    def tensors_now() -> Mapping[str, Any]:
        if not isinstance(source, torch.nn.Module):
            return {}
        return dict([*named_parameters(source), *named_buffers(source)])
    return Binding(opened, parameters, buffers, fragments=fragments,
                   private=lambda island: pieces(inner, island, keeps, extra,
                                                pipeline),
                   tensors_now=tensors_now, group=group, optimizer=suspect(inner),
                   exchange=exchange, facts=adapter_facts(source), pipeline=pipeline, agreed=facts)


def tensors_of(source: Any) -> List[torch.Tensor]:
    """The parameters and buffers of what `named_tensors` takes."""
    parameters, buffers = named_tensors(source)
    return [t for _, t in [*parameters, *buffers]]


def ranks(size: int) -> Any:
    """A trainer's own ranks as a group; None: there is one."""
    if size < 2 or not torch.distributed.is_initialized():
        return None
    return torch.distributed.group.WORLD


def checked(loss: Any) -> Any:
    """The loss, if it is a number or a tensor of one real element (NaN and infinity too).
    InvalidError."""
    if isinstance(loss, torch.Tensor):
        if loss.numel() == 1 and not loss.is_complex():
            return loss
        what = f"a tensor of type {str(loss.dtype)[6:]} and shape {list(loss.shape)}"
    else:
        what = f"a {type(loss).__name__}"
        if not isinstance(loss, (str, bytes, bytearray)):  # which float() reads as text
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                return float(loss)
    raise InvalidError(f"the reported loss is {what}: give the mean loss of the step, a real number "
                       "or a tensor of one element (loss.mean())")


def copy_of(loss: Any) -> Any:
    """The loss as it is now. The next micro-batch of a CUDA graph overwrites its tensor, and in
    float16 its product with the samples may overflow."""
    return loss.detach().to(torch.float64, copy=True) if isinstance(loss, torch.Tensor) else loss


def joined_report(reports: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """The report of a step from those of its micro-batches: the mean loss by samples, and sums."""
    if len(reports) < 2:
        return dict(reports[0]) if reports else {}
    totals = {name: sum(r[name] for r in reports) for name in ("samples", "tokens")}
    whole = sum(copy_of(r["loss"]) * r["samples"] for r in reports)
    return {"loss": whole / max(1, totals["samples"]), **totals}


class DiLoCoOptimizer(Unique, torch.optim.Optimizer):
    """A drop-in for the inner optimizer: its ``step`` takes the inner step, counts it, and at a
    due point exchanges with the other replicas and overwrites the parameters.

    ::

        model, inner = …, torch.optim.AdamW(model.parameters(), lr=3e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(inner, 10_000)
        opt = diloco.DiLoCoOptimizer(model, inner, "https://hub.example/run", "r0",
                                     scheduler=schedule)
        while not opt.done:
            loss = model(batch).loss
            loss.backward()
            opt.report(loss, samples=len(batch))
            opt.step()
            opt.zero_grad()
        opt.close()

    ``params``: a module (its buffers take part too), its named_parameters(), or tensors.
    Making one joins the run: the parameters then are the shared model's. ``run``: a store's URL
    with the options of `Run`, or a Run that is not joined yet. ``fragments``: how many parts are
    synchronised one after the other, or the parts: modules or collections of tensors (2501.18512).
    ``scheduler``: the inner learning rate's, which ``step`` then steps as well, so that what is
    saved at a due point is whole; ReduceLROnPlateau is refused. ``extra``: other things with ``state_dict`` and
    ``load_state_dict`` of plain values (a data loader's place), saved as they are when ``step`` is
    called, and checked here. Inner state is never reset, averaged or sent. ``keep_inner_state``: True saves it at each due
    point of the first fragment, "entry:N" every N entries; False does not keep it. ``group``: a process group or device mesh
    whose ranks are one replica, because they hold the same parameters (DDP) or shards of them.
    Rank 0 of them talks to the store. The ranks of FSDP and tensor parallelism are found by their
    mesh. ``pipeline``: each rank of ``group`` has a stage of its own, whose tensors have the names
    ``stage<rank>.NAME`` in the run.
    ``exchange``: "trainable" (frozen parameters are not sent; the run compares their digests when a
    replica joins) or "all" (they take the mean). None: "trainable".

    ``inner_optimizer``: a torch optimizer, or the one that accelerate's prepare returns. Then ``step``
    at a micro-batch between two steps counts nothing, as does a step that the loss scaler skips.

    Raises what Run.join and Run.step do, and for tensors that cannot take part InvalidError or
    RefusedError. One thread at a time.
    """

    def __init__(self, params: Any, inner_optimizer: Any,
                 run: Union[Run, str, "os.PathLike[str]"], replica: str = "r0", *,
                 fragments: Fragments = None, scheduler: Any = None,
                 keep_inner_state: KeepInner = True, extra: Optional[Mapping[str, Any]] = None,
                 group: Any = None, pipeline: bool = False, exchange: Optional[str] = None,
                 **options: Any) -> None:
        if exchange is not None:  # a mode, or the run's topology of that name
            options["exchange"] = exchange
        self.inner, self.scheduler = inner_optimizer, scheduler
        self._linked = False
        with preparing(lambda: tensors_of(params), group):
            if not isinstance(params, torch.nn.Module):
                params = list(params)
            super().__init__([{**group} for group in inner_optimizer.param_groups],
                             inner_optimizer.defaults)
            self._linked = True
            self._report: Dict[str, Any] = {}
            self._micro: List[Dict[str, Any]] = []  # reports since the last step
            self._accumulation = Accumulation(inner_optimizer)
            saved = {**(extra or {}), **({"scheduler": scheduler} if scheduler is not None else {})}
            self._schedule = Schedule(scheduler, saved,
                                      (self, inner_optimizer, bare(inner_optimizer)))
            self._made_here()
            claim(bare(inner_optimizer), self)
            try:
                self.binding = bind(params, inner_optimizer, run, replica, fragments,
                                    keep_inner_state, saved, options, group, pipeline)
            except BaseException:
                release(bare(inner_optimizer), self)
                raise

    # Groups and state are the inner optimizer's, whichever it has now, so that schedulers work on
    # either. torch's own constructor makes empty ones.

    @property
    def param_groups(self) -> Any:
        return self.inner.param_groups if self._linked else self._first_groups

    @param_groups.setter
    def param_groups(self, groups: Any) -> None:
        if self._linked:
            self.inner.param_groups = groups
        self._first_groups = groups

    @property
    def state(self) -> Any:
        return self.inner.state

    @state.setter
    def state(self, state: Any) -> None:
        if self._linked:
            self.inner.state = state

    def report(self, loss: Any = math.nan, samples: int = 1, tokens: int = 0) -> None:
        """Report the data of the next step, or with accelerate of the next micro-batch: its mean
        loss (a number or a tensor of one), and its samples and tokens. InvalidError: another
        value."""
        self._report = {"loss": checked(loss), "samples": counted("samples", samples),
                        "tokens": counted("tokens", tokens)}

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """One inner step; returns the inner optimizer's result. Interrupted, KeyboardInterrupt:
        the step is counted; continue with ``binding.wait()``, or close and resume."""
        self._check_process()
        self.binding.check_open()
        if self._accumulation.adds_up(self.inner):
            if self._report:
                self._micro.append({**self._report, "loss": copy_of(self._report["loss"])})
                self._report = {}
            return None
        result = self.inner.step(closure) if closure is not None else self.inner.step()
        reports = [*self._micro, self._report] if self._report else self._micro
        self._micro, self._report = [], {}  # a closure reports within the inner step
        if getattr(self.inner, "step_was_skipped", False):
            return result
        with self.binding.island.ending(), needs(lambda: "add up the losses of a step"):
            self._schedule.step()  # The other ranks count the step.
            report = joined_report(reports)
        loss = report.pop("loss", math.nan if result is None else result)
        self.binding.step(loss, **report)
        return result

    @property
    def done(self) -> bool:
        """All entries of the run are applied, and the parameters are the shared model."""
        return self.binding.done

    def adopt(self) -> None:
        """Make the parameters the shared model as it now is, for example before an evaluation in
        the middle of a run. Steps since the last exchange are lost. At the end it is done
        already."""
        self.binding.adopt()

    @property
    def run(self) -> Run:
        """The run, for ``now``, ``theta()`` and the rest; on rank 0 of an island only."""
        return self.binding.run

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.inner.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        if hasattr(self, "binding"):
            raise InvalidError("all replicas register the same tensors when they join: give the "
                               "parameters to the inner optimizer before")
        super().add_param_group(param_group)

    def state_dict(self) -> Dict[str, Any]:
        """The inner optimizer's, and under "diloco" which run it belongs to. Theta and the outer
        momentum are in the run's log: joining reads them."""
        about = self.binding.island.lead(lambda: {
            "run": self.run.now.run, "replica": self.run.replica, "step": self.run.now.step})
        return {**self.inner.state_dict(), "diloco": about}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The inner optimizer's state. DiffersError: it was saved in another run."""
        inner = {k: v for k, v in state_dict.items() if k != "diloco"}
        about = state_dict.get("diloco")
        here = self.binding.island.lead(lambda: self.run.now.run)
        if about is not None and about["run"] != here:
            raise DiffersError(f"this state is of run {about['run']}, and the optimizer's run is "
                               f"{here}: load it into the inner optimizer to take it all the same")
        self.inner.load_state_dict(inner)

    def save(self) -> None:
        """Save what a bitwise resume needs, as it is now."""
        self.binding.save()

    def leave(self) -> None:
        """Say that this replica leaves for good."""
        self.binding.leave()

    def close(self) -> None:
        """Stop the run's helpers. Saves nothing."""
        release(bare(self.inner), self)
        self.binding.close()

    def __enter__(self) -> DiLoCoOptimizer:
        return self

    def __exit__(self, *_exception: Any) -> None:
        self.close()
