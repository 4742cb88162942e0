#!/bin/sh
# Nodes without a log that meet by one address, and then lose it. The first is killed for good, one
# stalls for ever, one is killed and comes back, one is stopped and continues (SWM-11, SWM-12,
# SWM-15).
. "$(dirname "$0")/lib.sh"

cat >swarm.toml <<'TOML'
preset = "swarm"
[run]
replicas = 5
threads = 1
heartbeat = 0.5
patience = 6
[swarm]
min_peers = 2
agree_every = 5
[server.diloco]
robust_fallback = "mean"
[trainer]
rounds = 60
local_steps_per_round = 20
batch_size = 2
eval_every = 0
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
TOML

rounds() { # of the record $1, that moved the model, from round $2 on
    grep '"event":"round"' "$1" | grep '"stepped":true' | sed 's/.*"round":\([0-9]*\).*/\1/' |
        awk -v from="$2" '$1 >= from' | wc -l
}
has_address() { [ -n "$(node_address "$1")" ]; }
has_rounds() { [ -s "$1" ] && [ "$(rounds "$1" 0)" -ge "$2" ]; }

# One begins, four join by its address, each with a folder of its own as if on another machine.
diloco train swarm.toml --store a --record a.jsonl --set run.local_replicas=1 >a.out 2>&1 &
first=$!
started="$started $first"
wait_for has_address a
first_node=$(children $first)
started="$started $first_node"
peer=$(node_address a)
for node in b c d e; do
    folder="--store $node"
    [ $node != b ] || folder="--set run.store=$node" # the same
    diloco join --peer "$peer" $folder --record $node.jsonl --set data.train_path=text.txt \
        >$node.out 2>&1 &
    eval "$node=$!"
    started="$started $!"
done
wait_for has_rounds b.jsonl 3
for node in $b $c $d $e; do started="$started $(children $node)"; done
[ -d b/nodes ] || fail "join --peer does not keep its node in run.store"
expect_error 2 'contradict' diloco join --peer "$peer" --store f --set run.store=g \
    --set data.train_path=text.txt
diloco status "$peer" >out || fail "status at an address"
[ "$(grep -c ' reachable \| done ' out)" = 5 ] || fail "not five nodes at the first one's address"

# The first is gone, for good; another stalls.
kill -9 $first $first_node
stalled=$(children $e)
started="$started $stalled"
kill -STOP $stalled

# One is killed: its parent starts it again, and it resumes from its own state.
kill -9 "$(children $d)"
# One is asked to stop, and continues by the same command, though its first address is dead.
kill -INT $c
wait $c && fail "a stopped node ended well" || [ $? = 130 ] || fail "a stopped node's exit code"
diloco join --peer "$peer" --store c --record c.jsonl --set data.train_path=text.txt >c.out 2>&1 &
c=$!
started="$started $c"

for node in b c d; do
    eval "pid=\$$node"
    wait "$pid" || { cat $node.out >&2; fail "$node did not come to its end"; }
    if [ "$(rounds $node.jsonl 40)" -lt 5 ]; then
        for one in b c d; do grep '"event":"round"' $one.jsonl | tail -n 4; done >out
        fail "$node was alone at the end"
    fi
    grep -q '"event":"end"' $node.jsonl || fail "$node has no end"
done
grep -q '"event":"trainer".*"generation":1.*"resumed":true' d.jsonl || fail "d did not resume"
grep -q '"event":"trainer".*"generation":1.*"resumed":true' c.jsonl || fail "c did not resume"
grep '"event":"round"' b.jsonl | grep -q '"missing":\[[^]]*"r0"' || fail "b does not say who was missing"
kill -9 $stalled $e
