#!/bin/sh
# Runs without a log: nodes that find each other, lose each other, and continue (SWM-9, SWM-15).
. "$(dirname "$0")/lib.sh"

cat >swarm.toml <<'TOML'
preset = "swarm"
[run]
replicas = 5
threads = 1
heartbeat = 0.5
patience = 60
deadline = 60
[swarm]
agree_every = 2
[trainer]
rounds = 4
local_steps_per_round = 10
batch_size = 2
eval_batches = 2
[parameters.model]
layers = 1
heads = 2
channels = 32
context = 32
[data]
train_path = "text.txt"
TOML

# nodes_json TARGET KEY: of every node, in the order of their names.
nodes_json() {
    diloco status "$1" --json | tr '{' '\n' | sed -n 's/^"node":"\([^"]*\)".*"'"$2"'":"\{0,1\}\([^",]*\).*/\1 \2/p' | sort
}

# Five on one machine: no server process, one model in the end, since they agree after the last.
expect 0 diloco train swarm.toml --record record.jsonl
grep -q 'no consensus' out || fail "the run is not said to be without consensus"
[ "$(grep -c '"event":"round"' record.jsonl)" = 20 ] || fail "not a line a node and round"
[ "$(grep -c '"event":"agreement"' record.jsonl)" = 10 ] || fail "not a line a node and agreement"
! grep '"event":"round"' record.jsonl | grep -vq '"consensus":"none"' || fail "a round without its label"
[ "$(grep '"event":"agreement"' record.jsonl | grep -c '"stepped":true.*"r0","r1","r2","r3","r4"')" = 10 ] ||
    fail "not every agreement is of all five models"
! grep -q '"ignored":.*"damaged":[1-9]' record.jsonl || fail "a node's object was refused as damaged"
grep -q '"weight_divergence":0\.' record.jsonl || fail "no divergence of the weights"
[ "$(nodes_json runs/swarm model | cut -d' ' -f2 | uniq | wc -l)" = 1 ] || fail "five models"
[ "$(nodes_json runs/swarm done | grep -c true)" = 5 ] || fail "not all are done"
[ "$(nodes_json runs/swarm reached | grep -c false)" = 5 ] || fail "a node is reached after its end"

# A node's folder is read as a run is: its own model.
expect 0 diloco eval runs/swarm/nodes/r3/served/run --set data.train_path=text.txt
grep -q '^after 4 entries: validation loss [0-9]' out || fail "a node's model is not evaluated"
expect 0 diloco export runs/swarm/nodes/r3/served/run --to npz --out model.npz
expect_error 3 "name a node's folder" diloco eval runs/swarm --set data.train_path=text.txt
for command in log verify 'takeover' ; do
    expect_error 3 'has no log' diloco $command runs/swarm
done
expect_error 3 'diloco join --peer' diloco join runs/swarm --set data.train_path=text.txt

expect_error 3 'set swarm.cert and swarm.key' diloco train swarm.toml --store open --set run.local_replicas=1 \
    --set swarm.listen=0.0.0.0:0

# The same command again: nothing is left to do.
expect 0 diloco train swarm.toml
grep -q '^done: ' out || fail "a finished run does not end"

# noloco: pairs.
expect 0 diloco train swarm.toml --store runs/pairs --preset noloco --record pairs.jsonl \
    --set swarm.min_peers=2 --set swarm.agree_every=0
[ "$(grep -c '"event":"end"' pairs.jsonl)" = 5 ] || fail "noloco: not every node came to its end"
[ "$(grep '"event":"round"' pairs.jsonl | grep -c '"stepped":true')" -ge 8 ] || fail "noloco: no pairs"
! grep '"event":"round"' pairs.jsonl | grep -q '"members":\["r[0-9]","r[0-9]","r' || fail "noloco: three"

# An outer step that is far too long is named, with how far each node moved (SWM-30).
expect 0 diloco train swarm.toml --store runs/absurd --record absurd.jsonl --set run.replicas=2 \
    --set swarm.min_peers=2 --set combiner=mean --set trainer.rounds=3 --set outer_lr=40
grep '"code":"divergence"' absurd.jsonl |
    grep -q 'outer_learning_rate was 40, .* its members moved by: r0 [0-9].* r1 [0-9]' ||
    fail "no warning of an absurd outer learning rate"
! grep -q '"code":"divergence"' record.jsonl || fail "a warning without a reason"
[ "$(grep '"event":"eval"' record.jsonl | grep -c '"loss_after_sync":[0-9]')" -ge 4 ] ||
    fail "no loss after an exchange"

# Too few to begin with.
expect_error 4 'swarm.min_peers' diloco train swarm.toml --store runs/few --set run.local_replicas=2 \
    --set run.start_timeout=1

# noloco agrees too: on whole models, after every second round.
expect 0 diloco train swarm.toml --store runs/agree --preset noloco --record agree.jsonl \
    --set run.replicas=2 --set swarm.min_peers=2 --set swarm.agree_every=2
[ "$(grep '"event":"agreement"' agree.jsonl | grep -c '"stepped":true')" = 4 ] ||
    fail "noloco: not every agreement happened"
[ "$(nodes_json runs/agree model | cut -d' ' -f2 | uniq | wc -l)" = 1 ] || fail "noloco: two models"
