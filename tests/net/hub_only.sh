#!/bin/sh
# Replicas reach nothing but a hub, over links with delay, a rate and loss (STO-5, STO-6). They
# finish with equal digests, in the bits of a run in a folder.
. "$(dirname "$0")/lib.sh"
network 20mbit,40ms,1% 3

sed -i 's/^replicas = 2/replicas = 3/' tiny.toml
expect 0 diloco train tiny.toml --store plain --quiet
start_hub
replicas 3
ended r1 "$r1"
ended r2 "$r2"
ended r3 "$r3"

# They reach the hub and not each other. A machine that refuses is reached.
reaches() {
    (at 2 python3 -c '
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 5)
except ConnectionRefusedError:
    pass
except OSError:
    sys.exit(1)' "$1")
}
reaches 10.78.0.1 || fail "a replica does not reach the hub"
! reaches 10.78.0.4 || fail "replicas reach each other"
[ "$(digest hub/runs/run)" = "$(digest plain)" ] || fail "over the network the run ends elsewhere"
for i in 1 2 3; do
    grep '"event":"end"' "r$i/record.jsonl" >>ends || fail "r$i has no end"
done
[ "$(sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' ends | sort -u | wc -l)" = 1 ] ||
    fail "digests differ at the end"

# The same by diloco launch, whose replicas are at one place, without loopback to the hub.
mkdir launched
cp tiny.toml text.txt launched/
start launched 1 diloco launch tiny.toml --on local --store "${url%run}launched" --set run.patience=240
ended launched "$pid"
[ "$(digest hub/runs/launched)" = "$(digest plain)" ] || fail "launched over the network, the run ends elsewhere"
