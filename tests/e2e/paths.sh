#!/bin/sh
# Paths with spaces, quotes and letters beyond ASCII, in the C locale and in one of UTF-8. Every
# command takes them, and suggested commands can be pasted into a shell.
. "$(dirname "$0")/lib.sh"

folder="Läufe mit 'Zitat' \$x"
for locale in C C.UTF-8; do
    export LC_ALL=$locale
    mkdir "$folder"
    cd "$folder"
    cp ../text.txt 'der Text.txt'
    sed 's/text.txt/der Text.txt/' ../tiny.toml >'mein Läufer.toml'

    expect 0 diloco train 'mein Läufer.toml'
    check=$(sed -n 's/.*check it: //p' out)
    sh -c "$check" >out 2>err || fail "cannot be pasted: $check"
    grep -q '^verified: 6 entries' out || fail "not verified: $check"
    expect 0 diloco train 'mein Läufer.toml'
    flags=$(sed -n 's/.*the same command with  //p' out)
    sh -c "diloco train 'mein Läufer.toml' --quiet $flags" >out 2>err ||
        fail "cannot be pasted: $flags"

    expect 0 diloco status 'runs/mein Läufer'
    expect 0 diloco log 'runs/mein Läufer'
    expect 0 diloco sample 'mein Läufer.toml' --tokens 5 --prompt ü
    expect 0 diloco export 'mein Läufer.toml' --to hf --out 'aus gabe'
    expect 0 diloco import 'aus gabe' --out 'ein gabe'
    begin=$(sed -n "s/^train it: \(.*\)=FILE$/\1='der Text.txt'/p" out)
    sh -c "$begin --set trainer.rounds=1 --set trainer.local_steps_per_round=2 \
        --set parameters.model.context=32 --quiet" >out 2>err || fail "cannot be pasted: $begin"
    expect 0 diloco train 'mein Läufer.toml' --store "file://$PWD/x y" --quiet
    expect 0 diloco rm "file://$PWD/x y"
    [ ! -e 'x y' ] || fail "rm left a folder with a space"
    cd ..
    rm -r "$folder"
done
