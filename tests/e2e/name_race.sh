#!/bin/sh
# diloco join beside a diloco train that begins on the same machine: it takes a name before the replicas of train have
# theirs. Those take the next free ones, and the run completes.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "left out: there is no python3"; exit 0; }

mkdir hub
diloco serve hub --listen 127.0.0.1:0 >serve.out 2>serve.err &
started="$started $!"
hub_port() { grep -ho 'http://127.0.0.1:[0-9]*' serve.out serve.err | head -1 | sed 's/.*://'; }
has_port() { [ -n "$(hub_port)" ]; }
wait_for has_port
mkdir front
python3 "$project/tests/e2e/held_hub.py" "$(hub_port)" front &
started="$started $!"
wait_for [ -s front/port ]

# train has created the run, and asks which names the run has.
: >front/hold
diloco train tiny.toml --store "http://127.0.0.1:$(cat front/port)/run" --set run.state_dir=state >train.out 2>&1 &
train=$!
started="$started $train"
wait_for [ -e front/held ]
diloco join "http://127.0.0.1:$(hub_port)/run" --set run.state_dir=state --set data.train_path=text.txt \
    --set run.threads=1 >join.out 2>&1 &
join=$!
started="$started $join"
wait_for [ -e hub/run/gen/r0.0000 ]
rm front/hold
code=0
wait $train || code=$?
[ $code = 0 ] || fail "train ends with $code: $(cat train.out)"
wait $join || fail "join: $(cat join.out)"
[ "$(ls hub/run/gen | tr '\n' ' ')" = 'r0.0000 r1.0000 r2.0000 ' ] || fail "not the names of three replicas: $(ls hub/run/gen)"
