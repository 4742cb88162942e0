#!/bin/sh
# A writer without a key, in a run of keys (tests/hostile/plant.py): it puts objects of every kind
# under names of every pattern, in a folder, at a hub, and in a bucket of the hub's S3 side. They are
# put into a run that has begun, and which a replica then joins. They are put again before it restarts.
# status, log, verify and the hub's pages read it. Without keys any process can be r0, and junk at its
# names fences it, so there they have other names. SWM-28
#
# A part after the program selects scenarios. Three are tests of their own: closed, rosters and hub.
# Two take long (scripts/soak.sh): kinds puts each kind of objects alone, and crowd 100,000 objects.
# Without a part it runs the three.
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$work/config"
expect 0 diloco id
key=$(cat out)
printf 'r0 %s\nr1 %s\n' "$key" "$key" >members
# The replicas that join, one after another.
for n in 1 2 3 4 5 6 7 8 9 10; do
    expect 0 env XDG_CONFIG_HOME="$work/joiner$n" diloco id
    printf 'r%s %s\n' $((n + 1)) "$(cat out)" >>members
done
printf 'AKIDHUB a-secret-of-the-hub\n' >keys
echo a-token-of-the-hub >token
chmod 600 token
sed -i 's/^rounds = 6/rounds = 8/; s/^local_steps_per_round = 20/local_steps_per_round = 5/' tiny.toml
plant="python3 $project/tests/hostile/plant.py"
export AWS_ACCESS_KEY_ID=AKIDHUB AWS_SECRET_ACCESS_KEY=a-secret-of-the-hub AWS_REGION=us-east-1

# One hub that anyone may write to, and one with an S3 side.
serve() { # FOLDER FLAG…: its address is then in $served
    diloco serve "$@" --listen 127.0.0.1:0 >"$1.out" 2>"$1.err" &
    started="$started $!"
    wait_for grep -qs '^serving ' "$1.out"
    served=http://$(sed -n 's/^serving .*\(127.0.0.1:[0-9]*\).*/\1/p' "$1.out")
}
start_hubs() {
    serve hub
    hub=$served
    serve s3 --s3-keys keys --token-file token
    export S3_TEST_ENDPOINT="$served"
}

# Every reader reads the run. An audit accepts it: entries that are not a committer's are void, and
# valid ones follow them. status looks for heartbeats for some seconds, so the others do not wait for it.
audit() {
    expect 0 diloco log "$url"
    expect 0 diloco verify "$url"
}
look() { # the run may continue meanwhile
    diloco status "$url" >"status.$1" 2>&1 &
    looks="$looks $!:$1"
}
all_read() {
    look end
    audit
    in_log=$(ls "$folder/log" | sed -n '$s/^0*\(.*\)[.]json/\1/p')
    expect 0 diloco status "$url" --json
    [ "$(json entries <out)" = $((in_log + 1)) ] || fail "$url: not all entries: $(cat out)"
    for one in $looks; do
        wait "${one%%:*}" || fail "$name: status: $(cat "status.${one#*:}")"
    done
}
pages() { # of the hub that has the run's folder. No hub serves a bucket of another service.
    for page in "status.json?run=$run" "list?run=$run" metrics .page/runs ".page/run?run=$run" \
        ".page/entries?run=$run" ".page/settings?run=$run"; do
        expect 0 curl -fsS --max-time 120 -H "Authorization: Bearer $(cat ../token)" "$shown_by/$page"
    done
}

# enter NAME WHERE ROSTER SETTING…: a folder and a process of its own for a scenario. Its run is at
# $url and in $folder, and has more rounds than any scenario lasts.
enter() {
    name=$1 where=$2 roster=$3
    started='' looks='' number=0
    shift 3
    mkdir "$name"
    cd "$name"
    trap clean_up_own EXIT
    cp ../tiny.toml ../text.txt ../members .
    sed -i "s/^rounds = 8/rounds = 100000/" tiny.toml
    at='' writer='' shown_by='' run=$name
    case $where in
    folder) url=$PWD/run folder=$url ;;
    hub) url=$hub/$name folder=../hub/$name writer=$url shown_by=$hub ;;
    s3)
        url="s3://$name/deep?endpoint=$S3_TEST_ENDPOINT" folder=../s3/$name/deep writer=s3:/$name at=deep
        shown_by=$S3_TEST_ENDPOINT run=$name/deep
        python3 "$project/tests/servers/s3_admin.py" PUT "/$name"
        ;;
    esac
    [ "$roster" = trusted ] && as=--unlisted || as=
    settings=$*
    [ "$roster" != closed ] || settings="$settings --set run.members=members"
}
start() {
    diloco train tiny.toml --store "$url" --replicas 2 --set run.state_dir=state --quiet \
        --set run.roster="$roster" $settings >>train.out 2>&1 &
    train=$!
    started="$started $train"
}
stop() { # PID
    kill -INT "$1" 2>/dev/null || fail "$name: $1 has ended: $(tail -n 3 train.out)"
    wait "$1" || true
}
# Replicas that are paused keep the state that they had read. One may just end, to become a later
# generation.
pause() {
    paused="$train $(children "$train")"
    kill -STOP $paused 2>/dev/null || true
}
resume() {
    kill -CONT $paused 2>/dev/null || true
}
put() { # KIND: $last is then the last entry whose name may be taken
    said=$($plant $as "$1" "${at:-$folder}" $writer) || fail "$name: plant.py $1 failed"
    last=${said%% *}
    echo "$name: $1: ${said#* }"
}

# A replica of a name and a key that have not begun joins.
joins() {
    number=$((number + 1))
    set --
    [ "$roster" != invited ] || diloco invite "$url" --for 1h >invitation
    [ "$roster" != invited ] || set -- --set run.invitation=invitation
    XDG_CONFIG_HOME="$work/joiner$number" diloco join "$url" --set data.train_path=text.txt \
        --set run.state_dir="joined$number" --set run.threads=1 "$@" >"joined$number.out" 2>&1 &
    join=$!
    started="$started $join"
}
takes_part() {
    kill -0 "$join" 2>/dev/null || fail "$name: the joiner has ended: $(tail -n 3 "joined$number.out")"
    grep -qs '^entry [0-9]*: 3 replicas' "joined$number.out"
}
goes_on() { # entries of replicas follow what was put
    kill -0 "$train" 2>/dev/null || fail "$name: it has ended: $(tail -n 3 train.out)"
    has_entry "$folder" $((last + 2))
}

# intrude NAME KINDS WHERE ROSTER SETTING…: objects of each kind are put into a run that has begun, and
# that a replica then joins. They are put again before it restarts.
intrude() {
    name=$1 kinds=$2
    shift 2
    enter "$name" "$@"
    start
    wait_for has_entry "$folder" 1
    for kind in $kinds; do
        pause
        put "$kind"
        joins
        resume
        wait_for takes_part
        wait_for goes_on
        stop "$join"
        stop "$train"
        audit
        look "$kind"
        put "$kind"
        start
        wait_for goes_on
    done
    stop "$train"
    all_read
    [ -z "$shown_by" ] || pages
}

counts_r2() {
    grep -qs '"life":"r2.0000"' run/log/*.json
}
goes_on_without_r2() { # five entries follow the one that was aborted because of it
    silent=$(grep -ls '"reason":"silent: [^"]*r2' run/log/*.json | tail -1)
    [ "$silent" ] && [ "$(ls run/log | sed -n "/${silent##*/}/,\$p" | wc -l)" -gt 5 ]
}

# A member is killed, and its heartbeat changes for ever. Entries wait for slow replicas, but for this
# one no longer than run.patience.
forge_beats() { # NAME
    name=$1
    mkdir "$name"
    cd "$name"
    trap clean_up_own EXIT
    cp ../tiny.toml ../text.txt ../members .
    sed -i "s/^rounds = 8/rounds = 100000/; s/^replicas = 2/replicas = 3/" tiny.toml
    diloco train tiny.toml --store run --replicas 2 --set run.state_dir=state --quiet \
        --set run.roster=closed --set run.members=members --set run.on_missing=wait \
        --set run.patience=10 --set run.heartbeat=1 >train.out 2>&1 &
    train=$!
    started=$train
    for replica in r0 r1; do wait_for test -e "run/c/0000000000/$replica.0000"; done
    XDG_CONFIG_HOME="$work/joiner1" diloco join run --rank 2 --set data.train_path=text.txt \
        --set run.state_dir=joined --set run.threads=1 >join.out 2>&1 &
    joiner=$!
    started="$started $joiner"
    wait_for counts_r2
    kill -9 $joiner $(children $joiner)
    (
        while kill -0 "$train" 2>/dev/null; do
            n=$((${n:-0} + 1))
            for life in r2.0000 r2.0007; do
                echo "{\"replica\":\"r2\",\"beat\":$((n + 1000000)),\"entry\":5}" >"run/hb/$life"
            done
            sleep .2
        done
    ) &
    started="$started $!"
    wait_for goes_on_without_r2
    kill -INT "$train"
    wait "$train" || true
    [ ! -e run/end/r2.0000 ] || fail "$name: r2 was not killed"
    expect 0 diloco verify run
    echo "$name: $(ls run/log | wc -l) entries"
}

clean_up_own() {
    status=$?
    for pid in $started; do kill -9 "$pid" 2>/dev/null || true; done
    exit $status
}

# These wait more than they work, so several run at once.
all=
go() {
    ("$@") >"log.$2" 2>&1 &
    all="$all $!:$2"
}
finish() {
    for one in $all; do
        wait "${one%%:*}" || { tail -n 20 log.* ./*.err >&2 && exit 1; }
        cat "log.${one#*:}"
    done
    all=
}
closed() {
    go intrude closed.each each folder closed
    go intrude closed.leader each folder closed --set server.diloco.exchange=leader
    CROWD=.5 go intrude closed.crowd crowd folder closed
    go forge_beats closed.beats
}

rosters() {
    go intrude open.each each folder open
    go intrude invited.each each folder invited
    go intrude trusted.each each folder trusted
    go intrude trusted.leader each folder trusted --set server.diloco.exchange=leader
    go intrude trusted.sharded each folder trusted --set server.diloco.exchange=sharded
}

hub() {
    start_hubs
    go intrude hub-mixed mixed hub closed
    go intrude hub-invited mixed hub invited
    CROWD=.1 go intrude hub-crowd crowd hub open
    go intrude hub-trusted mixed hub trusted --set server.diloco.exchange=sharded
    go intrude s3-mixed mixed s3 closed
}

kinds() {
    export WAIT_S=600
    all_kinds="empty short huge folder pipe another earlier pointer file"
    go intrude closed.kinds "$all_kinds" folder closed
    go intrude leader.kinds "$all_kinds" folder closed --set server.diloco.exchange=leader
    go intrude open.kinds "$all_kinds" folder open
    go intrude invited.kinds "$all_kinds" folder invited
    finish
    for exchange in allgather leader sharded; do
        go intrude trusted.$exchange "$all_kinds" folder trusted --set server.diloco.exchange=$exchange
    done
}

crowd() {
    export CROWD="${CROWD:-25}" WAIT_S=600
    start_hubs
    go intrude closed.crowd crowd folder closed
    finish
    go intrude leader.crowd crowd folder closed --set server.diloco.exchange=leader
    finish
    for roster in open invited; do
        go intrude $roster.crowd crowd folder $roster
        finish
    done
    for exchange in allgather leader sharded; do
        go intrude trusted.$exchange crowd folder trusted --set server.diloco.exchange=$exchange
        finish
    done
    go intrude hub-crowd crowd hub open
}

for part in ${2:-closed rosters hub}; do
    "$part"
    finish
done
