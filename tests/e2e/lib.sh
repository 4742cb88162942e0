# lib.sh - functions of the end-to-end tests. A test is a script  NAME.sh PROGRAM  that begins with
#
#     . "$(dirname "$0")/lib.sh"
#
# Its working folder is then empty and its own, and is removed with it. It has the program as
# `diloco` on its PATH, a text of 64 kB in text.txt and a tiny model in tiny.toml.
set -eu
export LC_ALL=C

program=$(readlink -f "$1")
project=$(readlink -f "$(dirname "$0")/../..")
work=$(mktemp -d)
mkdir "$work/bin" "$work/here"
ln -s "$program" "$work/bin/diloco"
PATH=$work/bin:$PATH
cd "$work/here"

# The replicas of a killed program end a moment after it and write until then.
remove_work() {
    tries=0
    until rm -rf "$work" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { echo "$work is left" >&2 && status=1 && return; }
        sleep 0.1
    done
}

# Processes that a test started and left must not outlive it.
started=
clean_up() {
    status=$?
    for pid in $started; do kill -9 "$pid" 2>/dev/null || true; done
    remove_work
    exit $status
}
trap clean_up EXIT
trap 'exit 143' TERM # or the shell would end without it
trap 'exit 130' INT

fail() {
    echo "$(basename "$0"): $*" >&2
    for log in out err; do
        [ ! -s $log ] || sed "s/^/  $log: /" $log | tail -20 >&2
    done
    exit 1
}

# Is the program a sanitizer's build?
sanitized() {
    ldd "$program" | grep -q 'lib[at]san\|libclang_rt'
}

# expect CODE COMMAND…: run it, its output in out and err, and compare the exit code.
expect() {
    code_wanted=$1
    shift
    code_got=0
    "$@" >out 2>err </dev/null || code_got=$?
    [ "$code_got" = "$code_wanted" ] || fail "expected exit code $code_wanted, got $code_got: $*"
}

# The last command's error says this, in one line that begins with the program's name.
says() {
    grep -qF -- "$1" err || fail "the error does not say \"$1\""
    grep -q '^diloco: ' err || fail "the error does not begin with the program's name"
}

# expect_error CODE TEXT COMMAND…
expect_error() {
    code_wanted=$1
    text_wanted=$2
    shift 2
    expect "$code_wanted" "$@"
    says "$text_wanted"
}

# json KEY <file: the value of a key of an object, text without its quotes.
json() {
    tr ',{}' '\n\n\n' | sed -n "s/^\"$1\":\"\{0,1\}\([^\"]*\)\"\{0,1\}$/\1/p" | head -1
}

# digest STORE: of the state after the last entry, replayed from the log.
digest() {
    diloco verify "$1" --json >verify.json 2>verify.err || fail "verify $1: $(cat verify.err)"
    json digest <verify.json
}

# wait_for COMMAND…: until it succeeds; WAIT_S (240) seconds at most, since a busy machine may be slow.
wait_for() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt $((20 * ${WAIT_S:-240})) ] || fail "waited ${WAIT_S:-240} s for: $*"
        sleep 0.05
    done
}

# has_entry STORE E: entry E is in the log.
has_entry() {
    [ -e "$1/log/$(printf %010d "$2").json" ]
}

# children PID: the replica processes that a train or join started.
children() {
    cat "/proc/$1/task/$1/children" 2>/dev/null || true
}

# node_address FOLDER: of the first node without a log that runs there; empty without one.
node_address() {
    sed -n 's/.*"address":"\([^"]*\)".*/\1/p' "$1"/nodes/*/served/run/me/beat.json 2>/dev/null | head -1
}

# in_arguments TEXT: a process of this machine shows it in its arguments. A test beside this one may search for the
# same text.
in_arguments() {
    for shown in $(grep -lF -- "$1" /proc/[0-9]*/cmdline 2>/dev/null); do
        case $(readlink "${shown%cmdline}exe") in '' | */grep) ;; *) return 0 ;; esac
    done
    return 1
}

gone() {
    ! kill -0 "$1" 2>/dev/null
}

# long_output FILE COMMAND…: 100 MB, or LONG_OUTPUT_MB, are appended to FILE, which COMMAND prints. It does so in less
# memory than 100 MB, in order and to the last line. A sanitizer needs more addresses than that limit.
long_output() {
    long_file=$1
    shift
    long_lines=$((${LONG_OUTPUT_MB:-100} * 3072 / 100))
    seq 1 $long_lines | awk '{ printf "%08d%032759d\n", $1, 0 }' >>"$long_file"
    ({ sanitized || ulimit -v 90000; } && "$@") >long 2>err ||
        fail "no output of ${LONG_OUTPUT_MB:-100} MB: $(tail -c 300 err)"
    [ "$(tail -n $long_lines long | cksum)" = "$(tail -n $long_lines "$long_file" | cksum)" ] ||
        fail "the output of ${LONG_OUTPUT_MB:-100} MB is not whole, or not in order"
    rm long
}

# A text that is the same on every machine, long enough for four shards.
awk 'BEGIN {
    split("the a one sea ship wind and of to king night old told sails deep home far", w, " ")
    x = 7
    while (n < 64000) {
        x = (x * 1103515245 + 12345) % 2147483648
        s = w[1 + int(x / 65536) % 17] (x % 11 ? " " : ".\n")
        printf "%s", s
        n += length(s)
    }
}' >text.txt

cat >tiny.toml <<'TOML'
preset = "diloco"
[run]
replicas = 2
threads = 1
heartbeat = 0.5
patience = 5
[trainer]
rounds = 6
local_steps_per_round = 20
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
