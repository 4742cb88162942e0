"""Which parameters of a model are exchanged, and what the run keeps of the others.

``exchange = "trainable"``: frozen parameters are not registered with the run, so they are neither
sent nor saved. They are its *base*: run.json keeps the name, type, shape and digest of each, and a
replica with another base is refused by the name of the tensor that differs.
``exchange = "all"``: frozen parameters take the weighted mean, as buffers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .errors import InvalidError

if TYPE_CHECKING:
    from ._island import Island

Named = List[Tuple[str, torch.Tensor]]

MODES = ("trainable", "all")

# The facts, beside its tensors, that determine the output of a model with an adapter.
_ADAPTER_FACTS = ("peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern",
                  "alpha_pattern")


def take_mode(options: Dict[str, Any]) -> Optional[str]:
    """Remove "exchange" from a caller's options where it names a mode. The names of exchange
    topologies ("leader") stay there, for the run has an option of that name."""
    return options.pop("exchange") if options.get("exchange") in MODES else None


class Split(NamedTuple):
    exchanged: Named  #: parameters that the run has
    base: Named  #: parameters that it has only a digest of


def split(parameters: Sequence[Tuple[str, Any]], mode: Optional[str]) -> Split:
    if mode == "all":
        return Split(list(parameters), [])
    exchanged = [(name, p) for name, p in parameters if p.requires_grad]
    return Split(exchanged, [(name, p) for name, p in parameters if not p.requires_grad])


def check_some(exchanged: Named) -> None:
    """InvalidError: no parameter trains."""
    if not exchanged:
        raise InvalidError("every parameter is frozen (requires_grad is False), so there is nothing "
                           "to train: unfreeze what trains, or take exchange=\"all\"")


def _whole(name: str, t: torch.Tensor) -> torch.Tensor:
    """Its values in host memory. Of a DTensor: a message between all ranks of its mesh."""
    if t.is_meta:
        raise InvalidError(f"{name} is on the meta device and has no values: materialize the model "
                           "first (to_empty, load_state_dict)")
    values: Any = t.detach()
    if hasattr(t, "full_tensor"):
        values = values.full_tensor()
    return values.cpu().contiguous()


def adapter_facts(module: Any) -> List[Tuple[str, str]]:
    """(name, description) of each adapter of the first PEFT model in the module; else none."""
    parts = module.modules() if isinstance(module, torch.nn.Module) else ()
    configs = next((c for c in (getattr(m, "peft_config", None) for m in parts)
                    if isinstance(c, dict)), {})
    rows = []
    for adapter, config in sorted(configs.items()):
        facts = [(fact, getattr(config, fact, None)) for fact in _ADAPTER_FACTS]
        rows.append((f"peft_config.{adapter}",
                     ", ".join(f"{k} {getattr(v, 'value', v)}" for k, v in facts if v)))
    return rows


def register(run: Any, island: "Island", base: Named, facts: Sequence[Tuple[str, str]]) -> None:
    """Give the base to rank 0's run; every rank of the island calls this. One tensor at a time is
    in host memory. InvalidError, on all ranks."""
    failed: Optional[BaseException] = None
    for name, t in base:
        host = _whole(name, t) if island.leads or hasattr(t, "full_tensor") else None
        if island.leads and failed is None:
            assert host is not None
            try:
                run.base(name, f"{str(t.dtype)[6:]} {list(t.shape)}", host.data_ptr(),
                         host.numel() * host.element_size())
            except Exception as error:  # noqa: B902: raised on all ranks below
                failed = error

    def finish() -> None:
        if failed is not None:
            raise failed
        for name, fact in facts:
            text = fact.encode()
            run.base(name, fact[:127], text, len(text))
    island.lead(finish)


def check_frozen(base: Named) -> None:
    """InvalidError: a tensor of the base trains now, alone, on this replica."""
    for name, t in base:
        if t.requires_grad:
            raise InvalidError(f"{name} was frozen when the run was joined, and requires a gradient "
                               "now, but the run does not exchange it: unfreeze it before, on all "
                               "replicas of a new run")
