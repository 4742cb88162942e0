#!/bin/sh
# A link that is cut in the middle of a contribution's upload, which goes in parts, and mended. The
# run continues, and ends in the bits of an undisturbed one.
. "$(dirname "$0")/lib.sh"
network 40mbit,20ms 2

sed -i 's/^rounds = 6/rounds = 2/; s/^local_steps_per_round = 20/local_steps_per_round = 4/
    s/^channels = 32/channels = 320/; s/^patience = .*/patience = 30/' tiny.toml
expect 0 diloco train tiny.toml --store plain --quiet
start_hub
replicas 2
uploading() { [ -n "$(find hub/runs -path '*/.multipart/*/0*')" ]; } # parts, but not all
wait_for test -e hub/runs/run/gen/r1.0000
cut_off() { # while a request is in flight; false: it had just arrived
    wait_for uploading
    kill -USR1 $wan_pid
    sleep 4
    uploading && mended=0 || mended=1
    kill -USR2 $wan_pid
    return $mended
}
until cut_off; do :; done
ended r1 "$r1"
ended r2 "$r2"
[ "$(digest hub/runs/run)" = "$(digest plain)" ] || fail "a cut link changed the result"
