#!/bin/sh
# diloco launch --on slurm against a real Slurm in this test's folder: munged, slurmctld and two slurmd on
# loopback. An array, requeue, a node that goes down, kills, a controller that is away, scancel and a time limit;
# the run ends where an undisturbed one ends.
. "$(dirname "$0")/slurm_lib.sh"

# The script that would be sent, without the secret.
export DILOCO_TEST_WORD=swordfish
expect 0 diloco launch tiny.toml --store cut --dry-run --set launch.secrets=DILOCO_TEST_WORD --set launch.memory=2
grep -q '^sbatch --parsable --job-name=diloco-newrunid-g0 .* --cpus-per-task=1 --mem=2000M --signal=B:TERM@30 --array=0,1 <<' out ||
    fail "not the command"
grep -q "^export DILOCO_TEST_WORD='\*\*\*'" out || fail "not the secret's name"
! grep -q swordfish out err || fail "a secret is printed"
[ ! -e cut ] && [ ! -e cut.launch ] || fail "a dry run made something"

# Slurm's own refusal, and after it the same command without the mistake.
expect_error 3 'nvalid partition' diloco launch tiny.toml --store cut --set launch.queue=nowhere
says '; check launch.queue'
# Two launchers begin at once: the lock of the shared folder lets one of them submit.
diloco launch tiny.toml --store cut --set launch.secrets=DILOCO_TEST_WORD >beside.out 2>beside.err &
beside=$!
started="$started $beside"
launcher --set launch.secrets=DILOCO_TEST_WORD
wait_for has_entry cut 3
generation=1 # 0 was refused
r0=$(basename "$(folder 0 $generation)")
r1=$(basename "$(folder 1 $generation)")

# The secret arrives, and is in no description of a job, argument or log.
wait_for has_replica "$r0"
grep -qzx 'DILOCO_TEST_WORD=swordfish' "/proc/$(replica_of "$r0")/environ" || fail "the secret did not arrive"
[ "$(stat -c %a cut.launch/secrets)" = 600 ] || fail "others may read the secrets"
scontrol show job >jobs.txt
scontrol write batch_script "$(task 0 1 | sed 's/_.*//')" - >>jobs.txt 2>/dev/null || true
! grep -q swordfish jobs.txt || fail "the secret is in the job's description"
! grep -rqI swordfish slurm/state cut cut.launch/diloco-* || fail "the secret is in Slurm's state or in a log"
! in_arguments swordfish || fail "the secret is in a list of processes"

# Launchers that are killed; the same command submits nothing.
kill -9 "$launcher" "$beside" || fail "a launcher has ended: $(cat launch.err beside.err)"
wait_for gone "$launcher"
wait_for gone "$beside"
launcher --set launch.secrets=DILOCO_TEST_WORD
wait_for has_entry cut 6
[ "$(squeue --noheader --states=all --array | wc -l)" = 2 ] || fail "submitted twice: $(squeue --array)"

# Slurm's own restart keeps the generation.
avoid=$(node_of 1)
scontrol requeue "$(task 1 $generation)"
start_now 1 $generation 1
avoid=
wait_for grep -q '^r1: RUNNING: .*requeued by Slurm: restart 1' launch.out
[ -z "$(folder 1 2)" ] || fail "a requeued task was started again"

# A node that goes down: Slurm requeues its tasks, on the other node.
node_goes_down 1

# The notice before a partition's time limit, as --signal sends it: the replica saves and ends by itself, and is
# submitted again. First it has to train, and so to be ready for signals.
wait_for has_replica "$r0"
wait_for has_entry cut $(($(find cut/log -name '*.json' | wc -l) + 3))
scancel --signal=TERM --batch "$(task 0 $generation)"
wait_for grep -q '^r0: LOST: stopped by its machine, state saved' launch.out
noticed_again() { [ -n "$(folder 0 2)" ]; }
wait_for noticed_again
! grep -q 'killed' "cut.launch/$r0/log" || fail "a replica did not leave in time"

# kill -9 of a replica: LOST, and submitted again.
wait_for has_replica "$r1"
# shellcheck disable=SC2046 # several
kill -9 $(processes_of "$r1")
wait_for grep -q '^r1: LOST: killed by signal 9 (Killed)' launch.out
started_again() { [ -n "$(folder 1 2)" ]; }
wait_for started_again

# The controller is away for a while. It ends in order and saves its jobs. A killed one forgets the jobs of the
# last seconds, which run on: the replica that is started again then finds itself running.
wait_for has_replica "${r1%1}2"
kill -TERM "$controller"
wait_for gone "$controller"
wait_for grep -q '; trying again' launch.out
controller
wait_for finished
code=0
wait "$launcher" || code=$?
[ $code = 0 ] || fail "the launch ends with $code: $(cat launch.err)"
[ "$(digest cut)" = "$want" ] || fail "the launched run ends elsewhere"
[ ! -e cut.launch/secrets ] || fail "the secrets were left behind"
expect 0 diloco launch status cut
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] ||
    fail "not two replicas that have succeeded: $(tail -n 5 cut.launch/diloco-*/log launch.out)"
expect 0 diloco launch logs cut --rank 1
grep -q . out || fail "no output of r1"
long_output "$(ls -td cut.launch/diloco-*-r1-g* | head -1)/log" diloco launch logs cut --rank 1

# Cancelled by launch; then by scancel, which is not undone.
diloco rm cut >rm.out
rm -rf cut.launch
launcher
wait_for has_entry cut 2
expect 0 diloco launch cancel cut
code=0
wait "$launcher" || code=$?
[ $code = 130 ] || fail "a cancelled launch ends with $code: $(cat launch.err)"
expect 0 diloco launch collect cut
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"
cancelled_while_waiting
scancelled

begin_limited

# After scancel the next launch continues.
expect 0 diloco launch tiny.toml --store cut
[ "$(digest cut)" = "$want" ] || fail "launched again after scancel, the run ends elsewhere"

# A batch: each task of an array runs a command with its rank, in the folder of the launcher.
cat >batch.toml <<'TOML'
[job]
command = ["sh", "-c", "echo \"$0 of $DILOCO_RANKS\" >\"$0\"; exit $((5 * $DILOCO_RANK))", "part {rank}"]
[launch]
executor = "slurm"
cpus = 1
poll = 0.2
TOML
expect_error 1 'the batch is not complete; r1: FAILED: exit code 5' diloco launch job batch.toml --store batch --replicas 2
[ "$(cat 'part 0' 'part 1')" = "$(printf 'part 0 of 2\npart 1 of 2')" ] || fail "not the parts of both ranks"
expect 0 diloco launch status batch
grep -q '^r0 *SUCCEEDED' out || fail "rank 0 has not succeeded: $(cat out)"
version=$(sbatch --version)
grep -q "^batch .* on slurm ($version): 2 replicas wanted" out || fail "not the version of Slurm: $(cat out)"
expect 0 diloco launch executors
grep -q "^  found      $version\$" out || fail "not the version of Slurm: $(cat out)"

# A program for another architecture: the node names both, and the rank is not submitted again.
cp "$program" other
printf '\363\000' | dd of=other bs=1 seek=18 conv=notrunc 2>dd.err
expect_error 1 'the batch is not complete; r0: FAILED: exit code 3' diloco launch job batch.toml --store elsewhere \
    --replicas 1 --set launch.binary=other
expect 0 diloco launch logs elsewhere --rank 0
grep -q 'and the program is for Linux riscv64: set launch.binary' out || fail "not said why r0 failed: $(cat out)"

# A wheel as the program: it is installed in the shared folder, and each task compares it before it runs.
if python3 -m pip --version >/dev/null 2>&1; then
    wheel=$(python3 "$project/tests/launch/make_wheel.py" "$program" .)
    sed -i '/^command/s|.*|command = ["python3", "-c", "import diloco; print(diloco.FROM_WHEEL)"]|' batch.toml
    expect 0 diloco launch job batch.toml --store wheel --replicas 2 --set "launch.binary=$wheel"
    expect 0 diloco launch logs wheel --rank 1
    [ "$(cat out)" = True ] || fail "not the package of the wheel: $(cat out)"
fi

end_limited
preempted
