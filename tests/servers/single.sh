#!/bin/sh
# single.sh PROGRAM: in a store that the probe refuses a run trains with one declared committer, to
# the bits of a run in a folder. A committer that is started again resumes by itself. One that is
# gone for good is replaced by hand, with takeover (R-1).
. "$(dirname "$0")/../e2e/lib.sh"

place() { # NAME
    printf '%s' "${CLOUD_TEST_URL%%\?*}/$1?${CLOUD_TEST_URL#*\?}"
}
sed -i 's/^patience = .*/patience = 240/' tiny.toml
expect 0 diloco train tiny.toml --store alone --quiet

# Without the option the store is refused, and the way out is said.
expect_error 3 "single_committer" diloco train tiny.toml --store "$(place refused)" --quiet

# One committer, killed on the way and started again by its starter: it takes over from itself.
single="--set run.single_committer=r0 --quiet"
url=$(place one)
diloco train tiny.toml --store "$url" --set trainer.rounds=60 --set run.state_dir=one $single 2>err &
run=$!
started=$run
entries() { # URL
    diloco log "$1" --json 2>/dev/null | wc -l
}
has_entries() { # URL N
    [ "$(entries "$1")" -ge "$2" ]
}
wait_for has_entries "$url" 2
set -- $(children $run)
[ $# -gt 0 ] && kill -9 "$1" || fail "the run ended before a replica was killed"
wait $run || fail "the run did not finish"
started=
expect 0 diloco verify "$url"
expect 0 diloco log "$url" --json
grep -q 'takes over from r0' out || fail "no life took over"
! grep -q '"committer":"r1' out || fail "r1 has committed"
expect_error 2 "complete" diloco takeover "$url"

# Undisturbed it ends in the bits of the folder.
url=$(place calm)
expect 0 diloco train tiny.toml --store "$url" --set run.state_dir=calm $single
[ "$(digest "$url")" = "$(digest alone)" ] || fail "it ends in other bits"

[ -z "${CLOUD_TEST_SHORT:-}" ] || exit 0

# The committer dies for good: the other waits, takes over by command, and continues to the end.
url=$(place moved)
long="--set trainer.rounds=20 --set run.restarts=0 --set run.deadline=3 --set run.min_replicas=1
    --set run.patience=5"
diloco train tiny.toml --store "$url" --set run.state_dir=m0 --replicas 1 $long $single 2>err0 &
first=$!
started=$first
has_r0() { # so that the other takes another name
    diloco status "$url" 2>/dev/null | grep -q '^r0'
}
wait_for has_r0
diloco join "$url" --set data.train_path=text.txt --set run.state_dir=m1 --quiet 2>err1 &
second=$!
started="$first $second"
wait_for has_entries "$url" 2
set -- $(children $first)
[ $# -gt 0 ] && kill -9 "$@" || fail "r0 ended before it was killed"
wait $first && fail "the first should have failed"
# The store may still hold an entry of r0 that it has not stored.
n=
until [ "$n" = "$(entries "$url")" ]; do
    n=$(entries "$url")
    sleep 1
done
expect_error 2 "is the committer already" diloco takeover "$url"
expect_error 1 "no replica r9" diloco takeover "$url" --replica r9
[ "$(entries "$url")" = "$n" ] || fail "somebody decided without being told to"
expect 0 diloco takeover "$url" --replica r1
wait $second || fail "the second did not finish: $(cat err1)"
started=
expect 0 diloco verify "$url"

expect 0 diloco log "$url" --json
tail -1 out | grep -q '"committer":"r1' || fail "r1 did not end the run"
