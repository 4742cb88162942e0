#!/bin/sh
# With two replicas an entry that counts what the store has lost stops both, and an operator's
# decision, recorded in the log, lets the run go on without it (protocol.md P7).
. "$(dirname "$0")/lib.sh"

# A run that is stopped after a few entries; what replicas keep for themselves is lost, too.
sed -i 's/^rounds = 6/rounds = 400/' tiny.toml
diloco train tiny.toml --store s --set run.retain=all --quiet >train.out 2>&1 &
train=$!
started="$started $train"
wait_for has_entry s 4
kill -INT $train
wait $train || true
expect_error 2 'nothing to void' diloco void s
n=$(ls s/log | wc -l)
lost=$((n - 2))
rm -rf s.local s/snap "s/c/$(printf %010d $lost)/r1.0000"

# Both stop there, and say what to do. Without --replica nothing is decided.
expect_error 1 'diloco void' diloco train tiny.toml --store s --quiet
grep -q "entry $lost needs the contribution of r1, which is gone" err || fail "not what is lost: $(cat err)"
expect_error 1 'no replica nobody' diloco void s --replica nobody
expect 0 diloco void s
grep -q "^Entry $n is to be an abort that voids entries $lost to $((n - 1))" out || fail "void says: $(cat out)"
[ "$(ls s/log | wc -l)" = "$n" ] || fail "without --replica an entry was made"
expect 0 diloco void s --replica r0
has_entry s "$n" || fail "the decision is not in the log"
grep -q "\"voids\":$lost," "s/log/$(printf %010d "$n").json" || fail "the decision names no entry"
expect_error 2 'nothing to void' diloco void s

# The run goes on behind the decision, and whoever reads the log comes to the same end.
diloco train tiny.toml --store s --quiet >train.out 2>&1 &
train=$!
started="$started $train"
wait_for has_entry s $((n + 3))
kill -INT $train
wait $train || true
expect 0 diloco verify s
expect 0 diloco log s
grep -q "an operator voids entry $lost" out || fail "log does not show the decision: $(cat out)"
