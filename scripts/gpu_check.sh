#!/bin/sh
# gpu_check.sh OUT [--emulated DRIVER] [PHASE…]: check the program on a machine with a card. It runs in
# the folder that gpu_pack.sh makes, without a network, for at most ten minutes. Each of the nine phases
# has a time limit, and a failed one does not stop the later ones.
#
# A phase prints one line: passed, failed or left out, and why. It is left out if the machine lacks
# what it needs. OUT gets results.jsonl (a line of JSON for each phase and each measurement), N.log
# of phase N and table.txt. Exit code: 0 if no phase failed, 1 if one failed, 2 for wrong usage.
#
# --emulated DRIVER takes libemulated_driver.so of a build's tests in place of a card's driver, with
# small models, to try this script without a card. PYTHON names a Python with torch (python3).
# GPU_CHECK_LIMIT, in seconds, replaces the limits of all phases.
set -u
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd -P)
self=$here/$(basename "$0")

usage() {
    echo "gpu_check: $*; usage: gpu_check.sh OUT [--emulated DRIVER] [PHASE…]" >&2
    exit 2
}

# limit N: seconds of phase N, together 590 on a card. A busy machine without one is slower.
limit() {
    [ -z "${GPU_CHECK_LIMIT:-}" ] || { echo "$GPU_CHECK_LIMIT" && return; }
    set -- "$1" 15 45 60 75 75 30 160 90 40
    shift "$1"
    echo $(($2 * ${emulated:+5 * }1))
}
name() {
    set -- "$1" card ceilings python operations sanitizer bits speed run profile
    shift "$1"
    echo "$2"
}

# ---- common to all phases. A phase is a process of its own, and writes its result to $out/N.said.

say() { echo "$*" >"$out/$phase.said"; }
failed() { say "$*" && exit 1; }
left_out() { say "$*" && exit 77; }
measured() { echo "{\"phase\":$phase,\"name\":\"$(name "$phase")\",$1}" >>"$out/results.jsonl"; }

# json KEY <file: the value of a key of an object, text without its quotes.
json() { tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" | head -1; }

# quoted TEXT: as a JSON string. Control characters of a log become spaces.
quoted() { printf '"%s"' "$(printf %s "$1" | tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g')"; }

# The machine's own libraries come first. Those of the folder are for a machine that lacks some.
# exec_ours takes the place of its shell, so that $! of a background one is the program's.
exec_ours() {
    path=${emulated:+$out/emulated}
    ! ldd "$here"/bin/* 2>&1 | grep -q 'not found' || path=$path:$here/lib
    [ -z "$path" ] || export LD_LIBRARY_PATH="$path"
    exec "$@"
}
ours() { (exec_ours "$@"); }
python() {
    (
        ! ldd "$here/lib/libdiloco.so" 2>&1 | grep -q 'not found' || export LD_LIBRARY_PATH="$here/lib"
        DILOCO_LIBRARY=$here/lib PYTHONPATH=$here/python PYTHONDONTWRITEBYTECODE=1 exec "${PYTHON:-python3}" "$@"
    )
}
need_torch() { [ "$torch" = yes ] || left_out "$torch"; }

# ---- the phases

# The card, and each kernel against the CPU on it.
phase_0() {
    uname -a
    ! command -v nvidia-smi || nvidia-smi
    for program in "$here"/bin/*; do
        LD_LIBRARY_PATH=$here/lib ldd "$program" 2>&1 | grep 'not found' &&
            failed "$(basename "$program") needs a library that this machine lacks (0.log)"
    done
    ours "$here/bin/diloco" doctor --json >"$out/doctor.json" || failed "diloco doctor fails (0.log)"
    cat "$out/doctor.json"
    [ "$(json usable <"$out/doctor.json")" = true ] || failed "$(json problem <"$out/doctor.json")"
    card=$(json card <"$out/doctor.json")
    took=$(json self_test_seconds <"$out/doctor.json")
    measured "\"card\":$(quoted "$card"),\"product_flops_per_s\":$(json product_flops_per_s <"$out/doctor.json"),\"copy_bytes_per_s\":$(json copy_bytes_per_s <"$out/doctor.json"),\"self_test_seconds\":$took"
    say "$card: all $(json kernels <"$out/doctor.json") kernels give the CPU's results, in $(printf %.3g "$took") s"
}

# The speed of the card through torch.
phase_1() {
    need_torch
    python "$here/gpu_ceilings.py" cuda 8192 >"$out/ceilings" || failed "gpu_ceilings.py fails (1.log)"
    sed 's/^{/{"phase":1,"name":"ceilings",/' "$out/ceilings" >>"$out/results.jsonl"
    best=$(sed -n 's/.*"flops_per_s": \([0-9.e+]*\).*/\1/p' "$out/ceilings" | sort -g | tail -1)
    say "products reach $(awk -v f="$best" 'BEGIN { printf "%.0f", f / 1e12 }') TFLOP/s"
}

# The package's tests of CUDA tensors. A test that skips itself is no pass.
phase_2() {
    need_torch
    ran=0
    for test in "torch_test.py Cuda" "diloco_test.py -k cuda" "cuda_test.py"; do
        # shellcheck disable=SC2086 # a file and its arguments
        (cd "$here/python/tests" && python $test) >"$out/python" 2>&1 || bad="${bad:-}${bad:+, }$test"
        cat "$out/python"
        ! grep -q 'skipped=' "$out/python" || bad="${bad:-}${bad:+, }$test skips tests"
        ran=$((ran + $(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' "$out/python")))
    done
    [ -z "${bad:-}" ] || failed "$bad (2.log)"
    say "$ran tests of CUDA tensors"
}

# Operations, optimizers, a model and the trainer against the CPU, and twice with equal bits.
phase_3() {
    for test in kernels model train; do
        ours "$here/bin/card_${test}_test" || bad="${bad:-}${bad:+, }card_${test}_test"
    done
    [ -z "${bad:-}" ] || failed "$bad (3.log)"
    say "kernels, a model and the trainer follow the CPU"
}

phase_4() {
    tool=$(command -v compute-sanitizer) || left_out "compute-sanitizer is not installed"
    for check in memcheck racecheck initcheck synccheck; do
        EMULATED_SEEDS=1 ours "$tool" --tool $check --error-exitcode 9 "$here/bin/card_model_test" 'gpt_*' ||
            bad="${bad:-}${bad:+, }$check"
    done
    [ -z "${bad:-}" ] || failed "$bad (4.log)"
    say "memcheck, racecheck, initcheck and synccheck of a model's step"
}

# The outer step runs on the host; all replicas need its bits.
phase_5() {
    ours "$here/bin/outer_bits" || failed "other bits than on the machines before (5.log)"
    say "outer step, combiners and codecs have the recorded bits"
}

# counts_of FILE: members that only one of the systems prints. Bytes are its own count, ours by plan and torch's by
# its tensors. Launches are of the last step.
counts_of() {
    for key in planned_bytes allocated_bytes graphs kernels; do
        count=$(json $key <"$1")
        [ -z "$count" ] || printf '"%s":%s,' $key "$count"
    done
}

# speed_of MODEL SYSTEM PRECISION BATCH LAYERS CHANNELS CONTEXT FILE: a line of JSON from what a program of
# speed printed. It sets $rate to tokens a second and $bytes to the memory of the card. MFU counts attention as
# causal, 6 N + 6 L C T operations a token, of the card's peak in bfloat16 without sparsity, where that is known.
speed_of() {
    rates=$(sed -n 's/.*"seconds": *\[\([^]]*\)\].*/\1/p' "$8" | tr -d ' ' | tr ',' '\n' | sort -g)
    [ -n "$rates" ] || return 1
    numbers=$(printf '%s\n' "$rates" | awk -v tokens="$(json tokens <"$8")" -v n="$(json parameters <"$8")" \
        -v l="$5" -v c="$6" -v t="$7" -v card="$(json device <"$8")" '
        { s[NR] = $1 }
        END {
            rate = tokens / s[int((NR + 1) / 2)]
            peak = card ~ /H100|H200/ ? 989e12 : card ~ /A100/ ? 312e12 : card ~ /L40S/ ? 362e12 : 0
            mfu = peak ? sprintf("%.4f", rate * (6 * n + 6 * l * c * t) / peak) : "null"
            printf "\"tokens_per_s\":%.1f,\"mfu\":%s", rate, mfu
        }')
    bytes=$(json bytes <"$8")
    measured "\"card\":$(quoted "$(json device <"$8")"),\"model\":\"$1\",\"system\":\"$2\",\"precision\":\"$3\",\"batch\":$4,$numbers,\"bytes\":$bytes,$(counts_of "$8")\"parameters\":$(json parameters <"$8")"
    rate=$(echo "$numbers" | sed 's/.*per_s":\([0-9.]*\).*/\1/')
    said="${said:-}${said:+; }$1 $2 $3 ${rate%.*} tokens/s"
}

# share A B: A as a share of B; null if B is 0.
share() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.3f", a / b; else print "null" }'; }

# ratios MODEL RATE BYTES PRECISION=RATE=BYTES…: this program's tokens a second and memory of the card, in each
# precision, as shares of RATE and BYTES. These are of torch.compile in bf16. A share in f32 compares two
# precisions, and says so.
ratios() {
    model=$1 their_rate=$2 their_bytes=$3
    shift 3
    for ours; do
        precision=${ours%%=*} ours=${ours#*=}
        ratio=$(share "${ours%=*}" "$their_rate")
        bytes_ratio=$(share "${ours#*=}" "$their_bytes")
        measured "\"model\":\"$model\",\"ratio\":$ratio,\"bytes_ratio\":$bytes_ratio,\"of\":\"diloco $precision\",\"to\":\"torch.compile bf16\""
        said="$said; $model diloco $precision / torch.compile bf16 $ratio, bytes $bytes_ratio"
        [ "$precision" = bf16 ] || said="$said (two precisions)"
    done
}

# speed MODEL BATCH LAYERS HEADS CHANNELS CONTEXT VOCAB: this program in both precisions and torch, one after the
# other, with equal batches.
speed() {
    shape="--batch $2 --layers $3 --heads $4 --channels $5 --context $6 --vocab $7"
    own=
    for precision in f32 bf16; do
        # shellcheck disable=SC2086 # arguments
        if timeout --foreground 45 sh "$self" "$out" --run card_speed --device cuda --precision $precision --seconds 5 $shape >"$out/speed"; then
            if speed_of "$1" diloco $precision "$2" "$3" "$5" "$6" "$out/speed"; then
                own="$own $precision=$rate=$bytes"
                continue
            fi
        fi
        bad="${bad:-}${bad:+, }diloco $1 $precision"
    done
    [ "$torch" = yes ] || return 0
    for kind in --compile ""; do
        # shellcheck disable=SC2086 # arguments
        if ! python "$here/train_speed_torch.py" --device cuda --dtype bfloat16 --steps 20 --seconds 4 $kind $shape >"$out/speed" ||
            ! speed_of "$1" "torch${kind:+.compile}" bf16 "$2" "$3" "$5" "$6" "$out/speed"; then
            bad="${bad:-}${bad:+, }torch${kind:+.compile} $1"
        elif [ -n "$kind" ]; then
            # shellcheck disable=SC2086 # a word for each precision
            ratios "$1" "$rate" "$bytes" $own
        fi
    done
}

phase_6() {
    if [ -n "$emulated" ]; then
        speed tiny 1 1 2 32 32 70
    else
        speed 124M 16 12 12 768 1024 50304
        speed 1.5B 4 48 25 1600 1024 50304
    fi
    [ -z "${bad:-}" ] || failed "$bad (6.log)${said:+; $said}"
    need_torch_for_speed
    say "$said"
}
need_torch_for_speed() { [ "$torch" = yes ] || left_out "$torch; ${said:-}"; }

# The first replica that this program started. The emulated device is a child, too.
replica_of() {
    for pid in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        [ "$(readlink "/proc/$pid/exe")" != "$here/bin/diloco" ] || { echo "$pid" && return; }
    done
}

# Two replicas on the card and one on the CPU. One on the card is killed and rejoins. All end in one
# state, which `verify` computes again on the CPU.
phase_7() {
    rm -rf "$out/run" && mkdir "$out/run" && cd "$out/run" || exit 1
    cp "$here/text.txt" "$here/run.toml" .
    # A replica is killed before the last entry: a card needs more of them than the emulated device.
    rounds=15
    [ -z "$emulated" ] || rounds=8
    exec_ours "$here/bin/diloco" train run.toml --store mixed --set run.replicas=3 --replicas 2 \
        --set trainer.rounds=$rounds --set trainer.device=cuda --record card.jsonl >card.out 2>&1 &
    card=$!
    until [ -e mixed/run.json ]; do
        kill -0 $card 2>/dev/null || { cat card.out && failed "the replicas on the card do not start (7.log)"; }
        sleep 0.05
    done
    exec_ours "$here/bin/diloco" join mixed --set data.train_path=text.txt --record cpu.jsonl >cpu.out 2>&1 &
    cpu=$!
    until [ -e mixed/log/0000000000.json ]; do
        kill -0 $card 2>/dev/null || { cat card.out && failed "no entry is committed (7.log)"; }
        sleep 0.05
    done
    kill -9 "$(replica_of $card)" || failed "no replica was there to be killed (7.log)"
    wait $card || { cat card.out && failed "the replicas on the card fail (7.log)"; }
    wait $cpu || { cat cpu.out && failed "the replica on the CPU fails (7.log)"; }
    cat card.out cpu.out
    digests=$(cat cpu.jsonl card.jsonl | grep '"event":"end"' | grep -o '"digest":"[^"]*"' | sort | uniq -c)
    [ "$(echo "$digests" | awk '{ print $1 }')" = 3 ] || failed "the replicas end in other states: $digests"
    [ "$(grep -c '"event":"trainer"' card.jsonl)" -ge 3 ] || failed "the killed replica did not rejoin (7.log)"
    ours "$here/bin/diloco" verify mixed || failed "verify finds another state (7.log)"
    said="two replicas on the card and one on the CPU end in one state; one was killed and rejoined"
    due_points false && due_points true
    [ -z "${bad:-}" ] || failed "no due point was measured: $bad (7.log); $said"
    say "$said"
}

# due_points DEVICE_EXCHANGE: the share of a round for which training pauses at its due points, by the record
# of one replica. An interrupted run is enough, so that a slow card keeps to the limit. On the emulated device it ends
# by itself.
due_points() {
    steps=30 rounds=1000 seconds=20
    set -- "$1" --set trainer.batch_size=16 --set trainer.gradient_accumulation_steps=2 --set parameters.model.layers=12 \
        --set parameters.model.heads=12 --set parameters.model.channels=768 --set parameters.model.context=1024
    [ -z "$emulated" ] || { steps=5 rounds=4 seconds=0 && set -- "$1"; }
    exchange=$1 ended=0
    shift
    timeout --foreground -s INT $seconds sh "$self" "$out" --run diloco train run.toml --store "due-$exchange" \
        --set run.replicas=1 --set trainer.rounds=$rounds --set trainer.local_steps_per_round=$steps \
        --set server.diloco.overlap_steps=$((steps - 2)) --set server.diloco.codec=int4 --set trainer.eval_every=0 \
        --set trainer.device=cuda --set trainer.precision=bf16 --set trainer.device_exchange="$exchange" "$@" \
        --record "due-$exchange.jsonl" || ended=$?
    if { [ $ended != 0 ] && [ $ended != 124 ]; } || ! share_of_due_points <"due-$exchange.jsonl" >"$out/due"; then
        bad="${bad:-}${bad:+, }trainer.device_exchange = $exchange"
        return
    fi
    measured "\"local_steps\":$steps,\"device_exchange\":$exchange,$(cat "$out/due")"
    said="$said; a due point takes $(json share <"$out/due" | awk '{ printf "%.2f", 100 * $1 }') % of $steps steps with trainer.device_exchange = $exchange"
}

# share_of_due_points <RECORD: members of JSON. From one adoption to the next one there is one due point. All
# time that is not of steps counts as its pause, so the share is at most this. The first round and the end are left out.
share_of_due_points() {
    awk '
        function number(key) {
            return match($0, "\"" key "\":[-+.0-9e]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0 : 0
        }
        /"event":"step"/ { took[number("position")] = number("tokens") / number("tokens_per_s"); tokens = number("tokens") }
        /"event":"adopt"/ && number("position") == number("taken_at") + number("overlap_steps") {
            if (++n == 1) { first = number("position"); began = number("time") }
            else waited += number("wait_s")
            last = number("position")
            ended = number("time")
        }
        END {
            if (n < 2) exit 1
            for (i = first + 1; i <= last; i++) trained += took[i]
            all = ended - began
            paused = all - trained
            printf "\"due_points\":%d,\"round_s\":%.6f,\"paused_s\":%.6f,\"waited_s\":%.6f,\"share\":%.6f,\"tokens_of_step\":%d",
                n - 1, all / (n - 1), paused / (n - 1), waited / (n - 1), paused / all, tokens
        }'
}

# The time of each kernel in a step, by ncu; then its report of the three slowest.
phase_8() {
    tool=$(command -v ncu) || left_out "ncu is not installed"
    set -- "$here/bin/card_speed" --device cuda --batch 1 --steps 1 --layers 2 --heads 12 --channels 768 --context 512 --vocab 8192
    [ -z "$emulated" ] || set -- "$here/bin/card_speed" --device cuda --batch 1 --steps 1 --layers 1 --heads 2 --channels 32 --context 16
    ours "$tool" --csv --metrics gpu__time_duration.sum "$@" >"$out/kernels.csv" || failed "ncu fails (8.log)"
    awk -F'","' '
        /Kernel Name/ { for (i = 1; i <= NF; i++) { if ($i ~ /Kernel Name/) k = i; if ($i ~ /Metric Value/) v = i } next }
        k { value = $v; gsub(/[",]/, "", value); time[$k] += value; all += value }
        END { for (name in time) if (all) printf "%.1f %s\n", 100 * time[name] / all, name }' "$out/kernels.csv" |
        sort -rn | head -3 >"$out/slowest"
    [ -s "$out/slowest" ] || failed "ncu names no kernel (8.log)"
    while read -r percent kernel; do
        measured "\"kernel\":$(quoted "$kernel"),\"percent\":$percent"
        said="${said:-}${said:+, }$kernel $percent %"
        ours "$tool" --kernel-name "regex:^${kernel%%(*}\$" --launch-count 1 "$@" || failed "ncu fails at $kernel (8.log)"
    done <"$out/slowest"
    say "$said"
}

# ---- one phase, or all

[ $# -gt 0 ] || usage "OUT is missing"
out=$1
shift
case ${1:-} in
--run) # a program of the folder, for timeout, which runs no function
    emulated=${GPU_CHECK_EMULATED:-}
    program=$here/bin/$2
    shift 2
    exec_ours "$program" "$@"
    ;;
--phase)
    phase=$2
    emulated=${GPU_CHECK_EMULATED:-}
    torch=$GPU_CHECK_TORCH
    "phase_$phase"
    exit
    ;;
esac
emulated=
if [ "${1:-}" = --emulated ]; then
    [ -e "${2:-}" ] || usage "--emulated needs libemulated_driver.so"
    emulated=$(readlink -f "$2")
    shift 2
fi
phases=${*:-0 1 2 3 4 5 6 7 8}
for phase in $phases; do
    case $phase in [0-8]) ;; *) usage "$phase is no phase" ;; esac
done
[ -d "$here/bin" ] || usage "there is no folder bin beside it, which gpu_pack.sh makes"
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
: >"$out/results.jsonl"
if [ -n "$emulated" ]; then
    mkdir -p "$out/emulated" && ln -sf "$emulated" "$out/emulated/libcuda.so.1" || exit 2
fi
# A result of an earlier self-test does not count.
XDG_CACHE_HOME=$out/cache
GPU_CHECK_EMULATED=$emulated
rm -rf "$XDG_CACHE_HOME"
GPU_CHECK_TORCH=yes
timeout 60 "${PYTHON:-python3}" -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >"$out/torch.log" 2>&1 ||
    GPU_CHECK_TORCH="${PYTHON:-python3} has no torch with CUDA"
export XDG_CACHE_HOME GPU_CHECK_EMULATED GPU_CHECK_TORCH

# end SESSION: kill its processes and wait until they are gone. Replicas have process groups of their own, but
# stay in the session. Code 1: one is left after ten seconds.
end() {
    for try in $(seq 100); do
        # pid (command) state parent group session …
        pids=$(cat /proc/[0-9]*/stat 2>/dev/null |
            awk -v session="$1" '{ pid = $1; sub(/.*\) /, "") } $4 == session && $1 != "Z" { print pid }')
        [ -n "$pids" ] || return 0
        # shellcheck disable=SC2086 # numbers
        kill -s KILL $pids 2>/dev/null
        sleep 0.1
    done
    return 1
}

# run_phase: gives the exit code of the phase in $code. It is a session of its own, of which no process
# outlives it.
run_phase() {
    setsid timeout -k 5 "$(limit "$phase")" sh "$self" "$out" --phase "$phase" >"$out/$phase.log" 2>&1 </dev/null &
    wait $!
    code=$?
    end $! || { code=1 && say "a process of this phase cannot be killed"; }
}

n_passed=0 n_failed=0 n_left_out=0
: >"$out/table.txt"
for phase in $phases; do
    rm -f "$out/$phase.said"
    began=$(date +%s)
    run_phase
    seconds=$(($(date +%s) - began))
    because=$(cat "$out/$phase.said" 2>/dev/null)
    case $code in
    0) result=passed n_passed=$((n_passed + 1)) ;;
    77) result="left out" n_left_out=$((n_left_out + 1)) ;;
    *)
        result=failed n_failed=$((n_failed + 1))
        [ $code != 124 ] && [ $code != 137 ] || because="not done in $(limit "$phase") s ($phase.log)"
        : "${because:=exit code $code ($phase.log)}"
        ;;
    esac
    printf '{"phase":%s,"name":"%s","result":"%s","seconds":%s,"because":%s}\n' "$phase" "$(name "$phase")" \
        "$result" "$seconds" "$(quoted "$because")" >>"$out/results.jsonl"
    printf '%s %-10s %-8s %3s s  %s\n' "$phase" "$(name "$phase")" "$result" "$seconds" "$because" |
        tee -a "$out/table.txt"
done
echo "$n_passed passed, $n_failed failed, $n_left_out left out" | tee -a "$out/table.txt"
[ $n_failed = 0 ]
