#!/bin/sh
# gpu_check_test.sh BUILD: scripts/gpu_pack.sh and scripts/gpu_check.sh with the emulated device in place of
# a card. compute-sanitizer and ncu are fakes. Left out without device code in BUILD.
set -eu
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -e "$build/tests/cuda_emu/card_speed" ]; then
    echo "left out: gpu_pack.sh and gpu_check.sh (no device code: nvcc is missing)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() {
    echo "gpu_check_test: $*" >&2
    for file in said OUT/*.log; do [ ! -s "$file" ] || tail -n 15 "$file" | sed "s|^|  $file: |" >&2; done
    exit 1
}
# expect CODE COMMAND…: its output in `said`.
expect() {
    wanted=$1 got=0
    shift
    "$@" >said 2>&1 </dev/null || got=$?
    [ $got = "$wanted" ] || fail "expected exit code $wanted, got $got: $*"
}
says() { grep -q -- "$1" said || fail "it does not say: $1"; }

# The folder.
mkdir empty
expect 1 "$root/scripts/gpu_pack.sh" empty pack
says 'empty has no diloco: build it where nvcc is'
expect 1 "$root/scripts/gpu_pack.sh" "$build" empty
says 'empty exists'
expect 0 "$root/scripts/gpu_pack.sh" "$build" pack
[ "$(wc -l <pack/README)" -le 40 ] || fail "the README is longer than a screen"
[ "$(du -sk pack | cut -f1)" -le 65536 ] || fail "the folder is too large"
# Phase 2 is left out here, because it needs a card. So the imports of its tests are read instead.
python3 - "$root/python/tests" pack/python/tests <<'TEXT' || fail "the folder lacks a module of its tests"
import ast
import pathlib
import sys

ours, packed = map(pathlib.Path, sys.argv[1:])
tests = sorted(packed.glob("*.py"))
assert len(tests) >= 3, tests
for test in tests:
    for node in ast.walk(ast.parse(test.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else \
            [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            file = name.split(".")[0] + ".py"
            assert (packed / file).exists() or not (ours / file).exists(), f"{test.name}: {file}"
TEXT
expect 2 "$root/scripts/gpu_check.sh" OUT
says 'gpu_pack.sh makes'

# check CODE ARGUMENT…: on the emulated device, without torch. No process of it may be left.
check() {
    code=$1
    shift
    expect "$code" env PYTHON=false PATH="$PWD/tools:$PATH" sh pack/gpu_check.sh OUT --emulated \
        "$build/tests/cuda_emu/libemulated_driver.so" "$@"
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe") in "$work"/*) fail "a process outlives its phase: $(tr '\0' ' ' <"$process/cmdline")" ;; esac
    done
}
# phase N RESULT TEXT: the line of this phase.
phase() { grep -q "^$1 [a-z]* *$2 .*$3" said || fail "phase $1 is not $2 with: $3"; }

expect 2 sh pack/gpu_check.sh
expect 2 sh pack/gpu_check.sh OUT 9
says '9 is no phase'
mkdir tools
if ! command -v compute-sanitizer ncu; then
    check 0 4 8
    phase 4 'left out' 'compute-sanitizer is not installed'
    phase 8 'left out' 'ncu is not installed'
    says '^0 passed, 0 failed, 2 left out$'
fi
cat >tools/compute-sanitizer <<'TEXT'
#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 9" ] || exit 3
[ "$2" = memcheck ] || exit 0
shift 4
exec "$@"
TEXT
cat >tools/ncu <<'TEXT'
#!/bin/sh
[ "$1" = --csv ] || exec true
echo '==PROF== a line of ncu'
echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
for row in 'dl_product(a, b)","x","ns","6,000' 'dl_adamw","x","ns","1,000' 'dl_product(a, b)","x","ns","2,000' 'dl_scale","x","ns","10' 'dl_pull","x","ns","5'; do
    echo "\"1\",\"$row\""
done
TEXT
chmod +x tools/*
check 0
phase 0 passed "emulated device: all [0-9]* kernels give the CPU's results, in [0-9.e+]* s\$"
phase 1 'left out' 'false has no torch with CUDA'
phase 2 'left out' 'false has no torch with CUDA'
phase 3 passed 'follow the CPU'
phase 4 passed 'racecheck'
phase 5 passed 'recorded bits'
phase 6 'left out' 'no torch with CUDA; tiny diloco f32 [0-9]* tokens/s; tiny diloco bf16 [0-9]* tokens/s$'
phase 7 passed 'one was killed and rejoined; a due point takes [0-9.]* % of 5 steps with trainer.device_exchange = false; a due point takes [0-9.]* % of 5 steps with trainer.device_exchange = true$'
phase 8 passed 'dl_product(a, b) 88.7 %, dl_adamw 11.1 %, dl_scale 0.1 %'
says '^6 passed, 0 failed, 3 left out$'
diff said OUT/table.txt || fail "table.txt has other lines"
python3 - OUT/results.jsonl <<'TEXT' || fail "results.jsonl"
import json
import sys

lines = [json.loads(line) for line in open(sys.argv[1])]
results = {x["phase"]: x for x in lines if "result" in x}
assert sorted(results) == list(range(9)), results
assert all(x["because"] and x["seconds"] < 600 for x in results.values())
speed = [x for x in lines if "tokens_per_s" in x]
assert [x["precision"] for x in speed] == ["f32", "bf16"], speed
for x in speed:
    assert x["tokens_per_s"] > 0 and x["mfu"] is None, speed
    assert x["card"] == "emulated device", speed
    assert x["bytes"] >= x["planned_bytes"] > 4 * x["parameters"] > 0, speed
    assert x["graphs"] == 1 and x["kernels"] == 0, speed
    assert x["bytes"] < x["planned_bytes"] + 65536, speed
assert speed[0]["bytes"] != speed[1]["bytes"], speed
assert [x["percent"] for x in lines if "kernel" in x] == [88.7, 11.1, 0.1]
due = [x for x in lines if "due_points" in x]
assert [x["device_exchange"] for x in due] == [False, True], due
for x in due:
    assert x["due_points"] == 2 and x["local_steps"] == 5 and x["tokens_of_step"] == 64, due
    assert 0 < x["paused_s"] < x["round_s"] and 0 <= x["waited_s"] < x["round_s"], due
    assert abs(x["share"] - x["paused_s"] / x["round_s"]) < 1e-3, due
card = [x for x in lines if "product_flops_per_s" in x]
assert card[0]["product_flops_per_s"] > 0 and card[0]["copy_bytes_per_s"] > 0, card
assert card[0]["self_test_seconds"] > 0, card
TEXT

# The ratios, with a substitute for a Python with torch. It prints 64 tokens a second.
cat >tools/torch <<'TEXT'
#!/bin/sh
[ "$1" != -c ] || exit 0
echo '{"device": "emulated device", "bytes": 400000, "allocated_bytes": 300000, "parameters": 10, "tokens": 32, "seconds": [0.5]}'
TEXT
chmod +x tools/torch
expect 0 env PYTHON="$PWD/tools/torch" sh pack/gpu_check.sh OUT --emulated \
    "$build/tests/cuda_emu/libemulated_driver.so" 6
phase 6 passed 'tiny torch.compile bf16 64 tokens/s; tiny diloco f32 / torch.compile bf16 [0-9.]*, bytes 0.[0-9]* (two precisions); tiny diloco bf16 / torch.compile bf16 [0-9.]*, bytes 0.[0-9]*; tiny torch bf16 64 tokens/s$'
[ "$(grep -c '"ratio":[0-9.]*,"bytes_ratio":0.[0-9]*,"of":"diloco f32","to":"torch.compile bf16"' OUT/results.jsonl)" = 1 ] ||
    fail "results.jsonl has no ratio"

# A card that computes wrongly fails, by its kernel, and the later phases run. So does a phase that takes
# too long.
EMULATED_FAULT=dl_swiglu_backward
export EMULATED_FAULT
check 1 0 5
phase 0 failed 'kernel dl_swiglu_backward gives a wrong result'
phase 5 passed 'recorded bits'
unset EMULATED_FAULT
export GPU_CHECK_LIMIT
for GPU_CHECK_LIMIT in 1 2; do
    check 1 7
    phase 7 failed "not done in $GPU_CHECK_LIMIT s (7.log)"
    says '^0 passed, 1 failed, 0 left out$'
done
echo "gpu_check_test: passed"
