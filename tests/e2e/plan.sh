#!/bin/sh
# The planner: published tables, a forecast from numbers and from a configuration, prices, a replay;
# and what is wrong with a question.
. "$(dirname "$0")/lib.sh"

model="--params 1e9 --layers 24 --step-seconds 0.1"

# The 1B rows of 2501.18512, table 4, to a grid step; three cells of four are exact.
# shellcheck disable=SC2086
cells() {
    expect 0 diloco plan --json --grid published $model --utilization 0.5,0.8,0.9,0.95,0.99 "$@"
    [ "$(wc -l <out)" = 1 ] || fail "--json is not one object"
    sed 's/.*"gbit":\[\([^]]*\)\].*/\1/' out | tr ',' ' '
}
near() {
    awk -v got="$1" -v want="$2" 'BEGIN {
        n = split(got, g, " "); m = split(want, w, " ")
        if (n != m) exit 1
        for (i = 1; i <= n; i++) {
            r = log(g[i] / w[i]) / log(10 ^ (4 / 49))
            if (r > 1.45 || r < -1.45) exit 1 # cells are printed to a digit
        }
    }' || fail "published: expected $2, got $1"
}
near "$(cells --method data_parallel --sync-every 100 --tau 0 --bits 16)" "86.8 152.6 184.2 222.3 569.0"
near "$(cells --method diloco --sync-every 100 --tau 0 --bits 16)" "1.4 6.2 13.3 23.3 86.8"
near "$(cells --method streaming --sync-every 100 --fragment-layers 3 --tau 1 --bits 4)" \
    "0.4 0.9 1.7 2.0 3.0"

# shellcheck disable=SC2086
{
    expect 0 diloco plan --grid calculator $model --method streaming --tau 2
    grep -q '128 buckets' out || fail "the rules are not named"
    expect_error 3 'take a tau below 100' diloco plan --grid published $model --method diloco --tau 100
    expect_error 2 'there is: published, calculator' diloco plan --grid paper $model --method diloco
    expect_error 2 'there is: data_parallel, diloco' diloco plan --grid published $model --method dilco
    expect_error 2 'needs --method' diloco plan --grid published $model
    expect_error 2 'needs --params N' diloco plan --grid published --method diloco --layers 3 --step-seconds 1
    expect_error 2 'not between 0 and 1' diloco plan --grid published $model --method diloco --utilization 50
    expect_error 2 '--layers 1e9' diloco plan --grid published --params 1 --layers 1e9 --step-seconds 1 --method diloco
    expect_error 2 '--cost does not go with --grid' diloco plan --grid published $model --method diloco --cost x

    # The planner.
    expect 0 diloco plan $model --gbit 0.2 --latency 50 --replicas 4 --advice
    for name in data_parallel diloco streaming_blocking streaming eager decoupled sparse muloco; do
        grep -q "^$name" out || fail "no row $name"
    done
    grep -q '^recommended: ' out || fail "nothing is recommended"
    grep -q '2503.09799' out || fail "advice without a citation"
    # ALG-8
    grep -q "outer learning rate does not depend on the model's size and grows with replicas" out ||
        fail "no advice on the outer learning rate"
    expect 0 diloco plan $model --link 200mbit,50ms --json --advice
    [ "$(wc -l <out)" = 1 ] || fail "--json is not one object"
    for key in methods recommended advice utilization peak_bits_per_sync cheapest_exchange; do
        grep -q "\"$key\":" out || fail "no $key in --json"
    done
    expect 0 diloco plan $model --gbit 100000 --json
    [ "$(json preset <out)" = data_parallel ] || fail "a fast link needs no DiLoCo"
    expect_error 3 'take a tau below 50' diloco plan $model --gbit 1 --method streaming --sync-every 50 --tau 50
    expect_error 2 'there is no method telepathy' diloco plan $model --gbit 1 --method telepathy
    expect_error 2 'needs a link' diloco plan $model
    expect_error 2 'needs one link' diloco plan $model --gbit 1 --link 1gbit
    expect_error 2 '--gbit 0' diloco plan $model --gbit 0
    expect_error 2 '--gbit -1' diloco plan $model --gbit -1
    expect_error 2 'is not a link' diloco plan $model --link 50
    expect_error 2 '--exchange' diloco plan $model --gbit 1 --exchange gossip
    expect_error 2 '--latency goes with --gbit' diloco plan $model --link 1gbit --latency 5
    expect_error 2 'goes with --replay only' diloco plan $model --gbit 1 --recorded-link 1gbit
    expect_error 2 '--set changes a CONFIG' diloco plan $model --gbit 1 --set codec=f32
}
expect_error 2 'plan needs a model' diloco plan --gbit 1
expect_error 2 '--step-seconds S is needed' diloco plan --params 1e9 --layers 3 --gbit 1

# Prices.
cat >prices.toml <<'TOML'
date = "2026-01-31"
egress_per_gb = 0.09
machine_hour = 2
TOML
# shellcheck disable=SC2086
{
    expect 0 diloco plan $model --gbit 1 --cost prices.toml
    grep -q 'prices  of 2026-01-31' out || fail "the prices' date is not printed"
    expect 0 diloco plan $model --gbit 1 --cost prices.toml --json
    [ "$(json date <out)" = 2026-01-31 ] || fail "the prices' date is not in --json"
    echo 'egres_per_gb = 1' >wrong.toml
    expect_error 2 'wrong.toml:1:1: there is no price egres_per_gb; did you mean egress_per_gb?' \
        diloco plan $model --gbit 1 --cost wrong.toml
    echo 'machine_hour = -1' >wrong.toml
    expect_error 2 'machine_hour is a number, at least 0' diloco plan $model --gbit 1 --cost wrong.toml
    echo 'machine_hour = 1' >wrong.toml
    expect_error 2 'need the day' diloco plan $model --gbit 1 --cost wrong.toml
    expect_error 2 'no such price table' diloco plan $model --gbit 1 --cost none.toml
    expect 0 diloco plan $model --gbit 1 --cost prices.toml
    mv out as_toml
    printf '\357\273\277name,value,\r\ndate,2026-01-31,,\r\n"egress_per_gb","0.09"\r\n\r\nmachine_hour, 2\r\n' >prices.csv
    expect 0 diloco plan $model --gbit 1 --cost prices.csv
    cmp out as_toml || fail "the prices of a CSV table differ from those of TOML"
    printf 'date,2026-01-31\negres_per_gb,1\n' >wrong.csv
    expect_error 2 'wrong.csv:2:1: there is no price egres_per_gb' diloco plan $model --gbit 1 --cost wrong.csv
    printf 'date,2026-01-31\nmachine_hour,2 EUR\n' >wrong.csv
    expect_error 2 'wrong.csv:2:1: machine_hour is a number, at least 0' diloco plan $model --gbit 1 --cost wrong.csv
    printf 'machine_hour,1\nmachine_hour,2\n' >wrong.csv
    expect_error 2 'wrong.csv:2: machine_hour has a value already' diloco plan $model --gbit 1 --cost wrong.csv
    printf 'machine_hour,1,2\n' >wrong.csv
    expect_error 2 'wrong.csv:1: a line of a CSV price table has two cells' diloco plan $model --gbit 1 --cost wrong.csv
    echo 'machine_hour;1' >wrong.csv
    expect_error 2 'wrong.csv:1: a line of a CSV price table is name,value' diloco plan $model --gbit 1 --cost wrong.csv
}

# STO-12: a billion parameters are 2 GB an upload in bf16, 4 in float32.
for bits in 16 32; do
    # shellcheck disable=SC2086
    expect 0 diloco plan $model --gbit 1 --method diloco --bits $bits --json
    awk -v got="$(json peak_bits_per_sync <out)" -v want="${bits}e9" 'BEGIN { exit !(got == want) }' ||
        fail "an upload of $(json peak_bits_per_sync <out) bits"
done

# From a configuration: the model is its own, the step is measured, and no file is left. The
# recommended command can be pasted.
mkdir tmp
TMPDIR=$PWD/tmp expect 0 diloco plan tiny.toml --link 1gbit,1ms --json
grep -q '"step_measured":true' out || fail "the step was not measured"
grep -q '"name":"CONFIG"' out || fail "no row for CONFIG"
[ -z "$(ls tmp)" ] || fail "the short run left $(ls tmp)"
[ ! -e runs ] || fail "planning made a run"
expect 0 diloco doctor tiny.toml --json
parameters=$(json parameters <out)
expect_error 1 'there is no folder store' diloco plan tiny.toml --probe store --step-seconds 0.01
mkdir store # a probe makes no folder
TMPDIR=$PWD/tmp expect 0 diloco plan tiny.toml --probe store --step-seconds 0.01
grep -q "$(echo "$parameters" | sed ':a;s/\B[0-9]\{3\}\>/,&/;ta') parameters" out || fail "parameters"
sets=$(sed -n 's/^  \(--set preset=.*\)/\1/p' out)
[ -n "$sets" ] || fail "no options to paste"
# shellcheck disable=SC2086
expect 0 diloco train tiny.toml $sets --print-config
codecs=$(diloco options --markdown | sed -n '/`server.diloco.codec`/s/.*one of \([a-z0-9, ]*\).*/\1/p' | tr -d ,)
[ "$(echo "$codecs" | wc -w)" -ge 10 ] || fail "the options page has the codecs $codecs"
for codec in $codecs; do
    expect 0 diloco plan tiny.toml --gbit 1 --step-seconds 0.01 --set "server.diloco.codec=$codec"
    grep -q "^CONFIG .* $codec " out || fail "no row for codec $codec"
done
expect_error 2 '--params and --layers go without one' diloco plan tiny.toml --params 1 --gbit 1
grep -v train_path tiny.toml >dataless.toml
expect_error 2 'measuring a step needs data.train_path' diloco plan dataless.toml --gbit 1

# A measured run, replayed from its record and from its store.
expect 0 diloco train tiny.toml --store run --record record.jsonl --quiet
expect 0 diloco plan --replay record.jsonl --link 10gbit --json
[ "$(json entries <out)" = 6 ] || fail "entries of the record: $(cat out)"
[ "$(json replicas <out)" = 2 ] || fail "replicas of the record"
awk -v p="$(json predicted_wall_s <out)" -v m="$(json measured_wall_s <out)" \
    'BEGIN { exit !(p > 0 && m > 0) }' || fail "no prediction: $(cat out)"
expect 0 diloco plan --replay run --link 10mbit,50ms --json
[ "$(json entries <out)" = 6 ] || fail "entries of the store's record"
# 12 contributions of the model go up and 24 down, for each replica one half, one after the other
awk -v p="$(json predicted_wall_s <out)" -v n="$parameters" \
    'BEGIN { exit !(p > 6 * 3 * 32 * n / 10e6) }' || fail "a slow link costs nothing: $(cat out)"
expect 0 diloco plan --replay run --link 10mbit,50ms --recorded-link 10gbit
grep -q 'wall clock' out || fail "no lines"

# STO-13: the traffic of each entry of 8 replicas, in bytes, requests, bytes a second and money. Each
# request takes 50 ms, so the first heartbeat is sent long before the end, whatever runs first.
expect 0 diloco train tiny.toml --store eight --replicas 8 --set trainer.rounds=3 \
    --set trainer.local_steps_per_round=2 --set run.link=1gbit,50ms --quiet
printf 'date = "2026-01-31"\ncurrency = "USD"\negress_per_gb = 90\nput_per_1000 = 5\nget_per_1000 = 0.4\n' >dear.toml
expect 0 diloco log eight --traffic --cost dear.toml --json
[ "$(grep -c '"entry"' out)" = 3 ] || fail "not a line an entry"
[ "$(sed -n 4p out | grep -c '"traffic":{"processes":9,.*"probe":[1-9].*"first_model":[1-9].*"heartbeats":[1-9]')" = 1 ] ||
    fail "not all bytes by kind: $(sed -n 4p out)"
sed -n 3p out >last
[ "$(json records <last)" = 8 ] || fail "not the records of eight"
# 8 contributions up and 64 down, one's own read back; nothing else has that size
awk -v sent="$(json bytes_sent <last)" -v received="$(json bytes_received <last)" -v n="$parameters" \
    -v writes="$(json requests_write <last)" -v reads="$(json requests_read <last)" \
    -v rate="$(json bytes_per_s <last)" -v s="$(json seconds <last)" -v cost="$(json cost <last)" 'BEGIN {
        if (sent < 32 * n || sent > 40 * n || received < 8 * 32 * n || received > 8 * 40 * n) exit 1
        if (writes < 16 || reads < 64 || !(s > 0)) exit 1
        want = received / 1e9 * 90 + writes / 1000 * 5 + reads / 1000 * 0.4
        if (cost < 0.999 * want || cost > 1.001 * want) exit 1
        exit !(rate > 0.99 * (sent + received) / s && rate < 1.01 * (sent + received) / s)
    }' || fail "what the last entry moved: $(cat last)"
expect 0 diloco log eight --traffic --cost dear.toml --from 2
grep -q '^ *2 *8 .*B/s .* USD$' out || fail "no line for people"
[ "$(wc -l <out)" = 2 ] || fail "--from was not heard"
cp out from
expect 0 diloco log eight --traffic --cost dear.toml --last 1
cmp out from || fail "--last 1 shows other traffic than --from 2"
expect_error 2 '--cost goes with --traffic' diloco log eight --cost dear.toml
expect_error 2 'ask for one' diloco log eight --traffic --moved 1
expect_error 2 'ask for one' diloco log eight --traffic --events
expect_error 2 '--events has all lines' diloco log eight --events --from 2
expect_error 2 '--last counts entries' diloco log eight --events --last 2
expect_error 2 'no such price table' diloco log eight --traffic --cost none.toml

expect_error 2 'needs the link' diloco plan --replay record.jsonl
expect_error 2 'does not go with --replay' diloco plan --replay record.jsonl --link 1gbit --gbit 1
echo 'not json' >record.jsonl
expect_error 1 'line 1 of the record' diloco plan --replay record.jsonl --link 1gbit
expect 1 diloco plan --replay nowhere --link 1gbit
