#!/bin/sh
# A terminal of 40 columns: the live lines and the help of options fit.
. "$(dirname "$0")/lib.sh"

cat >terminal.py <<'PY'
"""terminal.py COMMAND…: run it on a terminal of 40 columns; print what it wrote, without colours
and movements of the cursor, and exit as it did."""
import fcntl, os, pty, re, struct, sys, termios

pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[1], sys.argv[1:])
written = b""
while True:
    try:
        piece = os.read(fd, 65536)
    except OSError:  # the other end is closed
        piece = b""
    if not piece:
        break
    written += piece
text = written.decode().replace("\r", "")
print(re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text), end="")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if pid else 0)
PY
wider() { # FILE: its lines of more than 40 columns that begin with $2
    grep "^$2" "$1" | awk 'length($0) > 40'
}

expect 0 python3 terminal.py diloco train tiny.toml
grep -q '^r0 .*loss' out || fail "no live line"
[ -z "$(wider out r0)" ] || fail "a live line is cut: $(wider out r0)"
grep -q '^done: 6 entries' out || fail "the end is not said"

expect 0 python3 terminal.py diloco options sync_every
grep -q '^ .*optimizer steps' out || fail "no help"
[ -z "$(wider out '      ')" ] || fail "help is cut: $(wider out '      ')"
