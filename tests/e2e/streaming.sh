#!/bin/sh
# Fragments and overlap under kill -9. Replicas die at random moments while up to three
# contributions are in flight, and are started again. The run completes and verifies, and all end
# with one state. Ctrl-C in between loses nothing either.
. "$(dirname "$0")/lib.sh"

sed -i 's/^rounds = 6/rounds = 12/; s/^layers = 1/layers = 3/; s/^local_steps_per_round = 20/local_steps_per_round = 6/' tiny.toml
cat >>tiny.toml <<'TOML'
[server.diloco]
fragments = 4
overlap_steps = 4
local_mix = 0.5
TOML
last=47 # entries of 12 rounds of 4 fragments, from 0

start() {
    diloco train tiny.toml --store cut --set run.restarts=100 "$@" >out 2>err &
    parent=$!
    started="$started $parent"
}

# complete STORE: verified to the last entry, and every replica's last line has its digest.
complete() {
    has_entry "$1" $last || fail "the log of $1 does not reach entry $last"
    want=$(digest "$1")
    for r in r0 r1; do
        ends=$(diloco log "$1" --events | grep "\"event\":\"end\",\"replica\":\"$r\"" || true)
        [ -n "$ends" ] || fail "$r has no end in the record"
        echo "$ends" | grep -v "\"digest\":\"$want\"" && fail "$r ends on another state than $want"
    done
    return 0
}

# Undisturbed: the record has entries whose result came during training.
expect 0 diloco train tiny.toml --store whole --quiet
complete whole
adopts=$(diloco log whole --events | grep -c '"event":"adopt"')
[ "$adopts" = $((2 * (last + 1))) ] || fail "$adopts adoptions of two replicas"

# Killed one after the other, at moments that the log's growth and the clock make.
for seed in 1 2; do
    rm -rf cut cut.local
    start
    entry=$seed
    which=1
    while [ $entry -lt 40 ]; do
        wait_for has_entry cut $entry
        kid=$(children "$parent" | cut -d' ' -f$which)
        [ -z "$kid" ] || kill -9 "$kid" 2>/dev/null || true
        which=$((3 - which))
        entry=$((entry + 5 + seed))
    done
    code=0
    wait "$parent" || code=$?
    [ $code = 0 ] || fail "with replicas killed, exit code $code"
    [ "$(grep -c 'killed by signal 9' out)" -ge 3 ] || fail "hardly anybody was killed"
    complete cut
done

# All at once, parent included; the same command continues.
rm -rf cut cut.local
for entry in 3 11 30; do
    start
    wait_for has_entry cut $entry
    kids=$(children "$parent")
    # shellcheck disable=SC2086 # several; one may be gone
    kill -9 "$parent" $kids 2>/dev/null || true
    wait "$parent" || true
    for pid in $kids; do wait_for gone "$pid"; done
done
expect 0 diloco train tiny.toml --store cut --quiet
complete cut

# Ctrl-C, and the same command again: as if nothing were (docs/protocol.md P16).
rm -rf cut cut.local
start --link 10ms
wait_for has_entry cut 13
kill -INT "$parent"
code=0
wait "$parent" || code=$?
[ $code = 130 ] || fail "interrupted, exit code $code"
expect 0 diloco train tiny.toml --store cut --quiet
complete cut
[ "$(digest cut)" = "$(digest whole)" ] || fail "resumed after Ctrl-C, the run ends elsewhere"
