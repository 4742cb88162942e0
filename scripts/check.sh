#!/bin/sh
# check.sh: what CI asks beside the tests. Stops at the first thing that is not right.
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "clang-format"
git ls-files '*.c' '*.h' '*.cc' | xargs clang-format --dry-run --Werror

step "gcc, warnings are errors"
cmake -S . -B build/release -G Ninja -DDILOCO_WERROR=ON >/dev/null
cmake --build build/release | tail -n 1

step "clang, warnings are errors; the same bits of the outer step"
cmake -S . -B build/clang -G Ninja -DDILOCO_WERROR=ON -DCMAKE_C_COMPILER=clang \
    -DCMAKE_CXX_COMPILER=clang++ -DDILOCO_BENCH=OFF >/dev/null
cmake --build build/clang | tail -n 1
scripts/test.sh build/clang -R '^(tensor|codec|combine|outer)_'

step "clang-tidy"
git ls-files 'src/*.c' | grep -v '_test\.c$' |
    xargs -P "$(nproc)" -n 4 clang-tidy -p build/clang --quiet --warnings-as-errors='*' 2>/dev/null

step "unit tests under address and undefined-behaviour sanitizers"
cmake -S . -B build/sanitize -G Ninja -DDILOCO_SANITIZE=address,undefined \
    -DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DDILOCO_BENCH=OFF >/dev/null
cmake --build build/sanitize | tail -n 1
scripts/test.sh build/sanitize -LE 'e2e|slow|servers'

step "runs of several replicas under the thread sanitizer"
cmake -S . -B build/thread -G Ninja -DDILOCO_SANITIZE=thread -DCMAKE_C_FLAGS_RELEASE=-O1 \
    -DCMAKE_CXX_FLAGS_RELEASE=-O1 -DDILOCO_BENCH=OFF >/dev/null
threaded="base_thread run_run run_streaming run_join run_driver run_handle run_events run_mirrors run_fetch run_halves run_peers train_replica"
for name in $threaded; do
    cmake --build build/thread --target "${name}_test" | tail -n 1
done
scripts/test.sh build/thread -R "^($(echo "$threaded" | tr ' ' '|'))_test\$"

step "fuzzing, 5 seconds a parser; more with FUZZ_SECONDS"
scripts/fuzz.sh "${FUZZ_SECONDS:-5}"
