#!/bin/sh
# emulated.sh BUILD [SEEDS]: the suites of the emulated device with this many seeds (100): kernels,
# attention, a model, collectives, the self-test with each fault in each kernel, and the trainer. A seed decides the order of
# threads, blocks and streams, and the bit that a faulty device flips. It runs one process a core and
# prints the seconds of each suite.
set -eu
suites="emulated_kernels_test emulated_attention_test emulated_model_test emulated_group_test emulated_self_test"
trainers="emulated_train_test emulated_ranks_test train_step_on_emulated"

# --one SUITE SEED: a process of xargs. The last lines of a failed suite are printed with its seed.
if [ "$1" = --one ]; then
    began=$(date +%s)
    EMULATED_SEED=$3 "$EMULATED_BUILD/$2" >"$EMULATED_LOGS/$2.$3" 2>&1 || {
        tail -n 20 "$EMULATED_LOGS/$2.$3"
        echo "emulated: $2 fails with EMULATED_SEEDS=$EMULATED_SEEDS EMULATED_SEED=$3"
        exit 1
    }
    echo $(($(date +%s) - began)) >"$EMULATED_LOGS/$2.$3.s"
    exit
fi
EMULATED_BUILD=$(cd "$1/tests/cuda_emu" && pwd)
EMULATED_SEEDS=${2:-100}
EMULATED_LOGS=$(mktemp -d)
trap 'rm -rf "$EMULATED_LOGS"' EXIT
export EMULATED_BUILD EMULATED_SEEDS EMULATED_LOGS
{
    for suite in $suites; do
        echo "$suite 1"
    done
    for seed in $(seq "$EMULATED_SEEDS"); do
        for suite in $trainers; do
            echo "$suite $seed"
        done
    done
} | xargs -P "$(nproc)" -L 1 sh "$0" --one
for suite in $suites $trainers; do
    awk -v suite=$suite '{ all += $1 } END { printf "%-24s %6d s\n", suite, all }' "$EMULATED_LOGS/$suite".*.s
done
