#!/bin/sh
# diloco watch: once into a pipe, and on a terminal of 80 columns and 24 lines during a run,
# until the run is complete.
. "$(dirname "$0")/lib.sh"
export TERM=xterm

diloco train tiny.toml --store one --quiet
expect 0 diloco watch one --once
grep -q '^one: complete, 0 of 2 replicas alive$' out || fail "the run is not complete"
grep -q '^well: ' out || fail "it is not well"
! grep -q "$(printf '\033')" out || fail "cursor movements in a pipe"
[ "$(awk 'length($0) > 240' out)" = "" ] || fail "a line is too long"
expect 0 diloco watch one # no terminal: once
grep -q '^one: complete' out || fail "not printed once"
expect_error 1 "there is no folder nowhere" diloco watch nowhere

diloco train tiny.toml --store two --quiet --link 10ms --set trainer.rounds=40 &
started=$!
while [ ! -e two/log/0000000001.json ]; do sleep 0.05; done
python3 "$project/tests/e2e/terminal.py" 80 24 diloco watch two >seen || fail "watch on a terminal: exit code $?"
wait $started
grep -q 'two: running, 2 of 2 replicas alive' seen || fail "it was not seen running"
grep -q 'two: complete' seen || fail "it was not seen complete"
