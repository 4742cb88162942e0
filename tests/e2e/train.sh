#!/bin/sh
# A whole run by the program, in a folder: the lines, the JSON, the record, and every command that
# reads it (SWM-15).
. "$(dirname "$0")/lib.sh"

expect 0 diloco train tiny.toml --record record.jsonl
grep -q '^run .* in runs/tiny: preset diloco, .* parameters, 0 of 6 entries done$' out || fail start
grep -q '^2 replicas here of 2, 1 thread each on ' out || fail "the threads are not said"
[ "$(grep -c '^entry ' out)" = 6 ] || fail "not one line an entry"
[ "$(grep -c '^after .* entr[a-z]*: validation loss ' out)" = 6 ] || fail "not one line an evaluation"
# ALG-5: the outer step goes where training went, so the shared model gets better.
sed -n 's/^after .*validation loss \([0-9.]*\),.*/\1/p' out |
    awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first - 0.1) }' ||
    fail "the shared model does not learn"
grep -q '^done: 6 entries, 240 steps and 15,360 tokens here, ' out || fail end
grep -q 'check it: diloco verify runs/tiny$' out || fail "verifying is not offered"
[ ! -s err ] || fail "something was said on stderr"
for event in run step contribution commit eval end; do
    grep -q "\"event\":\"$event\"" record.jsonl || fail "no $event in the record"
done
[ "$(grep -c '"event":"step"' record.jsonl)" = 240 ] || fail "not every step is in the record"

# STO-3: two processes, and each entry one digest of both, the last one too.
for event in commit end; do
    grep "\"event\":\"$event\"" record.jsonl | sed 's/.*"entry":\([0-9]*\),.*"digest":"\([0-9a-f]*\)".*/\1 \2/' >$event
done
[ "$(wc -l <commit)" = 12 ] && [ "$(sort -u commit | wc -l)" = 6 ] || fail "the replicas fold other states"
[ "$(wc -l <end)" = 2 ] && [ "$(sort -u end | wc -l)" = 1 ] || fail "the replicas end in other states"

# The same command again: nothing is left to do, and nothing changes.
before=$(digest runs/tiny)
expect 0 diloco train tiny.toml
[ "$(digest runs/tiny)" = "$before" ] || fail "a finished run changed"

expect 0 diloco status runs/tiny
grep -q '^entries    6 of 6 (6 commits, 0 aborts).*the run is complete$' out || fail status
grep -q '^r1 ' out || fail "status does not show r1"
expect_error 1 'writing the output: No space left' sh -c 'diloco status runs/tiny >/dev/full'
expect 0 diloco status tiny.toml --json
[ "$(json entries <out)" = 6 ] || fail "status --json"

expect 0 diloco log runs/tiny
[ "$(wc -l <out)" = 6 ] || fail "log has not 6 lines"
expect 0 diloco log runs/tiny --from 4 --json
[ "$(wc -l <out)" = 2 ] && [ "$(json kind <out)" = commit ] || fail "log --from --json"
expect 0 diloco log runs/tiny --from 6
grep -q 'the log has 6 entries, counted from 0: none from 6' err || fail "log says nothing of its end"
expect 0 diloco log runs/tiny --last 2 --json
[ "$(json entry <out)" = 4 ] && [ "$(wc -l <out)" = 2 ] || fail "log --last --json"
expect 0 diloco log runs/tiny --last 99
[ "$(wc -l <out)" = 6 ] || fail "log --last has not all entries of a short log"

# A lost entry is not the end of the log.
mv runs/tiny/log/0000000002.json lost.json
expect 1 diloco log runs/tiny
[ "$(wc -l <out)" = 2 ] || fail "log does not show the entries before the gap"
grep -q 'entry 2 is missing, and entry 5 exists: the log has a gap' err || fail "log says nothing of the gap"
expect 1 diloco log runs/tiny --last 4 --json
[ ! -s out ] || fail "log shows an entry that is not there"
expect 0 diloco log runs/tiny --from 3
cp -r runs/tiny gap && rm -r gap/snap # a status counts entries from the newest snapshot on
expect 0 diloco status gap
grep -q '^log .*entry 2 is missing' out || fail "status says nothing of the gap"
printf junk >runs/tiny/log/0000000002.json # nor is one that cannot be read
expect 0 diloco log runs/tiny
grep -q '^ *2  abort   void: it cannot be read: [^;]*$' out && ! grep -q ' by $' out ||
    fail "an entry that cannot be read has contributors or a committer"
mv lost.json runs/tiny/log/0000000002.json

expect_error 2 'take hf, npz, gguf, peft or dcp' diloco export runs/tiny --to foo --out x
expect_error 2 '--last 0 shows no entry' diloco log runs/tiny --last 0
expect_error 2 '--last -1 is not a whole number' diloco log runs/tiny --last -1
expect_error 2 'give one' diloco log runs/tiny --last 2 --from 3
expect_error 2 '--last has no effect' diloco log runs/tiny --last 2 --moved 5
expect_error 2 '--from has no effect' diloco log runs/tiny --from 2 --moved 5
expect 0 diloco log runs/tiny --moved 5
grep -q '^model.embed_tokens.weight .* norm [0-9]' out || fail "log --moved"
expect 0 diloco log runs/tiny --moved 5 --json
[ "$(json entry <out)" = 5 ] && [ -n "$(json largest <out)" ] || fail "log --moved --json"
expect_error 1 'and no entry 6' diloco log runs/tiny --moved 6

expect 0 diloco verify runs/tiny
grep -q '^verified: 6 entries chained, 6 replayed from entry 0 (6 commits, 0 aborts, 0 void)' out || fail verify
grep -q "$before" out || fail "verify does not say the digest"

# From the oldest snapshot on nothing needs the entries before it, which are not there.
expect 0 diloco train tiny.toml --store runs/kept --quiet --set run.retain=all \
    --set run.snapshot_every=0.001 --set trainer.local_steps_per_round=2 --set trainer.rounds=60
rm -rf runs/kept/snap/0000000001 runs/kept/log/0000000000.json
first=$(ls runs/kept/snap | sed -n '1s/^0*//p')
[ "$first" -lt 60 ] || fail "no snapshot before the end"
expect 0 diloco verify runs/kept --from-snapshot
n=$((60 - first))
grep -q "^verified: $n entries chained from entry $first, $n replayed from entry $first " out ||
    fail "verify --from-snapshot"
grep -q "^entries before $first were not read, " out || fail "it is not said what was not read"
expect 0 diloco verify runs/kept --from-snapshot --json
[ "$(json first_chained <out)" = "$first" ] || fail "verify --from-snapshot --json"
expect 0 diloco log runs/kept --last 3
[ "$(wc -l <out)" = 3 ] || fail "log --last reads entries before the last"
expect_error 1 'entry 0 is missing' diloco verify runs/kept

expect 0 diloco eval tiny.toml
grep -q '^after 6 entries: validation loss [0-9]' out || fail eval
expect 0 diloco eval runs/tiny --set data.train_path=text.txt --json
[ -n "$(json perplexity <out)" ] || fail "eval --json"
expect_error 2 'data.train_path' diloco eval runs/tiny

# A run elsewhere than the file says: --set names it, and nothing else is looked at.
mv runs/tiny moved
expect 0 diloco eval tiny.toml --set run.store=moved --json
[ "$(json store <out)" = moved ] || fail "eval looks elsewhere than --set run.store says"
expect_error 2 'keep one' diloco eval moved --set run.store=runs/tiny --set data.train_path=text.txt
expect_error 2 "is the run's" diloco eval tiny.toml --set trainer.rounds=3
mv moved runs/tiny

expect 0 diloco sample tiny.toml --prompt 'the ' --tokens 40 --temperature 0
[ "$(wc -c <out)" = 45 ] || fail "sample is not prompt, 40 bytes and a newline"
cp out first
expect 0 diloco sample tiny.toml --prompt 'the ' --tokens 40 --temperature 0
cmp -s out first || fail "the likeliest text is not the same twice"

expect 0 diloco data tiny.toml
grep -q '^shards    2, of ' out || fail data
expect 0 diloco doctor tiny.toml --json
[ "$(json local_replicas <out)" = 2 ] || fail "doctor CONFIG --json"
expect 0 diloco doctor runs/tiny
grep -q '1 of 8 concurrent creates' out || fail "doctor STORE"
[ ! -e runs/tiny/probe ] || [ -z "$(ls runs/tiny/probe)" ] || fail "the probe left something"

# One object at the end on stdout, progress on stderr.
expect 0 diloco train tiny.toml --store b --json
[ "$(wc -l <out)" = 1 ] && [ "$(json status <out)" = done ] || fail "train --json"
[ "$(json digest <out)" = "$before" ] || fail "the same command elsewhere ends elsewhere"
[ "$(json steps <out)" = 240 ] || fail "steps in --json"
grep -q '^entry ' err || fail "no progress on stderr"
expect 0 diloco train tiny.toml --store c --quiet
[ ! -s out ] && [ ! -s err ] || fail "quiet is not quiet"

# Each move of a replica's state machine is a line, whatever else is said.
expect 0 diloco train tiny.toml --store traced --set run.trace_protocol=true
grep -q '^r[01]: move [0-9]*: entry 5: swapping -> .*; SWAP done, then ' out || fail "no trace"
grep -q '^r0: move 1: entry 0: start -> catching up; REJOIN done, then READ$' out || fail "no first move"

# Another seed is another run.
expect 0 diloco train tiny.toml --store d --seed 2 --quiet
[ "$(digest d)" != "$before" ] || fail "the seed changes nothing"

# The longer of two movements is rejected in every entry, until it is banned for ten.
expect 0 diloco train tiny.toml --store e --set check.norm=1 --set check.ban_after=2
grep -q '^warning: r[01] is banned until entry' out || fail "a ban is not said"
expect 0 diloco status e
grep -q '^rejected   norm [0-9]' out || fail "status does not count what was rejected"
grep -q '^ *r[01] *banned until entry 1[0-9]: norm 2$' out || fail "status does not say who is out"
expect 0 diloco status e --json
grep -q '"banned":1,' out && grep -q '"banned_until":1' out || fail "status --json has no ban"

# Other threads than a replica's state was saved with: it continues, and reports the cost.
expect 0 diloco train tiny.toml --set run.threads=2 --record other.jsonl
grep -q '^warning: saved with .*, threads: 1, resumed with .*, threads: 2; .*not bit for bit' out ||
    fail "another number of threads is not said"
grep -q '"event":"warn".*"code":"machine"' other.jsonl || fail "nor is it in the record"
