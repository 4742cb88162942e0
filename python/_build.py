"""The build backend (PEP 517): CMake builds the library, zipfile packs the wheel.

The wheel holds the package and, under diloco/_lib, the libraries libdiloco-train.so and
libdiloco.so and the program; what these need of the system (libcurl, OpenSSL, …) stays the
system's. The sources are those of the worktree around this folder or, from an sdist, those that
build_sdist put beside it as csrc/.

In the environment: DILOCO_BUILD names a build folder to use and keep instead of a new one under
build/python; CMAKE_ARGS is given to CMake.
"""

import base64
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE / "csrc" if (HERE / "csrc").is_dir() else HERE.parent
TARGETS = ["diloco_diloco_shared", "diloco_train_shared", "diloco"]
SOURCES = ["CMakeLists.txt", "LICENSE", "CHANGELOG.md", "README.md", "cmake", "docs", "include",
           "src"]


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


def need_tools():
    if not shutil.which("cmake"):
        raise BuildError("CMake is not installed, and the library is built with it: install "
                         "cmake >= 3.25 (Debian: apt install cmake ninja-build)")
    compilers = [c for c in (os.environ.get("CC"), "cc", "gcc", "clang") if c]
    if not any(shutil.which(shlex.split(c)[0]) for c in compilers):
        raise BuildError("no C compiler is installed, and the library is built with one: install "
                         "gcc or clang (Debian: apt install gcc g++ libc6-dev), or name one as CC")


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-40:])
        raise BuildError(f"{' '.join(map(str, command))} failed:\n{said}\nWhat the library needs "
                         "of the system stands in scripts/packages.sh: `make packages-build` "
                         "installs it")


def build_library(folder):
    """The files of the library, built in folder."""
    need_tools()
    if not (folder / "CMakeCache.txt").exists():
        ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
        run(["cmake", "-S", ROOT, "-B", folder, *ninja, "-DCMAKE_BUILD_TYPE=Release",
             "-DDILOCO_TESTS=OFF", "-DDILOCO_BENCH=OFF", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
             *shlex.split(os.environ.get("CMAKE_ARGS", ""))])
    run(["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1), "--target", *TARGETS])
    return [folder / "libdiloco.so.0", folder / "libdiloco-train.so", folder / "diloco"]


# ---- the wheel ---------------------------------------------------------------------------


def tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{platform}"


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: diloco", f"Version: {version()}",
             "Summary: DiLoCo training on machines that can barely talk to each other",
             "License: Apache-2.0", "Requires-Python: >=3.9"]
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
        self.add(f"{self.info}/LICENSE", (ROOT / "LICENSE").read_bytes())
        rows = [*self.record, f"{self.info}/RECORD,,"]
        self.zip.writestr(f"{self.info}/RECORD", "\n".join(rows) + "\n")
        self.zip.close()


def package_files():
    for path in sorted((HERE / "diloco").rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed"):
            yield path


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = pathlib.Path(os.environ.get("DILOCO_BUILD") or ROOT / "build/python").resolve()
    name = f"diloco-{version()}-{tag()}.whl"
    library = build_library(folder)
    wheel = Wheel(pathlib.Path(wheel_directory) / name)
    for path in package_files():
        wheel.add(path.relative_to(HERE).as_posix(), path.read_bytes())
    for path in library:
        wheel.add(f"diloco/_lib/{path.name}", path.read_bytes(), 0o755)
    wheel.close()
    return name


# ---- the source distribution -------------------------------------------------------------


def build_sdist(sdist_directory, config_settings=None):
    """The package's folder, and as csrc/ what CMake needs of the project."""
    top = f"diloco-{version()}"
    name = f"{top}.tar.gz"
    with tarfile.open(pathlib.Path(sdist_directory) / name, "w:gz") as tar, \
            tempfile.TemporaryDirectory() as scratch:
        info = pathlib.Path(scratch) / "PKG-INFO"
        info.write_text(metadata())
        tar.add(info, f"{top}/PKG-INFO")
        for path in [HERE / "pyproject.toml", HERE / "_build.py", *package_files()]:
            tar.add(path, f"{top}/{path.relative_to(HERE).as_posix()}")
        for source in SOURCES:
            if (ROOT / source).exists():
                tar.add(ROOT / source, f"{top}/csrc/{source}")
    return name
