#!/bin/sh
# data.sh PROGRAM: training data in the bucket of CLOUD_TEST_URL, small objects and one that is read in ranges. A run over
# it ends where one over the same files ends, and its keys are in no file.
. "$(dirname "$0")/../e2e/lib.sh"

sed -i 's/^patience = .*/patience = 240/' tiny.toml
mkdir shards
for i in $(seq 300); do cat text.txt; done >shards/a.txt
head -c 1000 text.txt >shards/b.txt
python3 - "$project/tests/servers" <<'PYTHON'
import pathlib
import sys
sys.path.insert(0, sys.argv[1])
import s3_admin
for name in ("a.txt", "b.txt"):
    status, text = s3_admin.request("PUT", "/bucket/shards/" + name, pathlib.Path("shards", name).read_bytes())
    assert status == 200, (status, text)
PYTHON
export XDG_CACHE_HOME="$PWD/cache"
address="${CLOUD_TEST_URL%%\?*}/shards/?${CLOUD_TEST_URL#*\?}"
expect 0 diloco train tiny.toml --store files --quiet --set data.train_path=shards
expect 0 diloco train tiny.toml --store fetched --quiet --set "data.train_path=$address"
[ "$(digest fetched)" = "$(digest files)" ] || fail "over fetched data the run ends elsewhere"
cmp cache/diloco/data/*/files/a.txt shards/a.txt || fail "not the same bytes"
! grep -rqF "$AWS_SECRET_ACCESS_KEY" . || fail "the secret was written somewhere"
