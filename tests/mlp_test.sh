#!/bin/sh
# mlp_test.sh BUILD_FOLDER - examples/mlp.c works as its first lines say. Two processes end with the
# same parameters, to the bit, and the network has learnt. The same holds when one of them is killed
# on the way and started again.
set -eu

build=$(cd "$1" && pwd)
source=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "mlp_test: $*" >&2; exit 1; }
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
sanitize=$(cached DILOCO_SANITIZE_FLAGS)

"$(cached CMAKE_C_COMPILER)" -std=c11 -O1 -Wall -Wextra -Werror $sanitize \
    -I"$source/include" "$source/examples/mlp.c" -L"$build" -Wl,-rpath,"$build" -ldiloco -lm \
    -o "$work/mlp"
cd "$work"

./mlp run r0 >r0.txt &
first=$!
./mlp run r1 >r1.txt || fail "r1 ended with $?"
wait $first || fail "r0 ended with $?"
cmp r0.txt r1.txt || fail "the replicas do not agree"
right=$(cut -d' ' -f1 r0.txt)
[ "$right" -ge 950 ] || fail "only $right of 1000 points are right"

./mlp killed r0 >k0.txt &
first=$!
./mlp killed r1 >k1.txt &
second=$!
until [ -e killed/log/0000000003.json ]; do sleep 0.01; done
kill -9 $second 2>/dev/null || true
wait $second 2>/dev/null || true
./mlp killed r1 >k1.txt || fail "r1 ended with $? in its second life"
wait $first || fail "r0 ended with $? beside a killed one"
cmp r0.txt k0.txt || fail "a kill has changed the parameters"
cmp r0.txt k1.txt || fail "the replica that was killed has other parameters"
