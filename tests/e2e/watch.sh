#!/bin/sh
# diloco watch: once into a pipe, and on a terminal of 80 columns and 24 lines during a run,
# until the run is complete.
. "$(dirname "$0")/lib.sh"

diloco train tiny.toml --store one --quiet
expect 0 diloco watch one --once
grep -q '^one: complete, 0 of 2 replicas alive$' out || fail "the run is not complete"
grep -q '^well: ' out || fail "it is not well"
! grep -q "$(printf '\033')" out || fail "cursor movements in a pipe"
[ "$(awk 'length($0) > 240' out)" = "" ] || fail "a line is too long"
expect 0 diloco watch one # no terminal: once
grep -q '^one: complete' out || fail "not printed once"
expect_error 1 "there is no folder nowhere" diloco watch nowhere

cat >terminal.py <<'PY'
"""terminal.py COMMAND…: run it on a terminal of 80 columns and 24 lines; print what it wrote."""
import fcntl, os, pty, struct, sys, termios

pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[1], sys.argv[1:])
while True:
    try:
        piece = os.read(fd, 65536)
    except OSError:
        break
    if not piece:
        break
    os.write(1, piece)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
PY
diloco train tiny.toml --store two --quiet --set trainer.rounds=40 &
started=$!
while [ ! -e two/log/0000000001.json ]; do sleep 0.05; done
python3 terminal.py diloco watch two >seen || fail "watch on a terminal: exit code $?"
wait $started
grep -q 'two: running, 2 of 2 replicas alive' seen || fail "it was not seen running"
grep -q 'two: complete' seen || fail "it was not seen complete"
