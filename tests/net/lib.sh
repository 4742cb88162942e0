# net/lib.sh - for tests of a network of their own: NAME.sh PROGRAM WAN begins with
#
#     . "$(dirname "$0")/lib.sh"
#     network LINK N
#
# and has a hub's place and N replicas' places in network namespaces, each replica with such a link
# to the hub alone and to no loopback of others (wan.c). Without root, TUN devices or namespaces the
# test says so and is left out (exit 77).
wan=$(readlink -f "$2")
. "$(dirname "$0")/../e2e/lib.sh"
places=

take_down() {
    status=$?
    trap - EXIT
    for pid in $started; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    for place in $places; do
        for pid in $(ip netns pids "$place" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done # launched ones
        ip netns del "$place" 2>/dev/null || true
    done
    remove_work
    exit $status
}
trap take_down EXIT

leave_out() {
    echo "left out: $(basename "$0"): $*"
    exit 77
}

# at PLACE COMMAND…: there; 0 is the hub's, replicas count from 1.
at() {
    place=$1
    shift
    exec ip netns exec "dl$$-$place" "$@"
}

# network LINK N [--mesh]
network() {
    [ "$(id -u)" = 0 ] || leave_out "network namespaces need root"
    [ -c /dev/net/tun ] || leave_out "there is no /dev/net/tun"
    command -v ip >/dev/null || leave_out "there is no ip (iproute2)"
    for i in $(seq 0 "$2"); do
        ip netns add "dl$$-$i" 2>/dev/null || leave_out "no network namespace can be made"
        places="$places dl$$-$i"
    done
    # shellcheck disable=SC2086
    "$wan" "$1" ${3:-} $places >wan.out 2>wan.err &
    wan_pid=$!
    started="$started $wan_pid"
    came_up() { grep -q '^up' wan.out || gone $wan_pid; }
    wait_for came_up
    ! gone $wan_pid || leave_out "no TUN device can be made: $(cat wan.err)"
    for place in $places; do # senders that go by what is lost, as most kernels' do
        ip netns exec "$place" sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control'
    done
}

# start NAME PLACE COMMAND…: in a folder NAME of its own, output in NAME/out, its pid in $pid.
start() {
    name=$1
    shift
    mkdir -p "$name"
    (cd "$name" && at "$@") >"$name/out" 2>&1 &
    pid=$!
    started="$started $pid"
}

# ended NAME PID: with success.
ended() {
    code=0
    wait "$2" || code=$?
    [ "$code" = 0 ] || fail "$1 ends with $code: $(tail -5 "$1/out")"
}

url=http://10.78.0.1:8765/run

# A hub at place 0, its folder hub/runs; further arguments are its own.
start_hub() {
    start hub 0 diloco serve runs --listen 10.78.0.1:8765 --insecure "$@"
    hub_pid=$pid
    wait_for grep -qs '^serving ' hub/out
}

# replicas N [ARGUMENT…]: the first makes the run from tiny.toml, the others join it; each at its own place.
replicas() {
    n=$1
    shift
    for i in $(seq 1 "$n"); do
        mkdir -p "r$i"
        cp tiny.toml text.txt "r$i/"
        if [ "$i" = 1 ]; then
            start r1 1 diloco train tiny.toml --store $url --replicas 1 --record record.jsonl \
                --set run.replicas="$n" "$@"
        else
            start "r$i" "$i" diloco join $url --record record.jsonl \
                --set data.train_path=text.txt --set run.threads=1
        fi
        eval "r$i=$pid"
        wait_for test -e "hub/runs/run/gen/r$((i - 1)).0000" # then the next takes another name
    done
}
