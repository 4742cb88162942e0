"""fsdp_dcp.py STORE REPLICA FOLDER: one replica of several ranks, in the shape of torchtitan's loop:
FSDP2, and checkpoints by torch.distributed.checkpoint (DCP). The lines that a plain loop does not
have end in "# diloco".

    torchrun --nproc-per-node 2 fsdp_dcp.py runs/titan r0 checkpoints-r0

FOLDER/step-N is a DCP checkpoint of the shared model and the inner optimizer at the end of the run.
--from FOLDER begins a new run from the model of such a checkpoint.
"""
import argparse
import os
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

import diloco  # diloco

CONTEXT, CHANNELS = 32, 48
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def model_of():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(256, CHANNELS),
        *(torch.nn.TransformerEncoderLayer(CHANNELS, 4, 2 * CHANNELS, 0.0, batch_first=True)
          for _ in range(2)),
        torch.nn.Linear(CHANNELS, 256))


def loss_of(model, rows):
    mask = torch.nn.Transformer.generate_square_subsequent_mask(rows.shape[1] - 1,
                                                                     device=rows.device)
    h = model[0](rows[:, :-1])
    for layer in model[1:-1]:
        h = layer(h, src_mask=mask, is_causal=True)
    return torch.nn.functional.cross_entropy(model[-1](h).flatten(0, 1), rows[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store")
    parser.add_argument("replica")
    parser.add_argument("folder", help="of the checkpoints")
    parser.add_argument("--from", dest="begin", metavar="FOLDER", help="a DCP checkpoint")
    args = parser.parse_args()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)  # fully_shard moves the model to it
    dist.init_process_group("cuda:nccl,cpu:gloo" if device.type == "cuda" else "gloo")

    model = model_of()
    for layer in model:
        fully_shard(layer)
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if args.begin:
        weights, _ = get_state_dict(model, [])
        dcp.load({"model": weights}, checkpoint_id=args.begin)
        set_model_state_dict(model, weights)
    data = torch.tensor(list((DOCS / "round.md").read_bytes()))
    draw = torch.Generator().manual_seed(int(args.replica[1:]) * 1000 + dist.get_rank())
    opt = diloco.DiLoCoOptimizer(model, inner, args.store, args.replica,  # diloco
                                 sync_every=10, rounds=2)  # diloco
    step = 0
    while not opt.done:  # diloco: was a range of steps
        begins = torch.randint(len(data) - CONTEXT - 1, (8, 1), generator=draw)
        loss = loss_of(model, data[begins + torch.arange(CONTEXT + 1)].to(device))
        loss.backward()
        opt.report(loss, samples=8 * dist.get_world_size())  # diloco
        opt.step()
        opt.zero_grad()
        step += 1
    opt.close()  # diloco
    weights, moments = get_state_dict(model, inner)
    dcp.save({"model": weights, "optimizer": moments},
             checkpoint_id=pathlib.Path(args.folder) / f"step-{step}")
    if dist.get_rank() == 0:
        print(f"{args.replica}: {step} steps, checkpoint {args.folder}/step-{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
