#!/bin/sh
# Replicas that share only a hub. A run over http, with the hub killed (also in the middle of a PUT)
# and started again, ends where a run in a folder ends (STO-7). Every reader takes the url.
. "$(dirname "$0")/lib.sh"

sed -i 's/^rounds = 6/rounds = 30/' tiny.toml
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

# One port for all starts.
port=$(python3 "$project/tests/free_port.py")
serve() {
    : >serve.out
    diloco serve hub --listen 127.0.0.1:$port "$@" >serve.out 2>serve.err &
    hub=$!
    started="$started $hub"
    wait_for grep -q '^serving ' serve.out
}
serve
url=http://127.0.0.1:$port/team/tiny

# A replica that is killed while the hub is away waits for it as soon as it is started again.
restart_without_hub() {
    kill -9 "$(children "$train" | cut -d' ' -f1)"
    wait_for grep -q 'waits for its store' out
}
diloco train tiny.toml --store "$url" >out 2>err &
train=$!
started="$started $train"
for entry in 5 12; do
    wait_for has_entry hub/team/tiny $entry
    kill -9 "$hub"
    wait "$hub" 2>/dev/null || true
    sleep 1
    [ $entry = 5 ] || restart_without_hub
    serve
done
code=0
wait "$train" || code=$?
[ "$code" = 0 ] || fail "train over a hub that was killed ends with $code"
[ "$(digest "$url")" = "$want" ] || fail "over the hub the run ends elsewhere"
[ "$(digest hub/team/tiny)" = "$want" ] || fail "the hub's folder holds another run"

expect 0 diloco status "$url" --json
[ "$(json entries <out)" = 30 ] || fail "status of a url"
cp out status.json
expect 0 diloco log "$url"
[ "$(wc -l <out)" = 30 ] || fail "log of a url"
expect 0 diloco doctor "$url"

# /status.json equals status --json, but for the address.
python3 - "$port" <<'PY' || fail "/status.json and status --json differ"
import json, sys, urllib.request
page = json.load(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/status.json?run=team/tiny"))
told = json.load(open("status.json"))
sys.exit(0 if page == told else f"{page}\n{told}")
PY

# Killed in the middle of a body: nothing of it is there afterwards, and the same name is free.
cat >half.py <<'PY'
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
s.sendall(b"PUT /team/half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 500000)
time.sleep(60)
PY
python3 half.py "$port" &
half=$!
started="$started $half"
partial() { [ -n "$(find hub/team/.tmp -size +100k)" ]; }
wait_for partial
kill -9 "$hub" "$half"
wait "$hub" "$half" 2>/dev/null || true
serve
[ ! -e hub/team/half ] || fail "half an object is there"
python3 - "$port" <<'PY' || fail "the name of a half object is not free"
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
c.request("PUT", "/team/half", b"whole", {"If-None-Match": "*"})
sys.exit(c.getresponse().status != 201)
PY

# Of a run whose heartbeats are 20 s apart, one that is 15 s old is alive, and of 50 s it is not.
# (A hub that serves the file itself goes by its time.)
diloco train tiny.toml --store "$url-slow" --set run.heartbeat=20 --set run.patience=90 \
    --set run.replicas=1 --set trainer.local_steps_per_round=1000000 >out 2>err &
slow=$!
started="$started $slow"
beats() { [ -s hub/team/tiny-slow/hb/r0.0000 ]; }
wait_for beats
rest=$(children $slow)
kill -9 "$slow" $rest
wait "$slow" 2>/dev/null || true
started="$started $rest"
slow_state() {
    touch -d "$1 seconds ago" hub/team/tiny-slow/hb/r0.0000
    python3 -c "import json, urllib.request as u
print(json.load(u.urlopen('http://127.0.0.1:$port/status.json?run=team/tiny-slow'))['replicas'][0]['state'])"
}
[ "$(slow_state 15) $(slow_state 50)" = "alive silent" ] || fail "alive and silent do not go by run.heartbeat"
# status goes by run.heartbeat, too.
diloco status "$url-slow" >out 2>err &
watching=$!
started="$started $watching"
wait_for grep -q 'watching heartbeats for 41 s' err
kill -INT "$watching"
wait "$watching" || true

# Ctrl-C ends it, and a run that cannot reach it says so.
kill -INT "$hub"
code=0
wait "$hub" || code=$?
[ "$code" = 0 ] || fail "after Ctrl-C the hub ends with $code"
expect_error 4 '127.0.0.1' diloco status "$url"

if command -v promtool >/dev/null; then
    serve
    counted() { # the hub walks its folders once, after its start
        python3 -c "import sys, urllib.request as u; sys.stdout.write(u.urlopen('http://127.0.0.1:$port/metrics').read().decode())" >metrics
        grep -q '^diloco_hub_log_entries{run="team/tiny"} 30$' metrics
    }
    wait_for counted
    promtool check metrics <metrics >out 2>&1 || fail "promtool does not like the metrics"
    [ ! -s out ] || fail "promtool has something to say"
else
    echo "left out: promtool (package prometheus) to check the metrics"
fi

# Usage.
expect_error 2 'serve needs a DIR' diloco serve
expect_error 2 'go together' diloco serve hub --cert x
expect_error 2 'HOST:PORT' diloco serve hub --listen nowhere
expect_error 3 'can be reached from other machines' diloco serve hub --listen 0.0.0.0:0
expect 0 diloco serve --make-cert
grep -q '^fingerprint  [0-9A-F:]\{95\}$' out || fail "no fingerprint"
[ "$(stat -c %a hub.key)" = 600 ] || fail "others can read the key"
expect_error 2 'at least one is needed' diloco serve hub --max-connections 0
expect_error 2 'no object would be accepted' diloco serve hub --max-object 0
expect_error 1 'exists already' diloco serve --make-cert
