#!/bin/sh
# --link: a run on an emulated slow and lossy link ends in the bits of one without. The record names
# the link, doctor and plan measure through it, and a wrong link is refused.
. "$(dirname "$0")/lib.sh"

expect 0 diloco train tiny.toml --set trainer.rounds=2 --store plain
expect 0 diloco train tiny.toml --set trainer.rounds=2 --store slow --link 20mbit,10ms,2% \
    --record record.jsonl
[ "$(digest slow)" = "$(digest plain)" ] || fail "a link changed the result"
[ "$(grep -c '"event":"run".*"link":"20mbit,10ms,2%"' record.jsonl)" = 2 ] ||
    fail "the record does not say the link of both replicas"

# ALG-14: time and bytes in the record are those of the link. No contribution goes up faster than it
# carries, and what is sent is no less than they are.
contributions=$(sed -n 's/.*"event":"contribution".*"bytes":\([0-9]*\).*"put_s":\([0-9.e-]*\).*/\1 \2/p' record.jsonl)
sent=$(sed -n 's/.*"event":"end".*"bytes_sent":\([0-9]*\).*/\1/p' record.jsonl |
    awk '{ n += $1 } END { print n }')
echo "$contributions" | awk -v sent="$sent" '
    { n++; bytes += $1; if ($2 < $1 * 8 / 20e6 || $2 < 0.010) exit 1 }
    END { exit !(n == 4 && sent >= bytes) }' || fail "the link is not in the record: $contributions"
sed -n 's/.*"event":"commit".*"exchange_s":\([0-9.e-]*\).*/\1/p' record.jsonl |
    awk '{ n++; if ($1 < 0.020) exit 1 } END { exit n != 4 }' || fail "no time of exchange in the record"

# A joiner on a worse one than the others have.
expect 0 diloco join slow --link 5mbit/20mbit,20ms --set data.train_path=text.txt

expect 0 diloco doctor slow --link 200mbit,40ms --json
awk -v ms="$(json create_ms <out)" 'BEGIN { exit !(ms >= 40) }' || fail "doctor: no delay"
awk -v mb="$(json write_mb_per_s <out)" 'BEGIN { exit !(mb > 0 && mb <= 30) }' ||
    fail "doctor: no rate"
expect 0 diloco plan --params 1e6 --layers 2 --step-seconds 1 --probe slow --link 200mbit --json
awk -v bps="$(json up_bps <out)" 'BEGIN { exit !(bps > 0 && bps <= 240e6) }' || fail "plan --probe"

expect_error 2 'run.link 10mbot: "10mbot" is not a link' diloco train tiny.toml --link 10mbot
expect_error 2 'such as 10mbit,100ms,1%' diloco doctor slow --link 1%,10mbit
expect_error 2 'doctor takes --link with a store' diloco doctor tiny.toml --link 10mbit
expect_error 2 'loses everything' diloco doctor slow --link 10mbit,100%
expect_error 2 'a plan counts no losses' diloco plan --params 1e6 --layers 2 --step-seconds 1 \
    --link 10mbit,1%
[ ! -e runs/tiny ] || fail "a refused command made a run"
