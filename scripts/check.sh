#!/bin/sh
# check.sh: CI's checks beside the tests. Stops at the first failure.
set -eu
cd "$(dirname "$0")/.."

begun=$(date +%s)
step() { printf '\n== %s (after %d s)\n' "$*" "$(($(date +%s) - begun))"; }

# build FOLDER [TARGET…]: quiet unless it fails.
build() {
    folder=$1
    shift
    cmake --build "$folder" ${1:+--target "$@"} >build/check.log || { tail -n 60 build/check.log; exit 1; }
}

step "clang-format"
git ls-files '*.c' '*.h' '*.cc' | xargs clang-format --dry-run --Werror

step "gcc, warnings are errors"
cmake -S . -B build/release -G Ninja -DDILOCO_WERROR=ON -DDILOCO_TESTS=ON \
    -DDILOCO_BENCH=ON >/dev/null
build build/release

step "clang: the same bits of the outer step"
cmake -S . -B build/clang -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DDILOCO_TESTS=ON >/dev/null
bits=outer_bits
for source in $(git ls-files 'src/tensor/*_test.c' 'src/codec/*_test.c' 'src/combine/*_test.c' \
    'src/outer/*_test.c'); do
    bits="$bits $(basename "$(dirname "$source")")_$(basename "$source" .c)"
done
build build/clang $bits
scripts/test.sh build/clang -R '^(tensor|codec|combine|outer)_'

step "clang-tidy"
scripts/tidy.sh build/clang 30000

# The sanitizers run what threads and parsers do. `make test SAN=address` and `SAN=thread` run all of
# it, and take an hour and more; `make soak` does that.

step "clang, warnings are errors; unit tests under address and undefined-behaviour sanitizers"
scripts/sanitize.sh address -DDILOCO_WERROR=ON -DDILOCO_TESTS=ON
build build/address
# without what starts no sanitized program, but compilers and scripts that read the sources, and what
# differs from another test only by numbers.
read_sources='docs|docs_site|phases|mode_branches|rows|contract|abi|include_graph.*|lengths.*|prose.*|option_values|grafana|workflows|tools|c_only|claims_verdicts|front_tables'
scripts/test.sh build/address -LE 'e2e|slow|servers' \
    -E "^($read_sources|matrix|install|device_code|library_headers|outer_bits|python_.*|cluster_sim_.*|cluster_wide.*|cluster_few_(goodput|keeps.*|slower))\$"

step "runs of several replicas under the thread sanitizer"
scripts/sanitize.sh thread -DDILOCO_TESTS=ON
threaded="base_thread run_run run_streaming run_join run_driver run_handle run_run_events state_mirrors exchange_fetch exchange_pipelined_upload exchange_lending run_saver run_halves exchange_peers view_view train_replica"
build build/thread $(printf '%s_test ' $threaded)
scripts/test.sh build/thread -R "^($(echo "$threaded" | tr ' ' '|'))_test\$"

step "fuzzing, 50,000 inputs a parser"
scripts/fuzz.sh -runs=50000 -seed=1
