#!/usr/bin/env python3
"""A recorder in place of SkyPilot's command `sky`: it has the options of version 0.14.1 that launch uses.

A managed job is a process of this machine. The folder SKY_FAKE has requests.jsonl, the arguments of each call; jobs/<id>/
with name, pid, exit, cancelled and log; and fault: while it exists, each call fails. no-cancel has the id of a job that
cannot be cancelled; clock has the hours that SkyPilot's clock is ahead of this machine's. A job of H200:8 finds no
machine. The file version has another version than 0.14.1. With no-cloud no cloud is enabled; the words of that error,
and of the one before a first job, are those of SkyPilot 0.14.1 without a cloud."""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

folder = pathlib.Path(os.environ["SKY_FAKE"])
jobs = folder / "jobs"
REASONS = {"FAILED": "To see the details, run: sky jobs logs",
           "FAILED_NO_RESOURCE": "Failed to acquire resources in all zones: quota exceeded"}


def launch(args):
    if (folder / "no-cloud").exists():
        sys.exit("sky.exceptions.NoCloudAccessError: Cloud access is not set up. Run: \x1b[1msky check\x1b[0m")
    if args.image_id.endswith("/nowhere"):
        sys.exit(f"no cloud has {args.image_id}")
    if args.infra == "aws/moon-1":
        sys.exit("ValueError: Invalid region 'moon-1'\nList of supported aws regions: 'eu-west-1, us-east-1'")
    jobs.mkdir(exist_ok=True)
    job = jobs / str(1 + len(list(jobs.iterdir())))
    job.mkdir()
    (job / "name").write_text(args.name, "utf-8")
    env = {"PATH": os.environ["PATH"], **dict(item.split("=", 1) for item in args.env),
           **{name: os.environ[name] for name in args.secret}}
    entrypoint = "exit" if args.gpus == "H200:8" else args.entrypoint
    script = f"{entrypoint}\necho $? >{job}/exit.part; mv {job}/exit.part {job}/exit"
    with open(job / "log", "ab") as log:
        process = subprocess.Popen(["bash", "-c", script], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   env=env, start_new_session=True)
    (job / "pid").write_text(str(process.pid), "ascii")
    if args.gpus == "H200:8":
        (job / "no-resource").touch()
    print("Job submitted, ID:", job.name)


def status(job):
    if (job / "no-resource").exists():
        return "FAILED_NO_RESOURCE"
    cancelled, ended = (job / "cancelled").exists(), (job / "exit").exists()
    if not ended:
        return "CANCELLING" if cancelled else "RUNNING"
    if cancelled:
        return "CANCELLED"
    return "FAILED" if int((job / "exit").read_text("ascii")) else "SUCCEEDED"


def queue(args):
    assert args.all and args.output == "json"
    if not jobs.exists():  # there is no jobs controller before the first job
        sys.exit("sky.exceptions.ClusterNotUpError: No in-progress managed jobs.")
    hours = float((folder / "clock").read_text("ascii")) if (folder / "clock").exists() else 0
    now = time.time() + 3600 * hours
    rows = [{"job_id": int(job.name), "job_name": (job / "name").read_text("utf-8"), "status": status(job),
             "submitted_at": now - 1, "start_at": now, "end_at": now if (job / "exit").exists() else None,
             "failure_reason": REASONS.get(status(job))}
            for job in sorted(jobs.glob("*"), key=lambda job: -int(job.name))]
    print("Fetching managed job statuses...")
    print(json.dumps(rows, indent=2))


def cancel(args):
    job = jobs / str(args.job)
    refused = folder / "no-cancel"
    if refused.exists() and refused.read_text("ascii").strip() == job.name:
        sys.exit("the controller of the job is unreachable.")
    (job / "cancelled").touch()
    children = subprocess.run(["pgrep", "-P", (job / "pid").read_text("ascii")], capture_output=True, text=True,
                              check=False).stdout.split()
    for child in children:
        os.kill(int(child), signal.SIGTERM)


def logs(args):
    job = jobs / str(args.job)
    with open(job / "log", encoding="utf-8", errors="replace") as log:
        sys.stdout.writelines(log)
    sys.stdout.flush()
    sys.exit({"SUCCEEDED": 0, "FAILED": 100, "CANCELLED": 103}.get(status(job), 101))  # JobExitCode


def main():
    if sys.argv[1:] == ["--version"]:
        version = folder / "version"
        print("skypilot, version " + (version.read_text("ascii").strip() if version.exists() else "0.14.1"))
        return
    parser = argparse.ArgumentParser(allow_abbrev=False)
    calls = parser.add_subparsers(required=True).add_parser("jobs").add_subparsers(required=True)
    one = calls.add_parser("launch", allow_abbrev=False)
    one.set_defaults(run=launch)
    for flag in ("--yes", "--detach-run", "--use-spot"):
        one.add_argument(flag, action="store_true", required=flag != "--use-spot")
    for flag in ("--name", "--image-id", "--infra", "--instance-type", "--gpus", "--cpus", "--memory", "--disk-size"):
        one.add_argument(flag)
    one.add_argument("--env", action="append", default=[])
    one.add_argument("--secret", action="append", default=[])
    one.add_argument("entrypoint")
    one = calls.add_parser("queue", allow_abbrev=False)
    one.set_defaults(run=queue)
    one.add_argument("--all", action="store_true")
    one.add_argument("--output")
    one = calls.add_parser("cancel", allow_abbrev=False)
    one.set_defaults(run=cancel)
    one.add_argument("--yes", action="store_true", required=True)
    one.add_argument("job", type=int)
    one = calls.add_parser("logs", allow_abbrev=False)
    one.set_defaults(run=logs)
    one.add_argument("--follow", action=argparse.BooleanOptionalAction)
    one.add_argument("job", type=int)
    args = parser.parse_args()
    with open(folder / "requests.jsonl", "a", encoding="utf-8") as out:
        out.write(json.dumps({"argv": sys.argv[1:], "name": getattr(args, "name", None)}) + "\n")
    if (folder / "fault").exists():
        sys.exit("SkyPilot API server is unreachable.")
    args.run(args)


if __name__ == "__main__":
    main()
