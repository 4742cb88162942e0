"""forks.py - run Python scripts in forks of an interpreter that has imported modules already.

An import of torch and its optimizers takes four seconds of a core, so a test that starts many scripts
imports them once:

    scripts = Interpreter("torch.optim", "torch._dynamo")
    replica = scripts.start([script, argument], cwd=folder)    # as `python script argument` there
    said, _ = replica.communicate()

`Interpreter.as_python` writes a program that runs a script in the same way, for the PATH of a shell.

Give it no modules of this package, which a script has to import by itself."""
import importlib
import json
import os
import pathlib
import runpy
import signal
import socket
import subprocess
import sys

LONGEST = 1 << 16  # bytes of a request


class Script:
    """A started script, with the part of subprocess.Popen that the tests use. Its stdout is a pipe."""

    def __init__(self, stdout, ends):
        self.stdout = os.fdopen(stdout)
        self._ends = os.fdopen(ends)
        self.returncode = None

    def wait(self):
        """The exit code, or -N after signal N."""
        if self.returncode is None:
            with self._ends:
                self.returncode = os.waitstatus_to_exitcode(int(self._ends.read()))
        return self.returncode

    def communicate(self):
        with self.stdout:
            out = self.stdout.read()
        self.wait()
        return out, None


def ask(requests, command, cwd, stdout, stderr):
    """Start a script with these descriptors; the one from which its wait status is read."""
    request = json.dumps({"command": [str(word) for word in command], "cwd": str(cwd)}).encode()
    assert len(request) < LONGEST, command
    ends, their_end = os.pipe()
    socket.send_fds(requests, [request], [stdout, stderr, their_end])
    os.close(their_end)
    return ends


class Interpreter:
    def __init__(self, *modules, env=None):
        """``env``: variables beside those of this process."""
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen([sys.executable, __file__, str(theirs.fileno()), *modules],
                                             pass_fds=[theirs.fileno()],
                                             env={**os.environ, **(env or {})})

    def start(self, command, cwd, stderr=None):
        """``stderr``: subprocess.STDOUT, or this process's own."""
        stdout, their_stdout = os.pipe()
        ends = ask(self._requests, command, cwd, their_stdout,
                   their_stdout if stderr == subprocess.STDOUT else 2)
        os.close(their_stdout)
        return Script(stdout, ends)

    def as_python(self, path):
        """Write a program that is `python SCRIPT ARGUMENT …`; the descriptor that it has to inherit."""
        number = self._requests.fileno()
        words = f'{sys.executable} -S -E {__file__} as {number} "$@"'
        path.write_text(f"#!/bin/sh\nexec {words}\n")
        path.chmod(0o755)
        return number

    def close(self):
        self._requests.close()
        self._process.wait()


def run(command, cwd, stdout, stderr):
    """In a fork: become what an interpreter is before it runs a script."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.chdir(cwd)
    script = pathlib.Path(cwd, command[0])
    sys.argv, sys.path[0] = command, str(script.parent)
    runpy.run_path(str(script), run_name="__main__")


def serve(requests):
    """Returns in the fork that is to run a script, with its request; in this process never."""
    while True:
        text, fds, _, _ = socket.recv_fds(requests, LONGEST, 3)
        if not text:
            os._exit(0)
        if os.fork() == 0:  # it waits for the script, which may be killed
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            script = os.fork()
            if script == 0:
                return json.loads(text), fds
            os.close(fds[0])
            os.write(fds[2], str(os.waitpid(script, 0)[1]).encode())
            os._exit(0)
        for fd in fds:
            os.close(fd)


def run_as_python(number, command):
    """Run a script by the interpreter; its exit code."""
    ends = ask(socket.socket(fileno=number), command, os.getcwd(), 1, 2)
    with os.fdopen(ends) as end:
        code = os.waitstatus_to_exitcode(int(end.read()))
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "as":
        sys.exit(run_as_python(int(sys.argv[2]), sys.argv[3:]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    wanted, descriptors = serve(socket.socket(fileno=int(sys.argv[1])))
    run(wanted["command"], wanted["cwd"], *descriptors[:2])
