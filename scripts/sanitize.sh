#!/bin/sh
# sanitize.sh CMAKE-ARGUMENT…: build/sanitize is for clang's sanitizers: unit tests, and fuzz targets,
# which need what is compiled for them. With -O2, since at -O1 kernels take four times as long; with
# lld, since there are 280 programs, which ld takes three times as long to link.
set -eu
cd "$(dirname "$0")/.."
cmake -S . -B build/sanitize -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DDILOCO_SANITIZE=address,undefined -DDILOCO_FUZZ=ON -DDILOCO_BENCH=OFF \
    -DCMAKE_C_FLAGS_RELEASE=-O2 -DCMAKE_CXX_FLAGS_RELEASE=-O2 \
    -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld "$@" >/dev/null
