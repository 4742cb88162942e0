"""terminal.py COLUMNS LINES [--interrupt TEXT] COMMAND…: run COMMAND on a terminal of that size, and
write what it wrote. With --interrupt, press Ctrl-C when TEXT was written twice. The terminal drops output
that waits at that moment, but the output between the two is whole. The exit code is the command's. It is
99 if the command left the terminal with other settings or without a cursor."""
import fcntl
import os
import pty
import struct
import sys
import termios

columns, lines, *command = sys.argv[1:]
awaited = None
if command[0] == "--interrupt":
    awaited, command = command[1].encode(), command[2:]
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", int(lines), int(columns), 0, 0))
    os.environ.setdefault("TERM", "xterm")
    os.execvp(command[0], command)
before = termios.tcgetattr(terminal)
written = b""
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:  # the other end is closed
        break
    if not piece:
        break
    os.write(1, piece)
    written += piece
    if awaited and written.count(awaited) > 1:
        os.write(terminal, b"\x03")
        awaited = None
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
restored = termios.tcgetattr(terminal) == before and written.rfind(b"\x1b[?25l") <= written.rfind(b"\x1b[?25h")
sys.exit(code if restored else 99)
