#!/bin/sh
# Training on token shards that are still arriving: from a server that holds parts of them back, it takes the steps and
# ends where training on files ends. It does so after kill -9, too. An object that changes ends the run.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "left out: there is no python3"; exit 0; }

mkdir web web/data
python3 - <<'PYTHON'
import pathlib
import random
import struct
random.seed(7)
n = 3 << 19  # tokens of 16 bits: 3 MiB
for name in ("a.bin", "b.bin", "c.bin"):
    head = struct.pack("<3i", 20240520, 1, n).ljust(1024, b"\0")
    tokens = b"".join(bytes((random.randrange(200), 0)) for _ in range(n))
    pathlib.Path("web/data", name).write_bytes(head + tokens)
PYTHON
cp -r web/data whole
echo 'not a shard' >web/data/README.md
python3 "$project/tests/e2e/held_server.py" web 2>server.err &
started="$started $!"
wait_for [ -s web/port ]
HF_ENDPOINT=http://127.0.0.1:$(cat web/port)
export HF_ENDPOINT
sed -i 's/^train_path.*/datasource = "tokens"\ntest_fraction = 0.4/; s/^context = 32/context = 32\nvocab = 256/' tiny.toml

train() { diloco train tiny.toml "$@"; }
address=data.train_path=hf://datasets/a/b/
use_cache() { export XDG_CACHE_HOME="$PWD/$1"; }
cached() { echo "$XDG_CACHE_HOME"/diloco/data/*/"$1"; }
expect 0 train --store files --quiet --set data.train_path=whole
want=$(digest files)

# The last shard, which is validation data that no step reads, does not become whole. Training does not wait for it.
use_cache held
echo "c.bin 1600000 1900000" >web/hold
expect 0 train --store early --set $address
[ -s web/held ] || fail "the server held nothing back"
[ ! -e "$(cached files/c.bin)" ] || fail "the last shard is whole"
[ "$(digest early)" = "$want" ] || fail "on arriving shards the run ends elsewhere"
[ "$(json data_digest <early/run.json)" = "$(json data_digest <files/run.json)" ] || fail "another digest of the data"
grep -q '^data: [0-9]* % of 9.4 MB have arrived' out || fail "the progress is not said"

# All of it arrives once it may. Blocks that have arrived are not fetched again. Without a vocabulary all is needed at once.
rm web/hold web/requests
sed -i 's/^vocab = .*//' tiny.toml
expect 0 train --store all --quiet --set $address
grep -q '^c.bin' web/requests || fail "the rest was not fetched"
! grep -q '^[a-z.]* 0 ' web/requests || fail "shards were fetched again: $(cat web/requests)"
for name in a b c; do cmp "$(cached files/$name.bin)" whole/$name.bin || fail "another file"; done
[ -z "$(ls "$(cached arriving)" "$(cached blocks)" | grep bin)" ] || fail "a shard is left as arriving"
sed -i 's/^context = 32/context = 32\nvocab = 256/' tiny.toml

# begin NAME ARGUMENT…: a run whose replicas wait for bytes that are held back, its pid in $parent.
begin() {
    use_cache "$1"
    : >web/held
    echo "a.bin 1300000 1700000" >web/hold
    store=$1
    shift
    # shellcheck disable=SC2086
    diloco train tiny.toml --store "$store" --quiet --set $address "$@" >out 2>err &
    parent=$!
    started="$started $parent"
    wait_for [ -s web/held ]
    wait_for [ -e "$store/run.json" ]
}

# kill -9 while a replica waits for its samples; the same command resumes.
begin killed
replicas=$(children $parent)
kill -9 $parent $replicas
wait $parent || true
rm web/hold
expect 0 train --store killed --quiet --set $address
[ "$(digest killed)" = "$want" ] || fail "after kill -9 the run ends elsewhere"

# Ctrl-C while a replica waits.
begin stopped
kill -INT $parent
code=0
wait $parent || code=$?
[ $code = 130 ] || fail "Ctrl-C ended with $code"
rm web/hold
expect 0 train --store stopped --quiet --set $address
[ "$(digest stopped)" = "$want" ] || fail "after Ctrl-C the run ends elsewhere"

# The object changes meanwhile: the run ends, and names it. The same command fetches the new object.
begin changed --set run.restarts=0
printf 'XY' | dd of=web/data/a.bin bs=1 seek=5000 conv=notrunc 2>/dev/null
rm web/hold
code=0
wait $parent || code=$?
[ $code != 0 ] || fail "a changed object is used"
grep -Eq 'a\.bin (changed while it was read|has changed)' err || fail "the object is not named: $(cat err)"
expect 0 train --store changed --quiet --set $address
# Of two replicas one fetches what no sample needs: no large range is sent twice.
use_cache once
rm web/requests
sed -i 's/^rounds = .*/rounds = 40/' tiny.toml
expect 0 train --store once --quiet --set $address
[ -z "$(awk '$3 - $2 > 262144' web/requests | sort | uniq -d)" ] || fail "fetched twice: $(cat web/requests)"
