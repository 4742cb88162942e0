#!/bin/sh
# coord.sh PROGRAM: a folder whose coord is a hub. The creator of the run names the hub; a reader of
# the run in run.json sends no token there unless it is listed.
. "$(dirname "$0")/lib.sh"

port=$(python3 "$project/tests/free_port.py")
diloco serve hub --listen 127.0.0.1:$port >serve.out 2>serve.err &
started=$!
wait_for grep -q '^serving ' serve.out
hub=http://127.0.0.1:$port
expect 0 diloco train tiny.toml --store alone --quiet
expect 0 diloco train tiny.toml --store bulk --coord $hub/run --quiet
expect 0 diloco train tiny.toml --store bulk --coord $hub/run --quiet # complete

for command in status log verify takeover rm; do
    expect_error 3 "DILOCO_COORDS=$hub" diloco $command bulk
done
DILOCO_COORDS=http://127.0.0.1:1,https://127.0.0.1:$port,${hub}0
export DILOCO_COORDS
expect_error 3 "DILOCO_COORDS=$hub" diloco verify bulk
DILOCO_COORDS=http://127.0.0.1:1,$hub
expect 0 diloco status bulk
[ "$(digest bulk)" = "$(digest alone)" ] || fail "with a coord it ends in other bits"
[ ! -e bulk/log ] || fail "the folder has a log of its own"
unset DILOCO_COORDS

# A CONFIG that names it is enough; a replica that joins by the url lists it.
sed "s|^\[run\]|[run]\nstore = \"bulk\"\ncoord = \"$hub/run\"|" tiny.toml >named.toml
for command in status log verify; do
    expect 0 diloco $command named.toml
done
given="--set data.train_path=text.txt --set run.state_dir=s --quiet"
expect_error 3 "DILOCO_COORDS" diloco join bulk $given
expect 0 env DILOCO_COORDS=$hub/run diloco join bulk $given

# rm is refused by a coord that keeps its log, and then takes nothing of either part.
expect_error 3 "DILOCO_COORDS=$hub" diloco rm bulk
expect_error 3 'nothing was removed' diloco rm named.toml
expect 0 diloco verify named.toml
