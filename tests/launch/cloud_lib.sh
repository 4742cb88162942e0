# cloud_lib.sh - the tests of executors with a REST API share it: a hub of diloco serve on loopback, whose token is the
# secret, and a fake of the API (fake_cloud.py).
. "$(dirname "$0")/../e2e/lib.sh"
command -v python3 >/dev/null || { echo "left out: launch on a fake (needs python3)"; exit 77; }

# serve_hub: start the hub; $hub is its address.
serve_hub() {
    mkdir hub
    echo swordfish-of-the-hub >token
    chmod 600 token
    diloco serve hub --listen 127.0.0.1:0 --token-file token >serve.out 2>serve.err &
    started="$started $!"
    wait_for served
    hub=$(grep -ho 'http://127.0.0.1:[0-9]*' serve.out serve.err | head -1)
    DILOCO_HUB_TOKEN=$(cat token)
    export DILOCO_HUB_TOKEN
}
served() { grep -q 'http://127.0.0.1:[0-9]' serve.out serve.err; }

# serve_gcs: start the fake of Google Cloud Storage; $store is a run in it. Its keys are on the machines, by their role.
serve_gcs() {
    mkdir api
    python3 "$project/tests/free_port.py" >gcs.port
    export GS_ACCESS_KEY_ID=GOOGTEST GS_SECRET_ACCESS_KEY=swordfish-of-the-store
    python3 "$project/tests/servers/gcs_fake.py" "$(cat gcs.port)" >gcs.out 2>&1 &
    started="$started $!"
    wait_for answers "$(cat gcs.port)"
    printf '%s\n' GS_ACCESS_KEY_ID=GOOGTEST GS_SECRET_ACCESS_KEY=swordfish-of-the-store >api/role
    store=$(bucket cut)
}
answers() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "$1" 2>/dev/null; }
bucket() { echo "gs://bucket/$1?endpoint=http://127.0.0.1:$(cat gcs.port)"; }
# has_entries N: the run in $store has N entries.
has_entries() { [ "$(diloco log "$store" --json 2>/dev/null | grep -c .)" -ge "$1" ]; }

# fake KIND: start it; $api is its address.
fake() {
    python3 "$project/tests/launch/fake_cloud.py" "$1" api >fake.out 2>fake.err &
    started="$started $!"
    wait_for [ -s api/port ]
    api=http://127.0.0.1:$(cat api/port)
}

# A run waits for a replica that is started again, however long that takes here. A test whose run has to last
# longer sets $rounds before.
sed -i 's/^rounds = 6/rounds = '"${rounds:-60}"'/; s/^patience = 5/patience = 1200/' tiny.toml
sed -i "s|^train_path = .*|train_path = \"$PWD/text.txt\"|" tiny.toml
expect 0 diloco train tiny.toml --store whole --quiet
want=$(digest whole)

launcher() {
    : >launch.out
    diloco launch tiny.toml --store "$store" "$@" >launch.out 2>launch.err &
    launcher=$!
    started="$started $launcher"
}
# ended CODE: the launcher has ended with this exit code.
ended() {
    wait_for gone "$launcher"
    code=0
    wait "$launcher" || code=$?
    [ $code = "$1" ] || fail "the launch ends with $code: $(cat launch.err launch.out)"
}
# The process of the program of a name.
replica_of() {
    for environ in $(grep -lzx "DILOCO_JOB=$1" /proc/[0-9]*/environ 2>/dev/null); do
        ! grep -qzx join "${environ%environ}cmdline" 2>/dev/null || basename "${environ%/environ}"
    done | head -1
}
# A container dies with its first process: kill that of a name, and what it started.
kill_replica() {
    begun=$(replica_of "$1")
    # shellcheck disable=SC2046 # several
    kill -9 "$begun" $(children "$begun")
}
has_replica() { [ -n "$(replica_of "$1")" ]; }

# no_secret_elsewhere [MEMBER]: the secret is in this member of the bodies of requests, which is the secret channel. It is
# nowhere else. Without MEMBER no request has it.
no_secret_elsewhere() {
    python3 - "$@" >rest.jsonl 2>err <<'PY' || fail "the secret is not in its channel"
import json, sys
carried = []
for line in open("api/requests.jsonl", encoding="utf-8"):
    request = json.loads(line)
    for member in sys.argv[1:]:
        carried.append((request["body"] or {}).pop(member, None))
    print(json.dumps(request))
assert len(sys.argv) == 1 or "swordfish" in json.dumps(carried)
PY
    ! grep swordfish rest.jsonl >out || fail "the secret is outside the secret channel"
    ! grep -rqI swordfish launch.out launch.err hub/cut/launch api/logs || fail "the secret is in output, in the book or in a log"
    ! in_arguments swordfish || fail "the secret is in a list of processes"
}

# fits KIND: every recorded request fits the provider's own description of its API, which a package from PyPI carries.
fits() {
    python=$project/build/venv-launch/bin/python
    if [ -x "$python" ]; then
        "$python" "$project/tests/launch/fits.py" "$1" api >out 2>err || fail "a request does not fit the API"
        cat out
    else
        echo "left out: requests compared with the provider's own description (scripts/packages.sh launch)"
    fi
}

# sent_nothing: a dry run has neither printed a secret nor sent a request.
sent_nothing() {
    ! grep -q swordfish out err || fail "a secret is printed"
    [ ! -e api/requests.jsonl ] || fail "a dry run sent something"
}

# launch_again: of two launchers that begin at once, each job is started by one. kill -9 ends both; the same command starts
# none of them again.
launch_again() {
    before=$(containers)
    diloco launch tiny.toml --store "$store" >beside.out 2>beside.err &
    beside=$!
    started="$started $beside"
    launcher
    wait_for has_entries 3
    kill -9 "$launcher" "$beside" || fail "a launcher has ended: $(cat launch.err beside.err)"
    wait_for gone "$launcher"
    wait_for gone "$beside"
    [ $(($(containers) - before)) = 2 ] || fail "two launchers at once have started $(containers) - $before containers"
    launcher
    wait_for has_entries 6
    [ $(($(containers) - before)) = 2 ] || fail "started twice"
}
# The number of containers that the fake has started.
containers() {
    { cat api/started; find api/sandboxes api/jobs -mindepth 1 -maxdepth 1; } 2>/dev/null | grep -c . || true
}

# of_rank_1 MEMBER: such as "id" or "name", of the newest job of rank 1.
of_rank_1() { diloco launch status "$store" --json | tr '{' '\n' | sed -n '/"rank":1,/s/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }

# long_logs FILE: the output of rank 1, which the fake has in FILE, is long.
long_logs() {
    : >api/long-pages
    long_output "$1" diloco launch logs "$store" --rank 1
    rm "$1" api/long-pages
}

# job_of RANK MEMBER: the newest name of this rank, which MEMBER of a request has.
job_of() { sed -n 's/.*"'"$2"'": "\(diloco-[0-9a-f]*-r'"$1"'-g[0-9]*\)".*/\1/p' api/requests.jsonl | tail -1; }

# kill_in_outage MEMBER [REASON]: kill -9 of r1 while the API fails: it is LOST for this reason, and started again; the run
# completes. $r1 is its name before.
kill_in_outage() {
    r1=$(job_of 1 "$1")
    wait_for has_replica "$r1"
    echo 500 >api/fault
    kill_replica "$r1"
    wait_for grep -q '; trying again' launch.out
    rm api/fault
    wait_for grep -q "^r1: LOST: ${2:-killed by signal 9}" launch.out
    ended 0
    [ "$(digest "$store")" = "$want" ] || fail "the launched run ends elsewhere"
    expect 0 diloco launch status "$store"
    [ "$(grep -c ' SUCCEEDED ' out)" = 2 ] || fail "not two replicas that have succeeded: $(cat out)"
}

# cancels_by VERSION WORDS: replicas that run when the command gets a version that is not known are shown, read and
# stopped. Each call warns once, with these words.
cancels_by() {
    launcher --set trainer.rounds=9000
    wait_for grep -q '^r0: RUNNING' launch.out # the book has the ids
    wait_for grep -q '^r1: RUNNING' launch.out
    wait_for has_entries 2
    echo "$1" >api/version
    expect 0 diloco launch status "$store"
    [ "$(grep -c ' RUNNING ' out)" = 2 ] || fail "not two replicas that run: $(cat out)"
    warns_once "$2"
    expect 0 diloco launch logs "$store" --rank 1
    grep -q . out || fail "no output of r1"
    warns_once "$2"
    expect 0 diloco launch cancel "$store"
    warns_once "$2"
    ended 130
    [ "$(grep -c "$2" launch.err)" -le 1 ] || fail "a launcher warns more than once: $(cat launch.err)"
    expect 0 diloco launch collect "$store"
    [ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"
    rm api/version
}
warns_once() { [ "$(grep -c "$1" err)" = 1 ] || fail "not one warning of $1: $(cat err)"; }

# cancels: a run in $store is cancelled while it trains. A job that is being stopped still runs.
cancels() {
    launcher --set trainer.rounds=9000
    wait_for has_entries 2
    expect 0 diloco launch cancel "$store"
    ended 130
    expect 0 diloco launch collect "$store"
    [ "$(grep -c ' CANCELLED ' out)" = 2 ] || fail "not two replicas that were cancelled: $(cat out)"
}
