#!/bin/sh
# run.notify calls a command, and a webhook, with one JSON object when a replica is lost and when the
# run is complete. No shell runs any of it, and a URL that is a secret is never printed.
. "$(dirname "$0")/lib.sh"

cat >tell <<'SH'
#!/bin/sh
[ $# = 0 ] || exit 9
cat >>notices
SH
chmod +x tell
diloco train tiny.toml --store a --quiet --set run.notify="$PWD/tell"
python3 - <<'PY' || fail "the notices of a run that ended well are others: $(cat notices)"
import json
notices = [json.loads(t + "}") for t in open("notices").read().split("}")[:-1]]
(one,) = notices
assert one["event"] == "run-complete" and one["name"] == "a" and len(one["run"]) == 32, one
assert one["text"].startswith("The run is complete: 6 entries"), one
PY
rm notices
diloco train tiny.toml --store a --quiet --set run.notify="$PWD/tell"
[ ! -e notices ] || fail "a run that was complete already was told: $(cat notices)"

expect_error 2 "there is no such program" diloco train tiny.toml --store b --quiet --set run.notify=no-such
expect_error 2 "the variable is not set" diloco train tiny.toml --store b --quiet --set run.notify=env:NO_SUCH
[ ! -e b/run.json ] || fail "a run was made before its run.notify was refused"

# A program that fails ends no run.
printf '#!/bin/sh\nexit 3\n' >broken
chmod +x broken
diloco train tiny.toml --store c --set run.notify="$PWD/broken" >out 2>&1 || fail "a notice that failed ended the run"
grep -q "run.notify: run-complete was not sent: .*broken ended with code 3" out || fail "the failure is not said"

# A replica of another machine is lost: the webhook's URL comes from a variable.
python3 - >hook.port 2>hook.err <<'PY' &
import http.server, json, sys
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("posts", "ab") as f:
            f.write(json.dumps([self.path, self.headers["Authorization"], json.loads(body)]).encode() + b"\n")
        self.send_response(204)
        self.end_headers()
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
print(server.server_port, flush=True)
server.serve_forever()
PY
started="$started $!"
while [ ! -s hook.port ]; do sleep 0.05; done
HOOK="http://127.0.0.1:$(cat hook.port)/secret-path" DILOCO_NOTIFY_TOKEN=swordfish \
    diloco train tiny.toml --store d --replicas 1 --set run.replicas=2 --set run.on_missing=wait \
    --set run.heartbeat=0.2 --set trainer.rounds=100000 --set run.patience=600 \
    --set run.notify=env:HOOK >out 2>err &
train=$!
started="$started $train"
wait_for test -e d/gen/r0.0000 # join takes a name that is free
diloco join d --replicas 1 --quiet --set data.train_path=text.txt >join.out 2>&1 &
join=$!
started="$started $join"
while [ "$(ls d/log 2>/dev/null | wc -l)" -lt 2 ]; do sleep 0.05; done
replica=$(children $join)
kill -9 $join $replica
while ! grep -q replica-lost posts 2>/dev/null; do
    kill -0 $train 2>/dev/null || fail "the run ended"
    sleep 0.1
done
kill $train
wait $train || true
python3 - <<'PY' || fail "the webhook got something else: $(cat posts)"
import json
path, token, one = json.loads(open("posts").readline())
assert (path, token) == ("/secret-path", "Bearer swordfish"), (path, token)
assert one["event"] == "replica-lost" and one["replica"] in ("r0", "r1"), one
assert " is lost: no new heartbeat" in one["text"], one
PY
! grep -rq "secret-path\|swordfish" out err d || fail "a secret was printed or kept"

# The hub of a run goes away.
rm -f notices
diloco serve hub --listen 127.0.0.1:0 >hub.out 2>&1 &
hub=$!
started="$started $hub"
while ! grep -q 'http://127' hub.out; do sleep 0.05; done
url=$(sed -n 's|.*\(http://127[0-9.:]*\)/NAME.*|\1|p' hub.out | head -1)/e
diloco train tiny.toml --store "$url" --set trainer.rounds=100000 --set run.notify="$PWD/tell" >out 2>err &
train=$!
started="$started $train"
while ! has_entry hub/e 1; do sleep 0.05; done
kill -9 $hub
while ! grep -q '"event":"store-unreachable"' notices 2>/dev/null; do
    kill -0 $train 2>/dev/null || break
    sleep 0.1
done
grep -q '"event":"store-unreachable"' notices || fail "nothing said that the store was away"
kill $train
wait $train || true
