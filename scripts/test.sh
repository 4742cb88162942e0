#!/bin/sh
# test.sh BUILD [CTEST-ARGUMENT…]: run the tests of a build folder; list those that were left out;
# end with "N passed, N failed". A core has three slots: a test that computes takes two, and one that
# mostly waits, for servers and replicas, takes one (tests/CMakeLists.txt). A report of a sanitizer
# fails too, also of a process that no test waits for.
set -u
build=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT

reports=$(readlink -f "$build")/Testing/reports
rm -rf "$reports"
mkdir -p "$reports"
# A test of DILOCO_ENOMEM wants NULL from a sanitizer's malloc too, not the end. Libraries of
# LD_PRELOAD may come before the runtime.
export ASAN_OPTIONS="log_path=$reports/address:allocator_may_return_null=1:verify_asan_link_order=0"
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="log_path=$reports/thread:allocator_may_return_null=1"

# A slot may take 1 GB. Sanitized and shaken programs (tests/shake/shake.c) take several times as long.
slots=$((3 * $(nproc)))
if grep -q '^DILOCO_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" || [ -n "${SHAKE_SEED:-}" ]; then
    slots=$((2 * $(nproc)))
fi
gigabytes=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
[ "$slots" -le "$gigabytes" ] || slots=$((gigabytes > 2 ? gigabytes : 2))

temporary=$build/Testing/Temporary
rm -f "$temporary/LastTestsFailed.log"
ctest --test-dir "$build" --output-on-failure -j "$slots" "$@" 2>&1 | tee "$out" |
    grep -v '^Internal ctest\|^Total Test time\|^$'

passed=$(grep -c ' Passed ' "$out")
skipped=$(grep -c '\*\*\*Skipped' "$out")
ran=$(sed -n 's/.*tests failed out of \([0-9]*\)$/\1/p' "$out")
failed=$((${ran:-0} - passed - skipped))
[ -n "$ran" ] || failed=1
for report in $(grep -l '^SUMMARY' "$reports"/* 2>/dev/null); do
    head -n 60 "$report"
    failed=$((failed + 1))
done

# Once more at the end, and short: a test that failed may have printed thousands of lines.
[ ! -e "$temporary/LastTestsFailed.log" ] || while IFS=: read -r number name; do
    echo "-- $name failed; its last lines:"
    awk -v head="^$number/[0-9]+ Test(ing)?: $name\$" '$0 ~ head { on = 1 } on { print }
        on && $0 == "<end of output>" { exit }' "$temporary/LastTest.log" |
        sed '/^<end of output>$/d' | tail -n 25
done <"$temporary/LastTestsFailed.log"

# Tests say on a line of their own what this machine does not let them do.
sed -n 's/.*\(left out: .*\)/\1/p' "$temporary/LastTest.log" 2>/dev/null | sort -u
[ "$skipped" -eq 0 ] || echo "left out: $skipped tests skipped themselves"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
