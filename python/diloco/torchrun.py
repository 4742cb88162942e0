"""One replica a machine: torchrun on each machine, for the ranks of one island (needs torch).

Under Slurm, each task starts torchrun on its machine:

    srun --nodes=4 --ntasks-per-node=1 python -m diloco.torchrun --nproc-per-node 8 \\
        train.py s3://BUCKET/run {replica}

Over ssh, one command starts all machines and waits for them. The working directory and the path of
Python are the same on each machine:

    python -m diloco.torchrun --on ssh://a,b,user@c --nproc-per-node 8 \\
        train.py s3://BUCKET/run {replica}

    --on ssh://HOST,HOST  machines; --on local:N starts N islands on this machine
    --restarts N          times that a failed island is started again under its name (0)
    --replica NAME        this machine's replica; default: r and the number in DILOCO_RANK,
                          SLURM_PROCID or JOB_COMPLETION_INDEX

These options come first. The others are torchrun's, then the script and its arguments. {replica} in
them is replaced by the replica's name, which the script also gets as DILOCO_REPLICA. The ranks of a
machine meet on its loopback interface, so machines exchange only through the store.
"""

from __future__ import annotations

import os
import pathlib
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

from .errors import InvalidError

_OWN = ("--on", "--restarts", "--replica")
_NUMBERS = ("DILOCO_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX")


def own_options(words: Sequence[str]) -> Tuple[Dict[str, str], List[str]]:
    """This module's options, and the words after them. InvalidError: an option without a value, or
    no script."""
    options: Dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].split("=")[0] in _OWN:
        name, is_joined, value = rest.pop(0).partition("=")
        if not is_joined and not rest:
            raise InvalidError(f"{name} has no value")
        options[name] = value if is_joined else rest.pop(0)
    if not rest:
        raise InvalidError("no script: name one, after torchrun's options")
    return options, rest


def replica_here() -> str:
    """The name of this machine's replica. InvalidError: nothing numbers it."""
    for name in _NUMBERS:
        if name in os.environ:
            return f"r{os.environ[name]}"
    raise InvalidError("this machine's replica has no name: pass --replica r0, r1, …, or set one of "
                       f"{', '.join(_NUMBERS)}")


def torchrun(words: Sequence[str], replica: str) -> List[str]:
    """The command of torchrun on one machine."""
    return [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
            *(word.replace("{replica}", replica) for word in words)]


def commands(on: str, words: Sequence[str]) -> List[List[str]]:
    """The command of each island. InvalidError: ``on`` names no machines."""
    kind, _, places = on.partition("://" if "://" in on else ":")

    def command(number: int) -> List[str]:
        return [sys.executable, "-m", "diloco.torchrun", "--replica", f"r{number}", *words]
    if kind == "local" and places.isdigit() and int(places) > 0:
        return [command(number) for number in range(int(places))]
    hosts = places.split(",")
    if kind != "ssh" or not all(hosts) or any(host.startswith("-") for host in hosts):
        raise InvalidError(f"--on {on}: it is ssh://HOST,HOST or local:N")
    # A terminal of its own ends the command there when the connection ends.
    return [["ssh", "-tt", "-o", "BatchMode=yes", host,
             f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(command(number))}"]
            for number, host in enumerate(hosts)]


_MARK = "DILOCO_ISLAND"  # in the environment of an island's processes, with a value of its own


def _kill_marked(mark: str) -> None:
    """Kill the processes of an island whose torchrun has ended. A signal that reaches torchrun while
    it starts its workers leaves them running, in sessions of their own."""
    wanted = f"{_MARK}={mark}".encode()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and wanted in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:  # it has ended, or is another user's
            continue


class _Islands:
    """The islands that one command has started. Each has a thread, which copies its output."""

    def __init__(self, restarts: int) -> None:
        self._restarts, self._stops = restarts, False
        self._lock = threading.Lock()  # of what follows, and of the output
        self._processes: Dict[str, Any] = {}
        self._failed: List[str] = []

    def _start(self, name: str, command: Sequence[str], mark: str) -> Any:
        """None: all islands are to stop."""
        with self._lock:
            if self._stops:
                return None
            self._processes[name] = process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace",
                env={**os.environ, _MARK: mark})
            return process

    def _end(self, process: Any, mark: str) -> None:
        """Wait for torchrun. After a signal its workers end with it: they have its output open."""
        process.wait()
        if self._stops:
            _kill_marked(mark)

    def _run(self, name: str, command: Sequence[str]) -> None:
        code: Optional[int] = None
        for _ in range(1 + self._restarts):
            mark = secrets.token_hex(16)
            process = self._start(name, command, mark)
            if process is None:
                return
            end = threading.Thread(target=self._end, args=(process, mark))
            end.start()
            for line in process.stdout:
                with self._lock:
                    print(f"{name}: {line.rstrip()}", flush=True)
            process.stdout.close()
            end.join()
            code = process.wait()
            if code == 0:
                return
        with self._lock:
            self._failed.append(f"{name} with exit code {code}")

    def stop(self, *_signal: Any) -> None:
        """Ask all islands to end."""
        with self._lock:
            self._stops = True
            for process in self._processes.values():
                if process.poll() is None:
                    process.terminate()

    def wait(self, commands_: Sequence[Sequence[str]]) -> int:
        """Start all and wait for all: 0, or 1 if one failed, or 130 after a signal."""
        threads = [threading.Thread(target=self._run, args=(f"r{number}", command))
                   for number, command in enumerate(commands_)]
        asked = threading.Event()
        former = {n: signal.signal(n, lambda *_: asked.set())
                  for n in (signal.SIGINT, signal.SIGTERM)}
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if asked.wait(0.2):
                self.stop()
                asked.clear()
        for number, handler in former.items():
            signal.signal(number, handler)
        if self._stops:
            return 130
        for failed in self._failed:
            print(f"diloco.torchrun: {failed}; start it again under its name, and it resumes",
                  file=sys.stderr)
        return 1 if self._failed else 0


def main(words: Sequence[str]) -> int:
    """The exit code. On one machine this process becomes torchrun."""
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if words else 2
    options, rest = own_options(words)
    if "--on" in options:
        restarts = options.get("--restarts", "0")
        if not restarts.isdigit():
            raise InvalidError(f"--restarts {restarts}: it is a whole number")
        return _Islands(int(restarts)).wait(commands(options["--on"], rest))
    replica = options.get("--replica") or replica_here()
    command = torchrun(rest, replica)
    os.execve(command[0], command, {**os.environ, "DILOCO_REPLICA": replica})


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InvalidError as error:
        sys.exit(f"diloco.torchrun: {error}")
