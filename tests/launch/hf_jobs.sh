#!/bin/sh
# diloco launch --on hf-jobs against a fake of the API. A run completes after a kill and an outage of the API. Refusals
# are named. The secret is among the job's secrets alone.
. "$(dirname "$0")/cloud_lib.sh"
serve_hub
store=$hub/cut
fake hf-jobs
export HF_TOKEN=hf_test-token HF_ENDPOINT="$api"
cat >>tiny.toml <<TOML
[launch]
executor = "hf-jobs"
image = "docker.io/alice/diloco:0.2"
poll = 0.2
TOML

# A dry run prints the request without the secret, and sends nothing.
expect 0 diloco launch tiny.toml --store "$hub/cut" --dry-run
grep -q "^POST $api/api/jobs/me$" out || fail "not the request"
grep -q '"secrets":{"DILOCO_HUB_TOKEN":"\*\*\*"}' out || fail "not the secret's name"
! grep -q swordfish out err || fail "a secret is printed"
[ ! -e api/requests.jsonl ] || fail "a dry run sent something"

# Refusals name the option or the cause.
expect_error 3 'see no folder of this machine' diloco launch tiny.toml --store cut
expect_error 2 'launch.image is not set' diloco launch tiny.toml --store "$hub/cut" --set launch.image=
expect_error 3 'launch.grace' diloco launch tiny.toml --store "$hub/cut" --set launch.grace=3
expect_error 3 'check the credentials' env HF_TOKEN=wrong diloco launch tiny.toml --store "$hub/cut"
expect_error 2 'no token in HF_TOKEN' env -u HF_TOKEN HF_HOME=/nonexistent diloco launch tiny.toml --store "$hub/cut"
expect_error 3 'Image nowhere/none not found' diloco launch tiny.toml --store "$hub/cut" --set launch.image=nowhere/none
expect_error 3 'no credit' diloco launch tiny.toml --store "$hub/cut" --set launch.machine=h200x8

# A launcher that is killed; the same command starts nothing. Two launchers at once start each replica once.
launcher
wait_for has_entry hub/cut 3
kill -9 "$launcher"
wait_for gone "$launcher"
launcher
first=$launcher
diloco launch tiny.toml --store "$hub/cut" >second.out 2>second.err &
second=$!
started="$started $second"
wait_for has_entry hub/cut 6

# kill -9 of a replica: LOST, and started again. Meanwhile the API fails.
name() { sed -n 's/.*"name": "\(diloco-[0-9a-f]*-r'"$1"'-g[0-9]*\)".*/\1/p' api/requests.jsonl | tail -1; }
r1=$(name 1)
wait_for has_replica "$r1"
echo 500 >api/fault
kill_replica "$r1"
wait_for grep -q '; trying again' launch.out
wait_for grep -q '; trying again' second.out
rm api/fault
wait_for grep -q '^r1: LOST: killed by signal 9' launch.out second.out # the first of them to look
launcher=$first
ended 0
launcher=$second
ended 0
[ "$(digest "$hub/cut")" = "$want" ] || fail "the launched run ends elsewhere"
twice=$(sed -n 's/.*"method": "POST".*"name": "\(diloco-[^"]*\)".*/\1/p' api/requests.jsonl | sort | uniq -d | head -1)
refused=$(sed -n 's/.*"name": "\([^"]*\)".*nowhere.*/\1/p' api/requests.jsonl | head -1)
[ -z "$twice" ] || [ "$twice" = "$refused" ] || fail "$twice was created twice"

expect 0 diloco launch status "$hub/cut"
[ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded"
expect 0 diloco launch logs "$hub/cut" --rank 1 --follow
grep -q . out || fail "no output of r1"
no_secret_elsewhere secrets
long_logs "api/logs/$(of_rank_1 id)"

# Prices that the table lacks are named, by status and at the start of a launch with a budget.
printf 'date = "2026-01-31"\ncurrency = "EUR"\nput_per_1000 = 1000\n' >prices.toml
lacks='prices.toml has no egress_per_gb, ingress_per_gb, get_per_1000: the cost of the store is counted without them'
expect 0 diloco launch status "$hub/cut" --set launch.prices=prices.toml
grep -q '^store: .* requests of exchanges recorded so far, [1-9][0-9.]* EUR; .*: about [1-9][0-9.]* EUR (estimate)$' out ||
    fail "not the cost of the store: $(cat out)"
grep -qxF "store: $lacks" out || fail "not the prices that are missing: $(cat out)"
grep -q '^machine time: .*, without a price: prices.toml has no machine_hour$' out || fail "machine time costs 0: $(cat out)"
expect 0 diloco launch tiny.toml --store "$hub/cut" --set launch.prices=prices.toml --budget 1e9
grep -qxF "launch.budget: $lacks" out || fail "the budget does not name the prices that are missing: $(cat out)"
grep -qxF 'launch.budget: prices.toml has no machine_hour: machine time is not counted' out || fail "not said: $(cat out)"
grep -q '^store: .* (estimate)$' out || fail "the end of a launch does not have the cost of the store: $(cat out)"

# Cancelled.
store=$hub/other
launcher --set trainer.rounds=9000
wait_for has_entry hub/other 2
expect 0 diloco launch logs "$hub/other" --rank 0
expect 0 diloco launch cancel "$hub/other"
ended 130
expect 0 diloco launch collect "$hub/other"
[ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"
fits hf-jobs
