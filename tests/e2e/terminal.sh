#!/bin/sh
# A terminal of 40 columns: the live lines and the help of options fit.
. "$(dirname "$0")/lib.sh"
export TERM=xterm

terminal() { # COMMAND…: what it writes on that terminal, without movements of the cursor
    python3 "$project/tests/e2e/terminal.py" 40 24 "$@" >raw || return $?
    sed 's/\x1b\[[?0-9;]*[A-Za-z]//g' raw | tr -d '\r'
}
wider() { # FILE: its lines of more than 40 columns that begin with $2
    grep "^$2" "$1" | awk 'length($0) > 40'
}

expect 0 terminal diloco train tiny.toml
grep -q '^r0 .*loss' out || fail "no live line"
[ -z "$(wider out r0)" ] || fail "a live line is cut: $(wider out r0)"
grep -q '^done: 6 entries' out || fail "the end is not said"

expect 0 terminal diloco options sync_every
grep -q '^ .*optimizer steps' out || fail "no help"
[ -z "$(wider out '      ')" ] || fail "help is cut: $(wider out '      ')"
