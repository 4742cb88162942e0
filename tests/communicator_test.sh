#!/bin/sh
# communicator_test.sh BUILD_FOLDER - the examples of two replicas in one process, compiled as their
# first lines say. communicator.c (LIB-14): they end with the same weights, near the truth, after one
# commit for every five steps. outer.c: likewise by an outer optimizer of their own, and the replay
# agrees.
set -eu

build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "communicator_test: $*" >&2; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitize=$(cached DILOCO_SANITIZE_FLAGS)

"$(cached CMAKE_C_COMPILER)" -std=c11 -Wall -Wextra -Werror $sanitize \
    -I"$source/include" "$source/examples/communicator.c" -L"$build" -Wl,-rpath,"$build" -ldiloco \
    -lpthread -o "$work/communicator"
"$work/communicator" >"$work/out" || fail "ended with $?: $(cat "$work/out")"
[ "$(sort -u "$work/out" | wc -l)" = 1 ] && [ "$(wc -l <"$work/out")" = 2 ] ||
    fail "the replicas do not agree: $(cat "$work/out")"
grep -q '^160 commits: ' "$work/out" || fail "there are not 160 commits: $(cat "$work/out")"
awk '{ for (i = 3; i <= NF; i++) if (($i - i + 2) ^ 2 > 0.01) exit 1; if (NF != 10) exit 1 }' \
    "$work/out" || fail "the weights are not within 0.1 of 1 … 8: $(cat "$work/out")"

"$(cached CMAKE_C_COMPILER)" -std=c11 -Wall -Wextra -Werror $sanitize \
    -I"$source/include" "$source/examples/outer.c" -L"$build" -Wl,-rpath,"$build" -ldiloco \
    -lpthread -lm -o "$work/outer"
"$work/outer" >"$work/out" || fail "outer ended with $?: $(cat "$work/out")"
[ "$(grep -c '^40 commits, verified: 1.0000 2.0000 3.0000 4.0000 5.0000 6.0000 7.0000 8.0000$' \
    "$work/out")" = 2 ] || fail "outer is not where both pull to: $(cat "$work/out")"
