#!/bin/sh
# diloco ui of a folder with more runs than a page shows: the first ones are shown, and the number of the others is said.
. "$(dirname "$0")/lib.sh"
expect 0 diloco train tiny.toml --store a --quiet
mkdir many few
i=0
while [ $i -lt 503 ]; do
    name=$(printf 'run-%03d' $i)
    mkdir "many/$name"
    cp a/run.json "many/$name/"
    i=$((i + 1))
done
cp -r many/run-000 many/run-001 few/

# page FOLDER: its server, until the address is printed.
page() {
    rm -f out # of the server before
    diloco ui "$1" --no-browser >out 2>err &
    server=$!
    started="$started $server"
    wait_for grep -q 'Ctrl-C ends' out
    kill "$server"
    wait "$server" || fail "the server of $1 fails"
}
page many
says 'many: the page shows the first 500 of 503 runs'
page few
[ ! -s err ] || fail "a small folder has a warning"

# A damaged run is named, and those beside it are shown.
mkdir few/bad
echo '{}' >few/bad/run.json
page few
says few/bad
expect_error 1 few/bad diloco ui few/bad --no-browser
