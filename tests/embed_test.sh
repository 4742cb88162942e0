#!/bin/sh
# embed_test.sh BUILD_FOLDER - examples/embed.c, compiled as its first lines say, works as they say.
# Two processes train on different data and end with the same weights, near the truth. The same
# commands again find the run ended. The example stays short.
set -eu

build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "embed_test: $*" >&2; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitize=$(cached DILOCO_SANITIZE_FLAGS)

[ "$(wc -l <"$source/examples/embed.c")" -lt 80 ] || fail "embed.c has 80 lines or more"
"$(cached CMAKE_C_COMPILER)" -std=c11 -Wall -Wextra -Werror $sanitize \
    -I"$source/include" "$source/examples/embed.c" -L"$build" -Wl,-rpath,"$build" -ldiloco \
    -o "$work/embed"
cd "$work"

both() {
    ./embed run r0 >r0.txt &
    first=$!
    ./embed run r1 >r1.txt || fail "r1 ended with $?"
    wait $first || fail "r0 ended with $?"
    cmp r0.txt r1.txt || fail "the replicas do not agree"
}

both
awk '{ for (i = 1; i <= NF; i++) if (($i - i) ^ 2 > 0.01) exit 1; exit NF != 8 }' r0.txt ||
    fail "the weights are not within 0.1 of 1 … 8: $(cat r0.txt)"
[ "$(ls run/log | wc -l)" = 40 ] || fail "there are $(ls run/log | wc -l) entries, not 40"
cp r0.txt before.txt
both
cmp r0.txt before.txt || fail "a run that has ended gives other weights"
