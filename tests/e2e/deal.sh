#!/bin/sh
# data.deal = "log" through kill -9, a joiner and a stop: every dealt sample counts exactly once, by
# the lists of the contributions that entries name, and by the last snapshot's ledger.
. "$(dirname "$0")/lib.sh"

sed -i 's/^rounds = 6/rounds = 30/; s/^replicas = 2/replicas = 2\nretain = "all"/' tiny.toml
echo 'deal = "log"' >>tiny.toml

# exact STORE: prints counted samples and how many replicas they are from.
exact() {
    python3 - "$1" <<'PYTHON' || fail "$1: the samples that count are not each of one member once"
import glob, json, struct, sys
store, counted, who = sys.argv[1], [], set()
for path in sorted(glob.glob(store + "/log/*.json")):
    entry = json.load(open(path))
    for m in entry["members"] if entry["kind"] == "commit" else []:
        header = open("%s/c/%010d/%s" % (store, entry["entry"], m["life"]), "rb").read(512)
        n, each, *first = struct.unpack_from("<18Q", header, 304)
        assert n == 1 + m.get("held", 0) and n * each == m["samples"] > 0, (m, n, each)
        counted += [(f, f + each) for f in first[:n]]
        who.add(m["life"].split(".")[0])
counted.sort()
for a, b in zip(counted, counted[1:]):
    assert a[1] <= b[0], ("counted twice", a, b)
ledger = json.load(open(sorted(glob.glob(store + "/snap/*/*/manifest.json"))[-1]))["ledger"]
free = sum(end - first for first, end in ledger["returned"])
free += sum(d["each"] * n for d in ledger["deals"] for _, n in d["chunks"])
total = sum(end - first for first, end in counted)
assert total + free == ledger["cursor"], (total, free, ledger["cursor"])
print(total, len(who))
PYTHON
}

# Undisturbed: 30 entries of two replicas, 20 steps of 2 samples each.
expect 0 diloco train tiny.toml --store whole --quiet
[ "$(exact whole)" = "2400 2" ] || fail "undisturbed: $(exact whole)"
want=$(digest whole)

# Killed and started again, with on_missing = wait: the same samples, the same bits.
diloco train tiny.toml --store cut >out 2>err &
parent=$!
started=$parent
for entry in 3 9 15; do
    wait_for has_entry cut $entry
    kill -9 "$(children $parent | cut -d' ' -f$((1 + entry / 3 % 2)))" 2>/dev/null || true
done
code=0
wait $parent || code=$?
[ $code = 0 ] || fail "with replicas killed, exit code $code"
[ "$(exact cut)" = "2400 2" ] || fail "killed: $(exact cut)"
[ "$(digest cut)" = "$want" ] || fail "with replicas killed, the run ends elsewhere"

# A third joins while one of the two is killed for good; entries commit with the replicas present.
cat >>tiny.toml <<'TOML'
sampler = "whole"
TOML
sed -i 's/^retain.*/retain = "all"\nrestarts = 0\non_missing = "commit_partial"\ndeadline = 0.3/' tiny.toml
sed -i 's/^rounds = 30/rounds = 200/; s/^patience = 5/patience = 1.5/' tiny.toml
diloco train tiny.toml --store some --set trainer.local_steps_per_round=10 >out 2>err &
parent=$!
started="$started $parent"
wait_for has_entry some 5
diloco join some --set data.train_path=text.txt --set run.state_dir=elsewhere >joined 2>&1 &
joiner=$!
started="$started $joiner"
wait_for grep -qs '"life":"r2\.' -r some/log
kill -9 "$(children $parent | cut -d' ' -f2)"
wait $parent || true
code=0
wait $joiner || code=$?
[ $code = 0 ] || fail "the joiner's exit code is $code: $(tail -3 joined)"
expect 0 diloco verify some
exact some >sum
grep -q ' 3$' sum || fail "three replicas took part, not: $(cat sum)"

# A promise that cannot be kept is refused, or reported.
expect_error 3 'async" has none' diloco train tiny.toml --preset async --store a
expect_error 3 'data.sampler' diloco train tiny.toml --set data.sampler=contiguous --store a
expect 0 diloco train tiny.toml --store streams --set trainer.rounds=2 \
    --set server.diloco.overlap_steps=1 --set run.on_missing=wait
grep -q 'dealt once' out err || fail "with overlap nobody says what is promised"

# Other data than the run's is not what the log deals.
tail -c 40000 text.txt >other.txt
expect 1 diloco train tiny.toml --store some --set data.train_path=other.txt \
    --set trainer.local_steps_per_round=10
says "is not the data that the log assigns"
