#!/bin/sh
# diloco launch job runs a command once for each rank, which is in its words and its environment. The same command
# starts nothing twice. It starts once more what failed or was cancelled.
. "$(dirname "$0")/lib.sh"

# Each rank writes its part, then its end.
cat >part.sh <<'SH'
#!/bin/sh
echo "rank $DILOCO_RANK of $DILOCO_RANKS: $*"
echo "$$" >>"started-$DILOCO_RANK"
while [ -e "hold-$DILOCO_RANK" ]; do sleep 0.05; done
if [ -e "fail-$DILOCO_RANK" ]; then exit "$(cat "fail-$DILOCO_RANK")"; fi
seq "$DILOCO_RANK" "$DILOCO_RANKS" 12 >"part-$DILOCO_RANK.txt"
SH
chmod +x part.sh
cat >batch.toml <<'TOML'
[run]
replicas = 3
[job]
command = ["./part.sh", "a,b", "it's {rank}", "$HOME", "--rank={rank}"]
[launch]
poll = 0.1
TOML
n_started() { wc -l <"started-$1"; } # the times that a rank was started
is_started() { [ -s "started-$1" ]; }
launcher() {
    diloco launch job batch.toml "$@" >launch.out 2>launch.err &
    launcher=$!
    started="$started $launcher"
}
ends_with() { # CODE
    code=0
    wait "$launcher" || code=$?
    [ $code = "$1" ] || fail "the launch ends with $code: $(cat launch.err)"
}

# A dry run shows the commands, and creates nothing.
export DILOCO_TEST_WORD=swordfish
expect 0 diloco launch job batch.toml --dry-run --set launch.secrets=DILOCO_TEST_WORD --set launch.env=COLOR=blue
grep -qF "diloco-newjobid-r2-g0: in $PWD/runs/batch.launch: DILOCO_RANK=2 COLOR=blue DILOCO_RANKS=3 DILOCO_TEST_WORD=*** " out ||
    fail "not the variables"
grep -qF "exec $PWD/ -- ./part.sh a,b 'it'\\''s 2' '\$HOME' --rank=2" out || fail "not the words"
! grep -q swordfish out err || fail "a secret is printed"
[ ! -e runs ] || fail "a dry run made something"

# Every rank runs once. A rank that fails fails the batch, and its exit code is known.
echo 7 >fail-1
expect_error 1 'the batch is not complete; r1: FAILED: exit code 7' diloco launch job batch.toml
[ "$(cat part-2.txt)" = "$(printf '2\n5\n8\n11')" ] || fail "not the part of rank 2"
expect 0 diloco launch logs runs/batch --rank 2
[ "$(cat out)" = "rank 2 of 3: a,b it's 2 \$HOME --rank=2" ] || fail "not the output of rank 2"
expect 0 diloco launch status batch.toml --json
grep -q '"rank":1,"generation":0,.*"state":"FAILED","exit_code":7' out || fail "not the exit code"
[ "$(json complete <out)" = false ] || fail "a batch with a failed rank is complete"

# The same command starts only the rank that failed. Then the batch is complete, and nothing is started any more.
rm fail-1
expect 0 diloco launch job batch.toml
grep -q '^the batch is complete; ' out || fail "not said that it is complete"
expect 0 diloco launch job batch.toml
[ "$(n_started 0) $(n_started 1) $(n_started 2)" = "1 2 1" ] || fail "started $(n_started 0), $(n_started 1) and $(n_started 2) times"
expect 0 diloco launch status runs/batch
grep -q '^batch .* on local: 3 replicas wanted, the batch is complete$' out || fail "not the state of the batch"
[ "$(grep -c ' SUCCEEDED ' out)" = 3 ] || fail "not three ranks that have succeeded"
expect 0 diloco launch collect runs/batch

# A launcher that is killed leaves the ranks running; a second one finds them. A rank that is killed is started again.
rm -f started-* part-*
for rank in 0 1 2; do touch hold-$rank; done
launcher --store two
for rank in 0 1 2; do wait_for is_started $rank; done
kill -9 "$launcher"
wait_for gone "$launcher"
launcher --store two
rm hold-0
wait_for grep -q '^r0: SUCCEEDED' launch.out
kill -9 "$(cat started-1)"
wait_for grep -q '^r1: LOST: killed by signal 9' launch.out
rm hold-1 hold-2
ends_with 0
[ "$(n_started 0) $(n_started 1) $(n_started 2)" = "1 2 1" ] || fail "started $(n_started 0), $(n_started 1) and $(n_started 2) times"

# Cancelled: the ranks stop, and the same command starts them once more.
rm -f started-* part-*
for rank in 0 1 2; do touch hold-$rank; done
launcher --store three
for rank in 0 1 2; do wait_for is_started $rank; done
expect 0 diloco launch cancel three
ends_with 130
expect 0 diloco launch collect three
[ "$(grep -c ' CANCELLED ' out)" = 3 ] || fail "not three ranks that were cancelled"
rm hold-*
expect 0 diloco launch job batch.toml --store three
[ -e part-0.txt ] && [ -e part-1.txt ] && [ -e part-2.txt ] || fail "not all parts"

# --detach starts, and collect waits.
expect 0 diloco launch job batch.toml --store four --detach
expect 0 diloco launch collect four --json
[ "$(json complete <out)" = true ] || fail "the collected batch is not complete"

# Output of 1 GiB needs little memory, and arrives unchanged. The file has 16,384 lines of 64 KiB, mostly holes.
log=$(echo four.launch/diloco-*-r0-g0/log)
python3 - "$log" <<'PY'
import sys

with open(sys.argv[1], "wb") as log:
    for i in range(1, 16385):
        text = b"line %d\n" % i
        log.seek((i << 16) - len(text))
        log.write(text)
PY
({ sanitized || ulimit -v 200000; } && diloco launch logs four --rank 0) 2>err | cmp - "$log" || fail "not the output of 1 GiB"
rm "$log"

# collect has a limit of its own, which changes nothing.
touch hold-0
rm -f started-*
expect 0 diloco launch job batch.toml --store limited --detach
expect_error 1 'replicas still run after 1 s' diloco launch collect limited --timeout 1
wait_for is_started 0
rm hold-0
expect 0 diloco launch collect limited
[ "$(n_started 0)" = 1 ] && [ "$(grep -c ' SUCCEEDED ' out)" = 3 ] || fail "the limit of collect has ended a rank: $(cat out)"

# A batch that runs is not removed; one that is over goes with its book.
touch hold-0
rm -f started-*
expect 0 diloco launch job batch.toml --store gone --detach
expect_error 3 'of the batch in gone may still run' diloco rm gone
rm hold-0
expect 0 diloco launch collect gone
expect 0 diloco rm gone
[ ! -e gone ] || fail "rm left $(find gone)"

# Mistakes, each by name, before anything is started.
expect_error 3 'holds a batch of another command' diloco launch job batch.toml --store four \
    --set 'job.command=["true"]'
expect_error 3 'holds a batch of 3 ranks' diloco launch job batch.toml --store four --replicas 4
expect_error 3 'holds a batch, whose ranks divide its work' diloco launch scale four --replicas 4
expect_error 2 'a batch has a fixed number of ranks' diloco launch job batch.toml --store five --replicas 1..2
expect_error 2 'write a list of words' diloco launch job batch.toml --store five --set 'job.command=./part.sh'
expect_error 3 'trainer.rounds (--set) has no meaning in a batch' diloco launch job batch.toml --set trainer.rounds=3
expect_error 3 'a hub holds runs, and no batches' diloco launch job batch.toml --store http://127.0.0.1:1/x
expect_error 3 'mem:// store exists in one process' diloco launch job batch.toml --store mem://x
[ ! -e five ] || fail "a refused batch was created"
expect_error 1 'r0: FAILED: exit code 2' diloco launch job batch.toml --store five --replicas 1 \
    --set 'job.command=["no-such-program"]'
expect 0 diloco launch logs five --rank 0
grep -q 'there is no program no-such-program' out || fail "not said what is missing"

# A store of a run is no place for a batch.
expect 0 diloco train tiny.toml --store run --quiet
expect_error 3 'holds a run' diloco launch job batch.toml --store run

# With job.run the ranks are replicas of that run: they get its URL, and the batch is complete only if the run is.
cat >replicas.toml <<'TOML'
[run]
replicas = 2
[job]
command = ["sh", "-c", "echo $DILOCO_STORE"]
[launch]
poll = 0.1
TOML
expect 0 diloco launch job replicas.toml --store trains --set job.run=run
grep -q '^the batch is complete; ' out || fail "not said that it is complete"
expect 0 diloco launch logs trains --rank 1
[ "$(cat out)" = "$PWD/run" ] || fail "not the run's store: $(cat out)"
expect 0 diloco launch status trains
grep -q 'the batch is complete$' out || fail "status does not know the run"
expect 0 diloco launch status trains --json
grep -q '"complete":true,' out || fail "status --json does not know the run: $(cat out)"
expect_error 1 'exit code 0, and the batch is not complete' diloco launch job replicas.toml --store early --set job.run=no-run
expect_error 3 'a batch whose ranks train the run in' diloco launch job replicas.toml --store early --set job.run=run
expect_error 3 'is the store of the batch, too' diloco launch job replicas.toml --store run --set job.run=run
expect 0 diloco launch job replicas.toml --store prepared --set job.run=run --prepare \
    --set launch.timeout=2.5
grep -q "\"store\":\"$PWD/prepared\",\"trained\":\"$PWD/run\",\"min\":2,\"max\":2," out || fail "not what a rank needs: $(cat out)"
grep -q '"restarts":3,"timeout":2.5,"lost_after":600,"poll":0.1,"given":\["launch.timeout","launch.poll"\]}' out ||
    fail "not the options of [launch]: $(cat out)"

# A run elsewhere that only the record names is not opened: it would get this machine's credentials.
expect 0 diloco launch job replicas.toml --store far --set job.run=http://127.0.0.1:1/x --detach
expect 0 diloco launch collect far
expect 0 diloco launch status far
grep -q 'only exit codes were judged' out || fail "not said that the run was not read"
for look in status collect; do
    expect 0 diloco launch $look far --json
    grep -q '"complete":null,' out || fail "$look --json judges a run that was not read: $(cat out)"
done
