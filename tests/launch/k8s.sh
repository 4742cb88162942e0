#!/bin/sh
# diloco launch --on k8s against a fake of the API with the semantics of Indexed Jobs. A run completes after a kill, an
# eviction and an outage of the API. Ranks are added later; refusals are named; the secret is in the Secret alone. A
# cancel keeps the output.
. "$(dirname "$0")/cloud_lib.sh"
serve_hub
store=$hub/cut
fake k8s
cat >>tiny.toml <<TOML
[launch]
executor = "k8s"
image = "registry.example/diloco:0.2"
endpoint = "$api"
poll = 0.2
dir = "$PWD/kept"
TOML

# A dry run prints the request without the secret, and sends nothing.
expect 0 diloco launch tiny.toml --store "$hub/cut" --dry-run --set launch.gpus=1 --set launch.gang=kueue \
    --set launch.queue=team --set "launch.env=WORD=\$(PATH)"
grep -q "^POST $api/apis/batch/v1/namespaces/default/jobs$" out || fail "not the request"
grep -q '"name":"WORD","value":"$$(PATH)"' out || fail "Kubernetes would replace a value of launch.env"
grep -q '"kueue.x-k8s.io/queue-name":"team"' out || fail "not the queue"
grep -q '"nvidia.com/gpu":"1"' out || fail "not the GPU"
grep -q '"stringData":{"DILOCO_HUB_TOKEN":"\*\*\*"}' out || fail "not the secret's name"
! grep -q swordfish out err || fail "a secret is printed"
[ ! -e api/requests.jsonl ] || fail "a dry run sent something"

# Refusals name the option or the cause.
expect_error 2 'launch.image is not set' diloco launch tiny.toml --store "$hub/cut" --set launch.image=
expect_error 2 'it is kueue or volcano' diloco launch tiny.toml --store "$hub/cut" --set launch.gang=slurm
expect_error 2 'Kubernetes itself has no queues' diloco launch tiny.toml --store "$hub/cut" --set launch.queue=x
expect_error 3 'launch.spot' diloco launch tiny.toml --store "$hub/cut" --set launch.spot=true
expect_error 3 'User alice cannot access' diloco launch tiny.toml --store "$hub/cut" --set launch.project=other
expect_error 1 'the cluster has no namespace gone: make it with' diloco launch tiny.toml --store "$hub/cut" \
    --set launch.project=gone
n_posts() { grep -c '"method": "POST"' api/requests.jsonl; }
posts=$(n_posts)
echo 1 28 >api/version
expect_error 3 'the cluster has Kubernetes 1.28, which would ignore a member of the Job' diloco launch tiny.toml \
    --store "$hub/cut"
echo 2 0 >api/version
expect_error 3 'the cluster has Kubernetes 2.0, which is not known here' diloco launch tiny.toml --store "$hub/cut"
rm api/version
for api_version in v1 batch/v1; do
    echo $api_version >api/no-api
    expect_error 3 "the cluster does not serve the API $api_version, and k8s knows no other version of it" \
        diloco launch tiny.toml --store "$hub/cut"
done
[ "$(n_posts)" = "$posts" ] || fail "something was created in a cluster of another version"
rm api/no-api
echo 1 99 >api/version # a later one is named and used
echo 'delete pods' >api/denied
expect_error 3 'you may not delete pods in the namespace default of the cluster' diloco launch tiny.toml \
    --store "$hub/cut"
says 'the cluster has Kubernetes 1.99, later than 1.37, the last one that was compared: it is used if'
rm api/version
! grep -q '"kind": "Job"' api/requests.jsonl || fail "a Job was created without the permission to delete its pods"
rm api/denied
expect_error 2 'the name of a namespace has at most 63' diloco launch tiny.toml --store "$hub/cut" \
    --set 'launch.project=default/pods/x?'
expect_error 2 'it is Job or RayJob' diloco launch tiny.toml --store "$hub/cut" --set launch.k8s_kind=Pod
expect_error 2 'launch.context has no effect with' diloco launch tiny.toml --store "$hub/cut" --set launch.context=x

# A context of kubectl, which the book keeps: a token, and a program that prints one. There is no current context.
mkdir kube
cat >kube/kubectl <<'SH'
#!/bin/sh
[ "$*" = "config view --raw --minify --flatten --output=json --context=second" ] || { echo "no context" >&2; exit 1; }
cat "$KUBE_TEST_CONTEXT"
SH
chmod +x kube/kubectl
printf token-of-kube >api/token
user='"token":"token-of-kube"'
context() { echo "{\"clusters\":[{\"cluster\":{\"server\":\"$api\"}}],\"contexts\":[{\"context\":{\"namespace\":\"default\"}}],\"users\":[{\"user\":{$user}}]}" >kube/context; }
context
export KUBE_TEST_CONTEXT="$PWD/kube/context"
expect 0 env "PATH=$PWD/kube:$PATH" diloco launch tiny.toml --store "$hub/first" --detach --set launch.endpoint= \
    --set launch.context=second --set trainer.rounds=3
user='"exec":{"command":"echo","args":["{\"status\":{\"token\":\"token-of-kube\"}}"]}'
context
expect 0 env "PATH=$PWD/kube:$PATH" diloco launch collect "$hub/first"
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded: $(cat out)"
expect_error 2 'kubectl config view: no context' env "PATH=$PWD/kube:$PATH" diloco launch tiny.toml --store "$hub/cut" \
    --set launch.endpoint=
expect_error 3 'check the credentials' diloco launch tiny.toml --store "$hub/cut"
rm api/token

# An image that does not exist: the reason of the pod.
launcher --set launch.image=nowhere/none
wait_for grep -q 'r0: STARTING: ErrImagePull: nowhere/none: not found' launch.out
expect 0 diloco launch cancel "$hub/cut"
ended 130

book() { grep -ho 'diloco-[0-9a-f]*-g[0-9]*/[0-9]*' hub/cut/launch/*.json | tail -1; }
# A ResourceQuota refuses the Job, with the way out. One that the pods exceed has them wait, with the controller's words;
# without the permission to read these, the message says where they are.
# The request has a member for each option that sizes or places a pod. Queue, gang and project have tests of their own.
echo jobs >api/quota
expect_error 3 'exceeded quota: team; ask for a higher quota' diloco launch tiny.toml --store "$hub/full" \
    --set launch.gpus=2 --set launch.gpu_type=NVIDIA-L4 --set launch.cpus=7 --set launch.memory=30.5 \
    --set launch.disk=99.9 --set launch.machine=g2-standard-8 --set launch.role=replica --set launch.timeout=90.5 \
    --set launch.grace=45 --set 'launch.env=WORD=$(PATH)'
echo pods >api/quota
echo 'list events' >api/denied
launcher
says_wait() { diloco launch status "$hub/cut" >out 2>err && grep -q "^r1 *PENDING .*$1" out; }
wait_for says_wait 'no pod yet: kubectl describe job diloco-[0-9a-f]*-g[0-9]* -n [a-z0-9-]*  has the reason'
rm api/denied
wait_for says_wait 'FailedCreate: Error creating: pods ".*-0-x" is forbidden: exceeded quota: team'
rm api/quota

# Two launchers at once, of which each job is created by one. They are killed; the same command creates nothing.
diloco launch tiny.toml --store "$store" >beside.out 2>beside.err &
beside=$!
started="$started $beside"
wait_for has_entry hub/cut 3
kill -9 "$launcher" "$beside" || fail "a launcher has ended: $(cat launch.err beside.err)"
wait_for gone "$launcher"
wait_for gone "$beside"
before=$(containers)
launcher
wait_for has_entry hub/cut 6
[ "$(containers)" = "$before" ] || fail "started twice"
[ "$(grep -c "diloco-$(book | cut -d- -f2)-g$(book | sed 's/.*-g//; s|/.*||')-" api/started)" = 2 ] ||
    fail "two launchers at once have not started two pods: $(cat api/started)"

# kill -9 of a replica: LOST, and started again. Meanwhile the API fails.
run_id=$(book | sed 's/diloco-\([0-9a-f]*\)-.*/\1/')
generation=$(book | sed 's/.*-g\([0-9]*\).*/\1/')
wait_for has_replica "diloco-$run_id-r1-g$generation"
echo 500 >api/fault
kill_replica "diloco-$run_id-r1-g$generation"
wait_for grep -q '; trying again' launch.out
rm api/fault
wait_for grep -q '^r1: LOST: killed by signal 9' launch.out

# A pod that the cluster evicts is replaced by the Job: the generation stays.
wait_for has_replica "diloco-$run_id-r0-g$generation"
before=$(replica_of "diloco-$run_id-r0-g$generation")
pod=$(cd api/logs && echo diloco-"$run_id"-g"$generation"-0-*)
python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], data=b"{}")' "$api/test/evict?pod=$pod"
replaced() { now=$(replica_of "diloco-$run_id-r0-g$generation"); [ -n "$now" ] && [ "$now" != "$before" ]; }
wait_for replaced
! grep -q '^r0: LOST' launch.out || fail "an eviction counts as a loss"
ended 0
[ "$(digest "$hub/cut")" = "$want" ] || fail "the launched run ends elsewhere"
expect 0 diloco launch status "$hub/cut"
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded"
expect 0 diloco launch logs "$hub/cut" --rank 1 --follow
grep -q . out || fail "no output of r1"
# Output of 256 MB is streamed in less memory than it has bytes. A sanitizer needs more addresses than that limit.
log=$(printf '%s\n' api/logs/diloco-"$run_id"-r1-* | tail -1)
yes "$(printf %08191d 0)" | head -n 32768 >>"$log"
({ sanitized || ulimit -v 200000; } && diloco launch logs "$hub/cut" --rank 1) >long || fail "no output of 256 MB"
[ "$(tail -n 32768 long | wc -c)" = 268435456 ] || fail "the output of 256 MB is not whole"
rm long "$log"

grep -q '"method": "DELETE", "path": "/api/v1/namespaces/default/secrets/diloco-' api/requests.jsonl ||
    fail "the Secret was left"
no_secret_elsewhere stringData

store=$hub/other
kept="launch.dir=$PWD/kept"
expect 0 diloco launch tiny.toml --store "$store" --detach --set trainer.rounds=9000
wait_for has_entry hub/other 2

# The cluster has the Job, and the book has no record of it: the same launch adopts the Job with its pods.
rm hub/other/launch/*.json
find api/logs -type f | sort >pods
launcher --set trainer.rounds=9000
wait_for grep -q '^r0: RUNNING' launch.out
wait_for grep -q '^r1: RUNNING' launch.out
find api/logs -type f | sort | cmp -s - pods || fail "pods were started beside those of the Job"

# A rank that is added is a Job of its own; one that is taken away is stopped alone.
expect 0 diloco launch scale "$hub/other" 3
wait_for grep -q '^r2: RUNNING' launch.out
expect 0 diloco launch scale "$hub/other" --replicas 1 --set "$kept"
wait_for grep -q '^r2: CANCELLED' launch.out
wait_for grep -q '^r1: LOST' launch.out
expect 0 diloco launch status "$hub/other"
grep -q '^r0 *RUNNING' out || fail "r0 was stopped with the others: $(cat out)"

# A cancel deletes the pods. It keeps the end of their output on this machine, at most 4 MiB of each.
# The book is not trusted to name the folder.
other=$(grep -ho 'diloco-[0-9a-f]*-g0/0' hub/other/launch/*.json | head -1 | sed 's|-g0/0||')
log=$(echo api/logs/"$other"-g0-0-*)
yes "$(printf %01023d 0)" | head -n 5000 >>"$log"
echo 'the end of the output' >>"$log"
expect 0 diloco launch cancel "$hub/other" --set "$kept"
ended 130
expect_error 1 'has kept no output of it in' diloco launch logs "$hub/other" --rank 0
expect 0 diloco launch logs "$hub/other" --rank 0 --set "$kept"
grep -qx 'the end of the output' out || fail "the output of r0 is not kept"
bytes=$(wc -c <"kept/$other-r0-g0/log")
[ "$bytes" -le 4194304 ] && [ "$bytes" -gt 4100000 ] || fail "$bytes bytes are kept"
expect 0 diloco launch logs "$hub/other" --rank 2 --set "$kept"
grep -q . out || fail "the output of a rank that was taken away is not kept"

# A queue of Kueue has to exist. A Job waits in it until Kueue resumes the Job.
store=$hub/queued
queue="--set launch.gang=kueue --set launch.queue=team"
# shellcheck disable=SC2086 # words
expect_error 1 'the cluster has no Kueue' diloco launch tiny.toml --store "$store" $queue
echo other >api/kueue
# shellcheck disable=SC2086
expect_error 1 'the namespace default has no such LocalQueue' diloco launch tiny.toml --store "$store" $queue
expect_error 2 'the name of a queue of Kueue has lower-case' diloco launch tiny.toml --store "$store" \
    --set launch.gang=kueue --set launch.queue=a/b
echo team >api/kueue
# shellcheck disable=SC2086
launcher $queue
is_suspended() { diloco launch status "$store" >out 2>err && grep -q '^r0 *PENDING .*suspended: waits for its queue' out; }
wait_for is_suspended
python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], data=b"{}")' "$api/test/resume"
ended 0
[ "$(digest "$store")" = "$want" ] || fail "the run of a queue ends elsewhere"

# Without Volcano nothing is created; with it, the Job's pods belong to its PodGroup.
store=$hub/gang
made=$(grep -c '"method": "POST"' api/requests.jsonl)
asked() { grep -c selfsubjectaccessreviews api/requests.jsonl; }
reviews=$(asked)
expect_error 1 'the cluster has no Volcano' diloco launch tiny.toml --store "$store" --set launch.gang=volcano
[ $(($(grep -c '"method": "POST"' api/requests.jsonl) - made)) = $(($(asked) - reviews)) ] ||
    fail "something was created without Volcano"
: >api/volcano
launcher --set launch.gang=volcano
ended 0
[ "$(digest "$store")" = "$want" ] || fail "the run of a gang ends elsewhere"
grep -q '"kind": "PodGroup".*"minMember": 2' api/requests.jsonl || fail "no PodGroup of both replicas"

# Output that cannot be read does not keep a machine running.
store=$hub/silent
launcher --set trainer.rounds=9000
wait_for has_entry hub/silent 2
kill -9 "$launcher"
wait_for gone "$launcher"
: >api/no-output
expect_error 4 'was stopped, and its output is not kept' diloco launch cancel "$hub/silent"
rm api/no-output
expect 0 diloco launch collect "$hub/silent"
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"
expect_error 1 'has kept no output of it in' diloco launch logs "$hub/silent" --rank 0

# A batch: the command is the pods' own, so the image need not hold diloco. The book is in a folder of this machine.
cat >batch.toml <<TOML
[job]
command = ["sh", "-c", "echo \$0 of \$DILOCO_RANKS; exit \$((5 * \$DILOCO_RANK))", "part-{rank}"]
$(sed -n '/^\[launch\]/,$p' tiny.toml)
TOML
expect_error 1 'the batch is not complete; r1: FAILED: exit code 5' diloco launch job batch.toml --store batch --replicas 2
expect 0 diloco launch logs batch --rank 0
[ "$(cat out)" = 'part-0 of 2' ] || fail "not the output of rank 0"
grep -q '"command": \["sh"\], "args": \["-c", .*"part-$(DILOCO_RANK)"\]' api/requests.jsonl || fail "not the command itself"
expect_error 3 'launch.binary (--set) has no meaning for a batch in an image' diloco launch job batch.toml --store other \
    --set launch.binary=x

# A wheel at an address: pip in the image compares its digest and installs it. Other bytes are not run.
if python3 -m pip --version >/dev/null 2>&1; then
    mkdir wheels
    wheel=$(basename "$(python3 "$project/tests/launch/make_wheel.py" "$program" wheels)")
    python3 "$project/tests/free_port.py" >wheels.port
    (cd wheels && exec python3 -m http.server "$(cat ../wheels.port)" --bind 127.0.0.1 >../wheels.out 2>&1) &
    started="$started $!"
    wait_for answers "$(cat wheels.port)"
    address="http://127.0.0.1:$(cat wheels.port)/$wheel"
    sum=$(sha256sum "wheels/$wheel" | cut -d' ' -f1)
    expect_error 2 'needs its digest' diloco launch tiny.toml --store "$hub/wheel" --set "launch.binary=$address"
    expect 0 diloco launch tiny.toml --store "$hub/wheel" --quiet --set trainer.rounds=3 \
        --set "launch.binary=$address#sha256=$sum"
    printf '\n' >>"wheels/$wheel"
    expect_error 1 'r0: ' diloco launch tiny.toml --store "$hub/changed" --set trainer.rounds=3 \
        --set "launch.binary=$address#sha256=$sum"
    expect 0 diloco launch logs "$hub/changed" --rank 0
    grep -q 'DO NOT MATCH THE HASHES' out || fail "not refused by its digest: $(cat out)"
    grep -q "pip did not install $address#sha256=$sum, see the words above" out || fail "no cause of the end: $(cat out)"
fi

fits k8s
