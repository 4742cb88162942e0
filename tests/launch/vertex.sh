#!/bin/sh
# diloco launch --on vertex against a fake of the API, over the fake of Google Cloud Storage. A run completes after a kill
# and an outage of the API. The token comes from a service account's key. Refusals are named, and secrets are refused.
. "$(dirname "$0")/cloud_lib.sh"
command -v openssl >/dev/null || { echo "left out: launch on a fake of Vertex AI (needs openssl)"; exit 77; }
serve_gcs
fake vertex
openssl genrsa -out api/key.pem 2048 2>/dev/null
# account KEY: the file of the service account with this key.
account() {
    printf '{"type":"service_account","project_id":"team","client_email":"a@team.example","private_key":"%s",' \
        "$(awk '{ printf "%s\\n", $0 }' "$1")"
    printf '"token_uri":"%s/token"}\n' "$api"
}
account api/key.pem >account.json
export GOOGLE_APPLICATION_CREDENTIALS="$PWD/account.json"
cat >>tiny.toml <<TOML
[launch]
executor = "vertex"
image = "europe-west4-docker.pkg.dev/team/diloco/diloco:0.2"
machine = "g2-standard-8"
region = "europe-west4"
role = "diloco@team.iam.gserviceaccount.com"
endpoint = "$api"
poll = 0.2
TOML

# A dry run prints the request, and sends nothing.
expect 0 diloco launch tiny.toml --store "$store" --dry-run --set launch.spot=true --set launch.timeout=600 \
    --set launch.gpus=1 --set launch.gpu_type=NVIDIA_L4 --set launch.project=team
grep -qx "POST $api/v1/projects/team/locations/europe-west4/customJobs" out || fail "not the request"
grep -q '"scheduling":{"disableRetries":true,"strategy":"SPOT","timeout":"600s"}' out || fail "not the limits"
grep -q '"acceleratorType":"NVIDIA_L4","acceleratorCount":1' out || fail "not the GPU"
sent_nothing

# Refusals name the option or the cause.
expect_error 3 'vertex has no channel for secrets' diloco launch tiny.toml --store "$store" --set launch.secrets=HOME
expect_error 2 'launch.region is not set' diloco launch tiny.toml --store "$store" --set launch.region=
expect_error 2 'launch.gpus and launch.gpu_type together' diloco launch tiny.toml --store "$store" --set launch.gpus=1
expect_error 3 'launch.cpus' diloco launch tiny.toml --store "$store" --set launch.cpus=1
expect_error 3 'exceed quota limits' diloco launch tiny.toml --store "$store" --set launch.machine=a3-ultragpu-8g
grep -q 'ask for a higher quota' err || fail "not the way out of a quota"
! grep -q credentials err || fail "a quota is taken for missing credentials"
expect_error 1 'FAILED: JOB_STATE_FAILED: The image nowhere/none was not found. diloco launch logs STORE' \
    diloco launch tiny.toml --store "$(bucket image)" --set launch.image=nowhere/none
openssl genrsa -out other.pem 2048 2>/dev/null
account other.pem >other.json
expect_error 3 'Invalid JWT Signature' \
    env GOOGLE_APPLICATION_CREDENTIALS=other.json diloco launch tiny.toml --store "$store"
# No file of credentials, and a metadata server without a token of this machine: the fake of the store refuses.
expect_error 2 'Google: no credentials: GOOGLE_APPLICATION_CREDENTIALS names no file' \
    env -u GOOGLE_APPLICATION_CREDENTIALS HOME=/nonexistent "GCE_METADATA_HOST=127.0.0.1:$(cat gcs.port)" \
    diloco launch tiny.toml --store "$store"
echo '{"type":"external_account"}' >other.json
expect_error 2 'credentials of type "external_account" are not known here' \
    env GOOGLE_APPLICATION_CREDENTIALS=other.json diloco launch tiny.toml --store "$store"

launch_again
kill_in_outage displayName
expect 0 diloco launch logs "$store" --rank 1 --follow
cmp -s out api/logs/"${r1%-g*}-g$((${r1##*-g} + 1))" || fail "not the output of r1"
grep -v '"Authorization": "Bearer swordfish-of-google"' api/requests.jsonl >sent
! grep -I 'PRIVATE KEY\|swordfish' sent launch.out launch.err api/logs/* >out || fail "a secret was sent or printed"
long_logs "api/logs/$(of_rank_1 name)"
fits vertex

store=$(bucket other)
cancels
