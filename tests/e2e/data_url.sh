#!/bin/sh
# Training data at the address of a store: fetched once into a cache that replicas share. A stopped fetch continues, a
# damaged file is fetched again, and the run ends where one over files ends.
. "$(dirname "$0")/lib.sh"
here=$PWD
mkdir -p shards/deeper hollow/deeper
head -c 30000 text.txt >shards/a.txt
tail -c +30001 text.txt >shards/b.txt
echo 'not a part' >shards/deeper/c.txt
echo 'not a part' >hollow/deeper/c.txt
export XDG_CACHE_HOME="$here/cache"
address=file://$here/shards/

train() { diloco train tiny.toml --quiet "$@"; }
expect 0 train --store files --set data.train_path=shards/a.txt,shards/b.txt
expect 0 train --store fetched --set "data.train_path=$address"
[ "$(digest fetched)" = "$(digest files)" ] || fail "over fetched data the run ends elsewhere"
folder=$(echo cache/diloco/data/*)
[ "$(ls "$folder/files")" = "a.txt
b.txt" ] || fail "not the objects below the prefix: $(ls "$folder/files")"
[ ! -e "$folder/part" ] || fail "a part is left"

# Nothing is fetched a second time; a damaged and a missing file are.
number() { stat -c %i "$folder/files/$1"; }
a=$(number a.txt)
b=$(number b.txt)
expect 0 diloco eval fetched --set "data.train_path=$address"
[ "$(number a.txt)$(number b.txt)" = "$a$b" ] || fail "fetched a second time"
printf X | dd of="$folder/files/b.txt" bs=1 seek=100 conv=notrunc 2>/dev/null
expect 0 diloco eval fetched --set "data.train_path=$address"
[ "$(number a.txt)" = "$a" ] || fail "a whole file was fetched again"
cmp -s "$folder/files/b.txt" shards/b.txt || fail "a damaged file is used"

# A fetch that ended in the middle: whole files stay, and the part is no file.
rm "$folder/files/b.txt"
head -c 100 shards/b.txt >"$folder/part"
expect 0 diloco eval fetched --set "data.train_path=$address"
[ "$(number a.txt)" = "$a" ] || fail "a whole file was fetched again after a stop"
cmp -s "$folder/files/b.txt" shards/b.txt || fail "the rest of a stopped fetch is not there"

# A file whose object is gone is not read.
echo more >"$folder/files/old.txt"
expect 0 diloco eval fetched --set "data.train_path=$address"
[ ! -e "$folder/files/old.txt" ] || fail "a file without its object is still there"

# One object, another folder, and a list of both kinds.
expect 0 train --store one --set "data.train_path=file://$here/shards/a.txt, shards/b.txt" --set data.cache=elsewhere
[ "$(digest one)" = "$(digest files)" ] || fail "over one object and one file the run ends elsewhere"
cmp -s elsewhere/*/files/a.txt shards/a.txt || fail "data.cache is not used"

# A web address on this machine: one object of a server that does no ranges.
if command -v python3 >/dev/null; then
    port=$(python3 "$project/tests/free_port.py")
    python3 -m http.server "$port" --bind 127.0.0.1 --directory shards >serve.out 2>&1 &
    started="$started $!"
    answers() { python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "$1" 2>/dev/null; }
    wait_for answers "$port"
    expect 0 train --store web --set "data.train_path=http://127.0.0.1:$port/a.txt,shards/b.txt"
    [ "$(digest web)" = "$(digest files)" ] || fail "over an object of the web and one file the run ends elsewhere"
    expect_error 2 'HTTP has no listing' train --store no --set "data.train_path=http://127.0.0.1:$port/"
    expect_error 1 'fetch http://127.0.0.1' train --store no --set "data.train_path=http://127.0.0.1:$port/none.txt"
fi

# Replicas that are launched fetch by themselves; the launcher gives them the address.
expect 0 diloco launch tiny.toml --store launched --quiet --set "data.train_path=$address" --set launch.poll=0.1
[ "$(digest launched)" = "$(digest files)" ] || fail "a launched run over fetched data ends elsewhere"
expect 0 diloco launch tiny.toml --store new --dry-run --set data.train_path=s3://nowhere/shards/
grep -q 'data.train_path=s3://nowhere/shards/' out || fail "not the address"

# Addresses that cannot be fetched are named.
expect_error 1 'no.txt is not in store' \
    diloco train tiny.toml --store no --set "data.train_path=file://$here/shards/no.txt"
expect_error 1 'no object is directly below this prefix' \
    diloco train tiny.toml --store no --set "data.train_path=file://$here/hollow/"
expect_error 2 'data and models are read from s3://' diloco train tiny.toml --store no --set data.train_path=http://x/y
expect_error 2 'data.cache: there is no home folder' env -u XDG_CACHE_HOME -u HOME \
    diloco train tiny.toml --store no --set "data.train_path=$address"
