#!/bin/sh
# fuzz.sh OPTION…: fuzz every parser of outside bytes, with these options of libFuzzer. Stops at the
# first failure. Begins at tests/fuzz/seeds/<target>, and at what earlier runs kept in
# build/fuzz/<target>.
#   -max_total_time=SECONDS   other inputs at each call
#   -runs=N -seed=1           N inputs, drawn from the same seed. They are the same only for parsers
#                             that draw no random numbers and run no threads.
set -eu
cd "$(dirname "$0")/.."
scripts/sanitize.sh address
targets=$(for source in tests/fuzz/*_fuzz.c; do basename "$source" .c; done)
mkdir -p build/fuzz
cmake --build build/address --target $targets >build/fuzz/build.log || { cat build/fuzz/build.log; exit 1; }
for target in $targets; do
    mkdir -p build/fuzz/"$target"
    [ ! -d tests/fuzz/seeds/"$target" ] || cp -n tests/fuzz/seeds/"$target"/* build/fuzz/"$target"
done
printf '%s\n' $targets | xargs -P "$(nproc)" -I NAME sh -c '
    build/address/tests/fuzz/NAME build/fuzz/NAME "$@" -print_final_stats=1 \
        -artifact_prefix=build/fuzz/ >build/fuzz/NAME.log 2>&1 || { tail -n 40 build/fuzz/NAME.log; exit 255; }
    sed -n "s/stat::number_of_executed_units:/NAME, inputs tried:/p" build/fuzz/NAME.log' fuzz "$@"
