#!/bin/sh
# diloco launch --on sagemaker against a fake of the API, over the fake of Google Cloud Storage. A run completes after a
# kill and an outage of the API. Refusals are named, and secrets are refused. Then moto's server accepts the jobs.
. "$(dirname "$0")/cloud_lib.sh"
serve_gcs
fake sagemaker
export AWS_ACCESS_KEY_ID=AKIATEST AWS_SECRET_ACCESS_KEY=swordfish-of-the-account AWS_REGION=eu-west-1
export AWS_CONFIG_FILE=/nonexistent AWS_SHARED_CREDENTIALS_FILE=/nonexistent
cat >>tiny.toml <<TOML
[launch]
executor = "sagemaker"
image = "000000000000.dkr.ecr.eu-west-1.amazonaws.com/diloco:0.2"
machine = "ml.g5.xlarge"
role = "arn:aws:iam::000000000000:role/diloco"
output = "s3://bucket/launch"
endpoint = "$api"
poll = 0.2
TOML

# A dry run prints the request, and sends nothing.
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.spot=true --set launch.timeout=600
grep -qx "X-Amz-Target: SageMaker.CreateTrainingJob" out || fail "not the call"
grep -q '"StoppingCondition":{"MaxRuntimeInSeconds":600,"MaxWaitTimeInSeconds":87000}' out || fail "not the limits"
grep -q '"EnableManagedSpotTraining":true' out || fail "not a spot machine"
sent_nothing

# Refusals name the option or the cause.
expect_error 3 'sagemaker has no channel for secrets' diloco launch tiny.toml --store "$store" --set launch.secrets=HOME
expect_error 3 "a hub's token is a secret" env DILOCO_HUB_TOKEN=x diloco launch tiny.toml --store http://127.0.0.1:9/run
expect_error 2 'launch.role is not set' diloco launch tiny.toml --store "$store" --set launch.role=
expect_error 2 'launch.output is not set' diloco launch tiny.toml --store "$store" --set launch.output=
expect_error 2 'no region' env -u AWS_REGION diloco launch tiny.toml --store "$store"
expect_error 2 'launch.timeout = 2419201: SageMaker ends a job after 2419200 seconds at the latest' \
    diloco launch tiny.toml --store "$store" --set launch.timeout=2419201
expect_error 3 'launch.gpus' diloco launch tiny.toml --store "$store" --set launch.gpus=1
expect_error 3 'The account-level service limit' diloco launch tiny.toml --store "$store" --set launch.machine=ml.p5.48xlarge
says 'ask for a higher quota'
expect_error 1 'FAILED: Failed: ClientError: Cannot find repository: nowhere/none' \
    diloco launch tiny.toml --store "$(bucket image)" --set launch.image=nowhere/none
expect_error 3 'security token included in the request is invalid' \
    env AWS_ACCESS_KEY_ID=AKIAWRONG diloco launch tiny.toml --store "$store"
expect_error 2 'no credentials: not in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY' \
    env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_CONTAINER_CREDENTIALS_RELATIVE_URI \
    -u AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_EC2_METADATA_DISABLED=true diloco launch tiny.toml --store "$store"

# AWS answers 400 to requests that come too fast: they are repeated.
echo 3 >api/throttle
launch_again
[ "$(cat api/throttle)" = 0 ] || fail "not three requests were throttled"
kill_in_outage TrainingJobName
expect 0 diloco launch logs "$store" --rank 1 --follow
grep -q . out || fail "no output of r1"
! grep -qI swordfish api/requests.jsonl launch.out launch.err api/logs/* || fail "a secret was sent or printed"
long_logs "api/logs/$(of_rank_1 name)"
fits sagemaker

store=$(bucket other)
cancels

# moto's server, which checks what it is sent and runs nothing: its jobs are complete at once, the run is not.
moto=$project/build/venv-launch/bin/moto_server
if [ ! -x "$moto" ]; then
    echo "left out: moto's server (scripts/packages.sh launch)"
    exit 0
fi
python3 "$project/tests/free_port.py" >moto.port
"$moto" -H 127.0.0.1 -p "$(cat moto.port)" >moto.out 2>&1 &
started="$started $!"
wait_for answers "$(cat moto.port)"
store=$(bucket moto)
expect 1 diloco launch tiny.toml --store "$store" --set "launch.endpoint=http://127.0.0.1:$(cat moto.port)"
says 'every replica ended with exit code 0, and the run is not complete'
expect 0 diloco launch status "$store"
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "moto did not accept two jobs: $(cat out)"
