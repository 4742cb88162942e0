"""char_gpt.py [TEXT] [--store STORE]: a small character model on two replicas of this machine, over
a folder. TEXT is a file; without one it is the project's own documentation.

Each replica has half of the text. Both see the other's only through the exchange. The script prints
the loss, in nats a character, of the shared model on the last tenth of the text.
"""
import argparse
import pathlib

import torch
from torch import nn
from torch.nn import functional

import diloco

CONTEXT, CHANNELS, HEADS, LAYERS, BATCH = 64, 64, 4, 2, 16
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(CHANNELS), nn.LayerNorm(CHANNELS)
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
        self.ffn = nn.Sequential(nn.Linear(CHANNELS, 4 * CHANNELS), nn.GELU(),
                                 nn.Linear(4 * CHANNELS, CHANNELS))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.ffn(self.norm2(x))


class CharGPT(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, CHANNELS), nn.Embedding(CONTEXT, CHANNELS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, vocab)

    def forward(self, x):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def read(path):
    """(tokens, number of different characters)."""
    files = [path] if path else sorted(DOCS.glob("*.md"))
    text = "\n".join(pathlib.Path(f).read_text(encoding="utf-8") for f in files)
    known = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([known[c] for c in text]), len(known)


def loss_of(model, tokens, begins):
    x = torch.stack([tokens[b:b + CONTEXT + 1] for b in begins])
    logits = model(x[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())


def train(place, path, rounds, sync_every):
    """Loss on the held-out text, of the shared model at the beginning and at the end."""
    tokens, vocab = read(path)
    held_out = tokens[len(tokens) * 9 // 10:]
    mine = tokens[:len(tokens) * 9 // 10].chunk(place.replicas)[place.rank]
    test = range(0, len(held_out) - CONTEXT - 1, max(1, len(held_out) // 32))
    torch.manual_seed(1)
    model = CharGPT(vocab)
    inner = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(place.rank)
    with diloco.DiLoCoOptimizer(model, inner, place.store, place.replica, replicas=place.replicas,
                                sync_every=sync_every, rounds=rounds) as opt:
        with torch.no_grad():
            before = loss_of(model, held_out, test).item()
        while not opt.done:
            loss = loss_of(model, mine, torch.randint(len(mine) - CONTEXT, (BATCH,),
                                                      generator=generator))
            loss.backward()
            opt.report(loss, samples=BATCH, tokens=BATCH * CONTEXT)
            opt.step()
            opt.zero_grad()
        with torch.no_grad():
            return before, loss_of(model, held_out, test).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", nargs="?", help="a file; default: the project's documentation")
    parser.add_argument("--store", help="where the run is; default: a temporary folder")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--sync-every", type=int, default=25, help="steps between exchanges")
    args = parser.parse_args()
    ends = diloco.launch_local(2, train, args.text, args.rounds, args.sync_every, store=args.store)
    assert ends[0] == ends[1], "replicas end with one model"
    print(f"loss {ends[0][0]:.3f}, after {args.rounds} rounds {ends[0][1]:.3f}")


if __name__ == "__main__":
    main()
