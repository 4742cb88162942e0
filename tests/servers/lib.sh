# lib.sh: shared by the scripts that start a server; sourced. A script makes its server listen on
# 127.0.0.1:$port, calls `started`, runs its command; all of it stops at exit.

dir=$(mktemp -d "${TMPDIR:-/tmp}/diloco-server-XXXXXX")
pids=
stop() {
    # Nothing of theirs is to be kept, and asked kindly some finish old connections for a minute.
    for pid in $pids; do kill -KILL "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap stop EXIT
trap 'exit 130' INT TERM

left_out() {
    echo "left out: $*"
    exit 77
}

free_port() {
    python3 "$(dirname "$0")/../free_port.py"
}

# A program of build/servers, which `scripts/packages.sh servers` fills from npm.
npm_program() {
    here=$(cd "$(dirname "$0")/../.." && pwd)
    program=$here/build/servers/node_modules/.bin/$1
    [ -x "$program" ] || left_out "$1 is not installed (scripts/packages.sh servers)"
}

# Wait until $port, or the port given, answers HTTP.
started() {
    i=0
    until curl -s -o "$dir/hello" "http://127.0.0.1:${1:-$port}/"; do
        i=$((i + 1))
        [ $i -lt 300 ] || { echo "no answer at port ${1:-$port}"; cat "$dir"/*.log; exit 1; }
        sleep 0.2
    done
}
