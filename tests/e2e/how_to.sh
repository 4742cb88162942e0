#!/bin/sh
# The recipes of docs/how-to that need one machine work as they are printed (blocks.sh), each in a folder
# with a text.txt and a run.toml.
. "$(dirname "$0")/lib.sh"
. "$project/tests/e2e/blocks.sh"

export XDG_CONFIG_HOME="$work/config" # this machine's own key stays out
run=0
for path in "$project"/docs/how-to/*.md; do
    grep -q '^ *```sh runnable' "$path" || continue
    run=$((run + 1))
    mkdir "$work/here/$run"
    cd "$work/here/$run"
    cp ../text.txt .
    cp ../tiny.toml run.toml
    run_blocks "$path"
done
[ $run -ge 3 ] || fail "only $run pages have runnable blocks"
