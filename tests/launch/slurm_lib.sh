# slurm_lib.sh - the tests of the executor slurm share it: a real Slurm in the test's folder, with munged, slurmctld
# and two slurmd on loopback, and tiny.toml for it. With rest=yes slurmctld also takes JSON Web Tokens. With
# accounting=yes slurmdbd records the jobs in a MariaDB server of this folder. With limits=yes as well, the controller
# enforces the limits of this user's association with the account `tests`. The run has 150 rounds, or $rounds.
. "$(dirname "$0")/../e2e/lib.sh"

leave_out() {
    echo "left out: launch on slurm ($*)"
    exit 77
}
PATH=$PATH:/usr/sbin
for needed in munged slurmctld slurmd sbatch ${accounting:+slurmdbd sacct mariadbd}; do
    command -v $needed >/dev/null || leave_out "needs $needed"
done

# Jobs outlive the daemons: they are cancelled first.
end_slurm() {
    code_at_end=$?
    set +e
    if [ -n "${SLURM_CONF:-}" ]; then
        scancel --user="$(id -un)" >/dev/null 2>&1
        tries=0
        while [ -n "$(squeue --noheader 2>/dev/null)" ] && [ $tries -lt 200 ]; do
            tries=$((tries + 1))
            sleep 0.05
        done
    fi
    # Leftovers of a dead controller: processes of jobs have this folder in their environment.
    for environ in $(grep -lz "$work/" /proc/[0-9]*/environ 2>/dev/null); do
        pid=$(basename "${environ%/environ}")
        [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
    done
    (exit $code_at_end)
    clean_up
}
trap end_slurm EXIT

here=$PWD
port() { python3 "$project/tests/free_port.py"; }
mkdir slurm slurm/state
chmod 755 "$work" slurm
head -c 128 /dev/urandom >slurm/munge.key
head -c 32 /dev/urandom >slurm/jwt.key
chmod 600 slurm/munge.key slurm/jwt.key
munged --foreground --force --key-file="$here/slurm/munge.key" --socket="$here/slurm/munge.sock" \
    --pid-file="$here/slurm/munged.pid" --log-file="$here/slurm/munged.log" --seed-file="$here/slurm/seed" \
    >slurm/munged.out 2>&1 &
started="$started $!"
host=$(hostname)
store=none
if [ -n "${accounting:-}" ]; then
    store="slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePass=$here/slurm/munge.sock
AccountingStoragePort=$(port)${limits:+
AccountingStorageEnforce=associations,limits}"
fi
cat >slurm/slurm.conf <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(port)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$here/slurm/munge.sock
${rest:+AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=$here/slurm/jwt.key}
CredType=cred/munge
StateSaveLocation=$here/slurm/state
SlurmdSpoolDir=$here/slurm/spool-%n
SlurmctldPidFile=$here/slurm/ctld.pid
SlurmdPidFile=$here/slurm/slurmd-%n.pid
SlurmctldLogFile=$here/slurm/ctld.log
SlurmdLogFile=$here/slurm/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MessageTimeout=10
SchedulerParameters=sched_interval=1,bf_interval=1
AccountingStorageType=accounting_storage/$store
JobCompType=jobcomp/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(port) CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$(port) CPUs=2 RealMemory=1000
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
CONF
export SLURM_CONF="$here/slurm/slurm.conf"
wait_for [ -S slurm/munge.sock ]
if [ -n "${accounting:-}" ]; then
    export MYSQL_UNIX_PORT="$here/slurm/db.sock"
    mkdir slurm/db
    # slurmdbd computes limits in procedures, which MariaDB keeps in its own tables.
    tables=/usr/share/mysql/mysql_system_tables.sql
    [ -r $tables ] || leave_out "needs $tables"
    { printf 'create database mysql;\nuse mysql;\n' && cat $tables; } |
        mariadbd --no-defaults --user="$(id -un)" --datadir="$here/slurm/db" --bootstrap >slurm/db.out 2>&1 ||
        fail "no tables of MariaDB: $(tail -n 2 slurm/db.out)"
    mariadbd --no-defaults --user="$(id -un)" --datadir="$here/slurm/db" --socket="$MYSQL_UNIX_PORT" \
        --pid-file="$here/slurm/db.pid" --skip-networking --skip-grant-tables >slurm/db.out 2>&1 &
    started="$started $!"
    cat >slurm/slurmdbd.conf <<CONF
AuthType=auth/munge
AuthInfo=socket=$here/slurm/munge.sock
DbdHost=$host
DbdAddr=127.0.0.1
DbdPort=$(echo "$store" | sed -n 's/^AccountingStoragePort=//p')
SlurmUser=$(id -un)
StorageType=accounting_storage/mysql
StorageUser=root
LogFile=$here/slurm/dbd.log
PidFile=$here/slurm/dbd.pid
CONF
    chmod 600 slurm/slurmdbd.conf
    wait_for [ -S slurm/db.sock ]
    slurmdbd -D >slurm/dbd.out 2>&1 &
    dbd=$!
    started="$started $dbd"
    # slurmdbd 24.11 does not work with MariaDB 11.8.
    has_cluster() { gone $dbd || sacctmgr --noheader list cluster >/dev/null 2>&1; }
    wait_for has_cluster
    ! gone $dbd || leave_out "slurmdbd ends: $(tail -n 1 slurm/dbd.out)"
    sacctmgr --immediate add cluster test >>slurm/dbd.out 2>&1
    if [ -n "${limits:-}" ]; then
        sacctmgr --immediate add account tests >>slurm/dbd.out 2>&1
        sacctmgr --immediate add user "$(id -un)" account=tests >>slurm/dbd.out 2>&1
    fi
fi
controller() {
    slurmctld -D -i >slurm/ctld.out 2>&1 &
    controller=$!
    started="$started $controller"
}
controller
for node in n1 n2; do
    slurmd -D -N $node >slurm/slurmd-$node.out 2>&1 &
    started="$started $!"
done
nodes_are() { [ "$(sinfo --noheader --Node --partition=low --format=%t 2>/dev/null | sort -u)" = "$1" ]; }
wait_for nodes_are idle

# A run waits for a replica that is started again, however long that takes here.
sed -i "s/^rounds = 6/rounds = ${rounds:-150}/; s/^patience = 5/patience = 1200/" tiny.toml
cat >>tiny.toml <<TOML
[launch]
executor = "slurm"
poll = 0.2
cpus = 1
TOML
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

folder() { # RANK GENERATION
    for f in cut.launch/diloco-*-r"$1"-g"$2"; do [ ! -d "$f" ] || echo "$f"; done
}
task() { squeue --noheader --array --states=all --name="$(name "$2")" --Format=JobArrayID:40 | grep "_$1 " | tr -d ' '; }
name() { basename "$(folder 0 "$1" || true)" | sed 's/-r0-/-/'; }
task_state() { squeue --noheader --array --states=all --jobs="$1" --Format=State:40 2>/dev/null | tr -d ' '; }
task_is() { [ "$(task_state "$1")" = "$2" ]; }
# The process of the program that a task runs: by its variable, for its rank.
replica_of() { # NAME
    for environ in $(grep -lzx "DILOCO_JOB=$1" /proc/[0-9]*/environ 2>/dev/null); do
        ! grep -qzx join "${environ%environ}cmdline" 2>/dev/null || basename "${environ%/environ}"
    done | head -1
}
# All processes of a task's program.
processes_of() { grep -lzx "DILOCO_JOB=$1" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\n' | tr '\n' ' '; }
has_replica() { [ -n "$(replica_of "$1")" ]; }
# The launcher has ended; jobs that wait for their time are given it.
finished() {
    for id in $(squeue --noheader --array --states=PENDING --format=%i 2>/dev/null); do
        scontrol update "jobid=$id" starttime=now 2>/dev/null || true
    done
    gone "$launcher"
}
launcher() {
    diloco launch tiny.toml --store cut "$@" >launch.out 2>launch.err &
    launcher=$!
    started="$started $launcher"
}
# scancel of what was submitted is not undone: the launch ends.
scancelled() {
    launcher
    wait_for grep -q '^r0: RUNNING' launch.out
    wait_for grep -q '^r1: RUNNING' launch.out
    scancel --user="$(id -un)"
    code=0
    wait "$launcher" || code=$?
    [ $code = 1 ] || fail "a launch whose jobs were cancelled by another ends with $code: $(cat launch.err)"
    grep -q 'r0: CANCELLED' launch.err || fail "not said that r0 was cancelled: $(cat launch.err)"
}
# Tasks that a cancel stops before they have a node: Slurm keeps no record of them, and the launch knows that.
cancelled_while_waiting() {
    scontrol update nodename=n1,n2 state=drain reason=test
    launcher
    both_wait() { [ "$(squeue --noheader --array --states=PENDING | wc -l)" = 2 ]; }
    wait_for both_wait
    expect 0 diloco launch cancel cut
    code=0
    wait "$launcher" || code=$?
    [ $code = 130 ] || fail "a launch that is cancelled while it waits ends with $code: $(cat launch.err)"
    expect 0 diloco launch status cut
    [ "$(grep -c ' CANCELLED ' out)" = 2 ] && ! grep -q ORPHAN out || fail "not two cancelled replicas: $(cat out)"

    # By a person, one task after the other.
    launcher
    wait_for both_wait
    scancel "$(squeue --noheader --array --states=PENDING --format=%i | head -1)"
    wait_for grep -q ': CANCELLED: cancelled while it waited' launch.out
    scancel "$(squeue --noheader --array --states=PENDING --format=%i)"
    code=0
    wait "$launcher" || code=$?
    [ $code = 1 ] || fail "a launch whose tasks were cancelled while they waited ends with $code: $(cat launch.err)"
    ! grep -q 'LOST' launch.out || fail "a cancelled task is LOST: $(cat launch.out)"
    scontrol update nodename=n1,n2 state=resume
    wait_for nodes_are idle
}
# Slurm waits two minutes before a requeued job starts again; an operator may shorten that. First the launcher
# has to have seen it wait.
start_now() { # RANK GENERATION TIMES
    wait_for said_pending "$1" "$3"
    wait_for runs_soon "$(task "$1" "$2")"
}
# A job that still completes is given its time again. A node that has just killed a job refuses it for a second:
# the task goes to the other node.
runs_soon() {
    scontrol update "jobid=$1" starttime=now ${avoid:+"excnodelist=$avoid"} 2>/dev/null || true
    task_is "$1" RUNNING
}
avoid=
said_pending() { [ "$(grep -c "^r$1: PENDING" launch.out)" -ge "$2" ]; }
node_of() { squeue --noheader --array --jobs="$(task "$1" $generation)" --Format=NodeList:40 | tr -d ' '; }
# The node of r0 goes down: Slurm requeues its tasks, on the other node. TIMES: how often r1 has waited before.
node_goes_down() { # TIMES
    node=$(node_of 0)
    node_1=$(node_of 1)
    wait_for has_replica "$r0"
    dead=$(processes_of "$r0")
    [ "$node_1" != "$node" ] || dead="$dead $(processes_of "$r1")"
    scontrol update "nodename=$node" state=down reason=test
    # shellcheck disable=SC2086 # several; some may have ended
    kill -9 $dead 2>/dev/null || true # with the node
    start_now 0 $generation 1
    [ "$node_1" != "$node" ] || start_now 1 $generation $(($1 + 1))
    wait_for grep -q '^r0: RUNNING: .*requeued by Slurm: restart' launch.out
    scontrol update "nodename=$node" state=resume 2>/dev/null || true # it may have registered again by itself
}
# A rank that reaches launch.timeout, which Slurm rounds up to a minute. It has failed, and is not submitted again.
begin_limited() { # FLAG…
    cat >limited.toml <<'TOML'
[job]
command = ["sleep", "600"]
[launch]
executor = "slurm"
cpus = 1
poll = 0.2
timeout = 1
TOML
    diloco launch job limited.toml --store limited --replicas 1 "$@" >limited.out 2>limited.err &
    limited=$!
    started="$started $limited"
}
end_limited() {
    code=0
    wait "$limited" || code=$?
    [ $code = 1 ] || fail "a batch whose rank reached launch.timeout ends with $code: $(cat limited.err)"
    grep -q 'the batch is not complete; r0: FAILED: TIMEOUT' limited.err ||
        fail "not said why r0 failed: $(cat limited.err)"
    [ "$(find limited.launch -maxdepth 1 -name 'diloco-*-r0-g*' | wc -l)" = 1 ] ||
        fail "submitted again after its time limit"
}
# Preempted by a partition of a higher priority: requeued, and run later.
preempted() {
    diloco rm cut >rm.out
    rm -rf cut.launch
    launcher
    wait_for has_entry cut 2
    other=$(sbatch --parsable --partition=high --nodes=2 --exclusive --output=/dev/null --wrap='sleep 600')
    wait_for task_is "$other" RUNNING
    wait_for said_pending 0 1
    wait_for said_pending 1 1
    scancel "$other"
    wait_for finished
    code=0
    wait "$launcher" || code=$?
    [ $code = 0 ] || fail "the launch ends with $code after preemption: $(cat launch.err)"
    [ "$(digest cut)" = "$want" ] || fail "with preemption, the run ends elsewhere"
}
