#!/usr/bin/env python3
"""device_code_test.py NVCC CUOBJDUMP FLAGS: nvcc's output for the kernels (src/**/*.cu), without a GPU.

    compiles    each file for each target, as one fatbin, without a warning
    registers   no kernel spills registers to memory
    order       no atomic operation, so that a launch gives the same bits each time
    exact       in the files of EXACT no product and sum become one fma unless the source writes it;
                no denormal is flushed; divisions and roots are rounded correctly

The last two are read from PTX: its ".rn" forbids the assembler to contract. With cuobjdump (else "") the
machine code is read, too. FLAGS are those of the build (cmake/device_code.cmake)."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXACT = {"gradient_kernels.cu", "inner_kernels.cu"}  # the others use expf and logf of nvcc's library


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"device_code_test: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def faults_of_ptx(name, source, ptx):
    """The problems of one file's PTX."""
    checks = [("an atomic operation", r"\b(?:atom|red)\.")]
    if name in EXACT:
        checks += [
            ("a contraction is possible", r"\b(?:mul|add|sub)\.f(?:32|64)"),
            ("denormals are flushed", r"\.ftz\.f32\b"),
            ("an approximate instruction", r"\b(?:div|sqrt|rcp|rsqrt)\.(?:approx|full)\.(?:ftz\.)?f32"),
        ]
        # nvcc's library makes float64 functions of fma: those of f32 alone are ours.
        if not re.search(r"\bfmaf\(", source):
            checks.append(("an fma that the source does not write", r"\bfma\.rn\.f32"))
    return [what for what, pattern in checks if re.search(pattern, ptx)]


def faults_of_machine_code(name, text):
    """A kernel with a division or a root (MUFU) has the assembler's own sequence for it. That flushes only
    where no denormal can be, and the result is rounded correctly: PTX is the witness there."""
    checks = [("an atomic operation", r"\b(?:ATOMG?|RED)\b"), ("memory of a thread", r"\b(?:LDL|STL)\b")]
    faults = [f"{what} (machine code)" for what, pattern in checks if re.search(pattern, text)]
    for kernel in text.split("Function : ")[1:] if name in EXACT else []:
        if "MUFU" not in kernel and re.search(r"\b(?:FADD|FMUL|FFMA)\.FTZ", kernel):
            faults.append(f"denormals are flushed in {kernel.split()[0]} (machine code)")
    return faults


def main():
    nvcc, cuobjdump, *flags = sys.argv[1:]
    common = [flag for flag in flags if not flag.startswith("-gencode")]
    files, problems = sorted((ROOT / "src").rglob("*.cu")), []
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            out = pathlib.Path(folder) / file.stem
            text = run(nvcc, "-fatbin", "--threads", 2, *flags, "-Xptxas", "-v", file, "-o", f"{out}.fatbin")
            spills = [int(n) for n in re.findall(r"(\d+) bytes spill", text)]
            if not spills or any(spills):
                problems.append(f"{file.name}: bytes of spilled registers: {spills}")
            run(nvcc, "-ptx", "-arch=compute_80", *common, file, "-o", f"{out}.ptx")
            ptx = pathlib.Path(f"{out}.ptx").read_text()
            problems += [f"{file.name}: {what}" for what in faults_of_ptx(file.name, file.read_text(), ptx)]
            if cuobjdump:
                code = run(cuobjdump, "-sass", f"{out}.fatbin")
                problems += [f"{file.name}: {what}" for what in faults_of_machine_code(file.name, code)]
    print(*problems, sep="\n")
    read = "PTX and machine code" if cuobjdump else "PTX; no cuobjdump for the machine code"
    print(f"{len(files)} files of kernels, {len(problems)} problems ({read})")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
