"""The build backend (PEP 517): CMake builds the library, zipfile packs the wheel.

The wheel holds the package and, under diloco/_lib, the libraries libdiloco-train.so and
libdiloco.so and the program; their dependencies (libcurl, OpenSSL, …) stay the
system's. The sources are those of the worktree around this folder or, from an sdist, those that
build_sdist put beside it as csrc/.

In the environment: DILOCO_BUILD names a build folder to use instead of build/python. CMAKE_ARGS is given to CMake. DILOCO_LICENSES names a folder of licence texts, which go
into the wheel beside ours (`make wheel`). SOURCE_DATE_EPOCH dates the files of a source distribution.
"""

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE / "csrc" if (HERE / "csrc").is_dir() else HERE.parent
TARGETS = ["diloco_diloco_shared", "diloco_train_shared", "diloco"]
SOURCES = ["CMakeLists.txt", "LICENSE", "CHANGELOG.md", "README.md", "cmake", "docs", "include",
           "src", "web"]

PYTHON = (3, 9)  # the oldest, as in pyproject.toml

# The packages of scripts/packages.sh, set build.
DEBIAN = ("on Debian: apt install gcc g++ libc6-dev make cmake ninja-build pkg-config libxxhash-dev "
          "zlib1g-dev libtomlplusplus-dev libcurl4-openssl-dev libssl-dev libexpat1-dev "
          "libmicrohttpd-dev libgnutls28-dev libzstd-dev")
OR_WHEEL = ", or install the manylinux wheel of the release, which needs no compiler"


class BuildError(Exception):
    """Why there is no wheel, and what to do about it."""


def version():
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"^project\(diloco VERSION ([0-9.]+)", text, re.M).group(1)
    ours = re.search(r'"([0-9.]+)"', (HERE / "diloco/_version.py").read_text()).group(1)
    if ours != found:
        raise BuildError(f"diloco/_version.py says {ours}, CMakeLists.txt {found}")
    return found


# ---- the library -------------------------------------------------------------------------


def need_new_cmake():
    text = (ROOT / "CMakeLists.txt").read_text()
    wanted = re.search(r"^cmake_minimum_required\(VERSION ([0-9.]+)", text, re.M).group(1)
    said = subprocess.run(["cmake", "--version"], stdout=subprocess.PIPE, text=True).stdout
    have = re.match(r"cmake version (\d+(\.\d+)*)", said)
    if have and [int(n) for n in have.group(1).split(".")] < [int(n) for n in wanted.split(".")]:
        raise BuildError(f"CMake {have.group(1)} is too old, and {wanted} or later is needed: put a "
                         f"newer one first in PATH (pip install cmake){OR_WHEEL}")


def need_tools():
    if sys.version_info < PYTHON:
        raise BuildError(f"Python {sys.version.split()[0]} is too old, and {PYTHON[0]}.{PYTHON[1]} "
                         "or later is needed: use the pip of a newer one")
    if not shutil.which("cmake"):
        raise BuildError("CMake is not installed, and the library is built with it: install cmake "
                         f">= 3.25 ({DEBIAN}){OR_WHEEL}")
    need_new_cmake()
    compilers = [c for c in (os.environ.get("CC"), "cc", "gcc", "clang") if c]
    if not any(shutil.which(shlex.split(c)[0]) for c in compilers):
        raise BuildError("no C compiler is installed, and the library is built with one: install "
                         f"gcc or clang, or name one as CC ({DEBIAN}){OR_WHEEL}")


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = done.stdout.splitlines()[-40:]
        errors = [i for i, line in enumerate(lines) if line.startswith("CMake Error")]
        said = "\n".join(lines[errors[0] if errors else 0:])
        raise BuildError(f"{' '.join(map(str, command))} failed:\n{said}\nThe library could not be "
                         f"built: install what the lines above miss ({DEBIAN}){OR_WHEEL}")


def configure(folder):
    """Configures the build once. A failed configure leaves no cache that spoils the next one."""
    if any((folder / name).exists() for name in ("build.ninja", "Makefile")):
        return
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    (folder / "CMakeCache.txt").unlink(missing_ok=True)
    run(["cmake", "-S", ROOT, "-B", folder, *ninja, "-DCMAKE_BUILD_TYPE=Release",
         "-DDILOCO_TESTS=OFF", "-DDILOCO_BENCH=OFF", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
         *shlex.split(os.environ.get("CMAKE_ARGS", ""))])


def build_library(folder):
    """The files of the library, built in folder."""
    need_tools()
    configure(folder)
    run(["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1), "--target", *TARGETS])
    return [folder / "libdiloco.so.0", folder / "libdiloco-train.so", folder / "diloco"]


# ---- the wheel ---------------------------------------------------------------------------


def tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{platform}"


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: diloco", f"Version: {version()}",
             "Summary: DiLoCo training on machines that can barely talk to each other",
             "License: Apache-2.0", f"Requires-Python: >={PYTHON[0]}.{PYTHON[1]}"]
    return "\n".join(lines) + "\n"


class Wheel:
    """A wheel being written: every file goes into RECORD."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.info = f"diloco-{version()}.dist-info"
        self.record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # equal sources, equal bytes
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self):
        self.add(f"{self.info}/METADATA", metadata().encode())
        self.add(f"{self.info}/WHEEL", (f"Wheel-Version: 1.0\nGenerator: diloco ({version()})\n"
                                        f"Root-Is-Purelib: false\nTag: {tag()}\n").encode())
        self.add(f"{self.info}/entry_points.txt",
                 b"[console_scripts]\ndiloco = diloco._program:main\n")
        for name, data in license_files():
            self.add(f"{self.info}/licenses/{name}", data)
        rows = [*self.record, f"{self.info}/RECORD,,"]
        self.zip.writestr(f"{self.info}/RECORD", "\n".join(rows) + "\n")
        self.zip.close()


def package_files():
    for path in sorted((HERE / "diloco").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed"):
            yield path


def license_files():
    """Names and bytes for dist-info/licenses: ours and, in DILOCO_LICENSES, those of what is
    bundled."""
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    others = os.environ.get("DILOCO_LICENSES")
    for path in sorted(pathlib.Path(others).iterdir()) if others else []:
        yield f"bundled/{path.name}", path.read_bytes()


def write_wheel(path, library):
    wheel = Wheel(path)
    for file in package_files():
        wheel.add(file.relative_to(HERE).as_posix(), file.read_bytes())
    for file in library:
        wheel.add(f"diloco/_lib/{file.name}", file.read_bytes(), 0o755)
    wheel.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = pathlib.Path(os.environ.get("DILOCO_BUILD") or ROOT / "build/python").resolve()
    name = f"diloco-{version()}-{tag()}.whl"
    try:
        library = build_library(folder)
    except BuildError as error:  # without a traceback, which would hide the sentence
        raise SystemExit(f"diloco: {error}") from None
    write_wheel(pathlib.Path(wheel_directory) / name, library)
    return name


# ---- the source distribution -------------------------------------------------------------


def sdist_files():
    """Pairs of a name in the archive and a file: the package's folder, and as csrc/ what CMake
    needs of the project."""
    for path in [HERE / "pyproject.toml", HERE / "_build.py", *package_files()]:
        yield path.relative_to(HERE).as_posix(), path
    for source in SOURCES:
        top = ROOT / source
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                yield f"csrc/{path.relative_to(ROOT).as_posix()}", path


def build_sdist(sdist_directory, config_settings=None):
    """Equal files and an equal SOURCE_DATE_EPOCH give equal bytes."""
    top = f"diloco-{version()}"
    name = f"{top}.tar.gz"
    date = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    content = [("PKG-INFO", metadata().encode(), 0o644)]
    for inside, path in sdist_files():
        content.append((inside, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644))
    with open(pathlib.Path(sdist_directory) / name, "wb") as file, \
            gzip.GzipFile("", "wb", fileobj=file, mtime=date) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for inside, data, mode in content:
            entry = tarfile.TarInfo(f"{top}/{inside}")
            entry.size, entry.mode, entry.mtime = len(data), mode, date
            tar.addfile(entry, io.BytesIO(data))
    return name
