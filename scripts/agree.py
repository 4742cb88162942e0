#!/usr/bin/env python3
"""agree.py VERSION [PROGRAM]: everything that names the version of the project names VERSION.

With PROGRAM (the built diloco), it and the manual that it writes are asked, too. Prints every place that
disagrees, and then fails."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def find(path, pattern):
    """The texts that the groups of pattern match in a file of the project, joined by dots; None."""
    found = re.search(pattern, (ROOT / path).read_text(), re.M | re.S)
    return found and ".".join(found.groups())


def named():
    """Pairs: a place, and the version it names."""
    yield "CMakeLists.txt", find("CMakeLists.txt", r"^project\(diloco VERSION ([0-9.]+)")
    yield "include/diloco/diloco.h", find(
        "include/diloco/diloco.h",
        r"VERSION_MAJOR (\d+)\n.*?VERSION_MINOR (\d+)\n.*?VERSION_PATCH (\d+)\n")
    yield "include/diloco/diloco.h, diloco_version", find(
        "include/diloco/diloco.h", r"diloco_version\(void\); /\* of the library: \"([0-9.]+)\"")
    yield "python/diloco/_version.py", find("python/diloco/_version.py", r'__version__ = "([0-9.]+)"')
    if re.search(r'^version *=', (ROOT / "python/pyproject.toml").read_text(), re.M):
        yield "python/pyproject.toml", find("python/pyproject.toml", r'^version *= *"([0-9.]+)"')
    yield "CHANGELOG.md, its first section", find("CHANGELOG.md", r"^## ([0-9.]+)")


def written(program):
    """The same, of a program and of the pages of the manual that it writes."""
    said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\d+\.\d+\.\d+", said)
    yield "diloco --version", found and found.group()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "man", folder], check=True, stdout=subprocess.DEVNULL)
        for page in sorted(pathlib.Path(folder).iterdir()):
            found = re.search(r'^\.TH .* "diloco ([0-9.]+)"', page.read_text(), re.M)
            yield f"the manual's {page.name}", found and found.group(1)


def main(version, program=None):
    places = [*named(), *(written(program) if program else [])]
    wrong = [f"{place} names version {there or 'nothing'}, not {version}" for place, there in places
             if there != version]
    print("\n".join(wrong) if wrong else f"{len(places)} places name version {version}",
          file=sys.stderr if wrong else sys.stdout)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
