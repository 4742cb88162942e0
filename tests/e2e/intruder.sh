#!/bin/sh
# A writer without a key, in the folder of a run of keys (tests/hostile/plant.py): objects of every
# kind under names of every pattern. The run is stopped, they are put, and it goes on to its end;
# status, log and verify read it. SWM-28
. "$(dirname "$0")/lib.sh"
export XDG_CONFIG_HOME="$work/config"
expect 0 diloco id
key=$(cat out)
printf 'r0 %s\nr1 %s\n' "$key" "$key" >members
sed -i 's/^rounds = 6/rounds = 8/; s/^local_steps_per_round = 20/local_steps_per_round = 5/' tiny.toml

# intrude ROSTER KIND: the run ends with all of its entries, and every reader reads it.
intrude() {
    roster=$1 kind=$2 store=$1.$2
    set -- train tiny.toml --store "$store" --quiet --set run.roster="$roster"
    [ "$roster" != closed ] || set -- "$@" --set run.members=members
    diloco "$@" >train.out 2>&1 &
    train=$!
    started="$started $train"
    wait_for has_entry "$store" 1
    kill -INT "$train" 2>/dev/null || true
    wait "$train" || true
    planted=$(python3 "$project/tests/hostile/plant.py" "$kind" "$store")
    expect 0 diloco "$@"
    expect 0 diloco status "$store" --json
    [ "$(json entries <out)" = 8 ] || fail "$store: not all entries: $(cat out)"
    expect 0 diloco log "$store"
    # Entries that are not a committer's are void, and an audit says which; it finds nothing else.
    code=0
    diloco verify "$store" >out 2>err || code=$?
    [ $code = 0 ] || grep -q 'entry [0-9]* is void' err || fail "verify fails on $store: $(cat err)"
    echo "$store: $planted"
    rm -rf "$store"
}

for kind in empty short huge folder pipe another earlier crowd; do
    intrude closed $kind
done
intrude open mixed
intrude invited mixed
