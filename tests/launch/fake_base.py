"""The common part of the fakes of fake_cloud.py: a container, which is a process of this machine, and a refusal."""
import itertools
import os
import signal
import subprocess
import threading


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(status)
        self.status, self.body = status, body


class Container:
    """A process that runs a replica."""

    def __init__(self, folder, name, argv, env):
        self.log = folder / "logs" / name
        self.log.parent.mkdir(exist_ok=True)
        self.killed = False
        with open(self.log, "ab") as out:
            self.process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env={"PATH": os.environ["PATH"], **env}, start_new_session=True)

    def code(self):
        """None while it runs; 128 + N after signal N."""
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def stop(self):
        self.killed = True
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)


class Fake:
    def __init__(self, folder):
        self.folder, self.lock, self.offsets = folder, threading.RLock(), {}

    def page(self, container, first, most_bytes):
        """Whole lines of the output from line `first` on: three, or with the file "long-pages" at most 1000 and this many
        bytes. Lines before them are not read again."""
        most = 1000 if self.folder.joinpath("long-pages").exists() else 3
        at = self.offsets.setdefault(container.log, [0])
        with open(container.log, "rb") as log:
            log.seek(at[-1])
            at.extend(itertools.accumulate((len(line) for line in log if line.endswith(b"\n")), initial=at.pop()))
            last = min(first + most, len(at) - 1)
            while last > first + 1 and at[last] - at[first] > most_bytes:
                last -= 1
            log.seek(at[first] if first < last else 0)
            text = log.read(at[last] - at[first] if first < last else 0)
        return text.decode("utf-8", "replace").split("\n")[:-1]

    def start(self, name, argv, env):
        role = self.folder / "role"
        with open(self.folder / "started", "a", encoding="utf-8") as started:
            started.write(name + "\n")
        given = role.read_text("ascii").split() if role.exists() else []
        return Container(self.folder, name, argv, {**env, **dict(line.split("=", 1) for line in given)})
