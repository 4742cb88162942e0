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

# runs PID: the process has not ended. Where no process waits for it, it remains as a zombie.
runs() {
    kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

# All servers of $pids run. A wait for one of them has no limit but this and the test's own.
servers_run() {
    for pid in $pids; do
        runs "$pid" || { echo "a server has ended"; cat "$dir"/*.log 2>/dev/null; return 1; } >&2
    done
}

# Wait until $port, or the port given, answers HTTP.
started() {
    until curl -s -o "$dir/hello" "http://127.0.0.1:${1:-$port}/"; do
        servers_run || exit 1
        sleep 0.2
    done
}
