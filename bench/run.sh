#!/bin/sh
# run.sh BUILD: every benchmark, one after the other; the page bench/x.md describes each. The
# comparisons with PyTorch need one: TORCH_PYTHON=venv/bin/python make bench.
set -eu
build=$(readlink -f "$1")/bench
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

step() { printf '\n== %s\n' "$*"; }

step "the fused outer step against streaming bandwidth (bench/outer_step.md)"
"$build"/bench_outer_step
step "combiners against the plain mean (bench/combine.md)"
"$build"/bench_combine
step "a sync of eight replicas through a folder against plain files (bench/file_sync.md)"
"$build"/bench_file_sync "$work"
step "an exchange through the hub against an all-reduce (bench/sync.md)"
python3 bench/sync.py "$build/.." ${TORCH_PYTHON:+--torch "$TORCH_PYTHON"}
step "the outer loop by itself (bench/loop.md)"
"$build"/bench_loop
step "codecs against reading memory (bench/codec.md)"
"$build"/bench_codec
step "training speed (bench/train_speed.md)"
"$build"/bench_train_speed --layers 5 --heads 4 --channels 128 --context 128 --detail
"$build"/bench_train_speed --layers 6 --heads 6 --channels 384 --context 256 --detail
step "image models (bench/vision.md)"
"$build"/bench_vision_speed --model lenet5 --detail
"$build"/bench_vision_speed --model resnet_18 --steps 3 --detail

if [ -n "${TORCH_PYTHON:-}" ]; then
    step "against PyTorch"
    "$TORCH_PYTHON" bench/outer_step_torch.py
    "$TORCH_PYTHON" bench/codec_torch.py "$build"/bench_codec
    "$TORCH_PYTHON" bench/combine_torch.py "$build"/bench_combine
    DILOCO_LIBRARY="$build/.." PYTHONPATH=python "$TORCH_PYTHON" bench/loop.py
    python3 bench/train_speed.py "$build"/bench_train_speed "$TORCH_PYTHON"
    python3 bench/vision_speed.py "$build" "$TORCH_PYTHON"
else
    echo
    echo "left out: the comparisons with PyTorch; set TORCH_PYTHON to a python that has it"
fi
