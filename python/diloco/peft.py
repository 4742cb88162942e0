"""A run's shared adapter as a PEFT folder (needs peft).

    diloco.peft.save("https://hub.example/run", model, "adapter")
    peft.PeftModel.from_pretrained(base_model, "adapter")

The folder is what ``model.save_pretrained`` writes (adapter_config.json and
adapter_model.safetensors), with the run's values in place of the model's.
"""

from __future__ import annotations

from typing import Any, Dict

import torch

from ._log import RunLog
from ._run import Run, is_shape_of
from ._torch import named_parameters
from .errors import InvalidError


def _tensor(array: Any, like: torch.Tensor) -> torch.Tensor:
    """A new tensor of the parameter's type, from what ``theta`` gives."""
    flat = memoryview(array).cast("B")
    name = str(getattr(array, "dtype", "")) or getattr(array, "format", "")
    kinds = {"float32": torch.float32, "f": torch.float32, "float16": torch.float16,
             "e": torch.float16, "uint16": torch.bfloat16, "H": torch.bfloat16,
             "int64": torch.int64, "q": torch.int64, "bool": torch.bool, "?": torch.bool}
    read = torch.frombuffer(bytearray(flat), dtype=kinds[name])
    return read.view(like.shape).to(like.dtype)


def shared_state(run: Any, model: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """The model's state_dict with the run's shared values in place of its own, which stay as they
    are. ``run``: a joined `Run`, a `RunLog`, or a run's URL. InvalidError: a parameter that trains
    here is not in the run, one of the run is not in the model, or their shapes differ; by name."""
    log = run if isinstance(run, (Run, RunLog)) else RunLog(run)
    theta = log.theta()
    state = {name.replace("_orig_mod.", ""): value for name, value in model.state_dict().items()}
    for name, p in named_parameters(model):
        if p.requires_grad and name not in theta:
            raise InvalidError(f"{name} trains in this model and is not in the run: make the model "
                               "with the adapter that the run trains")
    for name, array in theta.items():
        if name.startswith("diloco."):  # the outer optimizer's
            continue
        if name not in state:
            raise InvalidError(f"the run has {name}, and this model has not: make the model with "
                               "the adapter that the run trains")
        shape = tuple(getattr(array, "shape", ()))
        if not is_shape_of(shape, state[name].shape):
            raise InvalidError(f"{name} is {list(shape)} in the run and "
                               f"{list(state[name].shape)} in this model: its adapter has "
                               "another rank, or its base another size")
        state[name] = _tensor(array, state[name])
    return state


def save(run: Any, model: Any, folder: Any) -> None:
    """Write the run's shared adapter as a PEFT folder. ``model``: a PeftModel like the replicas'
    (its values do not matter). Raises as `shared_state`; InvalidError: it is no PeftModel."""
    if not hasattr(model, "peft_config") or not hasattr(model, "save_pretrained"):
        raise InvalidError(f"a {type(model).__name__} is no PEFT model: make it with "
                           "peft.get_peft_model, as the replicas do")
    model.save_pretrained(folder, state_dict=shared_state(run, model))
