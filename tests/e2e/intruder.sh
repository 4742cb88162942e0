#!/bin/sh
# A writer without a key, in a run of keys (tests/hostile/plant.py): it puts objects of every kind
# under names of every pattern, in a folder, at a hub, and in a bucket of the hub's S3 side. The run
# is stopped, they are put, and it continues to its end. Others are put while it runs and a third
# replica joins. status, log, verify and the hub's pages read it. SWM-28
#
# A part after the program selects scenarios: closed, rosters or hub, which are tests of their own; or
# crowd, which puts 100,000 objects and nothing else (scripts/soak.sh). Without one it runs the three.
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$work/config"
expect 0 diloco id
key=$(cat out)
printf 'r0 %s\nr1 %s\n' "$key" "$key" >members
expect 0 env XDG_CONFIG_HOME="$work/joiner" diloco id
printf 'r0 %s\nr1 %s\nr2 %s\n' "$key" "$key" "$(cat out)" >three
printf 'AKIDHUB a-secret-of-the-hub\n' >keys
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
    serve s3 --s3-keys keys
    export S3_TEST_ENDPOINT="$served"
}

# Every reader reads the run, which has N entries. An audit accepts it: entries that are not a
# committer's are void, and valid ones follow them.
all_read() { # URL N
    expect 0 diloco status "$1" --json
    [ "$(json entries <out)" = "$2" ] || fail "$1: not all entries: $(cat out)"
    expect 0 diloco status "$1"
    expect 0 diloco log "$1"
    expect 0 diloco verify "$1"
}

# intrude NAME KIND WHERE ROSTER SETTING…: a scenario, in a folder and a process of its own.
intrude() {
    name=$1 kind=$2 where=$3 roster=$4
    shift 4
    mkdir "$name"
    cd "$name"
    trap clean_up_own EXIT
    cp ../tiny.toml ../text.txt ../members ../three .
    writer=
    case $where in
    folder) url=$PWD/run folder=$url ;;
    hub) url=$hub/$name folder=../hub/$name writer=$url ;;
    s3)
        url="s3://$name/deep?endpoint=$S3_TEST_ENDPOINT" folder=../s3/$name/deep writer=s3:/$name
        python3 "$project/tests/servers/s3_admin.py" PUT "/$name"
        ;;
    esac
    set -- train tiny.toml --store "$url" --set run.state_dir=state --quiet --set run.roster="$roster" \
        "$@"
    [ "$roster" != closed ] || set -- "$@" --set run.members=members
    diloco "$@" >train.out 2>&1 &
    train=$!
    started=$train
    wait_for has_entry "$folder" 1
    kill -INT "$train" 2>/dev/null || true
    wait "$train" || true
    [ "$where" = s3 ] && at=deep || at=$folder
    planted=$($plant "$kind" "$at" $writer)
    expect 0 diloco "$@"
    all_read "$url" 8
    if [ "$where" = hub ]; then
        for page in "status.json?run=$name" "list?run=$name" metrics .page/runs \
            ".page/run?run=$name" ".page/entries?run=$name" ".page/settings?run=$name"; do
            expect 0 curl -fsS --max-time 120 "$hub/$page"
        done
    fi
    echo "$name: $planted"
}

# A run that waits for its third replica while they are put, and that replica joins among them.
intrude_running() { # NAME WHERE ROSTER
    name=$1 where=$2 roster=$3
    mkdir "$name"
    cd "$name"
    trap clean_up_own EXIT
    cp ../tiny.toml ../text.txt ../members ../three .
    sed -i "s/^rounds = 8/rounds = 100/; s/^replicas = 2/replicas = 3/" tiny.toml
    url=$PWD/run folder=$url writer=
    [ "$where" != hub ] || { url=$hub/$name folder=../hub/$name writer=$url; }
    set -- train tiny.toml --store "$url" --replicas 2 --set run.state_dir=state --quiet \
        --set run.roster="$roster"
    [ "$roster" != closed ] || set -- "$@" --set run.members=three
    diloco "$@" >train.out 2>&1 &
    train=$!
    started=$train
    for replica in r0 r1; do wait_for test -e "$folder/c/0000000000/$replica.0000"; done
    $plant mixed "$folder" $writer >planted &
    planter=$!
    invited=
    [ "$roster" != invited ] || diloco invite "$url" --for 1h >invitation
    [ "$roster" != invited ] || invited="--set run.invitation=invitation"
    expect 0 env XDG_CONFIG_HOME="$work/joiner" diloco join "$url" $invited \
        --set data.train_path=text.txt --set run.state_dir=joined --set run.threads=1
    grep -q '^entry ' out || fail "$name: the joiner took no part: $(cat out err)"
    wait "$train" || fail "$name: train: $(cat train.out)"
    wait $planter || fail "$name: plant.py failed"
    all_read "$url" 100
    echo "$name: $(cat planted)"
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
    cp ../tiny.toml ../text.txt ../three .
    sed -i "s/^rounds = 8/rounds = 100000/; s/^replicas = 2/replicas = 3/" tiny.toml
    diloco train tiny.toml --store run --replicas 2 --set run.state_dir=state --quiet \
        --set run.roster=closed --set run.members=three --set run.on_missing=wait \
        --set run.patience=10 --set run.heartbeat=1 >train.out 2>&1 &
    train=$!
    started=$train
    for replica in r0 r1; do wait_for test -e "run/c/0000000000/$replica.0000"; done
    XDG_CONFIG_HOME="$work/joiner" diloco join run --rank 2 --set data.train_path=text.txt \
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
        wait "${one%%:*}" || { cat "log.${one#*:}" >&2 && exit 1; }
        cat "log.${one#*:}"
    done
    all=
}
closed() {
    for kind in empty short huge folder pipe another earlier file crowd; do
        go intrude "closed.$kind" $kind folder closed
    done
    go intrude closed.leader mixed folder closed --set server.diloco.exchange=leader
}

# Without keys any process can be r0, and junk at its names fences it. Junk elsewhere stops no run.
rosters() {
    go intrude open.mixed mixed folder open
    go intrude invited.mixed mixed folder invited
    go intrude_running closed.running folder closed
    go forge_beats closed.beats
    go intrude_running invited.running folder invited
    go intrude trusted.allgather nobody folder trusted
    go intrude trusted.leader nobody folder trusted --set server.diloco.exchange=leader
    go intrude trusted.sharded nobody folder trusted --set server.diloco.exchange=sharded
}

hub() {
    start_hubs
    go intrude hub-mixed mixed hub closed
    CROWD=.1 go intrude hub-crowd crowd hub open
    go intrude hub-trusted nobody hub trusted --set server.diloco.exchange=sharded
    go intrude s3-mixed mixed s3 closed
    go intrude_running hub-running hub closed
}

crowd() {
    export CROWD=25 WAIT_S=600
    go intrude closed.crowd crowd folder closed
}

for part in ${2:-closed rosters hub}; do
    "$part"
    finish
done
