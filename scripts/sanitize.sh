#!/bin/sh
# sanitize.sh address|thread [CMAKE-ARGUMENT…]: build/address and build/thread are for sanitizers.
# build/address has clang's of addresses and undefined behaviour, with the fuzz targets, which need
# libraries built for them. build/thread has gcc's of threads, whose runtime may be shared (clang
# 14's ends at its start then). With -O2, since at -O1 kernels take four times as long. clang uses lld
# for all programs, the fuzz targets among them. Neither has images of kernels: no sanitizer sees
# into them, and nvcc takes 44 seconds of CPU time. The emulated device runs the kernels' source.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-}
shift || true
case $kind in
address)
    set -- -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld \
        -DDILOCO_SANITIZE=address,undefined -DDILOCO_FUZZ=ON "$@" ;;
thread) set -- -DDILOCO_SANITIZE=thread "$@" ;;
*) echo "sanitize.sh: '$kind' is neither address nor thread" >&2; exit 2 ;;
esac
cmake -S . -B "build/$kind" -G Ninja -DDILOCO_CUDA=OFF \
    -DCMAKE_C_FLAGS_RELEASE=-O2 -DCMAKE_CXX_FLAGS_RELEASE=-O2 "$@" >/dev/null
