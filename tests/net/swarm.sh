#!/bin/sh
# Eight nodes without a log, each 500 ms from every other one: a request takes a second there and back.
# In an exchange a node reads seven contributions, and all of them arrive in one round trip (SWM-13).
# One after the other they would take seven. The steps take no time, so each exchange begins while
# heartbeats are read. If they delayed it, it would take three. A busy machine adds time of its own.
. "$(dirname "$0")/lib.sh"
n=8
trip=1 # seconds
network 500ms $n --mesh

cat >swarm.toml <<TOML
preset = "swarm"
[run]
replicas = $n
local_replicas = 1
threads = 1
heartbeat = 2
patience = 60
deadline = 60
[trainer]
rounds = 4
local_steps_per_round = 1
batch_size = 1
eval_every = 0
eval_batches = 1
[parameters.model]
layers = 1
heads = 1
channels = 8
context = 16
[data]
train_path = "text.txt"
TOML

# node I COMMAND…: the node at place I. Each has a folder of its own, as on another machine.
node() {
    i=$1
    shift
    mkdir -p "n$i"
    cp swarm.toml text.txt "n$i/"
    start "n$i" "$i" "$@" --store s --record record.jsonl --set run.threads=1 \
        --set swarm.listen="10.78.0.$((i + 1)):0" --set swarm.insecure=true
    eval "n$i=$pid"
}
has_address() { [ -n "$(node_address n1/s)" ] || gone "$n1"; }

node 1 diloco train swarm.toml
wait_for has_address
peer=$(node_address n1/s)
[ -n "$peer" ] || fail "the first node ends: $(tail -5 n1/out)"
for i in $(seq 2 $n); do node "$i" diloco join --peer "$peer" --set data.train_path=text.txt; done
for i in $(seq 1 $n); do eval "ended n$i \"\$n$i\""; done

# Of each round but the first, in which nodes still start, the slowest node. A busy machine makes some
# rounds longer, and none shorter, so the shortest round counts.
grep -h '"event":"round"' n*/record.jsonl | grep -v '"round":0,' >rounds
! grep -v '"missing":\[\]' rounds >out || fail "a round was without a node"
sed 's/.*"round":\([0-9]*\),.*"exchange_s":\([0-9.e-]*\),.*/\1 \2/' rounds | sort -k1,1n -k2,2g |
    awk '{ n[$1]++; slowest[$1] = $2 } END { for (r in n) print slowest[r], n[r], r }' | sort -g >slowest
read -r least nodes round <slowest
[ "$nodes" = $n ] || fail "round $round was recorded by $nodes nodes"
middle=$(sed 's/.*"exchange_s":\([0-9.e-]*\),.*/\1/' rounds | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
echo "exchange of $n nodes with $trip s there and back: median $middle s; $least s for all in round $round"
awk -v trip=$trip -v least="$least" 'BEGIN { exit !(trip <= least && least < 2.25 * trip) }' ||
    fail "no round took about one round trip of $trip s: $(cat slowest)"
