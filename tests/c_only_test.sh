#!/bin/sh
# c_only_test.sh [BUILD] - LIB-2: both libraries build with CMake and a C compiler alone; the program,
# which reads TOML by a C++ header, is left out and says so. With BUILD all of it is built there,
# for `make soak`; without, every command of that build is looked at.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "c_only_test: $*" >&2; exit 1; }
build=${1:-$work/build}
libraries="diloco_diloco_shared diloco_diloco_static diloco_train_shared diloco_train_static"

# A variable that is false: CMake does not look for a C++ compiler.
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=OFF -DDILOCO_TESTS=OFF \
    -DDILOCO_BENCH=OFF >"$work/log" 2>&1 || { cat "$work/log"; fail "CMake without C++"; }
grep -q 'left out: the program (needs a C++ compiler)' "$work/log" || fail "the program is not left out"
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
ninja -C "$build" -t commands $libraries >"$work/commands"
grep -qE "(^| )$cc .* -c .*src/run/run\.c" "$work/commands" || fail "src/run/run.c is not compiled by $cc"
if grep -E '\.cc( |$)|[cg]\+\+' "$work/commands"; then fail "these are not C"; fi
[ $# = 0 ] || cmake --build "$build" --target $libraries >"$build/build.log" || { tail -20 "$build/build.log"; exit 1; }
echo "with a C compiler alone: $(grep -c ' -c ' "$work/commands") sources of two libraries"
