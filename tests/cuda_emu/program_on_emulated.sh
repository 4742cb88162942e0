#!/bin/sh
# program_on_emulated.sh PROGRAM DRIVER CODE: trainer.device = "cuda" in the whole program, with the emulated
# driver in place of libcuda.so.1. CODE is "yes" if the program has device code.
. "$(dirname "$0")/../e2e/lib.sh"
driver=$(readlink -f "$2")
XDG_CACHE_HOME=$PWD/cache
export XDG_CACHE_HOME
mkdir broken emulated
ln -s "$driver" emulated/libcuda.so.1
: >broken/libcuda.so.1
short="--set trainer.rounds=2 --set trainer.local_steps_per_round=3"

expect_error 2 'no such device: set cpu, cuda or cuda:N' diloco train tiny.toml --set trainer.device=gpu

if [ "$3" != yes ]; then
    expect_error 3 'built without device code' diloco train tiny.toml $short --set trainer.device=cuda
    exit 0
fi

# A machine without a driver, whatever this one has.
LD_LIBRARY_PATH=broken
export LD_LIBRARY_PATH
expect 0 diloco doctor
grep -q '^  card           none: the driver of the GPU cannot be loaded: ' out || fail "doctor names no cause"
expect_error 3 'the driver of the GPU cannot be loaded' diloco train tiny.toml $short --set trainer.device=cuda
[ "$(wc -l <err)" = 1 ] || fail "more than one sentence"
[ ! -e runs ] || fail "a run was created"

LD_LIBRARY_PATH=emulated

expect 0 diloco doctor --json
[ "$(json card <out)" = "emulated device" ] && [ "$(json usable <out)" = true ] || fail "doctor --json"
json self_test_seconds <out | awk '{ exit !($1 > 0) }' || fail "doctor --json: the seconds of the self-test"

# With a configuration, doctor estimates the speed from what it measured (cmd_doctor.c has the formula).
for precision in f32:product_flops_per_s bf16:bf16_product_flops_per_s; do
    expect 0 diloco doctor tiny.toml --set trainer.device=cuda --set trainer.precision=${precision%:*} --json
    for key in ${precision#*:} copy_bytes_per_s flops_per_token local gradient moments activations expected_tokens_per_s; do
        printf '%s ' "$(json $key <out)"
    done | awk '{
        moved = 2 * ($4 + $5 + $6) / 64 + 4 * $7 / 64 # batches of 2 x 32 tokens
        rate = 1 / ($3 / $1 + moved / $2)
        exit !($8 > 0 && $8 > 0.999 * rate && $8 < 1.001 * rate)
    }' || fail "doctor expects another speed of $precision"
done
[ "$(json capability <out)" = 90 ] || fail "doctor --json: the card's capability"
expect 0 diloco doctor tiny.toml --set trainer.device=cuda
grep -q "^  card's speed   products [0-9.e+-]* GFLOP/s in float32 and [0-9.e+-]* in bfloat16, copies" out ||
    fail "doctor names no speed"
grep -q "^  kernels        all [0-9]* give the CPU's results, compared in [0-9.e+-]* s$" out ||
    fail "doctor names no seconds of the self-test"
grep -q '^  card           emulated device, .*, compute capability 9.0, driver for CUDA 13.0$' out ||
    fail "doctor names no capability"
grep -q '^expected on the card: [0-9,]* tokens a second' out || fail "doctor expects no speed"
expect 0 diloco doctor tiny.toml
! grep -q 'expected on the card' out || fail "doctor expects a card's speed on the CPU"
expect_error 3 'there is no cuda device 1' diloco train tiny.toml $short --set trainer.device=cuda:1

# Two replicas on the card and one on the CPU: one state. A replica on the card is killed, and rejoins. In the
# second run the card computes the due points.
for exchange in false true; do
    store=mixed-$exchange
    diloco train tiny.toml $short --set trainer.rounds=8 --store $store --set run.replicas=3 --replicas 2 \
        --set trainer.device=cuda --set trainer.device_exchange=$exchange --record card.jsonl >card.out 2>&1 &
    card=$!
    started=$card
    wait_for test -e $store/gen/r0.0000
    wait_for test -e $store/gen/r1.0000 # join takes a name that is free
    diloco join $store --set data.train_path=text.txt --record cpu.jsonl >cpu.out 2>&1 &
    cpu=$!
    started="$started $cpu"
    wait_for has_entry $store 0
    pid=
    for pid in $(children $card); do # of which one is the emulated device
        [ "$(readlink "/proc/$pid/exe")" != "$program" ] || break
    done
    kill -9 "$pid" || fail "no replica was there to be killed"
    wait $card || fail "the replicas on the card: $(cat card.out)"
    wait $cpu || fail "the replica on the CPU: $(cat cpu.out)"
    [ "$(cat cpu.jsonl card.jsonl | grep '"event":"end"' | grep -o '"digest":"[^"]*"' | sort | uniq -c |
        awk '{ print $1 }')" = 3 ] || fail "the replicas end in other states"
    expect 0 diloco verify $store
    rm -f card.jsonl cpu.jsonl
done

# A replica that resumes on the CPU reports it: its training may have other bits.
expect 0 diloco train tiny.toml $short --store moved --set run.replicas=1 --set trainer.device=cuda
expect 0 diloco train tiny.toml $short --store moved --set run.replicas=1 --set trainer.device=cuda
! grep -q 'not bit for bit' out err || fail "the same card is reported as another device"
expect 0 diloco train tiny.toml $short --store moved --set run.replicas=1
cat out err | grep -q '^warning: saved with emulated device, .*, resumed with cpu, .*not bit for bit' ||
    fail "another device is not reported"

# The result of the self-test is kept, and a card that computes wrongly is refused by its kernel.
[ "$(find cache -type f | wc -l)" = 1 ] || fail "not one result in the cache"
grep -q '^passed: driver 13000, card emulated device ' "$(find cache -type f)" || fail "the cache's key"

# One replica on two cards, which share the micro-batches of a step: two runs end with the same bits.
EMULATED_DEVICES=2
export EMULATED_DEVICES
batches="--set run.replicas=1 --set trainer.gradient_accumulation_steps"
expect_error 2 'micro-batches of a step equally: set a multiple of 2' \
    diloco train tiny.toml $short $batches=3 --set trainer.device=cuda:0,1
expect_error 3 'by NCCL, which cannot be loaded: ' \
    diloco train tiny.toml $short $batches=2 --store alone --set trainer.device=cuda:0,1
ln -s "$(dirname "$driver")/libemulated_nccl.so" emulated/libnccl.so.2
for run in a b; do
    expect 0 diloco train tiny.toml $short $batches=2 --store "cards$run" --set trainer.device=cuda:0,1 --record "$run.jsonl"
    expect 0 diloco verify "cards$run"
    grep '"event":"end"' $run.jsonl | grep -o '"digest":"[^"]*"' >$run.digest
done
[ -s a.digest ] && cmp a.digest b.digest || fail "two runs on two cards end in two states"
EMULATED_DEVICES=1

EMULATED_FAULT=dl_swiglu_backward
export EMULATED_FAULT
expect_error 3 'kernel dl_swiglu_backward gives a wrong result on the cuda device' \
    env XDG_CACHE_HOME="$PWD/other" diloco train tiny.toml $short --set trainer.device=cuda
[ ! -d other ] || fail "a card that failed has a result in the cache"
expect 0 diloco doctor
grep -q '^  kernels        kernel dl_swiglu_backward gives a wrong result' out || fail "doctor uses the cache"
