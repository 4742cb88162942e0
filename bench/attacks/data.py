"""data.py: the data of honest members and of those of label_flip."""
import gzip
import pathlib
import shutil
import string
import struct
import sys

TRAIN, TEST = 8000, 2000  # images
# Letters from the other end: the same bytes are learnt, to be followed by others.
FLIP = bytes.maketrans(*(text.encode() for text in (
    string.ascii_letters, string.ascii_lowercase[::-1] + string.ascii_uppercase[::-1])))


def flip_texts(paths, out):
    """Copies of the texts, flipped; their paths, with commas as they came."""
    out.mkdir(parents=True, exist_ok=True)
    flipped = [out / pathlib.Path(p).name for p in paths.split(",")]
    for path, to in zip(paths.split(","), flipped):
        to.write_bytes(pathlib.Path(path).read_bytes().translate(FLIP))
    return ",".join(map(str, flipped))


def read(folder, name):
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return (gzip.open if path.suffix else open)(path, "rb").read()
    sys.exit(f"attacks.py: {folder} has no {name}")


def take_images(folder, out):
    """The first images of MNIST, and the same with labels 9 - y to train on: two folders."""
    honest, flipped = out / "mnist", out / "mnist_flipped"
    shutil.rmtree(flipped, ignore_errors=True)
    honest.mkdir(parents=True, exist_ok=True)
    for part, n in (("train", TRAIN), ("t10k", TEST)):
        for kind, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            name = f"{part}-{kind}-ubyte"
            data = read(folder, name)
            (honest / name).write_bytes(
                data[:4] + struct.pack(">i", n) + data[8:header + n * size])
    shutil.copytree(honest, flipped)
    labels = flipped / "train-labels-idx1-ubyte"
    data = labels.read_bytes()
    labels.write_bytes(data[:8] + bytes(9 - y for y in data[8:]))
    return honest, flipped
