#!/usr/bin/env python3
"""plant.py [--unlisted] KIND RUN [WRITER] - what a writer without a key leaves in a run of keys.

Puts objects under free names of every pattern of docs/formats.md (tests/docs_test.py compares them).
The names are of the next entries. They are also of the newest and of later generations of r0 and r1,
and of a replica that no other object names. The kinds of objects:

    empty      no bytes
    short      three bytes
    huge       8 GiB of zeros; 5 MiB where it is not a folder
    folder     a folder with a file in it; in a store of objects, an object below the name
    pipe       a FIFO (folders only)
    another    what another member has signed
    earlier    what the same member has signed for an earlier entry
    pointer    in a bucket, the pointer to an object that does not exist
    file       a file where the run keeps a folder (c/<e> and the like)
    crowd      2,000 objects of unknown names and as many of one replica under c/, and 200 of each other
               pattern but log/; CROWD times as many, where that is set
    mixed      each of these but the last in turn, from name to name
    each       the same, but one kind for three entries, a free entry, then the next kind

With --unlisted no name is of r0 or r1, as a run without keys tolerates it. Prints one line: the number
of the last entry under whose name it may have put an object, then how many objects it put.

RUN is the folder that holds the run, of a hub as well. WRITER says how objects are put: nothing for
the folder itself, http://HOST:PORT/RUN for a hub, s3:/BUCKET for a bucket at S3_TEST_ENDPOINT. For
a bucket RUN is a prefix in it, and objects are read there, too.
"""
import http.client
import itertools
import os
import pathlib
import re
import sys
import urllib.parse

KINDS = ["pointer", "file", "empty", "short", "huge", "folder", "pipe", "another", "earlier"]
CROWD = float(os.environ.get("CROWD", "1"))
HERE = pathlib.Path(__file__).resolve().parent
SIGNED_MIN, SIGNED_MAX = 200, 1 << 20  # bytes of what a member has signed


# ---- names


def names(e, replica, g):
    """Names of a generation of a replica."""
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
    """Names of an entry, and of what the store of a run holds besides."""
    yield f"log/{e:010d}.json"
    yield f"invite/{e:032x}"
    yield f"admit/a{e}"
    yield f"theta0/{e:032x}.safetensors"
    yield f"snap/9999999999/a{e}.0000/manifest.json"
    yield f"rec/_create.0000/{e:010d}.jsonl.zst"
    yield f"launch/{e:010d}.json"
    yield f"out/j{e}/{e:010d}-0000000000.zst"
    yield "batch.json"


def foreign(e):
    """Names of stores that hold no run with a log: of a node without one, of clients' states."""
    yield "me/id"
    yield "me/beat.json"
    yield f"hb/a{e}"
    yield f"a/{e:010d}/r0.0000"
    yield f"st/{e:032x}/1/{e}.{e:032x}"


def hidden(e):
    """Names of what a pointer leads to in a bucket. A folder and a hub have no such names."""
    yield f".b/log/{e:010d}.json/{e:032x}"
    yield f".b/c/{e:010d}/r1.0000/{e:032x}"


def without_replica(e):
    return [(key, "r1") for each in (others(e), foreign(e), hidden(e)) for key in each]


def all_names():
    """One name at least of every pattern, for tests/docs_test.py."""
    yield "run.json"  # which is there before anything is planted
    for each in (names(7, "r0", 3), others(7), foreign(7), hidden(7)):
        yield from each


# ---- stores


class Folder:
    huge = 8 << 30

    def __init__(self, run):
        self.run = run
        self.n_refused = 0
        self.honest = sorted(self.keys())  # before anything is planted

    def keys(self):
        return {os.path.relpath(os.path.join(path, name), self.run)
                for path, _, files in os.walk(self.run) for name in files}

    def read(self, key):
        """The bytes of an object that a member may have signed, or nothing."""
        path = pathlib.Path(self.run, key)
        try:
            if not path.is_file() or not SIGNED_MIN <= path.stat().st_size <= SIGNED_MAX:
                return b""
            return path.read_bytes()
        except FileNotFoundError:  # collected since it was listed
            return b""

    def is_free(self, key):
        path = os.path.join(self.run, key)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except (FileExistsError, NotADirectoryError):  # this script put it there
            return False
        return not os.path.lexists(path)

    def put(self, key, text, length=None):
        """All at once: a writer that may change what others have read is beyond this script."""
        beside = f"{self.run}.{os.getpid()}"
        with open(beside, "wb") as file:
            file.write(text)
            if length:
                file.truncate(length)
        try:
            os.link(beside, os.path.join(self.run, key))
        except (FileExistsError, FileNotFoundError):  # a replica was faster
            self.n_refused += 1
        os.unlink(beside)

    def put_huge(self, key):
        self.put(key, b"", self.huge)

    def put_folder(self, key):
        try:
            os.mkdir(os.path.join(self.run, key))
        except (FileExistsError, FileNotFoundError):
            self.n_refused += 1
            return
        self.put(key + "/x", b"")

    def put_pipe(self, key):
        try:
            os.mkfifo(os.path.join(self.run, key))
        except (FileExistsError, FileNotFoundError):
            self.n_refused += 1


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

    def __init__(self, run, url):
        super().__init__(run)
        self.url = urllib.parse.urlsplit(url)
        self.connection = http.client.HTTPConnection(self.url.netloc, timeout=120)

    def put(self, key, text):
        try:
            self.connection.request("PUT", f"{self.url.path}/{key}", text, {"If-None-Match": "*"})
            answer = self.connection.getresponse()
            answer.read()
            status = answer.status
        except ConnectionRefusedError as error:
            raise SystemExit(f"PUT {key}: the hub does not run") from error
        except (ConnectionError, http.client.BadStatusLine):  # refused before the body was sent
            self.connection.close()
            status = 409
        if status >= 300:
            if status not in (409, 412) and not (status == 400 and key.startswith(".b/")):
                raise SystemExit(f"PUT {key}: {status}")
            self.n_refused += 1


class Bucket(Objects):
    def __init__(self, run, bucket):
        sys.path.insert(0, str(HERE.parent / "servers"))
        import s3_admin

        self.request = s3_admin.request
        self.bucket = bucket
        super().__init__(run.strip("/"))

    def keys(self):
        status, text = self.request("GET", f"{self.bucket}?list-type=2&prefix={self.run}/")
        assert status == 200, text
        found = re.findall(r"<Key>([^<]*)</Key>", text.decode())
        return {key.removeprefix(self.run + "/") for key in found}

    def read(self, key):
        return self.request("GET", f"{self.bucket}/{self.run}/{key}")[1]

    def put(self, key, text):
        if key in self.honest:
            return
        try:
            status, answer = self.request("PUT", f"{self.bucket}/{self.run}/{key}", text)
        except ConnectionError:  # refused before the body was sent
            status, answer = 409, b""
        refused = status == 409 or (status == 400 and key.startswith(".b/"))
        assert status == 200 or refused, answer
        self.n_refused += refused


# ---- objects


class Planter:
    def __init__(self, where, unlisted):
        self.where = where
        self.n_planted = 0
        self.contents = {}
        self.entries = 1 + max((int(key[4:14]) for key in where.honest
                                if re.match(r"log/\d{10}\.json", key)), default=-1)
        self.last = self.entries  # at whose name an object may be
        self.stranger = f"a{self.entries}"
        self.replicas = [self.stranger] if unlisted else ["r0", "r1", self.stranger]

    def signed(self, folder, name):
        """The bytes of that object, or of any other of the folder."""
        key = f"{folder}/{name}"
        if key not in self.contents:
            keys = [k for k in self.where.honest if k.startswith(folder + "/")]
            found = (self.where.read(k) for k in ([key] if key in keys else []) + keys[:50])
            self.contents[key] = next(filter(None, found), b"") or self.where.read("run.json")
        return self.contents[key]

    def put(self, key, how, replica="r1"):
        where = self.where
        if how == "file":  # at the name of the object's folder
            key = key.rsplit("/", 1)[0]
            if key in ("log", "gen", "hb", "theta0", "c") or "/" not in key:
                return
            how = "short"
        if not where.is_free(key):
            return
        self.n_planted += 1
        pattern = key.split("/")[0]
        if how == "folder":
            where.put_folder(key)
        elif how == "pipe":
            where.put_pipe(key)
        elif how == "huge":
            where.put_huge(key)
        elif how == "pointer":
            where.put(key, (HERE.parent / "formats/objects/pointer.bin").read_bytes())
        elif how in ("another", "earlier"):
            other = {"r0": "r1", "r1": "r0"}.get(replica, "r0") if how == "another" else replica
            at = {"c": f"0000000000/{other}.0000", "log": "0000000000.json"}.get(pattern)
            where.put(key, self.signed(pattern, at or f"{other}.0000"))
        else:
            where.put(key, b"abc" if how == "short" else b"")

    def put_crowd(self):
        e = self.entries
        replica = self.replicas[:2][-1]
        for i in range(int(2000 * CROWD)):
            self.put(f"c/{e:010d}/a{i}.0000", "short")
            self.put(f"c/{e:010d}/{replica}.{i:04d}", "short")
        for i in range(int(200 * CROWD)):
            for key in (*names(e, f"a{i}", 0), *others(10**9 + i)):
                if not key.startswith("log/"):  # a forged entry costs its round
                    self.put(key, "short")
            self.put(f"gen/{replica}.{i:04d}", "short")

    def newest(self, replica):
        """The newest generation of that name."""
        return max((int(key[len(replica) + 5 :]) for key in self.where.honest
                    if re.fullmatch(rf"gen/{replica}\.\d{{4,7}}", key)), default=0)

    def put_keys(self, keys, kinds):
        """Each object is of the next kind."""
        for (key, replica), kind in zip(keys, kinds):
            self.put(key, kind, replica)

    def put_all(self, kind):
        """For three entries, and for the newest generation and the two after it."""
        kinds = itertools.cycle(KINDS if kind == "mixed" else [kind])
        newest = max(map(self.newest, self.replicas))
        self.last = self.entries + 2
        for e in range(self.entries, self.last + 1):
            keys = [(key, r) for r in self.replicas for g in range(newest, newest + 3)
                    for key in names(e, r, g)]
            self.put_keys(keys + without_replica(e), kinds)

    def put_each(self):
        """No generation of r1 after its newest one can begin, one for each kind. When its name holds
        junk it becomes the free one after these, and by the next kind the next one. So does r0, whose
        generations can begin."""
        newest = {r: self.newest(r) for r in self.replicas}
        for i, kind in enumerate(KINDS):
            e = self.entries + 3 * i
            self.last = e + 1
            keys = without_replica(e) + without_replica(e + 1)
            for r in self.replicas:
                g = newest[r]
                free = g + 1 + (len(KINDS) if r == "r1" else 0)
                keys += [(key, r) for key in names(e, r, g + 1 + i) if r != "r0"]
                keys += [(key, r) for each in (g, *range(free, free + 1 + i)) if r != self.stranger
                         for key in names(e, r, each) if f"/{e:010d}/" in key]
            self.put_keys(keys, itertools.repeat(kind))


def main(arguments):
    unlisted = arguments[0] == "--unlisted"
    kind, run, *writer = arguments[unlisted:]
    if writer and writer[0].startswith("http"):
        where = Hub(run, writer[0])
    else:
        where = Bucket(run, writer[0].removeprefix("s3:")) if writer else Folder(run)
    planter = Planter(where, unlisted)
    if kind == "crowd":
        planter.put_crowd()
    elif kind == "each":
        planter.put_each()
    else:
        planter.put_all(kind)
    refused = f", {where.n_refused} of them refused" if where.n_refused else ""
    print(f"{planter.last} {planter.n_planted} objects{refused}")


if __name__ == "__main__":
    main(sys.argv[1:])
