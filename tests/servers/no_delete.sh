#!/bin/sh
# no_delete.sh PROGRAM: a store without permission to delete (NO_DELETE of gcs_fake.py) holds a run
# that keeps all. A read-only store works for every command that only reads (R-22).
. "$(dirname "$0")/../e2e/lib.sh"

place() { # NAME
    printf '%s' "${CLOUD_TEST_URL%%\?*}/$1?${CLOUD_TEST_URL#*\?}"
}
sed -i 's/^patience = .*/patience = 240/' tiny.toml
rm -f "$NO_DELETE"
url=$(place kept)
expect 0 diloco train tiny.toml --store "$url" --set run.retain=all --set run.snapshot_every=0.05
cat out err | grep -q "the probe's objects stay" || fail "the probe could delete, or nobody said that it could not"
expect 0 diloco verify "$url"
grep -q '6 replayed from entry 0' out || fail "not all is kept"
touch "$NO_DELETE" # from here on it refuses writes, too
expect 0 diloco status "$url"
expect 0 diloco log "$url"
[ "$(wc -l <out)" = 6 ] || fail "the log of a store that is read only"
expect 0 diloco verify "$url"
expect_error 3 "do not allow that" diloco train tiny.toml --store "$(place refused)" --quiet
