#!/bin/sh
# A node without a log that is stopped between its step and the agreement on it continues from there.
. "$(dirname "$0")/lib.sh"

set -- --preset swarm --set swarm.min_peers=2 --set swarm.agree_every=1 --set run.deadline=5 \
    --set server.diloco.combiner=mean --set trainer.rounds=400 --set trainer.eval_every=0 \
    --set run.local_replicas=1 --store a --record a.jsonl

events() { # of this name in the record of the first
    [ ! -e a.jsonl ] || grep "\"event\":\"$1\"" a.jsonl | wc -l
}
has_agreed() { [ "$(events agreement)" -ge 2 ] 2>/dev/null; }
has_address() { [ -n "$(node_address a)" ]; }

diloco train tiny.toml "$@" >a.out 2>&1 &
first=$!
started="$started $first"
wait_for has_address
diloco join --peer "$(node_address a)" --store b --set data.train_path=text.txt >b.out 2>&1 &
second=$!
started="$started $second"
wait_for has_agreed
other=$(children $second)
started="$started $(children $first) $other"

# The other stops where the first has made its step: it waits for a model to agree on. In
# whichever round that comes about.
tries=0
while :; do
    n=$(events round)
    until [ "$(events round)" -gt "$n" ]; do :; done
    kill -STOP "$other"
    sleep 0.3
    [ "$(events round)" -eq "$(events agreement)" ] || break
    tries=$((tries + 1))
    [ $tries -lt 30 ] || fail "the first never waited for a model"
    kill -CONT "$other"
done
kill -INT $first
wait $first && fail "a stopped node ended well" || [ $? = 130 ] || fail "a stopped node's exit code"
rounds=$(events round)
diloco train tiny.toml "$@" >a.out 2>&1 &
first=$!
started="$started $first"
has_resumed() { grep -q '"event":"trainer".*"resumed":true' a.jsonl; }
wait_for has_resumed
kill -CONT "$other"
has_more() { [ "$(events round)" -gt $((rounds + 1)) ]; }
wait_for has_more
kill -9 $(children $first) $first $other $second 2>/dev/null || true
