"""abi_test.py - diloco/_c.py says about memory what include/diloco says.

The C compiler prints sizeof and offsetof of every struct and member that ctypes knows; functions
are compared by their number of arguments. Skips itself where there is no compiler."""
import ctypes
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import diloco
from diloco import _c

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


STATUSES = {"DILOCO_EINVAL": diloco.InvalidError, "DILOCO_EREFUSED": diloco.RefusedError,
            "DILOCO_EUNREACHABLE": diloco.UnreachableError,
            "DILOCO_EINTERRUPTED": diloco.Interrupted, "DILOCO_ENOMEM": diloco.NoMemoryError,
            "DILOCO_EIO": diloco.IOFailedError, "DILOCO_EFULL": diloco.FullError,
            "DILOCO_ENOENT": diloco.NotThereError, "DILOCO_EEXIST": diloco.TakenError,
            "DILOCO_EPROTO": diloco.ProtocolError, "DILOCO_ENUMERIC": diloco.NumericError,
            "DILOCO_ETIMEDOUT": diloco.TimedOutError, "DILOCO_ECLOSED": diloco.ClosedError,
            "DILOCO_EFENCED": diloco.FencedError, "DILOCO_EDIFFERS": diloco.DiffersError}


def run_c(statements):
    """The output of a C program of these statements."""
    lines = ["#include <stddef.h>", "#include <stdio.h>"]
    lines += [f"#include <diloco/{h.name}>" for h in sorted((INCLUDE / "diloco").glob("*.h"))]
    lines += ["int main(void) {", *statements, "return 0; }"]
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder) / "layout.c", pathlib.Path(folder) / "layout"
        source.write_text("\n".join(lines))
        subprocess.run([COMPILER, "-I", INCLUDE, source, "-o", program], check=True)
        return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def layout_by_c(structs):
    """A line of size for each struct, of offset and size for each member, by the compiler."""
    lines = []
    for name, struct in structs.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for member, *_ in struct._fields_:
            at = f"offsetof({name}, {member}), sizeof((({name} *)0)->{member})"
            lines.append(f'printf("{name} {member} %zu %zu\\n", {at});')
    return run_c(lines)


def layout_by_ctypes(structs):
    lines = []
    for name, struct in structs.items():
        lines.append(f"{name} {ctypes.sizeof(struct)}")
        for member, *_ in struct._fields_:
            field = getattr(struct, member)
            lines.append(f"{name} {member} {field.offset} {field.size}")
    return "\n".join(lines) + "\n"


def headers():
    text = "\n".join(h.read_text() for h in sorted((INCLUDE / "diloco").glob("*.h")))
    return re.sub(r"/\*.*?\*/|^#.*?$", "", text, flags=re.S | re.M)


def top_level_arguments(text):
    """How many arguments a parameter list has; those of function pointers are not its own."""
    if text.strip() == "void":
        return 0
    depth, commas = 0, 0
    for c in text:
        depth += (c == "(") - (c == ")")
        commas += c == "," and depth == 0
    return commas + 1


def parameter_list(text, name):
    """The text in the parentheses after the declared function's name."""
    found = re.search(rf"\b{name}\s*\(", text)
    if not found:
        return None
    depth, begin = 1, found.end()
    for end in range(begin, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return text[begin:end]
    return None


class Abi(unittest.TestCase):
    def test_structs_are_laid_out_as_the_compiler_does(self):
        self.assertEqual(layout_by_c(_c.STRUCTS), layout_by_ctypes(_c.STRUCTS))

    def test_no_member_is_missing(self):
        text = headers()
        for name, struct in _c.STRUCTS.items():
            body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), text, re.S)[1]
            for member, *_ in struct._fields_:
                self.assertRegex(body, rf"\b{member}\b", name)
            declared = len(re.findall(r"[;,]", re.sub(r"\([^)]*\)", "", body)))
            self.assertEqual(declared, len(struct._fields_), name)

    def test_the_library_has_every_function(self):
        for name in _c.FUNCTIONS:
            self.assertTrue(hasattr(_c.lib(), name), name)

    def test_functions_take_as_many_arguments(self):
        text = headers()
        for name, (_, arguments) in _c.FUNCTIONS.items():
            declared = parameter_list(text, name)
            self.assertIsNotNone(declared, f"{name} is in no header")
            self.assertEqual(top_level_arguments(declared), len(arguments), name)

    def test_enumerators_have_the_same_numbers(self):
        expected = {"DILOCO_F32": _c.DTYPES["float32"], "DILOCO_I64": _c.DTYPES["int64"],
                    "DILOCO_BOOL": _c.DTYPES["bool"], "DILOCO_BF16": _c.DTYPES["bfloat16"],
                    "DILOCO_F16": _c.DTYPES["float16"],
                    "DILOCO_PARAMETER": _c.ROLES["parameter"],
                    "DILOCO_FROZEN": _c.ROLES["frozen"], "DILOCO_BUFFER": _c.ROLES["buffer"],
                    "DILOCO_MAX_DIMS": _c.MAX_DIMS, "DILOCO_LOG_WARN": 1,
                    **{name: kind.status for name, kind in STATUSES.items()}}
        self.assertEqual(run_c([f'printf("{n} %d\\n", (int){n});' for n in expected]),
                         "".join(f"{n} {v}\n" for n, v in expected.items()))
        self.assertEqual(set(_c.BY_STATUS.values()), set(STATUSES.values()))
        self.assertEqual(run_c(['printf("%d", (int)DILOCO_N_STATUS);']), str(len(STATUSES) + 1))


class Version(unittest.TestCase):
    def test_a_library_of_another_series_is_refused_and_a_patch_is_not(self):
        class Library:
            _name = "libdiloco-train.so"

            def __init__(self, version):
                self.diloco_version = version.encode

        major, minor, patch = diloco.__version__.split(".")
        _c._check_version(Library(f"{major}.{minor}.{int(patch) + 1}"))
        for version in (f"{major}.{int(minor) + 1}.0", f"{int(major) + 1}.{minor}.0"):
            with self.assertRaisesRegex(diloco.LibraryError, re.escape(version)):
                _c._check_version(Library(version))


if __name__ == "__main__":
    if not COMPILER:
        print("left out: the layout of Python's structs (no C compiler)")
        sys.exit(77)
    unittest.main()
