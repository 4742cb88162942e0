#!/usr/bin/env python3
"""make_wheel.py PROGRAM FOLDER: write a wheel that holds the program where the project's own wheel has it, and print
its path. The tests of `launch` use it: the project's wheel takes minutes to build."""
import base64
import hashlib
import pathlib
import sys
import zipfile

NAME, VERSION = "diloco", "0.0.1"


def main():
    program, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    info = f"{NAME}-{VERSION}.dist-info"
    files = {"diloco/__init__.py": b"FROM_WHEEL = True\n",
             "diloco/_lib/diloco": program.read_bytes(),
             f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n".encode(),
             f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = folder / f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if name.endswith("_lib/diloco") else 0o100644) << 16
            out.writestr(entry, data)
    print(wheel)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


main()
