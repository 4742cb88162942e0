#!/bin/sh
# ALG-9: several values of H at equal steps: a table, an object, nothing run twice, and a sweep that is
# stopped or killed continues to the same results.
. "$(dirname "$0")/lib.sh"

sweep="diloco sweep tiny.toml --set-values sync_every=10,60 --seeds 2"

expect 0 $sweep
[ "$(grep -c '^[1-4] of 4: sync_every=.*, seed [12]: loss ' out)" = 4 ] || fail "not a line a run"
grep -q '^sync_every=60  *[0-9.]* ± [0-9.]*  *[+-][0-9.]* ± ' out || fail "no row of the second value"
[ ! -s err ] || fail "something was said on stderr"
for h in 10 60; do
    expect 0 diloco status "sweeps/tiny/sync_every=$h,seed=2/store" --json
    [ "$(json entries <out)" = $((120 / h)) ] || fail "H = $h: not 120 steps"
done

expect 0 $sweep --json
[ "$(grep -c 'was done' err)" = 4 ] || fail "a finished run was run again"
[ "$(tr '{' '\n' <out | grep -c '^"sync_every"')" = 6 ] || fail "--json: not 4 trials and 2 arms"
sed 's/sweeps.tiny/-/g' out | tr ',' '\n' | grep -E '^"(loss|digest|steps|bytes_sent)"' >whole

# A result is the shared model's: equal to eval and verify of that run.
run="sweeps/tiny/sync_every=10,seed=1"
expect 0 diloco eval "$run/store" --set data.train_path=text.txt --json
[ "$(json loss <out)" = "$(json loss <"$run/result.json")" ] || fail "another loss than eval's"
[ "$(digest "$run/store")" = "$(json digest <"$run/result.json")" ] || fail "another digest"

# Stopped in its second run, killed in a later one.
$sweep --out stopped >log 2>&1 &
pid=$!
started="$started $pid"
wait_for has_entry "stopped/sync_every=60,seed=1/store" 0
kill -INT $pid
code=0
wait $pid || code=$?
[ $code = 130 ] || [ $code = 0 ] || fail "stopped with code $code: $(cat log)"
[ $code = 0 ] || grep -q 'the same command resumes: .*sweep tiny.toml' log || fail "how to go on?"
$sweep --out stopped >log 2>&1 &
pid=$!
started="$started $pid"
wait_for has_entry "stopped/sync_every=10,seed=2/store" 0
kids=$(children $pid)
kill -9 $pid
wait $pid 2>/dev/null || true
for kid in $kids; do wait_for gone "$kid"; done
expect 0 $sweep --out stopped --json
sed 's/stopped/-/g' out | tr ',' '\n' | grep -E '^"(loss|digest|steps)"' >again
grep -v bytes_sent whole | cmp -s - again || fail "other results after being stopped"

# Mistakes in any arm are reported before anything is trained.
expect_error 2 "120 steps cannot be cut" diloco sweep tiny.toml --set-values sync_every=10,7 --out bad
expect_error 2 'did you mean muon' diloco sweep tiny.toml --set-values trainer.optimizer=adamw,muan \
    --out bad
[ ! -e bad ] || fail "a sweep with a mistake began"
expect_error 1 "other settings" $sweep --set lr=0.01
