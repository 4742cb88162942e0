#!/bin/sh
# A full /tmp, a full store and a home that cannot be written: commands that need none of them work,
# and the others name the place and the way out. The disks are file systems in a namespace of the
# test's own.
. "$(dirname "$0")/lib.sh"

if [ "${DILOCO_NAMESPACE:-}" != yes ]; then
    for unshare in 'unshare --mount' 'unshare --mount --map-root-user'; do
        $unshare mount -t tmpfs none /mnt 2>/dev/null || continue
        DILOCO_NAMESPACE=yes $unshare sh "$project/tests/e2e/no_space.sh" "$program"
        exit
    done
    echo "left out: a full /tmp and a read-only home (no mount namespace can be made here)"
    exit 0
fi

mkdir full home
mount -t tmpfs -o size=64k none full
dd if=/dev/zero of=full/fill bs=1k 2>/dev/null && fail "the disk is not full"
sed 's/^rounds = .*/rounds = 1/; s/^local_steps.*/local_steps_per_round = 2/' tiny.toml >short.toml

# A full /tmp. Training does not use it; measuring a step does.
export TMPDIR="$PWD/full"
expect 0 diloco train short.toml --quiet
expect_error 1 'set TMPDIR' diloco plan short.toml --link 10mbit,10ms
says --step-seconds
says 'No space left'
expect 0 diloco plan short.toml --link 10mbit,10ms --step-seconds 0.01
[ "$(ls full)" = fill ] || fail "files are left in /tmp: $(ls full)"
unset TMPDIR

# A full store, and a full folder for a new configuration.
expect_error 1 'No space left' diloco train short.toml --store full/run --set run.store_timeout=1
says full/run
expect_error 1 'No space left' diloco init full/new
says full/new/run.toml
umount full

# A file that reaches the limit of its size is an error, and no signal that ends the process.
(ulimit -f 64 && expect_error 1 'raise the limit on file sizes' diloco train short.toml --store limited) ||
    fail "not the way out of ulimit -f"

# The store of a run is full: the replica waits for run.store_timeout. Its exit code says that it may do better later.
mkdir small
mount -t tmpfs -o size=16m none small
expect 0 diloco launch short.toml --store small/run --set run.replicas=1 --prepare
dd if=/dev/zero of=small/fill bs=1k 2>/dev/null && fail "the disk is not full"
expect_error 4 'No space left' diloco join small/run --rank 0 --set run.store_timeout=1 --set data.train_path=text.txt
rm small/fill

# The same for a store that has become read-only, and for local state beside it.
mount -o remount,ro small
expect_error 4 'Read-only file system' diloco join small/run --rank 0 --set run.store_timeout=1 \
    --set data.train_path=text.txt
says 'local state'
expect_error 4 'the store is read-only' diloco join small/run --rank 0 --set run.store_timeout=1 \
    --set data.train_path=text.txt --set run.state_dir="$PWD/state"
[ "$(grep -c 'the store is read-only' out)" = 1 ] || fail "the wait is not reported once"
mount -o remount,rw small
expect 0 diloco join small/run --rank 0 --set data.train_path=text.txt --quiet

# A replica that is killed while the store is read-only waits for it once it is started again, and so
# do the others. A mount with a file open for writing cannot become read-only, hence the loop.
sed 's/^rounds = .*/rounds = 60/' tiny.toml >long.toml
diloco train long.toml --store small/live --set run.state_dir="$PWD/live.state" >out 2>err &
train=$!
started=$train
wait_for has_entry small/live 3
wait_for mount -o remount,ro small 2>remount.err
kill -9 "$(children $train | cut -d' ' -f1)"
wait_for grep -q 'write gen/.*Read-only file system' out
mount -o remount,rw small
wait $train || fail "a launcher whose store was read-only for a while"
expect 0 diloco verify small/live
umount small

# A home that cannot be written.
mount -t tmpfs none home
mount -o remount,ro home
export HOME="$PWD/home"
unset XDG_CONFIG_HOME
expect 0 diloco train short.toml --store without-home --quiet
expect_error 1 'run.key or --key' diloco id
says "$HOME/.config"
expect_error 1 'run.key or --key' diloco train short.toml --store keyed --set run.roster=invited
[ ! -e keyed/run.json ] || fail "a refused run is there"
expect 0 diloco id --key mine.pem
expect 0 diloco train short.toml --store keyed --set run.roster=invited --set run.key=mine.pem --quiet

# The folder of the command itself.
cd home
expect_in_err() {
    code=0
    "$@" >../out 2>../err </dev/null || code=$?
    cd ..
    [ $code = 1 ] || fail "expected exit code 1, got $code: $*"
    says 'Read-only file system'
    cd home
}
expect_in_err diloco init
expect_in_err diloco train ../short.toml --set data.train_path=../text.txt
cd ..
umount home
