#!/bin/sh
# emulated.sh BUILD [SEEDS]: all suites of the emulated device with this many seeds (100). The self-test
# has each fault in each kernel. A seed decides the order of threads, blocks and streams, the bit that
# a faulty device flips, and the calls that fail. It runs one process a core, prints its progress, and
# ends with the seeds and seconds of each suite.
# BUILD/soak_emulated has what passed: the same command resumes there, and repeats runs that are
# older than its program or the device's.
set -eu
suites="emulated_kernels_test emulated_attention_test emulated_model_test emulated_group_test emulated_self_test
op_add_norm_on_emulated op_attention_on_emulated op_embedding_on_emulated op_head_loss_on_emulated
op_linear_on_emulated op_qk_norm_on_emulated op_swiglu_on_emulated"
# These have one seed a process, whatever EMULATED_SEEDS is, or take long.
singles="emulated_device_test emulated_launches_test emulated_products_test
emulated_train_test emulated_ranks_test emulated_failures_test emulated_exchange_test
train_step_on_emulated train_weights_on_emulated gossip_gossip_on_emulated
train_evaluate_on_emulated train_export_foreign_on_emulated train_extension_on_emulated
train_memory_copies_on_emulated train_memory_on_emulated train_papers_on_emulated
train_replica_on_emulated train_results_on_emulated train_sample_on_emulated fed_fed_on_emulated"

# --one SUITE SEED SEEDS: a process of xargs. The last lines of a failed suite are printed with its
# seeds.
if [ "$1" = --one ]; then
    began=$(date +%s)
    done=$EMULATED_DONE/$2.$3
    EMULATED_SEED=$3 EMULATED_SEEDS=$4 "$EMULATED_BUILD/$2" >"$done.log" 2>&1 || {
        tail -n 20 "$done.log"
        echo "emulated: $2 fails with EMULATED_SEED=$3 EMULATED_SEEDS=$4"
        exit 1
    }
    seconds=$(($(date +%s) - began))
    echo "$4 $seconds" >"$done.new"
    mv "$done.new" "$done.passed"
    rm "$done.log"
    echo "emulated: $(ls "$EMULATED_DONE" | grep -c passed) of $EMULATED_ALL: $2, $4 seeds from $3, $seconds s"
    exit
fi
EMULATED_BUILD=$(cd "$1/tests/cuda_emu" && pwd)
EMULATED_DONE=$(cd "$1" && pwd)/soak_emulated
seeds=${2:-100}
mkdir -p "$EMULATED_DONE"
cmake --build "$1" --target emulated_soak # programs that no other target needs
rm -f "$EMULATED_DONE"/*.log "$EMULATED_DONE"/*.new

# Marks that are older than a program are removed, also those of seeds that are not asked for.
for suite in $suites $singles; do
    for program in "$suite" emulated_device libemulated_driver.so libemulated_nccl.so libemulated_blas.so; do
        for passed in "$EMULATED_DONE/$suite".*.passed; do
            [ ! "$EMULATED_BUILD/$program" -nt "$passed" ] || rm -f "$passed"
        done
    done
done

# job SUITE SEED SEEDS: a line for what has not passed yet. The seeds of a process are few, so that
# little is lost where this is interrupted.
job() {
    passed=$EMULATED_DONE/$1.$2.passed
    [ -e "$passed" ] && [ "$(cut -d ' ' -f 1 "$passed")" = "$3" ] || {
        rm -f "$passed"
        echo "$1 $2 $3"
    }
}
seed=1
jobs=$(mktemp)
trap 'rm -f "$jobs"' EXIT
while [ $seed -le "$seeds" ]; do
    many=$((seeds - seed + 1))
    [ $many -le 10 ] || many=10
    for suite in $suites; do
        job $suite $seed $many
    done
    for one in $(seq $seed $((seed + many - 1))); do
        for suite in $singles; do
            job $suite "$one" 1
        done
    done
    seed=$((seed + many))
done >"$jobs"
EMULATED_ALL=$(($(wc -l <"$jobs") + $(ls "$EMULATED_DONE" | grep -c passed || true)))
export EMULATED_BUILD EMULATED_DONE EMULATED_ALL
xargs -r -P "$(nproc)" -L 1 sh "$0" --one <"$jobs"
for suite in $suites $singles; do
    for passed in "$EMULATED_DONE/$suite".*.passed; do
        seed=${passed%.passed}
        [ "${seed##*.}" -gt "$seeds" ] || cat "$passed"
    done |
        awk -v suite=$suite '{ n += $1; s += $2 } END { printf "%-32s %4d seeds %6d s\n", suite, n, s }'
done
