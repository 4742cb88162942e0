#!/bin/sh
# link.sh BUILD [LINK MB]…: objects to a hub and back over emulated links (bench/link.md), and
# the same read by curl over one connection. Needs root (network namespaces, TUN) and curl.
set -eu
build=$(readlink -f "$1")
shift
: "${CONGESTION:=reno}"
[ $# -gt 0 ] || set -- 50mbit,100ms,0.1% 24 100mbit,100ms 48
work=$(mktemp -d)
hub_place=dlb$$-0 far_place=dlb$$-1
started=

take_down() {
    trap - EXIT
    for pid in $started; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    started=
    for place in $hub_place $far_place; do ip netns del "$place" 2>/dev/null || true; done
    rm -rf "$work"
}
trap take_down EXIT

wait_for() {
    until "$@"; do sleep 0.05; done
}

measure() {
    mkdir -p "$work"
    for place in $hub_place $far_place; do ip netns add "$place"; done
    "$build"/tests/wan "$1" $hub_place $far_place >"$work/wan" &
    started=$!
    wait_for grep -qs '^up' "$work/wan"
    for place in $hub_place $far_place; do # reno is closer to the common default than bbr
        ip -n "$place" route change 10.78.0.0/24 dev wan0 congctl "$CONGESTION"
    done
    ip netns exec $hub_place "$build"/diloco serve "$work/runs" --listen 10.78.0.1:8765 \
        --insecure >"$work/hub" 2>/dev/null &
    started="$started $!"
    wait_for grep -qs '^serving' "$work/hub"
    far="ip netns exec $far_place"
    set -- "$1" "$2" $($far "$build"/bench/bench_link http://10.78.0.1:8765/run "$2")
    one=$($far curl -s -o /dev/null -w '%{time_total}' http://10.78.0.1:8765/run/hb/bench.0000)
    echo "$1 $2 $4 $5 $one" | awk '{
        printf "%-18s %4d MB   up %6.1f s   down %6.1f s   curl, one connection %6.1f s   %.2f times\n",
            $1, $2, $3, $4, $5, $5 / $4 }'
    take_down
    trap take_down EXIT
}

while [ $# -gt 1 ]; do
    measure "$1" "$2"
    shift 2
done
