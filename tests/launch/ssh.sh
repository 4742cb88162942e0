#!/bin/sh
# diloco launch --on ssh:// against OpenSSH's own server on loopback: keys and host keys made here and checked
# strictly, an upload that is cut, connections that are cut, a host that does not answer, kills; the run ends
# where an undisturbed one ends. Two servers are two hosts.
. "$(dirname "$0")/../e2e/lib.sh"
front=$project/tests/launch/sshd_front.py

leave_out() {
    echo "left out: launch over ssh ($*)"
    exit 77
}
PATH=$PATH:/usr/sbin
command -v sshd >/dev/null || leave_out "needs openssh-server"
command -v ssh-keygen >/dev/null || leave_out "needs openssh-client"
# Where root runs sshd, it wants this folder; other users' does not.
privileged=/run/sshd
if [ "$(id -u)" = 0 ] && [ ! -d $privileged ]; then
    mkdir -m 0755 $privileged || leave_out "cannot make $privileged"
    trap 'code_at_end=$?; set +e; rmdir $privileged; (exit $code_at_end); clean_up' EXIT
fi

me=$(id -un)
mkdir sshd && chmod 700 sshd
ssh-keygen -q -t ed25519 -N '' -f sshd/user
ssh-keygen -q -t ed25519 -N '' -f sshd/stranger
cp sshd/user.pub sshd/authorized
chmod 600 sshd/authorized
for host in a b; do
    ssh-keygen -q -t ed25519 -N '' -f sshd/host_$host
    cat >sshd/$host.conf <<CONF
HostKey $PWD/sshd/host_$host
AuthorizedKeysFile $PWD/sshd/authorized
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
PermitRootLogin prohibit-password
CONF
    python3 "$front" sshd/$host.conf sshd/$host.port 2>sshd/$host.err &
    eval "front_$host=$!"
    started="$started $!"
done
: >sshd/known
for host in a b; do
    wait_for [ -s sshd/$host.port ]
    echo "[127.0.0.1]:$(cat sshd/$host.port) $(cut -d' ' -f1,2 sshd/host_$host.pub)" >>sshd/known
done
cat >sshd/config <<CONF
Host *
    IdentityFile $PWD/sshd/user
    IdentitiesOnly yes
    UserKnownHostsFile $PWD/sshd/known
    GlobalKnownHostsFile /dev/null
CONF
a=$me@127.0.0.1:$(cat sshd/a.port)
b=$me@127.0.0.1:$(cat sshd/b.port)

# A run waits for a replica that is started again, however long that takes here.
sed -i 's/^rounds = 6/rounds = 100/; s/^patience = 5/patience = 1200/' tiny.toml
sed -i "s|\"text.txt\"|\"$PWD/text.txt\"|" tiny.toml
cat >>tiny.toml <<TOML
[launch]
poll = 0.1
dir = "$PWD/far"
ssh_config = "$PWD/sshd/config"
TOML
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

folder() { # RANK GENERATION
    for f in far/diloco-*-r"$1"-g"$2"; do [ ! -d "$f" ] || echo "$f"; done
}
is_started() {
    f=$(folder "$1" "$2")
    [ -n "$f" ] && [ -s "$f/pid" ]
}
replica_of() { children "$(cat "$(folder "$1" "$2")/pid")" | cut -d' ' -f1; }
has_replica() { is_started "$1" "$2" && [ -n "$(replica_of "$1" "$2")" ]; }
launcher() { # STORE FLAGS…
    diloco launch tiny.toml --on "ssh://$a,$b" --store "$@" >launch.out 2>launch.err &
    launcher=$!
    started="$started $launcher"
}

config=$PWD/sshd/config
look() { # SUBCOMMAND STORE FLAGS…: by the configuration of ssh that this machine trusts
    diloco launch "$@" --set "launch.ssh_config=$config"
}

# A dry run shows the commands, and no secret.
export DILOCO_TEST_WORD=swordfish
expect 0 diloco launch tiny.toml --store cut --on "ssh://$a,$b" --dry-run --set launch.secrets=DILOCO_TEST_WORD
[ "$(grep -c '^ssh -T -oBatchMode=yes -oStrictHostKeyChecking=yes ' out)" = 6 ] || fail "not three calls for each host"
grep -qF '"DILOCO_TEST_WORD=***"' out || fail "not the secret's name"
! grep -q swordfish out err || fail "a secret is printed"
[ ! -e cut ] && [ ! -e far ] || fail "a dry run made something"

# Keys that are not known, and keys that are not those that were known.
sed "s|sshd/user|sshd/stranger|" sshd/config >sshd/config_stranger
expect_error 3 'Permission denied' diloco launch tiny.toml --store refused --on "ssh://$a" \
    --set "launch.ssh_config=$PWD/sshd/config_stranger"
sed "s|sshd/known|sshd/none|" sshd/config >sshd/config_none
expect_error 3 'Host key verification failed' diloco launch tiny.toml --store refused --on "ssh://$a" \
    --set "launch.ssh_config=$PWD/sshd/config_none"
[ ! -e far ] || fail "something was sent to a host that is not known"

# A program for another kind of machine is refused before it is sent.
cp "$program" other
printf '\363\000' | dd of=other bs=1 seek=18 conv=notrunc 2>dd.err
expect_error 3 'and the program is for Linux riscv64: set launch.binary' diloco launch tiny.toml --store refused \
    --on "ssh://$a" --set launch.binary=other
[ ! -e far ] || fail "a program for another machine was sent"
expect_error 1 'r1 has no output: it was not started (not started: ' look logs refused --rank 1

# The upload is cut, then made again; it is whole before it is executed. Two launchers begin at once, and start each
# replica once.
: >sshd/a.conf.cut-upload
diloco launch tiny.toml --on "ssh://$a,$b" --store cut >beside.out 2>beside.err &
beside=$!
started="$started $beside"
launcher cut
wait_for has_entry cut 3
[ -z "$(folder 0 1)$(folder 1 1)" ] || fail "two launchers at once have started a replica again"
kill -9 "$beside" || fail "a launcher has ended: $(cat beside.err)"
[ ! -e sshd/a.conf.cut-upload ] || fail "the upload was not cut"
grep -q '; trying again' launch.out beside.out || fail "not said that the upload was cut"
sum=$(sha256sum "$program" | cut -d' ' -f1)
cmp -s "$program" "far/bin/$sum/diloco" || fail "the program is not where it has to be"

# Connections that are cut change nothing.
before=$(cat "$(folder 0 0)/pid")
kill -USR1 "$front_a" "$front_b"
wait_for has_entry cut 8
[ "$(cat "$(folder 0 0)/pid")" = "$before" ] || fail "a cut connection has started a replica again"

# kill -9 of the launcher, of a replica with its keeper, and of another replica.
kill -9 "$launcher"
wait_for gone "$launcher"
wait_for has_replica 1 0
kill -9 "$(cat "$(folder 1 0)/pid")" "-$(replica_of 1 0)"
launcher cut
wait_for is_started 1 1
wait_for has_replica 0 0
kill -9 "-$(replica_of 0 0)"
wait_for is_started 0 1
code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "the launch ends with $code: $(cat launch.err)"
[ "$(digest cut)" = "$want" ] || fail "the launched run ends elsewhere"
expect_error 3 'can run commands on this machine: add --set launch.ssh_config=' diloco launch status cut
expect 0 look status cut
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded"
expect 0 look logs cut --rank 0
grep -q . out || fail "no output of r0"
long_output "$(folder 0 1)/log" look logs cut --rank 0

# A program that was changed there is not executed. This run ends when it is cancelled, and not before.
diloco rm cut >rm.out
rm -rf far/diloco-*
echo >>"far/bin/$sum/diloco"
launcher cut --set trainer.rounds=9000
wait_for has_entry cut 3
cmp -s "$program" "far/bin/$sum/diloco" || fail "a changed program was not replaced"
expect 0 look cancel cut
wait "$launcher" || true
expect 0 look collect cut
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"

# A secret arrives in the environment, and is in no file, argument or list of processes.
cat >secret.toml <<TOML
$(cat tiny.toml)
secrets = ["DILOCO_TEST_WORD"]
TOML
rm -rf cut cut.local far/diloco-*
diloco launch secret.toml --store cut --on "ssh://$a,$b" >launch.out 2>launch.err &
launcher=$!
started="$started $launcher"
secret_arrived() { grep -qzx 'DILOCO_TEST_WORD=swordfish' "/proc/$(replica_of 0 0)/environ" 2>/dev/null; }
wait_for has_replica 0 0
wait_for secret_arrived # a process that has just begun may have no environment yet
! in_arguments swordfish || fail "the secret is in a list of processes"
code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "the launch ends with $code: $(cat launch.err)"
! grep -rqI swordfish cut cut.local far launch.out launch.err || fail "the secret is in a file"

# A batch: the uploaded program starts a command on each host, which has its rank and runs in launch.dir.
rm -rf far/diloco-*
cat >batch.toml <<TOML
[job]
command = ["sh", "-c", "pwd; echo \$0 of \$DILOCO_RANKS for \$DILOCO_JOB; exit \$((5 * \$DILOCO_RANK))", "part-{rank}"]
$(sed -n '/^\[launch\]/,$p' tiny.toml)
TOML
expect_error 1 'the batch is not complete; r1: FAILED: exit code 5' diloco launch job batch.toml --store batch \
    --on "ssh://$a,$b" --replicas 2
expect 0 look logs batch --rank 0
printf '%s\n' "$PWD/far" "part-0 of 2 for $(cd far && echo diloco-*-r0-g0)" | cmp -s - out || fail "not the output of rank 0"
expect 0 look status batch
grep -q '^r0 *SUCCEEDED' out || fail "rank 0 has not succeeded: $(cat out)"

# A script whose ranks are the replicas of a run: each host has the run's address and its rank. The batch is complete
# with the run.
rm -rf far/diloco-*
expect 0 diloco launch tiny.toml --store scripted --prepare --on "ssh://$a,$b"
cat >replicas.toml <<TOML
[run]
replicas = 2
[job]
command = ["sh", "-c", "exec $program join \$DILOCO_STORE --rank \$DILOCO_RANK --set run.threads=1 --set data.train_path=$PWD/text.txt"]
run = "$PWD/scripted"
$(sed -n '/^\[launch\]/,$p' tiny.toml)
TOML
expect 0 diloco launch job replicas.toml --store scripts --on "ssh://$a,$b"
[ "$(digest scripted)" = "$want" ] || fail "by a script, the run ends elsewhere"
expect 0 look status scripts
grep -q '2 replicas wanted, the batch is complete$' out || fail "not the state of the batch: $(cat out)"

# A wheel as the program: pip installs it on the host, offline. Its package is there for a command, and a file that is
# changed is replaced before it is used.
if python3 -m pip --version >/dev/null 2>&1; then
    wheel=$(python3 "$project/tests/launch/make_wheel.py" "$program" .)
    site=far/bin/$(sha256sum "$wheel" | cut -d' ' -f1)/site
    rm -rf far/diloco-*
    sed -i '/^command/s|.*|command = ["python3", "-c", "import diloco; print(diloco.FROM_WHEEL)"]|' batch.toml
    wheel_job() {
        diloco launch job batch.toml --on "ssh://$a" --replicas 1 --set "launch.binary=$wheel" "$@"
    }
    expect 0 wheel_job --store wheel
    expect 0 look logs wheel --rank 0
    [ "$(cat out)" = True ] || fail "not the package of the wheel: $(cat out)"
    printf X | dd of="$site/diloco/_lib/diloco" bs=1 seek=100 conv=notrunc 2>/dev/null
    expect_error 1 'the uploaded program was changed' look logs wheel --rank 0
    expect 0 wheel_job --store wheel_again
    cmp -s "$program" "$site/diloco/_lib/diloco" || fail "a changed file of the wheel was not replaced"
fi

# Two users of one machine, each below a login folder of their own. A mount namespace of the server has the accounts,
# so this machine gets none, however the test ends.
other=diloco-other
uid=64017
while getent passwd $uid >/dev/null; do uid=$((uid + 1)); done
chmod 755 "$work" .
mkdir -p users/me users/other
cp sshd/authorized users/authorized
chmod 644 users/authorized
{
    echo "$me:x:0:0::$PWD/users/me:/bin/sh"
    echo "$other:*:$uid:$uid::$PWD/users/other:/bin/sh"
    grep -v "^$me:" /etc/passwd
} >sshd/passwd
chmod 644 sshd/passwd
# with_accounts COMMAND…
with_accounts() {
    exec unshare --mount sh -c 'mount --bind sshd/passwd /etc/passwd && exec "$@"' sh "$@"
}
two_users() {
    [ "$(id -u)" = 0 ] && chown $uid:$uid users/other &&
        (with_accounts setpriv --reuid=$uid --regid=$uid --clear-groups ls users/other >/dev/null 2>&1)
}
if two_users; then
    sed "s|^AuthorizedKeysFile .*|AuthorizedKeysFile $PWD/users/authorized|" sshd/a.conf >sshd/users.conf
    with_accounts python3 "$front" sshd/users.conf sshd/users.port 2>sshd/users.err &
    started="$started $!"
    wait_for [ -s sshd/users.port ]
    port=$(cat sshd/users.port)
    echo "[127.0.0.1]:$port $(cut -d' ' -f1,2 sshd/host_a.pub)" >>sshd/known
    both=ssh://$me@127.0.0.1:$port,$other@127.0.0.1:$port
    sed -i '/^command/s|.*|command = ["sh", "-c", "id -un; pwd"]|' batch.toml
    expect 0 diloco launch job batch.toml --store users_batch --on "$both" --replicas 2 --set launch.dir=mine
    expect 0 look logs users_batch --rank 0
    printf '%s\n' "$me" "$PWD/users/me/mine" | cmp -s - out || fail "not the first user: $(cat out)"
    expect 0 look logs users_batch --rank 1
    printf '%s\n' "$other" "$PWD/users/other/mine" | cmp -s - out || fail "not the second user: $(cat out)"

    # Their replicas share nothing but a hub.
    hub=127.0.0.1:$(python3 "$project/tests/free_port.py")
    diloco serve hub --listen "$hub" >serve.out 2>serve.err &
    started="$started $!"
    wait_for grep -q '^serving ' serve.out
    expect 0 diloco train tiny.toml --store short --set trainer.rounds=6 --quiet
    expect 0 diloco launch tiny.toml --store "http://$hub/run" --on "$both" --set launch.dir=mine --set trainer.rounds=6
    [ "$(digest hub/run)" = "$(digest short)" ] || fail "by two users, the run ends elsewhere"
    [ "$(stat -c %u users/other/mine/diloco-*-r1-g0/log | sort -u)" = $uid ] || fail "r1 was not the second user's"
else
    echo "left out: two users over ssh (needs root, unshare and setpriv, and a folder that others may read)"
fi

# A host that does not answer any more: its replica is lost, and started on the other one.
rm -rf cut cut.local far/diloco-*
diloco launch tiny.toml --store cut --on "ssh://$a,$b" --set launch.lost_after=0.5 >launch.out 2>launch.err &
launcher=$!
started="$started $launcher"
wait_for has_replica 1 0
replica=$(replica_of 1 0)
keeper=$(cat "$(folder 1 0)/pid")
wait_for has_entry cut 2
kill -USR2 "$front_b"
kill -9 "$keeper" "-$replica"
wait_for is_started 1 1
grep -q '^r1: LOST: no answer for' launch.out || fail "not said that r1's host does not answer"
code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "the launch ends with $code: $(cat launch.err)"
[ "$(digest cut)" = "$want" ] || fail "with a lost host, the run ends elsewhere"
expect 0 look status cut --json
[ "$(tr '{' '\n' <out | grep -c "\"id\":\"$a ")" = 2 ] || fail "not both on the host that is left"
