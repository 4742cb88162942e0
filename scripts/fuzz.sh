#!/bin/sh
# fuzz.sh SECONDS: every parser of outside bytes, so long each; stops at the first that is not right.
# Begins at tests/fuzz/seeds/<target>, and at what earlier runs kept in build/fuzz/corpus.
set -eu
cd "$(dirname "$0")/.."
cmake -S . -B build/fuzz -G Ninja -DDILOCO_FUZZ=ON -DDILOCO_TESTS=OFF -DDILOCO_BENCH=OFF \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_FLAGS_RELEASE=-O1 \
    -DDILOCO_SANITIZE=address,undefined >/dev/null
for source in tests/fuzz/*_fuzz.c; do
    name=$(basename "$source" .c)
    cmake --build build/fuzz --target "$name" >build/fuzz/build.log || { cat build/fuzz/build.log; exit 1; }
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    [ ! -d "tests/fuzz/seeds/$name" ] || cp -n tests/fuzz/seeds/"$name"/* "$corpus"
    build/fuzz/tests/fuzz/"$name" "$corpus" -max_total_time="$1" -print_final_stats=1 \
        -artifact_prefix=build/fuzz/ 2>&1 | sed -n "s/stat::number_of_executed_units:/$name, inputs tried:/p;/ERROR/p"
    [ -z "$(ls build/fuzz/crash-* build/fuzz/timeout-* build/fuzz/oom-* 2>/dev/null)" ] || exit 1
done
