#!/bin/sh
# communicator_test.sh BUILD_FOLDER - examples/communicator.c, compiled as its first lines say: two
# replicas in one process (LIB-14) end with the same weights, near the truth, after one commit for
# every five steps.
set -eu

build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "communicator_test: $*" >&2; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitize=$(cached DILOCO_SANITIZE)

"$(cached CMAKE_C_COMPILER)" -std=c11 -Wall -Wextra -Werror ${sanitize:+-fsanitize=$sanitize} \
    -I"$source/include" "$source/examples/communicator.c" -L"$build" -Wl,-rpath,"$build" -ldiloco \
    -lpthread -o "$work/communicator"
"$work/communicator" >"$work/out" || fail "ended with $?: $(cat "$work/out")"
[ "$(sort -u "$work/out" | wc -l)" = 1 ] && [ "$(wc -l <"$work/out")" = 2 ] ||
    fail "the replicas do not agree: $(cat "$work/out")"
grep -q '^160 commits: ' "$work/out" || fail "there are not 160 commits: $(cat "$work/out")"
awk '{ for (i = 3; i <= NF; i++) if (($i - i + 2) ^ 2 > 0.01) exit 1; if (NF != 10) exit 1 }' \
    "$work/out" || fail "the weights are not within 0.1 of 1 … 8: $(cat "$work/out")"
