#!/bin/sh
# A search: rungs, a result that trains, nothing run twice; stopped or killed, the same command
# continues to the same evidence.
. "$(dirname "$0")/lib.sh"

tune="diloco tune tiny.toml --set-values lr=4e-3 --set-values sync_every=10,20,30 --steps 360 --seeds 2"

# Bytes and losses of the evidence, without what depends on the clock.
facts() {
    tr ',{' '\n\n' <"$1" | grep -E '^"(rung|seed|lr|sync_every|loss|loss_mean|above_own_mean|digest)"'
}

expect 0 $tune
[ "$(grep -c '^rung [12] of 2: ' out)" = 2 ] || fail "not two rungs"
[ "$(grep -c '^  [0-9]*: lr=.* sync_every=.*, seed 100[123]: loss ' out)" -ge 10 ] || fail "not a line a trial"
grep -q "(CONFIG's own)" out || fail "the result is not compared with CONFIG"
[ ! -s err ] || fail "something was said on stderr"
facts tuned/tiny/tune.json >whole
cp tuned/tiny/tuned.toml best.toml

expect 0 diloco train best.toml --print-config
grep -q '^trainer.rounds = [0-9]* .*best.toml' out || fail "tuned.toml has no rounds"
! grep -q 'tuned/tiny/.*store' best.toml || fail "tuned.toml names a trial's store"
steps=$(awk '$1 == "trainer.rounds" || $1 == "trainer.local_steps_per_round" { n = n ? n * $3 : $3 }
    END { print n }' best.toml)
[ "$steps" -ge 120 ] || fail "tuned.toml is of $steps steps, and tiny.toml of 120"

expect 0 $tune --json
[ "$(grep -c 'was done' err)" = "$(grep -c '"rung"' whole)" ] || fail "a finished trial was run again"
facts out | cmp -s - whole || fail "another result from finished trials"

# Stopped in a trial of the first rung, killed in one of the second.
any_entry() { ls stopped/"$1"-steps/*/store/log/*.json >/dev/null 2>&1; }
$tune --out stopped >log 2>&1 &
pid=$!
started="$started $pid"
wait_for any_entry 120
kill -INT $pid
code=0
wait $pid || code=$?
[ $code = 130 ] || [ $code = 0 ] || fail "stopped with code $code: $(cat log)"
[ $code = 0 ] || grep -q 'the same command resumes: .*tune tiny.toml' log || fail "how to go on?"
$tune --out stopped >log 2>&1 &
pid=$!
started="$started $pid"
wait_for any_entry 360
kids=$(children $pid)
kill -9 $pid
wait $pid 2>/dev/null || true
for kid in $kids; do wait_for gone "$kid"; done
expect 0 $tune --out stopped
facts stopped/tune.json | cmp -s - whole || fail "another result after being stopped"

# A budget of bytes: dearer candidates are not trained, and one that nothing meets is refused early.
expect 0 $tune --max-sent 400e3 --out cheap --json
! grep -q 'sync_every=10' err || fail "a candidate above the budget was trained"
grep -q '"best":{"lr":"[^"]*","sync_every":"30"' out || fail "the result is above the budget"
expect_error 3 "--max-sent" $tune --max-sent 10 --out cheaper
[ "$(ls cheaper/*-steps | wc -l)" = 1 ] || fail "trials were run that cannot win"

expect_error 2 "no option lrate" diloco tune tiny.toml --set-values lrate=1,2 --out bad
expect_error 2 "--trials" diloco tune tiny.toml --trials 1 --out bad
expect_error 2 "steps" diloco tune tiny.toml --steps 10 --out bad
[ ! -e bad ] || fail "a search with a mistake began"
expect_error 1 "other settings" $tune --set trainer.batch_size=1
