# fresh_lib.sh - shared by fresh_wheel.sh and fresh_deb.sh, which source it.
here=$(cd "$(dirname "$0")" && pwd)
name=$(basename "$0" .sh)
[ "$(id -u)" = 0 ] || { echo "left out: $name (it needs root, for chroot)"; exit 77; }
fail() { echo "$name: $*" >&2; exit 1; }

inside() { "$here/in_chroot.sh" "$root" "$@"; }

# Installs Debian packages in the root, from the mirrors that its own apt lists.
need() {
    inside sh -c 'dpkg -s "$@" >/dev/null 2>&1 ||
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$@"; }' sh "$@" \
        >"$root/tmp/apt.log" 2>&1 || { tail -n 20 "$root/tmp/apt.log" >&2; fail "apt could not install $*"; }
}

# Trains two replicas with PROGRAM in the root until they have applied three entries, and replays all.
two_replicas() {
    rm -rf "$root/root/try" && mkdir "$root/root/try"
    seq 1 20000 >"$root/root/try/text.txt"
    cat >"$root/root/try/run.toml" <<'TOML'
preset = "diloco"
[run]
replicas = 2
[trainer]
rounds = 3
local_steps_per_round = 5
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
    inside sh -c 'cd /root/try && "$1" train run.toml --store run --quiet' sh "$1" || fail "diloco train"
    inside sh -c 'cd /root/try && "$1" verify run' sh "$1" || fail "diloco verify"
}

# The milliseconds since this call's argument, a result of `date +%s%3N`.
since() { echo $(($(date +%s%3N) - $1)); }
