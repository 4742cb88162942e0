#!/bin/sh
# A second machine (here: another private folder) joins by URL. Settings come from the run, a free
# name is chosen, and both end with the same state. A replica that trained already continues
# (LIB-24).
. "$(dirname "$0")/lib.sh"

expect_error 2 'data.train_path' sh -c 'diloco train tiny.toml --store s --quiet && diloco join s'
expect_error 2 "trainer.batch_size is the run's" diloco join s --set trainer.batch_size=3
expect_error 2 'join needs a URL' diloco join
rm -rf s s.local

# One of two replicas here: the run waits for the other.
diloco train tiny.toml --store s --replicas 1 --set trainer.rounds=30 >out 2>err &
first=$!
started=$first
wait_for test -e s/gen/r0.0000
code=0
diloco join s --set data.train_path=text.txt --set run.state_dir=elsewhere --set run.threads=1 \
    >joined 2>&1 || code=$?
[ $code = 0 ] || fail "join: exit code $code: $(cat joined)"
code=0
wait $first || code=$?
[ $code = 0 ] || fail "train: exit code $code"
[ -d elsewhere/r1 ] || fail "the joiner is not r1: $(ls elsewhere)"
[ -e s/gen/r1.0000 ] || fail "r1 did not live"
grep -q '^entry .*: 2 replicas' joined || fail "the joiner did not take part"
[ "$(diloco log s --json | grep -c '"r1.0000"')" -gt 0 ] || fail "no entry counts r1"

# A machine of the same host name that once lost a race for r0 takes another name, by join and by
# train, and the living r0 is not fenced. (The note of the race is as src/state/private_state.c writes it.)
sed 's/^replicas = 2/replicas = 3/' tiny.toml >three.toml
diloco train three.toml --store race --replicas 1 --quiet >race.out 2>&1 &
first=$!
started="$started $first"
wait_for test -e race/gen/r0.0000
mkdir -p lost1/r0 lost2/r0
: >lost1/r0/lock && : >lost1/r0/lost && : >lost2/r0/lock && : >lost2/r0/lost
diloco train three.toml --store race --replicas 1 --set run.state_dir=lost1 --quiet >lost1.out 2>&1 &
second=$!
started="$started $second"
wait_for test -e race/gen/r1.0000
code=0
diloco join race --replicas 1 --set data.train_path=text.txt --set run.state_dir=lost2 \
    --set run.threads=1 >lost2.out 2>&1 || code=$?
[ $code = 0 ] || fail "join after a lost race: exit code $code: $(cat lost2.out)"
wait $first || fail "the winner of the race: $(cat race.out)"
wait $second || fail "train after a lost race: $(cat lost1.out)"
[ "$(ls race/gen | tr '\n' ' ')" = "r0.0000 r1.0000 r2.0000 " ] ||
    fail "a lost race ends in another's name: $(ls race/gen)"

# Both halves on one machine end in the same state.
expect 0 diloco train tiny.toml --store whole --set trainer.rounds=30 --quiet
[ "$(digest s)" = "$(digest whole)" ] || fail "two machines end elsewhere than one"

# Five that begin in the same moment, each a machine of its own: all choose the same name, and whichever
# was not the quickest is given another.
sed 's/^replicas = 2/replicas = 5/' tiny.toml >five.toml
expect 0 diloco train five.toml --store five_whole --quiet
diloco train five.toml --store five --replicas 1 --set run.state_dir=at0 --quiet >at0.out 2>&1 &
started="$started $!"
all=$!
wait_for test -e five/gen/r0.0000
for i in 1 2 3 4; do
    diloco join five --replicas 1 --set data.train_path=text.txt --set run.state_dir=at$i \
        --set run.threads=1 >at$i.out 2>&1 &
    started="$started $!"
    all="$all $!"
done
for one in $all; do
    code=0
    wait "$one" || code=$?
    [ $code = 0 ] || fail "one of five ended with $code: $(tail -n 3 at?.out)"
done
[ "$(ls five/gen | tr '\n' ' ')" = "r0.0000 r1.0000 r2.0000 r3.0000 r4.0000 " ] ||
    fail "they took each other's place: $(ls five/gen)"
[ "$(digest five)" = "$(digest five_whole)" ] || fail "five machines end elsewhere than one"

# A joiner that is slower than the others is waited for all the same (P9). The run is long, so its
# start may take its time. (Requests that take longer than a round: cluster_few slow.)
diloco train tiny.toml --store slow --set trainer.rounds=500 \
    --set trainer.local_steps_per_round=6000 --quiet >slow.out 2>&1 &
first=$!
started="$started $first"
wait_for has_entry slow 1
diloco join slow --link 100mbit,60ms --set data.train_path=text.txt --set run.state_dir=behind \
    --set run.threads=1 >joined 2>&1 &
second=$!
started="$started $second"
counted_in_a_row() {
    diloco log slow --json | awk -v most="$1" '
        /"kind":"commit"/ { n = /"members":\[[^]]*"r2\.0000"/ ? n + 1 : 0; if (n == most) done = 1 }
        END { exit !done }'
}
WAIT_S=200 wait_for counted_in_a_row 5
for one in $first $second; do kill -INT "$one"; done
for one in $first $second; do
    code=0
    wait "$one" || code=$?
    [ $code = 130 ] || fail "stopped with code $code: $(cat slow.out joined)"
done
[ -e slow/end/r2.0000 ] || fail "a stop is not announced to another machine: $(ls slow/end 2>&1)"
