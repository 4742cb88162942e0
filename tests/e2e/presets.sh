#!/bin/sh
# Every preset that is listed runs to its end, and its log verifies.
. "$(dirname "$0")/lib.sh"

expect 0 diloco presets --json
names=$(tr '{' '\n' <out | sed -n 's/.*"name":"\([a-z_]*\)".*/\1/p')
[ "$(echo "$names" | wc -w)" -ge 4 ] || fail "no presets: $names"
sed -i -e '/^preset/d' -e '/^replicas/d' -e '/^local_steps/d' tiny.toml
for preset in $names; do
    h=5
    [ "$preset" != data_parallel ] || h=1
    p=1
    [ "$preset" != streaming ] || p=0
    [ "$preset" != decoupled ] || p=4 # the tiny model has not enough tensors for 24
    n=2
    [ "$preset" != single ] || n=1
    [ "$preset" != swarm ] || n=4 # its min_peers
    expect 0 diloco train tiny.toml --preset "$preset" --store "$preset" --quiet \
        --set server.diloco.fragments=$p --set trainer.local_steps_per_round=$h --replicas $n
    case $preset in
    swarm | noloco) # without a log
        expect 0 diloco status "$preset" --json
        [ "$(grep -o '"done":true' out | wc -l)" = $n ] || fail "$preset: not every node is done"
        continue
        ;;
    esac
    [ -n "$(digest "$preset")" ] || fail "$preset: no digest"
    expect 0 diloco status "$preset" --json
    [ "$(json preset <out)" = "$preset" ] || fail "$preset is not what the run says"
    [ "$(json done <out)" = true ] || fail "$preset is not complete"
done

# data_parallel trains by Muon if both options name it, and its log verifies.
set -- --preset data_parallel --set server.diloco.fragments=1 --set trainer.local_steps_per_round=1 \
    --set trainer.optimizer=muon --quiet --replicas 2
expect_error 3 'set both to the same one' diloco train tiny.toml --store refused "$@"
expect 0 diloco train tiny.toml --store muon "$@" --set server.diloco.outer_optimizer=muon
expect 0 diloco verify muon
[ "$(digest muon)" != "$(digest data_parallel)" ] || fail "muon trained as adamw"
