"""Trials that were trained before, here or on another machine: a file of JSON, one line a trial.

A trial is known by its texts and base.toml (`context`), its settings, steps and seed. Lines of other
texts or settings may be in the same file and are not used."""
import hashlib
import json

FACTS = ("loss", "bytes_sent", "data_parallel_bytes", "steps", "entries")


def digest(*parts):
    """32 hex digits of parts that are bytes, or anything that JSON can say."""
    h = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:32]


class Measured:
    """Reads all of `paths` and appends to the last of them."""

    def __init__(self, paths, context):
        self.path, self.context, self.known = paths[-1], context, {}
        for path in paths:
            if path.exists():
                for line in path.read_text(encoding="utf-8").splitlines():
                    trial = json.loads(line)
                    self.known[trial["id"]] = trial

    def identity(self, steps, settings, seed):
        return digest(self.context, steps, settings, seed)

    def find(self, identity):
        return self.known.get(identity)

    def add(self, identity, facts, **description):
        """`description` is for a person: name of the trial, inner learning rate, seed."""
        trial = {"id": identity, **description, **{key: facts[key] for key in FACTS}}
        self.known[identity] = trial
        with open(self.path, "a", encoding="utf-8") as out:
            out.write(json.dumps(trial) + "\n")
        return trial
