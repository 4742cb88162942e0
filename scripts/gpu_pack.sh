#!/bin/sh
# gpu_pack.sh BUILD FOLDER: make the folder that gpu_check.sh needs on another machine, which needs no
# network. It has the program with its kernels, its libraries and the tests for a card. It has the
# Python package with its tests of CUDA tensors, and a text to train on. BUILD is a build folder with
# tests, made where nvcc is. A folder above 64 MiB is refused.
set -eu
export LC_ALL=C
[ $# = 2 ] || { echo "gpu_pack: usage: gpu_pack.sh BUILD FOLDER" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
build=$1
folder=$2
fail() {
    echo "gpu_pack: $*" >&2
    exit 1
}
[ ! -e "$folder" ] || fail "$folder exists: name a folder that does not"
programs="diloco outer_bits tests/cuda_emu/card_kernels_test tests/cuda_emu/card_model_test tests/cuda_emu/card_train_test tests/cuda_emu/card_speed"
for file in $programs libdiloco.so libdiloco-train.so; do
    [ -e "$build/$file" ] ||
        fail "$build has no $file: build it where nvcc is, with cmake -DDILOCO_TESTS=ON (nvcc is ${NVCC:-$(command -v nvcc || echo missing here)})"
done

mkdir -p "$folder/bin" "$folder/lib" "$folder/python/tests"
for file in $programs; do
    cp "$build/$file" "$folder/bin/"
    strip "$folder/bin/$(basename "$file")"
done
for library in libdiloco libdiloco-train; do
    cp -P "$build/$library".so* "$folder/lib/"
done
# The libraries that they load. Every machine with Python has libc, the loader, libstdc++ and libgcc_s.
ldd "$folder"/bin/* "$folder"/lib/*.so | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -v '/lib\(c\|m\|dl\|rt\|pthread\|resolv\|stdc++\|gcc_s\)\.so\|/libdiloco' |
    while read -r library; do
        [ -e "$folder/lib/$(basename "$library")" ] || cp -L "$library" "$folder/lib/"
    done
cp -r "$root/python/diloco" "$folder/python/"
find "$folder/python" -name __pycache__ -prune -exec rm -r {} +
tests="$root/python/tests"
cp "$tests/torch_test.py" "$tests/diloco_test.py" "$tests/cuda_test.py" "$folder/python/tests/"
# The modules that the tests share.
find "$tests" -name '*.py' ! -name '*_test.py' -exec cp {} "$folder/python/tests/" \;
cp "$root/scripts/gpu_check.sh" "$root/scripts/gpu_ceilings.py" "$root/bench/train_speed_torch.py" "$folder/"

# A text that is the same on every machine.
awk 'BEGIN {
    split("the a one sea ship wind and of to king night old told sails deep home far", w, " ")
    x = 7
    while (n < 256000) {
        x = (x * 1103515245 + 12345) % 2147483648
        s = w[1 + int(x / 65536) % 17] (x % 11 ? " " : ".\n")
        printf "%s", s
        n += length(s)
    }
}' >"$folder/text.txt"
cat >"$folder/run.toml" <<'TOML'
preset = "diloco"
[run]
threads = 1
heartbeat = 0.5
patience = 5
retain = "all" # so that verify computes every entry again
[trainer]
local_steps_per_round = 5
batch_size = 2
eval_batches = 2
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
TOML
cat >"$folder/README" <<TEXT
diloco $("$folder/bin/diloco" --version | sed 's/^diloco //') for a machine with an NVIDIA card. It needs the card's driver, and no network.

    sh gpu_check.sh OUT

runs nine checks in at most ten minutes. Each prints one line: passed, failed, or left out and why.
The last line counts them. The exit code is 0 if none failed. OUT then has:

    table.txt      the lines
    results.jsonl  a line of JSON for each check and each measurement
    N.log          the output of check N

    sh gpu_check.sh OUT 0 3 5

runs these checks only. The checks:

    0 card         the card, its driver, and each kernel against the CPU
    1 ceilings     matrix products and copies by torch
    2 python       the Python package with CUDA tensors
    3 operations   operations, optimizers, a model and the trainer against the CPU
    4 sanitizer    compute-sanitizer's four tools over a step
    5 bits         the outer step and the codecs have the recorded bits
    6 speed        124 M and 1.5 B parameters against torch.compile
    7 run          two replicas on the card and one on the CPU; one is killed, and the log is verified
    8 profile      the three slowest kernels, by ncu

Checks 1, 2 and 6 need a Python with torch for CUDA: PYTHON=/path/to/python sh gpu_check.sh OUT.
Checks 4 and 8 need compute-sanitizer and ncu of the CUDA toolkit on PATH.
lib/ has the libraries that the program needs, for a machine that lacks some.
TEXT
size=$(du -sk "$folder" | cut -f1)
[ "$size" -le 65536 ] || fail "$folder has $size KiB, above 64 MiB"
echo "$folder: $size KiB; run there: sh gpu_check.sh OUT"
