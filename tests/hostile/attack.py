#!/usr/bin/env python3
"""attack.py PORT TOKEN SECONDS OTHER: everything a hostile client does to a hub, all at once.

Real sockets, for SECONDS: 1,000 idle connections, headers without end, headers and bodies that
trickle, bodies longer than they say and than the hub takes. Also paths that try to lead out, wrong
tokens, and malformed requests. Then, with the token TOKEN, as a member would: the objects of the
folder OTHER of another signed run, under the names of this run's replicas. Prints the number of
each answer to each kind. The only error is an accepted request that must be refused.
"""
import collections
import os
import pathlib
import random
import resource
import socket
import sys
import threading
import time

PORT, TOKEN, SECONDS, OTHER = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
RUN = "team/tiny"
until = time.monotonic() + SECONDS
seen = collections.Counter()
bad = []
lock = threading.Lock()
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def count(what, answer):
    with lock:
        seen[f"{what} {answer}"] += 1


def connect():
    s = socket.create_connection(("127.0.0.1", PORT), timeout=5)
    return s


def answer(s):
    """The status of the answer, or the reason for its absence."""
    try:
        head = s.recv(4096)
    except TimeoutError:
        return "nothing"
    except OSError:
        return "cut"
    return head[9:12].decode("ascii", "replace") if head.startswith(b"HTTP/1.") else "cut"


def ask(what, data, must_not=("200", "201", "204", "206")):
    try:
        with connect() as s:
            try:
                s.sendall(data)
            except OSError:
                pass  # it has had enough
            status = answer(s)
    except OSError:
        status = "cut"
    count(what, status)
    if status in must_not:
        with lock:
            bad.append(f"{what}: {status}: {data[:120]!r}")
    return status


def head(method, path, *fields, token=None):
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *fields]
    if token:
        lines.append(f"Authorization: Bearer {token}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def idle():
    """1,000 connections that say nothing, or half a line."""
    held = []
    while time.monotonic() < until:
        try:
            s = connect()
            if random.random() < 0.5:
                s.sendall(b"GET /healthz HTT")
            held.append(s)
        except OSError:
            count("idle", "refused")
            time.sleep(0.05)
        if len(held) >= 1000:
            time.sleep(0.05)
    count("idle", len(held))
    for s in held:
        s.close()


def floods():
    while time.monotonic() < until:
        ask("many headers", b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(20000)))
        ask("a long header", b"GET / HTTP/1.1\r\nX: " + b"y" * 1000000 + b"\r\n\r\n")
        ask("a long target", b"GET /" + b"a" * 300000 + b" HTTP/1.1\r\n\r\n")
        ask("no request", os.urandom(5000))
        ask("chunks", head("PUT", f"/{RUN}/x", "Transfer-Encoding: chunked", token=TOKEN)
            + b"ffffffffffffffffff\r\n" + b"z" * 1000)
        ask("two lengths", head("PUT", f"/{RUN}/x", "Content-Length: 3", "Content-Length: 4", token=TOKEN)
            + b"abcd")
        ask("length and chunks", head("PUT", f"/{RUN}/x", "Content-Length: 3",
                                      "Transfer-Encoding: chunked", token=TOKEN) + b"0\r\n\r\n")


def trickles():
    """A byte now and then: a header, and a body with a token."""
    starts = [b"GET /healthz HTTP/1.1\r\nX: ",
              head("PUT", f"/{RUN}/slow", "Content-Length: 1000000", token=TOKEN)]
    held = []
    for i in range(60):
        s = connect()
        s.sendall(starts[i % 2])
        held.append(s)
    while time.monotonic() < until:
        for s in held:
            try:
                s.sendall(b"a")
            except OSError:
                pass
        time.sleep(0.5)


def bodies():
    while time.monotonic() < until:
        ask("too long", head("PUT", f"/{RUN}/huge", "Content-Length: 99999999999999", token=TOKEN)
            + b"x" * 100000)
        ask("longer than allowed", head("PUT", f"/{RUN}/big", "Content-Length: 9500000", token=TOKEN)
            + b"x" * 9500000)
        ask("without a token", head("PUT", f"/{RUN}/log/0000000000.json", "If-None-Match: *",
                                    "Content-Length: 5") + b"mine!")
        ask("a wrong token", head("PUT", f"/{RUN}/log/0000000001.json", "Content-Length: 5",
                                  token="0" * 64) + b"mine!")
        ask("half a token", head("GET", f"/{RUN}/run.json", token=TOKEN[:-1]))
        ask("deleting", head("DELETE", f"/{RUN}/run.json", token=TOKEN))
        ask("deleting", head("DELETE", f"/{RUN}/gen/r0.0000", token=TOKEN))
        ask("replacing", head("PUT", f"/{RUN}/run.json", "Content-Length: 2", token=TOKEN) + b"{}")


TRICKS = ["/../outside", "/team/../../outside", "/%2e%2e/outside", "/team/%2e%2e/%2e%2e/outside",
          "/team/..%2f..%2foutside", "//etc/passwd", "/team//etc/passwd", "/team/.tmp/x", "/.hub/token",
          "/%2ehub/hub.key", "/team/a%00b", "/team/a\\..\\b", "/team/%c0%ae%c0%ae/x", "/team/./x",
          "/link/x", "/team/" + "a/" * 300 + "x", "/team/%", "/team/%zz", "http://localhost/../x"]


def paths():
    while time.monotonic() < until:
        for trick in TRICKS:
            ask("a path", head("GET", trick, token=TOKEN))
            ask("a path", head("PUT", trick, "Content-Length: 4", token=TOKEN) + b"here")


def replays():
    """Objects that others signed in another run, under this run's names; accepted by the hub, which
    does not read them, and by no replica. A name of r1's only after r1 itself: a token's holder may
    take names, and r1 would have to stop."""
    other = pathlib.Path(OTHER)
    files = sorted(p for folder in ("c", "log", "snap") for p in (other / folder).rglob("*") if p.is_file())
    while time.monotonic() < until:
        for file in files:
            name = file.relative_to(other).as_posix()
            if name.startswith("log/"):
                continue  # the first writer gets those names, as a token's holder may
            if "r1." in name and ask("a name", head("HEAD", f"/{RUN}/{name}", token=TOKEN), must_not=()) != "200":
                continue
            body = file.read_bytes()
            ask("a replay", head("PUT", f"/{RUN}/{name.replace('r0.', 'r9.')}", "If-None-Match: *",
                                 f"Content-Length: {len(body)}", token=TOKEN) + body, must_not=())
        time.sleep(0.2)


def honest():
    """A token's holder that asks now and then."""
    while time.monotonic() < until:
        ask("honest", head("GET", f"/{RUN}/run.json", token=TOKEN), must_not=())
        time.sleep(0.05)


threads = [threading.Thread(target=t) for t in (honest, idle, floods, trickles, bodies, paths, replays)]
for t in threads:
    t.start()
for t in threads:
    t.join()
for what, n in sorted(seen.items()):
    print(f"{n:7} {what}")
for line in bad[:20]:
    print("TAKEN:", line)
served = seen["honest 200"]
if 4 * served <= sum(n for what, n in seen.items() if what.startswith("honest")):
    bad.append(f"honest requests answered: {served}")
    print("LOST:", bad[-1])
sys.exit(bool(bad))
