#!/bin/sh
# diloco train shows the screen of diloco watch on a terminal of 80 columns and 24 lines. A pipe, a
# narrow terminal and a dumb one get lines. Ctrl-C leaves the terminal as it was.
. "$(dirname "$0")/lib.sh"

terminal() { # COLUMNS LINES COMMAND…
    python3 "$project/tests/e2e/terminal.py" "$@"
}
plain() { # FILE: without movements of the cursor, one drawn line a line
    sed 's/\x1b\[[?0-9;]*[A-Za-z]//g' "$1" | tr -d '\r'
}
export TERM=xterm LC_ALL=C
train="diloco train tiny.toml --set trainer.rounds=4000"

# 80 x 24, until the screen has the run's loss and its replicas.
code=0
terminal 80 24 --interrupt 'time, newest 24' $train --store wide >seen || code=$?
[ $code = 130 ] || fail "Ctrl-C: exit code $code: $(plain seen | tail -5)"
plain seen >lines
grep -q '^wide: running, [12] of [12] replicas alive' lines || fail "no screen: $(tail -30 lines)"
grep -q '^replica   state .*time, newest 24' lines || fail "the replicas have no table"
grep -q '^r0 .*step .*loss' lines || fail "the replicas have no live lines"
# The terminal drops output that waits when Ctrl-C is pressed: the line with ^C is in parts.
[ -z "$(awk 'length($0) > 79 && !/\^C/' lines | grep -v '^\(run\|warning: \|diloco: stopped\|stopped\|[0-9]* replica\|entry\)' || true)" ] ||
    fail "a line is wider than the terminal: $(awk 'length($0) > 79' lines | head -3)"
# Rows of a frame: the largest way back up.
tallest=$(grep -ao "$(printf '\033')\[[0-9]*A" seen | tr -dc '0-9\n' | sort -n | tail -1)
[ "$tallest" -le 23 ] || fail "a frame has $tallest rows"
grep -q 'the same command resumes' lines || fail "the stop is not explained"
tail -1 lines | grep -q 'train  ^' && fail "the screen is left on the terminal"

# Lines elsewhere.
for size in "60 24" "80 12"; do
    code=0
    terminal $size --interrupt '/80,000' $train --store "narrow-${size#* }" >seen || code=$?
    [ $code = 130 ] || fail "Ctrl-C on a terminal of $size: exit code $code"
    plain seen >lines
    grep -q '^r0 .*loss' lines || fail "$size: no live line"
    ! grep -q 'replicas alive' lines || fail "$size: the screen has no room"
done
code=0
TERM=dumb terminal 80 24 --interrupt 'entry ' $train --store dumb >seen || code=$?
[ $code = 130 ] || fail "Ctrl-C on a dumb terminal: exit code $code"
! grep -q "$(printf '\033')" seen || fail "cursor movements on a dumb terminal"
expect 0 diloco train tiny.toml --store pipe
! grep -q "$(printf '\033')" out || fail "cursor movements in a pipe"
grep -q '^entry 5: ' out || fail "no lines in a pipe"
