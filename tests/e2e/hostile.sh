#!/bin/sh
# A hub under attack (tests/hostile/attack.py): honest replicas of a signed run continue and end with
# the right state, memory and threads stay bounded, nothing outside the hub's folder is touched.
# SWM-28
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$work/config"
sed -i 's/^replicas = 2/replicas = 2\nroster = "open"/; s/^patience = .*/patience = 60/' tiny.toml

# Another run of the same people, for its signatures; and where this one has to end.
expect 0 diloco train tiny.toml --store other --quiet
sed -i 's/^rounds = 6/rounds = 40/' tiny.toml
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

mkdir hub
echo "not yours" >outside
ln -s "$work/here" hub/link
head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >token
diloco serve hub --listen 127.0.0.1:0 --token-file token --max-object 9000000 >serve.out 2>serve.err &
hub=$!
started="$started $hub"
wait_for grep -q '^serving ' serve.out
port=$(sed -n 's/^serving .*:\([0-9]*\).*/\1/p' serve.out)

DILOCO_HUB_TOKEN_FILE=token diloco train tiny.toml --store "http://127.0.0.1:$port/team/tiny" \
    --set run.state_dir="$work/state" --quiet >train.out 2>&1 &
train=$!
started="$started $train"
begun() { [ -e hub/team/tiny/gen/r1.0000 ]; }
wait_for begun
python3 "$project/tests/hostile/attack.py" "$port" "$(cat token)" 6 other >attack.out 2>&1 &
attack=$!
started="$started $attack"

rss() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$hub/status"; }
most=0
while kill -0 "$attack" 2>/dev/null; do
    now=$(rss)
    [ "${now:-0}" -le "$most" ] || most=$now
    sleep 0.2
done
code=0
wait "$attack" || code=$?
[ $code = 0 ] || fail "something was taken that must not be: $(tail -25 attack.out)"
code=0
wait "$train" || code=$?
[ $code = 0 ] || fail "the honest replicas end with $code: $(cat train.out)"
kill -0 "$hub" 2>/dev/null || fail "the hub is gone: $(cat serve.err)"
export DILOCO_HUB_TOKEN_FILE=token
url=http://127.0.0.1:$port/team/tiny
[ "$(digest "$url")" = "$want" ] || fail "the run ended elsewhere"

# 1,060 connections with threads of their own, each touching some of its stack and 128 KiB.
cat attack.out
echo "hub: at most $most KiB resident"
if sanitized; then
    echo "left out: the bound of the hub's memory, since the sanitizer takes memory of its own"
elif [ "$most" -ge 400000 ]; then
    fail "the hub took $most KiB"
fi
[ "$(cat outside)" = "not yours" ] || fail "a file outside was changed"
[ ! -e x ] && [ ! -e here ] && [ ! -e ../outside ] || fail "a file outside was made"
[ -z "$(find hub/team -name huge -o -name big -o -name slow)" ] || fail "half a body is there"
kill -INT "$hub"
code=0
wait "$hub" || code=$?
[ $code = 0 ] || fail "the hub ends with $code"
