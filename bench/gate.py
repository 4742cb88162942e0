#!/usr/bin/env python3
"""gate.py - CPU seconds of the tests of a build folder, one test after the other, the largest first.

    gate.py [-R REGEX] [-E REGEX] BUILD

User and system time of all processes that a test starts, its servers included. So other work on the
machine changes them little, unlike the time that passes. bench/gate.md has results.
"""
import argparse
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes this process the parent of orphans, whose time counts when they are waited for."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("this system gives no process to another parent")


def used():
    it = resource.getrusage(resource.RUSAGE_CHILDREN)
    return it.ru_utime + it.ru_stime


def wait_for_orphans(until):
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)
        except ChildProcessError:
            return


def properties(test):
    return {p["name"]: p["value"] for p in test.get("properties", [])}


def run(test):
    """Its CPU seconds, and its exit status."""
    more = properties(test)
    environment = dict(os.environ)
    environment.update(pair.split("=", 1) for pair in more.get("ENVIRONMENT", []))
    before = used()
    process = subprocess.Popen(test["command"], cwd=more.get("WORKING_DIRECTORY"), env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = 0
    while pid != process.pid:  # orphans end before it; a test may wait until they are gone
        pid, ended = os.wait()
    status = process.returncode = os.waitstatus_to_exitcode(ended)
    wait_for_orphans(time.monotonic() + 10)
    return used() - before, status


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("-R", default="")
    p.add_argument("-E", default="^$")
    args = p.parse_args()
    shown = subprocess.run(["ctest", "--test-dir", args.build, "--show-only=json-v1"], check=True,
                           capture_output=True, text=True).stdout
    tests = [t for t in json.loads(shown)["tests"] if re.search(args.R, t["name"]) and not re.search(args.E, t["name"])]
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored where a shell began this in the background
    costs = []
    for test in tests:
        seconds, status = run(test)
        costs.append((seconds, test["name"], "" if status == 0 else f"  status {status}"))
        print(f"{len(costs)} of {len(tests)}: {seconds:.2f}  {test['name']}", file=sys.stderr, flush=True)
    for seconds, name, note in sorted(costs, reverse=True):
        print(f"{seconds:8.2f}  {name}{note}")
    print(f"{sum(c[0] for c in costs):8.2f}  in all")


if __name__ == "__main__":
    main()
