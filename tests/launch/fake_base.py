"""The common part of the fakes of fake_cloud.py: a container, which is a process of this machine, and a refusal."""
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
        self.folder, self.lock = folder, threading.RLock()

    def start(self, name, argv, env):
        role = self.folder / "role"
        given = role.read_text("ascii").split() if role.exists() else []
        return Container(self.folder, name, argv, {**env, **dict(line.split("=", 1) for line in given)})
