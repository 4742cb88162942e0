#!/usr/bin/env python3
"""plant.py KIND RUN - what a writer without a key leaves in the folder of a run of keys.

Under names of every pattern of docs/formats.md, for the three entries that come next and for the
generations that r0 and r1 have and take next, where the names are free: objects of that kind.

    empty      no bytes
    short      three bytes
    huge       8 GiB of zeros
    folder     a folder with a file in it
    pipe       a FIFO
    another    what another member has signed
    earlier    what the same member has signed for an earlier entry
    crowd      2,000 objects of nobody and as many of r1 under c/, and 200 under other patterns
    mixed      each of these but the last in turn
"""
import os
import shutil
import sys

KINDS = ["empty", "short", "huge", "folder", "pipe", "another", "earlier"]
HUGE = 8 << 30
kind, run = sys.argv[1:]
n_planted = 0


def signed():
    """What is there before anything is planted, by its key."""
    keys = {}
    for path, _, files in os.walk(run):
        for name in files:
            keys[os.path.relpath(os.path.join(path, name), run)] = os.path.join(path, name)
    return keys


honest = signed()


def first(folder, name):
    """That object, or any other of the folder."""
    key = f"{folder}/{name}"
    others = sorted(k for k in honest if k.startswith(folder + "/"))
    return honest[key if key in honest else others[0] if others else "run.json"]


def plant(key, how, replica="r1"):
    global n_planted
    path = os.path.join(run, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        return
    n_planted += 1
    pattern = key.split("/")[0]
    if how == "folder":
        os.mkdir(path)
        open(os.path.join(path, "x"), "w").close()
    elif how == "pipe":
        os.mkfifo(path)
    elif how in ("another", "earlier"):
        other = {"r0": "r1", "r1": "r0"}.get(replica, "r0") if how == "another" else replica
        at = {"c": f"0000000000/{other}.0000", "log": "0000000000.json"}.get(pattern)
        shutil.copyfile(first(pattern, at or f"{other}.0000"), path)
    else:
        with open(path, "wb") as file:
            if how == "short":
                file.write(b"abc")
            if how == "huge":
                file.truncate(HUGE)


def names(e, replica, g):
    life = f"{replica}.{g:04d}"
    yield f"c/{e:010d}/{life}"
    yield f"x/{e:010d}/{life}"
    yield f"x/{e:010d}/plan/{life}"
    yield f"x/{e:010d}/0000/{life}={life}"
    yield f"x/{e:010d}/measured/0000/{life}={life}"
    yield f"b/{e:010d}/0000/{life}"
    yield f"snap/{e:010d}/{life}/manifest.json"
    yield f"snap/{e:010d}/{life}/state.safetensors"
    yield f"gen/{life}"
    yield f"hb/{life}"
    yield f"end/{life}"
    yield f"rec/{life}/0000000000.jsonl.zst"
    yield f"rec/{life}/0000000009.jsonl.zst"


def others(e):
    yield f"log/{e:010d}.json"
    yield f"invite/{e:032x}"
    yield f"admit/a{e}"
    yield f"theta0/{e:032x}.safetensors"
    yield f"snap/9999999999/a{e}.0000/manifest.json"


def main():
    entries = len(os.listdir(os.path.join(run, "log")))
    if kind == "crowd":
        for i in range(2000):
            plant(f"c/{entries:010d}/a{i}.0000", "short")
            plant(f"c/{entries:010d}/r1.{i:04d}", "short")
        for i in range(200):
            for folder in ("gen", "hb", "end", "invite", "admit", "snap/9999999999"):
                plant(f"{folder}/a{i}.0000", "short")
            plant(f"gen/r1.{i:04d}", "short")
        return
    i = 0
    for e in range(entries, entries + 3):
        for replica, g in [(r, g) for r in ("r0", "r1", "a9") for g in (0, 1, 2)]:
            for key in names(e, replica, g):
                plant(key, KINDS[i % len(KINDS)] if kind == "mixed" else kind, replica)
                i += 1
        for key in others(e):
            plant(key, KINDS[i % len(KINDS)] if kind == "mixed" else kind)
            i += 1


main()
print(f"{n_planted} objects")
