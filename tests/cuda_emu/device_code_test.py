#!/usr/bin/env python3
"""device_code_test.py NVCC CUOBJDUMP NVDISASM BUILT FLAGS: nvcc's output for the kernels (src/**/*.cu), without a GPU.

    compiles    each file for each target, as one fatbin, without a warning
    memory      no kernel has memory of a thread: no spilled register, no array that is indexed at run time
    order       no atomic operation, so that a launch gives the same bits each time
    exact       in the files of EXACT no product and sum become one fma unless the source writes it;
                no denormal is flushed; divisions and roots are rounded correctly

The last two are read from PTX: its ".rn" forbids the assembler to contract. All but divisions and roots are
read again from the machine code of each target, with cuobjdump and nvdisasm (else ""). BUILT is the folder of
the program's fatbins ("": they are compiled here). Then the kernels of planted_mistakes.cu are read in the same
way, and each of their mistakes has to be found. FLAGS are those of the build (cmake/device_code.cmake)."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXACT = {  # the others use expf and logf of nvcc's library
    "gradient_kernels.cu", "inner_kernels.cu", "movement_kernels.cu", "encode_kernels.cu"
}
ATOMIC, MEMORY = "an atomic operation", "memory of a thread"
FMA, FLUSHED = "an fma that the source does not write", "denormals are flushed"
PLANTED = {  # planted_mistakes.cu
    "planted_contraction": {FMA, FLUSHED},
    "planted_double_contraction": {FMA},
    "planted_flush": {FLUSHED},
    "planted_reduction": {ATOMIC},
    "planted_atomic": {ATOMIC},
    "planted_shared_atomic": {ATOMIC},
    "planted_memory": {MEMORY},
}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"device_code_test: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def faults_of_ptx(exact, source, ptx):
    """The problems of one file's PTX."""
    checks = [(ATOMIC, r"\b(?:atom|red)\.")]
    if exact:
        checks += [
            ("a contraction is possible", r"\b(?:mul|add|sub)\.(?:ftz\.)?f(?:32|64)"),
            (FLUSHED, r"\.ftz\.f32\b"),
            ("an approximate instruction", r"\b(?:div|sqrt|rcp|rsqrt)\.(?:approx|full)\.(?:ftz\.)?f32"),
        ]
        # nvcc's library makes float64 functions of fma: those of f32 alone are ours.
        if not re.search(r"\bfmaf\(", source):
            checks.append((FMA, r"\bfma\.rn\.(?:ftz\.)?f32"))
    return {what for what, pattern in checks if re.search(pattern, ptx)}


def kernels_of(source):
    """{kernel: its source} of one file."""
    parts = re.split(r"\bDL_GPU_KERNELS?\((\w+)|\b__global__ void (\w+)\(", source)
    return {one or two: body for one, two, body in zip(parts[1::3], parts[2::3], parts[3::3])}


def faults_of_kernel(exact, source, code):
    """The problems of one kernel's machine code. One with a division or a root (MUFU) has the assembler's own
    sequence for it: fmas, and flushes where no denormal can be. The result is rounded correctly. PTX is the
    witness there."""
    checks = [(ATOMIC, r"\b(?:ATOM|RED(?!UX))[A-Z]*\b"), (MEMORY, r"\b(?:LDL|STL)\b")]
    if exact and "MUFU" not in code:
        checks.append((FLUSHED, r"\bF\w+\.(?:\w+\.)*FTZ\b"))
        if not re.search(r"\bfmaf?\(", source):
            checks.append((FMA, r"\b[FD]FMA\w*\b"))
    return {what for what, pattern in checks if re.search(pattern, code)}


def faults_of_machine_code(exact, source, text):
    """{(target, kernel): problems} of what cuobjdump prints for a fatbin."""
    sources, found = kernels_of(source), {}
    for part in text.split("Fatbin elf code:")[1:]:
        target = re.search(r"^arch = (\w+)", part, re.M).group(1)
        for code in part.split("Function : ")[1:]:
            kernel = code.split()[0]
            # A kernel of a template has another name. None of them is exact.
            found[target, kernel] = faults_of_kernel(exact, sources.get(kernel, ""), code)
    return found


class Reader:
    """Reads files of kernels, from PTX and, with a disassembler, from machine code."""

    def __init__(self, nvcc, cuobjdump, built, flags, folder):
        self.nvcc, self.cuobjdump, self.flags = nvcc, cuobjdump, flags
        self.built = pathlib.Path(built) if built and cuobjdump else None
        self.folder = pathlib.Path(folder)
        self.targets = {target for flag in flags for target in re.findall(r"code=(sm_\w+)", flag)}

    def ptx(self, file, *more):
        out = self.folder / f"{file.stem}.ptx"
        common = [flag for flag in self.flags if not flag.startswith("-gencode")]
        run(self.nvcc, "-ptx", "-arch=compute_80", *common, *more, file, "-o", out)
        return out.read_text()

    def fatbin(self, file, *more):
        """The path of a fatbin, and the bytes of spilled registers of its kernels by the assembler."""
        if self.built and not more:
            return self.built / f"{file.stem}.fatbin", [0]
        out = self.folder / f"{file.stem}.fatbin"
        text = run(self.nvcc, "-fatbin", "--threads", 2, *self.flags, *more, "-Xptxas", "-v", file, "-o", out)
        return out, [int(n) for n in re.findall(r"(\d+) bytes spill", text)]

    def problems(self, file):
        exact, source = file.name in EXACT, file.read_text()
        fatbin, spills = self.fatbin(file)
        ptx = self.ptx(file)
        found = [f"{what} (PTX)" for what in sorted(faults_of_ptx(exact, source, ptx))]
        if not spills or any(spills):
            found.append(f"bytes of spilled registers: {spills}")
        if self.cuobjdump:
            code = faults_of_machine_code(exact, source, run(self.cuobjdump, "-sass", fatbin))
            kernels = set(re.findall(r"\.entry (\w+)", ptx))
            if not kernels or set(code) != {(target, kernel) for target in self.targets for kernel in kernels}:
                found.append(f"machine code of other kernels or targets than the source's: {sorted(code)}")
            found += [f"{what} (machine code of {kernel} for {target})"
                      for (target, kernel), faults in sorted(code.items()) for what in sorted(faults)]
        return [f"{file.name}: {what}" for what in found]

    def planted(self):
        """The mistakes of planted_mistakes.cu that are not found, and others that are."""
        file = pathlib.Path(__file__).with_name("planted_mistakes.cu")
        source, wrong = file.read_text(), ("-fmad=true", "-ftz=true")
        found = faults_of_ptx(True, source, self.ptx(file, *wrong))
        missed = [f"{what} (PTX)" for what in sorted({ATOMIC, FMA, FLUSHED} - found)]
        if self.cuobjdump:
            code = faults_of_machine_code(True, source, run(self.cuobjdump, "-sass", self.fatbin(file, *wrong)[0]))
            wanted = {(target, kernel): faults for target in self.targets for kernel, faults in PLANTED.items()}
            missed += [f"{wanted.get(at)} in {at}, found {code.get(at)}"
                       for at in sorted(set(wanted) | set(code)) if wanted.get(at) != code.get(at)]
        return [f"{file.name}: planted: {what}" for what in missed]


def main():
    nvcc, cuobjdump, nvdisasm, built, *flags = sys.argv[1:]
    if not (cuobjdump and nvdisasm):
        cuobjdump = ""
        print("left out: machine code of kernels (needs cuobjdump and nvdisasm: scripts/packages.sh gpu)")
    else:
        os.environ["PATH"] = f"{pathlib.Path(nvdisasm).parent}:{os.environ['PATH']}"
    files = sorted((ROOT / "src").rglob("*.cu"))
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(nvcc, cuobjdump, built, flags, folder)
        problems = [problem for file in files for problem in reader.problems(file)] + reader.planted()
    print(*problems, sep="\n")
    read = f"PTX and machine code of {len(reader.targets)} targets" if cuobjdump else "PTX"
    print(f"{len(files)} files of kernels, {len(problems)} problems ({read})")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
