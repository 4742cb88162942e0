#!/bin/sh
# check.sh: what CI asks beside the tests. Stops at the first thing that is not right.
set -eu
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

step "clang-format"
git ls-files '*.c' '*.h' '*.cc' | xargs clang-format --dry-run --Werror

step "gcc, warnings are errors"
cmake -S . -B build/release -G Ninja -DDILOCO_WERROR=ON -DDILOCO_TESTS=ON \
    -DDILOCO_BENCH=ON >/dev/null
cmake --build build/release | tail -n 1

step "clang: the same bits of the outer step"
cmake -S . -B build/clang -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DDILOCO_TESTS=ON >/dev/null
bits=outer_bits
for source in $(git ls-files 'src/tensor/*_test.c' 'src/codec/*_test.c' 'src/combine/*_test.c' \
    'src/outer/*_test.c'); do
    bits="$bits $(basename "$(dirname "$source")")_$(basename "$source" .c)"
done
cmake --build build/clang --target $bits | tail -n 1
scripts/test.sh build/clang -R '^(tensor|codec|combine|outer)_'

step "clang-tidy"
scripts/tidy.sh build/clang 30000

# `make test SAN=address` and `SAN=thread` take an hour and more. Here what threads and parsers do runs
# each time, and of the rest another piece with each commit, by turns under either.
never='^(hf_.*|matrix_cells|claims_quick|e2e_plato|e2e_readme|net_heartbeats)$' # may be left out, take minutes, or hold others to a second
pieces=32
commits=$(git rev-list --count HEAD)
piece=$((commits / 2 % pieces + 1))
turn=$([ $((commits % 2)) = 0 ] && echo address || echo thread)

step "clang, warnings are errors; unit tests under address and undefined-behaviour sanitizers"
scripts/sanitize.sh address -DDILOCO_WERROR=ON -DDILOCO_TESTS=ON
cmake --build build/address | tail -n 1
# without what starts no sanitized program, and what differs from another test only by numbers
scripts/test.sh build/address -LE 'e2e|slow|servers' \
    -E '^(docs|rows|matrix|contract|abi|install|include_graph.*|outer_bits|python_.*|cluster_sim_.*|cluster_wide.*)$'
if [ "$turn" = address ]; then
    step "piece $piece of $pieces of all other tests under them"
    scripts/test.sh build/address -L 'e2e|slow|servers' -E "$never" -I "$piece,,$pieces"
fi

step "runs of several replicas under the thread sanitizer"
scripts/sanitize.sh thread -DDILOCO_TESTS=ON
threaded="base_thread run_run run_streaming run_join run_driver run_handle run_events run_mirrors run_fetch run_sending run_halves run_peers train_replica"
cmake --build build/thread --target $(printf '%s_test ' $threaded) | tail -n 1
scripts/test.sh build/thread -R "^($(echo "$threaded" | tr ' ' '|'))_test\$"
if [ "$turn" = thread ]; then
    step "piece $piece of $pieces of whole programs under it"
    cmake --build build/thread --target diloco wan hostile die_at cloud_suite | tail -n 1
    scripts/test.sh build/thread -L 'e2e|servers' -E "$never" -I "$piece,,$pieces"
fi

step "fuzzing, 20 seconds a parser; more with FUZZ_SECONDS"
scripts/fuzz.sh "${FUZZ_SECONDS:-20}"
