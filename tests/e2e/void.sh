#!/bin/sh
# With two replicas an entry that counts what the store has lost stops both, and an operator's
# decision, recorded in the log, lets the run continue without it (protocol.md P7).
. "$(dirname "$0")/lib.sh"

# A run that is stopped after a few entries; the private state of the replicas is lost, too.
sed -i 's/^rounds = 6/rounds = 400/' tiny.toml
diloco train tiny.toml --store s --set run.retain=all --set run.snapshot_every=0.001 --quiet >train.out 2>&1 &
train=$!
started="$started $train"
wait_for has_entry s 4
kill -INT $train
wait $train || true
expect_error 2 'nothing to void' diloco void s
n=$(ls s/log | wc -l)
undone=$(ls s/snap | tail -1)
lost=$(($(echo "$undone" | sed 's/^0*//') - 1))
mv "s/snap/$undone" undone
rm -rf s.local s/snap "s/c/$(printf %010d $lost)/r1.0000"

# Both stop there, and say what to do. Without --replica nothing is decided.
expect_error 1 'diloco void' diloco train tiny.toml --store s --quiet
grep -q "entry $lost needs the contribution of r1, which is gone" err || fail "not what is lost: $(cat err)"
expect_error 1 'no replica nobody' diloco void s --replica nobody
expect 0 diloco void s
grep -q "^Entry $n would be an abort that voids entries $lost to $((n - 1))" out || fail "void says: $(cat out)"
[ "$(ls s/log | wc -l)" = "$n" ] || fail "without --replica an entry was made"
expect 0 diloco void s --replica r0
has_entry s "$n" || fail "the decision is not in the log"
grep -q "\"voids\":$lost," "s/log/$(printf %010d "$n").json" || fail "the decision names no entry"
expect_error 2 'nothing to void' diloco void s

# The only snapshot is of a state that the decision has undone: verify does not begin there.
mkdir s/snap
mv undone "s/snap/$undone"
expect 0 diloco verify s --from-snapshot
grep -q "^verified: $((n + 1)) entries chained, .* replayed from entry 0 " out || fail "it begins elsewhere"
rm -r s/snap

# The run continues after the decision, and every reader of the log reaches the same end.
diloco train tiny.toml --store s --quiet >train.out 2>&1 &
train=$!
started="$started $train"
wait_for has_entry s $((n + 3))
kill -INT $train
wait $train || true
expect 0 diloco verify s
expect 0 diloco log s
grep -q "an operator voids entry $lost" out || fail "log does not show the decision: $(cat out)"

# In a run of keys the decision is signed: by a committer's key, or no replica would follow it.
export XDG_CONFIG_HOME="$work/config"
expect 0 diloco id
printf 'r0 %s\nr1 %s\n' "$(cat out)" "$(cat out)" >members
keyed="--store k --set run.retain=all --set run.roster=closed --set run.members=members --quiet"
stop_after() { # ENTRY: train until that entry is there
    # shellcheck disable=SC2086
    diloco train tiny.toml $keyed >train.out 2>&1 &
    train=$!
    started="$started $train"
    wait_for has_entry k "$1"
    kill -INT $train
    wait $train || true
}
stop_after 4
for decision in 1 2; do # the second one while the first has to be kept in mind: no snapshot is left
    n=$(ls k/log | wc -l)
    lost=$((n - 2))
    rm -rf k.local k/snap "k/c/$(printf %010d $lost)"
    expect 0 env XDG_CONFIG_HOME="$work/stranger" diloco id
    # shellcheck disable=SC2086
    expect_error 1 'diloco void' diloco train tiny.toml $keyed
    expect 3 env XDG_CONFIG_HOME="$work/stranger" diloco void k --replica r0
    says 'key'
    [ "$(ls k/log | wc -l)" = "$n" ] || fail "a stranger's key made an entry"
    expect 0 diloco void k --replica r0
    grep -q '"signature":"' "k/log/$(printf %010d "$n").json" || fail "the decision is not signed"
    stop_after $((n + 3))
    expect 0 diloco verify k
    expect 0 diloco verify k --from-snapshot
    [ "$(diloco log k | grep -c 'an operator voids entry')" = $decision ] ||
        fail "log does not show $decision decisions: $(diloco log k)"
done
