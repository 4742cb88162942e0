#!/usr/bin/env python3
"""A recorder in place of Modal's command `modal`, for `modal run --quiet -`: it runs the script on stdin with a module
`modal` of the calls that launch makes.

A sandbox is a process of this machine, whose environment begins empty. The folder MODAL_FAKE has requests.jsonl, each
call of the module; sandboxes/<id>/ with name, begun, pid, exit, tags and log; and fault: while it exists, the command
fails. The file clock has the seconds that Modal's clock is ahead of this machine's. While no-token exists, it fails as
modal 1.6.4 does without a token. The file version has another version than 1.6.4."""
import contextlib
import datetime
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import time
import types

folder = pathlib.Path(os.environ["MODAL_FAKE"])
sandboxes = folder / "sandboxes"
UTC = datetime.timezone.utc


def record(call, args=(), kwargs=None):
    with open(folder / "requests.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps({"call": call, "args": list(args), "kwargs": kwargs or {},
                              "name": (kwargs or {}).get("name")}, default=str) + "\n")


def errors():
    names = ("Error", "AlreadyExistsError", "ConnectionError", "InternalError", "InvalidError", "LogsFetchError",
             "NotFoundError", "ResourceExhaustedError", "ServiceError", "TimeoutError")
    base = type("Error", (Exception,), {})
    return types.SimpleNamespace(**{name: base if name == "Error" else type(name, (base,), {}) for name in names})


exception = errors()


class App:
    def __init__(self, *args, **kwargs):
        record("App", args, kwargs)

    def local_entrypoint(self, *args, **kwargs):
        record("App.local_entrypoint", args, kwargs)
        return lambda function: function

    @staticmethod
    def lookup(*args, **kwargs):
        record("App.lookup", args, kwargs)
        return args[0]


class Image:
    def __init__(self, tag):
        self.tag = tag

    @staticmethod
    def from_registry(*args, **kwargs):
        record("Image.from_registry", args, kwargs)
        return Image(args[0])

    def entrypoint(self, *args):
        record("Image.entrypoint", args)
        return self


class Secret:
    def __init__(self, names):
        self.values = {name: os.environ[name] for name in names}

    @staticmethod
    def from_local_environ(*args, **kwargs):
        record("Secret.from_local_environ", args, kwargs)
        return Secret(args[0])


class Logs:
    """The log has a line for each entry, written a microsecond after the one before. As in modal 1.6.4 there is no call
    that follows, and a range of 35 days at most."""

    def __init__(self, sandbox):
        self.log, self.begun = sandbox / "log", sandbox / "begun"

    def fetch(self, *, since, until=None):
        record("Sandbox.logs.fetch", (), {"since": since, "until": until})
        until = until or datetime.datetime.now(UTC)
        if until - since > datetime.timedelta(days=35):
            raise exception.LogsFetchError("Time range cannot exceed 35 days.")
        ahead = int((folder / "clock").read_text("ascii")) if (folder / "clock").exists() else 0
        at = datetime.datetime.fromtimestamp(float(self.begun.read_text("ascii")) + ahead, UTC)
        with open(self.log, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                at += datetime.timedelta(microseconds=1)
                if since <= at <= until and line.endswith("\n"):  # not one that is being written
                    yield types.SimpleNamespace(message=line, timestamp=at)


class Sandbox:
    def __init__(self, object_id):
        self.object_id = object_id
        self.folder = sandboxes / object_id
        self.logs = Logs(self.folder)

    @staticmethod
    def from_name(*args, **kwargs):
        record("Sandbox.from_name", args, kwargs)
        for sandbox in sandboxes.glob("*"):
            if (sandbox / "name").read_text("utf-8") == "/".join(args):
                return Sandbox(sandbox.name)
        raise exception.NotFoundError("no sandbox has this name")

    @staticmethod
    def from_id(*args, **kwargs):
        record("Sandbox.from_id", args, kwargs)
        return Sandbox(*args)

    @staticmethod
    def create(*args, app, image, name, env, secrets, **machine):
        record("Sandbox.create", args, {"app": app, "image": image.tag, "name": name, "env": env, "secrets": len(secrets),
                                        **machine})
        if image.tag.endswith("/nowhere"):
            raise exception.InvalidError(f"no registry has {image.tag}")
        if machine.get("region") == "moon":
            raise exception.InvalidError("moon is no region")
        if machine.get("gpu") == "B200:8":
            raise exception.ResourceExhaustedError("the workspace may have 4 GPUs of type B200")
        sandboxes.mkdir(exist_ok=True)
        sandbox = Sandbox(f"sb-{1 + len(list(sandboxes.iterdir()))}")
        sandbox.folder.mkdir()
        (sandbox.folder / "begun").write_text(str(time.time()), "ascii")
        (sandbox.folder / "name").write_text(f"{app}/{name}", "utf-8")
        variables = {"PATH": os.environ["PATH"], **env}
        for secret in secrets:
            variables.update(secret.values)
        script = f'{shlex.join(args)}\necho $? >{sandbox.folder}/exit.part; mv {sandbox.folder}/exit.part {sandbox.folder}/exit'
        with open(sandbox.logs.log, "ab") as log:
            process = subprocess.Popen(["bash", "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       env=variables, start_new_session=True)
        (sandbox.folder / "pid").write_text(str(process.pid), "ascii")
        return sandbox

    def poll(self):
        record("Sandbox.poll")
        if not self.folder.exists():
            raise exception.NotFoundError("no such sandbox")
        ended = self.folder / "exit"
        return int(ended.read_text("ascii")) if ended.exists() else None

    def get_tags(self):
        record("Sandbox.get_tags")
        tags = self.folder / "tags"
        return json.loads(tags.read_text("utf-8")) if tags.exists() else {}

    def set_tags(self, *args):
        record("Sandbox.set_tags", args)
        (self.folder / "tags").write_text(json.dumps(args[0]), "utf-8")

    def terminate(self):
        record("Sandbox.terminate")
        children = subprocess.run(["pgrep", "-P", (self.folder / "pid").read_text("ascii")], capture_output=True,
                                  text=True, check=False).stdout.split()
        for child in children:
            with contextlib.suppress(ProcessLookupError):  # ended meanwhile, as by another launcher
                os.kill(int(child), signal.SIGKILL)


def main():
    assert sys.argv[1:] == ["run", "--quiet", "-"], sys.argv
    script = sys.stdin.read()
    if (folder / "fault").exists():
        sys.exit("Could not connect to the Modal server.")
    if (folder / "no-token").exists():
        sys.exit("Error: Token missing. Could not authenticate client. If you are a new user, run `modal token new`.")
    module = types.ModuleType("modal")
    version = folder / "version"
    module.__version__ = version.read_text("ascii").strip() if version.exists() else "1.6.4"
    for value in (App, Image, Secret, Sandbox):
        setattr(module, value.__name__, value)
    module.exception = exception
    sys.modules["modal"] = module
    names = {"__name__": "modal_stdin_app"}
    exec(compile(script, "stdin", "exec"), names)  # pylint: disable=exec-used
    names["main"]()


if __name__ == "__main__":
    main()
