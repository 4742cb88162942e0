#!/usr/bin/env python3
"""plant.py KIND RUN [WRITER] - what a writer without a key leaves in a run of keys.

Puts objects of every kind under free names of every pattern of docs/formats.md. The names are of
the next three entries, and of the current and next generations of r0 and r1.

    empty      no bytes
    short      three bytes
    huge       8 GiB of zeros; 5 MiB where it is not a folder
    folder     a folder with a file in it; in a store of objects, an object below the name
    pipe       a FIFO (folders only)
    another    what another member has signed
    earlier    what the same member has signed for an earlier entry
    file       a file where the run keeps a folder (c/<e> and the like)
    crowd      2,000 objects of unknown names and as many of r1 under c/, and 200 under other patterns;
               CROWD times as many, where that is set
    mixed      each of these but the last in turn
    nobody     the same, but no name of r0 or r1, as a run without keys tolerates it

RUN is the folder that holds the run, of a hub as well. WRITER says how objects are put: nothing for
the folder itself, http://HOST:PORT/RUN for a hub, s3:/BUCKET for a bucket at S3_TEST_ENDPOINT. For
a bucket RUN is a prefix in it, and objects are read there, too.
"""
import os
import pathlib
import shutil
import sys
import urllib.error
import urllib.request

KINDS = ["empty", "short", "huge", "folder", "pipe", "another", "earlier", "file"]
CROWD = float(os.environ.get("CROWD", "1"))
kind, run = sys.argv[1:3]
writer = sys.argv[3] if len(sys.argv) > 3 else ""
n_planted = n_refused = 0


# ---- where to


class Folder:
    huge = 8 << 30

    def keys(self):
        return {os.path.relpath(os.path.join(path, name), run) for path, _, files in os.walk(run)
                for name in files}

    def read(self, key):
        return pathlib.Path(run, key).read_bytes()

    def is_free(self, key):
        path = os.path.join(run, key)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except (FileExistsError, NotADirectoryError):  # this script put it there
            return False
        return not os.path.lexists(path)

    def put(self, key, text, length=None):
        """All at once: a writer that may change what others have read is beyond this script."""
        beside = f"{run}.{os.getpid()}"
        with open(beside, "wb") as file:
            file.write(text)
            if length:
                file.truncate(length)
        try:
            os.link(beside, os.path.join(run, key))
        except FileExistsError:  # a replica was faster
            global n_refused
            n_refused += 1
        os.unlink(beside)

    def put_huge(self, key):
        self.put(key, b"", self.huge)

    def put_folder(self, key):
        os.mkdir(os.path.join(run, key))
        self.put(key + "/x", b"")

    def put_pipe(self, key):
        os.mkfifo(os.path.join(run, key))


class Objects(Folder):
    huge = 5 << 20

    def is_free(self, key):
        return True

    def put_huge(self, key):
        self.put(key, bytes(self.huge))

    def put_folder(self, key):
        self.put(key + "/x", b"")

    def put_pipe(self, key):
        pass


class Hub(Objects):
    """Its folder shows what is there; objects are put as anyone may."""

    def put(self, key, text):
        global n_refused
        request = urllib.request.Request(f"{writer}/{key}", text, {"If-None-Match": "*"}, method="PUT")
        try:
            urllib.request.urlopen(request).close()
        except urllib.error.HTTPError as error:
            if error.code not in (409, 412):
                raise SystemExit(f"PUT {key}: {error.code}") from error
            n_refused += 1
        except urllib.error.URLError as error:  # refused before the body was sent
            if not isinstance(error.reason, ConnectionError):
                raise
            n_refused += 1


class Bucket(Objects):
    def __init__(self):
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "servers"))
        import s3_admin

        self.request = s3_admin.request
        self.bucket = writer.removeprefix("s3:")

    def keys(self):
        import re

        below = run.strip("/") + "/"
        status, text = self.request("GET", f"{self.bucket}?list-type=2&prefix={below}")
        assert status == 200, text
        return {k.removeprefix(below) for k in re.findall(r"<Key>([^<]*)</Key>", text.decode())}

    def read(self, key):
        return self.request("GET", f"{self.bucket}/{run.strip('/')}/{key}")[1]

    def put(self, key, text):
        global n_refused
        if key in honest:
            return
        try:
            status, answer = self.request("PUT", f"{self.bucket}/{run.strip('/')}/{key}", text)
        except ConnectionError:  # refused before the body was sent
            status, answer = 409, b""
        assert status in (200, 409), answer
        n_refused += status == 409


where = Hub() if writer.startswith("http") else Bucket() if writer else Folder()
honest = sorted(where.keys())  # before anything is planted
contents = {}


# ---- objects


def first(folder, name):
    """The bytes of that object, or of any other of the folder."""
    key = f"{folder}/{name}"
    others = [k for k in honest if k.startswith(folder + "/")]
    key = key if key in honest else others[0] if others else "run.json"
    if key not in contents:
        try:
            contents[key] = where.read(key)
        except FileNotFoundError:  # collected since it was listed
            contents[key] = where.read("run.json")
    return contents[key]


def plant(key, how, replica="r1"):
    global n_planted
    if how == "file":  # at the name of the object's folder
        key = key.rsplit("/", 1)[0]
        if key in ("log", "gen", "hb", "theta0", "c") or "/" not in key:
            return
        how = "short"
    if not where.is_free(key):
        return
    n_planted += 1
    pattern = key.split("/")[0]
    if how == "folder":
        where.put_folder(key)
    elif how == "pipe":
        where.put_pipe(key)
    elif how == "huge":
        where.put_huge(key)
    elif how in ("another", "earlier"):
        other = {"r0": "r1", "r1": "r0"}.get(replica, "r0") if how == "another" else replica
        at = {"c": f"0000000000/{other}.0000", "log": "0000000000.json"}.get(pattern)
        where.put(key, first(pattern, at or f"{other}.0000"))
    else:
        where.put(key, b"abc" if how == "short" else b"")


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
    yield f"rec/_create.0000/{e:010d}.jsonl.zst"
    yield f"launch/{e:010d}.json"
    yield "batch.json"


def plant_crowd(entries):
    for i in range(int(2000 * CROWD)):
        plant(f"c/{entries:010d}/a{i}.0000", "short")
        plant(f"c/{entries:010d}/r1.{i:04d}", "short")
    for i in range(int(200 * CROWD)):
        for folder in ("gen", "hb", "end", "invite", "admit", "snap/9999999999"):
            plant(f"{folder}/a{i}.0000", "short")
        plant(f"gen/r1.{i:04d}", "short")


def main():
    entries = len([k for k in honest if k.startswith("log/")])
    if kind == "crowd":
        return plant_crowd(entries)
    replicas = ["a9"] if kind == "nobody" else ["r0", "r1", "a9"]
    i = 0
    for e in range(entries, entries + 3):
        all_names = [(key, r) for r in replicas for g in (0, 1, 2) for key in names(e, r, g)]
        all_names += [(key, "r1") for key in others(e)]
        for key, replica in all_names:
            plant(key, KINDS[i % len(KINDS)] if kind in ("mixed", "nobody") else kind, replica)
            i += 1


main()
print(f"{n_planted} objects" + (f", {n_refused} of them refused" if n_refused else ""))
