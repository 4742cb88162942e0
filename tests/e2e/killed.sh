#!/bin/sh
# kill -9 of one replica, and of all of them, at several moments: the run completes, verifies,
# and (on_missing = wait) ends bitwise where an undisturbed run ends.
. "$(dirname "$0")/lib.sh"

sed -i 's/^rounds = 6/rounds = 40/' tiny.toml
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

start() {
    diloco train tiny.toml --store cut "$@" >out 2>err &
    parent=$!
    started="$started $parent"
}
ended() { # CODE
    code=0
    wait "$parent" || code=$?
    [ "$code" = "$1" ] || fail "expected exit code $1, got $code"
}
kill_one() { # which
    pid=$(children "$parent" | cut -d' ' -f"$1")
    [ -n "$pid" ] || fail "there is no replica to kill"
    kill -9 "$pid"
}

# One after the other; each is started again and the command ends as if nothing were.
start
wait_for has_entry cut 4
survivor=$(children "$parent" | cut -d' ' -f2)
kill_one 1
wait_for has_entry cut 12
kill -0 "$survivor" || fail "the other replica was restarted, too" # LIB-24
kill_one 2
ended 0
[ "$(grep -c 'was killed by signal 9 (Killed); started again' out)" = 2 ] || fail "not said"
[ "$(digest cut)" = "$want" ] || fail "with replicas killed, the run ends elsewhere"

# Without restarts the command ends, and says so; the same command again resumes.
rm -rf cut cut.local
start --set run.restarts=0
wait_for has_entry cut 5
kill_one 2
ended 1
says 'killed by signal 9 (Killed) after 0 restarts; the same command resumes'
expect 0 diloco train tiny.toml --store cut --quiet
[ "$(digest cut)" = "$want" ] || fail "resumed after one was killed, the run ends elsewhere"

# All at once, parent included, a few times over.
rm -rf cut cut.local
for entry in 2 9 17; do
    start
    wait_for has_entry cut $entry
    kids=$(children "$parent")
    # shellcheck disable=SC2086 # several; one may be gone
    kill -9 "$parent" $kids 2>/dev/null || true
    wait "$parent" || true
    for pid in $kids; do wait_for gone "$pid"; done
done
expect 0 diloco train tiny.toml --store cut --quiet
[ "$(digest cut)" = "$want" ] || fail "resumed after all were killed, the run ends elsewhere"
