"""wheel_test.py - `pip install ./python` and the source distribution.

DILOCO_BUILD: the build folder whose library goes into the wheel, so that nothing is compiled a
second time. No network is needed: the backend has no requirements."""
import ast
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import unittest
import unittest.mock
import zipfile

HERE = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))
import _build  # noqa: E402

TOY = """
import array, sys, diloco
assert "_lib" in diloco._c.candidates()[0], diloco._c.candidates()
w = array.array("f", [0] * 8)
with diloco.Run(sys.argv[1], sync_every=5, rounds=2) as run:
    run.tensor("w", w)
    run.join()
    while not run.done:
        w[0] += 1
        run.step(loss=1)
assert len(diloco.run(sys.argv[1]).history()) == 2 and w[0] > 5, w
"""


def clean_environment(**more):
    return {**{k: v for k, v in os.environ.items()
               if k not in ("DILOCO_LIBRARY", "PYTHONPATH", "PIP_NO_INDEX")}, **more}


class Wheel(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def test_what_pip_installs_trains(self):
        try:
            import pip  # noqa: F401
        except ImportError:
            print("left out: pip install ./python (no pip)")
            self.skipTest("no pip")
        site = self.scratch / "site"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index",
                        "--disable-pip-version-check", "--root-user-action=ignore",
                        "--target", site, HERE], check=True, env=clean_environment())
        environment = clean_environment(PYTHONPATH=str(site))
        subprocess.run([sys.executable, "-c", TOY, "run"], check=True, cwd=self.scratch,
                       env=environment)
        said = subprocess.run([sys.executable, site / "bin/diloco", "verify", "run"], check=True,
                              capture_output=True, text=True, cwd=self.scratch, env=environment)
        self.assertIn("2", said.stdout)

    def test_the_wheel_is_of_this_platform_and_any_python(self):
        name = _build.build_wheel(self.scratch)
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        self.assertEqual(name, f"diloco-{_build.version()}-py3-none-{platform}.whl")
        names = zipfile.ZipFile(self.scratch / name).namelist()
        for path in ("diloco/__init__.py", "diloco/py.typed", "diloco/_lib/libdiloco.so.0",
                     "diloco/_lib/libdiloco-train.so", "diloco/_lib/diloco"):
            self.assertIn(path, names)

    def pip(self, *arguments, command="install"):
        """Status and output of pip, which asks no network."""
        try:
            import pip  # noqa: F401
        except ImportError:
            print("left out: a wheel of another platform (no pip)")
            self.skipTest("no pip")
        where = {"install": ["--root-user-action=ignore", "--target"], "download": ["--dest"]}
        done = subprocess.run([sys.executable, "-m", "pip", command, "--no-index",
                               "--disable-pip-version-check", *where[command],
                               self.scratch / "site", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env=clean_environment())
        return done.returncode, done.stdout

    def wheel_of(self, platform, *library):
        wheel = self.scratch / f"diloco-{_build.version()}-py3-none-{platform}.whl"
        _build.write_wheel(wheel, library)
        return wheel

    def test_pip_refuses_a_wheel_of_another_platform_or_for_a_newer_python(self):
        status, said = self.pip(self.wheel_of("win_amd64"))
        self.assertEqual(status, 1, said)
        self.assertIn("not a supported wheel on this platform", said)
        wheel = self.wheel_of(sysconfig.get_platform().replace("-", "_").replace(".", "_"))
        status, said = self.pip("--python-version", "3.8", "--only-binary", ":all:", wheel,
                                command="download")  # its install ignores the first option
        self.assertEqual(status, 1, said)
        self.assertRegex(said, r"requires a different Python.*>=3\.9")

    def test_a_renamed_wheel_of_another_platform_says_which_one_to_install(self):
        library = [self.scratch / name for name in ("libdiloco-train.so", "libdiloco.so.0", "diloco")]
        for path in library:  # the head of a program for another machine
            path.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\xf3\x00" + bytes(44))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        status, said = self.pip(self.wheel_of(platform, *library))
        self.assertEqual(status, 0, said)
        site = self.scratch / "site"
        environment = clean_environment(PYTHONPATH=str(site))
        for command in (["-c", "import diloco; diloco.run('x').history()"], [site / "bin/diloco", "--version"]):
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True,
                                  cwd=self.scratch, env=environment)
            self.assertEqual(done.returncode, 1)
            last = done.stderr.strip().splitlines()[-1]
            self.assertIn("pip install ./python", last)
            self.assertIn("another platform", last)
            self.assertEqual("Traceback" in done.stderr, command[0] == "-c")

    def test_the_source_distribution_holds_what_cmake_needs(self):
        name = _build.build_sdist(self.scratch)
        with tarfile.open(self.scratch / name) as tar:
            tar.extractall(self.scratch)
        top = self.scratch / name[:-len(".tar.gz")]
        for path in ("pyproject.toml", "_build.py", "PKG-INFO", "diloco/_c.py", "csrc/LICENSE"):
            self.assertTrue((top / path).is_file(), path)
        subprocess.run(["cmake", "-S", top / "csrc", "-B", self.scratch / "build",
                        "-DDILOCO_TESTS=OFF", "-DDILOCO_BENCH=OFF"], check=True,
                       stdout=subprocess.DEVNULL)
        here = {p.relative_to(HERE.parent / "src") for p in (HERE.parent / "src").rglob("*.c")}
        there = {p.relative_to(top / "csrc/src") for p in (top / "csrc/src").rglob("*.c")}
        self.assertEqual(here, there)


    def test_equal_sources_give_equal_source_distributions(self):
        packed = []
        for name in ("first", "second"):
            (self.scratch / name).mkdir()
            with unittest.mock.patch.dict(os.environ, SOURCE_DATE_EPOCH="1700000000"):
                file = _build.build_sdist(self.scratch / name)
            packed.append((self.scratch / name / file).read_bytes())
        self.assertEqual(*packed)

    def test_licences_of_bundled_libraries_are_in_the_wheel(self):
        licenses = self.scratch / "licenses"
        licenses.mkdir()
        (licenses / "zlib").write_text("of zlib")
        with unittest.mock.patch.dict(os.environ, DILOCO_LICENSES=str(licenses)):
            _build.write_wheel(self.scratch / "a.whl", [])
        wheel = zipfile.ZipFile(self.scratch / "a.whl")
        info = f"diloco-{_build.version()}.dist-info/licenses"
        self.assertEqual(wheel.read(f"{info}/bundled/zlib"), b"of zlib")
        self.assertIn(b"Apache License", wheel.read(f"{info}/LICENSE"))


class Tools(unittest.TestCase):
    """Messages about a missing tool."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for name in ("PATH", "CC"):
            if name in os.environ:
                self.addCleanup(os.environ.__setitem__, name, os.environ[name])
        os.environ.pop("CC", None)
        os.environ["PATH"] = str(self.folder)

    def tool(self, name, does="echo no such package: libxxhash; exit 1"):
        (self.folder / name).write_text(f"#!/bin/sh\n{does}\n")
        (self.folder / name).chmod(0o755)

    def test_no_cmake(self):
        with self.assertRaisesRegex(_build.BuildError, "CMake is not installed"):
            _build.build_library(self.folder / "build")

    def test_an_old_cmake(self):
        self.tool("cmake", "echo cmake version 3.18.4")
        with self.assertRaisesRegex(_build.BuildError, "CMake 3.18.4 is too old.*3.25.*manylinux wheel"):
            _build.build_library(self.folder / "build")

    def test_an_old_python(self):
        self.tool("cmake", "echo cmake version 3.25.1")
        with unittest.mock.patch.object(sys, "version_info", (3, 8, 1)):
            with self.assertRaisesRegex(_build.BuildError, "Python .* is too old.*3.9"):
                _build.build_library(self.folder / "build")
        ast.parse((HERE / "_build.py").read_text(), feature_version=(3, 7))  # so that it can say so
        self.assertIn('requires-python = ">=%d.%d"' % _build.PYTHON,
                      (HERE / "pyproject.toml").read_text())

    def test_an_old_library_is_named_first(self):
        """CMake's errors follow pages of its other output."""
        self.tool("cc")
        self.tool("cmake", "echo '-- The C compiler'; echo 'CMake Error at need.cmake:13 (message):'; "
                           "echo '  libcurl 7.74.0 is too old'; exit 1")
        with self.assertRaisesRegex(_build.BuildError, "failed:\nCMake Error.*\n  libcurl 7.74.0"):
            _build.build_library(self.folder / "build")

    def test_no_compiler(self):
        self.tool("cmake")
        with self.assertRaisesRegex(_build.BuildError, "no C compiler"):
            _build.build_library(self.folder / "build")

    def test_a_library_that_lacks(self):
        self.tool("cmake")
        self.tool("cc")
        with self.assertRaisesRegex(_build.BuildError, "libxxhash[^$]*manylinux wheel"):
            _build.build_library(self.folder / "build")

    def test_a_failed_configure_does_not_spoil_the_next(self):
        build = self.folder / "build"
        build.mkdir()
        (build / "CMakeCache.txt").write_text("CMAKE_C_COMPILER:STRING=/none\n")
        (self.folder / "cmake").write_text("#!/bin/sh\n[ \"$1\" != -S ] || echo >configured\n")
        (self.folder / "cmake").chmod(0o755)
        self.tool("cc")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        _build.build_library(build)
        self.assertTrue((self.folder / "configured").exists())
        self.assertFalse((build / "CMakeCache.txt").exists())

    def test_pip_prints_the_sentence_and_no_traceback(self):
        with self.assertRaisesRegex(SystemExit, "^diloco: CMake is not installed.*manylinux wheel"):
            _build.build_wheel(self.folder)

    def test_the_debian_packages_are_those_of_the_project(self):
        listed = re.search(r"build\).*?;;", (HERE.parent / "scripts/packages.sh").read_text(), re.S)
        self.assertEqual(set(re.findall(r"[a-z0-9+.-]+", _build.DEBIAN.split("install ")[1])),
                         set(re.findall(r"[a-z0-9+.-]+", listed.group().split("echo")[1])))


if __name__ == "__main__":
    unittest.main()
