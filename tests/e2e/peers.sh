#!/bin/sh
# Members that read contributions from each other (run.peers). The bits are those of a run without
# it, among trusted members and in a roster of keys. A member that is stalled, then killed, in the
# middle of an exchange delays no replica for longer than a time-out (SWM-11, SWM-12).
. "$(dirname "$0")/lib.sh"

sed -i 's/^replicas = 2/replicas = 3/; s/^rounds = 6/rounds = 60/
    s/^local_steps_per_round = 20/local_steps_per_round = 5/
    s/^heartbeat = .*/heartbeat = 0.2/; s/^patience = .*/patience = 20/' tiny.toml
expect 0 diloco train tiny.toml --store plain --quiet
plain=$(digest plain)

# sum FIELD FILE: of all commits in a record.
sum() {
    sed -n "s/.*\"event\":\"commit\".*\"$1\":\([0-9]*\).*/\1/p" "$2" | awk '{ n += $1 } END { print n + 0 }'
}

# of NAME: the process of a replica.
of() {
    for pid in $(children "$train"); do
        tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q " $1 " && echo "$pid"
    done
}

# Stop r0 and r1 while r2 has not contributed to the open entry, $e. Every entry is another chance.
stop_two() {
    kill -STOP "$(of r0)" "$(of r1)"
    e=$(find direct/log -name '*.json' | wc -l)
    [ "$e" -lt 58 ] || fail "the run ended before r2 was the last one"
    [ -e "direct/c/$(printf %010d "$e")/r2.0000" ] || return 0
    kill -CONT "$(of r0)" "$(of r1)"
    return 1
}

# In the middle of an entry r2 stalls: it has contributed, and others want to read that of it.
# The link leaves time to stop a member.
diloco train tiny.toml --store direct --set run.peers=true --set run.link=100mbit,10ms \
    --record direct.jsonl >run.out 2>&1 &
train=$!
started=$train
wait_for has_entry direct 0
wait_for stop_two
wait_for test -e "direct/c/$(printf %010d "$e")/r2.0000"
kill -STOP "$(of r2)"
kill -CONT "$(of r0)" "$(of r1)"
wait_for has_entry direct "$e"
kill -9 "$(of r2)" # it is started again
code=0
wait "$train" || code=$?
started=
[ $code = 0 ] || fail "the run ends with $code: $(tail -5 run.out)"
grep '"event":"peer"' direct.jsonl | grep '"replica":"r2.0000"' |
    grep -q '"reason":"\(stalled\|unreachable\)"' || fail "nobody noticed that r2 stalled"
[ "$(sum from_peers direct.jsonl)" -gt 0 ] || fail "nobody read from a member"
[ "$(digest direct)" = "$plain" ] || fail "with run.peers the run ends elsewhere"
expect 0 diloco status direct
grep -q 'r0  *https://127.0.0.1:[0-9]* .* of contributions from members' out ||
    fail "diloco status does not say who reads from whom"
expect 0 diloco status direct --json
grep -q '"from_peers":[1-9]' out || fail "diloco status --json does not say who reads from whom"
[ -z "$(find direct.local -name made -o -path '*/peers/run/*')" ] || fail "served files are left"

# With keys, each machine its own: the committer reads from the store, the others from all.
machine() {
    name=$1
    shift
    env XDG_CONFIG_HOME="$work/$name" diloco "$@" --set run.state_dir="$work/$name/state" \
        --record "$name.jsonl"
}
for name in r0 r1 r2; do
    echo "$name $(XDG_CONFIG_HOME="$work/$name" diloco id 2>id.err)" >>members
done
sed -n '1s/.* //p' members >committers
expect_error 3 'make the run with run.committers' machine r0 train tiny.toml --store all --replicas 1 \
    --set run.roster=closed --set run.members=members --set run.peers=true --quiet
machine r0 train tiny.toml --store keyed --replicas 1 --set run.roster=closed \
    --set run.members=members --set run.committers=committers --set run.peers=true \
    --set run.patience=240 >r0.out 2>&1 & # a member that stalls for a 12th of it is not read from
r0=$!
started=$r0
wait_for test -e keyed/run.json
for name in r1 r2; do
    machine $name join keyed --set data.train_path=text.txt --set run.threads=1 \
        --set run.peers=true >$name.out 2>&1 &
    eval "$name=$!"
    started="$started $!"
done
for name in r0 r1 r2; do
    code=0
    eval "wait \$$name" || code=$?
    [ $code = 0 ] || fail "$name ends with $code: $(tail -5 $name.out)"
done
started=
[ "$(sum from_peers r0.jsonl)" = 0 ] || fail "a committer read from a member, not the store"
for name in r1 r2; do
    [ "$(sum from_peers $name.jsonl)" -gt "$(sum from_store $name.jsonl)" ] ||
        fail "$name read mostly from the store"
done
[ "$(digest keyed)" = "$plain" ] || fail "with keys the run ends elsewhere"
