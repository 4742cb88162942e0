#!/bin/sh
# Control messages never queue after bulk data. The link has 10 Mbit/s and 100 ms, and the router
# keeps 2 s of packets. Every replica's link is full of contributions and snapshots most of the
# time, and each takes longer than a heartbeat's period. Still every heartbeat is there before the
# next is due. HEARTBEATS_CHANNELS (208: contributions of 2 MB) says how large the model is.
export WAN_QUEUE_S=2
. "$(dirname "$0")/lib.sh"
chrt --rr --pid 1 $$ 2>/dev/null || true # tests/CMakeLists.txt; all processes that it starts have it, too
network 10mbit,100ms 2

sed -i "s/^rounds = 6/rounds = 2/; s/^local_steps_per_round = 20/local_steps_per_round = 2/
    s/^channels = 32/channels = ${HEARTBEATS_CHANNELS:-208}/; s/^heartbeat = .*/heartbeat = 1/
    s/^patience = .*/patience = 12/" tiny.toml
start_hub
replicas 2
ended r1 "$r1"
ended r2 "$r2"
late=1 # where the kernel has no sender that keeps queues short, a heartbeat may wait in them
grep -qw bbr /proc/sys/net/ipv4/tcp_available_congestion_control ||
    { echo "left out: heartbeats within their period: this kernel has no bbr"; late=; }
for i in 1 2; do
    grep '"event":"end"' "r$i/record.jsonl" >end || fail "r$i has no end"
    [ "$(json heartbeats <end)" -ge 2 ] || fail "r$i had hardly a heartbeat"
    bulk=$(sed -n 's/.*"event":"contribution".*"put_s":\([0-9.e-]*\).*/\1/p' "r$i/record.jsonl" |
        sort -g | tail -1)
    awk -v s="$(json heartbeat_s_max <end)" -v bulk="$bulk" -v late="${late:-$bulk}" \
        'BEGIN { exit !(1 < bulk && s < late) }' ||
        fail "a heartbeat of r$i took $(json heartbeat_s_max <end) s, a contribution $bulk s"
    grep '"event":"commit"' "r$i/record.jsonl" | tail -1 >commit
    awk -v bps="$(json up_bps <commit)" 'BEGIN { exit !(bps > 1e6 && bps < 12e6) }' ||
        fail "r$i measured $(json up_bps <commit) bit/s of 10 Mbit/s"
    ! grep -q '"code":"silent"' "r$i/record.jsonl" || fail "r$i took somebody for silent"
done
