#!/bin/sh
# diloco launch --on runpod against a fake of the API. A run completes after a kill, an interruption and an outage of the
# API, and every pod is deleted. Refusals are named. A secret is in no request. Replicas ship their output to the store.
. "$(dirname "$0")/cloud_lib.sh"
serve_hub
store=$hub/cut
fake runpod
export RUNPOD_API_KEY=rpa_test-key
echo "DILOCO_HUB_TOKEN=$DILOCO_HUB_TOKEN" >api/secrets
cat >>tiny.toml <<TOML
[launch]
executor = "runpod"
image = "docker.io/alice/diloco:0.2"
endpoint = "$api"
poll = 0.2
TOML

# A dry run prints the request, and sends nothing.
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.spot=true --set launch.gpus=2 \
    --set "launch.gpu_type=NVIDIA L4" --set launch.memory=100 --set launch.cpus=9 --set launch.region=EU-RO-1
grep -qx "POST $api/pods" out || fail "not the request"
grep -q '"computeType":"GPU","gpuTypeIds":\["NVIDIA L4"\],"gpuCount":2,"minVCPUPerGPU":5,"minRAMPerGPU":50' out ||
    fail "not the machine: $(cat out)"
grep -q '"dataCenterIds":\["EU-RO-1"\],"interruptible":true' out || fail "not the region"
grep -q '"DILOCO_HUB_TOKEN":"{{ RUNPOD_SECRET_DILOCO_HUB_TOKEN }}"' out || fail "not the secret's name"
grep -qF '"dockerStartCmd":["ship","'"$store"'","--hide","DILOCO_HUB_TOKEN","--","join","' out || fail "not shipped"
sent_nothing

# Refusals name the option or the cause.
expect_error 2 'launch.image is not set' diloco launch tiny.toml --store "$store" --set launch.image=
expect_error 2 'launch.gpus and launch.gpu_type together' diloco launch tiny.toml --store "$store" --set launch.gpus=1
long=$(printf '%0256d' 0 | tr 0 N)
expect_error 2 'launch.secrets: the name NNN' env "$long=x" diloco launch tiny.toml --store "$store" \
    --set "launch.secrets=$long"
says 'has more than 255 bytes'
# shellcheck disable=SC2046 # a word for each variable
expect_error 2 'launch.secrets has more than 64 names' env $(seq -f 'S%g=x' 65) diloco launch tiny.toml \
    --store "$store" --set "launch.secrets=$(seq -s , -f 'S%g' 65)"
# The hub's token would be one more.
# shellcheck disable=SC2046
expect_error 2 '"DILOCO_HUB_TOKEN": a replica gets at most 64' env $(seq -f 'S%g=x' 64) diloco launch tiny.toml \
    --store "$store" --set "launch.secrets=$(seq -s , -f 'S%g' 64)"
expect_error 2 'set launch.machine and launch.cpus' diloco launch tiny.toml --store "$store" --set launch.memory=8
expect_error 3 'launch.timeout' diloco launch tiny.toml --store "$store" --set launch.timeout=60
expect_error 2 'no API key in RUNPOD_API_KEY' env -u RUNPOD_API_KEY diloco launch tiny.toml --store "$store"
expect_error 3 'check the credentials' env RUNPOD_API_KEY=wrong diloco launch tiny.toml --store "$store"
expect_error 3 'EU-XX-9 is not one of the data centers' diloco launch tiny.toml --store "$store" \
    --set launch.region=EU-XX-9 --set launch.spot=true --set launch.gpus=2 --set "launch.gpu_type=NVIDIA L4" \
    --set launch.memory=100.5 --set launch.cpus=9 --set launch.disk=99.9
says '; check launch.region'
# A lack of machines may pass: each look asks again, until launch.lost_after.
expect_error 1 'There are no longer any instances available' diloco launch tiny.toml --store "$hub/full" \
    --set launch.machine=cpu9z --set launch.cpus=2 --set launch.lost_after=1 --set launch.restarts=0
says 'r0: LOST: not started: '
grep -q 'ask for a higher quota, or take another machine or region; trying again' out || fail "not the way out"
[ ! -e api/pods ] || fail "a pod was created by a refusal"

# RunPod answers 500 to a pod that it has created: the launch finds it, and creates no second one.
: >api/half
launch_again
rm api/half

# The output is in the store while its replica runs. It is shipped after 5 seconds, and the run does not end before: r1 is
# paused until its pod is taken away, and r0 waits for it.
r0=$(job_of 0 name)
r1=$(job_of 1 name)
wait_for has_replica "$r1"
paused=$(replica_of "$r1")
paused="$paused $(children "$paused")"
# shellcheck disable=SC2086 # several
kill -STOP $paused
shipped() { diloco launch logs "$store" --rank 0 >shipped.out 2>err && [ -s shipped.out ]; }
wait_for shipped
diloco launch logs "$store" --rank 0 --follow >followed.out 2>followed.err &
follower=$!
started="$started $follower"

# kill -9 of a replica while the API fails: RunPod itself starts the container again.
wait_for has_replica "$r0"
killed=$(replica_of "$r0")
echo 500 >api/fault
kill_replica "$r0"
wait_for grep -q '; trying again' launch.out
rm api/fault
is_another() { [ -n "$(replica_of "$r0")" ] && [ "$(replica_of "$r0")" != "$killed" ]; }
wait_for is_another

# A pod that RunPod takes away: LOST, and the next generation is started.
echo "$r1" >api/interrupt
wait_for grep -q '^r1: LOST: EXITED' launch.out
# shellcheck disable=SC2086
kill -CONT $paused
ended 0
[ "$(digest hub/cut)" = "$want" ] || fail "the launched run ends elsewhere"
all_deleted() { [ ! -s api/pods ] || fail "pods are left: $(cat api/pods launch.out)"; }
all_deleted

# The output that was shipped before the kill is still there, that of the next process follows it, and the pod is
# deleted. A replica ships the end of its output once it is asked to stop, so it may come after that.
wait_for gone "$follower"
wait "$follower" || fail "launch logs --follow: $(cat followed.err)"
ends_alike() {
    diloco launch logs "$store" --rank 0 >out 2>err && [ "$(tail -n 1 out)" = "$(tail -n 1 "api/logs/$r0")" ]
}
wait_for ends_alike
for part in followed shipped; do
    head -n "$(wc -l <$part.out)" out | cmp - $part.out || fail "output that was $part is lost"
done
[ "$(find "hub/cut/out/$r0" -type f -name '000000000[12]-*' | sed 's/.*\///; s/-.*//' | sort -u | wc -l)" = 2 ] ||
    fail "not the parts of two processes: $(find hub/cut/out)"
no_secret_elsewhere

# A secret in the output is masked. The exit code is that of the program, also after a signal.
ship="env DILOCO_JOB=$r0 diloco ship $store --hide DILOCO_HUB_TOKEN -- exec . -- sh -c"
# shellcheck disable=SC2016 # the program's variable
expect 3 $ship 'echo "the token is $DILOCO_HUB_TOKEN"; printf "no newline" >&2; exit 3'
! grep -q swordfish out || fail "a secret is printed"
# shellcheck disable=SC2016
expect 137 $ship 'kill -9 $$'
expect 0 diloco launch logs "$store" --rank 0
[ "$(tail -n 2 out)" = "the token is ***
no newline" ] || fail "not the masked output"

# A parent that ignores SIGCHLD changes nothing.
ignoring='import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])'
expect 4 python3 -c "$ignoring" $ship 'exit 4'

# SIGTERM reaches the program, which then ends by itself.
$ship 'trap "echo stops; exit 5" TERM; echo waits; while :; do sleep 0.1; done' >ship.out 2>ship.err &
shipper=$!
started="$started $shipper"
waits() { grep -q waits ship.out 2>/dev/null; }
wait_for waits
kill "$shipper"
code=0
wait "$shipper" || code=$?
[ $code = 5 ] && grep -q stops ship.out || fail "SIGTERM does not reach the replica: $code"
expect 0 diloco rm hub/cut
[ ! -e hub/cut/out ] || fail "rm leaves output: $(find hub/cut/out)"
store=$hub/cut

store=$hub/other
cancels

# A launcher that is killed while RunPod has created a pod and not answered: the next one finds the pod by its name. It
# waits for no other launcher, and creates no second pod.
store=$hub/adopted
creations() { grep -c '"method": "POST"' api/requests.jsonl; }
before=$(containers)
posts=$(creations)
: >api/hold
launcher --replicas 1 --set run.replicas=1
created() { [ "$(containers)" != "$before" ]; }
wait_for created
kill -9 "$launcher"
wait_for gone "$launcher"
rm api/hold
expect 0 diloco launch tiny.toml --store "$store" --replicas 1 --set run.replicas=1 --detach
! grep -q 'waiting for it' out || fail "a pod that exists is waited for: $(cat out)"
expect 0 diloco launch tiny.toml --store "$store" --replicas 1 --set run.replicas=1
[ $(($(creations) - posts)) = 1 ] || fail "a pod was created twice"
all_deleted

# A program that fails at once: RunPod starts it again and again, so launch gives it up and deletes its pods.
expect_error 1 'its replica has not begun for 1 s' diloco launch tiny.toml --store "$hub/never" \
    --set launch.binary=/bin/false --set launch.lost_after=1 --set launch.restarts=1
all_deleted

# An image that no registry has: the API has no word about it, so the pods are deleted as well.
expect_error 1 'its replica has not begun for 1 s' diloco launch tiny.toml --store "$hub/image" \
    --set launch.image=nowhere/none --set launch.lost_after=1 --set launch.restarts=1
all_deleted

fits runpod
