#!/bin/sh
# diloco launch --on slurm by Slurm's REST API: slurmrestd of a real Slurm on loopback, with a token. Kills of the
# launcher and of a replica, a requeue, a node that goes down, a controller that is away, a time limit, preemption,
# cancellation, a token that has expired. The program does not use Slurm's commands; the run ends where an undisturbed
# one ends.
rest=yes
. "$(dirname "$0")/slurm_lib.sh"
command -v slurmrestd >/dev/null || leave_out "needs slurmrestd"
new_token() { scontrol token "lifespan=$1" 2>/dev/null | sed -n 's/^SLURM_JWT=//p'; }
token=$(new_token 86400)
[ -n "$token" ] || leave_out "needs the plugin auth/jwt"

# slurmrestd refuses to run as root and as SlurmUser, which a test's Slurm has. Without slurmdbd it serves the
# controller's API only: Slurm 22.05 and 23.02 have a plugin for each version of it, and later ones have one for all.
export SLURMRESTD_SECURITY=disable_user_check
plugins=$(slurmrestd -s list 2>&1 || true)
plugin=openapi/v0.0.38
! echo "$plugins" | grep -q openapi/slurmctld || plugin=openapi/slurmctld
address=127.0.0.1:$(port)
SLURM_JWT=$token slurmrestd -s $plugin -a rest_auth/jwt "$address" >slurm/restd.out 2>&1 &
started="$started $!"
api="http://$address"
answers() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "${address#*:}" 2>/dev/null; }
wait_for answers

# The program finds commands that fail in place of Slurm's own.
mkdir broken
for command in sbatch squeue scancel sacct scontrol; do
    printf '#!/bin/sh\necho "$0 $*" >>%s/used\nexit 1\n' "$here" >broken/$command
    chmod +x broken/$command
done
printf '#!/bin/sh\nexport PATH="%s/broken:$PATH" SLURM_JWT=%s\nunset SLURM_CONF\nexec %s "$@"\n' \
    "$here" "'$token'" "$program" >broken/diloco
chmod 700 broken/diloco
ln -sf "$here/broken/diloco" "$work/bin/diloco"
echo "endpoint = \"$api\"" >>tiny.toml

expect 0 diloco launch tiny.toml --store cut --dry-run --set launch.memory=2
grep -q "^POST $api/slurm/v0.0.40/job/submit" out || fail "not the request"
! grep -qF "$token" out err || fail "the token is printed"
[ ! -e cut ] && [ ! -e cut.launch ] || fail "a dry run made something"

# Slurm's own refusal, a token that has expired, and an address that would show the token to the network.
expect_error 3 'nvalid partition' diloco launch tiny.toml --store cut --set launch.queue=nowhere
says '; check launch.queue'
short=$(new_token 1)
sed "s|'$token'|'$short'|" broken/diloco >old
chmod 700 old
end=$(($(date +%s) + 1)) # of the token's validity, or later
expired() { [ "$(date +%s)" -gt "$end" ]; }
wait_for expired
expect_error 3 'the token of SLURM_JWT has expired' ./old launch tiny.toml --store cut
expect_error 3 'http:// would send the token in clear text' diloco launch tiny.toml --store cut \
    --set launch.endpoint=http://slurm.example:6820
generation=1 # 0 was refused

launcher
wait_for has_entry cut 3
r0=$(basename "$(folder 0 $generation)")
r1=$(basename "$(folder 1 $generation)")
scontrol show job >jobs.txt
! grep -qF "$token" jobs.txt || fail "the token is in the job's description"
! grep -rqIF "$token" cut cut.launch launch.out launch.err || fail "the token is in a record or in a log"
! in_arguments "$token" || fail "the token is in a list of processes"
wait_for has_replica "$r0"
! grep -qzF "$token" "/proc/$(replica_of "$r0")/environ" || fail "the replica has the token"

# A launcher that is killed; the same command submits nothing.
kill -9 "$launcher"
wait_for gone "$launcher"
launcher
wait_for has_entry cut 6
[ "$(squeue --noheader --states=all --array | wc -l)" = 2 ] || fail "submitted twice: $(squeue --array)"

# Slurm's own restart keeps the generation.
avoid=$(node_of 1)
scontrol requeue "$(task 1 $generation)"
start_now 1 $generation 1
avoid=
wait_for grep -q '^r1: RUNNING: .*requeued by Slurm: restart 1' launch.out
[ -z "$(folder 1 2)" ] || fail "a requeued task was started again"
node_goes_down 1

# kill -9 of a replica: LOST, and submitted again.
wait_for has_replica "$r1"
# shellcheck disable=SC2046 # several
kill -9 $(processes_of "$r1")
wait_for grep -q '^r1: LOST: killed by signal 9 (Killed)' launch.out
started_again() { [ -n "$(folder 1 2)" ]; }
wait_for started_again

# The controller is away for a while.
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
expect 0 diloco launch status cut
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded: $(cat out)"
expect 0 diloco launch logs cut --rank 1
grep -q . out || fail "no output of r1"
mv cut.launch away
expect_error 1 'which this machine does not have' diloco launch logs cut --rank 1
mv away cut.launch

begin_limited --set "launch.endpoint=$api"
preempted

# The token in a file has expired while a launcher follows. With the next one the launch continues: it starts a replica
# that was killed again. Then it is cancelled.
diloco rm cut >rm.out
rm -rf cut.launch
sed -i 's/^rounds = 150/rounds = 9000/' tiny.toml
scontrol token lifespan=86400 >jwt 2>/dev/null
export SLURM_JWT_FILE="$here/jwt"
launcher
wait_for has_entry cut 2
echo "$short" >next
mv next jwt
wait_for grep -q "the token in $here/jwt (SLURM_JWT_FILE) has expired.*trying again" launch.out
new_token 86400 >next
mv next jwt
r1=$(basename "$(folder 1 0)")
wait_for has_replica "$r1"
# shellcheck disable=SC2046 # several
kill -9 $(processes_of "$r1")
wait_for grep -q '^r1: LOST: killed by signal 9 (Killed)' launch.out
wait_for has_replica "${r1%0}1"
expect 0 diloco launch cancel cut
code=0
wait "$launcher" || code=$?
[ $code = 130 ] || fail "a cancelled launch ends with $code: $(cat launch.err)"
expect 0 diloco launch collect cut
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"

# Cancelled by another, which is not undone.
cancelled_while_waiting
scancelled

# A folder whose name has a pattern of Slurm, with the API and with the commands.
cat >batch.toml <<TOML
[job]
command = ["sh", "-c", "echo part of \$DILOCO_RANKS"]
[launch]
executor = "slurm"
cpus = 1
poll = 0.2
dir = "$here/100%u"
TOML
expect 0 diloco launch job batch.toml --store batch --replicas 2 --set "launch.endpoint=$api"
expect 0 diloco launch logs batch --rank 1
[ "$(cat out)" = 'part of 2' ] || fail "not the output of a batch by the API: $(cat out)"
end_limited
[ ! -e used ] || fail "Slurm's commands were used: $(cat used)"
expect 0 "$program" launch job batch.toml --store commands --replicas 2 --set "launch.dir=$here/200%u"
expect 0 "$program" launch logs commands --rank 1
[ "$(cat out)" = 'part of 2' ] || fail "not the output of a batch by the commands: $(cat out)"
