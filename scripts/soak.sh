#!/bin/sh
# soak.sh BUILD: checks that take longer than tests may. First a build without network stores and
# one without C++, the whole matrix, and a covering set of it trained. Then each kind of objects
# of a writer without a key, and 100,000 of them. Then members 100 ms apart, and DiLoCo against
# synchronous training (where DILOCO_DATA is).
# Then the suites of the emulated device under EMULATED_SEEDS (100) orders of its work, and the tests
# under SHAKE_SEEDS (3) timings of other machines (tests/shake/shake.c). Then every parser fuzzed for
# FUZZ_SECONDS (300). Then cluster simulations: 2,000 seeds of 64 replicas, 200 of 256 and 20 of 1,000
# (SOAK_WIDE=no leaves them out), and the goodput of a million chips. Last, simulations with new
# seeds, until it is interrupted or SOAK_SECONDS have passed. FIRST_SEED (1000) continues an earlier
# call.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
began=$(date +%s)

step() { printf '\n== %s\n' "$*"; }

step "the ways in, on bare machines"
make wheel
scripts/wheel/pythons.sh build/wheel/diloco-*.whl || [ $? = 77 ]
scripts/fresh.sh demo12 demo13 deb12 deb13 wheel12 wheel13 image12 clang12 clang13
step "a release, twice"
scripts/release_test.sh "$(sed -n 's/^project(diloco VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
for sanitizer in address thread; do
    step "every test under the $sanitizer sanitizer"
    make test SAN=$sanitizer
done
step "a build without network stores, and one without C++"
sh tests/offline_test.sh "$build/offline"
sh tests/c_only_test.sh "$build/c_only"
step "the whole matrix"
"$build/tests/matrix_test" --all
step "a covering set of it, trained"
python3 tests/matrix/cells.py "$build/diloco" "$build/tests/matrix_test" --verbose
step "a writer without a key: each kind of objects alone, and 100,000 under one prefix"
for part in kinds crowd; do sh tests/e2e/intruder.sh "$build/diloco" $part; done
step "1 GB of output of a launched replica"
for launched in e2e/launch_local launch/ssh; do
    LONG_OUTPUT_MB=1000 sh "tests/$launched.sh" "$build/diloco" || [ $? = 77 ]
done
step "members that read from each other, 100 ms apart"
sh tests/soak/peers_wan.sh "$build/diloco" "$build/tests/wan" || [ $? = 77 ]
step "four replicas and synchronous training on as many tokens"
python3 tests/soak/equal_tokens.py "$build/diloco" || [ $? = 77 ]
step "models of 6 * 10^8 and 10^9 parameters"
for n in 600000000 1000000000; do
    sh tests/large.sh "$build/tests/large" $n || [ $? = 77 ]
done
step "the emulated device, ${EMULATED_SEEDS:-100} seeds and every fault"
sh tests/soak/emulated.sh "$build" "${EMULATED_SEEDS:-100}"
for seed in $(seq "${SHAKE_SEEDS:-3}"); do # the tests that wait for something
    for mode in pauses threads; do
        step "the tests, shaken: $mode, seed $seed"
        SHAKE_SEED=$seed SHAKE_MODE=$mode LD_PRELOAD=$build/tests/shake.so scripts/test.sh "$build" -LE servers \
            -E '^(tensor|codec|combine|outer|nn|model)_|^(cluster|mutant|neon|include)_|^(docs|rows|contract|abi|c_only|install|matrix|matrix_cells)$'
    done
done
step "clang-tidy, to the end of its analyzer"
scripts/sanitize.sh address
scripts/tidy.sh build/address 225000
step "fuzzing, ${FUZZ_SECONDS:-300} seconds a parser"
scripts/fuzz.sh -max_total_time="${FUZZ_SECONDS:-300}"

# One seed is one process, so that all cores have work. Seeds of 1,000 replicas take up to 13.2 GB.
# Arrays that a replica hardly uses cost no memory where malloc maps them.
cores=$(nproc)
gigabytes=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
seeds() { # PROGRAM SEEDS REPLICAS GIGABYTES: as many at once as cores and free memory allow
    step "cluster simulation, $(echo "$2" | wc -w) seeds of $3 replicas"
    jobs=$((gigabytes / $4))
    [ $jobs -lt "$cores" ] || jobs=$cores
    if [ $jobs = 0 ]; then # xargs -P 0 would start all of them at once
        echo "left out: a simulation of $3 replicas takes up to $4 GB of memory"
        return
    fi
    echo "$2" | tr ' ' '\n' |
        MALLOC_MMAP_THRESHOLD_=65536 xargs -P $jobs -I SEED "$build/tests/$1" SEED 1 "$3" >"$build/seeds.log" 2>&1 ||
        { tail -n 20 "$build/seeds.log" && exit 1; }
}
if [ "${SOAK_WIDE:-yes}" = yes ]; then
    seeds cluster_sim "$(seq 2000)" 64 1
    seeds cluster_sim "1 5 6" 256 2 # they once exceeded a budget of events
    seeds cluster_sim "$(seq 200 | grep -vx '[156]')" 256 2
    seeds cluster_many "$(seq 20)" 1000 14
fi
step "goodput of 1,000,000 chips in 32 learners"
"$build/tests/cluster_few" goodput 1000000 32 90

seed=${FIRST_SEED:-1000}
while [ -z "${SOAK_SECONDS:-}" ] || [ $(($(date +%s) - began)) -lt "$SOAK_SECONDS" ]; do
    step "cluster simulation, seeds from $seed on"
    "$build/tests/cluster_sim" "$seed" 500 16
    "$build/tests/cluster_sim" "$seed" 200 16 leader
    "$build/tests/cluster_wide" "$seed" 100 16 sharded
    "$build/tests/cluster_sim" "$seed" 10 64
    "$build/tests/cluster_sim" "$seed" 1 256
    seed=$((seed + 500))
done
