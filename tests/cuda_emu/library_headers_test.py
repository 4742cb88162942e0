#!/usr/bin/env python3
"""library_headers_test.py CXX NVCC FOLDER…: our declarations of CUDA's libraries against their own headers.

No part of the program includes a header of CUDA: src/tensor/cuda declares functions, constants and structs by
itself. headers/*.cc include both, and compile only if they agree. Then one declaration after the other is changed,
and the file must not compile. Finally each function gets one argument more, and each must be reported. cuda.h is
nvcc's. The other headers come with NVIDIA's packages for PyPI; they are looked for where nvcc has its own, in each
FOLDER and in those of $DILOCO_CUDA_HEADERS (divided by ":"). A header that is missing leaves its library out."""
import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OURS = [ROOT / "src", ROOT / "include"]
LIBRARIES = [  # the test, our header, theirs, PyPI's package with it, changes
    ("driver_header.cc", "cuda_api.h", "cuda.h", "nvidia-cuda-runtime", [
        ("DL_CUDA_NOT_READY = 600", "DL_CUDA_NOT_READY = 601"),
        ("cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, size_t n", "cuMemcpyHtoDAsync_v2, (uint64_t to, const void *from, int n"),
        ("cuEventRecord, (void *event, void *stream)", "cuEventRecord, (void *event, int stream)"),
        ("cuStreamQuery, (void *stream)", "cuStreamQuery, (void *stream, int flags)"),
        ("(void **stream, unsigned flags)", "(int *stream, unsigned flags)"),
        ("block_z, shared_bytes;", "block_z; uint64_t shared_bytes;"),
        ("DL_CUDA_EXTRA_SIZE    ((void *)2)", "DL_CUDA_EXTRA_SIZE ((void *)3)"),
    ]),
    ("cublaslt_header.cc", "cuda_blas_api.h", "cublasLt.h", "nvidia-cublas", [
        ("DL_CUBLAS_COMPUTE_32F = 68", "DL_CUBLAS_COMPUTE_32F = 77"),
        ("int type, uint64_t rows", "int type, int rows"),
        ("size_t workspace_bytes", "int workspace_bytes"),
        ("uint64_t data[8]", "uint64_t data[9]"),
        ("float waves;\n    int reserved[4];", "int reserved[4];\n    float waves;"),
    ]),
    ("nccl_header.cc", "nccl_api.h", "nccl.h", "nvidia-nccl-cu13", [
        ("DL_NCCL_FLOAT32 = 7", "DL_NCCL_FLOAT32 = 8"),
        ("int type, int rank, void *communicator, \\\n                       void", "int type, size_t rank, void *communicator, \\\n                       void"),
        ("int n, const int *cards", "const int *cards, int n"),
    ]),
]


def includes_of(nvcc):
    text = subprocess.run([nvcc, "--dryrun", "-x", "c++", "-c", "none.cc"], capture_output=True, text=True).stderr
    return [pathlib.Path(found) for line in re.findall(r'INCLUDES="(.*)"', text)
            for found in re.findall(r'-I([^" ]+)', line)]


@functools.lru_cache(maxsize=None)
def all_errors(cxx):
    """The options with which the compiler reports all errors. clang stops after 20."""
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True).stdout
    return ["-ferror-limit=0"] if "clang" in version else []


def compile_error(cxx, test, folders):
    """The compiler's text, or None if the file compiles."""
    done = subprocess.run([cxx, "-std=c++17", "-fsyntax-only", *all_errors(cxx), *(f"-I{folder}" for folder in folders), test],
                          capture_output=True, text=True)
    return done.stderr if done.returncode else None


def changed_error(cxx, test, ours, text, folders):
    """The compiler's text for our header with this text, or None."""
    with tempfile.TemporaryDirectory() as changed:
        (pathlib.Path(changed) / "tensor/cuda").mkdir(parents=True)
        (pathlib.Path(changed) / "tensor/cuda" / ours).write_text(text)
        return compile_error(cxx, test, [changed, *OURS, *folders])


ROW = re.compile(r"(X\(\w+, (\w+), \()([^()]*)(\)\))")  # X(our name, symbol, (arguments))


def functions_not_compared(cxx, test, ours, text, folders):
    """The functions of our header that may have other arguments than the library's."""
    longer = ROW.sub(lambda row: row[1] + ("" if row[3] == "void" else row[3] + ", ") + "int one_more" + row[4], text)
    error = changed_error(cxx, test, ours, longer, folders) or ""
    symbols = [row[1] for row in ROW.findall(text)]
    if len(symbols) != len(re.findall(r"^    X\(", text, re.M)):
        return [f"{ours} has rows of another form"]
    return [f"{symbol} is not compared" for symbol in symbols if f"{symbol} has other arguments" not in error]


def problems_of(cxx, folders, test, ours, changes):
    """Whether the declarations agree with the header, and whether each change of them is seen."""
    test, header = HERE / "headers" / test, OURS[0] / "tensor/cuda" / ours
    text = header.read_text()
    found = [f"{name} is not compared in {test.name}"
             for name in sorted(set(re.findall(r"^(?:#define|   ) (DL_[A-Z0-9_]+)(?: =|\s+\(\(void)", text, re.M)))
             if not re.search(rf"\b{name}\b", test.read_text())]
    error = compile_error(cxx, test, [*OURS, *folders])
    if error:
        return found + [f"{ours} does not agree:\n{error}"]
    for old, new in changes:
        if text.count(old) != 1:
            found.append(f"{ours} has no text {old!r}, which is to be changed here")
            continue
        error = changed_error(cxx, test, ours, text.replace(old, new), folders)
        if not error or "static assertion failed" not in error and "static_assert" not in error:
            found.append(f"{ours} with {new!r} is accepted{', or fails otherwise: ' + error if error else ''}")
    return found + functions_not_compared(cxx, test, ours, text, folders)


def main():
    cxx, nvcc, *more = sys.argv[1:]
    more += [folder for folder in os.environ.get("DILOCO_CUDA_HEADERS", "").split(":") if folder]
    folders = includes_of(nvcc) + [pathlib.Path(folder) for folder in more]
    problems, compared = [], []
    for test, ours, theirs, package, changes in LIBRARIES:
        if not any((folder / theirs).exists() for folder in folders):
            print(f"left out: {ours} against {theirs} (needs DILOCO_CUDA_HEADERS=the folder include of"
                  f" PyPI's {package})")
            continue
        problems += problems_of(cxx, folders, test, ours, changes)
        compared.append(theirs)
    print(*problems, sep="\n")
    print(f"{', '.join(compared)} compared, {len(problems)} problems")
    return 1 if problems or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
