#!/bin/sh
# Ctrl-C: every replica stops after its step, exit 130, and the same command ends bitwise where
# an uninterrupted run ends. A second one, or the parent's death, stops them too.
. "$(dirname "$0")/lib.sh"

set_long='--set trainer.rounds=60 --set trainer.eval_every=0'
# shellcheck disable=SC2086 # words
train() { diloco train tiny.toml $set_long "$@"; }

expect 0 train --store whole --quiet
want=$(digest whole)

# start ARGUMENTS…: in the background, its process in $parent, once entry 3 is there. The link leaves
# time to stop it before its end.
start() {
    # shellcheck disable=SC2086
    diloco train tiny.toml $set_long --store cut --link 10ms "$@" >out 2>err &
    parent=$!
    started="$started $parent"
    wait_for has_entry cut 3
}
stopped() { # CODE
    code=0
    wait "$parent" || code=$?
    [ "$code" = "$1" ] || fail "expected exit code $1, got $code"
    has_entry cut 59 && fail "the run was over too soon to be stopped"
    return 0
}

start
kids=$(children "$parent")
kill -INT "$parent"
stopped 130
says 'the same command resumes: diloco train tiny.toml --set trainer.rounds=60'
for pid in $kids; do gone "$pid" || fail "a replica outlived its parent"; done
[ -z "$(find cut/end -type f 2>/dev/null)" ] || fail "a stop of the whole run is announced, which may cost its bits"
expect 0 train --store cut --quiet
[ "$(digest cut)" = "$want" ] || fail "resumed after SIGINT, the run ends elsewhere"

# Stopped again and again, with SIGTERM, and with --json.
rm -rf cut cut.local
start --json
kill -TERM "$parent"
stopped 130
[ "$(json status <out)" = interrupted ] || fail "--json does not say interrupted"
start_at=$(find cut/log -name '*.json' | wc -l)
diloco train tiny.toml --set trainer.rounds=60 --set trainer.eval_every=0 --store cut --link 10ms \
    >out 2>err &
parent=$!
started="$started $parent"
wait_for has_entry cut $((start_at + 3))
kill -INT "$parent"
stopped 130
expect 0 train --store cut --quiet
[ "$(digest cut)" = "$want" ] || fail "stopped twice, the run ends elsewhere"

# The parent is killed: its replicas stop by themselves, and nothing is lost.
rm -rf cut cut.local
start
kids=$(children "$parent")
[ "$(echo "$kids" | wc -w)" = 2 ] || fail "not two replicas: $kids"
kill -9 "$parent"
wait "$parent" || true
for pid in $kids; do wait_for gone "$pid"; done
expect 0 train --store cut --quiet
[ "$(digest cut)" = "$want" ] || fail "resumed after the parent was killed, the run ends elsewhere"

# A second Ctrl-C kills at once; with on_missing = wait that loses nothing either.
rm -rf cut cut.local
start
kill -INT "$parent"
kill -INT "$parent" 2>/dev/null || true
code=0
wait "$parent" || code=$?
[ "$code" = 130 ] || fail "two signals: exit code $code"
expect 0 train --store cut --quiet
[ "$(digest cut)" = "$want" ] || fail "resumed after two signals, the run ends elsewhere"
