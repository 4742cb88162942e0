#!/bin/sh
# rm: a run goes with the private state of its replicas, nothing else goes, and nothing goes while a
# replica is alive.
. "$(dirname "$0")/lib.sh"

expect 0 diloco train tiny.toml --quiet
[ -e runs/tiny.local ] || fail "there is no private state"

# The folder alone is gone: the next run is refused before it is created, and the way out is named.
rm -rf runs/tiny
expect_error 1 "remove it with  diloco rm runs/tiny " diloco train tiny.toml
[ ! -e runs/tiny ] || fail "a refused run was created"
expect 0 diloco rm runs/tiny
grep -q '^removed runs/tiny.local/.*/r0$' out || fail "what was removed is not named"
[ -z "$(ls -A runs)" ] || fail "rm left $(ls -A runs)"
expect 0 diloco train tiny.toml --quiet

# A whole run, by its configuration. A file that is not the program's stays.
echo mine >runs/tiny/notes.txt
mkdir runs/tiny/log/old
echo mine >runs/tiny/log/old/notes.txt
expect 0 diloco rm tiny.toml
grep -q '^removed the run in runs/tiny: [0-9]* objects$' out || fail "the run is not named"
grep -q 'runs/tiny is kept: Directory not empty' err || fail "the folder that is kept is not named"
[ "$(find runs -type f | sort | tr '\n' ' ')" = 'runs/tiny/log/old/notes.txt runs/tiny/notes.txt ' ] ||
    fail "rm left or took other files: $(find runs)"
rm -r runs/tiny

# run.json alone is lost: no command creates a run over the old log or advises to delete state. It can
# be restored, or what is left can be removed.
expect 0 diloco train tiny.toml --quiet
mv runs/tiny/run.json kept.json
before=$(find runs | sort)
for command in "train tiny.toml" "join runs/tiny" "status runs/tiny"; do
    expect_error 1 'runs/tiny has a log but no run.json' diloco $command
    [ "$(find runs | sort)" = "$before" ] || fail "$command changed the store or the state"
done
cp kept.json runs/tiny/run.json
expect 0 diloco train tiny.toml --quiet
rm runs/tiny/run.json
expect 0 diloco rm runs/tiny
[ -z "$(ls -A runs)" ] || fail "rm left of the rest of a run: $(find runs)"

# Nothing is there, or no run.
expect_error 1 'runs/tiny holds no run' diloco rm runs/tiny
mkdir folder
echo mine >folder/notes.txt
expect_error 1 'folder holds no run' diloco rm folder
[ -e folder/notes.txt ] || fail "rm took a file of no run"
expect_error 2 'an empty one is given' diloco rm ''

# A replica is alive here.
diloco train tiny.toml --set trainer.rounds=100000 --quiet >train.out 2>&1 &
parent=$!
started="$started $parent"
wait_for has_entry runs/tiny 0
expect_error 3 'is running here' diloco rm runs/tiny
kill -INT "$parent"
wait "$parent" || true
# ... or elsewhere: its state folder is not here, its heartbeat changes.
diloco train tiny.toml --set trainer.rounds=100000 --set run.state_dir=away --quiet --store s \
    >train.out 2>&1 &
parent=$!
started="$started $parent"
wait_for has_entry s 0
expect_error 3 'of the run in s is alive on' diloco rm s
mv s/run.json kept.json # without it, too
expect_error 3 'a replica of the run that was in s is alive' diloco rm s
mv kept.json s/run.json
kill -INT "$parent"
wait "$parent" || true
has_entry s 0 || fail "a refused rm took an entry"
expect 0 diloco rm s --set run.state_dir=away
[ ! -e s ] && [ ! -e away ] || fail "rm left $(ls -A s away)"
expect 0 diloco rm runs/tiny
[ -z "$(ls -A runs)" ] || fail "rm left $(ls -A runs)"

# A run of a hub, by its URL.
port=$(python3 "$project/tests/free_port.py")
diloco serve hub --listen "127.0.0.1:$port" >serve.out 2>serve.err &
started="$started $!"
wait_for grep -q '^serving ' serve.out
url=http://127.0.0.1:$port/team/tiny
expect 0 diloco train tiny.toml --store "$url" --quiet
expect_error 3 'remove this one on the hub' diloco rm "$url"
expect 0 diloco verify "$url"
expect 0 diloco rm hub/team/tiny
[ -z "$(find hub -type f ! -path '*/.tmp/*')" ] || fail "rm left in the hub: $(find hub -type f)"
expect 0 diloco rm "$url" # its rest here
[ -z "$(ls -A runs)" ] || fail "rm left $(ls -A runs)"
expect_error 1 "$url holds no run" diloco rm "$url"
