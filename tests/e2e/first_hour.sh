#!/bin/sh
# Mistakes of a first-time user: each answer names the way out.
. "$(dirname "$0")/lib.sh"

# flags_after_with FILE: the flags that a line suggests.
flags_after_with() {
    sed -n 's/.*the same command with  \(.*\)$/\1/p' "$1" | head -1
}

# A complete run: the same command says how to train on, and that works.
expect 0 diloco train tiny.toml --quiet
expect 0 diloco train tiny.toml
grep -q '^the run was complete already; to train on from its end' out || fail "no way to train on"
flags=$(flags_after_with out)
sh -c "diloco train tiny.toml --quiet $flags" >log 2>&1 || fail "the way to train on: $(cat log)"
[ -e runs/tiny-2/run.json ] || fail "no new run in runs/tiny-2"
before=$(diloco eval tiny.toml --json | json loss)
after=$(diloco eval runs/tiny-2 --set data.train_path=text.txt --json | json loss)
awk "BEGIN { exit !($after < $before) }" || fail "training on from $before ended at $after"

# ... and so does the same command with more rounds.
expect_error 1 'trainer.rounds is 6 in the run, 12 here (--set); to train on from its end' \
    diloco train tiny.toml --set trainer.rounds=12
says ' --store runs/tiny-3 '

# The same configuration from another folder.
mkdir elsewhere
cd elsewhere
expect 0 diloco train ../tiny.toml --set data.train_path=../text.txt
grep -q 'warning: ../runs/tiny holds a run of the same configuration; .* in runs/tiny' err ||
    fail "a second run begins without a word"
grep -q "^run [0-9a-f]* in $(pwd)/runs/tiny: " out || fail "the run's place is not said"
expect 0 diloco train ../tiny.toml --set data.train_path=../text.txt
[ ! -s err ] || fail "the run that is there is called a second one"
cd ..

# verify replays what is kept, and says how to keep more. A long run loses its first contributions.
expect 0 diloco verify runs/tiny
! grep -q 'by their chain alone' out || fail "all is kept, and verify says it is not"
rm -r runs/tiny/c/0000000000
expect 0 diloco verify runs/tiny
grep -q '^entries before [1-6] were checked by their chain alone.* run.retain = "all" keeps' out ||
    fail "how to keep more is not said"

# A text in place of a configuration file: short, long, or of bytes that are no text.
awk 'BEGIN { while (n++ < 100000) print "no configuration" }' >long.txt
printf '\377\376' >bytes.bin
for file in text.txt long.txt bytes.bin; do
    expect_error 2 "$file: this is no configuration file in TOML; to train on it as text:  diloco train --set data.train_path=$file " \
        diloco train $file
done

# Options by a part of a name or an alias, by their meaning, and one alone.
expect_error 2 'no option has "zzz" in its name or its help' diloco options zzz
expect 0 diloco options lr
grep -q '^  parameters.optimizer.lr (also lr)$' out || fail "no option by its alias"
grep -q '^  server.diloco.outer_learning_rate$' out || fail "the others with lr are not named"
[ "$(grep -c '; default' out)" = 1 ] || fail "not one option is explained"
expect 0 diloco options rounds
grep -q '^  trainer.rounds$' out || fail "no option by the last word of its name"
grep -q 'example: --set trainer.rounds=' out || fail "no example of a basic option"
[ "$(grep -c '; default' out)" = 1 ] || fail "not one option is explained by the last word"
expect 0 diloco options Heartbeat
grep -q '^  run.heartbeat' out || fail "no option by a part of its name, of another case"
expect 0 diloco options 'third of'
grep -q '; default' out || fail "no option by a part of its meaning"
expect_error 2 '--markdown' diloco options lr --markdown

# Output into a pipe without a reader: a quiet end, also where the signal for it is ignored.
mkfifo pipe
: <pipe &
exec 8>pipe
wait $!
for ignored in false true; do
    for command in 'options' 'status runs/tiny' 'train tiny.toml'; do
        code=0
        (
            $ignored && trap '' PIPE
            # shellcheck disable=SC2086 # words
            exec diloco $command >&8 2>err
        ) || code=$?
        [ $code = 141 ] || fail "diloco $command into a closed pipe: exit code $code"
        [ ! -s err ] || fail "diloco $command into a closed pipe is not quiet"
    done
done
exec 8>&-

# A model with room for more tokens than bytes, trained on bytes, speaks.
expect 0 diloco train tiny.toml --store wide --set parameters.model.vocab=300 --quiet
expect 0 diloco sample wide --tokens 20 --prompt 'the '
expect 0 diloco eval wide --text text.txt
grep -q 'bits per byte\|bits a byte' out || fail "no loss of a text"
