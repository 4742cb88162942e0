"""Checkpoints of torch.distributed (DCP) that a run is exported to, and begins from.

    diloco export runs/first --to dcp --out checkpoint      # or diloco.dcp.save

    options = diloco.dcp.resume("checkpoint", model)        # plain, or sharded by fully_shard
    opt = diloco.DiLoCoOptimizer(model, inner, "runs/second", **options)

The checkpoint has the shared model under "model", with the names of its state_dict, as torchtitan
writes it. The outer optimizer's vectors are under "diloco.outer", in the shapes of their
parameters. `load` takes the model alone, also from a checkpoint of another program.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     set_model_state_dict)

from ._log import RunLog
from ._run import is_shape_of
from ._shards import is_sharded
from ._torch import named_parameters
from .errors import InvalidError, RefusedError

_TYPES = {"F32": torch.float32, "I64": torch.int64, "BOOL": torch.bool}
_NAMES = {kind: name for name, kind in _TYPES.items()}
_MODEL, _OUTER, _RUN = "model", "diloco.outer", "diloco.run"  # keys of the checkpoint


# ---- safetensors, as the library writes and reads them --------------------------------------


def _read(blob: bytes) -> Tuple[Dict[str, torch.Tensor], Dict[str, str]]:
    """The tensors and the metadata of a run's state."""
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + size])
    metadata = header.pop("__metadata__", {})
    data, tensors = memoryview(bytearray(blob[8 + size:])), {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        kind = _TYPES[t["dtype"]]
        flat = (torch.frombuffer(data[begin:end], dtype=kind) if end > begin else
                torch.empty(0, dtype=kind))
        tensors[name] = flat.view(t["shape"])
    return tensors, metadata


def _write(path: pathlib.Path, tensors: Mapping[str, torch.Tensor],
           metadata: Mapping[str, str]) -> None:
    header: Dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, t in tensors.items():
        n = t.numel() * t.element_size()
        header[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            whole = t.contiguous()
            file.write(ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size()))
    os.replace(part, path)


# ---- a run's state as a checkpoint ----------------------------------------------------------


def _save(blob: bytes, folder: Any) -> None:
    tensors, metadata = _read(blob)
    model = {n: t for n, t in tensors.items() if not n.startswith("diloco.")}
    outer = {n: t for n, t in tensors.items() if n.startswith("diloco.")}
    dcp.save({_MODEL: model, _OUTER: outer, _RUN: metadata}, checkpoint_id=folder, no_dist=True)


def save(run: Any, folder: Any) -> None:
    """Write the shared model of a run, and its outer optimizer's state, as a DCP checkpoint.
    ``run``: a `RunLog` or a run's URL. One process. The stages of a pipeline keep their
    run's names, which no model has."""
    log = run if isinstance(run, RunLog) else RunLog(run)
    _save(log.theta_bytes(), folder)


# ---- a model from a checkpoint --------------------------------------------------------------


def _entries(folder: Any) -> Dict[str, Any]:
    """The checkpoint's tensors and values by key. InvalidError: there is no checkpoint."""
    reader = dcp.FileSystemReader(folder)
    try:
        return dict(reader.read_metadata().state_dict_metadata)
    except FileNotFoundError:
        raise InvalidError(f"{folder} has no DCP checkpoint (.metadata): give the folder that "
                           "dcp.save or `diloco export --to dcp` wrote") from None


def _names_in(entries: Mapping[str, Any], key: str) -> List[str]:
    return [name[len(key) + 1:] for name in entries if name.startswith(key + ".")]


def _room(mine: Any, shape: Sequence[int]) -> Any:
    """Where a tensor of that shape is loaded: the model's own, or a whole one in the run's shape,
    which has fewer dimensions."""
    if tuple(mine.shape) == tuple(shape):
        return mine
    return torch.empty(tuple(shape), dtype=mine.dtype, device=mine.device)


def _unfolded(loaded: Any, mine: Any) -> Any:
    """The loaded tensor in the model's own shape, sharded as the model's. Every rank calls it."""
    if loaded is mine:
        return mine
    whole = loaded.reshape(mine.shape)
    if not is_sharded(mine):
        return whole
    from torch.distributed.tensor import distribute_tensor
    return distribute_tensor(whole, mine.device_mesh, mine.placements)


def load(folder: Any, model: torch.nn.Module) -> None:
    """Give the model the checkpoint's values, in its own types and on its own devices. Its
    parameters may be sharded; then every rank calls this. InvalidError: a parameter that trains is
    not in the checkpoint, one of the checkpoint is not in the model, or their shapes differ; by
    name, before anything is loaded."""
    entries, state = _entries(folder), get_model_state_dict(model)
    found = _names_in(entries, _MODEL)
    for name, p in named_parameters(model):
        if p.requires_grad and p.numel() and name not in found:  # a run has none without elements
            raise InvalidError(f"{name} trains in this model and is not in the checkpoint {folder}")
    for name in found:
        if name not in state:
            raise InvalidError(f"the checkpoint {folder} has {name}, and this model has not")
        there, here = tuple(entries[f"{_MODEL}.{name}"].size), tuple(state[name].shape)
        if not is_shape_of(there, here):
            raise InvalidError(f"{name} is {list(there)} in the checkpoint {folder} and "
                               f"{list(here)} in this model")
    wanted = {name: _room(state[name], entries[f"{_MODEL}.{name}"].size) for name in found}
    dcp.load({_MODEL: wanted}, checkpoint_id=folder,
             no_dist=not torch.distributed.is_initialized())
    wanted = {name: _unfolded(t, state[name]) for name, t in wanted.items()}
    set_model_state_dict(model, wanted, options=StateDictOptions(strict=False))


def resume(folder: Any, model: torch.nn.Module) -> Dict[str, Any]:
    """Load the model, and return the options of a new run that continues from the checkpoint: the
    outer optimizer keeps its vectors. Rank 0 writes them beside the checkpoint, as
    FOLDER/diloco.safetensors. RefusedError: the checkpoint has no outer state, because another
    program wrote it; `load` begins a run with its model alone. Raises as `load`."""
    entries = _entries(folder)
    if not _names_in(entries, _RUN):
        raise RefusedError(f"the checkpoint {folder} has no state of an outer optimizer, so the run "
                           "would not continue: take diloco.dcp.load, and the outer optimizer "
                           "begins without momentum")
    load(folder, model)
    path = pathlib.Path(folder) / "diloco.safetensors"
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        _write_outer(folder, path, entries)
    return {"init_from": str(path), "init_as": "continuation"}


def _write_outer(folder: Any, path: pathlib.Path, entries: Mapping[str, Any]) -> None:
    whole: Dict[str, Dict[str, Any]] = {_MODEL: {}, _OUTER: {}}
    for key, tensors in whole.items():
        for name in _names_in(entries, key):
            t = entries[f"{key}.{name}"]
            tensors[name] = torch.empty(t.size, dtype=t.properties.dtype)
    facts: Dict[str, Any] = {name: "" for name in _names_in(entries, _RUN)}
    dcp.load({**whole, _RUN: facts}, checkpoint_id=folder, no_dist=True)
    _write(path, {**whole[_MODEL], **whole[_OUTER]}, facts)


def main() -> int:
    """STATE FOLDER: a run's state, a safetensors file, as a DCP checkpoint (`diloco export`)."""
    state, folder = sys.argv[1:]
    try:
        _save(pathlib.Path(state).read_bytes(), folder)
    except Exception as error:  # whatever torch raises
        print(" ".join(str(error).split())[:400], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
