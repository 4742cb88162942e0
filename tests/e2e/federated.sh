#!/bin/sh
# Logical clients (docs/federated.md): FED-28, 29, 35, 36. One worker, three, a server and workers
# apart over a hub, kill -9 of a worker, of the server and of all, at several moments: the same bits
# each time.
. "$(dirname "$0")/lib.sh"

sed -i -e 's/"diloco"/"federated"/' -e '/^replicas/d' -e 's/^rounds = 6/rounds = 40/' -e 's/^patience = 5/patience = 1.6/' \
    -e 's/^local_steps_per_round = 20/local_steps_per_round = 3/' tiny.toml
cat >>tiny.toml <<'TOML'
[clients]
total_clients = 10
per_round = 4
TOML

expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)
expect 0 diloco status whole --json
expect 0 diloco log whole
grep -q 'client[0-9]*\.0000,client' out || fail "the log does not count clients"
expect 0 diloco eval whole --set data.train_path=text.txt
expect 0 diloco sample whole --set data.train_path=text.txt --tokens 4

# FED-33: the objects in the run's store name no client's state.
[ -z "$(find whole -name st)" ] || fail "private state lies in the run's store"
[ -n "$(find whole.local -path '*/clients/st/*/client*')" ] || fail "there is no client's state"

# The number of workers is a matter of the moment.
expect 0 diloco train tiny.toml --store three --replicas 3 --set run.seed=1 --quiet
[ "$(digest three)" = "$want" ] || fail "three workers end elsewhere than one"
expect 0 diloco train tiny.toml --store other --set run.seed=2 --quiet
[ "$(digest other)" != "$want" ] || fail "another seed changes nothing"

# A server that trains no client, two workers that close nothing, and their own private store: they
# share nothing but a hub, whose folder is this one.
diloco serve . --listen 127.0.0.1:0 >serve.out 2>serve.err &
hub=$!
started="$started $hub"
wait_for grep -q '^serving ' serve.out
url=http://127.0.0.1:$(sed -n 's/^serving .*:\([0-9]*\),.*/\1/p' serve.out)/apart
workers() {
    diloco train tiny.toml --store "$url" --role worker --replicas 2 --set run.state_dir=w \
        --set clients.state=private "$@" >out 2>err &
    workers=$!
    started="$started $workers"
}
server() {
    diloco train tiny.toml --store "$url" --role server --set run.state_dir=s >s.out 2>s.err &
    server=$!
    started="$started $server"
}
stop() { # PARENT: it and its children, at once
    kids=$(children "$1")
    # shellcheck disable=SC2086 # several; one may be gone
    kill -9 "$1" $kids 2>/dev/null || true
    wait "$1" || true
    for pid in $kids; do wait_for gone "$pid"; done
}
server
workers
wait_for has_entry apart 3
kill -9 "$(children "$workers" | cut -d' ' -f1)" # a worker: it is started again
wait_for has_entry apart 7
stop "$server"
sleep 0.3
server
wait_for has_entry apart 12
stop "$workers"

# The server now waits for clients, which have no heartbeat and no deadline.
waits_for_clients() {
    diloco status apart --why >why 2>>err && grep -q '^ *client[0-9]*: no worker has trained it yet' why
}
wait_for waits_for_clients
grep -q 'there is no deadline (run.on_missing = wait)' why || fail "the rule of clients is not said"
! grep -q 'no such replica\|run.patience\|^deadline' why || fail "clients are waited for like replicas"
grep -q '^r0 .* silent  *-  *[0-9][0-9]*  *-  ' why || fail "a worker has steps of its own"
diloco watch apart --once >watch 2>>err
grep -q '^r0 ' watch || fail "watch shows no worker"
! grep -q 'counted\|^[rs][0-9] .* -----*$' watch || fail "workers are shown as missing members"
stop "$server"
[ -e s/s0 ] || fail "the server has another name"
workers
server
wait "$workers" || fail "the workers failed"
wait "$server" || fail "the server failed"
[ "$(digest apart)" = "$want" ] || fail "with server and workers killed, the run ends elsewhere"
[ -z "$(find s -name st)" ] || fail "the server has a client's state"
[ -n "$(find private/st -name 'client*')" ] || fail "clients.state is empty"
grep -q '"committer":"s0' apart/log/*.json || fail "the server closed nothing"
! grep -q '"committer":"r' apart/log/*.json || fail "a worker closed a round"
kill "$hub"

# All at once, in one command, a few times over.
for entry in 2 9 17; do
    diloco train tiny.toml --store cut --replicas 2 >out 2>err &
    parent=$!
    started="$started $parent"
    wait_for has_entry cut $entry
    stop "$parent"
done
expect 0 diloco train tiny.toml --store cut --replicas 1 --quiet
[ "$(digest cut)" = "$want" ] || fail "resumed after all were killed, the run ends elsewhere"

# FED-37: a state that is damaged, or gone, is not taken up.
diloco train tiny.toml --store lost --quiet >out 2>err &
parent=$!
started="$started $parent"
wait_for has_entry lost 12
stop "$parent"
for state in $(find lost.local -path '*/st/*/client*' -type f); do
    printf 'X' | dd of="$state" bs=1 seek=300 conv=notrunc 2>/dev/null
done
expect_error 1 'cannot be restored' diloco train tiny.toml --store lost --quiet --set run.restarts=0
find lost.local -path '*/st/*' -type f -delete
expect_error 1 'it is missing' diloco train tiny.toml --store lost --quiet --set run.restarts=0
expect 0 diloco train tiny.toml --store lost --set clients.on_lost_state=reset --record reset.jsonl
grep -q '"code":"client_state"' reset.jsonl || fail "the record does not tell of the reset"

# Settings that cannot be kept are refused.
expect_error 3 'clients.state' diloco train tiny.toml --store no --set run.state_dir=none
expect_error 3 'own store' diloco train tiny.toml --store no --set clients.state=no/private
expect_error 3 'trainer.epochs' diloco train tiny.toml --store no \
    --set trainer.epochs=1 --set trainer.local_steps_per_round=500
