#!/bin/sh
# coord.sh PROGRAM: a run whose log is in etcd and whose tensors are in a folder ends in the bits of
# one in a folder alone. It does so undisturbed, and with replicas killed and etcd restarted during
# it. The others read etcd's URL in run.json. No server but etcd.sh's.
. "$(dirname "$0")/../e2e/lib.sh"

etcd=etcd://$ETCD_TEST_HOST
sed -i -e 's/^replicas = 2/replicas = 3/' -e 's/^rounds = 6/rounds = 60/' \
    -e 's/^patience = .*/patience = 240/' tiny.toml
expect 0 diloco train tiny.toml --store alone --quiet

expect 0 diloco train tiny.toml --store calm --coord "$etcd/calm" --quiet
[ "$(digest calm)" = "$(digest alone)" ] || fail "with etcd the run ends in other bits"
[ ! -e calm/log ] && [ ! -e calm/hb ] && [ ! -e calm/gen ] || fail "the log is in the folder"
expect 0 diloco log calm --json
[ "$(wc -l <out)" = 60 ] || fail "the log does not show"
expect 0 diloco status calm
grep -q '60 commits' out || fail "status does not show them"
expect 0 diloco train tiny.toml --store calm --coord "$etcd/calm" --quiet

# Under faults: one replica after the other is killed, and etcd in between.
diloco train tiny.toml --store rough --coord "$etcd/rough" --set run.restarts=9 --quiet 2>err &
run=$!
started=$run
commits() {
    [ "$(diloco log rough --json 2>/dev/null | wc -l)" -ge "$1" ]
}
for at in 3 8 13; do
    wait_for commits $at
    # Running replicas wait for etcd. One that begins gives up after 2 seconds, so it is killed later.
    [ $at != 8 ] || sh "$ETCD_TEST_RESTART"
    set -- $(children $run)
    [ $# -gt 0 ] && kill -9 "$1" || fail "no replica was left to kill after $at commits"
done
wait $run || fail "the run did not finish"
started=
[ "$(digest rough)" = "$(digest alone)" ] || fail "the disturbed run ends in other bits"

# A replica that names another coord, or none, gets an error.
expect 0 diloco train tiny.toml --store rough --quiet
expect 2 diloco train tiny.toml --store rough --coord nowhere://x --quiet
says "no nowhere:// stores"
cp -r calm moved
sed -i 's/^replicas = 3/replicas = 1/' tiny.toml
expect 0 diloco train tiny.toml --store other --coord "$etcd/other" --quiet
cp other/run.json moved/run.json
expect 0 diloco status moved
rm -r moved && cp -r alone moved
expect_error 1 "two different runs" diloco train tiny.toml --store moved --coord "$etcd/other" --quiet
