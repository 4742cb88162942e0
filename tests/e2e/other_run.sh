#!/bin/sh
# A store that holds another run is refused with what differs; damaged or foreign files are
# found out; nothing is lost.
. "$(dirname "$0")/lib.sh"

expect 0 diloco train tiny.toml --store a --quiet
before=$(digest a)
expect_error 1 'a holds another run (take its values, or another run.store): run.seed is 1 in the run, 2 here (--seed)' \
    diloco train tiny.toml --store a --seed 2
expect_error 1 'trainer.local_steps_per_round is 20 in the run, 5 here (--set)' \
    diloco train tiny.toml --store a --set trainer.local_steps_per_round=5
sed 's/channels = 32/channels = 64/' tiny.toml >other.toml
expect_error 1 'parameters.model.channels is 32 in the run, 64 here (other.toml:15:12)' \
    diloco train other.toml --store a
[ "$(digest a)" = "$before" ] || fail "a refused run changed the log"

# A bit of the log: the chain does not fit any more.
cp -r a damaged
sed -i 's/"position":40/"position":41/' damaged/log/0000000001.json
expect 1 diloco verify damaged
says 'entry'

# A file that is no run.json.
mkdir foreign
echo '{"hello":1}' >foreign/run.json
expect 1 diloco status foreign
says 'run.json'
expect 1 diloco train tiny.toml --store foreign
says 'run.json'

# Damaged private state is refused, not trained on from.
sed 's/^rounds = 6/rounds = 4000/' tiny.toml >long.toml
diloco train long.toml --store c >out 2>err &
parent=$!
started=$parent
wait_for has_entry c 2
kill -INT "$parent"
code=0
wait "$parent" || code=$?
[ $code = 130 ] || fail "expected 130, got $code"
printf x | dd of="$(echo c.local/*/r0)"/local.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 1 diloco train long.toml --store c
says c.local/
