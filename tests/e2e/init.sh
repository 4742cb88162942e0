#!/bin/sh
# init: a commented configuration that trains as it is, for every preset; nothing is overwritten.
. "$(dirname "$0")/lib.sh"

expect 2 diloco
grep -q 'To begin: diloco init --text FILE' err || fail "a newcomer is not told where to begin"

expect 0 diloco init --text text.txt
next=$(sed -n 's/^next: //p' out)
[ "$next" = 'diloco train run.toml' ] || fail "what is next: $next"
grep -q "^train_path = \"$PWD/text.txt\"" run.toml || fail "the text is not named for every folder"
expect 0 sh -c "$next --set trainer.rounds=1 --set trainer.local_steps_per_round=1 --quiet"
[ -e runs/run/run.json ] || fail "no run in runs/run"
expect 2 diloco
grep -q 'Here is a run.toml: diloco train run.toml' err || fail "the run.toml here is not named"

cp run.toml before
expect_error 1 'run.toml exists already' diloco init
cmp -s run.toml before || fail "a configuration was overwritten"

for preset in $(diloco presets | sed -n 's/^\([a-z_]*\) - .*/\1/p'); do
    expect 0 diloco init "of $preset" --preset "$preset" --text text.txt
    expect 0 diloco train "of $preset/run.toml" --store "run of $preset" --quiet \
        --set trainer.rounds=1 --set parameters.model.channels=16 --set parameters.model.context=16
done
for model in mlp lenet5 resnet_18; do
    expect 0 diloco init $model --model $model
    grep -q '^next: set data.train_path' out || fail "that the data is missing is not said"
    expect 0 diloco train $model/run.toml --print-config
    expect_error 1 'there is no folder data' diloco train $model/run.toml
done

expect_error 2 'did you mean resnet_18' diloco init other --model resnet18
expect_error 2 'did you mean fedavg' diloco init other --preset fedvag
[ ! -e other ] || fail "a refused init made a folder"
