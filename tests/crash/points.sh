#!/bin/sh
# points.sh PROGRAM DIE_AT.so WHERE: A process of a run dies, as by kill -9, at each point at which
# an operation is half done. WHERE is file, hub, or bucket (the store of CLOUD_TEST_URL), or beside: a
# file store and a state that is saved beside training. With lent the copy of that state is in memory
# of the exchange, because little is free: its 259,328 bytes are more than a half. Every run completes, verifies, and ends in
# the bits of one without a death (PROTOCOL P16; R-20), unless its function says otherwise.
. "$(dirname "$0")/../e2e/lib.sh"
shim=$2 # absolute
where=$3

sed -i 's/^rounds = 6/rounds = 14/; s/^patience = 5/patience = 60/; s/^heartbeat = 0.5/heartbeat = 0.02/
        s/^\[run\]/[run]\nsnapshot_every = 0.05\nretain = "recent"/' tiny.toml
if [ "$where" != beside ] && [ "$where" != lent ]; then
    expect 0 diloco train tiny.toml --store whole --quiet
    want=$(digest whole)
fi
n=0
port=$(python3 "$project/tests/free_port.py") # of all starts of the hub

serve() { # the hub, which may have orders to die
    : >serve.out
    env "$@" diloco serve hub --listen "127.0.0.1:$port" >serve.out 2>serve.err &
    hub=$!
    started="$started $hub"
    wait_for grep -q '^serving ' serve.out
}

store() { # of the n-th run
    case $where in
    file | beside | lent) echo "run$n" ;;
    hub) echo "http://127.0.0.1:$port/run$n" ;;
    bucket) echo "${CLOUD_TEST_URL%%\?*}/crash$n?${CLOUD_TEST_URL#*\?}" ;;
    esac
}

ended_well() { # WHAT
    [ -e "once$n" ] || fail "$where: nobody died $1"
    [ "$(digest "$(store)")" = "$want" ] || fail "$where: where one died $1 the run ends elsewhere"
}

# dies WHAT DIE_AT: a replica does.
dies() {
    n=$((n + 1))
    expect 0 env DIE_AT="$2" DIE_ONCE="$PWD/once$n" LD_PRELOAD="$shim" \
        diloco train tiny.toml --store "$(store)" --set "run.state_dir=state$n"
    grep -q 'was killed by signal 9 (Killed); started again' out || fail "$where: no death $1 seen"
    ended_well "$1"
}

# dies_beside WHAT DIE_AT SKIP SETTING…: a replica of a run with overlap dies, whose state is saved
# beside training. The run ends and verifies.
dies_beside() {
    what=$1
    at=$2
    skip=$3
    shift 3
    n=$((n + 1))
    expect 0 env DIE_AT="$at" DIE_SKIP="$skip" DIE_ONCE="$PWD/once$n" LD_PRELOAD="$shim" \
        diloco train tiny.toml --store "$(store)" --set "run.state_dir=state$n" \
        --set server.diloco.overlap_steps=5 "$@"
    grep -q 'was killed by signal 9 (Killed); started again' out || fail "$where: no death $what seen"
    [ -e "once$n" ] || fail "$where: no replica died $what"
    digest "$(store)" >digest
}

# beside WHAT DIE_AT SKIP: the run also has the bits of one without a death.
beside() {
    dies_beside "$@"
    [ "$(cat digest)" = "$want_beside" ] || fail "$where: where one died $1 the run ends elsewhere"
}

# The disk of r1 stops while a save is written. Two fragments are due every 10 steps, and with error
# feedback each is saved. The due point after the save takes a second copy, and reports it. Then r1 is
# killed. The run ends and verifies; P16 promises no equal bits with two fragments.
dies_with_two_copies() {
    n=$((n + 1))
    env HOLD_AT=/r1/local HELD="$PWD/held$n" LD_PRELOAD="$shim" \
        diloco train tiny.toml --store "$(store)" --set "run.state_dir=state$n" \
        --set server.diloco.fragments=2 --set server.diloco.overlap_steps=15 \
        --set server.diloco.codec=topk --set server.diloco.error_feedback=0.9 >out 2>err &
    train=$!
    started="$started $train"
    wait_for test -s "held$n"
    held=$(cat "held$n")
    started="$started $held"
    wait_for grep -q 'still being saved at the next due point' out
    kill -9 "$held"
    code=0
    wait "$train" || code=$?
    [ "$code" = 0 ] || fail "after a death with two copies of the state, train ends with $code"
    grep -q 'was killed by signal 9 (Killed); started again' out || fail "$where: no death with two copies seen"
    digest "$(store)" >digest
}

# STO-15: every replica does, after its upload; the entry completes from the stored objects, and no
# replica puts anything again.
all_die() {
    n=$((n + 1))
    expect 0 env DIE_AT=after:link:/c/0000000003/ DIE_ONCE="$PWD/once$n" DIE_EACH=1 LD_PRELOAD="$shim" \
        diloco train tiny.toml --store "$(store)" --set "run.state_dir=state$n"
    [ "$(ls once$n?*)" = "$(printf 'once%s%s\n' "$n" r0.0000 "$n" r1.0000)" ] ||
        fail "who has put a contribution to entry 3: $(ls once$n?*)"
    diloco log "$(store)" --from 3 --json | head -1 | grep -q '"members":\["r0.0000","r1.0000"\]' ||
        fail "entry 3 counts other contributions than were stored"
    touch "once$n"
    ended_well "after its upload, and everybody else too"
}

# The hub does; its keeper starts it again.
hub_dies() {
    n=$((n + 1))
    kill -9 "$hub"
    wait "$hub" 2>/dev/null || true
    serve DIE_AT="$2" DIE_ONCE="$PWD/once$n" LD_PRELOAD="$shim"
    diloco train tiny.toml --store "$(store)" --set "run.state_dir=state$n" >out 2>err &
    train=$!
    started="$started $train"
    wait_for test -e "once$n"
    wait "$hub" 2>/dev/null || true
    serve
    code=0
    wait "$train" || code=$?
    [ "$code" = 0 ] || fail "with a hub that died $1, train ends with $code"
    ended_well "$1"
}

# The single committer dies, and then its next generation before it has taken over (PROTOCOL P26). The
# third one takes over from the first.
committer_dies_twice() {
    n=$((n + 1))
    set -- diloco train tiny.toml --store "$(store)" --set "run.state_dir=state$n" \
        --set run.single_committer=r0
    for death in first second; do
        expect 1 env DIE_AT=before:link:/log/0000000004. DIE_ONCE="$PWD/$death$n" LD_PRELOAD="$shim" \
            "$@" --set run.restarts=0
        [ -e "$death$n" ] || fail "$where: no $death death of the committer"
    done
    expect 0 timeout 60 "$@"
    diloco log "$(store)" --json | grep -q 'takes over from r0' || fail "no generation took over"
    expect 0 diloco verify "$(store)"
}

if [ "$where" = beside ] || [ "$where" = lent ]; then
    expect 0 diloco train tiny.toml --store whole_beside --quiet --set server.diloco.overlap_steps=5
    want_beside=$(digest whole_beside)
    [ "$where" = beside ] || export FREE_KB=500
    beside "while its first state is written" amid:write:/r1/local 0
    [ ! -e "once$n.replaces" ] || fail "a saved state existed when r1 died while it wrote its first one"
    beside "between sync and rename of its first state" before:rename:/r1/ 0
    beside "while the copy of a later state is written" amid:write:/r1/local 60 # a write for each tensor
    [ -e "once$n.replaces" ] || fail "no saved state existed when r1 died while it wrote a later one"
    beside "before the written state is synced" before:sync:/r1/local 3
    beside "between sync and rename of its state" before:rename:/r1/ 3
    beside "before its folder is synced" after:rename:/r1/ 3
    beside "after its state was saved, before the upload" after:syncdir:/r1 3
    beside "in the middle of an upload" before:link:/c/0000000003/r1. 0
    beside "after an upload" after:link:/c/0000000003/r1. 0
    beside "in the middle of a commit" before:link:/log/0000000004. 0
    beside "after a commit, before adopting it" after:link:/log/0000000004. 0
    dies_beside "three entries after its last save" after:link:/c/0000000003/r1. 0 --set run.save_every=5
    [ "$where" = lent ] || dies_with_two_copies
elif [ "$where" = file ]; then
    committer_dies_twice
    dies "before upload, its state saved" after:rename:/r1/
    dies "in the middle of an upload" before:link:/c/0000000003/r1.
    dies "after an upload" after:link:/c/0000000003/r1.
    all_die
    dies "in the middle of a commit" before:link:/log/0000000004.
    dies "after a commit, before adopting it" after:link:/log/0000000004.
    dies "in a snapshot, between state and manifest" after:link:/state.safetensors
    dies "in a snapshot, before its manifest" before:link:/manifest.json
    dies "in collection" after:unlink:/c/0000000
else
    [ "$where" = bucket ] || serve
    dies "before upload" before:PUT:/c/0000000003/r1.
    dies "in the middle of an upload" amid:PUT:/c/0000000003/r1.
    dies "after an upload" after:PUT:/c/0000000003/r1.
    dies "in the middle of a commit" amid:PUT:/log/0000000004.
    dies "after a commit, before adopting it" after:PUT:/log/0000000004.
    dies "in a snapshot's state" amid:PUT:/state.safetensors
    dies "in a snapshot, before its manifest" before:PUT:/manifest.json
    dies "in collection" after:DELETE:/c/0000000
fi
if [ "$where" = hub ]; then
    hub_dies "in the middle of a PUT" before:link:/c/0000000003/r1.
    hub_dies "after a PUT, before it answers" after:link:/c/0000000003/r1.
    hub_dies "in the middle of a PUT of the log" before:link:/log/0000000004.
    hub_dies "after a PUT of the log, before it answers" after:link:/log/0000000004.
fi
echo "$where: $n deaths, each run ends in the same bits"
