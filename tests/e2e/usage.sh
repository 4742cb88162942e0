#!/bin/sh
# Wrong command lines and configurations: the exit code, the place, the way out. Nothing is made.
. "$(dirname "$0")/lib.sh"

expect 2 diloco
grep -q '^usage: diloco COMMAND' err || fail "no usage"
expect 0 diloco --version
grep -q '^diloco [0-9]' out || fail version
expect 0 diloco help
expect 0 diloco --help
for command in $(sed -n 's/^  \([a-z]*\) .*/\1/p' out); do
    expect 0 diloco "$command" --help
    grep -q "^usage: diloco $command" out || fail "$command --help"
    expect 0 diloco help "$command"
done

# Help in two tiers, for every command that takes options.
for command in train join rm eval sample export doctor data sweep plan; do
    expect 0 diloco $command --help
    [ "$(wc -l <out)" -lt 200 ] || fail "$command --help has $(wc -l <out) lines"
    grep -q -- "^diloco $command --help=all " out || fail "$command --help does not name the rest"
    mv out basic
    expect 0 diloco $command --help=all
    [ "$(wc -l <out)" -gt "$(wc -l <basic)" ] || fail "$command --help=all shows no more"
    grep -q '^  run.state_dir  ' out || fail "$command --help=all lacks an option"
done
expect 0 diloco serve --help=all
expect_error 2 'but all: --help=all' diloco train --help=more

expect_error 2 'did you mean train?' diloco trian
expect_error 2 'there is no command quux; see diloco help' diloco quux
expect_error 2 'did you mean --replicas?' diloco train --replcas 2
expect_error 2 'status needs a URL' diloco status
expect_error 3 'lower trainer.batch_size' \
    diloco train tiny.toml --set trainer.batch_size=1000000000 --store big
expect_error 3 'take a smaller model (parameters.model)' diloco train tiny.toml --store big \
    --set parameters.model.channels=65536 --set parameters.model.layers=8
[ ! -e big ] || fail "a run that cannot fit was created"
expect_error 1 'there is no folder nope; check its spelling' diloco doctor nope
[ ! -e nope ] || fail "doctor made a folder"
for flag in --store --coord --record; do
    expect_error 2 "$flag \"\": the" diloco train tiny.toml $flag ''
done
expect_error 2 '--set: store "" names no place' diloco train tiny.toml --set run.store=
expect_error 2 '--store "": the URL is empty' diloco join --peer 127.0.0.1:1 --store ''
for choice in combiner=foo trainer.optimizer=foo data.sampler=foo preset=foo; do
    expect_error 2 'foo" is unknown' diloco train tiny.toml --set $choice --print-config
done

# refused CODE TEXT LINE: tiny.toml with this line as its third, in [run].
refused() {
    sed "2a $3" tiny.toml >bad.toml
    expect_error "$1" "$2" diloco train bad.toml
}
refused 2 'bad.toml:3:1: there is no option run.patince; did you mean run.patience?' 'patince = 3'
refused 2 'bad.toml:3:1: there is no option run.batchsize; did you mean trainer.batch_size?' \
    'batchsize = 3'
refused 2 'bad.toml:3:1: there is no option run.zzz; diloco options lists all' 'zzz = 1'
refused 2 'bad.toml:3:8: run.quorum = "1.5" is not a number from 0 to 1' 'quorum=1.5'
refused 2 'bad.toml:3:' 'x = = 1'
sed 's/local_steps_per_round = 20/local_steps_per_round = -1/' tiny.toml >zero.toml
expect_error 2 'zero.toml:9:25: trainer.local_steps_per_round = "-1" is not a whole number from 0' \
    diloco train zero.toml
sed 's/batch_size = 2/batch_size = "2"/' tiny.toml >quoted.toml
expect_error 2 'quoted.toml:10:14: trainer.batch_size is a whole number, without quotes' \
    diloco train quoted.toml
{ echo 'sync_every = 20'; cat tiny.toml; } >twice.toml
expect_error 2 'twice.toml:10:25: trainer.local_steps_per_round (also sync_every) is given already' \
    diloco train twice.toml
expect_error 2 'is not one of wait' diloco train tiny.toml --set run.on_missing=wiat
expect_error 2 'did you mean nesterov' \
    diloco train tiny.toml --set server.diloco.outer_optimizer=nestrov
expect_error 2 'did you mean fedavg' diloco train tiny.toml --preset fedvag
expect_error 3 'decided by a log' diloco train tiny.toml --preset noloco --set data.deal=log
expect_error 3 'preserve_optimizer_state' \
    diloco train tiny.toml --set trainer.preserve_optimizer_state=false
expect_error 3 'mem://' diloco train tiny.toml --store mem://x
expect_error 2 'contradict' diloco train tiny.toml --store a --set run.store=b
expect_error 2 'contradict' diloco train tiny.toml --replicas 3 --set run.replicas=2
expect_error 2 'run.heartbeat' diloco train tiny.toml --set run.heartbeat=4
expect_error 2 'there are no s4:// stores' diloco train tiny.toml --store s4://bucket
expect_error 2 'there is no such configuration file' diloco train none.toml
mkdir folder
expect_error 2 'folder is a folder, not a configuration file; to take part in a run: diloco join folder' \
    diloco train folder
grep -v "^threads" tiny.toml >any.toml
expect 0 diloco doctor any.toml --set run.replicas=200
[ ! -s err ] || fail "nobody set run.threads, and doctor warns about it"
expect_error 2 'heads' diloco train tiny.toml --set parameters.model.heads=3

# Data that is missing, empty, or too short.
expect_error 2 'data.train_path' diloco train tiny.toml --set data.train_path=
expect_error 1 'none.txt' diloco train tiny.toml --set data.train_path=none.txt
: >empty.txt
expect_error 2 'empty.txt' diloco train tiny.toml --set data.train_path=empty.txt
echo 'too short' >short.txt
expect_error 2 'short.txt' diloco train tiny.toml --set data.train_path=short.txt
expect_error 2 'short.txt' diloco train tiny.toml --set data.test_path=short.txt

[ ! -e runs ] || fail "a refused run left something in its store"

# Places of values, and that they read back.
expect 0 diloco train tiny.toml --print-config --seed 5
grep -q '^run.seed = 5 *# --seed$' out || fail "the flag's place"
grep -q '^run.replicas = 2 *# tiny.toml:3:12$' out || fail "the file's place"
grep -q '^trainer.optimizer = "adamw" *# preset diloco$' out || fail "the preset's place"
grep -q '^run.quorum = 0.5 *# default$' out || fail "a default's place"
cp out printed.toml
expect 0 diloco train printed.toml --print-config
sed 's/ *#.*//' printed.toml >a
sed 's/ *#.*//' out >b
cmp -s a b || fail "what --print-config says does not read back"
for preset in async fedavg swarm; do # whose defaults, written, would ask for another
    expect 0 diloco train --preset $preset --print-config
    cp out printed.toml
    expect 0 diloco train printed.toml --print-config
done
expect 0 diloco train tiny.toml --print-config --json
[ "$(tr '{' '\n' <out | grep -c origin)" -gt 60 ] || fail "--print-config --json"

expect 0 diloco presets
grep -q '2311.08105' out || fail "no citation"
expect 0 diloco presets fedavg
grep -q '^server.diloco.outer_optimizer = "sgd" *# preset fedavg$' out || fail "presets NAME"
expect_error 2 'did you mean fedavg' diloco presets fedvag

# Stores that hold no run.
mkdir nothing
for command in status log verify eval sample join; do
    expect 1 diloco $command nothing
    says nothing
    expect 1 diloco $command nowhere
    says nowhere
done
