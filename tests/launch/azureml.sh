#!/bin/sh
# diloco launch --on azureml against a fake of the API and of the token service, over the fake of Google Cloud Storage. A
# run completes after a kill and an outage of the API. Refusals are named, and secrets are refused.
. "$(dirname "$0")/cloud_lib.sh"
serve_gcs
fake azureml
export AZURE_TENANT_ID=tenant AZURE_CLIENT_ID=app AZURE_CLIENT_SECRET="swordfish of the app" AZURE_AUTHORITY_HOST="$api"
cat >>tiny.toml <<TOML
[launch]
executor = "azureml"
image = "diloco:2"
machine = "cluster"
project = "0000-11/team/ml"
endpoint = "$api"
poll = 0.2
TOML

# A dry run prints the request, and sends nothing.
workspace=/subscriptions/0000-11/resourceGroups/team/providers/Microsoft.MachineLearningServices/workspaces/ml
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.timeout=600 --set launch.role=1234
grep -q "^PUT $api$workspace/jobs/diloco-newrunid-r0-g0?api-version=2025-12-01$" out || fail "not the request"
grep -q '"limits":{"jobLimitsType":"Command","timeout":"PT600S"}' out || fail "not the limits"
grep -q '"identity":{"identityType":"Managed","clientId":"1234"}' out || fail "not the identity"
grep -q "\"environmentId\":\"$workspace/environments/diloco/versions/2\"" out || fail "not the environment"
sent_nothing

# Refusals name the option or the cause.
expect_error 3 'azureml has no channel for secrets' diloco launch tiny.toml --store "$store" --set launch.secrets=HOME
expect_error 2 'SUBSCRIPTION/RESOURCE-GROUP/WORKSPACE' diloco launch tiny.toml --store "$store" --set launch.project=ml
expect_error 2 'an environment of the workspace' diloco launch tiny.toml --store "$store" --set launch.image=docker.io/a/b:1
expect_error 3 'launch.gpus' diloco launch tiny.toml --store "$store" --set launch.gpus=1
expect_error 2 'of a service principal are not set' env -u AZURE_CLIENT_ID diloco launch tiny.toml --store "$store"
expect_error 3 'AADSTS7000215' env AZURE_CLIENT_SECRET=wrong diloco launch tiny.toml --store "$store"
expect_error 1 'compute target was not found' diloco launch tiny.toml --store "$store" --set launch.machine=none
expect_error 3 'The quota of the subscription for Standard NCADS H100 cores is 0; ask for a higher quota' \
    diloco launch tiny.toml --store "$store" --set launch.machine=small
expect_error 1 'LOST: Failed: Failed to pull Docker image acme.azurecr.io/none:1. Reason: manifest unknown' \
    diloco launch tiny.toml --store "$(bucket image)" --set launch.image=none:1 --set launch.restarts=0

launch_again
kill_in_outage displayName 'Failed: Azure ML reports no exit code'

# Output is read by the address that the run history service signs, also in pieces of 4 MiB, and to its last byte.
expect 0 diloco launch logs "$store" --rank 1
r1=$(job_of 1 displayName)
cmp out "api/logs/$r1" || fail "not the output of r1"
yes "$(printf %08191d 0)" | head -n 1600 >>"api/logs/$r1"
printf 'the last line has no newline' >>"api/logs/$r1"
expect 0 diloco launch logs "$store" --rank 1 --follow
echo >>"api/logs/$r1"
cmp out "api/logs/$r1" || fail "not the output of r1 in pieces"
: >"api/logs/$r1"
expect_error 1 'has no output: Azure ML has no user_logs/std_log.txt of it' diloco launch logs "$store" --rank 1
grep -v '"Authorization": "Bearer swordfish-of-azure"\|"/tenant/oauth2\|"/signed/' api/requests.jsonl >sent || true
! grep -I swordfish sent launch.out launch.err api/logs/* >out || fail "a secret was sent or printed"
long_logs "api/logs/$(of_rank_1 name)"
fits azureml
store=$(bucket other)
cancels
