#!/bin/sh
# diloco launch --on k8s with launch.k8s_kind = RayJob, against a fake of KubeRay's operator and of Ray's dashboard
# (fake_ray.py). A run completes after a kill, a lost head and an outage of the API. Refusals are named; the secret is in
# the Secret alone. Output is read while a replica runs, and kept at a cancel.
. "$(dirname "$0")/cloud_lib.sh"
serve_hub
store=$hub/cut
fake k8s
cat >>tiny.toml <<TOML
[launch]
executor = "k8s"
k8s_kind = "RayJob"
image = "registry.example/diloco-ray:0.2"
endpoint = "$api"
poll = 0.2
dir = "$PWD/kept"
TOML
post() { python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], data=b"{}")' "$api/test/$1"; }

n_polls() { grep -c '"method": "GET", "path": "/apis/ray.io/v1/namespaces/default/rayjobs/' api/requests.jsonl; }
# polled N: the RayJobs were read N times since there were $polls readings.
polled() { [ "$(n_polls)" -ge $((polls + $1)) ]; }

# A dry run prints the request without the secret, and sends nothing.
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.gpus=1 --set launch.timeout=90 \
    --set "launch.env=WORD=\$(PATH)"
grep -q "^POST $api/apis/ray.io/v1/namespaces/default/rayjobs$" out || fail "not the request"
[ "$(grep -c '"kind":"RayJob"' out)" = 2 ] || fail "not a RayJob for each replica"
grep -q '"name":"WORD","value":"$$(PATH)"' out || fail "Kubernetes would replace a value of launch.env"
grep -q '"activeDeadlineSeconds":90' out || fail "not the time limit"
sent_nothing

# A cluster without KubeRay, a missing permission and a gang are refused before anything is created.
expect_error 1 'the cluster has no RayJobs of ray.io/v1; install' diloco launch tiny.toml --store "$store"
: >api/kuberay
for missing in 'create rayjobs' 'get services' 'list pods'; do
    echo "$missing" >api/denied
    expect_error 3 "you may not $missing" diloco launch tiny.toml --store "$store"
done
rm api/denied
for gang in kueue volcano; do
    expect_error 3 'KubeRay has a gang for each RayJob alone' diloco launch tiny.toml --store "$store" \
        --set launch.gang=$gang --set launch.queue=team
done
expect_error 1 'the cluster has no namespace gone' diloco launch tiny.toml --store "$store" --set launch.project=gone
echo jobs >api/quota
expect_error 3 'exceeded quota: team; ask for a higher quota' diloco launch tiny.toml --store "$hub/full"
rm api/quota
[ ! -e api/started ] || fail "something was started"

# A quota that the head exceeds, and an image that does not exist: the replica waits with the reason. A state of KubeRay
# that is not known is named.
shows() { diloco launch status "$store" >out 2>err && grep -q "^r1 *$1" out; }
echo pods >api/quota
launcher --set launch.image=nowhere/none
wait_for shows 'PENDING .*pods ".*-head" is forbidden: exceeded quota: team'
rm api/quota
wait_for shows 'STARTING .*ErrImagePull: nowhere/none: not found'
echo '{"jobDeploymentStatus": "Dreaming"}' >api/ray-status
wait_for shows '.*"Dreaming", which is not known here'
rm api/ray-status
expect_error 3 'Ray has not started diloco-' diloco launch logs "$store" --rank 1
expect 0 diloco launch cancel "$store"
ended 130

# Two launchers at once, of which each RayJob is created by one. They are killed; the same command creates nothing.
diloco launch tiny.toml --store "$store" >beside.out 2>beside.err &
beside=$!
started="$started $beside"
launcher
wait_for has_entry hub/cut 3
kill -9 "$launcher" "$beside" || fail "a launcher has ended: $(cat launch.err beside.err)"
wait_for gone "$launcher"
wait_for gone "$beside"
[ "$(containers)" = 2 ] || fail "two launchers at once have not started two heads: $(cat api/started)"
launcher
wait_for has_entry hub/cut 6
[ "$(containers)" = 2 ] || fail "started twice"
run_id=$(sed -n '1s/diloco-\([0-9a-f]*\)-.*/\1/p' api/started)
generation=$(sed -n '1s/.*-g//p' api/started)
r1=diloco-$run_id-r1-g$generation
wait_for has_replica "$r1"
# Ray gives one thread to a command whose container has not said how many.
! tr '\0' '\n' <"/proc/$(replica_of "$r1")/environ" | grep -q '^OMP_NUM_THREADS=' || fail "Ray's number of threads is kept"

# kill -9 of a replica: LOST by the exit code in Ray's message, and started again. Meanwhile the API fails.
echo 500 >api/fault
kill_replica "$r1"
wait_for grep -q '; trying again' launch.out
rm api/fault
wait_for grep -q '^r1: LOST: killed by signal 9' launch.out

# A head that is lost with its node: LOST once KubeRay has given the RayJob up.
r0=diloco-$run_id-r0-g$generation
wait_for has_replica "$r0"
post "lose-head?name=$r0"
wait_for grep -q '^r0: LOST: no exit code: JobStatusCheckTimeoutExceeded' launch.out
ended 0
[ "$(digest "$store")" = "$want" ] || fail "the launched run ends elsewhere"
expect 0 diloco launch status "$store"
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded: $(cat out)"

# The output of the driver is read from Ray's dashboard, in less memory than it has bytes.
expect 0 diloco launch logs "$store" --rank 1 --follow
grep -q 'Running entrypoint for job diloco-' out || fail "not the output of r1: $(cat out)"
long_output "$(printf '%s\n' api/logs/diloco-"$run_id"-r1-* | tail -1)" diloco launch logs "$store" --rank 1

# After ttlSecondsAfterFinished the head is gone, and its output with it.
post end-of-ttl
expect_error 1 'this machine has kept no output of it in' diloco launch logs "$store" --rank 1
no_secret_elsewhere stringData

# A launch whose records are gone adopts its RayJobs. A rank is added and taken away. A log is followed while replicas
# run; a cancel deletes the RayJobs, and keeps the end of the output.
store=$hub/other
launcher --set trainer.rounds=9000
wait_for has_entry hub/other 2
kill -9 "$launcher"
wait_for gone "$launcher"
before=$(containers)
rm hub/other/launch/*.json
launcher --set trainer.rounds=9000
wait_for grep -q '^r0: RUNNING: on node-1' launch.out
wait_for grep -q '^r1: RUNNING' launch.out
[ "$(containers)" = "$before" ] || fail "RayJobs were started beside those of the first launch"
# They stay RayJobs after the option has changed.
kill -9 "$launcher"
wait_for gone "$launcher"
polls=$(n_polls)
launcher --set trainer.rounds=9000 --set launch.k8s_kind=Job
wait_for polled 4
expect 0 diloco launch status "$store"
[ "$(grep -c ' RUNNING ' out)" = 2 ] || fail "not the state of RayJobs: $(cat out)"
[ "$(containers)" = "$before" ] || fail "Jobs were started beside the RayJobs"
expect 0 diloco launch scale "$store" 3
wait_for grep -q '^r2: RUNNING' launch.out
expect 0 diloco launch scale "$store" --replicas 2 --set "launch.dir=$PWD/kept"
wait_for grep -q '^r2: CANCELLED' launch.out
diloco launch logs "$store" --rank 0 --follow >followed 2>followed.err &
follower=$!
started="$started $follower"
wait_for grep -q 'Running entrypoint for job' followed
other=$(tail -1 api/started | sed 's/-r.*//')
echo 'a line after a silence' >>"api/logs/$other-r0-g0"
wait_for grep -qx 'a line after a silence' followed
[ "$(grep -c 'Running entrypoint for job' followed)" = 1 ] || fail "a line is given twice"
yes "$(printf %01023d 0)" | head -n 12000 >>"api/logs/$other-r1-g0"
echo 'the end of the output' >>"api/logs/$other-r1-g0"
expect 0 diloco launch cancel "$store" --set "launch.dir=$PWD/kept"
ended 130
expect 0 diloco launch status "$store"
[ "$(grep -c ' CANCELLED ' out)" -ge 2 ] || fail "not two replicas that were cancelled: $(cat out)"
expect 0 diloco launch logs "$store" --rank 1 --set "launch.dir=$PWD/kept"
grep -qx 'the end of the output' out || fail "the output of r1 is not kept"
[ "$(wc -c <"kept/$other-r1-g0/log")" -le 4194304 ] || fail "more than 4 MiB are kept"
wait_for gone "$follower"

# Output that cannot be read does not keep a machine running.
store=$hub/silent
launcher --set trainer.rounds=9000
wait_for has_entry hub/silent 2
kill -9 "$launcher"
wait_for gone "$launcher"
: >api/no-output
expect_error 4 'was stopped, and its output is not kept' diloco launch cancel "$store" --set "launch.dir=$PWD/kept"
rm api/no-output
expect 0 diloco launch collect "$store"
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"

# A batch: the exit code is that in Ray's message, whatever the output says. Words reach the command as they are.
cat >batch.toml <<TOML
[job]
command = ["sh", "-c", "echo \"\$1\" of \$DILOCO_RANKS; echo failed with exit code 7, last; exit \$((5 * \$DILOCO_RANK))", "x", "it's \$(part) {rank}"]
$(sed -n '/^\[launch\]/,$p' tiny.toml)
TOML
expect_error 1 'the batch is not complete; r1: FAILED: exit code 5' diloco launch job batch.toml --store batch --replicas 2
expect 0 diloco launch logs batch --rank 0
grep -qx "it's \$(part) 0 of 2" out || fail "not the output of rank 0: $(cat out)"

fits k8s
