#!/bin/sh
# status --why: the missing replicas, the wait, and the deadlines; --watch continues until
# the run ends; both only read.
. "$(dirname "$0")/lib.sh"

# Before the entry waits for replicas by name there is no deadline.
sed 's/^replicas = 2/replicas = 3/' tiny.toml >three.toml
diloco train three.toml --store few --set run.local_replicas=2 --quiet >out 2>err &
parent=$!
started="$started $parent"
waits_for_a_third() {
    diloco status few --why >why 2>>err && grep -q "2 of 3 contributions have arrived" why
}
wait_for waits_for_a_third
grep -q "(run.start_timeout) 1 are enough (run.min_replicas)" why || fail "how it begins is not said"
! grep -q "^deadline" why || fail "a deadline where there is none"
kill -INT "$parent"
wait "$parent" || true

sed -i 's/^rounds = 6/rounds = 100000/; s/^patience = .*/patience = 60/' tiny.toml
diloco train tiny.toml --store run --quiet >out 2>err &
parent=$!
started="$started $parent"
wait_for has_entry run 3
stopped=$(children "$parent" | cut -d' ' -f2)
kill -STOP "$stopped"

is_said() {
    diloco status run --why >why 2>>err && grep -q "1 of 2 contributions have arrived" why &&
        grep -q "^ *r[01]: silent, last heard of at step" why # the missing one
}
wait_for is_said
grep -q "(run.on_missing = wait)" why || fail "the rule is not said"
grep -q "^ *r[01]: [0-9.]* s, at .* a request" why || fail "no deadline with its reasons"
diloco status run --json >json 2>>err
[ "$(json n_missing <json)" = 1 ] || fail "the JSON has no missing one"

# It continues where it was stopped, and ends as it would have.
before=$(json entries <json)
kill -CONT "$stopped"
wait_for has_entry run $((before + 2))
kill -INT "$parent"
code=0
wait "$parent" || code=$?
[ "$code" = 130 ] || fail "expected exit code 130, got $code"
expect 0 diloco verify run

sed -i 's/^rounds = 100000/rounds = 3/' tiny.toml
expect 0 diloco train tiny.toml --store whole --quiet
expect 0 diloco status whole --why --watch
grep -q "nothing: the run is complete" out || fail "a complete run waits for something"
